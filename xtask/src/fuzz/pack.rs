//! `cargo xtask fuzz --pack FILE.tar.gz`: the targets and their inputs in one file that needs
//! nothing else, for a machine with many processors.

use super::{OF_WORLDS, OPTIONS, TARGETS, Target, build, corpus, program};
use crate::process::run as run_loudly;
use anyhow::{Context as _, ensure};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const RUN: &str = include_str!("run.sh");
/// The folder in the file.
const NAME: &str = "cumux-fuzz";

/// Builds the targets, strips them, and puts them with all their inputs into a new file.
pub fn pack(root: &Path, file: &Path) -> anyhow::Result<()> {
    ensure!(!file.exists(), "{} is there already: name a new file", file.display());
    build(root)?;
    let stage = root.join("fuzz/target/pack");
    if stage.exists() {
        fs::remove_dir_all(&stage).with_context(|| format!("cannot remove {}", stage.display()))?;
    }
    let (folder, bin) = (stage.join(NAME), stage.join(NAME).join("bin"));
    make(&bin)?;
    for Target { name: target, seeds, .. } in TARGETS {
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
    fs::write(&run, RUN.replace("OPTIONS", &OPTIONS.join(" ")).replace("OF_WORLDS", &OF_WORLDS.join(" ")))
        .with_context(|| format!("cannot write {}", run.display()))?;
    fs::set_permissions(&run, fs::Permissions::from_mode(0o755)).with_context(|| format!("cannot make {} executable", run.display()))?;
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(&stage).arg("-czf").arg(file).arg(NAME);
    run_loudly(tar, "there may be no room")?;
    let bytes = fs::metadata(file).with_context(|| format!("cannot read {}", file.display()))?.len();
    println!("{}: {} MiB", file.display(), bytes.div_ceil(1 << 20));
    println!("there:          tar -xzf FILE && {NAME}/run SECONDS [PROCESSES [TARGET...]]");
    println!("inputs, here:   cp --no-clobber --recursive {NAME}/corpus fuzz/");
    println!("findings, here: {} {NAME}/findings/TARGET/INPUT", program(root, "TARGET").display());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_is_one_that_a_shell_reads() {
        let status = Command::new("sh").args(["-n", "-c", RUN]).status().expect("a shell");
        assert!(status.success());
        assert_eq!((RUN.matches("OPTIONS").count(), RUN.matches("OF_WORLDS").count()), (1, 1));
        let worlds: Vec<&str> = TARGETS.iter().filter(|target| !target.options.is_empty()).map(|target| target.name).collect();
        assert!(RUN.contains(&format!("case $1 in {}) echo OF_WORLDS", worlds.join(" | "))));
    }
}
