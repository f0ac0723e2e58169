//! Arrays, texture objects and surface objects, on every kind of device. On a card the driver makes
//! them, and they are of use in one process alone.

use cumux_testkit::Node;

#[test]
fn arrays_of_every_kind_are_filled_and_sampled() {
    let node = Node::start();
    let said = node.test_client("arrays").start().expect_ok();
    assert!(said.contains("arrays: PASS"), "{said}\n{}", node.logs());
}

#[test]
fn objects_outlive_executors_or_their_program_is_told() {
    let node = Node::start();
    let mut client = node.test_client("arrays").args(&["held"]).start();
    client.wait_for_line("ready");
    client.tell("");
    client.wait_for_line("round 1 right");
    node.kill(node.server().executor);
    node.wait_for("the next executor", |node| node.servers().into_iter().find(|server| server.takeovers == 1 && server.state == "ACTIVE"));
    client.tell("");
    if node.is_software() {
        client.wait_for_line("round 2 right");
        client.close_input();
        assert!(client.expect_ok().contains("arrays: PASS"));
        return;
    }
    let outcome = client.wait();
    assert!(outcome.out.contains("FAIL: ") && !outcome.out.contains("round 2"), "{outcome:?}");
    let log = node.logs();
    assert!(log.contains("would end with an error if this executor were replaced while the client has arrays"), "{log}");
    assert!(log.contains("1 arrays and 1 texture or surface objects of this client have gone with the executor before"), "{log}");
}
