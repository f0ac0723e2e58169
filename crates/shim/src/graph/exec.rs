//! Executables: a graph put into order and spread over timelines. A launch is the records of its
//! nodes: the first timeline is the stream itself, the others start where the stream is, and the
//! stream waits for them at the end.
//!
//! One file, although long: what a launch sends and what an update may change are to be read
//! together.

use super::kept::Kept;
use super::node::{any_work, child_of, copy_work, event_work, host_work, kernel_work, set_work, values_work};
use super::objects::{end_what_is_over, let_go};
use super::structure::Conditional;
use super::{Graph, Work, assign_timelines, find_graph, order};
use crate::connection::Connection;
use crate::connection::pipe::{Role, TimelineId};
use crate::ffi::{Try, error, get, put, put_if};
use crate::handle::{Kind, Table};
use crate::log::{because, unsupported};
use crate::memory::of_graphs;
use crate::stream::Stream;
use crate::sync::lock;
use crate::{callback, context, event, launch, process};
use core::ffi::{c_char, c_uint, c_ulonglong};
use cumux_abi::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_GRAPH_INSTANTIATE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1, CUDA_MEMCPY3D,
    CUDA_MEMSET_NODE_PARAMS, CUcontext, CUevent, CUgraph, CUgraphConditionalNodeType as ConditionalKind, CUgraphExec, CUgraphExecUpdateResult as Update,
    CUgraphExecUpdateResultInfo, CUgraphInstantiate_flags as Flags, CUgraphInstantiateResult, CUgraphNode, CUgraphNodeParams, CUresult, CUstream,
};
use cumux_wire::record::Op;
use event::EVENTS;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Streams that one launch spreads over at most, the launching one included.
const TIMELINES: usize = 8;
/// Known instantiation flags: free on launch, upload, node priorities. Launching from the device is
/// refused.
const KNOWN_FLAGS: u64 = (Flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH.0
    | Flags::CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD.0
    | Flags::CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY.0) as u64;
const AUTO_FREE: u64 = Flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH.0 as u64;
const DEVICE_LAUNCH: u64 = Flags::CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH.0 as u64;

/// All executables.
static EXECS: Table<Exec> = Table::new(Kind::GraphExec);

/// One node of an executable.
#[derive(Debug, Clone)]
struct Step {
    /// Handle of the graph's node.
    node: u64,
    work: Work,
    after: Vec<usize>,
    timeline: usize,
    enabled: bool,
    /// Steps of a child graph, in order.
    inner: Vec<Step>,
    /// Steps of each graph of a conditional node, as launches under way have them.
    bodies: Arc<Vec<Vec<Step>>>,
}

/// Timelines of launches, and where the last one ended.
#[derive(Debug, Default)]
struct Tracks {
    /// Handle of the context of the last launch's stream: they run on its multiprocessors.
    context: u64,
    timelines: Vec<TimelineId>,
    end: Option<(TimelineId, u64)>,
}

/// An executable.
#[derive(Debug)]
pub struct Exec {
    handle: u64,
    flags: u64,
    steps: Mutex<Vec<Step>>,
    tracks: Mutex<Tracks>,
    /// The program's objects and the conditions of all its graphs.
    kept: Mutex<Kept>,
}

/// Puts a graph's nodes into order.
fn plan(graph: &Graph) -> Try<Vec<Step>> {
    let (nodes, after) = graph.edges();
    let sorted = order(&after).ok_or(error::INVALID_VALUE)?;
    let mut place = vec![0; nodes.len()];
    for (position, node) in sorted.iter().enumerate() {
        if let Some(cell) = place.get_mut(*node) {
            *cell = position;
        }
    }
    let mut steps = Vec::with_capacity(nodes.len());
    for node in &sorted {
        let (Some(entry), Some(waits)) = (nodes.get(*node), after.get(*node)) else { continue };
        let work = lock(&entry.body).work.clone();
        let inner = if let Work::Graph(child) = &work { plan(child)? } else { Vec::new() };
        let mut bodies = Vec::new();
        if let Work::Conditional(conditional) = &work {
            for body in &conditional.bodies {
                let steps = plan(body)?;
                check_body(&steps)?;
                bodies.push(steps);
            }
        }
        let waits = waits.iter().filter_map(|wait| place.get(*wait).copied()).collect();
        steps.push(Step { node: entry.handle, work, after: waits, timeline: 0, enabled: true, inner, bodies: Arc::new(bodies) });
    }
    let waits: Vec<Vec<usize>> = steps.iter().map(|step| step.after.clone()).collect();
    for (step, timeline) in steps.iter_mut().zip(assign_timelines(&waits, TIMELINES)) {
        step.timeline = timeline;
    }
    Ok(steps)
}

/// Whether a host function runs anywhere among the steps.
fn calls_host(steps: &[Step]) -> bool {
    steps.iter().any(|step| matches!(step.work, Work::Host(_)) || calls_host(&step.inner))
}

/// Pushes one step's records on a timeline and returns the sequence of the last. `home` is the
/// group and the device of the launch.
fn perform(session: &'static Connection, step: &Step, timeline: TimelineId, host: bool, home: (u32, u32)) -> Try<u64> {
    let nothing = || session.push(timeline, &Op::Nop);
    if !step.enabled {
        return nothing();
    }
    match &step.work {
        Work::Kernel(kernel) => {
            let parameters = &kernel.launch.parameters;
            session.push_launch(timeline, &(&kernel.launch).into(), parameters.len(), |out| out.copy_from_slice(parameters))
        }
        Work::Set(op) => session.push(timeline, op),
        Work::Copy(transfer) => {
            if transfer.source.private && host {
                // A host function of this graph may write what is read here.
                session.drain_timeline(timeline)?;
            }
            // SAFETY: the program vouched for its memory when it made the node, for as long as the
            // executable lives.
            unsafe { transfer.run(session, timeline)? };
            nothing()
        }
        Work::Host(work) => {
            callback::push(session, timeline, *work)?;
            session.point(timeline)
        }
        Work::Graph(_) => {
            for inner in &step.inner {
                perform(session, inner, timeline, host, home)?;
            }
            nothing()
        }
        Work::Conditional(conditional) => push_conditional(session, timeline, conditional, &step.bodies, home),
        Work::Record(event) => {
            let event = EVENTS.get(*event).ok_or(error::INVALID_VALUE)?;
            event::record_in(session, &event, timeline)
        }
        Work::Wait(event) => {
            let event = EVENTS.get(*event).ok_or(error::INVALID_VALUE)?;
            event::hold_timeline(session, timeline, &event)?;
            nothing()
        }
        Work::Values(ops) => {
            for op in &ops.ops {
                session.push(timeline, op)?;
            }
            nothing()
        }
        Work::Alloc(owned) => {
            of_graphs::note_allocated(owned.address);
            nothing()
        }
        Work::Free(address) => {
            of_graphs::free_in_stream(session, timeline, *address)?;
            nothing()
        }
        Work::Empty => nothing(),
    }
}

// ---- conditional nodes: the stream waits at a `HostCall`, and a thread of this library looks at
// the condition, pushes the body into a timeline of its own, and looks again. To the executor all
// of that is work like any other, so a takeover in the middle changes nothing.

/// Checks what may be in a body: what the device does alone.
///
/// # Errors
/// NOT_SUPPORTED for anything else, as CUDA has it.
fn check_body(steps: &[Step]) -> Try {
    for step in steps {
        match &step.work {
            Work::Kernel(_) | Work::Set(_) | Work::Empty | Work::Graph(_) | Work::Conditional(_) => {}
            Work::Copy(transfer) if !transfer.source.private && !transfer.target.private => {}
            _ => {
                return Err(because(
                    error::NOT_SUPPORTED,
                    "a conditional node's graph may have kernels, copies and sets of device memory, empty nodes, child graphs and conditional nodes",
                ));
            }
        }
        check_body(&step.inner)?;
    }
    Ok(())
}

/// Pushes a conditional node on a timeline of a program's launch.
fn push_conditional(
    session: &'static Connection,
    timeline: TimelineId,
    conditional: &Arc<Conditional>,
    bodies: &Arc<Vec<Vec<Step>>>,
    home: (u32, u32),
) -> Try<u64> {
    let (conditional, bodies) = (Arc::clone(conditional), Arc::clone(bodies));
    let (group, device) = home;
    let run = move || {
        // The program hears of a session in trouble by its own calls.
        let Ok(lane) = session.new_timeline(group, Role::Independent, device, 0) else { return };
        let _ = run_conditional(session, lane, &conditional, &bodies, home);
        session.free_timeline(lane);
    };
    callback::push_apart(session, timeline, Box::new(run))?;
    session.point(timeline)
}

/// Runs the bodies on a timeline, as often as the condition says.
///
/// # Errors
/// Those of a session in trouble.
fn run_conditional(session: &'static Connection, lane: TimelineId, conditional: &Conditional, bodies: &[Vec<Step>], home: (u32, u32)) -> Try {
    loop {
        let Some(steps) = conditional.chosen(conditional.condition.value(session)?).and_then(|index| bodies.get(index)) else { return Ok(()) };
        for step in steps {
            match &step.work {
                Work::Conditional(inner) => {
                    settle(session, lane)?;
                    run_conditional(session, lane, inner, &step.bodies, home)?;
                }
                _ => drop(perform(session, step, lane, false, home)?),
            }
        }
        settle(session, lane)?;
        if conditional.kind != ConditionalKind::CU_GRAPH_COND_TYPE_WHILE {
            return Ok(());
        }
    }
}

/// Waits for everything on a timeline.
fn settle(session: &Connection, lane: TimelineId) -> Try {
    let seq = session.point(lane)?;
    session.wait(|| session.is_done(lane, seq))?;
    session.health()
}

/// Checks that steps allocate no memory that is allocated, and free none that is not. `changed` is
/// what the steps before have done.
fn check_memory(steps: &[Step], changed: &mut HashMap<u64, bool>) -> Try {
    for step in steps {
        let (address, allocates) = match &step.work {
            Work::Alloc(owned) => (owned.address, true),
            Work::Free(address) => (*address, false),
            _ => {
                check_memory(&step.inner, changed)?;
                continue;
            }
        };
        let is_allocated = changed.get(&address).copied().unwrap_or_else(|| of_graphs::is_allocated(address));
        if is_allocated == allocates {
            return Err(error::INVALID_VALUE);
        }
        changed.insert(address, allocates);
    }
    Ok(())
}

/// Refuses kernels that do not fit on a green context's multiprocessors: they were checked when the
/// graph was made, maybe for more.
fn check_room(session: &Connection, steps: &[Step], multiprocessors: u32) -> Try {
    for step in steps {
        if let Work::Kernel(kernel) = &step.work
            && (kernel.launch.cooperative || kernel.launch.cluster != [0; 3])
        {
            launch::check_room(session, &kernel.function, &kernel.launch, multiprocessors)?;
        }
        for inner in step.bodies.iter().chain([&step.inner]) {
            check_room(session, inner, multiprocessors)?;
        }
    }
    Ok(())
}

/// A context ends: launches in others need other timelines.
pub(crate) fn end_context(session: &'static Connection, context: &context::Context) {
    for exec in EXECS.all(|_| true) {
        let mut tracks = lock(&exec.tracks);
        if tracks.context == context.handle {
            for timeline in std::mem::take(&mut *tracks).timelines {
                session.free_timeline(timeline);
            }
        }
    }
}

/// Addresses of the memory that steps allocate.
fn allocations(steps: &[Step]) -> Vec<u64> {
    let own = |step: &Step| if let Work::Alloc(owned) = &step.work { Some(owned.address) } else { None };
    steps.iter().flat_map(|step| own(step).into_iter().chain(allocations(&step.inner))).collect()
}

impl Exec {
    fn new(graph: &Graph, flags: u64) -> Try<Arc<Self>> {
        if flags & !KNOWN_FLAGS != 0 {
            return Err(if flags & DEVICE_LAUNCH != 0 { unsupported("graphs that are launched from the device") } else { error::INVALID_VALUE });
        }
        let (steps, kept) = (Mutex::new(plan(graph)?), Mutex::new(Kept::of(graph)));
        let make = |handle| Arc::new(Self { handle, flags, steps, tracks: Mutex::default(), kept });
        EXECS.insert(make).map(|(_, exec)| exec).ok_or(error::OUT_OF_MEMORY)
    }

    fn as_c(&self) -> CUgraphExec {
        core::ptr::without_provenance_mut(self.handle as usize)
    }

    /// Launches in a stream. Launches of one executable run one after the other.
    fn launch(&self, session: &'static Connection, stream: &Stream) -> Try {
        let steps = lock(&self.steps);
        let allocated = allocations(&steps);
        if self.flags & AUTO_FREE != 0 {
            for address in allocated.iter().filter(|address| of_graphs::is_allocated(**address)) {
                of_graphs::free_in_stream(session, stream.timeline, *address)?;
            }
        }
        check_memory(&steps, &mut HashMap::new())?;
        let context = context::find(stream.context_handle)?;
        if context.green.is_some() {
            check_room(session, &steps, context.multiprocessors(session))?;
        }
        of_graphs::allocate_for_launch(session, &allocated)?;
        let mut tracks = lock(&self.tracks);
        let wanted = steps.iter().map(|step| step.timeline).max().unwrap_or(0);
        if tracks.context != stream.context_handle {
            // Timelines of a context that may be gone; giving them back is right in either case.
            for timeline in tracks.timelines.drain(..) {
                session.free_timeline(timeline);
            }
            tracks.context = stream.context_handle;
        }
        while tracks.timelines.len() < wanted {
            let made = session.new_timeline(context.group, Role::Independent, stream.device, 0)?;
            context.hold_new(session, made)?;
            tracks.timelines.push(made);
        }
        if let Some((timeline, seq)) = tracks.end {
            session.hold_timeline(stream.timeline, timeline, seq)?;
        }
        for condition in lock(&self.kept).conditions() {
            condition.assign_default(session, stream.timeline)?;
        }
        let home = (context.group, stream.device);
        let start = session.point(stream.timeline)?;
        let host = calls_host(&steps);
        let timeline_of = |number: usize| if number == 0 { Some(stream.timeline) } else { tracks.timelines.get(number - 1).copied() };
        let mut last: Vec<Option<u64>> = vec![None; wanted + 1];
        let mut reached: Vec<(TimelineId, u64)> = Vec::with_capacity(steps.len());
        for step in steps.iter() {
            let timeline = timeline_of(step.timeline).ok_or(error::UNKNOWN)?;
            if step.timeline != 0 && last.get(step.timeline).copied().flatten().is_none() {
                session.hold_timeline(timeline, stream.timeline, start)?;
            }
            for (other, seq) in step.after.iter().filter_map(|wait| reached.get(*wait)) {
                session.hold_timeline(timeline, *other, *seq)?;
            }
            let seq = perform(session, step, timeline, host, home)?;
            reached.push((timeline, seq));
            if let Some(cell) = last.get_mut(step.timeline) {
                *cell = Some(seq);
            }
        }
        for (number, seq) in last.iter().enumerate().skip(1) {
            if let (Some(timeline), Some(seq)) = (timeline_of(number), seq) {
                session.hold_timeline(stream.timeline, timeline, *seq)?;
            }
        }
        tracks.end = Some((stream.timeline, session.point(stream.timeline)?));
        Ok(())
    }

    /// Replaces one step's work by work of the same kind. Launches that are under way keep what
    /// they have.
    fn change(&self, node: u64, work: Work) -> Try {
        let mut steps = lock(&self.steps);
        let in_body = is_in_body(&steps, node);
        let step = find_step(&mut steps, node).ok_or(error::INVALID_VALUE)?;
        if step.work.kind() != work.kind() {
            return Err(error::INVALID_VALUE);
        }
        if in_body {
            check_body(&[Step { work: work.clone(), inner: Vec::new(), bodies: Arc::default(), ..step.clone() }])?;
        }
        if let Work::Conditional(_) | Work::Graph(_) = &work {
            return Err(error::INVALID_VALUE);
        }
        step.work = work;
        Ok(())
    }

    /// Takes over the parameters of a graph of the same shape for a child graph node.
    fn change_child(&self, session: &Connection, node: u64, child: &Graph) -> Try {
        let mut steps = lock(&self.steps);
        let in_body = is_in_body(&steps, node);
        let step = find_step(&mut steps, node).filter(|step| matches!(step.work, Work::Graph(_))).ok_or(error::INVALID_VALUE)?;
        let fresh = plan(child)?;
        if in_body {
            check_body(&fresh)?;
        }
        check_update(&step.inner, &fresh).map_err(|_| error::INVALID_VALUE)?;
        take_over(&mut step.inner, fresh);
        drop(steps);
        let before = lock(&self.kept).change_child(node, child);
        let end = lock(&self.tracks).end;
        let_go(session, end, before);
        Ok(())
    }

    /// Takes over the parameters of a graph of the same shape; else says what differs and where.
    fn update(&self, session: &Connection, graph: &Graph) -> Result<(), (Update, u64)> {
        let mut steps = lock(&self.steps);
        let fresh = plan(graph).map_err(|_| (Update::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, 0))?;
        check_update(&steps, &fresh)?;
        take_over(&mut steps, fresh);
        // Conditional nodes have the new graph's conditions now.
        let before = std::mem::replace(&mut *lock(&self.kept), Kept::of(graph));
        drop(steps);
        let end = lock(&self.tracks).end;
        let_go(session, end, before.into_held());
        Ok(())
    }
}

/// Whether a step is the one of a node, or has it in a graph of its own.
fn has_step(step: &Step, node: u64) -> bool {
    step.node == node || step.inner.iter().chain(step.bodies.iter().flatten()).any(|step| has_step(step, node))
}

/// The step of a node of the graph, or of the graph of a child graph node or a conditional one.
fn find_step(steps: &mut [Step], node: u64) -> Option<&mut Step> {
    let step = steps.iter_mut().find(|step| has_step(step, node))?;
    if step.node == node {
        return Some(step);
    }
    if step.inner.iter().any(|inner| has_step(inner, node)) {
        return find_step(&mut step.inner, node);
    }
    Arc::make_mut(&mut step.bodies).iter_mut().find_map(|body| find_step(body, node))
}

/// Whether a node is in the graph of a conditional node.
fn is_in_body(steps: &[Step], node: u64) -> bool {
    steps.iter().any(|step| step.bodies.iter().flatten().any(|inner| has_step(inner, node)) || is_in_body(&step.inner, node))
}

/// Checks that steps of a graph may replace those of an executable: they have the same shape, also
/// in child graphs. The graphs of conditional nodes may have others.
///
/// # Errors
/// What differs, and the node where it does (0 for the graph as a whole).
fn check_update(steps: &[Step], fresh: &[Step]) -> Result<(), (Update, u64)> {
    if fresh.len() != steps.len() {
        return Err((Update::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, 0));
    }
    for (old, new) in steps.iter().zip(fresh) {
        let reason = if old.after != new.after || old.bodies.len() != new.bodies.len() {
            Update::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED
        } else if old.work.kind() != new.work.kind() {
            Update::CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED
        } else if changes_context(&old.work, &new.work) {
            Update::CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE
        } else {
            check_update(&old.inner, &new.inner)?;
            continue;
        };
        return Err((reason, new.node));
    }
    Ok(())
}

/// Replaces steps by others of the same shape. The executable goes on knowing the nodes that it was
/// made from; of the graph of a conditional node with another shape it knows the new ones.
fn take_over(steps: &mut [Step], fresh: Vec<Step>) {
    for (old, mut new) in steps.iter_mut().zip(fresh) {
        take_over(&mut old.inner, std::mem::take(&mut new.inner));
        let bodies = Arc::try_unwrap(std::mem::take(&mut new.bodies)).unwrap_or_else(|shared| (*shared).clone());
        for (old, new) in Arc::make_mut(&mut old.bodies).iter_mut().zip(bodies) {
            if check_update(old, &new).is_ok() { take_over(old, new) } else { *old = new }
        }
        let (inner, bodies) = (std::mem::take(&mut old.inner), std::mem::take(&mut old.bodies));
        *old = Step { node: old.node, enabled: old.enabled, inner, bodies, ..new };
    }
}

fn changes_context(old: &Work, new: &Work) -> bool {
    let context = |work: &Work| if let Work::Kernel(kernel) = work { Some(kernel.function.origin.context) } else { None };
    context(old) != context(new)
}

/// The executable a handle names.
pub(crate) fn find_exec(handle: CUgraphExec) -> Try<Arc<Exec>> {
    EXECS.get(handle.addr() as u64).ok_or(error::INVALID_VALUE)
}

// ---- making and ending

fn instantiate(out: *mut CUgraphExec, handle: CUgraph, flags: u64) -> Try {
    process::enter()?;
    if out.is_null() {
        return Err(error::INVALID_VALUE);
    }
    put!(out, Exec::new(&*find_graph(handle)?, flags)?.as_c());
    Ok(())
}

pub unsafe fn cuGraphInstantiate_v2(out: *mut CUgraphExec, handle: CUgraph, wrong: *mut CUgraphNode, log: *mut c_char, bytes: usize) -> Try {
    put_if!(wrong, core::ptr::null_mut());
    if bytes > 0 {
        put_if!(log, 0);
    }
    instantiate(out, handle, 0)
}

pub unsafe fn cuGraphInstantiateWithFlags(out: *mut CUgraphExec, handle: CUgraph, flags: c_ulonglong) -> Try {
    instantiate(out, handle, flags)
}

pub unsafe fn cuGraphInstantiateWithParams(out: *mut CUgraphExec, handle: CUgraph, params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS) -> Try {
    let mut given = get!(params.cast_const());
    let outcome = instantiate(out, handle, given.flags);
    given.hErrNode_out = core::ptr::null_mut();
    given.result_out = match outcome {
        Ok(()) => CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_SUCCESS,
        Err(error::NOT_SUPPORTED) => CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED,
        Err(_) => CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE,
    };
    put!(params, given);
    outcome
}

pub unsafe fn cuGraphExecDestroy(handle: CUgraphExec) -> Try {
    let session = process::find_connection()?;
    let exec = EXECS.remove(handle.addr() as u64).ok_or(error::INVALID_VALUE)?;
    let end = {
        let mut tracks = lock(&exec.tracks);
        tracks.timelines.drain(..).for_each(|timeline| session.free_timeline(timeline));
        tracks.end
    };
    let kept = std::mem::take(&mut *lock(&exec.kept));
    let_go(session, end, kept.into_held());
    Ok(())
}

pub unsafe fn cuGraphExecGetFlags(handle: CUgraphExec, out: *mut u64) -> Try {
    process::enter()?;
    put!(out, find_exec(handle)?.flags);
    Ok(())
}

// ---- launching

pub unsafe fn cuGraphLaunch(handle: CUgraphExec, stream: CUstream) -> Try {
    let session = process::enter()?;
    end_what_is_over(session);
    let exec = find_exec(handle)?;
    let stream = context::stream(session, stream)?;
    if crate::capture::is_capturing(&stream) {
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    exec.launch(session, &stream)
}

pub unsafe fn cuGraphUpload(handle: CUgraphExec, stream: CUstream) -> Try {
    // There is nothing to upload: records are made at each launch.
    let session = process::enter()?;
    find_exec(handle)?;
    context::stream(session, stream).map(drop)
}

// ---- changing

fn change(handle: CUgraphExec, node: CUgraphNode, work: impl FnOnce(&'static Connection) -> Try<Work>) -> Try {
    let session = process::enter()?;
    let exec = find_exec(handle)?;
    exec.change(node.addr() as u64, work(session)?)
}

pub unsafe fn cuGraphExecKernelNodeSetParams(handle: CUgraphExec, node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS_v1) -> Try {
    let given = get!(params);
    let params = super::node::newest(&given);
    change(handle, node, |session| kernel_work(session, &params))
}

pub unsafe fn cuGraphExecKernelNodeSetParams_v2(handle: CUgraphExec, node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS) -> Try {
    let params = get!(params);
    change(handle, node, |session| kernel_work(session, &params))
}

pub unsafe fn cuGraphExecMemcpyNodeSetParams(handle: CUgraphExec, node: CUgraphNode, params: *const CUDA_MEMCPY3D, _context: CUcontext) -> Try {
    let params = get!(params);
    change(handle, node, |_| copy_work(&params))
}

pub unsafe fn cuGraphExecMemsetNodeSetParams(handle: CUgraphExec, node: CUgraphNode, params: *const CUDA_MEMSET_NODE_PARAMS, _context: CUcontext) -> Try {
    let params = get!(params);
    change(handle, node, |_| set_work(&params))
}

pub unsafe fn cuGraphExecHostNodeSetParams(handle: CUgraphExec, node: CUgraphNode, params: *const CUDA_HOST_NODE_PARAMS) -> Try {
    let params = get!(params);
    change(handle, node, |_| host_work(params.fn_, params.userData))
}

pub unsafe fn cuGraphExecChildGraphNodeSetParams(handle: CUgraphExec, node: CUgraphNode, child: CUgraph) -> Try {
    let session = process::enter()?;
    find_exec(handle)?.change_child(session, node.addr() as u64, &*find_graph(child)?)
}

pub unsafe fn cuGraphExecEventRecordNodeSetEvent(handle: CUgraphExec, node: CUgraphNode, event: CUevent) -> Try {
    change(handle, node, |_| event_work(event, true))
}

pub unsafe fn cuGraphExecEventWaitNodeSetEvent(handle: CUgraphExec, node: CUgraphNode, event: CUevent) -> Try {
    change(handle, node, |_| event_work(event, false))
}

pub unsafe fn cuGraphExecBatchMemOpNodeSetParams(handle: CUgraphExec, node: CUgraphNode, params: *const CUDA_BATCH_MEM_OP_NODE_PARAMS) -> Try {
    let params = get!(params);
    change(handle, node, |_| values_work(params.paramArray, params.count))
}

pub unsafe fn cuGraphExecNodeSetParams(handle: CUgraphExec, node: CUgraphNode, params: *mut CUgraphNodeParams) -> Try {
    match child_of(params)? {
        // SAFETY: the C caller vouches for its arguments, and the older name asks the same of them.
        Some(child) => unsafe { cuGraphExecChildGraphNodeSetParams(handle, node, child) },
        None => change(handle, node, |session| any_work(session, params)),
    }
}

pub unsafe fn cuGraphNodeSetEnabled(handle: CUgraphExec, node: CUgraphNode, enabled: c_uint) -> Try {
    process::enter()?;
    let exec = find_exec(handle)?;
    let mut steps = lock(&exec.steps);
    let step = find_step(&mut steps, node.addr() as u64).ok_or(error::INVALID_VALUE)?;
    if !matches!(step.work, Work::Kernel(_) | Work::Copy(_) | Work::Set(_)) {
        return Err(error::INVALID_VALUE);
    }
    step.enabled = enabled != 0;
    Ok(())
}

pub unsafe fn cuGraphNodeGetEnabled(handle: CUgraphExec, node: CUgraphNode, out: *mut c_uint) -> Try {
    process::enter()?;
    let exec = find_exec(handle)?;
    let mut steps = lock(&exec.steps);
    let step = find_step(&mut steps, node.addr() as u64).ok_or(error::INVALID_VALUE)?;
    put!(out, c_uint::from(step.enabled));
    Ok(())
}

fn update(handle: CUgraphExec, graph_handle: CUgraph) -> Try<Result<(), (Update, u64)>> {
    let session = process::enter()?;
    Ok(find_exec(handle)?.update(session, &*find_graph(graph_handle)?))
}

pub unsafe fn cuGraphExecUpdate_v2(handle: CUgraphExec, graph: CUgraph, info: *mut CUgraphExecUpdateResultInfo) -> Try {
    let outcome = update(handle, graph)?;
    let (result, node) = outcome.err().unwrap_or((Update::CU_GRAPH_EXEC_UPDATE_SUCCESS, 0));
    let (error_node, from) = (core::ptr::without_provenance_mut(node as usize), core::ptr::null_mut());
    put!(info, CUgraphExecUpdateResultInfo { result, errorNode: error_node, errorFromNode: from });
    outcome.map_err(|_| CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE)
}

pub unsafe fn cuGraphExecUpdate(handle: CUgraphExec, graph: CUgraph, wrong: *mut CUgraphNode, result: *mut Update) -> Try {
    let outcome = update(handle, graph)?;
    let (code, node) = outcome.err().unwrap_or((Update::CU_GRAPH_EXEC_UPDATE_SUCCESS, 0));
    put_if!(wrong, core::ptr::without_provenance_mut(node as usize));
    put_if!(result, code);
    outcome.map_err(|_| CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE)
}
