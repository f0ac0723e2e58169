//! Is anybody still there? Asked about every 100 ms while waiting, so that no call hangs when server and keeper are gone.
//!
//! A dead server is rebuilt from the keeper and writes its new process number into the page; that is given some time. Without the keeper
//! nothing can be rebuilt.

use cumux_link::Process;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long a dead server may take to come back.
const PATIENCE: Duration = Duration::from_secs(10);

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
        let since = *self.gone_since.get_or_insert_with(Instant::now);
        self.keeper.is_alive() && since.elapsed() < PATIENCE
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
    fn without_server_there_is_hope_only_while_the_keeper_lives() {
        let (mut server, server_fd) = process("sleep");
        let (mut keeper, keeper_fd) = process("sleep");
        let number = server.id();
        let mut liveness = Liveness::new(server_fd, number, keeper_fd);
        assert!(liveness.hopeful(number));
        server.kill().unwrap();
        server.wait().unwrap();
        assert!(liveness.hopeful(number), "the keeper can still rebuild it");
        let (mut next, _) = process("sleep");
        assert!(liveness.hopeful(next.id()) && liveness.gone_since.is_none(), "a new server was announced");
        next.kill().unwrap();
        next.wait().unwrap();
        keeper.kill().unwrap();
        keeper.wait().unwrap();
        assert!(!liveness.hopeful(next.id()));
    }
}
