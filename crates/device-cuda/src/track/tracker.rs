//! All work that an engine has in flight.

use super::estimate::Estimates;
use super::fence::{FenceWord, ShownBy};
use super::filling::FillingKernels;
use super::flight::Flight;
use super::lanes::Lanes;
use super::pool::{MOST_STREAMS, SlotChoice, SlotIndex, StreamPool};
use super::slot::{StreamKind, StreamSlot};
use crate::context::PartitionId;
use crate::driver::{CardAddress, Driver, PinnedWords, Stream, WordAddresses};
use crate::fault::Call;
use std::sync::Arc;

/// The number of words for the fences of chains.
const CHAIN_WORDS: usize = 2048;
/// Driver streams that are made at the start. Making one later would delay the launches of other
/// clients. The driver takes 2 MiB of the card for the fourth of an engine, the eighth, and so on;
/// the helpers have one, too.
const STREAMS_AT_START: usize = 3;
/// Bytes of a fence's number in a stream's word.
const FENCE_BYTES: u32 = 8;

/// The work in flight in an engine's driver streams.
pub(crate) struct Tracker {
    driver: Arc<Driver>,
    /// The words that show fences: one for each slot of the pool, then those of chains.
    words: PinnedWords,
    pool: StreamPool,
    /// The slots with work in flight.
    busy: Vec<SlotIndex>,
    /// The long kernels in flight on the card that occupy every SM.
    filling: FillingKernels,
    /// The driver streams with work in flight of all engines.
    lanes: Lanes,
    /// The number of the engine.
    engine: usize,
    /// True if streams of this engine wait for a lane.
    waits: bool,
    /// When an idle stream of this engine took a lane last, in nanoseconds.
    taken: u64,
    /// The delay until work begins on an idle stream and until its end is noticed. It does not
    /// count as the work's time.
    latency_ns: u64,
    /// Estimates of how long work takes.
    pub estimates: Estimates,
    /// The trackers of engines whose work this one has taken in. Nothing is added to them.
    absorbed: Vec<Tracker>,
}

impl Tracker {
    /// A tracker with some driver streams and no work.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn new(driver: &Arc<Driver>, filling: FillingKernels, (lanes, engine): (Lanes, usize), latency_ns: u64) -> Call<Tracker> {
        let words = PinnedWords::new(driver, MOST_STREAMS + CHAIN_WORDS)?;
        let mut pool = StreamPool::default();
        for _ in 0..STREAMS_AT_START {
            pool.add(StreamKind { partition: PartitionId::WHOLE_CARD, priority: 0 }, driver.create_engine_stream(engine, 0)?);
        }
        Ok(Tracker {
            driver: driver.clone(),
            words,
            pool,
            busy: Vec::new(),
            filling,
            lanes,
            engine,
            waits: false,
            taken: 0,
            latency_ns,
            estimates: Estimates::default(),
            absorbed: Vec::new(),
        })
    }

    /// The words for the fences of chains.
    pub(crate) fn chain_words() -> impl Iterator<Item = FenceWord> {
        (MOST_STREAMS..MOST_STREAMS + CHAIN_WORDS).map(FenceWord)
    }

    // ---- driver streams

    /// Binds a client stream of this kind to a slot. `create` makes a driver stream, if a new one
    /// is needed. Returns `None` if there are too many driver streams.
    ///
    /// # Errors
    /// The error of `create`.
    pub(crate) fn bind(&mut self, kind: StreamKind, create: impl FnOnce() -> Call<Stream>) -> Call<Option<SlotIndex>> {
        let at = match self.pool.choose(kind) {
            SlotChoice::Existing(at) => at,
            SlotChoice::New => self.pool.add(kind, create()?),
            SlotChoice::Full => return Ok(None),
        };
        self.pool.bind(at);
        Ok(Some(at))
    }

    /// Undoes [`Tracker::bind`]. The client stream has no work in flight in the slot.
    pub(crate) fn unbind(&mut self, at: SlotIndex) {
        self.pool.unbind(at);
    }

    /// The slot with this number.
    pub(crate) fn slot(&self, at: SlotIndex) -> &StreamSlot {
        self.pool.slot(at)
    }

    /// The SMs of a slot's driver stream.
    pub(crate) fn partition(&self, at: SlotIndex) -> PartitionId {
        self.pool.partition(at)
    }

    // ---- submitted work

    /// Adds work that was submitted to this slot's driver stream.
    #[inline]
    pub(crate) fn add_flight(&mut self, at: SlotIndex, flight: Flight, now: u64) {
        let slot = self.pool.slot_mut(at);
        if slot.is_empty() {
            self.busy.push(at);
            self.lanes.add();
        }
        if flight.fills_card() {
            self.filling.add();
        }
        slot.add(flight, now + self.latency_ns);
    }

    /// Submits the next fence to the slot's driver stream. All work in the slot completes with it
    /// or before it.
    ///
    /// # Errors
    /// The driver's. Then no fence was submitted.
    pub(crate) fn write_fence(&mut self, at: SlotIndex) -> Call<()> {
        let slot = self.pool.slot_mut(at);
        self.driver.write_value(self.words.address(at), slot.next_fence(), FENCE_BYTES, slot.stream())?;
        slot.add_fence(ShownBy::Stream);
        Ok(())
    }

    /// Notes that a chain was submitted to the slot's driver stream, and that its fence kernel will
    /// set this word.
    pub(crate) fn add_chain_fence(&mut self, at: SlotIndex, word: FenceWord) {
        self.pool.slot_mut(at).add_fence(ShownBy::Chain(word));
    }

    /// The card's address of a chain's word.
    pub(crate) fn word_address(&self, word: FenceWord) -> CardAddress {
        self.words.address(word.0)
    }

    /// The card's addresses of all words, by their numbers.
    pub(crate) fn word_addresses(&self) -> WordAddresses {
        self.words.addresses()
    }

    /// Clears a chain's word before its next launch.
    pub(crate) fn clear_word(&self, word: FenceWord) {
        self.words.clear(word.0);
    }

    /// Takes in the work in flight of another engine.
    pub(crate) fn absorb(&mut self, mut other: Tracker) {
        self.estimates.absorb(std::mem::take(&mut other.estimates));
        self.absorbed.push(other);
    }

    /// True if a long kernel of any engine occupies every SM.
    pub(crate) fn is_card_filled(&self) -> bool {
        self.filling.any()
    }

    // ---- completed work

    /// True if this fence of this slot is reached.
    pub(crate) fn is_fence_reached(&mut self, at: SlotIndex, fence: u64) -> bool {
        self.poll(at) >= fence
    }

    fn poll(&mut self, at: SlotIndex) -> u64 {
        let words = &self.words;
        self.pool.slot_mut(at).poll(words.load(at), |word| words.load(word.0))
    }

    /// Checks all fences. Adds the flights that are complete to `over`, with the nanoseconds that
    /// each took, and updates the estimates.
    pub(crate) fn retire(&mut self, now: u64, over: &mut Vec<(Flight, u64)>) {
        let before = over.len();
        self.take_completed(now, over);
        self.absorbed.iter_mut().for_each(|tracker| tracker.take_completed(now, over));
        if over.len() > before {
            self.lanes.note_progress(now);
        }
        for (flight, device_ns) in &over[before..] {
            if flight.fills_card() {
                self.filling.end();
            }
            if let Some(kernel) = flight.kernel() {
                self.estimates.learn(kernel, *device_ns);
            }
        }
    }

    /// Moves the flights of this tracker alone that are complete to `over`.
    fn take_completed(&mut self, now: u64, over: &mut Vec<(Flight, u64)>) {
        let Tracker { words, pool, busy, lanes, .. } = self;
        busy.retain(|at| {
            let slot = pool.slot_mut(*at);
            slot.poll(words.load(*at), |word| words.load(word.0));
            slot.retire(now, over);
            if slot.is_empty() {
                lanes.end();
            }
            !slot.is_empty()
        });
    }

    /// The driver has reported that this slot's driver stream is idle. Then the words show all its
    /// fences, or a fence was lost. In that case the work is treated as complete, so that its
    /// client does not wait for ever.
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

    /// True if there is work in flight.
    pub(crate) fn is_busy(&self) -> bool {
        self.all().any(|tracker| !tracker.busy.is_empty())
    }

    /// True if a kernel runs that was expected to be long, or that has never ended.
    pub(crate) fn runs_known_long(&self) -> bool {
        self.all_busy().any(|slot| slot.flights().any(Flight::is_long))
    }

    /// True if a kernel is in flight.
    pub(crate) fn runs_kernels(&self) -> bool {
        self.all_busy().any(|slot| slot.flights().any(Flight::needs_multiprocessor))
    }

    /// This tracker and those that it has taken in.
    fn all(&self) -> impl Iterator<Item = &Tracker> {
        std::iter::once(self).chain(&self.absorbed)
    }

    /// The slots with work in flight, also those that were taken in.
    fn all_busy(&self) -> impl Iterator<Item = &StreamSlot> {
        self.all().flat_map(|tracker| tracker.busy.iter().map(|at| tracker.pool.slot(*at)))
    }

    /// The number of driver streams of the card with work in flight, those of other engines, too.
    pub(crate) fn busy_streams(&self) -> usize {
        self.lanes.busy()
    }

    /// True if a slot without work in flight may get some.
    #[inline]
    pub(crate) fn may_take_lane(&self) -> bool {
        self.lanes.may_take(self.engine, self.busy.len())
    }

    /// True if a stream that has been busy since then gives its lane back.
    #[inline]
    pub(crate) fn is_turn_over(&self, busy_since: u64, now: u64) -> bool {
        self.lanes.is_turn_over(busy_since, now)
    }

    /// True if streams of this engine wait for a lane.
    pub(crate) fn waits_for_lanes(&self) -> bool {
        self.waits
    }

    /// Notes whether streams of this engine wait for a lane.
    #[inline]
    pub(crate) fn note_waiting(&mut self, waits: bool) {
        if self.waits != waits {
            self.waits = waits;
            self.lanes.note_waiting(self.engine, waits);
        }
    }

    /// An idle stream of this engine takes a lane: waiting for one helps.
    #[inline]
    pub(crate) fn note_taken(&mut self, now: u64) {
        self.taken = now;
        self.lanes.note_taken(self.engine);
    }

    /// When waiting for a lane was seen to help: an idle stream of this engine took one, or work of
    /// a stream of any engine that has one was complete.
    pub(crate) fn lane_progress(&self) -> u64 {
        self.taken.max(self.lanes.progress())
    }

    /// True if a client with so many lanes leaves enough to others with one more.
    #[inline]
    pub(crate) fn leaves_lanes(&self, own: impl FnOnce() -> usize) -> bool {
        self.lanes.leaves_some(own)
    }

    /// A slot of this engine with work in flight, if there is one. Different values of `round` give
    /// different slots, if there are several.
    pub(crate) fn busy_slot(&self, round: usize) -> Option<SlotIndex> {
        self.busy.get(round.checked_rem(self.busy.len())?).copied()
    }

    /// The fence with which all work is complete that is in flight now, of each slot of this engine
    /// that has any.
    pub(crate) fn last_fences(&self) -> Vec<(SlotIndex, u64)> {
        let last = |slot: &StreamSlot| if slot.needs_fence() { slot.next_fence() } else { slot.fence_issued() };
        self.busy.iter().map(|at| (*at, last(self.pool.slot(*at)))).collect()
    }

    /// True if a long kernel runs: one that was expected to be long, or that turns out to be.
    pub(crate) fn runs_long(&self, now: u64) -> bool {
        self.all_busy().any(|slot| slot.runs_long(now))
    }

    /// True if work in flight of a stream has not moved for so long.
    pub(crate) fn stands_still(&self, now: u64, for_ns: u64) -> bool {
        self.all_busy().any(|slot| slot.still_ns(now) > for_ns)
    }

    /// For how long what has stood longest of what is in flight has not moved; 0 if there is
    /// nothing.
    pub(crate) fn longest_still_ns(&self, now: u64) -> u64 {
        self.all_busy().map(|slot| slot.still_ns(now)).max().unwrap_or(0)
    }

    /// For how long nothing in flight has moved; 0 if there is nothing.
    pub(crate) fn silent_ns(&self, now: u64) -> u64 {
        self.all_busy().map(|slot| slot.still_ns(now)).min().unwrap_or(0)
    }

    /// True if work of several clients is in flight, here or in another engine.
    pub(crate) fn has_several(&self) -> bool {
        let mut clients = self.all_busy().filter_map(|slot| slot.flights().next()).map(|flight| flight.client);
        let first = clients.next();
        first.is_some() && (self.lanes.has_others(self.busy.len()) || clients.any(|client| Some(client) != first))
    }

    /// All flights, with their slots.
    pub(crate) fn flights(&self) -> impl Iterator<Item = (&StreamSlot, &Flight)> {
        self.all_busy().flat_map(|slot| slot.flights().map(move |flight| (slot, flight)))
    }

    /// Calls `visit` for each flight.
    pub(crate) fn visit_flights(&mut self, visit: &mut dyn FnMut(&mut Flight)) {
        for tracker in &mut self.absorbed {
            tracker.visit_flights(visit);
        }
        for at in &self.busy {
            self.pool.slot_mut(*at).flights_mut().for_each(&mut *visit);
        }
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        // The streams are destroyed before the words to which they write.
        for stream in self.pool.streams() {
            self.driver.destroy_stream(stream);
        }
    }
}
