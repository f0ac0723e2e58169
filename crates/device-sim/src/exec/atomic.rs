//! Atomic operations and reductions of a warp, lane after lane (PTX ISA, "atom" and "red").

use super::access::{NearMemory, compute_addresses, for_each_range, misaligned_fault, near_bytes, split_by_space};
use super::coalesced::CoalescedAccess;
use super::fault::{LaneResult, for_each_lane, try_for_each_lane};
use super::interface::{Access, GlobalMemory};
use super::shape::{AddressShape, Pattern};
use crate::program::code::{AtomicHow, AtomicOp, Space};
use crate::simd::alu::Op2;
use crate::simd::lanes::{LANES, NO_SLOT, PerLane64, WarpRegisters};
use crate::simd::ops::float::Add32;
use crate::simd::ops::half::{AddH, B, H, MinMaxH, Two};
use crate::simd::ops::round::RN;

/// The new value of a memory cell, given the old one and the operands.
#[inline(always)]
pub(super) fn combine(how: AtomicHow, bytes: u8, old: u64, a: u64, b: u64) -> u64 {
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
            let sum = if flush { <Add32<RN, true, false> as Op2>::compute(x, y) } else { <Add32<RN, false, false> as Op2>::compute(x, y) };
            sum.to_bits().into()
        }
        AtomicHow::AddF64 => (f64::from_bits(old) + f64::from_bits(a)).to_bits(),
        AtomicHow::AddHalf => <AddH<H> as Op2>::compute(H(old as u16), H(a as u16)).0.into(),
        AtomicHow::AddBrain => <AddH<B> as Op2>::compute(B(old as u16), B(a as u16)).0.into(),
        AtomicHow::MinHalf => <MinMaxH<H, false> as Op2>::compute(H(old as u16), H(a as u16)).0.into(),
        AtomicHow::MaxHalf => <MinMaxH<H, true> as Op2>::compute(H(old as u16), H(a as u16)).0.into(),
        AtomicHow::MinBrain => <MinMaxH<B, false> as Op2>::compute(B(old as u16), B(a as u16)).0.into(),
        AtomicHow::MaxBrain => <MinMaxH<B, true> as Op2>::compute(B(old as u16), B(a as u16)).0.into(),
        AtomicHow::AddHalfTwo => combine_halves::<AddH<H>>(old, a),
        AtomicHow::AddBrainTwo => combine_halves::<AddH<B>>(old, a),
        AtomicHow::MinHalfTwo => combine_halves::<MinMaxH<H, false>>(old, a),
        AtomicHow::MaxHalfTwo => combine_halves::<MinMaxH<H, true>>(old, a),
        AtomicHow::MinBrainTwo => combine_halves::<MinMaxH<B, false>>(old, a),
        AtomicHow::MaxBrainTwo => combine_halves::<MinMaxH<B, true>>(old, a),
    }
}

#[inline(always)]
fn combine_halves<O>(old: u64, a: u64) -> u64
where
    Two<O>: Op2<A = u32, B = u32, R = u32>,
{
    <Two<O> as Op2>::compute(old as u32, a as u32).into()
}

/// Performs an atomic operation for the lanes of `mask`.
pub(super) fn perform<M: GlobalMemory>(
    registers: &mut WarpRegisters<'_>,
    op: &AtomicOp,
    mask: u32,
    near: &mut NearMemory<'_>,
    memory: &mut M,
) -> LaneResult<()> {
    let mut at = compute_addresses(registers, op.base, op.offset);
    if op.space == Space::Generic {
        for (space, part) in split_by_space(&mut at, mask) {
            if part != 0 {
                perform_in_space(registers, op, space, &at, part, near, memory)?;
            }
        }
        return Ok(());
    }
    perform_in_space(registers, op, op.space, &at, mask, near, memory)
}

/// An operand of one lane, zero-extended; 0 where the instruction has none.
fn read_operand(registers: &WarpRegisters<'_>, op: &AtomicOp, slot: u16, lane: usize) -> u64 {
    if slot == NO_SLOT {
        0
    } else if op.bytes == 8 {
        registers.get64(slot).0[lane]
    } else {
        let value = registers.get32(slot).0[lane];
        u64::from(if op.bytes == 2 { value & 0xffff } else { value })
    }
}

/// Gives a lane the old value, unless the instruction is a reduction.
fn write_result(registers: &mut WarpRegisters<'_>, op: &AtomicOp, lane: usize, old: u64) {
    if op.d == NO_SLOT {
    } else if op.bytes == 8 {
        registers.r64[op.d as usize].0[lane] = old;
    } else {
        registers.r32[op.d as usize].0[lane] = old as u32;
    }
}

fn perform_in_space<M: GlobalMemory>(
    registers: &mut WarpRegisters<'_>,
    op: &AtomicOp,
    space: Space,
    at: &PerLane64,
    mask: u32,
    near_memory: &mut NearMemory<'_>,
    memory: &mut M,
) -> LaneResult<()> {
    let shape = AddressShape::of_addresses(at, mask, op.bytes.into());
    if shape.any & u64::from(op.bytes - 1) != 0 {
        return Err(misaligned_fault(at, mask, op.bytes.into(), space));
    }
    if op.bytes == 16 {
        return exchange_sixteen(registers, op, space, at, mask, near_memory, memory);
    }
    if matches!(space, Space::Global | Space::Generic) {
        // "atom.add.f32 on global memory flushes subnormal inputs and results to sign-preserving
        // zero", in shared memory it does not (PTX ISA, *atom*).
        let how = if let AtomicHow::AddF32 { .. } = op.how { AtomicHow::AddF32 { flush: true } } else { op.how };
        let Some(coalesced) = CoalescedAccess::in_global(memory, at, mask, &shape, op.bytes.into(), Access::Atomic) else {
            return for_each_range(memory, at, mask, op.bytes.into(), Access::Atomic, |_, range, lane| {
                let (a, b) = (read_operand(registers, op, op.a, lane), read_operand(registers, op, op.b, lane));
                let old = match op.bytes {
                    2 => range.update16(|old| combine(how, 2, old.into(), a, b) as u16).into(),
                    4 => range.update32(|old| combine(how, 4, old.into(), a, b) as u32).into(),
                    _ => range.update64(|old| combine(how, 8, old, a, b)),
                };
                write_result(registers, op, lane, old);
            });
        };
        match (op.bytes, how) {
            (4 | 8, AtomicHow::Add) if shape.pattern == Pattern::Broadcast => add_combined(registers, op, mask, &coalesced),
            (4, AtomicHow::Add) => for_each_lane(mask, |lane| {
                let old = coalesced.add32(lane, read_operand(registers, op, op.a, lane) as u32);
                write_result(registers, op, lane, old.into());
            }),
            (8, AtomicHow::Add) => for_each_lane(mask, |lane| {
                let old = coalesced.add64(lane, read_operand(registers, op, op.a, lane));
                write_result(registers, op, lane, old);
            }),
            _ => for_each_lane(mask, |lane| {
                let (a, b) = (read_operand(registers, op, op.a, lane), read_operand(registers, op, op.b, lane));
                let old = match op.bytes {
                    2 => coalesced.update16(lane, |old| combine(how, 2, old.into(), a, b) as u16).into(),
                    4 => coalesced.update32(lane, |old| combine(how, 4, old.into(), a, b) as u32).into(),
                    _ => coalesced.update64(lane, |old| combine(how, 8, old, a, b)),
                };
                write_result(registers, op, lane, old);
            }),
        }
        return Ok(());
    }
    if space == Space::Shared
        && let Some(coalesced) = CoalescedAccess::in_slice_mut(near_memory.shared, at, mask, &shape, op.bytes.into())
    {
        match (op.bytes, op.how) {
            (4, AtomicHow::Add) => for_each_lane(mask, |lane| {
                let a = read_operand(registers, op, op.a, lane) as u32;
                let old = coalesced.replace_value(lane, |old: u32| old.wrapping_add(a));
                write_result(registers, op, lane, old.into());
            }),
            _ => for_each_lane(mask, |lane| {
                let (a, b) = (read_operand(registers, op, op.a, lane), read_operand(registers, op, op.b, lane));
                let old = match op.bytes {
                    2 => coalesced.replace_value(lane, |old: u16| combine(op.how, 2, old.into(), a, b) as u16).into(),
                    4 => coalesced.replace_value(lane, |old: u32| combine(op.how, 4, old.into(), a, b) as u32).into(),
                    _ => coalesced.replace_value(lane, |old: u64| combine(op.how, 8, old, a, b)),
                };
                write_result(registers, op, lane, old);
            }),
        }
        return Ok(());
    }
    // Local memory, and the fault of a lane that is outside.
    try_for_each_lane(mask, |lane| {
        let (a, b) = (read_operand(registers, op, op.a, lane), read_operand(registers, op, op.b, lane));
        let bytes = near_bytes(near_memory, space, at.0[lane], op.bytes.into(), lane)?;
        let mut all = [0; 8];
        all[..bytes.len()].copy_from_slice(bytes);
        let old = u64::from_le_bytes(all);
        let new = combine(op.how, op.bytes, old, a, b).to_le_bytes();
        let count = bytes.len();
        bytes.copy_from_slice(&new[..count]);
        write_result(registers, op, lane, old);
        Ok(())
    })
}

/// An operand of 16 bytes: two registers, one behind the other.
fn read_pair(registers: &WarpRegisters<'_>, slot: u16, lane: usize) -> u128 {
    let half = |slot: u16| u128::from(registers.get64(slot).0[lane]);
    if slot == NO_SLOT { 0 } else { half(slot) | (half(slot + 1) << 64) }
}

/// `atom.exch.b128` and `atom.cas.b128`.
fn exchange_sixteen<M: GlobalMemory>(
    registers: &mut WarpRegisters<'_>,
    op: &AtomicOp,
    space: Space,
    at: &PerLane64,
    mask: u32,
    near_memory: &mut NearMemory<'_>,
    memory: &mut M,
) -> LaneResult<()> {
    let combine = |old: u128, a: u128, b: u128| match op.how {
        AtomicHow::Compare if old == a => b,
        AtomicHow::Compare => old,
        _ => a,
    };
    let write = |registers: &mut WarpRegisters<'_>, lane: usize, old: u128| {
        if op.d != NO_SLOT {
            registers.r64[usize::from(op.d)].0[lane] = old as u64;
            registers.r64[usize::from(op.d) + 1].0[lane] = (old >> 64) as u64;
        }
    };
    if matches!(space, Space::Global | Space::Generic) {
        return for_each_range(memory, at, mask, 16, Access::Atomic, |_, range, lane| {
            let (a, b) = (read_pair(registers, op.a, lane), read_pair(registers, op.b, lane));
            let old = range.update128(|old| combine(old, a, b));
            write(registers, lane, old);
        });
    }
    try_for_each_lane(mask, |lane| {
        let (a, b) = (read_pair(registers, op.a, lane), read_pair(registers, op.b, lane));
        let bytes = near_bytes(near_memory, space, at.0[lane], 16, lane)?;
        let mut all = [0; 16];
        all.copy_from_slice(bytes);
        let old = u128::from_le_bytes(all);
        bytes.copy_from_slice(&combine(old, a, b).to_le_bytes());
        write(registers, lane, old);
        Ok(())
    })
}

/// All lanes add to one cell: one addition, and for each lane the old value that it would have seen
/// if the lanes had come in their order.
fn add_combined(registers: &mut WarpRegisters<'_>, op: &AtomicOp, mask: u32, coalesced: &CoalescedAccess<'_, false>) {
    let mut sum = 0u64;
    let mut before = [0; LANES];
    for_each_lane(mask, |lane| {
        before[lane] = sum;
        sum = sum.wrapping_add(read_operand(registers, op, op.a, lane));
    });
    let first = mask.trailing_zeros() as usize & 31;
    let old = if op.bytes == 8 { coalesced.add64(first, sum) } else { coalesced.add32(first, sum as u32).into() };
    for_each_lane(mask, |lane| write_result(registers, op, lane, old.wrapping_add(before[lane])));
}
