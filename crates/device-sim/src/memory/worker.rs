//! Mapping files and touching their bytes: the only unsafe code of the card (the execution core has its own).
//!
//! Mapped memory is shared with other processes and other workers, so nothing here ever makes a reference to its bytes: they are copied
//! by raw pointers, and single words are atomics. What concurrent writers make of the same bytes is the programs' own affair, as on a card.
//!
//! Invariants that the `SAFETY` comments name:
//! - **M (mapped).** A [`Mapping`] is alive as long as the value; offsets are checked against its length.
//! - **P (permitted).** A [`AllowedRange`] found in a [`ClientMemory`] lies in a live mapping until the current slice of the worker ends:
//!   ranges are checked against the mappings when allowed, and revoking one returns only after all slices that began before have ended.
#![allow(unsafe_code)]

use std::ptr::with_exposed_provenance_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::client::ClientMemory;
use super::permissions::AllowedRange;
use crate::exec::interface::{Access, GlobalMemory, MemoryFault};
use crate::mapping::line::Overwritten;
use crate::progress::layout::LINE_BYTES;
use crate::progress::undo::UndoLog;

/// A refused access: the address and why.
pub(crate) type RefusedAddress = (u64, MemoryFault);

const CACHED: usize = 4;

/// What a slice did, to tell a block that waits for others from one that works.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AccessTrace {
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

    /// Whether the slice looked at the same one or two addresses all the time.
    pub(crate) fn looks_like_waiting(&self) -> bool {
        self.accesses >= AccessTrace::ENOUGH && self.elsewhere <= 2
    }
}

/// One worker's view of the memory of the client it works for. Used only between [`WorkerMemory::begin_slice`] and the end of that slice, which the
/// scheduler knows about (P).
#[derive(Debug, Default)]
pub(crate) struct WorkerMemory {
    client: Option<Arc<ClientMemory>>,
    version: u64,
    cache: [AllowedRange; CACHED],
    pub(crate) trace: AccessTrace,
    tracing: bool,
    /// The undo log of the block that runs, if its stores are to be logged.
    pub(crate) log: Option<Box<UndoLog>>,
}

impl WorkerMemory {
    /// Starts a slice for a client. The caller has told the scheduler before, under its lock.
    pub(crate) fn begin_slice(&mut self, client: &Arc<ClientMemory>, tracing: bool) {
        let version = client.version.load(Ordering::Acquire);
        if self.version != version || self.client.as_ref().is_none_or(|known| !Arc::ptr_eq(known, client)) {
            self.client = Some(client.clone());
            self.version = version;
            self.cache = [AllowedRange::default(); CACHED];
        }
        self.trace = AccessTrace::default();
        self.tracing = tracing;
    }

    #[inline(always)]
    fn find(&mut self, address: u64, bytes: u64, access: Access) -> Result<AllowedRange, MemoryFault> {
        let first = self.cache[0];
        if first.covers(address, bytes) && (first.writable || access == Access::Load) {
            return Ok(first);
        }
        self.find_uncached(address, bytes, access)
    }

    #[inline(never)]
    fn find_uncached(&mut self, address: u64, bytes: u64, access: Access) -> Result<AllowedRange, MemoryFault> {
        let cached = self.cache.iter().position(|r| r.covers(address, bytes) && (r.writable || access == Access::Load));
        let range = if let Some(at) = cached {
            self.cache[..=at].rotate_right(1);
            self.cache[0]
        } else {
            let client = self.client.as_ref().ok_or(MemoryFault::OutOfBounds)?;
            let range = client.table.read().look_up(address, bytes, access)?;
            self.cache.rotate_right(1);
            self.cache[0] = range;
            range
        };
        Ok(range)
    }

    /// Bytes from `address` on that lie in one allocation (at most `bytes`) and where they are in this process.
    ///
    /// # Errors
    /// The address, if nothing may be accessed there.
    pub(crate) fn contiguous_bytes(&mut self, address: u64, bytes: u64, access: Access) -> Result<(u64, u64), RefusedAddress> {
        let range = self.find(address, 1, access).map_err(|fault| (address, fault))?;
        Ok((address.wrapping_add(range.shift), bytes.min(range.end - address)))
    }

    /// As [`WorkerMemory::contiguous_bytes`], for the bytes that end before `end`.
    fn contiguous_bytes_before(&mut self, end: u64, bytes: u64, access: Access) -> Result<(u64, u64), RefusedAddress> {
        let last = end.wrapping_sub(1);
        let range = self.find(last, 1, access).map_err(|fault| (last, fault))?;
        let now = bytes.min(end.wrapping_sub(range.start));
        Ok((end.wrapping_sub(now).wrapping_add(range.shift), now))
    }

    /// Copies bytes, from the end if `backwards`; what overlaps in that direction is copied right.
    ///
    /// # Errors
    /// An address that may not be accessed. Pieces before it may have been copied.
    pub(crate) fn copy(&mut self, target: u64, source: u64, bytes: u64, backwards: bool) -> Result<(), RefusedAddress> {
        let mut done = 0;
        while done < bytes {
            let left = bytes - done;
            if backwards {
                let (from, readable) = self.contiguous_bytes_before(source.wrapping_add(left), left, Access::Load)?;
                let (to, writable) = self.contiguous_bytes_before(target.wrapping_add(left), left, Access::Store)?;
                let now = readable.min(writable);
                self.copy_contiguous(to + (writable - now), from + (readable - now), now);
                done += now;
            } else {
                let (from, readable) = self.contiguous_bytes(source.wrapping_add(done), left, Access::Load)?;
                let (to, writable) = self.contiguous_bytes(target.wrapping_add(done), left, Access::Store)?;
                let now = readable.min(writable);
                self.copy_contiguous(to, from, now);
                done += now;
            }
        }
        Ok(())
    }

    fn copy_contiguous(&mut self, to: u64, from: u64, bytes: u64) {
        let (to, from): (*mut u8, *mut u8) = (with_exposed_provenance_mut(to as usize), with_exposed_provenance_mut(from as usize));
        // SAFETY: P for both sides; `copy` allows overlap.
        unsafe { to.copy_from(from, bytes as usize) };
    }

    /// Repeats the low `element` bytes (1, 2 or 4) of `value` over `bytes` bytes, a multiple of `element`.
    ///
    /// # Errors
    /// As [`WorkerMemory::copy`].
    pub(crate) fn fill(&mut self, target: u64, value: u32, element: u32, bytes: u64) -> Result<(), RefusedAddress> {
        let pattern = match element {
            1 => u32::from_ne_bytes([value as u8; 4]),
            2 => (value & 0xffff) | (value << 16),
            _ => value,
        };
        let [first, rest @ ..] = pattern.to_ne_bytes();
        let uniform = rest.iter().all(|byte| *byte == first);
        let (mut target, mut left) = (target, bytes);
        while left > 0 {
            let (to, now) = self.contiguous_bytes(target, left, Access::Store)?;
            let to: *mut u8 = with_exposed_provenance_mut(to as usize);
            let step = u64::from(element);
            let now = now - now % step;
            if now == 0 {
                // An element cannot lie in two allocations.
                return Err((target, MemoryFault::OutOfBounds));
            }
            if uniform {
                // SAFETY: P.
                unsafe { to.write_bytes(first, now as usize) };
            } else {
                let mut at = 0usize;
                while at + 4 <= now as usize {
                    // SAFETY: P; `at + 4 <= now`.
                    unsafe { to.add(at).cast::<u32>().write_unaligned(pattern) };
                    at += 4;
                }
                for (offset, byte) in (at..now as usize).zip(pattern.to_ne_bytes()) {
                    // SAFETY: P; `offset < now`.
                    unsafe { to.add(offset).write(byte) };
                }
            }
            left -= now;
            target = target.wrapping_add(now);
        }
        Ok(())
    }

    /// Stores 4 or 8 aligned bytes at once.
    ///
    /// # Errors
    /// The address may not be written.
    pub(crate) fn store_value(&mut self, address: u64, value: u64, bytes: u32) -> Result<(), RefusedAddress> {
        let range = self.find(address, u64::from(bytes), Access::Atomic).map_err(|fault| (address, fault))?;
        let at: *mut u8 = with_exposed_provenance_mut(address.wrapping_add(range.shift) as usize);
        if bytes == 8 {
            // SAFETY: P; the caller checked the alignment and shifts are multiples of 16.
            unsafe { AtomicU64::from_ptr(at.cast()) }.store(value, Ordering::Release);
        } else {
            // SAFETY: as above.
            unsafe { AtomicU32::from_ptr(at.cast()) }.store(value as u32, Ordering::Release);
        }
        Ok(())
    }

    /// Writes bytes that may span allocations.
    ///
    /// # Errors
    /// As [`WorkerMemory::copy`].
    pub(crate) fn write(&mut self, target: u64, bytes: &[u8]) -> Result<(), RefusedAddress> {
        let mut done = 0usize;
        while done < bytes.len() {
            let (to, now) = self.contiguous_bytes(target.wrapping_add(done as u64), (bytes.len() - done) as u64, Access::Store)?;
            let to: *mut u8 = with_exposed_provenance_mut(to as usize);
            let part = &bytes[done..done + now as usize];
            // SAFETY: P; the source is a slice of `now` bytes.
            unsafe { to.copy_from(part.as_ptr(), part.len()) };
            done += now as usize;
        }
        Ok(())
    }

    /// Reads bytes that may span allocations (staging an overlapping copy).
    ///
    /// # Errors
    /// As [`WorkerMemory::copy`].
    pub(crate) fn read(&mut self, source: u64, into: &mut [u8]) -> Result<(), RefusedAddress> {
        let mut done = 0usize;
        while done < into.len() {
            let (from, now) = self.contiguous_bytes(source.wrapping_add(done as u64), (into.len() - done) as u64, Access::Load)?;
            let from: *mut u8 = with_exposed_provenance_mut(from as usize);
            let part = &mut into[done..done + now as usize];
            // SAFETY: P; the target is a slice of `now` bytes.
            unsafe { from.copy_to(part.as_mut_ptr(), part.len()) };
            done += now as usize;
        }
        Ok(())
    }
}

// SAFETY: `access` returns addresses inside a range of the client's table, which by P stays mapped until the slice ends; shifts are
// multiples of 16 (checked when a range is allowed), so alignment carries over; no reference to mapped bytes is ever made.
unsafe impl GlobalMemory for WorkerMemory {
    #[inline(always)]
    fn access(&mut self, address: u64, bytes: u64, access: Access) -> Result<*mut u8, MemoryFault> {
        if self.tracing {
            self.trace.note_access(address);
        }
        let range = self.find(address, bytes, access)?;
        Ok(with_exposed_provenance_mut(address.wrapping_add(range.shift) as usize))
    }

    #[inline(always)]
    fn before_store(&mut self, address: u64, at: *mut u8, bytes: u32) {
        if let Some(log) = &mut self.log {
            before_store(log, address, at, bytes.into());
        }
    }

    #[inline(always)]
    fn before_stores(&mut self, addresses: &[u64; 32], mask: u32, to: *mut u8, bytes: u32) {
        if let Some(log) = &mut self.log {
            before_stores(log, addresses, mask, to, bytes.into());
        }
    }
}

/// Logs the bytes in a row, line by line.
fn before_store(log: &mut UndoLog, address: u64, at: *mut u8, bytes: u64) {
    let mut done = 0;
    while done < bytes {
        let first = address.wrapping_add(done) % LINE_BYTES;
        let now = (LINE_BYTES - first).min(bytes - done);
        let line = at.wrapping_add(done as usize).wrapping_sub(first as usize);
        log.save_before_store(address.wrapping_add(done) - first, &Overwritten { line, bits: (u64::MAX >> (LINE_BYTES - now)) << first });
        done += now;
    }
    log.order_before_store();
}

/// Logs what the lanes of a warp overwrite; neighbours in a line are logged together.
fn before_stores(log: &mut UndoLog, addresses: &[u64; 32], mut mask: u32, to: *mut u8, bytes: u64) {
    if !bytes.is_power_of_two() || bytes > LINE_BYTES || addresses.iter().zip(0..).any(|(address, lane)| mask >> lane & 1 != 0 && address & (bytes - 1) != 0) {
        while mask != 0 {
            let address = addresses[mask.trailing_zeros() as usize];
            before_store(log, address, to.wrapping_add(address as usize), bytes);
            mask &= mask - 1;
        }
        return;
    }
    let (mut line, mut bits) = (0, 0);
    while mask != 0 {
        let address = addresses[mask.trailing_zeros() as usize];
        mask &= mask - 1;
        let first = address % LINE_BYTES;
        if address - first != line {
            if bits != 0 {
                log.save_before_store(line, &Overwritten { line: to.wrapping_add(line as usize), bits });
            }
            (line, bits) = (address - first, 0);
        }
        bits |= (u64::MAX >> (LINE_BYTES - bytes)) << first;
    }
    if bits != 0 {
        log.save_before_store(line, &Overwritten { line: to.wrapping_add(line as usize), bits });
    }
    log.order_before_store();
}
