//! Meeting: sequenced-packet unix sockets that carry one JSON object and descriptors a packet, peer credentials, process handles; and the
//! format of log lines that all processes share, with the words of others made harmless.
//!
//! A packet arrives whole or not at all; its sender is known to the kernel. Nothing here interprets a message.
#![forbid(unsafe_code)]

pub mod connection;
pub mod foreign;
pub mod limit;
pub mod listener;
pub mod peer;
pub mod process;
pub mod stamp;

pub use connection::{Connection, LinkError};
pub use foreign::escape_foreign;
pub use listener::Listener;
pub use peer::{Caller, Peer, PeerError};
pub use process::Process;
