//! What is counted, of the card and of each client.

use cumux_device::ClientCounters;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What is counted of a card since it was opened. Numbers for people and benchmarks; they only
/// grow.
#[derive(Debug, Default)]
pub struct Counters {
    /// Kernels given to the driver.
    pub kernels: AtomicU64,
    /// Those of them that went in chains.
    pub coalesced: AtomicU64,
    /// Chains given to the driver.
    pub chains: AtomicU64,
    /// Nodes of chains that had to be set before a launch.
    pub nodes_set: AtomicU64,
    /// Pieces of work that waited until memory was registered.
    pub registrations: AtomicU64,
    /// Times that something waited for all long kernels to end.
    pub quiets: AtomicU64,
    /// Those of them that gave up waiting and went on beside a long kernel.
    pub quiet_timeouts: AtomicU64,
}

/// What is counted of one client. Its engine writes once a chain; whoever does slow things for the
/// client writes the rest.
#[derive(Debug, Default)]
pub(crate) struct ClientCounts {
    /// Kernels that went to the card together with others.
    pub coalesced: AtomicU64,
    quiets: AtomicU64,
    quiet_ns: AtomicU64,
    /// Times its work waited until memory of its window was pinned.
    pub registrations: AtomicU64,
}

impl ClientCounts {
    /// Counts that something of the client has waited this long for a quiet card.
    pub(crate) fn count_quiet(&self, waited: Duration) {
        self.quiets.fetch_add(1, Ordering::Relaxed);
        self.quiet_ns.fetch_add(u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The counts of this moment.
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
        let counts = ClientCounts::default();
        counts.count_quiet(Duration::from_micros(3));
        counts.count_quiet(Duration::from_micros(4));
        counts.coalesced.fetch_add(17, Ordering::Relaxed);
        assert_eq!(counts.read(), ClientCounters { coalesced: 17, quiets: 2, quiet_ns: 7000, registrations: 0 });
    }
}
