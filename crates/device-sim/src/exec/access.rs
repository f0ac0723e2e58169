//! Loads and stores of a warp in all spaces.
//!
//! An access is found and checked once for the whole warp (`coalesced`) where all its lanes lie in one allocation, else lane by lane. Generic
//! addresses are sorted into the windows first.

// Elements of a vector access are numbered: registers and offsets are found by the same number.
#![allow(clippy::needless_range_loop)]

use super::coalesced::{AddressShape, CoalescedAccess, Pattern};
use super::fault::{LaneFault, LaneResult, for_each_lane, try_for_each_lane};
use super::interface::{Access, FaultKind, GlobalMemory};
use super::raw::DeviceBytes;
use crate::program::code::{Base, MemoryOp, Order, Space};
use crate::program::window;
use crate::simd::lanes::{LANES, PerLane, PerLane32, PerLane64, WarpRegisters};
use crate::simd::processor::{VectorCode, run_fastest};

/// Memory that belongs to the block or the thread, and the kernel's parameters.
pub(super) struct NearMemory<'a> {
    pub shared: &'a mut [u8],
    pub local: &'a mut [u8],
    /// Bytes of one lane's local memory.
    pub local_bytes: u32,
    /// Start of the running frame in it.
    pub frame: u32,
    pub parameters: &'a [u8],
}

#[inline(always)]
pub(super) fn addresses(registers: &WarpRegisters<'_>, base: Base, offset: i64) -> PerLane64 {
    match base {
        Base::None => PerLane64::splat(offset as u64),
        Base::Wide(slot) => {
            let from = registers.get64(slot);
            let mut out = PerLane64::splat(0);
            for lane in 0..LANES {
                out.0[lane] = from.0[lane].wrapping_add(offset as u64);
            }
            out
        }
        Base::Narrow(slot) => {
            let from = registers.get32(slot);
            let mut out = PerLane64::splat(0);
            for lane in 0..LANES {
                out.0[lane] = u64::from(from.0[lane].wrapping_add(offset as u32));
            }
            out
        }
    }
}

/// The lanes of a generic access by the space they go to; addresses become offsets in it.
pub(super) fn split_by_space(addresses: &mut PerLane64, mask: u32) -> [(Space, u32); 4] {
    let mut masks = [0u32; 4];
    for_each_lane(mask, |lane| {
        let address = addresses.0[lane];
        let (kind, start) = match address {
            _ if window::SHARED.contains(address) => (1, window::SHARED.start),
            _ if window::LOCAL.contains(address) => (2, window::LOCAL.start),
            _ if window::PARAM.contains(address) => (3, window::PARAM.start),
            _ => (0, 0),
        };
        masks[kind] |= 1 << lane;
        addresses.0[lane] = address - start;
    });
    [(Space::Global, masks[0]), (Space::Shared, masks[1]), (Space::Local, masks[2]), (Space::Param, masks[3])]
}

/// The shape of an access without its addresses, as far as that can be had: none if they wrap around or their alignment is not that of the base.
#[inline(always)]
fn shape_of_base(registers: &WarpRegisters<'_>, base: Base, offset: i64, mask: u32, bytes: u64) -> Option<AddressShape> {
    let plain = match base {
        Base::None => return Some(AddressShape::broadcast(offset as u64)),
        Base::Wide(slot) => AddressShape::of_addresses(registers.get64(slot), mask, bytes),
        Base::Narrow(slot) => AddressShape::of_short_addresses(registers.get32(slot), mask, bytes),
    };
    let add =
        |at: u64| if matches!(base, Base::Wide(_)) { at.checked_add_signed(offset) } else { (at as u32).checked_add_signed(offset as i32).map(u64::from) };
    // Without a common alignment the sum's is not known from the parts'.
    if offset as u64 & (bytes - 1) != 0 { None } else { Some(AddressShape { low: add(plain.low)?, high: add(plain.high)?, ..plain }) }
}

/// The shape of addresses that had to be put together. Rare, therefore not part of every access.
#[inline(never)]
fn shape_of_addresses(at: &PerLane64, mask: u32, bytes: u64) -> AddressShape {
    AddressShape::of_addresses(at, mask, bytes)
}

/// Whether the access can do with its shape; `row`: a row of global memory can.
#[inline(always)]
fn shape_suffices(shape: &AddressShape, space: Space, row: bool) -> bool {
    match space {
        _ if shape.pattern == Pattern::Broadcast => true,
        _ if shape.pattern == Pattern::Scattered => false,
        Space::Global | Space::Generic => row,
        Space::Shared | Space::Param => true,
        Space::Local | Space::Frame => false,
    }
}

/// Stands for the addresses of an access that can do with its shape.
static UNREAD_ADDRESSES: PerLane64 = PerLane([0; LANES]);

/// The fault of the first lane whose address is not a multiple of `bytes`.
#[cold]
pub(super) fn misaligned(addresses: &PerLane64, mask: u32, bytes: u64, space: Space) -> LaneFault {
    let lane = (0..LANES).find(|lane| mask >> lane & 1 != 0 && addresses.0[*lane] & (bytes - 1) != 0).unwrap_or(0);
    LaneFault::access(FaultKind::Misaligned, lane, addresses.0[lane].wrapping_add(window_start(space)), bytes as u32)
}

/// Calls `f(range, lane)` for for_each_lane lane's bytes of global memory: the slow way, for lanes in several allocations and for those that fault.
pub(super) fn for_each_range<M: GlobalMemory>(
    memory: &mut M,
    addresses: &PerLane64,
    mask: u32,
    bytes: u64,
    access: Access,
    mut f: impl FnMut(&mut M, DeviceBytes, usize),
) -> LaneResult<()> {
    let find = |memory: &mut M, lane: usize| {
        DeviceBytes::find(memory, addresses.0[lane], bytes, access).map_err(|fault| LaneFault::memory(fault, lane, addresses.0[lane], bytes as u32))
    };
    // All lanes are checked before any is coalesced: a fault leaves no half of an instruction behind.
    try_for_each_lane(mask, |lane| find(memory, lane).map(|_| ()))?;
    try_for_each_lane(mask, |lane| {
        let range = find(memory, lane)?;
        f(memory, range, lane);
        Ok(())
    })
}

/// The bytes of a near access of one lane.
pub(super) fn near_bytes<'a>(near: &'a mut NearMemory<'_>, space: Space, offset: u64, bytes: u64, lane: usize) -> LaneResult<&'a mut [u8]> {
    let (memory, start, limit, kind, origin) = match space {
        Space::Shared => {
            let limit = near.shared.len() as u64;
            (&mut *near.shared, 0, limit, FaultKind::SharedOutOfBounds, window::SHARED.start)
        }
        _ => {
            let limit = u64::from(near.local_bytes);
            (&mut *near.local, lane as u64 * limit, limit, FaultKind::LocalOutOfBounds, window::LOCAL.start)
        }
    };
    if offset > limit || bytes > limit - offset {
        return Err(LaneFault::access(kind, lane, origin.wrapping_add(offset), bytes as u32));
    }
    let from = (start + offset) as usize;
    Ok(&mut memory[from..from + bytes as usize])
}

/// The compiler's own frame accesses are right, so what lies outside is the stack's end.
fn as_stack_overflow(wrong: LaneFault) -> LaneFault {
    LaneFault { kind: FaultKind::StackOverflow, address: 0, bytes: 0, ..wrong }
}

#[inline(always)]
fn extend_sign(value: u64, bytes: u8, sign: u8) -> u64 {
    if sign == 0 {
        return value;
    }
    let unused = 64 - 8 * u32::from(bytes);
    let full = (((value << unused) as i64) >> unused) as u64;
    if sign >= 64 { full } else { full & ((1 << sign) - 1) }
}

/// Space of the addresses in generic form: what to add for messages.
fn window_start(space: Space) -> u64 {
    match space {
        Space::Shared => window::SHARED.start,
        Space::Local | Space::Frame => window::LOCAL.start,
        Space::Param => window::PARAM.start,
        Space::Global | Space::Generic => 0,
    }
}

/// Offsets of the lanes of a local access in the memory of all lanes, and their shape. `at` is not read if all lanes name the same place.
#[inline(always)]
fn local_offsets(near: &NearMemory<'_>, at: &PerLane64, mask: u32, shape: &AddressShape, bytes: u64, space: Space) -> LaneResult<(PerLane64, AddressShape)> {
    let limit = u64::from(near.local_bytes);
    let frame = if space == Space::Frame { u64::from(near.frame) } else { 0 };
    let one = PerLane64::splat(shape.low);
    let at = if shape.pattern == Pattern::Broadcast { &one } else { at };
    if bytes > limit || frame > limit - bytes || shape.high > limit - bytes - frame {
        let lane = (0..LANES).find(|lane| mask >> lane & 1 != 0 && at.0[*lane].saturating_add(frame).saturating_add(bytes) > limit).unwrap_or(0);
        let wrong = LaneFault::access(FaultKind::LocalOutOfBounds, lane, window::LOCAL.start.wrapping_add(at.0[lane]), bytes as u32);
        return Err(if space == Space::Frame { as_stack_overflow(wrong) } else { wrong });
    }
    let mut out = PerLane64::splat(0);
    for lane in 0..LANES {
        out.0[lane] = at.0[lane].wrapping_add(frame + lane as u64 * limit);
    }
    // One frame after the other: never the same bytes, and a bound is enough.
    Ok((out, AddressShape { high: shape.high + frame + (LANES as u64 - 1) * limit, pattern: Pattern::Scattered, ..*shape }))
}

/// The fault of lanes that access the block's or the kernel's own memory beyond its end.
#[cold]
fn fault_outside(at: &PerLane64, mask: u32, bytes: u64, length: usize, space: Space) -> LaneFault {
    let lane = (0..LANES).find(|lane| mask >> lane & 1 != 0 && at.0[*lane].saturating_add(bytes) > length as u64).unwrap_or(0);
    let kind = match space {
        Space::Param => FaultKind::ParamOutOfBounds,
        Space::Shared => FaultKind::SharedOutOfBounds,
        _ => FaultKind::LocalOutOfBounds,
    };
    LaneFault::access(kind, lane, window_start(space).wrapping_add(at.0[lane]), bytes as u32)
}

/// A load or store, to be compiled for the fast processor too.
struct WarpLoad<'x, 'a, 'b, M> {
    registers: &'x mut WarpRegisters<'a>,
    op: &'x MemoryOp,
    mask: u32,
    near: &'x mut NearMemory<'b>,
    memory: &'x mut M,
    /// Addresses that were sorted into a space already.
    given: Option<(&'x PerLane64, Space)>,
}

struct WarpStore<'x, 'a, 'b, M> {
    registers: &'x WarpRegisters<'a>,
    op: &'x MemoryOp,
    mask: u32,
    near: &'x mut NearMemory<'b>,
    memory: &'x mut M,
    given: Option<(&'x PerLane64, Space)>,
}

pub(super) fn load<M: GlobalMemory>(registers: &mut WarpRegisters<'_>, op: &MemoryOp, mask: u32, near: &mut NearMemory<'_>, memory: &mut M) -> LaneResult<()> {
    run_fastest(WarpLoad { registers, op, mask, near, memory, given: None })
}

pub(super) fn store<M: GlobalMemory>(registers: &WarpRegisters<'_>, op: &MemoryOp, mask: u32, near: &mut NearMemory<'_>, memory: &mut M) -> LaneResult<()> {
    run_fastest(WarpStore { registers, op, mask, near, memory, given: None })
}

impl<M: GlobalMemory> VectorCode for WarpLoad<'_, '_, '_, M> {
    type Out = LaneResult<()>;

    #[inline(always)]
    fn run(self) -> LaneResult<()> {
        let WarpLoad { registers, op, mask, near, memory, given } = self;
        let bytes = u64::from(op.bytes) * u64::from(op.count);
        let mut own = PerLane64::splat(0);
        let (mut at, mut shape, space) = locate_access(registers, op, mask, bytes, given, true, &mut own);
        if space == Space::Generic {
            return access_by_space(all_addresses(registers, op, given), mask, |at, space, part| {
                run_fastest(WarpLoad { registers, op, mask: part, near, memory, given: Some((at, space)) })
            });
        }
        if shape.any & (bytes - 1) != 0 {
            return Err(misaligned(&all_addresses(registers, op, given), mask, bytes, space));
        }
        if space == Space::Global {
            match CoalescedAccess::in_global(memory, at, mask, &shape, bytes, Access::Load) {
                Some(coalesced) => load_registers(registers, op, mask, &coalesced),
                None => load_lane_by_lane(registers, op, &all_addresses(registers, op, given), mask, memory)?,
            }
            if op.order == Order::Acquire {
                std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
            }
            return Ok(());
        }
        let offsets;
        let slice = match space {
            Space::Param => near.parameters,
            Space::Shared => &*near.shared,
            _ => {
                (offsets, shape) = local_offsets(near, at, mask, &shape, bytes, space)?;
                at = &offsets;
                &*near.local
            }
        };
        match CoalescedAccess::in_slice(slice, at, mask, &shape, bytes) {
            Some(coalesced) => load_registers(registers, op, mask, &coalesced),
            None => return Err(fault_outside(&all_addresses(registers, op, given), mask, bytes, slice.len(), space)),
        }
        Ok(())
    }
}

impl<M: GlobalMemory> VectorCode for WarpStore<'_, '_, '_, M> {
    type Out = LaneResult<()>;

    #[inline(always)]
    fn run(self) -> LaneResult<()> {
        let WarpStore { registers, op, mask, near, memory, given } = self;
        let bytes = u64::from(op.bytes) * u64::from(op.count);
        let mut own = PerLane64::splat(0);
        let (mut at, mut shape, space) = locate_access(registers, op, mask, bytes, given, mask == u32::MAX, &mut own);
        if space == Space::Generic {
            return access_by_space(all_addresses(registers, op, given), mask, |at, space, part| {
                run_fastest(WarpStore { registers, op, mask: part, near, memory, given: Some((at, space)) })
            });
        }
        if shape.any & (bytes - 1) != 0 {
            return Err(misaligned(&all_addresses(registers, op, given), mask, bytes, space));
        }
        if space == Space::Global {
            if op.order == Order::Release {
                std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
            }
            match CoalescedAccess::in_global(memory, at, mask, &shape, bytes, Access::Store) {
                Some(coalesced) => store_registers(registers, op, &coalesced),
                None => store_lane_by_lane(registers, op, &all_addresses(registers, op, given), mask, memory)?,
            }
            return Ok(());
        }
        let offsets;
        let slice = match space {
            Space::Param => {
                let lane = mask.trailing_zeros() as usize & 31;
                let at = all_addresses(registers, op, given).0[lane];
                return Err(LaneFault::access(FaultKind::ParamOutOfBounds, lane, window::PARAM.start.wrapping_add(at), bytes as u32));
            }
            Space::Shared => &mut *near.shared,
            _ => {
                (offsets, shape) = local_offsets(near, at, mask, &shape, bytes, space)?;
                at = &offsets;
                &mut *near.local
            }
        };
        let length = slice.len();
        match CoalescedAccess::in_slice_mut(slice, at, mask, &shape, bytes) {
            Some(coalesced) => store_registers(registers, op, &coalesced),
            None => return Err(fault_outside(&all_addresses(registers, op, given), mask, bytes, length, space)),
        }
        Ok(())
    }
}

/// Where an access goes: its addresses (put together in `own` if need be, and not to be read where the shape is enough), shape and space. The space is generic
/// only where the access must be sorted by window. `row`: a row of global memory is coalesced by its shape.
#[inline(always)]
fn locate_access<'a>(
    registers: &WarpRegisters<'_>,
    op: &MemoryOp,
    mask: u32,
    bytes: u64,
    given: Option<(&'a PerLane64, Space)>,
    row: bool,
    own: &'a mut PerLane64,
) -> (&'a PerLane64, AddressShape, Space) {
    let (at, shape, space) = match given {
        Some((at, space)) => (at, shape_of_addresses(at, mask, bytes), space),
        None => match shape_of_base(registers, op.base, op.offset, mask, bytes) {
            Some(shape) if shape_suffices(&shape, op.space, row) => (&UNREAD_ADDRESSES, shape, op.space),
            Some(shape) => {
                *own = addresses(registers, op.base, op.offset);
                (&*own, shape, op.space)
            }
            None => {
                *own = addresses(registers, op.base, op.offset);
                (&*own, shape_of_addresses(own, mask, bytes), op.space)
            }
        },
    };
    let space = if space == Space::Generic && shape.high < window::SHARED.start { Space::Global } else { space };
    (at, shape, space)
}

/// All addresses of an access, for its rare ways.
#[cold]
fn all_addresses(registers: &WarpRegisters<'_>, op: &MemoryOp, given: Option<(&PerLane64, Space)>) -> PerLane64 {
    given.map_or_else(|| addresses(registers, op.base, op.offset), |(at, _)| *at)
}

/// A generic access that touches other spaces than global memory, space by space.
#[inline(never)]
fn access_by_space(mut at: PerLane64, mask: u32, mut access: impl FnMut(&PerLane64, Space, u32) -> LaneResult<()>) -> LaneResult<()> {
    for (space, part) in split_by_space(&mut at, mask) {
        if part != 0 {
            access(&at, space, part)?;
        }
    }
    Ok(())
}

/// What `f` makes of for_each_lane lane's value.
#[inline(always)]
fn map_lanes<A, B: Copy>(from: &[A; LANES], f: impl Fn(&A) -> B) -> PerLane<B> {
    let mut out = PerLane([f(&from[0]); LANES]);
    for lane in 1..LANES {
        out.0[lane] = f(&from[lane]);
    }
    out
}

/// Registers side by side for for_each_lane lane.
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

/// Memory to registers.
#[inline(always)]
fn load_registers<const OWN: bool>(registers: &mut WarpRegisters<'_>, op: &MemoryOp, mask: u32, coalesced: &CoalescedAccess<'_, OWN>) {
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
        _ if count == 1 && op.bytes <= 8 => load_element(registers, op, coalesced),
        _ => load_elements(registers, op, coalesced),
    }
}

/// The registers of an access whose lanes lie anywhere, one element for_each_lane.
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

/// The same for several elements of a lane. Up to 16 bytes are read at once: programs rely on a status and a value in one vector being of one time.
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

/// Registers to memory.
#[inline(always)]
fn store_registers<const OWN: bool>(registers: &WarpRegisters<'_>, op: &MemoryOp, coalesced: &CoalescedAccess<'_, OWN>) {
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

/// Several elements of for_each_lane lane, up to 16 bytes written at once.
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
fn write_register(registers: &mut WarpRegisters<'_>, op: &MemoryOp, n: usize, lane: usize, value: u64) {
    if op.wide || op.bytes == 16 {
        registers.r64[op.data[n] as usize].0[lane] = value;
    } else {
        registers.r32[op.data[n] as usize].0[lane] = value as u32;
    }
}

#[inline(always)]
fn read_register(registers: &WarpRegisters<'_>, op: &MemoryOp, n: usize, lane: usize) -> u64 {
    if op.wide || op.bytes == 16 { registers.get64(op.data[n]).0[lane] } else { registers.get32(op.data[n]).0[lane].into() }
}

/// Number of pieces of an access and bytes of for_each_lane: registers, or halves of 16-byte elements.
fn register_pieces(op: &MemoryOp) -> (usize, u64) {
    if op.bytes == 16 { (2 * op.count as usize, 8) } else { (op.count.into(), op.bytes.into()) }
}

#[inline(never)]
fn load_lane_by_lane<M: GlobalMemory>(registers: &mut WarpRegisters<'_>, op: &MemoryOp, at: &PerLane64, mask: u32, memory: &mut M) -> LaneResult<()> {
    let (count, step) = register_pieces(op);
    for_each_range(memory, at, mask, step * count as u64, Access::Load, |_, range, lane| {
        for n in 0..count {
            let offset = step * n as u64;
            let value = match step {
                1 => range.load8(offset).into(),
                2 => range.load16(offset, op.order).into(),
                4 => range.load32(offset, op.order).into(),
                _ => range.load64(offset, op.order),
            };
            write_register(registers, op, n, lane, extend_sign(value, step as u8, op.sign));
        }
    })
}

#[inline(never)]
fn store_lane_by_lane<M: GlobalMemory>(registers: &WarpRegisters<'_>, op: &MemoryOp, at: &PerLane64, mask: u32, memory: &mut M) -> LaneResult<()> {
    let (count, step) = register_pieces(op);
    let bytes = step * count as u64;
    for_each_range(memory, at, mask, bytes, Access::Store, |memory, range, lane| {
        memory.before_store(at.0[lane], range.pointer(0), bytes as u32);
        for n in 0..count {
            let (value, offset) = (read_register(registers, op, n, lane), step * n as u64);
            match step {
                1 => range.store8(offset, value as u8),
                2 => range.store16(offset, value as u16, op.order),
                4 => range.store32(offset, value as u32, op.order),
                _ => range.store64(offset, value, op.order),
            }
        }
    })
}
