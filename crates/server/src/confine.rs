//! Clients whose kernels are unbounded ([`cumux_wire::module::Unbounded`]) get an executor of their
//! own before such a kernel begins: on a card that breaks for all, its stack overflow or its jump
//! to a wrong address would end what others have there.
//!
//! The executor holds the kernel back and asks ([`FromExecutor::Confined`]). The session then goes
//! the way of every move. Where it cannot, or its work does not end, its kernels run beside others
//! after all, and the log says so: no client waits for ever for the sake of the others.
//!
//! [`FromExecutor::Confined`]: cumux_wire::message::FromExecutor::Confined

use crate::core::Core;
use crate::host::Host;
use crate::session::{CONFINED, Seat};
use cumux_wire::message::{Home, ToExecutor};
use std::time::{Duration, Instant};

/// How long a kernel is held back because other work of its client does not end.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

impl<H: Host> Core<H> {
    /// An executor holds an unbounded kernel of a session back.
    pub(crate) fn confine(&mut self, id: u32, why: &str) {
        let Some(session) = self.clients.sessions.get_mut(&id) else { return };
        if session.wants_own() {
            return;
        }
        session.confined_since = Some(Instant::now());
        session.move_after = None;
        let name = session.name();
        if !self.limits.confines {
            return self.unconfine(id, "CUMUX_UNBOUNDED_KERNELS says so");
        }
        if let Some(obstacle) = self.why_no_own(CONFINED) {
            return self.unconfine(id, &obstacle);
        }
        self.log.line(&format!("Client {name} gets an executor of its own: its {why}, and nobody knows where that ends"));
        self.set_home(id, CONFINED);
    }

    /// The unbounded kernels of a session begin where it is.
    pub(crate) fn unconfine(&mut self, id: u32, why: &str) {
        let Some(session) = self.clients.sessions.get_mut(&id) else { return };
        session.about.may_run_unbounded = true;
        session.confined_since = None;
        let (name, home) = (session.name(), session.about.home);
        let executor = match session.seat {
            Seat::Taken => self.executors.service.active(),
            Seat::Apart { worker } => Some(worker),
            Seat::No | Seat::Asked | Seat::Promised { .. } => None,
        };
        self.log.line(&format!("Kernels of client {name} whose stack is unbounded run beside others: {why}"));
        // Also where the home stays as it is: an executor that opens the session has to know.
        self.set_home(id, if home == CONFINED { Home::Shared } else { home });
        if let Some(worker) = executor.and_then(|worker| self.executors.workers.get(&worker)) {
            worker.send(ToExecutor::Unconfine { session: id });
        }
    }

    /// An executor keeps a session that was to leave because of its kernels. It is asked again,
    /// unless the reason lasts, or has lasted for long.
    pub(crate) fn judge_refusal(&mut self, id: u32, lasting: bool, why: &str) {
        let Some(session) = self.clients.sessions.get_mut(&id).filter(|session| session.about.home == CONFINED) else { return };
        // A server that was made again counts from its first refusal.
        let since = session.confined_since.get_or_insert_with(Instant::now);
        if lasting || since.elapsed() > LONGEST_WAIT {
            self.unconfine(id, why);
        }
    }
}
