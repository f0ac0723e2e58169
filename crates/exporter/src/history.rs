//! What has happened since the exporter started, out of one status after the other: a status has
//! the clients that run and the last 64 that have gone, and no totals.
//!
//! A counter that starts at 0 with the exporter never falls while it runs. What was there at the
//! first look is not counted: it happened before. Clients that come and go between two looks and
//! are pushed out of the list by more than 64 others are missed.

use cumux_wire::message::{ClientStatus, ServerStatus};
use std::collections::{BTreeMap, HashMap};

/// How clients end, as the status spells it.
pub const ENDS: [&str; 3] = ["exited", "killed", "terminated"];

/// Which client is meant. A server that was replaced keeps the numbers of its sessions.
type Key = (u32, u32, u32);

#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    faulted: bool,
    ended: bool,
}

/// The counts of one user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Clients that got a sticky error.
    pub faults: u64,
    /// Clients that have gone, in the order of [`ENDS`].
    pub ended: [u64; 3],
}

/// Everything that was seen.
#[derive(Debug, Default)]
pub struct History {
    seen: Option<HashMap<Key, Seen>>,
    counts: BTreeMap<u32, Counts>,
}

impl History {
    /// Looks at the next status.
    pub fn observe(&mut self, servers: &[ServerStatus]) {
        let before = self.seen.take();
        let mut now = HashMap::new();
        for server in servers {
            let counts = self.counts.entry(server.uid).or_default();
            let running = server.clients.iter().map(|client| (client, false));
            for (client, ended) in running.chain(server.gone.iter().map(|client| (client, true))) {
                let key = (server.uid, client.session, client.pid);
                let seen = Seen { faulted: client.error != 0, ended };
                let old = before.as_ref().map_or(seen, |before| before.get(&key).copied().unwrap_or_default());
                counts.faults += u64::from(seen.faulted && !old.faulted);
                if let Some(end) = end_of(client).filter(|_| ended && !old.ended) {
                    counts.ended[end] += 1;
                }
                // A server and its successor may both name a client for a moment.
                let entry: &mut Seen = now.entry(key).or_default();
                *entry = Seen { faulted: entry.faulted || seen.faulted, ended: entry.ended || seen.ended };
            }
        }
        // A client in neither list has been pushed out, and does not come back.
        self.seen = Some(now);
    }

    /// The counts of each user that has been seen.
    #[must_use]
    pub fn counts(&self) -> &BTreeMap<u32, Counts> {
        &self.counts
    }
}

fn end_of(client: &ClientStatus) -> Option<usize> {
    ENDS.iter().position(|end| *end == client.state)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(session: u32, state: &str, error: u32) -> ClientStatus {
        ClientStatus { session, pid: 100 + session, state: state.into(), error, ..ClientStatus::default() }
    }

    fn server(pid: u32, clients: Vec<ClientStatus>, gone: Vec<ClientStatus>) -> ServerStatus {
        ServerStatus { pid, uid: 7, clients, gone, ..ServerStatus::default() }
    }

    #[test]
    fn each_fault_and_each_end_counts_once() {
        let mut history = History::default();
        let old = || client(1, "killed", 700);
        history.observe(&[server(1, vec![client(2, "running", 0)], vec![old()])]);
        assert_eq!(history.counts()[&7], Counts::default(), "that was before");
        history.observe(&[server(1, vec![client(2, "running", 700)], vec![old()])]);
        // Another server of the same user, after the first was replaced.
        history.observe(&[server(9, vec![client(2, "running", 700)], vec![old()])]);
        history.observe(&[]);
        assert_eq!(history.counts()[&7], Counts { faults: 1, ended: [0; 3] });
        let mut history = History::default();
        history.observe(&[]);
        for _ in 0..2 {
            history.observe(&[server(1, vec![], vec![client(3, "exited", 0), client(4, "terminated", 719), client(5, "exited", 0)])]);
            assert_eq!(history.counts()[&7], Counts { faults: 1, ended: [2, 0, 1] });
        }
    }
}
