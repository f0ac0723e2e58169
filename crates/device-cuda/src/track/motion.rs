//! When work of a card's engines has ended of late. One engine sees its own work alone: from this
//! it learns whether the card moves.
//!
//! ```text
//!            nothing has ended for longer than usual
//! Moving ─────────────────────────────────────────────▶ Standing
//!        ◀─────────────────────────────────────────────
//!             work has ended at MOMENTS moments since
//! ```

use super::standing::UnusualStandstill;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::Arc;

/// A card on which work has ended at so many moments moves. In a faulted context, a few kernels
/// still end.
pub(crate) const MOMENTS: usize = 10;

/// Work that ends within so many nanoseconds ends at one moment.
pub(crate) const MOMENT_NS: u64 = 100_000;

/// Where nothing ends for less than so many nanoseconds, a card does not stand.
pub(crate) const SHORTEST_SILENCE_NS: u64 = 3_000_000;

#[derive(Debug)]
struct Moments {
    /// The last [`MOMENTS`] of each engine, in nanoseconds since the card was opened.
    engines: FxHashMap<usize, VecDeque<u64>>,
    /// The last one of all.
    last: u64,
    /// For how long nothing ended between two of them.
    standstill: UnusualStandstill,
    /// How many there were since that was unusual.
    since_standstill: usize,
}

/// The moments at which work of a card's engines has ended.
///
/// Lock 8 of the crate's order, held alone. An engine notes one moment in [`MOMENT_NS`] at most.
#[derive(Debug, Clone)]
pub(crate) struct Motion(Arc<Mutex<Moments>>);

impl Default for Motion {
    fn default() -> Motion {
        let standstill = UnusualStandstill::longer_than(SHORTEST_SILENCE_NS);
        Motion(Arc::new(Mutex::new(Moments { engines: FxHashMap::default(), last: 0, standstill, since_standstill: MOMENTS })))
    }
}

impl Motion {
    /// Notes that work of an engine has ended at `now`. What had stood longest of its work in
    /// flight had not moved for `longest_ns`.
    pub(crate) fn note(&self, engine: usize, now: u64, longest_ns: u64) {
        let mut moments = self.0.lock();
        // Work was in flight, and none of any engine has ended.
        let still_ns = longest_ns.min(now.saturating_sub(moments.last));
        let was_unusual = moments.standstill.look(still_ns);
        moments.standstill.look(0);
        moments.since_standstill = if was_unusual { 1 } else { MOMENTS.min(moments.since_standstill + 1) };
        moments.last = moments.last.max(now);
        let of_engine = moments.engines.entry(engine).or_default();
        if of_engine.len() == MOMENTS {
            of_engine.pop_front();
        }
        of_engine.push_back(now);
    }

    /// True if the card moves: it does not stand, and did not a few moments ago. What has stood
    /// longest of the work of the engine that asks has not moved for `longest_ns`.
    pub(crate) fn moves(&self, now: u64, longest_ns: u64) -> bool {
        let moments = self.0.lock();
        moments.since_standstill >= MOMENTS && !moments.standstill.is_unusual(longest_ns.min(now.saturating_sub(moments.last)))
    }

    /// At how many moments after `since` work of engines but this one has ended; of each at most
    /// [`MOMENTS`].
    pub(crate) fn of_others(&self, engine: usize, since: u64) -> usize {
        let moments = self.0.lock();
        let others = moments.engines.iter().filter(|(other, _)| **other != engine);
        others.map(|(_, moments)| moments.iter().filter(|moment| **moment > since).count()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn engines_hear_of_the_others_last_moments() {
        let motion = Motion::default();
        let shared = motion.clone();
        for moment in 1..=30 {
            motion.note(0, moment, 0);
        }
        shared.note(1, 25, 0);
        assert_eq!((motion.of_others(0, 0), motion.of_others(0, 25)), (1, 0));
        assert_eq!((shared.of_others(1, 0), shared.of_others(1, 25)), (MOMENTS, 5));
        assert_eq!((shared.of_others(2, 0), shared.of_others(2, 24)), (MOMENTS + 1, 7));
        assert_eq!(Motion::default().of_others(2, 0), 0, "another card's is another matter");
    }

    /// Kernels of 2 ms that fill the card, of eight clients of each engine. Those of one engine end
    /// one after the other, and nothing of the other engine moves for 16 ms. Seen on an H100: the
    /// last client of the other engine was told 0.6 s late.
    #[test]
    fn a_card_on_which_kernels_of_another_engine_end_moves() {
        let motion = Motion::default();
        for kernel in 1..40 {
            motion.note(0, kernel * 2 * MS, 2 * MS);
        }
        assert!(motion.moves(79 * MS, 16 * MS) && motion.moves(81 * MS, 18 * MS));
        assert!(!motion.moves(78 * MS + 7 * MS, 22 * MS), "nothing ends any more");
    }

    /// A fault: nothing ends for 8 ms, then a kernel of one engine and one of the other.
    #[test]
    fn a_few_kernels_that_end_are_no_motion() {
        let motion = Motion::default();
        (1..100).for_each(|kernel| motion.note(kernel % 2, kernel as u64 * MS / 2, MS / 2));
        assert!(motion.moves(50 * MS, MS));
        assert!(!motion.moves(57 * MS, 8 * MS));
        motion.note(0, 58 * MS, 8 * MS);
        assert!(!motion.moves(58 * MS + MS / 5, 8 * MS), "the culprit's may be the next");
        for moment in 1..MOMENTS as u64 {
            assert!(!motion.moves(58 * MS + moment * MS, MS));
            motion.note(1, 58 * MS + moment * MS, MS);
        }
        assert!(motion.moves(68 * MS, 18 * MS), "many are some");
    }

    /// Nobody had work for a second.
    #[test]
    fn a_card_without_work_does_not_stand() {
        let motion = Motion::default();
        motion.note(0, MS, MS);
        motion.note(0, 1000 * MS, MS / 10);
        assert!(motion.moves(1000 * MS + 1, 0) && !motion.moves(1008 * MS, 8 * MS), "nor is it usual to stand for long");
    }
}
