//! The crash matrix: builds everything and hands over to its program.

use crate::{examples, process};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

pub fn run(root: &Path, arguments: &[OsString]) -> anyhow::Result<()> {
    examples::build(root)?;
    // All packages are named, so that dependencies are built with the same features as for the
    // suite, and not a second time.
    for what in [&["--workspace"][..], &["--workspace", "--example", "chaos"]] {
        let words: Vec<&str> = ["build", "--release"].iter().chain(what).copied().collect();
        process::run(process::cargo_command(root, &words), "the compiler's messages are above")?;
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let mut harness = Command::new(target.join("release/examples/chaos"));
    harness.current_dir(root).args(arguments);
    process::run(harness, "the failed rounds are above, each with the command that plays it again")
}
