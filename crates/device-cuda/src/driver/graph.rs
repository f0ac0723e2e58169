//! Graphs: chains of kernels that one call launches.

use super::CardAddress;
use super::context::Driver;
use super::handle::{Function, Graph, GraphExec, GraphNode, Stream};
use super::launch::{LaunchShape, PackedParameters};
use crate::fault::{Call, CudaError};
use core::ffi::c_void;
use core::ptr::{null, null_mut};
use cumux_abi::types as t;

/// A kernel for a node of a chain.
#[derive(Clone, Copy)]
pub(crate) struct GraphKernel<'a> {
    /// The kernel.
    pub function: Function,
    /// Its launch; no clusters, not cooperative.
    pub shape: LaunchShape,
    /// Its packed parameter block.
    pub parameters: &'a [u8],
}

/// A chain of kernels as the driver has it. Its owner destroys it with [`Driver::destroy_chain`].
pub(crate) struct ChainGraph {
    graph: Graph,
    executable: GraphExec,
    /// One for each kernel, in order, but for the fence kernel at the end.
    pub nodes: Vec<GraphNode>,
}

impl Driver {
    /// Makes a chain of kernels, each after the one before, ready to launch. After them comes
    /// `fence_kernel`, one thread whose only parameter is `fence_word`. The nodes before it can be
    /// given other kernels and parameters later. Slow: the driver makes a graph.
    ///
    /// # Errors
    /// The driver's; then nothing is left behind.
    pub(crate) fn create_chain(&self, kernels: &[GraphKernel<'_>], fence_kernel: Function, fence_word: CardAddress, stream: Stream) -> Call<ChainGraph> {
        let table = self.table()?;
        let mut graph = null_mut();
        // SAFETY: the call writes one handle, a local.
        CudaError::check(unsafe { (table.cuGraphCreate)(&raw mut graph, 0) })?;
        let graph = Graph::of(graph);
        let chain = self.fill_chain(graph, kernels, fence_kernel, fence_word, stream);
        if chain.is_err() {
            // SAFETY: the graph made above, which nobody else has; its last use.
            let _ = unsafe { (table.cuGraphDestroy)(graph.raw()) };
        }
        chain
    }

    fn fill_chain(&self, graph: Graph, kernels: &[GraphKernel<'_>], fence_kernel: Function, fence_word: CardAddress, stream: Stream) -> Call<ChainGraph> {
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
        }
        if let Some(fence) = nodes.pop() {
            // Where other clients' blocks queue for an SM, the fence kernel goes first. A driver
            // that refuses this costs time, not correctness.
            let mut value = t::CUlaunchAttributeValue::default();
            value.priority = self.priorities().1;
            // SAFETY: a live node; the call reads one local.
            let _ = unsafe { (table.cuGraphKernelNodeSetAttribute)(fence, t::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PRIORITY, &raw const value) };
        }
        let mut executable = null_mut();
        // SAFETY: a live graph; the call writes one handle, a local.
        CudaError::check(unsafe { (table.cuGraphInstantiateWithFlags)(&raw mut executable, graph.raw(), 0) })?;
        // SAFETY: a live executable and stream. If the upload fails, the first launch does it.
        let _ = unsafe { (table.cuGraphUpload)(executable, stream.raw()) };
        Ok(ChainGraph { graph, executable: GraphExec::of(executable), nodes: nodes.into_iter().map(GraphNode::of).collect() })
    }

    /// Gives one node of a chain that is not running another kernel. The kernel must have no more
    /// bytes of parameters than the node was made with (decision 0110).
    ///
    /// # Errors
    /// The driver's; then the node is as it was.
    pub(crate) fn set_node(&self, chain: &ChainGraph, node: GraphNode, kernel: &GraphKernel<'_>) -> Call<()> {
        let mut packed = PackedParameters::new(kernel.parameters);
        let parameters = node_parameters(kernel.function, &kernel.shape, packed.extra());
        // SAFETY: a live executable and a node of its graph; the driver copies the parameters.
        CudaError::check(unsafe { (self.table()?.cuGraphExecKernelNodeSetParams_v2)(chain.executable.raw(), node.raw(), &raw const parameters) })
    }

    /// Queues the whole chain.
    ///
    /// # Errors
    /// The driver's; then nothing was queued.
    pub(crate) fn launch_chain(&self, chain: &ChainGraph, stream: Stream) -> Call<()> {
        // SAFETY: a live executable and stream.
        CudaError::check(unsafe { (self.table()?.cuGraphLaunch)(chain.executable.raw(), stream.raw()) })
    }

    /// Destroys a chain; the caller is its owner and does not use it again.
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
