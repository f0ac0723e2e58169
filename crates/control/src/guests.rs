//! A waiting client, and the poll set that reports when it goes.

use crate::doors::ConnectionPermit;
use crate::event::Token;
use cumux_link::{Connection, Listener, Process};
use cumux_wire::message::Reply;
use rustix::event::epoll;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// A client that waits.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) connection: Connection,
    pub(crate) process: Process,
    /// Freed when the client is served, refused or gone.
    pub(crate) _permit: ConnectionPermit,
}

/// The poll set of the lobby's thread. Events carry the client's token, those of its connection as
/// those of its process: whichever ends, the client has gone.
pub(crate) struct Watch {
    pub(crate) set: OwnedFd,
}

/// The number of the listening socket; tokens begin with 1.
pub(crate) const DOOR: u64 = 0;

impl Watch {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { set: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    pub(crate) fn newcomer(&self, connection: &Connection, token: Token) -> rustix::io::Result<()> {
        epoll::add(&self.set, connection, epoll::EventData::new_u64(token), epoll::EventFlags::IN)
    }

    /// From here on only the end of the connection is reported, which epoll always does.
    pub(crate) fn guest(&self, guest: &Guest, token: Token) -> rustix::io::Result<()> {
        epoll::modify(&self.set, &guest.connection, epoll::EventData::new_u64(token), epoll::EventFlags::empty())?;
        epoll::add(&self.set, &guest.process, epoll::EventData::new_u64(token), epoll::EventFlags::IN)
    }

    /// Must be called before the descriptors are closed: the server has copies of them, so closing
    /// alone does not end the watch.
    pub(crate) fn forget(&self, guest: &Guest) {
        let _ = epoll::delete(&self.set, &guest.connection);
        let _ = epoll::delete(&self.set, &guest.process);
    }

    pub(crate) fn door(&self, listener: &Listener, token: Token, open: bool) -> rustix::io::Result<()> {
        let wanted = if open { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
        epoll::modify(&self.set, listener, epoll::EventData::new_u64(token), wanted)
    }
}

/// Answers a hello with a sentence.
pub(crate) fn refuse(client: &Connection, result: u32, why: String) {
    let _ = client.set_timeout(Some(Duration::from_millis(200)));
    // A client that has gone need not receive it.
    let _ = client.send(&Reply::Refused { result, why }, &[]);
}
