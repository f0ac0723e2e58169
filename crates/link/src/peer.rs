//! The process at the other end of a unix socket, according to the kernel: the other side cannot
//! lie about it.
//!
//! A process whose PID namespace is not below ours (another container's, or the host's if we are in
//! a container) has no process id here. It is known by its pidfd, and gets a substitute number that
//! no process can have.

use crate::process::Process;
use nix::errno::Errno;
use nix::sys::socket::{getsockopt, sockopt};
use rustix::fs::{FsWord, fstat, fstatfs};
use std::hash::{BuildHasher as _, RandomState};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

/// Credentials of the process that connected, taken when it connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Process id; `None` for a process that has none in our PID namespace.
    pub pid: Option<u32>,
    /// Its effective user.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
}

/// Why the process at the other end is not known.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// It ended before its pidfd could be opened.
    #[error("the process that connected has ended")]
    Ended,
    #[error(
        "the kernel does not say which process is at the other end: Linux 6.5 does, and before that both must see each other's processes (in containers: one \
         PID namespace, --pid=host or hostPID: true)"
    )]
    /// The kernel gives neither a pidfd nor a process id.
    Unseen,
    /// Another refusal of the kernel's.
    #[error("the system gives no handle of the process that connected: {0}")]
    System(#[from] rustix::io::Errno),
}

/// The process that connected.
#[derive(Debug)]
pub struct Caller {
    /// Its process id, or a substitute ([`is_unseen`]): its name in logs and lists.
    pub number: u32,
    /// Its pidfd, which tells when it has ended.
    pub process: Process,
}

/// Substitute numbers of processes that have no process id here: Linux assigns none above
/// 4,194,304, and nine digits fit into every table.
const UNSEEN: std::ops::Range<u32> = 500_000_000..1_000_000_000;
/// The file system of pidfds since Linux 6.9, in which every process has an inode of its own.
const PIDFS: FsWord = 0x5049_4446;

/// Whether a number is a substitute for a process without a process id in our PID namespace.
#[must_use]
pub fn is_unseen(number: u32) -> bool {
    UNSEEN.contains(&number)
}

impl Peer {
    /// The credentials of the process at the other end of `socket`.
    ///
    /// # Errors
    /// The descriptor is no connected unix socket.
    pub fn of(socket: &impl AsFd) -> rustix::io::Result<Self> {
        let found = getsockopt(socket, sockopt::PeerCredentials).map_err(errno)?;
        Ok(Self { pid: u32::try_from(found.pid()).ok().filter(|pid| *pid != 0), uid: found.uid(), gid: found.gid() })
    }
}

/// The process at the other end of a socket; `None` if the kernel cannot say (before Linux 6.5) or
/// it has ended.
#[must_use]
pub fn process_of(socket: &impl AsFd) -> Option<Process> {
    getsockopt(socket, sockopt::PeerPidfd).ok().map(Process::from)
}

impl Caller {
    /// The process at the other end of `socket`. `offered` is a pidfd that the peer has sent: it
    /// counts only where the kernel has neither a pidfd nor a process id of the peer. Such a peer
    /// can pass another process off as itself; that decides when its own session ends and nothing
    /// else.
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

/// The substitute number of a process: the same each time where pidfds have inodes of their own,
/// else a random one.
fn number_for(process: &Process) -> u32 {
    let span = u64::from(UNSEEN.end - UNSEEN.start);
    let inode = match (fstatfs(process), fstat(process)) {
        (Ok(system), Ok(file)) if system.f_type == PIDFS => file.st_ino,
        _ => RandomState::new().hash_one(0),
    };
    UNSEEN.start + u32::try_from(inode % span).unwrap_or(0)
}

/// Whether a descriptor that a peer sent is a pidfd.
fn is_process(handle: &OwnedFd) -> bool {
    fdinfo_pid(handle).is_some()
}

/// The process id that `/proc` shows for a pidfd: 0 for a process outside our PID namespace; `None`
/// for one that has ended, and where there is no `/proc`. Two pidfds with the same number, other
/// than 0, are of one process.
#[must_use]
pub fn told_number(process: &impl AsFd) -> Option<u32> {
    fdinfo_pid(process)?.parse().ok()
}

/// The number that a process has in its own PID namespace, the innermost one. `None` if it cannot
/// be seen from here.
#[must_use]
pub fn innermost_number(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("NSpid:"))?.split_ascii_whitespace().last()?.parse().ok()
}

fn fdinfo_pid(handle: &impl AsFd) -> Option<String> {
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
    fn a_process_has_a_number_in_its_own_namespace() {
        assert_eq!(innermost_number(std::process::id()), Some(std::process::id()), "the tests run in one namespace");
        assert_eq!(innermost_number(u32::MAX), None);
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
