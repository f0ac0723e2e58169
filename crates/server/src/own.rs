//! Executors of one session alone: an address space and a fault domain of its own.
//!
//! A client gets one because it wants it (`CUMUX_ISOLATION`), because that is the daemon's default,
//! or because an administrator moves it. It is started when the client comes, and ends with it. The
//! session is given to it when no other executor has it: at once for a new client, after
//! [`ToExecutor::Release`] for one that is moved, after a death for one whose own executor has died:
//! then the next one takes over from it as a standby does.

use crate::core::Core;
use crate::host::{Host, Role};
use crate::session::{Moving, Seat, shortened};
use cumux_wire::message::{Capabilities, Home, Place, Scope, ToExecutor, Wisher};
use cumux_wire::result;
use std::time::{Duration, Instant};

/// Executors of a session that may end one after the other before they serve it.
const ATTEMPTS: u32 = 3;

impl<H: Host> Core<H> {
    /// Why a client cannot have an executor of its own, if it is to have one.
    pub(crate) fn why_no_own(&self, home: Home) -> Option<String> {
        let Home::Own { by } = home else { return None };
        let exclusive = Capabilities::of_all(self.executors.devices.iter().map(|device| &device.capabilities)).exclusive?;
        let remedy = match by {
            Wisher::Client => "unset CUMUX_ISOLATION, or set it to shared",
            Wisher::Default => "set CUMUX_ISOLATION=shared for the program, or change the default (set_default_isolation shared)",
            Wisher::Administrator | Wisher::Server => "leave it in the shared executor",
        };
        Some(format!("an executor of its own cannot be had: {exclusive}. Set the card to DEFAULT compute mode, or {remedy}"))
    }

    /// The executor of this session alone, if there is one that can be used.
    pub(crate) fn own_executor(&self, session: u32) -> Option<u64> {
        let usable = |worker: &&crate::worker::Worker| worker.scope == Scope::Own { session } && !worker.is_dismissed() && !worker.is_doomed();
        self.executors.workers.iter().find(|(_, worker)| usable(worker)).map(|(id, _)| *id)
    }

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
        for (id, worker) in &mut self.executors.workers {
            let Scope::Own { session } = worker.scope else { continue };
            let session = self.clients.sessions.get(&session);
            let needed = session.is_some_and(|s| s.seat.elsewhere() == Some(*id) || s.wants_own() && s.is_served());
            if !needed && !worker.is_doomed() {
                worker.end(&self.host);
            }
        }
    }

    fn start_own(&mut self, id: u32, now: Instant) {
        let Some(session) = self.clients.sessions.get_mut(&id) else { return };
        // Whoever has it apart may be on its way out, and its process still there.
        if session.seat.elsewhere().is_some_and(|worker| self.executors.workers.get(&worker).is_some_and(|w| w.scope == Scope::Own { session: id }))
            || session.move_after.is_some_and(|at| now < at)
        {
            return;
        }
        if let Err(error) = self.host.start(Role::Own { session: id }).and_then(|pid| self.adopt_worker(pid, Scope::Own { session: id })) {
            self.own_failed(id, &format!("it could not be started: {error}"));
        }
    }

    /// Gives a session to its own executor, once no other has it.
    fn give_own(&mut self, id: u32, worker: u64) {
        let Some(session) = self.clients.sessions.get_mut(&id).filter(|session| session.seat == Seat::No) else { return };
        let Some(ready) = self.executors.workers.get_mut(&worker).filter(|worker| worker.is_ready()) else { return };
        if ready.activated.is_some() {
            // It has had the session before: the next one has it as it was left.
            return ready.end(&self.host);
        }
        let stripe = self.executors.take_stripe();
        let (Some(files), Some(given)) = (&session.files, self.executors.workers.get_mut(&worker)) else { return };
        given.send_with(ToExecutor::Attach { session: session.about.clone() }, files.share());
        given.send(ToExecutor::Server { pid: self.pid });
        given.was_briefed();
        given.activate(1, session.lived, stripe);
        session.seat = Seat::Promised { worker };
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
            session.seat = Seat::No;
            let why = lost.into_iter().find(|(session, _)| *session == of).map_or_else(|| "it came without its files".to_owned(), |(_, why)| why);
            return self.not_taken(of, &why);
        }
        session.seat = Seat::Apart { worker: id };
        session.own_failures = 0;
        if session.greeting.is_none() {
            session.status.takeovers += 1;
        }
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
            Seat::No if session.greeting.is_some() => self.refuse_greeting(id, result::MPS_SERVER_NOT_READY, &format!("{why}; start the program again")),
            Seat::No => self.not_taken(id, &why),
            // Where it is it goes on.
            _ => self.give_up_move(id, &why),
        }
    }

    /// Where a session is and why, for people.
    pub(crate) fn place_of(&self, id: u32) -> (Place, u32, String) {
        let Some(session) = self.clients.sessions.get(&id) else { return (Place::Nowhere, 0, String::new()) };
        let executor = match session.seat {
            Seat::Taken => self.executors.serving(),
            Seat::Apart { worker } => self.executors.workers.get(&worker),
            Seat::No | Seat::Asked | Seat::Promised { .. } => None,
        };
        let Some(executor) = executor else { return (Place::Nowhere, 0, "it waits for its executor".to_owned()) };
        let (place, why) = match (executor.scope, session.about.home) {
            (Scope::Shared, _) => (Place::Shared, String::new()),
            (Scope::Own { .. }, Home::Own { by: Wisher::Client }) => (Place::Own, "CUMUX_ISOLATION=own".to_owned()),
            (Scope::Own { .. }, Home::Own { by: Wisher::Default }) => (Place::Own, "the daemon's default".to_owned()),
            (Scope::Own { .. }, Home::Own { by: Wisher::Administrator }) => (Place::Own, "moved by the administrator".to_owned()),
            (Scope::Own { .. }, Home::Own { by: Wisher::Server }) => (Place::Own, format!("the shared executor could not take it: {}", session.stays_because)),
            (Scope::Own { .. }, Home::Shared) => (Place::Own, format!("it could not leave yet: {}", session.stays_because)),
            (Scope::Rest, _) if session.stays_because.is_empty() => (Place::Apart, "its kernel does not end".to_owned()),
            (Scope::Rest, _) => (Place::Apart, format!("its kernel did not end: {}", session.stays_because)),
        };
        let under_way = (session.moving != Moving::Still).then_some("it is being moved");
        let why = [Some(why.as_str()).filter(|why| !why.is_empty()), under_way].into_iter().flatten().collect::<Vec<_>>().join("; ");
        (place, executor.pid, shortened(&why))
    }
}
