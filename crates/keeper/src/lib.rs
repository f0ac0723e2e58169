//! The keeper: a small process that holds descriptors (session files, device memory) by session and
//! key, so that server and executors can die and be made again without anything being lost.
//!
//! Invariants:
//! - It parses nothing of what it holds: keys and notes are words of those who ask, descriptors are
//!   never read, mapped or written.
//! - What it holds goes only by being dropped or replaced by name, or with the keeper itself.
//! - A connection that fails costs that connection only.
#![forbid(unsafe_code)]
#![warn(missing_docs, missing_debug_implementations)]

pub mod client;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod hope;
mod serve;
mod store;

pub use client::{ClientError, Item, Keeper};
pub use hope::Hope;
pub use serve::{KeeperError, run};
