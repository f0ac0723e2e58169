//! The jump table: one word per exported function, read by the trampolines, written by the decision
//! (and after a fork).
//!
//! Invariant: every word always holds the address of code that may be entered with the registers of
//! a first call. Words change only from `first_call` to a final address, and from a served address
//! to `not_initialized` in a forked child. A call before `cuInit` may be answered without a change.
#![expect(clippy::disallowed_types, reason = "the jump table, which every call reads")]

pub(crate) mod trampoline;

use core::ffi::{CStr, c_void};
use cumux_abi::CUresult;
use trampoline::{first_call, refused};
// The trampolines read these words from machine code, so they must be plain words on every build;
// the ring's own atomics are not.
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

/// Code whose type only the trampoline's caller knows.
pub(crate) type Code = unsafe extern "C" fn();

/// One exported function.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The exported name.
    pub(crate) name: &'static CStr,
    /// The exported trampoline itself: what programs get from the dynamic linker and from
    /// `cuGetProcAddress`.
    pub(crate) export: Code,
    /// What answers when served; `None` is a refusal.
    pub(crate) implementation: Option<Code>,
    /// Answered by the shim even where nothing else is.
    pub(crate) always: bool,
    /// Why it is refused; empty where it is not.
    pub(crate) why: &'static str,
}

/// Checks a wrapper against the signature of its name and forgets the type.
macro_rules! erase {
    ($signature:ident, $wrapper:path) => {
        // SAFETY: both are function pointers; the trampoline's caller uses the signature's type
        // again.
        unsafe { core::mem::transmute::<cumux_abi::functions::$signature, Code>($wrapper) }
    };
}

#[allow(non_snake_case, unused_unsafe, clippy::too_many_arguments, clippy::missing_safety_doc)]
mod wrappers {
    use cumux_abi::*;
    include!(concat!(env!("OUT_DIR"), "/wrappers.rs"));
}

include!(concat!(env!("OUT_DIR"), "/entries.rs"));

/// The jump table: where each name leads now.
pub(crate) static TABLE: [AtomicPtr<c_void>; COUNT] = [const { AtomicPtr::new(first_call as *const () as *mut c_void) }; COUNT];

/// The error that every call returns when the server refused this client.
static FAILURE: AtomicU32 = AtomicU32::new(0);

static LOGGED: [AtomicBool; COUNT] = [const { AtomicBool::new(false) }; COUNT];

/// How the table is to be filled.
pub(crate) enum Filling<'a> {
    Served,
    /// The address of each name in the real driver, if it has the name.
    Bypassed(&'a dyn Fn(&CStr) -> Option<*mut c_void>),
    NoDevice,
    Failed(u32),
    /// A forked child.
    Stranger,
}

/// Writes every word of the table.
pub(crate) fn fill(filling: &Filling<'_>) {
    if let Filling::Failed(code) = filling {
        FAILURE.store(*code, Ordering::Release);
    }
    for (word, entry) in TABLE.iter().zip(&ENTRIES) {
        word.store(target(filling, entry), Ordering::Release);
    }
}

fn target(filling: &Filling<'_>, entry: &Entry) -> *mut c_void {
    let code = match filling {
        Filling::Bypassed(symbol) => {
            return symbol(entry.name).unwrap_or(refused as *const () as *mut c_void);
        }
        Filling::Served => entry.implementation.unwrap_or(refused),
        Filling::NoDevice => entry.implementation.filter(|_| entry.always).unwrap_or(constant(no_device)),
        Filling::Failed(_) => entry.implementation.filter(|_| entry.always).unwrap_or(constant(failed)),
        Filling::Stranger => entry.implementation.filter(|_| entry.always).unwrap_or(constant(not_initialized)),
    };
    code as *const () as *mut c_void
}

/// Where a name leads now.
pub(crate) fn current(index: usize) -> *mut c_void {
    TABLE.get(index).map_or(refused as *const () as *mut c_void, |word| word.load(Ordering::Acquire))
}

/// Whether this is the function with which a program begins.
pub(crate) fn is_init(index: usize) -> bool {
    ENTRIES.get(index).is_some_and(|entry| entry.name == c"cuInit")
}

/// Where a name leads before the program has begun. Logs may be asked for by then, to hear why
/// `cuInit` fails.
pub(crate) fn early(index: usize) -> *mut c_void {
    let Some(entry) = ENTRIES.get(index) else { return not_yet() };
    let is_of_logs = entry.name.to_bytes().starts_with(b"cuLogs");
    if let Some(implementation) = entry.implementation.filter(|_| entry.always || is_of_logs) {
        return implementation as *const () as *mut c_void;
    }
    crate::log::line(format_args!("{} answered 3: it comes before cuInit", entry.name.to_string_lossy()));
    not_yet()
}

/// A name's trampoline, typed by the caller.
pub(crate) fn export(index: usize) -> Option<*mut c_void> {
    ENTRIES.get(index).map(|entry| entry.export as *const () as *mut c_void)
}

/// Answers for a refused name; says so once per name.
pub(crate) extern "C" fn refuse(index: u32) -> CUresult {
    crate::border::call("refusal", || {
        if let Some((entry, logged)) = ENTRIES.get(index as usize).zip(LOGGED.get(index as usize))
            && !logged.swap(true, Ordering::Relaxed)
        {
            crate::log::tell(format_args!("{} is not supported: {}", entry.name.to_string_lossy(), entry.why));
        }
        CUresult::CUDA_ERROR_NOT_SUPPORTED
    })
}

extern "C" fn no_device() -> CUresult {
    CUresult::CUDA_ERROR_NO_DEVICE
}

extern "C" fn not_initialized() -> CUresult {
    CUresult::CUDA_ERROR_NOT_INITIALIZED
}

extern "C" fn failed() -> CUresult {
    CUresult(FAILURE.load(Ordering::Acquire))
}

/// Code that ignores its arguments; in the C calling convention it may stand in for any signature.
const fn constant(answer: extern "C" fn() -> CUresult) -> Code {
    // SAFETY: function pointers of one size; whoever calls through the table uses the signature of
    // the name.
    unsafe { core::mem::transmute::<extern "C" fn() -> CUresult, Code>(answer) }
}

/// The answer for a call made while this very thread is taking the decision, and before the program
/// has begun.
pub(crate) fn not_yet() -> *mut c_void {
    not_initialized as *const () as *mut c_void
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_an_answer_under_every_decision() {
        let known = 0x1000 as *mut c_void;
        let symbol = |name: &CStr| (name != c"cuInit").then_some(known);
        for filling in [Filling::Served, Filling::Bypassed(&symbol), Filling::NoDevice, Filling::Failed(805), Filling::Stranger] {
            for entry in &ENTRIES {
                let word = target(&filling, entry);
                assert!(!word.is_null(), "{:?}", entry.name);
                assert_ne!(word, first_call as *const () as *mut c_void, "{:?}", entry.name);
                if matches!(filling, Filling::Bypassed(_)) {
                    assert_eq!(word == known, entry.name != c"cuInit", "{:?}", entry.name);
                } else if entry.always {
                    assert_eq!(Some(word), entry.implementation.map(|code| code as *const () as *mut c_void));
                }
            }
        }
    }

    #[test]
    fn names_are_unique_and_complete() {
        let mut names: Vec<&CStr> = ENTRIES.iter().map(|entry| entry.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), COUNT);
        // 707 exported names, 25 of them variables.
        assert_eq!(COUNT, 682);
    }

    #[test]
    fn each_name_is_answered_as_it_is_listed() {
        use cumux_abi::surface::{Answer, functions};
        assert_eq!(functions().count(), COUNT);
        for (entry, (name, answer)) in ENTRIES.iter().zip(functions()) {
            assert_eq!(entry.name.to_str(), Ok(name));
            let word = target(&Filling::Served, entry);
            let is_refused = word == refused as *const () as *mut c_void;
            match answer {
                Answer::Function { .. } => assert!(!is_refused && entry.implementation.is_some() && entry.why.is_empty(), "{name}"),
                Answer::Refused { why } => assert!(is_refused && !why.is_empty() && entry.why == why, "{name}"),
            }
        }
    }

    #[test]
    fn a_refusal_is_not_supported() {
        assert_eq!(refuse(0), CUresult::CUDA_ERROR_NOT_SUPPORTED);
        assert_eq!(refuse(u32::MAX), CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
}
