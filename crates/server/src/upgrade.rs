//! All processes of a server are replaced by those of another program, one after another, while
//! clients work.
//!
//! Executors first: standbys of the new program are started, the one that serves takes no further
//! sessions, and its sessions move to the next one as they come back from an executor apart
//! ([`crate::moving`]). Executors of single sessions follow in the same way. Then the keeper, as
//! one that was lost. At last this server ends alone: the daemon starts the next one, of the new
//! program, which goes on as after a death ([`crate::rebuild`]).
//!
//! A program of which no executor comes up is given up, and the one before goes on.
//!
//! Invariant: nothing is ended before its successor is there, but the keeper, all of whose
//! descriptors executors and server have, too. Who dies meanwhile is replaced by the new program.

use crate::core::{Core, Ending, Upgrade};
use crate::host::Host;
use crate::session::{ClientSession, Keeping, Moving, Seat};
use crate::worker::Service;
use cumux_wire::message::{Capabilities, FromServer, ToExecutor};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

impl<H: Host> Core<H> {
    /// The daemon wants all processes to be those of this program. It has looked at it.
    pub(crate) fn begin_upgrade(&mut self, request: u64, program: &Path) {
        let exclusive = Capabilities::of_all(self.executors.devices.iter().map(|device| &device.capabilities)).exclusive;
        let refusal = if let Some(why) = exclusive {
            Some(format!("no executor can be started beside the one that serves: {why}. End the programs and the daemon (quit), and start it again"))
        } else if self.upgrade != Upgrade::No {
            Some("another upgrade is under way".to_owned())
        } else if self.ending != Ending::No || self.broken.is_some() || self.rebuild.is_some() {
            Some("the server is just starting or ending; try again".to_owned())
        } else {
            None
        };
        if let Some(error) = refusal {
            return self.tell(FromServer::Upgraded { request, staying: Vec::new(), error });
        }
        self.note(&format!("Upgrade: executors, keeper and server are replaced by {}", program.display()));
        let earlier = self.host.use_program(program);
        self.executors.build += 1;
        let (now, waits) = (Instant::now(), self.limits.waits);
        self.upgrade = Upgrade::Executors { request, earlier, until: now + waits.upgrade, at_last: now + waits.executors() };
    }

    /// When something has to be done even if nothing happens.
    pub(crate) fn upgrade_deadlines(&self) -> impl Iterator<Item = Instant> {
        let (until, at_last) = match self.upgrade {
            Upgrade::No => (None, None),
            Upgrade::Executors { until, at_last, .. } => (Some(until), Some(at_last)),
            Upgrade::Keeper { until, .. } => (Some(until), None),
        };
        until.into_iter().chain(at_last)
    }

    /// The next step, if it is due.
    pub(crate) fn upgrade_step(&mut self, now: Instant) {
        match self.upgrade {
            Upgrade::No => {}
            Upgrade::Executors { request, until, at_last, .. } => {
                self.replace_standbys();
                self.retire_active();
                let build = self.executors.build;
                let old = self.executors.workers.values().any(|worker| worker.build < build);
                let serves = self.executors.serving().is_some_and(|worker| worker.build == build);
                // Of a session between two executors the keeper alone has the memory.
                let is_between = |session: &ClientSession| session.moving != Moving::Still || !matches!(session.seat, Seat::Taken | Seat::Apart { .. });
                let seated = !self.clients.sessions.values().any(|session| session.is_served() && session.greeting.is_none() && is_between(session));
                if serves && seated && (!old || now >= until) && self.keeper.is_up() {
                    let before = self.keeper.pid();
                    self.note(&format!("Upgrade: keeper {before} is replaced"));
                    self.keeper.close(&self.host);
                    self.upgrade = Upgrade::Keeper { request, before, until: now + self.limits.waits.keeper };
                } else if now >= until && self.is_on_trial(build) {
                    self.abandon_upgrade("none has come up in time");
                } else if now >= at_last {
                    let reason = if !serves {
                        "no executor serves"
                    } else if !seated {
                        "clients are on their way between executors"
                    } else {
                        "there is no keeper"
                    };
                    self.halt_upgrade(request, reason);
                }
            }
            Upgrade::Keeper { request, before, until } => {
                let kept = self.clients.sessions.values().all(|session| !session.is_served() || matches!(session.keeping, Keeping::Kept | Keeping::Refused));
                let lines = self.executors.workers.values().all(|worker| worker.has_keeper() || !worker.can_be_briefed());
                let comes = self.keeper.is_up() && self.keeper.pid() != before && kept && lines;
                let waiting = self.clients.sessions.values().any(|session| session.greeting.is_some());
                if comes && (!waiting || now >= until) {
                    self.hand_over(request);
                } else if now >= until {
                    self.halt_upgrade(request, "the next keeper has not taken everything in time");
                }
            }
        }
    }

    /// Standbys of the old program are not needed; the next ones are of the new one.
    pub(crate) fn replace_standbys(&mut self) {
        let (build, active) = (self.executors.build, self.executors.service.active());
        for (id, worker) in &mut self.executors.workers {
            if Some(*id) != active && worker.is_shared() && worker.build < build && !worker.is_dismissed() {
                worker.dismiss(&self.host);
            }
        }
    }

    /// Once a standby of the new program is ready, the old one takes no further sessions and those
    /// that it has are to be with the new one.
    pub(crate) fn retire_active(&mut self) {
        let build = self.executors.build;
        let Some(old) = self.executors.service.serving() else { return };
        let ready = self.executors.workers.values().any(|worker| worker.build == build && worker.can_serve());
        let asked = self.clients.sessions.values().any(|session| session.seat == Seat::Asked);
        let Some(worker) = self.executors.workers.get(&old).filter(|worker| worker.build < build && ready && !asked) else { return };
        worker.send(ToExecutor::Retire);
        let pid = worker.pid;
        let there: BTreeSet<u32> = self.clients.sessions.values().filter(|session| session.seat == Seat::Taken).map(|session| session.about.id).collect();
        for session in self.set_aside(old, &there) {
            self.finish(session, None);
        }
        self.executors.service = Service::ByNobody;
        self.note(&format!("The {} clients of executor {pid} move to the next one", there.len()));
        self.end_if_empty(old);
        self.activate(Instant::now());
    }

    /// What is not replaced by now stays as it is, and whoever waits hears what that is.
    fn halt_upgrade(&mut self, request: u64, reason: &str) {
        let build = self.executors.build;
        let old = self.executors.workers.values().filter(|worker| worker.build < build).count();
        let error = format!(
            "{reason}. Executors are started from the new program, {old} are still of the one before, and this server and its keeper go on; \
             server.log says more. Clients go on meanwhile: order the upgrade again"
        );
        self.note(&format!("Upgrade: {error}"));
        self.upgrade = Upgrade::No;
        self.tell(FromServer::Upgraded { request, staying: Vec::new(), error });
    }

    /// Everything else is of the new program: this server ends, and leaves all to the next one.
    fn hand_over(&mut self, request: u64) {
        let build = self.executors.build;
        let stays = |worker: u64| self.executors.workers.get(&worker).is_some_and(|worker| worker.build < build);
        let staying = self.clients.sessions.values().filter(|s| s.is_served() && s.seat.elsewhere().is_some_and(stays));
        let staying = staying.map(|session| (session.about.pid, session.stays_because.clone())).collect();
        self.write_state();
        self.tell(FromServer::Upgraded { request, staying, error: String::new() });
        self.ending = Ending::HandOver;
    }
}
