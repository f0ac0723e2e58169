//! What the fuzz target `packets` drives: a server's state, behind the packets of others and with
//! pretended processes. One event at a time is handled to its end before the next one; time passes
//! when the caller says so. Everything here panics where it cannot go on, as tests do.

use crate::core::{Core, Ending};
use crate::event::Event;
use crate::host::{Fate, Host, Role};
use crate::keeper::Told;
use crate::outbox::Outbox;
use crate::session::{ClientSession, Seat};
use crate::worker::Worker;
use crate::{Limits, Options};
use cumux_link::pulse::Motion;
use cumux_link::{Connection, Process};
use cumux_wire::VERSION;
use cumux_wire::message::{FromExecutor, Hello, ToServer};
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::Shutdown;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The user whose server this is.
pub const USER: u32 = 7;
/// A thread that has not answered by then hangs.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// Processes that are event counters: one is readable when its process "has ended", as a process
/// handle is.
#[derive(Debug, Clone, Default)]
struct Stage {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    processes: BTreeMap<u32, OwnedFd>,
    ended: BTreeSet<u32>,
    /// What the server has started, oldest first.
    started: Vec<(Role, u32)>,
    /// Connections of keepers, which end with them, and the threads that they are.
    keepers: BTreeMap<u32, (Connection, JoinHandle<()>)>,
    /// Signals have stopped these.
    stopped: BTreeSet<u32>,
    /// No process can be started.
    exhausted: bool,
}

impl Stage {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, pid: u32) {
        let mut inner = self.lock();
        if let Some(process) = inner.processes.get(&pid) {
            rustix::io::write(process, &1_u64.to_ne_bytes()).expect("a counter takes a one");
            inner.ended.insert(pid);
        }
        if let Some((connection, _)) = inner.keepers.remove(&pid) {
            let _ = rustix::net::shutdown(&connection, Shutdown::Both);
        }
    }

    fn has_ended(&self, pid: u32) -> bool {
        self.lock().ended.contains(&pid)
    }
}

impl Host for Stage {
    fn start(&self, role: Role) -> io::Result<u32> {
        if self.lock().exhausted {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let mut inner = self.lock();
        // Numbers that no client has.
        let pid = 1000 + u32::try_from(inner.started.len()).unwrap_or(u32::MAX - 1000);
        inner.started.push((role, pid));
        inner.processes.insert(pid, counter());
        Ok(pid)
    }

    fn use_program(&self, program: &Path) -> PathBuf {
        program.to_owned()
    }

    fn open(&self, pid: u32) -> rustix::io::Result<Process> {
        let mut inner = self.lock();
        // The server's own number, and clients: whoever is asked for is there.
        let process = inner.processes.entry(pid).or_insert_with(counter);
        Ok(process.try_clone().map_err(|_| rustix::io::Errno::MFILE)?.into())
    }

    fn kill(&self, pid: u32, _: &Process) {
        self.end(pid);
    }

    fn motion(&self, pid: u32) -> Motion {
        if self.lock().stopped.contains(&pid) { Motion::Stopped } else { Motion::Runs }
    }

    fn stop(&self, _: &Process) {}

    fn set_going(&self, _: &Process) {
        self.lock().stopped.clear();
    }

    fn reap(&self, pid: u32) -> Option<String> {
        self.has_ended(pid).then(|| "signal 9".to_owned())
    }

    fn fate(&self, pid: u32) -> Option<Fate> {
        self.has_ended(pid).then_some(if pid.is_multiple_of(2) { Fate::Killed } else { Fate::Exited })
    }

    fn admits(&self, _: &Connection) -> bool {
        true
    }

    fn vouches(&self, _: &Connection, _: u32) -> bool {
        true
    }

    fn is_current(&self, _: u32) -> bool {
        true
    }

    fn is_ours(&self, _: u32) -> bool {
        false
    }
}

fn counter() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("a counter")
}

/// A server.
#[allow(missing_debug_implementations, reason = "only the fuzz targets have it")]
pub struct Bench {
    core: Core<Stage>,
    inbox: Receiver<Event>,
    stage: Stage,
    /// How much time has passed beside the clock's.
    ahead: Duration,
    /// Executors whose connections have ended.
    lost: BTreeSet<u64>,
}

impl Bench {
    /// With its files in `folder`, which holds nothing of an earlier server. With a heartbeat,
    /// executors that say nothing for long are ended.
    ///
    /// # Panics
    /// The system gives no threads or descriptors.
    #[must_use]
    pub fn new(folder: &Path, heartbeat: bool) -> Self {
        let options = Options { pipe: folder.to_owned(), log: Some(folder.to_owned()), devices: vec!["sim:h200".into()], uid: USER };
        let _ = std::fs::remove_file(options.state_file());
        let (events, inbox) = channel();
        let stage = Stage::default();
        let default = Limits::default();
        let limits = Limits { clients: 3, heartbeat: default.heartbeat.filter(|_| heartbeat), ..default };
        let core = Core::start(options, limits, stage.clone(), events).expect("threads and descriptors");
        let mut bench = Self { core, inbox, stage, ahead: Duration::ZERO, lost: BTreeSet::new() };
        bench.settle();
        bench
    }

    fn now(&self) -> Instant {
        Instant::now() + self.ahead
    }

    fn handle(&mut self, event: Event) {
        if let Event::ExecutorLost { worker } = event {
            self.lost.insert(worker);
        }
        self.core.handle(event);
    }

    /// Whoever is with no executor waits for one, and for nothing else.
    fn check_waiting(&self) {
        let waits = |session: &&ClientSession| session.seat == Seat::No && session.own_failures == 0 && session.move_after.is_some();
        if let Some(session) = self.core.clients.sessions.values().find(waits) {
            panic!("session {} is with no executor, and waits for a time", session.about.id);
        }
    }

    /// Carries out what follows, until nothing follows any more.
    fn settle(&mut self) {
        loop {
            if self.is_done() {
                return;
            }
            self.check_waiting();
            self.core.reconcile(self.now());
            // Ends of processes come from a thread: what was there before this mark comes before
            // it.
            let mark = counter();
            let token = self.core.processes.watcher.watch(&mark).expect("an epoll set");
            rustix::io::write(&mark, &1_u64.to_ne_bytes()).expect("a counter takes a one");
            let mut any = false;
            loop {
                match self.inbox.recv_timeout(ANSWER_TIMEOUT).expect("the watcher's thread lives") {
                    Event::Gone { token: marked } if marked == token => break,
                    event => {
                        any = true;
                        self.handle(event);
                    }
                }
            }
            self.core.processes.watcher.forget(&mark);
            if matches!(self.core.ending, Ending::Keeper { .. }) {
                // A keeper that was told to quit ends, with all that it was asked before answered.
                // It is asked nothing more: it would not answer.
                let keepers: Vec<u32> = self.stage.lock().keepers.keys().copied().collect();
                for pid in keepers {
                    any = true;
                    let keeper = self.stage.lock().keepers.remove(&pid);
                    if let Some((connection, thread)) = keeper {
                        drop(connection);
                        let _ = thread.join();
                    }
                    self.stage.end(pid);
                }
                while let Ok(event) = self.inbox.try_recv() {
                    any = true;
                    self.handle(event);
                }
            } else if self.core.keeper.mark() {
                // The keeper is asked by a thread, in order.
                loop {
                    match self.inbox.recv_timeout(ANSWER_TIMEOUT).expect("the keeper's thread lives") {
                        Event::Keeper { told: Told::Listed(_), .. } => break,
                        event @ Event::Keeper { told: Told::Failed(_), .. } => {
                            any = true;
                            self.handle(event);
                            break;
                        }
                        event => {
                            any = true;
                            self.handle(event);
                        }
                    }
                }
            }
            // The connection of a process that has ended is closed, which another thread says.
            while let Some(worker) = self.closing() {
                any = true;
                let event =
                    self.inbox.recv_timeout(ANSWER_TIMEOUT).unwrap_or_else(|_| panic!("nobody says that the connection of executor {worker} has ended"));
                self.handle(event);
            }
            if !any {
                return;
            }
        }
    }

    fn closing(&self) -> Option<u64> {
        let closing = |(id, worker): (&u64, &Worker)| (!worker.is_awaited() && self.stage.has_ended(worker.pid) && !self.lost.contains(id)).then_some(*id);
        self.core.executors.workers.iter().find_map(closing)
    }

    fn happen(&mut self, event: Event) {
        if !self.is_done() {
            self.handle(event);
            self.settle();
        }
    }

    /// Time passes.
    pub fn wait(&mut self, time: Duration) {
        self.ahead = self.ahead.saturating_add(time);
        self.settle();
    }

    /// Whether the server has ended.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.core.ending == Ending::Done
    }

    /// What the server has started and what has not ended: keepers and executors.
    #[must_use]
    pub fn running(&self) -> (Vec<u32>, Vec<u32>) {
        let inner = self.stage.lock();
        let of = |keepers| {
            inner.started.iter().filter(|(role, pid)| (*role == Role::Keeper) == keepers && !inner.ended.contains(pid)).map(|(_, pid)| *pid).collect()
        };
        (of(true), of(false))
    }

    /// Numbers of the executors, as [`Bench::executor`] takes them.
    #[must_use]
    pub fn executors(&self) -> Vec<u64> {
        self.core.executors.workers.keys().copied().collect()
    }

    /// Numbers of the sessions.
    #[must_use]
    pub fn sessions(&self) -> Vec<u32> {
        self.core.clients.sessions.keys().copied().collect()
    }

    /// The generation that serves, or was told to.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.core.executors.generation
    }

    /// A handle of a process, as the daemon hands it over with its client.
    ///
    /// # Panics
    /// The system has no descriptors.
    #[must_use]
    pub fn handle_of(&self, pid: u32) -> OwnedFd {
        self.stage.open(pid).expect("a descriptor").into()
    }

    /// The process ends.
    pub fn end_process(&mut self, pid: u32) {
        self.stage.end(pid);
        self.settle();
    }

    /// Whether a process has ended: by itself, or because the server has killed it.
    #[must_use]
    pub fn has_ended(&self, pid: u32) -> bool {
        self.stage.has_ended(pid)
    }

    /// A signal stops the process: the system says so, but what it says of itself still comes.
    pub fn stop_process(&mut self, pid: u32) {
        self.stage.lock().stopped.insert(pid);
        self.settle();
    }

    /// From now on processes can be started, or cannot.
    pub fn exhaust(&mut self, exhausted: bool) {
        self.stage.lock().exhausted = exhausted;
    }

    /// The keeper that was started last comes, and does its work.
    ///
    /// # Panics
    /// The system gives no thread.
    pub fn keeper_comes(&mut self) {
        let Some(pid) = self.running().0.last().copied().filter(|pid| !self.stage.lock().keepers.contains_key(pid)) else { return };
        let (ours, theirs) = Connection::pair().expect("a pair of sockets");
        let end = theirs.try_clone().expect("a descriptor");
        let serve = move || cumux_keeper::fuzzing::serve_connection(&theirs);
        let thread = std::thread::Builder::new().name("keeper".into()).spawn(serve).expect("a thread");
        self.stage.lock().keepers.insert(pid, (end, thread));
        self.hello(ours, Hello::Keeper { version: VERSION, pid });
    }

    /// Somebody says hello at the server's own socket.
    pub fn hello(&mut self, connection: Connection, hello: Hello) {
        self.happen(Event::Hello { connection, hello });
    }

    /// An executor says something.
    pub fn executor(&mut self, worker: u64, message: FromExecutor, descriptors: Vec<OwnedFd>) {
        self.happen(Event::Executor { worker, message, descriptors });
    }

    /// The daemon is there, at the other end of this connection.
    ///
    /// # Panics
    /// The system gives no thread.
    pub fn daemon_comes(&mut self, connection: Connection) {
        let outbox = Outbox::over(Arc::new(connection)).expect("a thread");
        self.happen(Event::DaemonUp(outbox));
    }

    /// The daemon says something.
    pub fn daemon(&mut self, message: ToServer, descriptors: Vec<OwnedFd>) {
        self.happen(Event::Daemon { message, descriptors });
    }

    /// The daemon has gone.
    pub fn daemon_goes(&mut self) {
        self.happen(Event::DaemonDown);
    }

    /// A signal asks the server to end.
    pub fn stop(&mut self) {
        self.happen(Event::Stop);
    }
}

/// Keepers are threads here: they end with their connections.
impl Drop for Bench {
    fn drop(&mut self) {
        for (connection, _) in self.stage.lock().keepers.values() {
            let _ = rustix::net::shutdown(connection.as_fd(), Shutdown::Both);
        }
    }
}
