//! One client: its files, its objects, its streams. Everything about it happens under one lock.
//!
//! Two threads of the executor come here: the intake thread with records ([`Session::intake`]) and the device's threads with reports
//! ([`Session::retired`], in [`reports`]). Both end in [`drive`](crate::drive), which starts whatever can start. Neither waits for the other: intake comes again later, reports
//! stay in a mailbox, and whoever lets go of the lock looks into it ([`Held`]).
//!
//! Order of writes, so that a successor can go on after a death at any point: effect → journal → `taken` → answer for control records;
//! journal → `taken` → device for stream work; device → `journal.completed` → `page.completed` for completions.

mod reports;

use crate::drive::Caller;
use crate::error::ExecutorError;
use crate::heap::Heap;
use crate::meter::Meter;
use crate::objects::{Change, Logged, Objects};
use crate::open::Files;
use crate::shared::Shared;
use crate::stream::Stream;
use crate::suspicion::{self, Lead};
use cumux_device::{Fault, Outcome, Resume, StreamId, Work};
use cumux_ring::journal::Journal;
use cumux_ring::page::Answer;
use cumux_ring::queue::{Consumer, Next};
use cumux_ring::service::Service;
use cumux_wire::message::{ClientStatus, FromExecutor, Part, Session as Sheet};
use cumux_wire::record::{self, Header, NO_ANSWER, Op};
use cumux_wire::result;
use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Records taken from one client before the next one has its turn.
const TURN: usize = 64;

/// Characters of a fault's text. It has names out of the client's image, which may be as long as it likes, and goes into packets with those of many clients.
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
    pub sheet: Sheet,
    /// Its parts as they are now: a share changes while the client runs.
    parts: Mutex<Vec<Part>>,
    pub shared: Arc<Shared>,
    pub service: Service,
    /// For a server that was made again, and has to learn of this session from here.
    pub files: Files,
    inner: Mutex<Inner>,
    /// Reports of the device that came while somebody held the lock.
    mailbox: Mutex<Vec<(StreamId, u64, Outcome)>>,
}

/// The lock on a session's changing part. Letting go delivers what the device has reported meanwhile.
pub struct Held<'a> {
    session: &'a Session,
    inner: Option<MutexGuard<'a, Inner>>,
}

impl Deref for Held<'_> {
    type Target = Inner;
    fn deref(&self) -> &Inner {
        self.inner.as_ref().expect("held until it is dropped")
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Inner {
        self.inner.as_mut().expect("held until it is dropped")
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.inner = None;
        self.session.collect();
    }
}

/// The changing part, under the session's lock.
pub struct Inner {
    pub journal: Journal,
    pub consumer: Consumer,
    pub objects: Objects,
    pub heap: Heap,
    /// Descriptors of the extents in the heap, for a keeper that was replaced.
    pub extents: HashMap<u64, OwnedFd>,
    /// An extent with nothing in it, kept because programs that free often allocate again.
    pub spare: Option<(u64, u64)>,
    pub physical: HashMap<u32, OwnedFd>,
    pub streams: FxHashMap<u32, Stream>,
    pub by_device: FxHashMap<StreamId, u32>,
    /// Streams that wait for another: by the awaited one.
    pub watchers: FxHashMap<u32, Vec<u32>>,
    /// Streams whose next piece frees memory: for the intake thread, since a device's report must not wait for the device.
    pub chores: BTreeSet<u32>,
    /// Streams that the bound on work in flight holds back.
    pub held: BTreeSet<u32>,
    /// Expected device time of a kernel by module and function.
    pub estimates: FxHashMap<(u32, u32), u64>,
    /// Streams at a host callback or a value wait.
    pub parked: BTreeSet<u32>,
    pub barriers: VecDeque<Barrier>,
    /// What a predecessor had done of a kernel.
    pub resumes: FxHashMap<u64, Resume>,
    /// Bytes used at the end of the window for managed variables.
    pub managed: u64,
    /// A slow operation (module load) runs for the record at the front of the ring.
    pub busy: bool,
    /// The journal was full when intake last looked.
    pub stalled: bool,
    pub closing: bool,
    /// The device is lost, and whose kernels it had been given has been told: what is given to it now is never begun.
    pub told: bool,
    /// It had too many objects for its journal.
    pub unlogged: bool,
    /// The ring cannot be believed any more.
    pub deaf: bool,
    /// The device is lost and this process about to end: what the client asks is its successor's to do, and nothing is answered.
    pub left: bool,
    /// Nothing of it is begun yet: its executors' deaths are being judged, or it waits for its trial.
    pub on_hold: bool,
    /// What must be over before its trial is.
    pub trial: Vec<Lead>,
    pub text: VecDeque<u8>,
    pub status: ClientStatus,
    pub meter: Meter,
    /// Lists that are filled and emptied again and again.
    pub lists: Lists,
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
}

impl Inner {
    /// Whether a stream of another device than the client's first has work.
    pub fn is_busy_beyond_the_first_device(&self) -> bool {
        let beyond = |index: &u32| self.objects.streams.get(index).is_some_and(|spec| spec.device != 0);
        self.streams.iter().any(|(index, stream)| !stream.is_idle() && beyond(index))
    }

    /// Whether the time of some barrier has come.
    pub fn barrier_ready(&self) -> bool {
        self.barriers.iter().any(|b| self.is_passed(b))
    }

    pub fn is_passed(&self, barrier: &Barrier) -> bool {
        barrier.waits.iter().all(|(index, seq)| self.streams.get(index).is_none_or(|s| s.done() >= *seq))
    }
}

impl Session {
    #[must_use]
    pub fn new(sheet: Sheet, shared: Arc<Shared>, parts: Parts) -> Self {
        shared.open_account(sheet.id);
        shared.turns.lock().add(sheet.id, sheet.priority, sheet.parts.first().map_or(cumux_scheduler::WHOLE, |part| shared.percent(part)));
        let status = ClientStatus { session: sheet.id, pid: sheet.pid, program: sheet.program.clone(), state: "running".into(), ..ClientStatus::default() };
        Self {
            service: parts.service,
            files: parts.files,
            parts: Mutex::new(sheet.parts.clone()),
            inner: Mutex::new(Inner {
                journal: parts.journal,
                consumer: Service::consumer(parts.taken),
                objects: Objects::default(),
                heap: Heap::default(),
                extents: HashMap::new(),
                spare: None,
                physical: HashMap::new(),
                streams: FxHashMap::default(),
                by_device: FxHashMap::default(),
                watchers: FxHashMap::default(),
                chores: BTreeSet::new(),
                held: BTreeSet::new(),
                estimates: FxHashMap::default(),
                parked: BTreeSet::new(),
                barriers: VecDeque::new(),
                resumes: FxHashMap::default(),
                managed: 0,
                busy: false,
                stalled: false,
                closing: false,
                told: false,
                unlogged: false,
                deaf: false,
                left: false,
                on_hold: false,
                trial: Vec::new(),
                text: VecDeque::new(),
                status,
                meter: Meter::default(),
                lists: Lists::default(),
            }),
            mailbox: Mutex::default(),
            sheet,
            shared,
        }
    }

    pub fn doorbell(&self) -> BorrowedFd<'_> {
        self.files.doorbell()
    }

    pub fn lock(&self) -> Held<'_> {
        Held { session: self, inner: Some(self.inner.lock()) }
    }

    #[must_use]
    pub fn client(&self) -> u32 {
        self.sheet.id
    }

    /// The place of one of the client's devices in the executor's list.
    #[must_use]
    pub fn place(&self, device: u32) -> Option<u32> {
        self.sheet.parts.get(device as usize).map(|part| part.device)
    }

    /// Bytes of a device's memory the client may have; 0 = no limit.
    #[must_use]
    pub fn limit(&self, device: u32) -> u64 {
        self.sheet.parts.get(device as usize).map_or(0, |part| part.memory_limit)
    }

    /// Charges bytes of one of the client's devices.
    ///
    /// # Errors
    /// A result code.
    pub fn charge(&self, device: u32, bytes: u64) -> Result<(), u32> {
        let place = self.place(device).ok_or(result::INVALID_VALUE)?;
        self.shared.charge(self.sheet.id, place, bytes, self.limit(device))
    }

    /// Charges what a predecessor has charged, whatever the limit.
    pub fn charge_again(&self, place: u32, bytes: u64) {
        let _ = self.shared.charge(self.sheet.id, place, bytes, 0);
    }

    pub fn refund(&self, device: u32, bytes: u64) {
        if let Some(place) = self.place(device) {
            self.shared.refund(self.sheet.id, place, bytes);
        }
    }

    /// Work that begins from now on runs on these parts.
    ///
    /// # Errors
    /// When the device cannot change a share.
    pub fn set_parts(&self, parts: &[Part]) -> Result<(), ExecutorError> {
        for (ordinal, part) in (0..).zip(parts) {
            self.shared.cards.set_share(self.client(), part.device, part.multiprocessors)?;
            if ordinal == 0 {
                self.shared.turns.lock().set_share(self.client(), self.shared.percent(part));
            }
            self.service.set_share(ordinal, part.multiprocessors);
        }
        *self.parts.lock() = parts.to_vec();
        Ok(())
    }

    /// The sheet with its present parts.
    #[must_use]
    pub fn present_sheet(&self) -> Sheet {
        Sheet { parts: self.parts.lock().clone(), ..self.sheet.clone() }
    }

    /// Lets go of a session that was held back, and begins what it had accepted. It is on trial until these leads are over.
    pub(crate) fn let_go(self: &Arc<Self>, trial: Vec<Lead>) {
        let mut inner = self.lock();
        if !inner.on_hold {
            return;
        }
        if !trial.is_empty() {
            suspicion::begin_trial(&inner.journal);
        }
        inner.trial = trial;
        inner.on_hold = false;
        let mut all: Vec<u32> = inner.streams.keys().copied().collect();
        self.drive(&mut inner, &mut all, Caller::Intake);
        self.pass_barriers(&mut inner);
        drop(inner);
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
        let mut inner = self.lock();
        if time_is_up && !inner.trial.is_empty() {
            inner.trial.clear();
            suspicion::acquit(&inner.journal);
        }
        inner.trial.is_empty() || inner.closing || inner.objects.fault.is_some()
    }

    /// Takes up to one turn of records. Returns whether it should be called again soon: something moved, or somebody else held the lock.
    pub fn intake(self: &Arc<Self>) -> bool {
        // The software GPU's threads need the processors that looking again and again would take from them.
        let inner = if self.shared.cards.keeps_marks() { Some(self.inner.lock()) } else { self.inner.try_lock() };
        let Some(mut inner) = inner else { return true };
        let mut moved = self.empty_mailbox(&mut inner);
        let mut inner = Held { session: self, inner: Some(inner) };
        if inner.closing || inner.on_hold {
            return moved;
        }
        if !inner.chores.is_empty() || !inner.parked.is_empty() {
            let mut again: Vec<u32> = std::mem::take(&mut inner.chores).into_iter().collect();
            again.extend(&inner.parked);
            moved |= self.drive(&mut inner, &mut again, Caller::Intake);
        }
        if !inner.barriers.is_empty() {
            moved |= self.pass_barriers(&mut inner);
        }
        // Whether the client may wait for any of this. That its work was taken matters to it only where it may wait for room.
        let mut tell = moved;
        let mut record = std::mem::take(&mut inner.lists.record);
        for _ in 0..TURN {
            if inner.busy || inner.deaf || inner.left || inner.closing {
                break;
            }
            if !inner.journal.has_room() {
                inner.stalled = true;
                inner.meter.stall.begin(now_ns);
                break;
            }
            match self.service.peek(&mut inner.consumer, &mut record) {
                Ok(Next::Empty) => break,
                Ok(Next::Record { end }) => {
                    tell |= inner.consumer.is_crowded();
                    tell |= self.one(&mut inner, end, &record);
                    moved = true;
                    if inner.busy {
                        inner.meter.request.begin(now_ns);
                        suspicion::note_request(&inner.journal, end);
                    }
                }
                Err(error) => self.violation(&mut inner, &error.to_string()),
            }
        }
        inner.lists.record = record;
        tell |= self.settle(&mut inner);
        if tell {
            self.service.notify();
        }
        moved
    }

    /// Whether intake would find something now; for the moment between announcing sleep and sleeping.
    #[must_use]
    pub fn has_more(&self) -> bool {
        if !self.mailbox.lock().is_empty() {
            return true;
        }
        // Somebody has it who may be at it for long: it is looked at again.
        let inner = if self.shared.cards.keeps_marks() { Some(self.inner.lock()) } else { self.inner.try_lock() };
        let Some(inner) = inner else { return true };
        let mut inner = Held { session: self, inner: Some(inner) };
        if inner.busy || inner.deaf || inner.left || inner.closing || inner.on_hold || !inner.journal.has_room() {
            return false;
        }
        let mut record = std::mem::take(&mut inner.lists.record);
        let next = self.service.peek(&mut inner.consumer, &mut record);
        inner.lists.record = record;
        let host_ready = inner.parked.iter().any(|index| inner.streams.get(index).is_some_and(|stream| self.service.host_done(*index) > stream.done()));
        host_ready || !inner.chores.is_empty() || inner.barrier_ready() || !matches!(next, Ok(Next::Empty))
    }

    /// Whether a stream waits for a value in memory, which nobody announces.
    #[must_use]
    pub fn polls(&self) -> bool {
        !self.lock().parked.is_empty()
    }

    /// Whether more came of it than work that waits in its stream.
    fn one(self: &Arc<Self>, inner: &mut Inner, end: u64, bytes: &[u8]) -> bool {
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
        let Some(stream) = inner.streams.get_mut(&index) else {
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

    /// Commits the stream work that was accepted, and starts what can start. Done once for many records. Whether anything is over already.
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
            inner.left = true;
            return;
        }
        let answer = reply.and_then(|(header, a)| (header.answer != NO_ANSWER).then_some((header.answer, header.request_number(), a.result, a.words)));
        let logged = Logged { change, end, answer };
        let Inner { journal, objects, .. } = inner;
        if !inner.unlogged {
            let snapshot = || objects.snapshot().into_iter().map(|c| Logged::plain(c).encode()).collect();
            if let Err(error) = journal.append_object(&logged.encode(), snapshot) {
                // The client goes on, but a successor must not take a part for the whole. Not tried again: each time would write the whole log anew.
                tracing::error!("session {}: {error}; this client would not outlive its executor", self.sheet.id);
                inner.unlogged = journal.append_object(&Logged::plain(Change::Unlogged).encode(), Vec::new).is_ok();
            }
        }
        inner.objects.apply(&logged.change);
        if end != 0 {
            self.taken(inner, end);
        }
        if let Some((header, a)) = reply {
            self.answer(header, &a);
        }
        let used = self.shared.charged(self.sheet.id);
        inner.status.memory = used;
        inner.status.memory_peak = inner.status.memory_peak.max(used);
        self.service.set_memory_used(used);
    }

    /// The client is in error from now on: everything it waits for is over, everything it asks is answered with the code.
    pub fn fault(&self, inner: &mut Inner, fault: &Fault) {
        inner.left |= fault.result == result::LOST;
        if inner.left || inner.objects.fault.is_some() {
            return;
        }
        let fault = &Fault { result: fault.result, text: fault.text.chars().take(LONGEST_TEXT).collect() };
        tracing::info!("session {} (pid {}): {}", self.sheet.id, self.sheet.pid, fault.text);
        self.service.set_fault(fault.result, &fault.text);
        self.commit(inner, Change::Fault { result: fault.result, text: fault.text.clone() }, 0, None);
        let indices: Vec<u32> = inner.streams.keys().copied().collect();
        for index in indices {
            let Some(stream) = inner.streams.get_mut(&index) else { continue };
            let tokens = stream.abandon();
            let done = stream.done();
            inner.journal.set_completed(index, done);
            for token in tokens {
                inner.journal.retire(token);
            }
            self.service.set_completed(index, done);
        }
        while let Some(barrier) = inner.barriers.pop_front() {
            inner.journal.retire(barrier.token);
            self.answer(&barrier.header, &crate::shared::answer(fault.result));
        }
        inner.parked.clear();
        inner.chores.clear();
        inner.held.clear();
        inner.trial.clear();
        suspicion::acquit(&inner.journal);
        inner.meter.held.end(now_ns);
        inner.meter.stall.end(now_ns);
        self.shared.turns.lock().abandoned(self.sheet.id);
        inner.watchers.clear();
        inner.status.in_flight = 0;
        inner.status.error = fault.result;
        inner.status.fault.clone_from(&fault.text);
        self.flush_text(inner);
        self.service.notify();
        self.shared.report(FromExecutor::Fault { session: self.sheet.id, result: fault.result, text: fault.text.clone() });
        self.shared.cards.stop_client(self.client(), fault);
        // Intake may have been stalled or parked; it answers everything from now on.
        inner.stalled = false;
        self.shared.wake_intake(self.client());
    }

    /// What came through the ring cannot be: the client is in error and nothing more is read from it.
    pub fn violation(&self, inner: &mut Inner, what: &str) {
        let text = format!("the client broke the protocol: {what}; its requests are no longer read");
        self.fault(inner, &Fault { result: result::MPS_RPC_FAILURE, text });
        inner.deaf = true;
    }

    /// Ends the session: nothing of it runs any more when this returns, and its memory is gone.
    ///
    /// # Errors
    /// When the device does not give the memory back.
    pub fn close(&self) -> Result<ClientStatus, ExecutorError> {
        self.lock().closing = true;
        let counted = self.shared.cards.client_counters(self.client());
        self.shared.cards.close_client(self.client());
        let mut inner = self.lock();
        // What cannot be unmapped keeps its addresses; all the rest is given back whatever happens.
        let mut outcome = Ok(());
        // A module that is being loaded may still want to give back its variables: it finds nothing of the client's any more.
        let (heap, objects) = (std::mem::take(&mut inner.heap), std::mem::take(&mut inner.objects));
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
        inner.extents.clear();
        for (handle, file) in inner.physical.drain() {
            if let Some(place) = objects.physical.get(&handle).and_then(|(device, _)| self.place(*device)) {
                self.shared.cards.forget_extent(place, file.as_fd());
            }
        }
        if let Some((_, bytes)) = inner.spare.take() {
            self.shared.unspare(bytes);
        }
        self.shared.close_account(self.sheet.id);
        self.shared.turns.lock().remove(self.sheet.id);
        let mut status = self.status_of(&mut inner, counted);
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
        let inner = self.lock();
        for (address, bytes) in inner.heap.extents() {
            if let Some(file) = inner.extents.get(&address) {
                self.shared.keep(self.sheet.id, &crate::memory::extent_key(address), &bytes.to_string(), &[file.as_fd()])?;
            }
        }
        for (handle, file) in &inner.physical {
            let bytes = inner.objects.physical.get(handle).map_or(0, |(_, bytes)| *bytes);
            self.shared.keep(self.sheet.id, &crate::memory::physical_key(*handle), &bytes.to_string(), &[file.as_fd()])?;
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
