//! cargo-mutants: do the tests of the pure crates notice a changed operator, constant or branch?
//!
//! Every fortieth mutant of each crate of a fixed list is built and tested with that crate's own
//! tests, one crate after the other, the small ones first. It is not part of CI: it takes an hour
//! or two. Each survivor is a missing test, or code that makes no difference;
//! `target/mutants/CRATE/mutants.out/missed.txt` lists them. What the last run found is in
//! `benches/results/mutants.txt`.

use crate::process::run;
use crate::tools::Tool;
use anyhow::{Context as _, bail};
use std::path::Path;
use std::process::Command;

const CARGO_MUTANTS: Tool = Tool { name: "cargo-mutants", version: "27.1.0" };

/// Crates whose own tests should notice every change: what they compute is pure.
const CRATES: [&str; 7] = ["cumux-scheduler", "cumux-wire", "cumux-fatbin", "cumux-ring", "cumux-control", "cumux-ptx", "cumux-device-sim"];
/// One mutant of so many is tried.
const ONE_OF: u32 = 40;
/// Mutants of which so many percent must be noticed.
const WANTED_PERCENT: usize = 92;
/// Seconds after which the tests of a mutant count as hanging, which is noticing.
const LONGEST_TEST_SECONDS: &str = "180";
/// Tests that are left out, because each takes longer than all the others together in a build
/// without optimization.
const SLOW_TESTS: [&str; 1] = ["blocks_that_wait_for_earlier_ones_go_on"];

/// How the mutants of a crate, or of several, ended.
#[derive(Debug, Default, Clone, Copy)]
struct Outcome {
    noticed: usize,
    missed: usize,
}

impl Outcome {
    fn all(self) -> usize {
        self.noticed + self.missed
    }

    fn percent(self) -> usize {
        self.noticed * 100 / self.all().max(1)
    }
}

/// Tries the mutants of these crates, or of all.
pub fn check(root: &Path, crates: &[String]) -> anyhow::Result<()> {
    let tool = CARGO_MUTANTS.find(root)?;
    let chosen: Vec<&str> = if crates.is_empty() { CRATES.to_vec() } else { crates.iter().map(String::as_str).collect() };
    if let Some(stranger) = chosen.iter().find(|name| !CRATES.contains(name)) {
        bail!("\"{stranger}\" is no crate of the list: name one of {}", CRATES.join(", "));
    }
    let mut sum = Outcome::default();
    for name in chosen {
        let outcome = try_crate(root, &tool, name)?;
        println!("{name}: {} of {} mutants were noticed ({} %)", outcome.noticed, outcome.all(), outcome.percent());
        sum = Outcome { noticed: sum.noticed + outcome.noticed, missed: sum.missed + outcome.missed };
    }
    println!(
        "{} of {} mutants were noticed ({} %; wanted {WANTED_PERCENT} %); target/mutants/*/mutants.out/missed.txt has the others",
        sum.noticed,
        sum.all(),
        sum.percent()
    );
    if sum.percent() < WANTED_PERCENT {
        bail!("too many mutants live: write the missing tests");
    }
    Ok(())
}

fn try_crate(root: &Path, tool: &Path, name: &str) -> anyhow::Result<Outcome> {
    let output = root.join("target/mutants").join(name);
    std::fs::create_dir_all(&output).with_context(|| format!("{} cannot be made", output.display()))?;
    let mut command = Command::new(tool);
    // Nobody looks at line numbers of these builds.
    command.current_dir(root).env("CARGO_PROFILE_DEV_DEBUG", "0");
    command.args(["mutants", "--package", name, "--shard", &format!("0/{ONE_OF}"), "--sharding", "round-robin"]);
    command.args(["--timeout", LONGEST_TEST_SECONDS, "--no-shuffle", "--caught", "--unviable", "--output"]).arg(&output);
    // Neither examples nor documentation.
    command.args(["--", "--lib", "--tests", "--"]);
    for test in SLOW_TESTS {
        command.args(["--skip", test]);
    }
    // It fails when a mutant is missed; what counts is how many.
    let ran = run(command, &format!("see {}", output.display()));
    let count = |outcome: &str| count(&output.join("mutants.out").join(format!("{outcome}.txt")));
    let outcome = Outcome { noticed: count("caught").unwrap_or_default() + count("timeout").unwrap_or_default(), missed: count("missed").unwrap_or_default() };
    if outcome.all() == 0 {
        ran?;
        bail!("no mutants of {name} were tried");
    }
    Ok(outcome)
}

/// The number of mutants in a list.
fn count(list: &Path) -> anyhow::Result<usize> {
    let text = std::fs::read_to_string(list).with_context(|| format!("{} cannot be read", list.display()))?;
    Ok(text.lines().filter(|line| !line.trim().is_empty()).count())
}
