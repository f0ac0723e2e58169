//! The device plugin as a process, between a kubelet of ours and a real daemon, with CUDA programs
//! in the pods.

use crate::exporter::Exporter;
use cumux_link::{Connection, Listener};
use cumux_testkit::kubelet::{Kubelet, Pod};
use cumux_testkit::{Client, Node};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const MEMORY: &str = "cumux.dev/gpu-memory";
const PERCENT: &str = "cumux.dev/gpu-percent";
const CONFIG: &str = "
version: v1
sharing:
  cumux:
    memory: {name: cumux.dev/gpu-memory, unit: 1Gi}
    percent: {name: cumux.dev/gpu-percent, unit: 5}
";

/// Until both resources of [`CONFIG`] can be given: each is told by itself.
fn wait_for_shares(kubelet: &Kubelet, cards: usize) {
    kubelet.wait_for(PERCENT, 20 * cards);
    kubelet.wait_for_any(MEMORY);
}

/// A plugin's process. It is killed when it is dropped.
struct Plugin(Child);

impl Plugin {
    fn start(node: &Node, kubelet: &Kubelet, config: &str) -> Self {
        Self::start_with(node, kubelet, config, &[])
    }

    /// For the daemons of these directories.
    fn start_with(node: &Node, kubelet: &Kubelet, config: &str, pipes: &[&Path]) -> Self {
        let file = node.folder().join("plugin.yaml");
        fs::write(&file, config).expect("the configuration");
        let mut command = node.cumux(&["device-plugin", "--grace", "2", "--reconcile-interval", "0.1", "--health-interval", "0.1"]);
        command.arg("--config-file").arg(file).arg("--kubelet-socket").arg(kubelet.socket()).arg("--pod-resources").arg(kubelet.pods());
        command.arg("--state").arg(node.folder().join("plugin.json")).arg("--library").arg(node.folder().join("lib"));
        command.args(pipes.iter().flat_map(|pipe| [OsStr::new("--pipe"), pipe.as_os_str()]));
        if !pipes.is_empty() {
            command.arg("--fail-on-init-error=false");
        }
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the plugin starts"))
    }

    /// Ends as a DaemonSet's pod does.
    fn end(mut self) {
        let pid = Pid::from_child(&self.0);
        kill_process(pid, Signal::TERM).expect("our child");
        let status = self.0.wait().expect("our child");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The groups of a node, as its daemon lists them.
pub fn groups(node: &Node) -> Vec<Value> {
    let answer: Value = serde_json::from_str(&node.control("group list\n")).expect("JSON");
    answer["groups"].as_array().expect("a list").clone()
}

/// A program in a pod's container: with the pod's variables, and its mounts in place of a
/// container's. As root they are mounted, read-only as kubelet has it done.
pub fn inside<'a>(node: &'a Node, pod: &Pod, program: &Path, arguments: &[&str]) -> Client<'a> {
    let pipe = &pod.mounts[&pod.environment["CUDA_MPS_PIPE_DIRECTORY"]];
    if !geteuid().is_root() {
        eprintln!("NOTE: only root can mount: the program uses the directory of its group where it lies");
        return node.program(program).args(arguments).env("CUDA_MPS_PIPE_DIRECTORY", pipe).start();
    }
    let container = node.folder().join(&pod.name);
    fs::create_dir_all(&container).expect("a folder for the container");
    let script = "mount --bind \"$1\" \"$2\" && mount -o remount,bind,ro \"$2\" && shift && export CUDA_MPS_PIPE_DIRECTORY=$1 && shift && exec \"$@\"";
    let container = container.to_string_lossy().into_owned();
    let program = program.to_string_lossy().into_owned();
    let mut words = vec!["-m", "sh", "-c", script, "sh", pipe, &container, &program];
    words.extend(arguments);
    node.program(Path::new("/usr/bin/unshare")).args(&words).start()
}

/// A pod's program that takes memory when it is told to.
pub fn grower<'a>(node: &'a Node, pod: &Pod) -> Client<'a> {
    let client = inside(node, pod, &cumux_testkit::test_program("grower"), &[]);
    client.wait_for_line("ready");
    client
}

/// Whether that program gets so much more.
pub fn take(node: &Node, client: &mut Client<'_>, mib: u64) -> bool {
    let before = client.said().len();
    client.tell(&format!("take {mib}"));
    let answer = node.wait_for("the answer", |_| client.said().get(before).cloned());
    match answer.split(' ').nth(2) {
        Some("cudaSuccess") => true,
        Some("cudaErrorMemoryAllocation") => false,
        _ => panic!("{answer}\n{}", node.logs()),
    }
}

/// Two programs of a pod have the pod's memory together, whatever each of them does; a neighbour
/// has its own; and after the pod nothing is left.
#[test]
fn a_pods_programs_have_its_part_together() {
    let node = Node::start();
    let mut kubelet = Kubelet::start(&node.folder().join("kubelet"));
    let plugin = Plugin::start(&node, &kubelet, CONFIG);
    wait_for_shares(&kubelet, 1);
    let small = kubelet.run_pod("small", &[(MEMORY, 1), (PERCENT, 5)]).expect("it is admitted");
    let large = kubelet.run_pod("large", &[(MEMORY, 3)]).expect("it is admitted");

    let seen = inside(&node, &small, &cumux_testkit::test_program("view"), &[]).expect_ok();
    assert!(seen.contains("multiprocessors 32\n") && seen.contains("total 1024\n"), "the program sees what it may have: {seen}");

    let (mut one, mut other, mut neighbour) = (grower(&node, &small), grower(&node, &small), grower(&node, &large));
    assert!(take(&node, &mut one, 600) && !take(&node, &mut other, 600) && take(&node, &mut other, 424));
    assert!(take(&node, &mut neighbour, 2048), "a neighbour is not affected");

    // Daemon, kubelet and plugin are started again: the programs go on, and so do the limits.
    node.kill(node.daemon_pid());
    kubelet.wait_for(MEMORY, 0);
    node.start_daemon();
    kubelet.restart();
    wait_for_shares(&kubelet, 1);
    plugin.end();
    kubelet.wait_for(MEMORY, 0);
    let plugin = Plugin::start(&node, &kubelet, CONFIG);
    wait_for_shares(&kubelet, 1);
    assert!(!take(&node, &mut one, 2) && take(&node, &mut neighbour, 1024) && !take(&node, &mut neighbour, 2));
    // A container that is started again has its group still.
    drop(other);
    node.wait_for("its memory", |node| groups(node).iter().any(|group| group["memory"][0]["used"] == 600u64 << 20).then_some(()));
    let mut other = grower(&node, &small);
    assert!(take(&node, &mut other, 424) && !take(&node, &mut other, 2));

    for client in [one, other] {
        client.expect_ok();
    }
    kubelet.end_pod("small");
    node.wait_for("its group to go", |node| (groups(node).len() == 1).then_some(()));
    assert!(!take(&node, &mut neighbour, 2), "the neighbour goes on, within its limit");
    neighbour.expect_ok();
    kubelet.end_pod("large");
    node.wait_for("no group", |node| groups(node).is_empty().then_some(()));
    assert_eq!(fs::read_dir(node.pipe().join("groups")).map_or(0, Iterator::count), 0, "directories of groups are left");
    plugin.end();
    assert_eq!(fs::read_dir(kubelet.plugins()).expect("kubelet's folder").count(), 1, "sockets of the plugin are left");
}

/// A card is Unhealthy while its server does not answer or cannot open it, and Healthy afterwards;
/// the node's other card is not affected by that.
#[test]
fn health_follows_a_real_daemon_both_ways() {
    if !Node::with().start().is_software() {
        return eprintln!("NOTE: not tested: only a software GPU can be taken away and put back");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let gone = folder.path().join("gone");
    fs::write(&gone, "").expect("a file");
    let node = Node::with()
        .device("sim:h200,sim:l4:prohibited")
        .env("CUMUX_SIM_PROHIBITED_WHILE", gone.to_str().expect("text"))
        .env("CUMUX_DEVICE_RETRY_MS", "50")
        .env("CUMUX_MOVE_WAIT_MS", "60000")
        .env("CUMUX_HEARTBEAT_MS", "0")
        .start();
    let kubelet = Kubelet::start(&node.folder().join("kubelet"));
    let plugin = Plugin::start(&node, &kubelet, CONFIG);
    // Nobody has tried to open the second card.
    wait_for_shares(&kubelet, 2);
    let client = node.test_client("idle").env("CUDA_VISIBLE_DEVICES", "0").start();
    client.wait_for_line("ready");
    kubelet.wait_for(PERCENT, 20);
    let large = kubelet.run_pod("large", &[(MEMORY, 100)]).expect("the first card is well");
    assert!(kubelet.run_pod("second", &[(MEMORY, 100)]).unwrap_err().contains("Insufficient"), "no unit of the card that is gone is given");
    assert!(inside(&node, &large, &cumux_testkit::test_program("view"), &[]).expect_ok().contains("total 102400\n"));
    fs::remove_file(&gone).expect("the file was there");
    kubelet.wait_for(PERCENT, 40);

    let server = node.server().pid;
    node.stop(server);
    // Kubelet hears of each resource by itself.
    kubelet.wait_for(PERCENT, 0);
    kubelet.wait_for(MEMORY, 0);
    assert!(kubelet.run_pod("early", &[(MEMORY, 1)]).unwrap_err().contains("Insufficient"));
    node.set_going(server);
    kubelet.wait_for(PERCENT, 40);
    client.expect_ok();
    plugin.end();
}

/// NVIDIA's own file serves cumux as it stands, and each pod has the part that the file promises.
#[test]
fn nvidias_configuration_serves_as_it_stands() {
    let node = Node::start();
    let kubelet = Kubelet::start(&node.folder().join("kubelet"));
    let config = "version: v1\nflags:\n  migStrategy: none\nsharing:\n  mps:\n    renameByDefault: true\n    resources:\n    - name: nvidia.com/gpu\n      replicas: 4\n";
    let _plugin = Plugin::start(&node, &kubelet, config);
    kubelet.wait_for("nvidia.com/gpu.shared", 4);
    let pods: Vec<Pod> = (0..4).map(|pod| kubelet.run_pod(&format!("pod-{pod}"), &[("nvidia.com/gpu.shared", 1)]).expect("it is admitted")).collect();
    assert!(kubelet.run_pod("fifth", &[("nvidia.com/gpu.shared", 1)]).unwrap_err().contains("Insufficient"));
    for pod in &pods {
        let seen = inside(&node, pod, &cumux_testkit::test_program("view"), &["40000"]).expect_ok();
        assert!(seen.contains("multiprocessors 32\n") && seen.contains("alloc cudaErrorMemoryAllocation"), "{seen}");
    }
    kubelet.end_pod("pod-0");
    let text = kubelet.run_pod("greedy", &[("nvidia.com/gpu.shared", 2)]).unwrap_err();
    assert!(text.contains("Insufficient"), "{text}");
    kubelet.end_pod("pod-1");
    let text = kubelet.run_pod("greedy", &[("nvidia.com/gpu.shared", 2)]).unwrap_err();
    assert!(text.contains("invalid request: maximum request size for shared resources is 1; found 2"), "{text}");
}

/// What cannot be is said at the start, with file and line.
#[test]
fn a_configuration_that_is_wrong_is_refused() {
    let node = Node::start();
    let file = node.folder().join("plugin.yaml");
    let refusal = |config: &str| {
        fs::write(&file, config).expect("the configuration");
        let output = node.cumux(&["device-plugin", "--config-file", &file.to_string_lossy()]).output().expect("cumux starts");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let text = refusal("version: v1\nsharing:\n  timeSlicing:\n    resources: [{name: gpu, replicas: 4}]\n");
    assert!(text.contains("plugin.yaml: line 3: time-slicing is not what cumux does"), "{text}");
    let text = refusal("version: v1\nsharing:\n  mps:\n    resources: [{name: gpu, replicas: 4, devices: [5]}]\n");
    assert!(text.contains("names the card 5"), "{text}");
    // Without a daemon: what is wrong, or what would be offered, and NVIDIA's other options.
    let check = |config: &str| {
        fs::write(&file, config).expect("the configuration");
        let mut command = node.cumux(&["device-plugin", "--check", "--pass-device-specs", "--config-file", &file.to_string_lossy()]);
        let output = command.env("CUDA_MPS_PIPE_DIRECTORY", "/nonexistent").output().expect("cumux starts");
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (well, said, warned) =
        check("version: v1\nflags:\n  gdsEnabled: true\nsharing:\n  mps:\n    resources: [{name: gpu, replicas: 4, rename: gpu.part, devices: [0]}]\n");
    assert!(well && said == "nvidia.com/gpu.part: each card in 4 parts\n", "{said}{warned}");
    assert!(warned.contains("--pass-device-specs (PASS_DEVICE_SPECS) has no effect") && warned.contains("line 3: flags.gdsEnabled has no effect"), "{warned}");
    assert_eq!(check(CONFIG).1, "cumux.dev/gpu-memory: units of 1024 MiB\ncumux.dev/gpu-percent: units of 5 %\n");
    let (well, _, text) = check("version: v1\nsharing:\n  mps:\n    resources:\n    - {name: gpu, replicas: 4}\n    - {name: gpu, replicas: 2}\n");
    assert!(!well && text.contains("plugin.yaml: line 6: the resource nvidia.com/gpu is there twice"), "{text}");
}

/// A daemon for each card, as the chart has it with `daemon.perCard`: the plugin finds the one
/// that starts after it, pods are on both cards, and a killed daemon does not touch the other card.
#[test]
fn each_card_has_a_daemon_of_its_own() {
    if !Node::with().start().is_software() {
        return eprintln!("NOTE: not tested: two daemons need two cards");
    }
    // Software GPUs of one model have the same UUID in two daemons, which no two cards have.
    let (first, second) = (Node::with().device("sim:h200").start(), Node::with().device("sim:l4").start());
    let _ = second.control("quit\n");
    let kubelet = Kubelet::start(&first.folder().join("kubelet"));
    let (one, other) = (first.pipe(), second.pipe());
    let plugin = Plugin::start_with(&first, &kubelet, CONFIG, &[&one, &other]);
    second.start_daemon();
    wait_for_shares(&kubelet, 2);
    let large = kubelet.run_pod("large", &[(MEMORY, 130)]).expect("it is admitted");
    let small = kubelet.run_pod("small", &[(MEMORY, 20)]).expect("it is admitted");
    let pods: Vec<(&Node, &Pod)> = match groups(&second).len() {
        1 => vec![(&first, &large), (&second, &small)],
        _ => panic!("one pod on each card: {:?} {:?}", groups(&first), groups(&second)),
    };
    let mut clients: Vec<Client<'_>> = pods.iter().map(|(node, pod)| grower(node, pod)).collect();
    assert!(take(&first, &mut clients[0], 1024) && take(&second, &mut clients[1], 1024));
    assert!(!take(&second, &mut clients[1], 20 << 10), "its part is 20 GiB");
    second.kill(second.daemon_pid());
    kubelet.wait_for(PERCENT, 20);
    assert!(take(&first, &mut clients[0], 1024), "the other card's programs go on");
    second.start_daemon();
    kubelet.wait_for(PERCENT, 40);
    for client in clients {
        client.expect_ok();
    }
    plugin.end();
}

/// From inside of a pod, `cumux doctor` tells what a program would meet.
#[test]
fn doctor_in_a_pod() {
    let node = Node::start();
    let doctor = |pipe: &Path| {
        let mut command = node.cumux(&["doctor"]);
        let output = command.env("CUDA_MPS_PIPE_DIRECTORY", pipe).env("CUMUX_GROUP", "pod").output().expect("cumux starts");
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let create = |words: &[&str]| {
        let output = node.cumux(&[&["group", "create"], words].concat()).output().expect("cumux starts");
        assert!(output.status.success(), "{output:?}");
        std::path::PathBuf::from(String::from_utf8(output.stdout).expect("text").trim())
    };
    let (well, text) = doctor(&node.folder().join("nowhere"));
    assert!(!well && text.contains("the directory of a group has to be mounted at "), "{text}");
    let pod = create(&["pod", "memory=1G", "clients=1"]);
    let (well, text) = doctor(&pod);
    assert!(text.contains("a program that starts here is served") && text.contains(": 1024 MiB, "), "{text}");
    assert!(well && text.contains("a program of a group needs none of its own"), "a container has no card: {text}");
    if geteuid().is_root() {
        // As a container runtime has it: a PID namespace of its own and a small /dev/shm.
        node.wait_for("doctor's own client to go", |node| (groups(node)[0]["clients"] == 0).then_some(()));
        let script = "mount -t tmpfs -o size=64m tmpfs /dev/shm && mount -t proc proc /proc && exec \"$0\" doctor";
        let mut container = Command::new("unshare");
        container.args(["--mount", "--pid", "--fork", "sh", "-c", script]).arg(cumux_testkit::cumux());
        for (name, value) in node.cumux(&[]).get_envs() {
            match value {
                Some(value) => container.env(name, value),
                None => container.env_remove(name),
            };
        }
        let output = container.env("CUDA_MPS_PIPE_DIRECTORY", &pod).env("CUMUX_GROUP", "pod").output().expect("unshare starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("in another PID namespace") && text.contains("has 64 MiB only") && text.contains("--shm-size"), "{text}{output:?}");
    } else {
        eprintln!("NOTE: not tested: only root can make a container");
    }
    node.wait_for("doctor's own client to go", |node| (groups(node)[0]["clients"] == 0).then_some(()));
    let client = node.test_client("grower").env("CUDA_MPS_PIPE_DIRECTORY", &pod.to_string_lossy()).start();
    client.wait_for_line("ready");
    let (well, text) = doctor(&pod);
    assert!(!well && text.contains("a program that starts here is refused") && text.contains("end other programs"), "{text}");
    client.expect_ok();
    let other = geteuid().as_raw() + 1;
    let (well, text) = doctor(&create(&["theirs", &format!("uid={other}")]));
    assert!(!well && text.contains("runAsUser"), "{text}");
}

/// A container whose image brings another version of cumux: between it and the real group stands a
/// relay that changes the version in its hello, and nothing else.
#[test]
fn doctor_in_a_pod_with_another_version() {
    let node = Node::start();
    let made = node.cumux(&["group", "create", "pod"]).output().expect("cumux starts");
    let pod = Path::new(String::from_utf8_lossy(&made.stdout).trim()).to_owned();
    let mounted = node.folder().join("mounted");
    fs::create_dir(&mounted).expect("a folder");
    let listener = Listener::bind(&mounted.join("cumux")).expect("a socket");
    let (own, next) = (format!("\"version\":{}", cumux_wire::VERSION), format!("\"version\":{}", cumux_wire::VERSION + 1));
    std::thread::spawn(move || {
        while let Ok(container) = listener.accept() {
            // Some connections only ask who listens.
            let Ok((hello, descriptors)) = container.receive::<Value>() else { continue };
            let hello: Value = serde_json::from_str(&hello.to_string().replace(&own, &next)).expect("JSON");
            let group = Connection::connect(&pod.join("cumux")).expect("the group's socket");
            let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
            group.send(&hello, &borrowed).expect("the daemon listens");
            let (answer, _) = group.receive_bytes().expect("an answer");
            let _ = container.send_bytes(&answer);
        }
    });
    let output = node.cumux(&["doctor"]).env("CUDA_MPS_PIPE_DIRECTORY", &mounted).env("CUMUX_GROUP", "pod").output().expect("cumux starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let versions = format!("speaks version {} of cumux's protocol, this control daemon version {}", cumux_wire::VERSION + 1, cumux_wire::VERSION);
    assert!(!output.status.success() && text.contains(&versions), "{text}");
    assert!(text.contains("the image or the mounted library is of another cumux than the node's daemon"), "{text}");
}

/// An exporter that has kubelet's socket and the plugin's memory, and nothing else, to find names.
fn exporter(node: &Node, socket: &Path) -> Exporter {
    let (socket, state) = (socket.to_string_lossy().into_owned(), node.folder().join("plugin.json").to_string_lossy().into_owned());
    Exporter::start(node, &["--pod-resources", &socket, "--plugin-state", &state, "--pod-logs", "/nonexistent"])
}

/// The line of metrics that describes a client.
fn line_of(node: &Node, exporter: &Exporter, client: &Client<'_>) -> String {
    let pid = format!("pid=\"{}\"", client.pid());
    node.wait_for("the client in the metrics", |_| {
        let (status, text) = exporter.get("/metrics");
        assert_eq!(status, 200, "{text}");
        text.lines().find(|line| line.starts_with("cumux_client_info{") && line.contains(&pid)).map(str::to_owned)
    })
}

/// Metrics name pods as kubelet does; where it does not answer, is slow, or somebody else answers
/// in its place, there are metrics without names.
#[test]
fn metrics_name_pods_as_kubelet_does() {
    let node = Node::start();
    let mut kubelet = Kubelet::start(&node.folder().join("kubelet"));
    let plugin = Plugin::start(&node, &kubelet, CONFIG);
    wait_for_shares(&kubelet, 1);
    let (web, batch) =
        (kubelet.run_pod("web-0", &[(MEMORY, 1), (PERCENT, 5)]).expect("it is admitted"), kubelet.run_pod("batch", &[(MEMORY, 2)]).expect("it is admitted"));
    let (first, second) = (grower(&node, &web), grower(&node, &batch));
    // The other pods' programs have no name of these.
    let outside = node.test_client("idle").start();
    outside.wait_for_line("ready");
    let named = exporter(&node, &kubelet.pods());
    for (client, pod) in [(&first, "web-0"), (&second, "batch")] {
        let line = line_of(&node, &named, client);
        assert!(line.contains(&format!("pod=\"{pod}\"")) && line.contains("namespace=\"default\"") && line.contains("container=\"main\""), "{line}");
    }
    let nameless = |exporter: &Exporter, client: &Client<'_>| {
        let line = line_of(&node, exporter, client);
        !line.contains("web-0") && !line.contains("batch") && !line.contains("namespace=\"default\"")
    };
    assert!(nameless(&named, &outside));

    // Somebody who answers nothing.
    let silent = node.folder().join("silent.sock");
    let _listener = UnixListener::bind(&silent).expect("a socket");
    assert!(nameless(&exporter(&node, &silent), &first));
    // What no kubelet says.
    assert!(nameless(&exporter(&node, &node.pipe().join("cumux")), &first));
    // Another user, who hands on what kubelet says. As root the same is believed.
    if geteuid().is_root() {
        fs::set_permissions(node.folder(), fs::Permissions::from_mode(0o755)).expect("our folder");
        for uid in [0, 65_534] {
            let folder = node.folder().join(format!("relay-{uid}"));
            fs::create_dir(&folder).expect("a folder");
            std::os::unix::fs::chown(&folder, Some(uid), None).expect("our folder");
            let mut relay = Command::new("python3");
            relay.args(["-c", RELAY]).arg(kubelet.pods()).arg(folder.join("kubelet.sock")).arg(uid.to_string());
            let mut relay = Plugin(relay.stdout(Stdio::piped()).spawn().expect("python3 starts"));
            let mut line = String::new();
            BufReader::new(relay.0.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
            assert_eq!(line, "ready\n");
            assert_eq!(nameless(&exporter(&node, &folder.join("kubelet.sock")), &first), uid != 0);
        }
    } else {
        eprintln!("NOTE: not tested: another user needs root");
    }
    // Kubelet is dead: what is known stays, and nobody else waits.
    kubelet.stop();
    assert!(line_of(&node, &named, &first).contains("pod=\"web-0\""));
    assert!(nameless(&exporter(&node, &kubelet.pods()), &first));
    for client in [first, second, outside] {
        client.expect_ok();
    }
    plugin.end();
}

/// Connects as root, and hands that connection on as a user, to whoever speaks first.
const RELAY: &str = r#"
import os, socket, sys, threading
kubelet = socket.socket(socket.AF_UNIX)
kubelet.connect(sys.argv[1])
os.setuid(int(sys.argv[3]))
own = socket.socket(socket.AF_UNIX)
own.bind(sys.argv[2])
own.listen()
print("ready", flush=True)
def hand(source, sink, data):
    while data:
        sink.sendall(data)
        data = source.recv(65536)
while True:
    client = own.accept()[0]
    data = client.recv(65536)
    if data:
        threading.Thread(target=lambda: hand(kubelet, client, kubelet.recv(65536)), daemon=True).start()
        hand(client, kubelet, data)
"#;

/// Lets the kernel answer every `connect` with EACCES, as a security module does, and becomes a
/// program.
const REFUSE_CONNECT: &str = r#"
import ctypes, os, struct, sys
number = {"x86_64": 42, "aarch64": 203}[os.uname().machine]
code = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050000 | 13), (0x06, 0, 0, 0x7fff0000)]
text = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code), ctypes.addressof(text)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0, os.strerror(ctypes.get_errno())
os.execv(sys.argv[1], sys.argv[1:])
"#;

/// A security module refuses the connection although the permissions allow it: doctor says so, with
/// the label that the kernel gives this process, and not that the daemon is gone.
#[test]
fn doctor_names_the_module_that_refuses() {
    if !geteuid().is_root() || !Path::new("/proc/self/attr/current").exists() {
        return eprintln!("NOTE: not tested: only root can give a process a label, and this kernel has to know labels");
    }
    let node = Node::start();
    let refused = |label: &str| {
        let file = node.folder().join("label");
        fs::write(&file, label).expect("a label");
        // The process keeps its number until it is doctor.
        let script = "mount --bind \"$1\" /proc/$$/attr/current && exec python3 -c \"$2\" \"$3\" doctor";
        let mut container = Command::new("unshare");
        container.args(["--mount", "sh", "-c", script, "sh"]).arg(file).arg(REFUSE_CONNECT).arg(cumux_testkit::cumux());
        for (name, value) in node.cumux(&[]).get_envs() {
            match value {
                Some(value) => container.env(name, value),
                None => container.env_remove(name),
            };
        }
        let output = container.output().expect("unshare starts");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let text = refused("system_u:system_r:container_t:s0:c1,c2\n");
    assert!(text.contains("the system refuses the connection to ") && text.contains("which the permissions allow"), "{text}");
    assert!(text.contains("SELinux confines this process as system_u:system_r:container_t:s0:c1,c2") && text.contains("container_file_t"), "{text}");
    let text = refused("cri-containerd.apparmor.d (enforce)\n");
    assert!(text.contains("AppArmor confines this process by the profile cri-containerd.apparmor.d"), "{text}");
    let text = refused("docker-default (complain)\n");
    assert!(text.contains("only complains, so it may be a seccomp filter"), "{text}");
    assert!(!text.contains("its files are left"), "the daemon is there: {text}");
}
