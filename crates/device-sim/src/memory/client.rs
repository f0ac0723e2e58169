//! The memory of one client, shared by the workers.

use std::sync::atomic::AtomicU64;

use parking_lot::{Mutex, RwLock};

use super::heap::Heap;
use super::permissions::Permissions;

/// The permissions of one client, shared by the workers. `version` changes whenever something was taken away or replaced.
#[derive(Debug, Default)]
pub(crate) struct ClientMemory {
    pub(crate) table: RwLock<Permissions>,
    pub(crate) version: AtomicU64,
    /// What `malloc` in kernels hands out. Its mapping lives as long as this value.
    pub(crate) heap: Mutex<Heap>,
}
