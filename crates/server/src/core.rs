//! All state of a server, and the loop that changes it, one event at a time. After each event
//! [`Core::reconcile`] compares what is with what should be and takes the next steps; so no step
//! depends on which event came first.

use crate::event::Event;
use crate::executors::Worker;
use crate::host::Host;
use crate::keeper::KeeperSlot;
use crate::log::Log;
use crate::outbox::Outbox;
use crate::rebuild::Rebuild;
use crate::session::Session;
use crate::state_file::StateFile;
use crate::watch::Watcher;
use crate::{Limits, Options};
use cumux_link::{Connection, Process};
use cumux_wire::VERSION;
use cumux_wire::message::{ClientStatus, DeviceFacts, DeviceGrant, FromServer, Grant, Hello, Reply, ToServer};
use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// Whom a watched process handle belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Subject {
    Keeper,
    Worker(u64),
    Client(u32),
}

/// Where the way to the end has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    No,
    /// No new clients; the end comes with the last one's.
    Draining,
    /// Executors were told to quit, then the keeper.
    Executors {
        since: Instant,
    },
    Keeper {
        since: Instant,
    },
    Done,
}

/// Which executor serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    ByNobody,
    /// This one was told to, and has not yet said that it does.
    Beginning {
        worker: u64,
        since: Instant,
    },
    By {
        worker: u64,
    },
}

impl Service {
    /// The executor that serves, or that was told to.
    pub(crate) fn active(self) -> Option<u64> {
        match self {
            Self::ByNobody => None,
            Self::Beginning { worker, .. } | Self::By { worker } => Some(worker),
        }
    }

    /// The executor that serves.
    pub(crate) fn serving(self) -> Option<u64> {
        match self {
            Self::By { worker } => Some(worker),
            Self::ByNobody | Self::Beginning { .. } => None,
        }
    }

    /// Whether an executor serves.
    pub(crate) fn is_given(self) -> bool {
        self.serving().is_some()
    }
}

/// A client whose hello has come and who has no session yet.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) connection: Connection,
    pub(crate) process: Process,
    pub(crate) pid: u32,
    pub(crate) uid: u32,
    pub(crate) program: String,
    pub(crate) grant: Grant,
}

/// A share that the executor was told of and has not yet given.
#[derive(Debug, Clone)]
pub(crate) struct Resharing {
    pub(crate) request: u64,
    pub(crate) session: u32,
    pub(crate) before: u32,
    pub(crate) now: u32,
    /// What the session had.
    pub(crate) old: Vec<DeviceGrant>,
}

/// What the daemon wants to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    Status,
    /// That a client's work has ended.
    End,
}

/// What the daemon has asked for and the executor has not yet answered.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) request: u64,
    pub(crate) until: Instant,
    pub(crate) wish: Wish,
}

pub(crate) struct Core<H: Host> {
    pub(crate) options: Options,
    pub(crate) limits: Limits,
    pub(crate) host: H,
    pub(crate) pid: u32,
    /// Handle of this process, for clients.
    pub(crate) own: Process,
    pub(crate) log: Log,
    pub(crate) events: Sender<Event>,
    pub(crate) watcher: Watcher,
    pub(crate) subjects: BTreeMap<u64, Subject>,
    pub(crate) daemon: Option<Outbox<FromServer>>,
    /// Clients that this daemon has handed over, however it went on with them.
    pub(crate) taken: u64,
    /// The daemon knows that we are ready.
    pub(crate) announced: bool,
    pub(crate) lonely_since: Option<Instant>,
    pub(crate) keeper: KeeperSlot,
    pub(crate) workers: BTreeMap<u64, Worker>,
    pub(crate) next_worker: u64,
    pub(crate) service: Service,
    /// When the last active one was lost, and how long it had served.
    pub(crate) lost_at: Option<Instant>,
    pub(crate) lived: Duration,
    pub(crate) generation: u32,
    pub(crate) takeovers: u32,
    pub(crate) deaths: VecDeque<Instant>,
    /// No executor is started before.
    pub(crate) start_after: Instant,
    /// Why there is no standby: the device cannot be opened twice.
    pub(crate) no_standby: Option<String>,
    /// What the last executor that could not serve has said.
    pub(crate) last_failure: String,
    /// Why nobody can be served; this server is about to end.
    pub(crate) broken: Option<String>,
    pub(crate) devices: Vec<DeviceFacts>,
    pub(crate) sessions: BTreeMap<u32, Session>,
    pub(crate) next_session: u32,
    pub(crate) arrivals: VecDeque<Arrival>,
    pub(crate) gone: VecDeque<ClientStatus>,
    pub(crate) questions: BTreeMap<u64, Question>,
    pub(crate) next_question: u64,
    pub(crate) resharings: BTreeMap<u64, Resharing>,
    pub(crate) rebuild: Option<Rebuild>,
    pub(crate) ending: Ending,
    /// As last written.
    state: StateFile,
}

impl<H: Host> Core<H> {
    /// # Errors
    /// When the system gives no threads or descriptors.
    pub(crate) fn new(options: Options, limits: Limits, host: H, events: Sender<Event>) -> std::io::Result<Self> {
        let now = Instant::now();
        let pid = std::process::id();
        let old = StateFile::read(&options.state_file());
        let mut core = Self {
            own: host.open(pid)?,
            log: Log::open(options.log.as_deref()),
            watcher: Watcher::start(events.clone())?,
            options,
            limits,
            host,
            pid,
            events,
            subjects: BTreeMap::new(),
            daemon: None,
            taken: 0,
            announced: false,
            lonely_since: None,
            keeper: KeeperSlot::empty(now, pid),
            workers: BTreeMap::new(),
            next_worker: 1,
            service: Service::ByNobody,
            lost_at: None,
            lived: Duration::ZERO,
            generation: old.generation,
            takeovers: old.takeovers,
            deaths: VecDeque::new(),
            start_after: now,
            no_standby: None,
            last_failure: String::new(),
            broken: None,
            devices: Vec::new(),
            sessions: BTreeMap::new(),
            next_session: old.next_session.max(1),
            arrivals: VecDeque::new(),
            gone: VecDeque::new(),
            questions: BTreeMap::new(),
            next_question: 1,
            resharings: BTreeMap::new(),
            rebuild: None,
            ending: Ending::No,
            state: StateFile::default(),
        };
        core.log.other("Startup");
        core.log.other(&format!("Connecting to control daemon on socket: {}", core.options.pipe.join("cumux").display()));
        core.log.other("Initializing server process");
        core.begin_rebuild(&old, now);
        Ok(core)
    }

    /// Until the end.
    pub(crate) fn serve(&mut self, inbox: &Receiver<Event>) {
        loop {
            let now = Instant::now();
            self.reconcile(now);
            if self.ending == Ending::Done {
                self.log.line("Exiting");
                if let Some(daemon) = self.daemon.take() {
                    daemon.finish();
                }
                return;
            }
            let event = match self.next_deadline(now) {
                Some(at) => inbox.recv_timeout(at.saturating_duration_since(Instant::now())),
                None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match event {
                Ok(event) => {
                    self.handle(event);
                    // What came with it is part of the same picture.
                    while let Ok(event) = inbox.try_recv() {
                        self.handle(event);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                // We hold a sender ourselves.
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    pub(crate) fn handle(&mut self, event: Event) {
        match event {
            Event::Hello { connection, hello } => self.greet(connection, hello),
            Event::Executor { worker, message, descriptors } => self.hear(worker, message, descriptors),
            Event::Keeper { number, told } => self.keeper_told(number, told),
            Event::ExecutorLost { worker } => self.connection_lost(worker),
            Event::Gone { token } => match self.subjects.remove(&token) {
                Some(Subject::Keeper) => self.keeper_gone(),
                Some(Subject::Worker(worker)) => self.worker_gone(worker),
                Some(Subject::Client(session)) => self.client_gone(session),
                None => {}
            },
            Event::DaemonUp(outbox) => {
                self.daemon = Some(outbox);
                self.taken = 0;
                self.announced = false;
                if let Some(why) = &self.broken {
                    self.tell(FromServer::Failed { why: why.clone() });
                }
                // What an earlier server left is counted when it is known.
                if self.rebuild.is_none() {
                    self.count_clients();
                }
            }
            Event::DaemonDown => {
                self.daemon = None;
                self.log.line("The control daemon has gone; clients go on, and a new daemon is awaited");
            }
            Event::Daemon { message, descriptors } => match message {
                ToServer::Client { hello, pid, uid, grant } => {
                    self.taken += 1;
                    self.arrive(descriptors, hello, pid, uid, grant);
                    self.count_clients();
                }
                ToServer::SetShare { request, pid, share } => self.set_share(request, pid, share),
                ToServer::Status { request } => self.ask_status(request),
                ToServer::Terminate { request, pid } => self.terminate(request, pid),
                ToServer::Ping { request } => self.tell(FromServer::Pong { request }),
                ToServer::Shutdown { force } => {
                    self.log.line("Server has been notified to shutdown");
                    if !force {
                        self.log.line("Waiting for current clients to finish");
                    }
                    self.end(force);
                }
            },
            Event::Stop => {
                self.log.line("Server has been notified to shutdown");
                self.end(true);
            }
        }
    }

    /// Somebody at our own socket.
    fn greet(&mut self, connection: Connection, hello: Hello) {
        let (version, pid) = match &hello {
            Hello::Keeper { version, pid } | Hello::Executor { version, pid, .. } => (*version, *pid),
            Hello::Client { .. } | Hello::Server { .. } => {
                refuse(
                    &connection,
                    cumux_wire::result::MPS_CONNECTION_FAILED,
                    "this is the socket of a server's own processes; programs connect to the daemon",
                );
                return;
            }
        };
        if version != VERSION {
            let why = format!("process {pid} speaks version {version} and this server {VERSION}; install one version of cumux and start the daemon again");
            self.log.line(&why);
            refuse(&connection, cumux_wire::result::SYSTEM_DRIVER_MISMATCH, &why);
            return;
        }
        if !self.host.vouches(&connection, pid) {
            self.log.line(&format!("A process said that it is {pid} and is not; it was turned away"));
            return;
        }
        match hello {
            Hello::Keeper { .. } => self.keeper_hello(connection, pid),
            Hello::Executor { generation, serving, devices, .. } => self.executor_hello(connection, pid, generation, serving, devices),
            Hello::Client { .. } | Hello::Server { .. } => {}
        }
    }

    /// Takes every step that is due.
    pub(crate) fn reconcile(&mut self, now: Instant) {
        if !matches!(self.ending, Ending::No | Ending::Draining) {
            self.end_step(now);
            return;
        }
        if self.ending == Ending::Draining && self.sessions.is_empty() && self.rebuild.is_none() {
            self.end(true);
            self.end_step(now);
            return;
        }
        if !self.rebuild_step(now) {
            return;
        }
        self.mend_keeper(now);
        self.mend_workers(now);
        self.admit_arrivals();
        self.answer_late_questions(now);
        if self.service.is_given() && self.keeper.is_up() && !self.announced && self.daemon.is_some() {
            self.announced = true;
            self.tell(FromServer::Ready { devices: self.devices.clone() });
        }
        self.write_state();
        let lonely = self.daemon.is_none() && self.sessions.is_empty() && self.arrivals.is_empty();
        self.lonely_since = if lonely { self.lonely_since.or(Some(now)) } else { None };
        if self.lonely_since.is_some_and(|since| now >= since + self.limits.lonely) {
            self.log.line("No daemon and no clients any more");
            self.end(true);
        }
    }

    /// When [`Core::reconcile`] has something to do even if nothing happens. What was due at its
    /// last time `now` it has seen.
    fn next_deadline(&self, now: Instant) -> Option<Instant> {
        let mut next: Option<Instant> = None;
        let mut at = |instant: Option<Instant>| {
            if let Some(instant) = instant.filter(|instant| *instant > now) {
                next = Some(next.map_or(instant, |n| n.min(instant)));
            }
        };
        match self.ending {
            Ending::Executors { since } | Ending::Keeper { since } => at(Some(since + self.limits.quit)),
            Ending::No | Ending::Draining | Ending::Done => {}
        }
        at(self.rebuild.as_ref().map(Rebuild::until));
        at(self.lonely_since.map(|since| since + self.limits.lonely));
        at(self.keeper.deadline(&self.limits));
        for instant in self.worker_deadlines() {
            at(Some(instant));
        }
        for question in self.questions.values() {
            at(Some(question.until));
        }
        next
    }

    pub(crate) fn tell(&self, message: FromServer) {
        if let Some(daemon) = &self.daemon {
            daemon.send(message, Vec::new());
        }
    }

    /// A log line that the daemon's log should have too.
    pub(crate) fn note(&mut self, text: &str) {
        self.log.line(text);
        self.tell(FromServer::Note { text: text.to_owned() });
    }

    /// INITIALIZING, ACTIVE, UNRESPONSIVE or FAULT.
    pub(crate) fn state_word(&self) -> &'static str {
        if self.broken.is_some() || (self.lost_at.is_some() && !self.service.is_given()) {
            "FAULT"
        } else if self.service.is_given() && self.service.active().and_then(|id| self.workers.get(&id)).is_some_and(Worker::is_silent) {
            "UNRESPONSIVE"
        } else if self.service.is_given() {
            "ACTIVE"
        } else {
            "INITIALIZING"
        }
    }

    /// Process number of the executor that waits to take over.
    pub(crate) fn standby_pid(&self) -> u32 {
        self.workers.iter().find(|(id, _)| Some(**id) != self.service.active()).map_or(0, |(_, worker)| worker.pid)
    }

    /// The same, once it is ready to: 0 while it still comes up.
    pub(crate) fn ready_standby_pid(&self) -> u32 {
        self.workers.iter().find(|(id, worker)| Some(**id) != self.service.active() && worker.can_serve()).map_or(0, |(_, worker)| worker.pid)
    }

    pub(crate) fn active_pid(&self) -> u32 {
        self.service.active().and_then(|id| self.workers.get(&id)).map_or(0, |worker| worker.pid)
    }

    fn write_state(&mut self) {
        // Numbers are reserved in hundreds, so that the file need not be written for every client.
        let reserved = if self.state.next_session > self.next_session { self.state.next_session } else { self.next_session.saturating_add(100) };
        let state = StateFile {
            server: self.pid,
            keeper: self.keeper.pid(),
            executor: self.active_pid(),
            standby: self.standby_pid(),
            generation: self.generation,
            next_session: reserved,
            takeovers: self.takeovers,
        };
        if state != self.state {
            if let Err(error) = state.write(&self.options.state_file()) {
                let path = self.options.state_file();
                self.log.line(&format!("cannot write {} ({error}); after a crash of this server its clients could not be found again", path.display()));
            }
            self.state = state;
        }
    }

    /// Ends with the last client, or now.
    pub(crate) fn end(&mut self, now: bool) {
        if !now {
            if self.ending == Ending::No {
                self.ending = Ending::Draining;
            }
            return;
        }
        if matches!(self.ending, Ending::No | Ending::Draining) {
            self.arrivals.clear();
            for worker in self.workers.values_mut() {
                worker.dismiss(&self.host);
            }
            self.ending = Ending::Executors { since: Instant::now() };
        }
    }

    fn end_step(&mut self, now: Instant) {
        if let Ending::Executors { since } = self.ending {
            if !self.workers.is_empty() && now >= since + self.limits.quit {
                for worker in self.workers.values_mut() {
                    worker.kill(&self.host);
                }
            }
            // A daemon that comes now should still hear why.
            let unheard = self.broken.is_some() && self.daemon.is_none() && now < since + self.limits.quit;
            if self.workers.is_empty() && !unheard {
                self.fail_sessions(cumux_wire::result::MPS_RPC_FAILURE);
                self.keeper.quit(&self.host);
                self.ending = Ending::Keeper { since: now };
            }
        }
        if let Ending::Keeper { since } = self.ending {
            if !self.keeper.is_gone() && now >= since + self.limits.quit {
                self.keeper.kill(&self.host);
            }
            if self.keeper.is_gone() {
                self.ending = Ending::Done;
            }
        }
    }
}

/// Answers a hello with a sentence.
pub(crate) fn refuse(connection: &Connection, result: u32, why: &str) {
    let _ = connection.set_timeout(Some(Duration::from_millis(100)));
    let _ = connection.send(&Reply::Refused { result, why: why.to_owned() }, &[]);
}
