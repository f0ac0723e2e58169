//! What users read when their PTX is wrong.

use cumux_ptx::{MAX_DIAGNOSTICS, parse, parse_bytes};

/// Complaints about statements of a kernel; the first statement is in line 12.
fn complaints(statements: &str) -> Vec<String> {
    let text = format!(
        ".version 9.0
.target sm_90
.address_size 64
.global .align 4 .u32 array[4];
.func (.param .b32 r) callee(.param .b32 a, .param .b64 b) {{ ret; }}
.visible .entry kernel(.param .u64 input)
{{
.reg .pred %p<4>; .reg .b16 %rs<4>;
.reg .b32 %r<8>;
.reg .b64 %rd<8>;
.reg .f32 %f<8>; .reg .f64 %fd<4>;
{statements}
ret;
}}
"
    );
    match parse(&text) {
        Ok(_) => Vec::new(),
        Err(error) => error.diagnostics.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn each_mistake_is_named_with_its_place() {
    let cases = [
        ("add.u32 %r1, %r2, %r3", "line 12, column 22: expected ';' here (the next thing is 'ret')"),
        ("add.u32 %r1 %r2, %r3;", "line 12, column 13: expected ';', found '%r2'"),
        ("add.u32 %r1, %r2;", "line 12, column 1: 'add.u32' takes 3 operands, found 2"),
        ("frobnicate %r1;", "line 12, column 1: unknown instruction 'frobnicate' (instructions up to PTX 9.2 are known)"),
        ("add.foo.u32 %r1, %r2, %r3;", "line 12, column 4: unknown modifier '.foo' of 'add'"),
        ("mov.b32 %r1, %r8;", "line 12, column 14: '%r8' is not declared (declare it with .reg, or raise the count in its range)"),
        ("mov.b32 %r1, nothing;", "line 12, column 14: 'nothing' is not declared (declare it before it is used)"),
        ("add.u32 %r1, %rd1, 1;", "line 12, column 1: operand 2 of 'add.u32' must be a .u32 value (it is %rd1, a .b64 register)"),
        ("add.u32 %r1, %tid.x, 1;", "line 12, column 1: operand 2 of 'add.u32' must be a .u32 value (it is a special register, which only mov can read)"),
        ("add.f32 %f1, %f2, 1;", "line 12, column 1: operand 3 of 'add.f32' must be a .f32 value (it is the integer 1)"),
        ("mul.u32 %r1, %r2, %r3;", "line 12, column 1: 'mul.u32' needs .lo, .hi or .wide"),
        ("fma.f32 %f1, %f2, %f3, %f4;", "line 12, column 1: 'fma.f32' needs a rounding such as .rn"),
        ("and.u32 %r1, %r2, %r3;", "line 12, column 1: 'and.u32' does not take the type .u32"),
        ("add %r1, %r2, %r3;", "line 12, column 1: 'add' needs a type (append one, such as .u32)"),
        ("@%r1 bra L; L:", "line 12, column 1: the guard %r1 is a .b32 register (a guard must be a .pred register)"),
        ("bra NOWHERE;", "line 12, column 5: there is no label 'NOWHERE'"),
        ("L: ret;\nL: ret;", "line 13, column 1: 'L' is already declared at line 12, column 1"),
        (".reg .b32 %r1;", "line 12, column 11: '%r1' is already declared at line 9, column 11"),
        (
            "ld.global.v4.u32 {%r1, %r2}, [%rd1];",
            "line 12, column 1: operand 1 of 'ld.global.v4.u32' must be 4 registers of at least 32 bits in braces (it is a vector of 2)",
        ),
        ("st.global.u32 %rd1, %r1;", "line 12, column 1: operand 1 of 'st.global.u32' must be an address in brackets (it is %rd1, a .b64 register)"),
        ("mov.b64 %rd1, {%r1, %rs1};", "line 12, column 1: operand 2 of 'mov.b64' must be 64 bits for .b64 (it is a vector of 2)"),
        ("call (%r1), callee, (%r2);", "line 12, column 1: 'callee' has 2 argument(s), this call gives 1"),
        ("call (%r1), callee, (%r2, %r3);", "line 12, column 1: argument 2 of 'callee' has 8 bytes, this call gives 4"),
        (
            "call (%r1), %rd1, (%r2);",
            "line 12, column 13: a call through a register needs a prototype (name a .callprototype or .calltargets behind the arguments)",
        ),
        ("mov.b32 %r1, 0f123;", "line 12, column 14: '0f123' is not a single: '0f' and eight hexadecimal digits"),
        ("mov.b32 %r1, 0x12345678123456789;", "line 12, column 14: '0x12345678123456789' is not a hexadecimal number of at most 64 bits"),
        ("mov.b32 %r1, (WARP_SIZE + 1);", "line 12, column 15: expected a constant, found 'WARP_SIZE'"),
        ("mov.b32 %r1, 1 / 0;", "line 12, column 16: division by zero in a constant"),
        ("mov.b32 %r1, \"text;", "line 12, column 14: this string is never closed"),
        (".local .align 3 .b8 x[4];", "line 12, column 15: an alignment must be a power of two (1, 2, 4, … up to 1048576)"),
        (".shared .pred x;", "line 12, column 14: predicates live in registers only"),
    ];
    for (statement, wanted) in cases {
        let found = complaints(statement);
        assert_eq!(found, [wanted], "for {statement}");
    }
}

/// Every type that a value can have, and the groups of them that the manual names.
const TYPES: [&str; 25] = [
    "b8", "b16", "b32", "b64", "b128", "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "f16", "f16x2", "bf16", "bf16x2", "f32", "f32x2", "f64", "u16x2",
    "s16x2", "u8x4", "s8x4", "pred",
];
const INTEGERS: &[&str] = &["u16", "u32", "u64", "s16", "s32", "s64"];
const HALVES: &[&str] = &["f16", "f16x2", "bf16", "bf16x2"];
const FLOATS: &[&str] = &["f32", "f64"];
const BITS: &[&str] = &["b16", "b32", "b64"];

/// As the manual lists them, instruction by instruction (PTX ISA 9.2, chapter 9.7).
#[test]
fn each_instruction_takes_the_types_of_the_manual() {
    let cases: [(&[&str], &[&[&str]]); 25] = [
        (&["add", "sub", "min", "max"], &[INTEGERS, &["u16x2", "s16x2", "u8x4", "s8x4"], HALVES, FLOATS, &["f32x2"]]),
        (&["mul.lo"], &[INTEGERS, HALVES, FLOATS, &["f32x2"]]),
        (&["mad.lo"], &[INTEGERS, FLOATS]),
        (&["fma.rn"], &[HALVES, FLOATS, &["f32x2"]]),
        (&["div.rn"], &[INTEGERS, FLOATS]),
        (&["rem", "sad"], &[INTEGERS]),
        (&["addc", "subc", "madc.lo"], &[&["u32", "s32", "u64", "s64"]]),
        (&["mul24.lo", "mad24.lo", "szext.wrap", "dp4a"], &[&["u32", "s32"]]),
        (&["abs"], &[&["s16", "s32", "s64"], HALVES, FLOATS]),
        (&["neg"], &[&["s16", "s32", "s64", "s8x4"], HALVES, FLOATS]),
        (&["and", "or", "xor", "not"], &[BITS, &["pred"]]),
        (&["cnot", "shl"], &[BITS]),
        (&["shr"], &[BITS, INTEGERS]),
        (&["popc", "clz", "brev", "bfi", "match.any.sync"], &[&["b32", "b64"]]),
        (&["bfe", "bfind"], &[&["u32", "s32", "u64", "s64"]]),
        (&["prmt", "lop3", "shf.l.wrap", "fns", "bmsk.wrap", "shfl.sync.up"], &[&["b32"]]),
        (&["rcp.rn", "sqrt.rn", "rsqrt.approx", "testp.finite", "copysign"], &[FLOATS]),
        (&["sin.approx", "cos.approx", "lg2.approx"], &[&["f32"]]),
        (&["ex2.approx", "tanh.approx"], &[&["f32"], HALVES]),
        (&["setp.lt"], &[INTEGERS, HALVES, FLOATS]),
        (&["setp.ne"], &[INTEGERS, HALVES, FLOATS, BITS]),
        (&["ld.global", "st.global"], &[&["b8", "b128", "u8", "s8"], BITS, INTEGERS, FLOATS]),
        (&["atom.global.xor", "red.global.and"], &[&["b32", "b64"]]),
        (&["atom.global.inc", "red.global.dec"], &[&["u32"]]),
        (&["atom.global.add", "red.shared.add"], &[&["u32", "s32", "u64", "s64"], HALVES, FLOATS]),
    ];
    for (instructions, taken) in cases {
        for instruction in instructions {
            for ty in TYPES {
                let refused = complaints(&format!("{instruction}.{ty} %r1;")).iter().any(|text| text.contains("does not take the type"));
                assert_eq!(refused, !taken.concat().contains(&ty), "{instruction}.{ty}");
            }
        }
    }
}

#[test]
fn each_instruction_says_how_many_operands_it_takes() {
    let cases: [(&str, &[&str]); 8] = [
        ("2", &["abs.s32", "not.b32", "brev.b32", "popc.b32", "rcp.rn.f32", "sin.approx.f32", "ex2.approx.f32", "testp.finite.f32", "cvta.global.u64"]),
        ("3", &["add.u32", "sub.f32", "mul.lo.u32", "div.s32", "and.b32", "or.b32", "xor.b32", "copysign.f32", "shl.b32", "shr.u32", "szext.wrap.u32"]),
        ("4", &["mad.lo.u32", "fma.rn.f32", "sad.u32", "bfe.u32", "prmt.b32", "shf.l.wrap.b32", "selp.b32", "slct.s32.s32", "dp4a.u32.u32"]),
        ("5", &["bfi.b32", "shfl.sync.up.b32"]),
        ("1 to 2", &["bar.sync"]),
        ("3 to 4", &["min.s32", "max.f32", "set.lt.u32.s32", "setp.lt.u32", "bar.red.popc.u32", "barrier.cta.red.and.pred"]),
        ("5 to 6", &["lop3.b32"]),
        ("0", &["membar.gl", "trap"]),
    ];
    for (wanted, instructions) in cases {
        for instruction in instructions {
            let found = complaints(&format!("{instruction} 1, 2, 3, 4, 5, 6, 7;"));
            let said = found.iter().any(|text| text.contains(&format!("' takes {wanted} operands, found 7")));
            assert!(said, "{instruction}: {found:?}");
        }
    }
}

/// Parameters and return values, each alone, must be as declared.
#[test]
fn a_definition_is_as_its_declaration() {
    let define = |returns: &str, parameters: &str| {
        let text =
            format!(".version 9.0\n.target sm_90\n.address_size 64\n.func (.param .b32 r) f(.param .b32 a);\n.func ({returns}) f({parameters}) {{ ret; }}\n");
        parse(&text).err().map(|error| error.diagnostics[0].to_string())
    };
    assert_eq!(define(".param .b32 r", ".param .b32 a"), None);
    for (returns, parameters) in [(".param .b64 r", ".param .b32 a"), (".param .b32 r", ".param .b64 a"), (".param .b32 r", ".param .b32 a, .param .b32 b")] {
        let found = define(returns, parameters).unwrap_or_default();
        assert!(found.contains("'f' has other parameters than declared at line 4"), "({returns}) f({parameters}): {found}");
    }
}

#[test]
fn good_statements_are_no_mistakes() {
    let good = "
        add.u32 %r1, %r2, -1;  add.u32 %r1, %r2, 0xffffffffU;  add.u32 %r1, %r2, (1 + 2) * 3;
        mad.wide.s32 %rd1, %r1, 4, %rd2;  setp.lt.and.s32 %p1|%p2, %r1, WARP_SZ, !%p3;
        mov.b64 {%r1, _}, %rd1;  mov.b32 %f1, 0f3F800000;  mov.v4.u32 {%r1, %r2, %r3, %r4}, %tid;
        cvt.u64.u32 %rd1, %tid.x;  cvt.rn.f16x2.f32 %r1, %f1, %f2;  ld.global.u32 %r1, array[2];
        ld.global.u8 %rd1, [%rd2 + -4];  st.global.v2.u32 [array + 8], {%r1, 3};
        atom.global.cas.b64 %rd1, [%rd2], %rd3, 0;  red.shared.add.f32 [%r1], 0f3F800000;
        vote.sync.all.pred %p1, !%p2, -1;  shfl.sync.bfly.b32 %r1|%p1, %f2, 1, 31, -1;
        { .reg .b64 %r1; mov.b64 %r1, 5; }  call (_), callee, (%r2, %rd1);
        .reg .v2 .f32 pair;  ld.global.v2.f32 pair, [%rd1];  mov.f32 %f1, pair.y;
        P: .callprototype (.param .b32 _) _ (.param .b32 _);  call (%r1), %rd1, (%r2), P;
        T: .branchtargets L, M;  brx.idx %r1, T;  L: M: @!%p1 bra.uni M;  .pragma \"nounroll\";
        vadd4.u32.u32.u32 %r1, %r2.b7531, %r3, %r4;  vmad.s32.s32.s32 %r1, %r2.b0, -%r3.h1, %r4;
        .loc 1 7 3, function_name L + 4, inlined_at 1 2 3
        tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f5, %f6}];
    ";
    assert_eq!(complaints(good), [""; 0]);
}

#[test]
fn several_mistakes_are_collected_up_to_a_limit() {
    let three = complaints("frob %r1;\nadd.u32 %r1, %r2;\nret;\nmov.b32 %r1, %r99;");
    let places: Vec<_> = three.iter().map(|c| c.split(':').next().unwrap()).collect();
    assert_eq!(places, ["line 12, column 1", "line 13, column 1", "line 15, column 14"]);
    assert_eq!(complaints(&"frob;\n".repeat(500)).len(), MAX_DIAGNOSTICS);
}

#[test]
fn renderings_show_the_line_and_a_caret() {
    let text = ".version 9.0\n.target sm_90\n.entry k()\n{\n\t.reg .b32 %r<2>;\n\tmov.b32 %r1, %q1;\n}\n";
    let error = parse(text).unwrap_err();
    assert_eq!(
        error.render(text),
        "line 6, column 15: '%q1' is not declared\n  \
           |\n6 | \tmov.b32 %r1, %q1;\n  | \t             ^\n  \
         help: declare it with .reg, or raise the count in its range\n"
    );
}

#[test]
fn what_is_no_ptx_is_said_to_be_none() {
    let first = |text: &str| parse(text).unwrap_err().diagnostics[0].to_string();
    assert_eq!(first("hello"), "line 1, column 1: expected '.version', found 'hello' (a PTX module begins with .version, .target and .address_size)");
    assert_eq!(first(""), "line 1, column 1: expected '.version', found the end of the text (a PTX module begins with .version, .target and .address_size)");
    assert_eq!(first(".version 10.0\n.target sm_90"), "line 1, column 10: PTX version 10.0 is newer than 9.x (compile with CUDA 13 or older)");
    assert!(parse(".version 9.5\n.target sm_90\n.address_size 64\n.visible .entry k() { ret; }").is_ok());
    assert_eq!(first(".version 9.0\n.target compute_90"), "line 2, column 9: 'compute_90' is not a target (targets are named sm_75, sm_90a and the like)");
    assert_eq!(
        first(".version 9.0\n.target sm_90\n.entry k() {\n ret;"),
        "line 4, column 6: the text ends inside a function body (is the PTX cut off? a '}' is missing)"
    );
    let bytes = b".version 9.0\n\x7fELF\xff";
    let error = parse_bytes(bytes).unwrap_err();
    assert_eq!(error.to_string(), "line 2, column 5: this is not text (PTX is ASCII; is this a compiled image?)");
    assert!(parse_bytes(b".version 9.0\n.target sm_90\n\0\0").is_ok());
}
