//! Barrier objects in shared memory (PTX ISA, *mbarrier*).
//!
//! PTX leaves the layout of the 64 bits to the implementation. Here bits 0 to 19 hold the pending
//! arrivals, bits 20 to 39 the expected ones, bits 40 to 61 the bytes of asynchronous copies that
//! the phase still lacks (a signed number), and bit 63 the phase's parity. The state that an
//! arrival returns is a copy of the 64 bits.

use super::access::{NearMemory, compute_addresses, near_bytes, split_by_space};
use super::fault::{LaneFault, LaneResult, try_for_each_lane};
use super::interface::FaultKind;
use super::single;
use crate::program::code::{MbarrierKind, MbarrierOp, Space};
use crate::simd::lanes::{NO_SLOT, WarpRegisters};

const COUNT: u64 = (1 << 20) - 1;
const PHASE: u64 = 1 << 63;
/// The bytes that a phase lacks: a signed number of this many bits, from bit [`BYTES_AT`].
const BYTES_BITS: u32 = 22;
const BYTES_AT: u32 = 40;

/// The arrivals that the phase still lacks.
fn pending(bits: u64) -> u64 {
    bits & COUNT
}

/// The arrivals that complete a phase.
fn expected(bits: u64) -> u64 {
    bits >> 20 & COUNT
}

/// The bytes that the phase still lacks.
fn lacking(bits: u64) -> i64 {
    ((bits << (64 - BYTES_AT - BYTES_BITS)) as i64) >> (64 - BYTES_BITS)
}

fn pack_word(pending: u64, expected: u64, lacking: i64, phase: u64) -> u64 {
    let lacking = (lacking as u64 & ((1 << BYTES_BITS) - 1)) << BYTES_AT;
    pending & COUNT | (expected & COUNT) << 20 | lacking | phase & PHASE
}

/// The word after arrivals and bytes: the next phase begins when nothing is lacking.
fn settle(pending: u64, expected: u64, lacking: i64, phase: u64) -> u64 {
    if pending == 0 && lacking == 0 { pack_word(expected, expected, 0, phase ^ PHASE) } else { pack_word(pending, expected, lacking, phase) }
}

/// Bytes of an asynchronous copy have arrived.
pub(super) fn complete_bytes(memory: &mut NearMemory<'_>, space: Space, address: u64, bytes: u32, lane: usize) -> LaneResult<()> {
    let (space, at) = single::resolve(memory, space, address);
    if space != Space::Shared {
        return Err(LaneFault::access(FaultKind::SharedOutOfBounds, lane, address, 8));
    }
    change_word(memory, at, lane, |old| settle(pending(old), expected(old), lacking(old) - i64::from(bytes), old))
}

/// Replaces a barrier object by a function of it.
fn change_word(memory: &mut NearMemory<'_>, at: u64, lane: usize, change: impl FnOnce(u64) -> u64) -> LaneResult<()> {
    if at & 7 != 0 {
        return Err(LaneFault::access(FaultKind::Misaligned, lane, at, 8));
    }
    let bytes = near_bytes(memory, Space::Shared, at, 8, lane)?;
    let mut word = [0; 8];
    word.copy_from_slice(bytes);
    bytes.copy_from_slice(&change(u64::from_le_bytes(word)).to_le_bytes());
    Ok(())
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
        let operand = |registers: &WarpRegisters<'_>| if op.a == NO_SLOT { 1 } else { u64::from(registers.get32(op.a).0[lane]) };
        change_word(memory, at.0[lane], lane, |old| match op.kind {
            MbarrierKind::Init => pack_word(operand(registers), operand(registers), 0, 0),
            MbarrierKind::Invalidate => 0,
            MbarrierKind::Arrive | MbarrierKind::ArriveDrop | MbarrierKind::ArriveExpect => {
                let (count, more) = if op.kind == MbarrierKind::ArriveExpect { (1, operand(registers) as i64) } else { (operand(registers), 0) };
                let expected = if op.kind == MbarrierKind::ArriveDrop { expected(old).saturating_sub(count) } else { expected(old) };
                if op.d != NO_SLOT {
                    registers.r64[op.d as usize].0[lane] = old;
                }
                settle(pending(old).saturating_sub(count), expected, lacking(old) + more, old)
            }
            MbarrierKind::Expect => pack_word(pending(old), expected(old), lacking(old) + operand(registers) as i64, old),
            MbarrierKind::Complete => settle(pending(old), expected(old), lacking(old) - operand(registers) as i64, old),
            MbarrierKind::Test | MbarrierKind::TestParity => {
                let waited = if op.kind == MbarrierKind::Test { registers.get64(op.a).0[lane] & PHASE } else { u64::from(registers.get32(op.a).0[lane]) << 63 };
                let done = (old & PHASE) != waited;
                registers.set_predicate(op.d, if done { u32::MAX } else { 0 }, 1 << lane);
                old
            }
            MbarrierKind::PendingCount => old,
        })
    })
}
