//! An engine's clock, read once a round and after slow calls of the driver.

use std::time::Instant;

/// Nanoseconds since an engine's start.
#[derive(Debug)]
pub(crate) struct Clock {
    started: Instant,
    now: u64,
}

impl Clock {
    /// A clock that starts now, at 0.
    pub(crate) fn start() -> Clock {
        Clock { started: Instant::now(), now: 0 }
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
