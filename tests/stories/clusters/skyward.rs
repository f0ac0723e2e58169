//! Skyward's plugins with its released wheels, of both generations of its interface.

use super::{folder, repository, run, script};
use cumux_testkit::{Watchdog, cumux};
use rustix::process::geteuid;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// A Python that Skyward takes: `CUMUX_PYTHON`, or one of the usual names.
fn python() -> Option<PathBuf> {
    let named = std::env::var_os("CUMUX_PYTHON").map(PathBuf::from);
    let usual = ["python3.12", "python3.13", "python3"].into_iter().map(PathBuf::from);
    let is_fit = |path: &PathBuf| {
        let code = "import sys, venv; sys.exit(sys.version_info < (3, 12))";
        Command::new(path).args(["-c", code]).output().is_ok_and(|output| output.status.success())
    };
    named.into_iter().chain(usual).find(is_fit)
}

fn plugins(version: &str, tested: usize) {
    let Some(python) = python().filter(|_| geteuid().is_root()) else {
        eprintln!("NOTE: not tested: it needs root and a Python of 3.12 or newer (CUMUX_PYTHON names one)");
        return;
    };
    let folder = folder();
    let _watchdog = Watchdog::new(Duration::from_secs(800), folder.path());
    let text = run(Command::new(script("skyward.sh")).arg(python).arg(version).arg(repository()).arg(cumux()).arg(folder.path()));
    let passed = text.lines().filter(|line| line.ends_with("... ok")).count();
    assert_eq!(passed, tested, "{text}");
}

#[test]
#[ignore = "cargo xtask test clusters: fetches Skyward's wheel"]
fn skyward_0_9() {
    plugins("0.9.2", 5);
}

#[test]
#[ignore = "cargo xtask test clusters: fetches Skyward's wheel"]
fn skyward_0_12() {
    plugins("0.12.1", 7);
}
