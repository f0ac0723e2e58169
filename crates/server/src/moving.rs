//! A session goes from one executor to another while its client runs.
//!
//! Where a session is (its [`Seat`]) and where it is to be (its [`Home`]) are compared after each
//! event. Where they differ, and the executor where it is to be is ready, the one that has it is
//! asked to let go ([`ToExecutor::Release`]): it does at a moment when the session's streams are
//! empty, or says why not. From then on the way is that of a takeover. So it does not matter who
//! dies in between: a session that no executor has is given to the one where it is to be.
//!
//! Invariant: a session is given to an executor only when no other has it.

use crate::core::{Core, Upgrade};
use crate::host::Host;
use crate::session::{CONFINED, Mover, Moving, Seat, Way};
use cumux_environment::steps::{self, Step};
use cumux_wire::message::{ClientStatus, FromServer, Home, ToExecutor, Wisher};
use std::time::{Duration, Instant};

/// How long a session may be paused that nobody waits for.
const BRIEF: Duration = Duration::from_millis(100);
/// A session that nobody waits for was paused in vain: it is not asked for before this many times
/// as long has passed, so that it loses at most a hundredth of its time.
const REST: u32 = 100;

impl<H: Host> Core<H> {
    /// An administrator moves a client.
    pub(crate) fn move_client(&mut self, request: u64, pid: u32, own: bool) {
        let found = self.clients.sessions.values().find(|s| s.about.pid == pid && s.is_served() && s.greeting.is_none());
        let Some(session) = found else {
            let error = format!("process {pid} is no client of this server");
            return self.tell(FromServer::Moved { request, found: false, executor: 0, error });
        };
        let id = session.about.id;
        let home = if own { Home::Own { by: Wisher::Administrator } } else { Home::Shared };
        if let Some(error) = self.why_no_own(home) {
            return self.tell(FromServer::Moved { request, found: true, executor: 0, error });
        }
        let Some(session) = self.clients.sessions.get_mut(&id) else { return };
        let before = session.movers.first().map_or(session.about.home, |mover| mover.before);
        // Where two want different things the later one counts, and the earlier one hears it.
        let overtaken: Vec<Mover> = session.movers.extract_if(.., |mover| mover.own != own).collect();
        session.movers.push(Mover { request, own, until: Instant::now() + self.limits.waits.one_move(), before });
        session.move_after = None;
        if !own && session.about.home == CONFINED {
            // It would be confined again at once.
            session.about.may_run_unbounded = true;
        }
        if session.wants_own() != own {
            self.set_home(id, home);
        }
        let (_, executor, _) = self.place_of(id);
        for Mover { request, .. } in overtaken {
            let place = if own { "to an executor of its own" } else { "back to all others" };
            let error = format!("a later order has overtaken this one: it goes {place}");
            self.tell(FromServer::Moved { request, found: true, executor, error });
        }
        if self.is_at_home(id) {
            self.answer_movers(id, "");
        }
    }

    /// Asks executors to let go of sessions that are to be elsewhere, once the others are ready.
    pub(crate) fn move_sessions(&mut self, now: Instant) {
        self.end_late_moves(now);
        // The keeper has the memory of a session between two executors.
        if !self.keeper.is_up() || matches!(self.upgrade, Upgrade::Keeper { .. }) {
            return;
        }
        let there: Vec<u32> =
            self.clients.sessions.values().filter(|s| s.is_served() && s.greeting.is_none() && s.moving == Moving::Still).map(|s| s.about.id).collect();
        for id in there {
            if self.is_at_home(id) {
                continue;
            }
            let Some(session) = self.clients.sessions.get(&id) else { continue };
            let from = match session.seat {
                Seat::Taken => self.executors.service.serving(),
                Seat::Apart { worker } => Some(worker),
                Seat::No | Seat::Asked | Seat::Promised { .. } => None,
            };
            let Some(from) = from.filter(|_| session.move_after.is_none_or(|at| at <= now)) else { continue };
            let to = if session.wants_own() { self.own_executor(id) } else { self.executors.service.serving() };
            let ready = to.and_then(|to| self.executors.workers.get(&to)).is_some_and(|worker| worker.is_ready());
            let Some(worker) = self.executors.workers.get(&from).filter(|worker| ready && worker.has_keeper() && !worker.is_doomed()) else { continue };
            let waited_for = session.is_waited_for();
            let wait = if waited_for || self.upgrade != Upgrade::No { self.limits.waits.pause } else { BRIEF };
            let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            worker.send(ToExecutor::Release { session: id, wait_ms, unless_still: !waited_for });
            if let Some(session) = self.clients.sessions.get_mut(&id) {
                session.moving = Moving::Asked { worker: from };
            }
            steps::pass(Step::ServerAskedToLetGo);
        }
    }

    /// An executor has let go of a session, or keeps it.
    pub(crate) fn released(&mut self, worker: u64, error: &str, status: ClientStatus, paused: Duration) {
        let id = status.session;
        let has_it = match self.clients.sessions.get(&id).map(|session| session.seat) {
            Some(Seat::Taken) => self.executors.service.active() == Some(worker),
            Some(Seat::Apart { worker: other }) => other == worker,
            _ => false,
        };
        let Some(session) = self.clients.sessions.get_mut(&id).filter(|_| has_it) else { return };
        if !error.is_empty() {
            session.moving = Moving::Still;
            let nobody_waits = !session.is_waited_for() && self.upgrade == Upgrade::No;
            self.give_up_move(id, error);
            if let Some(session) = self.clients.sessions.get_mut(&id).filter(|_| nobody_waits) {
                session.move_after = session.move_after.max(Instant::now().checked_add(paused.saturating_mul(REST)));
            }
            return;
        }
        steps::pass(Step::ServerHeardOfRelease);
        // As well if nobody has asked: it has answered an earlier server.
        session.update(status);
        session.leave_seat();
        session.unexplained_after = None;
        session.moving = Moving::between(Way::Moved);
        if session.is_leaving() {
            // Nobody has it any more, so nobody else will say that it has gone.
            self.finish(id, None);
        }
        self.resharings_are_over(worker, Some(id));
        self.end_if_empty(worker);
    }

    /// Whoever waits too long for a move hears so.
    fn end_late_moves(&mut self, now: Instant) {
        let late: Vec<u32> = self.clients.sessions.values().filter(|s| s.movers.iter().any(|mover| mover.until <= now)).map(|s| s.about.id).collect();
        for id in late {
            let seconds = self.limits.waits.one_move().as_secs();
            let why = match self.clients.sessions.get(&id).map(|session| &session.moving) {
                Some(Moving::Asked { .. }) => format!("its executor was asked to let it go, and has not answered within {seconds} s"),
                Some(Moving::Between { .. }) => format!("it has left its executor, and none has taken it within {seconds} s: it goes where it was"),
                _ => format!("the executor where it is to be has not come up within {seconds} s; server.log has what is known"),
            };
            self.give_up_move(id, &why);
        }
    }
}
