//! Figures of SPECIFICATION.md: how long a client takes to start, how much memory the service's
//! processes use with 64 idle clients, how long a change of a share takes, how long a normal client
//! waits beside one that streams kernels of half a millisecond, and how soon a user who waits
//! behind another user's server is served. The machine should have nothing else to do.
//!
//! `cargo run --release -p cumux-testkit --example figures`, after `cargo xtask test` has built
//! everything; with `-- start`, `share`, `priority` or `users` only that part.
#![forbid(unsafe_code)]

use cumux_testkit::{Client, Node};
use std::time::{Duration, Instant};

fn main() {
    let only = std::env::args().nth(1);
    let sections: [(&str, fn()); 4] =
        [("start", starts_and_memory), ("share", changes_of_a_share), ("priority", waits_of_a_normal_client), ("users", turns_of_two_users)];
    for (name, measure) in sections {
        if only.as_deref().is_none_or(|only| only == name) {
            measure();
        }
    }
    println!("load of the machine: {}", std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim());
}

fn node() -> Node {
    Node::with().patience(Duration::from_secs(600)).start()
}

/// Measures how long a client takes to start, and the service's memory with 64 of them.
fn starts_and_memory() {
    let node = node();
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

/// From the command to the executor's report that work beginning now runs on the new share.
fn changes_of_a_share() {
    let node = node();
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
fn waits_of_a_normal_client() {
    let node = node();
    let wait = || node.test_client("priority").args(&["wait", "1000", "50"]).start().expect_ok();
    // The software GPU has a worker for each core; with fewer blocks some would stay idle.
    let blocks = std::thread::available_parallelism().map_or(2, std::num::NonZero::get).to_string();
    println!("alone: {}", wait());
    for (name, level) in [("a normal client", "0"), ("one below normal", "1")] {
        let hog = node.test_client("priority").args(&["hog", &blocks, "500", "-3"]).env("CUDA_MPS_CLIENT_PRIORITY", level).start();
        hog.wait_for_line("ready");
        println!("beside {name} with 0.5 ms kernels in streams of priority -3: {}", wait());
    }
}

/// From the end of the last client of one user (its process is gone) to the first results of the
/// other user's program, which has waited in the daemon's queue: the old server's end, the new
/// one's start with its executor and standby, and the program's first kernel.
fn turns_of_two_users() {
    const TURNS: usize = 20;
    if !rustix::process::geteuid().is_root() {
        return println!("users in turn: not measured, two users need root");
    }
    let node =
        Node::with().prepare(|folder| std::fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("our folder")).start();
    let mut holder = node.test_client("idle").start();
    holder.wait_for_line("ready");
    let (mut let_in, mut served) = (Vec::new(), Vec::new());
    for turn in 0..TURNS {
        let server = node.server().pid;
        let user = if turn % 2 == 0 { 65534 } else { 0 };
        let next = node.test_client("idle").user(user).start();
        let queued = format!("NEW CLIENT {} from user {user}: Server is not ready, push client to pending list", next.pid());
        let log = || std::fs::read_to_string(node.folder().join("log/control.log")).unwrap_or_default();
        node.wait_for("the user in the queue", |_| log().contains(&queued).then_some(()));
        holder.expect_ok();
        let left = Instant::now();
        node.wait_for("the next server", |node| node.servers().iter().any(|s| s.pid != server && !s.clients.is_empty()).then_some(()));
        let_in.push(left.elapsed());
        next.wait_for_line("ready");
        served.push(left.elapsed());
        holder = next;
    }
    holder.expect_ok();
    show("last client of a user gone to the waiting user let in (promised: 100 ms)", let_in);
    show("last client of a user gone to the waiting user's first results", served);
}

/// The time that the client itself measured.
fn first_kernel(said: &str) -> Duration {
    let word = said.lines().find_map(|line| line.strip_prefix("first kernel after ")?.strip_suffix(" us"));
    Duration::from_micros(word.and_then(|word| word.parse().ok()).unwrap_or(u64::MAX))
}

fn show(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let (least, median, most) = (times[0], times[times.len() / 2], times[times.len() - 1]);
    println!("{what}: median {median:.1?}, least {least:.1?}, most {most:.1?}, of {}", times.len());
}

/// Memory of a process; shared pages are divided among the processes that share them.
fn proportional_kib(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).unwrap_or("0");
    line.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
}
