//! Nobody gets in: what another user of the machine has prepared is not followed, whoever listens
//! first is not believed, logs belong to who writes them.
//!
//! The other user is uid 65534 and root is oneself, so most of this needs root.
//!
//! One file, although long: a list of stories, with the means that they share.

use cumux_testkit::{Node, Outcome, cumux};
use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const OTHER: u32 = 65534;
/// In the front end's and the daemon's words.
const PIPE: &str = "CUDA_MPS_PIPE_DIRECTORY";
const LOG: &str = "CUDA_MPS_LOG_DIRECTORY";

fn is_root() -> bool {
    let is = rustix::process::geteuid().is_root();
    if !is {
        eprintln!("NOTE: not tested: two users need root");
    }
    is
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A node whose folder everybody may enter.
fn open_node() -> Node {
    Node::with().prepare(|folder| set_mode(folder, 0o755)).start()
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("our own file");
}

fn made(path: PathBuf, mode: u32) -> PathBuf {
    fs::create_dir(&path).expect("a new folder");
    set_mode(&path, mode);
    path
}

fn give(path: &Path) {
    std::os::unix::fs::lchown(path, Some(OTHER), Some(OTHER)).expect("we are root");
}

/// A file that only root may read.
fn secret(folder: &Path) -> PathBuf {
    let path = folder.join("secret");
    fs::write(&path, "root's secret").expect("our folder");
    set_mode(&path, 0o600);
    path
}

fn is_untouched(secret: &Path) {
    let about = fs::symlink_metadata(secret).expect("it is there");
    assert_eq!((about.uid(), about.mode() & 0o7777), (0, 0o600));
    assert_eq!(fs::read_to_string(secret).expect("ours"), "root's secret");
}

/// A daemon that must not start: what it says.
fn refused_daemon(node: &Node, pipe: &Path, log: &Path) -> String {
    let output = node.cumux(&["control", "-d", "--device", "sim:h200"]).env(PIPE, pipe).env(LOG, log).output().expect("cumux starts");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(!pipe.join("control").exists());
    text(&output)
}

/// The program where every user can start it.
fn for_everybody(node: &Node) -> PathBuf {
    let program = node.folder().join("cumux");
    if !program.exists() {
        fs::copy(cumux(), &program).expect("our own folder");
    }
    program
}

/// A daemon of the other user in a folder of its own.
fn daemon_of_the_other(node: &Node) -> PathBuf {
    let pipe = made(node.folder().join("theirs"), 0o755);
    give(&pipe);
    let mut command = Command::new(for_everybody(node));
    command.args(["control", "-d", "--device", "sim:h200"]).env(PIPE, &pipe).env(LOG, pipe.join("log")).uid(OTHER).gid(OTHER);
    let output = command.output().expect("cumux starts");
    assert!(output.status.success(), "{}", text(&output));
    pipe
}

// Directories -------------------------------------------------------------------------------------

/// As README used to say: the log directory is made first by somebody else, with `server.log` as a
/// link to a file of root's.
#[test]
fn a_log_directory_that_another_user_has_made() {
    if !is_root() {
        return;
    }
    let node = open_node();
    let secret = secret(node.folder());
    let (pipe, log) = (node.folder().join("pipe2"), made(node.folder().join("log2"), 0o755));
    for name in ["server.log", "control.log"] {
        symlink(&secret, log.join(name)).unwrap();
        give(&log.join(name));
    }
    give(&log);
    let said = refused_daemon(&node, &pipe, &log);
    assert!(said.contains("log2 belongs to user 65534") && said.contains(&format!("set {LOG} to")), "{said}");
    is_untouched(&secret);
    // Also through a link, and below a folder of theirs.
    let link = node.folder().join("log3");
    symlink(&log, &link).unwrap();
    give(&link);
    assert!(refused_daemon(&node, &pipe, &link).contains("is a link that user 65534 has made"));
    assert!(refused_daemon(&node, &pipe, &log.join("deeper")).contains("log2 belongs to user 65534"));
    assert!(!log.join("deeper").exists());
    is_untouched(&secret);
    let doctor = node.cumux(&["doctor"]).env(LOG, &log).output().unwrap();
    assert!(text(&doctor).contains("log2 belongs to user 65534"), "{}", text(&doctor));
}

#[test]
fn a_pipe_directory_that_another_user_has_made() {
    if !is_root() {
        return;
    }
    let node = open_node();
    let target = made(node.folder().join("target"), 0o700);
    let pipe = made(node.folder().join("pipe2"), 0o755);
    symlink(&target, pipe.join(format!("user-{OTHER}"))).unwrap();
    give(&pipe.join(format!("user-{OTHER}")));
    give(&pipe);
    let said = refused_daemon(&node, &pipe, &node.folder().join("log"));
    assert!(said.contains("pipe2 belongs to user 65534") && said.contains(&format!("set {PIPE} to")), "{said}");
    assert_eq!(fs::metadata(&target).unwrap().uid(), 0);
    let doctor = node.cumux(&["doctor"]).env(PIPE, &pipe).output().unwrap();
    assert!(text(&doctor).contains("not safe") && text(&doctor).contains("pipe2 belongs to user 65534"), "{}", text(&doctor));
}

#[test]
fn directories_that_others_can_write() {
    let node = open_node();
    for (mode, remedy) in [(0o777, "chmod go-w"), (0o775, "chmod g-w")] {
        let place = made(node.folder().join(format!("{mode:o}")), mode);
        let said = refused_daemon(&node, &place, &node.folder().join("log"));
        assert!(said.contains(remedy) && said.contains(PIPE), "{said}");
        let said = refused_daemon(&node, &node.folder().join("fresh"), &place);
        assert!(said.contains(remedy) && said.contains(LOG), "{said}");
        let doctor = node.cumux(&["doctor"]).env(PIPE, &place).output().unwrap();
        assert!(text(&doctor).contains(remedy) && doctor.status.code() == Some(1), "{}", text(&doctor));
    }
    // Sticky, as /tmp: what lies there is looked at one by one.
    let shared = made(node.folder().join("shared"), 0o1777);
    let start = || node.cumux(&["control", "-d", "--device", "sim:h200"]).env(PIPE, shared.join("mps")).env(LOG, &shared).output().unwrap();
    assert!(start().status.success());
    assert!(node.cumux(&["control", "quit"]).env(PIPE, shared.join("mps")).status().unwrap().success());
    assert_eq!(fs::metadata(shared.join("mps")).unwrap().mode() & 0o777, 0o755);
    if is_root() {
        give(&shared.join("control.log"));
        let output = start();
        assert!(!output.status.success() && text(&output).contains("control.log belongs to user 65534"), "{}", text(&output));
    }
}

/// Links, pipes and the like under the names of our files: nothing is written through them, nobody
/// waits for the other end, and the sentence says which it is.
#[test]
fn what_is_no_plain_file() {
    let node = open_node();
    let victim = node.folder().join("victim");
    fs::write(&victim, "mine").unwrap();
    let plant = |path: &Path, what: &str| match what {
        "is a link" => symlink(&victim, path).unwrap(),
        "is a pipe" => assert!(Command::new("mkfifo").arg(path).status().unwrap().success()),
        "is a directory" => fs::create_dir(path).unwrap(),
        _ => fs::hard_link(&victim, path).unwrap(),
    };
    for what in ["is a link", "is a pipe", "is a directory", "names (hard links)"] {
        let folder = tempfile::Builder::new().prefix("cx").tempdir_in(node.folder()).unwrap();
        let (pipe, log) = (folder.path().join("pipe"), made(folder.path().join("log"), 0o755));
        for name in ["control.log", "server.log"] {
            plant(&log.join(name), what);
            let said = refused_daemon(&node, &pipe, &log);
            assert!(said.contains(name) && said.contains(what), "{what}: {said}");
            if what == "is a directory" { fs::remove_dir(log.join(name)).unwrap() } else { fs::remove_file(log.join(name)).unwrap() }
        }
        plant(&pipe.join("control_lock.planted"), what);
        let _ = fs::remove_file(pipe.join("control_lock"));
        fs::rename(pipe.join("control_lock.planted"), pipe.join("control_lock")).unwrap();
        let said = refused_daemon(&node, &pipe, &log);
        assert!(said.contains("control_lock") && said.contains(what), "{what}: {said}");
    }
    // Who replaces what is there does not follow it either.
    let pipe = made(node.folder().join("pipe2"), 0o755);
    symlink(&victim, pipe.join("nvidia-cuda-mps-control.pid")).unwrap();
    symlink(&victim, pipe.join("control")).unwrap();
    let control = |words: &[&str]| node.cumux(words).env(PIPE, &pipe).output().unwrap();
    assert!(control(&["control", "-d", "-S", "--device", "sim:h200"]).status.success());
    assert!(fs::symlink_metadata(pipe.join("nvidia-cuda-mps-control.pid")).unwrap().is_file());
    assert!(fs::symlink_metadata(pipe.join("control")).unwrap().file_type().is_socket());
    let _ = fs::remove_file(pipe.join("partitions.json"));
    symlink(&victim, pipe.join("partitions.json")).unwrap();
    let uuid = text(&control(&["control", "lspart"]));
    let uuid = uuid.split_whitespace().find(|word| word.starts_with("GPU-")).expect("a device").to_owned();
    assert!(text(&control(&["control", "sm_partition", "add", &uuid, "1"])).starts_with("GPU-"));
    assert!(fs::symlink_metadata(pipe.join("partitions.json")).unwrap().is_file());
    assert!(control(&["control", "quit"]).status.success());
    assert_eq!(fs::read_to_string(&victim).unwrap(), "mine");
}

/// Root starts its daemon again and again where a user exchanges directory and link all the time.
#[test]
fn a_race_for_the_directory() {
    if !is_root() {
        return;
    }
    let node = open_node();
    let secret = secret(node.folder());
    let shared = made(node.folder().join("shared"), 0o1777);
    let script = "cd \"$0\"; mkdir a; ln -s \"$1\" a/server.log; ln -s \"$1\" a/control.log; ln -s \"$1\" a/nvidia-cuda-mps-control.pid; \
                  while :; do mv -T a mps; mv -T mps a; ln -s \"$2\" mps; rm mps; done";
    let roots = made(node.folder().join("roots"), 0o755);
    let mut adversary = Command::new("sh");
    adversary.args(["-c", script]).arg(&shared).arg(&secret).arg(&roots).uid(OTHER).gid(OTHER).stdout(Stdio::null()).stderr(Stdio::null());
    let mut adversary = Reaped(adversary.spawn().unwrap());
    node.wait_for("the adversary", |_| shared.join("a").exists().then_some(()));
    let (mut refused, mut started) = (0, 0);
    for _ in 0..60 {
        let place = shared.join("mps");
        let output = node.cumux(&["control", "-d", "--device", "sim:h200"]).env(PIPE, &place).env(LOG, &place).output().unwrap();
        if !output.status.success() {
            refused += 1;
            continue;
        }
        // In a moment when there was nothing of that name: then it is root's, and the adversary
        // cannot move it.
        started += 1;
        assert_eq!(fs::symlink_metadata(&place).unwrap().uid(), 0);
        assert!(node.cumux(&["control", "quit"]).env(PIPE, &place).status().unwrap().success());
        fs::remove_dir_all(&place).unwrap();
    }
    println!("{refused} refused, {started} started");
    adversary.0.kill().unwrap();
    is_untouched(&secret);
    assert_eq!(fs::read_dir(&roots).unwrap().count(), 0, "no link was followed");
}

/// Killed when the test ends, however it does.
struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_directory_as_long_as_nvidias_socket_allows() {
    let node = open_node();
    let pipe = node.folder().join("x".repeat(107 - "/control".len() - node.folder().as_os_str().len() - 1));
    assert_eq!(pipe.join("control").as_os_str().len(), 107);
    let path = pipe.to_str().unwrap();
    assert!(node.cumux(&["control", "-d", "--device", "sim:h200"]).env(PIPE, path).status().unwrap().success());
    node.client("vector_add").args(&["1"]).env(PIPE, path).start().expect_ok();
    if is_root() {
        // Its socket is 38 bytes longer.
        node.client("vector_add").args(&["1"]).env(PIPE, path).user(OTHER).start().expect_ok();
    }
    assert!(node.cumux(&["status"]).env(PIPE, path).status().unwrap().success());
    assert!(node.cumux(&["control", "quit"]).env(PIPE, path).status().unwrap().success());
}

/// Nothing of a user's is written by root's `install`, and nobody else can exchange what is
/// installed.
#[test]
fn a_prefix_that_another_user_has_prepared() {
    if !is_root() {
        return;
    }
    let node = open_node();
    let secret = secret(node.folder());
    let prefix = made(node.folder().join("prefix"), 0o755);
    let bin = made(prefix.join("bin"), 0o755);
    symlink(&secret, bin.join("cumux")).unwrap();
    give(&bin);
    let install = || node.cumux(&["install", "--drop-in", "--prefix"]).arg(&prefix).output().unwrap();
    let output = install();
    assert!(!output.status.success() && text(&output).contains("bin belongs to user 65534"), "{}", text(&output));
    is_untouched(&secret);
    std::os::unix::fs::chown(&bin, Some(0), Some(0)).unwrap();
    // Root's own link is replaced, as any installer does it.
    assert!(install().status.success());
    assert!(fs::symlink_metadata(bin.join("cumux")).unwrap().is_file());
    is_untouched(&secret);
}

// Servers of other users --------------------------------------------------------------------------

/// What root's daemon gives to a user is a folder of its own, and nothing that others have as well.
#[test]
fn another_users_server_gets_a_folder_and_no_log() {
    if !is_root() {
        return;
    }
    let node = Node::with().prepare(|folder| set_mode(folder, 0o755)).env("A_SECRET_OF_ROOT", "in its environment").start();
    let mut client = node.test_client("idle").user(OTHER).start();
    client.wait_for_line("ready");
    let server = node.server();
    assert_eq!(server.uid, OTHER);
    let about = fs::symlink_metadata(node.pipe().join(format!("user-{OTHER}"))).unwrap();
    assert_eq!((about.is_dir(), about.uid(), about.mode() & 0o7777), (true, OTHER, 0o700));
    let log = node.folder().join("log/server.log");
    assert_eq!((fs::metadata(&log).unwrap().uid(), fs::metadata(&log).unwrap().mode() & 0o022), (0, 0));
    for pid in [server.pid, server.keeper, server.executor, server.standby] {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
        assert!(!String::from_utf8_lossy(&environment).contains("A_SECRET_OF_ROOT"));
        for handle in fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten() {
            let leads = fs::read_link(handle.path()).unwrap_or_default();
            assert!(!leads.starts_with(node.folder().join("log")), "process {pid} of user {OTHER} has {}", leads.display());
            assert!(!leads.starts_with("/dev/pts") && !leads.starts_with("/dev/tty"), "a terminal");
        }
    }
    // Its lines are there all the same, in its own name.
    let read = || fs::read_to_string(&log).unwrap();
    let line = format!("Server {:>5}] Server has started", server.pid);
    node.wait_for("the server's lines", |_| read().contains(&line).then_some(()));
    client.tell("");
    client.wait_for_line("round 1 right");
    // A daemon that dies leaves the reading to the next.
    node.kill(node.daemon_pid());
    let pid = client.pid();
    drop(client.wait());
    node.start_daemon();
    let line = format!("Client process {pid} disconnected");
    node.wait_for("what the server said while there was no daemon", |_| read().contains(&line).then_some(()));
    assert!(read().lines().all(|line| line.starts_with('[')), "{}", read());
}

/// What lies under the name of the user's folder and is not that: the user is told, and everybody
/// else is served.
#[test]
fn a_users_folder_that_is_something_else() {
    if !is_root() {
        return;
    }
    let node = open_node();
    let target = made(node.folder().join("target"), 0o755);
    let planted = node.pipe().join(format!("user-{OTHER}"));
    symlink(&target, &planted).unwrap();
    let refused = |why: &str| {
        let outcome = node.test_client("view").user(OTHER).start().wait();
        assert_eq!((outcome.status.code(), outcome.out.as_str()), (Some(3), "count: cudaErrorMpsConnectionFailed"), "{outcome:?}");
        let log = fs::read_to_string(node.folder().join("log/control.log")).unwrap();
        assert!(log.contains(why), "{log}");
    };
    refused("should be a directory of user 65534 with mode 700");
    assert_eq!((fs::metadata(&target).unwrap().uid(), fs::read_dir(&target).unwrap().count()), (0, 0));
    fs::remove_file(&planted).unwrap();
    made(planted.clone(), 0o755);
    refused("is of user 0 with mode 755");
    node.client("vector_add").args(&["1"]).start().expect_ok();
    fs::remove_dir(&planted).unwrap();
    node.test_client("view").user(OTHER).start().expect_ok();
}

/// A server that is its user's own program: what it writes is in its own name, and it can fill no
/// log.
#[test]
fn words_of_a_server_that_lies() {
    if !is_root() {
        return;
    }
    let node = open_node();
    let mut client = node.test_client("idle").user(OTHER).start();
    client.wait_for_line("ready");
    let server = node.server();
    // Into the very pipe that its server has.
    let own = format!("/proc/{}/fd/2", server.pid);
    assert!(fs::read_link(&own).unwrap().to_string_lossy().starts_with("pipe:"));
    let pipe = fs::File::options().write(true).open(&own).unwrap();
    let script = "echo '[2026-11-21 00:08:11.353 Server     1] forged in another name'; i=0; while [ $i -lt 3000 ]; do echo \"$i $0\"; i=$((i+1)); done";
    assert!(Command::new("sh").args(["-c", script, &"flood ".repeat(80)]).uid(OTHER).gid(OTHER).stdout(pipe).status().unwrap().success());
    let log = node.folder().join("log/server.log");
    let read = || fs::read_to_string(&log).unwrap();
    client.tell("");
    client.wait_for_line("round 1 right");
    client.expect_ok();
    assert!(node.control_output("quit").status.success());
    let text = read();
    assert!(text.len() < 1 << 20, "{}", text.len());
    let line = text.lines().find(|line| line.contains("forged in another name")).expect("it is written");
    assert!(line.get(24..).is_some_and(|rest| rest.starts_with(&format!(" Server {:>5}] [", server.pid))), "{line}");
    assert!(text.contains("more lines about user 65534 were left out"), "{}", &text[text.len() - 2000..]);
}

// Who listens -------------------------------------------------------------------------------------

fn is_refused(outcome: &Outcome, path: &Path) {
    assert_eq!((outcome.status.code(), outcome.out.as_str()), (Some(3), "count: cudaErrorMpsConnectionFailed"), "{outcome:?}");
    let [line] = outcome.err.lines().collect::<Vec<_>>()[..] else { panic!("not one line: {}", outcome.err) };
    assert!(line.contains(path.join("cumux").to_str().unwrap()) && line.contains("belongs to user 65534") && line.contains("CUMUX_TRUST_UID=65534"), "{line}");
}

#[test]
fn a_stranger_listens_first() {
    if !is_root() {
        return;
    }
    let node = open_node();
    let pipe = daemon_of_the_other(&node);
    let heard = || fs::read_to_string(pipe.join("log/control.log")).unwrap();
    let before = heard();
    let path = pipe.to_str().unwrap();
    is_refused(&node.test_client("view").env(PIPE, path).start().wait(), &pipe);
    for words in [&["control", "get_server_list"][..], &["status"], &["set-share", "1", "5"], &["top", "--once"], &["doctor"]] {
        let output = node.cumux(words).env(PIPE, path).output().unwrap();
        let said = text(&output);
        assert!(!output.status.success() && said.contains("to user 65534") && said.contains("trust"), "{words:?}: {said}");
    }
    // A program that needs a daemon gets one of its own.
    let output = node.cumux(&["run", "--"]).arg(cumux_testkit::test_program("view")).env(PIPE, path).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("is a daemon of user 65534 and is not used"), "{}", text(&output));
    // Not a word was said to the stranger.
    let words = heard();
    assert!(!words.contains("NEW CLIENT") && !words.contains("NEW UI") && !words.contains("Cmd:"), "{words}");
    assert!(words.len() > before.len(), "the connections were seen");
    // Its own user is served by it, and who trusts it talks to it.
    node.test_client("view").env(PIPE, path).user(OTHER).start().expect_ok();
    let output = node.cumux(&["control", "get_default_client_priority"]).env(PIPE, path).env("CUMUX_TRUST_UID", "65534").output().unwrap();
    assert_eq!(text(&output), "0\n");
}

/// It listens and never takes anybody off its queue, which is full: nobody waits for it.
#[test]
fn a_stranger_who_takes_nobody() {
    if !is_root() {
        return;
    }
    let node = open_node();
    let pipe = made(node.folder().join("theirs"), 0o755);
    give(&pipe);
    // This test as another user: a thread cannot be one.
    let program = node.folder().join("test");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let mut command = Command::new(&program);
    command.args(["doors::the_part_of_the_stranger", "--exact", "--nocapture"]).env(PART, pipe.join("cumux")).uid(OTHER).gid(OTHER);
    let mut stranger = Reaped(command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    node.wait_for("the stranger", |_| pipe.join("full").exists().then_some(()));
    is_refused(&node.test_client("view").env(PIPE, pipe.to_str().unwrap()).start().wait(), &pipe);
    let output = node.cumux(&["run", "--"]).arg(cumux_testkit::test_program("view")).env(PIPE, &pipe).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert!(stranger.0.try_wait().unwrap().is_none(), "it listened all the time");
}

/// A program of root's that everybody may start: its caller chooses neither its daemon nor its log,
/// and no code for it.
#[test]
fn a_program_with_rights_of_its_own() {
    if !is_root() {
        return;
    }
    let node = open_node();
    let pipe = daemon_of_the_other(&node);
    let compile = |name: &str, source: &str, arguments: &[&str]| {
        let (from, to) = (node.folder().join(format!("{name}.c")), node.folder().join(name));
        fs::write(&from, source).unwrap();
        assert!(Command::new("gcc").args(arguments).arg("-o").arg(&to).arg(&from).arg("-ldl").status().unwrap().success());
        to
    };
    let program = "#include <dlfcn.h>\n#include <stdio.h>\n#include <unistd.h>\nint main(int n, char **words) {\n\
                   int (*init)(unsigned) = dlsym(dlopen(words[1], RTLD_NOW), \"cuInit\"); printf(\"user %d\\n\", geteuid()); return init(0) > 254; }";
    let program = compile("setuid", program, &[]);
    let (evil, log) = (node.folder().join("evil"), node.folder().join("their.log"));
    let code = format!("#include <stdio.h>\n__attribute__((constructor)) static void run(void) {{ fopen(\"{}\", \"w\"); }}", evil.display());
    let library = compile("libevil.so", &code, &["-shared", "-fPIC"]);
    let ours = node.folder().join("libcuda.so.1");
    fs::copy(cumux_testkit::library(), &ours).unwrap();
    let heard = || fs::read_to_string(pipe.join("log/control.log")).unwrap();
    let start = |user: u32| {
        let mut command = Command::new(&program);
        command.arg(&ours).env(PIPE, &pipe).env("CUMUX_LOG", &log).env("CUMUX_REAL_LIBCUDA", &library).env("CUMUX_TRUST_UID", OTHER.to_string());
        text(&command.uid(user).gid(user).output().unwrap())
    };
    // For comparison: root itself is believed what it says.
    assert_eq!(start(0), "user 0\n");
    assert!(log.exists() && heard().contains("NEW CLIENT"), "{}", heard());
    fs::remove_file(&log).unwrap();
    let before = heard();
    set_mode(&program, 0o4755);
    if start(OTHER) != "user 0\n" {
        eprintln!("NOTE: not tested: programs here get no rights of their own");
        return;
    }
    assert!(!log.exists() && !evil.exists());
    assert_eq!(heard(), before, "the caller's daemon was not even looked for");
}

const PART: &str = "CUMUX_TEST_STRANGER";

/// No test: what [`a_stranger_who_takes_nobody`] starts as another user.
#[test]
fn the_part_of_the_stranger() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
    let Some(path) = std::env::var_os(PART).map(PathBuf::from) else { return };
    let socket = || rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    let (listener, own, at) = (socket(), socket(), SocketAddrUnix::new(&path).unwrap());
    rustix::net::bind(&listener, &at).unwrap();
    set_mode(&path, 0o666);
    rustix::net::listen(&listener, 0).unwrap();
    rustix::net::connect(&own, &at).unwrap();
    fs::write(path.with_file_name("full"), "").unwrap();
    let _ = std::io::stdin().read(&mut [0]);
}

// Logs --------------------------------------------------------------------------------------------

#[test]
fn logs_have_a_size() {
    let node = Node::with().env("CUMUX_LOG_BYTES", "4000").start();
    let log = |name: &str| node.folder().join("log").join(name);
    let mut tail = fs::File::open(log("server.log")).unwrap();
    let mut seen = String::new();
    let mut look = || {
        // As `tail -f` does it.
        if tail.metadata().unwrap().len() < tail.stream_position().unwrap() {
            tail.seek(SeekFrom::Start(0)).unwrap();
        }
        tail.read_to_string(&mut seen).unwrap();
        seen.len()
    };
    let mut rounds = 0;
    while !(log("server.log.1").exists() && log("control.log.1").exists() && look() > 6000) {
        node.client("vector_add").args(&["1"]).start().expect_ok();
        look();
        rounds += 1;
        assert!(rounds < 100);
    }
    for name in ["server.log", "server.log.1", "control.log", "control.log.1"] {
        let text = fs::read_to_string(log(name)).unwrap();
        assert!(text.len() <= 4000 && text.lines().all(|line| line.starts_with('[')), "{name}: {text}");
    }
    node.client("vector_add").args(&["1"]).start().expect_ok();
    for wrong in ["0", "much"] {
        let output =
            node.cumux(&["control", "-d", "--device", "sim:h200"]).env(PIPE, node.folder().join("other")).env("CUMUX_LOG_BYTES", wrong).output().unwrap();
        assert!(!output.status.success() && text(&output).contains("CUMUX_LOG_BYTES"), "{}", text(&output));
    }
}

#[test]
fn a_visitor_cannot_flood_the_log() {
    let node = Node::start();
    for _ in 0..10_000 {
        let mut stream = UnixStream::connect(node.pipe().join("control")).expect("the daemon listens");
        // No text: refused at once.
        let _ = stream.write_all(&[1]);
        let _ = stream.read(&mut [0]);
    }
    node.client("vector_add").args(&["1"]).start().expect_ok();
    assert!(node.control_output("quit").status.success());
    let log = fs::read_to_string(node.folder().join("log/control.log")).unwrap();
    assert!(log.len() < 1 << 20, "{}", log.len());
    assert!(log.contains("more lines about user") && log.contains("were left out: too many at once"), "{}", &log[log.len() - 2000..]);
}

/// A limit of file sizes is met like a full disk: the line is missing and counted.
#[test]
fn a_limit_of_file_sizes_costs_lines() {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let node = Node::start();
    node.client("vector_add").args(&["1"]).start().expect_ok();
    let (daemon, server) = (node.daemon_pid(), node.server().pid);
    let limit = |pid: u32, bytes: Option<u64>| {
        let pid = Pid::from_raw(i32::try_from(pid).unwrap());
        prlimit(pid, Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap();
    };
    let all = node.processes();
    all.iter().for_each(|pid| limit(*pid, Some(1)));
    // However it ends: the service has no file for it.
    let _ = node.client("vector_add").args(&["1"]).start().wait();
    assert!(node.control("get_server_list").contains(&server.to_string()));
    all.iter().filter(|pid| node.owns(**pid)).for_each(|pid| limit(*pid, None));
    assert_eq!((node.daemon_pid(), node.server().pid), (daemon, server), "{}", node.logs());
    node.client("vector_add").args(&["1"]).start().expect_ok();
    let log = fs::read_to_string(node.folder().join("log/control.log")).unwrap();
    assert!(log.contains("lines could not be written"), "{log}");
}

/// A daemon of a user who may have few threads says so, and does not panic.
#[test]
fn few_threads() {
    if !is_root() {
        return;
    }
    let node = open_node();
    let program = for_everybody(&node);
    // A user of this test alone: the limit counts all processes of a user.
    let user = 700_000 + std::process::id() % 100_000;
    for most in 1..=12 {
        let place = made(node.folder().join(format!("few{most}")), 0o755);
        std::os::unix::fs::lchown(&place, Some(user), Some(user)).expect("we are root");
        let said = node.folder().join(format!("said{most}"));
        let mut daemon = Command::new("prlimit");
        daemon.arg(format!("--nproc={most}:{most}")).args(["setpriv", "--clear-groups"]).arg(format!("--reuid={user}")).arg(format!("--regid={user}"));
        daemon.arg(&program).args(["control", "-f", "--device", "sim:h200"]).env(PIPE, &place).env(LOG, &place).env("CUMUX_DEVICE", "sim:h200");
        let file = fs::File::create(&said).unwrap();
        let mut daemon = Reaped(daemon.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap());
        let ended = node.wait_for("the daemon", |_| match daemon.0.try_wait().unwrap() {
            Some(status) => Some(Some(status)),
            None => UnixStream::connect(place.join("control")).is_ok().then_some(None),
        });
        if ended.is_none() {
            let tell = |words: &[&str]| Command::new(&program).arg("control").args(words).env(PIPE, &place).uid(user).gid(user).output().unwrap();
            let answer = tell(&["start_server", "-uid", &user.to_string()]);
            println!("{most}: {}", text(&answer));
            tell(&["quit", "-t", "0"]);
            node.kill_if_alive(daemon.0.id());
            daemon.0.wait().unwrap();
        }
        let said = fs::read_to_string(&said).unwrap();
        println!("{most}: {ended:?} {said}");
        assert!(!said.contains("panicked"), "{most}: {said}");
    }
}
