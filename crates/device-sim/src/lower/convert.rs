//! cvt, cvta and mov.

use super::arithmetic;
use super::body::{Lowered, Lowerer, Trouble, exactly, first_type, wrong};
use super::code::Op;
use super::floating::{mode, modes};
use super::registers::Class;
use crate::exec::interface::{LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW};
use crate::exec::lanes::Slot;
use crate::exec::level::{self, Alu, Function};
use crate::exec::ops::convert::{Clamp, Cut, FromInt, Integral, PackTwo, Relu, Resize, ToInt};
use crate::exec::ops::half::{B, H};
use crate::exec::ops::round::{RM, RN, RNA, RP, RZ};
use crate::exec::ops::{bits, float, integer};
use cumux_ptx::ast::{Instruction, Opcode as O, Operand, Rounding, ScalarType as T, StateSpace, SymbolRef, Word};

/// `$make` for the Rust type of an integer type, 8-bit ones included.
macro_rules! by_whole {
    ($ty:expr, $t:ident => $make:expr) => {
        match $ty {
            T::U8 | T::B8 => { type $t = u8; $make }
            T::S8 => { type $t = i8; $make }
            T::U16 | T::B16 => { type $t = u16; $make }
            T::S16 => { type $t = i16; $make }
            T::U32 | T::B32 => { type $t = u32; $make }
            T::S32 => { type $t = i32; $make }
            T::U64 | T::B64 => { type $t = u64; $make }
            T::S64 => { type $t = i64; $make }
            _ => return Err(Trouble::Refused),
        }
    };
}

macro_rules! by_real {
    ($ty:expr, $t:ident => $make:expr) => {
        match $ty {
            T::F16 => { type $t = H; $make }
            T::Bf16 => { type $t = B; $make }
            T::F32 => { type $t = f32; $make }
            T::F64 => { type $t = f64; $make }
            _ => return Err(Trouble::Refused),
        }
    };
}

pub(super) fn lower(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered {
    if i.opcode == O::Cvta {
        return cvta(lowerer, i);
    }
    let (Some(to), Some(from)) = (i.ty(0), i.ty(1)) else { return wrong("two types are needed") };
    if matches!(to, T::F16x2 | T::Bf16x2) && from == T::F32 {
        return pack(lowerer, i, to);
    }
    let [d, a] = exactly::<2>(i)?;
    let f = conversion(i, to, from)?;
    let source = lowerer.source(a, from)?;
    let target = match d {
        Operand::Reg(register) => Some(lowerer.class_of(*register)),
        _ => None,
    };
    let wide = to.bits() > 32;
    // A result narrower than its register is extended to it.
    let (extends, into_wide) = match (d, target) {
        (Operand::Reg(register), Some(Class::Narrow)) => {
            let width = lowerer.tree.register(*register).ty.bits();
            (to.is_integer() && to.bits() < width && to.is_signed(), false)
        }
        (_, Some(Class::Wide)) if !wide => (true, true),
        _ => (false, false),
    };
    if !extends {
        let alu = Alu { a: source, d: lowerer.target(d, to)?, ..Alu::new(f) };
        lowerer.alu(alu);
        return Ok(());
    }
    let temporary = lowerer.temporary32();
    lowerer.emit_always(Op::Alu(Alu { a: source, d: temporary, ..Alu::new(f) }));
    let (f, d) = if into_wide {
        (by_whole!(if to.is_float() { T::U32 } else { to }, S => level::op1::<Cut<S, u64>>()), lowerer.target64(d)?)
    } else {
        let Operand::Reg(register) = d else { return wrong("a register is expected here") };
        let width = lowerer.tree.register(*register).ty.bits();
        let f = if width == 16 { level::op1::<Cut<i8, i16>>() } else { by_whole!(to, S => level::op1::<Cut<S, i32>>()) };
        (f, lowerer.target32(d)?)
    };
    lowerer.alu(Alu { a: temporary, d, ..Alu::new(f) });
    Ok(())
}

fn conversion(i: &Instruction, to: T, from: T) -> Lowered<Function> {
    let (ftz, sat) = (i.has(Word::Ftz), i.has(Word::Sat));
    if i.has(Word::Satfinite) || i.has(Word::Scaled) {
        return Err(Trouble::Refused);
    }
    Ok(match (to.is_float(), from.is_float()) {
        (false, false) if sat => by_whole!(from, S => by_whole!(to, D => level::op1::<Clamp<S, D>>())),
        (false, false) => by_whole!(from, S => by_whole!(to, D => level::op1::<Cut<S, D>>())),
        (false, true) => {
            let mode = mode(i)?;
            modes!(mode, ftz, M F => by_real!(from, S => by_whole!(to, D => level::op1::<ToInt<S, D, M, F>>())))
        }
        (true, false) => {
            let mode = mode(i)?;
            modes!(@mode mode, M => modes!(@flag sat, F => by_whole!(from, S => by_real!(to, D => level::op1::<FromInt<S, D, M, F>>()))))
        }
        (true, true) if to == T::Tf32 => return Err(Trouble::Refused),
        (true, true) if i.has(Word::Relu) => {
            let mode = mode(i)?;
            modes!(@mode mode, M => by_real!(from, S => by_real!(to, D => level::op1::<Relu<S, D, M>>())))
        }
        (true, true) if to == from && i.rounding() == Some(Rounding::Rna) => by_real!(to, D => level::op1::<Integral<D, RNA, false, false>>()),
        (true, true) if to == from && is_integral(i) => {
            let mode = mode(i)?;
            modes!(mode, ftz, sat, M F S => by_real!(to, D => level::op1::<Integral<D, M, F, S>>()))
        }
        (true, true) => {
            let mode = mode(i)?;
            modes!(mode, ftz, sat, M F S => by_real!(from, A => by_real!(to, D => level::op1::<Resize<A, D, M, F, S>>())))
        }
    })
}

fn is_integral(i: &Instruction) -> bool {
    matches!(i.rounding(), Some(Rounding::Rni | Rounding::Rzi | Rounding::Rmi | Rounding::Rpi))
}

fn pack(lowerer: &mut Lowerer<'_>, i: &Instruction, to: T) -> Lowered {
    if i.has(Word::Satfinite) || i.operands.len() != 3 {
        return Err(Trouble::Refused);
    }
    let mode = mode(i)?;
    let f = match (to, i.has(Word::Relu)) {
        (T::F16x2, false) => modes!(@mode mode, M => level::op2::<PackTwo<H, M, false>>()),
        (T::F16x2, true) => modes!(@mode mode, M => level::op2::<PackTwo<H, M, true>>()),
        (_, false) => modes!(@mode mode, M => level::op2::<PackTwo<B, M, false>>()),
        (_, true) => modes!(@mode mode, M => level::op2::<PackTwo<B, M, true>>()),
    };
    lowerer.same(f, &i.operands, T::F32)
}

fn cvta(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered {
    let [d, a] = exactly::<2>(i)?;
    let ty = first_type(i)?;
    let kernel = lowerer.plan.module.function(lowerer.function).kind == cumux_ptx::ast::FunctionKind::Entry;
    let window = match i.space() {
        Some(space) if space.is_shared() => SHARED_WINDOW,
        Some(StateSpace::Local) => LOCAL_WINDOW,
        Some(space) if space.is_param() => if kernel { PARAM_WINDOW } else { LOCAL_WINDOW },
        _ => 0,
    };
    let a = lowerer.source(a, ty)?;
    let d = lowerer.target(d, ty)?;
    if ty.bits() != 64 {
        // 32-bit generic addresses do not exist on 64-bit machines.
        return Err(Trouble::Refused);
    }
    if window == 0 {
        lowerer.alu(Alu { d, a, ..Alu::new(level::op1::<integer::Move<u64>>()) });
        return Ok(());
    }
    let b = lowerer.constant64(window);
    let f = if i.has(Word::To) { level::op2::<integer::Sub<u64>>() } else { level::op2::<integer::Add<u64>>() };
    lowerer.alu(Alu { d, a, b, ..Alu::new(f) });
    Ok(())
}

pub(super) fn mov(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered {
    let ty = first_type(i)?;
    let [d, a] = exactly::<2>(i)?;
    if ty == T::Pred {
        return arithmetic::move_predicate(lowerer, i);
    }
    match (d, a) {
        (Operand::Vector(parts), Operand::Vector(values)) if parts.len() == values.len() => {
            // Copied through temporaries: the lists may overlap.
            let mut copies = Vec::new();
            for value in values {
                let from = lowerer.source(value, ty)?;
                let to = copy_of(lowerer, from, ty.bits() > 32);
                copies.push(to);
            }
            for (part, from) in parts.iter().zip(copies) {
                let d = lowerer.target(part, ty)?;
                move_slot(lowerer, d, from, ty.bits() > 32);
            }
            Ok(())
        }
        (Operand::Vector(parts), _) => unpack(lowerer, parts, a, ty),
        (_, Operand::Vector(values)) => join(lowerer, d, values, ty),
        _ if ty == T::B128 => {
            let (Operand::Reg(d), Operand::Reg(a)) = (d, a) else { return Err(Trouble::Refused) };
            let (d, a) = (lowerer.register(*d, Class::Double)?, lowerer.register(*a, Class::Double)?);
            move_slot(lowerer, d, a, true);
            move_slot(lowerer, d + 1, a + 1, true);
            Ok(())
        }
        (_, Operand::Symbol { symbol: SymbolRef::Local(id), .. }) if lowerer.tree.variable(*id).space.is_param() => {
            wrong("the parameters of a call have no address")
        }
        (_, Operand::Special(special)) => {
            // Special registers go straight to their register where the widths agree.
            let (what, _) = super::body::special_of(*special)?;
            match d {
                Operand::Reg(register) if (lowerer.class_of(*register) == Class::Wide) == what.is_wide() && lowerer.class_of(*register) != Class::Predicate => {
                    let d = lowerer.slot_of(*register);
                    lowerer.emit(Op::Special { d, what });
                }
                _ => {
                    let a = lowerer.source(a, ty)?;
                    let d = lowerer.target(d, ty)?;
                    move_slot(lowerer, d, a, ty.bits() > 32);
                }
            }
            Ok(())
        }
        _ => {
            let a = lowerer.source(a, ty)?;
            let d = lowerer.target(d, ty)?;
            move_slot(lowerer, d, a, ty.bits() > 32);
            Ok(())
        }
    }
}

pub(super) fn move_slot(lowerer: &mut Lowerer<'_>, d: Slot, a: Slot, wide: bool) {
    let f = if wide { level::op1::<integer::Move<u64>>() } else { level::op1::<integer::Move<u32>>() };
    lowerer.alu(Alu { d, a, ..Alu::new(f) });
}

fn copy_of(lowerer: &mut Lowerer<'_>, a: Slot, wide: bool) -> Slot {
    let d = if wide { lowerer.temporary64() } else { lowerer.temporary32() };
    move_slot(lowerer, d, a, wide);
    d
}

fn join(lowerer: &mut Lowerer<'_>, d: &Operand, values: &[Operand], ty: T) -> Lowered {
    if ty == T::B128 {
        let (Operand::Reg(register), [low, high]) = (d, values) else { return Err(Trouble::Refused) };
        let d = lowerer.register(*register, Class::Double)?;
        let (low, high) = (lowerer.source64(low, T::B64)?, lowerer.source64(high, T::B64)?);
        let (low, high) = (copy_of(lowerer, low, true), copy_of(lowerer, high, true));
        move_slot(lowerer, d, low, true);
        move_slot(lowerer, d + 1, high, true);
        return Ok(());
    }
    let (f, part) = match (ty.bits(), values.len()) {
        (16, 2) => (level::op2::<bits::Join8>(), T::B8),
        (32, 2) => (level::op2::<bits::Join16>(), T::B16),
        (32, 4) => (level::op4::<bits::Join8x4>(), T::B8),
        (64, 2) => (level::op2::<bits::Join32>(), T::B32),
        (64, 4) => (level::op4::<bits::Join16x4>(), T::B16),
        _ => return wrong("these parts do not make up the whole"),
    };
    let mut alu = Alu::new(f);
    for (n, value) in values.iter().enumerate() {
        let slot = lowerer.source32(value, part)?;
        match n {
            0 => alu.a = slot,
            1 => alu.b = slot,
            2 => alu.c = slot,
            _ => alu.e = slot,
        }
    }
    alu.d = lowerer.target(d, ty)?;
    lowerer.alu(alu);
    Ok(())
}

fn unpack(lowerer: &mut Lowerer<'_>, parts: &[Operand], a: &Operand, ty: T) -> Lowered {
    if ty == T::B128 {
        let (Operand::Reg(register), [low, high]) = (a, parts) else { return Err(Trouble::Refused) };
        let a = lowerer.register(*register, Class::Double)?;
        let (low, high) = (lowerer.target64(low)?, lowerer.target64(high)?);
        move_slot(lowerer, low, a, true);
        move_slot(lowerer, high, a + 1, true);
        return Ok(());
    }
    let f = match (ty.bits(), parts.len()) {
        (16, 2) | (32, 4) => level::op2::<bits::Part8>(),
        (32, 2) => level::op2::<bits::Part16>(),
        (64, 2) => level::op2::<bits::Part32>(),
        (64, 4) => level::op2::<bits::Part16of64>(),
        _ => return wrong("these parts do not make up the whole"),
    };
    let source = lowerer.source(a, ty)?;
    // A part may be the source itself.
    let clash = ty.bits() <= 32 && parts.iter().any(|part| part == a);
    let source = if clash { copy_of(lowerer, source, false) } else { source };
    for (n, part) in parts.iter().enumerate() {
        if *part == Operand::Sink {
            continue;
        }
        let d = lowerer.target32(part)?;
        let n = lowerer.constant32(n as u32);
        lowerer.alu(Alu { d, a: source, b: n, ..Alu::new(f) });
    }
    Ok(())
}

const _: u32 = float::NAN32;
