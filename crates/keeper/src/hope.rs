//! Whether a server can still come back. Keeper and executors outlive their server; a daemon that
//! ended as it should takes its socket with it, and then nobody starts another server.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A daemon that is started in a used directory makes its socket anew.
const DAEMON_RETURN_TIMEOUT: Duration = Duration::from_secs(1);

/// Looks after the daemon's socket beside a server's.
#[derive(Debug)]
pub struct Hope {
    daemon: PathBuf,
    /// There has been one. Without, nothing can be said.
    seen: bool,
    gone_since: Option<Instant>,
}

impl Hope {
    /// For a process of the server that listens at this path.
    #[must_use]
    pub fn of(server_socket: &Path) -> Self {
        let daemon = server_socket.with_file_name("cumux");
        Self { seen: daemon.exists(), daemon, gone_since: None }
    }

    /// Whether the daemon's socket has been away for good.
    pub fn is_lost(&mut self, now: Instant) -> bool {
        if self.daemon.exists() {
            (self.seen, self.gone_since) = (true, None);
            return false;
        }
        self.seen && now.saturating_duration_since(*self.gone_since.get_or_insert(now)) >= DAEMON_RETURN_TIMEOUT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_stays_away_is_the_end() {
        let folder = std::env::temp_dir().join(format!("cumux-hope-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (server, daemon) = (folder.join("server-0.sock"), folder.join("cumux"));
        let now = Instant::now();
        assert!(!Hope::of(&server).is_lost(now + DAEMON_RETURN_TIMEOUT), "there never was one");
        std::fs::write(&daemon, "").unwrap();
        let mut hope = Hope::of(&server);
        std::fs::remove_file(&daemon).unwrap();
        assert!(!hope.is_lost(now));
        std::fs::write(&daemon, "").unwrap();
        assert!(!hope.is_lost(now + DAEMON_RETURN_TIMEOUT), "another daemon");
        std::fs::remove_file(&daemon).unwrap();
        assert!(!hope.is_lost(now + DAEMON_RETURN_TIMEOUT) && hope.is_lost(now + DAEMON_RETURN_TIMEOUT * 2));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
