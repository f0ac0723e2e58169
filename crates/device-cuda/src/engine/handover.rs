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

/// The clients that this engine lets go of.
#[derive(Debug)]
pub(super) struct Evacuation {
    /// The clients that do not leave. `None` until the first request: no work of any client is
    /// begun.
    pub(super) staying: Option<BTreeSet<ClientId>>,
    /// The threads that have asked and have no answer yet. Several, if requests overlap, or if this
    /// engine answers for others.
    pub(super) askers: Vec<Asker>,
}

/// A thread that has asked an engine to let go of clients.
#[derive(Debug)]
pub(super) struct Asker {
    /// When the work in flight is not waited for any longer.
    pub(super) until: Instant,
    /// Where the end is reported.
    pub(super) done: Sender<Vec<InDoubt>>,
}

impl Evacuation {
    /// A request to let go of all clients but `staying`.
    pub(super) fn new(staying: BTreeSet<ClientId>, until: Instant, done: Sender<Vec<InDoubt>>) -> Evacuation {
        Evacuation { staying: Some(staying), askers: vec![Asker { until, done }] }
    }

    /// Adds an earlier request to this one. A client that has left does not return: its next
    /// executor may have begun its work. A thread that still waits is answered at its own time.
    pub(super) fn join(&mut self, earlier: Evacuation) {
        self.staying = match (self.staying.take(), earlier.staying) {
            (Some(later), Some(earlier)) => Some(&later & &earlier),
            (later, earlier) => later.or(earlier),
        };
        self.askers.extend(earlier.askers);
    }

    /// True if no work of this client is begun any more.
    pub(super) fn leaves(&self, client: ClientId) -> bool {
        self.staying.as_ref().is_none_or(|staying| !staying.contains(&client))
    }

    /// True if the time of a thread that asked is over.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        self.askers.iter().any(|asker| now >= asker.until)
    }

    /// Answers the threads whose time is over; all of them if nothing that leaves is in flight.
    pub(super) fn answer(&mut self, in_doubt: &[InDoubt], now: Instant) {
        for asker in self.askers.extract_if(.., |asker| in_doubt.is_empty() || now >= asker.until) {
            // The send fails if the thread has stopped waiting.
            let _ = asker.done.send(in_doubt.to_vec());
        }
    }
}

/// The driver's objects of an engine that has handed over, which its work in flight may use.
pub(crate) struct Remains {
    /// Has the chains.
    #[expect(dead_code, reason = "kept for its chains, which are dropped with it")]
    pub(super) issuer: Issuer,
    /// Its helper threads' stream. [`super::state::Engine::end`] destroys it last.
    pub(super) helper_stream: Stream,
}

#[cfg(test)]
mod tests {
    use super::*;
    use cumux_device::StreamId;
    use std::time::Duration;

    /// A thread that scrubs memory and one that loads a module may both find that the card stands
    /// still. The first one of them was not answered, so that anything of all clients was in doubt.
    #[test]
    fn requests_that_overlap_are_all_answered_and_who_has_left_does_not_return() {
        let now = Instant::now();
        let request = |staying: &[ClientId], seconds| {
            let (done, answers) = crossbeam_channel::bounded(1);
            (Evacuation::new(staying.iter().copied().collect(), now + Duration::from_secs(seconds), done), answers)
        };
        let (first, heard_first) = request(&[1, 2], 1);
        let (mut both, heard_second) = request(&[2, 3], 2);
        both.join(first);
        assert_eq!([1, 2, 3].map(|client| both.leaves(client)), [true, false, true], "client 3 has left before, client 1 leaves now");
        let doubt = [InDoubt { client: 3, stream: StreamId(1), token: 7 }];
        both.answer(&doubt, now);
        assert!(heard_first.is_empty() && heard_second.is_empty());
        both.answer(&doubt, now + Duration::from_secs(1));
        assert_eq!((heard_first.try_recv(), heard_second.is_empty()), (Ok(doubt.to_vec()), true), "each at its own time");
        both.answer(&[], now + Duration::from_secs(1));
        assert_eq!((heard_second.try_recv(), both.askers.len()), (Ok(Vec::new()), 0));
    }

    #[test]
    fn the_first_request_says_who_stays() {
        let mut none = Evacuation { staying: None, askers: Vec::new() };
        assert!(none.leaves(1), "nothing is begun before");
        let (done, _answers) = crossbeam_channel::bounded(1);
        let mut first = Evacuation::new(BTreeSet::from([1]), Instant::now(), done);
        none.join(Evacuation { staying: None, askers: Vec::new() });
        first.join(none);
        assert!(!first.leaves(1) && first.leaves(2));
    }
}
