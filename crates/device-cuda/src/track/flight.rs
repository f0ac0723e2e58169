//! One piece of work in flight: submitted to the driver, and not yet seen complete.

use super::estimate::LONG_KERNEL_NS;
use cumux_device::{ClientId, StreamId};

/// How much of the card a kernel occupies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Footprint {
    /// It leaves SMs to others, or is short.
    Partial,
    /// It has a block for every SM and is long: work that is submitted meanwhile may have to wait
    /// for an SM.
    WholeCard,
}

/// The kind of a piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlightWork {
    /// A kernel.
    Kernel {
        /// [`crate::context::Kernel::id`].
        id: u64,
        /// True if the kernel may call device printf.
        prints: bool,
        /// How much of the card the kernel occupies.
        footprint: Footprint,
        /// True if the kernel has ended before, so that its estimate is a measurement.
        measured: bool,
    },
    /// A set or a copy that a kernel of this crate's own does.
    OwnKernel,
    /// Any other work: a copy, a set, a value write, or nothing but a report.
    Transfer,
}

/// Whether the end of the work still has to be reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reporting {
    /// It has to be reported when the work completes.
    Due,
    /// It was reported already, because the client was stopped or closed.
    Done,
}

/// A piece of work in flight.
#[derive(Debug, Clone)]
pub(crate) struct Flight {
    /// The client that submitted the work.
    pub client: ClientId,
    /// The client's stream.
    pub stream: StreamId,
    /// The client's number for the work, which its report repeats.
    pub token: u64,
    /// The fence with which the work completes. The slot sets it when the work is added.
    pub fence: u64,
    /// How long the work is expected to take, in nanoseconds.
    pub expected_ns: u64,
    /// The kind of a piece of work.
    pub work: FlightWork,
    /// Whether the end of the work still has to be reported.
    pub reporting: Reporting,
}

impl Flight {
    /// [`crate::context::Kernel::id`], if the work is a kernel of the client.
    #[inline]
    pub(crate) fn kernel(&self) -> Option<u64> {
        match self.work {
            FlightWork::Kernel { id, .. } => Some(id),
            FlightWork::OwnKernel | FlightWork::Transfer => None,
        }
    }

    /// True if a kernel does the work, whosever it is: it needs a multiprocessor.
    pub(crate) fn needs_multiprocessor(&self) -> bool {
        matches!(self.work, FlightWork::Kernel { .. } | FlightWork::OwnKernel)
    }

    /// True if the work may call device printf.
    #[inline]
    pub(crate) fn prints(&self) -> bool {
        matches!(self.work, FlightWork::Kernel { prints: true, .. })
    }

    /// True if the work is a long kernel that occupies every SM.
    #[inline]
    pub(super) fn fills_card(&self) -> bool {
        matches!(self.work, FlightWork::Kernel { footprint: Footprint::WholeCard, .. })
    }

    /// True if the work is a kernel that is expected to be long, or of which nobody knows how long
    /// it is.
    pub(super) fn is_long(&self) -> bool {
        match self.work {
            FlightWork::Kernel { measured, .. } => !measured || self.expected_ns >= LONG_KERNEL_NS,
            FlightWork::OwnKernel | FlightWork::Transfer => false,
        }
    }
}
