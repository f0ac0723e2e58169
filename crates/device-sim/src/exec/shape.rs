//! How the addresses of a warp's access lie: found once for all lanes.
//!
//! The raw pointers of [`super::coalesced`] rely on it: no address lies outside of `low` and
//! `high`, and the pattern is true of every lane of the mask.

// Several arrays and masks are indexed by the same lane.
#![allow(clippy::needless_range_loop)]

use crate::simd::lanes::{LANES, PerLane};
use crate::simd::processor::{VectorCode, run_fastest};

/// How the lanes' addresses lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pattern {
    /// All lanes have the same address.
    Broadcast,
    /// The lanes' bytes follow each other without gaps, a row; all 32 lanes' bytes may be touched.
    Contiguous,
    /// A row of which only the bytes of the mask's lanes may be touched.
    ContiguousMasked,
    /// Each eight neighbouring lanes are a row, as in blocks that are 8 or 16 threads wide. All 32
    /// lanes take part.
    RowsOfEight,
    /// Each eight neighbouring lanes have the same address. All 32 lanes take part.
    SameOfEight,
    /// Anything else.
    Scattered,
}

impl Pattern {
    /// Whether the addresses of single lanes are needed to find their bytes.
    #[inline(always)]
    pub fn needs_addresses(self) -> bool {
        matches!(self, Pattern::RowsOfEight | Pattern::SameOfEight | Pattern::Scattered)
    }
}

/// Lanes of a group in [`Pattern::RowsOfEight`] and [`Pattern::SameOfEight`].
pub(super) const GROUP: usize = 8;

/// What the addresses of an access have in common.
#[derive(Debug, Clone, Copy)]
pub(super) struct AddressShape {
    /// The lowest address.
    pub low: u64,
    /// The highest address.
    pub high: u64,
    /// A low bit that is set here keeps some address from being aligned.
    pub any: u64,
    /// Never [`Pattern::ContiguousMasked`].
    pub pattern: Pattern,
}

/// The lanes' numbers, times 0, 1, 2, 4, 8, 16 and 32.
static RAMPS: [[u64; LANES]; 7] = {
    let mut ramps = [[0; LANES]; 7];
    let mut power = 0;
    while power < 6 {
        let mut lane = 0;
        while lane < LANES {
            ramps[power + 1][lane] = (lane as u64) << power;
            lane += 1;
        }
        power += 1;
    }
    ramps
};

/// As [`RAMPS`], for 32-bit addresses.
static SHORT_RAMPS: [[u32; LANES]; 7] = {
    let mut ramps = [[0; LANES]; 7];
    let mut at = 0;
    while at < 7 * LANES {
        ramps[at / LANES][at % LANES] = RAMPS[at / LANES][at % LANES] as u32;
        at += 1;
    }
    ramps
};

/// Combines all lanes. Halving makes the compiler use vector instructions; a plain loop is unrolled
/// and stays scalar.
#[inline(always)]
fn fold_lanes<T: Copy>(mut lanes: [T; LANES], f: impl Fn(T, T) -> T) -> T {
    for half in [16, 8, 4, 2, 1] {
        for lane in 0..half {
            lanes[lane] = f(lanes[lane], lanes[lane + half]);
        }
    }
    lanes[0]
}

macro_rules! shape_of {
    ($(#[$doc:meta])* $name:ident, $ty:ty, $ramps:expr, $rest:ident) => {
        $(#[$doc])*
        #[inline(always)]
        pub fn $name(at: &PerLane<$ty>, mask: u32, step: u64) -> AddressShape {
            let (first, last) = ((mask.trailing_zeros() & 31) as usize, (31 - mask.leading_zeros()) as usize & 31);
            let (start, end) = (at.0[first], at.0[last]);
            let power_of_row = (step.trailing_zeros() as usize + 1).min($ramps.len() - 1);
            let power = power_of_row;
            // The outermost lanes tell which pattern it can be: if they have one address, a
            // broadcast, and if they are as far apart as in a row, a row.
            let power = if end == start { Some(0) } else if end.wrapping_sub(start) == $ramps[power][last - first] && end > start { Some(power) } else { None };
            if let Some(power) = power {
                let ramp = &$ramps[power];
                let base = start.wrapping_sub(ramp[first]);
                // What is not as in the pattern, for the lanes of each group together.
                let mut bent = [0; GROUP];
                if mask == u32::MAX {
                    for from in (0..LANES).step_by(GROUP) {
                        for lane in 0..GROUP {
                            bent[lane] |= at.0[from + lane].wrapping_sub(base) ^ ramp[from + lane];
                        }
                    }
                } else {
                    for from in (0..LANES).step_by(GROUP) {
                        for lane in 0..GROUP {
                            let on = (0 as $ty).wrapping_sub((mask >> (from + lane) & 1) as $ty);
                            bent[lane] |= (at.0[from + lane].wrapping_sub(base) ^ ramp[from + lane]) & on;
                        }
                    }
                }
                if bent.iter().fold(0, |all, bent| all | bent) == 0 {
                    let pattern = if power == 0 { Pattern::Broadcast } else { Pattern::Contiguous };
                    return AddressShape { low: start.into(), high: end.into(), any: start.into(), pattern };
                }
            }
            run_fastest($rest { at, mask, power_of_row })
        }
    };
}

/// The shape of addresses that are no row and not the same: code of its own, so that the usual
/// cases stay short.
macro_rules! rest_of_shape {
    ($rest:ident, $ty:ty, $ramps:expr) => {
        struct $rest<'a> {
            at: &'a PerLane<$ty>,
            mask: u32,
            power_of_row: usize,
        }

        impl VectorCode for $rest<'_> {
            type Out = AddressShape;

            #[inline(always)]
            fn run(self) -> AddressShape {
                let $rest { at, mask, power_of_row } = self;
                let start = at.0[0];
                if mask == u32::MAX {
                    // The same question for groups of eight lanes; the first group tells which
                    // pattern it can be.
                    let apart = at.0[GROUP - 1].wrapping_sub(start);
                    let power = if apart == 0 {
                        Some(0)
                    } else if apart == $ramps[power_of_row][GROUP - 1] {
                        Some(power_of_row)
                    } else {
                        None
                    };
                    if let Some(power) = power {
                        let ramp = &$ramps[power];
                        let (mut bent, mut any) = ([0; GROUP], 0);
                        let (mut low, mut high) = (start, start);
                        let mut wraps = false;
                        for from in (0..LANES).step_by(GROUP) {
                            let (first, last) = (at.0[from], at.0[from + GROUP - 1]);
                            for lane in 0..GROUP {
                                bent[lane] |= at.0[from + lane].wrapping_sub(first) ^ ramp[lane];
                            }
                            wraps |= last < first;
                            any |= first;
                            low = low.min(first);
                            high = high.max(last);
                        }
                        let mut all = 0;
                        for lane in 0..GROUP {
                            all |= bent[lane];
                        }
                        if all == 0 && !wraps {
                            let pattern = if power == 0 { Pattern::SameOfEight } else { Pattern::RowsOfEight };
                            return AddressShape { low: low.into(), high: high.into(), any: any.into(), pattern };
                        }
                    }
                }
                let mut set = at.0;
                let mut low = at.0;
                if mask != u32::MAX {
                    for lane in 0..LANES {
                        let on = (0 as $ty).wrapping_sub((mask >> lane & 1) as $ty);
                        set[lane] &= on;
                        low[lane] |= !on;
                    }
                }
                let (low, high, any) = (fold_lanes(low, |a, b| a.min(b)), fold_lanes(set, |a, b| a.max(b)), fold_lanes(set, |a, b| a | b));
                AddressShape { low: low.into(), high: high.into(), any: any.into(), pattern: Pattern::Scattered }
            }
        }
    };
}
rest_of_shape! { RestOfShape, u64, RAMPS }
rest_of_shape! { RestOfShortShape, u32, SHORT_RAMPS }

impl AddressShape {
    shape_of! {
        /// The shape of the addresses of the lanes in `mask` (not zero). Each lane has `step`
        /// bytes, a power of two of at most 32.
        of_addresses, u64, RAMPS, RestOfShape
    }
    shape_of! {
        /// As [`of_addresses`](Self::of_addresses), for 32-bit addresses.
        of_short_addresses, u32, SHORT_RAMPS, RestOfShortShape
    }

    /// The shape of lanes that all have the address `at`.
    #[inline(always)]
    pub fn broadcast(at: u64) -> AddressShape {
        AddressShape { low: at, high: at, any: at, pattern: Pattern::Broadcast }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shape of 64-bit addresses and of the same as 32-bit addresses.
    fn both_shapes(at: [u64; LANES], mask: u32, step: u64) -> AddressShape {
        let wide = AddressShape::of_addresses(&PerLane(at), mask, step);
        let short = AddressShape::of_short_addresses(&PerLane(at.map(|at| at as u32)), mask, step);
        assert_eq!((wide.low, wide.high, wide.any, wide.pattern), (short.low, short.high, short.any, short.pattern), "{at:?} {mask:#x} {step}");
        wide
    }

    fn lanes(f: impl Fn(u64) -> u64) -> [u64; LANES] {
        std::array::from_fn(|lane| f(lane as u64))
    }

    #[test]
    fn rows_and_single_addresses_are_recognised() {
        for step in [1, 2, 4, 8, 16, 32] {
            for mask in [u32::MAX, 1, 0x8000_0000, 0xf0f0, 0x8000_0001] {
                let (first, last) = (u64::from(mask.trailing_zeros()), u64::from(31 - mask.leading_zeros()));
                // Lanes outside of the mask may have any address.
                let on = |lane: u64, at: u64| if mask >> lane & 1 == 0 { 0xdead } else { at };
                let row = both_shapes(lanes(|lane: u64| on(lane, 0x1000 + step * lane)), mask, step);
                assert_eq!((row.low, row.high), (0x1000 + step * first, 0x1000 + step * last), "{mask:#x} {step}");
                assert_eq!(row.pattern, if first == last { Pattern::Broadcast } else { Pattern::Contiguous }, "{mask:#x} {step}");
                assert_eq!(row.any & (step - 1), 0, "it is aligned");
                let one = both_shapes(lanes(|lane| on(lane, 0x1230)), mask, step);
                assert_eq!((one.low, one.high, one.any, one.pattern), (0x1230, 0x1230, 0x1230, Pattern::Broadcast));
            }
        }
    }

    #[test]
    fn rows_of_eight_lanes_are_recognised() {
        for step in [1, 2, 4, 8, 16, 32] {
            let starts = [0x4000, 0x1000, 0x1000 + 8 * step, 0x9000];
            let rows = lanes(|lane| starts[lane as usize / 8] + step * (lane % 8));
            let found = both_shapes(rows, u32::MAX, step);
            assert_eq!((found.low, found.high, found.pattern), (0x1000, 0x9000 + 7 * step, Pattern::RowsOfEight), "{step}");
            assert_eq!(found.any & (step - 1), 0, "it is aligned");
            let same = both_shapes(lanes(|lane| starts[lane as usize / 8]), u32::MAX, step);
            assert_eq!((same.low, same.high, same.pattern), (0x1000, 0x9000, Pattern::SameOfEight), "{step}");
            // One lane is elsewhere, or does not take part.
            let bent = lanes(|lane| rows[lane as usize] + if lane == 21 { step } else { 0 });
            assert_eq!((both_shapes(bent, u32::MAX, step).pattern, both_shapes(rows, !1, step).pattern), (Pattern::Scattered, Pattern::Scattered));
        }
        let misaligned = both_shapes(lanes(|lane| 0x1000 + 0x100 * (lane / 8) + 4 * (lane % 8) + lane / 24), u32::MAX, 4);
        assert_eq!((misaligned.pattern, misaligned.any & 3), (Pattern::RowsOfEight, 1));
        // A row that wraps around is none.
        let wraps = lanes(|lane| if lane < 8 { 4 * lane } else { 0xffff_ffff_ffff_fff0_u64.wrapping_add(4 * (lane % 8)) });
        assert_eq!(AddressShape::of_addresses(&PerLane(wraps), u32::MAX, 4).pattern, Pattern::Scattered);
    }

    #[test]
    fn other_addresses_are_scattered() {
        let shape = |f: &dyn Fn(u64) -> u64| both_shapes(lanes(f), u32::MAX, 4);
        let others: [&dyn Fn(u64) -> u64; 4] =
            [&|lane: u64| 0x1000 + 8 * lane, &|lane: u64| 0x1000 + 2 * lane, &|lane: u64| 0x2000 - 4 * lane, &|lane: u64| 0x1000 + 4 * (lane ^ 1)];
        for f in others {
            let found = shape(f);
            let all = lanes(f);
            let wanted = (all.iter().min().copied(), all.iter().max().copied(), all.iter().fold(0, |any, at| any | at));
            assert_eq!((Some(found.low), Some(found.high), found.any, found.pattern), (wanted.0, wanted.1, wanted.2, Pattern::Scattered));
        }
        // The outermost lanes are as in a row, and one in the middle is not.
        let bent = shape(&|lane: u64| 0x1000 + 4 * lane + u64::from(lane == 7));
        assert_eq!((bent.pattern, bent.any & 3), (Pattern::Scattered, 1), "and one is not aligned");
    }
}
