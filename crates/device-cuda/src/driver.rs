//! The real driver: the table of functions that we call, and one safe method for each use of them. The only file of this crate with unsafe code.
//! (Longer than most: it is a list of calls, and they stay together so that every unsafe line is in one place.)
//!
//! Invariants that the SAFETY comments lean on:
//! - The library is never unloaded, so function addresses stay good for the life of the process.
//! - Handles ([`Stream`], [`Function`] and so on) come from the driver only and are kept as numbers; whoever makes one destroys it, after its last use.
//! - What a call reads or writes on our side are locals, slices that live across a call which does not return before it is done with them,
//!   or pinned memory that lives until [`Words`] is dropped. Addresses for the GPU are numbers, checked by the caller, and never ours.

use crate::locate;
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::ptr::{null_mut, with_exposed_provenance, with_exposed_provenance_mut};
use cumux_abi::{functions as f, types as t};
use cumux_device::{DeviceError, TensorWish};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use parking_lot::Mutex;
use std::cell::Cell;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// An error code of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code(pub u32);

pub(crate) type Call<T> = Result<T, Code>;

macro_rules! table {
    ($($name:ident),* $(,)?) => {
        #[allow(non_snake_case)]
        struct Table { $($name: f::$name),* }

        impl Table {
            fn load(library: &Library) -> Result<Table, String> {
                Ok(Table { $($name: {
                    let name = concat!(stringify!($name), "\0");
                    // SAFETY: the type is the one that the driver's public header gives to this name.
                    *unsafe { library.get::<f::$name>(name.as_bytes()) }.map_err(|_| stringify!($name).to_owned())?
                }),* })
            }
        }
    };
}

table! {
    cuInit, cuDeviceGetCount, cuDeviceGet, cuDeviceGetName, cuDeviceGetUuid_v2, cuDeviceTotalMem_v2, cuDeviceGetAttribute,
    cuDevicePrimaryCtxSetFlags_v2, cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRelease_v2, cuCtxSetCurrent,  cuCtxGetLimit, cuCtxSetLimit,
    cuCtxGetStreamPriorityRange, cuGetErrorString,
    cuMemGetAllocationGranularity, cuMemCreate, cuMemRelease, cuMemExportToShareableHandle, cuMemImportFromShareableHandle,
    cuMemAddressReserve, cuMemAddressFree, cuMemMap, cuMemUnmap, cuMemSetAccess,
    cuMemHostAlloc, cuMemFreeHost, cuMemHostRegister_v2, cuMemHostUnregister,
    cuMemcpyAsync, cuMemcpyDtoHAsync_v2, cuMemcpyHtoDAsync_v2, cuMemcpy2DAsync_v2, cuMemcpy3DAsync_v2,
    cuMemsetD8Async, cuMemsetD16Async, cuMemsetD32Async, cuMemsetD2D8Async, cuMemsetD2D16Async, cuMemsetD2D32Async,
    cuStreamCreateWithPriority, cuStreamDestroy_v2, cuStreamQuery, cuStreamSynchronize, cuStreamWriteValue32_v2, cuStreamWriteValue64_v2,
    cuLaunchKernel, cuLaunchKernelEx,
    cuModuleLoadDataEx, cuModuleUnload, cuModuleGetFunctionCount, cuModuleEnumerateFunctions, cuModuleGetGlobal_v2,
    cuFuncLoad, cuFuncGetName, cuFuncGetParamInfo, cuFuncGetAttribute, cuFuncSetAttribute,
    cuGraphCreate, cuGraphDestroy, cuGraphAddKernelNode_v2, cuGraphInstantiateWithFlags, cuGraphExecKernelNodeSetParams_v2, cuGraphLaunch, cuGraphUpload,
    cuGraphExecDestroy, cuTensorMapEncodeTiled, cuTensorMapEncodeIm2col, cuGraphKernelNodeSetAttribute, cuLinkCreate_v2, cuLinkAddData_v2, cuLinkComplete, cuLinkDestroy,
    cuDeviceGetDevResource, cuDevSmResourceSplitByCount, cuDevResourceGenerateDesc, cuGreenCtxCreate, cuGreenCtxDestroy, cuGreenCtxStreamCreate,
}

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident = $raw:ty;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(crate) struct $name(usize);

        impl $name {
            fn of(raw: $raw) -> Self {
                Self(raw.expose_provenance())
            }
            fn raw(self) -> $raw {
                with_exposed_provenance_mut(self.0)
            }
        }
    )*};
}

handles! {
    Stream = t::CUstream;
    Module = t::CUmodule;
    Function = t::CUfunction;
    Green = t::CUgreenCtx;
    Graph = t::CUgraph;
    Node = t::CUgraphNode;
    Executable = t::CUgraphExec;
}

#[cfg(test)]
impl Stream {
    /// No stream at all, for tests of bookkeeping.
    pub(crate) fn none() -> Self {
        Self(0)
    }
}

/// Grid, blocks and the rest of a launch but its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Shape {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub cluster: [u32; 3],
    pub shared: u32,
    pub cooperative: bool,
}

/// A rectangle to copy, both sides by address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Box3 {
    pub target: u64,
    pub target_pitch: u64,
    /// Rows from slice to slice.
    pub target_rows: u64,
    pub source: u64,
    pub source_pitch: u64,
    pub source_rows: u64,
    pub width: u64,
    pub height: u64,
    pub depth: u64,
}

/// A piece of the card: some SMs, one result of a split.
#[derive(Clone, Copy)]
pub(crate) struct Multiprocessors(t::CUdevResource);

impl Multiprocessors {
    pub(crate) fn count(&self) -> usize {
        // SAFETY: only made of resources whose kind says that this field of the union is the live one.
        unsafe { self.0.__bindgen_anon_1.sm }.smCount as usize
    }
}

fn check(result: t::CUresult) -> Call<()> {
    if result.0 == 0 { Ok(()) } else { Err(Code(result.0)) }
}

/// The library, loaded and initialised once for the process.
struct Loaded {
    table: Table,
}

static LOADED: Mutex<Option<&'static Loaded>> = Mutex::new(None);
static INSTANCES: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// Which [`Driver`]'s context is current in this thread.
    static CURRENT: Cell<u64> = const { Cell::new(0) };
}

/// What the driver must find in its environment when it is loaded.
const ENVIRONMENT: [(&str, &str); 3] = [
    // Clients' streams must not wait for one another in the card's queues.
    ("CUDA_DEVICE_MAX_CONNECTIONS", "32"),
    // A kernel loaded at its first launch would stop the whole context for it.
    ("CUDA_MODULE_LOADING", "EAGER"),
    // Never be a client of somebody's MPS by accident: `CUMUX_KEEP_MPS` keeps what is set.
    ("CUDA_MPS_PIPE_DIRECTORY", ""),
];

fn load() -> Result<&'static Loaded, DeviceError> {
    let mut loaded = LOADED.lock();
    if let Some(loaded) = *loaded {
        return Ok(loaded);
    }
    let paths = locate::candidates()?;
    for (name, value) in ENVIRONMENT {
        let keep = name == "CUDA_MPS_PIPE_DIRECTORY" && std::env::var_os("CUMUX_KEEP_MPS").is_some();
        if !keep {
            // SAFETY: under LOADED's lock and before any C code that reads the environment by itself was loaded by us; Rust's own readers take a lock.
            unsafe { std::env::set_var(name, value) };
        }
    }
    let mut why = Vec::new();
    for path in &paths {
        match load_path(path) {
            Ok(library) => {
                let fresh: &'static Loaded = Box::leak(Box::new(library));
                *loaded = Some(fresh);
                return Ok(fresh);
            }
            Err(reason) => why.push(reason),
        }
    }
    Err(DeviceError::System(locate::none_found(&paths, &why)))
}

fn load_path(path: &Path) -> Result<Loaded, String> {
    // SAFETY: loading runs the constructors of NVIDIA's driver, which any CUDA program loads in the same way.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(|error| format!("{}: {error}", path.display()))?;
    // SAFETY: only looked up, never used.
    if unsafe { library.get::<*const c_void>(b"cumux_shim_build_id\0") }.is_ok() {
        return Err(format!("{} is cumux itself, not NVIDIA's driver", path.display()));
    }
    // SAFETY: the type is that of the public header.
    let version = unsafe { library.get::<f::cuDriverGetVersion>(b"cuDriverGetVersion\0") }.map_err(|_| format!("{} is no CUDA driver", path.display()))?;
    let mut number = 0;
    // SAFETY: writes one integer.
    check(unsafe { version(&raw mut number) }).map_err(|code| format!("{}: its version cannot be read (CUDA error {})", path.display(), code.0))?;
    locate::new_enough(number)?;
    let table = Table::load(&library).map_err(|name| format!("{} lacks {name}; install driver 580 or newer", path.display()))?;
    std::mem::forget(library);
    Ok(Loaded { table })
}

/// One card with its primary context.
pub(crate) struct Driver {
    api: &'static Loaded,
    device: t::CUdevice,
    context: usize,
    instance: u64,
    /// Least and most urgent stream priority.
    priorities: (i32, i32),
    /// The card's compute mode when it was opened.
    mode: i32,
}

impl Drop for Driver {
    fn drop(&mut self) {
        // SAFETY: the reference that `open` took.
        let _ = unsafe { (self.api.table.cuDevicePrimaryCtxRelease_v2)(self.device) };
    }
}

impl Driver {
    /// Opens card `ordinal` and makes its context.
    pub(crate) fn open(ordinal: u32) -> Result<Arc<Driver>, DeviceError> {
        let api = load()?;
        let table = &api.table;
        // SAFETY: no pointers.
        check(unsafe { (table.cuInit)(0) }).map_err(|code| DeviceError::System(locate::cannot_start(code)))?;
        let mut count = 0;
        // SAFETY: writes one integer.
        check(unsafe { (table.cuDeviceGetCount)(&raw mut count) }).map_err(|code| DeviceError::System(locate::cannot_start(code)))?;
        if ordinal >= count.cast_unsigned() {
            return Err(DeviceError::Invalid(locate::no_such_card(ordinal, count.cast_unsigned())));
        }
        let mut device = 0;
        // SAFETY: writes one integer.
        check(unsafe { (table.cuDeviceGet)(&raw mut device, ordinal.cast_signed()) }).map_err(|code| DeviceError::System(locate::cannot_start(code)))?;
        let mut driver = Driver { api, device, context: 0, instance: INSTANCES.fetch_add(1, Ordering::Relaxed), priorities: (0, 0), mode: 0 };
        let mode = driver.attribute(20).unwrap_or(0);
        driver.mode = mode;
        let name = driver.name();
        let usable = locate::usable(ordinal, &name, mode);
        let retained = usable.and_then(|()| {
            // Local memory once grown is kept: growing it stops the whole context for 0.2 s.
            // SAFETY: no pointers.
            let _ = unsafe { (table.cuDevicePrimaryCtxSetFlags_v2)(device, t::CUctx_flags::CU_CTX_LMEM_RESIZE_TO_MAX.0) };
            let mut context = null_mut();
            // SAFETY: writes one pointer.
            check(unsafe { (table.cuDevicePrimaryCtxRetain)(&raw mut context, device) })
                .map_err(|code| DeviceError::System(locate::no_context(ordinal, mode, code)))?;
            Ok(context.expose_provenance())
        });
        match retained {
            Ok(context) => {
                driver.context = context;
                driver.priorities = driver.read_priorities();
            }
            Err(error) => {
                // Nothing was retained that `Drop` could give back.
                std::mem::forget(driver);
                return Err(error);
            }
        }
        Ok(Arc::new(driver))
    }

    /// Looks at all cards, without a context on any: only what needs none may be asked.
    pub(crate) fn survey<T>(look: impl Fn(u32, &Driver) -> T) -> Result<Vec<T>, DeviceError> {
        let api = load()?;
        let table = &api.table;
        let start = |code| DeviceError::System(locate::cannot_start(code));
        // SAFETY: no pointers.
        check(unsafe { (table.cuInit)(0) }).map_err(start)?;
        let mut count = 0;
        // SAFETY: writes one integer.
        check(unsafe { (table.cuDeviceGetCount)(&raw mut count) }).map_err(start)?;
        let mut cards = Vec::new();
        for ordinal in 0..count {
            let mut device = 0;
            // SAFETY: writes one integer.
            check(unsafe { (table.cuDeviceGet)(&raw mut device, ordinal) }).map_err(start)?;
            // Never dropped: there is no context that it could give back.
            let card = std::mem::ManuallyDrop::new(Driver { api, device, context: 0, instance: 0, priorities: (0, 0), mode: 0 });
            cards.push(look(ordinal.cast_unsigned(), &card));
        }
        Ok(cards)
    }

    /// The table, with our context current in this thread.
    fn table(&self) -> Call<&'static Table> {
        if CURRENT.get() != self.instance {
            // SAFETY: the context is retained as long as `self` lives.
            check(unsafe { (self.api.table.cuCtxSetCurrent)(with_exposed_provenance_mut(self.context)) })?;
            CURRENT.set(self.instance);
        }
        Ok(&self.api.table)
    }

    // ---- facts

    pub(crate) fn text(&self, code: Code) -> String {
        let mut text = core::ptr::null();
        // SAFETY: writes one pointer to a text that lives in the library.
        let known = check(unsafe { (self.api.table.cuGetErrorString)(t::CUresult(code.0), &raw mut text) }).is_ok() && !text.is_null();
        // SAFETY: the text that the driver just gave, ended by a zero.
        if known { unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned() } else { "unknown error".to_owned() }
    }

    pub(crate) fn name(&self) -> String {
        let mut bytes = [0 as c_char; 256];
        // SAFETY: writes at most 256 bytes.
        let _ = unsafe { (self.api.table.cuDeviceGetName)(bytes.as_mut_ptr(), 256, self.device) };
        bytes.iter().take_while(|b| **b != 0).map(|b| char::from(b.cast_unsigned())).collect()
    }

    pub(crate) fn uuid(&self) -> [u8; 16] {
        let mut uuid = t::CUuuid::default();
        // SAFETY: writes 16 bytes.
        let _ = unsafe { (self.api.table.cuDeviceGetUuid_v2)(&raw mut uuid, self.device) };
        uuid.bytes.map(i8::cast_unsigned)
    }

    pub(crate) fn memory(&self) -> u64 {
        let mut bytes = 0;
        // SAFETY: writes one number.
        let _ = unsafe { (self.api.table.cuDeviceTotalMem_v2)(&raw mut bytes, self.device) };
        bytes as u64
    }

    pub(crate) fn attribute(&self, number: u32) -> Option<i32> {
        let mut value = 0;
        // SAFETY: writes one number.
        check(unsafe { (self.api.table.cuDeviceGetAttribute)(&raw mut value, t::CUdevice_attribute(number), self.device) }).ok().map(|()| value)
    }

    /// `CUcomputemode`: 0 default, 2 prohibited, 3 one process alone.
    pub(crate) fn mode(&self) -> i32 {
        self.mode
    }

    /// Least and most urgent stream priority.
    pub(crate) fn priorities(&self) -> (i32, i32) {
        self.priorities
    }

    fn read_priorities(&self) -> (i32, i32) {
        let (mut least, mut greatest) = (0, 0);
        if let Ok(table) = self.table() {
            // SAFETY: writes two numbers.
            let _ = unsafe { (table.cuCtxGetStreamPriorityRange)(&raw mut least, &raw mut greatest) };
        }
        (least, greatest)
    }

    pub(crate) fn limit(&self, limit: u32) -> Call<u64> {
        let mut value = 0;
        // SAFETY: writes one number.
        check(unsafe { (self.table()?.cuCtxGetLimit)(&raw mut value, t::CUlimit(limit)) })?;
        Ok(value as u64)
    }

    pub(crate) fn set_limit(&self, limit: u32, value: u64) -> Call<()> {
        // SAFETY: no pointers.
        check(unsafe { (self.table()?.cuCtxSetLimit)(t::CUlimit(limit), value as usize) })
    }

    // ---- memory

    fn properties(&self) -> t::CUmemAllocationProp {
        t::CUmemAllocationProp {
            type_: t::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: t::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
            location: t::CUmemLocation { type_: t::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: self.device },
            win32HandleMetaData: null_mut(),
            allocFlags: t::CUmemAllocationProp_st__bindgen_ty_1::default(),
        }
    }

    pub(crate) fn granule(&self) -> Call<u64> {
        let (mut bytes, properties) = (0, self.properties());
        let option = t::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
        // SAFETY: reads a local, writes one number.
        check(unsafe { (self.table()?.cuMemGetAllocationGranularity)(&raw mut bytes, &raw const properties, option) })?;
        Ok(bytes as u64)
    }

    /// New device memory as a descriptor, which alone keeps it alive.
    pub(crate) fn create_memory(&self, bytes: u64) -> Call<OwnedFd> {
        let (mut handle, properties) = (0, self.properties());
        // SAFETY: reads a local, writes one handle.
        check(unsafe { (self.table()?.cuMemCreate)(&raw mut handle, bytes as usize, &raw const properties, 0) })?;
        let mut descriptor: RawFd = -1;
        let kind = t::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        // SAFETY: for this kind the call writes one descriptor.
        let exported = check(unsafe { (self.table()?.cuMemExportToShareableHandle)((&raw mut descriptor).cast(), handle, kind, 0) });
        // SAFETY: the handle made above, not used after this.
        let _ = unsafe { (self.table()?.cuMemRelease)(handle) };
        exported?;
        // SAFETY: a descriptor that the driver has just opened for us.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    /// Maps memory at an address of a reservation, readable and writable.
    pub(crate) fn map(&self, address: u64, memory: BorrowedFd<'_>, offset: u64, bytes: u64) -> Call<()> {
        let table = self.table()?;
        let mut handle = 0;
        let kind = t::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        // SAFETY: for this kind the second argument is a descriptor as a pointer; writes one handle.
        check(unsafe { (table.cuMemImportFromShareableHandle)(&raw mut handle, with_exposed_provenance_mut(memory.as_raw_fd() as usize), kind) })?;
        // SAFETY: GPU addresses only.
        let mapped = check(unsafe { (table.cuMemMap)(address, bytes as usize, offset as usize, handle, 0) });
        // SAFETY: the handle made above; a mapping keeps the memory.
        let _ = unsafe { (table.cuMemRelease)(handle) };
        mapped?;
        let access = t::CUmemAccessDesc {
            location: t::CUmemLocation { type_: t::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: self.device },
            flags: t::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        // SAFETY: reads one local.
        let allowed = check(unsafe { (table.cuMemSetAccess)(address, bytes as usize, &raw const access, 1) });
        if allowed.is_err() {
            let _ = self.unmap(address, bytes);
        }
        allowed
    }

    pub(crate) fn unmap(&self, address: u64, bytes: u64) -> Call<()> {
        // SAFETY: GPU addresses only.
        check(unsafe { (self.table()?.cuMemUnmap)(address, bytes as usize) })
    }

    /// Address space, at `wanted` if that is free (0: anywhere). The caller looks where it landed.
    pub(crate) fn reserve(&self, wanted: u64, bytes: u64) -> Call<u64> {
        let mut address = 0;
        // SAFETY: writes one address; the range is free or the call fails.
        check(unsafe { (self.table()?.cuMemAddressReserve)(&raw mut address, bytes as usize, 0, wanted, 0) })?;
        Ok(address)
    }

    pub(crate) fn free_address(&self, address: u64, bytes: u64) {
        if let Ok(table) = self.table() {
            // SAFETY: a reservation of ours with nothing mapped; else the call fails.
            let _ = unsafe { (table.cuMemAddressFree)(address, bytes as usize) };
        }
    }

    /// Pins host memory of a window and lets the card reach it at its host address.
    pub(crate) fn register(&self, address: u64, bytes: u64) -> Call<()> {
        let flags = t::CU_MEMHOSTREGISTER_PORTABLE | t::CU_MEMHOSTREGISTER_DEVICEMAP;
        // SAFETY: the range belongs to a window that is mapped until after `unregister`; its bytes are shared and nobody holds references to them.
        check(unsafe { (self.table()?.cuMemHostRegister_v2)(with_exposed_provenance_mut(address as usize), bytes as usize, flags) })
    }

    pub(crate) fn unregister(&self, address: u64) {
        if let Ok(table) = self.table() {
            // SAFETY: what `register` registered; else the call fails.
            let _ = unsafe { (table.cuMemHostUnregister)(with_exposed_provenance_mut(address as usize)) };
        }
    }

    /// Reads device memory, returns when done.
    pub(crate) fn read(&self, address: u64, into: &mut [u8], stream: Stream) -> Call<()> {
        // SAFETY: writes exactly the slice, which lives until the synchronisation has ended the copy.
        let begun = check(unsafe { (self.table()?.cuMemcpyDtoHAsync_v2)(into.as_mut_ptr().cast(), address, into.len(), stream.raw()) });
        self.synchronize(stream).and(begun)
    }

    /// Writes device memory, returns when done.
    pub(crate) fn write(&self, address: u64, bytes: &[u8], stream: Stream) -> Call<()> {
        // SAFETY: reads exactly the slice, which lives until the synchronisation has ended the copy.
        let begun = check(unsafe { (self.table()?.cuMemcpyHtoDAsync_v2)(address, bytes.as_ptr().cast(), bytes.len(), stream.raw()) });
        self.synchronize(stream).and(begun)
    }

    // ---- streams and their work (GPU addresses only: checked by the caller against the client's memory)

    pub(crate) fn create_stream(&self, priority: i32) -> Call<Stream> {
        let mut stream = null_mut();
        let flags = t::CUstream_flags::CU_STREAM_NON_BLOCKING.0;
        // SAFETY: writes one handle.
        check(unsafe { (self.table()?.cuStreamCreateWithPriority)(&raw mut stream, flags, priority) })?;
        Ok(Stream::of(stream))
    }

    pub(crate) fn destroy_stream(&self, stream: Stream) {
        if let Ok(table) = self.table() {
            // SAFETY: its maker's last use.
            let _ = unsafe { (table.cuStreamDestroy_v2)(stream.raw()) };
        }
    }

    /// Whether all work of the stream is done. Errors of the whole context show here.
    pub(crate) fn query(&self, stream: Stream) -> Call<bool> {
        // SAFETY: a live stream.
        match check(unsafe { (self.table()?.cuStreamQuery)(stream.raw()) }) {
            Ok(()) => Ok(true),
            Err(Code(600)) => Ok(false),
            Err(code) => Err(code),
        }
    }

    pub(crate) fn synchronize(&self, stream: Stream) -> Call<()> {
        // SAFETY: a live stream.
        check(unsafe { (self.table()?.cuStreamSynchronize)(stream.raw()) })
    }

    pub(crate) fn copy(&self, target: u64, source: u64, bytes: u64, stream: Stream) -> Call<()> {
        // SAFETY: see the heading.
        check(unsafe { (self.table()?.cuMemcpyAsync)(target, source, bytes as usize, stream.raw()) })
    }

    pub(crate) fn copy_box(&self, b: &Box3, stream: Stream) -> Call<()> {
        let kind = t::CUmemorytype::CU_MEMORYTYPE_UNIFIED;
        if b.depth == 1 {
            let copy = t::CUDA_MEMCPY2D {
                srcMemoryType: kind,
                srcDevice: b.source,
                srcPitch: b.source_pitch as usize,
                dstMemoryType: kind,
                dstDevice: b.target,
                dstPitch: b.target_pitch as usize,
                WidthInBytes: b.width as usize,
                Height: b.height as usize,
                ..t::CUDA_MEMCPY2D::default()
            };
            // SAFETY: reads one local; for addresses see the heading.
            return check(unsafe { (self.table()?.cuMemcpy2DAsync_v2)(&raw const copy, stream.raw()) });
        }
        let copy = t::CUDA_MEMCPY3D {
            srcMemoryType: kind,
            srcDevice: b.source,
            srcPitch: b.source_pitch as usize,
            srcHeight: b.source_rows as usize,
            dstMemoryType: kind,
            dstDevice: b.target,
            dstPitch: b.target_pitch as usize,
            dstHeight: b.target_rows as usize,
            WidthInBytes: b.width as usize,
            Height: b.height as usize,
            Depth: b.depth as usize,
            ..t::CUDA_MEMCPY3D::default()
        };
        // SAFETY: as above.
        check(unsafe { (self.table()?.cuMemcpy3DAsync_v2)(&raw const copy, stream.raw()) })
    }

    /// `width` elements of `element` bytes (1, 2 or 4) in `height` rows.
    #[expect(clippy::too_many_arguments, reason = "the driver's own list")]
    pub(crate) fn set(&self, target: u64, pitch: u64, value: u32, element: u32, width: u64, height: u64, stream: Stream) -> Call<()> {
        let (t, s, pitch, width, height) = (self.table()?, stream.raw(), pitch as usize, width as usize, height as usize);
        // SAFETY: see the heading.
        check(unsafe {
            match (element, height) {
                (1, 1) => (t.cuMemsetD8Async)(target, value as u8, width, s),
                (2, 1) => (t.cuMemsetD16Async)(target, value as u16, width, s),
                (_, 1) => (t.cuMemsetD32Async)(target, value, width, s),
                (1, _) => (t.cuMemsetD2D8Async)(target, pitch, value as u8, width, height, s),
                (2, _) => (t.cuMemsetD2D16Async)(target, pitch, value as u16, width, height, s),
                (_, _) => (t.cuMemsetD2D32Async)(target, pitch, value, width, height, s),
            }
        })
    }

    /// Stores 4 or 8 bytes when the stream gets there; what the stream did before is visible first.
    pub(crate) fn write_value(&self, address: u64, value: u64, bytes: u32, stream: Stream) -> Call<()> {
        let t = self.table()?;
        // SAFETY: see the heading, or a word of `Words`.
        check(unsafe {
            if bytes == 4 {
                (t.cuStreamWriteValue32_v2)(stream.raw(), address, value as u32, 0)
            } else {
                (t.cuStreamWriteValue64_v2)(stream.raw(), address, value, 0)
            }
        })
    }

    /// Launches with a packed parameter block.
    pub(crate) fn launch(&self, function: Function, shape: &Shape, parameters: &[u8], stream: Stream) -> Call<()> {
        let table = self.table()?;
        let mut packed = Packed::new(parameters);
        let extra = packed.extra();
        let ([gx, gy, gz], [bx, by, bz]) = (shape.grid, shape.block);
        let mut attributes: [t::CUlaunchAttribute; 2] = Default::default();
        let mut count = 0;
        if shape.cooperative {
            attributes[count].id = t::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
            attributes[count].value.cooperative = 1;
            count += 1;
        }
        if shape.cluster != [0; 3] && shape.cluster != [1; 3] {
            let [x, y, z] = shape.cluster;
            attributes[count].id = t::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
            attributes[count].value.clusterDim = t::CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z };
            count += 1;
        }
        if count == 0 {
            // SAFETY: the driver copies the parameters before it returns; a live function and stream.
            return check(unsafe { (table.cuLaunchKernel)(function.raw(), gx, gy, gz, bx, by, bz, shape.shared, stream.raw(), null_mut(), extra) });
        }
        let config = t::CUlaunchConfig {
            gridDimX: gx,
            gridDimY: gy,
            gridDimZ: gz,
            blockDimX: bx,
            blockDimY: by,
            blockDimZ: bz,
            sharedMemBytes: shape.shared,
            hStream: stream.raw(),
            attrs: attributes.as_mut_ptr(),
            numAttrs: count as c_uint,
        };
        // SAFETY: as above; the attributes are locals.
        check(unsafe { (table.cuLaunchKernelEx)(&raw const config, function.raw(), null_mut(), extra) })
    }

    // ---- modules

    /// Loads an image; an error comes with what the compiler said.
    pub(crate) fn load_module(&self, image: &[u8]) -> Result<Module, (Code, String)> {
        let table = self.table().map_err(|code| (code, String::new()))?;
        // Padded with zeros: PTX ends at one, and nothing in a damaged image leads far past its end.
        let mut padded = image.to_vec();
        padded.resize(image.len() + 64, 0);
        let mut log = vec![0_u8; 8192];
        let mut options = [t::CUjit_option::CU_JIT_ERROR_LOG_BUFFER, t::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), with_exposed_provenance_mut(log.len() - 1)];
        let mut module = null_mut();
        // SAFETY: the image and both arrays live across the call; the log is as long as announced.
        let loaded = check(unsafe { (table.cuModuleLoadDataEx)(&raw mut module, padded.as_ptr().cast(), 2, options.as_mut_ptr(), values.as_mut_ptr()) });
        loaded.map(|()| Module::of(module)).map_err(|code| {
            let end = log.iter().position(|b| *b == 0).unwrap_or(log.len());
            (code, String::from_utf8_lossy(&log[..end]).trim().to_owned())
        })
    }

    /// Compiles PTX to machine code for this card. Holds no lock that launches need, unlike loading PTX (measured: decision 0107).
    pub(crate) fn compile(&self, ptx: &[u8]) -> Result<Vec<u8>, (Code, String)> {
        let table = self.table().map_err(|code| (code, String::new()))?;
        let mut text = ptx.to_vec();
        if text.last() != Some(&0) {
            text.push(0);
        }
        let mut log = vec![0_u8; 8192];
        let mut options = [t::CUjit_option::CU_JIT_ERROR_LOG_BUFFER, t::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), with_exposed_provenance_mut(log.len() - 1)];
        let mut state = null_mut();
        let none = String::new;
        // SAFETY: both arrays and the log live until the state is destroyed below.
        check(unsafe { (table.cuLinkCreate_v2)(2, options.as_mut_ptr(), values.as_mut_ptr(), &raw mut state) }).map_err(|code| (code, none()))?;
        let kind = t::CUjitInputType::CU_JIT_INPUT_PTX;
        let name = c"module";
        // SAFETY: reads the text, which ends with a zero, and the name; no options.
        let added = check(unsafe { (table.cuLinkAddData_v2)(state, kind, text.as_mut_ptr().cast(), text.len(), name.as_ptr(), 0, null_mut(), null_mut()) });
        let (mut image, mut bytes) = (null_mut(), 0_usize);
        // SAFETY: a live state; writes a pointer and a number.
        let done = added.and_then(|()| check(unsafe { (table.cuLinkComplete)(state, &raw mut image, &raw mut bytes) }));
        // SAFETY: on success the driver gives so many bytes that live until the state is destroyed.
        let code = done.map(|()| if image.is_null() { Vec::new() } else { unsafe { core::slice::from_raw_parts(image.cast::<u8>(), bytes) }.to_vec() });
        // SAFETY: the state made above, its last use.
        let _ = unsafe { (table.cuLinkDestroy)(state) };
        code.map_err(|code| {
            let end = log.iter().position(|b| *b == 0).unwrap_or(log.len());
            (code, String::from_utf8_lossy(&log[..end]).trim().to_owned())
        })
    }

    pub(crate) fn unload_module(&self, module: Module) {
        if let Ok(table) = self.table() {
            // SAFETY: its maker's last use; executables that mention its kernels are gone (they hold the module).
            let _ = unsafe { (table.cuModuleUnload)(module.raw()) };
        }
    }

    pub(crate) fn functions(&self, module: Module) -> Call<Vec<Function>> {
        let table = self.table()?;
        let mut count = 0;
        // SAFETY: writes one number.
        check(unsafe { (table.cuModuleGetFunctionCount)(&raw mut count, module.raw()) })?;
        let mut raw: Vec<t::CUfunction> = vec![null_mut(); count as usize];
        if count > 0 {
            // SAFETY: writes `count` handles.
            check(unsafe { (table.cuModuleEnumerateFunctions)(raw.as_mut_ptr(), count, module.raw()) })?;
        }
        Ok(raw.into_iter().filter(|f| !f.is_null()).map(Function::of).collect())
    }

    /// Puts the kernel on the card now rather than at its first launch.
    pub(crate) fn load_function(&self, function: Function) -> Call<()> {
        // SAFETY: a live function.
        check(unsafe { (self.table()?.cuFuncLoad)(function.raw()) })
    }

    pub(crate) fn function_name(&self, function: Function) -> Call<String> {
        let mut name = core::ptr::null();
        // SAFETY: writes one pointer.
        check(unsafe { (self.table()?.cuFuncGetName)(&raw mut name, function.raw()) })?;
        // SAFETY: a text that lives as long as its module.
        Ok(if name.is_null() { String::new() } else { unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned() })
    }

    /// Offset and size of parameter `index`, `None` behind the last.
    pub(crate) fn parameter(&self, function: Function, index: usize) -> Option<(u32, u32)> {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: writes two numbers.
        check(unsafe { (self.table().ok()?.cuFuncGetParamInfo)(function.raw(), index, &raw mut offset, &raw mut size) }).ok()?;
        Some((u32::try_from(offset).ok()?, u32::try_from(size).ok()?))
    }

    pub(crate) fn function_attribute(&self, function: Function, number: u32) -> Call<i32> {
        let mut value: c_int = 0;
        // SAFETY: writes one number.
        check(unsafe { (self.table()?.cuFuncGetAttribute)(&raw mut value, t::CUfunction_attribute(number), function.raw()) })?;
        Ok(value)
    }

    pub(crate) fn set_function_attribute(&self, function: Function, number: u32, value: i32) -> Call<()> {
        // SAFETY: a live function.
        check(unsafe { (self.table()?.cuFuncSetAttribute)(function.raw(), t::CUfunction_attribute(number), value) })
    }

    /// Address and bytes of a variable.
    pub(crate) fn global(&self, module: Module, name: &CStr) -> Option<(u64, u64)> {
        let (mut address, mut bytes) = (0, 0);
        // SAFETY: reads the name, writes two numbers.
        check(unsafe { (self.table().ok()?.cuModuleGetGlobal_v2)(&raw mut address, &raw mut bytes, module.raw(), name.as_ptr()) }).ok()?;
        Some((address, bytes as u64))
    }

    /// A `CUtensorMap`, as bytes.
    pub(crate) fn encode_tensor(&self, wish: &TensorWish) -> Call<[u8; 128]> {
        let table = self.table()?;
        let mut map = t::CUtensorMap::default();
        let address = with_exposed_provenance_mut(wish.address as usize);
        let (kind, interleave) = (t::CUtensorMapDataType(wish.data_type), t::CUtensorMapInterleave(wish.interleave));
        let (swizzle, l2, fill) = (t::CUtensorMapSwizzle(wish.swizzle), t::CUtensorMapL2promotion(wish.l2), t::CUtensorMapFloatOOBfill(wish.fill));
        let (dimensions, strides, elements) = (wish.dimensions.as_ptr(), wish.strides.as_ptr(), wish.element_strides.as_ptr());
        let encoded = if wish.im2col {
            let lower = wish.first.map(u32::cast_signed);
            let upper = wish.upper.map(u32::cast_signed);
            // SAFETY: the arrays hold the most that the rank, checked to be at most 5, can ask for; the address is a number to this call.
            unsafe {
                (table.cuTensorMapEncodeIm2col)(
                    &raw mut map,
                    kind,
                    wish.rank,
                    address,
                    dimensions,
                    strides,
                    lower.as_ptr(),
                    upper.as_ptr(),
                    wish.first[3],
                    wish.first[4],
                    elements,
                    interleave,
                    swizzle,
                    l2,
                    fill,
                )
            }
        } else {
            // SAFETY: as above.
            unsafe {
                (table.cuTensorMapEncodeTiled)(
                    &raw mut map,
                    kind,
                    wish.rank,
                    address,
                    dimensions,
                    strides,
                    wish.first.as_ptr(),
                    elements,
                    interleave,
                    swizzle,
                    l2,
                    fill,
                )
            }
        };
        check(encoded)?;
        let mut bytes = [0; 128];
        for (place, word) in bytes.chunks_exact_mut(8).zip(map.opaque) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        Ok(bytes)
    }

    // ---- graphs

    /// A chain of kernels, each after the one before, ready to launch. Its nodes can be given other kernels and parameters later. After them comes `mark`, a kernel
    /// of one thread whose only parameter is `word`.
    pub(crate) fn chain(&self, kernels: &[(Function, Shape, &[u8])], mark: Function, word: u64, stream: Stream) -> Call<(Graph, Executable, Vec<Node>)> {
        let table = self.table()?;
        let mut graph = null_mut();
        // SAFETY: writes one handle.
        check(unsafe { (table.cuGraphCreate)(&raw mut graph, 0) })?;
        let graph = Graph::of(graph);
        let made = self.fill_chain(graph, kernels, mark, word, stream);
        if made.is_err() {
            // SAFETY: made above, nobody else has it.
            let _ = unsafe { (table.cuGraphDestroy)(graph.raw()) };
        }
        made
    }

    fn fill_chain(
        &self,
        graph: Graph,
        kernels: &[(Function, Shape, &[u8])],
        mark: Function,
        word: u64,
        stream: Stream,
    ) -> Call<(Graph, Executable, Vec<Node>)> {
        let table = self.table()?;
        let word = word.to_ne_bytes();
        let one = Shape { grid: [1; 3], block: [1; 3], ..Shape::default() };
        let mut nodes: Vec<t::CUgraphNode> = Vec::with_capacity(kernels.len() + 1);
        for (function, shape, parameters) in kernels.iter().chain([&(mark, one, word.as_slice())]) {
            let mut packed = Packed::new(parameters);
            let node = node_parameters(*function, shape, packed.extra());
            let before = nodes.last().map_or(core::ptr::null(), |last| &raw const *last);
            let mut made = null_mut();
            // SAFETY: reads at most one dependency and the parameters, which the driver copies; writes one handle.
            check(unsafe { (table.cuGraphAddKernelNode_v2)(&raw mut made, graph.raw(), before, usize::from(!before.is_null()), &raw const node) })?;
            nodes.push(made);
        }
        if let Some(mark) = nodes.pop() {
            // Where other clients' blocks wait for a place, the mark goes first. A driver that refuses costs time, not correctness.
            let mut value = t::CUlaunchAttributeValue::default();
            value.priority = self.priorities.1;
            // SAFETY: a live node; reads one local.
            let _ = unsafe { (table.cuGraphKernelNodeSetAttribute)(mark, t::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PRIORITY, &raw const value) };
        }
        let mut executable = null_mut();
        // SAFETY: writes one handle.
        check(unsafe { (table.cuGraphInstantiateWithFlags)(&raw mut executable, graph.raw(), 0) })?;
        // SAFETY: live handles. An upload that fails happens at the first launch instead.
        let _ = unsafe { (table.cuGraphUpload)(executable, stream.raw()) };
        Ok((graph, Executable::of(executable), nodes.into_iter().map(Node::of).collect()))
    }

    /// Changes one kernel of a chain that is not running.
    pub(crate) fn change(&self, executable: Executable, node: Node, function: Function, shape: &Shape, parameters: &[u8]) -> Call<()> {
        let mut packed = Packed::new(parameters);
        let node_parameters = node_parameters(function, shape, packed.extra());
        // SAFETY: live handles of one graph; the driver copies the parameters.
        check(unsafe { (self.table()?.cuGraphExecKernelNodeSetParams_v2)(executable.raw(), node.raw(), &raw const node_parameters) })
    }

    pub(crate) fn launch_chain(&self, executable: Executable, stream: Stream) -> Call<()> {
        // SAFETY: live handles.
        check(unsafe { (self.table()?.cuGraphLaunch)(executable.raw(), stream.raw()) })
    }

    pub(crate) fn destroy_chain(&self, graph: Graph, executable: Executable) {
        if let Ok(table) = self.table() {
            // SAFETY: the owner's last use of both.
            let _ = unsafe { ((table.cuGraphExecDestroy)(executable.raw()), (table.cuGraphDestroy)(graph.raw())) };
        }
    }

    // ---- partitions

    /// Splits the card into groups of `each` SMs, and what is left. `together`: groups whose SMs are scheduled together, so that clusters fit in.
    pub(crate) fn split(&self, each: u32, together: bool) -> Call<Vec<Multiprocessors>> {
        let table = self.table()?;
        let kind = t::CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
        let mut all = t::CUdevResource::default();
        // SAFETY: writes one resource.
        check(unsafe { (table.cuDeviceGetDevResource)(self.device, &raw mut all, kind) })?;
        let mut groups = [t::CUdevResource::default(); 128];
        let mut rest = t::CUdevResource::default();
        let mut count = groups.len() as c_uint;
        let flags = if together { 0 } else { t::CUdevSmResourceSplit_flags::CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING.0 };
        // SAFETY: writes at most `count` resources and one more.
        check(unsafe { (table.cuDevSmResourceSplitByCount)(groups.as_mut_ptr(), &raw mut count, &raw const all, &raw mut rest, flags, each) })?;
        let rest = (rest.type_ == kind).then_some(rest);
        Ok(groups.iter().take(count as usize).copied().chain(rest).filter(|piece| piece.type_ == kind).map(Multiprocessors).collect())
    }

    /// A part of the card made of pieces of one split.
    pub(crate) fn create_green(&self, pieces: &[Multiprocessors]) -> Call<Green> {
        let table = self.table()?;
        let mut resources: Vec<t::CUdevResource> = pieces.iter().map(|piece| piece.0).collect();
        let (mut description, mut green) = (null_mut(), null_mut());
        // SAFETY: reads as many resources as there are, writes one handle.
        check(unsafe { (table.cuDevResourceGenerateDesc)(&raw mut description, resources.as_mut_ptr(), resources.len() as c_uint) })?;
        let flags = t::CUgreenCtxCreate_flags::CU_GREEN_CTX_DEFAULT_STREAM.0;
        // SAFETY: the description just made; writes one handle.
        check(unsafe { (table.cuGreenCtxCreate)(&raw mut green, description, self.device, flags) })?;
        Ok(Green::of(green))
    }

    pub(crate) fn destroy_green(&self, green: Green) {
        if let Ok(table) = self.table() {
            // SAFETY: its maker's last use; its streams are gone.
            let _ = unsafe { (table.cuGreenCtxDestroy)(green.raw()) };
        }
    }

    pub(crate) fn create_green_stream(&self, green: Green, priority: i32) -> Call<Stream> {
        let mut stream = null_mut();
        let flags = t::CUstream_flags::CU_STREAM_NON_BLOCKING.0;
        // SAFETY: writes one handle.
        check(unsafe { (self.table()?.cuGreenCtxStreamCreate)(&raw mut stream, green.raw(), flags, priority) })?;
        Ok(Stream::of(stream))
    }

    // ---- device printf

    /// Does something with standard output and error going into a file, and returns what came there: the driver prints there at a synchronisation.
    pub(crate) fn captured<T>(&self, act: impl FnOnce() -> T) -> (T, Vec<u8>) {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        static FILE: OnceLock<Option<OwnedFd>> = OnceLock::new();
        let file = FILE.get_or_init(|| rustix::fs::memfd_create("cumux-printf", rustix::fs::MemfdFlags::CLOEXEC).ok());
        let _guard = ONE_AT_A_TIME.lock();
        let Some(file) = file else { return (act(), Vec::new()) };
        let done;
        // SAFETY: descriptors 1 and 2 are replaced and put back; no memory is touched. Flushing all of C's streams is always allowed.
        unsafe {
            libc::fflush(null_mut());
            let kept = [libc::dup(1), libc::dup(2)];
            libc::lseek(file.as_raw_fd(), 0, libc::SEEK_END);
            for (number, old) in [1, 2].into_iter().zip(kept) {
                if old >= 0 {
                    libc::dup2(file.as_raw_fd(), number);
                }
            }
            done = act();
            libc::fflush(null_mut());
            for (number, old) in [1, 2].into_iter().zip(kept) {
                if old >= 0 {
                    libc::dup2(old, number);
                    libc::close(old);
                }
            }
        }
        let mut text = Vec::new();
        let mut part = [0; 4096];
        while let Ok(count @ 1..) = rustix::io::pread(file, &mut part, text.len() as u64) {
            text.extend_from_slice(&part[..count]);
        }
        let _ = rustix::fs::ftruncate(file, 0);
        (done, text)
    }
}

/// Lets short sleeps of this thread be short: the kernel otherwise adds up to 50 µs.
pub(crate) fn sleep_precisely() {
    // SAFETY: a setting of the calling thread; no pointers.
    let _ = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong, 0, 0, 0) };
}

/// A parameter block in the form of the `extra` argument.
struct Packed<'a> {
    parameters: &'a [u8],
    size: usize,
    list: [*mut c_void; 5],
}

impl<'a> Packed<'a> {
    fn new(parameters: &'a [u8]) -> Self {
        Packed { parameters, size: parameters.len(), list: [null_mut(); 5] }
    }

    /// The list; null for a kernel without parameters. Points into `self`.
    fn extra(&mut self) -> *mut *mut c_void {
        if self.size == 0 {
            return null_mut();
        }
        self.list = [
            cumux_abi::CU_LAUNCH_PARAM_BUFFER_POINTER,
            self.parameters.as_ptr().cast_mut().cast(),
            cumux_abi::CU_LAUNCH_PARAM_BUFFER_SIZE,
            (&raw mut self.size).cast(),
            cumux_abi::CU_LAUNCH_PARAM_END,
        ];
        self.list.as_mut_ptr()
    }
}

fn node_parameters(function: Function, shape: &Shape, extra: *mut *mut c_void) -> t::CUDA_KERNEL_NODE_PARAMS {
    t::CUDA_KERNEL_NODE_PARAMS {
        func: function.raw(),
        gridDimX: shape.grid[0],
        gridDimY: shape.grid[1],
        gridDimZ: shape.grid[2],
        blockDimX: shape.block[0],
        blockDimY: shape.block[1],
        blockDimZ: shape.block[2],
        sharedMemBytes: shape.shared,
        kernelParams: null_mut(),
        extra,
        kern: null_mut(),
        ctx: null_mut(),
    }
}

/// Words of pinned memory, one cache line each, that streams write and threads read.
pub(crate) struct Words {
    driver: Arc<Driver>,
    base: usize,
    count: usize,
}

/// Bytes from word to word: no two in a cache line.
const STRIDE: usize = 64;

impl Words {
    pub(crate) fn new(driver: &Arc<Driver>, count: usize) -> Call<Words> {
        let mut base = null_mut();
        let flags = t::CU_MEMHOSTALLOC_PORTABLE | t::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: writes one pointer.
        check(unsafe { (driver.table()?.cuMemHostAlloc)(&raw mut base, count * STRIDE, flags) })?;
        // SAFETY: exactly what was allocated, and nobody uses it yet.
        unsafe { core::ptr::write_bytes(base.cast::<u8>(), 0, count * STRIDE) };
        Ok(Words { driver: driver.clone(), base: base.expose_provenance(), count })
    }

    /// For the card (addresses are unified).
    pub(crate) fn address(&self, index: usize) -> u64 {
        (self.base + index * STRIDE) as u64
    }

    pub(crate) fn load(&self, index: usize) -> u64 {
        assert!(index < self.count, "word {index} of {}", self.count);
        let word: *const u64 = with_exposed_provenance(self.base + index * STRIDE);
        // SAFETY: inside the allocation (checked), aligned to 64, alive as long as `self`, and only ever read atomically here; the card writes whole words.
        unsafe { AtomicU64::from_ptr(word.cast_mut()) }.load(Ordering::Acquire)
    }
}

impl Words {
    /// Sets a word that nothing on the card will write any more to 0.
    pub(crate) fn clear(&self, index: usize) {
        assert!(index < self.count, "word {index} of {}", self.count);
        let word: *const u64 = with_exposed_provenance(self.base + index * STRIDE);
        // SAFETY: as in `load`.
        unsafe { AtomicU64::from_ptr(word.cast_mut()) }.store(0, Ordering::Release);
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        if let Ok(table) = self.driver.table() {
            // SAFETY: the allocation of `new`; the streams that wrote into it are gone.
            let _ = unsafe { (table.cuMemFreeHost)(with_exposed_provenance_mut(self.base)) };
        }
    }
}
