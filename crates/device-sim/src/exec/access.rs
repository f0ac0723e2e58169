//! Loads and stores of a warp in all state spaces (PTX ISA, "State Spaces").
//!
//! If all lanes lie in one allocation, the access is looked up and checked once for the whole warp
//! ([`super::coalesced`]); otherwise lane by lane. Lanes of a generic access are first split by the
//! window to which they go.

// Lanes are numbered: several arrays and masks are indexed with the same lane.
#![allow(clippy::needless_range_loop)]

use super::coalesced::CoalescedAccess;
use super::elements::{extend_sign, load_registers, read_register, register_pieces, store_registers, write_register};
use super::fault::{LaneFault, LaneResult, for_each_lane, try_for_each_lane};
use super::interface::{Access, FaultKind, GlobalMemory};
use super::raw::DeviceBytes;
use super::shape::{AddressShape, Pattern};
use crate::program::code::{Base, MemoryOp, Order, Space};
use crate::program::window;
use crate::simd::lanes::{LANES, PerLane, PerLane64, RegisterSlot, WarpRegisters};
use crate::simd::processor::{VectorCode, run_fastest};

/// Memory that belongs to the block or the thread, and the kernel's parameters.
pub(super) struct NearMemory<'a> {
    /// The block's shared memory.
    pub shared: &'a mut [u8],
    /// The shared memory of all blocks of the cluster but this one, by rank; empty if the block is
    /// alone.
    pub peers: &'a mut [Vec<u8>],
    /// The block's rank in its cluster.
    pub rank: u32,
    /// Local memory of all lanes of the warp, one lane after the other.
    pub local: &'a mut [u8],
    /// Bytes of one lane's local memory.
    pub local_bytes: u32,
    /// Where the running frame begins in a lane's local memory.
    pub frame: u32,
    /// The kernel's parameters, packed.
    pub parameters: &'a [u8],
}

/// The addresses of an access: the base of each lane plus the offset.
#[inline(always)]
pub(super) fn compute_addresses(registers: &WarpRegisters<'_>, base: Base, offset: i64) -> PerLane64 {
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

/// The lanes of a generic access by the space to which they go. The addresses become offsets in
/// that space.
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

/// The shape of an access without its addresses. `None` if an address wraps around, or if the
/// offset is not a multiple of the access: then the alignment of the sums does not follow from that
/// of the bases.
#[inline(always)]
fn shape_of_base(registers: &WarpRegisters<'_>, base: Base, offset: i64, mask: u32, bytes: u64) -> Option<AddressShape> {
    let plain = match base {
        Base::None => return Some(AddressShape::broadcast(offset as u64)),
        Base::Wide(slot) => AddressShape::of_addresses(registers.get64(slot), mask, bytes),
        Base::Narrow(slot) => AddressShape::of_short_addresses(registers.get32(slot), mask, bytes),
    };
    let add =
        |at: u64| if matches!(base, Base::Wide(_)) { at.checked_add_signed(offset) } else { (at as u32).checked_add_signed(offset as i32).map(u64::from) };
    if offset as u64 & (bytes - 1) != 0 { None } else { Some(AddressShape { low: add(plain.low)?, high: add(plain.high)?, ..plain }) }
}

/// The shape of addresses that had to be added up. Rare, therefore not compiled into every access.
#[inline(never)]
fn shape_of_addresses(at: &PerLane64, mask: u32, bytes: u64) -> AddressShape {
    run_fastest(ShapeOfAddresses { at, mask, bytes })
}

/// A search for a shape, as vector code.
struct ShapeOfAddresses<'a> {
    at: &'a PerLane64,
    mask: u32,
    bytes: u64,
}

impl VectorCode for ShapeOfAddresses<'_> {
    type Out = AddressShape;

    #[inline(always)]
    fn run(self) -> AddressShape {
        AddressShape::of_addresses(self.at, self.mask, self.bytes)
    }
}

/// Whether the shape alone describes the access, so that its addresses need not be added up. `row`:
/// whether contiguous lanes of global memory need no addresses.
#[inline(always)]
fn shape_suffices(shape: &AddressShape, space: Space, row: bool) -> bool {
    match space {
        _ if shape.pattern == Pattern::Broadcast => true,
        _ if shape.pattern.needs_addresses() => false,
        Space::Global | Space::Generic => row,
        Space::Shared | Space::Param => true,
        Space::Local | Space::Frame => false,
    }
}

/// Stands for the addresses of an access that its shape describes.
static UNREAD_ADDRESSES: PerLane64 = PerLane([0; LANES]);

/// The fault of the first lane whose address is not a multiple of `bytes`.
#[cold]
pub(super) fn misaligned_fault(addresses: &PerLane64, mask: u32, bytes: u64, space: Space) -> LaneFault {
    let lane = (0..LANES).find(|lane| mask >> lane & 1 != 0 && addresses.0[*lane] & (bytes - 1) != 0).unwrap_or(0);
    LaneFault::access(FaultKind::Misaligned, lane, addresses.0[lane].wrapping_add(window_start(space)), bytes as u32)
}

/// Calls `f(memory, bytes, lane)` for the bytes of each lane. The slow way, for lanes in several
/// allocations and for lanes that fault.
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
    // All lanes are checked before the first one is accessed: a fault leaves no half of an
    // instruction behind.
    try_for_each_lane(mask, |lane| find(memory, lane).map(|_| ()))?;
    try_for_each_lane(mask, |lane| {
        let range = find(memory, lane)?;
        f(memory, range, lane);
        Ok(())
    })
}

/// The bytes of one lane's access to shared or local memory.
pub(super) fn near_bytes<'a>(near: &'a mut NearMemory<'_>, space: Space, offset: u64, bytes: u64, lane: usize) -> LaneResult<&'a mut [u8]> {
    if space == Space::Shared && offset >= window::SHARED_OF_BLOCK {
        return cluster_bytes(near, offset, bytes, lane);
    }
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

/// The bytes of one lane's access to the shared memory of a block of the cluster, by rank.
#[cold]
fn cluster_bytes<'a>(near: &'a mut NearMemory<'_>, offset: u64, bytes: u64, lane: usize) -> LaneResult<&'a mut [u8]> {
    let outside = LaneFault::access(FaultKind::SharedOutOfBounds, lane, window::SHARED.start.wrapping_add(offset), bytes as u32);
    let (Some(rank), at) = window::shared_block(offset) else { return Err(outside) };
    if offset >= window::SHARED.bytes {
        return Err(outside);
    }
    let memory = if rank == u64::from(near.rank) { Some(&mut *near.shared) } else { near.peers.get_mut(rank as usize).map(Vec::as_mut_slice) };
    memory.and_then(|memory| memory.get_mut(at as usize..(at + bytes) as usize)).ok_or(outside)
}

/// The compiler's own accesses to the frame are right, so one that lies outside has met the end of
/// the stack.
fn as_stack_overflow(wrong: LaneFault) -> LaneFault {
    LaneFault { kind: FaultKind::StackOverflow, address: 0, bytes: 0, ..wrong }
}

/// The start of the window in which addresses of a space appear in messages.
fn window_start(space: Space) -> u64 {
    match space {
        Space::Shared => window::SHARED.start,
        Space::Local | Space::Frame => window::LOCAL.start,
        Space::Param => window::PARAM.start,
        Space::Global | Space::Generic => 0,
    }
}

/// Offsets of the lanes of a local access in the local memory of all lanes, and their shape. `at`
/// is not read if all lanes have the same address.
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
    // The lanes' memories lie one after the other, so no two lanes share bytes, and an upper bound
    // of the offsets is enough.
    Ok((out, AddressShape { high: shape.high + frame + (LANES as u64 - 1) * limit, pattern: Pattern::Scattered, ..*shape }))
}

/// The fault of the first lane that accesses the block's or the kernel's own memory beyond its end.
#[cold]
fn outside_fault(at: &PerLane64, mask: u32, bytes: u64, length: usize, space: Space) -> LaneFault {
    let lane = (0..LANES).find(|lane| mask >> lane & 1 != 0 && at.0[*lane].saturating_add(bytes) > length as u64).unwrap_or(0);
    let kind = match space {
        Space::Param => FaultKind::ParamOutOfBounds,
        Space::Shared => FaultKind::SharedOutOfBounds,
        _ => FaultKind::LocalOutOfBounds,
    };
    LaneFault::access(kind, lane, window_start(space).wrapping_add(at.0[lane]), bytes as u32)
}

/// A load as vector code.
struct WarpLoad<'x, 'a, 'b, M> {
    registers: &'x mut WarpRegisters<'a>,
    op: &'x MemoryOp,
    mask: u32,
    near: &'x mut NearMemory<'b>,
    memory: &'x mut M,
    /// Addresses that were split by space already, and that space.
    given: Option<(&'x PerLane64, Space)>,
}

/// A store as vector code.
struct WarpStore<'x, 'a, 'b, M> {
    registers: &'x WarpRegisters<'a>,
    op: &'x MemoryOp,
    mask: u32,
    near: &'x mut NearMemory<'b>,
    memory: &'x mut M,
    /// As in [`WarpLoad`].
    given: Option<(&'x PerLane64, Space)>,
}

/// Loads registers from memory (`ld`).
pub(super) fn load<M: GlobalMemory>(registers: &mut WarpRegisters<'_>, op: &MemoryOp, mask: u32, near: &mut NearMemory<'_>, memory: &mut M) -> LaneResult<()> {
    run_fastest(WarpLoad { registers, op, mask, near, memory, given: None })
}

/// Stores registers to memory (`st`).
pub(super) fn store<M: GlobalMemory>(registers: &WarpRegisters<'_>, op: &MemoryOp, mask: u32, near: &mut NearMemory<'_>, memory: &mut M) -> LaneResult<()> {
    run_fastest(WarpStore { registers, op, mask, near, memory, given: None })
}

/// One value of each lane between a register and addresses of any space.
fn plain_access(slot: RegisterSlot, bytes: u8, space: Space) -> MemoryOp {
    MemoryOp { space, base: Base::None, offset: 0, bytes, count: 1, data: [slot; 8], wide: bytes == 8, sign: 0, order: Order::Weak }
}

/// Loads a value of 4 or 8 bytes for each lane from its address `at`.
pub(super) fn load_values<M: GlobalMemory>(
    registers: &mut WarpRegisters<'_>,
    (slot, bytes): (RegisterSlot, u8),
    (at, space): (&PerLane64, Space),
    mask: u32,
    near: &mut NearMemory<'_>,
    memory: &mut M,
) -> LaneResult<()> {
    run_fastest(WarpLoad { registers, op: &plain_access(slot, bytes, space), mask, near, memory, given: Some((at, space)) })
}

/// Stores a value of 4 or 8 bytes of each lane at its address `at`.
pub(super) fn store_values<M: GlobalMemory>(
    registers: &WarpRegisters<'_>,
    (slot, bytes): (RegisterSlot, u8),
    (at, space): (&PerLane64, Space),
    mask: u32,
    near: &mut NearMemory<'_>,
    memory: &mut M,
) -> LaneResult<()> {
    run_fastest(WarpStore { registers, op: &plain_access(slot, bytes, space), mask, near, memory, given: Some((at, space)) })
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
            return access_by_space(all_addresses(registers, op, given), &shape, mask, |at, space, part| {
                run_fastest(WarpLoad { registers, op, mask: part, near, memory, given: Some((at, space)) })
            });
        }
        if shape.any & (bytes - 1) != 0 {
            return Err(misaligned_fault(&all_addresses(registers, op, given), mask, bytes, space));
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
            None if is_of_cluster(space, &shape) => load_from_cluster(registers, op, &all_addresses(registers, op, given), mask, near)?,
            None => return Err(outside_fault(&all_addresses(registers, op, given), mask, bytes, slice.len(), space)),
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
            return access_by_space(all_addresses(registers, op, given), &shape, mask, |at, space, part| {
                run_fastest(WarpStore { registers, op, mask: part, near, memory, given: Some((at, space)) })
            });
        }
        if shape.any & (bytes - 1) != 0 {
            return Err(misaligned_fault(&all_addresses(registers, op, given), mask, bytes, space));
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
            None if is_of_cluster(space, &shape) => store_to_cluster(registers, op, &all_addresses(registers, op, given), mask, near)?,
            None => return Err(outside_fault(&all_addresses(registers, op, given), mask, bytes, length, space)),
        }
        Ok(())
    }
}

/// Where an access goes: its addresses, shape and space. The addresses are added up in `own` if
/// need be; they are not to be read if the shape describes the access. The space is generic only
/// where the lanes must be split by window. `row`: see [`shape_suffices`].
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
                *own = compute_addresses(registers, op.base, op.offset);
                (&*own, shape, op.space)
            }
            None => {
                *own = compute_addresses(registers, op.base, op.offset);
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
    given.map_or_else(|| compute_addresses(registers, op.base, op.offset), |(at, _)| *at)
}

/// A generic access to more than global memory, space by space. `shape` is that of the addresses.
#[inline(never)]
fn access_by_space(mut at: PerLane64, shape: &AddressShape, mask: u32, mut access: impl FnMut(&PerLane64, Space, u32) -> LaneResult<()>) -> LaneResult<()> {
    // Mostly all lanes go to one space.
    for (space, window) in [(Space::Shared, window::SHARED), (Space::Local, window::LOCAL)] {
        if window.contains(shape.low) && window.contains(shape.high) {
            for lane in 0..LANES {
                at.0[lane] = at.0[lane].wrapping_sub(window.start);
            }
            return access(&at, space, mask);
        }
    }
    for (space, part) in split_by_space(&mut at, mask) {
        if part != 0 {
            access(&at, space, part)?;
        }
    }
    Ok(())
}

#[inline(never)]
fn load_lane_by_lane<M: GlobalMemory>(registers: &mut WarpRegisters<'_>, op: &MemoryOp, at: &PerLane64, mask: u32, memory: &mut M) -> LaneResult<()> {
    let (count, step) = register_pieces(op);
    for_each_range(memory, at, mask, step * count as u64, Access::Load, |_, range, lane| {
        for n in 0..count {
            let offset = step * n as u64;
            let value = match step {
                1 => range.load8(offset, op.order).into(),
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
                1 => range.store8(offset, value as u8, op.order),
                2 => range.store16(offset, value as u16, op.order),
                4 => range.store32(offset, value as u32, op.order),
                _ => range.store64(offset, value, op.order),
            }
        }
    })
}

/// Whether an access of shared memory names a block of the cluster by its rank.
#[cold]
fn is_of_cluster(space: Space, shape: &AddressShape) -> bool {
    space == Space::Shared && shape.high >= window::SHARED_OF_BLOCK
}

/// Loads from shared memory of several blocks of a cluster, lane after lane.
#[inline(never)]
fn load_from_cluster(registers: &mut WarpRegisters<'_>, op: &MemoryOp, at: &PerLane64, mask: u32, near: &mut NearMemory<'_>) -> LaneResult<()> {
    let (count, step) = register_pieces(op);
    try_for_each_lane(mask, |lane| {
        for n in 0..count {
            let mut value = [0; 8];
            value[..step as usize].copy_from_slice(near_bytes(near, Space::Shared, at.0[lane] + step * n as u64, step, lane)?);
            write_register(registers, op, n, lane, extend_sign(u64::from_le_bytes(value), step as u8, op.sign));
        }
        Ok(())
    })
}

/// Stores to shared memory of several blocks of a cluster, lane after lane.
#[inline(never)]
fn store_to_cluster(registers: &WarpRegisters<'_>, op: &MemoryOp, at: &PerLane64, mask: u32, near: &mut NearMemory<'_>) -> LaneResult<()> {
    let (count, step) = register_pieces(op);
    try_for_each_lane(mask, |lane| {
        for n in 0..count {
            let value = read_register(registers, op, n, lane).to_le_bytes();
            near_bytes(near, Space::Shared, at.0[lane] + step * n as u64, step, lane)?.copy_from_slice(&value[..step as usize]);
        }
        Ok(())
    })
}
