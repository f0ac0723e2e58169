//! How processes of the service meet: sequenced-packet unix sockets that carry one JSON object and
//! descriptors a packet, peer credentials, and process handles. Also what all of them share: the
//! heartbeat check, the directories and log files of the service, and the escaping of foreign text.
//!
//! A packet arrives whole or not at all; the kernel says who sent it. Nothing here interprets a
//! message. The user behind a listener and the owner of a directory are checked before a byte goes
//! there ([`trust`], [`folder`]).
#![forbid(unsafe_code)]
#![warn(missing_docs, missing_debug_implementations)]

pub mod connection;
pub mod error;
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
pub mod recorder;
pub mod stamp;
pub mod trust;
pub mod waits;

pub use connection::Connection;
pub use error::LinkError;
pub use folder::{Folder, FolderError};
pub use foreign::escape_foreign;
pub use listener::Listener;
pub use peer::{Caller, Peer, PeerError};
pub use process::Process;
