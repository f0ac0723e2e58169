//! Several devices in one daemon: who sees which, and what a fault on one of them does to the
//! others.

use cumux_testkit::{Client, Node};

pub const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";
const THREE: &str = "sim:h200,sim:h200,sim:h200";

/// A program that works on the devices that it sees.
pub fn using<'a>(node: &'a Node, devices: &str) -> Client<'a> {
    let client = node.test_client("devices").env(VISIBLE, devices).start();
    client.wait_for_line("round 0 right");
    client
}

/// It works on them again.
pub fn again(client: &mut Client<'_>, round: u32) {
    client.tell("");
    client.wait_for_line(&format!("round {round} right"));
}

/// The document's example: devices 0, 1 and 2; A on 0, B on 0 and 1, C on 1, D on 2; A makes a
/// fatal fault. With MPS A, B and C get the error, the server is FAULT and refuses newcomers until
/// they have gone. Here A alone gets it: a fault on the software GPU is its maker's.
#[test]
fn a_fault_on_one_of_three_devices_is_its_makers_alone() {
    let node = Node::with().device(THREE).start();
    let mut a = using(&node, "0");
    let others = [using(&node, "0,1"), using(&node, "1"), using(&node, "2")];
    let (pid, server) = (a.pid(), node.server());
    assert_eq!(server.devices.len(), 3);
    a.tell("fault");
    a.wait_for_line("fault cudaErrorIllegalAddress");
    let newcomer = using(&node, "0");
    let [mut b, mut c, mut d] = others;
    for round in 1..3 {
        for client in [&mut b, &mut c, &mut d] {
            again(client, round);
        }
    }
    let log = std::fs::read_to_string(node.folder().join("log/server.log")).unwrap();
    let told: Vec<&str> = log.lines().map(|line| line.split_once("] ").map_or(line, |(_, text)| text)).collect();
    let first = told.iter().position(|line| line.ends_with("encountered a fatal GPU error.")).expect("the fault in the log");
    let id = a_context(told[first], pid);
    assert_eq!(
        told[first + 1..first + 6],
        [
            "Server is handling a fatal GPU error.".to_owned(),
            format!("Client {{PID: {pid}, Context ID: {id}}} on device 0 to be torn down"),
            format!("All clients belonging to error trigging process {pid} will be torn down"),
            "The following client process have a sticky error set:".to_owned(),
            pid.to_string(),
        ]
    );
    assert_eq!(a.wait().status.code(), Some(4));
    let after = node.wait_for("the end of A", |node| Some(node.server()).filter(|server| server.clients.iter().all(|client| client.pid != pid)));
    assert_eq!((after.state.as_str(), after.executor, after.takeovers), ("ACTIVE", server.executor, 0), "nothing was restarted");
    assert_eq!(after.clients.iter().filter(|client| client.error != 0).count(), 0, "only A had an error");
    for client in [b, c, d, newcomer] {
        client.expect_ok();
    }
}

/// The session's number in `Client {PID: 12, Context: 3} encountered …`.
fn a_context(line: &str, pid: u32) -> &str {
    let rest = line.strip_prefix(&format!("Client {{PID: {pid}, Context: ")).unwrap_or_else(|| panic!("{line} is not about {pid}"));
    rest.split('}').next().expect("the first piece")
}

/// Ordinals, UUIDs and their beginnings, in the program's own order; what cannot be meant is not
/// seen.
#[test]
fn a_client_sees_the_devices_it_names() {
    let node = Node::with().device(THREE).start();
    let seen = |devices: &str| -> Vec<String> {
        let outcome = node.test_client("devices").env(VISIBLE, devices).start().wait();
        let uuids = outcome.out.lines().filter_map(|line| Some(line.split_once(" uuid ")?.1.split(' ').next()?[24..].to_owned()));
        let uuids: Vec<String> = uuids.collect();
        assert!(outcome.out.starts_with(&format!("count {} {}\n", uuids.len(), "cudaSuccess")) || uuids.is_empty(), "{outcome:?}");
        assert!(!uuids.is_empty() || outcome.out.contains("cudaErrorNoDevice"), "{outcome:?}");
        uuids
    };
    let [zero, one, two] = ["00000000", "00000001", "00000002"];
    assert_eq!(seen("2,0"), [two, zero]);
    assert_eq!(seen("GPU-1"), [one]);
    assert_eq!(seen("GPU-28f832e0-9e28-8fe3-806d-000000000002,1"), [two, one]);
    assert_eq!(seen("1,9,2"), [one]);
    assert!(seen("").is_empty() && seen("7").is_empty() && seen("1,1").is_empty());
    // In every list.
    let client = using(&node, "2,1");
    let pid = client.pid();
    let table = node.control("ps");
    let devices: Vec<&str> = table.lines().skip(1).filter_map(|line| line.split_whitespace().nth(3)).collect();
    assert_eq!(devices, ["GPU-28f832e0-9e28-8fe3", "GPU-100afb2a-8b7a-872d"], "{table}");
    assert_eq!(node.control("get_device_client_list"), format!("[1] 00:00.0, NVIDIA H200\n{pid}.1\n[2] 00:00.0, NVIDIA H200\n{pid}.1\n"));
    assert_eq!(node.control("device_query").matches("NVIDIA H200").count(), 6);
}

/// Limits and shares are each device's: by the daemon's ordinals and UUIDs for the administrator,
/// by its own for the program.
#[test]
fn limits_and_shares_of_each_device() {
    // As if the machine had what the cards have.
    let node = Node::with().device(THREE).env("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "1=2G,GPU-28f832e0=3G").env("CUMUX_SIM_MEMORY_BYTES", "0").start();
    let client =
        node.test_client("devices").env(VISIBLE, "2,1,0").env("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1G").env("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "12.5");
    let said = client.start().expect_ok();
    let rest: Vec<&str> = said.lines().filter_map(|line| line.split_once(" sms ").map(|(_, rest)| rest)).collect();
    assert_eq!(rest, ["16 free 1023", "16 free 2047", "16 free 143154"], "{said}");
}

/// Clients of several devices go on under the next executor if nothing of them was under way, or
/// only on their first device.
#[test]
fn the_executor_of_three_devices_is_killed() {
    let node = Node::with().device(THREE).start();
    let (mut all, mut one) = (using(&node, "0,1,2"), using(&node, "1"));
    let alone = node.test_client("busy").args(&["60", "7"]).start().expect_ok();
    // It sees all three and works on the first.
    let busy = node.test_client("busy").args(&["60", "7"]).start();
    busy.wait_for_line("ready");
    node.kill(node.server().executor);
    for round in 1..3 {
        again(&mut all, round);
        again(&mut one, round);
    }
    node.wait_for("its takeover to be counted", |node| node.client_status(all.pid()).filter(|status| status.takeovers == 1));
    assert_eq!(busy.expect_ok().replace("ready\n", ""), alone.replace("ready\n", ""));
    all.expect_ok();
    one.expect_ok();
}

/// They are opened side by side: all are there when the first one serves.
#[test]
fn eight_devices_are_one_daemons() {
    let node = Node::with().device(&["sim:h200"; 8].join(",")).start();
    let client = using(&node, "7,0,3");
    assert_eq!(node.server().cards.len(), 8);
    assert!(node.server().cards.iter().all(|card| card.unavailable.is_empty()));
    client.expect_ok();
    let said = node.test_client("devices").start().expect_ok();
    assert!(said.starts_with("count 8 cudaSuccess\n") && said.contains("round 0 right"), "{said}");
}

#[test]
fn lists_that_cannot_be_served_are_refused_with_a_sentence() {
    let node = Node::start();
    for (devices, words) in [
        ("cuda:0,sim:h200", "cannot be in one daemon"),
        ("cuda:0,cuda:0", "named twice"),
        ("sim:h200,sim:nothing", "unknown device"),
        ("sim:h200,", "unknown device"),
    ] {
        let output = node.cumux(&["control", "-f", "--device", devices]).output().expect("cumux starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(words), "{devices}: {said}");
    }
}
