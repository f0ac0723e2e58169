//! Groups: limits for several processes together, whatever each of them does.

use cumux_testkit::{Client, Node};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

const PIPE: &str = "CUDA_MPS_PIPE_DIRECTORY";

/// Makes a group and returns the directory of its programs.
fn create(node: &Node, name: &str, settings: &[&str]) -> String {
    let words: Vec<&str> = ["group", "create", name].into_iter().chain(settings.iter().copied()).collect();
    ok(node, &words).trim().to_owned()
}

fn ok(node: &Node, words: &[&str]) -> String {
    let output = node.cumux(words).output().expect("cumux starts");
    assert!(output.status.success(), "{words:?}: {output:?}\n{}", node.logs());
    String::from_utf8(output.stdout).expect("text")
}

/// What a command that is refused says.
fn refusal(node: &Node, words: &[&str]) -> String {
    let output = node.cumux(words).output().expect("cumux starts");
    assert!(!output.status.success(), "{words:?} is carried out: {output:?}");
    String::from_utf8(output.stderr).expect("text")
}

/// A group as `cumux group list` shows it.
fn shown(node: &Node, name: &str) -> Value {
    let all: Value = serde_json::from_str(&ok(node, &["group", "list", "--json"])).expect("JSON");
    let found = all["groups"].as_array().expect("a list").iter().find(|group| group["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {all}")).clone()
}

/// Bytes that the group has of the first device, in MiB.
fn used(node: &Node, name: &str) -> u64 {
    shown(node, name)["memory"][0]["used"].as_u64().expect("a number") >> 20
}

fn grower<'a>(node: &'a Node, directory: &str) -> Client<'a> {
    let client = node.test_client("grower").env(PIPE, directory).start();
    client.wait_for_line("ready");
    client
}

/// Gives an order and returns the answer to it.
fn order(node: &Node, client: &mut Client<'_>, order: &str) -> String {
    let before = client.said().len();
    client.tell(order);
    node.wait_for(&format!("the answer to {order}"), |_| client.said().get(before).cloned())
}

fn take(node: &Node, client: &mut Client<'_>, mib: u64) -> bool {
    let answer = order(node, client, &format!("take {mib}"));
    let result = answer.split(' ').nth(2).unwrap_or_default().to_owned();
    assert!(["cudaSuccess", "cudaErrorMemoryAllocation"].contains(&result.as_str()), "{answer}\n{}", node.logs());
    result == "cudaSuccess"
}

/// One process may have what another leaves, and together they never have more: not after a
/// takeover, not when one of them has an executor of its own, and a killed one's memory is the
/// others' again.
#[test]
fn programs_of_a_group_have_its_memory_together() {
    // On a busy machine the work of a client that is to move may take long.
    let node = Node::with().env("CUMUX_MOVE_WAIT_MS", "60000").start();
    let pod = create(&node, "pod", &["memory=1G"]);
    let (mut one, mut other) = (grower(&node, &pod), grower(&node, &pod));
    let mut stranger = grower(&node, &node.pipe().to_string_lossy());
    assert_eq!(order(&node, &mut one, "take 600"), "take 600 cudaSuccess 424 1024", "the card has what the group may have");
    assert!(!take(&node, &mut other, 600));
    assert_eq!(order(&node, &mut other, "take 424"), "take 424 cudaSuccess 0 1024");
    assert!(!take(&node, &mut one, 2) && take(&node, &mut stranger, 2048), "a neighbour is not affected");
    assert_eq!((used(&node, "pod"), shown(&node, "pod")["clients"].as_u64()), (1024, Some(2)));
    assert_eq!(node.client_status(one.pid()).expect("known").group, "pod");

    node.kill(node.server().executor);
    assert!(!take(&node, &mut one, 2) && !take(&node, &mut other, 2), "the successor has the same accounts");
    ok(&node, &["move", &other.pid().to_string(), "--own"]);
    assert!(!take(&node, &mut one, 2) && !take(&node, &mut other, 2), "in two executors");
    order(&node, &mut one, "give");
    assert!(!take(&node, &mut other, 602) && take(&node, &mut other, 598) && !take(&node, &mut one, 4));

    ok(&node, &["group", "set", "pod", "memory=2G"]);
    assert!(take(&node, &mut one, 1000), "a higher limit holds at once");
    ok(&node, &["group", "set", "pod", "memory=1G"]);
    assert!(!take(&node, &mut one, 2), "a lower one takes nothing away");
    assert_eq!((order(&node, &mut one, "sum"), order(&node, &mut other, "sum")), ("sum right".into(), "sum right".into()));
    other.kill();
    node.wait_for("the memory of the killed one", |node| (used(node, "pod") == 1000).then_some(()));
    assert!(take(&node, &mut one, 24) && !take(&node, &mut one, 2));
    one.expect_ok();
    stranger.expect_ok();
}

/// A thousand random allocations of two programs, up to what the third leaves: none is refused what
/// the group may have, and nothing is lost or counted twice.
#[test]
fn a_group_is_exact_under_races() {
    let node = Node::start();
    let pod = create(&node, "pod", &["memory=1G"]);
    let mut holder = grower(&node, &pod);
    assert!(take(&node, &mut holder, 256));
    let mut racers: Vec<_> = (0..2)
        .map(|_| node.test_client("limits").args(&["race", "384", "500"]).env(PIPE, &pod).env("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=384M").start())
        .collect();
    racers.iter().for_each(|racer| racer.wait_for_line("ready"));
    racers.iter_mut().for_each(|racer| racer.tell(""));
    for racer in racers {
        let said = racer.expect_ok();
        assert!(said.contains("rounds 500 above 0 refused 0 wrong 0"), "{said}");
    }
    node.wait_for("their memory", |node| (used(node, "pod") == 256).then_some(()));
    assert!(take(&node, &mut holder, 768) && !take(&node, &mut holder, 2));
    holder.expect_ok();
}

fn multiprocessors(client: &Client<'_>) -> BTreeSet<u32> {
    let said = client.said();
    let line = said.iter().rfind(|line| line.starts_with("used ")).unwrap_or_else(|| panic!("{said:?}"));
    line.split(' ').skip(1).map(|word| word.parse().expect("a number")).collect()
}

/// All programs of a group run on the same multiprocessors, others beside them; another share and a
/// takeover change nothing in that.
#[test]
fn a_group_runs_on_multiprocessors_of_its_own() {
    let node = Node::start();
    let pod = create(&node, "pod", &["percentage=25"]);
    let start = |directory: &str, percent: &str| {
        let client = node.test_client("shares").env(PIPE, directory).env("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", percent).start();
        client.wait_for_line("ready 0");
        client
    };
    let mut members = [start(&pod, "10"), start(&pod, "50")];
    let outside = start(&node.pipe().to_string_lossy(), "50");
    let seen = |members: &[Client<'_>]| members.iter().map(multiprocessors).collect::<Vec<_>>();
    let sets = seen(&members);
    assert_eq!((sets[0].len(), &sets[0]), (32, &sets[1]), "{}", node.logs());
    assert!(sets[0].is_disjoint(&multiprocessors(&outside)));
    let refused = refusal(&node, &["set-share", &members[0].pid().to_string(), "50"]);
    assert!(refused.contains("cumux group set pod percentage"), "{refused}");
    let mut turn = 0;
    let mut next = |members: &mut [Client<'_>]| {
        turn += 1;
        for member in members {
            member.tell("");
            member.wait_for_line(&format!("ready {turn}"));
        }
    };
    ok(&node, &["group", "set", "pod", "percentage=12.5"]);
    let status = |node: &Node, member: &Client<'_>| node.client_status(member.pid()).expect("known").multiprocessors;
    assert!(members.iter().all(|member| status(&node, member) == 16));
    node.kill(node.server().executor);
    next(&mut members);
    let sets = seen(&members);
    assert_eq!((sets[0].len(), &sets[0]), (16, &sets[1]), "{}", node.logs());
    ok(&node, &["group", "set", "pod", "percentage=50"]);
    // The executor is told, and says nothing.
    node.wait_for("the new share", |_| {
        next(&mut members);
        let sets = seen(&members);
        (sets[0].len() == 66 && sets[0] == sets[1]).then_some(())
    });
    outside.expect_ok();
    members.into_iter().for_each(|member| drop(member.expect_ok()));
}

/// The group, its limits and what its programs have outlive daemon and server; the folder stays the
/// same one, as a container that has it mounted needs it.
#[test]
fn a_group_outlives_daemon_and_server() {
    let node = Node::start();
    let pod = create(&node, "pod", &["memory=1G", "clients=3"]);
    let mut one = grower(&node, &pod);
    assert!(take(&node, &mut one, 600));
    let folder = std::fs::File::open(&pod).expect("the group's folder");
    node.kill(node.daemon_pid());
    node.start_daemon();
    node.wait_for("the server to connect again", |node| (used(node, "pod") == 600 && shown(node, "pod")["clients"] == 1).then_some(()));
    let same = format!("/proc/{}/fd/{}", std::process::id(), std::os::fd::AsRawFd::as_raw_fd(&folder));
    let mut other = grower(&node, &same);
    assert!(!take(&node, &mut other, 600) && take(&node, &mut other, 424), "{}", node.logs());
    let server = node.server().pid;
    node.kill(server);
    node.wait_for("the next server", |node| node.servers().first().filter(|next| next.pid != server && next.clients.len() == 2).map(|_| ()));
    assert!(!take(&node, &mut one, 2) && !take(&node, &mut other, 2));
    ok(&node, &["group", "set", "pod", "memory=2G"]);
    assert!(take(&node, &mut one, 1024) && !take(&node, &mut other, 2), "{}", node.logs());
    assert_eq!(used(&node, "pod"), 2048);
    one.expect_ok();
    other.expect_ok();
    node.wait_for("its memory", |node| (used(node, "pod") == 0).then_some(()));
}

/// A full group says so, and one with clients is removed by force only. Nothing of it stays.
#[test]
fn a_group_is_bounded_and_removed() {
    let node = Node::start();
    let pod = create(&node, "pod", &["clients=1"]);
    let one = grower(&node, &pod);
    let outcome = node.test_client("grower").env(PIPE, &pod).env("CUMUX_VERBOSE", "1").start().wait();
    assert!(!outcome.status.success() && outcome.err.contains("cumux group set pod clients="), "{outcome:?}");
    assert!(refusal(&node, &["group", "create", "pod"]).contains("already"));
    let refused = refusal(&node, &["group", "rm", "pod"]);
    assert!(refused.contains("1 client:") && refused.contains("force"), "{refused}");
    for (words, part) in [
        (&["group", "create", "a/b"][..], "characters"),
        (&["group", "create", "x", "memory=5"], "memory=2G"),
        (&["group", "create", "x", "colour=red"], "no setting"),
        (&["group", "create", "x", "percentage="], "above 0"),
        (&["group", "create", "x", "clients=1", "clients=2"], "clients is set twice"),
        (&["group", "create", "x", "memory=7=2G"], "there is no device 7: this daemon has 0 (GPU-"),
        (&["group", "set", "pod", "devices=0,x"], "there is no device x"),
        (&["group", "set", "nobody", "clients=2"], "group list"),
        (&["group", "rm", "nobody"], "group list"),
    ] {
        let refused = refusal(&node, words);
        assert!(refused.contains(part), "{words:?}: {refused}");
    }
    ok(&node, &["group", "rm", "pod", "--force"]);
    assert!(!Path::new(&pod).exists());
    let status = node.wait_for("its end", |node| node.client_status(one.pid()).filter(|status| status.state == "terminated"));
    assert_eq!(status.error, 810, "{status:?}");
    drop(one);
    let again = create(&node, "pod", &["clients=1"]);
    grower(&node, &again).expect_ok();
    node.wait_for("that it has gone", |node| (shown(node, "pod")["clients"] == 0).then_some(()));
    ok(&node, &["group", "rm", "pod"]);
    assert!(!node.pipe().join("groups.json").exists() && ok(&node, &["group", "list"]).contains("no groups"));
}

/// Nobody uses another user's group, or leaves its own by the socket of all.
#[test]
fn a_group_has_one_user_and_one_control_group() {
    let node = Node::start();
    let other = rustix::process::geteuid().as_raw() + 1;
    let theirs = create(&node, "theirs", &[&format!("uid={other}")]);
    let outcome = node.test_client("grower").env(PIPE, &theirs).env("CUMUX_VERBOSE", "1").start().wait();
    assert!(!outcome.status.success() && outcome.err.contains("a group serves one user"), "{outcome:?}");

    let elsewhere = create(&node, "elsewhere", &["cgroup=/cumux-no-such-group"]);
    let outcome = node.test_client("grower").env(PIPE, &elsewhere).env("CUMUX_VERBOSE", "1").start().wait();
    assert!(!outcome.status.success() && outcome.err.contains("only for processes of the control group"), "{outcome:?}");

    // The control group in which this test runs.
    let text = std::fs::read_to_string("/proc/self/cgroup").expect("its own control groups");
    let own = text.lines().filter_map(|line| line.splitn(3, ':').nth(2)).find(|path| path.len() > 1);
    let Some(own) = own else { return println!("NOTE: this test runs in the root of all control groups: nobody can be bound to his") };
    create(&node, "mine", &[&format!("cgroup={own}"), "memory=1G"]);
    let mut client = grower(&node, &node.pipe().to_string_lossy());
    assert!(!take(&node, &mut client, 1025) && take(&node, &mut client, 1024), "by the socket of all, and bounded");
    assert_eq!(node.client_status(client.pid()).expect("known").group, "mine");
    client.expect_ok();
}
