//! The daemon: sockets, processes and threads around the pure [`Registry`].
//!
//! Threads: one accepts on each socket, one serves each text connection, each server connection and each handshake (all bounded), one waits for
//! each server process, one for signals; the caller's thread keeps the time. All of them meet under one lock in [`Daemon::feed`]; nothing is
//! received while it is held, and sending waits a second at most.

use crate::directory::{Claim, DirectoryError, PipeDirectory};
use crate::holders::Holders;
use crate::log::{self, Log, OnAccount, on_account_of};
use crate::partitions::Board;
use crate::registry::{Effect, Event, Registry, Token};
use crate::settings::Settings;
use crate::ui;
use cumux_link::{Connection, FolderError, LinkError, Listener, Process, reach};
use cumux_wire::VERSION;
use cumux_wire::message::{DeviceFacts, FromServer, Hello, Reply, ServerStatus, ToServer};
use cumux_wire::result;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::process::Signal;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Connections that are served at the same time, of each kind.
const MOST_CONNECTIONS: u32 = 1024;
/// How long a client or server may take for its hello.
const HELLO: Duration = Duration::from_secs(5);
/// How long a server may take to answer a question.
const ANSWER: Duration = Duration::from_secs(5);

/// What a daemon is started with.
#[derive(Debug, Clone)]
pub struct Options {
    pub pipe: PathBuf,
    pub log: PathBuf,
    /// Device names for servers, with commas between them: `cuda:0`, `sim:h200,sim:h200`.
    pub device: String,
    /// What `device_query` shows before any server runs; empty where only a driver can tell, who is asked when somebody wants to know.
    pub devices: Vec<DeviceFacts>,
    /// `-q`: ask at once.
    pub ready_devices: bool,
    pub settings: Settings,
    /// The program that is the server when called with `server`.
    pub program: PathBuf,
    /// Log lines also to standard output.
    pub echo: bool,
    /// `-M`: users are served at the same time.
    pub multiuser: bool,
    /// `-S`: clients run on static partitions.
    pub static_partitions: bool,
    /// Device names of a server with memory-locality partitions; empty where no device has them.
    pub localities: Vec<String>,
}

/// Why a daemon could not start.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error("cannot listen on {}: {cause}. The pipe directory must be on a file system with sockets, writable for this user", path.display())]
    Listen { path: PathBuf, cause: io::Error },
    #[error("multi-user mode (-M) needs a control daemon of root: this user can serve nobody else")]
    NotRoot,
    #[error("cannot watch for signals: {0}")]
    Signals(io::Error),
}

/// Serves one pipe directory until `quit` or a signal; `ready` is called when clients can connect. True if every server ended well.
///
/// # Errors
/// The directory is another daemon's or unusable. Nothing has been left behind then.
pub fn run(options: Options, ready: impl FnOnce()) -> Result<bool, DaemonError> {
    if options.multiuser && !rustix::process::geteuid().is_root() {
        return Err(DaemonError::NotRoot);
    }
    let claim = PipeDirectory::at(&options.pipe).claim()?;
    log::check(&options.log)?;
    let daemon = Daemon::new(options);
    let result = daemon.serve(&claim, ready);
    drop(claim);
    result
}

/// The daemon's state, shared by its threads.
pub(crate) struct Daemon {
    pub(crate) options: Options,
    core: Mutex<Core>,
    changed: Condvar,
    pub(crate) log: Log,
}

pub(crate) struct Core {
    registry: Registry,
    /// Sockets of clients that wait.
    clients: HashMap<Token, Connection>,
    next_token: Token,
    /// Connections to servers, by their pid.
    links: HashMap<u32, Arc<Connection>>,
    answers: HashMap<u64, FromServer>,
    /// Statuses of which more will come.
    parts: HashMap<u64, ServerStatus>,
    next_request: u64,
    /// Set when all servers are gone after `quit`.
    finished: Option<bool>,
    holders: Holders,
    /// As the options, a survey or the first server said them.
    devices: Vec<DeviceFacts>,
    /// Handshakes and text connections that are open.
    handshakes: u32,
    texts: u32,
}

impl Core {
    /// The devices, from the first who says them; static partitions of a daemon before are those of the same cards.
    pub(crate) fn learn(&mut self, devices: &[DeviceFacts]) {
        if self.devices.is_empty() && !devices.is_empty() {
            self.devices = devices.to_vec();
            if self.registry.board.is_some() {
                self.registry.board = Some(self.holders.board(devices));
            }
        }
    }
}

impl Daemon {
    pub(crate) fn new(options: Options) -> Arc<Self> {
        let mut registry = Registry::new(options.settings.clone());
        registry.multiuser = options.multiuser;
        let holders = Holders::new(options.pipe.join("partitions.json"));
        if options.static_partitions {
            registry.board = Some(holders.board(&options.devices));
        } else {
            holders.forget();
        }
        let core = Core {
            registry,
            holders,
            devices: options.devices.clone(),
            clients: HashMap::new(),
            next_token: 1,
            links: HashMap::new(),
            answers: HashMap::new(),
            parts: HashMap::new(),
            next_request: 1,
            finished: None,
            handshakes: 0,
            texts: 0,
        };
        let log = Log::open(&options.log, options.echo);
        Arc::new(Self { core: Mutex::new(core), changed: Condvar::new(), log, options })
    }

    fn serve(self: &Arc<Self>, claim: &Claim, ready: impl FnOnce()) -> Result<bool, DaemonError> {
        let directory = claim.directory();
        let listen = |path: PathBuf| move |cause| DaemonError::Listen { path, cause };
        let text = UnixListener::bind(directory.control()).map_err(listen(directory.control()))?;
        let packets = Listener::bind(&directory.cumux()).map_err(io::Error::other).map_err(listen(directory.cumux()))?;
        claim.open_to_all().map_err(FolderError::into_io).map_err(listen(self.options.pipe.clone()))?;
        self.watch_signals()?;
        self.note_environment();
        self.note(&format!("Starting control daemon using socket {}", directory.control().display()));
        self.note(&format!("To connect CUDA applications to this daemon, set env CUDA_MPS_PIPE_DIRECTORY={}", self.options.pipe.display()));
        self.note("CUDA MPS Control binary version: 13000");
        if self.options.ready_devices || self.options.static_partitions {
            // Why not is in the log and told to who asks; the daemon can still serve when the reason has gone.
            let _ = self.known_devices();
        }
        let daemon = Arc::clone(self);
        thread::spawn(move || daemon.accept_text(&text));
        let daemon = Arc::clone(self);
        thread::spawn(move || daemon.accept_packets(&packets));
        ready();
        let clean = self.keep_time();
        self.core().holders.forget();
        self.log.finish();
        self.note(&format!("Exit with status {}", i32::from(!clean)));
        Ok(clean)
    }

    /// A line in control.log.
    pub(crate) fn note(&self, text: &str) {
        self.log.line(text);
    }

    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        // A panic of another thread under the lock leaves maps that are still maps.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads or changes the registry without an event: settings, lists.
    pub(crate) fn registry<T>(&self, use_it: impl FnOnce(&mut Registry) -> T) -> T {
        use_it(&mut self.core().registry)
    }

    /// One event and everything that follows from it.
    pub(crate) fn feed(self: &Arc<Self>, event: Event) {
        let mut core = self.core();
        self.feed_locked(&mut core, event);
        drop(core);
        self.changed.notify_all();
    }

    fn feed_locked(self: &Arc<Self>, core: &mut Core, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let arrival = matches!(event, Event::Client { .. } | Event::Ready { .. });
            if arrival {
                self.sweep(core);
            }
            for effect in core.registry.handle(Instant::now(), event) {
                self.perform(core, effect, &mut events);
            }
            if arrival {
                self.sweep(core);
            }
        }
    }

    /// Static partitions of processes that have ended are free.
    fn sweep(&self, core: &mut Core) {
        let Core { registry, holders, .. } = core;
        if let Some(why) = registry.board.as_mut().and_then(|board| holders.sweep(board)) {
            self.note(&why);
        }
    }

    /// Reads or changes the static partitions; nothing without `-S`.
    pub(crate) fn partitions<T>(&self, use_them: impl FnOnce(&mut Board) -> T) -> Option<T> {
        let mut core = self.core();
        self.sweep(&mut core);
        let done = core.registry.board.as_mut().map(use_them);
        self.sweep(&mut core);
        done
    }

    /// The devices, as far as they are known: real ones from the first server on.
    pub(crate) fn devices(&self) -> Vec<DeviceFacts> {
        self.core().devices.clone()
    }

    fn perform(self: &Arc<Self>, core: &mut Core, effect: Effect, events: &mut VecDeque<Event>) {
        match effect {
            Effect::Log(text) => self.note(&text),
            Effect::Launched { pid, text } => self.log.line_of(pid, &text),
            Effect::Launch { uid } => {
                let (settings, mlopart) = (core.registry.defaults.clone(), core.registry.mlopart.contains(&uid));
                events.push_back(self.launch(uid, &settings, mlopart));
            }
            Effect::Refuse { token, result, why } => {
                self.note(&format!("Client refused: {why}"));
                if let Some(client) = core.clients.remove(&token) {
                    refuse(&client, result, why);
                }
            }
            Effect::Hand { token, server, pid, uid, hello, grant } => {
                let Some(client) = core.clients.get(&token) else { return };
                let message = ToServer::Client { hello, pid, uid, grant };
                let sent = core.links.get(&server).is_some_and(|link| link.send(&message, &[client.as_fd()]).is_ok());
                if sent {
                    core.clients.remove(&token);
                } else if let ToServer::Client { hello, .. } = message {
                    // The server just died or hangs: the client waits for it to come back, or for the next.
                    core.links.remove(&server);
                    events.push_back(Event::Disconnected { pid: server });
                    events.push_back(Event::Client { token, pid, uid, hello });
                }
            }
            Effect::Shutdown { server, force } => {
                let sent = core.links.get(&server).is_some_and(|link| link.send(&ToServer::Shutdown { force }, &[]).is_ok());
                if !sent {
                    kill(server);
                }
            }
            Effect::Kill { server } => kill(server),
            Effect::Finished { clean } => core.finished = Some(clean),
        }
    }

    /// Waits for the registry's deadlines until the daemon is done, then until the last text answer is out.
    fn keep_time(self: &Arc<Self>) -> bool {
        let mut core = self.core();
        let clean = loop {
            if let Some(clean) = core.finished {
                break clean;
            }
            let now = Instant::now();
            match core.registry.deadline() {
                Some(at) if at <= now => {
                    self.feed_locked(&mut core, Event::Tick);
                    self.changed.notify_all();
                }
                Some(at) => core = self.changed.wait_timeout(core, at - now).unwrap_or_else(PoisonError::into_inner).0,
                None => core = self.changed.wait(core).unwrap_or_else(PoisonError::into_inner),
            }
        };
        let until = Instant::now() + Duration::from_secs(1);
        while core.texts > 0 {
            let Some(rest) = until.checked_duration_since(Instant::now()) else { break };
            core = self.changed.wait_timeout(core, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
        clean
    }

    /// Waits until `quit` is done; true if every server ended well.
    pub(crate) fn wait_finished(&self) -> bool {
        let mut core = self.core();
        loop {
            if let Some(clean) = core.finished {
                return clean;
            }
            core = self.changed.wait(core).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits while a server of this user is on its way up.
    pub(crate) fn wait_started(&self, uid: u32) {
        let mut core = self.core();
        while core.registry.is_starting(uid) {
            core = self.changed.wait(core).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Sends a numbered question to a server and waits for its answer.
    pub(crate) fn ask(&self, server: u32, question: impl FnOnce(u64) -> ToServer) -> Option<FromServer> {
        let mut core = self.core();
        let link = Arc::clone(core.links.get(&server)?);
        let request = core.next_request;
        core.next_request += 1;
        drop(core);
        link.send(&question(request), &[]).ok()?;
        let until = Instant::now() + ANSWER;
        let mut core = self.core();
        loop {
            if let Some(answer) = core.answers.remove(&request) {
                return Some(answer);
            }
            let rest = until.checked_duration_since(Instant::now())?;
            if !core.links.get(&server).is_some_and(|current| Arc::ptr_eq(current, &link)) {
                return None;
            }
            core = self.changed.wait_timeout(core, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Status of one server; what the daemon itself knows if the server does not answer.
    pub(crate) fn status(&self, server: u32) -> Option<ServerStatus> {
        let (uid, state) = self.registry(|registry| registry.server(server).map(|s| (s.uid, if s.is_ready() { "UNRESPONSIVE" } else { "INITIALIZING" })))?;
        match self.ask(server, |request| ToServer::Status { request }) {
            Some(FromServer::Status { server, .. }) => Some(server),
            _ => Some(ServerStatus { pid: server, uid, state: state.to_owned(), ..ServerStatus::default() }),
        }
    }

    // Processes ------------------------------------------------------------------------------------------------------

    pub(crate) fn forget(self: &Arc<Self>, pid: u32, status: Option<i32>) {
        self.core().links.remove(&pid);
        self.feed(Event::Exited { pid, status });
    }

    fn watch_signals(self: &Arc<Self>) -> Result<(), DaemonError> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(DaemonError::Signals)?;
        let daemon = Arc::clone(self);
        thread::spawn(move || {
            for signal in signals.forever() {
                daemon.note(&format!("Signal {signal}: shutting down"));
                daemon.feed(Event::Quit { timeout: Some(Duration::ZERO) });
            }
        });
        Ok(())
    }

    // Sockets --------------------------------------------------------------------------------------------------------

    fn accept_text(self: &Arc<Self>, listener: &UnixListener) {
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    let _account = account_of(&stream);
                    self.note("Accepting connection...");
                    if !self.enter(|core| &mut core.texts) {
                        // It fits into the socket's buffer, or is not said.
                        let _ = stream.set_nonblocking(true);
                        ui::say(&stream, ui::TOO_MANY, 1, false);
                        continue;
                    }
                    let daemon = Arc::clone(self);
                    thread::spawn(move || {
                        ui::serve(&daemon, &stream);
                        daemon.leave(|core| &mut core.texts);
                    });
                }
                Err(error) => self.pause(&error.to_string()),
            }
        }
    }

    fn accept_packets(self: &Arc<Self>, listener: &Listener) {
        loop {
            match listener.accept() {
                Ok(connection) => {
                    let _account = account_of(&connection);
                    self.note("Accepting connection...");
                    if !self.enter(|core| &mut core.handshakes) {
                        refuse(&connection, result::MPS_MAX_CLIENTS_REACHED, "Too many programs are connecting at the same time: try again".into());
                        continue;
                    }
                    let daemon = Arc::clone(self);
                    thread::spawn(move || daemon.meet(connection));
                }
                Err(error) => self.pause(&error.to_string()),
            }
        }
    }

    /// Out of descriptors or memory: others must end first, and a busy loop would not help them.
    fn pause(&self, why: &str) {
        self.note(&format!("Cannot accept a connection: {why}"));
        thread::sleep(Duration::from_millis(100));
    }

    fn enter(&self, counter: impl Fn(&mut Core) -> &mut u32) -> bool {
        let mut core = self.core();
        let count = counter(&mut core);
        let room = *count < MOST_CONNECTIONS;
        *count += u32::from(room);
        room
    }

    fn leave(&self, counter: impl Fn(&mut Core) -> &mut u32) {
        *counter(&mut self.core()) -= 1;
        self.changed.notify_all();
    }

    /// The first packet of somebody on the `cumux` socket.
    fn meet(self: &Arc<Self>, connection: Connection) {
        let _account = account_of(&connection);
        let hello = connection.set_timeout(Some(HELLO)).and_then(|()| connection.receive::<Hello>());
        let peer = connection.peer();
        // The timeout is the socket's, and the socket goes to the server.
        let cleared = connection.set_timeout(None);
        self.leave(|core| &mut core.handshakes);
        let (hello, mut descriptors, peer) = match (hello, peer, cleared) {
            (Ok((hello, descriptors)), Ok(peer), Ok(())) => (hello, descriptors, peer),
            (Err(LinkError::Format(_)), ..) => {
                self.note("User did not send a hello of this version");
                refuse(&connection, result::MPS_CONNECTION_FAILED, other_version(None));
                return;
            }
            (Ok((Hello::Client { .. }, _)), Err(unseen), Ok(())) => {
                self.note("User did not send valid credentials");
                refuse(&connection, result::MPS_CONNECTION_FAILED, unseen.to_string());
                return;
            }
            _ => return self.note("User did not send valid credentials"),
        };
        match hello {
            Hello::Client { version, .. } | Hello::Server { version, .. } if version != VERSION => {
                let why = other_version(Some(version));
                self.note(&why);
                refuse(&connection, result::MPS_CONNECTION_FAILED, why);
            }
            Hello::Client { .. } => {
                let mut core = self.core();
                let token = core.next_token;
                core.next_token += 1;
                core.clients.insert(token, connection);
                drop(core);
                self.feed(Event::Client { token, pid: peer.pid, uid: peer.uid, hello });
            }
            Hello::Server { uid, .. } => {
                let own = rustix::process::geteuid().as_raw();
                if uid != peer.uid || (own != 0 && uid != own) {
                    self.note(&format!("Process {} of user {} says it serves user {uid}: refused", peer.pid, peer.uid));
                    return;
                }
                self.listen_to_server(peer.pid, uid, connection, descriptors.pop());
            }
            Hello::Keeper { .. } | Hello::Executor { .. } => self.note("A keeper or executor connected here instead of to its server: refused"),
        }
    }

    /// `words`: what it writes to standard error, if it is another user's.
    fn listen_to_server(self: &Arc<Self>, pid: u32, uid: u32, connection: Connection, words: Option<OwnedFd>) {
        // A server that does not read must not stop the daemon.
        let _ = set_socket_timeout(connection.as_fd(), Timeout::Send, Some(Duration::from_secs(1)));
        let link = Arc::new(connection);
        let known = self.registry(|registry| registry.server(pid).is_some());
        self.core().links.insert(pid, Arc::clone(&link));
        self.feed(Event::Registered { pid, uid });
        if !known {
            if let Some(words) = words {
                self.write_down(pid, uid, words);
            }
            let daemon = Arc::clone(self);
            thread::spawn(move || {
                if let Ok(process) = Process::open(pid) {
                    let _ = process.ended(None);
                }
                daemon.forget(pid, None);
            });
        }
        loop {
            match link.receive::<FromServer>() {
                Ok((message, _)) => self.hear(pid, message),
                Err(LinkError::Format(error)) => self.note(&format!("Server {pid} sent what is no message: {error}")),
                Err(_) => break,
            }
        }
        let mut core = self.core();
        if core.links.get(&pid).is_some_and(|current| Arc::ptr_eq(current, &link)) {
            core.links.remove(&pid);
            self.feed_locked(&mut core, Event::Disconnected { pid });
        }
        drop(core);
        self.changed.notify_all();
    }

    fn hear(self: &Arc<Self>, pid: u32, message: FromServer) {
        match message {
            FromServer::Ready { devices } => {
                let mut core = self.core();
                core.learn(&devices);
                drop(core);
                self.feed(Event::Ready { pid, devices });
            }
            FromServer::Failed { why } => self.feed(Event::Failed { pid, why }),
            FromServer::Clients { count } => self.feed(Event::Clients { pid, count }),
            // The server has written it into server.log already.
            FromServer::Note { text } => self.note(&format!("Server {pid}: {text}")),
            FromServer::Status { request, server, more: true } => {
                let mut core = self.core();
                match core.parts.get_mut(&request) {
                    Some(whole) => append(whole, server),
                    None => {
                        core.parts.retain(|&kept, _| kept + 64 > request);
                        core.parts.insert(request, server);
                    }
                }
            }
            FromServer::Status { request, server, more: false } => {
                let mut core = self.core();
                core.answers.retain(|&kept, _| kept + 64 > request);
                let server = match core.parts.remove(&request) {
                    Some(mut whole) => {
                        append(&mut whole, server);
                        whole
                    }
                    None => server,
                };
                core.answers.insert(request, FromServer::Status { request, server, more: false });
                drop(core);
                self.changed.notify_all();
            }
            FromServer::Terminated { request, .. } | FromServer::Shared { request, .. } => {
                let mut core = self.core();
                // Answers that nobody waits for any more are not kept.
                core.answers.retain(|&kept, _| kept + 64 > request);
                core.answers.insert(request, message);
                drop(core);
                self.changed.notify_all();
            }
        }
    }
}

/// Lines about a visitor are on the account of the visitor's user.
fn account_of(socket: &impl AsFd) -> Option<OnAccount> {
    reach::other_end(socket).ok().map(|peer| on_account_of(peer.uid))
}

/// The next piece of a server's status.
fn append(whole: &mut ServerStatus, mut next: ServerStatus) {
    whole.clients.append(&mut next.clients);
    whole.gone.append(&mut next.gone);
}

fn refuse(client: &Connection, result: u32, why: String) {
    let _ = client.set_timeout(Some(Duration::from_millis(200)));
    // A client that has gone need not hear it.
    let _ = client.send(&Reply::Refused { result, why }, &[]);
}

fn other_version(version: Option<u32>) -> String {
    let theirs = version.map_or_else(|| "another version of cumux's protocol".to_owned(), |version| format!("version {version} of cumux's protocol"));
    format!("The program speaks {theirs}, this control daemon version {VERSION}: use libcuda.so.1 and cumux of the same release")
}

fn kill(pid: u32) {
    if let Ok(process) = Process::open(pid) {
        let _ = process.signal(Signal::KILL);
    }
}
