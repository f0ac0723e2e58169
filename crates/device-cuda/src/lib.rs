//! The real GPU: the device interface over NVIDIA's driver, loaded by absolute path.
//!
//! - One primary context serves all clients of the process. **A fault of one client breaks it for
//!   all** ([`cumux_device::Device::contains_faults`] is false): the suspects are told, the
//!   executor is replaced, and the others go on in its successor with the same memory.
//! - Device memory is made of extents behind descriptors, mapped at fixed addresses. Nothing comes
//!   from the driver's own allocators but the variables of modules.
//! - Clients' streams are virtual. Engine threads bind them to driver streams while they have work
//!   in flight. What is slow under the context's lock happens elsewhere.
//! - Addresses in copies, sets and value writes are checked for every client. Kernels are not
//!   isolated from other clients of the context.
//!
//! # Rooms
//!
//! Each uses only those below it.
//!
//! ```text
//! card      the device interface; opening and closing
//! engine    the thread: messages, the loop, ends of work, the loss of the context
//! issue     giving work to the driver: queues, plans, chains
//! track     who is done: fences, what is in flight, how long work takes
//! context   what lives in the context: memory, windows, partitions, modules, clients
//! quiet     waiting for a card on which no long kernel runs
//! driver    the driver's calls; the only room with unsafe code
//! fault     error codes, remedies, the loss, what clients are told of it
//! ```
//!
//! Beside them: `settings` and `polling` (what the environment can change), `counters`, `helpers`
//! (threads for what is slow), `mailbox` (messages for one thread), and [`survey`].
//!
//! # Locks
//!
//! A thread that holds a lock may take those further down, never those further up; what stands in
//! one line is never held together.
//!
//! ```text
//! 1  an image's turn (context/library)      Card::limits
//! 2  Gate::turn
//! 3  Card::clients
//! 4  Client::window
//! 5  Client: permissions, share, partitions, modules      PinnedWindow::turn
//! 6  Partitions::contexts                                 PinnedWindow::registered
//! 7  Partitions::floor
//! 8  Extents: maps, side_stream    ModuleLibrary: known, loading    Card: streams, variables
//!    LoadedModule::dynamic_shared    Gate::unused    Loss::inquest    driver: LOADED, REDIRECTION
//! 9  Mailbox::queue
//! ```
//!
//! Engines call the driver and the sink without holding any of them.
//!
//! The environment that the driver must find is set when it is first loaded: open the device before
//! starting threads of C code that read the environment.
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
pub use counters::Counters;
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
}

/// Opens the card of this name, with the settings of the environment. Ends of work are reported to
/// `sink`.
///
/// # Errors
/// A sentence with a remedy if there is no such card, or it cannot be used.
pub fn open(id: &str, sink: Arc<dyn Sink>) -> Result<Arc<dyn Device>, DeviceError> {
    Card::open(parse_id(id)?, sink, Settings::from_environment()?).map(|card| card as Arc<dyn Device>)
}

/// Facts of a card, without a context on it. This loads the driver into the process.
///
/// # Errors
/// As [`open`], but for what only a context shows.
pub fn facts(id: &str) -> Result<DeviceFacts, DeviceError> {
    survey::facts(parse_id(id)?)
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
