//! Ranges of addresses: which are free, which have a value, and which a client may touch. Pure
//! bookkeeping, for everybody who divides an address space.
//!
//! - [`FreeRanges`]: free ranges, and the first that fits. [`FirstFit`]: an allocator on top of it.
//! - [`RangeMap`]: ranges that do not overlap, each with a value.
//! - [`Permissions`]: what a client may touch, and where it lies.
#![forbid(unsafe_code)]
#![warn(missing_docs, missing_debug_implementations)]

mod first_fit;
mod free;
mod map;
mod permissions;

pub use first_fit::FirstFit;
pub use free::FreeRanges;
pub use map::RangeMap;
pub use permissions::{Access, AllowError, AllowedRange, Permissions};
