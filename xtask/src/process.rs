//! Running other programs.

use anyhow::{Context as _, bail};
use std::path::Path;
use std::process::{Command, Stdio};

/// A cargo command in the workspace.
pub fn cargo_command(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).args(arguments);
    // Variables of the cargo that started us are not meant for the one we start.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CARGO_PKG_") || name == "CARGO_MANIFEST_DIR") {
        command.env_remove(name);
    }
    command
}

/// Runs a command and shows its output; fails with `hint` if the command fails.
pub fn run(mut command: Command, hint: &str) -> anyhow::Result<()> {
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

/// Whether a program can be run with these arguments.
pub fn has_program(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}
