//! Core dumps of the card, switched on for the whole process, into memory.

use super::device::DeviceHandle;
use crate::fault::{Call, CudaError};
use core::ffi::c_void;
use cumux_abi::types as t;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::CString;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::OnceLock;

/// The file in memory into which the driver writes the dump. One for all cards of the process: it
/// ends after the first fault.
static FILE: OnceLock<Option<OwnedFd>> = OnceLock::new();

/// A duplicate of the file with the dump, for another process.
pub(crate) fn share_dump() -> Option<OwnedFd> {
    FILE.get()?.as_ref()?.try_clone().ok()
}

/// The library with which the driver handles a fault. It loads it at the first one, while all
/// clients stand still: 38 ms where no process has it yet, and 3 ms elsewhere (an H200).
const DEBUGGER: &str = "libcudadebugger.so.1";

/// Loads that library ahead, for the rest of the process. Without it the driver says at a fault
/// what is missing.
fn load_debugger() {
    // SAFETY: NVIDIA's library, which the driver loads into this process, too.
    match unsafe { Library::open(Some(DEBUGGER), RTLD_NOW | RTLD_LOCAL) } {
        Ok(library) => std::mem::forget(library),
        Err(error) => tracing::debug!(%error, "{DEBUGGER} is not loaded ahead"),
    }
}

impl DeviceHandle {
    /// Has the driver write a core dump when a kernel of this process faults, without the contents
    /// of memory, and without ending the process. To be called before the first context is made. It
    /// holds for all cards of the process, and is done once.
    ///
    /// # Errors
    /// The driver's, above all where the environment has set these attributes.
    pub(crate) fn enable_dumps(&self) -> Call<()> {
        static ENABLED: OnceLock<Call<()>> = OnceLock::new();
        *ENABLED.get_or_init(|| self.enable_dumps_of_process())
    }

    fn enable_dumps_of_process(&self) -> Call<()> {
        load_debugger();
        let file = FILE.get_or_init(|| rustix::fs::memfd_create("cumux-dump", MemfdFlags::CLOEXEC).ok());
        let Some(file) = file else { return Err(CudaError::OUT_OF_MEMORY) };
        let enabled = true;
        self.set_dump_attribute(t::CUcoredumpSettings::CU_COREDUMP_ENABLE_ON_EXCEPTION, &[u8::from(enabled)])?;
        let flags = t::CUCoredumpGenerationFlags::CU_COREDUMP_LIGHTWEIGHT_FLAGS.0 | t::CUCoredumpGenerationFlags::CU_COREDUMP_SKIP_ABORT.0;
        self.set_dump_attribute(t::CUcoredumpSettings::CU_COREDUMP_GENERATION_FLAGS, &flags.to_ne_bytes())?;
        let path = CString::new(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd())).unwrap_or_default();
        self.set_dump_attribute(t::CUcoredumpSettings::CU_COREDUMP_FILE, path.as_bytes_with_nul())
    }

    fn set_dump_attribute(&self, attribute: t::CUcoredumpSettings, value: &[u8]) -> Call<()> {
        let mut size = value.len();
        let value = value.as_ptr().cast_mut().cast::<c_void>();
        // SAFETY: the call reads `size` bytes of the value, which lives until it returns, and
        // writes one number, a local.
        CudaError::check(unsafe { (self.table().cuCoredumpSetAttributeGlobal)(attribute, value, &raw mut size) })
    }
}

/// The dump that the driver has written, mapped: it can have hundreds of megabytes, and little of
/// it is looked at.
pub(crate) struct MappedDump {
    base: *mut c_void,
    bytes: usize,
}

impl MappedDump {
    /// Maps the dump; `None` if there is none.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn map() -> std::io::Result<Option<MappedDump>> {
        let Some(Some(file)) = FILE.get() else { return Ok(None) };
        let bytes = usize::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or(0);
        if bytes == 0 {
            return Ok(None);
        }
        // SAFETY: a new mapping at an address that the system chooses.
        let base = unsafe { rustix::mm::mmap(core::ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, file, 0)? };
        Ok(Some(MappedDump { base, bytes }))
    }

    /// The dump's bytes.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        // SAFETY: the mapping has these bytes and lives as long as `self`. The file does not change
        // any more: the driver has said that it is written, a process has one fault, and those who
        // get a duplicate of the descriptor read it.
        unsafe { core::slice::from_raw_parts(self.base.cast(), self.bytes) }
    }
}

impl Drop for MappedDump {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and nobody borrows its bytes any more.
        let _ = unsafe { rustix::mm::munmap(self.base, self.bytes) };
    }
}
