//! The executor of real cards without a card: its driver is cumux's own library, a client of
//! another node, which runs the kernels on a software GPU. What NVIDIA's driver alone does (machine
//! code, core dumps, memory that outlives its process) cannot be told here.

use cumux_testkit::{Client, Node};

/// The node whose library is the other one's driver.
fn beneath() -> Node {
    Node::with().device("sim:h200").env("CUMUX_BENEATH", "1").env("CUMUX_ISOLATION", "own").start()
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

/// Eight programs with streams, copies and short kernels, which go to the card in chains: each has
/// the results that it has alone, with one engine and with two.
#[test]
fn eight_programs_go_through_the_engine_of_real_cards() {
    let beneath = beneath();
    for engines in ["1", "2"] {
        let node = on_top_of(&beneath, &[("CUMUX_DISPATCHERS", engines)]);
        let seeds: Vec<String> = (0..8).map(|seed| seed.to_string()).collect();
        let start = |seed: &String| node.test_client("busy").args(&["3", seed]).start();
        let alone: Vec<String> = seeds.iter().map(|seed| start(seed).expect_ok()).collect();
        let held = node.test_client("idle").start();
        held.wait_for_line("ready");
        let clients: Vec<Client<'_>> = seeds.iter().map(start).collect();
        for (client, alone) in clients.into_iter().zip(&alone) {
            assert_eq!(client.expect_ok(), *alone, "{engines} engines\n{}", node.logs());
        }
        held.expect_ok();
        assert_eq!(node.server().takeovers, 0, "{}", node.logs());
    }
}

/// One that is killed with work in flight, and one that is killed while it waits, beside four that
/// work.
#[test]
fn killed_programs_hurt_nobody_on_the_engine_of_real_cards() {
    let beneath = beneath();
    let node = on_top_of(&beneath, &[]);
    let seeds: Vec<String> = (0..4).map(|seed| seed.to_string()).collect();
    let start = |seed: &String| node.test_client("busy").args(&["10", seed]).start();
    let alone: Vec<String> = seeds.iter().map(|seed| start(seed).expect_ok()).collect();
    let workers: Vec<Client<'_>> = seeds.iter().map(start).collect();
    let (idle, busy) = (node.test_client("idle").start(), node.test_client("busy").args(&["100000", "9"]).start());
    idle.wait_for_line("ready");
    busy.wait_for_line("ready");
    idle.kill();
    busy.kill();
    for (worker, alone) in workers.into_iter().zip(&alone) {
        assert_eq!(worker.expect_ok(), *alone, "{}", node.logs());
    }
    assert_eq!(node.server().takeovers, 0, "{}", node.logs());
}
