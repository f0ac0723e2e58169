//! Files and private memory mapped into this process.
//!
//! Mapped memory is shared with other processes and other workers, so nothing here ever makes a reference to its bytes: they are copied
//! by raw pointers, and single words are atomics.
#![allow(unsafe_code)]

pub(crate) mod files;
pub(crate) mod line;

use std::os::fd::BorrowedFd;
use std::ptr::with_exposed_provenance_mut;
use std::sync::atomic::AtomicU64;

use cumux_device::DeviceError;
use rustix::mm::{MapFlags, ProtFlags};

/// A part of the address space that belongs to this value.
#[derive(Debug)]
pub(crate) struct Mapping {
    address: u64,
    bytes: u64,
}

impl Mapping {
    /// Mappings a file at a fixed free address, or anywhere if `address` is 0. The caller has checked size and seals.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] if something is mapped there, [`DeviceError::System`] otherwise.
    pub(crate) fn file(address: u64, file: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<Mapping, DeviceError> {
        let fixed = if address == 0 { MapFlags::empty() } else { MapFlags::FIXED_NOREPLACE };
        let flags = MapFlags::SHARED | MapFlags::NORESERVE | fixed;
        // SAFETY: without MAP_FIXED the kernel never replaces an existing mapping, so no memory of anybody changes; the new range belongs to the value.
        let made =
            unsafe { rustix::mm::mmap(with_exposed_provenance_mut(address as usize), bytes as usize, ProtFlags::READ | ProtFlags::WRITE, flags, file, offset) };
        Mapping::checked(address, bytes, made)
    }

    /// Zeroed memory of this process alone at a fixed free address.
    ///
    /// # Errors
    /// As [`Mapping::file`].
    pub(crate) fn private(address: u64, bytes: u64) -> Result<Mapping, DeviceError> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: as in `file`.
        let made =
            unsafe { rustix::mm::mmap_anonymous(with_exposed_provenance_mut(address as usize), bytes as usize, ProtFlags::READ | ProtFlags::WRITE, flags) };
        Mapping::checked(address, bytes, made)
    }

    fn checked(wanted: u64, bytes: u64, made: rustix::io::Result<*mut std::ffi::c_void>) -> Result<Mapping, DeviceError> {
        let at = made.map_err(|error| match error {
            rustix::io::Errno::EXIST => DeviceError::Invalid(format!("something is mapped in the {bytes} bytes at {wanted:#x} already")),
            error => DeviceError::System(format!("{bytes} bytes cannot be mapped at {wanted:#x}: {error}")),
        })?;
        let mapping = Mapping { address: at.expose_provenance() as u64, bytes };
        if wanted != 0 && mapping.address != wanted {
            return Err(DeviceError::Invalid(format!("the {bytes} bytes at {wanted:#x} are not free in the executor")));
        }
        Ok(mapping)
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether `[offset, offset + bytes)` is inside.
    fn holds(&self, offset: u64, bytes: u64) -> bool {
        offset <= self.bytes && bytes <= self.bytes - offset
    }

    pub(super) fn at(&self, offset: u64, bytes: u64) -> *mut u8 {
        assert!(self.holds(offset, bytes), "offset {offset} + {bytes} of a mapping of {}", self.bytes);
        with_exposed_provenance_mut((self.address + offset) as usize)
    }

    /// The word at a multiple of 8.
    #[inline]
    pub(crate) fn word(&self, offset: u64) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8));
        // SAFETY: M; aligned because mappings are page-aligned; all other accesses to words of such files are atomic too, or copies of bytes
        // that the protocol of the file keeps apart.
        unsafe { AtomicU64::from_ptr(self.at(offset, 8).cast()) }
    }

    /// Copies into the mapping; false if it does not fit.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> bool {
        let fits = self.holds(offset, bytes.len() as u64);
        if fits {
            // SAFETY: M, checked in this function; the source is a slice.
            unsafe { self.at(offset, bytes.len() as u64).copy_from(bytes.as_ptr(), bytes.len()) };
        }
        fits
    }

    /// Copies out of the mapping; false if the range is not inside.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> bool {
        let fits = self.holds(offset, into.len() as u64);
        if fits {
            // SAFETY: as in `write`.
            unsafe { self.at(offset, into.len() as u64).copy_to(into.as_mut_ptr(), into.len()) };
        }
        fits
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is this value's, and by M and P nobody uses it any more.
        let undone = unsafe { rustix::mm::munmap(with_exposed_provenance_mut(self.address as usize), self.bytes as usize) };
        if let Err(error) = undone {
            tracing::error!(address = self.address, bytes = self.bytes, %error, "a mapping cannot be undone");
        }
    }
}
