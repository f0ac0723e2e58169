//! Arithmetic against exact or native arithmetic, on many values with the extremes among them.

use super::float::{Any32, Cos, Ex2, Fma32, Lg2, NAN32, Rsqrt, Sin, Tanh};
use super::half::{AddH, Any, B, FmaH, H, MulH, Small, SubH};
use super::narrow::{Narrow, Widening, format_code};
use super::round::{RM, RN, RNA, RP, RZ, to_format};
use super::video::{Scalar, Simd};
use super::{convert, float, half as halves, narrow, soft, video};
use crate::simd::alu::{Op1, Op2, Op3, Op3x};

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

#[test]
fn rare_conversions_round_to_whole_numbers_as_they_are_told() {
    use convert::{ConversionSpec, NumberKind};
    let mut values = Values(7);
    for _ in 0..50_000 {
        let bits = values.next();
        // Halves of whole numbers are among them.
        let x = if bits & 1 == 0 { ((bits >> 8) as i16) as f64 / 2.0 } else { ((bits >> 8) as i32) as f64 / 65536.0 };
        for (mode, whole) in [(RN, x.round_ties_even()), (RZ, x.trunc()), (RM, x.floor()), (RP, x.ceil()), (RNA, x.round())] {
            let spec = ConversionSpec { from: NumberKind::Double, to: NumberKind::S32, mode, ftz: false, sat: false, relu: false, integral: true };
            assert_eq!(convert::convert_bits(x.to_bits(), spec.encode()) as u32 as i32, whole as i32, "{x} in mode {mode}");
            let spec = ConversionSpec { to: NumberKind::Double, ..spec };
            assert_eq!(f64::from_bits(convert::convert_bits(x.to_bits(), spec.encode())), whole, "{x} in mode {mode}");
        }
    }
}

#[test]
fn rare_conversions_stay_between_zero_and_one_as_they_are_told() {
    use convert::{ConversionSpec, NumberKind};
    let spec = ConversionSpec { from: NumberKind::Double, to: NumberKind::Single, mode: RZ, ftz: false, sat: true, relu: false, integral: false };
    let single = |x: f64, spec: ConversionSpec| f32::from_bits(convert::convert_bits(x.to_bits(), spec.encode()) as u32);
    for (x, saturated) in [(-1.0, 0.0), (-0.0, 0.0), (0.25, 0.25), (1.0, 1.0), (1.5, 1.0), (f64::INFINITY, 1.0), (f64::NAN, 0.0)] {
        assert_eq!(single(x, spec).to_bits(), f32::to_bits(saturated), "{x}");
        let half = ConversionSpec { to: NumberKind::Half, ..spec };
        assert_eq!(convert::convert_bits(x.to_bits(), half.encode()), u64::from(half::f16::from_f32(saturated).to_bits()), "{x}");
    }
    let relu = ConversionSpec { sat: false, relu: true, ..spec };
    for (x, positive) in [(-1.0, 0.0), (-0.0, 0.0), (0.25, 0.25), (7.0, 7.0)] {
        assert_eq!(single(x, relu).to_bits(), f32::to_bits(positive), "{x}");
    }
    // Subnormal results, and subnormal sources, only if they are told.
    let (ftz, kept) = (ConversionSpec { sat: false, ftz: true, ..spec }, ConversionSpec { sat: false, ..spec });
    assert_eq!((single(1e-40, ftz).to_bits(), single(-1e-40, ftz).to_bits(), single(1.5, ftz)), (0, 0x8000_0000, 1.5));
    assert_eq!(single(-1e-40, kept), -1e-40);
    let up = ConversionSpec { from: NumberKind::Single, to: NumberKind::U32, mode: RP, ..kept };
    let tiny = u64::from(1e-40f32.to_bits());
    assert_eq!((convert::convert_bits(tiny, up.encode()), convert::convert_bits(tiny, ConversionSpec { ftz: true, ..up }.encode())), (1, 0));
}

#[test]
fn conversions_with_code_of_their_own_are_the_rare_ones() {
    use convert::{ConversionSpec, FromInt, NumberKind as K, Saturate, ToInt};
    let plain = ConversionSpec { from: K::Single, to: K::Single, mode: RN, ftz: false, sat: false, relu: false, integral: false };
    let rare = |x: u32, spec: ConversionSpec| convert::convert_bits(x.into(), spec.encode()) as u32;
    let mut values = Values(8);
    for round in 0..200_000 {
        let x = if round == 0 { f32::NAN } else { values.single() };
        let saturated = ConversionSpec { sat: true, ..plain };
        assert_eq!(Saturate::<false>::compute(x).to_bits(), rare(x.to_bits(), saturated), "{x:e}");
        assert_eq!(Saturate::<true>::compute(x).to_bits(), rare(x.to_bits(), ConversionSpec { ftz: true, ..saturated }), "{x:e}");
        for ftz in [false, true] {
            let to = |to, mode| rare(x.to_bits(), ConversionSpec { to, mode, ftz, ..plain });
            assert_eq!(ToInt::<f32, i32, RZ>::compute(x).cast_unsigned(), to(K::S32, RZ), "{x:e}");
            assert_eq!(ToInt::<f32, i32, RN>::compute(x).cast_unsigned(), to(K::S32, RN), "{x:e}");
            assert_eq!(ToInt::<f32, u32, RZ>::compute(x), to(K::U32, RZ), "{x:e}");
        }
        let n = values.next() as u32;
        let from = |from| rare(n, ConversionSpec { from, ..plain });
        assert_eq!(FromInt::<u8, f32, RN>::compute(n as u8).to_bits(), from(K::U8), "{n}");
        assert_eq!(FromInt::<i8, f32, RN>::compute(n as i8).to_bits(), from(K::S8), "{n}");
        assert_eq!(FromInt::<u16, f32, RN>::compute(n as u16).to_bits(), from(K::U16), "{n}");
        assert_eq!(FromInt::<i16, f32, RN>::compute(n as i16).to_bits(), from(K::S16), "{n}");
    }
}

/// Says whether a result is the number nearest to `exact`, but for `slack` of the distance of two
/// numbers.
fn is_near(got: f32, exact: f64, slack: f64) -> bool {
    let step = f64::from(got.abs().next_up()) - f64::from(got.abs());
    (f64::from(got) - exact).abs() <= (0.5 + slack) * step
}

#[test]
fn approximations_are_the_nearest_singles_but_for_a_hair() {
    let mut values = Values(8);
    for _ in 0..200_000 {
        let bits = values.next();
        let positive = f32::from_bits(bits as u32 & 0x7fff_ffff);
        if positive.is_finite() && positive > 0.0 {
            let wide = f64::from(positive);
            let got = <Lg2<false> as Op1>::compute(positive);
            assert!(is_near(got, wide.log2(), 0.002), "lg2 {positive:e} is {got:e}");
            let got = <Rsqrt<false> as Op1>::compute(positive);
            assert!(is_near(got, 1.0 / wide.sqrt(), 0.001), "rsqrt {positive:e} is {got:e}");
        }
        // Between a half and two, logarithms have the most digits.
        let near_one = f32::from_bits((bits as u32 & 0xff_ffff) + 0x3f00_0000);
        let got = <Lg2<false> as Op1>::compute(near_one);
        assert!(is_near(got, f64::from(near_one).log2(), 0.002), "lg2 {near_one:e} is {got:e}");
        let fraction = (bits >> 32) as i32 as f32 / 2f32.powi(31);
        let (power, angle, slope) = (fraction * 125.0, fraction * 100.0, fraction * fraction * fraction * 12.0);
        let got = <Ex2<false> as Op1>::compute(power);
        assert!(is_near(got, f64::from(power).exp2(), 0.01), "ex2 {power:e} is {got:e}");
        let got = <Sin<false> as Op1>::compute(angle);
        assert!(is_near(got, f64::from(angle).sin(), 0.01), "sin {angle:e} is {got:e}");
        let got = <Cos<false> as Op1>::compute(angle);
        assert!(is_near(got, f64::from(angle).cos(), 0.01), "cos {angle:e} is {got:e}");
        let got = <Tanh as Op1>::compute(slope);
        assert!(is_near(got, f64::from(slope).tanh(), 0.05), "tanh {slope:e} is {got:e}");
    }
}

#[test]
fn approximations_at_the_ends_of_the_numbers() {
    const INF: f32 = f32::INFINITY;
    const NAN: f32 = f32::NAN;
    let all = |f: fn(f32) -> f32, cases: &[(f32, f32)]| {
        for (x, expected) in cases {
            let got = f(*x);
            assert!(got.to_bits() == expected.to_bits() || (got.is_nan() && expected.is_nan()), "{x:e} gives {got:e}, not {expected:e}");
        }
    };
    all(<Lg2<false> as Op1>::compute, &[(0.0, -INF), (-0.0, -INF), (-1.0, NAN), (-INF, NAN), (INF, INF), (NAN, NAN), (1.0, 0.0), (2f32.powi(-140), -140.0)]);
    all(<Lg2<true> as Op1>::compute, &[(1e-40, -INF), (-1e-40, -INF), (8.0, 3.0)]);
    all(<Ex2<false> as Op1>::compute, &[(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, 0.0), (300.0, INF), (-300.0, 0.0), (NAN, NAN), (-130.0, 2f32.powi(-130))]);
    all(<Ex2<true> as Op1>::compute, &[(-130.0, 0.0), (3.0, 8.0)]);
    all(<Sin<false> as Op1>::compute, &[(0.0, 0.0), (INF, NAN), (-INF, NAN), (NAN, NAN)]);
    all(<Cos<false> as Op1>::compute, &[(0.0, 1.0), (-0.0, 1.0), (INF, NAN), (NAN, NAN)]);
    all(<Tanh as Op1>::compute, &[(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (90.0, 1.0), (NAN, NAN)]);
    all(<Rsqrt<false> as Op1>::compute, &[(0.0, INF), (-0.0, -INF), (INF, 0.0), (-1.0, NAN), (4.0, 0.5)]);
}

#[test]
fn rare_extremes_of_singles_look_at_nan_and_signs_as_they_are_told() {
    let at = |a: f32, b: f32, x: u16| f32::to_bits(Any32::compute(a, b, 0.0, x));
    let bits = |x: f32| x.to_bits();
    for (operation, least) in [(float::MIN, true), (float::MAX, false)] {
        let one = if least { -3.0 } else { 2.0 };
        assert_eq!((at(-3.0, 2.0, operation), at(2.0, -3.0, operation)), (bits(one), bits(one)));
        // A number is chosen before NaN, unless NaN is asked for.
        assert_eq!((at(f32::NAN, 2.0, operation), at(2.0, f32::NAN, operation)), (bits(2.0), bits(2.0)));
        assert_eq!((at(f32::NAN, 2.0, operation | float::NAN), at(2.0, f32::NAN, operation | float::NAN)), (NAN32, NAN32));
        assert_eq!(at(f32::NAN, f32::NAN, operation), NAN32);
        assert_eq!(at(-3.0, 2.0, operation | float::NAN), bits(one));
        // Of the magnitudes, and the signs together.
        let magnitude = if least { 2.0 } else { 3.0 };
        let (same, differ) = (operation | float::XORSIGN, bits(-magnitude));
        assert_eq!((at(-3.0, 2.0, same), at(2.0, -3.0, same), at(-3.0, -2.0, same)), (differ, differ, bits(magnitude)));
        assert_eq!((at(-3.0, f32::NAN, same), at(f32::NAN, f32::NAN, same)), (bits(-3.0), NAN32));
        assert_eq!(at(-3.0, f32::NAN, same | float::NAN), NAN32);
        // Subnormals are zeros only if they are told to be.
        let kept = if least { 1e-40 } else { 2e-40 };
        assert_eq!((at(1e-40, 2e-40, operation), at(1e-40, 2e-40, operation | float::FTZ)), (bits(kept), 0));
    }
}

/// An operation by code of its own.
type Common<T> = fn(T, T, T) -> T;

#[test]
fn rare_operations_of_halves_are_the_common_ones_with_what_they_are_told() {
    fn flag(flag: u8) -> u16 {
        u16::from(flag) << halves::FLAGS_SHIFT
    }
    fn as_halves<T: Small>(one: fn(u16) -> T, mut values: Values) {
        for _ in 0..100_000 {
            let bits = values.next();
            // Small exponents often, where the subnormals are.
            let mut part = |at: u32| one((bits >> at) as u16 & if values.next() & 1 == 0 { 0xffff } else { 0x87ff });
            let (a, b, c) = (part(0), part(16), part(32));
            let any = |x: u16| Any::<T>::compute(a.bits().into(), b.bits().into(), c.bits().into(), x) as u16;
            let same = |got: u16, expected: u16| got == expected || (T::of(got).is_nan() && T::of(expected).is_nan());
            let saturated = |x: T| {
                let x = x.wide();
                T::rounded::<RN>(if x > 0.0 { x.min(1.0) } else { 0.0 }).bits()
            };
            let positive = |x: T| if x.wide() <= 0.0 { 0 } else { x.bits() };
            let computed: [(u16, Common<T>); 4] = [
                (halves::ADD, |a, b, _| <AddH<T> as Op2>::compute(a, b)),
                (halves::SUB, |a, b, _| <SubH<T> as Op2>::compute(a, b)),
                (halves::MUL, |a, b, _| <MulH<T> as Op2>::compute(a, b)),
                (halves::FMA, |a, b, c| <FmaH<T> as Op3>::compute(a, b, c)),
            ];
            for (operation, common) in computed {
                let result = common(a, b, c);
                let case = format!("operation {operation} of {:#x}, {:#x}, {:#x}", a.bits(), b.bits(), c.bits());
                assert!(same(any(operation), result.bits()), "{case}");
                assert!(same(any(operation | flag(halves::SAT)), saturated(result)), "{case}, saturated");
                assert!(same(any(operation | flag(halves::RELU)), positive(result)), "{case}, positive");
                let flushed = common(a.flushed(), b.flushed(), c.flushed()).flushed();
                assert!(same(any(operation | flag(halves::FTZ)), flushed.bits()), "{case}, without subnormals");
            }
            assert_eq!((any(halves::NEG), any(halves::ABS)), (a.bits() ^ 0x8000, a.bits() & 0x7fff));
            assert_eq!(any(halves::ABS | flag(halves::FTZ)), a.flushed().bits() & 0x7fff);
        }
    }
    as_halves(H, Values(9));
    as_halves(B, Values(10));
}

#[test]
fn rare_extremes_of_halves_look_at_nan_and_signs_as_they_are_told() {
    const NAN: u16 = 0x7e00;
    // 2, 3, and a subnormal.
    let (two, three, tiny, minus) = (0x4000u16, 0x4200u16, 0x0001u16, 0x8000u16);
    let at = |a: u16, b: u16, x: u16| Any::<H>::compute(a.into(), b.into(), 0, x) as u16;
    let flag = |flag: u8| u16::from(flag) << halves::FLAGS_SHIFT;
    for (operation, least) in [(halves::MIN, true), (halves::MAX, false)] {
        let chosen = if least { three | minus } else { two };
        assert_eq!((at(three | minus, two, operation), at(two, three | minus, operation)), (chosen, chosen));
        assert_eq!((at(NAN, two, operation), at(two, NAN, operation), at(NAN, NAN, operation)), (two, two, 0x7fff));
        let nan = operation | flag(halves::NAN);
        assert_eq!((at(NAN, two, nan), at(two, NAN, nan), at(two, two, nan)), (0x7fff, 0x7fff, two));
        let magnitude = if least { two } else { three };
        let signs = operation | flag(halves::XORSIGN);
        assert_eq!((at(three | minus, two, signs), at(three | minus, two | minus, signs)), (magnitude | minus, magnitude));
        let zero = if least { 0 } else { two };
        assert_eq!(at(tiny, two, operation | flag(halves::FTZ)), zero);
        // -0 is below +0.
        assert_eq!(at(minus, 0, operation), if least { minus } else { 0 });
    }
}

#[test]
fn halves_have_the_approximations_of_singles() {
    let at = |a: u16, x: u16| Any::<H>::compute(a.into(), 0, 0, x) as u16;
    for bits in (0..=u16::MAX).step_by(3) {
        let x = H(bits).wide();
        let near = |got: u16, exact: f64| {
            let (got, next) = (H(got & 0x7fff).wide().copysign(H(got).wide()), H((got & 0x7fff) + 1).wide());
            (got - exact).abs() <= 0.501 * (next - got.abs())
        };
        if x.abs() < 15.0 {
            let (power, slope) = (at(bits, halves::EX2), at(bits, halves::TANH));
            assert!(near(power, x.exp2()), "ex2 {x:e} is {power:#x}");
            assert!(near(slope, x.tanh()), "tanh {x:e} is {slope:#x}");
        }
    }
}

#[test]
fn every_number_of_a_narrow_format_leads_back() {
    for format in [Narrow::E4m3, Narrow::E5m2, Narrow::E3m2, Narrow::E2m3, Narrow::E2m1] {
        let half = |bits: u8| Widening::compute(bits.into(), 0, 0, format_code(format)) as u16;
        let positive = 1u8 << (format.bits() - 1);
        for bits in 0..positive {
            let value = format.decode(bits);
            assert!(same64(H(half(bits)).wide(), value), "{format:?} {bits:#x}");
            if !value.is_finite() {
                continue;
            }
            assert_eq!((format.encode(value), format.encode(-value)), (bits, bits | positive), "{format:?} {bits:#x}");
            assert_eq!(H(half(bits | positive)).wide(), -value);
            // Between two numbers the even one is taken, and beyond the largest the largest.
            let above = format.decode(bits + 1);
            if bits + 1 < positive && above.is_finite() {
                assert_eq!(format.encode((value + above) / 2.0), bits + (bits & 1), "{format:?} {bits:#x}");
            } else {
                assert_eq!((format.encode(value * 1.5), format.encode(f64::INFINITY)), (bits, bits), "{format:?} {bits:#x}");
            }
        }
    }
    assert_eq!([0, 1, 2, 3, 4, 5, 6, 7].map(|bits| Narrow::E2m1.decode(bits)), [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]);
    assert_eq!((Narrow::E5m2.decode(0x7c), Narrow::E5m2.decode(0xfc)), (f64::INFINITY, f64::NEG_INFINITY));
    assert!([0x7d, 0x7e, 0x7f].iter().all(|bits| Narrow::E5m2.decode(*bits).is_nan()) && Narrow::E4m3.decode(0x7f).is_nan());
    assert_eq!((Narrow::E4m3.decode(0x7e), Narrow::E5m2.decode(0x7b)), (448.0, 57344.0));
    // Negative values become 0 if they are told to.
    let two = Widening::compute(0xb8_38, 0, 0, format_code(Narrow::E4m3) | narrow::RELU);
    assert_eq!((two as u16, two >> 16), (0x3c00, 0));
}

/// The parts of a register, extended.
fn parts(word: u32, width: u32, signed: bool) -> Vec<i64> {
    (0..32 / width)
        .map(|n| i64::from(word >> (n * width)) & ((1 << width) - 1))
        .map(|part| if signed && part >> (width - 1) != 0 { part - (1 << width) } else { part })
        .collect()
}

fn video_result(operation: u16, a: i64, b: i64) -> i64 {
    match operation {
        video::ADD => a + b,
        video::SUB => a - b,
        // Halves go away from zero.
        video::AVRG => ((a + b) as f64 / 2.0).round() as i64,
        video::ABSDIFF => i64::try_from(a.abs_diff(b)).expect("small"),
        video::MIN => std::cmp::min(a, b),
        video::MAX => std::cmp::max(a, b),
        _ => i64::from([a == b, a != b, a < b, a <= b, a > b, a >= b][usize::from(operation - video::COMPARE)]),
    }
}

#[test]
fn video_instructions_work_on_each_part() {
    fn check<const PARTS: u32>(values: &mut Values) {
        let width = 32 / PARTS;
        for _ in 0..2000 {
            let (words, c) = (values.next(), values.next() as u32);
            let (a, b) = (words as u32, (words >> 32) as u32);
            for operation in video::ADD..=video::COMPARE + 5 {
                for flags in 0..16u16 {
                    let on = |n: u16| flags >> n & 1 != 0;
                    let (signed_d, saturates) = (on(2), on(3));
                    let (low, high) = if signed_d { (-(1i64 << width >> 1), (1i64 << width >> 1) - 1) } else { (0, (1i64 << width) - 1) };
                    let of_parts = parts(a, width, on(0)).into_iter().zip(parts(b, width, on(1))).map(|(a, b)| video_result(operation, a, b));
                    let results: Vec<i64> = of_parts.map(|value| if saturates { value.max(low).min(high) } else { value }).collect();
                    let x = operation | flags << 4;
                    let joined = (0u32..).zip(&results).fold(0, |all, (n, value)| all | (*value as u32 & ((1u64 << width) - 1) as u32) << (n * width));
                    assert_eq!(Simd::<PARTS>::compute(a, b, c, x), joined, "{a:#x} {b:#x} {x:#x}");
                    let sum = results.iter().fold(c, |sum, value| sum.wrapping_add(*value as u32));
                    assert_eq!(Simd::<PARTS>::compute(a, b, c, x | video::SUM), sum, "{a:#x} {b:#x} {x:#x}");
                }
            }
        }
    }
    let mut values = Values(11);
    check::<2>(&mut values);
    check::<4>(&mut values);
}

#[test]
fn scalar_video_instructions_saturate_to_their_widths() {
    let mut values = Values(12);
    for _ in 0..20_000 {
        let (words, c) = (values.next(), values.next() as u32);
        let (a, b) = (words as u32, (words >> 32) as u32);
        for operation in [video::ADD, video::SUB, video::ABSDIFF, video::MIN, video::MAX] {
            for signed in [false, true] {
                let wide = |word: u32| if signed { i64::from(word as i32) } else { i64::from(word) };
                let x = operation | if signed { video::SIGNED_A | video::SIGNED_B | video::SIGNED_D } else { 0 };
                let exact = video_result(operation, wide(a), wide(b));
                assert_eq!(Scalar::compute(a, b, c, x), exact as u32, "{a:#x} {b:#x} {x:#x}");
                for (code, width) in [(0, 32), (1, 8), (2, 16)] {
                    let (low, high) = if signed { (-(1i64 << width >> 1), (1i64 << width >> 1) - 1) } else { (0, (1i64 << width) - 1) };
                    let x = x | video::SATURATE | code << video::WIDTH_AT;
                    let value = exact.max(low).min(high) as u32;
                    assert_eq!(Scalar::compute(a, b, c, x), value, "{a:#x} {b:#x} {x:#x}");
                    let second = |second: u16| Scalar::compute(a, b, c, x | second << video::SECOND_AT);
                    let (least, most) =
                        if signed { ((value as i32).min(c as i32) as u32, (value as i32).max(c as i32) as u32) } else { (value.min(c), value.max(c)) };
                    assert_eq!(
                        (second(video::SECOND_ADD), second(video::SECOND_MIN), second(video::SECOND_MAX)),
                        (value.wrapping_add(c), least, most),
                        "{a:#x} {b:#x} {x:#x}"
                    );
                }
            }
        }
    }
}

#[test]
fn truth_tables_are_looked_up_bit_by_bit() {
    let (a, b, c) = (0b1111_0000, 0b1100_1100, 0b1010_1010);
    for table in 0..=0xff {
        assert_eq!(super::bits::Lop3::compute(a, b, c, table) & 0xff, u32::from(table), "{table:#x}");
    }
}
