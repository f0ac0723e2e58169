//! Floating-point formats of 4, 6 and 8 bits (PTX ISA, *Alternate Floating-Point Data Formats*),
//! and the 19 bits of `.tf32`.

use super::half::{H, Small};
use super::round::{RN, to_format};
use crate::simd::alu::{Op1, Op3x};

/// A format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Narrow {
    E4m3,
    E5m2,
    E3m2,
    E2m3,
    E2m1,
}

const NARROW: [Narrow; 5] = [Narrow::E4m3, Narrow::E5m2, Narrow::E3m2, Narrow::E2m3, Narrow::E2m1];

impl Narrow {
    /// Bits of the exponent and of the stored significand.
    fn shape(self) -> (u32, u32) {
        match self {
            Narrow::E4m3 => (4, 3),
            Narrow::E5m2 => (5, 2),
            Narrow::E3m2 => (3, 2),
            Narrow::E2m3 => (2, 3),
            Narrow::E2m1 => (2, 1),
        }
    }

    /// The exponent of the smallest normal number.
    fn least_exponent(self) -> i32 {
        2 - (1 << (self.shape().0 - 1))
    }

    /// Bits of a value, its sign included.
    pub fn bits(self) -> u32 {
        let (exponent, significand) = self.shape();
        1 + exponent + significand
    }

    /// The bits of the largest finite number.
    fn largest(self) -> u8 {
        match self {
            Narrow::E4m3 => 0x7e,
            Narrow::E5m2 => 0x7b,
            _ => (1 << (self.bits() - 1)) - 1,
        }
    }

    /// The value of these bits. Bits above the format are ignored.
    pub fn decode(self, bits: u8) -> f64 {
        let (exponent, significand) = self.shape();
        let magnitude = u32::from(bits) & ((1 << (exponent + significand)) - 1);
        let value = match self {
            Narrow::E4m3 if magnitude == 0x7f => f64::NAN,
            Narrow::E5m2 if magnitude == 0x7c => f64::INFINITY,
            Narrow::E5m2 if magnitude > 0x7c => f64::NAN,
            _ => {
                let (raised, fraction) = (magnitude >> significand, magnitude & ((1 << significand) - 1));
                let whole = if raised == 0 { fraction } else { fraction | 1 << significand };
                let power = self.least_exponent() + raised.saturating_sub(1) as i32 - significand as i32;
                f64::from(whole) * f64::from(power).exp2()
            }
        };
        if bits >> (exponent + significand) & 1 != 0 { -value } else { value }
    }

    /// The nearest number of the format (`.rn.satfinite`): numbers beyond the largest become the
    /// largest.
    pub fn encode(self, value: f64) -> u8 {
        if value.is_nan() {
            return if matches!(self, Narrow::E4m3 | Narrow::E5m2) { 0x7f } else { self.largest() };
        }
        let (exponent, significand) = self.shape();
        let sign = u8::from(value.is_sign_negative()) << (exponent + significand);
        let magnitude = value.abs().min(self.decode(self.largest()));
        let least = self.least_exponent();
        let power = ((magnitude.to_bits() >> 52) as i32 - 1023).max(least);
        let steps = (magnitude * f64::from(significand as i32 - power).exp2()).round_ties_even();
        sign | ((((power - least) as u32) << significand) + steps as u32) as u8
    }
}

/// In the immediate of [`Narrowing`] and [`Widening`]: the number of the format.
const FORMAT: u16 = 7;
/// In the immediate of the conversions of this file: negative values become 0.
pub const RELU: u16 = 1 << 3;
/// In the immediate of [`Narrowing`]: the source is two halves in one register.
pub const OF_HALVES: u16 = 1 << 4;
/// In the immediate of [`Rounding19`]: numbers beyond the largest become the largest.
pub const SATFINITE: u16 = 1 << 4;

/// The number of a format in an immediate.
pub fn format_code(format: Narrow) -> u16 {
    format as u16
}

fn half(bits: u32) -> f64 {
    Small::wide(H(bits as u16))
}

/// Two singles, or two halves in `a`, to two numbers of a format; the first one above the second.
pub struct Narrowing;
impl Op3x for Narrowing {
    type T = u32;
    #[inline(always)]
    fn compute(a: u32, b: u32, _: u32, x: u16) -> u32 {
        let format = NARROW[usize::from(x & FORMAT) % 5];
        let (high, low) = if x & OF_HALVES != 0 { (half(a >> 16), half(a)) } else { (f32::from_bits(a).into(), f32::from_bits(b).into()) };
        let part = |value: f64| u32::from(format.encode(if x & RELU != 0 && value <= 0.0 { 0.0 } else { value }));
        // Formats of 6 bits have a byte each.
        part(low) | part(high) << if format == Narrow::E2m1 { 4 } else { 8 }
    }
}

/// Two numbers of a format to two halves.
pub struct Widening;
impl Op3x for Widening {
    type T = u32;
    #[inline(always)]
    fn compute(a: u32, _: u32, _: u32, x: u16) -> u32 {
        let format = NARROW[usize::from(x & FORMAT) % 5];
        let part = |bits: u32| {
            let value = format.decode(bits as u8);
            let value = if x & RELU != 0 && value <= 0.0 { 0.0 } else { value };
            u32::from(<H as Small>::rounded::<RN>(value).0)
        };
        part(a) | part(a >> if format == Narrow::E2m1 { 4 } else { 8 }) << 16
    }
}

/// In the immediate of [`Powers`]: up, not towards zero.
pub const UP: u16 = 1;
/// In the immediate of [`Powers`]: numbers beyond the largest power become that one.
pub const LIMITED: u16 = 2;

/// Two singles to the exponents of powers of two (`.ue8m0x2`), without their signs; the first one
/// above the second.
pub struct Powers;
impl Op3x for Powers {
    type T = u32;
    #[inline(always)]
    fn compute(a: u32, b: u32, _: u32, x: u16) -> u32 {
        let power = |bits: u32| {
            let magnitude = bits & 0x7fff_ffff;
            let (raised, fraction) = (magnitude >> 23, magnitude & 0x7f_ffff);
            let above = match raised {
                // The least power is a subnormal single.
                0 => u32::from(fraction > 0x40_0000),
                _ => u32::from(fraction != 0),
            };
            let power = raised + if x & UP != 0 { above } else { 0 };
            match magnitude {
                0x7f80_0001.. => 0xff,
                _ if power >= 0xff => {
                    if x & LIMITED != 0 {
                        0xfe
                    } else {
                        0xff
                    }
                }
                _ => power,
            }
        };
        power(b) | power(a) << 8
    }
}

/// Two exponents of powers of two to two bfloat16.
pub struct PowersToBrain;
impl Op3x for PowersToBrain {
    type T = u32;
    #[inline(always)]
    fn compute(a: u32, _: u32, _: u32, _: u16) -> u32 {
        let part = |power: u32| match power & 0xff {
            0 => 0x40,
            0xff => 0x7fff,
            power => power << 7,
        };
        part(a) | part(a >> 8) << 16
    }
}

/// A single rounded to `.tf32`. The low bits of the immediate are the rounding mode.
pub struct Rounding19;
impl Op3x for Rounding19 {
    type T = u32;
    #[inline(always)]
    fn compute(a: u32, _: u32, _: u32, x: u16) -> u32 {
        use super::round::{RNA, RZ};
        let value = f64::from(f32::from_bits(a));
        if value.is_nan() {
            return 0x7fff_ffff;
        }
        let value = if x & RELU != 0 && value <= 0.0 { 0.0 } else { value };
        let bits = match (x & 7) as u8 {
            RN => to_format::<8, 10, RN>(value),
            RZ => to_format::<8, 10, RZ>(value),
            _ => to_format::<8, 10, RNA>(value),
        } << 13;
        if x & SATFINITE != 0 && bits & 0x7fff_ffff == 0x7f80_0000 { bits - (1 << 13) } else { bits }
    }
}

/// A single rounded to the nearest `.tf32`, ties away from zero: what [`Rounding19`] makes of it
/// without flags, by its bits alone.
pub struct RoundingAway19;
impl Op1 for RoundingAway19 {
    type A = u32;
    type R = u32;
    #[inline(always)]
    fn compute(a: u32) -> u32 {
        // A carry goes into the exponent, and from the largest number to infinity.
        let rounded = a.wrapping_add(1 << 12) & !0x1fff;
        if a & 0x7fff_ffff > 0x7f80_0000 { 0x7fff_ffff } else { rounded }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every number of a format is its own nearest; between two neighbours the even one wins a tie.
    #[test]
    fn formats_round_to_nearest_even() {
        for format in NARROW {
            let mut last: Option<(u8, f64)> = None;
            for bits in 0..=format.largest() {
                let value = format.decode(bits);
                assert_eq!((format.encode(value), format.encode(-value)), (bits, bits | 1 << (format.bits() - 1)), "{format:?} {bits:#x}");
                if let Some((before, lower)) = last {
                    assert!(lower < value);
                    let middle = (lower + value) / 2.0;
                    assert_eq!(format.encode(middle), if before & 1 == 0 { before } else { bits }, "{format:?} {middle}");
                    assert_eq!((format.encode(middle.next_down()), format.encode(middle.next_up())), (before, bits));
                }
                last = Some((bits, value));
            }
            let (largest, value) = last.expect("numbers");
            assert_eq!((format.encode(value * 4.0), format.encode(f64::INFINITY)), (largest, largest));
        }
        // The largest numbers and the smallest ones, as the PTX manual has them.
        assert_eq!(NARROW.map(|format| format.decode(format.largest())), [448.0, 57344.0, 28.0, 7.5, 6.0]);
        assert_eq!(NARROW.map(|format| format.decode(1)), [0.001953125, 0.0000152587890625, 0.0625, 0.125, 0.5]);
        assert_eq!(NARROW.map(|format| format.encode(f64::NAN)), [0x7f, 0x7f, 0x1f, 0x1f, 0x7]);
        assert!(Narrow::E4m3.decode(0xff).is_nan() && Narrow::E5m2.decode(0x7e).is_nan() && Narrow::E5m2.decode(0xfc) == f64::NEG_INFINITY);
    }

    #[test]
    fn powers_are_rounded_up_or_down() {
        let of = |a: f32, x: u16| <Powers as Op3x>::compute(0, a.to_bits(), 0, x);
        assert_eq!([of(1.0, 0), of(1.0, UP), of(-1.5, 0), of(-1.5, UP), of(0.0, UP)], [127, 127, 127, 128, 0]);
        assert_eq!([of(f32::MAX, UP), of(f32::MAX, UP | LIMITED), of(f32::INFINITY, LIMITED), of(f32::NAN, LIMITED)], [0xff, 0xfe, 0xfe, 0xff]);
        let least = f32::from_bits(0x40_0000);
        assert_eq!([of(least, UP), of(least.next_up(), UP), of(least.next_up(), 0), of(f32::MIN_POSITIVE, 0)], [0, 1, 0, 1]);
        assert_eq!(<PowersToBrain as Op3x>::compute(127 | 0xff << 8, 0, 0, 0), 0x3f80 | 0x7fff << 16);
    }

    #[test]
    fn tf32_keeps_ten_bits() {
        let round = |a: f32, x: u16| f32::from_bits(<Rounding19 as Op3x>::compute(a.to_bits(), 0, 0, x));
        let tie = 1.0 + f32::EPSILON * 4096.0;
        assert_eq!([RN, super::super::round::RZ, super::super::round::RNA].map(|mode| round(tie, mode.into())), [1.0, 1.0, 1.0 + f32::EPSILON * 8192.0]);
        assert_eq!(round(f32::MAX, RN.into()), f32::INFINITY);
        assert!(round(f32::MAX, u16::from(RN) | SATFINITE).is_finite());
    }

    #[test]
    fn tf32_with_ties_away_from_zero_is_found_by_bits() {
        // All signs, exponents and kept bits, with what is lost just around a tie.
        for kept in 0..1 << 19 {
            for lost in [0, 1, 0xfff, 0x1000, 0x1001, 0x1fff] {
                let a = kept << 13 | lost;
                let expected = <Rounding19 as Op3x>::compute(a, 0, 0, super::super::round::RNA.into());
                assert_eq!(RoundingAway19::compute(a), expected, "{a:#x}");
            }
        }
    }
}
