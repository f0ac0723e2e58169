//! The modules of a card.

use super::Card;
use crate::context::{ContextClient, LoadedModule, Resumption};
use cumux_abi::CUfunction_attribute;
use cumux_device::{ClientId, DeviceError, GlobalsAllocator, Image, ImageHash, ModuleId, ModuleInfo, Modules, PreloadedModule, ReadImage, TensorWish};
use std::sync::Arc;

impl Modules for Card {
    /// Variables go into the client's memory, as `place` says. A module with state that stays with
    /// the driver is loaded, but not restored: that state went with the executor.
    fn load_module(&self, client: ClientId, module: ModuleId, image: Image<'_>, place: &mut dyn GlobalsAllocator) -> Result<ModuleInfo, DeviceError> {
        self.require_context()?;
        let owner = self.client(client)?;
        let loaded = self.check_loss(self.library.load(&self.shared.gate, &self.extents, image, &owner.counts, place))?;
        self.take_over(client, &owner, module, loaded, place)
    }

    fn adopt_module(&self, client: ClientId, module: ModuleId, image: ImageHash, place: &mut dyn GlobalsAllocator) -> Result<Option<ModuleInfo>, DeviceError> {
        self.require_context()?;
        let owner = self.client(client)?;
        match self.check_loss(self.library.adopt(&self.extents, image, place))? {
            Some(loaded) => self.take_over(client, &owner, module, loaded, place).map(Some),
            None => Ok(None),
        }
    }

    fn preload_module(&self, hash: ImageHash, read: &mut ReadImage<'_>, place: &mut dyn GlobalsAllocator) -> Result<Option<PreloadedModule>, DeviceError> {
        self.require_context()?;
        self.check_loss(self.library.preload(&self.shared.gate, &self.extents, hash, read, place))
    }

    fn preload_kernels(&self, module: PreloadedModule, functions: &[u32]) -> Result<(), DeviceError> {
        self.check_loss(self.library.preload_kernels(module, functions))
    }

    fn drop_preloaded(&self, module: PreloadedModule) {
        if let Some(module) = self.library.drop_preloaded(module) {
            self.shared.helpers.run(move || drop(module));
        }
        self.evict_modules();
    }

    fn unload_module(&self, client: ClientId, module: ModuleId) {
        if let Ok(owner) = self.client(client) {
            self.remove_module(&owner, module);
        }
    }

    fn set_function(&self, client: ClientId, module: ModuleId, function: u32, attribute: CUfunction_attribute, value: i32) -> Result<(), DeviceError> {
        self.check_loss(self.module(client, module)?.set_attribute(function, attribute, value))
    }

    fn encode_tensor(&self, wish: &TensorWish) -> Result<[u8; 128], DeviceError> {
        let driver = &self.shared.driver;
        driver
            .encode_tensor(wish)
            .map_err(|error| DeviceError::Invalid(format!("a tensor of rank {} cannot be described: {}", wish.rank, driver.describe(error))))
    }
}

impl Card {
    /// Adds a module to a client, if the client can have it and is still open.
    fn take_over(
        &self,
        client: ClientId,
        owner: &ContextClient,
        module: ModuleId,
        loaded: Arc<LoadedModule>,
        place: &mut dyn GlobalsAllocator,
    ) -> Result<ModuleInfo, DeviceError> {
        if let Resumption::Impossible(why) = &loaded.resumption {
            if place.is_restoring() {
                let text = format!("what one of its modules had on the card has gone with the executor before: {why}");
                loaded.remove_user();
                return Err(DeviceError::Invalid(text));
            }
            place.not_resumable(why);
        }
        let own = match self.check_loss(loaded.idle.place(place, &self.extents)) {
            Ok(own) => own,
            Err(error) => {
                loaded.remove_user();
                return Err(error);
            }
        };
        let mut info = self.add_module(owner, module, loaded);
        info.globals.extend(own);
        if self.client(client).is_err() {
            // The client was closed meanwhile, and nothing else would drop the module.
            self.remove_module(owner, module);
            return Err(DeviceError::Invalid(format!("client {client} was closed while its module was loaded")));
        }
        self.evict_modules();
        Ok(info)
    }
}
