//! Arithmetic of a whole warp: the registers of 32 lanes, and what each instruction computes with them.
//!
//! Nothing here knows of PTX, memory or control flow.

pub(crate) mod alu;
pub(crate) mod lanes;
pub(crate) mod ops;
pub(crate) mod processor;
