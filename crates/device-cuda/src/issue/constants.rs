//! What work writes to the copies of `__constant__` variables goes on to the driver's bank, where
//! kernels read them, before anything else in the stream. Pure.
//!
//! Exactly the bytes that were written are copied: other streams may be writing to the rest of a
//! variable meanwhile.

use super::pieces::{CopyPiece, MOST_PIECES};
use crate::context::{ConstantCopy, Constants};
use cumux_device::{CopyExtent, Rows};
use cumux_wire::record::span;

/// The copies to the bank that follow a piece of work which writes these bytes. `None` if there are
/// too many.
pub(super) fn forward(constants: &Constants, target: &Rows, extent: CopyExtent) -> Option<Vec<CopyPiece>> {
    let mut pieces = Vec::new();
    let whole = span(target.address, target.pitch, target.slice, extent).unwrap_or(u64::MAX);
    if constants.within(target.address, whole).next().is_none() {
        return Some(pieces);
    }
    if extent.height.saturating_mul(extent.depth) > MOST_PIECES {
        return None;
    }
    for slice in 0..extent.depth {
        for row in 0..extent.height {
            let address = target.address.wrapping_add(slice.wrapping_mul(target.slice)).wrapping_add(row.wrapping_mul(target.pitch));
            let parts = constants.within(address, extent.width);
            pieces.extend(parts.map(|ConstantCopy { copy, bank, bytes }| CopyPiece::Row { target: bank, source: copy, bytes }));
        }
    }
    Some(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// After any write, the bank holds what the copy holds, and what was not written is left
        /// alone.
        #[test]
        fn the_bank_follows_what_is_written(
            starts in proptest::collection::vec((0_u64..40, 1_u64..30), 1..4),
            address in 0_u64..200, width in 1_u64..40, height in 1_u64..5, depth in 1_u64..3, gap in 0_u64..20, slice_gap in 0_u64..30,
        ) {
            const BANK: u64 = 2000;
            let (mut constants, mut at) = (Constants::default(), 10);
            let mut covered = vec![false; 1000];
            for (before, bytes) in starts {
                at += before;
                constants.add(&[ConstantCopy { copy: at, bank: BANK + at, bytes }]);
                covered[at as usize..(at + bytes) as usize].fill(true);
                at += bytes;
            }
            let pitch = width + gap;
            let target = Rows { address, pitch, slice: pitch * height + slice_gap };
            let extent = CopyExtent { width, height, depth };
            let mut written = vec![false; 1000];
            for z in 0..depth {
                for y in 0..height {
                    let row = (address + z * target.slice + y * pitch) as usize;
                    written[row..row + width as usize].fill(true);
                }
            }
            let mut forwarded = vec![false; 1000];
            for piece in forward(&constants, &target, extent).expect("few pieces") {
                let CopyPiece::Row { target, source, bytes } = piece else { panic!("a rectangle") };
                prop_assert_eq!(target, source + BANK);
                forwarded[source as usize..(source + bytes) as usize].fill(true);
            }
            let expected: Vec<bool> = written.iter().zip(&covered).map(|(written, covered)| *written && *covered).collect();
            prop_assert_eq!(forwarded, expected);
        }
    }

    #[test]
    fn a_write_in_too_many_rows_is_seen() {
        let mut constants = Constants::default();
        constants.add(&[ConstantCopy { copy: 1000, bank: 9000, bytes: 8 }]);
        let rows = |address| Rows { address, pitch: 2, slice: 0 };
        let extent = CopyExtent { width: 1, height: 1 << 30, depth: 1 };
        assert!(forward(&constants, &rows(900), extent).is_none());
        assert_eq!(forward(&constants, &rows(5000), extent), Some(vec![]), "beside them");
    }
}
