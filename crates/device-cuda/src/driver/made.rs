//! What a context has made so far of what it makes when a kernel first needs it.

use parking_lot::Mutex;
use std::time::Instant;

/// What the context has made so far. Lock 8 of the crate's order, held alone. The driver is called
/// under it.
pub(super) type MadeOnce = Mutex<Made>;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Made {
    /// Bytes of local memory of each thread. The driver may have made more by itself.
    pub local: u64,
    /// Bytes of the stack of a thread, where nobody knows how many its kernel uses: what programs
    /// find in a context of their own, or the most that one has asked for.
    pub stack: u64,
    /// The driver's own figure for that, as far as it was set here. It is lower as long as no
    /// kernel needs as much, because the driver takes memory of the card for it. The driver may
    /// raise it by itself.
    pub limit: u64,
    /// True if a kernel has printed.
    pub printing: bool,
    /// Bytes of local memory that kernels need which were loaded before their clients came.
    pub awaited: u64,
    /// Until when memory of the card is expected that another process gives back.
    pub more_until: Option<Instant>,
}
