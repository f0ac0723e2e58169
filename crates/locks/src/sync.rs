//! Atomics, or loom's, where it checks the protocol.
#![allow(clippy::disallowed_types, reason = "a lock between threads of this process")]

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
