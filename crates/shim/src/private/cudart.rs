//! CUDART_INTERFACE: how the CUDA runtime loads images of older kinds and finds the primary context
//! of a device.

use super::{TableWord, driver, function, unknown_slots};
use core::ffi::{c_uint, c_void};
use cumux_abi::{CUcontext, CUdevice, CUmodule, CUresult};

const UNKNOWN: [TableWord; 13] = unknown_slots!(CudartInterface; 0 1 2 3 4 5 6 7 8 9 10 11 12);

/// The table of the CUDA runtime.
pub(super) static INTERFACE: [TableWord; 13] = [
    TableWord::size(13),
    function!(load),
    function!(primary_context),
    UNKNOWN[3],
    UNKNOWN[4],
    UNKNOWN[5],
    function!(load_with_options),
    function!(heap_size_hint),
    function!(load_container),
    UNKNOWN[9],
    UNKNOWN[10],
    UNKNOWN[11],
    function!(load_compilers),
];

extern "C" fn load(module: *mut CUmodule, image: *const c_void) -> CUresult {
    driver!(cuModuleLoadData(module, image))
}

/// The runtime passes no options here.
extern "C" fn load_with_options(module: *mut CUmodule, image: *const c_void, _options: *mut c_void, _values: *mut c_void, _count: c_uint) -> CUresult {
    driver!(cuModuleLoadData(module, image))
}

/// As above, with the fatbin's container in place of its wrapper.
extern "C" fn load_container(image: *const c_void, module: *mut CUmodule, _options: *mut c_void, _values: *mut c_void, _count: c_uint) -> CUresult {
    driver!(cuModuleLoadData(module, image))
}

/// The handle of a device's primary context, without making the context active.
extern "C" fn primary_context(context: *mut CUcontext, device: CUdevice) -> CUresult {
    crate::border::call("primary context", || {
        if crate::process::is_forked_child() {
            return Err(CUresult::CUDA_ERROR_NOT_INITIALIZED);
        }
        let handle = crate::context::primary_handle(device)?;
        if context.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null; the table's contract makes it writable.
        unsafe { context.write(handle) };
        Ok(())
    })
}

extern "C" fn heap_size_hint(_bytes: usize) {}

/// The real driver loads its PTX compilers ahead of time; here the executor has them.
extern "C" fn load_compilers() -> CUresult {
    CUresult::CUDA_SUCCESS
}
