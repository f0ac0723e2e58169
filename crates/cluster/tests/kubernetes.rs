//! The device plugin between a kubelet of ours and a daemon in memory, over real sockets.
#![allow(clippy::unwrap_used, missing_docs)]

use cumux_artifacts::plugin::{Policy, read};
use cumux_cluster::checkpoint::Checkpoint;
use cumux_cluster::fake::FakeDaemon;
use cumux_cluster::groups::Groups as _;
use cumux_cluster::plugin::ledger::{Ledger, PIPE_IN_CONTAINER, Rules, now};
use cumux_cluster::plugin::node::{Options, Plugin};
use cumux_cluster::plugin::parts::resources;
use cumux_testkit::kubelet::{Kubelet, Pod};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const GPU: &str = "nvidia.com/gpu";
const MEMORY: &str = "cumux.dev/gpu-memory";
const PERCENT: &str = "cumux.dev/gpu-percent";
const BOTH: &str = "
version: v1
sharing:
  mps:
    failRequestsGreaterThanOne: false
    resources: [{name: gpu, replicas: 8, devices: [0, 1]}]
  cumux:
    memory: {name: cumux.dev/gpu-memory, unit: 8Gi}
    percent: {name: cumux.dev/gpu-percent, unit: 5}
    devices: [2]
";
const CARDS: [u64; 3] = [81_920, 81_920, 143_771];

struct World {
    folder: TempDir,
    daemon: Arc<FakeDaemon>,
    kubelet: Kubelet,
    policy: Policy,
    plugin: Option<(Plugin, Arc<Ledger>)>,
}

impl World {
    fn new() -> Self {
        let place = if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" };
        let folder = tempfile::Builder::new().prefix("cx").tempdir_in(place).unwrap();
        let kubelet = Kubelet::start(folder.path());
        let mut world = Self { kubelet, folder, daemon: Arc::new(FakeDaemon::with_cards(&CARDS)), policy: Policy::Packed, plugin: None };
        world.start_plugin();
        world
    }

    fn start_plugin(&mut self) {
        let config = read(BOTH).unwrap();
        let rules = Rules { fail_above_one: config.fail_above_one, grace: Duration::ZERO, library: None };
        let fresh = FakeDaemon::with_cards(&CARDS);
        let parts = resources(&config, &fresh.cards().unwrap()).unwrap();
        let ledger = Arc::new(Ledger::open(rules, parts, Box::new(Arc::clone(&self.daemon)), Checkpoint::at(self.folder.path().join("state.json"))).unwrap());
        let options = Options {
            folder: self.kubelet.plugins(),
            kubelet: self.kubelet.socket(),
            pods: Some(self.kubelet.pods()),
            policy: self.policy,
            health: Duration::from_millis(10),
            // The test calls it, because it knows when no allocation is under way.
            reconcile: None,
        };
        self.plugin = Some((Plugin::start(options, Arc::clone(&ledger)).unwrap(), ledger));
    }

    fn stop_plugin(&mut self) {
        if let Some((plugin, _)) = self.plugin.take() {
            plugin.stop();
        }
    }

    fn wait_until_complete(&self) {
        self.kubelet.wait_for(GPU, 16);
        self.kubelet.wait_for(MEMORY, 17);
        self.kubelet.wait_for(PERCENT, 20);
    }

    fn reconcile(&self) {
        let (_, ledger) = self.plugin.as_ref().unwrap();
        ledger.reconcile(Some(&self.kubelet.pod_resources()), now()).unwrap();
    }

    fn group_of(&self, pod: &Pod) -> cumux_cluster::groups::Group {
        self.daemon.group_at(&pod.mounts[PIPE_IN_CONTAINER]).unwrap_or_else(|| panic!("{} has no group", pod.name))
    }

    /// Every pod has a group of its own with its limits, and no card is promised twice.
    fn check(&self) {
        let pods = self.kubelet.running();
        let mut memory: BTreeMap<String, u64> = BTreeMap::new();
        let mut names = Vec::new();
        for pod in &pods {
            let group = self.group_of(pod);
            let parts = pod.devices.get(GPU).map_or(0, Vec::len) as u64 * 10_240 + pod.devices.get(MEMORY).map_or(0, Vec::len) as u64 * 8192;
            assert_eq!(group.memory.values().sum::<u64>(), parts, "{pod:?}: {group:?}");
            if let Some(percent) = pod.devices.get(PERCENT) {
                assert_eq!(group.percentage, Some(5 * u32::try_from(percent.len()).unwrap()));
            }
            for (card, mib) in group.memory {
                *memory.entry(card).or_default() += mib;
            }
            names.push(group.name);
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), pods.len(), "two pods have one group");
        for card in FakeDaemon::with_cards(&CARDS).cards().unwrap() {
            assert!(memory.get(&card.uuid).copied().unwrap_or(0) <= card.memory_mib, "{} is promised twice: {memory:?}", card.uuid);
        }
    }
}

fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < until, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_plugin_registers_with_every_kubelet_that_comes() {
    let mut world = World::new();
    world.wait_until_complete();
    let pod = world.kubelet.run_pod("first", &[(GPU, 1)]).unwrap();
    for _ in 0..3 {
        world.kubelet.restart();
        world.wait_until_complete();
        assert_eq!(world.group_of(&pod).percentage, Some(12), "kubelet's restart is none of the pod's");
    }
    // A kubelet that is slow, and refuses at first.
    world.kubelet.stop();
    world.kubelet.refuse(2);
    world.kubelet.delay(Duration::from_millis(50));
    world.kubelet.restart();
    world.wait_until_complete();
    // A plugin whose sockets somebody deletes.
    let before = world.kubelet.registrations();
    for entry in std::fs::read_dir(world.kubelet.plugins()).unwrap().flatten().filter(|entry| entry.file_name() != "kubelet.sock") {
        // The plugin, which notices the first one, may be making the others anew.
        let removed = std::fs::remove_file(entry.path());
        assert!(removed.is_ok() || removed.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound));
    }
    wait_for("a registration", || world.kubelet.registrations() >= before + 3);
    world.wait_until_complete();
    world.stop_plugin();
    let left: Vec<_> = std::fs::read_dir(world.kubelet.plugins()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["kubelet.sock"], "the plugin takes its sockets with it");
}

#[test]
fn a_plugin_that_starts_before_kubelet_waits_for_it() {
    let mut world = World::new();
    world.wait_until_complete();
    world.stop_plugin();
    world.kubelet.stop();
    std::fs::remove_dir_all(world.kubelet.plugins()).unwrap();
    world.start_plugin();
    world.kubelet.restart();
    world.wait_until_complete();
}

#[test]
fn cards_become_unhealthy_and_healthy_again() {
    let world = World::new();
    world.wait_until_complete();
    world.daemon.set_ill(0, Some("server 7 is in FAULT"));
    world.kubelet.wait_for(GPU, 8);
    world.daemon.set_ill(0, None);
    world.kubelet.wait_for(GPU, 16);
    world.daemon.set_down(true);
    world.kubelet.wait_for(GPU, 0);
    assert!(world.kubelet.run_pod("early", &[(GPU, 1)]).unwrap_err().contains("Insufficient"));
    world.daemon.set_down(false);
    world.wait_until_complete();
    world.daemon.lose_card(2);
    world.kubelet.wait_for(MEMORY, 0);
    world.kubelet.wait_for(GPU, 16);
}

#[test]
fn unequal_parts_of_one_card() {
    let world = World::new();
    world.wait_until_complete();
    let large = world.kubelet.run_pod("large", &[(MEMORY, 10), (PERCENT, 12)]).unwrap();
    let small = world.kubelet.run_pod("small", &[(PERCENT, 2), (MEMORY, 1)]).unwrap();
    world.check();
    assert_eq!((world.group_of(&large).percentage, world.group_of(&small).percentage), (Some(60), Some(10)));
    // A container that is started again is not allocated again, and keeps its limits.
    world.kubelet.restart_container(&small).unwrap();
    assert_eq!(world.group_of(&small).percentage, Some(10));
    let text = world.kubelet.run_pod("percent", &[(PERCENT, 2)]).unwrap_err();
    assert!(text.contains("without cumux.dev/gpu-memory"), "{text}");
    assert!(world.kubelet.run_pod("much", &[(MEMORY, 9)]).unwrap_err().contains("Insufficient"));
    assert!(world.kubelet.run_pod_with("twice", &[(MEMORY, 2)], true).is_ok(), "an answer that is lost is asked for again");
    world.check();
    world.reconcile();
    assert_eq!(world.daemon.groups().len(), 3);
}

/// A thousand allocations and releases in random order, with restarts of kubelet, plugin and daemon
/// in between. `CUMUX_SOAK` sets another number.
#[test]
fn a_thousand_pods_leave_nothing() {
    let rounds: u32 = std::env::var("CUMUX_SOAK").ok().and_then(|text| text.parse().ok()).unwrap_or(1000);
    let seed: u64 = std::env::var("CUMUX_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(16);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut world = World::new();
    world.wait_until_complete();
    let (mut started, mut refused) = (0, 0);
    for round in 0..rounds {
        match random.u32(0..100) {
            0 => {
                world.kubelet.restart();
                world.wait_until_complete();
            }
            1 => {
                world.policy = if random.bool() { Policy::Packed } else { Policy::Distributed };
                world.stop_plugin();
                // Until kubelet has noticed, it would call the plugin that has gone.
                [GPU, MEMORY, PERCENT].iter().for_each(|resource| world.kubelet.wait_for(resource, 0));
                world.start_plugin();
                world.wait_until_complete();
                world.reconcile();
            }
            2 => {
                // The daemon is started again, and has lost its groups every other time.
                world.daemon.set_down(true);
                let _ = world.kubelet.run_pod("unlucky", &[(GPU, 1)]).unwrap_err();
                if random.bool() {
                    world.daemon.forget();
                }
                world.daemon.set_down(false);
                world.wait_until_complete();
                world.reconcile();
            }
            3..10 => world.reconcile(),
            10..55 => {
                let name = format!("pod-{round}");
                let wishes: &[(&str, usize)] = match random.u32(0..4) {
                    0 => &[(MEMORY, 1), (PERCENT, 1)],
                    1 => &[(PERCENT, 3), (MEMORY, 4)],
                    2 => &[(GPU, 1)],
                    _ => &[(GPU, 3)],
                };
                match world.kubelet.run_pod_with(&name, wishes, random.u32(0..10) == 0) {
                    Ok(_) => started += 1,
                    Err(text) => {
                        // A card may still count as ill for a moment after a daemon's restart.
                        assert!(text.contains("Insufficient") || text.contains("serves nobody at the moment"), "seed {seed}, round {round}: {text}");
                        refused += 1;
                    }
                }
            }
            _ => {
                let running = world.kubelet.running();
                if let Some(pod) = random.choice(&running) {
                    world.kubelet.end_pod(&pod.name);
                }
            }
        }
        world.check();
    }
    assert!(rounds < 1000 || started > 200 && refused > 0, "the rounds were too easy: {started} started, {refused} refused");
    for pod in world.kubelet.running() {
        world.kubelet.end_pod(&pod.name);
    }
    world.reconcile();
    assert_eq!(world.daemon.groups(), [], "seed {seed}");
    world.stop_plugin();
    let left = std::fs::read_dir(world.kubelet.plugins()).unwrap().count();
    assert_eq!(left, 1, "only kubelet's own socket is left");
}
