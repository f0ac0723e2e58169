//! A folder that is watched: kubelet deletes every socket in its folders when it starts.

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::io::{self, ErrorKind};
use std::path::Path;
use tokio::net::unix::pipe::Receiver;

/// Wakes when anything in a folder is made, moved or deleted.
#[derive(Debug)]
pub(crate) struct Watch {
    /// The events. An inotify descriptor is read as a pipe is, and is ready as a pipe is.
    changes: Receiver,
}

impl Watch {
    /// Watches a folder, which must exist.
    pub(crate) fn folder(path: &Path) -> io::Result<Self> {
        let changes = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        inotify::add_watch(&changes, path, WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVED_TO | WatchFlags::DELETE_SELF)?;
        Ok(Self { changes: Receiver::from_owned_fd_unchecked(changes)? })
    }

    /// Waits for the next changes, however many there are.
    pub(crate) async fn changed(&self) -> io::Result<()> {
        let mut buffer = [0; 4096];
        let mut any = false;
        loop {
            match self.changes.try_read(&mut buffer) {
                Ok(_) => any = true,
                Err(error) if error.kind() == ErrorKind::WouldBlock && any => return Ok(()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.changes.readable().await?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
