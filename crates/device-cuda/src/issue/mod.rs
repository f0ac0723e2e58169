//! Submitting clients' work to the driver.
//!
//! The path of a launch: [`Issuer::issue_stream`] takes work from a stream's [`StreamQueue`], once
//! it is not worth waiting for more.
//! `Planner` checks it and decides on the calls of the driver. Kernels that can be nodes of a
//! chain are collected into a batch, which `issue_batch` cuts into segments and submits:
//! `Chains::choose` finds a chain and `issue_chain` launches it, else `launch_kernel` launches one
//! kernel.
//! Work that is that of the chain which came next the last time is not planned: `issue_repeated`.
//! `issue_piece` submits all other work. What was submitted becomes a flight of the
//! [`crate::track::Tracker`], and a fence follows: in the chain, or by `write_due_fence`.
//!
//! ```text
//! issuer ─▶ chains ─▶ shelf ─▶ chain ─▶ plan ─▶ pieces
//!    │        │                            ├───▶ constants ─▶ pieces
//!    │        │                            └───▶ arrays ─▶ pieces
//!    │        ├──▶ pending, prepared ─▶ chain
//!    │        └──▶ lengths ─▶ segments; counts
//!    ├────▶ waiting ─▶ chains, head, lengths, streams
//!    ├────▶ head, lengths ─▶ segments
//!    ├────▶ repeat ─▶ chain, small_work
//!    ├────▶ small_work ─▶ plan, pieces
//!    └────▶ streams ─▶ queue ─▶ segments, names, small_work
//! ```

mod arrays;
mod chain;
mod chains;
mod constants;
mod counts;
mod head;
mod issuer;
mod lengths;
mod names;
mod pending;
mod pieces;
mod plan;
mod prepared;
mod queue;
mod repeat;
mod segments;
mod shelf;
mod small_work;
mod streams;
mod waiting;

pub(crate) use chain::{Chain, DraftedChain, PreparedChain, Purpose};
pub(crate) use chains::ChainOrder;
pub(crate) use issuer::{Awaited, Issuer, IssuerSettings, STANDS_STILL_NS, Served};
pub(crate) use pending::PendingChain;
pub(crate) use plan::PlannedKernel;
pub(crate) use prepared::{PreparedChains, plan_recipe};
pub(crate) use queue::StreamQueue;
pub(crate) use small_work::SmallWork;
pub(crate) use streams::{Lane, Streams};
