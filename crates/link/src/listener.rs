//! A listening socket at a path.

use crate::connection::Connection;
use crate::error::LinkError;
use crate::reach::address;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Listens for sequenced-packet connections. Binding replaces an old socket at the path: the caller
/// has made sure that it is stale, and that only trusted users can write the directory.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    path: PathBuf,
}

impl Listener {
    /// Binds and listens.
    ///
    /// # Errors
    /// [`LinkError::PathTooLong`], or [`LinkError::System`] when the directory cannot be written.
    pub fn bind(path: &Path) -> Result<Self, LinkError> {
        let address = address(path)?;
        match rustix::fs::unlink(path) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(errno) => return Err(LinkError::System(errno)),
        }
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        rustix::net::bind(&socket, &address.at)?;
        rustix::net::listen(&socket, 1024)?;
        Ok(Self { socket, path: path.to_owned() })
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    /// [`LinkError::System`] when the process has too many descriptors, for example.
    pub fn accept(&self) -> Result<Connection, LinkError> {
        Ok(rustix::io::retry_on_intr(|| rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC))?.into())
    }

    /// The path it is bound to.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
