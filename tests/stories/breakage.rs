//! A card that breaks as a whole at a fault, as real cards do (`sim:h200:card`): the culprit gets
//! its error, and everybody else has the results of a run alone.

use cumux_environment::steps::{self, Step};
use cumux_testkit::{Client, Node, Outcome};
use cumux_wire::message::{ClientStatus, Place};
use std::time::{Duration, Instant};

const CARD: &str = "sim:h200:card";

/// A node on such a card. `seed` decides which faulting kernels look complete after all.
fn card(seed: u32) -> Node {
    Node::with().device(CARD).env("CUMUX_SIM_FAULT_SEED", &seed.to_string()).env("CUMUX_FAULT_WAIT_MS", "60000").start()
}

fn expect_as_alone(clients: Vec<Client<'_>>, expected: &[String]) {
    for (client, expected) in clients.into_iter().zip(expected) {
        let outcome = client.wait();
        assert!(outcome.status.success() && outcome.out == *expected, "{outcome:?}, alone: {expected}");
        assert_eq!(outcome.err, "", "what a neighbour does is not told");
    }
}

/// A program that makes this fault when it is told to.
fn faulty<'a>(node: &'a Node, kind: &str) -> Client<'a> {
    let client = node.test_client("faulty").args(&[kind]).start();
    client.wait_for_line("ready");
    client
}

fn expect_fault(mut client: Client<'_>, error: &str) -> Outcome {
    client.tell("");
    let outcome = client.wait();
    assert!(outcome.status.success() && outcome.out.contains(&format!("wait: {error}\nagain: {error}\n")), "{outcome:?}");
    outcome
}

const KINDS: [(&str, &str); 5] = [
    ("store", "cudaErrorIllegalAddress"),
    ("load", "cudaErrorIllegalAddress"),
    ("misaligned", "cudaErrorMisalignedAddress"),
    ("trap", "cudaErrorLaunchFailure"),
    ("assertion", "cudaErrorAssert"),
];

#[test]
fn a_fault_of_each_kind_is_its_makers_alone() {
    let expected = Node::workers_alone(15, 4);
    for (seed, (kind, error)) in (0..).zip(KINDS) {
        let node = card(seed);
        let culprit = faulty(&node, kind);
        let clients = node.workers(15, 4);
        let pid = culprit.pid();
        let before = node.server();
        let outcome = expect_fault(culprit, error);
        assert_eq!(outcome.err.contains("Assertion"), kind == "assertion", "{kind}: {outcome:?}");
        expect_as_alone(clients, &expected);
        let status = node.wait_for("the culprit in the list", |node| node.client_status(pid).filter(|status| status.error != 0));
        assert!(status.fault.contains("kernel "), "{kind}: the kernel is named: {status:?}");
        let after = node.server();
        assert_eq!((after.pid, after.takeovers), (before.pid, 1), "{kind}: one executor was replaced");
        node.client("vector_add").args(&["1"]).start().expect_ok();
    }
}

#[test]
fn several_faults_one_after_the_other() {
    let expected = Node::workers_alone(40, 4);
    let node = card(7);
    let culprits: Vec<_> = KINDS[..4].iter().map(|(kind, error)| (faulty(&node, kind), *error)).collect();
    let clients = node.workers(40, 4);
    for (takeovers, (culprit, error)) in (1..).zip(culprits) {
        expect_fault(culprit, error);
        node.wait_for("the next executor with a standby", |node| {
            node.servers().into_iter().find(|server| server.state == "ACTIVE" && server.takeovers == takeovers && server.standby != 0)
        });
    }
    expect_as_alone(clients, &expected);
}

#[test]
fn several_faults_at_once() {
    let expected = Node::workers_alone(25, 4);
    let node = card(3);
    let mut culprits: Vec<_> = KINDS.iter().map(|(kind, error)| (faulty(&node, kind), *error)).collect();
    let clients = node.workers(25, 4);
    for (culprit, _) in &mut culprits {
        culprit.tell("");
    }
    for (culprit, error) in culprits {
        let outcome = culprit.wait();
        assert!(outcome.status.success() && outcome.out.contains(&format!("wait: {error}\n")), "{outcome:?}");
    }
    expect_as_alone(clients, &expected);
}

/// Executors that know the clients: they serve, or could take over.
fn ready_executors(node: &Node) -> Vec<u32> {
    let is_executor = |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().split('\0').nth(1) == Some("executor");
    let has_a_ring = |pid: &u32| {
        let links = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
        links.into_iter().any(|link| link.to_string_lossy().starts_with("/memfd:cumux-ring"))
    };
    node.processes().into_iter().filter(|pid| is_executor(pid) && has_a_ring(pid)).collect()
}

/// Kills two executors so quickly one after the other that two are to stand by from then on.
fn lose_two_executors(node: &Node) {
    loop {
        let before = node.server();
        let begun = Instant::now();
        for takeovers in before.takeovers..before.takeovers + 2 {
            let active = |node: &Node| node.servers().into_iter().find(|server| server.state == "ACTIVE" && server.takeovers == takeovers);
            node.kill(node.wait_for("an executor", active).executor);
        }
        node.wait_for("the second takeover", |node| node.servers().into_iter().find(|server| server.takeovers == before.takeovers + 2));
        // On a busy machine they may have been further apart.
        if begun.elapsed() < Duration::from_secs(3) {
            return;
        }
    }
}

/// Faults that follow each other quickly meet a ready standby each.
#[test]
fn with_two_standbys_two_faults_in_a_row_meet_a_ready_one_each() {
    let expected = Node::workers_alone(40, 2);
    let node = Node::with().device(CARD).env("CUMUX_STANDBYS", "2").env("CUMUX_FAULT_WAIT_MS", "60000").start();
    let mut idle = node.test_client("idle").start();
    idle.wait_for_line("ready");
    lose_two_executors(&node);
    let culprits = [(faulty(&node, "store"), "cudaErrorIllegalAddress"), (faulty(&node, "trap"), "cudaErrorLaunchFailure")];
    let clients = node.workers(40, 2);
    let ready = node.wait_for("two that stand by", |node| Some(ready_executors(node)).filter(|executors| executors.len() >= 3));
    let before = node.server().takeovers;
    for (takeovers, (culprit, error)) in (before + 1..).zip(culprits) {
        expect_fault(culprit, error);
        let after = node.wait_for("the takeover", |node| node.servers().into_iter().find(|server| server.state == "ACTIVE" && server.takeovers == takeovers));
        assert!(ready.contains(&after.executor), "it had been ready before the first fault: {} of {ready:?}", after.executor);
    }
    expect_as_alone(clients, &expected);
    idle.tell("");
    idle.wait_for_line("round 1 right");
}

#[test]
fn a_fault_during_a_takeover() {
    let expected = Node::workers_alone(25, 4);
    for seed in 0..2 {
        let node = card(seed);
        let mut culprits = [faulty(&node, "store"), faulty(&node, "trap")];
        let clients = node.workers(25, 4);
        let pid = node.server().executor;
        // The second comes while the first one's successor is on its way.
        for culprit in &mut culprits {
            culprit.tell("");
        }
        node.wait_for("the end of the first executor", |node| (!node.processes().contains(&pid)).then_some(()));
        let mut third = faulty(&node, "misaligned");
        third.tell("");
        let codes = ["cudaErrorIllegalAddress", "cudaErrorLaunchFailure", "cudaErrorMisalignedAddress"];
        for (culprit, error) in culprits.into_iter().chain([third]).zip(codes) {
            let outcome = culprit.wait();
            assert!(outcome.out.contains(&format!("wait: {error}\n")), "{outcome:?}");
        }
        expect_as_alone(clients, &expected);
    }
}

#[test]
fn work_that_does_not_end_beside_a_fault_has_an_error_and_the_rest_goes_on() {
    let expected = Node::workers_alone(15, 4);
    // Twelve times as long where nobody else waits for it.
    let node = Node::with().device(CARD).env("CUMUX_FAULT_WAIT_MS", "500").env("CUMUX_LONG_KERNEL_MS", "600000").start();
    let culprit = faulty(&node, "store");
    let endless = node.client("long_kernel").start();
    endless.wait_for_line("kernel running");
    let clients = node.workers(15, 4);
    expect_fault(culprit, "cudaErrorIllegalAddress");
    let pid = endless.pid();
    let outcome = endless.wait();
    assert!(outcome.out.contains("an illegal memory access"), "{outcome:?}");
    let status = node.wait_for("its error in the list", |node| node.client_status(pid).filter(|status| status.error != 0));
    assert!(status.fault.contains("another client's kernel"), "{status:?}");
    expect_as_alone(clients, &expected);
}

/// The server ends an executor apart when its last client has gone, and that client may go because
/// of an error that the executor has not reported yet.
#[test]
fn the_error_of_a_client_apart_is_known_although_its_executor_did_not_report_it() {
    let node = Node::with().device(CARD).env("CUMUX_FAULT_WAIT_MS", "500").env("CUMUX_LONG_KERNEL_MS", "600000").folder_in(steps::VARIABLE, "steps").start();
    let culprit = faulty(&node, "store");
    let mut held = node.test_client("held").start();
    held.wait_for_line("ready");
    held.tell("hold");
    held.wait_for_line("round 1 running");
    let pid = held.pid();
    let apart = node.server().executor;
    // The culprit's error comes before.
    let step = node.folder().join("steps").join(Step::FaultShown.name());
    std::fs::write(&step, "stop 1").unwrap();
    expect_fault(culprit, "cudaErrorIllegalAddress");
    let taken = step.with_extension(steps::TAKEN);
    node.wait_for("the end of the wait for the kernel", |_| taken.exists().then_some(()));
    assert!(node.client_status(pid).is_some_and(|status| status.place == Place::Apart && status.executor == apart));
    held.tell("go");
    let outcome = held.wait();
    assert!(outcome.out.contains("round 1: cudaErrorIllegalAddress"), "{outcome:?}");
    node.wait_for("the end of the executor apart", |node| (!node.owns(apart)).then_some(()));
    let status = node.wait_for("its error in the list", |node| node.client_status(pid).filter(|status| status.error != 0));
    assert!(status.error == 700 && status.fault.contains("another client's kernel"), "{status:?}");
    let faults: serde_json::Value = serde_json::from_slice(&node.cumux(&["faults", "--json"]).output().unwrap().stdout).unwrap();
    assert_eq!(faults.as_array().unwrap().iter().filter(|fault| fault["pid"] == pid && fault["result"] == 700).count(), 1, "{faults}");
    node.client("vector_add").args(&["1"]).start().expect_ok();
}

/// Nobody waits for a kernel of an innocent that runs for long after a fault, and it ends as if
/// nothing had happened.
#[test]
fn a_kernel_that_runs_long_after_a_fault_ends_right_and_nobody_waits_for_it() {
    // Nobody is moved away from the kernel before the fault.
    let node = Node::with().device(CARD).env("CUMUX_FAULT_WAIT_MS", "60000").env("CUMUX_LONG_KERNEL_MS", "600000").start();
    let culprit = faulty(&node, "store");
    let mut held = node.test_client("held").start();
    held.wait_for_line("ready");
    let mut others: Vec<Client<'_>> = (0..3).map(|_| node.test_client("idle").start()).collect();
    others.iter_mut().for_each(|other| other.wait_for_line("ready"));
    held.tell("hold");
    held.wait_for_line("round 1 running");
    let before = node.server();
    let pid = culprit.pid();
    expect_fault(culprit, "cudaErrorIllegalAddress");
    // All others go on while the kernel runs.
    for other in &mut others {
        other.tell("");
        other.wait_for_line("round 1 right");
    }
    let with_kernel = node.client_status(held.pid()).expect("the client with the kernel");
    assert_eq!((with_kernel.place, with_kernel.executor, with_kernel.error), (Place::Apart, before.executor, 0), "{with_kernel:?}");
    let status = node.wait_for("the culprit in the list", |node| node.client_status(pid).filter(|status| status.error != 0));
    assert!(status.fault.contains("kernel "), "{status:?}");
    held.tell("go");
    held.wait_for_line("round 1 right");
    node.wait_for("the end of the broken executor", |node| (!node.owns(before.executor)).then_some(()));
    let back = node.wait_for("it with the others", |node| node.client_status(held.pid()).filter(|status| status.place == Place::Shared));
    assert_eq!(back.error, 0, "{back:?}");
    held.tell("step");
    held.wait_for_line("round 2 right");
    held.expect_ok();
}

/// What a client does next would not begin on the broken card: it does not wait for the kernel of
/// another one, which may take a minute.
#[test]
fn of_two_kernels_that_run_long_after_a_fault_the_shorter_one_does_not_wait_for_the_longer_one() {
    let node = Node::with().device(CARD).env("CUMUX_FAULT_WAIT_MS", "60000").env("CUMUX_LONG_KERNEL_MS", "600000").start();
    let culprit = faulty(&node, "store");
    let [mut shorter, mut longer] = [(); 2].map(|()| node.test_client("held").start());
    for held in [&mut shorter, &mut longer] {
        held.wait_for_line("ready");
        held.tell("hold");
        held.wait_for_line("round 1 running");
    }
    let before = node.server();
    expect_fault(culprit, "cudaErrorIllegalAddress");
    let place = |client: &Client<'_>| node.client_status(client.pid()).map(|status| (status.place, status.executor, status.error));
    let stays = Some((Place::Apart, before.executor, 0));
    node.wait_for("both apart", |_| ([&shorter, &longer].map(place) == [stays; 2]).then_some(()));
    // Its second stream waits for the kernel, and its work begins in the next executor.
    shorter.tell("go");
    shorter.wait_for_line("round 1 right");
    shorter.tell("step");
    shorter.wait_for_line("round 2 right");
    let others = Some((Place::Shared, node.server().executor, 0));
    node.wait_for("the shorter one with the others", |_| ([&shorter, &longer].map(place) == [others, stays]).then_some(()));
    longer.tell("go");
    longer.wait_for_line("round 1 right");
    longer.expect_ok();
    shorter.expect_ok();
    assert_eq!(node.server().takeovers, 1);
}

/// A killed client's kernel cannot be stopped alone: the device is given up. Who had a kernel with
/// it then may be told so (decision 0111), and nobody has wrong results.
#[test]
fn a_client_is_killed_in_the_middle_of_an_endless_kernel() {
    let expected = Node::workers_alone(15, 4);
    let node = Node::with().device(CARD).env("CUMUX_DRAIN_SECONDS", "1").env("CUMUX_LONG_KERNEL_MS", "600000").start();
    let long = node.client("long_kernel").start();
    long.wait_for_line("kernel running");
    let mut idle = node.test_client("idle").start();
    idle.wait_for_line("ready");
    let clients = node.workers(15, 4);
    let pid = long.pid();
    long.kill();
    node.wait_for("the next executor", |node| node.servers().into_iter().find(|server| server.state == "ACTIVE" && server.takeovers == 1));
    for (client, expected) in clients.into_iter().zip(&expected) {
        let outcome = client.wait();
        let told = outcome.out.contains("unspecified launch failure") && !outcome.out.contains("verified");
        assert!(told || outcome.status.success() && outcome.out == *expected, "{outcome:?}, alone: {expected}");
    }
    idle.tell("");
    idle.wait_for_line("round 1 right");
    node.wait_for("the end of the killed client", |node| node.client_status(pid).filter(|client| client.state != "running"));
    // The device is free for the next.
    node.client("vector_add").args(&["1"]).start().expect_ok();
}

/// Newcomers load modules beside a kernel until it has run for long, and all others leave it.
fn apart(node: &Node, pid: u32) -> ClientStatus {
    node.wait_for("it apart", |node| {
        node.client("vector_add").args(&["1"]).start().expect_ok();
        node.client_status(pid).filter(|status| status.place == Place::Apart)
    })
}

/// Others load modules, for which the card would have to be quiet: they go on in the next executor.
/// When the kernel has ended its client comes back to them.
#[test]
fn a_kernel_that_does_not_end_keeps_its_executor_until_it_has_ended() {
    let expected = Node::workers_alone(40, 4);
    let node = card(1);
    let mut held = node.test_client("held").start();
    held.wait_for_line("ready");
    let mut idle = node.test_client("idle").start();
    idle.wait_for_line("ready");
    let before = node.server();
    held.tell("hold");
    held.wait_for_line("round 1 running");
    let clients = node.workers(40, 4);
    let apart = apart(&node, held.pid());
    assert!(apart.executor == before.executor && apart.place_why.contains("its kernel d"), "{apart:?}");
    let server =
        node.wait_for("the next executor with a standby", |node| node.servers().into_iter().find(|server| server.takeovers == 1 && server.standby != 0));
    assert_eq!(server.executor, before.standby);
    // The idle one is there in any case. A client that has ended, or only begins, is nowhere.
    let idle_status = node.client_status(idle.pid()).expect("the idle client");
    assert_eq!((idle_status.place, idle_status.executor), (Place::Shared, server.executor));
    let others = clients.iter().filter_map(|client| node.client_status(client.pid()));
    for status in others.filter(|status| status.state == "running") {
        assert!(status.place == Place::Shared && status.executor == server.executor, "{status:?}");
    }
    idle.tell("");
    idle.wait_for_line("round 1 right");
    held.tell("go");
    held.wait_for_line("round 1 right");
    let back = node.wait_for("it with the others", |node| node.client_status(held.pid()).filter(|status| status.place == Place::Shared));
    assert_eq!((back.executor, back.place_why.as_str()), (server.executor, ""));
    node.wait_for("the end of the executor apart", |node| (!node.owns(before.executor)).then_some(()));
    held.tell("step");
    held.wait_for_line("round 2 right");
    held.expect_ok();
    expect_as_alone(clients, &expected);
    assert_eq!(node.server().takeovers, 1, "nobody else has noticed the way back");
}

/// As on a real card: the executor apart dies with the kernel, and its client is told.
#[test]
fn an_executor_apart_is_killed() {
    let node = card(2);
    let mut held = node.test_client("held").start();
    held.wait_for_line("ready");
    held.tell("hold");
    held.wait_for_line("round 1 running");
    let mut idle = node.test_client("idle").start();
    idle.wait_for_line("ready");
    node.kill(apart(&node, held.pid()).executor);
    let _ = held.try_tell("go");
    let outcome = held.wait();
    assert!(outcome.out.contains("round 1: cudaErrorLaunchFailure"), "{outcome:?}");
    idle.tell("");
    idle.wait_for_line("round 1 right");
    assert_eq!(node.server().takeovers, 1);
}

#[test]
fn an_assertions_text_is_on_its_programs_standard_error() {
    for device in ["sim:h200", CARD] {
        let node = Node::with().device(device).start();
        let mut other = node.test_client("idle").start();
        other.wait_for_line("ready");
        let outcome = expect_fault(faulty(&node, "assertion"), "cudaErrorAssert");
        let lines: Vec<&str> = outcome.err.lines().collect();
        let [line] = lines[..] else { panic!("{device}: {outcome:?}") };
        assert!(
            line.contains("faulty.cu:") && line.ends_with(": block: [0,0,0], thread: [3,0,0] Assertion `int(threadIdx.x) < limit` failed."),
            "{device}: {line}"
        );
        // Device printf is the program's standard output, also half a line of it.
        assert!(outcome.out.contains("thread 3 of block 0 is about to fail") && !outcome.out.contains("failed."), "{device}: {outcome:?}");
        other.tell("");
        other.wait_for_line("round 1 right");
        other.close_input();
        let outcome = other.wait();
        assert!(outcome.err.is_empty() && !outcome.out.contains("Assertion"), "{device}: {outcome:?}");
    }
}
