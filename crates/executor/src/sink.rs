//! Where the device reports: finds the session and passes the report on.

use crate::intake::Sessions;
use cumux_device::{ClientId, Outcome, Report, Sink, StreamId};

/// Exit status of an executor whose device is lost.
const DEVICE_LOST: i32 = 70;

pub struct Reports {
    sessions: Sessions,
}

impl Reports {
    #[must_use]
    pub fn new(sessions: Sessions) -> Self {
        Self { sessions }
    }
}

impl Sink for Reports {
    fn retired(&self, client: ClientId, stream: StreamId, token: u64, outcome: Outcome) {
        let session = self.sessions.read().get(&client).cloned();
        if let Some(session) = session {
            session.retired([(stream, token, outcome)]);
        }
    }

    /// One lock and one wake for each client, however many reports there are.
    fn retired_all(&self, reports: &mut Vec<Report>) {
        // Stable: the order within a stream stays.
        if !reports.is_sorted_by_key(|report| report.client) {
            reports.sort_by_key(|report| report.client);
        }
        let mut reports = reports.drain(..).peekable();
        while let Some(client) = reports.peek().map(|report| report.client) {
            let session = self.sessions.read().get(&client).cloned();
            let own = std::iter::from_fn(|| reports.next_if(|r| r.client == client)).map(|r| (r.stream, r.token, r.outcome));
            match session {
                Some(session) => session.retired(own),
                None => own.for_each(drop),
            }
        }
    }

    /// A lost device cannot be mended in this process. What was accepted is in the journals; the server starts a successor.
    fn lost(&self, why: &str) {
        tracing::error!("the device is lost: {why}; this executor ends and another takes over");
        std::process::exit(DEVICE_LOST);
    }

    fn text(&self, client: ClientId, text: &[u8]) {
        let session = self.sessions.read().get(&client).cloned();
        if let Some(session) = session {
            session.text(text);
        }
    }
}
