//! The SM allocator of a card: how many partitions each SM belongs to, and which SMs the next
//! partition gets. Pure bookkeeping, the same for every device.
//!
//! Partitions are made of pairs of SMs (the smallest unit that Hopper assigns) and are placed where
//! the fewest partitions are, so they overlap only when their sum exceeds the card. Where SMs are
//! scheduled together in groups, a partition as large as several groups gets whole groups: thread
//! block clusters need that.

use std::ops::Range;

/// SMs are assigned in pairs, as on the card.
const PAIR: usize = 2;

/// How many partitions each SM of the card belongs to.
#[derive(Debug, Default)]
pub struct SmAllocator {
    loads: Vec<u32>,
    /// SMs that are scheduled together.
    groups: Vec<Range<u32>>,
}

impl SmAllocator {
    /// A card whose SMs are all alike.
    #[must_use]
    pub fn new(multiprocessors: u32) -> Self {
        Self::with_groups(multiprocessors, Vec::new())
    }

    /// A card with groups of SMs, each beginning with an even number; SMs in none of them are
    /// alike.
    #[must_use]
    pub fn with_groups(multiprocessors: u32, groups: Vec<Range<u32>>) -> Self {
        SmAllocator { loads: vec![0; multiprocessors.max(1) as usize], groups }
    }

    /// The indices of all SMs.
    #[must_use]
    pub fn all(&self) -> Vec<u32> {
        (0..self.loads.len() as u32).collect()
    }

    fn load(&self, sms: impl IntoIterator<Item = u32>) -> u32 {
        sms.into_iter().map(|sm| self.loads.get(sm as usize).copied().unwrap_or(0)).sum()
    }

    /// How many partitions each SM belongs to.
    #[must_use]
    pub fn loads(&self) -> &[u32] {
        &self.loads
    }

    /// How many partitions these SMs belong to, added up.
    #[must_use]
    pub fn partitions_on(&self, sms: &[u32]) -> u32 {
        self.load(sms.iter().copied())
    }

    /// Assigns `count` SMs out of `within` to a new part: those with the fewest partitions, in
    /// order. At least one, and at most all of `within`.
    pub fn assign(&mut self, count: u32, within: &[u32]) -> Vec<u32> {
        let mut chosen = self.groups_of(count, within).unwrap_or_else(|| self.pairs_of(count, within));
        chosen.sort_unstable();
        self.hold(&chosen);
        chosen
    }

    /// Whole groups that make up `count` SMs, if there are such.
    fn groups_of(&self, count: u32, within: &[u32]) -> Option<Vec<u32>> {
        let each = self.groups.first()?.len() as u32;
        if count == 0 || !count.is_multiple_of(each) {
            return None;
        }
        let mut groups: Vec<&Range<u32>> =
            self.groups.iter().filter(|group| group.len() as u32 == each && (**group).clone().all(|sm| within.contains(&sm))).collect();
        groups.sort_by_key(|group| self.load((*group).clone()));
        let chosen = groups.get(..(count / each) as usize)?;
        Some(chosen.iter().flat_map(|group| (*group).clone()).collect())
    }

    /// Pairs; among equals those that break no whole group.
    fn pairs_of(&self, count: u32, within: &[u32]) -> Vec<u32> {
        let whole = |pair: &[u32]| {
            let first = pair.first().copied().unwrap_or(0);
            self.groups.iter().any(|group| group.contains(&first) && self.load(group.clone()) == 0)
        };
        let mut pairs: Vec<&[u32]> = within.chunks(PAIR).collect();
        pairs.sort_by_key(|pair| (self.load(pair.iter().copied()), whole(pair)));
        let mut chosen: Vec<u32> = pairs.concat();
        chosen.truncate((count.max(1) as usize).min(within.len()));
        chosen
    }

    /// Counts one more part on these SMs.
    pub fn hold(&mut self, sms: &[u32]) {
        self.add(sms, 1);
    }

    /// Removes a part from these SMs.
    pub fn release(&mut self, sms: &[u32]) {
        self.add(sms, -1);
    }

    fn add(&mut self, sms: &[u32], change: i32) {
        for sm in sms {
            if let Some(load) = self.loads.get_mut(*sm as usize) {
                *load = load.saturating_add_signed(change);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn whole_groups_where_the_count_is_made_of_them() {
        let mut sm_allocator = SmAllocator::with_groups(20, vec![0..8, 8..16]);
        let all = sm_allocator.all();
        assert_eq!(sm_allocator.assign(2, &all), [16, 17], "no group is broken for a pair");
        assert_eq!(sm_allocator.assign(8, &all), (0..8).collect::<Vec<_>>());
        assert_eq!(sm_allocator.assign(8, &all), (8..16).collect::<Vec<_>>());
        assert_eq!(sm_allocator.assign(2, &all), [18, 19]);
        sm_allocator.release(&(8..16).collect::<Vec<_>>());
        assert_eq!(sm_allocator.assign(4, &all), [8, 9, 10, 11], "what is free, before what is shared");
        assert_eq!(sm_allocator.assign(16, &all), (0..16).collect::<Vec<_>>());
        assert_eq!(sm_allocator.assign(24, &all).len(), 20, "no more than there are");
    }

    proptest! {
        /// Parts lie side by side as long as there is room, whatever came and went before.
        #[test]
        fn parts_overlap_only_when_they_must(sizes in proptest::collection::vec(1_u32..30, 1..40), keep in proptest::collection::vec(any::<bool>(), 40)) {
            let mut sm_allocator = SmAllocator::new(132);
            let all = sm_allocator.all();
            let mut held: Vec<Vec<u32>> = Vec::new();
            for (size, keep) in sizes.into_iter().zip(keep) {
                let size = size * 2;
                let used: u32 = held.iter().map(|part| part.len() as u32).sum();
                let part = sm_allocator.assign(size, &all);
                prop_assert_eq!(part.len() as u32, size);
                if used + size <= 132 {
                    prop_assert!(held.iter().flatten().all(|sm| !part.contains(sm)), "there was room");
                }
                if keep { held.push(part) } else { sm_allocator.release(&part) }
                if held.iter().map(|part| part.len() as u32).sum::<u32>() > 132 {
                    for part in held.drain(..) {
                        sm_allocator.release(&part);
                    }
                }
            }
        }
    }
}
