//! `cargo xtask fuzz --pack DIR`: the targets and their inputs in one folder that needs nothing else, for a machine with many processors.

use super::{OPTIONS, TARGETS, build, corpus, program};
use anyhow::{Context as _, ensure};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const RUN: &str = include_str!("run.sh");

/// Builds the targets and puts them, stripped, with all their inputs into a folder that is not there yet or is empty.
pub fn pack(root: &Path, folder: &Path) -> anyhow::Result<()> {
    let empty = fs::read_dir(folder).map_or(true, |mut entries| entries.next().is_none());
    ensure!(empty, "{} is not empty: name a folder that is not there yet", folder.display());
    build(root)?;
    let bin = folder.join("bin");
    make(&bin)?;
    for (target, seeds) in TARGETS {
        let stripped = bin.join(target);
        let status = Command::new("strip").arg("-o").arg(&stripped).arg(program(root, target)).status().context("cannot start strip: install binutils")?;
        ensure!(status.success(), "strip could not write {}", stripped.display());
        let inputs = folder.join("corpus").join(target);
        make(&inputs)?;
        for source in [Some(corpus(root, target)), seeds.map(|seeds| root.join(seeds))].into_iter().flatten() {
            copy_files(&source, &inputs)?;
        }
    }
    let run = folder.join("run");
    fs::write(&run, RUN.replace("OPTIONS", &OPTIONS.join(" "))).with_context(|| format!("cannot write {}", run.display()))?;
    fs::set_permissions(&run, fs::Permissions::from_mode(0o755)).with_context(|| format!("cannot make {} executable", run.display()))?;
    println!("{} MiB in {}", size(folder)?.div_ceil(1 << 20), folder.display());
    println!("there:          ./run SECONDS [PROCESSES [TARGET...]]");
    println!("back here:      cp --no-clobber DIR/corpus/TARGET/* fuzz/corpus/TARGET/");
    println!("a finding here: {} FILE", program(root, "TARGET").display());
    Ok(())
}

fn make(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

/// The files right in a folder. A target that has not run yet has none.
fn files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(Vec::new()) };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("cannot read {}", folder.display()))?.path();
        if path.is_file() {
            files.push(path);
        }
    }
    Ok(files)
}

fn copy_files(from: &Path, to: &Path) -> anyhow::Result<()> {
    for path in files(from)? {
        let target = to.join(path.file_name().unwrap_or_default());
        fs::copy(&path, &target).with_context(|| format!("cannot copy {} to {}", path.display(), target.display()))?;
    }
    Ok(())
}

fn size(folder: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry.with_context(|| format!("cannot read {}", folder.display()))?.path();
        bytes += if path.is_dir() { size(&path)? } else { fs::metadata(&path).map_or(0, |file| file.len()) };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_is_one_that_a_shell_reads() {
        let status = Command::new("sh").args(["-n", "-c", RUN]).status().expect("a shell");
        assert!(status.success());
        assert_eq!(RUN.matches("OPTIONS").count(), 1);
    }
}
