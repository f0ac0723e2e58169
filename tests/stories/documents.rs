//! Documents for administrators: every command line of cumux in them is one that cumux takes, and
//! every file in them is one that its reader takes.

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
