//! An engine's clock. The engine reads the time once a round, and after calls of the driver.

use std::time::Instant;

/// The time since an engine's start, in nanoseconds.
#[derive(Debug)]
pub(crate) struct Clock {
    started: Instant,
    now: u64,
}

impl Clock {
    /// A clock that starts at 0 now.
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
