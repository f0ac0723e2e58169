//! Tables that profilers were meant to use and that the runtime and cuBLAS use as well: current
//! context, context identity, scratch memory.

use super::{TableWord, driver, function, unknown_slots};
use core::cell::UnsafeCell;
use core::ffi::{c_uint, c_void};
use cumux_abi::{CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, CUcontext, CUfunction, CUmodule, CUresult, CUstream};

/// TOOLS_TLS. TableWord 2 gives the current context; cuBLASLt keys its kernels by it.
pub(super) static TLS: [TableWord; 3] = {
    const UNKNOWN: [TableWord; 2] = unknown_slots!(ToolsTls; 0 1);
    [TableWord::size(3), UNKNOWN[1], function!(current_context)]
};

/// TOOLS_RUNTIME_CALLBACK_HOOKS. Slots 2 and 6 lend memory, slot 4 identifies a context.
pub(super) static RUNTIME_HOOKS: [TableWord; 7] = {
    const UNKNOWN: [TableWord; 6] = unknown_slots!(RuntimeHooks; 0 1 2 3 4 5);
    [TableWord::size(7), UNKNOWN[1], function!(large_scratch), UNKNOWN[3], function!(hook_context_identity), UNKNOWN[5], function!(small_scratch)]
};

/// CONTEXT_CHECKS: whether a context is a wrapped one. Ours never are.
pub(super) static CONTEXT_CHECKS: [TableWord; 15] = {
    const UNKNOWN: [TableWord; 15] = unknown_slots!(ContextChecks; 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14);
    let mut slots = UNKNOWN;
    slots[0] = TableWord::size(15);
    slots[2] = function!(check_context);
    slots[3] = function!(check_driver);
    slots
};

const CONTEXT_WORDS: usize = 93;

/// CU_ETID_ToolsContext: slot 4 gives the identity of a context, as `cuCtxGetId` does. cuBLAS keeps
/// a workspace for each stream: slot 51 says which stream a handle means, slot 39 gives that
/// stream's identity, as `cuStreamGetId` does.
pub(super) static CONTEXT: [TableWord; CONTEXT_WORDS] = {
    const UNKNOWN: [TableWord; CONTEXT_WORDS] = unknown_slots!(ToolsContext;
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30
        31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61
        62 63 64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79 80 81 82 83 84 85 86 87 88 89 90 91 92
    );
    let mut slots = UNKNOWN;
    slots[0] = TableWord::size(CONTEXT_WORDS);
    slots[4] = function!(context_identity);
    slots[39] = function!(stream_identity);
    slots[51] = function!(resolve_stream);
    slots
};

const MATRIX_WORDS: usize = 17;

/// A table that cuBLASLt 13 asks for before its first product in half precision. It calls slot 4
/// without having looked whether it got the table; where that slot is refused, it goes on without
/// what it wanted to know.
pub(super) static MATRIX_QUERIES: [TableWord; MATRIX_WORDS] = {
    const UNKNOWN: [TableWord; MATRIX_WORDS] = unknown_slots!(MatrixQueries; 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
    let mut slots = UNKNOWN;
    slots[0] = TableWord::size(MATRIX_WORDS);
    slots
};

const MODULE_WORDS: usize = 99;

/// CU_ETID_ToolsModule. cuFFT links a kernel whose name it does not know, and finds it by slot 7.
pub(super) static MODULE: [TableWord; MODULE_WORDS] = {
    const UNKNOWN: [TableWord; MODULE_WORDS] = unknown_slots!(ToolsModule;
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33
        34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64
        65 66 67 68 69 70 71 72 73 74 75 76 77 78 79 80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95
        96 97 98
    );
    let mut slots = UNKNOWN;
    slots[0] = TableWord::size(MODULE_WORDS);
    slots[7] = function!(visit_functions);
    slots
};

const PROFILER_WORDS: usize = 64;

/// A table that CUPTI asks for first of all. CUPTI 13.2 calls itself without end if it does not get
/// it; where its slots are refused, it says that the device cannot be profiled.
pub(super) static PROFILERS: [TableWord; PROFILER_WORDS] = {
    const UNKNOWN: [TableWord; PROFILER_WORDS] = unknown_slots!(Profilers;
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
        32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63
    );
    let mut slots = UNKNOWN;
    slots[0] = TableWord::size(PROFILER_WORDS);
    slots
};

extern "C" fn current_context(context: *mut CUcontext) -> CUresult {
    driver!(cuCtxGetCurrent(context))
}

/// Scratch memory of the caller's own; nothing here reads it.
#[repr(C, align(64))]
struct Scratch(UnsafeCell<[u8; 4096]>);

// SAFETY: only the address is used on this side.
unsafe impl Sync for Scratch {}

static LARGE: Scratch = Scratch(UnsafeCell::new([0; 4096]));
static SMALL: Scratch = Scratch(UnsafeCell::new([0; 4096]));

extern "C" fn large_scratch(memory: *mut *mut c_void, size: *mut usize) -> CUresult {
    lend(&LARGE, 1024, memory, size)
}

extern "C" fn small_scratch(memory: *mut *mut c_void, size: *mut usize) -> CUresult {
    lend(&SMALL, 14, memory, size)
}

fn lend(scratch: &'static Scratch, announced: usize, memory: *mut *mut c_void, size: *mut usize) -> CUresult {
    if !memory.is_null() {
        // SAFETY: not null; the table's contract makes it writable.
        unsafe { memory.write(scratch.0.get().cast()) };
    }
    if !size.is_null() {
        // SAFETY: not null; the contract of the table makes it writable.
        unsafe { size.write(announced) };
    }
    CUresult::CUDA_SUCCESS
}

extern "C" fn hook_context_identity(context: CUcontext, identity: *mut u64) -> CUresult {
    if identity.is_null() {
        return CUresult::CUDA_ERROR_UNKNOWN;
    }
    context_identity(context, identity)
}

/// The null context has the identity 0.
extern "C" fn context_identity(context: CUcontext, identity: *mut u64) -> CUresult {
    if identity.is_null() {
        return CUresult::CUDA_ERROR_INVALID_VALUE;
    }
    if context.is_null() {
        // SAFETY: not null; the table's contract makes it writable.
        unsafe { identity.write(0) };
        return CUresult::CUDA_SUCCESS;
    }
    driver!(cuCtxGetId(context, identity))
}

/// What a stream handle means: the null stream is the legacy one, or the thread's own.
extern "C" fn resolve_stream(_context: CUcontext, stream: CUstream, resolved: *mut CUstream, per_thread: c_uint) -> CUresult {
    if resolved.is_null() {
        return CUresult::CUDA_ERROR_INVALID_VALUE;
    }
    if stream.addr() == usize::MAX {
        return CUresult::CUDA_ERROR_INVALID_HANDLE;
    }
    let meant = match (stream.is_null(), per_thread) {
        (true, 0) => CU_STREAM_LEGACY,
        (true, _) => CU_STREAM_PER_THREAD,
        (false, _) => stream,
    };
    // SAFETY: not null; the table's contract makes it writable.
    unsafe { resolved.write(meant) };
    CUresult::CUDA_SUCCESS
}

extern "C" fn stream_identity(_context: CUcontext, stream: CUstream, identity: *mut u64) -> CUresult {
    driver!(cuStreamGetId(stream, identity))
}

type Visit = unsafe extern "C" fn(opaque: *mut c_void, function: CUfunction);

/// Calls back with each function of a module; returns how many there are, 0 where there is no such
/// module.
extern "C" fn visit_functions(_context: CUcontext, module: CUmodule, visit: Option<Visit>, opaque: *mut c_void) -> c_uint {
    let mut count = 0;
    if driver!(cuModuleGetFunctionCount(&mut count, module)) != CUresult::CUDA_SUCCESS {
        return 0;
    }
    let mut functions = vec![core::ptr::null_mut(); count as usize];
    if driver!(cuModuleEnumerateFunctions(functions.as_mut_ptr(), count, module)) != CUresult::CUDA_SUCCESS {
        return 0;
    }
    for function in functions {
        if let Some(visit) = visit {
            // SAFETY: the table's contract: a function of the caller's that takes its own pointer.
            unsafe { visit(opaque, function) };
        }
    }
    count
}

/// The third argument stays untouched, as in driver 580.
extern "C" fn check_context(_context: CUcontext, wrapped: *mut c_uint, _inner: *mut *const c_void) -> CUresult {
    if !wrapped.is_null() {
        // SAFETY: not null; the table's contract makes it writable.
        unsafe { wrapped.write(0) };
    }
    CUresult::CUDA_SUCCESS
}

extern "C" fn check_driver() -> CUresult {
    CUresult::CUDA_SUCCESS
}
