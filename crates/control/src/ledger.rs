//! The list of servers that the daemons of this directory have started: no other process is
//! accepted as a server.
//!
//! A process is identified by its process id, its start time and the boot. The list is in a file
//! that only the daemon's user may write, so that the next daemon knows the servers of one that was
//! killed.

use crate::duty::{Duty, Reach};
use cumux_link::{Folder, FolderError};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Most bytes that are read of the file.
const LONGEST: u64 = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    pid: u32,
    uid: u32,
    #[serde(default)]
    reach: Reach,
    /// In ticks since the boot.
    started: u64,
    boot: String,
}

impl Entry {
    fn duty(&self) -> Duty {
        Duty { uid: self.uid, reach: self.reach }
    }
}

/// The list, and the file it is in.
#[derive(Debug)]
pub(crate) struct Ledger {
    path: PathBuf,
    entries: Vec<Entry>,
    /// Whose servers ended while no daemon ran.
    lost: Vec<Duty>,
    /// The present boot.
    boot: String,
}

/// What the ledger says of a process that claims to be a server.
#[derive(Debug)]
pub(crate) enum Standing {
    /// A daemon of this directory has started it.
    Ours,
    /// No daemon of this directory has started it.
    Stranger,
    /// The system did not let us look, for want of descriptors or memory.
    Unknown(io::Error),
}

impl Ledger {
    /// Opens the list with the entries of an earlier daemon.
    pub(crate) fn open(path: PathBuf) -> Self {
        let boot = boot();
        let entries: Vec<Entry> = read(&path).and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        let (entries, ended): (Vec<Entry>, Vec<Entry>) = entries.into_iter().partition(|entry| !matches!(standing(entry, &boot), Standing::Stranger));
        let mut lost: Vec<Duty> = ended.iter().filter(|entry| entry.boot == boot).map(Entry::duty).collect();
        lost.sort_unstable();
        lost.dedup();
        lost.retain(|duty| !entries.iter().any(|entry| entry.duty() == *duty));
        Self { path, entries, lost, boot }
    }

    /// The servers of an earlier daemon: process id and duty of those that live, only the duty of
    /// those that have ended.
    pub(crate) fn left(&self) -> Vec<(Option<u32>, Duty)> {
        let living = self.entries.iter().map(|entry| (Some(entry.pid), entry.duty()));
        living.chain(self.lost.iter().map(|duty| (None, *duty))).collect()
    }

    /// On which cards a started server serves.
    pub(crate) fn reach_of(&self, pid: u32) -> Reach {
        self.entries.iter().find(|entry| entry.pid == pid).map_or(Reach::All, |entry| entry.reach)
    }

    /// Adds a started server. Returns what is wrong with the file, if anything.
    pub(crate) fn add(&mut self, pid: u32, Duty { uid, reach }: Duty) -> Option<String> {
        let started = match started(pid) {
            Ok(started) => started?,
            Err(error) => return Some(format!("cannot look at process {pid} ({error}): it is not accepted as a server")),
        };
        self.entries.retain(|entry| entry.pid != pid);
        self.entries.push(Entry { pid, uid, reach, started, boot: self.boot.clone() });
        self.write()
    }

    /// Removes a server that has ended.
    pub(crate) fn remove(&mut self, pid: u32) {
        let before = self.entries.len();
        self.entries.retain(|entry| entry.pid != pid);
        if self.entries.len() != before {
            // A stale entry does no harm: its process has ended.
            let _ = self.write();
        }
    }

    /// Whether process `pid` of user `uid` is a server that a daemon of this directory has started.
    pub(crate) fn standing(&self, pid: u32, uid: u32) -> Standing {
        let entry = self.entries.iter().find(|entry| entry.pid == pid && entry.uid == uid);
        entry.map_or(Standing::Stranger, |entry| standing(entry, &self.boot))
    }

    /// Removes the file, after the last server.
    pub(crate) fn forget(&self) {
        if let Ok((folder, name)) = Folder::of(&self.path) {
            let _ = folder.remove(name);
        }
    }

    fn write(&self) -> Option<String> {
        let written = serde_json::to_vec(&self.entries).map_err(io::Error::from).and_then(|bytes| replace(&self.path, &bytes).map_err(FolderError::into_io));
        written.err().map(|error| {
            format!("cannot write {} ({error}): after a crash of this daemon the next one ends its servers when their clients have gone", self.path.display())
        })
    }
}

fn standing(entry: &Entry, boot: &str) -> Standing {
    if entry.boot != boot {
        return Standing::Stranger;
    }
    match started(entry.pid) {
        Ok(started) if started == Some(entry.started) => Standing::Ours,
        Ok(_) => Standing::Stranger,
        Err(error) => Standing::Unknown(error),
    }
}

/// Start time of a process; `None` if it has ended. An error says nothing about the process.
fn started(pid: u32) -> io::Result<Option<u64>> {
    match fs::read(format!("/proc/{pid}/stat")) {
        Ok(stat) => Ok(start_time(&String::from_utf8_lossy(&stat))),
        Err(error) => {
            if has_ended(&error) {
                Ok(None)
            } else {
                Err(error)
            }
        }
    }
}

/// Whether a look at a process failed because there is no such process any more.
fn has_ended(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
}

/// Field 22 of `/proc/PID/stat`.
fn start_time(stat: &str) -> Option<u64> {
    // The name, in brackets, may contain anything.
    stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace().nth(19)?.parse().ok()
}

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Reads the file if it is ours and nobody else can have written it.
fn read(path: &Path) -> Option<Vec<u8>> {
    let (folder, name) = Folder::of(path).ok()?;
    let file = folder.open_to_read(name).ok()?;
    if file.metadata().ok()?.mode() & 0o022 != 0 {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(LONGEST).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

fn replace(path: &Path, bytes: &[u8]) -> Result<(), FolderError> {
    let (folder, name) = Folder::of(path)?;
    folder.replace(name, bytes, 0o600)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::Command;

    const FIVE: Duty = Duty { uid: 5, reach: Reach::Card(3) };

    fn is_ours(ledger: &Ledger, pid: u32, uid: u32) -> bool {
        matches!(ledger.standing(pid, uid), Standing::Ours)
    }

    /// A daemon without descriptors must not take its own servers for strangers.
    #[test]
    fn what_cannot_be_looked_at_is_no_stranger() {
        use rustix::io::Errno;
        for (errno, ended) in [(Errno::NOENT, true), (Errno::SRCH, true), (Errno::MFILE, false), (Errno::NFILE, false), (Errno::NOMEM, false)] {
            assert_eq!(has_ended(&errno.into()), ended, "{errno}");
        }
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let folder = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(folder.path().join("servers.json"));
        assert_eq!(ledger.add(std::process::id(), FIVE), None);
        // Every test has a process of its own.
        let none = rustix::process::Rlimit { current: Some(0), maximum: limit.maximum };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, none).unwrap();
        let standing = ledger.standing(std::process::id(), 5);
        rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
        assert!(matches!(standing, Standing::Unknown(_)), "{standing:?}");
        assert!(is_ours(&ledger, std::process::id(), 5));
    }

    #[test]
    fn a_server_is_known_to_the_next_daemon_and_a_stranger_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("servers.json");
        let mut ledger = Ledger::open(path.clone());
        let mut server = Command::new("sleep").arg("600").spawn().unwrap();
        let mut stranger = Command::new("sleep").arg("600").spawn().unwrap();
        assert_eq!(ledger.add(server.id(), FIVE), None);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let next = Ledger::open(path.clone());
        assert_eq!(next.left(), [(Some(server.id()), FIVE)]);
        for known in [&ledger, &next] {
            assert!(is_ours(known, server.id(), 5));
            assert!(!is_ours(known, server.id(), 6), "another user's");
            assert!(!is_ours(known, stranger.id(), 5));
        }
        // The same process id with another process behind it.
        let mut forged = Ledger::open(path.clone());
        forged.entries[0].pid = stranger.id();
        // Not counted from the server: on a slow machine the two start some ticks apart.
        forged.entries[0].started = started(stranger.id()).unwrap().unwrap() + 1;
        assert!(!is_ours(&forged, stranger.id(), 5));
        server.kill().unwrap();
        server.wait().unwrap();
        assert!(!is_ours(&next, server.id(), 5));
        assert!(Ledger::open(path.clone()).entries.is_empty());
        assert_eq!(Ledger::open(path.clone()).left(), [(None, FIVE)], "somebody should look after its clients");
        ledger.remove(server.id());
        assert_eq!(fs::read_to_string(&path).unwrap(), "[]");
        ledger.forget();
        assert!(!path.exists());
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }

    #[test]
    fn a_list_that_others_could_have_written_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("servers.json");
        let own = std::process::id();
        assert_eq!(Ledger::open(path.clone()).add(own, FIVE), None);
        assert!(is_ours(&Ledger::open(path.clone()), own, 5));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(!is_ours(&Ledger::open(path.clone()), own, 5), "everybody may write it");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let link = folder.path().join("link.json");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(!is_ours(&Ledger::open(link), own, 5), "a link");
        fs::write(&path, "rubbish").unwrap();
        assert!(!is_ours(&Ledger::open(path), own, 5));
        let why = Ledger::open("/nonexistent/servers.json".into()).add(own, FIVE);
        assert!(why.is_some_and(|why| why.contains("/nonexistent")));
    }
}
