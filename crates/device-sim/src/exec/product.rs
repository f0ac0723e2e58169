//! Products of matrices whose elements the registers of a warp hold (PTX ISA, *Matrix
//! Multiply-Accumulate Instructions*).
//!
//! PTX leaves the order of additions and their precision open: sums are made of exact products in
//! double precision, column after column of A, and rounded once.

use super::fragment::{encode_real, first_position, lane_step, real, whole};
use crate::program::code::{BitProduct, Element, MatrixOp, MatrixPart, MatrixShape};
use crate::simd::lanes::{LANES, RegisterSlot, WarpRegisters};
use crate::simd::ops::half::{B, H, Small};
use crate::simd::processor::{VectorCode, run_fastest};

/// Columns that are added up together: every shape has a multiple of them.
const COLUMNS: usize = 8;

/// D = A × B + C for the lanes of `mask`.
pub(super) struct Product<'x, 'a> {
    pub registers: &'x mut WarpRegisters<'a>,
    pub op: &'x MatrixOp,
    pub shape: MatrixShape,
    /// The elements of A, B and C.
    pub elements: [Element; 3],
    /// The elements of D.
    pub into: Element,
    pub saturates: bool,
    pub bits: BitProduct,
    pub mask: u32,
}

impl Product<'_, '_> {
    pub fn perform(self) {
        run_fastest(self);
    }
}

impl VectorCode for Product<'_, '_> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        let Product { registers, op, shape, elements: [ea, eb, ec], into, saturates, bits, mask } = self;
        let MatrixShape { n, k, .. } = shape;
        let (n, k) = (n as usize, k as usize);
        let place = |part, element| Place::new(shape, part, element);
        if into.is_whole() {
            let a = wholes(registers, &op.a, &place(MatrixPart::A, ea), mask);
            let b = wholes(registers, &op.b, &place(MatrixPart::B, eb), mask);
            let c = wholes(registers, &op.c, &place(MatrixPart::C, ec), mask);
            let sums = if ea == Element::Bit && bits == BitProduct::Xor {
                add_products(&a, &b, vec![0i32; c.len()], [n, k], |sum, a, b| sum + (a ^ b))
            } else {
                add_products(&a, &b, vec![0i32; c.len()], [n, k], |sum, a, b| sum + a * b)
            };
            spread(registers, &op.d, &place(MatrixPart::C, into), mask, |at| {
                let sum = i64::from(sums[at]) + i64::from(c[at]);
                u64::from(if saturates { sum.clamp(i32::MIN.into(), i32::MAX.into()) as u32 } else { sum as u32 })
            });
        } else {
            let a = reals(registers, &op.a, &place(MatrixPart::A, ea), mask);
            let b = reals(registers, &op.b, &place(MatrixPart::B, eb), mask);
            let c = reals(registers, &op.c, &place(MatrixPart::C, ec), mask);
            let sums = add_products(&a, &b, c, [n, k], |sum, a, b| f64::mul_add(a, b, sum));
            spread(registers, &op.d, &place(MatrixPart::C, into), mask, |at| encode_real(into, sums[at]));
        }
    }
}

/// Adds the products of A's rows and B's columns to `sums`, eight columns at once.
#[inline(always)]
fn add_products<T: Copy + Default>(a: &[T], b: &[T], mut sums: Vec<T>, [n, k]: [usize; 2], add: impl Fn(T, T, T) -> T) -> Vec<T> {
    for (a, sums) in a.chunks_exact(k).zip(sums.chunks_exact_mut(n)) {
        for (column, sums) in sums.chunks_exact_mut(COLUMNS).enumerate() {
            let mut out = [T::default(); COLUMNS];
            out.copy_from_slice(sums);
            for (a, b) in a.iter().zip(b.chunks_exact(n)) {
                let b = &b[column * COLUMNS..(column + 1) * COLUMNS];
                for (out, b) in out.iter_mut().zip(b) {
                    *out = add(*out, *a, *b);
                }
            }
            sums.copy_from_slice(&out);
        }
    }
    sums
}

/// Where the elements of a fragment lie in their matrix, row after row. A lane's place is that of
/// lane 0 and a step for each of its groups of four lanes, and for each lane inside its group.
struct Place {
    shape: MatrixShape,
    part: MatrixPart,
    element: Element,
    columns: u32,
    elements: u32,
    steps: [u32; 2],
}

impl Place {
    fn new(shape: MatrixShape, part: MatrixPart, element: Element) -> Place {
        let MatrixShape { m, n, k } = shape;
        let (rows, columns) = match part {
            MatrixPart::A => (m, k),
            MatrixPart::B => (k, n),
            MatrixPart::C => (m, n),
        };
        // The first lane of the next group, and the next lane of the group.
        let steps = [4, 1].map(|lane| {
            let (row, column) = lane_step(part, element, lane);
            row * columns + column
        });
        Place { shape, part, element, columns, elements: rows * columns, steps }
    }

    /// The place of lane 0's element `within` of register `register`.
    fn first(&self, register: usize, within: u32) -> usize {
        let (row, column) = first_position(self.shape, self.part, self.element, register as u32, within);
        (row * self.columns + column) as usize
    }

    /// How far a lane's place is from that of lane 0.
    #[inline(always)]
    fn of_lane(&self, lane: usize) -> usize {
        lane / 4 * self.steps[0] as usize + lane % 4 * self.steps[1] as usize
    }
}

/// A matrix, gathered from the registers of all lanes. Lanes outside `mask` have zeros.
#[inline(always)]
fn gather<T: Copy + Default>(registers: &WarpRegisters<'_>, slots: &[RegisterSlot], place: &Place, mask: u32, value: impl Fn(u64, u32) -> T) -> Vec<T> {
    let mut out = vec![T::default(); place.elements as usize];
    for (n, slot) in slots.iter().enumerate() {
        for within in 0..place.element.per_register() {
            let first = place.first(n, within);
            for lane in (0..LANES).filter(|lane| mask >> lane & 1 != 0) {
                let bits = if place.element == Element::Double { registers.get64(*slot).0[lane] } else { registers.get32(*slot).0[lane].into() };
                out[first + place.of_lane(lane)] = value(bits, within);
            }
        }
    }
    out
}

#[inline(always)]
fn reals(registers: &WarpRegisters<'_>, slots: &[RegisterSlot], place: &Place, mask: u32) -> Vec<f64> {
    match place.element {
        Element::Half => gather(registers, slots, place, mask, |bits, within| Small::wide(H((bits >> (16 * within)) as u16))),
        Element::Brain => gather(registers, slots, place, mask, |bits, within| Small::wide(B((bits >> (16 * within)) as u16))),
        Element::Single => gather(registers, slots, place, mask, |bits, _| f32::from_bits(bits as u32).into()),
        Element::Double => gather(registers, slots, place, mask, |bits, _| f64::from_bits(bits)),
        element => gather(registers, slots, place, mask, |bits, within| real(element, bits, within)),
    }
}

#[inline(always)]
fn wholes(registers: &WarpRegisters<'_>, slots: &[RegisterSlot], place: &Place, mask: u32) -> Vec<i32> {
    match place.element {
        Element::S8 => gather(registers, slots, place, mask, |bits, within| ((bits >> (8 * within)) as i8).into()),
        Element::U8 => gather(registers, slots, place, mask, |bits, within| ((bits >> (8 * within)) as u8).into()),
        Element::Word => gather(registers, slots, place, mask, |bits, _| bits as i32),
        element => gather(registers, slots, place, mask, |bits, within| whole(element, bits, within) as i32),
    }
}

/// Writes a result into the registers of the lanes of `mask`; `bits` gives an element's bits by its
/// place.
#[inline(always)]
fn spread(registers: &mut WarpRegisters<'_>, slots: &[RegisterSlot], place: &Place, mask: u32, bits: impl Fn(usize) -> u64) {
    let each = place.element.per_register();
    for (n, slot) in slots.iter().enumerate() {
        let (low, high) = (place.first(n, 0), place.first(n, each - 1));
        for lane in (0..LANES).filter(|lane| mask >> lane & 1 != 0) {
            let step = place.of_lane(lane);
            let value = if each == 1 { bits(low + step) } else { bits(low + step) | bits(high + step) << place.element.bits() };
            if place.element == Element::Double {
                registers.r64[*slot as usize].0[lane] = value;
            } else {
                registers.r32[*slot as usize].0[lane] = value as u32;
            }
        }
    }
}
