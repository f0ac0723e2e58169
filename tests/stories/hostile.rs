//! Hostile input on the control socket: each gets an answer or is left at once, and the daemon
//! serves as before.

use cumux_testkit::Node;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

fn connect(node: &Node) -> UnixStream {
    UnixStream::connect(node.pipe().join("control")).expect("the daemon listens")
}

fn read(mut stream: UnixStream) -> String {
    let mut bytes = Vec::new();
    // A daemon that still has unread input when it closes resets the connection: what came before
    // counts.
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn still_serves(node: &Node) {
    assert_eq!(node.control("get_default_active_thread_percentage"), "100.0\n");
    node.client("vector_add").args(&["1"]).start().expect_ok();
}

#[test]
fn ten_megabytes_of_garbage() {
    let node = Node::start();
    // Bytes that are no text, text without a line end, forty thousand lines of nonsense.
    let noise: Vec<u8> = (0..10_usize << 20).map(|at| ((at * 7919) >> 5) as u8).collect();
    for garbage in [noise, vec![b'x'; 10 << 20], b"nonsense of some length\n".repeat(40_000)] {
        let stream = connect(&node);
        let reader = stream.try_clone().expect("a descriptor");
        let writer = std::thread::spawn(move || {
            let mut stream = stream;
            // The daemon may leave in the middle.
            let _ = stream.write_all(&garbage);
            let _ = stream.shutdown(Shutdown::Write);
        });
        let said = read(reader);
        writer.join().expect("no panic in here");
        let first = said.lines().next().unwrap_or("");
        assert!(["", "A command has at most 4096 bytes: one command a line", "Unknown command \"nonsense\""].contains(&first), "{first}");
    }
    still_serves(&node);
}

#[test]
fn a_thousand_connections_at_once() {
    let node = Node::start();
    let silent: Vec<UnixStream> = (0..400).map(|_| connect(&node)).collect();
    let mut asking: Vec<UnixStream> = (0..600).map(|_| connect(&node)).collect();
    for stream in &mut asking {
        stream.write_all(b"get_default_client_priority\n").expect("the daemon reads");
        stream.shutdown(Shutdown::Write).expect("our own socket");
    }
    for stream in asking {
        assert_eq!(read(stream), "0\n");
    }
    drop(silent);
    still_serves(&node);
}

/// Half a command and then nothing: told so and left, and nobody else waits meanwhile.
#[test]
fn half_a_command() {
    let node = Node::start();
    let mut half = connect(&node);
    half.write_all(b"get_server_l").unwrap();
    assert_eq!(node.control("get_default_client_priority"), "0\n");
    assert_eq!(read(half), "A command came without its end within 2 seconds: end it with a new line\n");
    // Closed in the middle: what is there counts, as at the end of any input.
    let mut closed = connect(&node);
    closed.write_all(b"get_default_client_priority").unwrap();
    closed.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read(closed), "0\n");
    let mut binary = connect(&node);
    binary.write_all(b"ps \x07\x01\n").unwrap();
    assert_eq!(read(binary), "A command is printable text\n");
    still_serves(&node);
}

#[test]
fn every_command_with_missing_extra_and_absurd_arguments() {
    const COMMANDS: [&str; 26] = [
        "get_server_list",
        "get_server_status",
        "start_server -uid",
        "shutdown_server",
        "get_client_list",
        "get_device_client_list",
        "ps -p",
        "set_default_active_thread_percentage",
        "get_default_active_thread_percentage",
        "set_active_thread_percentage",
        "get_active_thread_percentage",
        "set_default_device_pinned_mem_limit",
        "get_default_device_pinned_mem_limit",
        "set_device_pinned_mem_limit",
        "get_device_pinned_mem_limit",
        "set_default_client_priority",
        "get_default_client_priority",
        "terminate_client",
        "device_query",
        "sm_partition",
        "sm_partition add",
        "sm_partition rm",
        "lspart",
        "help",
        "set_share",
        "status",
    ];
    const ABSURD: [&str; 9] = ["", "x", "-1", "99999999999999999999999999", "1 2 3 4 5 6", "\"", "é ü", "%s %n", "-f -f -t -p"];
    let node = Node::start();
    let mut input = String::new();
    for command in COMMANDS {
        for arguments in ABSURD {
            input.push_str(&format!("{command} {arguments}\n"));
        }
    }
    let output = node.control_output(&input);
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.len() > 1000);
    assert_eq!(node.control("set_default_active_thread_percentage 100"), "100.0\n");
    for wrong in ["quit -t", "quit -t x", "quit -t -1"] {
        assert_eq!(node.control(wrong), "It is written: quit, or quit -t <seconds>\n", "and nothing is ended");
    }
    assert_eq!(node.control("quit now"), "", "quit takes no notice of what follows it");
    node.start_daemon();
    still_serves(&node);
}

/// A user who is neither root nor the daemon's own may look and change nothing.
#[test]
fn a_wrong_user() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("NOTE: not tested: another user needs root");
        return;
    }
    let node = Node::with().prepare(|folder| std::fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap()).start();
    let program = node.folder().join("cumux");
    std::fs::copy(cumux_testkit::cumux(), &program).unwrap();
    let ask = |command: &str| {
        let mut child = Command::new(&program);
        child.args(["control"]).args(command.split(' ')).env("CUDA_MPS_PIPE_DIRECTORY", node.pipe()).uid(65534).gid(65534).stdin(Stdio::null());
        String::from_utf8(child.output().expect("cumux starts").stdout).expect("text")
    };
    assert_eq!(ask("get_default_client_priority"), "0\n");
    for command in ["quit", "set_default_active_thread_percentage 5", "terminate_client 1 2", "sm_partition add GPU-1 1", "start_server -uid 0"] {
        assert!(ask(command).starts_with("Permission denied: only root"), "{command}: {}", ask(command));
    }
    still_serves(&node);
}
