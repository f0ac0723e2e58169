//! What CI runs, and the order it runs it in.

use crate::{compatibility, deny, examples, fuzz, layers};
use anyhow::{Context as _, bail};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Everything: a change that passes here passes in CI.
pub fn check(root: &Path) -> anyhow::Result<()> {
    lint(root)?;
    deny::check(root)?;
    test(root, None)
}

/// Format, lints, layers, generated pages.
pub fn lint(root: &Path) -> anyhow::Result<()> {
    cargo(root, &["fmt", "--all", "--check"], "cargo fmt --all mends it")?;
    cargo(root, &["clippy", "--quiet", "--workspace", "--all-targets", "--", "--deny", "warnings"], "clippy's messages are above")?;
    layers::check(root)?;
    fuzz::check(root)?;
    compatibility::check()
}

/// The whole suite from whatever is there: wheels, CUDA programs, binaries, tests.
pub fn test(root: &Path, filter: Option<&str>) -> anyhow::Result<()> {
    let begun = Instant::now();
    examples::build(root)?;
    examples::build_ptx_host(root)?;
    // Story tests start the real processes: program and library must be of this very source.
    cargo(root, &["build", "--release", "--workspace"], "the compiler's messages are above")?;
    if has("cargo", &["nextest", "--version"]) {
        let mut arguments = vec!["nextest", "run", "--release", "--workspace", "--no-fail-fast"];
        arguments.extend(filter);
        cargo(root, &arguments, "the tests' output is above")?;
    } else {
        let mut arguments = vec!["test", "--release", "--workspace", "--lib", "--bins", "--tests", "--no-fail-fast"];
        arguments.extend(filter);
        cargo(root, &arguments, "the tests' output is above")?;
    }
    if filter.is_none() {
        cargo(root, &["test", "--quiet", "--release", "--workspace", "--doc"], "examples in the documentation fail")?;
        model(root)?;
    }
    println!("cargo xtask test: all passed in {} s", begun.elapsed().as_secs());
    Ok(())
}

/// The ring's protocol under the model checker. A build folder of its own: other flags would throw the usual one away.
fn model(root: &Path) -> anyhow::Result<()> {
    let mut command = command(root, &["test", "--quiet", "--release", "--package", "cumux-ring", "--test", "model"]);
    command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", root.join("target/loom"));
    run(command, "the model checker found a way to break the ring")
}

/// cargo in the workspace.
pub(crate) fn command(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).args(arguments);
    // Variables of the run that started us are not meant for the cargo we start.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CARGO_PKG_") || name == "CARGO_MANIFEST_DIR") {
        command.env_remove(name);
    }
    command
}

fn cargo(root: &Path, arguments: &[&str], hint: &str) -> anyhow::Result<()> {
    run(command(root, arguments), hint)
}

/// Runs a command and shows what it says; fails with `hint` if it fails.
pub(crate) fn run(mut command: Command, hint: &str) -> anyhow::Result<()> {
    let shown = command.get_args().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let program = command.get_program().to_string_lossy();
    let program = program.rsplit('/').next().unwrap_or_default().to_owned();
    println!("== {program} {shown}");
    let status = command.status().with_context(|| format!("cannot start {program}"))?;
    if !status.success() {
        bail!("{program} {shown}: {hint}");
    }
    Ok(())
}

pub(crate) fn has(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}
