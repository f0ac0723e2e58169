//! A slot of the pool: one driver stream, and the work in flight in it. Pure bookkeeping: the
//! caller reads the time and the words. Times are in nanoseconds.
//!
//! Invariant: the numbers of the flights' fences grow from front to back.

use super::estimate::LONG_KERNEL_NS;
use super::fence::{FenceWord, Fences, ShownBy};
use super::flight::Flight;
use crate::context::PartitionId;
use crate::driver::Stream;
use std::collections::VecDeque;

/// Most pieces of work before a fence is submitted.
const FENCE_PIECES: u32 = 64;
/// Most expected time of work before a fence is submitted.
const FENCE_NS: u64 = 100_000;

/// What distinguishes driver streams. Client streams of a kind may use any driver stream of that
/// kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct StreamKind {
    /// The SMs on which their kernels run.
    pub partition: PartitionId,
    /// Lower is more urgent.
    pub priority: i32,
}

/// A driver stream, and the work in flight in it.
pub(crate) struct StreamSlot {
    stream: Stream,
    flights: VecDeque<Flight>,
    fences: Fences,
    /// The expected time of all flights.
    expected_ns: u64,
    /// The number of flights after the last fence.
    unfenced: u32,
    /// The expected time of the flights after the last fence.
    unfenced_ns: u64,
    /// When the front flight began to run, as far as is known.
    began: u64,
    /// The number of client streams bound to the slot.
    pub(super) bound: u32,
    /// The kind of the driver stream.
    pub(super) kind: StreamKind,
}

impl StreamSlot {
    /// A slot without work.
    pub(super) fn new(kind: StreamKind, stream: Stream) -> StreamSlot {
        StreamSlot { stream, flights: VecDeque::new(), fences: Fences::default(), expected_ns: 0, unfenced: 0, unfenced_ns: 0, began: 0, bound: 0, kind }
    }

    /// The driver stream.
    pub(crate) fn stream(&self) -> Stream {
        self.stream
    }

    /// The flights, oldest first.
    pub(crate) fn flights(&self) -> impl Iterator<Item = &Flight> {
        self.flights.iter()
    }

    /// The flights, oldest first.
    pub(crate) fn flights_mut(&mut self) -> impl Iterator<Item = &mut Flight> {
        self.flights.iter_mut()
    }

    /// True if nothing is in flight.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.flights.is_empty()
    }

    /// The last fence that was submitted to the stream.
    pub(crate) fn fence_issued(&self) -> u64 {
        self.fences.issued()
    }

    /// The last fence that was seen reached.
    pub(crate) fn fence_reached(&self) -> u64 {
        self.fences.reached()
    }

    /// The number of the next fence.
    pub(crate) fn next_fence(&self) -> u64 {
        self.fences.next()
    }

    /// Adds work that was submitted to the stream, and can begin at that time if the stream is
    /// idle. It completes with the next fence.
    #[inline]
    pub(super) fn add(&mut self, mut flight: Flight, begins: u64) {
        if self.flights.is_empty() {
            self.began = begins;
        }
        self.expected_ns += flight.expected_ns;
        self.unfenced += 1;
        self.unfenced_ns += flight.expected_ns;
        flight.fence = self.fences.next();
        self.flights.push_back(flight);
    }

    /// Notes that the next fence was submitted to the stream.
    pub(crate) fn add_fence(&mut self, shown_by: ShownBy) {
        self.fences.issue(shown_by);
        self.unfenced = 0;
        self.unfenced_ns = 0;
    }

    /// True if there is work after the last fence.
    pub(crate) fn needs_fence(&self) -> bool {
        self.unfenced > 0
    }

    /// True if there is so much work after the last fence that the next one must be submitted now.
    pub(crate) fn is_fence_due(&self) -> bool {
        self.unfenced >= FENCE_PIECES || self.unfenced_ns >= FENCE_NS
    }

    /// Checks which fences are reached, and returns the last of them. `own` is the value of the
    /// slot's word, and `load` reads the word of a chain.
    pub(super) fn poll(&mut self, own: u64, load: impl Fn(FenceWord) -> u64) -> u64 {
        self.fences.poll(own, load)
    }

    /// True if all flights are complete by the fences that were seen reached.
    pub(super) fn is_all_reached(&self) -> bool {
        self.flights.back().is_none_or(|flight| flight.fence <= self.fences.reached())
    }

    /// Treats all flights as complete, whatever the words say. The next fence has a new number in
    /// any case.
    pub(super) fn give_up_fences(&mut self) {
        if self.needs_fence() {
            self.add_fence(ShownBy::Stream);
        }
        self.fences.give_up();
    }

    /// True if a long kernel runs: one that was expected to be long, or work that has run for
    /// longer than a long kernel beyond what all work up to the same fence was expected to take.
    pub(super) fn runs_long(&self, now: u64) -> bool {
        let Some(front) = self.flights.front() else { return false };
        let together: u64 = self.flights.iter().take_while(|flight| flight.fence == front.fence).map(|flight| flight.expected_ns).sum();
        now.saturating_sub(self.began) > together + LONG_KERNEL_NS || self.flights.iter().any(Flight::is_long)
    }

    /// Nanoseconds for which the stream has not moved: since its front flight began or the one
    /// before ended.
    pub(crate) fn still_ns(&self, now: u64) -> u64 {
        now.saturating_sub(self.began)
    }

    /// The expected time until all flights are complete.
    pub(crate) fn remaining_ns(&self, now: u64) -> u64 {
        self.expected_ns.saturating_sub(now.saturating_sub(self.began))
    }

    /// Moves the flights that are complete into `over`, with the time that each took. The time
    /// since the last such flights is divided among these in proportion to their estimates.
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
            let share = share_of(spent, flight.expected_ns.max(1), total);
            over.push((flight, share));
        }
    }
}

/// The part of `spent` that falls to `weight` of `total` weights.
#[inline]
fn share_of(spent: u64, weight: u64, total: u64) -> u64 {
    // Dividing twice as long numbers takes as long as the rest of this.
    let Some(product) = spent.checked_mul(weight) else {
        return u64::try_from(u128::from(spent) * u128::from(weight) / u128::from(total)).unwrap_or(u64::MAX);
    };
    product / total
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
        slot.add(flight(1, 100), 6000);
        slot.add(flight(2, 300), 6500);
        slot.add_fence(ShownBy::Stream);
        slot.add(flight(3, 0), 6600);
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
        let kernel = FlightWork::Kernel { id: 4, prints: false, footprint: Footprint::Partial, measured: true };
        slot.add(Flight { work: kernel, ..flight(1, 1000) }, 0);
        assert!(!slot.runs_long(1000 + LONG_KERNEL_NS));
        assert!(slot.runs_long(1001 + LONG_KERNEL_NS), "it turns out to be");
        slot.add(Flight { work: kernel, ..flight(2, LONG_KERNEL_NS) }, 0);
        assert!(slot.runs_long(0), "it is expected to be");
        let mut slot = StreamSlot::new(KIND, Stream::none());
        let unknown = FlightWork::Kernel { id: 5, prints: false, footprint: Footprint::Partial, measured: false };
        slot.add(Flight { work: unknown, ..flight(1, 1000) }, 0);
        assert!(slot.runs_long(0), "it may not end at all");
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

    #[test]
    fn a_share_is_right_where_the_product_is_too_long_for_64_bits() {
        assert_eq!((share_of(900, 1, 3), share_of(0, 5, 7), share_of(7, 7, 7)), (300, 0, 7));
        assert_eq!(share_of(u64::MAX, 3, 4), u64::MAX / 4 * 3 + 2, "rounded down");
        assert_eq!(share_of(u64::MAX, u64::MAX, 1), u64::MAX, "never more than fits");
    }
}
