//! Lines of comment end by column 100: a reader's eye finds the next line.

use anyhow::{Context as _, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// The last column of a comment.
const LAST: usize = 100;
/// Folders with our own files.
const OURS: [&str; 6] = ["benches", "bin", "crates", "fuzz", "tests", "xtask"];
/// Folders in them that programs have written.
const GENERATED: [&str; 2] = ["generated", "target"];

/// Checks the comments of all Rust files.
///
/// # Errors
/// A file cannot be read, or has comments that end later.
pub fn check(root: &Path) -> anyhow::Result<()> {
    let (mut files, mut faults) = (Vec::new(), Vec::new());
    for folder in OURS {
        add_sources(&root.join(folder), &mut files)?;
    }
    for file in &files {
        let text = fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
        let name = file.strip_prefix(root).unwrap_or(file).display();
        faults.extend(long_comments(&text).map(|line| format!("{name}:{line}: the comment ends after column {LAST}: go on in the next line")));
    }
    if !faults.is_empty() {
        bail!("{}", faults.join("\n"));
    }
    println!("columns: comments of {} files end by column {LAST}", files.len());
    Ok(())
}

/// Adds the Rust files of a folder and of the folders in it.
fn add_sources(folder: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("{} cannot be read", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() && !GENERATED.contains(&&*name) {
            add_sources(&path, files)?;
        } else if name.ends_with(".rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// The numbers of lines whose comments are too long. What follows code on its line does not count.
fn long_comments(text: &str) -> impl Iterator<Item = usize> {
    let is_long = |line: &str| line.trim_start().starts_with("//") && line.chars().count() > LAST;
    (1..).zip(text.lines()).filter(move |(_, line)| is_long(line)).map(|(number, _)| number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_past_the_last_column_are_found() {
        let long = "x".repeat(LAST);
        let text = format!("let {long} = 1;\n//! short\n    // {long}\n/// {}\n// ┌{}\n", "ä".repeat(LAST - 4), "─".repeat(LAST));
        assert_eq!(long_comments(&text).collect::<Vec<_>>(), [3, 5]);
    }
}
