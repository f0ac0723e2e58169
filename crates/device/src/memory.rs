//! Memory: extents, windows, and who may touch what.

use crate::error::DeviceError;
use crate::ids::ClientId;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Maps memory and says which client may touch it.
pub trait Memory {
    /// Bytes of memory that can be had at most: the card's, unless there is less behind it.
    fn capacity(&self) -> u64;

    /// Granularity of extents and mappings in bytes.
    fn granule(&self) -> u64;

    /// Makes an extent of zeroed device memory, not mapped yet. `bytes` is a multiple of the
    /// granule.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] when the card is full, [`DeviceError::System`] when the file
    /// cannot be made.
    fn create_extent(&self, bytes: u64) -> Result<OwnedFd, DeviceError>;

    /// Announces that the descriptors of an extent are closed next, for devices that account for
    /// extents and cannot see the closing. Mapped memory counts until it is unmapped.
    fn forget_extent(&self, extent: BorrowedFd<'_>) {
        let _ = extent;
    }

    /// Maps `bytes` of an extent from `offset` at `address` (in the arena), readable and writable
    /// for the device. No client may touch it before [`Memory::allow`].
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] when something is mapped there, [`DeviceError::System`] otherwise.
    fn map(&self, address: u64, extent: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<(), DeviceError>;

    /// Undoes [`Memory::map`] for exactly that range. Permissions must have been revoked.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] when nothing is mapped there.
    fn unmap(&self, address: u64, bytes: u64) -> Result<(), DeviceError>;

    /// Maps the client's window (host memory shared with it) at `address`. All of it is readable
    /// and writable for the client's work.
    ///
    /// # Errors
    /// [`DeviceError::System`] when it cannot be mapped.
    fn map_window(&self, client: ClientId, window: BorrowedFd<'_>, address: u64, bytes: u64) -> Result<(), DeviceError>;

    /// Makes these bytes of the client's window usable as pinned memory: kernels may get pointers
    /// into them once this returns. It may be slow (pages are pinned) and is not called on a
    /// dispatch thread. Devices that can use all of a window anyway do nothing.
    ///
    /// # Errors
    /// [`DeviceError::System`] when the memory cannot be pinned.
    fn use_window(&self, client: ClientId, address: u64, bytes: u64) -> Result<(), DeviceError> {
        let _ = (client, address, bytes);
        Ok(())
    }

    /// Makes the client's private range at `user` another name of the window's memory at `window`:
    /// kernels may use either address.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] when ranges overlap.
    fn alias(&self, client: ClientId, user: u64, window: u64, bytes: u64) -> Result<(), DeviceError>;

    /// Undoes [`Memory::alias`] for the range at `user`.
    fn unalias(&self, client: ClientId, user: u64);

    /// Makes the bytes `[address, address + bytes)` an allocation of `client`: its kernels and
    /// copies may touch exactly these bytes.
    fn allow(&self, client: ClientId, address: u64, bytes: u64, writable: bool);

    /// Undoes [`Memory::allow`] for the allocation that begins at `address`. Work that uses it has
    /// retired, or faults from now on.
    fn revoke(&self, client: ClientId, address: u64);

    /// Writes an allocation outside any stream (module initialisation, scrubbing). The range must
    /// be mapped.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] when it is not mapped.
    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), DeviceError>;
    /// Reads an allocation outside any stream.
    ///
    /// # Errors
    /// As [`Memory::write`].
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), DeviceError>;
}
