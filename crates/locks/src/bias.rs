//! The word of a lock that says how it is read. It lies in the C library's lock, in bytes that the
//! C library does not use.
//!
//! ```text
//! bit 63      biased: admitted threads read without the C library's lock
//! bit 62      it has been biased once
//! bits 32-61  writers that wait for the lock
//! bits 0-31   reads since the last writer, as far as they were counted
//! ```
#![expect(clippy::disallowed_types, reason = "a lock between threads of this process")]

use crate::sync::{AtomicU64, Ordering};

const BIASED: u64 = 1 << 63;
const ONCE: u64 = 1 << 62;
const WRITER: u64 = 1 << 32;
const WRITERS: u64 = ONCE - WRITER;
const READS: u64 = WRITER - 1;

/// So many reads by admitted threads without a writer between make a lock biased: a writer then
/// costs a look at the lines of all readers, some hundred nanoseconds.
#[cfg(not(loom))]
const WORTH_IT: u64 = 20_000;
#[cfg(loom)]
const WORTH_IT: u64 = 1;

/// Between a write that others look at and a look at what they write, both sequentially consistent.
/// Loom knows that of fences alone.
#[inline]
pub(crate) fn settle() {
    #[cfg(loom)]
    loom::sync::atomic::fence(Ordering::SeqCst);
}

/// How a lock is read. Zero in a new lock.
#[repr(transparent)]
#[derive(Debug, Default)]
pub struct Bias(AtomicU64);

impl Bias {
    /// True if admitted threads need not take the C library's lock to read. Ordered with what a
    /// reader has noted before ([`crate::readers`]).
    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::SeqCst) & BIASED != 0
    }

    /// Counts reads. The caller has the C library's lock for reading, so that no writer has it.
    pub fn count_reads(&self, reads: u64) {
        let now = self.0.load(Ordering::Relaxed);
        if now & BIASED != 0 {
            return;
        }
        if now & READS < WORTH_IT {
            self.0.fetch_add(reads, Ordering::Relaxed);
        } else if now & WRITERS == 0 {
            // Who comes between has made the word another one.
            let _ = self.0.compare_exchange(now, BIASED | ONCE, Ordering::SeqCst, Ordering::Relaxed);
        }
    }

    /// A writer waits from now on until [`Self::stop_waiting`]: the lock is not biased, and does
    /// not become so. Returns whether some may read it by a note.
    #[must_use]
    pub fn begin_waiting(&self) -> bool {
        let turn_off = |now: u64| Some((now & (WRITERS | ONCE)) + WRITER);
        let before = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, turn_off);
        settle();
        before.is_ok_and(|before| before & ONCE != 0)
    }

    /// The writer has the lock, or has given up.
    pub fn stop_waiting(&self) {
        self.0.fetch_sub(WRITER, Ordering::SeqCst);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn count(bias: &Bias, reads: u64) {
        bias.count_reads(reads);
    }

    #[test]
    fn many_reads_make_a_lock_biased_and_a_writer_ends_that() {
        let bias = Bias::default();
        count(&bias, WORTH_IT);
        assert!(!bias.is_on());
        count(&bias, 1);
        assert!(bias.is_on());
        assert!(bias.begin_waiting() && !bias.is_on());
        bias.stop_waiting();
        count(&bias, WORTH_IT);
        assert!(!bias.is_on(), "the reads before the writer do not count");
        count(&bias, 1);
        assert!(bias.is_on());
    }

    #[test]
    fn nothing_is_biased_while_a_writer_waits() {
        let bias = Bias::default();
        assert!(!bias.begin_waiting() && !bias.begin_waiting(), "it has never been biased");
        bias.stop_waiting();
        (0..3).for_each(|_| count(&bias, WORTH_IT));
        assert!(!bias.is_on());
        bias.stop_waiting();
        count(&bias, 1);
        assert!(bias.is_on());
    }
}
