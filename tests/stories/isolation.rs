//! A client with an executor of its own (`CUMUX_ISOLATION=own`): its fault, its end and the death
//! of its executor are nobody else's.

use cumux_testkit::{Client, ClientBuilder, Node, devices};
use cumux_wire::message::{ClientStatus, Place};

fn ready(builder: ClientBuilder<'_>) -> Client<'_> {
    let client = builder.start();
    client.wait_for_line("ready");
    client
}

/// Its executor may have done all work before the server hears that it serves.
fn status(node: &Node, pid: u32) -> ClientStatus {
    node.wait_for("where the client is", |node| node.client_status(pid).filter(|status| status.place != Place::Nowhere))
}

/// In the shared executor, and with this many takeovers of it.
fn expect_shared(node: &Node, pid: u32, takeovers: u32) {
    let now = status(node, pid);
    let server = node.server();
    assert_eq!((now.place, now.executor, server.takeovers), (Place::Shared, server.executor, takeovers), "{now:?}");
}

#[test]
fn a_client_has_an_executor_to_itself_and_it_ends_with_it() {
    for device in &devices() {
        let node = Node::with().device(device).start();
        let neighbour = ready(node.test_client("idle"));
        let mut client = ready(node.test_client("held").env("CUMUX_ISOLATION", "own"));
        client.tell("step");
        client.wait_for_line("round 1 right");
        let now = status(&node, client.pid());
        assert_eq!((now.place, now.place_why.as_str()), (Place::Own, "CUMUX_ISOLATION=own"), "{device}: {now:?}");
        assert!(node.owns(now.executor) && now.executor != node.server().executor, "{device}: {now:?}");
        expect_shared(&node, neighbour.pid(), 0);
        let page = String::from_utf8(node.cumux(&["status"]).output().expect("cumux starts").stdout).expect("text");
        assert!(page.contains(&format!("own {}: CUMUX_ISOLATION=own", now.executor)), "{device}: {page}");
        let table = node.control("ps");
        let line = table.lines().find(|line| line.starts_with(&client.pid().to_string())).expect("its line");
        assert!(table.lines().next().is_some_and(|head| head.ends_with("EXECUTOR")) && line.contains(&format!("own {}", now.executor)), "{device}: {table}");
        let pid = client.pid();
        client.expect_ok();
        node.wait_for("the end of its executor", |node| (!node.owns(now.executor)).then_some(()));
        let gone = node.wait_for("it among those that have gone", |node| node.client_status(pid).filter(|client| client.state == "exited"));
        assert_eq!(gone.kernels, 2, "{device}: its last counts are known: {gone:?}");
    }
}

#[test]
fn its_fault_is_nobody_elses() {
    for device in &devices() {
        let node = Node::with().device(device).start();
        let mut neighbour = ready(node.test_client("idle"));
        let busy = ready(node.test_client("busy").args(&["30", "0"]));
        for kind in ["store", "trap", "assertion"] {
            let mut culprit = ready(node.test_client("faulty").args(&[kind]).env("CUMUX_ISOLATION", "own"));
            culprit.tell("");
            let outcome = culprit.wait();
            let error = outcome.out.split_once("wait: ").and_then(|(_, rest)| rest.lines().next()).unwrap_or_default();
            assert!(error.starts_with("cudaError") && outcome.out.contains(&format!("again: {error}\n")), "{device}, {kind}: the error stays: {outcome:?}");
        }
        neighbour.tell("");
        neighbour.wait_for_line("round 1 right");
        expect_shared(&node, neighbour.pid(), 0);
        assert!(busy.expect_ok().contains("verified"), "{device}");
    }
}

#[test]
fn when_its_executor_dies_it_gets_another_one_of_its_own() {
    for device in &devices() {
        let node = Node::with().device(device).start();
        let mut client = ready(node.test_client("held").env("CUMUX_ISOLATION", "own"));
        let neighbour = ready(node.test_client("idle"));
        let mut last = 0;
        for round in 1..=3 {
            client.tell("step");
            client.wait_for_line(&format!("round {round} right"));
            let now = node.wait_for("its executor", |node| node.client_status(client.pid()).filter(|status| status.place == Place::Own));
            assert_ne!(now.executor, last, "{device}");
            last = now.executor;
            node.kill(last);
        }
        client.tell("step");
        client.wait_for_line("round 4 right");
        let now = status(&node, client.pid());
        assert_eq!((now.takeovers, now.moves), (3, 0), "{device}");
        expect_shared(&node, neighbour.pid(), 0);
        client.expect_ok();
    }
}

/// On the software GPU a kernel goes on in the middle, by its marks.
#[test]
fn its_executor_dies_in_the_middle_of_a_kernel() {
    let node = Node::with().device("sim:h200").start();
    let start = || ready(node.test_client("busy").args(&["200", "0"]).env("CUMUX_ISOLATION", "own"));
    let expected = start().expect_ok();
    let client = start();
    for takeovers in 1..=3 {
        let served = |node: &Node| node.client_status(client.pid()).filter(|status| status.place == Place::Own);
        node.kill(node.wait_for("its executor", served).executor);
        node.wait_for("the next one", |node| served(node).filter(|status| status.takeovers == takeovers));
    }
    assert_eq!(client.expect_ok(), expected);
}

#[test]
fn the_shared_executor_dies_and_those_with_their_own_do_not_notice() {
    for device in &devices() {
        let node = Node::with().device(device).start();
        let mut own = ready(node.test_client("held").env("CUMUX_ISOLATION", "own"));
        let mut shared = ready(node.test_client("held"));
        let before = status(&node, own.pid());
        own.tell("hold");
        own.wait_for_line("round 1 running");
        node.kill(node.server().executor);
        shared.tell("step");
        shared.wait_for_line("round 1 right");
        own.tell("go");
        own.wait_for_line("round 1 right");
        let after = status(&node, own.pid());
        assert_eq!((after.executor, after.takeovers), (before.executor, 0), "{device}");
        expect_shared(&node, shared.pid(), 1);
    }
}

#[test]
fn keeper_and_server_die_and_the_own_executor_serves_on() {
    let node = Node::start();
    let mut client = ready(node.test_client("held").env("CUMUX_ISOLATION", "own"));
    let before = status(&node, client.pid());
    let server = node.server();
    node.kill(server.keeper);
    let server = node.wait_for("another keeper", |node| node.servers().into_iter().find(|s| s.keeper != 0 && s.keeper != server.keeper && s.standby != 0));
    client.tell("step");
    client.wait_for_line("round 1 right");
    node.kill(server.pid);
    client.tell("step");
    client.wait_for_line("round 2 right");
    let found = |node: &Node| node.servers().into_iter().filter(|s| s.pid != server.pid).flat_map(|s| s.clients).find(|c| c.place == Place::Own);
    let after = node.wait_for("it under the next server", found);
    assert_eq!((after.pid, after.executor, after.place_why), (before.pid, before.executor, before.place_why));
    // Its memory is with the new keeper, and its executor's successor finds it.
    node.kill(after.executor);
    client.tell("step");
    client.wait_for_line("round 3 right");
    client.expect_ok();
}

#[test]
fn the_daemons_default_and_what_a_client_says() {
    let place = |node: &Node, stated: Option<&str>| {
        let builder = node.test_client("idle");
        let client = ready(match stated {
            Some(word) => builder.env("CUMUX_ISOLATION", word),
            None => builder,
        });
        let now = status(node, client.pid());
        client.expect_ok();
        (now.place, now.place_why)
    };
    let (shared, default) = ((Place::Shared, String::new()), (Place::Own, "the daemon's default".to_owned()));
    let node = Node::with().env("CUMUX_ISOLATION", "own").start();
    assert_eq!(node.control("get_default_isolation"), "own\n");
    assert_eq!(place(&node, None), default);
    assert_eq!(place(&node, Some("shared")), shared);
    assert_eq!(node.control("set_default_isolation shared\nget_default_isolation"), "shared\n");
    assert_eq!(place(&node, None), shared);
    assert_eq!(node.control("set_default_isolation mine\nget_default_isolation"), "Invalid isolation \"mine\" - must be own or shared!\nshared\n");
    // A word that is none of the two: the default, and a sentence in the log.
    assert_eq!(place(&node, Some("mine")), shared);
    let log = std::fs::read_to_string(node.folder().join("log/control.log")).expect("the log");
    assert!(log.contains("CUMUX_ISOLATION=mine is passed over") && log.contains("write own"), "{log}");
    assert!(node.control("complaints").contains("CUMUX_ISOLATION=mine"));
}

#[test]
fn the_daemons_option() {
    let node = Node::start();
    let _ = node.control("quit -t 1");
    node.wait_for("the end of the daemon", |node| node.processes().is_empty().then_some(()));
    let output = node.cumux(&["control", "-d", "--device", node.device(), "--isolation", "own"]).output().expect("cumux starts");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(node.control("get_default_isolation"), "own\n");
    let output = node.cumux(&["control", "-d", "--isolation", "mine"]).output().expect("cumux starts");
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("write own"), "{output:?}");
}

#[test]
fn where_the_card_is_one_processs_alone_it_is_refused() {
    let node = Node::with().device("sim:h200:exclusive_process").start();
    let outcome = node.test_client("idle").env("CUMUX_ISOLATION", "own").env("CUMUX_VERBOSE", "1").start().wait();
    assert!(!outcome.status.success() && outcome.err.contains("an executor of its own cannot be had"), "{outcome:?}");
    assert!(outcome.err.contains("unset CUMUX_ISOLATION"), "what to do: {outcome:?}");
    node.test_client("idle").start().expect_ok();
}

#[test]
fn several_devices_are_no_obstacle() {
    let node = Node::with().device("sim:h200,sim:l4").start();
    let mut client = ready(node.test_client("held").env("CUMUX_ISOLATION", "own"));
    client.tell("step");
    client.wait_for_line("round 1 right");
    assert_eq!(status(&node, client.pid()).place, Place::Own);
    client.expect_ok();
}

/// Its kernel does not end: others load modules and go on as if it were not there.
#[test]
fn a_client_with_an_endless_kernel_of_its_own_is_killed() {
    for device in &devices() {
        let node = Node::with().device(device).env("CUMUX_DRAIN_SECONDS", "1").start();
        let endless = node.client("long_kernel").env("CUMUX_ISOLATION", "own").start();
        endless.wait_for_line("kernel running");
        let (pid, executor) = (endless.pid(), status(&node, endless.pid()).executor);
        let neighbour = ready(node.test_client("idle"));
        node.client("vector_add").args(&["1"]).start().expect_ok();
        endless.kill();
        node.wait_for("the end of its executor", |node| (!node.owns(executor)).then_some(()));
        node.wait_for("its end", |node| node.client_status(pid).filter(|client| client.state != "running"));
        expect_shared(&node, neighbour.pid(), 0);
    }
}
