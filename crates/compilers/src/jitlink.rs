//! nvJitLink: links PTX to PTX where machine code is asked for.
//!
//! A link keeps its real handle, which the program gets, so that functions that are not known here
//! have a real one, too. Beside it this file collects what the program gives. PTX is linked by
//! `cumux_fatbin::link`; intermediate code (LTO) is first compiled to PTX, by the library itself.

use crate::entry::entrances;
use crate::real::{Libraries, PLACES, function};
use crate::{COptions, guard, options, options_of};
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use cumux_fatbin::{Code, Piece, pieces};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// `nvJitLinkHandle`.
type Handle = *mut c_void;
const SUCCESS: c_int = 0;
/// `NVJITLINK_ERROR_INVALID_INPUT`.
const INVALID_INPUT: c_int = 3;
/// `NVJITLINK_ERROR_INTERNAL`, which the real one answers where names are missing, too.
pub(crate) const INTERNAL: c_int = 6;
/// `NVJITLINK_ERROR_PTX_COMPILE`.
const PTX_COMPILE: c_int = 4;
/// `NVJITLINK_INPUT_LTOIR`.
const INPUT_LTOIR: c_int = 3;
/// `NVJITLINK_INPUT_ANY`.
const INPUT_ANY: c_int = 10;

type Create = unsafe extern "C" fn(*mut Handle, c_uint, *const *const c_char) -> c_int;
type Destroy = unsafe extern "C" fn(*mut Handle) -> c_int;
type AddData = unsafe extern "C" fn(Handle, c_int, *const c_void, usize, *const c_char) -> c_int;
type AddFile = unsafe extern "C" fn(Handle, c_int, *const c_char) -> c_int;
type Complete = unsafe extern "C" fn(Handle) -> c_int;
type Size = unsafe extern "C" fn(Handle, *mut usize) -> c_int;
type Bytes = unsafe extern "C" fn(Handle, *mut c_void) -> c_int;

/// The real functions of one library.
#[derive(Debug)]
struct Real {
    create: Create,
    destroy: Destroy,
    add_data: AddData,
    add_file: AddFile,
    complete: Complete,
    cubin_size: Size,
    cubin: Bytes,
    ptx_size: Size,
    ptx: Bytes,
    error_size: Size,
    error: Bytes,
}

/// How the file names of the library begin.
pub(crate) const SONAME: &str = "libnvJitLink.so";

static LIBRARIES: Libraries<Real> = Libraries::new();

/// A link whose result will be PTX.
#[derive(Debug)]
struct Link {
    options: Vec<Vec<u8>>,
    capability: u32,
    pieces: Vec<Piece>,
    intermediate: Vec<Intermediate>,
    /// The linked text with its NUL.
    result: Option<Vec<u8>>,
    /// What is wrong, for the program's error log.
    log: String,
}

/// Intermediate code, as it was given.
#[derive(Debug)]
struct Intermediate {
    kind: c_int,
    bytes: Vec<u8>,
    name: CString,
}

/// Links in progress, by their real handles.
static LINKS: Mutex<BTreeMap<usize, Link>> = Mutex::new(BTreeMap::new());

fn links() -> MutexGuard<'static, BTreeMap<usize, Link>> {
    LINKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a link has made, if it was made here. A copy: the real functions are not called under the
/// lock.
fn result_of(handle: Handle) -> Option<Vec<u8>> {
    links().get(&handle.addr())?.result.clone()
}

/// What is wrong with a link, with its NUL, if that was found here.
fn log_of(handle: Handle) -> Option<Vec<u8>> {
    links().get(&handle.addr()).filter(|link| !link.log.is_empty()).map(|link| [link.log.as_bytes(), b"\0"].concat())
}

/// The functions that are answered here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Function {
    Create,
    Destroy,
    AddData,
    AddFile,
    Complete,
    CubinSize,
    Cubin,
    ErrorSize,
    Error,
}

/// The names without what is before and behind: the header makes `__nvJitLinkCreate_13_0` of
/// `nvJitLinkCreate`.
const NAMES: [(&str, Function); 9] = [
    ("nvJitLinkCreate", Function::Create),
    ("nvJitLinkDestroy", Function::Destroy),
    ("nvJitLinkAddData", Function::AddData),
    ("nvJitLinkAddFile", Function::AddFile),
    ("nvJitLinkComplete", Function::Complete),
    ("nvJitLinkGetLinkedCubinSize", Function::CubinSize),
    ("nvJitLinkGetLinkedCubin", Function::Cubin),
    ("nvJitLinkGetErrorLogSize", Function::ErrorSize),
    ("nvJitLinkGetErrorLog", Function::Error),
];

impl Function {
    /// The function with a name, and how names of its version end (`_13_0`, or nothing).
    pub(crate) fn named(name: &str) -> Option<(Self, &str)> {
        let (plain, suffix) = match name.strip_prefix("__") {
            // Before the two numbers.
            Some(inner) => inner.split_at(inner.find('_')?),
            None => (name, ""),
        };
        NAMES.iter().find(|(known, _)| *known == plain).map(|(_, function)| (*function, suffix))
    }
}

/// Our function in place of a real one; the real one itself if its library has too few functions.
pub(crate) fn ours(real: *mut c_void, function: Function, suffix: &str) -> *mut c_void {
    let Some(place) = LIBRARIES.place_of(real, |handle| Real::load(handle, suffix)) else { return real };
    match function {
        Function::Create => CREATE[place] as *mut c_void,
        Function::Destroy => DESTROY[place] as *mut c_void,
        Function::AddData => ADD_DATA[place] as *mut c_void,
        Function::AddFile => ADD_FILE[place] as *mut c_void,
        Function::Complete => COMPLETE[place] as *mut c_void,
        Function::CubinSize => CUBIN_SIZE[place] as *mut c_void,
        Function::Cubin => CUBIN[place] as *mut c_void,
        Function::ErrorSize => ERROR_SIZE[place] as *mut c_void,
        Function::Error => ERROR[place] as *mut c_void,
    }
}

impl Real {
    fn load(handle: *mut c_void, suffix: &str) -> Option<Self> {
        let name = |plain: &str| if suffix.is_empty() { plain.to_owned() } else { format!("__{plain}{suffix}") };
        Some(Self {
            create: function!(handle, &name("nvJitLinkCreate"), Create),
            destroy: function!(handle, &name("nvJitLinkDestroy"), Destroy),
            add_data: function!(handle, &name("nvJitLinkAddData"), AddData),
            add_file: function!(handle, &name("nvJitLinkAddFile"), AddFile),
            complete: function!(handle, &name("nvJitLinkComplete"), Complete),
            cubin_size: function!(handle, &name("nvJitLinkGetLinkedCubinSize"), Size),
            cubin: function!(handle, &name("nvJitLinkGetLinkedCubin"), Bytes),
            ptx_size: function!(handle, &name("nvJitLinkGetLinkedPtxSize"), Size),
            ptx: function!(handle, &name("nvJitLinkGetLinkedPtx"), Bytes),
            error_size: function!(handle, &name("nvJitLinkGetErrorLogSize"), Size),
            error: function!(handle, &name("nvJitLinkGetErrorLog"), Bytes),
        })
    }

    unsafe fn create(&self, out: *mut Handle, count: c_uint, given: *const *const c_char) -> c_int {
        // SAFETY: the caller's own arguments.
        let result = unsafe { (self.create)(out, count, given) };
        if result != SUCCESS || out.is_null() || crate::is_off() {
            return result;
        }
        // SAFETY: the caller vouches for its options, which the real function has read.
        let Some(options) = (unsafe { options_of(count as usize, given) }) else { return result };
        // SAFETY: not null, and the real function has written it.
        let handle = unsafe { out.read_unaligned() }.addr();
        let capability = options::capability(&options).filter(|_| !options::leaves_no_cubin(&options));
        match capability {
            Some(capability) => {
                let link = Link { options, capability, pieces: Vec::new(), intermediate: Vec::new(), result: None, log: String::new() };
                links().insert(handle, link);
            }
            None => drop(links().remove(&handle)),
        }
        result
    }

    unsafe fn destroy(&self, handle: *mut Handle) -> c_int {
        if !handle.is_null() {
            // SAFETY: not null, and the caller's handle.
            links().remove(&unsafe { handle.read_unaligned() }.addr());
        }
        // SAFETY: the caller's own argument.
        unsafe { (self.destroy)(handle) }
    }

    unsafe fn add_data(&self, handle: Handle, kind: c_int, data: *const c_void, bytes: usize, name: *const c_char) -> c_int {
        let mut links = links();
        let Some(link) = links.get_mut(&handle.addr()).filter(|_| !data.is_null()) else {
            drop(links);
            // SAFETY: the caller's own arguments.
            return unsafe { (self.add_data)(handle, kind, data, bytes, name) };
        };
        // SAFETY: not null, and the caller says how long it is.
        let bytes = unsafe { core::slice::from_raw_parts(data.cast::<u8>(), bytes) };
        // SAFETY: a string of the caller's, if it has given one.
        let name = if name.is_null() { c"<unnamed>" } else { unsafe { CStr::from_ptr(name) } };
        link.add(kind, bytes, name)
    }

    unsafe fn add_file(&self, handle: Handle, kind: c_int, path: *const c_char) -> c_int {
        let mut links = links();
        let link = links.get_mut(&handle.addr()).filter(|_| !path.is_null());
        // SAFETY: a string of the caller's; a null pointer is not read.
        let text = link.is_some().then(|| unsafe { CStr::from_ptr(path) });
        let file = text.and_then(|text| text.to_str().ok()).map(Path::new);
        match (link, file.map(|file| (file, std::fs::read(file)))) {
            (Some(link), Some((file, Ok(bytes)))) => {
                let name = CString::new(file.file_name().unwrap_or(file.as_os_str()).as_encoded_bytes()).unwrap_or_default();
                link.add(kind, &bytes, &name)
            }
            // The real one says what is wrong with the file.
            _ => {
                drop(links);
                // SAFETY: the caller's own arguments.
                unsafe { (self.add_file)(handle, kind, path) }
            }
        }
    }

    unsafe fn complete(&self, handle: Handle) -> c_int {
        // Taken out meanwhile: compiling takes its time, and other links go on.
        let taken = links().remove(&handle.addr());
        let Some(mut link) = taken else {
            // SAFETY: the caller's own argument.
            return unsafe { (self.complete)(handle) };
        };
        let result = self.link(&mut link);
        links().insert(handle.addr(), link);
        result
    }

    fn link(&self, link: &mut Link) -> c_int {
        if !link.intermediate.is_empty() {
            match self.compile_intermediate(link) {
                Ok(text) => {
                    link.intermediate.clear();
                    link.pieces.push(Piece { name: "<LTO>".to_owned(), optional: false, code: Code::Ptx(text) });
                }
                Err((code, log)) => {
                    link.log = log;
                    return code;
                }
            }
        }
        match cumux_fatbin::link(&link.pieces) {
            Ok(text) => {
                let mut text = text.into_bytes();
                text = cumux_fatbin::limit_registers(&text, options::most_registers(&link.options)).unwrap_or(text);
                text.push(0);
                link.result = Some(text);
                SUCCESS
            }
            Err(unlinked) => {
                link.log = format!("{unlinked}\n");
                INTERNAL
            }
        }
    }

    /// Makes PTX out of all intermediate code of a link.
    fn compile_intermediate(&self, link: &Link) -> Result<String, (c_int, String)> {
        let options = COptions::new(options::for_linked_ptx(&link.options));
        let mut handle: Handle = core::ptr::null_mut();
        // SAFETY: as many options as there are, and a place for the handle.
        let created = unsafe { (self.create)(&mut handle, options.pointers.len() as c_uint, options.pointers.as_ptr()) };
        if created != SUCCESS {
            return Err((created, "nvJitLink takes no options with which it makes PTX out of intermediate code\n".to_owned()));
        }
        let made = self.compile_with(handle, link);
        let failed = made.map_err(|code| (code, self.read(handle, self.error_size, self.error).unwrap_or_default()));
        // SAFETY: the handle from above, which nobody else has.
        unsafe { (self.destroy)(&mut handle) };
        failed
    }

    fn compile_with(&self, handle: Handle, link: &Link) -> Result<String, c_int> {
        let check = |code: c_int| if code == SUCCESS { Ok(()) } else { Err(code) };
        for input in &link.intermediate {
            // SAFETY: an open handle, and bytes and name that live during the call.
            check(unsafe { (self.add_data)(handle, input.kind, input.bytes.as_ptr().cast(), input.bytes.len(), input.name.as_ptr()) })?;
        }
        // SAFETY: an open handle.
        check(unsafe { (self.complete)(handle) })?;
        self.read(handle, self.ptx_size, self.ptx).ok_or(INTERNAL)
    }

    /// A text that a link has: its size is asked for first.
    fn read(&self, handle: Handle, size: Size, text: Bytes) -> Option<String> {
        let mut bytes = 0;
        // SAFETY: an open handle, and a place for the size.
        if unsafe { size(handle, &mut bytes) } != SUCCESS {
            return None;
        }
        let mut room = vec![0_u8; bytes];
        // SAFETY: an open handle, and as much room as it said.
        let result = unsafe { text(handle, room.as_mut_ptr().cast()) };
        let end = room.iter().position(|byte| *byte == 0).unwrap_or(room.len());
        (result == SUCCESS).then(|| String::from_utf8_lossy(&room[..end]).into_owned())
    }

    unsafe fn cubin_size(&self, handle: Handle, size: *mut usize) -> c_int {
        match result_of(handle).filter(|_| !size.is_null()) {
            Some(result) => {
                // SAFETY: not null, and the caller's place for a size.
                unsafe { size.write_unaligned(result.len()) };
                SUCCESS
            }
            // SAFETY: the caller's own arguments.
            None => unsafe { (self.cubin_size)(handle, size) },
        }
    }

    unsafe fn cubin(&self, handle: Handle, cubin: *mut c_void) -> c_int {
        match result_of(handle).filter(|_| !cubin.is_null()) {
            Some(result) => {
                // SAFETY: the caller has asked for the size, and has that much room.
                unsafe { core::ptr::copy_nonoverlapping(result.as_ptr(), cubin.cast::<u8>(), result.len()) };
                SUCCESS
            }
            // SAFETY: the caller's own arguments.
            None => unsafe { (self.cubin)(handle, cubin) },
        }
    }

    unsafe fn error_size(&self, handle: Handle, size: *mut usize) -> c_int {
        match log_of(handle).filter(|_| !size.is_null()) {
            Some(log) => {
                // SAFETY: not null, and the caller's place for a size.
                unsafe { size.write_unaligned(log.len()) };
                SUCCESS
            }
            // SAFETY: the caller's own arguments.
            None => unsafe { (self.error_size)(handle, size) },
        }
    }

    unsafe fn error(&self, handle: Handle, log: *mut c_void) -> c_int {
        match log_of(handle).filter(|_| !log.is_null()) {
            Some(text) => {
                // SAFETY: the caller has asked for the size, and has that much room.
                unsafe { core::ptr::copy_nonoverlapping(text.as_ptr(), log.cast::<u8>(), text.len()) };
                SUCCESS
            }
            // SAFETY: the caller's own arguments.
            None => unsafe { (self.error)(handle, log) },
        }
    }
}

impl Link {
    fn add(&mut self, kind: c_int, bytes: &[u8], name: &CStr) -> c_int {
        let intermediate = |kind| Intermediate { kind, bytes: bytes.to_vec(), name: name.to_owned() };
        if kind == INPUT_LTOIR {
            self.intermediate.push(intermediate(kind));
            return SUCCESS;
        }
        let found = match pieces(&name.to_string_lossy(), bytes, self.capability) {
            Ok(found) => found,
            // No format of device code that is known here: what the library calls any.
            Err(_) if kind == INPUT_ANY => {
                self.intermediate.push(intermediate(kind));
                return SUCCESS;
            }
            Err(error) => return self.refuse(&format!("'{}': {error}", name.to_string_lossy())),
        };
        // A container that has intermediate code and no PTX is the library's to take apart.
        if found.iter().any(|piece| matches!(&piece.code, Code::Other(has) if has.iter().any(|one| one.starts_with("intermediate")))) {
            self.intermediate.push(intermediate(kind));
            return SUCCESS;
        }
        for piece in &found {
            if let Err(unlinked) = cumux_fatbin::check(piece) {
                self.log = format!("{unlinked}\n");
                return PTX_COMPILE;
            }
        }
        self.pieces.extend(found);
        SUCCESS
    }

    fn refuse(&mut self, why: &str) -> c_int {
        self.log = format!("error   : {why}\n");
        INVALID_INPUT
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
    CREATE, create_at, create, (out: *mut Handle, count: c_uint, options: *const *const c_char);
    DESTROY, destroy_at, destroy, (handle: *mut Handle);
    ADD_DATA, add_data_at, add_data, (handle: Handle, kind: c_int, data: *const c_void, bytes: usize, name: *const c_char);
    ADD_FILE, add_file_at, add_file, (handle: Handle, kind: c_int, path: *const c_char);
    COMPLETE, complete_at, complete, (handle: Handle);
    CUBIN_SIZE, cubin_size_at, cubin_size, (handle: Handle, size: *mut usize);
    CUBIN, cubin_at, cubin, (handle: Handle, cubin: *mut c_void);
    ERROR_SIZE, error_size_at, error_size, (handle: Handle, size: *mut usize);
    ERROR, error_at, error, (handle: Handle, log: *mut c_void);
}

// The names that programs are linked with: the plain ones, and those of each version that its
// header has made.
entrances! {
    nvJitLinkCreate nvJitLinkDestroy nvJitLinkAddData nvJitLinkAddFile nvJitLinkComplete nvJitLinkGetLinkedCubinSize nvJitLinkGetLinkedCubin nvJitLinkGetErrorLogSize nvJitLinkGetErrorLog
    __nvJitLinkCreate_12_0 __nvJitLinkDestroy_12_0 __nvJitLinkAddData_12_0 __nvJitLinkAddFile_12_0 __nvJitLinkComplete_12_0 __nvJitLinkGetLinkedCubinSize_12_0 __nvJitLinkGetLinkedCubin_12_0 __nvJitLinkGetErrorLogSize_12_0 __nvJitLinkGetErrorLog_12_0
    __nvJitLinkCreate_12_1 __nvJitLinkDestroy_12_1 __nvJitLinkAddData_12_1 __nvJitLinkAddFile_12_1 __nvJitLinkComplete_12_1 __nvJitLinkGetLinkedCubinSize_12_1 __nvJitLinkGetLinkedCubin_12_1 __nvJitLinkGetErrorLogSize_12_1 __nvJitLinkGetErrorLog_12_1
    __nvJitLinkCreate_12_2 __nvJitLinkDestroy_12_2 __nvJitLinkAddData_12_2 __nvJitLinkAddFile_12_2 __nvJitLinkComplete_12_2 __nvJitLinkGetLinkedCubinSize_12_2 __nvJitLinkGetLinkedCubin_12_2 __nvJitLinkGetErrorLogSize_12_2 __nvJitLinkGetErrorLog_12_2
    __nvJitLinkCreate_12_3 __nvJitLinkDestroy_12_3 __nvJitLinkAddData_12_3 __nvJitLinkAddFile_12_3 __nvJitLinkComplete_12_3 __nvJitLinkGetLinkedCubinSize_12_3 __nvJitLinkGetLinkedCubin_12_3 __nvJitLinkGetErrorLogSize_12_3 __nvJitLinkGetErrorLog_12_3
    __nvJitLinkCreate_12_4 __nvJitLinkDestroy_12_4 __nvJitLinkAddData_12_4 __nvJitLinkAddFile_12_4 __nvJitLinkComplete_12_4 __nvJitLinkGetLinkedCubinSize_12_4 __nvJitLinkGetLinkedCubin_12_4 __nvJitLinkGetErrorLogSize_12_4 __nvJitLinkGetErrorLog_12_4
    __nvJitLinkCreate_12_5 __nvJitLinkDestroy_12_5 __nvJitLinkAddData_12_5 __nvJitLinkAddFile_12_5 __nvJitLinkComplete_12_5 __nvJitLinkGetLinkedCubinSize_12_5 __nvJitLinkGetLinkedCubin_12_5 __nvJitLinkGetErrorLogSize_12_5 __nvJitLinkGetErrorLog_12_5
    __nvJitLinkCreate_12_6 __nvJitLinkDestroy_12_6 __nvJitLinkAddData_12_6 __nvJitLinkAddFile_12_6 __nvJitLinkComplete_12_6 __nvJitLinkGetLinkedCubinSize_12_6 __nvJitLinkGetLinkedCubin_12_6 __nvJitLinkGetErrorLogSize_12_6 __nvJitLinkGetErrorLog_12_6
    __nvJitLinkCreate_12_7 __nvJitLinkDestroy_12_7 __nvJitLinkAddData_12_7 __nvJitLinkAddFile_12_7 __nvJitLinkComplete_12_7 __nvJitLinkGetLinkedCubinSize_12_7 __nvJitLinkGetLinkedCubin_12_7 __nvJitLinkGetErrorLogSize_12_7 __nvJitLinkGetErrorLog_12_7
    __nvJitLinkCreate_12_8 __nvJitLinkDestroy_12_8 __nvJitLinkAddData_12_8 __nvJitLinkAddFile_12_8 __nvJitLinkComplete_12_8 __nvJitLinkGetLinkedCubinSize_12_8 __nvJitLinkGetLinkedCubin_12_8 __nvJitLinkGetErrorLogSize_12_8 __nvJitLinkGetErrorLog_12_8
    __nvJitLinkCreate_12_9 __nvJitLinkDestroy_12_9 __nvJitLinkAddData_12_9 __nvJitLinkAddFile_12_9 __nvJitLinkComplete_12_9 __nvJitLinkGetLinkedCubinSize_12_9 __nvJitLinkGetLinkedCubin_12_9 __nvJitLinkGetErrorLogSize_12_9 __nvJitLinkGetErrorLog_12_9
    __nvJitLinkCreate_13_0 __nvJitLinkDestroy_13_0 __nvJitLinkAddData_13_0 __nvJitLinkAddFile_13_0 __nvJitLinkComplete_13_0 __nvJitLinkGetLinkedCubinSize_13_0 __nvJitLinkGetLinkedCubin_13_0 __nvJitLinkGetErrorLogSize_13_0 __nvJitLinkGetErrorLog_13_0
    __nvJitLinkCreate_13_1 __nvJitLinkDestroy_13_1 __nvJitLinkAddData_13_1 __nvJitLinkAddFile_13_1 __nvJitLinkComplete_13_1 __nvJitLinkGetLinkedCubinSize_13_1 __nvJitLinkGetLinkedCubin_13_1 __nvJitLinkGetErrorLogSize_13_1 __nvJitLinkGetErrorLog_13_1
    __nvJitLinkCreate_13_2 __nvJitLinkDestroy_13_2 __nvJitLinkAddData_13_2 __nvJitLinkAddFile_13_2 __nvJitLinkComplete_13_2 __nvJitLinkGetLinkedCubinSize_13_2 __nvJitLinkGetLinkedCubin_13_2 __nvJitLinkGetErrorLogSize_13_2 __nvJitLinkGetErrorLog_13_2
    __nvJitLinkCreate_13_3 __nvJitLinkDestroy_13_3 __nvJitLinkAddData_13_3 __nvJitLinkAddFile_13_3 __nvJitLinkComplete_13_3 __nvJitLinkGetLinkedCubinSize_13_3 __nvJitLinkGetLinkedCubin_13_3 __nvJitLinkGetErrorLogSize_13_3 __nvJitLinkGetErrorLog_13_3
    __nvJitLinkCreate_13_4 __nvJitLinkDestroy_13_4 __nvJitLinkAddData_13_4 __nvJitLinkAddFile_13_4 __nvJitLinkComplete_13_4 __nvJitLinkGetLinkedCubinSize_13_4 __nvJitLinkGetLinkedCubin_13_4 __nvJitLinkGetErrorLogSize_13_4 __nvJitLinkGetErrorLog_13_4
    __nvJitLinkCreate_13_5 __nvJitLinkDestroy_13_5 __nvJitLinkAddData_13_5 __nvJitLinkAddFile_13_5 __nvJitLinkComplete_13_5 __nvJitLinkGetLinkedCubinSize_13_5 __nvJitLinkGetLinkedCubin_13_5 __nvJitLinkGetErrorLogSize_13_5 __nvJitLinkGetErrorLog_13_5
    __nvJitLinkCreate_13_6 __nvJitLinkDestroy_13_6 __nvJitLinkAddData_13_6 __nvJitLinkAddFile_13_6 __nvJitLinkComplete_13_6 __nvJitLinkGetLinkedCubinSize_13_6 __nvJitLinkGetLinkedCubin_13_6 __nvJitLinkGetErrorLogSize_13_6 __nvJitLinkGetErrorLog_13_6
    __nvJitLinkCreate_13_7 __nvJitLinkDestroy_13_7 __nvJitLinkAddData_13_7 __nvJitLinkAddFile_13_7 __nvJitLinkComplete_13_7 __nvJitLinkGetLinkedCubinSize_13_7 __nvJitLinkGetLinkedCubin_13_7 __nvJitLinkGetErrorLogSize_13_7 __nvJitLinkGetErrorLog_13_7
    __nvJitLinkCreate_13_8 __nvJitLinkDestroy_13_8 __nvJitLinkAddData_13_8 __nvJitLinkAddFile_13_8 __nvJitLinkComplete_13_8 __nvJitLinkGetLinkedCubinSize_13_8 __nvJitLinkGetLinkedCubin_13_8 __nvJitLinkGetErrorLogSize_13_8 __nvJitLinkGetErrorLog_13_8
    __nvJitLinkCreate_13_9 __nvJitLinkDestroy_13_9 __nvJitLinkAddData_13_9 __nvJitLinkAddFile_13_9 __nvJitLinkComplete_13_9 __nvJitLinkGetLinkedCubinSize_13_9 __nvJitLinkGetLinkedCubin_13_9 __nvJitLinkGetErrorLogSize_13_9 __nvJitLinkGetErrorLog_13_9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_all_versions_are_known() {
        assert_eq!(Function::named("nvJitLinkCreate"), Some((Function::Create, "")));
        assert_eq!(Function::named("__nvJitLinkGetLinkedCubinSize_12_9"), Some((Function::CubinSize, "_12_9")));
        for name in ["nvJitLinkVersion", "__nvJitLinkAPI", "__nvJitLinkGetInfoLog_13_0", "nvrtcVersion", "__nv"] {
            assert_eq!(Function::named(name), None, "{name}");
        }
    }
}
