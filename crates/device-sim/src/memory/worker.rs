//! One worker's view of a client's memory: permissions looked up, stores logged.
#![allow(unsafe_code)]

use std::ptr::with_exposed_provenance_mut;
use std::sync::Arc;

use super::client::ClientMemory;
use super::permitted::PermittedBytes;
use crate::exec::interface::{Access, GlobalMemory, MemoryFault};
use crate::mapping::line::{LINE_BYTES, OverwrittenLine};
use crate::progress::undo::UndoLog;
use cumux_ranges::AllowedRange;

/// A refused access: the address and why.
pub(crate) type RefusedAddress = (u64, MemoryFault);

/// Where the accesses of kernels end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Bounds {
    /// At the last byte of an allocation.
    #[default]
    Exact,
    /// At the granule, as on a card ([`Permissions::look_up_rounded`]).
    ///
    /// [`Permissions::look_up_rounded`]: super::permissions::Permissions::look_up_rounded
    Granule,
}

/// Ranges that a worker remembers; a power of two. Kernels with more arrays than that are rare.
const CACHED_RANGES: usize = 8;

/// Which addresses a slice touched, to tell a block that waits for others from one that works.
#[derive(Debug, Clone, Copy, Default)]
struct AccessTrace {
    accesses: u32,
    /// Accesses elsewhere than at the last two addresses.
    elsewhere: u32,
    recent: [u64; 2],
}

impl AccessTrace {
    /// Accesses from which on a slice that stays at one or two addresses counts as waiting.
    const ENOUGH: u32 = 4;

    #[inline(always)]
    fn note_access(&mut self, address: u64) {
        self.accesses += 1;
        if self.recent[0] != address && self.recent[1] != address {
            self.elsewhere += 1;
            self.recent = [self.recent[1], address];
        }
    }

    fn looks_like_waiting(&self) -> bool {
        self.accesses >= AccessTrace::ENOUGH && self.elsewhere <= 2
    }
}

/// One worker's view of the memory of the client it works for.
///
/// Invariant: it is used only between [`WorkerMemory::begin_slice`] and the end of that slice, and
/// the scheduler knows of the slice. A range found in the client's table therefore stays mapped
/// until the slice ends: ranges are checked against the mappings when they are allowed, and
/// revoking one returns only after all slices that began before have ended. So does the granule
/// around it, which is mapped whole as long as a range lies in it.
#[derive(Debug, Default)]
pub(crate) struct WorkerMemory {
    client: Option<Arc<ClientMemory>>,
    /// [`ClientMemory::version`] for which the cached ranges are valid.
    version: u64,
    cache: [AllowedRange; CACHED_RANGES],
    /// Which of them was used last.
    last_used: usize,
    /// Which of them makes room for the next new one.
    oldest: usize,
    bounds: Bounds,
    /// Kept for blocks that may wait for others.
    trace: Option<AccessTrace>,
    /// The undo log of the block that runs, if its stores are to be logged.
    pub(crate) log: Option<Box<UndoLog>>,
}

impl WorkerMemory {
    /// A worker's view of no client yet.
    pub(crate) fn new(bounds: Bounds) -> Self {
        WorkerMemory { bounds, ..WorkerMemory::default() }
    }

    /// Starts a slice for a client. The caller has noted the slice under the scheduler's lock.
    /// `traced`: whether [`WorkerMemory::looks_like_waiting`] is of interest afterwards.
    pub(crate) fn begin_slice(&mut self, client: &Arc<ClientMemory>, traced: bool) {
        let version = client.version();
        if self.version != version || self.client.as_ref().is_none_or(|known| !Arc::ptr_eq(known, client)) {
            self.client = Some(client.clone());
            self.version = version;
            self.cache = [AllowedRange::default(); CACHED_RANGES];
        }
        self.trace = traced.then(AccessTrace::default);
    }

    /// Whether a traced slice touched the same one or two addresses all the time.
    pub(crate) fn looks_like_waiting(&self) -> bool {
        self.trace.is_some_and(|trace| trace.looks_like_waiting())
    }

    /// The range that allows an access.
    #[inline(always)]
    fn find(&mut self, address: u64, bytes: u64, access: Access) -> Result<AllowedRange, MemoryFault> {
        let first = self.cache[self.last_used % CACHED_RANGES];
        if first.covers(address, bytes) && (first.writable || access == Access::Load) {
            return Ok(first);
        }
        self.find_further(address, bytes, access)
    }

    /// [`WorkerMemory::find`] where the range used last is of no use.
    #[inline(never)]
    fn find_further(&mut self, address: u64, bytes: u64, access: Access) -> Result<AllowedRange, MemoryFault> {
        for (at, range) in self.cache.iter().enumerate() {
            if range.covers(address, bytes) && (range.writable || access == Access::Load) {
                self.last_used = at;
                return Ok(*range);
            }
        }
        let client = self.client.as_ref().ok_or(MemoryFault::OutOfBounds)?;
        let range = client.table.read().look_up(address, bytes, access)?;
        self.last_used = self.oldest;
        self.cache[self.oldest] = range;
        self.oldest = (self.oldest + 1) % CACHED_RANGES;
        Ok(range)
    }

    /// Whether kernels may go on up to the end of what a card gives out.
    pub(crate) fn rounds_bounds(&self) -> bool {
        self.bounds == Bounds::Granule
    }

    /// Whether a card would let the access pass that was refused here.
    pub(crate) fn is_within_granule(&self, address: u64, bytes: u64) -> bool {
        self.bounds == Bounds::Exact && self.client.as_ref().is_some_and(|client| client.table.read().look_up_rounded(address, bytes, Access::Load).is_some())
    }

    /// Where the bytes of an access lie that is in no allocation, if bounds are rounded.
    #[cold]
    fn access_rounded(&self, address: u64, bytes: u64, access: Access, fault: MemoryFault) -> Result<*mut u8, MemoryFault> {
        let client = self.client.as_ref().filter(|_| self.bounds == Bounds::Granule).ok_or(fault)?;
        let range = client.table.read().look_up_rounded(address, bytes, access).ok_or(fault)?;
        Ok(with_exposed_provenance_mut(address.wrapping_add(range.shift) as usize))
    }

    /// Bytes `[address, address + bytes)` of a range of the client's table that allows the access.
    fn permitted(range: &AllowedRange, address: u64, bytes: u64, access: Access) -> PermittedBytes {
        assert!(range.covers(address, bytes) && (range.writable || access == Access::Load));
        // SAFETY: the range is the client's and covers the bytes, so by the invariant of
        // `WorkerMemory` they are mapped until the slice ends; nothing ever makes a reference to
        // mapped bytes.
        unsafe { PermittedBytes::new(address.wrapping_add(range.shift), bytes, range.writable) }
    }

    /// The bytes from `address` on that lie in one allocation, at most `most` of them.
    ///
    /// # Errors
    /// The address, if nothing may be accessed there.
    pub(super) fn contiguous_bytes(&mut self, address: u64, most: u64, access: Access) -> Result<PermittedBytes, RefusedAddress> {
        let range = self.find(address, 1, access).map_err(|fault| (address, fault))?;
        Ok(Self::permitted(&range, address, most.min(range.end - address), access))
    }

    /// The bytes before `end` that lie in one allocation, at most `most` of them.
    ///
    /// # Errors
    /// The last address before `end`, if nothing may be accessed there.
    fn contiguous_bytes_before(&mut self, end: u64, most: u64, access: Access) -> Result<PermittedBytes, RefusedAddress> {
        let last = end.wrapping_sub(1);
        let range = self.find(last, 1, access).map_err(|fault| (last, fault))?;
        let bytes = most.min(end.wrapping_sub(range.start));
        Ok(Self::permitted(&range, end.wrapping_sub(bytes), bytes, access))
    }

    /// Where a byte lies in this process.
    ///
    /// # Errors
    /// The address, if it may not be accessed.
    pub(super) fn address_here(&mut self, address: u64, access: Access) -> Result<u64, RefusedAddress> {
        let range = self.find(address, 1, access).map_err(|fault| (address, fault))?;
        Ok(address.wrapping_add(range.shift))
    }

    /// Copies bytes from the first to the last. Right for overlapping sides if the target lies
    /// lower.
    ///
    /// # Errors
    /// An address that may not be accessed. Bytes before it may have been copied.
    pub(super) fn copy_forwards(&mut self, target: u64, source: u64, bytes: u64) -> Result<(), RefusedAddress> {
        let mut done = 0;
        while done < bytes {
            let from = self.contiguous_bytes(source.wrapping_add(done), bytes - done, Access::Load)?;
            let to = self.contiguous_bytes(target.wrapping_add(done), bytes - done, Access::Store)?;
            let now = from.len().min(to.len());
            to.first(now).copy_from(from.first(now));
            done += now;
        }
        Ok(())
    }

    /// Copies bytes from the last to the first. Right for overlapping sides if the target lies
    /// higher.
    ///
    /// # Errors
    /// An address that may not be accessed. Bytes behind it may have been copied.
    pub(super) fn copy_backwards(&mut self, target: u64, source: u64, bytes: u64) -> Result<(), RefusedAddress> {
        let mut left = bytes;
        while left > 0 {
            let from = self.contiguous_bytes_before(source.wrapping_add(left), left, Access::Load)?;
            let to = self.contiguous_bytes_before(target.wrapping_add(left), left, Access::Store)?;
            let now = from.len().min(to.len());
            to.last(now).copy_from(from.last(now));
            left -= now;
        }
        Ok(())
    }

    /// Repeats the low `element` bytes (1, 2 or 4) of `value` over `bytes` bytes, a multiple of
    /// `element`.
    ///
    /// # Errors
    /// An address that may not be written. Bytes before it may have been.
    pub(super) fn fill(&mut self, target: u64, value: u32, element: u32, bytes: u64) -> Result<(), RefusedAddress> {
        let pattern = match element {
            1 => u32::from_ne_bytes([value as u8; 4]),
            2 => (value & 0xffff) | (value << 16),
            _ => value,
        };
        let (mut target, mut left) = (target, bytes);
        while left > 0 {
            let to = self.contiguous_bytes(target, left, Access::Store)?;
            let now = to.len() - to.len() % u64::from(element);
            if now == 0 {
                // An element cannot lie in two allocations.
                return Err((target, MemoryFault::OutOfBounds));
            }
            to.first(now).fill(pattern.to_ne_bytes());
            left -= now;
            target = target.wrapping_add(now);
        }
        Ok(())
    }

    /// Stores the low `bytes` (4 or 8) bytes of a value at once, at a multiple of `bytes`.
    ///
    /// # Errors
    /// The address, if it may not be written.
    pub(super) fn store_value(&mut self, address: u64, value: u64, bytes: u32) -> Result<(), RefusedAddress> {
        let range = self.find(address, u64::from(bytes), Access::Atomic).map_err(|fault| (address, fault))?;
        Self::permitted(&range, address, bytes.into(), Access::Atomic).store_value(value);
        Ok(())
    }

    /// Writes bytes that may span allocations.
    ///
    /// # Errors
    /// An address that may not be written. Bytes before it may have been.
    pub(crate) fn write(&mut self, target: u64, bytes: &[u8]) -> Result<(), RefusedAddress> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let at = target.wrapping_add((bytes.len() - rest.len()) as u64);
            let to = self.contiguous_bytes(at, rest.len() as u64, Access::Store)?;
            let (now, later) = rest.split_at(to.len() as usize);
            to.write(now);
            rest = later;
        }
        Ok(())
    }

    /// Reads bytes that may span allocations.
    ///
    /// # Errors
    /// An address that may not be read.
    pub(super) fn read(&mut self, source: u64, into: &mut [u8]) -> Result<(), RefusedAddress> {
        let mut done = 0usize;
        while done < into.len() {
            let from = self.contiguous_bytes(source.wrapping_add(done as u64), (into.len() - done) as u64, Access::Load)?;
            let end = done + from.len() as usize;
            from.read(&mut into[done..end]);
            done = end;
        }
        Ok(())
    }
}

// SAFETY: addresses lie in a range of the client's table or in its granule, mapped until the slice
// ends (`WorkerMemory`'s invariant). Shifts of ranges are multiples of 16, which is checked, so
// alignment carries over. No reference to mapped bytes is ever made.
unsafe impl GlobalMemory for WorkerMemory {
    #[inline(always)]
    fn access(&mut self, address: u64, bytes: u64, access: Access) -> Result<*mut u8, MemoryFault> {
        if let Some(trace) = &mut self.trace {
            trace.note_access(address);
        }
        match self.find(address, bytes, access) {
            Ok(range) => Ok(with_exposed_provenance_mut(address.wrapping_add(range.shift) as usize)),
            Err(fault) => self.access_rounded(address, bytes, access, fault),
        }
    }

    #[inline(always)]
    fn before_store(&mut self, address: u64, at: *mut u8, bytes: u32) {
        if let Some(log) = &mut self.log {
            log_bytes(log, address, at, bytes.into());
        }
    }

    #[inline(always)]
    fn before_stores(&mut self, addresses: &[u64; 32], mask: u32, to: *mut u8, bytes: u32) {
        if let Some(log) = &mut self.log {
            log_lanes(log, addresses, mask, to, bytes.into());
        }
    }
}

/// Saves `bytes` bytes in a row at the client's `address`, which lie at `at` here, line by line.
fn log_bytes(log: &mut UndoLog, address: u64, at: *mut u8, bytes: u64) {
    let mut done = 0;
    while done < bytes {
        let first = address.wrapping_add(done) % LINE_BYTES;
        let now = (LINE_BYTES - first).min(bytes - done);
        let line = at.wrapping_add(done as usize).wrapping_sub(first as usize);
        let bits = (u64::MAX >> (LINE_BYTES - now)) << first;
        // SAFETY: the bits are those of bytes that the store will overwrite: `before_store` is
        // called with bytes that `access` found for a store in this slice.
        let overwritten = unsafe { OverwrittenLine::new(line, bits) };
        log.save_before_store(address.wrapping_add(done) - first, &overwritten);
        done += now;
    }
    log.order_before_store();
}

/// Saves what the lanes of a warp overwrite. The bytes of address `a` lie at `to + a` here.
/// Neighbouring lanes in one line are saved together.
fn log_lanes(log: &mut UndoLog, addresses: &[u64; 32], mut mask: u32, to: *mut u8, bytes: u64) {
    let misaligned = |(address, lane): (&u64, u32)| mask >> lane & 1 != 0 && address & (bytes - 1) != 0;
    if !bytes.is_power_of_two() || bytes > LINE_BYTES || addresses.iter().zip(0..).any(misaligned) {
        while mask != 0 {
            let address = addresses[mask.trailing_zeros() as usize];
            log_bytes(log, address, to.wrapping_add(address as usize), bytes);
            mask &= mask - 1;
        }
        return;
    }
    let save = |log: &mut UndoLog, line: u64, bits: u64| {
        if bits != 0 {
            // SAFETY: the bits are those of bytes that lanes of the mask will overwrite:
            // `before_stores` is called with bytes that `access` found for a store in this slice.
            let overwritten = unsafe { OverwrittenLine::new(to.wrapping_add(line as usize), bits) };
            log.save_before_store(line, &overwritten);
        }
    };
    let (mut line, mut bits) = (0, 0);
    while mask != 0 {
        let address = addresses[mask.trailing_zeros() as usize];
        mask &= mask - 1;
        let first = address % LINE_BYTES;
        if address - first != line {
            save(log, line, bits);
            (line, bits) = (address - first, 0);
        }
        bits |= (u64::MAX >> (LINE_BYTES - bytes)) << first;
    }
    save(log, line, bits);
    log.order_before_store();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_touches_the_same_places_all_the_time_waits() {
        let memory = Arc::new(ClientMemory::default());
        memory.table.write().allow(AllowedRange { start: 0x1000, end: 0x2000, writable: true, shift: 0 }).unwrap();
        let mut worker = WorkerMemory::new(Bounds::Exact);
        let mut slice = |traced, addresses: &[u64]| {
            worker.begin_slice(&memory, traced);
            for address in addresses {
                worker.access(*address, 4, Access::Load).unwrap();
            }
            worker.looks_like_waiting()
        };
        // A flag; a flag and a counter; too little to tell.
        assert!(slice(true, &[0x1000; 50]) && slice(true, &[0x1000, 0x1040, 0x1000, 0x1040, 0x1000]) && !slice(true, &[0x1000; 2]));
        // Work goes on to other places, and what came before it does not count.
        assert!(!slice(true, &[0x1000, 0x1004, 0x1008, 0x100c, 0x1010]));
        assert!(slice(true, &[0x1010; 9]) && !slice(false, &[0x1010; 9]), "of independent blocks nobody asks");
    }
}
