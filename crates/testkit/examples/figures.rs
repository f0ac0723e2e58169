//! Figures of SPECIFICATION.md: how long a client takes to start, what the service's processes weigh with 64 idle clients, how long a change of a share
//! takes, and how long a normal client waits beside one that streams kernels of half a millisecond. The machine should have nothing else to do.
//!
//! `cargo run --release -p cumux-testkit --example figures`, after `cargo xtask test` has built everything.
#![forbid(unsafe_code)]

use cumux_testkit::{Client, Node};
use std::time::{Duration, Instant};

fn main() {
    let node = Node::with().patience(Duration::from_secs(600)).start();
    let ready = || {
        let begun = Instant::now();
        let client = node.test_client("idle").start();
        client.wait_for_line("ready");
        (client, begun.elapsed())
    };
    // The first one starts the server.
    ready().0.expect_ok();
    let (mut whole, mut within) = (Vec::new(), Vec::new());
    for _ in 0..50 {
        let (client, time) = ready();
        whole.push(time);
        within.push(first_kernel(&client.expect_ok()));
    }
    show("first CUDA call to first kernel's results (promised: 20 ms)", within);
    show("program started to first kernel's results checked and told", whole);
    let clients: Vec<Client<'_>> = (0..64).map(|_| ready().0).collect();
    let server = node.server();
    let mut sum = 0;
    for (name, pid) in [("daemon", node.daemon_pid()), ("server", server.pid), ("keeper", server.keeper)] {
        let size = proportional_kib(pid);
        sum += size;
        println!("{name} with {} clients: {size} KiB", clients.len());
    }
    println!("together: {sum} KiB; executor {} KiB, standby {} KiB", proportional_kib(server.executor), proportional_kib(server.standby));
    drop(clients);
    changes_of_a_share(&node);
    waits_of_a_normal_client(&node);
}

/// From the command to the executor's word that what begins now runs on the new share.
fn changes_of_a_share(node: &Node) {
    let client = node.test_client("shares").start();
    client.wait_for_line("ready 0");
    let pid = client.pid().to_string();
    let change = |percent: &str| {
        let output = node.cumux(&["set-share", &pid, percent, "--json"]).output().expect("cumux starts");
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
        answer["milliseconds"].as_f64().expect("a number")
    };
    let mut times: Vec<f64> = (0..100).map(|turn| change(if turn % 2 == 0 { "12.5" } else { "50" })).collect();
    times.sort_by(f64::total_cmp);
    println!("set-share: median {:.2} ms, p99 {:.2} ms", times[50], times[98]);
    client.expect_ok();
}

/// Waits of a normal client for a kernel of 50 µs.
fn waits_of_a_normal_client(node: &Node) {
    let wait = || node.test_client("priority").args(&["wait", "1000", "50"]).start().expect_ok();
    println!("alone: {}", wait());
    for (name, level) in [("a normal client", "0"), ("one below normal", "1")] {
        let hog = node.test_client("priority").args(&["hog", "2", "500", "-3"]).env("CUDA_MPS_CLIENT_PRIORITY", level).start();
        hog.wait_for_line("ready");
        println!("beside {name} with 0.5 ms kernels in streams of priority -3: {}", wait());
    }
    println!("load of the machine: {}", std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim());
}

/// What the client measured itself.
fn first_kernel(said: &str) -> Duration {
    let word = said.lines().find_map(|line| line.strip_prefix("first kernel after ")?.strip_suffix(" us"));
    Duration::from_micros(word.and_then(|word| word.parse().ok()).unwrap_or(u64::MAX))
}

fn show(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let (least, median, most) = (times[0], times[times.len() / 2], times[times.len() - 1]);
    println!("{what}: median {median:.1?}, least {least:.1?}, most {most:.1?}, of {}", times.len());
}

/// Memory of a process, shared pages divided among those who share them.
fn proportional_kib(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).unwrap_or("0");
    line.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
}
