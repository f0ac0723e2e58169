//! The calls for stream-ordered memory and its pools.

use super::{Cached, DEVICE_POOLS, OfDevice, Origin, POOLS, Pool};
use crate::connection::Connection;
use crate::ffi::{Try, error, forward, get, list, put};
use crate::loan::{self, Kind};
use crate::log::{because, unsupported};
use crate::memory::{self, Allocation, Sort, of_graphs};
use crate::stream::Stream;
use crate::sync::lock;
use crate::{capture, context, device, peer, process};
use core::ffi::{c_int, c_ulonglong, c_void};
use cumux_abi::{
    CUdevice, CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType, CUmemAllocationType, CUmemLocation, CUmemLocationType,
    CUmemPool_attribute as A, CUmemPoolProps, CUmemPoolPtrExportData, CUmemoryPool, CUstream,
};
use cumux_wire::record::Op;
use std::os::fd::IntoRawFd;
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
    let pool = Pool::new(device.cast_unsigned(), 0, Origin::Default)?;
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
    if out.is_null() {
        return Err(error::INVALID_VALUE);
    }
    if let Some(address) = capture::capture_alloc(session, stream, bytes as u64)? {
        put!(out, address);
        return Ok(());
    }
    if bytes == 0 {
        // LMDeploy asks for that, and runs with driver 580.
        put!(out, 0);
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
    if !matches!(known.sort, Sort::Pool(_) | Sort::Device | Sort::Graph | Sort::BorrowedBlock(_)) {
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
    if matches!(known.sort, Sort::BorrowedBlock(_)) {
        return memory::close_block(session, address);
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
    if properties.location.type_ != CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE {
        return Err(unsupported("pools of host memory"));
    }
    let origin = match properties.handleTypes {
        CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE => Origin::Made,
        DESCRIPTOR => Origin::Exportable(random_name()?),
        other => return Err(unsupported(format!("pools with handles of type {:#x}: only file descriptors (1) can be had", other.0))),
    };
    device::named(session, properties.location.id)?;
    let pool = Pool::new(properties.location.id.cast_unsigned(), properties.maxSize as u64, origin)?;
    put!(out, pool.as_c());
    Ok(())
}

pub unsafe fn cuMemPoolDestroy(pool: CUmemoryPool) -> Try {
    let session = process::enter()?;
    let pool = named(pool)?;
    if pool.origin == Origin::Default {
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
    let session = process::enter()?;
    let pool = named(pool)?;
    for entry in list!(map, count) {
        if entry.location.type_ != CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE {
            return Err(error::INVALID_VALUE);
        }
        device::named(session, entry.location.id)?;
        let own = entry.location.id == pool.device.cast_signed();
        match entry.flags {
            // A pool's own device always has full access.
            CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE if own => {}
            CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE | CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE if !own => {
                peer::set_pool_access(session, pool.handle, pool.device, entry.location.id.cast_unsigned(), entry.flags.0)?;
            }
            _ => return Err(error::INVALID_VALUE),
        }
    }
    Ok(())
}

pub unsafe fn cuMemPoolGetAccess(out: *mut CUmemAccess_flags, pool: CUmemoryPool, location: *mut CUmemLocation) -> Try {
    process::enter()?;
    let pool = named(pool)?;
    let place = get!(location.cast_const());
    let own = place.type_ == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE && place.id == pool.device.cast_signed();
    let other = || CUmemAccess_flags(peer::pool_access(pool.handle, place.id.cast_unsigned()));
    put!(out, if own { CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE } else { other() });
    Ok(())
}

// ---- pools of other programs

/// The kind of handle by which a pool can be exported.
const DESCRIPTOR: CUmemAllocationHandleType = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/// By which a block finds its pool in another program.
fn random_name() -> Try<[u64; 2]> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty()).map_err(|_| error::OPERATING_SYSTEM)?;
    Ok([u64::from_ne_bytes(bytes[..8].try_into().unwrap_or_default()), u64::from_ne_bytes(bytes[8..].try_into().unwrap_or_default())])
}

fn bytes_of(name: [u64; 2]) -> [u8; 16] {
    u128::to_le_bytes(u128::from(name[0]) | u128::from(name[1]) << 64)
}

pub unsafe fn cuMemPoolExportToShareableHandle(out: *mut c_void, pool: CUmemoryPool, kind: CUmemAllocationHandleType, flags: c_ulonglong) -> Try {
    let session = process::enter()?;
    let pool = named(pool)?;
    if out.is_null() || flags != 0 {
        return Err(error::INVALID_VALUE);
    }
    let Origin::Exportable(name) = pool.origin else {
        return Err(because(error::INVALID_VALUE, "the pool was made without handleTypes"));
    };
    if kind != DESCRIPTOR {
        return Err(unsupported(format!("handles of type {:#x} for a pool: only file descriptors (1) can be had", kind.0)));
    }
    let device = device::named(session, pool.device.cast_signed())?;
    put!(out.cast::<c_int>(), loan::export(&loan::encode(Kind::Pool, name, device.facts.uuid))?.into_raw_fd());
    Ok(())
}

pub unsafe fn cuMemPoolImportFromShareableHandle(out: *mut CUmemoryPool, descriptor: *mut c_void, kind: CUmemAllocationHandleType, flags: c_ulonglong) -> Try {
    let session = process::enter()?;
    if out.is_null() || flags != 0 {
        return Err(error::INVALID_VALUE);
    }
    if kind != DESCRIPTOR {
        return Err(unsupported(format!("handles of type {:#x} for a pool: only file descriptors (1) can be had", kind.0)));
    }
    let content = loan::import(descriptor.addr() as i32)?;
    let (name, uuid) = loan::decode(Kind::Pool, &content).ok_or_else(|| because(error::INVALID_VALUE, "the descriptor is not one of a pool"))?;
    let ordinal = device::all(session).iter().position(|device| device.facts.uuid == uuid).and_then(|ordinal| u32::try_from(ordinal).ok());
    let ordinal = ordinal.ok_or_else(|| loan::explain(error::INVALID_DEVICE))?;
    put!(out, Pool::new(ordinal, 0, Origin::Imported(name))?.as_c());
    Ok(())
}

pub unsafe fn cuMemPoolExportPointer(out: *mut CUmemPoolPtrExportData, address: CUdeviceptr) -> Try {
    let session = process::enter()?;
    let known = memory::read_allocations().find(address).copied().ok_or(error::INVALID_VALUE)?;
    let Sort::Pool(pool) = known.sort else { return Err(error::INVALID_VALUE) };
    let Some(Origin::Exportable(name)) = POOLS.get(pool).map(|pool| pool.origin) else { return Err(error::INVALID_VALUE) };
    if out.is_null() {
        return Err(error::INVALID_VALUE);
    }
    let token = loan::lend(session, known.start, Kind::Block)?;
    put!(out.cast::<[u8; loan::HANDLE_BYTES]>(), loan::encode(Kind::Block, token, bytes_of(name)));
    Ok(())
}

pub unsafe fn cuMemPoolImportPointer(out: *mut CUdeviceptr, pool: CUmemoryPool, data: *mut CUmemPoolPtrExportData) -> Try {
    let session = process::enter()?;
    let pool = named(pool)?;
    let content = get!(data.cast_const().cast::<[u8; loan::HANDLE_BYTES]>());
    let Origin::Imported(name) = pool.origin else { return Err(error::INVALID_VALUE) };
    let (token, extra) = loan::decode(Kind::Block, &content).ok_or(error::INVALID_VALUE)?;
    if out.is_null() || extra != bytes_of(name) {
        return Err(error::INVALID_VALUE);
    }
    let place = loan::open(session, token, Kind::Block)?;
    if place.is_first {
        let (start, bytes, sort) = (place.address, place.bytes, Sort::BorrowedBlock(pool.handle));
        let (id, context, device) = (process::new_number(), context::top().map_or(0, |context| context.id), place.device);
        memory::write_allocations().insert(Allocation { start, bytes, sort, context, device, id, sync_memops: false });
    }
    put!(out, place.address);
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
