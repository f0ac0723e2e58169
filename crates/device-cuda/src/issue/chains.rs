//! The chains of one engine: which one runs a batch of kernels, and which are worth making.
//!
//! Chains are made on the helper thread, never here: until one is there, kernels are launched one
//! by one.

use super::chain::{Chain, Fingerprint};
use super::plan::PlannedKernel;
use crate::track::{FenceWord, SlotIndex};
use rustc_hash::FxHashMap;

/// Kernels of the longest chain.
pub(super) const LONGEST_CHAIN: usize = 128;
/// Lengths of general chains: any batch is cut into these if there is no chain for just this batch.
const GENERAL_LENGTHS: [usize; 10] = [1, 2, 4, 8, 16, 24, 32, 48, 64, 128];
/// A batch of a general length gets a chain of its own when it came so often.
const OFTEN: u8 = 3;
/// A batch of another length gets a chain of its own when it came so often.
const VERY_OFTEN: u8 = 24;
/// The same functions get a general chain when they came so often, whatever their parameters.
const AGAIN: u8 = 2;
/// Set apart, in the counts, from exact batches: the same functions, whatever their parameters.
const SHAPE_COUNTS: u64 = 0x5eed;
/// Setting a node costs about this much of the context's lock, in nanoseconds.
const SETTING_NS: u64 = 500;
/// A chain of its own pays only if setting the nodes costs more than this part of what the kernels
/// take (1/10).
const SETTING_SHARE: u64 = 10;
/// From so many nodes on it pays to give a node another function.
const RETARGETED_LENGTH: usize = 4;
/// A chain that was passed over for so many launches may yield to another.
const OLD_LAUNCHES: u64 = 512;
/// Batches that are counted before counting starts anew.
const COUNTED_BATCHES: usize = 4096;

/// Most chains of one length in an engine: one that runs cannot be changed, and short ones are for
/// many different kernels.
const fn chain_limit(length: usize) -> usize {
    match length {
        1 => 96,
        2..=8 => 32,
        _ => 16,
    }
}

/// The longest general chain that a batch of so many kernels fills.
fn general_length(batch: usize) -> usize {
    GENERAL_LENGTHS.iter().rev().find(|length| **length <= batch).copied().unwrap_or(1)
}

/// A chain that may be launched now: it runs what was asked for.
pub(super) struct ChosenChain {
    /// Its kernels.
    pub length: usize,
    /// Among the chains of its length.
    index: usize,
    /// Nodes that had to be set.
    pub nodes_set: usize,
}

/// A chain that is being made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PendingChain {
    /// Its kernels.
    pub length: usize,
    /// The word for its end.
    pub word: FenceWord,
}

/// A chain that should be made, of these kernels.
pub(crate) struct ChainOrder {
    /// The chain.
    pub chain: PendingChain,
    /// What it runs first.
    pub kernels: Vec<PlannedKernel>,
}

/// The chains of one engine.
pub(super) struct Chains {
    /// By length.
    by_length: Vec<Vec<Chain>>,
    /// The chain that is being made: one at a time, because making them costs the others' launches.
    pending: Option<PendingChain>,
    /// How often batches came that no chain had run the last time.
    counts: FxHashMap<u64, u8>,
    /// Words that belong to no chain.
    words: Vec<FenceWord>,
    /// Chains that yielded to others, for the helper to destroy.
    retired: Vec<Chain>,
    /// Chains that are forgotten but still run: their words are not free yet.
    leaving: Vec<Chain>,
    /// Chains chosen so far.
    launches: u64,
}

impl Chains {
    /// No chains; `words` are for the ends of those to come.
    pub(super) fn new(words: impl Iterator<Item = FenceWord>) -> Chains {
        let mut by_length = Vec::new();
        by_length.resize_with(LONGEST_CHAIN + 1, Vec::new);
        Chains { by_length, pending: None, counts: FxHashMap::default(), words: words.collect(), retired: Vec::new(), leaving: Vec::new(), launches: 0 }
    }

    /// A free chain for the beginning of `batch`, set to run it, and perhaps one that should be
    /// made. `is_reached` says whether a fence of a slot is reached. The batch is expected to take
    /// `expected_ns`. Where a chain is chosen, `batch` holds afterwards what that chain ran before.
    pub(super) fn choose(
        &mut self,
        batch: &mut [PlannedKernel],
        expected_ns: u64,
        mut is_reached: impl FnMut(SlotIndex, u64) -> bool,
    ) -> (Option<ChosenChain>, Option<ChainOrder>) {
        self.release_leaving(&mut is_reached);
        let setting_matters = expected_ns < batch.len() as u64 * SETTING_NS * SETTING_SHARE;
        let whole = batch.len().min(LONGEST_CHAIN);
        let general = general_length(whole);
        let mut order = None;
        for length in [whole, general] {
            let exact = Fingerprint::of(&batch[..length]).exact;
            let is_ready = |chain: &mut Chain| chain.fingerprint().exact == exact && chain.is_free(&mut is_reached) && chain.runs(&batch[..length]);
            if let Some(index) = self.by_length[length].iter_mut().position(is_ready) {
                return (Some(self.use_chain(length, index, 0)), order);
            }
            let often = if length == general { OFTEN } else { VERY_OFTEN };
            if order.is_none() && setting_matters && self.comes_often(exact, often) {
                order = self.order_chain(&batch[..length], &mut is_reached);
            }
            if whole == general {
                break;
            }
        }
        let beginning = &mut batch[..general];
        let shape = Fingerprint::of(beginning).shape;
        match self.find_settable(beginning, shape, &mut is_reached) {
            Some(index) => match self.by_length[general][index].set_kernels(beginning) {
                Some(nodes_set) => (Some(self.use_chain(general, index, nodes_set)), order),
                None => {
                    let chain = self.by_length[general].swap_remove(index);
                    self.words.push(chain.word());
                    (None, order)
                }
            },
            None => {
                // What is launched once is not worth a graph.
                let again = order.is_none() && self.comes_often(shape ^ SHAPE_COUNTS, AGAIN);
                let order = if again { self.order_chain(beginning, &mut is_reached) } else { order };
                (None, order)
            }
        }
    }

    /// Among the chains as long as this batch, a free one that can be set to run it: one with the
    /// same functions first, then the one that was not used for the longest time.
    fn find_settable(&mut self, batch: &[PlannedKernel], shape: u64, is_reached: &mut impl FnMut(SlotIndex, u64) -> bool) -> Option<usize> {
        let chains = self.by_length[batch.len()].iter_mut().enumerate();
        let fitting = chains.filter(|(_, chain)| (chain.fingerprint().shape == shape || batch.len() >= RETARGETED_LENGTH) && chain.has_room_for(batch));
        let free = fitting.filter_map(|(index, chain)| chain.is_free(is_reached).then_some((chain.fingerprint().shape != shape, chain.used, index)));
        free.min().map(|(.., index)| index)
    }

    fn use_chain(&mut self, length: usize, index: usize, nodes_set: usize) -> ChosenChain {
        self.launches += 1;
        self.by_length[length][index].used = self.launches;
        ChosenChain { length, index, nodes_set }
    }

    /// The chain that was chosen.
    pub(super) fn chosen(&mut self, chosen: &ChosenChain) -> &mut Chain {
        &mut self.by_length[chosen.length][chosen.index]
    }

    /// Counts a batch; true if it came so often.
    fn comes_often(&mut self, batch: u64, often: u8) -> bool {
        if self.counts.len() >= COUNTED_BATCHES {
            self.counts.clear();
        }
        let times = self.counts.entry(batch).or_default();
        *times = times.saturating_add(1);
        *times >= often
    }

    /// Finds a word for one more chain, of these kernels, and notes that it is being made.
    fn order_chain(&mut self, kernels: &[PlannedKernel], is_reached: &mut impl FnMut(SlotIndex, u64) -> bool) -> Option<ChainOrder> {
        let length = kernels.len();
        if self.pending.is_some() {
            return None;
        }
        if self.by_length[length].len() >= chain_limit(length) || self.words.is_empty() {
            self.evict_oldest(length, is_reached)?;
        }
        let chain = PendingChain { length, word: self.words.pop()? };
        self.pending = Some(chain);
        Some(ChainOrder { chain, kernels: kernels.to_vec() })
    }

    /// Takes out the chain that was not used for the longest time: of this length if there are
    /// many, else of any. `None` if all are in use.
    fn evict_oldest(&mut self, length: usize, is_reached: &mut impl FnMut(SlotIndex, u64) -> bool) -> Option<()> {
        let old = self.launches.checked_sub(OLD_LAUNCHES)?;
        let lengths = if self.by_length[length].len() >= chain_limit(length) { length..length + 1 } else { 1..LONGEST_CHAIN + 1 };
        let mut oldest: Option<(u64, usize, usize)> = None;
        for length in lengths {
            for (index, chain) in self.by_length[length].iter_mut().enumerate() {
                let used = chain.used;
                if used < old && oldest.is_none_or(|(least, ..)| used < least) && chain.is_free(is_reached) {
                    oldest = Some((used, length, index));
                }
            }
        }
        let (_, length, index) = oldest?;
        let chain = self.by_length[length].swap_remove(index);
        self.words.push(chain.word());
        self.retired.push(chain);
        Some(())
    }

    /// Takes the chains that nobody needs any more, to be destroyed elsewhere.
    pub(super) fn take_retired(&mut self) -> Option<Vec<Chain>> {
        (!self.retired.is_empty()).then(|| std::mem::take(&mut self.retired))
    }

    /// The helper has made a chain, or could not.
    pub(super) fn add_built(&mut self, pending: PendingChain, chain: Option<Chain>) {
        self.pending = None;
        match chain {
            Some(chain) => self.by_length[pending.length].push(chain),
            None => self.words.push(pending.word),
        }
    }

    /// Takes out the chains that mention these kernels; they are retired when they do not run any
    /// more.
    pub(super) fn forget_kernels(&mut self, is_gone: impl Fn(u64) -> bool) {
        self.leaving.extend(self.by_length.iter_mut().flat_map(|chains| chains.extract_if(.., |chain| chain.mentions(&is_gone))));
    }

    /// Retires forgotten chains that do not run any more and frees their words. Not before: their
    /// fences show there.
    pub(super) fn release_leaving(&mut self, is_reached: &mut impl FnMut(SlotIndex, u64) -> bool) {
        if self.leaving.is_empty() {
            return;
        }
        for chain in self.leaving.extract_if(.., |chain| chain.is_free(is_reached)) {
            self.words.push(chain.word());
            self.retired.push(chain);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_cut_into_few_chains() {
        assert_eq!([1, 3, 5, 100, 128].map(general_length), [1, 2, 4, 64, 128]);
        let (mut rest, mut pieces) = (100, Vec::new());
        while rest > 0 {
            pieces.push(general_length(rest));
            rest -= general_length(rest);
        }
        assert_eq!(pieces, [64, 32, 4]);
    }
}
