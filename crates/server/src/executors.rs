//! Executors: one that serves, one that stands by. Starting them, telling them of sessions, and
//! letting the next one take over.

use crate::core::{Core, Ending, Service, Subject};
use crate::event;
use crate::host::{Host, Role};
use crate::outbox::Outbox;
use crate::session::Seat;
use cumux_link::pulse::{self, Pulse, Verdict};
use cumux_link::{Connection, Process};
use cumux_wire::message::{Capabilities, DeviceFacts, FromExecutor, FromServer, ToExecutor};
use cumux_wire::result;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An executor that has served so long was a good one.
const LASTING: Duration = Duration::from_secs(1);
/// How often an executor without a keeper is asked to take a client.
const SEAT_ATTEMPTS: u32 = 20;

/// An executor's connection to the present keeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    No,
    /// The keeper was asked for it.
    Asked,
    Has,
}

/// Whether an executor is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Its end is a misfortune.
    Wanted,
    /// Its end is wanted, and says nothing against the device.
    Dismissed,
    /// It was killed and has not ended yet; as long as it may still serve, nobody else does.
    Doomed {
        /// Nobody wanted its end: it counts against the device.
        misfortune: bool,
    },
}

/// One executor process, wherever it is in its life.
pub(crate) struct Worker {
    pub(crate) pid: u32,
    pub(crate) process: Process,
    pub(crate) link: Option<Outbox<ToExecutor>>,
    devices: Vec<DeviceFacts>,
    started: Instant,
    serving_since: Option<Instant>,
    /// Its connection has ended and with it everything it will ever say.
    lost_at: Option<Instant>,
    /// Its process has ended.
    ended: bool,
    keeper: Line,
    /// Whether it stands still, and what it said last of its threads.
    pulse: Option<Pulse>,
    beats: Vec<u64>,
    silent: bool,
    /// It has named all sessions that it had from an earlier server.
    pub(crate) listed: bool,
    /// It knows all sessions; new ones and ends are told to it.
    pub(crate) briefed: bool,
    standing: Standing,
}

impl Worker {
    /// Asks it to end; one that cannot hear is ended.
    pub(crate) fn dismiss<H: Host>(&mut self, host: &H) {
        self.excuse();
        match &self.link {
            Some(link) => link.send(ToExecutor::Quit, Vec::new()),
            None => self.kill(host),
        }
    }

    /// Ends it without asking, and whoever made that necessary has said nothing against the device.
    pub(crate) fn end<H: Host>(&mut self, host: &H) {
        self.excuse();
        self.kill(host);
    }

    /// Ends it without asking.
    pub(crate) fn kill<H: Host>(&mut self, host: &H) {
        self.standing = Standing::Doomed { misfortune: self.standing == Standing::Wanted || self.standing == Standing::Doomed { misfortune: true } };
        host.kill(self.pid, &self.process);
    }

    /// Its end is wanted, or as good as wanted: it says nothing against the device.
    fn excuse(&mut self) {
        self.standing = match self.standing {
            Standing::Wanted | Standing::Dismissed => Standing::Dismissed,
            Standing::Doomed { .. } => Standing::Doomed { misfortune: false },
        };
    }

    fn is_dismissed(&self) -> bool {
        matches!(self.standing, Standing::Dismissed | Standing::Doomed { misfortune: false })
    }

    fn is_doomed(&self) -> bool {
        matches!(self.standing, Standing::Doomed { .. })
    }

    pub(crate) fn send(&self, message: ToExecutor) {
        if let Some(link) = &self.link {
            link.send(message, Vec::new());
        }
    }

    /// It said hello with its device, has its line to the keeper, knows what there is to know, and
    /// is not on its way out.
    pub(crate) fn can_serve(&self) -> bool {
        self.link.is_some()
            && self.lost_at.is_none()
            && !self.ended
            && !self.is_dismissed()
            && self.keeper == Line::Has
            && self.briefed
            && !self.devices.is_empty()
    }

    /// It stands still, or has done so when it was last looked at.
    pub(crate) fn is_silent(&self) -> bool {
        self.silent
    }
}

impl<H: Host> Core<H> {
    pub(crate) fn adopt_worker(&mut self, pid: u32) -> std::io::Result<u64> {
        let process = self.host.open(pid)?;
        let token = self.watcher.watch(&process)?;
        let id = self.next_worker;
        self.next_worker += 1;
        self.subjects.insert(token, Subject::Worker(id));
        let worker = Worker {
            pid,
            process,
            link: None,
            devices: Vec::new(),
            started: Instant::now(),
            serving_since: None,
            lost_at: None,
            ended: false,
            keeper: Line::No,
            pulse: self.limits.heartbeat.map(|limit| Pulse::new(limit, Instant::now())),
            beats: Vec::new(),
            silent: false,
            listed: false,
            briefed: false,
            standing: Standing::Wanted,
        };
        self.workers.insert(id, worker);
        Ok(id)
    }

    pub(crate) fn executor_hello(&mut self, connection: Connection, pid: u32, generation: u32, serving: bool, devices: Vec<DeviceFacts>) {
        let Some(id) = self.workers.iter().find(|(_, w)| w.pid == pid && w.link.is_none() && !w.is_dismissed()).map(|(id, _)| *id) else {
            // It would serve sessions that this server does not know.
            self.log.line(&format!("Executor {pid} is not one of this server's; it is ended"));
            if let Ok(process) = self.host.open(pid) {
                self.host.kill(pid, &process);
            }
            return;
        };
        let connection = Arc::new(connection);
        let link = Outbox::over(Arc::clone(&connection)).and_then(|link| event::listen_to(connection, id, self.events.clone()).map(|()| link));
        let link = match link {
            Ok(link) => link,
            Err(error) => return self.log.line(&format!("no thread for executor {pid} ({error}); look at the limits of this user (ulimit -u)")),
        };
        let Some(worker) = self.workers.get_mut(&id) else { return };
        worker.link = Some(link);
        worker.devices = devices;
        if self.rebuild.is_some() {
            // Perhaps it knows more than the keeper does.
            worker.send(ToExecutor::Sessions { request: u64::from(self.pid) });
        }
        if serving && self.service.active().is_none() && self.rebuild.is_some() {
            // It has all sessions; only our number is new, and perhaps the keeper.
            worker.briefed = true;
            worker.serving_since = Some(Instant::now());
            worker.send(ToExecutor::Server { pid: self.pid });
            self.devices.clone_from(&worker.devices);
            self.generation = self.generation.max(generation);
            self.service = Service::By { worker: id };
            self.log.line(&format!("Executor {pid} serves on, generation {generation}"));
        } else if serving {
            self.log.line(&format!("Executor {pid} serves beside another one; it is ended"));
            worker.end(&self.host);
        }
    }

    /// What an executor says.
    pub(crate) fn hear(&mut self, worker: u64, message: FromExecutor, descriptors: Vec<OwnedFd>) {
        let is_active = self.service.active() == Some(worker);
        match message {
            FromExecutor::Attached { session, again: true, .. } if is_active && self.seat_again(session) => {}
            FromExecutor::Attached { session, error, .. } if is_active => self.attached(session, &error),
            FromExecutor::Detached { status } if is_active => self.finish(status.session, Some(*status)),
            FromExecutor::Active { generation, resumed, lost, suspects } if is_active && generation == self.generation => {
                self.now_active(worker, resumed, &lost, &suspects);
            }
            FromExecutor::Metrics { request, clients, more } if is_active => self.answer_status(request, clients, more),
            FromExecutor::Shared { request, error, .. } if is_active => self.reshared(request, error),
            FromExecutor::Fault { session, result, text } => self.fault(session, result, &text),
            FromExecutor::Serves { session, .. } => self.restore_served(is_active, *session, descriptors),
            FromExecutor::ServesEnd { request } if request == u64::from(self.pid) => {
                if let Some(worker) = self.workers.get_mut(&worker) {
                    worker.listed = true;
                }
            }
            FromExecutor::Beat { lanes } => {
                if let Some(worker) = self.workers.get_mut(&worker) {
                    worker.beats = lanes;
                }
            }
            FromExecutor::KeeperLost { number } => {
                if number == self.keeper.number() && self.keeper.is_up() {
                    self.note(&format!("Keeper {} does not answer an executor; it is ended and replaced", self.keeper.pid()));
                    self.keeper.kill(&self.host);
                }
            }
            FromExecutor::DeviceLost { why } => self.device_lost(worker, &why),
            FromExecutor::Failed { why } => self.cannot_serve(worker, if why.is_empty() { "it did not say why; see server.log" } else { &why }),
            // Late words of one that does not serve.
            FromExecutor::Attached { .. }
            | FromExecutor::Detached { .. }
            | FromExecutor::Active { .. }
            | FromExecutor::Metrics { .. }
            | FromExecutor::ServesEnd { .. }
            | FromExecutor::Shared { .. } => {}
        }
    }

    fn now_active(&mut self, id: u64, resumed: Vec<u32>, lost: &[(u32, String)], suspects: &[u32]) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        worker.serving_since = Some(Instant::now());
        let pid = worker.pid;
        self.devices.clone_from(&worker.devices);
        self.service = Service::By { worker: id };
        if let Some(lost_at) = self.lost_at.take() {
            self.takeovers += 1;
            self.log.contexts("Creating", &self.devices);
            let ms = lost_at.elapsed().as_secs_f64() * 1e3;
            let text = format!(
                "Executor {pid} has taken over as generation {} after {ms:.1} ms: {} clients go on, {} do not",
                self.generation,
                resumed.len(),
                lost.len()
            );
            self.note(&text);
        } else {
            self.log.start(&self.devices);
        }
        if let Some(worker) = self.workers.get(&id) {
            // A standby could not write it into pages.
            worker.send(ToExecutor::Server { pid: self.pid });
        }
        for session in resumed {
            match self.sessions.get_mut(&session) {
                Some(known) => {
                    known.seat = Seat::Taken;
                    if self.generation > 1 && known.greeting.is_none() {
                        known.status.takeovers += 1;
                    }
                    self.welcome(session);
                }
                // It says this to the server after the one that activated it: it names this
                // session, or the keeper does.
                None if self.rebuild.is_some() => {}
                // Left from an earlier server, and ended since.
                None => {
                    if let Some(worker) = self.workers.get(&id) {
                        worker.send(ToExecutor::Detach { session });
                    }
                }
            }
        }
        for (id, why) in lost {
            self.not_taken(*id, why);
        }
        self.end_what_was_terminated();
        if !suspects.is_empty() {
            // Those deaths have their makers, as good as found: they say nothing against the
            // device.
            self.deaths.clear();
            let pids: Vec<u32> = suspects.iter().filter_map(|id| self.sessions.get(id)).map(|session| session.about.pid).collect();
            self.note(&format!("Work of client processes {pids:?} was under way when executors ended: it is not simply done again"));
        }
    }

    /// The active executor cannot serve a session: its client is told at once.
    pub(crate) fn not_taken(&mut self, id: u32, why: &str) {
        let Some(session) = self.sessions.get(&id).filter(|session| !session.is_leaving()) else { return };
        if session.greeting.is_some() {
            self.log.line(&format!("Client {} cannot be served: {why}", session.name()));
            self.refuse_greeting(id, result::MPS_SERVER_NOT_READY, &format!("the executor cannot serve this program ({why}); start it again"));
        } else {
            self.log.line(&format!("Client {} could not go on: {why}", session.name()));
            self.fail_session(id, result::MPS_RPC_FAILURE, why);
        }
    }

    /// The executor could not take a session because it had no keeper at that moment. A client that
    /// still waits for its welcome is taken when the executor has a new connection to the keeper;
    /// false where that was tried too often, or the client has been welcomed.
    fn seat_again(&mut self, id: u32) -> bool {
        let Some(session) = self.sessions.get_mut(&id) else { return false };
        if session.greeting.is_none() || session.is_leaving() || session.seat_attempts >= SEAT_ATTEMPTS {
            return false;
        }
        session.seat_attempts += 1;
        session.seat = Seat::No;
        if let Some(worker) = self.service.active().and_then(|id| self.workers.get_mut(&id)).filter(|worker| worker.keeper == Line::Has) {
            worker.keeper = Line::No;
        }
        true
    }

    /// Whatever a takeover or a rebuilt server left open: the active executor is told of it, and
    /// answers.
    fn seat_missing(&mut self) {
        let Some(worker) = self.service.serving().and_then(|id| self.workers.get(&id)).filter(|worker| worker.keeper == Line::Has) else {
            return;
        };
        let Some(link) = &worker.link else { return };
        for session in self.sessions.values_mut().filter(|s| s.seat == Seat::No && s.is_served()) {
            if let Some(files) = &session.files {
                link.send(ToExecutor::Attach { session: session.about.clone() }, files.share());
                session.seat = Seat::Asked;
            }
        }
    }

    /// An executor says that it will never serve.
    fn cannot_serve(&mut self, id: u64, why: &str) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        // It ends when it knows that it was heard.
        worker.send(ToExecutor::Quit);
        let pid = worker.pid;
        if self.service.is_given() && self.service.active() != Some(id) {
            worker.excuse();
            self.no_standby = Some(why.to_owned());
            self.note(&format!("No standby: executor {pid} cannot work beside the active one ({why}). A takeover will start from cold"));
        } else if self.generation == 0 {
            worker.excuse();
            self.break_down(why.to_owned());
        } else {
            // The device has served before and may again: this counts as one more death.
            self.last_failure = why.to_owned();
            self.note(&format!("Executor {pid} cannot serve: {why}"));
        }
    }

    /// The connection ended: the process should, too.
    pub(crate) fn connection_lost(&mut self, id: u64) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        worker.lost_at = Some(Instant::now());
        if worker.ended {
            self.bury(id);
        }
    }

    /// The process ended. What it still said is read first.
    pub(crate) fn worker_gone(&mut self, id: u64) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        worker.ended = true;
        if worker.lost_at.is_some() || worker.link.is_none() {
            self.bury(id);
        } else if let Some(link) = &worker.link {
            link.close();
        }
    }

    /// An executor has lost its device and ends. It touches no session any more, so its successor
    /// need not wait until the process has ended, which may take a second.
    fn device_lost(&mut self, id: u64, why: &str) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        // Its clients' kernels did it, and those were told: it says nothing against the device.
        worker.excuse();
        let lived = worker.serving_since.map_or(Duration::ZERO, |since| since.elapsed());
        let pid = worker.pid;
        if self.service.active() == Some(id) {
            self.leave_service(pid, lived, &format!(": {why}"));
        }
    }

    /// Nothing is left of this executor: its work can be taken over.
    fn bury(&mut self, id: u64) {
        let Some(worker) = self.workers.remove(&id) else { return };
        self.watcher.forget(&worker.process);
        let how = self.host.reap(worker.pid).map_or_else(String::new, |how| format!(" ({how})"));
        let now = Instant::now();
        if self.service.active() == Some(id) {
            let lived = worker.serving_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
            self.leave_service(worker.pid, lived, &how);
        } else {
            self.log.line(&format!("Executor {} has ended{how}", worker.pid));
        }
        // One that has served for a while says nothing against the device or the program.
        let lasted = worker.serving_since.is_some_and(|since| since + LASTING <= now);
        if !worker.is_dismissed() && !lasted {
            self.count_death(now);
        }
    }

    /// The executor that served does so no more.
    fn leave_service(&mut self, pid: u32, lived: Duration, how: &str) {
        if self.service.is_given() {
            self.lost_at = Some(Instant::now());
        }
        self.service = Service::ByNobody;
        self.lived = lived;
        self.no_standby = None;
        for session in self.sessions.values_mut() {
            session.seat = Seat::No;
        }
        // Nobody is left who could answer for those that were leaving.
        let leaving: Vec<u32> = self.sessions.values().filter(|s| s.is_leaving()).map(|s| s.about.id).collect();
        for session in leaving {
            self.finish(session, None);
        }
        self.end_what_was_terminated();
        self.answer_questions_now();
        self.resharings_are_over();
        if self.ending == Ending::No || self.ending == Ending::Draining {
            let clients = self.sessions.len();
            self.note(&format!("Executor {pid} has ended{how}; {clients} clients wait for its successor"));
            self.log.contexts("Destroy", &self.devices);
        }
    }

    /// One more executor that did not last. The first two are replaced at once.
    fn count_death(&mut self, now: Instant) {
        self.deaths.push_back(now);
        while self.deaths.front().is_some_and(|at| *at + self.limits.storm_time < now) {
            self.deaths.pop_front();
        }
        let count = self.deaths.len();
        if count >= self.limits.storm && self.broken.is_none() {
            let seconds = self.limits.storm_time.as_secs();
            let last = if self.last_failure.is_empty() { String::new() } else { format!(" (the last one: {})", self.last_failure) };
            self.break_down(format!(
                "{count} executors ended within {seconds} s{last}; see the end of server.log for their reasons, and check the device with `cumux doctor`"
            ));
        }
        self.start_after = now + Duration::from_millis(if count <= 2 { 0 } else { 100 << (count - 3).min(5) });
    }

    /// Nobody can be served: everybody who waits is told so, and this server ends. The daemon
    /// starts another one for the next client.
    pub(crate) fn break_down(&mut self, why: String) {
        self.note(&format!("Server is handling a fatal error: {why}"));
        self.tell(FromServer::Failed { why: why.clone() });
        self.refuse_arrivals(result::MPS_SERVER_NOT_READY, &why);
        self.broken = Some(why);
        for worker in self.workers.values_mut() {
            worker.end(&self.host);
        }
        self.end(true);
    }

    /// Moves towards: one executor serves, one stands by.
    pub(crate) fn mend_workers(&mut self, now: Instant) {
        self.look_at_workers(now);
        self.end_overdue_workers(now);
        self.forgo_standby();
        // The standby is started when the active one serves: it must not take its processor time.
        let wanted = if self.service.is_given() && self.no_standby.is_none() { 2 } else { 1 };
        if self.workers.len() < wanted
            && now >= self.start_after
            && let Err(error) = self.host.start(Role::Executor).and_then(|pid| self.adopt_worker(pid))
        {
            self.last_failure = format!("it could not be started: {error}");
            self.count_death(now);
            self.start_after = now + Duration::from_secs(1);
            self.note(&format!("cannot start an executor ({error}); trying again in a second"));
        }
        if self.broken.is_none() {
            self.brief_workers();
            self.activate(now);
            self.seat_missing();
        }
    }

    /// Where the device is one process's alone, none is started beside the one that has it.
    fn forgo_standby(&mut self) {
        if !self.service.is_given() || self.no_standby.is_some() {
            return;
        }
        let Some(worker) = self.service.active().and_then(|id| self.workers.get(&id)) else { return };
        let Some(why) = Capabilities::of_all(worker.devices.iter().map(|device| &device.capabilities)).exclusive else { return };
        self.note(&format!("No standby: {why}. A takeover will start from cold"));
        self.no_standby = Some(why);
    }

    fn end_overdue_workers(&mut self, now: Instant) {
        for (id, worker) in &mut self.workers {
            let silent = worker.link.is_none() && now >= worker.started + self.limits.start;
            let cut_off = worker.lost_at.is_some_and(|at| now >= at + self.limits.quit);
            let stuck = match &mut self.service {
                Service::Beginning { worker, since } if worker == id && now >= *since + self.limits.start => {
                    *since = now;
                    true
                }
                _ => false,
            };
            if silent || cut_off || stuck {
                worker.started = now;
                worker.lost_at = worker.lost_at.map(|_| now);
                self.log.line(&format!("Executor {} does not do its work; it is ended", worker.pid));
                worker.kill(&self.host);
            }
        }
    }

    /// One that stands still is ended, and another takes its place.
    fn look_at_workers(&mut self, now: Instant) {
        let mut notes = Vec::new();
        for worker in self.workers.values_mut().filter(|worker| !worker.is_doomed() && !worker.ended) {
            let Some(pulse) = worker.pulse.as_mut().filter(|pulse| pulse.next() <= now) else { continue };
            let verdict = pulse.observe(now, self.host.motion(worker.pid), &worker.beats);
            let pid = worker.pid;
            match verdict {
                Verdict::Silent if !worker.silent => notes.push(format!("Executor {pid} stands still")),
                Verdict::Well if worker.silent => notes.push(format!("Executor {pid} goes on")),
                Verdict::Dead(standstill) => {
                    notes.push(format!(
                        "Executor {pid} {standstill}; it is ended, and another takes its place ({} sets how long one is waited for)",
                        pulse::VARIABLE
                    ));
                    worker.end(&self.host);
                }
                Verdict::Well | Verdict::Silent => {}
            }
            worker.silent = verdict != Verdict::Well;
        }
        for text in notes {
            self.note(&text);
        }
    }

    pub(crate) fn worker_deadlines(&self) -> Vec<Instant> {
        let mut all = Vec::new();
        for worker in self.workers.values() {
            all.extend(worker.pulse.as_ref().filter(|_| !worker.is_doomed()).map(Pulse::next));
            if worker.link.is_none() {
                all.push(worker.started + self.limits.start);
            }
            if let Some(at) = worker.lost_at {
                all.push(at + self.limits.quit);
            }
        }
        if let Service::Beginning { since, .. } = self.service {
            all.push(since + self.limits.start);
        }
        all.push(self.start_after);
        all
    }

    /// Gives executors their connection to the keeper, and new ones all sessions.
    fn brief_workers(&mut self) {
        for (id, worker) in &mut self.workers {
            let Some(link) = &worker.link else { continue };
            if worker.is_dismissed() || worker.lost_at.is_some() {
                continue;
            }
            if worker.keeper == Line::No && self.keeper.connect(*id) {
                worker.keeper = Line::Asked;
            }
            if worker.keeper == Line::Has && !worker.briefed {
                for session in self.sessions.values().filter(|s| s.is_served()) {
                    if let Some(files) = &session.files {
                        link.send(ToExecutor::Attach { session: session.about.clone() }, files.share());
                    }
                }
                // After the sessions: what a standby remembers beside them is nobody's any more.
                link.send(ToExecutor::Server { pid: self.pid }, Vec::new());
                worker.briefed = true;
            }
        }
    }

    /// The keeper has made a connection for an executor.
    pub(crate) fn line_to_keeper(&mut self, id: u64, socket: OwnedFd) {
        if let Some(worker) = self.workers.get_mut(&id).filter(|worker| worker.keeper == Line::Asked)
            && let Some(link) = &worker.link
        {
            link.send(ToExecutor::Keeper { number: self.keeper.number() }, vec![Arc::new(socket)]);
            worker.keeper = Line::Has;
        }
    }

    pub(crate) fn workers_lose_keeper(&mut self) {
        for worker in self.workers.values_mut() {
            worker.keeper = Line::No;
        }
    }

    /// Lets the one that has waited longest serve, if nobody does.
    fn activate(&mut self, now: Instant) {
        if self.service.active().is_some() || self.workers.values().any(Worker::is_doomed) {
            return;
        }
        let Some((id, worker)) = self.workers.iter().find(|(_, worker)| worker.can_serve()) else { return };
        self.generation += 1;
        let lived_ms = u64::try_from(self.lived.as_millis()).unwrap_or(u64::MAX);
        worker.send(ToExecutor::Activate { generation: self.generation, lived_ms });
        self.service = Service::Beginning { worker: *id, since: now };
    }
}
