//! The loop that executes a warp's instructions.
//!
//! A warp runs one fragment at a time, in bursts. A burst executes instructions until the
//! fragment's lanes part, until another fragment may wait for it, or until it must wait itself.
//! `Warp::run_burst` leaves the fragments alone and says how it ended. `Warp::run` then changes
//! them.
//!
//! The file is long because the loop is one function: what it needs stays in registers.

use super::access::{self, NearMemory};
use super::barrier::Barrier;
use super::fault::{LaneFault, for_each_lane};
use super::interface::{BlockCoordinates, FaultKind, GlobalMemory, Launch, Services};
use super::warp::{CLUSTER_BARRIER, FORCED, Fragment, FragmentState, NO_FRAME, STEPS_BEFORE_YIELD, Warp};
use super::{atomic, copy, intrinsic, matrix, mbarrier, special, sync, tensor, texture};
use crate::program::code::{BarrierKind, Op, Order, PredicateHow, PredicateOp, Space};
use crate::program::{LinkedProgram, window};
use crate::simd::lanes::{NO_SLOT, PerLane, PerLane32, PerLane64, RegisterSlot, WarpRegisters};

/// What surrounds a warp while it runs.
pub(super) struct WarpContext<'a, M, S> {
    pub launch: &'a Launch,
    pub coordinates: BlockCoordinates,
    pub shared: &'a mut Vec<u8>,
    /// See [`NearMemory::peers`].
    pub peers: &'a mut [Vec<u8>],
    /// The block's rank in its cluster.
    pub rank: u32,
    pub memory: &'a mut M,
    pub services: &'a mut S,
    pub textures: &'a mut texture::KnownTextures,
}

/// Why a warp stopped without a fault.
pub(super) enum StopReason {
    /// Its budget of instructions is used up.
    BudgetUsed,
    /// None of its fragments can run.
    Waiting,
    /// Lanes have exited.
    Exited,
    /// Lanes have arrived at barrier `id` of the block with the votes of their guards; `threads`
    /// takes part in it, 0 for the whole block.
    Barrier { id: usize, lanes: u32, threads: u32, votes: u32 },
    /// Lanes have arrived at the cluster's barrier.
    ClusterArrival { lanes: u32 },
    /// Lanes wait until the barrier of the cluster at which they have arrived is complete.
    ClusterWait { lanes: u32 },
}

/// What an ordered access takes from a fragment's [`steps_left`](Fragment::steps_left).
const ORDERED_ACCESS_STEPS: u32 = 128;

/// How a burst of a fragment ended.
enum BurstEnd {
    /// The fragment stays as it is.
    Again,
    /// The fragment spins: it waits until its siblings have run.
    Yield,
    /// The lanes `lanes` continue at `pc`, the others where the burst ended.
    Split {
        pc: u32,
        lanes: u32,
    },
    /// Lanes go to different instructions: pairs of an instruction and its lanes.
    Scatter(Vec<(u32, u32)>),
    Call {
        function: u32,
        return_to: u32,
    },
    CallIndirect {
        targets: Box<PerLane64>,
        return_to: u32,
    },
    Return {
        lanes: u32,
    },
    Exit {
        lanes: u32,
    },
    /// The fragment is at an instruction that needs other lanes. The lanes `ready` have performed
    /// it.
    AwaitLanes {
        ready: u32,
    },
    /// The lanes have arrived at a barrier of the block; `waits` is false for an arrival that goes
    /// on.
    Barrier {
        id: usize,
        threads: u32,
        votes: u32,
        waits: bool,
        lanes: u32,
    },
    /// The lanes have arrived at the cluster's barrier, or wait there.
    ClusterBarrier {
        waits: bool,
        lanes: u32,
    },
}

/// A fault and the index of the instruction that raised it.
type LocatedFault = (LaneFault, u32);

impl Warp {
    /// Runs until `left` instructions are used up or no fragment can run.
    pub fn run<M: GlobalMemory, S: Services>(&mut self, context: &mut WarpContext<'_, M, S>, left: &mut u64) -> Result<StopReason, LocatedFault> {
        loop {
            if *left == 0 {
                return Ok(StopReason::BudgetUsed);
            }
            let Some(mut fragment) = self.take_next_fragment() else {
                if self.force_convergence(false) {
                    continue;
                }
                return Ok(StopReason::Waiting);
            };
            let limit = self.convergence_limit(&fragment);
            let alone = self.fragments.is_empty();
            match self.run_burst(&mut fragment, limit, alone, context, left)? {
                BurstEnd::Again => self.add_fragment(fragment),
                BurstEnd::Yield => {
                    self.yields += 1;
                    fragment.waits = self.yields;
                    fragment.steps_left = STEPS_BEFORE_YIELD;
                    self.add_fragment(fragment);
                }
                BurstEnd::Split { pc, lanes } => {
                    let other = Fragment { pc, lanes, ..fragment };
                    fragment.lanes &= !lanes;
                    self.retain_frame(fragment.frame);
                    self.add_fragment(fragment);
                    self.add_fragment(other);
                }
                BurstEnd::Scatter(parts) => {
                    for (pc, lanes) in parts {
                        self.retain_frame(fragment.frame);
                        self.add_fragment(Fragment { pc, lanes, ..fragment });
                    }
                    self.release_frame(fragment.frame);
                }
                BurstEnd::Call { function, return_to } => self.enter_function(fragment, function, return_to, context)?,
                BurstEnd::CallIndirect { targets, return_to } => {
                    let mut rest = fragment.lanes;
                    let functions = &context.launch.linked.program().functions;
                    while rest != 0 {
                        let first = rest.trailing_zeros() as usize;
                        let target = targets.0[first];
                        let mut part = 0;
                        for_each_lane(rest, |lane| part |= u32::from(targets.0[lane] == target) << lane);
                        rest &= !part;
                        let function = window::function_at(target).filter(|at| functions.get(*at as usize).is_some_and(|code| code.entry != u32::MAX));
                        let Some(function) = function else {
                            return Err((LaneFault::access(FaultKind::BadCall, first, target, 0), fragment.pc));
                        };
                        self.retain_frame(fragment.frame);
                        self.enter_function(Fragment { lanes: part, ..fragment }, function as u32, return_to, context)?;
                    }
                    self.release_frame(fragment.frame);
                }
                BurstEnd::Return { lanes } => {
                    let frame = *self.frame(fragment.frame);
                    if frame.caller == NO_FRAME {
                        self.exit_lanes(fragment, lanes);
                        return Ok(StopReason::Exited);
                    }
                    if lanes != fragment.lanes {
                        self.retain_frame(fragment.frame);
                        self.add_fragment(Fragment { lanes: fragment.lanes & !lanes, pc: fragment.pc + 1, ..fragment });
                    }
                    self.retain_frame(frame.caller);
                    self.release_frame(fragment.frame);
                    self.add_fragment(Fragment { pc: frame.return_to, lanes, frame: frame.caller, depth: frame.depth - 1, ..fragment });
                }
                BurstEnd::Exit { lanes } => {
                    self.exit_lanes(fragment, lanes);
                    return Ok(StopReason::Exited);
                }
                BurstEnd::AwaitLanes { ready } => {
                    if ready != 0 {
                        self.retain_frame(fragment.frame);
                        self.add_fragment(Fragment { lanes: fragment.lanes & !ready, state: FragmentState::AwaitsLanes, ..fragment });
                        // `run_burst` has performed the instruction for the lanes whose group is
                        // complete.
                        self.add_fragment(Fragment { lanes: ready, pc: fragment.pc + 1, ..fragment });
                    } else {
                        self.add_fragment(Fragment { state: FragmentState::AwaitsLanes, ..fragment });
                    }
                }
                BurstEnd::Barrier { id, threads, votes, waits, lanes } => {
                    if waits {
                        if lanes != fragment.lanes {
                            self.retain_frame(fragment.frame);
                            self.add_fragment(Fragment { lanes: fragment.lanes & !lanes, pc: fragment.pc + 1, ..fragment });
                        }
                        fragment.lanes = lanes;
                        fragment.state = FragmentState::Barrier(id as u8);
                        self.fragments.push(fragment);
                    } else {
                        fragment.pc += 1;
                        self.add_fragment(fragment);
                    }
                    return Ok(StopReason::Barrier { id, lanes, threads, votes });
                }
                BurstEnd::ClusterBarrier { waits: false, lanes } => {
                    fragment.pc += 1;
                    self.add_fragment(fragment);
                    return Ok(StopReason::ClusterArrival { lanes });
                }
                BurstEnd::ClusterBarrier { waits: true, lanes } => {
                    if lanes != fragment.lanes {
                        self.retain_frame(fragment.frame);
                        self.add_fragment(Fragment { lanes: fragment.lanes & !lanes, pc: fragment.pc + 1, ..fragment });
                    }
                    self.fragments.push(Fragment { lanes, state: FragmentState::Barrier(CLUSTER_BARRIER), ..fragment });
                    return Ok(StopReason::ClusterWait { lanes });
                }
            }
        }
    }

    /// Ends lanes of a fragment. The others continue behind the instruction.
    fn exit_lanes(&mut self, fragment: Fragment, lanes: u32) {
        self.retire_lanes(lanes);
        let rest = fragment.lanes & !lanes;
        if rest == 0 {
            self.release_frame(fragment.frame);
        } else {
            self.add_fragment(Fragment { pc: fragment.pc + 1, lanes: rest, ..fragment });
        }
        // Groups that waited for these lanes may be complete now.
        for other in &mut self.fragments {
            if other.state == FragmentState::AwaitsLanes {
                other.state = FragmentState::Ready;
            }
        }
    }

    /// Puts a fragment at the first instruction of a function that it calls.
    fn enter_function<M, S>(&mut self, fragment: Fragment, function: u32, return_to: u32, context: &WarpContext<'_, M, S>) -> Result<(), LocatedFault> {
        let functions = &context.launch.linked.program().functions;
        let caller = self.frame(fragment.frame).function;
        let (caller_code, code) = (&functions[caller as usize], &functions[function as usize]);
        let needed = u64::from(self.frame(fragment.frame).local) + u64::from(caller_code.frame) + u64::from(code.frame);
        if needed > u64::from(self.local_bytes) || code.entry == u32::MAX {
            return Err((LaneFault::plain(FaultKind::StackOverflow, fragment.lanes), fragment.pc));
        }
        let frame = self.open_frame(fragment.frame, function, return_to, caller_code, code);
        let depth = self.frame(frame).depth;
        // The fragment has left the caller, which its new frame keeps.
        self.release_frame(fragment.frame);
        self.add_fragment(Fragment { pc: code.entry, frame, depth, ..fragment });
        Ok(())
    }

    /// Every fragment waits for lanes, and some of these lanes will not come: lets one fragment
    /// continue with the lanes that have arrived. Returns false if there is no such fragment. Lanes
    /// at a barrier of the block may still come, unless the whole block is stuck (`stuck`).
    pub fn force_convergence(&mut self, stuck: bool) -> bool {
        let Some(at) = self.fragments.iter().position(|f| f.state == FragmentState::AwaitsLanes) else { return false };
        if !stuck && self.fragments.iter().any(|f| matches!(f.state, FragmentState::Barrier(_))) {
            return false;
        }
        self.fragments[at].state = FragmentState::Ready;
        self.fragments[at].waits = FORCED;
        true
    }

    /// Releases the fragments at a barrier of the block, which is complete.
    pub fn release_from_barrier(&mut self, linked: &LinkedProgram, id: u8, barrier: &Barrier) {
        let program = linked.program();
        self.is_released = true;
        if let [fragment] = &mut self.fragments[..]
            && fragment.state == FragmentState::Barrier(id)
            && let Op::Barrier(op) = &program.code[fragment.pc as usize].op
            && matches!(op.kind, BarrierKind::Sync | BarrierKind::Arrive)
        {
            // The usual case: the warp has not diverged, and the barrier has no result.
            fragment.pc += 1;
            fragment.state = FragmentState::Ready;
            fragment.waits = 0;
            return;
        }
        let mut released = Vec::new();
        self.fragments.retain(|fragment| {
            let here = fragment.state == FragmentState::Barrier(id);
            if here {
                released.push(*fragment);
            }
            !here
        });
        for fragment in released {
            let frame = *self.frame(fragment.frame);
            let code = &program.functions[frame.function as usize];
            if let Op::Barrier(op) = &program.code[fragment.pc as usize].op {
                let mut registers = Warp::registers_of(&mut self.r32, &mut self.r64, &mut self.p, &frame, code, &[], &[]);
                match op.kind {
                    BarrierKind::Count => registers.set32(op.d, &PerLane32::splat(barrier.votes().count), fragment.lanes),
                    BarrierKind::And => registers.set_predicate(op.d, if barrier.votes().all { u32::MAX } else { 0 }, fragment.lanes),
                    BarrierKind::Or => registers.set_predicate(op.d, if barrier.votes().any { u32::MAX } else { 0 }, fragment.lanes),
                    BarrierKind::Sync | BarrierKind::Arrive => {}
                }
            }
            self.add_fragment(Fragment { pc: fragment.pc + 1, state: FragmentState::Ready, waits: 0, ..fragment });
        }
    }

    /// Runs one fragment until it reaches the instruction `limit`, uses up its budget `left`, or
    /// changes the fragments. `alone`: the warp has no other fragment.
    fn run_burst<M: GlobalMemory, S: Services>(
        &mut self,
        fragment: &mut Fragment,
        limit: u32,
        alone: bool,
        context: &mut WarpContext<'_, M, S>,
        left: &mut u64,
    ) -> Result<BurstEnd, LocatedFault> {
        let WarpContext { launch, coordinates, shared, peers, rank, memory, services, textures } = context;
        let linked: &LinkedProgram = &launch.linked;
        let index = self.index;
        let program = linked.program();
        let frame = *self.frame(fragment.frame);
        let code = &program.functions[frame.function as usize];
        let forced = fragment.waits == FORCED;
        let tid = &self.tid;
        let errors = &mut self.errors;
        let mut registers = Warp::registers_of(&mut self.r32, &mut self.r64, &mut self.p, &frame, code, linked.constants64(frame.function), &code.constants32);
        let alive = self.alive;
        let here = fragment.lanes;
        let mut near = NearMemory {
            shared,
            peers,
            rank: *rank,
            local: &mut self.local,
            local_bytes: self.local_bytes,
            frame: frame.local,
            parameters: &launch.parameters,
        };
        let mut steps_left = fragment.steps_left;
        let mut pc = fragment.pc;
        let instructions = &program.code[..];
        let mut rest = *left;
        macro_rules! stop {
            ($burst:expr) => {{
                fragment.pc = pc;
                fragment.steps_left = steps_left;
                *left = rest;
                return Ok($burst);
            }};
        }
        macro_rules! checked {
            ($result:expr) => {
                if let Err(wrong) = $result {
                    *left = rest;
                    return Err((wrong, pc));
                }
            };
        }
        let all = if here == alive { u32::MAX } else { here };
        loop {
            let mut inst = &instructions[pc as usize];
            // Most instructions: arithmetic of all lanes of the fragment, which cannot end the
            // burst. The loop is short enough to keep what it needs in registers.
            while let Op::Alu(alu) = &inst.op
                && inst.guard == NO_SLOT
            {
                alu.execute(&mut registers, all);
                rest -= 1;
                pc += 1;
                if pc >= limit || rest == 0 {
                    stop!(BurstEnd::Again);
                }
                inst = &instructions[pc as usize];
            }
            let mut active = here;
            if inst.guard != NO_SLOT {
                let guard = registers.p[inst.guard as usize];
                active &= if inst.negated { !guard } else { guard };
            }
            rest -= 1;
            if active == 0 {
                pc += 1;
            } else {
                let full = if active == alive { u32::MAX } else { active };
                match &inst.op {
                    Op::Alu(alu) => alu.execute(&mut registers, full),
                    Op::Branch(target) => {
                        let target = *target;
                        if active != here {
                            pc += 1;
                            stop!(BurstEnd::Split { pc: target, lanes: active });
                        }
                        if target <= pc && !alone {
                            steps_left = steps_left.saturating_sub(1);
                            if steps_left == 0 {
                                pc = target;
                                stop!(BurstEnd::Yield);
                            }
                        }
                        // The increment at the loop's end brings it to the target.
                        pc = target.wrapping_sub(1);
                    }
                    Op::Predicate(op) => combine_predicates(&mut registers, *op, active),
                    Op::Load(op) => {
                        checked!(access::load(&mut registers, op, active, &mut near, *memory));
                        if op.order != Order::Weak && !alone {
                            steps_left = steps_left.saturating_sub(ORDERED_ACCESS_STEPS);
                            if steps_left == 0 {
                                pc += 1;
                                stop!(BurstEnd::Yield);
                            }
                        }
                    }
                    Op::Store(op) => checked!(access::store(&registers, op, active, &mut near, *memory)),
                    Op::Special { d, what } => {
                        if what.is_wide() {
                            registers.set64(*d, &PerLane64::splat(special::read_wide(*what, launch, *services)), full);
                        } else {
                            registers.set32(*d, &special::read_narrow(*what, launch, *coordinates, *services, tid, index), full);
                        }
                    }
                    Op::Frame { d, offset, wide } => {
                        let at = frame.local + offset;
                        if *wide {
                            registers.set64(*d, &PerLane64::splat(at.into()), full);
                        } else {
                            registers.set32(*d, &PerLane32::splat(at), full);
                        }
                    }
                    Op::Atomic(op) => {
                        checked!(atomic::perform(&mut registers, op, active, &mut near, *memory));
                        if !alone {
                            steps_left = steps_left.saturating_sub(ORDERED_ACCESS_STEPS);
                            if steps_left == 0 {
                                pc += 1;
                                stop!(BurstEnd::Yield);
                            }
                        }
                    }
                    Op::Warp(op) => {
                        let ready = if forced { active } else { sync::complete_lanes(&registers, op, active, alive) };
                        if ready != 0 {
                            sync::perform(&mut registers, op, ready);
                        }
                        if ready != active {
                            if active != here {
                                // Lanes whose guard is off do not wait.
                                *left = rest;
                                return Ok(split_guarded_wait(fragment, pc, here, active, ready));
                            }
                            stop!(BurstEnd::AwaitLanes { ready });
                        }
                        if forced {
                            fragment.waits = 0;
                            pc += 1;
                            stop!(BurstEnd::Again);
                        }
                    }
                    Op::Activemask { d } => registers.set32(*d, &PerLane32::splat(active), active),
                    Op::ClusterBarrier { waits } => stop!(BurstEnd::ClusterBarrier { waits: *waits, lanes: active }),
                    Op::MapShared { d, a, b, wide } => {
                        let ranks = *registers.get32(*b);
                        if *wide {
                            let mut out = *registers.get64(*a);
                            for_each_lane(active, |lane| out.0[lane] = window::map_shared(out.0[lane], ranks.0[lane]));
                            registers.set64(*d, &out, active);
                        } else {
                            let mut out = *registers.get32(*a);
                            for_each_lane(active, |lane| out.0[lane] = window::map_shared(out.0[lane].into(), ranks.0[lane]) as u32);
                            registers.set32(*d, &out, active);
                        }
                    }
                    Op::SharedRank { d, a, wide } => {
                        let address = read_address(&registers, *a, *wide);
                        let of = |at: u64| window::shared_block(at).0.map_or(near.rank, |rank| rank as u32);
                        registers.set32(*d, &PerLane(address.0.map(of)), active);
                    }
                    Op::IsSpace { d, a, wide, space, own } => {
                        let address = read_address(&registers, *a, *wide);
                        let elsewhere = |at: u64| *own && window::shared_block(at).0.is_some_and(|rank| rank != u64::from(near.rank));
                        let mut inside = 0;
                        for_each_lane(active, |lane| {
                            let at = address.0[lane];
                            inside |= u32::from(is_in_space(at, *space) && !(*space == Space::Shared && elsewhere(at))) << lane;
                        });
                        registers.set_predicate(*d, inside, active);
                    }
                    Op::Fence => std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst),
                    Op::Nothing => {}
                    Op::Pause => {
                        pc += 1;
                        if alone {
                            // The rest of the slice belongs to other warps.
                            rest = rest.min(1);
                            stop!(BurstEnd::Again);
                        }
                        stop!(BurstEnd::Yield);
                    }
                    Op::Mbarrier(op) => checked!(mbarrier::perform(&mut registers, op, active, &mut near)),
                    Op::Matrix(op) => {
                        if active != alive && !forced {
                            if active != here {
                                *left = rest;
                                return Ok(split_guarded_wait(fragment, pc, here, active, 0));
                            }
                            stop!(BurstEnd::AwaitLanes { ready: 0 });
                        }
                        checked!(matrix::perform(&mut registers, op, active, &mut near, *memory));
                        if forced {
                            fragment.waits = 0;
                            pc += 1;
                            stop!(BurstEnd::Again);
                        }
                    }
                    Op::Copy(op) => checked!(copy::perform(&registers, op, active, &mut near, *memory)),
                    Op::Tensor(op) => checked!(tensor::perform(&registers, op, active, &mut near, *memory)),
                    Op::Texture(op) => checked!(texture::perform(&mut registers, op, active, &mut near, *memory, textures)),
                    Op::BranchTable { index, table } => {
                        let targets = &program.tables[*table as usize];
                        let index = *registers.get32(*index);
                        let mut parts: Vec<(u32, u32)> = Vec::new();
                        for_each_lane(active, |lane| {
                            let target = targets.get(index.0[lane] as usize).copied().unwrap_or(pc + 1);
                            match parts.iter_mut().find(|part| part.0 == target) {
                                Some(part) => part.1 |= 1 << lane,
                                None => parts.push((target, 1 << lane)),
                            }
                        });
                        if here != active {
                            parts.push((pc + 1, here & !active));
                        }
                        stop!(BurstEnd::Scatter(parts));
                    }
                    Op::Call(function) => {
                        if active != here {
                            stop!(split_guarded(pc, here & !active));
                        }
                        stop!(BurstEnd::Call { function: *function, return_to: pc + 1 });
                    }
                    Op::CallIndirect { target, returns_to } => {
                        if active != here {
                            stop!(split_guarded(pc, here & !active));
                        }
                        stop!(BurstEnd::CallIndirect { targets: Box::new(*registers.get64(*target)), return_to: *returns_to });
                    }
                    Op::Intrinsic(call) => {
                        let ctaid = coordinates.ctaid.map(u64::from);
                        let block_number = ctaid[0] + u64::from(launch.grid[0]) * (ctaid[1] + u64::from(launch.grid[1]) * ctaid[2]);
                        let caller = intrinsic::CallingThreads { block: coordinates.ctaid, block_number, tid };
                        checked!(intrinsic::perform(call, active, &mut near, *memory, *services, &caller, errors));
                    }
                    Op::Return => stop!(BurstEnd::Return { lanes: active }),
                    Op::Exit => stop!(BurstEnd::Exit { lanes: active }),
                    Op::Trap => checked!(Err::<(), _>(LaneFault::plain(FaultKind::Trap, active))),
                    Op::Breakpoint => checked!(Err::<(), _>(LaneFault::plain(FaultKind::Breakpoint, active))),
                    Op::Refused => checked!(Err::<(), _>(LaneFault::plain(FaultKind::IllegalInstruction, active))),
                    Op::Barrier(op) => {
                        let first = active.trailing_zeros() as usize;
                        let id = registers.get32(op.id).0[first] as usize & 15;
                        let threads = if op.threads == NO_SLOT { 0 } else { registers.get32(op.threads).0[first] };
                        let votes = if op.source == NO_SLOT { 0 } else { registers.predicate(op.source) ^ if op.source_negated { u32::MAX } else { 0 } };
                        let waits = op.kind != BarrierKind::Arrive;
                        stop!(BurstEnd::Barrier { id, threads, votes, waits, lanes: active });
                    }
                }
                pc = pc.wrapping_add(1);
            }
            if pc >= limit || rest == 0 {
                stop!(BurstEnd::Again);
            }
        }
    }
}

/// An address of 64 or 32 bits.
fn read_address(registers: &WarpRegisters<'_>, slot: RegisterSlot, wide: bool) -> PerLane64 {
    if wide { *registers.get64(slot) } else { PerLane(registers.get32(slot).0.map(u64::from)) }
}

/// Lanes whose guard is off skip the instruction at `pc`; the others execute it in the next burst.
fn split_guarded(pc: u32, off: u32) -> BurstEnd {
    BurstEnd::Split { pc: pc + 1, lanes: off }
}

/// Lanes whose guard is off, and lanes that have performed the instruction, skip it. The others
/// return to it and wait there.
fn split_guarded_wait(fragment: &mut Fragment, pc: u32, here: u32, active: u32, ready: u32) -> BurstEnd {
    fragment.pc = pc;
    BurstEnd::Split { pc: pc + 1, lanes: (here & !active) | ready }
}

/// An operation on whole predicates, one bit for each lane.
fn combine_predicates(registers: &mut WarpRegisters<'_>, op: PredicateOp, mask: u32) {
    let value = match op.how {
        PredicateHow::And => registers.predicate(op.a) & registers.predicate(op.b),
        PredicateHow::Or => registers.predicate(op.a) | registers.predicate(op.b),
        PredicateHow::Xor => registers.predicate(op.a) ^ registers.predicate(op.b),
        PredicateHow::Move => registers.predicate(op.a),
        PredicateHow::Not => !registers.predicate(op.a),
        PredicateHow::False => 0,
        PredicateHow::True => u32::MAX,
        PredicateHow::Select(c) => {
            let c = registers.predicate(c);
            (registers.predicate(op.a) & c) | (registers.predicate(op.b) & !c)
        }
    };
    registers.set_predicate(op.d, value, mask);
}

/// `isspacep` (PTX ISA): whether a generic address lies in the window of a state space.
fn is_in_space(address: u64, space: Space) -> bool {
    let (shared, local, param) = (window::SHARED.contains(address), window::LOCAL.contains(address), window::PARAM.contains(address));
    match space {
        Space::Shared => shared,
        Space::Local | Space::Frame => local,
        Space::Param => param,
        Space::Global | Space::Generic => !shared && !local && !param,
    }
}
