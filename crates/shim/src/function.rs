//! Functions: what a module's kernel needs and what the program has set on it.

use crate::client::{self, Session, lock};
use crate::ffi::{Try, error, put, put_if};
use crate::handle::Kind;
use crate::limits::Limits;
use crate::module::Module;
use core::ffi::{c_char, c_int};
use cumux_abi::{CUfunc_cache, CUfunction, CUfunction_attribute as A, CUfunctionLoadingState, CUmodule, CUsharedconfig};
use cumux_wire::module::FunctionInfo;
use cumux_wire::record::Op;
use std::ffi::CString;
use std::sync::{Arc, Mutex};

/// Settable attributes, as the program set them.
#[derive(Debug, Clone, Copy)]
struct Settings {
    /// `None`: never set; the default is what a block may have without asking.
    max_dynamic: Option<u32>,
    carveout: c_int,
    cluster: [c_int; 3],
    non_portable: c_int,
    scheduling: c_int,
}

/// A kernel in a context.
#[derive(Debug)]
pub struct Function {
    pub handle: u64,
    /// Number of its module, and its index there.
    pub module: u32,
    pub index: u32,
    pub module_handle: u64,
    pub context: u64,
    pub info: Arc<FunctionInfo>,
    name: CString,
    settings: Mutex<Settings>,
}

impl Function {
    #[must_use]
    pub fn new(handle: u64, module: &Module, index: u32, info: Arc<FunctionInfo>) -> Self {
        let name = CString::new(info.name.as_str()).unwrap_or_default();
        let settings = Settings { max_dynamic: None, carveout: -1, cluster: [0; 3], non_portable: 0, scheduling: 0 };
        Self { handle, module: module.number, index, module_handle: module.handle, context: module.context(), info, name, settings: Mutex::new(settings) }
    }

    #[must_use]
    pub fn as_c(&self) -> CUfunction {
        core::ptr::without_provenance_mut(self.handle as usize)
    }

    /// Most dynamic shared memory that a launch may ask for.
    #[must_use]
    pub fn max_dynamic(&self, limits: &Limits) -> u32 {
        lock(&self.settings).max_dynamic.unwrap_or_else(|| limits.shared_per_block.saturating_sub(self.info.static_shared))
    }

    fn attribute(&self, attribute: A, limits: &Limits) -> Try<c_int> {
        let settings = *lock(&self.settings);
        let info = &self.info;
        let number = |value: u32| c_int::try_from(value).unwrap_or(c_int::MAX);
        let [x, y, z] = info.cluster.map(number);
        Ok(match attribute {
            A::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK => number(info.max_threads),
            A::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES => number(info.static_shared),
            A::CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES => number(info.constant),
            A::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES => number(info.local),
            A::CU_FUNC_ATTRIBUTE_NUM_REGS => number(info.registers),
            A::CU_FUNC_ATTRIBUTE_PTX_VERSION => number(info.ptx_version),
            A::CU_FUNC_ATTRIBUTE_BINARY_VERSION => number(info.binary_version),
            A::CU_FUNC_ATTRIBUTE_CACHE_MODE_CA => 0,
            A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => number(self.max_dynamic(limits)),
            A::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => settings.carveout,
            A::CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET => 0,
            A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH => x.max(settings.cluster[0]),
            A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT => y.max(settings.cluster[1]),
            A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH => z.max(settings.cluster[2]),
            A::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED => settings.non_portable,
            A::CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE => settings.scheduling,
            _ => return Err(error::INVALID_VALUE),
        })
    }

    /// The program allows clusters that not every device takes.
    pub(crate) fn takes_larger_clusters(&self) -> bool {
        lock(&self.settings).non_portable != 0
    }

    fn set(&self, session: &Session, attribute: A, value: c_int, limits: &Limits) -> Try {
        let mut settings = lock(&self.settings);
        match attribute {
            A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => {
                let wanted = u32::try_from(value).map_err(|_| error::INVALID_VALUE)?;
                if u64::from(wanted) + u64::from(self.info.static_shared) > u64::from(limits.shared_optin) {
                    return Err(error::INVALID_VALUE);
                }
                settings.max_dynamic = Some(wanted);
            }
            A::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT if (-1..=100).contains(&value) => settings.carveout = value,
            A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH if value >= 0 => settings.cluster[0] = value,
            A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT if value >= 0 => settings.cluster[1] = value,
            A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH if value >= 0 => settings.cluster[2] = value,
            A::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED if (0..=1).contains(&value) => settings.non_portable = value,
            A::CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE if value >= 0 => settings.scheduling = value,
            _ => return Err(error::INVALID_VALUE),
        }
        session.control(&Op::FunctionSet { module: self.module, function: self.index, attribute: attribute.0, value })
    }
}

/// The function a handle names: a function, or a kernel in the current context.
pub(crate) fn named(session: &'static Session, function: CUfunction) -> Try<Arc<Function>> {
    let handle = function.addr() as u64;
    if Kind::of(handle) == Some(Kind::Kernel as u8) {
        let kernel = session.kernels.get(handle).ok_or(error::INVALID_HANDLE)?;
        return kernel.function(session, &*crate::context::current()?);
    }
    session.functions.get(handle).ok_or(error::INVALID_HANDLE)
}

/// Limits of the device that a function's context is on.
pub(crate) fn limits(session: &'static Session) -> &'static Limits {
    let device = crate::context::top().map_or(0, |context| context.device as usize);
    // A session has a device (checked when it was made), and contexts name devices that exist.
    session.devices.get(device).or_else(|| session.devices.first()).map_or_else(|| unreachable!("a session has a device"), |device| &device.limits)
}

pub(crate) fn get_attribute(session: &'static Session, out: *mut c_int, attribute: A, function: &Function) -> Try {
    put!(out, function.attribute(attribute, limits(session))?);
    Ok(())
}

pub(crate) fn set_attribute(session: &'static Session, attribute: A, value: c_int, function: &Function) -> Try {
    function.set(session, attribute, value, limits(session))
}

pub unsafe fn cuFuncGetAttribute(out: *mut c_int, attribute: A, function: CUfunction) -> Try {
    let session = client::enter()?;
    get_attribute(session, out, attribute, &*named(session, function)?)
}

pub unsafe fn cuFuncSetAttribute(function: CUfunction, attribute: A, value: c_int) -> Try {
    let session = client::enter()?;
    set_attribute(session, attribute, value, &*named(session, function)?)
}

pub unsafe fn cuFuncSetCacheConfig(function: CUfunction, config: CUfunc_cache) -> Try {
    // A hint without effect on results.
    named(client::enter()?, function)?;
    if config.0 > CUfunc_cache::CU_FUNC_CACHE_PREFER_EQUAL.0 { Err(error::INVALID_VALUE) } else { Ok(()) }
}

pub unsafe fn cuFuncSetSharedMemConfig(function: CUfunction, _config: CUsharedconfig) -> Try {
    named(client::enter()?, function).map(drop)
}

pub unsafe fn cuFuncGetModule(out: *mut CUmodule, function: CUfunction) -> Try {
    let function = named(client::enter()?, function)?;
    put!(out, core::ptr::without_provenance_mut(function.module_handle as usize));
    Ok(())
}

pub unsafe fn cuFuncGetName(out: *mut *const c_char, function: CUfunction) -> Try {
    let session = client::enter()?;
    // The module keeps the function, and with it the text, until it is unloaded.
    put!(out, named(session, function)?.name.as_ptr());
    Ok(())
}

pub(crate) fn parameter(info: &FunctionInfo, index: usize, offset: *mut usize, bytes: *mut usize) -> Try {
    let parameter = info.parameters.get(index).ok_or(error::INVALID_VALUE)?;
    put!(offset, parameter.offset as usize);
    put_if!(bytes, parameter.bytes as usize);
    Ok(())
}

pub unsafe fn cuFuncGetParamInfo(function: CUfunction, index: usize, offset: *mut usize, bytes: *mut usize) -> Try {
    let session = client::enter()?;
    // A kernel is not taken for a function here, as the driver does it.
    let function = session.functions.get(function.addr() as u64).ok_or(error::INVALID_HANDLE)?;
    parameter(&function.info, index, offset, bytes)
}

pub unsafe fn cuFuncIsLoaded(out: *mut CUfunctionLoadingState, function: CUfunction) -> Try {
    named(client::enter()?, function)?;
    put!(out, CUfunctionLoadingState::CU_FUNCTION_LOADING_STATE_LOADED);
    Ok(())
}

pub unsafe fn cuFuncLoad(function: CUfunction) -> Try {
    named(client::enter()?, function).map(drop)
}
