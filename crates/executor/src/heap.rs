//! One client's device memory: slices of the extents it owns. Pure bookkeeping.
//!
//! Invariants: allocations never overlap and never cross an extent; free ranges of one extent are
//! merged; sizes are multiples of [`SLICE`].

use cumux_ranges::FreeRanges;
use std::collections::BTreeMap;
use std::ops::Range;

/// Alignment and rounding of allocations in bytes (what `cuMemAlloc` gives).
pub const SLICE: u64 = 512;

#[derive(Debug, Default)]
pub struct Heap {
    /// Address and length of every extent.
    extents: BTreeMap<u64, u64>,
    free: FreeRanges,
    /// Allocations by address, rounded length.
    taken: BTreeMap<u64, u64>,
}

impl Heap {
    /// A new extent, all free.
    pub fn add_extent(&mut self, address: u64, bytes: u64) {
        self.extents.insert(address, bytes);
        self.free.add(address, bytes);
    }

    /// Bytes in allocations, rounded.
    #[cfg(test)]
    #[must_use]
    pub fn used(&self) -> u64 {
        self.taken.values().sum()
    }

    #[must_use]
    pub fn extents(&self) -> Vec<(u64, u64)> {
        self.extents.iter().map(|(a, b)| (*a, *b)).collect()
    }

    /// Address and length of the extent around an address.
    #[must_use]
    pub fn extent_of(&self, address: u64) -> Option<(u64, u64)> {
        let (extent, bytes) = self.extents.range(..=address).next_back().map(|(a, b)| (*a, *b))?;
        (address - extent < bytes).then_some((extent, bytes))
    }

    /// Length an allocation of `bytes` takes.
    #[must_use]
    pub fn rounded(bytes: u64) -> Option<u64> {
        bytes.max(1).checked_next_multiple_of(SLICE)
    }

    /// First fit in the extents of a part of the arena. `None` when none has room: add one.
    pub fn allocate(&mut self, bytes: u64, align: u64, part: &Range<u64>) -> Option<u64> {
        let at = self.find(bytes, align, part)?;
        self.place(at, bytes).then_some(at)
    }

    /// Whether an allocation needs no new extent.
    #[must_use]
    pub fn fits(&self, bytes: u64, align: u64, part: &Range<u64>) -> bool {
        self.find(bytes, align, part).is_some()
    }

    fn find(&self, bytes: u64, align: u64, part: &Range<u64>) -> Option<u64> {
        self.free.first_fit(Self::rounded(bytes)?, align.max(SLICE), part)
    }

    /// Takes exactly this range (a restored allocation); false if it is not free.
    pub fn place(&mut self, address: u64, bytes: u64) -> bool {
        let Some(bytes) = Self::rounded(bytes) else { return false };
        if !self.free.reserve(address, bytes) {
            return false;
        }
        self.taken.insert(address, bytes);
        true
    }

    /// Frees the allocation that begins at `address`; returns its rounded length.
    pub fn release(&mut self, address: u64) -> Option<u64> {
        let bytes = self.taken.remove(&address)?;
        let (extent, extent_bytes) = self.extents.range(..=address).next_back().map(|(a, b)| (*a, *b))?;
        self.free.release(address, bytes, &(extent..extent + extent_bytes));
        Some(bytes)
    }

    /// Bytes of the extents in a part of the arena.
    #[must_use]
    pub fn bytes_in(&self, part: &Range<u64>) -> u64 {
        self.extents.range(part.clone()).map(|(_, bytes)| bytes).sum()
    }

    /// An extent larger than `keep` bytes that is entirely free is taken out and returned, unless
    /// it is one of these.
    pub fn idle_extent(&mut self, keep: u64, spare: &[(u64, u64)]) -> Option<(u64, u64)> {
        let idle = |(a, b): &(&u64, &u64)| **b > keep && self.free.is_whole(**a, **b) && !spare.iter().any(|(spare, _)| spare == *a);
        let (address, bytes) = self.extents.iter().find(idle).map(|(a, b)| (*a, *b))?;
        self.extents.remove(&address);
        self.free.remove(address);
        Some((address, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn empty_extents_are_given_up_but_for_the_spare_ones() {
        let (mut heap, all) = (Heap::default(), 0..u64::MAX);
        [(1, 4), (8, 4), (16, 6)].into_iter().for_each(|(at, granules)| heap.add_extent(at << 21, granules << 21));
        assert_eq!((heap.bytes_in(&all), heap.bytes_in(&(8 << 21..16 << 21))), (14 << 21, 4 << 21));
        let taken = heap.allocate(5 << 21, 1, &all).unwrap();
        assert_eq!(heap.idle_extent(0, &[(1 << 21, 4 << 21)]), Some((8 << 21, 4 << 21)));
        assert_eq!(heap.idle_extent(0, &[(1 << 21, 4 << 21)]), None, "one is spare and one in use");
        assert!(heap.release(taken).is_some());
        assert_eq!(heap.idle_extent(5 << 21, &[]), Some((16 << 21, 6 << 21)), "small ones stay");
        assert_eq!((heap.idle_extent(5 << 21, &[]), heap.bytes_in(&all)), (None, 4 << 21));
    }

    proptest! {
        #[test]
        fn allocations_stay_apart_and_inside(steps in proptest::collection::vec((1_u64..5000, any::<bool>(), 0_u32..12), 1..200)) {
            let mut heap = Heap::default();
            heap.add_extent(1 << 21, 1 << 16);
            heap.add_extent((1 << 21) + (1 << 16), 1 << 16);
            let mut held: Vec<(u64, u64)> = Vec::new();
            for (bytes, free, shift) in steps {
                if free && !held.is_empty() {
                    let (address, rounded) = held.swap_remove(bytes as usize % held.len());
                    prop_assert_eq!(heap.release(address), Some(rounded));
                    prop_assert_eq!(heap.release(address), None, "freed once");
                } else if let Some(address) = heap.allocate(bytes, 1 << shift, &(0..u64::MAX)) {
                    let rounded = bytes.next_multiple_of(SLICE);
                    prop_assert!(address.is_multiple_of(1 << shift));
                    prop_assert!(held.iter().all(|(a, b)| address + rounded <= *a || a + b <= address));
                    let boundary = (1 << 21) + (1 << 16);
                    prop_assert!(address + rounded <= boundary || address >= boundary, "inside one extent");
                    held.push((address, rounded));
                }
                prop_assert_eq!(heap.used(), held.iter().map(|h| h.1).sum::<u64>());
            }
            for (address, _) in held {
                heap.release(address);
            }
            prop_assert!(heap.allocate(1 << 16, 512, &(0..u64::MAX)).is_some(), "a whole extent is free again");
        }
    }
}
