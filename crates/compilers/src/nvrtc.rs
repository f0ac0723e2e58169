//! NVRTC: compiles for `compute_90` where `sm_90` is asked for, and answers with PTX where machine
//! code is asked for. A limit of registers (`-maxrregcount`), which is one of machine code, becomes
//! a directive in it.
//!
//! Only programs whose architecture was changed are answered differently.

use crate::entry::entrances;
use crate::real::{Libraries, PLACES, function};
use crate::{COptions, guard, options, options_of};
use core::ffi::{c_char, c_int, c_void};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// `nvrtcProgram`.
type Program = *mut c_void;
/// `NVRTC_ERROR_INTERNAL_ERROR`.
pub(crate) const INTERNAL: c_int = 11;

type Compile = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int;
type Size = unsafe extern "C" fn(Program, *mut usize) -> c_int;
type Text = unsafe extern "C" fn(Program, *mut c_char) -> c_int;
type Destroy = unsafe extern "C" fn(*mut Program) -> c_int;

/// The real functions of one library.
#[derive(Debug)]
struct Real {
    compile: Compile,
    ptx_size: Size,
    ptx: Text,
    cubin_size: Size,
    cubin: Text,
    destroy: Destroy,
}

/// How the file names of the library begin.
pub(crate) const SONAME: &str = "libnvrtc.so";

static LIBRARIES: Libraries<Real> = Libraries::new();

/// What was asked for of a program that was compiled for another architecture.
#[derive(Debug, Clone, Copy)]
struct Asked {
    /// Registers of a thread; `None` without a limit.
    most_registers: Option<u32>,
}

/// The programs that were compiled for another architecture than asked, by their handles.
static CHANGED: Mutex<BTreeMap<usize, Asked>> = Mutex::new(BTreeMap::new());

fn changed() -> MutexGuard<'static, BTreeMap<usize, Asked>> {
    CHANGED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn asked(program: Program) -> Option<Asked> {
    changed().get(&program.addr()).copied()
}

/// The functions that are answered here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Function {
    Compile,
    CubinSize,
    Cubin,
    Destroy,
}

impl Function {
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "nvrtcCompileProgram" => Self::Compile,
            "nvrtcGetCUBINSize" => Self::CubinSize,
            "nvrtcGetCUBIN" => Self::Cubin,
            "nvrtcDestroyProgram" => Self::Destroy,
            _ => return None,
        })
    }
}

/// Our function in place of a real one; the real one itself if its library has too few functions.
pub(crate) fn ours(real: *mut c_void, function: Function) -> *mut c_void {
    let Some(place) = LIBRARIES.place_of(real, Real::load) else { return real };
    match function {
        Function::Compile => COMPILE[place] as *mut c_void,
        Function::CubinSize => CUBIN_SIZE[place] as *mut c_void,
        Function::Cubin => CUBIN[place] as *mut c_void,
        Function::Destroy => DESTROY[place] as *mut c_void,
    }
}

impl Real {
    fn load(handle: *mut c_void) -> Option<Self> {
        Some(Self {
            compile: function!(handle, "nvrtcCompileProgram", Compile),
            ptx_size: function!(handle, "nvrtcGetPTXSize", Size),
            ptx: function!(handle, "nvrtcGetPTX", Text),
            cubin_size: function!(handle, "nvrtcGetCUBINSize", Size),
            cubin: function!(handle, "nvrtcGetCUBIN", Text),
            destroy: function!(handle, "nvrtcDestroyProgram", Destroy),
        })
    }

    unsafe fn compile(&self, program: Program, count: c_int, given: *const *const c_char) -> c_int {
        // SAFETY: the caller vouches for its options.
        let options = usize::try_from(count).ok().and_then(|count| unsafe { options_of(count, given) });
        let Some(new) = options.as_deref().and_then(options::for_ptx).filter(|_| !crate::is_off()) else {
            changed().remove(&program.addr());
            // SAFETY: the caller's own arguments.
            return unsafe { (self.compile)(program, count, given) };
        };
        let asked = Asked { most_registers: options::most_registers(options.as_deref().unwrap_or_default()) };
        let new = COptions::new(new);
        // SAFETY: the caller's program, and as many options as it had.
        let result = unsafe { (self.compile)(program, count, new.pointers.as_ptr()) };
        changed().insert(program.addr(), asked);
        result
    }

    /// The PTX in place of the machine code of a changed program, with its limit of registers.
    unsafe fn text(&self, program: Program, asked: Asked) -> Result<Vec<u8>, c_int> {
        let mut size = 0;
        // SAFETY: the caller's program; the call writes one number, a local.
        match unsafe { (self.ptx_size)(program, &raw mut size) } {
            0 => {}
            failed => return Err(failed),
        }
        let mut text = vec![0_u8; size];
        // SAFETY: the caller's program, and as much room as the library wants.
        match unsafe { (self.ptx)(program, text.as_mut_ptr().cast()) } {
            0 => Ok(cumux_fatbin::limit_registers(&text, asked.most_registers).unwrap_or(text)),
            failed => Err(failed),
        }
    }

    unsafe fn cubin_size(&self, program: Program, size: *mut usize) -> c_int {
        let Some(asked) = asked(program).filter(|_| !size.is_null()) else {
            // SAFETY: the caller's own arguments.
            return unsafe { (self.cubin_size)(program, size) };
        };
        // SAFETY: the caller's program.
        match unsafe { self.text(program, asked) } {
            Ok(text) => {
                // SAFETY: not null, and the caller's place for a number.
                unsafe { size.write_unaligned(text.len()) };
                0
            }
            Err(failed) => failed,
        }
    }

    unsafe fn cubin(&self, program: Program, cubin: *mut c_char) -> c_int {
        let Some(asked) = asked(program).filter(|_| !cubin.is_null()) else {
            // SAFETY: the caller's own arguments.
            return unsafe { (self.cubin)(program, cubin) };
        };
        // SAFETY: the caller's program.
        match unsafe { self.text(program, asked) } {
            Ok(text) => {
                // SAFETY: the caller has the room that `cubin_size` has answered: the same text.
                unsafe { core::ptr::copy_nonoverlapping(text.as_ptr(), cubin.cast(), text.len()) };
                0
            }
            Err(failed) => failed,
        }
    }

    unsafe fn destroy(&self, program: *mut Program) -> c_int {
        if !program.is_null() {
            // SAFETY: not null, and the caller's handle.
            changed().remove(&unsafe { program.read_unaligned() }.addr());
        }
        // SAFETY: the caller's own argument.
        unsafe { (self.destroy)(program) }
    }
}

/// The functions of all places.
macro_rules! placed {
    ($($table:ident, $generic:ident, $method:ident, ($($argument:ident: $type:ty),*);)*) => {$(
        unsafe extern "C" fn $generic<const PLACE: usize>($($argument: $type),*) -> c_int {
            guard(INTERNAL, || match LIBRARIES.at(PLACE) {
                // SAFETY: the caller vouches for its arguments.
                Some(real) => unsafe { real.$method($($argument),*) },
                None => INTERNAL,
            })
        }

        static $table: [unsafe extern "C" fn($($type),*) -> c_int; PLACES] = [$generic::<0>, $generic::<1>, $generic::<2>, $generic::<3>, $generic::<4>, $generic::<5>];
    )*};
}

placed! {
    COMPILE, compile_at, compile, (program: Program, count: c_int, options: *const *const c_char);
    CUBIN_SIZE, cubin_size_at, cubin_size, (program: Program, size: *mut usize);
    CUBIN, cubin_at, cubin, (program: Program, cubin: *mut c_char);
    DESTROY, destroy_at, destroy, (program: *mut Program);
}

entrances! { nvrtcCompileProgram nvrtcGetCUBINSize nvrtcGetCUBIN nvrtcDestroyProgram }
