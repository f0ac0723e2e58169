//! A kernel faults: what is noted, and what is held.

use std::time::Instant;

use cumux_device::{ClientId, Fault};

use super::super::client::Task;
use super::super::scheduler::Scheduler;
use super::{HeldPiece, Phase};

impl Scheduler {
    /// A kernel of this client has faulted. The watcher has to be woken.
    pub(in super::super) fn note_fault(&mut self, client: ClientId, fault: Fault) {
        let Some(breakage) = self.breakage.as_mut().filter(|breakage| !breakage.is_over()) else { return };
        if !breakage.is_culprit(client) {
            tracing::info!(client, "a kernel has faulted: {}", fault.text);
            breakage.culprits.push((client, fault));
        }
        if breakage.phase == Phase::Whole {
            breakage.phase = Phase::Faulting(Instant::now() + breakage.timing.announced_after);
        }
    }

    /// Holds the piece of a kernel that a worker has brought back with a fault: the kernel does not
    /// end.
    pub(in super::super) fn hold_piece(&mut self, client: ClientId, task: u64) {
        let running = self.clients.get_mut(&client).and_then(|client| client.tasks.get_mut(&task));
        if let (Some(Task::Kernel(kernel)), Some(breakage)) = (running.map(|running| &mut running.task), &mut self.breakage) {
            kernel.running += 1;
            breakage.held.push(HeldPiece { client, task });
        }
    }
}
