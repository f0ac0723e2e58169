//! A distribution of times in little memory: classes that are 3 % wide.

use crate::profile::Duration;
use std::collections::BTreeMap;

/// Classes for each doubling.
const CLASSES: u64 = 32;
/// A day: no time in a profile is longer.
const LONGEST_NS: u64 = 86_400_000_000_000;

/// Times, in nanoseconds.
#[derive(Debug, Clone, Default)]
pub(super) struct Times {
    count: u64,
    total: u128,
    classes: BTreeMap<u16, u64>,
}

/// The class of a time.
fn class(ns: u64) -> u16 {
    if ns < CLASSES {
        return ns as u16;
    }
    let doublings = u64::from(63 - ns.leading_zeros());
    let within = (ns >> (doublings - 5)) & (CLASSES - 1);
    ((doublings - 4) * CLASSES + within) as u16
}

/// The longest time of a class.
fn longest(class: u16) -> u64 {
    let class = u64::from(class);
    if class < CLASSES {
        return class;
    }
    let doublings = class / CLASSES + 4;
    let within = class % CLASSES;
    ((CLASSES + within + 1) << (doublings - 5)) - 1
}

impl Times {
    pub(super) fn add(&mut self, ns: u64) {
        let ns = ns.min(LONGEST_NS);
        self.count += 1;
        self.total += u128::from(ns);
        *self.classes.entry(class(ns)).or_default() += 1;
    }

    pub(super) fn join(&mut self, other: &Self) {
        self.count += other.count;
        self.total += other.total;
        for (class, count) in &other.classes {
            *self.classes.entry(*class).or_default() += count;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn total_ns(&self) -> f64 {
        self.total as f64
    }

    /// Mean and p99; zeros where there is no time.
    pub(super) fn duration_or_zero(&self) -> Duration {
        if self.is_empty() {
            return Duration { mean_ns: 0.0, p99_ns: 0.0 };
        }
        let wanted = (self.count as f64 * 0.99).ceil() as u64;
        let mut seen = 0;
        let at = self.classes.iter().find(|(_, count)| {
            seen += **count;
            seen >= wanted
        });
        let mean_ns = self.total as f64 / self.count as f64;
        Duration { mean_ns, p99_ns: at.map_or(mean_ns, |(class, _)| longest(*class).min(LONGEST_NS) as f64) }
    }

    /// Mean and p99, above zero; a microsecond where there is no time.
    pub(super) fn duration(&self) -> Duration {
        if self.is_empty() {
            return Duration { mean_ns: 1000.0, p99_ns: 1000.0 };
        }
        let Duration { mean_ns, p99_ns } = self.duration_or_zero();
        Duration { mean_ns: mean_ns.max(1.0), p99_ns: p99_ns.max(1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_class_holds_its_times(ns in 0_u64..LONGEST_NS) {
            let top = longest(class(ns));
            prop_assert!(ns <= top && top as f64 <= ns as f64 * 1.04 + 1.0, "{ns} is in the class up to {top}");
        }
    }

    #[test]
    fn one_slow_of_a_hundred_is_the_last_hundredth() {
        let mut times = Times::default();
        for _ in 0..99 {
            times.add(1000);
        }
        times.add(100_000);
        let Duration { mean_ns, p99_ns } = times.duration();
        assert!((mean_ns - 1990.0).abs() < 0.1 && (1000.0..1040.0).contains(&p99_ns), "{mean_ns} {p99_ns}");
        times.add(100_000);
        assert!(times.duration().p99_ns >= 100_000.0);
    }
}
