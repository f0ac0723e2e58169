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
use cumux_device::Report;

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
}

/// The driver's objects of an engine that has handed over, which its work in flight may use.
pub(crate) struct Remains {
    /// Has the chains.
    #[expect(dead_code, reason = "kept for its chains, which are dropped with it")]
    pub(super) issuer: Issuer,
    /// Its helper threads' stream. It is destroyed last.
    pub(super) helper_stream: Stream,
}
