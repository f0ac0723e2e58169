//! Many launches as one: chains of kernels, kept as graph executables that end with a kernel of ours which says that they are over.
//!
//! One call of the driver starts a whole chain and its mark. Measured on an H200 (docs/performance.md): a kernel and its mark as one chain cost 1.0 µs of the
//! context's lock, a launch and a written value 2.4 to 3.3 µs. A chain belongs to one engine and runs at most once at a time. What each node ran the last time is
//! remembered: a step that repeats itself sets nothing; setting parameters costs about 0.5 µs a node, another function about 1.5 µs.
//! Chains are made on the helper thread, never here: until one is there, kernels are launched one by one.
//! A node never gets more bytes of parameters than it was made with: the driver takes them and runs the kernels with wrong ones (decision 0110).

use crate::context::ClientModule;
use crate::driver::{ChainGraph, Driver, Function, GraphKernel, Stream};
use crate::fault::CudaError;
use crate::work::Planned;
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;

/// Longest chain.
pub(crate) const LONGEST: usize = 128;
/// Lengths that any run is cut into when nobody has made a chain for just this run.
const LENGTHS: [usize; 10] = [1, 2, 4, 8, 16, 24, 32, 48, 64, 128];
/// What came so often gets a chain of its own: pieces of the usual lengths soon, whole runs of other lengths when they really repeat themselves.
const OFTEN: u8 = 3;
const VERY_OFTEN: u8 = 24;
/// The same functions, whatever their parameters; counted beside the exact runs.
const AGAIN: u8 = 2;
const SHAPES: u64 = 0x5eed;
/// Setting a node costs about this much of the lock's time; a chain of its own pays only where that is a part worth mentioning of what the kernels take.
const SETTING_NS: u64 = 500;
const WORTH: u64 = 10;
/// From so many nodes on it pays to give a node another function.
const RETARGETED: usize = 4;
/// A chain that was passed over for so many launches may give way to another.
const OLD: u64 = 512;
/// Runs that are remembered before counting starts anew.
const REMEMBERED: usize = 4096;

/// Chains of one length in an engine: one that runs cannot be changed, and short ones are for many different kernels.
const fn most(length: usize) -> usize {
    match length {
        1 => 96,
        2..=8 => 32,
        _ => 16,
    }
}

/// The longest general chain that a run of this many kernels fills.
fn cut(run: usize) -> usize {
    LENGTHS.iter().rev().find(|length| **length <= run).copied().unwrap_or(1)
}

/// The functions and shapes of a run as one number, and with the parameters as another. Equal numbers are no proof.
fn numbers(run: &[Planned]) -> (u64, u64) {
    let (mut shape, mut exact) = (FxHasher::default(), FxHasher::default());
    for planned in run {
        planned.kernel().id.hash(&mut shape);
        planned.shape.grid.hash(&mut shape);
        exact.write(&planned.parameters);
    }
    let shape = shape.finish();
    exact.write_u64(shape);
    (shape, exact.finish())
}

/// Whether a kernel can be a node of a chain.
pub(crate) fn fits(planned: &Planned) -> bool {
    let plain = planned.shape.has_no_clusters();
    let info = &planned.module.info.functions[planned.function];
    // Drivers have ended the process when they were given a node with more (openxla/xla, pull request 19252).
    let small = info.parameter_bytes <= 4096;
    plain && small && !planned.shape.cooperative && !planned.kernel().prints && info.cluster == [0; 3]
}

fn same(a: &Planned, b: &Planned) -> bool {
    a.kernel().id == b.kernel().id && a.shape == b.shape && a.parameters == b.parameters
}

pub(crate) struct Chain {
    driver: Arc<Driver>,
    graph: ChainGraph,
    /// What each node runs now. Holds the modules: they are not unloaded under a chain.
    content: Vec<Planned>,
    /// Bytes of parameters that each node was made with.
    rooms: Vec<u32>,
    /// What each node of the graph was made with, and kernels' numbers: the driver looks there whenever a node of the executable is set.
    origin: Vec<(Arc<ClientModule>, u64)>,
    shape: u64,
    exact: u64,
    /// The word that its last node sets to 1.
    pub word: usize,
    /// Slot and mark after which it may be changed again.
    busy: Option<(usize, u64)>,
    used: u64,
}

impl Drop for Chain {
    fn drop(&mut self) {
        self.driver.destroy_chain(&self.graph);
    }
}

impl Chain {
    /// Slow: not for a dispatch thread. `mark` is the kernel that writes 1 to `address`, the word number `word`.
    pub(crate) fn build(driver: &Arc<Driver>, content: Vec<Planned>, mark: Function, word: usize, address: u64, stream: Stream) -> Result<Chain, CudaError> {
        let kernels: Vec<GraphKernel<'_>> = content.iter().map(Planned::graph_kernel).collect();
        let graph = driver.create_chain(&kernels, mark, address, stream)?;
        let (shape, exact) = numbers(&content);
        let rooms = content.iter().map(|planned| planned.kernel().parameter_bytes).collect();
        let mut origin: Vec<(Arc<ClientModule>, u64)> = content.iter().map(|planned| (planned.module.clone(), planned.kernel().id)).collect();
        origin.sort_unstable_by_key(|(_, id)| *id);
        origin.dedup_by_key(|(_, id)| *id);
        Ok(Chain { driver: driver.clone(), graph, content, rooms, origin, shape, exact, word, busy: None, used: 0 })
    }

    pub(crate) fn kernels(&self) -> &[Planned] {
        &self.content
    }

    /// Whether any of these kernels is, or was at first, in a node.
    fn mentions(&self, gone: &impl Fn(u64) -> bool) -> bool {
        self.origin.iter().map(|(_, id)| *id).chain(self.content.iter().map(|planned| planned.kernel().id)).any(gone)
    }

    /// Whether the nodes have room for these kernels.
    fn takes(&self, run: &[Planned]) -> bool {
        self.rooms.iter().zip(run).all(|(room, planned)| planned.kernel().parameter_bytes <= *room)
    }

    fn is(&self, run: &[Planned]) -> bool {
        self.content.iter().zip(run).all(|(a, b)| same(a, b))
    }

    /// Makes the nodes run this; what they ran before is in `run` then. Returns how many had to be set, or `None` if a kernel cannot be in a node: then the
    /// chain is of no more use and `run` is as it was.
    fn set(&mut self, run: &mut [Planned]) -> Option<usize> {
        let mut set = Vec::new();
        for at in 0..run.len() {
            if same(&self.content[at], &run[at]) {
                continue;
            }
            let next = &run[at];
            if self.driver.set_node(&self.graph, self.graph.nodes[at], &next.graph_kernel()).is_err() {
                for place in set {
                    std::mem::swap::<Planned>(&mut self.content[place], &mut run[place]);
                }
                return None;
            }
            set.push(at);
            std::mem::swap(&mut self.content[at], &mut run[at]);
        }
        (self.shape, self.exact) = numbers(&self.content);
        Some(set.len())
    }
}

/// A chain that may be launched now: it runs what was asked for.
pub(crate) struct Picked {
    pub length: usize,
    place: usize,
    pub nodes_set: usize,
}

/// Where a chain that is being made belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub length: usize,
    pub word: usize,
}

/// A chain that should be made, of these kernels.
pub(crate) struct Order {
    pub wanted: Wanted,
    pub content: Vec<Planned>,
}

/// The chains of one engine.
pub(crate) struct Chains {
    /// By length.
    chains: Vec<Vec<Chain>>,
    /// Lengths of chains that are being made.
    ordered: Vec<usize>,
    /// How often runs came that no chain ran the last time.
    seen: FxHashMap<u64, u8>,
    /// PinnedWords that belong to no chain.
    words: Vec<usize>,
    /// Chains that gave way to others, for the helper to destroy.
    retired: Vec<Chain>,
    /// Chains that are forgotten but still run: their words are not free yet.
    leaving: Vec<Chain>,
    clock: u64,
}

impl Chains {
    /// `words` are for the chains' ends.
    pub(crate) fn new(words: impl Iterator<Item = usize>) -> Chains {
        let mut chains = Vec::new();
        chains.resize_with(LONGEST + 1, Vec::new);
        Chains { chains, ordered: Vec::new(), seen: FxHashMap::default(), words: words.collect(), retired: Vec::new(), leaving: Vec::new(), clock: 0 }
    }

    /// A free chain for the beginning of `run`, set to run it, and perhaps one that should be made. `over` says whether a mark was reached; the run is expected to
    /// take `expected_ns`. Where a chain is picked, `run` holds afterwards what that chain ran before.
    pub(crate) fn pick(&mut self, run: &mut [Planned], expected_ns: u64, mut over: impl FnMut(usize, u64) -> bool) -> (Option<Picked>, Option<Order>) {
        self.let_go(&mut over);
        let short = expected_ns < run.len() as u64 * SETTING_NS * WORTH;
        let whole = run.len().min(LONGEST);
        let general = cut(whole);
        let mut wanted = None;
        for length in [whole, general] {
            let (_, exact) = numbers(&run[..length]);
            let found = self.chains[length].iter_mut().position(|chain| chain.exact == exact && chain.is_free(&mut over) && chain.is(&run[..length]));
            if let Some(place) = found {
                return (Some(self.take(length, place, 0)), wanted);
            }
            let often = if length == general { OFTEN } else { VERY_OFTEN };
            if wanted.is_none() && short && self.comes_often(exact, often) {
                wanted = self.want(&run[..length], &mut over);
            }
            if whole == general {
                break;
            }
        }
        let (shape, _) = numbers(&run[..general]);
        let chains = self.chains[general].iter_mut().enumerate();
        let fitting = chains.filter(|(_, chain)| (chain.shape == shape || general >= RETARGETED) && chain.takes(&run[..general]));
        let free = fitting.filter_map(|(place, chain)| chain.is_free(&mut over).then_some((chain.shape != shape, chain.used, place)));
        match free.min() {
            Some((.., place)) => match self.chains[general][place].set(&mut run[..general]) {
                Some(nodes_set) => (Some(self.take(general, place, nodes_set)), wanted),
                None => {
                    let chain = self.chains[general].swap_remove(place);
                    self.words.push(chain.word);
                    (None, wanted)
                }
            },
            None => {
                // What is launched once is not worth a graph.
                let again = wanted.is_none() && self.comes_often(shape ^ SHAPES, AGAIN);
                let wanted = if again { self.want(&run[..general], &mut over) } else { wanted };
                (None, wanted)
            }
        }
    }

    fn take(&mut self, length: usize, place: usize, nodes_set: usize) -> Picked {
        self.clock += 1;
        self.chains[length][place].used = self.clock;
        Picked { length, place, nodes_set }
    }

    pub(crate) fn chain(&mut self, picked: &Picked) -> &mut Chain {
        &mut self.chains[picked.length][picked.place]
    }

    fn comes_often(&mut self, exact: u64, often: u8) -> bool {
        if self.seen.len() >= REMEMBERED {
            self.seen.clear();
        }
        let times = self.seen.entry(exact).or_default();
        *times = times.saturating_add(1);
        *times >= often
    }

    /// Room for one more chain, of these kernels. One is made at a time: making them costs the others' launches.
    fn want(&mut self, run: &[Planned], over: &mut impl FnMut(usize, u64) -> bool) -> Option<Order> {
        let length = run.len();
        if !self.ordered.is_empty() {
            return None;
        }
        if self.chains[length].len() >= most(length) || self.words.is_empty() {
            self.make_room(length, over)?;
        }
        let word = self.words.pop()?;
        self.ordered.push(length);
        Some(Order { wanted: Wanted { length, word }, content: run.to_vec() })
    }

    /// Takes out the chain that was not used for the longest time: of this length if there are many, else of any. `None` if all are in use.
    fn make_room(&mut self, length: usize, over: &mut impl FnMut(usize, u64) -> bool) -> Option<()> {
        let old = self.clock.checked_sub(OLD)?;
        let lengths = if self.chains[length].len() >= most(length) { length..length + 1 } else { 1..LONGEST + 1 };
        let mut oldest: Option<(u64, usize, usize)> = None;
        for at in lengths {
            for (place, chain) in self.chains[at].iter_mut().enumerate() {
                let used = chain.used;
                if used < old && oldest.is_none_or(|(least, ..)| used < least) && chain.is_free(over) {
                    oldest = Some((used, at, place));
                }
            }
        }
        let (_, at, place) = oldest?;
        let chain = self.chains[at].swap_remove(place);
        self.words.push(chain.word);
        self.retired.push(chain);
        Some(())
    }

    /// Chains to destroy, elsewhere.
    pub(crate) fn retired(&mut self) -> Option<Vec<Chain>> {
        (!self.retired.is_empty()).then(|| std::mem::take(&mut self.retired))
    }

    /// The helper has made one, or could not.
    pub(crate) fn built(&mut self, wanted: Wanted, chain: Option<Chain>) {
        self.ordered.retain(|length| *length != wanted.length);
        match chain {
            Some(chain) => self.chains[wanted.length].push(chain),
            None => self.words.push(wanted.word),
        }
    }

    /// Takes out the chains that mention kernels with these numbers; they are [`Chains::retired`] when they do not run any more.
    pub(crate) fn forget(&mut self, gone: impl Fn(u64) -> bool) {
        self.leaving.extend(self.chains.iter_mut().flat_map(|chains| chains.extract_if(.., |chain| chain.mentions(&gone))));
    }

    /// Frees the words of forgotten chains that do not run any more: before, their marks are looked for there.
    pub(crate) fn let_go(&mut self, over: &mut impl FnMut(usize, u64) -> bool) {
        if self.leaving.is_empty() {
            return;
        }
        for chain in self.leaving.extract_if(.., |chain| chain.is_free(over)) {
            self.words.push(chain.word);
            self.retired.push(chain);
        }
    }
}

impl Chain {
    fn is_free(&mut self, over: &mut impl FnMut(usize, u64) -> bool) -> bool {
        if self.busy.is_some_and(|(slot, mark)| !over(slot, mark)) {
            return false;
        }
        self.busy = None;
        true
    }

    /// It runs until this mark of this slot.
    pub(crate) fn runs(&mut self, slot: usize, mark: u64) {
        self.busy = Some((slot, mark));
    }

    pub(crate) fn launch(&self, stream: Stream) -> Result<(), CudaError> {
        self.driver.launch_chain(&self.graph, stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_cut_into_few_chains() {
        assert_eq!((cut(1), cut(3), cut(5), cut(100), cut(128)), (1, 2, 4, 64, 128));
        let (mut rest, mut pieces) = (100, Vec::new());
        while rest > 0 {
            pieces.push(cut(rest));
            rest -= cut(rest);
        }
        assert_eq!(pieces, [64, 32, 4]);
    }
}
