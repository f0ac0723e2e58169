//! A client does wrong or dies: nobody else notices.

use cumux_testkit::{Client, Node};

/// Seven steady programs, each past its first round.
fn seven(node: &Node) -> Vec<Client<'_>> {
    let clients: Vec<Client<'_>> = (0..7).map(|seed| node.test_client("busy").args(&["12", &seed.to_string()]).start()).collect();
    for client in &clients {
        client.wait_for_line("ready");
    }
    clients
}

/// What seven such programs print when they are alone.
fn alone() -> Vec<String> {
    let node = Node::start();
    (0..7).map(|seed| node.test_client("busy").args(&["12", &seed.to_string()]).start().expect_ok()).collect()
}

fn finish(clients: Vec<Client<'_>>) -> Vec<String> {
    clients.into_iter().map(Client::expect_ok).collect()
}

#[test]
fn an_idle_client_is_killed() {
    let node = Node::start();
    let idle = node.test_client("idle").start();
    idle.wait_for_line("ready");
    let mut other = node.test_client("idle").start();
    other.wait_for_line("ready");
    let pid = idle.pid();
    idle.kill();
    other.tell("");
    other.wait_for_line("round 1 right");
    let gone = node.wait_for("the end of the killed client", |node| node.client_status(pid).filter(|client| client.state != "running"));
    assert_eq!(gone.memory, 0, "{gone:?}");
    let server = node.server();
    assert_eq!(server.takeovers, 0, "nothing had to be replaced");
    assert_eq!(server.clients.iter().map(|client| client.pid).collect::<Vec<_>>(), [other.pid()]);
    other.expect_ok();
}

#[test]
fn a_client_is_killed_in_the_middle_of_a_kernel() {
    let expected = alone();
    let node = Node::start();
    let long = node.client("long_kernel").start();
    let clients = seven(&node);
    long.wait_for_line("kernel running");
    let pid = long.pid();
    long.kill();
    assert_eq!(finish(clients), expected);
    let gone = node.wait_for("the end of the killed client", |node| node.client_status(pid).filter(|client| client.state != "running"));
    assert_eq!(gone.memory, 0, "its memory is free again: {gone:?}");
    assert_eq!(gone.in_flight, 0, "its kernel does not run on: {gone:?}");
    // The device is free for the next.
    node.client("vector_add").args(&["1"]).start().expect_ok();
}

#[test]
fn one_of_eight_makes_an_illegal_access() {
    let expected = alone();
    let node = Node::start();
    let clients = seven(&node);
    let faulty = node.client("illegal_access").start();
    let pid = faulty.pid();
    let said = faulty.expect_ok();
    assert!(said.contains("told of the illegal address"), "{said}");
    assert_eq!(finish(clients), expected);
    let status = node.wait_for("the faulty client in the list", |node| node.client_status(pid));
    assert_eq!(status.error, cumux_wire::result::ILLEGAL_ADDRESS, "{status:?}");
    assert!(status.fault.contains("write_to"), "the kernel is named: {status:?}");
    let log = std::fs::read_to_string(node.folder().join("log/server.log")).unwrap();
    assert!(log.contains(&pid.to_string()), "the log names the culprit:\n{log}");
}

#[test]
fn a_client_forks() {
    let node = Node::start();
    let said = node.test_client("forks").start().expect_ok();
    assert!(said.contains("child: cudaErrorInitializationError"), "{said}");
}

#[test]
fn an_administrator_terminates_a_client() {
    let node = Node::start();
    let mut client = node.test_client("view").start();
    client.wait_for_line("ready");
    let mut other = node.test_client("idle").start();
    other.wait_for_line("ready");
    let server = node.server().pid;
    assert_eq!(node.control(&format!("terminate_client {server} 4242")), "Invalid process 4242!\n1\n");
    assert_eq!(node.control(&format!("terminate_client {server} {}", client.pid())), "0\n");
    client.tell("");
    client.wait_for_line("sync cudaErrorMpsClientTerminated");
    other.tell("");
    other.wait_for_line("round 1 right");
}
