//! Fragments of matrices in the registers of a warp: which lane holds which element, and what the
//! bits of an element mean (PTX ISA, *Warp-Level Matrix Instructions*).

use crate::program::code::{Element, MatrixPart, MatrixShape};
use crate::simd::ops::half::{B, H, Small};
use crate::simd::ops::round::RN;

/// The canonical NaN of singles.
const NAN32: u32 = 0x7fff_ffff;

/// The row and column of an element of a fragment: element `within` of register `register`.
pub(super) fn position(shape: MatrixShape, part: MatrixPart, element: Element, register: u32, within: u32, lane: u32) -> (u32, u32) {
    let (first, step) = (first_position(shape, part, element, register, within), lane_step(part, element, lane));
    (first.0 + step.0, first.1 + step.1)
}

/// The row and column of an element of lane 0.
pub(super) fn first_position(shape: MatrixShape, part: MatrixPart, element: Element, register: u32, within: u32) -> (u32, u32) {
    // All sizes are powers of two. Shifts take their place, because this runs for each register.
    let in_group = 4 * element.per_register();
    let tiles = |size: u32, of: u32| size.trailing_zeros() - of.trailing_zeros();
    let split = |block: u32, shift: u32| (block & ((1 << shift) - 1), block >> shift);
    match part {
        MatrixPart::A => {
            let (rows, columns) = (tiles(shape.m, 8), tiles(shape.k, in_group));
            let (row, column) = split(split(register, rows + columns).0, rows);
            (8 * row, within + column * in_group)
        }
        MatrixPart::B => {
            let (rows, columns) = (tiles(shape.k, in_group), tiles(shape.n, 8));
            let (row, column) = split(split(register, rows + columns).0, rows);
            (within + row * in_group, 8 * column)
        }
        MatrixPart::C => {
            let n = register * element.per_register() + within;
            let (row, column) = split(n / 2, tiles(shape.m, 8));
            (8 * row, n % 2 + 8 * column)
        }
    }
}

/// How far a lane's elements are from those of lane 0: rows and columns.
#[inline(always)]
pub(super) fn lane_step(part: MatrixPart, element: Element, lane: u32) -> (u32, u32) {
    let (group, in_group) = (lane / 4, lane % 4);
    match part {
        MatrixPart::A => (group, in_group * element.per_register()),
        MatrixPart::B => (in_group * element.per_register(), group),
        MatrixPart::C => (group, 2 * in_group),
    }
}

/// Element `within` of a register, as a number.
#[inline]
pub(super) fn real(element: Element, register: u64, within: u32) -> f64 {
    let bits = register >> (element.bits() * within);
    match element {
        Element::Half => Small::wide(H(bits as u16)),
        Element::Brain => Small::wide(B(bits as u16)),
        Element::Tf32 => f32::from_bits(bits as u32 & !0x1fff).into(),
        Element::Single => f32::from_bits(bits as u32).into(),
        Element::Narrow(format) => format.decode(bits as u8),
        _ => f64::from_bits(bits),
    }
}

/// Element `within` of a register, as a whole number.
#[inline]
pub(super) fn whole(element: Element, register: u64, within: u32) -> i64 {
    let bits = register >> (element.bits() * within);
    match element {
        Element::U8 => i64::from(bits as u8),
        Element::S8 => i64::from(bits as i8),
        Element::U4 => (bits & 15) as i64,
        Element::S4 => ((bits as i64) << 60) >> 60,
        Element::Bit => (bits & 1) as i64,
        _ => i64::from(bits as i32),
    }
}

/// The bits of a number as an element.
#[inline]
pub(super) fn encode_real(element: Element, value: f64) -> u64 {
    match element {
        Element::Half => <H as Small>::rounded::<RN>(value).0.into(),
        Element::Single if value.is_nan() => NAN32.into(),
        Element::Single => (value as f32).to_bits().into(),
        _ => value.to_bits(),
    }
}
