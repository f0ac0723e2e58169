//! A loaded module: its kernels, their parameter layouts, and its variables.
//!
//! The code of a [divided](super::divided) module's kernel is loaded when a client is about to
//! launch it; that of others is on the card from the beginning.
//!
//! Variables lie in the client's memory, if they could be [placed](super::placement). Else they lie
//! where the driver puts them, and end with the executor.
#![expect(clippy::disallowed_types, reason = "counts the users of a module, from any thread")]

use super::constants::ConstantCopy;
use super::divided::DividedImage;
use super::extents::Extents;
use super::placement::{IdleVariables, PlacedConstants, Placement, Resumption, Variables};
use super::symbols::Symbols;
use crate::counters::ClientCounts;
use crate::driver::{CardAddress, CompileError, Driver, Function, Module};
use crate::fault::{Call, CudaError, remedy};
use crate::quiet::{Gate, NotQuiet};
use cumux_abi::CUfunction_attribute as Attribute;
use cumux_device::{DeviceError, FunctionInfo, GlobalInfo, GlobalsAllocator, ImageHash, ModuleInfo};
use cumux_fatbin::calls;
use cumux_wire::module::{Parameter, Unbounded};
use parking_lot::Mutex;
use rustc_hash::FxHasher;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::hash::{Hash as _, Hasher as _};
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

const MAX_DYNAMIC_SHARED: Attribute = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;

/// Bytes of dynamic shared memory that every kernel may take.
const USUAL_SHARED: u32 = 48 << 10;

/// How long it takes until it is looked again whether the card has room.
const MEMORY_COMES_IN: Duration = Duration::from_millis(20);

/// The number of the next kernel to be loaded.
static NEXT_KERNEL: AtomicU64 = AtomicU64::new(1);

/// Where the code of a kernel is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KernelCode {
    /// The driver's handle of the kernel.
    pub handle: Function,
    /// The driver's handle of its module.
    pub module: Module,
}

/// One kernel.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// Empty until the kernel may be launched: its code is on the card, and the context has the
    /// local memory that it needs.
    code: OnceLock<KernelCode>,
    /// Its code, where that came to the card before the local memory.
    without_memory: OnceLock<KernelCode>,
    /// The kernel's number, which this process never uses again, unlike handles.
    pub id: u64,
    /// A number that the same kernel has in every process. Different ones may have the same.
    pub lasting: u64,
    /// The name in the image (mangled, for C++).
    pub name: Arc<str>,
    /// Bytes of the parameter block.
    pub parameter_bytes: u32,
    /// True if the kernel may call device printf.
    pub prints: bool,
    /// True if the kernel may fail an assertion.
    pub asserts: bool,
    /// Bytes of local memory that a thread of it needs at most.
    pub local: u64,
}

impl Kernel {
    /// Its code on the card; `None` if that, or local memory, has to be made first
    /// ([`LoadedModule::load_kernel`]).
    #[inline]
    pub(crate) fn code(&self) -> Option<KernelCode> {
        self.code.get().copied()
    }

    /// Its code, if that is on the card. Whoever launches the kernel by this cares for its local
    /// memory.
    pub(crate) fn loaded_code(&self) -> Option<KernelCode> {
        self.code().or(self.without_memory.get().copied())
    }

    /// The driver's handle of the kernel, as [`Kernel::loaded_code`] has it.
    pub(super) fn handle(&self) -> Option<Function> {
        self.loaded_code().map(|code| code.handle)
    }

    /// Its code is on the card. It may be launched if the context has the memory that it needs.
    fn enter(&self, code: KernelCode, local_memory: u64) {
        let entered = if self.local <= local_memory { &self.code } else { &self.without_memory };
        let _ = entered.set(code);
    }
}

/// What of a module is on the card.
enum Loaded {
    /// All of it.
    Whole(Module),
    /// The code of the kernels that clients launch.
    OnDemand(DividedImage),
}

/// Which clients may use a loaded module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// Every client that brings the same image, because nothing in the module can change.
    AnyClient,
    /// The client that it was loaded for, because the module has writable variables.
    OneClient,
}

/// Where a module's variables are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VariablesHome {
    /// In the client's own memory, to which the client has access already.
    Client,
    /// Where the driver has put them, if there are any.
    Driver,
}

/// A module on the card.
pub(crate) struct LoadedModule {
    gate: Arc<Gate>,
    loaded: Loaded,
    /// The kernels, in the order of `info.functions`.
    pub kernels: Vec<Kernel>,
    /// The description of the module that clients get.
    pub info: ModuleInfo,
    /// Which clients may use the module.
    pub sharing: Sharing,
    /// Where its variables are.
    pub variables: VariablesHome,
    /// Variables that hold nothing: each client has its own.
    pub idle: IdleVariables,
    /// Its `__constant__` variables, as far as the client has copies of them.
    pub constants: Vec<ConstantCopy>,
    /// Whether a successor can load it and go on.
    pub resumption: Resumption,
    /// The image's name, where any client may use the module.
    shared_name: OnceLock<ImageHash>,
    /// The number of clients that use the module. Chains may hold it, too.
    users: AtomicUsize,
    /// What clients have set on kernels, by function and attribute. Lock 8 of the crate's order,
    /// held alone. The driver is called under it, and a kernel's code is entered under it.
    attributes: Mutex<BTreeMap<(u32, u32), i32>>,
}

impl Drop for LoadedModule {
    fn drop(&mut self) {
        match self.loaded {
            Loaded::Whole(module) => self.gate.unload(module),
            Loaded::OnDemand(_) => {
                let codes = self.kernels.iter().filter_map(Kernel::loaded_code);
                codes.for_each(|code| self.gate.unload(code.module));
            }
        }
    }
}

fn image_error(error: CudaError, text: String) -> DeviceError {
    DeviceError::Image { result: error.number(), text }
}

impl LoadedModule {
    /// Puts an image on the card, and counts one client as a user. `symbols` are those of the
    /// image, `variables` says where its variables are. Call this while the card is quiet, because
    /// the driver waits for running kernels. [`LoadedModule::fill_constants`] comes next.
    ///
    /// # Errors
    /// The driver's error, as a sentence.
    pub(super) fn load(gate: &Arc<Gate>, image: &[u8], symbols: &Symbols, variables: &Variables, idle: IdleVariables) -> Result<LoadedModule, DeviceError> {
        let module = load_image(gate.driver(), image)?;
        let mut loaded = LoadedModule::new(gate, Loaded::Whole(module), symbols, idle);
        loaded.read_kernels(module, symbols, true)?;
        match variables {
            Variables::Placed(placement) => loaded.use_placement(placement, module),
            Variables::LeftToDriver(resumption) => {
                loaded.resumption = resumption.clone();
                for variable in &symbols.variables {
                    if let Some((address, bytes)) = loaded.ask_driver(module, &variable.name) {
                        loaded.info.globals.push(GlobalInfo { name: variable.name.clone(), address, bytes, constant: variable.constant, managed: false });
                    }
                }
            }
        }
        Ok(loaded)
    }

    /// Has the driver describe the kernels of a divided image, and counts one client as a user.
    /// None of their code is on the card afterwards. Call this while the card is quiet.
    ///
    /// # Errors
    /// The driver's error, as a sentence. The image may still be loaded as a whole.
    pub(super) fn load_outline(gate: &Arc<Gate>, image: DividedImage, symbols: &Symbols, idle: IdleVariables) -> Result<LoadedModule, DeviceError> {
        let driver = gate.driver();
        let outline = load_image(driver, &image.outline()?)?;
        let mut loaded = LoadedModule::new(gate, Loaded::OnDemand(image), symbols, idle);
        let read = loaded.read_kernels(outline, symbols, false);
        driver.unload_module(outline);
        read?;
        if let Loaded::OnDemand(image) = &mut loaded.loaded {
            image.number_functions(loaded.kernels.iter().map(|kernel| &*kernel.name))?;
        }
        loaded.info.on_demand = true;
        Ok(loaded)
    }

    fn new(gate: &Arc<Gate>, loaded: Loaded, symbols: &Symbols, idle: IdleVariables) -> LoadedModule {
        LoadedModule {
            gate: gate.clone(),
            loaded,
            kernels: Vec::new(),
            info: ModuleInfo::default(),
            sharing: if symbols.writable { Sharing::OneClient } else { Sharing::AnyClient },
            variables: VariablesHome::Driver,
            idle,
            constants: Vec::new(),
            resumption: Resumption::Possible,
            shared_name: OnceLock::new(),
            users: AtomicUsize::new(1),
            attributes: Mutex::default(),
        }
    }

    /// Reads the description of a module's kernels. `have_code`: their code is that of `module`.
    /// Kernels that need more local memory than there is wait for it
    /// ([`LoadedModule::load_kernel`]).
    fn read_kernels(&mut self, module: Module, symbols: &Symbols, have_code: bool) -> Result<(), DeviceError> {
        let gate = self.gate.clone();
        let driver = gate.driver();
        let fail = |error| image_error(error, format!("a kernel of the module cannot be put on the card: {}", driver.describe(error)));
        for handle in driver.functions(module).map_err(fail)? {
            if have_code {
                driver.load_function(handle).map_err(fail)?;
            }
            let mut info = read_function(driver, handle).map_err(fail)?;
            info.unbounded = symbols.unbounded.get(&info.name).map(|why| match why {
                calls::Unbounded::Recursion => Unbounded::Recursion,
                calls::Unbounded::Address => Unbounded::Address,
            });
            info.tells_driver = symbols.sets_conditions.has(&info.name);
            self.kernels.push(Kernel {
                code: OnceLock::new(),
                id: NEXT_KERNEL.fetch_add(1, Ordering::Relaxed),
                lasting: lasting_number(&info),
                name: info.name.as_str().into(),
                parameter_bytes: info.parameter_bytes,
                prints: symbols.prints.has(&info.name),
                asserts: symbols.asserts,
                local: local_bytes(driver, &info, symbols),
                without_memory: OnceLock::new(),
            });
            self.info.functions.push(info);
            if have_code && let Some(kernel) = self.kernels.last() {
                kernel.enter(KernelCode { handle, module }, driver.local_memory());
            }
        }
        if have_code && self.kernels.iter().any(|kernel| kernel.prints) {
            make_printing(driver);
        }
        Ok(())
    }

    /// Loads the code of a kernel, if it is not on the card. Waits for a quiet card, so an engine
    /// thread must not call this. The wait is counted in `counts`, as [`Gate::run_quietly`] does.
    /// With those of a client, the kernel is about to be launched: the local memory that it needs
    /// is made, too. Who only stands by takes no memory of the card for it.
    ///
    /// # Errors
    /// A sentence: there is no such function, or the driver refuses its code;
    /// [`DeviceError::LetGo`] if the client goes on in another process.
    pub(crate) fn load_kernel(&self, function: u32, counts: Option<&ClientCounts>) -> Result<(), DeviceError> {
        let unknown = || DeviceError::Invalid(format!("the module has no function {function}"));
        let kernel = self.kernels.get(function as usize).ok_or_else(unknown)?;
        if kernel.code.get().is_some() {
            return Ok(());
        }
        let Loaded::OnDemand(image) = &self.loaded else { return self.make_memory(kernel, counts) };
        let _guard = image.lock();
        if kernel.handle().is_some() {
            return self.make_memory(kernel, counts);
        }
        let excerpt = image.excerpt(function as usize)?;
        let begun = Instant::now();
        let load = || {
            self.load_excerpt(&excerpt, function, kernel)?;
            let driver = self.gate.driver();
            // The card need not be quiet a second time for it. Why it fails is told below.
            if counts.is_some() && kernel.local > driver.local_memory() {
                let _ = driver.grow_local_memory(kernel.local);
            }
            Ok(())
        };
        let loaded: Result<(), DeviceError> = self.gate.run_quietly(counts, load).map_err(NotQuiet::into_error)?;
        tracing::debug!(kernel = &*kernel.name, bytes = excerpt.len(), took = ?begun.elapsed(), "a kernel is loaded");
        loaded?;
        self.make_memory(kernel, counts)
    }

    /// True if a kernel whose code is on the card may be launched now, because the context has got
    /// the local memory that it needs for another one. Does not wait.
    pub(crate) fn finds_memory(&self, function: u32) -> bool {
        let Some(kernel) = self.kernels.get(function as usize) else { return false };
        let Some(code) = kernel.without_memory.get().copied() else { return false };
        let has_memory = self.gate.driver().local_memory_now().is_some_and(|bytes| kernel.local <= bytes);
        if has_memory {
            let _ = kernel.code.set(code);
        }
        has_memory
    }

    /// Makes the local memory for a kernel whose code is on the card, if its client launches it.
    fn make_memory(&self, kernel: &Kernel, counts: Option<&ClientCounts>) -> Result<(), DeviceError> {
        let (driver, code) = (self.gate.driver(), kernel.without_memory.get().copied());
        let Some(code) = code.filter(|_| kernel.code.get().is_none()) else { return Ok(()) };
        let Some(counts) = counts else {
            driver.await_local_memory(kernel.local);
            return Ok(());
        };
        // Another kernel may have needed as much meanwhile.
        while kernel.local > driver.local_memory() {
            match self.gate.run_quietly(Some(counts), || make_local_memory(driver, kernel.local)).map_err(NotQuiet::into_error)? {
                Err(DeviceError::OutOfMemory(_)) if driver.expects_memory() => std::thread::sleep(MEMORY_COMES_IN),
                made => made?,
            }
        }
        let _ = kernel.code.set(code);
        Ok(())
    }

    fn load_excerpt(&self, excerpt: &[u8], function: u32, kernel: &Kernel) -> Result<(), DeviceError> {
        let driver = self.gate.driver();
        let module = load_image(driver, excerpt)?;
        let enter = || -> Result<(), DeviceError> {
            let fail = |error| image_error(error, format!("{} cannot be put on the card: {}", kernel.name, driver.describe(error)));
            let mut functions = driver.functions(module).map_err(fail)?.into_iter();
            let (Some(handle), None) = (functions.next(), functions.next()) else {
                return Err(DeviceError::Invalid(format!("the excerpt for {} has not exactly one kernel", kernel.name)));
            };
            driver.load_function(handle).map_err(fail)?;
            if kernel.prints {
                make_printing(driver);
            }
            let made = driver.local_memory();
            let attributes = self.attributes.lock();
            for ((_, attribute), value) in attributes.range((function, 0)..=(function, u32::MAX)) {
                driver.set_function_attribute(handle, Attribute(*attribute), *value).map_err(fail)?;
            }
            kernel.enter(KernelCode { handle, module }, made);
            Ok(())
        };
        enter().inspect_err(|_| driver.unload_module(module))
    }

    /// The address and bytes of a variable where the driver has put it.
    fn ask_driver(&self, module: Module, name: &str) -> Option<(CardAddress, u64)> {
        self.gate.driver().variable(module, &CString::new(name).ok()?)
    }

    fn use_placement(&mut self, placement: &Placement, module: Module) {
        self.variables = VariablesHome::Client;
        self.info.globals.clone_from(&placement.globals);
        for (name, copy, bytes) in placement.constants.iter().flat_map(PlacedConstants::variables) {
            // A constant that the driver does not know cannot be written by anybody.
            let Some((bank, in_bank)) = self.ask_driver(module, name) else { continue };
            self.constants.push(ConstantCopy { copy, bank, bytes: bytes.min(in_bank) });
            self.info.globals.push(GlobalInfo { name: name.to_owned(), address: copy, bytes, constant: true, managed: false });
        }
    }

    /// Fills the bank of `__constant__` variables from their copy, if that is a predecessor's; else
    /// the copy from the bank.
    ///
    /// # Errors
    /// The driver's error, as a sentence.
    pub(super) fn fill_constants(&self, extents: &Extents, variables: &Variables, place: &mut dyn GlobalsAllocator) -> Result<(), DeviceError> {
        let Variables::Placed(Placement { constants: Some(placed), .. }) = variables else { return Ok(()) };
        let mut copy_all = || {
            self.constants.iter().try_for_each(|ConstantCopy { copy, bank, bytes }| {
                let (target, source) = if placed.restored { (bank, copy) } else { (copy, bank) };
                extents.copy(*target, *source, *bytes)
            })
        };
        if placed.restored { copy_all() } else { place.fill(&mut copy_all) }
    }

    /// Any client that brings this image may use the module.
    pub(super) fn share_as(&self, image: ImageHash) {
        let _ = self.shared_name.set(image);
    }

    /// The image's name, by which another process has the same module; `None` for one that belongs
    /// to a client.
    pub(crate) fn shared_name(&self) -> Option<ImageHash> {
        self.shared_name.get().copied()
    }

    /// Has a kernel take so much dynamic shared memory, as its clients did in another process.
    ///
    /// # Errors
    /// As [`LoadedModule::set_attribute`].
    pub(crate) fn allow_shared_memory(&self, function: u32, bytes: u32) -> Result<(), DeviceError> {
        if bytes <= USUAL_SHARED {
            return Ok(());
        }
        self.set_attribute(function, MAX_DYNAMIC_SHARED, i32::try_from(bytes).unwrap_or(i32::MAX))
    }

    /// Counts one more client as a user.
    pub(super) fn add_user(&self) {
        self.users.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts one client less as a user.
    pub(crate) fn remove_user(&self) {
        self.users.fetch_sub(1, Ordering::AcqRel);
    }

    /// True if a client uses the module.
    pub(super) fn is_used(&self) -> bool {
        self.users.load(Ordering::Acquire) > 0
    }

    /// Sets a kernel's attribute, when its code is on the card or as soon as it is. The limit of
    /// dynamic shared memory only grows: clients that share the module get the largest that any of
    /// them has set.
    ///
    /// # Errors
    /// A sentence: there is no such function, or the driver refuses the value.
    pub(crate) fn set_attribute(&self, function: u32, attribute: Attribute, value: i32) -> Result<(), DeviceError> {
        let unknown = || DeviceError::Invalid(format!("the module has no function {function}"));
        let kernel = self.kernels.get(function as usize).ok_or_else(unknown)?;
        let mut attributes = self.attributes.lock();
        if attribute == MAX_DYNAMIC_SHARED && attributes.get(&(function, attribute.0)).is_some_and(|known| *known >= value && value >= 0) {
            return Ok(());
        }
        if let Some(handle) = kernel.handle() {
            let driver = self.gate.driver();
            driver.set_function_attribute(handle, attribute, value).map_err(|error| {
                let text = format!("attribute {} of {} cannot be set to {value}: {}", attribute.0, kernel.name, driver.describe(error));
                remedy::refused_call(error, text, DeviceError::Invalid)
            })?;
        }
        attributes.insert((function, attribute.0), value);
        Ok(())
    }
}

/// [`Kernel::lasting`]. Kernels of the same name in different modules mostly differ in the rest.
fn lasting_number(info: &FunctionInfo) -> u64 {
    let mut number = FxHasher::default();
    (info.name.as_str(), info.parameter_bytes, info.registers, info.static_shared, info.constant).hash(&mut number);
    number.finish()
}

/// Bytes of local memory that a thread of this kernel needs at most: its own, and the stack, where
/// nobody knows how much of that it uses.
fn local_bytes(driver: &Driver, info: &FunctionInfo, symbols: &Symbols) -> u64 {
    let is_known = info.unbounded.is_none() && !symbols.moves_stack.has(&info.name);
    u64::from(info.local) + if is_known { 0 } else { driver.stack() }
}

/// Makes what kernels need that print. Call this while the card is quiet.
fn make_printing(driver: &Driver) {
    if let Err(error) = driver.make_printing() {
        tracing::warn!("the first kernel that prints may stop all others: {}", driver.describe_numbered(error));
    }
}

/// Makes local memory for kernels. Call this while the card is quiet.
///
/// # Errors
/// A sentence: the card has no room for it.
fn make_local_memory(driver: &Driver, bytes: u64) -> Result<(), DeviceError> {
    driver.grow_local_memory(bytes).map_err(|error| {
        let text = format!("{bytes} bytes of local memory for each thread cannot be made: {}", driver.describe(error));
        remedy::refused_call(error, text, DeviceError::OutOfMemory)
    })
}

/// Loads an image.
///
/// # Errors
/// The driver's error, as a sentence.
fn load_image(driver: &Driver, image: &[u8]) -> Result<Module, DeviceError> {
    driver.load_module(image).map_err(|CompileError { error, log }| {
        let text = driver.describe(error);
        match error {
            CudaError::OUT_OF_MEMORY => DeviceError::OutOfMemory(format!("no room for the module: {text}")),
            fatal if fatal.is_fatal() => DeviceError::Lost(format!("loading a module: {}", driver.describe_numbered(fatal))),
            other => image_error(other, if log.is_empty() { text } else { format!("{text}: {log}") }),
        }
    })
}

/// Reads the description of a kernel that clients get.
fn read_function(driver: &Driver, function: Function) -> Call<FunctionInfo> {
    let read = |attribute| driver.function_attribute(function, attribute).map(|value| u32::try_from(value).unwrap_or(0));
    let parameters: Vec<Parameter> = (0..).map_while(|i| driver.parameter(function, i)).map(|(offset, bytes)| Parameter { offset, bytes }).collect();
    Ok(FunctionInfo {
        name: driver.function_name(function)?,
        parameter_bytes: parameters.iter().map(|p| p.offset + p.bytes).max().unwrap_or(0),
        parameters,
        static_shared: read(Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
        constant: read(Attribute::CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES)?,
        local: read(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
        registers: read(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
        max_threads: read(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        ptx_version: read(Attribute::CU_FUNC_ATTRIBUTE_PTX_VERSION)?,
        binary_version: read(Attribute::CU_FUNC_ATTRIBUTE_BINARY_VERSION)?,
        cluster: [
            read(Attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH).unwrap_or(0),
            read(Attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT).unwrap_or(0),
            read(Attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH).unwrap_or(0),
        ],
        required_block: [0; 3],
        refused: None,
        tells_driver: false,
        unbounded: None,
    })
}

/// A client's reference to a module that other clients may share. It is a separate allocation:
/// references are counted at each launch, and engines that counted in one cache line would wait for
/// one another.
pub(crate) struct ClientModule(Arc<LoadedModule>);

impl ClientModule {
    /// A client's reference to this module. The client is counted as a user already.
    pub(crate) fn new(module: Arc<LoadedModule>) -> Arc<ClientModule> {
        Arc::new(ClientModule(module))
    }
}

impl Deref for ClientModule {
    type Target = LoadedModule;
    fn deref(&self) -> &LoadedModule {
        &self.0
    }
}
