//! Between the registers of a warp and the bytes of an access.
//!
//! Common widths of contiguous accesses have code of their own; everything else goes lane by lane
//! through [`CoalescedAccess::gather`] and [`CoalescedAccess::scatter`].

// Elements of a vector access are numbered: registers and offsets are found by the same number.
#![allow(clippy::needless_range_loop)]

use super::coalesced::CoalescedAccess;
use super::fault::for_each_lane;
use super::shape::Pattern;
use crate::program::code::MemoryOp;
use crate::simd::lanes::{LANES, PerLane, PerLane32, PerLane64, WarpRegisters};

/// The value of an element of `bytes` bytes, its sign extended to `sign` bits (0: not extended).
#[inline(always)]
pub(super) fn extend_sign(value: u64, bytes: u8, sign: u8) -> u64 {
    if sign == 0 {
        return value;
    }
    let unused = 64 - 8 * u32::from(bytes);
    let full = (((value << unused) as i64) >> unused) as u64;
    if sign >= 64 { full } else { full & ((1 << sign) - 1) }
}

/// Applies `f` to the value of each lane.
#[inline(always)]
fn map_lanes<A, B: Copy>(from: &[A; LANES], f: impl Fn(&A) -> B) -> PerLane<B> {
    let mut out = PerLane([f(&from[0]); LANES]);
    for lane in 1..LANES {
        out.0[lane] = f(&from[lane]);
    }
    out
}

/// The registers of each lane side by side.
#[inline(always)]
fn interleave_registers<W: Copy, const N: usize>(from: [&[W; LANES]; N]) -> [[W; N]; LANES] {
    let mut out = [[from[0][0]; N]; LANES];
    for lane in 0..LANES {
        for n in 0..N {
            out[lane][n] = from[n][lane];
        }
    }
    out
}

/// Loads registers from the bytes of an access.
#[inline(always)]
pub(super) fn load_registers<const OWN: bool>(registers: &mut WarpRegisters<'_>, op: &MemoryOp, mask: u32, coalesced: &CoalescedAccess<'_, OWN>) {
    let data = op.data.map(usize::from);
    let count = op.count as usize;
    match (op.bytes, op.wide, coalesced.pattern) {
        (4, false, Pattern::Contiguous) if count == 1 && mask == u32::MAX => coalesced.read_row_into(&mut registers.r32[data[0]].0),
        (8, true, Pattern::Contiguous) if count == 1 && mask == u32::MAX => coalesced.read_row_into(&mut registers.r64[data[0]].0),
        (4, false, Pattern::Contiguous) if count == 1 => registers.set32(op.data[0], &map_lanes(&coalesced.read_row::<u32, 1>(), |[word]| *word), mask),
        (8, true, Pattern::Contiguous) if count == 1 => registers.set64(op.data[0], &map_lanes(&coalesced.read_row::<u64, 1>(), |[word]| *word), mask),
        (4, false, Pattern::Contiguous) if count == 2 => {
            let row = coalesced.read_row::<u32, 2>();
            for n in 0..2 {
                registers.set32(op.data[n], &map_lanes(&row, |words| words[n]), mask);
            }
        }
        (4, false, Pattern::Contiguous) if count == 4 => {
            let row = coalesced.read_row::<u32, 4>();
            for n in 0..4 {
                registers.set32(op.data[n], &map_lanes(&row, |words| words[n]), mask);
            }
        }
        (8, true, Pattern::Contiguous) if count == 2 => {
            let row = coalesced.read_row::<u64, 2>();
            for n in 0..2 {
                registers.set64(op.data[n], &map_lanes(&row, |words| words[n]), mask);
            }
        }
        (1, false, Pattern::Contiguous) if count == 1 => {
            registers.set32(op.data[0], &map_lanes(&coalesced.read_row::<u8, 1>(), |[byte]| extend_sign((*byte).into(), 1, op.sign) as u32), mask);
        }
        (2, false, Pattern::Contiguous) if count == 1 => {
            registers.set32(op.data[0], &map_lanes(&coalesced.read_row::<u16, 1>(), |[word]| extend_sign((*word).into(), 2, op.sign) as u32), mask);
        }
        (4, false, Pattern::Broadcast) if count == 1 => registers.set32(op.data[0], &PerLane32::splat(coalesced.read_broadcast(0)), mask),
        (8, true, Pattern::Broadcast) if count == 1 => registers.set64(op.data[0], &PerLane64::splat(coalesced.read_broadcast(0)), mask),
        // Up to 16 bytes at once, as in `load_elements`.
        (4, false, Pattern::Broadcast) if count == 2 => {
            let words: u64 = coalesced.read_broadcast(0);
            for n in 0..2 {
                registers.set32(op.data[n], &PerLane32::splat((words >> (32 * n)) as u32), mask);
            }
        }
        (4, false, Pattern::Broadcast) if count == 4 => {
            let words: u128 = coalesced.read_broadcast(0);
            for n in 0..4 {
                registers.set32(op.data[n], &PerLane32::splat((words >> (32 * n)) as u32), mask);
            }
        }
        _ if count == 1 && op.bytes <= 8 => load_element(registers, op, coalesced),
        _ => load_elements(registers, op, coalesced),
    }
}

/// Loads one element of each lane, wherever the lanes lie.
#[inline(always)]
fn load_element<const OWN: bool>(registers: &mut WarpRegisters<'_>, op: &MemoryOp, coalesced: &CoalescedAccess<'_, OWN>) {
    let slot = op.data[0] as usize;
    if op.wide {
        let mut got = registers.r64[slot].0;
        match op.bytes {
            1 => coalesced.gather(0, &mut got, |word: u8| u64::from(word)),
            2 => coalesced.gather(0, &mut got, |word: u16| u64::from(word)),
            4 => coalesced.gather(0, &mut got, |word: u32| u64::from(word)),
            _ => return coalesced.gather(0, &mut registers.r64[slot].0, |word| word),
        }
        registers.set64(op.data[0], &map_lanes(&got, |value| extend_sign(*value, op.bytes, op.sign)), coalesced.mask);
        return;
    }
    let into = &mut registers.r32[slot].0;
    match op.bytes {
        1 => coalesced.gather(0, into, |word: u8| u32::from(word)),
        2 => coalesced.gather(0, into, |word: u16| u32::from(word)),
        4 => coalesced.gather(0, into, |word| word),
        _ => coalesced.gather(0, into, |word: u64| word as u32),
    }
    if op.sign != 0 {
        let got = *registers.get32(op.data[0]);
        registers.set32(op.data[0], &map_lanes(&got.0, |value| extend_sign((*value).into(), op.bytes, op.sign) as u32), coalesced.mask);
    }
}

/// Loads several elements of each lane. Up to 16 bytes are read at once: programs rely on a status
/// and a value in one vector being of the same moment.
#[inline(never)]
fn load_elements<const OWN: bool>(registers: &mut WarpRegisters<'_>, op: &MemoryOp, coalesced: &CoalescedAccess<'_, OWN>) {
    let (pieces, step) = register_pieces(op);
    let whole = (step as usize * pieces).min(16);
    let mut got = [0u128; LANES];
    for n in 0..pieces {
        let at = step as usize * n;
        if at.is_multiple_of(whole) {
            match whole {
                2 => coalesced.gather(at, &mut got, |word: u16| u128::from(word)),
                4 => coalesced.gather(at, &mut got, |word: u32| u128::from(word)),
                8 => coalesced.gather(at, &mut got, |word: u64| u128::from(word)),
                _ => coalesced.gather(at, &mut got, |word: u128| word),
            }
        }
        let shift = 8 * (at % whole);
        let mask = if step == 8 { u64::MAX } else { (1 << (8 * step)) - 1 };
        for_each_lane(coalesced.mask, |lane| write_register(registers, op, n, lane, extend_sign((got[lane] >> shift) as u64 & mask, step as u8, op.sign)));
    }
}

/// Stores registers to the bytes of an access.
#[inline(always)]
pub(super) fn store_registers<const OWN: bool>(registers: &WarpRegisters<'_>, op: &MemoryOp, coalesced: &CoalescedAccess<'_, OWN>) {
    let count = op.count as usize;
    match (op.bytes, op.wide, coalesced.pattern) {
        (4, false, Pattern::Contiguous) if count == 1 => coalesced.write_row(&map_lanes(&registers.get32(op.data[0]).0, |word| [*word]).0),
        (8, true, Pattern::Contiguous) if count == 1 => coalesced.write_row(&map_lanes(&registers.get64(op.data[0]).0, |word| [*word]).0),
        (4, false, Pattern::Contiguous) if count == 2 => coalesced.write_row(&interleave_registers([0, 1].map(|n| &registers.get32(op.data[n]).0))),
        (4, false, Pattern::Contiguous) if count == 4 => coalesced.write_row(&interleave_registers([0, 1, 2, 3].map(|n| &registers.get32(op.data[n]).0))),
        (8, true, Pattern::Contiguous) if count == 2 => coalesced.write_row(&interleave_registers([0, 1].map(|n| &registers.get64(op.data[n]).0))),
        (1, false, Pattern::Contiguous) if count == 1 => coalesced.write_row(&map_lanes(&registers.get32(op.data[0]).0, |word| [*word as u8]).0),
        (2, false, Pattern::Contiguous) if count == 1 => coalesced.write_row(&map_lanes(&registers.get32(op.data[0]).0, |word| [*word as u16]).0),
        _ if count == 1 && op.wide => {
            let from = &registers.get64(op.data[0]).0;
            match op.bytes {
                1 => coalesced.scatter(0, from, |word| word as u8),
                2 => coalesced.scatter(0, from, |word| word as u16),
                4 => coalesced.scatter(0, from, |word| word as u32),
                8 => coalesced.scatter(0, from, |word| word),
                _ => store_elements(registers, op, coalesced),
            }
        }
        (1, false, _) if count == 1 => coalesced.scatter(0, &registers.get32(op.data[0]).0, |word| word as u8),
        (2, false, _) if count == 1 => coalesced.scatter(0, &registers.get32(op.data[0]).0, |word| word as u16),
        (4, false, _) if count == 1 => coalesced.scatter(0, &registers.get32(op.data[0]).0, |word| word),
        _ => store_elements(registers, op, coalesced),
    }
}

/// Stores several elements of each lane, up to 16 bytes at once.
#[inline(never)]
fn store_elements<const OWN: bool>(registers: &WarpRegisters<'_>, op: &MemoryOp, coalesced: &CoalescedAccess<'_, OWN>) {
    let (pieces, step) = register_pieces(op);
    let whole = (step as usize * pieces).min(16);
    let mut gathered = [0u128; LANES];
    for n in 0..pieces {
        let shift = 8 * (step as usize * n % whole);
        let mask = if step == 8 { u64::MAX } else { (1 << (8 * step)) - 1 };
        for_each_lane(coalesced.mask, |lane| gathered[lane] |= u128::from(read_register(registers, op, n, lane) & mask) << shift);
        let end = step as usize * (n + 1);
        if end.is_multiple_of(whole) {
            match whole {
                2 => coalesced.scatter(end - whole, &gathered, |word| word as u16),
                4 => coalesced.scatter(end - whole, &gathered, |word| word as u32),
                8 => coalesced.scatter(end - whole, &gathered, |word| word as u64),
                _ => coalesced.scatter(end - whole, &gathered, |word| word),
            }
            gathered = [0; LANES];
        }
    }
}

#[inline(always)]
pub(super) fn write_register(registers: &mut WarpRegisters<'_>, op: &MemoryOp, n: usize, lane: usize, value: u64) {
    if op.wide || op.bytes == 16 {
        registers.r64[op.data[n] as usize].0[lane] = value;
    } else {
        registers.r32[op.data[n] as usize].0[lane] = value as u32;
    }
}

#[inline(always)]
pub(super) fn read_register(registers: &WarpRegisters<'_>, op: &MemoryOp, n: usize, lane: usize) -> u64 {
    if op.wide || op.bytes == 16 { registers.get64(op.data[n]).0[lane] } else { registers.get32(op.data[n]).0[lane].into() }
}

/// Registers of an access for each lane, and bytes of each of them. An element of 16 bytes has two
/// registers.
pub(super) fn register_pieces(op: &MemoryOp) -> (usize, u64) {
    if op.bytes == 16 { (2 * op.count as usize, 8) } else { (op.count.into(), op.bytes.into()) }
}
