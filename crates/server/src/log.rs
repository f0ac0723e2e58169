//! `server.log`: `[2026-11-21 00:03:32.853 Server   690] text`, the format that log readers of MPS expect.
//!
//! Writing never stops the service: a line that cannot be written (full disk, file taken away) is dropped and counted, and the next line that
//! can be written says how many are missing.

use cumux_link::stamp;
use cumux_wire::message::DeviceFacts;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// What the daemon has set for this server, in lines for its log.
const SETTINGS_VARIABLE: &str = "CUMUX_SERVER_SETTINGS";
/// Set by a daemon in the foreground.
const ECHO_VARIABLE: &str = "CUMUX_ECHO_LOG";

/// The log file of this server; several servers append to the same one, a whole line at a time.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    file: Option<File>,
    dropped: u64,
    /// Also to standard output: the daemon runs in the foreground.
    echo: bool,
}

impl Log {
    /// A file that cannot be opened now is tried again with every line.
    pub(crate) fn open(folder: &Path) -> Self {
        Self { path: folder.join("server.log"), file: None, dropped: 0, echo: std::env::var_os(ECHO_VARIABLE).is_some() }
    }

    pub(crate) fn line(&mut self, text: &str) {
        self.write("Server", text);
    }

    /// Before there is a device, NVIDIA's server calls itself so.
    pub(crate) fn other(&mut self, text: &str) {
        self.write("Other", text);
    }

    /// The first lines of a server that serves, as NVIDIA's writes them. What was set for it comes from the daemon.
    pub(crate) fn start(&mut self, devices: &[DeviceFacts]) {
        self.contexts("Creating", devices);
        self.line("CUDA MPS Server for Linux/Unix. Binary version: 13000");
        self.line(&format!("cumux {}, protocol version {}", env!("CARGO_PKG_VERSION"), cumux_wire::VERSION));
        for line in std::env::var(SETTINGS_VARIABLE).unwrap_or_default().lines() {
            self.line(line);
        }
        self.line("Server has started");
    }

    /// An executor's contexts come (`Creating`) or have gone with it (`Destroy`).
    pub(crate) fn contexts(&mut self, what: &str, devices: &[DeviceFacts]) {
        for (ordinal, device) in devices.iter().enumerate() {
            self.line(&format!("{what} server context on device {ordinal} ({})", device.name));
        }
    }

    fn write(&mut self, role: &str, text: &str) {
        let pid = std::process::id();
        let line = stamp::line(role, pid, text);
        if self.echo {
            // A closed standard output is no reason to stop serving.
            let _ = std::io::stdout().lock().write_all(line.as_bytes());
        }
        let mut whole = String::new();
        if self.dropped > 0 {
            whole = stamp::line(role, pid, &format!("{} lines could not be written (disk full or log file not writable)", self.dropped));
        }
        whole.push_str(&line);
        if self.file.is_none() {
            self.file = OpenOptions::new().create(true).append(true).open(&self.path).ok();
        }
        if self.file.as_mut().is_some_and(|file| file.write_all(whole.as_bytes()).is_ok()) {
            self.dropped = 0;
        } else {
            self.dropped += 1;
            self.file = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_survived_and_admitted() {
        let mut log = Log { path: PathBuf::from("/dev/full"), file: None, dropped: 0, echo: false };
        log.line("lost");
        log.line("lost too");
        assert_eq!(log.dropped, 2);
        let folder = std::env::temp_dir().join(format!("cumux-server-log-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        log.path = folder.join("server.log");
        log.line("kept");
        let text = std::fs::read_to_string(&log.path).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(text.contains("2 lines could not be written") && text.ends_with("kept\n"), "{text}");
    }
}
