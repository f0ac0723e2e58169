//! The real libraries: each that a program has opened has a place here, and functions of ours that
//! belong to it.
//!
//! A process may have several versions of a library. A function of ours is therefore made once for
//! each place (`compile::<0>`, `compile::<1>`, …): by that it knows whose function it stands for.

use crate::entry::look_up;
use core::ffi::{CStr, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Libraries of a kind in one process.
pub(crate) const PLACES: usize = 6;

/// The libraries of one kind; `R` is the table of the real functions.
#[derive(Debug)]
pub(crate) struct Libraries<R> {
    places: [OnceLock<R>; PLACES],
    /// Where the library of each place lies in memory.
    bases: Mutex<[usize; PLACES]>,
}

impl<R> Libraries<R> {
    pub(crate) const fn new() -> Self {
        Self { places: [const { OnceLock::new() }; PLACES], bases: Mutex::new([0; PLACES]) }
    }

    /// The functions at a place.
    pub(crate) fn at(&self, place: usize) -> Option<&R> {
        self.places.get(place)?.get()
    }

    /// The place of the library that has this function. A library that was not known gets one,
    /// unless `load` finds less than is needed, or all are taken.
    pub(crate) fn place_of(&self, function: *mut c_void, load: impl FnOnce(*mut c_void) -> Option<R>) -> Option<usize> {
        let (base, path) = object_of(function)?;
        let mut bases = self.bases.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = bases.iter().position(|known| *known == base) {
            return Some(known);
        }
        let free = (0..PLACES).find(|place| bases[*place] == 0)?;
        // It stays: functions of ours refer to it.
        self.places[free].set(load(loaded(&path)?)?).ok()?;
        bases[free] = base;
        Some(free)
    }
}

/// The function that a call by this name from `caller` reaches without us.
///
/// A process may have several versions of a library, and an object that is linked with one of them
/// means that one: it is looked up among those that the caller's object is linked with.
pub(crate) fn linked(caller: *const c_void, name: &str, soname: &str) -> Option<*mut c_void> {
    let of_object = |handle: *mut c_void| {
        let found = look_up(handle, name);
        // The program's own handle has all that was there at its start, us first.
        (!found.is_null() && object_of(found).is_some()).then_some(found)
    };
    let object = object_of(caller).and_then(|(_, path)| loaded(&path));
    let found = object.and_then(of_object);
    if let Some(handle) = object {
        // SAFETY: a handle from above, which nobody else has. The object is on the stack.
        unsafe { libc::dlclose(handle) };
    }
    // A library that was opened apart from the program is linked with it.
    found.or_else(|| of_object(libc::RTLD_NEXT)).or_else(|| opened(soname).and_then(of_object))
}

/// A handle of an object that is loaded already.
fn loaded(path: &CStr) -> Option<*mut c_void> {
    // SAFETY: a path that the dynamic linker has given.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    (!handle.is_null()).then_some(handle)
}

/// Where a name is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nobody has it that could be asked from here.
    Nowhere,
    /// Only this library has it.
    HereAlone,
    /// A library of the program's has it.
    There(*mut c_void),
}

/// Looks up a name in a library, or by the default order (a null handle), behind our own
/// definition.
pub(crate) fn look_up_behind(handle: *mut c_void, name: &str, soname: &str) -> Found {
    let found = look_up(handle, name);
    if found.is_null() {
        return Found::Nowhere;
    }
    if object_of(found).is_some() {
        return Found::There(found);
    }
    let mut next = look_up(libc::RTLD_NEXT, name);
    if next.is_null()
        && let Some(handle) = opened(soname)
    {
        next = look_up(handle, name);
    }
    if next.is_null() { Found::HereAlone } else { Found::There(next) }
}

/// Where the object that has a function begins, and its path; `None` for our own.
fn object_of(function: *const c_void) -> Option<(usize, std::ffi::CString)> {
    let of = |address: *const c_void| {
        let mut info = core::mem::MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: any address may be asked for, and the structure is ours.
        let found = unsafe { libc::dladdr(address, info.as_mut_ptr()) };
        // SAFETY: zeroed is a valid value of it: numbers and pointers.
        let info = unsafe { info.assume_init() };
        (found != 0 && !info.dli_fname.is_null()).then_some(info)
    };
    let (theirs, ours) = (of(function)?, of(object_of as *const () as *const c_void)?);
    // SAFETY: the dynamic linker's string, which stays as long as the object is loaded.
    let path = unsafe { CStr::from_ptr(theirs.dli_fname) }.to_owned();
    (theirs.dli_fbase != ours.dli_fbase).then(|| (theirs.dli_fbase.addr(), path))
}

/// A handle of the first loaded object whose file name begins with `soname`.
fn opened(soname: &str) -> Option<*mut c_void> {
    unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: libc::size_t, found: *mut c_void) -> core::ffi::c_int {
        // SAFETY: what `opened` passes below, and the dynamic linker's own structure.
        let (search, name) = unsafe { (&mut *found.cast::<Search<'_>>(), (*info).dlpi_name) };
        if name.is_null() {
            return 0;
        }
        // SAFETY: the dynamic linker's string.
        let path = unsafe { CStr::from_ptr(name) };
        let file = path.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        if file.starts_with(search.soname.as_bytes()) {
            search.found = Some(path.to_owned());
        }
        core::ffi::c_int::from(search.found.is_some())
    }
    let mut search = Search { soname, found: None };
    // SAFETY: `visit` takes what is passed, and does not keep it.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    loaded(&search.found?)
}

struct Search<'a> {
    soname: &'a str,
    found: Option<std::ffi::CString>,
}

/// Looks a function up, as a pointer of type `$type`; `None` (by `?`) if it is not there.
macro_rules! function {
    ($handle:expr, $name:expr, $type:ty) => {{
        let found = $crate::entry::look_up($handle, $name);
        if found.is_null() {
            return None;
        }
        // SAFETY: the name says which function it is, and the library's manual which signature it
        // has.
        unsafe { core::mem::transmute::<*mut core::ffi::c_void, $type>(found) }
    }};
}
pub(crate) use function;
