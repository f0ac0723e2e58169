//! Several processes of the service end together, or stand still: nobody waits for ever, newcomers
//! are served, and what a client is told is true.

use cumux_testkit::{Client, Node};
use cumux_wire::result;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

/// A process that stands still is given up after so many milliseconds in these stories.
const HEARTBEAT: (&str, &str) = ("CUMUX_HEARTBEAT_MS", "600");

fn watched() -> Node {
    Node::with().env(HEARTBEAT.0, HEARTBEAT.1).start()
}

fn idle(node: &Node) -> Client<'_> {
    let client = node.test_client("idle").start();
    client.wait_for_line("ready");
    client
}

fn goes_on(mut client: Client<'_>) {
    client.tell("");
    client.wait_for_line("round 1 right");
    client.expect_ok();
}

/// Device memory is held by keeper and executor: when both end together it is gone, and so is the
/// client, which hears of it at once.
#[test]
fn keeper_and_executor_end_together_and_the_clients_are_told() {
    let node = Node::start();
    // It waits for a kernel that never ends.
    let waiting = node.test_client("ends").start();
    waiting.wait_for_line("ready");
    let pid = waiting.pid();
    let before = node.server();
    // Whoever of them is first, the server must not see the keeper's end alone and have everything
    // kept anew.
    node.stop(before.pid);
    node.kill(before.keeper);
    node.kill(before.executor);
    node.set_going(before.pid);
    let outcome = waiting.wait();
    assert!(outcome.out.contains("cudaErrorMpsRpcFailure"), "{outcome:?}");
    let after = node.server();
    assert_eq!((after.pid, after.executor), (before.pid, before.standby));
    let gone = node.wait_for("its end", |node| node.client_status(pid).filter(|client| client.state == "exited"));
    assert!(gone.error == result::MPS_RPC_FAILURE && !gone.fault.is_empty(), "{gone:?}");
    let log = server_log(&node);
    assert!(log.contains("could not go on: "), "{log}");
    goes_on(idle(&node));
}

/// Its log ends before it crashes, so it says where that was with its last breath. Its clients go
/// on in the standby.
#[test]
fn an_executor_that_crashes_says_where() {
    let node = Node::start();
    let client = idle(&node);
    let before = node.server();
    node.crash(before.executor);
    goes_on(client);
    assert_eq!(node.server().executor, before.standby);
    let log = server_log(&node);
    let line = log.lines().find(|line| line.starts_with("cumux: signal 11 (SIGSEGV) in thread ")).unwrap_or_else(|| panic!("{log}"));
    assert!(line.contains(", at ") && line.contains(", called by cumux+0x"), "{line}");
    assert!(log.contains(&format!("Executor {} has ended (signal 11)", before.executor)), "{log}");
}

/// A client whose session was lost is answered for like any other.
#[test]
fn a_client_that_was_told_of_its_end_can_be_terminated() {
    let node = Node::start();
    let mut client = node.test_client("view").args(&["8"]).start();
    client.wait_for_line("ready");
    let before = node.server();
    node.stop(before.pid);
    node.kill(before.keeper);
    node.kill(before.executor);
    node.set_going(before.pid);
    node.wait_for("its error", |node| node.client_status(client.pid()).filter(|client| client.error == result::MPS_RPC_FAILURE));
    assert_eq!(node.control(&format!("terminate_client {} {}", before.pid, client.pid())), "0\n");
    client.tell("");
    client.wait_for_line("sync cudaErrorMpsRpcFailure");
    client.kill();
    goes_on(idle(&node));
}

/// The executor goes on serving, and tells the next server whom.
#[test]
fn keeper_and_server_end_together_and_nobody_is_lost() {
    for keeper_first in [true, false] {
        let node = Node::start();
        let (one, two) = (idle(&node), idle(&node));
        let before = node.server();
        if keeper_first {
            node.kill(before.keeper);
            node.kill(before.pid);
        } else {
            node.kill(before.pid);
            node.kill_if_alive(before.keeper);
        }
        let newcomer = idle(&node);
        let after = node.wait_for("a server that knows all of them", |node| {
            node.servers().into_iter().find(|s| s.pid != before.pid && s.state == "ACTIVE" && s.clients.len() == 3 && s.standby != 0 && s.keeper != 0)
        });
        assert_eq!(after.executor, before.executor, "it has served all the time");
        for client in [&one, &two, &newcomer] {
            assert!(after.clients.iter().any(|known| known.pid == client.pid()), "{after:?}");
        }
        // The new keeper has their memory, too: one more takeover, and all go on.
        node.wait_for("their memory to be kept", |_| (extents_of(after.keeper) >= 3).then_some(()));
        node.kill(after.executor);
        [one, two, newcomer].into_iter().for_each(goes_on);
    }
}

/// The keeper dies, and the server a little later: in the middle of what it does about that.
#[test]
fn the_server_ends_while_it_replaces_the_keeper() {
    let node = Node::start();
    let mut old = vec![idle(&node)];
    for after_ms in [1, 2, 3, 1, 2, 3] {
        let before = node.wait_for("a standby", |node| node.servers().into_iter().find(|s| s.state == "ACTIVE" && s.standby != 0 && s.keeper != 0));
        node.kill(before.keeper);
        // Not to wait for anything: the moment is what is tried.
        std::thread::sleep(Duration::from_millis(after_ms));
        node.kill(before.pid);
        old.push(idle(&node));
        let known = old.len();
        let after = node.wait_for("a server that knows all of them", |node| {
            node.servers().into_iter().find(|s| s.pid != before.pid && s.state == "ACTIVE" && s.clients.len() == known)
        });
        assert_eq!(after.executor, before.executor, "it has served all the time");
    }
    old.into_iter().for_each(goes_on);
    let log = server_log(&node);
    assert!(!log.contains("cannot be served") && !log.contains("could not go on"), "{log}");
}

/// Pieces of device memory that a process of the software GPU's service holds.
fn extents_of(pid: u32) -> usize {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    files.filter_map(|file| fs::read_link(file.path()).ok()).filter(|path| path.to_string_lossy().contains("cumux-extent")).count()
}

/// Server, keeper and executor: the standby alone has been told of the clients, and so the next
/// server can tell them their end.
#[test]
fn the_standby_alone_is_left_and_the_clients_are_told() {
    let node = Node::start();
    let mut client = node.test_client("view").args(&["8"]).start();
    client.wait_for_line("ready");
    let before = node.server();
    // Nobody starts another server in between.
    let daemon = node.daemon_pid();
    node.stop(daemon);
    node.kill(before.pid);
    node.kill(before.keeper);
    node.kill(before.executor);
    node.set_going(daemon);
    let after = node.wait_for("another server", |node| node.servers().into_iter().find(|s| s.pid != before.pid && s.state == "ACTIVE"));
    assert_eq!(after.executor, before.standby);
    client.tell("");
    client.wait_for_line("sync cudaErrorMpsRpcFailure");
    goes_on(idle(&node));
}

#[test]
fn a_stopped_executor_is_replaced() {
    let node = watched();
    let client = idle(&node);
    let before = node.server();
    node.stop(before.executor);
    goes_on(client);
    let after = node.server();
    assert_eq!((after.pid, after.executor, after.takeovers), (before.pid, before.standby, 1));
    let log = fs::read_to_string(node.folder().join("log/control.log")).unwrap();
    assert!(log.contains(&format!("Executor {} was stopped by a signal", before.executor)) && log.contains("CUMUX_HEARTBEAT_MS"), "{log}");
    goes_on(idle(&node));
}

#[test]
fn a_stopped_standby_is_replaced() {
    let node = watched();
    let client = idle(&node);
    let before = node.server();
    node.stop(before.standby);
    let after = node.wait_for("another standby", |node| node.servers().into_iter().find(|s| s.standby != 0 && s.standby != before.standby));
    assert_eq!((after.executor, after.takeovers), (before.executor, 0));
    goes_on(client);
}

#[test]
fn a_stopped_keeper_is_replaced_and_newcomers_are_served() {
    let node = watched();
    let client = idle(&node);
    let before = node.server();
    node.stop(before.keeper);
    goes_on(idle(&node));
    let after = node.server();
    assert_eq!((after.pid, after.executor), (before.pid, before.executor));
    assert_ne!(after.keeper, before.keeper);
    goes_on(client);
}

#[test]
fn a_stopped_server_is_replaced_and_its_clients_go_on() {
    let node = watched();
    let client = idle(&node);
    let before = node.server();
    node.stop(before.pid);
    goes_on(idle(&node));
    let after = node.server();
    assert_ne!(after.pid, before.pid);
    assert_eq!((after.executor, after.keeper), (before.executor, before.keeper), "they have not been hurt");
    goes_on(client);
    let log = fs::read_to_string(node.folder().join("log/control.log")).unwrap();
    assert!(log.contains(&format!("Server {} was stopped by a signal", before.pid)), "{log}");
}

/// Front ends and programs say what is wrong instead of waiting. Nobody else ends a daemon.
#[test]
fn of_a_stopped_daemon_everybody_says_so() {
    let node = watched();
    let mut client = idle(&node);
    let daemon = node.daemon_pid();
    node.stop(daemon);
    let says = |arguments: &[&str]| {
        let output = node.cumux(arguments).env(HEARTBEAT.0, HEARTBEAT.1).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr))
    };
    for arguments in [&["control", "get_server_list"][..], &["status"], &["top", "--once"], &["doctor"]] {
        let (status, said) = says(arguments);
        assert!(
            status == Some(1) && said.contains(&format!("process {daemon} was stopped by a signal")) && said.contains("kill -CONT"),
            "{arguments:?}: {said}"
        );
    }
    let newcomer = node.test_client("view").env(HEARTBEAT.0, HEARTBEAT.1).start().wait();
    assert_eq!(newcomer.out, "count: cudaErrorMpsConnectionFailed", "{newcomer:?}");
    // Who is served does not notice.
    client.tell("");
    client.wait_for_line("round 1 right");
    node.set_going(daemon);
    client.tell("");
    client.wait_for_line("round 2 right");
    client.expect_ok();
    goes_on(idle(&node));
}

#[test]
fn a_stopped_client_disturbs_nobody() {
    let node = watched();
    let (mut stopped, mut other) = (idle(&node), idle(&node));
    let before = node.server();
    node.stop(stopped.pid());
    other.tell("");
    other.wait_for_line("round 1 right");
    goes_on(idle(&node));
    // Also over a takeover.
    node.kill(before.executor);
    other.tell("");
    other.wait_for_line("round 2 right");
    other.expect_ok();
    node.set_going(stopped.pid());
    stopped.tell("");
    stopped.wait_for_line("round 1 right");
    stopped.expect_ok();
}

/// Whatever stands still, `quit` comes to its end and leaves nobody behind.
#[test]
fn quit_comes_to_its_end_with_stopped_processes() {
    for role in ["server", "executor", "keeper", "all"] {
        let node = watched();
        goes_on(idle(&node));
        let server = node.server();
        let all = [server.pid, server.executor, server.keeper, server.standby];
        match role {
            "server" => node.stop(server.pid),
            "executor" => node.stop(server.executor),
            "keeper" => node.stop(server.keeper),
            _ => all.into_iter().for_each(|pid| node.stop(pid)),
        }
        // Its status says whether every server ended well: one that was killed did not.
        let _ = node.control_output("quit");
        for pid in all {
            node.wait_for("the end of every process", |node| (!node.processes().contains(&pid)).then_some(()));
        }
        assert!(!node.pipe().join("control").exists(), "{role}");
    }
}

/// A server that dies while the daemon ends leaves nobody behind who waits for its successor.
#[test]
fn what_a_dead_server_leaves_ends_with_the_daemon() {
    let node = Node::start();
    goes_on(idle(&node));
    let server = node.server();
    let daemon = node.daemon_pid();
    node.stop(daemon);
    node.kill(server.pid);
    // The command is the first that the daemon hears of.
    let quit = begin_quit(&node);
    node.set_going(daemon);
    let _ = quit.wait_with_output().unwrap();
    node.wait_for("the end of every process", |node| node.processes().is_empty().then_some(()));
}

fn begin_quit(node: &Node) -> Child {
    node.cumux(&["control", "quit"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// What was under way when executors ended again and again is its client's end. The other goes on,
/// and the server does not give up.
#[test]
fn a_client_whose_work_ends_executors_is_ended_alone() {
    let node = Node::start();
    let culprit = node.test_client("ends").start();
    culprit.wait_for_line("ready");
    let mut other = idle(&node);
    let pid = culprit.pid();
    let mut kills = 0;
    // As the system's memory guard does it: whenever the kernel of that client runs, the executor
    // dies.
    let told = node.wait_for("the end of the culprit", |node| {
        let server = node.servers().into_iter().find(|s| s.state == "ACTIVE" && s.executor != 0)?;
        let client = server.clients.iter().chain(&server.gone).find(|client| client.pid == pid)?;
        if client.error != 0 {
            return Some(client.clone());
        }
        if client.in_flight > 0 && server.standby != 0 {
            node.kill_if_alive(server.executor);
            kills += 1;
        }
        None
    });
    assert!(told.error == result::LAUNCH_FAILED && told.fault.contains("while this client's work was under way"), "{told:?}");
    assert!((2..=6).contains(&kills), "{kills} executors ended");
    let outcome = culprit.wait();
    assert!(outcome.out.contains("cudaErrorLaunchFailure"), "{outcome:?}");
    other.tell("");
    other.wait_for_line("round 1 right");
    other.expect_ok();
    goes_on(idle(&node));
    let log = server_log(&node);
    assert!(!log.contains("executors ended within"), "{log}");
}

/// A software GPU's memory is the machine's: what that has not is refused like on a full card,
/// before and after a takeover, and is not shown as free.
#[test]
fn memory_that_the_machine_has_not_is_refused() {
    let node = Node::with().env("CUMUX_SIM_MEMORY_BYTES", "268435456").start();
    let view = |mib: &str| node.test_client("view").args(&[mib]).start();
    let too_much = view("300");
    too_much.wait_for_line("free 256");
    too_much.wait_for_line("total 143155");
    too_much.wait_for_line("alloc cudaErrorMemoryAllocation");
    too_much.expect_ok();
    let most = view("200");
    most.wait_for_line("alloc cudaSuccess");
    most.wait_for_line("ready");
    for _ in 0..2 {
        let rest = view("100");
        rest.wait_for_line("free 56");
        rest.wait_for_line("alloc cudaErrorMemoryAllocation");
        rest.expect_ok();
        let takeovers = node.server().takeovers;
        node.kill(node.server().executor);
        node.wait_for("a takeover", |node| node.servers().into_iter().find(|s| s.takeovers > takeovers && s.state == "ACTIVE"));
    }
    most.expect_ok();
    let rest = view("250");
    rest.wait_for_line("alloc cudaSuccess");
    rest.expect_ok();
    let log = server_log(&node);
    assert!(log.contains("wants 300 MiB") && log.contains("have 256 MiB for software GPUs, of which 0 are taken"), "{log}");
    assert!(log.contains("of which 200 are taken (the card has 143155)") && log.contains("set CUMUX_SIM_MEMORY_BYTES"), "{log}");
}

fn server_log(node: &Node) -> String {
    fs::read_to_string(node.folder().join("log/server.log")).unwrap()
}

/// Without the variable it is the machine itself that is counted.
#[test]
fn more_than_the_machine_has_is_refused() {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap();
    let mib = |field: &str| meminfo.lines().find_map(|line| line.strip_prefix(field)?.split_whitespace().next()?.parse::<u64>().ok()).unwrap() >> 10;
    let machine = mib("MemTotal:");
    if machine >= 140_000 {
        println!("NOTE: this machine has more memory than a card: nothing is refused here");
        return;
    }
    let node = Node::start();
    let too_much = node.test_client("view").args(&[&machine.to_string()]).env("CUMUX_VERBOSE", "1").start();
    too_much.wait_for_line("total 143155");
    too_much.wait_for_line("alloc cudaErrorMemoryAllocation");
    let outcome = too_much.wait();
    assert!(outcome.err.contains("that the machine has for its software GPUs (CUMUX_SIM_MEMORY_BYTES"), "{outcome:?}");
    let server = node.server();
    goes_on(idle(&node));
    assert_eq!(node.server().takeovers, server.takeovers);
}

/// A control group with its own memory limit, for processes of this test.
struct Group(PathBuf);

impl Group {
    /// Nothing where groups cannot be made.
    fn with_memory(bytes: u64) -> Option<Self> {
        let [split, unified] = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"].map(|mount| Path::new(mount).join(format!("cumux-ends-{}", std::process::id())));
        let (path, limit) = if Path::new("/sys/fs/cgroup/memory").is_dir() { (split, "memory.limit_in_bytes") } else { (unified, "memory.max") };
        fs::create_dir(&path).ok()?;
        let group = Self(path);
        fs::write(group.0.join(limit), bytes.to_string()).ok().map(|()| group)
    }

    fn take(&self, pid: u32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The last process may be a moment from its end.
        let _ = (0..100).any(|_| fs::remove_dir(&self.0).inspect_err(|_| std::thread::sleep(Duration::from_millis(10))).is_ok());
    }
}

/// A control group is a machine with so much memory: what two clients want together beyond it is
/// refused, and what is promised can be touched.
#[test]
fn memory_that_the_control_group_has_not_is_refused() {
    let Some(group) = Group::with_memory(1 << 30) else {
        println!("NOTE: control groups cannot be made here; nothing was tested");
        return;
    };
    let node = Node::start();
    group.take(node.daemon_pid());
    let first = node.test_client("view").args(&["450", "touch"]).start();
    first.wait_for_line("alloc cudaSuccess");
    first.wait_for_line("touch cudaSuccess");
    let before = node.server();
    let second = node.test_client("view").args(&["450"]).start();
    second.wait_for_line("alloc cudaErrorMemoryAllocation");
    second.expect_ok();
    let after = node.server();
    assert_eq!((after.executor, after.takeovers), (before.executor, before.takeovers));
    first.expect_ok();
    // What one gives back the other can have.
    let third = node.test_client("view").args(&["450", "touch"]).start();
    third.wait_for_line("touch cudaSuccess");
    third.expect_ok();
    assert!(server_log(&node).contains("set CUMUX_SIM_MEMORY_BYTES"), "{}", node.logs());
}
