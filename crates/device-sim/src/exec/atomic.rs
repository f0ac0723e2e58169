//! Atomic operations and reductions of a warp, lane after lane.

use super::access::{Near, addresses, misaligned, near, one_by_one, sort};
use super::fault::{Checked, each, try_each};
use super::interface::{Access, GlobalMemory};
use super::served::{Kind, Served, Shape};
use crate::program::code::{AtomicHow, AtomicOp, Space};
use crate::simd::alu::Op2;
use crate::simd::lanes::{LANES, Lanes, NO_SLOT, V64};
use crate::simd::ops::float::Add32;
use crate::simd::ops::half::{AddH, B, H, MinMaxH, Two};
use crate::simd::ops::round::RN;

/// The new value of a memory cell, given the old one and the operands.
#[inline(always)]
fn combine(how: AtomicHow, bytes: u8, old: u64, a: u64, b: u64) -> u64 {
    let wide = bytes == 8;
    let signed = |x: u64| if wide { x as i64 } else { i64::from(x as u32 as i32) };
    let cut = |x: u64| if wide { x } else { x & u64::from(u32::MAX) };
    match how {
        AtomicHow::Add => cut(old.wrapping_add(a)),
        AtomicHow::And => old & a,
        AtomicHow::Or => old | a,
        AtomicHow::Xor => old ^ a,
        AtomicHow::Exchange => a,
        AtomicHow::Compare => {
            if old == a {
                b
            } else {
                old
            }
        }
        AtomicHow::Increment => {
            if old >= a {
                0
            } else {
                old + 1
            }
        }
        AtomicHow::Decrement => {
            if old == 0 || old > a {
                a
            } else {
                old - 1
            }
        }
        AtomicHow::MinUnsigned => old.min(a),
        AtomicHow::MaxUnsigned => old.max(a),
        AtomicHow::MinSigned => {
            if signed(a) < signed(old) {
                a
            } else {
                old
            }
        }
        AtomicHow::MaxSigned => {
            if signed(a) > signed(old) {
                a
            } else {
                old
            }
        }
        AtomicHow::AddF32 { flush } => {
            let (x, y) = (f32::from_bits(old as u32), f32::from_bits(a as u32));
            let sum = if flush { <Add32<RN, true, false> as Op2>::f(x, y) } else { <Add32<RN, false, false> as Op2>::f(x, y) };
            sum.to_bits().into()
        }
        AtomicHow::AddF64 => (f64::from_bits(old) + f64::from_bits(a)).to_bits(),
        AtomicHow::AddHalf => <AddH<H> as Op2>::f(H(old as u16), H(a as u16)).0.into(),
        AtomicHow::AddBrain => <AddH<B> as Op2>::f(B(old as u16), B(a as u16)).0.into(),
        AtomicHow::MinHalf => <MinMaxH<H, false> as Op2>::f(H(old as u16), H(a as u16)).0.into(),
        AtomicHow::MaxHalf => <MinMaxH<H, true> as Op2>::f(H(old as u16), H(a as u16)).0.into(),
        AtomicHow::MinBrain => <MinMaxH<B, false> as Op2>::f(B(old as u16), B(a as u16)).0.into(),
        AtomicHow::MaxBrain => <MinMaxH<B, true> as Op2>::f(B(old as u16), B(a as u16)).0.into(),
        AtomicHow::AddHalfTwo => two::<AddH<H>>(old, a),
        AtomicHow::AddBrainTwo => two::<AddH<B>>(old, a),
        AtomicHow::MinHalfTwo => two::<MinMaxH<H, false>>(old, a),
        AtomicHow::MaxHalfTwo => two::<MinMaxH<H, true>>(old, a),
        AtomicHow::MinBrainTwo => two::<MinMaxH<B, false>>(old, a),
        AtomicHow::MaxBrainTwo => two::<MinMaxH<B, true>>(old, a),
    }
}

#[inline(always)]
fn two<O>(old: u64, a: u64) -> u64
where
    Two<O>: Op2<A = u32, B = u32, R = u32>,
{
    <Two<O> as Op2>::f(old as u32, a as u32).into()
}

pub(super) fn atomic<M: GlobalMemory>(lanes: &mut Lanes<'_>, op: &AtomicOp, mask: u32, near: &mut Near<'_>, memory: &mut M) -> Checked<()> {
    let mut at = addresses(lanes, op.base, op.offset);
    if op.space == Space::Generic {
        for (space, part) in sort(&mut at, mask) {
            if part != 0 {
                atomic_in(lanes, op, space, &at, part, near, memory)?;
            }
        }
        return Ok(());
    }
    atomic_in(lanes, op, op.space, &at, mask, near, memory)
}

fn operand(lanes: &Lanes<'_>, op: &AtomicOp, slot: u16, lane: usize) -> u64 {
    if slot == NO_SLOT {
        0
    } else if op.bytes == 8 {
        lanes.get64(slot).0[lane]
    } else {
        let value = lanes.get32(slot).0[lane];
        u64::from(if op.bytes == 2 { value & 0xffff } else { value })
    }
}

fn result(lanes: &mut Lanes<'_>, op: &AtomicOp, lane: usize, old: u64) {
    if op.d == NO_SLOT {
    } else if op.bytes == 8 {
        lanes.r64[op.d as usize].0[lane] = old;
    } else {
        lanes.r32[op.d as usize].0[lane] = old as u32;
    }
}

fn atomic_in<M: GlobalMemory>(
    lanes: &mut Lanes<'_>,
    op: &AtomicOp,
    space: Space,
    at: &V64,
    mask: u32,
    near_memory: &mut Near<'_>,
    memory: &mut M,
) -> Checked<()> {
    let shape = Shape::of(at, mask, op.bytes.into());
    if shape.any & u64::from(op.bytes - 1) != 0 {
        return Err(misaligned(at, mask, op.bytes.into(), space));
    }
    if matches!(space, Space::Global | Space::Generic) {
        let Some(served) = Served::global(memory, at, mask, &shape, op.bytes.into(), Access::Atomic) else {
            return one_by_one(memory, at, mask, op.bytes.into(), Access::Atomic, |_, range, lane| {
                let (a, b) = (operand(lanes, op, op.a, lane), operand(lanes, op, op.b, lane));
                let old = match op.bytes {
                    2 => range.update16(0, |old| combine(op.how, 2, old.into(), a, b) as u16).into(),
                    4 => range.update32(0, |old| combine(op.how, 4, old.into(), a, b) as u32).into(),
                    _ => range.update64(0, |old| combine(op.how, 8, old, a, b)),
                };
                result(lanes, op, lane, old);
            });
        };
        match (op.bytes, op.how) {
            (4 | 8, AtomicHow::Add) if shape.kind == Kind::One => add_together(lanes, op, mask, &served),
            (4, AtomicHow::Add) => each(mask, |lane| {
                let old = served.add32(lane, operand(lanes, op, op.a, lane) as u32);
                result(lanes, op, lane, old.into());
            }),
            (8, AtomicHow::Add) => each(mask, |lane| {
                let old = served.add64(lane, operand(lanes, op, op.a, lane));
                result(lanes, op, lane, old);
            }),
            _ => each(mask, |lane| {
                let (a, b) = (operand(lanes, op, op.a, lane), operand(lanes, op, op.b, lane));
                let old = match op.bytes {
                    2 => served.update16(lane, |old| combine(op.how, 2, old.into(), a, b) as u16).into(),
                    4 => served.update32(lane, |old| combine(op.how, 4, old.into(), a, b) as u32).into(),
                    _ => served.update64(lane, |old| combine(op.how, 8, old, a, b)),
                };
                result(lanes, op, lane, old);
            }),
        }
        return Ok(());
    }
    if space == Space::Shared
        && let Some(served) = Served::writing(near_memory.shared, at, mask, &shape, op.bytes.into())
    {
        match (op.bytes, op.how) {
            (4, AtomicHow::Add) => each(mask, |lane| {
                let a = operand(lanes, op, op.a, lane) as u32;
                let old = served.replace(lane, |old: u32| old.wrapping_add(a));
                result(lanes, op, lane, old.into());
            }),
            _ => each(mask, |lane| {
                let (a, b) = (operand(lanes, op, op.a, lane), operand(lanes, op, op.b, lane));
                let old = match op.bytes {
                    2 => served.replace(lane, |old: u16| combine(op.how, 2, old.into(), a, b) as u16).into(),
                    4 => served.replace(lane, |old: u32| combine(op.how, 4, old.into(), a, b) as u32).into(),
                    _ => served.replace(lane, |old: u64| combine(op.how, 8, old, a, b)),
                };
                result(lanes, op, lane, old);
            }),
        }
        return Ok(());
    }
    // Local memory, and the fault of whoever is outside.
    try_each(mask, |lane| {
        let (a, b) = (operand(lanes, op, op.a, lane), operand(lanes, op, op.b, lane));
        let bytes = near(near_memory, space, at.0[lane], op.bytes.into(), lane)?;
        let mut all = [0; 8];
        all[..bytes.len()].copy_from_slice(bytes);
        let old = u64::from_le_bytes(all);
        let new = combine(op.how, op.bytes, old, a, b).to_le_bytes();
        let count = bytes.len();
        bytes.copy_from_slice(&new[..count]);
        result(lanes, op, lane, old);
        Ok(())
    })
}

/// All lanes add to one cell: one addition, and each lane's old value as if they had come in their order.
fn add_together(lanes: &mut Lanes<'_>, op: &AtomicOp, mask: u32, served: &Served<'_, false>) {
    let mut sum = 0u64;
    let mut before = [0; LANES];
    each(mask, |lane| {
        before[lane] = sum;
        sum = sum.wrapping_add(operand(lanes, op, op.a, lane));
    });
    let first = mask.trailing_zeros() as usize & 31;
    let old = if op.bytes == 8 { served.add64(first, sum) } else { served.add32(first, sum as u32).into() };
    each(mask, |lane| result(lanes, op, lane, old.wrapping_add(before[lane])));
}
