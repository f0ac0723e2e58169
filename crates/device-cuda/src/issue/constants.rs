//! What work writes, or may write, to the copies of `__constant__` variables goes on to the
//! driver's bank, where kernels read them, before anything else in the stream. Pure.
//!
//! Exactly the bytes that were written are copied, where it is known which: other streams may be
//! writing to the rest of a variable meanwhile.

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

/// The copies to the bank that follow a kernel with these pointers: it may write to the variables
/// whose copies they point to. CUDA lets kernels write to a constant through the address that the
/// host program has got for it, and later kernels read what was written (CuPy fills the variables
/// of a `RawModule` so). A kernel that finds such an address in memory is not seen.
pub(super) fn follow_pointers(constants: &Constants, pointers: impl Iterator<Item = u64>) -> Vec<CopyPiece> {
    let mut pieces: Vec<CopyPiece> = Vec::new();
    for ConstantCopy { copy, bank, bytes } in pointers.filter_map(|pointer| constants.at(pointer)) {
        let piece = CopyPiece::Row { target: bank, source: copy, bytes };
        if !pieces.contains(&piece) {
            pieces.push(piece);
        }
    }
    pieces
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
    fn variables_follow_kernels_that_get_their_addresses() {
        let mut constants = Constants::default();
        constants.add(&[ConstantCopy { copy: 1000, bank: 9000, bytes: 8 }, ConstantCopy { copy: 1008, bank: 9100, bytes: 4 }]);
        let row = |target, source, bytes| CopyPiece::Row { target, source, bytes };
        let follow = |pointers: &[u64]| follow_pointers(&constants, pointers.iter().copied());
        assert_eq!(follow(&[5, 1004, 1000, 999]), [row(9000, 1000, 8)], "once, and all of it: who knows where it writes");
        assert_eq!(follow(&[1008, 1007]), [row(9100, 1008, 4), row(9000, 1000, 8)]);
        assert_eq!(follow(&[1012, 0, u64::MAX]), []);
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
