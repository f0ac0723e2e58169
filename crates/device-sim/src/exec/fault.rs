//! Faults while they travel from the lane that made them to the block.

use super::interface::{FaultKind, MemoryFault};
use crate::simd::lanes::LANES;

/// What went wrong in which lane. The rest of a [`Fault`](super::interface::Fault) is added by the block.
#[derive(Debug, Clone, Copy)]
pub(super) struct LaneFault {
    pub kind: FaultKind,
    pub lane: u32,
    pub address: u64,
    pub bytes: u32,
}

impl LaneFault {
    pub fn plain(kind: FaultKind, lanes: u32) -> Self {
        LaneFault { kind, lane: lanes.trailing_zeros() & 31, address: 0, bytes: 0 }
    }

    pub fn access(kind: FaultKind, lane: usize, address: u64, bytes: u32) -> Self {
        LaneFault { kind, lane: lane as u32, address, bytes }
    }

    pub fn memory(fault: MemoryFault, lane: usize, address: u64, bytes: u32) -> Self {
        LaneFault::access(FaultKind::Global(fault), lane, address, bytes)
    }
}

pub(super) type LaneResult<T> = Result<T, LaneFault>;

/// The lanes of a mask, lowest first.
#[inline(always)]
pub(super) fn for_each_lane(mut mask: u32, mut f: impl FnMut(usize)) {
    if mask == u32::MAX {
        // A plain loop: the adapter's function would not be compiled for the fast processor.
        for lane in 0..LANES {
            f(lane);
        }
        return;
    }
    while mask != 0 {
        f(mask.trailing_zeros() as usize);
        mask &= mask - 1;
    }
}

/// The same for functions that can fail.
#[inline(always)]
pub(super) fn try_for_each_lane(mut mask: u32, mut f: impl FnMut(usize) -> LaneResult<()>) -> LaneResult<()> {
    while mask != 0 {
        f(mask.trailing_zeros() as usize)?;
        mask &= mask - 1;
    }
    Ok(())
}
