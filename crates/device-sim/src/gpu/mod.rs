//! The device contract, a file for each of its traits, on top of memory, progress log and
//! scheduler.

mod clients;
mod memory;
mod modules;
mod partitions;
mod queues;
mod takeover;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread::JoinHandle;

use cumux_device::{ClientId, Device, DeviceFacts, ImageHash, Peer};
use parking_lot::Mutex;

use crate::memory::client::ClientMemory;
use crate::memory::expected::ExpectedExtents;
use crate::ordinals::Ordinal;
use crate::program::Program;
use crate::schedule::{DevicePhase, SoftwareCard};

/// One software GPU. Dropping it stops all work without further reports.
pub struct SoftwareGpu {
    card: Arc<SoftwareCard>,
    /// Held for its drop: the number is free again then.
    _ordinal: Ordinal,
    workers: Vec<JoinHandle<()>>,
    /// Programs that were compiled before their clients came, by their numbers. Locked alone.
    preloaded: Mutex<Preloaded>,
    /// Taken before the mappings.
    expected: Mutex<ExpectedExtents>,
}

/// Programs by number. No number is used again: who has one may drop it late.
#[derive(Default)]
struct Preloaded {
    last: u64,
    programs: BTreeMap<u64, (ImageHash, Arc<Program>)>,
    /// The kernels of them whose code would be on a card by now.
    kernels: BTreeMap<u64, BTreeSet<u32>>,
}

impl Preloaded {
    fn find(&self, image: ImageHash) -> Option<Arc<Program>> {
        self.programs.values().find(|(hash, _)| *hash == image).map(|(_, program)| program.clone())
    }
}

impl std::fmt::Debug for SoftwareGpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SoftwareGpu").field("id", &self.card.facts.id).field("workers", &self.workers.len()).finish_non_exhaustive()
    }
}

impl Drop for SoftwareGpu {
    fn drop(&mut self) {
        self.card.scheduler.lock().phase = DevicePhase::ShuttingDown;
        self.card.work.notify_all();
        self.card.breaking.notify_all();
        for worker in self.workers.drain(..) {
            // The last reference may have been held by a sink that a worker was calling.
            if worker.thread().id() != std::thread::current().id() && worker.join().is_err() {
                tracing::error!("a worker of the software GPU had panicked");
            }
        }
    }
}

impl SoftwareGpu {
    pub(crate) fn new(card: Arc<SoftwareCard>, ordinal: Ordinal) -> Self {
        SoftwareGpu { card, _ordinal: ordinal, workers: Vec::new(), preloaded: Mutex::default(), expected: Mutex::default() }
    }

    /// Notes a worker thread, which ends when the device is dropped.
    pub(crate) fn add_worker(&mut self, worker: JoinHandle<()>) {
        self.workers.push(worker);
    }

    fn client_memory(&self, client: ClientId) -> Option<Arc<ClientMemory>> {
        self.card.scheduler.lock().clients.get(&client).map(|c| c.memory.clone())
    }
}

impl Device for SoftwareGpu {
    fn facts(&self) -> &DeviceFacts {
        &self.card.facts
    }

    /// All software GPUs of a process are memory of the same machine.
    fn reach(&self, other: &DeviceFacts) -> Option<Peer> {
        other.id.starts_with("sim:").then_some(Peer { uuid: other.uuid, rank: 0, atomics: true, arrays: true })
    }
}
