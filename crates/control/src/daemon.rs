//! The daemon: sockets, processes and threads around the pure [`Registry`].
//!
//! Threads: one serves the clients that connect, say hello and wait (`lobby.rs`); one accepts text
//! connections; one serves each text connection and one each server connection (`servers.rs`), all
//! bounded (`doors.rs`); one waits for each server process, one for signals; the caller's thread
//! keeps the time. All of them meet under one lock in [`Daemon::feed`]. No thread waits while it
//! holds the lock; sending a message waits for a second at most.

use crate::clean;
use crate::directory::{Claim, DirectoryError, PipeDirectory};
use crate::doors::{LEAST, Room};
use crate::guests::{Guest, Watch, refuse};
use crate::heartbeat;
use crate::holders::Holders;
use crate::ledger::{Ledger, Standing};
use crate::leftovers;
use crate::log::{self, Log};
use crate::partitions::Board;
use crate::registry::{Effect, Event, Registry, Token};
use crate::settings::Settings;
use cumux_link::{Connection, FolderError, Listener, Process};
use cumux_wire::message::{DeviceFacts, FromServer, ServerStatus, ToServer};
use rustix::process::Signal;
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How a daemon is started.
#[derive(Debug, Clone)]
pub struct Options {
    /// The pipe directory.
    pub pipe: PathBuf,
    /// The log directory.
    pub log: PathBuf,
    /// Device names for servers, with commas between them: `cuda:0`, `sim:h200,sim:h200`.
    pub device: String,
    /// What `device_query` shows before any server runs. Empty where only a driver knows: a survey
    /// then asks it on demand.
    pub devices: Vec<DeviceFacts>,
    /// `-q`: survey the devices at the start.
    pub ready_devices: bool,
    /// The defaults for new servers.
    pub settings: Settings,
    /// The program that becomes the server when it is called with `server`.
    pub program: PathBuf,
    /// Writes log lines to standard output, too.
    pub echo: bool,
    /// `-M`: servers of several users are active at the same time.
    pub multiuser: bool,
    /// `-S`: clients run on static partitions.
    pub static_partitions: bool,
    /// Names of the devices for a server with memory-locality partitions; empty where no device has
    /// them.
    pub localities: Vec<String>,
}

/// Why a daemon could not start.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The pipe or log directory cannot be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// A socket cannot be bound.
    #[error("cannot listen on {}: {cause}. The pipe directory must be on a file system with sockets, writable for this user", path.display())]
    Listen {
        /// The socket.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// `-M` without root's rights.
    #[error("multi-user mode (-M) needs a control daemon of root: this user can serve nobody else")]
    NotRoot,
    /// The limit of open files is too low to serve anybody.
    #[error(
        "at most {limit} open files are allowed, and the control daemon needs {least} to serve anybody: raise the limit (ulimit -n {least}, better 1024 or more)"
    )]
    TooFewDescriptors {
        /// The limit in force.
        limit: u64,
        /// The lowest that the daemon accepts.
        least: u64,
    },
    /// The kernel refuses to watch for signals.
    #[error("cannot watch for signals: {0}")]
    Signals(io::Error),
    /// The system has no descriptors or threads left.
    #[error("the system gives no descriptors or threads ({0}); look at the limits of this user (ulimit -n, ulimit -u)")]
    System(#[from] io::Error),
}

/// Serves one pipe directory until `quit` or a signal. Calls `ready` when clients can connect.
/// Returns true if every server ended well.
///
/// # Errors
/// The directory belongs to another daemon or cannot be used. Nothing is left behind then.
pub fn run(options: Options, ready: impl FnOnce()) -> Result<bool, DaemonError> {
    if options.multiuser && !rustix::process::geteuid().is_root() {
        return Err(DaemonError::NotRoot);
    }
    let limit = cumux_link::limit::raise();
    if limit < LEAST {
        return Err(DaemonError::TooFewDescriptors { limit, least: LEAST });
    }
    let claim = PipeDirectory::at(&options.pipe).claim()?;
    log::check(&options.log)?;
    let daemon = Daemon::new(options)?;
    let result = daemon.serve(&claim, ready);
    drop(claim);
    result
}

/// The daemon's state, shared by its threads.
pub(crate) struct Daemon {
    pub(crate) options: Options,
    core: Mutex<Core>,
    pub(crate) changed: Condvar,
    pub(crate) log: Log,
    pub(crate) watch: Watch,
    /// Places for clients that connect or wait, and for text connections.
    pub(crate) clients: Arc<Room>,
    pub(crate) servers: Arc<Room>,
    pub(crate) texts: Arc<Room>,
}

/// A question to a server whose answer a thread awaits.
pub(crate) struct Question {
    pub(crate) server: u32,
    /// The first packets of a status of which more packets follow.
    pub(crate) whole: Option<ServerStatus>,
    pub(crate) answer: Option<FromServer>,
}

pub(crate) struct Core {
    pub(crate) registry: Registry,
    /// Clients that wait for a server.
    pub(crate) guests: HashMap<Token, Guest>,
    /// Connections to servers, by their pid.
    pub(crate) links: HashMap<u32, Arc<Connection>>,
    pub(crate) ledger: Ledger,
    /// Messages received from each server, for the heartbeat.
    pub(crate) words: HashMap<u32, u64>,
    /// Servers of other users whose standard error is read: one thread for each, however often the
    /// server connects.
    pub(crate) read: HashSet<u32>,
    /// Unanswered questions by their request number.
    pub(crate) questions: HashMap<u64, Question>,
    pub(crate) next_request: u64,
    /// Processes that claimed to be servers and were refused, newest last: the log names each of
    /// them once.
    pub(crate) strangers: VecDeque<u32>,
    /// Set when all servers are gone after `quit`.
    finished: Option<bool>,
    holders: Holders,
    /// From the options, a survey or the first server that is ready.
    devices: Vec<DeviceFacts>,
}

impl Core {
    /// Takes the devices from the first source that knows them. Partitions of an earlier daemon are
    /// restored if the cards are the same.
    pub(crate) fn learn_devices(&mut self, devices: &[DeviceFacts]) {
        if self.devices.is_empty() && !devices.is_empty() {
            self.devices = devices.to_vec();
            if self.registry.board.is_some() {
                self.registry.board = Some(self.holders.board(devices));
            }
        }
    }
}

impl Daemon {
    /// Opens the logs and prepares the daemon's state.
    ///
    /// # Errors
    /// [`DaemonError::System`].
    pub(crate) fn new(options: Options) -> Result<Arc<Self>, DaemonError> {
        let descriptors = cumux_link::limit::raise();
        let own = rustix::process::geteuid().as_raw();
        let mut registry = Registry::new(options.settings.clone());
        registry.multiuser = options.multiuser;
        registry.devices = options.device.split(',').map(str::to_owned).collect();
        registry.localities.clone_from(&options.localities);
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
            guests: HashMap::new(),
            links: HashMap::new(),
            ledger: Ledger::open(options.pipe.join("servers.json")),
            words: HashMap::new(),
            read: HashSet::new(),
            questions: HashMap::new(),
            next_request: 1,
            strangers: VecDeque::new(),
            finished: None,
        };
        let log = Log::open(&options.log, options.echo);
        Ok(Arc::new(Self {
            core: Mutex::new(core),
            changed: Condvar::new(),
            log,
            watch: Watch::new()?,
            clients: Room::for_clients(descriptors, own),
            servers: Room::for_servers(descriptors, own),
            texts: Room::for_texts(descriptors, own),
            options,
        }))
    }

    fn serve(self: &Arc<Self>, claim: &Claim, ready: impl FnOnce()) -> Result<bool, DaemonError> {
        let directory = claim.directory();
        let listen = |path: PathBuf| move |cause| DaemonError::Listen { path, cause };
        let text = UnixListener::bind(directory.control()).map_err(listen(directory.control()))?;
        let packets = Listener::bind(&directory.cumux()).map_err(io::Error::other).map_err(listen(directory.cumux()))?;
        claim.open_to_all().map_err(FolderError::into_io).map_err(listen(self.options.pipe.clone()))?;
        self.watch_signals()?;
        heartbeat::watch(self)?;
        self.note_environment();
        self.note(&format!("Starting control daemon using socket {}", directory.control().display()));
        self.note(&format!("To connect CUDA applications to this daemon, set env CUDA_MPS_PIPE_DIRECTORY={}", self.options.pipe.display()));
        self.note("CUDA MPS Control binary version: 13000");
        if self.options.ready_devices || self.options.static_partitions {
            // A failure is in the log, and in the answer to `device_query`. The daemon can still
            // serve once the cause has gone.
            let _ = self.known_devices();
        }
        // Before the first client: it must not get a second server beside one that still lives.
        self.await_earlier_servers()?;
        let daemon = Arc::clone(self);
        thread::Builder::new().name("texts".into()).spawn(move || daemon.accept_texts(&text))?;
        let daemon = Arc::clone(self);
        thread::Builder::new().name("lobby".into()).spawn(move || daemon.receive_guests(&packets))?;
        ready();
        let clean = self.keep_time();
        for pid in leftovers::end(&self.options.pipe) {
            self.note(&format!("Process {pid} of a server that had ended before was ended"));
        }
        let core = self.core();
        core.holders.forget();
        core.ledger.forget();
        drop(core);
        self.log.finish(&format!("Exit with status {}", i32::from(!clean)));
        Ok(clean)
    }

    /// Writes a line into control.log.
    pub(crate) fn note(&self, text: &str) {
        self.log.line(text);
    }

    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        // After another thread's panic under the lock, the maps are still usable.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads or changes the registry without an event: settings, lists.
    pub(crate) fn registry<T>(&self, use_it: impl FnOnce(&mut Registry) -> T) -> T {
        use_it(&mut self.core().registry)
    }

    /// Passes one event to the registry and carries out all effects.
    pub(crate) fn feed(self: &Arc<Self>, event: Event) {
        let mut core = self.core();
        self.feed_locked(&mut core, event);
        drop(core);
        self.changed.notify_all();
    }

    pub(crate) fn feed_locked(self: &Arc<Self>, core: &mut Core, event: Event) {
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

    /// Releases the static partitions of processes that have ended.
    fn sweep(&self, core: &mut Core) {
        let Core { registry, holders, .. } = core;
        if let Some(why) = registry.board.as_mut().and_then(|board| holders.sweep(board)) {
            self.note(&why);
        }
    }

    /// Reads or changes the static partitions; `None` without `-S`.
    pub(crate) fn partitions<T>(&self, use_them: impl FnOnce(&mut Board) -> T) -> Option<T> {
        let mut core = self.core();
        self.sweep(&mut core);
        let done = core.registry.board.as_mut().map(use_them);
        self.sweep(&mut core);
        done
    }

    /// The devices as far as they are known: real ones from a survey or the first server on.
    pub(crate) fn devices(&self) -> Vec<DeviceFacts> {
        self.core().devices.clone()
    }

    fn perform(self: &Arc<Self>, core: &mut Core, effect: Effect, events: &mut VecDeque<Event>) {
        match effect {
            Effect::Log(text) => self.note(&text),
            Effect::Launched { pid, text } => self.log.line_of(pid, &text),
            Effect::Launch { uid } => {
                let (settings, devices) = (core.registry.defaults.clone(), core.registry.devices_for(uid));
                let event = self.launch(uid, &settings, devices);
                if let Event::Launched { pid, .. } = event {
                    core.read.insert(pid);
                }
                if let Event::Launched { pid, uid } = event
                    && let Some(why) = core.ledger.add(pid, uid)
                {
                    self.note(&why);
                }
                events.push_back(event);
            }
            Effect::Refuse { token, result, why } => {
                self.note(&format!("Client refused: {why}"));
                if let Some(guest) = self.remove_guest(core, token) {
                    refuse(&guest.connection, result, why);
                }
            }
            Effect::Hand { token, server, pid, uid, hello, grant } => {
                // The registry, under the same lock, hands over no client that has gone.
                let Some(guest) = core.guests.get(&token) else { return };
                if core.registry.board.is_some() {
                    core.holders.add(pid, &guest.process);
                }
                let message = ToServer::Client { hello: clean::without_environment(&hello), pid, uid, grant };
                let sent = core.links.get(&server).is_some_and(|link| link.send(&message, &[guest.connection.as_fd(), guest.process.as_fd()]).is_ok());
                if sent {
                    self.remove_guest(core, token);
                } else {
                    // The server has just died or hangs: the client waits until it is back, or for
                    // the next one.
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

    /// Waits for the registry's deadlines until the daemon is done, then until the last text answer
    /// has been sent.
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
        while self.texts.taken() > 0 {
            let Some(rest) = until.checked_duration_since(Instant::now()) else { break };
            core = self.changed.wait_timeout(core, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
        clean
    }

    /// Waits until `quit` is done. Returns true if every server ended well.
    pub(crate) fn wait_finished(&self) -> bool {
        let mut core = self.core();
        loop {
            if let Some(clean) = core.finished {
                return clean;
            }
            core = self.changed.wait(core).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits while a server of this user is starting.
    pub(crate) fn wait_started(&self, uid: u32) {
        let mut core = self.core();
        while core.registry.is_starting(uid) {
            core = self.changed.wait(core).unwrap_or_else(PoisonError::into_inner);
        }
    }

    // Processes -----------------------------------------------------------------------------------

    pub(crate) fn forget(self: &Arc<Self>, pid: u32, status: Option<i32>) {
        let mut core = self.core();
        core.links.remove(&pid);
        core.words.remove(&pid);
        core.read.remove(&pid);
        core.ledger.remove(pid);
        drop(core);
        self.feed(Event::Exited { pid, status });
    }

    /// Expects the servers of an earlier daemon, which will connect. A lost server gets a
    /// successor, because its processes and clients would otherwise wait in vain.
    fn await_earlier_servers(self: &Arc<Self>) -> io::Result<()> {
        let left = self.core().ledger.left();
        for (pid, uid) in left {
            self.feed(Event::Left { pid, uid });
            let Some(pid) = pid else { continue };
            let process = Process::open(pid).ok();
            // Checked again: the pidfd now refers to the process that the ledger means.
            let process = process.filter(|_| !matches!(self.core().ledger.standing(pid, uid), Standing::Stranger));
            self.forget_at_its_end(pid, process)?;
        }
        Ok(())
    }

    /// Starts a thread that waits for the end of a server that is no child of ours.
    pub(crate) fn forget_at_its_end(self: &Arc<Self>, pid: u32, process: Option<Process>) -> io::Result<()> {
        let daemon = Arc::clone(self);
        let wait = move || {
            if let Some(process) = process {
                let _ = process.ended(None);
            }
            daemon.forget(pid, None);
        };
        thread::Builder::new().name("waiter".into()).spawn(wait).map(drop)
    }

    fn watch_signals(self: &Arc<Self>) -> Result<(), DaemonError> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(DaemonError::Signals)?;
        let daemon = Arc::clone(self);
        thread::Builder::new().name("signals".into()).spawn(move || {
            for signal in signals.forever() {
                daemon.note(&format!("Signal {signal}: shutting down"));
                daemon.feed(Event::Quit { timeout: Some(Duration::ZERO) });
            }
        })?;
        Ok(())
    }
}

fn kill(pid: u32) {
    if let Ok(process) = Process::open(pid) {
        let _ = process.signal(Signal::KILL);
    }
}
