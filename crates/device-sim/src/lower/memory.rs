//! Loads, stores, atomics, fences and prefetches (PTX ISA, *Data Movement and Conversion
//! Instructions*).

use super::body::{Lowerer, exact_operands, first_type, words_of};
use super::error::{Lowered, Trouble, reject};
use super::registers::Class;
use crate::program::code::{AtomicHow, AtomicOp, Base, MbarrierKind, MbarrierOp, MemoryOp, Op, Order, Space};
use crate::simd::lanes::{NO_SLOT, RegisterSlot};
use cumux_ptx::ast::{AddressBase, FunctionKind, Instruction, MemoryOrder, Modifier, Opcode as O, Operand, ReduceOp, ScalarType as T, StateSpace, SymbolRef};

pub(super) fn lower(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered {
    match i.opcode {
        O::Ld | O::Ldu => lower_load(lowerer, i),
        O::St => lower_store(lowerer, i),
        O::Atom | O::Red => lower_atomic(lowerer, i),
        O::Isspacep => {
            let [d, a] = exact_operands::<2>(i)?;
            let space = space_of(lowerer, i.space());
            let wide = !matches!(a, Operand::Reg(r) if lowerer.class_of(*r) == Class::Narrow);
            let a = if wide { lowerer.lower_source64(a, T::B64)? } else { lowerer.lower_source32(a, T::B32)? };
            let d = lowerer.lower_predicate_target(d)?;
            // Constants lie in global memory here.
            let own = i.space() != Some(StateSpace::SharedCluster);
            lowerer.emit(Op::IsSpace { d, a, wide, space, own });
            Ok(())
        }
        O::Fence | O::Membar => {
            lowerer.emit(Op::Fence);
            Ok(())
        }
        // What stays in a cache changes no value.
        O::Createpolicy => {
            if words_of(i).iter().any(|word| !matches!(*word, "fractional" | "range" | "cvt")) {
                return Err(Trouble::Refused);
            }
            let Some(d) = i.operands.first() else { return reject("operands are missing") };
            let (d, zero) = (lowerer.lower_target64(d)?, lowerer.intern_constant64(0));
            super::convert::move_slot(lowerer, d, zero, true);
            Ok(())
        }
        O::Mbarrier => lower_mbarrier(lowerer, i),
        O::Prefetch | O::Prefetchu | O::Discard | O::Applypriority => {
            lowerer.emit(Op::Nothing);
            Ok(())
        }
        _ => Err(Trouble::Refused),
    }
}

/// True while a kernel is lowered, not a function.
fn is_kernel(lowerer: &Lowerer<'_>) -> bool {
    lowerer.plan.module.function(lowerer.function).kind == FunctionKind::Entry
}

/// Where an access goes.
fn space_of(lowerer: &Lowerer<'_>, space: Option<StateSpace>) -> Space {
    match space {
        None => Space::Generic,
        Some(space) if space.is_shared() => Space::Shared,
        Some(StateSpace::Local) => Space::Local,
        Some(StateSpace::ParamEntry) => Space::Param,
        Some(StateSpace::ParamFunc) => Space::Local,
        Some(StateSpace::Param) => {
            if is_kernel(lowerer) {
                Space::Param
            } else {
                Space::Local
            }
        }
        Some(_) => Space::Global,
    }
}

/// The space, register and offset of an address operand.
pub(super) fn lower_address(lowerer: &mut Lowerer<'_>, space: Option<StateSpace>, operand: &Operand) -> Lowered<(Space, Base, i64)> {
    let (base, offset) = match operand {
        Operand::Address { base, offset } => (*base, *offset),
        Operand::Symbol { symbol, offset } => (AddressBase::Symbol(*symbol), *offset),
        Operand::Reg(register) => (AddressBase::Reg(*register), 0),
        _ => return reject("an address is expected here"),
    };
    let named = space_of(lowerer, space);
    match base {
        AddressBase::Absolute(at) => Ok((named, Base::None, (at as i64).wrapping_add(offset))),
        AddressBase::Reg(register) => {
            let slot = lowerer.slot_of(register);
            match lowerer.class_of(register) {
                Class::Wide => Ok((named, Base::Wide(slot), offset)),
                Class::Narrow => Ok((named, Base::Narrow(slot), offset)),
                _ => reject("this register cannot hold an address"),
            }
        }
        AddressBase::Symbol(symbol) => {
            if let Some(at) = lowerer.frame_offset(symbol) {
                return Ok((Space::Frame, Base::None, i64::from(at).wrapping_add(offset)));
            }
            match symbol {
                SymbolRef::Param(n) => {
                    let function = lowerer.plan.module.function(lowerer.function);
                    let Some(param) = function.params.get(n as usize) else { return reject("no such parameter") };
                    Ok((Space::Param, Base::None, (param.offset as i64).wrapping_add(offset)))
                }
                SymbolRef::Global(id) if lowerer.plan.module.global(id).space.is_shared() => {
                    let slot = lowerer.lower_address_value(symbol, offset)?;
                    Ok((Space::Shared, Base::Wide(slot), 0))
                }
                SymbolRef::Local(id) if lowerer.tree.variable(id).space.is_shared() => {
                    let slot = lowerer.lower_address_value(symbol, offset)?;
                    Ok((Space::Shared, Base::Wide(slot), 0))
                }
                SymbolRef::Local(id) if lowerer.tree.variable(id).space.is_param() => reject(format!("{} belongs to no call", lowerer.tree.variable(id).name)),
                _ => {
                    let slot = lowerer.lower_address_value(symbol, offset)?;
                    Ok((Space::Global, Base::Wide(slot), 0))
                }
            }
        }
    }
}

/// The memory order of an access.
fn memory_order(i: &Instruction) -> Order {
    match i.order() {
        None | Some(MemoryOrder::Weak) => Order::Weak,
        Some(MemoryOrder::Acquire) => Order::Acquire,
        Some(MemoryOrder::Release) => Order::Release,
        Some(_) => Order::Relaxed,
    }
}

/// The operands of a vector, or the single operand.
pub(super) fn elements(operand: &Operand) -> &[Operand] {
    match operand {
        Operand::Vector(parts) => parts,
        one => std::slice::from_ref(one),
    }
}

fn lower_load(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered {
    let ty = first_type(i)?;
    let [d, from, ..] = i.operands.as_slice() else { return reject("operands are missing") };
    let (space, base, offset) = lower_address(lowerer, i.space(), from)?;
    let parts = elements(d);
    if parts.len() != usize::from(i.vector()) || parts.len() > 8 || ty.bits() < 8 || ty.bits() == 128 && parts.len() > 2 {
        return reject("the vector does not fit the type");
    }
    let mut op = MemoryOp {
        space,
        base,
        offset,
        bytes: ty.bytes() as u8,
        count: parts.len() as u8,
        data: [NO_SLOT; 8],
        wide: ty.bits() > 32,
        sign: 0,
        order: memory_order(i),
    };
    let class = parts.iter().find_map(|part| match part {
        Operand::Reg(register) => Some((lowerer.class_of(*register), lowerer.tree.register(*register).ty.bits())),
        _ => None,
    });
    if let Some((class, width)) = class {
        op.wide = class != Class::Narrow;
        op.sign = if ty.is_signed() && ty.bits() < width { width as u8 } else { 0 };
        if class == Class::Predicate || width < ty.bits() {
            return reject("the register is too narrow for what is loaded");
        }
    }
    for (n, part) in parts.iter().enumerate() {
        let slot = match part {
            Operand::Reg(register) if ty.bits() == 128 => {
                let slot = lowerer.expect_register(*register, Class::Double)?;
                op.data[2 * n] = slot;
                op.data[2 * n + 1] = slot + 1;
                continue;
            }
            Operand::Reg(register) if (lowerer.class_of(*register) != Class::Narrow) == op.wide => lowerer.slot_of(*register),
            Operand::Sink if op.wide => lowerer.new_temporary64(),
            Operand::Sink => lowerer.new_temporary32(),
            _ => return reject("registers of one width are expected here"),
        };
        op.data[n] = slot;
    }
    lowerer.emit(Op::Load(Box::new(op)));
    Ok(())
}

/// `st.async` and `red.async`: to shared memory of a block of the cluster, where a barrier object
/// counts the bytes. They may be done at any time, and are done at once here.
pub(super) fn lower_asynchronous(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered {
    let [_, _, barrier] = i.operands.as_slice() else { return Err(Trouble::Refused) };
    if words_of(i) != ["async", "mbarrier::complete_tx::bytes"] || i.space() != Some(StateSpace::SharedCluster) {
        return Err(Trouble::Refused);
    }
    let bytes = first_type(i)?.bytes() as u32 * u32::from(i.vector());
    if i.opcode == O::St {
        lower_store(lowerer, i)?
    } else {
        lower_atomic(lowerer, i)?
    }
    let (space, base, offset) = lower_address(lowerer, i.space(), barrier)?;
    let a = lowerer.intern_constant32(bytes);
    lowerer.emit(Op::Mbarrier(Box::new(MbarrierOp { kind: MbarrierKind::Complete, space, base, offset, d: NO_SLOT, a })));
    Ok(())
}

fn lower_store(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered {
    let ty = first_type(i)?;
    let [to, a, ..] = i.operands.as_slice() else { return reject("operands are missing") };
    let (space, base, offset) = lower_address(lowerer, i.space(), to)?;
    let parts = elements(a);
    if parts.len() != usize::from(i.vector()) || parts.len() > 8 || ty.bits() < 8 || ty.bits() == 128 && parts.len() > 2 {
        return reject("the vector does not fit the type");
    }
    // Registers wider than the type are cut to it.
    let wide = ty.bits() > 32 || parts.iter().any(|part| matches!(part, Operand::Reg(r) if lowerer.class_of(*r) == Class::Wide));
    let mut op = MemoryOp { space, base, offset, bytes: ty.bytes() as u8, count: parts.len() as u8, data: [NO_SLOT; 8], wide, sign: 0, order: memory_order(i) };
    for (n, part) in parts.iter().enumerate() {
        if ty.bits() == 128 {
            let Operand::Reg(register) = part else { return Err(Trouble::Refused) };
            let slot = lowerer.expect_register(*register, Class::Double)?;
            op.data[2 * n] = slot;
            op.data[2 * n + 1] = slot + 1;
        } else if wide {
            op.data[n] = lowerer.lower_source64(part, ty)?;
        } else {
            op.data[n] = lowerer.lower_source32(part, ty)?;
        }
    }
    lowerer.emit(Op::Store(Box::new(op)));
    Ok(())
}

/// The operation of an atomic.
pub(super) fn select_atomic(op: ReduceOp, ty: T) -> Lowered<AtomicHow> {
    use AtomicHow as A;
    Ok(match (op, ty) {
        (ReduceOp::Add, T::F32) => A::AddF32 { flush: false },
        (ReduceOp::Add, T::F64) => A::AddF64,
        (ReduceOp::Add, T::F16) => A::AddHalf,
        (ReduceOp::Add, T::F16x2) => A::AddHalfTwo,
        (ReduceOp::Add, T::Bf16) => A::AddBrain,
        (ReduceOp::Add, T::Bf16x2) => A::AddBrainTwo,
        (ReduceOp::Min, T::F16) => A::MinHalf,
        (ReduceOp::Max, T::F16) => A::MaxHalf,
        (ReduceOp::Min, T::F16x2) => A::MinHalfTwo,
        (ReduceOp::Max, T::F16x2) => A::MaxHalfTwo,
        (ReduceOp::Min, T::Bf16) => A::MinBrain,
        (ReduceOp::Max, T::Bf16) => A::MaxBrain,
        (ReduceOp::Min, T::Bf16x2) => A::MinBrainTwo,
        (ReduceOp::Max, T::Bf16x2) => A::MaxBrainTwo,
        (ReduceOp::Exch, _) => A::Exchange,
        (ReduceOp::Cas, _) => A::Compare,
        (_, ty) if ty.is_float() => return Err(Trouble::Refused),
        (ReduceOp::Add, _) => A::Add,
        (ReduceOp::And, _) => A::And,
        (ReduceOp::Or, _) => A::Or,
        (ReduceOp::Xor, _) => A::Xor,
        (ReduceOp::Inc, _) => A::Increment,
        (ReduceOp::Dec, _) => A::Decrement,
        (ReduceOp::Min, ty) if ty.is_signed() => A::MinSigned,
        (ReduceOp::Max, ty) if ty.is_signed() => A::MaxSigned,
        (ReduceOp::Min, _) => A::MinUnsigned,
        (ReduceOp::Max, _) => A::MaxUnsigned,
        (ReduceOp::Popc, _) => return Err(Trouble::Refused),
    })
}

fn lower_atomic(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered {
    let ty = first_type(i)?;
    let Some(op) = i.reduce() else { return reject("an operation is needed") };
    if ty.bits() < 16 || ty.bits() > 64 && !matches!(op, ReduceOp::Exch | ReduceOp::Cas) {
        return Err(Trouble::Refused);
    }
    let returns = i.opcode == O::Atom;
    let operands = if returns { i.operands.get(1..) } else { Some(&i.operands[..]) };
    let Some([place, a, rest @ ..]) = operands else { return reject("operands are missing") };
    let (space, base, offset) = lower_address(lowerer, i.space(), place)?;
    if i.vector() > 1 {
        if ty.bits() > 32 {
            return Err(Trouble::Refused);
        }
        let how = select_atomic(op, ty)?;
        let d = i.operands.first().filter(|_| returns);
        return lower_vector_atomic(lowerer, ty, AtomicOp { space, base, offset, bytes: ty.bytes() as u8, how, d: NO_SLOT, a: NO_SLOT, b: NO_SLOT }, d, a);
    }
    let source = |lowerer: &mut Lowerer<'_>, a: &Operand| match a {
        Operand::Reg(register) if ty.bits() == 128 => lowerer.expect_register(*register, Class::Double),
        _ if ty.bits() == 128 => Err(Trouble::Refused),
        _ => lowerer.lower_source(a, ty),
    };
    let d = match i.operands.first() {
        Some(Operand::Sink) => NO_SLOT,
        Some(d) if returns && ty.bits() == 128 => source(lowerer, d)?,
        Some(d) if returns => lowerer.lower_target(d, ty)?,
        _ => NO_SLOT,
    };
    let a = source(lowerer, a)?;
    let b: RegisterSlot = match (op, rest.first()) {
        (ReduceOp::Cas, Some(b)) => source(lowerer, b)?,
        (ReduceOp::Cas, None) => return reject("operands are missing"),
        _ => NO_SLOT,
    };
    let how = select_atomic(op, ty)?;
    lowerer.emit(Op::Atomic(Box::new(AtomicOp { space, base, offset, bytes: ty.bytes() as u8, how, d, a, b })));
    Ok(())
}

/// An atomic of several elements, each of which is atomic by itself.
fn lower_vector_atomic(lowerer: &mut Lowerer<'_>, ty: T, one: AtomicOp, d: Option<&Operand>, a: &Operand) -> Lowered {
    // Old values may go to registers from which later elements are read.
    let mut sources = Vec::new();
    for part in elements(a) {
        let (from, to) = (lowerer.lower_source32(part, ty)?, lowerer.new_temporary32());
        super::convert::move_slot(lowerer, to, from, false);
        sources.push(to);
    }
    let targets = d.map(elements);
    if targets.is_some_and(|targets| targets.len() != sources.len()) {
        return Err(Trouble::Refused);
    }
    for (n, a) in sources.into_iter().enumerate() {
        let d = match targets.map(|targets| &targets[n]) {
            None | Some(Operand::Sink) => NO_SLOT,
            Some(part) => lowerer.lower_target32(part)?,
        };
        let offset = one.offset.wrapping_add(n as i64 * i64::from(one.bytes));
        lowerer.emit(Op::Atomic(Box::new(AtomicOp { offset, a, d, ..one.clone() })));
    }
    Ok(())
}

fn lower_mbarrier(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered {
    let words: Vec<String> = i
        .modifiers
        .iter()
        .filter_map(|m| match m {
            Modifier::Other(other) => Some(other.to_string()),
            Modifier::Word(word) => Some(word.name().to_owned()),
            _ => None,
        })
        .collect();
    // The spaces of the object are modifiers of their own. What is not known here may change what
    // the instruction does.
    let known = ["init", "inval", "arrive", "arrive_drop", "expect_tx", "complete_tx", "pending_count", "test_wait", "try_wait", "parity", "noComplete"];
    if !words.iter().all(|word| known.contains(&word.as_str())) {
        return Err(Trouble::Refused);
    }
    let has = |word: &str| words.iter().any(|w| w == word);
    let kind = if has("init") {
        MbarrierKind::Init
    } else if has("inval") {
        MbarrierKind::Invalidate
    } else if has("arrive_drop") {
        if has("expect_tx") {
            return Err(Trouble::Refused);
        }
        MbarrierKind::ArriveDrop
    } else if has("expect_tx") {
        if has("arrive") { MbarrierKind::ArriveExpect } else { MbarrierKind::Expect }
    } else if has("complete_tx") {
        MbarrierKind::Complete
    } else if has("arrive") {
        MbarrierKind::Arrive
    } else if has("pending_count") {
        MbarrierKind::PendingCount
    } else if (has("test_wait") || has("try_wait")) && has("parity") {
        MbarrierKind::TestParity
    } else if has("test_wait") || has("try_wait") {
        MbarrierKind::Test
    } else {
        return Err(Trouble::Refused);
    };
    let operands = i.operands.as_slice();
    let mut op = MbarrierOp { kind, space: Space::Shared, base: Base::None, offset: 0, d: NO_SLOT, a: NO_SLOT };
    let place = match kind {
        MbarrierKind::PendingCount => {
            let [d, a] = exact_operands::<2>(i)?;
            (op.d, op.a) = (lowerer.lower_target32(d)?, lowerer.lower_source64(a, T::B64)?);
            lowerer.emit(Op::Mbarrier(Box::new(op)));
            return Ok(());
        }
        MbarrierKind::Init | MbarrierKind::Invalidate | MbarrierKind::Expect | MbarrierKind::Complete => {
            if let Some(count) = operands.get(1) {
                op.a = lowerer.lower_source32(count, T::U32)?;
            }
            operands.first()
        }
        MbarrierKind::Arrive | MbarrierKind::ArriveDrop | MbarrierKind::ArriveExpect => {
            if let Some(d @ Operand::Reg(_)) = operands.first() {
                op.d = lowerer.lower_target64(d)?;
            }
            if let Some(count) = operands.get(2) {
                op.a = lowerer.lower_source32(count, T::U32)?;
            }
            operands.get(1)
        }
        MbarrierKind::Test | MbarrierKind::TestParity => {
            let [d, _, state, ..] = operands else { return reject("operands are missing") };
            op.d = lowerer.lower_predicate_target(d)?;
            op.a = if kind == MbarrierKind::Test { lowerer.lower_source64(state, T::B64)? } else { lowerer.lower_source32(state, T::U32)? };
            operands.get(1)
        }
    };
    let Some(place) = place else { return reject("operands are missing") };
    (op.space, op.base, op.offset) = lower_address(lowerer, i.space(), place)?;
    lowerer.emit(Op::Mbarrier(Box::new(op)));
    if matches!(kind, MbarrierKind::Test | MbarrierKind::TestParity) {
        // Another warp must run to arrive.
        lowerer.emit(Op::Pause);
    }
    Ok(())
}
