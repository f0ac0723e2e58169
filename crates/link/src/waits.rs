//! How long moves and upgrades may take: one derivation for the server that does the work and the
//! daemon that waits for its answer.
//!
//! Invariant: each wait is the sum of the waits inside it and something more. So whoever does the
//! work reaches its own deadline first, and says what happened; whoever waits outside hears it.

use std::time::Duration;

/// How long a client that is moved by command may be paused, in milliseconds.
pub const MOVE_WAIT: &str = "CUMUX_MOVE_WAIT_MS";
/// How long an upgrade waits for clients whose work does not end, in milliseconds.
pub const UPGRADE_WAIT: &str = "CUMUX_UPGRADE_WAIT_MS";

/// What an outer wait has more than the inner one: time for messages on a busy machine.
const MARGIN: Duration = Duration::from_secs(10);
/// The longest wait that can be set. Sums of it are far from what a clock can hold.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// The waits from which all others are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waits {
    /// How long a client that is moved by command may be paused.
    pub pause: Duration,
    /// How long an upgrade waits for clients whose work does not end.
    pub upgrade: Duration,
    /// How long a new process may take to come up, and an executor to take over.
    pub start: Duration,
    /// How long a new server waits for the processes of the one before.
    pub rebuild: Duration,
    /// How long a new keeper may take to come up and take all descriptors.
    pub keeper: Duration,
}

impl Default for Waits {
    fn default() -> Self {
        Self {
            pause: Duration::from_secs(2),
            upgrade: Duration::from_secs(20),
            start: Duration::from_secs(60),
            rebuild: Duration::from_secs(5),
            keeper: Duration::from_secs(10),
        }
    }
}

impl Waits {
    /// As the environment says.
    #[must_use]
    pub fn from_environment() -> Self {
        let set = |name| cumux_environment::number_or_none(name).map(|ms| Duration::from_millis(ms).min(LONGEST));
        let default = Self::default();
        Self { pause: set(MOVE_WAIT).unwrap_or(default.pause), upgrade: set(UPGRADE_WAIT).unwrap_or(default.upgrade), ..default }
    }

    /// The server's wait for one move: the other executor comes up, the session leaves, and the
    /// other executor takes it.
    #[must_use]
    pub fn one_move(&self) -> Duration {
        self.start * 2 + self.pause
    }

    /// The daemon's wait for the server's answer to a move.
    #[must_use]
    pub fn answer_to_move(&self) -> Duration {
        self.one_move() + MARGIN
    }

    /// The server's wait for executors of the new program, and for sessions that are on their way
    /// when [`Waits::upgrade`] is over.
    #[must_use]
    pub fn executors(&self) -> Duration {
        self.upgrade + self.one_move()
    }

    /// The daemon's wait for the server's answer to an upgrade.
    #[must_use]
    pub fn answer_to_upgrade(&self) -> Duration {
        self.executors() + self.keeper + MARGIN
    }

    /// The daemon's wait for the next server, which finds the processes of the one before and may
    /// have to start an executor.
    #[must_use]
    pub fn next_server(&self) -> Duration {
        self.rebuild + self.start + MARGIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_outside_waits_longer() {
        let seconds = [0, 1, 60, 24 * 60 * 60].map(Duration::from_secs);
        for (pause, upgrade) in seconds.into_iter().flat_map(|pause| seconds.map(|upgrade| (pause, upgrade))) {
            let waits = Waits { pause, upgrade, ..Waits::default() };
            assert!(waits.one_move() >= waits.pause + waits.start);
            assert!(waits.answer_to_move() > waits.one_move());
            assert!(waits.executors() > waits.upgrade);
            assert!(waits.answer_to_upgrade() > waits.executors() + waits.keeper);
            assert!(waits.next_server() > waits.rebuild + waits.start);
        }
    }
}
