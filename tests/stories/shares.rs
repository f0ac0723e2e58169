//! Shares of the multiprocessors: what a client sees of its share, and where its kernels really run
//! (`%smid` of a thousand blocks).

use cumux_testkit::{Client, Node};
use cumux_wire::share::RECORDED;
use std::collections::{BTreeMap, BTreeSet};

const PERCENTAGE: &str = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";
const PER_CONTEXT: &str = "CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING";

/// The values of the last line that begins with this word.
fn values(said: &str, word: &str) -> Vec<String> {
    let line = said.lines().rfind(|line| line.split(' ').next() == Some(word));
    line.unwrap_or_else(|| panic!("no {word} in {said}")).split(' ').skip(1).map(str::to_owned).collect()
}

fn set(said: &str, word: &str) -> BTreeSet<u32> {
    values(said, word).iter().map(|value| value.parse().expect("a number")).collect()
}

/// What a program with this environment sees, and how many multiprocessors it ran on.
fn share(node: &Node, environment: &[(&str, &str)]) -> (u32, u32) {
    let client = environment.iter().fold(node.test_client("shares"), |client, (name, value)| client.env(name, value));
    let said = client.start().expect_ok();
    assert_eq!(values(&said, "mps"), ["1"]);
    (values(&said, "multiprocessors")[0].parse().expect("a number"), set(&said, "used").len() as u32)
}

#[test]
fn every_recorded_percentage_is_seen_and_enforced() {
    let node = Node::start();
    for (percent, multiprocessors) in RECORDED {
        assert_eq!(share(&node, &[(PERCENTAGE, percent)]), (multiprocessors, multiprocessors), "{percent} %");
    }
}

/// Daemon, server, client; a client only tightens, a server's own value holds for later clients.
#[test]
fn a_percentage_at_every_level() {
    let node = Node::with().env(PERCENTAGE, "12.5").start();
    assert_eq!(node.control("get_default_active_thread_percentage"), "12.5\n");
    assert_eq!(share(&node, &[]), (16, 16), "the daemon's environment");
    let server = node.server().pid;
    assert_eq!(node.control(&format!("set_active_thread_percentage {server} 50")), "50.0\n");
    assert_eq!(share(&node, &[]), (66, 66), "a server's own value may be more");
    assert_eq!(share(&node, &[(PERCENTAGE, "33.3")]), (42, 42));
    assert_eq!(share(&node, &[(PERCENTAGE, "80")]), (66, 66), "a client only tightens");
    assert_eq!(node.control("set_default_active_thread_percentage 33.3"), "33.3\n");
    assert_eq!(share(&node, &[]), (66, 66), "a default is for the next server");
    assert_eq!(node.control(&format!("shutdown_server {server}")), "");
    node.wait_for("the end of the server", |node| node.control("get_server_list").is_empty().then_some(()));
    assert_eq!(share(&node, &[]), (42, 42));
}

/// As recorded: affinities are rounded up, more than the share is refused, and attributes show the
/// share. Each context runs on multiprocessors of its own.
#[test]
fn contexts_with_an_execution_affinity() {
    let node = Node::start();
    let said = node.test_client("shares").args(&["affinity", "1", "5", "10", "17", "64", "132", "200"]).start().expect_ok();
    assert!(said.starts_with("supported 1 CUDA_SUCCESS\nbefore 132\n"), "{said}");
    for (asked, granted) in [("1", "8"), ("5", "8"), ("10", "10"), ("17", "18"), ("64", "64"), ("132", "132")] {
        assert!(said.contains(&format!("create {asked} CUDA_SUCCESS\ngranted {asked} {granted} CUDA_SUCCESS\nafter 132\n")), "{said}");
    }
    assert!(said.contains("create 200 CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY\n"), "{said}");
    let used: Vec<BTreeSet<u32>> = (0..6).map(|context| set(&said, &format!("used{context}"))).collect();
    assert_eq!(used.iter().map(BTreeSet::len).collect::<Vec<_>>(), [8, 8, 10, 18, 64, 132]);
    let small: BTreeSet<u32> = used[..5].iter().flatten().copied().collect();
    assert_eq!(small.len(), 8 + 8 + 10 + 18 + 64, "they do not overlap as long as there is room");

    let said = node.test_client("shares").args(&["affinity", "66", "65", "67", "100"]).env(PERCENTAGE, "50").start().expect_ok();
    assert!(said.contains("granted 66 66 ") && said.contains("granted 65 66 "), "{said}");
    assert!(said.contains("create 67 CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY\ncreate 100 CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY\n"), "{said}");
    assert_eq!(set(&said, "used0"), set(&said, "used1"), "both are all of the client's share");
}

/// With shares for each context the environment is read when a context is made, and the attribute
/// is the current context's.
#[test]
fn contexts_with_percentages_of_their_own() {
    let node = Node::start();
    let said = node.test_client("shares").args(&["contexts", "12.5", "25", "50", "x"]).env(PER_CONTEXT, "1").env(PERCENTAGE, "25").start().expect_ok();
    assert_eq!(values(&said, "before"), ["32"], "as recorded");
    for (context, multiprocessors) in [(0, 16), (1, 32), (2, 66), (3, 132)] {
        assert_eq!(values(&said, &format!("multiprocessors{context}")), [multiprocessors.to_string()]);
        assert_eq!(set(&said, &format!("used{context}")).len(), multiprocessors);
    }
    // The server's limit holds for all of them.
    let server = node.server().pid;
    assert_eq!(node.control(&format!("set_active_thread_percentage {server} 20")), "20.0\n");
    let said = node.test_client("shares").args(&["contexts", "12.5", "100"]).env(PER_CONTEXT, "1").start().expect_ok();
    assert_eq!((values(&said, "multiprocessors0"), values(&said, "multiprocessors1")), (vec!["16".to_owned()], vec!["26".to_owned()]));
    assert_eq!(set(&said, "used1").len(), 26);
    assert!(set(&said, "used0").is_subset(&set(&said, "used1")));
    // Without the mode the variable is read once.
    let said = node.test_client("shares").args(&["contexts", "12.5"]).start().expect_ok();
    assert_eq!(values(&said, "multiprocessors0"), ["26"]);
}

/// A client that has run once and waits for its next turn.
fn waiting<'a>(node: &'a Node, percent: &str) -> Client<'a> {
    let client = node.test_client("shares").env(PERCENTAGE, percent).start();
    client.wait_for_line("ready 0");
    client
}

#[test]
fn shares_overlap_only_when_their_sum_is_more_than_the_card() {
    let node = Node::start();
    let clients: Vec<Client<'_>> = ["25", "12.5", "50", "10"].iter().map(|percent| waiting(&node, percent)).collect();
    let fifth = waiting(&node, "30");
    let used: Vec<BTreeSet<u32>> = clients.into_iter().map(|client| set(&client.expect_ok(), "used")).collect();
    assert_eq!(used.iter().map(BTreeSet::len).collect::<Vec<_>>(), [32, 16, 66, 12]);
    let together: BTreeSet<u32> = used.iter().flatten().copied().collect();
    assert_eq!(together.len(), 126, "all beside each other");
    let more = set(&fifth.expect_ok(), "used");
    assert_eq!((more.len(), more.difference(&together).count()), (38, 6), "what is free comes first");
}

/// `cumux set-share`: the next kernel runs on the new part, in both directions, and a takeover does
/// not forget it.
#[test]
fn the_share_of_a_running_client_is_changed() {
    let node = Node::start();
    let mut client = waiting(&node, "50");
    let pid = client.pid().to_string();
    let mut turn = 0;
    let mut next = |client: &mut Client<'_>| {
        turn += 1;
        client.tell("");
        client.wait_for_line(&format!("ready {turn}"));
    };
    let set_share = |percent: &str| {
        let output = node.cumux(&["set-share", &pid, percent, "--json"]).output().expect("cumux starts");
        assert!(output.status.success(), "{output:?}\n{}", node.logs());
        let answer: BTreeMap<String, f64> = serde_json::from_slice(&output.stdout).expect("one JSON object");
        (answer["before"] as u32, answer["now"] as u32)
    };
    assert_eq!(set_share("12.5"), (66, 16));
    assert_eq!(node.client_status(client.pid()).expect("known").multiprocessors, 16);
    next(&mut client);
    let executor = node.server().executor;
    node.kill(executor);
    next(&mut client);
    assert_eq!(set_share("100"), (16, 132), "an administrator may also give more");
    next(&mut client);
    let said = client.expect_ok();
    let lines = |word: &str| said.lines().filter(|line| line.starts_with(word)).map(str::to_owned).collect::<Vec<_>>();
    let sizes: Vec<usize> = lines("used ").iter().map(|line| line.split(' ').count() - 1).collect();
    assert_eq!(sizes, [66, 16, 16, 132]);
    assert_eq!(lines("multiprocessors "), ["multiprocessors 66", "multiprocessors 16", "multiprocessors 16", "multiprocessors 132"]);
}

#[test]
fn a_share_that_cannot_be_given_is_refused_with_a_sentence() {
    let node = Node::start();
    let client = waiting(&node, "50");
    let pid = client.pid().to_string();
    for (arguments, words) in [
        (["set-share", "1", "50"], "no client"),
        (["set-share", &pid, "0"], "no percentage"),
        (["set-share", &pid, "100.5"], "no percentage"),
        (["set-share", &pid, "half"], "no percentage"),
    ] {
        let output = node.cumux(&arguments).output().expect("cumux starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(words), "{arguments:?}: {said}");
    }
    assert_eq!(node.client_status(client.pid()).expect("known").multiprocessors, 66);
}
