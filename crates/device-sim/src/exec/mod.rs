//! Warp-wide execution of lowered PTX: blocks, warps, lanes.

mod block;
pub mod interface;
pub(crate) mod lanes;
pub(crate) mod level;
pub(crate) mod ops;

pub use block::Block;
