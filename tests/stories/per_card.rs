//! A server for each card (`--per-card`): what happens to one card is felt by nobody on another.

use crate::devices::{VISIBLE, again, using};
use cumux_testkit::{Client, Node, cumux};
use cumux_wire::message::ServerStatus;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

/// Cards that a fault breaks for all their clients, as real ones.
const THREE: &str = "sim:h200:card,sim:h200:card,sim:h200:card";

fn three_cards() -> Node {
    Node::with().device(THREE).option("--per-card").start()
}

/// The server of a client, complete.
fn server_of(node: &Node, client: &Client<'_>) -> ServerStatus {
    let pid = client.pid();
    node.wait_for("its complete server", |node| {
        let has_it = |server: &ServerStatus| server.clients.iter().any(|client| client.pid == pid);
        node.servers().into_iter().find(|s| has_it(s) && s.state == "ACTIVE" && s.executor != 0 && s.keeper != 0 && s.standby != 0)
    })
}

fn processes(server: &ServerStatus) -> (u32, u32, u32, u32) {
    (server.pid, server.executor, server.keeper, server.takeovers)
}

/// The document's example: A on card 0, B on 0 and 1, C on 1, D on 2; A makes a fatal fault. The
/// cards break at a fault, and only those who share A's server have another executor afterwards.
#[test]
fn a_fault_on_one_card_is_felt_on_no_other() {
    let node = three_cards();
    let mut a = using(&node, "0");
    let mut with_a = using(&node, "0");
    let mut others = [using(&node, "0,1"), using(&node, "1"), using(&node, "2")];
    let servers = others.each_ref().map(|client| server_of(&node, client));
    let card_0 = server_of(&node, &a);
    let pids: std::collections::BTreeSet<u32> = servers.iter().chain([&card_0]).map(|server| server.pid).collect();
    assert_eq!(pids.len(), 4, "one for each card, and one over all");
    assert_eq!(servers.each_ref().map(|server| server.devices.len()), [3, 1, 1]);
    assert_eq!(node.control("get_server_list").lines().count(), 4);
    a.tell("fault");
    a.wait_for_line("fault cudaErrorIllegalAddress");
    assert_eq!(a.wait().status.code(), Some(4));
    for round in 1..3 {
        others.iter_mut().chain([&mut with_a]).for_each(|client| again(client, round));
    }
    assert_eq!(server_of(&node, &with_a).takeovers, 1, "an innocent beside A goes on in another executor");
    for (client, before) in others.iter().zip(&servers) {
        assert_eq!(processes(&server_of(&node, client)), processes(before), "nothing of theirs was restarted");
    }
    let faults = node.cumux(&["faults", "--json"]).output().expect("cumux starts");
    let faults: serde_json::Value = serde_json::from_slice(&faults.stdout).expect("JSON");
    assert_eq!(faults.as_array().map(Vec::len), Some(1), "{faults}");
    for client in others.into_iter().chain([with_a]) {
        client.expect_ok();
    }
}

#[test]
fn processes_of_one_card_are_killed_and_nobody_else_notices() {
    let node = three_cards();
    let (mut one, mut two) = (using(&node, "1"), using(&node, "2"));
    let (first, second) = (server_of(&node, &one), server_of(&node, &two));
    node.kill(first.executor);
    again(&mut one, 1);
    assert_eq!(server_of(&node, &one).takeovers, 1);
    node.kill(first.pid);
    again(&mut one, 2);
    let next = node.wait_for("the next server of card 1", |node| {
        node.servers().into_iter().find(|server| server.devices == first.devices && server.pid != first.pid && server.clients.len() == 1)
    });
    assert_eq!(next.keeper, first.keeper, "what clients have in memory stays");
    again(&mut one, 3);
    again(&mut two, 1);
    assert_eq!(processes(&server_of(&node, &two)), processes(&second));
    one.expect_ok();
    two.expect_ok();
}

/// What the next daemon finds: which server is there for which card.
#[test]
fn the_next_daemon_knows_the_servers_by_their_cards() {
    let node = three_cards();
    let (mut one, mut all) = (using(&node, "1"), using(&node, "2,0"));
    let (first, second) = (server_of(&node, &one), server_of(&node, &all));
    node.kill(node.daemon_pid());
    node.wait_for("the daemon's end", |node| node.control_output("get_server_list").status.code().filter(|code| *code != 0));
    again(&mut one, 1);
    node.start_daemon();
    let (newcomer, other) = (using(&node, "1"), using(&node, "0"));
    assert_eq!((server_of(&node, &newcomer).pid, server_of(&node, &all).pid), (first.pid, second.pid));
    assert!(![first.pid, second.pid].contains(&server_of(&node, &other).pid));
    again(&mut one, 2);
    again(&mut all, 1);
    for client in [one, all, newcomer, other] {
        client.expect_ok();
    }
    assert_eq!(node.control("quit"), "");
    node.wait_for("the end of all", |node| node.processes().is_empty().then_some(()));
    let left: Vec<String> = fs::read_dir(node.pipe()).expect("a folder").filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    assert!(left.iter().all(|name| !name.starts_with("gpu-") && !name.starts_with("server-")), "{left:?}");
}

/// A daemon that was killed, and servers after it: nothing of them is left when the next one ends.
#[test]
fn servers_of_cards_that_died_without_a_daemon_are_looked_after() {
    let node = three_cards();
    let mut one = using(&node, "1");
    let first = server_of(&node, &one);
    node.kill(node.daemon_pid());
    node.kill(first.pid);
    node.start_daemon();
    again(&mut one, 1);
    let next = server_of(&node, &one);
    assert!(next.pid != first.pid && next.devices == first.devices, "{next:?}");
    one.expect_ok();
    assert_eq!(node.control("quit"), "");
    node.wait_for("the end of all", |node| node.processes().is_empty().then_some(()));
}

/// Devices are counted as the daemon counts them, whichever server a program has.
#[test]
fn limits_and_lists_mean_the_cards_of_the_daemon() {
    let node = Node::with()
        .device("sim:h200,sim:h200,sim:h200")
        .option("--per-card")
        .env("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "1=2G,GPU-28f832e0=3G")
        .env("CUMUX_SIM_MEMORY_BYTES", "0")
        .start();
    let free = |devices: &str| {
        let said = node.test_client("devices").env(VISIBLE, devices).start().expect_ok();
        said.lines().filter_map(|line| Some(line.split_once(" free ")?.1.to_owned())).collect::<Vec<String>>()
    };
    assert_eq!((free("0"), free("1"), free("2")), (vec!["143154".into()], vec!["2047".into()], vec!["3071".into()]));
    assert_eq!(free("2,1"), ["3071", "2047"]);
    let mut client = using(&node, "GPU-28f832e0");
    let pid = client.pid();
    assert_eq!(node.control("get_device_client_list"), format!("[2] 00:00.0, NVIDIA H200\n{pid}.1\n"));
    let table = node.control("ps");
    assert!(table.lines().nth(1).is_some_and(|line| line.contains("GPU-28f832e0-9e28-8fe3")), "{table}");
    let server = server_of(&node, &client);
    assert_eq!(server.devices, ["sim:h200@2"]);
    assert_eq!(node.control(&format!("set_device_pinned_mem_limit {} 2 1G", server.pid)), "", "as in MPS");
    assert_eq!(free("2"), ["1023"]);
    // A group's clients have one server, which counts what they use together.
    assert!(node.control("group create pod devices=1 memory=1G").contains("directory"));
    let folder = node.pipe().join("groups/pod");
    assert!(folder.exists(), "{folder:?}");
    let member = node.test_client("devices").env("CUDA_MPS_PIPE_DIRECTORY", folder.to_str().expect("text")).start();
    member.wait_for_line("round 0 right");
    assert_eq!(server_of(&node, &member).devices, ["sim:h200@1"]);
    let groups: serde_json::Value = serde_json::from_str(&node.control("group list")).expect("JSON");
    let used: Vec<u64> = groups["groups"][0]["memory"].as_array().expect("a list").iter().map(|card| card["used"].as_u64().expect("bytes")).collect();
    assert!(used[0] == 0 && used[1] > 0 && used[2] == 0, "{groups}");
    assert_eq!(groups["groups"][0]["clients"], 1);
    again(&mut client, 1);
    member.expect_ok();
    client.expect_ok();
}

#[test]
fn an_upgrade_replaces_the_servers_of_all_cards() {
    let node = Node::with().device("sim:h200,sim:h200").option("--per-card").start();
    let mut clients = [using(&node, "0"), using(&node, "1"), using(&node, "0,1")];
    let before = clients.each_ref().map(|client| server_of(&node, client));
    let folder = node.folder().join("newer");
    fs::create_dir(&folder).expect("a folder");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("our own folder");
    fs::copy(cumux(), folder.join("cumux")).expect("a copy");
    let output = node.cumux(&["upgrade", "--program", folder.join("cumux").to_str().expect("text")]).output().expect("cumux starts");
    assert!(output.status.success(), "{output:?}\n{}", node.logs());
    clients.iter_mut().for_each(|client| again(client, 1));
    for (client, before) in clients.iter().zip(&before) {
        let after = server_of(&node, client);
        assert!(after.devices == before.devices && after.pid != before.pid && after.executor != before.executor, "{before:?} {after:?}");
    }
    for client in clients {
        client.expect_ok();
    }
}

#[test]
fn servers_are_started_for_all_cards_by_one_command() {
    let node = Node::with().device("sim:h200,sim:l4").option("--per-card").start();
    let uid = rustix::process::geteuid().as_raw();
    assert_eq!(node.control(&format!("start_server -uid {uid}")), "");
    let devices: Vec<Vec<String>> = node.servers().into_iter().map(|server| server.devices).collect();
    assert_eq!(devices, [["sim:h200"], ["sim:l4"]]);
    assert!(
        node.cumux(&["control", "-f", "-S", "--per-card", "--device", "sim:h200"])
            .env("CUDA_MPS_PIPE_DIRECTORY", node.folder().join("other"))
            .output()
            .is_ok_and(|output| !output.status.success()
                && String::from_utf8_lossy(&output.stderr).contains("--per-card and static partitioning (-S) exclude each other"))
    );
}
