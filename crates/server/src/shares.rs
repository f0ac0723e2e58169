//! Changing the share of a client that runs.
//!
//! The configuration is changed first, in the keeper too, so that whoever serves the client next
//! has the new share; then the executor is told. The daemon is answered when the executor has said
//! that work which begins from now on runs on the new part.

use crate::core::{Core, Resharing};
use crate::host::Host;
use crate::session::shared_anew;
use cumux_wire::message::{FromServer, ToExecutor};
use cumux_wire::share::Share;

impl<H: Host> Core<H> {
    pub(crate) fn set_share(&mut self, request: u64, pid: u32, share: Share) {
        let Some(session) = self.clients.sessions.values_mut().find(|s| s.about.pid == pid && s.is_served()) else {
            let error = format!("process {pid} is no client of this server");
            return self.tell(FromServer::Shared { request, before: 0, now: 0, error });
        };
        if !session.about.sms.is_empty() {
            let error = format!("process {pid} has a static partition: the control daemon runs with -S, and shares mean nothing there");
            return self.tell(FromServer::Shared { request, before: u32::MAX, now: 0, error });
        }
        let parts = shared_anew(&self.executors.devices, &session.about.parts, share);
        let count = |parts: &[cumux_wire::message::DeviceGrant]| parts.first().map_or(0, |part| part.multiprocessors);
        let (id, name) = (session.about.id, session.name());
        let old = session.about.parts.clone();
        let change = Resharing { request, session: id, before: count(&old), now: count(&parts), old };
        session.about.parts.clone_from(&parts);
        session.status.multiprocessors = change.now;
        self.log.line(&format!("Active Threads Percentage of client {name} set to {}: {} multiprocessors, {} before", share.text(), change.now, change.before));
        self.keep(id);
        let number = self.questions.number();
        // A standby only remembers it.
        for worker in self.executors.workers.values().filter(|worker| worker.is_briefed()) {
            worker.send(ToExecutor::Share { request: number, session: id, parts: parts.clone() });
        }
        if self.executors.service.is_given() {
            self.questions.resharings.insert(number, change);
        } else {
            // Between two executors nothing runs: the next one begins with it.
            self.tell(FromServer::Shared { request, before: change.before, now: change.now, error: String::new() });
        }
    }

    /// The executor has given the share, or could not.
    pub(crate) fn reshared(&mut self, number: u64, error: String) {
        if let Some(Resharing { request, session, before, now, old }) = self.questions.resharings.remove(&number) {
            if !error.is_empty()
                && let Some(known) = self.clients.sessions.get_mut(&session)
            {
                // Nobody was told of it but executors, and the one that serves has kept the old
                // share.
                self.log.line(&format!("The share of client {} could not be changed: {error}", known.name()));
                known.about.parts = old;
                known.status.multiprocessors = before;
                self.keep(session);
            }
            self.tell(FromServer::Shared { request, before, now, error });
        }
    }

    /// The executor has ended: its successor begins with the new shares.
    pub(crate) fn resharings_are_over(&mut self) {
        for (_, Resharing { request, before, now, .. }) in std::mem::take(&mut self.questions.resharings) {
            self.tell(FromServer::Shared { request, before, now, error: String::new() });
        }
    }
}
