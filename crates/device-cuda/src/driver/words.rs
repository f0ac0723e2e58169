//! Words of pinned memory that the card writes and threads of this process read.
#![expect(clippy::disallowed_types, reason = "kernels write these words")]

use super::CardAddress;
use super::context::Driver;
use crate::fault::{Call, CudaError};
use core::ptr::{null_mut, with_exposed_provenance, with_exposed_provenance_mut};
use cumux_abi::types as t;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes from word to word. No two words share a cache line.
const STRIDE: usize = 64;

/// Where the card has words.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WordAddresses {
    base: usize,
}

impl WordAddresses {
    /// The card's address of a word. It is also the host's address.
    pub(crate) fn of(self, index: usize) -> CardAddress {
        (self.base + index * STRIDE) as CardAddress
    }
}

/// Words of pinned memory, each in a cache line of its own. They are 0 at first.
///
/// After [`PinnedWords::new`], this process accesses the words only with atomic operations, and the
/// card writes whole words. So no access is a data race.
pub(crate) struct PinnedWords {
    driver: Arc<Driver>,
    base: usize,
    count: usize,
}

impl PinnedWords {
    /// Allocates this many words.
    ///
    /// # Errors
    /// The driver's, for example because there is not enough memory to pin.
    pub(crate) fn new(driver: &Arc<Driver>, count: usize) -> Call<PinnedWords> {
        let mut base = null_mut();
        let flags = t::CU_MEMHOSTALLOC_PORTABLE | t::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: the call writes one pointer, a local.
        CudaError::check(unsafe { (driver.table()?.cuMemHostAlloc)(&raw mut base, count * STRIDE, flags) })?;
        // SAFETY: exactly the bytes that were allocated, which nobody uses yet.
        unsafe { core::ptr::write_bytes(base.cast::<u8>(), 0, count * STRIDE) };
        Ok(PinnedWords { driver: driver.clone(), base: base.expose_provenance(), count })
    }

    /// The card's addresses of the words.
    pub(crate) fn addresses(&self) -> WordAddresses {
        WordAddresses { base: self.base }
    }

    /// The card's address of a word.
    pub(crate) fn address(&self, index: usize) -> CardAddress {
        self.addresses().of(index)
    }

    /// Bytes from one word's address to the next one's.
    pub(crate) fn stride(&self) -> u32 {
        STRIDE as u32
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.count, "word {index} of {}", self.count);
        let word: *const u64 = with_exposed_provenance(self.base + index * STRIDE);
        // SAFETY: the word lies in the allocation (checked), is aligned to 64 bytes, lives as long
        // as `self`, and is touched through atomics alone (see the type).
        unsafe { AtomicU64::from_ptr(word.cast_mut()) }
    }

    /// Reads a word. What the card did before it wrote the value is visible to the caller, too.
    pub(crate) fn load(&self, index: usize) -> u64 {
        self.word(index).load(Ordering::Acquire)
    }

    /// Sets a word to 0. No work on the card writes the word at this time.
    pub(crate) fn clear(&self, index: usize) {
        self.word(index).store(0, Ordering::Release);
    }
}

impl Drop for PinnedWords {
    fn drop(&mut self) {
        if let Ok(table) = self.driver.table() {
            // SAFETY: the allocation of `new`; the streams that wrote into it are gone.
            let _ = unsafe { (table.cuMemFreeHost)(with_exposed_provenance_mut(self.base)) };
        }
    }
}
