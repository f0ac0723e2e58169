//! Matrix instructions of a warp and of groups of four (PTX ISA, *Warp-Level Matrix Instructions*
//! and *Asynchronous Warpgroup Level Matrix Instructions*).

use super::body::{Lowerer, exact_operands};
use super::error::{Lowered, Trouble, reject};
use super::memory::{elements, lower_address};
use crate::program::code::{AddressOperand, Base, BitProduct, Element, GroupProduct, MatrixKind, MatrixOp, MatrixPart, MatrixShape, Op, Space};
use crate::simd::lanes::{NO_SLOT, RegisterSlot};
use crate::simd::ops::narrow::Narrow;
use cumux_ptx::ast::{Instruction, Modifier, Opcode as O, Operand, Rounding, ScalarType as T, SpecialReg, Word};

pub(super) fn lower(lowerer: &mut Lowerer<'_>, i: &Instruction) -> Lowered {
    let words = Words::of(i)?;
    let op = match i.opcode {
        // Products are made at once.
        O::Wgmma if ["fence", "commit_group", "wait_group"].iter().any(|word| words.has(word)) => {
            words.allow(&["fence", "commit_group", "wait_group"])?;
            lowerer.emit(Op::Nothing);
            return Ok(());
        }
        O::Wgmma => lower_group_product(lowerer, i, &words)?,
        O::Mma => lower_multiply(lowerer, i, &words)?,
        O::Wmma if words.has("mma") => lower_multiply(lowerer, i, &words)?,
        O::Wmma => lower_fragment(lowerer, i, &words)?,
        _ => lower_rows(lowerer, i, &words)?,
    };
    lowerer.emit(Op::Matrix(Box::new(op)));
    Ok(())
}

/// The words of an instruction that are neither types nor a state space.
struct Words<'a> {
    words: Vec<&'a str>,
    shape: Option<MatrixShape>,
    saturates: bool,
}

impl<'a> Words<'a> {
    fn of(i: &'a Instruction) -> Lowered<Self> {
        let mut out = Words { words: Vec::new(), shape: None, saturates: false };
        for modifier in &i.modifiers {
            match modifier {
                Modifier::Other(word) => match read_shape(word) {
                    Some(shape) => out.shape = Some(shape),
                    None => out.words.push(word),
                },
                Modifier::Word(Word::Satfinite) => out.saturates = true,
                Modifier::Word(Word::Sync | Word::Aligned) | Modifier::Type(_) | Modifier::Space(_) | Modifier::Round(Rounding::Rn) => {}
                _ => return Err(Trouble::Refused),
            }
        }
        Ok(out)
    }

    fn has(&self, word: &str) -> bool {
        self.words.contains(&word)
    }

    /// Refuses an instruction with a word besides these.
    fn allow(&self, words: &[&str]) -> Lowered {
        if self.words.iter().all(|word| words.contains(word)) { Ok(()) } else { Err(Trouble::Refused) }
    }
}

/// `m16n8k16`; `m8n8` has no `k`.
fn read_shape(word: &str) -> Option<MatrixShape> {
    let (m, rest) = word.strip_prefix('m')?.split_once('n')?;
    let (n, k) = rest.split_once('k').unwrap_or((rest, "0"));
    Some(MatrixShape { m: m.parse().ok()?, n: n.parse().ok()?, k: k.parse().ok()? })
}

fn element_of(ty: T) -> Lowered<Element> {
    Ok(match ty {
        T::F16 => Element::Half,
        T::Bf16 => Element::Brain,
        T::Tf32 => Element::Tf32,
        T::F32 => Element::Single,
        T::F64 => Element::Double,
        T::U8 => Element::U8,
        T::S8 => Element::S8,
        T::U4 => Element::U4,
        T::S4 => Element::S4,
        T::B1 => Element::Bit,
        T::S32 => Element::Word,
        T::E4m3 => Element::Narrow(Narrow::E4m3),
        T::E5m2 => Element::Narrow(Narrow::E5m2),
        _ => return Err(Trouble::Refused),
    })
}

/// True if the PTX manual has a product of this shape and these elements. `wmma` has other shapes
/// than `mma`.
fn is_known(wmma: bool, shape: MatrixShape, [d, a, b, c]: [Element; 4]) -> bool {
    use Element as E;
    let size = (shape.m, shape.n, shape.k);
    let large = matches!(size, (16 | 32 | 8, 16 | 8 | 32, 16)) && shape.m * shape.n == 256;
    let sums = |one: &[E]| one.contains(&d) && one.contains(&c);
    match (a, b) {
        (E::Half, E::Half) if wmma => large && sums(&[E::Half, E::Single]),
        (E::Half, E::Half) => matches!(size, (16, 8, 8 | 16)) && d == c && sums(&[E::Half, E::Single]),
        (E::Brain, E::Brain) => (if wmma { large } else { matches!(size, (16, 8, 8 | 16)) }) && sums(&[E::Single]),
        (E::Tf32, E::Tf32) => (if wmma { size == (16, 16, 8) } else { matches!(size, (16, 8, 4 | 8)) }) && sums(&[E::Single]),
        (E::Double, E::Double) => (size == (8, 8, 4) || !wmma && matches!(size, (16, 8, 4 | 8 | 16))) && sums(&[E::Double]),
        (E::U8 | E::S8, E::U8 | E::S8) if wmma => large && a == b && sums(&[E::Word]),
        (E::U8 | E::S8, E::U8 | E::S8) => matches!(size, (8, 8, 16) | (16, 8, 16 | 32)) && sums(&[E::Word]),
        (E::U4 | E::S4, E::U4 | E::S4) if wmma => size == (8, 8, 32) && a == b && sums(&[E::Word]),
        (E::U4 | E::S4, E::U4 | E::S4) => matches!(size, (8, 8, 32) | (16, 8, 32 | 64)) && sums(&[E::Word]),
        (E::Bit, E::Bit) => (size == (8, 8, 128) || !wmma && matches!(size, (16, 8, 128 | 256))) && sums(&[E::Word]),
        (E::Narrow(_), E::Narrow(_)) => !wmma && matches!(size, (16, 8, 16 | 32)) && d == c && sums(&[E::Half, E::Single]),
        _ => false,
    }
}

/// The registers of a fragment.
fn sources(lowerer: &mut Lowerer<'_>, operand: &Operand, element: Element) -> Lowered<Vec<RegisterSlot>> {
    let one = |part| if element == Element::Double { lowerer.lower_source64(part, T::F64) } else { lowerer.lower_source32(part, T::B32) };
    elements(operand).iter().map(one).collect()
}

/// The registers of a fragment that is written.
fn targets(lowerer: &mut Lowerer<'_>, operand: &Operand, element: Element) -> Lowered<Vec<RegisterSlot>> {
    elements(operand).iter().map(|part| if element == Element::Double { lowerer.lower_target64(part) } else { lowerer.lower_target32(part) }).collect()
}

/// Registers of a lane that hold a matrix of so many elements once.
fn registers_of(rows: u32, columns: u32, element: Element) -> usize {
    (rows * columns / 32 / element.per_register()) as usize
}

fn empty_op(kind: MatrixKind) -> MatrixOp {
    let place = AddressOperand { space: Space::Shared, base: Base::None, offset: 0 };
    MatrixOp { kind, d: Vec::new(), a: Vec::new(), b: Vec::new(), c: Vec::new(), place, stride: NO_SLOT }
}

/// `mma` and `wmma.mma`.
fn lower_multiply(lowerer: &mut Lowerer<'_>, i: &Instruction, words: &Words<'_>) -> Lowered<MatrixOp> {
    words.allow(&["mma", "row", "col", "and", "xor", "popc"])?;
    let [d, a, b, c] = exact_operands::<4>(i)?;
    let wmma = i.opcode == O::Wmma;
    let types: Vec<T> = i.types().collect();
    let [td, ta, tb, tc] = match types.as_slice() {
        [d, c] if wmma => [*d, T::F16, T::F16, *c],
        [d, a, b, c] => [*d, *a, *b, *c],
        _ => return Err(Trouble::Refused),
    };
    let all @ [ed, ea, eb, ec] = [element_of(td)?, element_of(ta)?, element_of(tb)?, element_of(tc)?];
    let Some(shape) = words.shape else { return Err(Trouble::Refused) };
    let layouts: Vec<&str> = words.words.iter().copied().filter(|word| matches!(*word, "row" | "col")).collect();
    let [a_layout, b_layout] = layouts.as_slice() else { return Err(Trouble::Refused) };
    let quads = !wmma && shape == (MatrixShape { m: 8, n: 8, k: 4 }) && ea == Element::Half && eb == Element::Half;
    let whole = ed == Element::Word;
    let bits = match (ea, words.has("xor"), words.has("and")) {
        (Element::Bit, true, false) => BitProduct::Xor,
        (Element::Bit, false, true) => BitProduct::And,
        (Element::Bit, ..) | (_, true, _) | (_, _, true) => return Err(Trouble::Refused),
        _ => BitProduct::And,
    };
    if words.saturates && !whole {
        return Err(Trouble::Refused);
    }
    let kind = if quads {
        if ![ed, ec].iter().all(|one| matches!(one, Element::Half | Element::Single)) {
            return Err(Trouble::Refused);
        }
        MatrixKind::MultiplyQuads { a_by_column: *a_layout == "col", b_by_row: *b_layout == "row", accumulator: ec, into: ed }
    } else {
        if !is_known(wmma, shape, all) || !wmma && (*a_layout, *b_layout) != ("row", "col") {
            return Err(Trouble::Refused);
        }
        MatrixKind::Multiply { shape, elements: [ea, eb, ec], into: ed, saturates: words.saturates, bits }
    };
    let mut op = empty_op(kind);
    (op.a, op.b, op.c) = (sources(lowerer, a, ea)?, sources(lowerer, b, eb)?, sources(lowerer, c, ec)?);
    op.d = targets(lowerer, d, ed)?;
    let MatrixShape { m, n, k } = shape;
    // Four products share the lanes of one of quads. Halves of `wmma` are in the fragment more than
    // once.
    let counts = if quads {
        [2, 2, 8 / ec.per_register() as usize, 8 / ed.per_register() as usize]
    } else {
        let several = wmma && ea == Element::Half;
        let part = |rows, columns, element| if several { 8 } else { registers_of(rows, columns, element) };
        [part(m, k, ea), part(k, n, eb), registers_of(m, n, ec), registers_of(m, n, ed)]
    };
    if counts == [op.a.len(), op.b.len(), op.c.len(), op.d.len()] { Ok(op) } else { reject("a fragment has another number of registers") }
}

/// A literal operand.
fn literal(operand: &Operand) -> Lowered<i64> {
    match operand {
        Operand::Imm(imm) => Ok(imm.bits(T::S32) as u32 as i32 as i64),
        _ => reject("a literal is expected here"),
    }
}

/// `wgmma.mma_async`.
fn lower_group_product(lowerer: &mut Lowerer<'_>, i: &Instruction, words: &Words<'_>) -> Lowered<MatrixOp> {
    use Element as E;
    words.allow(&["mma_async"])?;
    let types: Vec<T> = i.types().collect();
    let (&[td, ta, tb], Some(MatrixShape { m: 64, n, k })) = (types.as_slice(), words.shape) else { return Err(Trouble::Refused) };
    let [into, a, b] = [element_of(td)?, element_of(ta)?, element_of(tb)?];
    let (depth, halves, whole) = match (a, b) {
        (E::Half, E::Half) => (16, true, false),
        (E::Brain, E::Brain) => (16, true, false),
        (E::Tf32, E::Tf32) => (8, false, false),
        (E::Narrow(_), E::Narrow(_)) => (32, false, false),
        (E::U8 | E::S8, E::U8 | E::S8) => (32, false, true),
        _ => return Err(Trouble::Refused),
    };
    let sums = match (a, into) {
        (_, E::Word) => whole,
        (E::Half | E::Narrow(_), E::Half) => true,
        (_, E::Single) => !whole,
        _ => false,
    };
    if !sums || k != depth || !n.is_multiple_of(8) || !(8..=256).contains(&n) || words.saturates && !whole {
        return Err(Trouble::Refused);
    }
    let [d, from_a, from_b, keeps, rest @ ..] = i.operands.as_slice() else { return reject("operands are missing") };
    let a_in_registers = matches!(from_a, Operand::Vector(_));
    let (signs, turns) = match (whole, halves, a_in_registers, rest) {
        (true, _, _, []) => ([1, 1], [0, 0]),
        (false, false, _, [a, b]) => ([literal(a)?, literal(b)?], [0, 0]),
        (false, true, true, [a, b, turn]) => ([literal(a)?, literal(b)?], [0, literal(turn)?]),
        (false, true, false, [a, b, turn_a, turn_b]) => ([literal(a)?, literal(b)?], [literal(turn_a)?, literal(turn_b)?]),
        _ => return reject("another number of operands is needed"),
    };
    if signs.iter().any(|sign| sign.abs() != 1) || turns.iter().any(|turn| !matches!(turn, 0 | 1)) {
        return reject("a sign is 1 or -1, and a transposition 0 or 1");
    }
    let keeps = lowerer.lower_predicate(keeps)?;
    let transposed = turns.map(|turn| turn == 1);
    let product = GroupProduct { n, k, elements: [a, b], into, transposed, a_in_registers, negates: signs[0] != signs[1], saturates: words.saturates, keeps };
    let mut op = empty_op(MatrixKind::MultiplyGroup(product));
    op.a = if a_in_registers { sources(lowerer, from_a, a)? } else { vec![lowerer.lower_source64(from_a, T::B64)?] };
    op.b = vec![lowerer.lower_source64(from_b, T::B64)?];
    op.d = targets(lowerer, d, into)?;
    op.stride = lowerer.lower_source32(&Operand::Special(SpecialReg::Warpid), T::U32)?;
    let counts = [if a_in_registers { 4 } else { 1 }, registers_of(16, n, into)];
    if counts == [op.a.len(), op.d.len()] { Ok(op) } else { reject("a fragment has another number of registers") }
}

/// `wmma.load` and `wmma.store`.
fn lower_fragment(lowerer: &mut Lowerer<'_>, i: &Instruction, words: &Words<'_>) -> Lowered<MatrixOp> {
    words.allow(&["load", "store", "a", "b", "c", "d", "row", "col"])?;
    let types: Vec<T> = i.types().collect();
    let (Some(shape), [ty]) = (words.shape, types.as_slice()) else { return Err(Trouble::Refused) };
    let element = element_of(*ty)?;
    let by_column = words.has("col");
    let (part, loads) = match (words.has("load"), words.has("a"), words.has("b"), words.has("c"), words.has("d")) {
        (true, true, false, false, false) => (MatrixPart::A, true),
        (true, false, true, false, false) => (MatrixPart::B, true),
        (true, false, false, true, false) => (MatrixPart::C, true),
        (false, false, false, false, true) if words.has("store") => (MatrixPart::C, false),
        _ => return Err(Trouble::Refused),
    };
    let accumulator = match element {
        Element::Half | Element::Single | Element::Double | Element::Word => element,
        Element::U8 | Element::S8 | Element::U4 | Element::S4 | Element::Bit => Element::Word,
        _ => Element::Single,
    };
    let known = match part {
        MatrixPart::C => {
            let factors = [Element::Half, Element::Tf32, Element::Double, Element::S8, Element::S4, Element::Bit];
            factors.iter().any(|factor| is_known(true, shape, [element, *factor, *factor, element]))
        }
        _ => is_known(true, shape, [accumulator, element, element, accumulator]),
    };
    // Parts of bytes begin at bytes only in the layouts that the product takes.
    let aligned = element.bits() >= 8 || (part == MatrixPart::B) == by_column;
    if !known || !aligned || words.saturates {
        return Err(Trouble::Refused);
    }
    let (registers, place, stride) = match (loads, i.operands.as_slice()) {
        (true, [registers, place, stride @ ..]) | (false, [place, registers, stride @ ..]) => (registers, place, stride),
        _ => return reject("operands are missing"),
    };
    let mut op =
        empty_op(if loads { MatrixKind::LoadFragment { shape, part, element, by_column } } else { MatrixKind::StoreFragment { shape, element, by_column } });
    let (space, base, offset) = lower_address(lowerer, i.space(), place)?;
    op.place = AddressOperand { space, base, offset };
    match stride {
        [] => {}
        [stride] => op.stride = lowerer.lower_source32(stride, T::U32)?,
        _ => return reject("too many operands"),
    }
    let count = if loads {
        op.d = targets(lowerer, registers, element)?;
        op.d.len()
    } else {
        op.a = sources(lowerer, registers, element)?;
        op.a.len()
    };
    let MatrixShape { m, n, k } = shape;
    let expected = match part {
        MatrixPart::C => registers_of(m, n, element),
        _ if element == Element::Half => 8,
        MatrixPart::A => registers_of(m, k, element),
        MatrixPart::B => registers_of(k, n, element),
    };
    if count == expected { Ok(op) } else { reject("the fragment has another number of registers") }
}

/// `ldmatrix`, `stmatrix` and `movmatrix`.
fn lower_rows(lowerer: &mut Lowerer<'_>, i: &Instruction, words: &Words<'_>) -> Lowered<MatrixOp> {
    words.allow(&["x1", "x2", "x4", "trans"])?;
    let transposed = words.has("trans");
    if words.shape != Some(MatrixShape { m: 8, n: 8, k: 0 }) || i.types().collect::<Vec<_>>() != [T::B16] {
        return Err(Trouble::Refused);
    }
    let [first, second] = exact_operands::<2>(i)?;
    if i.opcode == O::Movmatrix {
        let mut op = empty_op(MatrixKind::Transpose);
        (op.a, op.d) = (sources(lowerer, second, Element::Half)?, targets(lowerer, first, Element::Half)?);
        return if transposed && (op.a.len(), op.d.len()) == (1, 1) { Ok(op) } else { Err(Trouble::Refused) };
    }
    let loads = i.opcode == O::Ldmatrix;
    let (registers, place) = if loads { (first, second) } else { (second, first) };
    let expected = if words.has("x4") {
        4
    } else if words.has("x2") {
        2
    } else {
        1
    };
    if elements(registers).len() != expected {
        return reject("as many registers as matrices are needed");
    }
    let mut op = empty_op(if loads { MatrixKind::LoadRows { transposed } } else { MatrixKind::StoreRows { transposed } });
    let (space, base, offset) = lower_address(lowerer, i.space(), place)?;
    op.place = AddressOperand { space, base, offset };
    if loads {
        op.d = targets(lowerer, registers, Element::Half)?;
    } else {
        op.a = sources(lowerer, registers, Element::Half)?;
    }
    Ok(op)
}
