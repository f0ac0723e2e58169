//! The devices, as the `libcuda.so.1` of this process says.

use crate::NvmlError;
use core::ffi::{CStr, c_char, c_int};
use cumux_abi::functions::{
    cuDeviceGet, cuDeviceGetAttribute, cuDeviceGetCount, cuDeviceGetName, cuDeviceGetPCIBusId, cuDeviceGetUuid_v2, cuDriverGetVersion, cuInit,
};
use cumux_abi::{CUdevice, CUdevice_attribute, CUresult, CUuuid};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW, Symbol};
use std::sync::OnceLock;

/// Longest name or address, with its zero byte.
const LONGEST: usize = 256;

static DRIVER: OnceLock<Option<Library>> = OnceLock::new();

/// A function of the driver.
fn function<T>(name: &[u8]) -> Result<Symbol<T>, NvmlError> {
    // SAFETY: loading runs the library's initialisers; every CUDA program loads it so.
    let driver = DRIVER.get_or_init(|| unsafe { Library::open(Some("libcuda.so.1"), RTLD_NOW | RTLD_LOCAL) }.ok());
    let driver = driver.as_ref().ok_or(NvmlError::DriverNotLoaded)?;
    // SAFETY: every use names a function of the driver with the type that its header gives it.
    unsafe { driver.get(name) }.map_err(|_| NvmlError::DriverNotLoaded)
}

fn check(result: CUresult) -> Result<(), NvmlError> {
    if result == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(NvmlError::DriverNotLoaded) }
}

/// A text that a call writes.
fn text_of(call: impl FnOnce(*mut c_char, c_int) -> CUresult) -> Result<String, NvmlError> {
    let mut room: [c_char; LONGEST] = [0; LONGEST];
    check(call(room.as_mut_ptr(), LONGEST as c_int - 1))?;
    // SAFETY: the last byte is zero, whatever was written.
    Ok(unsafe { CStr::from_ptr(room.as_ptr()) }.to_string_lossy().into_owned())
}

/// The version of CUDA.
pub(crate) fn version() -> Result<c_int, NvmlError> {
    let get: Symbol<cuDriverGetVersion> = function(b"cuDriverGetVersion\0")?;
    let mut found = 0;
    // SAFETY: the pointer is valid for a write.
    check(unsafe { get(&raw mut found) })?;
    Ok(found)
}

/// How many devices there are.
pub(crate) fn count() -> Result<u32, NvmlError> {
    let init: Symbol<cuInit> = function(b"cuInit\0")?;
    let get: Symbol<cuDeviceGetCount> = function(b"cuDeviceGetCount\0")?;
    let mut found = 0;
    // SAFETY: it takes a number, and any thread may call it again.
    check(unsafe { init(0) })?;
    // SAFETY: the pointer is valid for a write.
    check(unsafe { get(&raw mut found) })?;
    u32::try_from(found).map_err(|_| NvmlError::DriverNotLoaded)
}

/// A device of the driver.
#[derive(Debug)]
pub(crate) struct Device {
    ordinal: u32,
    device: CUdevice,
}

impl Device {
    /// The device of an ordinal.
    pub(crate) fn at(ordinal: u32) -> Result<Self, NvmlError> {
        if ordinal >= count()? {
            return Err(NvmlError::InvalidArgument);
        }
        let get: Symbol<cuDeviceGet> = function(b"cuDeviceGet\0")?;
        let mut device = CUdevice::default();
        // SAFETY: the pointer is valid for a write.
        check(unsafe { get(&raw mut device, ordinal as c_int) })?;
        Ok(Self { ordinal, device })
    }

    pub(crate) fn ordinal(&self) -> u32 {
        self.ordinal
    }

    pub(crate) fn name(&self) -> Result<String, NvmlError> {
        let get: Symbol<cuDeviceGetName> = function(b"cuDeviceGetName\0")?;
        // SAFETY: there is so much room.
        text_of(|room, length| unsafe { get(room, length, self.device) })
    }

    /// `0000:01:00.0`.
    pub(crate) fn pci_address(&self) -> Result<String, NvmlError> {
        let get: Symbol<cuDeviceGetPCIBusId> = function(b"cuDeviceGetPCIBusId\0")?;
        // SAFETY: there is so much room.
        text_of(|room, length| unsafe { get(room, length, self.device) })
    }

    /// `GPU-` and sixteen bytes in the usual groups.
    pub(crate) fn uuid(&self) -> Result<String, NvmlError> {
        let get: Symbol<cuDeviceGetUuid_v2> = function(b"cuDeviceGetUuid_v2\0")?;
        let mut found = CUuuid::default();
        // SAFETY: the pointer is valid for a write.
        check(unsafe { get(&raw mut found, self.device) })?;
        let digits: String = found.bytes.iter().map(|byte| format!("{:02x}", byte.cast_unsigned())).collect();
        Ok(format!("GPU-{}-{}-{}-{}-{}", &digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]))
    }

    pub(crate) fn capability(&self) -> Result<(c_int, c_int), NvmlError> {
        let major = self.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        Ok((major, self.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?))
    }

    fn attribute(&self, attribute: CUdevice_attribute) -> Result<c_int, NvmlError> {
        let get: Symbol<cuDeviceGetAttribute> = function(b"cuDeviceGetAttribute\0")?;
        let mut found = 0;
        // SAFETY: the pointer is valid for a write.
        check(unsafe { get(&raw mut found, attribute, self.device) })?;
        Ok(found)
    }
}
