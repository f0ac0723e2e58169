//! Loads and stores of a warp in all spaces.
//!
//! Global accesses ask the memory once for the whole span of the warp where that is one allocation, else lane by lane. Generic addresses are
//! sorted into the windows first.

// Elements of a vector access are numbered: registers and offsets are found by the same number.
#![allow(clippy::needless_range_loop)]

use super::fault::{Checked, Wrong, each, try_each};
use super::interface::{
    Access, FaultKind, GlobalMemory, LOCAL_WINDOW, LOCAL_WINDOW_BYTES, PARAM_WINDOW, PARAM_WINDOW_BYTES, SHARED_WINDOW, SHARED_WINDOW_BYTES,
};
use super::lanes::{LANES, Lanes, V32, V64};
use super::level::{self, Span};
use super::raw::Range;
use crate::lower::code::{Base, MemoryOp, Order, Space};

/// Memory that belongs to the block or the thread, and the kernel's parameters.
pub(super) struct Near<'a> {
    pub shared: &'a mut [u8],
    pub local: &'a mut [u8],
    /// Bytes of one lane's local memory.
    pub local_bytes: u32,
    /// Start of the running frame in it.
    pub frame: u32,
    pub parameters: &'a [u8],
}

/// Spans wider than this are not asked for as a whole.
const WIDEST_SPAN: u64 = 1 << 30;

#[inline(always)]
pub(super) fn addresses(lanes: &Lanes<'_>, base: Base, offset: i64) -> V64 {
    match base {
        Base::None => V64::splat(offset as u64),
        Base::Wide(slot) => {
            let from = lanes.get64(slot);
            let mut out = V64::splat(0);
            for lane in 0..LANES {
                out.0[lane] = from.0[lane].wrapping_add(offset as u64);
            }
            out
        }
        Base::Narrow(slot) => {
            let from = lanes.get32(slot);
            let mut out = V64::splat(0);
            for lane in 0..LANES {
                out.0[lane] = u64::from(from.0[lane].wrapping_add(offset as u32));
            }
            out
        }
    }
}

/// The lanes of a generic access by the space they go to; addresses become offsets in it.
pub(super) fn sort(addresses: &mut V64, mask: u32) -> [(Space, u32); 4] {
    let mut masks = [0u32; 4];
    each(mask, |lane| {
        let address = addresses.0[lane];
        let (kind, start) = match address {
            SHARED_WINDOW.. if address - SHARED_WINDOW < SHARED_WINDOW_BYTES => (1, SHARED_WINDOW),
            LOCAL_WINDOW.. if address - LOCAL_WINDOW < LOCAL_WINDOW_BYTES => (2, LOCAL_WINDOW),
            PARAM_WINDOW.. if address - PARAM_WINDOW < PARAM_WINDOW_BYTES => (3, PARAM_WINDOW),
            _ => (0, 0),
        };
        masks[kind] |= 1 << lane;
        addresses.0[lane] = address - start;
    });
    [(Space::Global, masks[0]), (Space::Shared, masks[1]), (Space::Local, masks[2]), (Space::Param, masks[3])]
}

/// Whether all addresses are multiples of `bytes`.
pub(super) fn aligned(addresses: &V64, mask: u32, bytes: u64, window: u64) -> Checked<Span> {
    let span = level::span(addresses, mask, bytes);
    if span.any & (bytes - 1) == 0 {
        return Ok(span);
    }
    try_each(mask, |lane| {
        let address = addresses.0[lane];
        if address & (bytes - 1) == 0 { Ok(()) } else { Err(Wrong::access(FaultKind::Misaligned, lane, address + window, bytes as u32)) }
    })?;
    Ok(span)
}

/// Calls `f(range, offset in it, lane)` for each lane's `bytes` bytes of global memory.
#[inline(always)]
pub(super) fn global<M: GlobalMemory>(
    memory: &mut M,
    addresses: &V64,
    mask: u32,
    span: Span,
    bytes: u64,
    access: Access,
    mut f: impl FnMut(&mut M, Range, u64, usize),
) -> Checked<()> {
    let Span { low, high, .. } = span;
    if high - low < WIDEST_SPAN
        && let Ok(range) = Range::of(memory, low, high - low + bytes, access)
    {
        each(mask, |lane| f(memory, range, addresses.0[lane] - low, lane));
        return Ok(());
    }
    // All lanes are checked before any is served: a fault leaves no half of an instruction behind.
    try_each(mask, |lane| match Range::of(memory, addresses.0[lane], bytes, access) {
        Ok(_) => Ok(()),
        Err(fault) => Err(Wrong::memory(fault, lane, addresses.0[lane], bytes as u32)),
    })?;
    try_each(mask, |lane| match Range::of(memory, addresses.0[lane], bytes, access) {
        Ok(range) => {
            f(memory, range, 0, lane);
            Ok(())
        }
        Err(fault) => Err(Wrong::memory(fault, lane, addresses.0[lane], bytes as u32)),
    })
}

/// The bytes of a near access of one lane.
pub(super) fn near<'a>(near: &'a mut Near<'_>, space: Space, offset: u64, bytes: u64, lane: usize) -> Checked<&'a mut [u8]> {
    let (memory, start, limit, kind, window) = match space {
        Space::Shared => {
            let limit = near.shared.len() as u64;
            (&mut *near.shared, 0, limit, FaultKind::SharedOutOfBounds, SHARED_WINDOW)
        }
        _ => {
            let limit = u64::from(near.local_bytes);
            (&mut *near.local, lane as u64 * limit, limit, FaultKind::LocalOutOfBounds, LOCAL_WINDOW)
        }
    };
    if offset > limit || bytes > limit - offset {
        return Err(Wrong::access(kind, lane, window.wrapping_add(offset), bytes as u32));
    }
    let from = (start + offset) as usize;
    Ok(&mut memory[from..from + bytes as usize])
}

/// The compiler's own frame accesses are right, so what lies outside is the stack's end.
fn overflow(wrong: Wrong) -> Wrong {
    Wrong { kind: FaultKind::StackOverflow, address: 0, bytes: 0, ..wrong }
}

fn little(bytes: &[u8]) -> u64 {
    let mut all = [0; 8];
    let count = bytes.len().min(8);
    all[..count].copy_from_slice(&bytes[..count]);
    u64::from_le_bytes(all)
}

#[inline(always)]
fn extended(value: u64, bytes: u8, sign: u8) -> u64 {
    if sign == 0 {
        return value;
    }
    let unused = 64 - 8 * u32::from(bytes);
    let full = (((value << unused) as i64) >> unused) as u64;
    if sign >= 64 { full } else { full & ((1 << sign) - 1) }
}

/// Space of the addresses in generic form: what to add for messages.
fn window(space: Space) -> u64 {
    match space {
        Space::Shared => SHARED_WINDOW,
        Space::Local | Space::Frame => LOCAL_WINDOW,
        Space::Param => PARAM_WINDOW,
        Space::Global | Space::Generic => 0,
    }
}

pub(super) fn load<M: GlobalMemory>(lanes: &mut Lanes<'_>, op: &MemoryOp, mask: u32, near: &mut Near<'_>, memory: &mut M) -> Checked<()> {
    let mut at = addresses(lanes, op.base, op.offset);
    if op.space == Space::Generic {
        for (space, part) in sort(&mut at, mask) {
            if part != 0 {
                load_in(lanes, op, space, &at, part, near, memory)?;
            }
        }
        return Ok(());
    }
    load_in(lanes, op, op.space, &at, mask, near, memory)
}

fn load_in<M: GlobalMemory>(
    lanes: &mut Lanes<'_>,
    op: &MemoryOp,
    space: Space,
    at: &V64,
    mask: u32,
    near_memory: &mut Near<'_>,
    memory: &mut M,
) -> Checked<()> {
    let each_bytes = u64::from(op.bytes);
    let total = each_bytes * u64::from(op.count);
    let span = aligned(at, mask, total, window(space))?;
    match space {
        Space::Global | Space::Generic => {
            let data = op.data;
            match (op.bytes, op.wide) {
                // Words in a row, or one word for all: the usual cases.
                (4, false)
                    if span.straight
                        && op.count == 1
                        && let Ok(range) = Range::of(memory, span.low, 4 * LANES as u64, Access::Load) =>
                {
                    range.load_words(&mut lanes.r32[data[0] as usize].0);
                }
                (4, false)
                    if span.low == span.high
                        && op.count == 1
                        && let Ok(range) = Range::of(memory, span.low, 4, Access::Load) =>
                {
                    let word = range.load32(0, op.order);
                    lanes.set32(data[0], &V32::splat(word), mask);
                }
                (4, false) => global(memory, at, mask, span, total, Access::Load, |_, range, offset, lane| {
                    for n in 0..op.count as usize {
                        lanes.r32[data[n] as usize].0[lane] = range.load32(offset + 4 * n as u64, op.order);
                    }
                })?,
                (8, true) => global(memory, at, mask, span, total, Access::Load, |_, range, offset, lane| {
                    for n in 0..op.count as usize {
                        lanes.r64[data[n] as usize].0[lane] = range.load64(offset + 8 * n as u64, op.order);
                    }
                })?,
                (16, _) => global(memory, at, mask, span, total, Access::Load, |_, range, offset, lane| {
                    for n in 0..2 * op.count as usize {
                        lanes.r64[data[n] as usize].0[lane] = range.load64(offset + 8 * n as u64, op.order);
                    }
                })?,
                _ => global(memory, at, mask, span, total, Access::Load, |_, range, offset, lane| {
                    for n in 0..op.count as usize {
                        let offset = offset + each_bytes * n as u64;
                        let value = match op.bytes {
                            1 => range.load8(offset).into(),
                            2 => range.load16(offset, op.order).into(),
                            4 => range.load32(offset, op.order).into(),
                            _ => range.load64(offset, op.order),
                        };
                        put(lanes, op, n, lane, extended(value, op.bytes, op.sign));
                    }
                })?,
            }
            if op.order == Order::Acquire {
                std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
            }
            Ok(())
        }
        Space::Param => try_each(mask, |lane| {
            let offset = at.0[lane];
            let end = offset.checked_add(total).filter(|end| *end <= near_memory.parameters.len() as u64);
            if end.is_none() {
                return Err(Wrong::access(FaultKind::ParamOutOfBounds, lane, PARAM_WINDOW.wrapping_add(offset), total as u32));
            }
            let bytes = &near_memory.parameters[offset as usize..(offset + total) as usize];
            scatter(lanes, op, lane, bytes);
            Ok(())
        }),
        Space::Shared if op.bytes == 4 && op.count == 1 && !op.wide && span.high.checked_add(4).is_some_and(|end| end <= near_memory.shared.len() as u64) => {
            let into = &mut lanes.r32[op.data[0] as usize].0;
            let (words, _) = near_memory.shared.as_chunks::<4>();
            each(mask, |lane| into[lane] = u32::from_le_bytes(words[(at.0[lane] / 4) as usize]));
            Ok(())
        }
        Space::Shared | Space::Local | Space::Frame => try_each(mask, |lane| {
            let frame = if space == Space::Frame { u64::from(near_memory.frame) } else { 0 };
            let place = if space == Space::Frame { Space::Local } else { space };
            let bytes =
                near(near_memory, place, at.0[lane] + frame, total, lane).map_err(|wrong| if space == Space::Frame { overflow(wrong) } else { wrong })?;
            scatter(lanes, op, lane, bytes);
            Ok(())
        }),
    }
}

#[inline(always)]
fn put(lanes: &mut Lanes<'_>, op: &MemoryOp, n: usize, lane: usize, value: u64) {
    if op.wide {
        lanes.r64[op.data[n] as usize].0[lane] = value;
    } else {
        lanes.r32[op.data[n] as usize].0[lane] = value as u32;
    }
}

#[inline(always)]
fn scatter(lanes: &mut Lanes<'_>, op: &MemoryOp, lane: usize, bytes: &[u8]) {
    if op.bytes == 16 {
        for n in 0..2 * op.count as usize {
            lanes.r64[op.data[n] as usize].0[lane] = little(&bytes[8 * n..8 * n + 8]);
        }
        return;
    }
    if op.bytes == 4 && !op.wide {
        for (n, word) in bytes.as_chunks::<4>().0.iter().enumerate() {
            lanes.r32[op.data[n] as usize].0[lane] = u32::from_le_bytes(*word);
        }
        return;
    }
    let each = op.bytes as usize;
    for n in 0..op.count as usize {
        let value = little(&bytes[each * n..each * (n + 1)]);
        put(lanes, op, n, lane, extended(value, op.bytes, op.sign));
    }
}

#[inline(always)]
fn get(lanes: &Lanes<'_>, op: &MemoryOp, n: usize, lane: usize) -> u64 {
    if op.wide { lanes.get64(op.data[n]).0[lane] } else { lanes.get32(op.data[n]).0[lane].into() }
}

pub(super) fn store<M: GlobalMemory>(lanes: &Lanes<'_>, op: &MemoryOp, mask: u32, near: &mut Near<'_>, memory: &mut M) -> Checked<()> {
    let mut at = addresses(lanes, op.base, op.offset);
    if op.space == Space::Generic {
        for (space, part) in sort(&mut at, mask) {
            if part != 0 {
                store_in(lanes, op, space, &at, part, near, memory)?;
            }
        }
        return Ok(());
    }
    store_in(lanes, op, op.space, &at, mask, near, memory)
}

fn store_in<M: GlobalMemory>(lanes: &Lanes<'_>, op: &MemoryOp, space: Space, at: &V64, mask: u32, near_memory: &mut Near<'_>, memory: &mut M) -> Checked<()> {
    let each_bytes = u64::from(op.bytes);
    let total = each_bytes * u64::from(op.count);
    let span = aligned(at, mask, total, window(space))?;
    match space {
        Space::Global | Space::Generic => {
            if op.order == Order::Release {
                std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
            }
            if op.bytes == 4
                && op.count == 1
                && !op.wide
                && span.straight
                && let Ok(range) = Range::of(memory, span.low, 4 * LANES as u64, Access::Store)
            {
                memory.before_store(span.low, range.pointer(0), 4 * LANES as u32);
                range.store_words(&lanes.get32(op.data[0]).0);
                return Ok(());
            }
            global(memory, at, mask, span, total, Access::Store, |memory, range, offset, lane| {
                memory.before_store(at.0[lane], range.pointer(offset), total as u32);
                let words = if op.bytes == 16 { 2 * op.count as usize } else { op.count as usize };
                let step = each_bytes.min(8);
                for n in 0..words {
                    let value = get(lanes, op, n, lane);
                    let offset = offset + step * n as u64;
                    match step {
                        1 => range.store8(offset, value as u8),
                        2 => range.store16(offset, value as u16, op.order),
                        4 => range.store32(offset, value as u32, op.order),
                        _ => range.store64(offset, value, op.order),
                    }
                }
            })
        }
        Space::Param => {
            let lane = mask.trailing_zeros() as usize;
            Err(Wrong::access(FaultKind::ParamOutOfBounds, lane, PARAM_WINDOW.wrapping_add(at.0[lane]), total as u32))
        }
        Space::Shared if op.bytes == 4 && op.count == 1 && !op.wide && span.high.checked_add(4).is_some_and(|end| end <= near_memory.shared.len() as u64) => {
            let from = &lanes.get32(op.data[0]).0;
            let (words, _) = near_memory.shared.as_chunks_mut::<4>();
            each(mask, |lane| words[(at.0[lane] / 4) as usize] = from[lane].to_le_bytes());
            Ok(())
        }
        Space::Shared | Space::Local | Space::Frame => try_each(mask, |lane| {
            let frame = if space == Space::Frame { u64::from(near_memory.frame) } else { 0 };
            let place = if space == Space::Frame { Space::Local } else { space };
            let bytes =
                near(near_memory, place, at.0[lane] + frame, total, lane).map_err(|wrong| if space == Space::Frame { overflow(wrong) } else { wrong })?;
            let step = each_bytes.min(8) as usize;
            for (n, chunk) in bytes.chunks_exact_mut(step).enumerate() {
                let value = get(lanes, op, n, lane).to_le_bytes();
                chunk.copy_from_slice(&value[..step]);
            }
            Ok(())
        }),
    }
}
