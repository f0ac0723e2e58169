//! Makes profiles of running programs out of what a recorder hears
//! ([`cumux_wire::recording`]): from a program's library what its host does, from executors how
//! long the card took.
//!
//! - [`noise`]: what the host adds to the durations of kernels.
//! - [`times`]: a distribution of times in little memory.
//! - [`requests`]: what the host does again and again.
//!
//! Invariants: memory and the profile's size are bounded however long the program runs
//! ([`MOST_KERNELS`], [`MOST_COPIES`], [`MOST_MEMORY`], `requests`). Whatever is heard, a profile
//! that comes out is one that [`crate::profile::read`] accepts.

pub mod noise;
mod requests;
mod times;

use crate::profile::{self, CardFacts, Copy, Duration, Host, HostWait, Kernel, MemoryAt, Profile, Recorded, Step};
use cumux_wire::cuda::DeviceAttribute as A;
use cumux_wire::facts::DeviceFacts;
use cumux_wire::recording::{Fact, Moment, Packet, Shape, Way};
use noise::{Noise, Spread};
use requests::{Requests, Token, What};
use std::collections::{BTreeMap, HashMap};
use times::Times;

/// Shapes of kernels that are told apart. Others count as the first shape of their kernel.
pub const MOST_KERNELS: usize = 4000;
/// Sizes of copies that are told apart. Others are rounded up to a power of two.
pub const MOST_COPIES: usize = 256;
/// Entries of memory over time.
pub const MOST_MEMORY: usize = 1024;
/// Places at which the host waits that are listed.
const MOST_WAITS: usize = 32;
/// A day: a host that does nothing for longer has ended.
const LONGEST_GAP_NS: u64 = 86_400_000_000_000;
/// Programs of one recording.
const MOST_PROGRAMS: usize = 4096;

/// What is said of a recording as a whole.
#[derive(Debug, Clone, Default)]
pub struct Circumstances {
    /// Seconds since 1970.
    pub at: u64,
    /// Version of cumux.
    pub cumux: String,
    /// Version of the driver; empty on a software GPU.
    pub driver: String,
}

/// A program that was recorded.
#[derive(Debug)]
pub struct Observed {
    /// Its process.
    pub pid: u32,
    /// What it did; `Err` where there is nothing to plan with.
    pub profile: Result<Profile, String>,
    /// How long the card worked for it.
    pub busy_ns: f64,
}

/// Everything that was heard.
#[derive(Debug, Default)]
pub struct Recording {
    programs: BTreeMap<u32, Program>,
}

/// Who is at the other end of a connection.
#[derive(Debug, Clone, std::marker::Copy, Default, PartialEq, Eq)]
pub enum Speaker {
    /// It has not said so yet.
    #[default]
    Unknown,
    /// An executor.
    Executor,
    /// The program of this session.
    Program(u32),
}

#[derive(Debug, Clone)]
struct Function {
    name: String,
    registers: u32,
    shared: u32,
}

#[derive(Debug, Default)]
struct Ran {
    alone: Times,
    all: Times,
}

impl Ran {
    fn add(&mut self, ns: u64, alone: bool) {
        self.all.add(ns);
        if alone {
            self.alone.add(ns);
        }
    }

    /// Its distribution, alone if it ever was.
    fn best(&self) -> &Times {
        if self.alone.is_empty() { &self.all } else { &self.alone }
    }
}

#[derive(Debug, Default)]
struct Program {
    who: Option<(u32, String, CardFacts)>,
    functions: HashMap<(u32, u32), Function>,
    began: Option<u64>,
    until: u64,
    /// End of the host's last call.
    last_call: Option<u64>,
    /// What it launched or copied last.
    last_launch: Option<u32>,
    shapes: Interned<Shape>,
    first_shape: HashMap<(u32, u32), u32>,
    launches: Vec<u64>,
    copies: Interned<(Way, u64)>,
    copied: Vec<u64>,
    streams: HashMap<u32, u32>,
    requests: Requests,
    ran: HashMap<Shape, Ran>,
    /// By function, for shapes beyond [`MOST_KERNELS`].
    ran_at_all: HashMap<(u32, u32), Ran>,
    took: HashMap<(Way, u64), Times>,
    took_at_all: HashMap<Way, Times>,
    memory: Vec<(u64, u64)>,
    gaps: Times,
    launching_ns: u64,
    waits: u64,
    waiting_ns: u64,
    waits_after: HashMap<Option<u32>, (u64, u64)>,
    merged_shapes: bool,
}

/// Things by their numbers.
#[derive(Debug)]
struct Interned<T> {
    numbers: HashMap<T, u32>,
    all: Vec<T>,
}

impl<T> Default for Interned<T> {
    fn default() -> Self {
        Self { numbers: HashMap::new(), all: Vec::new() }
    }
}

impl<T: std::hash::Hash + Eq + std::marker::Copy> Interned<T> {
    fn find(&self, thing: T) -> Option<u32> {
        self.numbers.get(&thing).copied()
    }

    fn add(&mut self, thing: T) -> u32 {
        *self.numbers.entry(thing).or_insert_with(|| {
            self.all.push(thing);
            u32::try_from(self.all.len() - 1).unwrap_or(u32::MAX)
        })
    }
}

impl Recording {
    /// Takes in a packet of somebody, who may say in it who that is.
    pub fn hear(&mut self, speaker: &mut Speaker, packet: Packet) {
        match packet {
            Packet::Fact(Fact::Executor) => *speaker = Speaker::Executor,
            Packet::Fact(Fact::Program { session, pid, name, device, multiprocessors }) => {
                if let Some(program) = self.program(session) {
                    program.who.get_or_insert_with(|| (pid, name, card_facts(&device, multiprocessors)));
                    *speaker = Speaker::Program(session);
                }
            }
            Packet::Fact(Fact::Function { module, function, name, registers, shared }) => {
                if let Speaker::Program(session) = *speaker
                    && let Some(program) = self.program(session)
                    && program.functions.len() < 1 << 20
                {
                    program.functions.insert((module, function), Function { name, registers, shared });
                }
            }
            Packet::Moments(moments) => {
                for moment in moments {
                    self.happened(*speaker, moment);
                }
            }
        }
    }

    fn program(&mut self, session: u32) -> Option<&mut Program> {
        if self.programs.len() >= MOST_PROGRAMS && !self.programs.contains_key(&session) {
            return None;
        }
        Some(self.programs.entry(session).or_default())
    }

    fn happened(&mut self, speaker: Speaker, moment: Moment) {
        match (speaker, moment) {
            (Speaker::Executor, Moment::Ran { session, shape, ns, alone }) => {
                let Some(program) = self.program(session) else { return };
                program.ran_at_all.entry((shape.module, shape.function)).or_default().add(ns, alone);
                if program.ran.len() < 2 * MOST_KERNELS || program.ran.contains_key(&shape) {
                    program.ran.entry(shape).or_default().add(ns, alone);
                }
            }
            (Speaker::Executor, Moment::Copied { session, way, bytes, ns }) => {
                let Some(program) = self.program(session) else { return };
                program.took_at_all.entry(way).or_default().add(ns);
                if program.took.len() < 2 * MOST_COPIES || program.took.contains_key(&(way, bytes)) {
                    program.took.entry((way, bytes)).or_default().add(ns);
                }
            }
            (Speaker::Executor, Moment::Memory { session, at, bytes }) => {
                if let Some(program) = self.program(session) {
                    program.memory_is(at, bytes);
                }
            }
            (Speaker::Program(session), Moment::Launch { from, took, stream, shape }) => {
                let Some(program) = self.program(session) else { return };
                let gap = program.called(from, took);
                program.launching_ns = program.launching_ns.saturating_add(took);
                program.gaps.add(gap);
                let number = program.shape(shape);
                program.launches[number as usize] += 1;
                program.last_launch = Some(number);
                let stream = program.stream(stream);
                program.requests.step(Token { what: What::Launch(number), stream }, gap, took);
            }
            (Speaker::Program(session), Moment::Copy { from, took, stream, way, bytes }) => {
                let Some(program) = self.program(session) else { return };
                let gap = program.called(from, took);
                let number = program.copy(way, bytes);
                program.copied[number as usize] += 1;
                let stream = program.stream(stream);
                program.requests.step(Token { what: What::Copy(number), stream }, gap, took);
            }
            (Speaker::Program(session), Moment::Wait { from, took, stream }) => {
                let Some(program) = self.program(session) else { return };
                let gap = program.called(from, took);
                program.waits += 1;
                program.waiting_ns = program.waiting_ns.saturating_add(took);
                let after = program.last_launch;
                let place = program.waits_after.entry(after).or_default();
                *place = (place.0 + 1, place.1.saturating_add(took));
                let what = if stream.is_some() { What::Wait } else { What::WaitForAll };
                let stream = stream.map_or(0, |stream| program.stream(stream));
                program.requests.step(Token { what, stream }, gap, took);
            }
            // Nobody else has a say in this.
            _ => {}
        }
    }

    /// The profiles, that of the program first for which the card worked longest.
    #[must_use]
    pub fn finish(self, circumstances: &Circumstances) -> Vec<Observed> {
        let programs = self.programs.into_values().filter_map(|program| program.finish(circumstances));
        let mut observed: Vec<Observed> = programs.collect();
        observed.sort_by(|a, b| b.busy_ns.total_cmp(&a.busy_ns));
        observed
    }
}

impl Program {
    /// A call of the host's: the time between the last call's end and this one's beginning.
    fn called(&mut self, from: u64, took: u64) -> u64 {
        let gap = self.last_call.map_or(0, |last| from.saturating_sub(last)).min(LONGEST_GAP_NS);
        let until = from.saturating_add(took);
        self.began = Some(self.began.map_or(from, |began| began.min(from)));
        self.until = self.until.max(until);
        // Of two threads' calls the later end counts.
        self.last_call = Some(self.last_call.map_or(until, |last| last.max(until)));
        gap
    }

    /// The number of a shape.
    fn shape(&mut self, shape: Shape) -> u32 {
        if let Some(number) = self.shapes.find(shape) {
            return number;
        }
        let of = (shape.module, shape.function);
        if self.shapes.all.len() >= MOST_KERNELS {
            self.merged_shapes = true;
            // A kernel that nobody has seen before counts as the first one there was.
            return self.first_shape.get(&of).copied().unwrap_or(0);
        }
        let number = self.shapes.add(shape);
        self.first_shape.entry(of).or_insert(number);
        self.launches.push(0);
        number
    }

    /// The number of a kind of copy.
    fn copy(&mut self, way: Way, bytes: u64) -> u32 {
        let mut kind = (way, bytes);
        if self.copies.all.len() >= MOST_COPIES && self.copies.find(kind).is_none() {
            kind.1 = bytes.checked_next_power_of_two().unwrap_or(bytes);
        }
        let number = self.copies.add(kind);
        self.copied.resize(self.copies.all.len(), 0);
        number
    }

    /// Streams in the order in which they were first used.
    fn stream(&mut self, index: u32) -> u32 {
        let next = self.streams.len() as u32;
        let number = if self.streams.len() < 65_536 { *self.streams.entry(index).or_insert(next) } else { self.streams.get(&index).copied().unwrap_or(0) };
        number % profile::MOST_STREAMS
    }

    fn memory_is(&mut self, at: u64, bytes: u64) {
        self.memory.push((at, bytes));
        if self.memory.len() > 2 * MOST_MEMORY {
            // Half as fine: of two entries the larger one, from the first one's time.
            self.memory = self.memory.chunks(2).map(|two| (two[0].0, two.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0))).collect();
        }
    }

    fn finish(mut self, circumstances: &Circumstances) -> Option<Observed> {
        let (pid, name, card) = self.who.take()?;
        let busy_ns = self.ran_at_all.values().map(|ran| ran.all.total_ns()).sum();
        Some(Observed { pid, busy_ns, profile: self.profile(name, card, circumstances) })
    }

    fn profile(self, program: String, card: CardFacts, circumstances: &Circumstances) -> Result<Profile, String> {
        if self.launches.is_empty() && self.copied.is_empty() {
            return Err("it launched and copied nothing on the card".to_owned());
        }
        let mut notes = Vec::new();
        // Shapes that are the same kernel, out of modules that were loaded again, are one entry.
        let mut kernels: Vec<Kernel> = Vec::new();
        let mut places: HashMap<(String, u32, u32, u32, u32), usize> = HashMap::new();
        let mut place_of_shape = Vec::new();
        let mut unmeasured = 0_u64;
        let mut measured: Vec<Ran> = Vec::new();
        for (shape, count) in self.shapes.all.iter().zip(&self.launches) {
            let of = (shape.module, shape.function);
            let unknown = Function { name: format!("kernel {} of module {}", shape.function, shape.module), registers: 32, shared: 0 };
            let function = self.functions.get(&of).cloned().unwrap_or(unknown);
            let (blocks, threads) = (shape.blocks.max(1), shape.threads.clamp(1, 1024));
            let shared = function.shared.saturating_add(shape.shared).min(card.shared);
            let key = (function.name, blocks, threads, function.registers, shared);
            let place = *places.entry(key.clone()).or_insert_with(|| {
                let (name, blocks, threads, registers, shared) = key;
                let duration = Duration { mean_ns: 0.0, p99_ns: 0.0 };
                kernels.push(Kernel { name, count: 0, blocks, threads, registers, shared, duration, traffic: None, issue: None });
                measured.push(Ran::default());
                kernels.len() - 1
            });
            place_of_shape.push(place);
            kernels[place].count += count;
            match self.ran.get(shape).or_else(|| self.ran_at_all.get(&of)) {
                Some(ran) => {
                    measured[place].alone.join(&ran.alone);
                    measured[place].all.join(&ran.all);
                }
                None => unmeasured += count,
            }
        }
        let spreads: Vec<Spread> = measured.iter().map(|ran| ran.best().spread()).collect();
        let noise = Noise::of(&spreads);
        for (kernel, spread) in kernels.iter_mut().zip(&spreads) {
            kernel.duration = noise.without(spread);
            // What does not fit was a launch that failed, or a card that says little of itself.
            if profile::occupancy(&card, kernel) == 0 {
                kernel.registers = 16;
                kernel.shared = 0;
            }
        }
        let beside = measured.iter().filter(|ran| ran.alone.is_empty() && !ran.all.is_empty()).count();
        if beside > 0 {
            notes.push(format!("{beside} kernels were never alone on the card: the program ran others beside them, so their durations are too long"));
        }
        if unmeasured > 0 {
            notes.push(format!("the end of {unmeasured} launches was not seen"));
        }
        if self.merged_shapes {
            notes.push(format!("the program launched kernels in more than {MOST_KERNELS} shapes: later shapes count as the first one of their kernel"));
        }
        let copies = self.copies.all.iter().zip(&self.copied).map(|((way, bytes), count)| {
            let took = self.took.get(&(*way, *bytes)).or_else(|| self.took_at_all.get(way));
            // They are measured as kernels are.
            let duration = took.map_or(Duration { mean_ns: 1000.0, p99_ns: 1000.0 }, |took| noise.without(&took.spread()));
            Copy { way: planned_way(*way), count: *count, bytes: *bytes, duration }
        });
        let copies = copies.collect();
        let told = self.requests.finish(|token, gap_ns| match token.what {
            What::Launch(shape) => Step::Launch { kernel: place_of_shape.get(shape as usize).copied().unwrap_or(0), stream: token.stream, gap_ns },
            What::Copy(copy) => Step::Copy { copy: copy as usize, stream: token.stream, gap_ns },
            What::Wait => Step::Wait { stream: Some(token.stream), gap_ns },
            What::WaitForAll => Step::Wait { stream: None, gap_ns },
        });
        notes.extend(told.note);
        let began = self.began.unwrap_or(0);
        let mut waits: Vec<HostWait> = (self.waits_after.iter())
            .map(|(after, (count, total_ns))| HostWait {
                after: after.and_then(|shape| place_of_shape.get(shape as usize).copied()),
                count: *count,
                total_ns: *total_ns,
            })
            .collect();
        waits.sort_by_key(|wait| (std::cmp::Reverse(wait.total_ns), wait.after));
        waits.truncate(MOST_WAITS);
        let host = Host {
            launches: self.launches.iter().sum(),
            launching_ns: self.launching_ns,
            launch_gap: self.gaps.duration_or_zero(),
            request: told.host,
            waits: self.waits,
            waiting_ns: self.waiting_ns,
            waits_after: waits,
        };
        let lasted_ns = self.until.saturating_sub(began);
        let recorded = Recorded { at: circumstances.at, cumux: circumstances.cumux.clone(), driver: circumstances.driver.clone(), lasted_ns };
        let memory = self.memory.iter().map(|(at, bytes)| MemoryAt { at_ns: at.saturating_sub(began), bytes: *bytes }).collect();
        Ok(Profile {
            format: profile::FORMAT.to_owned(),
            version: profile::VERSION,
            program,
            recorded: Some(recorded),
            card,
            kernels,
            copies,
            request: told.steps,
            requests: told.count,
            memory,
            host: Some(host),
            notes,
        })
    }
}

fn planned_way(way: Way) -> profile::Way {
    match way {
        Way::ToDevice => profile::Way::ToDevice,
        Way::ToHost => profile::Way::ToHost,
        Way::OnDevice => profile::Way::OnDevice,
    }
}

/// What a device says of itself, as a profile has it.
#[must_use]
pub fn card_facts(device: &DeviceFacts, multiprocessors: u32) -> CardFacts {
    let value = |attribute: A| device.attribute(attribute).max(0).cast_unsigned();
    let granted = if multiprocessors == 0 { device.multiprocessors() } else { multiprocessors };
    let memory_clock = u64::from(value(A::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)) * 1000;
    CardFacts {
        name: device.name.chars().take(100).collect(),
        multiprocessors: granted.clamp(1, 4096),
        clock_khz: value(A::CU_DEVICE_ATTRIBUTE_CLOCK_RATE).max(1),
        // Two transfers a clock.
        bandwidth: (memory_clock * 2 * u64::from(value(A::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)) / 8).max(1),
        cache: u64::from(value(A::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)),
        threads: value(A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR).max(1024),
        blocks: value(A::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR).max(1),
        registers: value(A::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR).max(65_536),
        shared: value(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR).max(1),
    }
}
