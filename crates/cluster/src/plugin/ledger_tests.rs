//! Tests of the ledger against a daemon in memory.

use super::super::messages::{ContainerDevices, ContainerResources};
use super::super::parts::resources;
use super::*;
use crate::fake::FakeDaemon;
use cumux_artifacts::plugin::read;
use std::sync::Arc;

const REPLICAS: &str = "sharing:\n  mps:\n    failRequestsGreaterThanOne: false\n    resources: [{name: gpu, replicas: 4}]\n";
const UNITS: &str = "sharing:\n  cumux:\n    memory: {name: cumux.dev/gpu-memory}\n    percent: {name: cumux.dev/gpu-percent}\n";
const MEMORY: &str = "cumux.dev/gpu-memory";
const PERCENT: &str = "cumux.dev/gpu-percent";

struct World {
    daemon: Arc<FakeDaemon>,
    folder: tempfile::TempDir,
    config: &'static str,
}

impl World {
    fn new(config: &'static str) -> Self {
        Self { daemon: Arc::new(FakeDaemon::with_cards(&[81_920, 40_960])), folder: tempfile::tempdir().unwrap(), config }
    }

    /// The ledger as a plugin opens it when it starts.
    fn open(&self) -> Ledger {
        let config = read(self.config).unwrap();
        let rules = Rules { fail_above_one: config.fail_above_one, grace: Duration::from_secs(60), library: Some("/opt/cumux/lib".into()) };
        let parts = resources(&config, &self.daemon.cards().unwrap()).unwrap();
        Ledger::open(rules, parts, Box::new(Arc::clone(&self.daemon)), Checkpoint::at(self.folder.path().join("plugin.json"))).unwrap()
    }
}

fn id(card: u32, part: u32) -> String {
    format!("GPU-{card:08x}-0000-0000-0000-000000000000::{part}")
}

fn allocate(ledger: &Ledger, resource: &str, ids: &[String]) -> Result<ContainerAllocateResponse, LedgerError> {
    ledger.allocate(ledger.resource_named(resource).unwrap(), ids)
}

fn pod(name: &str, devices: &[(&str, &[String])]) -> PodResources {
    let devices = devices.iter().map(|(resource, ids)| ContainerDevices { resource_name: (*resource).into(), device_ids: ids.to_vec() }).collect();
    PodResources { name: name.into(), namespace: "default".into(), containers: vec![ContainerResources { name: "main".into(), devices }] }
}

#[test]
fn a_container_gets_its_groups_directory_and_no_card() {
    let world = World::new(REPLICAS);
    let ledger = world.open();
    let response = allocate(&ledger, "nvidia.com/gpu", &[id(0, 1)]).unwrap();
    assert_eq!(response.envs["CUDA_MPS_PIPE_DIRECTORY"], PIPE_IN_CONTAINER);
    assert_eq!(response.envs["NVIDIA_VISIBLE_DEVICES"], "void");
    let paths: Vec<(&str, &str, bool)> = response.mounts.iter().map(|m| (m.host_path.as_str(), m.container_path.as_str(), m.read_only)).collect();
    assert_eq!(paths, [("/fake/groups/k8s-00000000", PIPE_IN_CONTAINER, true), ("/opt/cumux/lib", LIBRARY_IN_CONTAINER, true)]);
    let group = &world.daemon.groups()[0];
    assert_eq!(group.words(), " memory=GPU-00000000-0000-0000-0000-000000000000=20480M percentage=25 devices=GPU-00000000-0000-0000-0000-000000000000");
}

#[test]
fn several_replicas_add_up() {
    let world = World::new(REPLICAS);
    let ledger = world.open();
    allocate(&ledger, "nvidia.com/gpu", &[id(0, 0), id(0, 1), id(1, 0)]).unwrap();
    let group = &world.daemon.groups()[0];
    assert_eq!(group.memory.values().copied().collect::<Vec<_>>(), [40_960, 10_240]);
    assert_eq!((group.percentage, group.devices.len()), (Some(50), 2));
}

#[test]
fn more_than_one_replica_is_refused_in_nvidias_words() {
    let world = World::new("sharing:\n  mps:\n    resources: [{name: gpu, replicas: 4}]\n");
    let ledger = world.open();
    let text = allocate(&ledger, "nvidia.com/gpu", &[id(0, 0), id(0, 1)]).unwrap_err().to_string();
    assert!(text.starts_with("invalid request: maximum request size for shared resources is 1; found 2"), "{text}");
    assert_eq!(world.daemon.groups(), []);
}

#[test]
fn parts_that_are_given_out_again_end_the_group_before() {
    let world = World::new(REPLICAS);
    let ledger = world.open();
    for _ in 0..3 {
        // Also a call that kubelet repeats, because it has not heard the answer.
        allocate(&ledger, "nvidia.com/gpu", &[id(0, 0), id(0, 1)]).unwrap();
        assert_eq!(world.daemon.groups().len(), 1);
    }
    allocate(&ledger, "nvidia.com/gpu", &[id(0, 2)]).unwrap();
    allocate(&ledger, "nvidia.com/gpu", &[id(0, 1)]).unwrap();
    let held: Vec<usize> = ledger.held().iter().map(|(_, devices)| devices.len()).collect();
    assert_eq!((held, world.daemon.groups().len()), (vec![1, 1], 2));
}

#[test]
fn a_group_goes_when_its_container_is_missing_for_long_enough() {
    let world = World::new(REPLICAS);
    let ledger = world.open();
    allocate(&ledger, "nvidia.com/gpu", &[id(0, 0)]).unwrap();
    allocate(&ledger, "nvidia.com/gpu", &[id(0, 1)]).unwrap();
    let stays = [pod("stays", &[("nvidia.com/gpu", &[id(0, 0)])])];
    let begin = now();
    ledger.reconcile(Some(&stays), begin).unwrap();
    assert_eq!(world.daemon.groups().len(), 2, "within its grace period");
    // Listed again: the count begins anew.
    ledger.reconcile(Some(&[stays[0].clone(), pod("late", &[("nvidia.com/gpu", &[id(0, 1)])])]), begin + 50).unwrap();
    ledger.reconcile(Some(&stays), begin + 70).unwrap();
    ledger.reconcile(None, begin + 10_000).unwrap();
    assert_eq!(world.daemon.groups().len(), 2, "nobody knows of the pods");
    ledger.reconcile(Some(&stays), begin + 131).unwrap();
    assert_eq!(world.daemon.groups().iter().map(|group| group.name.as_str()).collect::<Vec<_>>(), ["k8s-00000000"]);
}

#[test]
fn a_plugin_that_is_started_again_knows_its_groups() {
    let world = World::new(REPLICAS);
    allocate(&world.open(), "nvidia.com/gpu", &[id(0, 0)]).unwrap();
    let before = world.daemon.groups();
    // The daemon has forgotten everything; a group of ours that nobody knows is there.
    world.daemon.forget();
    world.daemon.create(&Group { name: "k8s-00000007".into(), ..Group::default() }).unwrap();
    world.daemon.create(&Group { name: "k8s-00000008".into(), ..Group::default() }).unwrap();
    world.daemon.create(&Group { name: "of-somebody-else".into(), ..Group::default() }).unwrap();
    world.daemon.set_clients("k8s-00000008", 1);
    let ledger = world.open();
    ledger.reconcile(None, now()).unwrap();
    let names: Vec<String> = world.daemon.groups().into_iter().map(|group| group.name).collect();
    assert_eq!(names, ["k8s-00000000", "k8s-00000008", "of-somebody-else"]);
    assert_eq!(world.daemon.groups()[0], before[0]);
    let response = allocate(&ledger, "nvidia.com/gpu", &[id(0, 3)]).unwrap();
    assert_eq!(response.envs["CUMUX_GROUP"], "k8s-00000009", "a name that somebody has is not used again");
}

#[test]
fn a_daemon_that_is_down_costs_the_allocation_and_nothing_else() {
    let world = World::new(REPLICAS);
    let ledger = world.open();
    allocate(&ledger, "nvidia.com/gpu", &[id(0, 0)]).unwrap();
    world.daemon.set_down(true);
    let text = allocate(&ledger, "nvidia.com/gpu", &[id(0, 0)]).unwrap_err().to_string();
    assert!(text.contains("no cumux daemon answers"), "{text}");
    assert!(ledger.reconcile(Some(&[]), now()).is_err());
    world.daemon.set_down(false);
    drop(ledger);
    // What was to end ends when the daemon is back, also in the next process.
    world.open().reconcile(Some(&[]), now() + 1000).unwrap();
    assert_eq!(world.daemon.groups(), []);
}

#[test]
fn memory_and_percent_of_one_container_come_together() {
    let world = World::new(UNITS);
    let ledger = world.open();
    let (memory, percent): (Vec<String>, Vec<String>) = ((0..10).map(|part| id(1, part)).collect(), (0..30).map(|part| id(0, part)).collect());
    assert_eq!(allocate(&ledger, PERCENT, &percent).unwrap(), ContainerAllocateResponse::default());
    allocate(&ledger, MEMORY, &memory).unwrap();
    let pods = [pod("trainer", &[(MEMORY, &memory), (PERCENT, &percent)])];
    let of_percent = ledger.resource_named(PERCENT).unwrap();
    ledger.pre_start(of_percent, &percent, Some(&pods)).unwrap();
    let group = &world.daemon.groups()[0];
    assert_eq!((group.percentage, group.memory.values().copied().collect::<Vec<_>>()), (Some(30), vec![10_240]));
    assert_eq!(group.devices, ["GPU-00000001-0000-0000-0000-000000000000"], "percent apply where the memory lies");
    // A daemon that forgot is told both again.
    world.daemon.forget();
    ledger.reconcile(None, now()).unwrap();
    assert_eq!(world.daemon.groups()[0].percentage, Some(30));
}

#[test]
fn what_units_cannot_be_is_refused_with_the_reason() {
    let world = World::new(UNITS);
    let ledger = world.open();
    let refuse = |resource: &str, ids: &[String]| allocate(&ledger, resource, ids).unwrap_err().to_string();
    assert!(refuse(MEMORY, &[id(0, 0), id(1, 0)]).contains("one card"));
    assert!(refuse(MEMORY, &[]).contains("names no device"));
    assert!(refuse(MEMORY, &["GPU-x::1".into()]).contains("no device \"GPU-x::1\""));
    let percent: Vec<String> = (0..60).flat_map(|part| [id(0, part), id(1, part)]).collect();
    assert!(refuse(PERCENT, &percent).contains("at most 100"));
    let of_percent = ledger.resource_named(PERCENT).unwrap();
    let alone = [pod("alone", &[(PERCENT, &[id(0, 1)])])];
    let text = ledger.pre_start(of_percent, &[id(0, 1)], Some(&alone)).unwrap_err().to_string();
    assert!(text.contains("pod default/alone") && text.contains("without cumux.dev/gpu-memory"), "{text}");
    assert!(ledger.pre_start(of_percent, &[id(0, 2)], None).unwrap_err().to_string().contains("--pod-resources"));
    assert_eq!(world.daemon.groups(), []);
}
