//! `cumux` as a tool among others: outputs that cannot be written, terminals that go, signals, and
//! what is left afterwards.

use cumux_link::Process;
use cumux_testkit::{Node, Watchdog, cumux, processes_of, test_program};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Longer than any of these stories takes.
const STORY_TIMEOUT: Duration = Duration::from_secs(150);

/// `cumux` alone: a temporary directory of its own, no daemon around, and an end in any case.
struct Alone {
    folder: TempDir,
    _watchdog: Watchdog,
}

impl Alone {
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("cx").tempdir_in("/tmp").unwrap();
        let watchdog = Watchdog::new(STORY_TIMEOUT, folder.path());
        for name in ["tmp", "tools"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self { folder, _watchdog: watchdog }
    }

    fn temporary(&self) -> PathBuf {
        self.folder.path().join("tmp")
    }

    fn cumux(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(cumux());
        command.args(arguments).env("TMPDIR", self.temporary()).env("CUDA_MPS_PIPE_DIRECTORY", self.folder.path().join("none"));
        command.env("CUMUX_DEVICE", "sim:h200").stdin(Stdio::null());
        command
    }

    /// What is in its temporary directory.
    fn left(&self) -> Vec<PathBuf> {
        fs::read_dir(self.temporary()).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    /// Waits until neither processes nor folders of it are left.
    fn expect_nothing_left(&self) {
        // The watchdog is the limit.
        while !processes_of(&self.temporary()).is_empty() || !self.left().is_empty() {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        for pid in processes_of(self.folder.path()) {
            let _ = Process::open(pid).and_then(|process| process.signal(Signal::KILL));
        }
    }
}

/// A terminal: what a program is given, and the side of the person who looks at it.
fn terminal() -> (File, File) {
    let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&person).unwrap();
    unlockpt(&person).unwrap();
    let name = ptsname(&person, Vec::new()).unwrap();
    let program =
        OpenOptions::new().read(true).write(true).custom_flags(i32::try_from(rustix::fs::OFlags::NOCTTY.bits()).unwrap()).open(name.to_str().unwrap());
    let program = program.unwrap();
    resize(&program, 24, 80);
    (program, File::from(person))
}

fn resize(terminal: &File, rows: u16, columns: u16) {
    let size = rustix::termios::Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(terminal, size).unwrap();
}

/// Starts a command whose input, output and errors are a terminal.
fn in_terminal(mut command: Command) -> (Child, File) {
    let (program, person) = terminal();
    let child = command.stdin(program.try_clone().unwrap()).stdout(program.try_clone().unwrap()).stderr(program).spawn().unwrap();
    (child, person)
}

/// Reads a terminal until these words have come.
fn read_until(person: &mut File, words: &str) {
    let (mut seen, mut bytes) = (String::new(), [0; 4096]);
    while !seen.contains(words) {
        let read = person.read(&mut bytes).unwrap_or(0);
        assert!(read > 0, "it ended without \"{words}\": {seen}");
        seen.push_str(&String::from_utf8_lossy(&bytes[..read]));
    }
}

fn signal(pid: u32, signal: Signal) {
    Process::open(pid).unwrap().signal(signal).unwrap();
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// An output without a reader: what `| head` leaves when it has seen enough.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

fn full() -> Stdio {
    OpenOptions::new().write(true).open("/dev/full").unwrap().into()
}

/// Every command that prints: a full disk is said in a sentence, a reader that has gone ends it as
/// other tools, and nothing panics.
#[test]
fn an_output_that_cannot_be_written() {
    let node = Node::start();
    let prefix = node.folder().join("prefix");
    let commands: [&[&str]; 18] = [
        &["status"],
        &["status", "--json"],
        &["top", "--once"],
        &["top", "--interval", "0.05"],
        &["doctor"],
        &["doctor", "--json"],
        &["completions", "bash"],
        &["completions", "zsh"],
        &["man"],
        &["man", "run"],
        &["--help"],
        &["--version"],
        &["help", "run"],
        &["control", "--help"],
        &["control", "--version"],
        &["control", "get_default_client_priority"],
        &["survey", "--device", "sim:l4"],
        &["install", "--drop-in", "--prefix", prefix.to_str().unwrap()],
    ];
    for arguments in commands {
        let output = node.cumux(arguments).stdout(full()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", text(&output));
        assert_eq!(text(&output), "cumux: cannot write to standard output: No space left on device (os error 28)\n", "{arguments:?}");
        let output = node.cumux(arguments).stdout(closed()).output().unwrap();
        assert_eq!((output.status.signal(), text(&output).as_str()), (Some(13), ""), "{arguments:?}");
        let output = node.cumux(arguments).stdout(full()).stderr(full()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: nobody to tell");
    }
    let mut asking = node.cumux(&["control"]).stdin(Stdio::piped()).stdout(full()).spawn().unwrap();
    asking.stdin.take().unwrap().write_all(b"get_default_client_priority\n").unwrap();
    let output = asking.wait_with_output().unwrap();
    assert!(output.status.code() == Some(1) && text(&output).contains("cannot write to standard output"), "{output:?}");
    let output = node.cumux(&["set-share", "1", "50"]).stderr(full()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "an error that cannot be said is an error still");
}

/// `cumux install … | head -1`.
#[test]
fn an_installation_is_whole_though_nobody_reads_what_was_installed() {
    let alone = Alone::new();
    let prefix = alone.folder.path().join("prefix");
    let output = alone.cumux(&["install", "--drop-in", "--prefix", prefix.to_str().unwrap()]).stdout(closed()).output().unwrap();
    assert_eq!((output.status.signal(), text(&output).as_str()), (Some(13), ""));
    for path in ["bin/cumux", "lib/cumux/libcuda.so.1", "share/fish/vendor_completions.d/cumux.fish", "bin/nvidia-cuda-mps-server"] {
        assert!(prefix.join(path).exists(), "{path} is missing");
    }
    // Whatever the man page names is a page, too.
    let pages = prefix.join("share/man/man1");
    let main = fs::read_to_string(pages.join("cumux.1")).unwrap().replace('\\', "");
    let named: Vec<&str> = main.split_whitespace().filter_map(|word| word.strip_suffix("(1)")).collect();
    assert!(named.contains(&"cumux-set-share"), "{main}");
    for name in named {
        assert!(pages.join(format!("{name}.1")).exists(), "cumux(1) names {name}(1), which is not installed");
    }
}

#[test]
fn run_takes_the_devices_that_the_daemon_takes() {
    let alone = Alone::new();
    let program = cumux();
    let program = program.to_str().unwrap();
    let output = alone.cumux(&["run", "--device", "sim:h200,sim:l4", "--", program, "control", "device_query"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("H200") && said.contains("L4"), "{said}{}", text(&output));
    let output = alone.cumux(&["run", "--device", "sim:h200,sim:h2000", "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("unknown device \"sim:h2000\"") && text(&output).contains("sim:h200, "), "{}", text(&output));
    let output = alone.cumux(&["doctor"]).env("CUMUX_DEVICE", "sim:h200,sim:l4").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("sim:h200,sim:l4, by CUMUX_DEVICE"), "{said}");
}

/// A run whose program holds a kernel's memory and waits, with the program's output.
fn run_that_waits(alone: &Alone) -> (Child, BufReader<ChildStdout>) {
    let program = test_program("idle");
    let mut run = alone.cumux(&["run", "--", program.to_str().unwrap()]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(run.stdout.take().unwrap());
    let mut line = String::new();
    while line != "ready\n" {
        line.clear();
        assert_ne!(said.read_line(&mut line).unwrap(), 0, "it ended before it was ready");
    }
    (run, said)
}

/// Daemon, server, keeper and executors notice the end of a run that could tell nobody.
#[test]
fn a_run_that_is_killed_leaves_nothing() {
    let alone = Alone::new();
    let (mut run, _said) = run_that_waits(&alone);
    assert!(processes_of(&alone.temporary()).len() >= 5 && alone.left().len() == 1, "{:?}", alone.left());
    signal(run.id(), Signal::KILL);
    // The program is the user's: it ends with its input, as it would alone.
    drop(run.stdin.take());
    run.wait().unwrap();
    alone.expect_nothing_left();
}

/// Where the daemon was killed as well, the next run finds what they have left. What is still used
/// stays.
#[test]
fn what_dead_runs_have_left_is_swept() {
    let alone = Alone::new();
    let mut dead = alone.cumux(&["run", "sh", "-c", "echo $CUDA_MPS_PIPE_DIRECTORY; read line"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(dead.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let folder = Path::new(line.trim()).to_owned();
    let daemon: u32 = fs::read_to_string(folder.join("nvidia-cuda-mps-control.pid")).unwrap().parse().unwrap();
    let daemon = Process::open(daemon).unwrap();
    // Stopped, so that it cannot notice the end of the run before its own.
    daemon.signal(Signal::STOP).unwrap();
    signal(dead.id(), Signal::KILL);
    dead.wait().unwrap();
    daemon.signal(Signal::KILL).unwrap();
    assert!(daemon.ended(Some(STORY_TIMEOUT)));
    assert_eq!(alone.left(), std::slice::from_ref(&folder));

    let (mut lives, _said) = run_that_waits(&alone);
    let left = alone.left();
    assert!(left.len() == 1 && left[0] != folder, "{left:?}");
    assert!(alone.cumux(&["run", "true"]).status().unwrap().success());
    assert_eq!(alone.left(), left, "a run that lives keeps its own");
    drop(lives.stdin.take());
    assert!(lives.wait().unwrap().success());
    alone.expect_nothing_left();
}

/// Sockets have short names: what does not fit into `TMPDIR` is made in `/tmp`.
#[test]
fn a_long_temporary_directory() {
    let alone = Alone::new();
    let long = alone.temporary().join("x".repeat(90));
    fs::create_dir(&long).unwrap();
    let output = alone.cumux(&["run", "sh", "-c", "echo $CUDA_MPS_PIPE_DIRECTORY"]).env("TMPDIR", &long).env_remove("XDG_RUNTIME_DIR").output().unwrap();
    let folder = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    assert!(output.status.success() && folder.starts_with("/tmp/cumux-run-"), "{folder}{}", text(&output));
    assert!(!Path::new(&folder).exists(), "{folder} is left");
    // One that is no directory at all: another place is as good.
    let output = alone.cumux(&["run", "true"]).env("TMPDIR", "/nonexistent").output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
}

/// Somebody sends a signal to `cumux run` alone, while its input is a terminal. (A terminal's own
/// Ctrl-C reaches the program without help.)
#[test]
fn a_signal_for_run_alone_reaches_the_program_in_a_terminal() {
    let alone = Alone::new();
    let script = "trap 'echo got it; exit 5' INT; echo ready; while :; do sleep 0.05; done";
    let (mut run, mut person) = in_terminal(alone.cumux(&["run", "sh", "-c", script]));
    read_until(&mut person, "ready");
    signal(run.id(), Signal::INT);
    read_until(&mut person, "got it");
    assert_eq!(run.wait().unwrap().code(), Some(5));
}

/// Reads what a demo says until these words come.
fn hear(demo: &mut Child, words: &str) {
    let mut said = BufReader::new(demo.stderr.as_mut().unwrap());
    let mut line = String::new();
    while !line.contains(words) {
        line.clear();
        assert_ne!(said.read_line(&mut line).unwrap(), 0, "it ended without \"{words}\"");
    }
}

#[test]
fn an_interrupted_demo_leaves_nothing() {
    for (ending, number) in [(Signal::INT, 2), (Signal::TERM, 15), (Signal::HUP, 1)] {
        let alone = Alone::new();
        // Without cargo the programs are taken as they are.
        let mut demo = alone.cumux(&["demo"]).env("CARGO", "/nonexistent/cargo").stderr(Stdio::piped()).spawn().unwrap();
        hear(&mut demo, "running (");
        signal(demo.id(), ending);
        let output = demo.wait_with_output().unwrap();
        assert_eq!(output.status.signal(), Some(number), "{}", text(&output));
        assert_eq!((processes_of(&alone.temporary()), alone.left()), (vec![], vec![]), "it cleans up before it ends");
    }
}

/// While the programs are being built, all that does so is ended.
#[test]
fn a_demo_is_interrupted_while_it_builds() {
    let alone = Alone::new();
    let cargo = alone.folder.path().join("tools/cargo");
    let started = alone.folder.path().join("tools/started");
    fs::write(&cargo, format!("#!/bin/sh\nsleep 1000 &\necho > {}\nwait\n", started.display())).unwrap();
    fs::set_permissions(&cargo, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut demo = alone.cumux(&["demo"]).env("CARGO", &cargo).stderr(Stdio::piped()).spawn().unwrap();
    while !started.exists() {
        assert!(demo.try_wait().unwrap().is_none(), "it ended");
        std::thread::sleep(Duration::from_millis(5));
    }
    signal(demo.id(), Signal::INT);
    assert_eq!(demo.wait().unwrap().signal(), Some(2));
    alone.expect_nothing_left();
}

/// A demo in a folder that this user cannot write says so, and blames no compiler.
#[test]
fn a_demo_of_another_user_says_what_it_cannot_do() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("NOTE: not tested: another user needs root");
        return;
    }
    let alone = Alone::new();
    let prefix = alone.folder.path().join("prefix");
    assert!(alone.cumux(&["install", "--prefix", prefix.to_str().unwrap()]).stdout(Stdio::null()).status().unwrap().success());
    fs::set_permissions(alone.folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    fs::set_permissions(alone.temporary(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let mut command = Command::new(prefix.join("bin/cumux"));
    command.arg("demo").env("TMPDIR", alone.temporary()).env("CUMUX_DEVICE", "sim:h200").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut demo = command.current_dir("/").uid(65534).gid(65534).spawn().unwrap();
    // It may not enter the checkout, or not write there: as this machine has it.
    hear(&mut demo, "user 65534 may not");
    let _ = Process::open(demo.id()).and_then(|process| process.signal(Signal::INT));
    demo.wait().unwrap();
    alone.expect_nothing_left();
}

#[test]
fn top_ends_when_its_terminal_goes() {
    let node = Node::start();
    let (mut top, mut person) = in_terminal(node.cumux(&["top", "--interval", "0.1"]));
    read_until(&mut person, "q quit");
    drop(person);
    assert_eq!(top.wait().unwrap().signal(), Some(1), "as one whose terminal hung up");
    // The same with a terminal that can only be written to.
    let (program, mut person) = terminal();
    let mut top = node.cumux(&["top", "--interval", "0.05"]).stdout(program).spawn().unwrap();
    read_until(&mut person, "No server is running");
    drop(person);
    assert_eq!(top.wait().unwrap().code(), Some(1), "its output cannot be written");
}

#[test]
fn top_restores_the_terminal_when_a_signal_ends_it() {
    let node = Node::start();
    for (ending, number) in [(Signal::TERM, 15), (Signal::HUP, 1), (Signal::INT, 2)] {
        let (mut top, mut person) = in_terminal(node.cumux(&["top"]));
        read_until(&mut person, "q quit");
        signal(top.id(), ending);
        read_until(&mut person, "\u{1b}[?1049l");
        assert_eq!(top.wait().unwrap().signal(), Some(number));
    }
    let (mut top, mut person) = in_terminal(node.cumux(&["top"]));
    read_until(&mut person, "q quit");
    person.write_all(b"q").unwrap();
    read_until(&mut person, "\u{1b}[?1049l");
    assert!(top.wait().unwrap().success());
}

/// Half of a key comes, and nothing more: what is shown goes on, and so do signals.
#[test]
fn top_does_not_wait_for_the_rest_of_a_key() {
    let node = Node::start();
    let (mut top, mut person) = in_terminal(node.cumux(&["top", "--interval", "0.05"]));
    read_until(&mut person, "q quit");
    person.write_all(b"\x1b[").unwrap();
    node.kill(node.daemon_pid());
    // Only what differs from the picture before is drawn: these words are all new.
    read_until(&mut person, "(cumux control -d)");
    signal(top.id(), Signal::TERM);
    assert_eq!(top.wait().unwrap().signal(), Some(15));
}

/// Twenty columns, and a folder that is gone.
#[test]
fn a_narrow_terminal_and_no_folder_to_stand_in() {
    let node = Node::start();
    let (program, mut person) = terminal();
    resize(&program, 5, 20);
    let mut top = node.cumux(&["top"]);
    let mut top = top.stdin(program.try_clone().unwrap()).stdout(program.try_clone().unwrap()).stderr(program.try_clone().unwrap()).spawn().unwrap();
    read_until(&mut person, "q quit  p pause");
    person.write_all(b"q").unwrap();
    assert!(top.wait().unwrap().success());
    let client = node.test_client("idle").start();
    client.wait_for_line("ready");
    let mut once = node.cumux(&["top", "--once", "--interval", "0.05"]).stdout(program).spawn().unwrap();
    read_until(&mut person, &client.pid().to_string());
    assert!(once.wait().unwrap().success());
    for arguments in [&["status"] as &[_], &["doctor"], &["top", "--once"], &["run", "true"], &["man"], &["control", "get_server_list"]] {
        let gone = tempfile::tempdir().unwrap();
        // The shell stands in the folder, takes it away and becomes the command.
        let mut command = Command::new("sh");
        command.args(["-c", "rmdir \"$PWD\" && exec \"$@\"", "sh"]).arg(cumux()).args(arguments);
        command.current_dir(gone.path()).env_remove("HOME").env("CUDA_MPS_PIPE_DIRECTORY", node.pipe()).env("CUMUX_DEVICE", "sim:h200");
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}{}", String::from_utf8_lossy(&output.stdout), text(&output));
    }
}

// What the starter has set ------------------------------------------------------------------------

/// The same command below a shell line, such as `ulimit -n 10`, or below a program that execs it.
fn below(words: &[&str], plain: &Command) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg(plain.get_program()).args(plain.get_args()).stdin(Stdio::null());
    command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command
}

/// As below `trap '' CHLD`, `nohup`, or a supervisor that blocks signals.
const STRANGE: [&str; 3] = ["env", "--ignore-signal=CHLD,HUP", "--block-signal=TERM,CHLD"];

#[test]
fn ignored_and_blocked_signals_do_not_concern_us() {
    let alone = Alone::new();
    let output = below(&STRANGE, &alone.cumux(&["run", "sh", "-c", "exit 7"])).output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    // The program has what it would have without us.
    let look = ["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"];
    let mut direct = Command::new(look[0]);
    direct.args(&look[1..]);
    let (with, without) = (below(&STRANGE, &alone.cumux(&[&["run", "--"], &look[..]].concat())).output().unwrap(), below(&STRANGE, &direct).output().unwrap());
    // Only the 31 signals with names: the C library keeps 32 and 33 for its threads.
    let named = |output: &Output| -> Vec<u64> {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.split_whitespace().filter_map(|word| u64::from_str_radix(word, 16).ok()).map(|bits| bits & 0x7fff_ffff).collect()
    };
    assert_eq!(named(&with), named(&without), "{with:?} {without:?}");
    assert_eq!(named(&with).len(), 2, "{with:?}");
    // The daemon.
    let node = Node::start();
    assert!(node.control_output("quit").status.success());
    let start = || assert!(below(&STRANGE, &node.daemon_command()).output().unwrap().status.success());
    start();
    node.client("vector_add").args(&["1"]).start().expect_ok();
    let quit = node.control_output("quit");
    assert_eq!(quit.status.code(), Some(0), "its server ended well: {quit:?}\n{}", node.logs());
    start();
    let daemon = Process::open(node.daemon_pid()).unwrap();
    daemon.signal(Signal::TERM).unwrap();
    // The watchdog is the limit.
    assert!(daemon.ended(None));
}

#[test]
fn directories_of_any_bytes() {
    use std::os::unix::ffi::OsStrExt as _;
    let alone = Alone::new();
    let place = |bytes: &[u8]| alone.folder.path().join(std::ffi::OsStr::from_bytes(bytes));
    let (pipe, log) = (place(b"p\xff"), place(b"l\xff"));
    let cumux = |words: &[&str]| alone.cumux(words).env("CUDA_MPS_PIPE_DIRECTORY", &pipe).env("CUDA_MPS_LOG_DIRECTORY", &log).output().unwrap();
    let started = cumux(&["control", "-d", "--device", "sim:h200"]);
    assert!(started.status.success(), "{started:?}");
    let program = cumux_testkit::example("vector_add");
    let ran = cumux(&["run", "--", program.to_str().unwrap(), "1"]);
    let seen = (pipe.join("control").exists(), log.join("control.log").exists());
    let (status, doctor) = (cumux(&["status"]), cumux(&["doctor"]));
    let quit = cumux(&["control", "quit"]);
    assert_eq!(seen, (true, true), "the daemon is where it was told to be");
    assert!(ran.status.success() && status.status.success() && quit.status.success(), "{ran:?} {status:?} {quit:?}");
    assert!(String::from_utf8_lossy(&status.stdout).contains("1 server"), "the program ran here: {status:?}");
    assert!(!String::from_utf8_lossy(&doctor.stdout).contains("/tmp/nvidia-mps"), "{doctor:?}");
}

#[test]
fn a_daemon_without_descriptors_does_not_start() {
    let alone = Alone::new();
    let start = |limit: &str| {
        let mut plain = alone.cumux(&["control", "-d", "--device", "sim:h200"]);
        plain.env("CUDA_MPS_LOG_DIRECTORY", alone.folder.path().join("log"));
        below(&["sh", "-c", &format!("ulimit -n {limit}; exec \"$0\" \"$@\"")], &plain).output().unwrap()
    };
    for limit in ["10", "20", "47"] {
        let refused = start(limit);
        assert!(refused.status.code() == Some(1) && text(&refused).contains("ulimit -n 48"), "{limit}: {refused:?}");
        assert!(!alone.folder.path().join("none/control").exists());
    }
    let started = start("48");
    assert!(started.status.success(), "{started:?}");
    let (status, quit) = (alone.cumux(&["status"]).output().unwrap(), alone.cumux(&["control", "quit"]).output().unwrap());
    assert!(status.status.success() && quit.status.success(), "{status:?} {quit:?}");
}
