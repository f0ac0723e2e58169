//! Conversions between all integer and floating-point types.

use super::float::{NAN32, flush};
use super::half::{B, H, Small};
use super::round::{RN, direct, integral, odd_sum, to_f32};
use crate::exec::lanes::Lane;
use crate::exec::level::{Op1, Op2};
use std::marker::PhantomData;

/// Integers, 8-bit ones included.
pub trait Whole: Lane {
    const BITS: u32;
    fn cut(x: i64) -> Self;
    fn extended(self) -> i64;
    fn exact(self) -> i128;
    fn clamped(x: i128) -> Self;
    /// Saturating, NaN gives 0.
    fn from_f64(x: f64) -> Self;
    fn nearest_f32(self) -> f32;
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
            fn clamped(x: i128) -> Self { x.clamp($ty::MIN as i128, $ty::MAX as i128) as $ty }
            #[inline(always)]
            fn from_f64(x: f64) -> Self { x as $ty }
            #[inline(always)]
            fn nearest_f32(self) -> f32 { self as f32 }
            #[inline(always)]
            fn nearest_f64(self) -> f64 { self as f64 }
        }
    )*};
}
whole! { u8 i8 u16 i16 u32 i32 u64 i64 }

/// Floats of all widths.
pub trait Real: Lane {
    const DOUBLE: bool;
    fn wide(self) -> f64;
    /// From a double in a rounding mode.
    fn rounded<const MODE: u8>(x: f64) -> Self;
    /// Subnormal to zero (singles only).
    fn flushed(self) -> Self;
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
    #[inline(always)]
    fn flushed(self) -> f32 {
        flush(self)
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
    #[inline(always)]
    fn flushed(self) -> f64 {
        self
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
            #[inline(always)]
            fn flushed(self) -> Self { self }
        }
    )*};
}
small_real! { H B }

/// Cut or extend by the sign of the source.
pub struct Cut<S, D>(PhantomData<(S, D)>);
impl<S: Whole, D: Whole> Op1 for Cut<S, D> {
    type A = S;
    type R = D;
    #[inline(always)]
    fn f(a: S) -> D {
        D::cut(a.extended())
    }
}

/// To the nearest value of the destination's range.
pub struct Clamp<S, D>(PhantomData<(S, D)>);
impl<S: Whole, D: Whole> Op1 for Clamp<S, D> {
    type A = S;
    type R = D;
    #[inline(always)]
    fn f(a: S) -> D {
        D::clamped(a.exact())
    }
}

pub struct ToInt<S, D, const MODE: u8, const FTZ: bool>(PhantomData<(S, D)>);
impl<S: Real, D: Whole, const MODE: u8, const FTZ: bool> Op1 for ToInt<S, D, MODE, FTZ> {
    type A = S;
    type R = D;
    #[inline(always)]
    fn f(a: S) -> D {
        let x = if FTZ { a.flushed() } else { a }.wide();
        if (S::DOUBLE || D::BITS == 64) && x.is_nan() {
            return D::cut(1i64.wrapping_shl(D::BITS - 1));
        }
        D::from_f64(integral::<MODE>(x))
    }
}

pub struct FromInt<S, D, const MODE: u8, const SAT: bool>(PhantomData<(S, D)>);
impl<S: Whole, D: Real, const MODE: u8, const SAT: bool> Op1 for FromInt<S, D, MODE, SAT> {
    type A = S;
    type R = D;
    #[inline(always)]
    fn f(a: S) -> D {
        let result = if S::BITS <= 32 {
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
        };
        if SAT { saturated(result) } else { result }
    }
}

#[inline(always)]
fn saturated<T: Real>(x: T) -> T {
    let wide = x.wide();
    if wide > 0.0 { if wide > 1.0 { T::rounded::<RN>(1.0) } else { x } } else { T::rounded::<RN>(0.0) }
}

pub struct Resize<S, D, const MODE: u8, const FTZ: bool, const SAT: bool>(PhantomData<(S, D)>);
impl<S: Real, D: Real, const MODE: u8, const FTZ: bool, const SAT: bool> Op1 for Resize<S, D, MODE, FTZ, SAT> {
    type A = S;
    type R = D;
    #[inline(always)]
    fn f(a: S) -> D {
        let x = if FTZ { a.flushed() } else { a }.wide();
        let result = D::rounded::<MODE>(x);
        let result = if FTZ { result.flushed() } else { result };
        if SAT { saturated(result) } else { result }
    }
}

/// To an integral value of the same type.
pub struct Integral<T, const MODE: u8, const FTZ: bool, const SAT: bool>(PhantomData<T>);
impl<T: Real, const MODE: u8, const FTZ: bool, const SAT: bool> Op1 for Integral<T, MODE, FTZ, SAT> {
    type A = T;
    type R = T;
    #[inline(always)]
    fn f(a: T) -> T {
        let x = if FTZ { a.flushed() } else { a };
        let result = T::rounded::<RN>(integral::<MODE>(x.wide()));
        if SAT { saturated(result) } else { result }
    }
}

/// With `.relu`: negative becomes zero.
pub struct Relu<S, D, const MODE: u8>(PhantomData<(S, D)>);
impl<S: Real, D: Real, const MODE: u8> Op1 for Relu<S, D, MODE> {
    type A = S;
    type R = D;
    #[inline(always)]
    fn f(a: S) -> D {
        let x = a.wide();
        D::rounded::<MODE>(if x <= 0.0 { 0.0 } else { x })
    }
}

/// Two singles into one register: `a` above `b`.
pub struct PackTwo<T, const MODE: u8, const RELU: bool>(PhantomData<T>);
impl<T: Small, const MODE: u8, const RELU: bool> Op2 for PackTwo<T, MODE, RELU> {
    type A = f32;
    type B = f32;
    type R = u32;
    #[inline(always)]
    fn f(a: f32, b: f32) -> u32 {
        let part = |x: f32| {
            let x = if RELU && x <= 0.0 { 0.0 } else { x };
            u32::from(<T as Small>::rounded::<MODE>(x.into()).bits())
        };
        part(b) | part(a) << 16
    }
}
