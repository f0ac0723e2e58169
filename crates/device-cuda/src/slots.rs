//! Driver streams, and what is in flight in each. Pure bookkeeping: time and words come from the caller.
//!
//! A client's stream is bound to a slot while it has work in flight. Marks are numbers that grow: work is over when its mark is reached. A mark is reached when
//! the stream has written its number into the slot's word, or, behind a chain, when the chain's own word is set. Invariant: marks of a slot's flights grow from
//! front to back, and no chain is launched again before the slot has seen its word.

use crate::context::PartitionId;
use crate::dispatch::LONG_NS;
use crate::driver::Stream;
use cumux_device::{ClientId, StreamId};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Until a kernel begins on an idle stream, and until we see that it is over: not its own time.
const LATENCY_NS: u64 = 5_000;
/// Slots of one kind before streams have to share one.
const EACH: usize = 48;

/// Work that the driver has.
#[derive(Debug, Clone)]
pub(crate) struct Flight {
    pub client: ClientId,
    pub stream: StreamId,
    pub token: u64,
    pub mark: u64,
    /// Expected nanoseconds.
    pub weight: u64,
    /// Kernel's number, for learning how long it takes; 0 if it is none.
    pub kernel: u64,
    pub prints: bool,
    /// It has a block for every multiprocessor, and takes long: whatever comes meanwhile may have to wait for a place.
    pub fills: bool,
    /// The client was stopped or closed and has been told.
    pub reported: bool,
}

impl Flight {
    /// A kernel that is expected to take long.
    pub(crate) fn is_long(&self) -> bool {
        self.kernel != 0 && self.weight >= LONG_NS
    }
}

/// Partition and priority: streams of one kind are alike.
pub(crate) type Kind = (PartitionId, i32);

pub(crate) struct Slot {
    pub stream: Stream,
    pub flights: VecDeque<Flight>,
    /// Last mark that was given to the stream, and the last that was seen.
    pub issued: u64,
    pub reached: u64,
    /// Marks that were not seen, and the chain's word that shows them (none: the slot's).
    marks: VecDeque<(u64, Option<usize>)>,
    /// Expected nanoseconds of all flights.
    pub weight: u64,
    /// Flights and their weight behind that mark.
    pub unmarked: u32,
    pub unmarked_ns: u64,
    /// When the front flight began to run, as far as we know (nanoseconds).
    pub since: u64,
    /// Client streams bound to it.
    bound: u32,
    kind: Kind,
}

impl Slot {
    /// A flight more. It gets the next mark.
    pub(crate) fn push(&mut self, mut flight: Flight, now: u64) {
        if self.flights.is_empty() {
            self.since = now + LATENCY_NS;
        }
        self.weight += flight.weight;
        flight.mark = self.issued + 1;
        self.unmarked += 1;
        self.unmarked_ns += flight.weight;
        self.flights.push_back(flight);
    }

    /// The stream was given the mark `issued + 1`; a chain's word shows when it is reached, or the slot's own.
    pub(crate) fn marked(&mut self, word: Option<usize>) {
        self.issued += 1;
        self.marks.push_back((self.issued, word));
        self.unmarked = 0;
        self.unmarked_ns = 0;
    }

    /// The last mark that was reached: `own` is the slot's word, `load` reads those of chains.
    pub(crate) fn look(&mut self, own: u64, load: impl Fn(usize) -> u64) -> u64 {
        while let Some((mark, word)) = self.marks.front()
            && word.map_or(own >= *mark, |word| load(word) != 0)
        {
            self.reached = *mark;
            self.marks.pop_front();
        }
        self.reached
    }

    /// Whether the marks that were reached end everything in flight.
    pub(crate) fn retires_all(&self) -> bool {
        self.flights.back().is_none_or(|flight| flight.mark <= self.reached)
    }

    /// Everything is over, whatever the words say. The next mark is another one in any case.
    pub(crate) fn give_up_marks(&mut self) {
        if self.unmarked > 0 {
            self.marked(None);
        }
        self.marks.clear();
        self.reached = self.issued;
    }

    /// Whether something runs that was expected to take long, or that turns out to: longer than what has one mark with it was expected to.
    pub(crate) fn is_long(&self, now: u64) -> bool {
        let Some(front) = self.flights.front() else { return false };
        let together: u64 = self.flights.iter().take_while(|flight| flight.mark == front.mark).map(|flight| flight.weight).sum();
        now.saturating_sub(self.since) > together + LONG_NS || self.flights.iter().any(Flight::is_long)
    }

    /// Expected nanoseconds until everything is over.
    pub(crate) fn remaining(&self, now: u64) -> u64 {
        self.weight.saturating_sub(now.saturating_sub(self.since))
    }

    /// Takes what is over by the marks that were reached, with the nanoseconds that each took: the time since the last report, divided by weight.
    pub(crate) fn retire(&mut self, now: u64, over: &mut Vec<(Flight, u64)>) {
        let reached = self.reached;
        let count = self.flights.iter().take_while(|f| f.mark <= reached).count();
        if count == 0 {
            return;
        }
        let total: u64 = self.flights.iter().take(count).map(|f| f.weight.max(1)).sum();
        let spent = now.saturating_sub(self.since);
        self.since = now;
        for flight in self.flights.drain(..count) {
            self.weight -= flight.weight;
            let share = u128::from(spent) * u128::from(flight.weight.max(1)) / u128::from(total);
            over.push((flight, u64::try_from(share).unwrap_or(u64::MAX)));
        }
    }
}

#[derive(Default)]
pub(crate) struct Slots {
    pub slots: Vec<Slot>,
    free: FxHashMap<Kind, Vec<usize>>,
}

/// Where a client stream may go.
pub(crate) enum Place {
    At(usize),
    /// A new driver stream of this kind should be made and given to [`Slots::add`].
    New,
    /// There are too many already, and none of this kind.
    Full,
}

impl Slots {
    /// A slot of this kind with nothing in it, or a new one, or, when there are many, the one with the fewest streams. `room`: more slots may be made.
    pub(crate) fn place(&self, kind: Kind, room: bool) -> Place {
        if let Some(at) = self.free.get(&kind).and_then(|free| free.last()) {
            return Place::At(*at);
        }
        let alike = || self.slots.iter().enumerate().filter(|(_, s)| s.kind == kind);
        match alike().min_by_key(|(_, s)| s.bound) {
            Some((at, _)) if alike().count() >= EACH || !room => Place::At(at),
            _ if room => Place::New,
            _ => Place::Full,
        }
    }

    /// The partition of a slot's stream.
    pub(crate) fn partition(&self, slot: usize) -> PartitionId {
        self.slots.get(slot).map_or(PartitionId::WHOLE_CARD, |slot| slot.kind.0)
    }

    pub(crate) fn add(&mut self, kind: Kind, stream: Stream) -> usize {
        self.slots.push(Slot {
            stream,
            flights: VecDeque::new(),
            issued: 0,
            reached: 0,
            marks: VecDeque::new(),
            weight: 0,
            unmarked: 0,
            unmarked_ns: 0,
            since: 0,
            bound: 0,
            kind,
        });
        let at = self.slots.len() - 1;
        self.free.entry(kind).or_default().push(at);
        at
    }

    pub(crate) fn bind(&mut self, at: usize) {
        let slot = &mut self.slots[at];
        slot.bound += 1;
        if slot.bound == 1
            && let Some(free) = self.free.get_mut(&slot.kind)
            && let Some(place) = free.iter().rposition(|f| *f == at)
        {
            free.swap_remove(place);
        }
    }

    pub(crate) fn unbind(&mut self, at: usize) {
        let slot = &mut self.slots[at];
        slot.bound -= 1;
        if slot.bound == 0 {
            self.free.entry(slot.kind).or_default().push(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: Kind = (PartitionId::WHOLE_CARD, 0);

    fn stream() -> Stream {
        Stream::none()
    }

    fn flight(token: u64, weight: u64) -> Flight {
        Flight { client: 1, stream: StreamId(1), token, mark: 0, weight, kernel: 0, prints: false, fills: false, reported: false }
    }

    #[test]
    fn work_retires_in_order_when_its_mark_is_reached() {
        let mut slots = Slots::default();
        let at = slots.add(WHOLE, stream());
        let slot = &mut slots.slots[at];
        slot.push(flight(1, 100), 1000);
        slot.push(flight(2, 300), 1500);
        slot.marked(None);
        slot.push(flight(3, 0), 1600);
        let mut over = Vec::new();
        assert_eq!(slot.look(0, |_| 0), 0);
        slot.retire(7000, &mut over);
        assert!(over.is_empty());
        slot.marked(Some(9));
        assert_eq!(slot.look(1, |_| 0), 1);
        slot.retire(10_000, &mut over);
        assert_eq!(over.iter().map(|(f, ns)| (f.token, *ns)).collect::<Vec<_>>(), [(1, 1000), (2, 3000)], "since it began, by weight");
        over.clear();
        assert_eq!(slot.look(1, |word| u64::from(word == 9)), 2, "the chain's own word");
        slot.retire(10_600, &mut over);
        assert_eq!(over.iter().map(|(f, ns)| (f.token, *ns)).collect::<Vec<_>>(), [(3, 600)]);
        assert!(slot.flights.is_empty() && slot.weight == 0);
    }

    #[test]
    fn streams_share_only_when_there_are_many() {
        let mut slots = Slots::default();
        let mut used = Vec::new();
        for _ in 0..EACH {
            assert!(matches!(slots.place(WHOLE, true), Place::New));
            let at = slots.add(WHOLE, stream());
            slots.bind(at);
            used.push(at);
        }
        let Place::At(shared) = slots.place(WHOLE, true) else { panic!("enough streams") };
        slots.bind(shared);
        assert!(matches!(slots.place((PartitionId::WHOLE_CARD, -1), true), Place::New), "another priority");
        assert!(matches!(slots.place((PartitionId::other(), 0), true), Place::New), "another partition");
        assert!(matches!(slots.place((PartitionId::other(), 0), false), Place::Full), "no room for its first");
        slots.unbind(used[3]);
        let Place::At(free) = slots.place(WHOLE, true) else { panic!("one is free") };
        assert_eq!(free == used[3], shared != used[3]);
    }
}
