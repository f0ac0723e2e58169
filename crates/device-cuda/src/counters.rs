//! Counters of a card and of its clients.
#![expect(clippy::disallowed_types, reason = "counters that threads of this process share")]

use cumux_device::{ClientCounters, ClientId};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counters of a card since it was opened, for people and benchmarks. They only grow.
#[derive(Debug, Default)]
pub struct Counters {
    /// Kernels submitted to the driver.
    pub kernels: AtomicU64,
    /// Kernels among them that were submitted in chains.
    pub coalesced: AtomicU64,
    /// Chains submitted to the driver.
    pub chains: AtomicU64,
    /// Nodes of chains that had to be set before a launch.
    pub nodes_set: AtomicU64,
    /// Pieces of work that waited until memory was registered.
    pub registrations: AtomicU64,
    /// Requests for a quiet card: times something waited until no long kernel ran.
    pub quiets: AtomicU64,
    /// Requests among them that timed out and went on beside a long kernel.
    pub quiet_timeouts: AtomicU64,
    /// Chains that were made.
    pub chains_made: AtomicU64,
    /// Chains that were made before their clients came, and that these have taken.
    pub chains_ahead: AtomicU64,
    /// Times the card was stopped to make chains.
    pub stops: AtomicU64,
    /// Attempts to make chains for which the card did not become still soon enough.
    pub failed_stops: AtomicU64,
}

/// Counters of one client. Its engine writes them at most once a chain; threads that make slow
/// calls for the client write the rest.
#[derive(Debug, Default)]
pub(crate) struct ClientCounts {
    /// The client.
    pub client: ClientId,
    /// Kernels that were submitted together with others, in one call of the driver.
    pub coalesced: AtomicU64,
    quiets: AtomicU64,
    quiet_ns: AtomicU64,
    /// Times the client's work waited until memory of its window was pinned.
    pub registrations: AtomicU64,
}

impl ClientCounts {
    /// Zeros, for this client.
    pub(crate) fn new(client: ClientId) -> ClientCounts {
        ClientCounts { client, ..ClientCounts::default() }
    }

    /// Counts one wait of the client for a quiet card.
    pub(crate) fn count_quiet(&self, waited: Duration) {
        self.quiets.fetch_add(1, Ordering::Relaxed);
        self.quiet_ns.fetch_add(u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The counters' present values.
    pub(crate) fn read(&self) -> ClientCounters {
        let [coalesced, quiets, quiet_ns, registrations] =
            [&self.coalesced, &self.quiets, &self.quiet_ns, &self.registrations].map(|count| count.load(Ordering::Relaxed));
        ClientCounters { coalesced, quiets, quiet_ns, registrations }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_adds_up() {
        let counts = ClientCounts::new(1);
        counts.count_quiet(Duration::from_micros(3));
        counts.count_quiet(Duration::from_micros(4));
        counts.coalesced.fetch_add(17, Ordering::Relaxed);
        assert_eq!(counts.read(), ClientCounters { coalesced: 17, quiets: 2, quiet_ns: 7000, registrations: 0 });
    }
}
