//! What an engine has in flight, in all its driver streams.

use super::estimate::Estimates;
use super::fence::{FenceWord, ShownBy};
use super::flight::Flight;
use super::pool::{MOST_STREAMS, SlotChoice, SlotIndex, StreamPool};
use super::slot::{StreamKind, StreamSlot};
use crate::context::PartitionId;
use crate::driver::{CardAddress, Driver, PinnedWords, Stream};
use crate::fault::Call;
use std::sync::Arc;

/// Words for the ends of chains.
const CHAIN_WORDS: usize = 1024;
/// Driver streams made at the start: making one later costs the neighbours' launches.
const STREAMS_AT_START: usize = 8;
/// Bytes of a fence's number in its word.
const FENCE_BYTES: u32 = 8;

/// What is in flight in an engine's driver streams.
pub(crate) struct Tracker {
    driver: Arc<Driver>,
    /// First one for each slot of the pool, then those of chains.
    words: PinnedWords,
    pool: StreamPool,
    /// Slots with something in flight.
    busy: Vec<SlotIndex>,
    /// Long kernels in flight that fill the card.
    filling: usize,
    /// How long work takes.
    pub estimates: Estimates,
}

impl Tracker {
    /// Nothing in flight, and some driver streams ready.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn new(driver: &Arc<Driver>) -> Call<Tracker> {
        let words = PinnedWords::new(driver, MOST_STREAMS + CHAIN_WORDS)?;
        let mut pool = StreamPool::default();
        for _ in 0..STREAMS_AT_START {
            pool.add(StreamKind { partition: PartitionId::WHOLE_CARD, priority: 0 }, driver.create_stream(0)?);
        }
        Ok(Tracker { driver: driver.clone(), words, pool, busy: Vec::new(), filling: 0, estimates: Estimates::default() })
    }

    /// The words for the ends of chains.
    pub(crate) fn chain_words() -> impl Iterator<Item = FenceWord> {
        (MOST_STREAMS..MOST_STREAMS + CHAIN_WORDS).map(FenceWord)
    }

    // ---- driver streams

    /// Binds a client stream of this kind to a slot. If a driver stream more is needed, `create`
    /// makes it. `None` if there are too many.
    ///
    /// # Errors
    /// What `create` says.
    pub(crate) fn bind(&mut self, kind: StreamKind, create: impl FnOnce() -> Call<Stream>) -> Call<Option<SlotIndex>> {
        let at = match self.pool.choose(kind) {
            SlotChoice::Existing(at) => at,
            SlotChoice::New => self.pool.add(kind, create()?),
            SlotChoice::Full => return Ok(None),
        };
        self.pool.bind(at);
        Ok(Some(at))
    }

    /// Undoes [`Tracker::bind`]: the client stream has nothing in flight in the slot.
    pub(crate) fn unbind(&mut self, at: SlotIndex) {
        self.pool.unbind(at);
    }

    /// A slot.
    pub(crate) fn slot(&self, at: SlotIndex) -> &StreamSlot {
        self.pool.slot(at)
    }

    /// The partition of a slot's stream.
    pub(crate) fn partition(&self, at: SlotIndex) -> PartitionId {
        self.pool.partition(at)
    }

    // ---- giving work

    /// The driver has this work in this slot now.
    pub(crate) fn add_flight(&mut self, at: SlotIndex, flight: Flight, now: u64) {
        let slot = self.pool.slot_mut(at);
        if slot.is_empty() {
            self.busy.push(at);
        }
        self.filling += usize::from(flight.fills_card());
        slot.add(flight, now);
    }

    /// Has the slot's stream write its next fence, which ends all work given to it so far.
    ///
    /// # Errors
    /// The driver's; then there is no fence.
    pub(crate) fn write_fence(&mut self, at: SlotIndex) -> Call<()> {
        let slot = self.pool.slot_mut(at);
        self.driver.write_value(self.words.address(at), slot.next_fence(), FENCE_BYTES, slot.stream())?;
        slot.add_fence(ShownBy::Stream);
        Ok(())
    }

    /// A chain was given to the slot's stream, whose fence kernel sets this word.
    pub(crate) fn add_chain_fence(&mut self, at: SlotIndex, word: FenceWord) {
        self.pool.slot_mut(at).add_fence(ShownBy::Chain(word));
    }

    /// A chain's word, for the card.
    pub(crate) fn word_address(&self, word: FenceWord) -> CardAddress {
        self.words.address(word.0)
    }

    /// Makes a chain's word ready for its next launch.
    pub(crate) fn clear_word(&self, word: FenceWord) {
        self.words.clear(word.0);
    }

    /// True if a long kernel fills the card, as far as this engine knows.
    pub(crate) fn is_card_filled(&self) -> bool {
        self.filling > 0
    }

    // ---- ends of work

    /// True if this fence of this slot is reached.
    pub(crate) fn is_fence_reached(&mut self, at: SlotIndex, fence: u64) -> bool {
        self.poll(at) >= fence
    }

    fn poll(&mut self, at: SlotIndex) -> u64 {
        let words = &self.words;
        self.pool.slot_mut(at).poll(words.load(at), |word| words.load(word.0))
    }

    /// Polls all fences, and moves what is over into `over`, an empty list, with the nanoseconds
    /// that each took.
    pub(crate) fn retire(&mut self, now: u64, over: &mut Vec<(Flight, u64)>) {
        let Tracker { words, pool, busy, filling, estimates, .. } = self;
        busy.retain(|at| {
            let slot = pool.slot_mut(*at);
            slot.poll(words.load(*at), |word| words.load(word.0));
            slot.retire(now, over);
            !slot.is_empty()
        });
        for (flight, device_ns) in over {
            *filling -= usize::from(flight.fills_card());
            if let Some(kernel) = flight.kernel() {
                estimates.learn(kernel, *device_ns);
            }
        }
    }

    /// Notes that the driver says nothing runs in this slot's stream any more. Then its words say
    /// so, too, or a fence is lost; nobody waits for that for ever.
    pub(crate) fn note_idle(&mut self, at: SlotIndex) {
        self.poll(at);
        let slot = self.pool.slot_mut(at);
        if slot.is_all_reached() {
            return;
        }
        tracing::error!(
            issued = slot.fence_issued(),
            reached = slot.fence_reached(),
            unfenced = slot.needs_fence(),
            "a stream of the card is empty and its fence was not seen: taken as over"
        );
        slot.give_up_fences();
    }

    /// True if something is in flight.
    pub(crate) fn is_busy(&self) -> bool {
        !self.busy.is_empty()
    }

    /// One of the slots with something in flight: another one for each `round`. Only if there are
    /// some.
    pub(crate) fn busy_slot(&self, round: usize) -> SlotIndex {
        self.busy[round % self.busy.len()]
    }

    /// True if a long kernel runs: one that was expected to be, or turns out to be.
    pub(crate) fn runs_long(&self, now: u64) -> bool {
        self.busy.iter().any(|at| self.pool.slot(*at).runs_long(now))
    }

    /// Everything in flight, with its slot.
    pub(crate) fn flights(&self) -> impl Iterator<Item = (&StreamSlot, &Flight)> {
        let slots = self.busy.iter().map(|at| self.pool.slot(*at));
        slots.flat_map(|slot| slot.flights().map(move |flight| (slot, flight)))
    }

    /// Calls `visit` for everything in flight.
    pub(crate) fn visit_flights(&mut self, mut visit: impl FnMut(&mut Flight)) {
        for at in &self.busy {
            self.pool.slot_mut(*at).flights_mut().for_each(&mut visit);
        }
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        // Before the words that they write.
        for stream in self.pool.streams() {
            self.driver.destroy_stream(stream);
        }
    }
}
