//! The scalar and SIMD video instructions (PTX ISA), by integers of 64 bits. They are rare: one
//! function interprets a description in the immediate.

use super::comparison::Comparison;
use crate::simd::alu::Op3x;

/// An operation on the two or four parts of a register. The immediate holds the operation in its
/// low four bits, and flags: [`SIGNED_A`], [`SIGNED_B`], [`SIGNED_D`], [`SATURATE`], [`SUM`].
pub struct Simd<const PARTS: u32>;

pub const ADD: u16 = 0;
pub const SUB: u16 = 1;
pub const AVRG: u16 = 2;
pub const ABSDIFF: u16 = 3;
pub const MIN: u16 = 4;
pub const MAX: u16 = 5;
/// Plus the code of one of the first six comparisons: the result is 1 if it holds, else 0.
pub const COMPARE: u16 = 6;
/// The bits of the operation in the immediate.
const OPERATION: u16 = 0xf;
pub const SIGNED_A: u16 = 1 << 4;
pub const SIGNED_B: u16 = 1 << 5;
pub const SIGNED_D: u16 = 1 << 6;
pub const SATURATE: u16 = 1 << 7;
/// The results of the parts are summed with all of `c`.
pub const SUM: u16 = 1 << 8;

#[inline(always)]
fn part(word: u32, at: u32, width: u32, signed: bool) -> i64 {
    let raw = (u64::from(word) >> (at * width)) << (64 - width);
    if signed { (raw as i64) >> (64 - width) } else { (raw >> (64 - width)) as i64 }
}

#[inline(always)]
fn compute(operation: u16, a: i64, b: i64) -> i64 {
    match operation {
        ADD => a + b,
        SUB => a - b,
        // Rounds halves away from zero.
        AVRG => {
            let sum = a + b;
            (sum + i64::from(sum >= 0)) >> 1
        }
        ABSDIFF => (a - b).abs(),
        MIN => a.min(b),
        MAX => a.max(b),
        _ => i64::from(match Comparison::decode(operation - COMPARE) {
            Comparison::Equal => a == b,
            Comparison::NotEqual => a != b,
            Comparison::Less => a < b,
            Comparison::LessOrEqual => a <= b,
            Comparison::Greater => a > b,
            _ => a >= b,
        }),
    }
}

#[inline(always)]
fn saturate(value: i64, width: u32, signed: bool) -> i64 {
    let (low, high) = if signed { (-(1i64 << (width - 1)), (1i64 << (width - 1)) - 1) } else { (0, (1i64 << width) - 1) };
    value.clamp(low, high)
}

impl<const PARTS: u32> Op3x for Simd<PARTS> {
    type T = u32;
    #[inline(always)]
    fn compute(a: u32, b: u32, c: u32, x: u16) -> u32 {
        let width = 32 / PARTS;
        let mut out = if x & SUM != 0 { c } else { 0 };
        let mut at = 0;
        while at < PARTS {
            let value = compute(x & OPERATION, part(a, at, width, x & SIGNED_A != 0), part(b, at, width, x & SIGNED_B != 0));
            let value = if x & SATURATE != 0 { saturate(value, width, x & SIGNED_D != 0) } else { value };
            if x & SUM != 0 {
                out = out.wrapping_add(value as u32);
            } else {
                out |= ((value as u64 & ((1u64 << width) - 1)) << (at * width)) as u32;
            }
            at += 1;
        }
        out
    }
}

/// A scalar video instruction on its extracted sources. The immediate holds the operation in its
/// low four bits ([`SHIFT_LEFT`] and [`SHIFT_RIGHT`] besides those above), [`SIGNED_A`],
/// [`SIGNED_B`], [`SIGNED_D`], [`SATURATE`] and [`WRAP`], the width of the result at [`WIDTH_AT`]
/// and the second operation at [`SECOND_AT`].
pub struct Scalar;

pub const SHIFT_LEFT: u16 = 12;
pub const SHIFT_RIGHT: u16 = 13;
/// Numbers of a shift are taken modulo 32, not limited to it.
pub const WRAP: u16 = 1 << 8;
/// 0: 32 bits, else so many bytes.
pub const WIDTH_AT: u16 = 9;
/// 0: none, else one of the following.
pub const SECOND_AT: u16 = 11;
pub const SECOND_ADD: u16 = 1;
pub const SECOND_MIN: u16 = 2;
pub const SECOND_MAX: u16 = 3;

impl Op3x for Scalar {
    type T = u32;
    #[inline(always)]
    fn compute(a: u32, b: u32, c: u32, x: u16) -> u32 {
        let extended = |value: u32, flag: u16| if x & flag != 0 { i64::from(value as i32) } else { i64::from(value) };
        let (wide_a, wide_b) = (extended(a, SIGNED_A), extended(b, SIGNED_B));
        let number = if x & WRAP != 0 { b & 31 } else { b.min(32) };
        let value = match x & OPERATION {
            SHIFT_LEFT => wide_a << number,
            SHIFT_RIGHT => wide_a >> number,
            operation => compute(operation, wide_a, wide_b),
        };
        let signed = x & SIGNED_D != 0;
        let width = [32, 8, 16][usize::from(x >> WIDTH_AT & 3) % 3];
        let value = if x & SATURATE != 0 { saturate(value, width, signed) } else { value } as u32;
        match x >> SECOND_AT & 3 {
            SECOND_ADD => value.wrapping_add(c),
            SECOND_MIN if signed => (value as i32).min(c as i32) as u32,
            SECOND_MIN => value.min(c),
            SECOND_MAX if signed => (value as i32).max(c as i32) as u32,
            SECOND_MAX => value.max(c),
            _ => value,
        }
    }
}
