//! An engine: one thread that gives its clients' work to the driver and reports what is over. A client belongs to one engine.
//!
//! One thread does both, because a wait between two threads costs more than either: it takes new work, issues it stream by stream in turns, looks at the
//! words that the streams write, and calls the sink, holding no lock. While there is work it looks again and again for a while, then naps; with none it sleeps.
//! What is slow (registering memory, making chains, unloading) goes to the helper thread.

use crate::coalesce::{Chain, Chains, Wanted};
use crate::context::{ClientStream, PartitionId};
use crate::dispatch::Known;
use crate::driver::{Driver, PinnedWords, Stream, capture_output};
use crate::fault::{Blame, CudaError, Suspects, accusation};
use crate::mailbox::Mailbox;
use crate::polling::Pause;
use crate::quiet::{LongWork, LongWorkHolders};
use crate::shared::Shared;
use crate::slots::{Flight, Slots};
use crate::work::Planned;
use cumux_device::{ClientId, Fault, Outcome, Report, StreamId, Work};
use rustc_hash::FxHashMap;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

/// Without progress, the context is asked whether it still lives.
const DOUBT_NS: u64 = 1_000_000;
/// What a kernel may take beyond what is known of it, for what is learnt from once.
const SURPRISE_NS: u64 = 20_000;
/// Most driver streams of an engine, and words for the ends of its chains.
pub(crate) const SLOTS: usize = 1024;
const CHAIN_WORDS: usize = 1024;

pub(crate) enum Message {
    /// A stream more.
    Stream(Arc<ClientStream>),
    /// A piece of work for a stream, as it is: a launch takes no memory that one thread would take and another give back.
    Work(StreamId, u64, Work),
    /// Everything of the client ends with this fault, now and later.
    Stop(ClientId, Fault),
    /// Everything of the client is cancelled; the answer comes when nothing of it runs any more.
    Close(ClientId, crossbeam_channel::Sender<()>),
    /// What of the client runs, in words.
    Tell(ClientId, crossbeam_channel::Sender<String>),
    Destroy(StreamId),
    /// Memory of the client's window was registered; an error is its end.
    Registered(ClientId, Option<Fault>),
    Chain(Wanted, Option<Chain>),
    /// What this stream's kernels had printed before the request.
    Printed(StreamId, Vec<u8>),
    /// Kernels with these numbers are about to be unloaded.
    Forget(Vec<u64>),
    /// Begin nothing long until [`Message::Go`], and answer when nothing long runs.
    Quiet(crossbeam_channel::Sender<()>),
    Go,
    /// Somebody has found the context broken.
    Look,
    End,
}

/// The engines' mailboxes.
pub(crate) struct Mailboxes(Vec<Mailbox<Message>>);

impl Mailboxes {
    pub(crate) fn new(engines: usize) -> Mailboxes {
        Mailboxes((0..engines).map(|_| Mailbox::default()).collect())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn of(&self, engine: usize) -> &Mailbox<Message> {
        &self.0[engine]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Mailbox<Message>> {
        self.0.iter()
    }
}

impl LongWorkHolders for Mailboxes {
    fn count(&self) -> usize {
        self.len()
    }

    fn hold_long_work(&self, ready: &crossbeam_channel::Sender<()>) {
        self.iter().for_each(|mailbox| mailbox.send(Message::Quiet(ready.clone())));
    }

    fn resume_long_work(&self) {
        self.iter().for_each(|mailbox| mailbox.send(Message::Go));
    }
}

/// A client's stream.
pub(crate) struct Lane {
    pub stream: Arc<ClientStream>,
    pub queue: VecDeque<(u64, Work)>,
    pub slot: Option<usize>,
    pub in_flight: usize,
    /// In the list of lanes with something to issue.
    pub ready: bool,
    /// Waits for memory to be registered.
    pub parked: bool,
    /// When the oldest work in the queue came, or was last looked at.
    pub since: u64,
    /// The next piece is a long kernel that is held back.
    pub long_next: bool,
    /// Waits for what is in flight, to go on in another partition.
    pub moving: bool,
    /// Over, but reported only when what was printed before is out: token, nanoseconds, and whether it prints itself.
    held: VecDeque<(u64, u64, bool)>,
    /// How many of those wait for the text that is being fetched.
    fetching: Option<usize>,
}

impl Lane {
    fn new(stream: Arc<ClientStream>) -> Lane {
        Lane {
            stream,
            queue: VecDeque::new(),
            slot: None,
            in_flight: 0,
            ready: false,
            parked: false,
            since: 0,
            long_next: false,
            moving: false,
            held: VecDeque::new(),
            fetching: None,
        }
    }
}

pub(crate) struct Engine {
    pub number: usize,
    pub shared: Arc<Shared>,
    pub driver: Arc<Driver>,
    pub words: PinnedWords,
    pub slots: Slots,
    pub lanes: FxHashMap<StreamId, Lane>,
    pub ready: VecDeque<StreamId>,
    /// Slots with something in flight.
    pub busy: Vec<usize>,
    pub chains: Chains,
    /// For making chains; used on the helper thread.
    pub upload: Stream,
    pub stopped: HashMap<ClientId, Fault>,
    closing: Vec<(ClientId, crossbeam_channel::Sender<()>)>,
    /// What is known of kernels, by their number.
    pub expected: FxHashMap<u64, Known>,
    /// Kernels that are about to be issued together, and their tokens.
    pub run: Vec<Planned>,
    pub tokens: Vec<u64>,
    pub long_work: LongWork,
    /// Long kernels under way that fill the card.
    pub filling: usize,
    /// The kernel whose launch failed.
    pub blame: Option<Arc<str>>,
    over: Vec<(Flight, u64)>,
    reports: Vec<Report>,
    started: Instant,
    clock: u64,
    dead: bool,
}

impl Engine {
    pub(crate) fn new(shared: &Arc<Shared>, number: usize) -> Result<Engine, CudaError> {
        let driver = shared.driver.clone();
        let words = PinnedWords::new(&driver, SLOTS + CHAIN_WORDS)?;
        let upload = driver.create_stream(0)?;
        let mut slots = Slots::default();
        // Made ahead: making a stream later costs the neighbours' launches.
        for _ in 0..8 {
            slots.add((PartitionId::WHOLE_CARD, 0), driver.create_stream(0)?);
        }
        Ok(Engine {
            number,
            shared: shared.clone(),
            driver,
            words,
            slots,
            lanes: FxHashMap::default(),
            ready: VecDeque::new(),
            busy: Vec::new(),
            chains: Chains::new(SLOTS..SLOTS + CHAIN_WORDS),
            upload,
            stopped: HashMap::new(),
            closing: Vec::new(),
            expected: FxHashMap::default(),
            run: Vec::new(),
            tokens: Vec::new(),
            long_work: LongWork::default(),
            filling: 0,
            blame: None,
            over: Vec::new(),
            reports: Vec::new(),
            started: Instant::now(),
            clock: 0,
            dead: false,
        })
    }

    /// Nanoseconds since the start, as of the last look at the clock: once a round and after calls of the driver.
    pub(crate) fn now(&self) -> u64 {
        self.clock
    }

    pub(crate) fn tick(&mut self) {
        self.clock = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
    }

    pub(crate) fn work(mut self) {
        crate::driver::allow_short_sleeps();
        self.shared.mailboxes.of(self.number).set_reader();
        let mut messages = Vec::new();
        let (mut moved, mut asked, mut turn) = (0, 0, 0);
        loop {
            self.tick();
            let mut progress = false;
            self.shared.mailboxes.of(self.number).take_all(&mut messages);
            for message in messages.drain(..) {
                progress = true;
                if matches!(message, Message::End) {
                    return self.end();
                }
                self.take(message);
            }
            progress |= self.issue();
            self.long_work.begin_hold();
            progress |= self.look();
            self.quieten();
            if progress {
                moved = self.clock;
                continue;
            }
            let idle = self.clock.saturating_sub(moved);
            if !self.busy.is_empty() && !self.dead && idle > DOUBT_NS && self.clock.saturating_sub(asked) > DOUBT_NS {
                asked = self.clock;
                turn += 1;
                let slot = self.busy[turn % self.busy.len()];
                match self.driver.is_idle(self.slots.slots[slot].stream) {
                    Ok(false) => {}
                    Ok(true) => self.is_empty(slot),
                    Err(code) => self.lost(code),
                }
            }
            // A dead device's flights never end.
            match self.shared.polling.pause(idle, !self.busy.is_empty() && !self.dead) {
                Pause::Spin => std::hint::spin_loop(),
                Pause::Nap(nap) => self.shared.mailboxes.of(self.number).sleep(Some(nap)),
                Pause::Sleep => self.shared.mailboxes.of(self.number).sleep(None),
            }
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Stream(stream) => {
                self.lanes.insert(stream.id, Lane::new(stream));
            }
            Message::Work(stream, token, work) => self.accept(stream, token, work),
            Message::Printed(stream, text) => self.printed(stream, &text),
            Message::Stop(client, fault) => self.stop(client, &fault),
            Message::Close(client, done) => {
                self.abandon(client, &Outcome::Cancelled);
                self.closing.push((client, done));
                self.close();
            }
            Message::Tell(client, asker) => {
                let _ = asker.send(self.running(client));
            }
            Message::Destroy(stream) => {
                if let Some(lane) = self.lanes.remove(&stream)
                    && let Some(slot) = lane.slot
                {
                    self.slots.unbind(slot);
                }
            }
            Message::Registered(client, fault) => {
                if let Some(fault) = fault {
                    self.stop(client, &fault);
                }
                for (id, lane) in self.lanes.iter_mut().filter(|(_, lane)| lane.parked && lane.stream.client.id == client) {
                    lane.parked = false;
                    if !lane.queue.is_empty() && !lane.ready {
                        lane.ready = true;
                        self.ready.push_back(*id);
                    }
                }
            }
            Message::Chain(wanted, chain) => self.chains.built(wanted, chain),
            Message::Forget(kernels) => {
                self.chains.forget(|kernel| kernels.contains(&kernel));
                self.let_go();
                for kernel in kernels {
                    self.expected.remove(&kernel);
                }
            }
            Message::Quiet(ready) => self.long_work.request(ready),
            Message::Go => self.long_work.resume(),
            Message::Look => {
                let broken = self.shared.loss.error().or_else(|| self.driver.is_idle(self.upload).err());
                if let (false, Some(code)) = (self.dead, broken) {
                    self.lost(code);
                }
            }
            Message::End => {}
        }
    }

    /// The driver says that nothing of this slot's stream runs any more. Then its words say so, too, or a mark is lost; nobody waits for that for ever.
    fn is_empty(&mut self, slot: usize) {
        let (words, at) = (&self.words, &mut self.slots.slots[slot]);
        at.look(words.load(slot), |word| words.load(word));
        if at.retires_all() {
            return;
        }
        tracing::error!(
            issued = at.issued,
            reached = at.reached,
            unmarked = at.unmarked,
            "a stream of the card is empty and its mark was not seen: taken as over"
        );
        at.give_up_marks();
    }

    /// Forgotten chains go when they do not run any more.
    fn let_go(&mut self) {
        let (slots, words) = (&mut self.slots.slots, &self.words);
        self.chains.let_go(&mut |slot: usize, mark| slots[slot].look(words.load(slot), |word| words.load(word)) >= mark);
        if let Some(retired) = self.chains.retired() {
            self.shared.helpers.run(move || drop(retired));
        }
    }

    /// Tells who waits for it that nothing long runs: nothing that was expected to be, nothing that turned out to be.
    fn quieten(&mut self) {
        let (now, dead, busy, slots) = (self.clock, self.dead, &self.busy, &self.slots.slots);
        self.long_work.answer_unless(|| !dead && busy.iter().any(|at| slots[*at].is_long(now)));
    }

    fn accept(&mut self, id: StreamId, token: u64, work: Work) {
        // Of a client that is closed; it waits for nothing any more.
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let client = lane.stream.client.id;
        if let Some(fault) = self.stopped.get(&client) {
            self.shared.sink.retired(client, id, token, Outcome::Fault(fault.clone()));
            return;
        }
        if self.closing.iter().any(|(closing, _)| *closing == client) {
            // Taken before the client was closed; nobody waits for it.
            return;
        }
        if self.dead {
            // Kept for `close`: the successor runs it.
            lane.queue.push_back((token, work));
            return;
        }
        if matches!(work, Work::Mark) && lane.in_flight == 0 && lane.queue.is_empty() && lane.held.is_empty() {
            self.reports.push(Report { client, stream: id, token, outcome: Outcome::Done { device_ns: 0 } });
            return;
        }
        lane.queue.push_back((token, work));
        if !lane.ready && !lane.parked {
            lane.ready = true;
            lane.since = self.clock;
            self.ready.push_back(id);
        }
    }

    /// Reports what the words say is over.
    fn look(&mut self) -> bool {
        let now = self.now();
        let mut over = std::mem::take(&mut self.over);
        let (slots, words) = (&mut self.slots.slots, &self.words);
        self.busy.retain(|at| {
            let slot = &mut slots[*at];
            slot.look(words.load(*at), |word| words.load(word));
            slot.retire(now, &mut over);
            !slot.flights.is_empty()
        });
        let progress = !over.is_empty();
        for (flight, device_ns) in over.drain(..) {
            self.landed(flight, device_ns);
        }
        self.over = over;
        if !self.reports.is_empty() {
            let mut reports = std::mem::take(&mut self.reports);
            self.shared.sink.retired_all(&mut reports);
            reports.clear();
            self.reports = reports;
        }
        if progress && !self.closing.is_empty() {
            self.close();
        }
        progress
    }

    fn landed(&mut self, flight: Flight, device_ns: u64) {
        self.filling -= usize::from(flight.fills);
        if let Some(known) = self.expected.get_mut(&flight.kernel) {
            // Once it has waited for something: a wait says nothing of the kernel, a longer kernel shows again and again.
            known.ns = (known.ns * 7 + device_ns.min(known.ns * 4 + SURPRISE_NS)) / 8;
        }
        if let Some(lane) = self.lanes.get_mut(&flight.stream) {
            lane.in_flight -= 1;
            if lane.in_flight == 0
                && lane.queue.is_empty()
                && let Some(slot) = lane.slot.take()
            {
                self.slots.unbind(slot);
            }
            if lane.in_flight == 0 && std::mem::take(&mut lane.moving) && !lane.queue.is_empty() && !lane.ready && !lane.parked {
                lane.ready = true;
                self.ready.push_back(flight.stream);
            }
        }
        if flight.reported {
            return;
        }
        if let Some(lane) = self.lanes.get_mut(&flight.stream)
            && (flight.prints || !lane.held.is_empty())
        {
            lane.held.push_back((flight.token, device_ns, flight.prints));
            self.fetch(flight.stream);
        } else {
            let Flight { client, stream, token, .. } = flight;
            self.reports.push(Report { client, stream, token, outcome: Outcome::Done { device_ns } });
        }
    }

    /// Has the text of this stream's kernels fetched, unless that is under way.
    fn fetch(&mut self, id: StreamId) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        if lane.fetching.is_some() {
            return;
        }
        lane.fetching = Some(lane.held.len());
        let (shared, stream, number) = (self.shared.clone(), self.upload, self.number);
        self.shared.helpers.run_printer(move || {
            let (_, text) = capture_output(|| shared.driver.synchronize(stream));
            shared.mailboxes.of(number).send(Message::Printed(id, text));
        });
    }

    fn printed(&mut self, id: StreamId, text: &[u8]) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let client = lane.stream.client.id;
        let covered = lane.fetching.take().unwrap_or(0).min(lane.held.len());
        let again = lane.held.iter().skip(covered).any(|(.., prints)| *prints);
        let over: Vec<(u64, u64, bool)> = lane.held.drain(..if again { covered } else { lane.held.len() }).collect();
        if !text.is_empty() && !self.stopped.contains_key(&client) {
            self.shared.sink.text(client, text);
        }
        for (token, device_ns, _) in over {
            self.shared.sink.retired(client, id, token, Outcome::Done { device_ns });
        }
        if again {
            self.fetch(id);
        }
    }

    pub(crate) fn stop(&mut self, client: ClientId, fault: &Fault) {
        if self.stopped.contains_key(&client) {
            return;
        }
        self.stopped.insert(client, fault.clone());
        self.abandon(client, &Outcome::Fault(fault.clone()));
    }

    /// Reports everything that a client has, in the order of its streams, and forgets what was not issued. What is in flight goes on unseen.
    fn abandon(&mut self, client: ClientId, outcome: &Outcome) {
        let mut ends = Vec::new();
        for (id, lane) in self.lanes.iter_mut().filter(|(_, lane)| lane.stream.client.id == client) {
            ends.extend(lane.held.drain(..).map(|(token, ..)| (*id, token)));
        }
        for at in &self.busy {
            for flight in self.slots.slots[*at].flights.iter_mut().filter(|f| f.client == client && !f.reported) {
                flight.reported = true;
                ends.push((flight.stream, flight.token));
            }
        }
        for (id, lane) in self.lanes.iter_mut().filter(|(_, lane)| lane.stream.client.id == client) {
            ends.extend(lane.queue.drain(..).map(|(token, _)| (*id, token)));
            lane.parked = false;
            if lane.in_flight == 0
                && let Some(slot) = lane.slot.take()
            {
                self.slots.unbind(slot);
            }
        }
        for (stream, token) in ends {
            self.shared.sink.retired(client, stream, token, outcome.clone());
        }
    }

    /// Answers those whose client has nothing in flight any more.
    fn close(&mut self) {
        let mut closing = std::mem::take(&mut self.closing);
        closing.retain(|(client, done)| {
            let running = !self.dead && self.lanes.values().any(|lane| lane.stream.client.id == *client && lane.in_flight > 0);
            if !running {
                for lane in self.lanes.extract_if(|_, lane| lane.stream.client.id == *client) {
                    if let Some(slot) = lane.1.slot {
                        self.slots.unbind(slot);
                    }
                }
                self.stopped.remove(client);
                let _ = done.send(());
            }
            running
        });
        self.closing = closing;
    }

    /// What the client has in flight, and what else its streams wait for.
    fn running(&self, client: ClientId) -> String {
        let slots = self.busy.iter().map(|at| &self.slots.slots[*at]);
        let flights = slots.flat_map(|slot| slot.flights.iter().map(move |flight| (slot, flight))).filter(|(_, flight)| flight.client == client);
        let (mut names, mut count) = (Vec::new(), 0);
        for (slot, flight) in flights {
            count += 1;
            let name = if flight.kernel == 0 { "a copy, a set or an event" } else { self.expected.get(&flight.kernel).map_or("a kernel", |known| &known.name) };
            let name = format!("{name} (mark {} of {}, {} reached)", flight.mark, slot.issued, slot.reached);
            if names.len() < 4 && !names.contains(&name) {
                names.push(name);
            }
        }
        let lanes = self.lanes.values().filter(|lane| lane.stream.client.id == client);
        let (in_flight, queued) = lanes.fold((0, 0), |(flights, queue), lane| (flights + lane.in_flight, queue + lane.queue.len()));
        format!("{count} pieces of work with the card ({in_flight} counted, {queued} queued): {}", names.join(", "))
    }

    /// The context is broken: says who may have done it, and is of no more use.
    pub(crate) fn lost(&mut self, code: CudaError) {
        if self.dead {
            return;
        }
        // Work that was done before, or beside, the culprit counts: the driver reports only after everything has ended.
        self.look();
        self.dead = true;
        self.shared.declare_broken(code, self.number);
        let mut suspects = Suspects::default();
        for at in &self.busy {
            for flight in self.slots.slots[*at].flights.iter().filter(|f| f.kernel != 0) {
                let known = self.expected.get(&flight.kernel);
                let able = code != CudaError::ASSERT || known.is_none_or(|known| known.asserts);
                let blame = if able { Blame::Possible } else { Blame::RuledOut };
                suspects.entry(flight.client).or_default().add_kernel(known.map_or("a kernel", |known| &known.name), blame);
            }
        }
        let all = self.shared.loss.gather_suspects(suspects, self.shared.mailboxes.len());
        let what = self.driver.describe(code);
        for (client, suspect) in &all {
            if self.lanes.values().any(|lane| lane.stream.client.id == *client) {
                self.stop(*client, &Fault { result: code.number(), text: accusation(&all, suspect, &what) });
            }
        }
        self.close();
        self.shared.reported();
    }

    fn end(self) {
        let Engine { slots, driver, upload, words, chains, shared, number, .. } = self;
        // What was built and not taken holds on to what is about to go.
        let mut last = Vec::new();
        shared.mailboxes.of(number).take_all(&mut last);
        drop((chains, last));
        for slot in slots.slots {
            driver.destroy_stream(slot.stream);
        }
        driver.destroy_stream(upload);
        drop(words);
    }
}
