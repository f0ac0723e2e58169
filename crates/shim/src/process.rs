//! What is true of this process as a whole, and the first line of every implementation.
//!
//! [`enter`] is for calls that need a healthy service, [`find_connection`] for calls that are
//! answered even when it has gone wrong. Both need that the program has called `cuInit`.
#![expect(clippy::disallowed_types, reason = "whether this process was forked is known without a lock")]

use crate::changes;
use crate::connection::{self, Connection};
use crate::ffi::{Try, error};
use crate::sync::lock;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

/// Set in a forked child: nothing of the parent's connection may be used. An atomic, because the
/// handler that sets it runs between fork and exec, where no lock may be taken.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Set by `cuInit`.
static INITIALIZED: OnceLock<()> = OnceLock::new();

/// The last number that was handed out.
static NUMBERS: Mutex<u64> = Mutex::new(0);

thread_local! {
    /// Set on the thread that runs host callbacks: CUDA calls are forbidden there.
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Remembers that this process is a forked child of a served one. Does nothing that is forbidden
/// between fork and exec.
pub(crate) fn mark_forked_child() {
    FORKED.store(true, Ordering::Release);
    changes::note();
}

/// True in a forked child of a served process.
pub(crate) fn is_forked_child() -> bool {
    FORKED.load(Ordering::Acquire)
}

/// Marks the calling thread as the one that runs host callbacks.
pub(crate) fn mark_callback_thread() {
    IN_CALLBACK.set(true);
}

/// Remembers that the program has called `cuInit`.
pub(crate) fn mark_initialized() {
    let _ = INITIALIZED.set(());
}

/// A number that nobody else in this process has: ids of contexts, streams, allocations, modules.
pub(crate) fn new_number() -> u64 {
    let mut numbers = lock(&NUMBERS);
    *numbers += 1;
    *numbers
}

/// The connection, for calls that are answered even when it has gone wrong.
///
/// # Errors
/// NOT_INITIALIZED before `cuInit`.
pub(crate) fn find_connection() -> Try<&'static Connection> {
    connection::find_served().filter(|_| INITIALIZED.get().is_some()).ok_or(error::NOT_INITIALIZED)
}

/// The connection, for calls that need it healthy.
///
/// # Errors
/// NOT_INITIALIZED before `cuInit`, NOT_PERMITTED inside a host callback, the sticky error of a
/// client that faulted, MPS_RPC_FAILURE when the service is gone.
pub(crate) fn enter() -> Try<&'static Connection> {
    let session = find_connection()?;
    if IN_CALLBACK.get() {
        return Err(error::NOT_PERMITTED);
    }
    session.health()?;
    Ok(session)
}
