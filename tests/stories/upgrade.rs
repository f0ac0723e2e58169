//! `cumux upgrade`: all processes are replaced by those of another program while clients work.

use cumux_testkit::{Node, cumux, devices};
use cumux_wire::message::{ClientStatus, Place, ServerStatus};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;

/// A copy of our program, as a newer version would be installed.
fn another_program(node: &Node) -> PathBuf {
    let folder = node.folder().join("newer");
    fs::create_dir(&folder).expect("a folder");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("our own folder");
    let program = folder.join("cumux");
    fs::copy(cumux(), &program).expect("a copy");
    program
}

fn script(node: &Node, name: &str, text: &str) -> PathBuf {
    let path = node.folder().join(name);
    fs::write(&path, text).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("our own file");
    path
}

fn upgrade(node: &Node, program: &Path) -> Output {
    node.cumux(&["upgrade", "--program", program.to_str().expect("text")]).output().expect("cumux starts")
}

fn processes(server: &ServerStatus) -> [u32; 4] {
    [server.pid, server.executor, server.standby, server.keeper]
}

/// All processes are new ones, of that program.
fn expect_upgraded(node: &Node, before: &ServerStatus, program: &Path) -> ServerStatus {
    let after = node.wait_for("new processes", |node| node.servers().into_iter().find(|s| s.state == "ACTIVE" && !processes(s).contains(&0)));
    let program = program.canonicalize().expect("it is there");
    for (old, new) in processes(before).into_iter().zip(processes(&after)) {
        assert!(!processes(before).contains(&new) && !node.owns(old), "{before:?} {after:?}");
        assert_eq!(fs::read_link(format!("/proc/{new}/exe")).expect("a process of ours"), program);
    }
    after
}

/// A node that waits for a client to leave only as long as an executor takes to start.
fn node_with_a_short_wait() -> Node {
    let wait = if std::env::var("CUMUX_TEST_DEVICE").is_ok_and(|device| device.starts_with("cuda")) { "12000" } else { "1500" };
    Node::with().env("CUMUX_UPGRADE_WAIT_MS", wait).start()
}

#[test]
fn eight_clients_work_while_everything_is_replaced() {
    let expected = Node::workers_alone(80, 8);
    for device in &devices() {
        let node = Node::with().device(device).env("CUMUX_UPGRADE_WAIT_MS", "90000").start();
        let mut own = node.test_client("held").env("CUMUX_ISOLATION", "own").start();
        own.wait_for_line("ready");
        let clients = node.workers(80, 8);
        let before = node.server();
        let program = another_program(&node);
        let old = node.client_status(own.pid()).expect("a client").executor;
        let output = upgrade(&node, &program);
        assert!(output.status.success(), "{device}: {output:?}\n{}", node.logs());
        let after = expect_upgraded(&node, &before, &program);
        for (client, expected) in clients.into_iter().zip(&expected) {
            let outcome = client.wait();
            assert!(
                outcome.status.success() && outcome.out == *expected && outcome.err.is_empty(),
                "{device}: {outcome:?}, alone: {expected}\n{}",
                node.logs()
            );
        }
        own.tell("step");
        own.wait_for_line("round 1 right");
        let is_there = |status: &ClientStatus| status.place == Place::Own && status.executor != old;
        let now = node.wait_for("it in its next executor", |node| node.client_status(own.pid()).filter(is_there));
        node.wait_for("the end of the old one", |node| (!node.owns(old)).then_some(()));
        assert_eq!(fs::read_link(format!("/proc/{}/exe", now.executor)).expect("a process of ours"), program.canonicalize().expect("it is there"));
        // The next executor to be started is of that program, too, and the next client is served.
        node.kill(after.executor);
        node.client("vector_add").args(&["1"]).start().expect_ok();
        own.expect_ok();
    }
}

#[test]
fn a_client_whose_kernel_does_not_end_stays_and_leaves_later() {
    let node = node_with_a_short_wait();
    let mut held = node.test_client("held").start();
    held.wait_for_line("ready");
    let mut idle = node.test_client("idle").start();
    idle.wait_for_line("ready");
    let before = node.server();
    held.tell("hold");
    held.wait_for_line("round 1 running");
    let program = another_program(&node);
    let output = upgrade(&node, &program);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains(&format!("client {} stays in its old executor", held.pid())), "{output:?}\n{}", node.logs());
    idle.tell("");
    idle.wait_for_line("round 1 right");
    assert!(node.owns(before.executor));
    held.tell("go");
    held.wait_for_line("round 1 right");
    node.wait_for("it with the others", |node| node.client_status(held.pid()).filter(|status| status.place == Place::Shared));
    node.wait_for("the end of the old executor", |node| (!node.owns(before.executor)).then_some(()));
    expect_upgraded(&node, &before, &program);
    held.tell("step");
    held.wait_for_line("round 2 right");
    held.expect_ok();
    idle.expect_ok();
}

/// As the story before, for a client in an executor of its own: also the next server knows that
/// this is one of the program before.
#[test]
fn a_client_with_an_executor_of_its_own_leaves_the_old_one_later() {
    let node = node_with_a_short_wait();
    let mut held = node.test_client("held").env("CUMUX_ISOLATION", "own").start();
    held.wait_for_line("ready");
    let before = node.server();
    let old = node.client_status(held.pid()).expect("a client").executor;
    held.tell("hold");
    held.wait_for_line("round 1 running");
    let program = another_program(&node);
    let output = upgrade(&node, &program);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains(&format!("client {} stays in its old executor", held.pid())), "{output:?}\n{}", node.logs());
    let now = node.wait_for("it in the list", |node| node.client_status(held.pid()).filter(|status| status.place == Place::Own));
    assert!(now.executor == old && now.place_why.contains("of an earlier program"), "{now:?}");
    held.tell("go");
    held.wait_for_line("round 1 right");
    let now =
        node.wait_for("it in another executor", |node| node.client_status(held.pid()).filter(|status| status.place == Place::Own && status.executor != old));
    assert_eq!(fs::read_link(format!("/proc/{}/exe", now.executor)).expect("a process of ours"), program.canonicalize().expect("it is there"));
    assert_eq!((now.place_why.as_str(), now.moves), ("CUMUX_ISOLATION=own", 1));
    node.wait_for("the end of the old executor", |node| (!node.owns(old)).then_some(()));
    expect_upgraded(&node, &before, &program);
    held.tell("step");
    held.wait_for_line("round 2 right");
    held.expect_ok();
}

#[test]
fn what_cannot_go_on_is_refused_before_anything_is_ended() {
    let node = Node::start();
    let mut idle = node.test_client("idle").start();
    idle.wait_for_line("ready");
    let before = node.server();
    let open = script(&node, "open", "#!/bin/sh\necho 1\n");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("our own file");
    let group = script(&node, "group", "#!/bin/sh\necho 1\n");
    fs::set_permissions(&group, fs::Permissions::from_mode(0o775)).expect("our own file");
    for (program, word) in [
        (open, "is not used as a program"),
        (group, "chmod go-w"),
        (script(&node, "old", "#!/bin/sh\necho 1\n"), "speaks version 1 of the cumux protocol"),
        (PathBuf::from("/bin/true"), "is no cumux"),
        (PathBuf::from("/nowhere/cumux"), "cannot use /nowhere/cumux"),
    ] {
        let output = upgrade(&node, &program);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(word), "{program:?}: {output:?}");
    }
    assert_eq!(processes(&node.server()), processes(&before), "nothing was ended");
    idle.tell("");
    idle.wait_for_line("round 1 right");
}

/// It says that it speaks our protocol, and its executors end at once.
#[test]
fn a_program_whose_executors_cannot_serve_is_given_up() {
    let node = Node::start();
    let mut own = node.test_client("held").env("CUMUX_ISOLATION", "own").start();
    own.wait_for_line("ready");
    let mut idle = node.test_client("idle").start();
    idle.wait_for_line("ready");
    let before = node.server();
    let text = format!("#!/bin/sh\n[ \"$1\" = wire-version ] && exec {} wire-version\nexit 1\n", cumux().display());
    let output = upgrade(&node, &script(&node, "broken", &text));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("no executor of the new program can serve"), "{output:?}\n{}", node.logs());
    let after = node.wait_for("a standby of the program before", |node| node.servers().into_iter().find(|s| s.state == "ACTIVE" && s.standby != 0));
    assert_eq!((after.pid, after.executor, after.keeper), (before.pid, before.executor, before.keeper), "who served goes on");
    node.kill(after.executor);
    idle.tell("");
    idle.wait_for_line("round 1 right");
    own.tell("step");
    own.wait_for_line("round 1 right");
    node.client("vector_add").args(&["1"]).start().expect_ok();
}

#[test]
fn on_a_card_that_is_one_processs_alone_it_is_refused() {
    let node = Node::with().device("sim:h200:exclusive_process").start();
    let idle = node.test_client("idle").start();
    idle.wait_for_line("ready");
    let program = another_program(&node);
    let output = upgrade(&node, &program);
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("beside the one that serves"), "{output:?}");
    idle.expect_ok();
}
