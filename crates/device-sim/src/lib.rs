//! The software GPU: runs PTX on the CPU behind the device contract of `cumux-device`.
//!
//! `lower` makes executable form out of the PTX tree, `exec` runs blocks of it warp by warp; the rest is the card around them.
#![deny(unsafe_code)]

pub mod exec;
pub mod lower;
