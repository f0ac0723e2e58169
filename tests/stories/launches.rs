//! Kernels that launch kernels (CUDA dynamic parallelism) on software GPUs.

use cumux_testkit::{Node, cumux, test_program};
use std::process::{Command, Output, Stdio};

/// A part of the program, under `cumux run` on a device.
fn run(device: &str, part: &str) -> Output {
    let mut command = Command::new(cumux());
    command.args(["run", "--device", device, "--"]).arg(test_program("launches")).arg(part).stdin(Stdio::null());
    command.env("CUDA_MPS_PIPE_DIRECTORY", "/nonexistent/cumux");
    for variable in ["CUMUX_QUIET", "CUMUX_VERBOSE", "CUMUX_LOG", "CUMUX_DEVICE"] {
        command.env_remove(variable);
    }
    command.output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn what_kernels_launch_runs_in_the_order_of_the_programming_guide() {
    // One device for each way in which a fault ends, and for each age of cards.
    let software = || ["sim:h200", "sim:h200:card", "sim:t4"].map(str::to_owned).to_vec();
    for device in &std::env::var("CUMUX_TEST_DEVICE").map_or_else(|_| software(), |device| vec![device]) {
        // A card's own library sets memory from the device to zero, whatever the value (driver
        // 580).
        let parts: &[&str] = if device.starts_with("cuda") { &["order", "events", "many"] } else { &["order", "events", "many", "memory"] };
        for part in parts {
            let output = run(device, part);
            assert_eq!((out(&output), String::from_utf8_lossy(&output.stderr).into_owned()), (format!("{part}: PASS\n"), String::new()), "{device}");
        }
    }
}

#[test]
fn launches_from_the_device_answer_as_on_a_card() {
    let output = run("sim:h200", "calls");
    assert_eq!(out(&output), "cudaErrorInvalidConfiguration: invalid configuration argument\ncalls: PASS\n", "{output:?}");
    // What a kernel prints before a launch stands before what the launched kernel prints.
    let output = run("sim:h200", "printing");
    assert_eq!(out(&output), "parent\nchild 1\nchild 2\nprinting: PASS\n", "{output:?}");
}

#[test]
fn the_fault_of_a_launched_kernel_is_its_clients_end() {
    let output = run("sim:h200", "fault");
    assert_eq!(out(&output), "wait: cudaErrorIllegalAddress\nagain: cudaErrorIllegalAddress\nfault: PASS\n", "{output:?}");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.starts_with("cumux: kernel _Z9bad_childPi: illegal address 0x0 (block 0,0,0 thread 0,0,0)"), "{told}");
}

/// The parent's blocks are done, and its child runs: the next executor knows nothing of the child.
#[test]
fn a_takeover_beside_launched_kernels_is_an_error_and_not_a_result() {
    let node = Node::start();
    if !node.is_software() {
        return;
    }
    let mut client = node.test_client("launches").args(&["takeover"]).start();
    client.wait_for_line("ready");
    node.kill(node.server().executor);
    node.wait_for("the next executor", |node| node.servers().into_iter().find(|server| server.takeovers == 1 && server.state == "ACTIVE"));
    client.tell("");
    let outcome = client.wait();
    assert!(outcome.out.contains("wait: cudaError"), "{outcome:?}");
    // Others, and what comes later, are served.
    let outcome = node.test_client("launches").args(&["many"]).start().wait();
    assert!(outcome.out.contains("many: PASS"), "{outcome:?}");
}
