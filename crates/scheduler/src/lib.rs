//! Whose work goes next, and how much of a client's work the device may have at once. Pure policy:
//! no clock, no threads, no I/O.
//!
//! - **Order** ([`FairQueue::order`]): the more urgent priority first; among equals the client that
//!   has used the least of the device. Use is counted as device time × share of the SMs: a kernel
//!   that keeps half of the card busy costs half.
//! - **No credit for idleness**: a client that comes back starts level with those that are busy, so
//!   it cannot shut them out with what it has saved.
//! - **A bound on work in flight** ([`FairQueue::budget`]): each stream of a client may have one
//!   operation in flight; more only while the estimated device time of the client's work stays
//!   under [`BOUND_NS`]. The bound limits a neighbour's wait and the time until a fault is
//!   reported. The streams of a program run at the same time, and a kernel may wait for another
//!   stream's work: it would wait for ever if that were held back because the kernel is known to
//!   take long.
//! - **Below normal** the bound is [`LOW_BOUND_NS`] while a more urgent client is connected at all:
//!   the urgent client then waits for a kernel of each stream, not for a queue.
#![forbid(unsafe_code)]
#![warn(missing_docs, missing_debug_implementations)]

use std::collections::BTreeMap;

/// Estimated device time that a client may have in flight beyond its first operation, in
/// nanoseconds.
pub const BOUND_NS: u64 = 5_000_000;
/// The same for a client that yields to more urgent ones.
pub const LOW_BOUND_NS: u64 = 250_000;
/// Operations that a client may have in flight, however short they are.
pub const BOUND_PIECES: u32 = 256;
/// The full share of the device, in percent.
pub const WHOLE: u32 = 100;

/// One client's account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Account {
    /// 0 = normal, larger = less urgent.
    priority: u32,
    /// Percent of the device, 1 to [`WHOLE`].
    share: u32,
    /// Device time used × share, in nanoseconds of the whole device.
    used: u64,
    in_flight: u32,
    in_flight_ns: u64,
}

/// How much of a client's work is in flight. Its holder counts what it submits for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InFlightBudget {
    in_flight: u32,
    in_flight_ns: u64,
    /// 0: the client is not there, and may submit nothing.
    bound_ns: u64,
}

impl InFlightBudget {
    /// Whether one more operation may be submitted to a stream that has so many in flight.
    #[must_use]
    pub fn has_rest(&self, in_stream: u32) -> bool {
        self.bound_ns > 0 && (in_stream == 0 || (self.in_flight < BOUND_PIECES && self.in_flight_ns < self.bound_ns))
    }

    /// Counts one more submission with this estimated device time.
    pub fn count(&mut self, estimate_ns: u64) {
        self.in_flight += 1;
        self.in_flight_ns = self.in_flight_ns.saturating_add(estimate_ns);
    }
}

/// The accounts of the clients whose work one thread takes in.
#[derive(Debug, Clone, Default)]
pub struct FairQueue {
    accounts: BTreeMap<u32, Account>,
    /// The most urgent priority of any client, also of those that other threads look after.
    urgent: u32,
    /// The most urgent one of all, as it was told last.
    told: Option<u32>,
}

impl FairQueue {
    /// Adds a client, level with the least charged busy client. `priority`: 0 normal, larger less
    /// urgent; `share`: percent of the device.
    pub fn add(&mut self, client: u32, priority: u32, share: u32) {
        let used = self.level();
        self.accounts.insert(client, Account { priority, share: share.clamp(1, WHOLE), used, in_flight: 0, in_flight_ns: 0 });
        self.find_urgent();
    }

    fn find_urgent(&mut self) {
        self.urgent = self.most_urgent().into_iter().chain(self.told).min().unwrap_or(0);
    }

    /// The most urgent priority of these clients.
    #[must_use]
    pub fn most_urgent(&self) -> Option<u32> {
        self.accounts.values().map(|a| a.priority).min()
    }

    /// The most urgent priority of all clients of the executor, whoever looks after them. To be
    /// told after [`FairQueue::add`] and [`FairQueue::remove`], where there are others.
    pub fn set_urgent(&mut self, urgent: Option<u32>) {
        self.told = urgent;
        self.find_urgent();
    }

    /// Sets the client's share in percent of the device.
    pub fn set_share(&mut self, client: u32, share: u32) {
        if let Some(account) = self.accounts.get_mut(&client) {
            account.share = share.clamp(1, WHOLE);
        }
    }

    /// Removes a client.
    pub fn remove(&mut self, client: u32) {
        self.accounts.remove(&client);
        self.find_urgent();
    }

    fn level(&self) -> u64 {
        let busy = self.accounts.values().filter(|a| a.in_flight > 0).map(|a| a.used).min();
        busy.or_else(|| self.accounts.values().map(|a| a.used).max()).unwrap_or(0)
    }

    /// Clients in the order in which their rings should be read.
    #[must_use]
    pub fn order(&self) -> Vec<u32> {
        let mut order: Vec<(u32, u64, u32)> = self.accounts.iter().map(|(client, a)| (a.priority, a.used, *client)).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, _, client)| client).collect()
    }

    /// How much of this client's work is in flight. Valid while nobody else submits for the client.
    #[must_use]
    pub fn budget(&self, client: u32) -> InFlightBudget {
        let Some(account) = self.accounts.get(&client) else { return InFlightBudget { in_flight: 0, in_flight_ns: 0, bound_ns: 0 } };
        let bound_ns = if self.urgent < account.priority { LOW_BOUND_NS } else { BOUND_NS };
        InFlightBudget { in_flight: account.in_flight, in_flight_ns: account.in_flight_ns, bound_ns }
    }

    /// Counts submitted operations and their estimated device time in total.
    pub fn submitted_all(&mut self, client: u32, pieces: u32, estimate_ns: u64) {
        let level = self.level();
        if let Some(account) = self.accounts.get_mut(&client) {
            if account.in_flight == 0 {
                account.used = account.used.max(level);
            }
            account.in_flight += pieces;
            account.in_flight_ns = account.in_flight_ns.saturating_add(estimate_ns);
        }
    }

    /// Counts operations as over: their estimated and their measured device time in total.
    pub fn retired_all(&mut self, client: u32, pieces: u32, estimate_ns: u64, device_ns: u64) {
        if let Some(account) = self.accounts.get_mut(&client) {
            account.in_flight = account.in_flight.saturating_sub(pieces);
            account.in_flight_ns = if account.in_flight == 0 { 0 } else { account.in_flight_ns.saturating_sub(estimate_ns) };
            account.used = account.used.saturating_add(device_ns.saturating_mul(u64::from(account.share)) / u64::from(WHOLE));
        }
    }

    /// Forgets the client's work in flight, because the client is in error.
    pub fn abandoned(&mut self, client: u32) {
        if let Some(account) = self.accounts.get_mut(&client) {
            account.in_flight = 0;
            account.in_flight_ns = 0;
        }
    }
}

/// A running estimate of a duration (a kernel, or one block of it): each new measurement counts for
/// a quarter.
#[must_use]
pub fn estimate(before_ns: Option<u64>, measured_ns: u64) -> u64 {
    before_ns.map_or(measured_ns, |before| before - before / 4 + measured_ns / 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Runs operations one at a time in the order of the policy; returns device time per client.
    fn run(clients: &[(u32, u32, u64)], pieces: usize) -> BTreeMap<u32, u64> {
        let mut queue = FairQueue::default();
        for (i, (priority, share, _)) in clients.iter().enumerate() {
            queue.add(i as u32, *priority, *share);
        }
        // All clients are always busy.
        for i in 0..clients.len() {
            queue.submitted_all(i as u32, 1, 1);
        }
        let mut time = BTreeMap::new();
        for _ in 0..pieces {
            let next = queue.order()[0];
            let ns = clients[next as usize].2;
            queue.submitted_all(next, 1, ns);
            queue.retired_all(next, 1, ns, ns);
            *time.entry(next).or_default() += ns;
        }
        time
    }

    #[test]
    fn device_time_is_shared_whatever_the_kernels_lengths() {
        let time = run(&[(0, 100, 1000), (0, 100, 10)], 10_000);
        assert!(time[&0].abs_diff(time[&1]) <= 1000, "{time:?}");
    }

    #[test]
    fn a_kernel_on_a_part_of_the_device_costs_that_part() {
        let time = run(&[(0, 75, 8000), (0, 25, 8000)], 40_000);
        let ratio = time[&1] as f64 / time[&0] as f64;
        assert!((ratio - 3.0).abs() < 0.01, "{ratio}");
    }

    #[test]
    fn the_more_urgent_goes_first() {
        let time = run(&[(1, 100, 5), (0, 100, 5)], 100);
        assert_eq!(time.get(&0), None);
    }

    /// However long it has streamed, a normal client waits for one kernel of each stream of the
    /// below-normal one, or for short ones of 0.25 ms in total.
    #[test]
    fn who_gives_way_has_little_in_flight() {
        let mut queue = FairQueue::default();
        queue.add(7, 1, 100);
        queue.submitted_all(7, 1, 500_000);
        assert!(queue.budget(7).has_rest(1), "alone it fills the device");
        queue.retired_all(7, 1, 500_000, 500_000);
        queue.add(8, 0, 100);
        queue.submitted_all(7, 1, 500_000);
        assert!(!queue.budget(7).has_rest(1));
        queue.submitted_all(8, 1, 500_000);
        assert!(queue.budget(8).has_rest(1));
        queue.remove(8);
        assert!(queue.budget(7).has_rest(1));
        queue.set_urgent(Some(0));
        assert!(!queue.budget(7).has_rest(1), "another thread looks after the urgent one");
        queue.set_urgent(queue.most_urgent());
        assert!(queue.budget(7).has_rest(1));
    }

    #[test]
    fn who_was_away_has_no_credit() {
        let mut queue = FairQueue::default();
        queue.add(1, 0, 100);
        queue.add(2, 0, 100);
        for _ in 0..1000 {
            queue.submitted_all(1, 1, 100);
            queue.submitted_all(1, 1, 100);
            queue.retired_all(1, 1, 100, 100);
            queue.retired_all(1, 1, 100, 100);
        }
        queue.submitted_all(1, 1, 100);
        queue.submitted_all(2, 1, 100);
        queue.retired_all(2, 1, 100, 101);
        assert_eq!(queue.order()[0], 1, "one piece later it is the other's turn again");
    }

    /// The bounds themselves: a client may exceed them by the one operation that crosses them.
    #[test]
    fn work_in_flight_is_bounded_by_time_and_by_number() {
        let mut queue = FairQueue::default();
        queue.add(1, 0, 100);
        let mut budget = queue.budget(1);
        budget.count(BOUND_NS - 1);
        assert!(budget.has_rest(1));
        budget.count(1);
        assert!(!budget.has_rest(1), "the time is used up");
        assert!(budget.has_rest(0), "a kernel may wait for what another stream does");
        let mut budget = queue.budget(1);
        for _ in 1..BOUND_PIECES {
            budget.count(0);
        }
        assert!(budget.has_rest(1));
        budget.count(0);
        assert!(!budget.has_rest(1), "the number is used up");
        assert!(budget.has_rest(0), "another stream has its turn all the same");
        assert!(!queue.budget(2).has_rest(0), "a client that is not there may submit nothing");
    }

    /// A client in error leaves nothing in flight, and pays for what the device has measured.
    #[test]
    fn what_is_over_or_abandoned_is_not_in_flight() {
        let mut queue = FairQueue::default();
        queue.add(1, 0, 50);
        queue.add(2, 0, 100);
        queue.submitted_all(1, 2, BOUND_NS);
        assert!(!queue.budget(1).has_rest(1));
        queue.retired_all(1, 1, BOUND_NS / 2, 1000);
        assert_eq!(queue.budget(1), InFlightBudget { in_flight: 1, in_flight_ns: BOUND_NS / 2, bound_ns: BOUND_NS });
        queue.abandoned(1);
        assert_eq!(queue.budget(1), InFlightBudget { in_flight: 0, in_flight_ns: 0, bound_ns: BOUND_NS });
        assert_eq!(queue.order(), [2, 1], "1 has used half of 1000 ns");
        queue.submitted_all(2, 1, 0);
        queue.retired_all(2, 1, 0, 501);
        assert_eq!(queue.order(), [1, 2]);
        queue.set_share(1, 100);
        queue.submitted_all(1, 1, 0);
        queue.retired_all(1, 1, 0, 2);
        assert_eq!(queue.order(), [2, 1], "with the whole share its time counts wholly");
    }

    #[test]
    fn an_estimate_follows_what_is_measured() {
        assert_eq!(estimate(None, 4000), 4000, "the first measurement is all that is known");
        assert_eq!(estimate(Some(4000), 8000), 5000);
        assert_eq!(estimate(Some(4000), 0), 3000);
        let settled = (0..50).fold(1_000_000, |before, _| estimate(Some(before), 2000));
        assert!((1990..=2010).contains(&settled), "{settled}");
    }

    proptest! {
        #[test]
        fn nobody_is_bounded_to_nothing_and_nobody_exceeds_the_bound(steps in proptest::collection::vec((0_u32..4, any::<bool>(), 0_u64..20_000_000), 1..300)) {
            let mut queue = FairQueue::default();
            let mut flying: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
            for client in 0..4 {
                queue.add(client, client % 2, 25 * (client + 1));
            }
            for (client, submit, ns) in steps {
                let mine = flying.entry(client).or_default();
                prop_assert!(queue.budget(client).has_rest(0), "each stream may have one piece");
                if submit {
                    if queue.budget(client).has_rest(1) {
                        let bound = if client % 2 == 0 { BOUND_NS } else { LOW_BOUND_NS };
                        prop_assert!(mine.is_empty() || mine.iter().sum::<u64>() < bound);
                        queue.submitted_all(client, 1, ns);
                        mine.push(ns);
                    }
                } else if let Some(estimate) = mine.pop() {
                    queue.retired_all(client, 1, estimate, ns);
                }
                let mut order = queue.order();
                prop_assert!(order.is_sorted_by_key(|c| c % 2), "urgent first");
                order.sort_unstable();
                prop_assert_eq!(order, vec![0, 1, 2, 3], "everybody once");
            }
        }
    }
}
