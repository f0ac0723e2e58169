//! Graphs: recipes of work. They live entirely here; the executor sees only the records of a
//! launch.
//!
//! - [`structure`]: graphs, nodes and their edges, clones.
//! - [`node`]: what nodes do; adding them and changing them.
//! - [`exec`]: executables, and how a launch becomes records.
//! - [`condition`]: what kernels say of the nodes behind them.
//! - [`kept`]: what an executable keeps of the graphs that it was made from.
//! - [`objects`]: user objects, the program's own destructors.

mod condition;
mod exec;
mod kept;
mod node;
mod objects;
mod structure;
mod told;

pub use exec::*;
pub use node::*;
pub use objects::*;
pub use structure::*;

use crate::callback;
use crate::ffi::{Try, error};
use crate::function::Function;
use crate::handle::{Kind, Table};
use crate::memory::of_graphs::Owned;
use crate::transfer::Transfer;
use cumux_abi::{CUgraphNodeType as Type, CUstreamBatchMemOpParams, CUstreamBatchMemOpType};
use cumux_wire::record::{Launch, Op};
use std::sync::Arc;

/// All graphs.
pub(crate) static GRAPHS: Table<Graph> = Table::new(Kind::Graph);

/// All nodes of graphs.
pub(crate) static NODES: Table<Node> = Table::new(Kind::GraphNode);

/// A kernel with everything its launch needs.
#[derive(Debug)]
pub struct Kernel {
    /// What is launched.
    pub function: Arc<Function>,
    /// The handle by which the program named it.
    pub name: u64,
    /// The record of its launch.
    pub launch: Launch,
}

impl Kernel {
    /// A kernel with its launch.
    #[must_use]
    pub fn new(function: Arc<Function>, name: u64, launch: Launch) -> Arc<Self> {
        Arc::new(Self { function, name, launch })
    }
}

/// Value writes and waits, as they are pushed and as the program gave them.
pub struct Values {
    pub ops: Vec<Op>,
    given: Vec<CUstreamBatchMemOpParams>,
}

impl Values {
    /// One that was captured.
    pub(crate) fn of(op: &Op) -> Self {
        let mut given = CUstreamBatchMemOpParams { pad: [0; 6] };
        given.operation = CUstreamBatchMemOpType::CU_STREAM_MEM_OP_BARRIER;
        match *op {
            Op::ValueWrite { address, value, bytes } => {
                given.writeValue.operation =
                    if bytes == 4 { CUstreamBatchMemOpType::CU_STREAM_MEM_OP_WRITE_VALUE_32 } else { CUstreamBatchMemOpType::CU_STREAM_MEM_OP_WRITE_VALUE_64 };
                given.writeValue.address = address;
                given.writeValue.__bindgen_anon_1.value64 = value;
            }
            Op::ValueWait { address, value, bytes, condition } => {
                given.waitValue.operation =
                    if bytes == 4 { CUstreamBatchMemOpType::CU_STREAM_MEM_OP_WAIT_VALUE_32 } else { CUstreamBatchMemOpType::CU_STREAM_MEM_OP_WAIT_VALUE_64 };
                given.waitValue.address = address;
                given.waitValue.__bindgen_anon_1.value64 = value;
                given.waitValue.flags = condition;
            }
            _ => {}
        }
        Self { ops: vec![op.clone()], given: vec![given] }
    }
}

impl std::fmt::Debug for Values {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Values").field(&self.ops).finish()
    }
}

/// What a node does.
#[derive(Debug, Clone)]
pub enum Work {
    Kernel(Arc<Kernel>),
    Copy(Transfer),
    /// [`Op::Set`].
    Set(Op),
    Host(callback::Work),
    /// A graph of its own, as it was when it was added.
    Graph(Arc<Graph>),
    Conditional(Arc<Conditional>),
    Empty,
    /// Handles of events.
    Record(u64),
    Wait(u64),
    /// Value writes and waits.
    Values(Arc<Values>),
    Alloc(Arc<Owned>),
    /// The address of memory that a graph has allocated.
    Free(u64),
}

impl Work {
    /// The graphs that belong to such a node.
    #[must_use]
    pub fn graphs(&self) -> &[Arc<Graph>] {
        match self {
            Work::Graph(child) => std::slice::from_ref(child),
            Work::Conditional(conditional) => &conditional.bodies,
            _ => &[],
        }
    }

    /// The type of such a node, as C has it.
    #[must_use]
    pub fn kind(&self) -> Type {
        match self {
            Work::Kernel(_) => Type::CU_GRAPH_NODE_TYPE_KERNEL,
            Work::Copy(_) => Type::CU_GRAPH_NODE_TYPE_MEMCPY,
            Work::Set(_) => Type::CU_GRAPH_NODE_TYPE_MEMSET,
            Work::Host(_) => Type::CU_GRAPH_NODE_TYPE_HOST,
            Work::Graph(_) => Type::CU_GRAPH_NODE_TYPE_GRAPH,
            Work::Conditional(_) => Type::CU_GRAPH_NODE_TYPE_CONDITIONAL,
            Work::Empty => Type::CU_GRAPH_NODE_TYPE_EMPTY,
            Work::Record(_) => Type::CU_GRAPH_NODE_TYPE_EVENT_RECORD,
            Work::Wait(_) => Type::CU_GRAPH_NODE_TYPE_WAIT_EVENT,
            Work::Values(_) => Type::CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
            Work::Alloc(_) => Type::CU_GRAPH_NODE_TYPE_MEM_ALLOC,
            Work::Free(_) => Type::CU_GRAPH_NODE_TYPE_MEM_FREE,
        }
    }
}

/// Puts nodes into an order in which each comes after those it waits for; `None` when they wait in
/// a circle. Keeps the given order where it can.
#[must_use]
pub fn order(after: &[Vec<usize>]) -> Option<Vec<usize>> {
    let mut missing: Vec<usize> = after.iter().map(Vec::len).collect();
    let mut followers = vec![Vec::new(); after.len()];
    for (node, waits) in after.iter().enumerate() {
        for wait in waits {
            followers.get_mut(*wait)?.push(node);
        }
    }
    let ready = missing.iter().enumerate().filter(|(_, count)| **count == 0).map(|(node, _)| std::cmp::Reverse(node));
    let mut ready: std::collections::BinaryHeap<_> = ready.collect();
    let mut sorted = Vec::with_capacity(after.len());
    while let Some(std::cmp::Reverse(node)) = ready.pop() {
        sorted.push(node);
        for follower in followers.get(node).into_iter().flatten() {
            let count = missing.get_mut(*follower)?;
            *count -= 1;
            if *count == 0 {
                ready.push(std::cmp::Reverse(*follower));
            }
        }
    }
    (sorted.len() == after.len()).then_some(sorted)
}

/// Spreads ordered work over at most `most` timelines: a piece continues the timeline of a piece
/// that it waits for, if no other piece has continued that one.
#[must_use]
pub fn assign_timelines(after: &[Vec<usize>], most: usize) -> Vec<usize> {
    let mut timeline_of: Vec<usize> = Vec::with_capacity(after.len());
    // The last piece on each timeline.
    let mut tails: Vec<usize> = Vec::new();
    for (piece, waits) in after.iter().enumerate() {
        let follow = waits.iter().filter_map(|wait| timeline_of.get(*wait).copied().filter(|timeline| tails.get(*timeline) == Some(wait))).min();
        let timeline = match follow {
            Some(timeline) => timeline,
            None if tails.len() < most.max(1) => {
                tails.push(piece);
                tails.len() - 1
            }
            None => piece % most.max(1),
        };
        if let Some(tail) = tails.get_mut(timeline) {
            *tail = piece;
        }
        timeline_of.push(timeline);
    }
    timeline_of
}

/// A graph handle.
pub(crate) fn find_graph(handle: cumux_abi::CUgraph) -> Try<Arc<Graph>> {
    GRAPHS.get(handle.addr() as u64).ok_or(error::INVALID_VALUE)
}

/// A node handle.
pub(crate) fn find_node(handle: cumux_abi::CUgraphNode) -> Try<Arc<Node>> {
    NODES.get(handle.addr() as u64).ok_or(error::INVALID_VALUE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_respects_edges_and_finds_circles() {
        let diamond = [vec![2], vec![0], vec![], vec![0, 1]];
        let sorted = order(&diamond).unwrap();
        let place = |node| sorted.iter().position(|n| *n == node).unwrap();
        for (node, waits) in diamond.iter().enumerate() {
            assert!(waits.iter().all(|wait| place(*wait) < place(node)));
        }
        assert_eq!(order(&[vec![1], vec![0]]), None);
        assert_eq!(order(&[vec![0]]), None);
        assert_eq!(order(&[vec![], vec![], vec![]]), Some(vec![0, 1, 2]), "as given");
    }

    #[test]
    fn chains_stay_in_one_timeline_and_branches_spread() {
        assert_eq!(assign_timelines(&[vec![], vec![0], vec![1]], 4), [0, 0, 0]);
        assert_eq!(assign_timelines(&[vec![], vec![0], vec![0], vec![1, 2]], 4), [0, 0, 1, 0]);
        assert_eq!(assign_timelines(&[vec![], vec![], vec![], vec![]], 2), [0, 1, 0, 1]);
        assert_eq!(assign_timelines(&[vec![], vec![], vec![1], vec![0]], 1), [0, 0, 0, 0]);
    }
}
