//! All client streams of an engine, with their queues and their work in flight.

use super::queue::{Lead, QueueState, StreamQueue};
use crate::driver::Driver;
use crate::fault::Call;
use crate::track::{Clock, FillingKernels, Lanes, SlotIndex, Tracker};
use cumux_device::{ClientId, StreamId, Work};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// A stream is the only one of its client with kernels if none have come in another one for so many
/// nanoseconds.
const ALONE_NS: u64 = 100_000_000;

/// Whether a stream has a lane ([`crate::track::Lanes`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// It has one, or needs none.
    There,
    /// It may take one.
    Free,
    /// It waits for one.
    Awaited,
    /// It gives its lane back when its work has ended: others wait.
    GivenBack,
}

/// The client streams of an engine.
pub(crate) struct Streams {
    /// The queues, by stream.
    pub queues: FxHashMap<StreamId, StreamQueue>,
    /// The ready list: the streams whose queues are `Ready` or `HeldBack`, in the order in which
    /// they are served. It may contain streams that were removed.
    pub ready: VecDeque<StreamId>,
    /// The work in flight.
    pub tracker: Tracker,
    /// The engine's clock.
    pub clock: Clock,
    /// The stream of each client's last kernel.
    leaders: FxHashMap<ClientId, StreamId>,
}

impl Streams {
    /// An engine's streams before the first one. `lanes` with the engine's number; `opened`: when
    /// the card was opened.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn new(driver: &Arc<Driver>, filling: FillingKernels, lanes: (Lanes, usize), latency_ns: u64, opened: Instant) -> Call<Streams> {
        Ok(Streams {
            queues: FxHashMap::default(),
            ready: VecDeque::new(),
            tracker: Tracker::new(driver, filling, lanes, latency_ns)?,
            clock: Clock::since(opened),
            leaders: FxHashMap::default(),
        })
    }

    /// Takes in the streams of another engine, with their work in flight. What a stream begins next
    /// begins when that is complete ([`QueueState::Moving`]).
    pub(crate) fn absorb(&mut self, other: Streams) {
        let Streams { queues, ready, mut tracker, clock: _, leaders } = other;
        self.leaders.extend(leaders);
        for (id, mut queue) in queues {
            if let Some(slot) = queue.slot.take() {
                tracker.unbind(slot);
            }
            self.queues.insert(id, queue);
        }
        self.ready.extend(ready);
        self.tracker.absorb(tracker);
    }

    /// The queues of a client, with their streams.
    pub(crate) fn queues_of(&mut self, client: ClientId) -> impl Iterator<Item = (StreamId, &mut StreamQueue)> {
        self.queues.iter_mut().filter(move |(_, queue)| queue.stream.client.id == client).map(|(id, queue)| (*id, queue))
    }

    /// Whether this stream has a lane for what is queued. `long_work_held`: long kernels may not
    /// begin now, so one whose next work is such a kernel needs none.
    #[inline]
    pub(crate) fn lane_for(&self, id: StreamId, long_work_held: bool) -> Lane {
        let Some(queue) = self.queues.get(&id).filter(|queue| !queue.work.is_empty()) else { return Lane::There };
        if queue.in_flight > 0 {
            return if self.tracker.is_turn_over(queue.busy_since, self.clock.now()) { Lane::GivenBack } else { Lane::There };
        }
        match long_work_held && queue.state == QueueState::HeldBack {
            true => Lane::There,
            false if self.tracker.may_take_lane() && self.tracker.leaves_lanes(|| self.busy_of(queue.stream.client.id)) => Lane::Free,
            false => Lane::Awaited,
        }
    }

    /// How many streams of a client have work in flight.
    fn busy_of(&self, client: ClientId) -> usize {
        self.queues.values().filter(|queue| queue.in_flight > 0 && queue.stream.client.id == client).count()
    }

    /// A kernel has come in this stream.
    #[inline]
    pub(crate) fn note_kernel(&mut self, id: StreamId) {
        let now = self.clock.now();
        let Some(queue) = self.queues.get_mut(&id).filter(|queue| queue.lead == Lead::None) else { return };
        let before = self.leaders.insert(queue.stream.client.id, id).filter(|before| *before != id);
        queue.lead = if before.is_none() { Lead::Alone } else { Lead::Since(now) };
        if let Some(before) = before.and_then(|before| self.queues.get_mut(&before)) {
            before.lead = Lead::None;
        }
    }

    /// True if no other stream of this one's client has kernels, or has had any come for a while.
    #[inline]
    pub(super) fn is_alone(&mut self, id: StreamId) -> bool {
        let Some(queue) = self.queues.get(&id) else { return false };
        match queue.lead {
            Lead::None => false,
            Lead::Alone => true,
            Lead::Since(since) => self.is_alone_since(id, queue.stream.client.id, since),
        }
    }

    fn is_alone_since(&mut self, id: StreamId, client: ClientId, since: u64) -> bool {
        let now = self.clock.now();
        if now.saturating_sub(since) < ALONE_NS {
            return false;
        }
        let is_alone = self.queues.iter().all(|(other, queue)| *other == id || queue.stream.client.id != client || !self.may_have_kernels(queue));
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.lead = if is_alone { Lead::Alone } else { Lead::Since(now) };
        }
        is_alone
    }

    /// True if this queue has kernels in flight, or work that may be some.
    fn may_have_kernels(&self, queue: &StreamQueue) -> bool {
        let has_kernels = |slot: SlotIndex| self.tracker.slot(slot).flights().any(|flight| flight.stream == queue.stream.id && flight.kernel().is_some());
        !queue.work.is_empty() || (queue.in_flight > 0 && queue.slot.is_none_or(has_kernels))
    }

    /// The client of a stream.
    pub(crate) fn client_of(&self, id: StreamId) -> Option<ClientId> {
        self.queues.get(&id).map(|queue| queue.stream.client.id)
    }

    /// The queue was served. If work is left, it is ready again. `waits_for_more`: nothing was
    /// submitted, because what is there waits for more.
    pub(super) fn end_service(&mut self, id: StreamId, waits_for_more: bool) {
        let Some(queue) = self.queues.get_mut(&id) else { return };
        if queue.state == QueueState::Idle && !queue.work.is_empty() {
            queue.state = QueueState::Ready;
            if !waits_for_more {
                queue.since = self.clock.now();
            }
            self.ready.push_back(id);
        }
        self.release_idle_slot(id);
    }

    /// Puts a long kernel back into its queue until long kernels may begin.
    pub(super) fn hold_back(&mut self, id: StreamId, token: u64, work: Work) {
        let Some(queue) = self.queues.get_mut(&id) else { return };
        queue.work.push_front((token, work));
        queue.state = QueueState::HeldBack;
        self.ready.push_back(id);
    }

    /// Puts a kernel that may print back into its queue until it is its client's turn to print.
    pub(super) fn silence(&mut self, id: StreamId, token: u64, work: Work) {
        let Some(queue) = self.queues.get_mut(&id) else { return };
        queue.work.push_front((token, work));
        queue.state = QueueState::Silent;
    }

    /// Puts placeholders for work that could not be issued back into the queue, so that the end of
    /// that work is reported in the order of the stream. The work will not run.
    pub(super) fn put_back(&mut self, id: StreamId, tokens: &[u64]) {
        if let Some(queue) = self.queues.get_mut(&id) {
            tokens.iter().rev().for_each(|token| queue.work.push_front((*token, Work::Nop)));
        }
    }

    /// What the client's parked queues wait for was done: makes them ready.
    pub(crate) fn unpark(&mut self, client: ClientId) {
        let Streams { queues, ready, .. } = self;
        for (id, queue) in queues.iter_mut().filter(|(_, queue)| queue.state == QueueState::Parked && queue.stream.client.id == client) {
            resume(*id, queue, ready);
        }
    }

    /// It is the client's turn to print: makes its silent queues ready. Returns false if it has
    /// none.
    pub(crate) fn end_silence(&mut self, client: ClientId) -> bool {
        let Streams { queues, ready, .. } = self;
        let mut has_any = false;
        for (id, queue) in queues.iter_mut().filter(|(_, queue)| queue.state == QueueState::Silent && queue.stream.client.id == client) {
            resume(*id, queue, ready);
            has_any = true;
        }
        has_any
    }

    /// A piece of work of this stream is complete.
    #[inline]
    pub(crate) fn end_flight(&mut self, id: StreamId) {
        let Some(queue) = self.queues.get_mut(&id) else { return };
        queue.in_flight -= 1;
        if queue.in_flight > 0 {
            return;
        }
        if queue.state == QueueState::Moving {
            resume(id, queue, &mut self.ready);
        }
        self.release_idle_slot(id);
    }

    /// Unbinds a stream from its slot, if it has nothing in flight. Whatever is queued may wait for
    /// long, and whoever has work would have to share a slot with another.
    fn release_idle_slot(&mut self, id: StreamId) {
        let Some(queue) = self.queues.get_mut(&id) else { return };
        if queue.in_flight == 0
            && let Some(slot) = queue.slot.take()
        {
            self.tracker.unbind(slot);
        }
    }

    /// Empties the client's queues and calls `cancelled` for each piece of work, in the order of
    /// its stream. Work in flight goes on.
    pub(crate) fn cancel_queued(&mut self, client: ClientId, mut cancelled: impl FnMut(StreamId, u64)) {
        let Streams { queues, tracker, .. } = self;
        for (id, queue) in queues.iter_mut().filter(|(_, queue)| queue.stream.client.id == client) {
            queue.work.drain(..).for_each(|(token, _)| cancelled(*id, token));
            if matches!(queue.state, QueueState::Parked | QueueState::Silent) {
                queue.state = QueueState::Idle;
            }
            if queue.in_flight == 0
                && let Some(slot) = queue.slot.take()
            {
                tracker.unbind(slot);
            }
        }
    }

    /// Removes a stream.
    pub(crate) fn remove(&mut self, id: StreamId) {
        if let Some(queue) = self.queues.remove(&id)
            && let Some(slot) = queue.slot
        {
            self.tracker.unbind(slot);
        }
    }

    /// Removes all streams of a client. Returns them.
    pub(crate) fn remove_client(&mut self, client: ClientId) -> Vec<StreamId> {
        self.leaders.remove(&client);
        let mut removed = Vec::new();
        for (id, queue) in self.queues.extract_if(|_, queue| queue.stream.client.id == client) {
            if let Some(slot) = queue.slot {
                self.tracker.unbind(slot);
            }
            removed.push(id);
        }
        removed
    }

    /// True if the client has work in flight.
    pub(crate) fn has_in_flight(&self, client: ClientId) -> bool {
        self.queues.values().any(|queue| queue.stream.client.id == client && queue.in_flight > 0)
    }
}

/// Ends a queue's waiting for something other than work. The queue is ready if it has work.
fn resume(id: StreamId, queue: &mut StreamQueue, ready: &mut VecDeque<StreamId>) {
    queue.state = QueueState::Idle;
    if !queue.work.is_empty() {
        queue.state = QueueState::Ready;
        ready.push_back(id);
    }
}
