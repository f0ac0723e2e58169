//! Which multiprocessors of a client's share a part of it has. Pure.
//!
//! A client does not know which multiprocessors of the card its share has, and they may change
//! while it runs. It names them by their positions in the share: position 0 is the first of them,
//! in the device's order. Parts with the same positions have the same multiprocessors, and parts
//! without a common position have none in common.

use serde::{Deserialize, Serialize};

const WORDS: usize = 4;
const BITS: u32 = u64::BITS;

/// A set of positions in a client's share.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SmPositions([u64; WORDS]);

impl SmPositions {
    /// Positions from here on cannot be named. No card has more multiprocessors.
    pub const MOST: u32 = WORDS as u32 * BITS;

    /// The first `count` positions; `None` for more than can be named.
    #[must_use]
    pub fn first(count: u32) -> Option<Self> {
        (count <= Self::MOST).then(|| (0..count).collect())
    }

    /// As [`SmPositions::words`] gave it.
    #[must_use]
    pub const fn from_words(words: [u64; WORDS]) -> Self {
        Self(words)
    }

    /// One bit a position, the lowest first.
    #[must_use]
    pub const fn words(self) -> [u64; WORDS] {
        self.0
    }

    /// How many there are.
    #[must_use]
    pub fn count(self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// The positions, in order.
    pub fn iter(self) -> impl Iterator<Item = u32> {
        let is_set = move |position: &u32| self.0.get((position / BITS) as usize).is_some_and(|word| word >> (position % BITS) & 1 == 1);
        (0..Self::MOST).filter(is_set)
    }

    /// Those of both.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        self.iter().chain(other.iter()).collect()
    }

    /// Whether both have a position.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.0.iter().zip(other.0).any(|(own, other)| own & other != 0)
    }

    /// The first `count` of them, and the others.
    #[must_use]
    pub fn split(self, count: u32) -> (Self, Self) {
        let taken: Self = self.iter().take(count as usize).collect();
        (taken, self.iter().skip(count as usize).collect())
    }

    /// The multiprocessors at these positions of a share, in order. Positions behind the end of a
    /// share that has shrunk begin at its front again, so that no part is without multiprocessors.
    #[must_use]
    pub fn pick(self, share: &[u32]) -> Vec<u32> {
        let mut picked: Vec<u32> = self.iter().filter_map(|position| share.get(position as usize % share.len().max(1)).copied()).collect();
        picked.sort_unstable();
        picked.dedup();
        picked
    }

    /// How many multiprocessors [`SmPositions::pick`] finds in a share of this size.
    #[must_use]
    pub fn count_within(self, share: u32) -> u32 {
        if share == 0 {
            return 0;
        }
        self.iter().map(|position| position % share).collect::<Self>().count()
    }
}

/// Positions that cannot be named are left out.
impl FromIterator<u32> for SmPositions {
    fn from_iter<I: IntoIterator<Item = u32>>(positions: I) -> Self {
        let mut words = [0; WORDS];
        for position in positions {
            if let Some(word) = words.get_mut((position / BITS) as usize) {
                *word |= 1 << (position % BITS);
            }
        }
        Self(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn positions_are_counted_split_and_picked() {
        let all = SmPositions::first(132).unwrap();
        let (low, high) = all.split(66);
        assert_eq!((all.count(), low.count(), high.count(), low.overlaps(high), low.union(high) == all), (132, 66, 66, false, true));
        assert_eq!(SmPositions::first(257), None);
        assert!(SmPositions::default().is_empty() && SmPositions::first(256).is_some_and(|all| all.count() == 256));
        let share: Vec<u32> = (0..20).map(|n| n * 2).collect();
        assert_eq!(SmPositions::from_iter([0, 3, 19]).pick(&share), [0, 6, 38]);
        assert_eq!(SmPositions::from_iter([1, 20, 21]).pick(&share), [0, 2], "behind the end it begins again");
        assert_eq!(SmPositions::from_iter([1, 2]).pick(&[]), Vec::<u32>::new());
        assert_eq!(SmPositions::from_words(high.words()), high);
    }

    proptest! {
        #[test]
        fn counts_are_those_of_what_is_picked(positions in proptest::collection::vec(0_u32..256, 1..40), share in 1_u32..300) {
            let positions: SmPositions = positions.into_iter().collect();
            let picked = positions.pick(&(0..share).collect::<Vec<_>>());
            prop_assert_eq!(positions.count_within(share), picked.len() as u32);
            prop_assert!(!picked.is_empty() && picked.len() as u32 <= positions.count());
        }
    }
}
