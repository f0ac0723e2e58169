//! Result codes: their names, and the texts that `cuGetErrorString` of driver 580 returns for them.
//!
//! Programs print these texts and tests compare them, so they are part of the interface. Every code
//! that has a name has a text; a test checks that.

use crate::generated::names::RESULT_NAMES;
use core::ffi::CStr;

/// The name of a result code (`CUDA_ERROR_INVALID_VALUE`), or `None` for a number that is no result
/// code.
pub fn name(code: u32) -> Option<&'static CStr> {
    find(RESULT_NAMES, code)
}

/// The driver's text for a result code, or `None` for a number that is no result code.
pub fn text(code: u32) -> Option<&'static CStr> {
    find(TEXTS, code)
}

pub(crate) fn find(list: &'static [(u32, &'static CStr)], value: u32) -> Option<&'static CStr> {
    let index = list.binary_search_by_key(&value, |(known, _)| *known).ok()?;
    list.get(index).map(|(_, text)| *text)
}

/// Sorted by code.
#[rustfmt::skip]
const TEXTS: &[(u32, &CStr)] = &[
    (0, c"no error"),
    (1, c"invalid argument"),
    (2, c"out of memory"),
    (3, c"initialization error"),
    (4, c"driver shutting down"),
    (5, c"profiler disabled while using external profiling tool"),
    (6, c"profiler not initialized: call cudaProfilerInitialize()"),
    (7, c"profiler already started"),
    (8, c"profiler already stopped"),
    (34, c"CUDA driver is a stub library"),
    (36, c"API call is not supported in the installed CUDA driver"),
    (46, c"CUDA-capable device(s) is/are busy or unavailable"),
    (100, c"no CUDA-capable device is detected"),
    (101, c"invalid device ordinal"),
    (102, c"device doesn't have valid Grid license"),
    (200, c"device kernel image is invalid"),
    (201, c"invalid device context"),
    (202, c"context already current"),
    (205, c"mapping of buffer object failed"),
    (206, c"unmapping of buffer object failed"),
    (207, c"array is mapped"),
    (208, c"resource already mapped"),
    (209, c"no kernel image is available for execution on the device"),
    (210, c"resource already acquired"),
    (211, c"resource not mapped"),
    (212, c"resource not mapped as array"),
    (213, c"resource not mapped as pointer"),
    (214, c"uncorrectable ECC error encountered"),
    (215, c"limit is not supported on this architecture"),
    (216, c"exclusive-thread device already in use by a different thread"),
    (217, c"peer access is not supported between these two devices"),
    (218, c"a PTX JIT compilation failed"),
    (219, c"invalid OpenGL or DirectX context"),
    (220, c"uncorrectable NVLink error detected during the execution"),
    (221, c"PTX JIT compiler library not found"),
    (222, c"the provided PTX was compiled with an unsupported toolchain."),
    (223, c"PTX JIT compilation was disabled"),
    (224, c"the provided execution affinity is not supported"),
    (225, c"the provided PTX contains unsupported call to cudaDeviceSynchronize"),
    (226, c"Invalid access of peer GPU memory over nvlink or a hardware error"),
    (300, c"device kernel image is invalid"),
    (301, c"file not found"),
    (302, c"shared object symbol not found"),
    (303, c"shared object initialization failed"),
    (304, c"OS call failed or operation not supported on this OS"),
    (400, c"invalid resource handle"),
    (401, c"the operation cannot be performed in the present state"),
    (402, c"attempted introspection would be semantically lossy"),
    (500, c"named symbol not found"),
    (600, c"device not ready"),
    (700, c"an illegal memory access was encountered"),
    (701, c"too many resources requested for launch"),
    (702, c"the launch timed out and was terminated"),
    (703, c"launch uses incompatible texturing mode"),
    (704, c"peer access is already enabled"),
    (705, c"peer access has not been enabled"),
    (708, c"cannot set while device is active in this process"),
    (709, c"context is destroyed"),
    (710, c"device-side assert triggered"),
    (711, c"peer mapping resources exhausted"),
    (712, c"part or all of the requested memory range is already mapped"),
    (713, c"pointer does not correspond to a registered memory region"),
    (714, c"hardware stack error"),
    (715, c"an illegal instruction was encountered"),
    (716, c"misaligned address"),
    (717, c"operation not supported on global/shared address space"),
    (718, c"invalid program counter"),
    (719, c"unspecified launch failure"),
    (720, c"too many blocks in cooperative launch"),
    (721, c"tensor memory not completely freed"),
    (800, c"operation not permitted"),
    (801, c"operation not supported"),
    (802, c"system not yet initialized"),
    (803, c"system has unsupported display driver / cuda driver combination"),
    (804, c"forward compatibility was attempted on non supported HW"),
    (805, c"MPS client failed to connect to the MPS control daemon or the MPS server"),
    (806, c"the remote procedural call between the MPS server and the MPS client failed"),
    (807, c"MPS server is not ready to accept new MPS client requests"),
    (808, c"the hardware resources required to create MPS client have been exhausted"),
    (809, c"the hardware resources required to support device connections have been exhausted"),
    (810, c"the MPS client has been terminated by the server"),
    (811, c"is using CUDA Dynamic Parallelism, but the current configuration, like MPS, does not support it"),
    (812, c"unsupported interaction between different versions of CUDA Dynamic Parallelism"),
    (900, c"operation not permitted when stream is capturing"),
    (901, c"operation failed due to a previous error during capture"),
    (902, c"operation would result in a merge of separate capture sequences"),
    (903, c"capture was not ended in the same stream as it began"),
    (904, c"capturing stream has unjoined work"),
    (905, c"dependency created on uncaptured work in another stream"),
    (906, c"operation would make the legacy stream depend on a capturing blocking stream"),
    (907, c"operation not permitted on an event last recorded in a capturing stream"),
    (908, c"attempt to terminate a thread-local capture sequence from another thread"),
    (909, c"wait operation timed out"),
    (910, c"the graph update was not performed because it included changes which violated constraints specific to instantiated graph update"),
    (911, c"an async error has occured in external entity outside of CUDA"),
    (912, c"a kernel launch error has occurred due to cluster misconfiguration"),
    (913, c"the function handle is not loaded when calling an API that requires a loaded function"),
    (914, c"one or more resources passed in are not valid resource types for the operation"),
    (915, c"one or more resources are insufficient or non-applicable for the operation"),
    (916, c"an error happened during the key rotation sequence"),
    (999, c"unknown error"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn every_named_code_has_a_text_and_no_other() {
        let named: Vec<u32> = RESULT_NAMES.iter().map(|(code, _)| *code).collect();
        let explained: Vec<u32> = TEXTS.iter().map(|(code, _)| *code).collect();
        assert_eq!(named, explained);
        assert!(named.is_sorted());
    }

    #[test]
    fn lookups_answer_as_the_driver_does() {
        assert_eq!(name(0), Some(c"CUDA_SUCCESS"));
        assert_eq!(text(0), Some(c"no error"));
        assert_eq!(name(801), Some(c"CUDA_ERROR_NOT_SUPPORTED"));
        assert_eq!(text(700), Some(c"an illegal memory access was encountered"));
        assert_eq!(name(35), None);
        assert_eq!(text(u32::MAX), None);
    }
}
