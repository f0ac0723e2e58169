//! A server made from what an earlier one left: its keeper has the sessions, its executor has never
//! stopped serving them, and its standby had been told of them. Each of these can name all sessions
//! with their files, so any two of the processes may have ended together with the server.
//!
//! It waits for the processes that the state file names. Those that do not come in time are ended
//! before anything is started in their place: an executor that nobody hears could still be serving.
//! What the old server had not yet welcomed is not welcomed any more: its socket is closed, the
//! client says hello again, and its second session replaces the first.

use crate::core::{Core, Rebuild, Subject};
use crate::host::Host;
use crate::session::{ClientSession, Files, KEY, Keeping, Seat};
use crate::state_file::StateFile;
use cumux_keeper::Item;
use cumux_link::pulse::Motion;
use cumux_wire::message::{self, Scope, ToExecutor};
use cumux_wire::result;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

impl<H: Host> Core<H> {
    /// Looks who is left of an earlier server.
    pub(crate) fn begin_rebuild(&mut self, old: &StateFile, now: Instant) {
        let ours = |pid: &u32| *pid != 0 && self.host.is_ours(*pid);
        let executors: Vec<u32> = [old.executor, old.standby].iter().chain(&old.others).copied().filter(ours).collect();
        let keeper = Some(old.keeper).filter(ours);
        let mut found = Vec::new();
        if let Some(pid) = keeper
            && self.adopt_keeper(pid).is_ok()
        {
            found.push(pid);
            if let Some(process) = self.keeper.process().filter(|_| self.host.motion(pid) == Motion::Stopped) {
                self.host.set_going(process);
            }
        }
        for pid in executors {
            let is_current = self.host.is_current(pid);
            if let Ok(id) = self.adopt_worker(pid, Scope::Shared) {
                found.push(pid);
                // Its clients leave it when they can, also those that have it for themselves.
                if let Some(worker) = self.executors.workers.get_mut(&id).filter(|_| !is_current) {
                    worker.build = 0;
                }
                // It would not come, and its clients wait.
                if let Some(worker) = self.executors.workers.get_mut(&id).filter(|_| self.host.motion(pid) == Motion::Stopped) {
                    worker.end(&self.host);
                }
            }
        }
        if found.is_empty() {
            return;
        }
        self.log.line(&format!("Taking over from server {}: waiting for its processes {found:?}", old.server));
        self.rebuild = Some(Rebuild { until: now + self.limits.waits.rebuild, kept_named: false, named: BTreeSet::new(), confined: Vec::new() });
    }

    /// Whether ordinary service may begin, or go on.
    pub(crate) fn rebuild_step(&mut self, now: Instant) -> bool {
        let Some(rebuild) = &mut self.rebuild else { return true };
        let kept = self.keeper.is_gone() || rebuild.kept_named;
        let complete = kept && self.executors.workers.iter().all(|(id, worker)| !worker.is_awaited() && rebuild.named.contains(id));
        if !complete && now < rebuild.until {
            return false;
        }
        let confined = std::mem::take(&mut rebuild.confined);
        self.rebuild = None;
        let missing: Vec<u32> = self.executors.workers.values().filter(|worker| worker.is_awaited()).map(|worker| worker.pid).collect();
        for worker in self.executors.workers.values_mut().filter(|worker| worker.is_awaited()) {
            worker.kill(&self.host);
        }
        if !missing.is_empty() {
            self.log.line(&format!("Executors {missing:?} did not come; they are ended"));
        }
        if !kept {
            self.log.line(&format!("Keeper {} did not come; it is ended", self.keeper.pid()));
            self.keeper.kill(&self.host);
        }
        if !self.executors.service.is_given() {
            // Clients look whether we live. An executor would tell them; where there is none nobody
            // else writes into their pages.
            for files in self.clients.sessions.values().filter_map(|session| session.files.as_ref()) {
                let _ = files.name_server(self.pid);
            }
            if !self.clients.sessions.is_empty() {
                self.executors.lost_at = Some(now);
            }
        }
        self.note(&format!("Server {} goes on with {} clients", self.pid, self.clients.sessions.len()));
        self.count_clients();
        for (session, why) in confined {
            self.confine(session, &why);
        }
        let apart: Vec<u64> = self.executors.workers.keys().copied().filter(|id| self.is_apart(*id)).collect();
        apart.into_iter().for_each(|id| self.end_if_empty(id));
        true
    }

    /// Takes the sessions that the keeper has.
    pub(crate) fn restore_kept(&mut self, items: Vec<Item>) {
        for item in items {
            if item.key != KEY {
                continue;
            }
            let (id, note) = (item.session, item.note.clone());
            match serde_json::from_str::<message::SessionConfig>(&note) {
                Ok(about) if about.id == id => {
                    let (home, may_run_unbounded) = (about.home, about.may_run_unbounded);
                    if let Some(session) = self.restore_session(about, item.descriptors) {
                        session.keeping = Keeping::Kept;
                        // Executors have it as it was when they were told of the session.
                        (session.about.home, session.about.may_run_unbounded) = (home, may_run_unbounded);
                    }
                }
                Ok(_) => self.log.line(&format!("Session {id} in the keeper is another's; it is passed over")),
                Err(error) => self.log.line(&format!("Session {id} in the keeper cannot be read ({error}); it is passed over")),
            }
        }
        if let Some(rebuild) = &mut self.rebuild {
            rebuild.kept_named = true;
        }
    }

    /// Takes a session that an executor has named. What the one that serves it says of it is the
    /// newest, but for where it is to be.
    pub(crate) fn restore_served(&mut self, worker: u64, about: message::SessionConfig, descriptors: Vec<OwnedFd>) {
        let id = about.id;
        let newest = about.clone();
        let seat = match self.executors.workers.get(&worker) {
            _ if self.executors.service.active() == Some(worker) => Some(Seat::Taken),
            Some(named) if !named.is_shared() && named.serving_since.is_some() => Some(Seat::Apart { worker }),
            _ => None,
        };
        if self.rebuild.is_none() {
            return;
        }
        let known = self.restore_session(about, descriptors);
        match (known, seat) {
            (Some(session), Some(seat)) => {
                session.status.multiprocessors = newest.parts.first().map_or(session.status.multiprocessors, |part| part.multiprocessors);
                session.about = message::SessionConfig { home: session.about.home, may_run_unbounded: session.about.may_run_unbounded, ..newest };
                session.seat = seat;
                session.unexplained_after = None;
            }
            (Some(_), None) => {}
            // Nobody would look after it: it ends, and what it has is free.
            (None, _) => {
                self.log.line(&format!("Session {id} that an executor has cannot be taken over; it is ended"));
                for worker in self.executors.workers.values() {
                    worker.send(ToExecutor::Terminate { session: id, result: result::MPS_RPC_FAILURE });
                    worker.send(ToExecutor::Detach { session: id, comes_later: false });
                }
            }
        }
    }

    /// A session of an earlier server; none if its client cannot be watched.
    fn restore_session(&mut self, about: message::SessionConfig, descriptors: Vec<OwnedFd>) -> Option<&mut ClientSession> {
        let id = about.id;
        if !self.clients.sessions.contains_key(&id) {
            let files = match Files::from_kept(descriptors, about.group.is_some()) {
                Ok(files) => files,
                Err(error) => {
                    self.log.line(&format!("Session {id} is not complete ({error}); it is passed over"));
                    return None;
                }
            };
            if let (Some(membership), Some(file)) = (&about.group, &files.group)
                && let Err(error) = self.clients.groups.restore(&membership.group, file)
            {
                self.log.line(&format!("The accounts of group {} cannot be used: {error}", membership.group));
            }
            let token = match self.processes.watch(&files.client, Subject::Client(id)) {
                Ok(token) => token,
                Err(errno) => {
                    self.log.line(&format!("The client of session {id} cannot be watched ({errno}); it is passed over"));
                    return None;
                }
            };
            let mut session = ClientSession::new(about, files, token);
            session.unexplained_after = Some(Duration::ZERO);
            self.clients.sessions.insert(id, session);
            self.clients.next_session = self.clients.next_session.max(id.wrapping_add(1)).max(1);
        }
        self.clients.sessions.get_mut(&id)
    }
}
