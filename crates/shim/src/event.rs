//! Events: a point in a stream. An event without timing is a pair of numbers and costs no record; one with timing is a record that writes
//! the time into a cell of the page.

use crate::client::pipe::LaneId;
use crate::client::{self, Session, lock};
use crate::context::{self, Context};
use crate::ffi::{Try, error, put};
use crate::log::unsupported;
use crate::stream::{self, Stream};
use core::ffi::c_uint;
use cumux_abi::{CUevent, CUstream};
use cumux_wire::layout::EVENTS;
use cumux_wire::record::Op;
use std::sync::{Arc, Mutex};

const DISABLE_TIMING: c_uint = 2;
const INTERPROCESS: c_uint = 4;
/// `CU_EVENT_RECORD_EXTERNAL`: in a capture, a node and not an edge.
const EXTERNAL: c_uint = 1;
/// Blocking synchronisation is accepted and makes no difference: waiting always sleeps after a short spin.
const KNOWN_FLAGS: c_uint = 1 | DISABLE_TIMING | INTERPROCESS;

/// Which time cells of the page are free.
#[derive(Debug, Default)]
pub struct Cells {
    free: Vec<u32>,
    used: u32,
}

impl Cells {
    fn take(&mut self) -> Option<u32> {
        if let Some(cell) = self.free.pop() {
            return Some(cell);
        }
        let cell = self.used;
        ((cell as usize) < EVENTS).then(|| self.used += 1)?;
        Some(cell)
    }
}

/// Where an event was recorded last: a context may have many streams, so there can be several points; each is (lane, sequence).
#[derive(Debug, Clone, Default)]
enum Recorded {
    #[default]
    Never,
    At(LaneId, u64),
    Many(Vec<(LaneId, u64)>),
}

/// An event.
#[derive(Debug)]
pub struct Event {
    pub handle: u64,
    pub context: u64,
    /// Time cell, if timing is wanted.
    cell: Option<u32>,
    recorded: Mutex<Recorded>,
    /// Set while the last record was made in a capture: the node it stands for.
    pub(crate) captured: Mutex<Option<crate::capture::Place>>,
}

impl Event {
    fn is_done(&self, session: &Session) -> bool {
        match &*lock(&self.recorded) {
            Recorded::Never => true,
            Recorded::At(lane, seq) => session.is_done(*lane, *seq),
            Recorded::Many(points) => points.iter().all(|(lane, seq)| session.is_done(*lane, *seq)),
        }
    }

    /// Gives the time cell back.
    pub(crate) fn release(&self, session: &Session) {
        // A record still under way would write into the next owner's cell: such a cell is not used again.
        if let Some(cell) = self.cell.filter(|_| self.is_done(session)) {
            lock(&session.event_cells).free.push(cell);
        }
    }
}

/// The event a handle names.
pub(crate) fn named(session: &Session, event: CUevent) -> Try<Arc<Event>> {
    session.events.get(event.addr() as u64).ok_or(error::INVALID_HANDLE)
}

pub unsafe fn cuEventCreate(out: *mut CUevent, flags: c_uint) -> Try {
    let session = client::enter()?;
    let context = context::current()?;
    if out.is_null() || flags & !KNOWN_FLAGS != 0 || (flags & INTERPROCESS != 0 && flags & DISABLE_TIMING == 0) {
        return Err(error::INVALID_VALUE);
    }
    if flags & INTERPROCESS != 0 {
        return Err(unsupported("events for other processes (CU_EVENT_INTERPROCESS)"));
    }
    let cell = if flags & DISABLE_TIMING == 0 { Some(lock(&session.event_cells).take().ok_or(error::OUT_OF_MEMORY)?) } else { None };
    let make = |handle| Arc::new(Event { handle, context: context.id, cell, recorded: Mutex::default(), captured: Mutex::default() });
    let (handle, _) = session.events.insert(make).ok_or(error::OUT_OF_MEMORY)?;
    put!(out, core::ptr::without_provenance_mut(handle as usize));
    Ok(())
}

pub unsafe fn cuEventDestroy_v2(event: CUevent) -> Try {
    let session = client::look()?;
    let event = session.events.remove(event.addr() as u64).ok_or(error::INVALID_HANDLE)?;
    event.release(session);
    Ok(())
}

/// Records an event in a stream, or takes it into the stream's capture.
pub(crate) fn record(session: &Session, event: &Event, stream: &Stream, external: bool) -> Try {
    if stream.context != event.context {
        return Err(error::INVALID_HANDLE);
    }
    if crate::capture::record(session, event, stream, external)? {
        return Ok(());
    }
    *lock(&event.captured) = None;
    record_in(session, event, stream.lane).map(drop)
}

/// Records an event in a lane; returns the sequence that it stands for.
pub(crate) fn record_in(session: &Session, event: &Event, lane: LaneId) -> Try<u64> {
    // The lock is held across the push: of two threads that record one event, the later push is the one remembered.
    let mut recorded = lock(&event.recorded);
    let seq = match event.cell {
        Some(cell) => session.push(lane, &Op::EventTime { event: cell })?,
        None => session.point(lane)?,
    };
    *recorded = Recorded::At(lane, seq);
    Ok(seq)
}

/// Records an event in all streams of a context.
pub(crate) fn record_context(session: &Session, context: &Context, event: CUevent) -> Try {
    let event = named(session, event)?;
    if event.context != context.id {
        return Err(error::INVALID_HANDLE);
    }
    let points = session.points(context.group);
    *lock(&event.recorded) = Recorded::Many(points);
    Ok(())
}

/// Makes a stream wait for an event; one that was never recorded counts as reached.
pub(crate) fn hold(session: &Session, target: &Arc<Stream>, event: &Event, external: bool) -> Try {
    if crate::capture::hold(session, event, target, external)? { Ok(()) } else { hold_lane(session, target.lane, event) }
}

/// Makes a lane wait for an event.
pub(crate) fn hold_lane(session: &Session, target: LaneId, event: &Event) -> Try {
    let recorded = lock(&event.recorded).clone();
    match recorded {
        Recorded::Never => Ok(()),
        Recorded::At(lane, seq) => stream::hold(session, target, lane, seq),
        Recorded::Many(points) => points.into_iter().try_for_each(|(lane, seq)| stream::hold(session, target, lane, seq)),
    }
}

/// Makes all streams of a context wait for an event.
pub(crate) fn hold_context(session: &Session, context: &Context, event: CUevent) -> Try {
    let event = named(session, event)?;
    session.streams.all(|stream| stream.context == context.id).iter().try_for_each(|stream| hold(session, stream, &event, false))
}

pub unsafe fn cuEventRecord(event: CUevent, stream: CUstream) -> Try {
    let session = client::enter()?;
    let event = named(session, event)?;
    record(session, &event, &*context::stream(session, stream)?, false)
}

pub unsafe fn cuEventRecordWithFlags(event: CUevent, stream: CUstream, flags: c_uint) -> Try {
    let session = client::enter()?;
    if flags & !EXTERNAL != 0 {
        return Err(error::INVALID_VALUE);
    }
    let event = named(session, event)?;
    record(session, &event, &*context::stream(session, stream)?, flags & EXTERNAL != 0)
}

pub unsafe fn cuEventQuery(event: CUevent) -> Try {
    let session = client::enter()?;
    let event = named(session, event)?;
    if lock(&event.captured).is_some() {
        return Err(cumux_abi::CUresult::CUDA_ERROR_CAPTURED_EVENT);
    }
    if event.is_done(session) { Ok(()) } else { Err(error::NOT_READY) }
}

pub unsafe fn cuEventSynchronize(event: CUevent) -> Try {
    let session = client::enter()?;
    let event = named(session, event)?;
    if lock(&event.captured).is_some() {
        return Err(cumux_abi::CUresult::CUDA_ERROR_CAPTURED_EVENT);
    }
    session.wait(|| event.is_done(session))?;
    session.flush_text();
    session.health()
}

pub unsafe fn cuEventElapsedTime_v2(out: *mut f32, start: CUevent, end: CUevent) -> Try {
    let session = client::enter()?;
    let (start, end) = (named(session, start)?, named(session, end)?);
    let never = |event: &Event| matches!(*lock(&event.recorded), Recorded::Never | Recorded::Many(_));
    let (Some(from), Some(to)) = (start.cell, end.cell) else { return Err(error::INVALID_HANDLE) };
    if start.context != end.context || never(&start) || never(&end) {
        return Err(error::INVALID_HANDLE);
    }
    if !start.is_done(session) || !end.is_done(session) {
        return Err(error::NOT_READY);
    }
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "milliseconds as a float is what the call answers")]
    let milliseconds = (session.event_ns(to) as i64).wrapping_sub(session.event_ns(from) as i64) as f64 as f32 / 1e6;
    put!(out, milliseconds);
    Ok(())
}
