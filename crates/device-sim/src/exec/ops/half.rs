//! Half precision and bfloat16, one or two to a register.
//!
//! Operands are widened to doubles, where sums and products are exact or rounded to odd; one rounding to the format follows.

use super::round::{RN, odd_sum, to_format};
use crate::exec::lanes::{Lane, Lanes, Slot, V};
use crate::exec::level::{Op1, Op2, Op3, Test2};
use std::marker::PhantomData;

/// A half in the low 16 bits of a 32-bit slot.
#[derive(Clone, Copy)]
pub struct H(pub u16);
/// A bfloat16.
#[derive(Clone, Copy)]
pub struct B(pub u16);

/// The two formats.
pub trait Small: Lane {
    const ONE: u16;
    fn of(bits: u16) -> Self;
    fn bits(self) -> u16;
    fn wide(self) -> f64;
    fn rounded<const MODE: u8>(x: f64) -> Self;
    fn is_nan(self) -> bool;
    fn flushed(self) -> Self;
}

macro_rules! small {
    ($ty:ident, $e:literal, $m:literal) => {
        impl Lane for $ty {
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
            fn read<'x>(lanes: &'x Lanes<'_>, slot: Slot) -> &'x V<u32> {
                lanes.get32(slot)
            }
            #[inline(always)]
            fn write(lanes: &mut Lanes<'_>, slot: Slot, value: &V<u32>, mask: u32) {
                lanes.set32(slot, value, mask);
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
                // Shift the fields into a single; a power of two then corrects the exponent, of subnormals too.
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

/// What follows the rounding.
pub const PLAIN: u8 = 0;
pub const SAT: u8 = 1;
pub const RELU: u8 = 2;
pub const FTZ: u8 = 4;

#[inline(always)]
fn finish<T: Small, const HOW: u8>(x: f64) -> T {
    let x = if HOW & SAT != 0 { if x > 0.0 { x.min(1.0) } else { 0.0 } } else { x };
    let x = if HOW & RELU != 0 && x < 0.0 { 0.0 } else { x };
    let rounded = T::rounded::<RN>(x);
    let rounded = if HOW & RELU != 0 && rounded.bits() == 0x8000 { T::of(0) } else { rounded };
    if HOW & FTZ != 0 { rounded.flushed() } else { rounded }
}

#[inline(always)]
fn source<T: Small, const HOW: u8>(x: T) -> f64 {
    if HOW & FTZ != 0 { x.flushed().wide() } else { x.wide() }
}

macro_rules! arithmetic {
    ($($name:ident $trait:ident($($arg:ident $assoc:ident),*) $body:expr;)*) => {$(
        pub struct $name<T, const HOW: u8>(PhantomData<T>);
        impl<T: Small, const HOW: u8> $trait for $name<T, HOW> {
            $(type $assoc = T;)*
            type R = T;
            #[inline(always)]
            fn f($($arg: T),*) -> T {
                $(let $arg = source::<T, HOW>($arg);)*
                finish::<T, HOW>($body)
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

/// Approximations and sign operations.
macro_rules! unary {
    ($($name:ident: $arg:ident $body:expr;)*) => {$(
        pub struct $name<T>(PhantomData<T>);
        impl<T: Small> Op1 for $name<T> {
            type A = T;
            type R = T;
            #[inline(always)]
            fn f($arg: T) -> T { $body }
        }
    )*};
}
unary! {
    NegH: a T::of(a.bits() ^ 0x8000);
    AbsH: a T::of(a.bits() & 0x7fff);
    Ex2H: a T::rounded::<RN>(<super::float::Ex2<false> as Op1>::f(a.wide() as f32).into());
    TanhH: a T::rounded::<RN>(<super::float::Tanh as Op1>::f(a.wide() as f32).into());
}

/// min and max. `NAN`: NaN wins; `XS`: sign by exclusive or.
pub struct MinMaxH<T, const MAX: bool, const NAN: bool, const XS: bool>(PhantomData<T>);
impl<T: Small, const MAX: bool, const NAN: bool, const XS: bool> Op2 for MinMaxH<T, MAX, NAN, XS> {
    type A = T;
    type B = T;
    type R = T;
    #[inline(always)]
    fn f(a: T, b: T) -> T {
        let sign = (a.bits() ^ b.bits()) & 0x8000;
        let (a, b) = if XS { (T::of(a.bits() & 0x7fff), T::of(b.bits() & 0x7fff)) } else { (a, b) };
        let chosen = if a.is_nan() | b.is_nan() {
            if NAN | (a.is_nan() & b.is_nan()) {
                return T::of(0x7fff);
            }
            if a.is_nan() { b } else { a }
        } else {
            // Order of the bit patterns as signed magnitudes, so that -0 is below +0.
            let key = |v: T| {
                let bits = v.bits() as i16;
                if bits < 0 { (bits ^ 0x7fff) as i16 } else { bits }
            };
            if (key(a) < key(b)) != MAX { a } else { b }
        };
        if XS { T::of(chosen.bits() | sign) } else { chosen }
    }
}

/// Comparisons by code, as [`holds`] numbers them.
pub struct CompareH<T, const CMP: u8>(PhantomData<T>);
impl<T: Small, const CMP: u8> Test2 for CompareH<T, CMP> {
    type A = T;
    #[inline(always)]
    fn f(a: T, b: T) -> bool {
        holds::<CMP>(a.wide(), b.wide())
    }
}

/// 0 eq, 1 ne, 2 lt, 3 le, 4 gt, 5 ge, the same plus 8 with NaN counting as true, 6 num, 7 nan.
#[inline(always)]
#[allow(clippy::nonminimal_bool)]
pub fn holds<const CMP: u8>(a: f64, b: f64) -> bool {
    match CMP {
        0 => a == b,
        1 => (a < b) | (a > b),
        2 => a < b,
        3 => a <= b,
        4 => a > b,
        5 => a >= b,
        6 => !(a.is_nan() | b.is_nan()),
        7 => a.is_nan() | b.is_nan(),
        8 => !((a < b) | (a > b)),
        9 => a != b,
        10 => !(a >= b),
        11 => !(a > b),
        12 => !(a <= b),
        _ => !(a < b),
    }
}

/// The same on both halves of a 32-bit register.
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

impl<T: Small, O: Op1<A = T, R = T>> Op1 for Two<O> {
    type A = u32;
    type R = u32;
    #[inline(always)]
    fn f(a: u32) -> u32 {
        both::<T>(O::f(low(a)), O::f(high(a)))
    }
}
impl<T: Small, O: Op2<A = T, B = T, R = T>> Op2 for Two<O> {
    type A = u32;
    type B = u32;
    type R = u32;
    #[inline(always)]
    fn f(a: u32, b: u32) -> u32 {
        both::<T>(O::f(low(a), low(b)), O::f(high(a), high(b)))
    }
}
impl<T: Small, O: Op3<A = T, B = T, C = T, R = T>> Op3 for Two<O> {
    type A = u32;
    type B = u32;
    type C = u32;
    type R = u32;
    #[inline(always)]
    fn f(a: u32, b: u32, c: u32) -> u32 {
        both::<T>(O::f(low(a), low(b), low(c)), O::f(high(a), high(b), high(c)))
    }
}

/// `set` on both halves: 1.0 (`FLOAT`) or all ones where the comparison holds.
pub struct SetTwo<T, const CMP: u8, const FLOAT: bool>(PhantomData<T>);
impl<T: Small, const CMP: u8, const FLOAT: bool> Op2 for SetTwo<T, CMP, FLOAT> {
    type A = u32;
    type B = u32;
    type R = u32;
    #[inline(always)]
    fn f(a: u32, b: u32) -> u32 {
        let yes = if FLOAT { u32::from(T::ONE) } else { 0xffff };
        let l = if holds::<CMP>(low::<T>(a).wide(), low::<T>(b).wide()) { yes } else { 0 };
        let h = if holds::<CMP>(high::<T>(a).wide(), high::<T>(b).wide()) { yes } else { 0 };
        l | h << 16
    }
}

/// A comparison of the halves of 32-bit registers; `HIGH` chooses which.
pub struct CompareHalf<T, const CMP: u8, const HIGH: bool>(PhantomData<T>);
impl<T: Small, const CMP: u8, const HIGH: bool> Test2 for CompareHalf<T, CMP, HIGH> {
    type A = u32;
    #[inline(always)]
    fn f(a: u32, b: u32) -> bool {
        let part = |x: u32| if HIGH { high::<T>(x).wide() } else { low::<T>(x).wide() };
        holds::<CMP>(part(a), part(b))
    }
}
