//! Where the real driver lies on this machine.

use cumux_abi::locate;
use cumux_device::DeviceError;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// The existing paths worth trying, best first: the one in `CUMUX_REAL_LIBCUDA` alone, or what the
/// dynamic linker's cache holds and the usual folders.
///
/// # Errors
/// A sentence about `CUMUX_REAL_LIBCUDA`, if it is set and names no absolute path of a file.
pub(super) fn candidate_paths() -> Result<Vec<PathBuf>, DeviceError> {
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
