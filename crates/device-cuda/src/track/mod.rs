//! Work in flight, and how its completion is noticed.
//!
//! Work is submitted to driver streams of a pool, and from time to time a **fence** after it.
//! Fences of a stream have growing numbers. When the stream reaches a fence, a word of pinned
//! memory shows it: the stream writes the number there, or the fence kernel at the end of a chain
//! writes 1 to the chain's word. All work that was submitted before the fence is complete then.
//!
//! ```text
//! tracker ─▶ pool ─▶ slot ─▶ fence
//!    │                 └───▶ flight ─▶ estimate
//!    └─────▶ estimate, fence, filling, lanes
//! ```
//!
//! Text that kernels print is another matter: `printed` holds reports back until it was fetched,
//! and `turns` keeps the text of clients apart. Engines say by `standing` that work stands still
//! and by `motion` when some has ended; what ends on a card that stands still is held in
//! `withheld`.

mod clock;
mod estimate;
mod fence;
mod filling;
mod flight;
mod lanes;
mod motion;
mod pool;
mod printed;
mod slot;
mod standing;
mod tracker;
mod turns;
mod withheld;

pub(crate) use clock::Clock;
pub(crate) use estimate::{COPY_BYTES_PER_NS, Estimates, LONG_KERNEL_NS, TRANSFER_NS};
pub(crate) use fence::FenceWord;
pub(crate) use filling::FillingKernels;
pub(crate) use flight::{Flight, FlightWork, Footprint, Reporting};
pub(crate) use lanes::Lanes;
pub(crate) use motion::{MOMENT_NS, Motion, SHORTEST_SILENCE_NS};
pub(crate) use pool::SlotIndex;
pub(crate) use printed::HeldReports;
pub(crate) use slot::StreamKind;
pub(crate) use standing::{StandingWork, UnusualStandstill};
pub(crate) use tracker::Tracker;
pub(crate) use turns::Printing;
pub(crate) use withheld::Withheld;
