//! How a card's engines get on, for whom reads the log at debug: in which way kernels went to the
//! card in the last quarter of a second, and how much of it the driver took.

use crate::counters::{Counters, Submitted};
use std::sync::atomic::Ordering;

/// How often it is told, in nanoseconds.
const PERIOD_NS: u64 = 250_000_000;

/// What the first engine has told last.
#[derive(Debug)]
pub(super) struct Pace {
    next: u64,
    before: Counted,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counted {
    kernels: u64,
    coalesced: u64,
    chains: u64,
    nodes_set: u64,
    repeated: u64,
    made: u64,
    ahead: u64,
    stops: u64,
    failed_stops: u64,
    driver_ns: u64,
    waited_ns: u64,
}

impl Counted {
    fn read(all: &Counters, (driver_ns, waited_ns): (u64, u64)) -> Counted {
        let Submitted { kernels, coalesced, chains, nodes_set, repeated, .. } = all.submitted();
        let counters = [&all.chains_made, &all.chains_ahead, &all.stops, &all.failed_stops];
        let [made, ahead, stops, failed_stops] = counters.map(|counter| counter.load(Ordering::Relaxed));
        Counted { kernels, coalesced, chains, nodes_set, repeated, made, ahead, stops, failed_stops, driver_ns, waited_ns }
    }
}

impl Pace {
    /// For one engine; `None` if nobody wants to know.
    pub(super) fn of_engine(number: usize) -> Option<Pace> {
        (number == 0 && tracing::enabled!(tracing::Level::DEBUG)).then(|| Pace { next: 0, before: Counted::default() })
    }

    /// Tells how all engines of the card get on, if it is time and any kernel was submitted. `now`
    /// in nanoseconds; `times`: nanoseconds in the driver, and of waiting for it, so far.
    pub(super) fn tell(&mut self, now: u64, counters: &Counters, times: (u64, u64)) {
        if now < self.next {
            return;
        }
        let found = Counted::read(counters, times);
        let since = |read: fn(&Counted) -> u64| read(&found).saturating_sub(read(&self.before));
        let kernels = since(|counted| counted.kernels);
        if kernels > 0 {
            tracing::debug!(
                kernels,
                alone = kernels.saturating_sub(since(|counted| counted.coalesced)),
                chains = since(|counted| counted.chains),
                set = since(|counted| counted.nodes_set),
                repeated = since(|counted| counted.repeated),
                made = since(|counted| counted.made),
                ahead = since(|counted| counted.ahead),
                stops = since(|counted| counted.stops),
                failed = since(|counted| counted.failed_stops),
                driver_us = since(|counted| counted.driver_ns) / 1000,
                waited_us = since(|counted| counted.waited_ns) / 1000,
                "a quarter of a second"
            );
        }
        (self.next, self.before) = (now + PERIOD_NS, found);
    }
}
