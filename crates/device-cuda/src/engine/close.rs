//! Stopping and closing clients: their work ends before it is complete.

use super::state::Engine;
use crate::track::{Flight, Reporting};
use crossbeam_channel::Sender;
use cumux_device::{ClientId, Fault, Outcome};

/// Most kernels that are named in the description of a client's work.
const MOST_NAMES: usize = 4;

impl Engine {
    /// Stops a client: reports all its work with this fault, unless an earlier fault has stopped
    /// it.
    pub(super) fn stop_client(&mut self, client: ClientId, fault: &Fault) {
        if self.ends.stop(client, fault) {
            self.report_unfinished(client, &Outcome::Fault(fault.clone()));
        }
    }

    /// Closes a client: cancels all its work. `done` gets a message when none is in flight any
    /// more.
    pub(super) fn close_client(&mut self, client: ClientId, done: Sender<()>) {
        self.report_unfinished(client, &Outcome::Cancelled);
        self.orders.forget_client(client);
        self.ends.close(client, done);
        self.finish_closing();
    }

    /// Reports all work of a client with this outcome, in the order of its streams, and drops what
    /// was not submitted to the driver. Work in flight goes on, and its end is not reported again.
    fn report_unfinished(&mut self, client: ClientId, outcome: &Outcome) {
        let (mut unfinished, mut printed) = (Vec::new(), 0);
        for (id, queue) in self.streams.queues_of(client) {
            let (unfetched, tokens) = queue.held.cancel();
            unfinished.extend(tokens.map(|token| (id, token)));
            printed += unfetched;
        }
        self.discard_printed(client, printed);
        let mut note_told = |flight: &mut Flight| {
            if flight.client == client && flight.reporting == Reporting::Due {
                flight.reporting = Reporting::Done;
                unfinished.push((flight.stream, flight.token));
            }
        };
        self.withheld.flights_mut().for_each(&mut note_told);
        self.streams.tracker.visit_flights(&mut note_told);
        self.streams.cancel_queued(client, |id, token| unfinished.push((id, token)));
        self.printing.leave(client);
        for (stream, token) in unfinished {
            self.shared.sink.retired(client, stream, token, outcome.clone());
        }
    }

    /// Finishes closing the clients that have no work in flight any more, and notifies the threads
    /// that close them.
    pub(super) fn finish_closing(&mut self) {
        let (works, streams, issuer) = (self.context_works(), &mut self.streams, &mut self.issuer);
        self.ends.finish_closing(|client| {
            let runs = works && streams.has_in_flight(client);
            if !runs {
                issuer.forget_streams(&streams.remove_client(client));
            }
            !runs
        });
    }

    /// Describes the client's work in flight and in its queues, for the log.
    pub(super) fn describe_client(&self, client: ClientId) -> String {
        let tracker = &self.streams.tracker;
        let (mut names, mut count) = (Vec::new(), 0);
        for (slot, flight) in tracker.flights().filter(|(_, flight)| flight.client == client) {
            count += 1;
            let name = flight.kernel().map_or("a copy, a set or an event", |kernel| tracker.estimates.name(kernel));
            let name = format!("{name} (fence {} of {}, {} reached)", flight.fence, slot.fence_issued(), slot.fence_reached());
            if names.len() < MOST_NAMES && !names.contains(&name) {
                names.push(name);
            }
        }
        let queues = self.streams.queues.values().filter(|queue| queue.stream.client.id == client);
        let (in_flight, queued) = queues.fold((0, 0), |(in_flight, queued), queue| (in_flight + queue.in_flight, queued + queue.work.len()));
        format!("{count} pieces of work with the card ({in_flight} counted, {queued} queued): {}", names.join(", "))
    }
}
