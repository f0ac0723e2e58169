//! Graphs, nodes and edges.

use super::condition::Condition;
use super::objects::{Held, end_what_is_over};
use super::told::Told;
use super::{GRAPHS, NODES, Work, find_graph, find_node};
use crate::ffi::{Try, error, list, put};
use crate::process;
use crate::sync::lock;
use core::ffi::{c_char, c_uint};
use cumux_abi::{CUgraph, CUgraphConditionalNodeType as Kind, CUgraphEdgeData, CUgraphNode, CUgraphNodeType};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

/// A graph.
#[derive(Debug)]
pub struct Graph {
    /// The word that the program holds.
    pub handle: u64,
    /// Belongs to a node: the program cannot destroy it.
    inner: Mutex<bool>,
    /// Its nodes, in the order in which they were added.
    pub nodes: Mutex<Vec<Arc<Node>>>,
    /// References to user objects that it keeps.
    pub held: Mutex<Vec<Arc<Held>>>,
    /// Conditions that were made for it.
    pub conditions: Mutex<Vec<Arc<Condition>>>,
}

/// A node.
#[derive(Debug)]
pub struct Node {
    /// The word that the program holds.
    pub handle: u64,
    /// Handle of its graph.
    pub graph: u64,
    /// The node of which this is a clone, 0 for none.
    pub original: u64,
    /// What the program may change.
    pub body: Mutex<Body>,
    /// What the program was told of it by an address.
    pub told: Mutex<Told>,
}

/// What a node does and which nodes it comes after.
#[derive(Debug, Clone)]
pub struct Body {
    /// What it does.
    pub work: Work,
    /// Handles of the nodes it comes after.
    pub after: Vec<u64>,
}

impl Graph {
    /// An empty graph.
    ///
    /// # Errors
    /// OUT_OF_MEMORY when there are too many.
    pub fn new(inner: bool) -> Try<Arc<Self>> {
        let make = |handle| Arc::new(Self { handle, inner: Mutex::new(inner), nodes: Mutex::default(), held: Mutex::default(), conditions: Mutex::default() });
        GRAPHS.insert(make).map(|(_, graph)| graph).ok_or(error::OUT_OF_MEMORY)
    }

    /// Whether it belongs to a node.
    #[must_use]
    pub fn is_inner(&self) -> bool {
        *lock(&self.inner)
    }

    /// Makes it the graph of a node of another graph, with the nodes that it has. The program keeps
    /// its handles.
    ///
    /// # Errors
    /// INVALID_VALUE where it belongs to a node already, or has that other graph in itself.
    pub fn move_into(&self, other: &Self) -> Try {
        if self.contains(other.handle) || std::mem::replace(&mut *lock(&self.inner), true) {
            return Err(error::INVALID_VALUE);
        }
        Ok(())
    }

    /// Gives it back to the program: it did not become the graph of a node.
    pub fn move_back(&self) {
        *lock(&self.inner) = false;
    }

    /// Whether this is the graph of that handle, or has it in one of its nodes.
    fn contains(&self, handle: u64) -> bool {
        let nodes = lock(&self.nodes).clone();
        self.handle == handle
            || nodes.iter().any(|node| {
                let work = lock(&node.body).work.clone();
                work.graphs().iter().any(|graph| graph.contains(handle))
            })
    }

    /// The handle as C has it.
    #[must_use]
    pub fn as_c(&self) -> CUgraph {
        core::ptr::without_provenance_mut(self.handle as usize)
    }

    /// Checks that these are nodes of this graph.
    ///
    /// # Errors
    /// INVALID_VALUE.
    pub fn check_nodes(&self, nodes: &[u64]) -> Try {
        let is_own = |node: &u64| NODES.get(*node).is_some_and(|node| node.graph == self.handle);
        if nodes.iter().all(is_own) { Ok(()) } else { Err(error::INVALID_VALUE) }
    }

    /// A new node after nodes of the same graph.
    ///
    /// # Errors
    /// INVALID_VALUE for a node of another graph, OUT_OF_MEMORY.
    pub fn add(&self, work: Work, mut after: Vec<u64>) -> Try<Arc<Node>> {
        after.sort_unstable();
        after.dedup();
        let mut nodes = lock(&self.nodes);
        self.check_nodes(&after)?;
        let make = |handle| Arc::new(Node { handle, graph: self.handle, original: 0, body: Mutex::new(Body { work, after }), told: Mutex::default() });
        let (_, node) = NODES.insert(make).ok_or(error::OUT_OF_MEMORY)?;
        nodes.push(Arc::clone(&node));
        Ok(node)
    }

    /// A copy of this graph with nodes of its own.
    ///
    /// # Errors
    /// OUT_OF_MEMORY.
    pub fn copy(&self, inner: bool) -> Try<Arc<Self>> {
        let copy = Self::new(inner)?;
        let mut names: Vec<(u64, u64)> = Vec::new();
        {
            let mut target = lock(&copy.nodes);
            for node in lock(&self.nodes).iter() {
                let body = lock(&node.body).clone();
                let work = match body.work {
                    Work::Graph(child) => Work::Graph(child.copy(true)?),
                    Work::Conditional(conditional) => Work::Conditional(conditional.copy()?),
                    work => work,
                };
                let body = Mutex::new(Body { work, after: body.after });
                let make = |handle| Arc::new(Node { handle, graph: copy.handle, original: node.handle, body, told: Mutex::default() });
                let (handle, made) = NODES.insert(make).ok_or(error::OUT_OF_MEMORY)?;
                names.push((node.handle, handle));
                target.push(made);
            }
            for node in target.iter() {
                for wait in &mut lock(&node.body).after {
                    *wait = names.iter().find(|(old, _)| old == wait).map_or(*wait, |(_, new)| *new);
                }
            }
        }
        (*lock(&copy.held)).clone_from(&lock(&self.held));
        (*lock(&copy.conditions)).clone_from(&lock(&self.conditions));
        Ok(copy)
    }

    /// Takes the graph and its nodes out of the tables.
    pub fn end(&self) {
        GRAPHS.remove(self.handle);
        let nodes: Vec<Arc<Node>> = lock(&self.nodes).drain(..).collect();
        nodes.iter().for_each(|node| node.end());
        let held = std::mem::take(&mut *lock(&self.held));
        lock(&self.conditions).clear();
        // A destructor of the program's may call back.
        drop(held);
    }

    /// What it keeps of the program's objects, and what all graphs in it keep.
    #[must_use]
    pub fn all_held(&self) -> Vec<Arc<Held>> {
        let mut found = lock(&self.held).clone();
        let nodes = lock(&self.nodes).clone();
        for node in nodes {
            let work = lock(&node.body).work.clone();
            work.graphs().iter().for_each(|graph| found.extend(graph.all_held()));
        }
        found
    }

    /// Its conditions, and those of all graphs in it.
    #[must_use]
    pub fn all_conditions(&self) -> Vec<Arc<Condition>> {
        let mut found = lock(&self.conditions).clone();
        let nodes = lock(&self.nodes).clone();
        for node in nodes {
            let work = lock(&node.body).work.clone();
            match &work {
                Work::Graph(child) => found.extend(child.all_conditions()),
                Work::Conditional(conditional) => {
                    found.push(Arc::clone(&conditional.condition));
                    found.extend(conditional.bodies.iter().flat_map(|body| body.all_conditions()));
                }
                _ => {}
            }
        }
        found.sort_by_key(|condition| condition.address);
        found.dedup_by_key(|condition| condition.address);
        found
    }

    /// Nodes with the positions of those they wait for.
    #[must_use]
    pub fn edges(&self) -> (Vec<Arc<Node>>, Vec<Vec<usize>>) {
        let nodes = lock(&self.nodes).clone();
        let place = |handle: &u64| nodes.iter().position(|node| node.handle == *handle);
        let after = nodes.iter().map(|node| lock(&node.body).after.iter().filter_map(place).collect()).collect();
        (nodes, after)
    }
}

/// What a conditional node is.
#[derive(Debug)]
pub struct Conditional {
    pub condition: Arc<Condition>,
    pub kind: Kind,
    /// Graphs of this node.
    pub bodies: Vec<Arc<Graph>>,
    /// Their handles, where the program may read them as long as the node lives.
    handles: Box<[usize]>,
}

impl Conditional {
    /// A node with these bodies.
    pub(super) fn new(condition: Arc<Condition>, kind: Kind, bodies: Vec<Arc<Graph>>) -> Arc<Self> {
        let handles = bodies.iter().map(|body| body.handle as usize).collect();
        Arc::new(Self { condition, kind, bodies, handles })
    }

    /// As another graph has it, with bodies of its own.
    ///
    /// # Errors
    /// OUT_OF_MEMORY.
    pub fn copy(&self) -> Try<Arc<Self>> {
        let bodies = self.bodies.iter().map(|body| body.copy(true)).collect::<Try<_>>()?;
        Ok(Self::new(Arc::clone(&self.condition), self.kind, bodies))
    }

    /// Where the program reads the handles of its bodies.
    pub(super) fn handles(&self) -> *mut CUgraph {
        core::ptr::with_exposed_provenance_mut(self.handles.as_ptr().expose_provenance())
    }

    /// The body that runs when its condition has this value.
    pub(super) fn chosen(&self, value: u32) -> Option<usize> {
        let index = match self.kind {
            Kind::CU_GRAPH_COND_TYPE_SWITCH => value as usize,
            Kind::CU_GRAPH_COND_TYPE_IF => usize::from(value == 0),
            _ if value != 0 => 0,
            _ => return None,
        };
        (index < self.bodies.len()).then_some(index)
    }
}

impl Node {
    /// Takes it and the graphs that belong to it out of the tables.
    fn end(&self) {
        NODES.remove(self.handle);
        let work = lock(&self.body).work.clone();
        work.graphs().iter().for_each(|graph| graph.end());
    }

    /// The handle as C has it.
    #[must_use]
    pub fn as_c(&self) -> CUgraphNode {
        core::ptr::without_provenance_mut(self.handle as usize)
    }
}

pub unsafe fn cuGraphCreate(out: *mut CUgraph, flags: c_uint) -> Try {
    process::enter()?;
    if flags != 0 || out.is_null() {
        return Err(error::INVALID_VALUE);
    }
    put!(out, Graph::new(false)?.as_c());
    Ok(())
}

pub unsafe fn cuGraphDestroy(handle: CUgraph) -> Try {
    let session = process::find_connection()?;
    let graph = find_graph(handle)?;
    if graph.is_inner() {
        return Err(error::INVALID_VALUE);
    }
    graph.end();
    end_what_is_over(session);
    Ok(())
}

pub unsafe fn cuGraphClone(out: *mut CUgraph, original: CUgraph) -> Try {
    process::enter()?;
    put!(out, find_graph(original)?.copy(false)?.as_c());
    Ok(())
}

pub unsafe fn cuGraphNodeFindInClone(out: *mut CUgraphNode, original: CUgraphNode, clone: CUgraph) -> Try {
    process::enter()?;
    let graph = find_graph(clone)?;
    let found = lock(&graph.nodes).iter().find(|node| node.original == original.addr() as u64).cloned();
    put!(out, found.ok_or(error::INVALID_VALUE)?.as_c());
    Ok(())
}

pub unsafe fn cuGraphDestroyNode(handle: CUgraphNode) -> Try {
    process::enter()?;
    let node = find_node(handle)?;
    let owner = GRAPHS.get(node.graph).ok_or(error::INVALID_VALUE)?;
    {
        let mut nodes = lock(&owner.nodes);
        nodes.retain(|other| other.handle != node.handle);
        for other in nodes.iter() {
            lock(&other.body).after.retain(|wait| *wait != node.handle);
        }
    }
    node.end();
    Ok(())
}

/// Answers a list the way all of these calls do: without an array the count, else as many as there
/// is room for, the rest null.
fn answer_list(out: *mut CUgraphNode, count: *mut usize, found: &[u64]) -> Try {
    if count.is_null() {
        return Err(error::INVALID_VALUE);
    }
    if out.is_null() {
        put!(count, found.len());
        return Ok(());
    }
    let room = crate::ffi::get!(count.cast_const());
    for index in 0..room {
        let handle = found.get(index).copied().unwrap_or(0);
        put!(out.wrapping_add(index), core::ptr::without_provenance_mut(handle as usize));
    }
    put!(count, room.min(found.len()));
    Ok(())
}

pub unsafe fn cuGraphGetNodes(handle: CUgraph, out: *mut CUgraphNode, count: *mut usize) -> Try {
    process::enter()?;
    let graph = find_graph(handle)?;
    let found: Vec<u64> = lock(&graph.nodes).iter().map(|node| node.handle).collect();
    answer_list(out, count, &found)
}

pub unsafe fn cuGraphGetRootNodes(handle: CUgraph, out: *mut CUgraphNode, count: *mut usize) -> Try {
    process::enter()?;
    let graph = find_graph(handle)?;
    let found: Vec<u64> = lock(&graph.nodes).iter().filter(|node| lock(&node.body).after.is_empty()).map(|node| node.handle).collect();
    answer_list(out, count, &found)
}

fn edges(handle: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, data: *mut CUgraphEdgeData, count: *mut usize) -> Try {
    process::enter()?;
    let graph = find_graph(handle)?;
    let of = |node: &Arc<Node>| lock(&node.body).after.iter().map(|wait| (*wait, node.handle)).collect::<Vec<_>>();
    let found: Vec<(u64, u64)> = lock(&graph.nodes).iter().flat_map(of).collect();
    if from.is_null() != to.is_null() {
        return Err(error::INVALID_VALUE);
    }
    let before: Vec<u64> = found.iter().map(|edge| edge.0).collect();
    let behind: Vec<u64> = found.iter().map(|edge| edge.1).collect();
    if !to.is_null() && !count.is_null() {
        let mut room = crate::ffi::get!(count.cast_const());
        answer_list(to, &raw mut room, &behind)?;
        clear_edge_data(data, room);
    }
    answer_list(from, count, &before)
}

/// All edges are plain ones.
fn clear_edge_data(data: *mut CUgraphEdgeData, count: usize) {
    for index in 0..if data.is_null() { 0 } else { count } {
        // SAFETY: an array argument of an exported function with room for `count` entries, as its C
        // caller says.
        unsafe { data.add(index).write(CUgraphEdgeData::default()) };
    }
}

pub unsafe fn cuGraphGetEdges(handle: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, count: *mut usize) -> Try {
    edges(handle, from, to, core::ptr::null_mut(), count)
}

pub unsafe fn cuGraphGetEdges_v2(handle: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, data: *mut CUgraphEdgeData, count: *mut usize) -> Try {
    edges(handle, from, to, data, count)
}

pub unsafe fn cuGraphNodeGetDependencies(handle: CUgraphNode, out: *mut CUgraphNode, count: *mut usize) -> Try {
    process::enter()?;
    let node = find_node(handle)?;
    let found = lock(&node.body).after.clone();
    answer_list(out, count, &found)
}

pub unsafe fn cuGraphNodeGetDependencies_v2(handle: CUgraphNode, out: *mut CUgraphNode, data: *mut CUgraphEdgeData, count: *mut usize) -> Try {
    // SAFETY: the C caller vouches for its arguments, and the older name asks the same of them.
    unsafe { cuGraphNodeGetDependencies(handle, out, count)? };
    if !out.is_null() {
        clear_edge_data(data, crate::ffi::get!(count.cast_const()));
    }
    Ok(())
}

pub unsafe fn cuGraphNodeGetDependentNodes(handle: CUgraphNode, out: *mut CUgraphNode, count: *mut usize) -> Try {
    process::enter()?;
    let node = find_node(handle)?;
    let owner = GRAPHS.get(node.graph).ok_or(error::INVALID_VALUE)?;
    let found: Vec<u64> = lock(&owner.nodes).iter().filter(|other| lock(&other.body).after.contains(&node.handle)).map(|other| other.handle).collect();
    answer_list(out, count, &found)
}

pub unsafe fn cuGraphNodeGetDependentNodes_v2(handle: CUgraphNode, out: *mut CUgraphNode, data: *mut CUgraphEdgeData, count: *mut usize) -> Try {
    // SAFETY: the C caller vouches for its arguments, and the older name asks the same of them.
    unsafe { cuGraphNodeGetDependentNodes(handle, out, count)? };
    if !out.is_null() {
        clear_edge_data(data, crate::ffi::get!(count.cast_const()));
    }
    Ok(())
}

/// Adds or removes edges; all of them are checked first.
fn change_edges(handle: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, count: usize, add: bool) -> Try {
    process::enter()?;
    let graph = find_graph(handle)?;
    let mut pairs = Vec::with_capacity(count);
    for (from, to) in list!(from, count).iter().zip(list!(to, count)) {
        let (from, to) = (find_node(*from)?, find_node(*to)?);
        if from.graph != graph.handle || to.graph != graph.handle || from.handle == to.handle {
            return Err(error::INVALID_VALUE);
        }
        if lock(&to.body).after.contains(&from.handle) == add {
            return Err(error::INVALID_VALUE);
        }
        pairs.push((from, to));
    }
    for (from, to) in pairs {
        let mut body = lock(&to.body);
        body.after.retain(|wait| *wait != from.handle);
        if add {
            body.after.push(from.handle);
        }
    }
    Ok(())
}

pub unsafe fn cuGraphAddDependencies(handle: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, count: usize) -> Try {
    change_edges(handle, from, to, count, true)
}

pub unsafe fn cuGraphAddDependencies_v2(handle: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, data: *const CUgraphEdgeData, count: usize) -> Try {
    plain_edges(data, count)?;
    change_edges(handle, from, to, count, true)
}

pub unsafe fn cuGraphRemoveDependencies(handle: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, count: usize) -> Try {
    change_edges(handle, from, to, count, false)
}

pub unsafe fn cuGraphRemoveDependencies_v2(
    handle: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    _data: *const CUgraphEdgeData,
    count: usize,
) -> Try {
    change_edges(handle, from, to, count, false)
}

/// Programmatic edges ask for less order than is kept, so they become plain ones; unknown ports are
/// refused.
pub(crate) fn plain_edges(data: *const CUgraphEdgeData, count: usize) -> Try {
    if data.is_null() {
        return Ok(());
    }
    let known = |edge: &CUgraphEdgeData| edge.from_port <= 2 && edge.to_port == 0 && edge.type_ <= 1;
    if list!(data, count).iter().all(known) { Ok(()) } else { Err(error::INVALID_VALUE) }
}

pub unsafe fn cuGraphNodeGetType(handle: CUgraphNode, out: *mut CUgraphNodeType) -> Try {
    process::enter()?;
    let node = find_node(handle)?;
    put!(out, lock(&node.body).work.kind());
    Ok(())
}

pub unsafe fn cuGraphChildGraphNodeGetGraph(handle: CUgraphNode, out: *mut CUgraph) -> Try {
    process::enter()?;
    let node = find_node(handle)?;
    let Work::Graph(child) = &lock(&node.body).work else { return Err(error::INVALID_VALUE) };
    put!(out, child.as_c());
    Ok(())
}

/// Names of the node types, by number.
const TYPE_NAMES: [&str; 14] =
    ["KERNEL", "MEMCPY", "MEMSET", "HOST", "GRAPH", "EMPTY", "WAIT_EVENT", "EVENT_RECORD", "SIGNAL", "WAIT", "MEM_ALLOC", "MEM_FREE", "MEM_OP", "CONDITIONAL"];

pub unsafe fn cuGraphDebugDotPrint(handle: CUgraph, path: *const c_char, _flags: c_uint) -> Try {
    process::enter()?;
    let graph = find_graph(handle)?;
    let (nodes, after) = graph.edges();
    let mut text = String::from("digraph dot {\n");
    for (index, node) in nodes.iter().enumerate() {
        let work = lock(&node.body).work.clone();
        let label = match &work {
            Work::Kernel(kernel) => kernel.function.info.name.clone(),
            work => TYPE_NAMES.get(work.kind().0 as usize).copied().unwrap_or("").to_owned(),
        };
        let _ = writeln!(text, "  node_{index} [label=\"{index}: {label}\"];");
        for wait in after.get(index).into_iter().flatten() {
            let _ = writeln!(text, "  node_{wait} -> node_{index};");
        }
    }
    text.push_str("}\n");
    std::fs::write(crate::ffi::name!(path), text).map_err(|_| error::OPERATING_SYSTEM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_chooses_a_body() {
        let bodies = |count: usize| (0..count).map(|_| Graph::new(true).expect("a graph")).collect::<Vec<_>>();
        let of = |kind, count| {
            let condition = Arc::new(Condition { address: 0, default: None });
            Conditional::new(condition, kind, bodies(count))
        };
        let (once, either) = (of(Kind::CU_GRAPH_COND_TYPE_IF, 1), of(Kind::CU_GRAPH_COND_TYPE_IF, 2));
        assert_eq!((once.chosen(0), once.chosen(7), either.chosen(0), either.chosen(1)), (None, Some(0), Some(1), Some(0)));
        let (again, switch) = (of(Kind::CU_GRAPH_COND_TYPE_WHILE, 1), of(Kind::CU_GRAPH_COND_TYPE_SWITCH, 3));
        assert_eq!((again.chosen(0), again.chosen(9)), (None, Some(0)));
        assert_eq!((switch.chosen(0), switch.chosen(2), switch.chosen(3)), (Some(0), Some(2), None));
    }
}
