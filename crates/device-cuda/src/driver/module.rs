//! Modules: compiling and loading them, and reading their kernels and variables.

use super::CardAddress;
use super::context::Driver;
use super::handle::{Function, Module};
use super::nested::is_nested;
use crate::fault::{Call, CudaError};
use core::ffi::{CStr, c_int, c_void};
use core::ptr::{null_mut, with_exposed_provenance_mut};
use cumux_abi::types as t;
use cumux_fatbin::LinkInput;
use std::ffi::CString;

/// Bytes of the buffer for the compiler's errors.
const LOG_BYTES: usize = 8192;
/// Zero bytes that are appended to an image. The first one ends PTX. The others are read if offsets
/// in a damaged image point past its end.
const IMAGE_PADDING: usize = 64;

/// Why an image was not compiled or loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CompileError {
    /// The driver's code.
    pub error: CudaError,
    /// The compiler's errors, with line numbers. May be empty.
    pub log: String,
}

impl From<CudaError> for CompileError {
    fn from(error: CudaError) -> Self {
        CompileError { error, log: String::new() }
    }
}

/// A buffer for the compiler's errors, with the options that pass it to the driver.
struct ErrorLog(Vec<u8>);

impl ErrorLog {
    const OPTIONS: [t::CUjit_option; 2] = [t::CUjit_option::CU_JIT_ERROR_LOG_BUFFER, t::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];

    fn new() -> ErrorLog {
        ErrorLog(vec![0; LOG_BYTES])
    }

    /// The options' values: the buffer, and its size without the last byte, which stays zero. They
    /// point into `self`.
    fn values(&mut self) -> [*mut c_void; 2] {
        [self.0.as_mut_ptr().cast(), with_exposed_provenance_mut(LOG_BYTES - 1)]
    }

    /// The error, with what the compiler wrote.
    fn explain(&self, error: CudaError) -> CompileError {
        let end = self.0.iter().position(|b| *b == 0).unwrap_or(self.0.len());
        CompileError { error, log: String::from_utf8_lossy(&self.0[..end]).trim().to_owned() }
    }
}

impl Driver {
    /// Loads an image: machine code, a fatbin, or PTX, which the driver compiles.
    ///
    /// # Errors
    /// The driver's, with what the compiler said.
    pub(crate) fn load_module(&self, image: &[u8]) -> Result<Module, CompileError> {
        let table = self.table()?;
        let mut padded = Vec::with_capacity(image.len() + IMAGE_PADDING);
        padded.extend_from_slice(image);
        padded.resize(image.len() + IMAGE_PADDING, 0);
        let mut log = ErrorLog::new();
        let (mut options, mut values) = (ErrorLog::OPTIONS, log.values());
        let (count, mut module) = (options.len() as u32, null_mut());
        // SAFETY: the image, both arrays and the log live until the call returns. The log is as
        // long as the options say. The call writes one handle, a local.
        let loaded =
            CudaError::check(unsafe { (table.cuModuleLoadDataEx)(&raw mut module, padded.as_ptr().cast(), count, options.as_mut_ptr(), values.as_mut_ptr()) });
        loaded.map(|()| Module::of(module)).map_err(|error| log.explain(error))
    }

    /// True if this text is not compiled, but run as it is: the driver's place is taken by cumux's
    /// own library. What it calls that is not in it may have state on the card.
    pub(crate) fn runs_text(&self, ptx: &[u8]) -> bool {
        const OUTSIDE: &[u8] = b".extern";
        is_nested() && !ptx.windows(OUTSIDE.len()).any(|word| word == OUTSIDE)
    }

    /// Compiles PTX to machine code for this card. Unlike loading PTX, this does not hold the lock
    /// that launches need (measured: decision 0107).
    ///
    /// # Errors
    /// The driver's, with what the compiler said.
    pub(crate) fn compile(&self, ptx: &[u8]) -> Result<Vec<u8>, CompileError> {
        self.link(&[LinkInput { kind: t::CUjitInputType::CU_JIT_INPUT_PTX.0, name: "module", data: ptx }])
    }

    /// Links these inputs to machine code for this card, as [`Driver::compile`] does it.
    ///
    /// # Errors
    /// The driver's, with what the linker said.
    pub(crate) fn link(&self, inputs: &[LinkInput<'_>]) -> Result<Vec<u8>, CompileError> {
        let table = self.table()?;
        let mut log = ErrorLog::new();
        let (mut options, mut values) = (ErrorLog::OPTIONS, log.values());
        let (count, mut state) = (options.len() as u32, null_mut());
        // SAFETY: the call writes one handle, a local. Both arrays and the log live until the state
        // is destroyed below.
        CudaError::check(unsafe { (table.cuLinkCreate_v2)(count, options.as_mut_ptr(), values.as_mut_ptr(), &raw mut state) })?;
        let add = |input: &LinkInput<'_>| {
            let mut data = input.data.to_vec();
            let is_text = input.kind == t::CUjitInputType::CU_JIT_INPUT_PTX.0;
            if is_text && data.last() != Some(&0) {
                data.push(0);
            }
            let bytes = data.len();
            // Offsets in damaged data may point past its end.
            data.resize(bytes + IMAGE_PADDING, 0);
            let name = CString::new(input.name.replace('\0', "")).unwrap_or_default();
            let kind = t::CUjitInputType(input.kind);
            // SAFETY: a live state; the call reads the data, which is as long as it says, and of
            // text up to its zero, and the name.
            CudaError::check(unsafe { (table.cuLinkAddData_v2)(state, kind, data.as_mut_ptr().cast(), bytes, name.as_ptr(), 0, null_mut(), null_mut()) })
        };
        let added = inputs.iter().try_for_each(add);
        let (mut image, mut bytes) = (null_mut(), 0_usize);
        // SAFETY: a live state; the call writes a pointer and a number, locals.
        let linked = added.and_then(|()| CudaError::check(unsafe { (table.cuLinkComplete)(state, &raw mut image, &raw mut bytes) }));
        let code = linked.map(|()| {
            if image.is_null() {
                return Vec::new();
            }
            // SAFETY: on success the driver gives so many bytes, which live until the state is
            // destroyed below.
            unsafe { core::slice::from_raw_parts(image.cast::<u8>(), bytes) }.to_vec()
        });
        // SAFETY: the state made above; its last use.
        let _ = unsafe { (table.cuLinkDestroy)(state) };
        code.map_err(|error| log.explain(error))
    }

    /// Unloads a module. The caller is its owner. No graph refers to its kernels any more, because
    /// chains keep the modules of their kernels loaded.
    pub(crate) fn unload_module(&self, module: Module) {
        if let Ok(table) = self.table() {
            // SAFETY: the owner's last use of a live module.
            let _ = unsafe { (table.cuModuleUnload)(module.raw()) };
        }
    }

    /// The kernels of a module.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn functions(&self, module: Module) -> Call<Vec<Function>> {
        let table = self.table()?;
        let mut count = 0;
        // SAFETY: a live module; the call writes one number, a local.
        CudaError::check(unsafe { (table.cuModuleGetFunctionCount)(&raw mut count, module.raw()) })?;
        let mut raw: Vec<t::CUfunction> = vec![null_mut(); count as usize];
        if count > 0 {
            // SAFETY: a live module; the call writes at most `count` handles, which is the vector's
            // length.
            CudaError::check(unsafe { (table.cuModuleEnumerateFunctions)(raw.as_mut_ptr(), count, module.raw()) })?;
        }
        Ok(raw.into_iter().filter(|function| !function.is_null()).map(Function::of).collect())
    }

    /// Loads the kernel's code onto the card now, and not at its first launch.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn load_function(&self, function: Function) -> Call<()> {
        // SAFETY: a live function.
        CudaError::check(unsafe { (self.table()?.cuFuncLoad)(function.raw()) })
    }

    /// The kernel's name as the image has it (mangled, for C++).
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn function_name(&self, function: Function) -> Call<String> {
        let mut name = core::ptr::null();
        // SAFETY: a live function; the call writes one pointer, a local.
        CudaError::check(unsafe { (self.table()?.cuFuncGetName)(&raw mut name, function.raw()) })?;
        if name.is_null() {
            return Ok(String::new());
        }
        // SAFETY: a text ended by a zero, which lives as long as the module.
        Ok(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    }

    /// The offset and size in bytes of the kernel's parameter `index`; `None` after the last one.
    pub(crate) fn parameter(&self, function: Function, index: usize) -> Option<(u32, u32)> {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: a live function; the call writes two numbers, locals.
        CudaError::check(unsafe { (self.table().ok()?.cuFuncGetParamInfo)(function.raw(), index, &raw mut offset, &raw mut size) }).ok()?;
        Some((u32::try_from(offset).ok()?, u32::try_from(size).ok()?))
    }

    /// The value of a kernel's attribute.
    ///
    /// # Errors
    /// The driver's, for an attribute that it does not know.
    pub(crate) fn function_attribute(&self, function: Function, attribute: t::CUfunction_attribute) -> Call<i32> {
        let mut value: c_int = 0;
        // SAFETY: a live function; the call writes one number, a local.
        CudaError::check(unsafe { (self.table()?.cuFuncGetAttribute)(&raw mut value, attribute, function.raw()) })?;
        Ok(value)
    }

    /// Sets a kernel's attribute.
    ///
    /// # Errors
    /// The driver's, for an attribute that cannot be set or a value that is not allowed.
    pub(crate) fn set_function_attribute(&self, function: Function, attribute: t::CUfunction_attribute, value: i32) -> Call<()> {
        // SAFETY: a live function.
        CudaError::check(unsafe { (self.table()?.cuFuncSetAttribute)(function.raw(), attribute, value) })
    }

    /// The address and bytes of a module's variable; `None` if there is no variable of this name.
    pub(crate) fn variable(&self, module: Module, name: &CStr) -> Option<(CardAddress, u64)> {
        let (mut address, mut bytes) = (0, 0);
        // SAFETY: a live module; the call reads the name and writes two numbers, locals.
        CudaError::check(unsafe { (self.table().ok()?.cuModuleGetGlobal_v2)(&raw mut address, &raw mut bytes, module.raw(), name.as_ptr()) }).ok()?;
        Some((address, bytes as u64))
    }
}
