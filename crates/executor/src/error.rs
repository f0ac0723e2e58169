//! What can go wrong in the executor itself.

/// Why an executor cannot serve a session, or at all.
#[derive(Debug, thiserror::Error)]
pub enum ExecutorError {
    #[error(transparent)]
    Link(#[from] cumux_link::LinkError),
    #[error(transparent)]
    File(#[from] cumux_ring::FileError),
    #[error(transparent)]
    Journal(#[from] cumux_ring::journal::JournalError),
    #[error(transparent)]
    Device(#[from] cumux_device::DeviceError),
    #[error("the keeper does not answer: {0}")]
    Keeper(String),
    #[error("{0}")]
    Damaged(String),
    #[error("the client had more objects than its journal holds, so that no successor can know them all")]
    Unlogged,
    #[error("the operating system refused: {0}")]
    System(#[from] rustix::io::Errno),
}
