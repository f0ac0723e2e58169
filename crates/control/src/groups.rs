//! Groups: limits for several processes together, such as those of a pod or of a job.
//!
//! Pure. A group has a socket of its own, and whoever connects there belongs to it: a container
//! that sees no other socket cannot leave its group. A group that names a control group has all
//! processes below that, whatever socket they use, and no others. Invariants:
//!
//! - A process belongs to one group at most, and says nothing about it itself: the socket and the
//!   kernel do.
//! - All clients of a group are one user's: they share one server, where their limits are exact.
//! - A setting that cannot be read changes nothing.

use crate::settings::{MemoryLimit, PERCENTAGE_VARIABLE, Percentage, Settings, names};
use cumux_wire::message::{DeviceFacts, Grant, GroupGrant};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Longest name of a group.
const LONGEST_NAME: usize = 64;
/// Most groups of a daemon.
const MOST: usize = 4096;
/// How a group's settings are written.
pub(crate) const FORM: &str = "group create NAME, group set NAME, group rm NAME [force] or group list; settings of create and set: memory=2G or memory=0=2G,GPU-uuid=1G, \
     percentage=25, priority=1, clients=8, uid=1000, cgroup=/path below /sys/fs/cgroup, devices=0,GPU-uuid; none takes a setting back";

/// Why a command on groups is not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GroupError {
    #[error("\"{0}\" cannot be the name of a group: write at most {LONGEST_NAME} of the characters A-Z a-z 0-9 . _ -, the first a letter or digit")]
    Name(String),
    #[error("there is a group {0} already: change it with group set {0}, or remove it first (group rm {0})")]
    Exists(String),
    #[error("there is no group {0}: group list shows all")]
    Unknown(String),
    #[error("there are {MOST} groups already: remove some (group rm NAME)")]
    TooMany,
    #[error("\"{0}\" is no setting of a group: write {FORM}")]
    Setting(String),
    #[error("{0} is set twice: write each setting once")]
    Twice(String),
    #[error("{setting}={value}: {why}")]
    Value { setting: &'static str, value: String, why: &'static str },
}

/// By which ways a client has come.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Door {
    /// The group whose socket it used; none for the socket of all.
    pub group: Option<String>,
    /// The paths of its control groups, one for each hierarchy. Empty where they are not known.
    pub cgroups: Vec<String>,
}

/// One group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Group {
    /// Limits by device name; the name is empty for all devices.
    memory: Vec<(String, MemoryLimit)>,
    percentage: Option<Percentage>,
    priority: Option<u32>,
    clients: u32,
    /// The user whom an administrator has named.
    uid: Option<u32>,
    cgroup: Option<String>,
    /// Names of the devices that its clients see; empty for all.
    devices: Vec<String>,
    /// The user whose program came first, where none is named.
    first_user: Option<u32>,
}

impl Group {
    /// Reads one setting.
    fn set(&mut self, setting: &str) -> Result<(), GroupError> {
        let Some((name, value)) = setting.split_once('=') else { return Err(GroupError::Setting(setting.to_owned())) };
        // Nothing is no "none": a shell variable that is not set must not take a limit back.
        let none = value == "none";
        let wrong = |setting, why| Err(GroupError::Value { setting, value: value.to_owned(), why });
        match name {
            "memory" if none => self.memory.clear(),
            "memory" => match memory(value) {
                Some(limits) => self.memory = limits,
                None => return wrong("memory", "write an integer with G or M (memory=2G), or one for each device (memory=0=2G,GPU-uuid=512M)"),
            },
            "percentage" if none => self.percentage = None,
            "percentage" => match Percentage::parse(value) {
                Some(share) => self.percentage = Some(share),
                None => return wrong("percentage", "write a number above 0 and at most 100"),
            },
            "priority" if none => self.priority = None,
            "priority" => match value {
                "0" => self.priority = Some(0),
                "1" => self.priority = Some(1),
                _ => return wrong("priority", "write 0 (normal) or 1 (below normal)"),
            },
            "clients" if none => self.clients = 0,
            "clients" => match value.parse() {
                Ok(count) if count > 0 => self.clients = count,
                _ => return wrong("clients", "write how many clients it may have at the same time, at least 1"),
            },
            "uid" if none => (self.uid, self.first_user) = (None, None),
            "uid" => match value.parse() {
                Ok(uid) if uid != u32::MAX => self.uid = Some(uid),
                _ => return wrong("uid", "write the number of a user"),
            },
            "cgroup" if none => self.cgroup = None,
            "cgroup" => match cgroup(value) {
                Some(path) => self.cgroup = Some(path),
                None => return wrong("cgroup", "write the path of a control group below its mount, as in /proc/PID/cgroup, and not the root"),
            },
            "devices" if none || value == "all" => self.devices.clear(),
            "devices" => {
                let devices: Vec<String> = value.split(',').map(|name| name.trim().to_owned()).collect();
                if devices.iter().any(String::is_empty) {
                    return wrong("devices", "write ordinals or UUIDs with commas between them");
                }
                self.devices = devices;
            }
            _ => return Err(GroupError::Setting(setting.to_owned())),
        }
        Ok(())
    }

    /// Reads settings, each at most once.
    fn set_all(&mut self, settings: &[String]) -> Result<(), GroupError> {
        let name = |setting: &str| setting.split('=').next().unwrap_or_default().to_owned();
        for (place, setting) in settings.iter().enumerate() {
            if settings[..place].iter().any(|before| name(before) == name(setting)) {
                return Err(GroupError::Twice(name(setting)));
            }
            self.set(setting)?;
        }
        Ok(())
    }

    /// Its settings as they are written.
    #[must_use]
    pub fn settings(&self) -> Vec<String> {
        let memory: Vec<String> = self
            .memory
            .iter()
            .map(|(device, limit)| {
                let mib = limit.bytes() >> 20;
                if device.is_empty() { format!("{mib}M") } else { format!("{device}={mib}M") }
            })
            .collect();
        let setting = |name: &str, value: Option<String>| value.map(|value| format!("{name}={value}"));
        [
            setting("memory", Some(memory.join(",")).filter(|text| !text.is_empty())),
            setting("percentage", self.percentage.map(exact_percentage)),
            setting("priority", self.priority.map(|priority| priority.to_string())),
            setting("clients", Some(self.clients.to_string()).filter(|_| self.clients != 0)),
            setting("uid", self.uid.map(|uid| uid.to_string())),
            setting("cgroup", self.cgroup.clone()),
            setting("devices", Some(self.devices.join(",")).filter(|text| !text.is_empty())),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// The user whose programs it is for, as far as that is settled.
    #[must_use]
    pub fn user(&self) -> Option<u32> {
        self.uid.or(self.first_user)
    }

    /// The part of every device, if it has one.
    #[must_use]
    pub fn percentage(&self) -> Option<Percentage> {
        self.percentage
    }

    /// Most clients at the same time; 0 = no limit.
    #[must_use]
    pub fn clients(&self) -> u32 {
        self.clients
    }

    /// 1 below normal, 0 normal; none where each client has its own.
    #[must_use]
    pub fn priority(&self) -> Option<u32> {
        self.priority
    }

    /// Its control group.
    #[must_use]
    pub fn cgroup(&self) -> Option<&str> {
        self.cgroup.as_deref()
    }

    /// Bytes that it may have of a device, by the device's place; 0 = no limit.
    #[must_use]
    pub fn memory(&self, place: usize, facts: &DeviceFacts) -> u64 {
        let named = self.memory.iter().rev().find(|(name, _)| !name.is_empty() && names(name, place, facts));
        named.or_else(|| self.memory.iter().find(|(name, _)| name.is_empty())).map_or(0, |(_, limit)| limit.bytes())
    }

    /// The places of the devices that its clients see.
    #[must_use]
    pub fn places(&self, devices: &[DeviceFacts]) -> Vec<usize> {
        let seen = |place: &usize| self.devices.is_empty() || self.devices.iter().any(|name| names(name, *place, &devices[*place]));
        (0..devices.len()).filter(seen).collect()
    }

    /// What all its clients may use of these devices together.
    #[must_use]
    pub fn limits(&self, name: &str, devices: &[DeviceFacts]) -> GroupGrant {
        let memory = devices.iter().enumerate().map(|(place, facts)| self.memory(place, facts)).collect();
        GroupGrant { name: name.to_owned(), clients: self.clients, memory, share: self.percentage }
    }

    /// What a client of the group gets: the tighter of its own wishes, the server's settings and
    /// the group's.
    #[must_use]
    pub fn grant(&self, name: &str, settings: &Settings, environment: &[(String, String)], devices: &[DeviceFacts]) -> Grant {
        let own = settings.for_client_among(environment, devices, &self.places(devices));
        Grant {
            share: self.percentage.unwrap_or(own.share),
            priority: self.priority.unwrap_or(0).max(own.priority),
            group: Some(self.limits(name, devices)),
            ..own
        }
    }

    /// What of a client's wishes is passed over because the group says it.
    #[must_use]
    pub fn complaint(&self, name: &str, environment: &[(String, String)]) -> Option<String> {
        let share = self.percentage?;
        let (_, asked) = environment.iter().find(|(variable, _)| variable == PERCENTAGE_VARIABLE)?;
        Some(format!("{PERCENTAGE_VARIABLE}={asked} is passed over: all programs of group {name} run on the same {} % of the multiprocessors", share.text()))
    }
}

/// A group as it is written down for the next daemon.
#[derive(Debug, Serialize, Deserialize)]
struct Written {
    name: String,
    settings: Vec<String>,
    #[serde(default)]
    first_user: Option<u32>,
}

/// All groups of a daemon.
#[derive(Debug, Default)]
pub struct Groups {
    all: BTreeMap<String, Group>,
    /// A first client has settled whose a group is, and nobody has asked since.
    is_settled_anew: bool,
}

impl Groups {
    /// The groups that an earlier daemon has written down. What cannot be read is left out, with a
    /// sentence for each.
    #[must_use]
    pub(crate) fn read(bytes: &[u8]) -> (Self, Vec<String>) {
        let mut groups = Self::default();
        let written: Vec<Written> = match serde_json::from_slice(bytes) {
            Ok(written) => written,
            Err(error) => return (groups, vec![format!("The groups of an earlier control daemon cannot be read: {error}")]),
        };
        let mut lost = Vec::new();
        for Written { name, settings, first_user } in written {
            match groups.create(&name, &settings) {
                Ok(()) => {
                    if let Some(group) = groups.all.get_mut(&name) {
                        group.first_user = first_user;
                    }
                }
                Err(error) => lost.push(format!("A group of an earlier control daemon is left out: {error}")),
            }
        }
        (groups, lost)
    }

    /// The groups for the next daemon.
    #[must_use]
    pub(crate) fn written(&self) -> Vec<u8> {
        let all: Vec<Written> =
            self.all.iter().map(|(name, group)| Written { name: name.clone(), settings: group.settings(), first_user: group.first_user }).collect();
        // Plain data always has a JSON form.
        serde_json::to_vec(&all).unwrap_or_default()
    }

    /// Makes a group with these settings.
    ///
    /// # Errors
    /// [`GroupError`]; then there is no such group.
    pub(crate) fn create(&mut self, name: &str, settings: &[String]) -> Result<(), GroupError> {
        let letters = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let good = name.len() <= LONGEST_NAME && name.bytes().all(letters) && name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        if !good {
            return Err(GroupError::Name(cumux_link::escape_foreign(name, LONGEST_NAME)));
        }
        if self.all.contains_key(name) {
            return Err(GroupError::Exists(name.to_owned()));
        }
        if self.all.len() >= MOST {
            return Err(GroupError::TooMany);
        }
        let mut group = Group::default();
        group.set_all(settings)?;
        self.all.insert(name.to_owned(), group);
        Ok(())
    }

    /// Changes settings of a group, all of them or none.
    ///
    /// # Errors
    /// [`GroupError`]; then the group is as it was.
    pub(crate) fn set(&mut self, name: &str, settings: &[String]) -> Result<(), GroupError> {
        let group = self.all.get_mut(name).ok_or_else(|| GroupError::Unknown(name.to_owned()))?;
        let mut changed = group.clone();
        changed.set_all(settings)?;
        *group = changed;
        Ok(())
    }

    /// Removes a group; false if there is none.
    pub(crate) fn remove(&mut self, name: &str) -> bool {
        self.all.remove(name).is_some()
    }

    /// The group of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Group> {
        self.all.get(name)
    }

    /// All groups by name.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Group)> {
        self.all.iter()
    }

    /// Whether it matters in which control group a process is.
    #[must_use]
    pub fn ask_for_cgroups(&self) -> bool {
        self.all.values().any(|group| group.cgroup.is_some())
    }

    /// Whether a first client has settled whose a group is since this was last asked: then the
    /// groups are to be written down.
    pub(crate) fn take_settled(&mut self) -> bool {
        std::mem::take(&mut self.is_settled_anew)
    }

    /// The group of a client of this user that came by this door. Its first client settles whose
    /// it is.
    ///
    /// # Errors
    /// A sentence: the client may not use the socket by which it came, or not its group.
    pub fn group_of(&mut self, door: &Door, pid: u32, uid: u32) -> Result<Option<String>, String> {
        // The control group that is nearest to the process.
        let nearest = self.all.iter().filter(|(_, group)| group.cgroup.as_ref().is_some_and(|path| holds(path, &door.cgroups)));
        let bound = nearest.max_by_key(|(_, group)| group.cgroup.as_ref().map_or(0, String::len)).map(|(name, _)| name.clone());
        let named = match (&bound, &door.group) {
            (Some(bound), Some(socket)) if bound != socket => {
                return Err(format!(
                    "process {pid} came by the socket of group {socket}, and its control group belongs to group {bound}: set CUDA_MPS_PIPE_DIRECTORY to the directory of {bound}"
                ));
            }
            (Some(bound), _) => bound.clone(),
            (None, Some(socket)) => socket.clone(),
            (None, None) => return Ok(None),
        };
        let Some(group) = self.all.get_mut(&named) else { return Err(format!("group {named} was removed: nobody is served by its socket any more")) };
        if let Some(path) = group.cgroup.as_ref().filter(|_| bound.is_none()) {
            return Err(format!("process {pid} came by the socket of group {named}, which is only for processes of the control group {path}"));
        }
        let user = group.user().unwrap_or(uid);
        if user != uid {
            return Err(format!(
                "process {pid} is user {uid}'s, and group {named} is user {user}'s: a group serves one user (cumux group set {named} uid={uid} gives it to another)"
            ));
        }
        self.is_settled_anew |= group.first_user != Some(uid);
        group.first_user = Some(uid);
        Ok(Some(named))
    }
}

/// `2G`, or `0=2G,GPU-…=512M`, or both.
fn memory(value: &str) -> Option<Vec<(String, MemoryLimit)>> {
    let limit = |piece: &str| {
        let (device, limit) = piece.split_once('=').unwrap_or(("", piece));
        Some((device.trim().to_owned(), MemoryLimit::parse(limit)?))
    };
    value.split(',').map(limit).collect()
}

/// Names of devices in settings. What cannot be read has none.
#[must_use]
pub(crate) fn devices_named(settings: &[String]) -> Vec<String> {
    let mut read = Group::default();
    settings.iter().for_each(|setting| drop(read.set(setting)));
    read.memory.into_iter().map(|(name, _)| name).filter(|name| !name.is_empty()).chain(read.devices).collect()
}

/// A percentage that is read again as the same.
fn exact_percentage(share: Percentage) -> String {
    (f64::from(u32::from(share)) / 1e6).to_string()
}

/// The path of a control group: absolute, without the mount, and not the root.
fn cgroup(value: &str) -> Option<String> {
    let mounted = value.strip_prefix("/sys/fs/cgroup").filter(|rest| rest.is_empty() || rest.starts_with('/'));
    let path = mounted.unwrap_or(value).trim_end_matches('/');
    let good = path.len() > 1 && path.starts_with('/') && !path.split('/').skip(1).any(|part| part.is_empty() || part == "." || part == "..");
    good.then(|| path.to_owned())
}

/// Whether one of these paths is this control group or lies below it.
fn holds(group: &str, paths: &[String]) -> bool {
    paths.iter().any(|path| path.strip_prefix(group).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

/// The control groups in the text of `/proc/PID/cgroup`.
#[must_use]
pub fn read_cgroups(text: &str) -> Vec<String> {
    let path = |line: &str| line.splitn(3, ':').nth(2).filter(|path| path.starts_with('/')).map(str::to_owned);
    text.lines().filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partitions::tests::card;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn group(text: &str) -> Result<Group, GroupError> {
        let mut groups = Groups::default();
        groups.create("g", &words(text))?;
        Ok(groups.get("g").unwrap().clone())
    }

    #[test]
    fn settings_are_read_exactly_or_refused_with_the_reason() {
        let text = "memory=2G,GPU-18=512M percentage=33.3 priority=1 clients=8 uid=1000 cgroup=/sys/fs/cgroup/kubepods/pod1/ devices=0,GPU-18";
        let full = group(text).unwrap();
        let expected = "memory=2048M,GPU-18=512M percentage=33.3 priority=1 clients=8 uid=1000 cgroup=/kubepods/pod1 devices=0,GPU-18";
        assert_eq!(full.settings(), words(expected));
        assert_eq!(group(expected).unwrap(), full, "as it is written it is read");
        let wrong = [
            "memory=2",
            "memory=2G,x",
            "memory=0=",
            "memory=",
            "percentage=",
            "priority=",
            "clients=",
            "uid=",
            "cgroup=",
            "devices=",
            "memory=2G memory=3G",
            "percentage=0",
            "percentage=101",
            "percentage=nan",
            "priority=2",
            "clients=0",
            "clients=-1",
            "uid=root",
            "uid=4294967295",
            "cgroup=/",
            "cgroup=a/b",
            "cgroup=/a/../b",
            "cgroup=/sys/fs/cgroup",
            "devices=0,,1",
            "colour=red",
            "memory",
            "=3",
        ];
        for text in wrong {
            let error = group(text).unwrap_err().to_string();
            assert!(error.contains(text.split('=').next().unwrap_or_default()) && error.contains("write"), "{text}: {error}");
        }
        assert_eq!(devices_named(&words("memory=2G,GPU-18=512M devices=0,GPU-28 percentage=5 x=GPU-9")), ["GPU-18", "0", "GPU-28"]);
        assert!(devices_named(&words("memory=2G devices=all")).is_empty());
        for name in ["", "a b", "..", ".x", "-x", "a/b", "é", &"x".repeat(65)] {
            assert!(matches!(Groups::default().create(name, &[]), Err(GroupError::Name(_))), "{name:?}");
        }
    }

    #[test]
    fn changes_are_whole_or_none_and_the_next_daemon_has_them() {
        let mut groups = Groups::default();
        groups.create("a", &words("memory=1G uid=5")).unwrap();
        groups.create("b.c-1", &[]).unwrap();
        assert_eq!(groups.create("a", &[]), Err(GroupError::Exists("a".into())));
        assert!(groups.set("a", &words("memory=4G clients=x")).is_err());
        assert_eq!(groups.get("a").unwrap().settings(), words("memory=1024M uid=5"));
        groups.set("a", &words("memory=none clients=3")).unwrap();
        let door = Door { group: Some("b.c-1".into()), cgroups: Vec::new() };
        assert_eq!((groups.group_of(&door, 1, 77), groups.take_settled()), (Ok(Some("b.c-1".into())), true));
        assert_eq!((groups.group_of(&door, 2, 77), groups.take_settled()), (Ok(Some("b.c-1".into())), false));
        let (next, lost) = Groups::read(&groups.written());
        assert!(lost.is_empty() && next.all == groups.all, "{lost:?}");
        assert_eq!(next.get("b.c-1").unwrap().user(), Some(77));
        assert!(groups.remove("a") && !groups.remove("a"));
        assert_eq!(groups.set("a", &[]), Err(GroupError::Unknown("a".into())));
        let (some, lost) = Groups::read(br#"[{"name":"x","settings":["memory=1G"]},{"name":"../y","settings":[]},{"name":"z","settings":["q=1"]}]"#);
        assert_eq!((some.iter().count(), lost.len()), (1, 2));
        assert_eq!(Groups::read(b"{").1.len(), 1);
    }

    #[test]
    fn the_socket_and_the_kernel_say_whose_a_client_is() {
        let mut groups = Groups::default();
        for (name, settings) in [("pod", "uid=5"), ("job", "cgroup=/slurm/job_1"), ("step", "cgroup=/slurm/job_1/step_0"), ("free", "")] {
            groups.create(name, &words(settings)).unwrap();
        }
        let mut of = |socket: Option<&str>, cgroup: &str, uid| {
            let door = Door { group: socket.map(str::to_owned), cgroups: read_cgroups(&format!("12:pids:/other\n0::{cgroup}\n")) };
            groups.group_of(&door, 9, uid).map(|found| found.unwrap_or_default())
        };
        assert_eq!(of(None, "/user", 5), Ok(String::new()));
        assert_eq!(of(Some("pod"), "/user", 5), Ok("pod".into()));
        assert!(of(Some("pod"), "/user", 6).unwrap_err().contains("user 5's"));
        assert_eq!(of(None, "/slurm/job_1/task", 5), Ok("job".into()), "by the socket of all");
        assert_eq!(of(None, "/slurm/job_1/step_0/x", 5), Ok("step".into()), "the nearest");
        assert_eq!(of(None, "/slurm/job_10", 5), Ok(String::new()), "another job");
        assert_eq!(of(Some("job"), "/slurm/job_1", 5), Ok("job".into()));
        assert!(of(Some("job"), "/slurm/job_2", 5).unwrap_err().contains("only for processes"));
        assert!(of(Some("pod"), "/slurm/job_1", 5).unwrap_err().contains("directory of job"), "nobody leaves its group by another's socket");
        assert_eq!(of(Some("free"), "/user", 7), Ok("free".into()));
        assert!(of(Some("free"), "/user", 8).unwrap_err().contains("user 7's"), "whose program came first");
        assert!(of(Some("gone"), "/user", 8).unwrap_err().contains("removed"));
    }

    #[test]
    fn a_client_gets_what_its_group_may_have() {
        let cards = [card(0x18, 132, 9), card(0x28, 132, 9)];
        let settings = Settings { percentage: Percentage::parse("50").unwrap(), ..Settings::default() };
        let environment =
            |text: &str| text.split_whitespace().filter_map(|pair| pair.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect::<Vec<_>>();
        let pod = group("memory=2G,GPU-28=1G percentage=25 priority=1 devices=GPU-28").unwrap();
        let grant = pod.grant("g", &settings, &environment("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=10 CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=512M"), &cards);
        assert_eq!((grant.share.text(), grant.priority, grant.devices), ("25.0".into(), 1, vec![(1, 512 << 20)]), "it counts its own devices");
        assert_eq!(grant.group, Some(GroupGrant { name: "g".into(), clients: 0, memory: vec![2 << 30, 1 << 30], share: Percentage::parse("25") }));
        assert!(pod.complaint("g", &environment("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=10")).unwrap().contains("25.0 %"));
        let loose = group("").unwrap();
        let grant = loose.grant("g", &settings, &environment("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=10 CUDA_VISIBLE_DEVICES=1"), &cards);
        assert_eq!((grant.share.text(), grant.devices, grant.group.unwrap().share), ("10.0".into(), vec![(1, 0)], None));
        assert_eq!(loose.complaint("g", &environment("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=10")), None);
    }
}
