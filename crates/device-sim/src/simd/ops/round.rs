//! Correct rounding to any binary format of at most double precision, and exact sums by rounding to
//! odd.
//!
//! Rounding to odd keeps everything that a second rounding needs to know, if that one is to a
//! format narrower by at least two bits. So `to_format(odd_sum(p, c))` is the correctly rounded sum
//! (S. Boldo, G. Melquiond, *Emulation of FMA and correctly rounded sums: proved algorithms using
//! rounding to odd*, 2008). The functions have few branches, so that the compiler vectorises them.

/// Rounding modes (PTX ISA, *Rounding Modifiers*): to nearest even.
pub const RN: u8 = 0;
/// Towards zero.
pub const RZ: u8 = 1;
/// Towards minus infinity.
pub const RM: u8 = 2;
/// Towards plus infinity.
pub const RP: u8 = 3;
/// To nearest, ties away from zero.
pub const RNA: u8 = 4;

/// `p + c`, rounded to odd. Infinities and NaN are as in an ordinary sum.
#[inline(always)]
pub fn odd_sum(p: f64, c: f64) -> f64 {
    let sum = p + c;
    let other = sum - p;
    let error = (p - (sum - other)) + (c - other);
    to_odd(sum, error)
}

/// `value + error` rounded to odd, where `value` is the double nearest to it.
#[inline(always)]
pub fn to_odd(value: f64, error: f64) -> f64 {
    let bits = value.to_bits();
    let outward = (error > 0.0) == (value > 0.0);
    let moved = if outward { bits.wrapping_add(1) } else { bits.wrapping_sub(1) };
    let inexact = (error > 0.0) | (error < 0.0);
    let finite = (bits >> 52) & 0x7ff != 0x7ff;
    f64::from_bits(if inexact & finite & (bits & 1 == 0) { moved } else { bits })
}

/// The zero that an exact sum `p + c` of zero gives in rounding mode `MODE`.
#[inline(always)]
pub fn zero_sign<const MODE: u8>(sum: f64, p: f64, c: f64) -> f64 {
    if MODE == RM && sum == 0.0 && (p.is_sign_negative() != c.is_sign_negative()) { -0.0 } else { sum }
}

/// Rounds to a format with infinities, of `E` exponent bits and `M` stored mantissa bits. NaN
/// becomes the canonical one: all ones but the sign.
#[inline(always)]
pub fn to_format<const E: u32, const M: u32, const MODE: u8>(x: f64) -> u32 {
    let bits = x.to_bits();
    let negative = bits >> 63 != 0;
    let biased = ((bits >> 52) & 0x7ff) as i32;
    let fraction = bits & ((1 << 52) - 1);
    let bias = (1 << (E - 1)) - 1;
    let infinity = ((1u32 << E) - 1) << M;
    let sign = (negative as u32) << (E + M);

    let least = 1 - bias;
    let exponent = biased - 1023;
    let significand = if biased == 0 { fraction } else { fraction | 1 << 52 };
    let below = (least - exponent).max(0);
    let shift = (52 - M as i32 + below).min(63) as u32;
    let kept = significand >> shift;
    let rest = significand & ((1u64 << shift) - 1);
    let half = 1u64 << (shift - 1);
    let up = match MODE {
        RN => (rest > half) | ((rest == half) & (kept & 1 != 0)),
        RZ => false,
        RM => negative & (rest != 0),
        RP => !negative & (rest != 0),
        _ => rest >= half,
    };
    let rounded = kept as u32 + up as u32;
    let in_normal = (exponent + bias).clamp(0, 1 << E) as u32;
    let normal = (in_normal << M).wrapping_add(rounded).wrapping_sub(1 << M);
    let magnitude = if exponent < least { rounded } else { normal };
    let overflowed = match MODE {
        RN | RNA => infinity,
        RZ => infinity - 1,
        RM => {
            if negative {
                infinity
            } else {
                infinity - 1
            }
        }
        _ => {
            if negative {
                infinity - 1
            } else {
                infinity
            }
        }
    };
    let magnitude = if (magnitude >= infinity) | (exponent > bias) { overflowed } else { magnitude };
    let special = biased == 0x7ff;
    let result = sign | if special { infinity } else { magnitude };
    if special & (fraction != 0) { (1 << (E + M)) - 1 } else { result }
}

/// Rounds to single precision.
#[inline(always)]
pub fn to_f32<const MODE: u8>(x: f64) -> f32 {
    if MODE == RN { x as f32 } else { f32::from_bits(to_format::<8, 23, MODE>(x)) }
}

/// Rounds to an integral value.
#[inline(always)]
pub fn integral<const MODE: u8>(x: f64) -> f64 {
    match MODE {
        RN => x.round_ties_even(),
        RZ => x.trunc(),
        RM => x.floor(),
        RP => x.ceil(),
        _ => x.round(),
    }
}

/// One step up or down from the nearest double `x`, if it is on the wrong side of the exact value
/// `x + error`.
#[inline(always)]
pub fn direct<const MODE: u8>(x: f64, error: f64) -> f64 {
    let wrong = match MODE {
        RN | RNA => return x,
        RM => error < 0.0,
        RP => error > 0.0,
        _ => {
            if x > 0.0 {
                error < 0.0
            } else {
                error > 0.0
            }
        }
    };
    if !wrong {
        x
    } else if MODE == RM || (MODE == RZ && x > 0.0) {
        x.next_down()
    } else {
        x.next_up()
    }
}
