//! What programs keep on the card beside their allocations outlives the executor, or the program is
//! told.

use cumux_testkit::Node;
use cumux_wire::message::ServerStatus;

/// A server with a standby, after so many takeovers.
fn ready_server(node: &Node, takeovers: u32) -> ServerStatus {
    node.wait_for("a server with a standby", |node| {
        node.servers().into_iter().find(|server| server.state == "ACTIVE" && server.executor != 0 && server.standby != 0 && server.takeovers == takeovers)
    })
}

/// The program goes on right after each of two executors was killed while it was idle. Returns what
/// it has said.
fn goes_on(program: &str) -> String {
    let node = Node::start();
    let mut client = node.test_client(program).start();
    client.wait_for_line("ready");
    for phase in 1..=5_u32 {
        client.tell("");
        client.wait_for_line(&format!("phase {phase} right"));
        if phase % 2 == 0 {
            let server = ready_server(&node, phase / 2 - 1);
            node.kill(server.executor);
        }
    }
    client.close_input();
    let said = client.expect_ok();
    assert_eq!(node.server().takeovers, 2);
    said
}

/// The same, of a program whose variables are read by kernels and copies.
fn goes_on_with_variables(program: &str) {
    let said = goes_on(program);
    assert_eq!(said.matches("of a kernel").count(), 5, "{said}");
}

/// Physical memory of the host, at reserved addresses, and the program's own memory.
#[test]
fn memory_of_the_host_outlives_executors() {
    let said = goes_on("host_memory");
    assert!(said.trim_end().ends_with("PASS"), "{said}");
}

#[test]
fn variables_outlive_executors() {
    goes_on_with_variables("variables");
}

#[test]
fn variables_of_code_without_optimisation_outlive_executors() {
    goes_on_with_variables("variables_debug");
}

/// What the driver makes of PTX on a card has functions where it pleases: a variable that is
/// initialised with the address of one cannot survive there. Its program is told, and who reads the
/// log knows before.
#[test]
fn variables_of_ptx_outlive_executors_or_their_program_is_told() {
    let node = Node::start();
    if node.is_software() {
        return goes_on_with_variables("variables_text");
    }
    let mut client = node.test_client("variables_text").start();
    client.wait_for_line("ready");
    client.tell("");
    client.wait_for_line("phase 1 right");
    node.kill(ready_server(&node, 0).executor);
    client.tell("");
    let outcome = client.wait();
    assert!(outcome.out.contains("FAIL: ") && !outcome.out.contains("phase 2 right"), "{outcome:?}");
    let log = node.logs();
    assert!(log.contains("would end with an error if this executor were replaced") && log.contains("address of"), "{log}");
}

/// A program that has copied into a `__constant__` array does not read zeros there after a
/// neighbour's fault, which on a real card ends the executor.
#[test]
fn constants_outlive_a_neighbours_fault() {
    let node = Node::start();
    let mut client = node.test_client("variables").start();
    client.wait_for_line("ready");
    for phase in 1..=3 {
        client.tell("");
        client.wait_for_line(&format!("phase {phase} right"));
        let said = node.client("illegal_access").start().expect_ok();
        assert!(said.contains("told of the illegal address"), "{said}");
    }
    client.close_input();
    client.expect_ok();
}

/// Memory that kernels allocate is the card's own and ends with the executor: its program is told,
/// and so is who reads the log, before it happens.
#[test]
fn a_program_whose_kernels_allocate_is_told() {
    let node = Node::start();
    let mut client = node.test_client("heap").start();
    client.wait_for_line("ready");
    let warned = node.wait_for("a warning", |node| {
        let log = std::fs::read_to_string(node.folder().join("log/server.log")).unwrap_or_default();
        log.lines().find(|line| line.contains("would end with an error if this executor were replaced")).map(str::to_owned)
    });
    assert!(warned.contains("/heap)") && warned.contains("malloc"), "{warned}");
    node.kill(ready_server(&node, 0).executor);
    client.tell("");
    let said = client.expect_ok();
    assert!(said.contains("told cudaError"), "{said}");
}
