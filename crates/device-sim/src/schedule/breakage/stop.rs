//! A kernel faults, or a client is stopped: what is held, and what is reported at once.

use std::time::Instant;

use cumux_device::{ClientId, Fault};

use super::super::client::{ClientEnd, Reporting, Task};
use super::super::report::{Report, outcome_of};
use super::super::scheduler::Scheduler;
use super::{HeldPiece, Phase};

impl Scheduler {
    /// Whether the card breaks at a fault, and cannot stop the kernels of one client alone.
    pub(crate) fn breaks(&self) -> bool {
        self.breakage.is_some()
    }

    /// Whether nothing begins any more.
    pub(in super::super) fn is_halted(&self) -> bool {
        self.breakage.as_ref().is_some_and(|breakage| breakage.is_halted())
    }

    /// Whether workers may take nothing at all.
    pub(in super::super) fn is_over(&self) -> bool {
        self.breakage.as_ref().is_some_and(|breakage| breakage.is_over())
    }

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

    /// Ends a client whose running blocks cannot be stopped: reports all its work now, and takes
    /// back what has not begun. While nothing begins any more, the reports are left to the settling.
    pub(in super::super) fn end_unstoppable_client(&mut self, id: ClientId, end: ClientEnd) {
        let halted = self.is_halted();
        let Some(client) = self.clients.get_mut(&id) else { return };
        if client.end.is_some() {
            return;
        }
        let outcome = outcome_of(&end);
        client.end = Some(end);
        if halted {
            return;
        }
        let mut over = Vec::new();
        for (number, running) in &mut client.tasks {
            match &mut running.task {
                Task::Kernel(kernel) if kernel.started.is_some() => {
                    running.reporting = Reporting::Done;
                    let (stream, token) = (running.stream, running.token);
                    self.reports.push_back(Report { client: id, stream, token, outcome: outcome.clone(), progress: None });
                }
                Task::Kernel(_) => over.push(*number),
                Task::Transfer(transfer) if transfer.is_some() => over.push(*number),
                // Reported when its worker brings it back, after one step.
                Task::Transfer(_) => {}
            }
        }
        for number in over {
            self.finish_task(id, number, None);
        }
    }
}
