//! When work of each engine of a card has ended of late. One engine sees its own work alone: from
//! this it learns whether the card moves.

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::Arc;

/// A card on which work has ended at so many moments moves. In a faulted context, a few kernels
/// still end.
pub(crate) const MOMENTS: usize = 10;

/// Work that ends within so many nanoseconds ends at one moment.
pub(crate) const MOMENT_NS: u64 = 100_000;

/// The last [`MOMENTS`] moments at which work of each engine has ended, in nanoseconds since the
/// card was opened.
///
/// Lock 8 of the crate's order, held alone. An engine notes one moment in [`MOMENT_NS`] at most.
#[derive(Debug, Clone, Default)]
pub(crate) struct Motion(Arc<Mutex<FxHashMap<usize, VecDeque<u64>>>>);

impl Motion {
    /// Notes that work of an engine has ended at `now`.
    pub(crate) fn note(&self, engine: usize, now: u64) {
        let mut engines = self.0.lock();
        let moments = engines.entry(engine).or_default();
        if moments.len() == MOMENTS {
            moments.pop_front();
        }
        moments.push_back(now);
    }

    /// At how many moments after `since` work of engines but this one has ended; of each at most
    /// [`MOMENTS`].
    pub(crate) fn of_others(&self, engine: usize, since: u64) -> usize {
        let engines = self.0.lock();
        let others = engines.iter().filter(|(other, _)| **other != engine);
        others.map(|(_, moments)| moments.iter().filter(|moment| **moment > since).count()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_hear_of_the_others_last_moments() {
        let motion = Motion::default();
        let shared = motion.clone();
        for moment in 1..=30 {
            motion.note(0, moment);
        }
        shared.note(1, 25);
        assert_eq!((motion.of_others(0, 0), motion.of_others(0, 25)), (1, 0));
        assert_eq!((shared.of_others(1, 0), shared.of_others(1, 25)), (MOMENTS, 5));
        assert_eq!((shared.of_others(2, 0), shared.of_others(2, 24)), (MOMENTS + 1, 7));
        assert_eq!(Motion::default().of_others(2, 0), 0, "another card's is another matter");
    }
}
