//! An engine's clock. The engine reads the time once a round, and after calls of the driver. All
//! engines of a card count from the same moment: one may have to take in the work of others.

use std::time::Instant;

/// The time since a card was opened, in nanoseconds.
#[derive(Debug)]
pub(crate) struct Clock {
    started: Instant,
    now: u64,
}

impl Clock {
    /// A clock that was at 0 then.
    pub(crate) fn since(started: Instant) -> Clock {
        Clock { started, now: 0 }
    }

    /// Reads the time.
    pub(crate) fn tick(&mut self) {
        self.now = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
    }

    /// The time as of the last [`Clock::tick`].
    pub(crate) fn now(&self) -> u64 {
        self.now
    }
}
