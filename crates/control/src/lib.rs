//! The control daemon: the MPS text commands, the registry of servers, the queue of users. It never
//! touches a GPU.
//!
//! The text side answers as NVIDIA's daemon of driver 580 does. Clients and servers connect to the
//! socket `cumux` of the pipe directory. A client says hello; the daemon finds or starts the server
//! of that user and hands the client's own socket over. From then on the daemon has no part in the
//! client's work. Running servers outlive a daemon and register with the next one.
//!
//! # Modules
//!
//! Each module uses only those below it.
//!
//! ```text
//! serve       the daemon from its start to its end
//! inherited   sockets that a supervisor of services has opened
//! lobby       the sockets to which everybody may connect
//! ui          the text side of the control socket
//! answer      the answer to each text command
//! group_commands  the commands on groups
//! upgrade     all processes of servers are replaced by those of another program
//! servers     the connections to servers
//! survey      the cards before any server has reported them
//! complaints  what is said of settings that cannot be used
//! daemon      the state that all threads share, and what the registry orders
//! launch      starting a server
//! group_doors the sockets of groups
//! registry    servers, users and waiting clients, as a pure state machine
//! ```
//!
//! The others know none of these.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods))]
#![warn(missing_docs, missing_debug_implementations)]

mod answer;
mod clean;
pub mod command;
mod complaints;
mod daemon;
pub mod directory;
mod doors;
mod duty;
mod event;
mod frontend;
mod group_commands;
mod group_doors;
pub mod groups;
mod guests;
mod heartbeat;
mod help;
mod holders;
mod inherited;
mod launch;
mod ledger;
mod leftovers;
mod lobby;
mod log;
mod options;
pub mod partitions;
pub mod registry;
pub mod report;
mod serve;
mod server;
mod servers;
pub mod settings;
mod survey;
mod ui;
mod upgrade;

pub use directory::PipeDirectory;
pub use frontend::{Frontend, FrontendError};
pub use help::HELP;
pub use inherited::{Inherited, InheritedError};
pub use log::NAMES as LOG_NAMES;
pub use options::{DaemonError, Options, Program};
pub use serve::{Alive, run};
