//! An allocator: the first free range that fits.

use crate::free::FreeRanges;
use std::collections::BTreeMap;
use std::ops::Range;

/// Everywhere.
const ALL: Range<u64> = 0..u64::MAX;

/// Allocations in some ranges of an address space, each at the lowest address that fits.
///
/// Invariant: allocations never overlap and lie in the ranges that were added; their addresses and
/// lengths are multiples of the grain.
#[derive(Debug)]
pub struct FirstFit {
    grain: u64,
    free: FreeRanges,
    /// Length by address.
    taken: BTreeMap<u64, u64>,
}

impl FirstFit {
    /// An allocator without any range. Allocations are rounded up to multiples of `grain`, a power
    /// of two.
    #[must_use]
    pub fn new(grain: u64) -> Self {
        Self { grain, free: FreeRanges::default(), taken: BTreeMap::new() }
    }

    /// Adds a range, all free, which overlaps no other.
    pub fn add(&mut self, address: u64, bytes: u64) {
        self.free.add(address, bytes);
    }

    /// Takes at least `bytes` bytes at a multiple of `align` (a power of two); `None` where there
    /// is no such range.
    pub fn allocate(&mut self, bytes: u64, align: u64) -> Option<u64> {
        let bytes = bytes.max(1).checked_next_multiple_of(self.grain)?;
        let address = self.free.first_fit(bytes, align.max(self.grain), &ALL)?;
        if !self.free.reserve(address, bytes) {
            return None;
        }
        self.taken.insert(address, bytes);
        Some(address)
    }

    /// Frees the allocation that begins at `address`. Returns its rounded length; `None` where none
    /// begins there.
    pub fn release(&mut self, address: u64) -> Option<u64> {
        let bytes = self.taken.remove(&address)?;
        self.free.release(address, bytes, &ALL);
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn allocations_stay_apart_and_all_comes_back(steps in proptest::collection::vec((1_u64..5000, any::<bool>(), 0_u32..13), 1..200)) {
            const GRAIN: u64 = 64;
            let mut heap = FirstFit::new(GRAIN);
            heap.add(1 << 20, 1 << 17);
            let mut held: Vec<(u64, u64)> = Vec::new();
            for (bytes, free, shift) in steps {
                if free && !held.is_empty() {
                    let (address, rounded) = held.swap_remove(bytes as usize % held.len());
                    prop_assert_eq!(heap.release(address), Some(rounded));
                    prop_assert_eq!(heap.release(address), None, "freed once");
                } else if let Some(address) = heap.allocate(bytes, 1 << shift) {
                    let rounded = bytes.next_multiple_of(GRAIN);
                    prop_assert!(address.is_multiple_of(1 << shift) && address.is_multiple_of(GRAIN));
                    prop_assert!(address >= 1 << 20 && address + rounded <= (1 << 20) + (1 << 17));
                    prop_assert!(held.iter().all(|(a, b)| address + rounded <= *a || a + b <= address));
                    held.push((address, rounded));
                }
            }
            for (address, _) in held {
                heap.release(address);
            }
            prop_assert_eq!(heap.allocate(1 << 17, 1), Some(1 << 20), "one free range again");
            prop_assert_eq!(heap.allocate(1, 1), None);
        }
    }

    #[test]
    fn the_first_fit_is_the_lowest_inside_the_bounds() {
        let mut free = FreeRanges::default();
        free.add(0x1000, 0x1000);
        free.add(0x4000, 0x4000);
        assert_eq!(free.first_fit(0x1000, 1, &(0..u64::MAX)), Some(0x1000));
        assert_eq!(free.first_fit(0x1000, 1, &(0x1001..u64::MAX)), Some(0x4000));
        assert_eq!(free.first_fit(0x1000, 0x2000, &(0x5000..0x7000)), Some(0x6000));
        assert_eq!(free.first_fit(0x1000, 0x2000, &(0x5000..0x6fff)), None);
        assert_eq!(free.first_fit(u64::MAX, 1, &(0..u64::MAX)), None);
    }
}
