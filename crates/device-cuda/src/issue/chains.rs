//! The chains of one engine: choosing a chain for a batch of kernels, and deciding which chains to
//! make.
//!
//! A helper thread makes the chains. Until a chain is made, kernels are launched one by one.

use super::chain::{Chain, Fingerprint};
use super::plan::PlannedKernel;
use crate::track::{FenceWord, SlotIndex};
use rustc_hash::FxHashMap;

/// The number of kernels of the longest chain.
pub(super) const LONGEST_CHAIN: usize = 128;
/// The lengths of general chains. A batch that has no chain of its own is cut into these lengths.
const GENERAL_LENGTHS: [usize; 10] = [1, 2, 4, 8, 16, 24, 32, 48, 64, 128];
/// A batch of a general length gets a chain of its own when it has come this often.
const OFTEN: u8 = 3;
/// A batch of another length gets a chain of its own when it has come this often.
const VERY_OFTEN: u8 = 24;
/// A sequence of functions gets a general chain when it has come this often, with any parameters.
const AGAIN: u8 = 2;
/// Distinguishes the hashes of sequences of functions from those of exact batches, in the counts.
const SHAPE_COUNTS: u64 = 0x5eed;
/// Nanoseconds for which setting a node holds the context's lock, about.
const SETTING_NS: u64 = 500;
/// A batch gets a chain of its own only if setting its nodes would take more than one part in this
/// many of the kernels' time.
const SETTING_SHARE: u64 = 10;
/// Chains of at least this length are set to other functions. For shorter ones that takes longer
/// than it saves.
const RETARGETED_LENGTH: usize = 4;
/// A chain that was not used for this many launches of chains may be evicted.
const OLD_LAUNCHES: u64 = 512;
/// Most batches that are counted. After that, counting starts again.
const COUNTED_BATCHES: usize = 4096;

/// Most chains of one length in an engine. There are several because a chain that runs cannot be
/// set, and more short ones because they serve many different kernels.
const fn chain_limit(length: usize) -> usize {
    match length {
        1 => 96,
        2..=8 => 32,
        _ => 16,
    }
}

/// The length of the longest general chain that this many kernels fill.
fn general_length(batch: usize) -> usize {
    GENERAL_LENGTHS.iter().rev().find(|length| **length <= batch).copied().unwrap_or(1)
}

/// A chain that is set to the beginning of a batch and may be launched.
pub(super) struct ChosenChain {
    /// The number of its kernels.
    pub length: usize,
    /// Its index among the chains of its length.
    index: usize,
    /// The number of nodes that had to be set.
    pub nodes_set: usize,
}

/// A chain that is being made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PendingChain {
    /// The number of its kernels.
    pub length: usize,
    /// The word for its fence.
    pub word: FenceWord,
}

/// A request to make a chain.
pub(crate) struct ChainOrder {
    /// The chain to make.
    pub chain: PendingChain,
    /// The kernels with which it is made.
    pub kernels: Vec<PlannedKernel>,
}

/// The chains of one engine.
pub(super) struct Chains {
    /// The chains, by length.
    by_length: Vec<Vec<Chain>>,
    /// The chain that is being made. There is one at a time, because making a chain delays other
    /// clients' launches.
    pending: Option<PendingChain>,
    /// How often batches have come for which no chain was set.
    counts: FxHashMap<u64, u8>,
    /// Words that no chain uses.
    words: Vec<FenceWord>,
    /// Evicted and forgotten chains that no longer run, for a helper thread to destroy.
    retired: Vec<Chain>,
    /// Forgotten chains that still run. Their words are still in use.
    leaving: Vec<Chain>,
    /// The number of launches of chains so far.
    launches: u64,
}

impl Chains {
    /// No chains yet. `words` are for the fences of chains to come.
    pub(super) fn new(words: impl Iterator<Item = FenceWord>) -> Chains {
        let mut by_length = Vec::new();
        by_length.resize_with(LONGEST_CHAIN + 1, Vec::new);
        Chains { by_length, pending: None, counts: FxHashMap::default(), words: words.collect(), retired: Vec::new(), leaving: Vec::new(), launches: 0 }
    }

    /// Chooses a chain for the beginning of `batch` and sets it, and may return a request to make
    /// another chain. `expected_ns` is the estimate for the batch. `is_reached` says whether a
    /// fence of a slot is reached. If a chain is chosen and had to be set, its former kernels are
    /// in `batch` afterwards.
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
            let is_ready = |chain: &mut Chain| chain.fingerprint().exact == exact && chain.is_free(&mut is_reached) && chain.is_set_to(&batch[..length]);
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
                // A batch that comes once is not worth a graph.
                let again = order.is_none() && self.comes_often(shape ^ SHAPE_COUNTS, AGAIN);
                let order = if again { self.order_chain(beginning, &mut is_reached) } else { order };
                (None, order)
            }
        }
    }

    /// Finds a free chain that can be set to this batch, among those of its length. A chain with
    /// the same functions is preferred, then the one that was not used for the longest time.
    fn find_settable(&mut self, batch: &[PlannedKernel], shape: u64, is_reached: &mut impl FnMut(SlotIndex, u64) -> bool) -> Option<usize> {
        let chains = self.by_length[batch.len()].iter_mut().enumerate();
        let fitting = chains.filter(|(_, chain)| (chain.fingerprint().shape == shape || batch.len() >= RETARGETED_LENGTH) && chain.can_hold(batch));
        let free = fitting.filter_map(|(index, chain)| chain.is_free(is_reached).then_some((chain.fingerprint().shape != shape, chain.used, index)));
        free.min().map(|(.., index)| index)
    }

    fn use_chain(&mut self, length: usize, index: usize, nodes_set: usize) -> ChosenChain {
        self.launches += 1;
        self.by_length[length][index].used = self.launches;
        ChosenChain { length, index, nodes_set }
    }

    /// The chosen chain itself.
    pub(super) fn chosen(&mut self, chosen: &ChosenChain) -> &mut Chain {
        &mut self.by_length[chosen.length][chosen.index]
    }

    /// Counts a batch. Returns true if it has come at least `often` times.
    fn comes_often(&mut self, batch: u64, often: u8) -> bool {
        if self.counts.len() >= COUNTED_BATCHES {
            self.counts.clear();
        }
        let times = self.counts.entry(batch).or_default();
        *times = times.saturating_add(1);
        *times >= often
    }

    /// Requests a chain of these kernels, if there is a free word and no chain is being made.
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

    /// Evicts the chain that was not used for the longest time: one of this length if there are as
    /// many as allowed, else one of any length. Returns `None` if all are in use.
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

    /// Takes the chains that are to be destroyed.
    pub(super) fn take_retired(&mut self) -> Option<Vec<Chain>> {
        (!self.retired.is_empty()).then(|| std::mem::take(&mut self.retired))
    }

    /// Adds a chain that a helper thread has made. `None` if it could not be made.
    pub(super) fn add_built(&mut self, pending: PendingChain, chain: Option<Chain>) {
        self.pending = None;
        match chain {
            Some(chain) => self.by_length[pending.length].push(chain),
            None => self.words.push(pending.word),
        }
    }

    /// Forgets the chains that mention kernels for which `is_gone` holds. They are retired when
    /// they do not run any more.
    pub(super) fn forget_kernels(&mut self, is_gone: impl Fn(u64) -> bool) {
        self.leaving.extend(self.by_length.iter_mut().flat_map(|chains| chains.extract_if(.., |chain| chain.mentions(&is_gone))));
    }

    /// Retires the forgotten chains that do not run any more, and frees their words. While a chain
    /// runs, its word is needed to show its fence.
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
