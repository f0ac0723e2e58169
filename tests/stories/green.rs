//! Green contexts of a program's own: parts of its share, where kernels really run (`%smid` of a
//! thousand blocks), and what becomes of them when the executor ends.

use cumux_testkit::Node;
use std::collections::BTreeSet;

const PERCENTAGE: &str = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";

fn ask(node: &Node, arguments: &[&str], environment: &[(&str, &str)]) -> String {
    let client = environment.iter().fold(node.test_client("green").args(arguments), |client, (name, value)| client.env(name, value));
    client.start().expect_ok()
}

/// The sets in all lines that begin with this word.
fn sets(said: &str, word: &str) -> Vec<BTreeSet<u32>> {
    let values = |line: &str| line.split(' ').skip(1).map(|value| value.parse().expect("a number")).collect();
    let found: Vec<BTreeSet<u32>> = said.lines().filter(|line| line.split(' ').next() == Some(word)).map(values).collect();
    assert!(!found.is_empty(), "no {word} in {said}");
    found
}

fn set(said: &str, word: &str) -> BTreeSet<u32> {
    sets(said, word).pop().expect("one")
}

fn has_lines(said: &str, lines: &[&str]) {
    for line in lines {
        assert!(said.lines().any(|other| other == *line), "no line {line:?} in {said}");
    }
}

/// Minimum and alignment follow the card; the percentage is what there is to split.
#[test]
fn green_resources_are_the_program_s_share() {
    let node = Node::start();
    let said = ask(&node, &["resources"], &[]);
    has_lines(&said, &["device 1 132 8 8", "context 1 132 8 8", "query 0 CUDA_SUCCESS 8", "split 0 CUDA_SUCCESS 2", "group 1 16 8 8", "rest 1 100 8 2"]);
    has_lines(&said, &["query 1 CUDA_SUCCESS 13", "group 1 10 2 2", "rest 1 112 2 2", "query 2 CUDA_SUCCESS 8", "many 1 2 2 2", "count 64 1"]);
    has_lines(&said, &["inner 1 116 8 8", "again 1 16 8 8", "left 1 100 8 2", "inside 1 116 16"]);
    let said = ask(&node, &["resources"], &[(PERCENTAGE, "50")]);
    has_lines(&said, &["device 1 66 8 8", "query 0 CUDA_SUCCESS 4", "count 33 0", "inner 1 50 8 8", "inside 1 50 16"]);
}

#[test]
fn green_resources_follow_the_compute_capability() {
    for (model, lines) in [
        ("sim:a100", ["device 1 108 4 2", "query 0 CUDA_SUCCESS 10", "query 2 CUDA_ERROR_INVALID_VALUE 0"]),
        ("sim:t4", ["device 1 40 2 2", "query 0 CUDA_SUCCESS 4", "query 2 CUDA_ERROR_INVALID_VALUE 0"]),
    ] {
        let node = Node::with().device(model).start();
        has_lines(&ask(&node, &["resources"], &[]), &lines);
    }
}

#[test]
fn green_mistakes_are_told_apart() {
    let node = Node::start();
    let said = ask(&node, &["errors"], &[]);
    let expected = [
        ("type", "INVALID_RESOURCE_TYPE"),
        ("other type", "INVALID_RESOURCE_TYPE"),
        ("device", "INVALID_DEVICE"),
        ("nowhere", "INVALID_VALUE"),
        ("green of nothing", "INVALID_CONTEXT"),
        ("no count", "INVALID_VALUE"),
        ("no input", "INVALID_VALUE"),
        ("invalid input", "INVALID_RESOURCE_TYPE"),
        ("made up input", "INVALID_VALUE"),
        ("flags", "INVALID_VALUE"),
        ("too many", "INVALID_VALUE"),
        ("rounded too far", "INVALID_RESOURCE_CONFIGURATION"),
        ("no groups", "INVALID_VALUE"),
        ("split twice", "INVALID_RESOURCE_CONFIGURATION"),
        ("rest split", "INVALID_RESOURCE_CONFIGURATION"),
        ("nothing described", "INVALID_VALUE"),
        ("described nowhere", "INVALID_VALUE"),
        ("described none", "INVALID_RESOURCE_TYPE"),
        ("same twice", "INVALID_RESOURCE_CONFIGURATION"),
        ("two sources", "INVALID_RESOURCE_CONFIGURATION"),
        ("no flags", "INVALID_VALUE"),
        ("unknown flags", "INVALID_VALUE"),
        ("no description", "INVALID_VALUE"),
        ("wrong device", "INVALID_DEVICE"),
        ("to nowhere", "INVALID_VALUE"),
        ("blocking stream", "INVALID_VALUE"),
        ("unknown stream flags", "INVALID_VALUE"),
        ("stream of nothing", "INVALID_CONTEXT"),
        ("not converted", "INVALID_CONTEXT"),
        ("destroyed as a context", "INVALID_CONTEXT"),
        ("destroyed twice", "INVALID_CONTEXT"),
        ("made current too late", "INVALID_CONTEXT"),
    ];
    let mut lines: Vec<String> = expected.iter().map(|(what, error)| format!("{what}: CUDA_ERROR_{error}")).collect();
    lines.extend(["group and rest: CUDA_SUCCESS", "destroyed: CUDA_SUCCESS"].map(str::to_owned));
    has_lines(&said, &lines.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(said.lines().count(), lines.len(), "{said}");
}

/// Each on its own multiprocessors, whatever runs beside; the sums are right.
#[test]
fn green_contexts_run_beside_each_other() {
    let node = Node::start();
    let neighbour = node.test_client("shares").env(PERCENTAGE, "50").start();
    neighbour.wait_for_line("ready 0");
    let said = ask(&node, &["run", "64"], &[]);
    let (first, second) = (set(&said, "first"), set(&said, "second"));
    assert_eq!((first.len(), second.len(), first.intersection(&second).count()), (64, 64, 0));
    assert_eq!(set(&said, "outside").len(), 132, "the device's own streams run everywhere");
    neighbour.expect_ok();

    // Under a share they are parts of it.
    let said = ask(&node, &["run", "32"], &[(PERCENTAGE, "50")]);
    let (first, second, outside) = (set(&said, "first"), set(&said, "second"), set(&said, "outside"));
    has_lines(&said, &["device 1 66 8 8"]);
    assert_eq!((first.len(), second.len(), first.intersection(&second).count(), outside.len()), (32, 32, 0, 66));
    assert!(first.is_subset(&outside) && second.is_subset(&outside));
}

/// The executor is killed while both work, and again while nothing runs: the successor has the
/// parts, and no sum is wrong.
#[test]
fn green_contexts_outlive_their_executor() {
    let node = Node::start();
    let mut client = node.test_client("green").args(&["run", "64"]).start();
    client.wait_for_line("busy 0");
    node.kill(node.server().executor);
    client.wait_for_line("ready 0");
    node.wait_for("a new standby", |node| (node.server().standby != 0).then_some(()));
    node.kill(node.server().executor);
    client.tell("");
    client.wait_for_line("ready 1");
    let said = client.expect_ok();
    let (first, second) = (sets(&said, "first"), sets(&said, "second"));
    assert_eq!((first.len(), second.len()), (2, 2));
    for (first, second) in first.iter().zip(&second) {
        assert_eq!((first.len(), second.len(), first.intersection(second).count()), (64, 64, 0));
    }
    assert_eq!((&first[0], &second[0]), (&first[1], &second[1]), "the same ones");
    assert_eq!(node.server().takeovers, 2);
}

/// A green context shrinks with the share, and grows no larger than it was made. On a card the
/// share stays as it is, and who would change it is told so.
#[test]
fn green_contexts_when_the_share_changes() {
    let node = Node::start();
    let mut client = node.test_client("green").args(&["run", "64"]).start();
    client.wait_for_line("ready 0");
    let pid = client.pid().to_string();
    for (turn, percent) in [(1, "12.5"), (2, "100")] {
        let output = node.cumux(&["set-share", &pid, percent]).output().expect("cumux starts");
        assert!(output.status.success() || !node.is_software(), "{output:?}");
        if !node.is_software() && turn == 1 {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(said.contains("shares of their own, which cannot be changed while they live"), "{output:?}");
        }
        client.tell("");
        client.wait_for_line(&format!("ready {turn}"));
    }
    let said = client.expect_ok();
    let sizes = |word: &str| sets(&said, word).iter().map(BTreeSet::len).collect::<Vec<_>>();
    let (small, all) = if node.is_software() { (16, 16) } else { (64, 132) };
    assert_eq!((sizes("first"), sizes("second"), sizes("outside")), (vec![64, small, 64], vec![64, small, 64], vec![132, all, 132]));
}

#[test]
fn a_green_context_is_made_current() {
    let node = Node::start();
    let said = ask(&node, &["current"], &[]);
    has_lines(&said, &["id of none CUDA_ERROR_INVALID_CONTEXT", "counter 1", "green 0", "counter 2", "current 1", "ids 1 1 1", "device 0"]);
    has_lines(&said, &["of the stream 1 1 1", "resource 1 16 8 8", "occupancy 132 16"]);
    has_lines(
        &said,
        &["cooperative 0 cudaSuccess", "cooperative 1 cudaErrorCooperativeLaunchTooLarge", "graph cudaErrorCooperativeLaunchTooLarge cudaSuccess"],
    );
    let (outside, null, made, branches) = (set(&said, "outside"), set(&said, "null"), set(&said, "made"), set(&said, "branches"));
    assert_eq!((outside.len(), null.len()), (132, 16));
    assert!(null == made && null == branches && null.is_subset(&outside), "{said}");
}

#[test]
fn events_of_green_contexts() {
    let node = Node::start();
    let said = ask(&node, &["events"], &[]);
    has_lines(&said, &["held 1 1 1", "half 1 1 1", "open 0 0 0 3", "captured CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED CUDA_SUCCESS"]);
    has_lines(&said, &["spoilt cudaErrorStreamCaptureInvalidated"]);
}

#[test]
fn what_ends_with_a_green_context() {
    let node = Node::start();
    let said = ask(&node, &["life"], &[]);
    has_lines(&said, &["counter 1", "launch cudaErrorContextIsDestroyed", "query CUDA_ERROR_CONTEXT_IS_DESTROYED", "destroy CUDA_ERROR_CONTEXT_IS_DESTROYED"]);
    has_lines(&said, &["another CUDA_ERROR_INVALID_HANDLE", "used 16"]);
    assert_eq!(said.lines().filter(|line| line.starts_with("active ")).collect::<Vec<_>>(), ["active 1", "active 0", "active 1", "active 0"]);
}
