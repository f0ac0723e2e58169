//! The real driver: its functions, and one safe method for each use of them. The only room of this
//! crate with unsafe code; one file for each kind of object.
//!
//! ```text
//! library ─▶ device ─▶ context ─▶ memory, stream, module, partition, tensor
//! (loaded     (facts    (Driver)   launch ─▶ graph
//!  once)      of one               words
//!             card)                capture, thread: this process, not the card
//! ```
//!
//! What the `SAFETY` notes lean on:
//!
//! - **Functions.** The library is never unloaded, so the addresses in its table stay valid until
//!   the process ends.
//! - **Handles** (`handle.rs`) come from the driver alone. Whoever makes one destroys it, after
//!   every use by others: a handle that a method is given is live.
//! - **Memory of this process.** A call reads or writes locals and slices that live until it
//!   returns, and returns only when it is done with them. [`PinnedWords`] alone are written later;
//!   they live until that type is dropped.
//! - **Addresses for the card** are [`CardAddress`]es; that type says why a call with one cannot
//!   touch what Rust refers to.

mod capture;
mod context;
mod device;
mod graph;
mod handle;
mod launch;
mod library;
mod locate;
mod memory;
mod module;
mod partition;
mod stream;
mod table;
mod tensor;
mod thread;
mod words;

pub(crate) use capture::capture_output;
pub(crate) use context::Driver;
pub(crate) use device::DeviceHandle;
pub(crate) use graph::{ChainGraph, GraphKernel};
pub(crate) use handle::{Function, GreenContext, Module, Stream};
pub(crate) use launch::LaunchShape;
pub(crate) use module::CompileError;
pub(crate) use partition::{Coscheduling, SmResource};
pub(crate) use stream::{MemorySet, RectangleCopy};
pub(crate) use thread::allow_short_sleeps;
pub(crate) use words::PinnedWords;

/// An address that the card resolves: in device memory, in a pinned window, in a module's variable,
/// or in [`PinnedWords`].
///
/// This process never dereferences one, so it is a number. Whoever passes one to a method has
/// checked that all the bytes meant belong to such memory (the client's ranges, for clients' work).
/// Rust code holds no reference into such memory, so what the card does there breaks no rule of
/// Rust.
pub(crate) type CardAddress = u64;
