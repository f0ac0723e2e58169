//! Debian's slurmctld and slurmd call the hooks.

use super::{folder, repository, run_throwaway};
use cumux_testkit::{Watchdog, cumux};
use rustix::process::geteuid;
use std::time::Duration;

#[test]
#[ignore = "cargo xtask test clusters: needs root and Debian's Slurm"]
fn jobs_of_two_users_with_debians_slurm() {
    if !geteuid().is_root() {
        eprintln!("NOTE: not tested: a copy of the system needs root");
        return;
    }
    let folder = folder();
    let _watchdog = Watchdog::new(Duration::from_secs(800), folder.path());
    let text = run_throwaway(folder.path(), "slurm.sh", &[&cumux(), &repository().join(".build")]);
    assert!(text.contains("jobs of two users ran, were cancelled, and left nothing"), "{text}");
}
