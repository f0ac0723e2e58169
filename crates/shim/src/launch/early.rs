//! Launches as programs made them until CUDA 3: block, shared memory and parameters are set on the
//! function one by one, and kept for the next launch. PyCUDA still does so. By the manual
//! (Execution Control, deprecated): the grid has two dimensions, and a launch without a stream goes
//! into the NULL stream.

use super::plain;
use crate::ffi::{Try, error};
use crate::function::{EarlyLaunch, Function};
use crate::limits::Config;
use crate::sync::lock;
use crate::{library, process};
use core::ffi::{c_int, c_uint, c_void};
use cumux_abi::{CUfunction, CUstream};
use cumux_wire::limits::volume;
use cumux_wire::record::MAX_PARAMETERS;
use std::sync::Arc;

fn with<T>(function: CUfunction, act: impl FnOnce(&Function, &mut EarlyLaunch) -> Try<T>) -> Try<T> {
    let session = process::enter()?;
    let function: Arc<Function> = library::find_function(session, function)?;
    let mut early = lock(&function.early);
    act(&function, &mut early)
}

/// A dimension, which must not be negative or 0.
fn dimension(given: c_int) -> Try<u32> {
    u32::try_from(given).ok().filter(|given| *given > 0).ok_or(error::INVALID_VALUE)
}

pub unsafe fn cuFuncSetBlockShape(function: CUfunction, x: c_int, y: c_int, z: c_int) -> Try {
    with(function, |function, early| {
        let block = [dimension(x)?, dimension(y)?, dimension(z)?];
        if volume(block) > u64::from(function.info.max_threads) {
            return Err(error::INVALID_VALUE);
        }
        early.block = block;
        Ok(())
    })
}

pub unsafe fn cuFuncSetSharedSize(function: CUfunction, bytes: c_uint) -> Try {
    with(function, |_, early| {
        early.shared = bytes;
        Ok(())
    })
}

pub unsafe fn cuParamSetSize(function: CUfunction, bytes: c_uint) -> Try {
    with(function, |_, early| {
        if bytes as usize > MAX_PARAMETERS {
            return Err(error::INVALID_VALUE);
        }
        early.size = bytes as usize;
        Ok(())
    })
}

/// Sets some bytes of the parameters.
fn set(function: CUfunction, offset: c_int, bytes: &[u8]) -> Try {
    with(function, |_, early| {
        let from = usize::try_from(offset).map_err(|_| error::INVALID_VALUE)?;
        let end = from.checked_add(bytes.len()).filter(|end| *end <= MAX_PARAMETERS).ok_or(error::INVALID_VALUE)?;
        if early.parameters.len() < end {
            early.parameters.resize(end, 0);
        }
        early.parameters[from..end].copy_from_slice(bytes);
        Ok(())
    })
}

pub unsafe fn cuParamSeti(function: CUfunction, offset: c_int, value: c_uint) -> Try {
    set(function, offset, &value.to_ne_bytes())
}

pub unsafe fn cuParamSetf(function: CUfunction, offset: c_int, value: f32) -> Try {
    set(function, offset, &value.to_ne_bytes())
}

pub unsafe fn cuParamSetv(function: CUfunction, offset: c_int, from: *mut c_void, bytes: c_uint) -> Try {
    if from.is_null() || bytes as usize > MAX_PARAMETERS {
        return Err(error::INVALID_VALUE);
    }
    // SAFETY: the program says that so many bytes are there.
    set(function, offset, unsafe { core::slice::from_raw_parts(from.cast_const().cast(), bytes as usize) })
}

pub unsafe fn cuLaunch(function: CUfunction) -> Try {
    // SAFETY: the C caller vouches for its arguments, and the other name asks the same of them.
    unsafe { cuLaunchGrid(function, 1, 1) }
}

pub unsafe fn cuLaunchGrid(function: CUfunction, width: c_int, height: c_int) -> Try {
    // SAFETY: as above.
    unsafe { cuLaunchGridAsync(function, width, height, core::ptr::null_mut()) }
}

pub unsafe fn cuLaunchGridAsync(function: CUfunction, width: c_int, height: c_int, stream: CUstream) -> Try {
    const BUFFER: usize = 1;
    const SIZE: usize = 2;
    let EarlyLaunch { block, shared, mut size, mut parameters } = with(function, |_, early| Ok(early.clone()))?;
    let config = Config { grid: [dimension(width)?, dimension(height)?, 1], block, cluster: [0; 3], shared, cooperative: false };
    if block == [0; 3] {
        return Err(crate::log::because(error::INVALID_VALUE, "cuLaunchGrid before cuFuncSetBlockShape: the kernel has no block"));
    }
    parameters.resize(size, 0);
    let name = core::ptr::without_provenance_mut::<c_void>;
    let mut extra = [name(BUFFER), parameters.as_mut_ptr().cast(), name(SIZE), (&raw mut size).cast(), core::ptr::null_mut()];
    // SAFETY: the list is complete and lives until the launch has copied what it names.
    unsafe { plain(function, &config, stream, core::ptr::null_mut(), extra.as_mut_ptr()) }
}
