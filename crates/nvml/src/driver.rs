//! The devices, as the `libcuda.so.1` of this process says.
//!
//! A program may look for devices with NVML, fork, and use them in the child: PyTorch counts them
//! so. CUDA can't be used in the child of a process that has used it, so that must not happen here.
//! Until the process itself uses `libcuda.so.1`, a child process asks it ([`crate::apart`]), and
//! for all devices: like NVIDIA's, NVML takes no notice of `CUDA_VISIBLE_DEVICES`. Who uses CUDA
//! before NVML finds the devices that CUDA has there. What was found once is kept.

use crate::{NvmlError, apart};
use core::ffi::{CStr, c_char, c_int};
use cumux_abi::functions::{
    cuDeviceGet, cuDeviceGetAttribute, cuDeviceGetCount, cuDeviceGetName, cuDeviceGetPCIBusId, cuDeviceGetUuid_v2, cuDriverGetVersion, cuInit,
};
use cumux_abi::{CUdevice, CUdevice_attribute, CUresult, CUuuid};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW, Symbol};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

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

/// A device of the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Device {
    pub name: String,
    /// `0000:01:00.0`.
    pub pci_address: String,
    /// `GPU-` and sixteen bytes in the usual groups.
    pub uuid: String,
    /// Major and minor.
    pub capability: (c_int, c_int),
}

/// What the driver says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// The version of CUDA.
    pub version: c_int,
    pub devices: Vec<Device>,
}

static FOUND: OnceLock<Found> = OnceLock::new();

/// The last question that was not answered.
static UNANSWERED: Mutex<Option<(Instant, NvmlError)>> = Mutex::new(None);

/// For so long nobody asks again.
const PATIENCE: Duration = Duration::from_secs(5);
/// A service that starts with this question takes a second or two; a client waits a minute for one.
const WAITS: Duration = Duration::from_secs(65);
/// Which devices a client sees, which is no matter to NVML; what a client says and where it is
/// recorded, which this child is not to do.
const NOT_FOR_THE_CHILD: [&str; 3] = ["CUDA_VISIBLE_DEVICES", "CUMUX_VERBOSE", "CUMUX_RECORD"];

/// What the driver says.
///
/// # Errors
/// DriverNotLoaded without one that answers.
pub(crate) fn found() -> Result<&'static Found, NvmlError> {
    if let Some(found) = FOUND.get() {
        return Ok(found);
    }
    // Nothing is held while it is asked: another thread may fork meanwhile.
    let unanswered = || UNANSWERED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((at, error)) = *unanswered()
        && at.elapsed() < PATIENCE
    {
        return Err(error);
    }
    let found = if is_in_use()? { ask() } else { ask_in_a_child() };
    *unanswered() = found.as_ref().err().map(|error| (Instant::now(), *error));
    found.map(|found| FOUND.get_or_init(|| found))
}

/// Asks the driver in a child; here where there can be no child, or this process has begun to use
/// the driver meanwhile.
fn ask_in_a_child() -> Result<Found, NvmlError> {
    let asked = apart::in_a_child(WAITS, || {
        // SAFETY: this thread is the only one of this process.
        NOT_FOR_THE_CHILD.iter().for_each(|variable| unsafe { std::env::remove_var(variable) });
        ask().map(|found| found.to_text())
    });
    match asked {
        Ok(text) => Found::of(&text),
        Err(NvmlError::Unknown) => ask(),
        Err(error) => {
            if is_in_use()? {
                ask()
            } else {
                Err(error)
            }
        }
    }
}

/// Whether this process uses the driver, or it is not ours.
fn is_in_use() -> Result<bool, NvmlError> {
    // It is loaded, or there is no answer at all.
    let _: Symbol<cuInit> = function(b"cuInit\0")?;
    let Ok(is_decided) = function::<unsafe extern "C" fn() -> c_int>(b"cumux_shim_is_decided\0") else { return Ok(true) };
    // SAFETY: it takes nothing, and any thread may call it.
    Ok(unsafe { is_decided() } != 0)
}

/// Asks the driver.
fn ask() -> Result<Found, NvmlError> {
    let init: Symbol<cuInit> = function(b"cuInit\0")?;
    let get_version: Symbol<cuDriverGetVersion> = function(b"cuDriverGetVersion\0")?;
    let get_count: Symbol<cuDeviceGetCount> = function(b"cuDeviceGetCount\0")?;
    let (mut version, mut count) = (0, 0);
    // SAFETY: it takes a number, and any thread may call it again.
    check(unsafe { init(0) })?;
    // SAFETY: the pointer is valid for a write.
    check(unsafe { get_version(&raw mut version) })?;
    // SAFETY: the pointer is valid for a write.
    check(unsafe { get_count(&raw mut count) })?;
    let devices: Result<_, _> = (0..count).map(ask_about).collect();
    Ok(Found { version, devices: devices? })
}

/// Asks the driver about the device of an ordinal.
fn ask_about(ordinal: c_int) -> Result<Device, NvmlError> {
    let get: Symbol<cuDeviceGet> = function(b"cuDeviceGet\0")?;
    let get_name: Symbol<cuDeviceGetName> = function(b"cuDeviceGetName\0")?;
    let get_address: Symbol<cuDeviceGetPCIBusId> = function(b"cuDeviceGetPCIBusId\0")?;
    let get_uuid: Symbol<cuDeviceGetUuid_v2> = function(b"cuDeviceGetUuid_v2\0")?;
    let mut device = CUdevice::default();
    // SAFETY: the pointer is valid for a write.
    check(unsafe { get(&raw mut device, ordinal) })?;
    // SAFETY: there is so much room.
    let name = text_of(|room, length| unsafe { get_name(room, length, device) })?;
    // SAFETY: there is so much room.
    let pci_address = text_of(|room, length| unsafe { get_address(room, length, device) })?;
    let mut bytes = CUuuid::default();
    // SAFETY: the pointer is valid for a write.
    check(unsafe { get_uuid(&raw mut bytes, device) })?;
    let digits: String = bytes.bytes.iter().map(|byte| format!("{:02x}", byte.cast_unsigned())).collect();
    let uuid = format!("GPU-{}-{}-{}-{}-{}", &digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]);
    let major = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)?;
    let minor = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device)?;
    Ok(Device { name, pci_address, uuid, capability: (major, minor) })
}

fn attribute(attribute: CUdevice_attribute, device: CUdevice) -> Result<c_int, NvmlError> {
    let get: Symbol<cuDeviceGetAttribute> = function(b"cuDeviceGetAttribute\0")?;
    let mut found = 0;
    // SAFETY: the pointer is valid for a write.
    check(unsafe { get(&raw mut found, attribute, device) })?;
    Ok(found)
}

impl Found {
    /// The version in the first line, and a line for each device: its fields with tabs between
    /// them.
    fn to_text(&self) -> String {
        let mut text = format!("{}\n", self.version);
        for Device { name, pci_address, uuid, capability: (major, minor) } in &self.devices {
            let name = name.replace(['\t', '\n'], " ");
            text += &format!("{name}\t{pci_address}\t{uuid}\t{major}\t{minor}\n");
        }
        text
    }

    /// What such a text says.
    fn of(text: &str) -> Result<Found, NvmlError> {
        let device = |line: &str| {
            let [name, pci_address, uuid, major, minor] = line.split('\t').collect::<Vec<_>>().try_into().ok()?;
            let [name, pci_address, uuid] = [name, pci_address, uuid].map(str::to_owned);
            Some(Device { name, pci_address, uuid, capability: (major.parse().ok()?, minor.parse().ok()?) })
        };
        let mut lines = text.lines();
        let version = lines.next().and_then(|line| line.parse().ok());
        let devices: Option<Vec<Device>> = lines.map(device).collect();
        version.zip(devices).map(|(version, devices)| Found { version, devices }).ok_or(NvmlError::DriverNotLoaded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_child_has_found_is_read_as_it_was() {
        let device = |name: &str| Device { name: name.to_owned(), pci_address: "0000:01:00.0".to_owned(), uuid: "GPU-1".to_owned(), capability: (9, 0) };
        for devices in [Vec::new(), vec![device("NVIDIA H200"), device("é")]] {
            let found = Found { version: 13000, devices };
            assert_eq!(Found::of(&found.to_text()), Ok(found));
        }
        assert_eq!(
            Found::of(&Found { version: 1, devices: vec![device("a\tb\n")] }.to_text()).map(|found| found.devices[0].name.clone()),
            Ok("a b ".to_owned())
        );
        for wrong in ["", "x", "13000\nname\t1\n", "13000\na\tb\tc\t9\tx\n"] {
            assert_eq!(Found::of(wrong), Err(NvmlError::DriverNotLoaded), "{wrong:?}");
        }
    }
}
