//! Executors that serve some sessions alone, beside the one that serves all others.
//!
//! - A kernel that runs on and on stops what others need of the driver, and a card cannot stop it
//!   alone. So its executor lets go of all other clients, who go on in the next one as after a
//!   takeover, and keeps its own: it is *apart*. It takes no other clients. When its last one has
//!   gone it is ended, and with it the kernel; when the kernel has ended, its clients move to the
//!   one that serves ([`crate::moving`]), and it is ended, too.
//! - A client may have an executor of its own ([`crate::own`]).
//!
//! The card shares itself between executors by time.

use crate::core::{Core, Wish};
use crate::host::Host;
use crate::session::{Moving, Seat, Way, shortened};
use crate::worker::Worker;
use cumux_wire::message::{Capabilities, Home, Place, Scope, ToExecutor, Wisher};
use std::collections::BTreeSet;

impl<H: Host> Core<H> {
    /// Executors that serve some sessions alone.
    pub(crate) fn executors_apart(&self) -> impl Iterator<Item = &Worker> {
        self.executors.workers.values().filter(|worker| !worker.is_shared())
    }

    /// Whether an executor serves some sessions alone.
    pub(crate) fn is_apart(&self, id: u64) -> bool {
        self.executors.workers.get(&id).is_some_and(|worker| !worker.is_shared())
    }

    /// Whether an executor was started for one session.
    pub(crate) fn is_own(&self, id: u64) -> bool {
        self.executors.workers.get(&id).is_some_and(|worker| matches!(worker.scope, Scope::Own { .. }))
    }

    /// Whether this session is with this executor, apart.
    pub(crate) fn is_apart_with(&self, id: u64, session: u32) -> bool {
        self.clients.sessions.get(&session).is_some_and(|session| session.seat.elsewhere() == Some(id))
    }

    /// Whether this session is with another executor than this, apart.
    pub(crate) fn is_with_another(&self, id: u64, session: u32) -> bool {
        self.clients.sessions.get(&session).is_some_and(|session| session.seat.elsewhere().is_some_and(|worker| worker != id))
    }

    /// From now on an executor serves these sessions alone and takes no others: it is apart. Those
    /// of its own that are not among them are nobody's. It may be asked at once for those that
    /// stay. Returns those of the others whose clients have ended: nobody answers for them any
    /// more.
    #[must_use]
    pub(crate) fn set_aside(&mut self, id: u64, staying: &BTreeSet<u32>) -> Vec<u32> {
        let Some(worker) = self.executors.workers.get_mut(&id) else { return Vec::new() };
        worker.scope = match worker.scope {
            own @ Scope::Own { .. } => own,
            Scope::Shared | Scope::Rest => Scope::Rest,
        };
        let mut over = Vec::new();
        for session in self.clients.sessions.values_mut() {
            let was_here = session.seat == Seat::Apart { worker: id };
            if staying.contains(&session.about.id) {
                session.seat = Seat::Apart { worker: id };
                session.unexplained_after = None;
                session.move_after = None;
                session.stays_because.clear();
            } else if was_here {
                // It stayed for a while, and goes on as after a takeover.
                session.leave_seat();
                if session.is_leaving() {
                    over.push(session.about.id);
                } else if !session.wants_own() {
                    session.moving = Moving::between(Way::TakenOver);
                } else if matches!(session.moving, Moving::Asked { .. }) {
                    session.moving = Moving::Still;
                }
            }
        }
        // The next one must not take them before they have left; it has their modules when they
        // come.
        for (_, other) in self.executors.workers.iter().filter(|(other, worker)| **other != id && worker.is_shared() && worker.is_briefed()) {
            staying.iter().for_each(|session| other.send(ToExecutor::Detach { session: *session, comes_later: true }));
        }
        // Who is to be ended is ended there.
        if self.executors.service.active() == Some(id) {
            for question in self.questions.open.values_mut().filter(|question| question.wish == Wish::End { worker: None }) {
                question.wish = Wish::End { worker: Some(id) };
            }
        }
        over
    }

    /// Ends an executor apart whose clients have all gone or left, with what still runs there. One
    /// of a single session answers for that first.
    pub(crate) fn end_if_empty(&mut self, id: u64) {
        if self.rebuild.is_some() {
            // Its clients may not be known yet.
            return;
        }
        let Some(worker) = self.executors.workers.get_mut(&id).filter(|worker| worker.scope == Scope::Rest) else { return };
        let stays = |seat: Seat| seat.elsewhere() == Some(id);
        if !self.clients.sessions.values().any(|session| stays(session.seat) && !session.is_leaving()) {
            worker.end(&self.host);
        }
    }

    /// The executor of this session alone, if there is one that can be used.
    pub(crate) fn own_executor(&self, session: u32) -> Option<u64> {
        let build = self.executors.build;
        let usable = |worker: &Worker| worker.scope == Scope::Own { session } && worker.build == build && !worker.is_dismissed() && !worker.is_doomed();
        // Two have come back to a server that was made again: it keeps the one that it has.
        let seat = self.clients.sessions.get(&session).and_then(|session| session.seat.elsewhere());
        let has_it = seat.filter(|id| self.executors.workers.get(id).is_some_and(usable));
        has_it.or_else(|| self.executors.workers.iter().find(|(_, worker)| usable(worker)).map(|(id, _)| *id))
    }

    /// Why a client cannot have an executor of its own, if it is to have one.
    pub(crate) fn why_no_own(&self, home: Home) -> Option<String> {
        let Home::Own { by } = home else { return None };
        let exclusive = Capabilities::of_all(self.executors.devices.iter().map(|device| &device.capabilities)).exclusive?;
        let remedy = match by {
            Wisher::Client => "unset CUMUX_ISOLATION, or set it to shared",
            Wisher::Default => "set CUMUX_ISOLATION=shared for the program, or change the default (set_default_isolation shared)",
            Wisher::Administrator | Wisher::Server | Wisher::Kernels => "leave it in the shared executor",
        };
        Some(format!("an executor of its own cannot be had: {exclusive}. Set the card to DEFAULT compute mode, or {remedy}"))
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
            (Scope::Own { .. }, Home::Own { by: Wisher::Kernels }) => {
                (Place::Own, "the stack of a kernel of it is unbounded, or it calls through addresses".to_owned())
            }
            (Scope::Own { .. }, Home::Own { by: Wisher::Server }) => (Place::Own, format!("the shared executor could not take it: {}", session.stays_because)),
            (Scope::Own { .. }, Home::Shared) => (Place::Own, format!("it could not leave yet: {}", session.stays_because)),
            (Scope::Rest, _) if session.stays_because.is_empty() => (Place::Apart, "its kernel does not end".to_owned()),
            (Scope::Rest, _) => (Place::Apart, format!("its kernel did not end: {}", session.stays_because)),
        };
        let outdated = || match session.stays_because.as_str() {
            "" => "its executor is of an earlier program, and it leaves that when it can".to_owned(),
            why => format!("its executor is of an earlier program, and it leaves that when it can: {why}"),
        };
        let outdated = (executor.build < self.executors.build && matches!(place, Place::Own) && session.wants_own()).then(outdated);
        let under_way = (session.moving != Moving::Still).then_some("it is being moved");
        let why = [Some(why.as_str()).filter(|why| !why.is_empty()), outdated.as_deref(), under_way].into_iter().flatten().collect::<Vec<_>>().join("; ");
        (place, executor.pid, shortened(&why))
    }
}
