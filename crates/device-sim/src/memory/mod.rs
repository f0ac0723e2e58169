//! Memory of the card: files mapped at the addresses the executor chose, and who may touch which bytes of them.
//!
//! Invariants:
//! - Every allowed range lies inside a mapping ([`maps::Mappings`] checks it) and a mapping is removed only when nothing allowed overlaps it.
//! - A range is forgotten by workers before [`cumux_device::Device::revoke`] returns: a worker looks ranges up only inside a slice
//!   ([`worker::WorkerMemory`]), and revoking waits for the slices that began before.
//! - No mapped file can shrink: sizes and seals are checked before mapping, so touching mapped memory cannot raise SIGBUS.

pub(crate) mod client;
pub(crate) mod heap;
pub(crate) mod maps;
pub(crate) mod permissions;
pub(crate) mod transfer;
pub(crate) mod worker;
