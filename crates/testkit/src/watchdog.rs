//! Ends a test that hangs, and shows what the processes wrote.

use crate::processes::end_processes_of;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Ends the test process at the limit, unless it is dropped first.
#[derive(Debug)]
pub struct Watchdog {
    _alive: Sender<()>,
}

impl Watchdog {
    /// Starts a watchdog. After `limit` it prints the logs in `folder`, ends the processes of the
    /// node there, and exits with status 101.
    #[must_use]
    pub fn new(limit: Duration, folder: &Path) -> Self {
        let (alive, dropped) = channel::<()>();
        let folder: PathBuf = folder.to_owned();
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        std::thread::spawn(move || {
            if dropped.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                eprintln!("WATCHDOG: {test} did not end within {} seconds\n{}", limit.as_secs(), logs(&folder));
                end_processes_of(&folder);
                std::process::exit(101);
            }
        });
        Self { _alive: alive }
    }
}

/// The last lines of a node's log files.
pub(crate) fn logs(folder: &Path) -> String {
    let mut text = String::new();
    for name in ["log/control.log", "log/server.log"] {
        let log = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        text.push_str(&format!("--- {name}\n{}\n", lines[lines.len().saturating_sub(60)..].join("\n")));
    }
    text
}
