//! A table that NVRTC asks for before it compiles: results that the driver has kept on disk. Ours
//! are in [`crate::compiled`].
//!
//! Slots (recorded from NVRTC 13.0.88 on driver 580 with a library in between): 1 makes a key of
//! everything that the compiler is given, 2 ends it, 3 finds the result, 4 keeps one, 5 forgets
//! it, 6 takes back the memory that slot 3 gave. NVRTC asks twice for each program: for PTX
//! (kind 2) and for machine code (kind 1). Where a slot fails it compiles.
//!
//! A key and a result that NVRTC gives back are looked up: an address that is not ours does no
//! harm.

use super::{TableWord, function};
use crate::border;
use crate::compiled::{Compiled, Key};
use crate::ffi::{self, Try, error};
use crate::sync::lock;
use core::ffi::{c_char, c_uint, c_void};
use cumux_abi::CUresult;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// The table.
pub(super) static CACHE: [TableWord; 7] =
    [TableWord::size(7), function!(make_key), function!(end_key), function!(find), function!(keep), function!(forget), function!(take_back)];

/// The keys that NVRTC has, by number. It gets the number as an address.
static KEYS: Mutex<BTreeMap<usize, Key>> = Mutex::new(BTreeMap::new());
/// The results that NVRTC has, by address.
static RESULTS: Mutex<BTreeMap<usize, Box<[u8]>>> = Mutex::new(BTreeMap::new());

/// Bytes of a text at most: options and versions are one line each.
const MOST_TEXT: usize = 1 << 20;

fn find_key(key: *const c_void) -> Try<Key> {
    lock(&KEYS).get(&key.addr()).copied().ok_or(error::INVALID_HANDLE)
}

/// The text without its end; nothing for null.
///
/// # Safety
/// Null, or a text that ends with a zero.
unsafe fn text<'a>(at: *const c_char) -> &'a [u8] {
    if at.is_null() {
        return &[];
    }
    // SAFETY: not null, and a text as the caller promises.
    unsafe { core::ffi::CStr::from_ptr(at) }.to_bytes()
}

/// Slot 1. `variant` is 1 for the architectures with an `a` in their name.
extern "C" fn make_key(
    out: *mut *const c_void,
    kind: c_uint,
    source: *const c_void,
    size: usize,
    options: *const c_char,
    host: *const c_char,
    build: *const c_char,
    architecture: c_uint,
    variant: c_uint,
) -> CUresult {
    border::call("private table", || {
        if source.is_null() || size > isize::MAX as usize {
            return Err(error::INVALID_VALUE);
        }
        // SAFETY: not null; the table's contract gives it this size.
        let source = unsafe { core::slice::from_raw_parts(source.cast::<u8>(), size) };
        // SAFETY: the table's contract makes them texts.
        let texts = unsafe { [text(options), text(host), text(build)] };
        if texts.iter().any(|text| text.len() > MOST_TEXT) {
            return Err(error::INVALID_VALUE);
        }
        let numbers = [kind, architecture, variant].map(c_uint::to_le_bytes).concat();
        let key = Key::of(&[source, texts[0], texts[1], texts[2], &numbers]);
        let number = crate::process::new_number() as usize;
        // SAFETY: null is refused; the table's contract makes it writable.
        unsafe { ffi::write(out, core::ptr::without_provenance(number)) }?;
        lock(&KEYS).insert(number, key);
        Ok(())
    })
}

/// Slot 2.
extern "C" fn end_key(key: *const c_void) -> CUresult {
    border::call("private table", || lock(&KEYS).remove(&key.addr()).map(|_| ()).ok_or(error::INVALID_HANDLE))
}

/// Slot 3.
extern "C" fn find(key: *const c_void, _reserved: usize, data: *mut *const c_void, size: *mut c_uint) -> CUresult {
    let mut is_there = false;
    // That nothing is there is the usual answer and no error of the program's.
    let code = border::call("private table", || {
        let key = find_key(key)?;
        let Some(found) = Compiled::of_environment().and_then(|compiled| compiled.find(key)) else { return Ok(()) };
        let Ok(bytes) = c_uint::try_from(found.len()) else { return Ok(()) };
        let found = found.into_boxed_slice();
        let address = found.as_ptr();
        // SAFETY: null is refused; the table's contract makes both writable.
        unsafe { ffi::write(size, bytes).and_then(|()| ffi::write(data, address.cast())) }?;
        lock(&RESULTS).insert(address.addr(), found);
        is_there = true;
        Ok(())
    });
    if code == CUresult::CUDA_SUCCESS && !is_there { error::NOT_FOUND } else { code }
}

/// Slot 4.
extern "C" fn keep(key: *const c_void, _reserved: usize, data: *const c_void, size: usize) -> CUresult {
    border::call("private table", || {
        let key = find_key(key)?;
        // NVRTC gives 32 bits; what is above them may be anything.
        let size = size as c_uint as usize;
        if data.is_null() {
            return Err(error::INVALID_VALUE);
        }
        let Some(compiled) = Compiled::of_environment() else { return Err(error::NOT_SUPPORTED) };
        // SAFETY: not null; the table's contract gives it this size.
        let contents = unsafe { core::slice::from_raw_parts(data.cast::<u8>(), size) };
        compiled.keep(key, contents).map_err(|error| {
            crate::log::line(format_args!("what was compiled is not kept: {error}"));
            error::OPERATING_SYSTEM
        })
    })
}

/// Slot 5: the compiler could not use what it found.
extern "C" fn forget(key: *const c_void) -> CUresult {
    border::call("private table", || {
        let key = find_key(key)?;
        if let Some(compiled) = Compiled::of_environment() {
            compiled.forget(key);
        }
        Ok(())
    })
}

/// Slot 6.
extern "C" fn take_back(data: *const c_void) -> CUresult {
    border::call("private table", || if data.is_null() || lock(&RESULTS).remove(&data.addr()).is_some() { Ok(()) } else { Err(error::INVALID_VALUE) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr::{null, null_mut};

    fn key_of(source: &[u8], options: &core::ffi::CStr, kind: c_uint, variant: c_uint) -> *const c_void {
        let mut key = null();
        let (host, build) = (c"HOST64", c"Aug 20 2025");
        let code = make_key(&raw mut key, kind, source.as_ptr().cast(), source.len(), options.as_ptr(), host.as_ptr(), build.as_ptr(), 90, variant);
        assert_eq!(code, CUresult::CUDA_SUCCESS);
        key
    }

    #[test]
    fn everything_that_the_compiler_is_given_is_in_the_key() {
        let all = [(&b"ab"[..], c"-O3", 1, 0), (b"ab", c"-O3", 2, 0), (b"ab", c"-O3", 1, 1), (b"ab", c"", 1, 0), (b"a", c"b-O3", 1, 0)];
        let keys = all.map(|(source, options, kind, variant)| find_key(key_of(source, options, kind, variant)).unwrap());
        for (number, key) in keys.iter().enumerate() {
            assert_eq!(keys.iter().position(|other| other == key), Some(number));
        }
        assert_eq!(find_key(key_of(b"ab", c"-O3", 1, 0)), Ok(keys[0]), "the same again");
    }

    #[test]
    fn what_is_no_key_and_no_result_is_refused() {
        let key = key_of(b"source", c"", 1, 0);
        let (mut data, mut size) = (null(), 0);
        assert_eq!((keep(key, 0, null(), 4), find(key, 0, null_mut(), &raw mut size)), (error::INVALID_VALUE, error::NOT_FOUND));
        assert_eq!((end_key(key), end_key(key)), (CUresult::CUDA_SUCCESS, error::INVALID_HANDLE));
        for wrong in [key, null(), core::ptr::without_provenance(usize::MAX)] {
            assert_eq!(find(wrong, 0, &raw mut data, &raw mut size), error::INVALID_HANDLE);
            assert_eq!((keep(wrong, 0, wrong, 0), forget(wrong)), (error::INVALID_HANDLE, error::INVALID_HANDLE));
        }
        assert_eq!((take_back(null()), take_back((&raw const size).cast())), (CUresult::CUDA_SUCCESS, error::INVALID_VALUE));
        let mut out = null();
        assert_eq!(make_key(&raw mut out, 1, null(), 4, null(), null(), null(), 90, 0), error::INVALID_VALUE);
    }
}
