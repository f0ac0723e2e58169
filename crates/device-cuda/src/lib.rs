//! The real GPU: the device interface over NVIDIA's driver, loaded by absolute path.
//!
//! - One primary context serves all clients of the process. **A fault of one client breaks it for
//!   all** ([`cumux_device::Capabilities::contains_faults`] is false). What
//!   others have given the card is completed, the culprit gets its error, and all other clients go
//!   on in the next executor with the same memory (decision 0112).
//! - Device memory is made of extents behind descriptors, mapped at fixed addresses. Variables of
//!   modules lie there, too: images are rewritten for it (decision 0113). What cannot be placed
//!   lies where the driver puts it, and its client does not outlive the executor.
//! - Clients' streams are virtual. An engine thread binds a client's stream to a driver stream
//!   while the client has work in flight in it. Slow calls of the driver are made on other threads.
//! - The addresses in every client's copies, sets and value writes are checked. Kernels are not
//!   isolated from other clients of the context.
//! - Several cards of one process are separate but for what the driver has once for a process: its
//!   address space, pinned host memory, standard output, and the announcement of a fault.
//! - The driver reads its environment when it is first loaded, and this crate sets some variables
//!   just before. Open the device before starting threads of C code that read the environment.
//!
//! # Modules
//!
//! Each module uses only those below it.
//!
//! ```text
//! card      the device interface; opening and closing a card
//! engine    the thread that serves clients: messages, main loop, reports, loss of the context
//! issue     submitting work to the driver: queues, plans, chains
//! track     work in flight: fences, completion, estimates of durations
//! context   what lives in the context: memory, windows, partitions, modules, clients
//! quiet     waiting for a moment at which no long kernel runs
//! driver    calls of the driver; the only module with unsafe code
//! fault     error codes, remedies, loss of the context, the errors that clients get
//! ```
//!
//! Any of them may use the small modules beside them: `settings` and `polling` (what the
//! environment can change), `counters`, `helpers` (threads for slow calls) and `mailbox` (messages
//! for one thread). [`survey`] examines cards without opening them.
//!
//! # Locks
//!
//! A thread that holds a lock may take locks with higher numbers, and no others.
//!
//! ```text
//! 1  ModuleLibrary: the lock of one image    Card::limits
//! 2  Gate::requests, then Gate::stayers
//! 3  Card::clients
//! 4  Client::window    ExpectedWindows
//! 5  Client: permissions, share, partitions, modules, textures, constants
//!    PinnedWindow::registration
//! 6  Partitions::contexts                               PinnedWindow::registered
//! 7  Partitions::sm_allocator
//! 8  Extents: maps    SideStream: taken    ModuleLibrary: known, loading
//!    Card: streams, variables    LoadedModule::attributes    Gate::unused    Loss::inquest
//!    Discards: waiting    Extents: zeros
//!    track: TURNS    Assignments    StandingWork    driver: LOADED, REDIRECTION, FIRST, MadeOnce
//!    PinnedWindow: WINDOWS    fault: CARDS    DueChains    PreparedChains    Motion
//!    Client: recipes
//! 9  Mailbox::queue    Extents: RESERVATIONS    Driver: submission
//! ```
//!
//! An engine thread holds none of them while it calls the sink, and none but
//! `Driver: submission` while it calls the driver.
#![deny(unsafe_code)]
#![warn(missing_docs, missing_debug_implementations)]

mod card;
mod context;
mod counters;
#[allow(unsafe_code)]
mod driver;
mod engine;
mod fault;
mod helpers;
mod issue;
mod mailbox;
mod polling;
mod quiet;
mod settings;
pub mod survey;
mod track;

pub use card::Card;
pub use counters::{Counters, Submitted};
pub use settings::Settings;

use cumux_device::{Device, DeviceError, DeviceFacts, Open, Sink};
use std::sync::Arc;

/// Opens `cuda:0`, `cuda:1` and so on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cuda;

impl Open for Cuda {
    fn open(&self, id: &str, sink: Arc<dyn Sink>) -> Result<Arc<dyn Device>, DeviceError> {
        open(id, sink)
    }

    fn open_all(&self, wanted: Vec<(&str, Arc<dyn Sink>)>) -> Vec<Result<Arc<dyn Device>, DeviceError>> {
        // Before there are threads: the driver's words are listened to, and it is loaded, which
        // changes the environment. Where that fails, each card says why.
        if Settings::from_environment(wanted.len()).is_ok_and(|settings| settings.core_dumps) {
            let _ = driver::listen_to_driver(|_| {});
        }
        let _ = survey::cards();
        let count = wanted.len();
        cumux_device::open_side_by_side(wanted, |(id, sink)| open_one_of(id, sink, count))
    }
}

/// Opens the card of this name, with the settings of the environment. The card reports completed
/// work to `sink`.
///
/// # Errors
/// A sentence with a remedy if there is no such card, or it cannot be used.
pub fn open(id: &str, sink: Arc<dyn Sink>) -> Result<Arc<dyn Device>, DeviceError> {
    open_one_of(id, sink, 1)
}

/// Opens one of the process's so many cards.
fn open_one_of(id: &str, sink: Arc<dyn Sink>, cards: usize) -> Result<Arc<dyn Device>, DeviceError> {
    Card::open(parse_id(id)?, sink, Settings::from_environment(cards)?).map(|card| card as Arc<dyn Device>)
}

/// Facts of a card, without a context on it. This loads the driver into the process.
///
/// # Errors
/// As [`open`], except for errors that show only when a context is made.
pub fn facts(id: &str) -> Result<DeviceFacts, DeviceError> {
    survey::facts(parse_id(id)?)
}

/// Facts of a card that the driver shows, whether it can be used or not.
#[must_use]
pub fn shown(id: &str) -> Option<DeviceFacts> {
    survey::shown(parse_id(id).ok()?)
}

/// The ordinal in `cuda:<ordinal>`.
fn parse_id(id: &str) -> Result<u32, DeviceError> {
    let ordinal = id.strip_prefix("cuda:").and_then(|n| n.parse().ok());
    ordinal.ok_or_else(|| DeviceError::Invalid(format!("{id:?} names no GPU; write cuda:0, cuda:1 and so on")))
}

#[cfg(test)]
mod tests {
    #[test]
    fn cards_are_named_by_number() {
        assert_eq!(super::parse_id("cuda:3"), Ok(3));
        for wrong in ["cuda", "cuda:", "cuda:x", "sim:h200", "3"] {
            assert!(super::parse_id(wrong).is_err_and(|e| e.to_string().contains("cuda:0")));
        }
    }
}
