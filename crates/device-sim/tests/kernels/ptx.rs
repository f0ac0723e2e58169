//! PTX files that contain their expectations (`tests/ptx/*.ptx`).
//!
//! A comment line `// run KERNEL [grid=X[,Y[,Z]]] [block=…] [cluster=…] [shared=BYTES]` begins a
//! case. The lines that follow belong to it:
//!
//! - `// buffer NAME TYPE VALUES`: device memory.
//! - `// args ITEM…`: the arguments, each the name of a buffer or `TYPE:VALUE`.
//! - `// expect NAME TYPE VALUES`: the contents afterwards, bit by bit (`nan` matches any NaN).
//! - `// fault TEXT`: the run ends in a fault whose message contains the text.
//! - `// static BYTES`: the kernel's static shared memory, as `cuFuncGetAttribute` tells it.
//! - `// print TEXT`: all output (with the escapes `\n`, `\\`).
//!
//! Types: u8 u16 u32 u64 s8 s16 s32 s64 f32 f64, and b16 b32 b64 in hexadecimal. Values: numbers,
//! `V*N` (repeated), `A..B` (counting).

use crate::common::Loaded;
use std::collections::HashMap;
use std::fmt::Write as _;

#[derive(Clone, Copy)]
struct Type {
    bytes: usize,
    float: bool,
    hex: bool,
}

fn kind(name: &str) -> Type {
    let bits: usize = name[1..].parse().unwrap_or_else(|_| panic!("unknown type {name}"));
    Type { bytes: bits / 8, float: name.starts_with('f'), hex: name.starts_with('b') }
}

fn value(ty: Type, text: &str) -> u64 {
    if ty.hex || text.starts_with("0x") {
        return u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap_or_else(|_| panic!("bad number {text}"));
    }
    if ty.float {
        let number: f64 = text.parse().unwrap_or_else(|_| panic!("bad number {text}"));
        return if ty.bytes == 4 { u64::from(text.parse::<f32>().unwrap_or(number as f32).to_bits()) } else { number.to_bits() };
    }
    text.parse::<i128>().unwrap_or_else(|_| panic!("bad number {text}")) as u64
}

fn values(ty: Type, words: &[&str]) -> Vec<u64> {
    let mut out = Vec::new();
    for word in words {
        if let Some((from, to)) = word.split_once("..") {
            let (from, to): (i64, i64) = (from.parse().expect("range"), to.parse().expect("range"));
            out.extend((from..to).map(|n| value(ty, &n.to_string())));
        } else if let Some((one, times)) = word.split_once('*') {
            out.extend(std::iter::repeat_n(value(ty, one), times.parse().expect("count")));
        } else {
            out.push(value(ty, word));
        }
    }
    out
}

fn bytes(ty: Type, values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()[..ty.bytes].to_vec()).collect()
}

#[derive(Default)]
struct Case<'a> {
    line: usize,
    kernel: &'a str,
    grid: [u32; 3],
    block: [u32; 3],
    cluster: [u32; 3],
    shared: u32,
    buffers: Vec<(&'a str, Vec<u8>)>,
    args: Vec<&'a str>,
    expect: Vec<(usize, &'a str, Type, Vec<&'a str>)>,
    fault: Option<&'a str>,
    print: Option<String>,
    static_shared: Option<u32>,
}

fn three(text: &str) -> [u32; 3] {
    let mut out = [1; 3];
    for (into, word) in out.iter_mut().zip(text.split(',')) {
        *into = word.parse().expect("a size");
    }
    out
}

fn cases(text: &str) -> Vec<Case<'_>> {
    let mut cases: Vec<Case<'_>> = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let Some(comment) = line.strip_prefix("// ") else { continue };
        let words: Vec<&str> = comment.split_whitespace().collect();
        match words.as_slice() {
            ["run", kernel, options @ ..] => {
                let mut case = Case { line: n + 1, kernel, grid: [1; 3], block: [1; 3], cluster: [1; 3], ..Case::default() };
                for option in options {
                    match option.split_once('=') {
                        Some(("grid", size)) => case.grid = three(size),
                        Some(("block", size)) => case.block = three(size),
                        Some(("cluster", size)) => case.cluster = three(size),
                        Some(("shared", size)) => case.shared = size.parse().expect("bytes"),
                        _ => panic!("line {}: unknown option {option}", n + 1),
                    }
                }
                cases.push(case);
            }
            [] => {}
            [what, rest @ ..] => {
                let Some(case) = cases.last_mut() else { continue };
                match (*what, rest) {
                    ("buffer", [name, ty, words @ ..]) => case.buffers.push((name, bytes(kind(ty), &values(kind(ty), words)))),
                    ("args", words) => case.args = words.to_vec(),
                    ("expect", [name, ty, words @ ..]) => case.expect.push((n + 1, name, kind(ty), words.to_vec())),
                    ("fault", _) => case.fault = comment.split_once(' ').map(|(_, text)| text),
                    ("static", [bytes]) => case.static_shared = Some(bytes.parse().expect("bytes")),
                    ("print", _) => case.print = Some(comment[6..].replace("\\n", "\n")),
                    _ => {}
                }
            }
        }
    }
    cases
}

fn check(file: &str, text: &str, case: &Case<'_>, report: &mut String) {
    let place = format!("{file}:{} {}", case.line, case.kernel);
    let mut loaded = match Loaded::new(text) {
        Ok(loaded) => loaded,
        Err(error) => return writeln!(report, "{place}: {error}").expect("text"),
    };
    let Some(index) = loaded.linked.program().kernel(case.kernel) else { return writeln!(report, "{place}: no such kernel").expect("text") };
    let kernel = loaded.linked.program().kernels[index].clone();
    if let Some(refusal) = &kernel.refused {
        if case.fault.is_none_or(|fault| !refusal.to_string().contains(fault)) {
            writeln!(report, "{place}: {refusal}").expect("text");
        }
        return;
    }
    if let Some(bytes) = case.static_shared.filter(|bytes| *bytes != kernel.static_shared) {
        writeln!(report, "{place}: {} bytes of static shared memory, expected {bytes}", kernel.static_shared).expect("text");
    }
    let mut addresses = HashMap::new();
    for (name, contents) in &case.buffers {
        addresses.insert(*name, loaded.memory.allocate(contents));
    }
    let mut parameters = vec![0; kernel.parameter_bytes as usize];
    for (word, parameter) in case.args.iter().zip(&kernel.parameters) {
        let bits = match word.split_once(':') {
            Some((ty, text)) => value(kind(ty), text),
            None => *addresses.get(word).unwrap_or_else(|| panic!("{place}: no buffer {word}")),
        };
        let from = parameter.offset as usize;
        parameters[from..from + parameter.bytes as usize].copy_from_slice(&bits.to_le_bytes()[..parameter.bytes as usize]);
    }
    match (loaded.run_clusters(case.kernel, case.grid, case.block, case.cluster, case.shared, parameters), case.fault) {
        (Ok(_), None) => {}
        (Ok(_), Some(fault)) => writeln!(report, "{place}: ended well, but should fault: {fault}").expect("text"),
        (Err(fault), Some(expected)) if fault.to_string().contains(expected) => {}
        (Err(fault), _) => writeln!(report, "{place}: {fault}").expect("text"),
    }
    for (line, name, ty, words) in &case.expect {
        let got = loaded.memory.read(addresses[name]);
        let mut at = 0;
        for word in words {
            if *word == "nan" {
                let mut bits = [0; 8];
                bits[..ty.bytes].copy_from_slice(&got[at..at + ty.bytes]);
                let bits = u64::from_le_bytes(bits);
                let is_nan = if ty.bytes == 4 { f32::from_bits(bits as u32).is_nan() } else { f64::from_bits(bits).is_nan() };
                if !is_nan {
                    writeln!(report, "{file}:{line} {name}[{}]: {bits:#x} is not NaN", at / ty.bytes).expect("text");
                }
                at += ty.bytes;
                continue;
            }
            for expected in values(*ty, &[word]) {
                let expected = &expected.to_le_bytes()[..ty.bytes];
                if got.get(at..at + ty.bytes) != Some(expected) {
                    let show = |bytes: &[u8]| {
                        let mut all = [0; 8];
                        all[..bytes.len()].copy_from_slice(bytes);
                        format!("{:#x}", u64::from_le_bytes(all))
                    };
                    let found = got.get(at..at + ty.bytes).map_or_else(|| "nothing".to_owned(), show);
                    writeln!(report, "{file}:{line} {name}[{}]: {found}, expected {} ({word})", at / ty.bytes, show(expected)).expect("text");
                }
                at += ty.bytes;
            }
        }
    }
    if let Some(expected) = &case.print {
        let got = String::from_utf8_lossy(&loaded.host.printed).into_owned();
        if got != *expected {
            writeln!(report, "{place}: printed {got:?}, expected {expected:?}").expect("text");
        }
    }
}

#[test]
fn files_hold_what_they_say() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ptx");
    let mut names: Vec<_> = std::fs::read_dir(folder).expect("the folder").map(|entry| entry.expect("an entry").path()).collect();
    names.sort();
    let only = std::env::var("CUMUX_PTX_TEST").ok();
    let mut report = String::new();
    let mut count = 0;
    for path in names {
        let file = path.file_name().expect("a name").to_string_lossy().into_owned();
        if only.as_ref().is_some_and(|only| !file.contains(only.as_str())) {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("readable");
        let cases = cases(&text);
        assert!(!cases.is_empty(), "{file} has no cases");
        for case in &cases {
            count += 1;
            check(&file, &text, case, &mut report);
        }
    }
    println!("{count} cases");
    assert!(count > 0 && report.is_empty(), "\n{report}");
}
