//! Several devices of one daemon: what they reach of each other's memory, and what the fault of a
//! card is to those who work on others.

use cumux_testkit::{Client, Node};
use cumux_wire::message::Place;

const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";
const TWO: &str = "sim:h200,sim:h200";
/// Cards that break as a whole at a fault, as real ones do.
const TWO_CARDS: &str = "sim:h200:card,sim:h200:card";
const THREE_CARDS: &str = "sim:h200:card,sim:h200:card,sim:h200:card";

fn part(node: &Node, name: &str) -> String {
    node.test_client("peers").args(&[name]).start().expect_ok()
}

#[test]
fn kernels_reach_what_was_opened_to_them() {
    for devices in [TWO, TWO_CARDS] {
        let node = Node::with().device(devices).start();
        for name in ["enabling", "mapping", "pool"] {
            let said = part(&node, name);
            assert!(said.contains("PASS"), "{devices}, {name}: {said}");
        }
    }
}

#[test]
fn memory_of_another_device_that_was_not_opened_is_a_fault() {
    let node = Node::with().device(TWO).start();
    let said = part(&node, "fault");
    assert!(said.contains("fault cudaErrorIllegalAddress"), "{said}");
}

/// The stream is held back while the copies are called for: a copy that waited would never return.
#[test]
fn copies_between_devices_come_in_the_order_of_their_stream() {
    for devices in [TWO, TWO_CARDS] {
        let node = Node::with().device(devices).start();
        for name in ["ordered", "staged"] {
            let said = part(&node, name);
            assert!(said.contains("PASS"), "{devices}, {name}: {said}");
        }
    }
}

#[test]
fn the_next_executor_knows_who_reaches_what() {
    let node = Node::with().device(TWO).start();
    let mut client = node.test_client("peers").args(&["hold"]).start();
    client.wait_for_line("round 1 right");
    for round in 2..4 {
        node.kill(node.server().executor);
        client.tell("");
        client.wait_for_line(&format!("round {round} right"));
    }
    client.expect_ok();
}

fn using<'a>(node: &'a Node, devices: &str) -> Client<'a> {
    let client = node.test_client("devices").env(VISIBLE, devices).start();
    client.wait_for_line("round 0 right");
    client
}

/// The document's example on cards that break as a whole: A on 0, B on 0 and 1, C on 1, D on 2, and
/// H on 2 with a kernel that runs for longer than anybody waits after a fault. A makes it.
#[test]
fn a_fault_on_one_of_three_cards_is_its_makers_alone() {
    let node = Node::with().device(THREE_CARDS).env("CUMUX_FAULT_WAIT_MS", "500").start();
    let mut a = using(&node, "0");
    let mut others = [using(&node, "0,1"), using(&node, "1"), using(&node, "2")];
    let mut h = node.test_client("held").env(VISIBLE, "2").start();
    h.wait_for_line("ready");
    h.tell("hold");
    h.wait_for_line("round 1 running");
    a.tell("fault");
    a.wait_for_line("fault cudaErrorIllegalAddress");
    assert_eq!(a.wait().status.code(), Some(4));
    for round in 1..3 {
        for client in &mut others {
            client.tell("");
            client.wait_for_line(&format!("round {round} right"));
        }
    }
    // Its kernel ran on beside the takeover.
    h.tell("go");
    h.wait_for_line("round 1 right");
    h.tell("step");
    h.wait_for_line("round 2 right");
    let after = node.wait_for("one executor for all", |node| {
        Some(node.server()).filter(|server| server.clients.len() == 4 && server.clients.iter().all(|client| client.place == Place::Shared))
    });
    assert!(after.takeovers >= 1, "{after:?}");
    assert_eq!(after.clients.iter().filter(|client| client.error != 0).count(), 0, "A alone had an error: {after:?}");
    for client in others {
        client.expect_ok();
    }
    h.expect_ok();
}

/// As above without a long kernel, and with many who work on both cards while one of them breaks.
#[test]
fn innocents_on_all_cards_have_the_results_of_a_run_alone() {
    let expected = Node::workers_alone(25, 4);
    for (seed, culprits) in [(1, "0"), (2, "1"), (3, "1,0")] {
        let node = Node::with().device(TWO_CARDS).env("CUMUX_SIM_FAULT_SEED", &seed.to_string()).env("CUMUX_FAULT_WAIT_MS", "60000").start();
        let worker = |(at, devices): (u32, &str)| {
            let name = if (at + 1).is_multiple_of(2) { "mixed" } else { "busy" };
            let client = node.test_client(name).args(&["25", &at.to_string()]).env(VISIBLE, devices).start();
            client.wait_for_line("ready");
            client
        };
        let workers: Vec<_> = [(0, "0"), (1, "1"), (2, "0,1"), (3, "1,0")].into_iter().map(worker).collect();
        let mut culprit = node.test_client("faulty").args(&["store"]).env(VISIBLE, culprits).start();
        culprit.wait_for_line("ready");
        culprit.tell("");
        let outcome = culprit.wait();
        assert!(outcome.out.contains("wait: cudaErrorIllegalAddress"), "{outcome:?}");
        for (client, expected) in workers.into_iter().zip(&expected) {
            let outcome = client.wait();
            assert!(outcome.status.success() && outcome.out == *expected, "{outcome:?}, alone: {expected}");
        }
    }
}

/// A kernel that does not end, on one card, and one that runs for long, on another: a program that
/// loads a module beside the first makes all others leave, and nobody loses anything.
#[test]
fn a_kernel_that_does_not_end_keeps_nobody_on_another_card() {
    let node = Node::with().device(TWO_CARDS).start();
    let holding = |devices: &str| {
        let mut client = node.test_client("held").env(VISIBLE, devices).start();
        client.wait_for_line("ready");
        client.tell("hold");
        client.wait_for_line("round 1 running");
        client
    };
    let mut idle = using(&node, "1");
    let (mut endless, mut long) = (holding("0"), holding("1"));
    let newcomer = using(&node, "0");
    idle.tell("");
    idle.wait_for_line("round 1 right");
    let moved = node.wait_for("its takeover to be counted", |node| node.client_status(idle.pid()).filter(|status| status.takeovers == 1));
    assert_eq!(moved.error, 0, "it went on in the next executor: {moved:?}");
    for client in [&mut long, &mut endless] {
        client.tell("go");
        client.wait_for_line("round 1 right");
        client.tell("step");
        client.wait_for_line("round 2 right");
    }
    node.wait_for("one executor for all", |node| {
        Some(node.server()).filter(|server| server.clients.len() == 4 && server.clients.iter().all(|client| client.place == Place::Shared))
    });
    for client in [idle, endless, long, newcomer] {
        client.expect_ok();
    }
}

/// A card of the daemon that nobody may use: who wants it hears why, and the rest is served.
#[test]
fn a_card_that_cannot_be_used_is_its_users_affair() {
    let node = Node::with().device("sim:h200,sim:h200:prohibited").start();
    let mut client = using(&node, "0");
    assert_eq!(node.control("device_query").matches("NVIDIA H200").count(), 4, "of the daemon and of its server");
    let refused = node.test_client("devices").env(VISIBLE, "1").env("CUMUX_VERBOSE", "1").start().wait();
    assert_ne!(refused.status.code(), Some(0));
    assert!(refused.out.contains("unavailable") && refused.err.contains("PROHIBITED"), "{refused:?}");
    // Programs that see both and use the first.
    node.client("vector_add").args(&["1"]).start().expect_ok();
    client.tell("");
    client.wait_for_line("round 1 right");
    assert_eq!(node.server().takeovers, 0);
    client.expect_ok();
}

/// The same card, when it may be used again: the daemon finds it by itself, and nobody else
/// notices.
#[test]
fn a_card_that_can_be_used_again_comes_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let prohibited = folder.path().join("prohibited");
    std::fs::write(&prohibited, "").expect("a file");
    let node = Node::with()
        .device("sim:h200,sim:h200:prohibited")
        .env("CUMUX_SIM_PROHIBITED_WHILE", prohibited.to_str().expect("text"))
        .env("CUMUX_DEVICE_RETRY_MS", "50")
        .env("CUMUX_MOVE_WAIT_MS", "60000")
        .start();
    let mut client = using(&node, "0");
    let before = node.server();
    let on_the_other = || node.test_client("idle").env(VISIBLE, "1").start();
    let refused = on_the_other().wait();
    assert_ne!(refused.status.code(), Some(0), "{refused:?}");
    // Tries that find nothing move nobody.
    node.wait_for("a try that finds nothing", |node| node.logs().contains("still cannot be opened").then_some(()));
    assert_eq!(node.server().executor, before.executor);

    std::fs::remove_file(&prohibited).expect("the file was there");
    let after = node.wait_for("an executor with both", |node| Some(node.server()).filter(|server| server.executor != 0 && server.executor != before.executor));
    client.tell("");
    client.wait_for_line("round 1 right");
    let mut guest = on_the_other();
    guest.wait_for_line("ready");
    guest.tell("");
    guest.wait_for_line("round 1 right");
    assert!(node.logs().contains("device 1 (NVIDIA H200) can be used again"), "{}", node.logs());
    node.wait_for("the end of the one before", |node| (!node.owns(before.executor)).then_some(()));
    client.tell("");
    client.wait_for_line("round 2 right");
    assert_eq!((node.server().takeovers, node.server().executor), (0, after.executor), "nothing was lost");
    client.expect_ok();
    guest.expect_ok();
}

/// A card is taken out while programs work on it: they hear why, and the rest is served. It comes
/// back without a restart of the daemon.
#[test]
fn a_card_that_is_taken_out_is_its_users_affair_and_comes_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let prohibited = folder.path().join("prohibited");
    let node = Node::with()
        .device("sim:h200:card,sim:h200:prohibited:card")
        .env("CUMUX_SIM_PROHIBITED_WHILE", prohibited.to_str().expect("text"))
        .env("CUMUX_DEVICE_RETRY_MS", "50")
        .env("CUMUX_MOVE_WAIT_MS", "60000")
        .start();
    let (mut stays, mut loses) = (using(&node, "0"), using(&node, "1"));
    let before = node.server();
    std::fs::write(&prohibited, "").expect("a file");
    // One that has the card already could still serve it.
    node.kill(before.standby);
    node.wait_for("another standby", |node| Some(node.server()).filter(|server| server.standby != before.standby));
    node.kill(before.executor);
    stays.tell("");
    stays.wait_for_line("round 1 right");
    let pid = loses.pid();
    let _ = loses.try_tell("");
    let lost = loses.wait();
    assert!(lost.status.code() != Some(0) && !lost.out.contains("round 1 right"), "{lost:?}");
    let told = node.wait_for("the client that has lost its card", |node| node.client_status(pid).filter(|client| client.error != 0));
    assert!(told.fault.contains("PROHIBITED"), "{told:?}");
    let refused = node.test_client("devices").env(VISIBLE, "1").env("CUMUX_VERBOSE", "1").start().wait();
    assert!(refused.status.code() != Some(0) && refused.err.contains("PROHIBITED"), "{refused:?}");

    std::fs::remove_file(&prohibited).expect("the file was there");
    let newcomer = node.wait_for("the card", |node| {
        let mut client = node.test_client("devices").env(VISIBLE, "1").start();
        client.close_input();
        let outcome = client.wait();
        (outcome.status.code() == Some(0)).then_some(outcome)
    });
    assert!(newcomer.out.contains("round 0 right"), "{newcomer:?}");
    stays.tell("");
    stays.wait_for_line("round 2 right");
    stays.expect_ok();
}
