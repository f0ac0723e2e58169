//! The window: one sparse file for each client, mapped at the same address in client and executor.
//! Also the address ranges that a client keeps free for device memory.
//!
//! Both sides may read and write all of it at any time. The executor treats its contents as the
//! client's private business, and copies before it checks.

use crate::file::{FileError, check};
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::{AsFd, BorrowedFd};

/// A mapped window. Stays mapped until dropped.
#[derive(Debug)]
pub struct Window {
    address: u64,
    bytes: u64,
}

impl Window {
    /// Maps all of `file` at exactly `address`.
    ///
    /// # Errors
    /// [`FileError::System`] with EEXIST when something else is mapped there; other [`FileError`]s
    /// when it is not a window file.
    pub fn map(file: BorrowedFd<'_>, address: u64, bytes: u64) -> Result<Self, FileError> {
        check(file, bytes)?;
        Window::map_checked(file, 0, address, bytes)
    }

    /// Maps `bytes` bytes of a window's file of `whole` bytes, from `offset`, at exactly `address`:
    /// another name of that part.
    ///
    /// # Errors
    /// As [`Window::map`], and when the part is not in the file.
    pub fn map_part(file: BorrowedFd<'_>, whole: u64, offset: u64, address: u64, bytes: u64) -> Result<Self, FileError> {
        check(file, whole)?;
        if offset.checked_add(bytes).is_none_or(|end| end > whole) {
            return Err(FileError::System(rustix::io::Errno::INVAL));
        }
        Window::map_checked(file, offset, address, bytes)
    }

    /// Maps a part of a file that is checked and as long.
    fn map_checked(file: BorrowedFd<'_>, offset: u64, address: u64, bytes: u64) -> Result<Self, FileError> {
        let length = usize::try_from(bytes).map_err(|_| rustix::io::Errno::INVAL)?;
        // SAFETY: NOREPLACE: nothing that exists is replaced; the file cannot shrink (checked).
        let got = unsafe {
            rustix::mm::mmap(
                std::ptr::without_provenance_mut(address as usize),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE,
                file.as_fd(),
                offset,
            )?
        };
        if got.addr() as u64 != address {
            // An old kernel treated the address as a hint.
            // SAFETY: the mapping just made, which nobody has seen.
            let _ = unsafe { rustix::mm::munmap(got, length) };
            return Err(FileError::System(rustix::io::Errno::EXIST));
        }
        Ok(Self { address, bytes })
    }

    /// Address of the first byte.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Size in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether `bytes` bytes at `address` lie inside.
    #[must_use]
    pub fn contains(&self, address: u64, bytes: u64) -> bool {
        address >= self.address && address.checked_add(bytes).is_some_and(|end| end <= self.address + self.bytes)
    }

    /// Copies bytes out of the window.
    ///
    /// Returns `None` when the range is not inside.
    #[must_use]
    pub fn read(&self, address: u64, bytes: u64) -> Option<Vec<u8>> {
        let length = usize::try_from(bytes).ok()?;
        if !self.contains(address, bytes) {
            return None;
        }
        let mut out = vec![0; length];
        // SAFETY: the range is inside the mapping (checked), which cannot shrink; a peer may write
        // meanwhile, the copy is an allegation.
        unsafe { std::ptr::copy_nonoverlapping(std::ptr::without_provenance::<u8>(address as usize), out.as_mut_ptr(), length) };
        Some(out)
    }

    /// Copies bytes in; false when the range is not inside.
    #[must_use]
    pub fn write(&self, address: u64, bytes: &[u8]) -> bool {
        if !self.contains(address, bytes.len() as u64) {
            return false;
        }
        // SAFETY: as in `read`, the other way round.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), std::ptr::without_provenance_mut::<u8>(address as usize), bytes.len()) };
        true
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `map` mapped.
        let _ = unsafe { rustix::mm::munmap(std::ptr::without_provenance_mut(self.address as usize), self.bytes as usize) };
    }
}

/// Keeps `[address, address + bytes)` free of other mappings for the life of the process. The range
/// can not be accessed and uses no memory. Returns false when something is mapped there already.
#[must_use]
pub fn reserve(address: u64, bytes: u64) -> bool {
    let Ok(length) = usize::try_from(bytes) else { return false };
    // SAFETY: an anonymous mapping without access that replaces nothing.
    let got = unsafe {
        rustix::mm::mmap_anonymous(
            std::ptr::without_provenance_mut(address as usize),
            length,
            ProtFlags::empty(),
            MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE,
        )
    };
    match got {
        Ok(at) if at.addr() as u64 == address => true,
        Ok(at) => {
            // SAFETY: the mapping just made, which nobody has seen.
            let _ = unsafe { rustix::mm::munmap(at, length) };
            false
        }
        Err(_) => false,
    }
}
