//! `cumux exporter`: what is served agrees with the status, health is the daemon's, and readiness
//! is that of a program that comes now.

use cumux_testkit::{Node, test_program};
use rustix::process::geteuid;
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};

const OTHER: u32 = 65534;

/// An exporter of a node. Dropping it ends it.
pub struct Exporter {
    child: Child,
    /// Its address and port.
    pub address: String,
}

impl Exporter {
    /// Starts one on a port that is free.
    pub fn start(node: &Node, options: &[&str]) -> Self {
        let mut child = node.cumux(&["exporter", "--listen", "0"]).args(options).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on http://").and_then(|rest| rest.strip_suffix("/metrics")).map(str::to_owned);
        let address = address.unwrap_or_else(|| panic!("the exporter said \"{line}\""));
        Self { child, address }
    }

    /// The number of the status line and the body.
    pub fn get(&self, path: &str) -> (u16, String) {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text\r\n\r\n"))
    }

    /// The same for those who do not know OpenMetrics.
    pub fn get_older(&self, path: &str) -> (u16, String) {
        self.ask(&format!("GET {path} HTTP/1.0\r\n\r\n"))
    }

    fn ask(&self, request: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer to {request}: {text}"));
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    fn metrics(&self) -> String {
        let (status, text) = self.get("/metrics");
        assert_eq!(status, 200, "{text}");
        is_openmetrics(&text);
        text
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The value of the one sample whose line begins so and contains all of these.
fn value(text: &str, name: &str, labels: &[&str]) -> Option<f64> {
    let is_sample = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])) && labels.iter().all(|label| line.contains(label));
    let mut lines = text.lines().filter(is_sample);
    let found = lines.next()?.rsplit_once(' ').unwrap().1.parse().unwrap();
    assert_eq!(lines.next(), None, "{name} {labels:?} is there twice");
    Some(found)
}

/// A strict reading: families once and described before their samples, no series twice, the end
/// marked.
fn is_openmetrics(text: &str) {
    assert!(text.ends_with("\n# EOF\n"), "{text}");
    let (mut family, mut kind, mut families, mut series) = ("", "", BTreeSet::new(), BTreeSet::new());
    for line in text.lines().take_while(|line| *line != "# EOF") {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            (family, kind) = rest.split_once(' ').unwrap();
            assert!(families.insert(family), "{family} comes twice");
            assert!(["gauge", "counter", "info"].contains(&kind), "{line}");
        } else if line.starts_with('#') {
            assert!(line.split(' ').nth(2) == Some(family) && (line.starts_with("# HELP ") || line.starts_with("# UNIT ")), "{line}");
        } else {
            let (name, value) = line.rsplit_once(' ').unwrap();
            let ending = match kind {
                "counter" => "_total",
                "info" => "_info",
                _ => "",
            };
            assert_eq!(name.split('{').next(), Some(format!("{family}{ending}").as_str()), "{line}");
            assert!(value.parse::<f64>().is_ok_and(f64::is_finite) && (!name.contains('{') || name.ends_with("\"}")), "{line}");
            assert!(series.insert(name), "{name} comes twice");
        }
    }
}

#[test]
fn figures_agree_with_the_status_and_faults_count_once() {
    let node = Node::start();
    let exporter = Exporter::start(&node, &[]);
    let client = node.test_client("idle").start();
    client.wait_for_line("ready");
    let pid = format!("pid=\"{}\"", client.pid());
    let text = node.wait_for("the client in the metrics", |_| Some(exporter.metrics()).filter(|text| text.contains(&pid)));
    let status = node.client_status(client.pid()).unwrap();
    let uuid = node.server().cards[0].uuid.clone();
    assert!(uuid.starts_with("GPU-") && uuid.len() == 40, "{uuid}");
    let labels = [pid.as_str(), &format!("UUID=\"{uuid}\""), "gpu=\"0\""];
    assert_eq!(value(&text, "cumux_client_kernels_total", &labels), Some(1.0), "{text}");
    assert_eq!(value(&text, "cumux_client_memory_bytes", &labels), Some(status.memory as f64), "{text}");
    assert_eq!(value(&text, "cumux_client_active_thread_ratio", &labels), Some(1.0));
    assert_eq!(value(&text, "cumux_client_info", &[&pid, "place=\"shared\"", "idle\""]), Some(1.0), "{text}");
    assert_eq!(value(&text, "cumux_gpu_multiprocessors", &[&uuid]), Some(132.0));
    assert_eq!(value(&text, "cumux_gpu_clients", &[&uuid]), Some(1.0));
    assert_eq!(value(&text, "cumux_server_state", &["state=\"ACTIVE\""]), Some(1.0));
    let user = format!("uid=\"{}\"", geteuid().as_raw());
    assert_eq!(value(&text, "cumux_faults_total", &[&user]), Some(0.0));
    node.client("illegal_access").start().expect_ok();
    client.expect_ok();
    node.wait_for("both ends", |_| {
        let text = exporter.metrics();
        let ended = value(&text, "cumux_clients_ended_total", &[&user, "end=\"exited\""]);
        (ended == Some(2.0) && !text.contains(&pid)).then_some(())
    });
    assert_eq!(value(&exporter.metrics(), "cumux_faults_total", &[&user]), Some(1.0));
    assert_eq!(exporter.get("/nothing").0, 404);
    let (status, text) = exporter.get_older("/metrics");
    assert!(status == 200 && text.contains("# TYPE cumux_faults_total counter\n") && !text.contains("EOF"), "{text}");
    let (status, text) = exporter.ask("PUT /metrics HTTP/1.1\r\n\r\n");
    assert!(status == 405 && text.contains("only GET and HEAD"), "{text}");
}

/// A group is there with its limits before anybody is in it; its clients carry its name.
#[test]
fn groups_and_their_clients() {
    let node = Node::start();
    let made = node.cumux(&["group", "create", "pod", "memory=1G", "clients=3", "percentage=25"]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let directory = String::from_utf8(made.stdout).unwrap();
    let exporter = Exporter::start(&node, &[]);
    assert_eq!(value(&exporter.metrics(), "cumux_group_clients", &["group=\"pod\""]), Some(0.0));
    let client = node.test_client("idle").env("CUDA_MPS_PIPE_DIRECTORY", directory.trim()).start();
    client.wait_for_line("ready");
    let pid = format!("pid=\"{}\"", client.pid());
    let text = node.wait_for("the client in the metrics", |_| Some(exporter.metrics()).filter(|text| text.contains(&pid)));
    assert_eq!(value(&text, "cumux_client_kernels_total", &[&pid, "group=\"pod\""]), Some(1.0), "{text}");
    let card = ["group=\"pod\"", "gpu=\"0\"", "UUID=\"GPU-"];
    assert_eq!(value(&text, "cumux_group_memory_limit_bytes", &card), Some(f64::from(1 << 30)), "{text}");
    assert_eq!(value(&text, "cumux_group_memory_bytes", &card), Some(node.client_status(client.pid()).unwrap().memory as f64), "{text}");
    assert_eq!(value(&text, "cumux_group_clients_limit", &["group=\"pod\""]), Some(3.0));
    assert_eq!(value(&text, "cumux_group_active_thread_ratio", &["group=\"pod\""]), Some(0.25));
    client.expect_ok();
}

#[test]
fn health_is_the_daemons_and_readiness_that_of_a_program() {
    let node = Node::with().env("CUMUX_HEARTBEAT_MS", "0").start();
    let exporter = Exporter::start(&node, &["--trial-age", "0", "--trial-timeout", "2"]);
    // The first one starts a server, a keeper and an executor, which may take longer than a trial.
    let text = node.wait_for("readiness", |_| Some(exporter.get("/readyz")).filter(|(status, _)| *status == 200)).1;
    assert!(text.contains("was served on 1 device(s)"), "{text}\n{}", node.logs());
    assert_eq!(value(&exporter.metrics(), "cumux_trial_success", &[]), Some(1.0));
    // An executor that stands still, and that nobody replaces: no program is served.
    let executor = node.server().executor;
    node.stop(executor);
    let (status, text) = exporter.get("/readyz");
    assert!(status == 503 && text.contains("it had no context after 2 s"), "{status} {text}");
    assert_eq!(exporter.get("/healthz").0, 200, "the daemon answers: restarting it would help nobody");
    assert_eq!(value(&exporter.metrics(), "cumux_trial_success", &[]), Some(0.0));
    node.set_going(executor);
    node.wait_for("readiness", |_| (exporter.get("/readyz").0 == 200).then_some(()));
    node.kill(node.daemon_pid());
    node.wait_for("the daemon's end to be noticed", |_| (exporter.get("/healthz").0 == 503).then_some(()));
    let (status, text) = exporter.get("/readyz");
    assert!(status == 503 && text.contains("Cannot find MPS control daemon process"), "{text}");
    assert_eq!(value(&exporter.metrics(), "cumux_daemon_up", &[]), Some(0.0));
    node.start_daemon();
    node.wait_for("the next daemon to be noticed", |_| (exporter.get("/readyz").0 == 200).then_some(()));
}

/// A trial as another user would make a daemon that serves one user at a time send its clients
/// away.
#[test]
fn a_trial_is_made_as_the_user_who_is_served() {
    if !geteuid().is_root() {
        eprintln!("NOTE: not tested: two users need root");
        return;
    }
    let node = Node::with().prepare(|folder| std::fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap()).start();
    let client = node.test_client("idle").user(OTHER).start();
    client.wait_for_line("ready");
    let server = node.server();
    let exporter = Exporter::start(&node, &[]);
    let (status, text) = exporter.get("/readyz");
    assert!(status == 200 && text.contains("of user nobody was served"), "{text}\n{}", node.logs());
    let now = node.server();
    assert_eq!((now.pid, now.leaving.as_str()), (server.pid, ""));
    client.expect_ok();
}

#[test]
fn what_cannot_be_listened_on_is_said() {
    let node = Node::start();
    let exporter = Exporter::start(&node, &[]);
    for (listen, words) in [(exporter.address.as_str(), "cannot listen on"), ("here", "write a port"), ("1.2.3.4", "[::1]:9456")] {
        let output = node.cumux(&["exporter", "--listen", listen]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(words), "{listen}: {text}");
    }
    let output = node.cumux(&["exporter", "--trial-timeout", "0"]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("1..=300"));
}

/// Without a service, the library hands a program on to the driver: a trial must not take that for
/// readiness. Here the trial process itself is asked, with a library that is not CUDA's.
#[test]
fn a_trial_names_what_is_wrong() {
    let node = Node::start();
    let output = node.cumux(&["trial", test_program("idle").to_str().unwrap()]).stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("idle"), "{text}");
}
