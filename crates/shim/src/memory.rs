//! Device memory, and the mirror of everything the program has allocated: what answers pointer queries and catches a bad address before it is sent.

use crate::client::{self, Session};
use crate::context::{self, Context};
use crate::ffi::{Try, error, put, put_if};
use crate::module::Module;
use core::ffi::c_uint;
use cumux_abi::{CUdeviceptr, CUresult};
use cumux_wire::layout::in_arena;
use cumux_wire::record::Op;
use std::collections::BTreeMap;
use std::sync::{OnceLock, PoisonError, RwLockReadGuard, RwLockWriteGuard};

/// What `cudaMalloc` promises and more than any element needs.
const ALIGN: u64 = 256;
/// Row alignment of pitched memory.
const PITCH: u64 = 512;

/// What lies in a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// `cuMemAlloc` and its kin.
    Device,
    /// From a memory pool; the handle of the pool.
    Pool(u64),
    /// A module's variable; the number of the module.
    Global(u32),
    /// Pinned by the program's wish, in the window; its flags.
    Host(u32),
    /// The program's own pages, replaced by the window's at `window`; its flags. `start` and `bytes` as registered.
    Registered { window: u64, flags: u32 },
    /// Managed, in the window; its flags.
    Managed(u32),
    /// Mapped with the virtual memory functions.
    Mapped,
}

/// One allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocation {
    pub start: u64,
    pub bytes: u64,
    pub sort: Sort,
    /// Id of its context, 0 for none.
    pub context: u64,
    pub device: u32,
    /// Never used twice.
    pub id: u64,
    pub sync_memops: bool,
}

impl Allocation {
    #[must_use]
    pub fn end(&self) -> u64 {
        self.start + self.bytes
    }

    #[must_use]
    pub fn on_host(&self) -> bool {
        matches!(self.sort, Sort::Host(_) | Sort::Registered { .. })
    }

    /// Managed memory, or a managed variable (those lie in the window).
    #[must_use]
    pub fn is_managed(&self) -> bool {
        matches!(self.sort, Sort::Managed(_)) || (matches!(self.sort, Sort::Global(_)) && !in_arena(self.start))
    }

    /// The address by which the executor knows a byte of this allocation.
    #[must_use]
    pub fn wire_address(&self, address: u64) -> u64 {
        match self.sort {
            Sort::Registered { window, .. } => window + (address - self.start),
            _ => address,
        }
    }
}

/// All allocations by their start; ranges do not overlap.
#[derive(Debug, Default)]
pub struct Allocations {
    by_start: BTreeMap<u64, Allocation>,
}

impl Allocations {
    pub fn insert(&mut self, allocation: Allocation) {
        self.by_start.insert(allocation.start, allocation);
    }

    /// The allocation that contains an address.
    #[must_use]
    pub fn find(&self, address: u64) -> Option<&Allocation> {
        let (_, allocation) = self.by_start.range(..=address).next_back()?;
        (address < allocation.end()).then_some(allocation)
    }

    /// The allocation that starts here.
    #[must_use]
    pub fn at(&self, start: u64) -> Option<&Allocation> {
        self.by_start.get(&start)
    }

    pub fn at_mut(&mut self, address: u64) -> Option<&mut Allocation> {
        let (_, allocation) = self.by_start.range_mut(..=address).next_back()?;
        (address < allocation.end()).then_some(allocation)
    }

    pub fn remove(&mut self, start: u64) -> Option<Allocation> {
        self.by_start.remove(&start)
    }

    pub fn remove_all(&mut self, which: impl Fn(&Allocation) -> bool) -> Vec<Allocation> {
        let gone: Vec<Allocation> = self.by_start.values().filter(|allocation| which(allocation)).copied().collect();
        for allocation in &gone {
            self.by_start.remove(&allocation.start);
        }
        gone
    }

    /// Whether a range touches any allocation.
    #[must_use]
    pub fn touches(&self, start: u64, end: u64) -> bool {
        self.by_start.range(..end).next_back().is_some_and(|(_, allocation)| allocation.end() > start)
    }

    /// Whether every byte of a range is allocated, possibly by several allocations side by side (as virtual memory mappings are).
    #[must_use]
    pub fn covers(&self, start: u64, bytes: u64) -> bool {
        let Some(end) = start.checked_add(bytes) else { return false };
        let mut at = start;
        while at < end {
            match self.find(at) {
                Some(allocation) => at = allocation.end(),
                None => return false,
            }
        }
        true
    }
}

pub(crate) fn read(session: &Session) -> RwLockReadGuard<'_, Allocations> {
    session.allocations.read().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn write(session: &Session) -> RwLockWriteGuard<'_, Allocations> {
    session.allocations.write().unwrap_or_else(PoisonError::into_inner)
}

/// Remembers a module's variables as valid addresses.
pub(crate) fn adopt_globals(session: &Session, module: &Module, device: u32) {
    let mut allocations = write(session);
    for global in module.globals().filter(|global| global.bytes != 0) {
        let sort = Sort::Global(module.number);
        let allocation = Allocation { start: global.address, bytes: global.bytes, sort, context: 0, device, id: session.number(), sync_memops: false };
        allocations.insert(allocation);
    }
}

pub(crate) fn forget_module(session: &Session, number: u32) {
    write(session).remove_all(|allocation| allocation.sort == Sort::Global(number));
}

/// Gives back one allocation that is no longer in the mirror.
pub(crate) fn release(session: &Session, allocation: &Allocation) -> Try {
    match allocation.sort {
        Sort::Device => session.control(&Op::MemFree { address: allocation.start }),
        Sort::Pool(pool) => {
            crate::pool::forget(session, pool, allocation.start);
            Ok(())
        }
        Sort::Host(_) => {
            session.give_window(allocation.start);
            Ok(())
        }
        Sort::Managed(_) => {
            // Before the place can get a new owner, who is charged for it.
            let refunded = session.control(&Op::Refund { address: allocation.start });
            session.give_window(allocation.start);
            refunded
        }
        Sort::Registered { window, .. } => crate::host::unregister(session, allocation.start, allocation.bytes, window),
        Sort::Global(_) | Sort::Mapped => Ok(()),
    }
}

/// A context has ended: its memory goes.
pub(crate) fn end_context(session: &Session, context: u64) {
    let gone = write(session).remove_all(|allocation| allocation.context == context && !matches!(allocation.sort, Sort::Global(_) | Sort::Mapped));
    for allocation in gone {
        // A session that is lost has nothing left to give back.
        let _ = release(session, &allocation);
    }
    let _ = crate::pool::forget_cached(session);
}

/// Asks for device memory; what pools keep for later is given up first where there is too little.
pub(crate) fn ask(session: &Session, op: &Op) -> Try<u64> {
    let answer = match session.call(op) {
        Err(error::OUT_OF_MEMORY) if crate::pool::forget_cached(session) => {
            // A free takes effect when everything before it is done.
            session.drain_all()?;
            session.call(op)
        }
        other => other,
    };
    answer.map(|[first, ..]| first).inspect_err(|code| tell_shortage(session, op, *code))
}

/// Says, the first time that there is too little memory, how much there is and whose limit it is.
/// Many programs ask for as much as they can get.
pub(crate) fn tell_shortage(session: &Session, op: &Op, code: CUresult) {
    static TOLD: OnceLock<()> = OnceLock::new();
    let (device, wanted) = match *op {
        Op::MemAlloc { device, bytes, .. } | Op::VmmCreate { device, bytes, .. } | Op::Charge { device, bytes, .. } => (device, bytes),
        _ => return,
    };
    if code != error::OUT_OF_MEMORY || !crate::log::anybody() || TOLD.set(()).is_err() {
        return;
    }
    let Ok([free, total, ..]) = session.call(&Op::MemInfo { device }) else { return };
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    match session.memory_limit(device) {
        limit if limit != 0 && limit < total => crate::log::tell(format_args!(
            "out of device memory: {} were asked for, and {} are free of the {} that this program may have (CUDA_MPS_PINNED_DEVICE_MEM_LIMIT, here or in the daemon)",
            mib(wanted),
            mib(free),
            mib(limit)
        )),
        _ => crate::log::tell(format_args!("out of device memory: {} were asked for, and {} are free of the device's {}", mib(wanted), mib(free), mib(total))),
    }
}

/// Allocates device memory for a context.
pub(crate) fn allocate(session: &Session, context: &Context, bytes: u64) -> Try<u64> {
    let address = ask(session, &Op::MemAlloc { device: context.device, bytes, align: ALIGN })?;
    let id = session.number();
    let allocation = Allocation { start: address, bytes, sort: Sort::Device, context: context.id, device: context.device, id, sync_memops: false };
    write(session).insert(allocation);
    Ok(address)
}

pub unsafe fn cuMemAlloc_v2(out: *mut CUdeviceptr, bytes: usize) -> Try {
    let session = client::enter()?;
    let context = context::current()?;
    if out.is_null() || bytes == 0 {
        return Err(error::INVALID_VALUE);
    }
    put!(out, allocate(session, &context, bytes as u64)?);
    Ok(())
}

pub unsafe fn cuMemAllocPitch_v2(out: *mut CUdeviceptr, pitch: *mut usize, width: usize, height: usize, element: c_uint) -> Try {
    let session = client::enter()?;
    let context = context::current()?;
    if out.is_null() || pitch.is_null() || width == 0 || height == 0 || !matches!(element, 4 | 8 | 16) {
        return Err(error::INVALID_VALUE);
    }
    let row = (width as u64).checked_next_multiple_of(PITCH).ok_or(error::INVALID_VALUE)?;
    let bytes = row.checked_mul(height as u64).ok_or(error::OUT_OF_MEMORY)?;
    put!(out, allocate(session, &context, bytes)?);
    put!(pitch, row as usize);
    Ok(())
}

pub unsafe fn cuMemFree_v2(address: CUdeviceptr) -> Try {
    let session = client::enter()?;
    if address == 0 {
        return Ok(());
    }
    let known = read(session).at(address).copied().ok_or(error::INVALID_VALUE)?;
    if !matches!(known.sort, Sort::Device | Sort::Pool(_) | Sort::Managed(_)) {
        return Err(error::INVALID_VALUE);
    }
    if let Sort::Pool(pool) = known.sort {
        return crate::pool::free_now(session, pool, &known);
    }
    // As the driver: free waits for the work of the context, which may use the memory. Managed memory is gone at once for the host.
    let group = session.contexts.all(|context| context.id == known.context).first().map(|context| context.group);
    if let Some(group) = group {
        session.drain(group)?;
    }
    let gone = write(session).remove(address).ok_or(error::INVALID_VALUE)?;
    release(session, &gone)
}

pub unsafe fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Try {
    let session = client::enter()?;
    let context = context::current()?;
    let [left, all, ..] = session.call(&Op::MemInfo { device: context.device })?;
    put_if!(free, left as usize);
    put_if!(total, all as usize);
    Ok(())
}

/// The 32-bit form that this name had before CUDA 3.2.
pub unsafe fn cuMemGetInfo(free: *mut c_uint, total: *mut c_uint) -> Try {
    let (mut left, mut all) = (0, 0);
    // SAFETY: our own two words.
    unsafe { cuMemGetInfo_v2(&raw mut left, &raw mut all)? };
    put_if!(free, c_uint::try_from(left).unwrap_or(c_uint::MAX));
    put_if!(total, c_uint::try_from(all).unwrap_or(c_uint::MAX));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(start: u64, bytes: u64, sort: Sort) -> Allocation {
        Allocation { start, bytes, sort, context: 1, device: 0, id: start, sync_memops: false }
    }

    #[test]
    fn addresses_are_found_inside_and_not_beside() {
        let mut all = Allocations::default();
        all.insert(block(0x1000, 0x100, Sort::Device));
        all.insert(block(0x1100, 0x100, Sort::Mapped));
        all.insert(block(0x4000, 0x100, Sort::Device));
        assert_eq!(all.find(0xfff), None);
        assert_eq!(all.find(0x10ff).map(|a| a.start), Some(0x1000));
        assert_eq!(all.find(0x1200), None);
        assert!(all.covers(0x1080, 0x100) && all.covers(0x1000, 0x200), "side by side");
        assert!(!all.covers(0x1080, 0x181) && !all.covers(u64::MAX, 2));
        assert!(all.touches(0xf00, 0x1001) && !all.touches(0xf00, 0x1000) && !all.touches(0x1200, 0x4000));
        assert_eq!(all.remove_all(|a| a.sort == Sort::Device).len(), 2);
        assert_eq!(all.find(0x4000), None);
    }

    #[test]
    fn registered_memory_is_known_to_the_executor_by_its_window_address() {
        let registered = block(0x7f00_0000_0010, 0x100, Sort::Registered { window: 0x3000_0000_5010, flags: 0 });
        assert_eq!(registered.wire_address(0x7f00_0000_0020), 0x3000_0000_5020);
        assert_eq!(block(0x1000, 0x100, Sort::Device).wire_address(0x1080), 0x1080);
    }
}
