//! Version, error names, and the two doors through which everything else is found.
#![allow(non_snake_case)]

use core::ffi::{CStr, c_char, c_int};
use cumux_abi::{CUmoduleLoadingMode, CUresult};

pub use crate::private::cuGetExportTable;
pub use crate::procaddress::{cuGetProcAddress, cuGetProcAddress_v2};

/// # Safety
/// `version` is null or writable.
pub unsafe fn cuDriverGetVersion(version: *mut c_int) -> CUresult {
    // SAFETY: the caller promises that `version` is null or writable.
    unsafe { write(version, cumux_abi::DRIVER_VERSION) }
}

/// # Safety
/// `mode` is null or writable.
pub unsafe fn cuModuleGetLoadingMode(mode: *mut CUmoduleLoadingMode) -> CUresult {
    // SAFETY: the caller promises that `mode` is null or writable.
    unsafe { write(mode, CUmoduleLoadingMode::CU_MODULE_LAZY_LOADING) }
}

/// # Safety
/// `text` is null or writable.
pub unsafe fn cuGetErrorName(error: CUresult, text: *mut *const c_char) -> CUresult {
    // SAFETY: the caller promises that `text` is null or writable.
    unsafe { describe(cumux_abi::result::name(error.0), text) }
}

/// # Safety
/// `text` is null or writable.
pub unsafe fn cuGetErrorString(error: CUresult, text: *mut *const c_char) -> CUresult {
    // SAFETY: the caller promises that `text` is null or writable.
    unsafe { describe(cumux_abi::result::text(error.0), text) }
}

/// An unknown code is an invalid value, and the text becomes null.
unsafe fn describe(known: Option<&'static CStr>, text: *mut *const c_char) -> CUresult {
    // SAFETY: the caller promises that `text` is null or writable.
    let written = unsafe { write(text, known.map_or(core::ptr::null(), CStr::as_ptr)) };
    if known.is_none() { CUresult::CUDA_ERROR_INVALID_VALUE } else { written }
}

unsafe fn write<T>(place: *mut T, value: T) -> CUresult {
    if place.is_null() {
        return CUresult::CUDA_ERROR_INVALID_VALUE;
    }
    // SAFETY: not null, and the caller promises that it is writable.
    unsafe { place.write(value) };
    CUresult::CUDA_SUCCESS
}
