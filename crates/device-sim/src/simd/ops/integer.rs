//! Integer arithmetic, comparison and shifts.
//!
//! All functions are total. Where PTX leaves a result undefined (division by zero), it is what the
//! hardware gives.

use super::ops;
use crate::simd::alu::{Carry, MulCarry, Test2};
use crate::simd::lanes::RegisterType;
use std::marker::PhantomData;

/// An integer type of registers.
pub trait Int: RegisterType + Ord {
    type Wide: RegisterType;
    fn add(a: Self, b: Self) -> Self;
    fn sub(a: Self, b: Self) -> Self;
    fn mul(a: Self, b: Self) -> Self;
    fn mul_hi(a: Self, b: Self) -> Self;
    fn mul_wide(a: Self, b: Self) -> Self::Wide;
    fn mad_wide(a: Self, b: Self, c: Self::Wide) -> Self::Wide;
    fn div(a: Self, b: Self) -> Self;
    fn rem(a: Self, b: Self) -> Self;
    fn neg(a: Self) -> Self;
    fn abs(a: Self) -> Self;
    fn not(a: Self) -> Self;
    fn and(a: Self, b: Self) -> Self;
    fn or(a: Self, b: Self) -> Self;
    fn xor(a: Self, b: Self) -> Self;
    fn shl(a: Self, n: u32) -> Self;
    fn shr(a: Self, n: u32) -> Self;
    fn add_carry(a: Self, b: Self, carry: bool) -> (Self, bool);
}

macro_rules! int {
    ($($ty:ident $unsigned:ident $wide:ident $product:ident;)*) => {$(
        impl Int for $ty {
            type Wide = $wide;
            #[inline(always)]
            fn add(a: Self, b: Self) -> Self { a.wrapping_add(b) }
            #[inline(always)]
            fn sub(a: Self, b: Self) -> Self { a.wrapping_sub(b) }
            #[inline(always)]
            fn mul(a: Self, b: Self) -> Self { a.wrapping_mul(b) }
            #[inline(always)]
            fn mul_hi(a: Self, b: Self) -> Self { ((a as $product * b as $product) >> <$ty>::BITS) as $ty }
            #[inline(always)]
            fn mul_wide(a: Self, b: Self) -> $wide { (a as $wide).wrapping_mul(b as $wide) }
            #[inline(always)]
            fn mad_wide(a: Self, b: Self, c: $wide) -> $wide { (a as $wide).wrapping_mul(b as $wide).wrapping_add(c) }
            #[inline(always)]
            fn div(a: Self, b: Self) -> Self { if b == 0 { !0 } else { a.wrapping_div(b) } }
            #[inline(always)]
            fn rem(a: Self, b: Self) -> Self { if b == 0 { a } else { a.wrapping_rem(b) } }
            #[inline(always)]
            fn neg(a: Self) -> Self { a.wrapping_neg() }
            #[inline(always)]
            #[allow(unused_comparisons)]
            fn abs(a: Self) -> Self { if a < 0 { a.wrapping_neg() } else { a } }
            #[inline(always)]
            fn not(a: Self) -> Self { !a }
            #[inline(always)]
            fn and(a: Self, b: Self) -> Self { a & b }
            #[inline(always)]
            fn or(a: Self, b: Self) -> Self { a | b }
            #[inline(always)]
            fn xor(a: Self, b: Self) -> Self { a ^ b }
            #[inline(always)]
            fn shl(a: Self, n: u32) -> Self { if n < <$ty>::BITS { a << n } else { 0 } }
            #[inline(always)]
            #[allow(unused_comparisons)]
            fn shr(a: Self, n: u32) -> Self { if n < <$ty>::BITS { a >> n } else if a < 0 { !0 } else { 0 } }
            #[inline(always)]
            fn add_carry(a: Self, b: Self, carry: bool) -> (Self, bool) {
                let (sum, first) = (a as $unsigned).overflowing_add(b as $unsigned);
                let (sum, second) = sum.overflowing_add(<$unsigned>::from(carry));
                (sum as $ty, first | second)
            }
        }
    )*};
}

int! {
    u16 u16 u32 u32;
    i16 u16 i32 i32;
    u32 u32 u64 u64;
    i32 u32 i64 i64;
    u64 u64 u64 u128;
    i64 u64 i64 i128;
}

ops! {
    Add<T: Int>(a: T, b: T) -> T { T::add(a, b) }
    Sub<T: Int>(a: T, b: T) -> T { T::sub(a, b) }
    Mul<T: Int>(a: T, b: T) -> T { T::mul(a, b) }
    MulHi<T: Int>(a: T, b: T) -> T { T::mul_hi(a, b) }
    MulWide<T: Int>(a: T, b: T) -> T::Wide { T::mul_wide(a, b) }
    Mad<T: Int>(a: T, b: T, c: T) -> T { T::add(T::mul(a, b), c) }
    MadHi<T: Int>(a: T, b: T, c: T) -> T { T::add(T::mul_hi(a, b), c) }
    MadWide<T: Int>(a: T, b: T, c: T::Wide) -> T::Wide { T::mad_wide(a, b, c) }
    Div<T: Int>(a: T, b: T) -> T { T::div(a, b) }
    Rem<T: Int>(a: T, b: T) -> T { T::rem(a, b) }
    Min<T: Int>(a: T, b: T) -> T { if b < a { b } else { a } }
    Max<T: Int>(a: T, b: T) -> T { if b > a { b } else { a } }
    Neg<T: Int>(a: T) -> T { T::neg(a) }
    Abs<T: Int>(a: T) -> T { T::abs(a) }
    Not<T: Int>(a: T) -> T { T::not(a) }
    And<T: Int>(a: T, b: T) -> T { T::and(a, b) }
    Or<T: Int>(a: T, b: T) -> T { T::or(a, b) }
    Xor<T: Int>(a: T, b: T) -> T { T::xor(a, b) }
    Shl<T: Int>(a: T, n: u32) -> T { T::shl(a, n) }
    Shr<T: Int>(a: T, n: u32) -> T { T::shr(a, n) }
    Move<T: RegisterType>(a: T) -> T { a }
    Sad<T: Int>(a: T, b: T, c: T) -> T { T::add(c, if a < b { T::sub(b, a) } else { T::sub(a, b) }) }

    AddSat(a: i32, b: i32) -> i32 { a.saturating_add(b) }
    SubSat(a: i32, b: i32) -> i32 { a.saturating_sub(b) }
    MadHiSat(a: i32, b: i32, c: i32) -> i32 { i32::mul_hi(a, b).saturating_add(c) }

    Mul24LoS(a: i32, b: i32) -> i32 { (low24(a) * low24(b)) as i32 }
    Mul24LoU(a: u32, b: u32) -> u32 { (u64::from(a & 0xff_ffff) * u64::from(b & 0xff_ffff)) as u32 }
    Mul24HiS(a: i32, b: i32) -> i32 { ((low24(a) * low24(b)) >> 16) as i32 }
    Mul24HiU(a: u32, b: u32) -> u32 { ((u64::from(a & 0xff_ffff) * u64::from(b & 0xff_ffff)) >> 16) as u32 }
    Mad24LoS(a: i32, b: i32, c: i32) -> i32 { ((low24(a) * low24(b)) as i32).wrapping_add(c) }
    Mad24LoU(a: u32, b: u32, c: u32) -> u32 { ((u64::from(a & 0xff_ffff) * u64::from(b & 0xff_ffff)) as u32).wrapping_add(c) }
    Mad24HiS(a: i32, b: i32, c: i32) -> i32 { (((low24(a) * low24(b)) >> 16) as i32).wrapping_add(c) }
    Mad24HiU(a: u32, b: u32, c: u32) -> u32 { (((u64::from(a & 0xff_ffff) * u64::from(b & 0xff_ffff)) >> 16) as u32).wrapping_add(c) }
    Mad24HiSat(a: i32, b: i32, c: i32) -> i32 { (((low24(a) * low24(b)) >> 16) as i32).saturating_add(c) }

    Dp4aUU(a: u32, b: u32, c: u32) -> u32 { dp4(a, b, c, u8_of, u8_of) }
    Dp4aUS(a: u32, b: u32, c: u32) -> u32 { dp4(a, b, c, u8_of, i8_of) }
    Dp4aSU(a: u32, b: u32, c: u32) -> u32 { dp4(a, b, c, i8_of, u8_of) }
    Dp4aSS(a: u32, b: u32, c: u32) -> u32 { dp4(a, b, c, i8_of, i8_of) }

    // `slct`: the sign of the last source selects.
    Slct<T: RegisterType>(a: T, b: T, c: i32) -> T { if c >= 0 { a } else { b } }
    SlctF<T: RegisterType>(a: T, b: T, c: f32) -> T { if c >= 0.0 { a } else { b } }
    SlctFtz<T: RegisterType>(a: T, b: T, c: f32) -> T { if super::float::flush(c) >= 0.0 { a } else { b } }
}

#[inline(always)]
fn low24(a: i32) -> i64 {
    i64::from((a << 8) >> 8)
}

#[inline(always)]
fn u8_of(word: u32, byte: u32) -> i32 {
    (word >> (8 * byte) & 0xff) as i32
}

#[inline(always)]
fn i8_of(word: u32, byte: u32) -> i32 {
    i32::from((word >> (8 * byte)) as i8)
}

#[inline(always)]
fn dp4(a: u32, b: u32, c: u32, fa: impl Fn(u32, u32) -> i32, fb: impl Fn(u32, u32) -> i32) -> u32 {
    let mut sum = c;
    for byte in 0..4 {
        sum = sum.wrapping_add((fa(a, byte) * fb(b, byte)) as u32);
    }
    sum
}

/// In the immediate of [`Dp2a`]: the halves of `a` are signed.
pub const DP2A_SIGNED_A: u16 = 1;
/// In the immediate of [`Dp2a`]: the bytes of `b` are signed.
pub const DP2A_SIGNED_B: u16 = 2;
/// In the immediate of [`Dp2a`]: use the upper two bytes of `b`, not the lower.
pub const DP2A_HIGH: u16 = 4;

/// `dp2a`, described by its immediate.
pub struct Dp2a;
impl crate::simd::alu::Op3x for Dp2a {
    type T = u32;
    #[inline(always)]
    fn compute(a: u32, b: u32, c: u32, x: u16) -> u32 {
        let mut sum = c;
        for half in 0..2 {
            let raw = (a >> (16 * half)) as u16;
            let left = if x & DP2A_SIGNED_A != 0 { i32::from(raw as i16) } else { i32::from(raw) };
            let byte = half + if x & DP2A_HIGH != 0 { 2 } else { 0 };
            let right = if x & DP2A_SIGNED_B != 0 { i8_of(b, byte) } else { u8_of(b, byte) };
            sum = sum.wrapping_add(left.wrapping_mul(right) as u32);
        }
        sum
    }
}

macro_rules! carries {
    ($($(#[$doc:meta])* $name:ident($a:ident, $b:ident, $carry:ident) $value:expr;)*) => {$(
        $(#[$doc])*
        pub struct $name<T>(PhantomData<T>);
        impl<T: Int> Carry for $name<T> {
            type T = T;
            #[inline(always)]
            fn compute($a: T, $b: T, $carry: bool) -> (T, bool) { $value }
        }
    )*};
}
carries! {
    AddCarry(a, b, carry) T::add_carry(a, b, carry);
    /// `a - b`, where the carry is set: `subc`.
    SubWithCarry(a, b, carry) T::add_carry(a, T::not(b), carry);
    /// `a - b`: `sub.cc`.
    SubCarry(a, b, _carry) T::add_carry(a, T::not(b), true);
}

/// The low half of `a * b` plus `c`, with carry (`mad.lo.cc`, `madc.lo`).
pub struct MadLoCarry<T>(PhantomData<T>);
impl<T: Int> MulCarry for MadLoCarry<T> {
    type T = T;
    #[inline(always)]
    fn compute(a: T, b: T, c: T, carry: bool) -> (T, bool) {
        T::add_carry(T::mul(a, b), c, carry)
    }
}
/// The high half of `a * b` plus `c`, with carry (`mad.hi.cc`, `madc.hi`).
pub struct MadHiCarry<T>(PhantomData<T>);
impl<T: Int> MulCarry for MadHiCarry<T> {
    type T = T;
    #[inline(always)]
    fn compute(a: T, b: T, c: T, carry: bool) -> (T, bool) {
        T::add_carry(T::mul_hi(a, b), c, carry)
    }
}

macro_rules! tests {
    ($($name:ident $op:tt;)*) => {$(
        pub struct $name<T>(PhantomData<T>);
        impl<T: Int> Test2 for $name<T> {
            type A = T;
            #[inline(always)]
            fn compute(a: T, b: T) -> bool { a $op b }
        }
    )*};
}
tests! { Eq ==; Ne !=; Lt <; Le <=; Gt >; Ge >=; }
