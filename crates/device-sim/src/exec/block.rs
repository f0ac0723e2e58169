//! One block of a grid, or the blocks of one cluster: warps, shared memory and barriers, run in
//! slices.
//!
//! The blocks of a cluster run together, warp after warp, on one worker. So they see each other's
//! shared memory without any order of the processor's.

use super::barrier::Barrier;
use super::fault::LaneFault;
use super::interface::{BlockCoordinates, Fault, FaultKind, GlobalMemory, Launch, Services, Status};
use super::run::{StopReason, WarpContext};
use super::texture::KnownTextures;
use super::warp::{CLUSTER_BARRIER, Warp};
use crate::program::LinkedProgram;
use crate::program::code::Code;
use crate::program::window;
use std::sync::Arc;

/// Barriers of a block (PTX ISA, "barrier").
const BARRIERS: usize = 16;
/// Warp instructions that a warp runs before the next warp runs.
const WARP_BUDGET: u64 = 2048;
/// The same behind a barrier of the block. The warps of a card go on together there: what a program
/// reads at once, others overwrite later, also where the program has forgotten a second barrier.
const BUDGET_BEHIND_BARRIER: u64 = 32;

/// Bytes in which cards give out shared memory (*CUDA Occupancy Calculator*, compute capability 8.0
/// and newer).
const SHARED_UNIT: usize = 128;

/// What a block of a cluster has for itself, besides its warps and its shared memory.
#[derive(Debug)]
struct Member {
    coordinates: BlockCoordinates,
    barriers: Vec<Barrier>,
    /// Warps with threads that have not exited.
    living: usize,
}

/// A block, or the blocks of a cluster, between the first and the last instruction. All state is in
/// the value, so any thread may go on with it.
#[derive(Debug)]
pub struct Block {
    launch: Arc<Launch>,
    /// The blocks by rank; one without clusters.
    members: Vec<Member>,
    /// Shared memory of each block.
    shared: Vec<Vec<u8>>,
    /// The warps of the first block, then those of the next.
    warps: Vec<Warp>,
    /// Warps of one block.
    warps_each: usize,
    cluster_barrier: Barrier,
    textures: KnownTextures,
    /// The warp that runs next.
    next_warp: usize,
    /// Warps of all blocks with threads that have not exited.
    living: usize,
    /// Warp instructions executed since the start.
    executed: u64,
    /// How the block ended, once it has.
    ended: Option<Status>,
}

impl Block {
    /// The blocks of a cluster, by rank, at the kernel's first instruction. Without clusters there
    /// is one.
    #[must_use]
    pub fn new(launch: Arc<Launch>, coordinates: &[BlockCoordinates]) -> Self {
        let mut block = Block {
            launch: launch.clone(),
            members: Vec::new(),
            shared: Vec::new(),
            warps: Vec::new(),
            warps_each: 1,
            cluster_barrier: Barrier::default(),
            textures: KnownTextures::default(),
            next_warp: 0,
            living: 0,
            executed: 0,
            ended: None,
        };
        block.restart(launch, coordinates);
        block
    }

    /// Lets kernels use the shared memory up to the end of the unit in which a card gives it out.
    pub fn round_shared(&mut self) {
        for memory in &mut self.shared {
            memory.resize(memory.len().next_multiple_of(SHARED_UNIT), 0);
        }
    }

    /// True if an access of generic addresses ends inside that unit.
    #[must_use]
    pub fn is_within_shared_unit(&self, address: u64, bytes: u64) -> bool {
        let rounded = self.shared.first().map_or(0, |memory| memory.len().next_multiple_of(SHARED_UNIT)) as u64;
        address.checked_sub(window::SHARED.start).is_some_and(|from| from.saturating_add(bytes) <= rounded)
    }

    /// Makes this value another block or cluster of the same or another launch, keeping its
    /// buffers.
    pub fn restart(&mut self, launch: Arc<Launch>, coordinates: &[BlockCoordinates]) {
        self.next_warp = 0;
        self.executed = 0;
        self.ended = None;
        self.cluster_barrier.reset();
        let empty = || Member { coordinates: BlockCoordinates::default(), barriers: vec![Barrier::default(); BARRIERS], living: 0 };
        self.members.resize_with(coordinates.len(), empty);
        self.shared.resize_with(coordinates.len(), Vec::new);
        for (member, coordinates) in self.members.iter_mut().zip(coordinates) {
            member.coordinates = *coordinates;
            member.barriers.iter_mut().for_each(Barrier::reset);
        }
        let program = launch.linked.program().clone();
        let Some(kernel) = program.kernels.get(launch.kernel) else {
            self.warps.clear();
            self.living = 0;
            self.launch = launch;
            return;
        };
        let function = kernel.function;
        let code: &Code = &program.functions[function as usize];
        let shared = if launch.dynamic_shared == 0 { kernel.static_shared } else { kernel.dynamic_base() + launch.dynamic_shared };
        for memory in &mut self.shared {
            memory.clear();
            memory.resize(shared as usize, 0);
        }
        let stack = if kernel.unbounded.is_some() { launch.stack_bytes } else { 0 };
        let local = kernel.local_bytes + stack;
        let threads: u64 = launch.block.iter().map(|n| u64::from(*n)).product();
        self.warps_each = threads.div_ceil(32) as usize;
        self.living = self.warps_each * self.members.len();
        self.warps.resize_with(self.living, Warp::default);
        for warps in self.warps.chunks_mut(self.warps_each.max(1)) {
            for (index, warp) in warps.iter_mut().enumerate() {
                warp.start(index as u32, launch.block, code, function, local);
            }
        }
        for member in &mut self.members {
            member.living = self.warps_each;
        }
        self.launch = launch;
    }

    /// Warp instructions executed since the start.
    #[must_use]
    pub fn executed(&self) -> u64 {
        self.executed
    }

    /// Runs about `budget` warp instructions. Once it has answered anything but [`Status::Running`]
    /// it does nothing more and answers the same again.
    pub fn run<M: GlobalMemory, S: Services>(&mut self, budget: u64, memory: &mut M, services: &mut S) -> Status {
        if let Some(ended) = &self.ended {
            return ended.clone();
        }
        let status = self.run_slice(budget, memory, services);
        if status != Status::Running {
            self.ended = Some(status.clone());
        }
        status
    }

    fn run_slice<M: GlobalMemory, S: Services>(&mut self, budget: u64, memory: &mut M, services: &mut S) -> Status {
        let launch = self.launch.clone();
        let end = self.executed.saturating_add(budget);
        let mut idle = 0;
        while self.executed < end {
            if self.living == 0 {
                return Status::Done;
            }
            let count = self.warps.len();
            if self.next_warp >= count {
                self.next_warp = 0;
            }
            let at = self.next_warp;
            let is_released = std::mem::take(&mut self.warps[at].is_released) && count > 1;
            let mut left = if is_released { BUDGET_BEHIND_BARRIER } else { WARP_BUDGET }.min(end - self.executed);
            let before = left;
            let rank = if self.members.len() == 1 { 0 } else { at / self.warps_each };
            let mut own = std::mem::take(&mut self.shared[rank]);
            let mut context = WarpContext {
                launch: &launch,
                coordinates: self.members[rank].coordinates,
                shared: &mut own,
                peers: &mut self.shared,
                rank: rank as u32,
                memory: &mut *memory,
                services: &mut *services,
                textures: &mut self.textures,
            };
            let stop = self.warps[at].run(&mut context, &mut left);
            self.shared[rank] = own;
            self.executed += before - left;
            idle = if before == left { idle + 1 } else { 0 };
            match stop {
                Ok(StopReason::BudgetUsed) => {
                    // Other warps run now; a warp that is alone goes on.
                    self.next_warp += 1;
                    idle = 0;
                }
                Ok(StopReason::Waiting) => self.next_warp += 1,
                Ok(StopReason::Exited) => {
                    self.living -= usize::from(self.warps[at].alive == 0);
                    self.members[rank].living -= usize::from(self.warps[at].alive == 0);
                    for id in 0..BARRIERS {
                        self.release_barrier(&launch.linked, rank, id);
                    }
                    self.release_cluster_barrier(&launch.linked);
                    self.next_warp += usize::from(self.warps[at].fragments.is_empty());
                    idle = 0;
                }
                Ok(StopReason::Barrier { id, lanes, threads, votes }) => {
                    let member = &mut self.members[rank];
                    member.barriers[id].arrive(self.warps_each, at - rank * self.warps_each, lanes, self.warps[at].alive, threads, votes);
                    if member.barriers[id].may_be_complete(member.living) {
                        self.release_barrier(&launch.linked, rank, id);
                    }
                    self.next_warp += usize::from(!self.warps[at].has_ready_fragment());
                    idle = 0;
                }
                Ok(StopReason::ClusterArrival { lanes }) => {
                    self.cluster_barrier.arrive(count, at, lanes, self.warps[at].alive, 0, 0);
                    self.release_cluster_barrier(&launch.linked);
                    idle = 0;
                }
                Ok(StopReason::ClusterWait { lanes }) => {
                    if !self.cluster_barrier.holds(at, lanes) {
                        self.warps[at].release_from_barrier(&launch.linked, CLUSTER_BARRIER, &self.cluster_barrier);
                    }
                    self.next_warp += usize::from(!self.warps[at].has_ready_fragment());
                    idle = 0;
                }
                Err((wrong, pc)) => return Status::Fault(Box::new(self.describe_fault(wrong, pc, at))),
            }
            if idle > count {
                if self.warps.iter_mut().any(|warp| warp.force_convergence(true)) {
                    idle = 0;
                    continue;
                }
                let Some((at, pc)) = self.warps.iter().enumerate().find_map(|(at, warp)| warp.fragments.first().map(|f| (at, f.pc))) else {
                    return Status::Done;
                };
                let lanes = self.warps[at].fragments[0].lanes;
                return Status::Fault(Box::new(self.describe_fault(LaneFault::plain(FaultKind::Deadlock, lanes), pc, at)));
            }
        }
        if self.living == 0 { Status::Done } else { Status::Running }
    }

    /// Lets the lanes that wait at a barrier of the block `rank` go on if it is complete.
    fn release_barrier(&mut self, linked: &LinkedProgram, rank: usize, id: usize) {
        let first = rank * self.warps_each;
        let warps = &mut self.warps[first..first + self.warps_each];
        let barrier = &mut self.members[rank].barriers[id];
        if barrier.is_complete(warps.iter().map(|warp| warp.alive)) {
            for warp in warps {
                warp.release_from_barrier(linked, id as u8, barrier);
            }
            barrier.reset();
        }
    }

    /// Lets the lanes that wait at the cluster's barrier go on if it is complete.
    fn release_cluster_barrier(&mut self, linked: &LinkedProgram) {
        if self.cluster_barrier.may_be_complete(self.living) && self.cluster_barrier.is_complete(self.warps.iter().map(|warp| warp.alive)) {
            for warp in &mut self.warps {
                warp.release_from_barrier(linked, CLUSTER_BARRIER, &self.cluster_barrier);
            }
            self.cluster_barrier.reset();
        }
    }

    fn describe_fault(&self, wrong: LaneFault, pc: u32, warp: usize) -> Fault {
        let program = self.launch.linked.program();
        let origin = program.origins.get(pc as usize).copied().unwrap_or_default();
        let lane = wrong.lane as usize & 31;
        Fault {
            kind: wrong.kind,
            address: wrong.address,
            bytes: wrong.bytes,
            line: origin.line,
            source: program.sources.find(pc),
            instruction: program.mnemonics.get(origin.mnemonic as usize).cloned().unwrap_or_default(),
            kernel: program.kernels.get(self.launch.kernel).map(|k| k.name.clone()).unwrap_or_default(),
            ctaid: self.members[warp / self.warps_each].coordinates.ctaid,
            thread: self.warps[warp].tid.map(|axis| axis.0[lane]),
        }
    }
}
