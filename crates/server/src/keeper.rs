//! The server's side of its keeper: started, asked, replaced.
//!
//! While a keeper is being replaced nothing is lost as long as this server lives: it holds the descriptors of all sessions itself and has them kept
//! anew, and executors have their device memory kept anew when they get the new connection. A client therefore must not give up because the
//! keeper it was told of has ended; only a dead server *and* a dead keeper are the end.

use crate::Limits;
use crate::core::{Core, Subject};
use crate::host::{Host, Role};
use crate::session::KEY;
use cumux_keeper::{ClientError, Keeper};
use cumux_link::{Connection, Process};
use std::time::{Duration, Instant};

/// Between the starts of two keepers, if the first did not last.
const BACK_OFF: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct KeeperSlot {
    process: Option<(u32, Process)>,
    link: Option<Keeper>,
    started: Instant,
    /// No keeper is started before.
    start_after: Instant,
}

impl KeeperSlot {
    pub(crate) fn empty(now: Instant) -> Self {
        Self { process: None, link: None, started: now, start_after: now }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.link.is_some()
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.process.is_none()
    }

    pub(crate) fn link(&self) -> Option<&Keeper> {
        self.link.as_ref()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.as_ref().map_or(0, |(pid, _)| *pid)
    }

    pub(crate) fn process(&self) -> Option<&Process> {
        self.process.as_ref().map(|(_, process)| process)
    }

    pub(crate) fn kill<H: Host>(&self, host: &H) {
        if let Some((pid, process)) = &self.process {
            host.kill(*pid, process);
        }
    }

    pub(crate) fn quit<H: Host>(&self, host: &H) {
        if self.link.as_ref().is_none_or(|keeper| keeper.quit().is_err()) {
            self.kill(host);
        }
    }

    pub(crate) fn deadline(&self, limits: &Limits) -> Option<Instant> {
        match (&self.process, &self.link) {
            (None, _) => Some(self.start_after),
            (Some(_), None) => Some(self.started + limits.start),
            (Some(_), Some(_)) => None,
        }
    }
}

impl<H: Host> Core<H> {
    /// Watches a keeper that was started, by us or by an earlier server.
    pub(crate) fn adopt_keeper(&mut self, pid: u32) -> std::io::Result<()> {
        let process = self.host.open(pid)?;
        let token = self.watcher.watch(&process)?;
        self.subjects.insert(token, Subject::Keeper);
        self.keeper.process = Some((pid, process));
        self.keeper.started = Instant::now();
        Ok(())
    }

    /// Starts one where there is none, and replaces one that says nothing.
    pub(crate) fn mend_keeper(&mut self, now: Instant) {
        if self.keeper.process.is_none() && now >= self.keeper.start_after {
            self.keeper.start_after = now + BACK_OFF;
            if let Err(error) = self.host.start(Role::Keeper).and_then(|pid| self.adopt_keeper(pid)) {
                self.note(&format!("cannot start a keeper ({error}); trying again. No client can be served meanwhile"));
            }
        }
        if self.keeper.link.is_none() && self.keeper.process.is_some() && now >= self.keeper.started + self.limits.start {
            self.keeper.started = now;
            self.keeper.kill(&self.host);
        }
    }

    pub(crate) fn keeper_hello(&mut self, connection: Connection, pid: u32) {
        let keeper = match Keeper::over(connection) {
            Ok(keeper) => keeper,
            Err(error) => return self.log.line(&format!("Keeper {pid} could not be used: {error}")),
        };
        if self.keeper.pid() != pid {
            self.log.line(&format!("Keeper {pid} of an earlier server is not needed any more"));
            let _ = keeper.quit();
            return;
        }
        if self.rebuild.is_some() {
            if let Err(error) = self.restore_sessions(&keeper) {
                return self.keeper_failed(&error);
            }
            self.keeper.link = Some(keeper);
            return;
        }
        self.keeper.link = Some(keeper);
        let sessions: Vec<u32> = self.sessions.values().filter(|s| !s.leaving && !s.failed).map(|s| s.about.id).collect();
        for session in &sessions {
            self.keep(*session);
            self.welcome(*session);
        }
        if !sessions.is_empty() {
            self.log.line(&format!("Keeper {pid} has the descriptors of {} clients", sessions.len()));
        }
    }

    /// Has a session's descriptors kept.
    pub(crate) fn keep(&mut self, id: u32) {
        let (Some(keeper), Some(session)) = (&self.keeper.link, self.sessions.get_mut(&id)) else { return };
        let kept = serde_json::to_string(&session.about)
            .map_err(|_| ClientError::Confused)
            .and_then(|note| keeper.keep(session.about.id, KEY, &note, &session.files.to_keep()));
        match kept {
            Ok(()) => session.kept = true,
            // Another keeper would have no more room.
            Err(error @ ClientError::Full { .. }) => {
                self.log.line(&format!("Session {id} would not survive this server: {error}"));
                self.refuse_greeting(id, cumux_wire::result::OUT_OF_MEMORY, &error.to_string());
            }
            Err(error) => self.keeper_failed(&error),
        }
    }

    /// A keeper that does not do its work is replaced.
    pub(crate) fn keeper_failed(&mut self, error: &ClientError) {
        self.note(&format!("Keeper {}: {error}", self.keeper.pid()));
        self.keeper.link = None;
        self.keeper.kill(&self.host);
    }

    pub(crate) fn keeper_gone(&mut self) {
        let Some((pid, process)) = self.keeper.process.take() else { return };
        self.watcher.forget(&process);
        self.keeper.link = None;
        let how = self.host.reap(pid).map_or_else(String::new, |how| format!(" ({how})"));
        self.log.line(&format!("Keeper {pid} has ended{how}"));
        for session in self.sessions.values_mut() {
            session.kept = false;
        }
        for worker in self.workers.values_mut() {
            worker.has_keeper = false;
        }
    }
}
