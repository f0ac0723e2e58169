//! Graphs: chains of kernels that one call of the driver launches.

use super::CardAddress;
use super::context::Driver;
use super::handle::{Function, Graph, GraphExec, GraphNode, Stream};
use super::launch::{LaunchShape, PackedParameters};
use super::nested::is_nested;
use crate::fault::{Call, CudaError};
use core::ffi::c_void;
use core::ptr::{null, null_mut};
use cumux_abi::types as t;

/// A kernel for a node of a chain.
#[derive(Clone, Copy)]
pub(crate) struct GraphKernel<'a> {
    /// The kernel's function.
    pub function: Function,
    /// The launch. It is not cooperative.
    pub shape: LaunchShape,
    /// The packed parameter block.
    pub parameters: &'a [u8],
}

/// The driver's objects of a chain. The owner destroys them with [`Driver::destroy_chain`].
pub(crate) struct ChainGraph {
    graph: Graph,
    executable: GraphExec,
    /// The nodes of the kernels, in order, without the fence kernel at the end.
    pub nodes: Vec<GraphNode>,
    fence: GraphNode,
}

/// The graph of a chain that cannot run yet. The owner completes it with [`Driver::complete_chain`]
/// or destroys it with [`Driver::destroy_draft`].
pub(crate) struct ChainDraft {
    graph: Graph,
    /// The nodes of the kernels, and that of the fence kernel.
    nodes: (Vec<GraphNode>, GraphNode),
}

impl Driver {
    /// Drafts a chain that runs these kernels, one after another, and then `fence_kernel`, with
    /// one thread and `fence_word` as its only parameter. The kernels' nodes can be set to other
    /// kernels later. Waits for nothing on the card.
    ///
    /// # Errors
    /// The driver's. Then nothing is left to destroy.
    pub(crate) fn draft_chain(&self, kernels: &[GraphKernel<'_>], fence_kernel: Function, fence_word: CardAddress) -> Call<ChainDraft> {
        let table = self.table()?;
        let mut graph = null_mut();
        // SAFETY: the call writes one handle, a local.
        CudaError::check(unsafe { (table.cuGraphCreate)(&raw mut graph, 0) })?;
        let graph = Graph::of(graph);
        let nodes = self.fill_chain(graph, kernels, fence_kernel, fence_word);
        if nodes.is_err() {
            // SAFETY: the graph made above, which nobody else has; its last use.
            let _ = unsafe { (table.cuGraphDestroy)(graph.raw()) };
        }
        Ok(ChainDraft { graph, nodes: nodes? })
    }

    fn fill_chain(&self, graph: Graph, kernels: &[GraphKernel<'_>], fence_kernel: Function, fence_word: CardAddress) -> Call<(Vec<GraphNode>, GraphNode)> {
        let table = self.table()?;
        let fence_word = fence_word.to_ne_bytes();
        let fence = GraphKernel { function: fence_kernel, shape: LaunchShape::single_thread(), parameters: &fence_word };
        let mut nodes: Vec<t::CUgraphNode> = Vec::with_capacity(kernels.len() + 1);
        for kernel in kernels.iter().chain([&fence]) {
            let mut packed = PackedParameters::new(kernel.parameters);
            let parameters = node_parameters(kernel.function, &kernel.shape, packed.extra());
            let before = nodes.last().map_or(null(), |last| &raw const *last);
            let mut node = null_mut();
            // SAFETY: a live graph; the call reads at most one node of it and the parameters, which
            // the driver copies, and writes one handle, a local.
            CudaError::check(unsafe {
                (table.cuGraphAddKernelNode_v2)(&raw mut node, graph.raw(), before, usize::from(!before.is_null()), &raw const parameters)
            })?;
            nodes.push(node);
            if !kernel.shape.has_no_clusters() {
                let [x, y, z] = kernel.shape.cluster;
                let mut value = t::CUlaunchAttributeValue::default();
                value.clusterDim = t::CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z };
                let cluster = t::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
                // SAFETY: a live node; the call reads one local.
                CudaError::check(unsafe { (table.cuGraphKernelNodeSetAttribute)(node, cluster, &raw const value) })?;
            }
        }
        let fence = nodes.pop().ok_or(CudaError::INVALID_VALUE)?;
        // The fence kernel runs before other clients' blocks that queue for an SM. If the driver
        // refuses the priority, the fence only shows later.
        let mut value = t::CUlaunchAttributeValue::default();
        value.priority = self.priorities().1;
        // SAFETY: a live node; the call reads one local.
        let _ = unsafe { (table.cuGraphKernelNodeSetAttribute)(fence, t::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PRIORITY, &raw const value) };
        Ok((nodes.into_iter().map(GraphNode::of).collect(), GraphNode::of(fence)))
    }

    /// Makes a draft a chain. Slow, and it may wait for kernels that run: the driver instantiates a
    /// graph, and uploads it in this stream. Without one, the first launch does that.
    ///
    /// # Errors
    /// The driver's. Then nothing is left to destroy.
    pub(crate) fn complete_chain(&self, draft: ChainDraft, stream: Option<Stream>) -> Call<ChainGraph> {
        let instantiated = self.wait_as_a_card_would().and_then(|()| {
            let mut executable = null_mut();
            // SAFETY: a live graph; the call writes one handle, a local.
            CudaError::check(unsafe { (self.table()?.cuGraphInstantiateWithFlags)(&raw mut executable, draft.graph.raw(), 0) })?;
            if let Some(stream) = stream {
                // SAFETY: a live executable and stream. If this fails, the first launch uploads the
                // graph.
                let _ = unsafe { (self.table()?.cuGraphUpload)(executable, stream.raw()) };
            }
            Ok(GraphExec::of(executable))
        });
        match instantiated {
            Ok(executable) => {
                let (nodes, fence) = draft.nodes;
                Ok(ChainGraph { graph: draft.graph, executable, nodes, fence })
            }
            Err(error) => {
                self.destroy_draft(&draft);
                Err(error)
            }
        }
    }

    /// Destroys a draft that becomes no chain.
    pub(crate) fn destroy_draft(&self, draft: &ChainDraft) {
        if let Ok(table) = self.table() {
            // SAFETY: the owner's last use.
            let _ = unsafe { (table.cuGraphDestroy)(draft.graph.raw()) };
        }
    }

    /// NVIDIA's driver waits now and then for every kernel that runs before it instantiates a
    /// graph, and nobody submits anything meanwhile (decision 0123). Where its place is taken by
    /// cumux's own library, it always does.
    fn wait_as_a_card_would(&self) -> Call<()> {
        if !is_nested() {
            return Ok(());
        }
        let _turn = self.submission.enter_alone();
        // SAFETY: no memory is handed over.
        CudaError::check(unsafe { (self.table()?.cuCtxSynchronize)() })
    }

    /// Sets one node of a chain that does not run to another kernel. The kernel must not have more
    /// bytes of parameters than the node was made with (decision 0110).
    ///
    /// # Errors
    /// The driver's. Then the node is unchanged.
    pub(crate) fn set_node(&self, chain: &ChainGraph, node: GraphNode, kernel: &GraphKernel<'_>) -> Call<()> {
        let mut packed = PackedParameters::new(kernel.parameters);
        let parameters = node_parameters(kernel.function, &kernel.shape, packed.extra());
        let _turn = self.submission.enter_for_chain();
        // SAFETY: a live executable and a node of its graph; the driver copies the parameters.
        CudaError::check(unsafe { (self.table()?.cuGraphExecKernelNodeSetParams_v2)(chain.executable.raw(), node.raw(), &raw const parameters) })
    }

    /// Has the chain's fence kernel write to another word. The chain does not run.
    ///
    /// # Errors
    /// The driver's. Then the fence is as before.
    pub(crate) fn set_fence(&self, chain: &ChainGraph, fence_kernel: Function, fence_word: CardAddress) -> Call<()> {
        let fence_word = fence_word.to_ne_bytes();
        self.set_node(chain, chain.fence, &GraphKernel { function: fence_kernel, shape: LaunchShape::single_thread(), parameters: &fence_word })
    }

    /// Queues the whole chain.
    ///
    /// # Errors
    /// The driver's. Then nothing was queued.
    pub(crate) fn launch_chain(&self, chain: &ChainGraph, stream: Stream) -> Call<()> {
        let _turn = self.submission.enter(stream);
        // SAFETY: a live executable and stream.
        CudaError::check(unsafe { (self.table()?.cuGraphLaunch)(chain.executable.raw(), stream.raw()) })
    }

    /// Destroys a chain. The caller is its owner and does not use it again.
    pub(crate) fn destroy_chain(&self, chain: &ChainGraph) {
        if let Ok(table) = self.table() {
            // SAFETY: the owner's last use of both.
            let _ = unsafe { ((table.cuGraphExecDestroy)(chain.executable.raw()), (table.cuGraphDestroy)(chain.graph.raw())) };
        }
    }
}

fn node_parameters(function: Function, shape: &LaunchShape, extra: *mut *mut c_void) -> t::CUDA_KERNEL_NODE_PARAMS {
    t::CUDA_KERNEL_NODE_PARAMS {
        func: function.raw(),
        gridDimX: shape.grid[0],
        gridDimY: shape.grid[1],
        gridDimZ: shape.grid[2],
        blockDimX: shape.block[0],
        blockDimY: shape.block[1],
        blockDimZ: shape.block[2],
        sharedMemBytes: shape.shared,
        kernelParams: null_mut(),
        extra,
        kern: null_mut(),
        ctx: null_mut(),
    }
}
