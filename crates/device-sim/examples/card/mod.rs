//! What the examples that drive a whole card have in common.

use cumux_device::{Channel, ClientId, DeviceError, GlobalsAllocator, Outcome, Sink, StreamId};
use std::os::fd::OwnedFd;
use std::sync::mpsc::Sender;

/// Passes each report on.
pub struct Waker(pub Sender<Outcome>);

impl Sink for Waker {
    fn retired(&self, _: ClientId, _: StreamId, _: u64, outcome: Outcome) {
        // Nobody listens any more when the figures are printed.
        let _ = self.0.send(outcome);
    }
    fn text(&self, _: ClientId, _: Channel, _: &[u8]) {}
}

/// For images without variables.
pub struct Nowhere;

impl GlobalsAllocator for Nowhere {
    fn variable(&mut self, name: &str, _: u64, _: u64, _: bool) -> Result<(u64, bool), DeviceError> {
        Err(DeviceError::Invalid(format!("no variable {name} expected")))
    }
}

/// A file of this many bytes for a progress log, as a server makes it.
///
/// # Errors
/// The system's error.
pub fn progress_log_file(bytes: usize) -> Result<OwnedFd, rustix::io::Errno> {
    use rustix::fs::{MemfdFlags, SealFlags};
    let file = rustix::fs::memfd_create("progress", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&file, bytes as u64)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK)?;
    Ok(file)
}
