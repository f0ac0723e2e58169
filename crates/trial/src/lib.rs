//! The smallest CUDA program: it makes a context on each device, writes memory, reads it back, and
//! goes. What it says is what any program would meet.
//!
//! No module is loaded: on a real card that would wait for a quiet moment, and keep others waiting.
//! The unsafe calls are here, so that the program itself can forbid them.
#![warn(missing_docs, missing_debug_implementations)]

use cumux_abi::functions::{
    cuCtxSetCurrent, cuDeviceGet, cuDeviceGetCount, cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRetain, cuInit, cuMemAlloc_v2, cuMemFree_v2,
    cuMemcpyDtoH_v2, cuMemsetD32_v2,
};
use cumux_abi::{CUcontext, CUdevice, CUdeviceptr, CUresult, result};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW, Symbol};
use std::path::Path;

/// Words that are written and read back.
const WORDS: usize = 64;
/// What is written.
const VALUE: u32 = 0x5eed_f00d;

/// Why a program would not be served.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// The library cannot be loaded, or is none of CUDA's.
    #[error("{}", because(.0))]
    Library(libloading::Error),
    /// A call failed.
    #[error("{call}: {} ({code})", result::name(*code).map_or_else(|| "unknown error".into(), |name| name.to_string_lossy()))]
    Call {
        /// The call.
        call: &'static str,
        /// Its result.
        code: u32,
    },
    /// There is no device.
    #[error("no device is visible")]
    NoDevice,
    /// What was read is not what was written.
    #[error("device {device} gave back another value than was written")]
    Wrong {
        /// The device's ordinal.
        device: i32,
    },
}

/// A context on each device, kept until this value is dropped.
#[derive(Debug)]
pub struct Trial {
    library: Library,
    devices: Vec<CUdevice>,
}

impl Trial {
    /// Makes a context on each device of this library, and writes and reads there.
    ///
    /// # Errors
    /// Whatever a program would meet.
    pub fn make(library: &Path) -> Result<Self, TrialError> {
        // SAFETY: loading runs the library's initialisers. The caller names a `libcuda.so.1`, which
        // every CUDA program loads so.
        let library = unsafe { Library::open(Some(library), RTLD_NOW | RTLD_LOCAL) }.map_err(TrialError::Library)?;
        let mut trial = Self { library, devices: Vec::new() };
        let init: Symbol<cuInit> = trial.function(b"cuInit\0")?;
        // SAFETY: the symbol has this type in every driver; it takes a number.
        check("cuInit", unsafe { init(0) })?;
        let get_count: Symbol<cuDeviceGetCount> = trial.function(b"cuDeviceGetCount\0")?;
        let mut count = 0;
        // SAFETY: the pointer is valid for a write.
        check("cuDeviceGetCount", unsafe { get_count(&raw mut count) })?;
        if count <= 0 {
            return Err(TrialError::NoDevice);
        }
        for ordinal in 0..count {
            trial.try_device(ordinal)?;
        }
        Ok(trial)
    }

    /// How many devices there are.
    #[must_use]
    pub fn devices(&self) -> usize {
        self.devices.len()
    }

    fn function<T>(&self, name: &[u8]) -> Result<Symbol<T>, TrialError> {
        // SAFETY: every use names a function of the driver with the type that its header gives it.
        unsafe { self.library.get(name) }.map_err(TrialError::Library)
    }

    fn try_device(&mut self, ordinal: i32) -> Result<(), TrialError> {
        let get: Symbol<cuDeviceGet> = self.function(b"cuDeviceGet\0")?;
        let retain: Symbol<cuDevicePrimaryCtxRetain> = self.function(b"cuDevicePrimaryCtxRetain\0")?;
        let set_current: Symbol<cuCtxSetCurrent> = self.function(b"cuCtxSetCurrent\0")?;
        let allocate: Symbol<cuMemAlloc_v2> = self.function(b"cuMemAlloc_v2\0")?;
        let set: Symbol<cuMemsetD32_v2> = self.function(b"cuMemsetD32_v2\0")?;
        let copy: Symbol<cuMemcpyDtoH_v2> = self.function(b"cuMemcpyDtoH_v2\0")?;
        let free: Symbol<cuMemFree_v2> = self.function(b"cuMemFree_v2\0")?;
        let (mut device, mut context): (CUdevice, CUcontext) = (CUdevice::default(), std::ptr::null_mut());
        // SAFETY: the pointer is valid for a write.
        check("cuDeviceGet", unsafe { get(&raw mut device, ordinal) })?;
        // SAFETY: the pointer is valid for a write, and the device is the driver's.
        check("cuDevicePrimaryCtxRetain", unsafe { retain(&raw mut context, device) })?;
        self.devices.push(device);
        // SAFETY: the context is the driver's and is retained.
        check("cuCtxSetCurrent", unsafe { set_current(context) })?;
        let mut address: CUdeviceptr = 0;
        let mut words = [0_u32; WORDS];
        let bytes = std::mem::size_of_val(&words);
        // SAFETY: the pointer is valid for a write.
        check("cuMemAlloc", unsafe { allocate(&raw mut address, bytes) })?;
        // SAFETY: the address is of an allocation of so many words.
        let written = check("cuMemsetD32", unsafe { set(address, VALUE, WORDS) });
        // SAFETY: the array has room for so many bytes, as has the allocation.
        let read = written.and_then(|()| check("cuMemcpyDtoH", unsafe { copy(words.as_mut_ptr().cast(), address, bytes) }));
        // SAFETY: the address is that of the allocation, which is used no more.
        let freed = check("cuMemFree", unsafe { free(address) });
        read.and(freed)?;
        if words.iter().any(|word| *word != VALUE) {
            return Err(TrialError::Wrong { device: ordinal });
        }
        Ok(())
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        let Ok(release) = self.function::<cuDevicePrimaryCtxRelease_v2>(b"cuDevicePrimaryCtxRelease_v2\0") else { return };
        for device in self.devices.drain(..) {
            // SAFETY: the device's context was retained once for each entry.
            let _ = unsafe { release(device) };
        }
    }
}

/// What the dynamic linker says, which names the file.
fn because(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

fn check(call: &'static str, CUresult(code): CUresult) -> Result<(), TrialError> {
    if code == 0 { Ok(()) } else { Err(TrialError::Call { call, code }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_library_of_cuda_is_named() {
        let error = Trial::make(Path::new("/nowhere/libcuda.so.1")).unwrap_err().to_string();
        assert!(error.contains("/nowhere/libcuda.so.1"), "{error}");
        let error = check("cuInit", CUresult(100)).unwrap_err().to_string();
        assert_eq!(error, "cuInit: CUDA_ERROR_NO_DEVICE (100)");
    }
}
