//! Arithmetic against exact or native arithmetic, on many values with the extremes among them.

use super::float::{Any32, Fma32};
use super::half::{AddH, B, FmaH, H, Small};
use super::round::{RM, RN, RP, RZ, to_format};
use super::{convert, float, soft};
use crate::simd::alu::{Op2, Op3, Op3x};

/// A repeatable sequence of bits, one in four of them special.
struct Values(u64);

impl Values {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn single(&mut self) -> f32 {
        const SPECIAL: [u32; 12] =
            [0, 1, 0x8000_0000, 0x7f_ffff, 0x80_0000, 0x7f7f_ffff, 0x7f80_0000, 0x3f80_0000, 0x3f80_0001, 0x3f7f_ffff, 0x8000_0001, 0xff7f_ffff];
        let bits = self.next();
        match bits >> 60 {
            0..4 => f32::from_bits(SPECIAL[bits as usize % SPECIAL.len()]),
            // Near one, where cancellation happens.
            4..8 => f32::from_bits((bits as u32 & 0x807f_ffff) | 0x3f00_0000 | (bits as u32 >> 8 & 0x80_0000)),
            _ => f32::from_bits(bits as u32),
        }
    }

    fn double(&mut self) -> f64 {
        let bits = self.next();
        match bits >> 60 {
            0..2 => f64::from(self.single()),
            2..4 => f64::from_bits(bits & 0x800f_ffff_ffff_ffff),
            4..8 => f64::from_bits((bits & 0x801f_ffff_ffff_ffff) | 0x3fe0_0000_0000_0000),
            _ => f64::from_bits(bits),
        }
    }
}

fn same64(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

#[test]
fn integers_round_to_nearest_as_the_processor_does() {
    let mut values = Values(1);
    for _ in 0..200_000 {
        let (a, b, c) = (values.double(), values.double(), values.double());
        assert!(same64(soft::add(a, b, RN), a + b), "{a:e} + {b:e}");
        assert!(same64(soft::mul(a, b, RN), a * b), "{a:e} * {b:e}");
        assert!(same64(soft::div(a, b, RN), a / b), "{a:e} / {b:e}");
        assert!(same64(soft::sqrt(a, RN), a.sqrt()), "sqrt {a:e}");
        assert!(same64(soft::fma(a, b, c, RN), a.mul_add(b, c)), "{a:e} * {b:e} + {c:e}");
    }
}

#[test]
fn directed_roundings_enclose_the_nearest_and_are_neighbours() {
    let mut values = Values(2);
    for _ in 0..100_000 {
        let (a, b, c) = (values.double(), values.double(), values.double());
        let all = |mode| [soft::add(a, b, mode), soft::mul(a, b, mode), soft::div(a, b, mode), soft::fma(a, b, c, mode)];
        let (down, near, up, zero) = (all(RM), all(RN), all(RP), all(RZ));
        for n in 0..4 {
            if near[n].is_nan() {
                continue;
            }
            assert!(down[n] <= near[n] && near[n] <= up[n], "{n}: {a:e} {b:e} {c:e}");
            assert!(down[n] == up[n] || down[n].next_up() == up[n], "{n}: {a:e} {b:e} {c:e}: {:e} and {:e}", down[n], up[n]);
            assert!(zero[n] == if near[n] > 0.0 { down[n] } else { up[n] } || near[n] == 0.0, "{n}: {a:e} {b:e} {c:e}");
        }
    }
}

#[test]
fn fused_singles_without_the_instruction_are_exact() {
    let mut values = Values(3);
    for _ in 0..300_000 {
        let (a, b, c) = (values.single(), values.single(), values.single());
        let soft = <Fma32<RN, false, false, false> as Op3>::compute(a, b, c);
        let native = a.mul_add(b, c);
        assert!(soft.to_bits() == native.to_bits() || (soft.is_nan() && native.is_nan()), "{a:e} * {b:e} + {c:e}");
    }
}

#[test]
fn directed_singles_enclose_the_exact_value() {
    let mut values = Values(4);
    for _ in 0..200_000 {
        let (a, b) = (values.single(), values.single());
        // Products of singles are exact in double precision.
        let exact = f64::from(a) * f64::from(b);
        let at = |mode: u8| Any32::compute(a, b, 0.0, float::MUL | u16::from(mode) << float::MODE_SHIFT);
        if exact.is_finite() {
            let (down, up) = (at(RM), at(RP));
            assert!(f64::from(down) <= exact && exact <= f64::from(up), "{a:e} * {b:e}");
            assert!(down == up || down.next_up() == up, "{a:e} * {b:e}");
            assert!(down != up || f64::from(down) == exact, "{a:e} * {b:e}");
        }
    }
}

#[test]
fn halves_agree_with_an_independent_conversion() {
    for bits in 0..=u16::MAX {
        let (ours, theirs) = (H(bits).wide(), half::f16::from_bits(bits).to_f64());
        assert!(same64(ours, theirs), "{bits:#x}");
        let (ours, theirs) = (B(bits).wide(), half::bf16::from_bits(bits).to_f64());
        assert!(same64(ours, theirs), "{bits:#x}");
    }
    let mut values = Values(5);
    for _ in 0..200_000 {
        let x = values.single();
        if !x.is_nan() {
            assert_eq!(to_format::<5, 10, RN>(x.into()) as u16, half::f16::from_f32(x).to_bits(), "{x:e}");
            assert_eq!(to_format::<8, 7, RN>(x.into()) as u16, half::bf16::from_f32(x).to_bits(), "{x:e}");
            assert_eq!(f32::from_bits(to_format::<8, 23, RN>(x.into())).to_bits(), x.to_bits());
        }
        let bits = values.next();
        let (a, b, c) = (H(bits as u16), H((bits >> 16) as u16), H((bits >> 32) as u16));
        // 2^-48 to 2^33 does not fit a double; two of three operands small enough do.
        let exact = a.wide() * b.wide();
        if exact.abs() >= 1.0 && exact.is_finite() && c.wide().is_finite() {
            assert_eq!(<FmaH<H> as Op3>::compute(a, b, c).0, to_format::<5, 10, RN>(exact + c.wide()) as u16);
        }
        let sum = <AddH<H> as Op2>::compute(a, c);
        assert_eq!(sum.0, to_format::<5, 10, RN>(a.wide() + c.wide()) as u16);
    }
}

#[test]
fn rare_conversions_agree_with_casts() {
    use convert::{ConversionSpec, NumberKind};
    let mut values = Values(6);
    let plain = ConversionSpec { from: NumberKind::Double, to: NumberKind::S32, mode: RZ, ftz: false, sat: false, relu: false, integral: false };
    for _ in 0..100_000 {
        let x = values.double();
        if !x.is_nan() {
            assert_eq!(convert::convert_bits(x.to_bits(), plain.encode()) as u32 as i32, x as i32, "{x:e}");
            let spec = ConversionSpec { to: NumberKind::U64, ..plain };
            assert_eq!(convert::convert_bits(x.to_bits(), spec.encode()), x as u64, "{x:e}");
            let spec = ConversionSpec { to: NumberKind::Single, mode: RN, ..plain };
            assert_eq!(convert::convert_bits(x.to_bits(), spec.encode()) as u32, (x as f32).to_bits(), "{x:e}");
        }
        let n = values.next();
        let spec = ConversionSpec { from: NumberKind::U64, to: NumberKind::Single, mode: RN, ..plain };
        assert_eq!(convert::convert_bits(n, spec.encode()) as u32, (n as f32).to_bits(), "{n}");
        let spec = ConversionSpec { from: NumberKind::S64, to: NumberKind::Double, mode: RN, ..plain };
        assert_eq!(convert::convert_bits(n, spec.encode()), (n as i64 as f64).to_bits(), "{n}");
        let spec = ConversionSpec { from: NumberKind::S32, to: NumberKind::S8, sat: true, ..plain };
        assert_eq!(convert::convert_bits(n, spec.encode()) as u8 as i8, (n as i32).clamp(-128, 127) as i8, "{n}");
    }
}
