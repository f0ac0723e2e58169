//! Messages on the sockets: one JSON object a packet, descriptors beside it in the order each message names.
//!
//! Compatibility: the first packet of every connection carries [`crate::VERSION`]; another version is answered with `Refused` and a sentence.

use crate::share::Share;
use serde::{Deserialize, Serialize};

/// Largest packet in bytes.
pub const MAX_PACKET: usize = 256 * 1024;
/// Clients in one packet of metrics or status: with their longest texts they fit into what a socket takes at once (208 KiB by default).
pub const CLIENTS_A_PACKET: usize = 64;

/// What a device is, for answering queries in the shim without asking anybody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceFacts {
    /// As in `--device`: `sim:h200`, `cuda:0`.
    pub id: String,
    /// As `cuDeviceGetName` answers.
    pub name: String,
    pub uuid: [u8; 16],
    /// PCI domain, bus, device.
    pub pci: [u32; 3],
    /// Bytes.
    pub memory: u64,
    /// `CUdevice_attribute` number and value; what is missing is answered with INVALID_VALUE.
    pub attributes: Vec<(u32, i32)>,
}

impl DeviceFacts {
    /// Value of an attribute, 0 where the device does not have it.
    #[must_use]
    pub fn attribute(&self, number: u32) -> i32 {
        self.attributes.iter().find(|(n, _)| *n == number).map_or(0, |(_, v)| *v)
    }
}

/// First packet of anybody who connects to the daemon's `cumux` socket or to a server's socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "hello", rename_all = "snake_case")]
pub enum Hello {
    /// A CUDA program. Answered with [`Reply`]. Descriptor: a handle of its own process, for daemons whose kernel does not give them one; or none.
    Client {
        version: u32,
        pid: u32,
        /// Values of the client's CUDA_MPS_* and CUDA_VISIBLE_DEVICES variables.
        environment: Vec<(String, String)>,
        program: String,
    },
    /// A server that serves this daemon's pipe directory, with its devices as in `--device`. Descriptor: where what it writes to standard error can be
    /// read, if it is not the daemon's user's.
    Server { version: u32, pid: u32, uid: u32, devices: Vec<String> },
    /// The keeper of this server.
    Keeper { version: u32, pid: u32 },
    /// An executor or standby; `serving` is true if it already runs sessions (the server was rebuilt).
    /// `alone` says why no second executor can work beside it (the card's compute mode, for example), and what to do; empty where one can.
    Executor {
        version: u32,
        pid: u32,
        generation: u32,
        serving: bool,
        devices: Vec<DeviceFacts>,
        #[serde(default)]
        alone: String,
    },
}

/// Answer to a client's hello.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    /// Descriptors: ring, page, window, doorbell (eventfd), pidfd of the server, pidfd of the keeper.
    Welcome {
        version: u32,
        session: u32,
        window_slot: u32,
        /// What the client sees, by its own ordinals.
        devices: Vec<DeviceFacts>,
        /// What it may use of each.
        parts: Vec<Part>,
        /// Its parts are static partitions: percentages of its own mean nothing.
        #[serde(default)]
        fixed: bool,
    },
    /// Nobody serves this client; `result` is the CUresult for cuInit, `why` says what to do.
    Refused { result: u32, why: String },
}

/// What one session is, as server, keeper and executors know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    pub id: u32,
    pub pid: u32,
    pub uid: u32,
    pub program: String,
    pub window_slot: u32,
    /// 0 normal, 1 below normal (`CUDA_MPS_CLIENT_PRIORITY`).
    pub priority: u32,
    /// Its devices, by its own ordinals.
    pub parts: Vec<Part>,
    /// Static partitioning: the very SMs it runs on, for each of its devices. Empty where shares are counts.
    #[serde(default)]
    pub sms: Vec<Vec<u32>>,
}

/// What a session may use of one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The device's place in the server's list.
    pub device: u32,
    /// Multiprocessors it may run on; 0 = all of them.
    pub multiprocessors: u32,
    /// Bytes of device memory it may have; 0 = no limit.
    pub memory_limit: u64,
}

/// What the daemon allows a client: the tighter of what it asks and what daemon and server were told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    pub share: Share,
    /// 0 normal, 1 below normal.
    pub priority: u32,
    /// The devices it sees, by its own ordinals: place in the server's list, and bytes of memory (0 = no limit).
    pub devices: Vec<(u32, u64)>,
    /// Static partitioning: the SMs of its partition on each of these devices, beside `devices`. Empty otherwise.
    #[serde(default)]
    pub sms: Vec<Vec<u32>>,
}

/// Daemon to server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "to_server", rename_all = "snake_case")]
pub enum ToServer {
    /// Descriptors: the client's socket, and a handle of its process. The hello is repeated without its environment, which is in the grant; the uid
    /// is the kernel's word. So is the pid; for a process that has none in the daemon's PID namespace it is a number that the daemon has given it.
    Client { hello: Hello, pid: u32, uid: u32, grant: Grant },
    /// Asks for [`FromServer::Status`] with the same number.
    Status { request: u64 },
    /// Ends one client: its calls return MPS_CLIENT_TERMINATED.
    Terminate { request: u64, pid: u32 },
    /// Asks for [`FromServer::Pong`] with the same number: whether the server still comes round.
    Ping { request: u64 },
    /// Gives a running client another share of its devices. Answered with [`FromServer::Shared`] when it holds.
    SetShare { request: u64, pid: u32, share: Share },
    /// Ends the server when its clients are gone, or now if `force`.
    Shutdown { force: bool },
}

/// Server to daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "from_server", rename_all = "snake_case")]
pub enum FromServer {
    /// Executor and keeper are up: clients can be handed over.
    Ready { devices: Vec<DeviceFacts> },
    /// Cannot serve; `why` says what to do.
    Failed { why: String },
    /// A status that does not fit into one packet comes in several: `more` of the same request follow, with the rest of the clients.
    Status {
        request: u64,
        server: ServerStatus,
        #[serde(default)]
        more: bool,
    },
    /// `error` says why the client could not be ended, empty if it was.
    Terminated {
        request: u64,
        found: bool,
        #[serde(default)]
        error: String,
    },
    /// Answer to `Ping`.
    Pong { request: u64 },
    /// The share of a client was changed: multiprocessors before and now, on its first device. `error` says why not, empty if all is well.
    Shared { request: u64, before: u32, now: u32, error: String },
    /// How many clients there are now, with those that wait for their session, and how many have been handed over on this connection: those that are
    /// still on their way can so be told from those that have gone. Sent after every client that comes, goes or is turned away.
    Clients { count: u32, taken: u64 },
    /// A line for server.log that the daemon's log should repeat.
    Note { text: String },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct ServerStatus {
    pub pid: u32,
    pub uid: u32,
    /// INITIALIZING, ACTIVE, UNRESPONSIVE (the executor stands still) or FAULT.
    pub state: String,
    pub executor: u32,
    pub standby: u32,
    pub keeper: u32,
    pub takeovers: u32,
    /// Number of the executor that serves: 1 for the first, one more after each takeover.
    #[serde(default)]
    pub generation: u32,
    /// Why there is no standby and will be none; empty where there is one or it is on its way.
    #[serde(default)]
    pub no_standby: String,
    /// Why it goes when its clients have gone, as the daemon knows it; empty where it stays.
    #[serde(default)]
    pub leaving: String,
    pub devices: Vec<String>,
    /// The same devices with what is known of them; empty until an executor has opened them.
    #[serde(default)]
    pub cards: Vec<Card>,
    pub clients: Vec<ClientStatus>,
    /// Clients that have gone, newest last (bounded).
    pub gone: Vec<ClientStatus>,
}

/// A device that a server serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Card {
    /// As in `--device`.
    pub id: String,
    pub name: String,
    pub multiprocessors: u32,
    /// Bytes it has.
    pub memory: u64,
}

/// What one client did since it connected. Times in nanoseconds, memory in bytes, counts only grow (also over takeovers).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct ClientStatus {
    pub session: u32,
    pub pid: u32,
    pub program: String,
    /// Kernels that are done.
    pub kernels: u64,
    /// Kernels that went to the card together with others, in one call of the driver; a little ahead of `kernels`.
    #[serde(default)]
    pub coalesced: u64,
    /// Copies, sets and other stream work that is done.
    pub copies: u64,
    /// Time its kernels had the device, as the device measures it; kernels that run at the same time add up.
    pub gpu_ns: u64,
    pub memory: u64,
    pub memory_peak: u64,
    /// Work accepted and not done.
    pub in_flight: u64,
    /// Times a thread of the client waited for work, an answer or room in its ring, and how long it slept for that. The client's own count.
    #[serde(default)]
    pub waits: u64,
    #[serde(default)]
    pub wait_ns: u64,
    /// Calls that the executor answered, and the time of those that were slow (modules, memory that had to be made).
    #[serde(default)]
    pub requests: u64,
    #[serde(default)]
    pub request_ns: u64,
    /// Times it came to the bound on work in flight, and how long its work was held back there.
    #[serde(default)]
    pub held: u64,
    #[serde(default)]
    pub held_ns: u64,
    /// Times its journal was full so that its records had to wait, and for how long.
    #[serde(default)]
    pub stalls: u64,
    #[serde(default)]
    pub stall_ns: u64,
    /// Times it waited for a moment when nothing long ran on the card (for loading a module), and for how long.
    #[serde(default)]
    pub quiets: u64,
    #[serde(default)]
    pub quiet_ns: u64,
    /// Times its work waited until host memory was pinned.
    #[serde(default)]
    pub registrations: u64,
    /// Multiprocessors of its share on its first device, 0 = all of them.
    #[serde(default)]
    pub multiprocessors: u32,
    /// Its memory limit on its first device, 0 = none.
    #[serde(default)]
    pub memory_limit: u64,
    /// 0 normal, 1 below normal.
    #[serde(default)]
    pub priority: u32,
    /// Its devices, as places in the server's list.
    #[serde(default)]
    pub devices: Vec<u32>,
    /// CUresult of its sticky error, 0 if healthy.
    pub error: u32,
    /// The error in words, with kernel and address where known.
    pub fault: String,
    /// Times it went on under a new executor.
    pub takeovers: u32,
    /// `running`, `exited`, `killed`, `terminated`.
    pub state: String,
}

/// Server to executor or standby.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "to_executor", rename_all = "snake_case")]
pub enum ToExecutor {
    /// Descriptor: a socket to the keeper. `number` counts the server's keepers. Every executor gets one before any session, and a new one with each keeper.
    Keeper {
        number: u64,
    },
    /// Descriptors: ring, page, window, journal, doorbell, marks, handle of the client's process. Answered with `Attached` by the active one; a standby only
    /// remembers.
    /// May come twice for one session (when a takeover or a rebuilt server makes it doubtful that the first one counted): again `Attached`, else nothing.
    Attach {
        session: Session,
    },
    /// The client has gone: stop its work, free everything. Always answered with `Detached` by the active one, also for a session it does not know:
    /// until then the session's window slot is not given to anybody else.
    Detach {
        session: u32,
    },
    /// Ends a client that lives: sticky error `result`, work stopped.
    Terminate {
        session: u32,
        result: u32,
    },
    /// A rebuilt server asks which sessions this executor serves, or had been told of as a standby. Answered with one `Serves` each, then `ServesEnd`.
    Sessions {
        request: u64,
    },
    /// The old executor is reaped: serve every session from here, as generation `generation`. `lived_ms`: how long the old one had served.
    Activate {
        generation: u32,
        #[serde(default)]
        lived_ms: u64,
    },
    /// A session has these parts from now on: work that begins later runs on them. Answered with `Shared` by the active one.
    Share {
        request: u64,
        session: u32,
        parts: Vec<Part>,
    },
    Metrics {
        request: u64,
    },
    /// The server was rebuilt and has this pid: write it into every page.
    Server {
        pid: u32,
    },
    Quit,
}

/// Executor or standby to server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "from_executor", rename_all = "snake_case")]
pub enum FromExecutor {
    Attached {
        session: u32,
        /// Empty if all is well.
        error: String,
        /// There was no keeper at that moment: asked again when there is one, it may go well.
        #[serde(default)]
        again: bool,
    },
    Detached {
        status: Box<ClientStatus>,
    },
    /// Takeover done: sessions that went on and those that could not, with reasons. `suspects` are those of the ones that went on whose work may have been
    /// the end of the executors before.
    Active {
        generation: u32,
        resumed: Vec<u32>,
        lost: Vec<(u32, String)>,
        #[serde(default)]
        suspects: Vec<u32>,
    },
    /// Answer to `Sessions`. Descriptors as in `Attach`.
    Serves {
        request: u64,
        session: Box<Session>,
    },
    ServesEnd {
        request: u64,
    },
    /// Counters of the threads that take clients' records: each grows while its thread comes round. Sent several times within the time of a heartbeat.
    Beat {
        lanes: Vec<u64>,
    },
    /// This keeper does not answer: another one is wanted.
    KeeperLost {
        number: u64,
    },
    /// In several packets where there are many clients: `more` of the same request follow.
    Metrics {
        request: u64,
        clients: Vec<ClientStatus>,
        #[serde(default)]
        more: bool,
    },
    /// Answer to `Share`; `error` is empty if all is well.
    Shared {
        request: u64,
        session: u32,
        error: String,
    },
    /// A client made a fault. For the log.
    Fault {
        session: u32,
        result: u32,
        text: String,
    },
    /// Cannot serve, `why` says what to do (the device cannot be opened, for example). Sent after a hello without devices; the process then ends.
    Failed {
        why: String,
    },
}

/// To the keeper. Keys are chosen by the sender; the keeper parses nothing of `note`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "to_keeper", rename_all = "snake_case")]
pub enum ToKeeper {
    /// Descriptors: one or more, kept until dropped. Replaces what has the same session and key. Answered with `Kept`.
    Keep {
        request: u64,
        session: u32,
        key: String,
        note: String,
    },
    /// Answered with `End`, as are `DropSession` and `Connect`.
    Drop {
        request: u64,
        session: u32,
        key: String,
    },
    DropSession {
        request: u64,
        session: u32,
    },
    /// Answered with one `Item` per entry, then `End`. `session` = 0 for all. The sender reads while it waits.
    List {
        request: u64,
        session: u32,
    },
    /// Descriptor: one end of a new connection to serve (how executors get theirs).
    Connect {
        request: u64,
    },
    Quit,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "from_keeper", rename_all = "snake_case")]
pub enum FromKeeper {
    /// How many descriptors are kept under the key now: fewer than were sent when the keeper had no room for more.
    Kept {
        request: u64,
        descriptors: u32,
    },
    /// Descriptors as kept.
    Item {
        request: u64,
        session: u32,
        key: String,
        note: String,
    },
    End {
        request: u64,
    },
}
