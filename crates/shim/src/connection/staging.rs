//! Slices of the window through which pageable memory travels. A slice is free again when the copy
//! that read or filled it is done.

use super::pipe::TimelineId;

/// Slices: a few large ones for bulk, many small ones so that small copies in many streams do not
/// wait for one another. Those that most programs use come first, within what every device reaches
/// from the beginning ([`cumux_wire::layout::WINDOW_FIRST_BYTES`]).
const LARGE: u64 = 1 << 20;
const LARGE_COUNT: usize = 8;
const SMALL: u64 = 32 << 10;
const SMALL_COUNT: usize = 32;
/// Bytes of all slices.
pub const BYTES: u64 = LARGE * LARGE_COUNT as u64 + SMALL * SMALL_COUNT as u64;

/// The work that still uses a slice: nothing (free), a copy, or a thread that has not said yet
/// which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Free,
    Held,
    Until(TimelineId, u64),
}

#[derive(Debug)]
struct Slice {
    address: u64,
    bytes: u64,
    used: Use,
}

/// All slices of a window.
#[derive(Debug)]
pub struct Staging {
    slices: Vec<Slice>,
}

/// A slice in hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Where it lies in the window.
    pub address: u64,
    /// Bytes that its holder uses.
    pub bytes: u64,
    index: usize,
}

impl Staging {
    /// The slices of a window that begins at `base`, all free.
    #[must_use]
    pub fn new(base: u64) -> Self {
        let small = (0..SMALL_COUNT as u64).map(|n| (base + n * SMALL, SMALL));
        let large = (0..LARGE_COUNT as u64).map(|n| (base + SMALL * SMALL_COUNT as u64 + n * LARGE, LARGE));
        Self { slices: small.chain(large).map(|(address, bytes)| Slice { address, bytes, used: Use::Free }).collect() }
    }

    /// A free slice for up to `bytes` bytes (the caller sends the rest with the next one), or
    /// `None` when all of that size are in use.
    pub fn take_slice(&mut self, bytes: u64, done: impl Fn(TimelineId, u64) -> bool) -> Option<Taken> {
        let wanted = if bytes <= SMALL { SMALL } else { LARGE };
        let free = |slice: &Slice| match slice.used {
            Use::Free => true,
            Use::Held => false,
            Use::Until(timeline, seq) => done(timeline, seq),
        };
        let index = self.slices.iter().position(|slice| slice.bytes == wanted && free(slice))?;
        let slice = self.slices.get_mut(index)?;
        slice.used = Use::Held;
        Some(Taken { address: slice.address, bytes: slice.bytes.min(bytes), index })
    }

    /// Says until when the slice is in use; `None` frees it now.
    pub fn hold_until(&mut self, taken: Taken, work: Option<(TimelineId, u64)>) {
        if let Some(slice) = self.slices.get_mut(taken.index) {
            slice.used = work.map_or(Use::Free, |(timeline, seq)| Use::Until(timeline, seq));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_free_when_its_copy_is_done_and_small_copies_do_not_take_large_ones() {
        let mut staging = Staging::new(0x1000);
        let timeline = TimelineId { index: 3, epoch: 1 };
        let mut seen = Vec::new();
        for seq in 1..=LARGE_COUNT as u64 {
            let taken = staging.take_slice(10 << 20, |_, _| false).expect("a slice");
            assert_eq!(taken.bytes, LARGE);
            assert!(!seen.contains(&taken.address));
            seen.push(taken.address);
            staging.hold_until(taken, Some((timeline, seq)));
        }
        assert_eq!(staging.take_slice(LARGE, |_, seq| seq < 1), None);
        assert_eq!(staging.take_slice(LARGE, |l, seq| l == timeline && seq <= 1).map(|t| t.address), seen.first().copied());
        assert_eq!(staging.take_slice(LARGE, |_, seq| seq <= 1), None, "held");
        assert!(staging.take_slice(4, |_, _| false).is_some_and(|t| t.bytes == 4 && !seen.contains(&t.address)));
    }

    #[test]
    fn one_copy_at_a_time_stays_within_what_every_device_reaches() {
        let mut staging = Staging::new(0);
        for bytes in [1, SMALL, SMALL + 1, LARGE, 10 << 20] {
            let taken = staging.take_slice(bytes, |_, _| false).expect("a slice");
            assert!(taken.address + taken.bytes <= cumux_wire::layout::WINDOW_FIRST_BYTES, "{bytes}: {taken:?}");
            staging.hold_until(taken, None);
        }
    }
}
