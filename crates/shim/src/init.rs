//! `cuInit`.

use crate::ffi::{Try, error};
use crate::{connection, process};
use core::ffi::c_uint;

/// Served: the hello has been answered, so there is nothing left to do but to remember that the
/// program asked.
pub unsafe fn cuInit(flags: c_uint) -> Try {
    if flags != 0 {
        return Err(error::INVALID_VALUE);
    }
    let session = connection::find_served().ok_or(error::NOT_INITIALIZED)?;
    process::mark_initialized();
    session.health()
}
