//! Clippy reads the `clippy.toml` nearest to a crate and no other: one below the root has to repeat
//! what the root's says, or its crate is checked for less.

use anyhow::{Context as _, bail};
use std::fs;
use std::path::Path;

/// Checks every `clippy.toml` below the root.
///
/// # Errors
/// A file cannot be read, or lacks a line of the root's.
pub fn check(root: &Path) -> anyhow::Result<()> {
    let read = |path: &Path| fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
    let whole = read(&root.join("clippy.toml"))?;
    let mut folders = vec![root.join("xtask"), root.join("tests")];
    for group in ["crates", "bin"] {
        for entry in fs::read_dir(root.join(group)).with_context(|| format!("cannot read {group}"))? {
            folders.push(entry?.path());
        }
    }
    for path in folders.iter().map(|folder| folder.join("clippy.toml")).filter(|path| path.exists()) {
        if let Some(line) = missing_line(&whole, &read(&path)?) {
            bail!("{} lacks a line of the clippy.toml at the root, which does not count beside it: {line}", path.display());
        }
    }
    Ok(())
}

/// A line with a setting that is in `whole` and not in `part`.
fn missing_line<'a>(whole: &'a str, part: &str) -> Option<&'a str> {
    whole.lines().filter(|line| !line.starts_with('#')).find(|line| !part.lines().any(|other| other == *line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_is_not_repeated_is_named() {
        let whole = "# why\na = [\n    1,\n    2,\n]\n";
        assert_eq!(missing_line(whole, "b = 1\na = [\n    1,\n    2,\n]\n"), None);
        assert_eq!(missing_line(whole, "a = [\n    1,\n]\n"), Some("    2,"));
    }
}
