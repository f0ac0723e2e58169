//! `control.log` in the format that log readers of MPS expect:
//! `[2026-11-21 00:08:11.353 Control  1093] text`.
//!
//! Writing a log never stops the service: a line that cannot be written (full disk, file taken away) is dropped and counted, and the next
//! line that can be written says how many are missing.

use cumux_link::stamp;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// One log file, shared by threads.
pub(crate) struct Log {
    path: PathBuf,
    state: Mutex<State>,
    /// Also to standard output: the daemon in the foreground.
    echo: bool,
}

struct State {
    file: Option<File>,
    dropped: u64,
}

impl Log {
    /// Opens for appending. A file that cannot be opened now is tried again with every line.
    #[must_use]
    pub(crate) fn open(path: &Path, echo: bool) -> Self {
        Self { path: path.to_owned(), state: Mutex::new(State { file: append(path), dropped: 0 }), echo }
    }

    /// Writes one line with the time of now.
    pub(crate) fn line(&self, text: &str) {
        self.line_of(std::process::id(), text);
    }

    /// As [`Log::line`], in the name of another process.
    pub(crate) fn line_of(&self, pid: u32, text: &str) {
        let line = stamp::line("Control", pid, text);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if self.echo {
            // A closed standard output is no reason to stop serving.
            let _ = std::io::stdout().lock().write_all(line.as_bytes());
        }
        if state.file.is_none() {
            state.file = append(&self.path);
        }
        let missing = state.dropped;
        let Some(file) = state.file.as_mut() else {
            state.dropped += 1;
            return;
        };
        let mut whole = String::new();
        if missing > 0 {
            whole = stamp::line("Control", pid, &format!("{missing} lines could not be written (disk full or log file not writable)"));
        }
        whole.push_str(&line);
        if file.write_all(whole.as_bytes()).is_ok() {
            state.dropped = 0;
        } else {
            state.dropped += 1;
            state.file = None;
        }
    }
}

fn append(path: &Path) -> Option<File> {
    OpenOptions::new().create(true).append(true).open(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_survived_and_admitted() {
        let log = Log::open(Path::new("/dev/full"), false);
        log.line("lost");
        log.line("lost too");
        assert_eq!(log.state.lock().unwrap().dropped, 2);
        let file = std::env::temp_dir().join(format!("cumux-log-test-{}", std::process::id()));
        let log = Log { path: file.clone(), ..log };
        log.line("kept");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert!(text.contains("2 lines could not be written"), "{text}");
        assert!(text.ends_with("kept\n"), "{text}");
    }
}
