//! The holders of static partitions: pidfds, so that the partition of an ended client is freed, and
//! a file from which a daemon that starts after a crash restores the partitions.

use crate::partitions::Board;
use cumux_link::{Folder, FolderError, Process};
use cumux_wire::message::DeviceFacts;
use std::collections::HashMap;
use std::path::PathBuf;

/// Most bytes of the file: the partitions of any number of cards need less.
const LONGEST: u64 = 16 << 20;

pub(crate) struct Holders {
    handles: HashMap<u32, Process>,
    file: PathBuf,
    saved: Option<Board>,
}

impl Holders {
    pub(crate) fn new(file: PathBuf) -> Self {
        Self { handles: HashMap::new(), file, saved: None }
    }

    /// The partitions that a dead daemon has left.
    fn left_behind(&self) -> Option<Board> {
        let (folder, name) = Folder::of(&self.file).ok()?;
        serde_json::from_slice(&folder.read(name, LONGEST).ok()?).ok()
    }

    /// The partitions for these cards: those of a dead daemon, if they were for the same cards.
    pub(crate) fn board(&self, devices: &[DeviceFacts]) -> Board {
        self.left_behind().filter(|board| board.fits(devices)).unwrap_or_else(|| Board::new(devices))
    }

    /// Adds a client that is about to get its partition. A pidfd is needed because a process of
    /// another PID namespace cannot be found by its number.
    pub(crate) fn add(&mut self, pid: u32, process: &Process) {
        if let Ok(process) = process.try_clone() {
            self.handles.insert(pid, process);
        }
    }

    /// Releases the partitions of ended processes and saves changes. Returns the reason if they
    /// cannot be saved.
    pub(crate) fn sweep(&mut self, board: &mut Board) -> Option<String> {
        let clients = board.clients();
        self.handles.retain(|pid, _| clients.contains(pid));
        for pid in clients {
            if !self.handles.contains_key(&pid)
                && let Ok(process) = Process::open(pid)
            {
                self.handles.insert(pid, process);
            }
            if !self.handles.get(&pid).is_some_and(Process::is_alive) {
                self.handles.remove(&pid);
                board.release(pid);
            }
        }
        // Before the cards are known, the file of a dead daemon is not overwritten.
        if self.saved.as_ref() == Some(board) || board.fits(&[]) {
            return None;
        }
        self.saved = Some(board.clone());
        let written = serde_json::to_vec(board).map_err(std::io::Error::from).and_then(|bytes| self.write(&bytes).map_err(FolderError::into_io));
        written.err().map(|error| format!("cannot write {} ({error}): after a crash of this daemon its partitions are not known", self.file.display()))
    }

    fn write(&self, bytes: &[u8]) -> Result<(), FolderError> {
        let (folder, name) = Folder::of(&self.file)?;
        folder.replace(name, bytes, 0o644)
    }

    /// Removes the file: the partitions end with the daemon.
    pub(crate) fn forget(&self) {
        if let Ok((folder, name)) = Folder::of(&self.file) {
            let _ = folder.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partitions::tests::card;

    #[test]
    fn partitions_of_ended_processes_are_free_and_the_next_daemon_knows_the_rest() {
        let folder = tempfile::tempdir().unwrap();
        let cards = [card(0x18, 132, 9)];
        let mut board = Board::new(&cards);
        let name = board.add("GPU-18", 2).unwrap();
        let mut holders = Holders::new(folder.path().join("partitions.json"));
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        board.assign(Some(&name), child.id()).unwrap();
        board.assign(Some(&name), u32::MAX).unwrap();
        assert_eq!(holders.sweep(&mut board), None);
        assert_eq!(board.clients().into_iter().collect::<Vec<_>>(), [child.id()], "a process that never was holds nothing");
        assert_eq!(holders.left_behind().as_ref(), Some(&board));
        let mut unknown = holders.board(&[]);
        Holders::new(folder.path().join("partitions.json")).sweep(&mut unknown);
        assert_eq!(holders.board(&cards), board, "cards that are known later have their partitions still");
        child.kill().unwrap();
        child.wait().unwrap();
        holders.sweep(&mut board);
        assert!(board.clients().is_empty());
        holders.forget();
        assert_eq!(holders.left_behind(), None);
        let mut nowhere = Holders::new("/nonexistent/partitions.json".into());
        assert!(nowhere.sweep(&mut board).is_some_and(|why| why.contains("/nonexistent")));
    }
}
