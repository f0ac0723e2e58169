//! How an idle engine waits: it polls for a while, then naps or sleeps. How long it polls is the
//! policy of the whole service ([`cumux_ring::polling`]).

use cumux_ring::polling;
use std::time::Duration;

/// How long an engine polls after its last progress on a machine without cores to spare.
const CROWDED_SPIN: Duration = Duration::from_micros(80);
/// Most microseconds of polling that a user may ask for.
const SPIN_LIMIT_US: u64 = 1_000_000;
/// Pause between polls once the polling time is over and the card still has work in flight.
const NAP: Duration = Duration::from_micros(20);

/// How long an engine polls before it pauses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PollPolicy {
    /// While nothing is in flight.
    spin_ns: u64,
    /// While the card has work in flight.
    busy_ns: u64,
}

/// What an idle engine does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pause {
    /// The engine polls again at once.
    Spin,
    /// The engine sleeps until a message comes, but no longer than this.
    Nap(Duration),
    /// The engine sleeps until a message comes.
    Sleep,
}

impl PollPolicy {
    /// The policy on a machine with this many cores, unless the user asks for another.
    pub(crate) fn of_machine(cores: usize) -> PollPolicy {
        let ns = |limit: Duration| u64::try_from(limit.as_nanos()).unwrap_or(SPIN_LIMIT_US * 1_000);
        PollPolicy { spin_ns: ns(polling::service_limit(cores, CROWDED_SPIN)), busy_ns: ns(polling::service_limit_with_work(cores, CROWDED_SPIN)) }
    }

    /// A policy of polling for this many microseconds, which a user asks for, limited to what is
    /// allowed.
    pub(crate) fn of_user(asked_us: u64) -> PollPolicy {
        let ns = asked_us.min(SPIN_LIMIT_US) * 1_000;
        PollPolicy { spin_ns: ns, busy_ns: ns }
    }

    /// What the engine does `idle_ns` nanoseconds after its last progress. `in_flight` is true if
    /// the card has work of the engine that will complete.
    pub(crate) fn pause(self, idle_ns: u64, in_flight: bool) -> Pause {
        match in_flight {
            true if idle_ns < self.busy_ns => Pause::Spin,
            true => Pause::Nap(NAP),
            false if idle_ns < self.spin_ns => Pause::Spin,
            false => Pause::Sleep,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polling_comes_before_napping_and_sleeping() {
        let policy = PollPolicy::of_user(80);
        assert_eq!((policy.pause(79_999, false), policy.pause(79_999, true)), (Pause::Spin, Pause::Spin));
        assert_eq!((policy.pause(80_000, false), policy.pause(80_000, true)), (Pause::Sleep, Pause::Nap(NAP)));
        assert_eq!(PollPolicy::of_user(0).pause(0, false), Pause::Sleep);
        assert_eq!(PollPolicy::of_user(u64::MAX), PollPolicy::of_user(1_000_000));
        assert_eq!(PollPolicy::of_machine(2), policy);
        let large = PollPolicy::of_machine(8);
        assert_eq!((large.pause(1_500_000, false), large.pause(1_500_000, true)), (Pause::Sleep, Pause::Spin));
        assert_eq!(large.pause(5_000_000, true), Pause::Nap(NAP));
    }
}
