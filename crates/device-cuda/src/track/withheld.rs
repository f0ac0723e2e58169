//! Work that is seen complete while the whole card stands still.
//!
//! A kernel may end although it has faulted: its store is refused when the warp is over. The driver
//! notices the fault 50 to 400 ms later, and the card stands still from the store on (measured:
//! decision 0120). The client would be told that all is well, and its end would keep the driver
//! from noticing. So what is seen complete after a silence of the card that is longer than usual is
//! told only when the card moves again. If a fault is announced first, it waits for the verdict.
//! That the work of another engine has ended once is no motion: in a faulted context a few kernels
//! still end, and not all of them in the same engine.
//!
//! ```text
//!          work ends after an unusual silence          MOMENTS of motion, or HELD_NS
//! Telling ──────────────────────────────▶ Withholding ──────────────────────────────▶ Telling
//! ```

use super::Flight;
use super::motion::{MOMENT_NS, MOMENTS};
use cumux_device::ClientId;
use std::collections::BTreeSet;

/// What is held longer, in nanoseconds, was no culprit's: the fault would have been announced.
const HELD_NS: u64 = 600_000_000;

/// Completed work of an engine, as long as it is not told.
#[derive(Debug, Default)]
pub(crate) struct Withheld {
    /// All that is in flight has not moved for longer than usual, and it is that of several
    /// clients.
    is_silent: bool,
    held: Option<Held>,
}

#[derive(Debug)]
struct Held {
    flights: Vec<(Flight, u64)>,
    clients: BTreeSet<ClientId>,
    since: u64,
    /// How often work has ended since, and when the last time.
    moments: usize,
    moment: u64,
}

impl Withheld {
    /// Notes whether the card is silent, which holds for the next work that is seen complete.
    pub(crate) fn note_silence(&mut self, is_silent: bool) {
        self.is_silent = is_silent;
    }

    /// True if [`Withheld::sift`] has something to do.
    #[inline]
    pub(crate) fn may_hold(&self) -> bool {
        self.is_silent || self.held.is_some()
    }

    /// True if something is held.
    pub(crate) fn holds(&self) -> bool {
        self.held.is_some()
    }

    /// What has been seen complete at `now` is `over`. Leaves in it what is told: not what is
    /// withheld, and also what was and is no more. `of_others`: at how many moments since a time
    /// work of other engines of the card has ended.
    pub(crate) fn sift(&mut self, over: &mut Vec<(Flight, u64)>, now: u64, of_others: impl FnOnce(u64) -> usize) {
        if !over.is_empty() && self.is_silent && self.held.is_none() {
            let clients = over.iter().map(|(flight, _)| flight.client).collect();
            tracing::debug!(kernels = over.len(), ?clients, "work ends on a card that stands still: it is not told yet");
            self.held = Some(Held { flights: std::mem::take(over), clients, since: now, moments: 0, moment: now });
            return;
        }
        let Some(held) = &mut self.held else { return };
        if !over.is_empty() && now.saturating_sub(held.moment) >= MOMENT_NS {
            (held.moments, held.moment) = (held.moments + 1, now);
        }
        held.flights.extend(over.extract_if(.., |(flight, _)| held.clients.contains(&flight.client)));
        let others = of_others(held.since);
        if held.moments + others >= MOMENTS || now.saturating_sub(held.since) >= HELD_NS {
            tracing::debug!(others, moments = held.moments, held_us = now.saturating_sub(held.since) / 1000, "the work is told");
            over.splice(0..0, self.take());
        }
    }

    /// What is held, with the nanoseconds that it took.
    pub(crate) fn flights(&self) -> impl Iterator<Item = &(Flight, u64)> {
        self.held.iter().flat_map(|held| &held.flights)
    }

    /// What is held.
    pub(crate) fn flights_mut(&mut self) -> impl Iterator<Item = &mut Flight> {
        self.held.iter_mut().flat_map(|held| held.flights.iter_mut().map(|(flight, _)| flight))
    }

    /// What was held, which is no more.
    pub(crate) fn take(&mut self) -> Vec<(Flight, u64)> {
        self.is_silent = false;
        self.held.take().map_or_else(Vec::new, |held| held.flights)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::track::{FlightWork, Reporting};
    use cumux_device::StreamId;

    fn ended(client: u32, token: u64) -> (Flight, u64) {
        let flight = Flight { client, stream: StreamId(client), token, fence: 0, expected_ns: 0, work: FlightWork::Transfer, reporting: Reporting::Due };
        (flight, 0)
    }

    /// The tokens that are told of what has ended.
    fn told(withheld: &mut Withheld, now: u64, ended: Vec<(Flight, u64)>) -> Vec<u64> {
        let mut over = ended;
        withheld.sift(&mut over, now, |_| 0);
        over.iter().map(|(flight, _)| flight.token).collect()
    }

    #[test]
    fn nothing_is_held_on_a_card_that_moves() {
        let mut withheld = Withheld::default();
        assert_eq!(told(&mut withheld, 0, vec![ended(1, 1), ended(2, 2)]), [1, 2]);
        withheld.note_silence(true);
        withheld.note_silence(false);
        assert_eq!(told(&mut withheld, 5, vec![ended(1, 3)]), [3]);
        assert!(!withheld.holds());
    }

    /// A kernel of one client ends, and nothing moves afterwards: the fault is announced, and all
    /// that was held waits for the verdict.
    #[test]
    fn what_ends_after_a_silence_waits_for_the_verdict() {
        let mut withheld = Withheld::default();
        withheld.note_silence(true);
        assert_eq!(told(&mut withheld, 0, vec![ended(1, 1)]), [0; 0]);
        // The copy of its result.
        assert_eq!(told(&mut withheld, 1_000, vec![ended(1, 2)]), [0; 0]);
        assert_eq!(told(&mut withheld, HELD_NS - 1, Vec::new()), [0; 0]);
        assert!(withheld.holds());
        assert_eq!(withheld.take().iter().map(|(flight, _)| flight.token).collect::<Vec<_>>(), [1, 2]);
        assert!(!withheld.holds());
    }

    /// A long kernel ends for which all others have waited. They are told, and a moment later its
    /// client is, in order.
    #[test]
    fn on_a_card_that_moves_again_all_is_told() {
        let mut withheld = Withheld::default();
        withheld.note_silence(true);
        told(&mut withheld, 0, vec![ended(1, 1)]);
        for moment in 1..MOMENTS as u64 {
            assert_eq!(told(&mut withheld, moment * MOMENT_NS, vec![ended(2, 10 + moment), ended(1, 1 + moment)]), [10 + moment]);
            // At the same moment.
            assert_eq!(told(&mut withheld, moment * MOMENT_NS + 1, vec![ended(3, 30)]), [30]);
        }
        assert!(withheld.holds());
        let now = MOMENTS as u64 * MOMENT_NS;
        assert_eq!(told(&mut withheld, now, vec![ended(2, 20)]), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20]);
        assert!(!withheld.holds());
    }

    /// Measured on an H100: a culprit's kernel ended in one engine and an innocent's in the other,
    /// 0.2 ms apart. Each engine took that for motion, and the culprit was told success.
    #[test]
    fn motion_of_another_engine_counts_if_it_is_some_and_nothing_is_held_for_ever() {
        let mut withheld = Withheld::default();
        for (now, others, is_told) in [(1, 1, false), (2, MOMENTS - 1, false), (3, MOMENTS, true), (HELD_NS, 0, true)] {
            if !withheld.holds() {
                withheld.note_silence(true);
                assert_eq!(told(&mut withheld, 0, vec![ended(1, 1)]), [0; 0]);
            }
            let mut over = Vec::new();
            withheld.sift(&mut over, now, |since| {
                assert_eq!(since, 0, "those before are not asked for");
                others
            });
            assert_eq!(over.len(), usize::from(is_told), "{now} {others}");
        }
    }
}
