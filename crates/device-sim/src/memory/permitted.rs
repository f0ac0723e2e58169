//! Bytes of a client's allocation that a worker may touch in its running slice.
//!
//! All copies of the card go through this type, so why they are sound is said once, in its
//! invariant.
#![expect(clippy::disallowed_types, reason = "kernels wait for values that are written here")]
#![allow(unsafe_code)]

use std::ptr::with_exposed_provenance_mut;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A run of bytes in one allocation.
///
/// Invariant: the bytes `[at, at + bytes)` of this process are mapped until the worker's slice
/// ends, they may be written if the value was made for a store, and no Rust reference to them
/// exists. Other workers and processes may touch them at the same time.
#[derive(Debug, Clone, Copy)]
pub(super) struct PermittedBytes {
    at: *mut u8,
    bytes: u64,
    writable: bool,
}

impl PermittedBytes {
    /// # Safety
    /// The invariant holds for the bytes at `at` until the value is used for the last time.
    pub(super) unsafe fn new(at: u64, bytes: u64, writable: bool) -> Self {
        PermittedBytes { at: with_exposed_provenance_mut(at as usize), bytes, writable }
    }

    /// How many bytes there are.
    pub(super) fn len(self) -> u64 {
        self.bytes
    }

    /// The first `bytes` of them.
    pub(super) fn first(self, bytes: u64) -> Self {
        assert!(bytes <= self.bytes);
        PermittedBytes { bytes, ..self }
    }

    /// The last `bytes` of them.
    pub(super) fn last(self, bytes: u64) -> Self {
        assert!(bytes <= self.bytes);
        PermittedBytes { at: self.at.wrapping_add((self.bytes - bytes) as usize), bytes, ..self }
    }

    /// Copies as many bytes from a run of the same length, which may overlap.
    pub(super) fn copy_from(self, source: PermittedBytes) {
        assert!(self.writable && self.bytes == source.bytes);
        // SAFETY: by the invariant both runs are mapped and have this length; the target may be
        // written. `copy_from` allows overlap.
        unsafe { self.at.copy_from(source.at, self.bytes as usize) };
    }

    /// Copies a slice of the same length into the run.
    pub(super) fn write(self, from: &[u8]) {
        assert!(self.writable && self.bytes == from.len() as u64);
        // SAFETY: by the invariant the run is mapped, has this length and may be written; the slice
        // is elsewhere, since no reference to mapped bytes exists.
        unsafe { self.at.copy_from(from.as_ptr(), from.len()) };
    }

    /// Copies the run into a slice of the same length.
    pub(super) fn read(self, into: &mut [u8]) {
        assert!(self.bytes == into.len() as u64);
        // SAFETY: by the invariant the run is mapped and has this length; the slice is elsewhere,
        // since no reference to mapped bytes exists.
        unsafe { self.at.copy_to(into.as_mut_ptr(), into.len()) };
    }

    /// Fills the run with a pattern, which begins with its first byte and may end in the middle.
    pub(super) fn fill(self, pattern: [u8; 4]) {
        assert!(self.writable);
        let [first, rest @ ..] = pattern;
        let bytes = self.bytes as usize;
        if rest.iter().all(|byte| *byte == first) {
            // SAFETY: by the invariant the run is mapped, has this length and may be written.
            return unsafe { self.at.write_bytes(first, bytes) };
        }
        let whole = bytes - bytes % pattern.len();
        for at in (0..whole).step_by(pattern.len()) {
            // SAFETY: by the invariant the run is mapped and may be written, and `at + 4 <= bytes`.
            unsafe { self.at.add(at).cast::<[u8; 4]>().write(pattern) };
        }
        for (at, byte) in (whole..bytes).zip(pattern) {
            // SAFETY: by the invariant the run is mapped and may be written, and `at < bytes`.
            unsafe { self.at.add(at).write(byte) };
        }
    }

    /// Stores an aligned value of 4 or 8 bytes at once, after everything stored before.
    pub(super) fn store_value(self, value: u64) {
        assert!(self.writable && self.at.addr().is_multiple_of(self.bytes as usize));
        match self.bytes {
            // SAFETY: by the invariant the 8 bytes are mapped and may be written; the alignment was
            // just checked; other accesses to them are raw or atomic.
            8 => unsafe { AtomicU64::from_ptr(self.at.cast()) }.store(value, Ordering::Release),
            // SAFETY: by the invariant the 4 bytes are mapped and may be written; the alignment was
            // just checked; other accesses to them are raw or atomic.
            4 => unsafe { AtomicU32::from_ptr(self.at.cast()) }.store(value as u32, Ordering::Release),
            bytes => unreachable!("a value of {bytes} bytes"),
        }
    }
}
