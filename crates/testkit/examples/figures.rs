//! Figures of SPECIFICATION.md: how long a client takes to start, and what the service's processes weigh with 64 idle clients.
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
