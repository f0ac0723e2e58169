//! The packages are made, installed, used, replaced and removed.

use super::{WAIT_LIMIT, alone, folder, is_root, package, repository, run, run_throwaway, script};
use cumux_testkit::{Watchdog, cumux, example, test_program};
use std::path::Path;
use std::process::Command;

#[test]
#[ignore = "cargo xtask test clusters: makes packages, needs root and systemd"]
fn the_deb_from_its_installation_to_its_end() {
    if !is_root() {
        return;
    }
    let folder = folder();
    let _watchdog = Watchdog::new(WAIT_LIMIT, folder.path());
    let place = alone();
    let packages = [1, 2].map(|revision| package("deb", folder.path(), revision));
    drop(place);
    let text = run_throwaway(folder.path(), "debian.sh", &[&packages[0], &packages[1], &example("vector_add"), &test_program("idle")]);
    assert!(text.contains("the package was installed, used, replaced and removed"), "{text}");
}

#[test]
#[ignore = "cargo xtask test clusters: makes packages"]
fn the_wheel_in_a_fresh_environment() {
    let folder = folder();
    let _watchdog = Watchdog::new(WAIT_LIMIT, folder.path());
    let place = alone();
    let wheel = package("wheel", folder.path(), 1);
    drop(place);
    let text = run(Command::new(script("wheel.sh")).arg("python3").arg(wheel).arg(folder.path()).arg(example("vector_add")));
    assert!(text.contains("the wheel was installed, used and removed"), "{text}");
}

#[test]
#[ignore = "cargo xtask test clusters: needs root and Debian's packages"]
fn the_rpm_with_its_own_tools() {
    if !is_root() {
        return;
    }
    let folder = folder();
    let _watchdog = Watchdog::new(WAIT_LIMIT, folder.path());
    // What the .deb is made of is what the .rpm is made of.
    let _place = alone();
    package("deb", folder.path(), 1);
    let staged = repository().join("target/package/staged");
    let text = run_throwaway(folder.path(), "rpm.sh", &[&repository(), &staged, Path::new(folder.path())]);
    assert!(text.contains("the package was made and installed"), "{text}");
}

/// The image itself needs an engine and a registry; what its last stage consists of does not.
#[test]
#[ignore = "cargo xtask test clusters: needs root and Debian's packages"]
fn the_content_of_the_image_serves_another_container() {
    if !is_root() {
        return;
    }
    let folder = folder();
    let _watchdog = Watchdog::new(WAIT_LIMIT, folder.path());
    let staged = folder.path().join("staged");
    run(Command::new(cumux()).args(["install", "--system", "--root"]).arg(&staged));
    let text = run(Command::new(script("container.sh")).arg(&staged).arg(folder.path()).arg(example("vector_add")));
    assert!(text.contains("the image's content serves a program in another container"), "{text}");
}
