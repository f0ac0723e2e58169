//! Time as kernels of a software GPU see it.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// A moment from which time is counted while this process is given processors.
///
/// Kernels run on the machine's processors. On a busy machine a short kernel takes long by the
/// clock, and nobody should take it for one that does not end. So time that the process was not
/// given any processor does not count. On an idle machine this is the time of the clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    clock: Instant,
    processors: Duration,
}

impl Moment {
    pub(super) fn now() -> Moment {
        Moment { clock: Instant::now(), processors: processors() }
    }

    /// The time since then by the clock alone.
    pub(super) fn elapsed_by_clock(&self) -> Duration {
        self.clock.elapsed()
    }

    /// The time since then: by the clock, but at most what all threads of the process together have
    /// computed.
    pub(super) fn elapsed(&self) -> Duration {
        self.clock.elapsed().min(processors().saturating_sub(self.processors))
    }
}

/// What all threads of this process have computed.
fn processors() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_without_processors_does_not_count() {
        let (clock, moment) = (Instant::now(), Moment::now());
        let mut sum = 0_u64;
        while processors() < moment.processors + Duration::from_millis(5) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(moment.elapsed() <= clock.elapsed() && moment.elapsed() > Duration::ZERO);
        let ahead = Moment { processors: processors() + Duration::from_secs(3600), ..moment };
        assert_eq!(ahead.elapsed(), Duration::ZERO, "nothing was computed since");
    }
}
