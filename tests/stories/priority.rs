//! Client priorities: whoever is below normal gives way, whatever priorities its streams have.

use cumux_testkit::Node;

/// How many kernels a client with an urgent stream gets done while another runs one long kernel in
/// its default stream: by what the service says of both in one answer, first and last while the
/// long one is under way.
fn kernels_in_the_meantime(node: &Node, variable: &str, hog: &str) -> u64 {
    let hog = node.test_client("priority").args(&["hog", "2", "500", "-3"]).env(variable, hog).start();
    let mut long = node.test_client("priority").args(&["long", "300", "1000", "1"]).start();
    hog.wait_for_line("ready");
    long.wait_for_line("ready");
    let (hog_pid, long_pid) = (hog.pid(), long.pid());
    let look = || {
        let clients: Vec<_> = node.servers().into_iter().flat_map(|server| server.clients).collect();
        let of = |pid| clients.iter().find(|client| client.pid == pid).expect("it runs").clone();
        (of(long_pid).in_flight, of(hog_pid).kernels)
    };
    long.tell("");
    let first = node.wait_for("the long kernel", |_| Some(look()).filter(|(in_flight, _)| *in_flight > 0)).1;
    let mut last = first;
    loop {
        match look() {
            (0, _) => return last - first,
            (_, kernels) => last = kernels,
        }
    }
}

/// How often the two are measured: on a busy machine the end of the long kernel may be noticed so
/// late that kernels behind it count, or so early that nothing was seen of it.
const MEASUREMENTS: usize = 5;

/// Measures until a client below normal gives way, and as an equal does not. `equal` and `below`:
/// the values of the variable with which the client is the one or the other.
fn expect_to_give_way(node: &Node, variable: &str, equal: &str, below: &str) {
    // What was queued before the long kernel came to the device (sixteen at most, where its way
    // there is slow) may still end.
    let is_as_documented = |(equals, below): (u64, u64)| below <= 20 && equals > 2 * below.max(20);
    let mut measured = Vec::new();
    while !measured.last().copied().is_some_and(is_as_documented) {
        assert!(
            measured.len() < MEASUREMENTS,
            "two normal clients share the device, one below normal gets what is left; kernels as equals, and below: {measured:?}"
        );
        measured.push((kernels_in_the_meantime(node, variable, equal), kernels_in_the_meantime(node, variable, below)));
    }
    println!("kernels beside the long one, as equals and below normal: {measured:?}");
}

/// The document's example: B below normal with streams of priority -3, A normal with its default
/// stream. A's work goes first.
#[test]
fn a_normal_client_goes_before_urgent_streams_of_one_below() {
    expect_to_give_way(&Node::start(), "CUDA_MPS_CLIENT_PRIORITY", "0", "1");
}

/// The same with groups: a program says nothing of its priority, its group does.
#[test]
fn a_group_below_normal_gives_way() {
    let node = Node::start();
    let group = |name: &str, priority: &str| {
        let made = node.cumux(&["group", "create", name, priority]).output().expect("cumux starts");
        assert!(made.status.success(), "{made:?}");
        String::from_utf8(made.stdout).expect("text").trim().to_owned()
    };
    let (equal, below) = (group("web", "priority=0"), group("batch", "priority=1"));
    expect_to_give_way(&node, "CUDA_MPS_PIPE_DIRECTORY", &equal, &below);
}

/// Priorities stay the program's own: range and values are what it would see without the service.
#[test]
fn a_program_sees_its_own_priorities() {
    let node = Node::start();
    for priority in ["0", "1"] {
        let said = node.test_client("shares").args(&["priorities"]).env("CUDA_MPS_CLIENT_PRIORITY", priority).start().expect_ok();
        assert_eq!(said, "range 0 -5\nstream 0 0\nstream -3 -3\nstream -5 -5\nstream -9 -5\nstream 4 0");
    }
}

/// The daemon's default, and a client's own word.
#[test]
fn a_priority_at_every_level() {
    let node = Node::with().env("CUDA_MPS_CLIENT_PRIORITY", "1").start();
    let of = |stated: Option<&str>| {
        let client = node.test_client("idle");
        let client = if let Some(stated) = stated { client.env("CUDA_MPS_CLIENT_PRIORITY", stated) } else { client }.start();
        client.wait_for_line("ready");
        node.client_status(client.pid()).expect("known").priority
    };
    assert_eq!(node.control("get_default_client_priority"), "1\n");
    assert_eq!([of(None), of(Some("0")), of(Some("1")), of(Some("7"))], [1, 0, 1, 1]);
}
