//! Makes messages of other processes harmless where they enter: text is escaped, lists and texts
//! are bounded. Nothing here checks whether a message is true.

use cumux_link::escape_foreign;
use cumux_wire::message::{ClientStatus, DeviceFacts, Hello, ServerStatus};

/// Characters of a name: a program, a device, a state.
const NAME: usize = 256;
/// Characters of a sentence.
pub(crate) const SENTENCE: usize = 1024;
/// Characters of a variable's value, and how many variables there are.
const VALUE: usize = 4096;
const VARIABLES: usize = 64;
/// Devices of one server, and attributes of one.
const DEVICES: usize = 64;
const ATTRIBUTES: usize = 1024;
/// Clients that an upgrade names.
pub(crate) const MOST_STAYING: usize = 512;
/// Clients of one status: 512 windows exist, and the server remembers at most as many clients that
/// have gone.
const CLIENTS: usize = 1024;

fn name(text: &mut String) {
    *text = escape_foreign(text, NAME);
}

/// A client's hello.
pub(crate) fn hello(mut hello: Hello) -> Hello {
    if let Hello::Client { environment, program, .. } = &mut hello {
        environment.truncate(VARIABLES);
        for (variable, value) in environment {
            name(variable);
            *value = escape_foreign(value, VALUE);
        }
        name(program);
    }
    hello
}

/// The part of a hello that a server needs: the grant already says what the environment asks for,
/// and with the environment the packet could become too long.
pub(crate) fn without_environment(hello: &Hello) -> Hello {
    match hello {
        Hello::Client { version, pid, program, .. } => Hello::Client { version: *version, pid: *pid, environment: Vec::new(), program: program.clone() },
        other => other.clone(),
    }
}

/// Names of devices.
pub(crate) fn names(mut all: Vec<String>) -> Vec<String> {
    all.truncate(DEVICES);
    all.iter_mut().for_each(name);
    all
}

/// A server's devices.
pub(crate) fn devices(mut devices: Vec<DeviceFacts>) -> Vec<DeviceFacts> {
    devices.truncate(DEVICES);
    for facts in &mut devices {
        name(&mut facts.id);
        name(&mut facts.name);
        facts.attributes.truncate(ATTRIBUTES);
        for why in [&mut facts.capabilities.exclusive, &mut facts.capabilities.unavailable].into_iter().flatten() {
            *why = escape_foreign(why, SENTENCE);
        }
    }
    devices
}

/// A server's status, or a piece of it.
pub(crate) fn status(mut server: ServerStatus) -> ServerStatus {
    name(&mut server.state);
    server.no_standby = escape_foreign(&server.no_standby, SENTENCE);
    server.leaving = escape_foreign(&server.leaving, SENTENCE);
    server.devices = names(server.devices);
    server.cards.truncate(DEVICES);
    for card in &mut server.cards {
        name(&mut card.id);
        name(&mut card.name);
        name(&mut card.uuid);
        card.unavailable = escape_foreign(&card.unavailable, SENTENCE);
    }
    server.groups.truncate(CLIENTS);
    for group in &mut server.groups {
        name(&mut group.name);
        group.used.truncate(DEVICES);
    }
    server.clients.truncate(CLIENTS);
    server.gone.truncate(CLIENTS);
    server.clients.iter_mut().chain(&mut server.gone).for_each(client);
    server
}

fn client(client: &mut ClientStatus) {
    name(&mut client.program);
    name(&mut client.state);
    name(&mut client.group);
    client.fault = escape_foreign(&client.fault, SENTENCE);
    client.place_why = escape_foreign(&client.place_why, SENTENCE);
    client.devices.truncate(DEVICES);
}

/// The next piece of a server's status.
pub(crate) fn append(whole: &mut ServerStatus, next: ServerStatus) {
    let add = |all: &mut Vec<ClientStatus>, more: Vec<ClientStatus>| {
        let room = CLIENTS.saturating_sub(all.len());
        all.extend(more.into_iter().take(room));
    };
    // They come at once, in the last piece.
    if !next.groups.is_empty() {
        whole.groups = next.groups;
    }
    add(&mut whole.clients, next.clients);
    add(&mut whole.gone, next.gone);
}

#[cfg(test)]
mod tests {
    use super::*;
    use cumux_wire::message::ServedDevice;

    #[test]
    fn nothing_of_a_malicious_server_reaches_a_terminal_or_fills_the_memory() {
        let evil = || "\u{1b}]0;x\u{7}".repeat(10_000);
        let facts = DeviceFacts {
            id: evil(),
            name: evil(),
            uuid: [0; 16],
            pci: [0; 3],
            memory: 0,
            attributes: (1..=100_000).map(|number| (cumux_wire::cuda::DeviceAttribute(number), 1)).collect(),
            capabilities: cumux_wire::facts::Capabilities::default(),
        };
        let row = ClientStatus { program: evil(), state: evil(), fault: evil(), place_why: evil(), devices: vec![0; 10_000], ..ClientStatus::default() };
        let card = ServedDevice { id: evil(), name: evil(), unavailable: evil(), ..ServedDevice::default() };
        let told = ServerStatus {
            state: evil(),
            no_standby: evil(),
            leaving: evil(),
            devices: vec![evil(); 100],
            cards: vec![card; 100],
            clients: vec![row.clone(); 2000],
            gone: vec![row; 2000],
            ..ServerStatus::default()
        };
        let mut whole = status(told.clone());
        append(&mut whole, status(told));
        let text = serde_json::to_string(&(&whole, devices(vec![facts; 100]))).unwrap();
        // JSON itself would escape the escape character, so even its escaped form must be absent.
        assert!(!text.contains("\\u001b") && text.len() < 8 << 20, "{} bytes", text.len());
        assert_eq!((whole.clients.len(), whole.gone.len()), (1024, 1024));
        let environment = vec![(evil(), evil()); 1000];
        let Hello::Client { environment, program, .. } = hello(Hello::Client { version: 1, pid: 1, environment, program: evil() }) else { unreachable!() };
        assert_eq!((environment.len(), environment[0].1.chars().count()), (64, 4096));
        assert!(!program.contains('\u{1b}') && program.chars().count() <= 256);
    }
}
