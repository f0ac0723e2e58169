//! Giving work to the driver: streams take turns, runs of kernels go as chains, and marks follow where somebody may wait.

use crate::coalesce::{self, Chain, Tried};
use crate::driver::{Code, Stream};
use crate::engine::{Engine, Message};
use crate::locate::is_fatal;
use crate::slots::{Flight, Kind, Place};
use crate::work::{self, Move, Plan, Planned, Refusal};
use cumux_device::{Fault, StreamId, Work};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Work that one stream may give before the next one has its turn.
const TURN: usize = 64;
/// A mark at least after so much work, and after so much expected time.
const MARK_EVERY: u32 = 64;
const MARK_NS: u64 = 100_000;
/// Of a kernel that was never seen.
const UNKNOWN_NS: u64 = 20_000;

impl Engine {
    /// One turn of each stream that has something to give.
    pub(crate) fn issue(&mut self) -> bool {
        let turns = self.ready.len();
        for _ in 0..turns {
            let Some(id) = self.ready.pop_front() else { break };
            let Some(lane) = self.lanes.get_mut(&id) else { continue };
            lane.ready = false;
            if let Err(code) = self.turn(id) {
                if is_fatal(code) {
                    self.lost(code);
                    return true;
                }
                let client = self.lanes.get(&id).map(|lane| lane.stream.client.id);
                if let Some(client) = client {
                    let what = self.blame.take().map_or_else(String::new, |name| format!("launching {name}: "));
                    let text = format!("{what}{}", self.driver.text(code));
                    self.stop(client, &Fault { result: code.0, text });
                }
            }
        }
        turns > 0
    }

    /// On an error, what was not issued is back in the queue, for the caller to end.
    fn turn(&mut self, id: StreamId) -> Result<(), Code> {
        let Some(lane) = self.lanes.get(&id) else { return Ok(()) };
        if lane.queue.is_empty() || lane.parked {
            return Ok(());
        }
        let stream = lane.stream.clone();
        let client = stream.client.clone();
        let slot = self.bind(id)?;
        let plain = client.partition.is_none() && stream.priority == 0 && self.shared.coalesces;
        for _ in 0..TURN {
            let Some(lane) = self.lanes.get_mut(&id) else { break };
            let Some((token, mut work)) = lane.queue.pop_front() else { break };
            match work::plan(&client, &self.shared.limits, &mut work) {
                Ok(Plan::Kernel(planned)) if plain && coalesce::fits(&planned) => self.run.push((token, planned)),
                Ok(plan) => {
                    let issued = self.flush(id, slot).and_then(|()| self.one(id, slot, token, plan));
                    if issued.is_err() {
                        self.put_back(id, [token].into_iter());
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
        let Some(lane) = self.lanes.get_mut(&id) else { return Ok(()) };
        if !lane.queue.is_empty() && !lane.parked {
            lane.ready = true;
            self.ready.push_back(id);
        }
        if lane.in_flight == 0 && lane.queue.is_empty() && lane.slot.take().is_some() {
            self.slots.unbind(slot);
        } else if self.slots.slots[slot].unmarked > 0 && !lane.ready {
            self.mark(slot)?;
        }
        Ok(())
    }

    /// Work that could not be issued goes back where it came from, so that it is reported in its place. It will not be run.
    fn put_back(&mut self, id: StreamId, tokens: impl DoubleEndedIterator<Item = u64>) {
        if let Some(lane) = self.lanes.get_mut(&id) {
            tokens.rev().for_each(|token| lane.queue.push_front((token, Work::Mark)));
        }
    }

    /// The stream's slot; a driver stream is made when there are too few.
    fn bind(&mut self, id: StreamId) -> Result<usize, Code> {
        let Some(lane) = self.lanes.get_mut(&id) else { return Err(Code(400)) };
        if let Some(slot) = lane.slot {
            return Ok(slot);
        }
        let priority = lane.stream.priority;
        let partition = lane.stream.client.partition.clone();
        let kind: Kind = (partition.as_ref().map_or(0, |p| p.id), priority);
        let at = match self.slots.place(kind, self.slots.slots.len() < self.words.count()) {
            Place::At(at) => at,
            Place::New => {
                let stream = match partition {
                    Some(partition) => partition.create_stream(priority)?,
                    None => self.driver.create_stream(priority)?,
                };
                self.slots.add(kind, stream)
            }
        };
        self.slots.bind(at);
        lane.slot = Some(at);
        Ok(at)
    }

    /// Issues one piece of work that is no part of a run.
    fn one(&mut self, id: StreamId, slot: usize, token: u64, plan: Plan) -> Result<(), Code> {
        let stream = self.slots.slots[slot].stream;
        let mut weight = 2_000;
        let mut planned = None;
        match plan {
            Plan::Nothing => weight = 0,
            Plan::Kernel(kernel) => {
                self.single(&kernel, stream)?;
                weight = self.weight(&kernel);
                planned = Some(kernel);
            }
            Plan::Moves(moves) => {
                for m in &moves {
                    weight += match m {
                        // At about 2 TB/s inside the card.
                        Move::Flat { bytes, .. } => bytes / 2_000,
                        Move::Box(b) => b.width * b.height * b.depth / 2_000,
                    };
                    match m {
                        Move::Flat { target, source, bytes } => self.driver.copy(*target, *source, *bytes, stream)?,
                        Move::Box(b) => self.driver.copy_box(b, stream)?,
                    }
                }
            }
            Plan::Set { target, pitch, value, element, width, height } => {
                weight += width * u64::from(element) * height / 2_000;
                self.driver.set(target, pitch, value, element, width, height, stream)?;
            }
            Plan::Value { address, value, bytes } => self.driver.write_value(address, value, bytes, stream)?,
        }
        self.fly(id, slot, token, weight, planned.as_ref());
        self.mark_if_due(slot)
    }

    fn weight(&self, planned: &Planned) -> u64 {
        self.expected.get(&planned.kernel().id).copied().unwrap_or(UNKNOWN_NS)
    }

    /// Launches one kernel.
    fn single(&mut self, planned: &Planned, stream: Stream) -> Result<(), Code> {
        self.shared.counters.kernels.fetch_add(1, Ordering::Relaxed);
        self.driver.launch(planned.kernel().handle, &planned.shape, &planned.parameters, stream).map_err(|code| {
            self.blame = Some(planned.kernel().name.clone());
            // 1 is what the driver says of a launch that asks for more than its function allows.
            if code.0 == 1 { Code(cumux_wire::result::LAUNCH_OUT_OF_RESOURCES) } else { code }
        })
    }

    /// Issues the run of kernels that was collected: as chains where that pays and one is free, else one by one.
    fn flush(&mut self, id: StreamId, slot: usize) -> Result<(), Code> {
        if self.run.is_empty() {
            return Ok(());
        }
        let stream = self.slots.slots[slot].stream;
        let mut rest: VecDeque<(u64, Planned)> = std::mem::take(&mut self.run).into();
        let mut alone = 0;
        while let Some((token, planned)) = rest.front() {
            if alone == 0
                && let Some(length) = coalesce::length(rest.len())
            {
                match self.chain(id, slot, stream, &mut rest, length) {
                    Ok(true) => continue,
                    Ok(false) => alone = length,
                    Err(code) => {
                        self.put_back(id, rest.iter().map(|(token, _)| *token));
                        return Err(code);
                    }
                }
                continue;
            }
            alone = alone.saturating_sub(1);
            let (token, planned) = (*token, planned.clone());
            if let Err(code) = self.single(&planned, stream) {
                self.put_back(id, rest.iter().map(|(token, _)| *token));
                return Err(code);
            }
            rest.pop_front();
            let weight = self.weight(&planned);
            self.fly(id, slot, token, weight, Some(&planned));
            if let Err(code) = self.mark_if_due(slot) {
                self.put_back(id, rest.iter().map(|(token, _)| *token));
                return Err(code);
            }
        }
        Ok(())
    }

    /// Launches the first `length` kernels of a run as one; false if no chain is free, and then one may be on its way.
    fn chain(&mut self, id: StreamId, slot: usize, stream: Stream, rest: &mut VecDeque<(u64, Planned)>, length: usize) -> Result<bool, Code> {
        let (tokens, mut run): (Vec<u64>, Vec<Planned>) = rest.drain(..length).unzip();
        let flights: Vec<(u64, u64, Arc<str>)> = run.iter().map(|p| (p.kernel().id, self.weight(p), p.kernel().name.clone())).collect();
        let mark = self.slots.slots[slot].issued + 1;
        let words = &self.words;
        let tried = self.chains.launch(&mut run, stream, slot, mark, |slot, mark| words.load(slot) >= mark);
        match tried {
            Ok(Tried::Launched { nodes_set }) => {
                let counters = &self.shared.counters;
                counters.kernels.fetch_add(length as u64, Ordering::Relaxed);
                counters.coalesced.fetch_add(length as u64, Ordering::Relaxed);
                counters.chains.fetch_add(1, Ordering::Relaxed);
                counters.nodes_set.fetch_add(nodes_set as u64, Ordering::Relaxed);
                for (token, (kernel, weight, name)) in tokens.into_iter().zip(flights) {
                    self.board(id, slot, token, weight, Some((kernel, name, false)));
                }
                self.mark_if_due(slot).map(|()| true)
            }
            Ok(Tried::Busy { build }) => {
                if build {
                    self.order(run.clone());
                }
                tokens.into_iter().zip(run).rev().for_each(|entry| rest.push_front(entry));
                Ok(false)
            }
            Err(code) => {
                self.put_back(id, tokens.into_iter());
                Err(code)
            }
        }
    }

    /// Has a chain made.
    fn order(&mut self, content: Vec<Planned>) {
        let (shared, driver, stream, number) = (self.shared.clone(), self.driver.clone(), self.upload, self.number);
        self.shared.help(move || {
            let length = content.len();
            let chain =
                Chain::build(&driver, content, stream).inspect_err(|code| tracing::warn!(length, code = code.0, "no graph can be made of a run of kernels"));
            shared.inboxes[number].send(Message::Chain(length, chain.ok()));
        });
    }

    fn fly(&mut self, id: StreamId, slot: usize, token: u64, weight: u64, planned: Option<&Planned>) {
        self.board(id, slot, token, weight, planned.map(|p| (p.kernel().id, p.kernel().name.clone(), p.kernel().prints)));
    }

    fn board(&mut self, id: StreamId, slot: usize, token: u64, weight: u64, kernel: Option<(u64, Arc<str>, bool)>) {
        let now = self.now();
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        lane.in_flight += 1;
        let at = &mut self.slots.slots[slot];
        if at.flights.is_empty() {
            self.busy.push(slot);
        }
        let client = lane.stream.client.id;
        let (kernel, name, prints) = kernel.map_or((None, None, false), |(k, n, p)| (Some(k), Some(n), p));
        at.push(Flight { client, stream: id, token, mark: 0, weight, kernel, name, prints, reported: false }, now);
    }

    fn mark_if_due(&mut self, slot: usize) -> Result<(), Code> {
        let at = &self.slots.slots[slot];
        if at.unmarked >= MARK_EVERY || at.unmarked_ns >= MARK_NS { self.mark(slot) } else { Ok(()) }
    }

    fn mark(&mut self, slot: usize) -> Result<(), Code> {
        let at = &mut self.slots.slots[slot];
        self.driver.write_value(self.words.address(slot), at.issued + 1, 8, at.stream)?;
        at.marked();
        Ok(())
    }
}
