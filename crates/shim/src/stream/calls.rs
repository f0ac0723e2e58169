//! The `cuStream…` calls, but for captures and value waits.

use super::{STREAMS, Stream};
use crate::callback::{self, Work};
use crate::connection::Connection;
use crate::connection::pipe::Role;
use crate::context::{self, Context, PRIORITIES};
use crate::event::{self, EVENTS};
use crate::ffi::{Try, error, get, put, put_if};
use crate::sync::lock;
use crate::{capture, default_stream, process};
use core::ffi::{c_int, c_uint, c_ulonglong, c_void};
use cumux_abi::{
    CU_STREAM_PER_THREAD, CUcontext, CUdevice, CUevent, CUevent_wait_flags, CUgreenCtx, CUstream, CUstream_flags, CUstreamAttrID, CUstreamAttrValue,
    CUstreamCallback,
};

const NON_BLOCKING: c_uint = CUstream_flags::CU_STREAM_NON_BLOCKING.0;
/// In a capture, a node and not an edge.
const EXTERNAL: c_uint = CUevent_wait_flags::CU_EVENT_WAIT_EXTERNAL.0;

/// Creates a stream in a context.
pub(crate) fn create_in(session: &Connection, context: &Context, out: *mut CUstream, flags: c_uint, priority: c_int) -> Try {
    if out.is_null() || flags & !NON_BLOCKING != 0 {
        return Err(error::INVALID_VALUE);
    }
    let priority = priority.clamp(PRIORITIES.1, PRIORITIES.0);
    let role = if flags & NON_BLOCKING != 0 { Role::Independent } else { Role::Blocking };
    let timeline = session.new_timeline(context.group, role, context.device, priority)?;
    let made = STREAMS.insert(|handle| Stream::new(context.home(), handle, role, timeline, flags, priority));
    let Some((_, stream)) = made else {
        session.free_timeline(timeline);
        return Err(error::OUT_OF_MEMORY);
    };
    context.hold_new(session, stream.timeline)?;
    put!(out, stream.as_c());
    Ok(())
}

fn create(out: *mut CUstream, flags: c_uint, priority: c_int) -> Try {
    let session = process::enter()?;
    create_in(session, &*context::current()?, out, flags, priority)
}

pub unsafe fn cuStreamCreate(out: *mut CUstream, flags: c_uint) -> Try {
    create(out, flags, 0)
}

pub unsafe fn cuStreamCreateWithPriority(out: *mut CUstream, flags: c_uint, priority: c_int) -> Try {
    create(out, flags, priority)
}

pub unsafe fn cuStreamDestroy_v2(stream: CUstream) -> Try {
    let session = process::find_connection()?;
    let handle = stream.addr() as u64;
    let stream = STREAMS.remove(handle).ok_or_else(|| super::missing(handle))?;
    session.free_timeline(stream.timeline);
    session.health()
}

pub unsafe fn cuStreamSynchronize(stream: CUstream) -> Try {
    let session = process::enter()?;
    let stream = context::stream(session, stream)?;
    capture::refuse_while_capturing(&stream)?;
    session.drain_timeline(stream.timeline)
}

pub unsafe fn cuStreamQuery(stream: CUstream) -> Try {
    let session = process::enter()?;
    let stream = context::stream(session, stream)?;
    capture::refuse_while_capturing(&stream)?;
    if session.is_idle(stream.timeline)? { Ok(()) } else { Err(error::NOT_READY) }
}

pub unsafe fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint) -> Try {
    let session = process::enter()?;
    if flags & !EXTERNAL != 0 {
        return Err(error::INVALID_VALUE);
    }
    let stream = context::stream(session, stream)?;
    let event = EVENTS.get(event.addr() as u64).ok_or(error::INVALID_HANDLE)?;
    event::hold(session, &stream, &event, flags & EXTERNAL != 0)
}

pub unsafe fn cuStreamAddCallback(stream: CUstream, callback: CUstreamCallback, data: *mut c_void, flags: c_uint) -> Try {
    let session = process::enter()?;
    let callback = callback.filter(|_| flags == 0).ok_or(error::INVALID_VALUE)?;
    // The callback is told the handle that the program used, also when that is 0.
    let name = stream.addr();
    let stream = context::stream(session, stream)?;
    capture::refuse_while_capturing(&stream)?;
    callback::push(session, stream.timeline, Work::Stream { callback, stream: name, data: data.expose_provenance() })
}

// ---- questions

pub unsafe fn cuStreamGetFlags(stream: CUstream, out: *mut c_uint) -> Try {
    let session = process::find_connection()?;
    put!(out, context::stream(session, stream)?.flags);
    Ok(())
}

pub unsafe fn cuStreamGetPriority(stream: CUstream, out: *mut c_int) -> Try {
    let session = process::find_connection()?;
    put!(out, context::stream(session, stream)?.priority);
    Ok(())
}

pub unsafe fn cuStreamGetId(stream: CUstream, out: *mut c_ulonglong) -> Try {
    let session = process::find_connection()?;
    put!(out, context::stream(session, stream)?.id);
    Ok(())
}

pub unsafe fn cuStreamGetDevice(stream: CUstream, out: *mut CUdevice) -> Try {
    let session = process::find_connection()?;
    put!(out, context::stream(session, stream)?.device.cast_signed());
    Ok(())
}

pub unsafe fn cuStreamGetCtx(stream: CUstream, out: *mut CUcontext) -> Try {
    let session = process::find_connection()?;
    put!(out, core::ptr::without_provenance_mut(context::stream(session, stream)?.context_handle as usize));
    Ok(())
}

pub unsafe fn cuStreamGetCtx_v2(stream: CUstream, out: *mut CUcontext, green: *mut CUgreenCtx) -> Try {
    let session = process::find_connection()?;
    let is_per_thread = default_stream::resolve(stream) == CU_STREAM_PER_THREAD;
    let stream = context::stream(session, stream)?;
    let context = context::find(stream.context_handle)?;
    // Asked through a thread's own stream, the driver has no answer in a green context.
    if is_per_thread && context.green.is_some() {
        return Err(error::INVALID_HANDLE);
    }
    put_if!(green, context.green_handle());
    put!(out, context.root().as_c());
    Ok(())
}

pub unsafe fn cuStreamGetGreenCtx(stream: CUstream, green: *mut CUgreenCtx) -> Try {
    let session = process::find_connection()?;
    let stream = context::stream(session, stream)?;
    put!(green, context::find(stream.context_handle)?.green_handle());
    Ok(())
}

// ---- attributes

fn known_attribute(attribute: CUstreamAttrID) -> Try {
    let known = [
        CUstreamAttrID::CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
        CUstreamAttrID::CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY,
        CUstreamAttrID::CU_LAUNCH_ATTRIBUTE_PRIORITY,
        CUstreamAttrID::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP,
        CUstreamAttrID::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
    ];
    if known.contains(&attribute) { Ok(()) } else { Err(error::INVALID_VALUE) }
}

pub unsafe fn cuStreamGetAttribute(stream: CUstream, attribute: CUstreamAttrID, out: *mut CUstreamAttrValue) -> Try {
    let stream = context::stream(process::find_connection()?, stream)?;
    known_attribute(attribute)?;
    let mut value = [0_u64; 8];
    if attribute == CUstreamAttrID::CU_LAUNCH_ATTRIBUTE_PRIORITY {
        value[0] = u64::from(stream.priority.cast_unsigned());
    }
    if attribute == CUstreamAttrID::CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY {
        value[0] = 1;
    }
    if let Some((_, set)) = lock(&stream.attributes).iter().find(|(number, _)| *number == attribute.0) {
        value = *set;
    }
    put!(out.cast::<[u64; 8]>(), value);
    Ok(())
}

pub unsafe fn cuStreamSetAttribute(stream: CUstream, attribute: CUstreamAttrID, value: *const CUstreamAttrValue) -> Try {
    let stream = context::stream(process::find_connection()?, stream)?;
    known_attribute(attribute)?;
    // A hint, kept to be read back; the priority of a stream is fixed when it is made, as on the
    // device.
    let value = get!(value.cast::<[u64; 8]>());
    let mut attributes = lock(&stream.attributes);
    attributes.retain(|(number, _)| *number != attribute.0);
    attributes.push((attribute.0, value));
    Ok(())
}

pub unsafe fn cuStreamCopyAttributes(target: CUstream, source: CUstream) -> Try {
    let session = process::find_connection()?;
    let (target, source) = (context::stream(session, target)?, context::stream(session, source)?);
    let copied = lock(&source.attributes).clone();
    *lock(&target.attributes) = copied;
    Ok(())
}
