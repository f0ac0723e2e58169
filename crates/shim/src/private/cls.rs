//! CONTEXT_LOCAL_STORAGE: values that libraries hang on a context, by a key of their own.
//!
//! The runtime decides by a miss here that it must set a context up, so entries must go when their
//! context goes ([`context_gone`]). Destructors run without the lock, because they call the driver.

use super::{TableWord, driver, function};
use crate::{changes, context};
use core::ffi::c_void;
use cumux_abi::{CUcontext, CUresult};
use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// This table has no size word.
pub(super) static TABLE: [TableWord; 4] = [function!(put), function!(delete), function!(get), TableWord::NULL];

type Destructor = unsafe extern "C" fn(context: CUcontext, key: *mut c_void, value: *mut c_void);

/// What a library hung on a context. Context and key are only compared.
struct Value {
    context: usize,
    key: usize,
    value: usize,
    destructor: Option<Destructor>,
}

/// In the order in which they were put. There are a handful, so a list does.
static VALUES: Mutex<Vec<Value>> = Mutex::new(Vec::new());

fn values() -> MutexGuard<'static, Vec<Value>> {
    VALUES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The context meant: null and -1 both mean the current one.
fn meant(context: CUcontext) -> Result<usize, CUresult> {
    if !context.is_null() && context.addr() != usize::MAX {
        return Ok(context.addr());
    }
    let mut current: CUcontext = core::ptr::null_mut();
    match driver!(cuCtxGetCurrent(&mut current)) {
        CUresult::CUDA_SUCCESS if current.is_null() => Err(CUresult::CUDA_ERROR_INVALID_CONTEXT),
        CUresult::CUDA_SUCCESS => Ok(current.addr()),
        code => Err(code),
    }
}

/// A key that is taken stays as it is.
extern "C" fn put(context: CUcontext, key: *mut c_void, value: *mut c_void, destructor: Option<Destructor>) -> CUresult {
    crate::border::call("context local storage", || {
        let context = meant(context)?;
        let mut values = values();
        if find(&values, context, key).is_some() {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        values.push(Value { context, key: key.expose_provenance(), value: value.expose_provenance(), destructor });
        Ok(())
    })
}

/// Forgets a value without its destructor.
extern "C" fn delete(context: CUcontext, key: *mut c_void) -> CUresult {
    crate::border::call("context local storage", || {
        let context = meant(context)?;
        let mut values = values();
        let index = find(&values, context, key).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        values.remove(index);
        changes::note();
        Ok(())
    })
}

/// A miss writes nothing.
extern "C" fn get(value: *mut *mut c_void, context: CUcontext, key: *mut c_void) -> CUresult {
    crate::border::call("context local storage", || {
        if value.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let asked = context.is_null().then(|| Asked { changes: changes::count(), context: context::top_number(), key: key.addr() });
        let found = match (asked, LAST.get()) {
            (Some(asked), Some((last, found))) if asked == last => found,
            _ => {
                let found = look_up(context, key)?;
                LAST.set(asked.map(|asked| (asked, found)));
                found
            }
        };
        // SAFETY: not null; the table's contract makes it writable.
        unsafe { value.write(core::ptr::with_exposed_provenance_mut(found)) };
        Ok(())
    })
}

fn look_up(context: CUcontext, key: *mut c_void) -> Result<usize, CUresult> {
    let context = meant(context)?;
    let values = values();
    let index = find(&values, context, key).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    Ok(values[index].value)
}

/// A question for a value of the current context, at a moment ([`changes`]).
#[derive(Clone, Copy, PartialEq, Eq)]
struct Asked {
    changes: u64,
    /// Number of the context.
    context: u64,
    key: usize,
}

thread_local! {
    /// The last question of the thread and its answer: the runtime asks the same before every
    /// launch.
    static LAST: Cell<Option<(Asked, usize)>> = const { Cell::new(None) };
}

fn find(values: &[Value], context: usize, key: *mut c_void) -> Option<usize> {
    values.iter().position(|value| value.context == context && value.key == key.addr())
}

/// Drops what libraries hung on a context that is destroyed or reset, running their destructors,
/// last put first.
///
/// The caller holds no lock that a call of the driver could need.
pub fn context_gone(handle: u64) {
    let context = handle as usize;
    let gone: Vec<Value> = values().extract_if(.., |value| value.context == context).collect();
    changes::note();
    for value in gone.iter().rev() {
        if let Some(destructor) = value.destructor {
            let key = core::ptr::with_exposed_provenance_mut(value.key);
            let content = core::ptr::with_exposed_provenance_mut(value.value);
            // SAFETY: the library that put the value gave this function for exactly this moment.
            unsafe { destructor(core::ptr::with_exposed_provenance_mut(context), key, content) };
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_types, reason = "destructors are plain functions and count here")]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    static DESTROYED: AtomicUsize = AtomicUsize::new(0);

    extern "C" fn destructor(context: CUcontext, key: *mut c_void, value: *mut c_void) {
        // The lock must be free here, since real destructors call back.
        assert_eq!(delete(context, key), CUresult::CUDA_ERROR_INVALID_HANDLE);
        DESTROYED.fetch_add(value.addr() + key.addr(), Ordering::Relaxed);
    }

    #[test]
    fn values_live_and_die_with_their_context() {
        let ours: CUcontext = core::ptr::without_provenance_mut(0x1000);
        let other: CUcontext = core::ptr::without_provenance_mut(0x2000);
        let key = core::ptr::without_provenance_mut::<c_void>(7);
        let value = core::ptr::without_provenance_mut::<c_void>(100);
        let mut out = core::ptr::null_mut();
        assert_eq!(get(&mut out, ours, key), CUresult::CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(put(ours, key, value, Some(destructor)), CUresult::CUDA_SUCCESS);
        assert_eq!(put(ours, key, core::ptr::null_mut(), None), CUresult::CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(put(other, key, value, None), CUresult::CUDA_SUCCESS);
        assert_eq!(get(&mut out, ours, key), CUresult::CUDA_SUCCESS);
        assert_eq!(out, value);
        context_gone(0x1000);
        assert_eq!(DESTROYED.load(Ordering::Relaxed), 107);
        assert_eq!(get(&mut out, ours, key), CUresult::CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(get(&mut out, other, key), CUresult::CUDA_SUCCESS);
        assert_eq!(delete(other, key), CUresult::CUDA_SUCCESS);
        assert_eq!(delete(other, key), CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
}
