//! Whether a thread looks for work by itself at the moment, so that whoever has some for it need
//! not do it in its place.
//!
//! The rule that loses nothing: the looker says that it stops, then looks once more, then sleeps.
//! Whoever brings work puts it down first and asks afterwards.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

#[derive(Debug, Default)]
pub struct Awake(AtomicBool);

impl Awake {
    /// The looker begins or stops looking; after stopping it looks once more.
    pub fn set(&self, awake: bool) {
        self.0.store(awake, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Whether what was put down before this call will be seen by the looker.
    #[must_use]
    pub fn will_see(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::SeqCst)
    }
}

/// A number that only grows: who remembers it knows whether something has changed since.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }

    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}
