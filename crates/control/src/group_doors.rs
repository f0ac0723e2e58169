//! The sockets of groups: `groups/NAME/cumux` in the pipe directory, one for each group.
//!
//! The folder of a group outlives the daemon: a container that has it mounted finds the next
//! daemon's socket in it. What is written down of the groups is in `groups.json`.

use crate::directory::{CUMUX, LONGEST_SOCKET_PATH};
use crate::event::Token;
use crate::groups::Groups;
use cumux_link::folder::Rule;
use cumux_link::{Folder, FolderError, Listener};
use rustix::event::epoll;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The folder of all groups in the pipe directory.
pub(crate) const FOLDER: &str = "groups";
/// The file with the groups.
const FILE: &str = "groups.json";
/// Most bytes of it.
const LONGEST: u64 = 64 << 20;
/// Tokens of these sockets begin here; those of clients end before.
const FIRST: Token = 1 << 63;

/// One open socket.
#[derive(Debug, Clone)]
pub(crate) struct GroupDoor {
    pub(crate) group: String,
    pub(crate) listener: Arc<Listener>,
}

/// The open sockets by their tokens, and the files.
#[derive(Debug)]
pub(crate) struct GroupDoors {
    pipe: PathBuf,
    open: BTreeMap<Token, GroupDoor>,
    next: Token,
}

impl GroupDoors {
    pub(crate) fn new(pipe: &Path) -> Self {
        Self { pipe: pipe.to_owned(), open: BTreeMap::new(), next: FIRST }
    }

    /// Whether a token is that of a group's socket.
    pub(crate) fn is_one(token: Token) -> bool {
        token >= FIRST
    }

    /// The folder of a group.
    pub(crate) fn folder(&self, group: &str) -> PathBuf {
        self.pipe.join(FOLDER).join(group)
    }

    /// The socket with this token; none if its group was removed.
    pub(crate) fn get(&self, token: Token) -> Option<GroupDoor> {
        self.open.get(&token).cloned()
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Token, &GroupDoor)> {
        self.open.iter()
    }

    /// Opens the socket of a group, to all users: the daemon looks who they are.
    ///
    /// # Errors
    /// A sentence.
    pub(crate) fn open(&mut self, group: &str, watch: &OwnedFd) -> Result<(), String> {
        let path = self.folder(group).join(CUMUX);
        let length = path.as_os_str().len();
        if length > LONGEST_SOCKET_PATH {
            return Err(format!(
                "the socket path {} has {length} bytes, and the system allows {LONGEST_SOCKET_PATH}: choose a shorter name or a shorter pipe directory",
                path.display()
            ));
        }
        let opened = self.listen(&path).map_err(|error| format!("cannot listen on {}: {error}", path.display()))?;
        let token = self.next;
        epoll::add(watch, &opened, epoll::EventData::new_u64(token), epoll::EventFlags::IN)
            .map_err(|errno| format!("cannot watch {}: {errno}", path.display()))?;
        self.next += 1;
        self.open.insert(token, GroupDoor { group: group.to_owned(), listener: Arc::new(opened) });
        Ok(())
    }

    fn listen(&self, path: &Path) -> Result<Listener, String> {
        let text = |error: FolderError| error.to_string();
        Folder::make(&self.pipe.join(FOLDER), 0o755, Rule::Service).map_err(text)?;
        let folder = Folder::make(path.parent().unwrap_or(&self.pipe), 0o755, Rule::Service).map_err(text)?;
        folder.remove(CUMUX).map_err(|error| error.to_string())?;
        let listener = Listener::bind(path).map_err(|error| error.to_string())?;
        folder.open_socket_to_all(CUMUX).map_err(text)?;
        rustix::io::ioctl_fionbio(&listener, true).map_err(|errno| errno.to_string())?;
        Ok(listener)
    }

    /// Closes the socket of a group and removes its folder.
    pub(crate) fn close(&mut self, group: &str, watch: &OwnedFd) {
        self.open.retain(|_, door| {
            let stays = door.group != group;
            if !stays {
                let _ = epoll::delete(watch, &*door.listener);
            }
            stays
        });
        if let Ok(folder) = Folder::open(&self.folder(group)) {
            let _ = folder.remove(CUMUX);
        }
        if let Ok(all) = Folder::open(&self.pipe.join(FOLDER)) {
            let _ = all.remove_folder(group);
        }
    }

    /// Removes all sockets; the folders stay for the next daemon. Without groups nothing stays.
    pub(crate) fn end(&mut self) {
        for GroupDoor { group, .. } in std::mem::take(&mut self.open).into_values() {
            if let Ok(folder) = Folder::open(&self.folder(&group)) {
                let _ = folder.remove(CUMUX);
            }
        }
        if let Ok(pipe) = Folder::open(&self.pipe) {
            // Fails while there are groups.
            let _ = pipe.remove_folder(FOLDER);
        }
    }

    /// The groups of the daemon before, with a sentence for each that is lost.
    pub(crate) fn left_behind(&self) -> (Groups, Vec<String>) {
        let read = Folder::open(&self.pipe).and_then(|pipe| pipe.read(FILE, LONGEST));
        match read {
            Ok(bytes) => Groups::read(&bytes),
            Err(error) if error.is_missing() => (Groups::default(), Vec::new()),
            Err(error) => (Groups::default(), vec![format!("The groups of an earlier control daemon cannot be read: {error}")]),
        }
    }

    /// Writes the groups down for the next daemon.
    ///
    /// # Errors
    /// The folder is not safe, or the system refuses.
    pub(crate) fn write(&self, groups: &Groups) -> io::Result<()> {
        let pipe = Folder::open(&self.pipe).map_err(FolderError::into_io)?;
        if groups.iter().next().is_none() {
            return pipe.remove(FILE);
        }
        pipe.replace(FILE, &groups.written(), 0o600).map_err(FolderError::into_io)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_comes_again_in_the_folder_that_is_there() {
        use std::os::unix::fs::MetadataExt as _;
        let base = tempfile::tempdir().unwrap();
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let mut doors = GroupDoors::new(base.path());
        doors.open("pod-1", &watch).unwrap();
        let folder = doors.folder("pod-1");
        let before = std::fs::metadata(&folder).unwrap().ino();
        assert!(folder.join(CUMUX).exists() && doors.get(FIRST).is_some_and(|door| door.group == "pod-1") && GroupDoors::is_one(FIRST));
        let mut groups = Groups::default();
        groups.create("pod-1", &["clients=3".to_owned()]).unwrap();
        doors.write(&groups).unwrap();
        doors.end();
        assert!(!folder.join(CUMUX).exists() && folder.exists(), "a container may have it mounted");
        let mut next = GroupDoors::new(base.path());
        assert_eq!(next.left_behind().0.get("pod-1"), groups.get("pod-1"));
        next.open("pod-1", &watch).unwrap();
        assert_eq!(std::fs::metadata(&folder).unwrap().ino(), before);
        next.close("pod-1", &watch);
        assert!(!folder.exists() && next.get(FIRST).is_none());
        next.write(&Groups::default()).unwrap();
        next.end();
        assert_eq!(std::fs::read_dir(base.path()).unwrap().count(), 0, "nothing is left");
        let long = "x".repeat(64);
        let deep = GroupDoors::new(&base.path().join("y".repeat(60))).open(&long, &watch).unwrap_err();
        assert!(deep.contains("107") && deep.contains("shorter name"), "{deep}");
    }
}
