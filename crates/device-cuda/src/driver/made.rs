//! What a context has made so far of what it makes when a kernel first needs it.

use parking_lot::Mutex;

/// What the context has made so far. Lock 8 of the crate's order, held alone. The driver is called
/// under it.
pub(super) type MadeOnce = Mutex<Made>;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Made {
    /// Bytes of local memory of each thread. The driver may have made more by itself.
    pub local: u64,
    /// Bytes of the stack of a thread, where nobody knows how many its kernel uses. The driver may
    /// raise its own figure by itself.
    pub stack: u64,
    /// True if a kernel has printed.
    pub printing: bool,
}
