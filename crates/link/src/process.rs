//! Process handles (pidfds): liveness that cannot be fooled by inherited sockets or reused process
//! numbers.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// A handle of one process, alive or dead.
#[derive(Debug)]
pub struct Process {
    handle: OwnedFd,
}

impl From<OwnedFd> for Process {
    fn from(handle: OwnedFd) -> Self {
        Self { handle }
    }
}

impl From<Process> for OwnedFd {
    fn from(process: Process) -> Self {
        process.handle
    }
}

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

impl Process {
    /// Opens the process with this id.
    ///
    /// # Errors
    /// ESRCH when there is no such process.
    pub fn open(pid: u32) -> rustix::io::Result<Self> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(rustix::io::Errno::SRCH)?;
        Ok(Self { handle: pidfd_open(pid, PidfdFlags::empty())? })
    }

    /// Another handle of the same process.
    ///
    /// # Errors
    /// When the process has too many descriptors.
    pub fn try_clone(&self) -> std::io::Result<Self> {
        Ok(Self { handle: self.handle.try_clone()? })
    }

    /// Waits until the process has ended (it may still be a zombie); true if it has, false if
    /// `timeout` passed first. `None` waits for ever.
    #[must_use]
    pub fn ended(&self, timeout: Option<Duration>) -> bool {
        let timeout = timeout.and_then(|t| rustix::fs::Timespec::try_from(t).ok());
        let mut fds = [PollFd::new(&self.handle, PollFlags::IN)];
        match rustix::io::retry_on_intr(|| poll(&mut fds, timeout.as_ref())) {
            Ok(n) => n > 0,
            Err(_) => false,
        }
    }

    /// Whether the process of this number has ended. False where that cannot be told: 0 stands for
    /// a process that has no number in our PID namespace.
    #[must_use]
    pub fn has_ended(pid: u32) -> bool {
        pid != 0 && Self::open(pid).map_or_else(|errno| errno == rustix::io::Errno::SRCH, |process| !process.is_alive())
    }

    /// False once the process has ended, even while it is a zombie.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !self.ended(Some(Duration::ZERO))
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// ESRCH when the process is gone, EPERM when it belongs to another user.
    pub fn signal(&self, signal: Signal) -> rustix::io::Result<()> {
        pidfd_send_signal(&self.handle, signal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_cannot_be_seen_has_not_ended() {
        assert!(!Process::has_ended(0) && !Process::has_ended(std::process::id()));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        assert!(Process::has_ended(pid));
    }
}
