//! Meeting: sequenced-packet unix sockets that carry one JSON object and descriptors a packet, peer credentials, process handles; whether a process
//! stands still; and the format of log lines that all processes share.
//!
//! A packet arrives whole or not at all; its sender is known to the kernel. Nothing here interprets a message.
#![forbid(unsafe_code)]

pub mod connection;
pub mod listener;
pub mod process;
pub mod pulse;
pub mod stamp;

pub use connection::{Connection, LinkError, Peer};
pub use listener::Listener;
pub use process::Process;
