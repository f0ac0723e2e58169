//! `cumux run`, `status`, `doctor` and `install` as people use them.

use cumux_link::Process;
use cumux_testkit::{Node, cumux, example};
use cumux_wire::message::ServerStatus;
use rustix::process::Signal;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Output, Stdio};

/// `cumux run` without any daemon around.
fn run(arguments: &[&str]) -> Command {
    let mut command = Command::new(cumux());
    command.arg("run").args(arguments).env("CUDA_MPS_PIPE_DIRECTORY", "/nonexistent/cumux").env("CUMUX_DEVICE", "sim:h200").stdin(Stdio::null());
    command
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_program_runs_with_a_private_daemon_and_nothing_is_left() {
    let program = example("vector_add");
    let output = run(&["--", program.to_str().unwrap(), "1"]).output().unwrap();
    assert!(output.status.success() && out(&output).contains("PASS"), "{output:?}");
    let output = run(&["sh", "-c", "ls -d $CUDA_MPS_PIPE_DIRECTORY; echo $CUDA_MPS_PIPE_DIRECTORY"]).output().unwrap();
    let said = out(&output);
    let folder = said.lines().next().unwrap();
    assert!(output.status.success() && folder.contains("cumux-"), "{output:?}");
    assert!(!std::path::Path::new(folder).exists(), "{folder} is left");
}

/// Functions of `atexit` and destructors of C++ run when the thread's own data are gone.
#[test]
fn a_program_uses_its_device_until_its_very_end() {
    let node = Node::start();
    for on in [&[][..], &["thread"]] {
        assert_eq!(node.test_client("at_exit").args(on).start().expect_ok(), "a kernel ran at the end\nPASS", "{on:?}");
    }
}

#[test]
fn the_exit_status_is_the_program_s_own() {
    assert_eq!(run(&["sh", "-c", "exit 7"]).status().unwrap().code(), Some(7));
    assert_eq!(run(&["sh", "-c", "kill -9 $$"]).status().unwrap().signal(), Some(9));
    let output = run(&["/no/such/program"]).output().unwrap();
    assert_eq!(output.status.code(), Some(127), "{output:?}");
    assert_eq!(run(&["/etc/hostname"]).output().unwrap().status.code(), Some(126));
}

#[test]
fn signals_reach_the_program() {
    let mut child = run(&["sh", "-c", "trap 'echo got it; exit 5' TERM; echo ready; while :; do sleep 0.05; done"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    Process::open(child.id()).unwrap().signal(Signal::TERM).unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "got it");
    assert_eq!(child.wait().unwrap().code(), Some(5));
}

#[test]
fn a_running_daemon_is_used() {
    let node = Node::start();
    let program = example("vector_add");
    let output = node.cumux(&["run", "--", program.to_str().unwrap(), "1"]).output().unwrap();
    assert!(output.status.success() && out(&output).contains("PASS"), "{output:?}");
    assert_eq!(node.servers().len(), 1, "it ran here");
}

#[test]
fn status_as_table_and_as_json() {
    let node = Node::start();
    let client = node.test_client("idle").start();
    client.wait_for_line("ready");
    let output = node.cumux(&["status", "--json"]).output().unwrap();
    let servers: Vec<ServerStatus> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(servers[0].clients[0].pid, client.pid());
    assert!(servers[0].clients[0].kernels >= 1, "{servers:?}");
    let table = out(&node.cumux(&["status"]).output().unwrap());
    assert!(table.contains(&client.pid().to_string()) && table.contains("ACTIVE"), "{table}");
}

#[test]
fn the_doctor_finds_nothing_and_finds_things() {
    let node = Node::start();
    let output = node.cumux(&["doctor"]).output().unwrap();
    assert!(output.status.success(), "{}", out(&output));
    let program = example("vector_add");
    let output = node.cumux(&["doctor", "--json", program.to_str().unwrap()]).output().unwrap();
    let findings: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert!(findings.iter().any(|f| f["check"] == "program" && f["outcome"] == "ok"), "{findings:?}");
    for (variable, word) in [("", "bypass"), ("/nonexistent", "start a daemon"), ("/etc/passwd", "not a directory")] {
        let output = node.cumux(&["doctor"]).env("CUDA_MPS_PIPE_DIRECTORY", variable).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{variable}");
        assert!(out(&output).contains(word), "{variable}: {}", out(&output));
    }
    node.kill(node.daemon_pid());
    let output = node.cumux(&["doctor"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(out(&output).contains("is gone"), "{}", out(&output));
}

#[test]
fn an_installed_cumux_works_under_every_name() {
    let prefix = tempfile::tempdir().unwrap();
    let status = Command::new(cumux()).args(["install", "--drop-in", "--prefix"]).arg(prefix.path()).stdout(Stdio::null()).status().unwrap();
    assert!(status.success());
    for path in ["bin/cumux", "lib/cumux/libcuda.so.1", "share/man/man1/cumux.1", "bin/nvidia-cuda-mps-control", "bin/nvidia-cuda-mps-server"] {
        assert!(prefix.path().join(path).exists(), "{path} is missing");
    }
    let control = || {
        let mut command = Command::new(prefix.path().join("bin/nvidia-cuda-mps-control"));
        let environment = [("CUDA_MPS_PIPE_DIRECTORY", prefix.path().join("p")), ("CUDA_MPS_LOG_DIRECTORY", prefix.path().join("l"))];
        command.envs(environment).env("CUMUX_DEVICE", "sim:h200").stdin(Stdio::null());
        command
    };
    assert!(control().arg("-d").status().unwrap().success());
    let program = example("vector_add");
    let output =
        Command::new(program).arg("1").env("CUDA_MPS_PIPE_DIRECTORY", prefix.path().join("p")).env("LD_LIBRARY_PATH", prefix.path().join("lib/cumux")).output();
    // Ended before anything is judged: a failure must not leave a daemon.
    let quit = control().arg("quit").status().unwrap();
    let output = output.unwrap();
    assert!(output.status.success() && out(&output).contains("PASS"), "{output:?}");
    assert!(quit.success());
}

#[test]
fn top_shows_growing_kernels_and_who_is_there() {
    let node = Node::start();
    let top = || node.cumux(&["top", "--once", "--interval", "0.1"]).output().unwrap();
    let output = top();
    assert!(output.status.success() && out(&output).contains("No server is running"), "{output:?}");
    let mut client = node.test_client("idle").start();
    client.wait_for_line("ready");
    let kernels = |page: &str| -> u64 {
        let row = page.lines().find(|line| line.trim_start().starts_with(&client_pid(page))).unwrap_or_else(|| panic!("no client in\n{page}"));
        row.split_whitespace().rev().nth(1).and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{page}"))
    };
    let first = out(&top());
    assert!(
        first.contains(&client.pid().to_string()) && first.contains(node.device()) && first.contains("132 SMs") && first.contains("generation 1"),
        "{first}"
    );
    let before = kernels(&first);
    client.tell("");
    client.wait_for_line("round 1 right");
    let second = out(&top());
    assert!(kernels(&second) > before, "{first}\n{second}");
    // What was counted goes on under the next executor.
    node.kill(node.server().executor);
    client.tell("");
    client.wait_for_line("round 2 right");
    node.wait_for("the next executor", |node| node.servers().into_iter().find(|server| server.takeovers == 1 && server.state == "ACTIVE"));
    let third = out(&top());
    assert!(kernels(&third) > kernels(&second) && third.contains("generation 2"), "{second}\n{third}");
    node.kill(node.daemon_pid());
    let output = top();
    assert_eq!(output.status.code(), Some(1));
    assert!(out(&output).contains("No daemon in"), "{output:?}");
}

/// The process number in the first line after the titles of `cumux top`.
fn client_pid(page: &str) -> String {
    let titles = page.lines().position(|line| line.trim_start().starts_with("PID")).unwrap_or_else(|| panic!("no titles in\n{page}"));
    page.lines().nth(titles + 1).and_then(|line| line.split_whitespace().next()).unwrap_or_default().to_owned()
}

#[test]
fn top_in_a_pipe_survives_the_daemon() {
    let node = Node::start();
    let mut top = node.cumux(&["top", "--interval", "0.05"]).spawn().unwrap();
    let mut lines = BufReader::new(top.stdout.take().unwrap()).lines();
    let mut until = |what: &str| while !lines.next().expect("it goes on").unwrap().contains(what) {};
    until("No server is running");
    node.kill(node.daemon_pid());
    until("No daemon in");
    node.start_daemon();
    until("No server is running");
    let client = node.test_client("idle").start();
    client.wait_for_line("ready");
    until(&client.pid().to_string());
    Process::open(top.id()).unwrap().signal(Signal::TERM).unwrap();
    top.wait().unwrap();
}

#[test]
fn what_a_client_waited_for_is_counted() {
    let node = Node::start();
    let client = node.test_client("idle").start();
    client.wait_for_line("ready");
    let output = node.cumux(&["status", "--json"]).output().unwrap();
    let servers: Vec<ServerStatus> = serde_json::from_slice(&output.stdout).unwrap();
    let (server, status) = (&servers[0], &servers[0].clients[0]);
    assert!(status.requests >= 2, "it allocated and loaded: {status:?}");
    assert!(status.request_ns > 0 && status.request_ns < 60_000_000_000, "loading a module takes some time: {status:?}");
    // On a real card loading waits for a quiet moment.
    let quiets = if node.is_software() { 0..=0 } else { 1..=2 };
    assert!(status.coalesced == 0 && status.stalls == 0 && quiets.contains(&status.quiets), "{status:?}");
    assert_eq!((server.generation, server.cards[0].multiprocessors, server.cards[0].id.as_str()), (1, 132, node.device()), "{server:?}");
}
