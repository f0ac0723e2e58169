//! Which SM a block goes to: by threads, registers, shared memory and block slots, as on the card.
//!
//! Pure. Each part of a client ([`super::parts`]) has a table of its own over its SMs: clients share the card in time, so one that fills every SM for ever
//! does not keep another from being placed.

use crate::models::{Capacity, Limits};

/// What one SM still has, and how many threads are on it.
#[derive(Debug, Clone, Copy)]
struct Sm {
    left: Capacity,
}

/// A set of SMs that kernels of one client may use.
#[derive(Debug)]
pub(crate) struct SmSet {
    whole: Capacity,
    /// Their numbers on the card, beside `sms`.
    ids: Vec<u32>,
    sms: Vec<Sm>,
    /// Where to look first, so that blocks spread.
    next: usize,
}

/// Where a block was placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) multiprocessor: u32,
    /// Its place in the set.
    at: u32,
    /// Warps that were on the SM before.
    pub(crate) first_warp: u32,
}

const fn fits(need: Capacity, left: Capacity) -> bool {
    need.threads <= left.threads && need.blocks <= left.blocks && need.registers <= left.registers && need.shared <= left.shared
}

/// How often `need` fits into `left`.
fn times_fitting(need: Capacity, left: Capacity) -> u32 {
    let per = |left: u32, need: u32| left.checked_div(need).unwrap_or(u32::MAX);
    per(left.threads, need.threads).min(per(left.blocks, need.blocks)).min(per(left.registers, need.registers)).min(per(left.shared, need.shared))
}

impl SmSet {
    /// These SMs of a card.
    pub(crate) fn new(limits: &Limits, ids: Vec<u32>) -> Self {
        Self { whole: limits.sm, sms: vec![Sm { left: limits.sm }; ids.len()], ids, next: 0 }
    }

    /// Their numbers, in order.
    pub(crate) fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Finds an SM with room and takes it.
    pub(crate) fn place_block(&mut self, need: Capacity) -> Option<Placement> {
        let count = self.sms.len();
        let found = (self.next..count).chain(0..self.next).find(|at| self.sms.get(*at).is_some_and(|sm| fits(need, sm.left)))?;
        self.next = (found + 1) % count;
        let left = &mut self.sms.get_mut(found)?.left;
        let first_warp = (self.whole.threads - left.threads) / 32;
        left.threads -= need.threads;
        left.blocks -= need.blocks;
        left.registers -= need.registers;
        left.shared -= need.shared;
        Some(Placement { multiprocessor: self.ids.get(found).copied().unwrap_or(0), at: found as u32, first_warp })
    }

    /// Gives back what [`SmSet::place_block`] took.
    pub(crate) fn release_block(&mut self, seat: Placement, need: Capacity) {
        if let Some(Sm { left }) = self.sms.get_mut(seat.at as usize) {
            left.threads += need.threads;
            left.blocks += need.blocks;
            left.registers += need.registers;
            left.shared += need.shared;
        }
    }

    /// Blocks of this size that can be resident at once when nothing else is.
    pub(crate) fn capacity(&self, need: Capacity) -> u64 {
        u64::from(times_fitting(need, self.whole)) * self.sms.len() as u64
    }

    /// Blocks of this size for which there is room now.
    pub(crate) fn free_capacity(&self, need: Capacity) -> u64 {
        self.sms.iter().map(|sm| u64::from(times_fitting(need, sm.left))).sum()
    }
}

/// What one block takes of an SM: whole warps, registers in units of 256 a warp, shared memory in units of 128 bytes with the card's reserve.
pub(crate) fn block_needs(limits: &Limits, threads: u32, registers: u32, shared: u32) -> Capacity {
    let warps = threads.div_ceil(32);
    let registers = (registers * 32).next_multiple_of(256) * warps;
    let shared = shared.saturating_add(limits.shared_reserved).next_multiple_of(128).min(limits.sm.shared.max(shared));
    Capacity { threads: warps * 32, blocks: 1, registers, shared }
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
        let seats: std::collections::HashSet<u32> = (0..100).filter_map(|_| sms.place_block(need)).map(|seat| seat.multiprocessor).collect();
        assert_eq!(seats.len(), 100);
        assert!(seats.iter().all(|sm| (32..132).contains(sm)));
    }

    proptest! {
        #[test]
        fn never_more_on_an_sm_than_it_has(kinds in proptest::collection::vec((1u32..1025, 16u32..64, 0u32..100_000), 1..5), steps in proptest::collection::vec((0usize..5, any::<bool>()), 0..400)) {
            let limits = Limits { multiprocessors: 3, ..h200() };
            let mut sms = SmSet::new(&limits, vec![0, 1, 2]);
            let needs: Vec<Capacity> = kinds.iter().map(|(t, r, s)| block_needs(&limits, *t, *r, *s)).collect();
            let mut live: Vec<(Placement, Capacity)> = Vec::new();
            for (kind, place) in steps {
                let need = needs[kind % needs.len()];
                if place {
                    let room = sms.free_capacity(need);
                    let seat = sms.place_block(need);
                    prop_assert_eq!(seat.is_some(), room > 0);
                    live.extend(seat.map(|seat| (seat, need)));
                } else if let Some((seat, need)) = live.pop() {
                    sms.release_block(seat, need);
                }
                for sm in 0..3 {
                    let on = live.iter().filter(|(seat, _)| seat.multiprocessor == sm);
                    let sum = on.fold(Capacity::default(), |a, (_, n)| Capacity {
                        threads: a.threads + n.threads, blocks: a.blocks + n.blocks, registers: a.registers + n.registers, shared: a.shared + n.shared,
                    });
                    prop_assert!(fits(sum, limits.sm), "{:?}", sum);
                }
            }
            while let Some((seat, need)) = live.pop() {
                sms.release_block(seat, need);
            }
            prop_assert_eq!(sms.free_capacity(needs[0]), sms.capacity(needs[0]));
        }
    }
}
