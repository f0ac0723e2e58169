//! The control daemon: the MPS text commands, the registry of servers, the queue of users. It never touches a GPU.
//!
//! The text side answers as NVIDIA's daemon of driver 580 does. Clients and servers meet it on the socket `cumux` of the pipe directory: a
//! client says hello, the daemon finds or starts the server of that user and hands the client's own socket over; from then on it is out of the way.
//! Running servers outlive a daemon and register with the next.
#![forbid(unsafe_code)]

mod answer;
mod clean;
pub mod command;
mod complaints;
mod daemon;
pub mod directory;
mod doors;
mod event;
mod frontend;
mod guests;
mod heartbeat;
mod help;
mod holders;
mod launch;
mod ledger;
mod leftovers;
mod lobby;
mod log;
pub mod partitions;
pub mod registry;
pub mod report;
mod server;
mod servers;
pub mod settings;
mod survey;
mod ui;

pub use daemon::{DaemonError, Options, run};
pub use directory::PipeDirectory;
pub use frontend::{Frontend, FrontendError};
pub use help::HELP;
pub use log::NAMES as LOG_NAMES;
