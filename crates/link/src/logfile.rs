//! A log file that several processes append to and that does not grow without bound.
//!
//! A failed write never stops the service. A line that cannot be written (full disk, file removed)
//! is dropped and counted, and the next line that can be written says how many are missing. Lines
//! that one client causes in masses are left out and counted ([`crate::flood`]).
//!
//! A file that would become longer than its limit is copied to `NAME.1` and emptied. It stays the
//! same file: a reader that follows its end, and a process that has it as standard error, need not
//! open it again. Writers hold a shared lock while they write, and the exclusive lock while they
//! copy and empty, so no line is lost in between. The lock is a file of its own that only its owner
//! can open: readers of the log cannot hold it.
//!
//! The folder is checked, and the log in it must be a plain file of ours ([`crate::folder`]).

use crate::flood::{Allowance, Flood};
use crate::folder::{Folder, FolderError};
use crate::stamp;
use rustix::fs::FlockOperation;
use std::fs::File;
use std::hash::Hash;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The variable with the limit: bytes that a log may have before it is put aside.
pub const VARIABLE: &str = "CUMUX_LOG_BYTES";
const USUAL: u64 = 16 << 20;
/// The lock of all logs in a folder.
const LOCK: &str = ".cumux-log.lock";
/// How long a writer waits for another process that puts the file aside.
const LOCK_WAIT: Duration = Duration::from_millis(200);
/// Time between two attempts to take the lock.
const LOCK_RETRY: Duration = Duration::from_millis(1);

/// A size that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{VARIABLE}=\"{0}\" is no size: give a number of bytes above 0, or one with K, M or G behind it, as in 16M")]
pub struct BadLimit(String);

/// The limit in bytes for this value of the variable; 16 MiB where there is none.
///
/// # Errors
/// A sentence for the person who has set the variable.
pub fn limit(variable: Option<&str>) -> Result<u64, BadLimit> {
    let Some(text) = variable.map(str::trim).filter(|text| !text.is_empty()) else { return Ok(USUAL) };
    let (digits, shift) = match text.strip_suffix(['K', 'k', 'M', 'm', 'G', 'g']) {
        Some(digits) if text.ends_with(['K', 'k']) => (digits, 10),
        Some(digits) if text.ends_with(['M', 'm']) => (digits, 20),
        Some(digits) => (digits, 30),
        None => (text, 0),
    };
    let bytes = digits.parse::<u64>().ok().filter(|bytes| *bytes > 0).and_then(|bytes| bytes.checked_mul(1 << shift));
    bytes.ok_or_else(|| BadLimit(text.to_owned()))
}

/// The limit in bytes for this process. A value that cannot be read counts as none: the daemon has
/// refused it already.
#[must_use]
pub fn own_limit() -> u64 {
    limit(std::env::var(VARIABLE).ok().as_deref()).unwrap_or(USUAL)
}

/// A file in a checked folder, opened when it is needed.
#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
    limit: u64,
    open: Option<Opened>,
}

#[derive(Debug)]
struct Opened {
    folder: Folder,
    file: File,
    /// Device and inode of `file`, to notice that the path names another file now.
    identity: (u64, u64),
    /// `None` where it cannot be had (a full disk, say): lines are then written without it.
    lock: Option<File>,
}

impl LogFile {
    /// A log at `path`. Nothing is opened yet; a file that cannot be opened is tried again with
    /// every line.
    #[must_use]
    pub fn at(path: PathBuf, limit: u64) -> Self {
        Self { path, limit, open: None }
    }

    /// Makes the file and checks that it can be trusted. A file that cannot be made (a full disk)
    /// is a harmless error: see [`FolderError::is_danger`].
    ///
    /// # Errors
    /// [`FolderError`].
    pub fn prepare(&mut self) -> Result<(), FolderError> {
        self.opened().map(|_| ())
    }

    /// The file itself, for a process of ours that writes at its end.
    ///
    /// # Errors
    /// It cannot be opened, or not be trusted.
    pub fn share(&mut self) -> io::Result<File> {
        let path = self.path.clone();
        let open = self.opened().map_err(FolderError::into_io)?;
        open.folder.append(path.file_name().unwrap_or_default(), 0o644).map_err(FolderError::into_io)
    }

    fn opened(&mut self) -> Result<&mut Opened, FolderError> {
        match self.open.take().filter(|open| open.is_in_place(&self.path)) {
            Some(open) => Ok(self.open.insert(open)),
            None => {
                let (folder, name) = Folder::of(&self.path)?;
                let file = folder.append(name, 0o644)?;
                let stat = rustix::fs::fstat(&file).map_err(|errno| FolderError::System { path: self.path.clone(), cause: errno.into() })?;
                let lock = folder.lock_file(LOCK).ok();
                Ok(self.open.insert(Opened { folder, file, identity: (stat.st_dev, stat.st_ino), lock }))
            }
        }
    }

    /// Appends `text`, which consists of whole lines.
    ///
    /// # Errors
    /// The file cannot be opened, or nothing or not all was written.
    pub fn write(&mut self, text: &str) -> io::Result<()> {
        let (path, limit) = (self.path.clone(), self.limit);
        let open = self.opened().map_err(FolderError::into_io)?;
        let outcome = open.write(&path, text, limit);
        if outcome.is_err() {
            self.open = None;
        }
        outcome
    }
}

impl Opened {
    fn is_in_place(&self, path: &Path) -> bool {
        let stat = path.file_name().and_then(|name| self.folder.stat(name).ok());
        stat.is_some_and(|stat| (stat.st_dev, stat.st_ino) == self.identity)
    }

    fn write(&self, path: &Path, text: &str, limit: u64) -> io::Result<()> {
        let mut held = self.hold(FlockOperation::NonBlockingLockShared);
        let mut lost = String::new();
        if !is_within(self.file.metadata()?.len(), text.len(), limit) {
            drop(held);
            held = self.hold(FlockOperation::NonBlockingLockExclusive);
            // Another process may have done it meanwhile. A writer that cannot get the lock leaves
            // the file to the process that holds it, unless that one does nothing for too long.
            let length = self.file.metadata()?.len();
            if !is_within(length, text.len(), limit) && (held.is_some() || length > limit.saturating_mul(2)) {
                lost = self.put_aside(path, limit)?;
            }
        }
        // One write: lines of several processes do not mix.
        let outcome = (&self.file).write_all(if lost.is_empty() { text.to_owned() } else { lost + text }.as_bytes());
        drop(held);
        outcome
    }

    /// Copies the file to `NAME.1` and empties it. If the copy failed and the old lines are lost,
    /// returns a log line that says so.
    fn put_aside(&self, path: &Path, limit: u64) -> io::Result<String> {
        let Some(name) = path.file_name() else { return Ok(String::new()) };
        let mut aside = name.to_owned();
        aside.push(".1");
        let copied = self.folder.replace_with(&aside, 0o644, |copy| {
            // `io::copy` ends at the end of the file: a reader of its own begins at the start.
            let mut source = self.folder.open_to_read(name).map_err(FolderError::into_io)?;
            io::copy(&mut source, copy).map(|_| ())
        });
        if let Err(error) = copied {
            if self.file.metadata()?.len() <= limit.saturating_mul(2) {
                // It may be possible a little later.
                return Ok(String::new());
            }
            self.file.set_len(0)?;
            return Ok(stamp::line("Other", std::process::id(), &format!("Older lines could not be kept: {error}")));
        }
        self.file.set_len(0)?;
        Ok(String::new())
    }

    /// Takes the lock; `None` where there is no lock file, or another process holds it for too
    /// long.
    fn hold(&self, how: FlockOperation) -> Option<Held<'_>> {
        let lock = self.lock.as_ref()?;
        let until = Instant::now() + LOCK_WAIT;
        loop {
            match rustix::fs::flock(lock, how) {
                Ok(()) => return Some(Held(lock)),
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < until => std::thread::sleep(LOCK_RETRY),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return None,
            }
        }
    }
}

fn is_within(length: u64, more: usize, limit: u64) -> bool {
    length == 0 || length.saturating_add(more as u64) <= limit
}

/// Releases the lock when it is dropped.
struct Held<'a>(&'a File);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let _ = rustix::fs::flock(self.0, FlockOperation::Unlock);
    }
}

/// Where the lines of a log go.
#[derive(Debug)]
pub enum Sink {
    /// A file that is put aside at its limit.
    File(LogFile),
    /// The standard error of this process: its starter has decided where that goes.
    StandardError,
    /// One file without a limit, for tests.
    Plain(File),
}

impl Sink {
    fn write(&mut self, text: &str) -> io::Result<()> {
        match self {
            Self::File(file) => file.write(text),
            Self::StandardError => io::stderr().lock().write_all(text.as_bytes()),
            Self::Plain(file) => file.write_all(text.as_bytes()),
        }
    }
}

/// A log of lines that counts the lines it could not write and those it left out.
#[derive(Debug)]
pub struct Log<K> {
    sink: Sink,
    dropped: u64,
    flood: Flood<K>,
    /// Lines go to standard output as well.
    echo: bool,
}

impl<K: Eq + Hash + Clone + std::fmt::Display> Log<K> {
    /// A log into `sink`. Each account may write `allowance`; with `echo`, lines also go to
    /// standard output.
    #[must_use]
    pub fn new(sink: Sink, allowance: Allowance, echo: bool) -> Self {
        Self { sink, dropped: 0, flood: Flood::new(allowance), echo }
    }

    /// Writes a line by process `pid` in `role` (`Control`, `Server`, `Other`). With a `key`, the
    /// line counts against that account's allowance and may be left out.
    pub fn line(&mut self, role: &str, pid: u32, text: &str, key: Option<&K>) {
        self.ready_line(role, pid, &stamp::line(role, pid, text), key);
    }

    /// As [`Log::line`], with a line that has its stamp already. Returns true if the line was left
    /// out.
    pub fn ready_line(&mut self, role: &str, pid: u32, line: &str, key: Option<&K>) -> bool {
        let now = Instant::now();
        if key.is_some_and(|key| !self.flood.admits(key, line.len(), now)) {
            return true;
        }
        let mut whole = String::new();
        for (key, count) in self.flood.take_losses(now) {
            whole.push_str(&left_out(role, pid, key.as_ref(), count));
        }
        whole.push_str(line);
        self.put(role, pid, &whole);
        false
    }

    /// Writes how many lines were left out, for a log to which nothing more will be written.
    pub fn finish(&mut self, role: &str, pid: u32) {
        let whole: String = self.flood.take_all_losses().into_iter().map(|(key, count)| left_out(role, pid, key.as_ref(), count)).collect();
        if !whole.is_empty() {
            self.put(role, pid, &whole);
        }
    }

    fn put(&mut self, role: &str, pid: u32, text: &str) {
        if self.echo {
            // A closed standard output is no reason to stop serving.
            let _ = io::stdout().lock().write_all(text.as_bytes());
        }
        let missing = match self.dropped {
            0 => String::new(),
            missing => stamp::line(role, pid, &format!("{missing} lines could not be written (disk full or log file not writable)")),
        };
        let outcome = self.sink.write(&if missing.is_empty() { text.to_owned() } else { missing + text });
        self.dropped = if outcome.is_ok() { 0 } else { self.dropped + 1 };
    }
}

fn left_out<K: std::fmt::Display>(role: &str, pid: u32, key: Option<&K>, count: u64) -> String {
    let whose = key.map_or_else(|| "of many kinds".to_owned(), ToString::to_string);
    stamp::line(role, pid, &format!("{count} more lines {whose} were left out: too many at once"))
}

#[cfg(test)]
#[path = "logfile_tests.rs"]
mod tests;
