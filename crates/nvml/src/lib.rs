//! `libnvidia-ml.so.1` for programs on software GPUs: which devices there are, and nothing of what
//! only a driver knows.
//!
//! XLA (JAX) does not look for a device where it cannot open this library, and other programs count
//! devices with it. What it says comes from the `libcuda.so.1` of the same process ([`driver`]), so
//! that both name the same devices. Whatever has no true answer here (temperature, utilisation,
//! links, processes, memory in use) is refused with `NVML_ERROR_NOT_SUPPORTED`. On a real card this
//! library is not in the process: NVIDIA's is.
//!
//! # Rules of this house
//! Names, numbers and sizes are those of NVIDIA's *NVML API Reference*. A device's handle is its
//! ordinal plus one, so that no handle is null. Initialising does nothing, and no call comes too
//! early. No panic leaves this library.
#![warn(missing_docs, missing_debug_implementations)]
// The contract of these functions is that of NVML's manual.
#![allow(clippy::missing_safety_doc, non_snake_case)]

mod apart;
mod driver;

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use driver::Device;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// `nvmlReturn_t`, as far as it is used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NvmlError {
    InvalidArgument = 2,
    NotSupported = 3,
    NotFound = 6,
    InsufficientSize = 7,
    DriverNotLoaded = 9,
    Unknown = 999,
}

const SUCCESS: c_int = 0;

/// A device, as programs name it: its ordinal plus one.
type Handle = *mut c_void;

/// Runs a call and makes a number of what it has found.
fn answer(body: impl FnOnce() -> Result<(), NvmlError>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => SUCCESS,
        Ok(Err(error)) => error as c_int,
        Err(_) => NvmlError::Unknown as c_int,
    }
}

/// The ordinal behind a handle.
fn ordinal_of(handle: Handle) -> Result<usize, NvmlError> {
    let ordinal = handle.addr().checked_sub(1).ok_or(NvmlError::InvalidArgument)?;
    if ordinal < driver::found()?.devices.len() { Ok(ordinal) } else { Err(NvmlError::InvalidArgument) }
}

/// The device behind a handle.
fn device_of(handle: Handle) -> Result<&'static Device, NvmlError> {
    driver::found()?.devices.get(ordinal_of(handle)?).ok_or(NvmlError::InvalidArgument)
}

/// Gives the first device of which this is true.
///
/// # Safety
/// `out` is null or valid for a write.
unsafe fn give_device(out: *mut Handle, is_it: impl Fn(&Device) -> bool) -> Result<(), NvmlError> {
    let ordinal = driver::found()?.devices.iter().position(is_it).ok_or(NvmlError::NotFound)?;
    // SAFETY: as the caller says.
    unsafe { give(out, core::ptr::without_provenance_mut(ordinal + 1)) }
}

/// Writes a value where the caller wants it.
///
/// # Safety
/// `out` is null or valid for a write.
unsafe fn give<T>(out: *mut T, value: T) -> Result<(), NvmlError> {
    if out.is_null() {
        return Err(NvmlError::InvalidArgument);
    }
    // SAFETY: as the caller says, and it is not null.
    unsafe { out.write_unaligned(value) };
    Ok(())
}

/// Writes a text with its zero byte.
///
/// # Safety
/// `out` is null or has room for `room` bytes.
unsafe fn give_text(out: *mut c_char, room: c_uint, text: &str) -> Result<(), NvmlError> {
    if out.is_null() {
        return Err(NvmlError::InvalidArgument);
    }
    if text.len() >= room as usize {
        return Err(NvmlError::InsufficientSize);
    }
    // SAFETY: there is room for the text and one byte more.
    unsafe { out.copy_from_nonoverlapping(text.as_ptr().cast(), text.len()) };
    // SAFETY: as above.
    unsafe { out.add(text.len()).write(0) };
    Ok(())
}

/// A string of a C caller.
///
/// # Safety
/// `text` is null or a string.
unsafe fn text_of<'a>(text: *const c_char) -> Result<&'a str, NvmlError> {
    if text.is_null() {
        return Err(NvmlError::InvalidArgument);
    }
    // SAFETY: as the caller says.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| NvmlError::InvalidArgument)
}

/// Functions under several names: NVML keeps the old ones.
macro_rules! functions {
    ($($(#[$about:meta])* $($name:ident),*: fn $arguments:tt $body:block)*) => {
        $(functions! { @each [$(#[$about])*] $arguments $body $($name)* })*
    };
    (@each $about:tt $arguments:tt $body:block $($name:ident)*) => {
        $(functions! { @one $about $arguments $body $name })*
    };
    (@one [$(#[$about:meta])*] ($($argument:ident: $type:ty),*) $body:block $name:ident) => {
        $(#[$about])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            answer(|| $body)
        }
    };
}

functions! {
    /// Nothing is to be done.
    nvmlInit, nvmlInit_v2, nvmlShutdown: fn() { Ok(()) }
    /// As above, with flags that say which devices must be there.
    nvmlInitWithFlags: fn(_flags: c_uint) { Ok(()) }
    /// The version of CUDA, as the driver API says it: 13000.
    nvmlSystemGetCudaDriverVersion, nvmlSystemGetCudaDriverVersion_v2: fn(version: *mut c_int) {
        let found = driver::found()?.version;
        // SAFETY: NVML's contract: a place for the version.
        unsafe { give(version, found) }
    }
    /// How many devices there are.
    nvmlDeviceGetCount, nvmlDeviceGetCount_v2: fn(count: *mut c_uint) {
        let found = driver::found()?.devices.len();
        // SAFETY: NVML's contract: a place for the number.
        unsafe { give(count, c_uint::try_from(found).unwrap_or(c_uint::MAX)) }
    }
    /// The device of an ordinal.
    nvmlDeviceGetHandleByIndex, nvmlDeviceGetHandleByIndex_v2: fn(index: c_uint, device: *mut Handle) {
        if index as usize >= driver::found()?.devices.len() {
            return Err(NvmlError::InvalidArgument);
        }
        // SAFETY: NVML's contract: a place for the handle.
        unsafe { give(device, core::ptr::without_provenance_mut(index as usize + 1)) }
    }
    /// The device of a UUID: `GPU-…`.
    nvmlDeviceGetHandleByUUID: fn(uuid: *const c_char, device: *mut Handle) {
        // SAFETY: NVML's contract: a string.
        let wanted = unsafe { text_of(uuid) }?;
        // SAFETY: and a place for the handle.
        unsafe { give_device(device, |found| found.uuid == wanted) }
    }
    /// The device of a PCI address: `0000:01:00.0`, with a domain of four or of eight digits.
    nvmlDeviceGetHandleByPciBusId, nvmlDeviceGetHandleByPciBusId_v2: fn(address: *const c_char, device: *mut Handle) {
        // SAFETY: NVML's contract: a string.
        let wanted = short_address(unsafe { text_of(address) }?);
        // SAFETY: and a place for the handle.
        unsafe { give_device(device, |found| short_address(&found.pci_address) == wanted) }
    }
    /// Its ordinal.
    nvmlDeviceGetIndex, nvmlDeviceGetMinorNumber: fn(device: Handle, index: *mut c_uint) {
        let found = ordinal_of(device)?;
        // SAFETY: NVML's contract: a place for the number.
        unsafe { give(index, c_uint::try_from(found).unwrap_or(c_uint::MAX)) }
    }
    /// Its name.
    nvmlDeviceGetName: fn(device: Handle, name: *mut c_char, length: c_uint) {
        let found = &device_of(device)?.name;
        // SAFETY: NVML's contract: so much room.
        unsafe { give_text(name, length, found) }
    }
    /// Its UUID.
    nvmlDeviceGetUUID: fn(device: Handle, uuid: *mut c_char, length: c_uint) {
        let found = &device_of(device)?.uuid;
        // SAFETY: NVML's contract: so much room.
        unsafe { give_text(uuid, length, found) }
    }
    /// Its compute capability.
    nvmlDeviceGetCudaComputeCapability: fn(device: Handle, major: *mut c_int, minor: *mut c_int) {
        let found = device_of(device)?.capability;
        // SAFETY: NVML's contract: places for both numbers.
        unsafe { give(major, found.0) }?;
        // SAFETY: as above.
        unsafe { give(minor, found.1) }
    }
}

/// A PCI address with a domain of four digits.
fn short_address(address: &str) -> String {
    let lower = address.to_ascii_lowercase();
    let domain = lower.find(':').unwrap_or(0);
    lower.get(domain.saturating_sub(4)..).unwrap_or(&lower).to_owned()
}

/// What an error means, in words.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(error: c_int) -> *const c_char {
    let text = match error {
        SUCCESS => c"the call succeeded",
        2 => c"an argument is invalid",
        3 => c"a software GPU has no answer to this call",
        6 => c"there is no such device",
        7 => c"the given room is too small",
        9 => c"no CUDA driver answers: is cumux there?",
        _ => c"unknown error",
    };
    text.as_ptr()
}

/// Functions whose true answer only a driver has. Their arguments do not matter.
macro_rules! refused {
    ($($name:ident)*) => { $(
        #[doc = concat!("Refuses `", stringify!($name), "`.")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> c_int {
            NvmlError::NotSupported as c_int
        }
    )* };
}

refused! {
    nvmlSystemGetDriverVersion nvmlSystemGetNVMLVersion nvmlSystemGetProcessName nvmlSystemGetTopologyGpuSet
    nvmlDeviceGetMemoryInfo nvmlDeviceGetMemoryInfo_v2 nvmlDeviceGetBAR1MemoryInfo nvmlDeviceGetUtilizationRates
    nvmlDeviceGetEncoderUtilization nvmlDeviceGetDecoderUtilization nvmlDeviceGetTemperature nvmlDeviceGetTemperatureV
    nvmlDeviceGetTemperatureThreshold nvmlDeviceGetPowerUsage nvmlDeviceGetPowerManagementLimit nvmlDeviceGetEnforcedPowerLimit
    nvmlDeviceGetTotalEnergyConsumption nvmlDeviceGetFanSpeed nvmlDeviceGetFanSpeed_v2 nvmlDeviceGetPerformanceState
    nvmlDeviceGetClockInfo nvmlDeviceGetMaxClockInfo nvmlDeviceGetClock nvmlDeviceGetCurrentClocksThrottleReasons
    nvmlDeviceGetCurrPcieLinkGeneration nvmlDeviceGetCurrPcieLinkWidth nvmlDeviceGetMaxPcieLinkGeneration nvmlDeviceGetMaxPcieLinkWidth
    nvmlDeviceGetPcieThroughput nvmlDeviceGetNvLinkState nvmlDeviceGetNvLinkCapability nvmlDeviceGetNvLinkVersion
    nvmlDeviceGetNvLinkRemotePciInfo nvmlDeviceGetNvLinkRemotePciInfo_v2 nvmlDeviceGetNvLinkRemoteDeviceType
    nvmlDeviceGetGpuFabricInfo nvmlDeviceGetGpuFabricInfoV nvmlDeviceGetP2PStatus nvmlDeviceGetTopologyCommonAncestor
    nvmlDeviceGetTopologyNearestGpus nvmlDeviceGetCpuAffinity nvmlDeviceGetMemoryAffinity nvmlDeviceGetCpuAffinityWithinScope
    nvmlDeviceGetNumaNodeId nvmlDeviceGetPciInfo nvmlDeviceGetPciInfo_v2 nvmlDeviceGetPciInfo_v3 nvmlDeviceGetBrand
    nvmlDeviceGetArchitecture nvmlDeviceGetSerial nvmlDeviceGetBoardId nvmlDeviceGetBoardPartNumber nvmlDeviceGetVbiosVersion
    nvmlDeviceGetInforomVersion nvmlDeviceGetMultiGpuBoard nvmlDeviceGetNumGpuCores nvmlDeviceGetMemoryBusWidth nvmlDeviceGetAttributes
    nvmlDeviceGetAttributes_v2 nvmlDeviceGetComputeMode nvmlDeviceSetComputeMode nvmlDeviceGetPersistenceMode nvmlDeviceSetPersistenceMode
    nvmlDeviceGetDisplayMode nvmlDeviceGetDisplayActive nvmlDeviceGetEccMode nvmlDeviceGetTotalEccErrors nvmlDeviceGetMemoryErrorCounter
    nvmlDeviceGetRetiredPages nvmlDeviceGetRemappedRows nvmlDeviceGetSupportedEventTypes nvmlDeviceGetMigMode
    nvmlDeviceGetMaxMigDeviceCount nvmlDeviceGetMigDeviceHandleByIndex nvmlDeviceIsMigDeviceHandle nvmlDeviceGetGpuInstanceId
    nvmlDeviceGetComputeInstanceId nvmlDeviceGetDeviceHandleFromMigDeviceHandle nvmlDeviceGetComputeRunningProcesses
    nvmlDeviceGetComputeRunningProcesses_v2 nvmlDeviceGetComputeRunningProcesses_v3 nvmlDeviceGetGraphicsRunningProcesses
    nvmlDeviceGetGraphicsRunningProcesses_v2 nvmlDeviceGetGraphicsRunningProcesses_v3 nvmlDeviceGetMPSComputeRunningProcesses_v3
    nvmlDeviceGetProcessUtilization nvmlDeviceGetAccountingMode nvmlDeviceGetFieldValues nvmlDeviceGetSamples
    nvmlDeviceGetVirtualizationMode nvmlUnitGetCount nvmlEventSetCreate nvmlEventSetFree nvmlEventSetWait_v2 nvmlDeviceRegisterEvents
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_compared_with_domains_of_four_digits() {
        assert_eq!(short_address("00000000:3B:00.0"), "0000:3b:00.0");
        assert_eq!(short_address("0000:3b:00.0"), "0000:3b:00.0");
        assert_eq!(short_address("é"), "é");
    }

    #[test]
    fn what_does_not_fit_is_not_written() {
        let mut room = [0x7f; 6];
        // SAFETY: there is so much room.
        assert_eq!(unsafe { give_text(room.as_mut_ptr(), 6, "twelve") }, Err(NvmlError::InsufficientSize));
        assert_eq!(room, [0x7f; 6]);
        // SAFETY: there is so much room.
        assert_eq!(unsafe { give_text(room.as_mut_ptr(), 6, "five ") }, Ok(()));
        assert_eq!(room[5], 0);
        // SAFETY: null is allowed.
        assert_eq!(unsafe { give(core::ptr::null_mut::<c_int>(), 1) }, Err(NvmlError::InvalidArgument));
    }

    #[test]
    fn a_handle_is_a_device_of_the_driver() {
        // SAFETY: null is allowed, and this is no handle.
        assert_eq!(unsafe { nvmlDeviceGetIndex(core::ptr::null_mut(), core::ptr::null_mut()) }, NvmlError::InvalidArgument as c_int);
        assert_eq!(nvmlDeviceGetTemperature(), NvmlError::NotSupported as c_int);
    }
}
