//! `cvt`, `cvta` and `mov` (PTX ISA, *Data Movement and Conversion Instructions*).

use super::arithmetic;
use super::body::{Lowerer, exact_operands, first_type};
use super::error::{Lowered, Trouble, reject};
use super::floating::rounding_mode;
use super::registers::Class;
use crate::program::code::Op;
use crate::program::window;
use crate::simd::alu::{self, Alu, AluFunction};
use crate::simd::lanes::RegisterSlot;
use crate::simd::ops::convert::{
    ConversionSpec, Cut, FromInt, Integral, NumberKind, PACK_BRAIN, PACK_MODE, PACK_RELU, PACK_SATFINITE, PACK_SIGNED, PackIntegers, PackTwo, Resize, Saturate,
    ToInt, described_conversion,
};
use crate::simd::ops::half::{B, H};
use crate::simd::ops::narrow::Narrow;
use crate::simd::ops::round::{RM, RN, RNA, RP, RZ};
use crate::simd::ops::{bits, integer, narrow};
use cumux_ptx::ast::{Instruction, Modifier, Opcode as O, Operand, Rounding, ScalarType as T, StateSpace, SymbolRef, Word};

/// The number of a type in conversions.
fn kind_of(ty: T) -> Lowered<NumberKind> {
    Ok(match ty {
        T::U8 | T::B8 => NumberKind::U8,
        T::S8 => NumberKind::S8,
        T::U16 | T::B16 => NumberKind::U16,
        T::S16 => NumberKind::S16,
        T::U32 | T::B32 => NumberKind::U32,
        T::S32 => NumberKind::S32,
        T::U64 | T::B64 => NumberKind::U64,
        T::S64 => NumberKind::S64,
        T::F16 => NumberKind::Half,
        T::Bf16 => NumberKind::Brain,
        T::F32 => NumberKind::Single,
        T::F64 => NumberKind::Double,
        _ => return Err(Trouble::Refused),
    })
}

/// Integer to integer: cut, or extended by the source's sign. A signed destination has the bits of
/// the unsigned one.
fn integer_conversion(from: NumberKind, to: NumberKind) -> AluFunction {
    macro_rules! to {
        ($s:ty) => {
            match to {
                NumberKind::U8 | NumberKind::S8 => alu::op1::<Cut<$s, u8>>(),
                NumberKind::U16 | NumberKind::S16 => alu::op1::<Cut<$s, u16>>(),
                NumberKind::U32 | NumberKind::S32 => alu::op1::<Cut<$s, u32>>(),
                _ => alu::op1::<Cut<$s, u64>>(),
            }
        };
    }
    match from {
        NumberKind::U8 => to!(u8),
        NumberKind::S8 => to!(i8),
        NumberKind::U16 => to!(u16),
        NumberKind::S16 => to!(i16),
        NumberKind::U32 => to!(u32),
        NumberKind::S32 => to!(i32),
        _ => to!(u64),
    }
}

/// Code of their own for the conversions that ordinary programs use most.
fn common_conversion(spec: ConversionSpec) -> Option<AluFunction> {
    use NumberKind as K;
    let whole = |kind: K| matches!(kind, K::U8 | K::S8 | K::U16 | K::S16 | K::U32 | K::S32 | K::U64 | K::S64);
    if spec.sat && !spec.relu && !spec.integral && (spec.from, spec.to) == (K::Single, K::Single) {
        return Some(if spec.ftz { alu::op1::<Saturate<true>>() } else { alu::op1::<Saturate<false>>() });
    }
    // A subnormal is rounded to the same integer as 0, unless it is rounded up or down.
    let flushes = spec.ftz && !(spec.from == K::Single && matches!(spec.to, K::S32 | K::U32) && matches!(spec.mode, RZ | RN));
    if flushes || spec.sat || spec.relu {
        return None;
    }
    if whole(spec.from) && whole(spec.to) {
        return Some(integer_conversion(spec.from, spec.to));
    }
    Some(match (spec.from, spec.to, spec.mode) {
        (K::Single, K::S32, RZ) => alu::op1::<ToInt<f32, i32, RZ>>(),
        (K::Single, K::U32, RZ) => alu::op1::<ToInt<f32, u32, RZ>>(),
        (K::Single, K::S32, RN) => alu::op1::<ToInt<f32, i32, RN>>(),
        (K::Single, K::S64, RZ) => alu::op1::<ToInt<f32, i64, RZ>>(),
        (K::Double, K::S32, RZ) => alu::op1::<ToInt<f64, i32, RZ>>(),
        (K::Double, K::U32, RZ) => alu::op1::<ToInt<f64, u32, RZ>>(),
        (K::Double, K::S64, RZ) => alu::op1::<ToInt<f64, i64, RZ>>(),
        (K::U8, K::Single, RN) => alu::op1::<FromInt<u8, f32, RN>>(),
        (K::S8, K::Single, RN) => alu::op1::<FromInt<i8, f32, RN>>(),
        (K::U16, K::Single, RN) => alu::op1::<FromInt<u16, f32, RN>>(),
        (K::S16, K::Single, RN) => alu::op1::<FromInt<i16, f32, RN>>(),
        (K::S32, K::Single, RN) => alu::op1::<FromInt<i32, f32, RN>>(),
        (K::U32, K::Single, RN) => alu::op1::<FromInt<u32, f32, RN>>(),
        (K::S64, K::Single, RN) => alu::op1::<FromInt<i64, f32, RN>>(),
        (K::U64, K::Single, RN) => alu::op1::<FromInt<u64, f32, RN>>(),
        (K::S32, K::Double, RN) => alu::op1::<FromInt<i32, f64, RN>>(),
        (K::U32, K::Double, RN) => alu::op1::<FromInt<u32, f64, RN>>(),
        (K::S64, K::Double, RN) => alu::op1::<FromInt<i64, f64, RN>>(),
        (K::U64, K::Double, RN) => alu::op1::<FromInt<u64, f64, RN>>(),
        (K::Single, K::Single, RN) if spec.integral => alu::op1::<Integral<f32, RN>>(),
        (K::Single, K::Single, RZ) if spec.integral => alu::op1::<Integral<f32, RZ>>(),
        (K::Single, K::Single, RM) if spec.integral => alu::op1::<Integral<f32, RM>>(),
        (K::Single, K::Single, RP) if spec.integral => alu::op1::<Integral<f32, RP>>(),
        (K::Double, K::Double, RN) if spec.integral => alu::op1::<Integral<f64, RN>>(),
        (K::Double, K::Double, RZ) if spec.integral => alu::op1::<Integral<f64, RZ>>(),
        (K::Double, K::Double, RM) if spec.integral => alu::op1::<Integral<f64, RM>>(),
        (K::Double, K::Double, RP) if spec.integral => alu::op1::<Integral<f64, RP>>(),
        (K::Single, K::Double, _) => alu::op1::<Resize<f32, f64, RN>>(),
        (K::Double, K::Single, RN) => alu::op1::<Resize<f64, f32, RN>>(),
        (K::Half, K::Single, _) => alu::op1::<Resize<H, f32, RN>>(),
        (K::Brain, K::Single, _) => alu::op1::<Resize<B, f32, RN>>(),
        (K::Single, K::Half, RN) => alu::op1::<Resize<f32, H, RN>>(),
        (K::Single, K::Brain, RN) => alu::op1::<Resize<f32, B, RN>>(),
        _ => return None,
    })
}

pub(super) fn lower(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered {
    if i.opcode == O::Cvta {
        return lower_cvta(lowerer, i);
    }
    let (Some(to), Some(from)) = (i.ty(0), i.ty(1)) else { return reject("two types are needed") };
    if i.has(Word::Pack) {
        return lower_integer_pack(lowerer, i, to, from);
    }
    if matches!(to, T::F16x2 | T::Bf16x2) && from == T::F32 {
        return lower_pack(lowerer, i, to);
    }
    if let (Some(format), _) | (_, Some(format)) = (narrow_of(to), narrow_of(from)) {
        return lower_narrow(lowerer, i, to, from, format);
    }
    if to == T::Ue8m0x2 || from == T::Ue8m0x2 {
        return lower_powers(lowerer, i, to, from);
    }
    let [d, a] = i.operands.as_slice() else { return Err(Trouble::Refused) };
    if to == T::Tf32 || i.has(Word::Satfinite) {
        return lower_limited(lowerer, i, to, from, d, a);
    }
    let (f, x) = select_conversion(i, to, from)?;
    let source = lowerer.lower_source(a, from)?;
    let target = match d {
        Operand::Reg(register) => Some(lowerer.class_of(*register)),
        _ => None,
    };
    let wide = to.bits() > 32;
    // A result narrower than its register is extended.
    let (extends, into_wide) = match (d, target) {
        (Operand::Reg(register), Some(Class::Narrow)) => {
            let width = lowerer.tree.register(*register).ty.bits();
            (to.is_integer() && to.bits() < width && to.is_signed(), false)
        }
        (_, Some(Class::Wide)) if !wide => (true, true),
        _ => (false, false),
    };
    if !extends {
        let alu = Alu { a: source, x, d: lowerer.lower_target(d, to)?, ..Alu::new(f) };
        lowerer.emit_alu(alu);
        return Ok(());
    }
    let temporary = lowerer.new_temporary32();
    lowerer.emit_always(Op::Alu(Alu { a: source, x, d: temporary, ..Alu::new(f) }));
    let (f, d) = if into_wide {
        (integer_conversion(kind_of(if to.is_float() { T::U32 } else { to })?, NumberKind::U64), lowerer.lower_target64(d)?)
    } else {
        let Operand::Reg(register) = d else { return reject("a register is expected here") };
        let width = lowerer.tree.register(*register).ty.bits();
        let f = integer_conversion(kind_of(to)?, if width == 16 { NumberKind::U16 } else { NumberKind::U32 });
        (f, lowerer.lower_target32(d)?)
    };
    lowerer.emit_alu(Alu { a: temporary, d, ..Alu::new(f) });
    Ok(())
}

/// The function of a conversion, and its immediate.
fn select_conversion(i: &Instruction, to: T, from: T) -> Lowered<(AluFunction, u16)> {
    if i.has(Word::Scaled) {
        return Err(Trouble::Refused);
    }
    let mode = if i.rounding() == Some(Rounding::Rna) { RNA } else { rounding_mode(i)? };
    let integral = to == from && matches!(i.rounding(), Some(Rounding::Rni | Rounding::Rzi | Rounding::Rmi | Rounding::Rpi));
    let spec = ConversionSpec { from: kind_of(from)?, to: kind_of(to)?, mode, ftz: i.has(Word::Ftz), sat: i.has(Word::Sat), relu: i.has(Word::Relu), integral };
    Ok(match common_conversion(spec) {
        Some(f) => (f, 0),
        None => (described_conversion(from.bits() > 32, to.bits() > 32), spec.encode()),
    })
}

/// `cvt` of two values into one register.
fn lower_pack(lowerer: &mut Lowerer<'_>, i: &Instruction, to: T) -> Lowered {
    let [d, a, b] = i.operands.as_slice() else { return Err(Trouble::Refused) };
    let x = pack_immediate(i, to == T::Bf16x2)?;
    let (a, b) = (lowerer.lower_source32(a, T::F32)?, lowerer.lower_source32(b, T::F32)?);
    let d = lowerer.lower_target32(d)?;
    lowerer.emit_alu(Alu { d, a, b, c: a, x, ..Alu::new(alu::rare3x::<PackTwo>()) });
    Ok(())
}

/// The immediate of [`PackTwo`].
fn pack_immediate(i: &Instruction, brain: bool) -> Lowered<u16> {
    let flag = |is_set: bool, flag: u16| if is_set { flag } else { 0 };
    let flags = flag(brain, PACK_BRAIN) | flag(i.has(Word::Relu), PACK_RELU) | flag(i.has(Word::Satfinite), PACK_SATFINITE);
    Ok(flags | u16::from(rounding_mode(i)?) << PACK_MODE)
}

/// `cvt` of a single to `.tf32`, or with `.satfinite` to a half or a bfloat16.
fn lower_limited(lowerer: &mut Lowerer<'_>, i: &Instruction, to: T, from: T, d: &Operand, a: &Operand) -> Lowered {
    if from != T::F32 || i.has(Word::Ftz) || i.has(Word::Sat) {
        return Err(Trouble::Refused);
    }
    let flag = |word, flag: u16| if i.has(word) { flag } else { 0 };
    let (f, x) = match to {
        T::Tf32 => {
            let mode = match i.rounding() {
                Some(Rounding::Rn) => RN,
                Some(Rounding::Rz) => RZ,
                Some(Rounding::Rna) => RNA,
                _ => return Err(Trouble::Refused),
            };
            let flags = flag(Word::Relu, narrow::RELU) | flag(Word::Satfinite, narrow::SATFINITE);
            // What `__float_to_tf32` of C++ is has code of its own.
            if mode == RNA && flags == 0 { (alu::op1::<narrow::RoundingAway19>(), 0) } else { (alu::rare3x::<narrow::Rounding19>(), u16::from(mode) | flags) }
        }
        T::F16 | T::Bf16 => (alu::rare3x::<PackTwo>(), pack_immediate(i, to == T::Bf16)?),
        _ => return Err(Trouble::Refused),
    };
    let (a, zero) = (lowerer.lower_source32(a, T::F32)?, lowerer.intern_constant32(0));
    let d = lowerer.lower_target32(d)?;
    // The second source of a pack becomes the low half.
    let (a, b) = if to == T::Tf32 { (a, zero) } else { (zero, a) };
    lowerer.emit_alu(Alu { d, a, b, c: zero, x, ..Alu::new(f) });
    Ok(())
}

/// The format of which a type has two.
fn narrow_of(ty: T) -> Option<Narrow> {
    Some(match ty {
        T::E4m3x2 => Narrow::E4m3,
        T::E5m2x2 => Narrow::E5m2,
        T::E3m2x2 => Narrow::E3m2,
        T::E2m3x2 => Narrow::E2m3,
        T::E2m1x2 => Narrow::E2m1,
        _ => return None,
    })
}

/// `cvt` between two numbers of a narrow format, and two singles or two halves.
fn lower_narrow(lowerer: &mut Lowerer<'_>, i: &Instruction, to: T, from: T, format: Narrow) -> Lowered {
    let known = |m: &Modifier| matches!(m, Modifier::Type(_) | Modifier::Round(Rounding::Rn) | Modifier::Word(Word::Relu | Word::Satfinite));
    if !i.modifiers.iter().all(known) || i.rounding() != Some(Rounding::Rn) || narrow_of(from).is_none() != i.has(Word::Satfinite) {
        return Err(Trouble::Refused);
    }
    let relu = if i.has(Word::Relu) { narrow::RELU } else { 0 };
    let (f, x, d, a, b) = match (from, i.operands.as_slice()) {
        (T::F32, [d, a, b]) => (alu::rare3x::<narrow::Narrowing>(), 0, d, a, b),
        (T::F16x2, [d, a]) => (alu::rare3x::<narrow::Narrowing>(), narrow::OF_HALVES, d, a, a),
        (_, [d, a]) if to == T::F16x2 => (alu::rare3x::<narrow::Widening>(), 0, d, a, a),
        _ => return Err(Trouble::Refused),
    };
    let (a, b) = (lowerer.lower_source32(a, T::B32)?, lowerer.lower_source32(b, T::B32)?);
    let d = lowerer.lower_target32(d)?;
    lowerer.emit_alu(Alu { d, a, b, c: a, x: x | relu | narrow::format_code(format), ..Alu::new(f) });
    Ok(())
}

/// `cvt` between two exponents of powers of two, and two singles or two bfloat16.
fn lower_powers(lowerer: &mut Lowerer<'_>, i: &Instruction, to: T, from: T) -> Lowered {
    let known = |m: &Modifier| matches!(m, Modifier::Type(_) | Modifier::Round(_) | Modifier::Word(Word::Satfinite));
    let (f, x, d, a, b) = match (to, from, i.rounding(), i.operands.as_slice()) {
        (T::Ue8m0x2, T::F32, Some(mode @ (Rounding::Rz | Rounding::Rp)), [d, a, b]) => {
            let up = if mode == Rounding::Rp { narrow::UP } else { 0 };
            let limited = if i.has(Word::Satfinite) { narrow::LIMITED } else { 0 };
            (alu::rare3x::<narrow::Powers>(), up | limited, d, a, b)
        }
        (T::Bf16x2, T::Ue8m0x2, Some(Rounding::Rn), [d, a]) if !i.has(Word::Satfinite) => (alu::rare3x::<narrow::PowersToBrain>(), 0, d, a, a),
        _ => return Err(Trouble::Refused),
    };
    if !i.modifiers.iter().all(known) {
        return Err(Trouble::Refused);
    }
    let (a, b) = (lowerer.lower_source32(a, T::B32)?, lowerer.lower_source32(b, T::B32)?);
    let d = lowerer.lower_target32(d)?;
    lowerer.emit_alu(Alu { d, a, b, c: a, x, ..Alu::new(f) });
    Ok(())
}

/// `cvt.pack`: two integers, saturated, and the low bits of a third source above them.
fn lower_integer_pack(lowerer: &mut Lowerer<'_>, i: &Instruction, to: T, from: T) -> Lowered {
    let (d, a, b, c) = match i.operands.as_slice() {
        [d, a, b] => (d, a, b, None),
        [d, a, b, c] => (d, a, b, Some(c)),
        _ => return Err(Trouble::Refused),
    };
    // Results of 16 bits fill the register; narrower ones leave room.
    let whole = matches!(to, T::U16 | T::S16) && c.is_none();
    let part = matches!(to, T::U8 | T::S8 | T::U4 | T::S4 | T::U2 | T::S2) && c.is_some() && i.ty(2) == Some(T::B32);
    if !(whole || part) || from != T::S32 || !i.has(Word::Sat) {
        return Err(Trouble::Refused);
    }
    let (a, b) = (lowerer.lower_source32(a, from)?, lowerer.lower_source32(b, from)?);
    let c = match c {
        Some(c) => lowerer.lower_source32(c, T::B32)?,
        None => lowerer.intern_constant32(0),
    };
    let d = lowerer.lower_target32(d)?;
    let x = to.bits() as u16 | if to.is_signed() { PACK_SIGNED } else { 0 };
    lowerer.emit_alu(Alu { d, a, b, c, x, ..Alu::new(alu::rare3x::<PackIntegers>()) });
    Ok(())
}

fn lower_cvta(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered {
    let [d, a] = exact_operands::<2>(i)?;
    let ty = first_type(i)?;
    let kernel = lowerer.plan.module.function(lowerer.function).kind == cumux_ptx::ast::FunctionKind::Entry;
    let start = match i.space() {
        Some(space) if space.is_shared() => window::SHARED.start,
        Some(StateSpace::Local) => window::LOCAL.start,
        Some(space) if space.is_param() => {
            if kernel {
                window::PARAM.start
            } else {
                window::LOCAL.start
            }
        }
        _ => 0,
    };
    let a = lowerer.lower_source(a, ty)?;
    let d = lowerer.lower_target(d, ty)?;
    if ty.bits() != 64 {
        // 64-bit machines have no generic addresses of 32 bits.
        return Err(Trouble::Refused);
    }
    if start == 0 {
        lowerer.emit_alu(Alu { d, a, ..Alu::new(alu::op1::<integer::Move<u64>>()) });
        return Ok(());
    }
    let b = lowerer.intern_constant64(start);
    let f = if i.has(Word::To) { alu::op2::<integer::Sub<u64>>() } else { alu::op2::<integer::Add<u64>>() };
    lowerer.emit_alu(Alu { d, a, b, ..Alu::new(f) });
    Ok(())
}

pub(super) fn lower_mov(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered {
    let ty = first_type(i)?;
    let [d, a] = exact_operands::<2>(i)?;
    if ty == T::Pred {
        return arithmetic::move_predicate(lowerer, i);
    }
    match (d, a) {
        (Operand::Vector(parts), Operand::Vector(values)) if parts.len() == values.len() => {
            // Through temporaries, since the lists may overlap.
            let mut copies = Vec::new();
            for value in values {
                let from = lowerer.lower_source(value, ty)?;
                let to = copy_to_temporary(lowerer, from, ty.bits() > 32);
                copies.push(to);
            }
            for (part, from) in parts.iter().zip(copies) {
                let d = lowerer.lower_target(part, ty)?;
                move_slot(lowerer, d, from, ty.bits() > 32);
            }
            Ok(())
        }
        (Operand::Vector(parts), _) => lower_unpack(lowerer, parts, a, ty),
        (_, Operand::Vector(values)) => lower_join(lowerer, d, values, ty),
        _ if ty == T::B128 => {
            let (Operand::Reg(d), Operand::Reg(a)) = (d, a) else { return Err(Trouble::Refused) };
            let (d, a) = (lowerer.expect_register(*d, Class::Double)?, lowerer.expect_register(*a, Class::Double)?);
            move_slot(lowerer, d, a, true);
            move_slot(lowerer, d + 1, a + 1, true);
            Ok(())
        }
        (_, Operand::Symbol { symbol: SymbolRef::Local(id), .. }) if lowerer.tree.variable(*id).space.is_param() => {
            reject("the parameters of a call have no address")
        }
        (_, Operand::Special(special)) => {
            // A special register goes straight to the destination if the widths agree.
            let (what, _) = super::body::special_of(*special)?;
            match d {
                Operand::Reg(register) if (lowerer.class_of(*register) == Class::Wide) == what.is_wide() && lowerer.class_of(*register) != Class::Predicate => {
                    let d = lowerer.slot_of(*register);
                    lowerer.emit(Op::Special { d, what });
                }
                _ => {
                    let a = lowerer.lower_source(a, ty)?;
                    let d = lowerer.lower_target(d, ty)?;
                    move_slot(lowerer, d, a, ty.bits() > 32);
                }
            }
            Ok(())
        }
        _ => {
            let a = lowerer.lower_source(a, ty)?;
            let d = lowerer.lower_target(d, ty)?;
            move_slot(lowerer, d, a, ty.bits() > 32);
            Ok(())
        }
    }
}

/// Copies a slot.
pub(super) fn move_slot(lowerer: &mut Lowerer<'_>, d: RegisterSlot, a: RegisterSlot, wide: bool) {
    let f = if wide { alu::op1::<integer::Move<u64>>() } else { alu::op1::<integer::Move<u32>>() };
    lowerer.emit_alu(Alu { d, a, ..Alu::new(f) });
}

/// Copies a slot to a temporary.
fn copy_to_temporary(lowerer: &mut Lowerer<'_>, a: RegisterSlot, wide: bool) -> RegisterSlot {
    let d = if wide { lowerer.new_temporary64() } else { lowerer.new_temporary32() };
    move_slot(lowerer, d, a, wide);
    d
}

/// `mov` of several values into one register.
fn lower_join(lowerer: &mut Lowerer<'_>, d: &Operand, values: &[Operand], ty: T) -> Lowered {
    if ty == T::B128 {
        let (Operand::Reg(register), [low, high]) = (d, values) else { return Err(Trouble::Refused) };
        let d = lowerer.expect_register(*register, Class::Double)?;
        let (low, high) = (lowerer.lower_source64(low, T::B64)?, lowerer.lower_source64(high, T::B64)?);
        let (low, high) = (copy_to_temporary(lowerer, low, true), copy_to_temporary(lowerer, high, true));
        move_slot(lowerer, d, low, true);
        move_slot(lowerer, d + 1, high, true);
        return Ok(());
    }
    let (f, part) = match (ty.bits(), values.len()) {
        (16, 2) => (alu::op2::<bits::Join8>(), T::B8),
        (32, 2) => (alu::op2::<bits::Join16>(), T::B16),
        (32, 4) => (alu::op4::<bits::Join8x4>(), T::B8),
        (64, 2) => (alu::op2::<bits::Join32>(), T::B32),
        (64, 4) => (alu::op4::<bits::Join16x4>(), T::B16),
        _ => return reject("these parts do not make up the whole"),
    };
    let mut alu = Alu::new(f);
    for (n, value) in values.iter().enumerate() {
        let slot = lowerer.lower_source32(value, part)?;
        match n {
            0 => alu.a = slot,
            1 => alu.b = slot,
            2 => alu.c = slot,
            _ => alu.e = slot,
        }
    }
    alu.d = lowerer.lower_target(d, ty)?;
    lowerer.emit_alu(alu);
    Ok(())
}

/// `mov` of one register into several.
fn lower_unpack(lowerer: &mut Lowerer<'_>, parts: &[Operand], a: &Operand, ty: T) -> Lowered {
    if ty == T::B128 {
        let (Operand::Reg(register), [low, high]) = (a, parts) else { return Err(Trouble::Refused) };
        let a = lowerer.expect_register(*register, Class::Double)?;
        let (low, high) = (lowerer.lower_target64(low)?, lowerer.lower_target64(high)?);
        move_slot(lowerer, low, a, true);
        move_slot(lowerer, high, a + 1, true);
        return Ok(());
    }
    let f = match (ty.bits(), parts.len()) {
        (16, 2) | (32, 4) => alu::op2::<bits::Part8>(),
        (32, 2) => alu::op2::<bits::Part16>(),
        (64, 2) => alu::op2::<bits::Part32>(),
        (64, 4) => alu::op2::<bits::Part16of64>(),
        _ => return reject("these parts do not make up the whole"),
    };
    let source = lowerer.lower_source(a, ty)?;
    // A part may be the source itself. Other registers never share its slot.
    let clash = ty.bits() <= 32 && parts.iter().any(|part| part == a);
    let source = if clash { copy_to_temporary(lowerer, source, false) } else { source };
    for (n, part) in parts.iter().enumerate() {
        if *part == Operand::Sink {
            continue;
        }
        let d = lowerer.lower_target32(part)?;
        let n = lowerer.intern_constant32(n as u32);
        lowerer.emit_alu(Alu { d, a: source, b: n, ..Alu::new(f) });
    }
    Ok(())
}
