//! Shared memory between a client and its executor: the ring, the page, the window and the journal;
//! and the accounts that the executors of a group share.
//!
//! All memory that two processes read and write at the same time is accessed here and nowhere else.
//! Invariants:
//!
//! - **One writer a file** (window and [`group`] excepted): the client writes the ring file, the
//!   executor writes page and journal. A word that another process writes is read once into a
//!   private copy, then checked; it is never read twice for one decision.
//! - **Publication**: bytes are written before the position that makes them visible, with release
//!   and acquire on that position.
//! - **Sleeping never misses a wake**: the sleeper announces itself, then checks again; the waker
//!   publishes, then checks for sleepers (both sequentially consistent).
//! - Files are memfds sealed against growing and shrinking. A process that maps a stranger's file
//!   checks size and seals first, so no access can raise SIGBUS.
//!
//! The protocol is written once, generic over [`memory::Memory`], so that the model checker runs
//! the code that ships (`RUSTFLAGS="--cfg loom" cargo test -p cumux-ring`).
#![expect(clippy::disallowed_types, reason = "all atomics between processes are here")]
#![warn(missing_docs, missing_debug_implementations)]

pub mod awake;
pub mod client;
mod doorbell;
pub mod file;
pub mod group;
pub mod journal;
pub mod memory;
pub mod page;
pub mod polling;
pub mod queue;
pub mod service;
pub mod window;

pub use file::{FileError, create};
