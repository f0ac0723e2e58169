//! What crosses process borders: records in the ring, the layout of the shared files, and the
//! messages on the sockets.
//!
//! Layout, encoding and checked decoding only: no I/O, no memory mapping, no policy. Everything
//! here is versioned together by [`VERSION`]; a peer of another version is refused at the hello.
//! Whatever was written by another process is an allegation until one of the `decode` functions of
//! [`record`] or [`module`] has accepted a private copy of it.
#![forbid(unsafe_code)]
#![warn(missing_docs, missing_debug_implementations)]

pub mod facts;
pub mod layout;
pub mod message;
pub mod module;
pub mod record;
pub mod share;

/// Version of everything in this crate. Raised with every change of a layout or a message.
pub const VERSION: u32 = 4;

/// Result codes of the CUDA driver API that cross process borders. Names and numbers are those of
/// `CUresult`; `cumux_abi::result` explains them.
#[allow(missing_docs, reason = "each is the CUDA_ERROR_ of its name, documented by CUDA")]
pub mod result {
    pub const SUCCESS: u32 = 0;
    pub const INVALID_VALUE: u32 = 1;
    pub const OUT_OF_MEMORY: u32 = 2;
    pub const NOT_INITIALIZED: u32 = 3;
    pub const NO_DEVICE: u32 = 100;
    pub const INVALID_IMAGE: u32 = 200;
    pub const NO_BINARY_FOR_GPU: u32 = 209;
    pub const INVALID_PTX: u32 = 218;
    pub const UNSUPPORTED_PTX_VERSION: u32 = 222;
    pub const INVALID_HANDLE: u32 = 400;
    pub const NOT_FOUND: u32 = 500;
    pub const ILLEGAL_ADDRESS: u32 = 700;
    pub const LAUNCH_OUT_OF_RESOURCES: u32 = 701;
    pub const LAUNCH_TIMEOUT: u32 = 702;
    pub const ASSERT: u32 = 710;
    pub const HARDWARE_STACK_ERROR: u32 = 714;
    pub const ILLEGAL_INSTRUCTION: u32 = 715;
    pub const MISALIGNED_ADDRESS: u32 = 716;
    pub const INVALID_ADDRESS_SPACE: u32 = 717;
    pub const INVALID_PC: u32 = 718;
    pub const LAUNCH_FAILED: u32 = 719;
    pub const COOPERATIVE_LAUNCH_TOO_LARGE: u32 = 720;
    pub const NOT_SUPPORTED: u32 = 801;
    pub const SYSTEM_DRIVER_MISMATCH: u32 = 803;
    pub const MPS_CONNECTION_FAILED: u32 = 805;
    pub const MPS_RPC_FAILURE: u32 = 806;
    pub const MPS_SERVER_NOT_READY: u32 = 807;
    pub const MPS_MAX_CLIENTS_REACHED: u32 = 808;
    pub const MPS_CLIENT_TERMINATED: u32 = 810;
    pub const INVALID_RESOURCE_CONFIGURATION: u32 = 915;
    pub const UNKNOWN: u32 = 999;
    /// No result of CUDA's, and never reported to a client: the device is lost, and the operation
    /// is left to the executor's successor.
    pub const LOST: u32 = u32::MAX;
}
