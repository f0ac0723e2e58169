//! The server's side of its keeper: started, asked, replaced.
//!
//! It is asked by a thread of its own ([`Desk`]), because it may be slow, or stopped by a signal:
//! answers come back as events, with the number of the keeper that gave them. What an earlier
//! keeper says counts for nothing.
//!
//! While a keeper is being replaced nothing is lost as long as an executor serves: the server has
//! the descriptors of all sessions kept anew, and executors have their device memory kept anew when
//! they get the new connection.

use crate::Limits;
use crate::core::{Core, Ending, Subject};
use crate::event::Event;
use crate::host::{Host, Role};
use crate::session::{KEY, Keeping};
use cumux_keeper::{ClientError, Item, Keeper};
use cumux_link::pulse::{Motion, Pulse, Verdict};
use cumux_link::{Connection, Process};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Between the starts of two keepers, if the first did not last.
const BACK_OFF: Duration = Duration::from_secs(1);

/// A question to the keeper.
#[derive(Debug)]
enum Ask {
    Keep { session: u32, note: String, files: Vec<Arc<OwnedFd>> },
    Drop { session: u32 },
    Connect { worker: u64 },
    List,
    Quit,
}

/// What the keeper has answered.
#[derive(Debug)]
pub(crate) enum Told {
    Kept {
        session: u32,
        outcome: Result<(), ClientError>,
    },
    /// A connection for this executor.
    Line {
        worker: u64,
        socket: OwnedFd,
    },
    Listed(Vec<Item>),
    /// It does not do its work: nothing more comes from it.
    Failed(ClientError),
}

/// Asks one keeper, in order.
#[derive(Debug)]
pub(crate) struct Desk {
    queue: Sender<Ask>,
}

impl Desk {
    fn open(keeper: Keeper, number: u64, events: Sender<Event>) -> std::io::Result<Self> {
        let (queue, questions) = channel::<Ask>();
        thread::Builder::new().name("keeper".into()).spawn(move || {
            for question in questions {
                let told = match ask(&keeper, question) {
                    Ok(None) => continue,
                    Ok(Some(told)) => told,
                    Err(error) => {
                        let _ = events.send(Event::Keeper { number, told: Told::Failed(error) });
                        return;
                    }
                };
                if events.send(Event::Keeper { number, told }).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { queue })
    }

    /// If the keeper has failed, that has been said already.
    fn ask(&self, question: Ask) {
        let _ = self.queue.send(question);
    }
}

/// Asks and waits. A keeper that is full does its work all the same.
fn ask(keeper: &Keeper, question: Ask) -> Result<Option<Told>, ClientError> {
    match question {
        Ask::Keep { session, note, files } => {
            let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
            match keeper.keep(session, KEY, &note, &files) {
                outcome @ (Ok(()) | Err(ClientError::Full { .. })) => Ok(Some(Told::Kept { session, outcome })),
                Err(error) => Err(error),
            }
        }
        Ask::Drop { session } => keeper.drop_session(session).map(|()| None),
        Ask::Connect { worker } => keeper.connect().map(|socket| Some(Told::Line { worker, socket })),
        Ask::List => keeper.list(0).map(|items| Some(Told::Listed(items))),
        Ask::Quit => keeper.quit().map(|()| None),
    }
}

#[derive(Debug)]
pub(crate) struct KeeperSlot {
    process: Option<(u32, Process)>,
    desk: Option<Desk>,
    /// Of the present keeper, or of the last one. No other keeper has had it, also under earlier
    /// servers: what executors say of those may come late.
    number: u64,
    pulse: Option<Pulse>,
    started: Instant,
    /// No keeper is started before.
    start_after: Instant,
}

impl KeeperSlot {
    pub(crate) fn empty(now: Instant, server: u32) -> Self {
        Self { process: None, desk: None, number: u64::from(server) << 32, pulse: None, started: now, start_after: now }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.desk.is_some()
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.process.is_none()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.as_ref().map_or(0, |(pid, _)| *pid)
    }

    pub(crate) fn process(&self) -> Option<&Process> {
        self.process.as_ref().map(|(_, process)| process)
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn kill<H: Host>(&self, host: &H) {
        if let Some((pid, process)) = &self.process {
            host.kill(*pid, process);
        }
    }

    pub(crate) fn quit<H: Host>(&self, host: &H) {
        match &self.desk {
            Some(desk) => desk.ask(Ask::Quit),
            None => self.kill(host),
        }
    }

    /// Asks for an answer that means nothing, behind all that was asked before; false where there
    /// is nobody to ask.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn mark(&self) -> bool {
        self.desk.as_ref().map(|desk| desk.ask(Ask::List)).is_some()
    }

    /// Lets go of what is kept of a session.
    pub(crate) fn drop_session(&self, session: u32) {
        if let Some(desk) = &self.desk {
            desk.ask(Ask::Drop { session });
        }
    }

    /// Asks for a connection for an executor; false where there is nobody to ask.
    pub(crate) fn connect(&self, worker: u64) -> bool {
        self.desk.as_ref().map(|desk| desk.ask(Ask::Connect { worker })).is_some()
    }

    pub(crate) fn deadline(&self, limits: &Limits) -> Option<Instant> {
        let look = self.pulse.as_ref().map(Pulse::next);
        let due = match (&self.process, &self.desk) {
            (None, _) => Some(self.start_after),
            (Some(_), None) => Some(self.started + limits.start),
            (Some(_), Some(_)) => None,
        };
        look.into_iter().chain(due).min()
    }
}

impl<H: Host> Core<H> {
    /// Watches a keeper that was started, by us or by an earlier server.
    pub(crate) fn adopt_keeper(&mut self, pid: u32) -> std::io::Result<()> {
        let process = self.host.open(pid)?;
        let token = self.watcher.watch(&process)?;
        let now = Instant::now();
        self.subjects.insert(token, Subject::Keeper);
        self.keeper.process = Some((pid, process));
        self.keeper.number += 1;
        self.keeper.pulse = self.limits.heartbeat.map(|limit| Pulse::new(limit, now));
        self.keeper.started = now;
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
        if self.keeper.desk.is_none() && self.keeper.process.is_some() && now >= self.keeper.started + self.limits.start {
            self.keeper.started = now;
            self.keeper.kill(&self.host);
        }
        self.look_at_keeper(now);
        self.keep_missing();
    }

    /// A keeper that stands still is replaced where an executor has all that it holds. Where none
    /// does, it is set going again: what it holds is the clients'.
    fn look_at_keeper(&mut self, now: Instant) {
        let Some((pid, process)) = &self.keeper.process else { return };
        let Some(pulse) = self.keeper.pulse.as_mut().filter(|pulse| pulse.next() <= now) else { return };
        let motion = self.host.motion(*pid);
        let verdict = pulse.observe(now, motion, &[]);
        let pid = *pid;
        if motion == Motion::Stopped && !self.service.is_given() {
            self.host.set_going(process);
            return self.note(&format!("Keeper {pid} was stopped by a signal while no executor serves; it is set going again"));
        }
        if let Verdict::Dead(standstill) = verdict {
            self.keeper.desk = None;
            self.keeper.kill(&self.host);
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
        match Desk::open(keeper, self.keeper.number, self.events.clone()) {
            Ok(desk) => {
                if self.rebuild.is_some() {
                    desk.ask(Ask::List);
                }
                self.keeper.desk = Some(desk);
            }
            Err(error) => self.log.line(&format!("no thread for keeper {pid} ({error}); look at the limits of this user (ulimit -u)")),
        }
    }

    /// What a keeper has answered.
    pub(crate) fn keeper_told(&mut self, number: u64, told: Told) {
        if number != self.keeper.number {
            return;
        }
        match told {
            Told::Kept { session, outcome } => self.kept(session, outcome),
            Told::Line { worker, socket } => self.line_to_keeper(worker, socket),
            Told::Listed(items) => self.restore_kept(items),
            Told::Failed(error) => {
                if !self.keeper.is_gone() && matches!(self.ending, Ending::No | Ending::Draining) {
                    self.note(&format!("Keeper {}: {error}", self.keeper.pid()));
                }
                self.keeper.desk = None;
                self.keeper.kill(&self.host);
            }
        }
    }

    /// Has the descriptors kept of all sessions that this keeper does not have.
    fn keep_missing(&mut self) {
        if self.keeper.is_up() {
            let missing: Vec<u32> = self.sessions.values().filter(|s| s.keeping == Keeping::No && s.is_served()).map(|session| session.about.id).collect();
            for session in missing {
                self.keep(session);
            }
        }
    }

    /// Has a session's descriptors kept, or kept with its present configuration.
    pub(crate) fn keep(&mut self, id: u32) {
        let (Some(desk), Some(session)) = (&self.keeper.desk, self.sessions.get_mut(&id)) else { return };
        let (Some(files), Ok(note)) = (&session.files, serde_json::to_string(&session.about)) else { return };
        desk.ask(Ask::Keep { session: id, note, files: files.share() });
        if session.keeping == Keeping::No {
            session.keeping = Keeping::Asked;
        }
    }

    fn kept(&mut self, id: u32, outcome: Result<(), ClientError>) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
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
        let Some((pid, process)) = self.keeper.process.take() else { return };
        self.watcher.forget(&process);
        self.keeper.desk = None;
        self.keeper.pulse = None;
        let how = self.host.reap(pid).map_or_else(String::new, |how| format!(" ({how})"));
        self.log.line(&format!("Keeper {pid} has ended{how}"));
        for session in self.sessions.values_mut() {
            session.keeping = Keeping::No;
        }
        self.workers_lose_keeper();
    }
}
