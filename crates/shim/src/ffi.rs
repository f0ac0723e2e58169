//! Crossing the C border: pointers that a program passes, read and written in one place.
//!
//! The macros hide the `unsafe` that every implementation would otherwise repeat. They may be used
//! only on pointers that came in as arguments of an exported function, whose C caller vouches for
//! them: a null pointer is refused, any other is believed, as the real driver does.

use core::ffi::{CStr, c_char};
use cumux_abi::CUresult;

/// What an implementation answers.
pub type Try<T = ()> = Result<T, CUresult>;

/// Short names of the results in use.
pub mod error {
    use super::CUresult;
    /// `CUDA_ERROR_INVALID_VALUE`.
    pub const INVALID_VALUE: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
    /// `CUDA_ERROR_OUT_OF_MEMORY`.
    pub const OUT_OF_MEMORY: CUresult = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
    /// `CUDA_ERROR_NOT_INITIALIZED`.
    pub const NOT_INITIALIZED: CUresult = CUresult::CUDA_ERROR_NOT_INITIALIZED;
    /// `CUDA_ERROR_INVALID_DEVICE`.
    pub const INVALID_DEVICE: CUresult = CUresult::CUDA_ERROR_INVALID_DEVICE;
    /// `CUDA_ERROR_INVALID_IMAGE`.
    pub const INVALID_IMAGE: CUresult = CUresult::CUDA_ERROR_INVALID_IMAGE;
    /// `CUDA_ERROR_INVALID_CONTEXT`.
    pub const INVALID_CONTEXT: CUresult = CUresult::CUDA_ERROR_INVALID_CONTEXT;
    /// `CUDA_ERROR_INVALID_HANDLE`.
    pub const INVALID_HANDLE: CUresult = CUresult::CUDA_ERROR_INVALID_HANDLE;
    /// `CUDA_ERROR_CONTEXT_IS_DESTROYED`.
    pub const CONTEXT_IS_DESTROYED: CUresult = CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED;
    /// `CUDA_ERROR_FILE_NOT_FOUND`.
    pub const FILE_NOT_FOUND: CUresult = CUresult::CUDA_ERROR_FILE_NOT_FOUND;
    /// `CUDA_ERROR_NOT_FOUND`.
    pub const NOT_FOUND: CUresult = CUresult::CUDA_ERROR_NOT_FOUND;
    /// `CUDA_ERROR_NOT_READY`.
    pub const NOT_READY: CUresult = CUresult::CUDA_ERROR_NOT_READY;
    /// `CUDA_ERROR_NOT_PERMITTED`.
    pub const NOT_PERMITTED: CUresult = CUresult::CUDA_ERROR_NOT_PERMITTED;
    /// `CUDA_ERROR_NOT_SUPPORTED`.
    pub const NOT_SUPPORTED: CUresult = CUresult::CUDA_ERROR_NOT_SUPPORTED;
    /// `CUDA_ERROR_UNSUPPORTED_LIMIT`.
    pub const UNSUPPORTED_LIMIT: CUresult = CUresult::CUDA_ERROR_UNSUPPORTED_LIMIT;
    /// `CUDA_ERROR_INVALID_CLUSTER_SIZE`.
    pub const INVALID_CLUSTER_SIZE: CUresult = CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE;
    /// `CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED`.
    pub const ALREADY_REGISTERED: CUresult = CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    /// `CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED`.
    pub const NOT_REGISTERED: CUresult = CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    /// `CUDA_ERROR_MPS_RPC_FAILURE`.
    pub const MPS_RPC_FAILURE: CUresult = CUresult::CUDA_ERROR_MPS_RPC_FAILURE;
    /// `CUDA_ERROR_OPERATING_SYSTEM`.
    pub const OPERATING_SYSTEM: CUresult = CUresult::CUDA_ERROR_OPERATING_SYSTEM;
    /// `CUDA_ERROR_UNKNOWN`.
    pub const UNKNOWN: CUresult = CUresult::CUDA_ERROR_UNKNOWN;
}

/// Writes `value` where the program wants it.
///
/// # Safety
/// `out` is null or a pointer the C caller vouched for.
///
/// # Errors
/// INVALID_VALUE when `out` is null.
pub unsafe fn write<T>(out: *mut T, value: T) -> Try {
    if out.is_null() {
        return Err(error::INVALID_VALUE);
    }
    // SAFETY: not null, and the caller vouches for the rest; unaligned pointers are taken as C
    // programs may pass them in packed structures.
    unsafe { out.write_unaligned(value) };
    Ok(())
}

/// Reads a structure or word of the program.
///
/// # Safety
/// `from` is null or a pointer the C caller vouched for.
///
/// # Errors
/// INVALID_VALUE when `from` is null.
pub unsafe fn read<T: Copy>(from: *const T) -> Try<T> {
    if from.is_null() {
        return Err(error::INVALID_VALUE);
    }
    // SAFETY: not null, and the caller vouches for the rest.
    Ok(unsafe { from.read_unaligned() })
}

/// A NUL-terminated name.
///
/// # Safety
/// `from` is null or a C string that lives during the call.
///
/// # Errors
/// INVALID_VALUE when `from` is null or not UTF-8 (no symbol is).
pub unsafe fn string<'a>(from: *const c_char) -> Try<&'a str> {
    if from.is_null() {
        return Err(error::INVALID_VALUE);
    }
    // SAFETY: not null, NUL-terminated by the caller's word.
    let text = unsafe { CStr::from_ptr(from) };
    text.to_str().map_err(|_| error::INVALID_VALUE)
}

/// The array of `count` elements at `from`; an empty one where `count` is 0.
///
/// # Safety
/// `from` is null or `count` readable, aligned elements that nobody changes during the call.
///
/// # Errors
/// INVALID_VALUE when `from` is null and `count` is not 0.
pub unsafe fn array<'a, T>(from: *const T, count: usize) -> Try<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if from.is_null() || !from.is_aligned() {
        return Err(error::INVALID_VALUE);
    }
    // SAFETY: not null, aligned, and the caller vouches for the length.
    Ok(unsafe { core::slice::from_raw_parts(from, count) })
}

/// Copies `text` and a NUL into a buffer of `bytes` bytes, cut where it does not fit.
///
/// # Safety
/// `out` is null or a writable buffer of `bytes` bytes.
///
/// # Errors
/// INVALID_VALUE when there is no room at all.
pub unsafe fn fill_text(out: *mut c_char, bytes: usize, text: &[u8]) -> Try {
    if out.is_null() || bytes == 0 {
        return Err(error::INVALID_VALUE);
    }
    let length = text.len().min(bytes - 1);
    // SAFETY: `length + 1 <= bytes`, and the caller vouches for the buffer.
    unsafe {
        core::ptr::copy_nonoverlapping(text.as_ptr(), out.cast::<u8>(), length);
        out.add(length).write(0);
    }
    Ok(())
}

/// `forward!(call(arguments))`: one exported function answered by another, with arguments of its
/// own caller.
macro_rules! forward {
    ($call:expr) => {
        // SAFETY: the C caller vouches for its arguments to the name it called; the other name asks
        // the same of them.
        unsafe { $call }
    };
}

/// `put!(out, value)`: writes through an argument of the exported function, INVALID_VALUE (by `?`)
/// when it is null.
macro_rules! put {
    ($out:expr, $value:expr) => {{
        let (out, value) = ($out, $value);
        // SAFETY: an argument of an exported function; its C caller vouches for it.
        unsafe { $crate::ffi::write(out, value) }?
    }};
}

/// `put_if!(out, value)`: like `put!`, but null means "not wanted".
macro_rules! put_if {
    ($out:expr, $value:expr) => {{
        let (out, value) = ($out, $value);
        if !out.is_null() {
            // SAFETY: an argument of an exported function; its C caller vouches for it.
            unsafe { $crate::ffi::write(out, value) }?
        }
    }};
}

/// `get!(pointer)`: a copy of what an argument points to.
macro_rules! get {
    ($from:expr) => {{
        let from = $from;
        // SAFETY: an argument of an exported function; its C caller vouches for it.
        unsafe { $crate::ffi::read(from) }?
    }};
}

/// `name!(pointer)`: a C string argument as `&str`.
macro_rules! name {
    ($from:expr) => {{
        let from = $from;
        // SAFETY: an argument of an exported function; its C caller vouches for it.
        unsafe { $crate::ffi::string(from) }?
    }};
}

/// `list!(pointer, count)`: an array argument as a slice.
macro_rules! list {
    ($from:expr, $count:expr) => {{
        let (from, count) = ($from, $count);
        // SAFETY: an argument of an exported function; its C caller vouches for it.
        unsafe { $crate::ffi::array(from, count) }?
    }};
}

pub(crate) use {forward, get, list, name, put, put_if};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_pointers_are_refused_and_text_is_cut() {
        let mut buffer = [7_i8; 4];
        // SAFETY: null, or the buffer above with its true length.
        unsafe {
            assert_eq!(write(core::ptr::null_mut(), 1_u32), Err(error::INVALID_VALUE));
            assert_eq!(read::<u32>(core::ptr::null()), Err(error::INVALID_VALUE));
            assert_eq!(array::<u32>(core::ptr::null(), 0), Ok(&[][..]));
            assert_eq!(array::<u32>(core::ptr::null(), 1), Err(error::INVALID_VALUE));
            assert_eq!(fill_text(buffer.as_mut_ptr(), 4, b"abcdef"), Ok(()));
        }
        assert_eq!(buffer, [b'a' as i8, b'b' as i8, b'c' as i8, 0]);
    }
}
