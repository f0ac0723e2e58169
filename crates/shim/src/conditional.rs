//! Whether this process has made conditions of graphs. From then on kernels are refused that only
//! NVIDIA's driver would understand (decision 0130); before, no handle of ours can reach them.

use crate::changes;
use std::sync::OnceLock;

static MADE: OnceLock<()> = OnceLock::new();

/// A condition is about to be made.
pub(crate) fn note_made() {
    if MADE.set(()).is_ok() {
        // Threads remember launches that are not allowed any more.
        changes::note();
    }
}

/// Whether any was made.
pub(crate) fn were_made() -> bool {
    MADE.get().is_some()
}
