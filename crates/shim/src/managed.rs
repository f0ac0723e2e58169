//! Managed memory: pieces of the window, which host and device reach at the same address at any
//! time. Nothing migrates, so advice and prefetching have nothing to do beyond being checked.

use crate::connection::Connection;
use crate::ffi::{Try, error, forward, list, put};
use crate::memory::{self, Sort};
use crate::{capture, context, device, host, process};
use core::ffi::{c_uint, c_ulonglong, c_void};
use cumux_abi::{
    CU_DEVICE_CPU, CUdevice, CUdeviceptr, CUmem_advise, CUmem_range_attribute as R, CUmemAttach_flags, CUmemLocation, CUmemLocationType, CUstream,
};
use cumux_wire::record::Op;

/// What a managed allocation may be attached to when it is made.
const ATTACH: [c_uint; 2] = [CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL.0, CUmemAttach_flags::CU_MEM_ATTACH_HOST.0];
const SINGLE: c_uint = CUmemAttach_flags::CU_MEM_ATTACH_SINGLE.0;
/// What is charged is a multiple of this, as for device memory.
const GRAIN: u64 = 512;

pub unsafe fn cuMemAllocManaged(out: *mut CUdeviceptr, bytes: usize, flags: c_uint) -> Try {
    let session = process::enter()?;
    let context = context::current()?;
    if out.is_null() || bytes == 0 || !ATTACH.contains(&flags) {
        return Err(error::INVALID_VALUE);
    }
    capture::refuse_unsafe_call()?;
    let (address, device) = (host::allocate(session, bytes as u64, Sort::Managed(flags), context.id, context.device)?, context.device);
    // It lies in host memory and counts as the device's: a limit means all memory that kernels can
    // have.
    let charged = memory::request_memory(session, &Op::Charge { device, address, bytes: (bytes as u64).next_multiple_of(GRAIN) });
    if let Err(code) = charged {
        memory::write_allocations().remove(address);
        session.window.return_piece(address);
        return Err(code);
    }
    put!(out, address);
    Ok(())
}

/// Whether all of a range is managed memory.
fn check(address: u64, bytes: usize) -> Try {
    let allocations = memory::read_allocations();
    let known = allocations.find(address).filter(|known| known.is_managed()).ok_or(error::INVALID_VALUE)?;
    let end = address.checked_add(bytes as u64).ok_or(error::INVALID_VALUE)?;
    if bytes == 0 || end > known.end() { Err(error::INVALID_VALUE) } else { Ok(()) }
}

fn device(session: &Connection, device: CUdevice) -> Try {
    if device == CU_DEVICE_CPU { Ok(()) } else { device::named(session, device).map(drop) }
}

fn location(session: &Connection, location: CUmemLocation) -> Try {
    match location.type_ {
        CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => device(session, location.id),
        CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST
        | CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA
        | CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => Ok(()),
        _ => Err(error::INVALID_VALUE),
    }
}

pub unsafe fn cuMemPrefetchAsync(address: CUdeviceptr, bytes: usize, target: CUdevice, stream: CUstream) -> Try {
    let session = process::enter()?;
    context::stream(session, stream)?;
    device(session, target)?;
    check(address, bytes)
}

pub unsafe fn cuMemPrefetchAsync_v2(address: CUdeviceptr, bytes: usize, target: CUmemLocation, flags: c_uint, stream: CUstream) -> Try {
    let session = process::enter()?;
    context::stream(session, stream)?;
    if flags != 0 {
        return Err(error::INVALID_VALUE);
    }
    location(session, target)?;
    check(address, bytes)
}

#[expect(clippy::too_many_arguments, reason = "the driver's signature")]
pub unsafe fn cuMemPrefetchBatchAsync(
    addresses: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    locations: *mut CUmemLocation,
    _indices: *mut usize,
    kinds: usize,
    flags: c_ulonglong,
    stream: CUstream,
) -> Try {
    let session = process::enter()?;
    context::stream(session, stream)?;
    if flags != 0 {
        return Err(error::INVALID_VALUE);
    }
    list!(locations.cast_const(), kinds).iter().try_for_each(|place| location(session, *place))?;
    let ranges = list!(addresses.cast_const(), count).iter().zip(list!(sizes.cast_const(), count));
    ranges.into_iter().try_for_each(|(address, bytes)| check(*address, *bytes))
}

/// What is discarded may be anything until it is written again: also what it was.
pub unsafe fn cuMemDiscardBatchAsync(addresses: *mut CUdeviceptr, sizes: *mut usize, count: usize, flags: c_ulonglong, stream: CUstream) -> Try {
    let session = process::enter()?;
    context::stream(session, stream)?;
    if flags != 0 {
        return Err(error::INVALID_VALUE);
    }
    let ranges = list!(addresses.cast_const(), count).iter().zip(list!(sizes.cast_const(), count));
    ranges.into_iter().try_for_each(|(address, bytes)| check(*address, *bytes))
}

#[expect(clippy::too_many_arguments, reason = "the driver's signature")]
pub unsafe fn cuMemDiscardAndPrefetchBatchAsync(
    addresses: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    locations: *mut CUmemLocation,
    indices: *mut usize,
    kinds: usize,
    flags: c_ulonglong,
    stream: CUstream,
) -> Try {
    forward!(cuMemPrefetchBatchAsync(addresses, sizes, count, locations, indices, kinds, flags, stream))
}

pub unsafe fn cuMemAdvise(address: CUdeviceptr, bytes: usize, advice: CUmem_advise, target: CUdevice) -> Try {
    let session = process::enter()?;
    if !(1..=6).contains(&advice.0) {
        return Err(error::INVALID_VALUE);
    }
    device(session, target)?;
    check(address, bytes)
}

pub unsafe fn cuMemAdvise_v2(address: CUdeviceptr, bytes: usize, advice: CUmem_advise, target: CUmemLocation) -> Try {
    let session = process::enter()?;
    if !(1..=6).contains(&advice.0) {
        return Err(error::INVALID_VALUE);
    }
    location(session, target)?;
    check(address, bytes)
}

pub unsafe fn cuStreamAttachMemAsync(stream: CUstream, address: CUdeviceptr, bytes: usize, flags: c_uint) -> Try {
    let session = process::enter()?;
    context::stream(session, stream)?;
    if !ATTACH.contains(&flags) && flags != SINGLE {
        return Err(error::INVALID_VALUE);
    }
    check(address, bytes.max(1))
}

/// Writes one attribute of a managed range.
///
/// # Safety
/// `out` has room for `bytes` bytes.
unsafe fn answer(out: *mut c_void, bytes: usize, attribute: R) -> Try {
    let words = if bytes.is_multiple_of(4) && bytes > 0 { bytes / 4 } else { return Err(error::INVALID_VALUE) };
    // No advice is kept, so none is in force; no place is preferred or was prefetched to.
    const NOWHERE: i32 = cumux_abi::CU_DEVICE_INVALID;
    let value = match attribute {
        R::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY => 0,
        R::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION | R::CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY | R::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION => NOWHERE,
        R::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE | R::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE => 0,
        R::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID | R::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID => NOWHERE,
        _ => return Err(error::INVALID_VALUE),
    };
    for index in 0..words {
        put!(out.cast::<i32>().wrapping_add(index), value);
    }
    Ok(())
}

pub unsafe fn cuMemRangeGetAttribute(out: *mut c_void, bytes: usize, attribute: R, address: CUdeviceptr, count: usize) -> Try {
    process::enter()?;
    check(address, count)?;
    // SAFETY: the program vouches for the room behind `out`.
    unsafe { answer(out, bytes, attribute) }
}

pub unsafe fn cuMemRangeGetAttributes(out: *mut *mut c_void, sizes: *mut usize, attributes: *mut R, number: usize, address: CUdeviceptr, count: usize) -> Try {
    process::enter()?;
    check(address, count)?;
    let wanted = list!(out.cast_const(), number).iter().zip(list!(sizes.cast_const(), number)).zip(list!(attributes.cast_const(), number));
    for ((out, bytes), attribute) in wanted {
        // SAFETY: the program vouches for the room behind each.
        unsafe { answer(*out, *bytes, *attribute)? };
    }
    Ok(())
}
