//! Messages on the sockets. Every packet is one JSON object; file descriptors travel beside it, in
//! the order that the message's documentation names.
//!
//! Compatibility: the first packet of every connection carries [`crate::VERSION`]. A peer of
//! another version is answered with `Refused` and a sentence.
//!
//! One file, although long: it is a list, and both ends of a socket are read side by side.

pub use crate::facts::{Capabilities, DeviceFacts};
use crate::share::Share;
use serde::{Deserialize, Serialize};

/// Largest packet in bytes.
pub const MAX_PACKET: usize = 256 * 1024;
/// Most clients in one packet of metrics or status. With their longest texts so many still fit into
/// the send buffer of a socket (208 KiB by default).
pub const CLIENTS_A_PACKET: usize = 64;

/// First packet of every peer that connects to the daemon's `cumux` socket or to a server's socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "hello", rename_all = "snake_case")]
pub enum Hello {
    /// A CUDA program. Answered with [`Reply`]. Descriptor, optional: a pidfd of its own process,
    /// for a daemon whose kernel cannot make one from the socket.
    Client {
        /// The sender's [`crate::VERSION`].
        version: u32,
        /// Process id in the client's own PID namespace. The kernel's credentials count, not this.
        pid: u32,
        /// Values of the client's CUDA_MPS_* and CUDA_VISIBLE_DEVICES variables.
        environment: Vec<(String, String)>,
        /// Name of the client's program, for lists and logs.
        program: String,
    },
    /// A server that serves this daemon's pipe directory. Descriptor, where the server runs as
    /// another user than the daemon: the read end of its standard error.
    Server {
        /// The sender's [`crate::VERSION`].
        version: u32,
        /// The server's process id.
        pid: u32,
        /// The user whose clients it serves.
        uid: u32,
        /// Its devices, named as in `--device`.
        devices: Vec<String>,
    },
    /// The keeper of this server.
    Keeper {
        /// The sender's [`crate::VERSION`].
        version: u32,
        /// The keeper's process id.
        pid: u32,
    },
    /// An executor or standby.
    Executor {
        /// The sender's [`crate::VERSION`].
        version: u32,
        /// The executor's process id.
        pid: u32,
        /// Number of the executor among those that served: 1 for the first, one more after each
        /// takeover; 0 for one that does not serve yet.
        generation: u32,
        /// True if it already runs sessions, because the server was rebuilt around it.
        serving: bool,
        /// The devices that it has opened; empty if it failed ([`FromExecutor::Failed`] follows).
        devices: Vec<DeviceFacts>,
        /// Whom it serves, or is to serve.
        #[serde(default)]
        scope: Scope,
        /// That of [`ToExecutor::Activate`]; 0 for one that does not serve yet.
        #[serde(default)]
        stripe: u32,
        /// The lowest number of its queues on the card; 0 if its devices number none. The lower it
        /// is, the sooner the driver notices a fault (decision 0128).
        #[serde(default)]
        first_queue: u32,
    },
}

/// Whom an executor serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// All sessions that have no executor of their own.
    #[default]
    Shared,
    /// One session alone.
    Own {
        /// That session.
        session: u32,
    },
    /// The sessions that were left to it when it let go of all others ([`FromExecutor::Occupied`]).
    Rest,
}

/// In which executor a session is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Home {
    /// In the one that it shares with all others.
    #[default]
    Shared,
    /// In one of its own.
    Own {
        /// Who has wanted it so.
        by: Wisher,
    },
}

/// Who has wanted that a session has an executor of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wisher {
    /// The client, by `CUMUX_ISOLATION`.
    Client,
    /// The daemon's default.
    Default,
    /// `cumux move`.
    Administrator,
    /// The server: the shared executor could not take the session back.
    Server,
    /// A kernel of the client is unbounded ([`crate::module::Unbounded`]).
    Kernels,
}

/// In which executor a client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// In none at the moment.
    Nowhere,
    /// In the one that it shares with all others.
    #[default]
    Shared,
    /// In one of its own.
    Own,
    /// In one that all others have left.
    Apart,
}

/// Answer to a client's hello.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    /// The client has a session. Descriptors: ring, page, window, doorbell (eventfd), pidfd of the
    /// server, pidfd of the keeper.
    Welcome {
        /// The sender's [`crate::VERSION`].
        version: u32,
        /// Number of the session among the server's.
        session: u32,
        /// Where the window is mapped: [`crate::layout::window_address`] of this slot.
        window_slot: u32,
        /// The devices that the client sees, by its own ordinals.
        devices: Vec<DeviceFacts>,
        /// What the client may use of each of these devices.
        parts: Vec<DeviceGrant>,
        /// True if the parts are static partitions. The client's own percentages then mean nothing.
        #[serde(default)]
        fixed: bool,
    },
    /// No server serves this client.
    Refused {
        /// The `CUresult` that `cuInit` returns.
        result: u32,
        /// A sentence for the user: the reason, and what to do.
        why: String,
    },
}

/// One client's session, as server, keeper and executors know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionConfig {
    /// Number of the session among the server's.
    pub id: u32,
    /// The client's process id in the daemon's PID namespace, or a number that the daemon assigned.
    pub pid: u32,
    /// The client's user.
    pub uid: u32,
    /// Name of the client's program.
    pub program: String,
    /// Where the window is mapped: [`crate::layout::window_address`] of this slot.
    pub window_slot: u32,
    /// 0 normal, 1 below normal (`CUDA_MPS_CLIENT_PRIORITY`).
    pub priority: u32,
    /// What it may use of its devices, by its own ordinals.
    pub parts: Vec<DeviceGrant>,
    /// Static partitioning: the indices of the SMs that it runs on, for each of its devices. Empty
    /// where a share is a count of SMs.
    #[serde(default)]
    pub sms: Vec<Vec<u32>>,
    /// In which executor it is to be.
    #[serde(default)]
    pub home: Home,
    /// Its unbounded kernels run beside others: it cannot have an executor of its own, or somebody
    /// has decided so.
    #[serde(default)]
    pub may_run_unbounded: bool,
    /// The group to which it belongs. The session's last file is then the accounts of the group.
    #[serde(default)]
    pub group: Option<Membership>,
}

/// A client's place in a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// The group's name.
    pub group: String,
    /// All clients of the group run on the same multiprocessors: the share of each is the group's.
    pub one_part: bool,
}

/// What a session may use of one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceGrant {
    /// The device's place in the server's list.
    pub device: u32,
    /// Multiprocessors that the session may run on; 0 = all of them.
    pub multiprocessors: u32,
    /// Bytes of device memory that the session may have; 0 = no limit.
    pub memory_limit: u64,
}

/// What the daemon allows a client: for each limit, the tighter of the client's wish and the
/// settings of daemon and server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The part of every device's multiprocessors.
    pub share: Share,
    /// 0 normal, 1 below normal.
    pub priority: u32,
    /// The devices that the client sees, by its own ordinals: place in the server's list, and bytes
    /// of memory (0 = no limit).
    pub devices: Vec<(u32, u64)>,
    /// Static partitioning: the indices of its partition's SMs on each of `devices`. Empty without
    /// static partitioning.
    #[serde(default)]
    pub sms: Vec<Vec<u32>>,
    /// In which executor the client is to be.
    #[serde(default)]
    pub home: Home,
    /// The group to which the client belongs, with its limits now.
    #[serde(default)]
    pub group: Option<GroupGrant>,
}

/// What all clients of a group may use together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupGrant {
    /// Its name.
    pub name: String,
    /// How many clients it may have at the same time; 0 = no limit.
    pub clients: u32,
    /// Bytes of memory on each device of the server, by the device's place in the server's list; 0
    /// = no limit.
    pub memory: Vec<u64>,
    /// Its part of every device's multiprocessors, on which all its clients run. None where each
    /// client has a share of its own.
    pub share: Option<Share>,
}

/// Daemon to server. `request` is a number of the daemon's choice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "to_server", rename_all = "snake_case")]
pub enum ToServer {
    /// Hands a client over. Descriptors: the client's socket, and a pidfd of its process.
    Client {
        /// The client's hello without its environment: what the environment asks for is in `grant`.
        hello: Hello,
        /// The client's process id according to the kernel. A process without one in the daemon's
        /// PID namespace has a number that the daemon assigned.
        pid: u32,
        /// The client's user according to the kernel.
        uid: u32,
        /// What the client may use.
        grant: Grant,
    },
    /// Asks for [`FromServer::Status`].
    Status {
        /// Repeated by the answer.
        request: u64,
    },
    /// Ends one client: its calls return MPS_CLIENT_TERMINATED. Answered with
    /// [`FromServer::Terminated`].
    Terminate {
        /// Repeated by the answer.
        request: u64,
        /// The client's number as in [`ClientStatus::pid`].
        pid: u32,
    },
    /// Asks for [`FromServer::Pong`], to see whether the server's loop still runs.
    Ping {
        /// Repeated by the answer.
        request: u64,
    },
    /// Changes a running client's share of its devices. Answered with [`FromServer::Shared`] once
    /// the new share is in force.
    SetShare {
        /// Repeated by the answer.
        request: u64,
        /// The client's number as in [`ClientStatus::pid`].
        pid: u32,
        /// The new share.
        share: Share,
    },
    /// Changes the limits of a group that has clients here. Those clients keep what they have.
    /// Answered with [`FromServer::Regrouped`] when the limits are in force.
    SetGroup {
        /// Repeated by the answer.
        request: u64,
        /// The group with its new limits.
        group: GroupGrant,
    },
    /// Moves a running client to an executor of its own, or back to that of all others. Answered
    /// with [`FromServer::Moved`] when it is there, or stays where it was.
    Move {
        /// Repeated by the answer.
        request: u64,
        /// The client's number as in [`ClientStatus::pid`].
        pid: u32,
        /// True: to one of its own.
        own: bool,
    },
    /// The server replaces its executors, its keeper, and at last itself by this program, while
    /// clients work. Answered with [`FromServer::Upgraded`] before it ends itself; the daemon
    /// starts it anew.
    Upgrade {
        /// Repeated by the answer.
        request: u64,
        /// The program's file.
        program: String,
    },
    /// Ends the server.
    Shutdown {
        /// True: now. False: when its clients are gone.
        force: bool,
    },
}

/// Server to daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "from_server", rename_all = "snake_case")]
pub enum FromServer {
    /// Executor and keeper are up: the daemon can hand clients over.
    Ready {
        /// The server's devices, in the order of its list.
        devices: Vec<DeviceFacts>,
    },
    /// The server cannot serve.
    Failed {
        /// A sentence for the user: the reason, and what to do.
        why: String,
    },
    /// Answer to [`ToServer::Status`]. A status that does not fit into one packet comes in several.
    Status {
        /// That of the question.
        request: u64,
        /// The server's state, with at most [`CLIENTS_A_PACKET`] clients.
        server: ServerStatus,
        /// True if another packet of the same request follows, with further clients.
        #[serde(default)]
        more: bool,
    },
    /// Answer to [`ToServer::Terminate`].
    Terminated {
        /// That of the question.
        request: u64,
        /// Whether the server has a client of that number.
        found: bool,
        /// Why the client could not be ended; empty if it was.
        #[serde(default)]
        error: String,
    },
    /// Answer to [`ToServer::Ping`].
    Pong {
        /// That of the question.
        request: u64,
    },
    /// Answer to [`ToServer::SetShare`].
    Shared {
        /// That of the question.
        request: u64,
        /// Multiprocessors of the client on its first device, before the change.
        before: u32,
        /// Multiprocessors of the client on its first device from now on.
        now: u32,
        /// Why the share was not changed; empty if it was.
        error: String,
    },
    /// Answer to [`ToServer::SetGroup`].
    Regrouped {
        /// That of the question.
        request: u64,
        /// Why the new limits are not in force, or not for all its clients; empty if they are.
        error: String,
    },
    /// Answer to [`ToServer::Move`].
    Moved {
        /// That of the question.
        request: u64,
        /// Whether the server has a client of that number.
        found: bool,
        /// The process id of the executor that has the client now; 0 if none has.
        executor: u32,
        /// Why the client was not moved; empty if it was.
        error: String,
    },
    /// Answer to [`ToServer::Upgrade`]: the server ends now, and the next one goes on where it was.
    Upgraded {
        /// That of the question.
        request: u64,
        /// Clients that could not leave their executor yet, with the reasons. They do later.
        staying: Vec<(u32, String)>,
        /// Why nothing was replaced; empty if it was.
        error: String,
    },
    /// Sent after every client that comes, goes or is turned away. The daemon compares `taken` with
    /// the number of clients that it handed over: the difference is still on the way.
    Clients {
        /// Clients that the server has now, with those that wait for their session.
        count: u32,
        /// Clients that the server has received on this connection so far.
        taken: u64,
    },
    /// A line of server.log that the daemon's log repeats.
    Note {
        /// The line without its end.
        text: String,
    },
}

/// What a server answers to a question for its status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct ServerStatus {
    /// The server's process id.
    pub pid: u32,
    /// The user whose clients it serves.
    pub uid: u32,
    /// INITIALIZING, ACTIVE, UNRESPONSIVE (the executor stands still) or FAULT.
    pub state: String,
    /// Process id of the executor that serves; 0 while there is none.
    pub executor: u32,
    /// Process id of the standby; 0 while there is none.
    pub standby: u32,
    /// Process id of the keeper; 0 while there is none.
    pub keeper: u32,
    /// How often a standby took over from an executor since the server started.
    pub takeovers: u32,
    /// Number of the executor that serves: 1 for the first, one more after each takeover.
    #[serde(default)]
    pub generation: u32,
    /// Why there is no standby and will be none. Empty where there is one or one is starting.
    #[serde(default)]
    pub no_standby: String,
    /// Why the server ends when its clients have gone, as the daemon knows it. Empty where it
    /// stays.
    #[serde(default)]
    pub leaving: String,
    /// Its devices, named as in `--device`.
    pub devices: Vec<String>,
    /// The same devices with their properties; empty until an executor has opened them.
    #[serde(default)]
    pub cards: Vec<ServedDevice>,
    /// The groups that have clients here.
    #[serde(default)]
    pub groups: Vec<GroupStatus>,
    /// Clients with a session.
    pub clients: Vec<ClientStatus>,
    /// Clients that have gone, newest last (bounded).
    pub gone: Vec<ClientStatus>,
}

/// A device that a server serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct ServedDevice {
    /// The device's name in `--device`.
    pub id: String,
    /// The name that `cuDeviceGetName` answers.
    pub name: String,
    /// Multiprocessors that it has.
    pub multiprocessors: u32,
    /// Bytes of memory that it has.
    pub memory: u64,
    /// Its UUID, as NVIDIA writes it (`GPU-…`); empty where the server is of an older version.
    #[serde(default)]
    pub uuid: String,
    /// Why nobody can use it at the moment; empty while it can be used.
    #[serde(default)]
    pub unavailable: String,
}

/// What a group uses at a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct GroupStatus {
    /// Its name.
    pub name: String,
    /// How many clients it has.
    pub clients: u32,
    /// Bytes of memory that they have on each device of the server.
    pub used: Vec<u64>,
}

/// What one client did since it connected. Times are in nanoseconds, memory is in bytes. Counts
/// only grow, also across takeovers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct ClientStatus {
    /// Number of the session among the server's.
    pub session: u32,
    /// The client's process id in the daemon's PID namespace, or a number that the daemon assigned.
    pub pid: u32,
    /// Name of the client's program.
    pub program: String,
    /// Kernels that are done.
    pub kernels: u64,
    /// Kernels that went to the card together with others, in one call of the driver. Counted at
    /// submission, hence a little ahead of `kernels`.
    #[serde(default)]
    pub coalesced: u64,
    /// Copies, sets and other stream work that is done.
    pub copies: u64,
    /// Time its kernels had the device, as the device measures it. Kernels that run at the same
    /// time add up.
    pub gpu_ns: u64,
    /// Device memory in use.
    pub memory: u64,
    /// Most device memory that was in use at once.
    pub memory_peak: u64,
    /// Operations accepted and not done.
    pub in_flight: u64,
    /// Times a thread of the client waited for work, an answer or room in its ring. The client's
    /// own count.
    #[serde(default)]
    pub waits: u64,
    /// How long the client's threads slept for `waits`. The client's own count.
    #[serde(default)]
    pub wait_ns: u64,
    /// Calls that the executor answered.
    #[serde(default)]
    pub requests: u64,
    /// Time of those answered calls that were slow (modules, memory that had to be made).
    #[serde(default)]
    pub request_ns: u64,
    /// Times the client reached the bound on its work in flight.
    #[serde(default)]
    pub held: u64,
    /// How long its work was held back at that bound.
    #[serde(default)]
    pub held_ns: u64,
    /// Times the client's journal was full, so that its records had to wait.
    #[serde(default)]
    pub stalls: u64,
    /// How long its records waited for room in the journal.
    #[serde(default)]
    pub stall_ns: u64,
    /// Times the client waited, to load a module, for a moment without long kernels on the card.
    #[serde(default)]
    pub quiets: u64,
    /// How long it waited for such moments.
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
    /// `CUresult` of its sticky error, 0 if healthy.
    pub error: u32,
    /// The sticky error in words, with kernel and address where they are known.
    pub fault: String,
    /// Times another executor took the session over from one that was lost, or that was occupied.
    pub takeovers: u32,
    /// Times the session moved to another executor while the one before went on.
    #[serde(default)]
    pub moves: u32,
    /// `running`, `exited`, `killed`, `terminated`.
    pub state: String,
    /// In which executor it is.
    #[serde(default)]
    pub place: Place,
    /// The process id of that executor; 0 while there is none.
    #[serde(default)]
    pub executor: u32,
    /// Why it is not with all others, in words; empty where it is.
    #[serde(default)]
    pub place_why: String,
    /// The group to which it belongs; empty if to none.
    #[serde(default)]
    pub group: String,
}

/// Server to executor or standby. `request` is a number of the server's choice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "to_executor", rename_all = "snake_case")]
pub enum ToExecutor {
    /// A connection to the keeper. Descriptor: the socket. Every executor receives one before any
    /// session, and a new one with each keeper.
    Keeper {
        /// Which of the server's keepers this is, counted from the first.
        number: u64,
    },
    /// A session to serve. Descriptors: ring, page, window, journal, doorbell, marks, pidfd of the
    /// client's process, and the accounts of its group if it belongs to one.
    ///
    /// The active executor answers with [`FromExecutor::Attached`]; a standby only remembers the
    /// session. The message may come twice for one session, when a takeover or a rebuilt server
    /// makes it doubtful that the first one counted. The second one only repeats the answer.
    Attach {
        /// The session.
        session: SessionConfig,
        /// If nobody knows why the executor apart that had it ended: how long that had served, in
        /// milliseconds. A standby ignores this; [`ToExecutor::Activate`] tells it.
        unexplained_after_ms: Option<u64>,
    },
    /// The client has gone: the executor stops its work and frees everything. The active executor
    /// always answers with [`FromExecutor::Detached`], also for a session that it does not know.
    /// The session's window slot is not assigned again before that answer.
    Detach {
        /// A [`Session::id`].
        session: u32,
        /// True: the client lives, in another executor for now, and is to come here later. A
        /// standby keeps the modules that it has loaded for it.
        #[serde(default)]
        comes_later: bool,
    },
    /// Ends a client that lives: its work stops and it gets a sticky error.
    Terminate {
        /// A [`Session::id`].
        session: u32,
        /// The sticky error, a `CUresult`.
        result: u32,
    },
    /// A rebuilt server asks for the sessions that this executor serves, or remembers as a standby.
    /// Answered with one [`FromExecutor::Serves`] each, then [`FromExecutor::ServesEnd`].
    Sessions {
        /// Repeated by the answer.
        request: u64,
    },
    /// The old executor has been reaped: the standby serves every session from here. Answered with
    /// [`FromExecutor::Active`].
    Activate {
        /// The new executor's number: one more than the old one's.
        generation: u32,
        /// How long the old executor had served, in milliseconds, if nobody knows why it ended.
        /// Absent: it let go of its sessions, or a client was told that it broke the device.
        unexplained_after_ms: Option<u64>,
        /// The part of the arena in which it looks for addresses first. Executors that live at the
        /// same time have different ones, so that a session can go from one to another.
        #[serde(default)]
        stripe: u32,
    },
    /// The session goes on in another executor. The executor takes no more of its records, waits
    /// until its streams are empty, and lets go of it. Answered with [`FromExecutor::Released`].
    Release {
        /// A [`Session::id`].
        session: u32,
        /// How long it may take no records.
        wait_ms: u64,
        /// True: nobody waits for it. It is paused only where its work is about to end.
        unless_still: bool,
    },
    /// After a fault another executor ends or comes up. Meanwhile it holds a lock of the driver,
    /// which all processes of a card share. So this one makes only calls of the driver that its
    /// clients need now. Not answered.
    SpareDriver {
        /// True: from now on; false: no more.
        spare: bool,
    },
    /// The session's unbounded kernels run in this executor: see [`FromExecutor::Confined`].
    Unconfine {
        /// A [`Session::id`].
        session: u32,
    },
    /// A session has these parts from now on; work that begins later runs on them. Answered with
    /// [`FromExecutor::Shared`] by the active executor.
    Share {
        /// Repeated by the answer.
        request: u64,
        /// A [`Session::id`].
        session: u32,
        /// The new parts, by the client's own ordinals.
        parts: Vec<DeviceGrant>,
    },
    /// Asks for [`FromExecutor::Metrics`].
    Metrics {
        /// Repeated by the answer.
        request: u64,
    },
    /// The server was rebuilt; the executor writes the new process id into every page.
    Server {
        /// The new server's process id.
        pid: u32,
    },
    /// The executor takes no further sessions; those that it has leave for another.
    Retire,
    /// The executor ends.
    Quit,
}

/// A fault of a client, in the file that `cumux faults` reads.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FaultRecord {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// The number of the client's session.
    pub session: u32,
    /// The client's process.
    pub pid: u32,
    /// The client's program.
    pub program: String,
    /// The client's sticky error, a `CUresult`.
    pub result: u32,
    /// The kernel, the place in it, and how it was found out whose it was: what is known.
    pub text: String,
    /// The name of the file with the core dump; empty if there is none.
    #[serde(default)]
    pub dump: String,
}

/// Executor or standby to server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "from_executor", rename_all = "snake_case")]
pub enum FromExecutor {
    /// Answer to [`ToExecutor::Attach`].
    Attached {
        /// A [`Session::id`].
        session: u32,
        /// Why the session cannot be served; empty if it is.
        error: String,
        /// True if the reason was a missing keeper: the server may ask again once there is one.
        #[serde(default)]
        again: bool,
    },
    /// Answer to [`ToExecutor::Detach`]: nothing of the session is left.
    Detached {
        /// The session's last counts.
        status: Box<ClientStatus>,
    },
    /// Answer to [`ToExecutor::Release`].
    Released {
        /// Why the executor keeps the session and goes on with it; empty if it has let go, and
        /// touches it no more.
        error: String,
        /// The session's counts.
        status: Box<ClientStatus>,
        /// How long it took no records in vain, in microseconds.
        #[serde(default)]
        paused_us: u64,
        /// True if the reason does not pass.
        #[serde(default)]
        lasting: bool,
    },
    /// The client has launched an unbounded kernel, which has not begun: records of the session are
    /// not taken any more until it goes to an executor of its own, or [`ToExecutor::Unconfine`]
    /// comes.
    Confined {
        /// A [`Session::id`].
        session: u32,
        /// The kernel and what it does.
        why: String,
    },
    /// Answer to [`ToExecutor::Activate`]: the takeover is done.
    Active {
        /// The number of the executor that serves now.
        generation: u32,
        /// Sessions that go on.
        resumed: Vec<u32>,
        /// Sessions that cannot go on, with the reasons.
        lost: Vec<(u32, String)>,
        /// Those of `resumed` whose work may have ended the earlier executors.
        #[serde(default)]
        suspects: Vec<u32>,
    },
    /// Answer to [`ToExecutor::Sessions`], one for each session. Descriptors as in
    /// [`ToExecutor::Attach`].
    Serves {
        /// That of the question.
        request: u64,
        /// The session.
        session: Box<SessionConfig>,
    },
    /// Follows the last [`FromExecutor::Serves`].
    ServesEnd {
        /// That of the question.
        request: u64,
    },
    /// Sign of life, sent several times within one heartbeat interval.
    Beat {
        /// A counter for each thread that reads clients' records. A counter that stands still
        /// belongs to a thread that hangs.
        lanes: Vec<u64>,
    },
    /// The keeper does not answer: the executor needs another one.
    KeeperLost {
        /// [`ToExecutor::Keeper::number`] of the lost one.
        number: u64,
    },
    /// Answer to [`ToExecutor::Metrics`], in several packets where there are many clients.
    Metrics {
        /// That of the question.
        request: u64,
        /// At most [`CLIENTS_A_PACKET`] clients.
        clients: Vec<ClientStatus>,
        /// True if another packet of the same request follows.
        #[serde(default)]
        more: bool,
    },
    /// Answer to [`ToExecutor::Share`].
    Shared {
        /// That of the question.
        request: u64,
        /// A [`Session::id`].
        session: u32,
        /// Why the share was not changed; empty if it was.
        error: String,
    },
    /// Work of these sessions does not end, and stops what others need. The executor has let go of
    /// all other sessions and touches them no more; it serves these alone, and takes no others.
    Occupied {
        /// The sessions that stay.
        staying: Vec<u32>,
    },
    /// The device begins to look at a fault, and may be lost within a second or so. Until then,
    /// nothing should keep it busy.
    FaultNoticed,
    /// What the card has written down of the faults of these sessions; with a descriptor of the
    /// core dump, a file.
    CoreDump {
        /// Whose kernels it was, or may have been.
        sessions: Vec<u32>,
    },
    /// The device is lost, and the process ends now. It has said all it knows and touches no
    /// session any more, so a successor may take over although the process has not ended yet.
    DeviceLost {
        /// What has happened.
        why: String,
        /// True if a client was told that its work broke the device. Otherwise nobody knows whose
        /// work it was.
        blamed: bool,
    },
    /// A client caused a fault. The server writes it into its log.
    Fault {
        /// A [`Session::id`].
        session: u32,
        /// The client's sticky error, a `CUresult`.
        result: u32,
        /// The fault in words.
        text: String,
    },
    /// The executor cannot serve, because the device cannot be opened, for example. Follows a hello
    /// without devices; the process then ends.
    Failed {
        /// A sentence for the user: the reason, and what to do.
        why: String,
    },
}

/// To the keeper. `request` is a number of the sender's choice. An entry is named by `session` and
/// `key`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "to_keeper", rename_all = "snake_case")]
pub enum ToKeeper {
    /// Stores an entry in place of one with the same session and key. Descriptors: one or more,
    /// held open until the entry is dropped. Answered with [`FromKeeper::Kept`].
    Keep {
        /// Repeated by the answer.
        request: u64,
        /// First part of the entry's name.
        session: u32,
        /// Second part of the entry's name.
        key: String,
        /// For the reader of the entry; the keeper does not parse it.
        note: String,
    },
    /// Drops one entry. Answered with [`FromKeeper::End`].
    Drop {
        /// Repeated by the answer.
        request: u64,
        /// First part of the entry's name.
        session: u32,
        /// Second part of the entry's name.
        key: String,
    },
    /// Drops every entry of a session. Answered with [`FromKeeper::End`].
    DropSession {
        /// Repeated by the answer.
        request: u64,
        /// First part of the entry's name.
        session: u32,
    },
    /// Answered with one [`FromKeeper::Item`] per entry, then [`FromKeeper::End`]. The sender reads
    /// the answers while it waits.
    List {
        /// Repeated by the answer.
        request: u64,
        /// The session whose entries are asked for, 0 for all sessions.
        session: u32,
    },
    /// Serves one more connection: this is how executors get theirs. Descriptor: one end of the
    /// connection. Answered with [`FromKeeper::End`].
    Connect {
        /// Repeated by the answer.
        request: u64,
    },
    /// The keeper ends.
    Quit,
}

/// From the keeper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "from_keeper", rename_all = "snake_case")]
pub enum FromKeeper {
    /// Answer to [`ToKeeper::Keep`].
    Kept {
        /// That of the question.
        request: u64,
        /// Descriptors that the entry holds now: fewer than were sent if the keeper had no room for
        /// more.
        descriptors: u32,
    },
    /// One entry. Descriptors: those of the entry, in their order.
    Item {
        /// That of the question.
        request: u64,
        /// The session of the entry.
        session: u32,
        /// The key of the entry.
        key: String,
        /// The note that was stored with it.
        note: String,
    },
    /// The request is done, and no [`FromKeeper::Item`] of it follows.
    End {
        /// That of the question.
        request: u64,
    },
}
