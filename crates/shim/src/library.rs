//! Libraries: images that belong to no context. Each context that uses one gets a module of its
//! own, loaded at first use, with its own variables.
//!
//! The image is loaded once when the library is made, so that errors show at once; that module
//! belongs to the first context that asks.

use crate::connection::Connection;
use crate::context::{self, Context};
use crate::ffi::{Try, error, list, name, put, put_if};
use crate::function::attributes::{get_attribute, set_attribute, tell_parameter};
use crate::function::{FUNCTIONS, Function};
use crate::handle::{Kind, Table};
use crate::image::{self, Given};
use crate::log::unsupported;
use crate::module::{MODULES, Module};
use crate::sync::lock;
use crate::{device, jit, process};
use core::ffi::{c_char, c_int, c_uint, c_void};
use cumux_abi::{CUdevice, CUdeviceptr, CUfunc_cache, CUfunction, CUfunction_attribute, CUjit_option, CUkernel, CUlibrary, CUlibraryOption, CUmodule};
use cumux_wire::module::FunctionInfo;
use std::ffi::CString;
use std::sync::{Arc, Mutex, OnceLock};

/// All libraries.
pub(crate) static LIBRARIES: Table<Library> = Table::new(Kind::Library);

/// All kernels of libraries.
pub(crate) static KERNELS: Table<Kernel> = Table::new(Kind::Kernel);

/// A context's module of a library.
#[derive(Debug)]
struct Instance {
    /// `None`: loaded when the library was made, not claimed by a context yet.
    context: Option<u64>,
    module: Arc<Module>,
}

/// A library.
#[derive(Debug)]
pub struct Library {
    /// The word that the program holds.
    pub handle: u64,
    image: Vec<u8>,
    device: u32,
    instances: Mutex<Vec<Instance>>,
    kernels: Vec<OnceLock<Arc<Kernel>>>,
    /// Names and layouts, which are the same in every instance.
    first: Arc<Module>,
}

/// A kernel of a library.
#[derive(Debug)]
pub struct Kernel {
    /// The word that the program holds.
    pub handle: u64,
    library: u64,
    index: u32,
    /// What the executor said of it.
    pub info: Arc<FunctionInfo>,
    name: CString,
    /// The function in the first context that used it, which is nearly always the only one.
    usual: OnceLock<Arc<Function>>,
}

impl Library {
    fn load(session: &'static Connection, image: &Given<'_>, context: Option<&Context>) -> Result<Arc<Self>, crate::module::Rejection> {
        let device = crate::module::device_of(context);
        let (module, linked) = Module::load_or_link(session, device, context.map(|context| context.id), image, true)?;
        let kernels = (0..module.function_count()).map(|_| OnceLock::new()).collect();
        let instances = Mutex::new(vec![Instance { context: context.map(|context| context.id), module: Arc::clone(&module) }]);
        let make = |handle| Arc::new(Self { handle, image: linked.unwrap_or_else(|| image.bytes.to_vec()), device, instances, kernels, first: module });
        Ok(LIBRARIES.insert(make).map(|(_, library)| library).ok_or(error::OUT_OF_MEMORY)?)
    }

    /// The module of this library in a context.
    ///
    /// # Errors
    /// As loading.
    pub fn module(&self, session: &'static Connection, context: &Context) -> Try<Arc<Module>> {
        let mut instances = lock(&self.instances);
        if let Some(instance) = instances.iter().find(|instance| instance.context == Some(context.id)) {
            return Ok(Arc::clone(&instance.module));
        }
        if let Some(instance) = instances.iter_mut().find(|instance| instance.context.is_none() && self.device == context.device) {
            instance.context = Some(context.id);
            instance.module.claim(context.id);
            return Ok(Arc::clone(&instance.module));
        }
        if self.first.has_managed_variables() {
            // The program reaches one set of them, which this instance would not use.
            return Err(unsupported("a library with __managed__ variables in a second context or on another device"));
        }
        let module = Module::load(session, context.device, Some(context.id), &self.image[..].into(), true).map_err(|rejection| rejection.code)?;
        instances.push(Instance { context: Some(context.id), module: Arc::clone(&module) });
        Ok(module)
    }

    /// A context has ended, and its module of this library with it.
    pub(crate) fn forget(&self, session: &Connection, context: u64) {
        let gone: Vec<Instance> = lock(&self.instances).extract_if(.., |instance| instance.context == Some(context)).collect();
        for instance in gone {
            // Already unloaded with the context's modules, if it had been registered there.
            if MODULES.get(instance.module.handle).is_some() {
                let _ = instance.module.unload(session);
            }
        }
    }

    fn kernel(&self, index: u32) -> Try<Arc<Kernel>> {
        let cell = self.kernels.get(index as usize).ok_or(error::NOT_FOUND)?;
        if let Some(kernel) = cell.get() {
            return Ok(Arc::clone(kernel));
        }
        let info = Arc::clone(self.first.info(index).ok_or(error::NOT_FOUND)?);
        let name = CString::new(info.name.as_str()).unwrap_or_default();
        let make = |handle| Arc::new(Kernel { handle, library: self.handle, index, info, name, usual: OnceLock::new() });
        let (handle, made) = KERNELS.insert(make).ok_or(error::OUT_OF_MEMORY)?;
        if cell.set(made).is_err() {
            KERNELS.remove(handle);
        }
        cell.get().cloned().ok_or(error::UNKNOWN)
    }
}

impl Kernel {
    /// The handle as C has it.
    #[must_use]
    pub fn as_c(&self) -> CUkernel {
        core::ptr::without_provenance_mut(self.handle as usize)
    }

    /// The function in a context.
    ///
    /// # Errors
    /// As loading; INVALID_HANDLE when the library was unloaded.
    pub fn function(&self, session: &'static Connection, context: &Context) -> Try<Arc<Function>> {
        if let Some(function) = self.usual.get().filter(|function| function.origin.context == context.id)
            // A primary context keeps its id when it is reset; then the function is gone.
            && FUNCTIONS.get(function.handle).is_some()
        {
            return Ok(Arc::clone(function));
        }
        let library = LIBRARIES.get(self.library).ok_or(error::INVALID_HANDLE)?;
        let function = library.module(session, context)?.function(self.index)?;
        let _ = self.usual.set(Arc::clone(&function));
        Ok(function)
    }
}

fn named(library: CUlibrary) -> Try<Arc<Library>> {
    LIBRARIES.get(library.addr() as u64).ok_or(error::INVALID_HANDLE)
}

fn find_kernel(kernel: CUkernel) -> Try<Arc<Kernel>> {
    KERNELS.get(kernel.addr() as u64).ok_or(error::INVALID_HANDLE)
}

/// The kernel of a library of which this is the function in some context; none for a function of a
/// module.
pub(crate) fn kernel_of(function: &Function) -> Option<Arc<Kernel>> {
    let has = |library: &Library| lock(&library.instances).iter().any(|instance| instance.module.handle == function.origin.module_handle);
    LIBRARIES.all(has).into_iter().next()?.kernel(function.origin.index).ok()
}

/// The function a handle names: a function, or a kernel in the current context.
pub(crate) fn find_function(session: &'static Connection, function: CUfunction) -> Try<Arc<Function>> {
    let handle = function.addr() as u64;
    if Kind::of(handle) == Some(Kind::Kernel as u8) {
        let kernel = KERNELS.get(handle).ok_or(error::INVALID_HANDLE)?;
        return kernel.function(session, &*context::current()?);
    }
    FUNCTIONS.get(handle).ok_or(error::INVALID_HANDLE)
}

fn load(out: *mut CUlibrary, image: &Given<'_>) -> Try {
    let session = process::enter()?;
    if out.is_null() {
        return Err(error::INVALID_VALUE);
    }
    let context = context::top().filter(|context| context.is_active());
    let library = Library::load(session, image, context.as_deref()).map_err(|rejection| rejection.code)?;
    put!(out, core::ptr::without_provenance_mut(library.handle as usize));
    Ok(())
}

#[expect(clippy::too_many_arguments, reason = "the driver's signature")]
pub unsafe fn cuLibraryLoadData(
    out: *mut CUlibrary,
    image: *const c_void,
    jit_options: *mut CUjit_option,
    jit_values: *mut *mut c_void,
    jit_count: c_uint,
    options: *mut CUlibraryOption,
    _values: *mut *mut c_void,
    count: c_uint,
) -> Try {
    // Known options only say how long the program keeps the image; it is copied anyway.
    let _ = (list!(options.cast_const(), count as usize), list!(jit_options.cast_const(), jit_count as usize));
    // SAFETY: the program vouches for its image.
    let image = unsafe { image::given(image)? };
    // SAFETY: the program vouches for its options.
    let limited = jit::limit_registers(image.bytes, unsafe { jit::most_registers(jit_count, jit_options, jit_values)? });
    load(out, &limited.as_deref().map_or(image, Given::from))
}

#[expect(clippy::too_many_arguments, reason = "the driver's signature")]
pub unsafe fn cuLibraryLoadFromFile(
    out: *mut CUlibrary,
    path: *const c_char,
    _jit_options: *mut CUjit_option,
    _jit_values: *mut *mut c_void,
    _jit_count: c_uint,
    _options: *mut CUlibraryOption,
    _values: *mut *mut c_void,
    _count: c_uint,
) -> Try {
    load(out, &crate::module::read_file(name!(path))?[..].into())
}

pub unsafe fn cuLibraryUnload(library: CUlibrary) -> Try {
    let session = process::find_connection()?;
    let library = LIBRARIES.remove(library.addr() as u64).ok_or(error::INVALID_HANDLE)?;
    KERNELS.remove_all(|kernel| kernel.library == library.handle);
    for instance in lock(&library.instances).drain(..) {
        instance.module.unload(session)?;
    }
    Ok(())
}

pub unsafe fn cuLibraryGetKernel(out: *mut CUkernel, library: CUlibrary, wanted: *const c_char) -> Try {
    process::enter()?;
    let library = named(library)?;
    let index = library.first.function_index(name!(wanted)).ok_or(error::NOT_FOUND)?;
    put!(out, library.kernel(index)?.as_c());
    Ok(())
}

pub unsafe fn cuLibraryGetKernelCount(out: *mut c_uint, library: CUlibrary) -> Try {
    process::find_connection()?;
    let library = named(library)?;
    put!(out, c_uint::try_from(library.kernels.len()).unwrap_or(c_uint::MAX));
    Ok(())
}

pub unsafe fn cuLibraryEnumerateKernels(out: *mut CUkernel, count: c_uint, library: CUlibrary) -> Try {
    process::enter()?;
    let library = named(library)?;
    if out.is_null() {
        return Err(error::INVALID_VALUE);
    }
    for index in 0..count.min(library.kernels.len() as c_uint) {
        put!(out.wrapping_add(index as usize), library.kernel(index)?.as_c());
    }
    Ok(())
}

pub unsafe fn cuLibraryGetModule(out: *mut CUmodule, library: CUlibrary) -> Try {
    let session = process::enter()?;
    let library = named(library)?;
    put!(out, library.module(session, &*context::current()?)?.as_c());
    Ok(())
}

fn tell(address: *mut CUdeviceptr, bytes: *mut usize, module: &Module, wanted: &str, managed: bool) -> Try {
    let global = module.global(wanted).filter(|global| !managed || global.managed).ok_or(error::NOT_FOUND)?;
    put_if!(address, global.address);
    put_if!(bytes, usize::try_from(global.bytes).unwrap_or(usize::MAX));
    Ok(())
}

pub unsafe fn cuLibraryGetGlobal(address: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, wanted: *const c_char) -> Try {
    let session = process::enter()?;
    let library = named(library)?;
    tell(address, bytes, &*library.module(session, &*context::current()?)?, name!(wanted), false)
}

pub unsafe fn cuLibraryGetManaged(address: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, wanted: *const c_char) -> Try {
    // Managed variables belong to no context: the runtime asks before it has one.
    process::enter()?;
    tell(address, bytes, &named(library)?.first, name!(wanted), true)
}

pub unsafe fn cuLibraryGetUnifiedFunction(_out: *mut *mut c_void, library: CUlibrary, _symbol: *const c_char) -> Try {
    process::enter()?;
    named(library)?;
    Err(error::NOT_FOUND)
}

pub unsafe fn cuKernelGetFunction(out: *mut CUfunction, wanted: CUkernel) -> Try {
    let session = process::enter()?;
    let kernel = find_kernel(wanted)?;
    put!(out, kernel.function(session, &*context::current()?)?.as_c());
    Ok(())
}

pub unsafe fn cuKernelGetLibrary(out: *mut CUlibrary, wanted: CUkernel) -> Try {
    process::find_connection()?;
    let kernel = find_kernel(wanted)?;
    put!(out, core::ptr::without_provenance_mut(kernel.library as usize));
    Ok(())
}

pub unsafe fn cuKernelGetName(out: *mut *const c_char, wanted: CUkernel) -> Try {
    process::find_connection()?;
    // The library keeps the kernel, and with it the text, until it is unloaded.
    put!(out, find_kernel(wanted)?.name.as_ptr());
    Ok(())
}

pub unsafe fn cuKernelGetParamInfo(wanted: CUkernel, index: usize, offset: *mut usize, bytes: *mut usize) -> Try {
    process::find_connection()?;
    tell_parameter(&find_kernel(wanted)?.info, index, offset, bytes)
}

/// A kernel's function on a device: in the current context if that is on it, else in the device's
/// primary context.
fn on_device(session: &'static Connection, wanted: CUkernel, device: CUdevice) -> Try<Arc<Function>> {
    let kernel = find_kernel(wanted)?;
    let ordinal = u32::try_from(device).map_err(|_| error::INVALID_DEVICE)?;
    device::named(session, device)?;
    match context::current() {
        Ok(context) if context.device == ordinal => kernel.function(session, &context),
        _ => kernel.function(session, context::primary(session, device)?),
    }
}

pub unsafe fn cuKernelGetAttribute(out: *mut c_int, attribute: CUfunction_attribute, kernel: CUkernel, device: CUdevice) -> Try {
    let session = process::enter()?;
    get_attribute(session, out, attribute, &*on_device(session, kernel, device)?)
}

pub unsafe fn cuKernelSetAttribute(attribute: CUfunction_attribute, value: c_int, kernel: CUkernel, device: CUdevice) -> Try {
    let session = process::enter()?;
    set_attribute(session, attribute, value, &*on_device(session, kernel, device)?)
}

pub unsafe fn cuKernelSetCacheConfig(wanted: CUkernel, config: CUfunc_cache, device: CUdevice) -> Try {
    let session = process::enter()?;
    find_kernel(wanted)?;
    device::named(session, device)?;
    if config.0 > CUfunc_cache::CU_FUNC_CACHE_PREFER_EQUAL.0 { Err(error::INVALID_VALUE) } else { Ok(()) }
}

/// A context has ended: its modules of libraries go.
pub(crate) fn end_context(session: &'static Connection, context: &Context) {
    for library in LIBRARIES.all(|_| true) {
        library.forget(session, context.id);
    }
}
