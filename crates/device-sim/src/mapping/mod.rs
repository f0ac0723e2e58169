//! Files and private memory mapped into this process.
//!
//! Mapped memory is shared with other processes and other workers, so nothing here ever makes a
//! reference to its bytes: bytes are copied by raw pointers, and single words are atomics. What
//! concurrent writers make of the same bytes is the programs' own affair, as on a card.
#![expect(clippy::disallowed_types, reason = "words of memory that threads share")]
#![allow(unsafe_code)]

pub(crate) mod files;
pub(crate) mod line;

use std::os::fd::BorrowedFd;
use std::ptr::with_exposed_provenance_mut;
use std::sync::atomic::{AtomicU64, Ordering};

use cumux_device::DeviceError;
use rustix::mm::{MapFlags, ProtFlags};

/// Where memory lies that only this process has. It is below the arena, where neither clients nor
/// executors map anything by themselves.
const PRIVATE_BASE: u64 = 0x0c00_0000_0000;
/// Private mappings begin at multiples of this, with as much free space between them.
const PRIVATE_STEP: u64 = 1 << 21;

/// A part of the address space that belongs to this value.
///
/// Invariant: `[address, address + bytes)` is mapped for reading and writing as long as the value
/// lives. A mapped file cannot shrink ([`files::check`] looks at its seals), so touching a mapped
/// byte never faults.
#[derive(Debug)]
pub(crate) struct Mapping {
    address: u64,
    bytes: u64,
}

impl Mapping {
    /// Maps a file at a fixed free address, or anywhere if `address` is 0. The caller has checked
    /// the file's size and seals.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] if something is mapped there, [`DeviceError::System`] otherwise.
    pub(crate) fn file(address: u64, file: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<Mapping, DeviceError> {
        let fixed = if address == 0 { MapFlags::empty() } else { MapFlags::FIXED_NOREPLACE };
        let flags = MapFlags::SHARED | MapFlags::NORESERVE | fixed;
        let wanted = with_exposed_provenance_mut(address as usize);
        // SAFETY: without MAP_FIXED the kernel never replaces an existing mapping, so no memory
        // that anybody uses changes. The new range belongs to the value made of it.
        let made = unsafe { rustix::mm::mmap(wanted, bytes as usize, ProtFlags::READ | ProtFlags::WRITE, flags, file, offset) };
        Mapping::own(address, bytes, made)
    }

    /// Maps zeroed memory of this process alone at an address that no client uses.
    ///
    /// # Errors
    /// [`DeviceError::System`] when there is none.
    pub(crate) fn private(bytes: u64) -> Result<Mapping, DeviceError> {
        static NEXT: AtomicU64 = AtomicU64::new(PRIVATE_BASE);
        let address = NEXT.fetch_add(bytes.next_multiple_of(PRIVATE_STEP) + PRIVATE_STEP, Ordering::Relaxed);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
        let wanted = with_exposed_provenance_mut(address as usize);
        // SAFETY: MAP_FIXED_NOREPLACE never replaces an existing mapping, so no memory that anybody
        // uses changes. The new range belongs to the value made of it.
        let made = unsafe { rustix::mm::mmap_anonymous(wanted, bytes as usize, ProtFlags::READ | ProtFlags::WRITE, flags) };
        Mapping::own(address, bytes, made)
    }

    /// The value for a range that the kernel has just mapped.
    fn own(wanted: u64, bytes: u64, made: rustix::io::Result<*mut std::ffi::c_void>) -> Result<Mapping, DeviceError> {
        let at = made.map_err(|error| match error {
            rustix::io::Errno::EXIST => DeviceError::Invalid(format!("something is mapped in the {bytes} bytes at {wanted:#x} already")),
            error => DeviceError::System(format!("{bytes} bytes cannot be mapped at {wanted:#x}: {error}")),
        })?;
        let mapping = Mapping { address: at.expose_provenance() as u64, bytes };
        // Kernels before 4.17 take MAP_FIXED_NOREPLACE for a hint.
        if wanted != 0 && mapping.address != wanted {
            return Err(DeviceError::Invalid(format!("the {bytes} bytes at {wanted:#x} are not free in the executor")));
        }
        Ok(mapping)
    }

    /// The first address.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// The length in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether `[offset, offset + bytes)` is inside.
    fn holds(&self, offset: u64, bytes: u64) -> bool {
        offset <= self.bytes && bytes <= self.bytes - offset
    }

    /// A pointer to `bytes` bytes at `offset`, valid for reads and writes as long as the mapping
    /// lives. Panics if they are not inside.
    fn pointer(&self, offset: u64, bytes: u64) -> *mut u8 {
        assert!(self.holds(offset, bytes), "offset {offset} + {bytes} of a mapping of {}", self.bytes);
        with_exposed_provenance_mut((self.address + offset) as usize)
    }

    /// The word at a multiple of 8. Panics if it is not inside.
    #[inline]
    pub(crate) fn word(&self, offset: u64) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8));
        // SAFETY: `pointer` checked that the 8 bytes are mapped while `self` lives, which the
        // borrow ensures. Mappings are page-aligned, so the word is aligned. Other accesses to such
        // words are atomic, or copies of bytes that the protocol of the file keeps apart from them.
        unsafe { AtomicU64::from_ptr(self.pointer(offset, 8).cast()) }
    }

    /// Copies into the mapping; false if the bytes do not fit.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> bool {
        let fits = self.holds(offset, bytes.len() as u64);
        if fits {
            // SAFETY: `pointer` checked that so many bytes are mapped; the source is a slice of as
            // many. No Rust reference to mapped bytes exists, so the slice is elsewhere.
            unsafe { self.pointer(offset, bytes.len() as u64).copy_from(bytes.as_ptr(), bytes.len()) };
        }
        fits
    }

    /// Copies out of the mapping; false if the range is not inside.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> bool {
        let fits = self.holds(offset, into.len() as u64);
        if fits {
            // SAFETY: `pointer` checked that so many bytes are mapped; the target is a slice of as
            // many. No Rust reference to mapped bytes exists, so the slice is elsewhere.
            unsafe { self.pointer(offset, into.len() as u64).copy_to(into.as_mut_ptr(), into.len()) };
        }
        fits
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let at = with_exposed_provenance_mut(self.address as usize);
        // SAFETY: the range belongs to this value, and nobody uses it any more: a mapping is
        // dropped only when no allowed range lies in it and every slice that could use one has
        // ended.
        let undone = unsafe { rustix::mm::munmap(at, self.bytes as usize) };
        if let Err(error) = undone {
            tracing::error!(address = self.address, bytes = self.bytes, %error, "a mapping cannot be undone");
        }
    }
}
