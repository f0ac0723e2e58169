//! Finding the real driver, for programs that are not served.
//!
//! Always by absolute path and never by search, since a search would find this very library. A library that carries our mark
//! (`cumux_shim_build_id`) is refused wherever it lies.

use core::ffi::{CStr, c_void};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

const NAME: &str = "libcuda.so.1";

/// Looked into after the dynamic linker's cache, in this order.
const FOLDERS: [&str; 8] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/nvidia/lib64",
    "/run/opengl-driver/lib",
    "/usr/lib/wsl/lib",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
];

/// The real driver, loaded for the rest of the process.
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

/// Loads the real driver from `CUMUX_REAL_LIBCUDA`, the dynamic linker's cache, or the usual folders.
pub(crate) fn find() -> Option<Driver> {
    let chosen = std::env::var_os("CUMUX_REAL_LIBCUDA").filter(|path| !path.is_empty());
    let cache = std::fs::read("/etc/ld.so.cache").unwrap_or_default();
    candidates(chosen.as_deref(), &cache).iter().find_map(|path| open(path))
}

/// The absolute paths worth trying, best first. A path named by the user is the only one.
fn candidates(chosen: Option<&OsStr>, cache: &[u8]) -> Vec<PathBuf> {
    if let Some(path) = chosen {
        return vec![PathBuf::from(path)];
    }
    let mut paths = cached_paths(cache, NAME.as_bytes());
    paths.extend(FOLDERS.iter().map(|folder| Path::new(folder).join(NAME)));
    let mut known: Vec<PathBuf> = Vec::new();
    for path in paths {
        if path.is_absolute() && !known.contains(&path) {
            known.push(path);
        }
    }
    known
}

fn open(path: &Path) -> Option<Driver> {
    if !path.is_absolute() {
        crate::log::line(format_args!("CUMUX_REAL_LIBCUDA must be an absolute path, not {}", path.display()));
        return None;
    }
    if !path.exists() {
        return None;
    }
    // The driver is linked with DT_SYMBOLIC, so its inner calls find its own functions and not ours of the same names.
    // SAFETY: loading runs the constructors of NVIDIA's driver, which any CUDA program loads in the same way.
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

/// The paths that the dynamic linker's cache file holds for a library of this processor.
///
/// Format (glibc 2.2 and later): magic `glibc-ld.so.cache1.1`, number of entries, length of strings, 20 bytes, then entries of
/// 24 bytes {flags, offset of name, offset of path, version, capabilities}; offsets count from the magic. Anything else gives nothing.
fn cached_paths(cache: &[u8], name: &[u8]) -> Vec<PathBuf> {
    const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
    const HEAD: usize = 48;
    const ENTRY: usize = 24;
    #[cfg(target_arch = "x86_64")]
    const FLAGS: u32 = 0x0303;
    #[cfg(target_arch = "aarch64")]
    const FLAGS: u32 = 0x0a03;

    let Some(start) = cache.windows(MAGIC.len()).position(|window| window == MAGIC) else {
        return Vec::new();
    };
    let cache = &cache[start..];
    let word = |at: usize| -> Option<u32> {
        let bytes = cache.get(at..at.checked_add(4)?)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    };
    let text = |at: usize| -> Option<&[u8]> {
        let rest = cache.get(at..)?;
        rest.split(|byte| *byte == 0).next()
    };
    let count = word(MAGIC.len()).unwrap_or(0) as usize;
    let entry = |index: usize| -> Option<PathBuf> {
        let at = HEAD.checked_add(index.checked_mul(ENTRY)?)?;
        if word(at)? != FLAGS || text(word(at + 4)? as usize)? != name {
            return None;
        }
        Some(PathBuf::from(OsString::from(OsStr::from_bytes(text(word(at + 8)? as usize)?))))
    };
    let possible = cache.len().saturating_sub(HEAD) / ENTRY;
    (0..count.min(possible)).filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(entries: &[(u32, &str, &str)]) -> Vec<u8> {
        let mut bytes = b"glibc-ld.so.cache1.1".to_vec();
        bytes.extend((entries.len() as u32).to_ne_bytes());
        bytes.extend([0; 24]);
        let mut strings: Vec<u8> = Vec::new();
        let base = bytes.len() + entries.len() * 24;
        for (flags, name, path) in entries {
            let mut place = |text: &str| {
                let at = (base + strings.len()) as u32;
                strings.extend(text.as_bytes());
                strings.push(0);
                at
            };
            let (name, path) = (place(name), place(path));
            for word in [*flags, name, path, 0, 0, 0] {
                bytes.extend(word.to_ne_bytes());
            }
        }
        bytes.extend(strings);
        bytes
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_cache_is_read_for_this_processor_only() {
        let cache = cache(&[
            (0x0803, NAME, "/usr/lib32/libcuda.so.1"),
            (0x0303, "libcudart.so.13", "/opt/libcudart.so.13"),
            (0x0303, NAME, "/opt/driver/libcuda.so.1"),
        ]);
        assert_eq!(cached_paths(&cache, NAME.as_bytes()), [PathBuf::from("/opt/driver/libcuda.so.1")]);
        let mut behind_an_old_cache = b"ld.so-1.7.0\0\0\0\0\0".to_vec();
        behind_an_old_cache.extend(&cache);
        assert_eq!(cached_paths(&behind_an_old_cache, NAME.as_bytes()).len(), 1);
    }

    #[test]
    fn a_broken_cache_gives_nothing_and_no_panic() {
        let whole = cache(&[(0x0303, NAME, "/opt/driver/libcuda.so.1")]);
        for length in 0..whole.len() {
            cached_paths(&whole[..length], NAME.as_bytes());
        }
        let mut lying = whole;
        lying[20..24].copy_from_slice(&u32::MAX.to_ne_bytes());
        lying[56..60].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert!(cached_paths(&lying, NAME.as_bytes()).is_empty());
    }

    #[test]
    fn a_path_named_by_the_user_is_the_only_one() {
        assert_eq!(candidates(Some(OsStr::new("/x/libcuda.so.1")), &[]), [PathBuf::from("/x/libcuda.so.1")]);
        assert!(candidates(None, &[]).iter().all(|path| path.is_absolute() && path.ends_with(NAME)));
    }

    #[test]
    fn what_is_no_driver_is_refused() {
        assert!(open(Path::new("libcuda.so.1")).is_none());
        assert!(open(Path::new("/no/such/libcuda.so.1")).is_none());
        assert!(open(Path::new("/proc/self/exe")).is_none());
    }
}
