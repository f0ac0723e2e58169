//! Stream capture: work of a capturing stream becomes nodes of a graph instead of records.
//!
//! A stream that captures holds a [`CapturePoint`]: the capture that it belongs to, and the nodes
//! that its next one comes after. An event recorded there carries such a point to other streams,
//! which join the capture by waiting for it. Everything happens here; the executor never hears of
//! it.

use crate::callback;
use crate::changes;
use crate::connection::Connection;
use crate::connection::pipe::Role;
use crate::context;
use crate::event::Event;
use crate::ffi::{Try, error, list, put, put_if};
use crate::function::Function;
use crate::graph::{Graph, Kernel, NODES, Values, Work, find_graph, plain_edges};
use crate::log::because;
use crate::memory::of_graphs::Owned;
use crate::process;
use crate::stream::{Capture, CapturePoint, Stream};
use crate::sync::lock;
use crate::transfer::Transfer;
use core::ffi::c_uint;
use cumux_abi::{
    CUgraph, CUgraphEdgeData, CUgraphNode, CUresult, CUstream, CUstreamCaptureMode as Mode, CUstreamCaptureStatus as Status,
    CUstreamUpdateCaptureDependencies_flags,
};
use cumux_wire::record::{Launch, Op};
use std::cell::Cell;
use std::sync::{Arc, Mutex};

const UNSUPPORTED: CUresult = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
const INVALIDATED: CUresult = CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;

/// Captures that have begun and not ended.
static CAPTURES: Mutex<Vec<Arc<Capture>>> = Mutex::new(Vec::new());

/// Whether a stream captures now.
#[must_use]
pub(crate) fn is_capturing(stream: &Stream) -> bool {
    lock(&stream.capture).is_some()
}

/// A capture whose streams are gone can never end.
fn has_streams(capture: &Capture) -> bool {
    lock(&capture.streams).iter().any(|stream| stream.strong_count() > 0)
}

/// The NULL stream cannot be used while a stream that it is joined with captures: that would be an
/// edge nobody asked for.
fn check_null_stream(stream: &Stream) -> Try {
    if stream.role != Role::Legacy {
        return Ok(());
    }
    for capture in lock(&CAPTURES).iter() {
        if capture.context == stream.context_handle && capture.joined && capture.mode != Mode::CU_STREAM_CAPTURE_MODE_RELAXED {
            capture.invalidate();
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        }
    }
    Ok(())
}

/// For calls that wait for or ask about a stream: they have no meaning while it captures, and spoil
/// the capture.
///
/// # Errors
/// STREAM_CAPTURE_UNSUPPORTED, STREAM_CAPTURE_IMPLICIT.
pub(crate) fn refuse_while_capturing(stream: &Stream) -> Try {
    check_null_stream(stream)?;
    match &*lock(&stream.capture) {
        None => Ok(()),
        Some(point) => {
            point.capture.invalidate();
            Err(UNSUPPORTED)
        }
    }
}

/// For calls that would reach into every stream of a green context: they have no meaning while one
/// of them captures, and spoil the captures.
///
/// # Errors
/// STREAM_CAPTURE_UNSUPPORTED.
pub(crate) fn refuse_while_any_captures(streams: &[Arc<Stream>]) -> Try {
    let mut refused = false;
    for point in streams.iter().filter_map(|stream| lock(&stream.capture).clone()) {
        point.capture.invalidate();
        refused = true;
    }
    if refused { Err(UNSUPPORTED) } else { Ok(()) }
}

/// For calls that a capture does not see, such as an allocation: a graph that depends on them would
/// be wrong when it is launched. They spoil the captures that are not relaxed about them: those of
/// this thread, and those that are global, unless this thread has chosen to ignore the others
/// (`cuThreadExchangeStreamCaptureMode`).
///
/// # Errors
/// STREAM_CAPTURE_UNSUPPORTED.
pub(crate) fn refuse_unsafe_call() -> Try {
    let mut captures = lock(&CAPTURES);
    if captures.is_empty() {
        return Ok(());
    }
    captures.retain(|capture| has_streams(capture));
    let thread = Mode(MODE.get());
    if thread == Mode::CU_STREAM_CAPTURE_MODE_RELAXED {
        return Ok(());
    }
    let here = rustix::thread::gettid();
    let mut refused = false;
    for capture in captures.iter() {
        let forbids = if capture.thread == here {
            capture.mode != Mode::CU_STREAM_CAPTURE_MODE_RELAXED
        } else {
            thread == Mode::CU_STREAM_CAPTURE_MODE_GLOBAL && capture.mode == Mode::CU_STREAM_CAPTURE_MODE_GLOBAL
        };
        if forbids {
            capture.invalidate();
            refused = true;
        }
    }
    if refused { Err(UNSUPPORTED) } else { Ok(()) }
}

/// For work that turns out to be none.
///
/// # Errors
/// STREAM_CAPTURE_INVALIDATED.
pub(crate) fn refuse_invalid(stream: &Stream) -> Try {
    let invalid = lock(&stream.capture).as_ref().is_some_and(|point| point.capture.is_invalid());
    if invalid { Err(INVALIDATED) } else { Ok(()) }
}

/// Adds a node where the stream is, if it captures.
fn add_node(stream: &Stream, work: impl FnOnce() -> Try<Work>) -> Try<bool> {
    check_null_stream(stream)?;
    let mut point = lock(&stream.capture);
    let Some(point) = point.as_mut() else { return Ok(false) };
    if point.capture.is_invalid() {
        return Err(INVALIDATED);
    }
    let node = point.capture.graph.add(work()?, point.after.clone())?;
    point.after = vec![node.handle];
    Ok(true)
}

/// Takes a launch into the capture of its stream; false when the stream does not capture.
pub(crate) fn capture_launch(stream: &Stream, function: &Arc<Function>, launch: impl FnOnce() -> Launch) -> Try<bool> {
    add_node(stream, || Ok(Work::Kernel(Kernel::new(Arc::clone(function), function.handle, launch()))))
}

/// Takes a copy into the capture of its stream; false when the stream does not capture.
pub(crate) fn capture_copy(stream: &Stream, transfer: &Transfer) -> Try<bool> {
    add_node(stream, || Ok(Work::Copy(*transfer)))
}

/// Takes any other operation into the capture of its stream; false when the stream does not
/// capture.
pub(crate) fn capture_op(stream: &Stream, op: &Op) -> Try<bool> {
    add_node(stream, || Ok(if matches!(op, Op::Set { .. }) { Work::Set(op.clone()) } else { Work::Values(Arc::new(Values::of(op))) }))
}

/// Takes a host callback into the capture of its stream; false when the stream does not capture.
pub(crate) fn capture_host(stream: &Stream, work: callback::Work) -> Try<bool> {
    add_node(stream, || Ok(Work::Host(work)))
}

/// Memory for a capturing stream: its place is known now, a launch allocates it. `None` when the
/// stream does not capture.
pub(crate) fn capture_alloc(session: &Connection, stream: &Stream, bytes: u64) -> Try<Option<u64>> {
    let mut address = None;
    add_node(stream, || {
        if bytes == 0 {
            return Err(error::INVALID_VALUE);
        }
        let owned = {
            let context = context::find(stream.context_handle)?;
            Owned::new(session, context.id, context.device, bytes)?
        };
        address = Some(owned.address);
        Ok(Work::Alloc(owned))
    })?;
    Ok(address)
}

/// Takes a free into the capture of its stream; false when the stream does not capture.
pub(crate) fn capture_free(stream: &Stream, address: u64) -> Try<bool> {
    add_node(stream, || Ok(Work::Free(address)))
}

/// Takes an event record into the capture of its stream; false when the stream does not capture. An
/// external one is a node.
pub(crate) fn capture_record(event: &Event, stream: &Stream, external: bool) -> Try<bool> {
    if external {
        return add_node(stream, || Ok(Work::Record(event.handle)));
    }
    check_null_stream(stream)?;
    let point = lock(&stream.capture).clone();
    let Some(point) = point else { return Ok(false) };
    if point.capture.is_invalid() {
        return Err(INVALIDATED);
    }
    *lock(&event.captured) = Some(point);
    Ok(true)
}

/// Takes a wait into the capture that the event or the stream belongs to; false when neither
/// captures. An external one is a node.
pub(crate) fn capture_hold(event: &Event, stream: &Arc<Stream>, external: bool) -> Try<bool> {
    if external {
        return add_node(stream, || Ok(Work::Wait(event.handle)));
    }
    let brought = lock(&event.captured).clone();
    let mut point = lock(&stream.capture);
    match (brought, point.as_mut()) {
        (None, None) => Ok(false),
        (None, Some(own)) => {
            // Work outside of the capture cannot become a part of it.
            own.capture.invalidate();
            Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
        }
        (Some(brought), None) => {
            if stream.role == Role::Legacy {
                brought.capture.invalidate();
                return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
            }
            if brought.capture.is_invalid() {
                return Err(INVALIDATED);
            }
            lock(&brought.capture.streams).push(Arc::downgrade(stream));
            *point = Some(brought);
            changes::note();
            Ok(true)
        }
        (Some(brought), Some(own)) if Arc::ptr_eq(&brought.capture, &own.capture) => {
            own.after.extend(brought.after);
            own.after.sort_unstable();
            own.after.dedup();
            Ok(true)
        }
        (Some(brought), Some(own)) => {
            brought.capture.invalidate();
            own.capture.invalidate();
            Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_MERGE)
        }
    }
}

// ---- beginning and ending

fn begin(stream: CUstream, mode: Mode, into: Option<(Arc<Graph>, Vec<u64>)>) -> Try {
    let session = process::enter()?;
    let stream = context::stream(session, stream)?;
    if mode.0 > Mode::CU_STREAM_CAPTURE_MODE_RELAXED.0 {
        return Err(error::INVALID_VALUE);
    }
    if stream.role == Role::Legacy {
        return Err(UNSUPPORTED);
    }
    let mut point = lock(&stream.capture);
    if point.is_some() {
        return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
    }
    let into_given = into.is_some();
    let (graph, after) = match into {
        Some(given) => given,
        None => (Graph::new(false)?, Vec::new()),
    };
    let capture = Arc::new(Capture {
        id: process::new_number(),
        graph,
        origin: stream.id,
        joined: stream.role == Role::Blocking,
        context: stream.context_handle,
        into_given,
        mode,
        thread: rustix::thread::gettid(),
        invalid: Mutex::new(false),
        streams: Mutex::new(vec![Arc::downgrade(&stream)]),
    });
    lock(&CAPTURES).push(Arc::clone(&capture));
    *point = Some(CapturePoint { capture, after });
    changes::note();
    Ok(())
}

pub unsafe fn cuStreamBeginCapture_v2(stream: CUstream, mode: Mode) -> Try {
    begin(stream, mode, None)
}

pub unsafe fn cuStreamBeginCapture(stream: CUstream) -> Try {
    begin(stream, Mode::CU_STREAM_CAPTURE_MODE_GLOBAL, None)
}

pub unsafe fn cuStreamBeginCaptureToGraph(
    stream: CUstream,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
    mode: Mode,
) -> Try {
    process::enter()?;
    plain_edges(data, count)?;
    let graph = find_graph(graph)?;
    let after = list!(dependencies, count).iter().map(|node| node.addr() as u64).collect();
    begin(stream, mode, Some((graph, after)))
}

pub unsafe fn cuStreamEndCapture(stream: CUstream, out: *mut CUgraph) -> Try {
    let session = process::enter()?;
    let stream = context::stream(session, stream)?;
    let point = lock(&stream.capture).clone().ok_or(error::INVALID_VALUE)?;
    let capture = &point.capture;
    // Who captures into a graph has it already.
    if out.is_null() && !capture.into_given {
        return Err(error::INVALID_VALUE);
    }
    if capture.origin != stream.id {
        capture.invalidate();
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    }
    if capture.mode != Mode::CU_STREAM_CAPTURE_MODE_RELAXED && capture.thread != rustix::thread::gettid() {
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    }
    // From here on the capture is over, whatever comes of it.
    lock(&CAPTURES).retain(|other| !Arc::ptr_eq(other, capture));
    let mut loose = false;
    for other in lock(&capture.streams).drain(..).filter_map(|stream| stream.upgrade()) {
        let point_of_other = lock(&other.capture).take();
        if other.id != stream.id {
            loose |= point_of_other.is_some_and(|theirs| !reaches(&point.after, &theirs.after));
        }
    }
    put_if!(out, core::ptr::null_mut());
    if capture.is_invalid() || loose {
        if !capture.graph.is_inner() {
            capture.graph.end();
        }
        return Err(if loose && !capture.is_invalid() { CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED } else { INVALIDATED });
    }
    put_if!(out, capture.graph.as_c());
    Ok(())
}

/// Whether every node of `wanted` is one of `from` or comes before one of them.
fn reaches(from: &[u64], wanted: &[u64]) -> bool {
    let mut seen: Vec<u64> = Vec::new();
    let mut open: Vec<u64> = from.to_vec();
    while let Some(node) = open.pop() {
        if seen.contains(&node) {
            continue;
        }
        seen.push(node);
        if let Some(node) = NODES.get(node) {
            open.extend(&lock(&node.body).after);
        }
    }
    wanted.iter().all(|node| seen.contains(node))
}

// ---- questions

fn status(point: Option<&CapturePoint>) -> Status {
    match point {
        None => Status::CU_STREAM_CAPTURE_STATUS_NONE,
        Some(point) if point.capture.is_invalid() => Status::CU_STREAM_CAPTURE_STATUS_INVALIDATED,
        Some(_) => Status::CU_STREAM_CAPTURE_STATUS_ACTIVE,
    }
}

/// A question about the NULL stream changes nothing and adds no edge. It spoils no capture, and has
/// no answer while any stream captures that is joined with the NULL stream, even a relaxed one.
fn check_question(stream: &Stream) -> Try {
    let joined = |capture: &Arc<Capture>| capture.context == stream.context_handle && capture.joined && has_streams(capture);
    if stream.role == Role::Legacy && lock(&CAPTURES).iter().any(joined) {
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
    Ok(())
}

pub unsafe fn cuStreamIsCapturing(stream: CUstream, out: *mut Status) -> Try {
    let session = process::find_connection()?;
    let stream = context::stream(session, stream)?;
    check_question(&stream)?;
    put!(out, status(lock(&stream.capture).as_ref()));
    Ok(())
}

thread_local! {
    /// Where the list of `cuStreamGetCaptureInfo` lies until the thread asks again.
    static AFTER: Cell<Vec<u64>> = const { Cell::new(Vec::new()) };
    static MODE: Cell<u32> = const { Cell::new(0) };
}

fn info(
    stream: CUstream,
    state: *mut Status,
    id: *mut u64,
    graph: *mut CUgraph,
    after: *mut *const CUgraphNode,
    data: *mut *const CUgraphEdgeData,
    count: *mut usize,
) -> Try {
    let session = process::find_connection()?;
    let stream = context::stream(session, stream)?;
    check_question(&stream)?;
    let point = lock(&stream.capture);
    put!(state, status(point.as_ref()));
    let Some(point) = point.as_ref().filter(|point| !point.capture.is_invalid()) else { return Ok(()) };
    put_if!(id, point.capture.id);
    put_if!(graph, point.capture.graph.as_c());
    put_if!(count, point.after.len());
    put_if!(data, core::ptr::null());
    if !after.is_null() {
        // A handle word and a pointer have one layout.
        let nodes = point.after.clone();
        let start: *const CUgraphNode = core::ptr::with_exposed_provenance(nodes.as_ptr().expose_provenance());
        AFTER.try_with(|after| after.set(nodes)).map_err(|_| because(error::UNKNOWN, "the thread has ended, and so has the place for its list of nodes"))?;
        put!(after, start);
    }
    Ok(())
}

pub unsafe fn cuStreamGetCaptureInfo(stream: CUstream, state: *mut Status, id: *mut u64) -> Try {
    info(stream, state, id, core::ptr::null_mut(), core::ptr::null_mut(), core::ptr::null_mut(), core::ptr::null_mut())
}

pub unsafe fn cuStreamGetCaptureInfo_v2(
    stream: CUstream,
    state: *mut Status,
    id: *mut u64,
    graph: *mut CUgraph,
    after: *mut *const CUgraphNode,
    count: *mut usize,
) -> Try {
    info(stream, state, id, graph, after, core::ptr::null_mut(), count)
}

pub unsafe fn cuStreamGetCaptureInfo_v3(
    stream: CUstream,
    state: *mut Status,
    id: *mut u64,
    graph: *mut CUgraph,
    after: *mut *const CUgraphNode,
    data: *mut *const CUgraphEdgeData,
    count: *mut usize,
) -> Try {
    info(stream, state, id, graph, after, data, count)
}

fn update(stream: CUstream, dependencies: *mut CUgraphNode, count: usize, flags: c_uint) -> Try {
    let session = process::enter()?;
    let stream = context::stream(session, stream)?;
    const SET: c_uint = CUstreamUpdateCaptureDependencies_flags::CU_STREAM_SET_CAPTURE_DEPENDENCIES.0;
    if flags & !SET != 0 {
        return Err(error::INVALID_VALUE);
    }
    let mut point = lock(&stream.capture);
    let point = point.as_mut().ok_or(CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
    let given = list!(dependencies.cast_const(), count).iter().map(|node| node.addr() as u64);
    let mut after: Vec<u64> = if flags & SET != 0 { Vec::new() } else { point.after.clone() };
    for node in given {
        if NODES.get(node).is_none_or(|node| node.graph != point.capture.graph.handle) {
            return Err(error::INVALID_VALUE);
        }
        after.push(node);
    }
    point.after = after;
    Ok(())
}

pub unsafe fn cuStreamUpdateCaptureDependencies(stream: CUstream, dependencies: *mut CUgraphNode, count: usize, flags: c_uint) -> Try {
    update(stream, dependencies, count, flags)
}

pub unsafe fn cuStreamUpdateCaptureDependencies_v2(
    stream: CUstream,
    dependencies: *mut CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
    flags: c_uint,
) -> Try {
    plain_edges(data, count)?;
    update(stream, dependencies, count, flags)
}

pub unsafe fn cuThreadExchangeStreamCaptureMode(mode: *mut Mode) -> Try {
    process::find_connection()?;
    let wanted = crate::ffi::get!(mode.cast_const());
    if wanted.0 > Mode::CU_STREAM_CAPTURE_MODE_RELAXED.0 {
        return Err(error::INVALID_VALUE);
    }
    put!(mode, Mode(MODE.replace(wanted.0)));
    Ok(())
}
