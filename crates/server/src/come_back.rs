//! When a client that keeps its executor for itself is asked to come back.
//!
//! A client whose kernels run for long is left alone by all others each time somebody waits for a
//! quiet card (decision 0114). That costs a takeover, and the executor that stood by. So a client
//! that is left alone again soon after it came back stays apart for twice as long each time.

use std::time::{Duration, Instant};

/// How long it stays apart at first.
pub(crate) const COME_BACK_FIRST: Duration = Duration::from_secs(1);
/// How long it stays apart at most.
const LONGEST: Duration = Duration::from_secs(64);
/// It is left alone *again* if that happens within so many times its last stay.
const SOON: u32 = 8;

/// A client's stays in executors apart.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ComeBack {
    /// When it was last left alone, and how long it was to stay.
    last: Option<(Instant, Duration)>,
}

impl ComeBack {
    /// It is left alone now. When it is asked to come back.
    pub(crate) fn after_leaving(&mut self, now: Instant) -> Instant {
        let wait = match self.last {
            Some((since, wait)) if now < since + wait * SOON => (wait * 2).min(LONGEST),
            _ => COME_BACK_FIRST,
        };
        self.last = Some((now, wait));
        now + wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_left_alone_again_and_again_stays_for_longer() {
        let (mut stays, mut now) = (ComeBack::default(), Instant::now());
        let mut waits = Vec::new();
        for _ in 0..9 {
            let back = stays.after_leaving(now);
            waits.push((back - now).as_secs());
            // Somebody loads a module half a second after it has come back.
            now = back + Duration::from_millis(500);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
        now += LONGEST * SOON;
        assert_eq!(stays.after_leaving(now), now + COME_BACK_FIRST, "it has changed its ways");
    }
}
