//! The fences of one driver stream. Pure: the caller reads the words of memory.

use std::collections::VecDeque;

/// The number of a word of pinned memory that shows fences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FenceWord(pub usize);

/// What shows that a fence is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShownBy {
    /// The stream's own word: the stream writes the fence's number there.
    Stream,
    /// A chain's word: the fence kernel at the chain's end writes 1 there.
    Chain(FenceWord),
}

/// The fences that were submitted to one driver stream. Their numbers grow by 1.
///
/// Invariant: a chain is not launched again before [`Fences::poll`] has seen its word set. So the
/// word never shows the end of a later launch.
#[derive(Debug, Default)]
pub(super) struct Fences {
    issued: u64,
    reached: u64,
    /// Fences that were not seen reached yet, in order.
    pending: VecDeque<(u64, ShownBy)>,
}

impl Fences {
    /// The last fence that was submitted to the stream; 0 if there is none.
    pub(super) fn issued(&self) -> u64 {
        self.issued
    }

    /// The last fence that was seen reached; 0 if there is none.
    pub(super) fn reached(&self) -> u64 {
        self.reached
    }

    /// The number of the next fence. Work that is submitted now completes with it.
    pub(super) fn next(&self) -> u64 {
        self.issued + 1
    }

    /// Notes that the next fence was submitted to the stream.
    pub(super) fn issue(&mut self, shown_by: ShownBy) {
        self.issued += 1;
        self.pending.push_back((self.issued, shown_by));
    }

    /// Checks which fences are reached, and returns the last of them. `own` is the value of the
    /// stream's word, and `load` reads the word of a chain.
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

    /// Treats all fences as reached, whatever the words say.
    pub(super) fn give_up(&mut self) {
        self.pending.clear();
        self.reached = self.issued;
    }
}
