//! The lock of threads that submit work.
//!
//! Each submitting call of the driver takes the context's own lock, on which a thread that waits
//! goes to sleep; waking it takes longer than the call. Where several engines submit, they wait
//! for one another here, and look again for a while instead of sleeping. A single engine takes no
//! lock. Calls that take long (loading, mapping) do not come here: whoever submits beside one waits
//! in the driver, and the others here. Nobody submits while a chain is made.
//!
//! For whom reads the log at debug, it counts how long threads wait here, and are in the driver.
#![expect(clippy::disallowed_types, reason = "times of several threads, summed up")]

use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// How often a thread looks whether it may submit before it sleeps: for longer than any call takes
/// that does not itself wait.
const LOOKS: u32 = 20_000;

/// Nanoseconds that all threads have been in the driver, and have waited here.
#[derive(Default)]
struct Times {
    inside: AtomicU64,
    waited: AtomicU64,
}

/// The lock of threads that submit work. Lock 9 of the crate's order; the driver is called under
/// it.
pub(super) struct SubmissionLock {
    /// `None` for a single thread.
    lock: Option<Mutex<()>>,
    /// `None` if nobody wants to know.
    times: Option<Times>,
}

/// A thread's turn to submit.
pub(super) struct Turn<'a> {
    since: Option<(&'a Times, Instant)>,
    _guard: Option<MutexGuard<'a, ()>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some((times, since)) = self.since {
            add(&times.inside, since);
        }
    }
}

fn add(sum: &AtomicU64, since: Instant) {
    sum.fetch_add(u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
}

impl SubmissionLock {
    /// For so many threads that submit.
    pub(super) fn of_threads(count: usize) -> SubmissionLock {
        let times = tracing::enabled!(tracing::Level::DEBUG).then(Times::default);
        SubmissionLock { lock: (count > 1).then(Mutex::default), times }
    }

    /// Returns when this thread may submit; no other one does during its turn.
    #[inline]
    pub(super) fn enter(&self) -> Turn<'_> {
        let begun = self.times.as_ref().map(|times| (times, Instant::now()));
        let guard = self.lock.as_ref().map(wait_for);
        let since = begun.map(|(times, begun)| {
            add(&times.waited, begun);
            (times, Instant::now())
        });
        Turn { since, _guard: guard }
    }

    /// Nanoseconds in the driver and of waiting for it so far; 0 if they are not counted.
    pub(super) fn times(&self) -> (u64, u64) {
        self.times.as_ref().map_or((0, 0), |times| (times.inside.load(Ordering::Relaxed), times.waited.load(Ordering::Relaxed)))
    }
}

#[inline]
fn wait_for(lock: &Mutex<()>) -> MutexGuard<'_, ()> {
    for _ in 0..LOOKS {
        if let Some(guard) = lock.try_lock() {
            return guard;
        }
        std::hint::spin_loop();
    }
    lock.lock()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_submits_at_a_time_where_there_are_several() {
        assert!(SubmissionLock::of_threads(1).enter()._guard.is_none(), "nobody to wait for");
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
