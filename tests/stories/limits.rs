//! Memory limits that administrators set, and what a client sees of its device.

use cumux_testkit::Node;
use std::collections::BTreeMap;

/// What the program `view` prints, by its first words.
fn view(node: &Node, environment: &[(&str, &str)], arguments: &[&str]) -> BTreeMap<String, String> {
    let mut client = node.test_client("view").args(arguments);
    for (name, value) in environment {
        client = client.env(name, value);
    }
    let said = client.start().expect_ok();
    said.lines().filter_map(|line| line.split_once(' ')).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[test]
fn a_client_sees_the_card_and_the_service() {
    let node = Node::start();
    let seen = view(&node, &[], &[]);
    let (name, memory) = cumux_testkit::card();
    assert_eq!(seen["name"], name);
    assert_eq!(seen["multiprocessors"], "132");
    assert_eq!(seen["mps"], "1");
    assert!(memory.contains(&seen["total"].parse().unwrap()), "{seen:?}");
}

#[test]
fn a_memory_limit_is_kept_and_shown() {
    let node = Node::start();
    let seen = view(&node, &[("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1G")], &["2048"]);
    assert_eq!(seen["alloc"], "cudaErrorMemoryAllocation");
    assert!(seen["free"].parse::<u64>().unwrap() <= 1024, "{seen:?}");
    let (_, memory) = cumux_testkit::card();
    assert!(memory.contains(&seen["total"].parse().unwrap()), "as recorded: the limit shows in what is free: {seen:?}");
    let seen = view(&node, &[], &["2048"]);
    assert_eq!(seen["alloc"], "cudaSuccess");
}

/// Plain, pitched, from pools, managed, virtual memory and graph nodes: each gets all of the limit
/// and not a byte more, twice.
#[test]
fn a_limit_is_exact_for_every_way_of_allocating() {
    let node = Node::start();
    let said = node.test_client("limits").args(&["exact"]).env("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=600M").start().expect_ok();
    let mut lines = said.lines();
    assert_eq!(lines.next(), Some("start 600"), "{said}");
    for way in ["plain", "pitched", "pool", "managed", "vmm", "graph"] {
        for _ in 0..2 {
            assert_eq!(lines.next(), Some(format!("{way} 600 cudaSuccess 0 cudaErrorMemoryAllocation").as_str()), "{said}");
        }
    }
    assert_eq!(lines.next(), Some("end 600"), "{said}");
}

/// Two processes at their limits at the same time: neither ever has more, and neither is refused
/// what it may have.
#[test]
fn a_limit_holds_in_a_thousand_rounds_of_two_programs() {
    let node = Node::start();
    let mut clients: Vec<_> =
        (0..2).map(|_| node.test_client("limits").args(&["race", "512", "1000"]).env("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=512M").start()).collect();
    for client in &mut clients {
        client.wait_for_line("ready");
    }
    for client in &mut clients {
        client.tell("");
    }
    let pids: Vec<u32> = clients.iter().map(cumux_testkit::Client::pid).collect();
    for client in clients {
        let said = client.expect_ok();
        assert!(said.contains("rounds 1000 above 0 refused 0 wrong 0 highest 512"), "{said}");
    }
    for pid in pids {
        let peak = node.client_status(pid).expect("known").memory_peak;
        assert!(peak <= 512 << 20, "the service saw {peak} bytes");
    }
}

/// The daemon's default, a server's own value (which may be more), and what a client asks for
/// (which may only be less).
#[test]
fn a_limit_at_three_levels() {
    let node = Node::with().env("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=3G").start();
    let free = |environment: &[(&str, &str)]| view(&node, environment, &[])["free"].parse::<u64>().unwrap();
    assert_eq!(free(&[]), 3 << 10);
    let server = node.server().pid;
    assert_eq!(node.control(&format!("set_device_pinned_mem_limit {server} 0 4G\nget_device_pinned_mem_limit {server} 0")), "4G\n");
    assert_eq!(free(&[]), 4 << 10);
    assert_eq!(free(&[("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1G")]), 1 << 10);
    assert_eq!(free(&[("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=9G")]), 4 << 10);
    assert_eq!(free(&[("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1048576K,1=1G")]), 4 << 10, "as recorded: what cannot be read limits nothing");
}
