//! The commands on groups. Each is answered with one JSON line, as our front end reads it.

use crate::daemon::Daemon;
use crate::duty::{Duty, Reach};
use crate::groups::{FORM, Group, GroupError, devices_named};
use crate::server::Server;
use crate::settings::{names, uuid_text};
use cumux_wire::message::{FromServer, GroupStatus, ServerStatus, ToServer};
use serde_json::{Value, json};
use std::sync::Arc;

/// What is to be done with groups.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the words of the commands")]
pub enum GroupCommand {
    /// `group create NAME …`.
    Create { name: String, settings: Vec<String> },
    /// `group set NAME …`.
    Set { name: String, settings: Vec<String> },
    /// `group rm NAME [force]`; `force`: its clients are terminated.
    Remove { name: String, force: bool },
    /// `group list`.
    List,
    /// Anything else.
    Usage,
}

impl GroupCommand {
    /// Reads the words after `group`.
    #[must_use]
    pub fn parse(words: &[&str]) -> Self {
        let settings = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        match words {
            ["create", name, rest @ ..] => Self::Create { name: (*name).to_owned(), settings: settings(rest) },
            ["set", name, rest @ ..] if !rest.is_empty() => Self::Set { name: (*name).to_owned(), settings: settings(rest) },
            ["rm", name] => Self::Remove { name: (*name).to_owned(), force: false },
            ["rm", name, "force"] => Self::Remove { name: (*name).to_owned(), force: true },
            ["list"] => Self::List,
            _ => Self::Usage,
        }
    }
}

/// One JSON line, with `error` if the command was not carried out.
pub(crate) fn answer(daemon: &Arc<Daemon>, command: GroupCommand) -> String {
    let done = match command {
        GroupCommand::Create { name, settings } => create(daemon, &name, &settings),
        GroupCommand::Set { name, settings } => set(daemon, &name, &settings),
        GroupCommand::Remove { name, force } => remove(daemon, &name, force),
        GroupCommand::List => Ok(list(daemon)),
        GroupCommand::Usage => Err(format!("it is written: {FORM}")),
    };
    let value = done.unwrap_or_else(|error| json!({ "error": error }));
    format!("{value}\n")
}

/// `{"directory": …}`: what programs of the group have as their CUDA_MPS_PIPE_DIRECTORY.
fn create(daemon: &Daemon, name: &str, settings: &[String]) -> Result<Value, String> {
    refuse_percentage(daemon, settings)?;
    refuse_unknown_devices(daemon, settings)?;
    let mut core = daemon.core();
    let core = &mut *core;
    core.registry.groups.create(name, settings).map_err(|error| error.to_string())?;
    let opened = core.doors.open(name, &daemon.watch.set).and_then(|()| {
        core.doors.write(&core.registry.groups).map_err(|error| format!("the group cannot be written down for the next control daemon: {error}"))
    });
    if let Err(why) = opened {
        core.registry.groups.remove(name);
        core.doors.close(name, &daemon.watch.set);
        return Err(why);
    }
    Ok(json!({ "directory": core.doors.folder(name) }))
}

/// `{}`, or `{"note": …}` where clients that run keep something of what they had.
fn set(daemon: &Daemon, name: &str, settings: &[String]) -> Result<Value, String> {
    refuse_percentage(daemon, settings)?;
    refuse_unknown_devices(daemon, settings)?;
    // A server that goes on where another has ended hears of the change before this is answered.
    if let Some(user) = daemon.registry(|registry| registry.groups.get(name).and_then(Group::user)) {
        daemon.wait_started(user);
    }
    let servers: Vec<_> = {
        let mut core = daemon.core();
        let core = &mut *core;
        core.registry.groups.set(name, settings).map_err(|error| error.to_string())?;
        core.doors
            .write(&core.registry.groups)
            .map_err(|error| format!("the change holds, and cannot be written down for the next control daemon: {error}"))?;
        let Some(group) = core.registry.groups.get(name) else { return Err(GroupError::Unknown(name.to_owned()).to_string()) };
        let limits = |server: &Server| core.registry.group_limits(name, group, server.reach, &server.devices);
        core.registry.servers().iter().filter(|server| server.is_ready()).map(|server| (server.pid, limits(server))).collect()
    };
    let mut notes = Vec::new();
    for (server, limits) in servers {
        match daemon.ask(server, |request| ToServer::SetGroup { request, group: limits }) {
            Some(FromServer::Regrouped { error, .. }) if error.is_empty() => {}
            Some(FromServer::Regrouped { error, .. }) => notes.push(error),
            _ => notes.push(format!("server {server} does not answer: its clients may still have the limits before")),
        }
    }
    Ok(if notes.is_empty() { json!({}) } else { json!({ "note": notes.join("; ") }) })
}

fn remove(daemon: &Daemon, name: &str, force: bool) -> Result<Value, String> {
    if daemon.registry(|registry| registry.groups.get(name).is_none()) {
        return Err(GroupError::Unknown(name.to_owned()).to_string());
    }
    let clients = clients_of(daemon, name);
    if !clients.is_empty() && !force {
        let some = if clients.len() == 1 { "1 client: end it".to_owned() } else { format!("{} clients: end them", clients.len()) };
        return Err(format!("group {name} has {some} first, or terminate what is under way (cumux group rm {name} --force)"));
    }
    {
        // First the door, so that nobody comes after those that are ended.
        let mut core = daemon.core();
        let core = &mut *core;
        core.registry.groups.remove(name);
        core.doors.close(name, &daemon.watch.set);
        core.doors.write(&core.registry.groups).map_err(|error| format!("the group is removed, and the next control daemon may know it still: {error}"))?;
    }
    for (server, pid) in clients_of(daemon, name) {
        daemon.ask(server, |request| ToServer::Terminate { request, pid });
    }
    Ok(json!({ "terminated": clients.len() }))
}

/// The clients of a group: server and process.
fn clients_of(daemon: &Daemon, name: &str) -> Vec<(u32, u32)> {
    let statuses = statuses(daemon);
    let user = daemon.registry(|registry| registry.groups.get(name).and_then(Group::user));
    let of = |status: &ServerStatus| status.clients.iter().filter(|client| client.group == name).map(|client| (status.pid, client.pid)).collect::<Vec<_>>();
    statuses.iter().filter(|status| user.is_none_or(|user| user == status.uid)).flat_map(of).collect()
}

fn statuses(daemon: &Daemon) -> Vec<ServerStatus> {
    let servers: Vec<u32> = daemon.registry(|registry| registry.servers().iter().map(|server| server.pid).collect());
    servers.into_iter().filter_map(|pid| daemon.status(pid)).collect()
}

/// `{"groups": […]}`, each with its limits and with what it uses.
fn list(daemon: &Daemon) -> Value {
    let used: Vec<(Duty, GroupStatus)> = statuses(daemon)
        .into_iter()
        .flat_map(|status| {
            let duty = Duty { uid: status.uid, reach: daemon.reach_of(status.pid) };
            status.groups.into_iter().map(move |group| (duty, group))
        })
        .collect();
    let devices = daemon.devices();
    let core = daemon.core();
    let groups: Vec<Value> = core
        .registry
        .groups
        .iter()
        .map(|(name, group)| {
            // Nobody's server speaks for another user's group.
            let now: Vec<(Reach, &GroupStatus)> = used
                .iter()
                .filter(|(duty, status)| status.name == *name && group.user() == Some(duty.uid))
                .map(|(duty, status)| (duty.reach, status))
                .collect();
            let used_of = |reach: Reach, status: &GroupStatus, place: usize| -> u64 {
                let here = |own: u32| usize::try_from(reach.place_of(own)) == Ok(place);
                (0..).zip(&status.used).filter(|(own, _)| here(*own)).map(|(_, bytes)| bytes).sum()
            };
            let bytes = |place: usize| now.iter().map(|(reach, status)| used_of(*reach, status, place)).sum::<u64>();
            let memory: Vec<Value> = devices
                .iter()
                .enumerate()
                .map(|(place, facts)| json!({ "device": uuid_text(facts.uuid), "limit": group.memory(place, facts), "used": bytes(place) }))
                .collect();
            let places = group.places(&devices);
            let seen: Vec<String> = places.iter().filter_map(|place| devices.get(*place)).map(|facts| uuid_text(facts.uuid)).collect();
            json!({
                "name": name,
                "directory": core.doors.folder(name),
                "settings": group.settings(),
                "clients": now.iter().map(|(_, status)| status.clients).sum::<u32>(),
                "most_clients": group.clients(),
                "memory": memory,
                "percentage": group.percentage().map(|share| f64::from(u32::from(share)) / 1e6),
                "priority": group.priority(),
                "uid": group.user(),
                "cgroup": group.cgroup(),
                "devices": seen,
            })
        })
        .collect();
    json!({ "groups": groups })
}

/// A limit of a device that is not there would hold nowhere, and nobody would notice.
fn refuse_unknown_devices(daemon: &Daemon, settings: &[String]) -> Result<(), String> {
    let named = devices_named(settings);
    if named.is_empty() {
        return Ok(());
    }
    // Where the driver does not name its devices, that is the first program's error.
    let Ok(devices) = daemon.known_devices() else { return Ok(()) };
    let is_there = |name: &String| devices.iter().enumerate().any(|(ordinal, facts)| names(name, ordinal, facts));
    match named.iter().find(|name| !is_there(name)) {
        None => Ok(()),
        Some(unknown) => {
            let all: Vec<String> = devices.iter().enumerate().map(|(ordinal, facts)| format!("{ordinal} ({})", uuid_text(facts.uuid))).collect();
            Err(format!("there is no device {}: this daemon has {}", cumux_link::escape_foreign(unknown, 64), all.join(", ")))
        }
    }
}

fn refuse_percentage(daemon: &Daemon, settings: &[String]) -> Result<(), String> {
    let asks = settings.iter().any(|setting| setting.starts_with("percentage="));
    if asks && daemon.options.static_partitions {
        return Err(
            "a group has no percentage where the control daemon runs with static SM partitioning (-S): set CUDA_MPS_SM_PARTITION for its programs".into()
        );
    }
    Ok(())
}
