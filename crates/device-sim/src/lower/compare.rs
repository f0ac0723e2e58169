//! `set`, `setp`, `selp` and `slct` (PTX ISA, *Comparison and Selection Instructions*).

use super::body::{Lowerer, exact_operands, first_type};
use super::by_type::{by_integer, by_width};
use super::error::{Lowered, Trouble, reject};
use crate::program::code::{Op, PredicateHow, PredicateOp};
use crate::simd::alu::{self, Alu, AluFunction};
use crate::simd::lanes::NO_SLOT;
use crate::simd::ops::comparison::Comparison as C;
use crate::simd::ops::{float, half, integer};
use cumux_ptx::ast::{BoolOp, CmpOp, Instruction, Opcode as O, Operand, ScalarType as T, Word};

/// The comparison that an instruction names.
pub(super) fn comparison_of(cmp: CmpOp, ty: T) -> Lowered<C> {
    let float = ty.is_float();
    Ok(match cmp {
        CmpOp::Eq => C::Equal,
        CmpOp::Ne => C::NotEqual,
        CmpOp::Lt | CmpOp::Lo => C::Less,
        CmpOp::Le | CmpOp::Ls => C::LessOrEqual,
        CmpOp::Gt | CmpOp::Hi => C::Greater,
        CmpOp::Ge | CmpOp::Hs => C::GreaterOrEqual,
        CmpOp::Num if float => C::Numbers,
        CmpOp::Nan if float => C::Nan,
        CmpOp::Equ if float => C::EqualUnordered,
        CmpOp::Neu if float => C::NotEqualUnordered,
        CmpOp::Ltu if float => C::LessUnordered,
        CmpOp::Leu if float => C::LessOrEqualUnordered,
        CmpOp::Gtu if float => C::GreaterUnordered,
        CmpOp::Geu if float => C::GreaterOrEqualUnordered,
        _ => return reject("this comparison is for floating-point types"),
    })
}

/// The test of two singles (with `.ftz` or without) or doubles.
macro_rules! float_tests {
    ($comparison:expr, $ty:expr, $ftz:expr; $($name:ident $single:ident $double:ident,)*) => {
        match $comparison {
            $(
                C::$name if $ty == T::F64 => alu::test2::<float::$double>(),
                C::$name if $ftz => alu::test2::<float::$single<true>>(),
                C::$name => alu::test2::<float::$single<false>>(),
            )*
        }
    };
}

/// A comparison into a predicate, and the immediate that it needs.
fn comparison_test(cmp: CmpOp, ty: T, ftz: bool) -> Lowered<(AluFunction, u16)> {
    let comparison = comparison_of(cmp, ty)?;
    // `lo`, `ls`, `hi` and `hs` compare as unsigned, whatever the type is.
    let ty = match (cmp, ty) {
        (CmpOp::Lo | CmpOp::Ls | CmpOp::Hi | CmpOp::Hs, T::S16) => T::U16,
        (CmpOp::Lo | CmpOp::Ls | CmpOp::Hi | CmpOp::Hs, T::S32) => T::U32,
        (CmpOp::Lo | CmpOp::Ls | CmpOp::Hi | CmpOp::Hs, T::S64) => T::U64,
        _ => ty,
    };
    let f = match ty {
        T::F16 | T::F16x2 => return Ok((half::compare(), comparison.encode() | if ftz { half::COMPARE_FTZ } else { 0 })),
        T::Bf16 | T::Bf16x2 => return Ok((half::compare(), comparison.encode() | half::COMPARE_BRAIN)),
        T::F32 | T::F64 => float_tests! { comparison, ty, ftz;
            Equal Eq32 Eq64, NotEqual Ne32 Ne64, Less Lt32 Lt64, LessOrEqual Le32 Le64, Greater Gt32 Gt64, GreaterOrEqual Ge32 Ge64,
            Numbers Num32 Num64, Nan Nan32 Nan64,
            EqualUnordered Equ32 Equ64, NotEqualUnordered Neu32 Neu64, LessUnordered Ltu32 Ltu64, LessOrEqualUnordered Leu32 Leu64,
            GreaterUnordered Gtu32 Gtu64, GreaterOrEqualUnordered Geu32 Geu64,
        },
        _ => match comparison {
            C::Equal => by_width!(ty, I => alu::test2::<integer::Eq<I>>()),
            C::NotEqual => by_width!(ty, I => alu::test2::<integer::Ne<I>>()),
            C::Less => by_integer!(ty, I => alu::test2::<integer::Lt<I>>()),
            C::LessOrEqual => by_integer!(ty, I => alu::test2::<integer::Le<I>>()),
            C::Greater => by_integer!(ty, I => alu::test2::<integer::Gt<I>>()),
            _ => by_integer!(ty, I => alu::test2::<integer::Ge<I>>()),
        },
    };
    Ok((f, 0))
}

/// Stores `result`, a temporary, in `d`, combined with the predicate `c` if there is one.
fn store_combined(lowerer: &mut Lowerer<'_>, i: &Instruction, result: u16, c: Option<u16>, d: u16) {
    let (how, b) = match (i.bool_op(), c) {
        (Some(BoolOp::And), Some(c)) => (PredicateHow::And, c),
        (Some(BoolOp::Or), Some(c)) => (PredicateHow::Or, c),
        (Some(BoolOp::Xor), Some(c)) => (PredicateHow::Xor, c),
        _ => (PredicateHow::Move, NO_SLOT),
    };
    lowerer.emit(Op::Predicate(PredicateOp { how, d, a: result, b }));
}

fn lower_setp(lowerer: &mut Lowerer<'_>, i: &Instruction, cmp: CmpOp) -> Lowered {
    let ty = first_type(i)?;
    let [d, a, b, rest @ ..] = i.operands.as_slice() else { return reject("operands are missing") };
    let (p, q) = match d {
        Operand::Pair(pair) => (lowerer.lower_predicate_target(&pair.0)?, lowerer.lower_predicate_target(&pair.1)?),
        _ => (lowerer.lower_predicate_target(d)?, NO_SLOT),
    };
    let (f, x) = comparison_test(cmp, ty, i.has(Word::Ftz))?;
    let (a, b) = (lowerer.lower_source(a, ty)?, lowerer.lower_source(b, ty)?);
    let c = match rest.first() {
        Some(c) => Some(lowerer.lower_plain_predicate(c)?),
        None => None,
    };
    let two = matches!(ty, T::F16x2 | T::Bf16x2);
    if c.is_none() && !two && q == NO_SLOT {
        lowerer.emit_alu(Alu { d: p, a, b, x, ..Alu::new(f) });
        return Ok(());
    }
    let (first, second) = (lowerer.new_temporary_p(), lowerer.new_temporary_p());
    lowerer.emit_always(Op::Alu(Alu { d: first, a, b, x, ..Alu::new(f) }));
    if two {
        lowerer.emit_always(Op::Alu(Alu { d: second, a, b, x: x | half::COMPARE_HIGH, ..Alu::new(f) }));
    } else {
        lowerer.emit_always(Op::Predicate(PredicateOp { how: PredicateHow::Not, d: second, a: first, b: NO_SLOT }));
    }
    // The combining predicate may be a destination too, so it is read first.
    let c = match c {
        Some(c) if q != NO_SLOT => {
            let copy = lowerer.new_temporary_p();
            lowerer.emit_always(Op::Predicate(PredicateOp { how: PredicateHow::Move, d: copy, a: c, b: NO_SLOT }));
            Some(copy)
        }
        other => other,
    };
    if p != NO_SLOT {
        store_combined(lowerer, i, first, c, p);
    }
    if q != NO_SLOT {
        store_combined(lowerer, i, second, c, q);
    }
    Ok(())
}

fn lower_set(lowerer: &mut Lowerer<'_>, i: &Instruction, cmp: CmpOp) -> Lowered {
    let (Some(to), Some(from)) = (i.ty(0), i.ty(1)) else { return reject("two types are needed") };
    let [d, a, b, rest @ ..] = i.operands.as_slice() else { return reject("operands are missing") };
    if matches!(from, T::F16x2 | T::Bf16x2) {
        if !rest.is_empty() {
            return Err(Trouble::Refused);
        }
        let flag = |is_set: bool, flag: u16| if is_set { flag } else { 0 };
        let flags = flag(to.is_float(), half::ONES) | flag(i.has(Word::Ftz), u16::from(half::FTZ) << half::FLAGS_SHIFT);
        let x = half::SET | comparison_of(cmp, from)?.encode() << half::COMPARISON_SHIFT | half::TWO | flags;
        let f = if from == T::F16x2 { alu::rare3x::<half::Any<half::H>>() } else { alu::rare3x::<half::Any<half::B>>() };
        let (a, b) = (lowerer.lower_source32(a, T::B32)?, lowerer.lower_source32(b, T::B32)?);
        let d = lowerer.lower_target32(d)?;
        lowerer.emit_alu(Alu { d, a, b, c: a, x, ..Alu::new(f) });
        return Ok(());
    }
    let (f, x) = comparison_test(cmp, from, i.has(Word::Ftz))?;
    let (a, b) = (lowerer.lower_source(a, from)?, lowerer.lower_source(b, from)?);
    let c = match rest.first() {
        Some(c) => Some(lowerer.lower_plain_predicate(c)?),
        None => None,
    };
    let (first, joined) = (lowerer.new_temporary_p(), lowerer.new_temporary_p());
    lowerer.emit_always(Op::Alu(Alu { d: first, a, b, x, ..Alu::new(f) }));
    store_combined(lowerer, i, first, c, joined);
    let yes = match to {
        T::U32 | T::S32 | T::B32 => u32::MAX,
        T::F32 => 1f32.to_bits(),
        T::F16 => 0x3c00,
        T::Bf16 => 0x3f80,
        T::U16 | T::S16 => 0xffff,
        _ => return Err(Trouble::Refused),
    };
    let (yes, no) = (lowerer.intern_constant32(yes), lowerer.intern_constant32(0));
    let d = lowerer.lower_target32(d)?;
    lowerer.emit_alu(Alu { d, a: yes, b: no, c: joined, ..Alu::new(alu::select::<u32>()) });
    Ok(())
}

pub(super) fn lower(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered {
    match (i.opcode, i.cmp()) {
        (O::Setp, Some(cmp)) => lower_setp(lowerer, i, cmp),
        (O::Set, Some(cmp)) => lower_set(lowerer, i, cmp),
        (O::Selp, _) => {
            let ty = first_type(i)?;
            let [d, a, b, c] = exact_operands::<4>(i)?;
            if ty == T::Pred {
                let (a, b, c) = (lowerer.lower_plain_predicate(a)?, lowerer.lower_plain_predicate(b)?, lowerer.lower_plain_predicate(c)?);
                let d = lowerer.lower_predicate_target(d)?;
                lowerer.emit(Op::Predicate(PredicateOp { how: PredicateHow::Select(c), d, a, b }));
                return Ok(());
            }
            let f = if ty.bits() > 32 { alu::select::<u64>() } else { alu::select::<u32>() };
            let alu = Alu {
                a: lowerer.lower_source(a, ty)?,
                b: lowerer.lower_source(b, ty)?,
                c: lowerer.lower_plain_predicate(c)?,
                d: lowerer.lower_target(d, ty)?,
                ..Alu::new(f)
            };
            lowerer.emit_alu(alu);
            Ok(())
        }
        (O::Slct, _) => {
            let (Some(ty), Some(sign)) = (i.ty(0), i.ty(1)) else { return reject("two types are needed") };
            let [d, a, b, c] = exact_operands::<4>(i)?;
            let wide = ty.bits() > 32;
            let f = match (sign, wide, i.has(Word::Ftz)) {
                (T::S32, false, _) => alu::op3::<integer::Slct<u32>>(),
                (T::S32, true, _) => alu::op3::<integer::Slct<u64>>(),
                (T::F32, false, false) => alu::op3::<integer::SlctF<u32>>(),
                (T::F32, true, false) => alu::op3::<integer::SlctF<u64>>(),
                (T::F32, false, true) => alu::op3::<integer::SlctFtz<u32>>(),
                (T::F32, true, true) => alu::op3::<integer::SlctFtz<u64>>(),
                _ => return Err(Trouble::Refused),
            };
            let alu = Alu {
                a: lowerer.lower_source(a, ty)?,
                b: lowerer.lower_source(b, ty)?,
                c: lowerer.lower_source32(c, sign)?,
                d: lowerer.lower_target(d, ty)?,
                ..Alu::new(f)
            };
            lowerer.emit_alu(alu);
            Ok(())
        }
        _ => reject("a comparison is needed"),
    }
}

#[cfg(test)]
mod tests {
    /// Compiles one comparison of two registers. Returns the error's text.
    fn compile_comparison(comparison: &str, ty: &str) -> Result<(), String> {
        let register = format!(".b{}", &ty[1..]);
        let text = format!(
            ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() {{\n.reg {register} %a, %b;\n.reg .pred %p;\n\
             setp.{comparison}.{ty} %p, %a, %b;\nret;\n}}\n"
        );
        crate::lower::compile(&text).map(|_| ()).map_err(|error| error.text)
    }

    /// PTX ISA, *Integer Comparisons* and *Floating Point Comparisons*.
    #[test]
    fn unordered_comparisons_are_for_floating_point_types() {
        for comparison in ["num", "nan", "equ", "neu", "ltu", "leu", "gtu", "geu"] {
            for ty in ["f16", "f32", "f64"] {
                assert_eq!(compile_comparison(comparison, ty), Ok(()), "{comparison}.{ty}");
            }
            for ty in ["u16", "s16", "u32", "s32", "u64", "s64"] {
                let error = compile_comparison(comparison, ty).expect_err(comparison);
                assert_eq!(error, "this comparison is for floating-point types", "{comparison}.{ty}");
            }
        }
    }
}
