//! Sending without waiting: every connection has a thread that writes what is queued for it, so
//! that somebody who does not read stops nobody else.

use cumux_link::{Connection, LinkError};
use rustix::net::Shutdown;
use serde::Serialize;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

/// The sending end of a connection. When it is dropped, what is queued is still sent.
#[derive(Debug)]
pub(crate) struct Outbox<M> {
    queue: Sender<(M, Vec<Arc<OwnedFd>>)>,
    connection: Arc<Connection>,
    thread: JoinHandle<()>,
}

impl<M: Serialize + Send + 'static> Outbox<M> {
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn over(connection: Arc<Connection>) -> std::io::Result<Self> {
        let (queue, messages) = channel::<(M, Vec<Arc<OwnedFd>>)>();
        let out = Arc::clone(&connection);
        let thread = thread::Builder::new().name("outbox".into()).spawn(move || {
            for (message, descriptors) in messages {
                let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
                if out.send(&message, &descriptors).is_err() {
                    // Whoever reads this connection sees it end.
                    let _ = rustix::net::shutdown(&*out, Shutdown::Both);
                    return;
                }
            }
        })?;
        Ok(Self { queue, connection, thread })
    }

    /// Queues a message. If the connection is broken its reader will say so.
    pub(crate) fn send(&self, message: M, descriptors: Vec<Arc<OwnedFd>>) {
        let _ = self.queue.send((message, descriptors));
    }

    /// Waits until everything queued is sent, or cannot be.
    pub(crate) fn finish(self) {
        drop(self.queue);
        let _ = self.thread.join();
    }

    /// Ends the connection; what has come already can still be read.
    pub(crate) fn close(&self) {
        let _ = rustix::net::shutdown(&*self.connection, Shutdown::Both);
    }
}

/// Reads until the end, handing each message to `take`; false from it ends the reading. Packets
/// that cannot be understood are passed over.
pub(crate) fn read_all<M: serde::de::DeserializeOwned>(connection: &Connection, mut take: impl FnMut(M, Vec<OwnedFd>) -> bool) {
    // A peer that died with unread messages resets the connection once; what it had sent is still
    // there behind that.
    let mut resets = 0;
    loop {
        match connection.receive::<M>() {
            Ok((message, descriptors)) => {
                if !take(message, descriptors) {
                    return;
                }
            }
            Err(LinkError::Format(_)) => {}
            Err(LinkError::Closed) if resets == 0 => resets = 1,
            Err(_) => return,
        }
    }
}
