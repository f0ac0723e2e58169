//! Which SM a block goes to: by threads, registers, shared memory and resident blocks, as on the
//! card (CUDA C Programming Guide, "Compute Capabilities": the limits of a multiprocessor).
//!
//! Pure. Each partition of a client ([`super::partitions`]) has a set of its own over its SMs.
//! Clients share the card in time: a client that fills every SM for ever does not keep another from
//! being placed.

use crate::models::{Capacity, Limits, WARP};

/// SMs that kernels of one client may use, and what each of them still has.
#[derive(Debug)]
pub(super) struct SmSet {
    whole: Capacity,
    /// Numbers of the SMs on the card.
    ids: Vec<u32>,
    /// What each of them has left, in the order of `ids`.
    left: Vec<Capacity>,
    /// The SM to try first, so that blocks spread.
    next: usize,
}

/// The SM on which a block was placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Placement {
    /// `%smid`.
    pub(super) multiprocessor: u32,
    /// Index of the SM in its set.
    at: u32,
    /// `%warpid` of the block's first warp: warps that were on the SM before.
    pub(super) first_warp: u32,
}

/// Where the blocks of a cluster were placed, by rank; without clusters there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Placements {
    first: Placement,
    /// Empty, so that it needs no memory, without clusters.
    others: Vec<Placement>,
}

impl Placements {
    /// The placements by rank.
    pub(super) fn iter(&self) -> impl Iterator<Item = Placement> + '_ {
        std::iter::once(self.first).chain(self.others.iter().copied())
    }
}

impl SmSet {
    /// A set of these SMs of a card, with nothing on them.
    pub(super) fn new(limits: &Limits, ids: Vec<u32>) -> Self {
        Self { whole: limits.sm, left: vec![limits.sm; ids.len()], ids, next: 0 }
    }

    /// Numbers of the SMs on the card, in order.
    pub(super) fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Places a block on an SM that has capacity for it.
    pub(super) fn place_block(&mut self, needs: Capacity) -> Option<Placement> {
        let count = self.left.len();
        let found = (self.next..count).chain(0..self.next).find(|at| self.left.get(*at).is_some_and(|left| needs.fits_into(*left)))?;
        self.next = (found + 1) % count;
        let left = self.left.get_mut(found)?;
        let first_warp = (self.whole.threads - left.threads) / WARP;
        *left = left.minus(needs);
        Some(Placement { multiprocessor: self.ids.get(found).copied().unwrap_or(0), at: found as u32, first_warp })
    }

    /// Places the `count` blocks of a cluster, all or none.
    pub(super) fn place_cluster(&mut self, needs: Capacity, count: u32) -> Option<Placements> {
        let mut placed = Placements { first: self.place_block(needs)?, others: Vec::new() };
        for _ in 1..count {
            let Some(next) = self.place_block(needs) else {
                placed.iter().for_each(|placement| self.release_block(placement, needs));
                return None;
            };
            placed.others.push(next);
        }
        Some(placed)
    }

    /// Frees what [`SmSet::place_block`] took.
    pub(super) fn release_block(&mut self, placement: Placement, needs: Capacity) {
        if let Some(left) = self.left.get_mut(placement.at as usize) {
            *left = left.plus(needs);
        }
    }

    /// Blocks of this size that can be resident at once if nothing else is.
    pub(super) fn capacity(&self, needs: Capacity) -> u64 {
        u64::from(needs.times_in(self.whole)) * self.left.len() as u64
    }

    /// Blocks of this size that can be placed now.
    pub(super) fn free_capacity(&self, needs: Capacity) -> u64 {
        self.left.iter().map(|left| u64::from(needs.times_in(*left))).sum()
    }
}

/// What one block takes of an SM: whole warps, registers for each warp, shared memory with the
/// card's reserve. `registers` of a thread; `shared` in bytes.
pub(super) fn block_needs(limits: &Limits, threads: u32, registers: u32, shared: u32) -> Capacity {
    let warps = threads.div_ceil(WARP);
    let registers = limits.launch.registers_per_warp(registers) * warps;
    let charged = u32::try_from(limits.launch.shared_charged(shared)).unwrap_or(u32::MAX);
    let shared = charged.min(limits.sm.shared.max(shared));
    Capacity { threads: warps * WARP, blocks: 1, registers, shared }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models;
    use proptest::prelude::*;

    fn h200() -> Limits {
        Limits::of(&models::facts("sim:h200", 0).unwrap())
    }

    #[test]
    fn occupancy_is_the_cards() {
        let limits = h200();
        let sms = SmSet::new(&limits, (0..132).collect());
        assert_eq!(sms.capacity(block_needs(&limits, 256, 32, 0)), 8 * 132);
        assert_eq!(sms.capacity(block_needs(&limits, 1024, 64, 0)), 132);
        assert_eq!(sms.capacity(block_needs(&limits, 32, 16, 0)), 32 * 132);
        assert_eq!(sms.capacity(block_needs(&limits, 128, 32, 232_448)), 132);
        assert_eq!(sms.capacity(block_needs(&limits, 128, 32, 100 << 10)), 2 * 132);
        assert_eq!(SmSet::new(&limits, (20..30).collect()).capacity(block_needs(&limits, 256, 32, 0)), 80);
    }

    #[test]
    fn blocks_spread_over_the_set() {
        let limits = h200();
        let mut sms = SmSet::new(&limits, (32..132).collect());
        let need = block_needs(&limits, 64, 32, 0);
        let placements: std::collections::HashSet<u32> = (0..100).filter_map(|_| sms.place_block(need)).map(|placement| placement.multiprocessor).collect();
        assert_eq!(placements.len(), 100);
        assert!(placements.iter().all(|sm| (32..132).contains(sm)));
    }

    #[test]
    fn a_cluster_is_placed_as_a_whole_or_not_at_all() {
        let limits = h200();
        let mut sms = SmSet::new(&limits, vec![4, 5]);
        let need = block_needs(&limits, 1024, 32, 0);
        let cluster = sms.place_cluster(need, 3).unwrap();
        assert_eq!(cluster.iter().map(|placement| placement.multiprocessor).collect::<Vec<_>>(), [4, 5, 4]);
        assert_eq!((sms.place_cluster(need, 2), sms.free_capacity(need)), (None, 1), "the first of the two was given back");
        cluster.iter().for_each(|placement| sms.release_block(placement, need));
        assert_eq!(sms.free_capacity(need), sms.capacity(need));
    }

    proptest! {
        #[test]
        fn never_more_on_an_sm_than_it_has(kinds in proptest::collection::vec((1u32..1025, 16u32..64, 0u32..100_000), 1..5), steps in proptest::collection::vec((0usize..5, any::<bool>()), 0..400)) {
            let limits = h200();
            let mut sms = SmSet::new(&limits, vec![0, 1, 2]);
            let needs: Vec<Capacity> = kinds.iter().map(|(t, r, s)| block_needs(&limits, *t, *r, *s)).collect();
            let mut live: Vec<(Placement, Capacity)> = Vec::new();
            for (kind, place) in steps {
                let need = needs[kind % needs.len()];
                if place {
                    let room = sms.free_capacity(need);
                    let placement = sms.place_block(need);
                    prop_assert_eq!(placement.is_some(), room > 0);
                    live.extend(placement.map(|placement| (placement, need)));
                } else if let Some((placement, need)) = live.pop() {
                    sms.release_block(placement, need);
                }
                for sm in 0..3 {
                    let on = live.iter().filter(|(placement, _)| placement.multiprocessor == sm);
                    let sum = on.fold(Capacity::default(), |sum, (_, needs)| sum.plus(*needs));
                    prop_assert!(sum.fits_into(limits.sm), "{:?}", sum);
                }
            }
            while let Some((placement, need)) = live.pop() {
                sms.release_block(placement, need);
            }
            prop_assert_eq!(sms.free_capacity(needs[0]), sms.capacity(needs[0]));
        }
    }
}
