//! The calls for green contexts and the resources that they are made of.

use super::division::{divide, is_fine};
use super::resource::{Resource, join};
use super::{DESCRIPTIONS, GREENS, end};
use crate::connection::Connection;
use crate::context::{Context, current, named, require_available};
use crate::ffi::{Try, error, get, list, put};
use crate::log::unsupported;
use crate::{capture, device, event, process, stream};
use core::ffi::{c_int, c_uint, c_ulonglong};
use cumux_abi::{
    CUcontext, CUdevResource, CUdevResourceDesc, CUdevResourceType, CUdevice, CUevent, CUgreenCtx, CUgreenCtxCreate_flags, CUresult, CUstream, CUstream_flags,
};
use std::sync::Arc;

const DEFAULT_STREAM: c_uint = CUgreenCtxCreate_flags::CU_GREEN_CTX_DEFAULT_STREAM.0;
const NON_BLOCKING: c_uint = CUstream_flags::CU_STREAM_NON_BLOCKING.0;

/// The green context a handle names.
///
/// # Errors
/// INVALID_CONTEXT; CONTEXT_IS_DESTROYED where its primary context has ended.
fn find_green(green: CUgreenCtx) -> Try<Arc<Context>> {
    let context = GREENS.get(green.addr() as u64).ok_or(error::INVALID_CONTEXT)?;
    if context.is_active() { Ok(context) } else { Err(error::CONTEXT_IS_DESTROYED) }
}

// ---- resources

fn require_sms(kind: CUdevResourceType) -> Try {
    if kind == CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_RESOURCE_TYPE) }
}

pub unsafe fn cuDeviceGetDevResource(device: CUdevice, out: *mut CUdevResource, kind: CUdevResourceType) -> Try {
    let session = process::find_connection()?;
    device::named(session, device)?;
    require_sms(kind)?;
    let resource = Resource::of_device(session, device)?;
    put!(out, resource.to_c(resource.major(session)?));
    Ok(())
}

/// What a green context runs on; `None` for another context.
fn resource_of(context: &Context) -> Option<Resource> {
    let green = context.green.as_ref()?;
    Some(Resource { device: context.device, positions: green.positions, split: 0, fine: green.fine })
}

pub unsafe fn cuCtxGetDevResource(context: CUcontext, out: *mut CUdevResource, kind: CUdevResourceType) -> Try {
    let session = process::find_connection()?;
    let context = named(context)?;
    require_sms(kind)?;
    let resource = match resource_of(&context) {
        Some(resource) => resource,
        None if context.has_own_part() => return Err(unsupported("the multiprocessors of a context with an execution affinity or a percentage of its own")),
        None => Resource::of_device(session, context.device.cast_signed())?,
    };
    put!(out, resource.to_c(resource.major(session)?));
    Ok(())
}

pub unsafe fn cuGreenCtxGetDevResource(green: CUgreenCtx, out: *mut CUdevResource, kind: CUdevResourceType) -> Try {
    let session = process::find_connection()?;
    let context = find_green(green)?;
    require_sms(kind)?;
    let resource = resource_of(&context).ok_or(error::INVALID_CONTEXT)?;
    put!(out, resource.to_c(resource.major(session)?));
    Ok(())
}

pub unsafe fn cuDevSmResourceSplitByCount(
    result: *mut CUdevResource,
    groups: *mut c_uint,
    input: *const CUdevResource,
    remaining: *mut CUdevResource,
    flags: c_uint,
    wanted: c_uint,
) -> Try {
    let session = process::find_connection()?;
    if groups.is_null() {
        return Err(error::INVALID_VALUE);
    }
    let input = Resource::from_c(session, &get!(input))?;
    // What came from a split must become a green context first, as the manual says.
    if input.split != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    }
    let major = input.major(session)?;
    if result.is_null() {
        let division = divide(input.positions, major, flags, wanted, u32::MAX)?;
        put!(groups, division.groups.len() as c_uint);
        return Ok(());
    }
    let most = get!(groups.cast_const());
    if most == 0 {
        return Err(error::INVALID_VALUE);
    }
    let division = divide(input.positions, major, flags, wanted, most)?;
    let part = Resource { split: process::new_number(), fine: is_fine(flags), ..input };
    for (index, positions) in division.groups.iter().enumerate() {
        put!(result.wrapping_add(index), Resource { positions: *positions, ..part }.to_c(major));
    }
    put!(groups, division.groups.len() as c_uint);
    if !remaining.is_null() {
        put!(remaining, Resource { positions: division.rest, ..part }.to_c(major));
    }
    Ok(())
}

pub unsafe fn cuDevResourceGenerateDesc(out: *mut CUdevResourceDesc, resources: *mut CUdevResource, count: c_uint) -> Try {
    let session = process::find_connection()?;
    if out.is_null() {
        return Err(error::INVALID_VALUE);
    }
    let given: Vec<Resource> = list!(resources.cast_const(), count as usize).iter().map(|from| Resource::from_c(session, from)).collect::<Try<_>>()?;
    let joined = join(&given)?;
    let (handle, _) = DESCRIPTIONS.insert(|_| Arc::new(joined)).ok_or(error::OUT_OF_MEMORY)?;
    put!(out, core::ptr::without_provenance_mut(handle as usize));
    Ok(())
}

// ---- green contexts

pub unsafe fn cuGreenCtxCreate(out: *mut CUgreenCtx, description: CUdevResourceDesc, device: CUdevice, flags: c_uint) -> Try {
    let session = process::enter()?;
    require_available(session, device)?;
    if out.is_null() || flags != DEFAULT_STREAM {
        return Err(error::INVALID_VALUE);
    }
    let resource = DESCRIPTIONS.get(description.addr() as u64).filter(|resource| resource.device == device.cast_unsigned()).ok_or(error::INVALID_VALUE)?;
    let context = Context::new_green(session, device, resource.positions, resource.fine)?;
    let made = GREENS.insert(|handle| {
        if let Some(green) = &context.green {
            let _ = green.handle.set(handle);
        }
        Arc::clone(&context)
    });
    if made.is_none() {
        destroy(session, &context)?;
        return Err(error::OUT_OF_MEMORY);
    }
    put!(out, context.green_handle());
    Ok(())
}

/// Ends a green context and releases its primary context.
fn destroy(session: &'static Connection, context: &Arc<Context>) -> Try {
    if !end(session, context) {
        return Err(error::CONTEXT_IS_DESTROYED);
    }
    if let Some(green) = &context.green {
        green.primary.release(session);
    }
    Ok(())
}

pub unsafe fn cuGreenCtxDestroy(green: CUgreenCtx) -> Try {
    let session = process::find_connection()?;
    destroy(session, &find_green(green)?)
}

pub unsafe fn cuCtxFromGreenCtx(out: *mut CUcontext, green: CUgreenCtx) -> Try {
    process::find_connection()?;
    let context = find_green(green)?;
    put!(out, context.as_c());
    Ok(())
}

pub unsafe fn cuGreenCtxGetId(green: CUgreenCtx, out: *mut c_ulonglong) -> Try {
    process::find_connection()?;
    let context = if green.is_null() { current()? } else { find_green(green)? };
    if context.green.is_none() {
        return Err(error::INVALID_CONTEXT);
    }
    put!(out, context.number);
    Ok(())
}

pub unsafe fn cuGreenCtxStreamCreate(out: *mut CUstream, green: CUgreenCtx, flags: c_uint, priority: c_int) -> Try {
    let session = process::enter()?;
    let context = find_green(green)?;
    if flags != NON_BLOCKING {
        return Err(error::INVALID_VALUE);
    }
    stream::create_in(session, &context, out, flags, priority)
}

pub unsafe fn cuGreenCtxRecordEvent(green: CUgreenCtx, event: CUevent) -> Try {
    let session = process::enter()?;
    let context = find_green(green)?;
    capture::refuse_while_any_captures(&context.streams())?;
    event::record_context(session, &context, event)
}

pub unsafe fn cuGreenCtxWaitEvent(green: CUgreenCtx, event: CUevent) -> Try {
    let session = process::enter()?;
    let context = find_green(green)?;
    capture::refuse_while_any_captures(&context.streams())?;
    event::refuse_captured(event)?;
    event::hold_context(session, &context, event)
}
