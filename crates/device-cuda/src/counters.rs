//! Counters of a card and of its clients.
#![expect(clippy::disallowed_types, reason = "counters that threads of this process share")]

use cumux_device::{ClientCounters, ClientId};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counters of a card since it was opened, for people and benchmarks. They only grow.
#[derive(Debug, Default)]
pub struct Counters {
    engines: Vec<EngineCounters>,
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
    /// Chains that streams have taken of others that were gone.
    pub chains_inherited: AtomicU64,
    /// Times the card was stopped to make chains.
    pub stops: AtomicU64,
    /// Attempts to make chains for which the card did not become still soon enough.
    pub failed_stops: AtomicU64,
}

/// What was submitted to the driver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Submitted {
    /// Kernels.
    pub kernels: u64,
    /// Kernels among them that were submitted in chains.
    pub coalesced: u64,
    /// Chains.
    pub chains: u64,
    /// Nodes of chains that had to be set before a launch.
    pub nodes_set: u64,
    /// Chains whose work was not planned, because it was compared with theirs.
    pub repeated: u64,
    /// Times the rest of a batch was left to wait for what comes.
    pub returned: u64,
}

/// What one engine has submitted. That engine alone writes here, with every launch, so it is alone
/// in its cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct EngineCounters {
    kernels: AtomicU64,
    coalesced: AtomicU64,
    chains: AtomicU64,
    nodes_set: AtomicU64,
    repeated: AtomicU64,
    returned: AtomicU64,
}

impl EngineCounters {
    /// Counts a kernel that was launched alone.
    pub(crate) fn count_alone(&self) {
        raise(&self.kernels, 1);
    }

    /// Counts a chain of so many kernels, of which so many had to be set.
    pub(crate) fn count_chain(&self, kernels: usize, set: usize) {
        let parts = [(&self.kernels, kernels), (&self.coalesced, kernels), (&self.chains, 1), (&self.nodes_set, set)];
        parts.into_iter().for_each(|(counter, by)| raise(counter, by as u64));
    }

    /// Counts a chain whose work was not planned, besides [`EngineCounters::count_chain`].
    pub(crate) fn count_repeated(&self) {
        raise(&self.repeated, 1);
    }

    /// Counts a rest that was left to wait.
    pub(crate) fn count_returned(&self) {
        raise(&self.returned, 1);
    }
}

/// Raises a counter that one thread writes.
fn raise(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

impl Counters {
    /// Zeros, for so many engines.
    pub(crate) fn of_engines(count: usize) -> Counters {
        Counters { engines: (0..count).map(|_| EngineCounters::default()).collect(), ..Counters::default() }
    }

    /// Those of one engine, for its own thread.
    pub(crate) fn engine(&self, number: usize) -> &EngineCounters {
        &self.engines[number]
    }

    /// What all engines have submitted.
    #[must_use]
    pub fn submitted(&self) -> Submitted {
        let sum = |read: fn(&EngineCounters) -> &AtomicU64| self.engines.iter().map(|engine| read(engine).load(Ordering::Relaxed)).sum();
        Submitted {
            kernels: sum(|one| &one.kernels),
            coalesced: sum(|one| &one.coalesced),
            chains: sum(|one| &one.chains),
            nodes_set: sum(|one| &one.nodes_set),
            repeated: sum(|one| &one.repeated),
            returned: sum(|one| &one.returned),
        }
    }
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
    fn what_engines_submit_is_summed() {
        let counters = Counters::of_engines(2);
        counters.engine(0).count_chain(12, 3);
        counters.engine(1).count_chain(4, 0);
        counters.engine(1).count_alone();
        counters.engine(1).count_repeated();
        counters.engine(1).count_returned();
        assert_eq!(counters.submitted(), Submitted { kernels: 17, coalesced: 16, chains: 2, nodes_set: 3, repeated: 1, returned: 1 });
    }

    #[test]
    fn what_is_counted_adds_up() {
        let counts = ClientCounts::new(1);
        counts.count_quiet(Duration::from_micros(3));
        counts.count_quiet(Duration::from_micros(4));
        counts.coalesced.fetch_add(17, Ordering::Relaxed);
        assert_eq!(counts.read(), ClientCounters { coalesced: 17, quiets: 2, quiet_ns: 7000, registrations: 0 });
    }
}
