//! Faults while they travel from the lane that made them to the block.

use super::interface::{FaultKind, MemoryFault};
use crate::simd::lanes::LANES;

/// What went wrong in which lane. The rest of a [`Fault`](super::interface::Fault) is added by the block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wrong {
    pub kind: FaultKind,
    pub lane: u32,
    pub address: u64,
    pub bytes: u32,
}

impl Wrong {
    pub fn plain(kind: FaultKind, lanes: u32) -> Self {
        Wrong { kind, lane: lanes.trailing_zeros() & 31, address: 0, bytes: 0 }
    }

    pub fn access(kind: FaultKind, lane: usize, address: u64, bytes: u32) -> Self {
        Wrong { kind, lane: lane as u32, address, bytes }
    }

    pub fn memory(fault: MemoryFault, lane: usize, address: u64, bytes: u32) -> Self {
        Wrong::access(FaultKind::Global(fault), lane, address, bytes)
    }
}

pub(super) type Checked<T> = Result<T, Wrong>;

/// The lanes of a mask, lowest first.
#[inline(always)]
pub(super) fn each(mut mask: u32, mut f: impl FnMut(usize)) {
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
pub(super) fn try_each(mut mask: u32, mut f: impl FnMut(usize) -> Checked<()>) -> Checked<()> {
    while mask != 0 {
        f(mask.trailing_zeros() as usize)?;
        mask &= mask - 1;
    }
    Ok(())
}
