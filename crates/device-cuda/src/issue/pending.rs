//! The chains of an engine that are ordered and not made. Pure.
//!
//! Of two orders that may serve the same batches the second is refused: a stream gets twins one
//! after the other, and a general chain serves many kernels.

use super::chain::Purpose;
use crate::track::FenceWord;

/// Most chains of an engine that are ordered and not made, and most of them that are not urgent.
const MOST_PENDING: usize = 24;
const MOST_NOT_URGENT: usize = 16;

/// A chain that is ordered and not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PendingChain {
    /// The number of its kernels.
    pub length: usize,
    /// The hash of their functions.
    pub(super) shape: u64,
    /// True for a stream's first chain for a segment.
    pub is_urgent: bool,
    /// The word for its fence.
    pub word: FenceWord,
    /// What it is for.
    pub purpose: Purpose,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct PendingChains(Vec<PendingChain>);

impl PendingChains {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// How many there are of this length.
    pub(super) fn count_of(&self, length: usize) -> usize {
        self.0.iter().filter(|other| other.length == length).count()
    }

    /// True if another one may be ordered: there is room, and none that may serve as well.
    pub(super) fn may_order(&self, length: usize, shape: u64, purpose: Purpose, is_urgent: bool) -> bool {
        let serves = |other: &PendingChain| other.length == length && other.purpose == purpose && (purpose == Purpose::General || other.shape == shape);
        let has_room = is_urgent || self.0.iter().filter(|other| !other.is_urgent).count() < MOST_NOT_URGENT;
        self.0.len() < MOST_PENDING && has_room && !self.0.iter().any(serves)
    }

    /// Adds one.
    pub(super) fn push(&mut self, chain: PendingChain) {
        self.0.push(chain);
    }

    /// One was made, or will not be.
    pub(super) fn remove(&mut self, chain: PendingChain) {
        self.0.retain(|other| *other != chain);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cumux_device::StreamId;

    fn chain(word: usize, length: usize, shape: u64, purpose: Purpose, is_urgent: bool) -> PendingChain {
        PendingChain { length, shape, is_urgent, word: FenceWord(word), purpose }
    }

    #[test]
    fn what_may_serve_as_well_is_not_ordered_twice() {
        let (mut pending, own) = (PendingChains::default(), |stream| Purpose::Own(StreamId(stream)));
        let first = chain(1, 16, 7, own(1), true);
        pending.push(first);
        pending.push(chain(2, 8, 7, Purpose::General, false));
        let may = |pending: &PendingChains, length, shape, purpose| pending.may_order(length, shape, purpose, false);
        assert!(!may(&pending, 16, 7, own(1)), "a twin comes later");
        assert!(may(&pending, 16, 8, own(1)) && may(&pending, 16, 7, own(2)) && may(&pending, 17, 7, own(1)), "another batch or stream");
        assert!(!may(&pending, 8, 9, Purpose::General), "a general chain is set to other kernels");
        assert!(may(&pending, 4, 7, Purpose::General) && may(&pending, 8, 7, own(1)));
        assert_eq!((pending.count_of(16), pending.count_of(4)), (1, 0));
        pending.remove(first);
        assert!(may(&pending, 16, 7, own(1)), "it was made");
    }

    #[test]
    fn urgent_chains_have_places_of_their_own() {
        let (mut pending, own) = (PendingChains::default(), Purpose::Own(StreamId(1)));
        let mut order = |is_urgent: bool| {
            let number = pending.len();
            let may = pending.may_order(16, number as u64, own, is_urgent);
            if may {
                pending.push(chain(number, 16, number as u64, own, is_urgent));
            }
            may
        };
        assert!((0..MOST_NOT_URGENT).all(|_| order(false)));
        assert!(!order(false), "the rest is for urgent ones");
        assert!((MOST_NOT_URGENT..MOST_PENDING).all(|_| order(true)));
        assert!(!order(true));
    }
}
