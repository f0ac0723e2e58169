//! A client goes from one executor to another while it works (`cumux move`): nothing is lost, and
//! nothing is done twice. Whoever dies in the middle hurts nobody else.

use cumux_testkit::{Client, Node, NodeBuilder, devices};
use cumux_wire::message::{ClientStatus, Place};
use std::process::{Child, Output};

/// On a busy machine a move may take long, and kernels may seem not to end.
fn patient(device: &str) -> NodeBuilder {
    Node::with().device(device).env("CUMUX_MOVE_WAIT_MS", "60000").env("CUMUX_LONG_KERNEL_MS", "600000")
}

fn begin_move(node: &Node, pid: u32, place: &str) -> Child {
    node.cumux(&["move", &pid.to_string(), place]).spawn().expect("cumux starts")
}

fn move_client(node: &Node, pid: u32, place: &str) -> Output {
    begin_move(node, pid, place).wait_with_output().expect("cumux ends")
}

fn expect_moved(node: &Node, output: &Output) {
    assert!(output.status.success(), "{output:?}\n{}", node.logs());
}

/// Its executor may have done all work before the server hears that it serves.
fn status(node: &Node, pid: u32) -> ClientStatus {
    node.wait_for("where the client is", |node| node.client_status(pid).filter(|status| status.place != Place::Nowhere))
}

/// Processes that are executors of one session.
fn own_executors(node: &Node) -> Vec<u32> {
    let words = |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let is_own = |pid: &u32| words(pid).split('\0').nth(1) == Some("executor") && words(pid).split('\0').any(|word| word == "--own");
    node.processes().into_iter().filter(is_own).collect()
}

fn held(node: &Node) -> Client<'_> {
    let client = node.test_client("held").start();
    client.wait_for_line("ready");
    client
}

fn idle(node: &Node) -> Client<'_> {
    let client = node.test_client("idle").start();
    client.wait_for_line("ready");
    client
}

fn step(client: &mut Client<'_>, round: u32) {
    client.tell("step");
    client.wait_for_line(&format!("round {round} right"));
}

/// A client with a kernel under way, and a command that moves it and waits for that.
fn in_the_middle(node: &Node) -> (Client<'_>, Child) {
    let mut client = held(node);
    step(&mut client, 1);
    client.tell("hold");
    client.wait_for_line("round 2 running");
    let command = begin_move(node, client.pid(), "--own");
    node.wait_for("the move to begin", |node| node.client_status(client.pid()).filter(|status| status.place_why.contains("being moved")));
    (client, command)
}

#[test]
fn a_client_goes_there_and_back_with_all_that_it_has() {
    for device in &devices() {
        let node = patient(device).start();
        let mut neighbour = idle(&node);
        let mut client = held(&node);
        let server = node.server();
        step(&mut client, 1);
        for turn in 0..3 {
            expect_moved(&node, &move_client(&node, client.pid(), "--own"));
            let now = status(&node, client.pid());
            assert_eq!((now.place, now.place_why.as_str()), (Place::Own, "moved by the administrator"), "{device}: {now:?}");
            assert!(now.executor != server.executor && own_executors(&node).contains(&now.executor), "{device}: {now:?}");
            step(&mut client, 2 * turn + 2);
            expect_moved(&node, &move_client(&node, client.pid(), "--back"));
            let now = status(&node, client.pid());
            assert_eq!((now.place, now.executor), (Place::Shared, server.executor), "{device}: {now:?}");
            step(&mut client, 2 * turn + 3);
            node.wait_for("the end of its own executor", |node| own_executors(node).is_empty().then_some(()));
        }
        let now = status(&node, client.pid());
        assert_eq!((now.kernels, now.moves, now.takeovers), (14, 6, 0), "{device}: counts go with it, and nobody has taken over");
        neighbour.tell("");
        neighbour.wait_for_line("round 1 right");
        assert_eq!(node.server().takeovers, 0, "{device}: nobody else has noticed");
        client.expect_ok();
    }
}

#[test]
fn clients_that_work_all_the_time_are_moved_and_have_right_results() {
    for device in &devices() {
        // A card is fast, and how long an executor of one's own takes to start depends on what
        // else the machine does.
        let rounds = if device.starts_with("cuda") { 4000 } else { 150 };
        let enough = (0..4).any(|attempt| move_while_they_work(device, rounds << (2 * attempt)) >= 4);
        assert!(enough, "{device}: they ended before they could be moved, however many rounds they had");
    }
}

/// How many times four workers were moved, each as often as it was there. Their results are
/// checked.
fn move_while_they_work(device: &str, rounds: u32) -> u32 {
    let expected = Node::workers_alone(rounds, 4);
    let node = patient(device).start();
    let clients = node.workers(rounds, 4);
    let mut moves = 0;
    for place in ["--own", "--back", "--own"] {
        for client in &clients {
            let output = move_client(&node, client.pid(), place);
            let why = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() || why.contains("no client") || why.contains("has gone"), "{device}: {output:?}\n{}", node.logs());
            moves += u32::from(output.status.success());
        }
    }
    for (client, expected) in clients.into_iter().zip(&expected) {
        let outcome = client.wait();
        assert!(outcome.status.success() && outcome.out == *expected && outcome.err.is_empty(), "{device}: {outcome:?}, alone: {expected}\n{}", node.logs());
    }
    moves
}

#[test]
fn a_client_whose_kernel_does_not_end_stays_and_it_is_said_why() {
    for device in &devices() {
        let node = Node::with().device(device).env("CUMUX_MOVE_WAIT_MS", "50").start();
        let mut client = held(&node);
        client.tell("hold");
        client.wait_for_line("round 1 running");
        let output = move_client(&node, client.pid(), "--own");
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && why.contains("its streams were not empty within 50 ms") && why.contains("try again"), "{device}: {output:?}");
        let now = status(&node, client.pid());
        assert_eq!((now.place, now.executor), (Place::Shared, node.server().executor), "{device}: {now:?}");
        node.wait_for("the end of the executor for nobody", |node| own_executors(node).is_empty().then_some(()));
        client.tell("go");
        client.wait_for_line("round 1 right");
        step(&mut client, 2);
        client.expect_ok();
    }
}

#[test]
fn what_cannot_be_moved_is_refused_with_a_sentence() {
    let node = Node::start();
    let client = idle(&node);
    for (arguments, words) in [(["move", "1", "--own"], "no client of any server"), (["control", "move_client", "x"], "It is written: move_client")] {
        let output = node.cumux(&arguments).output().expect("cumux starts");
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
    // It is there already.
    expect_moved(&node, &move_client(&node, client.pid(), "--back"));
    let node = Node::with().device("sim:h200:exclusive_process").start();
    let client = idle(&node);
    let output = move_client(&node, client.pid(), "--own");
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("DEFAULT compute mode"), "{output:?}");
}

#[test]
fn an_order_that_is_overtaken_is_not_told_of_success() {
    let node = patient("sim:h200").start();
    let (mut client, first) = in_the_middle(&node);
    let second = move_client(&node, client.pid(), "--back");
    expect_moved(&node, &second);
    let output = first.wait_with_output().expect("cumux ends");
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && why.contains("a later order has overtaken this one"), "{output:?}");
    client.tell("go");
    client.wait_for_line("round 2 right");
    node.wait_for("it with the others", |node| node.client_status(client.pid()).filter(|status| status.place == Place::Shared));
    step(&mut client, 3);
    client.expect_ok();
}

#[test]
fn the_executor_that_lets_go_dies_in_the_middle() {
    for device in &devices() {
        let node = patient(device).start();
        let mut neighbour = idle(&node);
        let _ = node.server();
        let (mut client, command) = in_the_middle(&node);
        node.kill(node.server().executor);
        neighbour.tell("");
        neighbour.wait_for_line("round 1 right");
        // Its kernel had begun, and cannot be done again (decision 0111): it has an error, and that
        // goes with it.
        let output = command.wait_with_output().expect("cumux ends");
        expect_moved(&node, &output);
        let _ = client.try_tell("go");
        let outcome = client.wait();
        assert!(outcome.out.contains("round 2: cudaErrorLaunchFailure"), "{device}: {outcome:?}");
        neighbour.tell("");
        neighbour.wait_for_line("round 2 right");
    }
}

/// As the story before, with a client whose streams are empty when its executor dies.
#[test]
fn the_executor_that_is_to_let_go_dies_before_it_does() {
    for device in &devices() {
        let node = patient(device).start();
        let mut client = held(&node);
        step(&mut client, 1);
        let executor = node.server().executor;
        // It hears of the move when it goes on, and is killed before.
        node.stop(executor);
        let command = begin_move(&node, client.pid(), "--own");
        node.wait_for("the executor of its own", |node| (!own_executors(node).is_empty()).then_some(()));
        node.kill(executor);
        expect_moved(&node, &command.wait_with_output().expect("cumux ends"));
        assert_eq!(status(&node, client.pid()).place, Place::Own, "{device}");
        step(&mut client, 2);
        client.expect_ok();
    }
}

#[test]
fn the_executor_that_is_to_have_it_dies_in_the_middle() {
    for device in &devices() {
        let node = patient(device).start();
        let mut neighbour = idle(&node);
        let (mut client, command) = in_the_middle(&node);
        let first = own_executors(&node);
        first.iter().for_each(|pid| node.kill(*pid));
        node.wait_for("the next one", |node| own_executors(node).into_iter().find(|pid| !first.contains(pid)));
        client.tell("go");
        client.wait_for_line("round 2 right");
        expect_moved(&node, &command.wait_with_output().expect("cumux ends"));
        step(&mut client, 3);
        client.expect_ok();
        neighbour.tell("");
        neighbour.wait_for_line("round 1 right");
        assert_eq!(node.server().takeovers, 0, "{device}");
    }
}

#[test]
fn the_client_dies_in_the_middle() {
    for device in &devices() {
        let node = patient(device).env("CUMUX_DRAIN_SECONDS", "1").start();
        let mut neighbour = idle(&node);
        let (client, command) = in_the_middle(&node);
        let pid = client.pid();
        client.kill();
        let output = command.wait_with_output().expect("cumux ends");
        assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("its client has gone"), "{device}: {output:?}");
        node.wait_for("the end of the client", |node| node.client_status(pid).filter(|client| client.state != "running"));
        node.wait_for("the end of the executor for nobody", |node| own_executors(node).is_empty().then_some(()));
        neighbour.tell("");
        neighbour.wait_for_line("round 1 right");
        node.client("vector_add").args(&["1"]).start().expect_ok();
    }
}

#[test]
fn the_server_dies_in_the_middle() {
    for device in &devices() {
        let node = patient(device).start();
        let mut neighbour = idle(&node);
        let (mut client, command) = in_the_middle(&node);
        let before = node.server();
        node.kill(before.pid);
        node.wait_for("the next server", |node| node.servers().into_iter().find(|s| s.pid != before.pid && s.state == "ACTIVE" && s.clients.len() == 2));
        client.tell("go");
        client.wait_for_line("round 2 right");
        let output = command.wait_with_output().expect("cumux ends");
        assert!(!output.status.success(), "{device}: who waited hears that its server has gone: {output:?}");
        for (round, place) in [(3, "--own"), (4, "--back")] {
            expect_moved(&node, &move_client(&node, client.pid(), place));
            step(&mut client, round);
        }
        neighbour.tell("");
        neighbour.wait_for_line("round 1 right");
        client.expect_ok();
    }
}

/// All of a server's processes but the keeper, at once, with a client in each executor.
#[test]
fn server_and_executors_die_together() {
    let node = patient("sim:h200").start();
    let (mut here, mut there) = (held(&node), held(&node));
    expect_moved(&node, &move_client(&node, there.pid(), "--own"));
    for client in [&mut here, &mut there] {
        step(client, 1);
    }
    let server = node.server();
    let own = status(&node, there.pid()).executor;
    for pid in [server.pid, server.executor, own] {
        node.stop(pid);
    }
    for pid in [server.pid, server.executor, own] {
        node.kill(pid);
    }
    for client in [&mut here, &mut there] {
        step(client, 2);
    }
    let now = node.wait_for("it in its own executor", |node| node.client_status(there.pid()).filter(|status| status.place == Place::Own));
    assert_ne!(now.executor, own);
    assert_eq!(status(&node, here.pid()).place, Place::Shared);
}
