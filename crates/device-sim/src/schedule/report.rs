//! A submission that is over, on its way to the sink.

use std::sync::Arc;

use cumux_device::{ClientId, Fault, Outcome, StreamId};

use super::client::ClientEnd;
use crate::progress::KernelProgress;

/// A submission that is over.
pub(crate) struct Report {
    pub(crate) client: ClientId,
    pub(crate) stream: StreamId,
    pub(crate) token: u64,
    pub(crate) outcome: Outcome,
    /// Its record in the progress log, released when the sink has taken the report.
    pub(crate) progress: Option<Arc<KernelProgress>>,
}

/// The outcome of all work that an ended client still had.
pub(crate) fn outcome_of(end: &ClientEnd) -> Outcome {
    match end {
        ClientEnd::Fault(fault) => Outcome::Fault(Fault { result: fault.result, text: fault.text.clone() }),
        ClientEnd::Cancelled => Outcome::Cancelled,
    }
}
