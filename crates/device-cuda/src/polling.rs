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
    spin_ns: u64,
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
    /// Microseconds of polling on a machine with this many cores, unless the user asks for others.
    pub(crate) fn default_spin_us(cores: usize) -> u64 {
        u64::try_from(polling::service_limit(cores, CROWDED_SPIN).as_micros()).unwrap_or(SPIN_LIMIT_US)
    }

    /// The microseconds that a user asks for, limited to what is allowed.
    pub(crate) fn allowed_spin_us(asked: u64) -> u64 {
        asked.min(SPIN_LIMIT_US)
    }

    /// A policy of polling for this many microseconds.
    pub(crate) fn new(spin_us: u64) -> PollPolicy {
        PollPolicy { spin_ns: spin_us * 1_000 }
    }

    /// What the engine does `idle_ns` nanoseconds after its last progress. `in_flight` is true if
    /// the card has work of the engine that will complete.
    pub(crate) fn pause(self, idle_ns: u64, in_flight: bool) -> Pause {
        match (idle_ns < self.spin_ns, in_flight) {
            (true, _) => Pause::Spin,
            (false, true) => Pause::Nap(NAP),
            (false, false) => Pause::Sleep,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polling_comes_before_napping_and_sleeping() {
        let policy = PollPolicy::new(80);
        assert_eq!((policy.pause(79_999, false), policy.pause(79_999, true)), (Pause::Spin, Pause::Spin));
        assert_eq!((policy.pause(80_000, false), policy.pause(80_000, true)), (Pause::Sleep, Pause::Nap(NAP)));
        assert_eq!(PollPolicy::new(0).pause(0, false), Pause::Sleep);
        assert_eq!((PollPolicy::default_spin_us(2), PollPolicy::default_spin_us(8)), (80, 1_500));
        assert_eq!(PollPolicy::allowed_spin_us(u64::MAX), 1_000_000);
    }
}
