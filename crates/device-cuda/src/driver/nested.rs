//! Tests without a card: the driver is cumux's own library, which runs everything on a software
//! GPU.
//!
//! `CUMUX_NESTED` holds the pipe directory of that cumux. What of its library is not as
//! NVIDIA's, and is done otherwise then:
//!
//! - It is refused as a driver, because a service that is its own client waits for itself.
//! - Memory that processes share cannot be pinned. Copies do not need that; kernels cannot reach
//!   such memory, so no copy from or to it becomes a kernel.
//! - The card is divided among clients only where `CUMUX_NESTED_DIVIDES` is set: finding out which
//!   multiprocessors there are takes a card no time, and a software GPU seconds.
//! - Making a graph waits for every kernel that runs, always and not now and then (`graph.rs`).

use std::ffi::OsString;
use std::sync::OnceLock;

/// The variable with the other cumux's pipe directory.
const VARIABLE: &str = "CUMUX_NESTED";

/// The variable with which such a driver's card is divided.
const DIVIDES: &str = "CUMUX_NESTED_DIVIDES";

/// The pipe directory of the cumux whose library is the driver; `None` on a real card.
pub(super) fn pipe_directory() -> Option<&'static OsString> {
    static DIRECTORY: OnceLock<Option<OsString>> = OnceLock::new();
    DIRECTORY.get_or_init(|| std::env::var_os(VARIABLE).filter(|directory| !directory.is_empty())).as_ref()
}

/// True if this driver's card is not divided among clients.
pub(super) fn is_whole() -> bool {
    is_nested() && std::env::var_os(DIVIDES).is_none()
}

/// True if the driver is cumux's own library.
pub(super) fn is_nested() -> bool {
    pipe_directory().is_some()
}
