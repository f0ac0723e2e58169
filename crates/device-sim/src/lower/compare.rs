//! set, setp, selp, slct.

use super::arithmetic::by_integer;
use super::body::{Lowered, Lowerer, Trouble, exactly, first_type, wrong};
use super::code::{Op, PredicateHow, PredicateOp};
use crate::exec::lanes::NO_SLOT;
use crate::exec::level::{self, Alu, Function, JOIN_AND, JOIN_NEGATED, JOIN_OR, JOIN_XOR, SET_FLOAT, Test2};
use crate::exec::ops::half::{B, CompareH, CompareHalf, H, SetTwo};
use crate::exec::ops::{float, integer};
use cumux_ptx::ast::{BoolOp, CmpOp, Instruction, Opcode as O, Operand, ScalarType as T, Word};

/// The shape a comparison is wanted in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Plain,
    Join,
    Set,
}

fn shaped<C: Test2>(shape: Shape) -> Function {
    match shape {
        Shape::Plain => level::test2::<C>(),
        Shape::Join => level::test2_join::<C>(),
        Shape::Set => level::set32::<C>(),
    }
}

/// 0 eq … 5 ge, 6 num, 7 nan, 8 to 13 the unordered ones; as in `ops::half::holds`.
pub(super) fn code(cmp: CmpOp, ty: T) -> Lowered<u8> {
    let float = ty.is_float();
    Ok(match cmp {
        CmpOp::Eq => 0,
        CmpOp::Ne => 1,
        CmpOp::Lt | CmpOp::Lo => 2,
        CmpOp::Le | CmpOp::Ls => 3,
        CmpOp::Gt | CmpOp::Hi => 4,
        CmpOp::Ge | CmpOp::Hs => 5,
        CmpOp::Num if float => 6,
        CmpOp::Nan if float => 7,
        CmpOp::Equ if float => 8,
        CmpOp::Neu if float => 9,
        CmpOp::Ltu if float => 10,
        CmpOp::Leu if float => 11,
        CmpOp::Gtu if float => 12,
        CmpOp::Geu if float => 13,
        _ => return wrong("this comparison is for floating-point types"),
    })
}

macro_rules! half_codes {
    ($code:expr, $shape:expr, $name:ident, $t:ty $(, $extra:expr)*) => {
        match $code {
            0 => shaped::<$name<$t, 0 $(, $extra)*>>($shape),
            1 => shaped::<$name<$t, 1 $(, $extra)*>>($shape),
            2 => shaped::<$name<$t, 2 $(, $extra)*>>($shape),
            3 => shaped::<$name<$t, 3 $(, $extra)*>>($shape),
            4 => shaped::<$name<$t, 4 $(, $extra)*>>($shape),
            5 => shaped::<$name<$t, 5 $(, $extra)*>>($shape),
            6 => shaped::<$name<$t, 6 $(, $extra)*>>($shape),
            7 => shaped::<$name<$t, 7 $(, $extra)*>>($shape),
            8 => shaped::<$name<$t, 8 $(, $extra)*>>($shape),
            9 => shaped::<$name<$t, 9 $(, $extra)*>>($shape),
            10 => shaped::<$name<$t, 10 $(, $extra)*>>($shape),
            11 => shaped::<$name<$t, 11 $(, $extra)*>>($shape),
            12 => shaped::<$name<$t, 12 $(, $extra)*>>($shape),
            _ => shaped::<$name<$t, 13 $(, $extra)*>>($shape),
        }
    };
}

macro_rules! set_two {
    ($code:expr, $t:ty, $float:expr) => {
        match $code {
            0 => level::op2::<SetTwo<$t, 0, $float>>(),
            1 => level::op2::<SetTwo<$t, 1, $float>>(),
            2 => level::op2::<SetTwo<$t, 2, $float>>(),
            3 => level::op2::<SetTwo<$t, 3, $float>>(),
            4 => level::op2::<SetTwo<$t, 4, $float>>(),
            5 => level::op2::<SetTwo<$t, 5, $float>>(),
            6 => level::op2::<SetTwo<$t, 6, $float>>(),
            7 => level::op2::<SetTwo<$t, 7, $float>>(),
            8 => level::op2::<SetTwo<$t, 8, $float>>(),
            9 => level::op2::<SetTwo<$t, 9, $float>>(),
            10 => level::op2::<SetTwo<$t, 10, $float>>(),
            11 => level::op2::<SetTwo<$t, 11, $float>>(),
            12 => level::op2::<SetTwo<$t, 12, $float>>(),
            _ => level::op2::<SetTwo<$t, 13, $float>>(),
        }
    };
}

macro_rules! float_codes {
    ($code:expr, $shape:expr, $ftz:expr; $($n:literal $single:ident $double:ident),*) => {
        match ($code, $ftz) {
            $(
                ($n, 0) => shaped::<float::$single<false>>($shape),
                ($n, 1) => shaped::<float::$single<true>>($shape),
                ($n, _) => shaped::<float::$double>($shape),
            )*
            _ => return Err(Trouble::Refused),
        }
    };
}

fn comparison(cmp: CmpOp, ty: T, ftz: bool, shape: Shape) -> Lowered<Function> {
    let code = code(cmp, ty)?;
    // lo, ls, hi and hs compare as unsigned whatever the type says.
    let ty = match (cmp, ty) {
        (CmpOp::Lo | CmpOp::Ls | CmpOp::Hi | CmpOp::Hs, T::S16) => T::U16,
        (CmpOp::Lo | CmpOp::Ls | CmpOp::Hi | CmpOp::Hs, T::S32) => T::U32,
        (CmpOp::Lo | CmpOp::Ls | CmpOp::Hi | CmpOp::Hs, T::S64) => T::U64,
        _ => ty,
    };
    Ok(match ty {
        T::F16 => half_codes!(code, shape, CompareH, H),
        T::Bf16 => half_codes!(code, shape, CompareH, B),
        T::F32 | T::F64 => {
            let which = if ty == T::F64 { 2 } else { u8::from(ftz) };
            float_codes!(code, shape, which;
                0 Eq32 Eq64, 1 Ne32 Ne64, 2 Lt32 Lt64, 3 Le32 Le64, 4 Gt32 Gt64, 5 Ge32 Ge64, 6 Num32 Num64, 7 Nan32 Nan64,
                8 Equ32 Equ64, 9 Neu32 Neu64, 10 Ltu32 Ltu64, 11 Leu32 Leu64, 12 Gtu32 Gtu64, 13 Geu32 Geu64)
        }
        _ => by_integer!(ty, I => match code {
            0 => shaped::<integer::Eq<I>>(shape),
            1 => shaped::<integer::Ne<I>>(shape),
            2 => shaped::<integer::Lt<I>>(shape),
            3 => shaped::<integer::Le<I>>(shape),
            4 => shaped::<integer::Gt<I>>(shape),
            _ => shaped::<integer::Ge<I>>(shape),
        }),
    })
}

/// The joining predicate and `x`.
fn joined(lowerer: &mut Lowerer<'_>, i: &Instruction, c: Option<&Operand>) -> Lowered<(u16, u16)> {
    let (Some(op), Some(c)) = (i.bool_op(), c) else { return Ok((NO_SLOT, 0)) };
    let (c, negated) = lowerer.predicate(c)?;
    let x = match op {
        BoolOp::And => JOIN_AND,
        BoolOp::Or => JOIN_OR,
        BoolOp::Xor => JOIN_XOR,
    };
    Ok((c, x | if negated { JOIN_NEGATED } else { 0 }))
}

fn setp(lowerer: &mut Lowerer<'_>, i: &Instruction, cmp: CmpOp) -> Lowered {
    let ty = first_type(i)?;
    let [d, a, b, rest @ ..] = i.operands.as_slice() else { return wrong("operands are missing") };
    let (p, q) = match d {
        Operand::Pair(pair) => (lowerer.predicate_target(&pair.0)?, lowerer.predicate_target(&pair.1)?),
        _ => (lowerer.predicate_target(d)?, NO_SLOT),
    };
    let (c, x) = joined(lowerer, i, rest.first())?;
    if matches!(ty, T::F16x2 | T::Bf16x2) {
        let (a, b) = (lowerer.source32(a, T::B32)?, lowerer.source32(b, T::B32)?);
        let code = code(cmp, ty)?;
        for (d, high) in [(p, false), (q, true)] {
            let f = match (ty, high) {
                (T::F16x2, false) => half_codes!(code, Shape::Join, CompareHalf, H, false),
                (T::F16x2, true) => half_codes!(code, Shape::Join, CompareHalf, H, true),
                (_, false) => half_codes!(code, Shape::Join, CompareHalf, B, false),
                (_, true) => half_codes!(code, Shape::Join, CompareHalf, B, true),
            };
            lowerer.alu(Alu { d, a, b, c, x, ..Alu::new(f) });
        }
        return Ok(());
    }
    let shape = if x == 0 && q == NO_SLOT { Shape::Plain } else { Shape::Join };
    let f = comparison(cmp, ty, i.has(Word::Ftz), shape)?;
    let alu = Alu { d: p, e: q, a: lowerer.source(a, ty)?, b: lowerer.source(b, ty)?, c, x, ..Alu::new(f) };
    lowerer.alu(alu);
    Ok(())
}

fn set(lowerer: &mut Lowerer<'_>, i: &Instruction, cmp: CmpOp) -> Lowered {
    let (Some(to), Some(from)) = (i.ty(0), i.ty(1)) else { return wrong("two types are needed") };
    let [d, a, b, rest @ ..] = i.operands.as_slice() else { return wrong("operands are missing") };
    if matches!(from, T::F16x2 | T::Bf16x2) {
        if !rest.is_empty() {
            return Err(Trouble::Refused);
        }
        let code = code(cmp, from)?;
        let f = match (from == T::F16x2, to.is_float()) {
            (true, true) => set_two!(code, H, true),
            (true, false) => set_two!(code, H, false),
            (false, true) => set_two!(code, B, true),
            (false, false) => set_two!(code, B, false),
        };
        return lowerer.same(f, &i.operands, T::B32);
    }
    let (c, x) = joined(lowerer, i, rest.first())?;
    let x = x | if to == T::F32 { SET_FLOAT } else { 0 };
    let f = comparison(cmp, from, i.has(Word::Ftz), Shape::Set)?;
    let alu = Alu { a: lowerer.source(a, from)?, b: lowerer.source(b, from)?, c, x, d: lowerer.target32(d)?, ..Alu::new(f) };
    match to {
        T::U32 | T::S32 | T::B32 | T::F32 => lowerer.alu(alu),
        T::F16 | T::Bf16 | T::U16 | T::S16 => {
            let one: u32 = match to {
                T::F16 => 0x3c00,
                T::Bf16 => 0x3f80,
                _ => 0xffff,
            };
            let temporary = lowerer.temporary32();
            lowerer.emit_always(Op::Alu(Alu { d: temporary, ..alu }));
            let mask = lowerer.constant32(one);
            lowerer.alu(Alu { d: alu.d, a: temporary, b: mask, ..Alu::new(level::op2::<integer::And<u32>>()) });
        }
        _ => return Err(Trouble::Refused),
    }
    Ok(())
}

pub(super) fn lower(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered {
    match (i.opcode, i.cmp()) {
        (O::Setp, Some(cmp)) => setp(lowerer, i, cmp),
        (O::Set, Some(cmp)) => set(lowerer, i, cmp),
        (O::Selp, _) => {
            let ty = first_type(i)?;
            let [d, a, b, c] = exactly::<4>(i)?;
            if ty == T::Pred {
                let (a, b, c) = (lowerer.plain_predicate(a)?, lowerer.plain_predicate(b)?, lowerer.plain_predicate(c)?);
                let d = lowerer.predicate_target(d)?;
                lowerer.emit(Op::Predicate(PredicateOp { how: PredicateHow::Select(c), d, a, b }));
                return Ok(());
            }
            let f = if ty.bits() > 32 { level::select::<u64>() } else { level::select::<u32>() };
            let alu = Alu {
                a: lowerer.source(a, ty)?,
                b: lowerer.source(b, ty)?,
                c: lowerer.plain_predicate(c)?,
                d: lowerer.target(d, ty)?,
                ..Alu::new(f)
            };
            lowerer.alu(alu);
            Ok(())
        }
        (O::Slct, _) => {
            let (Some(ty), Some(sign)) = (i.ty(0), i.ty(1)) else { return wrong("two types are needed") };
            let [d, a, b, c] = exactly::<4>(i)?;
            let wide = ty.bits() > 32;
            let f = match (sign, wide, i.has(Word::Ftz)) {
                (T::S32, false, _) => level::op3::<integer::Slct<u32>>(),
                (T::S32, true, _) => level::op3::<integer::Slct<u64>>(),
                (T::F32, false, false) => level::op3::<integer::SlctF<u32>>(),
                (T::F32, true, false) => level::op3::<integer::SlctF<u64>>(),
                (T::F32, false, true) => level::op3::<integer::SlctFtz<u32>>(),
                (T::F32, true, true) => level::op3::<integer::SlctFtz<u64>>(),
                _ => return Err(Trouble::Refused),
            };
            let alu = Alu {
                a: lowerer.source(a, ty)?,
                b: lowerer.source(b, ty)?,
                c: lowerer.source32(c, sign)?,
                d: lowerer.target(d, ty)?,
                ..Alu::new(f)
            };
            lowerer.alu(alu);
            Ok(())
        }
        _ => wrong("a comparison is needed"),
    }
}
