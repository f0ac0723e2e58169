//! Giving work to the driver, one turn of a stream at a time: kernels go as chains with their
//! fences in them, and other work gets a fence where somebody may wait.

use super::chain::Chain;
use super::chain::can_be_node;
use super::chains::{ChainOrder, Chains, ChosenChain, LONGEST_CHAIN, PendingChain};
use super::limits::LaunchLimits;
use super::pieces::CopyPiece;
use super::plan::{Plan, PlannedKernel, Refusal, plan_work};
use super::queue::QueueState;
use super::streams::Streams;
use crate::context::{Client, Partition, PartitionId};
use crate::counters::Counters;
use crate::driver::{CardAddress, Driver, Stream};
use crate::fault::{Call, CudaError};
use crate::helpers::Helpers;
use crate::track::{COPY_BYTES_PER_NS, Flight, FlightWork, Footprint, LONG_KERNEL_NS, Reporting, SlotIndex, StreamKind, TRANSFER_NS, Tracker};
use cumux_device::{Fault, StreamId};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Work that one stream may give before the next one has its turn.
const TURN: usize = LONGEST_CHAIN;
/// While a stream has more than this to do, in nanoseconds, its next work may gather into a longer
/// chain.
const GATHER_WHILE_BUSY_NS: u64 = 8_000;
/// Work gathers no longer than this, in nanoseconds, and no more of it than a chain holds.
const GATHER_LIMIT_NS: u64 = 100_000;

/// How a stream's turn ended.
pub(crate) enum TurnEnd {
    /// All work that could be given was given.
    Done,
    /// A piece of work can never be done. It is still in the queue; its client ends with this
    /// fault.
    Fault(Fault),
    /// The queue is parked until these bytes of the client's window are registered.
    Parked {
        /// Whose window.
        client: Arc<Client>,
        /// The first of the bytes.
        address: CardAddress,
        /// How many.
        bytes: u64,
    },
}

/// What an engine needs to give work to the driver.
pub(crate) struct Issuer {
    driver: Arc<Driver>,
    limits: LaunchLimits,
    /// True if batches of kernels go as chains.
    coalesces: bool,
    counters: Arc<Counters>,
    helpers: Arc<Helpers>,
    chains: Chains,
    /// A chain that should be made, until the engine takes it.
    order: Option<ChainOrder>,
    /// Kernels that are about to be given together; empty between turns.
    batch: Vec<PlannedKernel>,
    /// The tokens of `batch`.
    tokens: Vec<u64>,
    /// The kernel whose launch failed, until the engine takes its name.
    failed_kernel: Option<Arc<str>>,
}

/// A client stream in its turn.
#[derive(Clone, Copy)]
struct Turn {
    id: StreamId,
    slot: SlotIndex,
}

impl Issuer {
    /// Nothing given yet.
    pub(crate) fn new(driver: Arc<Driver>, limits: LaunchLimits, coalesces: bool, counters: Arc<Counters>, helpers: Arc<Helpers>) -> Issuer {
        Issuer {
            driver,
            limits,
            coalesces,
            counters,
            helpers,
            chains: Chains::new(Tracker::chain_words()),
            order: None,
            batch: Vec::new(),
            tokens: Vec::new(),
            failed_kernel: None,
        }
    }

    /// True if the stream's turn should come later: it has enough in flight, and its next work had
    /// better become more first; or its next work is long, and somebody waits for a quiet card.
    pub(crate) fn should_gather(&self, streams: &Streams, id: StreamId, long_work_held: bool) -> bool {
        let now = streams.clock.now();
        let Some(queue) = streams.queues.get(&id) else { return false };
        if long_work_held && queue.state == QueueState::HeldBack {
            return true;
        }
        let Some(slot) = queue.slot.filter(|_| queue.in_flight > 0 && self.coalesces) else { return false };
        let may_gather = queue.work.len() < LONGEST_CHAIN && now.saturating_sub(queue.since) < GATHER_LIMIT_NS;
        may_gather && streams.tracker.slot(slot).remaining_ns(now) > GATHER_WHILE_BUSY_NS
    }

    /// Gives one stream's work of a turn to the driver. The caller has taken the stream out of the
    /// ready list; whatever the result is, it calls [`Issuer::write_due_fence`] next.
    ///
    /// # Errors
    /// The driver's. Then what was not issued is back in the queue, for the caller to end.
    pub(crate) fn issue_stream(&mut self, streams: &mut Streams, id: StreamId, long_work_held: bool) -> Call<TurnEnd> {
        let Some(queue) = streams.queues.get_mut(&id) else { return Ok(TurnEnd::Done) };
        queue.state = QueueState::Idle;
        if queue.work.is_empty() {
            return Ok(TurnEnd::Done);
        }
        let stream = queue.stream.clone();
        let client = stream.client.clone();
        let partition = stream.partition();
        if let Some(slot) = queue.slot.filter(|slot| streams.tracker.partition(*slot) != PartitionId::of(partition.as_deref())) {
            // The client has another share now: what was issued ends where it is, then the stream
            // moves.
            if queue.in_flight > 0 {
                queue.state = QueueState::Moving;
                return Ok(TurnEnd::Done);
            }
            queue.slot = None;
            streams.tracker.unbind(slot);
        }
        let may_chain = partition.is_none() && stream.priority == 0 && self.coalesces;
        let turn = Turn { id, slot: self.bind_slot(streams, id, partition)? };
        let mut end = TurnEnd::Done;
        for _ in 0..TURN {
            let Some(queue) = streams.queues.get_mut(&id) else { break };
            let Some((token, mut work)) = queue.work.pop_front() else { break };
            match plan_work(&client, &self.limits, &mut work) {
                Ok(Plan::Kernel(planned)) if long_work_held && streams.tracker.estimates.kernel_ns(planned.kernel()) >= LONG_KERNEL_NS => {
                    // Somebody's module is being loaded, which waits for all that runs: nothing
                    // long begins before it is in.
                    planned.undo(&mut work);
                    self.issue_batch(streams, turn)?;
                    streams.hold_back(id, token, work);
                    break;
                }
                Ok(Plan::Kernel(planned)) if may_chain && can_be_node(&planned) && streams.tracker.estimates.kernel_ns(planned.kernel()) < LONG_KERNEL_NS => {
                    self.tokens.push(token);
                    self.batch.push(planned);
                }
                Ok(plan) => {
                    let issued = self.issue_batch(streams, turn).and_then(|()| self.issue_piece(streams, turn, token, plan));
                    if let Err(error) = issued {
                        streams.put_back(id, &[token]);
                        return Err(error);
                    }
                }
                Err(Refusal::Unregistered { address, bytes }) => {
                    queue.work.push_front((token, work));
                    queue.state = QueueState::Parked;
                    end = TurnEnd::Parked { client, address, bytes };
                    break;
                }
                Err(Refusal::Fault(fault)) => {
                    queue.work.push_front((token, work));
                    self.issue_batch(streams, turn)?;
                    return Ok(TurnEnd::Fault(fault));
                }
            }
        }
        self.issue_batch(streams, turn)?;
        streams.end_turn(id);
        Ok(end)
    }

    /// Fences what the stream's turn has left without a fence: somebody waits for its end.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn write_due_fence(&mut self, streams: &mut Streams, id: StreamId) -> Call<()> {
        match streams.queues.get(&id).and_then(|queue| queue.slot) {
            Some(slot) if streams.tracker.slot(slot).needs_fence() => streams.tracker.write_fence(slot),
            _ => Ok(()),
        }
    }

    /// The stream's slot; a driver stream is made if there are too few.
    fn bind_slot(&mut self, streams: &mut Streams, id: StreamId, partition: Option<Arc<Partition>>) -> Call<SlotIndex> {
        let Some(queue) = streams.queues.get_mut(&id) else { return Err(CudaError::INVALID_HANDLE) };
        if let Some(slot) = queue.slot {
            return Ok(slot);
        }
        let priority = queue.stream.priority;
        let kind = StreamKind { partition: PartitionId::of(partition.as_deref()), priority };
        let bound = streams.tracker.bind(kind, || match partition {
            Some(partition) => partition.create_stream(priority),
            None => self.driver.create_stream(priority),
        })?;
        queue.slot = bound;
        bound.ok_or(CudaError::OUT_OF_MEMORY)
    }

    /// Issues one piece of work that is no part of a batch.
    fn issue_piece(&mut self, streams: &mut Streams, turn: Turn, token: u64, plan: Plan) -> Call<()> {
        let stream = streams.tracker.slot(turn.slot).stream();
        let (expected_ns, work) = match plan {
            Plan::Nothing => (0, FlightWork::Transfer),
            Plan::Kernel(planned) => {
                self.launch_kernel(&mut streams.tracker, &planned, stream)?;
                self.describe_kernel(&streams.tracker, &planned)
            }
            Plan::Copies(pieces) => {
                let mut expected_ns = TRANSFER_NS;
                for (given, piece) in pieces.iter().enumerate() {
                    expected_ns += piece.bytes() / COPY_BYTES_PER_NS;
                    if let Err(error) = self.copy_piece(piece, stream) {
                        // What the driver has of the copy is in flight like anything else, and is
                        // reported with what was refused.
                        if given > 0 {
                            self.add_flight(streams, turn, token, expected_ns, FlightWork::Transfer, Reporting::Done);
                        }
                        return Err(error);
                    }
                }
                (expected_ns, FlightWork::Transfer)
            }
            Plan::Set(set) => {
                self.driver.set_memory(&set, stream)?;
                (TRANSFER_NS + set.width * u64::from(set.element) * set.height / COPY_BYTES_PER_NS, FlightWork::Transfer)
            }
            Plan::Value { address, value, bytes } => {
                self.driver.write_value(address, value, bytes, stream)?;
                (TRANSFER_NS, FlightWork::Transfer)
            }
        };
        streams.clock.tick();
        self.add_flight(streams, turn, token, expected_ns, work, Reporting::Due);
        self.write_fence_if_due(streams, turn.slot)
    }

    fn copy_piece(&self, piece: &CopyPiece, stream: Stream) -> Call<()> {
        match piece {
            CopyPiece::Row { target, source, bytes } => self.driver.copy_row(*target, *source, *bytes, stream),
            CopyPiece::Rectangle(copy) => self.driver.copy_rectangle(copy, stream),
        }
    }

    /// Launches one kernel.
    fn launch_kernel(&mut self, tracker: &mut Tracker, planned: &PlannedKernel, stream: Stream) -> Call<()> {
        let kernel = planned.kernel();
        tracker.estimates.note_launch(kernel);
        self.counters.kernels.fetch_add(1, Ordering::Relaxed);
        self.driver.launch(kernel.handle, &planned.shape, &planned.parameters, stream).map_err(|error| {
            self.failed_kernel = Some(kernel.name.clone());
            // The driver says "invalid value" of a launch that asks for more than its function
            // allows.
            if error == CudaError::INVALID_VALUE { CudaError::LAUNCH_OUT_OF_RESOURCES } else { error }
        })
    }

    /// What a kernel that was launched alone is expected to take, and what is to be known of it.
    fn describe_kernel(&self, tracker: &Tracker, planned: &PlannedKernel) -> (u64, FlightWork) {
        let kernel = planned.kernel();
        let expected_ns = tracker.estimates.kernel_ns(kernel);
        let blocks: u64 = planned.shape.grid.iter().map(|blocks| u64::from(*blocks)).product();
        let fills_card = blocks >= u64::from(self.limits.multiprocessors()) && expected_ns >= LONG_KERNEL_NS;
        let footprint = if fills_card { Footprint::WholeCard } else { Footprint::Partial };
        (expected_ns, FlightWork::Kernel { id: kernel.id, prints: kernel.prints, footprint })
    }

    /// The driver has this work now.
    fn add_flight(&self, streams: &mut Streams, turn: Turn, token: u64, expected_ns: u64, work: FlightWork, reporting: Reporting) {
        let Some(queue) = streams.queues.get_mut(&turn.id) else { return };
        queue.in_flight += 1;
        let client = queue.stream.client.id;
        let flight = Flight { client, stream: turn.id, token, fence: 0, expected_ns, work, reporting };
        streams.tracker.add_flight(turn.slot, flight, streams.clock.now());
    }

    fn write_fence_if_due(&self, streams: &mut Streams, slot: SlotIndex) -> Call<()> {
        if streams.tracker.slot(slot).is_fence_due() { streams.tracker.write_fence(slot) } else { Ok(()) }
    }

    /// Issues the batch that was collected: as chains where one is free, else one by one. On an
    /// error, what was not issued is back in the queue.
    fn issue_batch(&mut self, streams: &mut Streams, turn: Turn) -> Call<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let (mut batch, mut tokens) = (std::mem::take(&mut self.batch), std::mem::take(&mut self.tokens));
        let mut at = 0;
        let mut issued = Ok(());
        while at < batch.len() && issued.is_ok() {
            match self.issue_batch_head(streams, turn, &mut batch[at..], &tokens[at..]) {
                Ok(count) => at += count,
                Err(error) => issued = Err(error),
            }
        }
        streams.put_back(turn.id, &tokens[at..]);
        batch.clear();
        tokens.clear();
        (self.batch, self.tokens) = (batch, tokens);
        issued
    }

    /// Issues the beginning of a batch, as one chain or as one kernel. Returns how many kernels
    /// that were.
    fn issue_batch_head(&mut self, streams: &mut Streams, turn: Turn, batch: &mut [PlannedKernel], tokens: &[u64]) -> Call<usize> {
        // The fence at a chain's end is a kernel, and needs an SM: where long kernels fill the
        // card, whoever waits for a single kernel would wait for theirs as well. A written value
        // needs no SM.
        let write_fence = batch.len() == 1 && streams.tracker.is_card_filled();
        let chosen = if write_fence { None } else { self.choose_chain(&mut streams.tracker, batch) };
        if let Some(chosen) = chosen {
            return self.issue_chain(streams, turn, &chosen, tokens);
        }
        let stream = streams.tracker.slot(turn.slot).stream();
        self.launch_kernel(&mut streams.tracker, &batch[0], stream)?;
        let (expected_ns, work) = self.describe_kernel(&streams.tracker, &batch[0]);
        self.add_flight(streams, turn, tokens[0], expected_ns, work, Reporting::Due);
        self.write_fence_if_due(streams, turn.slot)?;
        Ok(1)
    }

    /// Launches a chain that was set to run the kernels of these tokens. Returns how many there
    /// are.
    fn issue_chain(&mut self, streams: &mut Streams, turn: Turn, chosen: &ChosenChain, tokens: &[u64]) -> Call<usize> {
        let Streams { queues, tracker, clock, .. } = streams;
        let now = clock.now();
        let chain = self.chains.chosen(chosen);
        tracker.clear_word(chain.word());
        chain.launch(tracker.slot(turn.slot).stream())?;
        chain.set_running(turn.slot, tracker.slot(turn.slot).next_fence());
        if let Some(queue) = queues.get_mut(&turn.id) {
            queue.in_flight += chosen.length;
            let client = queue.stream.client.id;
            for (planned, token) in chain.kernels().iter().zip(tokens) {
                let kernel = planned.kernel();
                let expected_ns = tracker.estimates.note_launch(kernel);
                let work = FlightWork::Kernel { id: kernel.id, prints: false, footprint: Footprint::Partial };
                let flight = Flight { client, stream: turn.id, token: *token, fence: 0, expected_ns, work, reporting: Reporting::Due };
                tracker.add_flight(turn.slot, flight, now);
            }
            // A chain of one shares its call with nobody.
            if chosen.length > 1 {
                queue.stream.client.counts.coalesced.fetch_add(chosen.length as u64, Ordering::Relaxed);
            }
        }
        tracker.add_chain_fence(turn.slot, chain.word());
        self.counters.kernels.fetch_add(chosen.length as u64, Ordering::Relaxed);
        self.counters.coalesced.fetch_add(chosen.length as u64, Ordering::Relaxed);
        self.counters.chains.fetch_add(1, Ordering::Relaxed);
        self.counters.nodes_set.fetch_add(chosen.nodes_set as u64, Ordering::Relaxed);
        Ok(chosen.length)
    }

    /// A chain for the beginning of the batch, and what follows from looking for one.
    fn choose_chain(&mut self, tracker: &mut Tracker, batch: &mut [PlannedKernel]) -> Option<ChosenChain> {
        let expected_ns = batch.iter().map(|planned| tracker.estimates.kernel_ns(planned.kernel())).sum();
        let (chosen, order) = self.chains.choose(batch, expected_ns, |slot, fence| tracker.is_fence_reached(slot, fence));
        self.destroy_retired();
        if order.is_some() {
            self.order = order;
        }
        chosen
    }

    fn destroy_retired(&mut self) {
        if let Some(retired) = self.chains.take_retired() {
            self.helpers.run(move || drop(retired));
        }
    }

    // ---- for the engine

    /// The chain that should be made, once.
    pub(crate) fn take_order(&mut self) -> Option<ChainOrder> {
        self.order.take()
    }

    /// The name of the kernel whose launch failed, once.
    pub(crate) fn take_failed_kernel(&mut self) -> Option<Arc<str>> {
        self.failed_kernel.take()
    }

    /// The helper has made a chain, or could not.
    pub(crate) fn add_built_chain(&mut self, pending: PendingChain, chain: Option<Chain>) {
        self.chains.add_built(pending, chain);
    }

    /// Lets go of kernels that are about to be unloaded.
    pub(crate) fn forget_kernels(&mut self, tracker: &mut Tracker, kernels: &[u64]) {
        self.chains.forget_kernels(|kernel| kernels.contains(&kernel));
        self.chains.release_leaving(&mut |slot, fence| tracker.is_fence_reached(slot, fence));
        self.destroy_retired();
        for kernel in kernels {
            tracker.estimates.forget(*kernel);
        }
    }
}
