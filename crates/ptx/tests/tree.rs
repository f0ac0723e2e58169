//! PTX of our own, and what the tree must say about it.

use cumux_ptx::ast::{
    AddressBase, Axis, Body, CallTarget, CallVia, CmpOp, FuncId, GlobalId, Imm, InitValue, Linkage, Modifier, Module, Opcode, Operand, RegId, Rounding,
    ScalarType, Selector, SpecialReg, StateSpace, SymbolRef, VarId, Variable, Word,
};
use cumux_ptx::parse;

fn module(text: &str) -> Module {
    let text = format!(".version 9.0\n.target sm_90a, debug\n.address_size 64\n{text}");
    parse(&text).unwrap_or_else(|error| panic!("{}", error.render(&text)))
}

fn body(statements: &str) -> Body {
    let text = format!(
        ".func (.param .b32 r) f(.param .b32 a) {{ ret; }}
         .entry k(.param .u64 p) {{ .reg .pred %p<4>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>;
         {statements} }}"
    );
    let mut functions = module(&text).functions;
    functions.pop().unwrap().body.unwrap()
}

fn name(body: &Body, id: RegId) -> &str {
    &body.register(id).name
}

#[test]
fn registers_are_dense_and_scoped() {
    let body = body("mov.b32 %r7, %r3; { .reg .b64 %r3; mov.b64 %r3, 1; { mov.b64 %rd1, %r3; } } mov.b32 %r7, %r3;");
    let table: Vec<_> = body.registers.iter().map(|r| (&*r.name, r.ty)).collect();
    use ScalarType::{B32, B64};
    assert_eq!(table, [("%r7", B32), ("%r3", B32), ("%r3", B64), ("%rd1", B64)]);
    let first = |at: usize| &body.instructions[at].operands;
    assert_eq!(first(0), first(3));
    assert_eq!(first(2)[1], Operand::Reg(RegId(2)));
}

#[test]
fn variables_of_nested_scopes_get_unique_names() {
    let body = body("{ .param .b32 x; st.param.b32 [x], 1; } { .param .align 8 .b8 x[12]; st.param.b32 [x+4], 2; }");
    let names: Vec<_> = body.variables.iter().map(|v| (&*v.name, &*v.unique_name, v.size)).collect();
    assert_eq!(names, [("x", "x", 4), ("x", "x$2", 12)]);
    let base = AddressBase::Symbol(SymbolRef::Local(VarId(1)));
    assert_eq!(body.instructions[1].operands[0], Operand::Address { base, offset: 4 });
}

#[test]
fn branches_and_tables_know_their_targets() {
    let body = body(
        "AGAIN: add.u32 %r1, %r1, 1;
         T: .branchtargets AGAIN, END, MIDDLE;
         brx.idx.uni %r1, T;
         MIDDLE: @!%p2 bra AGAIN;
         END:",
    );
    let target = |at: usize| body.label(body.branch_tables[0].targets[at]).target;
    assert_eq!([target(0), target(1), target(2)], [0, 3, 2]);
    let guard = body.instructions[2].guard.unwrap();
    assert!(guard.negated);
    assert_eq!(name(&body, guard.register), "%p2");
    assert!(body.instructions[1].has(Word::Uni));
}

#[test]
fn calls_name_functions_prototypes_and_tables() {
    let body = body(
        "P: .callprototype (.param .b32 _) _ (.param .b32 _) .noreturn;
         T: .calltargets f;
         call.uni (%r1), f, (%r2);
         call (_), %rd1, (7), P;
         call (%r1), %rd1, (%r2), T;",
    );
    let call = |at: usize| match &body.instructions[at].operands[..] {
        [Operand::Call(call)] => (**call).clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(call(0).target, CallTarget::Function(FuncId(0)));
    assert_eq!(call(1).returns, [Operand::Sink]);
    assert_eq!(call(1).args, [Operand::Imm(Imm::Int(7))]);
    let Some(CallVia::Prototype(id)) = call(1).via else { panic!("a prototype expected") };
    assert!(body.call_prototypes[id.index()].noreturn);
    assert!(matches!(call(2).via, Some(CallVia::Targets(_))));
    assert_eq!(body.call_tables[0].targets, [FuncId(0)]);
}

#[test]
fn modifiers_mean_what_their_opcode_makes_of_them() {
    let body = body(
        "setp.lo.and.u32 %p1, %r1, %r2, %p2;
         mul.lo.u32 %r1, %r2, %r3;
         atom.global.and.b32 %r1, [%rd1], %r2;
         membar.gl;
         cvt.rzi.ftz.s32.f32 %r1, %f1;
         ld.global.nc.L1::no_allocate.L2::128B.v2.u32 {%r1, %r2}, [%rd1];
         cp.async.bulk.prefetch.tensor.1d.L2.global.tile [%rd1, {%r1}];",
    );
    let instruction = |at: usize| &body.instructions[at];
    assert_eq!(instruction(0).cmp(), Some(CmpOp::Lo));
    assert!(instruction(0).bool_op().is_some());
    assert!(instruction(1).has(Word::Lo) && instruction(1).cmp().is_none());
    assert!(instruction(2).reduce().is_some() && instruction(2).bool_op().is_none());
    assert_eq!(instruction(3).scope(), Some(cumux_ptx::ast::Scope::Gpu));
    assert_eq!(instruction(4).rounding(), Some(Rounding::Rzi));
    assert_eq!(instruction(4).types().collect::<Vec<_>>(), [ScalarType::S32, ScalarType::F32]);
    assert_eq!((instruction(5).vector(), instruction(5).space()), (2, Some(StateSpace::Global)));
    assert_eq!(instruction(6).opcode, Opcode::Cp);
    assert!(instruction(6).modifiers.contains(&Modifier::Other("tile".into())));
    assert_eq!(instruction(5).mnemonic(), "ld.global.nc.L1::no_allocate.L2::128B.v2.u32");
}

#[test]
fn operands_keep_all_their_parts() {
    let body = body(
        "mov.u32 %r1, %ctaid.y;
         vadd.s32.s32.s32 %r1, %r2.b3, -%r3.h1, %r4;
         vadd2.s32.s32.s32 %r1, %r2.h32, %r3, %r4;
         shfl.sync.up.b32 %r1|%p1, %r2, -1, 0x10, 0xffffffff;
         mov.b32 %f1, 0fBF800000;
         mov.f64 %rd1, -2.5;
         ld.local.b32 %r1, [64];
         ld.global.b32 %r1, [%rd1+-8];
         mov.u64 %rd1, p;",
    );
    let operand = |at: usize, n: usize| &body.instructions[at].operands[n];
    assert_eq!(*operand(0, 1), Operand::Special(SpecialReg::Ctaid(Axis::Y)));
    assert!(matches!(operand(1, 1), Operand::Selected { selector: Some(Selector::Byte(3)), negated: false, .. }));
    assert!(matches!(operand(1, 2), Operand::Selected { selector: Some(Selector::Half(1)), negated: true, .. }));
    assert!(matches!(operand(2, 1), Operand::Selected { selector: Some(Selector::Halves([3, 2])), .. }));
    assert!(matches!(operand(3, 0), Operand::Pair(_)));
    assert_eq!(*operand(3, 2), Operand::Imm(Imm::Int(-1)));
    assert_eq!(*operand(3, 3), Operand::Imm(Imm::Int(16)));
    assert_eq!(*operand(4, 1), Operand::Imm(Imm::F32(0xBF80_0000)));
    assert_eq!(*operand(5, 1), Operand::Imm(Imm::F64((-2.5f64).to_bits())));
    let base = AddressBase::Absolute(64);
    assert_eq!(*operand(6, 1), Operand::Address { base, offset: 0 });
    assert!(matches!(operand(7, 1), Operand::Address { base: AddressBase::Reg(_), offset: -8 }));
    let symbol = SymbolRef::Param(0);
    assert_eq!(*operand(8, 1), Operand::Symbol { symbol, offset: 0 });
}

/// A vector register is as many registers as it has components, and each can be named alone.
#[test]
fn components_of_a_vector_register_are_registers() {
    let body = body(
        "mov.b32 %r1, %r2; .reg .v4 .f32 q; ld.global.v4.f32 q, [%rd1]; mov.f32 %f1, q.x; mov.f32 %f1, q.w; mov.f32 %f1, q.b;
         .reg .v2 .f32 pair; st.global.v2.f32 [%rd1], pair;",
    );
    let operand = |at: usize, n: usize| &body.instructions[at].operands[n];
    let Operand::Vector(all) = operand(1, 0) else { panic!("{:?}", operand(1, 0)) };
    let Operand::Reg(first) = all[0] else { panic!("{all:?}") };
    assert!(first.0 >= 2, "others come before it");
    let component = |n: u32| Operand::Reg(RegId(first.0 + n));
    assert_eq!(**all, [component(0), component(1), component(2), component(3)]);
    assert_eq!([operand(2, 1), operand(3, 1), operand(4, 1)], [&component(0), &component(3), &component(2)]);
    assert!(matches!(operand(5, 1), Operand::Vector(pair) if pair.len() == 2 && pair[0] != pair[1]));
}

#[test]
fn every_state_space_has_its_name() {
    for name in ["reg", "sreg", "const", "global", "local", "param", "param::entry", "param::func", "shared", "shared::cta", "shared::cluster", "tex"] {
        assert_eq!(StateSpace::from_name(name).map(StateSpace::name), Some(name));
    }
    assert_eq!(StateSpace::from_name("shared::grid"), None);
}

/// Attributes that mean nothing to us are stepped over, however deep their parentheses are.
#[test]
fn attributes_may_have_arguments() {
    let module = module(
        ".global .attribute(.unified(19, (95)), .managed) .b32 x; .global .attribute(.unified(1, 2)) .b32 y;
         .func .attribute(.unified((7), 8)) f() { ret; }",
    );
    assert_eq!(module.globals.iter().map(|global| global.managed).collect::<Vec<_>>(), [true, false]);
    assert!(module.functions[0].body.is_some());
}

/// A definition without a linkage of its own has that of its declaration, unless the declaration
/// only said that it lies elsewhere.
#[test]
fn a_definition_keeps_the_linkage_of_its_declaration() {
    let linkage = |declared: &str, defined: &str| {
        module(&format!("{declared} .func f(.param .b32 a);\n{defined} .func f(.param .b32 a) {{ ret; }}")).functions[0].linkage
    };
    assert_eq!(linkage(".visible", ""), Linkage::Visible);
    assert_eq!(linkage(".weak", ""), Linkage::Weak);
    assert_eq!(linkage("", ".visible"), Linkage::Visible);
    assert_eq!(linkage(".visible", ".weak"), Linkage::Weak);
    assert_eq!(linkage(".extern", ""), Linkage::Internal);
    assert_eq!(linkage(".extern", ".visible"), Linkage::Visible);
}

#[test]
fn literals_take_the_type_they_are_used_with() {
    assert_eq!(Imm::F64(1.5f64.to_bits()).bits(ScalarType::F32), u64::from(1.5f32.to_bits()));
    assert_eq!(Imm::F32(1.5f32.to_bits()).bits(ScalarType::F64), 1.5f64.to_bits());
    assert_eq!(Imm::Int(-1).bits(ScalarType::U16), 0xffff);
    assert_eq!(Imm::Int(3).bits(ScalarType::F64), 3f64.to_bits());
    assert_eq!(Imm::Int(8).bits(ScalarType::Pred), 1);
}

fn global(text: &str) -> Variable {
    let mut module = module(&format!(".global .b32 before; .func g();\n{text}\n.global .b32 after;"));
    module.globals.remove(1)
}

/// What is initialised: offset, size, bits.
fn values(variable: &Variable) -> Vec<(u64, u8, u64)> {
    let bits = |value: &InitValue| match value {
        InitValue::Bits(bits) => *bits,
        InitValue::Address { .. } => u64::MAX,
    };
    variable.init.iter().map(|e| (e.offset, e.size, bits(&e.value))).collect()
}

#[test]
fn initialisers_are_laid_out() {
    let nested = global(".global .align 16 .u16 x[2][3] = {{1, 2}, {3, 4, -1}};");
    assert_eq!((nested.size, nested.align), (12, 16));
    assert_eq!(values(&nested), [(0, 2, 1), (2, 2, 2), (6, 2, 3), (8, 2, 4), (10, 2, 0xffff)]);
    let open = global(".const .u8 x[] = {1, 0, 3, 0};");
    assert_eq!((open.size, &open.dims[..], open.unsized_array), (4, &[4][..], false));
    assert_eq!(values(&open), [(0, 1, 1), (2, 1, 3)]);
    let vector = global(".global .v2 .f32 x = {1.0, 0f40000000};");
    assert_eq!((vector.size, vector.align), (8, 8));
    assert_eq!(values(&vector), [(0, 4, 0x3F80_0000), (4, 4, 0x4000_0000)]);
    assert_eq!(values(&global(".global .f64 x = 0.5;")), [(0, 8, 0.5f64.to_bits())]);
    assert_eq!(values(&global(".global .s64 x = 2 - 3 * 4;")), [(0, 8, (-10i64) as u64)]);
}

#[test]
fn initialisers_may_name_what_comes_later() {
    let variable = global(".global .u64 x[5] = {before, generic(after)+8, g, generic(before+4), 7};");
    let address = |at: usize| match &variable.init[at].value {
        InitValue::Address { symbol, offset, generic, mask } => (*symbol, *offset, *generic, *mask),
        other => panic!("{other:?}"),
    };
    assert_eq!(address(0), (SymbolRef::Global(GlobalId(0)), 0, false, None));
    assert_eq!(address(1), (SymbolRef::Global(GlobalId(2)), 8, true, None));
    assert_eq!(address(2), (SymbolRef::Function(FuncId(0)), 0, false, None));
    assert_eq!(address(3), (SymbolRef::Global(GlobalId(0)), 4, true, None));
    let bytes = global(".global .u8 x[8] = {0xff(after), 0xff00(after+2), 5};");
    let InitValue::Address { offset, mask, .. } = bytes.init[1].value else {
        panic!("an address expected");
    };
    assert_eq!((offset, mask), (2, Some(0xff00)));
}

#[test]
fn wrong_initialisers_are_refused() {
    let refused = |text: &str| {
        let text = format!(".version 9.0\n.target sm_90\n{text}\n.global .u32 z;");
        parse(&text).unwrap_err().diagnostics[0].to_string()
    };
    let cases = [
        (".global .u32 x[2] = {1, 2, 3};", "line 3, column 28: more values than the array has elements"),
        (".global .u32 x[2] = 1;", "line 3, column 21: expected '{' of the initialiser, found '1'"),
        (".global .u32 x = {1};", "line 3, column 18: expected one value: this variable is no array, found '{'"),
        (".global .u32 x[2] = {{1}};", "line 3, column 22: more braces than the array has dimensions"),
        (".global .u64 x = nowhere;", "line 3, column 18: 'nowhere' is not declared (declare it before it is used)"),
        (".global .u8 x[1] = {z};", "line 3, column 22: an address does not fit this type (select bytes with a mask, as in 0xff(name))"),
        (".global .u32 x[281474976710656];", "line 3, column 14: 'x' is too large for any GPU"),
    ];
    for (text, wanted) in cases {
        assert_eq!(refused(text), wanted, "for {text}");
    }
}

#[test]
fn declarations_and_definitions_are_one() {
    let module = module(
        ".extern .global .b32 g; .global .b32 g = 3;
         .func (.param .b32 r) f(.param .b32 a);
         .visible .entry k() { .reg .b32 %r<2>; call (%r1), f, (%r1); ret; }
         .func (.param .b32 out) f(.param .b32 in) { ret; }
         .weak .func h() .noreturn;
         .extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);
         .alias h, f;",
    );
    let names: Vec<_> = module.functions.iter().map(|f| (&*f.name, f.body.is_some())).collect();
    assert_eq!(names, [("f", true), ("k", true), ("h", false), ("vprintf", false)]);
    assert_eq!(&*module.functions[0].params[0].name, "in");
    assert!(module.functions[2].directives.noreturn);
    assert_eq!(module.globals.len(), 1);
    assert_eq!(module.globals[0].linkage, Linkage::Internal);
    assert_eq!(values(&module.globals[0]), [(0, 4, 3)]);
    assert_eq!(module.aliases, [(FuncId(2), FuncId(0))]);
    assert_eq!((module.target.suffix, module.target.options.len()), (Some('a'), 1));
}

#[test]
fn parameters_in_registers_and_pointers() {
    let module = module(
        ".func (.reg .b32 r) f(.reg .b64 a, .reg .pred p) { mov.b32 r, 1; @p bra E; cvt.u32.u64 r, a; E: ret; }
         .entry k(.param .u64 .ptr .global .align 16 x, .param .u64 .ptr .align 1 y, .param .b8 z[3]) { ret; }",
    );
    let function = &module.functions[0];
    assert_eq!(function.returns[0].register, Some(RegId(0)));
    assert_eq!(function.params[0].register, Some(RegId(1)));
    let kernel = &module.functions[1];
    assert_eq!(kernel.params[0].pointer, Some((Some(StateSpace::Global), 16)));
    assert_eq!(kernel.params[1].pointer, Some((None, 1)));
    assert_eq!((kernel.params[2].offset, kernel.params[2].size, kernel.params_size), (16, 3, 19));
}

#[test]
fn debug_information_is_stepped_over() {
    let module = module(
        ".file 1 \"a.cu\"
         .entry k() { .loc 1 5 3
         .reg .b32 %r<2>; mov.b32 %r1, 1; mov.b32 %r1, 2;
         .loc 1 6 1, function_name $L__info_string0, inlined_at 1 5 3
         ret; }
         .section .debug_info { .b32 12 .b8 1 $L__x: .b64 .debug_abbrev { } }
         .section .debug_str
         { $L__info_string0: .b8 95,90,0 }",
    );
    let body = module.functions[0].body.as_ref().unwrap();
    let lines: Vec<_> = (0..3).map(|at| body.line_of(at).unwrap().line).collect();
    assert_eq!(lines, [5, 5, 6]);
    assert_eq!((0..3).map(|at| body.line_of(at).unwrap().inlined_at).collect::<Vec<_>>(), [None, None, Some([1, 5, 3])]);
    assert_eq!(&*module.files[0].1, "a.cu");
}
