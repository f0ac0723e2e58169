//! Calls of the driver for green contexts, without [`super::Driver`]. The primary context is
//! current in the calling thread.

use super::handle::GreenContext;
use super::table::Table;
use crate::fault::{Call, CudaError};
use core::ffi::c_uint;
use core::ptr::null_mut;
use cumux_abi::{CUdevice, CUstream, types as t};

/// All SMs of the card.
pub(super) fn whole_card(table: &Table, device: CUdevice) -> Call<t::CUdevResource> {
    let mut all = t::CUdevResource::default();
    let kind = t::CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
    // SAFETY: the call writes one resource, a local.
    CudaError::check(unsafe { (table.cuDeviceGetDevResource)(device, &raw mut all, kind) })?;
    Ok(all)
}

/// Creates a green context on these SMs, which come from one split or are all.
pub(super) fn create(table: &Table, device: CUdevice, sms: &mut [t::CUdevResource]) -> Call<GreenContext> {
    let (mut description, mut green) = (null_mut(), null_mut());
    // SAFETY: the call reads as many resources as there are and writes one handle, a local.
    CudaError::check(unsafe { (table.cuDevResourceGenerateDesc)(&raw mut description, sms.as_mut_ptr(), sms.len() as c_uint) })?;
    let flags = t::CUgreenCtxCreate_flags::CU_GREEN_CTX_DEFAULT_STREAM.0;
    // SAFETY: the description just made; the call writes one handle, a local.
    CudaError::check(unsafe { (table.cuGreenCtxCreate)(&raw mut green, description, device, flags) })?;
    Ok(GreenContext::of(green))
}

/// Creates a green context of the whole card for each of so many threads that submit work, or none
/// if the driver refuses one. To be called before anything runs.
///
/// A call that submits holds the lock of the context in which the stream is. Two threads that
/// launch to streams of one context get fewer launches a second than one; in a context each they
/// get twice as many (decision 0131).
pub(super) fn create_for_engines(table: &Table, device: CUdevice, count: usize) -> Call<Vec<GreenContext>> {
    let mut made = Vec::new();
    for _ in 0..count {
        match whole_card(table, device).and_then(|card| create(table, device, &mut [card])) {
            Ok(green) => made.push(green),
            Err(error) => {
                made.into_iter().for_each(|green| destroy(table, green));
                return Err(error);
            }
        }
    }
    Ok(made)
}

/// Destroys a green context. The caller is its owner and has destroyed its streams.
pub(super) fn destroy(table: &Table, green: GreenContext) {
    // SAFETY: the owner's last use of a live context.
    let _ = unsafe { (table.cuGreenCtxDestroy)(green.raw()) };
}

/// Creates a driver stream of this priority (lower is more urgent) on a green context's SMs.
pub(super) fn create_stream(table: &Table, green: GreenContext, priority: i32) -> Call<CUstream> {
    let mut stream = null_mut();
    let flags = t::CUstream_flags::CU_STREAM_NON_BLOCKING.0;
    // SAFETY: a live context; the call writes one handle, a local.
    CudaError::check(unsafe { (table.cuGreenCtxStreamCreate)(&raw mut stream, green.raw(), flags, priority) })?;
    Ok(stream)
}
