//! The video instructions (PTX ISA, "Scalar Video Instructions" and "SIMD Video Instructions").

use super::body::Lowerer;
use super::compare;
use super::error::{Lowered, Trouble, reject};
use crate::program::code::Op;
use crate::simd::alu::{self, Alu};
use crate::simd::ops::{bits, video};
use cumux_ptx::ast::{Instruction, Opcode as O, Operand, ReduceOp, ScalarType as T, Selector, Word};

/// The scalar video instructions, and the SIMD ones on whole registers.
pub(super) fn lower(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered {
    let (operation, parts) = match i.opcode {
        O::Vadd | O::Vsub | O::Vabsdiff | O::Vmin | O::Vmax | O::Vshl | O::Vshr | O::Vset => return lower_scalar(lowerer, i),
        O::Vadd2 => (video::ADD, 2),
        O::Vsub2 => (video::SUB, 2),
        O::Vavrg2 => (video::AVRG, 2),
        O::Vabsdiff2 => (video::ABSDIFF, 2),
        O::Vmin2 => (video::MIN, 2),
        O::Vmax2 => (video::MAX, 2),
        O::Vadd4 => (video::ADD, 4),
        O::Vsub4 => (video::SUB, 4),
        O::Vavrg4 => (video::AVRG, 4),
        O::Vabsdiff4 => (video::ABSDIFF, 4),
        O::Vmin4 => (video::MIN, 4),
        O::Vmax4 => (video::MAX, 4),
        O::Vset2 | O::Vset4 => {
            let comparison = match i.cmp() {
                Some(cmp) => compare::comparison_of(cmp, T::S32)?,
                None => return reject("a comparison is needed"),
            };
            (video::COMPARE + comparison.encode(), if i.opcode == O::Vset2 { 2 } else { 4 })
        }
        _ => return Err(Trouble::Refused),
    };
    let types: Vec<T> = i.types().collect();
    let (td, ta, tb) = match types.as_slice() {
        [d, a, b] => (*d, *a, *b),
        [a, b] => (T::U32, *a, *b),
        _ => return reject("three types are needed"),
    };
    let sum = match i.reduce() {
        None => false,
        Some(ReduceOp::Add) => true,
        Some(_) => return Err(Trouble::Refused),
    };
    let [d, a, b, rest @ ..] = i.operands.as_slice() else { return reject("operands are missing") };
    // Without `.add`, the third source only fills parts that are not written; here all parts are.
    let c = match rest {
        [c] => lowerer.lower_source32(c, T::B32)?,
        [] => lowerer.intern_constant32(0),
        _ => return Err(Trouble::Refused),
    };
    if matches!(d, Operand::Selected { .. }) {
        return Err(Trouble::Refused);
    }
    let mut x = operation;
    x |= if ta.is_signed() { video::SIGNED_A } else { 0 };
    x |= if tb.is_signed() { video::SIGNED_B } else { 0 };
    x |= if td.is_signed() { video::SIGNED_D } else { 0 };
    x |= if i.has(Word::Sat) { video::SATURATE } else { 0 };
    x |= if sum { video::SUM } else { 0 };
    let a = source(lowerer, a, ta, parts)?;
    let b = source(lowerer, b, tb, parts)?;
    let f = match parts {
        2 => alu::op3x::<video::Simd<2>>(),
        _ => alu::op3x::<video::Simd<4>>(),
    };
    let d = lowerer.lower_target32(d)?;
    lowerer.emit_alu(Alu { d, a, b, c, x, ..Alu::new(f) });
    Ok(())
}

/// A scalar instruction: two parts of registers, and a third source that either joins the result in
/// a second operation, or has the result inserted.
fn lower_scalar(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered {
    let types: Vec<T> = i.types().collect();
    let (td, ta, tb) = match types.as_slice() {
        [d, a, b] => (*d, *a, *b),
        [a, b] if i.opcode == O::Vset => (T::U32, *a, *b),
        _ => return reject("three types are needed"),
    };
    let mut x = match i.opcode {
        O::Vadd => video::ADD,
        O::Vsub => video::SUB,
        O::Vabsdiff => video::ABSDIFF,
        O::Vmin => video::MIN,
        O::Vmax => video::MAX,
        O::Vshl => video::SHIFT_LEFT,
        O::Vshr => video::SHIFT_RIGHT,
        _ => match i.cmp() {
            Some(cmp) => video::COMPARE + compare::comparison_of(cmp, T::S32)?.encode(),
            None => return reject("a comparison is needed"),
        },
    };
    let flag = |is_set: bool, flag: u16| if is_set { flag } else { 0 };
    x |= flag(ta.is_signed(), video::SIGNED_A) | flag(tb.is_signed(), video::SIGNED_B) | flag(td.is_signed(), video::SIGNED_D);
    x |= flag(i.has(Word::Sat), video::SATURATE) | flag(i.has(Word::Wrap), video::WRAP);
    let [d, a, b, rest @ ..] = i.operands.as_slice() else { return reject("operands are missing") };
    let second = match i.reduce() {
        None => 0,
        Some(ReduceOp::Add) => video::SECOND_ADD,
        Some(ReduceOp::Min) => video::SECOND_MIN,
        Some(ReduceOp::Max) => video::SECOND_MAX,
        Some(_) => return Err(Trouble::Refused),
    };
    let (register, inserted) = match d {
        Operand::Selected { register, selector: Some(Selector::Byte(n)), negated: false } => (Operand::Reg(*register), Some((8 * u32::from(*n), 8))),
        Operand::Selected { register, selector: Some(Selector::Half(n)), negated: false } => (Operand::Reg(*register), Some((16 * u32::from(*n), 16))),
        Operand::Selected { .. } => return Err(Trouble::Refused),
        whole => (whole.clone(), None),
    };
    let c = match (rest, second, inserted) {
        ([c], 1.., None) | ([c], 0, Some(_)) => lowerer.lower_source32(c, T::B32)?,
        ([], 0, None) => lowerer.intern_constant32(0),
        _ => return Err(Trouble::Refused),
    };
    x |= second << video::SECOND_AT | inserted.map_or(0, |(_, width)| if width == 8 { 1 } else { 2 }) << video::WIDTH_AT;
    let (a, b) = (source(lowerer, a, ta, 1)?, source(lowerer, b, tb, 1)?);
    let d = lowerer.lower_target32(&register)?;
    let Some((at, width)) = inserted else {
        lowerer.emit_alu(Alu { d, a, b, c, x, ..Alu::new(alu::rare3x::<video::Scalar>()) });
        return Ok(());
    };
    let part = lowerer.new_temporary32();
    lowerer.emit_always(Op::Alu(Alu { d: part, a, b, c, x, ..Alu::new(alu::rare3x::<video::Scalar>()) }));
    let (at, width) = (lowerer.intern_constant32(at), lowerer.intern_constant32(width));
    lowerer.emit_alu(Alu { d, a: part, b: c, c: at, e: width, ..Alu::new(alu::op4::<bits::Bfi32>()) });
    Ok(())
}

/// A source of a scalar instruction, of which a part may be selected.
fn source(lowerer: &mut Lowerer<'_>, operand: &Operand, ty: T, parts: u32) -> Lowered<u16> {
    let Operand::Selected { register, selector, negated: false } = operand else { return lowerer.lower_source32(operand, T::B32) };
    let whole = Operand::Reg(*register);
    let a = lowerer.lower_source32(&whole, T::B32)?;
    let (pos, len) = match selector {
        None => return Ok(a),
        Some(Selector::Byte(n)) if parts == 1 => (8 * u32::from(*n), 8),
        Some(Selector::Half(n)) if parts == 1 => (16 * u32::from(*n), 16),
        Some(Selector::Halves([1, 0]) | Selector::Bytes([3, 2, 1, 0])) => return Ok(a),
        Some(_) => return Err(Trouble::Refused),
    };
    let d = lowerer.new_temporary32();
    let (b, c) = (lowerer.intern_constant32(pos), lowerer.intern_constant32(len));
    let f = if ty.is_signed() { alu::op3::<bits::BfeS32>() } else { alu::op3::<bits::BfeU32>() };
    lowerer.emit_always(Op::Alu(Alu { d, a, b, c, ..Alu::new(f) }));
    Ok(d)
}
