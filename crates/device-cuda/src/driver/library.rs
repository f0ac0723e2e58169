//! The driver's library, loaded and initialised once for the process.

use super::locate::candidate_paths;
use super::table::Table;
use crate::fault::{CudaError, remedy};
use core::ffi::c_void;
use cumux_abi::functions as f;
use cumux_device::DeviceError;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use parking_lot::Mutex;
use std::path::Path;

/// The loaded driver's functions. The lock is held while the library is loaded, and no other lock
/// is taken meanwhile.
static LOADED: Mutex<Option<&'static Table>> = Mutex::new(None);

/// What the driver must find in its environment when it is loaded.
const ENVIRONMENT: [(&str, &str); 3] = [
    // Clients' streams must not wait for one another in the card's queues.
    ("CUDA_DEVICE_MAX_CONNECTIONS", "32"),
    // A kernel loaded at its first launch would stop the whole context for it.
    ("CUDA_MODULE_LOADING", "EAGER"),
    (MPS_DIRECTORY, ""),
];

/// Set to nothing, so that this process never becomes a client of NVIDIA's own MPS by accident.
/// `CUMUX_KEEP_MPS` keeps what the user has set.
const MPS_DIRECTORY: &str = "CUDA_MPS_PIPE_DIRECTORY";

/// Loads the driver, or returns what an earlier call has loaded.
///
/// # Errors
/// A sentence with a remedy: there is no driver, it is too old, or it is not NVIDIA's.
pub(super) fn load() -> Result<&'static Table, DeviceError> {
    let mut loaded = LOADED.lock();
    if let Some(table) = *loaded {
        return Ok(table);
    }
    let paths = candidate_paths()?;
    for (name, value) in ENVIRONMENT {
        let keep = name == MPS_DIRECTORY && std::env::var_os("CUMUX_KEEP_MPS").is_some();
        if !keep {
            // SAFETY: this thread holds LOADED, and we have loaded no C code yet that reads the
            // environment by itself; Rust's own readers take a lock.
            unsafe { std::env::set_var(name, value) };
        }
    }
    let mut why = Vec::new();
    for path in &paths {
        match load_path(path) {
            Ok(table) => {
                let table: &'static Table = Box::leak(Box::new(table));
                *loaded = Some(table);
                return Ok(table);
            }
            Err(reason) => why.push(reason),
        }
    }
    Err(DeviceError::System(remedy::driver_not_found(&paths, &why)))
}

/// Loads the library at this path and looks its functions up. On success it stays loaded for ever.
fn load_path(path: &Path) -> Result<Table, String> {
    // SAFETY: loading runs the constructors of NVIDIA's driver, as it does in any CUDA program.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(|error| format!("{}: {error}", path.display()))?;
    // SAFETY: the symbol is only looked up, never used.
    if unsafe { library.get::<*const c_void>(b"cumux_shim_build_id\0") }.is_ok() {
        return Err(format!("{} is cumux itself, not NVIDIA's driver", path.display()));
    }
    // SAFETY: the driver's public header gives this type to this name.
    let version = unsafe { library.get::<f::cuDriverGetVersion>(b"cuDriverGetVersion\0") }.map_err(|_| format!("{} is no CUDA driver", path.display()))?;
    let mut number = 0;
    // SAFETY: the call writes one integer, a local.
    CudaError::check(unsafe { version(&raw mut number) })
        .map_err(|error| format!("{}: its version cannot be read (CUDA error {})", path.display(), error.number()))?;
    remedy::require_version(number)?;
    let table = Table::load(&library).map_err(|name| format!("{} lacks {name}; install driver 580 or newer", path.display()))?;
    std::mem::forget(library);
    Ok(table)
}
