//! Where the device reports: finds the session and passes the report on.

use crate::intake::Sessions;
use cumux_device::{ClientId, Outcome, Sink, StreamId};

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
            session.retired(stream, token, outcome);
        }
    }

    fn text(&self, client: ClientId, text: &[u8]) {
        let session = self.sessions.read().get(&client).cloned();
        if let Some(session) = session {
            session.text(text);
        }
    }
}
