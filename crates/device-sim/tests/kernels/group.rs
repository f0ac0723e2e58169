//! Products of groups of four warps (`wgmma`), against plain sums. The layouts in shared memory are
//! written out here as the PTX manual draws them, piece by piece of 16 bytes.

use crate::common::Loaded;
use std::fmt::Write as _;

/// Bytes of shared memory, and of a pattern's largest size.
const SHARED: usize = 96 << 10;
const ATOM: usize = 1024;

/// A small number that all formats have, by its place.
fn number(seed: u32) -> i32 {
    (seed.wrapping_mul(0x9e37_79b9) >> 20) as i32 % 7 - 3
}

/// Its bits in a format.
fn bits(format: &str, value: i32) -> u32 {
    let at = (value + 3) as usize;
    match format {
        "f16" => [0xc200, 0xc000, 0xbc00, 0, 0x3c00, 0x4000, 0x4200][at],
        "bf16" => (value as f32).to_bits() >> 16,
        "e4m3" => [0xc4, 0xc0, 0xb8, 0, 0x38, 0x40, 0x44][at],
        "e5m2" => [0xc2, 0xc0, 0xbc, 0, 0x3c, 0x40, 0x42][at],
        "tf32" | "f32" => (value as f32).to_bits(),
        // Whole bytes may be larger.
        _ => value as u8 as u32,
    }
}

fn bytes_of(format: &str) -> usize {
    match format {
        "f16" | "bf16" => 2,
        "tf32" => 4,
        _ => 1,
    }
}

/// How a matrix lies: bytes of a row (16: not swizzled), and whether rows are along M or N.
#[derive(Clone, Copy, Debug)]
struct Layout {
    width: usize,
    turned: bool,
}

/// Writes a matrix of `outer` by `k` elements at `start`, and gives its descriptor.
fn place(shared: &mut [u8], start: usize, layout: Layout, [outer, k]: [usize; 2], format: &str, value: impl Fn(usize, usize) -> i32) -> u64 {
    let size = bytes_of(format);
    let along = if layout.turned { outer } else { k } * size;
    let across = if layout.turned { k } else { outer };
    // Patterns of eight rows follow each other across first; then comes the next part along.
    let pattern = 8 * layout.width;
    let next_part = pattern * across.div_ceil(8);
    for row in 0..across {
        for byte in (0..along).step_by(size) {
            let (part, inside) = (byte / layout.width, byte % layout.width);
            let piece = match layout.width {
                128 => (inside / 16) ^ (row % 8),
                64 => (inside / 16) ^ (row % 8 / 2),
                32 => (inside / 16) ^ (row % 8 / 4),
                _ => inside / 16,
            };
            let at = start + part * next_part + row / 8 * pattern + row % 8 * layout.width + piece * 16 + inside % 16;
            let (outer, k) = if layout.turned { (byte / size, row) } else { (row, byte / size) };
            shared[at..at + size].copy_from_slice(&bits(format, value(outer, k)).to_le_bytes()[..size]);
        }
    }
    let mode = [(16, 0), (128, 1), (64, 2), (32, 3)].iter().find(|(width, _)| *width == layout.width).unwrap().1;
    // Without swizzling, along M or N, the stride is that of the parts.
    let (leading, stride) = if layout.turned && layout.width == 16 { (pattern, next_part) } else { (next_part, pattern) };
    (start >> 4) as u64 | (leading as u64 >> 4) << 16 | (stride as u64 >> 4) << 32 | mode << 62
}

/// One product and how it is asked for.
struct Case {
    n: usize,
    k: usize,
    into: &'static str,
    a: &'static str,
    b: &'static str,
    /// `None`: A is in registers.
    a_layout: Option<Layout>,
    b_layout: Layout,
    keeps: bool,
    negates: bool,
}

fn check(case: &Case) {
    let Case { n, k, into, a, b, a_layout, b_layout, keeps, negates } = *case;
    let (value_a, value_b) = (|row: usize, k: usize| number((row * 97 + k) as u32), |column: usize, k: usize| number((column * 89 + k + 7777) as u32));
    let mut shared = vec![0; SHARED];
    let b_start = 48 << 10;
    let of_a = a_layout.map_or(0, |layout| place(&mut shared, ATOM, layout, [64, k], a, value_a));
    let of_b = place(&mut shared, b_start, b_layout, [n, k], b, value_b);
    let count = if into == "f16" { n / 4 } else { n / 2 };
    let registers = |letter: char, count: usize| (0..count).map(|n| format!("%{letter}{n}")).collect::<Vec<_>>().join(", ");
    let from_a = if a_layout.is_some() { "%da".to_owned() } else { format!("{{{}}}", registers('a', 4)) };
    let sign = if negates { -1 } else { 1 };
    let turn = |layout: Layout| u8::from(layout.turned);
    let rest = match (a, a_layout) {
        ("f16" | "bf16", Some(layout)) => format!(", 1, {sign}, {}, {}", turn(layout), turn(b_layout)),
        ("f16" | "bf16", None) => format!(", 1, {sign}, {}", turn(b_layout)),
        ("s8" | "u8", _) => String::new(),
        _ => format!(", 1, {sign}"),
    };
    let mut text = format!(
        ".version 8.7\n.target sm_90a\n.address_size 64\n.extern .shared .align 1024 .b8 memory[];\n.visible .entry multiply(.param .u64 in, .param .u64 of_a, .param .u64 out)\n{{\n\
         .reg .pred %p;\n.reg .b64 %in, %from, %out, %at, %da, %db;\n.reg .b32 %t, %i, %v, %to;\n.reg .b32 %a<5>;\n.reg .b32 %d<{}>;\n\
         ld.param.u64 %in, [in];\nld.param.u64 %from, [of_a];\nld.param.u64 %out, [out];\nmov.u32 %t, %tid.x;\nmul.lo.u32 %i, %t, 4;\n\
         copied: cvt.u64.u32 %at, %i;\nadd.u64 %at, %at, %in;\nld.global.b32 %v, [%at];\nmov.u32 %to, memory;\nadd.u32 %to, %to, %i;\nst.shared.b32 [%to], %v;\n\
         add.u32 %i, %i, 512;\nsetp.lt.u32 %p, %i, {SHARED};\n@%p bra copied;\nbar.sync 0;\n\
         mul.wide.u32 %at, %t, 4;\nadd.u64 %from, %from, %at;\nadd.u64 %out, %out, %at;\n",
        count + 1
    );
    for register in 0..4 {
        writeln!(text, "ld.global.b32 %a{register}, [%from + {}];", 512 * register).unwrap();
    }
    for register in 0..count {
        // Sums of two, or of numbers that are of no account.
        let begin = if into == "f16" { 0x4000_4000 } else { bits(if into == "s32" { "s8" } else { "f32" }, 2) };
        writeln!(text, "mov.b32 %d{register}, {begin};").unwrap();
    }
    writeln!(text, "mov.b64 %da, {of_a};\nmov.b64 %db, {of_b};\nsetp.{} %p, %t, %t;\nwgmma.fence.sync.aligned;", if keeps { "eq.u32" } else { "ne.u32" })
        .unwrap();
    writeln!(text, "wgmma.mma_async.sync.aligned.m64n{n}k{k}.{into}.{a}.{b} {{{}}}, {from_a}, %db, %p{rest};", registers('d', count)).unwrap();
    text.push_str("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n");
    for register in 0..count {
        writeln!(text, "st.global.b32 [%out + {}], %d{register};", 512 * register).unwrap();
    }
    text.push_str("ret;\n}\n");
    let told = format!("m64n{n}k{k} {into} {a} {b} {a_layout:?} {b_layout:?}");
    let mut loaded = Loaded::new(&text).unwrap_or_else(|error| panic!("{told}: {error}"));
    assert_eq!(loaded.linked.program().kernels[0].refused, None, "{told}");
    // A in registers: the 32 bits of a register are beside each other in a row, and registers go
    // down first.
    let each = 4 / bytes_of(a);
    let a_registers = (0..4).flat_map(|register| (0..128).map(move |thread| (register, thread))).flat_map(|(register, thread)| {
        let (warp, group, inner) = (thread / 32, thread % 32 / 4, thread % 4);
        let (row, column) = (16 * warp + group + 8 * (register % 2), (inner + 4 * (register / 2)) * each);
        let word = (0..each).fold(0, |all, at| all | bits(a, value_a(row, column + at)) << (32 / each * at));
        word.to_le_bytes()
    });
    let (from, of_a, out) =
        (loaded.memory.allocate(&shared), loaded.memory.allocate(&a_registers.collect::<Vec<_>>()), loaded.memory.allocate(&vec![0; 512 * count]));
    let parameters = [from, of_a, out].map(u64::to_le_bytes).concat();
    loaded.run("multiply", [1; 3], [128, 1, 1], SHARED as u32, parameters).unwrap_or_else(|fault| panic!("{told}: {fault}"));
    let words: Vec<u32> = loaded.memory.read(out).chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
    for row in 0..64 {
        for column in 0..n {
            let sum: i32 = (0..k).map(|k| value_a(row, k) * value_b(column, k)).sum();
            let expected = if negates { -sum } else { sum } + if keeps { 2 } else { 0 };
            let (thread, below) = (row / 16 * 32 + row % 8 * 4 + column % 8 / 2, row % 16 / 8);
            let found = if into == "f16" {
                let word = words[(column / 8 * 2 + below) * 128 + thread] >> (16 * (column % 2)) & 0xffff;
                let value = ((word & 0x3ff) | 0x400) as f32 * f32::powi(2.0, (word >> 10 & 31) as i32 - 25);
                if word & 0x7fff == 0 { 0 } else { (if word >> 15 == 1 { -value } else { value }) as i32 }
            } else {
                let word = words[(column / 8 * 4 + 2 * below + column % 2) * 128 + thread];
                if into == "s32" { word as i32 } else { f32::from_bits(word) as i32 }
            };
            assert_eq!(found, expected, "{told}: row {row}, column {column}");
        }
    }
}

const WIDTHS: [usize; 4] = [16, 32, 64, 128];

#[test]
fn products_of_all_formats_are_plain_sums() {
    for (k, into, a, b) in [
        (16, "f32", "f16", "f16"),
        (16, "f16", "f16", "f16"),
        (16, "f32", "bf16", "bf16"),
        (8, "f32", "tf32", "tf32"),
        (32, "f32", "e4m3", "e5m2"),
        (32, "f16", "e5m2", "e4m3"),
        (32, "s32", "s8", "s8"),
    ] {
        for (at, width) in WIDTHS.into_iter().enumerate() {
            let layout = Layout { width, turned: false };
            let n = [8, 24, 64, 256][at];
            for a_layout in [Some(layout), None] {
                let keeps = at % 2 == 0;
                check(&Case { n, k, into, a, b, a_layout, b_layout: layout, keeps, negates: into != "s32" && at == 1 });
            }
        }
    }
}

/// Only elements of 16 bits may lie along M and N.
#[test]
fn matrices_that_lie_along_m_and_n_are_found() {
    for width in WIDTHS {
        for (a_turned, b_turned) in [(true, false), (false, true), (true, true)] {
            // As many as fill whole rows.
            let n = (width / 2).max(64);
            let (a_layout, b_layout) = (Layout { width, turned: a_turned }, Layout { width, turned: b_turned });
            check(&Case { n, k: 16, into: "f32", a: "f16", b: "f16", a_layout: Some(a_layout), b_layout, keeps: true, negates: false });
        }
    }
}

/// What is not done exactly is refused by name when the module is loaded.
#[test]
fn other_products_of_groups_are_refused() {
    for mnemonic in [
        "wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc",
        "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16",
        "wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16",
        "wgmma.mma_async.sync.aligned.m64n8k8.f32.f16.f16",
        "wgmma.mma_async.sync.aligned.m64n8k16.f16.bf16.bf16",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.bf16",
    ] {
        let text = format!(
            ".version 8.7\n.target sm_90a\n.address_size 64\n.visible .entry multiply()\n{{\n.reg .pred %p;\n.reg .b64 %r;\n.reg .b32 %d<5>;\n\
             {mnemonic} {{%d0, %d1, %d2, %d3}}, %r, %r, %p, 1, 1, 0, 0;\nret;\n}}\n"
        );
        let loaded = Loaded::new(&text).unwrap_or_else(|error| panic!("{mnemonic}: {error}"));
        assert!(loaded.linked.program().kernels[0].refused.is_some(), "{mnemonic} is not refused");
    }
}

/// A descriptor that leads out of the block's memory is the kernel's fault.
#[test]
fn a_matrix_outside_of_shared_memory_is_a_fault() {
    let text = ".version 8.7\n.target sm_90a\n.address_size 64\n.visible .entry multiply()\n{\n.reg .pred %p;\n.reg .b64 %r;\n.reg .b32 %d<5>;\n\
                mov.b64 %r, 0x3fff;\nsetp.eq.u64 %p, %r, %r;\n\
                wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%d0, %d1, %d2, %d3}, %r, %r, %p, 1, 1, 0, 0;\nret;\n}\n";
    let mut loaded = Loaded::new(text).unwrap();
    let fault = loaded.run("multiply", [1; 3], [128, 1, 1], 4096, Vec::new()).unwrap_err();
    assert!(fault.to_string().contains("shared"), "{fault}");
}
