//! Which container, pod or Slurm job a process belongs to, out of its control group, and what the
//! pod is called.
//!
//! The control group gives a pod's UID and a container's id. The names come from a [`Names`]:
//! [`LogLinks`] reads them off the links that kubelet keeps for every container; others can ask
//! kubelet itself. What cannot be told is left empty, never guessed.

use std::collections::HashMap;
use std::fmt::Debug;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Longest list of control groups that is read.
const LONGEST: u64 = 64 << 10;
/// Most links that are looked at.
const MOST_LINKS: usize = 10_000;

/// Where a process runs, as its control group says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct PodPlace {
    /// The pod's UID, with dashes; empty outside of Kubernetes.
    pub pod_uid: String,
    /// The container's id; empty outside of containers.
    pub container_id: String,
    /// The number of its Slurm job; empty outside of Slurm.
    pub job: String,
}

/// What a container is called.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Name {
    /// Its pod.
    pub pod: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The container in the pod.
    pub container: String,
}

/// Gives names to containers.
pub trait Names: Debug + Send + Sync {
    /// The name of the container of a process. `group` is the process's group of the service, empty
    /// if it is in none.
    fn name(&self, place: &PodPlace, group: &str) -> Option<Name>;
}

impl PodPlace {
    /// Where a process runs. `uid` is the user whose process it is to be: a number that has become
    /// another user's process meanwhile says nothing.
    #[must_use]
    pub fn of(pid: u32, uid: u32) -> Self {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let own = std::fs::metadata(&process).is_ok_and(|metadata| metadata.uid() == uid);
        let mut text = String::new();
        let read = own && std::fs::File::open(process.join("cgroup")).and_then(|file| file.take(LONGEST).read_to_string(&mut text)).is_ok();
        if read { Self::parse(&text) } else { Self::default() }
    }

    /// The contents of `/proc/PID/cgroup`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut place = Self::default();
        for path in text.lines().filter_map(|line| line.splitn(3, ':').nth(2)) {
            for step in path.split('/') {
                let fill = |field: &mut String, value: Option<String>| {
                    if let Some(value) = value.filter(|_| field.is_empty()) {
                        *field = value;
                    }
                };
                fill(&mut place.pod_uid, pod_uid(step));
                fill(&mut place.container_id, container_id(step));
                fill(&mut place.job, step.strip_prefix("job_").filter(|job| is_all(job, |c| c.is_ascii_digit())).map(str::to_owned));
            }
        }
        place
    }
}

fn is_all(text: &str, allowed: impl Fn(char) -> bool) -> bool {
    !text.is_empty() && text.len() <= 64 && text.chars().all(allowed)
}

/// `kubepods-burstable-pod1234_…​.slice` of systemd, `pod1234-…` of cgroupfs.
fn pod_uid(step: &str) -> Option<String> {
    let name = match step.strip_suffix(".slice") {
        Some(slice) => slice.rsplit('-').next().filter(|_| slice.starts_with("kubepods"))?,
        None => step,
    };
    let uid = name.strip_prefix("pod")?.replace('_', "-");
    // The UID of a static pod is a hash without dashes.
    (uid.len() >= 32 && is_all(&uid, |c| c.is_ascii_hexdigit() || c == '-')).then_some(uid)
}

/// `cri-containerd-<id>.scope`, `docker-<id>.scope`, `<id>`.
fn container_id(step: &str) -> Option<String> {
    let name = step.strip_suffix(".scope").unwrap_or(step);
    let id = name.rsplit(['-', ':']).next()?;
    (id.len() == 64 && is_all(id, |c| c.is_ascii_hexdigit())).then(|| id.to_owned())
}

/// Names out of the links `POD_NAMESPACE_CONTAINER-ID.log` that kubelet keeps for each container.
/// The folder needs to be readable, the logs behind the links not.
#[derive(Debug)]
pub struct LogLinks {
    folder: PathBuf,
    known: Mutex<HashMap<String, Name>>,
}

impl LogLinks {
    /// The folder, usually `/var/log/containers`.
    #[must_use]
    pub fn of(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), known: Mutex::default() }
    }

    fn list(&self) -> HashMap<String, Name> {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten().take(MOST_LINKS);
        entries.filter_map(|entry| link(entry.file_name().to_str()?)).collect()
    }
}

impl Names for LogLinks {
    fn name(&self, place: &PodPlace, _group: &str) -> Option<Name> {
        if place.container_id.is_empty() || place.pod_uid.is_empty() {
            return None;
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.contains_key(&place.container_id) {
            // A new container: the list is read anew, which also forgets those that have gone.
            *known = self.list();
        }
        known.get(&place.container_id).cloned()
    }
}

/// The container's id and name. Names in Kubernetes have no underscores.
fn link(name: &str) -> Option<(String, Name)> {
    let (rest, id) = name.strip_suffix(".log")?.rsplit_once('-')?;
    let mut parts = rest.split('_');
    let (pod, namespace, container) = (parts.next()?, parts.next()?, parts.next()?);
    let is_name = |part: &&str| !part.is_empty() && part.len() <= 253 && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.'));
    let sound = parts.next().is_none() && [pod, namespace, container].iter().all(is_name) && id.len() == 64;
    sound.then(|| (id.to_owned(), Name { pod: pod.into(), namespace: namespace.into(), container: container.into() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    const POD: &str = "8b7e0a3c-1f7a-4f6f-9d58-0a3f4b5c6d7e";

    #[test]
    fn control_groups_of_every_runtime() {
        let slice = POD.replace('-', "_");
        for text in [
            format!("0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{slice}.slice/cri-containerd-{ID}.scope\n"),
            format!("0::/kubepods.slice/kubepods-pod{slice}.slice/crio-{ID}.scope/container\n"),
            format!("12:memory:/kubepods/besteffort/pod{POD}/{ID}\n0::/\n"),
            format!("0::/../../kubepods-besteffort-pod{slice}.slice:cri-containerd:{ID}\n0::/kubepods/pod{POD}/x"),
        ] {
            let place = PodPlace::parse(&text);
            assert_eq!((place.pod_uid.as_str(), place.container_id.as_str()), (POD, ID), "{text}");
        }
        for text in [format!("0::/system.slice/docker-{ID}.scope"), format!("0::/docker/{ID}"), format!("0::/machine.slice/libpod-{ID}.scope")] {
            assert_eq!(PodPlace::parse(&text), PodPlace { container_id: ID.into(), ..PodPlace::default() }, "{text}");
        }
        assert_eq!(PodPlace::parse("0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0").job, "4711");
        assert_eq!(PodPlace::parse("0::/slurm/uid_1000/job_12/step_batch").job, "12");
    }

    /// Any user names control groups in its own slice: what does not look right is nothing.
    #[test]
    fn what_is_none_is_left_empty() {
        let deep = format!("0::/{}", "a/".repeat(30_000));
        for text in
            ["", "0::/", "nonsense", "0::/user.slice/podcast/job_x/pod_", "0::/kubepods-pod.slice", "0::/podzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz", &deep]
        {
            assert_eq!(PodPlace::parse(text), PodPlace::default());
        }
    }

    #[test]
    fn own_process_and_a_strangers() {
        let (pid, uid) = (std::process::id(), rustix::process::geteuid().as_raw());
        let text = std::fs::read_to_string("/proc/self/cgroup").unwrap();
        assert_eq!(PodPlace::of(pid, uid), PodPlace::parse(&text));
        assert_eq!(PodPlace::of(pid, uid + 1), PodPlace::default());
    }

    #[test]
    fn names_off_kubelets_links() {
        let folder = tempfile::tempdir().unwrap();
        let links = LogLinks::of(folder.path());
        let place = PodPlace { pod_uid: POD.into(), container_id: ID.into(), job: String::new() };
        assert_eq!(links.name(&place, ""), None);
        for name in [format!("web-0_shop_main-{ID}.log"), format!("evil\n_shop_main-{}.log", ID.replace('0', "1")), "x.log".into(), "a_b-c.log".into()] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(links.name(&place, ""), Some(Name { pod: "web-0".into(), namespace: "shop".into(), container: "main".into() }));
        assert_eq!(links.name(&PodPlace { container_id: ID.replace('0', "1"), ..place.clone() }, ""), None);
        assert_eq!(links.name(&PodPlace::default(), ""), None);
    }
}
