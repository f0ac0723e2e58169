//! The chains of an engine that are ordered and not made. Pure.
//!
//! Of two orders that may serve the same batches the second is refused: a stream gets twins one
//! after the other, and a general chain serves many kernels.

use super::chain::Purpose;
use crate::track::FenceWord;
use cumux_device::StreamId;

/// Most chains of an engine that are ordered and not made, and most of them that are not urgent.
const MOST_PENDING: usize = 64;
const MOST_NOT_URGENT: usize = 42;

/// Most chains of an engine when one more is ordered: segments of large programs need many, and are
/// known to come again. (docs/performance.md has what a thousand graphs cost the driver.)
const MOST_OF_SEGMENTS: usize = 1024;
const MOST_BY_CHANCE: usize = 256;
/// So many chains there may be that were ordered by chance, however many others there are.
const PLACES_FOR_CHANCE: usize = 64;

/// On what occasion a chain is ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Occasion {
    /// A segment has come often for which its stream has no chain.
    FirstOfSegment,
    /// A segment has come often for which its stream's chains have other parameters.
    TwinOfSegment,
    /// Anything else: a batch that ended by chance, or kernels of anybody.
    Chance,
}

/// Whether there is a place for one more chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// There is.
    Free,
    /// Once an old chain is evicted, whatever it is for.
    InPlaceOfAny,
    /// Once an old chain is evicted that was ordered by chance.
    InPlaceOfChance,
    /// The same, and also if there is no such chain.
    BesideOthers,
}

impl Occasion {
    /// Whether there is a place for a chain that is ordered now. `all` chains and orders there are,
    /// `by_chance` of them were ordered by chance, and `words` are left for fences.
    ///
    /// What comes by chance takes no segment's place. It takes the place of what came by chance
    /// before, of whatever length: a program that has gone leaves its chains behind.
    pub(super) fn room(self, all: usize, by_chance: impl FnOnce() -> usize, words: usize) -> Room {
        let most = if self == Occasion::Chance { MOST_BY_CHANCE } else { MOST_OF_SEGMENTS };
        if all < most && words > 0 {
            Room::Free
        } else if self != Occasion::Chance {
            Room::InPlaceOfAny
        } else if all < MOST_OF_SEGMENTS && words > 0 && by_chance() < PLACES_FOR_CHANCE {
            Room::BesideOthers
        } else {
            Room::InPlaceOfChance
        }
    }
}

/// A chain that is ordered and not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PendingChain {
    /// The number of its kernels.
    pub length: usize,
    /// The hash of their functions.
    pub(super) shape: u64,
    /// Why it was ordered.
    pub(super) occasion: Occasion,
    /// The word for its fence.
    pub word: FenceWord,
    /// What it is for.
    pub purpose: Purpose,
}

impl PendingChain {
    /// True if it is worth a stop of the card.
    pub(crate) fn is_urgent(&self) -> bool {
        self.occasion == Occasion::FirstOfSegment
    }
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

    /// How many of them were ordered by chance.
    pub(super) fn count_by_chance(&self) -> usize {
        self.0.iter().filter(|other| other.occasion == Occasion::Chance).count()
    }

    /// True if one is for this stream.
    pub(super) fn has_own(&self, stream: StreamId) -> bool {
        self.0.iter().any(|other| other.purpose == Purpose::Own(stream))
    }

    /// True if another one may be ordered: there is room, and none that may serve as well.
    pub(super) fn may_order(&self, length: usize, shape: u64, purpose: Purpose, occasion: Occasion) -> bool {
        let serves = |other: &PendingChain| other.length == length && other.purpose == purpose && (purpose == Purpose::General || other.shape == shape);
        let has_room = occasion == Occasion::FirstOfSegment || self.0.iter().filter(|other| !other.is_urgent()).count() < MOST_NOT_URGENT;
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

    fn chain(word: usize, length: usize, shape: u64, purpose: Purpose, occasion: Occasion) -> PendingChain {
        PendingChain { length, shape, occasion, word: FenceWord(word), purpose }
    }

    #[test]
    fn what_may_serve_as_well_is_not_ordered_twice() {
        let (mut pending, own) = (PendingChains::default(), |stream| Purpose::Own(StreamId(stream)));
        let first = chain(1, 16, 7, own(1), Occasion::FirstOfSegment);
        pending.push(first);
        pending.push(chain(2, 8, 7, Purpose::General, Occasion::Chance));
        let may = |pending: &PendingChains, length, shape, purpose| pending.may_order(length, shape, purpose, Occasion::Chance);
        assert!(!may(&pending, 16, 7, own(1)), "a twin comes later");
        assert!(may(&pending, 16, 8, own(1)) && may(&pending, 16, 7, own(2)) && may(&pending, 17, 7, own(1)), "another batch or stream");
        assert!(!may(&pending, 8, 9, Purpose::General), "a general chain is set to other kernels");
        assert!(may(&pending, 4, 7, Purpose::General) && may(&pending, 8, 7, own(1)));
        assert_eq!((pending.count_of(16), pending.count_of(4)), (1, 0));
        assert!(pending.has_own(StreamId(1)) && !pending.has_own(StreamId(2)));
        pending.remove(first);
        assert!(may(&pending, 16, 7, own(1)), "it was made");
    }

    #[test]
    fn urgent_chains_have_places_of_their_own() {
        let (mut pending, own) = (PendingChains::default(), Purpose::Own(StreamId(1)));
        let mut order = |occasion: Occasion| {
            let number = pending.len();
            let may = pending.may_order(16, number as u64, own, occasion);
            if may {
                pending.push(chain(number, 16, number as u64, own, occasion));
            }
            may
        };
        assert!((0..MOST_NOT_URGENT).all(|_| order(Occasion::TwinOfSegment)));
        assert!(!order(Occasion::TwinOfSegment), "the rest is for urgent ones");
        assert!((MOST_NOT_URGENT..MOST_PENDING).all(|_| order(Occasion::FirstOfSegment)));
        assert!(!order(Occasion::FirstOfSegment));
    }

    #[test]
    fn what_comes_by_chance_takes_the_place_of_what_came_by_chance() {
        let (chance, segment) = (Occasion::Chance, Occasion::FirstOfSegment);
        assert_eq!((chance.room(255, || 255, 9), segment.room(1023, || 0, 9)), (Room::Free, Room::Free));
        assert_eq!(chance.room(256, || 256, 9), Room::InPlaceOfChance, "a program that has gone has left them");
        assert_eq!(chance.room(1000, || 64, 9), Room::InPlaceOfChance);
        assert_eq!(chance.room(1000, || 63, 9), Room::BesideOthers, "others have many segments");
        assert_eq!((chance.room(1024, || 0, 9), chance.room(10, || 0, 0)), (Room::InPlaceOfChance, Room::InPlaceOfChance));
        assert_eq!((segment.room(1024, || 0, 9), segment.room(10, || 0, 0)), (Room::InPlaceOfAny, Room::InPlaceOfAny));
    }
}
