//! The clients of an engine that were stopped or are being closed.
//!
//! ```text
//!         a fault                    the card closes it            no work in flight
//! (open) ─────────▶ Stopped(fault) ─────────────────────▶ Closing ──────────────────▶ (removed)
//!    └──────────────────── the card closes it ───────────────▲
//! ```

use crossbeam_channel::Sender;
use cumux_device::{ClientId, Fault};
use rustc_hash::FxHashMap;

/// How a client has ended.
#[derive(Debug)]
enum ClientEnd {
    /// A fault has stopped it. All its work is reported with that fault.
    Stopped(Fault),
    /// The card is closing it. Its work is cancelled, or reported with the fault that stopped it.
    Closing { fault: Option<Fault>, waiting: Vec<Sender<()>> },
}

/// What the engine does with work that a client submits.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Admission<'a> {
    /// It runs the work.
    Open,
    /// It reports the work with this fault.
    Faulted(&'a Fault),
    /// It drops the work, which was submitted before the client was closed. No thread waits for it.
    Closed,
}

/// The clients of an engine that were stopped or are being closed.
#[derive(Debug, Default)]
pub(super) struct ClientEnds(FxHashMap<ClientId, ClientEnd>);

impl ClientEnds {
    /// What the engine does with work of this client.
    #[inline]
    pub(super) fn admission(&self, client: ClientId) -> Admission<'_> {
        match self.0.get(&client) {
            None => Admission::Open,
            Some(ClientEnd::Stopped(fault) | ClientEnd::Closing { fault: Some(fault), .. }) => Admission::Faulted(fault),
            Some(ClientEnd::Closing { fault: None, .. }) => Admission::Closed,
        }
    }

    /// True if a fault has stopped the client.
    pub(super) fn is_faulted(&self, client: ClientId) -> bool {
        matches!(self.admission(client), Admission::Faulted(_))
    }

    /// Stops a client with a fault. Returns false if an earlier fault has stopped it.
    pub(super) fn stop(&mut self, client: ClientId, fault: &Fault) -> bool {
        match self.0.get_mut(&client) {
            Some(ClientEnd::Stopped(_) | ClientEnd::Closing { fault: Some(_), .. }) => return false,
            Some(ClientEnd::Closing { fault: none, .. }) => *none = Some(fault.clone()),
            None => drop(self.0.insert(client, ClientEnd::Stopped(fault.clone()))),
        }
        true
    }

    /// Begins to close a client. [`ClientEnds::finish_closing`] sends a message to `done`.
    pub(super) fn close(&mut self, client: ClientId, done: Sender<()>) {
        match self.0.remove(&client) {
            None => self.0.insert(client, ClientEnd::Closing { fault: None, waiting: vec![done] }),
            Some(ClientEnd::Stopped(fault)) => self.0.insert(client, ClientEnd::Closing { fault: Some(fault), waiting: vec![done] }),
            Some(ClientEnd::Closing { fault, mut waiting }) => {
                waiting.push(done);
                self.0.insert(client, ClientEnd::Closing { fault, waiting })
            }
        };
    }

    /// Takes in the clients of another engine.
    pub(super) fn absorb(&mut self, other: ClientEnds) {
        self.0.extend(other.0);
    }

    /// Removes the closing clients for which `is_over` holds, and notifies the threads that close
    /// them.
    pub(super) fn finish_closing(&mut self, mut is_over: impl FnMut(ClientId) -> bool) {
        let over = self.0.extract_if(|client, end| matches!(end, ClientEnd::Closing { .. }) && is_over(*client));
        for (_, end) in over {
            if let ClientEnd::Closing { waiting, .. } = end {
                for done in waiting {
                    // The send fails if the thread has stopped waiting.
                    let _ = done.send(());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cumux_wire::result;

    fn fault(result: u32) -> Fault {
        Fault { result, text: String::new() }
    }

    #[test]
    fn the_first_fault_stays_until_the_client_is_closed() {
        let mut ends = ClientEnds::default();
        assert_eq!(ends.admission(1), Admission::Open);
        assert!(ends.stop(1, &fault(result::ILLEGAL_ADDRESS)) && !ends.stop(1, &fault(result::LAUNCH_OUT_OF_RESOURCES)));
        assert_eq!(ends.admission(1), Admission::Faulted(&fault(result::ILLEGAL_ADDRESS)));
        let (done, closed) = crossbeam_channel::bounded(1);
        ends.close(1, done);
        assert_eq!(ends.admission(1), Admission::Faulted(&fault(result::ILLEGAL_ADDRESS)));
        ends.finish_closing(|_| false);
        assert!(closed.is_empty());
        ends.finish_closing(|client| client == 1);
        assert!(closed.try_recv().is_ok() && ends.admission(1) == Admission::Open);
    }

    #[test]
    fn everybody_who_closes_a_client_hears_when_it_is_closed() {
        let mut ends = ClientEnds::default();
        let (done, closed) = crossbeam_channel::bounded(2);
        ends.close(1, done.clone());
        ends.close(1, done);
        assert_eq!((ends.admission(1), ends.is_faulted(1)), (Admission::Closed, false));
        assert!(ends.stop(1, &fault(result::ILLEGAL_ADDRESS)), "a fault while it closes");
        assert!(ends.is_faulted(1));
        assert!(ends.stop(2, &fault(9)));
        ends.finish_closing(|_| true);
        assert_eq!(closed.len(), 2);
        assert!(ends.is_faulted(2), "stopped, but not closed");
    }
}
