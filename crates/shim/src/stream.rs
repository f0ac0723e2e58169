//! Streams: lanes of the ring with a handle, flags and a priority.

use crate::callback::Work;
use crate::client::pipe::{LaneId, Role};
use crate::client::{self, Session, lock};
use crate::context::{self, Context, PRIORITIES};
use crate::ffi::{Try, error, get, put, put_if};
use core::ffi::{c_int, c_uint, c_ulonglong, c_void};
use cumux_abi::{
    CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, CUcontext, CUdevice, CUevent, CUgreenCtx, CUstream, CUstreamAttrID, CUstreamAttrValue, CUstreamCallback,
};
use cumux_wire::record::Op;
use std::cell::RefCell;
use std::sync::{Arc, Mutex};

const NON_BLOCKING: c_uint = 1;

/// A stream.
#[derive(Debug)]
pub struct Stream {
    /// 0 for default streams, which have no entry in the table.
    pub handle: u64,
    pub id: u64,
    /// Id and handle of its context.
    pub context: u64,
    pub context_handle: u64,
    pub device: u32,
    pub lane: LaneId,
    pub role: Role,
    flags: c_uint,
    priority: c_int,
    /// Attributes as the program set them: number and the 64 bytes of value.
    attributes: Mutex<Vec<(u32, [u64; 8])>>,
    /// While it captures: which capture, and where in it.
    pub(crate) capture: Mutex<Option<crate::capture::Place>>,
}

impl Stream {
    fn new(session: &Session, context: &Context, handle: u64, role: Role, lane: LaneId, flags: c_uint, priority: c_int) -> Arc<Self> {
        Arc::new(Self {
            handle,
            id: session.number(),
            context: context.id,
            context_handle: context.handle,
            device: context.device,
            lane,
            role,
            flags,
            priority,
            attributes: Mutex::new(Vec::new()),
            capture: Mutex::new(None),
        })
    }

    /// A context's NULL stream or a thread's default stream.
    ///
    /// # Errors
    /// OUT_OF_MEMORY when all stream indices are in use.
    pub fn default_of(session: &Session, context: &Context, role: Role) -> Try<Arc<Self>> {
        let lane = session.new_lane(context.group, role, context.device, 0)?;
        Ok(Self::new(session, context, 0, role, lane, 0, 0))
    }

    /// The handle as C has it.
    #[must_use]
    pub fn as_c(&self) -> CUstream {
        match (self.handle, self.role) {
            (0, Role::Legacy) => CU_STREAM_LEGACY,
            (0, _) => CU_STREAM_PER_THREAD,
            (handle, _) => core::ptr::without_provenance_mut(handle as usize),
        }
    }
}

/// This thread's default streams, one a context; given back when the thread ends.
struct Own(RefCell<Vec<(Arc<Context>, Arc<Stream>)>>);

impl Drop for Own {
    fn drop(&mut self) {
        if let Ok(session) = client::look() {
            for (context, stream) in self.0.take() {
                context.disown(&stream);
                session.free_lane(stream.lane);
            }
        }
    }
}

thread_local! {
    static OWN: Own = const { Own(RefCell::new(Vec::new())) };
}

/// This thread's default stream in a context.
pub(crate) fn per_thread(session: &'static Session, context: &Arc<Context>) -> Try<Arc<Stream>> {
    let known = |own: &Own| own.0.borrow().iter().find(|(owner, _)| Arc::ptr_eq(owner, context)).map(|(_, stream)| Arc::clone(stream));
    if let Ok(Some(stream)) = OWN.try_with(known) {
        return Ok(stream);
    }
    let stream = Stream::default_of(session, context, Role::Blocking)?;
    context.adopt(Arc::clone(&stream));
    let _ = OWN.try_with(|own| own.0.borrow_mut().push((Arc::clone(context), Arc::clone(&stream))));
    Ok(stream)
}

fn create(out: *mut CUstream, flags: c_uint, priority: c_int) -> Try {
    let session = client::enter()?;
    let context = context::current()?;
    if out.is_null() || flags & !NON_BLOCKING != 0 {
        return Err(error::INVALID_VALUE);
    }
    let priority = priority.clamp(PRIORITIES.1, PRIORITIES.0);
    let role = if flags & NON_BLOCKING != 0 { Role::Independent } else { Role::Blocking };
    let lane = session.new_lane(context.group, role, context.device, priority)?;
    let made = session.streams.insert(|handle| Stream::new(session, &context, handle, role, lane, flags, priority));
    let Some((_, stream)) = made else {
        session.free_lane(lane);
        return Err(error::OUT_OF_MEMORY);
    };
    put!(out, stream.as_c());
    Ok(())
}

pub unsafe fn cuStreamCreate(out: *mut CUstream, flags: c_uint) -> Try {
    create(out, flags, 0)
}

pub unsafe fn cuStreamCreateWithPriority(out: *mut CUstream, flags: c_uint, priority: c_int) -> Try {
    create(out, flags, priority)
}

pub unsafe fn cuStreamDestroy_v2(stream: CUstream) -> Try {
    let session = client::look()?;
    let stream = session.streams.remove(stream.addr() as u64).ok_or(error::INVALID_HANDLE)?;
    session.free_lane(stream.lane);
    session.health()
}

pub unsafe fn cuStreamSynchronize(stream: CUstream) -> Try {
    let session = client::enter()?;
    let stream = context::stream(session, stream)?;
    crate::capture::refuse_while_capturing(session, &stream)?;
    session.drain_lane(stream.lane)
}

pub unsafe fn cuStreamQuery(stream: CUstream) -> Try {
    let session = client::enter()?;
    let stream = context::stream(session, stream)?;
    crate::capture::refuse_while_capturing(session, &stream)?;
    if session.is_idle(stream.lane)? { Ok(()) } else { Err(error::NOT_READY) }
}

pub unsafe fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint) -> Try {
    let session = client::enter()?;
    // CU_EVENT_WAIT_EXTERNAL: in a capture, a node and not an edge.
    if flags & !1 != 0 {
        return Err(error::INVALID_VALUE);
    }
    let stream = context::stream(session, stream)?;
    let event = session.events.get(event.addr() as u64).ok_or(error::INVALID_HANDLE)?;
    crate::event::hold(session, &stream, &event, flags & 1 != 0)
}

pub unsafe fn cuStreamAddCallback(stream: CUstream, callback: CUstreamCallback, data: *mut c_void, flags: c_uint) -> Try {
    let session = client::enter()?;
    let callback = callback.filter(|_| flags == 0).ok_or(error::INVALID_VALUE)?;
    // The callback is told the handle that the program used, also when that is 0.
    let name = stream.addr();
    let stream = context::stream(session, stream)?;
    crate::capture::refuse_while_capturing(session, &stream)?;
    session.callbacks.launch(session, stream.lane, Work::Stream { callback, stream: name, data: data.expose_provenance() })
}

// ---- questions

pub unsafe fn cuStreamGetFlags(stream: CUstream, out: *mut c_uint) -> Try {
    let session = client::look()?;
    put!(out, context::stream(session, stream)?.flags);
    Ok(())
}

pub unsafe fn cuStreamGetPriority(stream: CUstream, out: *mut c_int) -> Try {
    let session = client::look()?;
    put!(out, context::stream(session, stream)?.priority);
    Ok(())
}

pub unsafe fn cuStreamGetId(stream: CUstream, out: *mut c_ulonglong) -> Try {
    let session = client::look()?;
    put!(out, context::stream(session, stream)?.id);
    Ok(())
}

pub unsafe fn cuStreamGetDevice(stream: CUstream, out: *mut CUdevice) -> Try {
    let session = client::look()?;
    put!(out, context::stream(session, stream)?.device.cast_signed());
    Ok(())
}

pub unsafe fn cuStreamGetCtx(stream: CUstream, out: *mut CUcontext) -> Try {
    let session = client::look()?;
    put!(out, core::ptr::without_provenance_mut(context::stream(session, stream)?.context_handle as usize));
    Ok(())
}

pub unsafe fn cuStreamGetCtx_v2(stream: CUstream, out: *mut CUcontext, green: *mut CUgreenCtx) -> Try {
    put_if!(green, core::ptr::null_mut());
    // SAFETY: the same promise of the same caller.
    unsafe { cuStreamGetCtx(stream, out) }
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
    let stream = context::stream(client::look()?, stream)?;
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
    let stream = context::stream(client::look()?, stream)?;
    known_attribute(attribute)?;
    // A hint, kept to be read back; the priority of a stream is fixed when it is made, as on the device.
    let value = get!(value.cast::<[u64; 8]>());
    let mut attributes = lock(&stream.attributes);
    attributes.retain(|(number, _)| *number != attribute.0);
    attributes.push((attribute.0, value));
    Ok(())
}

pub unsafe fn cuStreamCopyAttributes(target: CUstream, source: CUstream) -> Try {
    let session = client::look()?;
    let (target, source) = (context::stream(session, target)?, context::stream(session, source)?);
    let copied = lock(&source.attributes).clone();
    *lock(&target.attributes) = copied;
    Ok(())
}

/// Holds a lane back until a point of another is reached.
pub(crate) fn hold(session: &Session, target: LaneId, lane: LaneId, seq: u64) -> Try {
    if lane.index == target.index || session.is_done(lane, seq) {
        return Ok(());
    }
    session.push(target, &Op::Wait { stream: lane.index, seq }).map(drop)
}
