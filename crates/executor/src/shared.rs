//! What all sessions of an executor share: the device, the arena, the keeper, the store of images,
//! and the way to report.

use crate::arena::Arena;
use crate::cards::Cards;
use crate::departures::Departures;
use crate::error::ExecutorError;
use crate::extents::Extents;
use crate::fair_queues::FairQueues;
use crate::images::KeptImages;
use crate::loans::{Consequences, Loans};
use crate::mailbox::{Mailboxes, Outbox};
use crate::suspicion::Trials;
use crate::workers::Workers;
use cumux_device::DeviceError;
use cumux_keeper::client::{ClientError, Keeper};
use cumux_link::recorder::Recorder;
use cumux_ring::group::{GroupAccounts, GroupUse};
use cumux_ring::page::Answer;
use cumux_wire::layout::DeviceIndex;
use cumux_wire::message::{DeviceGrant, FromExecutor};
use cumux_wire::recording::Fact;
use cumux_wire::result;
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long what cannot be done without a keeper waits for the next one.
const KEEPER_RETURN_TIMEOUT: Duration = Duration::from_secs(10);

/// How long standbys may keep memory that a client has freed, and how often it is tried again.
const RELEASE_DELAY: Duration = Duration::from_secs(1);
const RELEASE_POLL: Duration = Duration::from_millis(20);

/// Empty extents may take this part of the card.
const SPARE_PART: u64 = 128;

/// What one session has.
#[derive(Debug, Default)]
struct Account {
    /// Bytes by the index of a device.
    bytes: BTreeMap<u32, u64>,
    /// Its line in the accounts of its group.
    group: Option<GroupLine>,
}

/// A client's line in the accounts of its group.
#[derive(Debug)]
pub struct GroupLine {
    pub accounts: Arc<GroupAccounts>,
    /// The slot of the client's window.
    pub slot: u32,
}

impl GroupLine {
    /// Writes what the client has. If that fails, the line stays as it was until the next charge,
    /// and the group has so much less memory.
    fn set(&self, device_index: DeviceIndex, total: u64) {
        if let Err(error) = self.accounts.set(device_index, self.slot, total) {
            tracing::warn!("{error}");
        }
    }
}

/// Why memory was not charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shortage {
    /// The session has ended.
    Gone,
    /// The client's own limit.
    Limit,
    /// All clients of its group together have what the group may have.
    Group,
    /// All clients together have what the card has.
    Card,
    /// All clients together have what there is for the card: a software GPU's memory is the
    /// machine's.
    Machine { card: u64, capacity: u64, taken: u64 },
}

pub struct Shared {
    pub cards: Cards,
    pub arena: Mutex<Arena>,
    /// With the number that the server gave it; none while it is lost.
    keeper: Mutex<Option<(u64, Arc<Keeper>)>>,
    keeper_came: Condvar,
    /// Who has which mapped extent.
    pub extents: Mutex<Extents>,
    /// What clients have lent each other.
    pub loans: Mutex<Loans>,
    /// What modules were made of; the keeper has it, too.
    pub images: KeptImages,
    /// Bytes charged to each open session, by the index of the device.
    charges: Mutex<HashMap<u32, Account>>,
    /// Bytes of extents that sessions keep with nothing in them.
    spares: Mutex<u64>,
    /// When memory went back to the card last.
    released: Mutex<Option<Instant>>,
    /// Who is here, and whose memory is on its way back.
    pub departures: Departures,
    /// Ranges of the arena that are taken for sessions which are in another executor.
    left: Mutex<BTreeMap<u32, Vec<(u64, u64)>>>,
    /// Who goes next. Taken last: nothing is locked while it is held.
    pub fair_queues: FairQueues,
    /// Clients that are tried for the deaths of earlier executors.
    pub trials: Mutex<Trials>,
    /// Held by who has the keeper keep the recipes of sessions.
    pub recipes: Mutex<()>,
    /// For what is slow.
    pub workers: Workers,
    /// Hears how long work took, where `cumux record` asks for that.
    pub recorder: Option<Recorder>,
    outbox: Arc<Outbox>,
    pub mailboxes: Arc<Mailboxes>,
    /// Wake the lanes of the intake.
    bells: Vec<OwnedFd>,
}

impl Shared {
    /// # Errors
    /// [`ExecutorError::System`] when no eventfd can be made.
    pub fn new(cards: Cards, mailboxes: Arc<Mailboxes>, outbox: Arc<Outbox>) -> Result<Self, ExecutorError> {
        use rustix::event::{EventfdFlags, eventfd};
        let lanes = mailboxes.lanes();
        Ok(Self {
            cards,
            arena: Mutex::default(),
            extents: Mutex::default(),
            loans: Mutex::default(),
            keeper: Mutex::new(None),
            keeper_came: Condvar::new(),
            trials: Mutex::default(),
            images: KeptImages::default(),
            charges: Mutex::default(),
            spares: Mutex::default(),
            released: Mutex::new(None),
            departures: Departures::default(),
            left: Mutex::default(),
            fair_queues: FairQueues::new(mailboxes.clone()),
            recipes: Mutex::default(),
            workers: Workers::default(),
            recorder: Recorder::of_environment(|| Fact::Executor),
            outbox,
            mailboxes,
            bells: (0..lanes).map(|_| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)).collect::<Result<_, _>>()?,
        })
    }

    /// An extent went back to the card just now.
    pub fn note_released(&self) {
        if self.cards.maps_ahead() {
            *self.released.lock() = Some(Instant::now());
        }
    }

    /// An extent of the card's memory. Where there is none, and some went back a moment ago, it
    /// waits until standbys have let go of that, too: they map what clients have.
    ///
    /// # Errors
    /// As [`cumux_device::Memory::create_extent`].
    pub fn create_extent(&self, device_index: DeviceIndex, bytes: u64) -> Result<OwnedFd, DeviceError> {
        let until = self.released.lock().map(|released| released + RELEASE_DELAY);
        loop {
            match self.cards.create_extent(device_index, bytes) {
                Err(DeviceError::OutOfMemory(_)) if until.is_some_and(|until| Instant::now() < until) => std::thread::sleep(RELEASE_POLL),
                other => return other,
            }
        }
    }

    pub fn bells(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.bells.iter().map(AsFd::as_fd)
    }

    /// Wakes the lane that looks after this client.
    pub fn wake_intake(&self, client: u32) {
        self.wake_lane(self.mailboxes.lane_of(client));
    }

    /// Wakes a lane.
    pub fn wake_lane(&self, lane: usize) {
        let _ = rustix::io::write(&self.bells[lane], &1_u64.to_ne_bytes());
    }

    pub fn report(&self, message: FromExecutor) {
        self.outbox.put(message);
    }

    pub fn report_with(&self, message: FromExecutor, descriptors: Vec<Arc<OwnedFd>>) {
        self.outbox.put_with(message, descriptors);
    }

    pub fn set_keeper(&self, number: u64, keeper: Keeper) {
        *self.keeper.lock() = Some((number, Arc::new(keeper)));
        self.keeper_came.notify_all();
    }

    /// Asks the keeper. One that does not answer is none any more, and the server is asked for
    /// another.
    ///
    /// # Errors
    /// When there is no keeper, or it refuses.
    pub fn ask_keeper<T>(&self, question: impl FnOnce(&Keeper) -> Result<T, ClientError>) -> Result<T, ExecutorError> {
        let Some((number, keeper)) = self.keeper.lock().clone() else { return Err(ExecutorError::Keeper("there is none at the moment".into())) };
        let answer = question(&keeper);
        if let Err(ClientError::Link(_) | ClientError::Confused) = &answer {
            let mut present = self.keeper.lock();
            if present.as_ref().is_some_and(|(other, _)| *other == number) {
                *present = None;
                self.report(FromExecutor::KeeperLost { number });
            }
        }
        answer.map_err(|error| ExecutorError::Keeper(error.to_string()))
    }

    /// Whether what is made or let go of now would be kept by nobody.
    pub fn lacks_keeper(&self) -> bool {
        self.keeper.lock().is_none()
    }

    /// Tries again what failed for want of a keeper, once there is another. `attempt` must hold no
    /// lock while it does not run.
    pub fn with_patience<T, E>(&self, mut attempt: impl FnMut() -> Result<T, E>) -> Result<T, E> {
        let until = Instant::now() + KEEPER_RETURN_TIMEOUT;
        loop {
            let before = self.keeper.lock().as_ref().map(|(number, _)| *number);
            let outcome = attempt();
            if outcome.is_ok() {
                return outcome;
            }
            let mut keeper = self.keeper.lock();
            if before.is_some() && keeper.as_ref().map(|(number, _)| *number) == before {
                // It had a keeper all the time: that was not what failed.
                return outcome;
            }
            while keeper.is_none() {
                if self.keeper_came.wait_until(&mut keeper, until).timed_out() {
                    return outcome;
                }
            }
        }
    }

    pub fn keep(&self, session: u32, key: &str, note: &str, files: &[BorrowedFd<'_>]) -> Result<(), ExecutorError> {
        self.ask_keeper(|keeper| keeper.keep(session, key, note, files))
    }

    /// What a lost keeper had need not be dropped: the next one gets only what there is.
    pub fn drop_kept(&self, session: u32, key: &str) {
        if let Err(error) = self.ask_keeper(|keeper| keeper.drop_key(session, key))
            && !self.lacks_keeper()
        {
            tracing::warn!("the keeper did not drop {key} of session {session}: {error}");
        }
    }

    /// A part of a device in percent of it, as the scheduler counts.
    #[must_use]
    pub fn percent(&self, part: &DeviceGrant) -> u32 {
        let all = self.cards.facts(part.device).multiprocessors().max(1);
        let multiprocessors = part.multiprocessors;
        if multiprocessors == 0 { cumux_scheduler::WHOLE } else { (multiprocessors * cumux_scheduler::WHOLE / all).max(1) }
    }

    /// From now on a session can be charged.
    pub fn open_account(&self, session: u32, group: Option<GroupLine>) {
        self.charges.lock().entry(session).or_insert_with(|| Account { bytes: BTreeMap::new(), group });
    }

    /// Writes into the accounts of its group what a session has: as its predecessor has left it.
    pub fn write_group_line(&self, session: u32) {
        if let Some(Account { bytes, group: Some(line) }) = self.charges.lock().get(&session) {
            bytes.iter().for_each(|(device_index, total)| line.set(*device_index, *total));
        }
    }

    /// The session has nothing any more, and cannot be charged again.
    pub fn close_account(&self, session: u32) {
        self.charges.lock().remove(&session);
    }

    /// Charges `bytes` to a session if its limit (0 = none) and the card allow.
    ///
    /// # Errors
    /// Whose memory is short.
    pub fn charge(&self, session: u32, device_index: DeviceIndex, bytes: u64, limit: u64) -> Result<(), Shortage> {
        let (card, capacity) = (self.cards.facts(device_index).memory, self.cards.capacity(device_index));
        let mut charges = self.charges.lock();
        let taken = on(&charges, device_index);
        let Account { bytes: own, group } = charges.get_mut(&session).ok_or(Shortage::Gone)?;
        let own = own.entry(device_index).or_default();
        let within = |used: u64, cap: u64| used.checked_add(bytes).is_some_and(|sum| sum <= cap);
        if limit != 0 && !within(*own, limit) {
            return Err(Shortage::Limit);
        }
        if !within(taken, card) {
            return Err(Shortage::Card);
        }
        if !within(taken, capacity) {
            return Err(Shortage::Machine { card, capacity, taken });
        }
        if let Some(line) = group {
            line.accounts.charge(device_index, line.slot, own.saturating_add(bytes)).map_err(|error| {
                tracing::debug!(session, "{error}");
                Shortage::Group
            })?;
        }
        *own += bytes;
        Ok(())
    }

    /// Charges what a predecessor has charged, whatever there is.
    pub fn charge_again(&self, session: u32, device_index: DeviceIndex, bytes: u64) {
        if let Some(account) = self.charges.lock().get_mut(&session) {
            let own = account.bytes.entry(device_index).or_default();
            *own = own.saturating_add(bytes);
        }
    }

    pub fn refund(&self, session: u32, device_index: DeviceIndex, bytes: u64) {
        if let Some(Account { bytes: own, group }) = self.charges.lock().get_mut(&session)
            && let Some(own) = own.get_mut(&device_index)
        {
            *own = own.saturating_sub(bytes);
            if let Some(line) = group {
                line.set(device_index, *own);
            }
        }
    }

    /// A session lets go of a mapped extent, whose addresses it has revoked. Whether it was
    /// unmapped: another session may have something in it.
    ///
    /// # Errors
    /// As [`cumux_device::Memory::unmap`].
    pub fn leave_extent(&self, session: u32, address: u64, bytes: u64) -> Result<bool, DeviceError> {
        let is_idle = self.extents.lock().leave(address, session);
        if is_idle {
            self.cards.unmap(address, bytes)?;
        } else {
            self.cards.unshare_extent(session, address);
        }
        Ok(is_idle)
    }

    /// Charges what somebody has let go of to whoever keeps it, and tells owners what they have
    /// back.
    pub fn settle_loans(&self, consequences: Consequences) {
        for transfer in consequences.transfers {
            if let Some(from) = transfer.from {
                self.refund(from, transfer.device_index, transfer.bytes);
            }
            if let Some(to) = transfer.to {
                self.charge_again(to, transfer.device_index, transfer.bytes);
                self.write_group_line(to);
            }
        }
        for (address, give_back) in consequences.returned {
            give_back(address);
        }
    }

    /// These ranges stay taken for a session that is not here.
    pub fn keep_addresses(&self, session: u32, ranges: Vec<(u64, u64)>) {
        if !ranges.is_empty() {
            self.left.lock().entry(session).or_default().extend(ranges);
        }
    }

    /// What was taken for a session that is not here is free.
    pub fn free_addresses(&self, session: u32) {
        let ranges = self.left.lock().remove(&session).unwrap_or_default();
        let mut arena = self.arena.lock();
        for (address, bytes) in ranges {
            arena.release(address, bytes);
        }
    }

    /// Whether an empty extent of this size may be kept: all of them together take little of the
    /// card.
    pub fn spare(&self, bytes: u64) -> bool {
        let mut spares = self.spares.lock();
        let fits = *spares + bytes <= self.cards.capacity(0) / SPARE_PART;
        if fits {
            *spares += bytes;
        }
        fits
    }

    pub fn unspare(&self, bytes: u64) {
        let mut spares = self.spares.lock();
        *spares = spares.saturating_sub(bytes);
    }

    #[must_use]
    pub fn charged(&self, session: u32) -> u64 {
        self.charges.lock().get(&session).map_or(0, |account| account.bytes.values().sum())
    }

    /// Free bytes within a session's limit, the card's whole memory, and how much of that there
    /// really is: a limit shows only in what is free, as NVIDIA's MPS does it, and so does a
    /// machine that has less memory than the card. To the clients of a group the card has what the
    /// group may have.
    #[must_use]
    pub fn memory_info(&self, session: u32, device_index: DeviceIndex, limit: u64) -> [u64; 3] {
        let (card, capacity) = (self.cards.facts(device_index).memory, self.cards.capacity(device_index));
        let charges = self.charges.lock();
        let card_free = capacity.saturating_sub(on(&charges, device_index));
        let account = charges.get(&session);
        let own = account.and_then(|account| account.bytes.get(&device_index)).copied().unwrap_or(0);
        let free = if limit == 0 || limit >= card { card_free } else { limit.saturating_sub(own).min(card_free) };
        let group = account.and_then(|account| account.group.as_ref()).and_then(|line| line.accounts.usage(device_index).ok());
        match group {
            Some(GroupUse { limit, used }) if limit != 0 => [free.min(limit.saturating_sub(used)), card.min(limit), capacity],
            _ => [free, card, capacity],
        }
    }
}

/// What all sessions have on a device.
fn on(charges: &HashMap<u32, Account>, device_index: DeviceIndex) -> u64 {
    charges.values().filter_map(|account| account.bytes.get(&device_index)).sum()
}

/// An answer without words.
#[must_use]
pub fn answer(result: u32) -> Answer {
    Answer { result, words: [0; 6] }
}

/// An answer that begins with these words.
#[must_use]
pub fn answer_with(result: u32, first: u64, second: u64) -> Answer {
    Answer { result, words: [first, second, 0, 0, 0, 0] }
}

/// The code a client sees for a failure of its request. The one place where executor errors become
/// result codes.
#[must_use]
pub fn result_of(error: &ExecutorError) -> u32 {
    match error {
        ExecutorError::Device(device) => device.result(),
        ExecutorError::Journal(cumux_ring::journal::JournalError::ObjectsFull(_)) => result::OUT_OF_MEMORY,
        ExecutorError::System(errno) if *errno == rustix::io::Errno::MFILE || *errno == rustix::io::Errno::NOMEM => result::OUT_OF_MEMORY,
        _ => result::UNKNOWN,
    }
}

/// Whether trying with a smaller size may help.
#[must_use]
pub fn is_memory(error: &ExecutorError) -> bool {
    matches!(error, ExecutorError::Device(DeviceError::OutOfMemory(_)))
}
