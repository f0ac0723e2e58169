//! The machine in the simulation: contexts in turn, and in each of them groups of blocks that run
//! side by side.

use super::{Load, TimeSlices};
use crate::work::{KernelWork, Machine};
use std::collections::VecDeque;

/// Blocks that begin join a group of their kernel that has more than this part of its time left.
const MERGED: f64 = 0.98;

/// Whose work: client and stream.
type Owner = (usize, u32);

/// Rounding of sums of parts of multiprocessors.
const DUST: f64 = 1e-6;
/// A group with less time left than this has ended.
const OVER_NS: f64 = 1e-3;

/// A kernel that has begun and has blocks that are on no multiprocessor yet, or on one.
#[derive(Debug, Clone)]
struct Kernel {
    owner: Owner,
    block_ns: f64,
    footprint: f64,
    bandwidth: f64,
    bound: f64,
    issue: f64,
    /// Blocks that are not given out.
    left: u32,
    /// Blocks that run.
    running: u32,
}

/// Blocks of one kernel that were given out together.
#[derive(Debug, Clone)]
struct Group {
    owner: Owner,
    blocks: u32,
    /// Time left where nothing slows it down.
    left_ns: f64,
    bandwidth: f64,
    bound: f64,
    issue: f64,
    footprint: f64,
}

#[derive(Debug, Default)]
struct Context {
    /// Kernels in the order in which they began.
    kernels: VecDeque<Kernel>,
    groups: Vec<Group>,
    /// Multiprocessors in use.
    used: f64,
    /// How much slower groups are that depend on bandwidth, and the others.
    slow: (f64, f64),
    /// Until then the next kernel of a stream is about to begin.
    held: f64,
}

impl Context {
    fn has_work(&self, now: f64) -> bool {
        !self.kernels.is_empty() || now < self.held
    }
}

/// Whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Turn {
    /// This context runs, at least until then if others wait.
    Of(usize, f64),
    /// This one comes next, at that time.
    Next(usize, f64),
}

/// Kernels of one context that run at the same time, at most. Measured with kernels of one block:
/// 16 and 32 clients of NVIDIA's MPS get 13.6 and 13.8 times as much as one from an H100
/// (`benches/h200.sh`, W1 with 23 us), and 16 get 12.6 times as much from an H200 (the lab's `spin`
/// with 207 us). Through cumux it is 12.1 times with 13 busy streams at most and 13.3 with 17.
const AT_ONCE: usize = 13;

#[derive(Debug)]
pub(super) struct Device {
    now: f64,
    multiprocessors: f64,
    bandwidth: f64,
    contexts: Vec<Context>,
    turn: Turn,
    turns: TimeSlices,
    /// Of each client: its context, multiprocessors that it uses, and its most.
    clients: Vec<(usize, f64, f64)>,
    occupied_ns: f64,
    active_ns: f64,
}

impl Device {
    pub(super) fn new(machine: &Machine, loads: &[Load<'_>], contexts: usize, turns: TimeSlices) -> Self {
        Self {
            now: 0.0,
            multiprocessors: f64::from(machine.multiprocessors),
            bandwidth: machine.bandwidth,
            contexts: (0..contexts).map(|_| Context { slow: (1.0, 1.0), ..Context::default() }).collect(),
            turn: Turn::Of(0, 0.0),
            turns,
            clients: loads.iter().map(|load| (load.context, 0.0, f64::from(load.cap.min(machine.multiprocessors)))).collect(),
            occupied_ns: 0.0,
            active_ns: 0.0,
        }
    }

    /// A kernel begins: its blocks may be given out.
    pub(super) fn begin(&mut self, owner: Owner, work: &KernelWork, factor: f64) {
        let context = self.clients[owner.0].0;
        self.contexts[context].kernels.push_back(Kernel {
            owner,
            block_ns: work.block_ns * factor,
            footprint: work.footprint,
            bandwidth: work.bandwidth,
            bound: work.bound,
            issue: work.issue,
            left: work.blocks,
            running: 0,
        });
        match self.turn {
            Turn::Of(active, _) if active == context => self.give_out(context),
            _ => self.pass_on(),
        }
    }

    /// The next moment at which something happens on the machine by itself.
    pub(super) fn next(&self) -> f64 {
        match self.turn {
            Turn::Next(_, at) => at,
            Turn::Of(active, until) => {
                let context = &self.contexts[active];
                let first = context.groups.iter().map(|group| group.left_ns * slowness(group, context.slow)).fold(f64::INFINITY, f64::min);
                let end = self.now + first;
                if end < f64::INFINITY && self.waits_after(active).is_some() { end.min(until.max(self.now)) } else { end }
            }
        }
    }

    /// Lets time pass until `now`, which is not after [`Self::next`], and returns whose kernels
    /// have ended.
    pub(super) fn advance(&mut self, now: f64) -> Vec<Owner> {
        let passed = now - self.now;
        self.now = now;
        let active = match self.turn {
            Turn::Next(context, at) => {
                if now >= at {
                    self.turn = Turn::Of(context, now + self.turns.slice_ns);
                    self.give_out(context);
                }
                return Vec::new();
            }
            Turn::Of(active, _) => active,
        };
        let context = &mut self.contexts[active];
        if context.groups.is_empty() {
            return Vec::new();
        }
        self.active_ns += passed;
        self.occupied_ns += passed * context.used;
        let slow = context.slow;
        let mut over = Vec::new();
        context.groups.retain_mut(|group| {
            group.left_ns -= passed / slowness(group, slow);
            let ends = group.left_ns < OVER_NS;
            if ends {
                over.push((group.owner, group.blocks, group.footprint));
            }
            !ends
        });
        let mut ended = Vec::new();
        for (owner, blocks, footprint) in &over {
            let part = f64::from(*blocks) * footprint;
            context.used -= part;
            self.clients[owner.0].1 -= part;
            let Some(place) = context.kernels.iter().position(|kernel| kernel.owner == *owner) else { continue };
            context.kernels[place].running -= blocks;
            if context.kernels[place].running == 0 && context.kernels[place].left == 0 {
                context.kernels.remove(place);
                ended.push(*owner);
            }
        }
        if !over.is_empty() {
            self.give_out(active);
        }
        ended
    }

    /// The next kernel of a stream of this client begins at that time: the machine is not idle
    /// until then.
    pub(super) fn hold(&mut self, client: usize, until: f64) {
        let context = &mut self.contexts[self.clients[client].0];
        context.held = context.held.max(until);
    }

    /// Gives blocks of the context's kernels to multiprocessors: the kernels that began first come
    /// first, each as many blocks as fit.
    fn give_out(&mut self, number: usize) {
        let (context, now_free) = (&mut self.contexts[number], self.multiprocessors);
        let mut begun = context.kernels.iter().filter(|kernel| kernel.running > 0).count();
        for kernel in &mut context.kernels {
            if kernel.left == 0 || (kernel.running == 0 && begun >= AT_ONCE) {
                continue;
            }
            let (_, used, cap) = &mut self.clients[kernel.owner.0];
            let room = (now_free - context.used).min(*cap - *used);
            let fits = ((room + DUST) / kernel.footprint).floor().max(0.0);
            let blocks = if fits >= f64::from(kernel.left) { kernel.left } else { fits as u32 };
            if blocks == 0 {
                continue;
            }
            begun += usize::from(kernel.running == 0);
            let part = f64::from(blocks) * kernel.footprint;
            context.used += part;
            *used += part;
            kernel.left -= blocks;
            kernel.running += blocks;
            // Many small groups of many kernels would end one after the other, each an event.
            let begun_just_before = context.groups.iter_mut().rev().find(|group| group.owner == kernel.owner && group.left_ns > MERGED * kernel.block_ns);
            if let Some(group) = begun_just_before {
                let (there, more) = (f64::from(group.blocks), f64::from(blocks));
                group.left_ns = (group.left_ns * there + kernel.block_ns * more) / (there + more);
                group.blocks += blocks;
            } else {
                context.groups.push(Group {
                    owner: kernel.owner,
                    blocks,
                    left_ns: kernel.block_ns,
                    bandwidth: kernel.bandwidth,
                    bound: kernel.bound,
                    issue: kernel.issue,
                    footprint: kernel.footprint,
                });
            }
            if now_free - context.used < DUST {
                break;
            }
        }
        let bandwidth: f64 = context.groups.iter().map(|group| group.bandwidth * f64::from(group.blocks)).sum();
        let issue: f64 = context.groups.iter().map(|group| group.issue * f64::from(group.blocks)).sum();
        context.slow = ((bandwidth / self.bandwidth).max(1.0), (issue / self.multiprocessors).max(1.0));
    }

    /// Ends the active context's turn if it has no work or its time is over, and another has work.
    pub(super) fn pass_on(&mut self) {
        let Turn::Of(active, until) = self.turn else { return };
        if self.contexts[active].has_work(self.now) && self.now < until {
            return;
        }
        if let Some(next) = self.waits_after(active) {
            self.turn = Turn::Next(next, self.now + self.turns.switch_ns);
        }
    }

    /// The next context behind this one that has kernels. One that only copies needs no turn.
    fn waits_after(&self, active: usize) -> Option<usize> {
        let count = self.contexts.len();
        (1..count).map(|more| (active + more) % count).find(|number| !self.contexts[*number].kernels.is_empty())
    }

    /// Parts of the time until `now`: multiprocessors in use, anything running.
    pub(super) fn used(&self, now: f64) -> (f64, f64) {
        if now > 0.0 { (self.occupied_ns / now / self.multiprocessors, self.active_ns / now) } else { (0.0, 0.0) }
    }
}

/// How many times longer a group takes than alone.
fn slowness(group: &Group, (bandwidth, issue): (f64, f64)) -> f64 {
    group.bound * bandwidth + (1.0 - group.bound) * issue
}
