//! Modules: images that were loaded, and their functions.

use crate::error::DeviceError;
use crate::ids::{ClientId, ModuleId};
use cumux_wire::cuda::FunctionAttribute;
use cumux_wire::module::ModuleInfo;
use cumux_wire::record::TensorWish;

/// Memory for a module's global variables, from the client's own allocations so that it survives
/// the executor.
pub trait GlobalsAllocator {
    /// Returns the address of `bytes` bytes for the variable `name`, and whether its contents are
    /// already there (restored after a takeover: the device must not initialise them).
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] when the client's limit is reached.
    fn variable(&mut self, name: &str, bytes: u64, align: u64, managed: bool) -> Result<(u64, bool), DeviceError>;

    /// Whether a predecessor that has died had loaded the module before. A device that cannot
    /// restore its variables, at the addresses and with the contents that they had, must refuse the
    /// module: a client with fresh variables would compute wrong results.
    fn is_restoring(&self) -> bool {
        false
    }

    /// Says that the module has state on the card, now or later, that no successor can restore, and
    /// why (a part of a sentence). The client gets an error if the executor is replaced.
    fn not_resumable(&mut self, why: &str) {
        let _ = why;
    }
}

/// Loads images for clients.
pub trait Modules {
    /// Loads a fatbin, PTX text or cubin. Slow (it compiles): never called on a dispatch thread.
    ///
    /// # Errors
    /// [`DeviceError::Image`] when it cannot be loaded; the text says what and where.
    fn load_module(&self, client: ClientId, module: ModuleId, image: &[u8], place: &mut dyn GlobalsAllocator) -> Result<ModuleInfo, DeviceError>;

    /// Unloads a module. Work that uses it has retired.
    fn unload_module(&self, client: ClientId, module: ModuleId);

    /// Sets an attribute of a function.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] for an unknown function or value.
    fn set_function(&self, client: ClientId, module: ModuleId, function: u32, attribute: FunctionAttribute, value: i32) -> Result<(), DeviceError>;

    /// Encodes a description of a tensor for the copy engine (`CUtensorMap`). A pure function of
    /// its argument.
    ///
    /// # Errors
    /// [`DeviceError::NotSupported`] where kernels cannot use one, [`DeviceError::Invalid`] for
    /// impossible arguments.
    fn encode_tensor(&self, wish: &TensorWish) -> Result<[u8; 128], DeviceError> {
        Err(DeviceError::NotSupported(format!("tensor maps (a tensor of rank {})", wish.rank)))
    }
}
