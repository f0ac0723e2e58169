//! The calls for stream-ordered memory and its pools.

use super::{Cached, DEVICE_POOLS, OfDevice, POOLS, Pool};
use crate::connection::Connection;
use crate::ffi::{Try, error, forward, get, list, put};
use crate::log::unsupported;
use crate::memory::{self, Allocation, Sort, of_graphs};
use crate::stream::Stream;
use crate::sync::lock;
use crate::{capture, context, device, process};
use core::ffi::{c_int, c_void};
use cumux_abi::{
    CUdevice, CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationType, CUmemLocation, CUmemLocationType, CUmemPool_attribute as A, CUmemPoolProps,
    CUmemoryPool, CUstream,
};
use cumux_wire::record::Op;
use std::sync::Arc;

fn default_pool(session: &Connection, device: CUdevice) -> Try<Arc<Pool>> {
    device::named(session, device)?;
    let ordinal = usize::try_from(device).map_err(|_| error::INVALID_DEVICE)?;
    let mut of_devices = lock(&DEVICE_POOLS);
    if of_devices.len() <= ordinal {
        of_devices.resize_with(ordinal + 1, OfDevice::default);
    }
    let entry = of_devices.get_mut(ordinal).ok_or(error::INVALID_DEVICE)?;
    if let Some(pool) = &entry.default {
        return Ok(Arc::clone(pool));
    }
    let pool = Pool::new(device.cast_unsigned(), 0, true)?;
    entry.default = Some(Arc::clone(&pool));
    Ok(pool)
}

fn current_pool(session: &Connection, device: CUdevice) -> Try<Arc<Pool>> {
    let default = default_pool(session, device)?;
    let of_devices = lock(&DEVICE_POOLS);
    let set = usize::try_from(device).ok().and_then(|ordinal| of_devices.get(ordinal)).and_then(|entry| entry.current.clone());
    Ok(set.unwrap_or(default))
}

fn named(pool: CUmemoryPool) -> Try<Arc<Pool>> {
    POOLS.get(pool.addr() as u64).ok_or(error::INVALID_VALUE)
}

fn allocate(session: &'static Connection, out: *mut CUdeviceptr, bytes: usize, pool: &Pool, stream: &Stream) -> Try {
    if out.is_null() || bytes == 0 {
        return Err(error::INVALID_VALUE);
    }
    if let Some(address) = capture::capture_alloc(session, stream, bytes as u64)? {
        put!(out, address);
        return Ok(());
    }
    let address = match pool.take_block(session, stream.timeline, bytes as u64) {
        Err(error::OUT_OF_MEMORY) if of_graphs::reclaim(session) => pool.take_block(session, stream.timeline, bytes as u64)?,
        other => other?,
    };
    let (id, sort) = (process::new_number(), Sort::Pool(pool.handle));
    let allocation = Allocation { start: address, bytes: bytes as u64, sort, context: stream.context, device: pool.device, id, sync_memops: false };
    memory::write_allocations().insert(allocation);
    put!(out, address);
    Ok(())
}

pub unsafe fn cuMemAllocAsync(out: *mut CUdeviceptr, bytes: usize, stream: CUstream) -> Try {
    let session = process::enter()?;
    let stream = context::stream(session, stream)?;
    let pool = current_pool(session, stream.device.cast_signed())?;
    allocate(session, out, bytes, &pool, &stream)
}

pub unsafe fn cuMemAllocFromPoolAsync(out: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream) -> Try {
    let session = process::enter()?;
    let stream = context::stream(session, stream)?;
    allocate(session, out, bytes, &*named(pool)?, &stream)
}

pub unsafe fn cuMemFreeAsync(address: CUdeviceptr, stream: CUstream) -> Try {
    let session = process::enter()?;
    let stream = context::stream(session, stream)?;
    if address == 0 {
        return Ok(());
    }
    let known = memory::read_allocations().at(address).copied().ok_or(error::INVALID_VALUE)?;
    if !matches!(known.sort, Sort::Pool(_) | Sort::Device | Sort::Graph) {
        return Err(error::INVALID_VALUE);
    }
    if capture::is_capturing(&stream) && known.sort != Sort::Graph {
        // A graph frees what a graph has allocated, and nothing else.
        return Err(error::INVALID_VALUE);
    }
    if capture::capture_free(&stream, address)? {
        return Ok(());
    }
    if known.sort == Sort::Graph {
        return of_graphs::free_in_stream(session, stream.timeline, address);
    }
    memory::write_allocations().remove(address).ok_or(error::INVALID_VALUE)?;
    let Sort::Pool(handle) = known.sort else {
        return session.push(stream.timeline, &Op::FreeInStream { address }).map(drop);
    };
    let seq = session.point(stream.timeline)?;
    match POOLS.get(handle) {
        Some(pool) => pool.put_back(address, Some((stream.timeline, seq))),
        // Its pool was destroyed meanwhile: the block goes when the stream gets there.
        None => return session.push(stream.timeline, &Op::FreeInStream { address }).map(drop),
    }
    Ok(())
}

// ---- pools as objects

pub unsafe fn cuMemPoolCreate(out: *mut CUmemoryPool, properties: *const CUmemPoolProps) -> Try {
    let session = process::enter()?;
    let properties = get!(properties);
    if properties.allocType != CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED {
        return Err(error::INVALID_VALUE);
    }
    if properties.handleTypes.0 != 0 || properties.location.type_ != CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE {
        return Err(unsupported("pools of host memory, and pools that are shared with other processes"));
    }
    device::named(session, properties.location.id)?;
    let pool = Pool::new(properties.location.id.cast_unsigned(), properties.maxSize as u64, false)?;
    put!(out, pool.as_c());
    Ok(())
}

pub unsafe fn cuMemPoolDestroy(pool: CUmemoryPool) -> Try {
    let session = process::enter()?;
    let pool = named(pool)?;
    if pool.default {
        return Err(error::INVALID_VALUE);
    }
    POOLS.remove(pool.handle);
    for entry in lock(&DEVICE_POOLS).iter_mut() {
        entry.current.take_if(|current| Arc::ptr_eq(current, &pool));
    }
    pool.trim(session, 0, |_| true)
}

pub unsafe fn cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize) -> Try {
    let session = process::enter()?;
    let done = |block: &Cached| block.freed.is_none_or(|(timeline, seq)| session.is_done(timeline, seq));
    named(pool)?.trim(session, keep as u64, done)
}

pub unsafe fn cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: A, out: *mut c_void) -> Try {
    process::enter()?;
    let pool = named(pool)?;
    let state = lock(&pool.state);
    let word = match attribute {
        A::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES
        | A::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC
        | A::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
            let index = attribute.0 as usize - 1;
            put!(out.cast::<c_int>(), state.reuse.get(index).copied().unwrap_or(0));
            return Ok(());
        }
        A::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => state.threshold,
        A::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT => state.reserved_now,
        A::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => state.reserved_high,
        A::CU_MEMPOOL_ATTR_USED_MEM_CURRENT => state.used_now,
        A::CU_MEMPOOL_ATTR_USED_MEM_HIGH => state.used_high,
        _ => return Err(error::INVALID_VALUE),
    };
    put!(out.cast::<u64>(), word);
    Ok(())
}

pub unsafe fn cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: A, value: *mut c_void) -> Try {
    process::enter()?;
    let pool = named(pool)?;
    let mut state = lock(&pool.state);
    match attribute {
        A::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES
        | A::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC
        | A::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
            let set = get!(value.cast_const().cast::<c_int>());
            if let Some(cell) = state.reuse.get_mut(attribute.0 as usize - 1) {
                *cell = c_int::from(set != 0);
            }
        }
        A::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => state.threshold = get!(value.cast_const().cast::<u64>()),
        // The high marks can only be reset.
        A::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH if get!(value.cast_const().cast::<u64>()) == 0 => state.reserved_high = state.reserved_now,
        A::CU_MEMPOOL_ATTR_USED_MEM_HIGH if get!(value.cast_const().cast::<u64>()) == 0 => state.used_high = state.used_now,
        _ => return Err(error::INVALID_VALUE),
    }
    Ok(())
}

pub unsafe fn cuMemPoolSetAccess(pool: CUmemoryPool, map: *const CUmemAccessDesc, count: usize) -> Try {
    process::enter()?;
    let pool = named(pool)?;
    for entry in list!(map, count) {
        let own = entry.location.type_ == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE && entry.location.id == pool.device.cast_signed();
        // A pool's own device always has full access; no other place can have any.
        if !own || entry.flags != CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE {
            return Err(error::INVALID_VALUE);
        }
    }
    Ok(())
}

pub unsafe fn cuMemPoolGetAccess(out: *mut CUmemAccess_flags, pool: CUmemoryPool, location: *mut CUmemLocation) -> Try {
    process::enter()?;
    let pool = named(pool)?;
    let place = get!(location.cast_const());
    let own = place.type_ == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE && place.id == pool.device.cast_signed();
    put!(out, if own { CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE } else { CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE });
    Ok(())
}

pub unsafe fn cuDeviceGetDefaultMemPool(out: *mut CUmemoryPool, device: CUdevice) -> Try {
    put!(out, default_pool(process::enter()?, device)?.as_c());
    Ok(())
}

pub unsafe fn cuDeviceGetMemPool(out: *mut CUmemoryPool, device: CUdevice) -> Try {
    put!(out, current_pool(process::enter()?, device)?.as_c());
    Ok(())
}

pub unsafe fn cuDeviceSetMemPool(device: CUdevice, pool: CUmemoryPool) -> Try {
    let session = process::enter()?;
    default_pool(session, device)?;
    let pool = named(pool)?;
    if pool.device.cast_signed() != device {
        return Err(error::INVALID_VALUE);
    }
    if let Some(entry) = usize::try_from(device).ok().and_then(|ordinal| lock(&DEVICE_POOLS).get_mut(ordinal).map(|entry| entry.current.replace(pool))) {
        drop(entry);
    }
    Ok(())
}

/// The device of a location that pools exist for.
fn pool_device(location: *mut CUmemLocation, kind: CUmemAllocationType) -> Try<CUdevice> {
    let place = get!(location.cast_const());
    if kind != CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED || place.type_ != CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE {
        return Err(unsupported("pools of host memory"));
    }
    Ok(place.id)
}

pub unsafe fn cuMemGetDefaultMemPool(out: *mut CUmemoryPool, location: *mut CUmemLocation, kind: CUmemAllocationType) -> Try {
    put!(out, default_pool(process::enter()?, pool_device(location, kind)?)?.as_c());
    Ok(())
}

pub unsafe fn cuMemGetMemPool(out: *mut CUmemoryPool, location: *mut CUmemLocation, kind: CUmemAllocationType) -> Try {
    put!(out, current_pool(process::enter()?, pool_device(location, kind)?)?.as_c());
    Ok(())
}

pub unsafe fn cuMemSetMemPool(location: *mut CUmemLocation, kind: CUmemAllocationType, pool: CUmemoryPool) -> Try {
    forward!(cuDeviceSetMemPool(pool_device(location, kind)?, pool))
}
