//! Cutting a copy into pieces that the driver takes: rectangles and overlaps taken apart. Pure.
//!
//! The driver leaves a copy's result open if its sides overlap, and takes none across the end of a
//! registered piece of host memory. `reach` says how many bytes from an address a copy may go.

use crate::driver::{CardAddress, RectangleCopy};
use cumux_device::{Extent, Rows};

/// Most pieces of one copy. Far beyond what programs ask for, and few enough that nobody waits long
/// while a copy with so many is given to the driver.
pub(super) const MOST_PIECES: u64 = 1 << 20;

/// A copy that the driver takes in one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyPiece {
    /// Bytes in one row; the sides do not overlap.
    Row {
        /// First byte of the target.
        target: CardAddress,
        /// First byte of the source.
        source: CardAddress,
        /// Bytes.
        bytes: u64,
    },
    /// A rectangle.
    Rectangle(RectangleCopy),
}

impl CopyPiece {
    /// Bytes that are copied.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            CopyPiece::Row { bytes, .. } => *bytes,
            CopyPiece::Rectangle(copy) => copy.width * copy.height * copy.depth,
        }
    }
}

/// How many bytes a copy may go from an address.
pub(super) type Reach<'a> = &'a dyn Fn(CardAddress) -> u64;

/// Most pieces of a copy that goes row by row, whose sides are `apart` bytes from one another: a
/// row that overlaps itself goes in pieces of that distance.
pub(super) fn count_pieces(extent: Extent, apart: u64) -> u64 {
    let of_a_row = if apart == 0 { 1 } else { extent.width.div_ceil(apart) };
    extent.height.saturating_mul(extent.depth).saturating_mul(of_a_row.max(1))
}

/// Cuts one row. The result is as if the bytes went through a buffer.
pub(super) fn cut_row(target: CardAddress, source: CardAddress, bytes: u64, reach: Reach<'_>, pieces: &mut Vec<CopyPiece>) {
    let distance = target.abs_diff(source);
    if distance == 0 {
        return;
    }
    let first = pieces.len();
    let mut done = 0;
    while done < bytes {
        let piece = (bytes - done).min(reach(target + done)).min(reach(source + done)).min(distance);
        pieces.push(CopyPiece::Row { target: target + done, source: source + done, bytes: piece });
        done += piece;
    }
    if target > source && distance < bytes {
        // The end goes first, before the beginning is written over it.
        pieces[first..].reverse();
    }
}

/// Whether both sides of a rectangle lie in memory that one copy may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Contiguity {
    /// Each side lies within the reach of its first byte.
    Whole,
    /// A side goes on in memory that was registered apart.
    Cut,
}

/// Cuts a rectangle: into one call, one for each slice, or its rows.
pub(super) fn cut_rectangle(target: &Rows, source: &Rows, extent: Extent, contiguity: Contiguity, reach: Reach<'_>, pieces: &mut Vec<CopyPiece>) {
    let Extent { width, height, depth } = extent;
    // The driver takes slices as whole numbers of rows.
    let rows_of_slice = |rows: &Rows| {
        if depth == 1 { Some(height) } else { rows.slice.checked_div(rows.pitch).filter(|count| count * rows.pitch == rows.slice && *count >= height) }
    };
    let is_pitched = |rows: &Rows| height == 1 || rows.pitch >= width;
    let pitch = |rows: &Rows| if rows.pitch < width { width } else { rows.pitch };
    if contiguity == Contiguity::Whole && is_pitched(target) && is_pitched(source) {
        let slices = |first: u64, target_rows: u64, source_rows: u64, depth: u64| {
            CopyPiece::Rectangle(RectangleCopy {
                target: target.address + first * target.slice,
                target_pitch: pitch(target),
                target_rows,
                source: source.address + first * source.slice,
                source_pitch: pitch(source),
                source_rows,
                width,
                height,
                depth,
            })
        };
        match (rows_of_slice(target), rows_of_slice(source)) {
            (Some(t), Some(s)) if depth == 1 || (target.pitch >= width && source.pitch >= width) => pieces.push(slices(0, t, s, depth)),
            _ => pieces.extend((0..depth).map(|z| slices(z, height, height, 1))),
        }
        return;
    }
    for z in 0..depth {
        for y in 0..height {
            let row = |rows: &Rows| rows.address + z * rows.slice + y * rows.pitch;
            cut_row(row(target), row(source), width, reach, pieces);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Makes copies of bytes. A row whose sides overlap is a mistake: the driver leaves its result
    /// open.
    fn apply(memory: &mut [u8], pieces: &[CopyPiece]) {
        let mut row = |t: u64, s: u64, n: u64| {
            assert!(t.abs_diff(s) >= n, "overlap");
            memory.copy_within(s as usize..(s + n) as usize, t as usize);
        };
        for piece in pieces {
            match *piece {
                CopyPiece::Row { target, source, bytes } => row(target, source, bytes),
                CopyPiece::Rectangle(b) => {
                    for z in 0..b.depth {
                        for y in 0..b.height {
                            row(b.target + (z * b.target_rows + y) * b.target_pitch, b.source + (z * b.source_rows + y) * b.source_pitch, b.width);
                        }
                    }
                }
            }
        }
    }

    proptest! {
        #[test]
        fn rows_are_copied_as_through_a_buffer(target in 0_u64..300, source in 0_u64..300, bytes in 0_u64..200, piece in 1_u64..90) {
            let mut memory: Vec<u8> = (0..600_u32).map(|i| (i * 7 + i / 256) as u8).collect();
            let mut expected = memory.clone();
            expected.copy_within(source as usize..(source + bytes) as usize, target as usize);
            let mut pieces = Vec::new();
            let reach = |at: u64| piece - at % piece;
            cut_row(target, source, bytes, &reach, &mut pieces);
            for piece in &pieces {
                let CopyPiece::Row { target, source, bytes } = *piece else { panic!("a rectangle") };
                prop_assert!(bytes > 0 && bytes <= reach(target) && bytes <= reach(source));
            }
            apply(&mut memory, &pieces);
            prop_assert_eq!(memory, expected);
        }

        #[test]
        fn rectangles_land_where_they_should(w in 1_u64..20, h in 1_u64..6, d in 1_u64..5, tp in 0_u64..9, sp in 0_u64..9, ts in 0_u64..30, ss in 0_u64..30, whole: bool) {
            let target = Rows { address: 3000, pitch: w + tp, slice: (w + tp) * h + ts };
            let source = Rows { address: 1, pitch: w + sp, slice: (w + sp) * h + ss };
            let mut memory: Vec<u8> = (0..6000_u32).map(|i| (i * 7 + i / 256) as u8).collect();
            let mut expected = memory.clone();
            for z in 0..d {
                for y in 0..h {
                    let at = |r: &Rows| (r.address + z * r.slice + y * r.pitch) as usize;
                    expected.copy_within(at(&source)..at(&source) + w as usize, at(&target));
                }
            }
            let mut pieces = Vec::new();
            let contiguity = if whole { Contiguity::Whole } else { Contiguity::Cut };
            cut_rectangle(&target, &source, Extent { width: w, height: h, depth: d }, contiguity, &|_| 7, &mut pieces);
            apply(&mut memory, &pieces);
            prop_assert_eq!(memory, expected);
            prop_assert_eq!(pieces.iter().map(CopyPiece::bytes).sum::<u64>(), w * h * d);
        }
    }

    /// A copy of one client takes the engine's time from all: what falls into endless pieces is
    /// seen before they are made.
    #[test]
    fn endless_copies_are_seen() {
        let of = |width, height, depth, apart| count_pieces(Extent { width, height, depth }, apart);
        assert_eq!((of(64 << 20, 1, 1, 1 << 40), of(100, 1, 1, 0), of(100, 1, 1, 30), of(8, 5, 3, 1 << 20)), (1, 1, 4, 15));
        assert!(of(64 << 20, 1, 1, 4) > MOST_PIECES && of(1, 1 << 40, 1, 1 << 20) > MOST_PIECES && of(1, u64::MAX, u64::MAX, 5) > MOST_PIECES);
    }
}
