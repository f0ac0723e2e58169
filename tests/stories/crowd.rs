//! Many at once.

use cumux_testkit::{Client, Node};
use std::collections::BTreeSet;
use std::time::Duration;

#[test]
fn sixty_four_clients_at_once() {
    let node = Node::with().patience(Duration::from_secs(300)).start();
    let clients: Vec<Client<'_>> = (0..64).map(|_| node.test_client("idle").start()).collect();
    for client in &clients {
        client.wait_for_line("ready");
    }
    let server = node.server();
    let served: BTreeSet<u32> = server.clients.iter().map(|client| client.pid).collect();
    let started: BTreeSet<u32> = clients.iter().map(Client::pid).collect();
    assert_eq!(served, started);
    assert_eq!(node.control(&format!("get_client_list {}", server.pid)).lines().count(), 64);
    for client in clients {
        client.expect_ok();
    }
    node.wait_for("all of them gone", |node| node.servers().first().filter(|server| server.clients.is_empty()).map(|_| ()));
}

/// A number that the kernel tells of a process: the one behind `word` in a file of its directory.
fn number_of(pid: u32, file: &str, word: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
    let rest = text.lines().find_map(|line| line.strip_prefix(word)).unwrap();
    rest.split_whitespace().next().unwrap().parse().unwrap_or(u64::MAX)
}

/// The kernel's table of a process's descriptors grows slowly where there are several threads, and
/// nobody is served meanwhile. So each process of ours has room for many clients before the first
/// one comes. A client's table is no larger than it has to be: every child gets a copy.
#[test]
fn no_table_of_descriptors_grows_while_clients_come() {
    let node = Node::start();
    let client = node.test_client("idle").start();
    client.wait_for_line("ready");
    let server = node.server();
    let room = |pid: u32| number_of(pid, "status", "FDSize:");
    for (name, pid) in
        [("daemon", node.daemon_pid()), ("server", server.pid), ("keeper", server.keeper), ("executor", server.executor), ("standby", server.standby)]
    {
        let wanted = number_of(pid, "limits", "Max open files").min(4096);
        assert!(room(pid) >= wanted, "the {name} has room for {} descriptors, not for {wanted}", room(pid));
    }
    assert!(room(client.pid()) <= 1 << 14, "a client has room for {}", room(client.pid()));
    client.expect_ok();
}

/// Eight at once, one of them faulty: the others' output is that of a run alone, every time.
#[test]
fn results_do_not_depend_on_the_neighbours() {
    let node = Node::start();
    let seeds: Vec<String> = (0..7).map(|seed| seed.to_string()).collect();
    let alone: Vec<String> = seeds.iter().map(|seed| node.test_client("busy").args(&["3", seed]).start().expect_ok()).collect();
    for _ in 0..3 {
        let faulty = node.client("illegal_access").start();
        let clients: Vec<Client<'_>> = seeds.iter().map(|seed| node.test_client("busy").args(&["3", seed]).start()).collect();
        for (client, alone) in clients.into_iter().zip(&alone) {
            let outcome = client.wait();
            // One whose kernel was under way when a real card's context broke is told so; it never
            // gets wrong results.
            let told = !node.is_software() && [&outcome.out, &outcome.err].iter().any(|text| text.contains("illegal memory access"));
            assert!(told || outcome.status.success() && outcome.out == *alone, "{outcome:?}, alone: {alone}\n{}", node.logs());
        }
        faulty.expect_ok();
    }
}

/// Eight clients whose kernels print at once, beside two that never do: each gets its own lines,
/// all of them, in their order. A real card has one buffer for the text of all.
#[test]
fn what_kernels_print_belongs_to_their_client() {
    let node = Node::start();
    let rounds = if node.is_software() { "20" } else { "200" };
    let seeds: Vec<String> = (0..8).map(|seed| seed.to_string()).collect();
    let start = |seed: &String| node.test_client("mixed").args(&[rounds, seed]).start();
    let alone: Vec<String> = seeds.iter().map(|seed| start(seed).expect_ok()).collect();
    let silent: Vec<Client<'_>> = seeds[..2].iter().map(|seed| node.test_client("busy").args(&[rounds, seed]).start()).collect();
    let clients: Vec<Client<'_>> = seeds.iter().map(start).collect();
    for (client, alone) in clients.into_iter().zip(&alone) {
        assert_eq!(client.expect_ok(), *alone);
    }
    for client in silent {
        client.expect_ok();
    }
}

/// Guests come and go, each with many kernels of its own whose parameters have many sizes: nobody's
/// kernels run with another's.
#[test]
fn guests_with_kernels_of_their_own() {
    let node = Node::start();
    let rounds = if node.is_software() { "20" } else { "400" };
    let start = |seed: u32| node.test_client("guests").args(&[rounds, &seed.to_string()]).start();
    let mut here: Vec<Client<'_>> = (0..8).map(start).collect();
    for seed in 8..24 {
        let first = here.remove(0).expect_ok();
        assert!(first.contains("PASS"), "{first}");
        here.push(start(seed));
    }
    for guest in here {
        guest.expect_ok();
    }
    assert_eq!(node.server().takeovers, 0, "{}", node.logs());
}

#[test]
fn every_example_runs() {
    let node = Node::start();
    let names = ["vector_add", "matrix_multiply", "reduction", "histogram", "nbody", "monte_carlo_pi", "mandelbrot", "scan", "conjugate_gradient"];
    let clients: Vec<Client<'_>> = names.iter().map(|name| node.client(name).args(&["1"]).start()).collect();
    for client in clients {
        let said = client.expect_ok();
        assert!(said.contains("PASS"), "{said}");
    }
}

/// A kernel that is known to take long uses up what its client may have in flight. Work of the
/// client's other streams begins all the same: the kernel may wait for it.
#[test]
fn a_kernel_waits_for_what_another_stream_does() {
    for device in ["sim:h200", "sim:h200:card"] {
        let node = Node::with().device(device).start();
        let said = node.test_client("polls").start().expect_ok();
        assert_eq!(said.trim(), "polled, 6 of 6 rounds right", "{device}");
    }
}
