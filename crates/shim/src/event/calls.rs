//! The `cuEvent…` calls, and what streams and contexts do with events.

use super::shared::refuse;
use super::{CELLS, Cell, EVENTS, Event, Recorded, hold_timeline, make, named, record_in};
use crate::connection::Connection;
use crate::context::{self, Context};
use crate::ffi::{Try, error, put};
use crate::stream::Stream;
use crate::sync::lock;
use crate::{capture, process};
use core::ffi::c_uint;
use cumux_abi::{CUevent, CUevent_flags, CUevent_record_flags, CUresult, CUstream};
use std::sync::Arc;

const DISABLE_TIMING: c_uint = CUevent_flags::CU_EVENT_DISABLE_TIMING.0;
const INTERPROCESS: c_uint = CUevent_flags::CU_EVENT_INTERPROCESS.0;
/// In a capture, a node and not an edge.
const EXTERNAL: c_uint = CUevent_record_flags::CU_EVENT_RECORD_EXTERNAL.0;
/// Blocking synchronisation is accepted and makes no difference: waiting always sleeps after a
/// short spin.
const KNOWN_FLAGS: c_uint = CUevent_flags::CU_EVENT_BLOCKING_SYNC.0 | DISABLE_TIMING | INTERPROCESS;

pub unsafe fn cuEventCreate(out: *mut CUevent, flags: c_uint) -> Try {
    let session = process::enter()?;
    let context = context::current()?;
    if out.is_null() || flags & !KNOWN_FLAGS != 0 || (flags & INTERPROCESS != 0 && flags & DISABLE_TIMING == 0) {
        return Err(error::INVALID_VALUE);
    }
    let cell = if flags & DISABLE_TIMING == 0 { Some(lock(&CELLS).take_cell().ok_or(error::OUT_OF_MEMORY)?) } else { None };
    let shared = if flags & INTERPROCESS != 0 { Some(Cell::new(session, context.device)?) } else { None };
    put!(out, make(&EVENTS, context.id, cell, shared).ok_or(error::OUT_OF_MEMORY)?);
    Ok(())
}

pub unsafe fn cuEventDestroy_v2(event: CUevent) -> Try {
    let session = process::find_connection()?;
    let event = EVENTS.remove(event.addr() as u64).ok_or(error::INVALID_HANDLE)?;
    event.release(session);
    Ok(())
}

/// Records an event in a stream, or takes it into the stream's capture.
pub(crate) fn record(session: &Connection, event: &Event, stream: &Stream, external: bool) -> Try {
    if stream.context != event.context {
        return Err(error::INVALID_HANDLE);
    }
    if capture::is_capturing(stream) {
        refuse(event, "an event for other processes in a capture")?;
    }
    if capture::capture_record(event, stream, external)? {
        return Ok(());
    }
    *lock(&event.captured) = None;
    record_in(session, event, stream.timeline).map(drop)
}

/// Records an event in all streams of a context.
pub(crate) fn record_context(session: &Connection, context: &Context, event: CUevent) -> Try {
    let event = named(event)?;
    if event.context != context.id {
        return Err(error::INVALID_HANDLE);
    }
    refuse(&event, "a context's work recorded in an event for other processes")?;
    *lock(&event.recorded) = Recorded::Many(context.points(session));
    *lock(&event.captured) = None;
    Ok(())
}

/// Makes a stream wait for an event; one that was never recorded counts as reached.
pub(crate) fn hold(session: &Connection, target: &Arc<Stream>, event: &Event, external: bool) -> Try {
    if capture::is_capturing(target) {
        refuse(event, "an event for other processes in a capture")?;
    }
    if capture::capture_hold(event, target, external)? { Ok(()) } else { hold_timeline(session, target.timeline, event) }
}

/// For calls that take no event of a capture: they spoil it.
///
/// # Errors
/// STREAM_CAPTURE_UNSUPPORTED.
pub(crate) fn refuse_captured(event: CUevent) -> Try {
    match &*lock(&named(event)?.captured) {
        None => Ok(()),
        Some(point) => {
            point.capture.invalidate();
            Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
        }
    }
}

/// Makes all streams of a context and of its green contexts wait for an event, also those that are
/// made later.
pub(crate) fn hold_context(session: &'static Connection, context: &Context, event: CUevent) -> Try {
    let event = named(event)?;
    hold_streams(session, context, &event)?;
    context.greens().iter().try_for_each(|green| hold_streams(session, green, &event))
}

fn hold_streams(session: &'static Connection, context: &Context, event: &Event) -> Try {
    for stream in context.streams() {
        hold(session, &stream, event, false)?;
    }
    if lock(&event.captured).is_some() {
        return Ok(());
    }
    let points = match event.points() {
        Some(points) => points,
        // Where other processes record it is not known here: the NULL stream waits in place of
        // those that are made later.
        None => {
            let legacy = context.legacy(session)?.timeline;
            hold_timeline(session, legacy, event)?;
            vec![(legacy, session.point(legacy)?)]
        }
    };
    context.hold_later(session, &points);
    context.default_streams().iter().try_for_each(|stream| hold_timeline(session, stream.timeline, event))
}

pub unsafe fn cuEventRecord(event: CUevent, stream: CUstream) -> Try {
    let session = process::enter()?;
    let event = named(event)?;
    record(session, &event, &*context::stream(session, stream)?, false)
}

pub unsafe fn cuEventRecordWithFlags(event: CUevent, stream: CUstream, flags: c_uint) -> Try {
    let session = process::enter()?;
    if flags & !EXTERNAL != 0 {
        return Err(error::INVALID_VALUE);
    }
    let event = named(event)?;
    record(session, &event, &*context::stream(session, stream)?, flags & EXTERNAL != 0)
}

pub unsafe fn cuEventQuery(event: CUevent) -> Try {
    let session = process::enter()?;
    let event = named(event)?;
    if lock(&event.captured).is_some() {
        return Err(CUresult::CUDA_ERROR_CAPTURED_EVENT);
    }
    let is_done = event.query(session)?;
    session.recording.asked(|| event.stream_index(), is_done);
    if is_done { Ok(()) } else { Err(error::NOT_READY) }
}

pub unsafe fn cuEventSynchronize(event: CUevent) -> Try {
    let session = process::enter()?;
    let event = named(event)?;
    if lock(&event.captured).is_some() {
        return Err(CUresult::CUDA_ERROR_CAPTURED_EVENT);
    }
    let from = session.recording.time();
    match event.shared {
        Some(cell) => cell.wait(session)?,
        None => session.wait(|| event.is_done(session))?,
    }
    session.recording.waited(from, || event.stream_index());
    session.flush_text();
    session.health()
}

pub unsafe fn cuEventElapsedTime_v2(out: *mut f32, start: CUevent, end: CUevent) -> Try {
    let session = process::enter()?;
    let (start, end) = (named(start)?, named(end)?);
    let never = |event: &Event| matches!(*lock(&event.recorded), Recorded::Never | Recorded::Many(_));
    let (Some(from), Some(to)) = (start.cell, end.cell) else { return Err(error::INVALID_HANDLE) };
    if start.context != end.context || never(&start) || never(&end) {
        return Err(error::INVALID_HANDLE);
    }
    if !start.query(session)? || !end.query(session)? {
        return Err(error::NOT_READY);
    }
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "milliseconds as a float is what the call answers")]
    let milliseconds = (session.event_ns(to) as i64).wrapping_sub(session.event_ns(from) as i64) as f64 as f32 / 1e6;
    put!(out, milliseconds);
    Ok(())
}
