//! What an engine hands over to the first one after a fault.
//!
//! The verdict, the reports that follow from it and the parting from clients whose kernels still
//! run concern all clients of a card. Engines that each did their part would have to agree at every
//! step. So when the driver announces a fault, one engine gets all streams with their work in
//! flight, and the others only pass on their messages.

use super::ends::ClientEnds;
use crate::driver::Stream;
use crate::fault::FlyingKernel;
use crate::issue::{Issuer, Streams};
use crate::track::Flight;
use crossbeam_channel::Sender;
use cumux_device::{ClientId, InDoubt, Report};
use std::collections::BTreeSet;
use std::time::Instant;

/// An engine's clients, with their streams and their work in flight. Fields are dropped in their
/// order: chains before the words to which they write.
pub(crate) struct Handover {
    /// What is kept until the end.
    pub(super) remains: Remains,
    /// The streams.
    pub(super) streams: Streams,
    /// The clients that were stopped or are being closed.
    pub(super) ends: ClientEnds,
    /// The kernels in flight at the announcement.
    pub(super) flying: Vec<FlyingKernel>,
    /// Work that was completed after the announcement, with the nanoseconds it took.
    pub(super) completed: Vec<(Flight, u64)>,
    /// Reports that were not sent yet.
    pub(super) reports: Vec<Report>,
    /// The clients that go on in another process, if some do.
    pub(super) evacuation: Option<Evacuation>,
}

/// A request to let go of clients.
#[derive(Debug)]
pub(super) struct Evacuation {
    /// The clients that do not leave.
    pub(super) staying: BTreeSet<ClientId>,
    /// When the work in flight is not waited for any longer.
    pub(super) until: Instant,
    /// Where the end is reported, until it is. Several, where this engine answers for others.
    pub(super) done: Vec<Sender<Vec<InDoubt>>>,
}

/// The driver's objects of an engine that has handed over, which its work in flight may use.
pub(crate) struct Remains {
    /// Has the chains.
    #[expect(dead_code, reason = "kept for its chains, which are dropped with it")]
    pub(super) issuer: Issuer,
    /// Its helper threads' stream. [`super::state::Engine::end`] destroys it last.
    pub(super) helper_stream: Stream,
}
