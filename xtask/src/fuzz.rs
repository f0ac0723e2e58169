//! `cargo xtask fuzz MINUTES`: runs every target of `fuzz/` in turn, each for its part of the time,
//! from the inputs that earlier runs have found interesting.
//!
//! It needs no nightly toolchain: with `RUSTC_BOOTSTRAP` the usual compiler accepts the sanitizer's
//! flags, too. A finding ends its target's turn; the other targets still run.

pub mod pack;

use crate::process::{cargo_command, run as run_loudly};
use crate::tools::Tool;
use anyhow::{Context as _, bail, ensure};
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const CARGO_FUZZ: Tool = Tool { name: "cargo-fuzz", version: "0.13.2" };
/// The target triple of cargo-fuzz, whatever the toolchain's own.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";
/// Options of every target. An input that takes a minute counts as a hang; one that needs 4 GiB
/// counts as unbounded memory.
const OPTIONS: [&str; 4] = ["-timeout=60", "-rss_limit_mb=4096", "-detect_leaks=0", "-print_final_stats=1"];
/// Time between two lines of progress.
const NEWS: Duration = Duration::from_secs(60);

/// For targets that play whole worlds: a step takes about ten bytes and is slow, so inputs may be
/// long from the beginning.
const OF_WORLDS: &[&str] = &["-len_control=0", "-max_len=1024"];

/// One of the programs in `fuzz/fuzz_targets`.
struct Target {
    name: &'static str,
    /// Files in the tree that are good first inputs.
    seeds: Option<&'static str>,
    /// Options beside [`OPTIONS`].
    options: &'static [&'static str],
}

const TARGETS: [Target; 8] = [
    Target { name: "ptx", seeds: Some("crates/device-sim/tests/ptx"), options: &[] },
    Target { name: "fatbin", seeds: Some("crates/fatbin/tests/data"), options: &[] },
    Target { name: "cubin", seeds: Some("crates/fatbin/tests/data"), options: &[] },
    Target { name: "lines", seeds: Some("crates/fatbin/tests/data"), options: &[] },
    Target { name: "record", seeds: None, options: &[] },
    Target { name: "control", seeds: Some("fuzz/seeds/control"), options: &[] },
    Target { name: "packets", seeds: None, options: OF_WORLDS },
    Target { name: "ring", seeds: None, options: OF_WORLDS },
];

/// The result of one target's turn.
struct Outcome {
    target: &'static str,
    seconds: u64,
    runs: u64,
    /// Edges of the code that were reached, and ways in which they were: libFuzzer's `cov` and
    /// `ft`.
    edges: u64,
    features: u64,
    /// Inputs that are kept, and how many of them this turn has added.
    inputs: u64,
    new: u64,
    /// The input that shows a finding, and the text of the finding.
    finding: Option<(PathBuf, String)>,
}

/// Runs the named targets, or all, for so many minutes in total.
pub fn run(root: &Path, minutes: f64, only: &[String]) -> anyhow::Result<()> {
    ensure!(minutes.is_finite() && minutes > 0.0, "give the minutes that all targets have together, like 120");
    let known = || TARGETS.each_ref().map(|target| target.name).join(", ");
    if let Some(unknown) = only.iter().find(|name| !TARGETS.iter().any(|target| target.name == **name)) {
        bail!("there is no fuzz target \"{unknown}\": write some of {}", known());
    }
    let targets: Vec<_> = TARGETS.iter().filter(|target| only.is_empty() || only.iter().any(|wanted| wanted == target.name)).collect();
    build(root)?;
    let seconds = (minutes * 60.0 / targets.len() as f64).max(1.0) as u64;
    let mut outcomes = Vec::new();
    for target in targets {
        outcomes.push(turn(root, target, seconds)?);
    }
    print!("{}", table(&outcomes));
    let findings: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.finding.is_some()).collect();
    for outcome in &findings {
        if let Some((input, said)) = &outcome.finding {
            println!(
                "\n{} found: {said}\n  input:  {}\n  repeat: {} {}",
                outcome.target,
                input.display(),
                program(root, outcome.target).display(),
                input.display()
            );
        }
    }
    ensure!(findings.is_empty(), "{} of {} fuzz targets found something: a test of the crate first, then the mend", findings.len(), outcomes.len());
    Ok(())
}

/// Checks that the targets still compile, with the usual toolchain and without libFuzzer itself. CI
/// runs this.
pub fn check(root: &Path) -> anyhow::Result<()> {
    let mut command = cargo_command(root, &["check", "--quiet", "--release", "--locked", "--all-targets", "--manifest-path", "fuzz/Cargo.toml"]);
    // In the folder and the profile of the usual build, which shares third-party crates with it.
    // Nothing is linked, so libFuzzer is not compiled.
    command.env("CARGO_TARGET_DIR", root.join("target")).env("CUSTOM_LIBFUZZER_PATH", root.join("target/not-linked.a"));
    run_loudly(command, "the fuzz targets in fuzz/ do not compile any more")
}

fn build(root: &Path) -> anyhow::Result<()> {
    let mut command = Command::new(CARGO_FUZZ.find(root)?);
    command.current_dir(root.join("fuzz")).arg("build").env("RUSTC_BOOTSTRAP", "1");
    run_loudly(command, "the compiler's messages are above; libFuzzer itself needs a C++ compiler (g++)")
}

/// Where the inputs of a target are kept.
fn corpus(root: &Path, target: &str) -> PathBuf {
    root.join("fuzz/corpus").join(target)
}

fn count_files(folder: &Path) -> u64 {
    fs::read_dir(folder).map_or(0, |entries| entries.count() as u64)
}

fn program(root: &Path, target: &str) -> PathBuf {
    root.join("fuzz/target").join(TRIPLE).join("release").join(target)
}

/// Runs one target for so many seconds.
fn turn(root: &Path, target: &Target, seconds: u64) -> anyhow::Result<Outcome> {
    let Target { name: target, seeds, options } = *target;
    let (corpus, artifacts) = (corpus(root, target), root.join("fuzz/artifacts").join(target));
    for folder in [&corpus, &artifacts] {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let (log, before) = (artifacts.join("log.txt"), count_files(&corpus));
    let mut command = Command::new(program(root, target));
    // New inputs go into the first folder.
    command.arg(&corpus).args(seeds.map(|seeds| root.join(seeds)));
    command.arg(format!("-max_total_time={seconds}")).arg(format!("-artifact_prefix={}/", artifacts.display())).args(OPTIONS).args(options);
    command.env("LSAN_OPTIONS", format!("print_suppressions=0:suppressions={}", root.join("fuzz/leaks.txt").display()));
    println!("== {target} for {seconds} s, all it says in {}", log.display());
    let begun = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().context("cannot start the fuzz target")?;
    let mut file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut told = Told::default();
    let mut news = Instant::now();
    for line in BufReader::new(child.stderr.take().context("a piped output")?).split(b'\n') {
        let line = String::from_utf8_lossy(&line.context("cannot hear from the fuzz target")?).into_owned();
        writeln!(file, "{line}").with_context(|| format!("cannot write {}", log.display()))?;
        told.hear(&line);
        if news.elapsed() > NEWS {
            news = Instant::now();
            println!("   {} executions, {} edges, {} features", told.runs, told.edges, told.features);
        }
    }
    let status = child.wait().context("cannot hear from the fuzz target")?;
    let finding = match (&told.artifact, status.success()) {
        (Some(path), _) => Some((PathBuf::from(path), told.said.clone())),
        (None, false) => bail!("the fuzz target {target} ended with {status} and without a finding: see {}", log.display()),
        (None, true) => None,
    };
    let Told { runs, edges, features, .. } = told;
    let inputs = count_files(&corpus);
    let new = inputs.saturating_sub(before);
    Ok(Outcome { target, seconds: begun.elapsed().as_secs(), runs, edges, features, inputs, new, finding })
}

/// The output of libFuzzer so far.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    runs: u64,
    edges: u64,
    features: u64,
    /// The file with the input of a finding.
    artifact: Option<String>,
    /// The first words of a finding: a panic's message, or libFuzzer's or the sanitizer's line.
    said: String,
    /// True if the line before was a panic's first.
    panic: bool,
}

impl Told {
    fn hear(&mut self, line: &str) {
        if self.panic {
            self.panic = false;
            line.clone_into(&mut self.said);
        } else if line.contains(" panicked at ") {
            // The first panic is the finding; later ones follow from it.
            self.panic = self.said.is_empty();
        } else if line.contains("ERROR: ") && self.said.is_empty() {
            line.split("ERROR: ").last().unwrap_or(line).clone_into(&mut self.said);
        }
        // A slow input is no finding: the target goes on.
        if let Some(path) = line.split("Test unit written to ").nth(1).filter(|path| !path.contains("slow-unit-")) {
            self.artifact = Some(path.trim().to_owned());
        }
        let number = |text: &str| text.parse::<u64>().ok();
        if let Some(runs) = line.strip_prefix("stat::number_of_executed_units:").and_then(|text| number(text.trim())) {
            self.runs = runs;
        }
        // "#4096	pulse  cov: 406 ft: 470 corp: 132/5631b lim: 3689 exec/s: 42632 rss: 109Mb"
        if let Some(rest) = line.strip_prefix('#') {
            let words: Vec<&str> = rest.split_whitespace().collect();
            self.runs = words.first().and_then(|word| number(word)).unwrap_or(self.runs);
            for pair in words.windows(2) {
                match (pair[0], number(pair[1])) {
                    ("cov:", Some(edges)) => self.edges = edges,
                    ("ft:", Some(features)) => self.features = features,
                    _ => {}
                }
            }
        }
    }
}

fn table(outcomes: &[Outcome]) -> String {
    let line = |columns: [&str; 8], finding: &str| {
        let [target, seconds, runs, rate, edges, features, inputs, new] = columns;
        format!("{target:<10} {seconds:>8} {runs:>12} {rate:>9} {edges:>8} {features:>9} {inputs:>8} {new:>8}  {finding}\n")
    };
    let mut text = line(["target", "seconds", "executions", "a second", "edges", "features", "inputs", "new"], "finding");
    for Outcome { target, seconds, runs, edges, features, inputs, new, finding } in outcomes {
        let rate = runs / (*seconds).max(1);
        let finding = finding.as_ref().map_or("none", |(_, said)| said);
        let [seconds, runs, rate, edges, features, inputs, new] = [*seconds, *runs, rate, *edges, *features, *inputs, *new].map(|number| number.to_string());
        text.push_str(&line([target, &seconds, &runs, &rate, &edges, &features, &inputs, &new], finding));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_findings_are_read_from_what_libfuzzer_says() {
        let mut told = Told::default();
        for line in [
            "INFO: seed corpus: files: 3 min: 1b max: 90b",
            "#4096	pulse  cov: 406 ft: 470 corp: 132/5631b lim: 3689 exec/s: 42632 rss: 109Mb",
            "thread '<unnamed>' (12) panicked at src/lib.rs:3:5:",
            "index out of bounds",
            "thread '<unnamed>' (12) panicked at src/other.rs:3:5:",
            "an echo",
            "==7== ERROR: libFuzzer: deadly signal",
            "artifact_prefix='/x/'; Test unit written to /x/crash-1234",
            "stat::number_of_executed_units: 5000",
        ] {
            told.hear(line);
        }
        let artifact = Some("/x/crash-1234".to_owned());
        assert_eq!(told, Told { runs: 5000, edges: 406, features: 470, artifact, said: "index out of bounds".into(), panic: false });
        let mut told = Told::default();
        told.hear("==7== ERROR: libFuzzer: timeout after 60 seconds");
        assert_eq!(told.said, "libFuzzer: timeout after 60 seconds");
        let mut told = Told::default();
        told.hear("artifact_prefix='/x/'; Test unit written to /x/slow-unit-1234");
        assert_eq!(told.artifact, None);
    }

    /// Each new target must be listed here, too.
    #[test]
    fn every_target_has_its_turn() {
        let manifest = include_str!("../../fuzz/Cargo.toml");
        let names: Vec<&str> = manifest.lines().filter_map(|line| line.strip_prefix("path = \"fuzz_targets/")?.strip_suffix(".rs\"")).collect();
        assert_eq!(names, TARGETS.each_ref().map(|target| target.name));
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for seeds in TARGETS.iter().filter_map(|target| target.seeds) {
            assert!(root.join(seeds).is_dir(), "{seeds} is missing");
        }
    }
}
