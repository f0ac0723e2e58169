//! The modules of a software GPU.

use cumux_abi::CUfunction_attribute;
use cumux_device::{ClientId, DeviceError, GlobalsAllocator, Image, ImageHash, ModuleId, ModuleInfo, Modules, PreloadedModule, ReadImage};
use cumux_wire::record::TensorWish;

use super::SoftwareGpu;
use crate::modules::{self, LoadedModule};
use crate::program::tensor;
use crate::schedule::not_open;

impl Modules for SoftwareGpu {
    fn load_module(&self, client: ClientId, module: ModuleId, image: Image<'_>, place: &mut dyn GlobalsAllocator) -> Result<ModuleInfo, DeviceError> {
        self.card.require_working()?;
        if self.client_memory(client).is_none() {
            return Err(not_open(client));
        }
        self.card.wait_for_quiet(client)?;
        let (loaded, info) = modules::load(&self.card.limits, &self.card.maps, image.bytes, place)?;
        self.add_module(client, module, loaded)?;
        Ok(self.as_a_card_says(info))
    }

    /// A program that was compiled in advance serves any client; only its variables are the
    /// client's.
    fn adopt_module(&self, client: ClientId, module: ModuleId, image: ImageHash, place: &mut dyn GlobalsAllocator) -> Result<Option<ModuleInfo>, DeviceError> {
        self.card.require_working()?;
        let program = self.preloaded.lock().find(image);
        let Some(program) = program.filter(|_| place.is_restoring()) else { return Ok(None) };
        let (loaded, info) = modules::place_program(&self.card.limits, &self.card.maps, program, place)?;
        self.add_module(client, module, loaded)?;
        Ok(Some(self.as_a_card_says(info)))
    }

    fn preload_module(&self, hash: ImageHash, read: &mut ReadImage<'_>, _place: &mut dyn GlobalsAllocator) -> Result<Option<PreloadedModule>, DeviceError> {
        self.card.require_working()?;
        let known = self.preloaded.lock().find(hash);
        let program = match known {
            Some(program) => program,
            None => modules::compile_image(&self.card.limits, (*read()?).as_ref())?,
        };
        let mut preloaded = self.preloaded.lock();
        preloaded.last += 1;
        let number = preloaded.last;
        preloaded.programs.insert(number, (hash, program));
        Ok(Some(PreloadedModule(number)))
    }

    fn preload_kernels(&self, module: PreloadedModule, functions: &[u32]) -> Result<(), DeviceError> {
        let mut preloaded = self.preloaded.lock();
        let Some((_, program)) = preloaded.programs.get(&module.0) else { return Ok(()) };
        if let Some(unknown) = functions.iter().find(|function| **function as usize >= program.kernels.len()) {
            return Err(DeviceError::Invalid(format!("the module has no function {unknown}")));
        }
        preloaded.kernels.entry(module.0).or_default().extend(functions);
        Ok(())
    }

    fn encode_tensor(&self, wish: &TensorWish) -> Result<[u8; 128], DeviceError> {
        if self.card.limits.capability < 90 {
            return Err(DeviceError::NotSupported("tensor maps (since compute capability 9.0)".into()));
        }
        tensor::encode(wish)
    }

    fn drop_preloaded(&self, module: PreloadedModule) {
        let mut preloaded = self.preloaded.lock();
        preloaded.kernels.remove(&module.0);
        let gone = preloaded.programs.remove(&module.0);
        drop(preloaded);
        drop(gone);
    }

    fn unload_module(&self, client: ClientId, module: ModuleId) {
        let gone = self.card.scheduler.lock().clients.get_mut(&client).and_then(|c| c.modules.remove(&module));
        drop(gone);
    }

    fn set_function(&self, client: ClientId, module: ModuleId, function: u32, attribute: CUfunction_attribute, value: i32) -> Result<(), DeviceError> {
        let mut scheduler = self.card.scheduler.lock();
        scheduler.require_working()?;
        let owner = scheduler.clients.get_mut(&client).ok_or_else(|| not_open(client))?;
        let unknown = || DeviceError::Invalid(format!("client {client} has no function {function} in module {module}"));
        let loaded = owner.modules.get_mut(&module).ok_or_else(unknown)?;
        let kernel = loaded.linked.program().kernels.get(function as usize).ok_or_else(unknown)?;
        let most = self.card.limits.launch.shared_optin.saturating_sub(kernel.static_shared);
        let own = loaded.functions.get_mut(function as usize).ok_or_else(unknown)?;
        match (attribute, u32::try_from(value)) {
            (CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, Ok(bytes)) if bytes <= most => {
                own.max_dynamic_shared = bytes;
                Ok(())
            }
            (CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, _) => {
                Err(DeviceError::Invalid(format!("kernel {} can have at most {most} bytes of dynamic shared memory, not {value}", kernel.name)))
            }
            // A preference in percent, -1 for none: makes no difference here.
            (CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, _) if (-1..=100).contains(&value) => Ok(()),
            _ => Err(DeviceError::Invalid(format!("function attribute {} cannot be set to {value}", attribute.0))),
        }
    }
}

impl SoftwareGpu {
    /// What clients are told of a module. A device that breaks as a card does also says of kernels
    /// what a card says, so that everything that follows from it runs without a card, too.
    fn as_a_card_says(&self, info: ModuleInfo) -> ModuleInfo {
        ModuleInfo { on_demand: !self.card.facts.capabilities.contains_faults, ..info }
    }

    fn add_module(&self, client: ClientId, module: ModuleId, loaded: LoadedModule) -> Result<(), DeviceError> {
        let mut scheduler = self.card.scheduler.lock();
        let owner = scheduler.clients.get_mut(&client).ok_or_else(|| not_open(client))?;
        owner.modules.insert(module, loaded);
        Ok(())
    }
}
