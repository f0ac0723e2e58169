//! A profile taken to a card, or to an instance of one: what each launch needs there, and how long
//! it takes alone.
//!
//! What is scaled: blocks by occupancy and multiprocessors, their time by clock and bandwidth. What
//! is not: how much more a newer multiprocessor does in one clock, tensor cores, and cache beyond
//! the rule of [`Work::on`].

use crate::card::{Capacity, CardModel};
use crate::mig::{Instance, Table};
use crate::profile::{Kernel, Profile, SHORTEST_KERNEL_NS, Step, Way, need, occupancy};

/// A card, or an instance of it, as the simulation sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// One of them.
    pub each: Capacity,
    /// Their clock.
    pub clock_khz: u32,
    /// Bytes a nanosecond.
    pub bandwidth: f64,
    /// Bytes of L2 cache.
    pub cache: u64,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Compute capability, major.
    pub major: u32,
}

impl Machine {
    /// The whole card.
    #[must_use]
    pub fn whole(card: &CardModel) -> Self {
        Self {
            multiprocessors: card.multiprocessors,
            each: card.each,
            clock_khz: card.clock_khz,
            bandwidth: card.bandwidth as f64 / 1e9,
            cache: card.cache,
            memory_mib: card.memory_mib,
            major: card.major,
        }
    }

    /// An instance: its multiprocessors and memory, and its memory slices' part of bandwidth and
    /// cache.
    #[must_use]
    pub fn instance(card: &CardModel, table: &Table, instance: &Instance) -> Self {
        let part = f64::from(instance.profile.size) / f64::from(table.grid);
        Self {
            multiprocessors: instance.profile.multiprocessors(table, card.multiprocessors),
            bandwidth: card.bandwidth as f64 / 1e9 * part,
            cache: (card.cache as f64 * part) as u64,
            memory_mib: instance.profile.memory_mib(table, card.memory_mib),
            ..Self::whole(card)
        }
    }
}

/// A launch, as it is on the machine.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelWork {
    /// Blocks.
    pub blocks: u32,
    /// Part of a multiprocessor that one block takes.
    pub footprint: f64,
    /// Time of one block where nothing else runs.
    pub block_ns: f64,
    /// How many times that is at its worst (99 of 100 launches).
    pub worst: f64,
    /// Bytes a nanosecond that one block moves.
    pub bandwidth: f64,
    /// Part of its time for which it depends on bandwidth, 0 to 1.
    pub bound: f64,
    /// Part of one multiprocessor's issue slots that one block uses.
    pub issue: f64,
}

/// A copy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CopyWork {
    /// From where to where.
    pub way: Way,
    /// Time alone.
    pub ns: f64,
}

/// A step, without repetitions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Do {
    /// Launch a kernel.
    Launch {
        /// Its number.
        kernel: u32,
        /// Stream.
        stream: u32,
        /// Host time before it.
        gap_ns: f64,
    },
    /// Begin a copy.
    Copy {
        /// Its number.
        copy: u32,
        /// Stream.
        stream: u32,
        /// Host time before it.
        gap_ns: f64,
    },
    /// Wait for a stream or for all.
    Wait {
        /// Which.
        stream: Option<u32>,
        /// Host time before it.
        gap_ns: f64,
    },
}

/// A program on a machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Work {
    /// Its kernels.
    pub kernels: Vec<KernelWork>,
    /// Its copies.
    pub copies: Vec<CopyWork>,
    /// One request. The last step is a wait.
    pub steps: Vec<Do>,
    /// Its streams.
    pub streams: u32,
    /// How many times as long as on average its host takes for a request at its slowest (one of a
    /// hundred), 1 if that is not known.
    pub unsteady: f64,
}

/// A kernel does not fit the machine at all.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
#[error("a block of kernel {0} does not fit into one multiprocessor of this card")]
pub struct DoesNotFit(pub String);

/// Warps of one multiprocessor that keep its four schedulers busy. An assumption, used where a
/// profile has no `issue`.
const SATURATING_WARPS: f64 = 16.0;
/// How much of the card's bandwidth, beyond its part of the multiprocessors, a kernel can draw: a
/// few multiprocessors draw more than their part. An assumption.
const DRAW: f64 = 2.0;
/// Part of its time for which a kernel of unknown traffic depends on bandwidth. An assumption.
const UNKNOWN_BOUND: f64 = 0.5;
/// The part of a recorded gap before a launch that the launch's own time has, too: what the runtime
/// does between two calls of the driver. The lab's `tiny`, which does nothing but launch through
/// the runtime, has gaps of 378 and 357 ns (two labs), and a launch's time
/// ([`crate::mode::LAUNCH_NS`], `cumux lab`) is measured in such a loop.
const GAP_IN_LAUNCH_NS: f64 = 350.0;
/// A host that was slower still did something else once in a while, which its mean has already.
const MOST_UNSTEADY: f64 = 4.0;

impl Work {
    /// Takes a profile to a machine.
    ///
    /// A kernel whose traffic fits the cache of the recorded card, and not that of the machine,
    /// takes at least as long as moving it once.
    ///
    /// # Errors
    /// [`DoesNotFit`]: a block needs more than one multiprocessor has.
    pub fn on(profile: &Profile, machine: &Machine) -> Result<Self, DoesNotFit> {
        let kernels = profile.kernels.iter().map(|kernel| KernelWork::on(kernel, profile, machine)).collect::<Result<Vec<_>, _>>()?;
        let on_device = profile.card.bandwidth as f64 / 1e9 / machine.bandwidth;
        let copies =
            profile.copies.iter().map(|copy| CopyWork { way: copy.way, ns: copy.duration.mean_ns * if copy.way == Way::OnDevice { on_device } else { 1.0 } });
        let mut steps = Vec::new();
        write_out(&profile.request, &mut steps);
        if profile.recorded.is_some() {
            for step in &mut steps {
                if let Do::Launch { gap_ns, .. } = step {
                    *gap_ns = (*gap_ns - GAP_IN_LAUNCH_NS).max(0.0);
                }
            }
        }
        // A request ends when its result is there.
        if !matches!(steps.last(), Some(Do::Wait { .. })) {
            steps.push(Do::Wait { stream: None, gap_ns: 0.0 });
        }
        let streams = steps.iter().map(|step| match step {
            Do::Launch { stream, .. } | Do::Copy { stream, .. } => stream + 1,
            Do::Wait { stream, .. } => stream.unwrap_or(0) + 1,
        });
        let request = profile.host.as_ref().and_then(|host| host.request).filter(|request| request.mean_ns > 0.0);
        let unsteady = request.map_or(1.0, |request| (request.p99_ns / request.mean_ns).clamp(1.0, MOST_UNSTEADY));
        Ok(Self { kernels, copies: copies.collect(), streams: streams.max().unwrap_or(1), steps, unsteady })
    }

    /// The same on a host that takes so many times as long.
    #[must_use]
    pub fn on_host(mut self, factor: f64) -> Self {
        for step in &mut self.steps {
            match step {
                Do::Launch { gap_ns, .. } | Do::Copy { gap_ns, .. } | Do::Wait { gap_ns, .. } => *gap_ns *= factor,
            }
        }
        self
    }

    /// How long the device works for one request if every launch runs alone, one after the other.
    #[must_use]
    pub fn busy_ns(&self, machine: &Machine) -> f64 {
        let of = |step: &Do| match *step {
            Do::Launch { kernel, .. } => self.kernels[kernel as usize].alone_ns(machine.multiprocessors),
            Do::Copy { copy, .. } => self.copies[copy as usize].ns,
            Do::Wait { .. } => 0.0,
        };
        self.steps.iter().map(of).sum()
    }

    /// How long the host works for one request.
    #[must_use]
    pub fn host_ns(&self) -> f64 {
        let of = |step: &Do| match *step {
            Do::Launch { gap_ns, .. } | Do::Copy { gap_ns, .. } | Do::Wait { gap_ns, .. } => gap_ns,
        };
        self.steps.iter().map(of).sum()
    }
}

impl KernelWork {
    fn on(kernel: &Kernel, profile: &Profile, machine: &Machine) -> Result<Self, DoesNotFit> {
        let from = &profile.card;
        let fits = machine.each.times(need(kernel));
        // A block that takes a whole multiprocessor of its card takes a whole one here.
        let whole = kernel.shared == from.shared && occupancy(from, kernel) == 1;
        let fits = if fits == 0 && whole { 1 } else { fits };
        if fits == 0 {
            return Err(DoesNotFit(kernel.name.clone()));
        }
        let beside = occupancy(from, kernel).max(1);
        let waves = f64::from(kernel.blocks.div_ceil((beside * from.multiprocessors).max(1)));
        let recorded_ns = kernel.duration.mean_ns.max(SHORTEST_KERNEL_NS) / waves;
        let filled = (f64::from(kernel.blocks) / f64::from(from.multiprocessors)).min(1.0);
        let peak = from.bandwidth as f64 / 1e9;
        let bound = match kernel.traffic {
            Some(bytes) => (bytes as f64 / kernel.duration.mean_ns / (peak * (DRAW * filled).min(1.0))).min(1.0),
            None => UNKNOWN_BOUND,
        };
        let by_clock = f64::from(from.clock_khz) / f64::from(machine.clock_khz);
        let by_bandwidth = (peak / f64::from(from.multiprocessors)) / (machine.bandwidth / f64::from(machine.multiprocessors));
        let mut block_ns = recorded_ns * ((1.0 - bound) * by_clock + bound * by_bandwidth);
        let traffic = kernel.traffic.map_or(bound * peak * filled * kernel.duration.mean_ns, |bytes| bytes as f64);
        if traffic > machine.cache as f64 && traffic <= from.cache as f64 {
            let waves_here = f64::from(kernel.blocks.div_ceil(fits * machine.multiprocessors));
            block_ns = block_ns.max(traffic / machine.bandwidth / waves_here);
        }
        let resident = f64::from(kernel.blocks.div_ceil(from.multiprocessors).min(beside));
        let warps = f64::from(kernel.threads.div_ceil(32)) * resident;
        let issue = kernel.issue.unwrap_or((warps / SATURATING_WARPS).min(1.0)) / resident;
        Ok(Self {
            blocks: kernel.blocks,
            footprint: 1.0 / f64::from(fits),
            block_ns,
            worst: (kernel.duration.p99_ns / kernel.duration.mean_ns).max(1.0),
            bandwidth: traffic / f64::from(kernel.blocks) / block_ns,
            bound,
            issue,
        })
    }

    /// How long a launch takes alone on so many multiprocessors.
    #[must_use]
    pub fn alone_ns(&self, multiprocessors: u32) -> f64 {
        let at_once = (f64::from(multiprocessors) / self.footprint).round().max(1.0);
        (f64::from(self.blocks) / at_once).ceil() * self.block_ns
    }
}

fn write_out(steps: &[Step], out: &mut Vec<Do>) {
    for step in steps {
        match step {
            Step::Launch { kernel, stream, gap_ns } => out.push(Do::Launch { kernel: *kernel as u32, stream: *stream, gap_ns: *gap_ns as f64 }),
            Step::Copy { copy, stream, gap_ns } => out.push(Do::Copy { copy: *copy as u32, stream: *stream, gap_ns: *gap_ns as f64 }),
            Step::Wait { stream, gap_ns } => out.push(Do::Wait { stream: *stream, gap_ns: *gap_ns as f64 }),
            Step::Repeat { times, steps } => (0..*times).for_each(|_| write_out(steps, out)),
        }
    }
}
