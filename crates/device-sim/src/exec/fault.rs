//! Faults on their way from a lane to the block.

use super::interface::{FaultKind, MemoryFault};
use crate::simd::lanes::LANES;

/// A fault and the lane that raised it. The block adds the rest of a
/// [`Fault`](super::interface::Fault).
#[derive(Debug, Clone, Copy)]
pub(super) struct LaneFault {
    pub kind: FaultKind,
    pub lane: u32,
    pub address: u64,
    pub bytes: u32,
}

impl LaneFault {
    /// A fault of the lowest of `lanes` without an address.
    pub fn plain(kind: FaultKind, lanes: u32) -> Self {
        LaneFault { kind, lane: lanes.trailing_zeros() & 31, address: 0, bytes: 0 }
    }

    /// A fault of one lane's access of `bytes` bytes at `address`.
    pub fn access(kind: FaultKind, lane: usize, address: u64, bytes: u32) -> Self {
        LaneFault { kind, lane: lane as u32, address, bytes }
    }

    /// The memory refused one lane's access of `bytes` bytes at `address`.
    pub fn memory(fault: MemoryFault, lane: usize, address: u64, bytes: u32) -> Self {
        LaneFault::access(FaultKind::Global(fault), lane, address, bytes)
    }
}

pub(super) type LaneResult<T> = Result<T, LaneFault>;

/// Calls `f` with each lane of a mask, lowest first.
#[inline(always)]
pub(super) fn for_each_lane(mut mask: u32, mut f: impl FnMut(usize)) {
    if mask == u32::MAX {
        // A plain loop: a closure of an iterator would not be compiled for the fast processor (see
        // `simd::processor`).
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

/// As [`for_each_lane`], for functions that can fail: stops at the first fault.
#[inline(always)]
pub(super) fn try_for_each_lane(mut mask: u32, mut f: impl FnMut(usize) -> LaneResult<()>) -> LaneResult<()> {
    while mask != 0 {
        f(mask.trailing_zeros() as usize)?;
        mask &= mask - 1;
    }
    Ok(())
}
