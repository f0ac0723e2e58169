//! The keeper as its server knows it, and how it is asked.
//!
//! It is asked by a thread of its own ([`Desk`]), because it may be slow, or stopped by a signal:
//! answers come back with the number of the keeper that gave them. What an earlier keeper says
//! counts for nothing.

use crate::Limits;
use crate::host::Host;
use crate::session::{ClientSession, KEY, Keeping};
use cumux_keeper::{ClientError, Item, Keeper};
use cumux_link::Process;
use cumux_link::pulse::{Motion, Pulse, Verdict};
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
    /// `told` is called with each answer, by a thread of its own; false from it ends that thread.
    fn open(keeper: Keeper, told: impl Fn(Told) -> bool + Send + 'static) -> std::io::Result<Self> {
        let (queue, questions) = channel::<Ask>();
        thread::Builder::new().name("keeper".into()).spawn(move || {
            for question in questions {
                let answer = match ask(&keeper, question) {
                    Ok(None) => continue,
                    Ok(Some(answer)) => answer,
                    Err(error) => {
                        told(Told::Failed(error));
                        return;
                    }
                };
                if !told(answer) {
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

    /// A process that was started, by us or by an earlier server, and may stand still for so long.
    pub(crate) fn adopt(&mut self, pid: u32, process: Process, heartbeat: Option<Duration>) {
        let now = Instant::now();
        self.process = Some((pid, process));
        self.number += 1;
        self.pulse = heartbeat.map(|limit| Pulse::new(limit, now));
        self.started = now;
    }

    /// It has said hello: from now on it is asked, and `told` called with what it answers.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn open(&mut self, keeper: Keeper, told: impl Fn(Told) -> bool + Send + 'static) -> std::io::Result<()> {
        self.desk = Some(Desk::open(keeper, told)?);
        Ok(())
    }

    /// It does not do its work, and is asked nothing more.
    pub(crate) fn close<H: Host>(&mut self, host: &H) {
        self.desk = None;
        self.kill(host);
    }

    /// Its process has ended. Returns what there was of it.
    pub(crate) fn bury(&mut self) -> Option<(u32, Process)> {
        let found = self.process.take()?;
        self.desk = None;
        self.pulse = None;
        Some(found)
    }

    /// Whether one should be started now; the next one only a while later.
    pub(crate) fn take_start(&mut self, now: Instant) -> bool {
        let due = self.process.is_none() && now >= self.start_after;
        if due {
            self.start_after = now + BACK_OFF;
        }
        due
    }

    /// Ends one that has not said hello for too long.
    pub(crate) fn end_overdue<H: Host>(&mut self, now: Instant, limits: &Limits, host: &H) {
        if self.desk.is_none() && self.process.is_some() && now >= self.started + limits.waits.start {
            self.started = now;
            self.kill(host);
        }
    }

    /// Checks whether it stands still, if it is time to.
    pub(crate) fn check_motion(&mut self, now: Instant, motion: impl FnOnce(u32) -> Motion) -> Option<(Motion, Verdict)> {
        let (pid, _) = self.process.as_ref()?;
        let pulse = self.pulse.as_mut().filter(|pulse| pulse.next() <= now)?;
        let motion = motion(*pid);
        Some((motion, pulse.observe(now, motion, &[])))
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

    /// Asks for all that is kept.
    pub(crate) fn list(&self) {
        if let Some(desk) = &self.desk {
            desk.ask(Ask::List);
        }
    }

    /// Has a session's descriptors kept, or kept with its present configuration.
    pub(crate) fn keep(&self, session: &mut ClientSession) {
        let Some(desk) = &self.desk else { return };
        let (Some(files), Ok(note)) = (&session.files, serde_json::to_string(&session.about)) else { return };
        desk.ask(Ask::Keep { session: session.about.id, note, files: files.share() });
        if session.keeping == Keeping::No {
            session.keeping = Keeping::Asked;
        }
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
            (Some(_), None) => Some(self.started + limits.waits.start),
            (Some(_), Some(_)) => None,
        };
        look.into_iter().chain(due).min()
    }
}
