//! Meeting: sequenced-packet unix sockets that carry one JSON object and descriptors a packet, peer
//! credentials, process handles; whether a process stands still; the directories in which the service
//! works; the log files that all processes share; and the words of others made harmless.
//!
//! A packet arrives whole or not at all; its sender is known to the kernel. Nothing here interprets
//! a message. Who listens at a path and who owns a directory is looked at before anything is said
//! or written there ([`trust`], [`folder`]).
#![forbid(unsafe_code)]

pub mod connection;
pub mod flood;
pub mod folder;
pub mod foreign;
pub mod limit;
pub mod listener;
pub mod logfile;
pub mod peer;
pub mod process;
pub mod pulse;
pub mod reach;
pub mod stamp;
pub mod trust;

pub use connection::{Connection, LinkError};
pub use folder::{Folder, FolderError};
pub use foreign::escape_foreign;
pub use listener::Listener;
pub use peer::{Caller, Peer, PeerError};
pub use process::Process;
