//! A driver stream of the pool, and what is in flight in it. Pure bookkeeping: time and words come
//! from the caller. Times in nanoseconds.
//!
//! Invariant: the fences of a slot's flights grow from front to back.

use super::estimate::LONG_KERNEL_NS;
use super::fence::{FenceWord, Fences, ShownBy};
use super::flight::Flight;
use crate::context::PartitionId;
use crate::driver::Stream;
use std::collections::VecDeque;

/// Until a kernel begins on an idle stream, and until we see that it is over: not its own time.
const LATENCY_NS: u64 = 5_000;
/// A fence goes behind so many pieces of work at the latest.
const FENCE_PIECES: u32 = 64;
/// A fence goes behind so much expected work at the latest.
const FENCE_NS: u64 = 100_000;

/// Driver streams of one kind are alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct StreamKind {
    /// Where their kernels run.
    pub partition: PartitionId,
    /// Lower is more urgent.
    pub priority: i32,
}

/// A driver stream, and what is in flight in it.
pub(crate) struct StreamSlot {
    stream: Stream,
    flights: VecDeque<Flight>,
    fences: Fences,
    /// Expected time of all flights.
    expected_ns: u64,
    /// Flights behind the last fence.
    unfenced: u32,
    /// Their expected time.
    unfenced_ns: u64,
    /// When the front flight began to run, as far as we know.
    began: u64,
    /// Client streams bound to it.
    pub(super) bound: u32,
    /// What streams it is for.
    pub(super) kind: StreamKind,
}

impl StreamSlot {
    /// A slot with nothing in it.
    pub(super) fn new(kind: StreamKind, stream: Stream) -> StreamSlot {
        StreamSlot { stream, flights: VecDeque::new(), fences: Fences::default(), expected_ns: 0, unfenced: 0, unfenced_ns: 0, began: 0, bound: 0, kind }
    }

    /// The driver stream.
    pub(crate) fn stream(&self) -> Stream {
        self.stream
    }

    /// What is in flight, front first.
    pub(crate) fn flights(&self) -> impl Iterator<Item = &Flight> {
        self.flights.iter()
    }

    /// What is in flight, front first.
    pub(crate) fn flights_mut(&mut self) -> impl Iterator<Item = &mut Flight> {
        self.flights.iter_mut()
    }

    /// True if nothing is in flight.
    pub(crate) fn is_empty(&self) -> bool {
        self.flights.is_empty()
    }

    /// The last fence that was given to the stream.
    pub(crate) fn fence_issued(&self) -> u64 {
        self.fences.issued()
    }

    /// The last fence that was seen.
    pub(crate) fn fence_reached(&self) -> u64 {
        self.fences.reached()
    }

    /// The number of the next fence.
    pub(crate) fn next_fence(&self) -> u64 {
        self.fences.next()
    }

    /// Adds a flight. The next fence will end it.
    pub(super) fn add(&mut self, mut flight: Flight, now: u64) {
        if self.flights.is_empty() {
            self.began = now + LATENCY_NS;
        }
        self.expected_ns += flight.expected_ns;
        self.unfenced += 1;
        self.unfenced_ns += flight.expected_ns;
        flight.fence = self.fences.next();
        self.flights.push_back(flight);
    }

    /// The stream was given the next fence.
    pub(crate) fn add_fence(&mut self, shown_by: ShownBy) {
        self.fences.issue(shown_by);
        self.unfenced = 0;
        self.unfenced_ns = 0;
    }

    /// True if some work has no fence behind it yet.
    pub(crate) fn needs_fence(&self) -> bool {
        self.unfenced > 0
    }

    /// True if so much work has no fence behind it that one must come now.
    pub(crate) fn is_fence_due(&self) -> bool {
        self.unfenced >= FENCE_PIECES || self.unfenced_ns >= FENCE_NS
    }

    /// Sees what fences were reached and returns the last one. `own` is the slot's word, `load`
    /// reads those of chains.
    pub(super) fn poll(&mut self, own: u64, load: impl Fn(FenceWord) -> u64) -> u64 {
        self.fences.poll(own, load)
    }

    /// True if the fences that were reached end everything in flight.
    pub(super) fn is_all_reached(&self) -> bool {
        self.flights.back().is_none_or(|flight| flight.fence <= self.fences.reached())
    }

    /// Takes everything in flight as over, whatever the words say. The next fence has another
    /// number in any case.
    pub(super) fn give_up_fences(&mut self) {
        if self.needs_fence() {
            self.add_fence(ShownBy::Stream);
        }
        self.fences.give_up();
    }

    /// True if something runs that was expected to take long, or that turns out to: longer than all
    /// the work with the same fence was expected to.
    pub(super) fn runs_long(&self, now: u64) -> bool {
        let Some(front) = self.flights.front() else { return false };
        let together: u64 = self.flights.iter().take_while(|flight| flight.fence == front.fence).map(|flight| flight.expected_ns).sum();
        now.saturating_sub(self.began) > together + LONG_KERNEL_NS || self.flights.iter().any(Flight::is_long)
    }

    /// Expected time until everything is over.
    pub(crate) fn remaining_ns(&self, now: u64) -> u64 {
        self.expected_ns.saturating_sub(now.saturating_sub(self.began))
    }

    /// Moves what is over by the fences that were reached into `over`, with the time that each
    /// took: the time since the last report, divided by what was expected.
    pub(super) fn retire(&mut self, now: u64, over: &mut Vec<(Flight, u64)>) {
        let reached = self.fences.reached();
        let count = self.flights.iter().take_while(|flight| flight.fence <= reached).count();
        if count == 0 {
            return;
        }
        let total: u64 = self.flights.iter().take(count).map(|flight| flight.expected_ns.max(1)).sum();
        let spent = now.saturating_sub(self.began);
        self.began = now;
        for flight in self.flights.drain(..count) {
            self.expected_ns -= flight.expected_ns;
            let share = u128::from(spent) * u128::from(flight.expected_ns.max(1)) / u128::from(total);
            over.push((flight, u64::try_from(share).unwrap_or(u64::MAX)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::flight::{FlightWork, Footprint, Reporting};
    use super::*;
    use cumux_device::StreamId;

    const KIND: StreamKind = StreamKind { partition: PartitionId::WHOLE_CARD, priority: 0 };

    fn flight(token: u64, expected_ns: u64) -> Flight {
        Flight { client: 1, stream: StreamId(1), token, fence: 0, expected_ns, work: FlightWork::Transfer, reporting: Reporting::Due }
    }

    #[test]
    fn work_retires_in_order_when_its_fence_is_reached() {
        let mut slot = StreamSlot::new(KIND, Stream::none());
        slot.add(flight(1, 100), 1000);
        slot.add(flight(2, 300), 1500);
        slot.add_fence(ShownBy::Stream);
        slot.add(flight(3, 0), 1600);
        let mut over = Vec::new();
        assert_eq!(slot.poll(0, |_| 0), 0);
        slot.retire(7000, &mut over);
        assert!(over.is_empty());
        slot.add_fence(ShownBy::Chain(FenceWord(9)));
        assert_eq!(slot.poll(1, |_| 0), 1);
        slot.retire(10_000, &mut over);
        assert_eq!(over.iter().map(|(f, ns)| (f.token, *ns)).collect::<Vec<_>>(), [(1, 1000), (2, 3000)], "since it began, by weight");
        over.clear();
        assert!(!slot.is_all_reached());
        assert_eq!(slot.poll(1, |word| u64::from(word == FenceWord(9))), 2, "the chain's own word");
        slot.retire(10_600, &mut over);
        assert_eq!(over.iter().map(|(f, ns)| (f.token, *ns)).collect::<Vec<_>>(), [(3, 600)]);
        assert!(slot.is_empty() && slot.expected_ns == 0);
    }

    #[test]
    fn a_lost_fence_is_given_up() {
        let mut slot = StreamSlot::new(KIND, Stream::none());
        slot.add(flight(1, 10), 0);
        slot.add_fence(ShownBy::Stream);
        slot.add(flight(2, 10), 0);
        slot.give_up_fences();
        assert!(slot.is_all_reached() && !slot.needs_fence());
        assert_eq!((slot.fence_issued(), slot.fence_reached(), slot.next_fence()), (2, 2, 3));
    }

    #[test]
    fn long_work_is_seen_before_and_after_it_is_known() {
        let mut slot = StreamSlot::new(KIND, Stream::none());
        assert!(!slot.runs_long(u64::MAX));
        let kernel = FlightWork::Kernel { id: 4, prints: false, footprint: Footprint::Partial };
        slot.add(Flight { work: kernel, ..flight(1, 1000) }, 0);
        assert!(!slot.runs_long(LATENCY_NS + 1000 + LONG_KERNEL_NS));
        assert!(slot.runs_long(LATENCY_NS + 1001 + LONG_KERNEL_NS), "it turns out to be");
        slot.add(Flight { work: kernel, ..flight(2, LONG_KERNEL_NS) }, 0);
        assert!(slot.runs_long(0), "it is expected to be");
    }

    #[test]
    fn fences_are_due_after_much_work_or_long_work() {
        let mut slot = StreamSlot::new(KIND, Stream::none());
        slot.add(flight(1, FENCE_NS - 1), 0);
        assert!(slot.needs_fence() && !slot.is_fence_due());
        slot.add(flight(2, 1), 0);
        assert!(slot.is_fence_due());
        slot.add_fence(ShownBy::Stream);
        (0..FENCE_PIECES).for_each(|token| slot.add(flight(token.into(), 0), 0));
        assert!(slot.is_fence_due());
    }
}
