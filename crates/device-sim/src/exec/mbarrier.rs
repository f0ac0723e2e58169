//! Barrier objects in shared memory (PTX ISA, *mbarrier*).
//!
//! PTX leaves the layout of the 64 bits to the implementation. Here bits 0 to 19 hold the pending
//! arrivals, bits 20 to 39 the expected ones, and bit 63 the phase's parity. The state that an
//! arrival returns is a copy of the 64 bits.

use super::access::{NearMemory, compute_addresses, near_bytes, split_by_space};
use super::fault::{LaneFault, LaneResult, try_for_each_lane};
use super::interface::FaultKind;
use crate::program::code::{MbarrierKind, MbarrierOp, Space};
use crate::simd::lanes::{NO_SLOT, WarpRegisters};

const COUNT: u64 = (1 << 20) - 1;
const PHASE: u64 = 1 << 63;

/// The arrivals that the phase still lacks.
fn pending(bits: u64) -> u64 {
    bits & COUNT
}

/// The arrivals that complete a phase.
fn expected(bits: u64) -> u64 {
    bits >> 20 & COUNT
}

fn pack_word(pending: u64, expected: u64, phase: u64) -> u64 {
    pending & COUNT | (expected & COUNT) << 20 | phase & PHASE
}

/// Performs the instruction for each lane of `mask`, lowest lane first.
pub(super) fn perform(registers: &mut WarpRegisters<'_>, op: &MbarrierOp, mask: u32, memory: &mut NearMemory<'_>) -> LaneResult<()> {
    if op.kind == MbarrierKind::PendingCount {
        return try_for_each_lane(mask, |lane| {
            registers.r32[op.d as usize].0[lane] = pending(registers.get64(op.a).0[lane]) as u32;
            Ok(())
        });
    }
    let mut at = compute_addresses(registers, op.base, op.offset);
    if op.space == Space::Generic {
        let outside = mask & !split_by_space(&mut at, mask)[1].1;
        if outside != 0 {
            return Err(LaneFault::plain(FaultKind::SharedOutOfBounds, outside));
        }
    }
    try_for_each_lane(mask, |lane| {
        if at.0[lane] & 7 != 0 {
            return Err(LaneFault::access(FaultKind::Misaligned, lane, at.0[lane], 8));
        }
        let bytes = near_bytes(memory, Space::Shared, at.0[lane], 8, lane)?;
        let mut word = [0; 8];
        word.copy_from_slice(bytes);
        let old = u64::from_le_bytes(word);
        let operand = |registers: &WarpRegisters<'_>| if op.a == NO_SLOT { 1 } else { u64::from(registers.get32(op.a).0[lane]) };
        let new = match op.kind {
            MbarrierKind::Init => pack_word(operand(registers), operand(registers), 0),
            MbarrierKind::Invalidate => 0,
            MbarrierKind::Arrive | MbarrierKind::ArriveDrop => {
                let count = operand(registers);
                let left = pending(old).saturating_sub(count);
                let expected = if op.kind == MbarrierKind::ArriveDrop { expected(old).saturating_sub(count) } else { expected(old) };
                if op.d != NO_SLOT {
                    registers.r64[op.d as usize].0[lane] = old;
                }
                if left == 0 { pack_word(expected, expected, old ^ PHASE) } else { pack_word(left, expected, old) }
            }
            MbarrierKind::Test | MbarrierKind::TestParity => {
                let waited = if op.kind == MbarrierKind::Test { registers.get64(op.a).0[lane] & PHASE } else { u64::from(registers.get32(op.a).0[lane]) << 63 };
                let done = (old & PHASE) != waited;
                registers.set_predicate(op.d, if done { u32::MAX } else { 0 }, 1 << lane);
                old
            }
            MbarrierKind::PendingCount => old,
        };
        bytes.copy_from_slice(&new.to_le_bytes());
        Ok(())
    })
}
