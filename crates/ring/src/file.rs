//! Memory files: making, sealing, checking and mapping them.

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::{AsFd, OwnedFd};

/// Why a memory file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The kernel refuses.
    #[error("cannot make or map shared memory ({0}); check the limits of memory and of open files (ulimit -n) of this process or container")]
    System(#[from] rustix::io::Errno),
    /// The file has another size than the layout says.
    #[error("a shared memory file has {found} bytes where {wanted} are needed; client and service must be of the same cumux version")]
    Size {
        /// Bytes that it has.
        found: u64,
        /// Bytes that it should have.
        wanted: u64,
    },
    /// The file could shrink under a mapping.
    #[error("a shared memory file is not sealed against shrinking; it did not come from a cumux server")]
    Unsealed,
    /// The file could still be written.
    #[error("a shared memory file is not sealed against writing")]
    Writable,
}

/// Makes a zeroed memory file of `bytes` bytes, sealed against growing, shrinking and further
/// seals. It uses memory only where it is touched. `name` is for `/proc` alone.
///
/// # Errors
/// [`FileError::System`] when the kernel refuses.
pub fn create(name: &str, bytes: u64) -> Result<OwnedFd, FileError> {
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&file, bytes)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(file)
}

/// Checks that a file has exactly `bytes` bytes and can no longer shrink.
///
/// # Errors
/// [`FileError`] says which of the two does not hold.
pub fn check(file: impl AsFd, bytes: u64) -> Result<(), FileError> {
    let found = u64::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(0);
    if found != bytes {
        return Err(FileError::Size { found, wanted: bytes });
    }
    if !rustix::fs::fcntl_get_seals(&file)?.contains(SealFlags::SHRINK) {
        return Err(FileError::Unsealed);
    }
    Ok(())
}

/// Makes a memory file of `bytes` bytes that nobody can change afterwards. `fill` is given each
/// piece of it and where that begins.
///
/// # Errors
/// What `fill` answers, and [`FileError::System`] when the kernel refuses.
pub fn create_constant<E: From<FileError>>(name: &str, bytes: u64, mut fill: impl FnMut(u64, &mut [u8]) -> Result<(), E>) -> Result<OwnedFd, E> {
    const PIECE: usize = 1 << 20;
    let system = |errno| E::from(FileError::System(errno));
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).map_err(system)?;
    let mut piece = vec![0; PIECE.min(usize::try_from(bytes).unwrap_or(PIECE))];
    let mut at = 0;
    while at < bytes {
        let length = piece.len().min(usize::try_from(bytes - at).unwrap_or(PIECE));
        fill(at, &mut piece[..length])?;
        let mut rest = &piece[..length];
        while !rest.is_empty() {
            let written = rustix::io::pwrite(&file, rest, at).map_err(system)?;
            rest = &rest[written..];
            at += written as u64;
        }
    }
    rustix::fs::fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK | SealFlags::WRITE | SealFlags::SEAL).map_err(system)?;
    Ok(file)
}

/// The bytes of a file that nobody can change, mapped and not copied.
#[derive(Debug)]
pub struct Constant {
    /// None where the file is empty.
    address: Option<std::ptr::NonNull<u8>>,
    bytes: usize,
}

// SAFETY: the mapping is read-only, and its file is sealed against writing.
unsafe impl Send for Constant {}
// SAFETY: as for `Send`.
unsafe impl Sync for Constant {}

impl Constant {
    /// Maps a file that is sealed against writing and shrinking.
    ///
    /// # Errors
    /// [`FileError`] when it is not such a file or the kernel refuses.
    pub fn of(file: impl AsFd) -> Result<Self, FileError> {
        let seals = rustix::fs::fcntl_get_seals(&file)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(FileError::Unsealed);
        }
        if !seals.contains(SealFlags::WRITE) {
            return Err(FileError::Writable);
        }
        let bytes = usize::try_from(rustix::fs::fstat(&file)?.st_size).map_err(|_| rustix::io::Errno::FBIG)?;
        if bytes == 0 {
            return Ok(Self { address: None, bytes });
        }
        // SAFETY: a fresh private mapping at an address the kernel chooses. The file cannot shrink
        // (checked), so no access raises SIGBUS.
        let address = unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::PRIVATE, &file, 0)? };
        Ok(Self { address: std::ptr::NonNull::new(address.cast()), bytes })
    }
}

impl AsRef<[u8]> for Constant {
    fn as_ref(&self) -> &[u8] {
        match self.address {
            // SAFETY: mapped by `of` for as long as this value lives; the file is sealed against
            // writing (checked there), so the bytes do not change.
            Some(address) => unsafe { std::slice::from_raw_parts(address.as_ptr(), self.bytes) },
            None => &[],
        }
    }
}

impl Drop for Constant {
    fn drop(&mut self) {
        if let Some(address) = self.address {
            // SAFETY: exactly the range that `of` mapped; nobody borrows from it any more.
            let _ = unsafe { rustix::mm::munmap(address.as_ptr().cast(), self.bytes) };
        }
    }
}

/// A shared mapping of a whole file, readable and writable, unmapped on drop.
#[derive(Debug)]
pub struct Mapping {
    address: *mut u8,
    bytes: usize,
}

// SAFETY: the mapping is shared memory that is only accessed through atomics and through copies
// whose results are not trusted; no thread owns it.
unsafe impl Send for Mapping {}
// SAFETY: as for `Send`.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps all of `file`, which must have exactly `bytes` bytes and be sealed.
    ///
    /// # Errors
    /// [`FileError`] when it is not such a file or the kernel refuses.
    pub fn of(file: impl AsFd, bytes: usize) -> Result<Self, FileError> {
        check(&file, bytes as u64)?;
        // SAFETY: a fresh shared mapping at an address the kernel chooses; the file cannot shrink
        // (checked), so no access raises SIGBUS.
        let address =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::NORESERVE, &file, 0)? };
        Ok(Self { address: address.cast(), bytes })
    }

    /// Size in bytes.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    #[inline]
    pub(crate) fn address(&self) -> *mut u8 {
        self.address
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `of` mapped; nobody borrows from it any more.
        let _ = unsafe { rustix::mm::munmap(self.address.cast(), self.bytes) };
    }
}
