//! The software GPU: runs PTX on the CPU behind the device contract of `cumux-device`.
//!
//! A house of rooms, one above the other; a room uses only rooms below it:
//!
//! | floor | room | what it holds |
//! |---|---|---|
//! | 7 | `open` | opens cards by name, with settings from the environment |
//! | 6 | `gpu` | the device contract, method by method |
//! | 5 | `schedule` | streams, launches, SMs, workers |
//! | 4 | `modules` | loads modules |
//! | 3 | `faults`, `memory` | faults as a client gets them; extents, windows, permissions, copies |
//! | 2 | [`lower`], [`exec`] | PTX to executable form; runs blocks, warp by warp |
//! | 1 | [`program`], `progress` | the executable form; the log from which a successor continues |
//! | 0 | `mapping`, `models`, `ordinals`, `simd` | mapped files; cards; their numbers; arithmetic |
#![deny(unsafe_code)]
#![warn(missing_docs, missing_debug_implementations)]
// Sizes and addresses have 64 bits; the software GPU does not build for narrower machines.
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
pub use modules::KernelVerdict;
pub use open::{Memory, Settings, Simulator, open, open_with};
pub use schedule::breakage::FaultTiming;

/// The names of all cards, as [`facts`] takes them.
pub fn names() -> impl Iterator<Item = &'static str> {
    models::names()
}

/// The facts of card `id` as the first of its kind in a process, without opening it.
///
/// # Errors
/// [`cumux_device::DeviceError::Invalid`] for an unknown name; the text lists the cards.
pub fn facts(id: &str) -> Result<cumux_device::DeviceFacts, cumux_device::DeviceError> {
    models::facts(id, 0)
}

/// The numbers of these cards among those of their kinds, from 0, in a process that opens them: the
/// one that the name states (`sim:h200@1`), or the lowest that no other card of the list has.
#[must_use]
pub fn numbers(ids: &[&str]) -> Vec<u32> {
    models::numbers(ids)
}

/// The names of these cards by which each is found without the others: with its number where
/// several are of one kind.
#[must_use]
pub fn single_names(ids: &[&str]) -> Vec<String> {
    models::single_names(ids)
}

/// The facts of card `id` as number `ordinal` of its kind in a process, from 0. A number in its
/// name comes before that.
///
/// # Errors
/// As [`facts`].
pub fn facts_of(id: &str, ordinal: u32) -> Result<cumux_device::DeviceFacts, cumux_device::DeviceError> {
    models::facts(id, ordinal)
}

/// Says of each kernel of an image (a fatbin, PTX text or cubin) whether the card `id` would run
/// it. The image is not loaded.
///
/// # Errors
/// As [`facts`], and [`cumux_device::DeviceError::Image`] if the image could not be loaded at all.
/// Its text is the text that a program would get.
pub fn judge_kernels(id: &str, image: &[u8]) -> Result<Vec<KernelVerdict>, cumux_device::DeviceError> {
    modules::judge_kernels(&models::Limits::of(&models::facts(id, 0)?), image)
}

/// The names of a card's memory-locality partitions; none for a card with one locality.
#[must_use]
pub fn localities(id: &str) -> Vec<String> {
    models::localities(id)
}

/// The name of a card without the compute mode that may follow it (`sim:h200:prohibited`). Cards of
/// one kind are counted together.
#[must_use]
pub fn kind(id: &str) -> &str {
    models::kind(id)
}
