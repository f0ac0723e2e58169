//! Copies of boxes of tensors between global and shared memory (PTX ISA,
//! *cp.async.bulk.tensor*). As other asynchronous copies they are done at once.

// Dimensions are numbered: several arrays are indexed with the same one.
#![allow(clippy::needless_range_loop)]

use super::access::{NearMemory, compute_addresses};
use super::fault::{LaneFault, LaneResult, try_for_each_lane};
use super::interface::{FaultKind, GlobalMemory};
use super::{mbarrier, single};
use crate::program::code::{Space, TensorOp};
use crate::program::tensor::{MAP_BYTES, MOST_DIMENSIONS, TensorMap};
use crate::simd::lanes::WarpRegisters;

/// Copies for each lane of `mask`, lowest lane first.
pub(super) fn perform<M: GlobalMemory>(registers: &WarpRegisters<'_>, op: &TensorOp, mask: u32, near: &mut NearMemory<'_>, memory: &mut M) -> LaneResult<()> {
    let maps = compute_addresses(registers, op.map.base, op.map.offset);
    let shared = compute_addresses(registers, op.shared.base, op.shared.offset);
    let barriers = op.counted_by.map(|place| (place.space, compute_addresses(registers, place.base, place.offset)));
    try_for_each_lane(mask, |lane| {
        let mut bytes = [0; MAP_BYTES];
        for (at, part) in bytes.chunks_exact_mut(8).enumerate() {
            part.copy_from_slice(&single::load(near, memory, op.map.space, maps.0[lane].wrapping_add(8 * at as u64), 8, lane)?.to_le_bytes());
        }
        let map = TensorMap::read(&bytes).filter(|map| map.rank == op.coordinates.len());
        let Some(map) = map else { return Err(LaneFault::plain(FaultKind::IllegalInstruction, 1 << lane)) };
        if shared.0[lane] & 127 != 0 {
            return Err(LaneFault::access(FaultKind::Misaligned, lane, shared.0[lane], 128));
        }
        let mut start = [0; MOST_DIMENSIONS];
        for (start, slot) in start.iter_mut().zip(&op.coordinates) {
            *start = i64::from(registers.get32(*slot).0[lane].cast_signed());
        }
        copy_box(&map, start, (op.shared.space, shared.0[lane]), op.stores, lane, near, memory)?;
        match &barriers {
            Some((space, barriers)) => mbarrier::complete_bytes(near, *space, barriers.0[lane], map.box_bytes(), lane),
            None => Ok(()),
        }
    })
}

/// Copies the box that begins at these coordinates, row after row.
fn copy_box<M: GlobalMemory>(
    map: &TensorMap,
    start: [i64; MOST_DIMENSIONS],
    (space, shared): (Space, u64),
    stores: bool,
    lane: usize,
    near: &mut NearMemory<'_>,
    memory: &mut M,
) -> LaneResult<()> {
    let size = u64::from(map.bytes);
    let row_bytes = u64::from(map.counts[0]) * size;
    let inside = |at: i64, dimension: usize| (0..map.dimensions[dimension] as i64).contains(&at);
    let rows: u32 = map.counts[1..].iter().product();
    for row in 0..rows {
        // Which row this is along each dimension but the first.
        let (mut rest, mut global, mut within) = (row, map.address, true);
        for dimension in 1..map.rank {
            let at = start[dimension] + i64::from(rest % map.counts[dimension]) * i64::from(map.steps[dimension]);
            rest /= map.counts[dimension];
            within &= inside(at, dimension);
            global = global.wrapping_add((at as u64).wrapping_mul(map.strides[dimension]));
        }
        global = global.wrapping_add((start[0] as u64).wrapping_mul(size));
        let whole = within && inside(start[0], 0) && inside(start[0] + i64::from(map.counts[0]) - 1, 0);
        // Rows are multiples of 16 bytes in shared memory.
        let step = if whole && global & 7 == 0 { 8 } else { size };
        for at in (0..row_bytes).step_by(step as usize) {
            let place = map.swizzle(shared.wrapping_add(u64::from(row) * row_bytes + at));
            let within = whole || within && inside(start[0] + (at / size) as i64, 0);
            match (stores, within) {
                (true, false) => {}
                (true, true) => {
                    let value = single::load(near, memory, space, place, step, lane)?;
                    single::store(near, memory, Space::Global, global.wrapping_add(at), step, value, lane)?;
                }
                (false, _) => {
                    let value = if within { single::load(near, memory, Space::Global, global.wrapping_add(at), step, lane)? } else { map.outside };
                    single::store(near, memory, space, place, step, value, lane)?;
                }
            }
        }
    }
    Ok(())
}
