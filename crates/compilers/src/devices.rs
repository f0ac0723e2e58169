//! Device files: who asks whether there is a card's file is told that there is one.
//!
//! JAX looks for `/dev/nvidiactl` and `/dev/nvidia0` before it opens the driver, and without them
//! uses the processor. A software GPU has no such file. Here `stat` of these two names answers with
//! what it says of `/dev/null`, which is a character device, too. Opening them fails as ever.
//!
//! The four functions are those of glibc before and since 2.33. Each hands on to the next one of
//! its name: another preloaded library may have it, too. On x86-64 the kernel's structure is that
//! of the C library under each name.
#![expect(clippy::disallowed_types, reason = "addresses of functions, found once")]

use crate::entry;
use core::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The names, and what answers for them.
const CARDS: [&CStr; 2] = [c"/dev/nvidiactl", c"/dev/nvidia0"];
const STANDS_IN: &CStr = c"/dev/null";

/// It was looked for, and there is none.
const NOWHERE: *mut c_void = core::ptr::without_provenance_mut(1);

/// A function that is defined here, and the next one of its name once it was called.
struct Replaced {
    name: &'static str,
    next: AtomicPtr<c_void>,
}

impl Replaced {
    const fn new(name: &'static str) -> Replaced {
        Replaced { name, next: AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// `None` where there is none: a C library has two of the four. Two threads that look at the
    /// same time find the same.
    fn next(&self) -> Option<*mut c_void> {
        let mut known = self.next.load(Ordering::Acquire);
        if known.is_null() {
            let found = crate::guard(NOWHERE, || entry::look_up(libc::RTLD_NEXT, self.name));
            known = if found.is_null() { NOWHERE } else { found };
            self.next.store(known, Ordering::Release);
        }
        (known != NOWHERE).then_some(known)
    }
}

static STAT: Replaced = Replaced::new("stat");
static STAT64: Replaced = Replaced::new("stat64");
static XSTAT: Replaced = Replaced::new("__xstat");
static XSTAT64: Replaced = Replaced::new("__xstat64");

/// Asks the next function of this name, or the kernel.
///
/// # Safety
/// As `stat`: a path, and room for its answer. The function has a version before these if `version`
/// is one.
unsafe fn ask(replaced: &Replaced, version: Option<c_int>, path: *const c_char, out: *mut libc::stat) -> c_int {
    type Stat = unsafe extern "C" fn(*const c_char, *mut libc::stat) -> c_int;
    type Xstat = unsafe extern "C" fn(c_int, *const c_char, *mut libc::stat) -> c_int;
    match (replaced.next(), version) {
        // SAFETY: the kernel checks both addresses.
        (None, _) => unsafe { libc::syscall(libc::SYS_newfstatat, libc::AT_FDCWD, path, out, 0) as c_int },
        (Some(next), None) => {
            // SAFETY: `stat` and `stat64` have this signature.
            let stat = unsafe { core::mem::transmute::<*mut c_void, Stat>(next) };
            // SAFETY: as the caller says.
            unsafe { stat(path, out) }
        }
        (Some(next), Some(version)) => {
            // SAFETY: `__xstat` and `__xstat64` have this signature.
            let xstat = unsafe { core::mem::transmute::<*mut c_void, Xstat>(next) };
            // SAFETY: as the caller says.
            unsafe { xstat(version, path, out) }
        }
    }
}

/// `stat`, where the files of cards are there.
///
/// # Safety
/// As [`ask`].
unsafe fn look(replaced: &Replaced, version: Option<c_int>, path: *const c_char, out: *mut libc::stat) -> c_int {
    // SAFETY: as the caller says.
    let found = unsafe { ask(replaced, version, path, out) };
    // SAFETY: the C library's place for this thread.
    if found == 0 || path.is_null() || unsafe { *libc::__errno_location() } != libc::ENOENT {
        return found;
    }
    // SAFETY: it has just been read as a path.
    let wanted = unsafe { CStr::from_ptr(path) };
    if !CARDS.contains(&wanted) || crate::guard(true, crate::is_off) {
        return found;
    }
    // SAFETY: a path of ours, and room for the answer.
    unsafe { ask(replaced, version, STANDS_IN.as_ptr(), out) }
}

/// `stat` for every object of the process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stat(path: *const c_char, out: *mut libc::stat) -> c_int {
    // SAFETY: `stat` is called so.
    unsafe { look(&STAT, None, path, out) }
}

/// As [`stat`], under its name for large files.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stat64(path: *const c_char, out: *mut libc::stat) -> c_int {
    // SAFETY: `stat64` is called so.
    unsafe { look(&STAT64, None, path, out) }
}

/// `stat` of programs that were built with a C library before 2.33.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __xstat(version: c_int, path: *const c_char, out: *mut libc::stat) -> c_int {
    // SAFETY: `__xstat` is called so.
    unsafe { look(&XSTAT, Some(version), path, out) }
}

/// `stat64` of programs that were built with a C library before 2.33.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __xstat64(version: c_int, path: *const c_char, out: *mut libc::stat) -> c_int {
    // SAFETY: `__xstat64` is called so.
    unsafe { look(&XSTAT64, Some(version), path, out) }
}
