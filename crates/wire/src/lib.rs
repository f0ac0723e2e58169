//! What crosses process borders: records in the ring, the layout of the shared files, and the
//! messages on the sockets.
//!
//! Layout, encoding and checked decoding only: no I/O, no memory mapping, and no policy but on how
//! many threads serve a card, in which executor and planner have to agree ([`threads`]). Everything
//! here is versioned together by [`VERSION`]; a peer of another version is refused at the hello.
//! Whatever was written by another process is an allegation until one of the `decode` functions of
//! [`record`] or [`module`] has accepted a private copy of it.
#![forbid(unsafe_code)]
#![warn(missing_docs, missing_debug_implementations)]

pub mod facts;
pub mod layout;
pub mod limits;
pub mod message;
pub mod module;
pub mod positions;
pub mod record;
pub mod recording;
pub mod share;
pub mod text;
pub mod texture;
pub mod threads;

/// Version of everything in this crate. Raised with every change of a layout or a message.
pub const VERSION: u32 = 13;

/// CUDA's own numbers that cross process borders, by their names. `cumux_abi` states each once,
/// from the public header.
pub mod cuda {
    pub use cumux_abi::CUcomputemode as ComputeMode;
    pub use cumux_abi::CUdevice_attribute as DeviceAttribute;
    pub use cumux_abi::CUfunction_attribute as FunctionAttribute;
    pub use cumux_abi::CUlimit as Limit;
    pub use cumux_abi::CUmemAccess_flags as MemoryAccess;
    pub use cumux_abi::CUstreamWaitValue_flags as WaitCondition;
}

/// Result codes of the CUDA driver API that cross process borders, as numbers. `cumux_abi::result`
/// explains them.
pub mod result {
    use cumux_abi::CUresult;

    /// Gives each code a short name. The number is `cumux_abi`'s.
    macro_rules! codes {
        ($($name:ident = $code:ident;)*) => {
            $(
                #[doc = concat!("`", stringify!($code), "`.")]
                pub const $name: u32 = CUresult::$code.0;
            )*
        };
    }

    codes! {
        SUCCESS = CUDA_SUCCESS;
        INVALID_VALUE = CUDA_ERROR_INVALID_VALUE;
        OUT_OF_MEMORY = CUDA_ERROR_OUT_OF_MEMORY;
        NOT_INITIALIZED = CUDA_ERROR_NOT_INITIALIZED;
        NO_DEVICE = CUDA_ERROR_NO_DEVICE;
        NOT_PERMITTED = CUDA_ERROR_NOT_PERMITTED;
        INVALID_IMAGE = CUDA_ERROR_INVALID_IMAGE;
        NO_BINARY_FOR_GPU = CUDA_ERROR_NO_BINARY_FOR_GPU;
        INVALID_PTX = CUDA_ERROR_INVALID_PTX;
        UNSUPPORTED_PTX_VERSION = CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
        INVALID_HANDLE = CUDA_ERROR_INVALID_HANDLE;
        INVALID_CONTEXT = CUDA_ERROR_INVALID_CONTEXT;
        INVALID_DEVICE = CUDA_ERROR_INVALID_DEVICE;
        MAP_FAILED = CUDA_ERROR_MAP_FAILED;
        NOT_FOUND = CUDA_ERROR_NOT_FOUND;
        ILLEGAL_ADDRESS = CUDA_ERROR_ILLEGAL_ADDRESS;
        LAUNCH_OUT_OF_RESOURCES = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
        LAUNCH_TIMEOUT = CUDA_ERROR_LAUNCH_TIMEOUT;
        ASSERT = CUDA_ERROR_ASSERT;
        HARDWARE_STACK_ERROR = CUDA_ERROR_HARDWARE_STACK_ERROR;
        ILLEGAL_INSTRUCTION = CUDA_ERROR_ILLEGAL_INSTRUCTION;
        MISALIGNED_ADDRESS = CUDA_ERROR_MISALIGNED_ADDRESS;
        INVALID_ADDRESS_SPACE = CUDA_ERROR_INVALID_ADDRESS_SPACE;
        INVALID_PC = CUDA_ERROR_INVALID_PC;
        LAUNCH_FAILED = CUDA_ERROR_LAUNCH_FAILED;
        COOPERATIVE_LAUNCH_TOO_LARGE = CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
        INVALID_CLUSTER_SIZE = CUDA_ERROR_INVALID_CLUSTER_SIZE;
        DEVICE_UNAVAILABLE = CUDA_ERROR_DEVICE_UNAVAILABLE;
        PEER_ACCESS_UNSUPPORTED = CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
        NOT_SUPPORTED = CUDA_ERROR_NOT_SUPPORTED;
        SYSTEM_DRIVER_MISMATCH = CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
        MPS_CONNECTION_FAILED = CUDA_ERROR_MPS_CONNECTION_FAILED;
        MPS_RPC_FAILURE = CUDA_ERROR_MPS_RPC_FAILURE;
        MPS_SERVER_NOT_READY = CUDA_ERROR_MPS_SERVER_NOT_READY;
        MPS_MAX_CLIENTS_REACHED = CUDA_ERROR_MPS_MAX_CLIENTS_REACHED;
        MPS_CLIENT_TERMINATED = CUDA_ERROR_MPS_CLIENT_TERMINATED;
        INVALID_RESOURCE_CONFIGURATION = CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        UNKNOWN = CUDA_ERROR_UNKNOWN;
    }

    /// No result of CUDA's, and never reported to a client: the device is lost, and the operation
    /// is left to the executor's successor.
    pub const LOST: u32 = u32::MAX;
}
