//! The pool of driver streams. A client's stream is bound to one while it has work in flight.

use super::slot::{StreamKind, StreamSlot};
use crate::context::PartitionId;
use crate::driver::Stream;
use rustc_hash::FxHashMap;

/// Driver streams of one kind before client streams have to share one.
const STREAMS_OF_A_KIND: usize = 48;
/// Most driver streams of an engine.
pub(super) const MOST_STREAMS: usize = 1024;

/// A slot of the pool, by its number.
pub(crate) type SlotIndex = usize;

/// Where a client stream may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotChoice {
    /// To this slot.
    Existing(SlotIndex),
    /// To a new driver stream of its kind, which is given to [`StreamPool::add`].
    New,
    /// Nowhere: there are too many already, and none of its kind.
    Full,
}

/// The driver streams of an engine.
#[derive(Default)]
pub(crate) struct StreamPool {
    slots: Vec<StreamSlot>,
    /// Slots without a client stream.
    free: FxHashMap<StreamKind, Vec<SlotIndex>>,
}

impl StreamPool {
    /// A slot.
    pub(super) fn slot(&self, at: SlotIndex) -> &StreamSlot {
        &self.slots[at]
    }

    /// A slot.
    pub(super) fn slot_mut(&mut self, at: SlotIndex) -> &mut StreamSlot {
        &mut self.slots[at]
    }

    /// The partition of a slot's stream.
    pub(super) fn partition(&self, at: SlotIndex) -> PartitionId {
        self.slots.get(at).map_or(PartitionId::WHOLE_CARD, |slot| slot.kind.partition)
    }

    /// A slot of this kind with nothing in it, or a new one, or, if there are many, the one with
    /// the fewest client streams.
    pub(super) fn choose(&self, kind: StreamKind) -> SlotChoice {
        self.choose_of(kind, self.slots.len() < MOST_STREAMS)
    }

    fn choose_of(&self, kind: StreamKind, may_grow: bool) -> SlotChoice {
        if let Some(at) = self.free.get(&kind).and_then(|free| free.last()) {
            return SlotChoice::Existing(*at);
        }
        let alike = || self.slots.iter().enumerate().filter(|(_, slot)| slot.kind == kind);
        match alike().min_by_key(|(_, slot)| slot.bound) {
            Some((at, _)) if alike().count() >= STREAMS_OF_A_KIND || !may_grow => SlotChoice::Existing(at),
            _ if may_grow => SlotChoice::New,
            _ => SlotChoice::Full,
        }
    }

    /// Adds a driver stream.
    pub(super) fn add(&mut self, kind: StreamKind, stream: Stream) -> SlotIndex {
        self.slots.push(StreamSlot::new(kind, stream));
        let at = self.slots.len() - 1;
        self.free.entry(kind).or_default().push(at);
        at
    }

    /// A client stream more goes to this slot.
    pub(super) fn bind(&mut self, at: SlotIndex) {
        let slot = &mut self.slots[at];
        slot.bound += 1;
        if slot.bound == 1
            && let Some(free) = self.free.get_mut(&slot.kind)
            && let Some(found) = free.iter().rposition(|free| *free == at)
        {
            free.swap_remove(found);
        }
    }

    /// A client stream less goes to this slot.
    pub(super) fn unbind(&mut self, at: SlotIndex) {
        let slot = &mut self.slots[at];
        slot.bound -= 1;
        if slot.bound == 0 {
            self.free.entry(slot.kind).or_default().push(at);
        }
    }

    /// All driver streams, for whoever destroys them.
    pub(super) fn streams(&self) -> impl Iterator<Item = Stream> {
        self.slots.iter().map(StreamSlot::stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_share_only_when_there_are_many() {
        let whole = StreamKind { partition: PartitionId::WHOLE_CARD, priority: 0 };
        let urgent = StreamKind { priority: -1, ..whole };
        let elsewhere = StreamKind { partition: PartitionId::other(), ..whole };
        let mut pool = StreamPool::default();
        let mut used = Vec::new();
        for _ in 0..STREAMS_OF_A_KIND {
            assert_eq!(pool.choose(whole), SlotChoice::New);
            let at = pool.add(whole, Stream::none());
            pool.bind(at);
            used.push(at);
        }
        let SlotChoice::Existing(shared) = pool.choose(whole) else { panic!("enough streams") };
        pool.bind(shared);
        assert_eq!(pool.choose(urgent), SlotChoice::New, "another priority");
        assert_eq!(pool.choose(elsewhere), SlotChoice::New, "another partition");
        assert_eq!(pool.choose_of(elsewhere, false), SlotChoice::Full, "no room for its first");
        pool.unbind(used[3]);
        let SlotChoice::Existing(free) = pool.choose(whole) else { panic!("one is free") };
        assert_eq!(free == used[3], shared != used[3]);
    }
}
