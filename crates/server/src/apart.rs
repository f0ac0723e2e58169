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
use crate::session::Seat;
use crate::worker::Worker;
use cumux_wire::message::{ClientStatus, Scope};

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

    /// Ends an executor apart whose clients have all gone or left, with what still runs there. One
    /// of a single session answers for that first.
    pub(crate) fn end_if_alone(&mut self, id: u64) {
        let Some(worker) = self.executors.workers.get_mut(&id).filter(|worker| worker.scope == Scope::Rest) else { return };
        let stays = |seat: Seat| seat.elsewhere() == Some(id);
        if !self.clients.sessions.values().any(|session| stays(session.seat) && !session.is_leaving()) {
            worker.end(&self.host);
        }
    }

    /// What an executor apart says of its clients. A question for all figures is answered by the
    /// one that serves.
    pub(crate) fn note_figures(&mut self, id: u64, number: u64, clients: Vec<ClientStatus>, more: bool) {
        for told in clients {
            if let Some(session) = self.clients.sessions.get_mut(&told.session).filter(|session| session.seat.elsewhere() == Some(id)) {
                session.update(told);
            }
        }
        if !more && self.questions.open.get(&number).is_some_and(|question| question.wish == Wish::End { worker: Some(id) }) {
            self.answer_question_number(number);
        }
    }
}
