//! `cumux artifacts MODE`: the files that an administrator applies, each of them read back by the
//! rules of the program that will read it; `cumux artifacts check FILE…` reads files of others so.

use crate::say;
use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use cumux_artifacts::check::{self, Kind};
use cumux_artifacts::make::{Artifact, Mode, Options, files};
use cumux_planner::card;
use std::fs::{self, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Longest file that is checked.
const LONGEST: u64 = 16 << 20;

/// What to write, or to check.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// NVIDIA's MPS
    Mps,
    /// cumux under NVIDIA's names
    Cumux,
    /// Time-slicing by the device plugin, shards of Slurm
    TimeSlicing,
    /// MIG geometries of a card
    Mig,
    /// Checks FILE…: are they what the programs that read them take?
    Check,
}

/// The command line of `cumux artifacts`.
#[derive(Args, Debug)]
pub struct ArtifactArguments {
    /// What the files are for
    what: What,
    /// Files to check
    files: Vec<PathBuf>,
    /// Writes the files into this folder, which is made if it is not there; without it they are
    /// printed. A file that is there is kept, unless --force
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Writes over files that are there
    #[arg(long)]
    force: bool,
    /// Programs that share a card; 4 without it
    #[arg(long)]
    replicas: Option<u32>,
    /// Percent of the multiprocessors that each may use
    #[arg(long)]
    percentage: Option<u32>,
    /// Memory of the card that each may have, in MiB
    #[arg(long, value_name = "MIB")]
    memory: Option<u64>,
    /// Number of the GPU on its machine; 0 without it
    #[arg(long)]
    gpu: Option<u32>,
    /// The daemon's pipe directory
    #[arg(long, value_name = "DIR")]
    pipe: Option<String>,
    /// The daemon's log directory
    #[arg(long, value_name = "DIR")]
    log: Option<String>,
    /// Where cumux is installed
    #[arg(long, value_name = "DIR")]
    prefix: Option<String>,
    /// Image of the example pod
    #[arg(long)]
    image: Option<String>,
    #[arg(long, help = format!("For mig: one of {}", card::names()))]
    card: Option<String>,
    /// For mig: the instances of one card, 3g.40gb,2g.20gb,2g.20gb; every geometry without it
    #[arg(long, value_delimiter = ',', value_name = "PROFILE,…")]
    geometry: Vec<String>,
    /// Name of that geometry
    #[arg(long)]
    name: Option<String>,
    /// What that geometry is for
    #[arg(long)]
    use_case: Option<String>,
}

/// Writes or checks, and returns the exit status.
pub fn main(arguments: ArtifactArguments) -> anyhow::Result<u8> {
    let mode = match arguments.what {
        What::Check => return check_files(&arguments.files),
        What::Mps => Mode::Mps,
        What::Cumux => Mode::Cumux,
        What::TimeSlicing => Mode::TimeSlicing,
        What::Mig => Mode::Mig,
    };
    if let Some(file) = arguments.files.first() {
        bail!("{} is one word too many: files are named for `cumux artifacts check` only", file.display());
    }
    refuse_idle_options(&arguments)?;
    let defaults = Options::of(mode);
    let options = Options {
        replicas: arguments.replicas.unwrap_or(defaults.replicas),
        percentage: arguments.percentage,
        memory_mib: arguments.memory,
        gpu: arguments.gpu.unwrap_or(defaults.gpu),
        pipe: arguments.pipe.unwrap_or(defaults.pipe),
        log: arguments.log.unwrap_or(defaults.log),
        prefix: arguments.prefix.unwrap_or(defaults.prefix),
        image: arguments.image.unwrap_or(defaults.image),
        card: arguments.card.as_deref().map(card::find).transpose()?,
        geometry: arguments.geometry,
        name: arguments.name,
        use_case: arguments.use_case,
    };
    let made = files(mode, &options)?;
    match &arguments.out {
        Some(folder) => write(folder, &made, arguments.force)?,
        None => {
            let text: String = made.iter().map(|artifact| format!("==> {} <==\n{}\n", artifact.name, artifact.text)).collect();
            say::text(&text)?;
        }
    }
    Ok(0)
}

/// Refuses an option that changes none of the files: whoever gives it expects that it does.
fn refuse_idle_options(arguments: &ArtifactArguments) -> anyhow::Result<()> {
    use What::{Cumux, Mig, Mps, TimeSlicing};
    let all: [(&str, bool, &[What]); 11] = [
        ("--replicas", arguments.replicas.is_some(), &[Mps, Cumux, TimeSlicing]),
        ("--percentage", arguments.percentage.is_some(), &[Mps, Cumux]),
        ("--memory", arguments.memory.is_some(), &[Mps, Cumux]),
        ("--gpu", arguments.gpu.is_some(), &[Mps, Cumux, TimeSlicing, Mig]),
        ("--pipe", arguments.pipe.is_some(), &[Mps, Cumux]),
        ("--log", arguments.log.is_some(), &[Mps, Cumux]),
        ("--prefix", arguments.prefix.is_some(), &[Cumux]),
        ("--card", arguments.card.is_some(), &[Mig]),
        ("--geometry", !arguments.geometry.is_empty(), &[Mig]),
        ("--name", arguments.name.is_some(), &[Mig]),
        ("--use-case", arguments.use_case.is_some(), &[Mig]),
    ];
    let word = |what: &What| what.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
    if let Some((option, _, modes)) = all.iter().find(|(_, given, modes)| *given && !modes.contains(&arguments.what)) {
        let modes: Vec<String> = modes.iter().map(word).collect();
        bail!("{option} changes nothing in the files for {}: leave it out; it is for {}", word(&arguments.what), modes.join(", "));
    }
    if arguments.geometry.is_empty() && (arguments.name.is_some() || arguments.use_case.is_some()) {
        bail!("--name and --use-case are of one geometry: name it with --geometry");
    }
    Ok(())
}

/// Writes all files or, if one of them is there already, none.
fn write(folder: &Path, made: &[Artifact], force: bool) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("the folder {} cannot be made: choose another with --out", folder.display()))?;
    if !force && let Some(there) = made.iter().map(|artifact| folder.join(artifact.name)).find(|path| path.symlink_metadata().is_ok()) {
        bail!("{} is there already: --force writes over it, or choose another folder with --out", there.display());
    }
    for artifact in made {
        let path = folder.join(artifact.name);
        let cannot = || format!("{} cannot be written", path.display());
        if force {
            // A link of somebody else's is not followed: the name is made anew.
            let _ = fs::remove_file(&path);
        }
        let mode = if artifact.is_executable() { 0o755 } else { 0o644 };
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&path).with_context(cannot)?;
        file.write_all(artifact.text.as_bytes()).with_context(cannot)?;
        say::line(path.display())?;
    }
    Ok(())
}

/// Exit status 1 if a file would be refused.
fn check_files(paths: &[PathBuf]) -> anyhow::Result<u8> {
    if paths.is_empty() {
        bail!("name the files to check: cumux artifacts check FILE…");
    }
    let mut refused = false;
    for path in paths {
        let name = path.display();
        let mut text = String::new();
        let file = fs::File::open(path).with_context(|| format!("{name} cannot be read"))?;
        file.take(LONGEST).read_to_string(&mut text).with_context(|| format!("{name} cannot be read"))?;
        let Some(kind) = Kind::of(&path.to_string_lossy(), &text) else {
            bail!("{name}: nothing is known of such a file; .yaml, .json, .sh, .service and gres.conf are checked");
        };
        match check::file(kind, &text) {
            Ok(()) => say::line(format_args!("{name}: ok"))?,
            Err(refusal) => {
                refused = true;
                say::line(format_args!("{name}: {refusal}"))?;
            }
        }
    }
    Ok(u8::from(refused))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::os::unix::fs::PermissionsExt as _;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: ArtifactArguments,
    }

    fn run(words: &[&str]) -> Result<u8, String> {
        main(Line::try_parse_from([&["artifacts"], words].concat()).unwrap().arguments).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn what_is_written_is_checked_and_never_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("new/files");
        let out = out.to_str().unwrap();
        assert_eq!(run(&["mig", "--card", "a100-80", "--geometry", "3g.40gb,2g.20gb,2g.20gb", "--out", out]), Ok(0));
        let written: Vec<String> = fs::read_dir(out).unwrap().map(|entry| entry.unwrap().path().display().to_string()).collect();
        assert_eq!(written.len(), 6, "{written:?}");
        let script = fs::metadata(format!("{out}/apply-mig.sh")).unwrap();
        assert_eq!(script.permissions().mode() & 0o111, 0o111);
        let names: Vec<&str> = std::iter::once("check").chain(written.iter().map(String::as_str)).collect();
        assert_eq!(run(&names), Ok(0));
        assert!(run(&["mig", "--card", "a100-80", "--out", out]).unwrap_err().contains("is there already"));
        assert_eq!(run(&["mig", "--card", "a100-80", "--out", out, "--force"]), Ok(0));
        let file = format!("{out}/mig-parted.yaml");
        fs::write(&file, fs::read_to_string(&file).unwrap().replace("3g.40gb: 2", "3g.40gb: 3")).unwrap();
        assert_eq!(run(&["check", &file]), Ok(1));
    }

    #[test]
    fn what_cannot_be_written_is_answered_with_a_sentence() {
        assert!(run(&["mig"]).unwrap_err().contains("--card"));
        assert!(run(&["mig", "--card", "a200"]).unwrap_err().contains("it knows"));
        assert!(run(&["mps", "--replicas", "1"]).unwrap_err().contains("at least 2"));
        for words in
            [["mps", "--card", "a100-80"], ["time-slicing", "--percentage", "30"], ["mig", "--replicas", "4"], ["time-slicing", "--geometry", "1g.10gb"]]
        {
            let said = run(&words).unwrap_err();
            assert!(said.starts_with(&format!("{} changes nothing", words[1])) && said.contains("it is for"), "{said}");
        }
        assert!(run(&["mig", "--card", "a100-80", "--name", "mine"]).unwrap_err().contains("--geometry"));
        assert!(run(&["mps", "extra"]).unwrap_err().contains("one word too many"));
        assert!(run(&["check"]).unwrap_err().contains("name the files"));
        assert!(run(&["check", "/nowhere.yaml"]).unwrap_err().contains("cannot be read"));
        assert!(run(&["mps", "--out", "/proc/nowhere"]).unwrap_err().contains("cannot be made"));
    }
}
