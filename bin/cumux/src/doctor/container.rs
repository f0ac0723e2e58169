//! What differs in a container or a job: only the directory of a group is there, and not the
//! daemon's; `/dev/shm` is small; and the daemon lives in another PID namespace.

use super::Finding;
use cumux_control::PipeDirectory;
use cumux_control::directory::pipe_directory;
use cumux_link::{Connection, LinkError, Process, escape_foreign};
use cumux_wire::message::{Hello, Reply};
use cumux_wire::{VERSION, result};
use rustix::fs::statvfs;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, Instant};

const GROUP: &str = "group";
/// How long the trial waits for a server: as long as a first one takes to start on a busy machine.
const TRIAL: Duration = Duration::from_secs(60);
/// What container runtimes give when nobody asks for more.
const USUAL_SHM: u64 = 64 << 20;

/// Whether this process runs in a container.
pub fn is_here() -> bool {
    let marks = ["/.dockerenv", "/run/.containerenv"].iter().any(|path| Path::new(path).exists());
    marks || std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() || std::env::var_os("CUMUX_GROUP").is_some()
}

/// What to do where the directory of a group should be and is not.
pub fn missing_directory(path: &Path) -> String {
    let shown = path.display();
    if let Some(job) = std::env::var("SLURM_JOB_ID").ok().filter(|_| !Path::new("/.dockerenv").exists()) {
        return format!(
            "job {job} has no group: let Prolog, Epilog and TaskProlog in slurm.conf call cumux slurm (docs/slurm.md), and ask for a card (--gres=mps:25)"
        );
    }
    format!(
        "the directory of a group has to be mounted at {shown}: let the pod ask for a resource of cumux's device plugin (kubectl describe node lists them), or run the container with the directory that `cumux group create` prints (-v DIR:{shown}:ro); or start a daemon in the container (cumux control -d)"
    )
}

/// Whether a directory is that of a group, where programs connect and nobody commands.
pub fn is_group(directory: &PipeDirectory) -> bool {
    directory.cumux().exists() && !directory.control().exists()
}

/// Whether this shell's programs are in a group.
pub fn is_in_group() -> bool {
    is_group(&PipeDirectory::at(&pipe_directory()))
}

/// Connects as a program does, and tells what it would get.
pub fn trial(directory: &PipeDirectory) -> Finding {
    let asked = || -> Result<Reply, LinkError> {
        let connection = Connection::connect(&directory.cumux())?;
        let program = std::env::current_exe().map(|path| path.display().to_string()).unwrap_or_default();
        let own = Process::open(std::process::id()).ok();
        let handles: Vec<_> = own.iter().map(|process| process.as_fd()).collect();
        connection.set_timeout(Some(TRIAL))?;
        let begin = Instant::now();
        // A refusal may lie behind a connection that is closed already.
        let _ = connection.send(&Hello::Client { version: VERSION, pid: std::process::id(), environment: Vec::new(), program }, &handles);
        loop {
            match connection.receive::<Reply>() {
                Err(LinkError::Timeout) if begin.elapsed() < TRIAL => {}
                other => return other.map(|(reply, _)| reply),
            }
        }
    };
    of(asked())
}

fn of(reply: Result<Reply, LinkError>) -> Finding {
    match reply {
        Ok(Reply::Welcome { version, .. }) if version != VERSION => other_version(&format!("the service speaks version {version}, this program {VERSION}")),
        Ok(Reply::Welcome { devices, parts, .. }) => {
            let card = |(facts, part): (&cumux_wire::message::DeviceFacts, &cumux_wire::message::DeviceGrant)| {
                let memory = if part.memory_limit == 0 { facts.memory } else { part.memory_limit };
                format!(
                    "{}: {} MiB, {} multiprocessors",
                    facts.name,
                    memory >> 20,
                    if part.multiprocessors == 0 { facts.multiprocessors() } else { part.multiprocessors }
                )
            };
            let cards: Vec<String> = devices.iter().zip(&parts).map(card).collect();
            Finding::ok(GROUP, "a program that starts here is served").with(cards)
        }
        Ok(Reply::Refused { why, .. }) if why.contains("version") => other_version(&escape_foreign(&why, 1024)),
        Ok(Reply::Refused { result, why }) => {
            let why = escape_foreign(&why, 1024);
            let remedy = match () {
                () if why.contains("clients") => "end other programs of this pod or job, or let an administrator raise the group's number of clients",
                () if why.contains("one user") => "run all programs of this container as one user (securityContext.runAsUser)",
                () if result == result::MPS_CONNECTION_FAILED => "the sentence says what to do; control.log on the node has more",
                () => "control.log on the node has more",
            };
            Finding::problem(GROUP, format!("a program that starts here is refused: {why}"), remedy)
        }
        Err(LinkError::Closed) => Finding::problem(GROUP, "the daemon has closed the connection: its group may be removed", "start the pod or job again"),
        Err(error) => Finding::problem(GROUP, format!("a program that starts here is not served: {error}"), "look into control.log on the node"),
    }
}

fn other_version(found: &str) -> Finding {
    Finding::problem(
        GROUP,
        found,
        "the image or the mounted library is of another cumux than the node's daemon: use the library that the device plugin mounts (unset LD_LIBRARY_PATH in the image)",
    )
}

/// Checks that only matter in a container.
pub fn findings() -> Vec<Finding> {
    vec![shared_memory(statvfs("/dev/shm").ok().map(|stat| stat.f_blocks.saturating_mul(stat.f_frsize)))]
}

fn shared_memory(size: Option<u64>) -> Finding {
    let check = "/dev/shm";
    let remedy = "cumux does not use it, but data loaders and NCCL do: docker run --shm-size=8g, or in a pod a volume emptyDir: {medium: Memory} at /dev/shm";
    match size {
        None => Finding::warning(check, "there is none", remedy),
        Some(size) if size <= USUAL_SHM => Finding::warning(check, format!("has {} MiB only", size >> 20), remedy),
        Some(size) => Finding::ok(check, format!("has {} MiB", size >> 20)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Outcome;
    use super::*;

    #[test]
    fn each_refusal_has_its_remedy() {
        let refused = |why: &str| of(Ok(Reply::Refused { result: result::MPS_CONNECTION_FAILED, why: why.to_owned() }));
        assert!(refused("group pod has 8 clients, and may have no more").remedy.contains("end other programs"));
        assert!(refused("a group serves one user").remedy.contains("runAsUser"));
        assert!(refused("the service speaks version 9").remedy.contains("mounts"));
        assert!(of(Err(LinkError::Closed)).remedy.contains("again"));
    }

    #[test]
    fn a_small_shm_is_told() {
        assert_eq!(shared_memory(Some(64 << 20)).outcome, Outcome::Warning);
        assert_eq!(shared_memory(Some(8 << 30)).outcome, Outcome::Ok);
        assert!(shared_memory(None).remedy.contains("emptyDir"));
    }

    #[test]
    fn a_missing_directory_is_explained() {
        assert!(missing_directory(Path::new("/run/cumux")).contains("/run/cumux"));
    }
}
