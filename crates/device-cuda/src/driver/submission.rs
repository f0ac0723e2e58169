//! The lock of threads that submit work.
//!
//! Each submitting call of the driver takes the lock of the context in which the stream is. A
//! thread that waits for it goes to sleep, and waking it takes longer than the call. So each of
//! several engines has streams in a green context of its own ([`super::green`]), and waits for
//! nobody. Where it has not, and in partitions, whose streams are those of all engines, they wait
//! for one another here, and look again for a while instead of sleeping. A single engine takes no
//! lock. Calls that take long (loading, mapping) do not come here: whoever submits beside one waits
//! in the driver, and the others here. Nobody submits while a chain is made.
//!
//! For whom reads the log at debug, it counts how long threads wait here, and are in the driver.
#![expect(clippy::disallowed_types, reason = "times of several threads, summed up")]

use super::handle::Stream;
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
    /// True if engines have contexts of their own: what is no stream's needs no lock.
    is_apart: bool,
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
    /// For so many threads that submit. `is_apart`: each has a context of its own.
    pub(super) fn of_threads(count: usize, is_apart: bool) -> SubmissionLock {
        let times = tracing::enabled!(tracing::Level::DEBUG).then(Times::default);
        SubmissionLock { lock: (count > 1).then(Mutex::default), is_apart, times }
    }

    /// Returns when this thread may submit to this stream.
    #[inline]
    pub(super) fn enter(&self, stream: Stream) -> Turn<'_> {
        self.enter_unless(self.is_apart && stream.is_engines())
    }

    /// Returns when this thread may change a chain, which is in no stream.
    #[inline]
    pub(super) fn enter_for_chain(&self) -> Turn<'_> {
        self.enter_unless(self.is_apart)
    }

    /// Returns when no other thread submits that takes the lock.
    pub(super) fn enter_alone(&self) -> Turn<'_> {
        self.enter_unless(false)
    }

    #[inline]
    fn enter_unless(&self, is_free: bool) -> Turn<'_> {
        let begun = self.times.as_ref().map(|times| (times, Instant::now()));
        let guard = self.lock.as_ref().filter(|_| !is_free).map(wait_for);
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
        let shared = Stream::none();
        assert!(SubmissionLock::of_threads(1, false).enter(shared)._guard.is_none(), "nobody to wait for");
        let apart = SubmissionLock::of_threads(2, true);
        assert!(apart.enter(Stream::none_of_engine())._guard.is_none() && apart.enter_for_chain()._guard.is_none(), "in contexts of their own");
        assert!(apart.enter(shared)._guard.is_some() && apart.enter_alone()._guard.is_some(), "in a partition");
        let (lock, inside) = (SubmissionLock::of_threads(2, false), Mutex::new(()));
        let together = std::sync::Barrier::new(3);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    together.wait();
                    for _ in 0..2_000 {
                        let _guard = lock.enter(Stream::none_of_engine());
                        let _inside = inside.try_lock().expect("another thread is inside");
                        std::thread::yield_now();
                    }
                });
            }
        });
    }
}
