//! The fences of one driver stream. Pure: the caller reads the words.

use std::collections::VecDeque;

/// A word of pinned memory that shows fences, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FenceWord(pub usize);

/// Where a fence shows that it is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShownBy {
    /// The stream writes the fence's number into its own word.
    Stream,
    /// The fence kernel at the end of a chain writes 1 into the chain's word.
    Chain(FenceWord),
}

/// The fences that were given to one driver stream: numbers that grow by 1.
///
/// Invariant: no chain is launched again before this has seen its word, so a chain's word never
/// shows a later launch.
#[derive(Debug, Default)]
pub(super) struct Fences {
    issued: u64,
    reached: u64,
    /// Fences that were not seen yet, in order.
    pending: VecDeque<(u64, ShownBy)>,
}

impl Fences {
    /// The last fence that was given to the stream.
    pub(super) fn issued(&self) -> u64 {
        self.issued
    }

    /// The last fence that was seen.
    pub(super) fn reached(&self) -> u64 {
        self.reached
    }

    /// The number of the next fence, which ends all work that was given since the last one.
    pub(super) fn next(&self) -> u64 {
        self.issued + 1
    }

    /// The stream was given the next fence.
    pub(super) fn issue(&mut self, shown_by: ShownBy) {
        self.issued += 1;
        self.pending.push_back((self.issued, shown_by));
    }

    /// Sees what was reached and returns the last such fence. `own` is the stream's word, `load`
    /// reads those of chains.
    pub(super) fn poll(&mut self, own: u64, load: impl Fn(FenceWord) -> u64) -> u64 {
        while let Some((fence, shown_by)) = self.pending.front()
            && match shown_by {
                ShownBy::Stream => own >= *fence,
                ShownBy::Chain(word) => load(*word) != 0,
            }
        {
            self.reached = *fence;
            self.pending.pop_front();
        }
        self.reached
    }

    /// Takes all fences as reached, whatever the words say.
    pub(super) fn give_up(&mut self) {
        self.pending.clear();
        self.reached = self.issued;
    }
}
