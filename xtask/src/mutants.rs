//! cargo-mutants: do the tests of the pure crates notice a changed operator, constant or branch?
//!
//! Every fortieth mutant of a fixed list of crates is built and tested with that crate's own tests.
//! It is not part of CI: it takes most of an hour. Each survivor is a missing test, or code that
//! makes no difference; `target/mutants.out/missed.txt` lists them.

use crate::process::run;
use crate::tools::Tool;
use anyhow::{Context as _, bail};
use std::path::Path;
use std::process::Command;

const CARGO_MUTANTS: Tool = Tool { name: "cargo-mutants", version: "27.1.0" };

/// Crates whose own tests should notice every change: what they compute is pure.
const CRATES: [&str; 7] = ["cumux-ptx", "cumux-wire", "cumux-ring", "cumux-scheduler", "cumux-control", "cumux-fatbin", "cumux-device-sim"];
/// One mutant of so many is tried.
const ONE_OF: u32 = 40;
/// Mutants of which so many percent must be noticed.
const WANTED_PERCENT: usize = 92;
/// Seconds after which the tests of a mutant count as hanging, which is noticing.
const LONGEST_TEST_SECONDS: &str = "180";

/// Tries the mutants of these crates, or of all.
pub fn check(root: &Path, crates: &[String]) -> anyhow::Result<()> {
    let tool = CARGO_MUTANTS.find(root)?;
    let chosen: Vec<&str> = if crates.is_empty() { CRATES.to_vec() } else { crates.iter().map(String::as_str).collect() };
    let mut command = Command::new(tool);
    command.current_dir(root).args(["mutants", "--shard", &format!("0/{ONE_OF}"), "--sharding", "round-robin"]);
    command.args(["--output", "target", "--timeout", LONGEST_TEST_SECONDS, "--no-shuffle", "--caught", "--unviable"]);
    for name in chosen {
        command.args(["--package", if name.starts_with("cumux-") { name } else { bail!("\"{name}\" is no crate of the list: name it as in {CRATES:?}") }]);
    }
    // It fails when a mutant is missed; what counts is how many.
    let ran = run(command, "see target/mutants.out");
    let [caught, missed, hung] = ["caught", "missed", "timeout"].map(|outcome| count(root, outcome));
    let noticed = caught.unwrap_or_default() + hung.unwrap_or_default();
    let all = noticed + missed.as_ref().copied().unwrap_or_default();
    if all == 0 {
        ran?;
        bail!("no mutants were tried");
    }
    let percent = noticed * 100 / all;
    println!("{noticed} of {all} mutants were noticed ({percent} %; wanted {WANTED_PERCENT} %); target/mutants.out/missed.txt has the others");
    if percent < WANTED_PERCENT {
        bail!("too many mutants live: write the missing tests");
    }
    Ok(())
}

/// The number of mutants with this outcome.
fn count(root: &Path, outcome: &str) -> anyhow::Result<usize> {
    let path = root.join("target/mutants.out").join(format!("{outcome}.txt"));
    let list = std::fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))?;
    Ok(list.lines().filter(|line| !line.trim().is_empty()).count())
}
