//! Cutting a copy into pieces that the driver accepts. Pure.
//!
//! The result of the driver's copy is undefined if source and target overlap, so such copies are
//! cut into pieces that do not. The driver also refuses a copy that crosses the end of a registered
//! piece of host memory. A [`Reach`] says how many bytes from an address lie before such an end.

use crate::driver::{ArrayCopy, CardAddress, RectangleCopy};
use cumux_device::{CopyExtent, Rows};

/// Most pieces of one copy. Programs need far fewer, and other clients do not wait long while this
/// many are submitted.
pub(super) const MOST_PIECES: u64 = 1 << 20;

/// A copy that is one call of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyPiece {
    /// One row of bytes. Source and target do not overlap.
    Row {
        /// First byte of the target.
        target: CardAddress,
        /// First byte of the source.
        source: CardAddress,
        /// The number of bytes.
        bytes: u64,
    },
    /// A rectangle, or a box of slices.
    Rectangle(RectangleCopy),
    /// A box of an array's bytes.
    Array(ArrayCopy),
}

impl CopyPiece {
    /// The number of bytes that are copied.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            CopyPiece::Row { bytes, .. } => *bytes,
            CopyPiece::Rectangle(copy) => copy.width * copy.height * copy.depth,
            CopyPiece::Array(copy) => copy.extent.iter().product(),
        }
    }
}

/// Says how many bytes from an address one copy may access.
pub(super) type Reach<'a> = &'a dyn Fn(CardAddress) -> u64;

/// The most pieces into which a copy can be cut. Source and target are `apart` bytes from each
/// other: a row that overlaps itself is cut into pieces of that length.
pub(super) fn count_pieces(extent: CopyExtent, apart: u64) -> u64 {
    let of_a_row = if apart == 0 { 1 } else { extent.width.div_ceil(apart) };
    extent.height.saturating_mul(extent.depth).saturating_mul(of_a_row.max(1))
}

/// Cuts the copy of one row. The pieces have the effect of a copy through a buffer.
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
        // The end of the source is copied first, before the target overwrites it.
        pieces[first..].reverse();
    }
}

/// Whether one copy may access all of a rectangle's source and target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Contiguity {
    /// Source and target each lie within the reach of their first byte.
    Whole,
    /// Source or target crosses the end of a registered piece.
    Cut,
}

/// Cuts the copy of a rectangle: into one piece, one for each slice, or one or more for each row.
pub(super) fn cut_rectangle(target: &Rows, source: &Rows, extent: CopyExtent, contiguity: Contiguity, reach: Reach<'_>, pieces: &mut Vec<CopyPiece>) {
    let CopyExtent { width, height, depth } = extent;
    // The driver expects the distance of slices as a whole number of rows.
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

    /// Applies copies to bytes. It is a mistake if source and target of a row overlap: the driver's
    /// result would be undefined.
    fn apply(memory: &mut [u8], pieces: &[CopyPiece]) {
        let mut row = |t: u64, s: u64, n: u64| {
            assert!(t.abs_diff(s) >= n, "overlap");
            memory.copy_within(s as usize..(s + n) as usize, t as usize);
        };
        for piece in pieces {
            match *piece {
                CopyPiece::Row { target, source, bytes } => row(target, source, bytes),
                CopyPiece::Array(_) => panic!("no array takes part"),
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
            cut_rectangle(&target, &source, CopyExtent { width: w, height: h, depth: d }, contiguity, &|_| 7, &mut pieces);
            apply(&mut memory, &pieces);
            prop_assert_eq!(memory, expected);
            prop_assert_eq!(pieces.iter().map(CopyPiece::bytes).sum::<u64>(), w * h * d);
        }
    }

    /// A copy with very many pieces would take the engine's time from all clients. It is recognised
    /// before the pieces are made.
    #[test]
    fn endless_copies_are_seen() {
        let count = |width, height, depth, apart| count_pieces(CopyExtent { width, height, depth }, apart);
        assert_eq!((count(64 << 20, 1, 1, 1 << 40), count(100, 1, 1, 0), count(100, 1, 1, 30), count(8, 5, 3, 1 << 20)), (1, 1, 4, 15));
        assert!(count(64 << 20, 1, 1, 4) > MOST_PIECES && count(1, 1 << 40, 1, 1 << 20) > MOST_PIECES && count(1, u64::MAX, u64::MAX, 5) > MOST_PIECES);
    }
}
