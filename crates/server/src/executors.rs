//! Executors: one that serves, one that stands by. Starting them, telling them of sessions, and
//! letting the next one take over.

use crate::come_back::COME_BACK_FIRST;
use crate::core::{Core, Ending};
use crate::event;
use crate::host::{Host, Role};
use crate::outbox::Outbox;
use crate::session::{ClientSession, Moving, Seat, Way};
use crate::worker::{Finding, Remains, Service};
use cumux_environment::steps::{self, Step};
use cumux_link::Connection;
use cumux_link::pulse;
use cumux_wire::message::{Capabilities, DeviceFacts, Scope, ToExecutor};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An executor that has served so long was a good one.
const LASTING: Duration = Duration::from_secs(1);
/// How often an executor without a keeper is asked to take a client.
const SEAT_ATTEMPTS: u32 = 20;

/// Why an executor serves no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Departure {
    /// It has ended or lost its device, and nobody knows why.
    Ended {
        /// How long it had served.
        lived: Duration,
    },
    /// It has lost its device to a client's kernel, and that client was told.
    Broken,
    /// Work of some clients does not end, and all others have left: nothing was lost.
    Occupied,
}

/// What an executor says of itself when it comes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing {
    pub(crate) generation: u32,
    pub(crate) serving: bool,
    pub(crate) scope: Scope,
    pub(crate) stripe: u32,
    pub(crate) first_queue: u32,
}

impl<H: Host> Core<H> {
    pub(crate) fn executor_hello(&mut self, connection: Connection, pid: u32, standing: Standing, devices: Vec<DeviceFacts>) {
        let Standing { generation, serving, scope, stripe, first_queue } = standing;
        let Some(id) = self.executors.workers.iter().find(|(_, w)| w.pid == pid && w.is_awaited() && !w.is_dismissed()).map(|(id, _)| *id) else {
            // It would serve sessions that this server does not know.
            self.log.line(&format!("Executor {pid} is not one of this server's; it is ended"));
            if let Ok(process) = self.host.open(pid) {
                self.host.kill(pid, &process);
            }
            return;
        };
        let connection = Arc::new(connection);
        let outbox = Outbox::over(Arc::clone(&connection)).and_then(|outbox| event::listen_to(connection, id, self.events.clone()).map(|()| outbox));
        let outbox = match outbox {
            Ok(outbox) => outbox,
            Err(error) => return self.log.line(&format!("no thread for executor {pid} ({error}); look at the limits of this user (ulimit -u)")),
        };
        let Some(worker) = self.executors.workers.get_mut(&id) else { return };
        worker.greet(outbox, devices, first_queue, Instant::now());
        // It may have been stopped for a fault after its word was on its way ([`crate::calm`]).
        self.host.set_going(&worker.process);
        if self.rebuild.is_some() {
            worker.scope = scope;
            // Perhaps it knows more than the keeper does.
            worker.send(ToExecutor::Sessions { request: u64::from(self.pid) });
        }
        if serving && self.rebuild.is_some() {
            worker.stripe = stripe;
            worker.activated = Some(Instant::now());
            self.executors.next_stripe = self.executors.next_stripe.max(stripe.saturating_add(1));
        }
        if serving && !worker.is_shared() && self.rebuild.is_some() {
            worker.was_briefed();
            worker.serving_since = Some(Instant::now());
            worker.send(ToExecutor::Server { pid: self.pid });
            self.log.line(&format!("Executor {pid} serves on beside another one"));
        } else if serving && self.executors.service.active().is_none() && self.rebuild.is_some() {
            // It has all sessions; only our number is new, and perhaps the keeper.
            worker.was_briefed();
            worker.serving_since = Some(Instant::now());
            worker.send(ToExecutor::Server { pid: self.pid });
            self.executors.devices = worker.devices().to_vec();
            self.executors.generation = self.executors.generation.max(generation);
            self.executors.service = Service::By { worker: id };
            // Perhaps the server before has told it so.
            self.executors.sparing = Some(id);
            self.log.line(&format!("Executor {pid} serves on, generation {generation}"));
        } else if serving {
            self.log.line(&format!("Executor {pid} serves beside another one; it is ended"));
            worker.end(&self.host);
        }
    }

    /// The active executor has a session, or could not take it.
    pub(crate) fn attached(&mut self, id: u32, error: &str) {
        if !error.is_empty() {
            return self.not_taken(id, error);
        }
        let Some(session) = self.clients.sessions.get_mut(&id) else { return };
        steps::pass(Step::ServerHeardOfArrival);
        session.seat = Seat::Taken;
        session.unexplained_after = None;
        if matches!(session.moving, Moving::Between { .. }) {
            session.count_arrival();
        }
        let terminated = session.awaits_termination();
        self.welcome(id);
        self.has_arrived(id);
        if terminated {
            self.end_what_was_terminated();
        }
    }

    pub(crate) fn now_active(&mut self, id: u64, resumed: Vec<u32>, lost: &[(u32, String)], suspects: &[u32]) {
        let Some(worker) = self.executors.workers.get_mut(&id) else { return };
        worker.serving_since = Some(Instant::now());
        let pid = worker.pid;
        self.executors.devices = worker.devices().to_vec();
        self.executors.service = Service::By { worker: id };
        // What kept another one from standing by may be over.
        self.executors.no_standby = None;
        if let Some(lost_at) = self.executors.lost_at.take() {
            self.executors.takeovers += 1;
            self.log.contexts("Creating", &self.executors.devices);
            let ms = lost_at.elapsed().as_secs_f64() * 1e3;
            let text = format!(
                "Executor {pid} has taken over as generation {} after {ms:.1} ms: {} clients go on, {} do not",
                self.executors.generation,
                resumed.len(),
                lost.len()
            );
            self.note(&text);
        } else {
            self.log.start(&self.executors.devices);
        }
        steps::pass(Step::ServerHeardOfTakeover);
        self.end_calm();
        if let Some(worker) = self.executors.workers.get(&id) {
            // A standby could not write it into pages.
            worker.send(ToExecutor::Server { pid: self.pid });
        }
        for session in resumed {
            match self.clients.sessions.get_mut(&session) {
                // Two executors never have the same: it was told so before it was activated.
                Some(known) if known.seat.elsewhere().is_some() => {
                    if let Some(worker) = self.executors.workers.get(&id) {
                        worker.send(ToExecutor::Detach { session, comes_later: false });
                    }
                }
                Some(known) => {
                    known.seat = Seat::Taken;
                    known.unexplained_after = None;
                    if self.executors.generation > 1 {
                        known.count_arrival();
                    }
                    self.welcome(session);
                    self.has_arrived(session);
                }
                // It says this to the server after the one that activated it: it names this
                // session, or the keeper does.
                None if self.rebuild.is_some() => {}
                // Left from an earlier server, and ended since.
                None => {
                    if let Some(worker) = self.executors.workers.get(&id) {
                        worker.send(ToExecutor::Detach { session, comes_later: false });
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
            self.executors.deaths.clear();
            let pids: Vec<u32> = suspects.iter().filter_map(|id| self.clients.sessions.get(id)).map(|session| session.about.pid).collect();
            self.note(&format!("Work of client processes {pids:?} was under way when executors ended: it is not simply done again"));
        }
    }

    /// The executor could not take a session because it had no keeper at that moment. A client that
    /// still waits for its welcome is taken when the executor has a new connection to the keeper;
    /// false where that was tried too often, or the client has been welcomed.
    pub(crate) fn seat_again(&mut self, id: u32) -> bool {
        let Some(session) = self.clients.sessions.get_mut(&id) else { return false };
        if session.greeting.is_none() || session.is_leaving() || session.seat_attempts >= SEAT_ATTEMPTS {
            return false;
        }
        session.seat_attempts += 1;
        session.leave_seat();
        let active = self.executors.service.active();
        if let Some(worker) = active.and_then(|id| self.executors.workers.get_mut(&id)).filter(|worker| worker.has_keeper()) {
            worker.lose_keeper();
        }
        true
    }

    /// Whatever a takeover or a rebuilt server left open: the active executor is told of it, and
    /// answers.
    fn seat_missing(&mut self) {
        let Some(worker) = self.executors.serving().filter(|worker| worker.has_keeper()) else { return };
        for session in self.clients.sessions.values_mut().filter(|s| s.seat == Seat::No && s.is_served() && !s.wants_own()) {
            if let Some(files) = &session.files {
                worker.send_with(session.attach(), files.share());
                session.seat = Seat::Asked;
                steps::pass(Step::ServerGave);
            }
        }
    }

    /// An executor says that it will never serve.
    pub(crate) fn cannot_serve(&mut self, id: u64, why: &str) {
        let Some(worker) = self.executors.workers.get_mut(&id) else { return };
        // It ends when it knows that it was heard.
        worker.send(ToExecutor::Quit);
        let (pid, build) = (worker.pid, worker.build);
        if self.is_on_trial(build) {
            self.abandon_upgrade(why);
        } else if let Some(worker) = self.executors.workers.get_mut(&id)
            && let Scope::Own { session } = worker.scope
        {
            worker.excuse();
            self.own_failed(session, why);
        } else if self.executors.service.is_given() && self.executors.service.active() != Some(id) {
            self.excuse(id);
            self.executors.no_standby = Some(why.to_owned());
            self.note(&format!("No standby: executor {pid} cannot work beside the active one ({why}). A takeover will start from cold"));
        } else if self.executors.generation == 0 {
            self.excuse(id);
            self.break_down(why.to_owned());
        } else {
            // The device has served before and may again: this counts as one more death.
            self.executors.last_failure = why.to_owned();
            self.note(&format!("Executor {pid} cannot serve: {why}"));
        }
    }

    fn excuse(&mut self, id: u64) {
        if let Some(worker) = self.executors.workers.get_mut(&id) {
            worker.excuse();
        }
    }

    /// The connection ended: the process should, too.
    pub(crate) fn connection_lost(&mut self, id: u64) {
        let Some(worker) = self.executors.workers.get_mut(&id) else { return };
        if worker.connection_lost(Instant::now()) == Remains::Nothing {
            self.bury(id);
        }
    }

    /// The process ended. What it still said is read first.
    pub(crate) fn worker_gone(&mut self, id: u64) {
        let Some(worker) = self.executors.workers.get_mut(&id) else { return };
        if worker.process_ended() == Remains::Nothing {
            self.bury(id);
        }
    }

    /// An executor has lost its device and ends. It touches no session any more, so its successor
    /// need not wait until the process has ended, which may take a second.
    pub(crate) fn device_lost(&mut self, id: u64, why: &str, blamed: bool) {
        let Some(worker) = self.executors.workers.get_mut(&id) else { return };
        // Its clients' work did it: it says nothing against the device.
        worker.excuse();
        worker.lost_since = Some(Instant::now());
        let pid = worker.pid;
        let lived = worker.serving_since.map_or(Duration::ZERO, |since| since.elapsed());
        if self.executors.service.active() == Some(id) {
            let departure = if blamed { Departure::Broken } else { Departure::Ended { lived } };
            self.leave_service(id, pid, departure, &format!(" has ended: {why}"));
        } else {
            self.apart_is_over(id, (!blamed).then_some(lived));
        }
        self.hasten_end(id);
    }

    /// An executor has let go of all sessions but these.
    pub(crate) fn set_apart(&mut self, id: u64, staying: &[u32]) {
        let Some(worker) = self.executors.workers.get_mut(&id) else { return };
        let pid = worker.pid;
        // It may let go before it has said that it serves. That word is ignored afterwards.
        worker.serving_since.get_or_insert_with(Instant::now);
        // It may name some that have moved since it looked: those are their next executor's. A
        // server that was made again knows of none where it is.
        let (is_active, is_rebuilding) = (self.executors.service.active() == Some(id), self.rebuild.is_some());
        let may_have = |seat: Seat| is_rebuilding || seat.elsewhere().map_or(is_active, |worker| worker == id);
        let staying: Vec<u32> = staying.iter().copied().filter(|id| self.clients.sessions.get(id).is_some_and(|session| may_have(session.seat))).collect();
        let staying = staying.as_slice();
        // Who stays beside others that leave only now is asked for as before.
        let asked_before = |session: &ClientSession| (session.seat == Seat::Apart { worker: id }).then_some((session.about.id, session.move_after));
        let before: BTreeMap<u32, Option<Instant>> = staying.iter().filter_map(|id| self.clients.sessions.get(id)).filter_map(asked_before).collect();
        for session in self.set_aside(id, &staying.iter().copied().collect()) {
            self.finish(session, None);
        }
        // They come back when their work has ended. Who stays because of a fault costs nobody
        // anything, and the executor ends soon.
        let (now, at_fault) = (Instant::now(), self.executors.calm_until.is_some());
        for session in staying {
            if let Some(session) = self.clients.sessions.get_mut(session) {
                if let Some(move_after) = before.get(&session.about.id) {
                    session.move_after = *move_after;
                    continue;
                }
                session.move_after = Some(if at_fault { now + COME_BACK_FIRST } else { session.come_back.after_leaving(now) });
            }
        }
        let pids: Vec<u32> = staying.iter().filter_map(|id| self.clients.sessions.get(id)).map(|session| session.about.pid).collect();
        if self.executors.service.active() == Some(id) {
            let why = format!(" serving all but client processes {pids:?}, whose kernels do not end and who keep it for themselves");
            self.leave_service(id, pid, Departure::Occupied, &why);
        }
        self.end_if_empty(id);
    }

    /// An executor apart has ended or lost its device. Its clients go on with the one that serves,
    /// or with one of their own, as after a takeover. `unexplained_after`: how long it had served,
    /// if nobody knows why it ended.
    pub(crate) fn apart_is_over(&mut self, id: u64, unexplained_after: Option<Duration>) {
        let mut over = Vec::new();
        for session in self.clients.sessions.values_mut().filter(|session| session.seat.elsewhere() == Some(id)) {
            session.leave_seat();
            session.unexplained_after = unexplained_after;
            if session.is_leaving() {
                over.push(session.about.id);
            } else if !session.wants_own() {
                session.moving = Moving::between(Way::TakenOver);
            } else if matches!(session.moving, Moving::Asked { .. }) {
                session.moving = Moving::Still;
            }
        }
        for session in over {
            self.finish(session, None);
        }
        self.resharings_are_over(id, None);
    }

    /// Nothing is left of this executor: its work can be taken over.
    fn bury(&mut self, id: u64) {
        let Some(worker) = self.executors.workers.remove(&id) else { return };
        self.processes.watcher.forget(&worker.process);
        let how = self.host.reap(worker.pid).map_or_else(String::new, |how| format!(" ({how})"));
        let now = Instant::now();
        let lived = worker.serving_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        if self.executors.service.active() == Some(id) {
            self.leave_service(id, worker.pid, Departure::Ended { lived }, &format!(" has ended{how}"));
        } else {
            self.log.line(&format!("Executor {} has ended{how}", worker.pid));
            self.apart_is_over(id, Some(lived));
        }
        if worker.serving_since.is_none() && !worker.is_dismissed() && self.is_on_trial(worker.build) {
            return self.abandon_upgrade(&format!("executor {} has ended{how} before it could", worker.pid));
        }
        if let Scope::Own { session } = worker.scope {
            // What ends it is its client's, and says nothing against the device.
            if !worker.is_dismissed() && worker.serving_since.is_none() {
                self.own_failed(session, &format!("it has ended{how}"));
            }
            return;
        }
        // One that has served for a while says nothing against the device or the program.
        let lasted = worker.serving_since.is_some_and(|since| since + LASTING <= now);
        if !worker.is_dismissed() && !lasted {
            self.count_death(now);
        }
    }

    /// The executor that served does so no more.
    pub(crate) fn leave_service(&mut self, id: u64, pid: u32, departure: Departure, how: &str) {
        if self.executors.service.is_given() {
            let now = Instant::now();
            self.executors.lost_at = Some(now);
            if departure != Departure::Occupied {
                self.executors.losses.add(now);
            }
        }
        self.executors.service = Service::ByNobody;
        self.executors.unexplained_after = if let Departure::Ended { lived } = departure { Some(lived) } else { None };
        for session in self.clients.sessions.values_mut().filter(|session| session.seat.elsewhere().is_none()) {
            session.leave_seat();
            if matches!(session.moving, Moving::Asked { .. }) {
                session.moving = Moving::Still;
            }
        }
        // Nobody is left who could answer for those that were leaving.
        let leaving: Vec<u32> = self.clients.sessions.values().filter(|s| s.is_leaving() && s.seat == Seat::No).map(|s| s.about.id).collect();
        for session in leaving {
            self.finish(session, None);
        }
        self.end_what_was_terminated();
        self.answer_questions_now();
        self.resharings_are_over(id, None);
        if self.ending == Ending::No || self.ending == Ending::Draining {
            let clients = self.clients.sessions.len();
            self.note(&format!("Executor {pid}{how}; {clients} clients wait for its successor"));
            self.log.contexts("Destroy", &self.executors.devices);
        }
        steps::pass(Step::ServerHeardOfLoss);
    }

    /// One more executor that did not last. The first two are replaced at once.
    fn count_death(&mut self, now: Instant) {
        self.executors.deaths.push_back(now);
        while self.executors.deaths.front().is_some_and(|at| *at + self.limits.storm_time < now) {
            self.executors.deaths.pop_front();
        }
        let count = self.executors.deaths.len();
        if count >= self.limits.storm && self.broken.is_none() {
            let seconds = self.limits.storm_time.as_secs();
            let last = if self.executors.last_failure.is_empty() { String::new() } else { format!(" (the last one: {})", self.executors.last_failure) };
            self.break_down(format!(
                "{count} executors ended within {seconds} s{last}; see the end of server.log for their reasons, and check the device with `cumux doctor`"
            ));
        }
        self.executors.start_after = now + Duration::from_millis(if count <= 2 { 0 } else { 100 << (count - 3).min(5) });
    }

    /// Moves towards: one executor serves, one stands by, or more where faults come thick and fast.
    pub(crate) fn mend_workers(&mut self, now: Instant) {
        self.look_at_workers(now);
        self.end_overdue_workers(now);
        self.forgo_standby();
        // The standby is started when the active one serves: it must not take its processor time.
        let has_standby = self.executors.service.is_given() && self.executors.no_standby.is_none();
        let wanted =
            1 + if has_standby { self.executors.losses.count_standbys(now, self.limits.standbys) + self.executors.coming_back.count_standbys() } else { 0 };
        self.dismiss_spares(wanted);
        // One that ends takes its time, and the next one need not wait for it, unless the device is
        // one process's alone.
        let is_alone = self.executors.no_standby.is_some();
        let present = self.executors.workers.values().filter(|worker| worker.is_shared() && (is_alone || worker.is_wanted())).count();
        // One after the other: several at once come up no sooner.
        let is_calm = self.executors.calm_until.is_some() || self.is_one_ending(now);
        let is_coming_up = self.executors.workers.values().any(|worker| worker.is_shared() && worker.is_wanted() && worker.is_awaited());
        if present < wanted
            && !is_coming_up
            && !is_calm
            && now >= self.executors.start_after
            && let Err(error) = self.host.start(Role::Executor).and_then(|pid| self.adopt_worker(pid, Scope::Shared))
        {
            self.executors.last_failure = format!("it could not be started: {error}");
            self.count_death(now);
            self.executors.start_after = now + Duration::from_secs(1);
            self.note(&format!("cannot start an executor ({error}); trying again in a second"));
        }
        if self.broken.is_none() {
            self.brief_workers();
            self.activate(now);
            self.seat_missing();
        }
    }

    /// Ends the youngest of those that stand by, if there are more than wanted.
    fn dismiss_spares(&mut self, wanted: usize) {
        let Some(active) = self.executors.service.serving() else { return };
        let present: Vec<u64> = self.executors.workers.iter().filter(|(_, worker)| worker.is_shared() && worker.is_wanted()).map(|(id, _)| *id).collect();
        let spare = present.len().saturating_sub(wanted);
        for id in present.into_iter().rev().filter(|id| *id != active).take(spare) {
            if let Some(worker) = self.executors.workers.get_mut(&id) {
                worker.dismiss(&self.host);
            }
        }
    }

    /// Where the device is one process's alone, none is started beside the one that has it.
    fn forgo_standby(&mut self) {
        if !self.executors.service.is_given() || self.executors.no_standby.is_some() {
            return;
        }
        let Some(worker) = self.executors.active() else { return };
        let Some(why) = Capabilities::of_all(worker.devices().iter().map(|device| &device.capabilities)).exclusive else { return };
        self.note(&format!("No standby: {why}. A takeover will start from cold"));
        self.executors.no_standby = Some(why);
    }

    fn end_overdue_workers(&mut self, now: Instant) {
        for (id, worker) in &mut self.executors.workers {
            let stuck = match &mut self.executors.service {
                Service::Beginning { worker, since } if worker == id && now >= *since + self.limits.waits.start => {
                    *since = now;
                    true
                }
                _ => !worker.is_shared() && worker.serving_since.is_none() && worker.activated.is_some_and(|since| now >= since + self.limits.waits.start),
            };
            if stuck || worker.is_overdue(now, &self.limits) {
                worker.wait_again(now);
                self.log.line(&format!("Executor {} does not do its work; it is ended", worker.pid));
                worker.kill(&self.host);
            }
        }
    }

    /// One that stands still is ended, and another takes its place.
    fn look_at_workers(&mut self, now: Instant) {
        let mut notes = Vec::new();
        let is_calm = self.executors.calm_until.is_some();
        // Who comes up was stopped by us, then.
        for worker in self.executors.workers.values_mut().filter(|worker| !(is_calm && worker.is_awaited())) {
            let Some(finding) = worker.check_motion(now, |pid| self.host.motion(pid)) else { continue };
            let pid = worker.pid;
            notes.push(match finding {
                Finding::StandsStill => format!("Executor {pid} stands still"),
                Finding::GoesOn => format!("Executor {pid} goes on"),
                Finding::Dead(standstill) => {
                    worker.end(&self.host);
                    format!("Executor {pid} {standstill}; it is ended, and another takes its place ({} sets how long one is waited for)", pulse::VARIABLE)
                }
            });
        }
        for text in notes {
            self.note(&text);
        }
    }

    pub(crate) fn worker_deadlines(&self) -> Vec<Instant> {
        let mut all: Vec<Instant> = self.executors.workers.values().flat_map(|worker| worker.deadlines(&self.limits)).collect();
        if let Service::Beginning { since, .. } = self.executors.service {
            all.push(since + self.limits.waits.start);
        }
        let own = self.executors.workers.values().filter(|worker| !worker.is_shared() && worker.serving_since.is_none());
        all.extend(own.filter_map(|worker| worker.activated).map(|since| since + self.limits.waits.start));
        all.push(self.executors.start_after);
        all.extend(self.executors.losses.next_change());
        all.extend(self.calm_deadlines());
        all
    }

    /// Gives executors their connection to the keeper, and new ones all sessions.
    fn brief_workers(&mut self) {
        for (id, worker) in &mut self.executors.workers {
            if !worker.can_be_briefed() {
                continue;
            }
            if worker.lacks_keeper() && self.keeper.connect(*id) {
                worker.awaits_keeper();
            }
            // One of a single session is told of that when no other executor has it.
            if worker.is_shared() && worker.has_keeper() && !worker.is_briefed() {
                for session in self.clients.sessions.values().filter(|s| s.is_served() && !s.wants_own() && s.seat.elsewhere().is_none()) {
                    if let Some(files) = &session.files {
                        worker.send_with(session.attach(), files.share());
                    }
                }
                // After the sessions: what a standby remembers beside them is nobody's any more.
                worker.send(ToExecutor::Server { pid: self.pid });
                worker.was_briefed();
            }
        }
    }

    /// The keeper has made a connection for an executor.
    pub(crate) fn line_to_keeper(&mut self, id: u64, socket: OwnedFd) {
        if let Some(worker) = self.executors.workers.get_mut(&id) {
            worker.give_keeper(self.keeper.number(), socket);
        }
    }

    pub(crate) fn workers_lose_keeper(&mut self) {
        for worker in self.executors.workers.values_mut() {
            worker.lose_keeper();
        }
    }

    /// Lets one serve, if nobody does: the one with the lowest queues of those that are prepared,
    /// or else the one that has waited longest.
    pub(crate) fn activate(&mut self, now: Instant) {
        if self.executors.service.active().is_some() || self.executors.workers.values().any(|worker| worker.is_doomed() && worker.is_shared()) {
            return;
        }
        let Some(id) = self
            .executors
            .workers
            .iter()
            .filter(|(_, worker)| worker.can_serve())
            .min_by_key(|(id, worker)| (std::cmp::Reverse(worker.build), worker.standby_rank(now, self.limits.prepares), **id))
            .map(|(id, _)| *id)
        else {
            return;
        };
        let (stripe, unexplained_after) = (self.executors.take_stripe(), self.executors.unexplained_after);
        let Some(worker) = self.executors.workers.get_mut(&id) else { return };
        self.executors.generation += 1;
        worker.activate(self.executors.generation, unexplained_after, stripe);
        self.executors.service = Service::Beginning { worker: id, since: now };
        steps::pass(Step::ServerActivated);
    }
}
