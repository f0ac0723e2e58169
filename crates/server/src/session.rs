//! One client and its files.

use crate::come_back::ComeBack;
use crate::host::Fate;
use cumux_link::connection::exactly;
use cumux_link::{Connection, LinkError, escape_foreign};
use cumux_ring::FileError;
use cumux_ring::service::Service;
use cumux_wire::layout;
use cumux_wire::message::{self, ClientStatus, DeviceFacts, DeviceGrant, Grant, Home, ToExecutor, Wisher};
use cumux_wire::result;
use cumux_wire::share::{Grain, Share};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The keeper's key of [`Files`]; the note beside it is the session as JSON.
pub(crate) const KEY: &str = "session";

/// Everything of a session that is a descriptor, in the order in which the keeper has it.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    pub(crate) ring: Arc<OwnedFd>,
    pub(crate) page: Arc<OwnedFd>,
    pub(crate) window: Arc<OwnedFd>,
    pub(crate) journal: Arc<OwnedFd>,
    pub(crate) doorbell: Arc<OwnedFd>,
    pub(crate) marks: Arc<OwnedFd>,
    /// Handle of the client's process.
    pub(crate) client: Arc<OwnedFd>,
    /// The accounts of its group.
    pub(crate) group: Option<Arc<OwnedFd>>,
}

impl Files {
    /// New, empty files for the client behind `client`.
    pub(crate) fn create(client: OwnedFd) -> Result<Self, FileError> {
        let file = |name, bytes| cumux_ring::create(name, bytes).map(Arc::new);
        Ok(Self {
            ring: file("cumux-ring", layout::ring::BYTES as u64)?,
            page: file("cumux-page", layout::page::BYTES as u64)?,
            window: file("cumux-window", layout::WINDOW_BYTES)?,
            journal: file("cumux-journal", layout::journal::BYTES as u64)?,
            doorbell: Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?),
            marks: file("cumux-marks", layout::MARKS_BYTES)?,
            client: Arc::new(client),
            group: None,
        })
    }

    /// As they came back from the keeper, or from an executor.
    ///
    /// # Errors
    /// Their number is wrong.
    pub(crate) fn from_kept(mut descriptors: Vec<OwnedFd>, in_group: bool) -> Result<Self, LinkError> {
        let group = if in_group { descriptors.pop().map(Arc::new) } else { None };
        let [ring, page, window, journal, doorbell, marks, client] = exactly::<7>(descriptors)?.map(Arc::new);
        Ok(Self { ring, page, window, journal, doorbell, marks, client, group })
    }

    /// In the order in which the keeper has them and `Attach` carries them.
    pub(crate) fn share(&self) -> Vec<Arc<OwnedFd>> {
        let all = [&self.ring, &self.page, &self.window, &self.journal, &self.doorbell, &self.marks, &self.client];
        all.into_iter().chain(&self.group).map(Arc::clone).collect()
    }

    /// Writes this server's number into the page of a session that no executor has yet.
    pub(crate) fn name_server(&self, pid: u32) -> Result<(), FileError> {
        Service::map(&self.ring, &self.page)?.set_server(pid);
        Ok(())
    }

    /// The client's sticky error and what is known of it, if it has one.
    pub(crate) fn fault(&self) -> Option<(u32, String)> {
        let service = Service::map(&self.ring, &self.page).ok()?;
        Some((service.sticky(), service.fault())).filter(|(result, _)| *result != 0)
    }

    /// Ends a session, so that nobody waits for it. Only while no executor has it: the page has one
    /// writer.
    pub(crate) fn fail(&self, result: u32, why: &str) -> Result<(), FileError> {
        let service = Service::map(&self.ring, &self.page)?;
        // The first error stays.
        if service.sticky() == 0 {
            service.set_fault(result, why);
        }
        service.notify();
        Ok(())
    }
}

/// Whether the present keeper has a session's descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeping {
    No,
    Asked,
    Kept,
    /// It has no room for them.
    Refused,
}

/// Which executor has a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seat {
    /// None.
    No,
    /// The one that serves was told of it after it had become active: it answers.
    Asked,
    /// The one that serves.
    Taken,
    /// Another one was told of it: it answers.
    Promised {
        /// That executor.
        worker: u64,
    },
    /// Another one: its own, or one that has let go of all others.
    Apart {
        /// That executor.
        worker: u64,
    },
}

impl Seat {
    /// The executor that has it, or was told of it, where that is not the one that serves.
    pub(crate) fn elsewhere(self) -> Option<u64> {
        match self {
            Self::Promised { worker } | Self::Apart { worker } => Some(worker),
            Self::No | Self::Asked | Self::Taken => None,
        }
    }
}

/// How far a session is on its way from one executor to another.
///
/// ```text
///          asked to let go        has let go, or has ended
///   Still ────────────────▶ Asked ─────────────────────▶ Between
///     ▲                       │                             │
///     ├────── goes on there ──┘                             │
///     └───────────────────────── another has taken it ──────┘
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Moving {
    /// It is not on its way.
    Still,
    /// The executor that has it was asked to let go of it.
    Asked {
        /// That executor.
        worker: u64,
    },
    /// None has it; the one where it is to be is told of it.
    Between {
        /// How it has left the one before.
        way: Way,
        /// Why it goes elsewhere than it was to; empty while it does not.
        turned_back: String,
    },
}

impl Moving {
    /// On its way to where it is to be.
    pub(crate) fn between(way: Way) -> Self {
        Self::Between { way, turned_back: String::new() }
    }
}

/// The home of a session whose kernels are unbounded ([`cumux_wire::module::Unbounded`]).
pub(crate) const CONFINED: Home = Home::Own { by: Wisher::Kernels };

/// How a session has left an executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// With empty streams, as it was asked to.
    Moved,
    /// The executor has ended, or has lost its device.
    TakenOver,
}

/// An administrator who waits for a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mover {
    /// The daemon's question.
    pub(crate) request: u64,
    /// Whether the session is to have an executor of its own.
    pub(crate) own: bool,
    /// So long.
    pub(crate) until: Instant,
    /// Where the session goes if it cannot be moved.
    pub(crate) before: Home,
}

/// How far a session has come on its way to the end.
///
/// ```text
///   Served ── terminate ──▶ Terminated
///     │                        │
///     ├──────── fail ──────────┤──▶ Failed
///     └──────── leave ─────────┴──────┴──▶ Leaving
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    /// An executor serves it, or is to.
    Served,
    /// The administrator wants it ended; an executor still has to do that.
    Terminated,
    /// It got a sticky error because nobody could go on with it; no executor is given it any more.
    Failed {
        /// The administrator wanted it ended, too.
        terminated: bool,
    },
    /// The client has gone; executors are letting go of it.
    Leaving,
}

/// A client that is being served, waits for it, or is leaving.
#[derive(Debug)]
pub(crate) struct ClientSession {
    pub(crate) about: message::SessionConfig,
    /// None once it has failed: nothing of it is needed any more.
    pub(crate) files: Option<Files>,
    /// Handle of the client's process.
    pub(crate) process: Arc<OwnedFd>,
    /// The watcher's number of the client's process.
    pub(crate) token: u64,
    /// The client's socket until it was welcomed.
    pub(crate) greeting: Option<Connection>,
    pub(crate) keeping: Keeping,
    pub(crate) seat: Seat,
    pub(crate) moving: Moving,
    /// It is not asked for before, because it could not leave.
    pub(crate) move_after: Option<Instant>,
    /// When it comes back from an executor apart.
    pub(crate) come_back: ComeBack,
    /// Why it could not leave when it was last asked for.
    pub(crate) stays_because: String,
    /// Who waits for its move.
    pub(crate) movers: Vec<Mover>,
    /// If nobody knows why the executor that had it apart ended: how long that had served.
    pub(crate) unexplained_after: Option<Duration>,
    /// Executors of its own that ended before they served, one after the other.
    pub(crate) own_failures: u32,
    /// Since when an unbounded kernel of it is held back.
    pub(crate) confined_since: Option<Instant>,
    /// How often the executor could not take it because it had no keeper.
    pub(crate) seat_attempts: u32,
    life: Life,
    /// What was last heard of it.
    pub(crate) status: ClientStatus,
}

impl ClientSession {
    pub(crate) fn new(about: message::SessionConfig, files: Files, token: u64) -> Self {
        let first = about.parts.first();
        let status = ClientStatus {
            session: about.id,
            pid: about.pid,
            program: about.program.clone(),
            state: "running".to_owned(),
            multiprocessors: first.map_or(0, |part| part.multiprocessors),
            memory_limit: first.map_or(0, |part| part.memory_limit),
            priority: about.priority,
            group: about.group.as_ref().map(|membership| membership.group.clone()).unwrap_or_default(),
            devices: about.parts.iter().map(|part| part.device).collect(),
            ..ClientStatus::default()
        };
        let process = Arc::clone(&files.client);
        Self {
            about,
            files: Some(files),
            process,
            token,
            greeting: None,
            keeping: Keeping::No,
            seat: Seat::No,
            moving: Moving::Still,
            move_after: None,
            come_back: ComeBack::default(),
            stays_because: String::new(),
            movers: Vec::new(),
            unexplained_after: None,
            own_failures: 0,
            confined_since: None,
            seat_attempts: 0,
            life: Life::Served,
            status,
        }
    }

    /// No executor has it any more. It waits for nothing but the one where it is to be: how long it
    /// was to stay where it was counts no more.
    pub(crate) fn leave_seat(&mut self) {
        self.seat = Seat::No;
        self.move_after = None;
    }

    /// What gives it to an executor.
    pub(crate) fn attach(&self) -> ToExecutor {
        ToExecutor::Attach {
            session: self.about.clone(),
            unexplained_after_ms: self.unexplained_after.map(|lived| u64::try_from(lived.as_millis()).unwrap_or(u64::MAX)),
        }
    }

    /// Whether it is to have an executor of its own.
    pub(crate) fn wants_own(&self) -> bool {
        matches!(self.about.home, Home::Own { .. })
    }

    /// Whether its client has gone.
    pub(crate) fn is_leaving(&self) -> bool {
        self.life == Life::Leaving
    }

    /// Whether nobody could go on with it.
    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.life, Life::Failed { .. })
    }

    /// Whether executors are told of it: it is neither leaving nor has it failed.
    pub(crate) fn is_served(&self) -> bool {
        matches!(self.life, Life::Served | Life::Terminated)
    }

    /// Whether an executor still has to end it for the administrator.
    pub(crate) fn awaits_termination(&self) -> bool {
        self.life == Life::Terminated
    }

    /// The administrator wants it ended.
    pub(crate) fn terminate(&mut self) {
        self.life = match self.life {
            Life::Served | Life::Terminated => Life::Terminated,
            Life::Failed { .. } => Life::Failed { terminated: true },
            Life::Leaving => return,
        };
        self.status.state = "terminated".to_owned();
        if !self.has_failed() {
            self.status.error = result::MPS_CLIENT_TERMINATED;
        }
    }

    /// Nobody can go on with it. Returns what its client is told: `code`, or that it was
    /// terminated. None where it has failed or left before.
    pub(crate) fn fail(&mut self, code: u32) -> Option<u32> {
        let terminated = match self.life {
            Life::Served => false,
            Life::Terminated => true,
            Life::Failed { .. } | Life::Leaving => return None,
        };
        self.life = Life::Failed { terminated };
        Some(if terminated { result::MPS_CLIENT_TERMINATED } else { code })
    }

    /// Its client has gone, and how. False where that was known.
    pub(crate) fn leave(&mut self, fate: Fate) -> bool {
        let terminated = match self.life {
            Life::Leaving => return false,
            Life::Served => false,
            Life::Terminated => true,
            Life::Failed { terminated } => terminated,
        };
        self.life = Life::Leaving;
        self.greeting = None;
        let word = match fate {
            _ if terminated => "terminated",
            Fate::Exited => "exited",
            Fate::Killed => "killed",
        };
        self.status.state = word.to_owned();
        true
    }

    /// Takes what an executor says of the client; who it is and how it fares is known here.
    pub(crate) fn update(&mut self, told: ClientStatus) {
        let old = std::mem::take(&mut self.status);
        let error = if told.error == 0 { old.error } else { told.error };
        let fault = if told.fault.is_empty() { old.fault } else { shortened(&told.fault) };
        // The executor counts from the journal, which has what earlier servers have seen.
        let (takeovers, moves) = (told.takeovers.max(old.takeovers), told.moves.max(old.moves));
        self.status = ClientStatus {
            session: old.session,
            pid: old.pid,
            program: old.program,
            state: old.state,
            multiprocessors: old.multiprocessors,
            memory_limit: old.memory_limit,
            priority: old.priority,
            devices: old.devices,
            group: old.group,
            error,
            fault,
            takeovers,
            moves,
            ..told
        };
    }

    /// Whether somebody waits until it has moved: an administrator, or its own kernel.
    pub(crate) fn is_waited_for(&self) -> bool {
        !self.movers.is_empty() || self.about.home == CONFINED
    }

    /// An executor has it that did not have it before: one to which it has moved, or one that has
    /// taken over. Its first one is neither.
    pub(crate) fn count_arrival(&mut self) {
        match self.moving {
            _ if self.greeting.is_some() => {}
            Moving::Between { way: Way::Moved, .. } => self.status.moves += 1,
            Moving::Between { way: Way::TakenOver, .. } | Moving::Still | Moving::Asked { .. } => self.status.takeovers += 1,
        }
    }

    /// The name of its group.
    pub(crate) fn group(&self) -> Option<&str> {
        self.about.group.as_ref().map(|membership| membership.group.as_str())
    }

    /// Whether its share is that of its group.
    pub(crate) fn has_group_share(&self) -> bool {
        self.about.group.as_ref().is_some_and(|membership| membership.one_part)
    }

    /// As the log names a client: a process has one session, which stands for the context that
    /// NVIDIA numbers 1.
    pub(crate) fn name(&self) -> String {
        format!("{{PID: {}, Context ID: 1}}", self.about.pid)
    }
}

/// Words of others, short enough that a status of all clients fits into a packet.
pub(crate) fn shortened(text: &str) -> String {
    escape_foreign(text, 120)
}

/// What a session gets of its devices: the share of each as multiprocessors. Devices that the
/// server does not have are left out.
pub(crate) fn parts(devices: &[DeviceFacts], grant: &Grant) -> Vec<DeviceGrant> {
    let part = |(own, (device, memory_limit)): (usize, &(u32, u64))| {
        let facts = devices.get(*device as usize)?;
        let multiprocessors = match grant.sms.get(own) {
            Some(sms) => u32::try_from(sms.len()).unwrap_or(u32::MAX),
            None => grant.share.multiprocessors(Grain::of(facts)),
        };
        Some(DeviceGrant { device: *device, multiprocessors, memory_limit: *memory_limit })
    };
    grant.devices.iter().enumerate().filter_map(part).collect()
}

/// The same parts with another share.
pub(crate) fn shared_anew(devices: &[DeviceFacts], parts: &[DeviceGrant], share: Share) -> Vec<DeviceGrant> {
    let part = |part: &DeviceGrant| {
        let multiprocessors = devices.get(part.device as usize).map_or(part.multiprocessors, |facts| share.multiprocessors(Grain::of(facts)));
        DeviceGrant { multiprocessors, ..*part }
    };
    parts.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_device_gives_its_own_count() {
        let card = |multiprocessors| DeviceFacts {
            id: String::new(),
            name: String::new(),
            uuid: [0; 16],
            pci: [0; 3],
            memory: 0,
            attributes: [
                (cumux_wire::cuda::DeviceAttribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, multiprocessors),
                (cumux_wire::cuda::DeviceAttribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9),
            ]
            .into(),
            capabilities: cumux_wire::facts::Capabilities::default(),
        };
        let cards = [card(132), card(78)];
        let share = Share::parse("12.5").unwrap();
        let grant = Grant { share, priority: 0, devices: vec![(1, 7), (0, 0), (5, 0)], sms: Vec::new(), home: Home::Shared, group: None };
        let got = parts(&cards, &grant);
        let expected = [DeviceGrant { device: 1, multiprocessors: 8, memory_limit: 7 }, DeviceGrant { device: 0, multiprocessors: 16, memory_limit: 0 }];
        assert_eq!(got, expected);
        assert_eq!(shared_anew(&cards, &got, Share::ALL).iter().map(|p| p.multiprocessors).collect::<Vec<_>>(), [78, 132]);
    }

    fn session() -> ClientSession {
        let about = message::SessionConfig {
            id: 3,
            pid: 44,
            uid: 0,
            program: "p".into(),
            window_slot: 0,
            priority: 0,
            parts: Vec::new(),
            sms: Vec::new(),
            home: Home::Shared,
            may_run_unbounded: false,
            group: None,
        };
        let client = eventfd(0, EventfdFlags::empty()).unwrap();
        ClientSession::new(about, Files::create(client).unwrap(), 1)
    }

    /// On an H200 a client waited for sixteen seconds: it was to stay so long with an executor that
    /// had ended by then, and could not be taken by the one that served.
    #[test]
    fn who_is_with_no_executor_waits_for_no_time_to_pass() {
        let mut session = session();
        session.seat = Seat::Apart { worker: 3 };
        session.move_after = Some(session.come_back.after_leaving(Instant::now()));
        session.leave_seat();
        assert_eq!((session.seat, session.move_after), (Seat::No, None));
    }

    #[test]
    fn a_status_keeps_who_it_is_and_its_first_fault() {
        let mut session = session();
        session.status.error = result::ILLEGAL_ADDRESS;
        session.status.fault = "illegal address".into();
        session.update(ClientStatus { session: 99, pid: 98, kernels: 5, state: "odd".into(), ..ClientStatus::default() });
        assert_eq!((session.status.session, session.status.pid, session.status.kernels), (3, 44, 5));
        assert_eq!(
            (session.status.error, session.status.fault.as_str(), session.status.state.as_str()),
            (result::ILLEGAL_ADDRESS, "illegal address", "running")
        );
        assert_eq!((session.fail(result::UNKNOWN), session.fail(result::UNKNOWN)), (Some(result::UNKNOWN), None), "once");
        session.terminate();
        assert!(session.has_failed() && !session.awaits_termination() && session.status.error == result::ILLEGAL_ADDRESS, "nobody has to end it any more");
        assert!(session.leave(Fate::Killed) && !session.leave(Fate::Exited) && session.status.state == "terminated");
        let files = session.files.unwrap();
        files.fail(result::MPS_RPC_FAILURE, "first").unwrap();
        files.fail(result::UNKNOWN, "second").unwrap();
        assert_eq!(Service::map(&files.ring, &files.page).unwrap().sticky(), 806);
    }
}
