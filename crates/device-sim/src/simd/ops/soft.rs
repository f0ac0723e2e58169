//! Double precision with directed rounding, by integers.
//!
//! A finite number is `sign * significand * 2^exponent`, and the significand's highest bit is bit
//! [`TOP`]. Bits that are shifted out below leave a one as the lowest bit (a sticky bit). Sums of
//! such numbers keep at least 70 bits below the result's last bit, so one final rounding is
//! correct.

use super::round::{RM, RN, RZ};

const TOP: u32 = 125;

#[derive(Clone, Copy)]
struct Number {
    negative: bool,
    exponent: i32,
    significand: u128,
}

/// Shifts to the right; the lowest bit becomes one if a one is shifted out.
fn shift_sticky(value: u128, by: u32) -> u128 {
    if by == 0 {
        value
    } else if by > 127 {
        u128::from(value != 0)
    } else {
        value >> by | u128::from(value & ((1 << by) - 1) != 0)
    }
}

impl Number {
    /// The number that a finite double is.
    fn of(x: f64) -> Number {
        let bits = x.to_bits();
        let biased = (bits >> 52 & 0x7ff) as i32;
        let fraction = bits & ((1 << 52) - 1);
        let (significand, exponent) = if biased == 0 { (fraction, -1074) } else { (fraction | 1 << 52, biased - 1075) };
        Number { negative: bits >> 63 != 0, exponent, significand: significand.into() }.normal()
    }

    fn normal(mut self) -> Number {
        if self.significand == 0 {
            return self;
        }
        let up = self.significand.leading_zeros() as i32 - (127 - TOP as i32);
        if up >= 0 {
            self.significand <<= up;
        } else {
            self.significand = shift_sticky(self.significand, up.unsigned_abs());
        }
        self.exponent -= up;
        self
    }

    fn times(self, other: Number) -> Number {
        // The operands come from doubles: their low bits are zero.
        let significand = (self.significand >> (TOP - 52)) * (other.significand >> (TOP - 52));
        let exponent = self.exponent + other.exponent + 2 * (TOP as i32 - 52);
        Number { negative: self.negative != other.negative, exponent, significand }.normal()
    }

    fn plus(self, other: Number, mode: u8) -> Number {
        if self.significand == 0 && other.significand == 0 {
            let negative = if self.negative == other.negative { self.negative } else { mode == RM };
            return Number { negative, ..self };
        }
        if self.significand == 0 {
            return other;
        }
        if other.significand == 0 {
            return self;
        }
        let (large, small) = if self.exponent >= other.exponent { (self, other) } else { (other, self) };
        let moved = shift_sticky(small.significand, (large.exponent - small.exponent) as u32);
        if large.negative == small.negative {
            return Number { significand: large.significand + moved, ..large }.normal();
        }
        if large.significand == moved {
            return Number { negative: mode == RM, exponent: 0, significand: 0 };
        }
        let (negative, significand) =
            if large.significand > moved { (large.negative, large.significand - moved) } else { (small.negative, moved - large.significand) };
        Number { negative, exponent: large.exponent, significand }.normal()
    }

    fn round(self, mode: u8) -> f64 {
        let sign = u64::from(self.negative) << 63;
        if self.significand == 0 {
            return f64::from_bits(sign);
        }
        // The value is `significand / 2^TOP * 2^power`.
        let power = self.exponent + TOP as i32;
        let shift = (TOP as i32 - 52 + (-1022 - power).max(0)).min(127) as u32;
        let kept = (self.significand >> shift) as u64;
        let rest = self.significand & ((1 << shift) - 1);
        let half = 1u128 << (shift - 1);
        let up = match mode {
            RN => rest > half || (rest == half && kept & 1 != 0),
            RZ => false,
            RM => self.negative && rest != 0,
            _ => !self.negative && rest != 0,
        };
        let rounded = kept + u64::from(up);
        let magnitude = if power < -1022 { rounded } else { (((power + 1022).min(0x7ff)) as u64).checked_shl(52).unwrap_or(0) + rounded };
        const INFINITY: u64 = 0x7ff << 52;
        let inward = match mode {
            RN => false,
            RZ => true,
            RM => !self.negative,
            _ => self.negative,
        };
        let overflow = power > 1023 || magnitude >= INFINITY;
        let magnitude = if overflow { INFINITY - u64::from(inward) } else { magnitude };
        f64::from_bits(sign | magnitude)
    }
}

fn finite(values: &[f64]) -> bool {
    values.iter().all(|v| v.is_finite())
}

pub fn add(a: f64, b: f64, mode: u8) -> f64 {
    if finite(&[a, b]) { Number::of(a).plus(Number::of(b), mode).round(mode) } else { a + b }
}

pub fn sub(a: f64, b: f64, mode: u8) -> f64 {
    if finite(&[a, b]) { add(a, -b, mode) } else { a - b }
}

pub fn mul(a: f64, b: f64, mode: u8) -> f64 {
    if finite(&[a, b]) { Number::of(a).times(Number::of(b)).round(mode) } else { a * b }
}

pub fn fma(a: f64, b: f64, c: f64, mode: u8) -> f64 {
    if finite(&[a, b, c]) { Number::of(a).times(Number::of(b)).plus(Number::of(c), mode).round(mode) } else { a.mul_add(b, c) }
}

pub fn div(a: f64, b: f64, mode: u8) -> f64 {
    if !finite(&[a, b]) || b == 0.0 || a == 0.0 {
        return a / b;
    }
    let (a, b) = (Number::of(a), Number::of(b));
    let divisor = b.significand >> (TOP - 52);
    let quotient = a.significand / divisor;
    let sticky = u128::from(a.significand % divisor != 0);
    // 73 bits of quotient, then space for the sticky bit.
    let significand = quotient << 2 | sticky;
    let exponent = a.exponent - b.exponent - (TOP as i32 - 52) - 2;
    Number { negative: a.negative != b.negative, exponent, significand }.normal().round(mode)
}

pub fn sqrt(a: f64, mode: u8) -> f64 {
    if !a.is_finite() || a <= 0.0 {
        return a.sqrt();
    }
    let mut n = Number::of(a);
    if n.exponent & 1 != 0 {
        n.significand <<= 1;
        n.exponent -= 1;
    }
    let root = n.significand.isqrt();
    let sticky = u128::from(root * root != n.significand);
    Number { negative: false, exponent: n.exponent / 2 - 2, significand: root << 2 | sticky }.normal().round(mode)
}
