//! The `cuFunc…` calls.

use super::FUNCTIONS;
use super::attributes::{get_attribute, set_attribute, tell_parameter};
use crate::ffi::{Try, error, put};
use crate::library::find_function;
use crate::process;
use core::ffi::{c_char, c_int};
use cumux_abi::{CUfunc_cache, CUfunction, CUfunction_attribute as A, CUfunctionLoadingState, CUmodule, CUsharedconfig};

pub unsafe fn cuFuncGetAttribute(out: *mut c_int, attribute: A, function: CUfunction) -> Try {
    let session = process::enter()?;
    get_attribute(session, out, attribute, &*find_function(session, function)?)
}

pub unsafe fn cuFuncSetAttribute(function: CUfunction, attribute: A, value: c_int) -> Try {
    let session = process::enter()?;
    set_attribute(session, attribute, value, &*find_function(session, function)?)
}

pub unsafe fn cuFuncSetCacheConfig(function: CUfunction, config: CUfunc_cache) -> Try {
    // A hint without effect on results.
    find_function(process::enter()?, function)?;
    if config.0 > CUfunc_cache::CU_FUNC_CACHE_PREFER_EQUAL.0 { Err(error::INVALID_VALUE) } else { Ok(()) }
}

pub unsafe fn cuFuncSetSharedMemConfig(function: CUfunction, _config: CUsharedconfig) -> Try {
    find_function(process::enter()?, function).map(drop)
}

pub unsafe fn cuFuncGetModule(out: *mut CUmodule, function: CUfunction) -> Try {
    let function = find_function(process::enter()?, function)?;
    put!(out, core::ptr::without_provenance_mut(function.origin.module_handle as usize));
    Ok(())
}

pub unsafe fn cuFuncGetName(out: *mut *const c_char, function: CUfunction) -> Try {
    let session = process::enter()?;
    // The module keeps the function, and with it the text, until it is unloaded.
    put!(out, find_function(session, function)?.name.as_ptr());
    Ok(())
}

pub unsafe fn cuFuncGetParamInfo(function: CUfunction, index: usize, offset: *mut usize, bytes: *mut usize) -> Try {
    process::enter()?;
    // A kernel is not taken for a function here, as the driver does it.
    let function = FUNCTIONS.get(function.addr() as u64).ok_or(error::INVALID_HANDLE)?;
    tell_parameter(&function.info, index, offset, bytes)
}

pub unsafe fn cuFuncIsLoaded(out: *mut CUfunctionLoadingState, function: CUfunction) -> Try {
    find_function(process::enter()?, function)?;
    put!(out, CUfunctionLoadingState::CU_FUNCTION_LOADING_STATE_LOADED);
    Ok(())
}

pub unsafe fn cuFuncLoad(function: CUfunction) -> Try {
    find_function(process::enter()?, function).map(drop)
}
