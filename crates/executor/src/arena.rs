//! Address space of device memory: who has which part of the arena. Pure bookkeeping.
//!
//! Invariant: ranges handed out never overlap, are multiples of [`GRANULE`], and lie inside the
//! arena.
//!
//! Executors that live at the same time look for addresses in different *stripes* first, so that a
//! session can go from one to another and find its addresses free there. A stripe is a preference:
//! where it is full, any address is taken.

use cumux_ranges::FreeRanges;
use cumux_wire::layout::{ARENA_BASE, ARENA_BYTES};
use std::ops::Range;

/// Everything in the arena is a multiple of this (2 MiB, the granularity of CUDA's virtual memory).
pub const GRANULE: u64 = 2 << 20;

/// All of it.
pub const ALL: Range<u64> = ARENA_BASE..ARENA_BASE + ARENA_BYTES;

/// Stripes of a part of the arena. They lie in its first half, which clients keep free of their own
/// mappings.
const STRIPES: u64 = 8;

#[derive(Debug)]
pub struct Arena {
    free: FreeRanges,
    stripe: u32,
}

impl Default for Arena {
    fn default() -> Self {
        let mut free = FreeRanges::default();
        free.add(ARENA_BASE, ARENA_BYTES);
        Self { free, stripe: 0 }
    }
}

/// The stripe of this number in a part of the arena.
fn stripe_of(part: &Range<u64>, number: u32) -> Range<u64> {
    let bytes = (part.end - part.start) / 2 / STRIPES / GRANULE * GRANULE;
    let start = part.start + u64::from(number) % STRIPES * bytes;
    start..start + bytes
}

impl Arena {
    /// From now on addresses are looked for in the stripe of this number first.
    pub fn set_stripe(&mut self, stripe: u32) {
        self.stripe = stripe;
    }

    /// The number of its stripe.
    #[must_use]
    pub fn stripe(&self) -> u32 {
        self.stripe
    }

    /// The lowest free range of `bytes` (rounded up to granules) at a multiple of `align`, in a
    /// part of the arena: in its stripe, or anywhere.
    pub fn allocate(&mut self, bytes: u64, align: u64, part: &Range<u64>) -> Option<u64> {
        let bytes = bytes.checked_next_multiple_of(GRANULE)?;
        let align = align.max(GRANULE);
        let found = self.free.first_fit(bytes, align, &stripe_of(part, self.stripe)).or_else(|| self.free.first_fit(bytes, align, part))?;
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

    #[test]
    fn executors_with_different_stripes_take_different_addresses() {
        let part = cumux_wire::layout::arena_window(0);
        let (mut one, mut other) = (Arena::default(), Arena::default());
        other.set_stripe(3);
        let taken: Vec<u64> = (0..100).map(|_| one.allocate(64 << 20, GRANULE, &part).unwrap()).collect();
        for address in taken {
            assert!(other.allocate(64 << 20, GRANULE, &part).is_some_and(|own| own >= part.start + (3 << 37)) && other.claim(address, 64 << 20));
        }
        // More than a stripe holds, and more than one allocation can have of it.
        assert!(other.allocate(1 << 40, GRANULE, &part).is_some_and(|address| part.contains(&address)));
    }

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
