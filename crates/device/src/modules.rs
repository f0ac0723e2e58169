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
    ///
    /// An allocator that [is restoring](GlobalsAllocator::is_restoring) only looks up: it changes
    /// nothing and takes no lock, so devices may ask it under locks of theirs, and more than once.
    fn variable(&mut self, name: &str, bytes: u64, align: u64, managed: bool) -> Result<(u64, bool), DeviceError>;

    /// Has the device write the first contents of variables, by `write`. A device writes to the
    /// memory of a client in here alone while it loads a module: the client may go on in another
    /// process before the module is loaded, which loads it again and gives the memory to others.
    ///
    /// # Errors
    /// Those of `write`; [`DeviceError::LetGo`] if the client goes on elsewhere: nothing is
    /// written.
    fn fill(&mut self, write: &mut dyn FnMut() -> Result<(), DeviceError>) -> Result<(), DeviceError> {
        write()
    }

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

/// The BLAKE3 hash of an image, and so its name: the same bytes have one name everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ImageHash([u8; 32]);

impl ImageHash {
    /// The name of these bytes. It takes a second for about a gigabyte.
    #[must_use]
    pub fn of(image: &[u8]) -> Self {
        Self(*blake3::hash(image).as_bytes())
    }

    /// Reads a name as [`ImageHash::to_hex`] writes it; `None` for any other text.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        blake3::Hash::from_hex(text).ok().map(|hash| Self(*hash.as_bytes()))
    }

    /// 64 hexadecimal digits.
    #[must_use]
    pub fn to_hex(self) -> String {
        blake3::Hash::from_bytes(self.0).to_hex().to_string()
    }
}

/// A module that a device has loaded before its client came, by the device's own number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PreloadedModule(pub u64);

/// An image and its name.
#[derive(Debug, Clone, Copy)]
pub struct Image<'a> {
    /// What it consists of.
    pub bytes: &'a [u8],
    /// The hash of `bytes`.
    pub hash: ImageHash,
}

impl<'a> Image<'a> {
    /// Names an image. Slow for a big one: whoever knows its name passes that on.
    #[must_use]
    pub fn of(bytes: &'a [u8]) -> Self {
        Self { bytes, hash: ImageHash::of(bytes) }
    }
}

/// Gets at an image. It is called only if the image is needed.
pub type ReadImage<'a> = dyn FnMut() -> Result<Box<dyn AsRef<[u8]>>, DeviceError> + 'a;

/// Loads images for clients.
pub trait Modules {
    /// Loads a fatbin, PTX text or cubin. Slow (it compiles): never called on a dispatch thread.
    ///
    /// # Errors
    /// [`DeviceError::Image`] when it cannot be loaded; the text says what and where.
    fn load_module(&self, client: ClientId, module: ModuleId, image: Image<'_>, place: &mut dyn GlobalsAllocator) -> Result<ModuleInfo, DeviceError>;

    /// Adds a module that the device has already: another client's of the same image, if it can be
    /// shared, or for a client that is restored one that was
    /// [preloaded](Modules::preload_module) with the same variables. `None` if there is none: then
    /// the image is to be loaded.
    ///
    /// # Errors
    /// As [`Modules::load_module`].
    fn adopt_module(&self, client: ClientId, module: ModuleId, image: ImageHash, place: &mut dyn GlobalsAllocator) -> Result<Option<ModuleInfo>, DeviceError> {
        let _ = (client, module, image, place);
        Ok(None)
    }

    /// Loads an image before the client comes that another executor serves now, so that
    /// [`Modules::adopt_module`] finds it. `read` reads the image, if it is needed. `place` names
    /// the variables that the client has, whose memory is not here yet. `None` if this device gains
    /// nothing by it. Slow.
    ///
    /// # Errors
    /// As [`Modules::load_module`], and those of `read`.
    fn preload_module(&self, hash: ImageHash, read: &mut ReadImage<'_>, place: &mut dyn GlobalsAllocator) -> Result<Option<PreloadedModule>, DeviceError> {
        let _ = (hash, read, place);
        Ok(None)
    }

    /// Loads the code of kernels of a preloaded module, by their indices. Slow. Nothing is done for
    /// modules that are loaded as a whole ([`ModuleInfo::on_demand`]).
    ///
    /// # Errors
    /// As [`Modules::load_module`].
    fn preload_kernels(&self, module: PreloadedModule, functions: &[u32]) -> Result<(), DeviceError> {
        let _ = (module, functions);
        Ok(())
    }

    /// Drops a preloaded module, unless clients use it by now.
    fn drop_preloaded(&self, module: PreloadedModule) {
        let _ = module;
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_has_one_name() {
        let name = ImageHash::of(b"image");
        assert_eq!(ImageHash::from_hex(&name.to_hex()), Some(name));
        assert_ne!(name, ImageHash::of(b"imagf"));
        assert_eq!((ImageHash::from_hex(""), ImageHash::from_hex("zz"), ImageHash::from_hex(&name.to_hex()[1..])), (None, None, None));
    }
}
