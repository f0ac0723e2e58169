//! What a software GPU does for the clients of a dead predecessor.

use cumux_device::{ClientId, Device, Interrupted, Takeover, Textures};

use super::SoftwareGpu;
use crate::memory::worker::WorkerMemory;
use crate::progress::{layout, recover};
use crate::schedule::CardClient;

/// Textures are descriptions in the client's memory, which outlive this process: there is nothing
/// to make.
impl Textures for SoftwareGpu {}

impl Takeover for SoftwareGpu {
    fn marks_bytes(&self) -> usize {
        if self.capabilities().resumes_kernels { usize::try_from(layout::FILE_BYTES).unwrap_or(0) } else { 0 }
    }

    fn recover(&self, client: ClientId) -> Vec<Interrupted> {
        let (log, memory) = {
            let scheduler = self.card.scheduler.lock();
            match scheduler.clients.get(&client) {
                Some(CardClient { log: Some(log), memory, .. }) => (log.clone(), memory.clone()),
                _ => return Vec::new(),
            }
        };
        // Nothing of the client runs yet; this keeps its memory mapped meanwhile.
        let _maps = self.card.maps.read();
        let mut worker = WorkerMemory::default();
        worker.begin_slice(&memory, false);
        recover::undo_half_done_blocks(&log, &mut |address, bytes| worker.write(address, bytes).map_err(|(address, _)| address))
    }
}
