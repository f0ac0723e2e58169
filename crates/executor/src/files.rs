//! The files of a session, as the server has made them.

use crate::error::ExecutorError;
use cumux_link::connection::exactly;
use cumux_ring::group::GroupAccounts;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Descriptors of a session.
#[derive(Debug, Clone)]
pub struct Files {
    /// In the order of `ToExecutor::Attach`: ring, page, window, journal, doorbell, marks, handle
    /// of the client's process.
    pub all: [Arc<OwnedFd>; 7],
    /// The accounts of the client's group, and the file behind them.
    pub group: Option<(Arc<GroupAccounts>, Arc<OwnedFd>)>,
}

impl Files {
    /// # Errors
    /// [`ExecutorError::Link`] when their number is wrong, [`ExecutorError::File`] for accounts
    /// that are none.
    pub fn new(mut descriptors: Vec<OwnedFd>, in_group: bool) -> Result<Self, ExecutorError> {
        let accounts = if in_group { descriptors.pop() } else { None };
        let all = exactly::<7>(descriptors)?.map(Arc::new);
        let group = accounts.map(|file| GroupAccounts::open(&file).map(|accounts| (Arc::new(accounts), Arc::new(file)))).transpose()?;
        Ok(Self { all, group })
    }

    #[must_use]
    pub fn doorbell(&self) -> BorrowedFd<'_> {
        self.all[4].as_fd()
    }

    /// The pinned window.
    #[must_use]
    pub fn window(&self) -> Arc<OwnedFd> {
        self.all[2].clone()
    }

    /// The journal.
    #[must_use]
    pub fn journal(&self) -> Arc<OwnedFd> {
        self.all[3].clone()
    }

    /// All of them, for a message.
    #[must_use]
    pub fn share(&self) -> Vec<Arc<OwnedFd>> {
        self.all.iter().chain(self.group.iter().map(|(_, file)| file)).cloned().collect()
    }
}
