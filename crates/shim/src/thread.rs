//! What a thread leaves when it ends.
//!
//! Destructors of thread-local data do not do for that: when a program ends, they run before its
//! functions of `atexit` and its destructors of C++, which may still use devices; and a thread's
//! own objects of C++ may be older than ours, and be destroyed behind them. So the data have no
//! destructor, and a key of the C library says when the thread is over: behind all of these, and
//! never where the program ends.

use core::ffi::c_void;
use core::ptr;
use std::panic::catch_unwind;
use std::sync::OnceLock;

/// What is done on each thread that has asked for it, when it ends.
#[derive(Debug)]
pub(crate) struct AtThreadEnd {
    key: OnceLock<Option<libc::pthread_key_t>>,
    end: unsafe extern "C" fn(*mut c_void),
}

impl AtThreadEnd {
    /// Nothing has asked yet.
    pub(crate) const fn new(end: unsafe extern "C" fn(*mut c_void)) -> Self {
        Self { key: OnceLock::new(), end }
    }

    /// This thread asks for it. Without a key, which are few, its data stay.
    pub(crate) fn ask(&self) {
        let make = || {
            let mut key = 0;
            // SAFETY: the place is valid for a write, and the library is never unloaded.
            let made = unsafe { libc::pthread_key_create(&raw mut key, Some(self.end)) };
            (made == 0).then_some(key)
        };
        if let Some(key) = *self.key.get_or_init(make) {
            // SAFETY: the key was made above, and its value is never read but for being there.
            unsafe { libc::pthread_setspecific(key, ptr::without_provenance(1)) };
        }
    }
}

/// Runs what is to be done at a thread's end. No panic leaves it.
pub(crate) fn finish(act: fn()) {
    let _ = catch_unwind(act);
}
