//! The text commands on a living node, as NVIDIA's daemon answers them.

use cumux_testkit::Node;
use rustix::process::geteuid;

#[test]
fn commands_and_answers_as_recorded() {
    let node = Node::start();
    for (command, answer) in [
        ("get_server_list", ""),
        ("ps", "Server not found\n"),
        ("help", "Unknown command \"help\"\n"),
        ("bogus_cmd", "Unknown command \"bogus_cmd\"\n"),
        ("GET_SERVER_LIST", "Unknown command \"GET_SERVER_LIST\"\n"),
        ("get_default_active_thread_percentage", "100.0\n"),
        ("set_default_active_thread_percentage 25", "25.0\n"),
        ("set_default_active_thread_percentage 250", "25.0\n"),
        ("set_default_active_thread_percentage abc", "25.0\n"),
        ("get_active_thread_percentage 99999", "Server 99999 not found\n"),
        ("get_default_device_pinned_mem_limit 0", ""),
        ("set_default_device_pinned_mem_limit 0 2G", ""),
        ("get_default_device_pinned_mem_limit 0", "2G\n"),
        ("set_default_device_pinned_mem_limit 7 2G", ""),
        ("set_default_device_pinned_mem_limit 0 zz", ""),
        ("get_default_device_pinned_mem_limit 0", "2G\n"),
        ("get_default_client_priority", "0\n"),
        ("set_default_client_priority 1", ""),
        ("set_default_client_priority 5", "Invalid priority value - must be 0 or 1!\n"),
        ("get_default_client_priority", "1\n"),
        ("get_server_status 99999", "Server 99999 not found\n"),
        ("ps -p", "Server 0 not found\nServer 0 not found\n\n"),
        ("shutdown_server 999", "Server 999 not found\n"),
        ("get_client_list", "Server 0 not found\n"),
        ("start_server", "A user id (UID) is required to start a new server\n"),
        ("", ""),
        ("quit_", "Unknown command \"quit_\"\n"),
    ] {
        assert_eq!(node.control(command), answer, "{command}");
    }
}

#[test]
fn several_commands_on_one_input_and_no_last_newline() {
    let node = Node::start();
    let text = node.control("get_default_active_thread_percentage\n\nbogus\nget_default_client_priority");
    assert_eq!(text, "100.0\nUnknown command \"bogus\"\n0\n");
}

#[test]
fn a_server_and_its_clients_in_every_list() {
    let node = Node::start();
    let mut client = node.test_client("idle").start();
    client.wait_for_line("ready");
    let (server, pid) = (node.server().pid, client.pid());
    assert_eq!(node.control("get_server_list"), format!("{server}\n"));
    assert_eq!(node.control(&format!("get_server_status {server}")), "ACTIVE\n");
    assert_eq!(node.control(&format!("get_client_list {server}")), format!("{pid}\n"));
    let table = node.control("ps");
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines[0], "PID       ID        SERVER         DEVICE                    NAMESPACE      COMMAND        ");
    let words: Vec<&str> = lines[1].split_whitespace().collect();
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap();
    assert_eq!((words[0], words[2]), (pid.to_string().as_str(), server.to_string().as_str()));
    assert!(words[3].starts_with("GPU-") && words[3].len() == 22, "{table}");
    assert!(namespace.to_string_lossy().contains(words[4]), "{table}");
    assert!(words[5].ends_with("idle"), "{table}");
    assert_eq!(node.control(&format!("ps -p {server}")), table);
    let devices = node.control("device_query");
    assert!(devices.starts_with("Default\nDevice Ordinal  PCI IDs        UUID"), "{devices}");
    assert!(devices.contains(&format!("\nServer {server}\n")), "{devices}");
    assert_eq!(devices.matches(&cumux_testkit::card().0).count(), 2, "{devices}");
    assert!(node.control("get_device_client_list").contains(&format!("{pid}.1\n")));
    client.tell("");
    client.wait_for_line("round 1 right");
}

#[test]
fn quit_waits_for_clients_and_with_a_time_does_not() {
    let node = Node::start();
    let mut client = node.test_client("view").start();
    client.wait_for_line("ready");
    let output = node.control_output("quit -t 1");
    assert!(output.status.success(), "{output:?}");
    assert!(node.control_output("get_server_list").stdout.is_empty());
    client.tell("");
    let outcome = client.wait();
    assert!(outcome.out.contains("sync cudaErrorMpsRpcFailure"), "the client is told: {outcome:?}");
}

#[test]
fn shutdown_lets_clients_finish() {
    let node = Node::start();
    let mut client = node.test_client("idle").start();
    client.wait_for_line("ready");
    let server = node.server().pid;
    assert_eq!(node.control(&format!("shutdown_server {server}")), "");
    client.tell("");
    client.wait_for_line("round 1 right");
    assert_eq!(node.control("get_server_list"), format!("{server}\n"));
    client.expect_ok();
    node.wait_for("the end of the server", |node| node.control("get_server_list").is_empty().then_some(()));
    // The next client gets a new one.
    node.client("vector_add").args(&["1"]).start().expect_ok();
    assert_ne!(node.server().pid, server);
}

#[test]
fn start_server_is_ready_when_it_returns() {
    let node = Node::start();
    assert_eq!(node.control(&format!("start_server -uid {}", geteuid().as_raw())), "");
    let list = node.control("get_server_list");
    let server: u32 = list.trim().parse().expect("one pid");
    assert_eq!(node.control(&format!("get_server_status {server}")), "ACTIVE\n");
    assert_eq!(node.control(&format!("start_server -uid {}", geteuid().as_raw())), "", "again is no error");
    assert_eq!(node.control("get_server_list"), list);
}

/// One user's server at a time, as in MPS: the other user waits until the first one's clients are
/// gone.
#[test]
fn another_user_waits_for_its_turn() {
    if !geteuid().is_root() {
        eprintln!("NOTE: not tested: two users need root");
        return;
    }
    const OTHER: u32 = 65534;
    let node = Node::with().prepare(|folder| std::fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap()).start();
    let mut first = node.test_client("idle").start();
    first.wait_for_line("ready");
    let server = node.server();
    assert_eq!(server.uid, 0);
    let other = node.test_client("idle").user(OTHER).start();
    let log = || std::fs::read_to_string(node.folder().join("log/control.log")).unwrap();
    node.wait_for("the other user in the queue", |_| log().contains("from user 65534: Server is not ready, push client to pending list").then_some(()));
    first.tell("");
    first.wait_for_line("round 1 right");
    assert_eq!(node.control("get_server_list"), format!("{}\n", server.pid));
    first.expect_ok();
    other.wait_for_line("ready");
    let next = node.server();
    assert_eq!((next.uid, next.clients.len()), (OTHER, 1));
    assert_ne!(next.pid, server.pid);
    // And back.
    let third = node.client("vector_add").args(&["1"]).start();
    other.expect_ok();
    third.expect_ok();
    assert_eq!(node.server().uid, 0);
    assert!(node.control_output("quit").status.success());
    assert!(!node.pipe().join("user-65534").exists(), "nothing is left of the other user");
}

/// In multi-user mode nobody waits, and different users have servers, and so executors, of their
/// own.
#[test]
fn users_at_the_same_time() {
    if !geteuid().is_root() {
        eprintln!("NOTE: not tested: two users need root");
        return;
    }
    const OTHER: u32 = 65534;
    let node = Node::with().prepare(|folder| std::fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap()).start();
    assert!(node.control_output("quit").status.success());
    assert!(node.daemon_command().arg("-multiuser-server").status().unwrap().success());
    let (first, other) = (node.test_client("idle").start(), node.test_client("idle").user(OTHER).start());
    first.wait_for_line("ready");
    other.wait_for_line("ready");
    let servers = node.servers();
    let users: std::collections::BTreeSet<u32> = servers.iter().map(|server| server.uid).collect();
    assert_eq!(users, [0, OTHER].into());
    assert!(servers[0].executor != servers[1].executor && servers.iter().all(|server| server.clients.len() == 1), "{servers:?}");
    assert_eq!(node.control("ps").lines().count(), 3);
    first.expect_ok();
    other.expect_ok();
}

/// Taken or passed over in silence towards the program, as recorded; the log and the doctor tell.
#[test]
fn what_is_swallowed_is_told_elsewhere() {
    let node = Node::start();
    assert_eq!(node.control("set_default_device_pinned_mem_limit 0 zz"), "");
    assert_eq!(node.control("set_default_device_pinned_mem_limit 7 2G"), "");
    let client = node.test_client("view").env("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1048576K").env("CUDA_MPS_CLIENT_PRIORITY", "high");
    client.start().expect_ok();
    let log = std::fs::read_to_string(node.folder().join("log/control.log")).unwrap();
    let output = node.cumux(&["doctor"]).output().unwrap();
    let doctor = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "a warning is no problem: {doctor}");
    for word in ["set_default_device_pinned_mem_limit 0 zz", "there is no device 7", "0=1048576K", "CUDA_MPS_CLIENT_PRIORITY=high"] {
        assert!(log.contains(word) && doctor.contains(word), "{word}\n{log}\n{doctor}");
    }
}

/// The limit of clients is CUMUX_MAX_CLIENTS; one more gets CUDA_ERROR_MPS_MAX_CLIENTS_REACHED, and
/// a place that is free again is given out.
#[test]
fn one_client_too_many() {
    let node = Node::with().env("CUMUX_MAX_CLIENTS", "2").start();
    let all: Vec<_> = (0..2).map(|_| node.test_client("idle").start()).collect();
    all.iter().for_each(|client| client.wait_for_line("ready"));
    let outcome = node.test_client("view").start().wait();
    assert_eq!((outcome.status.code(), outcome.out.as_str()), (Some(3), "count: cudaErrorMpsMaxClientsReached"), "{outcome:?}");
    let log = std::fs::read_to_string(node.folder().join("log/server.log")).unwrap();
    assert!(log.contains("Context ID: 0} with status 808"), "{log}");
    for client in all {
        client.expect_ok();
    }
    // The server hears of an end a moment after the program's parent.
    node.wait_for("the end of both", |node| node.servers().into_iter().find(|server| server.clients.is_empty()));
    node.test_client("view").start().expect_ok();
}
