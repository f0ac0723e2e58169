//! The daemon's state around the pure [`Registry`]. All threads meet under one lock in
//! [`Daemon::feed`], which carries out what the registry orders. No thread waits while it holds the
//! lock; sending a message waits for a second at most.

use crate::clean;
use crate::doors::ConnectionQuota;
use crate::group_doors::GroupDoors;
use crate::guests::{Guest, Watch, refuse};
use crate::holders::Holders;
use crate::launch;
use crate::ledger::Ledger;
use crate::log::Log;
use crate::options::{DaemonError, Options};
use crate::partitions::Board;
use crate::registry::{Effect, Event, Registry, Token};
use cumux_link::{Connection, Process};
use cumux_wire::message::{DeviceFacts, FromServer, ServerStatus, ToServer};
use rustix::process::Signal;
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long the last messages of a server that has ended are waited for. They are there already,
/// and its thread has to read them.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The daemon's state, shared by its threads.
pub(crate) struct Daemon {
    pub(crate) options: Options,
    core: Mutex<Core>,
    pub(crate) changed: Condvar,
    pub(crate) log: Arc<Log>,
    pub(crate) watch: Watch,
    /// Places for clients that connect or wait, and for text connections.
    pub(crate) clients: Arc<ConnectionQuota>,
    pub(crate) servers: Arc<ConnectionQuota>,
    pub(crate) texts: Arc<ConnectionQuota>,
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
    /// Servers whose processes have ended, while their last messages are read.
    pub(crate) ended: HashSet<u32>,
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
    pub(crate) finished: Option<bool>,
    pub(crate) holders: Holders,
    pub(crate) doors: GroupDoors,
    /// From the options, a survey or the first server that is ready.
    devices: Vec<DeviceFacts>,
}

impl Core {
    /// Takes the devices from the first source that knows them. Partitions of an earlier daemon are
    /// restored if the cards are the same.
    pub(crate) fn learn_devices(&mut self, devices: &[DeviceFacts]) {
        if self.devices.is_empty() && !devices.is_empty() {
            self.devices = devices.to_vec();
            self.registry.facts = devices.to_vec();
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
        registry.cards.clone_from(&options.cards);
        registry.facts.clone_from(&options.devices);
        registry.localities.clone_from(&options.localities);
        let holders = Holders::new(options.pipe.join("partitions.json"));
        if options.static_partitions {
            registry.board = Some(holders.board(&options.devices));
        } else {
            holders.forget();
        }
        let doors = GroupDoors::new(&options.pipe);
        let core = Core {
            registry,
            doors,
            holders,
            devices: options.devices.clone(),
            guests: HashMap::new(),
            links: HashMap::new(),
            ledger: Ledger::open(options.pipe.join("servers.json")),
            ended: HashSet::new(),
            words: HashMap::new(),
            read: HashSet::new(),
            questions: HashMap::new(),
            next_request: 1,
            strangers: VecDeque::new(),
            finished: None,
        };
        let log = Arc::new(Log::open(&options.log, options.echo));
        Ok(Arc::new(Self {
            core: Mutex::new(core),
            changed: Condvar::new(),
            log,
            watch: Watch::new()?,
            clients: ConnectionQuota::for_clients(descriptors, own),
            servers: ConnectionQuota::for_servers(descriptors, own),
            texts: ConnectionQuota::for_texts(descriptors, own),
            options,
        }))
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
                self.write_settled_groups(core);
            }
        }
    }

    /// The next daemon is to know whose a group is.
    fn write_settled_groups(&self, core: &mut Core) {
        if core.registry.groups.take_settled()
            && let Err(error) = core.doors.write(&core.registry.groups)
        {
            self.note(&format!("The groups cannot be written down for the next control daemon: {error}"));
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

    /// Removes a client that waits no more, for whatever reason.
    pub(crate) fn remove_guest(&self, core: &mut Core, token: Token) -> Option<Guest> {
        let guest = core.guests.remove(&token)?;
        self.watch.forget(&guest);
        Some(guest)
    }

    /// Takes the groups of the daemon before, and opens their sockets.
    pub(crate) fn open_groups(&self) {
        let mut core = self.core();
        let core = &mut *core;
        let (groups, mut lost) = core.doors.left_behind();
        for (name, _) in groups.iter() {
            lost.extend(core.doors.open(name, &self.watch.set).err());
        }
        core.registry.groups = groups;
        lost.iter().for_each(|why| self.note(why));
    }

    fn perform(self: &Arc<Self>, core: &mut Core, effect: Effect, events: &mut VecDeque<Event>) {
        match effect {
            Effect::Log(text) => self.note(&text),
            Effect::Launched { pid, text } => self.log.line_of(pid, &text),
            Effect::Launch { duty } => {
                let (settings, devices) = (core.registry.defaults.clone(), core.registry.devices_for(duty));
                let daemon = Arc::clone(self);
                let event = launch::launch(&self.options, &self.log, duty, &settings, &devices, move |pid, status| daemon.forget(pid, Some(status)));
                if let Event::Launched { pid, .. } = event {
                    core.read.insert(pid);
                }
                if let Event::Launched { pid, duty } = event
                    && let Some(why) = core.ledger.add(pid, duty)
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
            Effect::Hand { token, server, pid, uid, hello, grant, door } => {
                // The registry, under the same lock, hands over no client that has gone.
                let Some(guest) = core.guests.get(&token) else { return };
                if core.registry.board.is_some() {
                    core.holders.add(pid, &guest.process);
                }
                let message = ToServer::Client { hello: clean::without_environment(&hello), pid, uid, grant: *grant };
                let sent = core.links.get(&server).is_some_and(|link| link.send(&message, &[guest.connection.as_fd(), guest.process.as_fd()]).is_ok());
                if sent {
                    self.remove_guest(core, token);
                } else {
                    // The server has just died or hangs: the client waits until it is back, or for
                    // the next one.
                    core.links.remove(&server);
                    events.push_back(Event::Disconnected { pid: server });
                    events.push_back(Event::Client { token, pid, uid, hello, door });
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

    /// A server's process has ended. What it has sent before is read first: an answer, perhaps.
    pub(crate) fn forget(self: &Arc<Self>, pid: u32, status: Option<i32>) {
        let until = Instant::now() + LAST_WORDS;
        let mut core = self.core();
        core.ended.insert(pid);
        while core.links.contains_key(&pid)
            && let Some(rest) = until.checked_duration_since(Instant::now())
        {
            core = self.changed.wait_timeout(core, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
        core.ended.remove(&pid);
        core.links.remove(&pid);
        core.words.remove(&pid);
        core.read.remove(&pid);
        core.ledger.remove(pid);
        drop(core);
        self.feed(Event::Exited { pid, status });
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
}

fn kill(pid: u32) {
    if let Ok(process) = Process::open(pid) {
        let _ = process.signal(Signal::KILL);
    }
}
