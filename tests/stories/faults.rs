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

/// The number of the line of faulty.cu that has this text.
fn line_of(text: &str) -> usize {
    let lines = include_str!("../cu/faulty.cu").lines();
    1 + lines.enumerate().find(|(_, line)| line.contains(text)).unwrap_or_else(|| panic!("no {text}")).0
}

#[test]
fn a_fault_names_its_source_line() {
    let node = Node::start();
    let put = line_of("*address = 2;");
    let kinds = [("store", "*address = 1;", None), ("load", "*out = *address;", None), ("inlined", "put(address);", Some(put))];
    for (known, (kind, text, inlined)) in (1..).zip(kinds) {
        let mut culprit = node.test_client("faulty").args(&[kind]).start();
        culprit.wait_for_line("ready");
        let pid = culprit.pid();
        culprit.tell("");
        let said = culprit.expect_ok();
        assert!(said.contains("wait: cudaErrorIllegalAddress"), "{said}");
        let listed = node.wait_for("the fault in the list", |node| {
            let out = node.cumux(&["faults", "--json"]).output().unwrap();
            let listed: Vec<serde_json::Value> = serde_json::from_slice(&out.stdout).unwrap();
            (listed.len() == known).then_some(listed)
        });
        let fault = listed.last().unwrap();
        let known = fault["text"].as_str().unwrap();
        let outer = format!("faulty.cu:{}", line_of(text));
        assert!(known.contains(kind) && known.contains(&outer), "{known}");
        if let Some(inner) = inlined {
            let (first, second) = known.split_once(", inlined at /").unwrap();
            assert!(first.ends_with(&format!("faulty.cu:{inner}")) && second.contains(&outer), "{known}");
        }
        assert_eq!(fault["pid"], pid, "{fault}");
        let table = String::from_utf8(node.cumux(&["faults"]).output().unwrap().stdout).unwrap();
        assert!(table.contains(&outer), "{table}");
        let log = std::fs::read_to_string(node.folder().join("log/server.log")).unwrap();
        assert!(log.lines().any(|line| line.contains(&pid.to_string()) && line.contains(&outer)), "{log}");
    }
}

#[test]
fn a_client_forks() {
    let node = Node::start();
    let said = node.test_client("forks").start().expect_ok();
    assert!(said.contains("child: cudaErrorInitializationError"), "{said}");
    // Before it has begun with cuInit a program may fork as it likes.
    let said = node.test_client("forks").args(&["before"]).start().expect_ok();
    assert!(said.contains("child: asked, 1"), "{said}");
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
