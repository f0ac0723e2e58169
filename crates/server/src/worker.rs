//! One executor process as its server knows it, and which of them serves.
//!
//! How far the server has come with a process. Where nothing is left of it, it is buried:
//!
//! ```text
//!             greet               connection_lost
//!   Awaited ─────────▶ Connected ─────────────────▶ CutOff
//!      │                  │                           │
//!      │ process_ended    │ process_ended             │ process_ended
//!      │                  ▼                           ▼
//!      │               Ended ───────────────────▶ (buried)
//!      │                        connection_lost       ▲
//!      └──────────────────────────────────────────────┘
//! ```
//!
//! What the server wants of it:
//!
//! ```text
//!   Wanted ── dismiss, excuse ──▶ Dismissed
//!     │                               │
//!     │ kill                          │ kill
//!     ▼                               ▼
//!   Doomed ─────── excuse ───────▶ Doomed
//!   (a misfortune)                 (no misfortune)
//! ```
//!
//! What an executor can be told, and what it knows, belongs to its connection ([`Channel`]): there
//! is none of it before the hello. The states are private to this file.

use crate::Limits;
use crate::host::Host;
use crate::outbox::Outbox;
use cumux_link::Process;
use cumux_link::pulse::{Motion, Pulse, Standstill, Verdict};
use cumux_wire::message::{DeviceFacts, Scope, ToExecutor};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Which executor serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    ByNobody,
    /// This one was told to, and has not yet said that it does.
    Beginning {
        worker: u64,
        since: Instant,
    },
    By {
        worker: u64,
    },
}

impl Service {
    /// The executor that serves, or that was told to.
    pub(crate) fn active(self) -> Option<u64> {
        match self {
            Self::ByNobody => None,
            Self::Beginning { worker, .. } | Self::By { worker } => Some(worker),
        }
    }

    /// The executor that serves.
    pub(crate) fn serving(self) -> Option<u64> {
        match self {
            Self::By { worker } => Some(worker),
            Self::ByNobody | Self::Beginning { .. } => None,
        }
    }

    /// Whether an executor was told to serve, and has not yet said that it does.
    pub(crate) fn is_beginning(self) -> bool {
        matches!(self, Self::Beginning { .. })
    }

    /// Whether an executor serves.
    pub(crate) fn is_given(self) -> bool {
        self.serving().is_some()
    }
}

/// An executor's connection to the present keeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeeperLine {
    No,
    /// The keeper was asked for it.
    Asked,
    Has,
}

/// What an executor knows of the sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Knowledge {
    Nothing,
    /// All of them; new ones and ends are told to it.
    Everything,
}

/// What came with an executor's hello, and what it has been told since.
#[derive(Debug)]
struct Channel {
    outbox: Outbox<ToExecutor>,
    devices: Vec<DeviceFacts>,
    /// The lowest number of its queues on the card.
    first_queue: u32,
    since: Instant,
    keeper: KeeperLine,
    knowledge: Knowledge,
}

/// How an executor that has said hello fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Course {
    Connected,
    /// Its connection has ended and with it everything it will ever say. Its process should end.
    CutOff {
        since: Instant,
    },
    /// Its process has ended. What it still said is being read.
    Ended,
}

/// How far the server has come with an executor.
#[derive(Debug)]
enum Contact {
    /// It has not said hello.
    Awaited {
        since: Instant,
    },
    Made {
        channel: Channel,
        course: Course,
    },
}

/// What is left of an executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remains {
    /// Its process, or something that it said and nobody has read yet.
    Something,
    Nothing,
}

/// Whether an executor is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Its end is a misfortune.
    Wanted,
    /// Its end is wanted, and says nothing against the device.
    Dismissed,
    /// It was killed and has not ended yet; as long as it may still serve, nobody else does.
    Doomed {
        /// Nobody wanted its end: it counts against the device.
        misfortune: bool,
    },
}

/// Whether an executor stood still when it was last looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    GoesOn,
    StandsStill,
}

/// What is known of an executor's progress.
#[derive(Debug)]
struct Heartbeat {
    pulse: Pulse,
    /// What it said last of its threads.
    lanes: Vec<u64>,
    pace: Pace,
}

/// What a look at an executor has found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finding {
    /// It stands still, and did not before.
    StandsStill,
    /// It goes on, and did not before.
    GoesOn,
    /// It has stood still for too long.
    Dead(Standstill),
}

/// One executor process, wherever it is in its life.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) pid: u32,
    pub(crate) process: Process,
    /// Whom it serves, or is to serve.
    pub(crate) scope: Scope,
    /// Where in the arena it looks for addresses first.
    pub(crate) stripe: u32,
    /// Of which program it is: programs are counted, the latest has the highest number.
    pub(crate) build: u32,
    /// When it was told to serve.
    pub(crate) activated: Option<Instant>,
    pub(crate) serving_since: Option<Instant>,
    /// Since when its device is lost.
    pub(crate) lost_since: Option<Instant>,
    contact: Contact,
    standing: Standing,
    /// None where nobody counts.
    heartbeat: Option<Heartbeat>,
}

impl Worker {
    /// A process that was just started or found, and may stand still for so long.
    pub(crate) fn new(pid: u32, process: Process, scope: Scope, heartbeat: Option<Duration>) -> Self {
        let now = Instant::now();
        Self {
            pid,
            process,
            scope,
            stripe: 0,
            build: 0,
            activated: None,
            serving_since: None,
            lost_since: None,
            contact: Contact::Awaited { since: now },
            standing: Standing::Wanted,
            heartbeat: heartbeat.map(|limit| Heartbeat { pulse: Pulse::new(limit, now), lanes: Vec::new(), pace: Pace::GoesOn }),
        }
    }

    /// It says hello. Only while it is [awaited](Worker::is_awaited).
    pub(crate) fn greet(&mut self, outbox: Outbox<ToExecutor>, devices: Vec<DeviceFacts>, first_queue: u32, now: Instant) {
        if self.is_awaited() {
            let channel = Channel { outbox, devices, first_queue, since: now, keeper: KeeperLine::No, knowledge: Knowledge::Nothing };
            self.contact = Contact::Made { channel, course: Course::Connected };
        }
    }

    /// Its connection has ended: its process should, too.
    pub(crate) fn connection_lost(&mut self, now: Instant) -> Remains {
        match &mut self.contact {
            Contact::Made { course: Course::Ended, .. } => return Remains::Nothing,
            Contact::Made { course, .. } => *course = Course::CutOff { since: now },
            Contact::Awaited { .. } => {}
        }
        Remains::Something
    }

    /// Its process has ended. What it still said is read first.
    pub(crate) fn process_ended(&mut self) -> Remains {
        match &mut self.contact {
            Contact::Awaited { .. } | Contact::Made { course: Course::CutOff { .. }, .. } => Remains::Nothing,
            Contact::Made { channel, course } => {
                *course = Course::Ended;
                channel.outbox.close();
                Remains::Something
            }
        }
    }

    /// Whether it has not said hello.
    pub(crate) fn is_awaited(&self) -> bool {
        matches!(self.contact, Contact::Awaited { .. })
    }

    /// Since when it is waited for, if it has not said hello.
    pub(crate) fn awaited_since(&self) -> Option<Instant> {
        if let Contact::Awaited { since } = self.contact { Some(since) } else { None }
    }

    fn is_connected(&self) -> bool {
        matches!(self.contact, Contact::Made { course: Course::Connected, .. })
    }

    fn channel(&self) -> Option<&Channel> {
        match &self.contact {
            Contact::Made { channel, .. } => Some(channel),
            Contact::Awaited { .. } => None,
        }
    }

    fn channel_mut(&mut self) -> Option<&mut Channel> {
        match &mut self.contact {
            Contact::Made { channel, .. } => Some(channel),
            Contact::Awaited { .. } => None,
        }
    }

    /// It has not said hello, or not ended, for too long.
    pub(crate) fn is_overdue(&self, now: Instant, limits: &Limits) -> bool {
        self.due(limits).is_some_and(|due| now >= due)
    }

    fn due(&self, limits: &Limits) -> Option<Instant> {
        match &self.contact {
            Contact::Awaited { since } => Some(*since + limits.waits.start),
            Contact::Made { course: Course::CutOff { since }, .. } => Some(*since + limits.quit),
            Contact::Made { .. } => None,
        }
    }

    /// It is given as long again.
    pub(crate) fn wait_again(&mut self, now: Instant) {
        match &mut self.contact {
            Contact::Awaited { since } | Contact::Made { course: Course::CutOff { since }, .. } => *since = now,
            Contact::Made { .. } => {}
        }
    }

    /// When it has to be looked at.
    pub(crate) fn deadlines(&self, limits: &Limits) -> impl Iterator<Item = Instant> {
        let look = self.heartbeat.as_ref().filter(|_| !self.is_doomed()).map(|heartbeat| heartbeat.pulse.next());
        look.into_iter().chain(self.due(limits))
    }

    /// Asks it to end; one that cannot hear is ended.
    pub(crate) fn dismiss<H: Host>(&mut self, host: &H) {
        self.excuse();
        match self.channel() {
            Some(channel) => channel.outbox.send(ToExecutor::Quit, Vec::new()),
            None => self.kill(host),
        }
    }

    /// Ends it without asking, and whoever made that necessary has said nothing against the device.
    pub(crate) fn end<H: Host>(&mut self, host: &H) {
        self.excuse();
        self.kill(host);
    }

    /// Ends it without asking.
    pub(crate) fn kill<H: Host>(&mut self, host: &H) {
        self.standing = match self.standing {
            Standing::Wanted => Standing::Doomed { misfortune: true },
            Standing::Dismissed => Standing::Doomed { misfortune: false },
            doomed @ Standing::Doomed { .. } => doomed,
        };
        host.kill(self.pid, &self.process);
    }

    /// Its end is wanted, or as good as wanted: it says nothing against the device.
    pub(crate) fn excuse(&mut self) {
        self.standing = match self.standing {
            Standing::Wanted | Standing::Dismissed => Standing::Dismissed,
            Standing::Doomed { .. } => Standing::Doomed { misfortune: false },
        };
    }

    /// Whether its end says nothing against the device.
    pub(crate) fn is_dismissed(&self) -> bool {
        matches!(self.standing, Standing::Dismissed | Standing::Doomed { misfortune: false })
    }

    /// Whether it is to stay: it serves, stands by, or comes up.
    pub(crate) fn is_wanted(&self) -> bool {
        matches!(self.standing, Standing::Wanted)
    }

    /// Whether it was killed.
    pub(crate) fn is_doomed(&self) -> bool {
        matches!(self.standing, Standing::Doomed { .. })
    }

    /// Tells it something. One that has not said hello hears nothing.
    pub(crate) fn send(&self, message: ToExecutor) {
        self.send_with(message, Vec::new());
    }

    /// As [`Worker::send`], with descriptors.
    pub(crate) fn send_with(&self, message: ToExecutor, descriptors: Vec<Arc<OwnedFd>>) {
        if let Some(channel) = self.channel() {
            channel.outbox.send(message, descriptors);
        }
    }

    /// Its devices, as it has named them.
    pub(crate) fn devices(&self) -> &[DeviceFacts] {
        self.channel().map_or(&[], |channel| &channel.devices)
    }

    /// Whether it can be told what it lacks.
    pub(crate) fn can_be_briefed(&self) -> bool {
        !self.is_awaited() && !matches!(self.contact, Contact::Made { course: Course::CutOff { .. }, .. }) && !self.is_dismissed()
    }

    /// Whether it knows all sessions: new ones and ends are told to it.
    pub(crate) fn is_briefed(&self) -> bool {
        self.channel().is_some_and(|channel| channel.knowledge == Knowledge::Everything)
    }

    /// It has been told of all sessions.
    pub(crate) fn was_briefed(&mut self) {
        if let Some(channel) = self.channel_mut() {
            channel.knowledge = Knowledge::Everything;
        }
    }

    /// Whether it has a connection to the present keeper.
    pub(crate) fn has_keeper(&self) -> bool {
        self.channel().is_some_and(|channel| channel.keeper == KeeperLine::Has)
    }

    /// Whether nobody has asked the keeper for a connection for it.
    pub(crate) fn lacks_keeper(&self) -> bool {
        self.channel().is_some_and(|channel| channel.keeper == KeeperLine::No)
    }

    /// The keeper was asked for a connection for it.
    pub(crate) fn awaits_keeper(&mut self) {
        if let Some(channel) = self.channel_mut().filter(|channel| channel.keeper == KeeperLine::No) {
            channel.keeper = KeeperLine::Asked;
        }
    }

    /// Gives it the connection that the keeper with this number was asked for.
    pub(crate) fn give_keeper(&mut self, number: u64, socket: OwnedFd) {
        if let Some(channel) = self.channel_mut().filter(|channel| channel.keeper == KeeperLine::Asked) {
            channel.outbox.send(ToExecutor::Keeper { number }, vec![Arc::new(socket)]);
            channel.keeper = KeeperLine::Has;
        }
    }

    /// Its connection to a keeper is worth nothing any more.
    pub(crate) fn lose_keeper(&mut self) {
        if let Some(channel) = self.channel_mut() {
            channel.keeper = KeeperLine::No;
        }
    }

    /// It serves or stands by for all sessions that have no executor of their own.
    pub(crate) fn is_shared(&self) -> bool {
        self.scope == Scope::Shared
    }

    /// It said hello with its device, has its line to the keeper, knows what there is to know, and
    /// is not on its way out.
    pub(crate) fn can_serve(&self) -> bool {
        self.is_shared() && self.is_ready() && self.is_briefed()
    }

    /// It said hello with its device, has its line to the keeper, and is not on its way out.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_connected() && !self.is_dismissed() && !self.is_doomed() && self.has_keeper() && !self.devices().is_empty()
    }

    /// Who takes over first, of those that can serve: the lowest. A fault is noticed sooner in an
    /// executor whose queues have low numbers, but one that has just come has not loaded its
    /// clients' modules yet.
    pub(crate) fn standby_rank(&self, now: Instant, prepares: Duration) -> (bool, u32) {
        match &self.contact {
            Contact::Made { channel, .. } if now.saturating_duration_since(channel.since) >= prepares => (false, channel.first_queue),
            _ => (true, 0),
        }
    }

    /// It was told to serve.
    pub(crate) fn activate(&mut self, generation: u32, unexplained_after: Option<Duration>, stripe: u32) {
        let unexplained_after_ms = unexplained_after.map(|lived| u64::try_from(lived.as_millis()).unwrap_or(u64::MAX));
        self.stripe = stripe;
        self.activated = Some(Instant::now());
        self.send(ToExecutor::Activate { generation, unexplained_after_ms, stripe });
    }

    /// It says how often its threads have come round.
    pub(crate) fn beat(&mut self, lanes: Vec<u64>) {
        if let Some(heartbeat) = &mut self.heartbeat {
            heartbeat.lanes = lanes;
        }
    }

    /// Checks whether it stands still, if it is time to. What is new of that.
    pub(crate) fn check_motion(&mut self, now: Instant, motion: impl FnOnce(u32) -> Motion) -> Option<Finding> {
        if self.is_doomed() || matches!(self.contact, Contact::Made { course: Course::Ended, .. }) {
            return None;
        }
        let heartbeat = self.heartbeat.as_mut().filter(|heartbeat| heartbeat.pulse.next() <= now)?;
        let verdict = heartbeat.pulse.observe(now, motion(self.pid), &heartbeat.lanes);
        let pace = if verdict == Verdict::Well { Pace::GoesOn } else { Pace::StandsStill };
        let before = std::mem::replace(&mut heartbeat.pace, pace);
        match verdict {
            Verdict::Silent if before == Pace::GoesOn => Some(Finding::StandsStill),
            Verdict::Well if before == Pace::StandsStill => Some(Finding::GoesOn),
            Verdict::Dead(standstill) => Some(Finding::Dead(standstill)),
            Verdict::Well | Verdict::Silent => None,
        }
    }

    /// It stands still, or has done so when it was last looked at.
    pub(crate) fn is_silent(&self) -> bool {
        self.heartbeat.as_ref().is_some_and(|heartbeat| heartbeat.pace == Pace::StandsStill)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cumux_link::Connection;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    fn worker() -> Worker {
        let pid = std::process::id();
        Worker::new(pid, Process::open(pid).unwrap(), Scope::Shared, None)
    }

    fn greeted() -> (Worker, Connection) {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let mut worker = worker();
        worker.greet(Outbox::over(Arc::new(ours.into())).unwrap(), Vec::new(), 0, Instant::now());
        (worker, theirs.into())
    }

    #[test]
    fn an_executor_is_buried_when_its_process_has_ended_and_all_it_said_is_read() {
        assert_eq!(worker().process_ended(), Remains::Nothing, "it has never said anything");
        let (mut worker, _other_end) = greeted();
        assert_eq!((worker.process_ended(), worker.connection_lost(Instant::now())), (Remains::Something, Remains::Nothing));
        let (mut worker, _other_end) = greeted();
        assert_eq!((worker.connection_lost(Instant::now()), worker.process_ended()), (Remains::Something, Remains::Nothing));
    }

    #[test]
    fn nobody_is_told_anything_before_the_hello_or_after_the_end() {
        let mut awaited = worker();
        awaited.was_briefed();
        awaited.awaits_keeper();
        assert!(!awaited.is_briefed() && !awaited.lacks_keeper() && !awaited.can_be_briefed());
        let (mut worker, _other_end) = greeted();
        assert!(worker.can_be_briefed() && worker.lacks_keeper() && !worker.has_keeper());
        worker.connection_lost(Instant::now());
        assert!(!worker.can_be_briefed() && !worker.is_awaited());
    }

    #[test]
    fn an_end_that_was_wanted_once_is_no_misfortune() {
        let (mut worker, _other_end) = greeted();
        assert!(!worker.is_dismissed() && !worker.is_doomed());
        worker.excuse();
        assert!(worker.is_dismissed() && !worker.is_doomed());
    }
}
