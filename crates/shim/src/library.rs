//! Libraries: images that belong to no context. Each context that uses one gets a module of its own, loaded at first use, with its own variables.
//!
//! The image is loaded once when the library is made, so that errors show at once; that module belongs to the first context that asks.

use crate::client::{self, Session, lock};
use crate::context::{self, Context};
use crate::ffi::{Try, error, list, name, put, put_if};
use crate::function::{self, Function};
use crate::image::Given;
use crate::module::Module;
use core::ffi::{c_char, c_int, c_uint, c_void};
use cumux_abi::{CUdevice, CUdeviceptr, CUfunc_cache, CUfunction, CUfunction_attribute, CUjit_option, CUkernel, CUlibrary, CUlibraryOption, CUmodule};
use cumux_wire::module::FunctionInfo;
use std::ffi::CString;
use std::sync::{Arc, Mutex, OnceLock};

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
    pub handle: u64,
    library: u64,
    index: u32,
    pub info: Arc<FunctionInfo>,
    name: CString,
    /// The function in the first context that used it, which is nearly always the only one.
    usual: OnceLock<Arc<Function>>,
}

impl Library {
    fn load(session: &'static Session, image: &Given<'_>, context: Option<&Context>) -> Result<Arc<Self>, crate::module::Rejection> {
        let device = crate::module::device_of(context);
        let module = Module::load(session, device, context.map(|context| context.id), image, true)?;
        let kernels = (0..module.function_count()).map(|_| OnceLock::new()).collect();
        let instances = Mutex::new(vec![Instance { context: context.map(|context| context.id), module: Arc::clone(&module) }]);
        let make = |handle| Arc::new(Self { handle, image: image.bytes.to_vec(), device, instances, kernels, first: module });
        Ok(session.libraries.insert(make).map(|(_, library)| library).ok_or(error::OUT_OF_MEMORY)?)
    }

    /// The module of this library in a context.
    ///
    /// # Errors
    /// As loading.
    pub fn module(&self, session: &'static Session, context: &Context) -> Try<Arc<Module>> {
        let mut instances = lock(&self.instances);
        if let Some(instance) = instances.iter().find(|instance| instance.context == Some(context.id)) {
            return Ok(Arc::clone(&instance.module));
        }
        if let Some(instance) = instances.iter_mut().find(|instance| instance.context.is_none() && self.device == context.device) {
            instance.context = Some(context.id);
            instance.module.claim(context.id);
            return Ok(Arc::clone(&instance.module));
        }
        let module = Module::load(session, context.device, Some(context.id), &self.image[..].into(), true).map_err(|rejection| rejection.code)?;
        instances.push(Instance { context: Some(context.id), module: Arc::clone(&module) });
        Ok(module)
    }

    /// A context has ended, and its module of this library with it.
    pub(crate) fn forget(&self, session: &Session, context: u64) {
        let gone: Vec<Instance> = lock(&self.instances).extract_if(.., |instance| instance.context == Some(context)).collect();
        for instance in gone {
            // Already unloaded with the context's modules, if it had been registered there.
            if session.modules.get(instance.module.handle).is_some() {
                let _ = instance.module.unload(session);
            }
        }
    }

    fn kernel(&self, session: &Session, index: u32) -> Try<Arc<Kernel>> {
        let cell = self.kernels.get(index as usize).ok_or(error::NOT_FOUND)?;
        if let Some(kernel) = cell.get() {
            return Ok(Arc::clone(kernel));
        }
        let info = Arc::clone(self.first.info(index).ok_or(error::NOT_FOUND)?);
        let name = CString::new(info.name.as_str()).unwrap_or_default();
        let make = |handle| Arc::new(Kernel { handle, library: self.handle, index, info, name, usual: OnceLock::new() });
        let (handle, made) = session.kernels.insert(make).ok_or(error::OUT_OF_MEMORY)?;
        if cell.set(made).is_err() {
            session.kernels.remove(handle);
        }
        cell.get().cloned().ok_or(error::UNKNOWN)
    }
}

impl Kernel {
    #[must_use]
    pub fn as_c(&self) -> CUkernel {
        core::ptr::without_provenance_mut(self.handle as usize)
    }

    /// The function in a context.
    ///
    /// # Errors
    /// As loading; INVALID_HANDLE when the library was unloaded.
    pub fn function(&self, session: &'static Session, context: &Context) -> Try<Arc<Function>> {
        if let Some(function) = self.usual.get().filter(|function| function.context == context.id)
            // A primary context keeps its id when it is reset; then the function is gone.
            && session.functions.get(function.handle).is_some()
        {
            return Ok(Arc::clone(function));
        }
        let library = session.libraries.get(self.library).ok_or(error::INVALID_HANDLE)?;
        let function = library.module(session, context)?.function(session, self.index)?;
        let _ = self.usual.set(Arc::clone(&function));
        Ok(function)
    }
}

fn named(session: &Session, library: CUlibrary) -> Try<Arc<Library>> {
    session.libraries.get(library.addr() as u64).ok_or(error::INVALID_HANDLE)
}

fn kernel(session: &Session, kernel: CUkernel) -> Try<Arc<Kernel>> {
    session.kernels.get(kernel.addr() as u64).ok_or(error::INVALID_HANDLE)
}

fn load(out: *mut CUlibrary, image: &Given<'_>) -> Try {
    let session = client::enter()?;
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
    let _ = (list!(options.cast_const(), count as usize), list!(jit_options.cast_const(), jit_count as usize), jit_values);
    // SAFETY: the program vouches for its image.
    let image = unsafe { crate::image::given(image)? };
    load(out, &image)
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
    let session = client::look()?;
    let library = session.libraries.remove(library.addr() as u64).ok_or(error::INVALID_HANDLE)?;
    session.kernels.remove_all(|kernel| kernel.library == library.handle);
    for instance in lock(&library.instances).drain(..) {
        instance.module.unload(session)?;
    }
    Ok(())
}

pub unsafe fn cuLibraryGetKernel(out: *mut CUkernel, library: CUlibrary, wanted: *const c_char) -> Try {
    let session = client::enter()?;
    let library = named(session, library)?;
    let index = library.first.function_index(name!(wanted)).ok_or(error::NOT_FOUND)?;
    put!(out, library.kernel(session, index)?.as_c());
    Ok(())
}

pub unsafe fn cuLibraryGetKernelCount(out: *mut c_uint, library: CUlibrary) -> Try {
    let library = named(client::look()?, library)?;
    put!(out, c_uint::try_from(library.kernels.len()).unwrap_or(c_uint::MAX));
    Ok(())
}

pub unsafe fn cuLibraryEnumerateKernels(out: *mut CUkernel, count: c_uint, library: CUlibrary) -> Try {
    let session = client::enter()?;
    let library = named(session, library)?;
    if out.is_null() {
        return Err(error::INVALID_VALUE);
    }
    for index in 0..count.min(library.kernels.len() as c_uint) {
        put!(out.wrapping_add(index as usize), library.kernel(session, index)?.as_c());
    }
    Ok(())
}

pub unsafe fn cuLibraryGetModule(out: *mut CUmodule, library: CUlibrary) -> Try {
    let session = client::enter()?;
    let library = named(session, library)?;
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
    let session = client::enter()?;
    let library = named(session, library)?;
    tell(address, bytes, &*library.module(session, &*context::current()?)?, name!(wanted), false)
}

pub unsafe fn cuLibraryGetManaged(address: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, wanted: *const c_char) -> Try {
    // Managed variables belong to no context: the runtime asks before it has one.
    tell(address, bytes, &named(client::enter()?, library)?.first, name!(wanted), true)
}

pub unsafe fn cuLibraryGetUnifiedFunction(_out: *mut *mut c_void, library: CUlibrary, _symbol: *const c_char) -> Try {
    named(client::enter()?, library)?;
    Err(error::NOT_FOUND)
}

pub unsafe fn cuKernelGetFunction(out: *mut CUfunction, wanted: CUkernel) -> Try {
    let session = client::enter()?;
    let kernel = kernel(session, wanted)?;
    put!(out, kernel.function(session, &*context::current()?)?.as_c());
    Ok(())
}

pub unsafe fn cuKernelGetLibrary(out: *mut CUlibrary, wanted: CUkernel) -> Try {
    let kernel = kernel(client::look()?, wanted)?;
    put!(out, core::ptr::without_provenance_mut(kernel.library as usize));
    Ok(())
}

pub unsafe fn cuKernelGetName(out: *mut *const c_char, wanted: CUkernel) -> Try {
    // The library keeps the kernel, and with it the text, until it is unloaded.
    put!(out, kernel(client::look()?, wanted)?.name.as_ptr());
    Ok(())
}

pub unsafe fn cuKernelGetParamInfo(wanted: CUkernel, index: usize, offset: *mut usize, bytes: *mut usize) -> Try {
    function::parameter(&kernel(client::look()?, wanted)?.info, index, offset, bytes)
}

/// A kernel's function on a device: in the current context if that is on it, else in the device's primary context.
fn on_device(session: &'static Session, wanted: CUkernel, device: CUdevice) -> Try<Arc<Function>> {
    let kernel = kernel(session, wanted)?;
    let ordinal = u32::try_from(device).map_err(|_| error::INVALID_DEVICE)?;
    session.device(device)?;
    match context::current() {
        Ok(context) if context.device == ordinal => kernel.function(session, &context),
        _ => kernel.function(session, session.device(device)?.primary(session, ordinal)?),
    }
}

pub unsafe fn cuKernelGetAttribute(out: *mut c_int, attribute: CUfunction_attribute, kernel: CUkernel, device: CUdevice) -> Try {
    let session = client::enter()?;
    function::get_attribute(session, out, attribute, &*on_device(session, kernel, device)?)
}

pub unsafe fn cuKernelSetAttribute(attribute: CUfunction_attribute, value: c_int, kernel: CUkernel, device: CUdevice) -> Try {
    let session = client::enter()?;
    function::set_attribute(session, attribute, value, &*on_device(session, kernel, device)?)
}

pub unsafe fn cuKernelSetCacheConfig(wanted: CUkernel, config: CUfunc_cache, device: CUdevice) -> Try {
    let session = client::enter()?;
    kernel(session, wanted)?;
    session.device(device)?;
    if config.0 > CUfunc_cache::CU_FUNC_CACHE_PREFER_EQUAL.0 { Err(error::INVALID_VALUE) } else { Ok(()) }
}
