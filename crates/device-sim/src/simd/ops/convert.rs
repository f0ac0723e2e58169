//! Conversions between all integer and floating-point types.

// NaN must fail these comparisons.
#![allow(clippy::neg_cmp_op_on_partial_ord)]

use super::float::{NAN32, flush};
use super::half::{B, H, Small};
use super::round::{RM, RN, RNA, RP, RZ, direct, integral, odd_sum, to_f32, to_odd};
use crate::simd::alu::{Alu, AluFunction, Op1, Op3x};
use crate::simd::lanes::{LANES, PerLane, RegisterType, WarpRegisters};
use std::marker::PhantomData;

/// An integer type, 8-bit ones included.
pub trait Whole: RegisterType {
    const BITS: u32;
    fn cut(x: i64) -> Self;
    fn extended(self) -> i64;
    fn exact(self) -> i128;
    /// Saturates a whole number; NaN gives 0.
    fn from_whole(x: f64) -> Self;
    fn nearest_f64(self) -> f64;
}

macro_rules! whole {
    ($($ty:ident)*) => {$(
        impl Whole for $ty {
            const BITS: u32 = <$ty>::BITS;
            #[inline(always)]
            fn cut(x: i64) -> Self { x as $ty }
            #[inline(always)]
            fn extended(self) -> i64 { self as i64 }
            #[inline(always)]
            fn exact(self) -> i128 { self as i128 }
            #[inline(always)]
            fn from_whole(x: f64) -> Self {
                if <$ty>::BITS == 64 {
                    return x as $ty;
                }
                // A cast that heeds all numbers is done lane by lane. The sum of a whole number of
                // 33 bits and this one has it in its low bits, as two's complement.
                const MIDDLE: f64 = 6_755_399_441_055_744.0;
                let x = if x.is_nan() { 0.0 } else { x };
                let x = if x < <$ty>::MIN as f64 { <$ty>::MIN as f64 } else { x };
                let x = if x > <$ty>::MAX as f64 { <$ty>::MAX as f64 } else { x };
                (x + MIDDLE).to_bits() as $ty
            }
            #[inline(always)]
            fn nearest_f64(self) -> f64 { self as f64 }
        }
    )*};
}
whole! { u8 i8 u16 i16 u32 i32 u64 i64 }

/// A floating-point type.
pub trait Real: RegisterType {
    const DOUBLE: bool;
    fn wide(self) -> f64;
    /// Rounds a double in a rounding mode.
    fn rounded<const MODE: u8>(x: f64) -> Self;
}

impl Real for f32 {
    const DOUBLE: bool = false;
    #[inline(always)]
    fn wide(self) -> f64 {
        self.into()
    }
    #[inline(always)]
    fn rounded<const MODE: u8>(x: f64) -> f32 {
        let x = to_f32::<MODE>(x);
        if x.is_nan() { f32::from_bits(NAN32) } else { x }
    }
}

impl Real for f64 {
    const DOUBLE: bool = true;
    #[inline(always)]
    fn wide(self) -> f64 {
        self
    }
    #[inline(always)]
    fn rounded<const MODE: u8>(x: f64) -> f64 {
        x
    }
}

macro_rules! small_real {
    ($($ty:ident)*) => {$(
        impl Real for $ty {
            const DOUBLE: bool = false;
            #[inline(always)]
            fn wide(self) -> f64 { Small::wide(self) }
            #[inline(always)]
            fn rounded<const MODE: u8>(x: f64) -> Self { <Self as Small>::rounded::<MODE>(x) }
        }
    )*};
}
small_real! { H B }

/// Integer to integer: cut, or extended by the source's sign.
pub struct Cut<S, D>(PhantomData<(S, D)>);
impl<S: Whole, D: Whole> Op1 for Cut<S, D> {
    type A = S;
    type R = D;
    #[inline(always)]
    fn compute(a: S) -> D {
        D::cut(a.extended())
    }
}

pub struct ToInt<S, D, const MODE: u8>(PhantomData<(S, D)>);
impl<S: Real, D: Whole, const MODE: u8> Op1 for ToInt<S, D, MODE> {
    type A = S;
    type R = D;
    #[inline(always)]
    fn compute(a: S) -> D {
        let x = a.wide();
        if (S::DOUBLE || D::BITS == 64) && x.is_nan() {
            return D::cut(1i64.wrapping_shl(D::BITS - 1));
        }
        D::from_whole(integral::<MODE>(x))
    }
}

pub struct FromInt<S, D, const MODE: u8>(PhantomData<(S, D)>);
impl<S: Whole, D: Real, const MODE: u8> Op1 for FromInt<S, D, MODE> {
    type A = S;
    type R = D;
    #[inline(always)]
    fn compute(a: S) -> D {
        if S::BITS <= 32 {
            D::rounded::<MODE>(a.nearest_f64())
        } else {
            let exact = a.exact();
            let (high, low) = ((exact >> 32) as i64 as f64 * 4_294_967_296.0, (exact & 0xffff_ffff) as i64 as f64);
            if D::DOUBLE {
                let sum = high + low;
                D::rounded::<MODE>(direct::<MODE>(sum, low - (sum - high)))
            } else {
                D::rounded::<MODE>(odd_sum(high, low))
            }
        }
    }
}

pub struct Resize<S, D, const MODE: u8>(PhantomData<(S, D)>);
impl<S: Real, D: Real, const MODE: u8> Op1 for Resize<S, D, MODE> {
    type A = S;
    type R = D;
    #[inline(always)]
    fn compute(a: S) -> D {
        D::rounded::<MODE>(a.wide())
    }
}

/// A single between 0 and 1 (`.sat`); NaN gives 0. `FTZ`: subnormals give 0, too.
pub struct Saturate<const FTZ: bool>;
impl<const FTZ: bool> Op1 for Saturate<FTZ> {
    type A = f32;
    type R = f32;
    #[inline(always)]
    fn compute(a: f32) -> f32 {
        let a = if FTZ { flush(a) } else { a };
        // Not-a-number fails the first comparison.
        let positive = if a > 0.0 { a } else { 0.0 };
        if positive > 1.0 { 1.0 } else { positive }
    }
}

/// Rounds to an integral value of the same type.
pub struct Integral<T, const MODE: u8>(PhantomData<T>);
impl<T: Real, const MODE: u8> Op1 for Integral<T, MODE> {
    type A = T;
    type R = T;
    #[inline(always)]
    fn compute(a: T) -> T {
        T::rounded::<RN>(integral::<MODE>(a.wide()))
    }
}

/// A conversion described by an immediate, for combinations that are too rare for code of their
/// own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConversionSpec {
    pub from: NumberKind,
    pub to: NumberKind,
    pub mode: u8,
    pub ftz: bool,
    pub sat: bool,
    pub relu: bool,
    /// Round to an integral value first.
    pub integral: bool,
}

/// A type, which has a number in the immediate of a [`ConversionSpec`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumberKind {
    U8,
    S8,
    U16,
    S16,
    U32,
    S32,
    U64,
    S64,
    Half,
    Brain,
    Single,
    Double,
}

const NUMBER_KINDS: [NumberKind; 12] = [
    NumberKind::U8,
    NumberKind::S8,
    NumberKind::U16,
    NumberKind::S16,
    NumberKind::U32,
    NumberKind::S32,
    NumberKind::U64,
    NumberKind::S64,
    NumberKind::Half,
    NumberKind::Brain,
    NumberKind::Single,
    NumberKind::Double,
];

impl ConversionSpec {
    pub fn encode(self) -> u16 {
        let flags = [self.ftz, self.sat, self.relu, self.integral];
        let flags = flags.iter().rev().fold(0, |all, flag| all << 1 | u16::from(*flag));
        self.from as u16 | (self.to as u16) << 4 | u16::from(self.mode) << 8 | flags << 11
    }

    fn decode(x: u16) -> ConversionSpec {
        let flag = |n: u16| x >> (11 + n) & 1 != 0;
        ConversionSpec {
            from: NUMBER_KINDS[(x & 15) as usize % 12],
            to: NUMBER_KINDS[(x >> 4 & 15) as usize % 12],
            mode: (x >> 8 & 7) as u8,
            ftz: flag(0),
            sat: flag(1),
            relu: flag(2),
            integral: flag(3),
        }
    }
}

impl NumberKind {
    fn is_real(self) -> bool {
        matches!(self, NumberKind::Half | NumberKind::Brain | NumberKind::Single | NumberKind::Double)
    }

    /// The least and the greatest value of an integer type.
    fn range(self) -> (i128, i128) {
        match self {
            NumberKind::U8 => (0, u8::MAX.into()),
            NumberKind::S8 => (i8::MIN.into(), i8::MAX.into()),
            NumberKind::U16 => (0, u16::MAX.into()),
            NumberKind::S16 => (i16::MIN.into(), i16::MAX.into()),
            NumberKind::U32 => (0, u32::MAX.into()),
            NumberKind::S32 => (i32::MIN.into(), i32::MAX.into()),
            NumberKind::U64 => (0, u64::MAX.into()),
            _ => (i64::MIN.into(), i64::MAX.into()),
        }
    }

    fn bits(self) -> u32 {
        match self {
            NumberKind::U8 | NumberKind::S8 => 8,
            NumberKind::U16 | NumberKind::S16 | NumberKind::Half | NumberKind::Brain => 16,
            NumberKind::U32 | NumberKind::S32 | NumberKind::Single => 32,
            _ => 64,
        }
    }

    fn whole(self, bits: u64) -> i128 {
        match self {
            NumberKind::U8 => i128::from(bits as u8),
            NumberKind::S8 => i128::from(bits as i8),
            NumberKind::U16 => i128::from(bits as u16),
            NumberKind::S16 => i128::from(bits as i16),
            NumberKind::U32 => i128::from(bits as u32),
            NumberKind::S32 => i128::from(bits as i32),
            NumberKind::U64 => i128::from(bits),
            _ => i128::from(bits as i64),
        }
    }

    fn real(self, bits: u64, ftz: bool) -> f64 {
        match self {
            NumberKind::Half => Small::wide(H(bits as u16)),
            NumberKind::Brain => Small::wide(B(bits as u16)),
            NumberKind::Single => {
                let x = f32::from_bits(bits as u32);
                f64::from(if ftz { flush(x) } else { x })
            }
            _ => f64::from_bits(bits),
        }
    }
}

fn by_mode(mode: u8, x: f64, f: [fn(f64) -> u64; 5]) -> u64 {
    f[usize::from(mode).min(4)](x)
}

fn whole_of(mode: u8, x: f64) -> f64 {
    match mode {
        RN => integral::<RN>(x),
        RZ => integral::<RZ>(x),
        RM => integral::<RM>(x),
        RP => integral::<RP>(x),
        _ => integral::<RNA>(x),
    }
}

fn rounded_to(kind: NumberKind, mode: u8, x: f64) -> u64 {
    macro_rules! all {
        ($t:ty) => {{
            fn rounded_bits<const MODE: u8>(x: f64) -> u64 {
                u64::from(<$t as Real>::rounded::<MODE>(x).raw())
            }
            by_mode(mode, x, [rounded_bits::<RN>, rounded_bits::<RZ>, rounded_bits::<RM>, rounded_bits::<RP>, rounded_bits::<RNA>])
        }};
    }
    match kind {
        NumberKind::Half => all!(H),
        NumberKind::Brain => all!(B),
        NumberKind::Single => all!(f32),
        _ => x.to_bits(),
    }
}

/// Converts one value as the immediate `x` describes. Bits of `bits` above the source's width are
/// ignored.
pub fn convert_bits(bits: u64, x: u16) -> u64 {
    let spec = ConversionSpec::decode(x);
    let width = spec.to.bits();
    let cut = |value: u64| if width == 64 { value } else { value & ((1 << width) - 1) };
    if !spec.from.is_real() && !spec.to.is_real() {
        let value = spec.from.whole(bits);
        let (low, high) = spec.to.range();
        return cut(if spec.sat { value.clamp(low, high) } else { value } as u64);
    }
    if !spec.to.is_real() {
        let value = spec.from.real(bits, spec.ftz);
        if value.is_nan() {
            return if spec.from == NumberKind::Double || width == 64 { 1 << (width - 1) } else { 0 };
        }
        let (low, high) = spec.to.range();
        // The cast to 128 bits is exact between the limits, and beyond them it saturates farther
        // out.
        return cut((whole_of(spec.mode, value) as i128).clamp(low, high) as u64);
    }
    let (value, error) = if spec.from.is_real() {
        (spec.from.real(bits, spec.ftz), 0.0)
    } else {
        let exact = spec.from.whole(bits);
        let value = exact as f64;
        (value, (exact - value as i128) as f64)
    };
    let value = if spec.relu && value <= 0.0 { 0.0 } else { value };
    let value = if spec.integral { whole_of(spec.mode, value) } else { value };
    let result = if spec.to == NumberKind::Double {
        let directed = match spec.mode {
            RZ => direct::<RZ>(value, error),
            RM => direct::<RM>(value, error),
            RP => direct::<RP>(value, error),
            _ => value,
        };
        directed.to_bits()
    } else {
        rounded_to(spec.to, spec.mode, to_odd(value, error))
    };
    let real = spec.to.real(result, false);
    if spec.sat && !(real > 0.0) {
        0
    } else if spec.sat && real > 1.0 {
        rounded_to(spec.to, RN, 1.0)
    } else if spec.ftz && spec.to == NumberKind::Single {
        u64::from(flush(f32::from_bits(result as u32)).to_bits())
    } else {
        result
    }
}

/// The conversion that the immediate describes. The arguments say whether source and result are in
/// 64-bit slots.
#[must_use]
pub fn described_conversion(from_wide: bool, to_wide: bool) -> AluFunction {
    match (from_wide, to_wide) {
        (false, false) => AluFunction::portable(convert_lanes::<u32, u32>),
        (false, true) => AluFunction::portable(convert_lanes::<u32, u64>),
        (true, false) => AluFunction::portable(convert_lanes::<u64, u32>),
        (true, true) => AluFunction::portable(convert_lanes::<u64, u64>),
    }
}

fn convert_lanes<A: Whole, R: Whole>(registers: &mut WarpRegisters<'_>, alu: &Alu, mask: u32) {
    let a = A::read(registers, alu.a);
    let mut out = PerLane([R::ZERO; LANES]);
    for lane in 0..LANES {
        if mask >> lane & 1 != 0 {
            out.0[lane] = R::cut(convert_bits(A::from_raw(a.0[lane]).extended() as u64, alu.x) as i64).raw();
        }
    }
    R::write(registers, alu.d, &out, mask);
}

/// In the immediate of [`PackTwo`]: to bfloat16 instead of half precision.
pub const PACK_BRAIN: u16 = 1;
/// In the immediate of [`PackTwo`]: negative values become 0.
pub const PACK_RELU: u16 = 2;
/// In the immediate of [`PackTwo`]: numbers beyond the largest become the largest.
pub const PACK_SATFINITE: u16 = 4;
/// In the immediate of [`PackTwo`]: where the rounding mode begins.
pub const PACK_MODE: u16 = 4;

/// Converts two singles into the halves of one register, `a` above `b`.
fn pack_two(a: u32, b: u32, x: u16) -> u32 {
    let to = if x & PACK_BRAIN != 0 { NumberKind::Brain } else { NumberKind::Half };
    let part = |bits: u32| {
        let value = f64::from(f32::from_bits(bits));
        let value = if x & PACK_RELU != 0 && value <= 0.0 { 0.0 } else { value };
        let largest = if to == NumberKind::Brain { f64::from(f32::from_bits(0x7f7f_0000)) } else { 65504.0 };
        let value = if x & PACK_SATFINITE != 0 && value.abs() > largest { largest.copysign(value) } else { value };
        rounded_to(to, (x >> PACK_MODE & 7) as u8, value) as u32
    };
    part(b) | part(a) << 16
}

pub struct PackTwo;
impl Op3x for PackTwo {
    type T = u32;
    #[inline(always)]
    fn compute(a: u32, b: u32, _: u32, x: u16) -> u32 {
        pack_two(a, b, x)
    }
}

/// In the immediate of [`PackIntegers`]: the results are signed. The low bits are their width.
pub const PACK_SIGNED: u16 = 1 << 8;

/// Two integers, saturated, `a` above `b`, and the low bits of `c` above them.
pub struct PackIntegers;
impl Op3x for PackIntegers {
    type T = u32;
    #[inline(always)]
    fn compute(a: u32, b: u32, c: u32, x: u16) -> u32 {
        let width = u32::from(x & 0xff);
        let (low, high) = if x & PACK_SIGNED != 0 { (-(1i64 << (width - 1)), (1i64 << (width - 1)) - 1) } else { (0, (1i64 << width) - 1) };
        let part = |value: u32| (i64::from(value as i32).clamp(low, high) as u64) & ((1 << width) - 1);
        (part(b) | part(a) << width | u64::from(c) << (2 * width)) as u32
    }
}
