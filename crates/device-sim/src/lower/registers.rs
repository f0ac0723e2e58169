//! Assigns registers of a function to slots, by liveness and a linear scan (Poletto and Sarkar,
//! *Linear scan register allocation*, 1999).
//!
//! PTX has a register for almost every value, but a warp's registers should fit into the
//! processor's first-level cache. Each thread follows paths of the control flow graph, and slots
//! are per lane, so only liveness along those paths counts, whether lanes have diverged or not. A
//! register that an instruction reads and one that it writes never share a slot, because the
//! instruction may become several, of which a later one reads after the first has written.

use crate::simd::lanes::RegisterSlot;
use cumux_ptx::ast::{AddressBase, Body, CallTarget, Function, Instruction, Modifier, Opcode as O, Operand, Param, RegId, ScalarType, Word};

/// The bank of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Predicate,
    /// 8 to 32 bits.
    Narrow,
    Wide,
    /// 128 bits: two adjacent 64-bit slots.
    Double,
}

impl Class {
    pub fn of(ty: ScalarType) -> Class {
        match ty {
            ScalarType::Pred => Class::Predicate,
            _ if ty.bits() <= 32 => Class::Narrow,
            _ if ty.bits() <= 64 => Class::Wide,
            _ => Class::Double,
        }
    }

    fn bank(self) -> usize {
        match self {
            Class::Narrow => 0,
            Class::Wide | Class::Double => 1,
            Class::Predicate => 2,
        }
    }
}

/// The slot of each register.
pub(super) struct Allocation {
    pub slots: Vec<(Class, RegisterSlot)>,
    /// Slots used of each bank: 32 bits, 64 bits, predicates.
    pub used: [u32; 3],
}

/// If liveness needs more bits than this (blocks times registers), every register gets a slot of
/// its own.
const MOST_BITS: usize = 1 << 29;

/// Calls `found` with each register of an operand.
pub(super) fn visit_registers(operand: &Operand, found: &mut impl FnMut(RegId)) {
    match operand {
        Operand::Reg(register) | Operand::NotReg(register) | Operand::Selected { register, .. } | Operand::Sum { register, .. } => found(*register),
        Operand::Address { base: AddressBase::Reg(register), .. } => found(*register),
        Operand::Vector(parts) | Operand::Bracket(parts) => parts.iter().for_each(|part| visit_registers(part, found)),
        Operand::Pair(pair) => {
            visit_registers(&pair.0, found);
            visit_registers(&pair.1, found);
        }
        Operand::Call(call) => {
            call.args.iter().chain(&call.returns).for_each(|part| visit_registers(part, found));
            if let CallTarget::Register(register) = call.target {
                found(register);
            }
        }
        _ => {}
    }
}

/// Calls `found` with each register that an instruction may overwrite, and with some that it reads.
pub(super) fn visit_targets(i: &Instruction, found: &mut impl FnMut(RegId)) {
    match i.operands.first() {
        Some(Operand::Call(call)) => call.returns.iter().for_each(|operand| visit_registers(operand, found)),
        Some(operand) => visit_registers(operand, found),
        None => {}
    }
}

/// True if the instruction writes its first operand and does nothing else with it.
fn writes_first(i: &Instruction) -> bool {
    match i.opcode {
        O::St | O::Red | O::Bra | O::Brx | O::Call | O::Ret | O::Exit | O::Trap | O::Brkpt | O::Fence | O::Membar => false,
        O::Prefetch | O::Prefetchu | O::Discard | O::Applypriority | O::Nanosleep | O::Pmevent | O::Griddepcontrol | O::Setmaxnreg => false,
        O::Bar | O::Barrier => i.has(Word::Red),
        // It has several forms. The first operand counts as read, which is always safe.
        O::Mbarrier | O::Cp | O::Multimem | O::Sust | O::Sured | O::Stmatrix | O::Tcgen05 | O::Wgmma | O::Wmma | O::Tensormap => false,
        _ => !i.modifiers.iter().any(|m| matches!(m, Modifier::Other(_))),
    }
}

/// Calls `read` with the registers that an instruction reads, and `written` with those that it
/// surely overwrites.
pub(super) fn visit_effects(i: &Instruction, read: &mut impl FnMut(RegId), written: &mut impl FnMut(RegId)) {
    if let Some(guard) = i.guard {
        read(guard.register);
    }
    let first = writes_first(i);
    for (n, operand) in i.operands.iter().enumerate() {
        match operand {
            Operand::Call(call) => {
                call.args.iter().for_each(|arg| visit_registers(arg, read));
                if let CallTarget::Register(register) = call.target {
                    read(register);
                }
                let into: &mut dyn FnMut(RegId) = if i.guard.is_some() { &mut *read } else { &mut *written };
                call.returns.iter().for_each(|part| visit_registers(part, &mut |r| into(r)));
            }
            // A guarded instruction keeps values that it does not overwrite.
            _ if n == 0 && first && i.guard.is_none() => visit_registers(operand, written),
            _ => visit_registers(operand, read),
        }
    }
}

/// True for an instruction that is the last of its basic block.
pub(super) fn ends_block(opcode: O) -> bool {
    matches!(opcode, O::Bra | O::Brx | O::Ret | O::Exit | O::Trap)
}

/// The basic blocks of a function, and where they continue.
pub(super) struct Flow {
    pub starts: Vec<usize>,
    pub next: Vec<Vec<usize>>,
}

/// Finds the basic blocks.
pub(super) fn build_flow(body: &Body) -> Flow {
    let count = body.instructions.len();
    let mut leader = vec![false; count + 1];
    leader[0] = true;
    body.labels.iter().for_each(|label| leader[(label.target as usize).min(count)] = true);
    for (n, i) in body.instructions.iter().enumerate() {
        if ends_block(i.opcode) {
            leader[n + 1] = true;
        }
    }
    let starts: Vec<usize> = (0..count).filter(|n| leader[*n]).collect();
    let block_at = |n: usize| starts.binary_search(&n).ok();
    let mut next = Vec::with_capacity(starts.len());
    for (b, start) in starts.iter().enumerate() {
        let end = starts.get(b + 1).copied().unwrap_or(count);
        let last = &body.instructions[end - 1];
        let mut to = Vec::new();
        if *start < end {
            let leaves = ends_block(last.opcode) && last.guard.is_none();
            if !leaves {
                to.extend(block_at(end));
            }
            for operand in &last.operands {
                match operand {
                    Operand::Label(label) => to.extend(block_at(body.label(*label).target as usize)),
                    Operand::BranchTable(table) => {
                        let targets = &body.branch_tables[table.index()].targets;
                        to.extend(targets.iter().filter_map(|label| block_at(body.label(*label).target as usize)));
                        // An index out of range continues behind the instruction.
                        to.extend(block_at(end));
                    }
                    _ => {}
                }
            }
        }
        next.push(to);
    }
    Flow { starts, next }
}

/// Which registers hold values that are still needed, before and after each basic block.
pub(super) struct LiveSets {
    words: usize,
    before: Vec<u64>,
    after: Vec<u64>,
}

impl LiveSets {
    /// Finds them; `None` for a function that is too large. Calls `mentioned` with each register
    /// and each instruction that reads or writes it.
    pub fn find(function: &Function, body: &Body, flow: &Flow, mentioned: &mut impl FnMut(usize, usize)) -> Option<LiveSets> {
        let count = body.instructions.len();
        let results: Vec<RegId> = function.returns.iter().flat_map(Param::registers).collect();
        let words = body.registers.len().div_ceil(64);
        let blocks = flow.starts.len();
        if blocks * words * 64 > MOST_BITS {
            return None;
        }
        let set = |bits: &mut [u64], r: usize| bits[r / 64] |= 1 << (r % 64);
        // Registers that the block reads before it writes them, and registers that it writes.
        let mut uses = vec![0u64; blocks * words];
        let mut kills = vec![0u64; blocks * words];
        let end_of = |b: usize| flow.starts.get(b + 1).copied().unwrap_or(count);
        for b in 0..blocks {
            let (uses, kills) = (&mut uses[b * words..(b + 1) * words], &mut kills[b * words..(b + 1) * words]);
            for n in flow.starts[b]..end_of(b) {
                let i = &body.instructions[n];
                let mut written = Vec::new();
                let read = &mut |r: RegId| {
                    mentioned(r.index(), n);
                    if kills[r.index() / 64] >> (r.index() % 64) & 1 == 0 {
                        set(uses, r.index());
                    }
                };
                visit_effects(i, read, &mut |r| written.push(r));
                if i.opcode == O::Ret || n + 1 == count {
                    results.iter().for_each(|r| read(*r));
                }
                for r in written {
                    mentioned(r.index(), n);
                    set(kills, r.index());
                }
            }
        }
        let mut before = uses;
        let mut after = vec![0u64; blocks * words];
        let mut changed = true;
        while changed {
            changed = false;
            for b in (0..blocks).rev() {
                for to in &flow.next[b] {
                    for w in 0..words {
                        after[b * words + w] |= before[to * words + w];
                    }
                }
                for w in 0..words {
                    let at = b * words + w;
                    let live = before[at] | (after[at] & !kills[at]);
                    changed |= live != before[at];
                    before[at] = live;
                }
            }
        }
        Some(LiveSets { words, before, after })
    }

    /// True if the register's value is needed after a block.
    pub fn lives_after(&self, block: usize, register: RegId) -> bool {
        self.after[block * self.words + register.index() / 64] >> (register.index() % 64) & 1 != 0
    }
}

/// The first and the last instruction at which each register holds a value.
fn live_ranges(function: &Function, body: &Body) -> Option<Vec<Option<(u32, u32)>>> {
    let count = body.instructions.len();
    let registers = body.registers.len();
    let mut ranges: Vec<Option<(u32, u32)>> = vec![None; registers];
    let mut extend = |register: usize, at: usize| {
        let at = at as u32;
        let range = ranges[register].get_or_insert((at, at));
        *range = (range.0.min(at), range.1.max(at));
    };
    // Parameters in registers are written before the first instruction.
    for register in function.params.iter().flat_map(Param::registers) {
        extend(register.index(), 0);
    }
    if count == 0 {
        function.returns.iter().flat_map(Param::registers).for_each(|r| extend(r.index(), 0));
        return Some(ranges);
    }
    let flow = build_flow(body);
    let LiveSets { words, before, after } = LiveSets::find(function, body, &flow, &mut extend)?;
    let end_of = |b: usize| flow.starts.get(b + 1).copied().unwrap_or(count);
    for b in 0..flow.starts.len() {
        for w in 0..words {
            let mut mark = |mut bits: u64, at: usize| {
                while bits != 0 {
                    extend(w * 64 + bits.trailing_zeros() as usize, at);
                    bits &= bits - 1;
                }
            };
            mark(before[b * words + w], flow.starts[b]);
            mark(after[b * words + w], end_of(b) - 1);
        }
    }
    Some(ranges)
}

/// Assigns a slot to each register.
pub(super) fn allocate_registers(function: &Function, body: &Body) -> Allocation {
    let classes: Vec<Class> = body.registers.iter().map(|register| Class::of(register.ty)).collect();
    let mut used = [0u32; 3];
    let mut slots: Vec<(Class, RegisterSlot)> = classes.iter().map(|class| (*class, 0)).collect();
    // Pairs are rare, so they keep their slots.
    for (n, _) in classes.iter().enumerate().filter(|(_, class)| **class == Class::Double) {
        slots[n].1 = used[1] as RegisterSlot;
        used[1] += 2;
    }
    let Some(ranges) = live_ranges(function, body) else {
        for (n, class) in classes.iter().enumerate().filter(|(_, class)| **class != Class::Double) {
            slots[n].1 = used[class.bank()] as RegisterSlot;
            used[class.bank()] += 1;
        }
        return Allocation { slots, used };
    };
    let mut order: Vec<(u32, u32, usize)> = ranges.iter().enumerate().filter_map(|(n, range)| range.map(|(from, to)| (from, to, n))).collect();
    order.sort_unstable();
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;
    let mut free: [BinaryHeap<Reverse<u32>>; 3] = Default::default();
    let mut active: [BinaryHeap<Reverse<(u32, u32)>>; 3] = Default::default();
    for (from, to, n) in order {
        let class = classes[n];
        if class == Class::Double {
            continue;
        }
        let bank = class.bank();
        while let Some(Reverse((end, slot))) = active[bank].peek().copied() {
            if end >= from {
                break;
            }
            active[bank].pop();
            free[bank].push(Reverse(slot));
        }
        let slot = match free[bank].pop() {
            Some(Reverse(slot)) => slot,
            None => {
                used[bank] += 1;
                used[bank] - 1
            }
        };
        slots[n].1 = slot as RegisterSlot;
        active[bank].push(Reverse((to, slot)));
    }
    Allocation { slots, used }
}
