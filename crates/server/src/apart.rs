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
use cumux_wire::message::ClientStatus;

impl<H: Host> Core<H> {
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

    /// What an executor apart says of its clients. The question is answered by the one that serves.
    pub(crate) fn note_figures(&mut self, id: u64, clients: Vec<ClientStatus>) {
        for told in clients {
            if let Some(session) = self.clients.sessions.get_mut(&told.session).filter(|session| session.seat == (Seat::Apart { worker: id })) {
                session.update(told);
            }
        }
    }
}
