//! Letting go of clients that go on in another process, beside work of others that does not end.
//!
//! From the request on, nothing of the clients that leave is begun. When nothing of theirs is in
//! flight and all that is complete was reported, or the time is over, the thread that asked hears
//! which of their work is in doubt. What was not begun stays in the queues and is never reported:
//! the clients' next executor does it. So what is complete and held back, because the card has
//! stood still or for its printed text, must be reported before the answer: it would be done twice.

use super::handover::Evacuation;
use super::state::{ContextState, Engine};
use crate::track::{Flight, FlightWork, Reporting};
use cumux_device::{ClientId, Fault, InDoubt};
use cumux_wire::result;
use std::collections::BTreeSet;
use std::time::Instant;

impl Engine {
    /// Begins to let go of all clients but those that stay.
    pub(super) fn begin_evacuation(&mut self, mut evacuation: Evacuation) {
        if let Some(earlier) = self.evacuation.take() {
            evacuation.join(earlier);
        }
        self.evacuation = Some(evacuation);
        let leaving: BTreeSet<ClientId> = self.streams.queues.values().map(|queue| queue.stream.client.id).filter(|client| self.has_left(*client)).collect();
        for client in leaving {
            self.printing.leave(client);
        }
    }

    /// True if nothing of this client is begun any more.
    pub(super) fn has_left(&self, client: ClientId) -> bool {
        self.evacuation.as_ref().is_some_and(|evacuation| evacuation.leaves(client))
    }

    /// True if nothing of this client is begun here: it has left, or another card's fault ends this
    /// process as soon as what runs has ended.
    pub(super) fn begins_nothing_of(&self, client: ClientId) -> bool {
        self.has_left(client) || self.shared.spared.get().is_some()
    }

    /// Reports the end of the evacuation when nothing of those that leave is in flight or held.
    pub(super) fn finish_evacuation(&mut self) {
        // What has been completed since an announcement is not reported before the verdict.
        if matches!(self.context, ContextState::Faulted(_) | ContextState::HandingOver(_)) {
            return;
        }
        let Some(evacuation) = self.evacuation.as_mut().filter(|evacuation| !evacuation.askers.is_empty()) else { return };
        let now = Instant::now();
        // Nothing completes any more in a broken context.
        if matches!(self.context, ContextState::Broken) {
            evacuation.askers.iter_mut().for_each(|asker| asker.until = now);
        }
        let is_late = evacuation.is_late(now);
        // What is withheld is told within 0.6 s by itself. Told earlier, a culprit could hear that
        // all is well.
        if self.withheld.flights().any(|(flight, _)| flight.reporting == Reporting::Due && self.has_left(flight.client)) {
            return;
        }
        if self.streams.queues.values().any(|queue| !queue.held.is_empty() && self.has_left(queue.stream.client.id)) {
            if !is_late {
                return;
            }
            let evacuation = self.evacuation.take();
            self.release_held(|client| evacuation.as_ref().is_some_and(|evacuation| evacuation.leaves(client)));
            self.evacuation = evacuation;
            self.send_reports();
        }
        if is_late && !matches!(self.context, ContextState::Broken) {
            self.stop_late_kernels();
        }
        let Some(evacuation) = &mut self.evacuation else { return };
        let tracker = &self.streams.tracker;
        let leaving = tracker.flights().filter(|(_, flight)| flight.reporting == Reporting::Due && evacuation.leaves(flight.client));
        let in_doubt: Vec<InDoubt> = leaving.map(|(_, flight)| InDoubt { client: flight.client, stream: flight.stream, token: flight.token }).collect();
        evacuation.answer(&in_doubt, now);
    }

    /// Stops the clients that leave whose sets or copies wait for a multiprocessor. They may run as
    /// soon as the kernels of those who stay have ended: if the clients' next executor did them
    /// again, they would be done twice, the second time over what has come since.
    fn stop_late_kernels(&mut self) {
        let Some(evacuation) = &self.evacuation else { return };
        let is_late = |flight: &Flight| flight.work == FlightWork::OwnKernel && flight.reporting == Reporting::Due && evacuation.leaves(flight.client);
        let clients: BTreeSet<ClientId> = self.streams.tracker.flights().filter(|(_, flight)| is_late(flight)).map(|(_, flight)| flight.client).collect();
        for client in clients {
            let text =
                "a copy or a set was given to the card, where another client's kernel does not end: it may still be done, so it cannot be done elsewhere";
            self.stop_client(client, &Fault { result: result::LAUNCH_FAILED, text: text.to_owned() });
        }
    }

    /// True if threads wait until clients have left this engine.
    pub(super) fn is_evacuation_awaited(&self) -> bool {
        self.evacuation.as_ref().is_some_and(|evacuation| !evacuation.askers.is_empty())
    }

    /// The clients with work in flight that has run for longer than this, once for each piece.
    /// Those that have left are not among them, although work of theirs may still be in flight.
    pub(super) fn list_long_clients(&self, longer_than_ns: u64) -> Vec<ClientId> {
        let now = self.streams.clock.now();
        let flights = self.streams.tracker.flights();
        flights
            .filter(|(slot, flight)| slot.still_ns(now) > longer_than_ns && slot.flights().next().is_some_and(|front| front.fence == flight.fence))
            .filter(|(_, flight)| !self.has_left(flight.client))
            .map(|(_, flight)| flight.client)
            .collect()
    }
}
