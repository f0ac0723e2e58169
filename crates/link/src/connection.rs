//! One connection: JSON packets with descriptors.

pub use crate::error::LinkError;
use crate::peer::Peer;
use crate::reach;
use cumux_wire::message::MAX_PACKET;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// Most descriptors in one packet.
pub const MAX_DESCRIPTORS: usize = 16;

/// A connected sequenced-packet socket.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
}

impl From<OwnedFd> for Connection {
    fn from(socket: OwnedFd) -> Self {
        Self { socket }
    }
}

impl From<Connection> for OwnedFd {
    fn from(connection: Connection) -> Self {
        connection.socket
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Connection {
    /// Connects to a listener's path. The listener must belong to a trusted user
    /// ([`crate::trust`]).
    ///
    /// # Errors
    /// [`LinkError::System`] with ENOENT or ECONNREFUSED when nobody listens there,
    /// [`LinkError::Foreign`] when an untrusted user does.
    pub fn connect(path: &Path) -> Result<Self, LinkError> {
        Ok(Self { socket: reach::reach(path, SocketType::SEQPACKET, None)? })
    }

    /// As [`Connection::connect`], but waits at most `timeout` for a listener whose queue is full.
    ///
    /// # Errors
    /// As [`Connection::connect`], and [`LinkError::Timeout`].
    pub fn connect_within(path: &Path, timeout: Duration) -> Result<Self, LinkError> {
        Ok(Self { socket: reach::reach(path, SocketType::SEQPACKET, Some(timeout))? })
    }

    /// Two ends of a new connection.
    ///
    /// # Errors
    /// [`LinkError::System`] when the kernel refuses.
    pub fn pair() -> Result<(Self, Self), LinkError> {
        let (a, b) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self { socket: a }, Self { socket: b }))
    }

    /// Another handle of the same connection.
    ///
    /// # Errors
    /// [`LinkError::System`] when the kernel refuses.
    pub fn try_clone(&self) -> Result<Self, LinkError> {
        Ok(Self { socket: self.socket.try_clone().map_err(|e| LinkError::System(rustix::io::Errno::from_io_error(&e).unwrap_or(rustix::io::Errno::MFILE)))? })
    }

    /// The peer's credentials at the time it connected.
    ///
    /// # Errors
    /// [`LinkError::System`]; on a unix socket the call itself does not fail.
    pub fn peer(&self) -> Result<Peer, LinkError> {
        Ok(Peer::of(&self.socket)?)
    }

    /// Sets how long [`Connection::receive`] waits, and how long [`Connection::send`] waits for a
    /// peer that does not read; `None` for ever.
    ///
    /// # Errors
    /// [`LinkError::System`] when the kernel refuses.
    pub fn set_timeout(&self, timeout: Option<Duration>) -> Result<(), LinkError> {
        use rustix::net::sockopt::{Timeout, set_socket_timeout};
        set_socket_timeout(&self.socket, Timeout::Recv, timeout)?;
        set_socket_timeout(&self.socket, Timeout::Send, timeout)?;
        Ok(())
    }

    /// Sends one message with its descriptors.
    ///
    /// # Errors
    /// [`LinkError`]; nothing was sent then.
    pub fn send(&self, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> Result<(), LinkError> {
        let bytes = serde_json::to_vec(message)?;
        if bytes.len() > MAX_PACKET {
            return Err(LinkError::TooLong(bytes.len()));
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(LinkError::Descriptors { found: descriptors.len(), wanted: MAX_DESCRIPTORS });
        }
        match rustix::io::retry_on_intr(|| rustix::net::sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)) {
            Ok(_) => Ok(()),
            // More than the socket's buffer takes at once.
            Err(rustix::io::Errno::MSGSIZE) => Err(LinkError::TooLong(bytes.len())),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Sends one packet as it is.
    ///
    /// # Errors
    /// [`LinkError`]; nothing was sent then.
    pub fn send_bytes(&self, bytes: &[u8]) -> Result<(), LinkError> {
        rustix::io::retry_on_intr(|| rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL))?;
        Ok(())
    }

    /// Receives one message and its descriptors.
    ///
    /// # Errors
    /// [`LinkError::Closed`] when the other side is gone, [`LinkError::Timeout`],
    /// [`LinkError::Format`] for bytes that are no such message.
    pub fn receive<M: DeserializeOwned>(&self) -> Result<(M, Vec<OwnedFd>), LinkError> {
        let (bytes, descriptors) = self.receive_bytes()?;
        Ok((serde_json::from_slice(&bytes)?, descriptors))
    }

    /// Receives one packet as it came.
    ///
    /// # Errors
    /// As [`Connection::receive`].
    pub fn receive_bytes(&self) -> Result<(Vec<u8>, Vec<OwnedFd>), LinkError> {
        // The length first, so that a small packet does not cost a large buffer.
        let (_, length) = rustix::io::retry_on_intr(|| rustix::net::recv(&self.socket, &mut [0_u8; 0][..], RecvFlags::PEEK | RecvFlags::TRUNC))?;
        if length == 0 {
            return Err(LinkError::Closed);
        }
        if length > MAX_PACKET {
            return Err(LinkError::TooLong(length));
        }
        let mut bytes = vec![0; length];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let message =
            rustix::io::retry_on_intr(|| rustix::net::recvmsg(&self.socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC))?;
        let mut descriptors = Vec::new();
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = part {
                descriptors.extend(fds);
            }
        }
        // The buffer has room for a few more, because of its alignment; more than fit into it the
        // kernel has closed.
        descriptors.truncate(MAX_DESCRIPTORS);
        if message.bytes == 0 {
            return Err(LinkError::Closed);
        }
        bytes.truncate(message.bytes);
        Ok((bytes, descriptors))
    }
}

/// Exactly `N` descriptors, or an error that says how many there were.
///
/// # Errors
/// [`LinkError::Descriptors`].
pub fn exactly<const N: usize>(descriptors: Vec<OwnedFd>) -> Result<[OwnedFd; N], LinkError> {
    let found = descriptors.len();
    descriptors.try_into().map_err(|_| LinkError::Descriptors { found, wanted: N })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by the fuzz target `packets`: two more came through.
    #[test]
    fn a_packet_brings_no_more_descriptors_than_it_may_have() {
        const SENT: usize = MAX_DESCRIPTORS + 8;
        for count in [MAX_DESCRIPTORS, MAX_DESCRIPTORS + 1, MAX_DESCRIPTORS + 2, SENT] {
            let (ours, theirs) = Connection::pair().unwrap();
            let descriptors = vec![ours.as_fd(); count];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SENT))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
            rustix::net::sendmsg(&ours, &[IoSlice::new(b"1")], &mut control, SendFlags::NOSIGNAL).unwrap();
            let (number, got) = theirs.receive::<u32>().unwrap();
            assert_eq!((number, got.len()), (1, MAX_DESCRIPTORS), "{count} were sent");
        }
    }
}
