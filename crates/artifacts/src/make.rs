//! Writing the files of a mode.

mod kubernetes;
mod mig;
mod scripts;
mod slurm;

use crate::check::{self, Kind, Refusal};
use cumux_planner::card::CardModel;

/// The way of sharing that the files are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// NVIDIA's Multi-Process Service.
    Mps,
    /// cumux, under NVIDIA's names.
    Cumux,
    /// Processes in turn.
    TimeSlicing,
    /// Multi-Instance GPU.
    Mig,
}

/// What the administrator wants.
#[derive(Debug, Clone)]
pub struct Options {
    /// Programs that share a card.
    pub replicas: u32,
    /// Percent of the multiprocessors that each may use; by default all.
    pub percentage: Option<u32>,
    /// MiB of the card that each may have; by default no limit of its own.
    pub memory_mib: Option<u64>,
    /// Number of the GPU on its machine.
    pub gpu: u32,
    /// Where clients find the daemon.
    pub pipe: String,
    /// Where it logs.
    pub log: String,
    /// Where cumux is installed.
    pub prefix: String,
    /// Image of the example's container.
    pub image: String,
    /// The card, for MIG.
    pub card: Option<&'static CardModel>,
    /// Names of the instances of one card; empty for every geometry of it.
    pub geometry: Vec<String>,
    /// Name of that geometry.
    pub name: Option<String>,
    /// What it is for.
    pub use_case: Option<String>,
}

impl Options {
    /// The defaults of a mode.
    #[must_use]
    pub fn of(mode: Mode) -> Self {
        let (pipe, log) = match mode {
            Mode::Cumux => ("/run/cumux", "/var/log/cumux"),
            _ => ("/tmp/nvidia-mps", "/var/log/nvidia-mps"),
        };
        Self {
            replicas: 4,
            percentage: None,
            memory_mib: None,
            gpu: 0,
            pipe: pipe.to_owned(),
            log: log.to_owned(),
            prefix: "/usr/local".to_owned(),
            image: "registry.example/small-model:1".to_owned(),
            card: None,
            geometry: Vec::new(),
            name: None,
            use_case: None,
        }
    }
}

/// A file to apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// Its text.
    pub text: String,
}

impl Artifact {
    /// True for scripts.
    #[must_use]
    pub fn is_executable(&self) -> bool {
        self.kind == Kind::Script
    }
}

/// Why nothing is written.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum MakeError {
    /// An option that cannot be.
    #[error("{0}")]
    Option(String),
    /// What was written is not what its reader takes: a mistake of ours, or options that no rule
    /// above has caught.
    #[error("{name} would be refused by the program that reads it: {refusal}")]
    Refused {
        /// The file.
        name: &'static str,
        /// Where and why.
        refusal: Refusal,
    },
}

/// The files of a mode, each of them checked.
///
/// # Errors
/// [`MakeError`].
pub fn files(mode: Mode, options: &Options) -> Result<Vec<Artifact>, MakeError> {
    check_options(mode, options)?;
    let made = match mode {
        Mode::Mps => vec![
            scripts::start_mps(options),
            scripts::stop_mps(options),
            scripts::mps_unit(options),
            kubernetes::plugin_config(options, true),
            kubernetes::pod(mode, options, "nvidia.com/gpu"),
            slurm::mps(options),
        ],
        Mode::Cumux => vec![
            scripts::start_cumux(options),
            scripts::stop_cumux(options),
            scripts::cumux_unit(options),
            kubernetes::pod(mode, options, ""),
            slurm::mps(options),
        ],
        Mode::TimeSlicing => vec![kubernetes::plugin_config(options, false), kubernetes::pod(mode, options, "nvidia.com/gpu"), slurm::shard(options)],
        Mode::Mig => mig::all(options)?,
    };
    for artifact in &made {
        check::file(artifact.kind, &artifact.text).map_err(|refusal| MakeError::Refused { name: artifact.name, refusal })?;
    }
    Ok(made)
}

/// Characters of folders and images: none that a shell or YAML reads in another way.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-:@+".contains(c))
}

fn check_options(mode: Mode, options: &Options) -> Result<(), MakeError> {
    let wrong = |text: String| Err(MakeError::Option(text));
    if mode != Mode::Mig && !(2..=512).contains(&options.replicas) {
        return wrong(format!("--replicas {}: at least 2 programs share a card, and at most 512", options.replicas));
    }
    if options.percentage.is_some_and(|percentage| !(1..=100).contains(&percentage)) {
        return wrong(format!("--percentage {}: above 0 and at most 100", options.percentage.unwrap_or_default()));
    }
    if options.memory_mib == Some(0) {
        return wrong("--memory 0 leaves no memory: leave the option out for no limit".to_owned());
    }
    for (option, value) in [("--pipe", &options.pipe), ("--log", &options.log), ("--prefix", &options.prefix)] {
        if !value.starts_with('/') || !is_plain(value) || value.split('/').any(|part| part == "..") {
            return wrong(format!("{option} {value}: an absolute path of letters, digits, /, ., _ and - is needed"));
        }
    }
    if !is_plain(&options.image) {
        return wrong(format!("--image {}: this is no name of an image", options.image));
    }
    Ok(())
}
