//! What can go wrong on a connection.

use cumux_wire::message::MAX_PACKET;

/// Why a packet did not get through.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The peer has closed the connection or has ended.
    #[error("the other side has closed the connection")]
    Closed,
    /// The timeout passed first.
    #[error("no packet came in time")]
    Timeout,
    /// The listener belongs to an untrusted user.
    #[error(transparent)]
    Foreign(#[from] crate::trust::Foreign),
    /// Even by its folder, the path does not fit into a socket address.
    #[error("the socket path {0} is too long: unix sockets allow 107 bytes; choose a shorter CUDA_MPS_PIPE_DIRECTORY")]
    PathTooLong(String),
    /// Another refusal of the system's.
    #[error("the socket failed: {0}")]
    System(rustix::io::Errno),
    /// The packet is not the expected JSON.
    #[error("a packet could not be understood ({0}); both sides must be of the same cumux version")]
    Format(#[from] serde_json::Error),
    /// The packet has so many bytes, more than fit.
    #[error("a packet of {0} bytes is too long (at most {MAX_PACKET}, or what the system lets a socket buffer: net.core.wmem_default)")]
    TooLong(usize),
    /// The packet has another number of descriptors than its message.
    #[error(
        "a packet came with {found} descriptors where {wanted} belong to it: either this process may open no more files (ulimit -n), or the two sides are of different cumux versions"
    )]
    Descriptors {
        /// Descriptors that came, or were to be sent.
        found: usize,
        /// Descriptors that belong to the message, or the most that can be sent.
        wanted: usize,
    },
}

impl From<rustix::io::Errno> for LinkError {
    fn from(errno: rustix::io::Errno) -> Self {
        use rustix::io::Errno;
        match errno {
            Errno::AGAIN => LinkError::Timeout,
            Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => LinkError::Closed,
            other => LinkError::System(other),
        }
    }
}
