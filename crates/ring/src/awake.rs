//! Whether a thread polls for work at the moment, so that another thread that has work for it need
//! not wake it or do the work itself.
//!
//! The rule that loses no work: the poller announces that it stops, then polls once more, then
//! sleeps. A thread with work queues it first and asks [`Awake::will_see`] afterwards.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

/// The announcement of one polling thread.
#[derive(Debug, Default)]
pub struct Awake(AtomicBool);

impl Awake {
    /// Announces that the poller starts or stops; after stopping it polls once more.
    pub fn set(&self, awake: bool) {
        self.0.store(awake, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// What was announced, as far as it can be seen by now: for threads that look again and again.
    #[must_use]
    pub fn last_seen(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Whether the poller will see what was queued before this call.
    #[must_use]
    pub fn will_see(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::SeqCst)
    }
}

/// A number that threads read while another one sets it.
#[derive(Debug, Default)]
pub struct Number(AtomicU64);

impl Number {
    /// Sets the number.
    pub fn set(&self, number: u64) {
        self.0.store(number, Ordering::Release);
    }

    /// The present value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// A number that only grows: a thread that remembers an earlier value can tell whether something
/// has changed since. Alone in its cache lines: some threads raise theirs with every look. Of two
/// threads that each raise a number and then read the other's, one at least sees the other's new
/// value.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Count(AtomicU64);

impl Count {
    /// Raises the number by 1.
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// The present value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}
