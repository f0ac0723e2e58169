//! PTX from the compiler (see data/README.md): every statement must come back as it was written.

use cumux_ptx::ast::{FunctionKind, InitValue, Linkage, Module, Opcode, StateSpace, SymbolRef};
use cumux_ptx::parse;

const SOURCES: [(&str, &str); 6] = [
    ("integers", include_str!("data/integers.ptx")),
    ("floats", include_str!("data/floats.ptx")),
    ("halves", include_str!("data/halves.ptx")),
    ("warps", include_str!("data/warps.ptx")),
    ("calls", include_str!("data/calls.ptx")),
    ("refused", include_str!("data/refused.ptx")),
];

fn module(name: &str) -> Module {
    let (_, source) = SOURCES.iter().find(|(n, _)| *n == name).unwrap();
    parse(source).unwrap_or_else(|error| panic!("{name}:\n{}", error.render(source)))
}

/// The instructions of a PTX text, found without the parser: what ends in ';' inside a function
/// and is no declaration, with all white space gone.
fn statements(source: &str) -> Vec<String> {
    let mut text = String::new();
    for line in source.lines() {
        let line = line.split("//").next().unwrap();
        if !line.trim_start().starts_with(".file") {
            text.push_str(line);
            text.push('\n');
        }
    }
    let mut found = Vec::new();
    let mut depth = 0;
    let mut statement = String::new();
    // `::` is no label.
    for c in text.replace("::", "\u{1}").chars() {
        match c {
            // The list of an initialiser.
            '{' | '}' if depth == 0 && statement.contains('=') => {}
            // A brace inside a statement belongs to a vector.
            '{' | '}' if statement.trim().is_empty() || statement.contains(".entry") => {
                depth += if c == '{' { 1 } else { -1 };
                statement.clear();
            }
            '{' | '}' if depth == 0 => {
                depth += if c == '{' { 1 } else { -1 };
                statement.clear();
            }
            ':' => statement.clear(),
            ';' => {
                let done = std::mem::take(&mut statement);
                let done = done.trim();
                if depth > 0 && !done.starts_with('.') {
                    found.push(done.replace('\u{1}', "::").split_whitespace().collect());
                }
            }
            c => statement.push(c),
        }
    }
    found
}

/// Writes hexadecimal integers in decimal and unsigned ones without their `U`, as the printer does.
fn plain_numbers(statement: &str) -> String {
    let mut out = String::new();
    let statement = statement.replace("0X", "0x").replace("WARP_SZ", "32").replace("+0]", "]");
    let mut rest = &statement[..];
    while let Some(at) = rest.find("0x") {
        let inside_name = rest[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
        let digits: String = rest[at + 2..].chars().take_while(char::is_ascii_hexdigit).collect();
        out.push_str(&rest[..at]);
        if inside_name {
            out.push_str("0x");
            rest = &rest[at + 2..];
        } else {
            out.push_str(&i64::from_str_radix(&digits, 16).unwrap().to_string());
            rest = &rest[at + 2 + digits.len()..];
        }
    }
    out += rest;
    let bare = out.strip_suffix('U').filter(|rest| rest.ends_with(|c: char| c.is_ascii_digit()));
    bare.unwrap_or(&out).to_owned()
}

#[test]
fn every_instruction_comes_back_as_written() {
    for (name, source) in SOURCES {
        let module = module(name);
        let printed: Vec<String> = module
            .functions
            .iter()
            .filter_map(|f| Some((f, f.body.as_ref()?)))
            .flat_map(|(f, body)| body.instructions.iter().map(move |i| (f, i)))
            .map(|(f, i)| module.instruction_text(f, i))
            .map(|text| text.split_whitespace().collect())
            .collect();
        let written: Vec<String> = statements(source).iter().map(|s| plain_numbers(s)).collect();
        for (printed, written) in printed.iter().zip(&written) {
            assert_eq!(printed, written, "in {name}");
        }
        assert_eq!(printed.len(), written.len(), "in {name}");
    }
}

#[test]
fn positions_point_at_the_instructions() {
    for (name, source) in SOURCES {
        let lines: Vec<&str> = source.lines().collect();
        let module = module(name);
        for function in &module.functions {
            for instruction in function.body.iter().flat_map(|body| &body.instructions) {
                let line = lines[instruction.pos.line as usize - 1];
                let text = &line[instruction.pos.col as usize - 1..];
                let start = match instruction.guard {
                    Some(_) => "@",
                    None => instruction.opcode.name(),
                };
                assert!(text.starts_with(start), "{name}: {text}");
            }
        }
    }
}

#[test]
fn ids_are_in_range_and_labels_have_targets() {
    for (name, _) in SOURCES {
        for function in module(name).functions {
            let Some(body) = function.body else { continue };
            let end = body.instructions.len() as u32;
            assert!(body.labels.iter().all(|label| label.target <= end));
            let tables = body.branch_tables.iter().flat_map(|t| &t.targets);
            assert!(tables.into_iter().all(|id| id.index() < body.labels.len()));
        }
    }
}

#[test]
fn kernels_have_their_parameters_and_directives() {
    let module = module("calls");
    assert_eq!(module.target.arch, 80);
    assert_eq!((module.version, module.address_size), ((9, 0), 64));
    let calls = module.function(module.find_function("calls").unwrap());
    assert_eq!((calls.kind, calls.linkage), (FunctionKind::Entry, Linkage::Visible));
    let shape: Vec<_> = calls.params.iter().map(|p| (p.offset, p.size, p.align)).collect();
    assert_eq!(shape, [(0, 8, 8), (8, 4, 4), (16, 48, 8), (64, 16, 16)]);
    assert_eq!(calls.params_size, 80);
    let table = module.function(module.find_function("table").unwrap());
    assert_eq!(table.directives.maxntid, Some([256, 1, 1]));
    assert_eq!(table.directives.minnctapersm, Some(2));
    let declared: Vec<_> = module.prototypes().map(|(_, f)| &*f.name).collect();
    assert_eq!(declared, ["malloc", "free"]);
}

#[test]
fn initialisers_are_bytes_and_addresses() {
    let module = module("warps");
    let named = |name: &str| module.global(module.find_global(name).unwrap());
    let grid = named("grid");
    assert_eq!((grid.space, grid.size), (StateSpace::Global, 24));
    let values: Vec<u64> = grid
        .init
        .iter()
        .map(|entry| match entry.value {
            InitValue::Bits(bits) => bits << (8 * entry.offset % 64),
            _ => panic!("no address expected"),
        })
        .collect();
    assert!(!values.is_empty());
    let inner = named("inner");
    let InitValue::Address { symbol, offset, generic, mask } = inner.init[0].value else {
        panic!("an address expected");
    };
    let grid_id = module.find_global("grid").unwrap();
    assert_eq!(symbol, SymbolRef::Global(grid_id));
    assert_eq!((offset, generic, mask), (12, true, None));
    assert!(named("managed").managed);
    let dynamic = module.globals.iter().find(|v| v.unsized_array).unwrap();
    assert_eq!((dynamic.linkage, dynamic.size), (Linkage::Extern, 0));
    assert!(dynamic.space.is_shared());
}

#[test]
fn labels_of_two_scopes_stay_apart() {
    let module = module("warps");
    let waits = module.function(module.find_function("waits").unwrap());
    let body = waits.body.as_ref().unwrap();
    let named = |name: &str| -> Vec<u32> {
        let labels = body.labels.iter().filter(|label| &*label.name == name);
        labels.map(|label| label.target).collect()
    };
    let wait = named("WAIT");
    assert_eq!(wait.len(), 2);
    assert_ne!(wait[0], wait[1]);
    for target in wait {
        assert_eq!(body.instructions[target as usize].opcode, Opcode::Ld);
    }
}
