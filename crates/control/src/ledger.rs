//! The list of servers that the daemons of this directory have started: no other process is
//! accepted as a server.
//!
//! A process is identified by its process id, its start time and the boot. The list is in a file
//! that only the daemon's user may write, so that the next daemon knows the servers of one that was
//! killed.

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
    /// In ticks since the boot.
    started: u64,
    boot: String,
}

/// The list, and the file it is in.
#[derive(Debug)]
pub(crate) struct Ledger {
    path: PathBuf,
    entries: Vec<Entry>,
    /// Users whose servers ended while no daemon ran.
    lost: Vec<u32>,
}

impl Ledger {
    /// Opens the list with the entries of an earlier daemon.
    pub(crate) fn open(path: PathBuf) -> Self {
        let entries: Vec<Entry> = read(&path).and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        let (entries, ended): (Vec<Entry>, Vec<Entry>) = entries.into_iter().partition(is_alive);
        let boot = boot();
        let mut lost: Vec<u32> = ended.iter().filter(|entry| entry.boot == boot).map(|entry| entry.uid).collect();
        lost.sort_unstable();
        lost.dedup();
        lost.retain(|uid| !entries.iter().any(|entry| entry.uid == *uid));
        Self { path, entries, lost }
    }

    /// The servers of an earlier daemon: process id and user of those that live, only the user of
    /// those that have ended.
    pub(crate) fn left(&self) -> Vec<(Option<u32>, u32)> {
        let living = self.entries.iter().map(|entry| (Some(entry.pid), entry.uid));
        living.chain(self.lost.iter().map(|uid| (None, *uid))).collect()
    }

    /// Adds a started server. Returns what is wrong with the file, if anything.
    pub(crate) fn add(&mut self, pid: u32, uid: u32) -> Option<String> {
        let started = started(pid)?;
        self.entries.retain(|entry| entry.pid != pid);
        self.entries.push(Entry { pid, uid, started, boot: boot() });
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
    pub(crate) fn knows(&self, pid: u32, uid: u32) -> bool {
        self.entries.iter().any(|entry| entry.pid == pid && entry.uid == uid && is_alive(entry))
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

fn is_alive(entry: &Entry) -> bool {
    started(entry.pid) == Some(entry.started) && entry.boot == boot()
}

/// Start time of a process: field 22 of `/proc/PID/stat`.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
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

    #[test]
    fn a_server_is_known_to_the_next_daemon_and_a_stranger_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("servers.json");
        let mut ledger = Ledger::open(path.clone());
        let mut server = Command::new("sleep").arg("600").spawn().unwrap();
        let mut stranger = Command::new("sleep").arg("600").spawn().unwrap();
        assert_eq!(ledger.add(server.id(), 5), None);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let next = Ledger::open(path.clone());
        assert_eq!(next.left(), [(Some(server.id()), 5)]);
        for known in [&ledger, &next] {
            assert!(known.knows(server.id(), 5));
            assert!(!known.knows(server.id(), 6), "another user's");
            assert!(!known.knows(stranger.id(), 5));
        }
        // The same process id with another process behind it.
        let mut forged = Ledger::open(path.clone());
        forged.entries[0].pid = stranger.id();
        forged.entries[0].started += 1;
        assert!(!forged.knows(stranger.id(), 5));
        server.kill().unwrap();
        server.wait().unwrap();
        assert!(!next.knows(server.id(), 5));
        assert!(Ledger::open(path.clone()).entries.is_empty());
        assert_eq!(Ledger::open(path.clone()).left(), [(None, 5)], "somebody should look after its clients");
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
        assert_eq!(Ledger::open(path.clone()).add(own, 5), None);
        assert!(Ledger::open(path.clone()).knows(own, 5));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(!Ledger::open(path.clone()).knows(own, 5), "everybody may write it");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let link = folder.path().join("link.json");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(!Ledger::open(link).knows(own, 5), "a link");
        fs::write(&path, "rubbish").unwrap();
        assert!(!Ledger::open(path).knows(own, 5));
        let why = Ledger::open("/nonexistent/servers.json".into()).add(own, 5);
        assert!(why.is_some_and(|why| why.contains("/nonexistent")));
    }
}
