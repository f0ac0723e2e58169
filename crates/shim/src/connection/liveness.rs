//! Is anybody still there? Asked about every 100 ms while waiting, so that no call hangs when
//! server and keeper are gone.
//!
//! A dead server is made again from what its keeper and its executors have, and its new process
//! number is in the page then; that is given some time. Where the keeper of the welcome has ended,
//! too, it may have been replaced long ago, or only the executors are left: that is given less.
//!
//! In another PID namespace than the server's its numbers say nothing, or name other processes.
//! There a new number is taken for the new server, and the keeper, which is known by its handle,
//! for the sign that it lives.

use cumux_link::{Process, peer};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long a dead server may take to come back while its keeper lives.
const SERVER_RESTART_LIMIT: Duration = Duration::from_secs(10);
/// How long it may take where the keeper of the welcome has ended, too. Nobody waits for more than
/// 5 s in vain, and a thread that sleeps looks here a few times a second.
const SERVER_RESTART_LIMIT_WITHOUT_KEEPER: Duration = Duration::from_secs(4);

/// Whether the server and the keeper of this connection live.
#[derive(Debug)]
pub struct Liveness {
    /// `None` for a server that came later and cannot be seen from here.
    server: Option<Process>,
    server_pid: u32,
    /// Whether its number is its number here, too.
    seen: bool,
    keeper: Process,
    gone_since: Option<Instant>,
}

impl Liveness {
    /// Watches the server and the keeper of a welcome.
    #[must_use]
    pub fn new(server: OwnedFd, server_pid: u32, keeper: OwnedFd) -> Self {
        let server = Process::from(server);
        // Where nothing is told of it (it has just died), its successor's number is believed.
        let seen = peer::told_number(&server).is_none_or(|told| Process::open(server_pid).is_ok_and(|found| peer::told_number(&found) == Some(told)));
        Self { server: Some(server), server_pid, seen, keeper: keeper.into(), gone_since: None }
    }

    /// Whether waiting may still lead anywhere; `page_server` is the server's process number as the
    /// page says it now.
    pub fn hopeful(&mut self, page_server: u32) -> bool {
        self.hopeful_at(Instant::now(), page_server)
    }

    fn hopeful_at(&mut self, now: Instant, page_server: u32) -> bool {
        if page_server != self.server_pid {
            let server = if self.seen { Process::open(page_server).ok() } else { None };
            if server.is_some() || !self.seen {
                self.server = server;
                self.server_pid = page_server;
                self.gone_since = None;
            }
        }
        if self.server.as_ref().map_or_else(|| self.keeper.is_alive(), Process::is_alive) {
            self.gone_since = None;
            return true;
        }
        let since = *self.gone_since.get_or_insert(now);
        let limit = if self.keeper.is_alive() { SERVER_RESTART_LIMIT } else { SERVER_RESTART_LIMIT_WITHOUT_KEEPER };
        now.saturating_duration_since(since) < limit
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
        assert!(liveness.hopeful_at(now + SERVER_RESTART_LIMIT_WITHOUT_KEEPER, number) && !liveness.hopeful_at(now + SERVER_RESTART_LIMIT, number));
        let (mut next, _) = process("sleep");
        assert!(liveness.hopeful(next.id()) && liveness.gone_since.is_none(), "a new server was announced");
        next.kill().unwrap();
        next.wait().unwrap();
        keeper.kill().unwrap();
        keeper.wait().unwrap();
        let now = Instant::now();
        assert!(liveness.hopeful_at(now, next.id()), "the executors can still name their sessions");
        assert!(!liveness.hopeful_at(now + SERVER_RESTART_LIMIT_WITHOUT_KEEPER, next.id()));
    }

    /// The page's numbers are those of another PID namespace.
    #[test]
    fn a_number_from_elsewhere_names_no_process_here() {
        let (mut server, server_fd) = process("sleep");
        let (mut keeper, keeper_fd) = process("sleep");
        // As the server calls itself: somebody else has that number here.
        let theirs = std::process::id();
        let mut liveness = Liveness::new(server_fd, theirs, keeper_fd);
        assert!(liveness.hopeful(theirs));
        server.kill().unwrap();
        server.wait().unwrap();
        assert!(liveness.hopeful(theirs) && liveness.gone_since.is_some(), "its handle tells, not the number");
        assert!(liveness.hopeful(u32::MAX) && liveness.gone_since.is_none(), "a new server was announced, and has no number here");
        keeper.kill().unwrap();
        keeper.wait().unwrap();
        let now = Instant::now();
        assert!(liveness.hopeful_at(now, u32::MAX), "the executors can still name their sessions");
        assert!(!liveness.hopeful_at(now + SERVER_RESTART_LIMIT_WITHOUT_KEEPER, u32::MAX));
        assert!(liveness.hopeful_at(now + SERVER_RESTART_LIMIT_WITHOUT_KEEPER, theirs), "announced again");
        assert!(!liveness.hopeful_at(now + 2 * SERVER_RESTART_LIMIT_WITHOUT_KEEPER, theirs), "a living process of that number is not the server");
    }
}
