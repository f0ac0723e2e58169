//! Sockets that a supervisor of services (systemd: `cumux.socket`) has opened before there is a
//! daemon: the first program starts it.

use cumux_link::{Connection, Peer};
use cumux_testkit::{Node, cumux};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use std::fs;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// The supervisor: it has the sockets of the node's pipe directory, and starts daemons.
struct Supervisor<'a> {
    node: &'a Node,
    text: OwnedFd,
    packets: OwnedFd,
}

fn listening(path: &Path, kind: SocketType) -> OwnedFd {
    let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
    bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o666)).unwrap();
    listen(&socket, 128).unwrap();
    socket
}

impl<'a> Supervisor<'a> {
    /// Takes the place of the node's own daemon.
    fn of(node: &'a Node) -> Self {
        quit(node);
        let socket = |name, kind| listening(&node.pipe().join(name), kind);
        Self { node, text: socket("control", SocketType::STREAM), packets: socket("cumux", SocketType::SEQPACKET) }
    }

    /// Waits until somebody is in the queue of each of these sockets.
    fn await_visitors(sockets: &[&OwnedFd]) {
        for socket in sockets {
            poll(&mut [PollFd::new(socket, PollFlags::IN)], None).unwrap();
        }
    }

    /// The daemon, as the unit starts it.
    fn command(&self) -> Command {
        let node = self.node;
        let as_usual = node.cumux(&[]);
        let variables = [("LISTEN_FDS", "2"), ("LISTEN_FDNAMES", "cumux.socket:cumux.socket")];
        // LISTEN_PID is known only once the process is there. Its standard input and output carry
        // the sockets.
        let script = "export LISTEN_PID=$$; exec \"$0\" control -f --device \"$1\" 3<&0 4<&1 </dev/null >/dev/null";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(cumux()).arg(node.device()).envs(variables);
        command.envs(as_usual.get_envs().filter_map(|(name, value)| Some((name, value?)))).env_remove("CUMUX_DEVICE").stderr(Stdio::piped());
        command.stdin(self.text.try_clone().unwrap()).stdout(self.packets.try_clone().unwrap());
        command
    }

    fn start(&self) -> Child {
        self.command().spawn().unwrap()
    }

    /// The numbers of the files.
    fn files(&self) -> [u64; 2] {
        ["control", "cumux"].map(|name| fs::metadata(self.node.pipe().join(name)).expect("the supervisor's file").ino())
    }

    /// Who listens, as the kernel tells those who connect now.
    fn listener(&self) -> [Option<u32>; 2] {
        let text = cumux_link::reach::stream(&self.node.pipe().join("control"), None).unwrap();
        let packets = Connection::connect(&self.node.pipe().join("cumux")).unwrap();
        [Peer::of(&text).unwrap().pid, packets.peer().unwrap().pid]
    }
}

fn quit(node: &Node) {
    assert_eq!(node.control("quit"), "");
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A program and a command that came before the daemon are served by it, though the kernel has
/// told them that the supervisor listens.
#[test]
fn who_comes_first_starts_the_daemon_and_is_served() {
    let node = Node::start();
    let systemd = Supervisor::of(&node);
    let files = systemd.files();
    let program = node.client("vector_add").start();
    let command = node.cumux(&["control", "get_default_active_thread_percentage"]).spawn().unwrap();
    Supervisor::await_visitors(&[&systemd.text, &systemd.packets]);
    let early = Connection::connect(&node.pipe().join("cumux")).unwrap();
    assert_eq!(early.peer().unwrap().pid, Some(std::process::id()), "the supervisor, who is this test");

    let mut daemon = systemd.start();
    program.expect_ok();
    let output = command.wait_with_output().unwrap();
    assert!(output.status.success() && text(&output).starts_with("100"), "{output:?}");
    assert_eq!(systemd.listener(), [Some(daemon.id()); 2]);
    assert_eq!(node.daemon_pid(), daemon.id());
    assert_eq!(early.peer().unwrap().pid, Some(std::process::id()), "what it was told does not change");
    node.client("vector_add").start().expect_ok();

    // The end of the daemon leaves the supervisor's files, and the next program starts the next
    // daemon.
    quit(&node);
    assert!(daemon.wait().unwrap().success());
    assert_eq!(systemd.files(), files);
    assert!(!node.pipe().join("nvidia-cuda-mps-control.pid").exists());
    let program = node.client("vector_add").start();
    Supervisor::await_visitors(&[&systemd.packets]);
    let mut daemon = systemd.start();
    program.expect_ok();
    assert_eq!(systemd.listener(), [Some(daemon.id()); 2]);
    quit(&node);
    assert!(daemon.wait().unwrap().success());

    // A command that starts the daemon may end it, too: it does not wait for the supervisor's end.
    let quit = node.cumux(&["control", "quit"]).spawn().unwrap();
    Supervisor::await_visitors(&[&systemd.text]);
    let mut daemon = systemd.start();
    let output = quit.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert!(daemon.wait().unwrap().success());
    assert_eq!(systemd.files(), files);
}

/// The supervisor keeps the sockets while no daemon is there: who comes meanwhile waits, and who is
/// served goes on.
#[test]
fn a_daemon_that_is_killed_loses_nobody() {
    let node = Node::start();
    let systemd = Supervisor::of(&node);
    let mut running = node.test_client("idle").start();
    Supervisor::await_visitors(&[&systemd.packets]);
    let mut first = systemd.start();
    running.wait_for_line("ready");
    let server = node.server().pid;
    node.kill(first.id());
    first.wait().unwrap();
    let meanwhile = node.client("vector_add").start();
    let command = node.cumux(&["control", "get_server_list"]).spawn().unwrap();
    Supervisor::await_visitors(&[&systemd.text, &systemd.packets]);
    let mut second = systemd.start();
    meanwhile.expect_ok();
    let output = command.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(systemd.listener(), [Some(second.id()); 2]);
    assert_eq!(node.server().pid, server, "the next daemon knows the server of the last");
    running.tell("");
    running.wait_for_line("round 1 right");
    running.close_input();
    running.expect_ok();
    quit(&node);
    assert!(second.wait().unwrap().success());
}

/// The doctor does not take the supervisor for a daemon, and starts one.
#[test]
fn the_doctor_says_who_listens() {
    let node = Node::start();
    let systemd = Supervisor::of(&node);
    let diagnose = || node.cumux(&["doctor"]).spawn().unwrap();
    let first = diagnose();
    Supervisor::await_visitors(&[&systemd.text, &systemd.packets]);
    let mut daemon = systemd.start();
    let said = text(&first.wait_with_output().unwrap());
    assert!(said.contains("is started by the first program"), "{said}");
    let said = text(&diagnose().wait_with_output().unwrap());
    assert!(said.contains(&format!("pid {}", daemon.id())), "{said}");
    quit(&node);
    assert!(daemon.wait().unwrap().success());
}

/// Each is refused with a sentence that says what to do, and the supervisor's files stay.
#[test]
fn sockets_that_programs_could_not_use() {
    let node = Node::start();
    let systemd = Supervisor::of(&node);
    let files = systemd.files();
    let refused = |command: &mut Command| {
        let output = command.output().unwrap();
        assert!(!output.status.success(), "it serves");
        assert_eq!(systemd.files(), files);
        assert_eq!(systemd.listener(), [Some(std::process::id()); 2], "and who listened still does");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let cumux = node.pipe().join("cumux");
    fs::set_permissions(&cumux, fs::Permissions::from_mode(0o600)).unwrap();
    let said = refused(&mut systemd.command());
    assert!(said.contains("cumux.socket must have SocketMode=0666"), "{said}");
    fs::set_permissions(&cumux, fs::Permissions::from_mode(0o666)).unwrap();
    let said = refused(systemd.command().stdin(Stdio::null()));
    assert!(said.contains("cumux.socket passes what is no unix socket"), "{said}");
    let said = refused(systemd.command().stdin(systemd.packets.try_clone().unwrap()));
    assert!(said.contains("was passed twice"), "{said}");
    let said = refused(systemd.command().env("LISTEN_FDS", "1"));
    assert!(said.contains("ListenSequentialPacket"), "{said}");
    let said = refused(systemd.command().env("LISTEN_FDS", "many"));
    assert!(said.contains("LISTEN_FDS=many is no number"), "{said}");
    let other = node.folder().join("elsewhere");
    let said = refused(systemd.command().env("CUDA_MPS_PIPE_DIRECTORY", &other));
    assert!(said.contains("set CUDA_MPS_PIPE_DIRECTORY to its directory"), "{said}");
}

/// What one daemon serves, no other takes from it; a daemon in the background takes no sockets.
#[test]
fn sockets_are_taken_by_one_daemon_in_the_foreground() {
    let node = Node::start();
    let systemd = Supervisor::of(&node);
    let mut daemon = systemd.start();
    node.client("vector_add").start().expect_ok();
    let output = systemd.command().output().unwrap();
    assert!(!output.status.success() && text(&output).contains("already running"), "{output:?}");
    assert_eq!(systemd.listener(), [Some(daemon.id()); 2]);
    let script = "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" control -d 3<&0";
    let output = Command::new("sh").args(["-c", script]).arg(cumux()).stdin(systemd.text.as_fd().try_clone_to_owned().unwrap()).output().unwrap();
    assert!(!output.status.success() && text(&output).contains("start it with -f"), "{output:?}");
    quit(&node);
    assert!(daemon.wait().unwrap().success());
}

/// What is announced for another process concerns nobody else: the daemon makes its own sockets.
#[test]
fn what_is_meant_for_another_process_changes_nothing() {
    let node = Node::start();
    quit(&node);
    let output = node.daemon_command().env("LISTEN_PID", "1").env("LISTEN_FDS", "2").output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    node.client("vector_add").start().expect_ok();
    quit(&node);
    assert!(!node.pipe().join("cumux").exists() && !node.pipe().join("control").exists());
}
