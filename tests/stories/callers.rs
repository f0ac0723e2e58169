//! Those who drive NVIDIA's MPS today, each sequence a script of our own in `tests/callers`,
//! against the drop-in names of an installed cumux.

use cumux_testkit::{Watchdog, cumux, test_program};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

fn calls(script: &str) {
    let folder = tempfile::Builder::new().prefix("cx").tempdir_in("/tmp").unwrap();
    let _watchdog = Watchdog::new(Duration::from_secs(120), folder.path());
    let status = Command::new(cumux()).args(["install", "--drop-in", "--prefix"]).arg(folder.path()).stdout(Stdio::null()).status().unwrap();
    assert!(status.success());
    let root = folder.path().join("root");
    std::fs::create_dir(&root).unwrap();
    let output = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("callers").join(script))
        .arg(&root)
        .arg(test_program("view"))
        .env_clear()
        .env("PATH", format!("{}:/usr/bin:/bin", folder.path().join("bin").display()))
        .env("LD_LIBRARY_PATH", folder.path().join("lib/cumux"))
        .env("CUMUX_DEVICE", "sim:h200")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    // A script that failed may have left a daemon.
    for pipe in std::fs::read_dir(&root).unwrap().flatten() {
        let mut quit = Command::new(cumux());
        let _ = quit.args(["control", "quit", "-t", "0"]).env("CUDA_MPS_PIPE_DIRECTORY", pipe.path()).stdin(Stdio::null()).output();
    }
    let trace = || Command::new("sh").arg("-c").arg("tail -n 20 \"$0\"/*/*.log").arg(&root).output().map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
    assert!(output.status.success(), "{script}: {output:?}\n{}", trace().unwrap_or_default());
}

#[test]
fn the_kubernetes_device_plugin() {
    calls("device-plugin.sh");
}

#[test]
fn the_dra_driver() {
    calls("dra-driver.sh");
}

#[test]
fn a_slurm_prolog() {
    calls("slurm-prolog.sh");
}

/// Up to 0.9.
#[test]
fn skywards_bootstrap() {
    calls("skyward.sh");
}

/// From 0.11 on.
#[test]
fn skywards_worker() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("NOTE: not tested: a mount namespace needs root");
        return;
    }
    calls("skyward-worker.sh");
}
