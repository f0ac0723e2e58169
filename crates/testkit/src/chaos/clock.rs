//! Fair time: a bound of five seconds must not fail because the machine ran no process at all.
//!
//! A thread beats every 10 ms. The fair time between two instants is the number of beats between
//! them, ten milliseconds each. While the machine stands still (a virtual machine that is not
//! scheduled, a laptop that sleeps) the thread does not beat, and while other processes crowd it
//! out it beats late: that time does not count. Instants are nanoseconds of CLOCK_MONOTONIC, which
//! all processes share, so a client's own measurements are judged by the same beats.

use rustix::time::{ClockId, clock_gettime};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

const BEAT: Duration = Duration::from_millis(10);
/// Time between two checks of a condition.
const CHECK_INTERVAL: Duration = Duration::from_millis(2);

/// An instant of CLOCK_MONOTONIC in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(pub u64);

impl Instant {
    pub fn now() -> Self {
        let time = clock_gettime(ClockId::Monotonic);
        let nanoseconds = Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0)).as_nanos();
        Self(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }

    /// Time since this instant, as a wall clock shows it.
    pub fn elapsed(self) -> Duration {
        self.until(Self::now())
    }

    pub fn until(self, later: Self) -> Duration {
        Duration::from_nanos(later.0.saturating_sub(self.0))
    }

    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Counts the beats. The thread ends with the last owner.
#[derive(Debug, Clone)]
pub struct Clock {
    beats: Arc<Mutex<Vec<Instant>>>,
}

impl Clock {
    pub fn start() -> Self {
        let beats: Arc<Mutex<Vec<Instant>>> = Arc::default();
        let watched: Weak<_> = Arc::downgrade(&beats);
        thread::spawn(move || {
            while let Some(beats) = watched.upgrade() {
                beats.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
                drop(beats);
                thread::sleep(BEAT);
            }
        });
        Self { beats }
    }

    /// The fair time between two instants.
    pub fn fair(&self, from: Instant, to: Instant) -> Duration {
        let beats = self.beats.lock().unwrap_or_else(PoisonError::into_inner);
        let count = beats.partition_point(|beat| *beat < to).saturating_sub(beats.partition_point(|beat| *beat < from));
        // A beat is never early, and two instants within one beat are not further apart than they
        // are.
        (BEAT * u32::try_from(count).unwrap_or(u32::MAX)).min(from.until(to))
    }

    /// The fair time since an instant.
    pub fn since(&self, from: Instant) -> Duration {
        self.fair(from, Instant::now())
    }

    /// Checks until `check` returns a value, or until so much fair time has passed.
    pub fn wait<T>(&self, bound: Duration, mut check: impl FnMut() -> Option<T>) -> Option<T> {
        let from = Instant::now();
        loop {
            if let Some(found) = check() {
                return Some(found);
            }
            if self.since(from) >= bound {
                return None;
            }
            thread::sleep(CHECK_INTERVAL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_beats_count() {
        let beats = [0, 10, 20, 5_000, 5_010].map(|milliseconds: u64| Instant(milliseconds * 1_000_000)).to_vec();
        let clock = Clock { beats: Arc::new(Mutex::new(beats)) };
        let fair = |from: u64, to: u64| clock.fair(Instant(from * 1_000_000), Instant(to * 1_000_000)).as_millis();
        assert_eq!(fair(0, 20), 20);
        assert_eq!(fair(20, 5_000), 10, "the machine stood still");
        assert_eq!(fair(0, 6_000), 50);
        assert_eq!(fair(9, 12), 3, "never more than a wall clock shows");
        assert_eq!(fair(12, 9), 0);
    }

    #[test]
    fn a_wait_ends_with_its_bound_or_with_what_it_looks_for() {
        let clock = Clock::start();
        let mut looks = 0;
        let found = clock.wait(Duration::from_secs(60), || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(found, Some(3));
        assert_eq!(clock.wait(Duration::from_millis(30), || None::<()>), None);
    }
}
