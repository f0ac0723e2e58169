//! Device files: who asks whether there is a card's file is told that there is one.
//!
//! JAX looks for `/dev/nvidiactl` and `/dev/nvidia0` before it opens the driver, and without them
//! uses the processor. A software GPU has no such file. Here `stat` of these two names answers with
//! what it says of `/dev/null`, which is a character device, too. Opening them fails as ever.
//!
//! The four functions are those of glibc before and since 2.33. On x86-64 the kernel's structure is
//! that of the C library under each name.

use core::ffi::{CStr, c_char, c_int};

/// The names, and what answers for them.
const CARDS: [&CStr; 2] = [c"/dev/nvidiactl", c"/dev/nvidia0"];
const STANDS_IN: &CStr = c"/dev/null";

/// Asks the kernel.
///
/// # Safety
/// As `stat`: a path, and room for its answer.
unsafe fn ask(path: *const c_char, out: *mut libc::stat) -> c_int {
    // SAFETY: the kernel checks both addresses.
    unsafe { libc::syscall(libc::SYS_newfstatat, libc::AT_FDCWD, path, out, 0) as c_int }
}

/// `stat`, where the files of cards are there.
///
/// # Safety
/// As `stat`: a path, and room for its answer.
unsafe fn look(path: *const c_char, out: *mut libc::stat) -> c_int {
    // SAFETY: as the caller says.
    let found = unsafe { ask(path, out) };
    // SAFETY: the C library's place for this thread.
    if found == 0 || path.is_null() || unsafe { *libc::__errno_location() } != libc::ENOENT {
        return found;
    }
    // SAFETY: the kernel has read it as a path.
    let wanted = unsafe { CStr::from_ptr(path) };
    if !CARDS.contains(&wanted) || crate::guard(true, crate::is_off) {
        return found;
    }
    // SAFETY: a path of ours, and room for the answer.
    unsafe { ask(STANDS_IN.as_ptr(), out) }
}

/// `stat` for every object of the process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stat(path: *const c_char, out: *mut libc::stat) -> c_int {
    // SAFETY: `stat` is called so.
    unsafe { look(path, out) }
}

/// As [`stat`], under its name for large files.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stat64(path: *const c_char, out: *mut libc::stat) -> c_int {
    // SAFETY: `stat64` is called so.
    unsafe { look(path, out) }
}

/// `stat` of programs that were built with a C library before 2.33.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __xstat(_version: c_int, path: *const c_char, out: *mut libc::stat) -> c_int {
    // SAFETY: `__xstat` is called so.
    unsafe { look(path, out) }
}

/// `stat64` of programs that were built with a C library before 2.33.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __xstat64(_version: c_int, path: *const c_char, out: *mut libc::stat) -> c_int {
    // SAFETY: `__xstat64` is called so.
    unsafe { look(path, out) }
}
