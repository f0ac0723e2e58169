//! Asking a keeper: one question at a time, from any thread.

use cumux_link::connection::exactly;
use cumux_link::{Connection, LinkError};
use cumux_wire::message::{FromKeeper, ToKeeper};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long an answer may take. A keeper that is slower counts as dead.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Why the keeper did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The connection to it is broken.
    #[error("the keeper cannot be reached ({0}); the server starts another one")]
    Link(#[from] LinkError),
    /// It has no room for all of the descriptors.
    #[error("the keeper holds {kept} of {sent} descriptors; raise its limit of open files (ulimit -n)")]
    Full {
        /// Descriptors that it was given.
        sent: usize,
        /// Descriptors that it holds.
        kept: u32,
    },
    /// Its answer belongs to no question of ours.
    #[error("the keeper answered something else than was asked; all parts must be of the same cumux version")]
    Confused,
}

/// One thing that is kept.
#[derive(Debug)]
pub struct Item {
    /// Number of the session that it belongs to.
    pub session: u32,
    /// Its name within the session.
    pub key: String,
    /// What was written beside it.
    pub note: String,
    /// What is kept.
    pub descriptors: Vec<OwnedFd>,
}

/// A connection to the keeper.
#[derive(Debug)]
pub struct Keeper {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    connection: Connection,
    /// Number of the last question.
    request: u64,
}

impl Inner {
    /// The next answer to question `request`; late answers to questions that were given up are
    /// passed over.
    fn answer(&self, request: u64) -> Result<(FromKeeper, Vec<OwnedFd>), ClientError> {
        loop {
            let (message, descriptors) = self.connection.receive::<FromKeeper>()?;
            let (FromKeeper::Kept { request: number, .. } | FromKeeper::Item { request: number, .. } | FromKeeper::End { request: number }) = &message;
            match (*number).cmp(&request) {
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Equal => return Ok((message, descriptors)),
                std::cmp::Ordering::Greater => return Err(ClientError::Confused),
            }
        }
    }

    fn ask(&mut self, question: impl FnOnce(u64) -> ToKeeper, descriptors: &[BorrowedFd<'_>]) -> Result<u64, ClientError> {
        self.request += 1;
        self.connection.send(&question(self.request), descriptors)?;
        Ok(self.request)
    }

    fn expect_end(&self, request: u64) -> Result<(), ClientError> {
        match self.answer(request)?.0 {
            FromKeeper::End { .. } => Ok(()),
            _ => Err(ClientError::Confused),
        }
    }
}

impl Keeper {
    /// Asks over this connection, which nobody else may use.
    ///
    /// # Errors
    /// When the socket is none.
    pub fn over(connection: impl Into<Connection>) -> Result<Self, ClientError> {
        let connection = connection.into();
        connection.set_timeout(Some(ANSWER_TIMEOUT))?;
        Ok(Self { inner: Mutex::new(Inner { connection, request: 0 }) })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has descriptors kept under `session` and `key`; replaces what was there.
    ///
    /// # Errors
    /// [`ClientError`]; after [`ClientError::Full`] the entry is incomplete and should be dropped.
    pub fn keep(&self, session: u32, key: &str, note: &str, descriptors: &[BorrowedFd<'_>]) -> Result<(), ClientError> {
        let mut inner = self.lock();
        let request = inner.ask(|request| ToKeeper::Keep { request, session, key: key.to_owned(), note: note.to_owned() }, descriptors)?;
        match inner.answer(request)?.0 {
            FromKeeper::Kept { descriptors: kept, .. } if kept as usize == descriptors.len() => Ok(()),
            FromKeeper::Kept { descriptors: kept, .. } => Err(ClientError::Full { sent: descriptors.len(), kept }),
            _ => Err(ClientError::Confused),
        }
    }

    /// Has one entry of a session given up.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn drop_key(&self, session: u32, key: &str) -> Result<(), ClientError> {
        let mut inner = self.lock();
        let request = inner.ask(|request| ToKeeper::Drop { request, session, key: key.to_owned() }, &[])?;
        inner.expect_end(request)
    }

    /// Has everything of a session given up.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn drop_session(&self, session: u32) -> Result<(), ClientError> {
        let mut inner = self.lock();
        let request = inner.ask(|request| ToKeeper::DropSession { request, session }, &[])?;
        inner.expect_end(request)
    }

    /// What is kept for a session, or for all with 0, in the order of session and key.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn list(&self, session: u32) -> Result<Vec<Item>, ClientError> {
        let mut inner = self.lock();
        let request = inner.ask(|request| ToKeeper::List { request, session }, &[])?;
        let mut items = Vec::new();
        loop {
            match inner.answer(request)? {
                (FromKeeper::Item { session, key, note, .. }, descriptors) => items.push(Item { session, key, note, descriptors }),
                (FromKeeper::End { .. }, _) => return Ok(items),
                (FromKeeper::Kept { .. }, _) => return Err(ClientError::Confused),
            }
        }
    }

    /// A new connection to the same keeper, for another process ([`Keeper::over`] there).
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn connect(&self) -> Result<OwnedFd, ClientError> {
        let (ours, theirs) = Connection::pair()?;
        let mut inner = self.lock();
        let request = inner.ask(|request| ToKeeper::Connect { request }, &[theirs.as_fd()])?;
        inner.expect_end(request)?;
        Ok(ours.into())
    }

    /// Tells the keeper to end. Only the connection that the keeper made itself has that right; on
    /// others it ends the connection.
    ///
    /// # Errors
    /// [`ClientError::Link`].
    pub fn quit(&self) -> Result<(), ClientError> {
        Ok(self.lock().connection.send(&ToKeeper::Quit, &[])?)
    }
}

/// For callers that kept a known number of descriptors under a key.
impl Item {
    /// Its descriptors, which must be so many.
    ///
    /// # Errors
    /// [`ClientError::Link`] with the numbers when there are more or fewer.
    pub fn exactly<const N: usize>(self) -> Result<[OwnedFd; N], ClientError> {
        Ok(exactly(self.descriptors)?)
    }
}
