//! What an image's symbols say: the names of its variables, and which kernels may print or assert.
//! Pure.
//!
//! The driver finds a variable by its name but lists none, so the names are read from the image.
//! They are candidates: the caller drops those that the driver does not know.

use super::conditions::SETS_CONDITION;
use cumux_fatbin::calls::{Unbounded, find_unbounded};
use cumux_fatbin::cubin;
use cumux_fatbin::stacks::find_moving_stacks;
use object::read::elf::ElfFile64;
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};
use std::collections::{BTreeMap, BTreeSet};

/// A variable of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Variable {
    /// The name in the image (mangled, for C++).
    pub name: String,
    /// True if the variable lies in constant memory.
    pub constant: bool,
}

/// What an image says about itself.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Symbols {
    /// The variables, without text constants of the compiler's in compiled code.
    pub variables: Vec<Variable>,
    /// True if kernels or copies can change a variable, so that clients cannot share the module.
    /// Constants count: copies may change them.
    pub writable: bool,
    /// The names of `__managed__` variables.
    pub managed: Vec<String>,
    /// Which kernels may call device printf.
    pub prints: Callers,
    /// Which kernels may say how a graph goes on in a way that only NVIDIA's driver understands.
    pub sets_conditions: Callers,
    /// True if kernels may fail an assertion: the image names the function that reports one.
    pub asserts: bool,
    /// The unbounded kernels, by name. None for PTX: its compiled form says.
    pub unbounded: BTreeMap<String, Unbounded>,
    /// Which kernels may use stack of which the driver's figures say nothing, besides those. Any
    /// for PTX.
    pub moves_stack: Callers,
}

impl Symbols {
    /// Reads from compiled code how its kernels use the stack. Nothing is known of anything else.
    pub(super) fn read_stacks(&mut self, code: &[u8]) {
        self.unbounded = find_unbounded(code);
        self.moves_stack = find_moving_stacks(code).map_or(Callers::Any, Callers::Some);
    }
}

/// Which kernels may call a function, or do something else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Callers {
    /// These kernels, by name.
    Some(BTreeSet<String>),
    /// Any kernel: a function that any kernel may call does it, or the image does not say.
    Any,
}

impl Default for Callers {
    fn default() -> Self {
        Callers::Some(BTreeSet::new())
    }
}

impl Callers {
    /// True if this kernel is one of them.
    pub(super) fn has(&self, kernel: &str) -> bool {
        match self {
            Callers::Some(kernels) => kernels.contains(kernel),
            Callers::Any => true,
        }
    }

    fn add(&mut self, kernel: &str) {
        if let Callers::Some(kernels) = self {
            kernels.insert(kernel.to_owned());
        }
    }
}

/// The function that device printf calls.
const PRINTF: &str = "vprintf";
/// The function that a failed assertion calls.
const ASSERT: &str = "__assertfail";
/// The bit of an ELF symbol's `st_other` that marks a `__managed__` variable.
const MANAGED: u8 = 4;

/// True for a text constant that the compiler makes. No code writes it.
fn is_literal(name: &str) -> bool {
    cubin::is_literal(name.as_bytes())
}

/// What compiled code says; `None` if it is damaged.
pub(super) fn of_elf(image: &[u8]) -> Option<Symbols> {
    let file = ElfFile64::<object::Endianness>::parse(image).ok()?;
    let mut symbols = Symbols::default();
    let (mut prints, mut sets_conditions) = (false, false);
    for symbol in file.symbols() {
        let Ok(name) = symbol.name() else { continue };
        prints |= name == PRINTF;
        sets_conditions |= name == SETS_CONDITION && symbol.is_undefined();
        symbols.asserts |= name == ASSERT;
        if symbol.kind() != SymbolKind::Data || symbol.is_undefined() || name.is_empty() {
            continue;
        }
        let section = symbol.section_index().and_then(|index| file.section_by_index(index).ok());
        let section = section.as_ref().and_then(|s| s.name().ok()).unwrap_or("");
        let constant = section.starts_with(".nv.constant");
        if !constant && !section.starts_with(".nv.global") {
            continue;
        }
        let elf_symbol = symbol.elf_symbol();
        if elf_symbol.st_other.0 & MANAGED != 0 {
            symbols.managed.push(name.to_owned());
        }
        if !is_literal(name) {
            symbols.writable = true;
            symbols.variables.push(Variable { name: name.to_owned(), constant });
        }
    }
    if prints {
        symbols.prints = find_callers(&file, PRINTF);
    }
    if sets_conditions {
        symbols.sets_conditions = find_callers(&file, SETS_CONDITION);
    }
    symbols.read_stacks(image);
    if let Callers::Some(callers) = &mut symbols.sets_conditions {
        add_hidden_callers(&file, &symbols.unbounded, callers);
    }
    Some(symbols)
}

/// The kernels that call a function of the driver's, directly or through others. The compiler
/// leaves the calls as pairs of symbol numbers: caller, callee.
fn find_callers(file: &ElfFile64<'_, object::Endianness>, function: &str) -> Callers {
    let graph = file.section_by_name(".nv.callgraph").and_then(|section| section.data().ok()).unwrap_or(&[]);
    let callee = file.symbols().find(|symbol| symbol.name() == Ok(function)).map_or(0, |symbol| symbol.index().0);
    let name = |index: u32| file.symbol_by_index(object::SymbolIndex(index as usize)).and_then(|s| s.name()).ok().map(str::to_owned);
    let kernels: BTreeSet<String> = callers_of(graph, u32::try_from(callee).unwrap_or(0)).into_iter().filter_map(name).collect();
    if kernels.is_empty() { Callers::Any } else { Callers::Some(kernels) }
}

/// Adds who may call what these do without being named: code in one section with one of them, and
/// where one is no kernel, whoever calls through an address or itself.
fn add_hidden_callers(file: &ElfFile64<'_, object::Endianness>, unbounded: &BTreeMap<String, Unbounded>, callers: &mut BTreeSet<String>) {
    /// The bit of an ELF symbol's `st_other` that marks a kernel.
    const ENTRY: u8 = 0x10;
    let functions = || file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text && !symbol.is_undefined());
    let is_caller = |name: Result<&str, object::Error>| name.is_ok_and(|name| callers.contains(name));
    let sections: BTreeSet<usize> = functions().filter(|symbol| is_caller(symbol.name())).filter_map(|symbol| Some(symbol.section_index()?.0)).collect();
    let has_helper = functions().any(|symbol| is_caller(symbol.name()) && symbol.elf_symbol().st_other.0 & ENTRY == 0);
    let beside = functions().filter(|symbol| symbol.section_index().is_some_and(|section| sections.contains(&section.0)));
    let beside: Vec<String> = beside.filter_map(|symbol| symbol.name().ok().map(str::to_owned)).collect();
    callers.extend(beside);
    if has_helper {
        callers.extend(unbounded.keys().cloned());
    }
}

/// The symbols that call `callee`, directly or through others.
fn callers_of(graph: &[u8], callee: u32) -> BTreeSet<u32> {
    let word = |pair: &[u8], at: usize| pair.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |w| u32::from_le_bytes(*w));
    let pairs: Vec<(u32, u32)> = graph.chunks_exact(8).map(|pair| (word(pair, 0), word(pair, 4))).collect();
    let mut found = BTreeSet::new();
    let mut next = vec![callee];
    while let Some(callee) = next.pop() {
        next.extend(pairs.iter().filter(|(_, called)| *called == callee).map(|(caller, _)| *caller).filter(|caller| found.insert(*caller)));
    }
    found
}

/// What PTX says: its declarations outside of functions, and the calls in them.
pub(super) fn of_ptx(text: &str) -> Symbols {
    let mut symbols = Symbols { asserts: text.contains(ASSERT), moves_stack: Callers::Any, ..Symbols::default() };
    let mut depth = 0_u32;
    let mut kernel: Option<&str> = None;
    for statement in statements(text) {
        match statement {
            Piece::Open => depth += 1,
            Piece::Close => depth = depth.saturating_sub(1),
            Piece::Text(text) => {
                if depth == 0 {
                    let name = text.split_once(".entry").map(|(_, rest)| rest.trim_start());
                    kernel = name.and_then(|rest| rest.split(|c: char| c == '(' || c.is_whitespace()).next());
                    add_declaration(text, &mut symbols);
                } else if text.contains(PRINTF) {
                    match kernel {
                        Some(kernel) => symbols.prints.add(kernel),
                        None => symbols.prints = Callers::Any,
                    }
                }
            }
        }
    }
    symbols
}

/// Adds the variable that this text declares, if it declares one.
fn add_declaration(text: &str, symbols: &mut Symbols) {
    let head = text.split('=').next().unwrap_or(text);
    let words: Vec<&str> = head.split(|c: char| c.is_whitespace() || c == '[').filter(|w| !w.is_empty()).collect();
    let has = |word: &str| words.contains(&word);
    let constant = has(".const");
    if has(".extern") || has(".func") || has(".entry") || !(constant || has(".global")) {
        return;
    }
    let Some(name) = words.iter().rev().find(|w| !w.starts_with('.') && !w.ends_with(']') && !w.starts_with(|c: char| c.is_ascii_digit())) else { return };
    if head.contains(".managed") {
        symbols.managed.push((*name).to_owned());
    }
    symbols.writable |= !is_literal(name);
    symbols.variables.push(Variable { name: (*name).to_owned(), constant });
}

/// A token of PTX for this file's purposes.
enum Piece<'a> {
    Text(&'a str),
    Open,
    Close,
}

/// Cuts PTX at `;` and at the braces of bodies (not those of initialisers), and leaves comments
/// out.
fn statements(text: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut pieces = Vec::new();
    let (mut start, mut at) = (0, 0);
    let mut initialiser = 0_u32;
    let bytes = text.as_bytes();
    while at < bytes.len() {
        let rest = &bytes[at..];
        if rest.starts_with(b"//") || rest.starts_with(b"/*") {
            pieces.extend(text.get(start..at).map(Piece::Text));
            let end: &[u8] = if rest[1] == b'/' { b"\n" } else { b"*/" };
            at += rest.windows(end.len()).position(|w| w == end).map_or(rest.len(), |p| p + end.len());
            start = at;
            continue;
        }
        match bytes[at] {
            b'"' => at += rest[1..].iter().position(|b| *b == b'"').map_or(rest.len() - 1, |p| p + 1),
            b'{' if initialiser > 0 || text.get(start..at).is_some_and(|t| t.contains('=')) => initialiser += 1,
            b'}' if initialiser > 0 => initialiser -= 1,
            b';' if initialiser == 0 => {
                pieces.extend(text.get(start..at).map(Piece::Text));
                start = at + 1;
            }
            brace @ (b'{' | b'}') => {
                pieces.extend(text.get(start..at).map(Piece::Text));
                pieces.push(if brace == b'{' { Piece::Open } else { Piece::Close });
                start = at + 1;
            }
            // These directives end with their line, without `;`.
            b'\n'
                if initialiser == 0
                    && [".version", ".target", ".address_size", ".file", ".section"]
                        .iter()
                        .any(|d| text.get(start..at).is_some_and(|t| t.trim_start().starts_with(d))) =>
            {
                start = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    pieces.extend(text.get(start..).map(Piece::Text));
    pieces.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_ptx_are_found_and_told_apart() {
        let symbols = of_ptx(cumux_device::conformance::KERNELS);
        let mut names: Vec<(&str, bool)> = symbols.variables.iter().map(|v| (v.name.as_str(), v.constant)).filter(|(n, _)| !is_literal(n)).collect();
        names.sort_unstable();
        assert_eq!(names, [("counter", false), ("into_table", false), ("offset", true), ("table", false)]);
        assert!(symbols.writable && symbols.managed.is_empty());
        let printing: Vec<&str> = ["say", "fill", "assert_small"].into_iter().filter(|k| symbols.prints.has(k)).collect();
        assert_eq!(printing, ["say"]);
    }

    #[test]
    fn a_module_without_writable_variables_is_known_as_such() {
        let text = ".version 9.0\n.target sm_75\n.address_size 64\n/* .global .u32 no; */\n.global .align 1 .b8 $str[3] = {104, 105, 0};\n\
                    .visible .entry f(.param .u64 p)\n{\n.reg .b32 r;\n.shared .align 4 .b8 s[16];\nret;\n}\n";
        let symbols = of_ptx(text);
        assert!(!symbols.writable && symbols.prints == Callers::default(), "{symbols:?}");
        let called = of_ptx(".func f()\n{\ncall.uni (r), vprintf, (a, b);\nret;\n}\n.visible .entry k()\n{\nret;\n}\n");
        assert!(called.prints.has("k"), "through a function");
        let constant = of_ptx(".const .align 4 .u32 k[2] = {1, 2};");
        assert_eq!((constant.variables, constant.writable), (vec![Variable { name: "k".into(), constant: true }], true));
        let managed = of_ptx(".visible .global .attribute(.managed) .align 4 .u32 m;");
        assert_eq!((managed.managed, managed.writable), (vec!["m".to_owned()], true));
        assert!(of_ptx(".extern .global .u32 elsewhere;\n.global .u32 own").variables == [Variable { name: "own".into(), constant: false }]);
    }

    #[test]
    fn who_calls_printf_through_others_prints() {
        let pairs: Vec<u8> =
            [(0, u32::MAX), (49, 50), (7, 49), (8, 9), (9, 8)].iter().flat_map(|(a, b): &(u32, u32)| [a.to_le_bytes(), b.to_le_bytes()].concat()).collect();
        assert_eq!(callers_of(&pairs, 50), BTreeSet::from([49, 7]));
        assert!(callers_of(&pairs[..11], 50).is_empty());
    }

    #[test]
    fn compiled_code_says_which_kernels_are_unbounded_and_ptx_does_not() {
        let unbounded = of_elf(include_bytes!("../../../fatbin/tests/data/calls.sm_90.cubin")).expect("an image").unbounded;
        assert_eq!((unbounded.get("recursive"), unbounded.get("by_table")), (Some(&Unbounded::Recursion), Some(&Unbounded::Address)));
        assert!(!unbounded.contains_key("calls") && of_ptx(cumux_device::conformance::KERNELS).unbounded.is_empty());
    }

    #[test]
    fn compiled_code_says_which_kernels_set_conditions_of_graphs() {
        let symbols = of_elf(include_bytes!("../../../fatbin/tests/data/conditions.sm_90.cubin")).expect("an image");
        let may_call = |kernel| symbols.sets_conditions.has(kernel);
        assert!(["decide", "through_helper", "through_address"].into_iter().all(may_call), "{symbols:?}");
        assert!(!may_call("add"), "{symbols:?}");
        let none = of_elf(include_bytes!("../../../fatbin/tests/data/calls.sm_90.cubin")).expect("an image");
        assert_eq!(none.sets_conditions, Callers::default());
    }

    #[test]
    fn damaged_input_gives_nothing_and_no_panic() {
        assert!(of_elf(b"\x7fELF").is_none());
        for length in (0..cumux_device::conformance::KERNELS.len()).step_by(97) {
            of_ptx(&cumux_device::conformance::KERNELS[..length]);
        }
        of_ptx("\"{{{=;\u{fe0f}}}/*");
    }
}
