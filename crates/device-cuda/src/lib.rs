//! The real GPU: the device interface over NVIDIA's driver, loaded by absolute path.
//!
//! - One primary context for all clients of the process. **A fault of one client breaks it for all** ([`cumux_device::Device::contains_faults`] is
//!   false): the suspects are told, the executor is replaced, and the others go on in its successor with the same memory.
//! - Device memory is made of extents behind descriptors, mapped at fixed addresses; nothing comes from the driver's own allocators
//!   but the variables of modules.
//! - Clients' streams are virtual; [`engine`] threads bind them to driver streams while they have work in flight. What is slow under the context's
//!   lock happens elsewhere.
//! - Addresses in copies, sets and value writes are checked for every client. Kernels are not isolated from other clients of the context.
//!
//! All unsafe code is in `driver.rs`. The environment that the driver must find is set there when it is first loaded: open the device
//! before starting threads of C code that read the environment.
#![deny(unsafe_code)]

mod card;
mod coalesce;
mod context;
mod counters;
mod dispatch;
#[allow(unsafe_code)]
mod driver;
mod engine;
mod fault;
mod helpers;
mod mailbox;
mod polling;
mod quiet;
mod settings;
mod shared;
mod slots;
pub mod survey;
mod work;

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

/// # Errors
/// A sentence with a remedy when there is no such card, or it cannot be used.
pub fn open(id: &str, sink: Arc<dyn Sink>) -> Result<Arc<dyn Device>, DeviceError> {
    Card::open(ordinal(id)?, sink, Settings::from_environment()?).map(|card| card as Arc<dyn Device>)
}

/// Facts of a card without a context on it. It loads the driver into this process.
///
/// # Errors
/// As [`open`], but for what only a context shows.
pub fn facts(id: &str) -> Result<DeviceFacts, DeviceError> {
    survey::facts(ordinal(id)?)
}

fn ordinal(id: &str) -> Result<u32, DeviceError> {
    let number = id.strip_prefix("cuda:").and_then(|n| n.parse().ok());
    number.ok_or_else(|| DeviceError::Invalid(format!("{id:?} names no GPU; write cuda:0, cuda:1 and so on")))
}

#[cfg(test)]
mod tests {
    #[test]
    fn cards_are_named_by_number() {
        assert_eq!(super::ordinal("cuda:3"), Ok(3));
        for wrong in ["cuda", "cuda:", "cuda:x", "sim:h200", "3"] {
            assert!(super::ordinal(wrong).is_err_and(|e| e.to_string().contains("cuda:0")));
        }
    }
}
