//! What can go wrong with a card: the driver's error codes, sentences with remedies, what the
//! driver announces of a fault, whose kernel it was, the loss of the context, and the errors that
//! clients get for it. Nothing here calls the driver.
//!
//! ```text
//! verdict ─▶ dump ─▶ code, warps
//!    └─────▶ blame ◀── loss
//! watch ─▶ message, dump             remedy ─▶ code
//! whose ─▶ verdict, dump             rounds ─▶ warps
//! ```

mod blame;
mod code;
pub(crate) mod dump;
mod loss;
mod message;
pub(crate) mod remedy;
mod rounds;
mod verdict;
mod warps;
mod watch;
mod whose;

pub(crate) use blame::{Blame, Suspects, accusation};
pub(crate) use code::{Call, CudaError};
pub(crate) use dump::{Dump, DumpError};
pub(crate) use loss::Loss;
pub(crate) use message::{FAULT_NOTICED, announces_fault, read_line};
pub(crate) use rounds::Rounds;
pub(crate) use verdict::{FlyingKernel, KnownKernel, Launchers, Rule, STILL_MS, Verdict, decide};
pub(crate) use warps::{FaultPlace, HiddenWarps, StillWarps, WarpRecords};
pub(crate) use watch::{DumpState, Notice, Watch};
pub(crate) use whose::{Membership, Whose, whose};
