//! Asynchronous copies (PTX ISA, *cp.async*, *cp.async.bulk*). A copy may be done at any time
//! between its instruction and the wait for it. Here it is done at once, so there is nothing to
//! wait for.

use super::access::{NearMemory, compute_addresses};
use super::fault::{LaneFault, LaneResult, try_for_each_lane};
use super::interface::{FaultKind, GlobalMemory};
use super::{mbarrier, single};
use crate::program::code::CopyOp;
use crate::simd::lanes::{NO_SLOT, WarpRegisters};

/// Copies for each lane of `mask`, lowest lane first.
pub(super) fn perform<M: GlobalMemory>(registers: &WarpRegisters<'_>, op: &CopyOp, mask: u32, near: &mut NearMemory<'_>, memory: &mut M) -> LaneResult<()> {
    let to = compute_addresses(registers, op.to.base, op.to.offset);
    let from = compute_addresses(registers, op.from.base, op.from.offset);
    let barriers = op.counted_by.map(|place| (place.space, compute_addresses(registers, place.base, place.offset)));
    try_for_each_lane(mask, |lane| {
        let bytes = registers.get32(op.bytes).0[lane];
        for address in [to.0[lane], from.0[lane], bytes.into()] {
            if address & u64::from(op.align - 1) != 0 {
                return Err(LaneFault::access(FaultKind::Misaligned, lane, address, op.align));
            }
        }
        let ignored = op.ignore != NO_SLOT && registers.predicate(op.ignore) >> lane & 1 != 0;
        let read = if ignored { 0 } else { u64::from(if op.read == NO_SLOT { bytes } else { registers.get32(op.read).0[lane].min(bytes) }) };
        let step = u64::from(op.align.min(8));
        let mut at = 0;
        while at < u64::from(bytes) {
            let mut value = 0;
            if at + step <= read {
                value = single::load(near, memory, op.from.space, from.0[lane] + at, step, lane)?;
            } else {
                for byte in 0..read.saturating_sub(at) {
                    value |= single::load(near, memory, op.from.space, from.0[lane] + at + byte, 1, lane)? << (8 * byte);
                }
            }
            single::store(near, memory, op.to.space, to.0[lane] + at, step, value, lane)?;
            at += step;
        }
        match &barriers {
            Some((space, barriers)) => mbarrier::complete_bytes(near, *space, barriers.0[lane], bytes, lane),
            None => Ok(()),
        }
    })
}
