//! The process: one connection to the server, made again whenever the server was, and any number
//! that were handed over.

use crate::hope::Hope;
use crate::store::{Entry, Store};
use cumux_link::{Connection, LinkError};
use cumux_wire::VERSION;
use cumux_wire::message::{FromKeeper, Hello, ToKeeper};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// How often a lost server is looked for.
const RETRY: Duration = Duration::from_millis(50);
/// How long nobody may want what is held. Clients have given up long before.
const SERVER_RETURN_TIMEOUT: Duration = Duration::from_secs(60);

/// Why a keeper ended without being told to.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// Nobody wants what it holds any more.
    #[error("no server came back within {} s, or the control daemon has ended; what was kept is given up, start the daemon again", SERVER_RETURN_TIMEOUT.as_secs())]
    Abandoned,
    /// The path can be no socket of a server.
    #[error("the server's socket cannot be used: {0}")]
    Link(#[from] LinkError),
}

/// How a connection ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    Quit,
    /// Lost; whether anything was asked on it before.
    Lost {
        used: bool,
    },
}

/// Holds descriptors for the server that listens at `server_socket`, until it says quit.
///
/// # Errors
/// [`KeeperError::Abandoned`] when there was no server for a minute, [`KeeperError::Link`] for a
/// path that can be no socket's.
pub fn run(server_socket: &Path) -> Result<(), KeeperError> {
    cumux_link::limit::raise();
    let store = Arc::new(Store::default());
    let mut lost_since = Instant::now();
    let mut hope = Hope::of(server_socket);
    loop {
        match Connection::connect(server_socket) {
            Ok(connection) => {
                let hello = Hello::Keeper { version: VERSION, pid: std::process::id() };
                if connection.send(&hello, &[]).is_ok() {
                    match serve(&store, &connection) {
                        End::Quit => return Ok(()),
                        End::Lost { used: true } => lost_since = Instant::now(),
                        // A server that turns us away is as good as none.
                        End::Lost { used: false } => {}
                    }
                }
            }
            Err(error @ (LinkError::PathTooLong(_) | LinkError::Foreign(_))) => return Err(error.into()),
            Err(_) => {}
        }
        if lost_since.elapsed() > SERVER_RETURN_TIMEOUT || hope.is_lost(Instant::now()) {
            return Err(KeeperError::Abandoned);
        }
        thread::sleep(RETRY);
    }
}

/// Serves one connection until it ends.
pub(crate) fn serve(store: &Arc<Store>, connection: &Connection) -> End {
    let mut used = false;
    loop {
        let (message, mut descriptors) = match connection.receive::<ToKeeper>() {
            Ok(packet) => packet,
            // Not understood: say nothing, change nothing. The asker waits in vain and then treats
            // this keeper as dead.
            Err(LinkError::Format(_)) => continue,
            Err(_) => return End::Lost { used },
        };
        used = true;
        let answer = match message {
            ToKeeper::Keep { request, session, key, note } => {
                let count = u32::try_from(descriptors.len()).unwrap_or(u32::MAX);
                if count > 0 {
                    store.keep(session, key, Entry { note, descriptors });
                }
                FromKeeper::Kept { request, descriptors: count }
            }
            ToKeeper::Drop { request, session, key } => {
                store.drop_key(session, key);
                FromKeeper::End { request }
            }
            ToKeeper::DropSession { request, session } => {
                store.drop_session(session);
                FromKeeper::End { request }
            }
            ToKeeper::List { request, session } => {
                for (session, key, entry) in store.list(session) {
                    let item = FromKeeper::Item { request, session, key, note: entry.note.clone() };
                    let fds: Vec<_> = entry.descriptors.iter().map(AsFd::as_fd).collect();
                    if connection.send(&item, &fds).is_err() {
                        return End::Lost { used };
                    }
                }
                FromKeeper::End { request }
            }
            ToKeeper::Connect { request } => {
                if let Some(socket) = descriptors.pop() {
                    let store = Arc::clone(store);
                    // Without a thread the socket closes, and whoever holds the other end sees
                    // that.
                    let _ = thread::Builder::new().name("kept-for".into()).spawn(move || serve(&store, &socket.into()));
                }
                FromKeeper::End { request }
            }
            ToKeeper::Quit => return End::Quit,
        };
        if connection.send(&answer, &[]).is_err() {
            return End::Lost { used };
        }
    }
}
