//! Is anybody still there? Asked about every 100 ms while waiting, so that no call hangs when server and keeper are gone.
//!
//! A dead server is made again from what its keeper and its executors have, and its new process number is in the page then; that is given some time. Where the
//! keeper of the welcome has ended, too, it may have been replaced long ago, or only the executors are left: that is given less.

use cumux_link::Process;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long a dead server may take to come back.
const PATIENCE: Duration = Duration::from_secs(10);
const SHORT_PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct Liveness {
    server: Process,
    server_pid: u32,
    keeper: Process,
    gone_since: Option<Instant>,
}

impl Liveness {
    #[must_use]
    pub fn new(server: OwnedFd, server_pid: u32, keeper: OwnedFd) -> Self {
        Self { server: server.into(), server_pid, keeper: keeper.into(), gone_since: None }
    }

    /// Whether waiting may still lead anywhere; `page_server` is the server's process number as the page says it now.
    pub fn hopeful(&mut self, page_server: u32) -> bool {
        self.hopeful_at(Instant::now(), page_server)
    }

    fn hopeful_at(&mut self, now: Instant, page_server: u32) -> bool {
        if page_server != self.server_pid
            && let Ok(server) = Process::open(page_server)
        {
            self.server = server;
            self.server_pid = page_server;
            self.gone_since = None;
        }
        if self.server.is_alive() {
            self.gone_since = None;
            return true;
        }
        let since = *self.gone_since.get_or_insert(now);
        let patience = if self.keeper.is_alive() { PATIENCE } else { SHORT_PATIENCE };
        now.saturating_duration_since(since) < patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(command: &str) -> (std::process::Child, OwnedFd) {
        let child = std::process::Command::new(command).arg("1000").spawn().expect("a process starts");
        let handle = rustix::process::pidfd_open(rustix::process::Pid::from_child(&child), rustix::process::PidfdFlags::empty()).expect("a handle");
        (child, handle)
    }

    #[test]
    fn without_server_there_is_hope_for_a_while_and_longer_while_the_keeper_lives() {
        let (mut server, server_fd) = process("sleep");
        let (mut keeper, keeper_fd) = process("sleep");
        let number = server.id();
        let mut liveness = Liveness::new(server_fd, number, keeper_fd);
        assert!(liveness.hopeful(number));
        server.kill().unwrap();
        server.wait().unwrap();
        let now = Instant::now();
        assert!(liveness.hopeful_at(now, number), "it can be made again");
        assert!(liveness.hopeful_at(now + SHORT_PATIENCE, number) && !liveness.hopeful_at(now + PATIENCE, number));
        let (mut next, _) = process("sleep");
        assert!(liveness.hopeful(next.id()) && liveness.gone_since.is_none(), "a new server was announced");
        next.kill().unwrap();
        next.wait().unwrap();
        keeper.kill().unwrap();
        keeper.wait().unwrap();
        let now = Instant::now();
        assert!(liveness.hopeful_at(now, next.id()), "the executors can still name their sessions");
        assert!(!liveness.hopeful_at(now + SHORT_PATIENCE, next.id()));
    }
}
