//! The metrics of a status: a pure function, with every family described once in [`DEFINITIONS`].
//!
//! Labels are spelled as NVIDIA's DCGM exporter spells them (`gpu`, `UUID`, `modelName`, `pod`,
//! `namespace`, `container`, `pod_uid`, `hpc_job`), so that both can be joined. A client that uses
//! several cards has neither `gpu` nor `UUID` on its figures, which the service counts for all its
//! cards together; `cumux_client_device_info` says which cards it uses.

use crate::history::{ENDS, History};
use crate::pods::{Name, PodPlace};
use crate::text::{Definition, Family, Kind, Labels};
use crate::users::Users;
use cumux_wire::message::{ClientStatus, ServedDevice, ServerStatus};
use serde::Deserialize;

/// States of a server.
const STATES: [&str; 4] = ["INITIALIZING", "ACTIVE", "UNRESPONSIVE", "FAULT"];

/// A group, as `group list` tells of it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Clients that it has.
    pub clients: u32,
    /// Clients that it may have; 0 or nothing = no limit.
    #[serde(default)]
    pub most_clients: Option<u32>,
    /// What it uses and may use of each device.
    #[serde(default)]
    pub memory: Vec<GroupMemory>,
    /// Percentage of the multiprocessors on which all its clients run; nothing where each client
    /// has a share of its own.
    #[serde(default)]
    pub percentage: Option<f64>,
}

/// A group's memory on one device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct GroupMemory {
    /// The device's UUID.
    pub device: String,
    /// Bytes that the group may have; 0 or nothing = no limit.
    #[serde(default)]
    pub limit: Option<u64>,
    /// Bytes that it has.
    pub used: u64,
}

/// Everything that is exported.
#[derive(Debug)]
pub struct Snapshot<'a> {
    /// The servers; none if the daemon does not answer.
    pub servers: Option<&'a [ServerStatus]>,
    /// The groups.
    pub groups: &'a [Group],
    /// What was seen before.
    pub history: &'a History,
    /// Names of users.
    pub users: &'a Users,
    /// The last trial: whether it was served, and how long it took.
    pub trial: Option<(bool, f64)>,
    /// Seconds that the daemon took for its status.
    pub seconds: f64,
}

macro_rules! definitions {
    ($($constant:ident: $kind:ident $name:literal $unit:literal $help:literal;)*) => {
        $(static $constant: Definition = Definition { name: $name, kind: Kind::$kind, unit: $unit, help: $help };)*
        /// Every family that can be exported.
        pub static DEFINITIONS: &[&Definition] = &[$(&$constant),*];
    };
}

definitions! {
    BUILD: Info "cumux_build" "" "The version of the exporter.";
    DAEMON: Gauge "cumux_daemon_up" "" "1 if the daemon answers.";
    STATUS_SECONDS: Gauge "cumux_status_seconds" "seconds" "Time that the daemon took for its status.";
    TRIAL: Gauge "cumux_trial_success" "" "1 if the last trial context was served. Trials are made for /readyz.";
    TRIAL_SECONDS: Gauge "cumux_trial_seconds" "seconds" "Time of the last trial context, from the start of its process to its first result.";
    GPU: Info "cumux_gpu" "" "A card that a server serves.";
    GPU_MEMORY: Gauge "cumux_gpu_memory_bytes" "bytes" "Memory of the card.";
    GPU_SMS: Gauge "cumux_gpu_multiprocessors" "" "Multiprocessors of the card.";
    GPU_CLIENTS: Gauge "cumux_gpu_clients" "" "Clients that may use the card.";
    GPU_UP: Gauge "cumux_gpu_up" "" "1 if the card can be used.";
    SERVER_STATE: Gauge "cumux_server_state" "" "1 for the state in which the server is.";
    SERVER_CLIENTS: Gauge "cumux_server_clients" "" "Clients that are connected.";
    SERVER_EXECUTOR: Gauge "cumux_server_executor_up" "" "1 if there is an executor.";
    SERVER_STANDBY: Gauge "cumux_server_standby_ready" "" "1 if a standby is ready to take over.";
    SERVER_KEEPER: Gauge "cumux_server_keeper_up" "" "1 if there is a keeper.";
    SERVER_LEAVING: Gauge "cumux_server_leaving" "" "1 if the server ends when its clients have gone.";
    SERVER_TAKEOVERS: Counter "cumux_server_takeovers" "" "Times a standby took over since the server started.";
    FAULTS: Counter "cumux_faults" "" "Clients that got a sticky error since the exporter started.";
    ENDED: Counter "cumux_clients_ended" "" "Clients that have gone since the exporter started, by how they ended.";
    GROUP_CLIENTS: Gauge "cumux_group_clients" "" "Clients of the group.";
    GROUP_CLIENTS_LIMIT: Gauge "cumux_group_clients_limit" "" "Clients that the group may have; absent without a limit.";
    GROUP_MEMORY: Gauge "cumux_group_memory_bytes" "bytes" "Memory that the group's clients have on the card.";
    GROUP_MEMORY_LIMIT: Gauge "cumux_group_memory_limit_bytes" "bytes" "Memory that they may have on it; absent without a limit.";
    GROUP_SHARE: Gauge "cumux_group_active_thread_ratio" "ratio" "The share on which all its clients run; absent where each has its own.";
    CLIENT: Info "cumux_client" "" "A client with its program and the executor in which it is.";
    CLIENT_DEVICE: Info "cumux_client_device" "" "A card that a client may use; ordinal is its number in the program.";
    CLIENT_KERNELS: Counter "cumux_client_kernels" "" "Kernels that are done.";
    CLIENT_COALESCED: Counter "cumux_client_coalesced_kernels" "" "Kernels that went to the card together with others.";
    CLIENT_COPIES: Counter "cumux_client_copies" "" "Copies, sets and other stream work that is done.";
    CLIENT_GPU: Counter "cumux_client_gpu_seconds" "seconds" "Time its kernels had the card. Kernels side by side add up.";
    CLIENT_MEMORY: Gauge "cumux_client_memory_bytes" "bytes" "Device memory that is charged now.";
    CLIENT_MEMORY_PEAK: Gauge "cumux_client_memory_peak_bytes" "bytes" "Most device memory that was charged.";
    CLIENT_MEMORY_LIMIT: Gauge "cumux_client_memory_limit_bytes" "bytes" "Its limit on its first card; absent without one.";
    CLIENT_SHARE: Gauge "cumux_client_active_thread_ratio" "ratio" "Its share of the multiprocessors of its first card.";
    CLIENT_PRIORITY: Gauge "cumux_client_priority" "" "0 normal, 1 below normal.";
    CLIENT_QUEUED: Gauge "cumux_client_queued_operations" "" "Operations that are accepted and not done.";
    CLIENT_WAITS: Counter "cumux_client_waits" "" "Times one of its threads waited for the service. The client's own count.";
    CLIENT_WAIT: Counter "cumux_client_wait_seconds" "seconds" "Time its threads slept for that. The client's own count.";
    CLIENT_REQUESTS: Counter "cumux_client_requests" "" "Calls that the executor answered.";
    CLIENT_REQUEST: Counter "cumux_client_request_seconds" "seconds" "Time of those calls that were slow.";
    CLIENT_HELD: Counter "cumux_client_held" "" "Times it came to the bound on work in flight.";
    CLIENT_HELD_TIME: Counter "cumux_client_held_seconds" "seconds" "Time its work was held back at that bound.";
    CLIENT_STALLS: Counter "cumux_client_stalls" "" "Times its journal was full.";
    CLIENT_STALL: Counter "cumux_client_stall_seconds" "seconds" "Time its records waited for room in the journal.";
    CLIENT_QUIETS: Counter "cumux_client_quiets" "" "Times it waited for a quiet card to load a module.";
    CLIENT_QUIET: Counter "cumux_client_quiet_seconds" "seconds" "Time it waited for a quiet card.";
    CLIENT_TAKEOVERS: Counter "cumux_client_takeovers" "" "Times another executor took it over.";
    CLIENT_MOVES: Counter "cumux_client_moves" "" "Times it moved to another executor while the one before went on.";
    CLIENT_ERROR: Gauge "cumux_client_error" "" "CUresult of its sticky error; 0 while it is healthy.";
}

/// The families of a snapshot. `name` says where a process of a user runs and what that is called.
#[must_use]
pub fn of(snapshot: &Snapshot<'_>, mut name: impl FnMut(&ServerStatus, &ClientStatus) -> (PodPlace, Name)) -> Vec<Family> {
    let mut families = Families(DEFINITIONS.iter().map(|definition| Family { definition, samples: Vec::new() }).collect());
    families.add(&BUILD, vec![("version", env!("CARGO_PKG_VERSION").to_owned())], 1.0);
    families.add(&DAEMON, Vec::new(), truth(snapshot.servers.is_some()));
    families.add(&STATUS_SECONDS, Vec::new(), snapshot.seconds);
    if let Some((served, seconds)) = snapshot.trial {
        families.add(&TRIAL, Vec::new(), truth(served));
        families.add(&TRIAL_SECONDS, Vec::new(), seconds);
    }
    for (uid, counts) in snapshot.history.counts() {
        let labels = user(*uid, snapshot.users);
        families.add(&FAULTS, labels.clone(), float(counts.faults));
        for (end, count) in ENDS.iter().zip(counts.ended) {
            families.add(&ENDED, [labels.clone(), vec![("end", (*end).to_owned())]].concat(), float(count));
        }
    }
    for group in snapshot.groups {
        families.add_group(group, snapshot.servers.unwrap_or_default());
    }
    families.add_cards(snapshot.servers.unwrap_or_default());
    for server in snapshot.servers.unwrap_or_default() {
        families.add_server(server, snapshot.users);
        for client in &server.clients {
            let (place, named) = name(server, client);
            families.add_client(server, client, snapshot.users, &place, named);
        }
    }
    families.0
}

struct Families(Vec<Family>);

impl Families {
    fn add(&mut self, definition: &'static Definition, labels: Labels, value: f64) {
        if let Some(family) = self.0.iter_mut().find(|family| family.definition == definition) {
            family.samples.push((labels, value));
        }
    }

    /// Cards are shared by the servers of several users: each is there once.
    fn add_cards(&mut self, servers: &[ServerStatus]) {
        let mut cards: Vec<(Labels, &ServedDevice, u64, bool)> = Vec::new();
        for server in servers {
            for (place, card) in server.cards.iter().enumerate() {
                let labels = device(server, place);
                let clients = server.clients.iter().filter(|client| client.devices.iter().any(|device| *device as usize == place)).count() as u64;
                let is_up = card.unavailable.is_empty();
                match cards.iter_mut().find(|(known, ..)| *known == labels) {
                    // A card that one user's server has lost is lost to new programs of all.
                    Some((.., count, all_up)) => (*count, *all_up) = (*count + clients, *all_up && is_up),
                    None => cards.push((labels, card, clients, is_up)),
                }
            }
        }
        for (labels, card, clients, is_up) in cards {
            self.add(&GPU, [labels.clone(), vec![("modelName", card.name.clone()), ("device", card.id.clone())]].concat(), 1.0);
            self.add(&GPU_MEMORY, labels.clone(), float(card.memory));
            self.add(&GPU_SMS, labels.clone(), f64::from(card.multiprocessors));
            self.add(&GPU_CLIENTS, labels.clone(), float(clients));
            self.add(&GPU_UP, labels, truth(is_up));
        }
    }

    fn add_group(&mut self, group: &Group, servers: &[ServerStatus]) {
        let labels: Labels = vec![("group", group.name.clone())];
        self.add(&GROUP_CLIENTS, labels.clone(), f64::from(group.clients));
        if let Some(most) = group.most_clients.filter(|most| *most != 0) {
            self.add(&GROUP_CLIENTS_LIMIT, labels.clone(), f64::from(most));
        }
        if let Some(percentage) = group.percentage {
            self.add(&GROUP_SHARE, labels.clone(), percentage / 100.0);
        }
        for memory in &group.memory {
            let place = |server: &ServerStatus| server.cards.iter().position(|card| card.uuid == memory.device).map(|place| device(server, place));
            let card = servers.iter().find_map(place).unwrap_or_else(|| vec![("UUID", memory.device.clone())]);
            let labels = [labels.clone(), card].concat();
            self.add(&GROUP_MEMORY, labels.clone(), float(memory.used));
            if let Some(limit) = memory.limit.filter(|limit| *limit != 0) {
                self.add(&GROUP_MEMORY_LIMIT, labels, float(limit));
            }
        }
    }

    fn add_server(&mut self, server: &ServerStatus, users: &Users) {
        let labels = [vec![("server", server.pid.to_string())], user(server.uid, users)].concat();
        for state in STATES {
            self.add(&SERVER_STATE, [labels.clone(), vec![("state", state.to_owned())]].concat(), truth(server.state == state));
        }
        for (definition, value) in [
            (&SERVER_CLIENTS, server.clients.len() as f64),
            (&SERVER_EXECUTOR, truth(server.executor != 0)),
            (&SERVER_STANDBY, truth(server.standby != 0)),
            (&SERVER_KEEPER, truth(server.keeper != 0)),
            (&SERVER_LEAVING, truth(!server.leaving.is_empty())),
            (&SERVER_TAKEOVERS, f64::from(server.takeovers)),
        ] {
            self.add(definition, labels.clone(), value);
        }
    }

    fn add_client(&mut self, server: &ServerStatus, client: &ClientStatus, users: &Users, place: &PodPlace, name: Name) {
        let mut who = vec![("pid", client.pid.to_string()), ("client", client.session.to_string())];
        who.extend(user(server.uid, users));
        who.push(("group", client.group.clone()));
        who.extend([("pod", name.pod), ("namespace", name.namespace), ("container", name.container), ("pod_uid", place.pod_uid.clone())]);
        who.push(("hpc_job", place.job.clone()));
        for (ordinal, index) in client.devices.iter().enumerate() {
            let card = device(server, *index as usize);
            if !card.is_empty() {
                self.add(&CLIENT_DEVICE, [card, who.clone(), vec![("ordinal", ordinal.to_string())]].concat(), 1.0);
            }
        }
        let labels = match client.devices[..] {
            [only] => [device(server, only as usize), who].concat(),
            _ => who,
        };
        let executor = if client.executor == 0 { String::new() } else { client.executor.to_string() };
        let facts = vec![
            ("program", client.program.clone()),
            ("place", format!("{:?}", client.place).to_lowercase()),
            ("executor", executor),
            ("container_id", place.container_id.clone()),
        ];
        self.add(&CLIENT, [labels.clone(), facts].concat(), 1.0);
        for (definition, value) in [
            (&CLIENT_KERNELS, float(client.kernels)),
            (&CLIENT_COALESCED, float(client.coalesced)),
            (&CLIENT_COPIES, float(client.copies)),
            (&CLIENT_GPU, seconds(client.gpu_ns)),
            (&CLIENT_MEMORY, float(client.memory)),
            (&CLIENT_MEMORY_PEAK, float(client.memory_peak)),
            (&CLIENT_PRIORITY, f64::from(client.priority)),
            (&CLIENT_QUEUED, float(client.in_flight)),
            (&CLIENT_WAITS, float(client.waits)),
            (&CLIENT_WAIT, seconds(client.wait_ns)),
            (&CLIENT_REQUESTS, float(client.requests)),
            (&CLIENT_REQUEST, seconds(client.request_ns)),
            (&CLIENT_HELD, float(client.held)),
            (&CLIENT_HELD_TIME, seconds(client.held_ns)),
            (&CLIENT_STALLS, float(client.stalls)),
            (&CLIENT_STALL, seconds(client.stall_ns)),
            (&CLIENT_QUIETS, float(client.quiets)),
            (&CLIENT_QUIET, seconds(client.quiet_ns)),
            (&CLIENT_TAKEOVERS, f64::from(client.takeovers)),
            (&CLIENT_MOVES, f64::from(client.moves)),
            (&CLIENT_ERROR, f64::from(client.error)),
        ] {
            self.add(definition, labels.clone(), value);
        }
        if client.memory_limit != 0 {
            self.add(&CLIENT_MEMORY_LIMIT, labels.clone(), float(client.memory_limit));
        }
        let all = client.devices.first().and_then(|first| server.cards.get(*first as usize)).map_or(0, |card| card.multiprocessors);
        match client.multiprocessors {
            0 => self.add(&CLIENT_SHARE, labels, 1.0),
            some if all != 0 => self.add(&CLIENT_SHARE, labels, f64::from(some) / f64::from(all)),
            // The card is not open yet, so the whole is not known.
            _ => {}
        }
    }
}

/// A card's labels: the number and the UUID that DCGM gives it. Empty for a card that is not open.
fn device(server: &ServerStatus, place: usize) -> Labels {
    let Some(card) = server.cards.get(place) else { return Vec::new() };
    // A software GPU has no number of its own.
    let number = card.id.strip_prefix("cuda:").filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
    vec![("gpu", number.map_or_else(|| place.to_string(), str::to_owned)), ("UUID", card.uuid.clone())]
}

fn user(uid: u32, users: &Users) -> Labels {
    vec![("uid", uid.to_string()), ("user", users.name(uid))]
}

fn truth(holds: bool) -> f64 {
    if holds { 1.0 } else { 0.0 }
}

#[allow(clippy::cast_precision_loss)] // Prometheus has no other numbers.
fn float(count: u64) -> f64 {
    count as f64
}

fn seconds(ns: u64) -> f64 {
    float(ns) / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{Format, render};
    use std::collections::BTreeSet;

    fn card(id: &str) -> ServedDevice {
        ServedDevice { id: id.into(), name: "NVIDIA H200".into(), multiprocessors: 132, memory: 1 << 37, uuid: format!("GPU-{id}"), unavailable: String::new() }
    }

    fn server() -> ServerStatus {
        let client = ClientStatus {
            pid: 4242,
            session: 3,
            program: "./bench".into(),
            group: "g".into(),
            kernels: 12,
            gpu_ns: 1_500_000_000,
            multiprocessors: 33,
            memory_limit: 1 << 30,
            devices: vec![0],
            ..ClientStatus::default()
        };
        let both = ClientStatus { pid: 4243, session: 4, devices: vec![1, 0], ..ClientStatus::default() };
        ServerStatus {
            pid: 690,
            uid: 4_000_000_000,
            state: "FAULT".into(),
            executor: 5,
            cards: vec![card("cuda:2"), card("cuda:5")],
            clients: vec![client, both],
            takeovers: 2,
            ..ServerStatus::default()
        }
    }

    fn groups() -> Vec<Group> {
        let memory = |device: &str, limit| GroupMemory { device: device.into(), limit, used: 7 };
        let memory = vec![memory("GPU-cuda:5", Some(9)), memory("GPU-other", Some(0))];
        vec![Group { name: "pod".into(), clients: 2, most_clients: Some(8), memory, percentage: Some(25.0) }, Group { name: "free".into(), ..Group::default() }]
    }

    fn text(servers: Option<&[ServerStatus]>) -> String {
        let mut history = History::default();
        history.observe(servers.unwrap_or_default());
        let snapshot = Snapshot { servers, groups: &groups(), history: &history, users: &Users::default(), trial: Some((true, 0.25)), seconds: 0.001 };
        let name = |_: &ServerStatus, client: &ClientStatus| {
            let place = PodPlace { pod_uid: "u".into(), ..PodPlace::default() };
            if client.pid == 4242 { (place, Name { pod: "p".into(), namespace: "n".into(), container: "c".into() }) } else { Default::default() }
        };
        render(&of(&snapshot, name), Format::OpenMetrics)
    }

    #[test]
    fn labels_join_with_those_of_dcgm() {
        let text = text(Some(&[server()]));
        let who = "gpu=\"2\",UUID=\"GPU-cuda:2\",pid=\"4242\",client=\"3\",uid=\"4000000000\",user=\"4000000000\",group=\"g\",pod=\"p\",namespace=\"n\",container=\"c\",pod_uid=\"u\"";
        for line in [
            format!("cumux_client_gpu_seconds_total{{{who}}} 1.5\n"),
            format!("cumux_client_active_thread_ratio{{{who}}} 0.25\n"),
            format!("cumux_client_memory_limit_bytes{{{who}}} 1073741824\n"),
            "cumux_client_kernels_total{pid=\"4243\",client=\"4\",uid=\"4000000000\",user=\"4000000000\"} 0\n".to_owned(),
            "cumux_gpu_clients{gpu=\"2\",UUID=\"GPU-cuda:2\"} 2\ncumux_gpu_clients{gpu=\"5\",UUID=\"GPU-cuda:5\"} 1\n".to_owned(),
            "cumux_server_state{server=\"690\",uid=\"4000000000\",user=\"4000000000\",state=\"FAULT\"} 1\n".to_owned(),
            "cumux_daemon_up 1\n".to_owned(),
            "cumux_group_clients{group=\"pod\"} 2\ncumux_group_clients{group=\"free\"} 0\n".to_owned(),
            "cumux_group_memory_limit_bytes{group=\"pod\",gpu=\"5\",UUID=\"GPU-cuda:5\"} 9\n# ".to_owned(),
            "cumux_group_memory_bytes{group=\"pod\",UUID=\"GPU-other\"} 7\n".to_owned(),
            "cumux_group_active_thread_ratio{group=\"pod\"} 0.25\n".to_owned(),
            "cumux_trial_success 1\n".to_owned(),
            "cumux_faults_total{uid=\"4000000000\",user=\"4000000000\"} 0\n".to_owned(),
        ] {
            assert!(text.contains(&line), "{line} is missing in\n{text}");
        }
        assert!(text.contains("cumux_client_device_info{gpu=\"5\",UUID=\"GPU-cuda:5\",pid=\"4243\"") && text.contains("ordinal=\"0\"} 1\n"));
    }

    #[test]
    fn without_a_daemon_that_alone_is_said() {
        let text = text(None);
        assert!(text.contains("cumux_daemon_up 0\n") && !text.contains("cumux_server") && !text.contains("cumux_client"), "{text}");
    }

    /// The same card under two users, and the same labels never twice.
    #[test]
    fn no_series_is_there_twice() {
        let lost = ServedDevice { unavailable: "it has gone".into(), ..card("cuda:5") };
        let other = ServerStatus { pid: 691, uid: 1, cards: vec![card("cuda:2"), lost], ..server() };
        let text = text(Some(&[server(), other]));
        let series: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).map(|line| line.rsplit_once(' ').unwrap().0).collect();
        assert_eq!(series.iter().collect::<BTreeSet<_>>().len(), series.len(), "{text}");
        assert!(text.contains("cumux_gpu_clients{gpu=\"2\",UUID=\"GPU-cuda:2\"} 4\n"), "{text}");
        assert!(text.contains("cumux_gpu_up{gpu=\"2\",UUID=\"GPU-cuda:2\"} 1\ncumux_gpu_up{gpu=\"5\",UUID=\"GPU-cuda:5\"} 0\n"), "{text}");
    }

    #[test]
    fn names_and_units_are_as_prometheus_wants_them() {
        let mut names = BTreeSet::new();
        for Definition { name, kind, unit, help } in DEFINITIONS {
            assert!(names.insert(name) && name.starts_with("cumux_") && help.ends_with('.'), "{name}");
            assert!(!name.ends_with("_total") && !name.ends_with("_info"), "{name}");
            assert!(unit.is_empty() || name.ends_with(unit), "{name}");
            assert!(*kind != Kind::Info || unit.is_empty(), "{name}");
            for unit in ["seconds", "bytes", "ratio"] {
                assert!(!name.ends_with(unit) || !DEFINITIONS.iter().any(|d| d.name == *name && d.unit != unit), "{name} has no unit");
            }
        }
    }
}
