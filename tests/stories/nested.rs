//! The executor of real cards without a card: its driver is cumux's own library, a client of
//! another node, which runs the kernels on a software GPU. What NVIDIA's driver alone does (machine
//! code, core dumps, memory that outlives its process) cannot be told here.

use cumux_testkit::{Client, Node};
use std::time::Duration;

/// The node whose library is the other one's driver.
fn beneath() -> Node {
    Node::with().device("sim:h200").env("CUMUX_BENEATH", "1").env("CUMUX_ISOLATION", "own").patience(Duration::from_secs(300)).start()
}

/// A node with a card that the other node is.
fn on_top_of(beneath: &Node, settings: &[(&str, &str)]) -> Node {
    let library = beneath.folder().join("lib/libcuda.so.1");
    let mut node = Node::with().device("cuda:0").env("CUMUX_NESTED", &beneath.pipe().to_string_lossy()).env("CUMUX_REAL_LIBCUDA", &library.to_string_lossy());
    for (name, value) in settings {
        node = node.env(name, value);
    }
    node.start()
}

/// All of it, at any length.
fn server_log(node: &Node) -> String {
    std::fs::read_to_string(node.folder().join("log/server.log")).expect("there is a server")
}

/// Four programs with runs of short kernels, sets and copies in two streams: each checks every
/// result, and their kernels go to the card in chains. With one engine, and with as many threads as
/// on a large machine.
#[test]
fn runs_of_kernels_go_through_the_engine_of_real_cards() {
    let beneath = beneath();
    for (engines, lanes) in [("1", "1"), ("3", "2")] {
        let node = on_top_of(&beneath, &[("CUMUX_DISPATCHERS", engines), ("CUMUX_INTAKE_LANES", lanes)]);
        let start = |seed: u32| node.test_client("runs").args(&["20", &seed.to_string(), "held"]).start();
        // Chains are made while the card stands still. On a busy machine that may not come in time
        // for these programs: then it has come for the next ones.
        let are_chained = (0..20).any(|_| {
            let mut clients: Vec<Client<'_>> = (0..4).map(start).collect();
            for client in &clients {
                client.wait_for_line("PASS");
            }
            let mut are_chained = true;
            for client in &mut clients {
                let status = node.client_status(client.pid()).expect("it is still there");
                assert!(status.kernels >= 20 * 2 * 40, "{engines} engines: {status:?}");
                are_chained &= status.coalesced > 0;
                client.tell("");
            }
            clients.into_iter().for_each(|client| drop(client.expect_ok()));
            are_chained
        });
        assert!(are_chained, "{engines} engines: no chains are made");
        assert_eq!(node.server().takeovers, 0, "{}", node.logs());
    }
}

/// One that is killed with work in flight, and one that is killed while it waits, beside four that
/// work.
#[test]
fn killed_programs_hurt_nobody_on_the_engine_of_real_cards() {
    let beneath = beneath();
    let node = on_top_of(&beneath, &[]);
    let start = |seed: u32| node.test_client("runs").args(&["200", &seed.to_string(), "held"]).start();
    let mut workers: Vec<Client<'_>> = (0..4).map(start).collect();
    let (idle, busy) = (node.test_client("idle").start(), node.test_client("runs").args(&["1000000", "9"]).start());
    for client in workers.iter().chain([&idle, &busy]) {
        client.wait_for_line("ready");
    }
    node.wait_for("all of them at work", |node| {
        let is_at_work = |client: &Client<'_>| node.client_status(client.pid()).is_some_and(|status| status.kernels > 100);
        workers.iter().chain([&busy]).all(is_at_work).then_some(())
    });
    idle.kill();
    busy.kill();
    for worker in &mut workers {
        worker.wait_for_line("PASS");
        worker.tell("");
    }
    for worker in workers {
        assert!(worker.expect_ok().contains("PASS"), "{}", node.logs());
    }
    assert_eq!(node.server().takeovers, 0, "{}", node.logs());
}

/// Arrays, textures and surfaces are made by the driver beneath, and programs get its handles.
#[test]
fn arrays_and_textures_are_the_drivers() {
    let beneath = beneath();
    let node = on_top_of(&beneath, &[]);
    let said = node.test_client("arrays").start().expect_ok();
    assert!(said.contains("arrays: PASS"), "{said}\n{}", node.logs());
    assert_eq!(node.server().takeovers, 0, "{}", node.logs());
}

/// What the driver has made is of use in one process alone. A client that has any of it does not
/// move, and the reason is said. If its executor is killed, it is told why it ends.
#[test]
fn a_client_with_textures_stays_or_is_told() {
    let beneath = beneath();
    let node = on_top_of(&beneath, &[]);
    let start = || {
        let client = node.test_client("arrays").args(&["held"]).start();
        client.wait_for_line("ready");
        client
    };
    let mut client = start();
    client.tell("");
    client.wait_for_line("round 1 right");
    let log = server_log(&node);
    assert!(log.contains("would end with an error if this executor were replaced while the client has arrays"), "{log}");
    let moved = |client: &Client<'_>| node.cumux(&["move", &client.pid().to_string(), "--own"]).output().expect("cumux runs");
    let refused = moved(&client);
    let why = String::from_utf8_lossy(&refused.stderr).into_owned() + &String::from_utf8_lossy(&refused.stdout);
    assert!(!refused.status.success() && why.contains("1 arrays and 1 texture or surface objects on the card"), "{why}");
    client.tell("");
    client.wait_for_line("round 2 right");
    client.tell("destroy");
    client.wait_for_line("round 3 right");
    drop(client);

    let mut client = start();
    node.kill(node.server().executor);
    node.wait_for("the next executor", |node| node.servers().into_iter().find(|server| server.takeovers == 1 && server.state == "ACTIVE"));
    client.tell("");
    let outcome = client.wait();
    assert!(outcome.out.contains("FAIL: ") && !outcome.out.contains("round 1"), "{outcome:?}");
    let log = server_log(&node);
    assert!(log.contains("1 arrays and 1 texture or surface objects of this client have gone with the executor before"), "{log}");
    // Others are served.
    let said = node.test_client("arrays").start().expect_ok();
    assert!(said.contains("arrays: PASS"), "{said}\n{}", node.logs());
}

/// A program of PTX alone whose kernels launch kernels: on a card its parts are linked by the
/// driver, with the library that has the functions for it.
#[test]
fn kernels_that_launch_kernels_are_linked_by_the_driver() {
    let beneath = beneath();
    let node = on_top_of(&beneath, &[("CUMUX_LOG", "debug")]);
    for part in ["order", "many"] {
        assert_eq!(node.test_client("launches").args(&[part]).start().expect_ok(), format!("{part}: PASS"));
    }
    assert!(server_log(&node).contains("a bundle is linked"), "the driver was not asked");
}

/// On a card the function with which kernels say how a graph goes on is one of ours, in PTX.
#[test]
fn graphs_run_as_their_kernels_say_on_the_engine_of_real_cards() {
    let beneath = beneath();
    let node = on_top_of(&beneath, &[("CUMUX_LOG", "debug")]);
    assert_eq!(node.test_client("conditions").start().expect_ok(), super::programs::CONDITIONS, "{}", node.logs());
    // The software GPU beneath would understand the driver's, too.
    assert!(server_log(&node).contains("a function of ours takes it down"), "{}", node.logs());
    assert_eq!(node.server().takeovers, 0, "{}", node.logs());
}

/// A standby makes the chains that a client has, and the client has them after a takeover.
#[test]
fn chains_are_made_before_a_takeover() {
    let beneath = beneath();
    let node = on_top_of(&beneath, &[("CUMUX_LOG", "debug")]);
    let mut client = node.test_client("segments").start();
    client.wait_for_line("ready");
    let mut round = 0;
    let mut go_on_until = |client: &mut Client<'_>, line: &str| {
        let until = (0..200).find(|_| {
            round += 1;
            client.tell("");
            client.wait_for_line(&format!("round {round}"));
            server_log(&node).contains(line)
        });
        assert!(until.is_some(), "{line} is not in the log: {}", node.logs());
    };
    go_on_until(&mut client, "chains in advance made=");
    assert!(!server_log(&node).contains("a chain that was made in advance is taken"));
    node.kill(node.server().executor);
    node.wait_for("the next executor", |node| node.servers().into_iter().find(|server| server.takeovers == 1 && server.state == "ACTIVE"));
    go_on_until(&mut client, "a chain that was made in advance is taken");
    assert_eq!(node.server().takeovers, 1, "{}", node.logs());
}
