//! Where the real driver lies, and the sentences for what is wrong with it. Pure but for reading the dynamic linker's cache.

use crate::driver::Code;
use cumux_abi::locate;
use cumux_device::DeviceError;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Major * 1000 + minor * 10, as the driver counts.
const OLDEST: i32 = 13_000;

/// The paths worth trying, best first: the one in `CUMUX_REAL_LIBCUDA` alone, or what the dynamic linker knows and the usual folders.
pub(crate) fn candidates() -> Result<Vec<PathBuf>, DeviceError> {
    let chosen = std::env::var_os("CUMUX_REAL_LIBCUDA").filter(|path| !path.is_empty());
    if let Some(path) = chosen.as_deref().map(Path::new) {
        if !path.is_absolute() {
            return Err(DeviceError::System(format!("CUMUX_REAL_LIBCUDA must be an absolute path, not {}", path.display())));
        }
        if !path.exists() {
            return Err(DeviceError::System(format!("CUMUX_REAL_LIBCUDA names {}, which is not there", path.display())));
        }
    }
    let cache = std::fs::read("/etc/ld.so.cache").unwrap_or_default();
    let paths = match chosen {
        Some(path) => vec![PathBuf::from(path)],
        None => locate::paths(&cache).map(|path| PathBuf::from(OsStr::from_bytes(path))).collect(),
    };
    Ok(paths.into_iter().filter(|path| path.exists()).collect())
}

// ---- what to do about it

pub(crate) fn none_found(tried: &[PathBuf], why: &[String]) -> String {
    if tried.is_empty() {
        return format!(
            "no NVIDIA driver here: {} is in none of the usual places; install driver 580 or newer, or name it in CUMUX_REAL_LIBCUDA, or use a software GPU (--device sim:h200)",
            locate::NAME
        );
    }
    format!("no usable NVIDIA driver: {}", why.join("; "))
}

pub(crate) fn new_enough(version: i32) -> Result<(), String> {
    if version >= OLDEST {
        return Ok(());
    }
    let (major, minor) = (version / 1000, version % 1000 / 10);
    Err(format!("the driver is for CUDA {major}.{minor}; 13.0 is needed: install driver 580 or newer"))
}

pub(crate) fn cannot_start(code: Code) -> String {
    match code.0 {
        100 => "the driver finds no GPU it may use: check `nvidia-smi`, the permissions of /dev/nvidia*, CUDA_VISIBLE_DEVICES, and, where MIG is enabled, that there is an instance (or disable it: `nvidia-smi -mig 0`)".into(),
        803 => "the driver's library and its kernel module are of different versions: reboot, or reload the module".into(),
        805..=808 => format!("NVIDIA's own MPS refuses (CUDA error {}): stop it (`echo quit | nvidia-cuda-mps-control`) or unset CUDA_MPS_PIPE_DIRECTORY", code.0),
        other => format!("the driver does not start (CUDA error {other}): check `nvidia-smi` and the kernel's log for Xid messages"),
    }
}

pub(crate) fn no_such_card(ordinal: u32, count: u32) -> String {
    match count {
        0 => cannot_start(Code(100)),
        1 => format!("there is no card cuda:{ordinal}; the only one is cuda:0"),
        _ => format!("there is no card cuda:{ordinal}; there are cuda:0 to cuda:{}", count - 1),
    }
}

/// Whether a card in this compute mode can be shared at all.
pub(crate) fn usable(ordinal: u32, name: &str, mode: i32) -> Result<(), DeviceError> {
    if mode == 2 {
        return Err(DeviceError::System(format!("cuda:{ordinal} is in PROHIBITED compute mode: run `nvidia-smi -i {ordinal} -c DEFAULT`")));
    }
    if name.contains(" MIG ") {
        return Err(DeviceError::NotSupported(format!("cuda:{ordinal} is a MIG instance ({name}); disable MIG with `nvidia-smi -i {ordinal} -mig 0`")));
    }
    Ok(())
}

/// In this mode a second process gets no context: no standby can wait beside the one that serves.
pub(crate) fn alone(ordinal: u32, mode: i32) -> Option<String> {
    (mode == 3).then(|| {
        format!(
            "cuda:{ordinal} is in EXCLUSIVE_PROCESS mode, in which one process alone may use it; `nvidia-smi -i {ordinal} -c DEFAULT` lets a standby be kept ready"
        )
    })
}

pub(crate) fn no_context(ordinal: u32, mode: i32, code: Code) -> String {
    match (code.0, mode) {
        (46 | 101, 3) => format!(
            "cuda:{ordinal} is in EXCLUSIVE_PROCESS mode and another process has it: end that process (if it is NVIDIA's own MPS: `echo quit | nvidia-cuda-mps-control`), or run `nvidia-smi -i {ordinal} -c DEFAULT` (which also lets a standby be kept ready)"
        ),
        (46, _) => format!("another process holds cuda:{ordinal} for itself: end it, or run `nvidia-smi -i {ordinal} -c DEFAULT`"),
        (2, _) => format!("cuda:{ordinal} has no memory left for a context (about 0.5 GiB): end a process that `nvidia-smi` shows on it"),
        (805..=808, _) => cannot_start(code),
        (other, _) => format!("no context can be made on cuda:{ordinal} (CUDA error {other}): check `nvidia-smi` and the kernel's log for Xid messages"),
    }
}

/// The context is there, what belongs to it is not.
pub(crate) fn unprepared(ordinal: u32, text: &str, code: Code) -> String {
    match code.0 {
        2 => format!("cuda:{ordinal} has no memory left for what serving needs: end a process that `nvidia-smi` shows on it"),
        other => format!("cuda:{ordinal} cannot be prepared: {text} (CUDA error {other}): check `nvidia-smi` and the kernel's log for Xid messages"),
    }
}

/// Whether the whole context, and so this process's use of the card, is over.
pub(crate) fn is_fatal(code: Code) -> bool {
    // Deinitialised, ECC and NVLink errors, everything a kernel can break, and "unknown" as MPS reports it.
    matches!(code.0, 4 | 214 | 219..=221 | 226 | 700 | 702 | 709 | 710 | 713..=719 | 721 | 805..=810 | 999)
}

/// What is said of a refused call: the loss of the card where that is the reason.
pub(crate) fn refused(code: Code, text: String, otherwise: impl FnOnce(String) -> DeviceError) -> DeviceError {
    if is_fatal(code) { DeviceError::Lost(text) } else { otherwise(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_comes_with_a_remedy() {
        assert!(new_enough(13_000).is_ok());
        assert!(new_enough(12_080).is_err_and(|text| text.contains("12.8") && text.contains("580")));
        assert!(usable(1, "NVIDIA H200", 2).is_err_and(|e| e.to_string().contains("-i 1 -c DEFAULT")));
        assert!(usable(0, "NVIDIA H100 MIG 1g.10gb", 0).is_err_and(|e| e.to_string().contains("-mig 0")));
        assert!(usable(0, "NVIDIA H200", 3).is_ok(), "one process may have it");
        assert!(no_context(0, 3, Code(46)).contains("EXCLUSIVE_PROCESS"));
        assert!(no_context(0, 3, Code(101)).contains("quit | nvidia-cuda-mps-control"));
        assert!(no_context(0, 0, Code(2)).contains("memory"));
        assert!(unprepared(0, "out of memory", Code(2)).contains("nvidia-smi"));
        assert!(alone(1, 3).is_some_and(|text| text.contains("-i 1 -c DEFAULT")) && alone(0, 0).is_none());
        for code in [803, 805, 807] {
            assert!(cannot_start(Code(code)).contains(": "), "{code}");
        }
        assert!(no_such_card(3, 2).contains("cuda:1") && no_such_card(0, 0).contains("no GPU"));
        assert!(none_found(&[], &[]).contains("CUMUX_REAL_LIBCUDA"));
    }
}
