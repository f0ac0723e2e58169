//! Barrier objects in shared memory.
//!
//! The 64 bits are ours: pending arrivals in bits 0..20, expected ones in 20..40, the phase in bit 63. A state is a copy of them.

use super::access::{Near, addresses, near, sort};
use super::fault::{Checked, Wrong, try_each};
use super::interface::FaultKind;
use crate::program::code::{MbarrierKind, MbarrierOp, Space};
use crate::simd::lanes::{Lanes, NO_SLOT};

const COUNT: u64 = (1 << 20) - 1;
const PHASE: u64 = 1 << 63;

fn pending(bits: u64) -> u64 {
    bits & COUNT
}

fn expected(bits: u64) -> u64 {
    bits >> 20 & COUNT
}

fn make(pending: u64, expected: u64, phase: u64) -> u64 {
    pending & COUNT | (expected & COUNT) << 20 | phase & PHASE
}

pub(super) fn perform(lanes: &mut Lanes<'_>, op: &MbarrierOp, mask: u32, memory: &mut Near<'_>) -> Checked<()> {
    if op.kind == MbarrierKind::PendingCount {
        return try_each(mask, |lane| {
            lanes.r32[op.d as usize].0[lane] = pending(lanes.get64(op.a).0[lane]) as u32;
            Ok(())
        });
    }
    let mut at = addresses(lanes, op.base, op.offset);
    if op.space == Space::Generic {
        let outside = mask & !sort(&mut at, mask)[1].1;
        if outside != 0 {
            return Err(Wrong::plain(FaultKind::SharedOutOfBounds, outside));
        }
    }
    try_each(mask, |lane| {
        if at.0[lane] & 7 != 0 {
            return Err(Wrong::access(FaultKind::Misaligned, lane, at.0[lane], 8));
        }
        let bytes = near(memory, Space::Shared, at.0[lane], 8, lane)?;
        let mut word = [0; 8];
        word.copy_from_slice(bytes);
        let old = u64::from_le_bytes(word);
        let narrow = |lanes: &Lanes<'_>| if op.a == NO_SLOT { 1 } else { u64::from(lanes.get32(op.a).0[lane]) };
        let new = match op.kind {
            MbarrierKind::Init => make(narrow(lanes), narrow(lanes), 0),
            MbarrierKind::Invalidate => 0,
            MbarrierKind::Arrive | MbarrierKind::ArriveDrop => {
                let count = narrow(lanes);
                let left = pending(old).saturating_sub(count);
                let expected = if op.kind == MbarrierKind::ArriveDrop { expected(old).saturating_sub(count) } else { expected(old) };
                if op.d != NO_SLOT {
                    lanes.r64[op.d as usize].0[lane] = old;
                }
                if left == 0 { make(expected, expected, old ^ PHASE) } else { make(left, expected, old) }
            }
            MbarrierKind::Test | MbarrierKind::TestParity => {
                let waited = if op.kind == MbarrierKind::Test { lanes.get64(op.a).0[lane] & PHASE } else { u64::from(lanes.get32(op.a).0[lane]) << 63 };
                let done = (old & PHASE) != waited;
                lanes.set_predicate(op.d, if done { u32::MAX } else { 0 }, 1 << lane);
                old
            }
            MbarrierKind::PendingCount => old,
        };
        bytes.copy_from_slice(&new.to_le_bytes());
        Ok(())
    })
}
