//! The text that kernels print: fetched when they have ended, and given to the client whose turn it
//! is to print ([`crate::track::Printing`]).

use super::message::Message;
use super::shared::Shared;
use super::state::Engine;
use crate::driver::take_output;
use cumux_device::{Channel, ClientId, Outcome, StreamId};

impl Engine {
    /// Has the printed text of this stream fetched, unless a fetch is under way.
    pub(super) fn fetch_printed(&mut self, id: StreamId) {
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
