//! Turns the list of the surface (`crates/abi/surface/*.txt`) into the shim's exports, wrappers and
//! tables.
//!
//! Output, in `OUT_DIR`:
//! - `exports.rs`: one trampoline per exported function, one zeroed variable per exported variable;
//! - `wrappers.rs`: for every implemented name an `extern "C"` function that calls the
//!   implementation through the one place where panics stop (`crate::border`);
//! - `entries.rs`: the table that the decision fills from: name, answer, wrapper;
//! - `procaddress.rs`: what `cuGetProcAddress` answers.
//!
//! A mistake in a list stops the build with the line's number. A name listed as implemented whose
//! function is missing does not compile.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

const SURFACE: &str = "../abi/surface/surface.txt";
const PROC_ADDRESS: &str = "../abi/surface/procaddress.txt";
const SIGNATURES: &str = "../abi/src/generated/functions.rs";

fn main() {
    for file in [SURFACE, PROC_ADDRESS, SIGNATURES, "build.rs"] {
        println!("cargo::rerun-if-changed={file}");
    }
    // Symbolic, like the real driver: our own references to exported names are never taken over by
    // another library. No deletion: the session lasts as long as the process, whoever closes the
    // library.
    for argument in ["-soname,libcuda.so.1", "-Bsymbolic", "-z,nodelete"] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,{argument}");
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let lines = surface(&read(SURFACE));
    let signatures = signatures(&read(SIGNATURES));
    write(&out.join("exports.rs"), &exports(&lines));
    write(&out.join("wrappers.rs"), &wrappers(&lines, &signatures));
    write(&out.join("entries.rs"), &entries(&lines));
    write(&out.join("procaddress.rs"), &proc_address(&read(PROC_ADDRESS), &lines));
}

/// How one exported name is answered.
enum Answer {
    /// By `crate::<module>::<name>`; `always` also where nothing else answers.
    Function {
        module: String,
        always: bool,
    },
    /// And why.
    Refused(String),
    Alias(String),
    Variant(String),
    Data(usize),
}

struct Line {
    name: String,
    answer: Answer,
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("cannot read {path}: {error}"))
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}

fn surface(text: &str) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.first().is_none_or(|word| word.starts_with('#')) {
            continue;
        }
        let [name, answer, third, ref rest @ ..] = words[..] else {
            panic!("{SURFACE}:{}: expected a name, an answer and a third word", number + 1);
        };
        let answer = match answer {
            "served" | "local" | "always" if !rest.is_empty() && !rest.starts_with(&["but", "not"]) => {
                panic!("{SURFACE}:{}: behind the module of {name} stands neither nothing nor `but not …`", number + 1)
            }
            "served" | "local" => Answer::Function { module: third.to_owned(), always: false },
            "always" => Answer::Function { module: third.to_owned(), always: true },
            "refused" => {
                assert!(!rest.is_empty(), "{SURFACE}:{}: {name} is refused without a reason", number + 1);
                Answer::Refused(rest.join(" "))
            }
            "alias" => Answer::Alias(third.to_owned()),
            "variant" => Answer::Variant(third.to_owned()),
            "data" => Answer::Data(third.parse().unwrap_or_else(|_| panic!("{SURFACE}:{}: bad size", number + 1))),
            other => panic!("{SURFACE}:{}: unknown answer {other:?}", number + 1),
        };
        assert!(lines.iter().all(|known| known.name != name), "{SURFACE}:{}: {name} is listed twice", number + 1);
        lines.push(Line { name: name.to_owned(), answer });
    }
    lines
}

/// The parameter types of every function, in order.
fn signatures(text: &str) -> HashMap<String, Vec<String>> {
    let mut all = HashMap::new();
    for piece in text.split("pub type ").skip(1) {
        let piece = piece.split_whitespace().collect::<Vec<_>>().join(" ");
        let (name, rest) = piece.split_once(" =").expect("a type has a definition");
        let rest = &rest[rest.find("fn(").expect("a function type") + 3..];
        let arguments = &rest[..rest.rfind(") -> CUresult;").expect("a function answers a CUresult")];
        let types = arguments
            .split(',')
            .map(str::trim)
            .filter(|argument| !argument.is_empty())
            .map(|argument| argument.split_once(": ").expect("an argument has a type").1.to_owned())
            .collect();
        all.insert(name.to_owned(), types);
    }
    all
}

/// The function that finally answers a name, with the module it lives in; `None` when it is
/// refused.
fn implementation<'a>(lines: &'a [Line], name: &str) -> Option<(&'a str, &'a str)> {
    let line = lines.iter().find(|line| line.name == name).unwrap_or_else(|| panic!("{name} is not in {SURFACE}"));
    match &line.answer {
        Answer::Function { module, .. } => Some((module, &line.name)),
        Answer::Alias(other) | Answer::Variant(other) => implementation(lines, other),
        Answer::Refused(_) | Answer::Data(_) => None,
    }
}

/// Why a name is refused in the end; empty when it is not.
fn refusal<'a>(lines: &'a [Line], name: &str) -> &'a str {
    match lines.iter().find(|line| line.name == name).map(|line| &line.answer) {
        Some(Answer::Alias(other) | Answer::Variant(other)) => refusal(lines, other),
        Some(Answer::Refused(why)) => why,
        _ => "",
    }
}

fn functions(lines: &[Line]) -> impl Iterator<Item = &Line> {
    lines.iter().filter(|line| !matches!(line.answer, Answer::Data(_)))
}

fn exports(lines: &[Line]) -> String {
    let mut text = String::new();
    for (index, line) in functions(lines).enumerate() {
        writeln!(text, "export!({index}, {});", line.name).expect("a string takes everything");
    }
    for line in lines {
        if let Answer::Data(size) = line.answer {
            writeln!(text, "variable!({}, {size});", line.name).expect("a string takes everything");
        }
    }
    text
}

fn wrappers(lines: &[Line], signatures: &HashMap<String, Vec<String>>) -> String {
    let mut text = String::new();
    for line in functions(lines) {
        let Some((module, function)) = implementation(lines, &line.name) else {
            continue;
        };
        let types = signatures.get(&line.name).unwrap_or_else(|| panic!("{} has no public signature", line.name));
        let per_thread = matches!(line.answer, Answer::Variant(_));
        let mut parameters = Vec::new();
        let mut arguments = Vec::new();
        let mut has_stream = false;
        for (index, kind) in types.iter().enumerate() {
            parameters.push(format!("a{index}: {kind}"));
            if per_thread && kind == "CUstream" {
                has_stream = true;
                arguments.push(format!("crate::default_stream::per_thread(a{index})"));
            } else {
                arguments.push(format!("a{index}"));
            }
        }
        let call = format!("crate::{module}::{function}({})", arguments.join(", "));
        let call = format!("// SAFETY: the caller of the exported name vouches for its arguments.\n        unsafe {{ {call} }}");
        let border = if per_thread && !has_stream { "call_per_thread" } else { "call" };
        writeln!(
            text,
            "pub(super) unsafe extern \"C\" fn {name}({parameters}) -> CUresult {{\n    crate::border::{border}(\"{name}\", || {{\n        {call}\n    }})\n}}",
            name = line.name,
            parameters = parameters.join(", "),
        )
        .expect("a string takes everything");
    }
    text
}

fn entries(lines: &[Line]) -> String {
    let count = functions(lines).count();
    let mut text = format!("pub(crate) const COUNT: usize = {count};\n\npub(crate) static ENTRIES: [Entry; COUNT] = [\n");
    for line in functions(lines) {
        let name = &line.name;
        let always = matches!(line.answer, Answer::Function { always: true, .. });
        let why = refusal(lines, name);
        let answer = match implementation(lines, name) {
            // The wrapper has the type of the signature, or this does not compile.
            Some(_) => format!("Some(erase!({name}, wrappers::{name}))"),
            None => "None".to_owned(),
        };
        writeln!(text, "    Entry {{ name: c\"{name}\", export: crate::exports::{name}, implementation: {answer}, always: {always}, why: {why:?} }},")
            .expect("a string takes everything");
    }
    text.push_str("];\n");
    text
}

fn proc_address(text: &str, lines: &[Line]) -> String {
    let indices: HashMap<&str, usize> = functions(lines).enumerate().map(|(index, line)| (line.name.as_str(), index)).collect();
    let mut names: Vec<(String, String, String)> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, rest) = line.split_once(' ').unwrap_or_else(|| panic!("{PROC_ADDRESS}:{}: no answers", number + 1));
        let (common, per_thread) = rest.split_once(" | ").unwrap_or((rest, rest));
        let steps = |list: &str| {
            let words: Vec<&str> = list.split_whitespace().collect();
            let mut text = String::from("&[");
            for pair in words.chunks(2) {
                let [from, symbol] = pair else { panic!("{PROC_ADDRESS}:{}: a version without a symbol", number + 1) };
                let index = indices.get(symbol).unwrap_or_else(|| panic!("{PROC_ADDRESS}:{}: {symbol} is not exported", number + 1));
                write!(text, "({from}, {index}), ").expect("a string takes everything");
            }
            text + "]"
        };
        names.push((name.to_owned(), steps(common), steps(per_thread)));
    }
    names.sort();
    let mut text = format!("static NAMES: [Name; {}] = [\n", names.len());
    for (name, common, per_thread) in names {
        writeln!(text, "    Name {{ name: \"{name}\", common: {common}, per_thread: {per_thread} }},").expect("a string takes everything");
    }
    text.push_str("];\n");
    text
}
