//! Memory of the card: files mapped at the addresses the executor chose, and the bytes of them that
//! each client may touch.
//!
//! Invariants:
//! - Every allowed range lies inside a mapping ([`maps::Mappings`] checks it), and a mapping is
//!   removed only when no allowed range overlaps it.
//! - Workers have forgotten a range before [`cumux_device::Device::revoke`] returns: a worker looks
//!   ranges up only inside a slice ([`worker::WorkerMemory`]), and revoking waits for the slices
//!   that began before.
//! - No mapped file can shrink: sizes and seals are checked before mapping, so touching mapped
//!   memory cannot raise SIGBUS.

pub(crate) mod client;
pub(crate) mod expected;
pub(crate) mod heap;
pub(crate) mod launches;
pub(crate) mod machine;
pub(crate) mod maps;
pub(crate) mod permissions;
mod permitted;
pub(crate) mod transfer;
pub(crate) mod worker;
