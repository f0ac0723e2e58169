//! Barriers, votes, shuffles and other instructions of several lanes (PTX ISA, *Parallel
//! Synchronization and Communication Instructions*).

use super::body::{Lowerer, exact_operands, first_type};
use super::error::{Lowered, Trouble, reject};
use crate::program::code::{BarrierKind, BarrierOp, Op, ReduceKind, ShuffleKind, WarpKind, WarpOp};
use crate::simd::lanes::NO_SLOT;
use cumux_ptx::ast::{BoolOp, Instruction, Modifier, Opcode as O, Operand, ReduceOp, ScalarType as T, Scope, Word};

/// An operation without operands.
fn empty_op(kind: WarpKind) -> WarpOp {
    WarpOp { kind, members: NO_SLOT, d: NO_SLOT, p: NO_SLOT, a: NO_SLOT, b: NO_SLOT, c: NO_SLOT, negated: false }
}

pub(super) fn lower(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered {
    let op = match i.opcode {
        O::Bar | O::Barrier if i.has(Word::Warp) => {
            let [members] = exact_operands::<1>(i)?;
            WarpOp { members: lowerer.lower_source32(members, T::B32)?, ..empty_op(WarpKind::Sync) }
        }
        O::Bar | O::Barrier => return lower_barrier(lowerer, i),
        O::Vote => lower_vote(lowerer, i)?,
        O::Shfl => lower_shuffle(lowerer, i)?,
        O::Match => lower_matches(lowerer, i)?,
        O::Redux => lower_reduce(lowerer, i)?,
        O::Elect => {
            let [d, members] = exact_operands::<2>(i)?;
            let Operand::Pair(pair) = d else { return reject("elect gives a register and a predicate") };
            let mut op = empty_op(WarpKind::Elect);
            op.members = lowerer.lower_source32(members, T::B32)?;
            if pair.0 != Operand::Sink {
                op.d = lowerer.lower_target32(&pair.0)?;
            }
            op.p = lowerer.lower_predicate_target(&pair.1)?;
            op
        }
        O::Activemask => {
            let [d] = exact_operands::<1>(i)?;
            let d = lowerer.lower_target32(d)?;
            lowerer.emit(Op::Activemask { d });
            return Ok(());
        }
        _ => return Err(Trouble::Refused),
    };
    lowerer.emit(Op::Warp(Box::new(op)));
    Ok(())
}

/// `bar` and `barrier`.
fn lower_barrier(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered {
    if i.modifiers.iter().any(|m| matches!(m, Modifier::Scope(Scope::Cluster))) {
        // The order that it gives is the one in which a worker runs the blocks of a cluster.
        let [] = exact_operands::<0>(i)?;
        let waits = i.has(Word::Wait);
        if waits == i.has(Word::Arrive) {
            return reject("arrive or wait is needed");
        }
        lowerer.emit(Op::ClusterBarrier { waits });
        return Ok(());
    }
    let mut op = BarrierOp { kind: BarrierKind::Sync, id: NO_SLOT, threads: NO_SLOT, d: NO_SLOT, source: NO_SLOT, source_negated: false };
    let operands = i.operands.as_slice();
    let numbers = if i.has(Word::Red) {
        let [d, numbers @ .., source] = operands else { return reject("operands are missing") };
        match i.reduce() {
            Some(ReduceOp::Popc) => (op.kind, op.d) = (BarrierKind::Count, lowerer.lower_target32(d)?),
            Some(ReduceOp::And) => (op.kind, op.d) = (BarrierKind::And, lowerer.lower_predicate_target(d)?),
            Some(ReduceOp::Or) => (op.kind, op.d) = (BarrierKind::Or, lowerer.lower_predicate_target(d)?),
            _ => match i.bool_op() {
                Some(BoolOp::And) => (op.kind, op.d) = (BarrierKind::And, lowerer.lower_predicate_target(d)?),
                Some(BoolOp::Or) => (op.kind, op.d) = (BarrierKind::Or, lowerer.lower_predicate_target(d)?),
                _ => return reject("popc, and or or is needed"),
            },
        }
        (op.source, op.source_negated) = lowerer.lower_predicate(source)?;
        numbers
    } else {
        if i.has(Word::Arrive) {
            op.kind = BarrierKind::Arrive;
        }
        operands
    };
    let [id, threads @ ..] = numbers else { return reject("the barrier's number is missing") };
    op.id = lowerer.lower_source32(id, T::U32)?;
    if let Some(threads) = threads.first() {
        op.threads = lowerer.lower_source32(threads, T::U32)?;
    }
    lowerer.emit(Op::Barrier(Box::new(op)));
    Ok(())
}

/// `mapa` and `getctarank`: shared memory of the blocks of a cluster.
pub(super) fn lower_cluster_address(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered {
    let wide = first_type(i)?.bits() == 64;
    let ty = if wide { T::U64 } else { T::U32 };
    if let O::Getctarank = i.opcode {
        let [d, a] = exact_operands::<2>(i)?;
        let (a, d) = (lowerer.lower_source(a, ty)?, lowerer.lower_target32(d)?);
        lowerer.emit(Op::SharedRank { d, a, wide });
        return Ok(());
    }
    let [d, a, b] = exact_operands::<3>(i)?;
    let (a, b) = (lowerer.lower_source(a, ty)?, lowerer.lower_source32(b, T::U32)?);
    let d = lowerer.lower_target(d, ty)?;
    lowerer.emit(Op::MapShared { d, a, b, wide });
    Ok(())
}

/// `vote`.
fn lower_vote(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered<WarpOp> {
    let [d, a, members @ ..] = i.operands.as_slice() else { return reject("operands are missing") };
    let mut op = empty_op(if i.has(Word::Ballot) {
        WarpKind::Ballot
    } else if i.has(Word::All) {
        WarpKind::VoteAll
    } else if i.has(Word::Any) {
        WarpKind::VoteAny
    } else {
        WarpKind::VoteUniform
    });
    (op.a, op.negated) = lowerer.lower_predicate(a)?;
    op.d = if op.kind == WarpKind::Ballot { lowerer.lower_target32(d)? } else { lowerer.lower_predicate_target(d)? };
    if let Some(members) = members.first() {
        op.members = lowerer.lower_source32(members, T::B32)?;
    }
    Ok(op)
}

/// `shfl.sync`.
fn lower_shuffle(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered<WarpOp> {
    let [d, a, b, c, members @ ..] = i.operands.as_slice() else { return reject("operands are missing") };
    let kind = if i.has(Word::Up) {
        ShuffleKind::Up
    } else if i.has(Word::Down) {
        ShuffleKind::Down
    } else if i.has(Word::Bfly) {
        ShuffleKind::Butterfly
    } else {
        ShuffleKind::Index
    };
    let mut op = empty_op(WarpKind::Shuffle(kind));
    (op.a, op.b, op.c) = (lowerer.lower_source32(a, T::B32)?, lowerer.lower_source32(b, T::U32)?, lowerer.lower_source32(c, T::U32)?);
    if let Operand::Pair(pair) = d {
        (op.d, op.p) = (lowerer.lower_target32(&pair.0)?, lowerer.lower_predicate_target(&pair.1)?);
    } else {
        op.d = lowerer.lower_target32(d)?;
    }
    if let Some(members) = members.first() {
        op.members = lowerer.lower_source32(members, T::B32)?;
    }
    Ok(op)
}

/// `match.sync`.
fn lower_matches(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered<WarpOp> {
    let [d, a, members] = exact_operands::<3>(i)?;
    let ty = i.ty(0).unwrap_or(T::B32);
    let wide = ty.bits() > 32;
    let mut op = empty_op(if i.has(Word::All) { WarpKind::MatchAll { wide } } else { WarpKind::MatchAny { wide } });
    op.a = lowerer.lower_source(a, ty)?;
    op.members = lowerer.lower_source32(members, T::B32)?;
    if let Operand::Pair(pair) = d {
        (op.d, op.p) = (lowerer.lower_target32(&pair.0)?, lowerer.lower_predicate_target(&pair.1)?);
    } else {
        op.d = lowerer.lower_target32(d)?;
    }
    Ok(op)
}

/// `redux.sync`.
fn lower_reduce(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered<WarpOp> {
    let [d, a, members] = exact_operands::<3>(i)?;
    let ty = i.ty(0).unwrap_or(T::B32);
    let kind = match (i.reduce(), ty) {
        (_, ty) if ty.is_float() => return Err(Trouble::Refused),
        (Some(ReduceOp::Add), _) => ReduceKind::Add,
        (Some(ReduceOp::Min), T::S32) => ReduceKind::MinS,
        (Some(ReduceOp::Min), _) => ReduceKind::MinU,
        (Some(ReduceOp::Max), T::S32) => ReduceKind::MaxS,
        (Some(ReduceOp::Max), _) => ReduceKind::MaxU,
        (Some(ReduceOp::And), _) => ReduceKind::And,
        (Some(ReduceOp::Or), _) => ReduceKind::Or,
        (Some(ReduceOp::Xor), _) => ReduceKind::Xor,
        _ => return Err(Trouble::Refused),
    };
    let mut op = empty_op(WarpKind::Reduce(kind));
    (op.a, op.d, op.members) = (lowerer.lower_source32(a, ty)?, lowerer.lower_target32(d)?, lowerer.lower_source32(members, T::B32)?);
    Ok(op)
}
