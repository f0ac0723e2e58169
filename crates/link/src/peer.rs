//! Who is at the other end of a unix socket. Everything here is the kernel's word, not the other side's.
//!
//! A process of a PID namespace that ours does not contain (another container's, or the host's where we are in a container) has no number here. It
//! is known by its handle, and gets a number of ours that no process can have.

use crate::process::Process;
use nix::errno::Errno;
use nix::sys::socket::{getsockopt, sockopt};
use rustix::fs::{FsWord, fstat, fstatfs};
use std::hash::{BuildHasher as _, RandomState};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

/// Who connected, at the time it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// `None` for a process that has no number in our PID namespace.
    pub pid: Option<u32>,
    pub uid: u32,
    pub gid: u32,
}

/// Why it is not known which process is at the other end.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    #[error("the process that connected has ended")]
    Ended,
    #[error(
        "the kernel does not say which process is at the other end: Linux 6.5 does, and before that both must see each other's processes (in containers: one \
         PID namespace, --pid=host or hostPID: true)"
    )]
    Unseen,
    #[error("the system gives no handle of the process that connected: {0}")]
    System(#[from] rustix::io::Errno),
}

/// The process that connected: its number in our logs and lists, and a handle that tells when it has ended.
#[derive(Debug)]
pub struct Caller {
    pub number: u32,
    pub process: Process,
}

/// Numbers of processes that have none here: no process of Linux has one above 4,194,304, and nine digits fit into every table.
const UNSEEN: std::ops::Range<u32> = 500_000_000..1_000_000_000;
/// The file system of process handles since Linux 6.9, where every process has an inode of its own.
const PIDFS: FsWord = 0x5049_4446;

/// Whether a number stands for a process that has none in our PID namespace.
#[must_use]
pub fn is_unseen(number: u32) -> bool {
    UNSEEN.contains(&number)
}

impl Peer {
    /// # Errors
    /// The descriptor is no connected unix socket.
    pub fn of(socket: &impl AsFd) -> rustix::io::Result<Self> {
        let found = getsockopt(socket, sockopt::PeerCredentials).map_err(errno)?;
        Ok(Self { pid: u32::try_from(found.pid()).ok().filter(|pid| *pid != 0), uid: found.uid(), gid: found.gid() })
    }
}

/// The process at the other end of a socket, if the kernel tells and it has not ended.
#[must_use]
pub fn process_of(socket: &impl AsFd) -> Option<Process> {
    getsockopt(socket, sockopt::PeerPidfd).ok().map(Process::from)
}

impl Caller {
    /// The process at the other end of `socket`. `offered` is a handle that it has sent of itself: used only where the kernel can neither give a handle
    /// nor a number. A liar among such callers can name another process as itself, which decides when its own session ends and nothing else.
    ///
    /// # Errors
    /// [`PeerError`].
    pub fn of(socket: &impl AsFd, offered: Option<OwnedFd>) -> Result<Self, PeerError> {
        let pid = Peer::of(socket)?.pid;
        let told = match getsockopt(socket, sockopt::PeerPidfd) {
            Ok(handle) => Some(Process::from(handle)),
            // Older than Linux 6.5.
            Err(Errno::ENOPROTOOPT) => None,
            Err(Errno::ESRCH | Errno::EINVAL | Errno::ENODATA) => return Err(PeerError::Ended),
            Err(other) => return Err(PeerError::System(errno(other))),
        };
        Self::from_parts(pid, told, offered)
    }

    fn from_parts(pid: Option<u32>, told: Option<Process>, offered: Option<OwnedFd>) -> Result<Self, PeerError> {
        let process = match (told, pid, offered) {
            (Some(told), ..) => told,
            (None, Some(pid), _) => Process::open(pid).map_err(|errno| if errno == rustix::io::Errno::SRCH { PeerError::Ended } else { errno.into() })?,
            (None, None, Some(offered)) if is_process(&offered) => offered.into(),
            (None, None, _) => return Err(PeerError::Unseen),
        };
        if !process.is_alive() {
            return Err(PeerError::Ended);
        }
        Ok(Self { number: pid.unwrap_or_else(|| number_for(&process)), process })
    }
}

/// The number of a process that has none here: the same each time where the kernel tells processes apart by their handles.
fn number_for(process: &Process) -> u32 {
    let span = u64::from(UNSEEN.end - UNSEEN.start);
    let inode = match (fstatfs(process), fstat(process)) {
        (Ok(system), Ok(file)) if system.f_type == PIDFS => file.st_ino,
        _ => RandomState::new().hash_one(0),
    };
    UNSEEN.start + u32::try_from(inode % span).unwrap_or(0)
}

/// Whether a descriptor that somebody sent is the handle of a process.
fn is_process(handle: &OwnedFd) -> bool {
    told(handle).is_some()
}

/// The number that `/proc` tells of a handle's process: 0 for one that it does not show, `None` for one that has ended and where there is no `/proc`. Two
/// handles of which it tells the same number, and not 0, are of one process.
#[must_use]
pub fn told_number(process: &impl AsFd) -> Option<u32> {
    told(process)?.parse().ok()
}

fn told(handle: &impl AsFd) -> Option<String> {
    let about = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", handle.as_fd().as_raw_fd())).ok()?;
    about.lines().find_map(|line| Some(line.strip_prefix("Pid:")?.trim().to_owned()))
}

fn errno(errno: Errno) -> rustix::io::Errno {
    rustix::io::Errno::from_raw_os_error(errno as i32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::Connection;

    fn handle(pid: u32) -> OwnedFd {
        Process::open(pid).unwrap().into()
    }

    #[test]
    fn ourselves_at_the_other_end() {
        let (ours, _theirs) = Connection::pair().unwrap();
        let peer = Peer::of(&ours).unwrap();
        assert_eq!((peer.pid, peer.uid), (Some(std::process::id()), rustix::process::getuid().as_raw()));
        let caller = Caller::of(&ours, None).unwrap();
        assert!(caller.number == std::process::id() && caller.process.is_alive());
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(Peer::of(&file).is_err() && process_of(&file).is_none());
    }

    #[test]
    fn a_process_without_a_number_gets_one_that_no_process_has() {
        let own = std::process::id();
        let caller = Caller::from_parts(None, Some(handle(own).into()), None).unwrap();
        assert!(is_unseen(caller.number) && !is_unseen(own) && caller.number.to_string().len() == 9);
        // The handle that it sent counts only where the kernel says nothing at all.
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let caller = Caller::from_parts(Some(own), None, Some(handle(child.id()))).unwrap();
        assert_eq!(caller.number, own);
        let caller = Caller::from_parts(None, None, Some(handle(child.id()))).unwrap();
        child.kill().unwrap();
        assert!(is_unseen(caller.number) && caller.process.ended(None));
        assert!(matches!(Caller::from_parts(None, None, Some(handle(child.id()))), Err(PeerError::Ended)), "not waited for, and dead");
        child.wait().unwrap();
        assert!(matches!(Caller::from_parts(Some(child.id()), None, None), Err(PeerError::Ended)));
        assert!(matches!(Caller::from_parts(None, None, None), Err(PeerError::Unseen)));
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(matches!(Caller::from_parts(None, None, Some(file.into())), Err(PeerError::Unseen)), "no handle of a process");
    }

    #[test]
    fn a_handle_tells_its_number() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let process = Process::open(child.id()).unwrap();
        assert_eq!(told_number(&process), Some(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(told_number(&process), None);
    }

    #[test]
    fn where_the_kernel_tells_processes_apart_a_number_is_the_same_each_time() {
        let own: Process = handle(std::process::id()).into();
        if fstatfs(&own).is_ok_and(|system| system.f_type == PIDFS) {
            assert_eq!(number_for(&own), number_for(&own.try_clone().unwrap()));
        } else {
            eprintln!("NOTE: not tested: Linux 6.9 tells processes apart by their handles");
        }
    }
}
