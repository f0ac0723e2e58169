//! Copies of boxes of tensors, whose maps the kernel makes itself, against plain loops.

// Dimensions are numbered: several arrays are indexed with the same one.
#![allow(clippy::needless_range_loop)]

use crate::common::Loaded;
use std::fmt::Write as _;

/// A tensor in global memory, and the box that is copied.
#[derive(Clone, Copy, Debug)]
struct Case<'a> {
    /// Bytes of an element, and its type's number.
    element: (usize, u32),
    dimensions: &'a [usize],
    /// Bytes from element to element behind the first dimension.
    strides: &'a [usize],
    /// Elements of the box, and its first element.
    size: &'a [usize],
    start: &'a [i32],
    steps: &'a [usize],
    /// Bytes of a row of the pattern: 0, 32, 64 or 128.
    swizzle: usize,
    /// Elements outside are NaN.
    nan: bool,
}

const BARRIER: usize = 128;
const BOX: usize = 1024;

/// A kernel that makes the map, loads the box, gives its shared memory, and stores the box into
/// another tensor of the same shape.
fn kernel(case: &Case<'_>) -> String {
    let rank = case.dimensions.len();
    let mode = [0, 32, 64, 128].iter().position(|width| *width == case.swizzle).unwrap();
    let mut text = String::from(
        ".version 8.7\n.target sm_90a\n.address_size 64\n.extern .shared .align 1024 .b8 memory[];\n\
         .visible .entry copy(.param .u64 tensor, .param .u64 other, .param .u64 map, .param .u64 out)\n{\n.reg .pred %p, %q;\n.reg .b64 %tensor, %other, %map, %to, %at;\n\
         .reg .b32 %t, %s, %v, %b, %m, %bar, %i;\nld.param.u64 %tensor, [tensor];\nld.param.u64 %other, [other];\nld.param.u64 %map, [map];\nld.param.u64 %to, [out];\n\
         mov.u32 %t, %tid.x;\nmov.u32 %m, memory;\nsetp.eq.u32 %p, %t, 0;\n",
    );
    writeln!(text, "add.u32 %bar, %m, {BARRIER};\nadd.u32 %b, %m, {BOX};\nmov.u32 %v, 0;\nshl.b32 %i, %t, 2;\nadd.u32 %i, %i, %m;\nst.shared.b32 [%i], %v;\nbar.warp.sync -1;").unwrap();
    let put = |text: &mut String, field: &str, kind: &str, ordinal: Option<usize>, value: &str| {
        let ordinal = ordinal.map_or_else(String::new, |ordinal| format!("{ordinal}, "));
        writeln!(text, "@%p tensormap.replace.tile.{field}.shared::cta.b1024.{kind} [%m], {ordinal}{value};").unwrap();
    };
    let fields = |text: &mut String, tensor: &str| {
        put(text, "global_address", "b64", None, tensor);
        put(text, "rank", "b32", None, &(rank - 1).to_string());
        put(text, "elemtype", "b32", None, &case.element.1.to_string());
        put(text, "interleave_layout", "b32", None, "0");
        put(text, "swizzle_mode", "b32", None, &mode.to_string());
        put(text, "fill_mode", "b32", None, &u8::from(case.nan).to_string());
        for at in 0..rank {
            put(text, "box_dim", "b32", Some(at), &case.size[at].to_string());
            put(text, "global_dim", "b32", Some(at), &case.dimensions[at].to_string());
            put(text, "element_stride", "b32", Some(at), &case.steps[at].to_string());
            if at > 0 {
                writeln!(text, "mov.b64 %at, {};", case.strides[at - 1]).unwrap();
                put(text, "global_stride", "b64", Some(at - 1), "%at");
            }
        }
        text.push_str("bar.warp.sync -1;\ntensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%map], [%m], 128;\n");
        text.push_str("fence.proxy.tensormap::generic.acquire.gpu [%map], 128;\n");
    };
    fields(&mut text, "%tensor");
    let start = case.start.iter().map(i32::to_string).collect::<Vec<_>>().join(", ");
    let bytes = box_bytes(case);
    writeln!(
        text,
        "@%p mbarrier.init.shared::cta.b64 [%bar], 1;\n@%p mbarrier.arrive.expect_tx.shared.b64 _, [%bar], {bytes};\n\
         @%p cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%b], [%map, {{{start}}}], [%bar];\n\
         waits: mbarrier.try_wait.parity.shared.b64 %q, [%bar], 0;\n@!%q bra waits;\n\
         mov.u32 %i, 0;\nshl.b32 %s, %t, 2;\n\
         gives: add.u32 %v, %i, %s;\nsetp.lt.u32 %q, %v, {bytes};\nadd.u32 %v, %v, %b;\ncvt.u64.u32 %at, %i;\nadd.u64 %at, %at, %to;\n\
         @%q ld.shared.b32 %v, [%v];\n{{\n.reg .b64 %w;\ncvt.u64.u32 %w, %s;\nadd.u64 %at, %at, %w;\n}}\n@%q st.global.b32 [%at], %v;\nadd.u32 %i, %i, 128;\nsetp.lt.u32 %q, %i, {bytes};\n@%q bra gives;\nbar.warp.sync -1;"
    )
    .unwrap();
    fields(&mut text, "%other");
    writeln!(
        text,
        "fence.proxy.async.shared::cta;\n@%p cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group [%map, {{{start}}}], [%b];\n\
         cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;\nret;\n}}"
    )
    .unwrap();
    text
}

fn counts(case: &Case<'_>) -> Vec<usize> {
    // Along the first dimension no element is left out.
    case.size.iter().zip(case.steps).enumerate().map(|(at, (size, step))| if at == 0 { *size } else { size.div_ceil(*step) }).collect()
}

fn box_bytes(case: &Case<'_>) -> usize {
    counts(case).iter().product::<usize>() * case.element.0
}

fn check(case: &Case<'_>) {
    let (size, rank) = (case.element.0, case.dimensions.len());
    let total = if rank > 1 { case.strides[rank - 2] * case.dimensions[rank - 1] } else { size * case.dimensions[0] };
    let tensor: Vec<u8> = (0..total).map(|at| (at * 7 + at / 251) as u8 | 1).collect();
    let mut loaded = Loaded::new(&kernel(case)).unwrap_or_else(|error| panic!("{case:?}: {error}"));
    assert_eq!(loaded.linked.program().kernels[0].refused, None, "{case:?}");
    let bytes = box_bytes(case);
    let places = [tensor.clone(), vec![0; total], vec![0; 128], vec![0; bytes]].map(|content| loaded.memory.allocate(&content));
    loaded.run("copy", [1; 3], [32, 1, 1], (BOX + bytes) as u32, places.map(u64::to_le_bytes).concat()).unwrap_or_else(|fault| panic!("{case:?}: {fault}"));
    // What lies where, element by element.
    let (mut shared, mut other) = (vec![0; bytes], vec![0; total]);
    let counts = counts(case);
    for number in 0..counts.iter().product() {
        let (mut rest, mut global, mut inside) = (number, 0, true);
        for at in 0..rank {
            let step = if at == 0 { 1 } else { case.steps[at] };
            let coordinate = i64::from(case.start[at]) + (rest % counts[at] * step) as i64;
            rest /= counts[at];
            inside &= (0..case.dimensions[at] as i64).contains(&coordinate);
            global += coordinate * (if at == 0 { size } else { case.strides[at - 1] }) as i64;
        }
        let straight = BOX + number * size;
        let row = straight / 128 % 8;
        let piece = match case.swizzle {
            128 => row,
            64 => row % 4,
            32 => row % 2,
            _ => 0,
        };
        let at = (straight ^ (piece * 16)) - BOX;
        let nan: u64 = if size == 2 { 0x7fff } else { 0x7fff_ffff };
        let outside = if case.nan { nan } else { 0 }.to_le_bytes();
        let element = if inside { &tensor[global as usize..global as usize + size] } else { &outside[..size] };
        shared[at..at + size].copy_from_slice(element);
        if inside {
            other[global as usize..global as usize + size].copy_from_slice(element);
        }
    }
    assert!(loaded.memory.read(places[3]) == shared, "{case:?}: the box differs");
    assert!(loaded.memory.read(places[1]) == other, "{case:?}: the other tensor differs");
}

const F16: (usize, u32) = (2, 6);
const F32: (usize, u32) = (4, 7);

#[test]
fn boxes_are_copied_element_by_element() {
    let plain = Case { element: F16, dimensions: &[100, 20], strides: &[208], size: &[64, 8], start: &[8, 3], steps: &[1, 1], swizzle: 0, nan: false };
    check(&plain);
    for swizzle in [32, 64, 128] {
        check(&Case { size: &[swizzle / 2, 16], swizzle, ..plain });
    }
    // Beyond each edge, zeros and NaNs; wholly outside.
    for start in [&[-3, 3][..], &[80, 3], &[8, -2], &[8, 17], &[-40, 15], &[1000, 0], &[0, -1000]] {
        check(&Case { start, ..plain });
        check(&Case { start, nan: true, swizzle: 128, ..plain });
    }
    check(&Case { element: F32, dimensions: &[37, 9], strides: &[160], size: &[32, 4], start: &[6, 6], swizzle: 128, nan: true, ..plain });
    check(&Case { element: (1, 0), dimensions: &[64, 64], strides: &[64], size: &[16, 64], start: &[5, 0], ..plain });
    check(&Case { element: (8, 4), dimensions: &[10, 4], strides: &[80], size: &[4, 4], start: &[7, 0], ..plain });
}

#[test]
fn tensors_have_one_to_five_dimensions_and_steps() {
    check(&Case { element: F16, dimensions: &[1000], strides: &[], size: &[256], start: &[900], steps: &[1], swizzle: 0, nan: false });
    let three =
        Case { element: F16, dimensions: &[32, 6, 5], strides: &[64, 400], size: &[16, 3, 4], start: &[4, 4, -1], steps: &[1, 1, 1], swizzle: 32, nan: false };
    check(&three);
    check(&Case { steps: &[1, 2, 3], ..three });
    check(&Case {
        element: F32,
        dimensions: &[8, 3, 4, 3, 2],
        strides: &[32, 96, 384, 1152],
        size: &[4, 2, 2, 2, 2],
        start: &[2, 1, 1, 1, 1],
        steps: &[1; 5],
        swizzle: 0,
        nan: false,
    });
}

/// A map of zeros is one of bytes without rows; other faults are those of any access.
#[test]
fn what_is_no_map_is_a_fault() {
    let run = |copy: &str, at: u32| {
        let text = format!(
            ".version 8.7\n.target sm_90a\n.address_size 64\n.extern .shared .align 1024 .b8 memory[];\n.visible .entry copy(.param .u64 map)\n{{\n\
             .reg .b64 %map;\n.reg .b32 %m;\nld.param.u64 %map, [map];\nmov.u32 %m, memory;\nadd.u32 %m, %m, {at};\n{copy}\nret;\n}}\n"
        );
        let mut loaded = Loaded::new(&text).unwrap();
        let map = loaded.memory.allocate(&[0; 128]);
        loaded.run("copy", [1; 3], [1, 1, 1], 4096, map.to_le_bytes().to_vec()).unwrap_err().to_string()
    };
    let store = "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%map, {0, 0}], [%m];";
    assert!(run(store, 0).contains("illegal instruction"), "{}", run(store, 0));
}

/// What is not done exactly is refused by name when the module is loaded.
#[test]
fn other_copies_of_tensors_are_refused() {
    for instruction in [
        "cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%m], [%map, {%m, %m, %m}], [%m], {%h};",
        "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%m], [%map, {%m}], [%m], %h;",
        "cp.reduce.async.bulk.tensor.1d.global.shared::cta.add.bulk_group [%map, {%m}], [%m];",
    ] {
        let text = format!(
            ".version 8.7\n.target sm_90a\n.address_size 64\n.visible .entry copy()\n{{\n.reg .b64 %map;\n.reg .b32 %m;\n.reg .b16 %h;\n{instruction}\nret;\n}}\n"
        );
        let loaded = Loaded::new(&text).unwrap_or_else(|error| panic!("{instruction}: {error}"));
        assert!(loaded.linked.program().kernels[0].refused.is_some(), "{instruction} is not refused");
    }
}
