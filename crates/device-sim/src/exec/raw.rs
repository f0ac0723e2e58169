//! Single accesses through raw pointers: typed loads, stores and atomics on what [`GlobalMemory`] hands out. (Those of whole warps: `coalesced`.)
//!
//! Programs under execution may race with each other as on the card. Accesses are therefore atomic (relaxed) wherever their size allows, so
//! that a race gives some value and never undefined behaviour of this process.
//!
//! [`GlobalMemory`]: super::interface::GlobalMemory
#![allow(unsafe_code)]

use super::interface::{Access, GlobalMemory, MemoryFault};
use crate::program::code::Order;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// A checked range of device memory, valid for the current slice.
#[derive(Clone, Copy)]
pub struct DeviceBytes {
    at: *mut u8,
    bytes: u64,
    writable: bool,
}

impl DeviceBytes {
    /// Asks the memory for a range.
    #[inline(always)]
    pub fn find<M: GlobalMemory>(memory: &mut M, address: u64, bytes: u64, access: Access) -> Result<DeviceBytes, MemoryFault> {
        let at = memory.access(address, bytes, access)?;
        Ok(DeviceBytes { at, bytes, writable: access != Access::Load })
    }

    #[inline(always)]
    pub fn pointer(&self, offset: u64) -> *mut u8 {
        self.at.wrapping_add(offset as usize)
    }

    /// Checks the place of an access of `bytes` bytes (a power of two up to 8) and its alignment.
    #[inline(always)]
    fn checked_place(&self, offset: u64, bytes: u64, write: bool) -> *mut u8 {
        let at = self.pointer(offset);
        assert!(offset <= self.bytes && bytes <= self.bytes - offset && at as usize as u64 & (bytes - 1) == 0 && (self.writable || !write));
        at
    }

    #[inline(always)]
    pub fn load8(&self, offset: u64) -> u8 {
        // SAFETY: `checked_place` checked bounds and alignment of memory that `GlobalMemory::access` promised to be valid for this slice.
        unsafe { AtomicU8::from_ptr(self.checked_place(offset, 1, false)) }.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub fn load16(&self, offset: u64, order: Order) -> u16 {
        // SAFETY: as in `load8`.
        unsafe { AtomicU16::from_ptr(self.checked_place(offset, 2, false).cast()) }.load(load_order(order))
    }

    #[inline(always)]
    pub fn load32(&self, offset: u64, order: Order) -> u32 {
        // SAFETY: as in `load8`.
        unsafe { AtomicU32::from_ptr(self.checked_place(offset, 4, false).cast()) }.load(load_order(order))
    }

    #[inline(always)]
    pub fn load64(&self, offset: u64, order: Order) -> u64 {
        // SAFETY: as in `load8`.
        unsafe { AtomicU64::from_ptr(self.checked_place(offset, 8, false).cast()) }.load(load_order(order))
    }

    #[inline(always)]
    pub fn store8(&self, offset: u64, value: u8) {
        // SAFETY: as in `load8`; `checked_place` also checked that the range may be written.
        unsafe { AtomicU8::from_ptr(self.checked_place(offset, 1, true)) }.store(value, Ordering::Relaxed);
    }

    #[inline(always)]
    pub fn store16(&self, offset: u64, value: u16, order: Order) {
        // SAFETY: as in `store8`.
        unsafe { AtomicU16::from_ptr(self.checked_place(offset, 2, true).cast()) }.store(value, store_order(order));
    }

    #[inline(always)]
    pub fn store32(&self, offset: u64, value: u32, order: Order) {
        // SAFETY: as in `store8`.
        unsafe { AtomicU32::from_ptr(self.checked_place(offset, 4, true).cast()) }.store(value, store_order(order));
    }

    #[inline(always)]
    pub fn store64(&self, offset: u64, value: u64, order: Order) {
        // SAFETY: as in `store8`.
        unsafe { AtomicU64::from_ptr(self.checked_place(offset, 8, true).cast()) }.store(value, store_order(order));
    }

    /// Replaces a value by a function of it, at once. Gives the old value.
    #[inline(always)]
    pub fn update16(&self, offset: u64, f: impl Fn(u16) -> u16) -> u16 {
        // SAFETY: as in `store8`.
        let cell = unsafe { AtomicU16::from_ptr(self.checked_place(offset, 2, true).cast()) };
        cell.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| Some(f(old))).unwrap_or_else(|old| old)
    }

    #[inline(always)]
    pub fn update32(&self, offset: u64, f: impl Fn(u32) -> u32) -> u32 {
        // SAFETY: as in `store8`.
        let cell = unsafe { AtomicU32::from_ptr(self.checked_place(offset, 4, true).cast()) };
        cell.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| Some(f(old))).unwrap_or_else(|old| old)
    }

    #[inline(always)]
    pub fn update64(&self, offset: u64, f: impl Fn(u64) -> u64) -> u64 {
        // SAFETY: as in `store8`.
        let cell = unsafe { AtomicU64::from_ptr(self.checked_place(offset, 8, true).cast()) };
        cell.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| Some(f(old))).unwrap_or_else(|old| old)
    }
}

#[inline(always)]
fn load_order(order: Order) -> Ordering {
    if order == Order::Acquire { Ordering::Acquire } else { Ordering::Relaxed }
}

#[inline(always)]
fn store_order(order: Order) -> Ordering {
    if order == Order::Release { Ordering::Release } else { Ordering::Relaxed }
}
