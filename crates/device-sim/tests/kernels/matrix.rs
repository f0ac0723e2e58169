//! Products of matrices by `mma`, against a reference that has the fragment layouts of the PTX
//! manual written out, one by one.

use crate::common::Loaded;
use std::fmt::Write as _;

/// What a test needs to know of an element type.
#[derive(Clone, Copy, PartialEq)]
struct Kind {
    name: &'static str,
    bits: u32,
}

const F16: Kind = Kind { name: "f16", bits: 16 };
const BF16: Kind = Kind { name: "bf16", bits: 16 };
const TF32: Kind = Kind { name: "tf32", bits: 32 };
const F32: Kind = Kind { name: "f32", bits: 32 };
const F64: Kind = Kind { name: "f64", bits: 64 };
const S8: Kind = Kind { name: "s8", bits: 8 };
const U8: Kind = Kind { name: "u8", bits: 8 };
const S4: Kind = Kind { name: "s4", bits: 4 };
const U4: Kind = Kind { name: "u4", bits: 4 };
const B1: Kind = Kind { name: "b1", bits: 1 };
const S32: Kind = Kind { name: "s32", bits: 32 };
const E4M3: Kind = Kind { name: "e4m3", bits: 8 };
const E5M2: Kind = Kind { name: "e5m2", bits: 8 };

/// Small numbers that every format has exactly, by kind; and their bits.
fn number(kind: Kind, seed: u64) -> (f64, u64) {
    let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let small = (mixed % 7) as i64 - 3;
    match kind.name {
        "f16" => (small as f64, [0xc200, 0xc000, 0xbc00, 0, 0x3c00, 0x4000, 0x4200][(small + 3) as usize]),
        "bf16" => (small as f64, u64::from((small as f32).to_bits() >> 16)),
        "tf32" | "f32" => (small as f64, (small as f32).to_bits().into()),
        "f64" => (small as f64 + 0.25, (small as f64 + 0.25).to_bits()),
        "e4m3" => (small as f64, [0xc4, 0xc0, 0xb8, 0, 0x38, 0x40, 0x44][(small + 3) as usize]),
        "e5m2" => (small as f64, [0xc2, 0xc0, 0xbc, 0, 0x3c, 0x40, 0x42][(small + 3) as usize]),
        "u8" => ((mixed & 255) as f64, mixed & 255),
        "s8" => (f64::from(mixed as i8), mixed & 255),
        "u4" => ((mixed & 15) as f64, mixed & 15),
        "s4" => (((mixed << 60) as i64 >> 60) as f64, mixed & 15),
        "b1" => ((mixed & 1) as f64, mixed & 1),
        _ => (f64::from(mixed as i16), i64::from(mixed as i16) as u64 & 0xffff_ffff),
    }
}

/// The row and column of element `i` of a lane's fragment of A, as the manual has it by shape.
fn a_place(shape: (u32, u32, u32), bits: u32, i: u32, lane: u32) -> (u32, u32) {
    let (g, t) = (lane >> 2, lane % 4);
    match (shape, bits) {
        ((8, 8, 4), 64) => (g, t),
        ((16, 8, 4), 32 | 64) => (if i == 0 { g } else { g + 8 }, t),
        ((16, 8, 8), 32 | 64) => (if i == 0 || i == 2 { g } else { g + 8 }, if i < 2 { t } else { t + 4 }),
        ((16, 8, 16), 64) => (if i.is_multiple_of(2) { g } else { g + 8 }, t + 4 * (i / 2)),
        ((16, 8, 8), 16) => (if i < 2 { g } else { g + 8 }, t * 2 + (i & 1)),
        ((16, 8, 16), 16) => (if i < 2 || (4..6).contains(&i) { g } else { g + 8 }, t * 2 + (i & 1) + if i >= 4 { 8 } else { 0 }),
        ((8, 8, 16), 8) => (g, t * 4 + i),
        ((16, 8, 16), 8) => (if i < 4 { g } else { g + 8 }, t * 4 + (i & 3)),
        ((16, 8, 32), 8) => (if i < 4 || (8..12).contains(&i) { g } else { g + 8 }, t * 4 + (i & 3) + if i >= 8 { 16 } else { 0 }),
        ((8, 8, 32), 4) => (g, t * 8 + i),
        ((16, 8, 32), 4) => (if i < 8 { g } else { g + 8 }, t * 8 + (i & 7)),
        ((16, 8, 64), 4) => (if i < 8 || (16..24).contains(&i) { g } else { g + 8 }, t * 8 + (i & 7) + if i >= 16 { 32 } else { 0 }),
        ((8, 8, 128), 1) => (g, t * 32 + i),
        ((16, 8, 128), 1) => (if i < 32 { g } else { g + 8 }, t * 32 + (i & 31)),
        ((16, 8, 256), 1) => (if i < 32 || (64..96).contains(&i) { g } else { g + 8 }, t * 32 + (i & 31) + if i >= 64 { 128 } else { 0 }),
        _ => unreachable!("no such shape"),
    }
}

/// As [`a_place`], for B.
fn b_place(shape: (u32, u32, u32), bits: u32, i: u32, lane: u32) -> (u32, u32) {
    let (g, t) = (lane >> 2, lane % 4);
    let row = match (shape.2, bits) {
        (4, 32 | 64) => t,
        (8 | 16, 32 | 64) => t + 4 * i,
        (8, 16) => t * 2 + i,
        (16, 16) => t * 2 + (i & 1) + if i >= 2 { 8 } else { 0 },
        (16, 8) => t * 4 + i,
        (32, 8) => t * 4 + (i & 3) + if i >= 4 { 16 } else { 0 },
        (32, 4) => t * 8 + i,
        (64, 4) => t * 8 + (i & 7) + if i >= 8 { 32 } else { 0 },
        (128, 1) => t * 32 + i,
        (256, 1) => t * 32 + (i & 31) + if i >= 32 { 128 } else { 0 },
        _ => unreachable!("no such shape"),
    };
    (row, g)
}

fn c_place(i: u32, lane: u32) -> (u32, u32) {
    ((lane >> 2) + if i < 2 { 0 } else { 8 }, (lane % 4) * 2 + (i & 1))
}

/// Registers of 32 or 64 bits of each lane, and the whole matrix.
struct Fragment {
    registers: Vec<Vec<u64>>,
    wide: bool,
}

fn fragment(kind: Kind, elements: u32, value: impl Fn(u32, u32) -> u64) -> Fragment {
    let wide = kind.bits == 64;
    let each = if wide { 1 } else { 32 / kind.bits };
    let registers = (0..elements / each).map(|r| (0..32).map(|lane| (0..each).fold(0, |all, j| all | value(r * each + j, lane) << (kind.bits * j))).collect());
    Fragment { registers: registers.collect(), wide }
}

fn names(letter: char, fragment: &Fragment) -> String {
    let list: Vec<String> = (0..fragment.registers.len()).map(|n| format!("%{letter}{n}")).collect();
    format!("{{{}}}", list.join(", "))
}

/// A kernel that loads the fragments from `in`, runs the instruction and stores D to `out`.
fn program(mnemonic: &str, a: &Fragment, b: &Fragment, c: &Fragment, d: &Fragment) -> String {
    let mut text = String::from(
        ".version 8.7\n.target sm_90\n.address_size 64\n.visible .entry multiply(.param .u64 in, .param .u64 out)\n{\n\t.reg .b64 %in, %out, %at;\n\t.reg .b32 %t;\n",
    );
    for (letter, fragment) in [('a', a), ('b', b), ('c', c), ('d', d)] {
        let bits = if fragment.wide { 64 } else { 32 };
        writeln!(text, "\t.reg .b{bits} %{letter}<{}>;", fragment.registers.len() + 1).expect("text");
    }
    text.push_str("\tld.param.u64 %in, [in];\n\tld.param.u64 %out, [out];\n\tmov.u32 %t, %tid.x;\n\tmul.wide.u32 %at, %t, 8;\n\tadd.u64 %in, %in, %at;\n\tadd.u64 %out, %out, %at;\n");
    let mut offset = 0;
    for (letter, fragment) in [('a', a), ('b', b), ('c', c)] {
        for n in 0..fragment.registers.len() {
            let bits = if fragment.wide { 64 } else { 32 };
            writeln!(text, "\tld.global.b{bits} %{letter}{n}, [%in+{offset}];").expect("text");
            offset += 256;
        }
    }
    writeln!(text, "\t{mnemonic} {}, {}, {}, {};", names('d', d), names('a', a), names('b', b), names('c', c)).expect("text");
    for n in 0..d.registers.len() {
        let bits = if d.wide { 64 } else { 32 };
        writeln!(text, "\tst.global.b{bits} [%out+{}], %d{n};", 256 * n).expect("text");
    }
    text.push_str("\tret;\n}\n");
    text
}

/// Runs the instruction and gives the registers of D.
fn run(mnemonic: &str, a: &Fragment, b: &Fragment, c: &Fragment, d: &Fragment) -> Vec<Vec<u64>> {
    let mut loaded = Loaded::new(&program(mnemonic, a, b, c, d)).unwrap_or_else(|error| panic!("{mnemonic}: {error}"));
    let refused = loaded.linked.program().kernels[0].refused.clone();
    assert_eq!(refused, None, "{mnemonic}");
    let input: Vec<u8> = [a, b, c].iter().flat_map(|f| f.registers.iter().flatten().flat_map(|value| value.to_le_bytes())).collect();
    let (from, to) = (loaded.memory.allocate(&input), loaded.memory.allocate(&vec![0; 256 * d.registers.len()]));
    let parameters = [from.to_le_bytes(), to.to_le_bytes()].concat();
    loaded.run("multiply", [1; 3], [32, 1, 1], 0, parameters).unwrap_or_else(|fault| panic!("{mnemonic}: {fault}"));
    let bytes = loaded.memory.read(to);
    let words = bytes.chunks(8).map(|chunk| u64::from_le_bytes(chunk.try_into().expect("eight bytes")));
    words.collect::<Vec<_>>().chunks(32).map(<[u64]>::to_vec).collect()
}

/// The bits of a result, which all formats hold exactly here.
fn result_bits(kind: Kind, value: f64) -> u64 {
    match kind.name {
        "f16" => {
            // Whole numbers up to 2048.
            let magnitude = value.abs() as u64;
            let power = u64::from(magnitude.max(1).ilog2());
            let bits = if magnitude == 0 { 0 } else { (power + 15) << 10 | (magnitude << 10 >> power & 0x3ff) };
            bits | if value < 0.0 { 0x8000 } else { 0 }
        }
        "f32" => (value as f32).to_bits().into(),
        "f64" => value.to_bits(),
        _ => u64::from(value as i64 as u32),
    }
}

fn check(suffix: &str, shape: (u32, u32, u32), [d, a, b, c]: [Kind; 4], product: fn(f64, f64) -> f64) {
    let (m, n, k) = shape;
    let mnemonic = format!("mma.sync.aligned.m{m}n{n}k{k}.row.col.{}.{}.{}.{}{suffix}", d.name, a.name, b.name, c.name);
    let a_at = |row: u32, column: u32| number(a, u64::from(1 + row * k + column));
    let b_at = |row: u32, column: u32| number(b, u64::from(100_000 + row * n + column));
    let c_at = |row: u32, column: u32| number(c, u64::from(200_000 + row * n + column));
    let of_a = fragment(a, m * k / 32, |i, lane| {
        let (r, c) = a_place(shape, a.bits, i, lane);
        a_at(r, c).1
    });
    let of_b = fragment(b, k * n / 32, |i, lane| {
        let (r, c) = b_place(shape, b.bits, i, lane);
        b_at(r, c).1
    });
    let of_c = fragment(c, m * n / 32, |i, lane| {
        let (r, c) = c_place(i, lane);
        c_at(r, c).1
    });
    let expected = fragment(d, m * n / 32, |i, lane| {
        let (row, column) = c_place(i, lane);
        let sum = (0..k).fold(c_at(row, column).0, |sum, x| sum + product(a_at(row, x).0, b_at(x, column).0));
        result_bits(d, sum)
    });
    assert_eq!(run(&mnemonic, &of_a, &of_b, &of_c, &expected), expected.registers, "{mnemonic}");
}

#[test]
fn products_have_the_layouts_of_the_manual() {
    let times: fn(f64, f64) -> f64 = |a, b| a * b;
    for (shape, a, sums) in [
        ((16, 8, 8), F16, &[F16, F32][..]),
        ((16, 8, 16), F16, &[F16, F32]),
        ((16, 8, 8), BF16, &[F32]),
        ((16, 8, 16), BF16, &[F32]),
        ((16, 8, 4), TF32, &[F32]),
        ((16, 8, 8), TF32, &[F32]),
        ((8, 8, 4), F64, &[F64]),
        ((16, 8, 4), F64, &[F64]),
        ((16, 8, 8), F64, &[F64]),
        ((16, 8, 16), F64, &[F64]),
    ] {
        for sum in sums {
            check("", shape, [*sum, a, a, *sum], times);
        }
    }
    for (shape, kinds) in
        [((8, 8, 16), [S8, U8]), ((16, 8, 16), [S8, U8]), ((16, 8, 32), [S8, U8]), ((8, 8, 32), [S4, U4]), ((16, 8, 32), [S4, U4]), ((16, 8, 64), [S4, U4])]
    {
        for a in kinds {
            for b in kinds {
                check("", shape, [S32, a, b, S32], times);
            }
        }
    }
    for shape in [(16, 8, 16), (16, 8, 32)] {
        for (a, b) in [(E4M3, E4M3), (E4M3, E5M2), (E5M2, E4M3), (E5M2, E5M2)] {
            check("", shape, [F32, a, b, F32], times);
            check("", shape, [F16, a, b, F16], times);
        }
    }
    for shape in [(8, 8, 128), (16, 8, 128), (16, 8, 256)] {
        check(".xor.popc", shape, [S32, B1, B1, S32], |a, b| if a == b { 0.0 } else { 1.0 });
        check(".and.popc", shape, [S32, B1, B1, S32], times);
    }
}

/// Where a matrix lies: by rows or by columns, each of which begins `stride` elements after the
/// one before.
#[derive(Clone, Copy)]
struct Layout {
    by_column: bool,
    stride: u32,
}

impl Layout {
    fn name(self) -> &'static str {
        if self.by_column { "col" } else { "row" }
    }

    /// The first bit of an element.
    fn bit_of(self, kind: Kind, (row, column): (u32, u32)) -> usize {
        let (outer, inner) = if self.by_column { (column, row) } else { (row, column) };
        ((outer * self.stride + inner) * kind.bits) as usize
    }

    /// The bytes of a matrix whose elements are `value`; ones are between its rows.
    fn bytes(self, kind: Kind, (rows, columns): (u32, u32), value: impl Fn(u32, u32) -> u64) -> Vec<u8> {
        let outer = if self.by_column { columns } else { rows };
        let mut bytes = vec![0xff; (outer * self.stride * kind.bits).div_ceil(8) as usize];
        for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
            let (at, bits) = (self.bit_of(kind, (row, column)), value(row, column));
            for n in 0..kind.bits as usize {
                let (byte, bit) = ((at + n) / 8, (at + n) % 8);
                bytes[byte] = bytes[byte] & !(1 << bit) | ((bits >> n & 1) as u8) << bit;
            }
        }
        bytes
    }
}

/// Loads three matrices by `wmma.load`, multiplies them and stores the result by `wmma.store`.
/// Nothing here knows how fragments lie in registers: PTX leaves it open.
fn check_through_memory(shape: (u32, u32, u32), [d, a, b, c]: [Kind; 4], registers: [u32; 4], by_column: [bool; 4], product: fn(f64, f64) -> f64) {
    let (m, n, k) = shape;
    let sizes = [(m, n), (m, k), (k, n), (m, n)];
    let kinds = [d, a, b, c];
    // Rows of 16 bytes more than there are elements.
    let layouts: [Layout; 4] = std::array::from_fn(|at| {
        let (rows, columns) = sizes[at];
        Layout { by_column: by_column[at], stride: if by_column[at] { rows } else { columns } + 128 / kinds[at].bits }
    });
    let seed = [0, 1, 100_000, 200_000];
    let at = |of: usize, (row, column): (u32, u32)| number(kinds[of], u64::from(seed[of] + row * sizes[of].1 + column));
    let shape_name = format!("m{m}n{n}k{k}");
    let mut text = String::from(
        ".version 8.7\n.target sm_90\n.address_size 64\n.visible .entry multiply(.param .u64 pd, .param .u64 pa, .param .u64 pb, .param .u64 pc)\n{\n",
    );
    let list = |of: usize| (0..registers[of]).map(|n| format!("%{}{n}", ["d", "a", "b", "c"][of])).collect::<Vec<_>>().join(", ");
    for (of, letter) in ["d", "a", "b", "c"].into_iter().enumerate() {
        let bits = if kinds[of].bits == 64 { 64 } else { 32 };
        writeln!(text, ".reg .b{bits} %{letter}<{}>;\n.reg .b64 %at{letter};\nld.param.u64 %at{letter}, [p{letter}];", registers[of]).expect("text");
    }
    for (of, letter) in [(1, "a"), (2, "b"), (3, "c")] {
        let Layout { stride, .. } = layouts[of];
        let (layout, kind) = (layouts[of].name(), kinds[of].name);
        writeln!(text, "wmma.load.{letter}.sync.aligned.{layout}.{shape_name}.global.{kind} {{{}}}, [%at{letter}], {stride};", list(of)).expect("text");
    }
    let types = if a == F16 { format!("{}.{}", d.name, c.name) } else { format!("{}.{}.{}.{}", d.name, a.name, b.name, c.name) };
    let bits = if a == B1 { ".xor.popc" } else { "" };
    let mnemonic = format!("wmma.mma{bits}.sync.aligned.{}.{}.{shape_name}.{types}", layouts[1].name(), layouts[2].name());
    writeln!(text, "{mnemonic} {{{}}}, {{{}}}, {{{}}}, {{{}}};", list(0), list(1), list(2), list(3)).expect("text");
    let Layout { stride, .. } = layouts[0];
    writeln!(text, "wmma.store.d.sync.aligned.{}.{shape_name}.global.{} [%atd], {{{}}}, {stride};\nret;\n}}", layouts[0].name(), d.name, list(0))
        .expect("text");

    let mut loaded = Loaded::new(&text).unwrap_or_else(|error| panic!("{mnemonic}: {error}\n{text}"));
    assert_eq!(loaded.linked.program().kernels[0].refused, None, "{mnemonic}");
    let matrix = |of: usize| layouts[of].bytes(kinds[of], sizes[of], |row, column| at(of, (row, column)).1);
    let untouched = layouts[0].bytes(d, sizes[0], |_, _| u64::MAX);
    let addresses =
        [loaded.memory.allocate(&untouched), loaded.memory.allocate(&matrix(1)), loaded.memory.allocate(&matrix(2)), loaded.memory.allocate(&matrix(3))];
    let parameters = addresses.map(u64::to_le_bytes).concat();
    loaded.run("multiply", [1; 3], [32, 1, 1], 0, parameters).unwrap_or_else(|fault| panic!("{mnemonic}: {fault}"));
    let expected = layouts[0]
        .bytes(d, sizes[0], |row, column| result_bits(d, (0..k).fold(at(3, (row, column)).0, |sum, x| sum + product(at(1, (row, x)).0, at(2, (x, column)).0))));
    assert_eq!(loaded.memory.read(addresses[0]), expected, "{mnemonic}, of {by_column:?}");
}

#[test]
fn matrices_go_through_memory_in_all_layouts() {
    let times: fn(f64, f64) -> f64 = |a, b| a * b;
    for n in 0..16 {
        let by_column = [n & 1 != 0, n & 2 != 0, n & 4 != 0, n & 8 != 0];
        for shape in [(16, 16, 16), (32, 8, 16), (8, 32, 16)] {
            for (d, c) in [(F16, F16), (F16, F32), (F32, F16), (F32, F32)] {
                let count = |kind: Kind| kind.bits / 4;
                check_through_memory(shape, [d, F16, F16, c], [count(d), 8, 8, count(c)], by_column, times);
            }
            let (of_a, of_b) = (shape.0 / 4, shape.1 / 4);
            check_through_memory(shape, [F32, BF16, BF16, F32], [8, of_a, of_b, 8], by_column, times);
            for kind in [S8, U8] {
                check_through_memory(shape, [S32, kind, kind, S32], [8, of_a / 2, of_b / 2, 8], by_column, times);
            }
        }
        check_through_memory((16, 16, 8), [F32, TF32, TF32, F32], [8, 4, 4, 8], by_column, times);
        check_through_memory((8, 8, 4), [F64, F64, F64, F64], [2, 1, 1, 2], by_column, times);
        // Parts of bytes: A by rows and B by columns.
        if !by_column[1] && by_column[2] {
            for kind in [S4, U4] {
                check_through_memory((8, 8, 32), [S32, kind, kind, S32], [2, 1, 1, 2], by_column, times);
            }
            check_through_memory((8, 8, 128), [S32, B1, B1, S32], [2, 1, 1, 2], by_column, |a, b| if a == b { 0.0 } else { 1.0 });
        }
    }
}

/// `.satfinite` keeps sums of integers inside 32 bits; without it they wrap.
#[test]
fn sums_of_integers_wrap_or_saturate() {
    let ones = |bits: u64| Fragment { registers: vec![vec![bits; 32]], wide: false };
    let c = Fragment { registers: vec![vec![0x7fff_fff0; 32], vec![0x8000_0010; 32]], wide: false };
    let expected = |plus: u64| vec![vec![plus; 32], vec![0x8000_0020; 32]];
    let run = |mnemonic| run(mnemonic, &ones(0x0101_0101), &ones(0x0101_0101), &c, &c);
    assert_eq!(run("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32"), expected(0x8000_0000));
    assert_eq!(run("mma.sync.aligned.m8n8k16.row.col.satfinite.s32.s8.s8.s32"), expected(0x7fff_ffff));
}

/// The four products of `m8n8k4`, in all layouts.
#[test]
fn four_products_at_once() {
    let half = |seed: u32| number(F16, seed.into());
    let lower = |lane: u32| if lane < 16 { 0 } else { 4 };
    for (a_layout, b_layout) in [("row", "col"), ("row", "row"), ("col", "col"), ("col", "row")] {
        for sum in [F16, F32] {
            let quad = |lane: u32| lane / 4 % 4;
            let a_at = |q: u32, row: u32, column: u32| half(1000 * q + row * 4 + column);
            let b_at = |q: u32, row: u32, column: u32| half(50_000 + 1000 * q + row * 8 + column);
            let of_a = fragment(F16, 4, |i, lane| {
                let (r, c) = if a_layout == "row" { (lane % 4 + lower(lane), i) } else { (i % 4 + lower(lane), lane % 4) };
                a_at(quad(lane), r, c).1
            });
            let of_b = fragment(F16, 4, |i, lane| {
                let (r, c) = if b_layout == "row" { (lane % 4, i + lower(lane)) } else { (i, lane % 4 + lower(lane)) };
                b_at(quad(lane), r, c).1
            });
            let place = |i: u32, lane: u32| {
                if sum == F16 { (lane % 4 + lower(lane), i) } else { ((lane & 1) + (i & 2) + lower(lane), (i & 4) + (lane & 2) + (i & 1)) }
            };
            let c_at = |q: u32, (row, column): (u32, u32)| number(sum, u64::from(90_000 + 1000 * q + row * 8 + column));
            let of_c = fragment(sum, 8, |i, lane| c_at(quad(lane), place(i, lane)).1);
            let expected = fragment(sum, 8, |i, lane| {
                let (q, (row, column)) = (quad(lane), place(i, lane));
                result_bits(sum, (0..4).fold(c_at(q, (row, column)).0, |all, x| all + a_at(q, row, x).0 * b_at(q, x, column).0))
            });
            let mnemonic = format!("mma.sync.aligned.m8n8k4.{a_layout}.{b_layout}.{0}.f16.f16.{0}", sum.name);
            assert_eq!(run(&mnemonic, &of_a, &of_b, &of_c, &expected), expected.registers, "{mnemonic}");
        }
    }
}

/// What is not done exactly is refused by name when the module is loaded.
#[test]
fn other_products_are_refused() {
    for mnemonic in [
        "mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32",
        "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
        "mma.sync.aligned.m8n8k4.row.col.rz.f64.f64.f64.f64",
        // Shapes that PTX has of other elements, or of the other instruction.
        "mma.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
        "mma.sync.aligned.m8n8k32.row.col.s32.s8.s8.s32",
        "mma.sync.aligned.m8n8k16.row.col.s32.s4.s4.s32",
        "mma.sync.aligned.m8n8k32.row.col.s32.b1.b1.s32.xor.popc",
        "mma.sync.aligned.m16n8k64.row.col.s32.b1.b1.s32.xor.popc",
        "wmma.mma.xor.popc.sync.aligned.row.col.m16n8k128.s32.b1.b1.s32",
        "wmma.mma.sync.aligned.row.col.m16n8k16.f64.f64.f64.f64",
        "wmma.mma.sync.aligned.row.col.m16n8k32.s32.s4.s4.s32",
    ] {
        let text = format!(
            ".version 8.7\n.target sm_90\n.address_size 64\n.visible .entry multiply()\n{{\n\t.reg .b32 %r<9>;\n\t{mnemonic} {{%r0, %r1, %r2, %r3}}, {{%r0, %r1, %r2, %r3}}, {{%r0, %r1}}, {{%r0, %r1, %r2, %r3}};\n\tret;\n}}\n"
        );
        let loaded = Loaded::new(&text).expect("the module loads");
        let refused = loaded.linked.program().kernels[0].refused.clone().unwrap_or_else(|| panic!("{mnemonic} is not refused"));
        assert_eq!(refused.instruction, mnemonic);
    }
}
