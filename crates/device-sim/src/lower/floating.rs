//! Floating-point arithmetic of all widths (PTX ISA, *Floating Point Instructions*).

use super::body::{Lowerer, exact_operands, first_type};
use super::error::{Lowered, Trouble, reject};
use crate::program::code::Op;
use crate::simd::alu::{self, Alu, AluFunction};
use crate::simd::lanes::{NO_SLOT, RegisterSlot};
use crate::simd::ops::convert::Resize;
use crate::simd::ops::float::{self, *};
use crate::simd::ops::half::{AddH, B, FmaH, H, MulH, SubH, Two};
use crate::simd::ops::round::{RM, RN, RP, RZ};
use crate::simd::ops::{bits, integer};
use crate::simd::processor;
use cumux_ptx::ast::{Instruction, Opcode as O, Operand, Rounding, ScalarType as T, Word};

/// `$make` with the rounding mode or a flag of an instruction as a constant.
macro_rules! modes {
    (@mode $mode:expr, $m:ident => $make:expr) => {
        match $mode {
            RZ => {
                const $m: u8 = RZ;
                $make
            }
            RM => {
                const $m: u8 = RM;
                $make
            }
            RP => {
                const $m: u8 = RP;
                $make
            }
            _ => {
                const $m: u8 = RN;
                $make
            }
        }
    };
    (@flag $flag:expr, $f:ident => $make:expr) => {
        if $flag {
            const $f: bool = true;
            $make
        } else {
            const $f: bool = false;
            $make
        }
    };
}

/// The rounding mode of an instruction; to nearest even without one.
pub(super) fn rounding_mode(i: &Instruction) -> Lowered<u8> {
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
    if let Some(narrow) = i.ty(1) {
        return lower_mixed(lowerer, i, ty, narrow);
    }
    if matches!(i.opcode, O::Min | O::Max) && ty == T::F32 && i.operands.len() == 4 {
        return lower_three(lowerer, i);
    }
    let (f, x) = match ty {
        T::F32 => select_single(i)?,
        T::F64 => (select_double(i)?, 0),
        T::F16 | T::Bf16 | T::F16x2 | T::Bf16x2 => select_half(i, ty)?,
        T::B32 if i.opcode == O::Copysign => (alu::op2::<CopySign32>(), 0),
        T::F32x2 => return lower_two_singles(lowerer, i),
        _ => return reject(format!("{} is not for this type", i.mnemonic())),
    };
    if i.opcode == O::Testp {
        let [p, a] = exact_operands::<2>(i)?;
        let alu = Alu { a: lowerer.lower_source(a, ty)?, d: lowerer.lower_predicate_target(p)?, ..Alu::new(f) };
        lowerer.emit_alu(alu);
        return Ok(());
    }
    if i.operands.len() != source_count(i.opcode) {
        return if matches!(i.opcode, O::Min | O::Max) { Err(Trouble::Refused) } else { reject("wrong number of operands") };
    }
    let mut sources = Vec::new();
    let mut negated = [false; 3];
    for (n, operand) in i.operands[1..].iter().enumerate() {
        // `contract` makes these.
        if let Operand::Selected { register, selector: None, negated: true } = operand {
            negated[n] = true;
            sources.push(lowerer.lower_source(&Operand::Reg(*register), ty)?);
        } else {
            sources.push(lowerer.lower_source(operand, ty)?);
        }
    }
    let f = if negated == [false; 3] { f } else { negate_sources(lowerer, i, ty, f, negated, &mut sources) };
    if i.opcode == O::Rcp && !(ty == T::F64 && i.has(Word::Approx)) {
        // A reciprocal is 1 / a.
        let one = if ty == T::F64 { lowerer.intern_constant64(1f64.to_bits()) } else { lowerer.intern_constant32(1f32.to_bits()) };
        sources.insert(0, one);
    }
    // A function that its immediate describes reads three sources, whether or not the operation has
    // them.
    let at = |n: usize| sources.get(n).or(sources.first()).copied().unwrap_or(NO_SLOT);
    let (a, b, c) = (at(0), at(1), at(2));
    let d = lowerer.lower_target(&i.operands[0], ty)?;
    lowerer.emit_alu(Alu { d, a, b, c, x, ..Alu::new(f) });
    Ok(())
}

/// `add`, `sub` and `fma` of singles, where the first source, or both factors, are halves. A half
/// is a single, exactly.
fn lower_mixed(lowerer: &mut Lowerer<'_>, i: &Instruction, ty: T, narrow: T) -> Lowered {
    let widen = match narrow {
        T::F16 => || alu::op1::<Resize<H, f32, RN>>(),
        T::Bf16 => || alu::op1::<Resize<B, f32, RN>>(),
        _ => return Err(Trouble::Refused),
    };
    let halves = match i.opcode {
        O::Add | O::Sub => 1,
        O::Fma => 2,
        _ => return Err(Trouble::Refused),
    };
    if ty != T::F32 || i.types().nth(2).is_some() || i.operands.len() != source_count(i.opcode) {
        return Err(Trouble::Refused);
    }
    let (f, x) = select_single(i)?;
    let mut sources = Vec::new();
    for (n, operand) in i.operands[1..].iter().enumerate() {
        if n >= halves {
            sources.push(lowerer.lower_source32(operand, ty)?);
            continue;
        }
        let (a, d) = (lowerer.lower_source32(operand, narrow)?, lowerer.new_temporary32());
        lowerer.emit_always(Op::Alu(Alu { d, a, ..Alu::new(widen()) }));
        sources.push(d);
    }
    let d = lowerer.lower_target32(&i.operands[0])?;
    lowerer.emit_alu(Alu { d, a: sources[0], b: sources[1], c: sources.get(2).copied().unwrap_or(sources[0]), x, ..Alu::new(f) });
    Ok(())
}

/// `min` and `max` of three singles: of the first two, and of that and the third.
fn lower_three(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered {
    if i.has(Word::Abs) || i.has(Word::Xorsign) {
        return Err(Trouble::Refused);
    }
    let [d, sources @ ..] = exact_operands::<4>(i)?;
    let mut slots = [NO_SLOT; 3];
    for (slot, operand) in slots.iter_mut().zip(sources) {
        *slot = lowerer.lower_source32(operand, T::F32)?;
    }
    let ((first, x), (second, _)) = (select_single(i)?, select_single(i)?);
    let between = lowerer.new_temporary32();
    lowerer.emit_always(Op::Alu(Alu { d: between, a: slots[0], b: slots[1], c: slots[0], x, ..Alu::new(first) }));
    let d = lowerer.lower_target32(d)?;
    lowerer.emit_alu(Alu { d, a: between, b: slots[2], c: slots[2], x, ..Alu::new(second) });
    Ok(())
}

/// `add`, `sub`, `mul` and `fma` of two singles in one register: the low ones, then the high ones.
fn lower_two_singles(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered {
    if !matches!(i.opcode, O::Add | O::Sub | O::Mul | O::Fma) || i.operands.len() != source_count(i.opcode) {
        return Err(Trouble::Refused);
    }
    let (f, x) = select_single(i)?;
    let sources = i.operands[1..].iter().map(|operand| lowerer.lower_source64(operand, T::B64)).collect::<Lowered<Vec<_>>>()?;
    let mut halves = [NO_SLOT; 2];
    for (n, d) in halves.iter_mut().enumerate() {
        let number = lowerer.intern_constant32(n as u32);
        let parts: Vec<RegisterSlot> = sources
            .iter()
            .map(|a| {
                let d = lowerer.new_temporary32();
                lowerer.emit_always(Op::Alu(Alu { d, a: *a, b: number, ..Alu::new(alu::op2::<bits::Part32>()) }));
                d
            })
            .collect();
        *d = lowerer.new_temporary32();
        let at = |n: usize| parts.get(n).copied().unwrap_or(parts[0]);
        lowerer.emit_always(Op::Alu(Alu { d: *d, a: at(0), b: at(1), c: at(2), x, ..Alu::new(f) }));
    }
    let d = lowerer.lower_target64(&i.operands[0])?;
    lowerer.emit_alu(Alu { d, a: halves[0], b: halves[1], ..Alu::new(alu::op2::<bits::Join32>()) });
    Ok(())
}

/// The function for sources of which some are negated. Negates those for which it has none.
fn negate_sources(lowerer: &mut Lowerer<'_>, i: &Instruction, ty: T, f: AluFunction, negated: [bool; 3], sources: &mut [RegisterSlot]) -> AluFunction {
    let (product, sum) = (negated[0] ^ negated[1], negated[2]);
    let nearest = i.opcode == O::Fma && matches!(i.rounding(), None | Some(Rounding::Rn));
    if nearest && ty == T::F64 {
        return modes!(@flag product, P => modes!(@flag sum, C => alu::op3::<FmaSigned64<P, C>>()));
    }
    if nearest && ty == T::F32 && !i.has(Word::Sat) && processor::is_fast() {
        return modes!(@flag i.has(Word::Ftz), F => modes!(@flag product, P => modes!(@flag sum, C => alu::op3::<FmaSigned32<F, P, C>>())));
    }
    for (slot, _) in sources.iter_mut().zip(negated).filter(|(_, negated)| *negated) {
        *slot = if ty == T::F64 {
            let (d, sign) = (lowerer.new_temporary64(), lowerer.intern_constant64(1 << 63));
            lowerer.emit_always(Op::Alu(Alu { d, a: *slot, b: sign, ..Alu::new(alu::op2::<integer::Xor<u64>>()) }));
            d
        } else {
            let signs = match ty {
                T::F32 => 1 << 31,
                T::F16 | T::Bf16 => 1 << 15,
                _ => 1 << 31 | 1 << 15,
            };
            let (d, sign) = (lowerer.new_temporary32(), lowerer.intern_constant32(signs));
            lowerer.emit_always(Op::Alu(Alu { d, a: *slot, b: sign, ..Alu::new(alu::op2::<integer::Xor<u32>>()) }));
            d
        };
    }
    f
}

/// The sources of an operation.
fn source_count(opcode: O) -> usize {
    match opcode {
        O::Fma | O::Mad => 4,
        O::Add | O::Sub | O::Mul | O::Div | O::Min | O::Max | O::Copysign => 3,
        _ => 2,
    }
}

/// `$make` for the flags `.ftz` and `.sat`, rounding to nearest.
macro_rules! flags {
    ($ftz:expr, $sat:expr, $f:ident $s:ident => $make:expr) => {
        modes!(@flag $ftz, $f => modes!(@flag $sat, $s => $make))
    };
}

/// The function of an operation on singles, and its immediate.
fn select_single(i: &Instruction) -> Lowered<(AluFunction, u16)> {
    let mode = rounding_mode(i)?;
    let (ftz, sat, nan, xorsign) = (i.has(Word::Ftz), i.has(Word::Sat), i.has(Word::Nan), i.has(Word::Xorsign));
    let any = |operation: u16| {
        let flags = [(ftz, float::FTZ), (sat, float::SAT), (nan, float::NAN), (xorsign, float::XORSIGN)];
        let flags = flags.iter().filter(|(on, _)| *on).fold(0, |all, (_, bit)| all | bit);
        Ok((alu::rare3x::<Any32>(), operation | u16::from(mode) << float::MODE_SHIFT | flags))
    };
    let nearest = mode == RN;
    let f = match i.opcode {
        O::Add if nearest => flags!(ftz, sat, F S => alu::op2::<Add32<RN, F, S>>()),
        O::Sub if nearest => flags!(ftz, sat, F S => alu::op2::<Sub32<RN, F, S>>()),
        O::Mul if nearest => flags!(ftz, sat, F S => alu::op2::<Mul32<RN, F, S>>()),
        O::Fma | O::Mad if nearest && processor::is_fast() => flags!(ftz, sat, F S => alu::op3::<Fma32<RN, F, S, true>>()),
        // Without the processor's instruction, by double precision.
        O::Fma | O::Mad if nearest && !ftz && !sat => alu::op3::<Fma32<RN, false, false, false>>(),
        // nvcc compiles `expf` to one multiply-add that rounds down.
        O::Fma | O::Mad if mode == RM && !sat => modes!(@flag ftz, F => alu::op3::<Fma32<RM, F, false, false>>()),
        O::Add => return any(float::ADD),
        O::Sub => return any(float::SUB),
        O::Mul => return any(float::MUL),
        O::Fma | O::Mad => return any(float::FMA),
        // Approximate divisions are exact here.
        O::Div | O::Rcp if nearest => modes!(@flag ftz, F => alu::op2::<Div32<RN, F>>()),
        O::Div | O::Rcp => return any(float::DIV),
        O::Sqrt if nearest => modes!(@flag ftz, F => alu::op1::<Sqrt32<RN, F>>()),
        O::Sqrt => return any(float::SQRT),
        O::Rsqrt => modes!(@flag ftz, F => alu::op1::<Rsqrt<F>>()),
        O::Sin => modes!(@flag ftz, F => alu::op1::<Sin<F>>()),
        O::Cos => modes!(@flag ftz, F => alu::op1::<Cos<F>>()),
        O::Ex2 => modes!(@flag ftz, F => alu::op1::<Ex2<F>>()),
        O::Lg2 => modes!(@flag ftz, F => alu::op1::<Lg2<F>>()),
        O::Tanh => alu::op1::<Tanh>(),
        O::Abs => modes!(@flag ftz, F => alu::op1::<Abs32<F>>()),
        O::Neg => modes!(@flag ftz, F => alu::op1::<Neg32<F>>()),
        O::Copysign => alu::op2::<CopySign32>(),
        O::Min if nan || xorsign => return any(float::MIN),
        O::Max if nan || xorsign => return any(float::MAX),
        O::Min => modes!(@flag ftz, F => alu::op2::<MinMax32<false, F>>()),
        O::Max => modes!(@flag ftz, F => alu::op2::<MinMax32<true, F>>()),
        O::Testp => match number_class(i)? {
            Word::Finite => alu::test1::<Finite32>(),
            Word::Infinite => alu::test1::<Infinite32>(),
            Word::Number => alu::test1::<Number32>(),
            Word::Notanumber => alu::test1::<NotNumber32>(),
            Word::Normal => alu::test1::<Normal32>(),
            _ => alu::test1::<Subnormal32>(),
        },
        _ => return Err(Trouble::Refused),
    };
    Ok((f, 0))
}

fn number_class(i: &Instruction) -> Lowered<Word> {
    let classes = [Word::Finite, Word::Infinite, Word::Number, Word::Notanumber, Word::Normal, Word::Subnormal];
    match classes.into_iter().find(|word| i.has(*word)) {
        Some(word) => Ok(word),
        None => reject("a class such as .finite is needed"),
    }
}

/// The function of an operation on doubles.
fn select_double(i: &Instruction) -> Lowered<AluFunction> {
    let mode = rounding_mode(i)?;
    Ok(match i.opcode {
        O::Add => modes!(@mode mode, M => alu::op2::<Add64<M>>()),
        O::Sub => modes!(@mode mode, M => alu::op2::<Sub64<M>>()),
        O::Mul => modes!(@mode mode, M => alu::op2::<Mul64<M>>()),
        O::Fma | O::Mad => modes!(@mode mode, M => alu::op3::<Fma64<M>>()),
        O::Rcp if i.has(Word::Approx) => alu::op1::<RcpHighD>(),
        O::Div | O::Rcp => modes!(@mode mode, M => alu::op2::<Div64<M>>()),
        O::Sqrt => modes!(@mode mode, M => alu::op1::<Sqrt64<M>>()),
        O::Rsqrt if i.has(Word::Ftz) => alu::op1::<RsqrtHighD>(),
        O::Rsqrt => alu::op1::<RsqrtD>(),
        O::Abs => alu::op1::<Abs64>(),
        O::Neg => alu::op1::<Neg64>(),
        O::Copysign => alu::op2::<CopySign64>(),
        O::Min => alu::op2::<Min64>(),
        O::Max => alu::op2::<Max64>(),
        O::Testp => match number_class(i)? {
            Word::Finite => alu::test1::<Finite64>(),
            Word::Infinite => alu::test1::<Infinite64>(),
            Word::Number => alu::test1::<Number64>(),
            Word::Notanumber => alu::test1::<NotNumber64>(),
            Word::Normal => alu::test1::<Normal64>(),
            _ => alu::test1::<Subnormal64>(),
        },
        _ => return Err(Trouble::Refused),
    })
}

/// The function of an operation on one or two halves of either format.
macro_rules! one_or_two {
    ($ty:expr, $op:ident, $name:ident) => {
        match $ty {
            T::F16 => alu::$op::<$name<H>>(),
            T::Bf16 => alu::$op::<$name<B>>(),
            T::F16x2 => alu::$op::<Two<$name<H>>>(),
            _ => alu::$op::<Two<$name<B>>>(),
        }
    };
}

/// The function of an operation on halves, and its immediate.
fn select_half(i: &Instruction, ty: T) -> Lowered<(AluFunction, u16)> {
    use crate::simd::ops::half as h;
    if rounding_mode(i)? != RN {
        return Err(Trouble::Refused);
    }
    let extreme = matches!(i.opcode, O::Min | O::Max);
    let bit = |word: Word, value: u16| if i.has(word) { value } else { 0 };
    let how = if extreme {
        bit(Word::Nan, h::NAN.into()) | bit(Word::Xorsign, h::XORSIGN.into()) | bit(Word::Ftz, h::FTZ.into())
    } else {
        bit(Word::Sat, h::SAT.into()) | bit(Word::Relu, h::RELU.into()) | bit(Word::Ftz, h::FTZ.into())
    };
    if extreme && i.has(Word::Relu) {
        return Err(Trouble::Refused);
    }
    let f = match i.opcode {
        O::Add if how == 0 => one_or_two!(ty, op2, AddH),
        O::Sub if how == 0 => one_or_two!(ty, op2, SubH),
        O::Mul if how == 0 => one_or_two!(ty, op2, MulH),
        O::Fma | O::Mad if how == 0 => one_or_two!(ty, op3, FmaH),
        opcode => {
            let operation = match opcode {
                O::Add => h::ADD,
                O::Sub => h::SUB,
                O::Mul => h::MUL,
                O::Fma | O::Mad => h::FMA,
                O::Min => h::MIN,
                O::Max => h::MAX,
                O::Neg => h::NEG,
                O::Abs => h::ABS,
                O::Ex2 => h::EX2,
                O::Tanh => h::TANH,
                _ => return Err(Trouble::Refused),
            };
            let two = if matches!(ty, T::F16x2 | T::Bf16x2) { h::TWO } else { 0 };
            let f = if matches!(ty, T::F16 | T::F16x2) { alu::rare3x::<h::Any<H>>() } else { alu::rare3x::<h::Any<B>>() };
            return Ok((f, operation | how << h::FLAGS_SHIFT | two));
        }
    };
    Ok((f, 0))
}
