//! A process of the service dies: the programs go on.

use cumux_testkit::{Client, Node};

const EIGHT: usize = 8;

fn busy(node: &Node, count: usize) -> Vec<Client<'_>> {
    let clients: Vec<Client<'_>> = (0..count).map(|seed| node.test_client("busy").args(&["12", &seed.to_string()]).start()).collect();
    for client in &clients {
        client.wait_for_line("ready");
    }
    clients
}

fn alone(count: usize) -> Vec<String> {
    let node = Node::start();
    (0..count).map(|seed| node.test_client("busy").args(&["12", &seed.to_string()]).start().expect_ok()).collect()
}

/// All end with the results of a run alone. Where it is not known what had run (on real cards), one
/// may be told so instead; nobody has wrong results.
fn finish(clients: Vec<Client<'_>>, expected: &[String], all_is_known: bool) {
    assert_eq!(clients.len(), expected.len());
    for (client, expected) in clients.into_iter().zip(expected) {
        let outcome = client.wait();
        let told = !all_is_known && outcome.out.contains("unspecified launch failure") && !outcome.out.contains("verified");
        assert!(told || outcome.status.success() && outcome.out == *expected, "{outcome:?}, alone: {expected}");
    }
}

#[test]
fn the_executor_is_killed_while_eight_are_busy() {
    let expected = alone(EIGHT);
    let node = Node::start();
    let before = {
        node.client("vector_add").args(&["1"]).start().expect_ok();
        node.server()
    };
    let clients = busy(&node, EIGHT);
    node.kill(before.executor);
    finish(clients, &expected, node.keeps_marks());
    let after = node.server();
    assert_eq!((after.pid, after.takeovers), (before.pid, 1));
    assert_eq!(after.executor, before.standby, "the standby took over");
    assert_ne!(after.standby, before.standby, "and there is a new one");
}

/// As on a real card: what was with the device when its executor was killed is not repeated
/// blindly.
#[test]
fn the_executor_is_killed_and_there_are_no_marks() {
    let expected = alone(EIGHT);
    let node = Node::with().env("CUMUX_SIM_MARKS", "0").start();
    node.client("vector_add").args(&["1"]).start().expect_ok();
    let mut idle = node.test_client("idle").start();
    idle.wait_for_line("ready");
    let clients = busy(&node, EIGHT);
    node.kill(node.server().executor);
    finish(clients, &expected, false);
    idle.tell("");
    idle.wait_for_line("round 1 right");
    idle.expect_ok();
    assert_eq!(node.server().takeovers, 1);
}

#[test]
fn the_executor_is_killed_again_and_again() {
    let expected = alone(2);
    let node = Node::start();
    let clients = busy(&node, 2);
    for takeovers in 1..=3 {
        let server = node.wait_for("a server with a standby", |node| {
            node.servers().into_iter().find(|s| s.state == "ACTIVE" && s.executor != 0 && s.standby != 0 && s.takeovers == takeovers - 1)
        });
        node.kill(server.executor);
    }
    finish(clients, &expected, node.keeps_marks());
}

#[test]
fn an_idle_client_outlives_its_executor() {
    let node = Node::start();
    let mut client = node.test_client("idle").start();
    client.wait_for_line("ready");
    node.kill(node.server().executor);
    client.tell("");
    client.wait_for_line("round 1 right");
    client.expect_ok();
}

#[test]
fn the_standby_is_killed_and_replaced() {
    let node = Node::start();
    let mut client = node.test_client("idle").start();
    client.wait_for_line("ready");
    let before = node.server();
    node.kill(before.standby);
    let after = node.wait_for("another standby", |node| node.servers().into_iter().find(|s| s.standby != 0 && s.standby != before.standby));
    assert_eq!((after.executor, after.takeovers), (before.executor, 0));
    client.tell("");
    client.wait_for_line("round 1 right");
}

#[test]
fn the_server_is_killed() {
    let expected = alone(4);
    let node = Node::start();
    let clients = busy(&node, 4);
    let mut idle = node.test_client("idle").start();
    idle.wait_for_line("ready");
    let before = node.server();
    node.kill(before.pid);
    let after = node.wait_for("another server that knows the clients", |node| {
        node.servers().into_iter().find(|s| s.pid != before.pid && s.state == "ACTIVE" && s.clients.iter().any(|client| client.pid == idle.pid()))
    });
    assert_eq!((after.keeper, after.executor), (before.keeper, before.executor), "what was not hurt goes on");
    idle.tell("");
    idle.wait_for_line("round 1 right");
    node.client("vector_add").args(&["1"]).start().expect_ok();
    finish(clients, &expected, node.keeps_marks());
    idle.expect_ok();
}

#[test]
fn the_daemon_is_killed_and_started_again() {
    let expected = alone(2);
    let node = Node::start();
    let clients = busy(&node, 2);
    let mut idle = node.test_client("idle").start();
    idle.wait_for_line("ready");
    let before = node.server();
    node.kill(node.daemon_pid());
    idle.tell("");
    idle.wait_for_line("round 1 right");
    node.start_daemon();
    let after = node.server();
    assert_eq!((after.pid, after.executor), (before.pid, before.executor), "the running server is adopted");
    node.client("vector_add").args(&["1"]).start().expect_ok();
    assert_eq!(node.control("get_server_list"), format!("{}\n", before.pid));
    finish(clients, &expected, node.keeps_marks());
    idle.expect_ok();
}

#[test]
fn the_keeper_is_killed() {
    let node = Node::start();
    let mut idle = node.test_client("idle").start();
    idle.wait_for_line("ready");
    let before = node.server();
    node.kill(before.keeper);
    node.wait_for("another keeper", |node| node.servers().into_iter().find(|s| s.keeper != 0 && s.keeper != before.keeper && s.state == "ACTIVE"));
    idle.tell("");
    idle.wait_for_line("round 1 right");
    node.client("vector_add").args(&["1"]).start().expect_ok();
    idle.expect_ok();
}

#[test]
fn nothing_is_left_after_quit() {
    let node = Node::start();
    node.client("vector_add").args(&["1"]).start().expect_ok();
    let server = node.server();
    assert_eq!(node.control("quit"), "");
    for pid in [server.pid, server.executor, server.standby, server.keeper] {
        node.wait_for("the end of every process", |node| (!node.processes().contains(&pid)).then_some(()));
    }
    let left: Vec<_> = std::fs::read_dir(node.pipe()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["control_lock"]);
}
