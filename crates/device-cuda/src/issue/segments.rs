//! Where a stream's kernels are cut into segments, of which chains are made.
//!
//! Batches end where the engine happens to be, so the batches of a program that repeats itself do
//! not repeat themselves. Segments do (decision 0121): they end after kernels of certain shapes,
//! and how far a stream is in its segment does not depend on where its batches were cut.
//!
//! A segment has at least [`SHORTEST_SEGMENT`] kernels. Work that is no node of a chain ends it,
//! too. A kernel like the one before it ends none, so that a run of equal kernels is not cut.

/// A segment has at least this many kernels. Shorter ones save little of the launches' time.
pub(super) const SHORTEST_SEGMENT: usize = 16;
/// One segment in some hundred is longer than this.
const ENDLESS_SEGMENT: usize = 64;
/// One shape of kernels in this many ends a segment.
const SHAPES_PER_END: u64 = 8;

/// How far a stream is in its segment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Position {
    /// Kernels since the last segment ended.
    kernels: usize,
    /// The shape of the last one.
    last: u64,
}

impl Position {
    /// True if a segment begins here.
    pub(super) fn is_beginning(self) -> bool {
        self.kernels == 0
    }

    /// True if this many more kernels cannot end the segment.
    pub(super) fn is_within(self, more: usize) -> bool {
        self.kernels + more < SHORTEST_SEGMENT
    }

    /// True if the stream's kernels fall into no segments, as far as can be seen: equal ones do
    /// not.
    pub(super) fn is_endless(self) -> bool {
        self.kernels >= ENDLESS_SEGMENT
    }

    /// The number of kernels of these shapes up to the end of the segment, if it is among them.
    pub(super) fn find_end(self, shapes: &[u64]) -> Option<usize> {
        let mut position = self;
        shapes.iter().position(|shape| position.pass(*shape)).map(|at| at + 1)
    }

    /// Goes on behind kernels of these shapes, which were submitted.
    pub(super) fn go_on(&mut self, shapes: &[u64]) {
        for shape in shapes {
            self.pass(*shape);
        }
    }

    /// Goes on behind one kernel. True if that ends the segment.
    pub(super) fn pass(&mut self, shape: u64) -> bool {
        self.kernels += 1;
        let ends = self.kernels >= SHORTEST_SEGMENT && mix(shape).is_multiple_of(SHAPES_PER_END) && shape != self.last;
        self.last = shape;
        if ends {
            self.kernels = 0;
        }
        ends
    }
}

/// Makes hashes of neighbouring numbers independent of one another (the finaliser of SplitMix64).
fn mix(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The places where segments end if these kernels are submitted in batches of these lengths.
    fn ends(shapes: &[u64], mut batches: impl Iterator<Item = usize>) -> Vec<usize> {
        let (mut position, mut at, mut ends) = (Position::default(), 0, Vec::new());
        while at < shapes.len() {
            let batch = &shapes[at..(at + batches.next().unwrap_or(1).max(1)).min(shapes.len())];
            let count = position.find_end(batch).unwrap_or(batch.len());
            position.go_on(&batch[..count]);
            at += count;
            if position.is_beginning() {
                ends.push(at);
            }
        }
        ends
    }

    proptest! {
        #[test]
        fn segments_are_the_same_however_batches_are_cut(shapes in prop::collection::vec(0..40_u64, 1..600), cuts in prop::collection::vec(1..70_usize, 1..50)) {
            let whole = ends(&shapes, std::iter::repeat(shapes.len()));
            prop_assert_eq!(&whole, &ends(&shapes, cuts.into_iter().cycle()));
            prop_assert!(whole.windows(2).all(|pair| pair[1] - pair[0] >= SHORTEST_SEGMENT));
        }
    }

    #[test]
    fn a_program_that_repeats_itself_is_cut_at_the_same_places_each_time() {
        let pass: Vec<u64> = (0..231).collect();
        let program: Vec<u64> = pass.iter().copied().cycle().take(pass.len() * 20).collect();
        let all = ends(&program, std::iter::repeat(100));
        let of_pass = |number: usize| -> Vec<usize> { all.iter().filter(|end| **end / pass.len() == number).map(|end| end % pass.len()).collect() };
        assert!(all.len() > 100, "{all:?}");
        assert_eq!(of_pass(18), of_pass(17));
        assert_eq!(of_pass(18), of_pass(16));
    }

    #[test]
    fn equal_kernels_are_not_cut_from_one_another() {
        for shape in 0..64_u64 {
            assert_eq!(Position { kernels: 3, last: shape }.find_end(&[shape; 128]), None);
        }
        let mut shapes = [1; 128];
        shapes[20..].fill(0);
        assert_eq!((mix(0), Position::default().find_end(&shapes)), (0, Some(21)), "the first of others may end a segment");
        let mut position = Position::default();
        position.go_on(&[1; 63]);
        assert!(!position.is_endless());
        position.go_on(&[1]);
        assert!(position.is_endless(), "nothing has ended it");
        assert_eq!((Position::default().is_within(15), Position::default().is_within(16)), (true, false));
    }
}
