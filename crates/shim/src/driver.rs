//! Finding the real driver, for programs that are not served.
//!
//! Always by absolute path and never by search, since a search would find this very library. A
//! library that carries our mark (`cumux_shim_build_id`) is refused wherever it lies.

use core::ffi::{CStr, c_void};
use cumux_abi::locate;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// The real driver, loaded for the rest of the process.
#[derive(Debug)]
pub(crate) struct Driver {
    library: Library,
}

impl Driver {
    /// The address of one of the driver's functions.
    pub(crate) fn symbol(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: only the address is taken, no type is claimed for it.
        let symbol = unsafe { self.library.get::<*mut c_void>(name.to_bytes_with_nul()) }.ok()?;
        let address = symbol.as_raw_ptr();
        (!address.is_null()).then_some(address)
    }
}

/// Loads the real driver from `CUMUX_REAL_LIBCUDA`, the dynamic linker's cache, or the usual
/// folders.
pub(crate) fn find() -> Option<Driver> {
    // Code for this process: not for a caller to choose who has fewer rights than the program.
    let chosen = cumux_link::trust::variable(locate::VARIABLE).filter(|path| !path.is_empty());
    let cache = std::fs::read(locate::CACHE).unwrap_or_default();
    match chosen {
        // A path named by the user is the only one.
        Some(path) => open(Path::new(&path)),
        None => locate::paths(&cache).find_map(|path| open(Path::new(OsStr::from_bytes(path)))),
    }
}

fn open(path: &Path) -> Option<Driver> {
    if !path.is_absolute() {
        crate::log::line(format_args!("{} must be an absolute path, not {}", locate::VARIABLE, path.display()));
        return None;
    }
    if !path.exists() {
        return None;
    }
    // The driver is linked with DT_SYMBOLIC, so its inner calls find its own functions and not ours
    // of the same names.
    // SAFETY: loading runs the constructors of NVIDIA's driver, which any CUDA program loads in the
    // same way.
    let library = match unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) } {
        Ok(library) => library,
        Err(error) => {
            crate::log::line(format_args!("cannot load {}: {error}", path.display()));
            return None;
        }
    };
    let driver = Driver { library };
    if driver.symbol(c"cumux_shim_build_id").is_some() {
        crate::log::line(format_args!("{} is cumux itself, not a driver", path.display()));
        return None;
    }
    if driver.symbol(c"cuInit").is_none() {
        crate::log::line(format_args!("{} is no CUDA driver", path.display()));
        return None;
    }
    Some(driver)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_driver_is_refused() {
        assert!(open(Path::new("libcuda.so.1")).is_none());
        assert!(open(Path::new("/no/such/libcuda.so.1")).is_none());
        assert!(open(Path::new("/proc/self/exe")).is_none());
    }
}
