//! Served, bypassed, or no device: decided once, in `cuInit`, or in the first exported call of any
//! kind where no daemon listens.
//!
//! ```text
//!   cuInit ──▶ choose ──┬─ daemon of cumux in the pipe directory ──▶ Served
//!                       ├─ daemon that refuses this client ────────▶ Failed
//!                       └─ none ─┬─ real driver found ─────────────▶ Bypassed
//!                                └─ none ──────────────────────────▶ NoDevice
//! ```
//!
//! - Before that, where a daemon listens, the program is no client of it: functions that need no
//!   device are answered, and all others answer 3, as the manual has it. So a program may ask for
//!   the driver's version, fork, and use CUDA in the child (recorded on an H200, driver 580;
//!   NVIDIA's NVML does it when it is initialised).
//! - `Served`: calls go to the connection; in a forked child every call answers 3.
//! - `Failed`: every call answers the daemon's code.
//! - `Bypassed`: the table leads straight into the real driver.
//! - `NoDevice`: every call answers 100.
//!
//! Invariants: the decision is never taken twice and never changes; `cuInit` of other threads waits
//! for it; a call that the deciding thread itself causes (a library's constructor, say) is answered
//! NOT_INITIALIZED and does not wait. Nothing runs when the library is merely loaded.

pub(crate) mod table;

use crate::driver::Driver;
use crate::{connection, objects, process};
use core::cell::Cell;
use core::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use table::Filling;

/// What the daemon said, as far as the decision cares.
enum Verdict {
    Served,
    /// Nobody serves this process: why, for the log.
    NoDaemon(String),
    /// A daemon is there and will not serve this process: a result code, and why.
    Refused(u32, String),
}

/// How the calls of this process are answered.
#[derive(Debug)]
pub(crate) enum Decision {
    Served,
    Bypassed(Driver),
    NoDevice,
    Failed(u32),
}

static DECISION: OnceLock<Decision> = OnceLock::new();

/// A thread has begun to take it.
static BEGUN: OnceLock<()> = OnceLock::new();

thread_local! {
    static DECIDING: Cell<bool> = const { Cell::new(false) };
}

/// Called by the first-call thunk: takes the decision if need be and says where a name leads now.
/// A name that leads somewhere for this call alone keeps the thunk.
pub(crate) extern "C" fn resolve(index: u32) -> *mut c_void {
    if DECIDING.get() {
        return table::not_yet();
    }
    let outcome = catch_unwind(|| {
        let is_early = DECISION.get().is_none() && !table::is_init(index as usize);
        if is_early && connection::is_awaited() {
            return table::early(index as usize);
        }
        ensure();
        table::current(index as usize)
    });
    outcome.unwrap_or_else(|_| table::not_yet())
}

/// Takes the decision now, if it is not taken yet.
fn ensure() -> &'static Decision {
    DECISION.get_or_init(|| {
        let _ = BEGUN.set(());
        DECIDING.set(true);
        // Before anything else, so that a fork in the middle of a decision gives a stranger and not
        // a child that waits for ever.
        watch_forks();
        let decision = catch_unwind(AssertUnwindSafe(|| choose(ask_daemon, crate::driver::find))).unwrap_or(Decision::Failed(999));
        fill(&decision);
        DECIDING.set(false);
        decision
    })
}

/// Whether a thread has begun to take the decision, or it can no longer be taken.
pub(crate) fn has_begun() -> bool {
    BEGUN.get().is_some() || process::is_forked_child()
}

fn fill(decision: &Decision) {
    if process::is_forked_child() {
        return;
    }
    match decision {
        Decision::Served => table::fill(&Filling::Served),
        Decision::NoDevice => table::fill(&Filling::NoDevice),
        Decision::Failed(code) => table::fill(&Filling::Failed(*code)),
        Decision::Bypassed(driver) => table::fill(&Filling::Bypassed(&|name| driver.symbol(name))),
    }
}

/// The rules. The driver is looked for only when nobody serves.
fn choose(ask: impl FnOnce() -> Verdict, driver: impl FnOnce() -> Option<Driver>) -> Decision {
    match ask() {
        Verdict::Served => Decision::Served,
        Verdict::Refused(code, why) => {
            crate::log::tell(format_args!("this program is not served: {why}"));
            Decision::Failed(code)
        }
        Verdict::NoDaemon(why) => match driver() {
            Some(driver) => {
                crate::log::line(format_args!("not served, {why}: calls go to the real driver"));
                Decision::Bypassed(driver)
            }
            None => {
                crate::log::tell(format_args!("this program is not served: {why}, and there is no real driver; its calls answer CUDA_ERROR_NO_DEVICE"));
                Decision::NoDevice
            }
        },
    }
}

/// Asks the daemon of the pipe directory; an empty or missing one, or one without our daemon, means
/// that nobody serves.
fn ask_daemon() -> Verdict {
    match connection::connect() {
        connection::Verdict::Served => {
            if let Some(session) = connection::find_served() {
                objects::hand_down_hooks(session);
            }
            Verdict::Served
        }
        connection::Verdict::Bypass(why) => Verdict::NoDaemon(why),
        connection::Verdict::Refused { result, why } => Verdict::Refused(result.0, why),
    }
}

fn watch_forks() {
    extern "C" fn child() {
        // A bypassed program's child is the real driver's business.
        if matches!(DECISION.get(), None | Some(Decision::Served)) {
            process::mark_forked_child();
            table::fill(&Filling::Stranger);
        }
    }
    // SAFETY: the handler only stores to atomics, which is allowed between fork and exec.
    let outcome = unsafe { libc::pthread_atfork(None, None, Some(child)) };
    if outcome != 0 {
        crate::log::line(format_args!("cannot watch for forks; a forked child must not use CUDA"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_serves_or_refuses_has_the_last_word() {
        let unneeded = || -> Option<Driver> { panic!("the driver must not be looked for") };
        assert!(matches!(choose(|| Verdict::Served, unneeded), Decision::Served));
        let refuse = || Verdict::Refused(808, "too many clients".to_owned());
        assert!(matches!(choose(refuse, unneeded), Decision::Failed(808)));
    }

    #[test]
    fn with_neither_daemon_nor_driver_there_is_no_device() {
        let nobody = || Verdict::NoDaemon("nobody listens".to_owned());
        assert!(matches!(choose(nobody, || None), Decision::NoDevice));
    }

    #[test]
    fn a_call_made_by_the_deciding_thread_is_answered_and_does_not_wait() {
        DECIDING.set(true);
        let answered = resolve(0);
        DECIDING.set(false);
        // SAFETY: while deciding, every entry is a function that takes no notice of its arguments
        // and returns a result code.
        let answer = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> u32>(answered) };
        assert_eq!(answer(), 3, "CUDA_ERROR_NOT_INITIALIZED");
    }
}
