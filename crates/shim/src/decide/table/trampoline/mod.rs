//! The few instructions per name that have to be machine code, one file per processor.
//!
//! A processor's file provides the macro `export!(index, name)` and the functions `first_call` and
//! `refused`. `first_call` must keep every register that can carry an argument, since the call goes
//! on with them.

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{export, first_call, refused};

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the shim's trampolines exist for x86-64 only; add a file beside trampoline/x86_64.rs");
