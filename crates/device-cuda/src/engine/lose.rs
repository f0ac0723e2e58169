//! The loss of the context, on the engine's side.

use super::conclude::SPARED_WAITS;
use super::state::{ContextState, Engine};
use crate::driver::is_fault_announced;
use crate::fault::{Blame, CudaError, Suspects, accusation};
use cumux_device::Fault;

impl Engine {
    /// Declares that the context is broken, and stops the clients that had kernels in flight. The
    /// engine submits nothing more.
    pub(super) fn declare_lost(&mut self, error: CudaError) {
        if !self.context_works() {
            return;
        }
        let is_spared = self.shared.spared.get().is_some();
        if is_spared && self.shared.watch.begun().is_some_and(|begun| begun.elapsed() < self.shared.fault_wait * SPARED_WAITS) {
            // The fault was another card's. What runs here goes on, and the fences tell when it has
            // ended.
            return;
        }
        if is_fault_announced() {
            // The core dump will tell more than this error.
            return self.begin_inquiry(Vec::new());
        }
        // The driver reports the error only when all running kernels have ended. Work that
        // completed before the culprit, or beside it, is reported as complete.
        self.over.splice(0..0, self.withheld.take());
        self.poll_completions();
        if !self.context_works() {
            // Announced meanwhile. What has completed waits for the verdict.
            return;
        }
        self.release_held(|_| true);
        self.send_reports();
        self.context = ContextState::Broken;
        self.shared.declare_broken(error, self.number);
        let suspects = self.shared.loss.gather_suspects(self.list_suspects(error), self.engines_here(), self.shared.mailboxes.len());
        let what = self.shared.driver.describe(error);
        for (client, suspect) in &suspects {
            if self.streams.queues.values().any(|queue| queue.stream.client.id == *client) {
                self.stop_client(*client, &Fault { result: error.number(), text: accusation(&suspects, suspect, &what) });
            }
        }
        // Copies, sets and values in flight have no suspect's kernel among them.
        let (_, others) = self.list_doubts();
        self.finish_closing();
        self.shared.finish_loss(self.engines_here(), others);
    }

    /// The clients with kernels in flight, and whether those can have caused this error.
    fn list_suspects(&self, error: CudaError) -> Suspects {
        let tracker = &self.streams.tracker;
        let mut suspects = Suspects::default();
        for (_, flight) in tracker.flights() {
            let Some(kernel) = flight.kernel() else { continue };
            let possible = error != CudaError::ASSERT || tracker.estimates.may_assert(kernel);
            let blame = if possible { Blame::Possible } else { Blame::RuledOut };
            suspects.entry(flight.client).or_default().add_kernel(tracker.estimates.name(kernel), blame);
        }
        suspects
    }
}
