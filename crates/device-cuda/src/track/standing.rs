//! Whether work in flight of any engine of a card stands still, and whether that is unusual. Each
//! engine sees its own work alone, and what one does may wait for a kernel of another one's client:
//! so they say it to each other.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The engines of a card whose work stands still.
///
/// Lock 8 of the crate's order, held alone.
#[derive(Debug, Clone, Default)]
pub(crate) struct StandingWork(Arc<Mutex<BTreeSet<usize>>>);

impl StandingWork {
    /// Notes whether the work of an engine stands still.
    pub(crate) fn note(&self, engine: usize, stands: bool) {
        let mut engines = self.0.lock();
        if stands {
            engines.insert(engine);
        } else {
            engines.remove(&engine);
        }
    }

    /// True if the work of any engine stands still.
    pub(crate) fn any(&self) -> bool {
        !self.0.lock().is_empty()
    }
}

/// Whether work stands still for longer than usual, as it does before a fault is noticed.
///
/// ```text
///        longer than the shortest one and three times the longest of late
/// Usual ──────────────────────────────────────────────────────────────▶ Unusual
///       ◀──────────────────────────────────────────────────────────────
///                             work moves
/// ```
///
/// So programs with long kernels are unusual once, and not with every kernel. What counts as late
/// is how often work has moved since, not how long ago it was: beside busy programs, a long call of
/// the driver is forgotten within a tenth of a second, and a program whose kernels take seconds
/// stays usual.
#[derive(Debug, Clone)]
pub(crate) struct UnusualStandstill {
    /// Less is nothing unusual.
    shortest_ns: u64,
    is_unusual: bool,
    /// For how long the work that had stood longest was still when it was looked at last.
    last_ns: u64,
    /// The longest of late. It is halved each [`HALVED_AFTER`].
    longest_ns: u64,
    /// How often work has moved since.
    moved: u32,
}

/// When work has moved so often, the longest standstill of late counts half.
const HALVED_AFTER: u32 = 128;

impl UnusualStandstill {
    /// None has been seen. Less than `shortest_ns` will be nothing unusual.
    pub(crate) fn longer_than(shortest_ns: u64) -> UnusualStandstill {
        UnusualStandstill { shortest_ns, is_unusual: false, last_ns: 0, longest_ns: 0, moved: 0 }
    }

    /// True if it would be unusual to stand still for so long now.
    pub(crate) fn is_unusual(&self, still_ns: u64) -> bool {
        still_ns > self.shortest_ns.max(3 * self.longest_ns)
    }

    /// The work that has stood longest is still for `still_ns` now. Whether that is unusual.
    pub(crate) fn look(&mut self, still_ns: u64) -> bool {
        if still_ns < self.last_ns {
            (self.longest_ns, self.is_unusual) = (self.longest_ns.max(self.last_ns), false);
            self.moved += 1;
            if self.moved == HALVED_AFTER {
                (self.longest_ns, self.moved) = (self.longest_ns / 2, 0);
            }
        }
        self.last_ns = still_ns;
        self.is_unusual |= self.is_unusual(still_ns);
        self.is_unusual
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks each tenth of a millisecond at kernels of so many milliseconds, one after the other.
    /// How many of them were unusual.
    fn count_unusual(standstill: &mut UnusualStandstill, kernel_ms: u64, kernels: u64) -> usize {
        let mut is_unusual = |_| (0..kernel_ms * 10).map(|at| standstill.look(at * 100_000)).fold(false, |any, one| any | one);
        (0..kernels).map(&mut is_unusual).filter(|unusual| *unusual).count()
    }

    #[test]
    fn long_kernels_are_unusual_once() {
        let mut standstill = UnusualStandstill::longer_than(10_000_000);
        assert_eq!(count_unusual(&mut standstill, 8, 100), 0);
        assert_eq!(count_unusual(&mut standstill, 30, 30), 1, "the first one");
        assert_eq!(count_unusual(&mut standstill, 120, 2), 1, "a much longer one");
        assert_eq!(count_unusual(&mut standstill, 8, 1_000), 0);
        assert_eq!(count_unusual(&mut standstill, 30, 1), 1, "that was long ago");
        assert_eq!(count_unusual(&mut standstill, 3_000, 20), 1, "seconds are no long time for kernels that take seconds");
    }

    /// Beside busy programs, a call of the driver takes long, and a little later there is a fault.
    #[test]
    fn a_long_call_is_soon_forgotten_where_much_moves() {
        let mut standstill = UnusualStandstill::longer_than(3_000_000);
        assert_eq!(count_unusual(&mut standstill, 50, 1), 1);
        let mut busy = (0..3_000).map(|look: u64| standstill.look(look % 3 * 100_000));
        assert!(busy.all(|unusual| !unusual));
        assert_eq!(count_unusual(&mut standstill, 8, 1), 1, "0.3 s later");
    }

    /// A fault: nothing moves any more, until it is noticed.
    #[test]
    fn what_moves_no_more_stays_unusual() {
        let mut standstill = UnusualStandstill::longer_than(10_000_000);
        let all: Vec<bool> = (0..100).map(|ms| standstill.look(ms * 1_000_000)).collect();
        assert_eq!(all.iter().position(|unusual| *unusual), Some(11));
        assert!(all[11..].iter().all(|unusual| *unusual) && !standstill.look(0));
    }

    #[test]
    fn each_engine_hears_of_the_others() {
        let (own, others) = (StandingWork::default(), StandingWork::default());
        let shared = own.clone();
        own.note(0, false);
        own.note(1, true);
        assert!(shared.any() && !others.any(), "another card's is another matter");
        own.note(0, true);
        shared.note(1, false);
        assert!(own.any());
        shared.note(0, false);
        assert!(!own.any());
    }
}
