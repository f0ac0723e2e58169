//! Where sessions are to be: with the executor that all share, or with one of their own.
//!
//! Invariants: whoever waits for a move is answered once. A session that the shared executor cannot
//! take back gets one of its own: there all its addresses are free. Standbys know exactly those
//! sessions that they would take over.

use crate::core::Core;
use crate::host::Host;
use crate::session::{Mover, Moving, Seat};
use crate::worker::Worker;
use cumux_wire::message::{FromServer, Home, Scope, ToExecutor, Wisher};
use std::time::{Duration, Instant};

/// A session that could not leave is asked for again after this.
const AGAIN: Duration = Duration::from_secs(1);

impl<H: Host> Core<H> {
    /// From now on a session is to be there. Who is told first is the keeper: a server that is made
    /// again goes on with the move.
    pub(crate) fn set_home(&mut self, id: u32, home: Home) {
        let Some(session) = self.clients.sessions.get_mut(&id) else { return };
        session.about.home = home;
        self.keep(id);
        self.tell_standbys(id);
    }

    /// Standbys know those sessions that they would take over: not one that is to have an executor
    /// of its own, and not one that another executor still has.
    fn tell_standbys(&self, id: u32) {
        let Some(session) = self.clients.sessions.get(&id) else { return };
        let active = self.executors.service.active();
        for (_, standby) in self.executors.workers.iter().filter(|(id, w)| w.is_shared() && w.is_briefed() && !w.is_dismissed() && Some(**id) != active) {
            match &session.files {
                _ if session.wants_own() || session.seat.elsewhere().is_some() => standby.send(ToExecutor::Detach { session: id, comes_later: false }),
                Some(files) if session.is_served() => standby.send_with(session.attach(), files.share()),
                _ => {}
            }
        }
    }

    /// Whether a session is where it is to be.
    pub(crate) fn is_at_home(&self, id: u32) -> bool {
        let Some(session) = self.clients.sessions.get(&id) else { return true };
        match session.seat {
            Seat::Taken => !session.wants_own(),
            Seat::Apart { worker } => {
                let build = self.executors.build;
                let own = |w: &Worker| w.scope == Scope::Own { session: id } && w.build == build;
                session.wants_own() && self.executors.workers.get(&worker).is_some_and(own)
            }
            Seat::No | Seat::Asked | Seat::Promised { .. } => false,
        }
    }

    /// A session is with the executor where it is to be.
    pub(crate) fn has_arrived(&mut self, id: u32) {
        let Some(session) = self.clients.sessions.get_mut(&id) else { return };
        let why = match std::mem::replace(&mut session.moving, Moving::Still) {
            Moving::Between { turned_back, .. } => {
                session.move_after = None;
                session.stays_because.clone_from(&turned_back);
                self.tell_standbys(id);
                turned_back
            }
            Moving::Still | Moving::Asked { .. } => String::new(),
        };
        if self.is_at_home(id) {
            self.answer_movers(id, &why);
        }
    }

    /// A session that has been let go of is not taken where it was to be: it goes elsewhere. False
    /// if it is on no such way, or nowhere else is left.
    pub(crate) fn turn_back(&mut self, id: u32, why: &str) -> bool {
        let Some(session) = self.clients.sessions.get_mut(&id).filter(|session| session.is_served() && session.greeting.is_none()) else { return false };
        let Moving::Between { way, turned_back } = &session.moving else { return false };
        if !turned_back.is_empty() {
            return false;
        }
        session.moving = Moving::Between { way: *way, turned_back: why.to_owned() };
        session.leave_seat();
        let home = if session.wants_own() { Home::Shared } else { Home::Own { by: Wisher::Server } };
        let name = session.name();
        self.log.line(&format!("Client {name} could not be taken where it was to go ({why}); it goes on elsewhere"));
        self.set_home(id, home);
        true
    }

    /// A session stays where it is, for now or for good.
    pub(crate) fn give_up_move(&mut self, id: u32, why: &str) {
        let Some(session) = self.clients.sessions.get_mut(&id) else { return };
        session.stays_because = why.to_owned();
        session.move_after = (session.seat != Seat::No).then(|| Instant::now() + AGAIN);
        let before = match session.movers.first() {
            Some(mover) => Some(mover.before),
            // An administrator's move of an earlier server, for which nobody waits any more.
            None => (session.about.home == Home::Own { by: Wisher::Administrator }).then_some(Home::Shared),
        };
        if let Some(before) = before.filter(|before| *before != session.about.home) {
            self.set_home(id, before);
        }
        self.answer_movers(id, why);
    }

    /// Whoever waits for a move of this session is told where it is, or why it was not moved.
    pub(crate) fn answer_movers(&mut self, id: u32, error: &str) {
        let (_, executor, _) = self.place_of(id);
        let Some(session) = self.clients.sessions.get_mut(&id) else { return };
        for Mover { request, .. } in std::mem::take(&mut session.movers) {
            self.tell(FromServer::Moved { request, found: true, executor, error: error.to_owned() });
        }
    }
}
