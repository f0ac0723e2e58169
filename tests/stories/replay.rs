//! A session with NVIDIA's control daemon, recorded on an H200, again with ours: answer for answer
//! and exit status for exit status.
//!
//! `tests/replay/session-580.txt` has both, and the reason for each difference; COMPATIBILITY.md is
//! made from it.

use cumux_testkit::{Client, Node};

const SESSION: &str = include_str!("../replay/session-580.txt");

/// One line of the session and what belongs to it.
#[derive(Debug)]
enum Step {
    Command { input: String, recorded: Vec<String>, status: i32, differs: Option<Vec<String>> },
    Action(String),
}

fn steps() -> Vec<Step> {
    let mut steps = Vec::new();
    let mut in_difference = false;
    for line in SESSION.lines() {
        if let Some(input) = line.strip_prefix(">>> ") {
            in_difference = false;
            steps.push(Step::Command { input: input.to_owned(), recorded: Vec::new(), status: 0, differs: None });
        } else if let Some(action) = line.strip_prefix("! ") {
            in_difference = false;
            steps.push(Step::Action(action.to_owned()));
        } else if let Some(Step::Command { recorded, status, differs, .. }) = steps.last_mut() {
            if let Some(number) = line.strip_prefix("[rc=") {
                *status = number.trim_end_matches(']').parse().expect("an exit status");
            } else if line == "differs:" {
                in_difference = true;
                *differs = Some(Vec::new());
            } else if line.starts_with("because:") {
                in_difference = false;
            } else if let (true, Some(ours)) = (in_difference, differs.as_mut()) {
                ours.push(line.to_owned());
            } else if !in_difference {
                recorded.push(line.to_owned());
            }
        }
    }
    steps
}

/// Widths of the columns of `ps` and `device_query`.
const PS: [usize; 5] = [10, 10, 15, 26, 15];
const QUERY: [usize; 4] = [16, 15, 42, 34];

/// Numbers that differ from run to run, by the place they stand in.
fn normal(line: &str, server: &str) -> String {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let cell = |text: &str| -> String {
        if text == server {
            "SERVER".into()
        } else if text.starts_with("GPU-") {
            "UUID".into()
        } else if text.len() == 13 && text.starts_with("0000:") {
            "PCI".into()
        } else {
            text.into()
        }
    };
    if line == format!("Server {server}") {
        return "Server SERVER".into();
    }
    if line == server {
        return "SERVER".into();
    }
    if is_number(line) && line.len() > 1 {
        return "PID".into();
    }
    if line.strip_suffix(".1").is_some_and(|pid| is_number(pid) && pid.len() > 2) {
        return "PID.1".into();
    }
    if line.contains(',') && line.contains("GPU-") {
        return line.split(',').map(cell).collect::<Vec<_>>().join(",");
    }
    let widths: &[usize] = if line.contains("GPU-") && line.contains("NVIDIA") {
        &QUERY
    } else if line.contains("GPU-") {
        &PS
    } else {
        return line.to_owned();
    };
    let mut text = String::new();
    let mut rest = line;
    for (place, width) in widths.iter().enumerate() {
        let (head, tail) = rest.split_at((*width).min(rest.len()));
        let head = match place {
            _ if widths.len() == QUERY.len() => cell(head.trim_end()),
            0 => "PID".into(),
            1 => "ID".into(),
            4 => "NAMESPACE".into(),
            _ => cell(head.trim_end()),
        };
        text.push_str(&format!("{head:<width$}"));
        rest = tail;
    }
    let last = if widths.len() == PS.len() { "PROGRAM" } else { rest };
    text + last
}

#[test]
fn the_recorded_session_again() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("NOTE: not tested: the session was recorded as root");
        return;
    }
    let node = Node::start();
    let mut clients: Vec<Client<'_>> = Vec::new();
    let mut server = String::new();
    let mut faults = Vec::new();
    for step in steps() {
        match step {
            Step::Command { input, recorded, status, differs } => {
                if server.is_empty() {
                    server = node.servers().first().map(|server| server.pid.to_string()).unwrap_or_default();
                }
                let first = clients.first().map(|client| client.pid().to_string()).unwrap_or_default();
                let words = input.split(' ').map(|word| match word {
                    "SERVER" => server.as_str(),
                    "CLIENT" => first.as_str(),
                    _ => word,
                });
                let typed = words.collect::<Vec<_>>().join(" ").replace(';', "\n");
                let output = node.control_output(&typed);
                let said = String::from_utf8(output.stdout).expect("text");
                let lines: Vec<String> = said.lines().map(|line| normal(line, &server)).collect();
                let expected = differs.as_ref().unwrap_or(&recorded);
                if lines != *expected || output.status.code() != Some(status) {
                    faults.push(format!("{typed:?}: {:?}\n{}\nrecorded:\n{}", output.status.code(), lines.join("\n"), expected.join("\n")));
                }
                if differs.is_some_and(|ours| ours == recorded) {
                    faults.push(format!("{input} is said to differ and does not"));
                }
            }
            Step::Action(action) => act(&node, &mut clients, &action),
        }
    }
    assert!(faults.is_empty(), "{}\n{}", faults.join("\n\n"), node.logs());
}

fn act<'a>(node: &'a Node, clients: &mut Vec<Client<'a>>, action: &str) {
    match action.split_whitespace().collect::<Vec<_>>()[..] {
        ["clients", count] => {
            for _ in 0..count.parse().expect("a count") {
                let client = node.test_client("view").start();
                client.wait_for_line("ready");
                clients.push(client);
            }
        }
        // Programs that end by themselves.
        ["end"] => {
            for client in clients.drain(..) {
                let _ = client.wait();
            }
            node.wait_for("the end of all clients", |node| node.servers().iter().all(|server| server.clients.is_empty()).then_some(()));
        }
        ["fault"] => {
            let outcome = node.client("illegal_access").start().wait();
            assert!(outcome.out.contains("llegal") || outcome.err.contains("llegal") || !outcome.status.success(), "{outcome:?}");
        }
        ["kill"] => {
            clients.remove(0).kill();
            node.wait_for("the end of the killed client", |node| node.servers().iter().all(|server| server.clients.is_empty()).then_some(()));
        }
        ["terminated"] => {
            clients[0].tell("");
            clients[0].wait_for_line("sync cudaErrorMpsClientTerminated");
        }
        ["second", "daemon"] => {
            let output = node.daemon_command().output().expect("cumux starts");
            let text = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
            assert_eq!((output.status.code(), text.as_str()), (Some(1), "An instance of this daemon is already running\n"));
        }
        // A server that was asked to go takes clients as long as it has any.
        ["one", "more"] => {
            let said = node.test_client("view").start().expect_ok();
            assert!(said.contains("multiprocessors 132"), "{said}");
        }
        ["lost"] => {
            node.wait_for("the end of the server", |node| node.servers().is_empty().then_some(()));
            for client in clients.iter_mut() {
                client.tell("");
                client.wait_for_line("sync cudaErrorMpsRpcFailure");
            }
        }
        ["gone"] => {
            for name in ["control", "nvidia-cuda-mps-control.pid"] {
                assert!(!node.pipe().join(name).exists(), "{name} is left");
            }
            let log = std::fs::read_to_string(node.folder().join("log/control.log")).expect("a log");
            assert!(log.trim_end().ends_with("Exit with status 0"), "{log}");
        }
        ref other => panic!("no such action: {other:?}"),
    }
}
