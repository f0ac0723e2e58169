//! Asynchronous copies (PTX ISA, *Data Movement and Conversion Instructions: Asynchronous copy*).

use super::body::{Lowerer, words_of};
use super::error::{Lowered, Trouble, reject};
use super::memory::lower_address;
use super::registers::Class;
use crate::program::code::{AddressOperand, CopyOp, MbarrierKind, MbarrierOp, MemoryOp, Op, Order, TensorOp};
use crate::program::tensor::{MAP_BYTES, place as field_place};
use crate::simd::lanes::NO_SLOT;
use cumux_ptx::ast::{Imm, Instruction, Modifier, Operand, ScalarType as T, StateSpace, Word};

pub(super) fn lower(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered {
    let words = words_of(i);
    match words.as_slice() {
        // Copies are done when they are issued.
        ["async", "commit_group" | "wait_group" | "wait_all"]
        | ["async", "bulk", "commit_group" | "wait_group"]
        | ["async", "bulk", "wait_group", "read"]
        | ["async", "bulk", "prefetch"] => {
            lowerer.emit(Op::Nothing);
            Ok(())
        }
        ["async"] => lower_small(lowerer, i),
        ["async", "mbarrier::arrive"] | ["async", "mbarrier", "arrive"] => {
            // One arrival more is expected, and it comes at once.
            lowerer.emit(Op::Nothing);
            Ok(())
        }
        ["async", "mbarrier::arrive", "noinc"] | ["async", "mbarrier", "arrive", "noinc"] => {
            let [place] = i.operands.as_slice() else { return reject("an address is needed") };
            let (space, base, offset) = lower_address(lowerer, i.space(), place)?;
            lowerer.emit(Op::Mbarrier(Box::new(MbarrierOp { kind: MbarrierKind::Arrive, space, base, offset, d: NO_SLOT, a: NO_SLOT })));
            Ok(())
        }
        ["async", "bulk", "prefetch", "L2" | "L2::cache_hint" | "tensor", ..] => {
            lowerer.emit(Op::Nothing);
            Ok(())
        }
        ["async", "bulk", "tensor", rest @ ..] => lower_tensor(lowerer, i, rest),
        ["async", "bulk", "mbarrier::complete_tx::bytes"] | ["async", "bulk", "bulk_group"] => lower_bulk(lowerer, i),
        _ => Err(Trouble::Refused),
    }
}

fn place(lowerer: &mut Lowerer<'_>, space: StateSpace, operand: &Operand) -> Lowered<AddressOperand> {
    let (space, base, offset) = lower_address(lowerer, Some(space), operand)?;
    Ok(AddressOperand { space, base, offset })
}

/// The state spaces written: target and source.
fn spaces(i: &Instruction) -> Lowered<(StateSpace, StateSpace)> {
    let spaces: Vec<StateSpace> = i
        .modifiers
        .iter()
        .filter_map(|m| match m {
            Modifier::Space(space) => Some(*space),
            _ => None,
        })
        .collect();
    match spaces.as_slice() {
        [to, from] => Ok((*to, *from)),
        _ => Err(Trouble::Refused),
    }
}

/// `cp.async` of 4, 8 or 16 bytes to shared memory.
fn lower_small(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered {
    let (to, from) = spaces(i)?;
    let [target, source, Operand::Imm(Imm::Int(bytes @ (4 | 8 | 16))), rest @ ..] = i.operands.as_slice() else {
        return reject("two addresses and 4, 8 or 16 bytes are needed");
    };
    let (to, from) = (place(lowerer, to, target)?, place(lowerer, from, source)?);
    let mut op = CopyOp { to, from, bytes: lowerer.intern_constant32(*bytes as u32), align: *bytes as u32, read: NO_SLOT, ignore: NO_SLOT, counted_by: None };
    for operand in rest {
        match operand {
            Operand::Reg(register) if lowerer.class_of(*register) == Class::Predicate => op.ignore = lowerer.lower_plain_predicate(operand)?,
            Operand::NotReg(_) => op.ignore = lowerer.lower_plain_predicate(operand)?,
            // The policy of a cache.
            Operand::Reg(register) if lowerer.class_of(*register) == Class::Wide => {}
            Operand::Imm(Imm::Int(read)) if read == bytes => {}
            _ => op.read = lowerer.lower_source32(operand, T::U32)?,
        }
    }
    if op.read != NO_SLOT || op.ignore != NO_SLOT {
        lowerer.emit(Op::Copy(Box::new(op)));
        return Ok(());
    }
    // The usual case is a load and a store of words.
    let count = (*bytes / 4) as u8;
    let mut data = [NO_SLOT; 8];
    data[..count.into()].fill_with(|| lowerer.new_temporary32());
    let access = |place: AddressOperand| {
        Box::new(MemoryOp { space: place.space, base: place.base, offset: place.offset, bytes: 4, count, data, wide: false, sign: 0, order: Order::Weak })
    };
    lowerer.emit(Op::Load(access(from)));
    lowerer.emit(Op::Store(access(to)));
    Ok(())
}

/// `cp.async.bulk` between global memory and shared memory, and from the block's shared memory to
/// that of a block of its cluster.
fn lower_bulk(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered {
    let (to, from) = spaces(i)?;
    let counted = i.modifiers.iter().any(|m| matches!(m, Modifier::Other(word) if word.starts_with("mbarrier")));
    if i.has(Word::Mask)
        || !matches!(
            (to.is_shared(), from, counted),
            (true, StateSpace::Global | StateSpace::SharedCta, true) | (false, StateSpace::Shared | StateSpace::SharedCta, false)
        )
    {
        return Err(Trouble::Refused);
    }
    let [target, source, bytes, rest @ ..] = i.operands.as_slice() else { return reject("operands are missing") };
    let counted_by = match (counted, rest) {
        (true, [barrier, ..]) => Some(place(lowerer, StateSpace::Shared, barrier)?),
        (true, []) => return reject("a barrier object is needed"),
        (false, _) => None,
    };
    let (to, from) = (place(lowerer, to, target)?, place(lowerer, from, source)?);
    let bytes = lowerer.lower_source32(bytes, T::U32)?;
    lowerer.emit(Op::Copy(Box::new(CopyOp { to, from, bytes, align: 16, read: NO_SLOT, ignore: NO_SLOT, counted_by })));
    Ok(())
}

/// `cp.async.bulk.tensor` of tiles, to and from the block's shared memory.
fn lower_tensor(lowerer: &mut Lowerer<'_>, i: &Instruction, words: &[&str]) -> Lowered {
    let (to, from) = spaces(i)?;
    let mut words = words.to_vec();
    words.retain(|word| *word != "tile");
    let [dimensions, kind] = words.as_slice() else { return Err(Trouble::Refused) };
    let stores = match (*kind, to.is_shared(), from.is_shared()) {
        ("mbarrier::complete_tx::bytes", true, false) => false,
        ("bulk_group", false, true) => true,
        _ => return Err(Trouble::Refused),
    };
    // The policy of a cache may follow.
    let (shared, tensor, barrier) = match (stores, i.operands.as_slice()) {
        (false, [shared, tensor, barrier, ..]) => (shared, tensor, Some(barrier)),
        (true, [tensor, shared, ..]) => (shared, tensor, None),
        _ => return reject("operands are missing"),
    };
    let Operand::Bracket(parts) = tensor else { return reject("a tensor map and coordinates in brackets are needed") };
    let [map, Operand::Vector(coordinates)] = parts.as_slice() else { return reject("a tensor map and coordinates in brackets are needed") };
    if *dimensions != format!("{}d", coordinates.len()) {
        return reject("as many coordinates as dimensions are needed");
    }
    let (space, base, offset) = lower_address(lowerer, None, map)?;
    let map = AddressOperand { space, base, offset };
    let coordinates = coordinates.iter().map(|one| lowerer.lower_source32(one, T::S32)).collect::<Lowered<Vec<_>>>()?;
    let shared = place(lowerer, StateSpace::Shared, shared)?;
    let counted_by = barrier.map(|barrier| place(lowerer, StateSpace::Shared, barrier)).transpose()?;
    lowerer.emit(Op::Tensor(Box::new(TensorOp { map, coordinates, shared, stores, counted_by })));
    Ok(())
}

/// `tensormap.replace` and `tensormap.cp_fenceproxy`: the fields of a map are words in memory.
pub(super) fn lower_map(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered {
    let words = words_of(i);
    let field = match words.as_slice() {
        ["replace", "tile", field, "b1024"] => *field,
        ["cp_fenceproxy", ..] if words.contains(&"tensormap::generic") => {
            let [to, from, Operand::Imm(Imm::Int(bytes))] = i.operands.as_slice() else { return reject("two addresses and a number are needed") };
            if *bytes != MAP_BYTES as i64 {
                return reject("a tensor map has 128 bytes");
            }
            let (to, from) = (place(lowerer, StateSpace::Global, to)?, place(lowerer, StateSpace::Shared, from)?);
            let bytes = lowerer.intern_constant32(MAP_BYTES as u32);
            lowerer.emit(Op::Copy(Box::new(CopyOp { to, from, bytes, align: 16, read: NO_SLOT, ignore: NO_SLOT, counted_by: None })));
            return Ok(());
        }
        _ => return Err(Trouble::Refused),
    };
    let (first, each, most) = match field {
        "global_address" => (field_place::ADDRESS, 8, 0),
        "rank" => (field_place::RANK, 4, 0),
        "box_dim" => (field_place::BOX, 4, 5),
        "global_dim" => (field_place::DIMENSIONS, 4, 5),
        "global_stride" => (field_place::STRIDES, 8, 4),
        "element_stride" => (field_place::STEPS, 4, 5),
        "elemtype" => (field_place::TYPE, 4, 0),
        "interleave_layout" => (field_place::INTERLEAVE, 4, 0),
        "swizzle_mode" => (field_place::SWIZZLE, 4, 0),
        "fill_mode" => (field_place::FILL, 4, 0),
        _ => return Err(Trouble::Refused),
    };
    let (map, at, value) = match (most, i.operands.as_slice()) {
        (0, [map, value]) => (map, first, value),
        (1.., [map, Operand::Imm(Imm::Int(ordinal)), value]) if (0..most).contains(ordinal) => (map, first + each * *ordinal as usize, value),
        _ => return reject("an address, the number of a dimension where there are several, and a value are needed"),
    };
    let (space, base, offset) = lower_address(lowerer, i.space(), map)?;
    let mut data = [NO_SLOT; 8];
    let wide = each == 8;
    data[0] = if wide { lowerer.lower_source64(value, T::B64)? } else { lowerer.lower_source32(value, T::B32)? };
    let access = MemoryOp { space, base, offset: offset + at as i64, bytes: each as u8, count: 1, data, wide, sign: 0, order: Order::Weak };
    lowerer.emit(Op::Store(Box::new(access)));
    Ok(())
}
