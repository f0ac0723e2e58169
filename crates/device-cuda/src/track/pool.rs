//! The pool of an engine's driver streams. A client's stream is bound to one of them while it has
//! work in flight.

use super::slot::{StreamKind, StreamSlot};
use crate::context::PartitionId;
use crate::driver::Stream;
use rustc_hash::FxHashMap;

/// Most driver streams of one kind. If more client streams have work, they share.
const STREAMS_OF_A_KIND: usize = 48;
/// Most driver streams of an engine.
pub(super) const MOST_STREAMS: usize = 1024;

/// The number of a slot in the pool.
pub(crate) type SlotIndex = usize;

/// The slot for a client stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotChoice {
    /// This slot.
    Existing(SlotIndex),
    /// A new slot: the caller makes a driver stream and calls [`StreamPool::add`].
    New,
    /// None: the pool is full, and has no driver stream of this kind.
    Full,
}

/// The driver streams of an engine.
#[derive(Default)]
pub(crate) struct StreamPool {
    slots: Vec<StreamSlot>,
    /// Slots to which no client stream is bound.
    free: FxHashMap<StreamKind, Vec<SlotIndex>>,
}

impl StreamPool {
    /// The slot with this number.
    #[inline]
    pub(super) fn slot(&self, at: SlotIndex) -> &StreamSlot {
        &self.slots[at]
    }

    /// The slot with this number.
    #[inline]
    pub(super) fn slot_mut(&mut self, at: SlotIndex) -> &mut StreamSlot {
        &mut self.slots[at]
    }

    /// The SMs of a slot's driver stream.
    pub(super) fn partition(&self, at: SlotIndex) -> PartitionId {
        self.slots.get(at).map_or(PartitionId::WHOLE_CARD, |slot| slot.kind.partition)
    }

    /// Chooses a slot for a client stream of this kind: one that is free, else a new one, or if
    /// there are many already the one with the fewest client streams, and without work in flight if
    /// there is such a one.
    pub(super) fn choose(&self, kind: StreamKind) -> SlotChoice {
        self.choose_of(kind, self.slots.len() < MOST_STREAMS)
    }

    fn choose_of(&self, kind: StreamKind, may_grow: bool) -> SlotChoice {
        if let Some(at) = self.free.get(&kind).and_then(|free| free.last()) {
            return SlotChoice::Existing(*at);
        }
        let alike = || self.slots.iter().enumerate().filter(|(_, slot)| slot.kind == kind);
        match alike().min_by_key(|(_, slot)| (slot.bound, !slot.is_empty())) {
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

    /// Binds one more client stream to a slot.
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

    /// Unbinds one client stream from a slot.
    pub(super) fn unbind(&mut self, at: SlotIndex) {
        let slot = &mut self.slots[at];
        slot.bound -= 1;
        if slot.bound == 0 {
            self.free.entry(slot.kind).or_default().push(at);
        }
    }

    /// All driver streams.
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
