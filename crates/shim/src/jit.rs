//! JIT options that change what is compiled. PTX text is the only thing that is compiled here: an
//! option for it becomes a directive in it ([`limit_registers`]).

use crate::ffi::Try;
use core::ffi::{c_uint, c_void};
use cumux_abi::CUjit_option;
pub(crate) use cumux_fatbin::limit_registers;

/// `CU_JIT_MAX_REGISTERS` among the options of a call.
///
/// # Safety
/// The arrays are what a C caller passed to a load or link call.
///
/// # Errors
/// INVALID_VALUE if they are missing.
pub(crate) unsafe fn most_registers(count: c_uint, options: *const CUjit_option, values: *const *mut c_void) -> Try<Option<u32>> {
    if count == 0 || values.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller vouches for the arrays.
    let (options, values) = unsafe { (crate::ffi::array(options, count as usize)?, crate::ffi::array(values, count as usize)?) };
    let given = options.iter().zip(values).find(|(option, _)| **option == CUjit_option::CU_JIT_MAX_REGISTERS);
    // The low half of the value is the number, as the manual has it.
    Ok(given.map(|(_, value)| (value.addr() & 0xFFFF_FFFF) as u32).filter(|number| *number > 0))
}
