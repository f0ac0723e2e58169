//! Products of matrices whose elements the registers of a warp hold (PTX ISA, *Matrix
//! Multiply-Accumulate Instructions*).
//!
//! PTX leaves the order of additions and their precision open: sums are made of exact products in
//! double precision, column after column of A, and rounded once.

// Lanes are numbered: several arrays are indexed with the same lane.
#![allow(clippy::needless_range_loop)]

use super::fragment::{encode_real, first_position, lane_step, real, whole};
use crate::program::code::{BitProduct, Element, MatrixOp, MatrixPart, MatrixShape};
use crate::simd::lanes::{LANES, PerLane, RegisterSlot, WarpRegisters};
use crate::simd::ops::half::{B, H, Small};
use crate::simd::processor::{VectorCode, run_fastest};

/// Columns that are added up together: every shape has a multiple of them.
const COLUMNS: usize = 8;
/// Rows that are added up together: every shape has a multiple of them. A sum waits for the one
/// before it; with this many sums under way the processor has always something to do.
const ROWS: usize = 4;
/// Elements of the largest matrix of common shapes, of all shapes but those of bits, and of all.
const COMMON: usize = 256;
const LARGE: usize = 1024;
const LARGEST: usize = 4096;

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
        let [a, b, c] = [MatrixPart::A, MatrixPart::B, MatrixPart::C].map(|part| Place::new(self.shape, part, self.elements[part as usize]));
        let most = a.elements.max(b.elements).max(c.elements) as usize;
        if most <= COMMON {
            multiply::<COMMON>(self, [a, b, c]);
        } else if most <= LARGE {
            run_fastest(RareProduct::<LARGE>(self, [a, b, c]));
        } else {
            run_fastest(RareProduct::<LARGEST>(self, [a, b, c]));
        }
    }
}

/// A product of one of the rare shapes: code of its own, so that others need not clear its arrays.
struct RareProduct<'x, 'a, const N: usize>(Product<'x, 'a>, [Place; 3]);

impl<const N: usize> VectorCode for RareProduct<'_, '_, N> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        multiply::<N>(self.0, self.1);
    }
}

/// Multiplies matrices of at most `N` elements.
#[inline(always)]
fn multiply<const N: usize>(product: Product<'_, '_>, [a, b, c]: [Place; 3]) {
    let Product { registers, op, shape, elements, into, saturates, bits, mask } = product;
    let size = [shape.m, shape.n, shape.k].map(|size| size as usize);
    let out = Place::new(shape, MatrixPart::C, into);
    if into.is_whole() {
        let (mut in_a, mut in_b, mut in_c, mut sums) = ([0; N], [0; N], [0; N], [0i32; N]);
        wholes(registers, &op.a, &a, mask, &mut in_a);
        wholes(registers, &op.b, &b, mask, &mut in_b);
        wholes(registers, &op.c, &c, mask, &mut in_c);
        if elements[0] == Element::Bit && bits == BitProduct::Xor {
            add_products(&in_a, &in_b, &mut sums, size, |sum, a, b| sum + (a ^ b));
        } else {
            add_products(&in_a, &in_b, &mut sums, size, |sum, a, b| sum + a * b);
        }
        for (sum, c) in sums.iter_mut().zip(in_c) {
            let exact = i64::from(*sum) + i64::from(c);
            *sum = if saturates { exact.clamp(i32::MIN.into(), i32::MAX.into()) as i32 } else { exact as i32 };
        }
        spread(registers, &op.d, &out, mask, &sums, |sum| u64::from(sum as u32));
    } else {
        let (mut in_a, mut in_b, mut sums) = ([0.0; N], [0.0; N], [0.0; N]);
        reals(registers, &op.a, &a, mask, &mut in_a);
        reals(registers, &op.b, &b, mask, &mut in_b);
        reals(registers, &op.c, &c, mask, &mut sums);
        add_products(&in_a, &in_b, &mut sums, size, |sum, a, b| f64::mul_add(a, b, sum));
        match into {
            Element::Single => spread(registers, &op.d, &out, mask, &sums, |sum| encode_real(Element::Single, sum)),
            Element::Double => spread(registers, &op.d, &out, mask, &sums, |sum| encode_real(Element::Double, sum)),
            into => spread(registers, &op.d, &out, mask, &sums, |sum| encode_real(into, sum)),
        }
    }
}

/// Adds the products of A's rows and B's columns to `sums`: for each sum, from the first column of
/// A to the last.
#[inline(always)]
fn add_products<T: Copy + Default>(a: &[T], b: &[T], sums: &mut [T], [m, n, k]: [usize; 3], add: impl Fn(T, T, T) -> T) {
    let (a, b, sums) = (&a[..m * k], &b[..k * n], &mut sums[..m * n]);
    for (a, sums) in a.chunks_exact(ROWS * k).zip(sums.chunks_exact_mut(ROWS * n)) {
        for column in (0..n).step_by(COLUMNS) {
            let mut out = [[T::default(); COLUMNS]; ROWS];
            for (out, sums) in out.iter_mut().zip(sums.chunks_exact(n)) {
                out.copy_from_slice(&sums[column..column + COLUMNS]);
            }
            for (at, b) in b.chunks_exact(n).enumerate() {
                let b = &b[column..column + COLUMNS];
                for row in 0..ROWS {
                    let a = a[row * k + at];
                    for within in 0..COLUMNS {
                        out[row][within] = add(out[row][within], a, b[within]);
                    }
                }
            }
            for (out, sums) in out.iter().zip(sums.chunks_exact_mut(n)) {
                sums[column..column + COLUMNS].copy_from_slice(out);
            }
        }
    }
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

    /// How far the lanes' places are from that of lane 0: for each group of four lanes, and for
    /// each lane in its group.
    #[inline(always)]
    fn steps(&self) -> [usize; 2] {
        self.steps.map(|step| step as usize)
    }
}

/// Groups of lanes, and lanes of a group, whose elements lie alike.
const GROUPS: usize = 8;
const OF_GROUP: usize = LANES / GROUPS;

/// Gathers a matrix from the registers of all lanes. Lanes outside `mask` have zeros.
#[inline(always)]
fn gather<T: Copy + Default>(registers: &WarpRegisters<'_>, slots: &[RegisterSlot], place: &Place, mask: u32, out: &mut [T], value: impl Fn(u64, u32) -> T) {
    let [of_group, of_lane] = place.steps();
    for (n, slot) in slots.iter().enumerate() {
        for within in 0..place.element.per_register() {
            let mut values = [T::default(); LANES];
            if place.element == Element::Double {
                let bits = registers.get64(*slot);
                for lane in 0..LANES {
                    values[lane] = value(bits.0[lane], within);
                }
            } else {
                let bits = registers.get32(*slot);
                for lane in 0..LANES {
                    values[lane] = value(bits.0[lane].into(), within);
                }
            }
            if mask != u32::MAX {
                for lane in (0..LANES).filter(|lane| mask >> lane & 1 == 0) {
                    values[lane] = T::default();
                }
            }
            let out = &mut out[place.first(n, within)..];
            if of_group == 1 {
                for in_group in 0..OF_GROUP {
                    let row: [T; GROUPS] = std::array::from_fn(|group| values[group * OF_GROUP + in_group]);
                    out[in_group * of_lane..in_group * of_lane + GROUPS].copy_from_slice(&row);
                }
            } else {
                for (group, values) in values.chunks_exact(OF_GROUP).enumerate() {
                    let out = &mut out[group * of_group..group * of_group + (OF_GROUP - 1) * of_lane + 1];
                    for (in_group, value) in values.iter().enumerate() {
                        out[in_group * of_lane] = *value;
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn reals(registers: &WarpRegisters<'_>, slots: &[RegisterSlot], place: &Place, mask: u32, out: &mut [f64]) {
    match place.element {
        Element::Half => gather(registers, slots, place, mask, out, |bits, within| Small::wide(H((bits >> (16 * within)) as u16))),
        Element::Brain => gather(registers, slots, place, mask, out, |bits, within| Small::wide(B((bits >> (16 * within)) as u16))),
        Element::Tf32 => gather(registers, slots, place, mask, out, |bits, within| real(Element::Tf32, bits, within)),
        Element::Single => gather(registers, slots, place, mask, out, |bits, _| f32::from_bits(bits as u32).into()),
        Element::Double => gather(registers, slots, place, mask, out, |bits, _| f64::from_bits(bits)),
        element => gather(registers, slots, place, mask, out, |bits, within| real(element, bits, within)),
    }
}

#[inline(always)]
fn wholes(registers: &WarpRegisters<'_>, slots: &[RegisterSlot], place: &Place, mask: u32, out: &mut [i32]) {
    match place.element {
        Element::S8 => gather(registers, slots, place, mask, out, |bits, within| ((bits >> (8 * within)) as i8).into()),
        Element::U8 => gather(registers, slots, place, mask, out, |bits, within| ((bits >> (8 * within)) as u8).into()),
        Element::Word => gather(registers, slots, place, mask, out, |bits, _| bits as i32),
        element => gather(registers, slots, place, mask, out, |bits, within| whole(element, bits, within) as i32),
    }
}

/// Writes a result into the registers of the lanes of `mask`; `bits` gives an element's bits.
#[inline(always)]
fn spread<T: Copy + Default>(registers: &mut WarpRegisters<'_>, slots: &[RegisterSlot], place: &Place, mask: u32, from: &[T], bits: impl Fn(T) -> u64) {
    let [of_group, of_lane] = place.steps();
    for (n, slot) in slots.iter().enumerate() {
        let mut out = [0; LANES];
        for within in 0..place.element.per_register() {
            let mut values = [T::default(); LANES];
            let from = &from[place.first(n, within)..];
            for (group, values) in values.chunks_exact_mut(OF_GROUP).enumerate() {
                let from = &from[group * of_group..group * of_group + (OF_GROUP - 1) * of_lane + 1];
                for (in_group, value) in values.iter_mut().enumerate() {
                    *value = from[in_group * of_lane];
                }
            }
            for lane in 0..LANES {
                out[lane] |= bits(values[lane]) << (place.element.bits() * within);
            }
        }
        if place.element == Element::Double {
            registers.set64(*slot, &PerLane(out), mask);
        } else {
            registers.set32(*slot, &PerLane(out.map(|bits| bits as u32)), mask);
        }
    }
}
