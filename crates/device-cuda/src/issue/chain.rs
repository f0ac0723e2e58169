//! A chain: a graph executable that runs some kernels in order, and then the fence kernel.
//!
//! One call of the driver launches a whole chain with its fence. Measured on an H200
//! (docs/performance.md), one kernel and its fence hold the context's lock for 1.0 µs as a chain,
//! and for 2.4 to 3.3 µs as a launch and a value write. A chain belongs to one engine, and runs at
//! most once at a time. It remembers the kernels and parameters of its last launch, so a batch that
//! repeats needs no node to be set. Setting parameters takes about 0.5 µs a node, and setting
//! another function about 1.5 µs.
//!
//! A node is never set to more bytes of parameters than it was made with. The driver would accept
//! them and run kernels with wrong parameters (decision 0110).

use super::names::ChainName;
use super::plan::{Asked, PlannedKernel};
use crate::context::{ClientModule, LoadedModule};
use crate::driver::{CardAddress, ChainDraft, ChainGraph, Driver, Function, GraphKernel, LaunchShape, Stream};
use crate::fault::{Call, CudaError};
use crate::track::{FenceWord, SlotIndex};
use cumux_device::{RecipeKernel, StreamId};
use rustc_hash::FxHasher;
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;

/// Most bytes of parameters of a node. Drivers have ended the process when a node had more
/// (openxla/xla, pull request 19252).
const MOST_NODE_PARAMETERS: u32 = 4096;

/// The word and the address of a chain that has none yet.
const NO_WORD: FenceWord = FenceWord(usize::MAX);
const NOWHERE: CardAddress = 0;

/// A hash of the function of a kernel and of its grid, which is the same in every process: a stream
/// is cut into the same segments by a successor, whose chains were made in advance. Different ones
/// may have the same.
pub(super) fn shape_of(planned: &PlannedKernel) -> u64 {
    let mut shape = FxHasher::default();
    planned.kernel().lasting.hash(&mut shape);
    planned.shape.grid.hash(&mut shape);
    shape.finish()
}

/// A hash of all that [`is_same_launch`] compares but the function and the grid, which are in the
/// shape. Different launches may have the same.
pub(super) fn launch_of(planned: &PlannedKernel) -> u64 {
    let mut launch = FxHasher::default();
    let LaunchShape { grid: _, block, cluster, shared, cooperative: _ } = planned.shape;
    (block, cluster, shared).hash(&mut launch);
    launch.write(&planned.parameters);
    launch.finish()
}

/// A hash of the functions of several kernels and of their grids, made of those of each.
pub(super) fn join_shapes(shapes: &[u64]) -> u64 {
    let mut shape = FxHasher::default();
    shapes.hash(&mut shape);
    shape.finish()
}

/// True if a kernel can be a node of a chain.
pub(super) fn can_be_node(planned: &PlannedKernel) -> bool {
    let info = &planned.module.info.functions[planned.function];
    info.parameter_bytes <= MOST_NODE_PARAMETERS && !planned.shape.cooperative && !planned.kernel().prints && planned.constants.is_empty()
}

/// True if a kernel has thread block clusters. A node is made with them: it is set to other
/// parameters, but to no other kernel.
pub(super) fn has_clusters(planned: &PlannedKernel) -> bool {
    !planned.shape.has_no_clusters() || planned.module.info.functions[planned.function].cluster != [0; 3]
}

fn is_same_launch(a: &PlannedKernel, b: &PlannedKernel) -> bool {
    a.kernel().id == b.kernel().id && a.shape == b.shape && a.parameters == b.parameters
}

/// Of two equal launches: whether the client has asked for them in the same words.
fn is_same_request(a: &PlannedKernel, b: &PlannedKernel) -> bool {
    let is_same = match (&a.asked, &b.asked) {
        (Asked::Launch { module: one }, Asked::Launch { module: other }) => one == other,
        (Asked::Other(one), Asked::Other(other)) => one == other,
        _ => false,
    };
    is_same && Arc::ptr_eq(&a.module, &b.module)
}

/// Whether a chain may be set and launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChainState {
    /// It may.
    Free,
    /// It may not before this fence of this slot is reached.
    Running { slot: SlotIndex, fence: u64 },
}

/// What a chain is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// For these functions in this stream, which come often. While it is used it is set to no
    /// others, so that few of its nodes have to be set.
    Own(StreamId),
    /// For any kernels to which its nodes can be set.
    General,
    /// For these functions in the next stream that brings them: the one whose own it was is gone.
    Left,
}

/// A chain of kernels.
pub(crate) struct Chain {
    driver: Arc<Driver>,
    graph: ChainGraph,
    /// The kernel to which each node is set. The references keep the modules loaded.
    kernels: Vec<PlannedKernel>,
    /// Their hashes by [`shape_of`].
    shapes: Vec<u64>,
    /// Their hashes by [`launch_of`].
    launches: Vec<u64>,
    /// The chain that its stream has launched next the last time.
    pub(super) next: Option<ChainName>,
    /// The bytes of parameters with which each node was made.
    parameter_capacity: Vec<u32>,
    /// The kernels with which the graph was made, by [`crate::context::Kernel::id`], and their
    /// modules. The driver reads these kernels whenever a node of the executable is set, so the
    /// modules must stay loaded.
    origin: Vec<(u64, Arc<ClientModule>)>,
    /// The hash of the functions of `kernels`.
    shape: u64,
    /// The word that the fence kernel sets to 1.
    word: FenceWord,
    state: ChainState,
    /// What the chain is for.
    pub(super) purpose: Purpose,
    /// True if it was ordered because a batch ended by chance.
    pub(super) by_chance: bool,
    /// How many nodes had to be set before its last launch.
    pub(super) nodes_set: usize,
    /// When the chain was last launched: the number of that launch among all chains of the engine.
    pub(super) used: u64,
}

impl Drop for Chain {
    fn drop(&mut self) {
        self.driver.destroy_chain(&self.graph);
    }
}

/// A chain that no engine has yet: its fence writes to no word of one. So it cannot be launched.
pub(crate) struct PreparedChain {
    chain: Chain,
    fence_kernel: Function,
}

impl PreparedChain {
    /// Makes a chain of these kernels. Slow, and it may wait for what runs in this context. Nothing
    /// of it is done on the card, which is others' meanwhile: the first launch uploads the graph.
    /// `fence_kernel` as for [`DraftedChain::new`].
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn new(driver: &Arc<Driver>, kernels: Vec<PlannedKernel>, fence_kernel: Function) -> Call<PreparedChain> {
        let draft = DraftedChain::new(driver, kernels, fence_kernel, NOWHERE)?;
        Ok(PreparedChain { chain: draft.complete(NO_WORD, None, Purpose::General)?, fence_kernel })
    }

    /// The hash of its functions.
    pub(super) fn shape(&self) -> u64 {
        self.chain.shape
    }

    /// The chain, to look at.
    pub(super) fn look(&self) -> &Chain {
        &self.chain
    }

    /// Makes it an engine's, with a word that the card has at `address`.
    ///
    /// # Errors
    /// The driver's. Then there is no such chain any more.
    pub(super) fn adopt(mut self, word: FenceWord, address: CardAddress, purpose: Purpose) -> Call<Chain> {
        self.chain.driver.set_fence(&self.chain.graph, self.fence_kernel, address)?;
        (self.chain.word, self.chain.purpose) = (word, purpose);
        Ok(self.chain)
    }
}

/// A chain whose graph has its nodes and cannot run yet. To draft one waits for nothing on the
/// card, so it is done before the card is stopped.
pub(crate) struct DraftedChain {
    driver: Arc<Driver>,
    /// Until it is complete.
    graph: Option<ChainDraft>,
    kernels: Vec<PlannedKernel>,
}

impl Drop for DraftedChain {
    fn drop(&mut self) {
        if let Some(graph) = self.graph.take() {
            self.driver.destroy_draft(&graph);
        }
    }
}

impl DraftedChain {
    /// Drafts a chain of these kernels. Slow: an engine thread must not call this. `fence_kernel`
    /// writes 1 to the word that the card has at `address`.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn new(driver: &Arc<Driver>, kernels: Vec<PlannedKernel>, fence_kernel: Function, address: CardAddress) -> Call<DraftedChain> {
        let nodes: Vec<GraphKernel<'_>> = kernels.iter().map(PlannedKernel::graph_kernel).collect();
        let graph = driver.draft_chain(&nodes, fence_kernel, address)?;
        Ok(DraftedChain { driver: driver.clone(), graph: Some(graph), kernels })
    }

    /// Its kernels. It becomes no chain.
    pub(crate) fn into_kernels(mut self) -> Vec<PlannedKernel> {
        std::mem::take(&mut self.kernels)
    }

    /// Makes it a chain. Slow, and it may wait for what runs on the card. `word` is that of the
    /// draft's address, `stream` that in which it is uploaded, if it is.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn complete(mut self, word: FenceWord, stream: Option<Stream>, purpose: Purpose) -> Call<Chain> {
        let (driver, kernels) = (self.driver.clone(), std::mem::take(&mut self.kernels));
        let draft = self.graph.take().ok_or(CudaError::INVALID_VALUE)?;
        let graph = driver.complete_chain(draft, stream)?;
        let mut origin: Vec<_> = kernels.iter().map(|planned| (planned.kernel().id, planned.module.clone())).collect();
        origin.sort_unstable_by_key(|(id, _)| *id);
        origin.dedup_by_key(|(id, _)| *id);
        let shapes: Vec<u64> = kernels.iter().map(shape_of).collect();
        Ok(Chain {
            driver,
            graph,
            parameter_capacity: kernels.iter().map(|planned| planned.kernel().parameter_bytes).collect(),
            origin,
            shape: join_shapes(&shapes),
            launches: kernels.iter().map(launch_of).collect(),
            shapes,
            next: None,
            kernels,
            word,
            purpose,
            by_chance: false,
            nodes_set: 0,
            state: ChainState::Free,
            used: 0,
        })
    }
}

impl Chain {
    /// The kernels to which the nodes are set.
    pub(super) fn kernels(&self) -> &[PlannedKernel] {
        &self.kernels
    }

    /// The hashes of their functions and grids.
    pub(super) fn shapes(&self) -> &[u64] {
        &self.shapes
    }

    /// How another process can make this chain; `None` if a kernel of it is of a module that
    /// belongs to one client. `own`: the module of this crate's own kernels.
    pub(crate) fn recipe(&self, own: &LoadedModule) -> Option<Vec<RecipeKernel>> {
        let kernel = |planned: &PlannedKernel| {
            let module: &LoadedModule = &planned.module;
            let image = if std::ptr::eq(module, own) { None } else { Some(module.shared_name()?) };
            let LaunchShape { grid, block, cluster, shared, cooperative: _ } = planned.shape;
            Some(RecipeKernel { image, function: u32::try_from(planned.function).ok()?, grid, block, cluster, shared })
        };
        self.kernels.iter().map(kernel).collect()
    }

    /// The word that shows that the chain is complete.
    pub(super) fn word(&self) -> FenceWord {
        self.word
    }

    /// The hash of the functions to which the nodes are set.
    pub(super) fn shape(&self) -> u64 {
        self.shape
    }

    /// True if `is_one` holds for a kernel to which a node is set, or with which a node was made.
    pub(super) fn mentions(&self, is_one: &impl Fn(u64) -> bool) -> bool {
        let now = self.kernels.iter().map(|planned| planned.kernel().id);
        self.origin.iter().map(|(id, _)| *id).chain(now).any(is_one)
    }

    /// True if the nodes can be set to these kernels.
    pub(super) fn can_hold(&self, kernels: &[PlannedKernel]) -> bool {
        let has_room = |(room, planned): (&u32, &PlannedKernel)| planned.kernel().parameter_bytes <= *room;
        let keeps_clusters = |(node, planned): (&PlannedKernel, &PlannedKernel)| {
            let is_same = node.kernel().id == planned.kernel().id && node.shape == planned.shape;
            is_same || !(has_clusters(node) || has_clusters(planned))
        };
        self.parameter_capacity.iter().zip(kernels).all(has_room) && self.kernels.iter().zip(kernels).all(keeps_clusters)
    }

    /// True if its nodes have the functions of these kernels. Functions of different modules may
    /// have the same shape.
    pub(super) fn has_functions(&self, kernels: &[PlannedKernel]) -> bool {
        self.kernels.iter().zip(kernels).all(|(node, planned)| node.kernel().id == planned.kernel().id)
    }

    /// The number of nodes that have to be set for kernels of the chain's shape with these hashes,
    /// by [`launch_of`]. It may be more, if different launches have the same hash.
    pub(super) fn count_different(&self, launches: &[u64]) -> usize {
        self.launches.iter().zip(launches).filter(|(now, wanted)| now != wanted).count()
    }

    /// Sets the nodes to these kernels, whose hashes by [`shape_of`] and [`launch_of`] are `shapes`
    /// and `launches` and whose joined shape is `shape`, and moves the kernels that they had before
    /// into `kernels`. Returns how many nodes had to be set. Returns `None` if the driver refuses a
    /// kernel; then `kernels` is unchanged, and the chain must not be used again.
    pub(super) fn set_kernels(&mut self, kernels: &mut [PlannedKernel], shapes: &[u64], launches: &[u64], shape: u64) -> Option<usize> {
        let (mut set, mut asked_again) = (Vec::new(), Vec::new());
        for at in 0..kernels.len() {
            if self.launches[at] == launches[at] && is_same_launch(&self.kernels[at], &kernels[at]) {
                if !is_same_request(&self.kernels[at], &kernels[at]) {
                    asked_again.push(at);
                }
                continue;
            }
            if self.driver.set_node(&self.graph, self.graph.nodes[at], &kernels[at].graph_kernel()).is_err() {
                for at in set {
                    std::mem::swap::<PlannedKernel>(&mut self.kernels[at], &mut kernels[at]);
                    self.launches[at] = launch_of(&self.kernels[at]);
                }
                return None;
            }
            set.push(at);
            (self.shapes[at], self.launches[at]) = (shapes[at], launches[at]);
            std::mem::swap(&mut self.kernels[at], &mut kernels[at]);
        }
        // The client has loaded the module again: what comes next will name that one. Last, because
        // they would have to be given back with the others.
        for at in asked_again {
            std::mem::swap::<PlannedKernel>(&mut self.kernels[at], &mut kernels[at]);
        }
        if !set.is_empty() {
            self.shape = shape;
        }
        Some(set.len())
    }

    /// True if the chain may be set and launched. `is_reached` says whether a fence of a slot is
    /// reached.
    pub(super) fn is_free(&mut self, is_reached: &mut impl FnMut(SlotIndex, u64) -> bool) -> bool {
        if let ChainState::Running { slot, fence } = self.state {
            if !is_reached(slot, fence) {
                return false;
            }
            self.state = ChainState::Free;
        }
        true
    }

    /// Submits the chain to a driver stream.
    ///
    /// # Errors
    /// The driver's. Then nothing was submitted.
    pub(super) fn launch(&self, stream: Stream) -> Call<()> {
        self.driver.launch_chain(&self.graph, stream)
    }

    /// Notes that the chain was launched. It runs until this fence of this slot is reached.
    pub(super) fn set_running(&mut self, slot: SlotIndex, fence: u64) {
        self.state = ChainState::Running { slot, fence };
    }
}
