//! The DRA driver between a kubelet and an API server of ours and a daemon in memory, over real
//! sockets.
#![allow(clippy::unwrap_used, missing_docs)]

use cumux_cluster::checkpoint::Checkpoint;
use cumux_cluster::dra::api::Api;
use cumux_cluster::dra::driver::Driver;
use cumux_cluster::dra::node::{Options, Running};
use cumux_cluster::fake::FakeDaemon;
use cumux_testkit::apiserver::ApiServer;
use cumux_testkit::dra::DraKubelet;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const SLICE: &str = "node-1-gpu.cumux.dev";

struct World {
    folder: TempDir,
    daemon: Arc<FakeDaemon>,
    api: ApiServer,
    kubelet: DraKubelet,
    running: Option<(Running, Arc<Driver>)>,
}

impl World {
    fn new() -> Self {
        let place = if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" };
        let folder = tempfile::Builder::new().prefix("cx").tempdir_in(place).unwrap();
        fs::write(folder.path().join("token"), "secret\n").unwrap();
        let daemon = Arc::new(FakeDaemon::with_cards(&[81_920, 143_771]));
        let kubelet = DraKubelet::new(&folder.path().join("registry"), &folder.path().join("cdi"));
        let mut world = Self { folder, daemon, api: ApiServer::start("secret"), kubelet, running: None };
        world.start();
        world
    }

    fn cdi(&self) -> PathBuf {
        self.folder.path().join("cdi")
    }

    fn start(&mut self) {
        let api = Api::at(&self.api.url(), Some(self.folder.path().join("token")), None).unwrap();
        let state = Checkpoint::at(self.folder.path().join("dra.json"));
        let driver = Arc::new(Driver::open(Box::new(Arc::clone(&self.daemon)), api, self.cdi(), Some("/opt/cumux/lib".into()), state).unwrap());
        let options = Options {
            node: "node-1".into(),
            registry: self.folder.path().join("registry"),
            plugin: self.folder.path().join("plugin"),
            interval: Duration::from_millis(10),
        };
        self.running = Some((Running::start(options, Arc::clone(&driver)).unwrap(), driver));
    }

    fn stop(&mut self) {
        if let Some((running, _)) = self.running.take() {
            running.stop();
        }
    }

    fn prepare(&self, name: &str, uid: &str) -> Result<Vec<String>, String> {
        self.kubelet.prepare(name, uid)
    }

    fn unprepare(&self, uid: &str) -> Result<(), String> {
        self.kubelet.unprepare(uid)
    }

    fn files(&self) -> Vec<String> {
        self.kubelet.files()
    }
}

fn uid(number: u32) -> String {
    format!("{number:08x}-1111-2222-3333-444444444444")
}

fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < until, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_claim_becomes_a_group_and_a_cdi_device() {
    let world = World::new();
    world.api.put_claim("training", &uid(1), &[("gpu-1", json!({"memory": "20Gi", "multiprocessors": "33"}))], Value::Null);
    let devices = world.prepare("training", &uid(1)).unwrap();
    assert_eq!(devices, [format!("gpu.cumux.dev/claim={}", uid(1))]);
    let group = &world.daemon.groups()[0];
    assert_eq!((group.percentage, group.memory.values().copied().collect::<Vec<_>>()), (Some(25), vec![20_480]));
    let spec: Value = serde_json::from_slice(&fs::read(world.cdi().join(format!("gpu.cumux.dev-claim_{}.json", uid(1)))).unwrap()).unwrap();
    assert_eq!((&spec["kind"], &spec["devices"][0]["name"]), (&json!("gpu.cumux.dev/claim"), &json!(uid(1))));
    let edits = &spec["devices"][0]["containerEdits"];
    assert!(edits["env"].as_array().unwrap().contains(&json!("CUDA_MPS_PIPE_DIRECTORY=/run/cumux")), "{spec}");
    assert_eq!(edits["mounts"][0]["hostPath"], format!("/fake/groups/{}", group.name));
    // Asked again, the answer is the same, whatever has happened to the parts.
    fs::remove_dir_all(world.cdi()).unwrap();
    world.daemon.forget();
    assert_eq!(world.prepare("training", &uid(1)).unwrap(), devices);
    assert_eq!((world.files().len(), world.daemon.groups().len()), (1, 1));
    for _ in 0..2 {
        world.unprepare(&uid(1)).unwrap();
        assert_eq!((world.files(), world.daemon.groups()), (vec![], vec![]));
    }
}

#[test]
fn what_cannot_be_prepared_is_refused_with_the_reason_and_leaves_nothing() {
    let world = World::new();
    world.api.put_claim(
        "wrong",
        &uid(1),
        &[("gpu-0", Value::Null)],
        json!([{"source": "FromClaim", "opaque": {"driver": "gpu.cumux.dev", "parameters": {"kind": "GpuConfig"}}}]),
    );
    assert!(world.prepare("wrong", &uid(1)).unwrap_err().contains("config[0].opaque.parameters.apiVersion"));
    assert!(world.prepare("missing", &uid(2)).unwrap_err().contains("404"));
    assert!(world.prepare("wrong", &uid(3)).unwrap_err().contains("another one now"));
    assert!(world.prepare("wrong", "../../etc").unwrap_err().contains("no UID"));
    world.api.put_claim("good", &uid(4), &[("gpu-0", Value::Null)], Value::Null);
    world.daemon.set_ill(0, Some("server 7 is in FAULT"));
    assert!(world.prepare("good", &uid(4)).unwrap_err().contains("server 7 is in FAULT"));
    world.daemon.set_ill(0, None);
    world.daemon.set_down(true);
    assert!(world.prepare("good", &uid(4)).unwrap_err().contains("no cumux daemon answers"));
    world.daemon.set_down(false);
    world.api.set_down(true);
    assert!(world.prepare("good", &uid(4)).unwrap_err().contains("does not answer"));
    world.api.set_down(false);
    assert_eq!((world.files(), world.daemon.groups()), (vec![], vec![]));
    world.prepare("good", &uid(4)).unwrap();
}

#[test]
fn the_slice_follows_the_cards() {
    let mut world = World::new();
    let devices = |world: &World| world.api.slice(SLICE).map(|slice| slice["spec"]["devices"].as_array().unwrap().len());
    wait_for("the slice", || (devices(&world) == Some(2)).then_some(()));
    let slice = world.api.slice(SLICE).unwrap();
    let device = &slice["spec"]["devices"][0];
    assert_eq!((&device["allowMultipleAllocations"], &device["capacity"]["memory"]["value"]), (&json!(true), &json!("81920Mi")));
    assert_eq!(slice["metadata"]["ownerReferences"][0]["uid"], "uid-of-the-node");
    // Nothing changes, nothing is written: also by the next driver.
    let writes = world.api.writes();
    world.stop();
    world.start();
    world.api.conflict(2);
    world.daemon.set_ill(0, Some("lost"));
    wait_for("the card to go", || (devices(&world) == Some(1)).then_some(()));
    assert_eq!(world.api.writes(), writes + 1);
    world.daemon.set_ill(0, None);
    wait_for("the card to come back", || (devices(&world) == Some(2)).then_some(()));
    let generation = world.api.slice(SLICE).unwrap()["spec"]["pool"]["generation"].as_u64().unwrap();
    assert_eq!(generation, 3);
    world.daemon.set_down(true);
    wait_for("all cards to go", || (devices(&world) == Some(0)).then_some(()));
}

/// A thousand claims prepared and unprepared in random order, with restarts of driver and daemon in
/// between and calls that kubelet repeats.
#[test]
fn a_thousand_claims_leave_nothing() {
    let rounds: u32 = std::env::var("CUMUX_SOAK").ok().and_then(|text| text.parse().ok()).unwrap_or(1000);
    let seed: u64 = std::env::var("CUMUX_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(16);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut world = World::new();
    let mut live: BTreeMap<u32, u64> = BTreeMap::new();
    for round in 0..rounds {
        match random.u32(0..100) {
            0 => {
                world.stop();
                if random.bool() {
                    // A driver that died while it wrote.
                    let _ = fs::write(world.cdi().join("gpu.cumux.dev-claim_half.next"), "{");
                }
                world.start();
            }
            1 => {
                world.daemon.set_down(true);
                if random.bool() {
                    world.daemon.forget();
                }
                world.api.put_claim("unlucky", &uid(u32::MAX), &[("gpu-0", Value::Null)], Value::Null);
                assert!(world.prepare("unlucky", &uid(u32::MAX)).is_err());
                world.daemon.set_down(false);
                world.unprepare(&uid(u32::MAX)).unwrap();
            }
            2..50 => {
                let mib = 64 * u64::from(random.u32(1..100));
                let name = format!("claim-{round}");
                world.api.put_claim(&name, &uid(round), &[(if random.bool() { "gpu-0" } else { "gpu-1" }, json!({"memory": format!("{mib}Mi")}))], Value::Null);
                for _ in 0..random.u32(1..3) {
                    world.prepare(&name, &uid(round)).unwrap_or_else(|error| panic!("seed {seed}, round {round}: {error}"));
                }
                live.insert(round, mib);
            }
            _ => {
                let all: Vec<u32> = live.keys().copied().collect();
                if let Some(number) = random.choice(all) {
                    for _ in 0..random.u32(1..3) {
                        world.unprepare(&uid(number)).unwrap();
                    }
                    live.remove(&number);
                }
            }
        }
        let (_, driver) = world.running.as_ref().unwrap();
        driver.reconcile().unwrap();
        let groups: BTreeMap<String, u64> = world.daemon.groups().into_iter().map(|group| (group.name, group.memory.values().sum())).collect();
        let wanted: BTreeMap<String, u64> = live.iter().map(|(number, mib)| (format!("dra-{}", uid(*number)), *mib)).collect();
        assert_eq!(groups, wanted, "seed {seed}, round {round}");
        assert_eq!(world.files().len(), live.len(), "seed {seed}, round {round}");
    }
    for number in live.keys() {
        world.unprepare(&uid(*number)).unwrap();
    }
    assert_eq!((world.files(), world.daemon.groups()), (vec![], vec![]));
    world.stop();
    for folder in ["registry", "plugin"] {
        assert_eq!(fs::read_dir(world.folder.path().join(folder)).unwrap().count(), 0, "{folder} has sockets left");
    }
}
