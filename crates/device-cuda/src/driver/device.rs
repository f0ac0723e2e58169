//! A card without a context, and what the driver says about it.

use super::library;
use super::table::Table;
use crate::fault::{Call, CudaError, remedy};
use core::ffi::c_char;
use cumux_abi::{CUcomputemode, CUdevice, CUdevice_P2PAttribute as Way, CUdevice_attribute, CUuuid};
use cumux_device::{DeviceError, Peer};

/// Bytes of the buffer for a card's name.
const NAME_BYTES: usize = 256;

/// One card of the driver.
#[derive(Clone, Copy)]
pub(crate) struct DeviceHandle {
    table: &'static Table,
    device: CUdevice,
}

/// Loads and starts the driver. Returns its functions and the number of its cards.
fn start() -> Result<(&'static Table, u32), DeviceError> {
    let table = library::load()?;
    // SAFETY: the call takes no pointers.
    CudaError::check(unsafe { (table.cuInit)(0) }).map_err(cannot_start)?;
    let mut count = 0;
    // SAFETY: the call writes one integer, a local.
    CudaError::check(unsafe { (table.cuDeviceGetCount)(&raw mut count) }).map_err(cannot_start)?;
    Ok((table, count.cast_unsigned()))
}

fn cannot_start(error: CudaError) -> DeviceError {
    DeviceError::System(remedy::cannot_start(error))
}

impl DeviceHandle {
    /// Finds card `ordinal`, as the driver counts.
    ///
    /// # Errors
    /// A sentence with a remedy: the driver does not start, or there is no such card.
    pub(crate) fn open(ordinal: u32) -> Result<DeviceHandle, DeviceError> {
        let (table, count) = start()?;
        if ordinal >= count {
            return Err(DeviceError::Invalid(remedy::no_such_card(ordinal, count)));
        }
        DeviceHandle::get(table, ordinal)
    }

    /// Finds all cards, in the driver's order.
    ///
    /// # Errors
    /// A sentence with a remedy: the driver does not start.
    pub(crate) fn all() -> Result<Vec<DeviceHandle>, DeviceError> {
        let (table, count) = start()?;
        (0..count).map(|ordinal| DeviceHandle::get(table, ordinal)).collect()
    }

    fn get(table: &'static Table, ordinal: u32) -> Result<DeviceHandle, DeviceError> {
        let mut device = 0;
        // SAFETY: the call writes one integer, a local.
        CudaError::check(unsafe { (table.cuDeviceGet)(&raw mut device, ordinal.cast_signed()) }).map_err(cannot_start)?;
        Ok(DeviceHandle { table, device })
    }

    /// The driver's functions. No context needs to be current for calls on a device.
    pub(super) fn table(&self) -> &'static Table {
        self.table
    }

    /// The driver's handle for the card.
    pub(super) fn raw(&self) -> CUdevice {
        self.device
    }

    /// The card's name; empty if the driver does not say.
    pub(crate) fn name(&self) -> String {
        let mut bytes = [0 as c_char; NAME_BYTES];
        // SAFETY: the call writes at most the bytes announced, into a local.
        let _ = unsafe { (self.table.cuDeviceGetName)(bytes.as_mut_ptr(), NAME_BYTES as i32, self.device) };
        bytes.iter().take_while(|b| **b != 0).map(|b| char::from(b.cast_unsigned())).collect()
    }

    /// The card's UUID; zeros if the driver does not say.
    pub(crate) fn uuid(&self) -> [u8; 16] {
        let mut uuid = CUuuid::default();
        // SAFETY: the call writes 16 bytes, a local.
        let _ = unsafe { (self.table.cuDeviceGetUuid_v2)(&raw mut uuid, self.device) };
        uuid.bytes.map(i8::cast_unsigned)
    }

    /// The card's memory in bytes; 0 if the driver does not say.
    pub(crate) fn memory(&self) -> u64 {
        let mut bytes = 0;
        // SAFETY: the call writes one number, a local.
        let _ = unsafe { (self.table.cuDeviceTotalMem_v2)(&raw mut bytes, self.device) };
        bytes as u64
    }

    /// The value of an attribute; `None` if this driver does not know it.
    pub(crate) fn attribute(&self, attribute: CUdevice_attribute) -> Option<i32> {
        let mut value = 0;
        // SAFETY: the call writes one number, a local.
        let read: Call<()> = CudaError::check(unsafe { (self.table.cuDeviceGetAttribute)(&raw mut value, attribute, self.device) });
        read.ok().map(|()| value)
    }

    /// Whether this card reaches the memory of card `other`, and how.
    pub(crate) fn reach(&self, other: u32) -> Option<Peer> {
        let other = DeviceHandle::get(self.table, other).ok()?;
        let mut possible = 0;
        // SAFETY: the call writes one integer, a local.
        CudaError::check(unsafe { (self.table.cuDeviceCanAccessPeer)(&raw mut possible, self.device, other.device) }).ok()?;
        let read = |attribute| {
            let mut value = 0;
            // SAFETY: the call writes one integer, a local.
            let read = CudaError::check(unsafe { (self.table.cuDeviceGetP2PAttribute)(&raw mut value, attribute, self.device, other.device) });
            read.map_or(0, |()| value)
        };
        (possible != 0).then(|| Peer {
            uuid: other.uuid(),
            rank: read(Way::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK),
            atomics: read(Way::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED) != 0,
            arrays: read(Way::CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED) != 0,
        })
    }

    /// The compute mode; the default one if the driver does not say.
    pub(crate) fn compute_mode(&self) -> CUcomputemode {
        let mode = self.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE).unwrap_or(0);
        CUcomputemode(mode.cast_unsigned())
    }

    /// Compute capability: major * 10 + minor.
    pub(crate) fn compute_capability(&self) -> u32 {
        let read = |attribute| self.attribute(attribute).unwrap_or(0);
        let major = read(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
        let minor = read(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
        (major * 10 + minor).cast_unsigned()
    }
}
