//! Slurm's hooks with the variables that slurmd gives them, a real daemon, and CUDA programs as the
//! tasks of jobs.

use cumux_testkit::{Client, Node, test_program};
use rustix::process::geteuid;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output, Stdio};

/// Users of jobs.
const USERS: [u32; 2] = [65_533, 65_534];

/// A hook as slurmd calls it: these variables and no others, no search path.
fn hook(node: &Node, name: &str, job: u32, uid: u32, gres: &[(&str, &str)]) -> Output {
    hook_with(node, name, job, uid, gres, &[])
}

fn hook_with(node: &Node, name: &str, job: u32, uid: u32, gres: &[(&str, &str)], options: &[&str]) -> Output {
    let scontrol = node.folder().join("scontrol");
    if !scontrol.exists() {
        let script = format!("#!/bin/sh\nprintf '%s\\n' \"$*\" >> {}/scontrol.log\n", node.folder().display());
        fs::write(&scontrol, script).expect("a script");
        fs::set_permissions(&scontrol, fs::Permissions::from_mode(0o755)).expect("our script");
    }
    let mut command = Command::new(cumux_testkit::cumux());
    command
        .args(["slurm", name, "--wait", "0", "--pipe"])
        .arg(node.pipe())
        .arg("--scontrol")
        .arg(scontrol)
        .arg("--library")
        .arg(node.folder().join("lib"))
        .args(options);
    command.env_clear().env("SLURM_JOB_ID", job.to_string()).env("SLURM_JOB_UID", uid.to_string()).env("SLURMD_NODENAME", "node-1");
    command.envs(gres.iter().copied()).stdin(Stdio::null()).output().expect("cumux starts")
}

fn ok(node: &Node, name: &str, job: u32, uid: u32, gres: &[(&str, &str)]) -> String {
    let output = hook(node, name, job, uid, gres);
    assert!(output.status.success(), "{name}: {output:?}\n{}", node.logs());
    String::from_utf8(output.stdout).expect("text")
}

/// A task of a job: with the changes that the task prolog has printed.
fn task<'a>(node: &'a Node, job: u32, uid: u32, gres: &[(&str, &str)], program: &str) -> Client<'a> {
    let mut environment: BTreeMap<String, String> = gres.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    for line in ok(node, "task-prolog", job, uid, gres).lines() {
        match line.split_once(' ') {
            Some(("export", setting)) => {
                let (name, value) = setting.split_once('=').expect("NAME=value");
                environment.insert(name.into(), value.into());
            }
            Some(("unset", name)) => drop(environment.remove(name)),
            _ => panic!("slurmstepd does not know \"{line}\""),
        }
    }
    let mut client = node.program(&test_program(program));
    for (name, value) in &environment {
        client = client.env(name, value);
    }
    if geteuid().is_root() {
        client = client.user(uid);
    }
    client.start()
}

fn mps(percent: &'static str) -> [(&'static str, &'static str); 3] {
    [("SLURM_JOB_GPUS", "0"), ("CUDA_VISIBLE_DEVICES", "0"), ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", percent)]
}

fn groups(node: &Node) -> usize {
    let answer: serde_json::Value = serde_json::from_str(&node.control("group list\n")).expect("JSON");
    answer["groups"].as_array().expect("a list").len()
}

/// Jobs of two users have their parts of one card at the same time; a job that is cancelled leaves
/// nothing, and the other goes on.
#[test]
fn two_users_jobs_share_a_card() {
    if !geteuid().is_root() {
        eprintln!("NOTE: only root can run programs of two users: this test did nothing");
        return;
    }
    let node = Node::with().prepare(|folder| fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("our folder")).start();
    let _ = node.control("quit\n");
    assert!(node.daemon_command().arg("-M").status().expect("cumux starts").success());
    for (job, uid) in [(41, USERS[0]), (42, USERS[1])] {
        assert_eq!(ok(&node, "prolog", job, uid, &mps("25")), "");
    }
    let first = task(&node, 41, USERS[0], &mps("25"), "grower");
    let second = task(&node, 42, USERS[1], &mps("25"), "grower");
    first.wait_for_line("ready");
    second.wait_for_line("ready");
    let seen = task(&node, 41, USERS[0], &mps("25"), "view").expect_ok();
    assert!(seen.contains("multiprocessors 32\n"), "{seen}");
    // A job's directory is its user's alone.
    let thief =
        node.program(&test_program("view")).user(USERS[1]).env("CUDA_MPS_PIPE_DIRECTORY", &node.pipe().join("groups/slurm-41").to_string_lossy()).start();
    assert!(!thief.wait().status.success(), "another user's program is in the job");
    // scancel kills the tasks, and the epilog comes afterwards, or before they have gone.
    ok(&node, "epilog", 41, USERS[0], &mps("25"));
    ok(&node, "epilog", 41, USERS[0], &mps("25"));
    drop(first);
    assert_eq!(groups(&node), 1);
    second.expect_ok();
    ok(&node, "epilog", 42, USERS[1], &mps("25"));
    assert_eq!(fs::read_dir(node.pipe().join("groups")).map_or(0, Iterator::count), 0);
}

/// A job whose tasks come while the daemon is dead goes on when the next one is there; a node whose
/// daemon is gone is drained, with the reason.
#[test]
fn a_node_without_a_daemon_is_drained() {
    let node = Node::start();
    let uid = geteuid().as_raw();
    ok(&node, "prolog", 7, uid, &mps("50"));
    node.kill(node.daemon_pid());
    let output = hook(&node, "prolog", 8, uid, &mps("50"));
    assert!(!output.status.success());
    let told = fs::read_to_string(node.folder().join("scontrol.log")).expect("scontrol was called");
    assert!(told.starts_with("update NodeName=node-1 State=DRAIN Reason=cumux: no cumux daemon answers in "), "{told}");
    node.start_daemon();
    let seen = task(&node, 7, uid, &mps("50"), "view").expect_ok();
    assert!(seen.contains("multiprocessors 66\n"), "{seen}");
    let text = ok(&node, "task-prolog", 8, uid, &mps("50"));
    assert!(text.starts_with("print cumux: job 8 has no group at "), "{text}");
    ok(&node, "epilog", 7, uid, &mps("50"));
    assert_eq!(groups(&node), 0);
    assert!(!hook(&node, "prolog", 9, uid, &[("SLURM_JOB_GPUS", "3")]).status.success());
    let told = fs::read_to_string(node.folder().join("scontrol.log")).expect("it was called");
    assert!(told.lines().last().unwrap_or_default().contains("job 9 has GPU 3"), "{told}");
    // A job without a card is none of ours.
    assert_eq!(ok(&node, "prolog", 10, uid, &[]), "");
}

/// The control group of the one group of a node.
fn cgroup(node: &Node) -> String {
    let answer: serde_json::Value = serde_json::from_str(&node.control("group list\n")).expect("JSON");
    answer["groups"][0]["cgroup"].as_str().unwrap_or_default().to_owned()
}

/// A tree of control groups of version 2, as systemd and slurmd make it: the prolog finds the
/// scope, and a node without one is drained with the setting that is missing.
#[test]
fn the_prolog_finds_the_scope_of_slurmd() {
    let node = Node::start();
    let uid = geteuid().as_raw();
    let root = node.folder().join("cgroup");
    let prolog = |job: u32| hook_with(&node, "prolog", job, uid, &mps("25"), &["--cgroup", "auto", "--cgroup-root", &root.to_string_lossy()]);
    fs::create_dir_all(root.join("system.slice/slurmd.service")).expect("a folder");
    let output = prolog(1);
    assert!(!output.status.success(), "{output:?}");
    fs::write(root.join("cgroup.controllers"), "cpu memory\n").expect("a file");
    assert!(!prolog(2).status.success());
    let told = fs::read_to_string(node.folder().join("scontrol.log")).expect("scontrol was called");
    let reasons: Vec<&str> = told.lines().collect();
    assert!(reasons[0].contains("no control groups of version 2") && reasons[1].contains("CgroupPlugin=cgroup/v2"), "{told}");
    assert_eq!(groups(&node), 0);

    fs::create_dir_all(root.join("system.slice/slurmstepd.scope/system")).expect("a folder");
    assert!(prolog(3).status.success());
    assert_eq!(cgroup(&node), "/system.slice/slurmstepd.scope/job_3");
    ok(&node, "epilog", 3, uid, &[]);
    fs::create_dir_all(root.join("system.slice/node-1_slurmstepd.scope")).expect("a folder");
    assert!(prolog(4).status.success());
    assert_eq!(cgroup(&node), "/system.slice/node-1_slurmstepd.scope/job_4");
    // A task outside is told before its programs are refused.
    let output = hook_with(&node, "task-prolog", 4, uid, &mps("25"), &["--cgroup", "auto", "--cgroup-root", &root.to_string_lossy()]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.starts_with("print cumux: this task is in the control group ") && text.contains("serves only /system.slice/node-1_slurmstepd.scope/job_4"),
        "{text}"
    );
    assert!(text.contains("\nexport CUDA_MPS_PIPE_DIRECTORY="), "{text}");
}

/// Control groups of this test, below the mount of version 2. They are removed with it.
struct Tree {
    /// As in `/proc/PID/cgroup`.
    path: String,
    folder: std::path::PathBuf,
}

impl Tree {
    /// `None` where this user may not make control groups.
    fn make() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let mount = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>()).find(|words| words.get(2) == Some(&"cgroup2"))?[1].to_owned();
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = own.lines().find_map(|line| line.strip_prefix("0::"))?.trim_end_matches('/').to_owned();
        let path = format!("{own}/cumux-story-{}", std::process::id());
        let folder = std::path::PathBuf::from(format!("{mount}{path}"));
        fs::create_dir(&folder).ok()?;
        let tree = Self { path, folder };
        fs::create_dir_all(tree.folder.join(Self::JOB).join("step_0")).ok()?;
        Some(tree)
    }

    const JOB: &str = "slurmstepd.scope/job_5";
}

impl Drop for Tree {
    fn drop(&mut self) {
        // Their processes have gone, and a removed one is empty: from the leaves up.
        for path in ["slurmstepd.scope/job_5/step_0", "slurmstepd.scope/job_5", "slurmstepd.scope", ""] {
            let _ = fs::remove_dir(self.folder.join(path));
        }
    }
}

/// With real control groups of version 2: a task of the job is served by whatever socket it comes,
/// and a process that has left the job's control group is not, though it has the job's variables.
#[test]
fn only_processes_in_the_jobs_control_group_are_served() {
    let Some(tree) = Tree::make() else {
        return eprintln!("NOTE: not tested: control groups of version 2 cannot be made here");
    };
    let node = Node::start();
    let uid = geteuid().as_raw();
    let pattern = format!("{}/slurmstepd.scope/job_%j", tree.path);
    assert!(hook_with(&node, "prolog", 5, uid, &mps("25"), &["--cgroup", &pattern]).status.success(), "{}", node.logs());
    let group = node.pipe().join("groups/slurm-5").to_string_lossy().into_owned();
    let inside = |script: &str, pipe: &str| {
        let procs = tree.folder.join(Tree::JOB).join("step_0/cgroup.procs");
        let script = format!("echo $$ > {} && {script}", procs.display());
        node.program(std::path::Path::new("/bin/sh"))
            .args(&["-c", &script, &test_program("view").to_string_lossy()])
            .env("CUDA_MPS_PIPE_DIRECTORY", pipe)
            .start()
    };
    for pipe in [&group, &*node.pipe().to_string_lossy()] {
        let seen = inside("exec \"$0\"", pipe).expect_ok();
        assert!(seen.contains("multiprocessors 32\n"), "a quarter by the socket {pipe}: {seen}");
    }
    let outcome = node.program(&test_program("view")).env("CUDA_MPS_PIPE_DIRECTORY", &group).env("CUMUX_VERBOSE", "1").start().wait();
    assert!(!outcome.status.success() && outcome.err.contains("only for processes of the control group"), "{outcome:?}");
    ok(&node, "epilog", 5, uid, &[]);
    assert_eq!(groups(&node), 0);
}
