//! What our NVML asks of this library.

use crate::decide;
use core::ffi::c_int;

/// Whether calls of this process have led anywhere yet: 0 until it has begun with `cuInit`, then 1.
/// A program may look for devices with NVML, fork, and use them in the child.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cumux_shim_is_decided() -> c_int {
    c_int::from(decide::has_begun())
}
