//! Why a card is left alone, and for how long ([`crate::calm`]).

use std::time::Instant;

/// A card that is left alone by all but the executor that serves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Calm {
    /// It ends then at the latest.
    pub(crate) until: Instant,
    pub(crate) cause: CalmCause,
}

/// Why a card is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CalmCause {
    /// Work stands still for longer than usual.
    Standstill,
    /// The driver looks at a fault.
    Fault,
}

impl Calm {
    /// Whether a fault is being handled.
    pub(crate) fn is_fault(self) -> bool {
        self.cause == CalmCause::Fault
    }
}
