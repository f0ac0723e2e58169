//! Clients that are ended, as an engine has them.
//!
//! ```text
//!          a fault                    the card closes it            nothing in flight
//! (works) ─────────▶ Stopped(fault) ─────────────────────▶ Closing ──────────────────▶ (gone)
//!    └───────────────────── the card closes it ───────────────▲
//! ```

use crossbeam_channel::Sender;
use cumux_device::{ClientId, Fault};
use rustc_hash::FxHashMap;

/// How a client is ended.
#[derive(Debug)]
enum ClientEnd {
    /// By a fault, with which all its work is reported, now and later.
    Stopped(Fault),
    /// The card closes it. Its work is cancelled, or reported with the fault that it had before.
    Closing { fault: Option<Fault>, waiting: Vec<Sender<()>> },
}

/// What happens to work that a client submits.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Admission<'a> {
    /// It is done.
    Open,
    /// It is reported with this fault.
    Faulted(&'a Fault),
    /// Nothing: it was submitted before the client was closed, and nobody waits for it.
    Closed,
}

/// The clients that are ended.
#[derive(Debug, Default)]
pub(super) struct ClientEnds(FxHashMap<ClientId, ClientEnd>);

impl ClientEnds {
    /// What happens to work of this client.
    pub(super) fn admission(&self, client: ClientId) -> Admission<'_> {
        match self.0.get(&client) {
            None => Admission::Open,
            Some(ClientEnd::Stopped(fault) | ClientEnd::Closing { fault: Some(fault), .. }) => Admission::Faulted(fault),
            Some(ClientEnd::Closing { fault: None, .. }) => Admission::Closed,
        }
    }

    /// True if a fault has ended the client.
    pub(super) fn is_faulted(&self, client: ClientId) -> bool {
        matches!(self.admission(client), Admission::Faulted(_))
    }

    /// Ends a client with a fault. False if one has ended it before.
    pub(super) fn stop(&mut self, client: ClientId, fault: &Fault) -> bool {
        match self.0.get_mut(&client) {
            Some(ClientEnd::Stopped(_) | ClientEnd::Closing { fault: Some(_), .. }) => return false,
            Some(ClientEnd::Closing { fault: none, .. }) => *none = Some(fault.clone()),
            None => drop(self.0.insert(client, ClientEnd::Stopped(fault.clone()))),
        }
        true
    }

    /// Begins to close a client; `done` is answered by [`ClientEnds::finish_closing`].
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

    /// Forgets the closing clients that `is_over` holds for, and answers those who wait for them.
    pub(super) fn finish_closing(&mut self, mut is_over: impl FnMut(ClientId) -> bool) {
        let over = self.0.extract_if(|client, end| matches!(end, ClientEnd::Closing { .. }) && is_over(*client));
        for (_, end) in over {
            if let ClientEnd::Closing { waiting, .. } = end {
                for done in waiting {
                    // Who no longer waits needs no answer.
                    let _ = done.send(());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(result: u32) -> Fault {
        Fault { result, text: String::new() }
    }

    #[test]
    fn the_first_fault_stays_until_the_client_is_closed() {
        let mut ends = ClientEnds::default();
        assert_eq!(ends.admission(1), Admission::Open);
        assert!(ends.stop(1, &fault(700)) && !ends.stop(1, &fault(701)));
        assert_eq!(ends.admission(1), Admission::Faulted(&fault(700)));
        let (done, closed) = crossbeam_channel::bounded(1);
        ends.close(1, done);
        assert_eq!(ends.admission(1), Admission::Faulted(&fault(700)));
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
        assert!(ends.stop(1, &fault(700)), "a fault while it closes");
        assert!(ends.is_faulted(1));
        assert!(ends.stop(2, &fault(9)));
        ends.finish_closing(|_| true);
        assert_eq!(closed.len(), 2);
        assert!(ends.is_faulted(2), "stopped, but not closed");
    }
}
