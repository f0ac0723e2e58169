use super::*;

const HEAD: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

fn part(name: &'static str, text: &str) -> (&'static str, String) {
    (name, format!("{HEAD}{text}"))
}

fn link_parts(parts: &[(&str, String)]) -> Result<String, Vec<String>> {
    let inputs: Vec<Input<'_>> = parts.iter().map(|(name, text)| Input { name, text, optional: name.starts_with("lib") }).collect();
    let linked = link(&inputs).map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    // What comes out is PTX, in which nothing is open but what the driver provides.
    let module = parse(&linked).unwrap_or_else(|error| panic!("{}\n{linked}", error.render(&linked)));
    for variable in module.globals.iter().filter(|variable| !variable.space.is_shared()) {
        assert!(variable.linkage != Linkage::Extern, "{} is open\n{linked}", variable.name);
    }
    Ok(linked)
}

const CALLER: &str = "
.extern .func (.param .b32 r) twice (.param .b32 x) ;
.extern .global .align 4 .b8 table[16];
.extern .const .align 4 .f32 scale;
.extern .shared .align 4 .b8 dynamic[];
.visible .global .align 8 .u64 pointer = twice;
.global .align 4 .u32 hidden = 3;
.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a) ;
.visible .entry kernel() {
    .reg .b32 %r<4>;
    .reg .b64 %rd<2>;
    .param .b32 p0;
    .param .b32 p1;
    ld.global.u32 %r1, [table+4];
    ld.const.u32 %r2, [scale];
    ld.global.u32 %r3, [hidden];
    st.shared.u32 [dynamic], %r3;
    st.param.b32 [p0], %r1;
    call.uni (p1), twice, (p0);
    ret;
}
.weak .func shared_by_all() { ret; }
";
const CALLEE: &str = "
.global .align 4 .u32 hidden = 4;
.extern .shared .align 16 .b8 dynamic[];
.visible .global .align 4 .b8 table[16] = {1, 2};
.visible .const .align 4 .f32 scale = 0f40000000;
.weak .func shared_by_all() { ret; }
.visible .func (.param .b32 r) twice (.param .b32 x) {
    .reg .b32 %r<3>;
    ld.param.u32 %r1, [x];
    ld.global.u32 %r2, [hidden];
    add.s32 %r1, %r1, %r2;
    st.param.b32 [r], %r1;
    call.uni shared_by_all, ();
    ret;
}
";

#[test]
fn names_are_resolved_across_texts_whatever_their_order() {
    for order in [[0, 1], [1, 0]] {
        let parts = [part("caller.ptx", CALLER), part("callee.ptx", CALLEE)];
        let linked = link_parts(&order.map(|at| parts[at].clone())).unwrap();
        let module = parse(&linked).unwrap();
        let functions: Vec<&str> = module.functions.iter().filter(|function| function.body.is_some()).map(|function| &*function.name).collect();
        assert_eq!(functions.iter().filter(|name| **name == "shared_by_all").count(), 1, "{linked}");
        assert!(functions.contains(&"kernel") && functions.contains(&"twice"), "{linked}");
        // Both keep what is their own.
        let second = if order[0] == 0 { 4 } else { 3 };
        let hidden: Vec<_> = module.globals.iter().filter(|variable| variable.name.starts_with("hidden")).collect();
        assert_eq!(hidden.len(), 2, "{linked}");
        assert!(&*hidden[0].name == "hidden" && &*hidden[1].name == "hidden$part1", "{linked}");
        assert!(linked.contains(&format!("hidden$part1 = {second}")) && linked.matches("[hidden$part1]").count() == 1, "{linked}");
        let dynamic = module.globals.iter().find(|variable| &*variable.name == "dynamic").unwrap();
        assert_eq!((dynamic.align, linked.matches("dynamic[]").count()), (16, 1), "the larger alignment counts");
    }
}

#[test]
fn what_is_missing_or_twice_there_is_named_as_a_linker_does() {
    let faults = link_parts(&[part("caller.ptx", CALLER)]).unwrap_err();
    assert_eq!(
        faults,
        ["Undefined reference to 'twice' in 'caller.ptx'", "Undefined reference to 'table' in 'caller.ptx'", "Undefined reference to 'scale' in 'caller.ptx'"]
    );
    let faults = link_parts(&[part("a", CALLEE), part("b", CALLEE)]).unwrap_err();
    assert_eq!(faults[0], "Multiple definition of 'table' in 'b', first defined in 'a'");
    assert_eq!(faults.len(), 3, "{faults:?}");
    // What is declared and never used needs no definition.
    let linked = link_parts(&[part("a", ".extern .func nobody ();\n.extern .global .u32 nothing;\n")]).unwrap();
    assert!(!linked.contains("nobody"), "{linked}");
}

#[test]
fn weak_and_common_definitions_give_way() {
    let strong = ".visible .global .align 4 .u32 x = 7;\n.visible .func f() { trap; }\n";
    let weak = ".weak .global .align 4 .u32 x = 8;\n.weak .func f() { ret; }\n.visible .func g() { call.uni f, (); ret; }\n";
    for parts in [[part("s", strong), part("w", weak)], [part("w", weak), part("s", strong)]] {
        let linked = link_parts(&parts).unwrap();
        assert!(linked.contains("x = 7") && !linked.contains("x = 8") && linked.contains("{ trap; }") && !linked.contains("{ ret; }"), "{linked}");
    }
    let common =
        |size: u32| format!(".common .global .align 4 .b8 buffer[{size}];\n.visible .func f{size}() {{ .reg .u32 %r; ld.global.u32 %r, [buffer]; ret; }}\n");
    let linked = link_parts(&[part("a", &common(8)), part("b", &common(32)), part("c", &common(16))]).unwrap();
    assert_eq!((linked.matches("buffer[32]").count() > 0, linked.contains("buffer[8]"), linked.contains("buffer[16]")), (true, false, false), "{linked}");
    let linked = link_parts(&[part("a", &common(8)), part("b", ".visible .global .align 4 .b8 buffer[8] = {5};\n")]).unwrap();
    assert!(linked.contains("buffer[8] = {5}") && !linked.contains(".common"), "{linked}");
}

#[test]
fn declarations_that_do_not_match_are_named() {
    let cases = [
        (".extern .global .align 4 .b8 x[8];", ".visible .global .align 4 .b8 x[16];", "Size doesn't match for 'x' in 'a', first specified in 'b'"),
        (".extern .const .align 4 .b8 x[8];", ".visible .global .align 4 .b8 x[8];", "State space doesn't match for 'x' in 'a', first specified in 'b'"),
        (".extern .func x (.param .b32 p);", ".visible .func x (.param .b64 p) { ret; }", "Prototype doesn't match for 'x' in 'a', first specified in 'b'"),
        (".extern .func x ();", ".visible .global .u32 x;", "Type doesn't match for 'x' in 'a', first specified in 'b'"),
    ];
    for (declared, defined, told) in cases {
        assert_eq!(link_parts(&[part("a", declared), part("b", defined)]), Err(vec![told.to_owned()]));
    }
    // A size that is left open is the definition's.
    link_parts(&[part("a", ".extern .global .align 4 .b8 x[];\n.visible .global .u64 y = x;\n"), part("b", ".visible .global .align 4 .b8 x[16];")]).unwrap();
}

#[test]
fn of_a_library_only_what_is_needed_is_taken() {
    let user = part("user", ".extern .func one ();\n.visible .entry k() { call.uni one, (); ret; }\n");
    let one = part("lib(one)", ".extern .func two ();\n.visible .func one() { call.uni two, (); ret; }\n");
    let two = part("lib(two)", ".visible .func two() { ret; }\n");
    let other = part("lib(other)", ".visible .func user_of_nothing() { ret; }\n.extern .func nowhere ();\n.visible .func z() { call.uni nowhere, (); ret; }\n");
    let linked = link_parts(&[two, other, user.clone(), one]).unwrap();
    assert!(linked.contains("two()") && !linked.contains("user_of_nothing"), "{linked}");
    assert_eq!(link_parts(&[user]).unwrap_err(), ["Undefined reference to 'one' in 'user'"]);
}

#[test]
fn the_newest_version_and_target_count() {
    let older = ("a", ".version 7.5\n.target sm_75, debug\n.address_size 64\n.visible .entry a() { ret; }\n".to_owned());
    let newer = ("b", ".version 8.3\n.target sm_90\n.address_size 64\n.visible .entry b() { ret; }\n".to_owned());
    let linked = link_parts(&[older.clone(), newer.clone()]).unwrap();
    assert!(linked.starts_with(".version 8.3\n.target sm_90\n.address_size 64\n"), "{linked}");
    let exact = ("c", newer.1.replace("sm_90", "sm_80a").replace("b()", "c()"));
    assert_eq!(link_parts(&[newer, exact]).unwrap_err(), ["'c' is for sm_80a alone, 'b' for sm_90"]);
    let short = ("d", older.1.replace("64", "32").replace("a()", "d()"));
    assert_eq!(link_parts(&[older, short]).unwrap_err(), ["'d' has addresses of 32 bits, the others do not"]);
    assert_eq!(link_parts(&[("e", "no text".to_owned())]).unwrap_err().len(), 1);
}

#[test]
fn source_lines_keep_their_files() {
    let text = |file: &str, kernel: &str| {
        format!(
            ".visible .entry {kernel}() {{\n.loc 1 7 3, function_name $L__info_string0, inlined_at 2 8 4\n ret;\n}}\n.file 1 \"{file}\"\n.file 2 \"common.h\"\n\
             .section .debug_str\n{{\n$L__info_string0:\n.b8 {}, 0\n}}\n.section .debug_info\n{{\n.b32 $L__info_string0\n}}\n",
            file.len()
        )
    };
    let linked = link_parts(&[part("a", &text("a.cu", "a")), part("b", &text("other.cu", "b"))]).unwrap();
    let module = parse(&linked).unwrap();
    let files: HashMap<u32, &str> = module.files.iter().map(|(number, name)| (*number, &**name)).collect();
    for (kernel, file) in [("a", "a.cu"), ("b", "other.cu")] {
        let function = module.functions.iter().find(|function| &*function.name == kernel).unwrap();
        let line = function.body.as_ref().unwrap().lines[0];
        assert_eq!((files[&line.file], files[&line.inlined_at.unwrap()[0]]), (file, "common.h"), "{linked}");
    }
    assert!(
        linked.contains("function_name $L__info_string0$part1") && linked.contains("$L__info_string0$part1:") && !linked.contains("debug_info"),
        "{linked}"
    );
}

#[test]
fn a_function_may_be_called_like_an_instruction() {
    let own =
        |bytes: u32| format!(".func add() {{ .reg .b32 %r<3>; add.s32 %r1, %r2, {bytes}; ret; }}\n.visible .entry k{bytes}() {{ call.uni add, (); exit; }}\n");
    let linked = link_parts(&[part("a", &own(1)), part("b", &own(2))]).unwrap();
    assert_eq!((linked.matches("add.s32").count(), linked.matches("add$part1").count()), (2, 2), "{linked}");
}

#[test]
fn an_alias_is_a_definition() {
    let alias = ".visible .func real() { ret; }\n.visible .func also();\n.alias also, real;\n";
    let user = ".extern .func also ();\n.visible .entry k() { call.uni also, (); ret; }\n";
    for parts in [[part("a", alias), part("u", user)], [part("u", user), part("a", alias)]] {
        let linked = link_parts(&parts).unwrap();
        assert!(linked.contains(".alias also, real;") && !linked.contains(".extern"), "{linked}");
    }
}

/// Whatever is cut out of a text: the linker says so, or what it makes is PTX.
#[test]
fn damaged_texts_are_faults_or_ptx() {
    let whole = format!("{HEAD}{CALLER}");
    for start in (0..whole.len()).step_by(7) {
        for length in [1, 9, 40] {
            let damaged = format!("{}{}", &whole[..start], &whole[(start + length).min(whole.len())..]);
            let inputs = [Input { name: "a", text: &damaged, optional: false }, Input { name: "b", text: &format!("{HEAD}{CALLEE}"), optional: false }];
            if let Ok(linked) = link(&inputs) {
                assert!(parse(&linked).is_ok(), "{damaged}\n=====\n{linked}\n{:?}", parse(&linked));
            }
        }
    }
}
