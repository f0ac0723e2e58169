//! Warp-wide execution of lowered PTX: blocks, warps, lanes.

mod block;
pub mod interface;

pub use block::Block;
