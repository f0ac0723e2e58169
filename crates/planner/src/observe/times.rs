//! A distribution of times in little memory: classes that are 3 % wide, in epochs.
//!
//! The p99 is that of a typical part of the time, as in the lab's own programs: while a program
//! begins, clocks rise and things are done for the first time, and a hiccup of the machine is in
//! one part alone. Epochs are pieces of equal length, in times. When there are too many, two become
//! one.

use super::noise::{LOW_PERCENT, Spread};
use crate::profile::Duration;

/// Classes for each doubling.
const CLASSES: u64 = 32;
/// A day: no time in a profile is longer.
const LONGEST_NS: u64 = 86_400_000_000_000;
/// Epochs that are kept.
const MOST_EPOCHS: usize = 10;
/// Epochs that are judged: four to seven, the lab's programs have five.
const MOST_JUDGED: usize = 7;
/// Times of an epoch at first. One that has fewer is not judged.
const LEAST: u64 = 20;

/// Times, in nanoseconds.
#[derive(Debug, Clone)]
pub(super) struct Times {
    total: u128,
    epochs: Vec<Epoch>,
    /// Times of an epoch.
    length: u64,
}

impl Default for Times {
    fn default() -> Self {
        Self { total: 0, epochs: Vec::new(), length: LEAST }
    }
}

/// Times of one piece, by class, in the order of classes.
#[derive(Debug, Clone, Default)]
struct Epoch {
    count: u64,
    classes: Vec<Class>,
}

/// How many times a class has, and their sum.
#[derive(Debug, Clone, Copy)]
struct Class {
    class: u16,
    count: u64,
    sum: u64,
}

impl Epoch {
    fn add(&mut self, more: Class) {
        self.count += more.count;
        match self.classes.binary_search_by_key(&more.class, |class| class.class) {
            Ok(at) => {
                let class = &mut self.classes[at];
                (class.count, class.sum) = (class.count + more.count, class.sum.saturating_add(more.sum));
            }
            Err(at) => self.classes.insert(at, more),
        }
    }

    fn join(&mut self, other: &Self) {
        other.classes.iter().for_each(|class| self.add(*class));
    }

    /// So many of a hundred times are at most about this: the mean of the class that has the last
    /// of them.
    fn percentile(&self, percent: u64) -> f64 {
        let wanted = (u128::from(self.count) * u128::from(percent)).div_ceil(100).max(1);
        let mut seen = 0_u128;
        let at = self.classes.iter().find(|class| {
            seen += u128::from(class.count);
            seen >= wanted
        });
        at.map_or(0.0, |class| class.sum as f64 / class.count as f64)
    }
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

/// Two neighbours become one.
fn halve(epochs: &[Epoch]) -> Vec<Epoch> {
    let join = |two: &[Epoch]| {
        let mut one = two[0].clone();
        two[1..].iter().for_each(|other| one.join(other));
        one
    };
    epochs.chunks(2).map(join).collect()
}

impl Times {
    pub(super) fn add(&mut self, ns: u64) {
        let ns = ns.min(LONGEST_NS);
        self.total += u128::from(ns);
        if self.epochs.last().is_none_or(|epoch| epoch.count >= self.length) {
            self.make_room();
            self.epochs.push(Epoch::default());
        }
        if let Some(epoch) = self.epochs.last_mut() {
            epoch.add(Class { class: class(ns), count: 1, sum: ns });
        }
    }

    /// Adds times that came later than these.
    pub(super) fn join(&mut self, other: &Self) {
        self.total += other.total;
        let mut others = other.clone();
        while self.length < others.length {
            self.double();
        }
        while others.length < self.length {
            others.double();
        }
        self.epochs.append(&mut others.epochs);
        while self.epochs.len() > MOST_EPOCHS {
            self.double();
        }
    }

    fn make_room(&mut self) {
        if self.epochs.len() >= MOST_EPOCHS {
            self.double();
        }
    }

    fn double(&mut self) {
        self.epochs = halve(&self.epochs);
        self.length = self.length.saturating_mul(2);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.epochs.is_empty()
    }

    pub(super) fn total_ns(&self) -> f64 {
        self.total as f64
    }

    /// All epochs as one.
    fn all(&self) -> Epoch {
        let mut all = Epoch::default();
        self.epochs.iter().for_each(|epoch| all.join(epoch));
        all
    }

    /// The median over epochs of their p99, the lower one of two; that of all times where there are
    /// few of them.
    fn typical_p99(&self) -> f64 {
        let halved = if self.epochs.len() > MOST_JUDGED { halve(&self.epochs) } else { self.epochs.clone() };
        let longest = halved.iter().map(|epoch| epoch.count).max().unwrap_or(0);
        // The last epoch is not full.
        let judged = halved.iter().filter(|epoch| epoch.count >= LEAST && 2 * epoch.count >= longest);
        let mut found: Vec<f64> = judged.map(|epoch| epoch.percentile(99)).collect();
        found.sort_by(f64::total_cmp);
        match found.len() {
            0..3 => self.all().percentile(99),
            count => found[(count - 1) / 2],
        }
    }

    /// Mean and p99; zeros where there is no time.
    pub(super) fn duration_or_zero(&self) -> Duration {
        if self.is_empty() {
            return Duration { mean_ns: 0.0, p99_ns: 0.0 };
        }
        let count: u64 = self.epochs.iter().map(|epoch| epoch.count).sum();
        Duration { mean_ns: self.total as f64 / count as f64, p99_ns: self.typical_p99() }
    }

    /// Mean and p99, above zero, and what the low times are; a microsecond where there is no time.
    pub(super) fn spread(&self) -> Spread {
        if self.is_empty() {
            return Spread { samples: 0, low_ns: 1000.0, duration: Duration { mean_ns: 1000.0, p99_ns: 1000.0 } };
        }
        let Duration { mean_ns, p99_ns } = self.duration_or_zero();
        let all = self.all();
        Spread { samples: all.count, low_ns: all.percentile(LOW_PERCENT), duration: Duration { mean_ns: mean_ns.max(1.0), p99_ns: p99_ns.max(1.0) } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::noise::{MOST_NS, MOST_P99_NS, Noise};
    use crate::profile::SHORTEST_KERNEL_NS;
    use proptest::prelude::*;

    proptest! {
        /// Times of one class are 3 % apart at most, and classes are in the order of times.
        #[test]
        fn a_class_is_narrow(one in 0_u64..LONGEST_NS, longer in 0_u64..1_000_000) {
            let other = one + longer;
            prop_assert!(class(one) <= class(other));
            prop_assert!(class(one) < class(other) || other as f64 <= one as f64 * 1.04 + 1.0, "{one} and {other} are in one class");
        }

        /// However many there are, in however many parts: no time is lost, epochs are few, and the
        /// p99 is one of the times.
        #[test]
        fn epochs_are_few_and_lose_nothing(parts in proptest::collection::vec((1_usize..3000, 1_u64..1_000_000), 1..6)) {
            let mut all = Times::default();
            let (mut count, mut most) = (0, 0);
            for (number, (samples, ns)) in parts.iter().enumerate() {
                let mut part = Times::default();
                let target = if number % 2 == 0 { &mut all } else { &mut part };
                (0..*samples).for_each(|nth| target.add(ns + nth as u64 % 7));
                all.join(&part);
                count += *samples as u64;
                most = most.max(ns + 6);
            }
            prop_assert!(all.epochs.len() <= MOST_EPOCHS);
            prop_assert_eq!(all.all().count, count);
            let Spread { samples, low_ns, duration } = all.spread();
            prop_assert_eq!(samples, count);
            prop_assert!(low_ns <= most as f64 && duration.p99_ns <= most as f64 && duration.mean_ns <= most as f64, "{low_ns} {duration:?} of at most {most}");
        }

        /// Constant kernels with whatever the host adds, as long as it is not more than the caps:
        /// they come out within a microsecond or 20 %. What is taken off is never more than the
        /// caps.
        #[test]
        fn the_hosts_noise_is_taken_off(
            truths in proptest::collection::vec((1_500_u64..300_000, 100_u64..2_000), 1..20), waits in 0_u64..1_200, seed in 1_u64..u64::MAX
        ) {
            let mut chance = Chance(seed);
            let spreads: Vec<Spread> = truths.iter().map(|(truth, count)| {
                let mut times = Times::default();
                (0..*count).for_each(|_| times.add(truth + chance.wait(waits) + chance.wait(waits)));
                times.spread()
            }).collect();
            let noise = Noise::of(&spreads);
            for ((truth, _), spread) in truths.iter().zip(&spreads) {
                let (found, truth) = (noise.without(spread), *truth as f64);
                let off = found.mean_ns - truth;
                prop_assert!(off >= -0.04 * truth && off <= 0.2 * truth + 1_000.0, "{truth}: {found:?} of {spread:?}");
                prop_assert!(found.mean_ns <= spread.duration.mean_ns && found.p99_ns <= spread.duration.p99_ns.max(found.mean_ns));
                prop_assert!(spread.duration.mean_ns - found.mean_ns <= MOST_NS && spread.duration.p99_ns - found.p99_ns <= MOST_P99_NS);
                // Never further from the truth than without it, but for the width of a class.
                prop_assert!(off.abs() <= (spread.duration.mean_ns - truth).abs() + 0.04 * truth);
            }
        }

        /// Kernels whose times truly differ: long ones are hardly changed, and short ones neither
        /// where the program has steady ones, too.
        #[test]
        fn what_truly_varies_stays(
            kernels in proptest::collection::vec((20_000_u64..5_000_000, 2_u64..5), 1..10), short in 3_000_u64..20_000, seed in 1_u64..u64::MAX
        ) {
            let mut chance = Chance(seed);
            let mut varying = |shortest: u64, times_longer: u64| {
                let mut times = Times::default();
                (0..500).for_each(|_| times.add(shortest + chance.next() % (shortest * (times_longer - 1))));
                times.spread()
            };
            for (shortest, times_longer) in kernels {
                let spread = varying(shortest, times_longer);
                let found = Noise::of(&[spread]).without(&spread);
                prop_assert!(spread.duration.mean_ns - found.mean_ns <= MOST_NS && spread.duration.p99_ns - found.p99_ns <= MOST_P99_NS);
                let is_long = shortest >= 150_000;
                prop_assert!(!is_long || found.mean_ns >= 0.95 * spread.duration.mean_ns, "{found:?} of {spread:?}");
                prop_assert!(!is_long || found.p99_ns >= 0.9 * spread.duration.p99_ns, "{found:?} of {spread:?}");
            }
            let mut steady = Times::default();
            (0..500).for_each(|nth| steady.add(2_000 + nth % 100));
            let spread = varying(short, 4);
            let found = Noise::of(&[steady.spread(), spread]).without(&spread);
            prop_assert!(found.mean_ns >= 0.98 * spread.duration.mean_ns && found.p99_ns >= 0.98 * spread.duration.p99_ns, "{found:?} of {spread:?}");
        }
    }

    /// A recorder that sees the ends of tiny kernels together finds some that took no time.
    #[test]
    fn what_the_host_adds_is_not_all_of_a_kernel() {
        let mut times = Times::default();
        (0..2000).for_each(|nth| times.add(if nth % 10 == 0 { 0 } else { 2_400 }));
        let spread = times.spread();
        assert!(spread.low_ns < 1.0 && spread.duration.mean_ns > 2_000.0, "{spread:?}");
        assert_eq!(Noise::of(&[spread]).without(&spread).mean_ns, SHORTEST_KERNEL_NS);
        let mut shorter = Times::default();
        (0..100).for_each(|_| shorter.add(500));
        assert!(Noise::of(&[spread]).without(&shorter.spread()).mean_ns < 520.0, "nothing is added");
    }

    /// Numbers by xorshift.
    struct Chance(u64);

    impl Chance {
        fn next(&mut self) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 >> 11
        }

        /// A wait that ends at a random moment.
        fn wait(&mut self, mean: u64) -> u64 {
            let part = (self.next() % 1_000_000 + 1) as f64 / 1e6;
            (-part.ln() * mean as f64) as u64
        }
    }

    #[test]
    fn one_slow_of_a_hundred_is_the_last_hundredth() {
        let mut times = Times::default();
        for _ in 0..99 {
            times.add(1000);
        }
        let Duration { mean_ns, p99_ns } = times.duration_or_zero();
        assert!((mean_ns - 1000.0).abs() < 0.1 && (1000.0..1040.0).contains(&p99_ns), "{mean_ns} {p99_ns}");
        let mut times = Times::default();
        for round in 0..20_000 {
            times.add(if round % 50 == 49 { 100_000 } else { 1000 });
        }
        assert!(times.duration_or_zero().p99_ns >= 100_000.0);
    }

    /// As a card whose clocks rise, and a machine that has a hiccup.
    #[test]
    fn the_beginning_is_not_the_last_hundredth() {
        for samples in [300, 596, 1000, 5000, 430_000] {
            let mut times = Times::default();
            for nth in 0..samples {
                let hiccup = (samples / 2..samples / 2 + samples / 80).contains(&nth);
                times.add(if nth < samples / 30 || hiccup { 2_700_000 } else { 2_150_000 + nth % 1000 });
            }
            let Duration { mean_ns, p99_ns } = times.duration_or_zero();
            assert!(p99_ns < 2_240_000.0 && mean_ns > 2_160_000.0, "{samples}: {mean_ns} {p99_ns}");
        }
        // Where there are few, all of them count.
        let mut few = Times::default();
        (0..50).for_each(|nth| few.add(if nth == 0 { 5000 } else { 100 }));
        assert!(few.duration_or_zero().p99_ns >= 5000.0);
    }
}
