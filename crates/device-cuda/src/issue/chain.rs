//! A chain: kernels in one graph executable, which ends with the fence kernel.
//!
//! One call of the driver launches a whole chain and its fence. Measured on an H200
//! (docs/performance.md): a kernel and its fence as one chain cost 1.0 µs of the context's lock, a
//! launch and a written value 2.4 to 3.3 µs. A chain belongs to one engine and runs at most once at
//! a time. It remembers what each node ran the last time, so a step that repeats itself sets
//! nothing: setting parameters costs about 0.5 µs a node, another function about 1.5 µs.
//!
//! A node never gets more bytes of parameters than it was made with: the driver takes them and runs
//! the kernels with wrong ones (decision 0110).

use super::plan::PlannedKernel;
use crate::context::ClientModule;
use crate::driver::{CardAddress, ChainGraph, Driver, Function, GraphKernel, Stream};
use crate::fault::Call;
use crate::track::{FenceWord, SlotIndex};
use rustc_hash::FxHasher;
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;

/// Most bytes of parameters of a node: drivers have ended the process when they were given a node
/// with more (openxla/xla, pull request 19252).
const MOST_NODE_PARAMETERS: u32 = 4096;

/// Tells batches of kernels apart. Equal fingerprints are no proof that the batches are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fingerprint {
    /// Of the functions and their grids.
    pub shape: u64,
    /// Of the parameters, too.
    pub exact: u64,
}

impl Fingerprint {
    /// The fingerprint of these kernels, in order.
    pub(super) fn of(kernels: &[PlannedKernel]) -> Fingerprint {
        let (mut shape, mut exact) = (FxHasher::default(), FxHasher::default());
        for planned in kernels {
            planned.kernel().id.hash(&mut shape);
            planned.shape.grid.hash(&mut shape);
            exact.write(&planned.parameters);
        }
        let shape = shape.finish();
        exact.write_u64(shape);
        Fingerprint { shape, exact: exact.finish() }
    }
}

/// True if a kernel can be a node of a chain.
pub(super) fn can_be_node(planned: &PlannedKernel) -> bool {
    let info = &planned.module.info.functions[planned.function];
    let has_no_clusters = planned.shape.has_no_clusters() && info.cluster == [0; 3];
    has_no_clusters && info.parameter_bytes <= MOST_NODE_PARAMETERS && !planned.shape.cooperative && !planned.kernel().prints
}

fn is_same_launch(a: &PlannedKernel, b: &PlannedKernel) -> bool {
    a.kernel().id == b.kernel().id && a.shape == b.shape && a.parameters == b.parameters
}

/// Whether a chain may be changed and launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChainState {
    /// It may.
    Free,
    /// Not before this fence of this slot is reached.
    Running { slot: SlotIndex, fence: u64 },
}

/// A chain of kernels.
pub(crate) struct Chain {
    driver: Arc<Driver>,
    graph: ChainGraph,
    /// What each node runs now. Holds the modules: they are not unloaded under a chain.
    kernels: Vec<PlannedKernel>,
    /// Bytes of parameters that each node was made with.
    parameter_room: Vec<u32>,
    /// The kernels that the graph was made of, by [`crate::context::Kernel::id`], with their
    /// modules: the driver looks at them whenever a node of the executable is set.
    origin: Vec<(u64, Arc<ClientModule>)>,
    /// Of what the nodes run now.
    fingerprint: Fingerprint,
    /// The word that the fence kernel sets to 1.
    word: FenceWord,
    state: ChainState,
    /// When it was last chosen, in launches of its engine's chains.
    pub(super) used: u64,
}

impl Drop for Chain {
    fn drop(&mut self) {
        self.driver.destroy_chain(&self.graph);
    }
}

impl Chain {
    /// Makes a chain of these kernels. Slow: not for an engine's thread. `fence_kernel` writes 1 to
    /// `word`, which the card has at `address`.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn build(
        driver: &Arc<Driver>,
        kernels: Vec<PlannedKernel>,
        fence_kernel: Function,
        word: FenceWord,
        address: CardAddress,
        stream: Stream,
    ) -> Call<Chain> {
        let nodes: Vec<GraphKernel<'_>> = kernels.iter().map(PlannedKernel::graph_kernel).collect();
        let graph = driver.create_chain(&nodes, fence_kernel, address, stream)?;
        let mut origin: Vec<_> = kernels.iter().map(|planned| (planned.kernel().id, planned.module.clone())).collect();
        origin.sort_unstable_by_key(|(id, _)| *id);
        origin.dedup_by_key(|(id, _)| *id);
        Ok(Chain {
            driver: driver.clone(),
            graph,
            parameter_room: kernels.iter().map(|planned| planned.kernel().parameter_bytes).collect(),
            origin,
            fingerprint: Fingerprint::of(&kernels),
            kernels,
            word,
            state: ChainState::Free,
            used: 0,
        })
    }

    /// What the nodes run now.
    pub(super) fn kernels(&self) -> &[PlannedKernel] {
        &self.kernels
    }

    /// The word that shows that the chain is over.
    pub(super) fn word(&self) -> FenceWord {
        self.word
    }

    /// The fingerprint of what the nodes run now.
    pub(super) fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// True if one of these kernels is in a node, or was when the chain was made.
    pub(super) fn mentions(&self, is_one: &impl Fn(u64) -> bool) -> bool {
        let now = self.kernels.iter().map(|planned| planned.kernel().id);
        self.origin.iter().map(|(id, _)| *id).chain(now).any(is_one)
    }

    /// True if the nodes have room for the parameters of these kernels.
    pub(super) fn has_room_for(&self, kernels: &[PlannedKernel]) -> bool {
        self.parameter_room.iter().zip(kernels).all(|(room, planned)| planned.kernel().parameter_bytes <= *room)
    }

    /// True if the nodes run exactly these kernels.
    pub(super) fn runs(&self, kernels: &[PlannedKernel]) -> bool {
        self.kernels.iter().zip(kernels).all(|(a, b)| is_same_launch(a, b))
    }

    /// Makes the nodes run these kernels; what they ran before is in `kernels` then. Returns how
    /// many had to be set, or `None` if a kernel cannot be in a node: then the chain is of no more
    /// use, and `kernels` is as it was.
    pub(super) fn set_kernels(&mut self, kernels: &mut [PlannedKernel]) -> Option<usize> {
        let mut set = Vec::new();
        for at in 0..kernels.len() {
            if is_same_launch(&self.kernels[at], &kernels[at]) {
                continue;
            }
            if self.driver.set_node(&self.graph, self.graph.nodes[at], &kernels[at].graph_kernel()).is_err() {
                for at in set {
                    std::mem::swap::<PlannedKernel>(&mut self.kernels[at], &mut kernels[at]);
                }
                return None;
            }
            set.push(at);
            std::mem::swap(&mut self.kernels[at], &mut kernels[at]);
        }
        self.fingerprint = Fingerprint::of(&self.kernels);
        Some(set.len())
    }

    /// True if the chain may be changed and launched. `is_reached` says whether a fence of a slot
    /// is reached.
    pub(super) fn is_free(&mut self, is_reached: &mut impl FnMut(SlotIndex, u64) -> bool) -> bool {
        if let ChainState::Running { slot, fence } = self.state {
            if !is_reached(slot, fence) {
                return false;
            }
            self.state = ChainState::Free;
        }
        true
    }

    /// Gives the chain to a stream.
    ///
    /// # Errors
    /// The driver's; then nothing was given.
    pub(super) fn launch(&self, stream: Stream) -> Call<()> {
        self.driver.launch_chain(&self.graph, stream)
    }

    /// The chain was launched and runs until this fence of this slot.
    pub(super) fn set_running(&mut self, slot: SlotIndex, fence: u64) {
        self.state = ChainState::Running { slot, fence };
    }
}
