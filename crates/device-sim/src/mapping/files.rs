//! Memory files: created sealed, and checked before they are mapped.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use cumux_device::DeviceError;
use rustix::fs::{MemfdFlags, SealFlags};

/// What identifies a file as long as it exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

/// A zeroed file of `bytes` bytes, which can neither grow nor shrink. A page takes memory once it
/// is touched.
///
/// # Errors
/// [`DeviceError::System`] if the system refuses.
pub(crate) fn create(name: &str, bytes: u64) -> Result<OwnedFd, DeviceError> {
    let make = || {
        let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, bytes)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
        Ok(file)
    };
    make().map_err(|error: rustix::io::Errno| DeviceError::System(format!("a memory file of {bytes} bytes cannot be made: {error}")))
}

/// Checks that the bytes from `offset` to `offset + bytes` lie in the file, and that they always
/// will. Returns the file's identity and its size in bytes.
///
/// # Errors
/// [`DeviceError::System`] with the reason.
pub(crate) fn check(file: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<(Identity, u64), DeviceError> {
    let seals = rustix::fs::fcntl_get_seals(file)
        .map_err(|error| DeviceError::System(format!("the file is no memory file that can be sealed ({error}); make it with memfd_create")))?;
    if !seals.contains(SealFlags::SHRINK) {
        return Err(DeviceError::System("the memory file could be shrunk while it is mapped; seal it with F_SEAL_SHRINK".into()));
    }
    let stat = rustix::fs::fstat(file.as_fd()).map_err(|error| DeviceError::System(format!("the memory file cannot be examined: {error}")))?;
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    if offset.checked_add(bytes).is_none_or(|end| end > size) {
        return Err(DeviceError::System(format!("the memory file has {size} bytes; {bytes} from offset {offset} do not lie in it")));
    }
    Ok((Identity { device: stat.st_dev, inode: stat.st_ino }, size))
}

/// Bytes of a memory file that have been touched, and so are taken of the machine's memory.
pub(crate) fn resident(file: BorrowedFd<'_>) -> u64 {
    rustix::fs::fstat(file).ok().and_then(|stat| u64::try_from(stat.st_blocks).ok()).map_or(0, |blocks| blocks.saturating_mul(512))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_could_shrink_is_refused() {
        let open = rustix::fs::memfd_create("t", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&open, 8192).unwrap();
        assert!(check(open.as_fd(), 0, 4096).unwrap_err().to_string().contains("F_SEAL_SHRINK"));
        rustix::fs::fcntl_add_seals(&open, SealFlags::SHRINK).unwrap();
        assert!(check(open.as_fd(), 0, 8192).is_ok());
        assert!(check(open.as_fd(), 4096, 4097).is_err());
        assert!(check(open.as_fd(), u64::MAX, 2).is_err());
    }

    #[test]
    fn a_created_file_cannot_change_its_size() {
        let file = create("t", 8192).unwrap();
        assert!(check(file.as_fd(), 0, 8192).is_ok());
        assert!(rustix::fs::ftruncate(&file, 4096).is_err());
        assert!(rustix::fs::ftruncate(&file, 16384).is_err());
    }
}
