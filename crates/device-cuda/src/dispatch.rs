//! Giving work to the driver: streams take turns, kernels go as chains with their marks in them, and other work gets a mark where somebody may wait.

use crate::coalesce::{self, Chain, Order};
use crate::context::{Kernel, Partition, PartitionId};
use crate::driver::Stream;
use crate::engine::{Engine, Message};
use crate::fault::CudaError;
use crate::slots::{Flight, Kind, Place};
use crate::work::{self, Move, Plan, Planned, Refusal};
use cumux_device::{Fault, StreamId, Work};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Work that one stream may give before the next one has its turn.
const TURN: usize = coalesce::LONGEST;
/// A mark at least after so much work, and after so much expected time.
const MARK_EVERY: u32 = 64;
const MARK_NS: u64 = 100_000;
/// Of a kernel that was never seen.
const UNKNOWN_NS: u64 = 20_000;
/// A kernel of this length gains nothing in a chain, and its neighbours in the chain would be reported late.
pub(crate) const LONG_NS: u64 = 60_000;
/// While a stream has more than this to do, what comes next may gather into a longer chain.
const AHEAD_NS: u64 = 8_000;
/// Gathers no longer than this, and no more than a chain holds.
const GATHER_NS: u64 = 100_000;

/// A piece of work that was given alone.
#[derive(Clone, Copy, Default)]
struct Ran {
    /// The kernel's number; 0 if it is none.
    kernel: u64,
    prints: bool,
    /// It has a block for every multiprocessor.
    wide: bool,
}

/// What is known of a kernel that was launched.
pub(crate) struct Known {
    /// Expected nanoseconds.
    pub ns: u64,
    pub name: Arc<str>,
    /// It may fail an assertion.
    pub asserts: bool,
}

impl Known {
    fn new(kernel: &Kernel) -> Known {
        Known { ns: UNKNOWN_NS, name: kernel.name.clone(), asserts: kernel.asserts }
    }
}

/// Nanoseconds that a kernel is expected to take.
fn expected(table: &FxHashMap<u64, Known>, planned: &Planned) -> u64 {
    table.get(&planned.kernel().id).map_or(UNKNOWN_NS, |known| known.ns)
}

impl Engine {
    /// One turn of each stream that has something to give. Returns whether anything was given.
    pub(crate) fn issue(&mut self) -> bool {
        let turns = self.ready.len();
        let mut moved = false;
        for _ in 0..turns {
            let Some(id) = self.ready.pop_front() else { break };
            if self.gathers(id) {
                self.ready.push_back(id);
                continue;
            }
            moved = true;
            let Some(lane) = self.lanes.get_mut(&id) else { continue };
            lane.ready = false;
            if let Err(code) = self.turn(id) {
                if code.is_fatal() {
                    self.lost(code);
                    return true;
                }
                let client = self.lanes.get(&id).map(|lane| lane.stream.client.id);
                if let Some(client) = client {
                    let what = self.blame.take().map_or_else(String::new, |name| format!("launching {name}: "));
                    let text = format!("{what}{}", self.driver.describe(code));
                    self.stop(client, &Fault { result: code.number(), text });
                }
            }
        }
        moved
    }

    /// Whether the stream is busy for long enough that its next work had better become more first.
    fn gathers(&mut self, id: StreamId) -> bool {
        let now = self.now();
        let Some(lane) = self.lanes.get(&id) else { return false };
        if self.long_work.is_held() && lane.long_next {
            return true;
        }
        let Some(slot) = lane.slot.filter(|_| lane.in_flight > 0 && self.shared.coalesces) else { return false };
        lane.queue.len() < coalesce::LONGEST && now.saturating_sub(lane.since) < GATHER_NS && self.slots.slots[slot].remaining(now) > AHEAD_NS
    }

    /// On an error, what was not issued is back in the queue, for the caller to end. What was issued has its mark in any case: somebody waits for its end.
    fn turn(&mut self, id: StreamId) -> Result<(), CudaError> {
        let done = self.give(id);
        match self.lanes.get(&id).and_then(|lane| lane.slot) {
            Some(slot) if self.slots.slots[slot].unmarked > 0 => done.and(self.mark(slot)),
            _ => done,
        }
    }

    fn give(&mut self, id: StreamId) -> Result<(), CudaError> {
        let Some(lane) = self.lanes.get_mut(&id) else { return Ok(()) };
        lane.long_next = false;
        if lane.queue.is_empty() || lane.parked {
            return Ok(());
        }
        let stream = lane.stream.clone();
        let client = stream.client.clone();
        let partition = stream.partition();
        if let Some(slot) = lane.slot.filter(|slot| self.slots.partition(*slot) != PartitionId::of(partition.as_deref())) {
            // The client has another share now: what was issued ends where it is, then the stream moves.
            lane.moving = lane.in_flight > 0;
            if lane.moving {
                return Ok(());
            }
            lane.slot = None;
            self.slots.unbind(slot);
        }
        let plain = partition.is_none() && stream.priority == 0 && self.shared.coalesces;
        let slot = self.bind(id, partition)?;
        for _ in 0..TURN {
            let Some(lane) = self.lanes.get_mut(&id) else { break };
            let Some((token, mut work)) = lane.queue.pop_front() else { break };
            match work::plan(&client, &self.shared.limits, &mut work) {
                Ok(Plan::Kernel(planned)) if self.long_work.is_held() && expected(&self.expected, &planned) >= LONG_NS => {
                    // Somebody's module is being loaded, which waits for all that runs: nothing long begins before it is in.
                    work::put_back(&mut work, planned);
                    self.flush(id, slot)?;
                    if let Some(lane) = self.lanes.get_mut(&id) {
                        lane.queue.push_front((token, work));
                        lane.long_next = true;
                        lane.ready = true;
                        self.ready.push_back(id);
                    }
                    break;
                }
                Ok(Plan::Kernel(planned)) if plain && coalesce::fits(&planned) && expected(&self.expected, &planned) < LONG_NS => {
                    self.tokens.push(token);
                    self.run.push(planned);
                }
                Ok(plan) => {
                    let issued = self.flush(id, slot).and_then(|()| self.one(id, slot, token, plan));
                    if issued.is_err() {
                        self.put_back(id, &[token]);
                        return issued;
                    }
                }
                Err(Refusal::Register(address, bytes)) => {
                    lane.queue.push_front((token, work));
                    lane.parked = true;
                    self.shared.register(&client, address, bytes);
                    break;
                }
                Err(Refusal::Fault(fault)) => {
                    lane.queue.push_front((token, work));
                    self.flush(id, slot)?;
                    self.stop(client.id, &fault);
                    return Ok(());
                }
            }
        }
        self.flush(id, slot)?;
        let now = self.now();
        let Some(lane) = self.lanes.get_mut(&id) else { return Ok(()) };
        if !lane.queue.is_empty() && !lane.parked && !lane.ready {
            lane.ready = true;
            lane.since = now;
            self.ready.push_back(id);
        }
        if lane.in_flight == 0 && lane.queue.is_empty() && lane.slot.take().is_some() {
            self.slots.unbind(slot);
        }
        Ok(())
    }

    /// Work that could not be issued goes back where it came from, so that it is reported in its place. It will not be run.
    fn put_back(&mut self, id: StreamId, tokens: &[u64]) {
        if let Some(lane) = self.lanes.get_mut(&id) {
            tokens.iter().rev().for_each(|token| lane.queue.push_front((*token, Work::Mark)));
        }
    }

    /// The stream's slot; a driver stream is made when there are too few.
    fn bind(&mut self, id: StreamId, partition: Option<Arc<Partition>>) -> Result<usize, CudaError> {
        let Some(lane) = self.lanes.get_mut(&id) else { return Err(CudaError::INVALID_HANDLE) };
        if let Some(slot) = lane.slot {
            return Ok(slot);
        }
        let priority = lane.stream.priority;
        let kind: Kind = (PartitionId::of(partition.as_deref()), priority);
        let at = match self.slots.place(kind, self.slots.slots.len() < crate::engine::SLOTS) {
            Place::At(at) => at,
            Place::New => {
                let stream = match partition {
                    Some(partition) => partition.create_stream(priority)?,
                    None => self.driver.create_stream(priority)?,
                };
                self.slots.add(kind, stream)
            }
            Place::Full => return Err(CudaError::OUT_OF_MEMORY),
        };
        self.slots.bind(at);
        lane.slot = Some(at);
        Ok(at)
    }

    /// Issues one piece of work that is no part of a run.
    fn one(&mut self, id: StreamId, slot: usize, token: u64, plan: Plan) -> Result<(), CudaError> {
        let stream = self.slots.slots[slot].stream;
        let mut weight = 2_000;
        let mut kernel = Ran::default();
        match plan {
            Plan::Nothing => weight = 0,
            Plan::Kernel(planned) => {
                self.single(&planned, stream)?;
                weight = expected(&self.expected, &planned);
                kernel = self.ran(&planned);
            }
            Plan::Moves(moves) => {
                for (begun, m) in moves.iter().enumerate() {
                    weight += match m {
                        // At about 2 TB/s inside the card.
                        Move::Flat { bytes, .. } => bytes / 2_000,
                        Move::Box(b) => b.width * b.height * b.depth / 2_000,
                    };
                    let issued = match m {
                        Move::Flat { target, source, bytes } => self.driver.copy_row(*target, *source, *bytes, stream),
                        Move::Box(b) => self.driver.copy_rectangle(b, stream),
                    };
                    if let Err(code) = issued {
                        // What the driver has of it is in flight like anything else, and reported with what was refused.
                        if begun > 0 {
                            self.board(id, slot, self.now(), token, weight, kernel);
                            self.slots.slots[slot].flights.back_mut().into_iter().for_each(|flight| flight.reported = true);
                        }
                        return Err(code);
                    }
                }
            }
            Plan::Set(set) => {
                weight += set.width * u64::from(set.element) * set.height / 2_000;
                self.driver.set_memory(&set, stream)?;
            }
            Plan::Value { address, value, bytes } => self.driver.write_value(address, value, bytes, stream)?,
        }
        self.tick();
        let now = self.now();
        self.board(id, slot, now, token, weight, kernel);
        self.mark_if_due(slot)
    }

    /// Launches one kernel.
    fn single(&mut self, planned: &Planned, stream: Stream) -> Result<(), CudaError> {
        self.meet(planned);
        self.shared.counters.kernels.fetch_add(1, Ordering::Relaxed);
        self.driver.launch(planned.kernel().handle, &planned.shape, &planned.parameters, stream).map_err(|code| {
            self.blame = Some(planned.kernel().name.clone());
            // This is what the driver says of a launch that asks for more than its function allows.
            if code == CudaError::INVALID_VALUE { CudaError::LAUNCH_OUT_OF_RESOURCES } else { code }
        })
    }

    /// A kernel that is launched for the first time gets its place in the table of what kernels cost and are called.
    fn meet(&mut self, planned: &Planned) {
        let kernel = planned.kernel();
        self.expected.entry(kernel.id).or_insert_with(|| Known::new(kernel));
    }

    /// Issues the run of kernels that was collected: as chains where one is free, else one by one.
    fn flush(&mut self, id: StreamId, slot: usize) -> Result<(), CudaError> {
        if self.run.is_empty() {
            return Ok(());
        }
        let (mut run, mut tokens) = (std::mem::take(&mut self.run), std::mem::take(&mut self.tokens));
        let mut at = 0;
        let mut issued = Ok(());
        while at < run.len() && issued.is_ok() {
            match self.some(id, slot, &mut run[at..], &tokens[at..]) {
                Ok(count) => at += count,
                Err(code) => issued = Err(code),
            }
        }
        self.put_back(id, &tokens[at..]);
        run.clear();
        tokens.clear();
        (self.run, self.tokens) = (run, tokens);
        issued
    }

    /// Issues the beginning of a run, as one chain or as one kernel. Returns how many kernels that were.
    fn some(&mut self, id: StreamId, slot: usize, run: &mut [Planned], tokens: &[u64]) -> Result<usize, CudaError> {
        let stream = self.slots.slots[slot].stream;
        // The mark at a chain's end is a kernel, and needs a place on the card: where long kernels fill it, whoever waits for a single kernel would wait for
        // theirs as well. A written value needs none.
        let alone = run.len() == 1 && self.filling > 0;
        let picked = if alone { None } else { self.pick(run) };
        let Some(picked) = picked else {
            self.single(&run[0], stream)?;
            let (weight, kernel, now) = (expected(&self.expected, &run[0]), self.ran(&run[0]), self.now());
            self.board(id, slot, now, tokens[0], weight, kernel);
            self.mark_if_due(slot)?;
            return Ok(1);
        };
        let now = self.now();
        let Engine { chains, words, slots, lanes, busy, expected, .. } = self;
        let chain = chains.chain(&picked);
        words.clear(chain.word);
        chain.launch(stream)?;
        let at = &mut slots.slots[slot];
        chain.runs(slot, at.issued + 1);
        if at.flights.is_empty() {
            busy.push(slot);
        }
        if let Some(lane) = lanes.get_mut(&id) {
            lane.in_flight += picked.length;
            let client = lane.stream.client.id;
            for (planned, token) in chain.kernels().iter().zip(tokens) {
                let kernel = planned.kernel();
                let weight = expected.entry(kernel.id).or_insert_with(|| Known::new(kernel)).ns;
                at.push(Flight { client, stream: id, token: *token, mark: 0, weight, kernel: kernel.id, prints: false, fills: false, reported: false }, now);
            }
        }
        at.marked(Some(chain.word));
        let counters = &self.shared.counters;
        counters.kernels.fetch_add(picked.length as u64, Ordering::Relaxed);
        counters.coalesced.fetch_add(picked.length as u64, Ordering::Relaxed);
        counters.chains.fetch_add(1, Ordering::Relaxed);
        counters.nodes_set.fetch_add(picked.nodes_set as u64, Ordering::Relaxed);
        // A chain of one shares its call with nobody.
        if picked.length > 1
            && let Some(lane) = self.lanes.get(&id)
        {
            lane.stream.client.counts.coalesced.fetch_add(picked.length as u64, Ordering::Relaxed);
        }
        Ok(picked.length)
    }

    /// A chain for the beginning of the run, and what follows from looking for one.
    fn pick(&mut self, run: &mut [Planned]) -> Option<coalesce::Picked> {
        let (slots, words) = (&mut self.slots.slots, &self.words);
        let expected_ns = run.iter().map(|planned| expected(&self.expected, planned)).sum();
        let (picked, order) = self.chains.pick(run, expected_ns, |slot, mark| slots[slot].look(words.load(slot), |word| words.load(word)) >= mark);
        if let Some(retired) = self.chains.retired() {
            self.shared.helpers.run(move || drop(retired));
        }
        if let Some(order) = order {
            self.order(order);
        }
        picked
    }

    /// Has a chain made.
    fn order(&mut self, Order { wanted, content }: Order) {
        let (shared, driver, stream, number) = (self.shared.clone(), self.driver.clone(), self.upload, self.number);
        let (mark, address) = (self.shared.mark, self.words.address(wanted.word));
        self.shared.helpers.run(move || {
            let length = content.len();
            let chain = Chain::build(&driver, content, mark, wanted.word, address, stream)
                .inspect_err(|code| tracing::warn!(length, code = code.number(), "no graph can be made of a run of kernels"));
            shared.mailboxes.of(number).send(Message::Chain(wanted, chain.ok()));
        });
    }

    /// What is to be known of a kernel that was launched alone.
    fn ran(&self, planned: &Planned) -> Ran {
        let blocks: u64 = planned.shape.grid.iter().map(|blocks| u64::from(*blocks)).product();
        Ran { kernel: planned.kernel().id, prints: planned.kernel().prints, wide: blocks >= self.shared.limits.multiprocessors() }
    }

    /// Work that the driver has now.
    fn board(&mut self, id: StreamId, slot: usize, now: u64, token: u64, weight: u64, Ran { kernel, prints, wide }: Ran) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        lane.in_flight += 1;
        let at = &mut self.slots.slots[slot];
        if at.flights.is_empty() {
            self.busy.push(slot);
        }
        let client = lane.stream.client.id;
        let fills = wide && weight >= LONG_NS;
        self.filling += usize::from(fills);
        at.push(Flight { client, stream: id, token, mark: 0, weight, kernel, prints, fills, reported: false }, now);
    }

    fn mark_if_due(&mut self, slot: usize) -> Result<(), CudaError> {
        let at = &self.slots.slots[slot];
        if at.unmarked >= MARK_EVERY || at.unmarked_ns >= MARK_NS { self.mark(slot) } else { Ok(()) }
    }

    fn mark(&mut self, slot: usize) -> Result<(), CudaError> {
        let at = &mut self.slots.slots[slot];
        self.driver.write_value(self.words.address(slot), at.issued + 1, 8, at.stream)?;
        at.marked(None);
        Ok(())
    }
}
