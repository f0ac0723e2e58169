//! Submitting work to the driver, one client stream at a time. Kernels are submitted as chains,
//! which contain their fences. Other work is followed by a fence, because a client may wait for it.
//!
//! It is long because one loop takes work of every kind from a queue, and what may go wrong with a
//! piece puts it back into that queue.

use super::chain::Chain;
use super::chain::{can_be_node, has_clusters, launch_of, shape_of};
use super::chains::{Batch, ChainOrder, Chains, ChosenChain, Inherited};
use super::head::Head;
use super::lengths::{BatchEnd, Cut, LONGEST_CHAIN, part_length};
use super::pending::PendingChain;
use super::pieces::CopyPiece;
use super::plan::{Asked, Plan, PlannedKernel, Planner, Refusal};
use super::prepared::PreparedChains;
use super::queue::{MUCH_WORK, QueueState};
use super::repeat::{are_short, begins_with};
use super::segments::{Position, SHORTEST_SEGMENT};
use super::small_work::SmallWork;
use super::streams::Streams;
use super::waiting::{GATHER_WHILE_BUSY_NS, is_worth_waiting, misses_rest, waited_in_vain, waits_for_segment};
use crate::context::{ClientModule, ContextClient, Partition, PartitionId};
use crate::counters::Counters;
use crate::driver::{CardAddress, Driver, Stream, WordAddresses};
use crate::fault::{Call, CudaError};
use crate::helpers::Helpers;
use crate::track::{
    COPY_BYTES_PER_NS, Flight, FlightWork, Footprint, LONG_KERNEL_NS, Printing, Reporting, SlotIndex, StandingWork, StreamKind, TRANSFER_NS, Tracker,
};
use cumux_device::{ClientId, Fault, StreamId, Work};
use cumux_wire::limits::LaunchLimits;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Most pieces of work that are taken from one queue before the next queue is served.
const QUANTUM: usize = LONGEST_CHAIN;
/// Once in so many times a queue is planned that could be compared with chains: a longer chain may
/// fit by now.
const PLAN_EVERY: u32 = 64;

/// Most small copies that become nodes between two kernels of the client. A program that only
/// copies, be it for the moment, is best served by the copy engines.
const MOST_COPIES: usize = 16;

/// A batch that is expected to take longer than this is submitted: what it contains is reported at
/// its end, and who waits for a quiet card waits for that.
const LONGEST_BATCH_NS: u64 = 2_000_000;

/// Where work in flight has not moved for this many nanoseconds, no chains are made or destroyed:
/// the driver may wait for it, and holds the context's lock (decision 0123).
pub(crate) const STANDS_STILL_NS: u64 = 5_000_000;
/// How often it is looked whether that is so, in nanoseconds.
const LOOK_NS: u64 = 50_000;

/// The outcome of serving a queue.
pub(crate) enum Served {
    /// The quantum is used up, or there is no work that may be submitted now.
    Done,
    /// A piece of work is invalid. It is still in the queue, and the client must be stopped with
    /// this fault.
    Fault(Fault),
    /// The queue is parked until a helper has done this.
    Parked {
        /// The client whose queue it is.
        client: Arc<ContextClient>,
        /// What the queue waits for.
        awaits: Awaited,
    },
}

/// What a parked queue waits for.
pub(crate) enum Awaited {
    /// These bytes of the client's pinned window are registered.
    Window {
        /// The address of the first byte.
        address: CardAddress,
        /// The number of bytes.
        bytes: u64,
    },
    /// The code of a kernel is loaded.
    Kernel {
        /// Its module.
        module: Arc<ClientModule>,
        /// Its index in the module.
        function: u32,
    },
}

/// How work is submitted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IssuerSettings {
    /// The card's limits for launches.
    pub limits: LaunchLimits,
    /// True if kernels are submitted as chains.
    pub coalesces: bool,
    /// True if small copies may be nodes of chains.
    pub small_copies: bool,
    /// Which of them this one is.
    pub engine: usize,
}

/// The part of an engine that submits work to the driver.
pub(crate) struct Issuer {
    driver: Arc<Driver>,
    settings: IssuerSettings,
    small_work: SmallWork,
    counters: Arc<Counters>,
    helpers: Arc<Helpers>,
    printing: Printing,
    standing: StandingWork,
    chains: Chains,
    /// Requests to make chains, until the engine takes them.
    ordered: Vec<ChainOrder>,
    /// Clients whose chains another process needs, because they have taken them of others that are
    /// gone, until the engine has told it.
    heirs: Vec<ClientId>,
    /// Kernels that will be submitted together. Empty between two queues.
    batch: Vec<PlannedKernel>,
    /// The tokens of the kernels in `batch`.
    tokens: Vec<u64>,
    /// Their hashes by [`shape_of`].
    shapes: Vec<u64>,
    /// Their hashes by [`launch_of`].
    launches: Vec<u64>,
    /// How long the kernels in `batch` are expected to take, in nanoseconds.
    batch_ns: u64,
    /// The name of the kernel whose launch failed, until the engine takes it.
    failed_kernel: Option<Arc<str>>,
    /// True if another process holds a lock of the driver for long.
    is_driver_spared: bool,
    /// When it was last decided whether chains are made.
    looked: u64,
    /// True if a kernel of this engine was in flight then that is known to be long, or has never
    /// ended yet, or if work of any engine stood still.
    runs_unknown: bool,
}

/// A piece of work could not be submitted.
struct Failure {
    error: CudaError,
    /// Parts of it were, and are in flight.
    has_begun: bool,
}

impl From<CudaError> for Failure {
    fn from(error: CudaError) -> Failure {
        Failure { error, has_begun: false }
    }
}

/// A client stream that is being served, and the slot to which it is bound.
#[derive(Clone, Copy)]
struct BoundStream {
    id: StreamId,
    slot: SlotIndex,
}

/// Gives the client all SMs of the card: a kernel's clusters do not fit into its share, in which
/// the SMs are of several groups (decision 0109). False if it has them already.
fn widen_share(client: &ContextClient) -> bool {
    // A separate statement, so that the lock is released before the share is dropped.
    let share = client.share.write().take();
    if share.is_some() {
        tracing::warn!(client = client.id, "a kernel's clusters do not fit into the client's share of the card: its kernels run on the whole card from now on");
    }
    share.is_some()
}

impl Issuer {
    /// An issuer that has submitted nothing yet. `prepared`: the chains that were made in advance,
    /// and where the card has the words for their fences.
    #[expect(clippy::too_many_arguments, reason = "what an engine has, by name")]
    pub(crate) fn new(
        driver: Arc<Driver>,
        settings: IssuerSettings,
        small_work: SmallWork,
        counters: Arc<Counters>,
        helpers: Arc<Helpers>,
        printing: Printing,
        standing: StandingWork,
        (prepared, chain_words): (Arc<PreparedChains>, WordAddresses),
    ) -> Issuer {
        Issuer {
            driver,
            settings,
            small_work,
            counters,
            helpers,
            printing,
            standing,
            chains: Chains::new(Tracker::chain_words(), chain_words, prepared),
            ordered: Vec::new(),
            heirs: Vec::new(),
            batch: Vec::new(),
            tokens: Vec::new(),
            shapes: Vec::new(),
            launches: Vec::new(),
            batch_ns: 0,
            failed_kernel: None,
            is_driver_spared: false,
            looked: 0,
            runs_unknown: false,
        }
    }

    /// True if the stream should not be served now: its work in flight takes long enough that more
    /// work may gather in the queue; or its next work is a long kernel, which may not begin now.
    pub(crate) fn should_gather(&self, streams: &Streams, id: StreamId, long_work_held: bool) -> bool {
        let Some(queue) = streams.queues.get(&id) else { return false };
        let is_held_back = long_work_held && queue.state == QueueState::HeldBack;
        is_held_back || (self.settings.coalesces && is_worth_waiting(&self.chains, streams, queue))
    }

    /// Serves the queue of one stream: submits up to a quantum of its work. The caller has taken
    /// the stream out of the ready list, and calls [`Issuer::write_due_fence`] next, whatever the
    /// result is.
    ///
    /// # Errors
    /// The driver's. Work that was not submitted is back in the queue, and the client must be
    /// stopped.
    pub(crate) fn issue_stream(&mut self, streams: &mut Streams, id: StreamId, long_work_held: bool) -> Call<Served> {
        let now = streams.clock.now();
        let waits = streams.queues.get(&id).is_some_and(|queue| self.settings.coalesces && waits_for_segment(streams, queue, now));
        let Some(queue) = streams.queues.get_mut(&id) else { return Ok(Served::Done) };
        queue.state = QueueState::Idle;
        if queue.in_flight == 0 {
            queue.busy_since = now;
        }
        if queue.work.is_empty() {
            return Ok(Served::Done);
        }
        if waited_in_vain(queue, waits, now) {
            // The rest has not come in time.
            queue.burst.end();
        }
        queue.left = 0;
        let (follows_node, took_copies) = (queue.makes_segments, queue.takes_copies);
        let stream = queue.stream.clone();
        let client = stream.client.clone();
        let partition = stream.partition();
        if let Some(slot) = queue.slot.filter(|slot| streams.tracker.partition(*slot) != PartitionId::of(partition.as_deref())) {
            // The client's share has changed. Work in flight completes on the old partition, then
            // the stream moves to the new one.
            if queue.in_flight > 0 {
                queue.state = QueueState::Moving;
                return Ok(Served::Done);
            }
            queue.slot = None;
            streams.tracker.unbind(slot);
        }
        if queue.slot.is_none() && queue.in_flight > 0 {
            // Another engine has submitted that work, to a driver stream of its own.
            queue.state = QueueState::Moving;
            return Ok(Served::Done);
        }
        let may_chain = partition.is_none() && stream.priority == 0 && self.settings.coalesces;
        // What a kernel was measured to take, it took beside all others of the card.
        let longest_node_ns = LONG_KERNEL_NS.saturating_mul(streams.tracker.busy_streams().max(1) as u64);
        let in_share = partition.is_some();
        let bound = BoundStream { id, slot: self.bind_slot(streams, id, partition)? };
        let was_idle = streams.queues.get(&id).is_some_and(|queue| queue.in_flight == 0);
        let limits = self.settings.limits;
        let mut planner = Planner::new(&client, &limits);
        let takes_copies = may_chain && !long_work_held && follows_node && self.takes_copies(streams, id);
        if takes_copies != took_copies
            && let Some(queue) = streams.queues.get_mut(&id)
        {
            queue.takes_copies = takes_copies;
        }
        let has_repeated = may_chain && !long_work_held && self.issue_repeated(streams, bound, &mut planner, longest_node_ns, takes_copies)?;
        if has_repeated {
            let others_wait = was_idle && !streams.ready.is_empty();
            if others_wait || streams.queues.get(&id).is_none_or(|queue| queue.work.is_empty() || misses_rest(&self.chains, queue)) {
                streams.end_service(id, false);
                return Ok(Served::Done);
            }
        }
        let remaining_ns = streams.tracker.slot(bound.slot).remaining_ns(now);
        let mut head = streams.queues.get(&id).and_then(|queue| Head::of_queue(queue, remaining_ns, waits));
        let (mut served, mut end) = (Served::Done, BatchEnd::Chance);
        // So many pieces at the front of the queue are in `batch`. What is left of them is taken
        // out together, because pieces are large.
        let mut planned_pieces = 0;
        for _ in 0..QUANTUM {
            let Some(queue) = streams.queues.get_mut(&id) else { break };
            let Some((token, work)) = queue.work.get_mut(planned_pieces) else { break };
            let token = *token;
            let mut plan = planner.plan(work);
            let is_copy = matches!(plan, Ok(Plan::Copies(_)));
            let small = match &plan {
                Ok(Plan::Set(set)) if may_chain => self.small_work.kernel_for_set(set, work),
                Ok(Plan::Copies(pieces)) if takes_copies && queue.copies < MOST_COPIES => self.small_work.kernel_for_copy(pieces, work, &planner),
                _ => None,
            };
            let is_own = small.is_some();
            if let Some(planned) = small {
                plan = Ok(Plan::Kernel(planned));
            }
            let estimates = &streams.tracker.estimates;
            let (expected_ns, may_be_long) = match &plan {
                Ok(Plan::Kernel(_)) if is_own => (TRANSFER_NS, false),
                Ok(Plan::Kernel(planned)) => (estimates.kernel_ns(planned.kernel()), long_work_held && estimates.may_be_long(planned.kernel())),
                _ => (0, false),
            };
            let plan = match plan {
                Ok(Plan::Kernel(planned)) if !may_be_long && may_chain && can_be_node(&planned) && expected_ns < longest_node_ns => {
                    planned_pieces += 1;
                    self.batch_ns += expected_ns;
                    queue.makes_segments = true;
                    queue.copies = if is_own { queue.copies + usize::from(is_copy) } else { 0 };
                    self.tokens.push(token);
                    let shape = shape_of(&planned);
                    self.shapes.push(shape);
                    self.launches.push(launch_of(&planned));
                    self.batch.push(planned);
                    let ends_head = head.as_mut().is_some_and(|head| head.ends_with(shape));
                    if ends_head || self.batch_ns > LONGEST_BATCH_NS {
                        queue.work.drain(..std::mem::take(&mut planned_pieces));
                        let left = queue.work.len();
                        self.issue_batch(streams, bound, BatchEnd::Chance, false)?;
                        // What comes behind a chain that had its kernels already is expected to be
                        // another one's, which needs no planning.
                        let repeats = streams.queues.get(&id).is_some_and(|queue| queue.repeats);
                        head = head.filter(|_| ends_head && !repeats).and_then(|head| head.next(left));
                        // The rest comes while the head runs. Together it needs one chain.
                        if was_idle && ends_head && streams.queues.get(&id).is_some_and(|queue| queue.position.is_endless() && queue.burst.goes_on(1)) {
                            break;
                        }
                        // Others may have nothing in flight, either: their heads come before the
                        // next one of this stream.
                        if head.is_some() && was_idle && !streams.ready.is_empty() {
                            break;
                        }
                    }
                    continue;
                }
                other => other,
            };
            queue.work.drain(..std::mem::take(&mut planned_pieces));
            let Some((token, work)) = queue.work.pop_front() else { break };
            match plan {
                Ok(Plan::Kernel(planned)) if may_be_long => {
                    // A module is being loaded, or a chain made, which waits for all running
                    // kernels. No long kernel begins before that is done.
                    streams.hold_back(id, token, planned.into_work());
                    end = BatchEnd::Work;
                    break;
                }
                Ok(Plan::Kernel(planned)) if planned.kernel().prints && !self.printing.begin(client.id) => {
                    streams.silence(id, token, planned.into_work());
                    end = BatchEnd::Work;
                    break;
                }
                Ok(plan) => {
                    head = None;
                    let is_kernel = matches!(plan, Plan::Kernel(_));
                    queue.copies = if is_kernel { 0 } else { queue.copies };
                    queue.makes_segments &= !is_kernel;
                    queue.repeats &= !matches!(plan, Plan::Kernel(_));
                    let prints = plan.prints();
                    let in_clusters = match &plan {
                        Plan::Kernel(planned) if in_share && has_clusters(planned) => Some(planned.clone()),
                        _ => None,
                    };
                    // If the batch is not submitted, this comes behind what is put back.
                    queue.work.push_front((token, Work::Nop));
                    if let Err(error) = self.issue_batch(streams, bound, BatchEnd::Work, false) {
                        if prints {
                            self.printing.end(client.id, 1);
                        }
                        return Err(error);
                    }
                    if let Some(queue) = streams.queues.get_mut(&id) {
                        queue.work.pop_front();
                    }
                    if let Err(Failure { error, has_begun }) = self.issue_piece(streams, bound, token, plan) {
                        if prints {
                            self.printing.end(client.id, 1);
                        }
                        if let Some(planned) = in_clusters.filter(|_| error == CudaError::INVALID_CLUSTER_SIZE && widen_share(&client)) {
                            if let Some(queue) = streams.queues.get_mut(&id) {
                                queue.work.push_front((token, planned.into_work()));
                            }
                            break;
                        }
                        if !has_begun {
                            streams.put_back(id, &[token]);
                        }
                        return Err(error);
                    }
                }
                Err(Refusal::Unregistered { address, bytes }) => {
                    queue.work.push_front((token, work));
                    queue.state = QueueState::Parked;
                    (served, end) = (Served::Parked { client, awaits: Awaited::Window { address, bytes } }, BatchEnd::Work);
                    break;
                }
                Err(Refusal::NotLoaded { module, function }) => {
                    queue.work.push_front((token, work));
                    queue.state = QueueState::Parked;
                    (served, end) = (Served::Parked { client, awaits: Awaited::Kernel { module, function } }, BatchEnd::Work);
                    break;
                }
                Err(Refusal::Fault(fault)) => {
                    queue.work.push_front((token, work));
                    self.issue_batch(streams, bound, BatchEnd::Work, false)?;
                    return Ok(Served::Fault(fault));
                }
            }
        }
        if let Some(queue) = streams.queues.get_mut(&id) {
            queue.work.drain(..planned_pieces);
            if end == BatchEnd::Chance && queue.work.is_empty() {
                if queue.burst.is_over() {
                    end = BatchEnd::Burst;
                } else if !waits && queue.position.is_endless() && queue.burst.goes_on(1) && self.batch.len() >= SHORTEST_SEGMENT {
                    end = BatchEnd::Part;
                }
            }
        }
        let count = self.batch.len();
        // A client may wait for a copy that comes last.
        let waits = waits && !self.batch.last().is_some_and(|planned| self.small_work.is_copy(planned));
        self.issue_batch(streams, bound, end, waits)?;
        let waits_for_more = !has_repeated && streams.queues.get(&id).is_some_and(|queue| count > 0 && queue.left == count);
        streams.end_service(id, waits_for_more);
        Ok(served)
    }

    /// Submits the chains that came next in this stream the last time, as long as the queue begins
    /// with their very kernels. True if it has submitted any. `takes_copies`: small copies may be
    /// nodes.
    ///
    /// # Errors
    /// The driver's. Placeholders for the kernels that were not submitted are back in the queue.
    fn issue_repeated(&mut self, streams: &mut Streams, bound: BoundStream, planner: &mut Planner<'_>, longest_node_ns: u64, takes_copies: bool) -> Call<bool> {
        let Some(queue) = streams.queues.get_mut(&bound.id).filter(|queue| queue.last.is_some()) else { return Ok(false) };
        queue.compared = queue.compared.wrapping_add(1);
        if queue.compared.is_multiple_of(PLAN_EVERY) {
            return Ok(false);
        }
        self.look_after_chains(&mut streams.tracker, streams.clock.now());
        let (mut has_submitted, mut pieces) = (false, 0);
        loop {
            let Streams { queues, tracker, ready, .. } = &mut *streams;
            let Some(queue) = queues.get_mut(&bound.id) else { break };
            let Some(next) = queue.last.and_then(|last| self.chains.next_of(last, bound.id)) else { break };
            // What is no segment and not all that has come was cut by chance, but for a head.
            let is_cut = next.length >= MUCH_WORK && (queue.in_flight == 0 || !queue.position.is_endless());
            let is_worth_it = is_cut || next.length == queue.work.len();
            pieces += next.length;
            if !is_worth_it || next.length > queue.work.len() || pieces > QUANTUM || (next.length == 1 && tracker.is_card_filled()) {
                break;
            }
            let Some(chain) = self.chains.find_free(next, |slot, fence| tracker.is_fence_reached(slot, fence)) else { break };
            let copies = self.small_work.count_copies(queue.copies, chain.kernels());
            if !begins_with(chain, queue.work.iter_mut().map(|(_, work)| work), planner, &self.small_work, takes_copies && copies <= MOST_COPIES)
                || !are_short(chain.kernels(), &self.small_work, &tracker.estimates, longest_node_ns, LONGEST_BATCH_NS)
            {
                break;
            }
            queue.position.go_on(chain.shapes());
            queue.makes_segments = true;
            queue.copies = copies;
            let others_wait = queue.in_flight == 0 && !ready.is_empty();
            let mut tokens = std::mem::take(&mut self.tokens);
            tokens.extend(queue.work.drain(..next.length).map(|(token, _)| token));
            let chosen = self.chains.choose_again(next);
            let issued = self.issue_chain(streams, bound, &chosen, &tokens);
            if issued.is_err() {
                streams.put_back(bound.id, &tokens);
            }
            tokens.clear();
            self.tokens = tokens;
            issued?;
            self.counters.engine(self.settings.engine).count_repeated();
            has_submitted = true;
            if others_wait {
                break;
            }
        }
        Ok(has_submitted)
    }

    /// True if small copies of this stream may be nodes of chains, behind one. They need a
    /// multiprocessor then, as a copy engine does not: so not beside kernels that fill the card or
    /// may do so, and not beside those of the same client in another stream, which may wait for
    /// what is copied.
    fn takes_copies(&mut self, streams: &mut Streams, id: StreamId) -> bool {
        if !self.settings.small_copies {
            return false;
        }
        self.look_after_chains(&mut streams.tracker, streams.clock.now());
        !self.runs_unknown && !streams.tracker.is_card_filled() && streams.is_alone(id)
    }

    /// Submits a fence if the stream has work after its last one. A client may wait for that work.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn write_due_fence(&mut self, streams: &mut Streams, id: StreamId) -> Call<()> {
        match streams.queues.get(&id).and_then(|queue| queue.slot) {
            Some(slot) if streams.tracker.slot(slot).needs_fence() => streams.tracker.write_fence(slot),
            _ => Ok(()),
        }
    }

    /// Binds the stream to a slot, if it is not bound yet. Makes a driver stream if there are too
    /// few.
    fn bind_slot(&mut self, streams: &mut Streams, id: StreamId, partition: Option<Arc<Partition>>) -> Call<SlotIndex> {
        let Some(queue) = streams.queues.get_mut(&id) else { return Err(CudaError::INVALID_HANDLE) };
        if let Some(slot) = queue.slot {
            return Ok(slot);
        }
        let priority = queue.stream.priority;
        let kind = StreamKind { partition: PartitionId::of(partition.as_deref()), priority };
        let bound = streams.tracker.bind(kind, || match partition {
            Some(partition) => partition.create_stream(priority),
            None => self.driver.create_engine_stream(self.settings.engine, priority),
        })?;
        queue.slot = bound;
        bound.ok_or(CudaError::OUT_OF_MEMORY)
    }

    /// Submits one piece of work that is not in a batch.
    ///
    /// # Errors
    /// The driver's. What has begun is in flight, because nobody knows how far it comes: it must
    /// not be done again as if nothing had happened.
    fn issue_piece(&mut self, streams: &mut Streams, bound: BoundStream, token: u64, plan: Plan) -> Result<(), Failure> {
        let (plan, followers) = match plan {
            Plan::Followed(plan, followers) => (*plan, followers),
            Plan::Kernel(mut planned) => {
                let constants = std::mem::take(&mut planned.constants);
                (Plan::Kernel(planned), constants)
            }
            plan => (plan, Vec::new()),
        };
        let stream = streams.tracker.slot(bound.slot).stream();
        let Some(client) = streams.client_of(bound.id) else { return Err(CudaError::INVALID_HANDLE.into()) };
        let (expected_ns, work) = match plan {
            Plan::Nothing | Plan::Followed(..) => (0, FlightWork::Transfer),
            Plan::Kernel(planned) => {
                self.launch_kernel(&mut streams.tracker, &planned, client, stream)?;
                self.describe_kernel(&streams.tracker, &planned)
            }
            Plan::Copies(pieces) => {
                let mut expected_ns = TRANSFER_NS;
                for (submitted, piece) in pieces.iter().enumerate() {
                    expected_ns += piece.bytes() / COPY_BYTES_PER_NS;
                    if let Err(error) = self.copy_piece(piece, stream) {
                        let has_begun = submitted > 0;
                        if has_begun {
                            self.add_flight(streams, bound, token, expected_ns, FlightWork::Transfer);
                        }
                        return Err(Failure { error, has_begun });
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
        for piece in &followers {
            if let Err(error) = self.copy_piece(piece, stream) {
                self.add_flight(streams, bound, token, expected_ns, work);
                return Err(Failure { error, has_begun: true });
            }
        }
        streams.clock.tick();
        self.add_flight(streams, bound, token, expected_ns, work);
        self.write_fence_if_due(streams, bound.slot).map_err(|error| Failure { error, has_begun: true })
    }

    fn copy_piece(&self, piece: &CopyPiece, stream: Stream) -> Call<()> {
        match piece {
            CopyPiece::Row { target, source, bytes } => self.driver.copy_row(*target, *source, *bytes, stream),
            CopyPiece::Rectangle(copy) => self.driver.copy_rectangle(copy, stream),
            CopyPiece::Array(copy) => self.driver.copy_array(copy, stream),
        }
    }

    /// Launches one kernel.
    fn launch_kernel(&mut self, tracker: &mut Tracker, planned: &PlannedKernel, client: ClientId, stream: Stream) -> Call<()> {
        let kernel = planned.kernel();
        let is_own = self.small_work.made(planned);
        if !is_own {
            let (_, measured) = tracker.estimates.note_launch(kernel, client);
            self.runs_unknown |= !measured;
        }
        self.counters.engine(self.settings.engine).count_alone();
        self.driver.make_first_uses_as_a_card_would(|| std::iter::once((kernel.local, kernel.prints)))?;
        self.driver.launch(planned.code.handle, &planned.shape, &planned.parameters, stream).map_err(|error| {
            self.failed_kernel = (!is_own).then(|| kernel.name.clone());
            // The driver's error for a launch that needs more than its function's attributes allow
            // is "invalid value".
            if error == CudaError::INVALID_VALUE { CudaError::LAUNCH_OUT_OF_RESOURCES } else { error }
        })
    }

    /// The estimate and the description of a kernel that was launched alone.
    fn describe_kernel(&self, tracker: &Tracker, planned: &PlannedKernel) -> (u64, FlightWork) {
        if self.small_work.made(planned) {
            return (TRANSFER_NS, FlightWork::OwnKernel);
        }
        let kernel = planned.kernel();
        let (expected_ns, measured) = (tracker.estimates.kernel_ns(kernel), tracker.estimates.is_measured(kernel));
        let blocks: u64 = planned.shape.grid.iter().map(|blocks| u64::from(*blocks)).product();
        let fills_card = blocks >= u64::from(self.settings.limits.multiprocessors) && expected_ns >= LONG_KERNEL_NS;
        let footprint = if fills_card { Footprint::WholeCard } else { Footprint::Partial };
        (expected_ns, FlightWork::Kernel { id: kernel.id, prints: kernel.prints, footprint, measured })
    }

    /// Notes that a piece of work was submitted, or a part of it.
    fn add_flight(&self, streams: &mut Streams, bound: BoundStream, token: u64, expected_ns: u64, work: FlightWork) {
        let Some(queue) = streams.queues.get_mut(&bound.id) else { return };
        queue.in_flight += 1;
        let client = queue.stream.client.id;
        let flight = Flight { client, stream: bound.id, token, fence: 0, expected_ns, work, reporting: Reporting::Due };
        streams.tracker.add_flight(bound.slot, flight, streams.clock.now());
    }

    fn write_fence_if_due(&self, streams: &mut Streams, slot: SlotIndex) -> Call<()> {
        if streams.tracker.slot(slot).is_fence_due() { streams.tracker.write_fence(slot) } else { Ok(()) }
    }

    /// Submits the batch that was collected: as chains where there are free ones, else one by one.
    /// `waits`: the beginning of a segment waits for the rest of it.
    ///
    /// # Errors
    /// The driver's. Placeholders for the kernels that were not submitted are back in the queue.
    fn issue_batch(&mut self, streams: &mut Streams, bound: BoundStream, end: BatchEnd, waits: bool) -> Call<()> {
        let (mut batch, mut tokens) = (std::mem::take(&mut self.batch), std::mem::take(&mut self.tokens));
        let (shapes, launches) = (std::mem::take(&mut self.shapes), std::mem::take(&mut self.launches));
        let mut position = streams.queues.get(&bound.id).map(|queue| queue.position).unwrap_or_default();
        self.batch_ns = 0;
        let mut at = 0;
        let mut issued = Ok(());
        let (mut follows_segment, mut follows_part) = (false, false);
        while at < batch.len() && issued.is_ok() {
            let whole = (batch.len() - at).min(LONGEST_CHAIN);
            let segment = position.find_end(&shapes[at..at + whole]);
            // The rest of a segment may come while the one before, which was just submitted whole,
            // runs. Then this one has a chain, too, and its beginning alone has none.
            if (follows_segment || waits) && end == BatchEnd::Chance && segment.is_none() && whole < LONGEST_CHAIN {
                Issuer::return_rest(streams, bound.id, batch.drain(at..).zip(tokens.drain(at..)));
                break;
            }
            // What is left of a batch that was cut waits as what comes later does, while what was
            // just submitted runs: together they need fewer chains.
            let is_short = at > 0 && end == BatchEnd::Chance && batch.len() - at < SHORTEST_SEGMENT;
            // Where more is expected, so does all that is left behind a part.
            let is_returned = is_short || (follows_part && segment.is_none());
            if is_returned && streams.tracker.slot(bound.slot).remaining_ns(streams.clock.now()) > GATHER_WHILE_BUSY_NS {
                self.counters.engine(self.settings.engine).count_returned();
                Issuer::return_rest(streams, bound.id, batch.drain(at..).zip(tokens.drain(at..)));
                break;
            }
            let cut = Cut { segment, is_whole: position.is_beginning(), end, is_endless: position.is_endless() };
            let rest = Batch { kernels: &mut batch[at..], shapes: &shapes[at..], launches: &launches[at..] };
            match self.issue_batch_head(streams, bound, rest, &tokens[at..], cut) {
                Ok(count) => {
                    position.go_on(&shapes[at..at + count]);
                    (at, follows_segment) = (at + count, segment == Some(count));
                    follows_part = end == BatchEnd::Part && count == part_length(whole) && position.is_endless();
                }
                Err(Failure { error, has_begun }) => {
                    at += usize::from(has_begun);
                    issued = Err(error);
                }
            }
        }
        if let Some(queue) = streams.queues.get_mut(&bound.id) {
            queue.position = if end == BatchEnd::Work { Position::default() } else { position };
        }
        streams.put_back(bound.id, &tokens[at..]);
        batch.clear();
        tokens.clear();
        (self.batch, self.tokens, self.shapes, self.launches) = (batch, tokens, shapes, launches);
        self.shapes.clear();
        self.launches.clear();
        issued
    }

    /// Puts kernels that were planned back into their queue. They wait there for more.
    fn return_rest(streams: &mut Streams, id: StreamId, rest: impl DoubleEndedIterator<Item = (PlannedKernel, u64)>) {
        let Some(queue) = streams.queues.get_mut(&id) else { return };
        let has_more = !queue.work.is_empty();
        for (planned, token) in rest.rev() {
            // It will be counted again.
            queue.copies = queue.copies.saturating_sub(usize::from(matches!(&planned.asked, Asked::Other(work) if matches!(**work, Work::Copy { .. }))));
            queue.work.push_front((token, planned.into_work()));
        }
        queue.left = if has_more { 0 } else { queue.work.len() };
    }

    /// Submits the beginning of a batch, as one chain or as one kernel. Returns the number of
    /// kernels that were submitted.
    fn issue_batch_head(&mut self, streams: &mut Streams, bound: BoundStream, batch: Batch<'_>, tokens: &[u64], cut: Cut) -> Result<usize, Failure> {
        // The fence kernel at a chain's end needs an SM. If a long kernel occupies all SMs, a
        // client that waits for a single kernel would also wait for that one. A value write needs
        // no SM.
        let write_fence = batch.kernels.len() == 1 && streams.tracker.is_card_filled();
        let Batch { kernels, shapes, launches } = batch;
        let chosen = if write_fence { None } else { self.choose_chain(streams, bound.id, Batch { kernels: &mut *kernels, shapes, launches }, cut) };
        if let Some(chosen) = chosen {
            return Ok(self.issue_chain(streams, bound, &chosen, tokens)?);
        }
        let Some(client) = streams.client_of(bound.id) else { return Err(CudaError::INVALID_HANDLE.into()) };
        let stream = streams.tracker.slot(bound.slot).stream();
        // As for a chain: its time begins with its launch.
        streams.clock.tick();
        self.launch_kernel(&mut streams.tracker, &kernels[0], client, stream)?;
        let (expected_ns, work) = self.describe_kernel(&streams.tracker, &kernels[0]);
        self.add_flight(streams, bound, tokens[0], expected_ns, work);
        if let Some(queue) = streams.queues.get_mut(&bound.id) {
            queue.repeats = false;
        }
        self.write_fence_if_due(streams, bound.slot).map_err(|error| Failure { error, has_begun: true })?;
        Ok(1)
    }

    /// Submits a chain that is set to the kernels of these tokens. Returns the number of kernels.
    fn issue_chain(&mut self, streams: &mut Streams, bound: BoundStream, chosen: &ChosenChain, tokens: &[u64]) -> Call<usize> {
        let Streams { queues, tracker, clock, .. } = streams;
        // Its time begins with its launch: what the round has done until here is no part of its
        // kernels.
        clock.tick();
        let now = clock.now();
        let chain = self.chains.chosen(chosen);
        tracker.clear_word(chain.word());
        // A kernel that prints is no node of a chain.
        self.driver.make_first_uses_as_a_card_would(|| chain.kernels().iter().map(|planned| (planned.kernel().local, false)))?;
        chain.launch(tracker.slot(bound.slot).stream())?;
        chain.set_running(bound.slot, tracker.slot(bound.slot).next_fence());
        if let Some(queue) = queues.get_mut(&bound.id) {
            queue.in_flight += chosen.length;
            queue.repeats = chosen.nodes_set == 0;
            let client = queue.stream.client.id;
            for (planned, token) in chain.kernels().iter().zip(tokens) {
                let kernel = planned.kernel();
                // Work in place of which a kernel runs may be done again after a fault.
                let (expected_ns, work) = if self.small_work.made(planned) {
                    (TRANSFER_NS, FlightWork::OwnKernel)
                } else {
                    let (expected_ns, measured) = tracker.estimates.note_launch(kernel, client);
                    self.runs_unknown |= !measured;
                    (expected_ns, FlightWork::Kernel { id: kernel.id, prints: false, footprint: Footprint::Partial, measured })
                };
                let flight = Flight { client, stream: bound.id, token: *token, fence: 0, expected_ns, work, reporting: Reporting::Due };
                tracker.add_flight(bound.slot, flight, now);
            }
            // One kernel alone was not coalesced with others, and sets and copies are no kernels
            // of the client's.
            if chosen.length > 1 {
                let kernels = chain.kernels().iter().filter(|planned| !self.small_work.made(planned)).count();
                queue.stream.client.counts.coalesced.fetch_add(kernels as u64, Ordering::Relaxed);
            }
        }
        tracker.add_chain_fence(bound.slot, chain.word());
        if let Some(queue) = queues.get_mut(&bound.id) {
            queue.last = Some(self.chains.note_next(queue.last, chosen));
        }
        self.counters.engine(self.settings.engine).count_chain(chosen.length, chosen.nodes_set);
        Ok(chosen.length)
    }

    /// Chooses a chain for the beginning of the batch. Keeps a request for another chain, and has
    /// chains destroyed that are no longer needed.
    fn choose_chain(&mut self, streams: &mut Streams, stream: StreamId, batch: Batch<'_>, cut: Cut) -> Option<ChosenChain> {
        self.look_after_chains(&mut streams.tracker, streams.clock.now());
        let Streams { queues, tracker, .. } = streams;
        let (chosen, order) = self.chains.choose(batch, cut, stream, |slot, fence| tracker.is_fence_reached(slot, fence));
        for (stream, recipe) in self.chains.take_adopted() {
            if let Some(queue) = queues.get(&stream) {
                queue.stream.client.recipes.lock().note(recipe, 1);
            }
        }
        for Inherited { stream, name, count } in self.chains.take_inherited() {
            self.counters.chains_inherited.fetch_add(1, Ordering::Relaxed);
            let recipe = || self.chains.named(name)?.recipe(self.small_work.module());
            if let (Some(queue), Some(count)) = (queues.get(&stream), count)
                && let Some(recipe) = recipe()
                && queue.stream.client.recipes.lock().note(recipe, count)
            {
                self.heirs.push(queue.stream.client.id);
            }
        }
        self.destroy_retired();
        self.ordered.extend(order);
        chosen
    }

    /// Decides from time to time whether chains are made, and has those destroyed that nobody
    /// needs.
    fn look_after_chains(&mut self, tracker: &mut Tracker, now: u64) {
        if now.saturating_sub(self.looked) < LOOK_NS {
            return;
        }
        self.looked = now;
        self.chains.set_making(self.may_make_chains_at(tracker, now));
        self.runs_unknown = tracker.runs_known_long() || self.standing.any();
        self.chains.release_leaving(&mut |slot, fence| tracker.is_fence_reached(slot, fence));
        let left_over = self.chains.take_left_over();
        if !left_over.is_empty() {
            tracing::debug!(chains = left_over.len(), "nobody has needed these chains, which were made in advance");
            self.helpers.run(move || drop(left_over));
        }
        self.destroy_retired();
    }

    /// Whether chains may be made now: no work stands still, and the driver need not be spared.
    pub(crate) fn may_make_chains(&self, streams: &Streams) -> bool {
        self.may_make_chains_at(&streams.tracker, streams.clock.now())
    }

    fn may_make_chains_at(&self, tracker: &Tracker, now: u64) -> bool {
        !self.is_driver_spared && !tracker.stands_still(now, STANDS_STILL_NS) && !self.standing.any()
    }

    fn destroy_retired(&mut self) {
        if let Some(retired) = self.chains.take_retired() {
            self.helpers.run(move || drop(retired));
        }
    }

    // ---- for the engine

    /// Takes the requests to make chains.
    pub(crate) fn take_ordered(&mut self) -> impl Iterator<Item = ChainOrder> {
        self.ordered.drain(..)
    }

    /// Takes the clients of whose chains another process does not know yet, because they have taken
    /// them of others that are gone.
    pub(crate) fn take_heirs(&mut self) -> Vec<ClientId> {
        std::mem::take(&mut self.heirs)
    }

    /// These streams are gone, and leave their chains.
    pub(crate) fn forget_streams(&mut self, streams: &[StreamId]) {
        self.chains.leave(streams);
    }

    /// From now on no chains are made, or they are made again.
    pub(crate) fn spare_driver(&mut self, is_spared: bool) {
        self.is_driver_spared = is_spared;
        self.looked = 0;
    }

    /// Takes the name of the kernel whose launch failed, if one has.
    pub(crate) fn take_failed_kernel(&mut self) -> Option<Arc<str>> {
        self.failed_kernel.take()
    }

    /// Adds a chain that a helper thread has made. `None` if it could not be made.
    pub(crate) fn add_built_chain(&mut self, pending: PendingChain, chain: Option<Chain>) {
        self.chains.add_built(pending, chain);
    }

    /// Forgets kernels that will be unloaded.
    pub(crate) fn forget_kernels(&mut self, tracker: &mut Tracker, kernels: &[u64]) {
        self.chains.forget_kernels(|kernel| kernels.contains(&kernel));
        self.chains.release_leaving(&mut |slot, fence| tracker.is_fence_reached(slot, fence));
        self.destroy_retired();
        for kernel in kernels {
            tracker.estimates.forget(*kernel);
        }
    }
}
