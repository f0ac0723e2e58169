//! The report of completed work: made at once, or held until the text is fetched that the work may
//! have printed. What has ended on a card that stood still is held before that
//! ([`crate::track::Withheld`]).

use super::state::Engine;
use crate::track::{Flight, Reporting};
use cumux_device::{ClientId, Outcome, Report};

impl Engine {
    /// Reports a piece of work that is complete, or holds it until its printed text is fetched.
    pub(super) fn complete_flight(&mut self, flight: &Flight, device_ns: u64) {
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

    /// Sends the reports that were collected.
    pub(super) fn send_reports(&mut self) {
        if !self.reports.is_empty() {
            let mut reports = std::mem::take(&mut self.reports);
            self.shared.sink.retired_all(&mut reports);
            reports.clear();
            self.reports = reports;
        }
    }

    /// Collects reports of these clients' completed work whose printed text has not been fetched.
    /// The text is lost.
    pub(super) fn release_held(&mut self, of: impl Fn(ClientId) -> bool) {
        for (id, queue) in &mut self.streams.queues {
            let client = queue.stream.client.id;
            if !of(client) {
                continue;
            }
            let held = queue.held.release();
            if held.iter().any(|report| report.prints) {
                tracing::warn!(client, "what kernels have printed last is lost: it was not fetched in time");
            }
            self.reports.extend(held.into_iter().map(|report| Report {
                client,
                stream: *id,
                token: report.token,
                outcome: Outcome::Done { device_ns: report.device_ns },
            }));
        }
    }
}
