//! What a device says of the work that was submitted to it.

use crate::ids::{ClientId, StreamId};
use cumux_wire::text::Channel;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

/// What happened to a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It ran to its end.
    Done {
        /// Nanoseconds it occupied the device; for a kernel from its first block to its last.
        device_ns: u64,
    },
    /// It failed, or an earlier fault stopped its client.
    Fault(Fault),
    /// Not run because the client was closed or stopped.
    Cancelled,
}

/// A fault in words and as CUDA numbers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// A `CUresult`, see [`cumux_wire::result`].
    pub result: u32,
    /// Kernel, block, thread, address, instruction: what is known.
    pub text: String,
}

/// A report for [`Sink::retired_all`]; the fields are the arguments of [`Sink::retired`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are described with the method")]
pub struct Report {
    pub client: ClientId,
    pub stream: StreamId,
    pub token: u64,
    pub outcome: Outcome,
}

/// A piece of accepted work of which nobody knows whether it was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InDoubt {
    /// Its client.
    pub client: ClientId,
    /// Its stream.
    pub stream: StreamId,
    /// The number with which it was submitted.
    pub token: u64,
}

/// What is known, when a device is lost, of accepted work without a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begun {
    /// Nothing: any of it may have been begun.
    Unknown,
    /// Only these pieces may have been begun. A successor can do all others.
    Only(Vec<InDoubt>),
}

/// The receiver of a device's reports. Implemented by the executor; calls are short and never
/// block.
pub trait Sink: Send + Sync {
    /// Submission `token` of `stream` is over.
    fn retired(&self, client: ClientId, stream: StreamId, token: u64, outcome: Outcome);
    /// Delivers several reports at once, in the order of their streams. A sink does here once what
    /// is needed once for all (take a lock, wake a client).
    fn retired_all(&self, reports: &mut Vec<Report>) {
        for Report { client, stream, token, outcome } in reports.drain(..) {
            self.retired(client, stream, token, outcome);
        }
    }
    /// Delivers what the client's kernels printed: complete lines or pieces, in order within a
    /// channel. Printf goes to [`Channel::Output`], the messages of failed assertions to
    /// [`Channel::Error`], and those before the fault that they end in is reported.
    fn text(&self, client: ClientId, channel: Channel, text: &[u8]);
    /// [`crate::Takeover::chain_recipes`] has something new to say of these clients.
    fn chains_made(&self, clients: &[ClientId]) {
        let _ = clients;
    }
    /// The device has begun to look at a fault. It may be lost soon; until then, nothing that keeps
    /// it busy should begin.
    fn fault_noticed(&self) {}
    /// The client's work has broken the device; its unfinished work was reported with this fault
    /// already. A client that had none hears of the fault by this alone.
    fn faulted(&self, client: ClientId, fault: &Fault) {
        let _ = (client, fault);
    }
    /// What the device has written down of a fault of these clients: a file, for people with a
    /// debugger. Comes after their fault.
    fn dumped(&self, clients: &[ClientId], dump: OwnedFd) {
        let _ = (clients, dump);
    }
    /// Work of these clients runs on and on, and stops what others need. Returns true if all other
    /// clients can go on in another process: then the device lets go of them, and calls
    /// [`Sink::let_go`].
    fn occupied(&self, by: &BTreeSet<ClientId>) -> bool {
        let _ = by;
        false
    }
    /// The device has let go of all clients but these: nothing of theirs is begun any more, and
    /// their last reports have been delivered. Their accepted work without a report is left to
    /// another process.
    fn let_go(&self, staying: &BTreeSet<ClientId>, begun: Begun) {
        let _ = (staying, begun);
    }
    /// The device is lost, and its last report has been delivered. Accepted work without a report
    /// is left to a successor.
    fn lost(&self, why: &str, begun: Begun) {
        let _ = (why, begun);
    }
}
