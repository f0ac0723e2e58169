//! Sentences with remedies: what is wrong with a driver or a card, and what the user can do now.
//! Pure: these functions word what the caller has found.

use super::CudaError;
use cumux_abi::{CUcomputemode, locate};
use cumux_device::DeviceError;
use std::path::PathBuf;

/// The oldest CUDA version that is served, as the driver counts: major * 1000 + minor * 10.
const OLDEST_CUDA: i32 = 13_000;

/// No driver is usable. `tried` are the paths that exist, `why` says what is wrong with each.
pub(crate) fn driver_not_found(tried: &[PathBuf], why: &[String]) -> String {
    if tried.is_empty() {
        return format!(
            "no NVIDIA driver here: {} is in none of the usual places; install driver 580 or newer, or name it in CUMUX_REAL_LIBCUDA, or use a software GPU (--device sim:h200)",
            locate::NAME
        );
    }
    format!("no usable NVIDIA driver: {}", why.join("; "))
}

/// Checks the version that `cuDriverGetVersion` reported.
///
/// # Errors
/// A sentence, for a driver that is too old.
pub(crate) fn require_version(version: i32) -> Result<(), String> {
    if version >= OLDEST_CUDA {
        return Ok(());
    }
    let (major, minor) = (version / 1000, version % 1000 / 10);
    Err(format!("the driver is for CUDA {major}.{minor}; 13.0 is needed: install driver 580 or newer"))
}

/// `cuInit`, or a call that only needs it, failed.
pub(crate) fn cannot_start(error: CudaError) -> String {
    match error {
        CudaError::NO_DEVICE => "the driver finds no GPU it may use: check `nvidia-smi`, the permissions of /dev/nvidia*, CUDA_VISIBLE_DEVICES, and, where MIG is enabled, that there is an instance (or disable it: `nvidia-smi -mig 0`)".into(),
        CudaError::SYSTEM_DRIVER_MISMATCH => "the driver's library and its kernel module are of different versions: reboot, or reload the module".into(),
        refused if refused.is_mps_refusal() => format!("NVIDIA's own MPS refuses (CUDA error {}): stop it (`echo quit | nvidia-cuda-mps-control`) or unset CUDA_MPS_PIPE_DIRECTORY", refused.number()),
        other => format!("the driver does not start (CUDA error {}): check `nvidia-smi` and the kernel's log for Xid messages", other.number()),
    }
}

/// The user has asked for card `ordinal`, and there are `count` cards.
pub(crate) fn no_such_card(ordinal: u32, count: u32) -> String {
    match count {
        0 => cannot_start(CudaError::NO_DEVICE),
        1 => format!("there is no card cuda:{ordinal}; the only one is cuda:0"),
        _ => format!("there is no card cuda:{ordinal}; there are cuda:0 to cuda:{}", count - 1),
    }
}

/// Checks that a card of this name and compute mode can be shared.
///
/// # Errors
/// A sentence, for a prohibited card or a MIG instance.
pub(crate) fn require_shareable(ordinal: u32, name: &str, mode: CUcomputemode) -> Result<(), DeviceError> {
    if mode == CUcomputemode::CU_COMPUTEMODE_PROHIBITED {
        return Err(DeviceError::System(format!("cuda:{ordinal} is in PROHIBITED compute mode: run `nvidia-smi -i {ordinal} -c DEFAULT`")));
    }
    if name.contains(" MIG ") {
        return Err(DeviceError::NotSupported(format!("cuda:{ordinal} is a MIG instance ({name}); disable MIG with `nvidia-smi -i {ordinal} -mig 0`")));
    }
    Ok(())
}

/// Why no standby can be kept ready beside the process that serves, or `None` if it can. In
/// exclusive mode a second process gets no context.
pub(crate) fn exclusive_card(ordinal: u32, mode: CUcomputemode) -> Option<String> {
    (mode == CUcomputemode::CU_COMPUTEMODE_EXCLUSIVE_PROCESS).then(|| {
        format!(
            "cuda:{ordinal} is in EXCLUSIVE_PROCESS mode, in which one process alone may use it; `nvidia-smi -i {ordinal} -c DEFAULT` lets a standby be kept ready"
        )
    })
}

/// The driver has refused to make a context on the card.
pub(crate) fn no_context(ordinal: u32, mode: CUcomputemode, error: CudaError) -> String {
    match (error, mode) {
        (CudaError::DEVICE_UNAVAILABLE | CudaError::INVALID_DEVICE, CUcomputemode::CU_COMPUTEMODE_EXCLUSIVE_PROCESS) => format!(
            "cuda:{ordinal} is in EXCLUSIVE_PROCESS mode and another process has it: end that process (if it is NVIDIA's own MPS: `echo quit | nvidia-cuda-mps-control`), or run `nvidia-smi -i {ordinal} -c DEFAULT` (which also lets a standby be kept ready)"
        ),
        (CudaError::DEVICE_UNAVAILABLE, _) => {
            format!("another process holds cuda:{ordinal} for itself: end it, or run `nvidia-smi -i {ordinal} -c DEFAULT`")
        }
        (CudaError::OUT_OF_MEMORY, _) => {
            format!("cuda:{ordinal} has no memory left for a context (about 0.5 GiB): end a process that `nvidia-smi` shows on it")
        }
        (refused, _) if refused.is_mps_refusal() => cannot_start(refused),
        (other, _) => {
            format!("no context can be made on cuda:{ordinal} (CUDA error {}): check `nvidia-smi` and the kernel's log for Xid messages", other.number())
        }
    }
}

/// The context was made, but the driver has refused something else that serving needs. `text` is
/// the driver's sentence for `error`.
pub(crate) fn cannot_prepare(ordinal: u32, text: &str, error: CudaError) -> String {
    match error {
        CudaError::OUT_OF_MEMORY => format!("cuda:{ordinal} has no memory left for what serving needs: end a process that `nvidia-smi` shows on it"),
        other => {
            format!("cuda:{ordinal} cannot be prepared: {text} (CUDA error {}): check `nvidia-smi` and the kernel's log for Xid messages", other.number())
        }
    }
}

/// The error for a call that the driver has refused: [`DeviceError::Lost`] if `error` ends the
/// context, else `otherwise`.
pub(crate) fn refused_call(error: CudaError, text: String, otherwise: impl FnOnce(String) -> DeviceError) -> DeviceError {
    if error.is_fatal() { DeviceError::Lost(text) } else { otherwise(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: CUcomputemode = CUcomputemode::CU_COMPUTEMODE_DEFAULT;
    const PROHIBITED: CUcomputemode = CUcomputemode::CU_COMPUTEMODE_PROHIBITED;
    const EXCLUSIVE: CUcomputemode = CUcomputemode::CU_COMPUTEMODE_EXCLUSIVE_PROCESS;

    #[test]
    fn what_is_wrong_comes_with_a_remedy() {
        assert!(require_version(13_000).is_ok());
        assert!(require_version(12_080).is_err_and(|text| text.contains("12.8") && text.contains("580")));
        assert!(require_shareable(1, "NVIDIA H200", PROHIBITED).is_err_and(|e| e.to_string().contains("-i 1 -c DEFAULT")));
        assert!(require_shareable(0, "NVIDIA H100 MIG 1g.10gb", DEFAULT).is_err_and(|e| e.to_string().contains("-mig 0")));
        assert!(require_shareable(0, "NVIDIA H200", EXCLUSIVE).is_ok(), "one process may have it");
        assert!(no_context(0, EXCLUSIVE, CudaError::DEVICE_UNAVAILABLE).contains("EXCLUSIVE_PROCESS"));
        assert!(no_context(0, EXCLUSIVE, CudaError::INVALID_DEVICE).contains("quit | nvidia-cuda-mps-control"));
        assert!(no_context(0, DEFAULT, CudaError::OUT_OF_MEMORY).contains("memory"));
        assert!(cannot_prepare(0, "out of memory", CudaError::OUT_OF_MEMORY).contains("nvidia-smi"));
        assert!(exclusive_card(1, EXCLUSIVE).is_some_and(|text| text.contains("-i 1 -c DEFAULT")) && exclusive_card(0, DEFAULT).is_none());
        for error in [CudaError::SYSTEM_DRIVER_MISMATCH, CudaError::MPS_CONNECTION_FAILED, CudaError::MPS_SERVER_NOT_READY] {
            assert!(cannot_start(error).contains(": "), "{error:?}");
        }
        assert!(no_such_card(3, 2).contains("cuda:1") && no_such_card(0, 0).contains("no GPU"));
        assert!(driver_not_found(&[], &[]).contains("CUMUX_REAL_LIBCUDA"));
    }
}
