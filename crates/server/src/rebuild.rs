//! A server made from what an earlier one left: its keeper has the sessions, its executor has never stopped serving them.
//!
//! It waits for the processes that the state file names. Those that do not come in time are ended before anything is started in their place: an
//! executor that nobody hears could still be serving. What the old server had not yet welcomed is not welcomed any more: its socket is closed,
//! the client says hello again, and its second session replaces the first.

use crate::core::{Core, Subject};
use crate::host::Host;
use crate::session::{Files, KEY, Session};
use crate::state_file::StateFile;
use cumux_keeper::{ClientError, Keeper};
use cumux_wire::message;
use std::time::Instant;

#[derive(Debug)]
pub(crate) struct Rebuild {
    until: Instant,
}

impl Rebuild {
    pub(crate) fn until(&self) -> Instant {
        self.until
    }
}

impl<H: Host> Core<H> {
    /// Looks who is left of an earlier server.
    pub(crate) fn begin_rebuild(&mut self, old: &StateFile, now: Instant) {
        let ours = |pid: &u32| *pid != 0 && self.host.is_ours(*pid);
        let executors: Vec<u32> = [old.executor, old.standby].into_iter().filter(ours).collect();
        let keeper = Some(old.keeper).filter(ours);
        if keeper.is_none() && executors.is_empty() {
            return;
        }
        let mut found = Vec::new();
        if let Some(pid) = keeper
            && self.adopt_keeper(pid).is_ok()
        {
            found.push(pid);
        }
        for pid in executors {
            if let Ok(id) = self.adopt_worker(pid) {
                found.push(pid);
                // Without the keeper nothing that it serves can be known.
                if self.keeper.is_gone()
                    && let Some(worker) = self.workers.get_mut(&id)
                {
                    worker.kill(&self.host);
                }
            }
        }
        if self.keeper.is_gone() {
            self.log.line(&format!("An earlier server {} and its keeper have ended; their clients are lost", old.server));
            return;
        }
        self.log.line(&format!("Taking over from server {}: waiting for its processes {found:?}", old.server));
        self.rebuild = Some(Rebuild { until: now + self.limits.rebuild });
    }

    /// Whether ordinary service may begin, or go on.
    pub(crate) fn rebuild_step(&mut self, now: Instant) -> bool {
        let Some(rebuild) = &self.rebuild else { return true };
        let complete = self.keeper.is_up() && self.workers.values().all(|worker| worker.link.is_some());
        if !complete && now < rebuild.until && !self.keeper.is_gone() {
            return false;
        }
        self.rebuild = None;
        let missing: Vec<u32> = self.workers.values().filter(|worker| worker.link.is_none()).map(|worker| worker.pid).collect();
        for worker in self.workers.values_mut().filter(|worker| worker.link.is_none()) {
            worker.kill(&self.host);
        }
        if !self.keeper.is_up() {
            self.keeper.kill(&self.host);
            for worker in self.workers.values_mut() {
                worker.kill(&self.host);
            }
            self.active = None;
            self.serving = false;
            self.note("The earlier server's keeper did not come; its clients are lost");
            self.count_clients();
            return true;
        }
        if !missing.is_empty() {
            self.log.line(&format!("Executors {missing:?} did not come; they are ended"));
        }
        if !self.serving && !self.sessions.is_empty() {
            self.lost_at = Some(now);
        }
        self.note(&format!("Server {} goes on with {} clients", self.pid, self.sessions.len()));
        self.count_clients();
        true
    }

    /// Takes the sessions that the keeper has.
    pub(crate) fn restore_sessions(&mut self, keeper: &Keeper) -> Result<(), ClientError> {
        for item in keeper.list(0)? {
            if item.key != KEY {
                continue;
            }
            let about: message::Session = match serde_json::from_str(&item.note) {
                Ok(about) => about,
                Err(error) => {
                    self.log.line(&format!("A session in the keeper cannot be read ({error}); it is dropped"));
                    keeper.drop_session(item.session)?;
                    continue;
                }
            };
            let Ok(descriptors) = item.exactly::<7>() else {
                self.log.line(&format!("Session {} in the keeper is not complete; it is dropped", about.id));
                keeper.drop_session(about.id)?;
                continue;
            };
            let files = Files::from_kept(descriptors);
            let id = about.id;
            let token = match self.watcher.watch(&files.client) {
                Ok(token) => token,
                Err(errno) => {
                    self.log.line(&format!("The client of session {id} cannot be watched ({errno}); it is dropped"));
                    keeper.drop_session(id)?;
                    continue;
                }
            };
            let mut session = Session::new(about, files, token);
            session.kept = true;
            session.attached = self.serving;
            self.subjects.insert(token, Subject::Client(id));
            self.sessions.insert(id, session);
            self.next_session = self.next_session.max(id.wrapping_add(1)).max(1);
        }
        Ok(())
    }
}
