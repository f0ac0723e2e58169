//! Completed work: noticed by the fences, reported to the sink.

use super::message::Message;
use super::shared::Shared;
use super::state::Engine;
use crate::driver::{is_fault_announced, take_output};
use crate::track::{Flight, Reporting};
use cumux_device::{Channel, ClientId, Outcome, Report, StreamId};

impl Engine {
    /// Polls the fences and reports completed work. Returns true if there was any.
    pub(super) fn poll_completions(&mut self) -> bool {
        let mut over = std::mem::take(&mut self.over);
        self.streams.tracker.retire(self.streams.clock.now(), &mut over);
        let progress = !over.is_empty();
        // Looked at after the fences: what was reached before the announcement is nobody's fault.
        if progress && self.context_works() && is_fault_announced() {
            self.begin_inquiry(over);
            return true;
        }
        for (flight, device_ns) in over.drain(..) {
            self.complete_flight(&flight, device_ns);
        }
        self.over = over;
        if !self.reports.is_empty() {
            let mut reports = std::mem::take(&mut self.reports);
            self.shared.sink.retired_all(&mut reports);
            reports.clear();
            self.reports = reports;
        }
        if progress {
            self.finish_closing();
        }
        progress
    }

    fn complete_flight(&mut self, flight: &Flight, device_ns: u64) {
        let Flight { client, stream, token, .. } = *flight;
        self.streams.end_flight(stream);
        if flight.reporting == Reporting::Done {
            if flight.prints() {
                self.discard_printed(client, 1);
            }
            return;
        }
        if let Some(queue) = self.streams.queues.get_mut(&stream)
            && (flight.prints() || !queue.held.is_empty())
        {
            queue.held.hold(token, device_ns, flight.prints());
            self.fetch_printed(stream);
        } else {
            self.reports.push(Report { client, stream, token, outcome: Outcome::Done { device_ns } });
        }
    }

    /// Has the printed text of this stream fetched, unless a fetch is under way.
    fn fetch_printed(&mut self, id: StreamId) {
        let Some(queue) = self.streams.queues.get_mut(&id) else { return };
        let Some(kernels) = queue.held.begin_fetch() else { return };
        let (client, number) = (queue.stream.client.id, self.number);
        self.fetch_output(move |shared, text| {
            shared.mailboxes.of(number).send(Message::Printed(id, text));
            shared.printing.end(client, kernels);
        });
    }

    /// Drops what so many kernels of a client have printed that is stopped or closed.
    pub(super) fn discard_printed(&self, client: ClientId, kernels: usize) {
        if kernels > 0 {
            self.fetch_output(move |shared, _| shared.printing.end(client, kernels));
        }
    }

    /// Has all printed text of the card fetched, and `deliver` called with it. It is the text of
    /// the client whose turn it is.
    fn fetch_output(&self, deliver: impl FnOnce(&Shared, Vec<u8>) + Send + 'static) {
        let (shared, stream) = (self.shared.clone(), self.helper_stream);
        self.shared.helpers.run_printer(move || {
            // If the context is broken, the inquiry reports what is held.
            let _ = shared.driver.synchronize(stream);
            deliver(&shared, take_output());
        });
    }

    /// Delivers the text that a fetch has brought, and sends the reports that were held for it.
    pub(super) fn deliver_printed(&mut self, id: StreamId, text: &[u8]) {
        let Some(queue) = self.streams.queues.get_mut(&id) else { return };
        let client = queue.stream.client.id;
        let fetched = queue.held.end_fetch();
        if !text.is_empty() && !self.ends.is_faulted(client) {
            self.shared.sink.text(client, Channel::Output, text);
        }
        for report in fetched.reports {
            self.shared.sink.retired(client, id, report.token, Outcome::Done { device_ns: report.device_ns });
        }
        if fetched.fetch_again {
            self.fetch_printed(id);
        }
    }
}
