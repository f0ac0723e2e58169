//! The loop that executes a warp's instructions.

use super::access::{self, Near};
use super::barrier::Barrier;
use super::fault::{Wrong, each};
use super::interface::{FaultKind, GlobalMemory, Launch, Place, Services};
use super::warp::{Fragment, NO_FRAME, PATIENCE, State, Warp};
use super::{atomic, intrinsic, mbarrier, special, sync};
use crate::program::code::{BarrierKind, Op, PredicateHow, PredicateOp, Space};
use crate::program::{Image, window};
use crate::simd::lanes::{Lanes, NO_SLOT, V, V32, V64};

/// What is around a warp while it runs.
pub(super) struct Outside<'a, M, S> {
    pub launch: &'a Launch,
    pub place: Place,
    pub shared: &'a mut Vec<u8>,
    pub memory: &'a mut M,
    pub services: &'a mut S,
}

/// Why a warp stopped without a fault.
pub(super) enum Stop {
    /// Its instructions are used up.
    Turn,
    /// Nothing in it can run.
    Waiting,
    /// Lanes have exited.
    Exited,
    Barrier {
        id: usize,
        lanes: u32,
        threads: u32,
        votes: u32,
    },
}

/// What an ordered access takes from a fragment's patience.
const ORDERED_STEP: u32 = 128;

/// How a burst of one fragment ended.
enum Burst {
    /// Put back as it is.
    Again,
    /// Put back to wait longer than its siblings.
    StepBack,
    Split {
        pc: u32,
        lanes: u32,
    },
    /// Each of these lanes goes elsewhere.
    Scatter(Vec<(u32, u32)>),
    Call {
        function: u32,
        return_to: u32,
    },
    CallIndirect {
        targets: Box<V64>,
        return_to: u32,
    },
    Return {
        lanes: u32,
    },
    Exit {
        lanes: u32,
    },
    Meet {
        ready: u32,
    },
    Barrier {
        id: usize,
        threads: u32,
        votes: u32,
        waits: bool,
        lanes: u32,
    },
}

type Failed = (Wrong, u32);

impl Warp {
    /// Runs until `left` is used up or nothing can run.
    pub fn run<M: GlobalMemory, S: Services>(&mut self, outside: &mut Outside<'_, M, S>, left: &mut u64) -> Result<Stop, Failed> {
        loop {
            if *left == 0 {
                return Ok(Stop::Turn);
            }
            let Some(mut fragment) = self.next() else {
                if self.force_meeting(false) {
                    continue;
                }
                return Ok(Stop::Waiting);
            };
            let limit = self.limit(&fragment);
            let alone = self.fragments.is_empty();
            match self.burst(&mut fragment, limit, alone, outside, left)? {
                Burst::Again => self.add(fragment),
                Burst::StepBack => {
                    self.yields += 1;
                    fragment.waits = self.yields;
                    fragment.patience = PATIENCE;
                    self.add(fragment);
                }
                Burst::Split { pc, lanes } => {
                    let other = Fragment { pc, lanes, ..fragment };
                    fragment.lanes &= !lanes;
                    self.enter(fragment.frame);
                    self.add(fragment);
                    self.add(other);
                }
                Burst::Scatter(parts) => {
                    for (pc, lanes) in parts {
                        self.enter(fragment.frame);
                        self.add(Fragment { pc, lanes, ..fragment });
                    }
                    self.leave(fragment.frame);
                }
                Burst::Call { function, return_to } => self.enter_function(fragment, function, return_to, outside)?,
                Burst::CallIndirect { targets, return_to } => {
                    let mut rest = fragment.lanes;
                    let functions = &outside.launch.image.program().functions;
                    while rest != 0 {
                        let first = rest.trailing_zeros() as usize;
                        let target = targets.0[first];
                        let mut part = 0;
                        each(rest, |lane| part |= u32::from(targets.0[lane] == target) << lane);
                        rest &= !part;
                        let function = window::function_at(target).filter(|at| functions.get(*at as usize).is_some_and(|code| code.entry != u32::MAX));
                        let Some(function) = function else {
                            return Err((Wrong::access(FaultKind::BadCall, first, target, 0), fragment.pc));
                        };
                        self.enter(fragment.frame);
                        self.enter_function(Fragment { lanes: part, ..fragment }, function as u32, return_to, outside)?;
                    }
                    self.leave(fragment.frame);
                }
                Burst::Return { lanes } => {
                    let frame = *self.frame(fragment.frame);
                    if frame.caller == NO_FRAME {
                        self.quit(fragment, lanes);
                        return Ok(Stop::Exited);
                    }
                    if lanes != fragment.lanes {
                        self.enter(fragment.frame);
                        self.add(Fragment { lanes: fragment.lanes & !lanes, pc: fragment.pc + 1, ..fragment });
                    }
                    self.enter(frame.caller);
                    self.leave(fragment.frame);
                    self.add(Fragment { pc: frame.return_to, lanes, frame: frame.caller, depth: frame.depth - 1, ..fragment });
                }
                Burst::Exit { lanes } => {
                    self.quit(fragment, lanes);
                    return Ok(Stop::Exited);
                }
                Burst::Meet { ready } => {
                    if ready != 0 {
                        self.enter(fragment.frame);
                        self.add(Fragment { lanes: fragment.lanes & !ready, state: State::Meeting, ..fragment });
                        // Those who are complete go on by themselves; `run_ready` has done their instruction.
                        self.add(Fragment { lanes: ready, pc: fragment.pc + 1, ..fragment });
                    } else {
                        self.add(Fragment { state: State::Meeting, ..fragment });
                    }
                }
                Burst::Barrier { id, threads, votes, waits, lanes } => {
                    if waits {
                        if lanes != fragment.lanes {
                            self.enter(fragment.frame);
                            self.add(Fragment { lanes: fragment.lanes & !lanes, pc: fragment.pc + 1, ..fragment });
                        }
                        fragment.lanes = lanes;
                        fragment.state = State::Barrier(id as u8);
                        self.fragments.push(fragment);
                    } else {
                        fragment.pc += 1;
                        self.add(fragment);
                    }
                    return Ok(Stop::Barrier { id, lanes, threads, votes });
                }
            }
        }
    }

    /// Lanes of a fragment exit; the others go on behind the instruction.
    fn quit(&mut self, fragment: Fragment, lanes: u32) {
        self.exit(lanes);
        let rest = fragment.lanes & !lanes;
        if rest == 0 {
            self.leave(fragment.frame);
        } else {
            self.add(Fragment { pc: fragment.pc + 1, lanes: rest, ..fragment });
        }
        // Who waits for lanes that are gone looks again.
        for other in &mut self.fragments {
            if other.state == State::Meeting {
                other.state = State::Ready;
            }
        }
    }

    fn enter_function<M, S>(&mut self, fragment: Fragment, function: u32, return_to: u32, outside: &Outside<'_, M, S>) -> Result<(), Failed> {
        let functions = &outside.launch.image.program().functions;
        let caller = self.frame(fragment.frame).function;
        let (caller_code, code) = (&functions[caller as usize], &functions[function as usize]);
        let needed = u64::from(self.frame(fragment.frame).local) + u64::from(caller_code.frame) + u64::from(code.frame);
        if needed > u64::from(self.local_bytes) || code.entry == u32::MAX {
            return Err((Wrong::plain(FaultKind::StackOverflow, fragment.lanes), fragment.pc));
        }
        let frame = self.call(fragment.frame, function, return_to, caller_code, code);
        let depth = self.frame(frame).depth;
        // The fragment has left the caller, which its new frame keeps.
        self.leave(fragment.frame);
        self.add(Fragment { pc: code.entry, frame, depth, ..fragment });
        Ok(())
    }

    /// All that is left waits for lanes that will not come: go on with those who are here. True if there was such a fragment. Lanes at a
    /// barrier of the block may still come, unless the whole block is stuck (`stuck`).
    pub fn force_meeting(&mut self, stuck: bool) -> bool {
        let Some(at) = self.fragments.iter().position(|f| f.state == State::Meeting) else { return false };
        if !stuck && self.fragments.iter().any(|f| matches!(f.state, State::Barrier(_))) {
            return false;
        }
        self.fragments[at].state = State::Ready;
        self.fragments[at].waits = u32::MAX;
        true
    }

    /// A barrier of the block is complete.
    pub fn release(&mut self, image: &Image, id: u8, barrier: &Barrier) {
        let program = image.program();
        if let [fragment] = &mut self.fragments[..]
            && fragment.state == State::Barrier(id)
            && let Op::Barrier(op) = &program.code[fragment.pc as usize].op
            && matches!(op.kind, BarrierKind::Sync | BarrierKind::Arrive)
        {
            // Nearly always: the warp is together and there is no result.
            fragment.pc += 1;
            fragment.state = State::Ready;
            fragment.waits = 0;
            return;
        }
        let mut released = Vec::new();
        self.fragments.retain(|fragment| {
            let here = fragment.state == State::Barrier(id);
            if here {
                released.push(*fragment);
            }
            !here
        });
        for fragment in released {
            let frame = *self.frame(fragment.frame);
            let code = &program.functions[frame.function as usize];
            if let Op::Barrier(op) = &program.code[fragment.pc as usize].op {
                let mut lanes = Warp::lanes(&mut self.r32, &mut self.r64, &mut self.p, &frame, code, &[], &[]);
                match op.kind {
                    BarrierKind::Count => lanes.set32(op.d, &V32::splat(barrier.count), fragment.lanes),
                    BarrierKind::And => lanes.set_predicate(op.d, if barrier.all { u32::MAX } else { 0 }, fragment.lanes),
                    BarrierKind::Or => lanes.set_predicate(op.d, if barrier.some { u32::MAX } else { 0 }, fragment.lanes),
                    BarrierKind::Sync | BarrierKind::Arrive => {}
                }
            }
            self.add(Fragment { pc: fragment.pc + 1, state: State::Ready, waits: 0, ..fragment });
        }
    }

    /// Runs one fragment until it reaches `limit` or something that changes the fragments.
    fn burst<M: GlobalMemory, S: Services>(
        &mut self,
        fragment: &mut Fragment,
        limit: u32,
        alone: bool,
        outside: &mut Outside<'_, M, S>,
        left: &mut u64,
    ) -> Result<Burst, Failed> {
        let Outside { launch, place, shared, memory, services } = outside;
        let image: &Image = &launch.image;
        let index = self.index;
        let program = image.program();
        let frame = *self.frame(fragment.frame);
        let code = &program.functions[frame.function as usize];
        let forced = fragment.waits == u32::MAX;
        let tid = &self.tid;
        let mut lanes = Warp::lanes(&mut self.r32, &mut self.r64, &mut self.p, &frame, code, image.constants64(frame.function), &code.constants32);
        let alive = self.alive;
        let here = fragment.lanes;
        let mut near = Near { shared, local: &mut self.local, local_bytes: self.local_bytes, frame: frame.local, parameters: &launch.parameters };
        let mut patience = fragment.patience;
        let mut pc = fragment.pc;
        let instructions = &program.code[..];
        macro_rules! stop {
            ($burst:expr) => {{
                fragment.pc = pc;
                fragment.patience = patience;
                return Ok($burst);
            }};
        }
        macro_rules! checked {
            ($result:expr) => {
                if let Err(wrong) = $result {
                    return Err((wrong, pc));
                }
            };
        }
        loop {
            let inst = &instructions[pc as usize];
            let mut active = here;
            if inst.guard != NO_SLOT {
                let guard = lanes.p[inst.guard as usize];
                active &= if inst.negated { !guard } else { guard };
            }
            *left -= 1;
            if active == 0 {
                pc += 1;
            } else {
                let full = if active == alive { u32::MAX } else { active };
                match &inst.op {
                    Op::Alu(alu) => alu.execute(&mut lanes, full),
                    Op::Branch(target) => {
                        let target = *target;
                        if active != here {
                            pc += 1;
                            stop!(Burst::Split { pc: target, lanes: active });
                        }
                        if target <= pc && !alone {
                            patience = patience.saturating_sub(1);
                            if patience == 0 {
                                pc = target;
                                stop!(Burst::StepBack);
                            }
                        }
                        // The increment below brings it to the target.
                        pc = target.wrapping_sub(1);
                    }
                    Op::Predicate(op) => predicate(&mut lanes, *op, active),
                    Op::Load(op) => {
                        checked!(access::load(&mut lanes, op, active, &mut near, *memory));
                        if op.order != crate::program::code::Order::Weak && !alone {
                            patience = patience.saturating_sub(ORDERED_STEP);
                            if patience == 0 {
                                pc += 1;
                                stop!(Burst::StepBack);
                            }
                        }
                    }
                    Op::Store(op) => checked!(access::store(&lanes, op, active, &mut near, *memory)),
                    Op::Special { d, what } => {
                        if what.is_wide() {
                            lanes.set64(*d, &V64::splat(special::wide(*what, launch, *services)), full);
                        } else {
                            lanes.set32(*d, &special::narrow(*what, launch, *place, *services, tid, index), full);
                        }
                    }
                    Op::Frame { d, offset, wide } => {
                        let at = frame.local + offset;
                        if *wide {
                            lanes.set64(*d, &V64::splat(at.into()), full);
                        } else {
                            lanes.set32(*d, &V32::splat(at), full);
                        }
                    }
                    Op::Atomic(op) => {
                        checked!(atomic::atomic(&mut lanes, op, active, &mut near, *memory));
                        if !alone {
                            patience = patience.saturating_sub(ORDERED_STEP);
                            if patience == 0 {
                                pc += 1;
                                stop!(Burst::StepBack);
                            }
                        }
                    }
                    Op::Warp(op) => {
                        let ready = if forced { active } else { sync::ready(&lanes, op, active, alive) };
                        if ready != 0 {
                            sync::perform(&mut lanes, op, ready);
                        }
                        if ready != active {
                            if active != here {
                                // Lanes that the guard switches off do not wait.
                                return Ok(guarded_meeting(fragment, pc, here, active, ready));
                            }
                            stop!(Burst::Meet { ready });
                        }
                        if forced {
                            fragment.waits = 0;
                            pc += 1;
                            stop!(Burst::Again);
                        }
                    }
                    Op::Activemask { d } => lanes.set32(*d, &V32::splat(active), active),
                    Op::IsSpace { d, a, wide, space } => {
                        let address = if *wide { *lanes.get64(*a) } else { V(lanes.get32(*a).0.map(u64::from)) };
                        let mut inside = 0;
                        each(active, |lane| inside |= u32::from(is_space(address.0[lane], *space)) << lane);
                        lanes.set_predicate(*d, inside, active);
                    }
                    Op::Fence => std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst),
                    Op::Nothing => {}
                    Op::Pause => {
                        pc += 1;
                        if alone {
                            // The rest of the turn belongs to others.
                            *left = (*left).min(1);
                            stop!(Burst::Again);
                        }
                        stop!(Burst::StepBack);
                    }
                    Op::Mbarrier(op) => checked!(mbarrier::perform(&mut lanes, op, active, &mut near)),
                    Op::BranchTable { index, table } => {
                        let targets = &program.tables[*table as usize];
                        let index = *lanes.get32(*index);
                        let mut parts: Vec<(u32, u32)> = Vec::new();
                        each(active, |lane| {
                            let target = targets.get(index.0[lane] as usize).copied().unwrap_or(pc + 1);
                            match parts.iter_mut().find(|part| part.0 == target) {
                                Some(part) => part.1 |= 1 << lane,
                                None => parts.push((target, 1 << lane)),
                            }
                        });
                        if here != active {
                            parts.push((pc + 1, here & !active));
                        }
                        stop!(Burst::Scatter(parts));
                    }
                    Op::Call(function) => {
                        if active != here {
                            stop!(guarded(pc, here & !active));
                        }
                        stop!(Burst::Call { function: *function, return_to: pc + 1 });
                    }
                    Op::CallIndirect { target, returns_to } => {
                        if active != here {
                            stop!(guarded(pc, here & !active));
                        }
                        stop!(Burst::CallIndirect { targets: Box::new(*lanes.get64(*target)), return_to: *returns_to });
                    }
                    Op::Intrinsic(call) => {
                        let program_name = intrinsic::Context { block: place.ctaid, tid };
                        checked!(intrinsic::perform(call, active, &mut near, *memory, *services, &program_name));
                    }
                    Op::Return => stop!(Burst::Return { lanes: active }),
                    Op::Exit => stop!(Burst::Exit { lanes: active }),
                    Op::Trap => return Err((Wrong::plain(FaultKind::Trap, active), pc)),
                    Op::Breakpoint => return Err((Wrong::plain(FaultKind::Breakpoint, active), pc)),
                    Op::Refused => return Err((Wrong::plain(FaultKind::IllegalInstruction, active), pc)),
                    Op::Barrier(op) => {
                        let first = active.trailing_zeros() as usize;
                        let id = lanes.get32(op.id).0[first] as usize & 15;
                        let threads = if op.threads == NO_SLOT { 0 } else { lanes.get32(op.threads).0[first] };
                        let votes = if op.source == NO_SLOT { 0 } else { lanes.predicate(op.source) ^ if op.source_negated { u32::MAX } else { 0 } };
                        let waits = op.kind != BarrierKind::Arrive;
                        stop!(Burst::Barrier { id, threads, votes, waits, lanes: active });
                    }
                }
                pc = pc.wrapping_add(1);
            }
            if pc >= limit || *left == 0 {
                stop!(Burst::Again);
            }
        }
    }
}

/// Lanes whose guard is off skip the instruction; the rest come back to it.
fn guarded(pc: u32, off: u32) -> Burst {
    Burst::Split { pc: pc + 1, lanes: off }
}

fn guarded_meeting(fragment: &mut Fragment, pc: u32, here: u32, active: u32, ready: u32) -> Burst {
    fragment.pc = pc;
    // Off lanes and those that are done go on; the others come back and wait with their guard on.
    Burst::Split { pc: pc + 1, lanes: (here & !active) | ready }
}

fn predicate(lanes: &mut Lanes<'_>, op: PredicateOp, mask: u32) {
    let value = match op.how {
        PredicateHow::And => lanes.predicate(op.a) & lanes.predicate(op.b),
        PredicateHow::Or => lanes.predicate(op.a) | lanes.predicate(op.b),
        PredicateHow::Xor => lanes.predicate(op.a) ^ lanes.predicate(op.b),
        PredicateHow::Move => lanes.predicate(op.a),
        PredicateHow::Not => !lanes.predicate(op.a),
        PredicateHow::False => 0,
        PredicateHow::True => u32::MAX,
        PredicateHow::Select(c) => {
            let c = lanes.predicate(c);
            (lanes.predicate(op.a) & c) | (lanes.predicate(op.b) & !c)
        }
    };
    lanes.set_predicate(op.d, value, mask);
}

fn is_space(address: u64, space: Space) -> bool {
    let (shared, local, param) = (window::SHARED.contains(address), window::LOCAL.contains(address), window::PARAM.contains(address));
    match space {
        Space::Shared => shared,
        Space::Local | Space::Frame => local,
        Space::Param => param,
        Space::Global | Space::Generic => !shared && !local && !param,
    }
}
