//! The memory of one client, shared by the workers.
#![expect(clippy::disallowed_types, reason = "threads look whether permissions have changed, without a lock")]

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use super::heap::Heap;
use super::launches::LaunchMemory;
use super::permissions::Permissions;

/// What one client may touch, and its `malloc` heap.
#[derive(Debug, Default)]
pub(crate) struct ClientMemory {
    pub(crate) table: RwLock<Permissions>,
    /// Raised whenever a range was removed or replaced, so that workers drop what they have cached.
    version: AtomicU64,
    /// The heap from which `malloc` in kernels allocates. Its mapping lives as long as this value.
    pub(crate) heap: Mutex<Heap>,
    /// What kernels that launch grids have of the device runtime.
    pub(crate) launches: Mutex<LaunchMemory>,
}

impl ClientMemory {
    /// The version of the table. A cached range is valid while this does not change.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Notes that a range was removed or replaced. Called after the change.
    pub(crate) fn note_change(&self) {
        self.version.fetch_add(1, Ordering::Release);
    }
}
