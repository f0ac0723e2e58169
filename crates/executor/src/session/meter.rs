//! What is counted of a client beside its kernels: where it waited, how often and for how long.
//! Cheap: additions under the session's lock, and the clock is read only when a stretch of waiting
//! begins or ends, never for a record.
//!
//! The totals lie in the journal after every batch of completions, so that they go on under the
//! next executor.

use super::{Inner, Session, now_ns};
use cumux_device::ClientCounters;
use cumux_wire::layout::journal::COUNTERS;
use cumux_wire::message::ClientStatus;

/// Kernels between two looks at what the device has counted, for the journal's sake; a status looks
/// in any case.
const LOOK_EVERY: u64 = 4096;

/// Which of the totals says how the session came to its executors: takeovers in the low half, moves
/// above them, and whether it has left the last one in order.
const ARRIVALS: usize = COUNTERS - 1;
const MOVES_FROM: u32 = 32;
const LEFT_IN_ORDER: u64 = 1 << 63;

fn arrivals(status: &ClientStatus) -> u64 {
    u64::from(status.takeovers) | u64::from(status.moves & (u32::MAX >> 1)) << MOVES_FROM
}

fn low(word: u64) -> u32 {
    u32::try_from(word & u64::from(u32::MAX)).unwrap_or(u32::MAX)
}

/// Time that comes in stretches: how many, and how long together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stretch {
    times: u64,
    /// Nanoseconds of those that are over.
    ns: u64,
    /// When the present one began.
    since: Option<u64>,
}

impl Stretch {
    /// One begins, unless one is under way.
    pub fn begin(&mut self, clock: impl FnOnce() -> u64) {
        if self.since.is_none() {
            self.since = Some(clock());
            self.times += 1;
        }
    }

    /// The present one ends, if there is one.
    pub fn end(&mut self, clock: impl FnOnce() -> u64) {
        if let Some(since) = self.since.take() {
            self.ns += clock().saturating_sub(since);
        }
    }

    /// Number and nanoseconds, with the one that is under way.
    #[must_use]
    pub fn total(&self, clock: impl FnOnce() -> u64) -> (u64, u64) {
        (self.times, self.ns + self.since.map_or(0, |since| clock().saturating_sub(since)))
    }
}

#[derive(Debug, Default)]
pub struct Meter {
    /// Records that wanted an answer.
    pub requests: u64,
    /// Slow ones.
    pub request: Stretch,
    /// The bound on work in flight held something back.
    pub held: Stretch,
    /// The journal was full.
    pub stall: Stretch,
    /// What devices of earlier executors had counted.
    before: ClientCounters,
    /// What this one's had, when last looked at.
    device: ClientCounters,
    /// Kernels at that time, in units of [`LOOK_EVERY`].
    looked_at: u64,
}

impl Meter {
    /// Adds what is counted here to a status.
    fn fill(&self, status: &mut ClientStatus) {
        let now = now_ns();
        status.requests = self.requests;
        (_, status.request_ns) = self.request.total(|| now);
        (status.held, status.held_ns) = self.held.total(|| now);
        (status.stalls, status.stall_ns) = self.stall.total(|| now);
        let device = self.before.plus(self.device);
        (status.coalesced, status.quiets, status.quiet_ns, status.registrations) = (device.coalesced, device.quiets, device.quiet_ns, device.registrations);
    }
}

impl Session {
    /// Leaves the totals in the journal. Once a batch.
    pub(crate) fn save_counters(&self, inner: &mut Inner) {
        let looks = inner.status.kernels / LOOK_EVERY;
        if looks != inner.meter.looked_at {
            inner.meter.looked_at = looks;
            inner.meter.device = self.shared.cards.client_counters(self.client());
        }
        let (m, s) = (&inner.meter, &inner.status);
        let d = m.before.plus(m.device);
        let counters: [u64; COUNTERS] = [
            s.kernels,
            s.copies,
            s.gpu_ns,
            s.memory_peak,
            m.requests,
            m.request.times,
            m.request.ns,
            m.held.times,
            m.held.ns,
            m.stall.times,
            m.stall.ns,
            d.coalesced,
            d.quiets,
            d.quiet_ns,
            d.registrations,
            arrivals(s),
        ];
        inner.journal.set_counters(&counters);
    }

    /// Goes on with the totals of the executor before this one.
    pub(crate) fn restore_counters(&self, inner: &mut Inner) {
        let [
            kernels,
            copies,
            gpu_ns,
            memory_peak,
            requests,
            slow,
            slow_ns,
            held,
            held_ns,
            stalls,
            stall_ns,
            coalesced,
            quiets,
            quiet_ns,
            registrations,
            arrivals,
        ] = inner.journal.counters();
        let s = &mut inner.status;
        (s.kernels, s.copies, s.gpu_ns, s.memory_peak) = (kernels, copies, gpu_ns, memory_peak);
        (s.takeovers, s.moves) = (low(arrivals), low(arrivals >> MOVES_FROM) & (u32::MAX >> 1));
        let stretch = |times, ns| Stretch { times, ns, since: None };
        inner.meter = Meter {
            requests,
            request: stretch(slow, slow_ns),
            held: stretch(held, held_ns),
            stall: stretch(stalls, stall_ns),
            before: ClientCounters { coalesced, quiets, quiet_ns, registrations },
            ..Meter::default()
        };
    }

    /// Counts that this executor has the session which another one had before: it has moved here,
    /// or was taken over.
    pub(crate) fn count_arrival(&self, inner: &mut Inner) {
        let has_moved = inner.journal.counters()[ARRIVALS] & LEFT_IN_ORDER != 0;
        let count = if has_moved { &mut inner.status.moves } else { &mut inner.status.takeovers };
        *count = count.saturating_add(1);
        self.save_counters(inner);
    }

    /// Writes down that the session has left in order: whoever has it next has not taken over.
    /// Nothing is counted afterwards.
    pub(crate) fn note_departure(&self, inner: &Inner) {
        let mut counters = inner.journal.counters();
        counters[ARRIVALS] |= LEFT_IN_ORDER;
        inner.journal.set_counters(&counters);
    }

    /// What is known of the client now, with what the device has counted.
    pub(crate) fn status_of(&self, inner: &mut Inner, device: ClientCounters) -> ClientStatus {
        inner.meter.device = device;
        self.save_counters(inner);
        let mut status = inner.status.clone();
        inner.meter.fill(&mut status);
        (status.waits, status.wait_ns) = self.service.waits();
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_is_counted_once_and_its_time_goes_on() {
        let mut stretch = Stretch::default();
        stretch.end(|| panic!("the clock is not read for nothing"));
        stretch.begin(|| 100);
        stretch.begin(|| panic!("nor here"));
        assert_eq!(stretch.total(|| 130), (1, 30), "while it lasts");
        stretch.end(|| 150);
        assert_eq!(stretch.total(|| panic!("nor here")), (1, 50));
        stretch.begin(|| 200);
        stretch.end(|| 199);
        assert_eq!(stretch.total(|| 0), (2, 50), "a clock that goes back takes nothing away");
    }
}
