//! Profiler control. No profiler can be attached, which is no error: programs bracket their
//! interesting parts with these calls.

use crate::context;
use crate::ffi::Try;
use crate::process;
use core::ffi::{c_char, c_int};
use cumux_abi::CUresult;

pub unsafe fn cuProfilerInitialize(_configuration: *const c_char, _output: *const c_char, _mode: c_int) -> Try {
    process::enter()?;
    Err(CUresult::CUDA_ERROR_PROFILER_DISABLED)
}

pub unsafe fn cuProfilerStart() -> Try {
    process::enter()?;
    context::current().map(drop)
}

pub unsafe fn cuProfilerStop() -> Try {
    process::enter()?;
    context::current().map(drop)
}
