//! Kernels whose stack is unbounded, or that call through addresses: on a card that a fault breaks
//! for all they do not begin beside others. Their client goes to an executor of its own first.

use cumux_testkit::{Client, Node};
use cumux_wire::message::{ClientStatus, Place};

/// A card that breaks as a whole; a real one with `CUMUX_TEST_DEVICE`.
fn card() -> cumux_testkit::NodeBuilder {
    let device = std::env::var("CUMUX_TEST_DEVICE").unwrap_or_else(|_| "sim:h200:card".to_owned());
    Node::with().device(&device).env("CUMUX_FAULT_WAIT_MS", "60000").env("CUMUX_LONG_KERNEL_MS", "600000")
}

fn deep(node: &Node) -> Client<'_> {
    let client = node.test_client("deep").start();
    client.wait_for_line("ready");
    client
}

fn order(client: &mut Client<'_>, order: &str, answer: &str) {
    client.tell(order);
    client.wait_for_line(&format!("{order} {answer}"));
}

/// Its executor may have done all work before the server hears that it serves.
fn status(node: &Node, client: &Client<'_>) -> ClientStatus {
    node.wait_for("where the client is", |node| node.client_status(client.pid()).filter(|status| status.place != Place::Nowhere))
}

/// Its other kernels run with everybody else's; from the first one on that is unbounded it is
/// alone. Nobody else notices.
#[test]
fn an_unbounded_kernel_begins_in_an_executor_of_its_own() {
    let expected = Node::workers_alone(30, 4);
    for order_of_kind in ["deep 20", "address 1"] {
        let node = card().start();
        let mut client = deep(&node);
        let workers = node.workers(30, 4);
        order(&mut client, "plain", "right");
        let before = node.server();
        assert_eq!(status(&node, &client).place, Place::Shared);
        order(&mut client, order_of_kind, "right");
        let now = status(&node, &client);
        assert!(now.place == Place::Own && now.place_why.contains("unbounded"), "{now:?}");
        order(&mut client, "plain", "right");
        order(&mut client, "deep 100", "right");
        order(&mut client, "address 0", "right");
        client.expect_ok();
        for (worker, expected) in workers.into_iter().zip(&expected) {
            assert_eq!(worker.expect_ok(), *expected);
        }
        let after = node.server();
        assert_eq!((after.executor, after.takeovers), (before.executor, 0), "{}", node.logs());
        let log = node.logs();
        assert!(log.contains("gets an executor of its own: its kernel "), "{log}");
        node.wait_for("the end of its executor", |node| (!node.owns(now.executor)).then_some(()));
    }
}

/// What it does wrong there is its own error alone: no other client's executor is replaced.
#[test]
fn a_stack_overflow_and_a_wrong_address_are_their_makers_alone() {
    let expected = Node::workers_alone(30, 4);
    let node = card().start();
    let mut culprits = [deep(&node), deep(&node)];
    let workers = node.workers(30, 4);
    let before = node.server();
    for (culprit, order) in culprits.iter_mut().zip(["deep 100000000", "address 2"]) {
        culprit.tell(order);
    }
    for culprit in culprits {
        let outcome = culprit.wait();
        assert!(outcome.out.contains(" cudaError"), "{outcome:?}");
    }
    for (worker, expected) in workers.into_iter().zip(&expected) {
        assert_eq!(worker.expect_ok(), *expected);
    }
    let after = node.server();
    assert_eq!((after.executor, after.takeovers), (before.executor, 0), "{}", node.logs());
}

/// Where nobody wants it they run beside others, as before.
#[test]
fn kernels_run_beside_others_where_the_daemon_is_told_so() {
    let node = card().env("CUMUX_UNBOUNDED_KERNELS", "shared").start();
    let mut client = deep(&node);
    order(&mut client, "deep 20", "right");
    order(&mut client, "address 1", "right");
    let now = status(&node, &client);
    assert_eq!((now.place, node.server().takeovers), (Place::Shared, 0), "{now:?}");
    client.expect_ok();
    assert!(node.logs().contains("run beside others: CUMUX_UNBOUNDED_KERNELS says so"), "{}", node.logs());
}

/// An administrator who moves it back has decided: its kernels run beside others from then on.
#[test]
fn an_administrator_moves_it_back() {
    let node = card().start();
    let mut client = deep(&node);
    order(&mut client, "deep 20", "right");
    let own = status(&node, &client);
    assert_eq!(own.place, Place::Own, "{own:?}");
    let output = node.cumux(&["move", &client.pid().to_string(), "--back"]).output().expect("cumux starts");
    assert!(output.status.success(), "{output:?}\n{}", node.logs());
    order(&mut client, "deep 30", "right");
    order(&mut client, "plain", "right");
    let back = status(&node, &client);
    assert_eq!((back.place, back.executor), (Place::Shared, node.server().executor), "{back:?}");
    client.expect_ok();
}

/// While other work of its client does not end the kernel waits, and begins soon after: it is asked
/// for again and again, because its client waits.
#[test]
fn a_kernel_that_is_held_back_begins_when_other_work_of_its_client_has_ended() {
    let node = card().env("CUMUX_MOVE_WAIT_MS", "1500").start();
    let mut client = deep(&node);
    order(&mut client, "behind 2500", "right");
    assert_eq!(status(&node, &client).place, Place::Own, "{}", node.logs());
    client.expect_ok();
}

/// A server that is made again while a kernel is held back asks anew.
#[test]
fn a_new_server_goes_on_with_it() {
    let node = card().start();
    let mut client = deep(&node);
    let before = node.server();
    client.tell("deep 20");
    node.kill(before.pid);
    client.wait_for_line("deep 20 right");
    node.wait_for("it in an executor of its own", |node| node.client_status(client.pid()).filter(|client| client.place == Place::Own));
    order(&mut client, "deep 30", "right");
    client.expect_ok();
}

/// On a device that stops a client alone nothing has to be kept apart.
#[test]
fn on_a_device_that_contains_faults_they_run_beside_others() {
    let node = Node::with().start();
    if !node.is_software() {
        println!("NOTE: a real card contains no faults; nothing was tested");
        return;
    }
    let mut client = deep(&node);
    order(&mut client, "deep 20", "right");
    assert_eq!(status(&node, &client).place, Place::Shared);
    client.expect_ok();
}
