//! Answers in columns, letter for letter as driver 580 prints them. Pure.

use crate::settings::uuid_text;
use cumux_wire::message::{ClientStatus, DeviceFacts, Place, ServerStatus};
use std::fmt::Write as _;

/// One line of `ps`: a client, its server, and what only the daemon knows of it.
#[derive(Debug)]
pub struct PsLine<'a> {
    /// The client, as the server reports it.
    pub client: &'a ClientStatus,
    /// Process id of the client's server.
    pub server: u32,
    /// The client's first device, if it is known.
    pub device: Option<&'a DeviceFacts>,
    /// Inode of the client's PID namespace, if it can be read.
    pub namespace: Option<u64>,
    /// The name under which the client was started; its program file where that is unknown.
    pub command: Option<String>,
}

/// Whether a device is a memory-locality partition of another.
fn is_part(facts: &DeviceFacts) -> bool {
    facts.name.contains(" MLOPart ")
}

/// In which executor a client is and why, in a few words.
#[must_use]
pub fn place(client: &ClientStatus) -> String {
    let word = match client.place {
        Place::Nowhere => "none",
        Place::Shared => "shared",
        Place::Own => "own",
        Place::Apart => "apart",
    };
    let pid = if client.executor == 0 { String::new() } else { format!(" {}", client.executor) };
    if client.place_why.is_empty() { format!("{word}{pid}") } else { format!("{word}{pid}: {}", client.place_why) }
}

/// The table of `ps`; empty without clients. `attributes` adds the column of newer releases, which
/// shows memory-locality partitions. Where not all clients are in the shared executor a last column
/// of our own says where each is.
#[must_use]
pub fn ps(lines: &[PsLine<'_>], attributes: bool) -> String {
    let mut text = String::new();
    if lines.is_empty() {
        return text;
    }
    let places = lines.iter().any(|line| matches!(line.client.place, Place::Own | Place::Apart));
    let mut row = |cells: [&str; 6], last: &str, place: &str| {
        let [pid, id, server, device, namespace, command] = cells;
        let _ = write!(text, "{pid:<10}{id:<10}{server:<15}{device:<26}{namespace:<15}{command:<15}");
        if attributes {
            let gap = if command.len() < 15 { "" } else { " " };
            let _ = write!(text, "{gap}{last:<10}");
        }
        let _ = if places { writeln!(text, " {place}") } else { writeln!(text) };
    };
    row(["PID", "ID", "SERVER", "DEVICE", "NAMESPACE", "COMMAND"], "ATTRIBUTES", "EXECUTOR");
    for line in lines {
        let device = line.device.map_or_else(|| "-".to_owned(), |facts| uuid_text(facts.uuid)[..22].to_owned());
        let namespace = line.namespace.map_or_else(|| "-".to_owned(), |inode| inode.to_string());
        let (pid, id, server) = (line.client.pid.to_string(), line.client.session.to_string(), line.server.to_string());
        let command = line.command.as_deref().unwrap_or(&line.client.program);
        let place = place(line.client);
        row([&pid, &id, &server, &device, &namespace, command], if line.device.is_some_and(is_part) { "MD" } else { "" }, &place);
    }
    text
}

/// One section of `device_query`. Memory-locality partitions (`MD`) come after the GPU of which
/// they are a part (`M`), which is one of `whole`.
#[must_use]
pub fn device_query(title: &str, devices: &[DeviceFacts], whole: &[DeviceFacts], csv: bool) -> String {
    let mut text = format!("{title}\n");
    let mut row = |cells: [&str; 5]| {
        let [ordinal, pci, uuid, name, attributes] = cells;
        let _ = if csv {
            writeln!(text, "{ordinal},{pci},{uuid},{name},{attributes}")
        } else {
            writeln!(text, "{ordinal:<16}{pci:<15}{uuid:<42}{name:<34}{attributes}")
        };
    };
    row(["Device Ordinal", "PCI IDs", "UUID", "Name", "Attributes"]);
    let mut line = |ordinal: &str, facts: &DeviceFacts, attributes: &str| {
        let [domain, bus, device] = facts.pci;
        row([ordinal, &format!("{domain:04x}:{bus:02x}.{device:02x}.00"), &uuid_text(facts.uuid), &facts.name, attributes]);
    };
    let mut last = None;
    for (ordinal, facts) in devices.iter().enumerate() {
        if is_part(facts)
            && last != Some(facts.pci)
            && let Some(gpu) = whole.iter().find(|gpu| gpu.pci == facts.pci)
        {
            line("N/A", gpu, "M");
        }
        last = Some(facts.pci);
        line(&ordinal.to_string(), facts, if is_part(facts) { "MD" } else { "N/A" });
    }
    text
}

/// `get_device_client_list`: each device with its clients, newest first.
#[must_use]
pub fn device_clients(devices: &[DeviceFacts], servers: &[ServerStatus]) -> String {
    let mut text = String::new();
    for (ordinal, facts) in devices.iter().enumerate() {
        let sees = |client: &&ClientStatus| client.devices.iter().any(|device| *device as usize == ordinal);
        let clients: Vec<&ClientStatus> = servers.iter().flat_map(|server| &server.clients).filter(sees).collect();
        if clients.is_empty() {
            continue;
        }
        // The recording shows 00:00.0 for a card at 0000:00.06: the numbers are not the card's, but
        // scripts parse them.
        let _ = writeln!(text, "[{ordinal}] 00:00.0, {}", facts.name);
        for client in clients.iter().rev() {
            let _ = writeln!(text, "{}.1", client.pid);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> DeviceFacts {
        DeviceFacts {
            id: "cuda:0".into(),
            name: "NVIDIA H200".into(),
            uuid: [0xfb, 0x18, 0x11, 0xf5, 0xc0, 0x8f, 0x96, 0x54, 0xf7, 0xbe, 0x16, 0x48, 0x33, 0x92, 0xe3, 0xca],
            pci: [0, 0, 6],
            memory: 0,
            attributes: cumux_wire::facts::Attributes::default(),
            capabilities: cumux_wire::facts::Capabilities::default(),
        }
    }

    fn client(pid: u32, session: u32) -> ClientStatus {
        ClientStatus { pid, session, program: "./bench".into(), devices: vec![0], ..ClientStatus::default() }
    }

    #[test]
    fn ps_as_recorded() {
        let client = client(1376, 129);
        let line = PsLine { client: &client, server: 690, device: Some(&facts()), namespace: Some(4_026_531_836), command: None };
        assert_eq!(
            ps(&[line], false),
            "PID       ID        SERVER         DEVICE                    NAMESPACE      COMMAND        \n\
             1376      129       690            GPU-fb1811f5-c08f-9654    4026531836     ./bench        \n"
        );
        assert_eq!(ps(&[], true), "");
        let own = ClientStatus { place: Place::Own, executor: 77, place_why: "CUMUX_ISOLATION=own".into(), ..client.clone() };
        let line = |client| PsLine { client, server: 690, device: Some(&DEVICE), namespace: None, command: None };
        static DEVICE: std::sync::LazyLock<DeviceFacts> = std::sync::LazyLock::new(facts);
        let text = ps(&[line(&client), line(&own)], false);
        let last: Vec<&str> = text.lines().map(|line| line.get(92..).unwrap_or_default()).collect();
        assert_eq!(last, ["EXECUTOR", "shared", "own 77: CUMUX_ISOLATION=own"], "{text}");
    }

    #[test]
    fn device_query_as_recorded() {
        assert_eq!(
            device_query("Default", &[facts()], &[], false),
            "Default\n\
             Device Ordinal  PCI IDs        UUID                                      Name                              Attributes\n\
             0               0000:00.06.00  GPU-fb1811f5-c08f-9654-f7be-16483392e3ca  NVIDIA H200                       N/A\n"
        );
        assert_eq!(
            device_query("Server 1098", &[facts()], &[], true),
            "Server 1098\nDevice Ordinal,PCI IDs,UUID,Name,Attributes\n0,0000:00.06.00,GPU-fb1811f5-c08f-9654-f7be-16483392e3ca,NVIDIA H200,N/A\n"
        );
    }

    /// The document's example: the GPU without an ordinal, its parts with ordinals of their own;
    /// `ps` says which they are.
    #[test]
    fn memory_locality_partitions() {
        let part = |number: u8| DeviceFacts { name: format!("NVIDIA B300 MLOPart {number}"), uuid: [number; 16], ..facts() };
        let text = device_query("Server 7", &[part(0), part(1)], &[facts()], true);
        let expected = [
            "N/A,0000:00.06.00,GPU-fb1811f5-c08f-9654-f7be-16483392e3ca,NVIDIA H200,M",
            "0,0000:00.06.00,GPU-00000000-0000-0000-0000-000000000000,NVIDIA B300 MLOPart 0,MD",
            "1,0000:00.06.00,GPU-01010101-0101-0101-0101-010101010101,NVIDIA B300 MLOPart 1,MD",
        ];
        assert_eq!(text.lines().skip(2).collect::<Vec<_>>(), expected);
        let client = client(52845, 1);
        let line = PsLine { client: &client, server: 52837, device: Some(&part(1)), namespace: None, command: Some("while1".into()) };
        let table = ps(&[line], true);
        let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0][6], "ATTRIBUTES");
        assert_eq!((rows[1][5], rows[1][6]), ("while1", "MD"));
    }

    #[test]
    fn device_clients_as_recorded() {
        let server = ServerStatus { clients: vec![client(1267, 1), client(1268, 2)], ..ServerStatus::default() };
        assert_eq!(device_clients(&[facts()], &[server]), "[0] 00:00.0, NVIDIA H200\n1268.1\n1267.1\n");
        assert_eq!(device_clients(&[facts()], &[ServerStatus::default()]), "");
    }
}
