//! Address space of device memory: who has which part of the arena. Pure bookkeeping.
//!
//! Invariant: ranges handed out never overlap, are multiples of [`GRANULE`], and lie inside the
//! arena.

use cumux_ranges::FreeRanges;
use cumux_wire::layout::{ARENA_BASE, ARENA_BYTES};
use std::ops::Range;

/// Everything in the arena is a multiple of this (2 MiB, the granularity of CUDA's virtual memory).
pub const GRANULE: u64 = 2 << 20;

/// All of it.
pub const ALL: Range<u64> = ARENA_BASE..ARENA_BASE + ARENA_BYTES;

#[derive(Debug)]
pub struct Arena {
    free: FreeRanges,
}

impl Default for Arena {
    fn default() -> Self {
        let mut free = FreeRanges::default();
        free.add(ARENA_BASE, ARENA_BYTES);
        Self { free }
    }
}

impl Arena {
    /// The lowest free range of `bytes` (rounded up to granules) at a multiple of `align`, in a
    /// part of the arena.
    pub fn allocate(&mut self, bytes: u64, align: u64, part: &Range<u64>) -> Option<u64> {
        let bytes = bytes.checked_next_multiple_of(GRANULE)?;
        let found = self.free.first_fit(bytes, align.max(GRANULE), part)?;
        self.claim(found, bytes).then_some(found)
    }

    /// Takes exactly this range; false if any of it is taken or outside.
    pub fn claim(&mut self, address: u64, bytes: u64) -> bool {
        address.is_multiple_of(GRANULE) && bytes.checked_next_multiple_of(GRANULE).is_some_and(|bytes| self.free.reserve(address, bytes))
    }

    /// Gives a range back.
    pub fn release(&mut self, address: u64, bytes: u64) {
        if let Some(bytes) = bytes.checked_next_multiple_of(GRANULE) {
            self.free.release(address, bytes, &ALL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_never_overlap_and_come_back(sizes in proptest::collection::vec((1_u64..1 << 32, 0_u32..3), 1..40)) {
            let mut arena = Arena::default();
            let mut held: Vec<(u64, u64)> = Vec::new();
            for (bytes, action) in sizes {
                if action == 0 && !held.is_empty() {
                    let (address, bytes) = held.swap_remove((bytes % held.len() as u64) as usize);
                    arena.release(address, bytes);
                } else {
                    let address = arena.allocate(bytes, 1 << 21, &ALL).expect("32 TiB are enough");
                    let bytes = bytes.next_multiple_of(GRANULE);
                    prop_assert!(held.iter().all(|(a, b)| address + bytes <= *a || a + b <= address));
                    prop_assert!(!arena.claim(address, GRANULE), "a held range cannot be claimed again");
                    held.push((address, bytes));
                }
            }
            for (address, bytes) in held {
                arena.release(address, bytes);
            }
            prop_assert!(arena.claim(ARENA_BASE, ARENA_BYTES), "everything is one free range again");
        }
    }
}
