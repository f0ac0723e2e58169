//! Debian's slurmctld and slurmd call the hooks.

use super::{WAIT_LIMIT, folder, is_root, repository, run_throwaway};
use cumux_testkit::{Watchdog, cumux};

#[test]
#[ignore = "cargo xtask test clusters: needs root and Debian's Slurm"]
fn jobs_of_two_users_with_debians_slurm() {
    if !is_root() {
        return;
    }
    let folder = folder();
    let _watchdog = Watchdog::new(WAIT_LIMIT, folder.path());
    let text = run_throwaway(folder.path(), "slurm.sh", &[&cumux(), &repository().join(".build")]);
    assert!(text.contains("jobs of two users ran, were cancelled, and left nothing"), "{text}");
}
