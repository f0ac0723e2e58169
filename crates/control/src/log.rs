//! `control.log` in the format that log readers of MPS expect:
//! `[2026-11-21 00:08:11.353 Control  1093] text`.
//!
//! Writing a log never stops the service: a line that cannot be written (full disk, file taken away) is dropped and counted, and the next
//! line that can be written says how many are missing.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

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
        let pid = std::process::id();
        let stamp = stamp(SystemTime::now());
        let line = format_line(&stamp, pid, text);
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
            whole = format_line(&stamp, pid, &format!("{missing} lines could not be written (disk full or log file not writable)"));
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

fn format_line(stamp: &str, pid: u32, text: &str) -> String {
    // Foreign text must not forge lines.
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("[{stamp} Control {pid:>5}] {text}\n")
}

/// `YYYY-MM-DD HH:MM:SS.mmm` in UTC. NVIDIA writes local time; servers run in UTC, and reading the zone files is not worth a dependency.
#[must_use]
pub(crate) fn stamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}.{:03}", second / 3600, second / 60 % 60, second % 60, since.subsec_millis())
}

/// Date of a day since 1970-01-01, by years of March to February so that the leap day comes last.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // From 0000-03-01.
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day_of_year - (153 * shifted + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn lines_look_as_recorded() {
        let time = UNIX_EPOCH + Duration::from_millis(1_795_219_691_353);
        assert_eq!(stamp(time), "2026-11-21 00:08:11.353");
        assert_eq!(format_line("T", 1093, "NEW UI"), "[T Control  1093] NEW UI\n");
        assert_eq!(format_line("T", 7, "a\nb"), "[T Control     7] a b\n", "no line can be forged");
    }

    #[test]
    fn dates_around_leap_days() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00:00.000"),
            (951_782_399, "2000-02-28 23:59:59.000"),
            (951_782_400, "2000-02-29 00:00:00.000"),
            (951_868_800, "2000-03-01 00:00:00.000"),
            (4_107_542_400, "2100-03-01 00:00:00.000"),
        ] {
            assert_eq!(stamp(UNIX_EPOCH + Duration::from_secs(seconds)), expected);
        }
    }

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
