//! How often something has changed that threads remember of earlier launches.
//!
//! A thread that remembers what it has looked up remembers this number with it, read before it
//! looked. As long as the number is the same, looking again would find the same: whoever changes a
//! thing calls [`note`] when it is changed. Without it, a launch would take a dozen locks to learn
//! that nothing is different.
#![expect(clippy::disallowed_types, reason = "one word that every launch reads without a lock")]

use std::sync::atomic::{AtomicU64, Ordering};

static COUNT: AtomicU64 = AtomicU64::new(0);

/// The changes so far.
#[inline]
pub(crate) fn count() -> u64 {
    COUNT.load(Ordering::Acquire)
}

/// Something is changed: a stream, function, kernel or context is not valid any more, a stream
/// captures now, a function has other settings, a value of a context is gone, this process is a
/// forked child. Does nothing that is forbidden between fork and exec.
pub(crate) fn note() {
    COUNT.fetch_add(1, Ordering::Release);
}
