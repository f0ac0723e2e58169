//! Modules: an image goes through the window to the executor, a description of its functions and
//! variables comes back.

use crate::connection::Connection;
use crate::context::{self, Context};
use crate::ffi::{Try, error, forward, list, name, put, put_if};
use crate::function::{FUNCTIONS, Function, FunctionOrigin};
use crate::handle::{Kind, Table};
use crate::image::{self, Given};
use crate::log::unsupported;
use crate::{jit, memory, process};
use core::ffi::{c_char, c_uint, c_void};
use cumux_abi::{CUdeviceptr, CUdeviceptr_v1, CUfunction, CUjit_option, CUmodule, CUresult};
use cumux_fatbin::Relocatable;
use cumux_wire::module::{FunctionInfo, GlobalInfo, ModuleInfo};
use cumux_wire::record::Op;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// Room for a module's description at the first attempt.
const INFO_BYTES: u64 = 256 << 10;

/// What else helps against machine code that a program has by itself.
const COMPILED_HERE: &str = "; if the program has compiled it while it ran (NVRTC, nvJitLink): cumux run makes these compile to PTX for software GPUs, \
                             as does libcumux_compilers.so in LD_PRELOAD, and XLA (JAX) takes XLA_FLAGS=--xla_gpu_enable_libnvptxcompiler=false";

/// All modules.
pub(crate) static MODULES: Table<Module> = Table::new(Kind::Module);

/// A loaded module.
#[derive(Debug)]
pub struct Module {
    /// The word that the program holds.
    pub handle: u64,
    /// The number by which the executor knows it.
    pub number: u32,
    /// Its context; a library's first module has none until a context claims it.
    context: OnceLock<u64>,
    /// Belongs to a library: `cuModuleUnload` refuses it.
    pub of_library: bool,
    functions: Vec<Entry>,
    by_name: HashMap<String, u32>,
    globals: HashMap<String, GlobalInfo>,
}

#[derive(Debug)]
struct Entry {
    info: Arc<FunctionInfo>,
    made: OnceLock<Arc<Function>>,
}

/// What the service said about an image it could not load.
#[derive(Debug)]
pub struct Rejection {
    /// The result that the program gets.
    pub code: CUresult,
    /// The reason in words; empty where there is none.
    pub text: String,
}

impl Rejection {
    /// Nothing in the image is for this device, or the image is empty.
    fn is_about_architectures(&self) -> bool {
        matches!(self.code, CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU | CUresult::CUDA_ERROR_INVALID_IMAGE)
    }
}

impl From<CUresult> for Rejection {
    fn from(code: CUresult) -> Self {
        Self { code, text: String::new() }
    }
}

impl Module {
    /// Loads an image into a context. Where it fails, the program's user is told why.
    ///
    /// # Errors
    /// The executor's code and its diagnostic.
    pub fn load(session: &Connection, device: u32, context: Option<u64>, image: &Given<'_>, of_library: bool) -> Result<Arc<Self>, Rejection> {
        Self::load_or_link(session, device, context, image, of_library).map(|(module, _)| module)
    }

    /// Loads an image, or what its parts are linked to, which is the second answer.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_or_link(
        session: &Connection,
        device: u32,
        context: Option<u64>,
        image: &Given<'_>,
        of_library: bool,
    ) -> Result<(Arc<Self>, Option<Vec<u8>>), Rejection> {
        let loaded = match Self::load_quietly(session, device, context, image.bytes, of_library) {
            // The compiler has linked nothing that this device takes, but there are the parts.
            Err(rejection) if rejection.is_about_architectures() && !image.parts.is_empty() => {
                Self::link_and_load(session, device, context, image, of_library, rejection)
            }
            loaded => loaded.map(|module| (module, None)),
        };
        loaded
            .map_err(|mut rejection| {
                // A bare image is what a compiler makes while a program runs.
                let is_machine_code = rejection.code == CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU && image.bytes.starts_with(b"\x7fELF");
                let device = crate::device::all(session).get(device as usize);
                if is_machine_code && device.is_some_and(|device| device.facts.capabilities.runs_ptx_alone) && !rejection.text.is_empty() {
                    rejection.text.push_str(COMPILED_HERE);
                }
                rejection
            })
            .inspect_err(|rejection| {
                if !rejection.text.is_empty() {
                    crate::log::tell(format_args!("a module was not loaded: {}", rejection.text));
                }
            })
    }

    fn link_and_load(
        session: &Connection,
        device: u32,
        context: Option<u64>,
        image: &Given<'_>,
        of_library: bool,
        unlinked: Rejection,
    ) -> Result<(Arc<Self>, Option<Vec<u8>>), Rejection> {
        let linked = crate::link::link_parts(session, device, &image.parts).map_err(|refusal| Rejection { code: refusal.code, text: refusal.text })?;
        let Some(linked) = linked else {
            return Err(match Relocatable::of(image.bytes, &image.parts) {
                Some(relocatable) => Rejection { code: CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU, text: format!("the program was {relocatable}") },
                // Nothing of the program's own is among the parts.
                None => unlinked,
            });
        };
        let module = Self::load_quietly(session, device, context, &linked, of_library)?;
        Ok((module, Some(linked)))
    }

    fn load_quietly(session: &Connection, device: u32, context: Option<u64>, image: &[u8], of_library: bool) -> Result<Arc<Self>, Rejection> {
        let number = u32::try_from(process::new_number()).map_err(|_| error::OUT_OF_MEMORY)?;
        let image_bytes = image.len() as u64;
        let at = session.window.take_piece(image_bytes, 4096)?;
        let sent = if session.window.write(at, image) { describe(session, device, number, at, image_bytes) } else { Err(error::UNKNOWN.into()) };
        session.window.return_piece(at);
        let info = sent?;
        session.recording.loaded(number, info.functions.iter());
        let by_name = info.functions.iter().enumerate().filter_map(|(index, function)| Some((function.name.clone(), u32::try_from(index).ok()?))).collect();
        let functions = info.functions.into_iter().map(|info| Entry { info: Arc::new(info), made: OnceLock::new() }).collect();
        let globals = info.globals.into_iter().map(|global| (global.name.clone(), global)).collect();
        let context = context.map_or_else(OnceLock::new, OnceLock::from);
        let make = |handle| Arc::new(Self { handle, number, context, of_library, functions, by_name, globals });
        let (_, module) = MODULES.insert(make).ok_or(error::OUT_OF_MEMORY)?;
        memory::adopt_globals(module.number, module.globals(), device);
        Ok(module)
    }

    /// Takes a module out: handles of its functions are invalid from now on.
    pub fn unload(&self, session: &Connection) -> Try {
        MODULES.remove(self.handle);
        FUNCTIONS.remove_all(|function| function.origin.module == self.number);
        memory::forget_module(self.number);
        session.control(&Op::ModuleUnload { module: self.number })
    }

    /// Id of its context, 0 while it has none.
    #[must_use]
    pub fn context(&self) -> u64 {
        self.context.get().copied().unwrap_or(0)
    }

    /// Gives it to a context, if it has none.
    pub(crate) fn claim(&self, context: u64) {
        let _ = self.context.set(context);
    }

    /// The handle as C has it.
    #[must_use]
    pub fn as_c(&self) -> CUmodule {
        core::ptr::without_provenance_mut(self.handle as usize)
    }

    /// How many functions it has.
    #[must_use]
    pub fn function_count(&self) -> usize {
        self.functions.len()
    }

    /// The index of the function with a name.
    #[must_use]
    pub fn function_index(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// What the executor said of a function.
    #[must_use]
    pub fn info(&self, index: u32) -> Option<&Arc<FunctionInfo>> {
        self.functions.get(index as usize).map(|entry| &entry.info)
    }

    /// The variable with a name.
    #[must_use]
    pub fn global(&self, name: &str) -> Option<&GlobalInfo> {
        self.globals.get(name)
    }

    /// True if it has `__managed__` variables.
    #[must_use]
    pub fn has_managed_variables(&self) -> bool {
        self.globals().any(|global| global.managed)
    }

    /// All variables.
    pub fn globals(&self) -> impl Iterator<Item = &GlobalInfo> {
        self.globals.values()
    }

    /// The function at an index; the same handle every time.
    ///
    /// # Errors
    /// NOT_FOUND, OUT_OF_MEMORY.
    pub fn function(&self, index: u32) -> Try<Arc<Function>> {
        let entry = self.functions.get(index as usize).ok_or(error::NOT_FOUND)?;
        if let Some(function) = entry.made.get() {
            return Ok(Arc::clone(function));
        }
        let origin = FunctionOrigin { module: self.number, module_handle: self.handle, index, context: self.context() };
        let make = |handle| Arc::new(Function::new(handle, origin, Arc::clone(&entry.info)));
        let (handle, made) = FUNCTIONS.insert(make).ok_or(error::OUT_OF_MEMORY)?;
        if entry.made.set(made).is_err() {
            FUNCTIONS.remove(handle);
        }
        entry.made.get().cloned().ok_or(error::UNKNOWN)
    }
}

/// Sends an image that lies in the window and decodes the answer.
fn describe(session: &Connection, device: u32, module: u32, image: u64, image_bytes: u64) -> Result<ModuleInfo, Rejection> {
    let mut info_bytes = INFO_BYTES;
    loop {
        let info = session.window.take_piece(info_bytes, 4096)?;
        let answer = session.ask(&Op::ModuleLoad { module, device, image, image_bytes, info, info_bytes });
        let text = |bytes: u64| session.window.read(info, bytes.min(info_bytes)).unwrap_or_default();
        let outcome = match answer {
            Ok([bytes, ..]) => Ok(text(bytes)),
            Err((error::INVALID_VALUE, [_, needed, ..])) if needed > info_bytes && needed < 1 << 30 => Err(needed),
            Err((code, [bytes, ..])) => {
                let text = String::from_utf8_lossy(&text(bytes)).trim_end_matches('\0').to_owned();
                session.window.return_piece(info);
                return Err(Rejection { code, text });
            }
        };
        session.window.return_piece(info);
        match outcome {
            Ok(bytes) => {
                return ModuleInfo::decode(&bytes).map_err(|text| Rejection { code: error::UNKNOWN, text });
            }
            Err(needed) => info_bytes = needed,
        }
    }
}

/// The log buffers among the JIT options of a load, filled with a text.
///
/// # Safety
/// The arrays are what a C caller passed to a load call.
pub(crate) unsafe fn fill_logs(count: c_uint, options: *mut CUjit_option, values: *mut *mut c_void, text: &str) -> Try {
    if count == 0 || options.is_null() || values.is_null() {
        return Ok(());
    }
    let (options, given) = (list!(options.cast_const(), count as usize), list!(values.cast_const(), count as usize));
    let find = |wanted: CUjit_option| options.iter().position(|option| *option == wanted);
    let pairs = [
        (CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, text),
        (CUjit_option::CU_JIT_INFO_LOG_BUFFER, CUjit_option::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, ""),
    ];
    for (buffer, size, text) in pairs {
        let (Some(buffer), Some(size)) = (find(buffer), find(size)) else { continue };
        let (Some(at), Some(room)) = (given.get(buffer), given.get(size)) else { continue };
        let room = room.addr();
        if at.is_null() || room == 0 {
            continue;
        }
        // SAFETY: the program says that its buffer has that room; the low half of the value is the
        // size, as the manual has it.
        unsafe { crate::ffi::fill_text(at.cast::<c_char>(), room & 0xFFFF_FFFF, text.as_bytes())? };
        let written = text.len().min((room & 0xFFFF_FFFF).saturating_sub(1));
        // The size is answered in the same place.
        put!(values.wrapping_add(size), core::ptr::without_provenance_mut(written));
    }
    Ok(())
}

unsafe fn load_ex(out: *mut CUmodule, image: *const c_void, count: c_uint, options: *mut CUjit_option, values: *mut *mut c_void) -> Try {
    let session = process::enter()?;
    let context = context::current()?;
    if out.is_null() {
        return Err(error::INVALID_VALUE);
    }
    // SAFETY: the program vouches for its image.
    let image = unsafe { image::given(image)? };
    // SAFETY: the program vouches for its options.
    let limited = jit::limit_registers(image.bytes, unsafe { jit::most_registers(count, options, values)? });
    let image = limited.as_deref().map_or(image, Given::from);
    let loaded = Module::load(session, context.device, Some(context.id), &image, false);
    let text = loaded.as_ref().err().map_or("", |rejection| rejection.text.as_str());
    // SAFETY: the program vouches for its options.
    unsafe { fill_logs(count, options, values, text)? };
    let module = loaded.map_err(|rejection| rejection.code)?;
    put!(out, module.as_c());
    Ok(())
}

pub unsafe fn cuModuleLoadDataEx(out: *mut CUmodule, image: *const c_void, count: c_uint, options: *mut CUjit_option, values: *mut *mut c_void) -> Try {
    forward!(load_ex(out, image, count, options, values))
}

pub unsafe fn cuModuleLoadData(out: *mut CUmodule, image: *const c_void) -> Try {
    forward!(load_ex(out, image, 0, core::ptr::null_mut(), core::ptr::null_mut()))
}

pub unsafe fn cuModuleLoadFatBinary(out: *mut CUmodule, image: *const c_void) -> Try {
    forward!(load_ex(out, image, 0, core::ptr::null_mut(), core::ptr::null_mut()))
}

/// An image from a file, with a NUL behind it so that text ends.
pub(crate) fn read_file(path: &str) -> Try<Vec<u8>> {
    let mut bytes = std::fs::read(path).map_err(|_| error::FILE_NOT_FOUND)?;
    bytes.push(0);
    Ok(bytes)
}

pub unsafe fn cuModuleLoad(out: *mut CUmodule, path: *const c_char) -> Try {
    let session = process::enter()?;
    let context = context::current()?;
    if out.is_null() {
        return Err(error::INVALID_VALUE);
    }
    let bytes = read_file(name!(path))?;
    let module = Module::load(session, context.device, Some(context.id), &bytes[..].into(), false).map_err(|rejection| rejection.code)?;
    put!(out, module.as_c());
    Ok(())
}

fn named(module: CUmodule) -> Try<Arc<Module>> {
    MODULES.get(module.addr() as u64).ok_or(error::INVALID_HANDLE)
}

pub unsafe fn cuModuleUnload(module: CUmodule) -> Try {
    let session = process::find_connection()?;
    let module = named(module)?;
    if module.of_library {
        return Err(error::NOT_PERMITTED);
    }
    module.unload(session)
}

pub unsafe fn cuModuleGetFunction(out: *mut CUfunction, module: CUmodule, wanted: *const c_char) -> Try {
    process::enter()?;
    let module = named(module)?;
    let index = module.function_index(name!(wanted)).ok_or(error::NOT_FOUND)?;
    put!(out, module.function(index)?.as_c());
    Ok(())
}

pub unsafe fn cuModuleGetFunctionCount(out: *mut c_uint, module: CUmodule) -> Try {
    process::find_connection()?;
    let module = named(module)?;
    put!(out, c_uint::try_from(module.function_count()).unwrap_or(c_uint::MAX));
    Ok(())
}

pub unsafe fn cuModuleEnumerateFunctions(out: *mut CUfunction, count: c_uint, module: CUmodule) -> Try {
    process::enter()?;
    let module = named(module)?;
    if out.is_null() {
        return Err(error::INVALID_VALUE);
    }
    for index in 0..count.min(module.function_count() as c_uint) {
        put!(out.wrapping_add(index as usize), module.function(index)?.as_c());
    }
    Ok(())
}

pub unsafe fn cuModuleGetGlobal_v2(address: *mut CUdeviceptr, bytes: *mut usize, module: CUmodule, wanted: *const c_char) -> Try {
    process::enter()?;
    let module = named(module)?;
    let global = module.global(name!(wanted)).ok_or(error::NOT_FOUND)?;
    put_if!(address, global.address);
    put_if!(bytes, usize::try_from(global.bytes).unwrap_or(usize::MAX));
    Ok(())
}

pub unsafe fn cuModuleGetGlobal(address: *mut CUdeviceptr_v1, bytes: *mut c_uint, module: CUmodule, wanted: *const c_char) -> Try {
    process::enter()?;
    let module = named(module)?;
    let global = module.global(name!(wanted)).ok_or(error::NOT_FOUND)?;
    if !address.is_null() {
        return Err(unsupported("device addresses of 32 bits, as this name had them before CUDA 3.2"));
    }
    put_if!(bytes, c_uint::try_from(global.bytes).unwrap_or(c_uint::MAX));
    Ok(())
}

/// The device a context is on, for loads that name no context.
pub(crate) fn device_of(context: Option<&Context>) -> u32 {
    context.map_or(0, |context| context.device)
}

/// A context has ended: its functions and modules go.
pub(crate) fn end_context(session: &'static Connection, context: &Context) {
    FUNCTIONS.remove_all(|function| function.origin.context == context.id);
    for module in MODULES.remove_all(|module| module.context() == context.id) {
        let _ = session.control(&Op::ModuleUnload { module: module.number });
    }
}
