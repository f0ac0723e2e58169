//! Served, bypassed, or no device: decided once, in the first exported call of any kind.
//!
//! ```text
//!   first call ──▶ choose ──┬─ daemon of cumux in the pipe directory ──▶ Served    (forked child: a stranger, every call answers 3)
//!                           ├─ daemon that refuses this client ────────▶ Failed    (every call answers its code)
//!                           └─ none ─┬─ real driver found ─────────────▶ Bypassed  (the table leads straight into it)
//!                                    └─ none ──────────────────────────▶ NoDevice  (every call answers 100)
//! ```
//!
//! Invariants: the decision is never taken twice and never changes; other threads wait for it; a call that the deciding thread itself causes
//! (a library's constructor, say) is answered NOT_INITIALIZED and does not wait. Nothing runs when the library is merely loaded.

use crate::driver::Driver;
use crate::table::{self, Filling};
use core::cell::Cell;
use core::ffi::c_void;
use std::ffi::{OsStr, OsString};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

const DEFAULT_PIPE_DIRECTORY: &str = "/tmp/nvidia-mps";

/// What the daemon said, as far as the decision cares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A session is open.
    Served,
    /// No daemon of cumux listens there.
    NoDaemon,
    /// A daemon is there and will not serve this process: a result code, and why.
    Refused(u32, String),
}

pub(crate) enum Decision {
    Served,
    Bypassed(Driver),
    NoDevice,
    Failed(u32),
}

static DECISION: OnceLock<Decision> = OnceLock::new();

/// Set in a forked child: nothing of the parent's session may be used.
static STRANGER: AtomicBool = AtomicBool::new(false);

thread_local! {
    static DECIDING: Cell<bool> = const { Cell::new(false) };
}

/// Called by the first-call thunk: takes the decision if need be and says where a name leads now.
pub(crate) extern "C" fn resolve(index: u32) -> *mut c_void {
    if DECIDING.get() {
        return table::not_yet();
    }
    let outcome = catch_unwind(|| {
        ensure();
        table::current(index as usize)
    });
    outcome.unwrap_or_else(|_| table::not_yet())
}

/// Takes the decision now, if it is not taken yet.
fn ensure() -> &'static Decision {
    DECISION.get_or_init(|| {
        DECIDING.set(true);
        // Before anything else, so that a fork in the middle of a decision gives a stranger and not a child that waits for ever.
        watch_forks();
        let decision = catch_unwind(AssertUnwindSafe(|| {
            choose(
                std::env::var_os("CUDA_MPS_PIPE_DIRECTORY"),
                ask_daemon,
                crate::driver::find,
            )
        }))
        .unwrap_or(Decision::Failed(999));
        fill(&decision);
        DECIDING.set(false);
        decision
    })
}

fn fill(decision: &Decision) {
    if STRANGER.load(Ordering::Acquire) {
        return;
    }
    match decision {
        Decision::Served => table::fill(&Filling::Served),
        Decision::NoDevice => table::fill(&Filling::NoDevice),
        Decision::Failed(code) => table::fill(&Filling::Failed(*code)),
        Decision::Bypassed(driver) => table::fill(&Filling::Bypassed(&|name| driver.symbol(name))),
    }
}

/// The rules. The daemon is asked only where one can be; the driver is looked for only when it is needed.
pub(crate) fn choose(
    pipe_directory: Option<OsString>,
    ask: impl FnOnce(&Path) -> Verdict,
    driver: impl FnOnce() -> Option<Driver>,
) -> Decision {
    let verdict = match pipe_path(pipe_directory.as_deref()) {
        Some(path) if path.is_dir() => ask(&path),
        _ => Verdict::NoDaemon,
    };
    match verdict {
        Verdict::Served => Decision::Served,
        Verdict::Refused(code, reason) => {
            crate::log::line(format_args!("not served: {reason}"));
            Decision::Failed(code)
        }
        Verdict::NoDaemon => driver().map_or_else(
            || {
                crate::log::line(format_args!(
                    "no daemon and no driver: answering CUDA_ERROR_NO_DEVICE"
                ));
                Decision::NoDevice
            },
            Decision::Bypassed,
        ),
    }
}

/// Where a daemon would be; `None` when the variable is set and empty, which asks for a bypass.
fn pipe_path(variable: Option<&OsStr>) -> Option<PathBuf> {
    match variable {
        None => Some(PathBuf::from(DEFAULT_PIPE_DIRECTORY)),
        Some(value) if value.is_empty() => None,
        Some(value) => Some(PathBuf::from(value)),
    }
}

/// The daemon's answer to this process.
fn ask_daemon(_pipe_directory: &Path) -> Verdict {
    Verdict::NoDaemon
}

/// True when calls are answered by a session of this very process.
pub(crate) fn is_served() -> bool {
    matches!(DECISION.get(), Some(Decision::Served)) && !STRANGER.load(Ordering::Acquire)
}

fn watch_forks() {
    extern "C" fn child() {
        // A bypassed program's child is the real driver's business.
        if matches!(DECISION.get(), None | Some(Decision::Served)) {
            STRANGER.store(true, Ordering::Release);
            table::fill(&Filling::Stranger);
        }
    }
    // SAFETY: the handler only stores to atomics, which is allowed between fork and exec.
    let outcome = unsafe { libc::pthread_atfork(None, None, Some(child)) };
    if outcome != 0 {
        crate::log::line(format_args!(
            "cannot watch for forks; a forked child must not use CUDA"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_driver() -> Option<Driver> {
        None
    }

    fn never(_: &Path) -> Verdict {
        panic!("the daemon must not be asked")
    }

    #[test]
    fn an_empty_variable_bypasses_without_asking() {
        assert!(matches!(
            choose(Some(OsString::new()), never, no_driver),
            Decision::NoDevice
        ));
    }

    #[test]
    fn a_missing_directory_bypasses_without_asking() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let missing = folder.path().join("nobody").into_os_string();
        assert!(matches!(
            choose(Some(missing), never, no_driver),
            Decision::NoDevice
        ));
    }

    #[test]
    fn a_daemon_is_asked_in_its_directory() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let pipe = Some(folder.path().as_os_str().to_owned());
        let ask = |path: &Path| {
            assert_eq!(path, folder.path());
            Verdict::Served
        };
        let unneeded = || -> Option<Driver> { panic!("the driver must not be looked for") };
        assert!(matches!(
            choose(pipe.clone(), ask, unneeded),
            Decision::Served
        ));
        let refuse = |_: &Path| Verdict::Refused(808, "too many clients".to_owned());
        assert!(matches!(
            choose(pipe.clone(), refuse, unneeded),
            Decision::Failed(808)
        ));
        assert!(matches!(
            choose(pipe, |_| Verdict::NoDaemon, no_driver),
            Decision::NoDevice
        ));
    }

    #[test]
    fn the_default_directory_is_nvidias() {
        assert_eq!(pipe_path(None), Some(PathBuf::from("/tmp/nvidia-mps")));
        assert_eq!(pipe_path(Some(OsStr::new(""))), None);
        assert_eq!(
            pipe_path(Some(OsStr::new("/run/x"))),
            Some(PathBuf::from("/run/x"))
        );
    }

    #[test]
    fn a_call_made_by_the_deciding_thread_is_answered_and_does_not_wait() {
        DECIDING.set(true);
        assert_eq!(resolve(0), table::not_yet());
        DECIDING.set(false);
    }
}
