//! Executors that were left to clients whose work does not end.
//!
//! A kernel that runs on and on stops what others need of the driver, and a card cannot stop it
//! alone. So its executor lets go of all other clients, who go on in the next one as after a
//! takeover, and keeps its own: it is *apart*. The card shares itself between the two by time. An
//! executor apart takes no other clients. When its last one has gone it is ended, and with it the
//! kernel.

use crate::core::Core;
use crate::host::Host;
use crate::session::Seat;
use crate::worker::Worker;
use cumux_wire::message::{ClientStatus, ToExecutor};
use std::time::Duration;

impl<H: Host> Core<H> {
    /// An executor has let go of all sessions but these.
    pub(crate) fn set_apart(&mut self, id: u64, staying: &[u32]) {
        let Some(worker) = self.executors.workers.get_mut(&id) else { return };
        // It has done nothing wrong, and never serves anybody else.
        worker.excuse();
        let (pid, lived) = (worker.pid, worker.serving_since.map_or(Duration::ZERO, |since| since.elapsed()));
        for session in self.clients.sessions.values_mut() {
            let was_here = session.seat == Seat::Apart { worker: id };
            if staying.contains(&session.about.id) {
                session.seat = Seat::Apart { worker: id };
            } else if was_here {
                session.seat = Seat::No;
            }
        }
        // The next one must not take them.
        for (_, other) in self.executors.workers.iter().filter(|(other, worker)| **other != id && worker.is_briefed()) {
            staying.iter().for_each(|session| other.send(ToExecutor::Detach { session: *session }));
        }
        let pids: Vec<u32> = staying.iter().filter_map(|id| self.clients.sessions.get(id)).map(|session| session.about.pid).collect();
        if self.executors.service.active() == Some(id) {
            let why = format!(" serving all but client processes {pids:?}, whose kernels do not end and who keep it for themselves");
            self.leave_service(pid, lived, &why);
        }
        self.end_if_alone(id);
    }

    /// The executor that has a session: the one apart, or the one that serves.
    pub(crate) fn executor_of(&self, session: u32) -> Option<&Worker> {
        match self.clients.sessions.get(&session).map(|session| session.seat) {
            Some(Seat::Apart { worker }) => self.executors.workers.get(&worker),
            _ => self.executors.serving(),
        }
    }

    /// Executors apart.
    pub(crate) fn executors_apart(&self) -> impl Iterator<Item = &Worker> {
        self.executors.workers.iter().filter(|(id, _)| self.is_apart(**id)).map(|(_, worker)| worker)
    }

    /// Whether an executor is apart.
    pub(crate) fn is_apart(&self, id: u64) -> bool {
        self.clients.sessions.values().any(|session| session.seat == Seat::Apart { worker: id })
    }

    /// Whether this session is with this executor, apart.
    pub(crate) fn is_apart_with(&self, id: u64, session: u32) -> bool {
        self.clients.sessions.get(&session).is_some_and(|session| session.seat == Seat::Apart { worker: id })
    }

    /// Whether this session is with another executor than this, apart.
    pub(crate) fn is_with_another(&self, id: u64, session: u32) -> bool {
        self.clients.sessions.get(&session).is_some_and(|session| matches!(session.seat, Seat::Apart { worker } if worker != id))
    }

    /// Ends an executor apart whose clients have all gone, with what still runs there. Returns
    /// whether it was ended.
    pub(crate) fn end_if_alone(&mut self, id: u64) -> bool {
        let has_any = self.clients.sessions.values().any(|session| session.seat == Seat::Apart { worker: id } && !session.is_leaving());
        if has_any || self.executors.service.active() == Some(id) {
            return false;
        }
        if let Some(worker) = self.executors.workers.get_mut(&id) {
            worker.end(&self.host);
        }
        true
    }

    /// An executor apart has ended or lost its device. Its clients go on with the one that serves,
    /// as after a takeover.
    pub(crate) fn apart_is_over(&mut self, id: u64) {
        let mut over = Vec::new();
        for session in self.clients.sessions.values_mut().filter(|session| session.seat == (Seat::Apart { worker: id })) {
            session.seat = Seat::No;
            if session.is_leaving() {
                over.push(session.about.id);
            }
        }
        for session in over {
            self.finish(session, None);
        }
    }

    /// What an executor apart says of its clients. The question is answered by the one that serves.
    pub(crate) fn note_figures(&mut self, id: u64, clients: Vec<ClientStatus>) {
        for told in clients {
            if let Some(session) = self.clients.sessions.get_mut(&told.session).filter(|session| session.seat == (Seat::Apart { worker: id })) {
                session.update(told);
            }
        }
    }
}
