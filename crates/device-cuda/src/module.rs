//! Loaded modules: their kernels on the card before anybody launches, their parameter layouts and variables.
//!
//! An image without writable variables is loaded once and shared by all clients that bring the same bytes; the last ones used stay when nobody uses them.
//! PTX is compiled apart, where it stops nobody, and only the machine code is loaded, at a moment when nothing long runs (decision 0107). Variables lie where the driver puts them,
//! not in the client's extents: they do not outlive the executor, so a client that has writable ones cannot be taken over.

use crate::counters::ClientCounts;
use crate::driver::{CompileError, Function, Module};
use crate::fault::{CudaError, remedy};
use crate::quiet::Gate;
use crate::symbols::{self, Symbols};
use cumux_abi::CUfunction_attribute as Attribute;
use cumux_device::{DeviceError, FunctionInfo, GlobalInfo, ModuleInfo};
use cumux_fatbin::ImageKind;
use cumux_wire::module::Parameter;
use cumux_wire::result;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Largest image that is unpacked to read its names.
const MOST: u64 = 1 << 30;
const MAX_DYNAMIC_SHARED: u32 = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES.0;

/// One kernel.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub handle: Function,
    /// Never used twice in this process, unlike handles.
    pub id: u64,
    pub name: Arc<str>,
    pub parameter_bytes: u32,
    /// May print.
    pub prints: bool,
    /// May fail an assertion.
    pub asserts: bool,
}

pub(crate) struct Loaded {
    gate: Arc<Gate>,
    module: Module,
    pub kernels: Vec<Kernel>,
    pub info: ModuleInfo,
    /// Clients that have it. Chains may hold it, too.
    users: AtomicUsize,
    /// It has variables that kernels may change: one client's own.
    pub writable: bool,
    /// The most dynamic shared memory asked for by any client that shares the module.
    shared_most: Mutex<HashMap<u32, i32>>,
}

impl Drop for Loaded {
    fn drop(&mut self) {
        self.gate.unload(self.module);
    }
}

/// Modules that are kept for their next use, and the bytes of their images.
const KEPT: usize = 64;
const KEPT_BYTES: usize = 256 << 20;

/// Modules that may be shared, by content. The one used last is at the end.
#[derive(Default)]
pub(crate) struct Library {
    known: Mutex<Vec<(blake3::Hash, usize, Arc<Loaded>)>>,
    /// Images that are being loaded: who brings the same meanwhile waits for the outcome.
    loading: Mutex<HashMap<blake3::Hash, Arc<Mutex<()>>>>,
}

static IDS: AtomicU64 = AtomicU64::new(1);

impl Library {
    pub(crate) fn load(&self, gate: &Arc<Gate>, image: &[u8], counts: &ClientCounts) -> Result<Arc<Loaded>, DeviceError> {
        let hash = blake3::hash(image);
        let turn = self.loading.lock().entry(hash).or_default().clone();
        let loaded = self.load_once(gate, image, hash, counts, &turn);
        // Whoever still waits has the same turn in hand.
        self.loading.lock().retain(|_, turn| Arc::strong_count(turn) > 1);
        loaded
    }

    fn find(&self, hash: blake3::Hash) -> Option<Arc<Loaded>> {
        let mut known = self.known.lock();
        let at = known.iter().position(|(have, ..)| *have == hash)?;
        let found = known.remove(at);
        let module = found.2.clone();
        module.users.fetch_add(1, Ordering::AcqRel);
        known.push(found);
        Some(module)
    }

    fn load_once(&self, gate: &Arc<Gate>, image: &[u8], hash: blake3::Hash, counts: &ClientCounts, turn: &Mutex<()>) -> Result<Arc<Loaded>, DeviceError> {
        if let Some(module) = self.find(hash) {
            return Ok(module);
        }
        let (symbols, ptx) = symbols_of(gate, image)?;
        if let Some(name) = symbols.managed.first() {
            let text = format!("the module has the __managed__ variable {name}: managed memory belongs to one process and cannot be shared with the client");
            return Err(DeviceError::Image { result: result::NOT_SUPPORTED, text });
        }
        // One with writable variables is each client's own: nothing to wait for.
        let _turn = if symbols.writable { None } else { Some(turn.lock()) };
        if let Some(module) = self.find(hash) {
            return Ok(module);
        }
        let compiled = ptx.and_then(|ptx| match gate.driver().compile(&ptx) {
            Ok(code) => Some(code),
            // The driver says the same, or better, when it is given the image itself.
            Err(CompileError { error, log }) => {
                tracing::debug!(code = error.number(), "PTX does not compile on its own: {log}");
                None
            }
        });
        let loaded = Arc::new(gate.run_quietly(Some(counts), || load(gate, compiled.as_deref().unwrap_or(image), &symbols))?);
        if !symbols.writable {
            self.known.lock().push((hash, image.len(), loaded.clone()));
        }
        Ok(loaded)
    }

    /// Takes out the oldest modules that nobody uses, when there are too many.
    pub(crate) fn evict(&self) -> Vec<Arc<Loaded>> {
        let mut known = self.known.lock();
        let mut bytes: usize = known.iter().map(|(_, bytes, _)| bytes).sum();
        let mut over = known.len().saturating_sub(KEPT);
        let gone = known.extract_if(.., |(_, size, module)| {
            let goes = (over > 0 || bytes > KEPT_BYTES) && module.users.load(Ordering::Acquire) == 0;
            if goes {
                over = over.saturating_sub(1);
                bytes -= *size;
            }
            goes
        });
        gone.map(|(_, _, module)| module).collect()
    }
}

fn image_error(code: u32, text: String) -> DeviceError {
    DeviceError::Image { result: code, text }
}

/// Names in the image that the driver will choose, and its text if it is PTX.
fn symbols_of(gate: &Gate, image: &[u8]) -> Result<(Symbols, Option<Vec<u8>>), DeviceError> {
    let driver = gate.driver();
    let invalid = |error: cumux_fatbin::Error| image_error(result::INVALID_IMAGE, error.to_string());
    let images = cumux_fatbin::images(image).map_err(invalid)?;
    let capability = driver.device().compute_capability();
    let chosen = cumux_fatbin::best_compiled(&images, capability).or_else(|| cumux_fatbin::best_ptx(&images, capability)).or(match images.as_slice() {
        // A bare image that does not say for what it is: the driver judges.
        [only] => Some(only),
        _ => None,
    });
    let Some(chosen) = chosen else {
        let text = format!("none of the {} images runs on compute capability {}.{}", images.len(), capability / 10, capability % 10);
        return Err(image_error(result::NO_BINARY_FOR_GPU, text));
    };
    let bytes = chosen.bytes(MOST).map_err(invalid)?;
    match chosen.kind {
        ImageKind::Elf => {
            let symbols = symbols::of_elf(&bytes).ok_or_else(|| image_error(result::INVALID_IMAGE, "the compiled image is damaged".into()))?;
            Ok((symbols, None))
        }
        ImageKind::Ptx => Ok((symbols::of_ptx(&String::from_utf8_lossy(&bytes)), Some(bytes.to_vec()))),
        ImageKind::Other(_) => Ok((Symbols { writable: true, asserts: true, ..Symbols::default() }, None)),
    }
}

fn load(gate: &Arc<Gate>, image: &[u8], symbols: &Symbols) -> Result<Loaded, DeviceError> {
    let driver = gate.driver();
    let module = driver.load_module(image).map_err(|CompileError { error, log }| {
        let text = driver.describe(error);
        match error {
            CudaError::OUT_OF_MEMORY => DeviceError::OutOfMemory(format!("no room for the module: {text}")),
            fatal if fatal.is_fatal() => DeviceError::Lost(format!("loading a module: {text} (CUDA error {})", fatal.number())),
            other => image_error(other.number(), if log.is_empty() { text } else { format!("{text}: {log}") }),
        }
    })?;
    let mut loaded = Loaded {
        gate: gate.clone(),
        module,
        kernels: Vec::new(),
        info: ModuleInfo::default(),
        users: AtomicUsize::new(1),
        writable: symbols.writable,
        shared_most: Mutex::default(),
    };
    let fail =
        |code: crate::fault::CudaError| image_error(code.number(), format!("a kernel of the module cannot be put on the card: {}", driver.describe(code)));
    for handle in driver.functions(module).map_err(fail)? {
        driver.load_function(handle).map_err(fail)?;
        let info = describe(driver, handle).map_err(fail)?;
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        let prints = symbols.prints.of(&info.name);
        loaded.kernels.push(Kernel { handle, id, name: info.name.as_str().into(), parameter_bytes: info.parameter_bytes, prints, asserts: symbols.asserts });
        loaded.info.functions.push(info);
    }
    for (name, constant) in &symbols.variables {
        let Ok(text) = CString::new(name.as_str()) else { continue };
        if let Some((address, bytes)) = driver.variable(module, &text) {
            loaded.info.globals.push(GlobalInfo { name: name.clone(), address, bytes, constant: *constant, managed: false });
        }
    }
    Ok(loaded)
}

fn describe(driver: &crate::driver::Driver, function: Function) -> Result<FunctionInfo, CudaError> {
    let number = |attribute| driver.function_attribute(function, attribute).map(|v| u32::try_from(v).unwrap_or(0));
    let parameters: Vec<Parameter> = (0..).map_while(|i| driver.parameter(function, i)).map(|(offset, bytes)| Parameter { offset, bytes }).collect();
    Ok(FunctionInfo {
        name: driver.function_name(function)?,
        parameter_bytes: parameters.iter().map(|p| p.offset + p.bytes).max().unwrap_or(0),
        parameters,
        static_shared: number(Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
        constant: number(Attribute::CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES)?,
        local: number(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
        registers: number(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
        max_threads: number(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        ptx_version: number(Attribute::CU_FUNC_ATTRIBUTE_PTX_VERSION)?,
        binary_version: number(Attribute::CU_FUNC_ATTRIBUTE_BINARY_VERSION)?,
        cluster: [
            number(Attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH).unwrap_or(0),
            number(Attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT).unwrap_or(0),
            number(Attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH).unwrap_or(0),
        ],
        required_block: [0; 3],
    })
}

impl Loaded {
    /// A client has it no longer.
    pub(crate) fn left(&self) {
        self.users.fetch_sub(1, Ordering::AcqRel);
    }

    /// Sets a function attribute. Where the module is shared, dynamic shared memory is the most that anybody asked for.
    pub(crate) fn set(&self, function: u32, attribute: u32, value: i32) -> Result<(), DeviceError> {
        let unknown = || DeviceError::Invalid(format!("the module has no function {function}"));
        let kernel = self.kernels.get(function as usize).ok_or_else(unknown)?;
        let mut most = self.shared_most.lock();
        if attribute == MAX_DYNAMIC_SHARED && most.get(&function).is_some_and(|known| *known >= value && value >= 0) {
            return Ok(());
        }
        self.gate.driver().set_function_attribute(kernel.handle, Attribute(attribute), value).map_err(|code| {
            let text = format!("attribute {attribute} of {} cannot be set to {value}: {}", kernel.name, self.gate.driver().describe(code));
            remedy::refused_call(code, text, DeviceError::Invalid)
        })?;
        if attribute == MAX_DYNAMIC_SHARED {
            most.insert(function, value);
        }
        Ok(())
    }
}
