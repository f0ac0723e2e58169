//! Integer, logic, shift and bit instructions.

use super::body::{Lowerer, exact_operands, first_type};
use super::by_type::{by_integer, by_width};
use super::error::{Lowered, Trouble, reject};
use crate::program::code::{Op, PredicateHow, PredicateOp};
use crate::simd::alu::{self, Alu, AluFunction};
use crate::simd::lanes::NO_SLOT;
use crate::simd::ops::{bits, integer, video};
use cumux_ptx::ast::{BoolOp, Instruction, Opcode as O, Operand, ScalarType as T, Word};

pub(super) fn lower(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered {
    let ty = first_type(i)?;
    if ty == T::Pred {
        return lower_predicate(lowerer, i);
    }
    let f = match i.opcode {
        _ if matches!(ty, T::U16x2 | T::S16x2 | T::U8x4 | T::S8x4) => return lower_parts(lowerer, i, ty),
        O::Add | O::Addc | O::Sub | O::Subc if i.has(Word::Cc) || matches!(i.opcode, O::Addc | O::Subc) => return lower_carry(lowerer, i, ty),
        O::Mad | O::Madc if i.has(Word::Cc) || i.opcode == O::Madc => return lower_mad_carry(lowerer, i, ty),
        O::Add if i.has(Word::Sat) => alu::op2::<integer::AddSat>(),
        O::Sub if i.has(Word::Sat) => alu::op2::<integer::SubSat>(),
        O::Add => by_width!(ty, I => alu::op2::<integer::Add<I>>()),
        O::Sub => by_width!(ty, I => alu::op2::<integer::Sub<I>>()),
        O::Mul if i.has(Word::Wide) => return lower_wide(lowerer, i, ty),
        O::Mad if i.has(Word::Wide) => return lower_wide(lowerer, i, ty),
        O::Mul if i.has(Word::Hi) => by_integer!(ty, I => alu::op2::<integer::MulHi<I>>()),
        O::Mul => by_width!(ty, I => alu::op2::<integer::Mul<I>>()),
        O::Mad if i.has(Word::Hi) && i.has(Word::Sat) => alu::op3::<integer::MadHiSat>(),
        O::Mad if i.has(Word::Hi) => by_integer!(ty, I => alu::op3::<integer::MadHi<I>>()),
        O::Mad => by_width!(ty, I => alu::op3::<integer::Mad<I>>()),
        O::Div => by_integer!(ty, I => alu::op2::<integer::Div<I>>()),
        O::Rem => by_integer!(ty, I => alu::op2::<integer::Rem<I>>()),
        O::Min | O::Max => return lower_min_max(lowerer, i, ty),
        O::Abs => by_integer!(ty, I => alu::op1::<integer::Abs<I>>()),
        O::Neg => by_width!(ty, I => alu::op1::<integer::Neg<I>>()),
        O::Sad => by_integer!(ty, I => alu::op3::<integer::Sad<I>>()),
        O::Mul24 | O::Mad24 => mul24(i, ty)?,
        O::Dp4a | O::Dp2a => return lower_dot(lowerer, i),
        O::And => by_width!(ty, I => alu::op2::<integer::And<I>>()),
        O::Or => by_width!(ty, I => alu::op2::<integer::Or<I>>()),
        O::Xor => by_width!(ty, I => alu::op2::<integer::Xor<I>>()),
        O::Not => by_width!(ty, I => alu::op1::<integer::Not<I>>()),
        O::Cnot => match ty.bits() {
            16 => alu::op1::<bits::Cnot16>(),
            32 => alu::op1::<bits::Cnot32>(),
            _ => alu::op1::<bits::Cnot64>(),
        },
        O::Shl | O::Shr => return lower_shift(lowerer, i, ty),
        O::Shf => return lower_funnel(lowerer, i),
        O::Lop3 => return lower_lop3(lowerer, i),
        O::Prmt => return lower_permute(lowerer, i),
        O::Bfe | O::Bfi => return lower_field(lowerer, i, ty),
        O::Bfind => return lower_narrow_result(lowerer, i, ty, bfind(i, ty)?),
        O::Popc => return lower_narrow_result(lowerer, i, ty, if ty.bits() == 64 { alu::op1::<bits::Popc64>() } else { alu::op1::<bits::Popc32>() }),
        O::Clz => return lower_narrow_result(lowerer, i, ty, if ty.bits() == 64 { alu::op1::<bits::Clz64>() } else { alu::op1::<bits::Clz32>() }),
        O::Brev => {
            if ty.bits() == 64 {
                alu::op1::<bits::Brev64>()
            } else {
                alu::op1::<bits::Brev32>()
            }
        }
        O::Fns => alu::op3::<bits::Fns>(),
        O::Bmsk => {
            if i.has(Word::Wrap) {
                alu::op2::<bits::BmskWrap>()
            } else {
                alu::op2::<bits::BmskClamp>()
            }
        }
        O::Szext => match (i.has(Word::Wrap), ty.is_signed()) {
            (false, false) => alu::op2::<bits::SzextClampU>(),
            (false, true) => alu::op2::<bits::SzextClampS>(),
            (true, false) => alu::op2::<bits::SzextWrapU>(),
            (true, true) => alu::op2::<bits::SzextWrapS>(),
        },
        _ => return Err(Trouble::Refused),
    };
    lowerer.emit_uniform(f, &i.operands, ty)
}

/// Logic on predicates.
fn lower_predicate(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered {
    let [d, rest @ ..] = i.operands.as_slice() else { return reject("operands are missing") };
    let d = lowerer.lower_predicate_target(d)?;
    let a = match rest.first() {
        Some(a) => lowerer.lower_plain_predicate(a)?,
        None => return reject("operands are missing"),
    };
    let b = match rest.get(1) {
        Some(b) => lowerer.lower_plain_predicate(b)?,
        None => NO_SLOT,
    };
    let how = match i.opcode {
        O::And if b != NO_SLOT => PredicateHow::And,
        O::Or if b != NO_SLOT => PredicateHow::Or,
        O::Xor if b != NO_SLOT => PredicateHow::Xor,
        O::Not => PredicateHow::Not,
        O::Mov => PredicateHow::Move,
        _ => return Err(Trouble::Refused),
    };
    lowerer.emit(Op::Predicate(PredicateOp { how, d, a, b }));
    Ok(())
}

/// `mov.pred`.
pub(super) fn move_predicate(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered {
    lower_predicate(lowerer, i)
}

/// An instruction whose result has 32 bits whatever its type.
fn lower_narrow_result(lowerer: &mut Lowerer<'_>, i: &Instruction, ty: T, f: AluFunction) -> Lowered {
    let [d, a] = exact_operands::<2>(i)?;
    let alu = Alu { a: lowerer.lower_source(a, ty)?, d: lowerer.lower_target32(d)?, ..Alu::new(f) };
    lowerer.emit_alu(alu);
    Ok(())
}

/// `mul.wide` and `mad.wide`.
fn lower_wide(lowerer: &mut Lowerer<'_>, i: &Instruction, ty: T) -> Lowered {
    let big = match ty {
        T::U16 => T::U32,
        T::S16 => T::S32,
        T::U32 => T::U64,
        T::S32 => T::S64,
        _ => return Err(Trouble::Refused),
    };
    let add = i.opcode == O::Mad;
    let f = match (ty, add) {
        (T::U16, false) => alu::op2::<integer::MulWide<u16>>(),
        (T::S16, false) => alu::op2::<integer::MulWide<i16>>(),
        (T::U32, false) => alu::op2::<integer::MulWide<u32>>(),
        (T::S32, false) => alu::op2::<integer::MulWide<i32>>(),
        (T::U16, true) => alu::op3::<integer::MadWide<u16>>(),
        (T::S16, true) => alu::op3::<integer::MadWide<i16>>(),
        (T::U32, true) => alu::op3::<integer::MadWide<u32>>(),
        _ => alu::op3::<integer::MadWide<i32>>(),
    };
    let mut alu = Alu::new(f);
    let (d, a, b, c) = match i.operands.as_slice() {
        [d, a, b] if !add => (d, a, b, None),
        [d, a, b, c] if add => (d, a, b, Some(c)),
        _ => return reject("wrong number of operands"),
    };
    alu.a = lowerer.lower_source32(a, ty)?;
    alu.b = lowerer.lower_source32(b, ty)?;
    if let Some(c) = c {
        alu.c = lowerer.lower_source(c, big)?;
    }
    alu.d = lowerer.lower_target(d, big)?;
    lowerer.emit_alu(alu);
    Ok(())
}

fn lower_min_max(lowerer: &mut Lowerer<'_>, i: &Instruction, ty: T) -> Lowered {
    let max = i.opcode == O::Max;
    let relu = i.has(Word::Relu);
    let f = if max { by_integer!(ty, I => alu::op2::<integer::Max<I>>()) } else { by_integer!(ty, I => alu::op2::<integer::Min<I>>()) };
    lowerer.emit_uniform(f, &i.operands, ty)?;
    if relu {
        let Some(d) = i.operands.first() else { return reject("operands are missing") };
        let d = lowerer.lower_target32(d)?;
        let zero = lowerer.intern_constant32(0);
        lowerer.emit_alu(Alu { d, a: d, b: zero, ..Alu::new(alu::op2::<integer::Max<i32>>()) });
    }
    Ok(())
}

/// Instructions on the halves or the bytes of a register, each by itself.
fn lower_parts(lowerer: &mut Lowerer<'_>, i: &Instruction, ty: T) -> Lowered {
    let operation = match i.opcode {
        O::Add => video::ADD,
        O::Sub | O::Neg => video::SUB,
        O::Min => video::MIN,
        O::Max => video::MAX,
        _ => return Err(Trouble::Refused),
    };
    let signed = if ty.is_signed() { video::SIGNED_A | video::SIGNED_B | video::SIGNED_D } else { 0 };
    let saturates = if i.has(Word::Sat) { video::SATURATE } else { 0 };
    let zero = lowerer.intern_constant32(0);
    let (d, a, b) = match i.operands.as_slice() {
        [d, a] if i.opcode == O::Neg => (d, zero, lowerer.lower_source32(a, T::B32)?),
        [d, a, b] if i.opcode != O::Neg => (d, lowerer.lower_source32(a, T::B32)?, lowerer.lower_source32(b, T::B32)?),
        _ => return reject("wrong number of operands"),
    };
    let f = || if matches!(ty, T::U16x2 | T::S16x2) { alu::op3x::<video::Simd<2>>() } else { alu::op3x::<video::Simd<4>>() };
    let d = lowerer.lower_target32(d)?;
    lowerer.emit_alu(Alu { a, b, c: zero, d, x: operation | signed | saturates, ..Alu::new(f()) });
    if i.has(Word::Relu) {
        lowerer.emit_alu(Alu { a: d, b: zero, c: zero, d, x: video::MAX | signed, ..Alu::new(f()) });
    }
    Ok(())
}

/// `add.cc`, `addc`, `sub.cc` and `subc`.
fn lower_carry(lowerer: &mut Lowerer<'_>, i: &Instruction, ty: T) -> Lowered {
    let [d, a, b] = exact_operands::<3>(i)?;
    // The condition code is the carry of `a + !b + 1`, not a borrow: `addc` may read what `sub.cc`
    // has written, and the hardware has one flag for both.
    let f = match (ty.bits(), i.opcode) {
        (32, O::Add | O::Addc) => alu::carry::<integer::AddCarry<u32>>(),
        (32, O::Sub) => alu::carry::<integer::SubCarry<u32>>(),
        (32, _) => alu::carry::<integer::SubWithCarry<u32>>(),
        (64, O::Add | O::Addc) => alu::carry::<integer::AddCarry<u64>>(),
        (64, O::Sub) => alu::carry::<integer::SubCarry<u64>>(),
        (64, _) => alu::carry::<integer::SubWithCarry<u64>>(),
        _ => return Err(Trouble::Refused),
    };
    let alu = Alu {
        a: lowerer.lower_source(a, ty)?,
        b: lowerer.lower_source(b, ty)?,
        c: if matches!(i.opcode, O::Addc | O::Subc) { lowerer.carry } else { NO_SLOT },
        e: if i.has(Word::Cc) { lowerer.carry } else { NO_SLOT },
        d: lowerer.lower_target(d, ty)?,
        ..Alu::new(f)
    };
    lowerer.emit_alu(alu);
    Ok(())
}

/// `mad.cc` and `madc`.
fn lower_mad_carry(lowerer: &mut Lowerer<'_>, i: &Instruction, ty: T) -> Lowered {
    let [d, a, b, c] = exact_operands::<4>(i)?;
    let high = i.has(Word::Hi);
    let f = match (ty, high) {
        (T::U32, false) => alu::mul_carry::<integer::MadLoCarry<u32>>(),
        (T::S32, false) => alu::mul_carry::<integer::MadLoCarry<i32>>(),
        (T::U64, false) => alu::mul_carry::<integer::MadLoCarry<u64>>(),
        (T::S64, false) => alu::mul_carry::<integer::MadLoCarry<i64>>(),
        (T::U32, true) => alu::mul_carry::<integer::MadHiCarry<u32>>(),
        (T::S32, true) => alu::mul_carry::<integer::MadHiCarry<i32>>(),
        (T::U64, true) => alu::mul_carry::<integer::MadHiCarry<u64>>(),
        (T::S64, true) => alu::mul_carry::<integer::MadHiCarry<i64>>(),
        _ => return Err(Trouble::Refused),
    };
    let alu = Alu {
        a: lowerer.lower_source(a, ty)?,
        b: lowerer.lower_source(b, ty)?,
        c: lowerer.lower_source(c, ty)?,
        e: lowerer.carry,
        x: if i.opcode == O::Madc { alu::CARRY_IN } else { 0 } | if i.has(Word::Cc) { alu::CARRY_OUT } else { 0 },
        d: lowerer.lower_target(d, ty)?,
        ..Alu::new(f)
    };
    lowerer.emit_alu(alu);
    Ok(())
}

fn mul24(i: &Instruction, ty: T) -> Lowered<AluFunction> {
    let signed = ty.is_signed();
    Ok(match (i.opcode, i.has(Word::Hi), signed) {
        (O::Mul24, false, false) => alu::op2::<integer::Mul24LoU>(),
        (O::Mul24, false, true) => alu::op2::<integer::Mul24LoS>(),
        (O::Mul24, true, false) => alu::op2::<integer::Mul24HiU>(),
        (O::Mul24, true, true) => alu::op2::<integer::Mul24HiS>(),
        (_, true, true) if i.has(Word::Sat) => alu::op3::<integer::Mad24HiSat>(),
        (_, false, false) => alu::op3::<integer::Mad24LoU>(),
        (_, false, true) => alu::op3::<integer::Mad24LoS>(),
        (_, true, false) => alu::op3::<integer::Mad24HiU>(),
        (_, true, true) => alu::op3::<integer::Mad24HiS>(),
    })
}

/// `dp2a` and `dp4a`.
fn lower_dot(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered {
    let [d, a, b, c] = exact_operands::<4>(i)?;
    let (Some(ta), Some(tb)) = (i.ty(0), i.ty(1)) else { return reject("two types are needed") };
    let f = match (i.opcode, ta.is_signed(), tb.is_signed()) {
        (O::Dp2a, _, _) => alu::op3x::<integer::Dp2a>(),
        (_, false, false) => alu::op3::<integer::Dp4aUU>(),
        (_, false, true) => alu::op3::<integer::Dp4aUS>(),
        (_, true, false) => alu::op3::<integer::Dp4aSU>(),
        (_, true, true) => alu::op3::<integer::Dp4aSS>(),
    };
    let flags = [(ta.is_signed(), integer::DP2A_SIGNED_A), (tb.is_signed(), integer::DP2A_SIGNED_B), (i.has(Word::Hi), integer::DP2A_HIGH)];
    let x = flags.iter().filter(|(on, _)| *on).fold(0, |all, (_, bit)| all | bit);
    let alu = Alu {
        a: lowerer.lower_source32(a, T::B32)?,
        b: lowerer.lower_source32(b, T::B32)?,
        c: lowerer.lower_source32(c, T::S32)?,
        d: lowerer.lower_target32(d)?,
        x,
        ..Alu::new(f)
    };
    lowerer.emit_alu(alu);
    Ok(())
}

fn lower_shift(lowerer: &mut Lowerer<'_>, i: &Instruction, ty: T) -> Lowered {
    let [d, a, n] = exact_operands::<3>(i)?;
    let f = if i.opcode == O::Shl { by_width!(ty, I => alu::op2::<integer::Shl<I>>()) } else { by_integer!(ty, I => alu::op2::<integer::Shr<I>>()) };
    let alu = Alu { a: lowerer.lower_source(a, ty)?, b: lowerer.lower_source32(n, T::U32)?, d: lowerer.lower_target(d, ty)?, ..Alu::new(f) };
    lowerer.emit_alu(alu);
    Ok(())
}

/// `shf`.
fn lower_funnel(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered {
    let f = match (i.has(Word::Left), i.has(Word::Wrap)) {
        (true, false) => alu::op3::<bits::ShfLeftClamp>(),
        (true, true) => alu::op3::<bits::ShfLeftWrap>(),
        (false, false) => alu::op3::<bits::ShfRightClamp>(),
        (false, true) => alu::op3::<bits::ShfRightWrap>(),
    };
    lowerer.emit_uniform(f, &i.operands, T::B32)
}

/// `lop3.b32 d, a, b, c, table`; with `.and` or `.or` also a predicate `d|p` and a source predicate
/// `q`.
fn lower_lop3(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered {
    let [target, a, b, c, Operand::Imm(table), q @ ..] = i.operands.as_slice() else { return Err(Trouble::Refused) };
    let table = table.bits(T::U32) as u16 & 0xff;
    let (a, b, c) = (lowerer.lower_source32(a, T::B32)?, lowerer.lower_source32(b, T::B32)?, lowerer.lower_source32(c, T::B32)?);
    let (d, p, q) = match (target, q) {
        (Operand::Pair(pair), [q]) => (&pair.0, lowerer.lower_predicate_target(&pair.1)?, lowerer.lower_plain_predicate(q)?),
        (_, []) => (target, NO_SLOT, NO_SLOT),
        _ => return Err(Trouble::Refused),
    };
    let d = lowerer.lower_target32(d)?;
    lowerer.emit_alu(Alu { d, a, b, c, x: table, ..Alu::new(bits::lop3(table)) });
    if p == NO_SLOT {
        return Ok(());
    }
    let how = match i.bool_op() {
        Some(BoolOp::And) => PredicateHow::And,
        Some(BoolOp::Or) => PredicateHow::Or,
        _ => return Err(Trouble::Refused),
    };
    // A lane that is not to write has nothing to compare: its result stays as it is.
    let (zero, is_set) = (lowerer.intern_constant32(0), lowerer.new_temporary_p());
    lowerer.emit_always(Op::Alu(Alu { d: is_set, a: d, b: zero, ..Alu::new(alu::test2::<integer::Ne<u32>>()) }));
    lowerer.emit(Op::Predicate(PredicateOp { how, d: p, a: is_set, b: q }));
    Ok(())
}

/// `prmt`.
fn lower_permute(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered {
    let f = if i.has(Word::F4e) {
        alu::op3::<bits::PrmtF4e>()
    } else if i.has(Word::B4e) {
        alu::op3::<bits::PrmtB4e>()
    } else if i.has(Word::Rc8) {
        alu::op3::<bits::PrmtRc8>()
    } else if i.has(Word::Ecl) {
        alu::op3::<bits::PrmtEcl>()
    } else if i.has(Word::Ecr) {
        alu::op3::<bits::PrmtEcr>()
    } else if i.has(Word::Rc16) {
        alu::op3::<bits::PrmtRc16>()
    } else {
        alu::op3::<bits::Prmt>()
    };
    lowerer.emit_uniform(f, &i.operands, T::B32)
}

/// `bfe` and `bfi`.
fn lower_field(lowerer: &mut Lowerer<'_>, i: &Instruction, ty: T) -> Lowered {
    let [d, values @ .., pos, len] = i.operands.as_slice() else { return reject("operands are missing") };
    let f = match (i.opcode, ty) {
        (O::Bfe, T::U32) => alu::op3::<bits::BfeU32>(),
        (O::Bfe, T::S32) => alu::op3::<bits::BfeS32>(),
        (O::Bfe, T::U64) => alu::op3::<bits::BfeU64>(),
        (O::Bfe, T::S64) => alu::op3::<bits::BfeS64>(),
        (O::Bfi, T::B32) => alu::op4::<bits::Bfi32>(),
        (O::Bfi, T::B64) => alu::op4::<bits::Bfi64>(),
        _ => return Err(Trouble::Refused),
    };
    let mut alu = Alu::new(f);
    let (pos, len) = (lowerer.lower_source32(pos, T::U32)?, lowerer.lower_source32(len, T::U32)?);
    match values {
        [a] if i.opcode == O::Bfe => (alu.a, alu.b, alu.c) = (lowerer.lower_source(a, ty)?, pos, len),
        [a, b] if i.opcode == O::Bfi => (alu.a, alu.b, alu.c, alu.e) = (lowerer.lower_source(a, ty)?, lowerer.lower_source(b, ty)?, pos, len),
        _ => return reject("wrong number of operands"),
    }
    alu.d = lowerer.lower_target(d, ty)?;
    lowerer.emit_alu(alu);
    Ok(())
}

fn bfind(i: &Instruction, ty: T) -> Lowered<AluFunction> {
    Ok(match (ty, i.has(Word::Shiftamt)) {
        (T::U32, false) => alu::op1::<bits::BfindU32>(),
        (T::S32, false) => alu::op1::<bits::BfindS32>(),
        (T::U64, false) => alu::op1::<bits::BfindU64>(),
        (T::S64, false) => alu::op1::<bits::BfindS64>(),
        (T::U32, true) => alu::op1::<bits::BfindShiftU32>(),
        (T::S32, true) => alu::op1::<bits::BfindShiftS32>(),
        (T::U64, true) => alu::op1::<bits::BfindShiftU64>(),
        (T::S64, true) => alu::op1::<bits::BfindShiftS64>(),
        _ => return Err(Trouble::Refused),
    })
}
