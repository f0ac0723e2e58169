//! Products of groups of four warps (`wgmma`; PTX ISA, *Asynchronous Warpgroup Level Matrix
//! Instructions*).
//!
//! Each warp of a group has 16 of the 64 rows of A and D, and all of B: it makes its part when it
//! comes to the instruction, and needs nobody. What is asynchronous on a card is done at once here,
//! which no program may tell apart: until it has waited it may touch neither the registers nor the
//! shared memory. Sums are made as those of [`super::product`].
//!
//! A matrix in shared memory is told by a descriptor of 64 bits: where it begins, two distances,
//! and the pattern in which its rows are swizzled ([`SharedMatrix`]).

// Rows, columns and lanes are numbered: several arrays are indexed with the same number.
#![allow(clippy::needless_range_loop)]

use super::access::{NearMemory, near_bytes};
use super::fault::{LaneResult, for_each_lane};
use super::fragment::{encode_real, position, real, whole};
use crate::program::code::{Element, GroupProduct, MatrixOp, MatrixPart, MatrixShape, Space};
use crate::program::tensor::swizzle;
use crate::simd::lanes::WarpRegisters;
use crate::simd::processor::{VectorCode, run_fastest};

/// Rows of a warp.
const ROWS: u32 = 16;
/// Warps of a group.
const WARPS: u32 = 4;
/// Rows of a core matrix, and its columns of 16 bytes.
const CORE: u32 = 8;

/// A matrix in shared memory, as a descriptor tells it (*Matrix-descriptor*). One direction of it
/// lies in rows of `width` bytes, eight of which make a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SharedMatrix {
    start: u32,
    /// *Leading dimension byte offset*.
    leading: u32,
    /// *Stride dimension byte offset*.
    stride: u32,
    /// How far the pattern's beginning is from a multiple of its size, in rows of 128 bytes.
    base: u32,
    /// Bytes of a row: 16 without swizzling, else 32, 64 or 128.
    width: u32,
}

impl SharedMatrix {
    fn read(descriptor: u64) -> SharedMatrix {
        let field = |first: u32| ((descriptor >> first) as u32 & 0x3fff) << 4;
        let width = match descriptor >> 62 {
            0 => 16,
            1 => 128,
            2 => 64,
            _ => 32,
        };
        SharedMatrix { start: field(0), leading: field(16), stride: field(32), base: (descriptor >> 49) as u32 & 7, width }
    }

    /// The address of an element of so many bytes: its number along M or N, and along K.
    /// `by_outer`: along M or N elements lie beside each other.
    fn address(&self, outer: u32, k: u32, bytes: u32, by_outer: bool) -> u32 {
        let (along, across) = if by_outer { (outer * bytes, k) } else { (k * bytes, outer) };
        let (part, row) = (along / self.width, across / CORE);
        // Without swizzling the two distances change places for a matrix that lies along M or N.
        let (along_step, across_step) = if by_outer && self.width == 16 { (self.stride, self.leading) } else { (self.leading, self.stride) };
        let inside = along % self.width + across % CORE * self.width;
        let straight = self.start.wrapping_add(inside).wrapping_add(part.wrapping_mul(along_step)).wrapping_add(row.wrapping_mul(across_step));
        swizzle(straight.into(), self.base.into(), self.width) as u32
    }
}

/// A matrix of numbers, row after row.
struct Numbers<T> {
    columns: usize,
    values: Vec<T>,
}

impl<T: Copy + Default> Numbers<T> {
    fn new(rows: u32, columns: u32) -> Numbers<T> {
        Numbers { columns: columns as usize, values: vec![T::default(); (rows * columns) as usize] }
    }

    fn set(&mut self, (row, column): (u32, u32), value: T) {
        self.values[row as usize * self.columns + column as usize] = value;
    }

    fn get(&self, (row, column): (u32, u32)) -> T {
        self.values[row as usize * self.columns + column as usize]
    }
}

/// Adds the products of A's rows and B's columns to the sums: from the first column of A to the
/// last.
struct AddProducts<'x, T, F> {
    a: &'x Numbers<T>,
    b: &'x Numbers<T>,
    sums: &'x mut Numbers<T>,
    add: F,
}

impl<T: Copy, F: Fn(T, T, T) -> T> VectorCode for AddProducts<'_, T, F> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        for (a, sums) in self.a.values.chunks_exact(self.a.columns).zip(self.sums.values.chunks_exact_mut(self.sums.columns)) {
            for (a, b) in a.iter().zip(self.b.values.chunks_exact(self.b.columns)) {
                for (sum, b) in sums.iter_mut().zip(b) {
                    *sum = (self.add)(*sum, *a, *b);
                }
            }
        }
    }
}

/// D = A × B + D, or D = A × B, for the warp's rows. `warp` is its number in the block.
pub(super) fn multiply(registers: &mut WarpRegisters<'_>, op: &MatrixOp, product: GroupProduct, mask: u32, near: &mut NearMemory<'_>) -> LaneResult<()> {
    let lane = mask.trailing_zeros() as usize % 32;
    let warp = registers.get32(op.stride).0[lane] % WARPS;
    let (slot, inverted) = product.keeps;
    let keeps = (registers.predicate(slot) >> lane & 1 != 0) != inverted;
    if product.into.is_whole() {
        let number = |element: Element, bits: u64, within: u32| whole(element, bits, within);
        let (a, b, mut sums) = gather(registers, op, product, warp, lane, keeps, mask, near, number)?;
        run_fastest(AddProducts { a: &a, b: &b, sums: &mut sums, add: |sum: i64, a: i64, b: i64| sum.wrapping_add(a.wrapping_mul(b)) });
        let saturates = product.saturates;
        let bits = |sum: i64| if saturates { sum.clamp(i32::MIN.into(), i32::MAX.into()) as u32 } else { sum as u32 };
        spread(registers, op, product, mask, &sums, |sum| bits(sum).into());
    } else {
        let (a, b, mut sums) = gather(registers, op, product, warp, lane, keeps, mask, near, real)?;
        if product.negates {
            run_fastest(AddProducts { a: &a, b: &b, sums: &mut sums, add: |sum, a: f64, b| f64::mul_add(-a, b, sum) });
        } else {
            run_fastest(AddProducts { a: &a, b: &b, sums: &mut sums, add: |sum, a, b| f64::mul_add(a, b, sum) });
        }
        spread(registers, op, product, mask, &sums, |sum| encode_real(product.into, sum));
    }
    Ok(())
}

/// The warp's part of A, all of B, and the sums as they begin.
#[expect(clippy::too_many_arguments, reason = "the parts of one instruction")]
fn gather<T: Copy + Default>(
    registers: &WarpRegisters<'_>,
    op: &MatrixOp,
    product: GroupProduct,
    warp: u32,
    lane: usize,
    keeps: bool,
    mask: u32,
    near: &mut NearMemory<'_>,
    number: impl Fn(Element, u64, u32) -> T,
) -> LaneResult<(Numbers<T>, Numbers<T>, Numbers<T>)> {
    let GroupProduct { n, k, elements: [element_a, element_b], into, transposed, a_in_registers, .. } = product;
    let shape = MatrixShape { m: ROWS, n, k };
    let (mut a, mut b, mut sums) = (Numbers::new(ROWS, k), Numbers::new(k, n), Numbers::new(ROWS, n));
    let from_registers = |out: &mut Numbers<T>, slots: &[_], part, element: Element| {
        for (register, slot) in slots.iter().enumerate() {
            let bits = registers.get32(*slot);
            for within in 0..element.per_register() {
                for_each_lane(mask, |lane| {
                    out.set(position(shape, part, element, register as u32, within, lane as u32), number(element, bits.0[lane].into(), within));
                });
            }
        }
    };
    let mut load = |matrix: SharedMatrix, outer, k, element: Element, by_outer| -> LaneResult<T> {
        let bytes = element.bits() / 8;
        let at = matrix.address(outer, k, bytes, by_outer);
        let mut bits = [0; 8];
        bits[..bytes as usize].copy_from_slice(near_bytes(near, Space::Shared, at.into(), bytes.into(), lane)?);
        Ok(number(element, u64::from_le_bytes(bits), 0))
    };
    if a_in_registers {
        from_registers(&mut a, &op.a, MatrixPart::A, element_a);
    } else {
        let matrix = SharedMatrix::read(registers.get64(op.a[0]).0[lane]);
        for row in 0..ROWS {
            for k in 0..k {
                a.set((row, k), load(matrix, warp * ROWS + row, k, element_a, transposed[0])?);
            }
        }
    }
    let matrix = SharedMatrix::read(registers.get64(op.b[0]).0[lane]);
    for column in 0..n {
        for k in 0..k {
            b.set((k, column), load(matrix, column, k, element_b, transposed[1])?);
        }
    }
    if keeps {
        from_registers(&mut sums, &op.d, MatrixPart::C, into);
    }
    Ok((a, b, sums))
}

/// Writes the sums into the registers of D.
fn spread<T: Copy + Default>(registers: &mut WarpRegisters<'_>, op: &MatrixOp, product: GroupProduct, mask: u32, sums: &Numbers<T>, bits: impl Fn(T) -> u64) {
    let (shape, element) = (MatrixShape { m: ROWS, n: product.n, k: product.k }, product.into);
    for (register, slot) in op.d.iter().enumerate() {
        for_each_lane(mask, |lane| {
            let of = |within| bits(sums.get(position(shape, MatrixPart::C, element, register as u32, within, lane as u32)));
            let value = (0..element.per_register()).fold(0, |all, within| all | of(within) << (element.bits() * within));
            registers.r32[*slot as usize].0[lane] = value as u32;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(start: u64, leading: u64, stride: u64, mode: u64) -> u64 {
        start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | mode << 62
    }

    /// The canonical layouts of CUTLASS, in bytes, for elements of two bytes.
    #[test]
    fn elements_lie_where_descriptors_say() {
        let at = |descriptor, outer, k, by_outer| SharedMatrix::read(descriptor).address(outer, k, 2, by_outer);
        // Rows of 128 bytes, eight to a pattern of 1,024: piece p of row r is at p ^ r.
        let wide = descriptor(2048, 16, 1024, 1);
        assert_eq!(
            [(0, 0), (1, 0), (1, 8), (7, 15), (8, 0), (9, 9)].map(|(row, k)| at(wide, row, k, false)),
            [2048, 2048 + 128 + 16, 2048 + 128, 2048 + 7 * 128 + (1 ^ 7) * 16 + 14, 2048 + 1024, 2048 + 1024 + 128 + 2]
        );
        // The next sixteen columns begin 32 bytes on, and are swizzled by the same rows.
        assert_eq!(at(descriptor(2048 + 32, 16, 1024, 1), 1, 0, false), 2048 + 128 + (2 ^ 1) * 16);
        // Rows of 64 bytes change with each second, those of 32 bytes with each fourth.
        assert_eq!([1, 2, 7].map(|row| at(descriptor(0, 16, 512, 2), row, 0, false)), [64, 128 + 16, 7 * 64 + 48]);
        assert_eq!([3, 4].map(|row| at(descriptor(0, 16, 256, 3), row, 0, false)), [96, 128 + 16]);
        // Core matrices of eight rows of 16 bytes.
        let plain = descriptor(0, 128, 256, 0);
        assert_eq!([(7, 7), (0, 8), (8, 0)].map(|(row, k)| at(plain, row, k, false)), [7 * 16 + 14, 128, 256]);
        assert_eq!([(7, 7), (8, 0), (0, 8)].map(|(column, k)| at(plain, column, k, true)), [7 * 16 + 14, 256, 128]);
        // Along N: 64 elements in a row of 128 bytes, a row for each k.
        let along = descriptor(0, 4096, 1024, 1);
        assert_eq!([(63, 0), (0, 1), (64, 0), (0, 8)].map(|(column, k)| at(along, column, k, true)), [126, 128 + 16, 4096, 1024]);
    }
}
