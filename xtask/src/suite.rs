//! What CI runs, and the order it runs it in.

use crate::process::{cargo_command, has_program, run};
use crate::{columns, compatibility, deny, examples, fuzz, layers, rooms, settings};
use std::path::Path;
use std::time::Instant;

/// Runs everything: a change that passes here passes in CI.
pub fn check(root: &Path) -> anyhow::Result<()> {
    lint(root)?;
    deny::check_if_changed(root)?;
    test(root, None, 1)
}

/// Checks format, lints, layers, rooms, comments and generated pages.
pub fn lint(root: &Path) -> anyhow::Result<()> {
    cargo(root, &["fmt", "--all", "--check"], "cargo fmt --all mends it")?;
    settings::check(root)?;
    // In the profile of the tests: what compilation runs on this machine is then built once for
    // both.
    cargo(root, &["clippy", "--quiet", "--release", "--workspace", "--all-targets", "--", "--deny", "warnings"], "clippy's messages are above")?;
    layers::check(root)?;
    rooms::check(root)?;
    columns::check(root)?;
    fuzz::check(root)?;
    compatibility::check()
}

/// Builds what the suite needs (wheels, CUDA programs, binaries) and runs it.
pub fn test(root: &Path, filter: Option<&str>, rounds: u32) -> anyhow::Result<()> {
    let begun = Instant::now();
    examples::build(root)?;
    examples::build_ptx_host(root)?;
    // Story tests start the real processes: program and library must be of this very source. With
    // all targets, because tests have some crates with more features: without them everything would
    // be compiled twice.
    cargo(root, &["build", "--release", "--workspace", "--all-targets"], "the compiler's messages are above")?;
    let mut arguments = if has_program("cargo", &["nextest", "--version"]) {
        vec!["nextest", "run", "--release", "--workspace", "--no-fail-fast"]
    } else {
        vec!["test", "--release", "--workspace", "--lib", "--bins", "--tests", "--no-fail-fast"]
    };
    arguments.extend(filter);
    // They are ignored otherwise: they need more than this repository.
    if filter.is_some_and(|filter| filter.starts_with("clusters")) {
        arguments.extend(if arguments[0] == "nextest" { ["--run-ignored", "all"] } else { ["--", "--include-ignored"] });
    }
    repeat(rounds, || cargo(root, &arguments, "the tests' output is above"))?;
    if filter.is_none() {
        cargo(root, &["test", "--quiet", "--release", "--workspace", "--doc"], "examples in the documentation fail")?;
        model(root)?;
    }
    println!("cargo xtask test: all passed in {} s", begun.elapsed().as_secs());
    Ok(())
}

/// Runs the same tests so many times. With more than one round, a round that fails does not stop
/// the others.
fn repeat(rounds: u32, mut run: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<()> {
    if rounds <= 1 {
        return run();
    }
    let mut failed = Vec::new();
    for round in 1..=rounds {
        let begun = Instant::now();
        let outcome = run();
        println!("round {round} of {rounds}: {} in {} s", if outcome.is_ok() { "passed" } else { "failed" }, begun.elapsed().as_secs());
        failed.extend(outcome.err().map(|_| round.to_string()));
    }
    anyhow::ensure!(failed.is_empty(), "of {rounds} rounds, these failed: {}", failed.join(", "));
    println!("{rounds} rounds passed");
    Ok(())
}

/// The protocols of the ring and of biased locks under the model checker. A build folder of its
/// own: other flags would throw the usual one away.
fn model(root: &Path) -> anyhow::Result<()> {
    let mut command = cargo_command(root, &["test", "--quiet", "--release", "--package", "cumux-ring", "--package", "cumux-locks", "--test", "model"]);
    command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", root.join("target/loom"));
    run(command, "the model checker found a way to break the ring, or a lock")
}

fn cargo(root: &Path, arguments: &[&str], hint: &str) -> anyhow::Result<()> {
    run(cargo_command(root, arguments), hint)
}
