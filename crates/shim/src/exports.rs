//! Everything `libcuda.so.1` exports, generated from the list of the surface, and the mark by which
//! cumux knows its own build.
//!
//! Nobody may define these symbols a second time: implementations are plain Rust functions without
//! `no_mangle`.
#![allow(non_snake_case, non_upper_case_globals)]

use crate::decide::table::trampoline::export;
use core::cell::UnsafeCell;

/// A variable of the debugger interface. Debuggers write it from outside; nothing here reads it.
#[repr(C, align(8))]
pub(crate) struct DebuggerWord<const SIZE: usize>(UnsafeCell<[u8; SIZE]>);

// SAFETY: no code of this process reads or writes the bytes; only its address is public.
unsafe impl<const SIZE: usize> Sync for DebuggerWord<SIZE> {}

macro_rules! variable {
    ($name:ident, $size:literal) => {
        #[unsafe(no_mangle)]
        pub(crate) static $name: DebuggerWord<$size> = DebuggerWord(UnsafeCell::new([0; $size]));
    };
}

/// A library that exports this symbol is a build of cumux and never a real driver.
#[unsafe(no_mangle)]
pub(crate) static cumux_shim_build_id: [u8; BUILD_ID.len()] = build_id();

const BUILD_ID: &str = concat!("cumux ", env!("CARGO_PKG_VERSION"), "\0");

const fn build_id() -> [u8; BUILD_ID.len()] {
    let mut bytes = [0; BUILD_ID.len()];
    let mut index = 0;
    while index < bytes.len() {
        bytes[index] = BUILD_ID.as_bytes()[index];
        index += 1;
    }
    bytes
}

include!(concat!(env!("OUT_DIR"), "/exports.rs"));
