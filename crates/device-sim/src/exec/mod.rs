//! Runs lowered programs: blocks, their warps, and the fragments into which a warp diverges.
//!
//! [`interface`] is what the device around it sees. [`Block`] is the whole state of a block; `run`
//! is the loop over a warp's instructions; the other files execute one kind of instruction each.

mod access;
mod atomic;
mod barrier;
mod block;
mod coalesced;
mod copy;
mod elements;
mod fault;
mod fragment;
mod group;
pub mod interface;
mod intrinsic;
mod matrix;
mod mbarrier;
mod printf;
mod product;
mod raw;
pub mod request;
mod run;
mod runtime;
mod shape;
mod single;
mod special;
mod sync;
mod tensor;
mod texels;
mod texture;
mod warp;

pub use block::Block;
