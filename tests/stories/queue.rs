//! Who connects to the daemon, waits there, and goes again: nobody keeps the others out, nobody is
//! counted who has gone, nobody is a server who was not started as one.
//!
//! One file, although long: a list of stories, with the means that they share.

use cumux_link::{Connection, LinkError, Process};
use cumux_testkit::{Client, Node, test_program};
use cumux_wire::VERSION;
use cumux_wire::message::{DeviceFacts, FromServer, Hello, Reply, ToServer};
use cumux_wire::result;
use rustix::process::{Signal, geteuid};
use rustix::thread::set_thread_res_uid;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const OTHER: u32 = 65534;
const THIRD: u32 = 65533;
/// The pipe directory of the process that [`part`] plays.
const PART: &str = "CUMUX_STORY_PIPE";

fn root() -> bool {
    let root = geteuid().is_root();
    if !root {
        eprintln!("NOTE: not tested: other users need root");
    }
    root
}

fn open_to_all(folder: &Path) {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
}

fn control_log(node: &Node) -> String {
    fs::read_to_string(node.folder().join("log/control.log")).unwrap()
}

fn wait_for_log(node: &Node, words: &str) {
    node.wait_for(words, |node| control_log(node).contains(words).then_some(()));
}

/// Does something on a thread of another user; the kernel tells that user to whom it connects to.
fn as_user<T: Send>(uid: u32, act: impl FnOnce() -> T + Send) -> T {
    let change = move || {
        let uid = rustix::process::Uid::from_raw(uid);
        set_thread_res_uid(uid, uid, uid).expect("root may be anybody");
        act()
    };
    std::thread::scope(|scope| scope.spawn(change).join().expect("no panic in here"))
}

fn connect(node: &Node) -> Connection {
    let connection = Connection::connect(&node.pipe().join("cumux")).expect("the daemon listens");
    // The watchdog is the limit.
    connection.set_timeout(Some(Duration::from_secs(600))).unwrap();
    connection
}

fn hello() -> Hello {
    Hello::Client { version: VERSION, pid: std::process::id(), environment: Vec::new(), program: "story".into() }
}

/// A refusal may lie behind the reset that an unread hello causes.
fn answer(connection: &Connection) -> Result<Reply, LinkError> {
    match connection.receive::<Reply>() {
        Err(LinkError::Closed) => connection.receive::<Reply>(),
        other => other,
    }
    .map(|(reply, _)| reply)
}

/// The daemon of this node again, with so many descriptors as its hard limit.
fn restart_with_descriptors(node: &Node, most: u32) {
    assert!(node.control_output("quit").status.success());
    let plain = node.daemon_command();
    let mut limited = Command::new("sh");
    limited.arg("-c").arg(format!("ulimit -n {most}; exec \"$0\" \"$@\"")).arg(plain.get_program()).args(plain.get_args());
    limited.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?)))).stdin(Stdio::null());
    let output = limited.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Three hundred programs of one user that wait, at a daemon with 256 descriptors: the user's
/// surplus is told so, and everybody else is served as before.
#[test]
fn the_programs_of_one_user_that_wait_keep_nobody_out() {
    if !root() {
        return;
    }
    let node = Node::with().prepare(open_to_all).start();
    restart_with_descriptors(&node, 256);
    let mut first = node.test_client("idle").start();
    first.wait_for_line("ready");
    let crowd: Vec<Connection> = as_user(OTHER, || {
        let come = |_| {
            let connection = connect(&node);
            // One that was turned away has lost its connection already.
            let _ = connection.send(&hello(), &[]);
            connection
        };
        (0..300).map(come).collect()
    });
    wait_for_log(&node, &format!("User {OTHER} has "));
    let last = answer(crowd.last().unwrap());
    assert!(matches!(&last, Ok(Reply::Refused { result: result::MPS_MAX_CLIENTS_REACHED, why }) if why.contains("wait to be served already")), "{last:?}");
    // The user that is served, the administrator, and a third user are as they were.
    assert_eq!(node.control("get_default_client_priority"), "0\n");
    node.client("vector_add").args(&["1"]).start().expect_ok();
    let third = as_user(THIRD, || {
        let connection = connect(&node);
        connection.send(&hello(), &[]).unwrap();
        connection
    });
    wait_for_log(&node, &format!("from user {THIRD}: Server is not ready"));
    first.tell("");
    first.wait_for_line("round 1 right");
    drop((crowd, third));
    wait_for_log(&node, &format!("of user {THIRD} has gone while it waited"));
    first.expect_ok();
    assert!(node.control_output("quit").status.success());
}

/// Connections that say nothing, as many as there are places, are closed after a while and keep
/// nobody out meanwhile.
#[test]
fn programs_that_never_say_hello_are_left() {
    if !root() {
        return;
    }
    let node = Node::with().prepare(open_to_all).start();
    restart_with_descriptors(&node, 256);
    let silent: Vec<Connection> = as_user(OTHER, || (0..200).map(|_| connect(&node)).collect());
    wait_for_log(&node, &format!("User {OTHER} has "));
    node.client("vector_add").args(&["1"]).start().expect_ok();
    node.test_client("view").user(THIRD).start().expect_ok();
    for connection in &silent {
        // At once with a sentence, or when the time for the hello is over.
        let said = answer(connection);
        assert!(matches!(said, Ok(Reply::Refused { result: result::MPS_MAX_CLIENTS_REACHED, .. }) | Err(LinkError::Closed)), "{said:?}");
    }
    node.client("vector_add").args(&["1"]).start().expect_ok();
}

/// With fewer a daemon does not start.
const FEWEST_DESCRIPTORS: usize = 48;

/// A daemon without descriptors does not burn a core, tells who connects, and serves again when
/// there are some.
#[test]
fn a_daemon_out_of_descriptors_serves_again() {
    let node = Node::start();
    // Once asked, so that everything that stays open is open. The next daemon inherits so many more
    // that there is room for two, which is less than the places that are given out.
    assert_eq!(node.control("get_server_list"), "");
    let (mut open, mut same) = (usize::MAX, 0);
    // The connection that asked may not be closed yet.
    node.wait_for("a quiet daemon", |node| {
        let count = fs::read_dir(format!("/proc/{}/fd", node.daemon_pid())).unwrap().count();
        same = if count == open { same + 1 } else { 0 };
        open = count;
        (same == 10).then_some(())
    });
    let null = fs::File::open("/dev/null").unwrap();
    let inherited: Vec<_> = (open + 2..FEWEST_DESCRIPTORS).map(|_| rustix::io::dup(&null).unwrap()).collect();
    restart_with_descriptors(&node, u32::try_from(FEWEST_DESCRIPTORS).unwrap());
    drop(inherited);
    let all: Vec<Connection> = (0..8).map(|_| connect(&node)).collect();
    wait_for_log(&node, "has no descriptors left");
    let told = all
        .iter()
        .map(answer)
        .filter(|said| matches!(said, Ok(Reply::Refused { result: result::MPS_MAX_CLIENTS_REACHED, why }) if why.contains("ulimit -n")))
        .count();
    assert!(told > 0, "nobody was told");
    drop(all);
    let output = node.wait_for("an answer", |node| Some(node.control_output("get_default_client_priority")).filter(|output| output.status.success()));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0\n");
}

/// As many programs wait as may: their server has a place of its own.
#[test]
fn programs_that_fill_all_places_leave_one_for_their_server() {
    let node = Node::start();
    restart_with_descriptors(&node, u32::try_from(FEWEST_DESCRIPTORS).unwrap());
    let all: Vec<Connection> = (0..4).map(|_| connect(&node)).collect();
    wait_for_log(&node, "Accepting connection...\n");
    for connection in &all {
        connection.send(&hello(), &[]).unwrap();
    }
    // How many of them it can serve with so few descriptors is another matter.
    wait_for_log(&node, ": Ready");
}

/// Text connections of one user are bounded, too.
#[test]
fn the_text_connections_of_one_user_keep_nobody_out() {
    if !root() {
        return;
    }
    let node = Node::with().prepare(open_to_all).start();
    restart_with_descriptors(&node, 256);
    // Each has said half a word: the daemon waits for the rest.
    let _open: Vec<_> = as_user(OTHER, || {
        let connect = |_| {
            let mut stream = std::os::unix::net::UnixStream::connect(node.pipe().join("control")).expect("the daemon listens");
            let _ = std::io::Write::write_all(&mut stream, b"get_default_client_priority\n");
            stream
        };
        (0..300).map(connect).collect()
    });
    wait_for_log(&node, &format!("User {OTHER} has "));
    assert_eq!(node.control("get_default_client_priority"), "0\n");
    node.client("vector_add").args(&["1"]).start().expect_ok();
}

// Clients that die early --------------------------------------------------------------------------

/// No test: a program that says hello and waits, in a process of its own.
#[test]
fn part() {
    let Some(pipe) = std::env::var_os(PART) else { return };
    let connection = Connection::connect(&Path::new(&pipe).join("cumux")).unwrap();
    connection.send(&hello(), &[]).unwrap();
    println!("\nsaid hello");
    let _ = connection.receive::<Reply>();
    // Whatever the answer was: it is ended by the story.
    loop {
        std::thread::park();
    }
}

/// A process that has said hello.
struct Caller {
    child: Child,
}

impl Caller {
    fn come(node: &Node) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "queue::part", "--nocapture"]).env(PART, node.pipe()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().expect("a piped output")).lines();
        assert!(lines.map_while(Result::ok).any(|line| line == "said hello"), "the program did not say hello");
        Self { child }
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Keeps a process from running.
struct Stopped(Process);

impl Stopped {
    fn at(node: &Node, pid: u32) -> Self {
        let process = Process::open(pid).unwrap();
        process.signal(Signal::STOP).unwrap();
        let stopped = Self(process);
        // A thread that runs stops a moment later.
        let stands = |stat: &str| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'));
        let threads = || fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
        node.wait_for("all threads to stand still", |_| {
            threads().all(|thread| fs::read_to_string(thread.path().join("stat")).is_ok_and(|stat| stands(&stat))).then_some(())
        });
        stopped
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.0.signal(Signal::CONT);
    }
}

fn served_and_then_quit(node: &Node) {
    node.client("vector_add").args(&["1"]).start().expect_ok();
    // Hangs where a client is counted that has gone: the watchdog is the limit.
    assert!(node.control_output("quit").status.success(), "{}", node.logs());
}

/// `quit` first: another client would set the server's count right.
fn quit_and_then_served(node: &Node) {
    assert!(node.control_output("quit").status.success(), "{}", node.logs());
    node.start_daemon();
    node.client("vector_add").args(&["1"]).start().expect_ok();
}

#[test]
fn a_client_dies_before_its_hello_is_read() {
    let node = Node::start();
    node.client("vector_add").args(&["1"]).start().expect_ok();
    let stopped = Stopped::at(&node, node.daemon_pid());
    drop(Caller::come(&node));
    drop(stopped);
    wait_for_log(&node, "A program has ended before it could be served");
    quit_and_then_served(&node);
}

#[test]
fn a_client_dies_in_the_queue() {
    if !root() {
        return;
    }
    let node = Node::with().prepare(open_to_all).start();
    let mut first = node.test_client("idle").start();
    first.wait_for_line("ready");
    let waiting = node.test_client("idle").user(OTHER).start();
    wait_for_log(&node, &format!("from user {OTHER}: Server is not ready"));
    waiting.kill();
    wait_for_log(&node, &format!("of user {OTHER} has gone while it waited"));
    first.tell("");
    first.wait_for_line("round 1 right");
    first.expect_ok();
    // No server for the dead one, and so no other user waits for anything.
    served_and_then_quit(&node);
    assert!(!control_log(&node).contains(&format!("for user {OTHER}")), "{}", control_log(&node));
}

#[test]
fn a_client_gives_up_in_the_queue() {
    if !root() {
        return;
    }
    let node = Node::with().prepare(open_to_all).start();
    let first = node.test_client("idle").start();
    first.wait_for_line("ready");
    // Its process lives on: the closed socket is all there is to see.
    let waiting = as_user(OTHER, || {
        let connection = connect(&node);
        connection.send(&hello(), &[]).unwrap();
        connection
    });
    wait_for_log(&node, &format!("from user {OTHER}: Server is not ready"));
    drop(waiting);
    wait_for_log(&node, &format!("of user {OTHER} has gone while it waited"));
    first.expect_ok();
    served_and_then_quit(&node);
}

#[test]
fn a_client_dies_while_its_server_starts() {
    let node = Node::start();
    // The log has the server's number as soon as it is launched.
    let caller = Caller::come(&node);
    wait_for_log(&node, "Starting new server");
    drop(caller);
    quit_and_then_served(&node);
}

/// Handed over, and dead before the server has looked: with the server's own word it is not counted
/// for ever.
#[test]
fn a_client_dies_just_after_the_hand_over() {
    let node = Node::start();
    node.client("vector_add").args(&["1"]).start().expect_ok();
    let server = node.server().pid;
    for round in 0..3 {
        let stopped = Stopped::at(&node, server);
        let caller = Caller::come(&node);
        let words = format!("NEW CLIENT {} from user {}: Server already exists", caller.child.id(), geteuid().as_raw());
        wait_for_log(&node, &words);
        drop(caller);
        drop(stopped);
        let log = || fs::read_to_string(node.folder().join("log/server.log")).unwrap();
        node.wait_for("the server's word", |_| (log().matches("was gone before it could be served").count() > round).then_some(()));
    }
    quit_and_then_served(&node);
}

#[test]
fn a_client_dies_before_its_executor_has_it() {
    let node = Node::start();
    node.client("vector_add").args(&["1"]).start().expect_ok();
    let server = node.server();
    let stopped = Stopped::at(&node, server.executor);
    let caller = Caller::come(&node);
    node.wait_for("the session", |node| node.servers().iter().any(|s| s.clients.iter().any(|c| c.pid == caller.child.id())).then_some(()));
    drop(caller);
    drop(stopped);
    node.wait_for("its end", |node| node.servers().iter().all(|s| s.clients.is_empty()).then_some(()));
    quit_and_then_served(&node);
}

/// At any moment of its first milliseconds, while its server starts and while it runs.
#[test]
fn clients_die_at_any_moment() {
    let node = Node::start();
    for moment in 0..12 {
        if moment % 2 == 0 {
            node.client("vector_add").args(&["1"]).start().expect_ok();
        }
        let client = node.client("vector_add").args(&["1"]).start();
        // Not to wait for anything: each dies a little later than the one before.
        std::thread::sleep(Duration::from_millis(moment));
        drop(client);
        quit_and_then_served(&node);
        assert!(node.control_output("quit").status.success());
        node.start_daemon();
    }
}

// Who is a server ---------------------------------------------------------------------------------

/// Anybody can say that it is a server; only processes that a daemon has started are believed.
#[test]
fn a_stranger_is_no_server() {
    let node = Node::with().prepare(open_to_all).start();
    let evil = "\u{1b}[2J\u{1b}]0;mine\u{7}";
    let pretend = |uid: u32| {
        let connection = connect(&node);
        let hello = Hello::Server { version: VERSION, pid: std::process::id(), uid, devices: vec![evil.into()] };
        connection.send(&hello, &[]).unwrap();
        let facts = DeviceFacts {
            id: evil.into(),
            name: evil.into(),
            uuid: [0; 16],
            pci: [0; 3],
            memory: 0,
            attributes: cumux_wire::facts::Attributes::default(),
            capabilities: cumux_wire::facts::Capabilities::default(),
        };
        // The daemon may have left already.
        let _ = connection.send(&FromServer::Ready { devices: vec![facts] }, &[]);
        let _ = connection.send(&FromServer::Note { text: evil.into() }, &[]);
        let mut said = connection.receive::<ToServer>();
        if matches!(said, Err(LinkError::Closed)) {
            said = connection.receive();
        }
        assert!(matches!(said, Ok((ToServer::Shutdown { force: false }, _))), "{said:?}");
        assert!(matches!(connection.receive::<ToServer>(), Err(LinkError::Closed)), "and the connection ends");
    };
    let own = geteuid().as_raw();
    pretend(own);
    if root() {
        as_user(OTHER, || pretend(OTHER));
    }
    wait_for_log(&node, "no control daemon of this directory has started it: refused");
    assert_eq!(node.control("get_server_list"), "");
    assert_eq!(node.control("device_query").matches("Server").count(), 0);
    assert!(!control_log(&node).contains('\u{1b}'));
    node.client("vector_add").args(&["1"]).start().expect_ok();
    assert_eq!(node.control("get_server_list").lines().count(), 1);
}

/// A daemon that was killed leaves a list that the next one believes, and nobody else may write;
/// `quit` leaves none.
#[test]
fn the_next_daemon_knows_the_servers_of_the_last() {
    let node = Node::start();
    let mut client = node.test_client("idle").start();
    client.wait_for_line("ready");
    let server = node.server().pid;
    node.kill(node.daemon_pid());
    let list = node.pipe().join("servers.json");
    assert_eq!(fs::metadata(&list).unwrap().permissions().mode() & 0o777, 0o600);
    node.start_daemon();
    assert_eq!(node.server().pid, server);
    client.tell("");
    client.wait_for_line("round 1 right");
    client.expect_ok();
    served_and_then_quit(&node);
    assert!(!list.exists());
}

/// The list is lost: the server serves its clients to their end, and the next program gets a new
/// one.
#[test]
fn a_server_that_is_not_in_the_list_goes_when_its_clients_have_gone() {
    let node = Node::start();
    let mut client = node.test_client("idle").start();
    client.wait_for_line("ready");
    let server = node.server().pid;
    node.kill(node.daemon_pid());
    fs::remove_file(node.pipe().join("servers.json")).unwrap();
    node.start_daemon();
    wait_for_log(&node, &format!("Process {server} of user"));
    client.tell("");
    client.wait_for_line("round 1 right");
    let process = Process::open(server).unwrap();
    client.expect_ok();
    assert!(process.ended(None));
    served_and_then_quit(&node);
}

/// Names that others have chosen are shown as text, and a terminal gets no commands, wherever they
/// appear.
#[test]
fn names_of_others_command_no_terminal() {
    let node = Node::start();
    let program = node.folder().join("evil\u{1b}[2J\u{9b}31m\nname");
    fs::copy(test_program("idle"), &program).unwrap();
    let variable = "\u{1b}]0;mine\u{7}\u{202e}";
    let client = node.program(&program).env("CUDA_MPS_CLIENT_PRIORITY", variable).env("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", variable).start();
    client.wait_for_line("ready");
    let run = |arguments: &[&str]| {
        let output = node.cumux(arguments).output().unwrap();
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    };
    let mut shown =
        vec![run(&["status"]), run(&["status", "--json"]), run(&["top", "--once", "--interval", "0.1"]), run(&["doctor"]), run(&["doctor", "--json"])];
    shown.extend(["ps", "device_query", "get_device_client_list", "complaints"].map(|command| node.control(command)));
    shown.push(control_log(&node));
    shown.push(fs::read_to_string(node.folder().join("log/server.log")).unwrap());
    for text in &shown {
        let odd: Vec<char> = text.chars().filter(|c| c.is_control() && *c != '\n' || *c == '\u{202e}').collect();
        assert!(odd.is_empty(), "{odd:?} in {text}");
    }
    assert!(shown[0].contains("evil\\u{1b}[2J\\u{9b}31m\\nname"), "{}", shown[0]);
    assert!(shown[3].contains("\\u{1b}]0;mine"), "{}", shown[3]);
    client.expect_ok();
}

/// A hello that just fits into a packet, and is longer when it has been escaped: its program is
/// served, and the server stays.
#[test]
fn a_very_large_environment() {
    let node = Node::start();
    node.client("vector_add").args(&["1"]).start().expect_ok();
    let server = node.server().pid;
    let mut client = node.test_client("view");
    for number in 0..50 {
        client = client.env(&format!("CUMUX_STORY_{number}"), &"\u{1b}".repeat(600));
    }
    client.start().expect_ok();
    assert_eq!(node.server().pid, server);
}

// A daemon with other devices ---------------------------------------------------------------------

/// A daemon is started again with another device: programs that run go on where they are, programs
/// that come get the new device after them, and the daemon says so.
#[test]
fn a_daemon_is_started_again_with_another_device() {
    let node = Node::start();
    if !node.is_software() {
        return;
    }
    let mut old = node.test_client("idle").start();
    old.wait_for_line("ready");
    let server = node.server().pid;
    node.kill(node.daemon_pid());
    assert!(node.daemon_command().args(["--device", "sim:l4"]).status().unwrap().success());
    let why = "it serves sim:h200, this daemon was started with sim:l4";
    wait_for_log(&node, why);
    node.wait_for("its word in the status", |node| node.servers().iter().any(|s| s.leaving.contains(why)).then_some(()));
    let page = |arguments: &[&str]| String::from_utf8(node.cumux(arguments).output().unwrap().stdout).unwrap();
    assert!(page(&["status"]).contains(why) && page(&["doctor"]).contains(why), "{}\n{}", page(&["status"]), page(&["doctor"]));
    assert!(node.control(&format!("start_server -uid {}", geteuid().as_raw())).contains("until its clients have gone"));
    let new = node.test_client("view").start();
    wait_for_log(&node, &format!("NEW CLIENT {} from user {}: Server is not ready", new.pid(), geteuid().as_raw()));
    // Its server dies: the successor takes over where it was.
    node.kill(server);
    node.wait_for("the successor", |node| node.servers().iter().any(|s| s.pid != server && s.clients.len() == 1 && s.leaving.contains(why)).then_some(()));
    old.tell("");
    old.wait_for_line("round 1 right");
    old.expect_ok();
    assert!(new.expect_ok().contains("name NVIDIA L4"));
    let now = node.server();
    assert!(now.pid != server && now.leaving.is_empty(), "{now:?}");
}

#[test]
fn protocol_three_is_refused_by_name() {
    let node = Node::start();
    let asked = node.cumux(&["control", "get_default_client_priority"]).env("CUDA_MPS_PROTOCOL_VERSION", "3").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&asked.stdout), "0\n", "the front end speaks what the daemon does");
    assert!(node.control_output("quit").status.success());
    let output = node.daemon_command().env("CUDA_MPS_PROTOCOL_VERSION", "3").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("CUDA_MPS_PROTOCOL_VERSION=3") && said.contains("set it to 2"), "{said}");
    assert!(node.daemon_command().args(["-p", "3"]).env("CUDA_MPS_PROTOCOL_VERSION", "2").status().unwrap().success(), "the variable counts");
}

// Other PID namespaces ----------------------------------------------------------------------------

/// `unshare` with these words before the program, if the system permits that.
fn unshare() -> Option<[&'static str; 5]> {
    let words = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"];
    let may = Command::new(words[0]).args(&words[1..]).arg("true").stderr(Stdio::null()).status().is_ok_and(|status| status.success());
    if !may {
        eprintln!("NOTE: not tested: another PID namespace (unshare) is not permitted here");
    }
    may.then_some(words)
}

/// A client in a container, a daemon outside: the daemon sees its process, and knows it by its own
/// number.
#[test]
fn a_client_of_a_container() {
    let Some(words) = unshare() else { return };
    let node = Node::start();
    let program = test_program("idle");
    let mut arguments: Vec<&str> = words[1..].to_vec();
    arguments.push(program.to_str().unwrap());
    let mut client = node.program(Path::new(words[0])).args(&arguments).start();
    client.wait_for_line("ready");
    let server = node.server();
    let pid = server.clients[0].pid;
    assert_ne!(pid, client.pid(), "unshare is its parent");
    let table = node.control("ps");
    let line = table.lines().nth(1).unwrap();
    assert!(line.starts_with(&pid.to_string()) && line.contains("idle"), "{table}");
    // Its numbers are not the server's: what it is told of a new server it believes all the same.
    node.kill(server.pid);
    node.wait_for("another server", |node| node.servers().into_iter().find(|s| s.pid != server.pid && s.state == "ACTIVE" && s.clients.len() == 1));
    client.tell("");
    client.wait_for_line("round 1 right");
    node.kill(node.server().executor);
    client.tell("");
    client.wait_for_line("round 2 right");
    client.expect_ok();
}

/// A daemon in a container: it cannot see the processes outside, which are served all the same,
/// under numbers of its own.
#[test]
fn a_daemon_in_a_container() {
    let Some(words) = unshare() else { return };
    if !root() {
        return;
    }
    let node = Node::with().prepare(open_to_all).start();
    assert!(node.control_output("quit").status.success());
    let plain = node.daemon_command();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).args(["sh", "-c", "\"$@\" -S && exec sleep 100000", "sh"]).arg(plain.get_program()).args(plain.get_args());
    command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?)))).stdin(Stdio::null());
    let mut container = command.spawn().unwrap();
    node.wait_for("the daemon", |node| node.control_output("get_server_list").status.success().then_some(()));
    let uuid = node.control("device_query --csv").lines().find_map(|line| line.split(',').find(|cell| cell.starts_with("GPU-")).map(str::to_owned)).unwrap();
    let partition = node.control(&format!("sm_partition add {uuid} 2")).trim().to_owned();
    let start = || {
        let client: Client<'_> = node.test_client("idle").env("CUDA_MPS_SM_PARTITION", &partition).start();
        client.wait_for_line("ready");
        client
    };
    let (mut first, second) = (start(), start());
    let server = node.servers().remove(0);
    let numbers: Vec<u32> = server.clients.iter().map(|client| client.pid).collect();
    assert!(numbers.len() == 2 && numbers[0] != numbers[1] && numbers.iter().all(|number| *number >= 500_000_000), "{numbers:?}");
    let table = node.control("ps");
    for (line, number) in table.lines().skip(1).zip(&numbers) {
        let cells: Vec<&str> = line.split_whitespace().collect();
        assert_eq!((cells[0], cells[4]), (number.to_string().as_str(), "-"), "{table}");
        assert!(cells[5].ends_with("idle"), "{table}");
    }
    assert!(node.control("lspart").contains("Yes"), "their partition is in use: {}", node.control("lspart"));
    // They are commanded by these numbers.
    assert_eq!(node.control(&format!("terminate_client {} {}", server.pid, numbers[1])), "0\n");
    drop(second);
    node.wait_for("the end of the second", |node| node.servers().iter().all(|s| s.clients.len() == 1).then_some(()));
    first.tell("");
    first.wait_for_line("round 1 right");
    // The server dies; its successor has another number, which says nothing out here.
    let of_server = |pid: &u32| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.split(|byte| *byte == 0).nth(1) == Some(b"server"));
    node.kill(node.processes().into_iter().find(of_server).expect("its number out here"));
    node.wait_for("another server", |node| node.servers().into_iter().find(|s| s.pid != server.pid && s.state == "ACTIVE" && s.clients.len() == 1));
    first.tell("");
    first.wait_for_line("round 2 right");
    first.kill();
    node.wait_for("the end of the first", |node| node.servers().iter().all(|s| s.clients.is_empty()).then_some(()));
    node.wait_for("a free partition", |node| (!node.control("lspart").contains("Yes")).then_some(()));
    assert!(node.control_output("quit").status.success(), "{}", node.logs());
    container.kill().unwrap();
    container.wait().unwrap();
}
