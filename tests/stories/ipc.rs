//! Programs that share memory and events: what `torch.multiprocessing` and NCCL do. Who dies first,
//! what is freed meanwhile, and who gets nothing.

use cumux_testkit::{Client, Node, devices};

/// A program that shares, and how many lines it was told.
struct Sharer<'a> {
    node: &'a Node,
    client: Client<'a>,
    told: usize,
}

impl<'a> Sharer<'a> {
    fn start(node: &'a Node) -> Self {
        Self::of(node, node.test_client("ipc").start())
    }

    fn of(node: &'a Node, client: Client<'a>) -> Self {
        client.wait_for_line("ready");
        Self { node, client, told: 0 }
    }

    /// Tells it something and does not wait for the answer.
    fn tell(&mut self, line: &str) {
        self.told += 1;
        self.client.tell(line);
    }

    /// The answer to what it was told last.
    fn answer(&self) -> String {
        let number = format!("{}: ", self.told);
        self.node.wait_for("an answer", |_| self.client.said().iter().find_map(|line| line.strip_prefix(&number).map(str::to_owned)))
    }

    fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.answer()
    }

    fn expect(&mut self, line: &str, answer: &str) {
        assert_eq!(self.ask(line), answer, "{line}\n{}", self.node.logs());
    }

    /// Bytes that it is charged for.
    fn memory(&self) -> u64 {
        let status = |node: &Node| node.client_status(self.client.pid());
        self.node.wait_for("the client in the list", status).memory
    }
}

/// Integers of which so much is shared: 4 MiB.
const COUNT: &str = "1048576";
const BYTES: u64 = 4 << 20;

#[test]
fn two_programs_have_the_same_memory() {
    let node = Node::start();
    let (mut owner, mut other) = (Sharer::start(&node), Sharer::start(&node));
    let handle = owner.ask(&format!("make {COUNT}"));
    assert_eq!(handle.len(), 128, "{handle}");
    assert_eq!(owner.ask("inner"), handle, "an address inside names all of it");
    other.expect(&format!("open {handle}"), "cudaSuccess");
    other.expect("check 1", "right");
    other.expect("fill 2", "cudaSuccess");
    owner.expect("check 2", "right");
    owner.expect("fill 3", "cudaSuccess");
    other.expect("check 3", "right");
    assert!(owner.memory() >= BYTES && other.memory() < BYTES, "its owner is charged");
    // Twice is the same, and is closed twice.
    other.expect(&format!("again {handle}"), "same");
    other.expect("close", "cudaSuccess");
    other.expect("check 3", "right");
    other.expect("close", "cudaSuccess");
    other.expect("close", "cudaErrorInvalidValue");
    other.expect(&format!("open {handle}"), "cudaSuccess");
    other.expect("check 3", "right");
    other.expect("close", "cudaSuccess");
    // Who may not.
    owner.expect(&format!("again {handle}"), "cudaErrorDeviceUninitialized");
    let forged = format!("{}{}{}", &handle[..32], if &handle[32..34] == "00" { "01" } else { "00" }, &handle[34..]);
    other.expect(&format!("open {forged}"), "cudaErrorInvalidResourceHandle");
    other.expect(&format!("open {}", "00".repeat(64)), "cudaErrorInvalidResourceHandle");
    other.expect(&format!("attend {handle}"), "cudaErrorInvalidResourceHandle");
    owner.expect("free", "cudaSuccess");
    other.expect(&format!("open {handle}"), "cudaErrorInvalidResourceHandle");
    assert_ne!(owner.ask(&format!("make {COUNT}")), handle, "the same addresses again are something else");
    owner.client.expect_ok();
    other.client.expect_ok();
}

#[test]
fn what_is_freed_while_it_is_open_is_nobody_elses() {
    let node = Node::start();
    let (mut owner, mut other) = (Sharer::start(&node), Sharer::start(&node));
    let handle = owner.ask("make 4096");
    other.expect(&format!("open {handle}"), "cudaSuccess");
    owner.expect("free", "cudaSuccess");
    owner.expect("taken", "elsewhere");
    other.expect("check 1", "right");
    other.expect("fill 5", "cudaSuccess");
    other.expect("check 5", "right");
    let before = owner.memory();
    other.expect("close", "cudaSuccess");
    node.wait_for("the owner to have its memory back", |_| (owner.memory() < before).then_some(()));
    owner.expect("taken", "there");
    owner.client.expect_ok();
    other.client.expect_ok();
}

#[test]
fn who_dies_takes_nothing_from_the_other() {
    let node = Node::start();
    let (mut owner, mut other, mut third) = (Sharer::start(&node), Sharer::start(&node), Sharer::start(&node));
    let handle = owner.ask(&format!("make {COUNT}"));
    other.expect(&format!("open {handle}"), "cudaSuccess");
    third.expect(&format!("open {handle}"), "cudaSuccess");
    third.client.kill();
    other.expect("fill 7", "cudaSuccess");
    owner.expect("check 7", "right");
    let pid = owner.client.pid();
    owner.client.kill();
    node.wait_for("the end of the owner", |node| node.client_status(pid).filter(|status| status.state != "running"));
    other.expect("check 7", "right");
    other.expect("fill 8", "cudaSuccess");
    other.expect("check 8", "right");
    assert!(other.memory() >= BYTES, "who keeps it is charged");
    let mut late = Sharer::start(&node);
    late.expect(&format!("open {handle}"), "cudaErrorInvalidResourceHandle");
    other.expect("close", "cudaSuccess");
    node.wait_for("nothing to be charged", |_| (other.memory() == 0).then_some(()));
    other.client.expect_ok();
    late.client.expect_ok();
}

#[test]
fn a_takeover_changes_nothing_for_those_who_share() {
    for device in &devices() {
        let node = Node::with().device(device).start();
        // The one that is restored first lends, and the last one; one has gone.
        let mut owners: Vec<Sharer<'_>> = (0..2).map(|_| Sharer::start(&node)).collect();
        let mut borrowers: Vec<Sharer<'_>> = (0..3).map(|_| Sharer::start(&node)).collect();
        owners.push(Sharer::start(&node));
        let handles: Vec<String> = owners.iter_mut().map(|owner| owner.ask("make 70000")).collect();
        for (handle, borrower) in handles.iter().zip(&mut borrowers) {
            borrower.expect(&format!("open {handle}"), "cudaSuccess");
            borrower.expect("fill 4", "cudaSuccess");
        }
        // One is freed by its owner, one loses its owner.
        owners[0].expect("free", "cudaSuccess");
        let gone = owners.remove(1);
        let pid = gone.client.pid();
        gone.client.kill();
        node.wait_for("its end", |node| node.client_status(pid).filter(|status| status.state != "running"));
        let before = node.server();
        node.kill(before.executor);
        node.wait_for("the next executor", |node| node.servers().into_iter().find(|server| server.takeovers == 1 && server.state == "ACTIVE"));
        for borrower in &mut borrowers {
            borrower.expect("check 4", "right");
            borrower.expect("fill 6", "cudaSuccess");
            borrower.expect("check 6", "right");
        }
        owners[0].expect("taken", "elsewhere");
        owners[1].expect("check 6", "right");
        owners[1].expect("fill 9", "cudaSuccess");
        borrowers[2].expect("check 9", "right");
        let mut late = Sharer::start(&node);
        late.expect(&format!("open {}", handles[2]), "cudaSuccess");
        late.expect("check 9", "right");
        borrowers[0].expect("check 6", "right");
        for borrower in &mut borrowers {
            borrower.expect("close", "cudaSuccess");
        }
        assert_eq!(owners[0].ask("make 70000").len(), 128);
        for one in owners.into_iter().chain(borrowers).chain([late]) {
            one.client.expect_ok();
        }
    }
}

#[test]
fn an_event_is_waited_for_in_another_program() {
    let node = Node::start();
    let (mut owner, mut other) = (Sharer::start(&node), Sharer::start(&node));
    let (memory, event) = (owner.ask("make 50000"), owner.ask("event"));
    other.expect(&format!("open {memory}"), "cudaSuccess");
    owner.expect(&format!("attend {event}"), "cudaErrorDeviceUninitialized");
    other.expect(&format!("open {event}"), "cudaErrorInvalidResourceHandle");
    other.expect(&format!("attend {event}"), "cudaSuccess");
    other.expect("query", "cudaSuccess");
    for round in 2..5 {
        owner.expect(&format!("later {round}"), "cudaSuccess");
        other.expect("query", "cudaErrorNotReady");
        other.tell(&format!("copy {round}"));
        owner.expect("go", "cudaSuccess");
        assert_eq!(other.answer(), "right");
        other.expect("query", "cudaSuccess");
        other.expect("wait", "cudaSuccess");
    }
    // The other way round, with a new executor while it is waited for.
    other.expect("later 11", "cudaSuccess");
    owner.expect("query", "cudaErrorNotReady");
    owner.tell("wait");
    let before = node.server();
    node.kill(before.executor);
    node.wait_for("the next executor", |node| node.servers().into_iter().find(|server| server.takeovers == 1 && server.state == "ACTIVE"));
    other.expect("go", "cudaSuccess");
    assert_eq!(owner.answer(), "cudaSuccess");
    owner.expect("check 11", "right");
    owner.client.expect_ok();
    other.expect("query", "cudaSuccess");
    other.client.expect_ok();
}

#[test]
fn memory_and_pools_go_to_another_program_as_descriptors() {
    let node = Node::start();
    let said = node.test_client("ipc").args(&["descriptors"]).start().expect_ok();
    for line in [
        "not asked for: CUDA_ERROR_INVALID_VALUE",
        "its own descriptor: the same memory",
        "what the other wrote: right",
        "the pool's block: right",
        "some other descriptor: CUDA_ERROR_INVALID_VALUE",
        "what came: right",
        "after its owner let go: right",
        "block 0: right",
        "block 1: right",
        "memory from it: cudaErrorInvalidValue",
        "ended: 0 0",
    ] {
        assert!(said.lines().any(|one| one == line), "{line}\n{said}");
    }
}

/// An exported descriptor keeps the memory, also where nobody has a handle or a mapping of it,
/// until its last copy is closed.
#[test]
fn a_descriptor_keeps_its_memory() {
    let node = Node::start();
    let said = node.test_client("ipc").args(&["lingering"]).env("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=64M").start().expect_ok();
    for line in ["what was there: right", "kept by their descriptors: CUDA_ERROR_OUT_OF_MEMORY"] {
        assert!(said.lines().any(|one| one == line), "{line}\n{said}");
    }
}

/// Another user has another server, and what somebody knows of a handle does not help.
#[test]
fn another_user_opens_nothing() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("NOTE: not tested: another user needs root");
        return;
    }
    let node = Node::with().prepare(|folder| std::fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap()).start();
    assert!(node.control_output("quit").status.success());
    assert!(node.daemon_command().arg("-multiuser-server").status().unwrap().success());
    let mut owner = Sharer::start(&node);
    let (handle, event) = (owner.ask("make 4096"), owner.ask("event"));
    let mut other = Sharer::of(&node, node.test_client("ipc").user(65534).start());
    other.expect(&format!("open {handle}"), "cudaErrorInvalidResourceHandle");
    other.expect(&format!("attend {event}"), "cudaErrorInvalidResourceHandle");
    owner.expect("check 1", "right");
    owner.client.expect_ok();
    other.client.expect_ok();
}

/// A client that shares stays where it is, and says why.
#[test]
fn who_shares_does_not_move() {
    let node = Node::start();
    let (mut owner, mut other) = (Sharer::start(&node), Sharer::start(&node));
    let handle = owner.ask("make 4096");
    other.expect(&format!("open {handle}"), "cudaSuccess");
    for pid in [owner.client.pid(), other.client.pid()] {
        let output = node.cumux(&["move", &pid.to_string(), "--own"]).output().expect("cumux starts");
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(said.contains("it shares memory with other clients"), "{said}");
    }
    other.expect("close", "cudaSuccess");
    let moved = |node: &Node| {
        let output = node.cumux(&["move", &owner.client.pid().to_string(), "--own"]).output().expect("cumux starts");
        output.status.success().then_some(())
    };
    node.wait_for("the owner to move", moved);
    owner.expect("check 1", "right");
    other.expect(&format!("open {handle}"), "cudaErrorInvalidResourceHandle");
    owner.client.expect_ok();
    other.client.expect_ok();
}
