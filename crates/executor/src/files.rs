//! The files of a session, as the server has made them.

use crate::error::ExecutorError;
use cumux_link::connection::exactly;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Descriptors of a session.
#[derive(Debug, Clone)]
pub struct Files {
    /// In the order of `ToExecutor::Attach`: ring, page, window, journal, doorbell, marks, handle
    /// of the client's process.
    pub all: [Arc<OwnedFd>; 7],
}

impl Files {
    /// # Errors
    /// [`ExecutorError::Link`] when their number is wrong.
    pub fn new(descriptors: Vec<OwnedFd>) -> Result<Self, ExecutorError> {
        Ok(Self { all: exactly::<7>(descriptors)?.map(Arc::new) })
    }

    #[must_use]
    pub fn doorbell(&self) -> BorrowedFd<'_> {
        self.all[4].as_fd()
    }

    /// The journal.
    #[must_use]
    pub fn journal(&self) -> Arc<OwnedFd> {
        self.all[3].clone()
    }

    /// All of them, for a message.
    #[must_use]
    pub fn share(&self) -> Vec<Arc<OwnedFd>> {
        self.all.to_vec()
    }
}
