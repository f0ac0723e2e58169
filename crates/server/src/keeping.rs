//! The server's keeper: started, given what it has to keep, replaced.
//!
//! While a keeper is being replaced nothing is lost as long as an executor serves: the server has
//! the descriptors of all sessions kept anew, and executors have their device memory kept anew when
//! they get the new connection.

use crate::core::{Core, Ending, Subject};
use crate::event::Event;
use crate::host::{Host, Role};
use crate::session::Keeping;
use cumux_keeper::{ClientError, Keeper};
use cumux_link::Connection;
use cumux_link::pulse::{Motion, Verdict};
use std::time::Instant;

impl<H: Host> Core<H> {
    /// Watches a keeper that was started, by us or by an earlier server.
    pub(crate) fn adopt_keeper(&mut self, pid: u32) -> std::io::Result<()> {
        let process = self.host.open(pid)?;
        self.processes.watch(&process, Subject::Keeper)?;
        self.keeper.adopt(pid, process, self.limits.heartbeat);
        Ok(())
    }

    /// Starts one where there is none, and replaces one that says nothing.
    pub(crate) fn mend_keeper(&mut self, now: Instant) {
        if self.keeper.take_start(now)
            && let Err(error) = self.host.start(Role::Keeper).and_then(|pid| self.adopt_keeper(pid))
        {
            self.note(&format!("cannot start a keeper ({error}); trying again. No client can be served meanwhile"));
        }
        self.keeper.end_overdue(now, &self.limits, &self.host);
        self.look_at_keeper(now);
        self.keep_missing();
    }

    /// A keeper that stands still is replaced where an executor has all that it holds. Where none
    /// does, it is set going again: what it holds is the clients'.
    fn look_at_keeper(&mut self, now: Instant) {
        let Some((motion, verdict)) = self.keeper.check_motion(now, |pid| self.host.motion(pid)) else { return };
        let pid = self.keeper.pid();
        if motion == Motion::Stopped && !self.executors.service.is_given() {
            if let Some(process) = self.keeper.process() {
                self.host.set_going(process);
            }
            return self.note(&format!("Keeper {pid} was stopped by a signal while no executor serves; it is set going again"));
        }
        if let Verdict::Dead(standstill) = verdict {
            self.keeper.close(&self.host);
            self.note(&format!("Keeper {pid} {standstill}; it is ended and replaced"));
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
        let (events, number) = (self.events.clone(), self.keeper.number());
        match self.keeper.open(keeper, move |told| events.send(Event::Keeper { number, told }).is_ok()) {
            Ok(()) if self.rebuild.is_some() => self.keeper.list(),
            Ok(()) => {}
            Err(error) => self.log.line(&format!("no thread for keeper {pid} ({error}); look at the limits of this user (ulimit -u)")),
        }
    }

    /// It has failed: nothing more comes from it.
    pub(crate) fn keeper_failed(&mut self, error: &ClientError) {
        if !self.keeper.is_gone() && matches!(self.ending, Ending::No | Ending::Draining) {
            self.note(&format!("Keeper {}: {error}", self.keeper.pid()));
        }
        self.keeper.close(&self.host);
    }

    /// Has the descriptors kept of all sessions that this keeper does not have.
    fn keep_missing(&mut self) {
        if self.keeper.is_up() {
            for session in self.clients.sessions.values_mut().filter(|s| s.keeping == Keeping::No && s.is_served()) {
                self.keeper.keep(session);
            }
        }
    }

    /// A keeper has taken a session, or could not.
    pub(crate) fn kept(&mut self, id: u32, outcome: Result<(), ClientError>) {
        let Some(session) = self.clients.sessions.get_mut(&id) else { return };
        match outcome {
            Ok(()) => {
                session.keeping = Keeping::Kept;
                self.welcome(id);
            }
            // Another keeper would have no more room.
            Err(error) => {
                session.keeping = Keeping::Refused;
                self.log.line(&format!("Session {id} would not survive this server: {error}"));
                self.refuse_greeting(id, cumux_wire::result::OUT_OF_MEMORY, &error.to_string());
            }
        }
    }

    pub(crate) fn keeper_gone(&mut self) {
        let Some((pid, process)) = self.keeper.bury() else { return };
        self.processes.watcher.forget(&process);
        let how = self.host.reap(pid).map_or_else(String::new, |how| format!(" ({how})"));
        self.log.line(&format!("Keeper {pid} has ended{how}"));
        for session in self.clients.sessions.values_mut() {
            session.keeping = Keeping::No;
        }
        self.workers_lose_keeper();
    }
}
