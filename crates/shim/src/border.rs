//! The one place where Rust ends and C begins: no panic passes it.
//!
//! Every generated wrapper runs its implementation inside [`call`]. An implementation is a plain
//! `pub unsafe fn` with the name and the argument types of the driver's function; it answers a
//! `CUresult` or a `Result<(), CUresult>`.

use cumux_abi::CUresult;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What an implementation may answer.
pub trait Outcome {
    /// The result that the C caller gets.
    fn code(self) -> CUresult;
}

impl Outcome for CUresult {
    fn code(self) -> CUresult {
        self
    }
}

impl Outcome for Result<(), CUresult> {
    fn code(self) -> CUresult {
        match self {
            Ok(()) => CUresult::CUDA_SUCCESS,
            Err(code) => code,
        }
    }
}

/// Runs an implementation; a panic becomes `CUDA_ERROR_UNKNOWN` and a line in the log.
#[inline]
pub fn call<O: Outcome>(name: &'static str, body: impl FnOnce() -> O) -> CUresult {
    // A half-changed object after a panic is the worst that can follow; the process it could
    // confuse is the program's own.
    match catch_unwind(AssertUnwindSafe(|| body().code())) {
        Ok(code) => {
            if code != CUresult::CUDA_SUCCESS && code != CUresult::CUDA_ERROR_NOT_READY {
                failed(name, code);
            }
            code
        }
        Err(_) => panicked(name),
    }
}

/// A call that fails is a line in the log: what a program that stops somewhere had asked for. Where
/// the reason is known, the program's user is told.
#[cold]
fn failed(name: &'static str, code: CUresult) {
    match crate::log::reason(code) {
        Some(why) if code == CUresult::CUDA_ERROR_NOT_SUPPORTED => crate::log::tell(format_args!("{name}: not supported: {why}")),
        Some(why) => crate::log::tell(format_args!("{name}: {why}")),
        None => {
            let code_name = cumux_abi::result::name(code.0).map_or("unknown", |name| name.to_str().unwrap_or_default());
            crate::messages::note(&format!("Returning {} ({code_name}) from {name}", code.0));
            crate::log::line(format_args!("{name} answered {}", code.0));
        }
    }
}

/// Like [`call`], with stream 0 meaning the thread's own default stream during the call.
#[inline]
pub fn call_per_thread<O: Outcome>(name: &'static str, body: impl FnOnce() -> O) -> CUresult {
    call(name, || crate::default_stream::with_per_thread(body))
}

#[cold]
fn panicked(name: &'static str) -> CUresult {
    // Should the log panic too, the answer is still an answer.
    let _ = catch_unwind(|| crate::log::line(format_args!("internal error in {name}; answered CUDA_ERROR_UNKNOWN")));
    CUresult::CUDA_ERROR_UNKNOWN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_unknown() {
        let code = call("test", || -> CUresult { panic!("expected by the test") });
        assert_eq!(code, CUresult::CUDA_ERROR_UNKNOWN);
    }

    #[test]
    fn results_become_codes() {
        assert_eq!(call("test", || Ok(())), CUresult::CUDA_SUCCESS);
        assert_eq!(call("test", || Err(CUresult(400))), CUresult(400));
        assert_eq!(call("test", || CUresult(600)), CUresult(600));
    }
}
