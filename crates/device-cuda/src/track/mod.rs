//! Who is done: what the card has in flight, and how its end is learnt.
//!
//! Work goes to driver streams of a pool. Behind some of it goes a **fence**: a number that grows,
//! and that the stream, or the fence kernel at the end of a chain, makes visible in a word of
//! pinned memory. All work before a fence is over when the fence is reached.
//!
//! ```text
//! tracker ─▶ pool ─▶ slot ─▶ fence
//!    │                 └───▶ flight ─▶ estimate
//!    └─────▶ estimate, fence
//! ```

mod clock;
mod estimate;
mod fence;
mod flight;
mod pool;
mod printed;
mod slot;
mod tracker;

pub(crate) use clock::Clock;
pub(crate) use estimate::{COPY_BYTES_PER_NS, LONG_KERNEL_NS, TRANSFER_NS};
pub(crate) use fence::FenceWord;
pub(crate) use flight::{Flight, FlightWork, Footprint, Reporting};
pub(crate) use pool::SlotIndex;
pub(crate) use printed::HeldReports;
pub(crate) use slot::StreamKind;
pub(crate) use tracker::Tracker;
