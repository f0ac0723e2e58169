//! The lock of threads that submit work.
//!
//! Each submitting call of the driver takes the context's own lock, on which a thread that waits
//! goes to sleep; waking it takes longer than the call. Where several engines submit, they wait
//! for one another here, and look again for a while instead of sleeping. A single engine takes no
//! lock. Calls that take long (loading, mapping) do not come here: whoever submits beside one waits
//! in the driver, and the others here. Nobody submits while a chain is made.

use parking_lot::{Mutex, MutexGuard};

/// How often a thread looks whether it may submit before it sleeps: for longer than any call takes
/// that does not itself wait.
const LOOKS: u32 = 20_000;

/// The lock of threads that submit work. Lock 9 of the crate's order; the driver is called under
/// it.
pub(super) struct SubmissionLock(Option<Mutex<()>>);

impl SubmissionLock {
    /// For so many threads that submit.
    pub(super) fn of_threads(count: usize) -> SubmissionLock {
        SubmissionLock((count > 1).then(Mutex::default))
    }

    /// Returns when this thread may submit; no other one does as long as the guard lives.
    #[inline]
    pub(super) fn enter(&self) -> Option<MutexGuard<'_, ()>> {
        let lock = self.0.as_ref()?;
        for _ in 0..LOOKS {
            if let Some(guard) = lock.try_lock() {
                return Some(guard);
            }
            std::hint::spin_loop();
        }
        Some(lock.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_submits_at_a_time_where_there_are_several() {
        assert!(SubmissionLock::of_threads(1).enter().is_none(), "nobody to wait for");
        let (lock, inside) = (SubmissionLock::of_threads(2), Mutex::new(()));
        let together = std::sync::Barrier::new(3);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    together.wait();
                    for _ in 0..2_000 {
                        let _guard = lock.enter();
                        let _inside = inside.try_lock().expect("another thread is inside");
                        std::thread::yield_now();
                    }
                });
            }
        });
    }
}
