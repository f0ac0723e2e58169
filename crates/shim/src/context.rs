//! Contexts. To the executor a context is nothing; here it is a namespace: its objects live and die with it.
//!
//! - A device's primary context is one object for the life of the process, with a use count; releasing or resetting it ends its objects.
//! - Each thread has a stack of contexts; the top is current.
//! - A context's NULL stream is a lane of its own, made at first use.

use crate::client::pipe::Role;
use crate::client::{self, Session, lock};
use crate::default_stream;
use crate::ffi::{Try, error, get, put, put_if};
use crate::log::unsupported;
use crate::stream::Stream;
use core::ffi::{c_int, c_uint, c_ulonglong};
use cumux_abi::{
    CUcontext, CUctxCreateParams, CUdevice, CUevent, CUexecAffinityParam, CUexecAffinitySmCount, CUexecAffinityType, CUfunc_cache, CUlimit, CUresult,
    CUsharedconfig, CUstream,
};
use cumux_wire::record::Op;
use cumux_wire::share::Share;
use std::cell::RefCell;
use std::sync::{Arc, Mutex, OnceLock};

/// `CU_CTX_SCHED_MASK | CU_CTX_MAP_HOST | CU_CTX_LMEM_RESIZE_TO_MAX | CU_CTX_COREDUMP_ENABLE | CU_CTX_USER_COREDUMP_ENABLE | CU_CTX_SYNC_MEMOPS`.
const KNOWN_FLAGS: c_uint = 0x07 | 0x08 | 0x10 | 0x20 | 0x40 | 0x80;
const MAP_HOST: c_uint = 8;
/// Flags a primary context may have.
const PRIMARY_FLAGS: c_uint = KNOWN_FLAGS;
/// What `cuCtxGetApiVersion` has answered since CUDA 3.2.
const API_VERSION: c_uint = 3020;
/// Stream priorities: least and greatest.
pub(crate) const PRIORITIES: (c_int, c_int) = (0, -5);

#[derive(Debug)]
struct Life {
    active: bool,
    /// Primary: how often retained. Explicit: attachments.
    uses: u32,
    flags: c_uint,
    cache: CUfunc_cache,
    limits: [usize; LIMITS],
}

const LIMITS: usize = 10;
/// By `CUlimit`: stack, printf buffer, heap, nested synchronisation (gone since compute capability 9.0), pending launches, L2 fetch, L2 persistence,
/// shared memory; as driver 580 answers on an H200. The last two say that this is no context in graphics (cuBLAS asks).
const DEFAULT_LIMITS: [usize; LIMITS] = [1024, 8_650_752, 8 << 20, 0, 2048, 64, 11_796_480, 232_448, 0, 0];

/// Multiprocessors that a context has for its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Own {
    /// All of the program's share.
    None,
    /// As the program's environment said when it was made.
    Percentage(u32),
    /// As the program asked for it.
    Affinity(u32),
}

/// A context.
#[derive(Debug)]
pub struct Context {
    pub handle: u64,
    pub id: u64,
    pub device: u32,
    pub group: u32,
    /// The part of the client's share on which its streams run, 0 = all of it.
    partition: u32,
    /// Multiprocessors of its own share; 0 = it has none of its own.
    multiprocessors: u32,
    /// That share was asked for as an execution affinity.
    affine: bool,
    primary: bool,
    life: Mutex<Life>,
    legacy: OnceLock<Arc<Stream>>,
    /// Default streams of threads.
    per_thread: Mutex<Vec<Arc<Stream>>>,
}

thread_local! {
    static STACK: RefCell<Vec<Arc<Context>>> = const { RefCell::new(Vec::new()) };
}

impl Context {
    /// A new context; a primary one starts inactive.
    ///
    /// # Errors
    /// OUT_OF_MEMORY when there are too many; when the device cannot be divided, for one with a share of its own.
    pub fn new(session: &Session, device: u32, primary: bool, flags: c_uint, own: Own) -> Try<Arc<Self>> {
        let life = Life { active: !primary, uses: u32::from(!primary), flags, cache: CUfunc_cache::CU_FUNC_CACHE_PREFER_NONE, limits: DEFAULT_LIMITS };
        let (multiprocessors, affine) = match own {
            Own::None => (0, false),
            Own::Percentage(count) => (count, false),
            Own::Affinity(count) => (count, true),
        };
        // All of the share needs no part of its own.
        let partition = if multiprocessors == 0 || multiprocessors >= session.share(device) {
            0
        } else {
            let partition = u32::try_from(session.number()).map_err(|_| error::OUT_OF_MEMORY)?;
            session.call(&Op::PartitionOpen { partition, device, multiprocessors })?;
            partition
        };
        let (id, group) = (session.number(), session.new_group(partition));
        let (life, legacy, per_thread) = (Mutex::new(life), OnceLock::new(), Mutex::new(Vec::new()));
        let make = |handle| Arc::new(Self { handle, id, device, group, partition, multiprocessors, affine, primary, life, legacy, per_thread });
        session.contexts.insert(make).map(|(_, context)| context).ok_or(error::OUT_OF_MEMORY)
    }

    /// Multiprocessors on which its kernels run.
    #[must_use]
    pub fn multiprocessors(&self, session: &Session) -> u32 {
        let share = session.share(self.device);
        if self.multiprocessors == 0 { share } else { self.multiprocessors.min(share) }
    }

    #[must_use]
    pub fn is_active(&self) -> bool {
        lock(&self.life).active
    }

    #[must_use]
    pub fn as_c(&self) -> CUcontext {
        core::ptr::without_provenance_mut(self.handle as usize)
    }

    /// The NULL stream.
    ///
    /// # Errors
    /// OUT_OF_MEMORY when all stream indices are in use.
    pub fn legacy(&self, session: &'static Session) -> Try<Arc<Stream>> {
        if let Some(stream) = self.legacy.get() {
            return Ok(Arc::clone(stream));
        }
        // The lock makes the first use a single one.
        let _life = lock(&self.life);
        if let Some(stream) = self.legacy.get() {
            return Ok(Arc::clone(stream));
        }
        let stream = Stream::default_of(session, self, Role::Legacy)?;
        Ok(Arc::clone(self.legacy.get_or_init(|| stream)))
    }

    /// Remembers a thread's default stream, so that it ends with the context.
    pub(crate) fn adopt(&self, stream: Arc<Stream>) {
        lock(&self.per_thread).push(stream);
    }

    pub(crate) fn disown(&self, stream: &Arc<Stream>) {
        lock(&self.per_thread).retain(|known| !Arc::ptr_eq(known, stream));
    }

    /// Waits for everything and ends every object of this context. The context's own streams stay with a primary one, for its next life.
    fn end_objects(&self, session: &'static Session) {
        // A faulted client has nothing to wait for.
        let _ = session.drain(self.group);
        crate::private::context_gone(self.handle);
        for stream in session.streams.remove_all(|stream| stream.context == self.id) {
            session.free_lane(stream.lane);
        }
        for event in session.events.remove_all(|event| event.context == self.id) {
            event.release(session);
        }
        session.functions.remove_all(|function| function.context == self.id);
        for module in session.modules.remove_all(|module| module.context() == self.id) {
            let _ = session.control(&Op::ModuleUnload { module: module.number });
        }
        for library in session.libraries.all(|_| true) {
            library.forget(session, self.id);
        }
        crate::memory::end_context(session, self.id);
        if !self.primary {
            for stream in lock(&self.per_thread).drain(..).chain(self.legacy.get().cloned()) {
                session.free_lane(stream.lane);
            }
            if self.partition != 0 {
                // A session that is lost has no parts.
                let _ = session.control(&Op::PartitionClose { partition: self.partition });
            }
        }
    }
}

/// The current context of this thread, whatever its state.
pub(crate) fn top() -> Option<Arc<Context>> {
    STACK.try_with(|stack| stack.borrow().last().cloned()).ok().flatten()
}

/// The current context.
///
/// # Errors
/// INVALID_CONTEXT when there is none, CONTEXT_IS_DESTROYED when it was destroyed or is a primary context nobody retains.
pub fn current() -> Try<Arc<Context>> {
    let context = top().ok_or(error::INVALID_CONTEXT)?;
    if context.is_active() { Ok(context) } else { Err(error::CONTEXT_IS_DESTROYED) }
}

/// The context an argument names, null and -1 meaning the current one.
pub(crate) fn named(session: &Session, context: CUcontext) -> Try<Arc<Context>> {
    match context.addr() {
        0 | usize::MAX => current(),
        handle => session.context(handle as u64),
    }
}

fn set_top(context: Option<Arc<Context>>) {
    let _ = STACK.try_with(|stack| {
        let mut stack = stack.borrow_mut();
        stack.pop();
        stack.extend(context);
    });
}

// ---- primary contexts

pub unsafe fn cuDevicePrimaryCtxRetain(out: *mut CUcontext, device: CUdevice) -> Try {
    let session = client::enter()?;
    let ordinal = u32::try_from(device).map_err(|_| error::INVALID_DEVICE)?;
    let context = session.device(device)?.primary(session, ordinal)?;
    put!(out, context.as_c());
    let mut life = lock(&context.life);
    life.uses += 1;
    life.active = true;
    Ok(())
}

fn primary(session: &'static Session, device: CUdevice) -> Try<&'static Arc<Context>> {
    let ordinal = u32::try_from(device).map_err(|_| error::INVALID_DEVICE)?;
    session.device(device)?.primary(session, ordinal)
}

/// Handle of a device's primary context, without retaining it (for the runtime's private table).
pub(crate) fn primary_handle(device: CUdevice) -> Try<CUcontext> {
    Ok(primary(client::look()?, device)?.as_c())
}

pub unsafe fn cuDevicePrimaryCtxRelease_v2(device: CUdevice) -> Try {
    let session = client::look()?;
    let context = primary(session, device)?;
    let last = {
        let mut life = lock(&context.life);
        life.uses = life.uses.checked_sub(1).ok_or(error::INVALID_CONTEXT)?;
        life.uses == 0
    };
    if last {
        context.end_objects(session);
        let mut life = lock(&context.life);
        // Another thread may have retained it meanwhile.
        if life.uses == 0 {
            life.active = false;
            life.limits = DEFAULT_LIMITS;
        }
    }
    Ok(())
}

pub unsafe fn cuDevicePrimaryCtxReset_v2(device: CUdevice) -> Try {
    let session = client::look()?;
    let context = primary(session, device)?;
    context.end_objects(session);
    let mut life = lock(&context.life);
    life.active = false;
    life.uses = 0;
    life.limits = DEFAULT_LIMITS;
    Ok(())
}

pub unsafe fn cuDevicePrimaryCtxGetState(device: CUdevice, flags: *mut c_uint, active: *mut c_int) -> Try {
    let session = client::look()?;
    let life = lock(&primary(session, device)?.life);
    put!(flags, life.flags);
    put!(active, c_int::from(life.active));
    Ok(())
}

pub unsafe fn cuDevicePrimaryCtxSetFlags_v2(device: CUdevice, flags: c_uint) -> Try {
    let session = client::look()?;
    if flags & !PRIMARY_FLAGS != 0 {
        return Err(error::INVALID_VALUE);
    }
    lock(&primary(session, device)?.life).flags = flags;
    session.set_scheduling(flags);
    Ok(())
}

// ---- explicit contexts

/// What a new context gets because the program's environment says so at this moment.
pub(crate) fn own_share(session: &Session, ordinal: u32) -> Own {
    if session.per_context { Own::Percentage(stated_share(session, ordinal)) } else { Own::None }
}

fn stated_share(session: &Session, ordinal: u32) -> u32 {
    let Some(device) = session.devices.get(ordinal as usize) else { return 0 };
    let share = std::env::var("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE").ok().and_then(|text| Share::parse(&text)).unwrap_or(Share::ALL);
    share.multiprocessors(device.grain()).min(session.share(ordinal))
}

/// What `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT` says: the program's share, or, where contexts have shares of their own, that of the current context
/// (without one, what the next would get). An execution affinity is asked for with `cuCtxGetExecAffinity` and does not show here, as recorded.
pub(crate) fn seen_multiprocessors(session: &Session, ordinal: u32) -> u32 {
    if !session.per_context {
        return session.share(ordinal);
    }
    match top().filter(|context| context.device == ordinal && !context.affine) {
        Some(context) => context.multiprocessors(session),
        None => stated_share(session, ordinal),
    }
}

/// Multiprocessors on which kernels of the current context run.
pub(crate) fn multiprocessors(session: &Session) -> u32 {
    top().map_or_else(|| session.share(0), |context| context.multiprocessors(session))
}

/// The execution affinity of a new context: multiprocessors, 0 = none was asked for.
fn affinity(session: &Session, params: *const CUexecAffinityParam, count: c_int, device: CUdevice) -> Try<u32> {
    let card = session.device(device)?;
    match (count, params.is_null()) {
        (0, _) => return Ok(0),
        (1, false) => {}
        _ => return Err(error::INVALID_VALUE),
    }
    let asked = get!(params);
    if asked.type_ != CUexecAffinityType::CU_EXEC_AFFINITY_TYPE_SM_COUNT {
        return Err(CUresult::CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
    }
    // SAFETY: the union has this one member.
    let wanted = unsafe { asked.param.smCount.val };
    if wanted == 0 {
        return Err(error::INVALID_VALUE);
    }
    let granted = card.grain().up(wanted).filter(|granted| *granted <= session.share(device.cast_unsigned()));
    granted.ok_or(CUresult::CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY)
}

fn create(out: *mut CUcontext, flags: c_uint, device: CUdevice, params: *const CUexecAffinityParam, count: c_int) -> Try {
    let session = client::enter()?;
    session.device(device)?;
    if out.is_null() || flags & !KNOWN_FLAGS != 0 {
        return Err(error::INVALID_VALUE);
    }
    let ordinal = u32::try_from(device).map_err(|_| error::INVALID_DEVICE)?;
    let own = match affinity(session, params, count, device)? {
        0 => own_share(session, ordinal),
        granted => Own::Affinity(granted),
    };
    let context = Context::new(session, ordinal, false, flags, own)?;
    session.set_scheduling(flags);
    put!(out, context.as_c());
    let _ = STACK.try_with(|stack| stack.borrow_mut().push(context));
    Ok(())
}

pub unsafe fn cuCtxCreate_v2(out: *mut CUcontext, flags: c_uint, device: CUdevice) -> Try {
    create(out, flags, device, core::ptr::null(), 0)
}

pub unsafe fn cuCtxCreate_v3(out: *mut CUcontext, params: *mut CUexecAffinityParam, count: c_int, flags: c_uint, device: CUdevice) -> Try {
    create(out, flags, device, params, count)
}

pub unsafe fn cuCtxCreate_v4(out: *mut CUcontext, params: *mut CUctxCreateParams, flags: c_uint, device: CUdevice) -> Try {
    if params.is_null() {
        return create(out, flags, device, core::ptr::null(), 0);
    }
    let params = get!(params);
    if !params.cigParams.is_null() {
        return Err(unsupported("contexts that are shared with a graphics interface (cigParams)"));
    }
    create(out, flags, device, params.execAffinityParams, params.numExecAffinityParams)
}

fn destroy(session: &'static Session, context: &Arc<Context>) {
    context.end_objects(session);
    lock(&context.life).active = false;
    session.contexts.remove(context.handle);
    let on_top = top().is_some_and(|top| Arc::ptr_eq(&top, context));
    if on_top {
        set_top(None);
    }
}

pub unsafe fn cuCtxDestroy_v2(context: CUcontext) -> Try {
    let session = client::look()?;
    let context = session.context(context.addr() as u64)?;
    if context.primary {
        return Err(error::INVALID_CONTEXT);
    }
    destroy(session, &context);
    Ok(())
}

pub unsafe fn cuCtxAttach(out: *mut CUcontext, flags: c_uint) -> Try {
    client::enter()?;
    if flags != 0 {
        return Err(error::INVALID_VALUE);
    }
    let context = current()?;
    put!(out, context.as_c());
    lock(&context.life).uses += 1;
    Ok(())
}

pub unsafe fn cuCtxDetach(context: CUcontext) -> Try {
    let session = client::look()?;
    let context = session.context(context.addr() as u64)?;
    let last = {
        let mut life = lock(&context.life);
        life.uses = life.uses.saturating_sub(1);
        life.uses == 0
    };
    if last && !context.primary {
        destroy(session, &context);
    }
    Ok(())
}

// ---- the stack

pub unsafe fn cuCtxGetCurrent(out: *mut CUcontext) -> Try {
    client::look()?;
    put!(out, top().map_or(core::ptr::null_mut(), |context| context.as_c()));
    Ok(())
}

pub unsafe fn cuCtxSetCurrent(context: CUcontext) -> Try {
    let session = client::look()?;
    let context = if context.is_null() { None } else { Some(session.context(context.addr() as u64)?) };
    set_top(context);
    Ok(())
}

pub unsafe fn cuCtxPushCurrent_v2(context: CUcontext) -> Try {
    let context = client::look()?.context(context.addr() as u64)?;
    let _ = STACK.try_with(|stack| stack.borrow_mut().push(context));
    Ok(())
}

pub unsafe fn cuCtxPopCurrent_v2(out: *mut CUcontext) -> Try {
    client::look()?;
    let popped = STACK.try_with(|stack| stack.borrow_mut().pop()).ok().flatten().ok_or(error::INVALID_CONTEXT)?;
    put_if!(out, popped.as_c());
    Ok(())
}

// ---- questions

pub unsafe fn cuCtxGetDevice(out: *mut CUdevice) -> Try {
    client::look()?;
    put!(out, top().ok_or(error::INVALID_CONTEXT)?.device.cast_signed());
    Ok(())
}

pub unsafe fn cuCtxGetDevice_v2(out: *mut CUdevice, context: CUcontext) -> Try {
    let session = client::look()?;
    let context = if context.is_null() { top().ok_or(error::INVALID_CONTEXT)? } else { named(session, context)? };
    put!(out, context.device.cast_signed());
    Ok(())
}

pub unsafe fn cuCtxGetFlags(out: *mut c_uint) -> Try {
    client::look()?;
    // Host memory can always be mapped.
    put!(out, lock(&current()?.life).flags | MAP_HOST);
    Ok(())
}

pub unsafe fn cuCtxSetFlags(flags: c_uint) -> Try {
    let session = client::look()?;
    if flags & !KNOWN_FLAGS != 0 {
        return Err(error::INVALID_VALUE);
    }
    lock(&current()?.life).flags = flags;
    session.set_scheduling(flags);
    Ok(())
}

pub unsafe fn cuCtxGetId(context: CUcontext, out: *mut c_ulonglong) -> Try {
    let context = named(client::look()?, context)?;
    put!(out, context.id);
    Ok(())
}

pub unsafe fn cuCtxGetApiVersion(context: CUcontext, out: *mut c_uint) -> Try {
    named(client::look()?, context)?;
    put!(out, API_VERSION);
    Ok(())
}

pub unsafe fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> Try {
    client::look()?;
    current()?;
    put_if!(least, PRIORITIES.0);
    put_if!(greatest, PRIORITIES.1);
    Ok(())
}

pub unsafe fn cuCtxGetCacheConfig(out: *mut CUfunc_cache) -> Try {
    client::look()?;
    put!(out, lock(&current()?.life).cache);
    Ok(())
}

pub unsafe fn cuCtxSetCacheConfig(config: CUfunc_cache) -> Try {
    client::look()?;
    if config.0 > CUfunc_cache::CU_FUNC_CACHE_PREFER_EQUAL.0 {
        return Err(error::INVALID_VALUE);
    }
    lock(&current()?.life).cache = config;
    Ok(())
}

pub unsafe fn cuCtxGetSharedMemConfig(out: *mut CUsharedconfig) -> Try {
    client::look()?;
    current()?;
    put!(out, CUsharedconfig::CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE);
    Ok(())
}

pub unsafe fn cuCtxSetSharedMemConfig(_config: CUsharedconfig) -> Try {
    // Banks have had one size since compute capability 5; the call is a hint.
    client::look()?;
    current().map(drop)
}

pub unsafe fn cuCtxGetExecAffinity(out: *mut CUexecAffinityParam, kind: CUexecAffinityType) -> Try {
    let session = client::look()?;
    let context = current()?;
    if kind != CUexecAffinityType::CU_EXEC_AFFINITY_TYPE_SM_COUNT {
        return Err(CUresult::CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
    }
    let mut answer = CUexecAffinityParam { type_: kind, ..CUexecAffinityParam::default() };
    answer.param.smCount = CUexecAffinitySmCount { val: context.multiprocessors(session) };
    put!(out, answer);
    Ok(())
}

pub unsafe fn cuCtxResetPersistingL2Cache() -> Try {
    client::enter()?;
    current().map(drop)
}

fn limit_index(limit: CUlimit) -> Try<usize> {
    let index = limit.0 as usize;
    if index < LIMITS && limit != CUlimit::CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH { Ok(index) } else { Err(error::UNSUPPORTED_LIMIT) }
}

pub unsafe fn cuCtxGetLimit(out: *mut usize, limit: CUlimit) -> Try {
    client::look()?;
    let value = lock(&current()?.life).limits.get(limit_index(limit)?).copied();
    put!(out, value.ok_or(error::UNSUPPORTED_LIMIT)?);
    Ok(())
}

pub unsafe fn cuCtxSetLimit(limit: CUlimit, value: usize) -> Try {
    let session = client::enter()?;
    let context = current()?;
    let index = limit_index(limit)?;
    if index >= CUlimit::CU_LIMIT_CIG_ENABLED.0 as usize {
        return Err(error::UNSUPPORTED_LIMIT);
    }
    if let Some(cell) = lock(&context.life).limits.get_mut(index) {
        *cell = value;
    }
    if index <= CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE.0 as usize {
        session.control(&Op::LimitSet { limit: limit.0, value: value as u64 })?;
    }
    Ok(())
}

// ---- waiting

pub unsafe fn cuCtxSynchronize() -> Try {
    let session = client::enter()?;
    session.drain(current()?.group)
}

pub unsafe fn cuCtxSynchronize_v2(context: CUcontext) -> Try {
    let session = client::enter()?;
    session.drain(named(session, context)?.group)
}

pub unsafe fn cuCtxRecordEvent(context: CUcontext, event: CUevent) -> Try {
    let session = client::enter()?;
    crate::event::record_context(session, &*named(session, context)?, event)
}

pub unsafe fn cuCtxWaitEvent(context: CUcontext, event: CUevent) -> Try {
    let session = client::enter()?;
    crate::event::hold_context(session, &*named(session, context)?, event)
}

/// The stream an argument names, in the current context where it names a default stream.
pub(crate) fn stream(session: &'static Session, stream: CUstream) -> Try<Arc<Stream>> {
    match default_stream::resolve(stream).addr() {
        1 => current()?.legacy(session),
        2 => crate::stream::per_thread(session, &current()?),
        handle => session.streams.get(handle as u64).ok_or(error::INVALID_HANDLE),
    }
}
