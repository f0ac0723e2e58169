//! What the host adds to the durations of kernels.
//!
//! The executor measures a kernel from its submission until it sees its fence, minus a delay that
//! was measured when the card was opened. What goes beyond that delay is the host's: it is never
//! negative, and the same for all kernels of a program. So it shows as the spread that even the
//! steadiest kernels have. A quarter of a program's launches are taken to be of kernels that do not
//! vary themselves. Where that is wrong, because all short kernels of a program vary, the durations
//! come out too short, by the caps at most.

use crate::profile::{Duration, SHORTEST_KERNEL_NS};

/// So many of a kernel's launches, in percent, are not longer than its low time.
pub const LOW_PERCENT: u64 = 5;
/// The part of the launches whose kernels vary least: the last one of them has the noise.
const STEADY: f64 = 0.25;
/// The most that is taken off a mean. On two hosts the delay of a launch itself was 5 and 9 µs; a
/// host that adds more than that on average measures nothing, and a kernel that varies by more does
/// so itself.
pub const MOST_NS: f64 = 5_000.0;
/// The most that is taken off a p99. Of a wait that ends at random moments 99 of 100 take less than
/// 4.6 times the mean.
pub const MOST_P99_NS: f64 = 20_000.0;
/// Kernels that are longer do not tell the noise: their times are known to 3 % only, which is more
/// than a microsecond.
const SHORT_NS: f64 = 64_000.0;
/// With fewer launches a kernel has no low time that means anything.
const LEAST_SAMPLES: u64 = 20;

/// The times of one kernel, as they were measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// How many there were.
    pub samples: u64,
    /// [`LOW_PERCENT`] of them take at most this.
    pub low_ns: f64,
    /// Their mean and p99.
    pub duration: Duration,
}

/// What the host adds to a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Noise {
    mean_ns: f64,
    p99_ns: f64,
}

impl Noise {
    /// The noise in the times of a program's kernels.
    #[must_use]
    pub fn of(kernels: &[Spread]) -> Self {
        let steadiest = |above_low: fn(&Spread) -> f64, most: f64| {
            let telling = kernels.iter().filter(|spread| spread.samples >= LEAST_SAMPLES && spread.low_ns < SHORT_NS);
            let mut all: Vec<(f64, u64)> = telling.map(|spread| (above_low(spread), spread.samples)).collect();
            all.sort_by(|a, b| a.0.total_cmp(&b.0));
            let wanted = STEADY * all.iter().map(|(_, samples)| *samples as f64).sum::<f64>();
            let mut seen = 0.0;
            let found = all.iter().find(|(_, samples)| {
                seen += *samples as f64;
                seen >= wanted
            });
            found.map_or(0.0, |(ns, _)| ns.clamp(0.0, most))
        };
        Self {
            mean_ns: steadiest(|spread| spread.duration.mean_ns - spread.low_ns, MOST_NS),
            p99_ns: steadiest(|spread| spread.duration.p99_ns - spread.low_ns, MOST_P99_NS),
        }
    }

    /// The times without it: no mean comes below its low time or the shortest kernel, no p99
    /// below its mean.
    #[must_use]
    pub fn without(self, spread: &Spread) -> Duration {
        let Duration { mean_ns, p99_ns } = spread.duration;
        let without = (mean_ns - self.mean_ns).max(spread.low_ns.max(SHORTEST_KERNEL_NS).min(mean_ns)).max(1.0);
        Duration { mean_ns: without, p99_ns: (p99_ns - self.p99_ns).max(without) }
    }
}
