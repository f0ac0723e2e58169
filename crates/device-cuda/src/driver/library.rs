//! The driver's library. A process loads it once.

use super::locate::candidate_paths;
use super::nested::{is_nested, pipe_directory};
use super::table::Table;
use crate::fault::{CudaError, remedy};
use core::ffi::c_void;
use cumux_abi::functions as f;
use cumux_device::DeviceError;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use parking_lot::Mutex;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The loaded driver's functions. Lock 8 of the crate's order, held alone while the library is
/// loaded.
static LOADED: Mutex<Option<&'static Table>> = Mutex::new(None);

/// How many queues of the card a context has for kernels, 1 to 32. Streams that share one wait for
/// each other. Each takes its time when a context is made and when it ends, under a lock that all
/// processes of the card share, and delays the notice of a fault (decision 0128); but with fewer,
/// clients with many kernels get less (decision 0142).
const CONNECTIONS: &str = "CUMUX_CONNECTIONS";
const DEFAULT_CONNECTIONS: usize = 32;

/// The same for copies, for each of three copy engines. Seven clients whose copies wait for kernels
/// of 8 ms do not slow down those of an eighth (`benches/results/2026-11-26-h200-queues.txt`).
const COPY_CONNECTIONS: &str = "CUMUX_COPY_CONNECTIONS";
const DEFAULT_COPY_CONNECTIONS: usize = 2;

/// 0: engines submit to one context, and wait for one another.
const ENGINE_CONTEXTS: &str = "CUMUX_ENGINE_CONTEXTS";

/// The environment variables that are set before the driver is loaded, and their values.
const ENVIRONMENT: [(&str, &str); 3] = [
    // If kernels were loaded at their first launches, each would stop the whole context.
    ("CUDA_MODULE_LOADING", "EAGER"),
    // The driver prints the type of an exception and the kernel before the core dump is written.
    ("CUDA_COREDUMP_SHOW_PROGRESS", "1"),
    (MPS_DIRECTORY, ""),
];

/// The environment variables that are removed before the driver is loaded: with one of them set,
/// the driver refuses what [`super::device::DeviceHandle::enable_dumps`] sets.
const REMOVED: [&str; 6] = [
    "CUDA_ENABLE_COREDUMP_ON_EXCEPTION",
    "CUDA_ENABLE_CPU_COREDUMP_ON_EXCEPTION",
    "CUDA_ENABLE_LIGHTWEIGHT_COREDUMP",
    "CUDA_ENABLE_USER_TRIGGERED_COREDUMP",
    "CUDA_COREDUMP_FILE",
    "CUDA_COREDUMP_GENERATION_FLAGS",
];

/// Set to the empty string, so that this process does not become a client of NVIDIA's own MPS by
/// accident. If `CUMUX_KEEP_MPS` is set, the user's value is kept.
const MPS_DIRECTORY: &str = "CUDA_MPS_PIPE_DIRECTORY";

/// How many queues a context has for kernels.
///
/// # Errors
/// A sentence with a remedy: the user's value is no number.
pub(super) fn queue_count() -> Result<usize, DeviceError> {
    count_of(CONNECTIONS, DEFAULT_CONNECTIONS)
}

/// Whether each thread that submits work has a context of its own.
///
/// # Errors
/// A sentence with a remedy: the user's value is no number.
pub(super) fn engines_have_contexts() -> Result<bool, DeviceError> {
    let asked = cumux_environment::number(ENGINE_CONTEXTS).map_err(|error| DeviceError::Invalid(error.to_string()))?;
    Ok(asked != Some(0))
}

fn count_of(variable: &str, default: usize) -> Result<usize, DeviceError> {
    let asked = cumux_environment::number(variable).map_err(|error| DeviceError::Invalid(error.to_string()))?;
    Ok(asked.map_or(default, |asked| asked.clamp(1, 32) as usize))
}

/// Loads the driver, unless an earlier call has loaded it.
///
/// # Errors
/// A sentence with a remedy: there is no driver, or it is too old or not NVIDIA's.
pub(super) fn load() -> Result<&'static Table, DeviceError> {
    let mut loaded = LOADED.lock();
    if let Some(table) = *loaded {
        return Ok(table);
    }
    let paths = candidate_paths()?;
    let other_service = pipe_directory().map(OsString::as_os_str);
    for (name, value) in ENVIRONMENT {
        let value = other_service.filter(|_| name == MPS_DIRECTORY).unwrap_or(OsStr::new(value));
        let keep = name == MPS_DIRECTORY && other_service.is_none() && std::env::var_os("CUMUX_KEEP_MPS").is_some();
        if !keep {
            // SAFETY: no other thread may read the environment without std's lock meanwhile. This
            // crate has loaded no C code yet that would, and asks its users to start none before
            // (see the crate's documentation).
            unsafe { std::env::set_var(name, value) };
        }
    }
    let queues = [("CUDA_DEVICE_MAX_CONNECTIONS", queue_count()?), ("CUDA_DEVICE_MAX_COPY_CONNECTIONS", count_of(COPY_CONNECTIONS, DEFAULT_COPY_CONNECTIONS)?)];
    for (name, count) in queues {
        // SAFETY: as above.
        unsafe { std::env::set_var(name, count.to_string()) };
    }
    for name in REMOVED {
        // SAFETY: as above.
        unsafe { std::env::remove_var(name) };
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

/// Loads the library at this path and looks up its functions. If it is usable, it stays loaded
/// until the process ends.
fn load_path(path: &Path) -> Result<Table, String> {
    // SAFETY: loading runs the library's constructors. NVIDIA's driver is made to be loaded in this
    // way by any CUDA program.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(|error| format!("{}: {error}", path.display()))?;
    // SAFETY: the symbol's value is never used, so its type does not matter.
    if unsafe { library.get::<*const c_void>(b"cumux_shim_build_id\0") }.is_ok() && !is_nested() {
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
