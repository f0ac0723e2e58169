//! Parses one line of text into one command. Pure, and never fails: an unknown command becomes
//! [`Command::Unknown`]. A word that is no number counts as 0, as in NVIDIA's daemon (only
//! `get_client_list` answers `Server 0 not found`), except where 0 would do harm
//! ([`Command::Usage`]).

use crate::group_commands::GroupCommand;

/// A command of an administrator. `server` and `client` are process ids; `device` is an ordinal or
/// a UUID, and `value` a limit, as the user wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are described above")]
pub enum Command {
    /// An empty line.
    Nothing,
    /// `get_server_list`: process ids of the servers that accept clients.
    GetServerList,
    /// `get_server_status <server>`.
    GetServerStatus { server: u32 },
    /// `start_server -uid <uid>`; `mlopart`: with memory-locality partitions. `uid` is `None` if it
    /// was missing or no number.
    StartServer { uid: Option<u32>, mlopart: bool },
    /// `shutdown_server <server> [-f]`; `force`: without waiting for its clients.
    ShutdownServer { server: u32, force: bool },
    /// `get_client_list <server>`.
    GetClientList { server: u32 },
    /// `get_device_client_list [<server>]`.
    GetDeviceClientList { server: Option<u32> },
    /// `ps [-p <server>]`.
    Ps { server: Option<u32> },
    /// `quit [-t <seconds>]`: ends daemon and servers. With a time, the servers are forced to end
    /// after so many seconds.
    Quit { timeout_s: Option<u64> },
    /// `set_default_active_thread_percentage <value>`.
    SetDefaultPercentage { value: String },
    /// `get_default_active_thread_percentage`.
    GetDefaultPercentage,
    /// `set_active_thread_percentage <server> <value>`.
    SetPercentage { server: u32, value: String },
    /// `get_active_thread_percentage <server>`.
    GetPercentage { server: u32 },
    /// `set_default_device_pinned_mem_limit <device> <value>`.
    SetDefaultMemoryLimit { device: String, value: String },
    /// `get_default_device_pinned_mem_limit <device>`.
    GetDefaultMemoryLimit { device: String },
    /// `set_device_pinned_mem_limit <server> <device> <value>`.
    SetMemoryLimit { server: u32, device: String, value: String },
    /// `get_device_pinned_mem_limit <server> <device>`.
    GetMemoryLimit { server: u32, device: String },
    /// `set_default_client_priority <value>`.
    SetDefaultPriority { value: String },
    /// `get_default_client_priority`.
    GetDefaultPriority,
    /// `terminate_client <server> <client>`.
    TerminateClient { server: u32, client: u32 },
    /// `device_query [<server>] [-csv]`.
    DeviceQuery { server: Option<u32>, csv: bool },
    /// Our own: changes the share of a running client.
    SetShare { client: u32, value: String },
    /// Our own: moves a running client to an executor of its own (`own`), or back (`shared`).
    MoveClient { client: u32, place: String },
    /// Our own: `set_default_isolation own|shared`.
    SetDefaultIsolation { value: String },
    /// Our own: `get_default_isolation`.
    GetDefaultIsolation,
    /// Our own: replaces the processes of all servers by those of this program.
    Upgrade { program: String },
    /// Our own: the state of every server as one JSON line.
    StatusJson,
    /// Our own: the number of the protocol between programs, daemon and servers.
    ProtocolVersion,
    /// `sm_partition add`.
    AddPartition { device: String, chunks: Option<u64> },
    /// `sm_partition rm`, by `<UUID>/<id>` or by both words.
    RemovePartition { device: String, id: String },
    /// `sm_partition` with arguments that cannot be understood.
    PartitionUsage,
    /// `lspart`.
    ListPartitions,
    /// Our own: the settings that were ignored without a word to the program.
    Complaints,
    /// Our own: the names of the devices, as in `--device`.
    Devices,
    /// Our own: UUID, name, memory and multiprocessors of each device, as one JSON line.
    Cards,
    /// Our own: `group …`.
    Group(GroupCommand),
    /// A command that is not carried out, because arguments are missing or wrong and a guess would
    /// do harm. Contains how the command is written.
    Usage(&'static str),
    /// Any other text, by its first word.
    Unknown { name: String },
}

const QUIT: &str = "quit, or quit -t <seconds>";
const UPGRADE: &str = "upgrade <program file>";
const MOVE: &str = "move_client <client PID> own, or move_client <client PID> shared";
const DEFAULT_LIMIT: &str = "set_default_device_pinned_mem_limit <device> <integer with G or M>";
const GET_DEFAULT_LIMIT: &str = "get_default_device_pinned_mem_limit <device>";

impl Command {
    /// Whether it changes anything: such commands are for root and the daemon's own user only.
    #[must_use]
    pub fn changes(&self) -> bool {
        !matches!(
            self,
            Command::Nothing
                | Command::GetServerList
                | Command::GetServerStatus { .. }
                | Command::GetClientList { .. }
                | Command::GetDeviceClientList { .. }
                | Command::Ps { .. }
                | Command::GetDefaultPercentage
                | Command::GetPercentage { .. }
                | Command::GetDefaultMemoryLimit { .. }
                | Command::GetMemoryLimit { .. }
                | Command::GetDefaultPriority
                | Command::GetDefaultIsolation
                | Command::DeviceQuery { .. }
                | Command::StatusJson
                | Command::ProtocolVersion
                | Command::PartitionUsage
                | Command::ListPartitions
                | Command::Complaints
                | Command::Devices
                | Command::Cards
                | Command::Group(GroupCommand::List | GroupCommand::Usage)
                | Command::Usage(_)
                | Command::Unknown { .. }
        )
    }

    /// Reads one line.
    #[must_use]
    pub fn parse(line: &str) -> Self {
        let mut words = line.split_whitespace();
        let Some(name) = words.next() else { return Command::Nothing };
        let words: Vec<&str> = words.collect();
        let word = |index: usize| words.get(index).copied().unwrap_or("");
        let number = |index: usize| leading_number(word(index));
        let after = |flag: &str| words.iter().position(|w| *w == flag).map(|at| words.get(at + 1).copied().unwrap_or(""));
        match name {
            "get_server_list" => Command::GetServerList,
            "get_server_status" => Command::GetServerStatus { server: number(0) },
            "start_server" => Command::StartServer { uid: after("-uid").and_then(user), mlopart: words.contains(&"-mlopart") },
            "shutdown_server" => {
                let server = words.iter().find(|w| !w.starts_with('-')).map_or(0, |w| leading_number(w));
                Command::ShutdownServer { server, force: words.contains(&"-f") }
            }
            "get_client_list" => Command::GetClientList { server: number(0) },
            "get_device_client_list" => Command::GetDeviceClientList { server: words.first().map(|w| leading_number(w)) },
            "ps" => Command::Ps { server: after("-p").map(leading_number) },
            "quit" => match after("-t").map(seconds) {
                None => Command::Quit { timeout_s: None },
                Some(Some(timeout)) => Command::Quit { timeout_s: Some(timeout) },
                // A time of 0 would end everybody's work at once.
                Some(None) => Command::Usage(QUIT),
            },
            "set_default_active_thread_percentage" => Command::SetDefaultPercentage { value: word(0).into() },
            "get_default_active_thread_percentage" => Command::GetDefaultPercentage,
            "set_active_thread_percentage" => Command::SetPercentage { server: number(0), value: word(1).into() },
            "get_active_thread_percentage" => Command::GetPercentage { server: number(0) },
            "set_default_device_pinned_mem_limit" if words.len() < 2 => Command::Usage(DEFAULT_LIMIT),
            "get_default_device_pinned_mem_limit" if words.is_empty() => Command::Usage(GET_DEFAULT_LIMIT),
            "set_default_device_pinned_mem_limit" => Command::SetDefaultMemoryLimit { device: word(0).into(), value: word(1).into() },
            "get_default_device_pinned_mem_limit" => Command::GetDefaultMemoryLimit { device: word(0).into() },
            "set_device_pinned_mem_limit" => Command::SetMemoryLimit { server: number(0), device: word(1).into(), value: word(2).into() },
            "get_device_pinned_mem_limit" => Command::GetMemoryLimit { server: number(0), device: word(1).into() },
            "set_default_client_priority" => Command::SetDefaultPriority { value: word(0).into() },
            "get_default_client_priority" => Command::GetDefaultPriority,
            "terminate_client" => Command::TerminateClient { server: number(0), client: number(1) },
            "device_query" => {
                Command::DeviceQuery { server: words.iter().find(|w| !w.starts_with('-')).map(|w| leading_number(w)), csv: words.contains(&"--csv") }
            }
            "set_share" => Command::SetShare { client: number(0), value: word(1).into() },
            "move_client" if words.len() != 2 || number(0) == 0 => Command::Usage(MOVE),
            "move_client" => Command::MoveClient { client: number(0), place: word(1).into() },
            "set_default_isolation" => Command::SetDefaultIsolation { value: word(0).into() },
            "get_default_isolation" => Command::GetDefaultIsolation,
            "upgrade" if words.is_empty() => Command::Usage(UPGRADE),
            "upgrade" => Command::Upgrade { program: line.trim_start().trim_start_matches("upgrade").trim().into() },
            "status" if words == ["--json"] => Command::StatusJson,
            "protocol_version" => Command::ProtocolVersion,
            "sm_partition" => partition(&words),
            "lspart" => Command::ListPartitions,
            "complaints" => Command::Complaints,
            "devices" => Command::Devices,
            "cards" => Command::Cards,
            "group" => Command::Group(GroupCommand::parse(&words)),
            _ => Command::Unknown { name: name.into() },
        }
    }
}

fn partition(words: &[&str]) -> Command {
    match *words {
        ["add", device, chunks] => Command::AddPartition { device: device.into(), chunks: chunks.parse().ok() },
        ["rm", device, id] => Command::RemovePartition { device: device.into(), id: id.into() },
        ["rm", name] => match name.split_once('/') {
            Some((device, id)) => Command::RemovePartition { device: device.into(), id: id.into() },
            None => Command::PartitionUsage,
        },
        _ => Command::PartitionUsage,
    }
}

/// A user's number; the largest number is reserved for "no user".
fn user(word: &str) -> Option<u32> {
    word.parse().ok().filter(|uid| *uid != u32::MAX)
}

/// Whole seconds; a number that does not fit counts as for ever.
fn seconds(word: &str) -> Option<u64> {
    let digits = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| word.parse().unwrap_or(u64::MAX).min(u64::from(u32::MAX)))
}

/// The number with which a word begins; 0 if it begins with none or with one that is too large.
fn leading_number(word: &str) -> u32 {
    let end = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
    word[..end].parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_as_recorded() {
        let cases = [
            ("", Command::Nothing),
            ("   \t", Command::Nothing),
            ("help", Command::Unknown { name: "help".into() }),
            ("GET_SERVER_LIST", Command::Unknown { name: "GET_SERVER_LIST".into() }),
            ("quit_", Command::Unknown { name: "quit_".into() }),
            ("status", Command::Unknown { name: "status".into() }),
            ("quit", Command::Quit { timeout_s: None }),
            ("quit -t 5", Command::Quit { timeout_s: Some(5) }),
            ("quit -t 0", Command::Quit { timeout_s: Some(0) }),
            ("quit -t 99999999999999999999", Command::Quit { timeout_s: Some(u64::from(u32::MAX)) }),
            ("quit -t", Command::Usage(QUIT)),
            ("quit -t -1", Command::Usage(QUIT)),
            ("quit -t 5s", Command::Usage(QUIT)),
            ("set_default_device_pinned_mem_limit 0", Command::Usage(DEFAULT_LIMIT)),
            ("get_default_device_pinned_mem_limit", Command::Usage(GET_DEFAULT_LIMIT)),
            ("ps", Command::Ps { server: None }),
            ("ps -p", Command::Ps { server: Some(0) }),
            ("ps -p 1098", Command::Ps { server: Some(1098) }),
            ("start_server", Command::StartServer { uid: None, mlopart: false }),
            ("start_server -uid x", Command::StartServer { uid: None, mlopart: false }),
            ("start_server -uid 4294967295", Command::StartServer { uid: None, mlopart: false }),
            ("start_server -uid 0 -mlopart", Command::StartServer { uid: Some(0), mlopart: true }),
            ("shutdown_server 488 -f", Command::ShutdownServer { server: 488, force: true }),
            ("shutdown_server -f 488", Command::ShutdownServer { server: 488, force: true }),
            ("get_client_list", Command::GetClientList { server: 0 }),
            ("get_device_client_list", Command::GetDeviceClientList { server: None }),
            ("device_query --csv", Command::DeviceQuery { server: None, csv: true }),
            ("device_query 12 --csv", Command::DeviceQuery { server: Some(12), csv: true }),
            ("get_client_list 99999999999999", Command::GetClientList { server: 0 }),
            ("get_server_status 12é", Command::GetServerStatus { server: 12 }),
            ("status --json", Command::StatusJson),
            ("sm_partition add GPU-1 7", Command::AddPartition { device: "GPU-1".into(), chunks: Some(7) }),
            ("sm_partition add GPU-1 -7", Command::AddPartition { device: "GPU-1".into(), chunks: None }),
            ("sm_partition rm GPU-1/x", Command::RemovePartition { device: "GPU-1".into(), id: "x".into() }),
            ("sm_partition rm GPU-1 x", Command::RemovePartition { device: "GPU-1".into(), id: "x".into() }),
            ("sm_partition rm GPU-1", Command::PartitionUsage),
            ("sm_partition add GPU-1", Command::PartitionUsage),
            ("sm_partition", Command::PartitionUsage),
            ("lspart", Command::ListPartitions),
            ("move_client 12 own", Command::MoveClient { client: 12, place: "own".into() }),
            ("move_client 12", Command::Usage(MOVE)),
            ("move_client x own", Command::Usage(MOVE)),
            ("set_default_isolation own", Command::SetDefaultIsolation { value: "own".into() }),
            ("get_default_isolation", Command::GetDefaultIsolation),
            ("upgrade /a b/cumux ", Command::Upgrade { program: "/a b/cumux".into() }),
            ("upgrade", Command::Usage(UPGRADE)),
        ];
        for (line, expected) in cases {
            assert_eq!(Command::parse(line), expected, "{line:?}");
        }
    }

    /// Every text gives a command; an unknown one keeps its own first word.
    #[test]
    fn any_text_is_some_command() {
        let words =
            ["ps", "-p", "-t", "quit", "-uid", "start_server", "99999999999999999999", "-1", "é", "\u{0}", "--csv", "terminate_client", "12x", "\t", "  "];
        let mut seed: usize = 7;
        for _ in 0..20_000 {
            let mut line = String::new();
            for _ in 0..seed % 6 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                line.push_str(words[(seed >> 33) % words.len()]);
                line.push_str(if seed & 1 == 0 { " " } else { "" });
            }
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if let Command::Unknown { name } = Command::parse(&line) {
                assert_eq!(line.split_whitespace().next(), Some(name.as_str()));
            }
        }
    }

    #[test]
    fn asking_changes_nothing_and_setting_does() {
        assert!(!Command::parse("get_server_list").changes());
        assert!(!Command::parse("status --json").changes());
        assert!(!Command::parse("bogus").changes());
        for line in [
            "quit",
            "start_server -uid 0",
            "shutdown_server 1",
            "terminate_client 1 2",
            "set_default_client_priority 1",
            "set_active_thread_percentage 1 2",
            "set_share 1 5",
            "move_client 1 own",
            "set_default_isolation own",
            "upgrade /usr/bin/cumux",
            "sm_partition add GPU-1 7",
            "sm_partition rm GPU-1/x",
        ] {
            assert!(Command::parse(line).changes(), "{line}");
        }
    }
}
