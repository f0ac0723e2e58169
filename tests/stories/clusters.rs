//! Stories with the real programs of others: Slurm, Prometheus, dpkg and systemd, rpm, pip,
//! uvicorn. They need more than this repository, so only `cargo xtask test clusters` runs them.

mod packages;
mod prometheus;
mod serving;
mod skyward;
mod slurm;

use cumux_testkit::cumux;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// How long a story may take that installs packages of Debian's.
const WAIT_LIMIT: Duration = Duration::from_secs(800);

/// Containers and copies of the system need root. Where this is another user, the story says that
/// it tested nothing.
fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("NOTE: not tested: only root can make containers and copies of the system");
    }
    is_root
}

/// The repository.
fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// A script of `tests/clusters`.
fn script(name: &str) -> PathBuf {
    repository().join("tests/clusters").join(name)
}

fn folder() -> TempDir {
    tempfile::Builder::new().prefix("cx").tempdir_in("/tmp").unwrap()
}

/// Runs a command to its end, which must be a success; returns its output.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{command:?}: {}\n{text}", output.status);
    text
}

/// Runs a script in a copy of this system that is thrown away, under a systemd of its own.
fn run_throwaway(folder: &Path, name: &str, arguments: &[&Path]) -> String {
    let status = Command::new(script("throwaway.sh")).arg(folder).arg(script(name)).args(arguments).status().unwrap();
    let text = std::fs::read_to_string(folder.join("output")).unwrap_or_default();
    assert!(status.success(), "{name}: {status}\n{text}");
    text
}

/// Packages have one place for what they are made of: one test at a time makes them, and has that
/// place until this is dropped.
fn alone() -> std::fs::File {
    let file = std::fs::File::create(repository().join("target/package.lock")).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    file
}

/// Packages of this build; the release build must be there already.
fn package(kind: &str, out: &Path, revision: u32) -> PathBuf {
    let xtask = cumux().with_file_name("xtask");
    let text = run(Command::new(xtask).current_dir(repository()).args(["package", kind, "--revision", &revision.to_string(), "--out"]).arg(out));
    let path = text.lines().rev().find(|line| line.starts_with('/')).unwrap_or_else(|| panic!("no path in\n{text}"));
    PathBuf::from(path)
}
