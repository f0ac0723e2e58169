//! One client: its files, its objects, its streams, and what is written down of it. Everything
//! about it happens under one lock.
//!
//! Here is what a session consists of. What it does lies above, each in a module of its own: the
//! intake thread comes with records ([`turn`](crate::turn)), the device's threads come with reports
//! ([`reports`](crate::reports)), other threads with what is slow
//! ([`background`](crate::background)), and the server with its wishes ([`orders`](crate::orders)).
//! Intake and reports both end in [`drive`](crate::drive), which starts whatever can start. Neither
//! waits for the other: intake comes again later, reports stay in a mailbox, and whoever had the
//! lock delivers them afterwards: [`Session::deliver_reports`], an explicit call in
//! [`Session::lock_then_deliver`] and at the end of the two ways in.
//!
//! Order of locks, here and in what is called from here. A lock is taken only while locks that
//! stand before it are held, never one that stands after it:
//!
//! 1. the trials of the executor ([`Shared::trials`])
//! 2. the changing part of one session; nobody holds those of two
//! 3. the list of sessions; the turn of calls about images, then the images or the keeper
//! 4. accounts, arena, extents, loans, spare bytes, parts, fair queue, mailboxes, and the messages
//!    for the server: nothing is locked while one of these is held
//!
//! Reports are delivered with no lock held. A device calls its sink with none of the locks that a
//! call to the device needs.
//!
//! Order of writes, so that a successor can go on after a death at any point: effect → journal →
//! `taken` → answer for control records; journal → `taken` → device for stream work; device →
//! `journal.completed` → `page.completed` for completions.

mod commit;
mod condition;
mod confinement;
mod meter;
mod phase;
mod used_kernels;

pub use self::phase::Phase;

use self::condition::Condition;
use self::confinement::Confinement;
use self::meter::Meter;
use self::used_kernels::UsedKernels;
use crate::error::ExecutorError;
use crate::extents::ExtentNote;
use crate::files::Files;
use crate::heap::Heap;
use crate::objects::Objects;
use crate::shared::{GroupLine, Shared, Shortage};
use crate::stream::Stream;
use crate::suspicion::{self, Lead};
use cumux_device::{Channel, Outcome, Resume, StreamId, Work};
pub(crate) use cumux_link::recorder::now_ns;
use cumux_ring::awake::Awake;
use cumux_ring::journal::Journal;
use cumux_ring::queue::Consumer;
use cumux_ring::service::Service;
use cumux_wire::layout::DeviceIndex;
use cumux_wire::message::{ClientStatus, DeviceGrant, Home, SessionConfig};
use cumux_wire::record::{CopyEnd, Header, Op};
use cumux_wire::result;
use parking_lot::{Mutex, MutexGuard, RwLock};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Once, OnceLock};
use std::time::Duration;

/// All sessions of an executor by number.
pub type Sessions = Arc<RwLock<BTreeMap<u32, Arc<Session>>>>;

/// What a device has reported: stream, token, outcome.
pub type Reported = (StreamId, u64, Outcome);

/// An operation that waits until everything its client pushed before is over.
#[derive(Debug)]
pub struct Barrier {
    /// Stream and sequence that must be done.
    pub waits: Vec<(u32, u64)>,
    pub header: Header,
    pub op: Op,
    pub token: u64,
}

pub struct Session {
    pub config: SessionConfig,
    /// Its parts as they are now: a share changes while the client runs.
    parts: Mutex<Vec<DeviceGrant>>,
    pub shared: Arc<Shared>,
    pub service: Service,
    /// For a server that was made again, and has to learn of this session from here.
    pub files: Files,
    inner: Mutex<Inner>,
    /// Reports of the device that came while somebody held the lock.
    mailbox: Mutex<Vec<Reported>>,
    /// Whether there are any, so that looking takes no lock.
    has_mail: Awake,
    /// What was made for its next extent, before its lock is taken. A lock that is held alone.
    pub(crate) prepared: Mutex<Option<PreparedExtent>>,
    /// Set once everything that a predecessor left is made anew.
    opened: OnceLock<()>,
    told_of_shortage: Once,
    pub(crate) told_of_textures: Once,
}

/// The changing part, under the session's lock.
pub struct Inner {
    pub journal: Journal,
    /// What a successor may believe of the journal.
    pub condition: Condition,
    pub consumer: Consumer,
    pub objects: Objects,
    pub memory: Memory,
    pub queues: Queues,
    pub phase: Phase,
    /// How many times the device is filling variables of it. It stays as long as there are any.
    pub fillings: u32,
    /// Whether its unbounded kernels may begin here.
    pub confinement: Confinement,
    pub used_kernels: UsedKernels,
    /// What must be over before its trial is.
    pub trial: Vec<Lead>,
    /// Text of the client's kernels for which its ring has had no room, by channel.
    pub text: [VecDeque<u8>; Channel::ALL.len()],
    pub status: ClientStatus,
    pub meter: Meter,
    /// Lists that are filled and emptied again and again.
    pub lists: Lists,
}

/// An extent that is made, and that nobody has yet.
pub(crate) struct PreparedExtent {
    pub(crate) device_index: DeviceIndex,
    pub(crate) bytes: u64,
    pub(crate) file: OwnedFd,
}

/// The device memory of a session.
#[derive(Debug, Default)]
pub struct Memory {
    pub heap: Heap,
    /// Descriptors of the extents in the heap, with what is written beside them, for a keeper that
    /// was replaced.
    pub extents: HashMap<u64, (Arc<OwnedFd>, ExtentNote)>,
    /// Extents with nothing in them, kept because programs that free often allocate again: address
    /// and bytes.
    pub spare: Vec<(u64, u64)>,
    /// Descriptors of what the client maps itself, by its handle.
    pub physical: HashMap<u32, Arc<OwnedFd>>,
    /// Extents of others in which the client has something open, and how much.
    pub borrowed: HashMap<u64, (Arc<OwnedFd>, ExtentNote, usize)>,
    /// Bytes used at the end of the window for managed variables.
    pub managed: u64,
    /// Reservations that the client has given back, and in which the device still has something.
    pub leaving: Vec<(u64, u64)>,
}

/// The work of a session: its streams, and why those wait that do.
#[derive(Debug, Default)]
pub struct Queues {
    pub streams: FxHashMap<u32, Stream>,
    pub by_device: FxHashMap<StreamId, u32>,
    /// Streams that wait for another: by the awaited one.
    pub watchers: FxHashMap<u32, Vec<u32>>,
    /// Streams whose next piece frees memory: for the intake thread, since a device's report must
    /// not wait for the device.
    pub chores: BTreeSet<u32>,
    /// Streams that the bound on work in flight holds back.
    pub held: BTreeSet<u32>,
    /// Streams at a host callback or a value wait.
    pub parked: BTreeSet<u32>,
    /// Operations that wait until everything their client pushed before is over, oldest first.
    pub barriers: VecDeque<Barrier>,
    /// Expected device time of a kernel by module and function.
    pub estimates: FxHashMap<(u32, u32), u64>,
    /// What a predecessor had done of a kernel.
    pub resumes: FxHashMap<u64, Resume>,
}

#[derive(Default)]
pub struct Lists {
    pub record: Vec<u8>,
    pub touched: Vec<u32>,
    pub reports: Vec<Reported>,
    pub work: Vec<u32>,
    pub tokens: Vec<u64>,
    pub batch: Vec<(u64, Work)>,
}

/// What a session is made of when it is opened.
pub struct SessionParts {
    pub service: Service,
    pub journal: Journal,
    pub files: Files,
    pub taken: u64,
    pub phase: Phase,
}

impl Inner {
    /// A session whose journal was full is read again; the stretch of waiting is over. Whether it
    /// was.
    pub fn go_on(&mut self) -> bool {
        let Some(stalled) = self.phase.as_stalled() else { return false };
        stalled.go_on();
        self.meter.stall.end(now_ns);
        true
    }

    /// Whether the time of some barrier has come.
    pub fn barrier_ready(&self) -> bool {
        self.queues.barriers.iter().any(|b| self.is_passed(b))
    }

    /// Whether a copy names an array that an operation before it destroys. The destruction waits
    /// for the copies before it alone.
    #[must_use]
    pub fn names_ending_array(&self, op: &Op) -> bool {
        let Op::ArrayCopy { target, source, .. } = op else { return false };
        let is_named = |array: u32| [target, source].iter().any(|end| matches!(end, CopyEnd::Array { array: named, .. } if *named == array));
        self.queues.barriers.iter().any(|barrier| match barrier.op {
            Op::ArrayDestroy { array } => is_named(array),
            Op::Reset => true,
            _ => false,
        })
    }

    pub fn is_passed(&self, barrier: &Barrier) -> bool {
        barrier.waits.iter().all(|(index, seq)| self.queues.streams.get(index).is_none_or(|s| s.done() >= *seq))
    }
}

impl Session {
    #[must_use]
    pub fn new(config: SessionConfig, shared: Arc<Shared>, parts: SessionParts) -> Self {
        let accounts = parts.files.group.as_ref().map(|(accounts, _)| GroupLine { accounts: Arc::clone(accounts), slot: config.window_slot });
        shared.open_account(config.id, accounts);
        shared.departures.note_arrival(config.id, config.pid);
        shared.fair_queues.add(config.id, config.priority, config.parts.first().map_or(cumux_scheduler::WHOLE, |part| shared.percent(part)));
        let status = ClientStatus { session: config.id, pid: config.pid, program: config.program.clone(), state: "running".into(), ..ClientStatus::default() };
        let device = shared.cards.capabilities();
        let can_leave = device.exclusive.is_none() && config.home == Home::Shared && !config.may_run_unbounded;
        let guarded = can_leave && !device.contains_faults;
        Self {
            service: parts.service,
            files: parts.files,
            parts: Mutex::new(config.parts.clone()),
            inner: Mutex::new(Inner {
                journal: parts.journal,
                consumer: Service::consumer(parts.taken),
                condition: Condition::default(),
                objects: Objects::default(),
                memory: Memory::default(),
                queues: Queues::default(),
                phase: parts.phase,
                fillings: 0,
                confinement: Confinement::new(guarded),
                used_kernels: UsedKernels::default(),
                trial: Vec::new(),
                text: Default::default(),
                status,
                meter: Meter::default(),
                lists: Lists::default(),
            }),
            mailbox: Mutex::default(),
            has_mail: Awake::default(),
            prepared: Mutex::default(),
            opened: OnceLock::new(),
            told_of_shortage: Once::new(),
            told_of_textures: Once::new(),
            config,
            shared,
        }
    }

    /// Everything that a predecessor left is made anew.
    pub(crate) fn note_opened(&self) {
        let _ = self.opened.set(());
    }

    /// Whether it is open. If not, the thread that opens it holds its lock, maybe for long.
    pub(crate) fn is_opened(&self) -> bool {
        self.opened.get().is_some()
    }

    pub fn doorbell(&self) -> BorrowedFd<'_> {
        self.files.doorbell()
    }

    /// The changing part. Whoever lets go of it calls [`Session::deliver_reports`] then, as
    /// [`Session::lock_then_deliver`] does.
    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// As [`Session::lock`]; none where somebody else has it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, Inner>> {
        self.inner.try_lock()
    }

    /// As [`Session::lock`]; none where somebody else has it for longer than this.
    pub fn try_lock_for(&self, patience: Duration) -> Option<MutexGuard<'_, Inner>> {
        self.inner.try_lock_for(patience)
    }

    /// The lock for the intake thread; none where it should come again, since somebody else has it.
    pub fn lock_for_intake(&self) -> Option<MutexGuard<'_, Inner>> {
        // A device that computes on the processors needs those that looking again and again would
        // take from it.
        if self.shared.cards.capabilities().needs_cores { Some(self.lock()) } else { self.try_lock() }
    }

    /// Leaves reports of the device to whoever has the changing part.
    pub(crate) fn leave_mail(&self, reports: impl IntoIterator<Item = Reported>) {
        let mut mailbox = self.mailbox.lock();
        mailbox.extend(reports);
        self.has_mail.set(true);
    }

    /// Whether reports were left, as far as it can be seen by now.
    pub(crate) fn sees_mail(&self) -> bool {
        self.has_mail.last_seen()
    }

    /// Whether reports were left before this call.
    pub(crate) fn has_mail(&self) -> bool {
        self.has_mail.will_see()
    }

    /// Takes the reports that were left into an empty list.
    pub(crate) fn take_mail(&self, into: &mut Vec<Reported>) {
        if !self.has_mail() {
            return;
        }
        let mut mailbox = self.mailbox.lock();
        std::mem::swap(into, &mut mailbox);
        self.has_mail.set(false);
    }

    #[must_use]
    pub fn client(&self) -> u32 {
        self.config.id
    }

    /// The index of one of the client's devices in the executor's list.
    #[must_use]
    pub fn device_index(&self, device: u32) -> Option<DeviceIndex> {
        self.config.parts.get(device as usize).map(|part| part.device)
    }

    /// Bytes of a device's memory the client may have; 0 = no limit.
    #[must_use]
    pub fn limit(&self, device: u32) -> u64 {
        self.config.parts.get(device as usize).map_or(0, |part| part.memory_limit)
    }

    /// Charges bytes of one of the client's devices.
    ///
    /// # Errors
    /// A result code.
    pub fn charge(&self, device: u32, bytes: u64) -> Result<(), u32> {
        let device_index = self.device_index(device).ok_or(result::INVALID_VALUE)?;
        self.shared.charge(self.config.id, device_index, bytes, self.limit(device)).map_err(|shortage| {
            self.tell_of_shortage(bytes, shortage);
            result::OUT_OF_MEMORY
        })
    }

    /// Whether so much more would be allowed now.
    pub(crate) fn would_be_charged(&self, device: u32, bytes: u64) -> bool {
        let Some(device_index) = self.device_index(device) else { return false };
        let is_allowed = self.shared.charge(self.config.id, device_index, bytes, self.limit(device)).is_ok();
        if is_allowed {
            self.shared.refund(self.config.id, device_index, bytes);
        }
        is_allowed
    }

    /// A card of which there is less than it says surprises whoever runs the program. It is said
    /// once for each client: a program may try smaller and smaller pieces.
    fn tell_of_shortage(&self, bytes: u64, shortage: Shortage) {
        if let Shortage::Machine { card, capacity, taken } = shortage {
            self.told_of_shortage.call_once(|| {
                let [bytes, card, capacity, taken] = [bytes, card, capacity, taken].map(|bytes| bytes.div_ceil(1 << 20));
                tracing::warn!(
                    "client process {} wants {bytes} MiB of device memory and is refused: this machine and its control groups have {capacity} MiB for software GPUs, \
                     of which {taken} are taken (the card has {card}). Give the daemon a machine or a control group with more memory, or set CUMUX_SIM_MEMORY_BYTES for it",
                    self.config.pid
                );
            });
        }
    }

    /// Charges what a predecessor has charged, whatever the limit.
    pub fn charge_again(&self, device_index: DeviceIndex, bytes: u64) {
        self.shared.charge_again(self.config.id, device_index, bytes);
    }

    pub fn refund(&self, device: u32, bytes: u64) {
        if let Some(device_index) = self.device_index(device) {
            self.shared.refund(self.config.id, device_index, bytes);
        }
    }

    /// Work that begins from now on runs on these parts.
    ///
    /// # Errors
    /// When the device cannot change a share.
    pub fn set_parts(&self, parts: &[DeviceGrant]) -> Result<(), ExecutorError> {
        for (ordinal, part) in (0..).zip(parts) {
            self.shared.cards.set_share(self.client(), part.device, part.multiprocessors)?;
            if ordinal == 0 {
                self.shared.fair_queues.of(self.client()).set_share(self.client(), self.shared.percent(part));
            }
            self.service.set_share(ordinal, part.multiprocessors);
        }
        *self.parts.lock() = parts.to_vec();
        Ok(())
    }

    /// The configuration with its present parts.
    #[must_use]
    pub fn present_config(&self) -> SessionConfig {
        SessionConfig { parts: self.parts.lock().clone(), ..self.config.clone() }
    }

    /// A lead of a trial is over.
    pub(crate) fn lead_is_over(&self, inner: &mut Inner, lead: Lead) {
        inner.trial.retain(|other| *other != lead);
        if inner.trial.is_empty() {
            suspicion::acquit(&inner.journal);
        }
    }
}
