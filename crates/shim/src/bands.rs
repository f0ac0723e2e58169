//! Cutting copies: into bands that fit a staging slice, and into records of not too many rows.
//! Pure.

use cumux_wire::record::CopyExtent;

/// One side of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Side {
    /// Where the first byte is.
    pub address: u64,
    /// Bytes from one row to the next.
    pub pitch: u64,
    /// Bytes from one slice of rows to the next.
    pub slice: u64,
    /// The program's private memory; else an address the executor knows.
    pub private: bool,
    /// An array of the device's driver, in place of memory. Then the rest of the side counts bytes
    /// of the array, as though it lay row after row from address 0.
    pub array: Option<ArraySide>,
}

/// An array that only its device's driver can lay out, as a side of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArraySide {
    /// The word that the program holds.
    pub handle: u64,
    /// The number by which the executor knows it.
    pub number: u32,
    /// Its level.
    pub level: u32,
    /// Rows of a slice.
    pub rows: u64,
    /// By the program's ordinals.
    pub device: u32,
    /// The id of its context.
    pub context: u64,
}

/// Bytes of a large staging slice: no band is larger.
const BAND: u64 = 1 << 20;

/// A rectangle of rows that fits one slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Band {
    /// First byte of a row.
    pub x: u64,
    /// First row.
    pub y: u64,
    /// Slice of rows.
    pub z: u64,
    /// Bytes of a row.
    pub width: u64,
    /// Number of rows.
    pub rows: u64,
}

impl Band {
    /// Where the band begins on a side of the copy.
    pub(crate) fn at(&self, side: &Side) -> u64 {
        side.address + self.z * side.slice + self.y * side.pitch + self.x
    }

    /// Bytes of all its rows.
    pub(crate) fn bytes(&self) -> u64 {
        self.width * self.rows
    }
}

/// Cuts an extent into bands, row by row.
pub(crate) fn bands(extent: CopyExtent) -> impl Iterator<Item = Band> {
    let width = extent.width.clamp(1, BAND);
    let rows = if extent.width > BAND { 1 } else { BAND / width };
    (0..extent.depth).flat_map(move |z| {
        (0..extent.height).step_by(usize::try_from(rows).unwrap_or(usize::MAX)).flat_map(move |y| {
            let rows = rows.min(extent.height - y);
            let step = usize::try_from(width).unwrap_or(usize::MAX);
            (0..extent.width).step_by(step).map(move |x| Band { x, y, z, width: width.min(extent.width - x), rows })
        })
    })
}

/// Rows of one record: a device may have to look at each, and others wait meanwhile.
const ROWS: u64 = 1 << 18;

/// Cuts an extent into pieces of so many rows at most: first slice, first row, extent.
pub(crate) fn pieces(extent: CopyExtent) -> impl Iterator<Item = (u64, u64, CopyExtent)> {
    let rows = ROWS.min(extent.height).max(1);
    let slices = if rows < extent.height { 1 } else { (ROWS / rows).max(1) };
    let step = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    (0..extent.depth).step_by(step(slices)).flat_map(move |z| {
        let depth = slices.min(extent.depth - z);
        (0..extent.height).step_by(step(rows)).map(move |y| (z, y, CopyExtent { width: extent.width, height: rows.min(extent.height - y), depth }))
    })
}

impl Side {
    /// A side in memory that the executor knows.
    pub(crate) const fn known(address: u64, pitch: u64, slice: u64) -> Side {
        Side { address, pitch, slice, private: false, array: None }
    }

    /// A side in the program's private memory.
    pub(crate) const fn own(address: u64, pitch: u64, slice: u64) -> Side {
        Side { address, pitch, slice, private: true, array: None }
    }

    /// The first byte of a row, the first row and the first slice of a side that is an array.
    pub(crate) fn place(&self, array: &ArraySide) -> [u64; 3] {
        let (pitch, rows) = (self.pitch.max(1), array.rows.max(1));
        let row = self.address / pitch;
        [self.address % pitch, row % rows, row / rows]
    }

    /// The same side from this slice and row on.
    pub(crate) fn at(&self, z: u64, y: u64) -> Side {
        Side { address: self.address + z * self.slice + y * self.pitch, ..*self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_cover_every_byte_once_and_fit_a_slice() {
        for extent in [(1, 1, 1), (BAND * 3 + 5, 1, 1), (1000, 5000, 3), (BAND + 1, 2, 2), (7, 1, 2)] {
            let extent = CopyExtent { width: extent.0, height: extent.1, depth: extent.2 };
            let mut total = 0;
            let mut last = None;
            for band in bands(extent) {
                assert!(band.bytes() <= BAND && band.bytes() > 0);
                assert!(band.x + band.width <= extent.width && band.y + band.rows <= extent.height && band.z < extent.depth);
                assert!(last < Some((band.z, band.y, band.x)), "in order");
                last = Some((band.z, band.y, band.x));
                total += band.bytes();
            }
            assert_eq!(total, extent.width * extent.height * extent.depth);
        }
    }

    #[test]
    fn pieces_cover_every_row_once_and_are_few() {
        for (height, depth, expected) in [(1, 1, 1), (ROWS, 1, 1), (ROWS + 1, 1, 2), (1000, 262, 1), (1000, 263, 2), (ROWS * 2 + 3, 2, 6), (1, ROWS * 2, 2)] {
            let extent = CopyExtent { width: 7, height, depth };
            let (mut rows, mut count, mut last) = (0, 0, None);
            for (z, y, piece) in pieces(extent) {
                assert!(piece.height * piece.depth <= ROWS && z + piece.depth <= depth && y + piece.height <= height && piece.width == 7);
                assert!(last < Some((z, y)), "in order");
                last = Some((z, y));
                rows += piece.height * piece.depth;
                count += 1;
            }
            assert_eq!((rows, count), (height * depth, expected));
        }
    }
}
