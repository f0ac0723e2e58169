//! All state of a server, and what every part of it may do with that: tell the daemon, write down
//! what a successor needs, and have a session kept. What happens to the state lies above.

use crate::event::Event;
use crate::fault_log::FaultLog;
use crate::groups::Groups;
use crate::host::Host;
use crate::keeper::KeeperSlot;
use crate::log::Log;
use crate::outbox::Outbox;
use crate::session::ClientSession;
use crate::state_file::StateFile;
use crate::watch::Watcher;
use crate::worker::{Service, Worker};
use crate::{Addresses, Limits, Options};
use cumux_link::{Connection, Process};
use cumux_wire::message::{ClientStatus, DeviceFacts, DeviceGrant, FromServer, Grant, Scope, SessionConfig};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// Parts of the arena in which executors look for addresses. Which one an executor has is a
/// preference: with more executors than stripes two have the same.
const STRIPES: u32 = 8;

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
    /// This server alone ends; the next one goes on with its processes.
    HandOver,
    /// Executors were told to quit, then the keeper.
    Executors {
        since: Instant,
    },
    Keeper {
        since: Instant,
    },
    Done,
}

/// How far the search for absent devices has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Return {
    /// The executor that serves has all devices, or the search is off.
    AllPresent,
    /// The next try is due at `until`, `wait` after the last one.
    Waiting {
        /// When it is due.
        until: Instant,
        /// How long it is waited for.
        wait: Duration,
    },
    /// Executors with numbers from `first` on have been started since the try began.
    Trying {
        /// The least number of such an executor.
        first: u64,
        /// The try is given up then.
        until: Instant,
        /// The wait before this try.
        wait: Duration,
    },
}

impl Return {
    /// Standbys that are wanted beside the usual ones.
    pub(crate) fn count_standbys(self) -> usize {
        usize::from(matches!(self, Self::Trying { .. }))
    }

    /// When something is due.
    pub(crate) fn deadline(self) -> Option<Instant> {
        match self {
            Self::AllPresent => None,
            Self::Waiting { until, .. } | Self::Trying { until, .. } => Some(until),
        }
    }
}

/// How far the replacement of all processes by those of another program has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Upgrade {
    /// None is under way.
    No,
    /// Executors of the new program are started, and sessions move to them.
    Executors {
        /// The daemon's question.
        request: u64,
        /// The program before: it is used again if the new one cannot serve.
        earlier: PathBuf,
        /// Who has not moved by then stays for now.
        until: Instant,
        /// By then the upgrade has come further, or is given up.
        at_last: Instant,
    },
    /// The keeper is replaced; then this server hands over.
    Keeper {
        /// The daemon's question.
        request: u64,
        /// The one before.
        before: u32,
        /// The next one is not waited for any longer.
        until: Instant,
    },
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
    /// The executor that had the session then, and is to answer.
    pub(crate) worker: u64,
    pub(crate) before: u32,
    pub(crate) now: u32,
    /// What the session had.
    pub(crate) old: Vec<DeviceGrant>,
}

/// What the daemon wants to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    Status,
    /// That a client's work has ended. The executor that says so.
    End {
        /// One that serves it alone; none for the one that serves all.
        worker: Option<u64>,
    },
}

/// What the daemon has asked for and the executor has not yet answered.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) request: u64,
    pub(crate) until: Instant,
    pub(crate) wish: Wish,
}

/// The processes whose ends are watched.
pub(crate) struct Processes {
    pub(crate) watcher: Watcher,
    subjects: BTreeMap<u64, Subject>,
}

impl Processes {
    /// From now on the end of this process is announced. Returns the watcher's number of it.
    ///
    /// # Errors
    /// When the system has no room for more.
    pub(crate) fn watch(&mut self, handle: impl AsFd, subject: Subject) -> rustix::io::Result<u64> {
        let token = self.watcher.watch(handle)?;
        self.subjects.insert(token, subject);
        Ok(token)
    }

    /// Whose process it was that has ended; none if nobody wants to know any more.
    pub(crate) fn ended(&mut self, token: u64) -> Option<Subject> {
        self.subjects.remove(&token)
    }
}

/// The daemon that is there.
pub(crate) struct Daemon {
    pub(crate) outbox: Outbox<FromServer>,
    /// Clients that it has handed over, however it went on with them.
    pub(crate) taken: u64,
    /// It knows that we are ready.
    pub(crate) announced: bool,
}

/// When executors were lost lately: how many stand by depends on it.
///
/// After a loss it takes 1.6 s until the next standby can take over, and a fault seldom comes
/// alone. So for a while after a loss one more stands by than were lost within
/// [`Losses::WINDOW`].
#[derive(Debug, Default)]
pub(crate) struct Losses(VecDeque<Instant>);

impl Losses {
    /// A standby should be ready after this time.
    const WINDOW: Duration = Duration::from_secs(2);
    /// So long it is remembered how quickly they followed each other.
    const MEMORY: Duration = Duration::from_secs(60);

    /// An executor was lost.
    pub(crate) fn add(&mut self, now: Instant) {
        self.0.push_back(now);
    }

    /// How many executors should stand by.
    pub(crate) fn count_standbys(&mut self, now: Instant, most: usize) -> usize {
        while self.0.front().is_some_and(|at| *at + Self::MEMORY <= now) {
            self.0.pop_front();
        }
        let within = |first: &Instant| self.0.iter().filter(|at| *at >= first && **at < *first + Self::WINDOW).count();
        self.0.iter().map(within).max().map_or(1, |losses| losses + 1).clamp(1, most.max(1))
    }

    /// When fewer may be wanted.
    pub(crate) fn next_change(&self) -> Option<Instant> {
        self.0.front().map(|at| *at + Self::MEMORY)
    }
}

/// The executors, and how those before them fared.
pub(crate) struct Executors {
    pub(crate) workers: BTreeMap<u64, Worker>,
    pub(crate) next: u64,
    pub(crate) service: Service,
    /// What the one that serves has named.
    pub(crate) devices: Vec<DeviceFacts>,
    pub(crate) generation: u32,
    pub(crate) takeovers: u32,
    /// When executors were lost lately.
    pub(crate) losses: Losses,
    /// When the last active one was lost.
    pub(crate) lost_at: Option<Instant>,
    /// If nobody knows why: how long it had served.
    pub(crate) unexplained_after: Option<Duration>,
    pub(crate) deaths: VecDeque<Instant>,
    /// None is started before.
    pub(crate) start_after: Instant,
    /// Number of the program that is started now: 1 for that of this server. Executors of an
    /// earlier program have lower numbers.
    pub(crate) build: u32,
    /// The stripe of the arena that was given out last, and one more.
    pub(crate) next_stripe: u32,
    /// Which addresses clients get.
    pub(crate) addresses: Addresses,
    /// Why there is no standby: the device cannot be opened twice.
    pub(crate) no_standby: Option<String>,
    /// A fault is being handled: until then at most, whoever comes up waits.
    pub(crate) calm_until: Option<Instant>,
    /// The executor that was told to spare the driver.
    pub(crate) sparing: Option<u64>,
    /// What the last one that could not serve has said.
    pub(crate) last_failure: String,
    /// Whether devices that could not be opened are tried again.
    pub(crate) coming_back: Return,
}

impl Executors {
    /// The executor that serves, or that was told to.
    pub(crate) fn active(&self) -> Option<&Worker> {
        self.service.active().and_then(|id| self.workers.get(&id))
    }

    /// The executor that serves.
    pub(crate) fn serving(&self) -> Option<&Worker> {
        self.service.serving().and_then(|id| self.workers.get(&id))
    }

    /// Process number of the one that serves, or was told to; 0 without one.
    pub(crate) fn active_pid(&self) -> u32 {
        self.active().map_or(0, |worker| worker.pid)
    }

    /// Process number of the one that waits to take over.
    pub(crate) fn standby_pid(&self) -> u32 {
        let waits = |id: u64, worker: &Worker| Some(id) != self.service.active() && worker.is_shared() && !worker.is_dismissed();
        self.workers.iter().find(|(id, worker)| waits(**id, worker)).map_or(0, |(_, worker)| worker.pid)
    }

    /// Process numbers of all others: those that serve some sessions alone, and further standbys.
    pub(crate) fn other_pids(&self) -> Vec<u32> {
        let named = [self.active_pid(), self.standby_pid()];
        self.workers.values().map(|worker| worker.pid).filter(|pid| !named.contains(pid)).collect()
    }

    /// A stripe of the arena that no living executor uses, as long as there are any; always the
    /// last one where another cumux has the others.
    pub(crate) fn take_stripe(&mut self) -> u32 {
        if self.addresses == Addresses::Upper {
            return STRIPES - 1;
        }
        let used = |stripe: u32| self.workers.values().any(|worker| worker.activated.is_some() && worker.stripe == stripe);
        let found = (0..STRIPES).map(|step| (self.next_stripe + step) % STRIPES).find(|stripe| !used(*stripe));
        let stripe = found.unwrap_or(self.next_stripe % STRIPES);
        self.next_stripe = (stripe + 1) % STRIPES;
        stripe
    }

    /// The same, once it is ready to: 0 while it still comes up.
    pub(crate) fn ready_standby_pid(&self) -> u32 {
        self.workers.iter().find(|(id, worker)| Some(**id) != self.service.active() && worker.can_serve()).map_or(0, |(_, worker)| worker.pid)
    }
}

/// The clients: those with a session, those on their way, and the last that have gone.
pub(crate) struct Clients {
    pub(crate) sessions: BTreeMap<u32, ClientSession>,
    pub(crate) next_session: u32,
    pub(crate) arrivals: VecDeque<Arrival>,
    pub(crate) gone: VecDeque<ClientStatus>,
    /// The groups that they belong to.
    pub(crate) groups: Groups,
}

/// What was asked of the executor, by number.
pub(crate) struct Questions {
    pub(crate) open: BTreeMap<u64, Question>,
    pub(crate) resharings: BTreeMap<u64, Resharing>,
    next: u64,
}

impl Clients {
    /// How many sessions of a group are served.
    pub(crate) fn count_members(&self, group: &str) -> u32 {
        u32::try_from(self.sessions.values().filter(|session| session.is_served() && session.group() == Some(group)).count()).unwrap_or(u32::MAX)
    }

    /// Nothing of a session is left in any executor: its group has its memory back.
    pub(crate) fn leave_group(&mut self, about: &SessionConfig) {
        let Some(membership) = &about.group else { return };
        self.groups.leave(&membership.group, about.window_slot);
        let Self { groups, sessions, .. } = self;
        groups.retain(|name| sessions.values().any(|session| session.files.is_some() && session.group() == Some(name)));
    }
}

impl Questions {
    /// A number that no question had.
    pub(crate) fn number(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }
}

/// What is still waited for of an earlier server's processes.
#[derive(Debug)]
pub(crate) struct Rebuild {
    pub(crate) until: Instant,
    /// The keeper has named the sessions that it has.
    pub(crate) kept_named: bool,
    /// Executors that have named all sessions that they had.
    pub(crate) named: BTreeSet<u64>,
    /// Sessions whose kernels are held back, and why: dealt with when all sessions are known.
    pub(crate) confined: Vec<(u32, String)>,
}

pub(crate) struct Core<H: Host> {
    pub(crate) options: Options,
    pub(crate) limits: Limits,
    pub(crate) host: H,
    pub(crate) pid: u32,
    /// Handle of this process, for clients.
    pub(crate) own: Process,
    pub(crate) log: Log,
    pub(crate) faults: FaultLog,
    pub(crate) events: Sender<Event>,
    pub(crate) processes: Processes,
    pub(crate) daemon: Option<Daemon>,
    pub(crate) keeper: KeeperSlot,
    pub(crate) executors: Executors,
    pub(crate) clients: Clients,
    pub(crate) questions: Questions,
    pub(crate) rebuild: Option<Rebuild>,
    /// Since when there has been neither a daemon nor a client.
    pub(crate) lonely_since: Option<Instant>,
    /// Why nobody can be served; this server is about to end.
    pub(crate) broken: Option<String>,
    pub(crate) ending: Ending,
    pub(crate) upgrade: Upgrade,
    /// As last written.
    state: StateFile,
}

impl<H: Host> Core<H> {
    /// Nothing but what an earlier server has written down.
    ///
    /// # Errors
    /// When the system gives no threads or descriptors.
    pub(crate) fn new(options: Options, limits: Limits, host: H, events: Sender<Event>, old: &StateFile, now: Instant) -> std::io::Result<Self> {
        let addresses = limits.addresses;
        let pid = std::process::id();
        let ends = events.clone();
        Ok(Self {
            own: host.open(pid)?,
            log: Log::open(options.log.as_deref()),
            faults: FaultLog::open(options.fault_file()),
            processes: Processes { watcher: Watcher::start(move |token| ends.send(Event::Gone { token }).is_ok())?, subjects: BTreeMap::new() },
            options,
            limits,
            host,
            pid,
            events,
            daemon: None,
            keeper: KeeperSlot::empty(now, pid),
            executors: Executors {
                workers: BTreeMap::new(),
                next: 1,
                service: Service::ByNobody,
                devices: Vec::new(),
                generation: old.generation,
                takeovers: old.takeovers,
                lost_at: None,
                // What the server before had heard of it is not known.
                unexplained_after: Some(Duration::ZERO),
                deaths: VecDeque::new(),
                start_after: now,
                build: 1,
                next_stripe: 0,
                addresses,
                no_standby: None,
                calm_until: None,
                sparing: None,
                losses: Losses::default(),
                last_failure: String::new(),
                coming_back: Return::AllPresent,
            },
            clients: Clients {
                sessions: BTreeMap::new(),
                next_session: old.next_session.max(1),
                arrivals: VecDeque::new(),
                gone: VecDeque::new(),
                groups: Groups::default(),
            },
            questions: Questions { open: BTreeMap::new(), resharings: BTreeMap::new(), next: 1 },
            rebuild: None,
            lonely_since: None,
            broken: None,
            ending: Ending::No,
            upgrade: Upgrade::No,
            state: StateFile::default(),
        })
    }

    /// Tells the daemon, if there is one.
    pub(crate) fn tell(&self, message: FromServer) {
        if let Some(daemon) = &self.daemon {
            daemon.outbox.send(message, Vec::new());
        }
    }

    /// A log line that the daemon's log should have too.
    pub(crate) fn note(&mut self, text: &str) {
        self.log.line(text);
        self.tell(FromServer::Note { text: text.to_owned() });
    }

    /// INITIALIZING, ACTIVE, UNRESPONSIVE or FAULT.
    pub(crate) fn state_word(&self) -> &'static str {
        if self.broken.is_some() || (self.executors.lost_at.is_some() && !self.executors.service.is_given()) {
            "FAULT"
        } else if self.executors.service.is_given() && self.executors.active().is_some_and(Worker::is_silent) {
            "UNRESPONSIVE"
        } else if self.executors.service.is_given() {
            "ACTIVE"
        } else {
            "INITIALIZING"
        }
    }

    /// Writes down what a successor of this server needs, if it has changed.
    pub(crate) fn write_state(&mut self) {
        // Numbers are reserved in hundreds, so that the file need not be written for every client.
        let reserved =
            if self.state.next_session > self.clients.next_session { self.state.next_session } else { self.clients.next_session.saturating_add(100) };
        let state = StateFile {
            server: self.pid,
            keeper: self.keeper.pid(),
            executor: self.executors.active_pid(),
            standby: self.executors.standby_pid(),
            generation: self.executors.generation,
            next_session: reserved,
            takeovers: self.executors.takeovers,
            others: self.executors.other_pids(),
        };
        if state != self.state {
            if let Err(error) = state.write(&self.options.state_file()) {
                let path = self.options.state_file();
                self.log.line(&format!("cannot write {} ({error}); after a crash of this server its clients could not be found again", path.display()));
            }
            self.state = state;
        }
    }

    /// Tells the daemon how many clients there are, with those on their way.
    pub(crate) fn count_clients(&self) {
        let count = self.clients.sessions.values().filter(|s| !s.is_leaving()).count() + self.clients.arrivals.len();
        let taken = self.daemon.as_ref().map_or(0, |daemon| daemon.taken);
        self.tell(FromServer::Clients { count: u32::try_from(count).unwrap_or(u32::MAX), taken });
    }

    /// Has a session's descriptors kept, or kept with its present configuration.
    pub(crate) fn keep(&mut self, id: u32) {
        if let Some(session) = self.clients.sessions.get_mut(&id) {
            self.keeper.keep(session);
        }
    }

    /// Watches an executor that was started, by us or by an earlier server.
    pub(crate) fn adopt_worker(&mut self, pid: u32, scope: Scope) -> std::io::Result<u64> {
        let process = self.host.open(pid)?;
        let id = self.executors.next;
        self.processes.watch(&process, Subject::Worker(id))?;
        self.executors.next += 1;
        let mut worker = Worker::new(pid, process, scope, self.limits.heartbeat);
        worker.build = self.executors.build;
        self.executors.workers.insert(id, worker);
        Ok(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_faults_follow_each_other_quickly_more_stand_by() {
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let mut losses = Losses::default();
        let most = 4;
        assert_eq!((losses.count_standbys(begin, most), losses.next_change()), (1, None));
        losses.add(at(0));
        assert_eq!((losses.count_standbys(at(1), most), losses.count_standbys(at(1), 1)), (2, 1), "a fault seldom comes alone");
        losses.add(at(5_000));
        assert_eq!(losses.count_standbys(at(5_000), most), 2, "a standby is ready after five seconds");
        losses.add(at(6_000));
        assert_eq!(losses.count_standbys(at(6_000), most), 3);
        (0..10).for_each(|count| losses.add(at(6_100 + count)));
        assert_eq!(losses.count_standbys(at(6_200), most), 4, "each takes memory");
        assert_eq!(losses.next_change(), Some(at(60_000)));
        assert_eq!(losses.count_standbys(at(66_000), most), 4);
        assert_eq!(losses.count_standbys(at(70_000), most), 1);
    }
}
