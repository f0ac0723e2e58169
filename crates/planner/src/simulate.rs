//! A discrete-event simulation of programs on a machine.
//!
//! - Each **client** is a program with one host thread. It takes up a request, issues the steps of
//!   its work, and waits where its profile says so.
//! - Work goes through **submission** ([`Submission`]) into the client's streams.
//! - A **context** holds the kernels of its clients. Contexts take turns on the machine
//!   ([`TimeSlices`]); inside a context, blocks of all clients run side by side.
//! - **Blocks** are given out to multiprocessors in the order in which their kernels began, as many
//!   as fit; a later kernel gets what is left. Blocks that were given out together are one group
//!   and end together.
//! - Groups slow each other down where together they want more bandwidth, or more issue slots, than
//!   there is.
//!
//! Not modelled: which multiprocessor a block is on, eviction from the cache, limits of power,
//! kernels that start kernels.
//!
//! More than 600 lines, because the events of a client, of its engine and of its stream call each
//! other.

mod device;
mod random;
mod unsteady;

use crate::profile::Way;
use crate::work::{Do, Machine, Work};
use device::Device;
use random::Random;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
pub use unsteady::run;

/// A machine does not turn to another context during a copy as short as this. An assumption: a turn
/// costs more.
const SHORT_COPY_NS: f64 = 50_000.0;

/// When a client's requests come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arrival {
    /// The next one when the last has ended.
    Closed,
    /// At random moments, so many a second.
    Rate(f64),
}

/// A program that takes part.
#[derive(Debug, Clone, Copy)]
pub struct Load<'a> {
    /// What it does.
    pub work: &'a Work,
    /// When.
    pub arrival: Arrival,
    /// Which context it is in.
    pub context: usize,
    /// Multiprocessors that its blocks may take.
    pub cap: u32,
}

/// How contexts share the machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeSlices {
    /// How long a context that has work keeps the machine while others wait.
    pub slice_ns: f64,
    /// From one context's last work to the next one's first.
    pub switch_ns: f64,
}

/// How launches get to the machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Submission {
    /// Host time of one launch.
    pub launch_ns: f64,
    /// From submission to the first block of a machine with room.
    pub start_ns: f64,
    /// From the end of the last work to the host's next step.
    pub notify_ns: f64,
    /// Between two kernels of a stream.
    pub between_ns: f64,
    /// How many times longer than this it takes in slow times at most, where a host does it.
    pub slowest: f64,
    /// What all clients of a context pass one after the other; `None` if there is no such place.
    pub common: Option<Common>,
}

impl Submission {
    /// The same on a host whose launches take so many times as long: what its processors do takes
    /// longer, what the machine does by itself does not.
    #[must_use]
    pub fn on_host(self, factor: f64) -> Self {
        let common = self.common.map(|common| common.on_host(factor));
        let (launch_ns, start_ns, notify_ns) = (self.launch_ns * factor, self.start_ns * factor, self.notify_ns * factor);
        Self { launch_ns, start_ns, notify_ns, common, ..self }
    }

    /// The same in a slow time, in which a program's host takes so many times as long.
    fn in_slow_time(self, host: f64) -> Self {
        let slow = self.on_host(host.min(self.slowest));
        let longer = |common: Common| Common { kernel_ns: common.kernel_ns * common.slow, ..common };
        Self { common: slow.common.map(longer), ..slow }
    }
}

/// A place that takes the launches of all clients, one chain after the other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Common {
    /// For each chain.
    pub chain_ns: f64,
    /// For each kernel of it.
    pub kernel_ns: f64,
    /// For each kernel of it that is another one than that before, besides.
    pub other_ns: f64,
    /// Kernels of one chain at most. Inside a chain no time passes between kernels.
    pub longest: u32,
    /// True if processors do its work; else the machine does.
    pub by_host: bool,
    /// How many times as long it takes for a kernel in slow times, besides what the host does.
    pub slow: f64,
    /// Threads that do this work for one context, each for its own clients.
    pub engines: u32,
    /// The part of a chain's time in which its thread holds a lock that they share.
    pub locked: f64,
}

impl Common {
    fn on_host(self, factor: f64) -> Self {
        let factor = if self.by_host { factor } else { 1.0 };
        Self { chain_ns: self.chain_ns * factor, kernel_ns: self.kernel_ns * factor, other_ns: self.other_ns * factor, ..self }
    }
}

/// How long to simulate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// Requests of each client, at least.
    pub requests: u32,
    /// Most events.
    pub events: u64,
}

/// What became of one client.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Fared {
    /// Requests a second that were done.
    pub throughput: f64,
    /// How long each counted request took, from its arrival, in nanoseconds, shortest first.
    pub latencies: Vec<f64>,
    /// True if requests come faster than they are done.
    pub overloaded: bool,
}

/// What became of all.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    /// In the order of the loads.
    pub clients: Vec<Fared>,
    /// Part of the multiprocessors that blocks had, over time.
    pub occupied: f64,
    /// Part of the time in which anything ran.
    pub active: f64,
    /// True if the events ran out before every client had its requests.
    pub cut: bool,
}

/// The part of a sorted list below which `part` of it lies.
#[must_use]
pub fn quantile(sorted: &[f64], part: f64) -> f64 {
    let at = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(at.saturating_sub(1).min(sorted.len().saturating_sub(1))).copied().unwrap_or(0.0)
}

/// What happens at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A request of a client comes.
    Arrives(usize),
    /// A client's host goes on.
    Host(usize),
    /// A client's stream may be able to begin its next work.
    Stream(usize, u32),
    /// An engine is free, or has something to do.
    Common(usize),
    /// A copy has ended.
    Copied(usize, u32),
}

/// A moment, for the order of events: bits of a time that is never negative compare as the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Moment {
    bits: u64,
    number: u64,
    event: Event,
}

/// Work in a stream.
#[derive(Debug, Clone, Copy)]
struct Op {
    what: What,
    /// When it may begin; infinite until it is submitted.
    ready: f64,
    /// True if it follows its predecessor in one chain.
    chained: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum What {
    Kernel(u32),
    Copy(u32),
}

#[derive(Debug, Default)]
struct Stream {
    queue: VecDeque<Op>,
    /// How many from the front of the queue are submitted.
    submitted: usize,
    /// True while its first work is on the machine.
    busy: bool,
    /// When its last work ended.
    ended: f64,
}

struct SimulatedClient<'a> {
    load: Load<'a>,
    /// Its engine in the common place of its context, if there is such a place.
    engine: usize,
    streams: Vec<Stream>,
    /// Arrival times of requests that wait.
    waiting: VecDeque<f64>,
    /// Arrival of the request that is worked on.
    current: Option<f64>,
    /// The next step.
    step: usize,
    /// What the host waits for, and since when.
    wait: Option<(Option<u32>, f64)>,
    /// What is not submitted yet, in the host's order: stream, and when the host issued it.
    issued: VecDeque<(u32, f64)>,
    arrived: u64,
    done: u64,
    latencies: Vec<f64>,
    warm_since: f64,
    last_end: f64,
}

/// The whole simulation.
struct Simulation<'a> {
    now: f64,
    number: u64,
    events: BinaryHeap<Reverse<Moment>>,
    clients: Vec<SimulatedClient<'a>>,
    submission: Submission,
    device: Device,
    /// The engines of all contexts, those of the same context one after the other.
    commons: Vec<CommonPlace>,
    /// Engines of each context, and when the lock that they share is free.
    engines: usize,
    lock_free: Vec<f64>,
    /// When the engine of each way of copying is free.
    copy_free: [f64; 3],
    random: Random,
    effort: Effort,
    warm: u64,
    /// Clients that have not had all their requests.
    unfinished: usize,
}

/// One engine of a context.
#[derive(Debug, Default)]
struct CommonPlace {
    clients: Vec<usize>,
    /// Which of them is asked first.
    next: usize,
    free: f64,
    /// When the next event for it comes; infinite if none is on its way.
    called: f64,
}

/// Simulates these programs on a machine, with hosts that are always as fast as on average.
#[must_use]
fn run_steady(machine: &Machine, loads: &[Load<'_>], turns: TimeSlices, submission: Submission, effort: Effort) -> Outcome {
    let contexts = loads.iter().map(|load| load.context + 1).max().unwrap_or(0);
    let engines = submission.common.map_or(1, |common| common.engines.max(1)) as usize;
    let mut commons: Vec<CommonPlace> = (0..contexts * engines).map(|_| CommonPlace { called: f64::INFINITY, ..CommonPlace::default() }).collect();
    // A client gets the engine of its context that has the fewest clients.
    let mut engine_of = Vec::new();
    for (number, load) in loads.iter().enumerate() {
        let first = load.context * engines;
        let engine = (first..first + engines).min_by_key(|engine| commons[*engine].clients.len()).unwrap_or(first);
        commons[engine].clients.push(number);
        engine_of.push(engine);
    }
    let client = |load: &Load<'_>| (0..load.work.streams).map(|_| Stream::default()).collect::<Vec<_>>();
    let clients = loads.iter().zip(engine_of).map(|(load, engine)| SimulatedClient {
        load: *load,
        engine,
        streams: client(load),
        waiting: VecDeque::new(),
        current: None,
        step: 0,
        wait: None,
        issued: VecDeque::new(),
        arrived: 0,
        done: 0,
        latencies: Vec::new(),
        warm_since: 0.0,
        last_end: 0.0,
    });
    let mut simulation = Simulation {
        now: 0.0,
        number: 0,
        events: BinaryHeap::new(),
        clients: clients.collect(),
        submission,
        device: Device::new(machine, loads, contexts, turns),
        commons,
        engines,
        lock_free: vec![0.0; contexts],
        copy_free: [0.0; 3],
        random: Random::new(0x0063_756d_7578),
        effort,
        warm: u64::from(effort.requests / 10).max(1),
        unfinished: loads.len(),
    };
    simulation.begin(machine);
    let cut = simulation.go_on();
    simulation.outcome(cut)
}

impl<'a> Simulation<'a> {
    fn at(&mut self, time: f64, event: Event) {
        self.number += 1;
        self.events.push(Reverse(Moment { bits: time.max(self.now).to_bits(), number: self.number, event }));
    }

    /// The first requests. They do not come at the same moment: programs that began together would
    /// stay in step.
    fn begin(&mut self, machine: &Machine) {
        for client in 0..self.clients.len() {
            let load = self.clients[client].load;
            let first = match load.arrival {
                Arrival::Closed => self.random.part() * (load.work.busy_ns(machine) + load.work.host_ns()),
                Arrival::Rate(rate) => self.random.exponential() * 1e9 / rate,
            };
            self.at(first, Event::Arrives(client));
        }
    }

    /// Runs until every client has its requests. Returns true if the events ran out before.
    fn go_on(&mut self) -> bool {
        for _ in 0..self.effort.events {
            if self.unfinished == 0 {
                return false;
            }
            let next_event = self.events.peek().map_or(f64::INFINITY, |Reverse(moment)| f64::from_bits(moment.bits));
            let next_device = self.device.next();
            if next_device == f64::INFINITY && next_event == f64::INFINITY {
                return true;
            }
            self.now = next_device.min(next_event);
            for (client, stream) in self.device.advance(self.now) {
                self.ended(client, stream);
            }
            if next_event <= next_device
                && let Some(Reverse(moment)) = self.events.pop()
            {
                self.happens(moment.event);
            }
            self.device.pass_on();
        }
        true
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Arrives(client) => self.arrives(client),
            Event::Host(client) => self.host(client),
            Event::Stream(client, stream) => self.try_begin(client, stream),
            Event::Common(engine) => self.submit_in_common(engine),
            Event::Copied(client, stream) => self.ended(client, stream),
        }
    }

    fn arrives(&mut self, client: usize) {
        let now = self.now;
        self.clients[client].waiting.push_back(now);
        self.clients[client].arrived += 1;
        if let Arrival::Rate(rate) = self.clients[client].load.arrival {
            let next = now + self.random.exponential() * 1e9 / rate;
            self.at(next, Event::Arrives(client));
        }
        if self.clients[client].current.is_none() {
            self.host(client);
        }
    }

    /// The host takes up a request, or goes on behind a wait.
    fn host(&mut self, client: usize) {
        let mut time = self.now;
        let load = self.clients[client].load;
        self.clients[client].wait = None;
        loop {
            if self.clients[client].current.is_none() {
                let Some(arrival) = self.clients[client].waiting.pop_front() else { return };
                self.clients[client].current = Some(arrival);
                self.clients[client].step = 0;
            }
            let step = self.clients[client].step;
            let Some(step) = load.work.steps.get(step).copied() else {
                self.request_ends(client);
                // A closed client's next request, or one that waits.
                if self.clients[client].waiting.is_empty() {
                    return;
                }
                continue;
            };
            self.clients[client].step += 1;
            match step {
                Do::Launch { kernel, stream, gap_ns } => {
                    time += gap_ns + self.submission.launch_ns;
                    self.issue(client, stream, What::Kernel(kernel), time);
                }
                Do::Copy { copy, stream, gap_ns } => {
                    time += gap_ns + self.submission.launch_ns;
                    self.issue(client, stream, What::Copy(copy), time);
                }
                Do::Wait { stream, gap_ns } => {
                    time += gap_ns;
                    self.clients[client].wait = Some((stream, time));
                    self.wake_if_drained(client);
                    return;
                }
            }
        }
    }

    fn request_ends(&mut self, client: usize) {
        let (now, warm) = (self.now, self.warm);
        let wanted = warm + u64::from(self.effort.requests);
        let it = &mut self.clients[client];
        let Some(arrival) = it.current.take() else { return };
        it.done += 1;
        it.last_end = now;
        if it.done == warm {
            it.warm_since = now;
        }
        if it.done > warm {
            it.latencies.push(now - arrival);
        }
        if it.done == wanted {
            self.unfinished -= 1;
        }
        if it.load.arrival == Arrival::Closed {
            it.waiting.push_back(now);
            it.arrived += 1;
        }
    }

    /// The host's work for a launch or copy is done at `time`.
    fn issue(&mut self, client: usize, stream: u32, what: What, time: f64) {
        let direct = self.submission.common.is_none();
        let ready = if direct { time + self.submission.start_ns } else { f64::INFINITY };
        let it = &mut self.clients[client];
        let queue = &mut it.streams[stream as usize];
        queue.queue.push_back(Op { what, ready, chained: false });
        if direct {
            queue.submitted += 1;
            if queue.queue.len() == 1 {
                self.at(ready, Event::Stream(client, stream));
            }
        } else {
            it.issued.push_back((stream, time));
            let engine = it.engine;
            self.call_common(engine, time);
        }
    }

    /// Sees to it that an engine looks at its clients not later than `time`.
    fn call_common(&mut self, engine: usize, time: f64) {
        let place = &mut self.commons[engine];
        let time = time.max(place.free);
        if time < place.called {
            place.called = time;
            self.at(time, Event::Common(engine));
        }
    }

    /// An engine takes one chain of one of its clients.
    fn submit_in_common(&mut self, engine: usize) {
        let now = self.now;
        let Some(common) = self.submission.common else { return };
        self.commons[engine].called = f64::INFINITY;
        if self.commons[engine].free > now {
            let free = self.commons[engine].free;
            self.call_common(engine, free);
            return;
        }
        let count = self.commons[engine].clients.len();
        let (mut taken, mut next_at) = (None, f64::INFINITY);
        for turn in 0..count {
            let place = (self.commons[engine].next + turn) % count;
            let client = self.commons[engine].clients[place];
            match self.clients[client].issued.front() {
                Some((_, time)) if *time <= now => {
                    taken = Some((place, client));
                    break;
                }
                Some((_, time)) => next_at = next_at.min(*time),
                None => {}
            }
        }
        let Some((place, client)) = taken else {
            if next_at < f64::INFINITY {
                self.call_common(engine, next_at);
            }
            return;
        };
        self.commons[engine].next = (place + 1) % count;
        let first = self.clients[client].issued.front().map_or(0, |(stream, _)| *stream);
        let of_chain = self.clients[client].issued.iter().take(common.longest as usize);
        let length = of_chain.take_while(|(stream, time)| *stream == first && *time <= now).count();
        self.clients[client].issued.drain(..length);
        let locked = self.lock_free[engine / self.engines].max(now);
        let stream = &mut self.clients[client].streams[first as usize];
        let from = stream.submitted;
        let of_chain = stream.queue.range(from..from + length);
        let others = of_chain.clone().zip(of_chain.skip(1)).filter(|(one, next)| one.what != next.what).count();
        let alone = common.chain_ns + common.kernel_ns * length as f64 + common.other_ns * others as f64;
        let end = locked + alone;
        let ready = end + self.submission.start_ns;
        for (number, op) in stream.queue.range_mut(from..from + length).enumerate() {
            op.ready = ready;
            op.chained = number > 0;
        }
        stream.submitted += length;
        if !stream.busy {
            self.at(ready, Event::Stream(client, first));
        }
        self.commons[engine].free = end;
        self.lock_free[engine / self.engines] = locked + common.locked * alone;
        self.call_common(engine, end);
    }

    /// Begins a stream's first work if it may begin now; else comes back when it may.
    fn try_begin(&mut self, client: usize, stream: u32) {
        let now = self.now;
        let between = self.submission.between_ns;
        let it = &mut self.clients[client].streams[stream as usize];
        let Some(op) = it.queue.front().copied() else { return };
        if it.busy || it.submitted == 0 {
            return;
        }
        let from = op.ready.max(if op.chained { 0.0 } else { it.ended + between });
        if from > now {
            if from <= now + between {
                self.device.hold(client, from);
            }
            self.at(from, Event::Stream(client, stream));
            return;
        }
        it.busy = true;
        match op.what {
            What::Kernel(kernel) => {
                let work = &self.clients[client].load.work.kernels[kernel as usize];
                let factor = if work.worst > 1.0 { self.factor(work.worst) } else { 1.0 };
                self.device.begin((client, stream), work, factor);
            }
            What::Copy(copy) => {
                let copy = self.clients[client].load.work.copies[copy as usize];
                let engine = &mut self.copy_free[match copy.way {
                    Way::ToDevice => 0,
                    Way::ToHost => 1,
                    Way::OnDevice => 2,
                }];
                let end = engine.max(now) + copy.ns;
                *engine = end;
                // What comes behind a short copy is nearer than another context's turn.
                if end - now <= SHORT_COPY_NS {
                    self.device.hold(client, end + between);
                }
                self.at(end, Event::Copied(client, stream));
            }
        }
    }

    /// How long this launch takes of the mean: two of a hundred take the worst time, the others
    /// what keeps the mean.
    fn factor(&mut self, worst: f64) -> f64 {
        const RARE: f64 = 0.02;
        let worst = worst.min(1.0 / RARE);
        if self.random.part() < RARE { worst } else { (1.0 - RARE * worst) / (1.0 - RARE) }
    }

    /// The first work of a stream has ended.
    fn ended(&mut self, client: usize, stream: u32) {
        let now = self.now;
        let it = &mut self.clients[client].streams[stream as usize];
        it.queue.pop_front();
        it.submitted -= 1;
        it.busy = false;
        it.ended = now;
        if it.queue.is_empty() {
            self.wake_if_drained(client);
        } else {
            self.try_begin(client, stream);
        }
    }

    fn wake_if_drained(&mut self, client: usize) {
        let it = &self.clients[client];
        let Some((wanted, since)) = it.wait else { return };
        let drained = |number: u32| it.streams[number as usize].queue.is_empty();
        let done = match wanted {
            Some(stream) => drained(stream),
            None => (0..it.load.work.streams).all(drained),
        };
        if done {
            let last = it.streams.iter().map(|stream| stream.ended).fold(0.0, f64::max);
            let time = since.max(last + self.submission.notify_ns);
            self.clients[client].wait = None;
            self.at(time, Event::Host(client));
        }
    }

    fn outcome(self, cut: bool) -> Outcome {
        let (occupied, active) = self.device.used(self.now);
        let clients = self.clients.into_iter().map(|client| {
            let mut latencies = client.latencies;
            latencies.sort_by(f64::total_cmp);
            let span = client.last_end - client.warm_since;
            let throughput = if span > 0.0 { latencies.len() as f64 * 1e9 / span } else { 0.0 };
            let backlog = client.arrived - client.done;
            let overloaded = client.load.arrival != Arrival::Closed && backlog as f64 > 4.0 + 0.1 * client.arrived as f64;
            Fared { throughput, latencies, overloaded }
        });
        Outcome { clients: clients.collect(), occupied, active, cut }
    }
}
