//! What stream 0 means.
//!
//! A program compiled for per-thread default streams calls the `_ptsz` and `_ptds` forms of a
//! function, others call the plain form. The generated form maps stream handles in the arguments
//! itself (0 becomes `CU_STREAM_PER_THREAD`); functions that carry their stream in a structure, or
//! have none, run inside [`with_per_thread`]. An implementation therefore passes every stream
//! handle it is given, and a null handle where it is given none, through [`resolve`], and never
//! sees 0 afterwards.

use core::cell::Cell;
use cumux_abi::{CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, CUstream};

thread_local! {
    static PER_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Replaces the null handle by the default stream of the call in progress.
pub fn resolve(stream: CUstream) -> CUstream {
    if !stream.is_null() {
        stream
    } else if PER_THREAD.get() {
        CU_STREAM_PER_THREAD
    } else {
        CU_STREAM_LEGACY
    }
}

/// Replaces the null handle in an argument of a per-thread form.
pub(crate) fn per_thread(stream: CUstream) -> CUstream {
    if stream.is_null() { CU_STREAM_PER_THREAD } else { stream }
}

/// Runs a call in which stream 0 means the thread's own default stream.
pub(crate) fn with_per_thread<T>(body: impl FnOnce() -> T) -> T {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            PER_THREAD.set(self.0);
        }
    }
    let _restore = Restore(PER_THREAD.replace(true));
    body()
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr::null_mut;

    #[test]
    fn only_the_null_handle_changes_its_meaning() {
        let own = core::ptr::without_provenance_mut(0x7000);
        assert_eq!(resolve(null_mut()), CU_STREAM_LEGACY);
        assert_eq!(resolve(own), own);
        with_per_thread(|| {
            assert_eq!(resolve(null_mut()), CU_STREAM_PER_THREAD);
            assert_eq!(resolve(CU_STREAM_LEGACY), CU_STREAM_LEGACY);
            assert_eq!(resolve(own), own);
        });
        assert_eq!(resolve(null_mut()), CU_STREAM_LEGACY);
    }

    #[test]
    fn a_panic_restores_the_meaning() {
        let outcome = std::panic::catch_unwind(|| with_per_thread(|| panic!("expected by the test")));
        assert!(outcome.is_err());
        assert_eq!(resolve(null_mut()), CU_STREAM_LEGACY);
    }
}
