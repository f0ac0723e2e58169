//! Single accesses through raw pointers: typed loads, stores and atomics on what [`GlobalMemory`]
//! hands out. ([`super::coalesced`] has those of whole warps.)
//!
//! Programs under execution may race with each other as on the card. Accesses are therefore atomic
//! (relaxed) wherever their size allows, so that a race gives some value and never undefined
//! behaviour of this process.
#![expect(clippy::disallowed_types, reason = "kernels of several threads use the same memory")]
#![allow(unsafe_code)]

use super::interface::{Access, GlobalMemory, MemoryFault};
use crate::program::code::Order;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Bytes of device memory.
///
/// Invariant: the `bytes` bytes at `at` are valid for reads until the worker's slice ends, and for
/// writes if `writable`: [`GlobalMemory::access`] promises it. Other workers touch them by atomics
/// or raw pointers only.
#[derive(Clone, Copy)]
pub(super) struct DeviceBytes {
    at: *mut u8,
    bytes: u64,
    writable: bool,
}

/// Loads, stores and updates of one width.
macro_rules! width {
    ($ty:ty, $atomic:ty: $load:ident, $store:ident $(, $update:ident)?) => {
        /// Loads a value at an offset. Panics if it is not inside or not aligned.
        #[inline(always)]
        pub fn $load(&self, offset: u64, order: Order) -> $ty {
            self.check(offset, size_of::<$ty>() as u64);
            // SAFETY: `check` made sure that the value is inside and aligned; by the invariant it
            // may be read, and other accesses to it are atomic or raw.
            unsafe { <$atomic>::from_ptr(self.pointer(offset).cast()) }.load(load_order(order))
        }

        /// Stores a value at an offset. Panics if it is not inside, not aligned or not writable.
        #[inline(always)]
        pub fn $store(&self, offset: u64, value: $ty, order: Order) {
            assert!(self.writable);
            self.check(offset, size_of::<$ty>() as u64);
            // SAFETY: `check` made sure that the value is inside and aligned; by the invariant it
            // may be written, and other accesses to it are atomic or raw.
            unsafe { <$atomic>::from_ptr(self.pointer(offset).cast()) }.store(value, store_order(order));
        }

        $(
            /// Replaces the first value by a function of it, at once. Gives the old value.
            #[inline(always)]
            pub fn $update(&self, f: impl Fn($ty) -> $ty) -> $ty {
                assert!(self.writable);
                self.check(0, size_of::<$ty>() as u64);
                // SAFETY: `check` made sure that the value is inside and aligned. By the invariant
                // it may be written, and other accesses to it are atomic or raw.
                let cell = unsafe { <$atomic>::from_ptr(self.at.cast()) };
                cell.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| Some(f(old))).unwrap_or_else(|old| old)
            }
        )?
    };
}

impl DeviceBytes {
    /// Asks the memory for bytes.
    #[inline(always)]
    pub fn find<M: GlobalMemory>(memory: &mut M, address: u64, bytes: u64, access: Access) -> Result<DeviceBytes, MemoryFault> {
        let at = memory.access(address, bytes, access)?;
        Ok(DeviceBytes { at, bytes, writable: access != Access::Load })
    }

    /// Where the bytes at an offset lie in this process.
    #[inline(always)]
    pub fn pointer(&self, offset: u64) -> *mut u8 {
        self.at.wrapping_add(offset as usize)
    }

    /// Panics if a value of `bytes` bytes (a power of two up to 16) is not inside or not aligned.
    #[inline(always)]
    fn check(&self, offset: u64, bytes: u64) {
        assert!(offset <= self.bytes && bytes <= self.bytes - offset && self.pointer(offset).addr() as u64 & (bytes - 1) == 0);
    }

    width!(u8, AtomicU8: load8, store8);
    width!(u16, AtomicU16: load16, store16, update16);
    width!(u32, AtomicU32: load32, store32, update32);
    width!(u64, AtomicU64: load64, store64, update64);

    /// Replaces the first 16 bytes by a function of them, and gives the old ones. It is atomic with
    /// respect to other accesses of this kind, not to narrower ones of the same bytes. What does
    /// not change is not stored.
    pub fn update128(&self, f: impl Fn(u128) -> u128) -> u128 {
        static LOCK: Mutex<()> = Mutex::new(());
        self.check(0, 16);
        let _alone = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        let [low, high] = [0, 8].map(|half| u128::from(self.load64(half, Order::Acquire)));
        let old = low | (high << 64);
        let new = f(old);
        for (half, shift) in [(0, 0), (8, 64)] {
            if (new >> shift) as u64 != (old >> shift) as u64 {
                self.store64(half, (new >> shift) as u64, Order::Release);
            }
        }
        old
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_bytes_are_replaced_at_once() {
        #[repr(align(16))]
        struct Cell(u128);
        let mut cell = Cell(0);
        let address = (&raw mut cell.0).expose_provenance();
        let add = || {
            let bytes = DeviceBytes { at: std::ptr::with_exposed_provenance_mut(address), bytes: 16, writable: true };
            (0..10_000).for_each(|_| _ = bytes.update128(|old| old + ((1 << 64) | 1)));
        };
        std::thread::scope(|scope| (0..4).for_each(|_| _ = scope.spawn(add)));
        assert_eq!(cell.0, (40_000 << 64) | 40_000);
    }

    /// No test on x86 can tell an ordered access from a plain one by what it reads.
    #[test]
    fn ordered_accesses_are_ordered() {
        let orders = [Order::Relaxed, Order::Acquire, Order::Release];
        assert_eq!(orders.map(load_order), [Ordering::Relaxed, Ordering::Acquire, Ordering::Relaxed]);
        assert_eq!(orders.map(store_order), [Ordering::Relaxed, Ordering::Relaxed, Ordering::Release]);
    }
}
