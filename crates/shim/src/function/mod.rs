//! Functions: what a module's kernel needs and what the program has set on it.

pub(crate) mod attributes;
mod calls;

pub use calls::*;

use crate::changes;
use crate::connection::Connection;
use crate::ffi::{Try, error};
use crate::handle::{Kind, Table};
use crate::limits::Limits;
use crate::sync::lock;
use core::ffi::c_int;
use cumux_abi::{CUfunction, CUfunction_attribute as A};
use cumux_wire::limits::KernelNeeds;
use cumux_wire::module::FunctionInfo;
use cumux_wire::record::Op;
use std::ffi::CString;
use std::sync::{Arc, Mutex, OnceLock};

/// All functions.
pub(crate) static FUNCTIONS: Table<Function> = Table::new(Kind::Function);

/// Settable attributes, as the program set them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Settings {
    /// `None`: never set; the default is what a block may have without asking.
    max_dynamic: Option<u32>,
    carveout: c_int,
    cluster: [c_int; 3],
    non_portable: c_int,
    scheduling: c_int,
}

/// What was set for a launch by calls of CUDA 3.
#[derive(Debug, Clone, Default)]
pub(crate) struct EarlyLaunch {
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// Bytes of the parameters.
    pub size: usize,
    /// The parameters, as far as they were set.
    pub parameters: Vec<u8>,
}

/// The module and the context that a function is of.
#[derive(Debug, Clone, Copy)]
pub struct FunctionOrigin {
    /// Number of its module.
    pub module: u32,
    /// Handle of its module.
    pub module_handle: u64,
    /// Its index in the module.
    pub index: u32,
    /// Id of its context.
    pub context: u64,
}

/// A kernel in a context.
#[derive(Debug)]
pub struct Function {
    /// The word that the program holds.
    pub handle: u64,
    /// Its module and its context.
    pub origin: FunctionOrigin,
    /// What the executor said of it.
    pub info: Arc<FunctionInfo>,
    name: CString,
    settings: Mutex<Settings>,
    /// What a program says of a launch before it launches, as it did until CUDA 3.
    pub(crate) early: Mutex<EarlyLaunch>,
    /// A cluster was set, so that launches look for it. The others need no lock.
    has_cluster: OnceLock<()>,
}

impl Function {
    /// A function with nothing set on it.
    #[must_use]
    pub fn new(handle: u64, origin: FunctionOrigin, info: Arc<FunctionInfo>) -> Self {
        let name = CString::new(info.name.as_str()).unwrap_or_default();
        let settings = Settings { max_dynamic: None, carveout: -1, cluster: [0; 3], non_portable: 0, scheduling: 0 };
        Self { handle, origin, info, name, settings: Mutex::new(settings), early: Mutex::default(), has_cluster: OnceLock::new() }
    }

    /// The handle as C has it.
    #[must_use]
    pub fn as_c(&self) -> CUfunction {
        core::ptr::without_provenance_mut(self.handle as usize)
    }

    /// Most dynamic shared memory that a launch may ask for.
    #[must_use]
    pub fn max_dynamic(&self, limits: &Limits) -> u32 {
        lock(&self.settings).max_dynamic.unwrap_or_else(|| limits.shared_per_block.saturating_sub(self.info.static_shared))
    }

    /// What it needs of a multiprocessor, with what the program has set.
    pub(crate) fn needs(&self) -> KernelNeeds {
        let carveout = u32::try_from(lock(&self.settings).carveout).ok();
        KernelNeeds { carveout, ..KernelNeeds::from(&*self.info) }
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

    /// The cluster that the program has set on the function
    /// (`CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH` and its kin); all zero if none.
    pub(crate) fn required_cluster(&self) -> [u32; 3] {
        if self.has_cluster.get().is_none() {
            return [0; 3];
        }
        let set = lock(&self.settings).cluster.map(c_int::cast_unsigned);
        if set == [0; 3] { set } else { set.map(|blocks| blocks.max(1)) }
    }

    /// The program allows clusters that not every device takes.
    pub(crate) fn takes_larger_clusters(&self) -> bool {
        lock(&self.settings).non_portable != 0
    }

    fn set(&self, session: &Connection, attribute: A, value: c_int, limits: &Limits) -> Try {
        let mut settings = lock(&self.settings);
        let before = *settings;
        match attribute {
            A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => {
                let wanted = u32::try_from(value).map_err(|_| error::INVALID_VALUE)?;
                if u64::from(wanted) + u64::from(self.info.static_shared) > u64::from(limits.shared_optin) {
                    return Err(error::INVALID_VALUE);
                }
                settings.max_dynamic = Some(wanted);
            }
            A::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT if (-1..=100).contains(&value) => settings.carveout = value,
            A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH | A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT | A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH
                if value >= 0 =>
            {
                settings.cluster[(attribute.0 - A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH.0) as usize] = value;
                self.has_cluster.get_or_init(|| ());
            }
            A::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED if (0..=1).contains(&value) => settings.non_portable = value,
            A::CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE if value >= 0 => settings.scheduling = value,
            _ => return Err(error::INVALID_VALUE),
        }
        // Some libraries set the same again before every launch.
        if *settings != before {
            changes::note();
        }
        session.control(&Op::FunctionSet { module: self.origin.module, function: self.origin.index, attribute: attribute.0, value })
    }
}
