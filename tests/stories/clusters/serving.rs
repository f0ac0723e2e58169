//! A service of FastAPI and uvicorn with several workers, in groups.

use super::{folder, run, script};
use cumux_testkit::{Watchdog, cumux};
use std::process::Command;
use std::time::Duration;

#[test]
#[ignore = "cargo xtask test clusters: fetches FastAPI and uvicorn"]
fn workers_of_uvicorn_in_two_groups() {
    let folder = folder();
    let _watchdog = Watchdog::new(Duration::from_secs(400), folder.path());
    let text = run(Command::new(script("serving.sh")).arg("python3").arg(cumux()).arg(script("")).arg(folder.path()));
    assert!(text.contains("workers of two services were served, each service within its group"), "{text}");
}
