//! What slurmd calls before, in and after a job: prolog, task prolog and epilog; and `gres.conf`.
//!
//! A job with a part of a card gets a group of its own, `slurm-<job>`, which only the job's user
//! may use: so much of the multiprocessors as its `mps` or `shard` are of the card's, and the same
//! part of the memory. A job with whole cards gets a group without limits, which shows it these
//! cards alone.
//!
//! Invariants: nothing comes from variables that the job's user can set, but in the task prolog,
//! which changes nothing. Prolog and epilog may be run again at any time. A failure is one
//! sentence, which becomes the node's reason.

pub mod scope;

use crate::groups::{Group, Groups, GroupsError, NodeCard};
use cumux_artifacts::check::{self, Kind};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Longest reason that we give a node.
const LONGEST_REASON: usize = 200;

/// Why a hook fails.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SlurmError {
    /// Not called by slurmd.
    #[error("{0} is not set: this is called by slurmd, as Prolog, Epilog or TaskProlog in slurm.conf")]
    Missing(&'static str),
    /// A variable that cannot be.
    #[error("{name}={value} is not understood: {wanted} was expected")]
    Wrong {
        /// The variable.
        name: &'static str,
        /// What it is.
        value: String,
        /// What it should be.
        wanted: &'static str,
    },
    /// The daemon has other cards than Slurm.
    #[error("job {job} has GPU {gpu}, and the daemon has only {known}: gres.conf and the daemon's --device must name the same cards in the same order")]
    NoSuchCard {
        /// The job.
        job: u32,
        /// Slurm's index of the card.
        gpu: String,
        /// How many the daemon has.
        known: usize,
    },
    /// The card serves nobody.
    #[error("GPU {gpu} serves nobody at the moment: {why}")]
    Ill {
        /// Slurm's index of the card.
        gpu: u32,
        /// Why.
        why: String,
    },
    /// The daemon.
    #[error(transparent)]
    Groups(#[from] GroupsError),
    /// The control groups of jobs are not found.
    #[error("{0}")]
    Scope(String),
    /// `gres.conf` cannot be written.
    #[error("{0}")]
    Gres(String),
}

/// What Slurm has given a job on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Its number.
    pub id: u32,
    /// Its user.
    pub uid: u32,
    /// Its cards, by Slurm's index or by UUID.
    pub gpus: Vec<String>,
    /// Its part of each card; `None` for whole cards.
    pub percent: Option<u32>,
}

fn number(name: &'static str, value: &str) -> Result<u32, SlurmError> {
    value.trim().parse().map_err(|_| SlurmError::Wrong { name, value: value.to_owned(), wanted: "a number" })
}

impl Job {
    /// The job that slurmd's variables describe; `None` if it has no card. `shards` is how many
    /// shards the job has, and of how many of a card, where that is known otherwise.
    ///
    /// # Errors
    /// [`SlurmError`].
    pub fn from_environment(variable: impl Fn(&str) -> Option<String>, shards: Option<(u32, u32)>) -> Result<Option<Self>, SlurmError> {
        let variable = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let need = |name: &'static str| variable(name).ok_or(SlurmError::Missing(name));
        let (id, uid) = (number("SLURM_JOB_ID", &need("SLURM_JOB_ID")?)?, number("SLURM_JOB_UID", &need("SLURM_JOB_UID")?)?);
        // With mps and shard some versions name the card in CUDA_VISIBLE_DEVICES alone. Both are
        // the node's numbering in a prolog.
        let Some(list) = variable("SLURM_JOB_GPUS").or_else(|| variable("CUDA_VISIBLE_DEVICES")) else { return Ok(None) };
        let gpus: Vec<String> = list.split(',').map(|gpu| gpu.trim().to_owned()).collect();
        if let Some(wrong) = gpus.iter().find(|gpu| gpu.parse::<u32>().is_err() && !gpu.starts_with("GPU-")) {
            let value = if gpus.len() == 1 { wrong.clone() } else { list.clone() };
            return Err(SlurmError::Wrong { name: "SLURM_JOB_GPUS", value, wanted: "numbers of GPUs with commas between them" });
        }
        let percent = match variable("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE") {
            Some(text) => {
                let percent = text.trim().parse::<f64>().ok().filter(|percent| *percent >= 0.0 && *percent <= 100.0);
                let wrong = || SlurmError::Wrong { name: "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", value: text.clone(), wanted: "a number up to 100" };
                // Slurm rounds down: 1 of 200 is 0.
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Checked above.
                Some(percent.map(|percent| (percent as u32).max(1)).ok_or_else(wrong)?)
            }
            None => shards.map(|(has, of)| (has.saturating_mul(100) / of.max(1)).clamp(1, 100)),
        };
        Ok(Some(Self { id, uid, gpus, percent }))
    }

    /// The name of its group.
    #[must_use]
    pub fn group(&self) -> String {
        group_of(self.id)
    }
}

/// The name of a job's group.
#[must_use]
pub fn group_of(job: u32) -> String {
    format!("slurm-{job}")
}

/// What the administrator has decided.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// A part of a card is a part of its memory, too.
    pub limit_memory: bool,
    /// The control group of a job below `/sys/fs/cgroup`, with `%j` for its number and `%u` for its
    /// user: then only processes in it are in the job's group.
    pub cgroup: Option<String>,
    /// Most processes of a job at a time.
    pub clients: Option<u32>,
}

/// Makes the group of a job, and returns its directory.
///
/// # Errors
/// [`SlurmError`]; no group is left then.
pub fn prolog(job: &Job, rules: &Rules, groups: &dyn Groups) -> Result<PathBuf, SlurmError> {
    let cards = groups.cards()?;
    let mut group = Group {
        name: job.group(),
        percentage: job.percent.filter(|percent| *percent < 100),
        uid: Some(job.uid),
        cgroup: rules.cgroup.as_ref().map(|pattern| scope::expand(pattern, job.id, job.uid)),
        clients: rules.clients,
        ..Group::default()
    };
    for gpu in &job.gpus {
        let card = card_of(gpu, &cards).ok_or_else(|| SlurmError::NoSuchCard { job: job.id, gpu: gpu.clone(), known: cards.len() })?;
        if let Some(why) = &card.ill {
            return Err(SlurmError::Ill { gpu: card.ordinal, why: why.clone() });
        }
        if let Some(percent) = group.percentage.filter(|_| rules.limit_memory) {
            group.memory.insert(card.uuid.clone(), (card.memory_mib * u64::from(percent) / 100).max(1));
        }
        group.devices.push(card.uuid.clone());
    }
    Ok(groups.create(&group)?)
}

fn card_of<'a>(gpu: &str, cards: &'a [NodeCard]) -> Option<&'a NodeCard> {
    cards.iter().find(|card| card.uuid == gpu || card.ordinal.to_string() == gpu)
}

/// Removes the group of a job and ends its processes on the card. True if there was one.
///
/// # Errors
/// [`SlurmError`].
pub fn epilog(job: u32, groups: &dyn Groups) -> Result<bool, SlurmError> {
    Ok(groups.remove(&group_of(job))?)
}

/// What a task prolog prints where its task is not in the job's control group: no program of the
/// task would be served. `own` is the text of `/proc/self/cgroup`.
///
/// # Errors
/// [`SlurmError`].
pub fn misplaced(variable: impl Fn(&str) -> Option<String>, pattern: &str, own: &str) -> Result<Option<String>, SlurmError> {
    let need = |name: &'static str| number(name, &variable(name).ok_or(SlurmError::Missing(name))?);
    let (job, uid) = (need("SLURM_JOB_ID")?, need("SLURM_JOB_UID")?);
    let wanted = scope::expand(pattern, job, uid);
    Ok(scope::outside(&wanted, own).map(|own| {
        format!("print cumux: this task is in the control group {own}, and the group of job {job} serves only {wanted}: set ProctrackType=proctrack/cgroup in slurm.conf\n")
    }))
}

/// What a task prolog prints: lines by which slurmstepd changes the environment of a task.
///
/// # Errors
/// [`SlurmError`].
pub fn task_prolog(variable: impl Fn(&str) -> Option<String>, pipes: &[PathBuf], library: Option<&Path>) -> Result<String, SlurmError> {
    let job = number("SLURM_JOB_ID", &variable("SLURM_JOB_ID").ok_or(SlurmError::Missing("SLURM_JOB_ID"))?)?;
    let directories: Vec<PathBuf> = pipes.iter().map(|pipe| pipe.join("groups").join(group_of(job))).collect();
    let Some(directory) = directories.iter().find(|directory| directory.is_dir()).or(directories.first()) else { return Ok(String::new()) };
    let mut text = String::new();
    if !directory.is_dir() {
        // The percentage alone: mps beside shard on one card, where Slurm 22.05 names no card.
        let names = ["SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"];
        let named = names.iter().any(|name| variable(name).is_some());
        if !named {
            // A job without a card.
            return Ok(text);
        }
        let _ = writeln!(text, "print cumux: job {job} has no group at {}: the node's prolog has not run or failed", directory.display());
    }
    // Also where it is missing: a program is to fail there and not to take a card without limits.
    let _ = writeln!(text, "export CUDA_MPS_PIPE_DIRECTORY={}", directory.display());
    let _ = writeln!(text, "export CUMUX_GROUP={}", group_of(job));
    // The group has the share already, and shows the job its own cards, from 0 on.
    for name in ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_VISIBLE_DEVICES"] {
        let _ = writeln!(text, "unset {name}");
    }
    if let Some(library) = library {
        let before = variable("LD_LIBRARY_PATH").filter(|path| !path.is_empty()).map_or_else(String::new, |path| format!(":{path}"));
        let _ = writeln!(text, "export LD_LIBRARY_PATH={}{before}", library.display());
    }
    Ok(text)
}

/// How many shards a job has and of how many of a card, out of `scontrol show job -d` and `scontrol
/// show node`.
#[must_use]
pub fn shards(job: &str, node: &str) -> Option<(u32, u32)> {
    let counted = |text: &str, name: &str| -> Option<u32> {
        let at = text.find(&format!("{name}:"))?;
        let rest = &text[at + name.len() + 1..];
        // `shard:8`, `shard:h200:8`, `shard:2(IDX:0)`.
        let word: &str = rest.split([',', '(', ' ', '\n']).next()?;
        word.rsplit(':').next()?.parse().ok()
    };
    let line = |text: &str, key: &str| text.lines().find(|line| line.trim_start().starts_with(key) || line.contains(&format!(" {key}"))).map(str::to_owned);
    let has = counted(&line(job, "GRES=").or_else(|| line(job, "TresPerNode="))?, "shard")?;
    let all = line(node, "Gres=")?;
    let cards = counted(&all, "gpu").unwrap_or(1).max(1);
    Some((has, (counted(&all, "shard")? / cards).max(1)))
}

/// How cards are counted in `gres.conf`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counting {
    /// `mps`: so many of each card; the job's part is its percentage.
    Mps(u32),
    /// `shard`: so many of each card.
    Shard(u32),
}

/// `gres.conf` for these cards, with the lines for `slurm.conf` above it.
///
/// # Errors
/// What was written is not what Slurm takes.
pub fn gres(cards: &[NodeCard], counting: Counting) -> Result<String, SlurmError> {
    let (name, each) = match counting {
        Counting::Mps(each) => ("mps", each),
        Counting::Shard(each) => ("shard", each),
    };
    if each == 0 || cards.is_empty() {
        return Err(SlurmError::Gres(if each == 0 { format!("--{name} 0: at least 1 of each card is needed") } else { "the daemon has no card".to_owned() }));
    }
    let all = u64::from(each) * cards.len() as u64;
    let mut text = format!(
        "# slurm.conf, each on a line of its own:
#   GresTypes=gpu,{name}
#   SelectType=select/cons_tres
#   SelectTypeParameters=CR_Core
#   PrologFlags=Alloc
#   Prolog=/etc/slurm/cumux-prolog.sh
#   Epilog=/etc/slurm/cumux-epilog.sh
#   TaskProlog=/etc/slurm/cumux-task-prolog.sh
#   NodeName=... Gres=gpu:{},{name}:{all}
# A job asks:  --gres={name}:{}   (of {each} of a card)
",
        cards.len(),
        each.div_ceil(4),
    );
    if cards.len() > 1 {
        text.push_str(
            "# Parts of several cards for one job: SelectTypeParameters=CR_Core,MULTIPLE_SHARING_GRES_PJ, with which Slurm 22.05 and older do not start.\n",
        );
    }
    // Otherwise Slurm shares one card of a node at a time by mps, and jobs wait beside free cards.
    let flags = if cards.len() > 1 && counting == Counting::Mps(each) { " Flags=all_sharing" } else { "" };
    for card in cards {
        let _ = writeln!(text, "# {} {} {} MiB", card.uuid, card.name, card.memory_mib);
        let _ = writeln!(text, "Name=gpu File=/dev/nvidia{}", card.ordinal);
        let _ = writeln!(text, "Name={name} Count={each} File=/dev/nvidia{}{flags}", card.ordinal);
    }
    check::file(Kind::Gres, &text).map_err(|refusal| SlurmError::Gres(format!("what was written is no gres.conf: {refusal}")))?;
    Ok(text)
}

/// The reason for a node that has to be drained: one line, without what Slurm reads in another way.
#[must_use]
pub fn reason(error: &str) -> String {
    let plain: String = error.chars().map(|c| if c.is_control() || c == '"' || c == '\'' { ' ' } else { c }).collect();
    let reason = format!("cumux: {}", plain.split_whitespace().collect::<Vec<_>>().join(" "));
    reason.chars().take(LONGEST_REASON).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeDaemon;
    use std::collections::HashMap;

    fn variables(list: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> + use<> {
        let map: HashMap<String, String> = list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        move |name| map.get(name).cloned()
    }

    fn job(list: &[(&str, &str)]) -> Result<Option<Job>, SlurmError> {
        let mut all = vec![("SLURM_JOB_ID", "42"), ("SLURM_JOB_UID", "1000")];
        all.extend(list);
        Job::from_environment(variables(&all), None)
    }

    const RULES: Rules = Rules { limit_memory: true, cgroup: None, clients: None };

    #[test]
    fn a_job_with_mps_gets_its_part_of_card_and_memory() {
        let daemon = FakeDaemon::with_cards(&[10_000, 20_000]);
        let job = job(&[("SLURM_JOB_GPUS", "1"), ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "25")]).unwrap().unwrap();
        prolog(&job, &RULES, &daemon).unwrap();
        // Slurm runs a prolog again after a requeue.
        prolog(&job, &RULES, &daemon).unwrap();
        let group = &daemon.groups()[0];
        assert_eq!((daemon.groups().len(), group.name.as_str(), group.uid, group.percentage), (1, "slurm-42", Some(1000), Some(25)));
        assert_eq!(group.memory.values().copied().collect::<Vec<_>>(), [5000]);
        assert!(epilog(42, &daemon).unwrap() && !epilog(42, &daemon).unwrap());
        assert_eq!(daemon.groups(), []);
    }

    #[test]
    fn whole_cards_and_several_jobs_beside_each_other() {
        let daemon = FakeDaemon::with_cards(&[10_000, 20_000]);
        let whole = job(&[("SLURM_JOB_GPUS", "0,1")]).unwrap().unwrap();
        prolog(&whole, &Rules { cgroup: Some("/system.slice/slurmstepd.scope/job_%j".into()), clients: Some(4), ..RULES }, &daemon).unwrap();
        let other = Job { id: 43, uid: 1001, gpus: vec!["1".into()], percent: Some(10) };
        prolog(&other, &RULES, &daemon).unwrap();
        let groups = daemon.groups();
        assert_eq!((groups[0].percentage, groups[0].memory.len(), groups[0].devices.len()), (None, 0, 2));
        assert_eq!(groups[0].cgroup.as_deref(), Some("/system.slice/slurmstepd.scope/job_42"));
        epilog(42, &daemon).unwrap();
        assert_eq!(daemon.groups()[0].name, "slurm-43");
    }

    #[test]
    fn shards_are_a_part_of_a_card() {
        let job =
            Job::from_environment(variables(&[("SLURM_JOB_ID", "1"), ("SLURM_JOB_UID", "0"), ("CUDA_VISIBLE_DEVICES", "0")]), Some((3, 8))).unwrap().unwrap();
        assert_eq!(job.percent, Some(37));
        let shown = "JobId=5 JobName=x\n   JOB_GRES=shard:2\n     Nodes=n CPU_IDs=0 Mem=0 GRES=shard:2(IDX:0)\n   TresPerNode=gres:shard:2\n";
        assert_eq!(shards(shown, "NodeName=n\n   Gres=gpu:h200:2,shard:16\n"), Some((2, 8)));
        assert_eq!(shards("JobId=5\n", "NodeName=n\n   Gres=gpu:2\n"), None);
    }

    #[test]
    fn a_job_without_a_card_is_none_of_ours() {
        assert_eq!(job(&[]).unwrap(), None);
        assert_eq!(job(&[("SLURM_JOB_GPUS", "")]).unwrap(), None);
        let pipe = tempfile::tempdir().unwrap();
        assert_eq!(task_prolog(variables(&[("SLURM_JOB_ID", "1")]), &[pipe.path().into()], None).unwrap(), "");
    }

    #[test]
    fn a_task_learns_its_directory() {
        let pipe = tempfile::tempdir().unwrap();
        let directory = pipe.path().join("groups/slurm-42");
        let environment = variables(&[("SLURM_JOB_ID", "42"), ("CUDA_VISIBLE_DEVICES", "1"), ("LD_LIBRARY_PATH", "/a:/b")]);
        let text = task_prolog(&environment, &[pipe.path().into()], None).unwrap();
        assert!(text.starts_with("print cumux: job 42 has no group at") && text.contains("\nexport CUDA_MPS_PIPE_DIRECTORY="), "{text}");
        // Slurm names no card to a job with mps where shard is on the card, too.
        let text = task_prolog(variables(&[("SLURM_JOB_ID", "42"), ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "25")]), &[pipe.path().into()], None).unwrap();
        assert!(text.starts_with("print cumux: job 42 has no group at"), "{text}");
        std::fs::create_dir_all(&directory).unwrap();
        let text = task_prolog(&environment, &["/nonexistent".into(), pipe.path().into()], Some(Path::new("/opt/lib"))).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], format!("export CUDA_MPS_PIPE_DIRECTORY={}", directory.display()));
        assert!(lines.contains(&"unset CUDA_VISIBLE_DEVICES") && lines.contains(&"export LD_LIBRARY_PATH=/opt/lib:/a:/b"), "{text}");
    }

    #[test]
    fn what_slurm_and_the_daemon_do_not_agree_on_is_named() {
        let daemon = FakeDaemon::with_cards(&[10_000]);
        let missing = job(&[("SLURM_JOB_GPUS", "3")]).unwrap().unwrap();
        let text = prolog(&missing, &RULES, &daemon).unwrap_err().to_string();
        assert!(text.contains("job 42 has GPU 3") && text.contains("gres.conf"), "{text}");
        daemon.set_ill(0, Some("server 7 is in FAULT"));
        let text = prolog(&job(&[("SLURM_JOB_GPUS", "0")]).unwrap().unwrap(), &RULES, &daemon).unwrap_err().to_string();
        assert!(text.contains("server 7 is in FAULT"), "{text}");
        assert_eq!(daemon.groups(), []);
        for (list, word) in [(("SLURM_JOB_GPUS", "x"), "SLURM_JOB_GPUS=x"), (("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "many"), "=many")] {
            let text = job(&[("CUDA_VISIBLE_DEVICES", "0"), list]).unwrap_err().to_string();
            assert!(text.contains(word), "{text}");
        }
        let text = Job::from_environment(variables(&[]), None).unwrap_err().to_string();
        assert!(text.contains("SLURM_JOB_ID is not set"), "{text}");
        assert_eq!(reason("a \"b\"\nc"), "cumux: a b c");
    }

    #[test]
    fn gres_names_every_card() {
        let daemon = FakeDaemon::with_cards(&[10_000, 20_000]);
        let text = gres(&daemon.cards().unwrap(), Counting::Mps(100)).unwrap();
        assert!(text.contains("Gres=gpu:2,mps:200") && text.contains("Name=mps Count=100 File=/dev/nvidia1 Flags=all_sharing\n"), "{text}");
        assert!(gres(&daemon.cards().unwrap()[..1], Counting::Mps(100)).unwrap().ends_with("Name=mps Count=100 File=/dev/nvidia0\n"));
        assert!(gres(&daemon.cards().unwrap(), Counting::Shard(8)).unwrap().ends_with("Name=shard Count=8 File=/dev/nvidia1\n"));
        assert!(gres(&[], Counting::Shard(8)).is_err() && gres(&daemon.cards().unwrap(), Counting::Mps(0)).is_err());
    }
}
