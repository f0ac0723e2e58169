//! Floating-point arithmetic of all widths.

use super::body::{Lowered, Lowerer, Trouble, exactly, first_type, wrong};
use crate::exec::level::{self, Alu, Function};
use crate::exec::ops::float::{self, *};
use crate::exec::ops::half::{AbsH, AddH, B, Ex2H, FTZ, FmaH, H, MinMaxH, MulH, NegH, PLAIN, RELU, SAT, SubH, TanhH, Two};
use crate::exec::ops::round::{RM, RN, RP, RZ};
use cumux_ptx::ast::{Instruction, Opcode as O, Rounding, ScalarType as T, Word};

/// `$make` with the rounding mode, flush and saturate of an instruction as constants.
macro_rules! modes {
    ($mode:expr, $ftz:expr, $sat:expr, $m:ident $f:ident $s:ident => $make:expr) => {
        modes!(@mode $mode, $m => modes!(@flag $ftz, $f => modes!(@flag $sat, $s => $make)))
    };
    ($mode:expr, $ftz:expr, $m:ident $f:ident => $make:expr) => {
        modes!(@mode $mode, $m => modes!(@flag $ftz, $f => $make))
    };
    (@mode $mode:expr, $m:ident => $make:expr) => {
        match $mode {
            RZ => { const $m: u8 = RZ; $make }
            RM => { const $m: u8 = RM; $make }
            RP => { const $m: u8 = RP; $make }
            _ => { const $m: u8 = RN; $make }
        }
    };
    (@flag $flag:expr, $f:ident => $make:expr) => {
        if $flag { const $f: bool = true; $make } else { const $f: bool = false; $make }
    };
}
pub(super) use modes;

pub(super) fn mode(i: &Instruction) -> Lowered<u8> {
    Ok(match i.rounding() {
        None | Some(Rounding::Rn | Rounding::Rni) => RN,
        Some(Rounding::Rz | Rounding::Rzi) => RZ,
        Some(Rounding::Rm | Rounding::Rmi) => RM,
        Some(Rounding::Rp | Rounding::Rpi) => RP,
        Some(_) => return Err(Trouble::Refused),
    })
}

pub(super) fn lower(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered {
    let ty = first_type(i)?;
    // Sums of a single and a half, and the like.
    if i.types().nth(1).is_some() {
        return Err(Trouble::Refused);
    }
    let f = match ty {
        T::F32 => single(i)?,
        T::F64 => double(i)?,
        T::F16 | T::Bf16 | T::F16x2 | T::Bf16x2 => half(i, ty)?,
        T::B32 if i.opcode == O::Copysign => level::op2::<CopySign32>(),
        T::F32x2 => return Err(Trouble::Refused),
        _ => return wrong(format!("{} is not for this type", i.mnemonic())),
    };
    if i.opcode == O::Testp {
        let [p, a] = exactly::<2>(i)?;
        let alu = Alu { a: lowerer.source(a, ty)?, d: lowerer.predicate_target(p)?, ..Alu::new(f) };
        lowerer.alu(alu);
        return Ok(());
    }
    if i.operands.len() != arity(i.opcode) {
        return if matches!(i.opcode, O::Min | O::Max) { Err(Trouble::Refused) } else { wrong("wrong number of operands") };
    }
    if i.opcode == O::Rcp && ty != T::F64 || i.opcode == O::Rcp {
        // 1 / a.
        let [d, a] = exactly::<2>(i)?;
        if ty == T::F64 && i.has(Word::Approx) {
            return lowerer.same(f, &i.operands, ty);
        }
        let one = if ty == T::F64 { lowerer.constant64(1f64.to_bits()) } else { lowerer.constant32(1f32.to_bits()) };
        let alu = Alu { a: one, b: lowerer.source(a, ty)?, d: lowerer.target(d, ty)?, ..Alu::new(f) };
        lowerer.alu(alu);
        return Ok(());
    }
    lowerer.same(f, &i.operands, ty)
}

fn arity(opcode: O) -> usize {
    match opcode {
        O::Fma | O::Mad => 4,
        O::Add | O::Sub | O::Mul | O::Div | O::Min | O::Max | O::Copysign => 3,
        _ => 2,
    }
}

fn single(i: &Instruction) -> Lowered<Function> {
    let mode = mode(i)?;
    let (ftz, sat) = (i.has(Word::Ftz), i.has(Word::Sat));
    Ok(match i.opcode {
        O::Add => modes!(mode, ftz, sat, M F S => level::op2::<Add32<M, F, S>>()),
        O::Sub => modes!(mode, ftz, sat, M F S => level::op2::<Sub32<M, F, S>>()),
        O::Mul => modes!(mode, ftz, sat, M F S => level::op2::<Mul32<M, F, S>>()),
        O::Fma | O::Mad if level::fast() => modes!(mode, ftz, sat, M F S => level::op3::<Fma32<M, F, S, true>>()),
        O::Fma | O::Mad => modes!(mode, ftz, sat, M F S => level::op3::<Fma32<M, F, S, false>>()),
        // Approximate divisions are done exactly.
        O::Div | O::Rcp => modes!(mode, ftz, M F => level::op2::<Div32<M, F>>()),
        O::Sqrt => modes!(mode, ftz, M F => level::op1::<Sqrt32<M, F>>()),
        O::Rsqrt => modes!(@flag ftz, F => level::op1::<Rsqrt<F>>()),
        O::Sin => modes!(@flag ftz, F => level::op1::<Sin<F>>()),
        O::Cos => modes!(@flag ftz, F => level::op1::<Cos<F>>()),
        O::Ex2 => modes!(@flag ftz, F => level::op1::<Ex2<F>>()),
        O::Lg2 => modes!(@flag ftz, F => level::op1::<Lg2<F>>()),
        O::Tanh => level::op1::<Tanh>(),
        O::Abs => modes!(@flag ftz, F => level::op1::<Abs32<F>>()),
        O::Neg => modes!(@flag ftz, F => level::op1::<Neg32<F>>()),
        O::Copysign => level::op2::<CopySign32>(),
        O::Min | O::Max => {
            let (nan, xorsign) = (i.has(Word::Nan), i.has(Word::Xorsign));
            modes!(@flag i.opcode == O::Max, X => modes!(@flag ftz, F => modes!(@flag nan, N => modes!(@flag xorsign, S =>
                level::op2::<MinMax32<X, F, N, S>>()))))
        }
        O::Testp => match class(i)? {
            Word::Finite => level::test1::<Finite32>(),
            Word::Infinite => level::test1::<Infinite32>(),
            Word::Number => level::test1::<Number32>(),
            Word::Notanumber => level::test1::<NotNumber32>(),
            Word::Normal => level::test1::<Normal32>(),
            _ => level::test1::<Subnormal32>(),
        },
        _ => return Err(Trouble::Refused),
    })
}

fn class(i: &Instruction) -> Lowered<Word> {
    let classes = [Word::Finite, Word::Infinite, Word::Number, Word::Notanumber, Word::Normal, Word::Subnormal];
    match classes.into_iter().find(|word| i.has(*word)) {
        Some(word) => Ok(word),
        None => wrong("a class such as .finite is needed"),
    }
}

fn double(i: &Instruction) -> Lowered<Function> {
    let mode = mode(i)?;
    Ok(match i.opcode {
        O::Add => modes!(@mode mode, M => level::op2::<Add64<M>>()),
        O::Sub => modes!(@mode mode, M => level::op2::<Sub64<M>>()),
        O::Mul => modes!(@mode mode, M => level::op2::<Mul64<M>>()),
        O::Fma | O::Mad => modes!(@mode mode, M => level::op3::<Fma64<M>>()),
        O::Rcp if i.has(Word::Approx) => level::op1::<RcpHighD>(),
        O::Div | O::Rcp => modes!(@mode mode, M => level::op2::<Div64<M>>()),
        O::Sqrt => modes!(@mode mode, M => level::op1::<Sqrt64<M>>()),
        O::Rsqrt if i.has(Word::Ftz) => level::op1::<RsqrtHighD>(),
        O::Rsqrt => level::op1::<RsqrtD>(),
        O::Abs => level::op1::<Abs64>(),
        O::Neg => level::op1::<Neg64>(),
        O::Copysign => level::op2::<CopySign64>(),
        O::Min => level::op2::<Min64>(),
        O::Max => level::op2::<Max64>(),
        O::Testp => match class(i)? {
            Word::Finite => level::test1::<Finite64>(),
            Word::Infinite => level::test1::<Infinite64>(),
            Word::Number => level::test1::<Number64>(),
            Word::Notanumber => level::test1::<NotNumber64>(),
            Word::Normal => level::test1::<Normal64>(),
            _ => level::test1::<Subnormal64>(),
        },
        _ => return Err(Trouble::Refused),
    })
}

/// One or two halves of either format.
macro_rules! one_or_two {
    ($ty:expr, $op:ident, $t:ident => $make:ty) => {
        match $ty {
            T::F16 => { type $t = H; level::$op::<$make>() }
            T::Bf16 => { type $t = B; level::$op::<$make>() }
            T::F16x2 => { type $t = H; level::$op::<Two<$make>>() }
            _ => { type $t = B; level::$op::<Two<$make>>() }
        }
    };
}

fn half(i: &Instruction, ty: T) -> Lowered<Function> {
    if mode(i)? != RN {
        return Err(Trouble::Refused);
    }
    let how = (if i.has(Word::Sat) { SAT } else { PLAIN }) | (if i.has(Word::Relu) { RELU } else { 0 }) | (if i.has(Word::Ftz) { FTZ } else { 0 });
    macro_rules! by_how {
        ($op:ident, $name:ident) => {
            match how {
                PLAIN => one_or_two!(ty, $op, S => $name<S, PLAIN>),
                SAT => one_or_two!(ty, $op, S => $name<S, SAT>),
                RELU => one_or_two!(ty, $op, S => $name<S, RELU>),
                FTZ => one_or_two!(ty, $op, S => $name<S, FTZ>),
                5 => one_or_two!(ty, $op, S => $name<S, 5>),
                _ => one_or_two!(ty, $op, S => $name<S, 6>),
            }
        };
    }
    Ok(match i.opcode {
        O::Add => by_how!(op2, AddH),
        O::Sub => by_how!(op2, SubH),
        O::Mul => by_how!(op2, MulH),
        O::Fma | O::Mad => by_how!(op3, FmaH),
        O::Neg => one_or_two!(ty, op1, S => NegH<S>),
        O::Abs => one_or_two!(ty, op1, S => AbsH<S>),
        O::Ex2 => one_or_two!(ty, op1, S => Ex2H<S>),
        O::Tanh => one_or_two!(ty, op1, S => TanhH<S>),
        O::Min | O::Max => {
            let (max, nan, xorsign) = (i.opcode == O::Max, i.has(Word::Nan), i.has(Word::Xorsign));
            modes!(@flag max, X => modes!(@flag nan, N => modes!(@flag xorsign, G => one_or_two!(ty, op2, S => MinMaxH<S, X, N, G>))))
        }
        _ => return Err(Trouble::Refused),
    })
}

const _: u32 = float::NAN32;
