//! `libcuda.so.1`: the CUDA driver interface for programs that are served by cumux.
//!
//! # How an exported name is answered
//! `crates/abi/surface/surface.txt` lists every name that driver 580 exports, and how each is
//! answered. The build script makes from it, per name, a trampoline ([`exports`]) that jumps
//! through one word of one table ([`decide::table`]). `cuInit` takes the decision ([`decide`]) and
//! fills the table: with our functions, with the real driver's, or with an error.
//!
//! # Two floors
//! Below is the [`connection`]: the ring, the status page, the window, and whether anybody is still
//! there. It knows nothing of CUDA. Above are the objects that the program has made, a file for
//! each kind, with a table of its own (`context::CONTEXTS`, `stream::STREAMS`, …): there is one
//! process, so there is one of each. A folder's `mod.rs` is the object; its `calls.rs` are the
//! driver's calls, which may use every other object. What a lower file must tell a higher one is a
//! hook, handed down in [`objects`]. Files use each other downward only (`cargo xtask rooms`).
//!
//! # How to implement a name
//! 1. Write `pub unsafe fn cuSomething(…) -> CUresult` (or `-> Result<(), CUresult>`) in the file
//!    of its object, with the argument types of `cumux_abi::functions::cuSomething`. No `extern`,
//!    no `no_mangle`: the generated wrapper is the C border and stops panics ([`border`]).
//! 2. Change `refused` to `served` or `local` on its line in `surface.txt`.
//!
//! A listed function that is missing or has other types does not compile. Forms for per-thread
//! default streams and older names of equal signature come for free ([`default_stream`]).
//!
//! # Rules of this house
//! It lives in a stranger's process: nothing runs when it is loaded, no thread is started before
//! the program needs one, no logger, no panic leaves it, and a child that is forked after `cuInit`
//! gets `CUDA_ERROR_NOT_INITIALIZED`.
#![warn(missing_docs, missing_debug_implementations)]
#![allow(clippy::missing_safety_doc)] // The contract of an exported function is the CUDA manual's.
#![allow(non_snake_case)] // Implementations bear the driver's names.

mod array;
mod bands;
pub mod border;
mod callback;
mod capture;
mod changes;
mod compiled;
mod conditional;
mod connection;
mod context;
mod copy;
mod decide;
pub mod default_stream;
mod device;
mod driver;
pub mod entry;
mod event;
mod exports;
mod ffi;
mod function;
mod graph;
mod green;
mod handle;
mod host;
mod image;
mod init;
mod ipc;
mod jit;
mod launch;
mod library;
mod limits;
mod link;
mod loan;
mod log;
mod logs;
mod managed;
mod memory;
mod messages;
mod module;
mod nvml;
mod objects;
mod occupancy;
mod peer;
mod pointer;
mod pool;
pub mod private;
pub mod procaddress;
mod process;
mod profiler;
mod set;
mod shortage;
mod stdio;
#[cfg(test)]
#[path = "../tests/stories/mod.rs"]
mod stories;
mod stream;
mod stream_value;
mod sync;
mod tensor;
mod texture;
mod thread;
mod transfer;
mod vmm;
