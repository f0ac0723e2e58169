//! Words and bytes of a shared file, behind one trait so that the protocol can be model-checked.
//!
//! Offsets come from `cumux_wire::layout`; an offset outside the mapping or unaligned is a bug of
//! this crate and panics (never input from a peer).

#[cfg(loom)]
pub use loom::sync::atomic::{Ordering, fence};
#[cfg(not(loom))]
pub use std::sync::atomic::{Ordering, fence};

use crate::file::Mapping;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// A shared file as words and bytes.
pub trait Memory {
    /// Loads the u32 at `offset`.
    fn load32(&self, offset: usize, order: Ordering) -> u32;
    /// Stores a u32 at `offset`.
    fn store32(&self, offset: usize, value: u32, order: Ordering);
    /// Adds to the u32 at `offset`, wrapping, and returns the value before.
    fn add32(&self, offset: usize, value: u32, order: Ordering) -> u32;
    /// Loads the u64 at `offset`.
    fn load64(&self, offset: usize, order: Ordering) -> u64;
    /// Stores a u64 at `offset`.
    fn store64(&self, offset: usize, value: u64, order: Ordering);
    /// Copies bytes in. No ordering: publish with a store afterwards.
    fn write(&self, offset: usize, bytes: &[u8]);
    /// Copies bytes out. A peer may change them meanwhile: the copy is an allegation.
    fn read(&self, offset: usize, into: &mut [u8]);
}

impl Mapping {
    #[inline]
    fn word32(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.bytes(), "offset {offset} outside the file");
        // SAFETY: inside the mapping, aligned, and the mapping lives as long as `self`; every
        // process accesses these words atomically.
        unsafe { AtomicU32::from_ptr(self.address().add(offset).cast()) }
    }

    #[inline]
    fn word64(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.bytes(), "offset {offset} outside the file");
        // SAFETY: as in `word32`.
        unsafe { AtomicU64::from_ptr(self.address().add(offset).cast()) }
    }

    /// Adds to a counter that orders no other access.
    pub(crate) fn count(&self, offset: usize, value: u64) {
        self.word64(offset).fetch_add(value, std::sync::atomic::Ordering::Relaxed);
    }

    /// The futex word at `offset`.
    #[must_use]
    pub fn futex(&self, offset: usize) -> &AtomicU32 {
        self.word32(offset)
    }
}

impl Memory for Mapping {
    #[inline]
    fn load32(&self, offset: usize, order: Ordering) -> u32 {
        self.word32(offset).load(order)
    }
    #[inline]
    fn store32(&self, offset: usize, value: u32, order: Ordering) {
        self.word32(offset).store(value, order);
    }
    #[inline]
    fn add32(&self, offset: usize, value: u32, order: Ordering) -> u32 {
        self.word32(offset).fetch_add(value, order)
    }
    #[inline]
    fn load64(&self, offset: usize, order: Ordering) -> u64 {
        self.word64(offset).load(order)
    }
    #[inline]
    fn store64(&self, offset: usize, value: u64, order: Ordering) {
        self.word64(offset).store(value, order);
    }
    #[inline]
    fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset.checked_add(bytes.len()).is_some_and(|end| end <= self.bytes()), "write outside the file");
        // SAFETY: the target range is inside the mapping (checked above) and cannot overlap
        // `bytes`, which is ordinary memory of this process.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.address().add(offset), bytes.len()) }
    }
    #[inline]
    fn read(&self, offset: usize, into: &mut [u8]) {
        assert!(offset.checked_add(into.len()).is_some_and(|end| end <= self.bytes()), "read outside the file");
        // SAFETY: the source range is inside the mapping (checked above); `into` is ordinary
        // memory. A peer may write meanwhile: the copy may then be any mixture of bytes, which
        // callers treat as an allegation.
        unsafe { std::ptr::copy_nonoverlapping(self.address().add(offset), into.as_mut_ptr(), into.len()) }
    }
}

impl<M: Memory + ?Sized> Memory for &M {
    #[inline]
    fn load32(&self, offset: usize, order: Ordering) -> u32 {
        (**self).load32(offset, order)
    }
    #[inline]
    fn store32(&self, offset: usize, value: u32, order: Ordering) {
        (**self).store32(offset, value, order);
    }
    #[inline]
    fn add32(&self, offset: usize, value: u32, order: Ordering) -> u32 {
        (**self).add32(offset, value, order)
    }
    #[inline]
    fn load64(&self, offset: usize, order: Ordering) -> u64 {
        (**self).load64(offset, order)
    }
    #[inline]
    fn store64(&self, offset: usize, value: u64, order: Ordering) {
        (**self).store64(offset, value, order);
    }
    #[inline]
    fn write(&self, offset: usize, bytes: &[u8]) {
        (**self).write(offset, bytes);
    }
    #[inline]
    fn read(&self, offset: usize, into: &mut [u8]) {
        (**self).read(offset, into);
    }
}
