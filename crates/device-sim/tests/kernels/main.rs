//! Kernels on the execution core, without a device around it.
//!
//! One program, because each that runs kernels so compiles the core for the card of these tests.

#[path = "../common/mod.rs"]
mod common;
mod group;
mod matrix;
mod ptx;
mod random;
mod tensors;
mod textures;
