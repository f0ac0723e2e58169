//! The calls for contexts: `cuCtx…` and `cuDevicePrimaryCtx…`.

use super::{
    Context, DEFAULT_LIMITS, LIMITS, Own, PRIORITIES, current, destroy, find, named, own_share, pop, primary, push, require_available, set_top, top, top_handle,
};
use crate::connection::Connection;
use crate::ffi::{Try, error, get, put, put_if};
use crate::log::unsupported;
use crate::sync::lock;
use crate::{device, event, process};
use core::ffi::{c_int, c_uint, c_ulonglong};
use cumux_abi::{
    CUcontext, CUctx_flags, CUctxCreateParams, CUdevice, CUevent, CUexecAffinityParam, CUexecAffinitySmCount, CUexecAffinityType, CUfunc_cache, CUlimit,
    CUresult, CUsharedconfig,
};
use cumux_wire::record::Op;

/// Flags that a context may have: how threads wait, mapped host memory, local memory, core dumps,
/// and synchronous memory operations.
const KNOWN_FLAGS: c_uint = CUctx_flags::CU_CTX_FLAGS_MASK.0;
const MAP_HOST: c_uint = CUctx_flags::CU_CTX_MAP_HOST.0;
/// Flags a primary context may have.
const PRIMARY_FLAGS: c_uint = KNOWN_FLAGS;
/// What `cuCtxGetApiVersion` has answered since CUDA 3.2.
const API_VERSION: c_uint = 3020;

// ---- primary contexts

pub unsafe fn cuDevicePrimaryCtxRetain(out: *mut CUcontext, device: CUdevice) -> Try {
    let session = process::enter()?;
    require_available(session, device)?;
    let context = primary(session, device)?;
    put!(out, context.as_c());
    context.retain();
    Ok(())
}

pub unsafe fn cuDevicePrimaryCtxRelease_v2(device: CUdevice) -> Try {
    let session = process::find_connection()?;
    if primary(session, device)?.release(session) { Ok(()) } else { Err(error::INVALID_CONTEXT) }
}

pub unsafe fn cuDevicePrimaryCtxReset_v2(device: CUdevice) -> Try {
    let session = process::find_connection()?;
    let context = primary(session, device)?;
    context.end_objects(session);
    let mut life = lock(&context.life);
    life.deactivate();
    life.uses = 0;
    life.limits = DEFAULT_LIMITS;
    Ok(())
}

pub unsafe fn cuDevicePrimaryCtxGetState(device: CUdevice, flags: *mut c_uint, active: *mut c_int) -> Try {
    let session = process::find_connection()?;
    let life = lock(&primary(session, device)?.life);
    put!(flags, life.flags);
    put!(active, c_int::from(life.active));
    Ok(())
}

pub unsafe fn cuDevicePrimaryCtxSetFlags_v2(device: CUdevice, flags: c_uint) -> Try {
    let session = process::find_connection()?;
    if flags & !PRIMARY_FLAGS != 0 {
        return Err(error::INVALID_VALUE);
    }
    lock(&primary(session, device)?.life).flags = flags;
    session.set_scheduling(flags);
    Ok(())
}

// ---- explicit contexts

/// The execution affinity of a new context: multiprocessors, 0 = none was asked for.
fn affinity(session: &Connection, params: *const CUexecAffinityParam, count: c_int, device: CUdevice) -> Try<u32> {
    let card = device::named(session, device)?;
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
    let granted = card.grain().up(wanted).filter(|granted| *granted <= device::share(session, device.cast_unsigned()));
    granted.ok_or(CUresult::CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY)
}

fn create(out: *mut CUcontext, flags: c_uint, device: CUdevice, params: *const CUexecAffinityParam, count: c_int) -> Try {
    let session = process::enter()?;
    require_available(session, device)?;
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
    push(context);
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

pub unsafe fn cuCtxDestroy_v2(context: CUcontext) -> Try {
    let session = process::find_connection()?;
    let context = find(context.addr() as u64)?;
    if context.primary || context.green.is_some() {
        return Err(error::INVALID_CONTEXT);
    }
    destroy(session, &context);
    Ok(())
}

pub unsafe fn cuCtxAttach(out: *mut CUcontext, flags: c_uint) -> Try {
    process::enter()?;
    if flags != 0 {
        return Err(error::INVALID_VALUE);
    }
    let context = current()?;
    put!(out, context.as_c());
    lock(&context.life).uses += 1;
    Ok(())
}

pub unsafe fn cuCtxDetach(context: CUcontext) -> Try {
    let session = process::find_connection()?;
    let context = find(context.addr() as u64)?;
    let last = {
        let mut life = lock(&context.life);
        life.uses = life.uses.saturating_sub(1);
        life.uses == 0
    };
    if last && !context.primary && context.green.is_none() {
        destroy(session, &context);
    }
    Ok(())
}

// ---- the stack

pub unsafe fn cuCtxGetCurrent(out: *mut CUcontext) -> Try {
    process::find_connection()?;
    put!(out, core::ptr::without_provenance_mut(top_handle() as usize));
    Ok(())
}

pub unsafe fn cuCtxSetCurrent(context: CUcontext) -> Try {
    process::find_connection()?;
    let context = if context.is_null() { None } else { Some(find(context.addr() as u64)?) };
    set_top(context);
    Ok(())
}

pub unsafe fn cuCtxPushCurrent_v2(context: CUcontext) -> Try {
    process::find_connection()?;
    let context = find(context.addr() as u64)?;
    push(context);
    Ok(())
}

pub unsafe fn cuCtxPopCurrent_v2(out: *mut CUcontext) -> Try {
    process::find_connection()?;
    let popped = pop().ok_or(error::INVALID_CONTEXT)?;
    put_if!(out, popped.as_c());
    Ok(())
}

// ---- questions

pub unsafe fn cuCtxGetDevice(out: *mut CUdevice) -> Try {
    process::find_connection()?;
    put!(out, top().ok_or(error::INVALID_CONTEXT)?.device.cast_signed());
    Ok(())
}

pub unsafe fn cuCtxGetDevice_v2(out: *mut CUdevice, context: CUcontext) -> Try {
    process::find_connection()?;
    let context = if context.is_null() { top().ok_or(error::INVALID_CONTEXT)? } else { named(context)? };
    put!(out, context.device.cast_signed());
    Ok(())
}

pub unsafe fn cuCtxGetFlags(out: *mut c_uint) -> Try {
    process::find_connection()?;
    // Host memory can always be mapped.
    put!(out, lock(&current()?.root().life).flags | MAP_HOST);
    Ok(())
}

pub unsafe fn cuCtxSetFlags(flags: c_uint) -> Try {
    let session = process::find_connection()?;
    if flags & !KNOWN_FLAGS != 0 {
        return Err(error::INVALID_VALUE);
    }
    lock(&current()?.root().life).flags = flags;
    session.set_scheduling(flags);
    Ok(())
}

pub unsafe fn cuCtxGetId(context: CUcontext, out: *mut c_ulonglong) -> Try {
    process::find_connection()?;
    let context = named(context)?;
    put!(out, context.number);
    Ok(())
}

pub unsafe fn cuCtxGetApiVersion(context: CUcontext, out: *mut c_uint) -> Try {
    process::find_connection()?;
    named(context)?;
    put!(out, API_VERSION);
    Ok(())
}

pub unsafe fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> Try {
    process::find_connection()?;
    current()?;
    put_if!(least, PRIORITIES.0);
    put_if!(greatest, PRIORITIES.1);
    Ok(())
}

pub unsafe fn cuCtxGetCacheConfig(out: *mut CUfunc_cache) -> Try {
    process::find_connection()?;
    put!(out, lock(&current()?.root().life).cache);
    Ok(())
}

pub unsafe fn cuCtxSetCacheConfig(config: CUfunc_cache) -> Try {
    process::find_connection()?;
    if config.0 > CUfunc_cache::CU_FUNC_CACHE_PREFER_EQUAL.0 {
        return Err(error::INVALID_VALUE);
    }
    lock(&current()?.root().life).cache = config;
    Ok(())
}

pub unsafe fn cuCtxGetSharedMemConfig(out: *mut CUsharedconfig) -> Try {
    process::find_connection()?;
    current()?;
    put!(out, CUsharedconfig::CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE);
    Ok(())
}

pub unsafe fn cuCtxSetSharedMemConfig(_config: CUsharedconfig) -> Try {
    // Banks have had one size since compute capability 5; the call is a hint.
    process::find_connection()?;
    current().map(drop)
}

pub unsafe fn cuCtxGetExecAffinity(out: *mut CUexecAffinityParam, kind: CUexecAffinityType) -> Try {
    let session = process::find_connection()?;
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
    process::enter()?;
    current().map(drop)
}

fn limit_index(limit: CUlimit) -> Try<usize> {
    let index = limit.0 as usize;
    if index < LIMITS && limit != CUlimit::CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH { Ok(index) } else { Err(error::UNSUPPORTED_LIMIT) }
}

pub unsafe fn cuCtxGetLimit(out: *mut usize, limit: CUlimit) -> Try {
    process::find_connection()?;
    let value = lock(&current()?.root().life).limits.get(limit_index(limit)?).copied();
    put!(out, value.ok_or(error::UNSUPPORTED_LIMIT)?);
    Ok(())
}

pub unsafe fn cuCtxSetLimit(limit: CUlimit, value: usize) -> Try {
    let session = process::enter()?;
    let context = current()?;
    let index = limit_index(limit)?;
    if index >= CUlimit::CU_LIMIT_CIG_ENABLED.0 as usize {
        return Err(error::UNSUPPORTED_LIMIT);
    }
    if let Some(cell) = lock(&context.root().life).limits.get_mut(index) {
        *cell = value;
    }
    if limit == CUlimit::CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT || index <= CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE.0 as usize {
        session.control(&Op::LimitSet { limit: limit.0, value: value as u64 })?;
    }
    Ok(())
}

// ---- waiting

pub unsafe fn cuCtxSynchronize() -> Try {
    let session = process::enter()?;
    current()?.drain_all_streams(session)
}

pub unsafe fn cuCtxSynchronize_v2(context: CUcontext) -> Try {
    let session = process::enter()?;
    named(context)?.drain_all_streams(session)
}

pub unsafe fn cuCtxRecordEvent(context: CUcontext, event: CUevent) -> Try {
    let session = process::enter()?;
    event::record_context(session, &*named(context)?, event)
}

pub unsafe fn cuCtxWaitEvent(context: CUcontext, event: CUevent) -> Try {
    let session = process::enter()?;
    event::hold_context(session, &*named(context)?, event)
}
