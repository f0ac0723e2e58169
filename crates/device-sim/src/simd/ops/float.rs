//! Single and double precision arithmetic.
//!
//! A single that is NaN is the canonical NaN of the hardware, 0x7fffffff. Directed rounding of
//! singles goes through doubles and rounding to odd (`round`), that of doubles through integers
//! (`soft`).

// NaN makes the negated comparisons true: this is how unordered comparisons work.
#![allow(clippy::neg_cmp_op_on_partial_ord)]

use super::round::{RM, RN, RP, RZ, odd_sum, to_f32, to_odd, zero_sign};
use super::{ops, soft};
use crate::simd::alu::{Op1, Op2, Op3, Op3x, Test1, Test2};

/// The canonical NaN of the hardware.
pub const NAN32: u32 = 0x7fff_ffff;

/// Flushes a subnormal to zero of the same sign.
#[inline(always)]
pub fn flush(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits(if bits & 0x7f80_0000 == 0 { bits & 0x8000_0000 } else { bits })
}

#[inline(always)]
fn input<const FTZ: bool>(x: f32) -> f32 {
    if FTZ { flush(x) } else { x }
}

/// The last steps of every single precision operation.
#[inline(always)]
fn output<const FTZ: bool, const SAT: bool>(x: f32) -> f32 {
    let x = if FTZ { flush(x) } else { x };
    if SAT {
        // NaN becomes 0, and so does -0.
        return if x > 0.0 { if x > 1.0 { 1.0 } else { x } } else { 0.0 };
    }
    if x.is_nan() { f32::from_bits(NAN32) } else { x }
}

#[inline(always)]
fn add32<const MODE: u8>(a: f32, b: f32) -> f32 {
    if MODE == RN {
        return a + b;
    }
    let (a, b) = (f64::from(a), f64::from(b));
    to_f32::<MODE>(zero_sign::<MODE>(odd_sum(a, b), a, b))
}

#[inline(always)]
fn mul32<const MODE: u8>(a: f32, b: f32) -> f32 {
    if MODE == RN { a * b } else { to_f32::<MODE>(f64::from(a) * f64::from(b)) }
}

#[inline(always)]
fn fma32<const MODE: u8>(a: f32, b: f32, c: f32) -> f32 {
    if MODE == RN && cfg!(not(target_arch = "x86_64")) {
        return a.mul_add(b, c);
    }
    // The product is exact in double precision.
    let (p, c) = (f64::from(a) * f64::from(b), f64::from(c));
    to_f32::<MODE>(zero_sign::<MODE>(odd_sum(p, c), p, c))
}

pub struct Add32<const MODE: u8, const FTZ: bool, const SAT: bool>;
impl<const MODE: u8, const FTZ: bool, const SAT: bool> Op2 for Add32<MODE, FTZ, SAT> {
    type A = f32;
    type B = f32;
    type R = f32;
    #[inline(always)]
    fn compute(a: f32, b: f32) -> f32 {
        output::<FTZ, SAT>(add32::<MODE>(input::<FTZ>(a), input::<FTZ>(b)))
    }
}

pub struct Sub32<const MODE: u8, const FTZ: bool, const SAT: bool>;
impl<const MODE: u8, const FTZ: bool, const SAT: bool> Op2 for Sub32<MODE, FTZ, SAT> {
    type A = f32;
    type B = f32;
    type R = f32;
    #[inline(always)]
    fn compute(a: f32, b: f32) -> f32 {
        output::<FTZ, SAT>(add32::<MODE>(input::<FTZ>(a), -input::<FTZ>(b)))
    }
}

pub struct Mul32<const MODE: u8, const FTZ: bool, const SAT: bool>;
impl<const MODE: u8, const FTZ: bool, const SAT: bool> Op2 for Mul32<MODE, FTZ, SAT> {
    type A = f32;
    type B = f32;
    type R = f32;
    #[inline(always)]
    fn compute(a: f32, b: f32) -> f32 {
        output::<FTZ, SAT>(mul32::<MODE>(input::<FTZ>(a), input::<FTZ>(b)))
    }
}

/// `HARD`: the processor has a fused multiply-add; without it, double precision gives the same
/// result.
pub struct Fma32<const MODE: u8, const FTZ: bool, const SAT: bool, const HARD: bool>;
impl<const MODE: u8, const FTZ: bool, const SAT: bool, const HARD: bool> Op3 for Fma32<MODE, FTZ, SAT, HARD> {
    type A = f32;
    type B = f32;
    type C = f32;
    type R = f32;
    #[inline(always)]
    fn compute(a: f32, b: f32, c: f32) -> f32 {
        let (a, b, c) = (input::<FTZ>(a), input::<FTZ>(b), input::<FTZ>(c));
        output::<FTZ, SAT>(if HARD && MODE == RN { a.mul_add(b, c) } else { fma32::<MODE>(a, b, c) })
    }
}

/// A fused multiply-add to nearest by the processor's instruction, with the product or the addend
/// negated.
pub struct FmaSigned32<const FTZ: bool, const PRODUCT: bool, const SUM: bool>;
impl<const FTZ: bool, const PRODUCT: bool, const SUM: bool> Op3 for FmaSigned32<FTZ, PRODUCT, SUM> {
    type A = f32;
    type B = f32;
    type C = f32;
    type R = f32;
    #[inline(always)]
    fn compute(a: f32, b: f32, c: f32) -> f32 {
        let (a, b, c) = (input::<FTZ>(a), input::<FTZ>(b), input::<FTZ>(c));
        output::<FTZ, false>((if PRODUCT { -a } else { a }).mul_add(b, if SUM { -c } else { c }))
    }
}

/// As [`FmaSigned32`], of doubles.
pub struct FmaSigned64<const PRODUCT: bool, const SUM: bool>;
impl<const PRODUCT: bool, const SUM: bool> Op3 for FmaSigned64<PRODUCT, SUM> {
    type A = f64;
    type B = f64;
    type C = f64;
    type R = f64;
    #[inline(always)]
    fn compute(a: f64, b: f64, c: f64) -> f64 {
        (if PRODUCT { -a } else { a }).mul_add(b, if SUM { -c } else { c })
    }
}

/// A quotient. The remainder's sign tells on which side of the double the exact quotient lies.
pub struct Div32<const MODE: u8, const FTZ: bool>;
impl<const MODE: u8, const FTZ: bool> Op2 for Div32<MODE, FTZ> {
    type A = f32;
    type B = f32;
    type R = f32;
    #[inline(always)]
    fn compute(a: f32, b: f32) -> f32 {
        let (a, b) = (input::<FTZ>(a), input::<FTZ>(b));
        if MODE == RN {
            return output::<FTZ, false>(a / b);
        }
        let (a, b) = (f64::from(a), f64::from(b));
        let quotient = a / b;
        let rest = (-quotient).mul_add(b, a);
        let error = if b < 0.0 { -rest } else { rest };
        output::<FTZ, false>(to_f32::<MODE>(to_odd(quotient, error)))
    }
}

pub struct Sqrt32<const MODE: u8, const FTZ: bool>;
impl<const MODE: u8, const FTZ: bool> Op1 for Sqrt32<MODE, FTZ> {
    type A = f32;
    type R = f32;
    #[inline(always)]
    fn compute(a: f32) -> f32 {
        let a = input::<FTZ>(a);
        if MODE == RN {
            return output::<FTZ, false>(a.sqrt());
        }
        let a = f64::from(a);
        let root = a.sqrt();
        output::<FTZ, false>(to_f32::<MODE>(to_odd(root, (-root).mul_add(root, a))))
    }
}

macro_rules! double {
    ($($name:ident($($arg:ident),*) $trait:ident $($assoc:ident)*: $native:expr, $soft:path;)*) => {$(
        pub struct $name<const MODE: u8>;
        impl<const MODE: u8> $trait for $name<MODE> {
            $(type $assoc = f64;)*
            type R = f64;
            #[inline(always)]
            fn compute($($arg: f64),*) -> f64 {
                if MODE == RN { $native } else { $soft($($arg,)* MODE) }
            }
        }
    )*};
}
double! {
    Add64(a, b) Op2 A B: a + b, soft::add;
    Sub64(a, b) Op2 A B: a - b, soft::sub;
    Mul64(a, b) Op2 A B: a * b, soft::mul;
    Fma64(a, b, c) Op3 A B C: a.mul_add(b, c), soft::fma;
    Div64(a, b) Op2 A B: a / b, soft::div;
    Sqrt64(a) Op1 A: a.sqrt(), soft::sqrt;
}

#[inline(always)]
fn least32(a: f32, b: f32) -> f32 {
    // -0 is less than +0, so the sign bits order equal values.
    if a.is_nan() {
        b
    } else if b.is_nan() {
        a
    } else if a == b {
        f32::from_bits(a.to_bits() | b.to_bits())
    } else if a < b {
        a
    } else {
        b
    }
}

#[inline(always)]
fn least64(a: f64, b: f64) -> f64 {
    if a.is_nan() {
        b
    } else if b.is_nan() {
        a
    } else if a == b {
        f64::from_bits(a.to_bits() | b.to_bits())
    } else if a < b {
        a
    } else {
        b
    }
}

/// `min` and `max` of singles.
pub struct MinMax32<const MAX: bool, const FTZ: bool>;
impl<const MAX: bool, const FTZ: bool> Op2 for MinMax32<MAX, FTZ> {
    type A = f32;
    type B = f32;
    type R = f32;
    #[inline(always)]
    fn compute(a: f32, b: f32) -> f32 {
        let (a, b) = (input::<FTZ>(a), input::<FTZ>(b));
        output::<FTZ, false>(if MAX { -least32(-a, -b) } else { least32(a, b) })
    }
}

#[inline(always)]
fn log2_64(x: f64) -> f64 {
    let bits = x.to_bits();
    let exponent = ((bits >> 52) & 0x7ff) as i32 - 1023;
    let mantissa = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    let high = mantissa > std::f64::consts::SQRT_2;
    let m = if high { mantissa * 0.5 } else { mantissa };
    let exponent = exponent + i32::from(high);
    let s = (m - 1.0) / (m + 1.0);
    let q = s * s;
    let series = 1.0 + q * (1.0 / 3.0 + q * (1.0 / 5.0 + q * (1.0 / 7.0 + q * (1.0 / 9.0 + q * (1.0 / 11.0 + q * (1.0 / 13.0))))));
    f64::from(exponent) + s * series * (2.0 * std::f64::consts::LOG2_E)
}

/// Added to a double below 2^51, this leaves its nearest integer in the lowest bits of the sum.
/// Vector instructions convert doubles to integers in no other way.
const TO_INTEGER: f64 = 6_755_399_441_055_744.0;

/// 2^x for |x| below 1,000, with a relative error of about 1e-10.
#[inline(always)]
fn exp2_64(x: f64) -> f64 {
    let sum = x + TO_INTEGER;
    let t = (x - (sum - TO_INTEGER)) * std::f64::consts::LN_2;
    let series = 1.0
        + t * (1.0 + t * (1.0 / 2.0 + t * (1.0 / 6.0 + t * (1.0 / 24.0 + t * (1.0 / 120.0 + t * (1.0 / 720.0 + t * (1.0 / 5040.0 + t * (1.0 / 40320.0))))))));
    // The integer goes to the place of the exponent, and the sum's other bits beyond the highest.
    f64::from_bits((sum.to_bits() << 52).wrapping_add(1023 << 52)) * series
}

/// Two to the power of a single, with overflow and underflow.
#[inline(always)]
fn exp2_32(x: f32) -> f32 {
    let wide = f64::from(x).clamp(-200.0, 200.0);
    let result = exp2_64(if x.is_nan() { 0.0 } else { wide }) as f32;
    if x.is_nan() { x } else { result }
}

#[inline(always)]
fn log2_32(x: f32) -> f32 {
    let result = log2_64(f64::from(x)) as f32;
    if x > 0.0 && x < f32::INFINITY {
        result
    } else if x == 0.0 {
        f32::NEG_INFINITY
    } else if x == f32::INFINITY {
        x
    } else {
        f32::from_bits(NAN32)
    }
}

/// The greatest number of quarters of a circle that [`sine`] counts.
const FARTHEST: f64 = (1_u64 << 50) as f64;

/// Sine, or cosine if `COS`, by reduction to an eighth of a circle in double precision.
#[inline(always)]
fn sine<const COS: bool>(x: f32) -> f32 {
    let x = f64::from(x);
    // Beyond 2^50 a double says little about the angle, and nothing about a single's.
    let sum = (x * std::f64::consts::FRAC_2_PI).clamp(-FARTHEST, FARTHEST) + TO_INTEGER;
    let quarter = sum - TO_INTEGER;
    let r = x - quarter * 1.570_796_326_734_125_6 - quarter * 6.077_100_506_506_192e-11;
    let q = r * r;
    let sin = r * (1.0 + q * (-1.0 / 6.0 + q * (1.0 / 120.0 + q * (-1.0 / 5040.0 + q * (1.0 / 362_880.0 - q * (1.0 / 39_916_800.0))))));
    let cos = 1.0 + q * (-0.5 + q * (1.0 / 24.0 + q * (-1.0 / 720.0 + q * (1.0 / 40320.0 - q * (1.0 / 3_628_800.0)))));
    let n = sum.to_bits().wrapping_add(u64::from(COS));
    let value = if n & 1 != 0 { cos } else { sin };
    let value = if n & 2 != 0 { -value } else { value };
    if x.is_finite() { (if value.abs() > 1.0 { value.signum() } else { value }) as f32 } else { f32::from_bits(NAN32) }
}

#[inline(always)]
fn tanh32(x: f32) -> f32 {
    let wide = f64::from(x);
    let e = exp2_64(wide.abs().min(40.0) * (2.0 * std::f64::consts::LOG2_E));
    let q = wide * wide;
    let small = wide.abs() * (1.0 - q * (1.0 / 3.0 - q * (2.0 / 15.0 - q * (17.0 / 315.0))));
    let large = 1.0 - 2.0 / (e + 1.0);
    let magnitude = if wide.abs() < 0.05 { small } else { large };
    if x.is_nan() { f32::from_bits(NAN32) } else { (magnitude as f32).copysign(x) }
}

macro_rules! approximations {
    ($($name:ident($a:ident) $body:expr;)*) => {$(
        pub struct $name<const FTZ: bool>;
        impl<const FTZ: bool> Op1 for $name<FTZ> {
            type A = f32;
            type R = f32;
            #[inline(always)]
            fn compute($a: f32) -> f32 {
                let $a = input::<FTZ>($a);
                output::<FTZ, false>($body)
            }
        }
    )*};
}
approximations! {
    Ex2(a) exp2_32(a);
    Lg2(a) log2_32(a);
    Sin(a) sine::<false>(a);
    Cos(a) sine::<true>(a);
    Rsqrt(a) if a == 0.0 { f32::INFINITY.copysign(a) } else { (1.0 / f64::from(a).sqrt()) as f32 };
    Abs32(a) f32::from_bits(a.to_bits() & 0x7fff_ffff);
    Neg32(a) f32::from_bits(a.to_bits() ^ 0x8000_0000);
}

ops! {
    Tanh(a: f32) -> f32 { tanh32(a) }
    Abs64(a: f64) -> f64 { f64::from_bits(a.to_bits() & (u64::MAX >> 1)) }
    Neg64(a: f64) -> f64 { f64::from_bits(a.to_bits() ^ 1 << 63) }
    Min64(a: f64, b: f64) -> f64 { least64(a, b) }
    Max64(a: f64, b: f64) -> f64 { -least64(-a, -b) }
    RsqrtD(a: f64) -> f64 { if a == 0.0 { f64::INFINITY.copysign(a) } else { 1.0 / a.sqrt() } }
    // The reciprocal and the square root with `.approx.ftz.f64` use only the upper half of the
    // source (PTX ISA).
    RcpHighD(a: f64) -> f64 { if a.is_subnormal() { f64::INFINITY.copysign(a) } else { flush64(1.0 / a) } }
    RsqrtHighD(a: f64) -> f64 { let a = flush64(a); if a == 0.0 { f64::INFINITY.copysign(a) } else { 1.0 / a.sqrt() } }
    CopySign32(a: u32, b: u32) -> u32 { (a & 0x8000_0000) | (b & 0x7fff_ffff) }
    CopySign64(a: u64, b: u64) -> u64 { (a & 1 << 63) | (b & (u64::MAX >> 1)) }
}

#[inline(always)]
fn flush64(x: f64) -> f64 {
    if x.is_subnormal() { 0f64.copysign(x) } else { x }
}

macro_rules! compare {
    ($($name:ident $name64:ident: $a:ident $b:ident $test:expr;)*) => {$(
        pub struct $name<const FTZ: bool>;
        impl<const FTZ: bool> Test2 for $name<FTZ> {
            type A = f32;
            #[inline(always)]
            #[allow(clippy::nonminimal_bool)]
            fn compute($a: f32, $b: f32) -> bool { let ($a, $b) = (input::<FTZ>($a), input::<FTZ>($b)); $test }
        }
        pub struct $name64;
        impl Test2 for $name64 {
            type A = f64;
            #[inline(always)]
            #[allow(clippy::nonminimal_bool)]
            fn compute($a: f64, $b: f64) -> bool { $test }
        }
    )*};
}
compare! {
    Eq32 Eq64: a b a == b;
    Ne32 Ne64: a b (a < b) | (a > b);
    Lt32 Lt64: a b a < b;
    Le32 Le64: a b a <= b;
    Gt32 Gt64: a b a > b;
    Ge32 Ge64: a b a >= b;
    Equ32 Equ64: a b !((a < b) | (a > b));
    Neu32 Neu64: a b a != b;
    Ltu32 Ltu64: a b !(a >= b);
    Leu32 Leu64: a b !(a > b);
    Gtu32 Gtu64: a b !(a <= b);
    Geu32 Geu64: a b !(a < b);
    Num32 Num64: a b !(a.is_nan() | b.is_nan());
    Nan32 Nan64: a b a.is_nan() | b.is_nan();
}

macro_rules! classes {
    ($($name:ident $ty:ty: $a:ident $test:expr;)*) => {$(
        pub struct $name;
        impl Test1 for $name {
            type A = $ty;
            #[inline(always)]
            fn compute($a: $ty) -> bool { $test }
        }
    )*};
}
classes! {
    Finite32 f32: a a.is_finite();
    Infinite32 f32: a a.is_infinite();
    Number32 f32: a !a.is_nan();
    NotNumber32 f32: a a.is_nan();
    Normal32 f32: a a.is_normal();
    Subnormal32 f32: a a.is_subnormal();
    Finite64 f64: a a.is_finite();
    Infinite64 f64: a a.is_infinite();
    Number64 f64: a !a.is_nan();
    NotNumber64 f64: a a.is_nan();
    Normal64 f64: a a.is_normal();
    Subnormal64 f64: a a.is_subnormal();
}

/// In the immediate of [`Any32`]: the bits of the operation.
const OPERATION: u16 = 0xf;
/// Operations of [`Any32`].
pub const ADD: u16 = 0;
pub const SUB: u16 = 1;
pub const MUL: u16 = 2;
pub const FMA: u16 = 3;
pub const DIV: u16 = 4;
pub const SQRT: u16 = 5;
pub const MIN: u16 = 6;
pub const MAX: u16 = 7;
/// In the immediate of [`Any32`]: where the rounding mode begins (3 bits).
pub const MODE_SHIFT: u16 = 4;
/// In the immediate of [`Any32`]: `.ftz`.
pub const FTZ: u16 = 1 << 7;
/// In the immediate of [`Any32`]: `.sat`.
pub const SAT: u16 = 1 << 8;
/// In the immediate of [`Any32`]: `.NaN`.
pub const NAN: u16 = 1 << 9;
/// In the immediate of [`Any32`]: `.xorsign`.
pub const XORSIGN: u16 = 1 << 10;

/// Single precision operations with options that are too rare for code of their own.
pub struct Any32;

fn in_mode<const M: u8>(operation: u16, a: f32, b: f32, c: f32) -> f32 {
    match operation {
        ADD => add32::<M>(a, b),
        SUB => add32::<M>(a, -b),
        MUL => mul32::<M>(a, b),
        FMA => fma32::<M>(a, b, c),
        DIV => <Div32<M, false> as Op2>::compute(a, b),
        _ => <Sqrt32<M, false> as Op1>::compute(a),
    }
}

impl Op3x for Any32 {
    type T = f32;
    #[inline(always)]
    fn compute(a: f32, b: f32, c: f32, x: u16) -> f32 {
        any32(a, b, c, x)
    }
}

fn any32(a: f32, b: f32, c: f32, x: u16) -> f32 {
    let flushed = |v: f32| if x & FTZ != 0 { flush(v) } else { v };
    let (a, b, c) = (flushed(a), flushed(b), flushed(c));
    let operation = x & OPERATION;
    if operation == MIN || operation == MAX {
        if x & NAN != 0 && (a.is_nan() || b.is_nan()) {
            return f32::from_bits(NAN32);
        }
        let sign = (a.to_bits() ^ b.to_bits()) & 0x8000_0000;
        let (a, b) = if x & XORSIGN != 0 { (a.abs(), b.abs()) } else { (a, b) };
        let chosen = output::<false, false>(if operation == MAX { -least32(-a, -b) } else { least32(a, b) });
        return if x & XORSIGN != 0 && !chosen.is_nan() { f32::from_bits(chosen.to_bits() | sign) } else { chosen };
    }
    let result = match (x >> MODE_SHIFT & 7) as u8 {
        RN => in_mode::<RN>(operation, a, b, c),
        RZ => in_mode::<RZ>(operation, a, b, c),
        RM => in_mode::<RM>(operation, a, b, c),
        _ => in_mode::<RP>(operation, a, b, c),
    };
    let result = flushed(result);
    if x & SAT != 0 { output::<false, true>(result) } else { output::<false, false>(result) }
}
