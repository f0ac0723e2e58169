//! Device memory, and the mirror of everything the program has allocated: what answers pointer
//! queries and catches a bad address before it is sent.

mod calls;
pub(crate) mod of_graphs;
mod registered;

pub use calls::*;
pub(crate) use registered::{PAGE, copy_pages, hide, pointer, show};

use crate::connection::Connection;
use crate::ffi::{Try, error};
use crate::{loan, pool, process, shortage};
use cumux_wire::layout::in_arena;
use cumux_wire::module::GlobalInfo;
use cumux_wire::record::Op;
use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// What `cudaMalloc` promises and more than any element needs.
const ALIGN: u64 = 256;

/// What lies in a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// `cuMemAlloc` and its kin.
    Device,
    /// From a memory pool; the handle of the pool.
    Pool(u64),
    /// Allocated by a graph ([`of_graphs`]).
    Graph,
    /// An array, or all levels of a mipmapped one.
    Array,
    /// A module's variable; the number of the module.
    Global(u32),
    /// Pinned by the program's wish, in the window; its flags.
    Host(u32),
    /// The program's own pages, replaced by the window's at `window`; its flags. `start` and
    /// `bytes` as registered.
    Registered { window: u64, flags: u32 },
    /// The pages of the window that registered memory has, at the address that kernels know.
    OtherName,
    /// Managed, in the window; its flags.
    Managed(u32),
    /// Mapped with the virtual memory functions.
    Mapped,
    /// The same, memory of the host: another name of the window's memory at `window`.
    MappedHost { window: u64 },
    /// Another program's, open here ([`loan`]).
    Borrowed,
    /// As `Borrowed`, a block of a pool: it is freed like memory of this program.
    BorrowedBlock(u64),
}

/// One allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocation {
    /// Its first address, as the program knows it.
    pub start: u64,
    /// How much it is.
    pub bytes: u64,
    /// What lies there.
    pub sort: Sort,
    /// Id of its context, 0 for none.
    pub context: u64,
    /// Ordinal of its device.
    pub device: u32,
    /// Never used twice.
    pub id: u64,
    /// `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`, kept to be read back.
    pub sync_memops: bool,
}

impl Allocation {
    /// The first address behind it.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.start + self.bytes
    }

    /// Host memory that the executor knows.
    #[must_use]
    pub fn on_host(&self) -> bool {
        matches!(self.sort, Sort::Host(_) | Sort::Registered { .. } | Sort::MappedHost { .. } | Sort::OtherName)
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
            Sort::Registered { window, .. } | Sort::MappedHost { window } => window + (address - self.start),
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
    /// Adds an allocation.
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

    /// The allocation that contains an address, to change.
    pub fn at_mut(&mut self, address: u64) -> Option<&mut Allocation> {
        let (_, allocation) = self.by_start.range_mut(..=address).next_back()?;
        (address < allocation.end()).then_some(allocation)
    }

    /// Takes out the allocation that starts here.
    pub fn remove(&mut self, start: u64) -> Option<Allocation> {
        self.by_start.remove(&start)
    }

    /// Takes out every allocation that `which` names.
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

    /// How many of these bytes, from the first on, one record can name: where memory of the host
    /// ends or begins that is mapped at reserved addresses, what follows is elsewhere in the
    /// window.
    #[must_use]
    pub fn bytes_in_one(&self, start: u64, bytes: u64) -> u64 {
        let end = start.saturating_add(bytes);
        let is_apart = |allocation: &Allocation| matches!(allocation.sort, Sort::MappedHost { .. });
        let mut at = start;
        while at < end {
            let Some(allocation) = self.find(at) else { return bytes };
            at = allocation.end();
            let next_is_apart = self.at(at).is_some_and(is_apart);
            if at < end && (is_apart(allocation) || next_is_apart) {
                return at - start;
            }
        }
        bytes
    }

    /// Whether every byte of a range is allocated, possibly by several allocations side by side (as
    /// virtual memory mappings are).
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

/// Everything the program has allocated.
static ALLOCATIONS: RwLock<Allocations> = RwLock::new(Allocations { by_start: BTreeMap::new() });

/// The allocations, to look at.
pub(crate) fn read_allocations() -> RwLockReadGuard<'static, Allocations> {
    ALLOCATIONS.read().unwrap_or_else(PoisonError::into_inner)
}

/// The allocations, to change.
pub(crate) fn write_allocations() -> RwLockWriteGuard<'static, Allocations> {
    ALLOCATIONS.write().unwrap_or_else(PoisonError::into_inner)
}

/// Remembers a module's variables as valid addresses.
pub(crate) fn adopt_globals<'a>(module: u32, globals: impl Iterator<Item = &'a GlobalInfo>, device: u32) {
    let mut allocations = write_allocations();
    for global in globals.filter(|global| global.bytes != 0) {
        let (id, sort) = (process::new_number(), Sort::Global(module));
        allocations.insert(Allocation { start: global.address, bytes: global.bytes, sort, context: 0, device, id, sync_memops: false });
    }
}

/// Forgets the variables of a module that is unloaded.
pub(crate) fn forget_module(number: u32) {
    write_allocations().remove_all(|allocation| allocation.sort == Sort::Global(number));
}

/// Gives back one allocation that is no longer in the mirror.
pub(crate) fn release(session: &Connection, allocation: &Allocation) -> Try {
    match allocation.sort {
        // When this returns, another process may allocate it, whichever executor that one has.
        Sort::Device | Sort::Array => session.call(&Op::MemFree { address: allocation.start }).map(drop),
        Sort::Graph => of_graphs::end(session, allocation.start),
        Sort::Pool(pool) => {
            pool::forget(session, pool, allocation.start);
            Ok(())
        }
        Sort::Host(_) => {
            session.window.return_piece(allocation.start);
            Ok(())
        }
        Sort::Managed(_) => {
            // Before the place can get a new owner, who is charged for it.
            let refunded = session.control(&Op::Refund { address: allocation.start });
            session.window.return_piece(allocation.start);
            refunded
        }
        Sort::Registered { window, .. } => {
            let mut allocations = write_allocations();
            if allocations.at(window).is_some_and(|known| known.sort == Sort::OtherName) {
                allocations.remove(window);
            }
            drop(allocations);
            registered::unregister(session, allocation.start, allocation.bytes, window)
        }
        Sort::OtherName => Ok(()),
        Sort::Borrowed | Sort::BorrowedBlock(_) => loan::close_all(session, allocation.start),
        Sort::Global(_) | Sort::Mapped | Sort::MappedHost { .. } => Ok(()),
    }
}

/// The program frees a block of another program's pool: it goes when everything that was pushed
/// before is done.
pub(crate) fn close_block(session: &Connection, address: u64) -> Try {
    if loan::close(session, address)? {
        write_allocations().remove(address);
    }
    Ok(())
}

/// A context has ended: its memory goes.
pub(crate) fn end_context(session: &'static Connection, context: u64) {
    let gone = write_allocations()
        .remove_all(|allocation| allocation.context == context && !matches!(allocation.sort, Sort::Global(_) | Sort::Mapped | Sort::MappedHost { .. }));
    for allocation in gone {
        // A session that is lost has nothing left to give back.
        let _ = release(session, &allocation);
    }
    let _ = pool::forget_cached(session);
}

/// Asks for device memory; what pools keep for later is given up first where there is too little.
pub(crate) fn request_memory(session: &Connection, op: &Op) -> Try<u64> {
    let answer = match session.call(op) {
        Err(error::OUT_OF_MEMORY) if pool::forget_cached(session) | of_graphs::reclaim(session) => {
            // A free takes effect when everything before it is done.
            session.drain_all()?;
            session.call(op)
        }
        other => other,
    };
    answer.map(|[first, ..]| first).inspect_err(|code| shortage::tell_shortage(session, op, *code))
}

/// Allocates device memory for the context with this id.
pub(crate) fn allocate(session: &Connection, context: u64, device: u32, bytes: u64) -> Try<u64> {
    allocate_as(session, context, device, bytes, Sort::Device)
}

/// Allocates device memory of some sort for the context with this id.
pub(crate) fn allocate_as(session: &Connection, context: u64, device: u32, bytes: u64, sort: Sort) -> Try<u64> {
    let address = request_memory(session, &Op::MemAlloc { device, bytes, align: ALIGN })?;
    let id = process::new_number();
    let allocation = Allocation { start: address, bytes, sort, context, device, id, sync_memops: false };
    write_allocations().insert(allocation);
    Ok(address)
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
