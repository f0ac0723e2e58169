//! cargo-deny: may we ship what we link? Licences, sources and bans are always checked; advisories
//! if their database can be fetched.
//!
//! To build cargo-deny takes longer than to run the suite, and its answer follows from three
//! things: the locked dependencies, the rules, its version. So the hash of the three for which it
//! last passed is kept in `deny.checked`, beside the rules, and CI runs it only when they have
//! changed.

use crate::process::run;
use crate::tools::{Tool, text};
use anyhow::{Context as _, bail};
use std::path::Path;
use std::process::Command;

const CARGO_DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2" };

/// What was checked last.
const CHECKED: &str = "deny.checked";

/// Checks the workspace unless nothing has changed since it last passed.
pub fn check_if_changed(root: &Path) -> anyhow::Result<()> {
    let checked = std::fs::read_to_string(root.join(CHECKED)).unwrap_or_default();
    if checked == describe_inputs(root)? {
        println!("cargo-deny: dependencies and rules are those that passed ({CHECKED}); advisories were not asked for anew");
        return Ok(());
    }
    check(root)
}

/// The hash of what cargo-deny's answer follows from, as it stands in the file.
fn describe_inputs(root: &Path) -> anyhow::Result<String> {
    let mut hasher = blake3::Hasher::new();
    for name in ["Cargo.lock", "deny.toml"] {
        let bytes = std::fs::read(root.join(name)).with_context(|| format!("cannot read {name}"))?;
        hasher.update(&(bytes.len() as u64).to_le_bytes()).update(&bytes);
    }
    Ok(format!("{} {}\n{} of Cargo.lock and deny.toml\n", CARGO_DENY.name, CARGO_DENY.version, hasher.finalize().to_hex()))
}

/// Checks the workspace against deny.toml, and notes that it has passed. (The fuzz targets are a
/// workspace of their own that ships nothing.)
pub fn check(root: &Path) -> anyhow::Result<()> {
    let inputs = describe_inputs(root)?;
    let tool = CARGO_DENY.find(root)?;
    let mut command = deny(root, &tool);
    command.args(["check", "--hide-inclusion-graph", "bans", "licenses", "sources"]);
    run(command, "see deny.toml")?;
    advisories(root, &tool)?;
    std::fs::write(root.join(CHECKED), inputs).with_context(|| format!("cannot write {CHECKED}"))
}

/// Checks for known vulnerabilities and yanked crates. The database comes over the network: without
/// it the check prints that, and nothing fails.
fn advisories(root: &Path, tool: &Path) -> anyhow::Result<()> {
    let mut command = deny(root, tool);
    let output = command.args(["check", "advisories"]).output().context("cannot start cargo-deny")?;
    let said = text(&output);
    if output.status.success() {
        println!("cargo-deny: advisories ok");
        return Ok(());
    }
    if unreachable(&said) {
        let reason = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no reason given");
        println!("NOTE: advisories were NOT checked, because their database cannot be fetched ({reason}); licences, sources and bans were checked");
        return Ok(());
    }
    print!("{said}");
    bail!("cargo-deny finds a crate with an advisory: update it, or name the advisory with its reason under `ignore` in deny.toml");
}

/// Whether the check failed because it could not fetch the database.
fn unreachable(said: &str) -> bool {
    // Findings have codes in brackets ("error[vulnerability]"); failures of the tool have none.
    !said.contains("error[") && (said.contains("failed to fetch advisory database") || said.contains("failed to load advisory database"))
}

fn deny(root: &Path, tool: &Path) -> Command {
    let mut command = Command::new(tool);
    command.current_dir(root).args(["--manifest-path", "Cargo.toml", "--config", "deny.toml"]);
    command
}

#[cfg(test)]
mod tests {
    use super::unreachable;

    #[test]
    fn a_finding_is_not_taken_for_a_missing_network() {
        assert!(unreachable("2026-01-01 00:00:00 [ERROR] failed to fetch advisory database https://github.com/rustsec/advisory-db\n"));
        assert!(!unreachable("error[vulnerability]: a bad crate\n"));
        assert!(!unreachable("error[vulnerability]: failed to fetch advisory database\n"));
        assert!(!unreachable("thread main panicked"));
    }
}
