//! One piece of work that the driver has.

use super::estimate::LONG_KERNEL_NS;
use cumux_device::{ClientId, StreamId};

/// How much of the card a kernel takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Footprint {
    /// Others find an SM beside it, or soon after it.
    Partial,
    /// It has a block for every SM, and takes long: what comes meanwhile may have to wait.
    WholeCard,
}

/// What kind of work it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlightWork {
    /// A kernel.
    Kernel {
        /// [`crate::context::Kernel::id`], for learning how long it takes.
        id: u64,
        /// True if it may print.
        prints: bool,
        /// How much of the card it takes.
        footprint: Footprint,
    },
    /// A copy, a set, a value write, or nothing.
    Transfer,
}

/// Whether the work's end has to be reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reporting {
    /// When it comes.
    Due,
    /// It was reported already: the client was stopped or closed.
    Done,
}

/// Work that the driver has.
#[derive(Debug, Clone)]
pub(crate) struct Flight {
    /// Whose it is.
    pub client: ClientId,
    /// The client's stream.
    pub stream: StreamId,
    /// As it was submitted.
    pub token: u64,
    /// The fence that ends it; set when the work is added to a slot.
    pub fence: u64,
    /// Expected nanoseconds.
    pub expected_ns: u64,
    /// What kind of work it is.
    pub work: FlightWork,
    /// Whether its end has to be reported.
    pub reporting: Reporting,
}

impl Flight {
    /// The kernel's number, if it is one.
    pub(crate) fn kernel(&self) -> Option<u64> {
        match self.work {
            FlightWork::Kernel { id, .. } => Some(id),
            FlightWork::Transfer => None,
        }
    }

    /// True if it may print.
    pub(crate) fn prints(&self) -> bool {
        matches!(self.work, FlightWork::Kernel { prints: true, .. })
    }

    /// True for a kernel that fills the card for long.
    pub(super) fn fills_card(&self) -> bool {
        matches!(self.work, FlightWork::Kernel { footprint: Footprint::WholeCard, .. })
    }

    /// True for a kernel that is expected to take long.
    pub(super) fn is_long(&self) -> bool {
        self.kernel().is_some() && self.expected_ns >= LONG_KERNEL_NS
    }
}
