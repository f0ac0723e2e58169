//! Cutting a copy that an array takes part in into calls of the driver. Pure.
//!
//! The memory at the other end may lie in several registered pieces of a window, as with other
//! copies: a [`Reach`] says how many bytes from an address lie before the end of one. The driver
//! copies whole texels.

use super::pieces::{CopyPiece, Reach};
use crate::driver::{Array, ArrayCopy, ArrayCopyEnd};
use cumux_device::{CopyExtent, Rows};
use cumux_wire::record::span;

/// One end of a copy, checked and translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Memory, by the card's addresses.
    Memory(Rows),
    /// A level of an array.
    Array {
        /// The level.
        array: Array,
        /// Bytes of a texel.
        texel: u64,
        /// The first byte of a row, the first row, and the first slice or layer.
        at: [u64; 3],
    },
}

/// Why a copy is not cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Uncut {
    /// A level is copied over itself.
    Overlaps,
    /// A texel lies across the end of a registered piece of host memory.
    SplitTexel,
}

impl End {
    /// The end of the part that begins at this byte of a row, this row and this slice. `rows` is
    /// the distance of slices in memory, in rows.
    fn part(&self, [x, y, z]: [u64; 3], width: u64, rows: u64) -> ArrayCopyEnd {
        match self {
            End::Memory(memory) => {
                let address = memory.address + z * memory.slice + y * memory.pitch + x;
                ArrayCopyEnd::Memory { address, pitch: memory.pitch.max(width), rows }
            }
            End::Array { array, at, .. } => ArrayCopyEnd::Array { array: *array, at: [at[0] + x, at[1] + y, at[2] + z] },
        }
    }

    fn texel(&self) -> u64 {
        match self {
            End::Memory(_) => 1,
            End::Array { texel, .. } => *texel,
        }
    }

    /// True if one call of the driver may reach all rows.
    fn is_whole(&self, extent: CopyExtent, reach: Reach<'_>) -> bool {
        let End::Memory(rows) = self else { return true };
        let is_pitched = extent.height == 1 || rows.pitch >= extent.width;
        is_pitched && span(rows.address, rows.pitch, rows.slice, extent).is_some_and(|bytes| bytes <= reach(rows.address))
    }

    /// The distance of slices in rows, if it is a whole number of them, as the driver expects it.
    fn rows_of_slice(&self, extent: CopyExtent) -> Option<u64> {
        match self {
            End::Memory(rows) if extent.depth > 1 => {
                rows.slice.checked_div(rows.pitch).filter(|count| count * rows.pitch == rows.slice && *count >= extent.height && rows.pitch >= extent.width)
            }
            _ => Some(extent.height),
        }
    }
}

/// True if two boxes of this extent in the same level have bytes in common.
fn overlap(one: [u64; 3], other: [u64; 3], extent: CopyExtent) -> bool {
    let sizes = [extent.width, extent.height, extent.depth];
    (0..3).all(|axis| one[axis].abs_diff(other[axis]) < sizes[axis])
}

/// Cuts a copy: into one piece, one for each slice, or one or more for each row. Nothing of the
/// extent is 0, and `count_pieces` has said that the rows are not too many.
///
/// # Errors
/// [`Uncut`] says why the driver cannot do it.
pub(super) fn cut_array_copy(target: &End, source: &End, extent: CopyExtent, reach: Reach<'_>) -> Result<Vec<CopyPiece>, Uncut> {
    if let (End::Array { array: to, at: into, .. }, End::Array { array: from, at, .. }) = (target, source)
        && to == from
        && overlap(*into, *at, extent)
    {
        return Err(Uncut::Overlaps);
    }
    let CopyExtent { width, height, depth } = extent;
    let piece = |at: [u64; 3], extent: [u64; 3], rows: [u64; 2]| {
        let [target, source] = [target.part(at, extent[0], rows[0]), source.part(at, extent[0], rows[1])];
        CopyPiece::Array(ArrayCopy { target, source, extent })
    };
    if target.is_whole(extent, reach) && source.is_whole(extent, reach) {
        return Ok(match (target.rows_of_slice(extent), source.rows_of_slice(extent)) {
            (Some(to), Some(from)) => vec![piece([0; 3], [width, height, depth], [to, from])],
            _ => (0..depth).map(|z| piece([0, 0, z], [width, height, 1], [height; 2])).collect(),
        });
    }
    let texel = target.texel().max(source.texel());
    let mut pieces = Vec::new();
    for z in 0..depth {
        for y in 0..height {
            let mut x = 0;
            while x < width {
                let bytes_at = |end: &End| match end.part([x, y, z], 0, 1) {
                    ArrayCopyEnd::Memory { address, .. } => reach(address),
                    ArrayCopyEnd::Array { .. } => u64::MAX,
                };
                let bytes = (width - x).min(bytes_at(target)).min(bytes_at(source));
                if bytes == 0 || !bytes.is_multiple_of(texel) {
                    return Err(Uncut::SplitTexel);
                }
                pieces.push(piece([x, y, z], [bytes, 1, 1], [1; 2]));
                x += bytes;
            }
        }
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXEL: u64 = 4;
    /// Bytes of a row, rows and slices of the array.
    const LEVEL: [u64; 3] = [80, 12, 9];

    fn array(at: [u64; 3]) -> End {
        End::Array { array: Array::numbered(1), texel: TEXEL, at }
    }

    fn place([x, y, z]: [u64; 3]) -> usize {
        ((z * LEVEL[1] + y) * LEVEL[0] + x) as usize
    }

    /// Copies pieces from memory into an array of this level's size.
    fn apply(memory: &[u8], pieces: &[CopyPiece]) -> Vec<u8> {
        let mut level = vec![0; LEVEL.iter().product::<u64>() as usize];
        for piece in pieces {
            let CopyPiece::Array(ArrayCopy { target, source, extent }) = piece else { panic!("no array") };
            let ArrayCopyEnd::Array { at, .. } = *target else { panic!("the target is no array") };
            let ArrayCopyEnd::Memory { address, pitch, rows } = *source else { panic!("the source is no memory") };
            assert!(pitch >= extent[0] && rows >= extent[1] && at[0].is_multiple_of(TEXEL) && extent[0].is_multiple_of(TEXEL));
            for z in 0..extent[2] {
                for y in 0..extent[1] {
                    let from = (address + (z * rows + y) * pitch) as usize;
                    let to = place([at[0], at[1] + y, at[2] + z]);
                    level[to..to + extent[0] as usize].copy_from_slice(&memory[from..from + extent[0] as usize]);
                }
            }
        }
        level
    }

    proptest! {
        #[test]
        fn every_texel_lands_where_it_should(
            at in [0_u64..5, 0_u64..4, 0_u64..3], size in [1_u64..15, 1_u64..8, 1_u64..6], gap in 0_u64..9, slice_gap in 0_u64..30, piece in 1_u64..60,
        ) {
            let at = [at[0] * TEXEL, at[1], at[2]];
            let extent = CopyExtent { width: size[0] * TEXEL, height: size[1], depth: size[2] };
            let pitch = (extent.width + gap).next_multiple_of(TEXEL);
            let rows = Rows { address: 3 * TEXEL, pitch, slice: (pitch * extent.height + slice_gap).next_multiple_of(TEXEL) };
            let memory: Vec<u8> = (0..9000_u32).map(|i| (i * 7 + i / 256) as u8).collect();
            let reach = |address: u64| if piece < 30 { piece * TEXEL - address % (piece * TEXEL) } else { u64::MAX };
            let pieces = cut_array_copy(&array(at), &End::Memory(rows), extent, &reach);
            let mut expected = vec![0; LEVEL.iter().product::<u64>() as usize];
            for z in 0..extent.depth {
                for y in 0..extent.height {
                    let from = (rows.address + z * rows.slice + y * rows.pitch) as usize;
                    let to = place([at[0], at[1] + y, at[2] + z]);
                    expected[to..to + extent.width as usize].copy_from_slice(&memory[from..from + extent.width as usize]);
                }
            }
            prop_assert_eq!(apply(&memory, &pieces.expect("it can be cut")), expected);
        }
    }

    #[test]
    fn what_the_driver_cannot_do_is_refused() {
        let extent = CopyExtent { width: 8, height: 2, depth: 1 };
        let cut = |target, source, reach: u64| cut_array_copy(&target, &source, extent, &|_| reach);
        assert_eq!(cut(array([8, 3, 0]), array([4, 2, 0]), u64::MAX), Err(Uncut::Overlaps));
        for elsewhere in [[16, 3, 0], [8, 5, 0], [8, 3, 1]] {
            assert!(cut(array([8, 3, 0]), array(elsewhere), u64::MAX).is_ok_and(|pieces| pieces.len() == 1), "{elsewhere:?}");
        }
        let memory = End::Memory(Rows { address: 0x1000, pitch: 8, slice: 16 });
        assert_eq!(cut(array([0; 3]), memory, 3), Err(Uncut::SplitTexel));
        assert_eq!(cut(memory, array([0; 3]), 0), Err(Uncut::SplitTexel));
        assert!(cut(memory, array([0; 3]), 4).is_ok_and(|pieces| pieces.len() == 4));
    }
}
