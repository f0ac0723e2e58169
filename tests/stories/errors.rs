//! What a program is told when it is not served, or not any more: the errors 805 to 810 where they
//! can happen here (809 cannot: see COMPATIBILITY.md; 808 is `commands::one_client_too_many`), and
//! the compute modes of a card.

use cumux_testkit::Node;
use std::process::Stdio;

/// CUDA_ERROR_MPS_CONNECTION_FAILED: nobody may use a card in PROHIBITED mode, so no server can
/// serve. Daemon and doctor say why; the daemon lives on.
#[test]
fn a_prohibited_card_is_805_with_its_reason() {
    let node = Node::with().device("sim:h200:prohibited").start();
    let outcome = node.test_client("view").start().wait();
    assert_eq!((outcome.status.code(), outcome.out.as_str()), (Some(3), "count: cudaErrorMpsConnectionFailed"), "{outcome:?}");
    let log = std::fs::read_to_string(node.folder().join("log/control.log")).unwrap();
    assert!(log.contains("cannot serve: ") && log.contains("PROHIBITED compute mode"), "{log}");
    let answer = node.control("start_server -uid 0");
    assert!(!rustix::process::geteuid().is_root() || answer.contains("PROHIBITED"), "{answer}");
    let output = node.cumux(&["doctor"]).env("CUMUX_DEVICE", "sim:h200:prohibited").output().unwrap();
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stdout).contains("PROHIBITED"), "{output:?}");
    // The card can still be listed.
    assert!(node.control("device_query").contains("NVIDIA H200"));
}

/// One process at a time may have a card in EXCLUSIVE_PROCESS mode; for the clients it is as in
/// DEFAULT mode, since the executor is that process. There is no standby; when the executor is lost
/// the next one starts from cold and everybody goes on.
#[test]
fn an_exclusive_card_serves_many_and_is_taken_over_from_cold() {
    let node = Node::with().device("sim:h200:exclusive_process").start();
    let mut clients = [node.test_client("idle").start(), node.test_client("idle").start()];
    clients.iter().for_each(|client| client.wait_for_line("ready"));
    let status = node.wait_for("the word on the standby", |node| node.servers().into_iter().find(|server| !server.no_standby.is_empty()));
    assert!(status.standby == 0 && status.no_standby.contains("EXCLUSIVE_PROCESS"), "{status:?}");
    assert_eq!(status.clients.len(), 2);
    node.kill(status.executor);
    for client in &mut clients {
        client.tell("");
        client.wait_for_line("round 1 right");
    }
    let after = node.servers().remove(0);
    assert!(after.executor != status.executor && after.standby == 0, "{after:?}");
    for client in clients {
        client.expect_ok();
    }
}

/// CUDA_ERROR_MPS_SERVER_NOT_READY for who comes while the daemon ends; who is served goes on to
/// its end, and the daemon then ends well.
#[test]
fn while_the_daemon_ends_newcomers_get_807() {
    let node = Node::start();
    let mut first = node.test_client("idle").start();
    first.wait_for_line("ready");
    let mut quit = node.cumux(&["control", "quit"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let log = || std::fs::read_to_string(node.folder().join("log/control.log")).unwrap();
    node.wait_for("the command", |_| log().contains("Server will not shutdown.").then_some(()));
    let outcome = node.test_client("view").start().wait();
    assert_eq!(outcome.out, "count: cudaErrorMpsServerNotReady", "{outcome:?}");
    first.tell("");
    first.wait_for_line("round 1 right");
    first.expect_ok();
    assert!(quit.wait().unwrap().success());
}

/// CUDA_ERROR_MPS_RPC_FAILURE for whose server is forced to end, as recorded; that error stays.
#[test]
fn a_server_forced_to_end_leaves_806() {
    let node = Node::start();
    let mut client = node.test_client("view").start();
    client.wait_for_line("ready");
    assert_eq!(node.control(&format!("shutdown_server {} -f", node.server().pid)), "");
    node.wait_for("the end of the server", |node| node.control("get_server_list").is_empty().then_some(()));
    for _ in 0..2 {
        client.tell("");
    }
    let outcome = client.wait();
    assert_eq!(outcome.out.matches("sync cudaErrorMpsRpcFailure").count(), 2, "{outcome:?}");
    // The next one gets a new server.
    node.test_client("view").start().expect_ok();
}

/// CUDA_ERROR_MPS_CLIENT_TERMINATED stays, and so the process can be killed without anybody
/// noticing.
#[test]
fn a_terminated_client_keeps_810() {
    let node = Node::start();
    let (mut client, mut other) = (node.test_client("view").start(), node.test_client("idle").start());
    client.wait_for_line("ready");
    other.wait_for_line("ready");
    let server = node.server();
    assert_eq!(node.control(&format!("terminate_client {} {}", server.pid, client.pid())), "0\n");
    client.tell("");
    client.wait_for_line("sync cudaErrorMpsClientTerminated");
    assert_eq!(node.control(&format!("terminate_client {} {}", server.pid, client.pid())), "0\n", "again is no error");
    client.kill();
    other.tell("");
    other.wait_for_line("round 1 right");
    assert_eq!(node.server().executor, server.executor);
    other.expect_ok();
}
