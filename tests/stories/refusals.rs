//! Bad input: each a sentence that says what to do, nothing lost, nobody left hanging.

use cumux_link::Connection;
use cumux_testkit::{Node, cumux};
use cumux_wire::message::{Hello, Reply};
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output};

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn an_unknown_device() {
    let node = Node::start();
    let folder = tempfile::tempdir().unwrap();
    let output = node.cumux(&["control", "-d", "--device", "sim:h2000"]).env("CUDA_MPS_PIPE_DIRECTORY", folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("unknown device \"sim:h2000\"") && text(&output).contains("sim:h200,"), "{}", text(&output));
    let output = node.cumux(&["run", "--device", "cuda:x", "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("cuda:0"), "{}", text(&output));
}

#[test]
fn no_device_is_chosen_silently_for_the_daemon() {
    if fs::exists("/dev/nvidia0").unwrap_or(false) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(cumux()).args(["control", "-d"]).env("CUDA_MPS_PIPE_DIRECTORY", folder.path()).env_remove("CUMUX_DEVICE").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("--device sim:h200"), "{}", text(&output));
    assert!(!folder.path().join("control").exists());
}

#[test]
fn a_second_daemon() {
    let node = Node::start();
    let output = node.daemon_command().output().unwrap();
    assert_eq!((output.status.code(), text(&output).as_str()), (Some(1), "An instance of this daemon is already running\n"));
}

#[test]
fn no_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(cumux()).arg("control").env("CUDA_MPS_PIPE_DIRECTORY", folder.path()).output().unwrap();
    assert_eq!((output.status.code(), text(&output).as_str()), (Some(1), "Cannot find MPS control daemon process\n"));
}

/// What asks the daemon says where it has looked, and what to do.
#[test]
fn commands_without_a_daemon() {
    let folder = tempfile::tempdir().unwrap();
    for words in [&["status"][..], &["status", "--json"], &["move", "1"], &["set-share", "1", "50"], &["group", "list"], &["upgrade"]] {
        let output = Command::new(cumux()).args(words).env("CUDA_MPS_PIPE_DIRECTORY", folder.path()).output().unwrap();
        let said = text(&output);
        assert!(output.status.code() == Some(1) && said.contains(&*folder.path().to_string_lossy()) && said.contains("cumux control -d"), "{words:?}: {said}");
    }
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let output = Command::new(cumux()).arg("faults").env("CUDA_MPS_PIPE_DIRECTORY", &file).output().unwrap();
    assert!(output.status.code() == Some(1) && text(&output).contains("is not a directory; set CUDA_MPS_PIPE_DIRECTORY"), "{}", text(&output));
}

#[test]
fn a_client_that_is_no_process_number() {
    for words in [&["move", "abc"][..], &["move", "0"], &["move", "99999999999"], &["set-share", "vector_add", "50"]] {
        let output = Command::new(cumux()).args(words).output().unwrap();
        let said = text(&output);
        assert!(output.status.code() == Some(2) && said.contains("not a process number; `cumux status` lists"), "{words:?}: {said}");
    }
}

#[test]
fn a_pipe_directory_that_cannot_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let locked = folder.path().join("locked");
    fs::create_dir(&locked).unwrap();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    // Root may enter everything: somebody else has to try.
    let program = folder.path().join("cumux");
    fs::copy(cumux(), &program).unwrap();
    let mut command = Command::new(&program);
    if rustix::process::geteuid().is_root() {
        command.uid(65534).gid(65534);
    }
    let output =
        command.args(["control", "-d", "--device", "sim:h200"]).env("CUDA_MPS_PIPE_DIRECTORY", &locked).env("CUDA_MPS_LOG_DIRECTORY", "/tmp").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("CUDA_MPS_PIPE_DIRECTORY"), "{}", text(&output));
    let mut doctor = Command::new(&program);
    if rustix::process::geteuid().is_root() {
        doctor.uid(65534).gid(65534);
    }
    let output = doctor.arg("doctor").env("CUDA_MPS_PIPE_DIRECTORY", &locked).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("may not be entered"), "{}", text(&output));
}

#[test]
fn a_socket_path_that_is_too_long() {
    let folder = tempfile::tempdir().unwrap();
    let long = folder.path().join("x".repeat(100));
    let output = Command::new(cumux()).args(["control", "-d", "--device", "sim:h200"]).env("CUDA_MPS_PIPE_DIRECTORY", &long).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("107") && text(&output).contains("shorter"), "{}", text(&output));
}

#[test]
fn a_program_without_a_daemon_is_not_served_and_does_not_hang() {
    let node = Node::start();
    let outcome = node.test_client("view").env("CUDA_MPS_PIPE_DIRECTORY", "/nonexistent").start().wait();
    if !fs::exists("/dev/nvidia0").unwrap_or(false) {
        assert_eq!((outcome.status.code(), outcome.out.as_str()), (Some(3), "count: cudaErrorNoDevice"), "{outcome:?}");
    }
    let outcome = node.test_client("view").env("CUDA_MPS_PIPE_DIRECTORY", "").start().wait();
    if !fs::exists("/dev/nvidia0").unwrap_or(false) {
        assert_eq!(outcome.status.code(), Some(3), "{outcome:?}");
    }
}

#[test]
fn a_library_of_another_version() {
    let node = Node::start();
    let connection = Connection::connect(&node.pipe().join("cumux")).unwrap();
    let hello = Hello::Client { version: cumux_wire::VERSION + 1, pid: 1, environment: Vec::new(), program: "old".into() };
    connection.send(&hello, &[]).unwrap();
    let (Reply::Refused { why, .. }, _) = connection.receive::<Reply>().unwrap() else { panic!("welcomed") };
    assert!(why.contains("same release"), "{why}");
}

#[test]
fn strangers_on_the_control_socket_are_refused_at_once() {
    let node = Node::start();
    let mut stream = UnixStream::connect(node.pipe().join("control")).unwrap();
    stream.write_all(&[1, 0, 0, 0, 0xff, 0xfe]).unwrap();
    let mut answer = Vec::new();
    // The watchdog is the limit: a daemon that keeps the line open hangs here.
    stream.read_to_end(&mut answer).unwrap();
    assert!(answer.is_empty());
    // Also one that says nothing at all.
    let mut silent = UnixStream::connect(node.pipe().join("control")).unwrap();
    silent.read_to_end(&mut answer).unwrap();
    assert!(answer.is_empty());
    // A packet that is no hello.
    let connection = Connection::connect(&node.pipe().join("cumux")).unwrap();
    connection.send(&"rubbish", &[]).unwrap();
    assert!(matches!(connection.receive::<Reply>(), Ok((Reply::Refused { .. }, _))));
    // And the daemon is as before.
    assert_eq!(node.control("get_default_active_thread_percentage"), "100.0\n");
    node.client("vector_add").args(&["1"]).start().expect_ok();
}

/// The logs lie on a disk of one page, which only the daemon and what it starts see.
#[test]
fn a_full_disk_for_logs_stops_nothing() {
    let node = Node::start();
    assert!(node.control_output("quit").status.success());
    let daemon = node.daemon_command();
    let mut on_a_small_disk = Command::new("unshare");
    on_a_small_disk.args(["-m", "sh", "-c", "mount -t tmpfs -o size=4k small \"$CUDA_MPS_LOG_DIRECTORY\" && exec \"$@\"", "sh"]);
    on_a_small_disk.arg(daemon.get_program()).args(daemon.get_args());
    on_a_small_disk.envs(daemon.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = on_a_small_disk.output();
    if !output.as_ref().is_ok_and(|output| output.status.success()) {
        eprintln!("NOTE: not tested: a disk of one page cannot be mounted here: {output:?}");
        return;
    }
    for _ in 0..8 {
        node.client("vector_add").args(&["1"]).start().expect_ok();
    }
    let log = std::path::PathBuf::from(format!("/proc/{}/root", node.daemon_pid())).join(node.folder().join("log").strip_prefix("/").unwrap());
    let bytes = |name| fs::metadata(log.join(name)).map_or(0, |about| about.len());
    assert_eq!((bytes("control.log") > 0, bytes("server.log")), (true, 0), "one page is one file's");
    assert_eq!(node.control("get_server_list").lines().count(), 1);
}

#[test]
fn a_stale_directory_is_taken_over() {
    let node = Node::start();
    node.kill(node.daemon_pid());
    assert!(node.pipe().join("control").exists(), "a killed daemon leaves its files");
    let output = node.control_output("get_server_list");
    assert_eq!(output.status.code(), Some(1));
    node.start_daemon();
    node.client("vector_add").args(&["1"]).start().expect_ok();
}

/// The program was copied out of a build folder: it neither finds its library nor begins to build
/// one where it lies.
#[test]
fn a_copy_without_its_library() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("copied");
    std::fs::create_dir(&place).unwrap();
    std::fs::copy(cumux(), place.join("cumux")).unwrap();
    let output = Command::new(place.join("cumux")).args(["run", "--device", "sim:l4", "--", "true"]).output().unwrap();
    assert!(!output.status.success() && text(&output).contains("cumux install --prefix"), "{}", text(&output));
    let files = |folder: &std::path::Path| std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    assert_eq!((files(folder.path()), files(&place)), (vec!["copied".into()], vec!["cumux".into()]));
}
