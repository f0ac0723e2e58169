//! Bit fields, counting, permutation, logic tables and funnel shifts.

use super::ops;
use crate::simd::alu::{self, AluFunction, Op3x};

ops! {
    Popc32(a: u32) -> u32 { a.count_ones() }
    Popc64(a: u64) -> u32 { a.count_ones() }
    Clz32(a: u32) -> u32 { a.leading_zeros() }
    Clz64(a: u64) -> u32 { a.leading_zeros() }
    Brev32(a: u32) -> u32 { a.reverse_bits() }
    Brev64(a: u64) -> u64 { a.reverse_bits() }
    Cnot16(a: u16) -> u16 { u16::from(a == 0) }
    Cnot32(a: u32) -> u32 { u32::from(a == 0) }
    Cnot64(a: u64) -> u64 { u64::from(a == 0) }

    BfindU32(a: u32) -> u32 { if a == 0 { u32::MAX } else { 31 - a.leading_zeros() } }
    BfindS32(a: i32) -> u32 { let v = (a ^ (a >> 31)) as u32; if v == 0 { u32::MAX } else { 31 - v.leading_zeros() } }
    BfindU64(a: u64) -> u32 { if a == 0 { u32::MAX } else { 63 - a.leading_zeros() } }
    BfindS64(a: i64) -> u32 { let v = (a ^ (a >> 63)) as u64; if v == 0 { u32::MAX } else { 63 - v.leading_zeros() } }
    // `.shiftamt`: how far to shift left to bring that bit to the top.
    BfindShiftU32(a: u32) -> u32 { if a == 0 { u32::MAX } else { a.leading_zeros() } }
    BfindShiftS32(a: i32) -> u32 { let v = (a ^ (a >> 31)) as u32; if v == 0 { u32::MAX } else { v.leading_zeros() } }
    BfindShiftU64(a: u64) -> u32 { if a == 0 { u32::MAX } else { a.leading_zeros() } }
    BfindShiftS64(a: i64) -> u32 { let v = (a ^ (a >> 63)) as u64; if v == 0 { u32::MAX } else { v.leading_zeros() } }

    BfeU32(a: u32, pos: u32, len: u32) -> u32 { field(u64::from(a), pos & 0xff, len & 0xff, 32) as u32 }
    BfeS32(a: u32, pos: u32, len: u32) -> u32 { signed_field(u64::from(a), pos & 0xff, len & 0xff, 32) as u32 }
    BfeU64(a: u64, pos: u32, len: u32) -> u64 { field(a, pos & 0xff, len & 0xff, 64) }
    BfeS64(a: u64, pos: u32, len: u32) -> u64 { signed_field(a, pos & 0xff, len & 0xff, 64) }
    Bfi32(a: u32, b: u32, pos: u32, len: u32) -> u32 {
        let mask = ((ones(len & 0xff) as u128) << (pos & 0xff).min(64)) as u32;
        let moved = ((u128::from(a)) << (pos & 0xff).min(64)) as u32;
        (moved & mask) | (b & !mask)
    }
    Bfi64(a: u64, b: u64, pos: u32, len: u32) -> u64 {
        let mask = (u128::from(ones(len & 0xff)) << (pos & 0xff).min(64)) as u64;
        let moved = (u128::from(a) << (pos & 0xff).min(64)) as u64;
        (moved & mask) | (b & !mask)
    }

    BmskClamp(a: u32, b: u32) -> u32 { if a >= 32 { 0 } else { (ones(b.min(32)) << a) as u32 } }
    BmskWrap(a: u32, b: u32) -> u32 { (ones(b & 31) << (a & 31)) as u32 }
    SzextClampU(a: u32, b: u32) -> u32 { if b >= 32 { a } else { a & ones(b) as u32 } }
    SzextClampS(a: u32, b: u32) -> u32 { if b >= 32 { a } else { signed_field(u64::from(a), 0, b, 32) as u32 } }
    SzextWrapU(a: u32, b: u32) -> u32 { a & ones(b & 31) as u32 }
    SzextWrapS(a: u32, b: u32) -> u32 { signed_field(u64::from(a), 0, b & 31, 32) as u32 }
    Fns(mask: u32, base: u32, offset: i32) -> u32 { find_set(mask, base, offset) }

    ShfLeftClamp(a: u32, b: u32, c: u32) -> u32 { ((pair(a, b) << c.min(32)) >> 32) as u32 }
    ShfLeftWrap(a: u32, b: u32, c: u32) -> u32 { ((pair(a, b) << (c & 31)) >> 32) as u32 }
    ShfRightClamp(a: u32, b: u32, c: u32) -> u32 { (pair(a, b) >> c.min(32)) as u32 }
    ShfRightWrap(a: u32, b: u32, c: u32) -> u32 { (pair(a, b) >> (c & 31)) as u32 }

    Prmt(a: u32, b: u32, c: u32) -> u32 {
        let mut out = 0;
        let mut place = 0;
        while place < 32 {
            let choice = c >> (place / 2);
            let byte = (pair(a, b) >> (8 * (choice & 7))) as u32 & 0xff;
            let byte = if choice & 8 != 0 { if byte & 0x80 != 0 { 0xff } else { 0 } } else { byte };
            out |= byte << place;
            place += 8;
        }
        out
    }
    PrmtF4e(a: u32, b: u32, c: u32) -> u32 { let n = c & 3; gather(a, b, [n, n + 1, n + 2, n + 3]) }
    PrmtB4e(a: u32, b: u32, c: u32) -> u32 { let n = c & 3; gather(a, b, [n, n.wrapping_sub(1) & 7, n.wrapping_sub(2) & 7, n.wrapping_sub(3) & 7]) }
    PrmtRc8(a: u32, b: u32, c: u32) -> u32 { let n = c & 3; gather(a, b, [n, n, n, n]) }
    PrmtEcl(a: u32, b: u32, c: u32) -> u32 { let n = c & 3; gather(a, b, [n, n.max(1), n.max(2), 3]) }
    PrmtEcr(a: u32, b: u32, c: u32) -> u32 { let n = c & 3; gather(a, b, [0, n.min(1), n.min(2), n]) }
    PrmtRc16(a: u32, b: u32, c: u32) -> u32 { let n = (c & 1) * 2; gather(a, b, [n, n + 1, n, n + 1]) }

    // `mov` between a register and its parts.
    Join16(low: u16, high: u16) -> u32 { u32::from(low) | u32::from(high) << 16 }
    Join32(low: u32, high: u32) -> u64 { u64::from(low) | u64::from(high) << 32 }
    Join16x4(a: u16, b: u16, c: u16, d: u16) -> u64 {
        u64::from(a) | u64::from(b) << 16 | u64::from(c) << 32 | u64::from(d) << 48
    }
    Join8(low: u8, high: u8) -> u16 { u16::from(low) | u16::from(high) << 8 }
    Join8x4(a: u8, b: u8, c: u8, d: u8) -> u32 { u32::from_le_bytes([a, b, c, d]) }
    // Part `n` of a register.
    Part8(a: u32, n: u32) -> u8 { (a >> (8 * (n & 3))) as u8 }
    Part16(a: u32, n: u32) -> u16 { (a >> (16 * (n & 1))) as u16 }
    Part16of64(a: u64, n: u32) -> u16 { (a >> (16 * (n & 3))) as u16 }
    Part32(a: u64, n: u32) -> u32 { (a >> (32 * (n & 1))) as u32 }
}

/// A number with its `n` low bits set; `n` is at most 64.
#[inline(always)]
fn ones(n: u32) -> u64 {
    if n >= 64 { u64::MAX } else { (1 << n) - 1 }
}

#[inline(always)]
fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

#[inline(always)]
fn gather(a: u32, b: u32, from: [u32; 4]) -> u32 {
    let all = pair(a, b);
    u32::from_le_bytes(from.map(|n| (all >> (8 * (n & 7))) as u8))
}

#[inline(always)]
fn field(a: u64, pos: u32, len: u32, width: u32) -> u64 {
    if pos >= width { 0 } else { (a >> pos) & ones(len) }
}

#[inline(always)]
fn signed_field(a: u64, pos: u32, len: u32, width: u32) -> u64 {
    if len == 0 {
        return 0;
    }
    let sign = a >> (pos + len - 1).min(width - 1) & 1;
    let kept = len.min(width.saturating_sub(pos));
    let low = field(a, pos, kept, width);
    if sign != 0 { low | !ones(kept) } else { low }
}

fn find_set(mask: u32, base: u32, offset: i32) -> u32 {
    let base = base & 31;
    if offset == 0 {
        return if mask >> base & 1 != 0 { base } else { u32::MAX };
    }
    let mut left = offset.unsigned_abs();
    let mut at = base as i32;
    while (0..32).contains(&at) {
        if mask >> at & 1 != 0 {
            left -= 1;
            if left == 0 {
                return at as u32;
            }
        }
        at += offset.signum();
    }
    u32::MAX
}

/// `lop3` with a truth table in the immediate.
pub struct Lop3;
impl Op3x for Lop3 {
    type T = u32;
    #[inline(always)]
    fn compute(a: u32, b: u32, c: u32, x: u16) -> u32 {
        let row = |n: u16| if x >> n & 1 != 0 { u32::MAX } else { 0 };
        let when_a = (!b & ((!c & row(4)) | (c & row(5)))) | (b & ((!c & row(6)) | (c & row(7))));
        let when_not = (!b & ((!c & row(0)) | (c & row(1)))) | (b & ((!c & row(2)) | (c & row(3))));
        (a & when_a) | (!a & when_not)
    }
}

/// `lop3` with a truth table known when this is compiled.
pub struct Lop3Fixed<const TABLE: u16>;
impl<const TABLE: u16> alu::Op3 for Lop3Fixed<TABLE> {
    type A = u32;
    type B = u32;
    type C = u32;
    type R = u32;
    #[inline(always)]
    fn compute(a: u32, b: u32, c: u32) -> u32 {
        Lop3::compute(a, b, c, TABLE)
    }
}

/// `lop3`: one operation for common truth tables, others by the table in the immediate.
#[must_use]
pub fn lop3(table: u16) -> AluFunction {
    match table {
        0xc0 => alu::op3::<Lop3Fixed<0xc0>>(),
        0xfc => alu::op3::<Lop3Fixed<0xfc>>(),
        0x3c => alu::op3::<Lop3Fixed<0x3c>>(),
        0x80 => alu::op3::<Lop3Fixed<0x80>>(),
        0xfe => alu::op3::<Lop3Fixed<0xfe>>(),
        0x96 => alu::op3::<Lop3Fixed<0x96>>(),
        0x78 => alu::op3::<Lop3Fixed<0x78>>(),
        0xf8 => alu::op3::<Lop3Fixed<0xf8>>(),
        0xca => alu::op3::<Lop3Fixed<0xca>>(),
        0xe8 => alu::op3::<Lop3Fixed<0xe8>>(),
        _ => alu::op3x::<Lop3>(),
    }
}
