//! cargo-deny: may we ship what we link? Licences, sources and bans are always checked; advisories
//! if their database can be fetched.
//!
//! The tool has one exact version, so that a new one cannot break a change that has nothing to do
//! with it. It is installed once, into a folder that git ignores; a matching one on the path is
//! used as it is.

use crate::suite::{command, has, run};
use anyhow::{Context as _, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

/// The version, with the toolchain that `rust-version` names.
const VERSION: &str = "0.20.2";

/// Checks the workspace against deny.toml. (The fuzz targets are a workspace of their own that
/// ships nothing.)
pub fn check(root: &Path) -> anyhow::Result<()> {
    let tool = tool(root)?;
    let mut command = deny(root, &tool);
    command.args(["check", "--hide-inclusion-graph", "bans", "licenses", "sources"]);
    run(command, "see deny.toml")?;
    advisories(root, &tool)
}

/// Known vulnerabilities and yanked crates. The database comes over the network: without it that is
/// said, and nothing else fails.
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

/// Whether the check failed before it began.
fn unreachable(said: &str) -> bool {
    // Findings have codes in brackets ("error[vulnerability]"); failures of the tool have none.
    !said.contains("error[") && (said.contains("failed to fetch advisory database") || said.contains("failed to load advisory database"))
}

fn deny(root: &Path, tool: &Path) -> Command {
    let mut command = Command::new(tool);
    command.current_dir(root).args(["--manifest-path", "Cargo.toml", "--config", "deny.toml"]);
    command
}

/// Where the tool is, after installing it if need be.
fn tool(root: &Path) -> anyhow::Result<PathBuf> {
    let on_path = PathBuf::from("cargo-deny");
    if version(&on_path).is_some_and(|found| found == VERSION) {
        return Ok(on_path);
    }
    let folder = root.join("target/tools");
    let tool = folder.join("bin/cargo-deny");
    if version(&tool).is_some_and(|found| found == VERSION) {
        return Ok(tool);
    }
    println!("installing cargo-deny {VERSION} into {} (once; some minutes)", folder.display());
    let begun = Instant::now();
    let mut install = command(root, &["install", "--quiet", "--locked", "--root"]);
    install.arg(&folder).arg(format!("cargo-deny@{VERSION}"));
    // A build folder of its own, thrown away afterwards.
    install.env("CARGO_TARGET_DIR", folder.join("build"));
    run(install, "the package registry must be reachable once; or install cargo-deny yourself")?;
    // Only room is lost if this fails.
    let _ = std::fs::remove_dir_all(folder.join("build"));
    println!("cargo-deny installed in {} s", begun.elapsed().as_secs());
    Ok(tool)
}

fn version(tool: &Path) -> Option<String> {
    let name = tool.to_str()?;
    has(name, &["--version"]).then(|| Command::new(tool).arg("--version").output().ok()).flatten().and_then(|output| {
        let said = text(&output);
        said.split_whitespace().last().map(str::to_owned)
    })
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
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
