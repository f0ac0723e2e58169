//! The loop that changes a server's state, one event at a time. After each event
//! [`Core::reconcile`] compares what is with what should be and takes the next steps; so no step
//! depends on which event came first.

use crate::clients::refuse;
use crate::core::{Core, Daemon, Ending, Subject};
use crate::event::Event;
use crate::executors::Standing;
use crate::host::Host;
use crate::keeper::Told;
use crate::state_file::StateFile;
use crate::{Limits, Options};
use cumux_link::Connection;
use cumux_wire::VERSION;
use cumux_wire::message::{FromExecutor, FromServer, Hello, ToServer};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

impl<H: Host> Core<H> {
    /// A server that goes on where an earlier one has ended, if there was one.
    ///
    /// # Errors
    /// When the system gives no threads or descriptors.
    pub(crate) fn start(options: Options, limits: Limits, host: H, events: Sender<Event>) -> std::io::Result<Self> {
        let now = Instant::now();
        let old = StateFile::read(&options.state_file());
        let mut core = Self::new(options, limits, host, events, &old, now)?;
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
            if matches!(self.ending, Ending::Done | Ending::HandOver) {
                self.log.line(if self.ending == Ending::Done { "Exiting" } else { "Exiting; the next server goes on with all clients" });
                if let Some(daemon) = self.daemon.take() {
                    daemon.outbox.finish();
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

    /// Passes an event on to what it is about.
    pub(crate) fn handle(&mut self, event: Event) {
        match event {
            Event::Hello { connection, hello } => self.greet(connection, hello),
            Event::Executor { worker, message, descriptors } => self.hear(worker, message, descriptors),
            Event::Keeper { number, told } => self.keeper_told(number, told),
            Event::ExecutorLost { worker } => self.connection_lost(worker),
            Event::Gone { token } => match self.processes.ended(token) {
                Some(Subject::Keeper) => self.keeper_gone(),
                Some(Subject::Worker(worker)) => self.worker_gone(worker),
                Some(Subject::Client(session)) => self.client_gone(session),
                None => {}
            },
            Event::DaemonUp(outbox) => {
                self.daemon = Some(Daemon { outbox, taken: 0, announced: false });
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
                    if let Some(daemon) = &mut self.daemon {
                        daemon.taken += 1;
                    }
                    self.arrive(descriptors, hello, pid, uid, grant);
                    self.count_clients();
                }
                ToServer::SetShare { request, pid, share } => self.set_share(request, pid, share),
                ToServer::SetGroup { request, group } => self.set_group(request, &group),
                ToServer::Move { request, pid, own } => self.move_client(request, pid, own),
                ToServer::Status { request } => self.ask_status(request),
                ToServer::Terminate { request, pid } => self.terminate(request, pid),
                ToServer::Upgrade { request, program } => self.begin_upgrade(request, Path::new(&program)),
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
            Hello::Executor { generation, serving, devices, scope, stripe, first_queue, .. } => {
                let standing = Standing { generation, serving, scope, stripe, first_queue };
                self.executor_hello(connection, pid, standing, devices);
            }
            Hello::Client { .. } | Hello::Server { .. } => {}
        }
    }

    /// What an executor says.
    fn hear(&mut self, worker: u64, message: FromExecutor, descriptors: Vec<OwnedFd>) {
        let is_active = self.executors.service.active() == Some(worker);
        match message {
            FromExecutor::Attached { session, again: true, .. } if is_active && self.seat_again(session) => {}
            FromExecutor::Attached { session, error, .. } if is_active => self.attached(session, &error),
            FromExecutor::Detached { status } if is_active && !self.is_with_another(worker, status.session) => self.finish(status.session, Some(*status)),
            FromExecutor::Detached { status } if self.is_apart_with(worker, status.session) => {
                self.finish(status.session, Some(*status));
                self.end_if_empty(worker);
            }
            FromExecutor::Metrics { request, clients, more } if self.is_apart(worker) => self.note_figures(worker, request, clients, more),
            FromExecutor::Shared { request, error, .. } => self.reshared(worker, request, error),
            FromExecutor::CoreDump { sessions } => {
                if let Some(dump) = descriptors.into_iter().next()
                    && let Err(error) = self.faults.keep_dump(sessions, dump)
                {
                    self.log.line(&format!("no thread to keep a core dump ({error}); look at the limits of this user (ulimit -u)"));
                }
            }
            FromExecutor::Occupied { staying } => self.set_apart(worker, &staying),
            FromExecutor::Released { error, status, paused_us, lasting } => {
                let id = status.session;
                self.released(worker, &error, *status, Duration::from_micros(paused_us));
                if !error.is_empty() {
                    self.judge_refusal(id, lasting, &error);
                }
            }
            FromExecutor::Confined { session, why } if self.rebuild.is_some() => {
                if let Some(rebuild) = &mut self.rebuild {
                    rebuild.confined.push((session, why));
                }
            }
            FromExecutor::Confined { session, why } if is_active || self.is_apart_with(worker, session) => self.confine(session, &why),
            FromExecutor::Active { resumed, lost, suspects, .. } if self.is_own(worker) => self.own_active(worker, &resumed, lost, &suspects),
            FromExecutor::Active { generation, resumed, lost, suspects } if is_active && generation == self.executors.generation => {
                self.now_active(worker, resumed, &lost, &suspects);
            }
            FromExecutor::Metrics { request, clients, more } if is_active => self.answer_status(request, clients, more),
            FromExecutor::Fault { session, result, text } => self.fault(session, result, &text),
            FromExecutor::Serves { session, .. } => self.restore_served(worker, *session, descriptors),
            FromExecutor::ServesEnd { request } if request == u64::from(self.pid) => {
                if let Some(rebuild) = &mut self.rebuild {
                    rebuild.named.insert(worker);
                }
            }
            FromExecutor::Beat { lanes } => {
                if let Some(worker) = self.executors.workers.get_mut(&worker) {
                    worker.beat(lanes);
                }
            }
            FromExecutor::KeeperLost { number } => {
                if number == self.keeper.number() && self.keeper.is_up() {
                    self.note(&format!("Keeper {} does not answer an executor; it is ended and replaced", self.keeper.pid()));
                    self.keeper.kill(&self.host);
                }
            }
            FromExecutor::FaultNoticed if is_active || self.is_apart(worker) => self.fault_noticed(),
            FromExecutor::DeviceLost { why, blamed } => self.device_lost(worker, &why, blamed),
            FromExecutor::Failed { why } => self.cannot_serve(worker, if why.is_empty() { "it did not say why; see server.log" } else { &why }),
            // Late words of one that does not serve.
            // One that stands by makes debuggers for parts of its card.
            FromExecutor::FaultNoticed
            | FromExecutor::Attached { .. }
            | FromExecutor::Detached { .. }
            | FromExecutor::Active { .. }
            | FromExecutor::Metrics { .. }
            | FromExecutor::Confined { .. }
            | FromExecutor::ServesEnd { .. } => {}
        }
    }

    /// What a keeper has answered.
    fn keeper_told(&mut self, number: u64, told: Told) {
        if number != self.keeper.number() {
            return;
        }
        match told {
            Told::Kept { session, outcome } => self.kept(session, outcome),
            Told::Line { worker, socket } => self.line_to_keeper(worker, socket),
            Told::Listed(items) => self.restore_kept(items),
            Told::Failed(error) => self.keeper_failed(&error),
        }
    }

    /// Takes every step that is due.
    pub(crate) fn reconcile(&mut self, now: Instant) {
        if !matches!(self.ending, Ending::No | Ending::Draining) {
            self.end_step(now);
            return;
        }
        if self.ending == Ending::Draining && self.clients.sessions.is_empty() && self.rebuild.is_none() {
            self.end(true);
            self.end_step(now);
            return;
        }
        if !self.rebuild_step(now) {
            return;
        }
        self.mend_keeper(now);
        self.mend_workers(now);
        self.limit_calm(now);
        self.spare_driver(now);
        self.admit_arrivals();
        self.mend_own(now);
        self.move_sessions(now);
        self.upgrade_step(now);
        self.bring_devices_back(now);
        self.answer_late_questions(now);
        if self.executors.service.is_given()
            && self.keeper.is_up()
            && let Some(daemon) = self.daemon.as_mut().filter(|daemon| !daemon.announced)
        {
            daemon.announced = true;
            self.tell(FromServer::Ready { devices: self.executors.devices.clone() });
        }
        self.write_state();
        let lonely = self.daemon.is_none() && self.clients.sessions.is_empty() && self.clients.arrivals.is_empty();
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
            Ending::No | Ending::Draining | Ending::Done | Ending::HandOver => {}
        }
        at(self.rebuild.as_ref().map(|rebuild| rebuild.until));
        at(self.lonely_since.map(|since| since + self.limits.lonely));
        at(self.keeper.deadline(&self.limits));
        for instant in self.worker_deadlines() {
            at(Some(instant));
        }
        for question in self.questions.open.values() {
            at(Some(question.until));
        }
        at(self.executors.coming_back.deadline());
        self.upgrade_deadlines().for_each(|deadline| at(Some(deadline)));
        for session in self.clients.sessions.values() {
            at(session.move_after);
            session.movers.iter().for_each(|mover| at(Some(mover.until)));
        }
        next
    }
}
