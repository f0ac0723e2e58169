//! The paths at which the real driver may lie on this machine.

use cumux_abi::locate;
use cumux_device::DeviceError;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// The paths to try, best first, as far as they exist: the one in `CUMUX_REAL_LIBCUDA` alone, or
/// those in the dynamic linker's cache and in the usual folders.
///
/// # Errors
/// A sentence, if `CUMUX_REAL_LIBCUDA` is set and is not the absolute path of a file.
pub(super) fn candidate_paths() -> Result<Vec<PathBuf>, DeviceError> {
    let chosen = std::env::var_os(locate::VARIABLE).filter(|path| !path.is_empty());
    if let Some(path) = chosen.as_deref().map(Path::new) {
        if !path.is_absolute() {
            return Err(DeviceError::System(format!("{} must be an absolute path, not {}", locate::VARIABLE, path.display())));
        }
        if !path.exists() {
            return Err(DeviceError::System(format!("{} names {}, which is not there", locate::VARIABLE, path.display())));
        }
    }
    let cache = std::fs::read(locate::CACHE).unwrap_or_default();
    let paths = match chosen {
        Some(path) => vec![PathBuf::from(path)],
        None => locate::paths(&cache).map(|path| PathBuf::from(OsStr::from_bytes(path))).collect(),
    };
    Ok(paths.into_iter().filter(|path| path.exists()).collect())
}
