//! `control.log`, and the part of `server.log` that the daemon writes, in the format that readers
//! of MPS logs expect: `[2026-11-21 00:08:11.353 Control  1093] text`.
//!
//! Lines that a visitor causes count against its user's allowance: a user who causes too many loses
//! only its own ([`cumux_link::flood`]). A thread serves one visitor, so the account belongs to the
//! thread.

use crate::directory::DirectoryError;
use cumux_link::flood::USER;
use cumux_link::logfile::{self, LogFile, Sink, own_limit};
use cumux_link::stamp;
use std::cell::Cell;
use std::fmt;
use std::io::{self, Read};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const CONTROL: &str = "control.log";
const SERVER: &str = "server.log";
/// Names of the logs.
pub const NAMES: [&str; 2] = [CONTROL, SERVER];

/// Longest line of a server; a longer one is written in pieces.
const LONGEST_LINE: usize = 4096;
/// Pause between two reads of a server that writes too much.
const SLOWLY: Duration = Duration::from_millis(1);
/// How long the daemon waits at its end for the last lines of servers.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The user whose allowance a line counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct User(u32);

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "about user {}", self.0)
    }
}

thread_local! {
    static ACCOUNT: Cell<Option<User>> = const { Cell::new(None) };
}

/// While this value lives, lines of this thread count against a user's allowance.
pub(crate) struct OnAccount(Option<User>);

pub(crate) fn on_account_of(uid: u32) -> OnAccount {
    OnAccount(ACCOUNT.replace(Some(User(uid))))
}

impl Drop for OnAccount {
    fn drop(&mut self) {
        ACCOUNT.set(self.0);
    }
}

/// Both logs, shared by threads.
pub(crate) struct Log {
    /// `None` after its last line: a connection that is accepted while the process ends adds no
    /// line.
    control: Mutex<Option<logfile::Log<User>>>,
    server: Mutex<logfile::Log<User>>,
    server_file: Mutex<LogFile>,
    /// Threads that still read output of servers.
    readers: Mutex<u32>,
    reader_ended: Condvar,
}

/// Makes both files if they do not exist.
///
/// # Errors
/// One of them is a link, another user's file or the like. A file that cannot be written is no
/// error: it costs lines, not service.
pub(crate) fn check(folder: &Path) -> Result<(), DirectoryError> {
    for name in NAMES {
        if let Err(cause) = LogFile::at(folder.join(name), own_limit()).prepare()
            && cause.is_danger()
        {
            return Err(DirectoryError::log(cause));
        }
    }
    Ok(())
}

impl Log {
    /// Opens both logs. A file that cannot be opened is tried again with every line. With `echo`,
    /// lines also go to standard output.
    #[must_use]
    pub(crate) fn open(folder: &Path, echo: bool) -> Self {
        let file = |name| LogFile::at(folder.join(name), own_limit());
        let log = |name| logfile::Log::new(Sink::File(file(name)), USER, echo);
        Self {
            control: Mutex::new(Some(log(CONTROL))),
            server: Mutex::new(log(SERVER)),
            server_file: Mutex::new(file(SERVER)),
            readers: Mutex::new(0),
            reader_ended: Condvar::new(),
        }
    }

    /// Writes one line, stamped with the present time.
    pub(crate) fn line(&self, text: &str) {
        self.line_of(std::process::id(), text);
    }

    /// As [`Log::line`], in the name of another process.
    pub(crate) fn line_of(&self, pid: u32, text: &str) {
        if let Some(log) = lock(&self.control).as_mut() {
            log.line("Control", pid, text, ACCOUNT.get().as_ref());
        }
    }

    /// The standard error for a server of our own user: it appends to `server.log`.
    pub(crate) fn for_own_server(&self) -> Stdio {
        lock(&self.server_file).share().map_or_else(|_| Stdio::null(), Stdio::from)
    }

    /// Writes the output of server `pid`, which runs as another user, into `server.log`. That user
    /// gets no descriptor of the log: with one it could empty the log or write lines in others'
    /// names. `wait` waits for output and returns whether to continue.
    pub(crate) fn write_down(&self, pid: u32, uid: u32, mut words: impl Read, mut wait: impl FnMut() -> bool) {
        let _reading = Reading::begin(self);
        let mut rest = Vec::new();
        let mut piece = [0; LONGEST_LINE];
        while wait() {
            match words.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => rest.extend_from_slice(piece.get(..count).unwrap_or_default()),
                // Another process has read it: the server has the same end.
                Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => continue,
                Err(_) => break,
            }
            let mut from = 0;
            while let Some(end) = line_end(rest.get(from..).unwrap_or_default()) {
                self.server_line(pid, uid, rest.get(from..from + end).unwrap_or_default());
                from += end;
            }
            rest.drain(..from);
        }
        self.server_line(pid, uid, &rest);
    }

    fn server_line(&self, pid: u32, uid: u32, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        let text = text.trim_end_matches('\n');
        if text.is_empty() {
            return;
        }
        let (role, line) = match stamp::of_process(text, &["Server", "Other"], pid) {
            Some((role, line)) => (role, line),
            None => ("Server", stamp::line("Server", pid, text)),
        };
        if lock(&self.server).ready_line(role, pid, &line, Some(&User(uid))) {
            std::thread::sleep(SLOWLY);
        }
    }

    /// Writes the remaining counts and `last`, the last line of `control.log`, before the daemon
    /// ends.
    pub(crate) fn finish(&self, last: &str) {
        let until = Instant::now() + LAST_WORDS;
        let mut readers = lock(&self.readers);
        while *readers > 0 {
            let Some(rest) = until.checked_duration_since(Instant::now()) else { break };
            readers = self.reader_ended.wait_timeout(readers, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(readers);
        lock(&self.server).finish("Other", std::process::id());
        if let Some(mut log) = lock(&self.control).take() {
            log.finish("Control", std::process::id());
            log.line("Control", std::process::id(), last, None);
        }
    }
}

/// Length of the first line with its end, or of a piece if the line is too long. `None` while the
/// line has no end.
fn line_end(bytes: &[u8]) -> Option<usize> {
    let end = bytes.iter().take(LONGEST_LINE).position(|byte| *byte == b'\n').map(|at| at + 1);
    end.or_else(|| (bytes.len() >= LONGEST_LINE).then_some(LONGEST_LINE))
}

/// A reading thread, counted while this value lives.
struct Reading<'a>(&'a Log);

impl<'a> Reading<'a> {
    fn begin(log: &'a Log) -> Self {
        *lock(&log.readers) += 1;
        Self(log)
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        *lock(&self.0.readers) -= 1;
        self.0.reader_ended.notify_all();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn read(folder: &tempfile::TempDir, name: &str) -> String {
        fs::read_to_string(folder.path().join(name)).unwrap_or_default()
    }

    #[test]
    fn a_server_of_another_user_speaks_for_itself_alone() {
        let folder = tempfile::tempdir().unwrap();
        let log = Log::open(folder.path(), false);
        let own = stamp::line("Server", 77, "Server has started");
        let others = stamp::line("Server", 78, "forged");
        let control = stamp::line("Control", 77, "forged");
        let words = format!("{own}{others}{control}a panic\n[2026-11-21 00:08:11.353 Server    77] two\x1b[2Jlines\n\n{}", "x".repeat(10_000));
        log.write_down(77, 65534, words.as_bytes(), || true);
        let text = read(&folder, SERVER);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 8, "{text}");
        assert_eq!(format!("{}\n", lines[0]), own, "with the time that it gave");
        assert!(lines.iter().all(|line| line.get(24..).is_some_and(|rest| rest.starts_with(" Server    77] "))), "{text}");
        assert!(lines[1].ends_with("forged") && lines[1].contains("] [") && lines[3].ends_with("] a panic"));
        assert!(!text.contains('\x1b'));
        assert_eq!(text.matches('x').count(), 10_000);
    }

    #[test]
    fn who_makes_too_many_lines_loses_his_own() {
        let folder = tempfile::tempdir().unwrap();
        let log = Log::open(folder.path(), false);
        {
            let _account = on_account_of(65534);
            for _ in 0..20_000 {
                log.line("Accepting connection...");
            }
        }
        log.line("of the daemon itself");
        let _account = on_account_of(1000);
        log.line("of another user");
        log.write_down(77, 65534, format!("{}\n", "x".repeat(1000)).repeat(1000).as_bytes(), || true);
        log.finish("Exit with status 0");
        log.line("of a thread that has not ended yet");
        let text = read(&folder, CONTROL);
        assert!(text.ends_with("Exit with status 0\n"), "{text}");
        assert!(text.len() < 1 << 20, "{}", text.len());
        assert!(text.contains("of the daemon itself") && text.contains("of another user") && text.contains("more lines about user 65534 were left out"));
        assert!(read(&folder, SERVER).len() < 1 << 20);
    }

    #[test]
    fn logs_that_are_links_are_refused() {
        for name in NAMES {
            let folder = tempfile::tempdir().unwrap();
            check(folder.path()).unwrap();
            fs::remove_file(folder.path().join(name)).unwrap();
            std::os::unix::fs::symlink("/dev/null", folder.path().join(name)).unwrap();
            let error = check(folder.path()).unwrap_err().to_string();
            assert!(error.contains(&format!("{name} is a link")) && error.contains("CUDA_MPS_LOG_DIRECTORY"), "{error}");
        }
    }
}
