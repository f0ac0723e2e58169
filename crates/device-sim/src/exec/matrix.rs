//! Matrix instructions of a warp (PTX ISA, *Warp-Level Matrix Instructions*).
//!
//! `mma` says which lane holds which element. `wmma` leaves it open; here its fragments are laid
//! out as those of `mma`, block after block: rows first, then columns. `product` multiplies.

// Lanes are numbered: several arrays and masks are indexed with the same lane.
#![allow(clippy::needless_range_loop)]

use super::access::{NearMemory, compute_addresses, load_values, store_values};
use super::fault::{LaneFault, LaneResult, for_each_lane};
use super::fragment::{encode_real, first_position, lane_step, position, real};
use super::group;
use super::interface::{FaultKind, GlobalMemory};
use super::product::Product;
use super::single;
use crate::program::code::{AddressOperand, Element, MatrixKind, MatrixOp, MatrixPart, MatrixShape};
use crate::simd::lanes::{LANES, NO_SLOT, PerLane, PerLane32, PerLane64, RegisterSlot, WarpRegisters};

/// Performs the instruction for the lanes of `mask`.
pub(super) fn perform<M: GlobalMemory>(
    registers: &mut WarpRegisters<'_>,
    op: &MatrixOp,
    mask: u32,
    near: &mut NearMemory<'_>,
    memory: &mut M,
) -> LaneResult<()> {
    match op.kind {
        MatrixKind::Multiply { shape, elements, into, saturates, bits } => {
            Product { registers, op, shape, elements, into, saturates, bits, mask }.perform();
        }
        MatrixKind::MultiplyQuads { a_by_column, b_by_row, accumulator, into } => {
            multiply_quads(registers, op, [a_by_column, b_by_row], accumulator, into, mask);
        }
        MatrixKind::LoadFragment { shape, part, element, by_column } => {
            return load_fragment(registers, op, shape, part, element, by_column, mask, near, memory);
        }
        MatrixKind::StoreFragment { shape, element, by_column } => return store_fragment(registers, op, shape, element, by_column, mask, near, memory),
        MatrixKind::LoadRows { transposed } => return load_rows(registers, op, transposed, mask, near, memory),
        MatrixKind::StoreRows { transposed } => return store_rows(registers, op, transposed, mask, near, memory),
        MatrixKind::MultiplyGroup(product) => return group::multiply(registers, op, product, mask, near),
        MatrixKind::Transpose => {
            let from = *registers.get32(op.a[0]);
            let element = |row: usize, column: usize| from.0[4 * row + column / 2] >> (16 * (column & 1)) & 0xffff;
            let mut out = PerLane32::splat(0);
            for (lane, out) in out.0.iter_mut().enumerate() {
                let (row, column) = (lane / 4, 2 * (lane % 4));
                *out = element(column, row) | element(column + 1, row) << 16;
            }
            registers.set32(op.d[0], &out, mask);
        }
    }
    Ok(())
}

/// The bits of a lane's register.
fn read(registers: &WarpRegisters<'_>, slot: RegisterSlot, element: Element, lane: usize) -> u64 {
    if element == Element::Double { registers.get64(slot).0[lane] } else { registers.get32(slot).0[lane].into() }
}

/// Writes a result into the registers of all lanes. `bits` gives an element's bits by its index.
fn spread(
    registers: &mut WarpRegisters<'_>,
    slots: &[RegisterSlot],
    element: Element,
    mask: u32,
    index: impl Fn(u32, u32, u32) -> usize,
    bits: impl Fn(usize) -> u64,
) {
    for (n, slot) in slots.iter().enumerate() {
        for_each_lane(mask, |lane| {
            let each = element.per_register();
            let value = (0..each).fold(0, |all, within| all | bits(index(n as u32, within, lane as u32)) << (element.bits() * within));
            if element == Element::Double {
                registers.r64[*slot as usize].0[lane] = value;
            } else {
                registers.r32[*slot as usize].0[lane] = value as u32;
            }
        });
    }
}

/// Lanes 0 to 3 and 16 to 19 make the first product, lanes 4 to 7 and 20 to 23 the second, and so
/// on.
fn multiply_quads(registers: &mut WarpRegisters<'_>, op: &MatrixOp, [a_by_column, b_by_row]: [bool; 2], accumulator: Element, into: Element, mask: u32) {
    /// The row and column of accumulator `n` of a lane.
    fn cell(element: Element, n: u32, lane: u32) -> (u32, u32) {
        let lower = if lane < 16 { 0 } else { 4 };
        if element == Element::Half { (lane % 4 + lower, n) } else { ((lane & 1) + (n & 2) + lower, (n & 4) + (lane & 2) + (n & 1)) }
    }
    let mut a = [[[0.0; 4]; 8]; 4];
    let mut b = [[[0.0; 8]; 4]; 4];
    let mut sums = [[[0.0; 8]; 8]; 4];
    for_each_lane(mask, |lane| {
        let (quad, l) = (lane / 4 % 4, lane as u32);
        let outer = l % 4 + if l < 16 { 0 } else { 4 };
        for n in 0..4u32 {
            let half = |slots: &[RegisterSlot]| real(Element::Half, read(registers, slots[n as usize / 2], Element::Half, lane), n % 2);
            let shifted = n + if l < 16 { 0 } else { 4 };
            let (row, column) = if a_by_column { (shifted, l % 4) } else { (outer, n) };
            a[quad][row as usize][column as usize] = half(&op.a);
            let (row, column) = if b_by_row { (l % 4, shifted) } else { (n, outer) };
            b[quad][row as usize][column as usize] = half(&op.b);
        }
        for n in 0..8u32 {
            let each = accumulator.per_register();
            let (row, column) = cell(accumulator, n, l);
            sums[quad][row as usize][column as usize] = real(accumulator, read(registers, op.c[(n / each) as usize], accumulator, lane), n % each);
        }
    });
    for (sums, (a, b)) in sums.iter_mut().zip(a.iter().zip(&b)) {
        for (row, sums) in sums.iter_mut().enumerate() {
            for (column, sum) in sums.iter_mut().enumerate() {
                *sum = (0..4).fold(*sum, |sum, k| f64::mul_add(a[row][k], b[k][column], sum));
            }
        }
    }
    let index = |register: u32, within: u32, lane: u32| {
        let (row, column) = cell(into, register * into.per_register() + within, lane);
        ((lane / 4 % 4) * 64 + row * 8 + column) as usize
    };
    spread(registers, &op.d, into, mask, index, |at| encode_real(into, sums[at / 64][at / 8 % 8][at % 8]));
}

/// The address of each lane.
fn addresses(registers: &WarpRegisters<'_>, place: AddressOperand) -> [u64; LANES] {
    compute_addresses(registers, place.base, place.offset).0
}

/// The distance of two rows (or columns) of each lane's matrix, in elements.
fn strides(registers: &WarpRegisters<'_>, op: &MatrixOp, otherwise: u32) -> [u64; LANES] {
    if op.stride == NO_SLOT { [otherwise.into(); LANES] } else { registers.get32(op.stride).0.map(u64::from) }
}

/// Where an element lies: its address, and its first bit there.
fn locate(start: u64, stride: u64, element: Element, (row, column): (u32, u32), by_column: bool) -> (u64, u32) {
    let (outer, inner) = if by_column { (column, row) } else { (row, column) };
    let bit = outer_bits(outer, stride, inner).wrapping_mul(element.bits().into());
    (start.wrapping_add(bit / 8), (bit % 8) as u32)
}

/// Where the elements of whole registers lie, if one access can have those of a register: they lie
/// beside each other, and all lanes name the same distance of rows.
struct WholeRegisters {
    /// The addresses of the lanes without what all lanes of a register have in common.
    starts: PerLane64,
    stride: u64,
    element: Element,
    /// The bytes of a register.
    bytes: u8,
    by_column: bool,
}

impl WholeRegisters {
    fn new(starts: &[u64; LANES], strides: &[u64; LANES], part: MatrixPart, element: Element, by_column: bool) -> Option<WholeRegisters> {
        // The elements of a register follow each other in a row, those of B in a column.
        let beside = element.per_register() == 1 || (part == MatrixPart::B) == by_column;
        let stride = strides[0];
        if element.bits() < 8 || !beside || strides.iter().any(|other| *other != stride) {
            return None;
        }
        let bytes = if element == Element::Double { 8 } else { 4 };
        let mut starts = PerLane(*starts);
        for (lane, start) in starts.0.iter_mut().enumerate() {
            *start = locate(*start, stride, element, lane_step(part, element, lane as u32), by_column).0;
        }
        Some(WholeRegisters { starts, stride, element, bytes, by_column })
    }

    /// Fills in the addresses of a register whose first element is at a row and column. False if
    /// one is not a multiple of the bytes.
    #[inline(always)]
    fn fill_in(&self, first: (u32, u32), at: &mut PerLane64) -> bool {
        let ahead = locate(0, self.stride, self.element, first, self.by_column).0;
        let mut any = 0;
        for lane in 0..LANES {
            at.0[lane] = self.starts.0[lane].wrapping_add(ahead);
            any |= at.0[lane];
        }
        any & u64::from(self.bytes - 1) == 0
    }
}

fn outer_bits(outer: u32, stride: u64, inner: u32) -> u64 {
    u64::from(outer).wrapping_mul(stride).wrapping_add(inner.into())
}

#[expect(clippy::too_many_arguments, reason = "the parts of one instruction")]
fn load_fragment<M: GlobalMemory>(
    registers: &mut WarpRegisters<'_>,
    op: &MatrixOp,
    shape: MatrixShape,
    part: MatrixPart,
    element: Element,
    by_column: bool,
    mask: u32,
    near: &mut NearMemory<'_>,
    memory: &mut M,
) -> LaneResult<()> {
    let (rows, columns) = match part {
        MatrixPart::A => (shape.m, shape.k),
        MatrixPart::B => (shape.k, shape.n),
        MatrixPart::C => (shape.m, shape.n),
    };
    let starts = addresses(registers, op.place);
    let strides = strides(registers, op, if by_column { rows } else { columns });
    let bytes = u64::from(element.bits().div_ceil(8));
    let whole = WholeRegisters::new(&starts, &strides, part, element, by_column);
    let mut at = PerLane64::splat(0);
    for (n, slot) in op.d.iter().enumerate() {
        let first = first_position(shape, part, element, n as u32, 0);
        if let Some(whole) = &whole
            && whole.fill_in(first, &mut at)
            && load_values(registers, (*slot, whole.bytes), (&at, op.place.space), mask, near, memory).is_ok()
        {
            continue;
        }
        // Element by element: so is a fault found.
        for lane in (0..LANES).filter(|lane| mask >> lane & 1 != 0) {
            let mut value = 0;
            for within in 0..element.per_register() {
                let at = position(shape, part, element, n as u32, within, lane as u32);
                let (address, bit) = locate(starts[lane], strides[lane], element, at, by_column);
                let loaded = single::load(near, memory, op.place.space, address, bytes, lane)? >> bit;
                let kept = if element.bits() == 64 { loaded } else { loaded & ((1 << element.bits()) - 1) };
                value |= kept << (element.bits() * within);
            }
            if element == Element::Double {
                registers.r64[*slot as usize].0[lane] = value;
            } else {
                registers.r32[*slot as usize].0[lane] = value as u32;
            }
        }
    }
    Ok(())
}

#[expect(clippy::too_many_arguments, reason = "the parts of one instruction")]
fn store_fragment<M: GlobalMemory>(
    registers: &WarpRegisters<'_>,
    op: &MatrixOp,
    shape: MatrixShape,
    element: Element,
    by_column: bool,
    mask: u32,
    near: &mut NearMemory<'_>,
    memory: &mut M,
) -> LaneResult<()> {
    let starts = addresses(registers, op.place);
    let strides = strides(registers, op, if by_column { shape.m } else { shape.n });
    let bytes = u64::from(element.bits() / 8);
    let whole = WholeRegisters::new(&starts, &strides, MatrixPart::C, element, by_column);
    let mut at = PerLane64::splat(0);
    for (n, slot) in op.a.iter().enumerate() {
        if let Some(whole) = &whole
            && whole.fill_in(first_position(shape, MatrixPart::C, element, n as u32, 0), &mut at)
            && store_values(registers, (*slot, whole.bytes), (&at, op.place.space), mask, near, memory).is_ok()
        {
            continue;
        }
        for lane in (0..LANES).filter(|lane| mask >> lane & 1 != 0) {
            let register = read(registers, *slot, element, lane);
            for within in 0..element.per_register() {
                let at = position(shape, MatrixPart::C, element, n as u32, within, lane as u32);
                let (address, _) = locate(starts[lane], strides[lane], element, at, by_column);
                single::store(near, memory, op.place.space, address, bytes, register >> (element.bits() * within), lane)?;
            }
        }
    }
    Ok(())
}

/// The lane that names row `row` of matrix `matrix`, and the address of a pair of elements there.
fn row_address(starts: &[u64; LANES], matrix: usize, row: usize) -> LaneResult<(usize, u64)> {
    let lane = 8 * matrix + row;
    let start = starts[lane];
    if start & 15 != 0 {
        return Err(LaneFault::access(FaultKind::Misaligned, lane, start, 16));
    }
    Ok((lane, start))
}

fn load_rows<M: GlobalMemory>(
    registers: &mut WarpRegisters<'_>,
    op: &MatrixOp,
    transposed: bool,
    mask: u32,
    near: &mut NearMemory<'_>,
    memory: &mut M,
) -> LaneResult<()> {
    let starts = addresses(registers, op.place);
    for (matrix, slot) in op.d.iter().enumerate() {
        let mut elements = [[0u32; 8]; 8];
        for (row, elements) in elements.iter_mut().enumerate() {
            if mask >> (8 * matrix + row) & 1 == 0 {
                continue;
            }
            let (lane, start) = row_address(&starts, matrix, row)?;
            for (half, elements) in elements.chunks_exact_mut(4).enumerate() {
                let bits = single::load(near, memory, op.place.space, start + 8 * half as u64, 8, lane)?;
                for (column, element) in elements.iter_mut().enumerate() {
                    *element = (bits >> (16 * column)) as u32 & 0xffff;
                }
            }
        }
        for_each_lane(mask, |lane| {
            let (row, column) = (lane / 4, 2 * (lane % 4));
            let element = |column: usize| if transposed { elements[column][row] } else { elements[row][column] };
            registers.r32[*slot as usize].0[lane] = element(column) | element(column + 1) << 16;
        });
    }
    Ok(())
}

fn store_rows<M: GlobalMemory>(
    registers: &WarpRegisters<'_>,
    op: &MatrixOp,
    transposed: bool,
    mask: u32,
    near: &mut NearMemory<'_>,
    memory: &mut M,
) -> LaneResult<()> {
    let starts = addresses(registers, op.place);
    for (matrix, slot) in op.a.iter().enumerate() {
        let from = registers.get32(*slot);
        let pair = |row: usize, column: usize| from.0[4 * row + column / 2] >> (16 * (column & 1)) & 0xffff;
        for row in (0..8).filter(|row| mask >> (8 * matrix + row) & 1 != 0) {
            let (lane, start) = row_address(&starts, matrix, row)?;
            for column in 0..8 {
                let element = if transposed { pair(column, row) } else { pair(row, column) };
                single::store(near, memory, op.place.space, start + 2 * column as u64, 2, element.into(), lane)?;
            }
        }
    }
    Ok(())
}
