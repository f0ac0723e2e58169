//! Into which lengths a batch is cut, and why it ends where it does. Pure.
//!
//! The fewer lengths there are, the sooner there are chains for all. What a program will bring
//! again has the length that it has; what chance has cut is cut to few.

use super::segments::SHORTEST_SEGMENT;
use smallvec::SmallVec;

/// The number of kernels of the longest chain.
pub(super) const LONGEST_CHAIN: usize = 128;
/// The lengths of general chains. A batch that has no chain of its own is cut into these lengths.
const GENERAL_LENGTHS: [usize; 10] = [1, 2, 4, 8, 16, 24, 32, 48, 64, 128];
/// Batches that end by chance are cut to multiples of this many kernels.
const CHANCE_STEP: usize = 8;
/// Into these lengths equal kernels are cut for which there is no chain, the longest first.
const PARTS: [usize; 3] = [64, 32, 16];

/// Why a batch ends where it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BatchEnd {
    /// Work that is no node of a chain follows. A program that repeats itself has it there again.
    Work,
    /// No more work was in the queue, or the batch is full. The next time it may be elsewhere.
    Chance,
    /// As many pieces have come as came the last times until the client waited for their end.
    Burst,
    /// No more work was in the queue, but more is expected to come soon, of a stream without
    /// segments.
    Part,
}

/// Where a batch may be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut {
    /// The number of kernels up to the end of its first segment, if that is in the batch.
    pub segment: Option<usize>,
    /// True if that segment begins with the batch.
    pub is_whole: bool,
    /// Why it ends where it does.
    pub end: BatchEnd,
    /// True if the stream's kernels fall into no segments.
    pub is_endless: bool,
}

/// The length of the longest general chain that this many kernels fill.
fn general_length(batch: usize) -> usize {
    GENERAL_LENGTHS.iter().rev().find(|length| **length <= batch).copied().unwrap_or(1)
}

/// To which length a batch of this many kernels is cut that ends where it does by chance, if no
/// chain has all of them: with few lengths there are soon chains for all.
fn chance_length(batch: usize) -> usize {
    if batch <= SHORTEST_SEGMENT { batch } else { batch - batch % CHANCE_STEP }
}

/// To which length the beginning of a batch is cut of which more is expected: with so few lengths
/// there are soon chains for all, and what is left over waits for the rest.
pub(super) fn part_length(batch: usize) -> usize {
    1 << batch.clamp(1, LONGEST_CHAIN).ilog2()
}

/// The lengths for which a batch is looked for among the chains of its stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Lengths {
    /// In this order.
    pub all: SmallVec<[usize; 6]>,
    /// How many of them, from the beginning, may be ordered. The others are used as they are.
    pub ordered: usize,
    /// That of the chain which the program will want again, if it will.
    pub own: usize,
    /// To which length chance would cut it.
    pub cut: usize,
    /// That of a general chain.
    pub general: usize,
}

impl Lengths {
    /// Those for a batch of so many kernels.
    pub(super) fn of(batch: usize, cut: Cut) -> Lengths {
        let whole = batch.min(LONGEST_CHAIN);
        let own = match (cut.segment, cut.end) {
            (Some(end), _) => end,
            (None, BatchEnd::Part) => part_length(whole),
            (None, _) => whole,
        };
        let by_chance = if cut.segment.is_none() && cut.end == BatchEnd::Chance { chance_length(own) } else { own };
        let general = general_length(own);
        let mut all: SmallVec<[usize; 6]> = [own, by_chance, general].into_iter().collect();
        all.dedup();
        let ordered = all.len();
        if cut.is_endless {
            // Two chains that need no setting are launched sooner than one that is set.
            all.extend(PARTS.into_iter().filter(|part| *part < general));
        }
        Lengths { all, ordered, own, cut: by_chance, general }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_cut_into_few_chains() {
        assert_eq!([1, 3, 5, 100, 128].map(general_length), [1, 2, 4, 64, 128]);
        assert_eq!([15, 17, 24, 100, 128].map(chance_length), [15, 16, 24, 96, 128]);
        let (mut rest, mut pieces) = (100, Vec::new());
        while rest > 0 {
            pieces.push(general_length(rest));
            rest -= general_length(rest);
        }
        assert_eq!(pieces, [64, 32, 4]);
        assert_eq!([1, 15, 16, 84, 127, 128, 300].map(part_length), [1, 8, 16, 64, 64, 128, 128]);
    }

    #[test]
    fn equal_kernels_have_few_lengths_and_segments_their_own() {
        let of = |batch, segment, end, is_endless| {
            let lengths = Lengths::of(batch, Cut { segment, is_whole: false, end, is_endless });
            (lengths.all.to_vec(), lengths.ordered)
        };
        assert_eq!(of(84, None, BatchEnd::Part, true), (vec![64, 32, 16], 1), "more is expected");
        assert_eq!(of(84, None, BatchEnd::Burst, true), (vec![84, 64, 32, 16], 2), "all of it has come");
        assert_eq!(of(21, None, BatchEnd::Chance, true), (vec![21, 16], 2));
        assert_eq!(of(90, Some(21), BatchEnd::Part, true), (vec![21, 16], 2), "a segment has its chain also there");
        assert_eq!(of(21, Some(21), BatchEnd::Chance, false), (vec![21, 16], 2));
        assert_eq!(of(300, None, BatchEnd::Work, false), (vec![128], 1));
    }
}
