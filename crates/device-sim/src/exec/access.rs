//! Loads and stores of a warp in all spaces.
//!
//! An access is found and checked once for the whole warp (`served`) where all its lanes lie in one allocation, else lane by lane. Generic
//! addresses are sorted into the windows first.

// Elements of a vector access are numbered: registers and offsets are found by the same number.
#![allow(clippy::needless_range_loop)]

use super::fault::{Checked, Wrong, each, try_each};
use super::interface::{Access, FaultKind, GlobalMemory};
use super::raw::Range;
use super::served::{Kind, Served, Shape};
use crate::program::code::{Base, MemoryOp, Order, Space};
use crate::program::window;
use crate::simd::lanes::{LANES, Lanes, V, V32, V64};
use crate::simd::processor::{VectorCode, run_fastest};

/// Memory that belongs to the block or the thread, and the kernel's parameters.
pub(super) struct Near<'a> {
    pub shared: &'a mut [u8],
    pub local: &'a mut [u8],
    /// Bytes of one lane's local memory.
    pub local_bytes: u32,
    /// Start of the running frame in it.
    pub frame: u32,
    pub parameters: &'a [u8],
}

#[inline(always)]
pub(super) fn addresses(lanes: &Lanes<'_>, base: Base, offset: i64) -> V64 {
    match base {
        Base::None => V64::splat(offset as u64),
        Base::Wide(slot) => {
            let from = lanes.get64(slot);
            let mut out = V64::splat(0);
            for lane in 0..LANES {
                out.0[lane] = from.0[lane].wrapping_add(offset as u64);
            }
            out
        }
        Base::Narrow(slot) => {
            let from = lanes.get32(slot);
            let mut out = V64::splat(0);
            for lane in 0..LANES {
                out.0[lane] = u64::from(from.0[lane].wrapping_add(offset as u32));
            }
            out
        }
    }
}

/// The lanes of a generic access by the space they go to; addresses become offsets in it.
pub(super) fn sort(addresses: &mut V64, mask: u32) -> [(Space, u32); 4] {
    let mut masks = [0u32; 4];
    each(mask, |lane| {
        let address = addresses.0[lane];
        let (kind, start) = match address {
            _ if window::SHARED.contains(address) => (1, window::SHARED.start),
            _ if window::LOCAL.contains(address) => (2, window::LOCAL.start),
            _ if window::PARAM.contains(address) => (3, window::PARAM.start),
            _ => (0, 0),
        };
        masks[kind] |= 1 << lane;
        addresses.0[lane] = address - start;
    });
    [(Space::Global, masks[0]), (Space::Shared, masks[1]), (Space::Local, masks[2]), (Space::Param, masks[3])]
}

/// The shape of an access without its addresses, as far as that can be had: none if they wrap around or their alignment is not that of the base.
#[inline(always)]
fn shape(lanes: &Lanes<'_>, base: Base, offset: i64, mask: u32, bytes: u64) -> Option<Shape> {
    let plain = match base {
        Base::None => return Some(Shape::one(offset as u64)),
        Base::Wide(slot) => Shape::of(lanes.get64(slot), mask, bytes),
        Base::Narrow(slot) => Shape::of_short(lanes.get32(slot), mask, bytes),
    };
    let add =
        |at: u64| if matches!(base, Base::Wide(_)) { at.checked_add_signed(offset) } else { (at as u32).checked_add_signed(offset as i32).map(u64::from) };
    // Without a common alignment the sum's is not known from the parts'.
    if offset as u64 & (bytes - 1) != 0 { None } else { Some(Shape { low: add(plain.low)?, high: add(plain.high)?, ..plain }) }
}

/// The shape of addresses that had to be put together. Rare, therefore not part of every access.
#[inline(never)]
fn shape_of(at: &V64, mask: u32, bytes: u64) -> Shape {
    Shape::of(at, mask, bytes)
}

/// Whether the access can do with its shape; `row`: a row of global memory can.
#[inline(always)]
fn enough(shape: &Shape, space: Space, row: bool) -> bool {
    match space {
        _ if shape.kind == Kind::One => true,
        _ if shape.kind == Kind::Any => false,
        Space::Global | Space::Generic => row,
        Space::Shared | Space::Param => true,
        Space::Local | Space::Frame => false,
    }
}

/// Stands for the addresses of an access that can do with its shape.
static NOWHERE: V64 = V([0; LANES]);

/// The fault of the first lane whose address is not a multiple of `bytes`.
#[cold]
pub(super) fn misaligned(addresses: &V64, mask: u32, bytes: u64, space: Space) -> Wrong {
    let lane = (0..LANES).find(|lane| mask >> lane & 1 != 0 && addresses.0[*lane] & (bytes - 1) != 0).unwrap_or(0);
    Wrong::access(FaultKind::Misaligned, lane, addresses.0[lane].wrapping_add(window_start(space)), bytes as u32)
}

/// Calls `f(range, lane)` for each lane's bytes of global memory: the slow way, for lanes in several allocations and for those that fault.
pub(super) fn one_by_one<M: GlobalMemory>(
    memory: &mut M,
    addresses: &V64,
    mask: u32,
    bytes: u64,
    access: Access,
    mut f: impl FnMut(&mut M, Range, usize),
) -> Checked<()> {
    let find = |memory: &mut M, lane: usize| {
        Range::of(memory, addresses.0[lane], bytes, access).map_err(|fault| Wrong::memory(fault, lane, addresses.0[lane], bytes as u32))
    };
    // All lanes are checked before any is served: a fault leaves no half of an instruction behind.
    try_each(mask, |lane| find(memory, lane).map(|_| ()))?;
    try_each(mask, |lane| {
        let range = find(memory, lane)?;
        f(memory, range, lane);
        Ok(())
    })
}

/// The bytes of a near access of one lane.
pub(super) fn near<'a>(near: &'a mut Near<'_>, space: Space, offset: u64, bytes: u64, lane: usize) -> Checked<&'a mut [u8]> {
    let (memory, start, limit, kind, origin) = match space {
        Space::Shared => {
            let limit = near.shared.len() as u64;
            (&mut *near.shared, 0, limit, FaultKind::SharedOutOfBounds, window::SHARED.start)
        }
        _ => {
            let limit = u64::from(near.local_bytes);
            (&mut *near.local, lane as u64 * limit, limit, FaultKind::LocalOutOfBounds, window::LOCAL.start)
        }
    };
    if offset > limit || bytes > limit - offset {
        return Err(Wrong::access(kind, lane, origin.wrapping_add(offset), bytes as u32));
    }
    let from = (start + offset) as usize;
    Ok(&mut memory[from..from + bytes as usize])
}

/// The compiler's own frame accesses are right, so what lies outside is the stack's end.
fn overflow(wrong: Wrong) -> Wrong {
    Wrong { kind: FaultKind::StackOverflow, address: 0, bytes: 0, ..wrong }
}

#[inline(always)]
fn extended(value: u64, bytes: u8, sign: u8) -> u64 {
    if sign == 0 {
        return value;
    }
    let unused = 64 - 8 * u32::from(bytes);
    let full = (((value << unused) as i64) >> unused) as u64;
    if sign >= 64 { full } else { full & ((1 << sign) - 1) }
}

/// Space of the addresses in generic form: what to add for messages.
fn window_start(space: Space) -> u64 {
    match space {
        Space::Shared => window::SHARED.start,
        Space::Local | Space::Frame => window::LOCAL.start,
        Space::Param => window::PARAM.start,
        Space::Global | Space::Generic => 0,
    }
}

/// Offsets of the lanes of a local access in the memory of all lanes, and their shape. `at` is not read if all lanes name the same place.
#[inline(always)]
fn local(near: &Near<'_>, at: &V64, mask: u32, shape: &Shape, bytes: u64, space: Space) -> Checked<(V64, Shape)> {
    let limit = u64::from(near.local_bytes);
    let frame = if space == Space::Frame { u64::from(near.frame) } else { 0 };
    let one = V64::splat(shape.low);
    let at = if shape.kind == Kind::One { &one } else { at };
    if bytes > limit || frame > limit - bytes || shape.high > limit - bytes - frame {
        let lane = (0..LANES).find(|lane| mask >> lane & 1 != 0 && at.0[*lane].saturating_add(frame).saturating_add(bytes) > limit).unwrap_or(0);
        let wrong = Wrong::access(FaultKind::LocalOutOfBounds, lane, window::LOCAL.start.wrapping_add(at.0[lane]), bytes as u32);
        return Err(if space == Space::Frame { overflow(wrong) } else { wrong });
    }
    let mut out = V64::splat(0);
    for lane in 0..LANES {
        out.0[lane] = at.0[lane].wrapping_add(frame + lane as u64 * limit);
    }
    // One frame after the other: never the same bytes, and a bound is enough.
    Ok((out, Shape { high: shape.high + frame + (LANES as u64 - 1) * limit, kind: Kind::Any, ..*shape }))
}

/// The fault of lanes that access the block's or the kernel's own memory beyond its end.
#[cold]
fn outside(at: &V64, mask: u32, bytes: u64, length: usize, space: Space) -> Wrong {
    let lane = (0..LANES).find(|lane| mask >> lane & 1 != 0 && at.0[*lane].saturating_add(bytes) > length as u64).unwrap_or(0);
    let kind = match space {
        Space::Param => FaultKind::ParamOutOfBounds,
        Space::Shared => FaultKind::SharedOutOfBounds,
        _ => FaultKind::LocalOutOfBounds,
    };
    Wrong::access(kind, lane, window_start(space).wrapping_add(at.0[lane]), bytes as u32)
}

/// A load or store, to be compiled for the fast processor too.
struct Loading<'x, 'a, 'b, M> {
    lanes: &'x mut Lanes<'a>,
    op: &'x MemoryOp,
    mask: u32,
    near: &'x mut Near<'b>,
    memory: &'x mut M,
    /// Addresses that were sorted into a space already.
    given: Option<(&'x V64, Space)>,
}

struct Storing<'x, 'a, 'b, M> {
    lanes: &'x Lanes<'a>,
    op: &'x MemoryOp,
    mask: u32,
    near: &'x mut Near<'b>,
    memory: &'x mut M,
    given: Option<(&'x V64, Space)>,
}

pub(super) fn load<M: GlobalMemory>(lanes: &mut Lanes<'_>, op: &MemoryOp, mask: u32, near: &mut Near<'_>, memory: &mut M) -> Checked<()> {
    run_fastest(Loading { lanes, op, mask, near, memory, given: None })
}

pub(super) fn store<M: GlobalMemory>(lanes: &Lanes<'_>, op: &MemoryOp, mask: u32, near: &mut Near<'_>, memory: &mut M) -> Checked<()> {
    run_fastest(Storing { lanes, op, mask, near, memory, given: None })
}

impl<M: GlobalMemory> VectorCode for Loading<'_, '_, '_, M> {
    type Out = Checked<()>;

    #[inline(always)]
    fn run(self) -> Checked<()> {
        let Loading { lanes, op, mask, near, memory, given } = self;
        let bytes = u64::from(op.bytes) * u64::from(op.count);
        let mut own = V64::splat(0);
        let (mut at, mut shape, space) = found(lanes, op, mask, bytes, given, true, &mut own);
        if space == Space::Generic {
            return sorted(all_of(lanes, op, given), mask, |at, space, part| {
                run_fastest(Loading { lanes, op, mask: part, near, memory, given: Some((at, space)) })
            });
        }
        if shape.any & (bytes - 1) != 0 {
            return Err(misaligned(&all_of(lanes, op, given), mask, bytes, space));
        }
        if space == Space::Global {
            match Served::global(memory, at, mask, &shape, bytes, Access::Load) {
                Some(served) => take(lanes, op, mask, &served),
                None => load_slowly(lanes, op, &all_of(lanes, op, given), mask, memory)?,
            }
            if op.order == Order::Acquire {
                std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
            }
            return Ok(());
        }
        let offsets;
        let slice = match space {
            Space::Param => near.parameters,
            Space::Shared => &*near.shared,
            _ => {
                (offsets, shape) = local(near, at, mask, &shape, bytes, space)?;
                at = &offsets;
                &*near.local
            }
        };
        match Served::reading(slice, at, mask, &shape, bytes) {
            Some(served) => take(lanes, op, mask, &served),
            None => return Err(outside(&all_of(lanes, op, given), mask, bytes, slice.len(), space)),
        }
        Ok(())
    }
}

impl<M: GlobalMemory> VectorCode for Storing<'_, '_, '_, M> {
    type Out = Checked<()>;

    #[inline(always)]
    fn run(self) -> Checked<()> {
        let Storing { lanes, op, mask, near, memory, given } = self;
        let bytes = u64::from(op.bytes) * u64::from(op.count);
        let mut own = V64::splat(0);
        let (mut at, mut shape, space) = found(lanes, op, mask, bytes, given, mask == u32::MAX, &mut own);
        if space == Space::Generic {
            return sorted(all_of(lanes, op, given), mask, |at, space, part| {
                run_fastest(Storing { lanes, op, mask: part, near, memory, given: Some((at, space)) })
            });
        }
        if shape.any & (bytes - 1) != 0 {
            return Err(misaligned(&all_of(lanes, op, given), mask, bytes, space));
        }
        if space == Space::Global {
            if op.order == Order::Release {
                std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
            }
            match Served::global(memory, at, mask, &shape, bytes, Access::Store) {
                Some(served) => give(lanes, op, &served),
                None => store_slowly(lanes, op, &all_of(lanes, op, given), mask, memory)?,
            }
            return Ok(());
        }
        let offsets;
        let slice = match space {
            Space::Param => {
                let lane = mask.trailing_zeros() as usize & 31;
                let at = all_of(lanes, op, given).0[lane];
                return Err(Wrong::access(FaultKind::ParamOutOfBounds, lane, window::PARAM.start.wrapping_add(at), bytes as u32));
            }
            Space::Shared => &mut *near.shared,
            _ => {
                (offsets, shape) = local(near, at, mask, &shape, bytes, space)?;
                at = &offsets;
                &mut *near.local
            }
        };
        let length = slice.len();
        match Served::writing(slice, at, mask, &shape, bytes) {
            Some(served) => give(lanes, op, &served),
            None => return Err(outside(&all_of(lanes, op, given), mask, bytes, length, space)),
        }
        Ok(())
    }
}

/// Where an access goes: its addresses (put together in `own` if need be, and not to be read where the shape is enough), shape and space. The space is generic
/// only where the access must be sorted by window. `row`: a row of global memory is served by its shape.
#[inline(always)]
fn found<'a>(lanes: &Lanes<'_>, op: &MemoryOp, mask: u32, bytes: u64, given: Option<(&'a V64, Space)>, row: bool, own: &'a mut V64) -> (&'a V64, Shape, Space) {
    let (at, shape, space) = match given {
        Some((at, space)) => (at, shape_of(at, mask, bytes), space),
        None => match shape(lanes, op.base, op.offset, mask, bytes) {
            Some(shape) if enough(&shape, op.space, row) => (&NOWHERE, shape, op.space),
            Some(shape) => {
                *own = addresses(lanes, op.base, op.offset);
                (&*own, shape, op.space)
            }
            None => {
                *own = addresses(lanes, op.base, op.offset);
                (&*own, shape_of(own, mask, bytes), op.space)
            }
        },
    };
    let space = if space == Space::Generic && shape.high < window::SHARED.start { Space::Global } else { space };
    (at, shape, space)
}

/// All addresses of an access, for its rare ways.
#[cold]
fn all_of(lanes: &Lanes<'_>, op: &MemoryOp, given: Option<(&V64, Space)>) -> V64 {
    given.map_or_else(|| addresses(lanes, op.base, op.offset), |(at, _)| *at)
}

/// A generic access that touches other spaces than global memory, space by space.
#[inline(never)]
fn sorted(mut at: V64, mask: u32, mut access: impl FnMut(&V64, Space, u32) -> Checked<()>) -> Checked<()> {
    for (space, part) in sort(&mut at, mask) {
        if part != 0 {
            access(&at, space, part)?;
        }
    }
    Ok(())
}

/// What `f` makes of each lane's value.
#[inline(always)]
fn spread<A, B: Copy>(from: &[A; LANES], f: impl Fn(&A) -> B) -> V<B> {
    let mut out = V([f(&from[0]); LANES]);
    for lane in 1..LANES {
        out.0[lane] = f(&from[lane]);
    }
    out
}

/// Registers side by side for each lane.
#[inline(always)]
fn gathered<W: Copy, const N: usize>(from: [&[W; LANES]; N]) -> [[W; N]; LANES] {
    let mut out = [[from[0][0]; N]; LANES];
    for lane in 0..LANES {
        for n in 0..N {
            out[lane][n] = from[n][lane];
        }
    }
    out
}

/// Memory to registers.
#[inline(always)]
fn take<const OWN: bool>(lanes: &mut Lanes<'_>, op: &MemoryOp, mask: u32, served: &Served<'_, OWN>) {
    let data = op.data.map(usize::from);
    let count = op.count as usize;
    match (op.bytes, op.wide, served.kind) {
        (4, false, Kind::Row) if count == 1 && mask == u32::MAX => served.row_into(&mut lanes.r32[data[0]].0),
        (8, true, Kind::Row) if count == 1 && mask == u32::MAX => served.row_into(&mut lanes.r64[data[0]].0),
        (4, false, Kind::Row) if count == 1 => lanes.set32(op.data[0], &spread(&served.row::<u32, 1>(), |[word]| *word), mask),
        (8, true, Kind::Row) if count == 1 => lanes.set64(op.data[0], &spread(&served.row::<u64, 1>(), |[word]| *word), mask),
        (4, false, Kind::Row) if count == 2 => {
            let row = served.row::<u32, 2>();
            for n in 0..2 {
                lanes.set32(op.data[n], &spread(&row, |words| words[n]), mask);
            }
        }
        (4, false, Kind::Row) if count == 4 => {
            let row = served.row::<u32, 4>();
            for n in 0..4 {
                lanes.set32(op.data[n], &spread(&row, |words| words[n]), mask);
            }
        }
        (8, true, Kind::Row) if count == 2 => {
            let row = served.row::<u64, 2>();
            for n in 0..2 {
                lanes.set64(op.data[n], &spread(&row, |words| words[n]), mask);
            }
        }
        (1, false, Kind::Row) if count == 1 => {
            lanes.set32(op.data[0], &spread(&served.row::<u8, 1>(), |[byte]| extended((*byte).into(), 1, op.sign) as u32), mask);
        }
        (2, false, Kind::Row) if count == 1 => {
            lanes.set32(op.data[0], &spread(&served.row::<u16, 1>(), |[word]| extended((*word).into(), 2, op.sign) as u32), mask);
        }
        (4, false, Kind::One) if count == 1 => lanes.set32(op.data[0], &V32::splat(served.one(0)), mask),
        (8, true, Kind::One) if count == 1 => lanes.set64(op.data[0], &V64::splat(served.one(0)), mask),
        _ if count == 1 && op.bytes <= 8 => take_single(lanes, op, served),
        _ => take_vector(lanes, op, served),
    }
}

/// The registers of an access whose lanes lie anywhere, one element each.
#[inline(always)]
fn take_single<const OWN: bool>(lanes: &mut Lanes<'_>, op: &MemoryOp, served: &Served<'_, OWN>) {
    let slot = op.data[0] as usize;
    if op.wide {
        let mut got = lanes.r64[slot].0;
        match op.bytes {
            1 => served.gather(0, &mut got, |word: u8| u64::from(word)),
            2 => served.gather(0, &mut got, |word: u16| u64::from(word)),
            4 => served.gather(0, &mut got, |word: u32| u64::from(word)),
            _ => return served.gather(0, &mut lanes.r64[slot].0, |word| word),
        }
        lanes.set64(op.data[0], &spread(&got, |value| extended(*value, op.bytes, op.sign)), served.mask);
        return;
    }
    let into = &mut lanes.r32[slot].0;
    match op.bytes {
        1 => served.gather(0, into, |word: u8| u32::from(word)),
        2 => served.gather(0, into, |word: u16| u32::from(word)),
        4 => served.gather(0, into, |word| word),
        _ => served.gather(0, into, |word: u64| word as u32),
    }
    if op.sign != 0 {
        let got = *lanes.get32(op.data[0]);
        lanes.set32(op.data[0], &spread(&got.0, |value| extended((*value).into(), op.bytes, op.sign) as u32), served.mask);
    }
}

/// The same for several elements of a lane. Up to 16 bytes are read at once: programs rely on a status and a value in one vector being of one time.
#[inline(never)]
fn take_vector<const OWN: bool>(lanes: &mut Lanes<'_>, op: &MemoryOp, served: &Served<'_, OWN>) {
    let (pieces, step) = pieces(op);
    let whole = (step as usize * pieces).min(16);
    let mut got = [0u128; LANES];
    for n in 0..pieces {
        let at = step as usize * n;
        if at.is_multiple_of(whole) {
            match whole {
                2 => served.gather(at, &mut got, |word: u16| u128::from(word)),
                4 => served.gather(at, &mut got, |word: u32| u128::from(word)),
                8 => served.gather(at, &mut got, |word: u64| u128::from(word)),
                _ => served.gather(at, &mut got, |word: u128| word),
            }
        }
        let shift = 8 * (at % whole);
        let mask = if step == 8 { u64::MAX } else { (1 << (8 * step)) - 1 };
        each(served.mask, |lane| put(lanes, op, n, lane, extended((got[lane] >> shift) as u64 & mask, step as u8, op.sign)));
    }
}

/// Registers to memory.
#[inline(always)]
fn give<const OWN: bool>(lanes: &Lanes<'_>, op: &MemoryOp, served: &Served<'_, OWN>) {
    let count = op.count as usize;
    match (op.bytes, op.wide, served.kind) {
        (4, false, Kind::Row) if count == 1 => served.put_row(&spread(&lanes.get32(op.data[0]).0, |word| [*word]).0),
        (8, true, Kind::Row) if count == 1 => served.put_row(&spread(&lanes.get64(op.data[0]).0, |word| [*word]).0),
        (4, false, Kind::Row) if count == 2 => served.put_row(&gathered([0, 1].map(|n| &lanes.get32(op.data[n]).0))),
        (4, false, Kind::Row) if count == 4 => served.put_row(&gathered([0, 1, 2, 3].map(|n| &lanes.get32(op.data[n]).0))),
        (8, true, Kind::Row) if count == 2 => served.put_row(&gathered([0, 1].map(|n| &lanes.get64(op.data[n]).0))),
        (1, false, Kind::Row) if count == 1 => served.put_row(&spread(&lanes.get32(op.data[0]).0, |word| [*word as u8]).0),
        (2, false, Kind::Row) if count == 1 => served.put_row(&spread(&lanes.get32(op.data[0]).0, |word| [*word as u16]).0),
        _ if count == 1 && op.wide => {
            let from = &lanes.get64(op.data[0]).0;
            match op.bytes {
                1 => served.scatter(0, from, |word| word as u8),
                2 => served.scatter(0, from, |word| word as u16),
                4 => served.scatter(0, from, |word| word as u32),
                8 => served.scatter(0, from, |word| word),
                _ => give_vector(lanes, op, served),
            }
        }
        (1, false, _) if count == 1 => served.scatter(0, &lanes.get32(op.data[0]).0, |word| word as u8),
        (2, false, _) if count == 1 => served.scatter(0, &lanes.get32(op.data[0]).0, |word| word as u16),
        (4, false, _) if count == 1 => served.scatter(0, &lanes.get32(op.data[0]).0, |word| word),
        _ => give_vector(lanes, op, served),
    }
}

/// Several elements of each lane, up to 16 bytes written at once.
#[inline(never)]
fn give_vector<const OWN: bool>(lanes: &Lanes<'_>, op: &MemoryOp, served: &Served<'_, OWN>) {
    let (pieces, step) = pieces(op);
    let whole = (step as usize * pieces).min(16);
    let mut gathered = [0u128; LANES];
    for n in 0..pieces {
        let shift = 8 * (step as usize * n % whole);
        let mask = if step == 8 { u64::MAX } else { (1 << (8 * step)) - 1 };
        each(served.mask, |lane| gathered[lane] |= u128::from(get(lanes, op, n, lane) & mask) << shift);
        let end = step as usize * (n + 1);
        if end.is_multiple_of(whole) {
            match whole {
                2 => served.scatter(end - whole, &gathered, |word| word as u16),
                4 => served.scatter(end - whole, &gathered, |word| word as u32),
                8 => served.scatter(end - whole, &gathered, |word| word as u64),
                _ => served.scatter(end - whole, &gathered, |word| word),
            }
            gathered = [0; LANES];
        }
    }
}

#[inline(always)]
fn put(lanes: &mut Lanes<'_>, op: &MemoryOp, n: usize, lane: usize, value: u64) {
    if op.wide || op.bytes == 16 {
        lanes.r64[op.data[n] as usize].0[lane] = value;
    } else {
        lanes.r32[op.data[n] as usize].0[lane] = value as u32;
    }
}

#[inline(always)]
fn get(lanes: &Lanes<'_>, op: &MemoryOp, n: usize, lane: usize) -> u64 {
    if op.wide || op.bytes == 16 { lanes.get64(op.data[n]).0[lane] } else { lanes.get32(op.data[n]).0[lane].into() }
}

/// Number of pieces of an access and bytes of each: registers, or halves of 16-byte elements.
fn pieces(op: &MemoryOp) -> (usize, u64) {
    if op.bytes == 16 { (2 * op.count as usize, 8) } else { (op.count.into(), op.bytes.into()) }
}

#[inline(never)]
fn load_slowly<M: GlobalMemory>(lanes: &mut Lanes<'_>, op: &MemoryOp, at: &V64, mask: u32, memory: &mut M) -> Checked<()> {
    let (count, step) = pieces(op);
    one_by_one(memory, at, mask, step * count as u64, Access::Load, |_, range, lane| {
        for n in 0..count {
            let offset = step * n as u64;
            let value = match step {
                1 => range.load8(offset).into(),
                2 => range.load16(offset, op.order).into(),
                4 => range.load32(offset, op.order).into(),
                _ => range.load64(offset, op.order),
            };
            put(lanes, op, n, lane, extended(value, step as u8, op.sign));
        }
    })
}

#[inline(never)]
fn store_slowly<M: GlobalMemory>(lanes: &Lanes<'_>, op: &MemoryOp, at: &V64, mask: u32, memory: &mut M) -> Checked<()> {
    let (count, step) = pieces(op);
    let bytes = step * count as u64;
    one_by_one(memory, at, mask, bytes, Access::Store, |memory, range, lane| {
        memory.before_store(at.0[lane], range.pointer(0), bytes as u32);
        for n in 0..count {
            let (value, offset) = (get(lanes, op, n, lane), step * n as u64);
            match step {
                1 => range.store8(offset, value as u8),
                2 => range.store16(offset, value as u16, op.order),
                4 => range.store32(offset, value as u32, op.order),
                _ => range.store64(offset, value, op.order),
            }
        }
    })
}
