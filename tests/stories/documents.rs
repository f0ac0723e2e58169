//! Documents for administrators: every command line of cumux in them is one that cumux takes, and
//! every file in them is one that its reader takes.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

const PAGES: [&str; 2] = ["kubernetes.md", "slurm.md"];

fn page(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name)).expect("a page")
}

/// The blocks of a language.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let mark = format!("```{language}\n");
    page.split(&mark).skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

fn help(words: &[&str]) -> String {
    let output = Command::new(cumux_testkit::cumux()).args(words).arg("--help").stdin(Stdio::null()).output().expect("cumux starts");
    assert!(output.status.success(), "cumux {words:?} is no command: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn every_command_in_them_is_one() {
    let mut lines = 0;
    for name in PAGES {
        let text = page(name);
        for line in blocks(&text, "sh").iter().flat_map(|block| block.lines()) {
            // Also behind `kubectl exec … --`.
            let Some(at) = line.find("cumux ").filter(|at| *at == 0 || line[..*at].ends_with("-- ")) else { continue };
            lines += 1;
            let words: Vec<&str> = line[at..].split_whitespace().skip(1).collect();
            let count = words.iter().take_while(|word| word.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !word.starts_with('-')).count();
            // `control` has NVIDIA's options; others' are in their own help.
            let commands = &words[..if ["slurm", "group"].contains(&words[0]) { count.min(2) } else { 1 }];
            let help = help(commands);
            for option in words.iter().filter(|word| word.starts_with('-')) {
                let option = option.split('=').next().expect("a word");
                assert!(help.contains(option), "{name}: \"{line}\": cumux {commands:?} has no {option}");
            }
        }
    }
    assert!(lines >= 8, "only {lines} lines were found");
}

/// The names of our variables in a text, whatever else is there.
fn variables(text: &str, begin: &str, end: char) -> BTreeSet<String> {
    let names = text.split(begin).skip(1).filter_map(|rest| rest.split(end).next());
    let is_name = |name: &&str| !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    names.filter(is_name).map(|name| format!("CUMUX_{name}")).collect()
}

/// All sources below a folder, without what is for tests alone.
fn sources(folder: &Path, into: &mut String) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs") && !path.to_string_lossy().ends_with("_tests.rs") {
            let text = std::fs::read_to_string(&path).expect("a source");
            into.push_str(text.split("#[cfg(test)]").next().unwrap_or_default());
        }
    }
}

#[test]
fn every_variable_that_is_read_is_documented_and_the_other_way_round() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut text = String::new();
    for part in ["crates", "bin"] {
        for package in std::fs::read_dir(root.join(part)).expect("a folder").flatten().filter(|package| package.file_name() != "testkit") {
            sources(&package.path().join("src"), &mut text);
        }
    }
    let (read, documented) = (variables(&text, "\"CUMUX_", '"'), variables(&page("drop-in.md"), "`CUMUX_", '`'));
    assert!(read.len() > 30, "{read:?}");
    assert_eq!(&read - &documented, BTreeSet::new(), "docs/drop-in.md does not say what they do");
    assert_eq!(&documented - &read, BTreeSet::new(), "docs/drop-in.md has them, and nobody reads them");
}

#[test]
fn every_file_in_them_is_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = page("kubernetes.md");
    for (number, block) in blocks(&text, "yaml").iter().enumerate() {
        if block.contains("GroupConfig") {
            // Read by the driver alone; its fields are tested there.
            continue;
        }
        let kind = if block.contains("sharing:") { "plugin" } else { "pod" };
        let file = folder.path().join(format!("{number}-{kind}.yaml"));
        std::fs::write(&file, block).expect("a file");
        let output = Command::new(cumux_testkit::cumux()).args(["artifacts", "check"]).arg(&file).output().expect("cumux starts");
        assert!(output.status.success(), "{block}: {output:?}");
    }
}
