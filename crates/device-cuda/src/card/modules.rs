//! The modules of a card.

use super::Card;
use crate::context::Resumption;
use cumux_abi::CUfunction_attribute;
use cumux_device::{ClientId, DeviceError, GlobalsAllocator, ModuleId, ModuleInfo, Modules, TensorWish};

impl Modules for Card {
    /// Variables go into the client's memory, as `place` says. A module with state that stays with
    /// the driver is loaded, but not restored: that state went with the executor.
    fn load_module(&self, client: ClientId, module: ModuleId, image: &[u8], place: &mut dyn GlobalsAllocator) -> Result<ModuleInfo, DeviceError> {
        self.require_context()?;
        let owner = self.client(client)?;
        let loaded = self.check_loss(self.library.load(&self.shared.gate, &self.extents, image, &owner.counts, place))?;
        if let Resumption::Impossible(why) = &loaded.resumption {
            if place.is_restoring() {
                let text = format!("what one of its modules had on the card has gone with the executor before: {why}");
                loaded.remove_user();
                return Err(DeviceError::Invalid(text));
            }
            place.not_resumable(why);
        }
        let info = self.add_module(&owner, module, loaded);
        if self.client(client).is_err() {
            // The client was closed meanwhile, and nothing else would drop the module.
            self.remove_module(&owner, module);
            return Err(DeviceError::Invalid(format!("client {client} was closed while its module was loaded")));
        }
        self.evict_modules();
        Ok(info)
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
