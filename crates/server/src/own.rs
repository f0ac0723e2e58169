//! Executors of one session alone: an address space and a fault domain of its own.
//!
//! A client gets one because it wants it (`CUMUX_ISOLATION`), because that is the daemon's default,
//! or because an administrator moves it. It is started when the client comes, and ends with it. The
//! session is given to it when no other executor has it: at once for a new client, after
//! [`ToExecutor::Release`] for one that is moved, after a death for one whose own executor has
//! died: then the next one takes over from it as a standby does.

use crate::core::Core;
use crate::host::{Host, Role};
use crate::session::{CONFINED, Seat};
use cumux_environment::steps::{self, Step};
use cumux_wire::message::{Home, Scope, ToExecutor, Wisher};
use cumux_wire::result;
use std::time::{Duration, Instant};

/// Executors of a session that may end one after the other before they serve it.
const ATTEMPTS: u32 = 3;

impl<H: Host> Core<H> {
    /// Moves towards: every session that is to have an executor of its own has one, and no other
    /// session has.
    pub(crate) fn mend_own(&mut self, now: Instant) {
        if self.broken.is_some() {
            return;
        }
        self.end_unneeded();
        let wanting: Vec<u32> = self.clients.sessions.values().filter(|s| s.wants_own() && s.is_served()).map(|s| s.about.id).collect();
        for session in wanting {
            match self.own_executor(session) {
                Some(worker) => self.give_own(session, worker),
                None => self.start_own(session, now),
            }
        }
    }

    /// Ends executors of sessions that have gone or have moved away.
    fn end_unneeded(&mut self) {
        let own: Vec<(u64, u32)> =
            self.executors.workers.iter().filter_map(|(id, w)| if let Scope::Own { session } = w.scope { Some((*id, session)) } else { None }).collect();
        for (id, session) in own {
            let wanted = self.own_executor(session) == Some(id);
            let session = self.clients.sessions.get(&session);
            let needed = session.is_some_and(|s| s.seat.elsewhere() == Some(id) || s.wants_own() && s.is_served() && wanted);
            if let Some(worker) = self.executors.workers.get_mut(&id).filter(|worker| !needed && !worker.is_doomed()) {
                worker.end(&self.host);
            }
        }
    }

    fn start_own(&mut self, id: u32, now: Instant) {
        let Some(session) = self.clients.sessions.get_mut(&id) else { return };
        // Whoever has it apart may be on its way out, and its process still there.
        let build = self.executors.build;
        let here = |worker| self.executors.workers.get(&worker).is_some_and(|w| w.scope == Scope::Own { session: id } && w.build == build);
        if session.seat.elsewhere().is_some_and(here) || session.move_after.is_some_and(|at| now < at) {
            return;
        }
        if let Err(error) = self.host.start(Role::Own { session: id }).and_then(|pid| self.adopt_worker(pid, Scope::Own { session: id })) {
            self.own_failed(id, &format!("it could not be started: {error}"));
        }
    }

    /// Gives a session to its own executor, once no other has it.
    fn give_own(&mut self, id: u32, worker: u64) {
        // The executor that is about to serve may be opening it.
        if self.executors.service.is_beginning() {
            return;
        }
        let Some(session) = self.clients.sessions.get_mut(&id).filter(|session| session.seat == Seat::No) else { return };
        let Some(ready) = self.executors.workers.get_mut(&worker).filter(|worker| worker.is_ready()) else { return };
        if ready.activated.is_some() {
            // It has had the session before: the next one has it as it was left.
            return ready.end(&self.host);
        }
        let stripe = self.executors.take_stripe();
        let (Some(files), Some(given)) = (&session.files, self.executors.workers.get_mut(&worker)) else { return };
        given.send_with(session.attach(), files.share());
        given.send(ToExecutor::Server { pid: self.pid });
        given.was_briefed();
        given.activate(1, session.unexplained_after, stripe);
        session.seat = Seat::Promised { worker };
        steps::pass(Step::ServerGave);
    }

    /// A session's own executor serves it, or could not take it.
    pub(crate) fn own_active(&mut self, id: u64, resumed: &[u32], lost: Vec<(u32, String)>, suspects: &[u32]) {
        let Some(worker) = self.executors.workers.get_mut(&id) else { return };
        let Scope::Own { session: of } = worker.scope else { return };
        worker.serving_since = Some(Instant::now());
        worker.send(ToExecutor::Server { pid: self.pid });
        let pid = worker.pid;
        let Some(session) = self.clients.sessions.get_mut(&of).filter(|session| session.seat == Seat::Promised { worker: id }) else { return };
        if !resumed.contains(&of) {
            session.leave_seat();
            let why = lost.into_iter().find(|(session, _)| *session == of).map_or_else(|| "it came without its files".to_owned(), |(_, why)| why);
            return self.not_taken(of, &why);
        }
        steps::pass(Step::ServerHeardOfArrival);
        session.seat = Seat::Apart { worker: id };
        session.unexplained_after = None;
        session.own_failures = 0;
        session.count_arrival();
        let name = session.name();
        self.log.line(&format!("Executor {pid} serves client {name} alone"));
        if !suspects.is_empty() {
            self.note(&format!("Work of client {name} was under way when its own executor ended: it is not simply done again"));
        }
        self.welcome(of);
        self.has_arrived(of);
        self.end_what_was_terminated();
    }

    /// An executor of a session alone could not be started, or has ended before it served.
    pub(crate) fn own_failed(&mut self, id: u32, why: &str) {
        let Some(session) = self.clients.sessions.get_mut(&id) else { return };
        session.own_failures += 1;
        let name = session.name();
        self.log.line(&format!("Client {name} has no executor of its own yet: {why}"));
        let Some(session) = self.clients.sessions.get_mut(&id) else { return };
        if session.own_failures < ATTEMPTS {
            session.move_after = Some(Instant::now() + Duration::from_millis(200));
            return;
        }
        session.own_failures = 0;
        let why = format!("its own executor does not come up ({why})");
        match session.seat {
            _ if session.about.home == Home::Own { by: Wisher::Administrator } => self.give_up_move(id, &why),
            _ if session.about.home == CONFINED => self.unconfine(id, &why),
            Seat::No if session.greeting.is_some() => self.refuse_greeting(id, result::MPS_SERVER_NOT_READY, &format!("{why}; start the program again")),
            Seat::No => self.not_taken(id, &why),
            // Where it is it goes on.
            _ => self.give_up_move(id, &why),
        }
    }
}
