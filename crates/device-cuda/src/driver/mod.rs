//! The real driver: its functions, and one safe method for each use of them. This is the only
//! module of the crate with unsafe code. There is one file for each kind of object.
//!
//! ```text
//! library ─▶ device ─▶ context ─▶ memory, stream, module, partition, tensor, texture
//! (loaded     (facts    (Driver)   launch ─▶ graph
//!  once)      of one               words
//!             card)                first_uses: what a context makes once (made)
//!                                  capture, messages, thread: this process, not the card
//!               └──▶ dumps     requests ─▶ handling ─▶ debugger: how it handles a fault
//!                                     └──▶ queue_numbers: where its own queues are
//! ```
//!
//! What the `SAFETY` notes lean on:
//!
//! - **Functions.** The library is never unloaded, so the addresses in its table stay valid until
//!   the process ends.
//! - **Handles** (`handle.rs`) come from the driver alone. The owner of an object destroys it after
//!   its last use, so the handles that a method gets are live.
//! - **Memory of this process.** A call accesses locals and slices, which live until it returns,
//!   and it has finished with them when it returns. Only [`PinnedWords`] are written later; they
//!   live until that type is dropped.
//! - **Addresses of the card** are [`CardAddress`]es. That type's documentation says why a call
//!   with one cannot violate Rust's rules for memory.

mod capture;
mod context;
mod debugger;
mod device;
mod dumps;
mod first_uses;
mod graph;
mod green;
mod handle;
mod handling;
mod launch;
mod library;
mod locate;
mod made;
mod memory;
mod messages;
mod module;
mod nested;
mod partition;
mod queue_numbers;
mod requests;
mod stream;
mod submission;
mod table;
mod tensor;
mod texture;
mod thread;
mod words;

pub(crate) use capture::{CapturedOutput, take_output};
pub(crate) use context::{Driver, Dumps};
pub(crate) use device::DeviceHandle;
pub(crate) use dumps::{MappedDump, share_dump};
pub(crate) use graph::{ChainDraft, ChainGraph, GraphKernel};
pub(crate) use handle::{Array, Function, GreenContext, MipmappedArray, Module, Stream};
pub(crate) use handling::{faults_again, hides_warps, note_fault_places, stop_watching_requests, watch_requests};
pub(crate) use launch::LaunchShape;
pub(crate) use messages::{is_fault_announced, listen_to_driver};
pub(crate) use module::CompileError;
pub(crate) use partition::{Coscheduling, SmResource};
pub(crate) use queue_numbers::{first_queue, set_first_queue};
pub(crate) use stream::{MemorySet, RectangleCopy};
pub(crate) use texture::{ArrayCopy, ArrayCopyEnd, Shown};
pub(crate) use thread::allow_short_sleeps;
pub(crate) use words::{PinnedWords, WordAddresses};

/// An address that the card resolves: in device memory, in a pinned window, in a module's variable,
/// or in [`PinnedWords`].
///
/// This process never dereferences one, so it is a number. The caller of a method has checked that
/// all bytes it names belong to such memory; for clients' work, this is what
/// [`cumux_ranges::Permissions`] are for. Rust code holds no references into such memory, so the
/// card may access it at any time.
pub(crate) type CardAddress = u64;
