//! Stream-ordered memory pools, kept here: a freed block stays with its pool and may be given out again in stream order without asking anybody.
//!
//! A block that was freed in a stream may be taken again in the same stream at once, in another when that point has been reached, or, if
//! nothing else is to be had, by making the other stream wait for it. What a pool holds beyond its release threshold goes back to the
//! device at the next synchronisation.

use crate::client::pipe::LaneId;
use crate::client::{self, Session, lock};
use crate::context;
use crate::ffi::{Try, error, get, list, put};
use crate::log::unsupported;
use crate::memory::{self, Allocation, Sort};
use crate::stream::{self, Stream};
use core::ffi::{c_int, c_void};
use cumux_abi::{
    CUdevice, CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationType, CUmemLocation, CUmemLocationType, CUmemPool_attribute as A, CUmemPoolProps,
    CUmemoryPool, CUstream,
};
use cumux_wire::record::Op;
use std::sync::{Arc, Mutex};

/// Blocks are multiples of this.
const GRAIN: u64 = 512;
const ALIGN: u64 = 512;

/// A block that nobody has now.
#[derive(Debug, Clone, Copy)]
struct Cached {
    address: u64,
    bytes: u64,
    /// Where it was freed; `None` when that point is certainly behind.
    freed: Option<(LaneId, u64)>,
}

#[derive(Debug, Default)]
struct State {
    cached: Vec<Cached>,
    /// Given out: address and bytes of the block.
    used: Vec<(u64, u64)>,
    /// Follow event dependencies, opportunistic, internal dependencies: 0 or 1 each.
    reuse: [c_int; 3],
    threshold: u64,
    reserved_now: u64,
    reserved_high: u64,
    used_now: u64,
    used_high: u64,
}

/// A pool.
#[derive(Debug)]
pub struct Pool {
    pub handle: u64,
    device: u32,
    /// Most bytes it may hold; 0 = no limit of its own.
    most: u64,
    /// A device's default pool cannot be destroyed.
    default: bool,
    state: Mutex<State>,
}

/// A device's default pool and the one in force.
#[derive(Debug, Default)]
pub struct OfDevice {
    default: Option<Arc<Pool>>,
    current: Option<Arc<Pool>>,
}

impl Pool {
    fn new(session: &Session, device: u32, most: u64, default: bool) -> Try<Arc<Self>> {
        let state = Mutex::new(State { reuse: [1; 3], ..State::default() });
        let make = |handle| Arc::new(Self { handle, device, most, default, state });
        session.pools.insert(make).map(|(_, pool)| pool).ok_or(error::OUT_OF_MEMORY)
    }

    fn as_c(&self) -> CUmemoryPool {
        core::ptr::without_provenance_mut(self.handle as usize)
    }

    /// A block for `stream`.
    fn take(&self, session: &Session, stream: &Stream, bytes: u64) -> Try<u64> {
        let wanted = bytes.checked_next_multiple_of(GRAIN).ok_or(error::OUT_OF_MEMORY)?;
        let mut state = lock(&self.state);
        let ready = |block: &Cached| match block.freed {
            None => true,
            Some((lane, seq)) => lane.index == stream.lane.index || session.is_done(lane, seq),
        };
        if let Some(block) = state.best(wanted, ready) {
            return Ok(state.give(block));
        }
        if self.most != 0 && state.reserved_now + wanted > self.most {
            state.release(session, self.most.saturating_sub(wanted), |_| true)?;
            if state.reserved_now + wanted > self.most {
                return Err(error::OUT_OF_MEMORY);
            }
        }
        let op = Op::MemAlloc { device: self.device, bytes: wanted, align: ALIGN };
        let fresh = |session: &Session| session.call(&op);
        let answer = match fresh(session) {
            Err(error::OUT_OF_MEMORY) => {
                if let Some(block) = state.best(wanted, |_| true).filter(|_| state.reuse[2] != 0) {
                    if let Some((lane, seq)) = block.freed {
                        stream::hold(session, stream.lane, lane, seq)?;
                    }
                    return Ok(state.give(block));
                }
                state.release(session, 0, |_| true)?;
                // A free takes effect when everything before it is done.
                session.drain_all()?;
                match fresh(session) {
                    Err(error::OUT_OF_MEMORY) => {
                        drop(state);
                        let others = forget_cached(session);
                        state = lock(&self.state);
                        if others {
                            session.drain_all()?;
                            fresh(session)
                        } else {
                            Err(error::OUT_OF_MEMORY)
                        }
                    }
                    other => other,
                }
            }
            other => other,
        };
        let [address, ..] = answer.inspect_err(|code| crate::memory::tell_shortage(session, &op, *code))?;
        state.reserved_now += wanted;
        state.reserved_high = state.reserved_high.max(state.reserved_now);
        Ok(state.give(Cached { address, bytes: wanted, freed: None }))
    }

    fn put_back(&self, address: u64, freed: Option<(LaneId, u64)>) {
        let mut state = lock(&self.state);
        if let Some(position) = state.used.iter().position(|(start, _)| *start == address) {
            let (address, bytes) = state.used.swap_remove(position);
            state.used_now -= bytes;
            state.cached.push(Cached { address, bytes, freed });
        }
    }

    /// Gives cached blocks back to the device until at most `keep` bytes are held.
    fn trim(&self, session: &Session, keep: u64, which: impl Fn(&Cached) -> bool) -> Try {
        lock(&self.state).release(session, keep, which)
    }
}

impl State {
    /// The smallest cached block that is not much too large; it is taken out.
    fn best(&mut self, wanted: u64, which: impl Fn(&Cached) -> bool) -> Option<Cached> {
        let fits = |block: &Cached| block.bytes >= wanted && block.bytes <= wanted.saturating_mul(2).max(64 << 10) && which(block);
        let (position, _) = self.cached.iter().enumerate().filter(|(_, block)| fits(block)).min_by_key(|(_, block)| block.bytes)?;
        Some(self.cached.swap_remove(position))
    }

    fn give(&mut self, block: Cached) -> u64 {
        self.used.push((block.address, block.bytes));
        self.used_now += block.bytes;
        self.used_high = self.used_high.max(self.used_now);
        block.address
    }

    fn release(&mut self, session: &Session, keep: u64, which: impl Fn(&Cached) -> bool) -> Try {
        let mut position = self.cached.len();
        while position > 0 && self.reserved_now > keep {
            position -= 1;
            let Some(block) = self.cached.get(position).copied().filter(|block| which(block)) else { continue };
            self.cached.swap_remove(position);
            self.reserved_now -= block.bytes;
            // Takes effect after everything pushed so far, so also after its last use.
            session.control(&Op::MemFree { address: block.address })?;
        }
        Ok(())
    }
}

/// At a synchronisation: what exceeds the release thresholds goes back.
pub(crate) fn settle(session: &Session) {
    for pool in session.pools.all(|_| true) {
        let mut state = lock(&pool.state);
        let keep = state.threshold;
        if state.reserved_now > keep && !state.cached.is_empty() {
            // A session in trouble reports it by itself.
            let _ = state.release(session, keep, |block| block.freed.is_none_or(|(lane, seq)| session.is_done(lane, seq)));
        }
    }
}

/// `cuMemFree` of pool memory.
pub(crate) fn free_now(session: &Session, pool: u64, known: &Allocation) -> Try {
    if let Some(context) = session.contexts.all(|context| context.id == known.context).first() {
        session.drain(context.group)?;
    }
    memory::write(session).remove(known.start).ok_or(error::INVALID_VALUE)?;
    if let Some(pool) = session.pools.get(pool) {
        pool.put_back(known.start, None);
    }
    settle(session);
    Ok(())
}

/// A context ended with pool memory in use: the block goes back to the device.
pub(crate) fn forget(session: &Session, pool: u64, address: u64) {
    if let Some(pool) = session.pools.get(pool) {
        pool.put_back(address, None);
        // A session that is lost has nothing left to give back.
        let _ = pool.trim(session, 0, |block| block.address == address);
    }
}

/// Gives all cached blocks back to the device; whether there were any.
pub(crate) fn forget_cached(session: &Session) -> bool {
    let mut any = false;
    for pool in session.pools.all(|_| true) {
        let mut state = lock(&pool.state);
        any |= !state.cached.is_empty();
        // A session in trouble reports it by itself.
        let _ = state.release(session, 0, |_| true);
    }
    any
}

fn default_pool(session: &Session, device: CUdevice) -> Try<Arc<Pool>> {
    session.device(device)?;
    let ordinal = usize::try_from(device).map_err(|_| error::INVALID_DEVICE)?;
    let mut of_devices = lock(&session.device_pools);
    if of_devices.len() <= ordinal {
        of_devices.resize_with(ordinal + 1, OfDevice::default);
    }
    let entry = of_devices.get_mut(ordinal).ok_or(error::INVALID_DEVICE)?;
    if let Some(pool) = &entry.default {
        return Ok(Arc::clone(pool));
    }
    let pool = Pool::new(session, device.cast_unsigned(), 0, true)?;
    entry.default = Some(Arc::clone(&pool));
    Ok(pool)
}

fn current_pool(session: &Session, device: CUdevice) -> Try<Arc<Pool>> {
    let default = default_pool(session, device)?;
    let of_devices = lock(&session.device_pools);
    let set = usize::try_from(device).ok().and_then(|ordinal| of_devices.get(ordinal)).and_then(|entry| entry.current.clone());
    Ok(set.unwrap_or(default))
}

fn named(session: &Session, pool: CUmemoryPool) -> Try<Arc<Pool>> {
    session.pools.get(pool.addr() as u64).ok_or(error::INVALID_VALUE)
}

fn allocate(session: &'static Session, out: *mut CUdeviceptr, bytes: usize, pool: &Pool, stream: &Stream) -> Try {
    if out.is_null() || bytes == 0 {
        return Err(error::INVALID_VALUE);
    }
    if let Some(address) = crate::capture::alloc(session, stream, bytes as u64)? {
        put!(out, address);
        return Ok(());
    }
    let address = pool.take(session, stream, bytes as u64)?;
    let (id, sort) = (session.number(), Sort::Pool(pool.handle));
    let allocation = Allocation { start: address, bytes: bytes as u64, sort, context: stream.context, device: pool.device, id, sync_memops: false };
    memory::write(session).insert(allocation);
    put!(out, address);
    Ok(())
}

pub unsafe fn cuMemAllocAsync(out: *mut CUdeviceptr, bytes: usize, stream: CUstream) -> Try {
    let session = client::enter()?;
    let stream = context::stream(session, stream)?;
    let pool = current_pool(session, stream.device.cast_signed())?;
    allocate(session, out, bytes, &pool, &stream)
}

pub unsafe fn cuMemAllocFromPoolAsync(out: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream) -> Try {
    let session = client::enter()?;
    let stream = context::stream(session, stream)?;
    allocate(session, out, bytes, &*named(session, pool)?, &stream)
}

pub unsafe fn cuMemFreeAsync(address: CUdeviceptr, stream: CUstream) -> Try {
    let session = client::enter()?;
    let stream = context::stream(session, stream)?;
    if address == 0 {
        return Ok(());
    }
    let known = memory::read(session).at(address).copied().ok_or(error::INVALID_VALUE)?;
    if !matches!(known.sort, Sort::Pool(_) | Sort::Device) {
        return Err(error::INVALID_VALUE);
    }
    if crate::capture::freed(session, &stream, address)? {
        return Ok(());
    }
    memory::write(session).remove(address).ok_or(error::INVALID_VALUE)?;
    let Sort::Pool(handle) = known.sort else {
        return session.push(stream.lane, &Op::FreeInStream { address }).map(drop);
    };
    let seq = session.point(stream.lane)?;
    match session.pools.get(handle) {
        Some(pool) => pool.put_back(address, Some((stream.lane, seq))),
        // Its pool was destroyed meanwhile: the block goes when the stream gets there.
        None => return session.push(stream.lane, &Op::FreeInStream { address }).map(drop),
    }
    Ok(())
}

// ---- pools as objects

pub unsafe fn cuMemPoolCreate(out: *mut CUmemoryPool, properties: *const CUmemPoolProps) -> Try {
    let session = client::enter()?;
    let properties = get!(properties);
    if properties.allocType != CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED {
        return Err(error::INVALID_VALUE);
    }
    if properties.handleTypes.0 != 0 || properties.location.type_ != CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE {
        return Err(unsupported("pools of host memory, and pools that are shared with other processes"));
    }
    session.device(properties.location.id)?;
    let pool = Pool::new(session, properties.location.id.cast_unsigned(), properties.maxSize as u64, false)?;
    put!(out, pool.as_c());
    Ok(())
}

pub unsafe fn cuMemPoolDestroy(pool: CUmemoryPool) -> Try {
    let session = client::enter()?;
    let pool = named(session, pool)?;
    if pool.default {
        return Err(error::INVALID_VALUE);
    }
    session.pools.remove(pool.handle);
    for entry in lock(&session.device_pools).iter_mut() {
        entry.current.take_if(|current| Arc::ptr_eq(current, &pool));
    }
    pool.trim(session, 0, |_| true)
}

pub unsafe fn cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize) -> Try {
    let session = client::enter()?;
    let done = |block: &Cached| block.freed.is_none_or(|(lane, seq)| session.is_done(lane, seq));
    named(session, pool)?.trim(session, keep as u64, done)
}

pub unsafe fn cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: A, out: *mut c_void) -> Try {
    let session = client::enter()?;
    let pool = named(session, pool)?;
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
    let session = client::enter()?;
    let pool = named(session, pool)?;
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
    let session = client::enter()?;
    let pool = named(session, pool)?;
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
    let session = client::enter()?;
    let pool = named(session, pool)?;
    let place = get!(location.cast_const());
    let own = place.type_ == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE && place.id == pool.device.cast_signed();
    put!(out, if own { CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE } else { CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE });
    Ok(())
}

pub unsafe fn cuDeviceGetDefaultMemPool(out: *mut CUmemoryPool, device: CUdevice) -> Try {
    put!(out, default_pool(client::enter()?, device)?.as_c());
    Ok(())
}

pub unsafe fn cuDeviceGetMemPool(out: *mut CUmemoryPool, device: CUdevice) -> Try {
    put!(out, current_pool(client::enter()?, device)?.as_c());
    Ok(())
}

pub unsafe fn cuDeviceSetMemPool(device: CUdevice, pool: CUmemoryPool) -> Try {
    let session = client::enter()?;
    default_pool(session, device)?;
    let pool = named(session, pool)?;
    if pool.device.cast_signed() != device {
        return Err(error::INVALID_VALUE);
    }
    if let Some(entry) = usize::try_from(device).ok().and_then(|ordinal| lock(&session.device_pools).get_mut(ordinal).map(|entry| entry.current.replace(pool)))
    {
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
    put!(out, default_pool(client::enter()?, pool_device(location, kind)?)?.as_c());
    Ok(())
}

pub unsafe fn cuMemGetMemPool(out: *mut CUmemoryPool, location: *mut CUmemLocation, kind: CUmemAllocationType) -> Try {
    put!(out, current_pool(client::enter()?, pool_device(location, kind)?)?.as_c());
    Ok(())
}

pub unsafe fn cuMemSetMemPool(location: *mut CUmemLocation, kind: CUmemAllocationType, pool: CUmemoryPool) -> Try {
    // SAFETY: the same promise of the same caller.
    unsafe { cuDeviceSetMemPool(pool_device(location, kind)?, pool) }
}
