//! The words of the CUDA 13.0 driver interface: types, constants, result codes, and the signature
//! of every exported function. Data only: nothing here calls anything.
//!
//! - [`types`] and the constants in it come from the public header by `cargo xtask surface`, with
//!   every layout asserted at compile time. What C calls an enum is a transparent integer newtype
//!   here (`CUresult(700)`), because values arrive from strangers and a Rust enum with an unknown
//!   value is undefined behaviour.
//! - [`functions`] holds one function-pointer type per exported name, of the same name.
//! - [`result`] names and explains result codes; [`attribute`] names device attributes.
//! - [`surface`] is the list of exported names and how the shim answers each.
//! - [`locate`] says where the real driver lies.

#![deny(unsafe_code)]
#![no_std]
#![allow(non_camel_case_types)]
#![warn(missing_docs, missing_debug_implementations)]

#[cfg(test)]
extern crate std;

pub mod attribute;
pub mod locate;
pub mod result;
pub mod surface;

mod generated {
    #[allow(non_snake_case)]
    #[allow(missing_docs, reason = "each type is the signature of the CUDA function of its name")]
    pub mod functions;
    pub(crate) mod names;
    // The only unsafe code is bindgen's `Default` of structs with unions or padding: all bytes
    // zero. The items are CUDA's; its header and manual explain them.
    #[allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
    #[allow(missing_docs, missing_debug_implementations, reason = "generated; the names are CUDA's")]
    #[allow(non_upper_case_globals, non_snake_case, clippy::all)]
    pub mod types;
}

pub use generated::functions;
pub use generated::types;
pub use types::*;

/// The version `cuDriverGetVersion` reports: what this surface covers.
pub const DRIVER_VERSION: i32 = types::CUDA_VERSION as i32;

/// The stream handle that means the legacy NULL stream explicitly.
pub const CU_STREAM_LEGACY: CUstream = core::ptr::without_provenance_mut(1);

/// The stream handle that means the calling thread's own default stream.
pub const CU_STREAM_PER_THREAD: CUstream = core::ptr::without_provenance_mut(2);

/// Ends the list in the `extra` argument of a launch.
pub const CU_LAUNCH_PARAM_END: *mut core::ffi::c_void = core::ptr::null_mut();

/// Announces, in the `extra` argument of a launch, the address of packed parameters.
pub const CU_LAUNCH_PARAM_BUFFER_POINTER: *mut core::ffi::c_void = core::ptr::without_provenance_mut(1);

/// Announces, in the `extra` argument of a launch, the address of the size of packed parameters.
pub const CU_LAUNCH_PARAM_BUFFER_SIZE: *mut core::ffi::c_void = core::ptr::without_provenance_mut(2);

/// A device ordinal that names the CPU in memory-location arguments.
pub const CU_DEVICE_CPU: CUdevice = -1;

/// No device.
pub const CU_DEVICE_INVALID: CUdevice = -2;
