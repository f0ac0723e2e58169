//! One client: its files, its objects, its streams. Everything about it happens under one lock.
//!
//! Two threads of the executor come here: the intake thread with records ([`Session::intake`]) and
//! the device's threads with reports ([`Session::retired`], in [`reports`]). Both end in
//! [`drive`](crate::drive), which starts whatever can start. Neither waits for the other: intake
//! comes again later, reports stay in a mailbox, and whoever had the lock delivers them afterwards:
//! [`Session::deliver_reports`], an explicit call in [`Session::lock_then_deliver`] and at the end
//! of the two ways in.
//!
//! Order of locks, here and in what is called from here. A lock is taken only while locks that
//! stand before it are held, never one that stands after it:
//!
//! 1. the trials of the executor ([`Shared::trials`])
//! 2. the changing part of one session; nobody holds those of two
//! 3. the list of sessions; the images, then the keeper
//! 4. accounts, arena, spare bytes, parts, fair queue, mailboxes, and the messages for the server:
//!    nothing is locked while one of these is held
//!
//! Reports are delivered with no lock held. A device calls its sink with none of the locks that a
//! call to the device needs.
//!
//! Order of writes, so that a successor can go on after a death at any point: effect → journal →
//! `taken` → answer for control records; journal → `taken` → device for stream work; device →
//! `journal.completed` → `page.completed` for completions.
//!
//! One file, although long: what may happen to a session, in the order of the locks above.

mod condition;
mod phase;
mod reports;

pub use self::phase::Phase;

use self::condition::Condition;
use crate::drive::Caller;
use crate::error::ExecutorError;
use crate::heap::Heap;
use crate::meter::Meter;
use crate::objects::{Change, Logged, Objects};
use crate::open::Files;
use crate::shared::{Shared, Shortage};
use crate::stream::Stream;
use crate::suspicion::{self, Lead};
use cumux_device::{Channel, ClientCounters, Fault, Outcome, Resume, StreamId, Work};
use cumux_ring::journal::Journal;
use cumux_ring::page::Answer;
use cumux_ring::queue::{Consumer, Next};
use cumux_ring::service::Service;
use cumux_wire::message::{ClientStatus, DeviceGrant, FromExecutor, SessionConfig};
use cumux_wire::record::{self, Header, NO_ANSWER, Op};
use cumux_wire::result;
use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Once};

/// Records taken from one client before the next one has its turn.
const TURN: usize = 64;

/// Characters of a fault's text. It has names out of the client's image, which may be as long as it
/// likes, and goes into packets with those of many clients.
const LONGEST_TEXT: usize = 1000;

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
    mailbox: Mutex<Vec<(StreamId, u64, Outcome)>>,
    told_of_shortage: Once,
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
    /// What must be over before its trial is.
    pub trial: Vec<Lead>,
    /// Text of the client's kernels for which its ring has had no room, by channel.
    pub text: [VecDeque<u8>; Channel::ALL.len()],
    pub status: ClientStatus,
    pub meter: Meter,
    /// Lists that are filled and emptied again and again.
    pub lists: Lists,
}

/// The device memory of a session.
#[derive(Debug, Default)]
pub struct Memory {
    pub heap: Heap,
    /// Descriptors of the extents in the heap, for a keeper that was replaced.
    pub extents: HashMap<u64, OwnedFd>,
    /// An extent with nothing in it, kept because programs that free often allocate again.
    pub spare: Option<(u64, u64)>,
    /// Descriptors of what the client maps itself, by its handle.
    pub physical: HashMap<u32, OwnedFd>,
    /// Bytes used at the end of the window for managed variables.
    pub managed: u64,
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
    record: Vec<u8>,
    touched: Vec<u32>,
    reports: Vec<(StreamId, u64, Outcome)>,
    work: Vec<u32>,
    pub tokens: Vec<u64>,
    pub batch: Vec<(u64, Work)>,
}

/// What a session is made of when it is opened.
pub struct Parts {
    pub service: Service,
    pub journal: Journal,
    pub files: Files,
    pub taken: u64,
    pub phase: Phase,
}

impl Inner {
    /// Whether a stream of another device than the client's first has work.
    pub fn is_busy_beyond_the_first_device(&self) -> bool {
        let beyond = |index: &u32| self.objects.streams.get(index).is_some_and(|spec| spec.device != 0);
        self.queues.streams.iter().any(|(index, stream)| !stream.is_idle() && beyond(index))
    }

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

    pub fn is_passed(&self, barrier: &Barrier) -> bool {
        barrier.waits.iter().all(|(index, seq)| self.queues.streams.get(index).is_none_or(|s| s.done() >= *seq))
    }
}

impl Session {
    #[must_use]
    pub fn new(config: SessionConfig, shared: Arc<Shared>, parts: Parts) -> Self {
        shared.open_account(config.id);
        shared.fair_queue.lock().add(config.id, config.priority, config.parts.first().map_or(cumux_scheduler::WHOLE, |part| shared.percent(part)));
        let status = ClientStatus { session: config.id, pid: config.pid, program: config.program.clone(), state: "running".into(), ..ClientStatus::default() };
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
                trial: Vec::new(),
                text: Default::default(),
                status,
                meter: Meter::default(),
                lists: Lists::default(),
            }),
            mailbox: Mutex::default(),
            told_of_shortage: Once::new(),
            config,
            shared,
        }
    }

    pub fn doorbell(&self) -> BorrowedFd<'_> {
        self.files.doorbell()
    }

    /// Does something with the changing part under its lock, and then delivers what the device
    /// reported meanwhile.
    pub fn lock_then_deliver<R>(&self, act: impl FnOnce(&mut Inner) -> R) -> R {
        let outcome = act(&mut self.inner.lock());
        self.deliver_reports();
        outcome
    }

    /// The lock for the intake thread; none where it should come again, since somebody else has it.
    fn lock_for_intake(&self) -> Option<MutexGuard<'_, Inner>> {
        // A device that computes on the processors needs those that looking again and again would
        // take from it.
        if self.shared.cards.capabilities().needs_cores { Some(self.inner.lock()) } else { self.inner.try_lock() }
    }

    /// The changing part, for tests that look at it or put it into a state. Nothing is delivered
    /// when it is let go of.
    #[cfg(test)]
    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    #[must_use]
    pub fn client(&self) -> u32 {
        self.config.id
    }

    /// The place of one of the client's devices in the executor's list.
    #[must_use]
    pub fn place(&self, device: u32) -> Option<u32> {
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
        let place = self.place(device).ok_or(result::INVALID_VALUE)?;
        self.shared.charge(self.config.id, place, bytes, self.limit(device)).map_err(|shortage| {
            self.tell_of_shortage(bytes, shortage);
            result::OUT_OF_MEMORY
        })
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
    pub fn charge_again(&self, place: u32, bytes: u64) {
        self.shared.charge_again(self.config.id, place, bytes);
    }

    pub fn refund(&self, device: u32, bytes: u64) {
        if let Some(place) = self.place(device) {
            self.shared.refund(self.config.id, place, bytes);
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
                self.shared.fair_queue.lock().set_share(self.client(), self.shared.percent(part));
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

    /// Lets go of a session that was held back, and begins what it had accepted. It is on trial
    /// until these leads are over.
    pub(crate) fn let_go(self: &Arc<Self>, trial: Vec<Lead>) {
        let let_go = self.lock_then_deliver(|inner| {
            let Some(held_back) = inner.phase.as_on_hold() else { return false };
            held_back.let_go();
            if !trial.is_empty() {
                suspicion::begin_trial(&inner.journal);
            }
            inner.trial = trial;
            let mut all: Vec<u32> = inner.queues.streams.keys().copied().collect();
            self.drive(inner, &mut all, Caller::Intake);
            self.pass_barriers(inner);
            true
        });
        if !let_go {
            return;
        }
        self.service.notify();
        self.shared.wake_intake(self.client());
    }

    /// A lead of a trial is over.
    pub(crate) fn lead_is_over(&self, inner: &mut Inner, lead: Lead) {
        inner.trial.retain(|other| *other != lead);
        if inner.trial.is_empty() {
            suspicion::acquit(&inner.journal);
        }
    }

    /// Whether its trial is over; it is in any case when its `time_is_up`.
    pub(crate) fn is_tried(&self, time_is_up: bool) -> bool {
        self.lock_then_deliver(|inner| {
            if time_is_up && !inner.trial.is_empty() {
                inner.trial.clear();
                suspicion::acquit(&inner.journal);
            }
            inner.trial.is_empty() || inner.phase.is_closed() || inner.objects.fault.is_some()
        })
    }

    /// Takes up to one turn of records. Returns whether it should be called again soon: something
    /// moved, or somebody else held the lock.
    pub fn intake(self: &Arc<Self>) -> bool {
        let Some(mut inner) = self.lock_for_intake() else { return true };
        let moved = self.take_turn(&mut inner);
        drop(inner);
        self.deliver_reports();
        moved
    }

    /// One turn of the intake. Whether something moved.
    fn take_turn(self: &Arc<Self>, inner: &mut Inner) -> bool {
        let mut moved = self.empty_mailbox(inner);
        if inner.phase.is_closed() || inner.phase.is_on_hold() {
            return moved;
        }
        if !inner.queues.chores.is_empty() || !inner.queues.parked.is_empty() {
            let mut again: Vec<u32> = std::mem::take(&mut inner.queues.chores).into_iter().collect();
            again.extend(&inner.queues.parked);
            moved |= self.drive(inner, &mut again, Caller::Intake);
        }
        if !inner.queues.barriers.is_empty() {
            moved |= self.pass_barriers(inner);
        }
        // Whether the client may wait for any of this. That its work was taken matters to it only
        // where it may wait for room.
        let mut tell = moved;
        let mut record = std::mem::take(&mut inner.lists.record);
        for _ in 0..TURN {
            if inner.journal.has_room() {
                inner.go_on();
            }
            let Some(reading) = inner.phase.as_reading() else { break };
            if !inner.journal.has_room() {
                reading.stall();
                inner.meter.stall.begin(now_ns);
                break;
            }
            match self.service.peek(&mut inner.consumer, &mut record) {
                Ok(Next::Empty) => break,
                Ok(Next::Record { end }) => {
                    tell |= inner.consumer.is_crowded();
                    tell |= self.take_record(inner, end, &record);
                    moved = true;
                }
                Err(error) => self.violation(inner, &error.to_string()),
            }
        }
        inner.lists.record = record;
        tell |= self.settle(inner);
        if tell {
            self.service.notify();
        }
        moved
    }

    /// Whether intake would find something now; for the moment between announcing sleep and
    /// sleeping.
    #[must_use]
    pub fn has_more(&self) -> bool {
        if !self.mailbox.lock().is_empty() {
            return true;
        }
        // Somebody has it who may be at it for long: it is looked at again.
        let Some(mut inner) = self.lock_for_intake() else { return true };
        let more = self.finds_more(&mut inner);
        drop(inner);
        self.deliver_reports();
        more
    }

    fn finds_more(&self, inner: &mut Inner) -> bool {
        if !inner.phase.wants_records() || !inner.journal.has_room() {
            return false;
        }
        let mut record = std::mem::take(&mut inner.lists.record);
        let next = self.service.peek(&mut inner.consumer, &mut record);
        inner.lists.record = record;
        let host_ready =
            inner.queues.parked.iter().any(|index| inner.queues.streams.get(index).is_some_and(|stream| self.service.host_done(*index) > stream.done()));
        host_ready || !inner.queues.chores.is_empty() || inner.barrier_ready() || !matches!(next, Ok(Next::Empty))
    }

    /// Whether a stream waits for a value in memory, which nobody announces.
    #[must_use]
    pub fn polls(&self) -> bool {
        self.lock_then_deliver(|inner| !inner.queues.parked.is_empty())
    }

    /// Takes one record. Whether more came of it than work that waits in its stream.
    fn take_record(self: &Arc<Self>, inner: &mut Inner, end: u64, bytes: &[u8]) -> bool {
        let record = match record::decode(bytes) {
            Ok(record) => record,
            Err(error) => {
                self.settle(inner);
                self.violation(inner, &error.to_string());
                return true;
            }
        };
        if !record.op.in_stream() || inner.objects.fault.is_some() {
            self.settle(inner);
        }
        if let Some((code, _)) = inner.objects.fault {
            // The client has been told; whatever it still sends is answered the same way.
            self.answer(&record.header, &crate::shared::answer(code));
            if record.op.in_stream() {
                self.service.set_completed(record.header.stream, record.header.seq);
            }
            self.taken(inner, end);
            return true;
        }
        if !record.op.in_stream() {
            inner.meter.requests += u64::from(record.header.answer != NO_ANSWER);
            self.control(inner, end, bytes, record);
            return true;
        }
        let index = record.header.stream;
        let Some(stream) = inner.queues.streams.get_mut(&index) else {
            self.settle(inner);
            self.violation(inner, &format!("work for stream {index}, which does not exist"));
            return true;
        };
        if record.header.seq != stream.last() + 1 {
            let last = stream.last();
            self.settle(inner);
            self.violation(inner, &format!("stream {index} jumps from {last} to {}", record.header.seq));
            return true;
        }
        let token = inner.journal.accept(end, bytes);
        stream.push(token, record.header.seq, record.op);
        inner.consumer.advance(end);
        inner.status.in_flight += 1;
        if inner.lists.touched.last() != Some(&index) {
            inner.lists.touched.push(index);
        }
        false
    }

    /// Commits the stream work that was accepted, and starts what can start. Done once for many
    /// records. Whether anything is over already.
    fn settle(&self, inner: &mut Inner) -> bool {
        if inner.lists.touched.is_empty() {
            return false;
        }
        let end = inner.consumer.taken();
        self.taken(inner, end);
        let mut touched = std::mem::take(&mut inner.lists.touched);
        let moved = self.drive(inner, &mut touched, Caller::Intake);
        touched.clear();
        inner.lists.touched = touched;
        moved
    }

    pub fn taken(&self, inner: &mut Inner, end: u64) {
        inner.journal.publish();
        inner.journal.set_taken(end);
        self.service.release(&mut inner.consumer, end);
    }

    pub fn answer(&self, header: &Header, answer: &Answer) {
        if header.answer != NO_ANSWER {
            self.service.answer(header.answer, header.request_number(), answer);
        }
    }

    /// Commits a change: journal, `taken` (if a record at `end` caused it), answer.
    pub fn commit(&self, inner: &mut Inner, change: Change, end: u64, reply: Option<(&Header, Answer)>) {
        if reply.as_ref().is_some_and(|(_, answer)| answer.result == result::LOST) {
            inner.phase.lose_device();
            return;
        }
        let answer = reply.and_then(|(header, a)| (header.answer != NO_ANSWER).then_some((header.answer, header.request_number(), a.result, a.words)));
        let logged = Logged { change, end, answer };
        if let Err(error) = inner.condition.log_change(&mut inner.journal, &logged, &inner.objects) {
            tracing::error!("session {}: {error}; this client would not outlive its executor", self.config.id);
        }
        inner.objects.apply(&logged.change);
        if end != 0 {
            self.taken(inner, end);
        }
        if let Some((header, a)) = reply {
            self.answer(header, &a);
        }
        let used = self.shared.charged(self.config.id);
        inner.status.memory = used;
        inner.status.memory_peak = inner.status.memory_peak.max(used);
        self.service.set_memory_used(used);
    }

    /// The client is in error from now on: everything it waits for is over, everything it asks is
    /// answered with the code.
    pub fn fault(&self, inner: &mut Inner, fault: &Fault) {
        if fault.result == result::LOST {
            inner.phase.lose_device();
        }
        if inner.phase.is_lost() || inner.objects.fault.is_some() {
            return;
        }
        let fault = &Fault { result: fault.result, text: fault.text.chars().take(LONGEST_TEXT).collect() };
        tracing::info!("session {} (pid {}): {}", self.config.id, self.config.pid, fault.text);
        self.service.set_fault(fault.result, &fault.text);
        self.commit(inner, Change::Fault { result: fault.result, text: fault.text.clone() }, 0, None);
        let indices: Vec<u32> = inner.queues.streams.keys().copied().collect();
        for index in indices {
            let Some(stream) = inner.queues.streams.get_mut(&index) else { continue };
            let tokens = stream.abandon();
            let done = stream.done();
            inner.journal.set_completed(index, done);
            for token in tokens {
                inner.journal.retire(token);
            }
            self.service.set_completed(index, done);
        }
        while let Some(barrier) = inner.queues.barriers.pop_front() {
            inner.journal.retire(barrier.token);
            self.answer(&barrier.header, &crate::shared::answer(fault.result));
        }
        inner.queues.parked.clear();
        inner.queues.chores.clear();
        inner.queues.held.clear();
        inner.trial.clear();
        suspicion::acquit(&inner.journal);
        inner.meter.held.end(now_ns);
        // Intake may have been stalled or parked; it answers everything from now on.
        inner.go_on();
        self.shared.fair_queue.lock().abandoned(self.config.id);
        inner.queues.watchers.clear();
        inner.status.in_flight = 0;
        inner.status.error = fault.result;
        inner.status.fault.clone_from(&fault.text);
        self.flush_text(inner);
        self.service.notify();
        self.shared.report(FromExecutor::Fault { session: self.config.id, result: fault.result, text: fault.text.clone() });
        self.shared.cards.stop_client(self.client(), fault);
        self.shared.wake_intake(self.client());
    }

    /// What came through the ring cannot be: the client is in error and nothing more is read from
    /// it.
    pub fn violation(&self, inner: &mut Inner, what: &str) {
        let text = format!("the client broke the protocol: {what}; its requests are no longer read");
        self.fault(inner, &Fault { result: result::MPS_RPC_FAILURE, text });
        if let Some(reading) = inner.phase.as_reading() {
            reading.stop_reading();
        }
    }

    /// Ends the session: nothing of it runs any more when this returns, and its memory is gone.
    ///
    /// # Errors
    /// When the device does not give the memory back.
    pub fn close(&self) -> Result<ClientStatus, ExecutorError> {
        self.lock_then_deliver(|inner| inner.phase.close());
        let counted = self.shared.cards.client_counters(self.client());
        self.shared.cards.close_client(self.client());
        self.lock_then_deliver(|inner| self.release_all(inner, counted))
    }

    /// Gives back everything a session has, at its end.
    fn release_all(&self, inner: &mut Inner, counted: ClientCounters) -> Result<ClientStatus, ExecutorError> {
        // What cannot be unmapped keeps its addresses; all the rest is given back whatever happens.
        let mut outcome = Ok(());
        // A module that is being loaded may still want to give back its variables: it finds nothing
        // of the client's any more.
        let (heap, objects) = (std::mem::take(&mut inner.memory.heap), std::mem::take(&mut inner.objects));
        for (address, mapped) in &objects.mappings {
            outcome = outcome.and(self.shared.cards.unmap(*address, mapped.bytes));
        }
        for (address, bytes) in heap.extents() {
            match self.shared.cards.unmap(address, bytes) {
                Ok(()) => self.shared.arena.lock().release(address, bytes),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        for (address, bytes) in &objects.reservations {
            self.shared.arena.lock().release(*address, *bytes);
        }
        inner.memory.extents.clear();
        for (handle, file) in inner.memory.physical.drain() {
            if let Some(place) = objects.physical.get(&handle).and_then(|(device, _)| self.place(*device)) {
                self.shared.cards.forget_extent(place, file.as_fd());
            }
        }
        if let Some((_, bytes)) = inner.memory.spare.take() {
            self.shared.unspare(bytes);
        }
        self.shared.close_account(self.config.id);
        self.shared.fair_queue.lock().remove(self.config.id);
        let mut status = self.status_of(inner, counted);
        status.memory = 0;
        // What was not done is not in flight any more: the device has cancelled it.
        status.in_flight = 0;
        outcome?;
        Ok(status)
    }

    /// Gives a new keeper everything that belongs to this session's memory.
    ///
    /// # Errors
    /// When it does not take it.
    pub fn rekeep(&self) -> Result<(), ExecutorError> {
        self.lock_then_deliver(|inner| self.keep_memory(inner))
    }

    fn keep_memory(&self, inner: &Inner) -> Result<(), ExecutorError> {
        for (address, bytes) in inner.memory.heap.extents() {
            if let Some(file) = inner.memory.extents.get(&address) {
                self.shared.keep(self.config.id, &crate::memory::extent_key(address), &bytes.to_string(), &[file.as_fd()])?;
            }
        }
        for (handle, file) in &inner.memory.physical {
            let bytes = inner.objects.physical.get(handle).map_or(0, |(_, bytes)| *bytes);
            self.shared.keep(self.config.id, &crate::memory::physical_key(*handle), &bytes.to_string(), &[file.as_fd()])?;
        }
        Ok(())
    }
}

/// CLOCK_MONOTONIC in nanoseconds.
#[must_use]
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}
