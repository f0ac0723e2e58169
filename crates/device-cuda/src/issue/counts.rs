//! How often batches have come for which there was no chain. Pure.
//!
//! What a program brings again at the same place is counted for as long as it takes. How many equal
//! kernels have come when an engine looks is chance, and each number comes often in the end: these
//! are counted lately, so that only those get a chain, and the card is stopped for them, that make
//! up much of the work.

use rustc_hash::FxHashMap;

/// Most batches that are counted. After that, counting starts again.
const MOST_COUNTED: usize = 4096;
/// After so many launches of chains half of what was counted lately is forgotten, and after as many
/// more for each [`BATCHES_A_PERIOD`] that are counted: with many streams each comes less often.
const LATELY: u64 = 2048;
const BATCHES_A_PERIOD: usize = 32;

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
        let period = LATELY * (1 + (self.lately.len() / BATCHES_A_PERIOD) as u64);
        let periods = launches.saturating_sub(self.halved) / period;
        if periods > 0 {
            self.halved += periods * period;
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

    /// How often each of these batches is at most counted, one launch after the other.
    fn most_counted(batches: impl Iterator<Item = u64>) -> FxHashMap<u64, u8> {
        let (mut counts, mut most) = (Counts::default(), FxHashMap::default());
        for (launches, batch) in (0..).zip(batches) {
            let times = counts.count_lately(batch, launches);
            let most: &mut u8 = most.entry(batch).or_default();
            *most = times.max(*most);
        }
        most
    }

    #[test]
    fn what_is_rare_never_comes_often_lately() {
        let most = most_counted((0..100_000).map(|at| if at % 200 == 0 { 1 } else { 0 }));
        assert!(most[&1] < 24 && most[&0] == u8::MAX, "one launch in two hundred");
        assert!(most_counted((0..100_000).map(|at| if at % 20 == 0 { 1 } else { 0 }))[&1] > 96, "one in twenty");
        // As many streams as clients ever have, with five lengths each.
        assert!(most_counted((0..100_000).map(|at| at % 640)).values().all(|times| *times > 24), "each is a part of the work");
        let mut counts = Counts::default();
        (0..50).for_each(|_| _ = counts.count_lately(7, 0));
        assert_eq!(counts.count_lately(7, 10_000_000), 1, "all is forgotten after a long time");
    }
}
