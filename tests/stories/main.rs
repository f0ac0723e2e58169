//! Stories: unmodified CUDA programs on a private node of the software GPU, and what happens to them when something dies.
//!
//! Each story starts its own daemon in its own folder. They need what `cargo xtask test` builds first.
#![forbid(unsafe_code)]

mod commands;
mod crowd;
mod devices;
mod faults;
mod images;
mod liar;
mod limits;
mod loss;
mod priority;
mod refusals;
mod running;
mod shares;
