//! `cuGetProcAddress`: which exported name a base name means, for a CUDA version and a kind of
//! default stream.
//!
//! The table is what driver 580 answered for every name, flag and version. Pointers handed out are
//! the exported trampolines, so they stay right whatever is decided later.
#![allow(non_snake_case)]

use core::ffi::{CStr, c_char, c_int, c_void};
use cumux_abi::{CUdriverProcAddress_flags, CUdriverProcAddressQueryResult, CUresult, cuuint64_t};

/// One base name; each answer is (first CUDA version, index of the exported name), in ascending
/// order.
struct Name {
    name: &'static str,
    /// For the default and the legacy-stream flag.
    common: &'static [(i32, usize)],
    /// For the per-thread-default-stream flag.
    per_thread: &'static [(i32, usize)],
}

include!(concat!(env!("OUT_DIR"), "/procaddress.rs"));

/// Flag of the legacy default stream; means the same as no flag.
const LEGACY_STREAM: u64 = CUdriverProcAddress_flags::CU_GET_PROC_ADDRESS_LEGACY_STREAM.0 as u64;
/// Flag of per-thread default streams; wins over the other.
const PER_THREAD_DEFAULT_STREAM: u64 = CUdriverProcAddress_flags::CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM.0 as u64;

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Found(usize),
    UnknownName,
    VersionTooOld,
}

/// What the table says; `None` for a version or a flag that the driver rejects. A negative version
/// means the newest.
fn look_up(name: &[u8], version: i32, flags: u64) -> Option<Answer> {
    if version > cumux_abi::DRIVER_VERSION || flags & !(LEGACY_STREAM | PER_THREAD_DEFAULT_STREAM) != 0 {
        return None;
    }
    let Ok(index) = NAMES.binary_search_by(|known| known.name.as_bytes().cmp(name)) else {
        return Some(Answer::UnknownName);
    };
    let found = &NAMES[index];
    let steps = if flags & PER_THREAD_DEFAULT_STREAM != 0 { found.per_thread } else { found.common };
    let step = steps.iter().rev().find(|(from, _)| version < 0 || *from <= version);
    Some(step.map_or(Answer::VersionTooOld, |(_, index)| Answer::Found(*index)))
}

/// The form since CUDA 12: a miss is a success with a status and a null pointer.
///
/// # Safety
/// `symbol` is null or a C string; `function` and `status` are null or writable.
pub unsafe fn cuGetProcAddress_v2(
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: cuuint64_t,
    status: *mut CUdriverProcAddressQueryResult,
) -> CUresult {
    if symbol.is_null() || function.is_null() {
        return CUresult::CUDA_ERROR_INVALID_VALUE;
    }
    // SAFETY: not null, and a C string as the caller promises.
    let name = unsafe { CStr::from_ptr(symbol) };
    let Some(answer) = look_up(name.to_bytes(), version, flags) else {
        return CUresult::CUDA_ERROR_INVALID_VALUE;
    };
    let (pointer, outcome) = match answer {
        Answer::Found(index) => (crate::decide::table::export(index), CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SUCCESS),
        Answer::UnknownName => (None, CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND),
        Answer::VersionTooOld => (None, CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT),
    };
    // SAFETY: not null, and writable as the caller promises.
    unsafe { function.write(pointer.unwrap_or(core::ptr::null_mut())) };
    if !status.is_null() {
        // SAFETY: not null, and writable as the caller promises.
        unsafe { status.write(outcome) };
    }
    CUresult::CUDA_SUCCESS
}

/// The form of CUDA 11: a miss is `CUDA_ERROR_NOT_FOUND` and writes nothing.
///
/// # Safety
/// `symbol` is null or a C string; `function` is null or writable.
pub unsafe fn cuGetProcAddress(symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: cuuint64_t) -> CUresult {
    let mut found = core::ptr::null_mut();
    // SAFETY: the caller vouches for `symbol`; `found` is our own.
    let code = unsafe { cuGetProcAddress_v2(symbol, &mut found, version, flags, core::ptr::null_mut()) };
    if code != CUresult::CUDA_SUCCESS || function.is_null() {
        return if function.is_null() { CUresult::CUDA_ERROR_INVALID_VALUE } else { code };
    }
    if found.is_null() {
        return CUresult::CUDA_ERROR_NOT_FOUND;
    }
    // SAFETY: not null, and writable as the caller promises.
    unsafe { function.write(found) };
    CUresult::CUDA_SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::table::ENTRIES;

    fn symbol(name: &str, version: i32, flags: u64) -> Option<&'static str> {
        match look_up(name.as_bytes(), version, flags) {
            Some(Answer::Found(index)) => ENTRIES[index].name.to_str().ok(),
            _ => None,
        }
    }

    /// Replays the recorded list itself, not the table made from it: every step answers from its
    /// version on, and not before.
    #[test]
    fn every_recorded_answer_comes_back() {
        let mut steps = 0;
        for line in cumux_abi::surface::PROC_ADDRESS.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let (name, answers) = line.split_once(' ').expect("a name and answers");
            let (common, per_thread) = answers.split_once(" | ").unwrap_or((answers, answers));
            for (flags, list) in [(0, common), (1, common), (2, per_thread)] {
                let words: Vec<&str> = list.split(' ').collect();
                let list: Vec<(i32, &str)> = words.chunks(2).map(|pair| (pair[0].parse().expect("a version"), pair[1])).collect();
                assert_eq!(look_up(name.as_bytes(), list[0].0 - 1, flags), Some(Answer::VersionTooOld), "{name}");
                for (index, (from, expected)) in list.iter().enumerate() {
                    let until = list.get(index + 1).map_or(13000, |(next, _)| next - 1);
                    assert_eq!(symbol(name, *from, flags), Some(*expected), "{name} {from} {flags}");
                    assert_eq!(symbol(name, until, flags), Some(*expected), "{name} {until} {flags}");
                    steps += 1;
                }
            }
        }
        // As many as were recorded.
        assert_eq!(steps, 1690);
    }

    #[test]
    fn well_known_changes_of_meaning() {
        assert_eq!(symbol("cuCtxCreate", 11040, 0), Some("cuCtxCreate_v3"));
        assert_eq!(symbol("cuMemcpyAsync", 13000, 2), Some("cuMemcpyAsync_ptsz"));
        assert_eq!(symbol("cuMemcpyAsync", 13000, 3), Some("cuMemcpyAsync_ptsz"));
        assert_eq!(symbol("cuMemAlloc", -1, 0), Some("cuMemAlloc_v2"));
        assert_eq!(symbol("cuMemAlloc_v2", 13000, 0), None);
        assert_eq!(symbol("", 0, 0), None);
    }

    #[test]
    fn misses_answer_as_driver_580() {
        let mut function = core::ptr::dangling_mut::<c_void>();
        let mut status = CUdriverProcAddressQueryResult(7);
        let mut ask = |name: &CStr, version, flags| {
            // SAFETY: all pointers are valid.
            let code = unsafe { cuGetProcAddress_v2(name.as_ptr(), &mut function, version, flags, &mut status) };
            (code.0, function.is_null(), status.0)
        };
        assert_eq!(ask(c"cuNoSuchName", 13000, 0), (0, true, 1));
        assert_eq!(ask(c"cuInit", 13010, 0).0, 1);
        assert_eq!(ask(c"cuInit", 13000, 4).0, 1);
        assert_eq!(ask(c"cuLibraryLoadData", 11080, 0), (0, true, 2));
        assert_eq!(ask(c"cuInit", 13000, 0), (0, false, 0));
        let before = function;
        // SAFETY: all pointers are valid.
        let code = unsafe { cuGetProcAddress(c"cuNoSuchName".as_ptr(), &mut function, 12000, 0) };
        assert_eq!((code, function), (CUresult::CUDA_ERROR_NOT_FOUND, before));
        // SAFETY: null pointers are refused.
        let code = unsafe { cuGetProcAddress(core::ptr::null(), &mut function, 12000, 0) };
        assert_eq!(code, CUresult::CUDA_ERROR_INVALID_VALUE);
    }
}
