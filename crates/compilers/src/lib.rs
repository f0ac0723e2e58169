//! `libcumux_compilers.so`: what compilers make while a program runs is PTX.
//!
//! Beside that it tells who asks that there is a card's device file ([`devices`]).
//!
//! NVRTC and nvJitLink make machine code for the architecture of the card. A software GPU runs PTX.
//! This library is preloaded (`LD_PRELOAD`) by `cumux run` where all devices are software GPUs, and
//! answers a few functions of the two in their place ([`nvrtc`], [`jitlink`]): the real ones
//! compile, and where a program asks for machine code it gets PTX, which `cuModuleLoadData` takes
//! as well.
//!
//! # How a program comes here
//! - Linked with `libnvrtc` or `libnvJitLink`: this library defines the names, too, and is first.
//! - Through `dlopen` and `dlsym`: `dlsym` is defined here. It looks at the first letters of the
//!   name, and hands everything else on by a jump, so that the real one sees its real caller
//!   (`RTLD_NEXT` depends on it).
//!
//! # Rules of this house
//! It lies in every process that `cumux run` starts, most of which never compile anything: nothing
//! runs when it is loaded, no thread is started, nothing is opened, no panic leaves it. Whatever is
//! not known to be understood goes to the real function as it is. `CUMUX_COMPILERS=0` turns it off.
#![warn(missing_docs, missing_debug_implementations)]
// The contract of these functions is that of NVRTC's and nvJitLink's manuals.
#![allow(clippy::missing_safety_doc, non_snake_case)]

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the entry of dlsym exists for x86-64 only");

mod devices;
mod entry;
mod jitlink;
mod nvrtc;
pub mod options;
mod real;

use core::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What `dlsym` does with a name of ours: the address of our function, or one of the two below.
unsafe extern "C" fn choose(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    guard(entry::PASS, || {
        // What is next depends on the caller.
        if handle == libc::RTLD_NEXT || is_off() {
            return entry::PASS;
        }
        // SAFETY: `dlsym` is called with a name.
        let Ok(name) = unsafe { CStr::from_ptr(name) }.to_str() else { return entry::PASS };
        let (nvrtc, jitlink) = (nvrtc::Function::named(name), jitlink::Function::named(name));
        let soname = match (nvrtc, jitlink) {
            (None, None) => return entry::PASS,
            (Some(_), _) => nvrtc::SONAME,
            (None, Some(_)) => jitlink::SONAME,
        };
        let found = match real::look_up_behind(handle, name, soname) {
            real::Found::Nowhere => return entry::PASS,
            // Only we define it: a program that asks whether there is a compiler is told the truth.
            real::Found::HereAlone => return entry::NOT_FOUND,
            real::Found::There(function) => function,
        };
        match (nvrtc, jitlink) {
            (Some(function), _) => nvrtc::ours(found, function),
            (None, Some((function, suffix))) => jitlink::ours(found, function, suffix),
            (None, None) => found,
        }
    })
}

/// Whether the user has turned this library off.
fn is_off() -> bool {
    std::env::var_os("CUMUX_COMPILERS").is_some_and(|value| value == "0" || value == "off")
}

/// Stops panics at the C border.
fn guard<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(otherwise)
}

/// The options of a C caller.
///
/// # Safety
/// `options` is null or an array of `count` strings.
unsafe fn options_of(count: usize, options: *const *const c_char) -> Option<Vec<Vec<u8>>> {
    if count != 0 && options.is_null() {
        return None;
    }
    (0..count)
        .map(|at| {
            // SAFETY: the caller says that there are as many.
            let option = unsafe { options.add(at).read_unaligned() };
            // SAFETY: and that each is a string.
            (!option.is_null()).then(|| unsafe { CStr::from_ptr(option) }.to_bytes().to_vec())
        })
        .collect()
}

/// Options as C has them.
struct COptions {
    // What the pointers point to.
    _texts: Vec<std::ffi::CString>,
    pointers: Vec<*const c_char>,
}

impl COptions {
    fn new(options: Vec<Vec<u8>>) -> Self {
        let texts: Vec<std::ffi::CString> = options.into_iter().filter_map(|option| std::ffi::CString::new(option).ok()).collect();
        let pointers = texts.iter().map(|text| text.as_ptr()).collect();
        Self { _texts: texts, pointers }
    }
}
