//! How often batches have come for which there was no chain. Pure.
//!
//! What a program brings again at the same place is counted for as long as it takes. Where equal
//! kernels are cut is chance, and each length that chance can give comes often in the end: these
//! are counted lately, so that only those get a chain, and the card is stopped for them, that make
//! up much of the work.

use rustc_hash::FxHashMap;

/// Most batches that are counted. After that, counting starts again.
const MOST_COUNTED: usize = 4096;
/// After so many launches of chains half of what was counted lately is forgotten.
const LATELY: u64 = 2048;

/// The counts, by the batches' hashes.
#[derive(Debug, Default)]
pub(super) struct Counts {
    ever: FxHashMap<u64, u8>,
    lately: FxHashMap<u64, u8>,
    /// The launches when half was forgotten last.
    halved: u64,
}

impl Counts {
    /// Counts a batch. Returns how often it has come.
    pub(super) fn count(&mut self, batch: u64) -> u8 {
        raise(&mut self.ever, batch)
    }

    /// Counts a batch that comes after so many `launches`. Returns how often it has come lately.
    pub(super) fn count_lately(&mut self, batch: u64, launches: u64) -> u8 {
        let periods = launches.saturating_sub(self.halved) / LATELY;
        if periods > 0 {
            self.halved += periods * LATELY;
            self.lately.retain(|_, times| {
                *times = times.checked_shr(periods.try_into().unwrap_or(u32::MAX)).unwrap_or_default();
                *times > 0
            });
        }
        raise(&mut self.lately, batch)
    }
}

fn raise(counts: &mut FxHashMap<u64, u8>, batch: u64) -> u8 {
    if counts.len() >= MOST_COUNTED {
        counts.clear();
    }
    let times = counts.entry(batch).or_default();
    *times = times.saturating_add(1);
    *times
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_again_is_counted_for_as_long_as_it_takes() {
        let mut counts = Counts::default();
        assert_eq!((counts.count(7), counts.count(8), counts.count(7)), (1, 1, 2));
        (0..1000).for_each(|_| _ = counts.count(7));
        assert_eq!(counts.count(7), u8::MAX);
    }

    #[test]
    fn what_is_rare_never_comes_often_lately() {
        let mut counts = Counts::default();
        let most_of = |counts: &mut Counts, batch: u64, every: u64| {
            (0..100_000).step_by(every as usize).map(|at| counts.count_lately(batch, counts.halved.max(at))).max().unwrap_or_default()
        };
        assert!(most_of(&mut counts, 7, 200) < 24, "one launch in two hundred");
        let mut counts = Counts::default();
        assert!(most_of(&mut counts, 8, 20) > 96, "one in twenty");
        assert_eq!(counts.count_lately(8, 10_000_000), 1, "all is forgotten after a long time");
    }
}
