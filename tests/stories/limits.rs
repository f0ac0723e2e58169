//! Shares and limits that administrators set.

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
    assert_eq!(seen["name"], "NVIDIA H200");
    assert_eq!(seen["multiprocessors"], "132");
    assert_eq!(seen["mps"], "1");
    assert_eq!(seen["total"], "143155");
}

/// Percentages and SM counts as recorded from NVIDIA's daemon on an H200.
#[test]
fn percentages_become_the_recorded_sm_counts() {
    let node = Node::start();
    for (percent, multiprocessors) in
        [("1", "8"), ("10", "12"), ("12", "14"), ("25", "32"), ("33", "42"), ("50", "66"), ("99", "130"), ("100", "132"), ("abc", "132"), ("150", "132")]
    {
        let seen = view(&node, &[("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", percent)], &[]);
        assert_eq!(seen["multiprocessors"], multiprocessors, "{percent} %");
    }
}

#[test]
fn a_server_percentage_holds_for_later_clients_and_only_tightens() {
    let node = Node::start();
    let uid = rustix::process::geteuid().as_raw();
    assert_eq!(node.control(&format!("start_server -uid {uid}")), "");
    let server = node.server().pid;
    assert_eq!(node.control(&format!("set_active_thread_percentage {server} 50")), "50.0\n");
    assert_eq!(view(&node, &[], &[])["multiprocessors"], "66");
    assert_eq!(view(&node, &[("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "20")], &[])["multiprocessors"], "26");
    assert_eq!(view(&node, &[("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "80")], &[])["multiprocessors"], "66");
}

#[test]
fn a_memory_limit_is_kept_and_shown() {
    let node = Node::start();
    let seen = view(&node, &[("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1G")], &["2048"]);
    assert_eq!(seen["alloc"], "cudaErrorMemoryAllocation");
    assert!(seen["free"].parse::<u64>().unwrap() <= 1024, "{seen:?}");
    assert_eq!(seen["total"], "143155", "as recorded: the limit shows in what is free");
    let seen = view(&node, &[], &["2048"]);
    assert_eq!(seen["alloc"], "cudaSuccess");
}
