//! Half precision and bfloat16, one or two to a register.
//!
//! Operands are widened to doubles, in which sums and products are exact or rounded to odd. One
//! rounding to the format follows.

use super::comparison::Comparison;
use super::round::{RN, odd_sum, to_format};
use crate::simd::alu::{Alu, AluFunction, Op1, Op2, Op3, Op3x};
use crate::simd::lanes::{LANES, PerLane, RegisterSlot, RegisterType, WarpRegisters};
use std::marker::PhantomData;

/// A half-precision number (`.f16`), in the low 16 bits of a 32-bit slot.
#[derive(Clone, Copy)]
pub struct H(pub u16);
/// A bfloat16 (`.bf16`), in the low 16 bits of a 32-bit slot.
#[derive(Clone, Copy)]
pub struct B(pub u16);

/// A 16-bit floating-point format.
pub trait Small: RegisterType {
    /// The bits of 1.0.
    const ONE: u16;
    fn of(bits: u16) -> Self;
    fn bits(self) -> u16;
    /// The value, exactly.
    fn wide(self) -> f64;
    /// Rounds a double in a rounding mode.
    fn rounded<const MODE: u8>(x: f64) -> Self;
    fn is_nan(self) -> bool;
    /// Subnormals become zero.
    fn flushed(self) -> Self;
}

macro_rules! small {
    ($ty:ident, $e:literal, $m:literal) => {
        impl RegisterType for $ty {
            type Raw = u32;
            const ZERO: u32 = 0;
            #[inline(always)]
            fn from_raw(raw: u32) -> Self {
                $ty(raw as u16)
            }
            #[inline(always)]
            fn raw(self) -> u32 {
                u32::from(self.0)
            }
            #[inline(always)]
            fn read<'x>(registers: &'x WarpRegisters<'_>, slot: RegisterSlot) -> &'x PerLane<u32> {
                registers.get32(slot)
            }
            #[inline(always)]
            fn write(registers: &mut WarpRegisters<'_>, slot: RegisterSlot, value: &PerLane<u32>, mask: u32) {
                registers.set32(slot, value, mask);
            }
        }
        impl Small for $ty {
            const ONE: u16 = ((1 << ($e - 1)) - 1) << $m;
            #[inline(always)]
            fn of(bits: u16) -> Self {
                $ty(bits)
            }
            #[inline(always)]
            fn bits(self) -> u16 {
                self.0
            }
            #[inline(always)]
            fn wide(self) -> f64 {
                // The fields are shifted into those of a single. A power of two then corrects the
                // exponent, also that of subnormals.
                let magnitude = u32::from(self.0 & 0x7fff) << (23 - $m);
                let scale = f32::from_bits((127 + 127 - ((1 << ($e - 1)) - 1)) << 23);
                let value = if $e == 8 { f32::from_bits(magnitude) } else { f32::from_bits(magnitude) * scale };
                let special = (self.0 & 0x7fff) >= (((1 << $e) - 1) << $m);
                let value = if special { f32::from_bits(magnitude | 0x7f80_0000) } else { value };
                f64::from(f32::from_bits(value.to_bits() | u32::from(self.0 & 0x8000) << 16))
            }
            #[inline(always)]
            fn rounded<const MODE: u8>(x: f64) -> Self {
                $ty(to_format::<$e, $m, MODE>(x) as u16)
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                (self.0 & 0x7fff) > (((1 << $e) - 1) << $m)
            }
            #[inline(always)]
            fn flushed(self) -> Self {
                if (self.0 & 0x7fff) < (1 << $m) { $ty(self.0 & 0x8000) } else { self }
            }
        }
    };
}
small!(H, 5, 10);
small!(B, 8, 7);

/// Flag: the result is clamped to the range from 0 to 1 (`.sat`).
pub const SAT: u8 = 1;
/// Flag: a negative result becomes 0 (`.relu`).
pub const RELU: u8 = 2;
/// Flag of every operation: subnormal operands and results become 0 (`.ftz`).
pub const FTZ: u8 = 4;
/// Flag of minimum and maximum: the result is NaN if an operand is (`.NaN`).
pub const NAN: u8 = 1;
/// Flag of minimum and maximum: the result's sign is that of the product (`.xorsign`).
pub const XORSIGN: u8 = 2;

macro_rules! arithmetic {
    ($($name:ident $trait:ident($($arg:ident $assoc:ident),*) $body:expr;)*) => {$(
        pub struct $name<T>(PhantomData<T>);
        impl<T: Small> $trait for $name<T> {
            $(type $assoc = T;)*
            type R = T;
            #[inline(always)]
            fn compute($($arg: T),*) -> T {
                $(let $arg = $arg.wide();)*
                T::rounded::<RN>($body)
            }
        }
    )*};
}
arithmetic! {
    AddH Op2(a A, b B) odd_sum(a, b);
    SubH Op2(a A, b B) odd_sum(a, -b);
    MulH Op2(a A, b B) a * b;
    FmaH Op3(a A, b B, c C) odd_sum(a * b, c);
}

#[inline(always)]
fn extreme<T: Small>(a: T, b: T, max: bool, nan: bool, xorsign: bool) -> T {
    let sign = (a.bits() ^ b.bits()) & 0x8000;
    let (a, b) = if xorsign { (T::of(a.bits() & 0x7fff), T::of(b.bits() & 0x7fff)) } else { (a, b) };
    let chosen = if a.is_nan() | b.is_nan() {
        if nan | (a.is_nan() & b.is_nan()) {
            return T::of(0x7fff);
        }
        if a.is_nan() { b } else { a }
    } else {
        // The bit patterns are ordered as signed magnitudes, so that -0 is below +0.
        let key = |v: T| {
            let bits = v.bits() as i16;
            if bits < 0 { bits ^ 0x7fff } else { bits }
        };
        if (key(a) < key(b)) != max { a } else { b }
    };
    if xorsign { T::of(chosen.bits() | sign) } else { chosen }
}

/// `min` and `max` without options.
pub struct MinMaxH<T, const MAX: bool>(PhantomData<T>);
impl<T: Small, const MAX: bool> Op2 for MinMaxH<T, MAX> {
    type A = T;
    type B = T;
    type R = T;
    #[inline(always)]
    fn compute(a: T, b: T) -> T {
        extreme(a, b, MAX, false, false)
    }
}

/// In the immediate of [`Any`]: the bits of the operation.
const OPERATION: u16 = 0xf;
/// Operations of [`Any`].
pub const ADD: u16 = 0;
pub const SUB: u16 = 1;
pub const MUL: u16 = 2;
pub const FMA: u16 = 3;
pub const MIN: u16 = 4;
pub const MAX: u16 = 5;
pub const NEG: u16 = 6;
pub const ABS: u16 = 7;
pub const EX2: u16 = 8;
pub const TANH: u16 = 9;
/// `set`: compares, see [`COMPARISON_SHIFT`] and [`ONES`].
pub const SET: u16 = 10;
/// In the immediate of [`Any`]: where the flags begin, [`SAT`], [`RELU`], [`FTZ`], or for minimum
/// and maximum [`NAN`], [`XORSIGN`], [`FTZ`].
pub const FLAGS_SHIFT: u16 = 4;
/// In the immediate of [`Any`], for [`SET`]: where the code of the comparison begins.
pub const COMPARISON_SHIFT: u16 = 8;
/// In the immediate of [`Any`], for [`SET`]: the result is 1.0 where the comparison holds, not all
/// ones.
pub const ONES: u16 = 1 << 12;
/// In the immediate of [`Any`]: both halves of the register, not the low one alone.
pub const TWO: u16 = 1 << 13;

/// Any operation of a format, described by its immediate.
pub struct Any<T>(PhantomData<T>);

/// Performs the operation on one half of a register, or on the low one alone.
fn compute_half<T: Small>(a: T, b: T, c: T, x: u16) -> T {
    let flags = (x >> FLAGS_SHIFT & 7) as u8;
    let [a, b, c] = if flags & FTZ != 0 { [a, b, c].map(T::flushed) } else { [a, b, c] };
    let exact = match x & OPERATION {
        ADD => odd_sum(a.wide(), b.wide()),
        SUB => odd_sum(a.wide(), -b.wide()),
        MUL => a.wide() * b.wide(),
        FMA => odd_sum(a.wide() * b.wide(), c.wide()),
        MIN => return extreme(a, b, false, flags & NAN != 0, flags & XORSIGN != 0),
        MAX => return extreme(a, b, true, flags & NAN != 0, flags & XORSIGN != 0),
        NEG => return T::of(a.bits() ^ 0x8000),
        ABS => return T::of(a.bits() & 0x7fff),
        EX2 => f64::from(<super::float::Ex2<false> as Op1>::compute(a.wide() as f32)),
        TANH => f64::from(<super::float::Tanh as Op1>::compute(a.wide() as f32)),
        _ => {
            let yes = if x & ONES != 0 { T::ONE } else { 0xffff };
            return T::of(if Comparison::decode(x >> COMPARISON_SHIFT).holds(a.wide(), b.wide()) { yes } else { 0 });
        }
    };
    let exact = if flags & SAT != 0 { if exact > 0.0 { exact.min(1.0) } else { 0.0 } } else { exact };
    let exact = if flags & RELU != 0 && exact <= 0.0 { 0.0 } else { exact };
    let rounded = T::rounded::<RN>(exact);
    if flags & FTZ != 0 { rounded.flushed() } else { rounded }
}

impl<T: Small> Op3x for Any<T> {
    type T = u32;
    #[inline(always)]
    fn compute(a: u32, b: u32, c: u32, x: u16) -> u32 {
        let first = u32::from(compute_half::<T>(low(a), low(b), low(c), x).bits());
        if x & TWO != 0 { first | u32::from(compute_half::<T>(high(a), high(b), high(c), x).bits()) << 16 } else { first }
    }
}

/// In the immediate of [`compare`]: the operands are the high halves.
pub const COMPARE_HIGH: u16 = 1 << 4;
/// In the immediate of [`compare`]: the operands are bfloat16.
pub const COMPARE_BRAIN: u16 = 1 << 5;
/// In the immediate of [`compare`]: subnormal operands count as 0 (`.ftz`).
pub const COMPARE_FTZ: u16 = 1 << 6;

/// A comparison into a predicate. The immediate holds its code, [`COMPARE_HIGH`],
/// [`COMPARE_BRAIN`] and [`COMPARE_FTZ`].
#[must_use]
pub fn compare() -> AluFunction {
    AluFunction::portable(compare_lanes)
}

fn compare_lanes(registers: &mut WarpRegisters<'_>, alu: &Alu, mask: u32) {
    let (a, b) = (registers.get32(alu.a), registers.get32(alu.b));
    let mut result = 0;
    for lane in 0..LANES {
        let (a, b) = (a.0[lane], b.0[lane]);
        let holds = if alu.x & COMPARE_BRAIN != 0 { test::<B>(a, b, alu.x) } else { test::<H>(a, b, alu.x) };
        result |= u32::from(holds) << lane;
    }
    registers.set_predicate(alu.d, result, mask);
}

fn test<T: Small>(a: u32, b: u32, x: u16) -> bool {
    let part = |bits: u32| {
        let value: T = if x & COMPARE_HIGH != 0 { high(bits) } else { low(bits) };
        if x & COMPARE_FTZ != 0 { value.flushed().wide() } else { value.wide() }
    };
    Comparison::decode(x).holds(part(a), part(b))
}

/// An operation on both halves of a 32-bit register.
pub struct Two<O>(PhantomData<O>);

#[inline(always)]
fn low<T: Small>(x: u32) -> T {
    T::of(x as u16)
}
#[inline(always)]
fn high<T: Small>(x: u32) -> T {
    T::of((x >> 16) as u16)
}
#[inline(always)]
fn both<T: Small>(l: T, h: T) -> u32 {
    u32::from(l.bits()) | u32::from(h.bits()) << 16
}

impl<T: Small, O: Op2<A = T, B = T, R = T>> Op2 for Two<O> {
    type A = u32;
    type B = u32;
    type R = u32;
    #[inline(always)]
    fn compute(a: u32, b: u32) -> u32 {
        both::<T>(O::compute(low(a), low(b)), O::compute(high(a), high(b)))
    }
}
impl<T: Small, O: Op3<A = T, B = T, C = T, R = T>> Op3 for Two<O> {
    type A = u32;
    type B = u32;
    type C = u32;
    type R = u32;
    #[inline(always)]
    fn compute(a: u32, b: u32, c: u32) -> u32 {
        both::<T>(O::compute(low(a), low(b), low(c)), O::compute(high(a), high(b), high(c)))
    }
}
