//! What lanes of one warp do together: votes, shuffles, matches, reductions.
//!
//! Each lane names the members of its group by a mask (PTX ISA, *membermask*). One fragment may
//! hold several groups at once, for instance the tiles of a cooperative group; each group has a
//! result of its own.

use super::fault::for_each_lane;
use crate::program::code::{ReduceKind, ShuffleKind, WarpKind, WarpOp};
use crate::simd::lanes::{LANES, NO_SLOT, PerLane32, WarpRegisters};

/// The lanes of `here` that can continue: every living member of their group has arrived.
pub(super) fn complete_lanes(registers: &WarpRegisters<'_>, op: &WarpOp, here: u32, alive: u32) -> u32 {
    if op.members == NO_SLOT {
        return here;
    }
    let members = registers.get32(op.members);
    let mut ready = 0;
    for_each_lane(here, |lane| {
        if members.0[lane] & alive & !here == 0 {
            ready |= 1 << lane;
        }
    });
    ready
}

/// Performs the operation for the lanes of `here`, group by group.
pub(super) fn perform(registers: &mut WarpRegisters<'_>, op: &WarpOp, here: u32) {
    if let WarpKind::Shuffle(kind) = op.kind {
        return shuffle(registers, op, kind, here);
    }
    if op.kind == WarpKind::Sync {
        return;
    }
    let mut left = here;
    while left != 0 {
        let first = left.trailing_zeros() as usize;
        let members = if op.members == NO_SLOT { here } else { registers.get32(op.members).0[first] };
        let mut group = 0;
        for_each_lane(left, |lane| {
            if op.members == NO_SLOT || registers.get32(op.members).0[lane] == members {
                group |= 1 << lane;
            }
        });
        left &= !group;
        perform_for_group(registers, op, group, members);
    }
}

/// Performs the operation for the lanes of one group.
fn perform_for_group(registers: &mut WarpRegisters<'_>, op: &WarpOp, group: u32, members: u32) {
    // PTX leaves it undefined what a lane gets whose mask does not name the lane itself. Such lanes
    // form a group of their own here.
    let counted = if group & members != 0 { group & members } else { group };
    let source = |registers: &WarpRegisters<'_>| registers.predicate(op.a) ^ if op.negated { u32::MAX } else { 0 };
    match op.kind {
        WarpKind::VoteAll => {
            let yes = source(registers) & counted == counted;
            registers.set_predicate(op.d, if yes { u32::MAX } else { 0 }, group);
        }
        WarpKind::VoteAny => {
            let yes = source(registers) & counted != 0;
            registers.set_predicate(op.d, if yes { u32::MAX } else { 0 }, group);
        }
        WarpKind::VoteUniform => {
            let votes = source(registers) & counted;
            registers.set_predicate(op.d, if votes == 0 || votes == counted { u32::MAX } else { 0 }, group);
        }
        WarpKind::Ballot => {
            let votes = source(registers) & counted;
            registers.set32(op.d, &PerLane32::splat(votes), group);
        }
        WarpKind::MatchAny { wide } => {
            let values = source_values(registers, op, wide);
            for_each_lane(group, |lane| {
                let mut same = 0;
                for_each_lane(counted, |other| same |= u32::from(values[other] == values[lane]) << other);
                registers.r32[op.d as usize].0[lane] = same;
            });
        }
        WarpKind::MatchAll { wide } => {
            let values = source_values(registers, op, wide);
            let first = counted.trailing_zeros() as usize;
            let mut all = true;
            for_each_lane(counted, |lane| all &= values[lane] == values[first]);
            registers.set32(op.d, &PerLane32::splat(if all { counted } else { 0 }), group);
            registers.set_predicate(op.p, if all { u32::MAX } else { 0 }, group);
        }
        WarpKind::Reduce(kind) => {
            let from = *registers.get32(op.a);
            let mut result = None;
            for_each_lane(counted, |lane| {
                let x = from.0[lane];
                result = Some(match (result, kind) {
                    (None, _) => x,
                    (Some(r), ReduceKind::Add) => u32::wrapping_add(r, x),
                    (Some(r), ReduceKind::MinU) => r.min(x),
                    (Some(r), ReduceKind::MaxU) => r.max(x),
                    (Some(r), ReduceKind::MinS) => (r as i32).min(x as i32) as u32,
                    (Some(r), ReduceKind::MaxS) => (r as i32).max(x as i32) as u32,
                    (Some(r), ReduceKind::And) => r & x,
                    (Some(r), ReduceKind::Or) => r | x,
                    (Some(r), ReduceKind::Xor) => r ^ x,
                });
            });
            registers.set32(op.d, &PerLane32::splat(result.unwrap_or(0)), group);
        }
        WarpKind::Elect => {
            let leader = counted.trailing_zeros();
            if op.d != NO_SLOT {
                registers.set32(op.d, &PerLane32::splat(leader), group);
            }
            registers.set_predicate(op.p, 1 << leader, group);
        }
        WarpKind::Sync | WarpKind::Shuffle(_) => {}
    }
}

/// The lanes' source values, zero-extended.
fn source_values(registers: &WarpRegisters<'_>, op: &WarpOp, wide: bool) -> [u64; LANES] {
    if wide { registers.get64(op.a).0 } else { registers.get32(op.a).0.map(u64::from) }
}

/// `shfl` (PTX ISA, *shfl.sync*): each lane reads the register of another.
fn shuffle(registers: &mut WarpRegisters<'_>, op: &WarpOp, kind: ShuffleKind, here: u32) {
    let (a, b, c) = (*registers.get32(op.a), *registers.get32(op.b), *registers.get32(op.c));
    let mut out = a;
    let mut valid = 0;
    for lane in 0..LANES as u32 {
        let (delta, control) = (b.0[lane as usize] & 31, c.0[lane as usize]);
        let segment = control >> 8 & 31;
        let clamp = control & 31;
        let high = (lane & segment) | (clamp & !segment);
        let low = lane & segment;
        let (from, inside) = match kind {
            ShuffleKind::Up => {
                let from = lane as i32 - delta as i32;
                (from, from >= high as i32)
            }
            ShuffleKind::Down => ((lane + delta) as i32, lane + delta <= high),
            ShuffleKind::Butterfly => ((lane ^ delta) as i32, lane ^ delta <= high),
            ShuffleKind::Index => {
                let from = low | (delta & !segment);
                (from as i32, from <= high)
            }
        };
        if inside {
            valid |= 1 << lane;
            // A lane that takes no part gives zero. The PTX ISA leaves the value undefined, but
            // programs rely on what the hardware does.
            out.0[lane as usize] = if here >> (from & 31) & 1 != 0 { a.0[(from & 31) as usize] } else { 0 };
        }
    }
    registers.set32(op.d, &out, here);
    registers.set_predicate(op.p, valid, here);
}
