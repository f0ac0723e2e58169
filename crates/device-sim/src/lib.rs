//! The software GPU: runs PTX on the CPU behind the device contract of `cumux-device`.
//!
//! `lower` makes executable form out of the PTX tree, `exec` runs blocks of it warp by warp; the rest is the card around them:
//!
//! - `models`: which cards there are, and their facts;
//! - `memory`: extents, windows, permissions, copies;
//! - `schedule`: streams, SMs, workers;
//! - `marks`: what a successor needs to go on after a SIGKILL;
//! - `modules`, `launch`, `faults`, `card`: from images and launches to reports.
#![deny(unsafe_code)]
// Sizes and addresses are 64 bits wide here; the software GPU does not build for narrower machines.
#![allow(clippy::cast_possible_truncation)]

pub mod exec;
mod faults;
mod gpu;
pub mod lower;
mod mapping;
mod memory;
mod models;
mod modules;
mod open;
mod ordinals;
pub mod program;
mod progress;
mod schedule;
mod simd;

pub use gpu::SoftwareGpu;
pub use modules::Judged;
pub use open::{Settings, Simulator, open, open_with};

/// The names of all cards there are, as [`facts`] takes them.
pub fn names() -> impl Iterator<Item = &'static str> {
    models::names()
}

/// Facts of the card `id` as ordinal 0, without opening it.
///
/// # Errors
/// [`cumux_device::DeviceError::Invalid`] for an unknown name; the text lists the cards.
pub fn facts(id: &str) -> Result<cumux_device::DeviceFacts, cumux_device::DeviceError> {
    models::facts(id, 0)
}

/// [`facts`] of the card that is the `ordinal`-th of its name in a process.
///
/// # Errors
/// As [`facts`].
pub fn facts_of(id: &str, ordinal: u32) -> Result<cumux_device::DeviceFacts, cumux_device::DeviceError> {
    models::facts(id, ordinal)
}

/// What would become of the kernels of an image (a fatbin, PTX text or cubin) on the card `id`,
/// without loading it.
///
/// # Errors
/// [`cumux_device::DeviceError::Image`] when it could not be loaded at all, with the text that a program would be told, and as [`facts`].
pub fn judge(id: &str, image: &[u8]) -> Result<Vec<Judged>, cumux_device::DeviceError> {
    modules::judge(&models::Limits::of(&models::facts(id, 0)?), image)
}

/// Names of the memory-locality partitions of a card; none where the card has only one locality.
#[must_use]
pub fn localities(id: &str) -> Vec<String> {
    models::localities(id)
}

/// The name of a card without the compute mode that may stand behind it (`sim:h200:prohibited`): cards of one kind are counted by it.
#[must_use]
pub fn kind(id: &str) -> &str {
    models::kind(id)
}
