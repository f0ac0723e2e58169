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

    /// Lets this device reach what another one, which it reaches ([`crate::Device::reach`]), has
    /// mapped at `address`: the same bytes of the same extent. No client's work here may touch it
    /// before [`Memory::allow`].
    ///
    /// # Errors
    /// [`DeviceError::NotSupported`] where it reaches no other device, [`DeviceError::System`]
    /// otherwise.
    fn map_peer(&self, address: u64, extent: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        let _ = (address, extent, offset, bytes);
        Err(DeviceError::NotSupported("memory of another device".into()))
    }

    /// Undoes [`Memory::map_peer`] for exactly that range, before the other device unmaps it.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] when nothing is mapped there.
    fn unmap_peer(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        let _ = (address, bytes);
        Ok(())
    }

    /// Maps the client's window (host memory shared with it) at `address`. All of it is readable
    /// and writable for the client's work.
    ///
    /// # Errors
    /// [`DeviceError::System`] when it cannot be mapped.
    fn map_window(&self, client: ClientId, window: BorrowedFd<'_>, address: u64, bytes: u64) -> Result<(), DeviceError>;

    /// True if the device gains by [`Memory::expect_extent`] and [`Memory::expect_window`]: mapping
    /// takes calls of the driver, and those wait while it tears down a broken context.
    fn maps_ahead(&self) -> bool {
        false
    }

    /// Maps an extent that a client of another executor has, before it is needed. It stays until it
    /// is [adopted](Memory::adopt_extent) or [forgotten](Memory::forget_expected), or something
    /// else is mapped there. `name` is the extent's own: no other one ever had it at that address.
    /// False if the device does not do that, or something is mapped there.
    ///
    /// # Errors
    /// As [`Memory::map`].
    fn expect_extent(&self, name: u64, address: u64, extent: BorrowedFd<'_>, bytes: u64) -> Result<bool, DeviceError> {
        let _ = (name, address, extent, bytes);
        Ok(false)
    }

    /// Does what [`Memory::map`] does for an extent that was mapped ahead. False if it was not.
    fn adopt_extent(&self, name: u64, address: u64, bytes: u64) -> bool {
        let _ = (name, address, bytes);
        false
    }

    /// Maps the window of a client of another executor before it is needed, and pins the ranges
    /// `used`. [`Memory::map_window`] takes it if it is given the same file. False if the device
    /// does not do that.
    ///
    /// # Errors
    /// As [`Memory::map_window`].
    fn expect_window(&self, window: BorrowedFd<'_>, address: u64, bytes: u64, used: &[(u64, u64)]) -> Result<bool, DeviceError> {
        let _ = (window, address, bytes, used);
        Ok(false)
    }

    /// Unmaps what was mapped ahead at these addresses and is not adopted.
    fn forget_expected(&self, is_forgotten: &dyn Fn(u64) -> bool) {
        let _ = is_forgotten;
    }

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

    /// False as long as something of these reserved addresses is in use, though it was undone by
    /// [`Memory::unalias`]: nobody else may have them.
    fn is_range_spare(&self, address: u64, bytes: u64) -> bool {
        let _ = (address, bytes);
        true
    }

    /// Makes the range at `user` another name of the window's memory at `window`: copies may use
    /// either address. So may kernels where the device has the client's own addresses, and where
    /// `user` is one at which memory of the host can be mapped
    /// ([`cumux_wire::layout::HOST_RANGES`]). It may be slow, and is not called on a dispatch
    /// thread.
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
