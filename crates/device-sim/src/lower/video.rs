//! The video instructions (PTX ISA, "Scalar Video Instructions" and "SIMD Video Instructions").

use super::body::Lowerer;
use super::compare;
use super::error::{Lowered, Trouble, reject};
use crate::program::code::Op;
use crate::simd::alu::{self, Alu};
use crate::simd::ops::{bits, video};
use cumux_ptx::ast::{Instruction, Opcode as O, Operand, ReduceOp, ScalarType as T, Selector, Word};

/// The SIMD video instructions on whole registers, and the scalar ones without a second operation.
pub(super) fn lower(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered {
    let (operation, parts) = match i.opcode {
        O::Vadd => (video::ADD, 1),
        O::Vsub => (video::SUB, 1),
        O::Vabsdiff => (video::ABSDIFF, 1),
        O::Vmin => (video::MIN, 1),
        O::Vmax => (video::MAX, 1),
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
        Some(ReduceOp::Add) if parts > 1 => true,
        Some(_) => return Err(Trouble::Refused),
    };
    let [d, a, b, rest @ ..] = i.operands.as_slice() else { return reject("operands are missing") };
    // Without `.add`, the third source only fills parts that are not written; here all parts are.
    let c = match rest {
        [c] if parts > 1 => lowerer.lower_source32(c, T::B32)?,
        [] => lowerer.intern_constant32(0),
        _ => return Err(Trouble::Refused),
    };
    let mut x = operation;
    x |= if ta.is_signed() { video::SIGNED_A } else { 0 };
    x |= if tb.is_signed() { video::SIGNED_B } else { 0 };
    x |= if td.is_signed() { video::SIGNED_D } else { 0 };
    x |= if i.has(Word::Sat) { video::SATURATE } else { 0 };
    x |= if sum { video::SUM } else { 0 };
    let a = source(lowerer, a, ta, parts)?;
    let b = source(lowerer, b, tb, parts)?;
    let f = match parts {
        1 => alu::op3x::<video::Simd<1>>(),
        2 => alu::op3x::<video::Simd<2>>(),
        _ => alu::op3x::<video::Simd<4>>(),
    };
    let d = lowerer.lower_target32(d)?;
    lowerer.emit_alu(Alu { d, a, b, c, x, ..Alu::new(f) });
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
