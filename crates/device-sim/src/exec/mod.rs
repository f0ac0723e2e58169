//! Warp-wide execution of lowered PTX: blocks, warps, lanes.

mod access;
mod atomic;
mod barrier;
mod block;
mod coalesced;
mod fault;
pub mod interface;
mod intrinsic;
mod mbarrier;
mod printf;
mod raw;
mod run;
mod special;
mod sync;
mod warp;

pub use block::Block;
