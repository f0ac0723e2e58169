//! Arithmetic of a whole warp: its registers, and what each instruction computes with them.
//!
//! Nothing here knows of PTX, memory or control flow.

pub(crate) mod alu;
pub(crate) mod lanes;
pub(crate) mod ops;
pub(crate) mod processor;
