//! The chains of one engine: choosing a chain for a batch of kernels, and deciding which chains to
//! make.
//!
//! A program that repeats itself comes with the same functions again, mostly with the same
//! parameters. Its batches are cut into segments that come again, too, and its stream gets chains
//! of its own for them, in which few nodes have to be set (decision 0121). Any other batch is cut
//! into general lengths, and a general chain is set to each.
//!
//! After a takeover, a stream finds the chains that it had before among those that were
//! [prepared](super::prepared) while this process stood by. A stream that goes leaves its chains to
//! the next one that brings their functions: who serves a model starts workers again and again.
//!
//! A helper thread makes the chains, several at once: the card is stopped for that. Until a chain
//! is made, kernels are launched one by one. The first chain of a stream for a segment is worth a
//! stop of its own, because the program will bring that segment again and again. Where other
//! batches end is chance: there are always new ones, and the card would be stopped all the time. So
//! these need to have come very often, and their chains are made rarely, or on another's occasion.
//! Few chains are better than many: what the driver knows of a chain is no longer in the
//! processor's cache when its turn comes (docs/performance.md).

use super::chain::{Chain, PreparedChain, Purpose, join_shapes};
use super::counts::Counts;
use super::lengths::{BatchEnd, Cut, LONGEST_CHAIN, Lengths};
use super::names::ChainName;
use super::pending::{Occasion, PendingChain, PendingChains, Room};
use super::plan::PlannedKernel;
use super::prepared::PreparedChains;
use super::segments::SHORTEST_SEGMENT;
use super::shelf::{Shelf, key_of};
use crate::driver::WordAddresses;
use crate::track::{FenceWord, SlotIndex};
use cumux_device::{RecipeKernel, StreamId};
use smallvec::SmallVec;
use std::sync::Arc;

/// A segment gets a chain of its own when it has come this often.
const OFTEN: u8 = 2;
/// A batch that ends where it does by chance gets a chain of its own when it has come this often,
/// lately if its kernels fall into no segments. Short ones get a general chain no sooner, either.
const VERY_OFTEN: u8 = 24;
/// The same where chance would cut it ([`Lengths::cut`]).
const MOST_OFTEN: u8 = 4 * VERY_OFTEN;
/// A longer sequence of functions gets a general chain when it has come this often, with any
/// parameters.
const AGAIN: u8 = 2;
/// Most chains of a stream for the same functions, of any number. There are several because a chain
/// that runs cannot be set, and because a program may run the same functions on several things in
/// turn.
const MOST_TWINS: usize = 8;
/// Distinguishes the hashes of sequences of functions of any stream, in the counts.
const SHAPE_COUNTS: u64 = 0x5eed;
/// Distinguishes the hashes of sequences of functions that have a chain already.
const TWIN_COUNTS: u64 = 0x7_0171_5eed;
/// Chains of at least this length are set to other functions. For shorter ones that takes longer
/// than it saves.
const RETARGETED_LENGTH: usize = 4;
/// A chain that was not used for this many launches of chains may be evicted.
const OLD_LAUNCHES: u64 = 1024;
/// Most chains that are destroyed at once of those that nobody has taken.
const LEFT_OVER_AT_ONCE: usize = 16;

/// Most chains of one length in an engine. There are several because a chain that runs cannot be
/// set, and more short ones because they serve many different kernels.
const fn chain_limit(length: usize) -> usize {
    match length {
        1 => 96,
        2..SHORTEST_SEGMENT => 64,
        _ => 128,
    }
}

/// Most chains of a stream for the same functions. Setting a short one costs less than another one.
const fn twin_limit(length: usize) -> usize {
    if length < SHORTEST_SEGMENT { MOST_TWINS / 2 } else { MOST_TWINS }
}

/// Kernels that come together, with their hashes in the same order.
pub(super) struct Batch<'a> {
    /// The kernels.
    pub kernels: &'a mut [PlannedKernel],
    /// Their hashes by [`super::chain::shape_of`].
    pub shapes: &'a [u64],
    /// Their hashes by [`super::chain::launch_of`].
    pub launches: &'a [u64],
}

impl Batch<'_> {
    /// So many kernels from the beginning.
    fn beginning(&mut self, length: usize) -> Batch<'_> {
        Batch { kernels: &mut self.kernels[..length], shapes: &self.shapes[..length], launches: &self.launches[..length] }
    }
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

/// A chain of a stream that fits a batch.
#[derive(Debug, Clone, Copy)]
struct OwnChain {
    /// Its index among the chains of its length.
    index: usize,
    /// The number of nodes that have to be set.
    different: usize,
}

/// A chain that a stream has taken of another one that is gone.
pub(super) struct Inherited {
    /// The stream that has it now.
    pub stream: StreamId,
    /// Its name.
    pub name: ChainName,
    /// How many chains of its functions that stream has; `None` if another process need not make
    /// it.
    pub count: Option<u32>,
}

/// A request to make a chain.
pub(crate) struct ChainOrder {
    /// The chain to make.
    pub chain: PendingChain,
    /// The kernels with which it is made.
    pub kernels: Vec<PlannedKernel>,
    /// How many chains the stream has of these functions then; `None` if another process need not
    /// make it in advance.
    pub count: Option<u32>,
}

impl ChainOrder {
    /// True if one of its kernels is among these.
    pub(crate) fn mentions(&self, kernels: &[u64]) -> bool {
        self.kernels.iter().any(|planned| kernels.contains(&planned.kernel().id))
    }
}

/// The chains of one engine.
pub(super) struct Chains {
    /// The chains, by length.
    by_length: Vec<Shelf>,
    /// The chains that are ordered and not made.
    pending: PendingChains,
    /// How often batches have come for which no chain was set.
    counts: Counts,
    /// Chains that no engine has yet.
    prepared: Arc<PreparedChains>,
    /// Those that streams have taken, until the engine has noted it.
    adopted: Vec<(StreamId, Vec<RecipeKernel>)>,
    /// Those that streams have taken of others that are gone, until the engine has noted it.
    inherited: Vec<Inherited>,
    /// Words that no chain uses.
    words: Vec<FenceWord>,
    /// Where the card has all words.
    addresses: WordAddresses,
    /// Evicted and forgotten chains that no longer run, for a helper thread to destroy.
    retired: Vec<Chain>,
    /// Forgotten chains that still run. Their words are still in use.
    leaving: Vec<Chain>,
    /// The number of launches of chains so far.
    launches: u64,
    /// Whether chains are made and destroyed now.
    makes_chains: bool,
}

impl Chains {
    /// No chains yet. `words` are for the fences of chains to come.
    pub(super) fn new(words: impl Iterator<Item = FenceWord>, addresses: WordAddresses, prepared: Arc<PreparedChains>) -> Chains {
        let mut by_length = Vec::new();
        by_length.resize_with(LONGEST_CHAIN + 1, Shelf::default);
        Chains {
            by_length,
            pending: PendingChains::default(),
            counts: Counts::default(),
            prepared,
            adopted: Vec::new(),
            inherited: Vec::new(),
            words: words.collect(),
            addresses,
            retired: Vec::new(),
            leaving: Vec::new(),
            launches: 0,
            makes_chains: true,
        }
    }

    /// Chooses a chain for the beginning of a stream's `batch` and sets it, and may return a
    /// request to make another chain. `is_reached` says whether a fence of a slot is reached. If a
    /// chain is chosen and had to be set, its former kernels are in `batch` afterwards.
    pub(super) fn choose(
        &mut self,
        mut batch: Batch<'_>,
        cut: Cut,
        stream: StreamId,
        mut is_reached: impl FnMut(SlotIndex, u64) -> bool,
    ) -> (Option<ChosenChain>, Option<ChainOrder>) {
        self.release_leaving(&mut is_reached);
        let Lengths { all, ordered, own, cut: by_chance, general } = Lengths::of(batch.kernels.len(), cut);
        let Cut { segment, is_whole, end, is_endless } = cut;
        // A batch that begins within a segment was cut there by chance.
        let repeats = is_whole && (segment.is_some() || (end == BatchEnd::Work && own == batch.kernels.len()));
        let mut order = None;
        for (at, length) in all.into_iter().enumerate() {
            let beginning = batch.beginning(length);
            let shape = join_shapes(beginning.shapes);
            // The program will bring it again, in another process, too.
            let is_lasting = repeats && length == own;
            let often = if is_lasting {
                OFTEN
            } else if length <= by_chance {
                VERY_OFTEN
            } else {
                MOST_OFTEN
            };
            let mut found = self.find_own(stream, &beginning, shape, &mut is_reached);
            if at >= ordered {
                found = found.filter(|found| found.different == 0);
            }
            if found.is_none() && is_lasting {
                found = self.adopt_prepared(&beginning, shape, stream);
            }
            let may_inherit = at < ordered && (is_lasting || is_endless);
            if found.is_none() && may_inherit {
                found = self.take_left(&beginning, shape, stream, is_lasting, &mut is_reached);
                // It has the other stream's parameters once: that is no sign of anything.
                if let Some(OwnChain { index, .. }) = found {
                    return (self.set_chain(index, beginning, shape), order);
                }
            }
            let is_wanted = self.makes_chains
                && order.is_none()
                && at < ordered
                && match found {
                    // There are several such batches in turn: another chain will have the
                    // parameters of one of them the next time.
                    Some(OwnChain { different, .. }) => different * 2 > length && self.counts.count(key_of(stream, shape) ^ TWIN_COUNTS) >= OFTEN,
                    // What repeats gets its own chain, and is not cut into others meanwhile.
                    None if length != own && repeats => false,
                    None if is_endless => self.counts.count_lately(key_of(stream, shape), self.launches) >= often,
                    None => self.counts.count(key_of(stream, shape)) >= often,
                };
            let twins = if is_wanted { self.by_length[length].own(stream, shape).count() } else { 0 };
            if is_wanted && twins < twin_limit(length) {
                let occasion = match twins {
                    _ if segment != Some(length) || !repeats => Occasion::Chance,
                    0 => Occasion::FirstOfSegment,
                    _ => Occasion::TwinOfSegment,
                };
                // A twin may have been prepared, too. It is used at once: it has no parameters yet.
                let twin = if is_lasting && found.is_some() {
                    self.adopt_prepared(&beginning, shape, stream)
                } else if is_endless && !is_lasting && twins == 0 {
                    self.take_general(&beginning, shape, stream, &mut is_reached)
                } else {
                    None
                };
                let twin = match twin {
                    None if may_inherit => self.take_left(&beginning, shape, stream, is_lasting, &mut is_reached),
                    twin => twin,
                };
                if twin.is_none() {
                    order = self.order_chain(beginning.kernels, shape, Purpose::Own(stream), occasion, &mut is_reached);
                }
                if let Some(order) = order.as_mut().filter(|_| is_lasting) {
                    order.count = u32::try_from(twins + 1).ok();
                }
                // An evicted chain makes others move.
                found = twin.or_else(|| self.find_own(stream, &beginning, shape, &mut is_reached));
            }
            if let Some(OwnChain { index, .. }) = found {
                return (self.set_chain(index, beginning, shape), order);
            }
        }
        let beginning = batch.beginning(general);
        let shape = join_shapes(beginning.shapes);
        match self.find_settable(beginning.kernels, shape, &mut is_reached) {
            Some(index) => {
                self.by_length[general].change(index, |chain| chain.purpose = Purpose::General);
                (self.set_chain(index, beginning, shape), order)
            }
            None => {
                // A batch that comes once is not worth a graph.
                let often = if general < RETARGETED_LENGTH { VERY_OFTEN } else { AGAIN };
                // Equal kernels will soon have the chains that their stream has ordered.
                let soon = is_endless && self.pending.has_own(stream);
                let again = self.makes_chains && order.is_none() && !soon && self.counts.count(shape ^ SHAPE_COUNTS) >= often;
                let order = if again { self.order_chain(beginning.kernels, shape, Purpose::General, Occasion::Chance, &mut is_reached) } else { order };
                (None, order)
            }
        }
    }

    /// Sets the chain with this index to the batch of this shape, among the chains of its length.
    /// `None` if the driver refuses a kernel: then there is no such chain any more.
    fn set_chain(&mut self, index: usize, batch: Batch<'_>, shape: u64) -> Option<ChosenChain> {
        let length = batch.kernels.len();
        let shelf = &mut self.by_length[length];
        let Some(nodes_set) = shelf.change(index, |chain| chain.set_kernels(batch.kernels, batch.shapes, batch.launches, shape)) else {
            let chain = shelf.swap_remove(index);
            self.words.push(chain.word());
            return None;
        };
        self.launches += 1;
        let chain = shelf.chain(index);
        (chain.used, chain.nodes_set) = (self.launches, nodes_set);
        Some(ChosenChain { length, index, nodes_set })
    }

    /// Finds a free chain of this stream for these functions: the one in which the fewest nodes
    /// differ. If a program repeats itself, that is mostly the one that was not used for the
    /// longest time: it had this place in the program the last time.
    fn find_own(&mut self, stream: StreamId, batch: &Batch<'_>, shape: u64, is_reached: &mut impl FnMut(SlotIndex, u64) -> bool) -> Option<OwnChain> {
        let shelf = &mut self.by_length[batch.kernels.len()];
        let own: SmallVec<[usize; MOST_TWINS]> = shelf.own(stream, shape).collect();
        let mut twins: SmallVec<[(u64, usize); MOST_TWINS]> = SmallVec::new();
        for index in own {
            let chain = shelf.chain(index);
            if chain.is_free(is_reached) {
                twins.push((chain.used, index));
            }
        }
        twins.sort_unstable();
        let mut best: Option<OwnChain> = None;
        for (_, index) in twins {
            let chain = shelf.chain(index);
            let different = chain.count_different(batch.launches);
            // Nodes with clusters are set to no other blocks, though the functions are the same.
            if best.is_none_or(|best| different < best.different) && chain.can_hold(batch.kernels) {
                best = Some(OwnChain { index, different });
                if different == 0 {
                    break;
                }
            }
        }
        best
    }

    /// Gives a stream a general chain that has these functions already. The stream needs none of
    /// its own then, and no stop of the card. `None` if there is none that is free, or if another
    /// general chain could not be made in its place.
    fn take_general(&mut self, batch: &Batch<'_>, shape: u64, stream: StreamId, is_reached: &mut impl FnMut(SlotIndex, u64) -> bool) -> Option<OwnChain> {
        let length = batch.kernels.len();
        if self.by_length[length].len() + self.pending.count_of(length) >= chain_limit(length) {
            return None;
        }
        let shelf = &mut self.by_length[length];
        let is_general = |chain: &Chain| chain.purpose == Purpose::General && chain.shape() == shape && chain.can_hold(batch.kernels);
        let free = shelf.iter_mut().filter(|(_, chain)| is_general(chain)).filter_map(|(index, chain)| chain.is_free(is_reached).then_some(index));
        let index = free.min()?;
        let different = shelf.chain(index).count_different(batch.launches);
        shelf.change(index, |chain| chain.purpose = Purpose::Own(stream));
        Some(OwnChain { index, different })
    }

    /// Gives a stream a chain of these kernels that another one has left, unless it has enough. Of
    /// several that is the one in which the fewest nodes differ: a program that was started again
    /// may have the same parameters. `is_lasting`: another process will need it, too.
    fn take_left(
        &mut self,
        batch: &Batch<'_>,
        shape: u64,
        stream: StreamId,
        is_lasting: bool,
        is_reached: &mut impl FnMut(SlotIndex, u64) -> bool,
    ) -> Option<OwnChain> {
        let length = batch.kernels.len();
        let (shelf, launches) = (&mut self.by_length[length], self.launches);
        let left: SmallVec<[usize; MOST_TWINS]> = shelf.left(shape).collect();
        let twins = if left.is_empty() { 0 } else { shelf.own(stream, shape).count() };
        if left.is_empty() || twins >= twin_limit(length) {
            return None;
        }
        let free = left.into_iter().filter_map(|index| {
            let chain = shelf.chain(index);
            let fits = chain.is_free(is_reached) && chain.has_functions(batch.kernels) && chain.can_hold(batch.kernels);
            fits.then(|| (chain.count_different(batch.launches), index))
        });
        let (different, index) = free.min()?;
        let word = shelf.change(index, |chain| {
            (chain.purpose, chain.used) = (Purpose::Own(stream), launches);
            chain.word()
        });
        let count = is_lasting.then(|| u32::try_from(twins + 1).unwrap_or(u32::MAX));
        self.inherited.push(Inherited { stream, name: ChainName { length, index, word }, count });
        Some(OwnChain { index, different })
    }

    /// Finds a free chain that can be set to this batch, among those of its length. A chain with
    /// the same functions is preferred, then the one that was not used for the longest time.
    fn find_settable(&mut self, batch: &[PlannedKernel], shape: u64, is_reached: &mut impl FnMut(SlotIndex, u64) -> bool) -> Option<usize> {
        let old = self.launches.saturating_sub(OLD_LAUNCHES);
        let is_settable = |chain: &Chain| chain.purpose == Purpose::General || chain.used < old;
        let chains = self.by_length[batch.len()].iter_mut().filter(|(_, chain)| is_settable(chain));
        let fitting = chains.filter(|(_, chain)| (chain.shape() == shape || batch.len() >= RETARGETED_LENGTH) && chain.can_hold(batch));
        let free = fitting.filter_map(|(index, chain)| chain.is_free(is_reached).then_some((chain.shape() != shape, chain.used, index)));
        free.min().map(|(.., index)| index)
    }

    // ---- what comes next in a stream

    /// The chain with this name, if it is still there.
    pub(super) fn named(&self, name: ChainName) -> Option<&Chain> {
        self.by_length[name.length].get(name.index).filter(|chain| chain.word() == name.word)
    }

    /// The chain of this stream's own that it has launched behind this one the last time.
    pub(super) fn next_of(&self, last: ChainName, stream: StreamId) -> Option<ChainName> {
        let next = self.named(last)?.next?;
        self.named(next).filter(|chain| chain.purpose == Purpose::Own(stream)).map(|_| next)
    }

    /// Notes that a stream has launched a chain, and behind which one, if there is any. Returns the
    /// chain's name.
    pub(super) fn note_next(&mut self, last: Option<ChainName>, chosen: &ChosenChain) -> ChainName {
        let ChosenChain { length, index, .. } = *chosen;
        let next = ChainName { length, index, word: self.chosen(chosen).word() };
        if let Some(last) = last.filter(|last| self.named(*last).is_some()) {
            self.by_length[last.length].chain(last.index).next = Some(next);
        }
        next
    }

    /// The chain with this name, if it may be launched. `is_reached` as for [`Chains::choose`].
    pub(super) fn find_free(&mut self, name: ChainName, mut is_reached: impl FnMut(SlotIndex, u64) -> bool) -> Option<&Chain> {
        self.named(name)?;
        let chain = self.by_length[name.length].chain(name.index);
        chain.is_free(&mut is_reached).then_some(&*chain)
    }

    /// Chooses the chain with this name, which was found free, as it is.
    pub(super) fn choose_again(&mut self, name: ChainName) -> ChosenChain {
        let ChainName { length, index, .. } = name;
        self.launches += 1;
        let chain = self.by_length[length].chain(index);
        (chain.used, chain.nodes_set) = (self.launches, 0);
        ChosenChain { length, index, nodes_set: 0 }
    }

    /// The chosen chain itself.
    pub(super) fn chosen(&mut self, chosen: &ChosenChain) -> &mut Chain {
        self.by_length[chosen.length].chain(chosen.index)
    }

    /// Requests a chain of these kernels of this shape, if there is a free word and it may be
    /// ordered.
    fn order_chain(
        &mut self,
        kernels: &[PlannedKernel],
        shape: u64,
        purpose: Purpose,
        occasion: Occasion,
        is_reached: &mut impl FnMut(SlotIndex, u64) -> bool,
    ) -> Option<ChainOrder> {
        let length = kernels.len();
        if !self.pending.may_order(length, shape, purpose, occasion) {
            return None;
        }
        if self.by_length[length].len() + self.pending.count_of(length) >= chain_limit(length) {
            self.evict_oldest(length..length + 1, |_| true, is_reached)?;
        } else {
            let all = self.by_length.iter().map(Shelf::len).sum::<usize>() + self.pending.len();
            let by_chance = || self.by_length.iter().map(Shelf::count_by_chance).sum::<usize>() + self.pending.count_by_chance();
            let lengths = 1..LONGEST_CHAIN + 1;
            match occasion.room(all, by_chance, self.words.len()) {
                Room::Free => {}
                Room::InPlaceOfAny => self.evict_oldest(lengths, |_| true, is_reached)?,
                Room::InPlaceOfChance => self.evict_oldest(lengths, |chain| chain.by_chance, is_reached)?,
                Room::BesideOthers => _ = self.evict_oldest(lengths, |chain| chain.by_chance, is_reached),
            }
        }
        let chain = PendingChain { length, shape, occasion, word: self.words.pop()?, purpose };
        self.pending.push(chain);
        Some(ChainOrder { chain, kernels: kernels.to_vec(), count: None })
    }

    /// Gives a stream a chain of these functions that was made before it came. `None` if there is
    /// none, or no place for it.
    fn adopt_prepared(&mut self, batch: &Batch<'_>, shape: u64, stream: StreamId) -> Option<OwnChain> {
        let (length, words) = (batch.kernels.len(), &self.words);
        if self.prepared.is_empty() || words.is_empty() || self.by_length[length].len() + self.pending.count_of(length) >= chain_limit(length) {
            return None;
        }
        let fits = |chain: &Chain| chain.kernels().len() == length && chain.can_hold(batch.kernels);
        let (recipe, prepared) = self.prepared.take(shape, fits)?;
        let word = self.words.pop()?;
        match prepared.adopt(word, self.addresses.of(word.0), Purpose::Own(stream)) {
            Ok(mut chain) => {
                tracing::debug!(length, stream = stream.0, "a chain that was made in advance is taken");
                self.adopted.push((stream, recipe));
                (chain.used, chain.by_chance) = (self.launches, length < SHORTEST_SEGMENT);
                let different = chain.count_different(batch.launches);
                self.by_length[length].push(chain);
                Some(OwnChain { index: self.by_length[length].len() - 1, different })
            }
            Err(error) => {
                tracing::debug!(length, code = error.number(), "a chain that was made in advance cannot be used");
                self.words.push(word);
                None
            }
        }
    }

    /// Takes some of the chains that were made in advance and that nobody needs any more.
    pub(super) fn take_left_over(&self) -> Vec<PreparedChain> {
        if self.prepared.is_empty() || !self.makes_chains { Vec::new() } else { self.prepared.take_left_over(LEFT_OVER_AT_ONCE) }
    }

    /// Which streams have taken chains that were made in advance, and how those can be made again.
    pub(super) fn take_adopted(&mut self) -> impl Iterator<Item = (StreamId, Vec<RecipeKernel>)> {
        self.adopted.drain(..)
    }

    /// Which streams have taken chains of others that are gone.
    pub(super) fn take_inherited(&mut self) -> Vec<Inherited> {
        std::mem::take(&mut self.inherited)
    }

    /// These streams are gone.
    pub(super) fn leave(&mut self, streams: &[StreamId]) {
        self.by_length.iter_mut().for_each(|shelf| shelf.leave(streams));
    }

    /// Evicts the chain of these lengths that was not used for the longest time, of those for which
    /// `may_go` holds. Returns `None` if all are in use.
    fn evict_oldest(
        &mut self,
        lengths: std::ops::Range<usize>,
        may_go: impl Fn(&Chain) -> bool,
        is_reached: &mut impl FnMut(SlotIndex, u64) -> bool,
    ) -> Option<()> {
        let old = self.launches.checked_sub(OLD_LAUNCHES)?;
        let mut oldest: Option<(u64, usize, usize)> = None;
        for length in lengths {
            for (index, chain) in self.by_length[length].iter_mut() {
                let used = chain.used;
                if used < old && oldest.is_none_or(|(least, ..)| used < least) && may_go(chain) && chain.is_free(is_reached) {
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

    /// Whether chains are made and destroyed from now on.
    pub(super) fn set_making(&mut self, makes_chains: bool) {
        self.makes_chains = makes_chains;
    }

    /// Takes the chains that are to be destroyed.
    pub(super) fn take_retired(&mut self) -> Option<Vec<Chain>> {
        (self.makes_chains && !self.retired.is_empty()).then(|| std::mem::take(&mut self.retired))
    }

    /// Adds a chain that a helper thread has made. `None` if it could not be made.
    pub(super) fn add_built(&mut self, pending: PendingChain, chain: Option<Chain>) {
        self.pending.remove(pending);
        match chain {
            Some(mut chain) => {
                // Nobody could use it before, so it is not old.
                (chain.used, chain.by_chance) = (self.launches, pending.occasion == Occasion::Chance);
                self.by_length[pending.length].push(chain);
            }
            None => self.words.push(pending.word),
        }
    }

    /// Forgets the chains that mention kernels for which `is_gone` holds. They are retired when
    /// they do not run any more.
    pub(super) fn forget_kernels(&mut self, is_gone: impl Fn(u64) -> bool) {
        self.leaving.extend(self.by_length.iter_mut().flat_map(|shelf| shelf.remove_if(|chain| chain.mentions(&is_gone))));
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
