//! Messages of all kinds, nearly right, and the way they take: through a socket, as bytes.

use crate::bytes::Bytes;
use cumux_link::connection::MAX_DESCRIPTORS;
use cumux_link::{Connection, LinkError};
use cumux_wire::VERSION;
use cumux_wire::cuda::DeviceAttribute;
use cumux_wire::facts::Attributes;
use cumux_wire::message::{
    Capabilities, ClientStatus, DeviceFacts, DeviceGrant, FromExecutor, FromServer, Grant, GroupGrant, Hello, Home, Membership, Scope, ServerStatus,
    SessionConfig, ToKeeper, ToServer, Wisher,
};
use cumux_wire::share::Share;
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

/// Processes of clients.
pub const CLIENTS: [u32; 5] = [1, 2, 3, 4, 5];
/// Users.
pub const USERS: [u32; 3] = [7, 0, 65534];
/// More descriptors than a packet of ours may have.
const MOST_DESCRIPTORS: usize = 40;
/// Packets are asked for that have come: one that has not, never will.
const PACKET_TIMEOUT: Duration = Duration::from_secs(120);

/// A packet: a message that the bytes make, the same with a few bytes changed, or bytes as they
/// are.
pub fn packet(bytes: &mut Bytes<'_>, message: &impl Serialize) -> Vec<u8> {
    let mut packet = serde_json::to_vec(message).expect("messages are JSON");
    match bytes.below(16) {
        14 => {
            for _ in 0..=bytes.below(4) {
                let at = usize::from(bytes.short()) % packet.len();
                packet[at] = bytes.byte();
            }
        }
        15 => {
            let length = usize::from(bytes.short() % 512).max(1);
            packet = bytes.take(length).to_vec();
            // An empty packet is the end of a connection.
            packet.resize(packet.len().max(1), b'{');
        }
        _ => {}
    }
    packet
}

/// Sends bytes and descriptors as one packet.
///
/// # Panics
/// The socket does not take them.
pub fn send(connection: &Connection, packet: &[u8], descriptors: &[OwnedFd]) {
    let descriptors: Vec<_> = descriptors.iter().map(|descriptor| descriptor.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(descriptors.is_empty() || control.push(SendAncillaryMessage::ScmRights(&descriptors)));
    rustix::net::sendmsg(connection, &[IoSlice::new(packet)], &mut control, SendFlags::NOSIGNAL).expect("a socket that is read takes a packet");
}

/// What the other side makes of a packet.
///
/// # Panics
/// It waits for more.
pub fn through<M: DeserializeOwned>(packet: &[u8], descriptors: &[OwnedFd]) -> Option<(M, Vec<OwnedFd>)> {
    let (ours, theirs) = Connection::pair().expect("a pair of sockets");
    theirs.set_timeout(Some(PACKET_TIMEOUT)).expect("a socket");
    send(&ours, packet, descriptors);
    rustix::net::shutdown(&ours, Shutdown::Write).expect("a socket");
    match theirs.receive::<M>() {
        Ok((message, got)) => {
            assert_eq!(got.len(), descriptors.len().min(MAX_DESCRIPTORS), "descriptors come with their packet");
            Some((message, got))
        }
        Err(LinkError::Format(_)) => None,
        Err(other) => panic!("a packet of {} bytes: {other}", packet.len()),
    }
}

/// A few descriptors of no use, sometimes more than a packet may have.
///
/// # Panics
/// The system has none.
pub fn descriptors(bytes: &mut Bytes<'_>) -> Vec<OwnedFd> {
    let count = if bytes.one_in(32) { bytes.pick(&[MAX_DESCRIPTORS, MAX_DESCRIPTORS + 1, MOST_DESCRIPTORS]) } else { bytes.below(3) };
    (0..count).map(|_| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("a counter")).collect()
}

fn version(bytes: &mut Bytes<'_>) -> u32 {
    if bytes.one_in(16) { bytes.word() } else { VERSION }
}

pub fn device(bytes: &mut Bytes<'_>) -> DeviceFacts {
    let id = bytes.text(&["sim:h200", "sim:l4"]);
    let attributes = Attributes::from([
        (DeviceAttribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, bytes.mostly(&[132, 58, 0]).cast_signed()),
        (DeviceAttribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9),
        (DeviceAttribute::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, bytes.pick(&[0, 2, 3])),
    ]);
    let exclusive = Some(bytes.text(&["", "", "", "it is taken"])).filter(|why| !why.is_empty());
    DeviceFacts {
        name: id.to_uppercase(),
        uuid: [bytes.byte(); 16],
        pci: [0, bytes.word(), 0],
        memory: bytes.long(),
        attributes,
        id,
        capabilities: Capabilities { exclusive, ..Capabilities::default() },
    }
}

fn devices(bytes: &mut Bytes<'_>) -> Vec<DeviceFacts> {
    // Mostly one.
    (0..bytes.pick(&[1, 1, 2, 0])).map(|_| device(bytes)).collect()
}

pub fn client_hello(bytes: &mut Bytes<'_>) -> Hello {
    const NAMES: [&str; 5] =
        ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_VISIBLE_DEVICES", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "CUDA_MPS_CLIENT_PRIORITY", "CUDA_MPS_SM_PARTITION"];
    const VALUES: [&str; 8] = ["50", "0,1", "0=1G", "1", "GPU-", "", "-1", "99999999999999999999"];
    let environment = (0..bytes.below(4)).map(|_| (bytes.text(&NAMES), bytes.text(&VALUES))).collect();
    Hello::Client { version: version(bytes), pid: bytes.mostly(&CLIENTS), environment, program: bytes.text(&["./a.out", ""]) }
}

/// Any hello; `processes` are those that could say it.
pub fn hello(bytes: &mut Bytes<'_>, processes: &[u32]) -> Hello {
    let known = if processes.is_empty() { &CLIENTS[..] } else { processes };
    match bytes.below(8) {
        0 => client_hello(bytes),
        1 => Hello::Server { version: version(bytes), pid: bytes.mostly(known), uid: bytes.pick(&USERS), devices: vec![bytes.text(&["sim:h200", "sim:l4"])] },
        2 => Hello::Keeper { version: version(bytes), pid: bytes.mostly(known) },
        _ => Hello::Executor {
            version: version(bytes),
            pid: bytes.mostly(known),
            generation: bytes.mostly(&[0, 1, 2]),
            serving: bytes.one_in(4),
            devices: devices(bytes),
            scope: bytes.pick(&[Scope::Shared, Scope::Shared, Scope::Rest, Scope::Own { session: 1 }]),
            stripe: bytes.mostly(&[0, 1]),
            first_queue: bytes.mostly(&[0, 10, 32]),
        },
    }
}

fn grant(bytes: &mut Bytes<'_>) -> Grant {
    let devices = (0..bytes.pick(&[1, 1, 2, 0])).map(|_| (bytes.mostly(&[0, 1]), bytes.long())).collect();
    let sms = (0..bytes.pick(&[0, 0, 1])).map(|_| vec![bytes.mostly(&[0, 1]); bytes.below(4)]).collect();
    let group = if bytes.one_in(3) { Some(group(bytes)) } else { None };
    Grant { share: share(bytes), priority: bytes.mostly(&[0, 1]), devices, sms, home: home(bytes), group }
}

fn group(bytes: &mut Bytes<'_>) -> GroupGrant {
    let share = if bytes.one_in(2) { Some(share(bytes)) } else { None };
    let memory = (0..bytes.pick(&[1, 2, 0, 17])).map(|_| bytes.long()).collect();
    GroupGrant { name: bytes.text(&["pod", "job", ""]), clients: bytes.mostly(&[0, 1, 2]), memory, share }
}

fn home(bytes: &mut Bytes<'_>) -> Home {
    bytes.pick(&[Home::Shared, Home::Shared, Home::Own { by: Wisher::Client }, Home::Own { by: Wisher::Administrator }, Home::Own { by: Wisher::Kernels }])
}

fn share(bytes: &mut Bytes<'_>) -> Share {
    Share::parse(bytes.pick(&["100", "50", "0.1", "12.5"])).unwrap_or(Share::ALL)
}

/// What a daemon says; its requests are numbered.
pub fn to_server(bytes: &mut Bytes<'_>, request: u64) -> ToServer {
    match bytes.below(11) {
        10 => ToServer::SetGroup { request, group: group(bytes) },
        9 => ToServer::Move { request, pid: bytes.mostly(&CLIENTS), own: bytes.one_in(2) },
        8 => ToServer::Ping { request },
        0..=3 => ToServer::Client { hello: client_hello(bytes), pid: bytes.mostly(&CLIENTS), uid: bytes.pick(&USERS), grant: grant(bytes) },
        4 => ToServer::Status { request },
        5 => ToServer::Terminate { request, pid: bytes.mostly(&CLIENTS) },
        6 => ToServer::SetShare { request, pid: bytes.mostly(&CLIENTS), share: share(bytes) },
        _ => ToServer::Shutdown { force: bytes.one_in(2) },
    }
}

fn status(bytes: &mut Bytes<'_>, sessions: &[u32]) -> ClientStatus {
    let session = bytes.mostly(sessions);
    ClientStatus {
        session,
        pid: bytes.mostly(&CLIENTS),
        takeovers: bytes.mostly(&[0, 1]),
        error: bytes.mostly(&[0, 700]),
        kernels: bytes.long(),
        ..ClientStatus::default()
    }
}

fn config(bytes: &mut Bytes<'_>, known: &[u32]) -> SessionConfig {
    SessionConfig {
        id: bytes.mostly(known),
        pid: bytes.mostly(&CLIENTS),
        uid: bytes.pick(&USERS),
        program: bytes.text(&["./a.out"]),
        window_slot: bytes.mostly(&[0, 1, 2]),
        priority: bytes.mostly(&[0, 1]),
        parts: (0..bytes.pick(&[1, 1, 0]))
            .map(|_| DeviceGrant { device: bytes.mostly(&[0]), multiprocessors: bytes.mostly(&[0, 8]), memory_limit: bytes.long() })
            .collect(),
        sms: Vec::new(),
        home: home(bytes),
        may_run_unbounded: false,
        group: if bytes.one_in(4) { Some(Membership { group: bytes.text(&["pod", "job"]), one_part: bytes.one_in(2) }) } else { None },
    }
}

/// What an executor says of these sessions.
pub fn from_executor(bytes: &mut Bytes<'_>, sessions: &[u32], generation: u32) -> FromExecutor {
    let known = if sessions.is_empty() { &[1, 2][..] } else { sessions };
    let why = |bytes: &mut Bytes<'_>| bytes.text(&["", "", "it cannot be"]);
    match bytes.below(18) {
        16 | 17 => FromExecutor::Released { error: why(bytes), status: Box::new(status(bytes, known)), paused_us: bytes.long(), lasting: bytes.one_in(2) },
        18 => FromExecutor::Confined { session: bytes.mostly(known), why: why(bytes) },
        12 => FromExecutor::Serves { request: u64::from(bytes.mostly(&[1])), session: Box::new(config(bytes, known)) },
        13 => FromExecutor::ServesEnd { request: u64::from(bytes.mostly(&[1])) },
        14 => FromExecutor::Beat { lanes: vec![bytes.long(); bytes.below(3)] },
        15 => FromExecutor::KeeperLost { number: u64::from(bytes.mostly(&[1, 2, 3])) },
        0..=2 => FromExecutor::Active {
            generation: bytes.mostly(&[generation]),
            resumed: (0..bytes.below(4)).map(|_| bytes.mostly(known)).collect(),
            lost: (0..bytes.pick(&[0, 0, 1])).map(|_| (bytes.mostly(known), why(bytes))).collect(),
            suspects: (0..bytes.pick(&[0, 0, 1])).map(|_| bytes.mostly(known)).collect(),
        },
        3 | 4 => FromExecutor::Attached { session: bytes.mostly(known), error: why(bytes), again: bytes.one_in(4) },
        5 | 6 => FromExecutor::Detached { status: Box::new(status(bytes, known)) },
        7 | 8 => {
            let clients = (0..bytes.below(4)).map(|_| status(bytes, known)).collect();
            FromExecutor::Metrics { request: u64::from(bytes.mostly(&[1, 2, 3, 4])), clients, more: bytes.one_in(4) }
        }
        9 => FromExecutor::Shared { request: u64::from(bytes.mostly(&[1, 2, 3, 4])), session: bytes.mostly(known), error: why(bytes) },
        10 => FromExecutor::Fault { session: bytes.mostly(known), result: bytes.mostly(&[700, 0]), text: why(bytes) },
        _ => FromExecutor::Failed { why: why(bytes) },
    }
}

/// What a server says to its daemon.
pub fn from_server(bytes: &mut Bytes<'_>) -> FromServer {
    match bytes.below(8) {
        0..=2 => FromServer::Ready { devices: devices(bytes) },
        3 => FromServer::Failed { why: bytes.text(&["no device", ""]) },
        4 => FromServer::Status { request: u64::from(bytes.word()), server: ServerStatus::default(), more: bytes.one_in(2) },
        5 => FromServer::Terminated { request: u64::from(bytes.word()), found: bytes.one_in(2), error: bytes.text(&["", "no"]) },
        6 => FromServer::Clients { count: bytes.mostly(&[0, 1, 2]), taken: u64::from(bytes.mostly(&[0, 1, 2])) },
        _ => FromServer::Note { text: bytes.text(&["a line"]) },
    }
}

/// A question to a keeper.
pub fn to_keeper(bytes: &mut Bytes<'_>, request: u64) -> ToKeeper {
    const KEYS: [&str; 3] = ["session", "extent-0", ""];
    let session = bytes.mostly(&[1, 0, 2, u32::MAX]);
    match bytes.below(10) {
        0..=4 => ToKeeper::Keep { request, session, key: bytes.text(&KEYS), note: bytes.text(&["", "4096"]) },
        5 => ToKeeper::Drop { request, session, key: bytes.text(&KEYS) },
        6 => ToKeeper::DropSession { request, session },
        7 | 8 => ToKeeper::List { request, session },
        _ => ToKeeper::Quit,
    }
}
