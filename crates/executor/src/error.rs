//! What can go wrong in the executor itself.

/// Why an executor cannot serve a session, or at all.
#[derive(Debug, thiserror::Error)]
pub enum ExecutorError {
    /// The connection to the server is broken.
    #[error(transparent)]
    Link(#[from] cumux_link::LinkError),
    /// A session's file cannot be used.
    #[error(transparent)]
    File(#[from] cumux_ring::FileError),
    /// A session's journal cannot be read or written.
    #[error(transparent)]
    Journal(#[from] cumux_ring::journal::JournalError),
    /// The device refuses.
    #[error(transparent)]
    Device(#[from] cumux_device::DeviceError),
    /// There is no keeper, or it refuses.
    #[error("the keeper does not answer: {0}")]
    Keeper(String),
    /// What a predecessor left cannot be believed.
    #[error("{0}")]
    Damaged(String),
    /// What a predecessor left is not the whole.
    #[error("the client had more objects than its journal holds, so that no successor can know them all")]
    Unlogged,
    /// The system has none of something.
    #[error("the operating system refused: {0}")]
    System(#[from] rustix::io::Errno),
}
