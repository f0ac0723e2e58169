//! How many driver streams of a card may have work in flight at once. All engines of the card count
//! them together.
//!
//! A context has some queues, and the driver puts a stream's work into one that is free. Where more
//! streams are busy than there are queues, several share one, and wait for whatever is in front: if
//! a kernel there does not end, nothing behind it ever begins. Measured on an H100 with 16 queues,
//! beside such a kernel (`benches/cu/lanes.cu`): of 20 busy streams 5 stand still for good, of 40
//! streams 25, with copies or without, and none of 40 as long as 14 are busy at a time.
#![expect(clippy::disallowed_types, reason = "a counter that the engines of a card share")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Queues that are left for streams which the engines do not count: the one in which memory is
/// scrubbed, that in which a chain is uploaded, and one more, because two engines may take the last
/// lane at the same time.
const SPARE_QUEUES: usize = 3;

/// The driver streams of a card with work in flight, and how many there may be.
#[derive(Debug, Clone)]
pub(crate) struct Lanes {
    busy: Arc<AtomicUsize>,
    limit: usize,
}

impl Lanes {
    /// Those of a context with so many queues.
    pub(crate) fn of_queues(queues: usize) -> Lanes {
        Lanes { busy: Arc::default(), limit: queues.saturating_sub(SPARE_QUEUES).max(1) }
    }

    /// A driver stream has work in flight now.
    #[inline]
    pub(super) fn add(&self) {
        self.busy.fetch_add(1, Ordering::Relaxed);
    }

    /// A driver stream has none any more.
    #[inline]
    pub(super) fn end(&self) {
        self.busy.fetch_sub(1, Ordering::Relaxed);
    }

    /// True if no further driver stream may get work now.
    #[inline]
    pub(super) fn are_full(&self) -> bool {
        self.busy.load(Ordering::Relaxed) >= self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_fill_them_together() {
        let lanes = Lanes::of_queues(5);
        let other = lanes.clone();
        lanes.add();
        assert!(!lanes.are_full() && !other.are_full());
        other.add();
        assert!(lanes.are_full() && other.are_full());
        lanes.end();
        assert!(!other.are_full());
    }

    #[test]
    fn with_few_queues_one_stream_works_at_a_time() {
        for queues in [0, 1, 3, 4] {
            let lanes = Lanes::of_queues(queues);
            assert!(!lanes.are_full());
            lanes.add();
            assert!(lanes.are_full());
        }
    }
}
