//! Giving work to the driver.
//!
//! One turn of a client's stream, by names: [`Issuer::issue_stream`] takes work from its
//! [`StreamQueue`], `plan_work` makes calls of it, and what can be a node of a chain is collected
//! into a batch. `issue_batch` gives the batch to the driver as chains that `Chains::choose` finds,
//! else one by one; `issue_piece` gives the rest. Each call's work becomes a flight of the
//! [`crate::track::Tracker`].
//!
//! ```text
//! issuer ─▶ chains ─▶ chain ─▶ plan ─▶ pieces
//!    │                           └───▶ limits
//!    └────▶ streams ─▶ queue
//! ```

mod chain;
mod chains;
mod issuer;
mod limits;
mod pieces;
mod plan;
mod queue;
mod streams;

pub(crate) use chain::Chain;
pub(crate) use chains::{ChainOrder, PendingChain};
pub(crate) use issuer::{Issuer, TurnEnd};
pub(crate) use limits::LaunchLimits;
pub(crate) use queue::StreamQueue;
pub(crate) use streams::Streams;
