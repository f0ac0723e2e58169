//! Changing the share of a client that runs.
//!
//! The configuration is changed first, in the keeper too, so that whoever serves the client next
//! has the new share; then the executor is told. The daemon is answered when the executor has said
//! that work which begins from now on runs on the new part.

use crate::core::{Core, Resharing};
use crate::host::Host;
use crate::session::{Seat, shared_anew};
use cumux_wire::message::{FromServer, GroupGrant, ToExecutor};
use cumux_wire::share::Share;

/// A question of the daemon's that nobody has asked.
const NOBODY: u64 = 0;

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
        if let Some(group) = session.group().filter(|_| session.has_group_share()) {
            let error = format!("process {pid} has the share of its group: change that (cumux group set {group} percentage=PERCENT)");
            return self.tell(FromServer::Shared { request, before: u32::MAX, now: 0, error });
        }
        let id = session.about.id;
        self.reshare(request, id, share);
    }

    /// Other limits for a group, and another share for its clients.
    pub(crate) fn set_group(&mut self, request: u64, group: &GroupGrant) {
        let error = self.clients.groups.set_limits(group).err().unwrap_or_default();
        let members: Vec<(u32, bool)> = self
            .clients
            .sessions
            .values()
            .filter(|session| session.is_served() && session.group() == Some(&group.name))
            .map(|session| (session.about.id, session.has_group_share()))
            .collect();
        let earlier = members.iter().filter(|(_, has_share)| !has_share).count();
        let error = match group.share {
            Some(share) => {
                // Nobody waits for the answers of the executors: what fails is in the log.
                members.iter().filter(|(_, has_share)| *has_share).for_each(|(id, _)| self.reshare(NOBODY, *id, share));
                let late = (earlier > 0).then(|| format!("{earlier} clients came before the group had a percentage, and keep their own"));
                late.filter(|_| error.is_empty()).unwrap_or(error)
            }
            None => error,
        };
        if !members.is_empty() {
            self.log.line(&format!("The limits of group {} have been set", group.name));
        }
        self.tell(FromServer::Regrouped { request, error });
    }

    fn reshare(&mut self, request: u64, id: u32, share: Share) {
        let Some(session) = self.clients.sessions.get_mut(&id) else { return };
        let parts = shared_anew(&self.executors.devices, &session.about.parts, share);
        let count = |parts: &[cumux_wire::message::DeviceGrant]| parts.first().map_or(0, |part| part.multiprocessors);
        let name = session.name();
        let old = session.about.parts.clone();
        let holder = match session.seat {
            Seat::No => None,
            Seat::Asked | Seat::Taken => self.executors.service.active(),
            Seat::Promised { worker } | Seat::Apart { worker } => Some(worker),
        };
        let change = Resharing { request, session: id, worker: holder.unwrap_or(0), before: count(&old), now: count(&parts), old };
        session.about.parts.clone_from(&parts);
        session.status.multiprocessors = change.now;
        self.log.line(&format!("Active Threads Percentage of client {name} set to {}: {} multiprocessors, {} before", share.text(), change.now, change.before));
        self.keep(id);
        let number = self.questions.number();
        // A standby only remembers it.
        for worker in self.executors.workers.values().filter(|worker| worker.is_briefed()) {
            worker.send(ToExecutor::Share { request: number, session: id, parts: parts.clone() });
        }
        if holder.is_some() {
            self.questions.resharings.insert(number, change);
        } else {
            // Between two executors nothing runs: the next one begins with it.
            self.tell(FromServer::Shared { request, before: change.before, now: change.now, error: String::new() });
        }
    }

    /// An executor has given the share, or could not. Those that do not have the session say
    /// nothing that counts.
    pub(crate) fn reshared(&mut self, worker: u64, number: u64, error: String) {
        if self.questions.resharings.get(&number).is_none_or(|change| change.worker != worker) {
            return;
        }
        if let Some(Resharing { request, session, before, now, old, .. }) = self.questions.resharings.remove(&number) {
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

    /// The executor has ended, or this session has left it: the next one begins with the new share.
    pub(crate) fn resharings_are_over(&mut self, worker: u64, only: Option<u32>) {
        let over = |change: &Resharing| change.worker == worker && only.is_none_or(|session| session == change.session);
        let over: Vec<u64> = self.questions.resharings.iter().filter(|(_, change)| over(change)).map(|(number, _)| *number).collect();
        for Resharing { request, before, now, .. } in over.iter().filter_map(|number| self.questions.resharings.remove(number)).collect::<Vec<_>>() {
            self.tell(FromServer::Shared { request, before, now, error: String::new() });
        }
    }
}
