//! Images: broken ones get a clear error and the program goes on, and none outlives its clients.

use cumux_testkit::Node;

#[test]
fn broken_images_are_refused_with_reasons() {
    let node = Node::start();
    let said = node.test_client("images").start().expect_ok();
    let line = |what: &str| said.lines().find(|line| line.starts_with(what)).unwrap_or_else(|| panic!("no line about {what}:\n{said}")).to_owned();
    assert!(line("truncated fatbin").contains("CUDA_ERROR_INVALID_IMAGE"), "{said}");
    let syntax = line("syntax error");
    assert!(syntax.contains("CUDA_ERROR_INVALID_PTX"), "{said}");
    // On a real card the driver's assembler says it, in its words.
    assert!(syntax.contains(if node.is_software() { "line 7, column 17" } else { "line 7" }), "the place is told: {syntax}");
    let unknown = line("unknown instruction");
    assert!(unknown.contains("frobnicate") && unknown.contains("line 6"), "{unknown}");
    assert!(!line("no image").contains("CUDA_SUCCESS"), "{said}");
    assert!(!line("empty").contains("CUDA_SUCCESS"), "{said}");
}

/// Images that a process has open.
fn images_of(pid: u32) -> usize {
    let links = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links.filter(|link| link.to_string_lossy().starts_with("/memfd:cumux-image")).count()
}

/// As long as a server lives its keeper and executors have the images of clients that live, and no
/// others.
#[test]
fn images_go_with_their_clients() {
    let node = Node::start();
    let mut stays = node.test_client("idle").start();
    stays.wait_for_line("ready");
    let server = node.server();
    let own = images_of(server.keeper);
    assert!(own > 0, "its own are kept");
    for _ in 0..3 {
        node.client("vector_add").args(&["1"]).start().expect_ok();
    }
    for (pid, name) in [(server.keeper, "keeper"), (server.executor, "executor"), (server.standby, "standby")] {
        node.wait_for(&format!("the {name} without images of those that have gone"), |_| (images_of(pid) <= own).then_some(()));
    }
    node.kill(server.executor);
    stays.tell("");
    stays.wait_for_line("round 1 right");
    assert_eq!(images_of(server.keeper), own, "they are there for the next one, too");
    stays.expect_ok();
    node.wait_for("a keeper without images", |_| (images_of(server.keeper) == 0).then_some(()));
}
