//! `server.log`: `[2026-11-21 00:03:32.853 Server   690] text`, the format that log readers of MPS expect.
//!
//! Writing never stops the service: a line that cannot be written (full disk, file taken away) is dropped and counted, and the next line that
//! can be written says how many are missing.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The log file of this server; several servers append to the same one, a whole line at a time.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    file: Option<File>,
    dropped: u64,
}

impl Log {
    /// A file that cannot be opened now is tried again with every line.
    pub(crate) fn open(folder: &Path) -> Self {
        Self { path: folder.join("server.log"), file: None, dropped: 0 }
    }

    pub(crate) fn line(&mut self, text: &str) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut whole = String::new();
        if self.dropped > 0 {
            whole = line(since, &format!("{} lines could not be written (disk full or log file not writable)", self.dropped));
        }
        whole.push_str(&line(since, text));
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

/// One line in UTC. Foreign text must not forge lines.
fn line(since: Duration, text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let (year, month, day) = date(since.as_secs() / 86_400);
    let second = since.as_secs() % 86_400;
    let (hour, minute, second, millis) = (second / 3600, second / 60 % 60, second % 60, since.subsec_millis());
    format!("[{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{millis:03} Server {:>5}] {text}\n", std::process::id())
}

/// Date of a day since 1970-01-01: whole years first, then whole months.
fn date(mut days: u64) -> (u64, usize, u64) {
    let mut year = 1970;
    loop {
        let leap = u64::from(year % 4 == 0 && (year % 100 != 0 || year % 400 == 0));
        if days < 365 + leap {
            let lengths = [31, 28 + leap, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
            let mut month = 0;
            while days >= lengths[month] {
                days -= lengths[month];
                month += 1;
            }
            return (year, month + 1, days + 1);
        }
        days -= 365 + leap;
        year += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_look_as_recorded() {
        let pid = std::process::id();
        assert_eq!(line(Duration::from_millis(1_795_219_691_353), "Exiting"), format!("[2026-11-21 00:08:11.353 Server {pid:>5}] Exiting\n"));
        assert!(line(Duration::from_secs(951_782_400), "a\nb").starts_with("[2000-02-29 00:00:00.000 "));
        assert!(line(Duration::from_secs(4_107_542_400), "a\nb").starts_with("[2100-03-01 00:00:00.000 "));
        assert!(line(Duration::ZERO, "a\nb").ends_with("] a b\n"), "no line can be forged");
    }

    #[test]
    fn a_full_disk_is_survived_and_admitted() {
        let mut log = Log { path: PathBuf::from("/dev/full"), file: None, dropped: 0 };
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
