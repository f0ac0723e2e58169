//! What lives in a card's context: memory, pinned windows, partitions, modules, and the clients
//! that own them. Nothing here submits clients' work to the driver.
//!
//! ```text
//! client ─▶ module ─▶ (quiet gate)      facts
//!    │        ▲ ◀─ own_kernels ─▶ placement, symbols
//!    │                 ▲
//!    │              latency
//!    │      library ─▶ symbols
//!    │        └─────▶ placement ─▶ extents
//!    ├──▶ constants      divided ◀─ module
//!    ├──▶ recipes        conditions ◀─ library, module, symbols
//!    ├──▶ partitions ─▶ sm_notes ─▶ sm_layout
//!    ├──▶ textures ─▶ (quiet gate), extents
//!    └──▶ pinned_window            extents ─▶ side_stream
//!          ▲       ▲
//!     placement  expected_windows
//! ```

mod client;
mod conditions;
mod constants;
mod divided;
mod expected_windows;
mod extents;
mod facts;
mod latency;
mod library;
mod module;
mod own_kernels;
mod partitions;
mod pinned_window;
mod placement;
mod recipes;
mod side_stream;
mod sm_layout;
mod sm_notes;
mod symbols;
mod textures;

pub(crate) use client::{ClientStream, ContextClient, Urgency};
pub(crate) use constants::{ConstantCopy, Constants, Spans};
pub(crate) use expected_windows::ExpectedWindows;
pub(crate) use extents::{Extents, MemoryKind};
pub(crate) use facts::read_facts;
pub(crate) use latency::measure_latency;
pub(crate) use library::ModuleLibrary;
pub(crate) use module::{ClientModule, Kernel, KernelCode, LoadedModule, Sharing, VariablesHome};
pub(crate) use own_kernels::{OWN_THREADS, OwnKernels};
pub(crate) use partitions::{Partition, PartitionId, Partitions, find_sms};
pub(crate) use pinned_window::{PinnedWindow, WindowAlias};
pub(crate) use placement::Resumption;
pub(crate) use textures::{CardArray, Discards, ObjectKind, Unused};
