//! Dependencies point downward only: the table "Code map" of ARCHITECTURE.md is the rule, and this
//! file checks it.
//!
//! Every member of the workspace must be in the table, and may use exactly what its row allows.
//! Development dependencies are free: a test may use crates above.

use anyhow::{Context as _, bail};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
    path: Option<String>,
}

/// What a row allows.
#[derive(Debug, PartialEq, Eq)]
enum Allowed {
    All,
    These(BTreeSet<String>),
}

pub fn check(root: &Path) -> anyhow::Result<()> {
    let page = fs::read_to_string(root.join("ARCHITECTURE.md")).context("cannot read ARCHITECTURE.md")?;
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(root)
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .output()
        .context("cannot start cargo")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata: Metadata = serde_json::from_slice(&output.stdout).context("cargo metadata wrote what is no JSON")?;
    let faults = faults(&table(&page), &metadata);
    if !faults.is_empty() {
        bail!("{}\nThe table \"Code map\" in ARCHITECTURE.md is the rule: take the dependency out, or argue for it there", faults.join("\n"));
    }
    println!("layers: {} packages keep to ARCHITECTURE.md", metadata.packages.len());
    Ok(())
}

/// Rows `| crate | what it is | may use |` after the heading "Code map".
fn table(page: &str) -> BTreeMap<String, Allowed> {
    let map = page.split("## Code map").nth(1).unwrap_or("");
    let mut rows = BTreeMap::new();
    for line in map.lines().take_while(|line| !line.starts_with("## ")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, name, _, uses, _] = cells[..] else { continue };
        if name == "crate" || name.starts_with("---") {
            continue;
        }
        let allowed = match uses {
            "all" => Allowed::All,
            _ => Allowed::These(uses.split_whitespace().filter(|word| *word != "–").map(str::to_owned).collect()),
        };
        rows.insert(name.to_owned(), allowed);
    }
    rows
}

/// `cumux-wire` is `wire` in the table, the program `cumux` is `bin/cumux`.
fn short(package: &str) -> String {
    match package.strip_prefix("cumux-") {
        Some(name) => name.to_owned(),
        None if package == "cumux" => "bin/cumux".to_owned(),
        None => package.to_owned(),
    }
}

fn faults(table: &BTreeMap<String, Allowed>, metadata: &Metadata) -> Vec<String> {
    let mut faults = Vec::new();
    for package in &metadata.packages {
        let name = short(&package.name);
        let Some(allowed) = table.get(&name) else {
            faults.push(format!("{name} is not in the code map"));
            continue;
        };
        let Allowed::These(allowed) = allowed else { continue };
        let used = package.dependencies.iter().filter(|d| d.path.is_some() && d.kind.as_deref() != Some("dev")).map(|d| short(&d.name));
        faults.extend(used.filter(|used| !allowed.contains(used)).map(|used| format!("{name} uses {used}, which its row does not allow")));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# A\n## Code map\n\n| crate | what it is | may use |\n|---|---|---|\n| wire | x | – |\n| link | x | wire |\n| bin/cumux | x | all |\n\n## Next\n| ring | x | wire |\n";

    fn package(name: &str, dependencies: &[(&str, Option<&str>)]) -> Package {
        let dependencies =
            dependencies.iter().map(|(name, kind)| Dependency { name: (*name).into(), kind: kind.map(str::to_owned), path: Some("/p".into()) }).collect();
        Package { name: name.into(), dependencies }
    }

    #[test]
    fn what_the_table_does_not_allow_is_named() {
        let table = table(PAGE);
        assert_eq!(table.len(), 3, "rows of other chapters do not count");
        let judge = |packages| faults(&table, &Metadata { packages });
        assert!(judge(vec![package("cumux-link", &[("cumux-wire", None)]), package("cumux", &[("cumux-link", None)])]).is_empty());
        assert!(judge(vec![package("cumux-wire", &[("cumux-link", Some("dev"))])]).is_empty());
        assert_eq!(judge(vec![package("cumux-wire", &[("cumux-link", None)])]), ["wire uses link, which its row does not allow"]);
        assert_eq!(judge(vec![package("cumux-ring", &[])]), ["ring is not in the code map"]);
    }
}
