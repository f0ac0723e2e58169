//! Nodes, clients and a watchdog, for tests that read as stories.
//!
//! ```no_run
//! use cumux_testkit::Node;
//!
//! let node = Node::start();
//! let victim = node.client("long_kernel").start();
//! let innocent = node.client("vector_add").start();
//! victim.wait_for_line("kernel running");
//! victim.kill();
//! innocent.expect_ok();
//! ```
//!
//! A node is a private daemon with everything it starts, in a folder of its own; all of it is gone
//! when the node is dropped. Nothing here waits by sleeping for a guessed time: every wait is for a
//! condition, and [`Node`]'s watchdog ends a test that waits too long, with the logs.
//!
//! Everything here panics on failure, as tests do.
#![forbid(unsafe_code)]
#![warn(missing_docs, missing_debug_implementations)]

pub mod apiserver;
pub mod chaos;
mod client;
pub mod crashes;
pub mod dra;
mod files;
pub mod kubelet;
mod node;
mod processes;
mod watchdog;

pub use client::{Client, ClientBuilder, Outcome};
pub use files::{cuda_compilers, cumux, example, library, test_program};
pub use node::{Node, NodeBuilder, card, devices};
pub use processes::processes_of;
pub use watchdog::Watchdog;
