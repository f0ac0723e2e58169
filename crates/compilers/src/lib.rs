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
//! - Linked with `libnvrtc` or `libnvJitLink`: this library defines the names, too, and is
//!   first. By its return address a call tells which object makes it, and so which version it
//!   means.
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

use core::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A function of ours, by its name.
#[derive(Clone, Copy)]
enum Function<'a> {
    Nvrtc(nvrtc::Function),
    /// With the end of the names of its version.
    JitLink(jitlink::Function, &'a str),
}

impl<'a> Function<'a> {
    fn named(name: &'a str) -> Option<Self> {
        let of_jitlink = || jitlink::Function::named(name).map(|(function, suffix)| Function::JitLink(function, suffix));
        nvrtc::Function::named(name).map(Function::Nvrtc).or_else(of_jitlink)
    }

    /// How the file names of its library begin.
    fn soname(self) -> &'static str {
        match self {
            Function::Nvrtc(_) => nvrtc::SONAME,
            Function::JitLink(..) => jitlink::SONAME,
        }
    }

    /// Ours in place of the real one.
    fn ours(self, real: *mut c_void) -> *mut c_void {
        match self {
            Function::Nvrtc(function) => nvrtc::ours(real, function),
            Function::JitLink(function, suffix) => jitlink::ours(real, function, suffix),
        }
    }

    /// What stands for it where there is no real one.
    fn nothing(self) -> *mut c_void {
        extern "C" fn no_compiler() -> c_int {
            nvrtc::INTERNAL
        }
        extern "C" fn no_linker() -> c_int {
            jitlink::INTERNAL
        }
        match self {
            Function::Nvrtc(_) => no_compiler as *const () as *mut c_void,
            Function::JitLink(..) => no_linker as *const () as *mut c_void,
        }
    }
}

/// What `dlsym` does with a name of ours: the address of our function, or one of the two below.
unsafe extern "C" fn choose(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    guard(entry::PASS, || {
        // What is next depends on the caller.
        if handle == libc::RTLD_NEXT || is_off() {
            return entry::PASS;
        }
        // SAFETY: `dlsym` is called with a name.
        let Ok(name) = unsafe { CStr::from_ptr(name) }.to_str() else { return entry::PASS };
        let Some(function) = Function::named(name) else { return entry::PASS };
        match real::look_up_behind(handle, name, function.soname()) {
            real::Found::Nowhere => entry::PASS,
            // Only we define it: a program that asks whether there is a compiler is told the truth.
            real::Found::HereAlone => entry::NOT_FOUND,
            real::Found::There(real) => function.ours(real),
        }
    })
}

/// Where a call goes by which `caller` has reached a name that it is linked with.
fn resolve(name: &str, caller: *const c_void) -> *mut c_void {
    let Some(function) = Function::named(name) else { return entry::PASS };
    guard(function.nothing(), || match real::linked(caller, name, function.soname()) {
        Some(real) if is_off() => real,
        Some(real) => function.ours(real),
        None => function.nothing(),
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
