//! The driver's error codes, by the names that CUDA gives them.

use cumux_abi::CUresult;

/// An error code of the driver: a `CUresult` other than success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CudaError(CUresult);

/// What a call of the driver returns.
pub(crate) type Call<T> = Result<T, CudaError>;

/// Declares a constant for each code that this crate distinguishes.
macro_rules! codes {
    ($($name:ident = $code:ident;)*) => {
        impl CudaError {
            $(
                #[doc = concat!("`", stringify!($code), "`.")]
                pub(crate) const $name: CudaError = CudaError(CUresult::$code);
            )*
        }
    };
}

codes! {
    INVALID_VALUE = CUDA_ERROR_INVALID_VALUE;
    OUT_OF_MEMORY = CUDA_ERROR_OUT_OF_MEMORY;
    DEINITIALIZED = CUDA_ERROR_DEINITIALIZED;
    DEVICE_UNAVAILABLE = CUDA_ERROR_DEVICE_UNAVAILABLE;
    NO_DEVICE = CUDA_ERROR_NO_DEVICE;
    INVALID_DEVICE = CUDA_ERROR_INVALID_DEVICE;
    ECC_UNCORRECTABLE = CUDA_ERROR_ECC_UNCORRECTABLE;
    INVALID_GRAPHICS_CONTEXT = CUDA_ERROR_INVALID_GRAPHICS_CONTEXT;
    NVLINK_UNCORRECTABLE = CUDA_ERROR_NVLINK_UNCORRECTABLE;
    JIT_COMPILER_NOT_FOUND = CUDA_ERROR_JIT_COMPILER_NOT_FOUND;
    CONTAINED = CUDA_ERROR_CONTAINED;
    INVALID_CLUSTER_SIZE = CUDA_ERROR_INVALID_CLUSTER_SIZE;
    INVALID_HANDLE = CUDA_ERROR_INVALID_HANDLE;
    NOT_READY = CUDA_ERROR_NOT_READY;
    ILLEGAL_ADDRESS = CUDA_ERROR_ILLEGAL_ADDRESS;
    LAUNCH_OUT_OF_RESOURCES = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    LAUNCH_TIMEOUT = CUDA_ERROR_LAUNCH_TIMEOUT;
    CONTEXT_IS_DESTROYED = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    ASSERT = CUDA_ERROR_ASSERT;
    HOST_MEMORY_NOT_REGISTERED = CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    HARDWARE_STACK_ERROR = CUDA_ERROR_HARDWARE_STACK_ERROR;
    ILLEGAL_INSTRUCTION = CUDA_ERROR_ILLEGAL_INSTRUCTION;
    MISALIGNED_ADDRESS = CUDA_ERROR_MISALIGNED_ADDRESS;
    INVALID_ADDRESS_SPACE = CUDA_ERROR_INVALID_ADDRESS_SPACE;
    INVALID_PC = CUDA_ERROR_INVALID_PC;
    LAUNCH_FAILED = CUDA_ERROR_LAUNCH_FAILED;
    TENSOR_MEMORY_LEAK = CUDA_ERROR_TENSOR_MEMORY_LEAK;
    NOT_SUPPORTED = CUDA_ERROR_NOT_SUPPORTED;
    SYSTEM_DRIVER_MISMATCH = CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
    MPS_CONNECTION_FAILED = CUDA_ERROR_MPS_CONNECTION_FAILED;
    MPS_RPC_FAILURE = CUDA_ERROR_MPS_RPC_FAILURE;
    MPS_SERVER_NOT_READY = CUDA_ERROR_MPS_SERVER_NOT_READY;
    MPS_MAX_CLIENTS_REACHED = CUDA_ERROR_MPS_MAX_CLIENTS_REACHED;
    MPS_MAX_CONNECTIONS_REACHED = CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED;
    MPS_CLIENT_TERMINATED = CUDA_ERROR_MPS_CLIENT_TERMINATED;
    UNKNOWN = CUDA_ERROR_UNKNOWN;
}

impl CudaError {
    /// `Ok` for success, and the code as an error for anything else.
    pub(crate) fn check(result: CUresult) -> Call<()> {
        if result == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(CudaError(result)) }
    }

    /// The code as CUDA numbers it, for messages and for clients' errors.
    pub(crate) fn number(self) -> u32 {
        self.0.0
    }

    /// The code as the driver's own type.
    pub(crate) fn result(self) -> CUresult {
        self.0
    }

    /// True if NVIDIA's own MPS refuses to serve this process.
    pub(crate) fn is_mps_refusal(self) -> bool {
        matches!(self, CudaError::MPS_CONNECTION_FAILED | CudaError::MPS_RPC_FAILURE | CudaError::MPS_SERVER_NOT_READY | CudaError::MPS_MAX_CLIENTS_REACHED)
    }

    /// True if the error ends the whole context, and with it this process's use of the card: the
    /// driver was shut down, the hardware failed (ECC, NVLink), a kernel broke the context,
    /// NVIDIA's own MPS ended this process, or the driver does not know.
    pub(crate) fn is_fatal(self) -> bool {
        matches!(
            self,
            CudaError::DEINITIALIZED
                | CudaError::ECC_UNCORRECTABLE
                | CudaError::INVALID_GRAPHICS_CONTEXT
                | CudaError::NVLINK_UNCORRECTABLE
                | CudaError::JIT_COMPILER_NOT_FOUND
                | CudaError::CONTAINED
                | CudaError::ILLEGAL_ADDRESS
                | CudaError::LAUNCH_TIMEOUT
                | CudaError::CONTEXT_IS_DESTROYED
                | CudaError::ASSERT
                | CudaError::HOST_MEMORY_NOT_REGISTERED
                | CudaError::HARDWARE_STACK_ERROR
                | CudaError::ILLEGAL_INSTRUCTION
                | CudaError::MISALIGNED_ADDRESS
                | CudaError::INVALID_ADDRESS_SPACE
                | CudaError::INVALID_PC
                | CudaError::LAUNCH_FAILED
                | CudaError::TENSOR_MEMORY_LEAK
                | CudaError::MPS_MAX_CONNECTIONS_REACHED
                | CudaError::MPS_CLIENT_TERMINATED
                | CudaError::UNKNOWN
        ) || self.is_mps_refusal()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fatal_codes_are_these_and_no_others() {
        let fatal: Vec<u32> = (0..1100).filter(|number| CudaError(CUresult(*number)).is_fatal()).collect();
        let expected = [4, 214, 219, 220, 221, 226, 700, 702, 709, 710, 713, 714, 715, 716, 717, 718, 719, 721, 805, 806, 807, 808, 809, 810, 999];
        assert_eq!(fatal, expected);
        assert_eq!(CudaError::check(CUresult(0)), Ok(()));
        assert_eq!(CudaError::check(CUresult(600)), Err(CudaError::NOT_READY));
    }
}
