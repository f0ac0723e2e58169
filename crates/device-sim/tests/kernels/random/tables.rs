//! Instructions by the bank of their result, each with its meaning as the PTX manual has it,
//! written as plainly as can be.

use super::program::Bank;

type Table<T> = &'static [(&'static str, usize, fn([T; 3]) -> T)];

fn signed(f: impl Fn(i64, i64) -> i64, a: u32, b: u32) -> u32 {
    f(i64::from(a as i32), i64::from(b as i32)) as u32
}

fn clamp_to_int(value: i64) -> u32 {
    value.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as u32
}

/// The bit of a number that decides what the higher ones of a field are.
fn field(a: u32, pos: u32, len: u32, is_signed: bool) -> u32 {
    let (pos, len) = (pos & 0xff, len & 0xff);
    let top = if len == 0 { 0 } else { (pos + len - 1).min(31) };
    let sign = is_signed && len != 0 && a >> top & 1 != 0;
    let bit = |n: u32| if n < len && pos + n <= 31 { a >> (pos + n) & 1 != 0 } else { sign };
    (0..32).fold(0, |all, n| all | u32::from(bit(n)) << n)
}

fn permute(a: u32, b: u32, selector: u32) -> u32 {
    let bytes = u64::from(b) << 32 | u64::from(a);
    (0..4).fold(0, |all, n| {
        let select = selector >> (4 * n) & 15;
        let byte = (bytes >> (8 * (select & 7))) as u8;
        let byte = if select & 8 != 0 { if byte & 0x80 != 0 { 0xff } else { 0 } } else { byte };
        all | u32::from(byte) << (8 * n)
    })
}

fn dot(a: u32, b: u32, c: u32, is_signed: bool) -> u32 {
    (0..4).fold(c, |sum, n| {
        let (x, y) = ((a >> (8 * n)) as u8, (b >> (8 * n)) as u8);
        let product = if is_signed { i32::from(x as i8) * i32::from(y as i8) } else { i32::from(x) * i32::from(y) };
        sum.wrapping_add(product as u32)
    })
}

fn shift(n: u32, f: impl Fn(u32) -> u32, otherwise: u32) -> u32 {
    if n < 32 { f(n) } else { otherwise }
}

fn sign32(a: u32) -> u32 {
    if (a as i32) < 0 { u32::MAX } else { 0 }
}

/// What stands behind a bar follows the operands.
pub const INT: Table<u32> = &[
    ("add.u32", 2, |[a, b, _]| a.wrapping_add(b)),
    ("sub.s32", 2, |[a, b, _]| a.wrapping_sub(b)),
    ("mul.lo.s32", 2, |[a, b, _]| a.wrapping_mul(b)),
    ("mul.hi.u32", 2, |[a, b, _]| ((u64::from(a) * u64::from(b)) >> 32) as u32),
    ("mul.hi.s32", 2, |[a, b, _]| ((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32),
    ("mad.lo.s32", 3, |[a, b, c]| a.wrapping_mul(b).wrapping_add(c)),
    ("mad.hi.u32", 3, |[a, b, c]| (((u64::from(a) * u64::from(b)) >> 32) as u32).wrapping_add(c)),
    ("div.u32", 2, |[a, b, _]| a / (b | 1)),
    ("div.s32", 2, |[a, b, _]| signed(|a, b| a / b, a, b | 1)),
    ("rem.u32", 2, |[a, b, _]| a % (b | 1)),
    ("rem.s32", 2, |[a, b, _]| signed(|a, b| a % b, a, b | 1)),
    ("min.u32", 2, |[a, b, _]| a.min(b)),
    ("max.u32", 2, |[a, b, _]| a.max(b)),
    ("min.s32", 2, |[a, b, _]| (a as i32).min(b as i32) as u32),
    ("max.s32", 2, |[a, b, _]| (a as i32).max(b as i32) as u32),
    ("add.sat.s32", 2, |[a, b, _]| clamp_to_int(i64::from(a as i32) + i64::from(b as i32))),
    ("sub.sat.s32", 2, |[a, b, _]| clamp_to_int(i64::from(a as i32) - i64::from(b as i32))),
    ("abs.s32", 1, |[a, ..]| (a as i32).wrapping_abs() as u32),
    ("neg.s32", 1, |[a, ..]| a.wrapping_neg()),
    ("sad.u32", 3, |[a, b, c]| a.abs_diff(b).wrapping_add(c)),
    ("sad.s32", 3, |[a, b, c]| (a as i32).abs_diff(b as i32).wrapping_add(c)),
    ("and.b32", 2, |[a, b, _]| a & b),
    ("or.b32", 2, |[a, b, _]| a | b),
    ("xor.b32", 2, |[a, b, _]| a ^ b),
    ("not.b32", 1, |[a, ..]| !a),
    ("cnot.b32", 1, |[a, ..]| u32::from(a == 0)),
    ("shl.b32", 2, |[a, n, _]| shift(n, |n| a << n, 0)),
    ("shr.u32", 2, |[a, n, _]| shift(n, |n| a >> n, 0)),
    ("shr.s32", 2, |[a, n, _]| shift(n, |n| (a as i32 >> n) as u32, sign32(a))),
    ("shf.l.wrap.b32", 3, |[a, b, n]| ((u64::from(b) << 32 | u64::from(a)) << (n & 31) >> 32) as u32),
    ("shf.r.wrap.b32", 3, |[a, b, n]| ((u64::from(b) << 32 | u64::from(a)) >> (n & 31)) as u32),
    ("shf.l.clamp.b32", 3, |[a, b, n]| (u128::from(u64::from(b) << 32 | u64::from(a)) << n.min(32) >> 32) as u32),
    ("shf.r.clamp.b32", 3, |[a, b, n]| ((u64::from(b) << 32 | u64::from(a)) >> n.min(32)) as u32),
    ("popc.b32", 1, |[a, ..]| a.count_ones()),
    ("clz.b32", 1, |[a, ..]| a.leading_zeros()),
    ("brev.b32", 1, |[a, ..]| a.reverse_bits()),
    ("bfind.u32", 1, |[a, ..]| 31u32.wrapping_sub(a.leading_zeros())),
    ("bfind.s32", 1, |[a, ..]| 31u32.wrapping_sub((a ^ sign32(a)).leading_zeros())),
    ("bfe.u32", 3, |[a, b, c]| field(a, b, c, false)),
    ("bfe.s32", 3, |[a, b, c]| field(a, b, c, true)),
    ("prmt.b32", 3, |[a, b, c]| permute(a, b, c)),
    ("lop3.b32|, 0x96", 3, |[a, b, c]| a ^ b ^ c),
    ("lop3.b32|, 0xca", 3, |[a, b, c]| a & b | !a & c),
    ("lop3.b32|, 0x1e", 3, |[a, b, c]| a ^ (b | c)),
    ("dp4a.u32.u32", 3, |[a, b, c]| dot(a, b, c, false)),
    ("dp4a.s32.s32", 3, |[a, b, c]| dot(a, b, c, true)),
    ("mov.b32", 1, |[a, ..]| a),
    ("mul24.lo.u32", 2, |[a, b, _]| (a & 0xff_ffff).wrapping_mul(b & 0xff_ffff)),
];

/// The number of a 64-bit shift is the low half of a register.
pub const LONG: Table<u64> = &[
    ("add.s64", 2, |[a, b, _]| a.wrapping_add(b)),
    ("sub.s64", 2, |[a, b, _]| a.wrapping_sub(b)),
    ("mul.lo.s64", 2, |[a, b, _]| a.wrapping_mul(b)),
    ("mul.hi.u64", 2, |[a, b, _]| ((u128::from(a) * u128::from(b)) >> 64) as u64),
    ("mul.hi.s64", 2, |[a, b, _]| ((i128::from(a as i64) * i128::from(b as i64)) >> 64) as u64),
    ("mad.lo.s64", 3, |[a, b, c]| a.wrapping_mul(b).wrapping_add(c)),
    ("div.u64", 2, |[a, b, _]| a / (b | 1)),
    ("div.s64", 2, |[a, b, _]| (a as i64).wrapping_div((b | 1) as i64) as u64),
    ("rem.u64", 2, |[a, b, _]| a % (b | 1)),
    ("rem.s64", 2, |[a, b, _]| (a as i64).wrapping_rem((b | 1) as i64) as u64),
    ("min.u64", 2, |[a, b, _]| a.min(b)),
    ("max.s64", 2, |[a, b, _]| (a as i64).max(b as i64) as u64),
    ("abs.s64", 1, |[a, ..]| (a as i64).wrapping_abs() as u64),
    ("neg.s64", 1, |[a, ..]| a.wrapping_neg()),
    ("and.b64", 2, |[a, b, _]| a & b),
    ("or.b64", 2, |[a, b, _]| a | b),
    ("xor.b64", 2, |[a, b, _]| a ^ b),
    ("not.b64", 1, |[a, ..]| !a),
    ("shl.b64", 2, |[a, n, _]| if n as u32 > 63 { 0 } else { a << n as u32 }),
    ("shr.u64", 2, |[a, n, _]| if n as u32 > 63 { 0 } else { a >> n as u32 }),
    ("shr.s64", 2, |[a, n, _]| (a as i64 >> (n as u32).min(63)) as u64),
    ("brev.b64", 1, |[a, ..]| a.reverse_bits()),
    ("mov.b64", 1, |[a, ..]| a),
];

/// What an instruction computes from two 32-bit operands and a 64-bit one.
pub type Wide = fn(u32, u32, u64) -> u64;

/// Whether they add a 64-bit integer, and their meaning.
pub const WIDE: &[(&str, bool, Wide)] = &[
    ("mul.wide.u32", false, |a, b, _| u64::from(a) * u64::from(b)),
    ("mul.wide.s32", false, |a, b, _| (i64::from(a as i32) * i64::from(b as i32)) as u64),
    ("mad.wide.u32", true, |a, b, c| (u64::from(a) * u64::from(b)).wrapping_add(c)),
    ("mad.wide.s32", true, |a, b, c| ((i64::from(a as i32) * i64::from(b as i32)) as u64).wrapping_add(c)),
];

fn flush(a: f32) -> f32 {
    if a.is_subnormal() { 0f32.copysign(a) } else { a }
}

fn saturate(a: f32) -> f32 {
    if a > 0.0 { a.min(1.0) } else { 0.0 }
}

/// The lesser of two numbers, where -0 is less than +0 and NaN is not looked at.
fn lesser(a: f64, b: f64) -> f64 {
    if a.is_nan() || b < a || b == a && b.is_sign_negative() { if b.is_nan() { a } else { b } } else { a }
}

fn greater(a: f64, b: f64) -> f64 {
    -lesser(-a, -b)
}

pub const SINGLE: Table<f32> = &[
    ("add.rn.f32", 2, |[a, b, _]| a + b),
    ("sub.rn.f32", 2, |[a, b, _]| a - b),
    ("mul.rn.f32", 2, |[a, b, _]| a * b),
    ("add.rn.ftz.f32", 2, |[a, b, _]| flush(flush(a) + flush(b))),
    ("mul.rn.ftz.f32", 2, |[a, b, _]| flush(flush(a) * flush(b))),
    ("add.rn.sat.f32", 2, |[a, b, _]| saturate(a + b)),
    ("fma.rn.f32", 3, |[a, b, c]| a.mul_add(b, c)),
    ("fma.rn.ftz.f32", 3, |[a, b, c]| flush(flush(a).mul_add(flush(b), flush(c)))),
    ("fma.rn.sat.f32", 3, |[a, b, c]| saturate(a.mul_add(b, c))),
    ("div.rn.f32", 2, |[a, b, _]| a / b),
    ("rcp.rn.f32", 1, |[a, ..]| 1.0 / a),
    ("sqrt.rn.f32", 1, |[a, ..]| a.sqrt()),
    ("min.f32", 2, |[a, b, _]| lesser(a.into(), b.into()) as f32),
    ("max.f32", 2, |[a, b, _]| greater(a.into(), b.into()) as f32),
    ("abs.f32", 1, |[a, ..]| a.abs()),
    ("neg.f32", 1, |[a, ..]| -a),
    ("neg.ftz.f32", 1, |[a, ..]| -flush(a)),
    ("mov.f32", 1, |[a, ..]| a),
];

pub const DOUBLE: Table<f64> = &[
    ("add.rn.f64", 2, |[a, b, _]| a + b),
    ("sub.rn.f64", 2, |[a, b, _]| a - b),
    ("mul.rn.f64", 2, |[a, b, _]| a * b),
    ("fma.rn.f64", 3, |[a, b, c]| a.mul_add(b, c)),
    ("div.rn.f64", 2, |[a, b, _]| a / b),
    ("sqrt.rn.f64", 1, |[a, ..]| a.sqrt()),
    ("min.f64", 2, |[a, b, _]| lesser(a, b)),
    ("max.f64", 2, |[a, b, _]| greater(a, b)),
    ("abs.f64", 1, |[a, ..]| a.abs()),
    ("neg.f64", 1, |[a, ..]| -a),
    ("mov.f64", 1, |[a, ..]| a),
];

/// A conversion from one bank to another. The meaning is of bits.
pub struct Conversion {
    pub name: &'static str,
    pub to: Bank,
    pub from: Bank,
    pub meaning: fn(u64) -> u64,
}

const fn conversion(name: &'static str, to: Bank, from: Bank, meaning: fn(u64) -> u64) -> Conversion {
    Conversion { name, to, from, meaning }
}

fn single(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

fn of_single(value: f32) -> u64 {
    value.to_bits().into()
}

/// To a 64-bit integer, NaN becomes the smallest.
fn to_long(a: f64, nan: u64, convert: impl Fn(f64) -> u64) -> u64 {
    if a.is_nan() { nan } else { convert(a) }
}

use Bank::{Double, Int, Long, Single};
pub const CONVERSIONS: &[Conversion] = &[
    conversion("cvt.u64.u32", Long, Int, |a| a),
    conversion("cvt.s64.s32", Long, Int, |a| a as u32 as i32 as i64 as u64),
    conversion("cvt.u32.u64", Int, Long, |a| a & 0xffff_ffff),
    conversion("cvt.u32.u8", Int, Int, |a| a & 0xff),
    conversion("cvt.s32.s8", Int, Int, |a| a as i8 as u32 as u64),
    conversion("cvt.s32.s16", Int, Int, |a| a as i16 as u32 as u64),
    conversion("cvt.sat.u8.u32", Int, Int, |a| a.min(255)),
    conversion("cvt.sat.s32.u32", Int, Int, |a| a.min(0x7fff_ffff)),
    conversion("popc.b64", Int, Long, |a| a.count_ones().into()),
    conversion("clz.b64", Int, Long, |a| a.leading_zeros().into()),
    conversion("cvt.rn.f32.s32", Single, Int, |a| of_single(a as u32 as i32 as f32)),
    conversion("cvt.rn.f32.u32", Single, Int, |a| of_single(a as u32 as f32)),
    conversion("cvt.rn.f32.s64", Single, Long, |a| of_single(a as i64 as f32)),
    conversion("cvt.rn.f64.u32", Double, Int, |a| f64::from(a as u32).to_bits()),
    conversion("cvt.rn.f64.s64", Double, Long, |a| (a as i64 as f64).to_bits()),
    conversion("cvt.rzi.s32.f32", Int, Single, |a| (single(a) as i32) as u32 as u64),
    conversion("cvt.rzi.u32.f32", Int, Single, |a| (single(a) as u32).into()),
    conversion("cvt.rni.s32.f32", Int, Single, |a| (single(a).round_ties_even() as i32) as u32 as u64),
    conversion("cvt.rmi.s32.f32", Int, Single, |a| (single(a).floor() as i32) as u32 as u64),
    conversion("cvt.rzi.s64.f64", Long, Double, |a| to_long(f64::from_bits(a), 1 << 63, |a| a as i64 as u64)),
    conversion("cvt.rzi.s64.f32", Long, Single, |a| to_long(single(a).into(), 1 << 63, |a| a as i64 as u64)),
    conversion("cvt.f64.f32", Double, Single, |a| f64::from(single(a)).to_bits()),
    conversion("cvt.rn.f32.f64", Single, Double, |a| of_single(f64::from_bits(a) as f32)),
    conversion("cvt.sat.f32.f32", Single, Single, |a| of_single(saturate(single(a)))),
    conversion("cvt.rpi.f32.f32", Single, Single, |a| of_single(single(a).ceil())),
    conversion("cvt.rzi.f64.f64", Double, Double, |a| f64::from_bits(a).trunc().to_bits()),
];
