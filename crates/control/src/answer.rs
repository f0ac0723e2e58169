//! The answer to each text command. Commands of driver 580 are answered letter for letter as
//! recorded.

use crate::command::Command;
use crate::daemon::Daemon;
use crate::group_commands;
use crate::partitions::{Board, PartitionError};
use crate::registry::{Event, Server};
use crate::report::{self, PsLine};
use crate::settings::{Isolation, MemoryLimit, Percentage, names};
use crate::upgrade;
use cumux_link::waits::Waits;
use cumux_wire::message::{FromServer, ServerStatus, ToServer};
use std::sync::Arc;
use std::time::Duration;

/// Text for standard output, and the exit status of the front end (0 for all commands but `quit`).
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) status: u8,
}

impl From<String> for Answer {
    fn from(text: String) -> Self {
        Self { text, status: 0 }
    }
}

/// Carries out one command. `privileged`: whether the visitor may change things.
pub(crate) fn answer(daemon: &Arc<Daemon>, command: Command, privileged: bool) -> Answer {
    if command.changes() && !privileged {
        let owner = rustix::process::geteuid().as_raw();
        return format!("Permission denied: only root and user {owner}, who runs the control daemon, may change anything\n").into();
    }
    if let Command::Quit { timeout_s } = command {
        daemon.feed(Event::Quit { timeout: timeout_s.map(Duration::from_secs) });
        let clean = daemon.wait_finished();
        return Answer { text: String::new(), status: u8::from(!clean) };
    }
    text(daemon, command).into()
}

fn text(daemon: &Arc<Daemon>, command: Command) -> String {
    match command {
        Command::Nothing | Command::Quit { .. } => String::new(),
        Command::GetServerList => servers(daemon).iter().map(|pid| format!("{pid}\n")).collect(),
        Command::GetServerStatus { server } => daemon.status(server).map_or_else(|| not_found(server), |status| format!("{}\n", status.state)),
        Command::StartServer { uid: None, .. } => "A user id (UID) is required to start a new server\n".into(),
        Command::StartServer { uid: Some(uid), mlopart } => start_server(daemon, uid, mlopart),
        Command::ShutdownServer { server, force } => with_server(daemon, server, |_| ()).map_or_else(
            || not_found(server),
            |()| {
                daemon.feed(Event::Shutdown { pid: server, force });
                String::new()
            },
        ),
        Command::GetClientList { server } => {
            daemon.status(server).map_or_else(|| not_found(server), |status| status.clients.iter().map(|client| format!("{}\n", client.pid)).collect())
        }
        Command::GetDeviceClientList { server } => device_clients(daemon, server),
        Command::Ps { server } => ps(daemon, server),
        Command::SetDefaultPercentage { value } => {
            unreadable(
                daemon,
                Percentage::parse(&value).is_none(),
                &format!("set_default_active_thread_percentage {value}"),
                "a number above 0 and at most 100",
            );
            daemon.registry(|registry| set_percentage(&mut registry.defaults.percentage, &value))
        }
        Command::GetDefaultPercentage => daemon.registry(|registry| format!("{}\n", registry.defaults.percentage.text())),
        Command::SetPercentage { server, value } => {
            unreadable(
                daemon,
                Percentage::parse(&value).is_none(),
                &format!("set_active_thread_percentage {server} {value}"),
                "a number above 0 and at most 100",
            );
            with_server(daemon, server, |s| set_percentage(&mut s.settings.percentage, &value)).unwrap_or_else(|| not_found(server))
        }
        Command::GetPercentage { server } => {
            with_server(daemon, server, |s| format!("{}\n", s.settings.percentage.text())).unwrap_or_else(|| not_found(server))
        }
        Command::SetDefaultMemoryLimit { device, value } => {
            // Any name is accepted, as documented: which device it means is decided when a server
            // starts.
            let set = daemon.registry(|registry| registry.defaults.memory.set(&device, &value));
            unreadable(daemon, !set, &format!("set_default_device_pinned_mem_limit {device} {value}"), LIMIT_FORM);
            unknown_device(daemon, set, &device, &format!("set_default_device_pinned_mem_limit {device} {value}"));
            String::new()
        }
        Command::GetDefaultMemoryLimit { device } => daemon.registry(|registry| limit_line(registry.defaults.memory.get(&device))),
        Command::SetMemoryLimit { server, device, value } => match with_server(daemon, server, |s| s.settings.memory.set(&device, &value)) {
            Some(set) => {
                unreadable(daemon, !set, &format!("set_device_pinned_mem_limit {server} {device} {value}"), LIMIT_FORM);
                unknown_device(daemon, set, &device, &format!("set_device_pinned_mem_limit {server} {device} {value}"));
                String::new()
            }
            None => not_found(server),
        },
        Command::GetMemoryLimit { server, device } => with_server(daemon, server, |s| {
            let found = s.devices.iter().enumerate().find(|(ordinal, facts)| names(&device, *ordinal, facts));
            limit_line(found.and_then(|(ordinal, facts)| s.settings.memory.of(ordinal, facts)))
        })
        .unwrap_or_else(|| not_found(server)),
        Command::SetDefaultPriority { value } => match value.as_str() {
            "0" | "1" | "" => {
                daemon.registry(|registry| registry.defaults.priority = u8::from(value == "1"));
                String::new()
            }
            _ => "Invalid priority value - must be 0 or 1!\n".into(),
        },
        Command::GetDefaultPriority => daemon.registry(|registry| format!("{}\n", registry.defaults.priority)),
        Command::TerminateClient { server, client } => terminate(daemon, server, client),
        Command::DeviceQuery { server, csv } => device_query(daemon, server, csv),
        Command::SetShare { client, value } => set_share(daemon, client, &value),
        Command::MoveClient { client, place } => move_client(daemon, client, &place),
        Command::SetDefaultIsolation { value } => match Isolation::parse(&value) {
            Some(isolation) => {
                daemon.registry(|registry| registry.defaults.isolation = isolation);
                String::new()
            }
            None => format!("Invalid isolation \"{value}\" - must be own or shared!\n"),
        },
        Command::GetDefaultIsolation => daemon.registry(|registry| format!("{}\n", registry.defaults.isolation.text())),
        Command::Upgrade { program } => upgrade::answer(daemon, &program),
        Command::StatusJson => status_json(daemon),
        Command::ProtocolVersion => format!("{}\n", cumux_wire::VERSION),
        Command::AddPartition { chunks: None, .. } | Command::PartitionUsage => PARTITION_USAGE.into(),
        Command::AddPartition { device, chunks: Some(chunks) } => partitions(daemon, |board| board.add(&device, chunks).map(|name| format!("{name}\n"))),
        Command::RemovePartition { device, id } => partitions(daemon, |board| board.remove(&device, &id).map(|name| format!("Partition {name} removed\n"))),
        Command::ListPartitions => partitions(daemon, |board| Ok(board.text())),
        Command::Complaints => {
            let all = daemon.registry(|registry| registry.complaints.clone());
            serde_json::to_string(&all).map_or_else(|error| format!("{error}\n"), |text| text + "\n")
        }
        Command::Devices => {
            let names: Vec<String> = daemon.devices().into_iter().map(|facts| facts.id).collect();
            serde_json::to_string(&names).map_or_else(|error| format!("{error}\n"), |text| text + "\n")
        }
        Command::Cards => cards(daemon),
        Command::Group(command) => group_commands::answer(daemon, command),
        Command::Usage(form) => format!("It is written: {form}\n"),
        Command::Unknown { name } => format!("Unknown command \"{name}\"\n"),
    }
}

const LIMIT_FORM: &str = "<device> and an integer with G or M, as in 0 2G";
const PARTITION_USAGE: &str = "It is written: sm_partition add <device UUID> <chunks>, or sm_partition rm <device UUID>/<partition ID>\n";

/// A value that cannot be read gets no answer, as in NVIDIA's daemon; it is reported in the log and
/// by `cumux doctor`.
fn unreadable(daemon: &Daemon, is: bool, command: &str, form: &str) {
    if is {
        daemon.complain(&format!("Command \"{}\" changed nothing: it takes {form}", command.trim_end()));
    }
}

fn unknown_device(daemon: &Daemon, set: bool, device: &str, command: &str) {
    if !set {
        return;
    }
    let Ok(devices) = daemon.known_devices() else { return };
    if !devices.iter().enumerate().any(|(ordinal, facts)| names(device, ordinal, facts)) {
        daemon.complain(&format!("Command \"{command}\" limits nothing: there is no device {device}; device_query lists the devices"));
    }
}

fn partitions(daemon: &Daemon, act: impl FnOnce(&mut Board) -> Result<String, PartitionError>) -> String {
    if daemon.options.static_partitions
        && let Err(why) = daemon.known_devices()
    {
        return format!("The devices are not known: {why}\n");
    }
    match daemon.partitions(act) {
        Some(Ok(text)) => text,
        Some(Err(error)) => format!("{error}\n"),
        None => "Static SM partitioning is not enabled: start the control daemon with -S\n".into(),
    }
}

fn not_found(server: u32) -> String {
    format!("Server {server} not found\n")
}

fn servers(daemon: &Daemon) -> Vec<u32> {
    daemon.registry(|registry| registry.servers().iter().map(|server| server.pid).collect())
}

fn with_server<T>(daemon: &Daemon, pid: u32, then: impl FnOnce(&mut Server) -> T) -> Option<T> {
    daemon.registry(|registry| registry.server_mut(pid).map(then))
}

/// Prints the value in force afterwards, changed or not.
fn set_percentage(current: &mut Percentage, value: &str) -> String {
    if let Some(value) = Percentage::parse(value) {
        *current = value;
    }
    format!("{}\n", current.text())
}

fn limit_line(limit: Option<MemoryLimit>) -> String {
    limit.map_or_else(String::new, |limit| format!("{}\n", limit.text()))
}

fn start_server(daemon: &Arc<Daemon>, uid: u32, mlopart: bool) -> String {
    if mlopart && !daemon.options.static_partitions {
        let name = daemon.devices().first().map_or_else(|| daemon.options.device.clone(), |facts| facts.name.clone());
        if daemon.options.localities.is_empty() {
            return format!("MLOPart devices are not available on {name}: they need a Blackwell GPU or newer with two memory localities; leave out -mlopart\n");
        }
        let running = daemon.registry(|registry| {
            let other = registry.servers().iter().find(|server| server.uid == uid && !registry.mlopart.contains(&uid)).map(|server| server.pid);
            if other.is_none() {
                registry.mlopart.insert(uid);
            }
            other
        });
        if let Some(pid) = running {
            return format!("Server {pid} of user {uid} runs without MLOPart devices: end it first (shutdown_server {pid})\n");
        }
    }
    if mlopart && daemon.options.static_partitions {
        daemon
            .complain("Command \"start_server -mlopart\" started a server without MLOPart devices: with static SM partitioning (-S) the option means nothing");
    }
    let old = daemon.registry(|registry| {
        let mut theirs = registry.servers().iter().filter(|server| server.uid == uid);
        let (pid, devices) = theirs.find_map(|server| Some((server.pid, server.outdated()?)))?;
        Some(format!("Server {pid} of user {uid} serves {devices} until its clients have gone; then the first program starts a server on "))
    });
    if let Some(text) = old {
        return format!("{text}{}\n", daemon.options.device);
    }
    daemon.feed(Event::Wanted { uid });
    daemon.wait_started(uid);
    daemon.registry(|registry| registry.failure(uid).map_or_else(String::new, |why| format!("Failed to start a server for user {uid}: {why}\n")))
}

fn terminate(daemon: &Daemon, server: u32, client: u32) -> String {
    if with_server(daemon, server, |_| ()).is_none() {
        return not_found(server);
    }
    match daemon.ask(server, |request| ToServer::Terminate { request, pid: client }) {
        Some(FromServer::Terminated { found: true, error, .. }) if error.is_empty() => "0\n".into(),
        Some(FromServer::Terminated { found: true, error, .. }) => format!("Process {client} is not terminated yet: {error}\n1\n"),
        Some(_) => format!("Invalid process {client}!\n1\n"),
        None => format!("Server {server} does not answer: shutdown_server {server} -f ends it\n1\n"),
    }
}

/// One JSON line: `{"before": 132, "now": 16}` or `{"error": "…"}`.
fn set_share(daemon: &Daemon, client: u32, value: &str) -> String {
    let line = |value: serde_json::Value| format!("{value}\n");
    let error = |text: String| line(serde_json::json!({ "error": text }));
    let Some(share) = Percentage::parse(value) else {
        return error(format!("\"{value}\" is no percentage: give a number above 0 and at most 100"));
    };
    let mut last = format!("process {client} is no client of any server here; `cumux status` lists them");
    for server in servers(daemon) {
        match daemon.ask(server, |request| ToServer::SetShare { request, pid: client, share }) {
            Some(FromServer::Shared { before, now, error, .. }) if error.is_empty() => return line(serde_json::json!({ "before": before, "now": now })),
            Some(FromServer::Shared { before: 0, .. }) => {}
            Some(FromServer::Shared { error, .. }) => last = error,
            _ => last = format!("server {server} does not answer"),
        }
    }
    error(last)
}

/// One JSON line: `{"executor": 4711}` or `{"error": "…"}`.
fn move_client(daemon: &Daemon, client: u32, place: &str) -> String {
    let line = |value: serde_json::Value| format!("{value}\n");
    let error = |text: String| line(serde_json::json!({ "error": text }));
    let Some(place) = Isolation::parse(place) else { return error(format!("\"{place}\" is no place for a client: write own or shared")) };
    let mut last = format!("process {client} is no client of any server here; `cumux status` lists them");
    for server in servers(daemon) {
        let wait = Waits::from_environment().answer_to_move();
        match daemon.ask_within(server, wait, |request| ToServer::Move { request, pid: client, own: place == Isolation::Own }) {
            Some(FromServer::Moved { executor, error, .. }) if error.is_empty() => return line(serde_json::json!({ "executor": executor })),
            Some(FromServer::Moved { found: false, .. }) => {}
            Some(FromServer::Moved { error: why, .. }) => return error(format!("client {client} was not moved: {why}")),
            _ => last = format!("{}. The move may still be under way: `cumux status` shows where client {client} is", daemon.silence_of(server, wait)),
        }
    }
    error(last)
}

fn ps(daemon: &Daemon, only: Option<u32>) -> String {
    let all = servers(daemon);
    let chosen: Vec<u32> = match only {
        // Recorded so: the text comes from two places in the original.
        Some(pid) if !all.contains(&pid) => return format!("{0}{0}\n", not_found(pid)),
        Some(pid) => vec![pid],
        None if all.is_empty() => return "Server not found\n".into(),
        None => all,
    };
    let statuses: Vec<ServerStatus> = chosen.iter().filter_map(|pid| daemon.status(*pid)).collect();
    let divided = |uid| daemon.registry(|registry| registry.mlopart.contains(&uid));
    let devices = |pid| with_server(daemon, pid, |s| s.devices.clone()).unwrap_or_default();
    let mut text = String::new();
    let with_devices: Vec<_> = statuses.iter().map(|status| (status, devices(status.pid))).collect();
    let lines: Vec<PsLine<'_>> = with_devices
        .iter()
        .flat_map(|(status, devices)| {
            // A line for each device that a client sees.
            status.clients.iter().flat_map(move |client| {
                let (namespace, command) = (pid_namespace(client.pid), command_of(client.pid));
                client.devices.iter().map(move |place| PsLine {
                    client,
                    server: status.pid,
                    device: devices.get(*place as usize),
                    namespace,
                    command: command.clone(),
                })
            })
        })
        .collect();
    text.push_str(&report::ps(&lines, statuses.iter().any(|status| divided(status.uid))));
    text
}

/// The name under which a process was started: the first word of its command line.
fn command_of(pid: u32) -> Option<String> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let word = line.split(|byte| *byte == 0).next().filter(|word| !word.is_empty())?;
    Some(cumux_link::escape_foreign(&String::from_utf8_lossy(word), 256))
}

fn pid_namespace(pid: u32) -> Option<u64> {
    let link = std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok()?;
    link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

fn device_clients(daemon: &Daemon, only: Option<u32>) -> String {
    let all = servers(daemon);
    if let Some(pid) = only.filter(|pid| !all.contains(pid)) {
        return not_found(pid);
    }
    let chosen = all.into_iter().filter(|pid| only.is_none_or(|wanted| wanted == *pid));
    let mut statuses: Vec<ServerStatus> = chosen.filter_map(|pid| daemon.status(pid)).collect();
    for status in &mut statuses {
        let reach = daemon.reach_of(status.pid);
        status.clients.iter_mut().flat_map(|client| &mut client.devices).for_each(|place| *place = reach.place_of(*place));
    }
    report::device_clients(&daemon.devices(), &statuses)
}

fn device_query(daemon: &Daemon, only: Option<u32>, csv: bool) -> String {
    let running: Vec<_> = daemon.registry(|registry| registry.servers().iter().filter(|s| s.is_ready()).map(|s| (s.pid, s.devices.clone())).collect());
    if let Some(pid) = only.filter(|wanted| !running.iter().any(|(pid, _)| pid == wanted)) {
        return not_found(pid);
    }
    let mut sections = Vec::new();
    if only.is_none() {
        let known = daemon.known_devices();
        let table = report::device_query("Default", known.as_deref().unwrap_or_default(), &[], csv);
        sections.push(table + &known.err().map_or_else(String::new, |why| format!("The devices are not known: {why}\n")));
    }
    for (pid, devices) in running.iter().filter(|(pid, _)| only.is_none_or(|wanted| wanted == *pid)) {
        sections.push(report::device_query(&format!("Server {pid}"), devices, &daemon.devices(), csv));
    }
    sections.join("\n")
}

fn cards(daemon: &Daemon) -> String {
    let known = match daemon.known_devices() {
        Ok(known) => known,
        Err(why) => return format!("The devices are not known: {why}\n"),
    };
    let card = |facts: &cumux_wire::message::DeviceFacts| {
        serde_json::json!({
            "id": facts.id,
            "uuid": crate::settings::uuid_text(facts.uuid),
            "name": facts.name,
            "memory": facts.memory,
            "multiprocessors": facts.multiprocessors(),
        })
    };
    format!("{}\n", serde_json::Value::from_iter(known.iter().map(card)))
}

fn status_json(daemon: &Daemon) -> String {
    let statuses: Vec<ServerStatus> = servers(daemon).into_iter().filter_map(|pid| daemon.status(pid)).collect();
    // Plain data always has a JSON form.
    serde_json::to_string(&statuses).map_or_else(|error| format!("{error}\n"), |text| text + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::tests::daemon_with;

    /// With static partitioning, `-mlopart` is passed over and `cumux doctor` says so. Without it,
    /// a card that has no localities is named.
    #[test]
    fn mlopart_is_passed_over_beside_static_partitions() {
        for (partitions, mlopart, complains, refuses) in
            [(true, true, true, false), (true, false, false, false), (false, false, false, false), (false, true, false, true)]
        {
            let (_folder, daemon) = daemon_with(|options| {
                options.static_partitions = partitions;
                options.pipe.push("missing");
            });
            let another_user = rustix::process::geteuid().as_raw() + 1;
            let text = start_server(&daemon, another_user, mlopart);
            assert_eq!(text.contains("MLOPart devices are not available on cuda:0"), refuses, "{text}");
            assert_eq!(text.starts_with("Failed to start a server"), !refuses, "there is no folder for that user: {text}");
            let complaints = daemon.registry(|registry| registry.complaints.clone());
            assert_eq!(complaints.iter().any(|text| text.contains("start_server -mlopart")), complains, "{complaints:?}");
        }
    }
}
