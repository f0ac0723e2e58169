//! What lanes of one warp do together: votes, shuffles, matches, reductions.
//!
//! Membership is per lane: one fragment may hold several groups (tiles) at once, each with its own result.

use super::fault::each;
use crate::program::code::{ReduceKind, ShuffleKind, WarpKind, WarpOp};
use crate::simd::lanes::{LANES, Lanes, NO_SLOT, V32};

/// The lanes of `here` that may go on: all living members of their group are here.
pub(super) fn ready(lanes: &Lanes<'_>, op: &WarpOp, here: u32, alive: u32) -> u32 {
    if op.members == NO_SLOT {
        return here;
    }
    let members = lanes.get32(op.members);
    let mut ready = 0;
    each(here, |lane| {
        if members.0[lane] & alive & !here == 0 {
            ready |= 1 << lane;
        }
    });
    ready
}

/// Does the operation for the lanes of `here`.
pub(super) fn perform(lanes: &mut Lanes<'_>, op: &WarpOp, here: u32) {
    if let WarpKind::Shuffle(kind) = op.kind {
        return shuffle(lanes, op, kind, here);
    }
    if op.kind == WarpKind::Sync {
        return;
    }
    let mut left = here;
    while left != 0 {
        let first = left.trailing_zeros() as usize;
        let members = if op.members == NO_SLOT { here } else { lanes.get32(op.members).0[first] };
        let mut group = 0;
        each(left, |lane| {
            if op.members == NO_SLOT || lanes.get32(op.members).0[lane] == members {
                group |= 1 << lane;
            }
        });
        left &= !group;
        one_group(lanes, op, group, members);
    }
}

fn one_group(lanes: &mut Lanes<'_>, op: &WarpOp, group: u32, members: u32) {
    // Lanes that take part although they did not name themselves do so alone.
    let counted = if group & members != 0 { group & members } else { group };
    let source = |lanes: &Lanes<'_>| lanes.predicate(op.a) ^ if op.negated { u32::MAX } else { 0 };
    match op.kind {
        WarpKind::VoteAll => {
            let yes = source(lanes) & counted == counted;
            lanes.set_predicate(op.d, if yes { u32::MAX } else { 0 }, group);
        }
        WarpKind::VoteAny => {
            let yes = source(lanes) & counted != 0;
            lanes.set_predicate(op.d, if yes { u32::MAX } else { 0 }, group);
        }
        WarpKind::VoteUniform => {
            let votes = source(lanes) & counted;
            lanes.set_predicate(op.d, if votes == 0 || votes == counted { u32::MAX } else { 0 }, group);
        }
        WarpKind::Ballot => {
            let votes = source(lanes) & counted;
            lanes.set32(op.d, &V32::splat(votes), group);
        }
        WarpKind::MatchAny { wide } => {
            let values = values(lanes, op, wide);
            each(group, |lane| {
                let mut same = 0;
                each(counted, |other| same |= u32::from(values[other] == values[lane]) << other);
                lanes.r32[op.d as usize].0[lane] = same;
            });
        }
        WarpKind::MatchAll { wide } => {
            let values = values(lanes, op, wide);
            let first = counted.trailing_zeros() as usize;
            let mut all = true;
            each(counted, |lane| all &= values[lane] == values[first]);
            lanes.set32(op.d, &V32::splat(if all { counted } else { 0 }), group);
            lanes.set_predicate(op.p, if all { u32::MAX } else { 0 }, group);
        }
        WarpKind::Reduce(kind) => {
            let from = *lanes.get32(op.a);
            let mut result = None;
            each(counted, |lane| {
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
            lanes.set32(op.d, &V32::splat(result.unwrap_or(0)), group);
        }
        WarpKind::Elect => {
            let leader = counted.trailing_zeros();
            if op.d != NO_SLOT {
                lanes.set32(op.d, &V32::splat(leader), group);
            }
            lanes.set_predicate(op.p, 1 << leader, group);
        }
        WarpKind::Sync | WarpKind::Shuffle(_) => {}
    }
}

fn values(lanes: &Lanes<'_>, op: &WarpOp, wide: bool) -> [u64; LANES] {
    if wide { lanes.get64(op.a).0 } else { lanes.get32(op.a).0.map(u64::from) }
}

fn shuffle(lanes: &mut Lanes<'_>, op: &WarpOp, kind: ShuffleKind, here: u32) {
    let (a, b, c) = (*lanes.get32(op.a), *lanes.get32(op.b), *lanes.get32(op.c));
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
            // A lane that takes no part gives zero, as the card does; programs rely on it though the manual leaves it undefined.
            out.0[lane as usize] = if here >> (from & 31) & 1 != 0 { a.0[(from & 31) as usize] } else { 0 };
        }
    }
    lanes.set32(op.d, &out, here);
    lanes.set_predicate(op.p, valid, here);
}
