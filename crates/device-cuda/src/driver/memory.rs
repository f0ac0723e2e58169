//! Memory: device memory behind descriptors, address space, mappings, and pinned host memory.

use super::CardAddress;
use super::context::Driver;
use super::handle::Stream;
use super::nested::is_nested;
use crate::fault::{Call, CudaError};
use core::ptr::{null_mut, with_exposed_provenance_mut};
use cumux_abi::types as t;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// The driver exports and imports memory as file descriptors.
const AS_DESCRIPTOR: t::CUmemAllocationHandleType = t::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

impl Driver {
    /// This card's memory, as a location.
    fn location(&self) -> t::CUmemLocation {
        t::CUmemLocation { type_: t::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: self.raw_device() }
    }

    fn extent_properties(&self) -> t::CUmemAllocationProp {
        t::CUmemAllocationProp {
            type_: t::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: AS_DESCRIPTOR,
            location: self.location(),
            win32HandleMetaData: null_mut(),
            allocFlags: t::CUmemAllocationProp_st__bindgen_ty_1::default(),
        }
    }

    /// Granularity of extents and mappings in bytes.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn granule(&self) -> Call<u64> {
        let (mut bytes, properties) = (0, self.extent_properties());
        let option = t::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
        // SAFETY: the call reads a local and writes one number, a local.
        CudaError::check(unsafe { (self.table()?.cuMemGetAllocationGranularity)(&raw mut bytes, &raw const properties, option) })?;
        Ok(bytes as u64)
    }

    /// Creates device memory with undefined contents. The returned descriptor alone keeps it alive.
    ///
    /// # Errors
    /// The driver's, for example because the card is full.
    pub(crate) fn create_memory(&self, bytes: u64) -> Call<OwnedFd> {
        let (mut handle, properties) = (0, self.extent_properties());
        // SAFETY: the call reads a local and writes one handle, a local.
        CudaError::check(unsafe { (self.table()?.cuMemCreate)(&raw mut handle, bytes as usize, &raw const properties, 0) })?;
        let mut descriptor: RawFd = -1;
        // SAFETY: for this kind of handle the call writes one descriptor, a local.
        let exported = CudaError::check(unsafe { (self.table()?.cuMemExportToShareableHandle)((&raw mut descriptor).cast(), handle, AS_DESCRIPTOR, 0) });
        // SAFETY: the handle made above; nobody uses it after this.
        let _ = unsafe { (self.table()?.cuMemRelease)(handle) };
        exported?;
        // SAFETY: a descriptor that the driver has just opened for us, and nobody else has.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    /// Maps memory at an address of a reservation, readable and writable by the card.
    ///
    /// # Errors
    /// The driver's. Then nothing is mapped.
    pub(crate) fn map(&self, address: CardAddress, memory: BorrowedFd<'_>, offset: u64, bytes: u64) -> Call<()> {
        let table = self.table()?;
        let mut handle = 0;
        let descriptor = with_exposed_provenance_mut(memory.as_raw_fd() as usize);
        // SAFETY: for this kind of handle the second argument is a descriptor in the form of a
        // pointer, which is not followed; the call writes one handle, a local.
        CudaError::check(unsafe { (table.cuMemImportFromShareableHandle)(&raw mut handle, descriptor, AS_DESCRIPTOR) })?;
        // SAFETY: a card address, in a reservation of ours, and the handle made above.
        let mapped = CudaError::check(unsafe { (table.cuMemMap)(address, bytes as usize, offset as usize, handle, 0) });
        // SAFETY: the handle made above; nobody uses it after this. A mapping keeps the memory.
        let _ = unsafe { (table.cuMemRelease)(handle) };
        mapped?;
        let access = t::CUmemAccessDesc { location: self.location(), flags: t::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
        // SAFETY: the card address just mapped; the call reads one local.
        let allowed = CudaError::check(unsafe { (table.cuMemSetAccess)(address, bytes as usize, &raw const access, 1) });
        if allowed.is_err() {
            let _ = self.unmap(address, bytes);
        }
        allowed
    }

    /// Lets this card reach memory that another card of the process has mapped, or not any more.
    ///
    /// # Errors
    /// The driver's, for example because the cards are not linked.
    pub(crate) fn set_peer_access(&self, address: CardAddress, bytes: u64, allowed: bool) -> Call<()> {
        use t::CUmemAccess_flags as Access;
        let flags = if allowed { Access::CU_MEM_ACCESS_FLAGS_PROT_READWRITE } else { Access::CU_MEM_ACCESS_FLAGS_PROT_NONE };
        let access = t::CUmemAccessDesc { location: self.location(), flags };
        // SAFETY: a card address that a card of this process has mapped, else the call fails; it
        // reads one local.
        CudaError::check(unsafe { (self.table()?.cuMemSetAccess)(address, bytes as usize, &raw const access, 1) })
    }

    /// Undoes [`Driver::map`] for exactly these bytes.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn unmap(&self, address: CardAddress, bytes: u64) -> Call<()> {
        // SAFETY: a card address that `map` mapped; else the call fails.
        CudaError::check(unsafe { (self.table()?.cuMemUnmap)(address, bytes as usize) })
    }

    /// Reserves address space, at `wanted` if that range is free (0: anywhere), else elsewhere.
    /// Returns its address.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn reserve_addresses(&self, wanted: CardAddress, bytes: u64) -> Call<CardAddress> {
        let mut address = 0;
        // SAFETY: the call writes one address, a local. It takes only a range that is free.
        CudaError::check(unsafe { (self.table()?.cuMemAddressReserve)(&raw mut address, bytes as usize, 0, wanted, 0) })?;
        Ok(address)
    }

    /// Undoes [`Driver::reserve_addresses`] for exactly these bytes.
    pub(crate) fn free_addresses(&self, address: CardAddress, bytes: u64) {
        if let Ok(table) = self.table() {
            // SAFETY: a reservation of ours with nothing mapped in it; else the call fails.
            let _ = unsafe { (table.cuMemAddressFree)(address, bytes as usize) };
        }
    }

    /// Pins host memory of a window and lets the card reach it at its host address.
    ///
    /// # Errors
    /// The driver's, for example because there is not enough memory to pin.
    pub(crate) fn register_host(&self, address: CardAddress, bytes: u64) -> Call<()> {
        let flags = t::CU_MEMHOSTREGISTER_PORTABLE | t::CU_MEMHOSTREGISTER_DEVICEMAP;
        // SAFETY: the range belongs to a window that stays mapped until `unregister_host`. Its
        // bytes are shared with another process, so Rust code never holds references to them.
        let registered =
            CudaError::check(unsafe { (self.table()?.cuMemHostRegister_v2)(with_exposed_provenance_mut(address as usize), bytes as usize, flags) });
        if registered == Err(CudaError::NOT_SUPPORTED) && is_nested() { Ok(()) } else { registered }
    }

    /// True if kernels reach what was registered so.
    pub(crate) fn reaches_windows(&self) -> bool {
        !is_nested()
    }

    /// Undoes [`Driver::register_host`] for the range that begins here.
    pub(crate) fn unregister_host(&self, address: CardAddress) {
        if let Ok(table) = self.table() {
            // SAFETY: what `register_host` registered; else the call fails.
            let _ = unsafe { (table.cuMemHostUnregister)(with_exposed_provenance_mut(address as usize)) };
        }
    }

    /// Reads device memory. Returns when the copy is complete or has failed. `wait` is called in
    /// between: it may wait for the stream in its own way.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn read(&self, address: CardAddress, into: &mut [u8], stream: Stream, wait: impl FnOnce() -> Call<()>) -> Call<()> {
        // SAFETY: a card address and a live stream. The call writes exactly the slice, which lives
        // until the synchronisation below has ended the copy.
        let begun = CudaError::check(unsafe { (self.table()?.cuMemcpyDtoHAsync_v2)(into.as_mut_ptr().cast(), address, into.len(), stream.raw()) });
        let waited = wait();
        self.synchronize(stream).and(waited).and(begun)
    }

    /// Writes device memory. Returns when the copy is complete or has failed. `wait` is as for
    /// [`Driver::read`].
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn write(&self, address: CardAddress, bytes: &[u8], stream: Stream, wait: impl FnOnce() -> Call<()>) -> Call<()> {
        // SAFETY: a card address and a live stream. The call reads exactly the slice, which lives
        // until the synchronisation below has ended the copy.
        let begun = CudaError::check(unsafe { (self.table()?.cuMemcpyHtoDAsync_v2)(address, bytes.as_ptr().cast(), bytes.len(), stream.raw()) });
        let waited = wait();
        self.synchronize(stream).and(waited).and(begun)
    }
}
