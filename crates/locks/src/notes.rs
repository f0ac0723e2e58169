//! The notes of one thread: which biased locks it reads.
//!
//! A reader notes the lock and then looks whether it is still biased; a writer ends the bias and
//! then looks at the notes. Both are sequentially consistent, so that one of them sees the other.
#![expect(clippy::disallowed_types, reason = "a lock between threads of this process")]

use crate::bias::{Bias, settle};
use crate::sync::{AtomicUsize, Ordering};

/// Most biased locks that a thread reads at once. Others it reads as before.
pub const MOST_LOCKS: usize = 4;

/// The addresses of the locks; 0 for none. Only the thread itself writes here.
#[derive(Debug)]
pub struct Notes([AtomicUsize; MOST_LOCKS]);

impl Notes {
    /// None.
    #[cfg(not(loom))]
    pub const fn none() -> Notes {
        Notes([const { AtomicUsize::new(0) }; MOST_LOCKS])
    }

    /// None.
    #[cfg(loom)]
    pub fn none() -> Notes {
        Notes(std::array::from_fn(|_| AtomicUsize::new(0)))
    }

    /// Where this thread has noted the lock.
    pub fn place_of(&self, lock: usize) -> Option<usize> {
        self.0.iter().position(|note| note.load(Ordering::Relaxed) == lock)
    }

    /// Notes the lock, if it is biased and there is room. Returns where.
    pub fn begin(&self, lock: usize, bias: &Bias) -> Option<usize> {
        if !bias.is_on() {
            return None;
        }
        let place = self.place_of(0)?;
        self.0[place].swap(lock, Ordering::SeqCst);
        settle();
        if bias.is_on() {
            return Some(place);
        }
        self.end(place);
        None
    }

    /// The lock that was noted there is read no more.
    pub fn end(&self, place: usize) {
        self.0[place].store(0, Ordering::Release);
    }

    /// True if this thread has noted the lock; asked by others.
    pub fn name(&self, lock: usize) -> bool {
        self.0.iter().any(|note| note.load(Ordering::SeqCst) == lock)
    }
}
