//! The faults of a user's clients, for `cumux faults`: `faults-<uid>.json` in the pipe directory,
//! and beside it the core dumps that came with them.
//!
//! Invariants: at most [`MOST_RECORDS`] faults and [`MOST_DUMPS`] dumps are kept, the newest. A
//! record is written before its dump, and names it when the dump is whole.

use cumux_link::{Folder, FolderError, escape_foreign};
use cumux_wire::message::FaultRecord;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Most faults that are kept.
const MOST_RECORDS: usize = 100;
/// Most core dumps that are kept. With PyTorch's modules on the card one has 100 MB.
const MOST_DUMPS: usize = 4;
/// Most characters of what is known of a fault: kernel, function and source line have long names.
/// Statuses have less room.
pub(crate) const LONGEST_TEXT: usize = 1000;
/// Longest file of records.
const LONGEST: u64 = 1 << 20;

/// The faults, as the file has them.
#[derive(Debug)]
pub(crate) struct FaultLog {
    path: PathBuf,
    records: Arc<Mutex<VecDeque<FaultRecord>>>,
}

fn lock(records: &Mutex<VecDeque<FaultRecord>>) -> MutexGuard<'_, VecDeque<FaultRecord>> {
    records.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FaultLog {
    /// Goes on with what an earlier server has written; with nothing if that makes no sense.
    pub(crate) fn open(path: PathBuf) -> Self {
        let bytes = Folder::of(&path).and_then(|(folder, name)| folder.read(name, LONGEST)).unwrap_or_default();
        let records: VecDeque<FaultRecord> = serde_json::from_slice(&bytes).unwrap_or_default();
        Self { path, records: Arc::new(Mutex::new(records)) }
    }

    /// Adds a fault of this client.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn add(&self, session: u32, pid: u32, program: &str, result: u32, text: &str) -> io::Result<()> {
        let at_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(0));
        let mut records = lock(&self.records);
        records.push_back(FaultRecord {
            at_ms,
            session,
            pid,
            program: program.to_owned(),
            result,
            text: escape_foreign(text, LONGEST_TEXT),
            dump: String::new(),
        });
        while records.len() > MOST_RECORDS {
            records.pop_front();
        }
        write(&self.path, &mut records)
    }

    /// Whether there is a fault of this client.
    pub(crate) fn has(&self, session: u32, pid: u32) -> bool {
        lock(&self.records).iter().any(|record| record.session == session && record.pid == pid)
    }

    /// Keeps the core dump that belongs to the last faults of these sessions. It is copied on a
    /// thread of its own: it may have hundreds of megabytes.
    ///
    /// # Errors
    /// When there is no thread for it.
    pub(crate) fn keep_dump(&self, sessions: Vec<u32>, dump: OwnedFd) -> io::Result<()> {
        let (path, records) = (self.path.clone(), Arc::clone(&self.records));
        std::thread::Builder::new().name("dump".into()).spawn(move || {
            // What cannot be kept is missed by nobody but who asks for it.
            let _ = copy_dump(&path, &records, &sessions, dump);
        })?;
        Ok(())
    }
}

fn copy_dump(path: &Path, records: &Mutex<VecDeque<FaultRecord>>, sessions: &[u32], dump: OwnedFd) -> io::Result<()> {
    let mut source = File::from(dump);
    io::Seek::rewind(&mut source)?;
    let Some(at_ms) = lock(records).iter().rev().find(|record| sessions.contains(&record.session)).map(|record| record.at_ms) else { return Ok(()) };
    let (folder, file) = Folder::of(path).map_err(FolderError::into_io)?;
    let stem = file.to_string_lossy().trim_end_matches(".json").to_owned();
    let name = format!("{stem}-{at_ms}.cudump");
    folder.replace_with(&name, 0o600, |target| io::copy(&mut source, target).map(drop)).map_err(FolderError::into_io)?;
    let mut records = lock(records);
    for session in sessions {
        if let Some(record) = records.iter_mut().rev().find(|record| record.session == *session) {
            record.dump.clone_from(&name);
        }
    }
    write(path, &mut records)
}

/// Writes the file, and removes the dumps that are too many.
fn write(path: &Path, records: &mut VecDeque<FaultRecord>) -> io::Result<()> {
    let (folder, name) = Folder::of(path).map_err(FolderError::into_io)?;
    let mut kept: Vec<String> = Vec::new();
    for record in records.iter_mut().rev().filter(|record| !record.dump.is_empty()) {
        if kept.contains(&record.dump) {
            continue;
        }
        if kept.len() < MOST_DUMPS {
            kept.push(record.dump.clone());
        } else {
            let _ = folder.remove(&record.dump);
            record.dump.clear();
        }
    }
    let bytes = serde_json::to_vec(records)?;
    folder.replace(name, &bytes, 0o644).map_err(FolderError::into_io)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn faults_and_dumps_are_bounded_and_found_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("faults-7.json");
        let log = FaultLog::open(path.clone());
        for at in 0..MOST_RECORDS as u32 + 5 {
            // The longest in UTF-8, which JSON does not shorten.
            log.add(at, 100 + at, "a.out", 700, &"\u{10437}".repeat(2 * LONGEST_TEXT)).expect("written");
        }
        let last = MOST_RECORDS as u32 + 4;
        for session in last - 5..=last {
            let mut dump = tempfile::tempfile().expect("a file");
            write!(dump, "dump {session}").expect("written");
            lock(&log.records).iter_mut().filter(|record| record.session == session).for_each(|record| record.at_ms = u64::from(session));
            copy_dump(&path, &log.records, &[session], dump.into()).expect("copied");
        }
        let again = FaultLog::open(path);
        let records = lock(&again.records).clone();
        assert_eq!((records.len(), records[0].session), (MOST_RECORDS, 5));
        assert!(records.iter().all(|record| record.text.chars().count() == LONGEST_TEXT));
        let dumps: Vec<&str> = records.iter().map(|record| record.dump.as_str()).filter(|name| !name.is_empty()).collect();
        assert_eq!(dumps.len(), MOST_DUMPS);
        assert_eq!(std::fs::read_to_string(folder.path().join(dumps[3])).expect("kept"), format!("dump {last}"));
        let mode = std::fs::metadata(folder.path().join(dumps[3])).expect("kept").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "registers and code are their user's alone");
        let files = std::fs::read_dir(folder.path()).expect("listed").count();
        assert_eq!(files, MOST_DUMPS + 1);
    }
}
