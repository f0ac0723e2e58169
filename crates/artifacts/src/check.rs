//! Reading files back, by the rules of the programs that will read them.

mod gres;
mod kubernetes;
mod mig_parted;
pub(crate) mod names;
pub(crate) mod plugin;
mod profiles;
mod script;
mod unit;

use crate::yaml;
pub use crate::yaml::Refusal;
pub(crate) use profiles::{Document, Listed};

/// What a file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A shell script.
    Script,
    /// A systemd unit.
    Unit,
    /// The configuration of NVIDIA's device plugin, alone.
    Plugin,
    /// A ConfigMap with such configurations.
    ConfigMap,
    /// A pod.
    Pod,
    /// A DaemonSet.
    DaemonSet,
    /// The configuration of mig-parted.
    MigParted,
    /// Slurm's gres.conf.
    Gres,
    /// Geometries with name, hardware, partitions and use case.
    Profiles,
}

impl Kind {
    /// What a file is by its name and content.
    #[must_use]
    pub fn of(name: &str, text: &str) -> Option<Self> {
        let name = name.rsplit('/').next().unwrap_or(name);
        if name.ends_with(".sh") || text.starts_with("#!") {
            return Some(Kind::Script);
        }
        if name.ends_with(".service") {
            return Some(Kind::Unit);
        }
        if name.ends_with("gres.conf") {
            return Some(Kind::Gres);
        }
        if name.ends_with(".json") {
            return Some(Kind::Profiles);
        }
        if !name.ends_with(".yaml") && !name.ends_with(".yml") {
            return None;
        }
        let begins =
            |word: &str| text.lines().any(|line| line.trim_end().strip_prefix(word).is_some_and(|rest| rest.is_empty() || rest.starts_with([':', ' '])));
        let kind = |word: &str| text.lines().any(|line| line.strip_prefix("kind:").is_some_and(|rest| rest.trim().trim_matches(['"', '\'']) == word));
        Some(match () {
            () if kind("Pod") => Kind::Pod,
            () if kind("DaemonSet") => Kind::DaemonSet,
            () if kind("ConfigMap") => Kind::ConfigMap,
            () if begins("mig-configs") => Kind::MigParted,
            () => Kind::Plugin,
        })
    }
}

/// Checks a file of this kind.
///
/// # Errors
/// [`Refusal`]: the line, and what is wrong there.
pub fn file(kind: Kind, text: &str) -> Result<(), Refusal> {
    match kind {
        Kind::Script => script::check(text),
        Kind::Unit => unit::check(text),
        Kind::Plugin => yaml::with_root(text, |root| crate::plugin::check_either(&root)),
        Kind::ConfigMap => yaml::with_root(text, |root| kubernetes::config_map(&root)),
        Kind::Pod => yaml::with_root(text, |root| kubernetes::pod(&root)),
        Kind::DaemonSet => yaml::with_root(text, |root| kubernetes::daemon_set(&root)),
        Kind::MigParted => yaml::with_root(text, |root| mig_parted::check(&root)),
        Kind::Gres => gres::check(text),
        Kind::Profiles => profiles::check(text),
    }
}
