//! The DRA driver as a process, between a kubelet and an API server of ours and a real daemon, with
//! CUDA programs in the pods.

use crate::kubernetes::{groups, grower, inside, take};
use cumux_testkit::apiserver::ApiServer;
use cumux_testkit::dra::DraKubelet;
use cumux_testkit::{Node, test_program};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs;
use std::process::{Child, Stdio};

const SLICE: &str = "node-1-gpu.cumux.dev";

/// A driver's process. It is killed when it is dropped.
struct Driver(Child);

impl Driver {
    fn start(node: &Node, api: &ApiServer) -> Self {
        let folder = node.folder();
        fs::write(folder.join("token"), "secret\n").expect("the token");
        let mut command = node.cumux(&["dra", "--node-name", "node-1", "--interval", "0.1", "--api-server", &api.url()]);
        for (option, place) in
            [("--token-file", "token"), ("--registry", "registry"), ("--plugin", "plugin"), ("--cdi", "cdi"), ("--state", "dra.json"), ("--library", "lib")]
        {
            command.arg(option).arg(folder.join(place));
        }
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the driver starts"))
    }

    /// Ends as a DaemonSet's pod does.
    fn end(mut self) {
        kill_process(Pid::from_child(&self.0), Signal::TERM).expect("our child");
        let status = self.0.wait().expect("our child");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn uid(number: u32) -> String {
    format!("{number:08x}-1111-2222-3333-444444444444")
}

fn config(fields: &Value) -> Value {
    let mut parameters = json!({"apiVersion": "gpu.cumux.dev/v1alpha1", "kind": "GroupConfig"});
    parameters.as_object_mut().expect("a mapping").extend(fields.as_object().expect("a mapping").clone());
    json!([{"source": "FromClaim", "requests": [], "opaque": {"driver": "gpu.cumux.dev", "parameters": parameters}}])
}

/// Waits until the node's slice has so many devices.
fn wait_for_slice(node: &Node, api: &ApiServer, devices: usize) {
    node.wait_for("the slice", |_| api.slice(SLICE).filter(|slice| slice["spec"]["devices"].as_array().is_some_and(|all| all.len() == devices)));
}

/// Two programs of a claim have its memory together, whatever each of them does; a neighbour has
/// its own, also across restarts; and what is taken back leaves nothing.
#[test]
fn a_claims_programs_have_its_part_together() {
    let node = Node::start();
    let (api, kubelet) = (ApiServer::start("secret"), DraKubelet::new(&node.folder().join("registry"), &node.folder().join("cdi")));
    let driver = Driver::start(&node, &api);
    wait_for_slice(&node, &api, 1);
    api.put_claim("small", &uid(1), &[("gpu-0", json!({"memory": "1Gi", "multiprocessors": "33"}))], Value::Null);
    api.put_claim("large", &uid(2), &[("gpu-0", json!({"memory": "30Gi"}))], config(&json!({"memory": "3Gi", "priority": "low", "clients": 1})));
    let (small, large) = (kubelet.run_pod("small", &uid(1)).expect("it is prepared"), kubelet.run_pod("large", &uid(2)).expect("it is prepared"));
    let seen = inside(&node, &small, &test_program("view"), &[]).expect_ok();
    assert!(seen.contains("multiprocessors 32\n") && seen.contains("total 1024\n"), "the program sees what it may have: {seen}");

    let (mut one, mut other, mut neighbour) = (grower(&node, &small), grower(&node, &small), grower(&node, &large));
    assert!(take(&node, &mut one, 600) && !take(&node, &mut other, 600) && take(&node, &mut other, 424));
    assert!(take(&node, &mut neighbour, 2048), "a neighbour is not affected");
    assert_eq!(node.client_status(neighbour.pid()).expect("known").priority, 1, "the claim's configuration");
    assert!(!inside(&node, &large, &test_program("view"), &[]).wait().status.success(), "the claim's configuration has one client");

    // Daemon and driver are started again: the programs go on, and so do the limits.
    node.kill(node.daemon_pid());
    node.start_daemon();
    wait_for_slice(&node, &api, 1);
    driver.end();
    let driver = Driver::start(&node, &api);
    let again = node.wait_for("the driver", |_| kubelet.run_pod("small", &uid(1)).ok());
    assert_eq!((again.environment, again.mounts), (small.environment.clone(), small.mounts.clone()), "asked again, the answer is the same");
    assert!(!take(&node, &mut one, 2) && take(&node, &mut neighbour, 1024) && !take(&node, &mut neighbour, 2));

    for client in [one, other] {
        client.expect_ok();
    }
    for _ in 0..2 {
        kubelet.unprepare(&uid(1)).expect("it is taken back");
        assert_eq!((groups(&node).len(), kubelet.files().len()), (1, 1));
    }
    assert!(!take(&node, &mut neighbour, 2), "the neighbour goes on, within its limit");
    neighbour.expect_ok();
    kubelet.unprepare(&uid(2)).expect("it is taken back");
    assert_eq!((groups(&node), kubelet.files()), (Vec::new(), Vec::new()));
    assert_eq!(fs::read_dir(node.pipe().join("groups")).map_or(0, Iterator::count), 0, "directories of groups are left");
    driver.end();
    for folder in ["registry", "plugin"] {
        assert_eq!(fs::read_dir(node.folder().join(folder)).expect("a folder").count(), 0, "{folder} has sockets left");
    }
}

/// What is wrong is said by the driver at its start, and by the pod's events.
#[test]
fn what_is_wrong_is_named() {
    let node = Node::start();
    let refusal = |words: &[&str]| {
        let output = node.cumux(&[&["dra", "--node-name", "node-1"], words].concat()).output().expect("cumux starts");
        assert!(!output.status.success(), "{words:?}: {output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let state = node.folder().join("dra.json").to_string_lossy().into_owned();
    let folder = node.folder().join("plugin").to_string_lossy().into_owned();
    let rest = ["--state", &state, "--plugin", &folder];
    for (words, part) in [
        (&["--api-server", "ftp://host"][..], "write https://HOST:PORT"),
        (&["--api-server", "https://host", "--token-file", "/nonexistent/token"], "/nonexistent/token"),
        (&["--api-server", "https://host", "--interval", "0"], "above 0"),
        (&[&["--api-server", "https://host", "--registry", "/nonexistent/registry"], &rest[..]].concat(), "/nonexistent/registry/gpu.cumux.dev-reg.sock"),
    ] {
        let text = refusal(words);
        assert!(text.contains(part), "{words:?}: {text}");
    }
    fs::write(&state, "{bad").expect("a file");
    let text = refusal(&[&["--api-server", "https://host"], &rest[..]].concat());
    assert!(text.contains("dra.json is damaged") && text.contains("line 1"), "{text}");

    let (api, kubelet) = (ApiServer::start("secret"), DraKubelet::new(&node.folder().join("registry"), &node.folder().join("cdi")));
    let driver = Driver::start(&node, &api);
    wait_for_slice(&node, &api, 1);
    api.put_claim("wrong", &uid(1), &[("gpu-0", Value::Null)], config(&json!({"percent": 25})));
    let text = kubelet.prepare("wrong", &uid(1)).unwrap_err();
    assert!(text.contains("config[0].opaque.parameters.percent: unknown field"), "{text}");
    api.put_claim("other", &uid(2), &[("gpu-7", Value::Null)], Value::Null);
    assert!(kubelet.prepare("other", &uid(2)).unwrap_err().contains("gpu-7"));
    assert_eq!((groups(&node), kubelet.files()), (Vec::new(), Vec::new()));
    driver.end();
}
