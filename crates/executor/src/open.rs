//! Opening a session: a new one, or one a dead predecessor served. There is no difference but what
//! the journal says.

use crate::background::Restored;
use crate::drive::Caller;
use crate::error::ExecutorError;
use crate::files::Files;
use crate::intake::Intake;
use crate::kept_images::IMAGE_KEY;
use crate::memory::{BORROWED_KEY, EXTENT_KEY, ExtentNote, physical_key};
use crate::objects::{Change, Logged, ModuleSpec, Objects};
use crate::recipes;
use crate::replay_safety;
use crate::session::{Barrier, Inner, Phase, Session, SessionParts};
use crate::shared::Shared;
use crate::stream::Stream;
use crate::suspicion::{self, Case, Ended, Lead};
use cumux_device::{DeviceError, Fault, Image, ImageHash, Interrupted, Lane, ModuleInfo};
use cumux_environment::steps::{self, Step};
use cumux_keeper::client::Item;
use cumux_ring::file;
use cumux_ring::journal::{Journal, WorkEntry};
use cumux_ring::page::Answer;
use cumux_ring::service::Service;
use cumux_wire::layout;
use cumux_wire::message::SessionConfig;
use cumux_wire::record::{self, Op};
use cumux_wire::result;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

/// How a session is opened.
pub struct Terms {
    pub generation: u32,
    /// How the executor before ended.
    pub ended: Ended,
    /// Nothing of it is begun before [`Session::end_hold`].
    pub on_hold: bool,
}

/// What a predecessor left of a client; nothing for a new one.
struct Left {
    objects: Objects,
    /// Ring position up to which records were taken.
    taken: u64,
    /// It may have died between commit and answer.
    last_answer: Option<(u32, u64, Answer)>,
    work: Vec<WorkEntry>,
}

impl Left {
    fn read(journal: &Journal) -> Result<Self, ExecutorError> {
        let mut left = Self { objects: Objects::default(), taken: journal.taken(), last_answer: None, work: journal.work()? };
        for bytes in journal.objects()? {
            let logged = Logged::decode(&bytes).map_err(ExecutorError::Damaged)?;
            if logged.change == Change::Unlogged {
                return Err(ExecutorError::Unlogged);
            }
            left.taken = left.taken.max(logged.end);
            left.last_answer = logged.answer().or(left.last_answer);
            left.objects.apply(&logged.change);
        }
        left.taken = left.work.iter().fold(left.taken, |taken, entry| taken.max(entry.ring_end));
        Ok(left)
    }
}

/// Opens a session and adds it to the intake. Returns what speaks for its being the end of earlier
/// executors.
///
/// # Errors
/// When a file is damaged or the device refuses: this client cannot be served, and nothing of it is
/// left here.
pub fn open(shared: &Arc<Shared>, intake: &Intake, config: SessionConfig, files: Files, terms: &Terms) -> Result<Case, ExecutorError> {
    let client = config.id;
    let [ring, page, window, journal, _, marks, _] = &files.all;
    let service = Service::map(ring, page)?;
    let journal = Journal::map(journal)?;
    let left = Left::read(&journal)?;
    steps::pass(Step::JournalRead);
    if let Some(ended) = suspicion::begin_restoring(&journal) {
        return Err(ExecutorError::Damaged(format!("{ended} executors ended while they restored this client")));
    }
    file::check(marks, layout::MARKS_BYTES)?;
    open_client(shared, &config, marks.as_fd(), window.as_fd())?;
    service.set_generation(terms.generation);
    for (ordinal, part) in (0..).zip(&config.parts) {
        service.set_share(ordinal, part.multiprocessors);
    }
    let phase = if terms.on_hold { Phase::on_hold() } else { Phase::reading() };
    let session = Arc::new(Session::new(config, shared.clone(), SessionParts { service, journal, files, taken: left.taken, phase }));
    let restored = session.lock_then_deliver(|inner| {
        // Known before anything is submitted, so that no report gets lost; intake and reports wait
        // for the lock.
        let restored = intake.add(&session).and_then(|()| session.restore(inner, left, terms));
        if restored.is_err() {
            // Intake that waits for the lock must not go on with half of a session.
            inner.phase.close();
        }
        suspicion::end_restoring(&inner.journal);
        restored
    });
    if restored.is_ok() {
        shared.write_group_line(client);
        let consequences = shared.loans.lock().settle(false);
        shared.settle_loans(consequences);
        session.note_opened();
    } else {
        if intake.remove(client).is_none() {
            shared.mailboxes.release(client);
        }
        if let Err(error) = session.close() {
            tracing::error!("session {client} was not restored, and did not close cleanly: {error}");
        }
    }
    session.service.notify();
    restored
}

/// Opens a client on its devices, with its window, and gives it a lane.
fn open_client(shared: &Shared, config: &SessionConfig, marks: BorrowedFd<'_>, window: BorrowedFd<'_>) -> Result<(), ExecutorError> {
    let client = config.id;
    let lane = Lane { number: shared.mailboxes.assign(client), of: shared.mailboxes.lanes() };
    let opened = shared.cards.open_client(client, config, lane, marks).and_then(|()| {
        let mapped = shared.cards.map_window(client, window, layout::window_address(config.window_slot), layout::WINDOW_BYTES);
        mapped.inspect_err(|_| shared.cards.close_client(client))
    });
    opened.map_err(|error| {
        shared.mailboxes.release(client);
        error.into()
    })
}

impl Session {
    /// Makes everything that a predecessor left anew at the device.
    fn restore(self: &Arc<Self>, inner: &mut Inner, left: Left, terms: &Terms) -> Result<Case, ExecutorError> {
        let begun = Instant::now();
        inner.objects = left.objects;
        if let Some(what) = inner.objects.describe_textures() {
            if inner.objects.fault.is_none() {
                let text =
                    format!("the service was interrupted, and {what} of this client have gone with the executor before: on a card they are the driver's");
                return Err(DeviceError::Invalid(text).into());
            }
            // It only hears its error any more, and uses nothing of it.
            inner.objects.arrays.clear();
            inner.objects.texture_objects.clear();
        }
        self.restore_counters(inner);
        self.restore_memory(inner)?;
        let memory = begun.elapsed();
        steps::pass(Step::MemoryRestored);
        for (number, spec) in inner.objects.partitions.clone() {
            self.shared.cards.open_partition(self.client(), self.device_index(spec.device).unwrap_or(0), number, &spec)?;
        }
        for (index, spec) in inner.objects.streams.clone() {
            self.open_stream(inner, index, spec)?;
        }
        let limits = inner.objects.limits.clone();
        for (limit, value) in limits {
            self.shared.cards.set_limit(self.client(), limit, value)?;
        }
        for (address, bytes) in inner.objects.windows.clone() {
            self.shared.cards.use_window(self.client(), address, bytes)?;
        }
        let variables: Vec<(u64, u64)> = inner.objects.modules.values().flat_map(|m| m.variables.iter().map(|(_, a, b)| (*a, (*b).max(1)))).collect();
        for (address, bytes) in variables {
            // Managed variables. Code has their addresses.
            if self.in_window(address, bytes) {
                self.shared.cards.use_window(self.client(), address, bytes)?;
            }
        }
        for (user, (window, bytes)) in inner.objects.aliases.clone() {
            self.shared.cards.alias(self.client(), user, window, bytes)?;
        }
        let windows = begun.elapsed() - memory;
        let modules = inner.objects.modules.clone();
        for (id, spec) in modules {
            if let Some(why) = &spec.not_resumable {
                let text =
                    format!("the service was interrupted, and what one of this client's modules had on the card has gone with the executor before: {why}");
                return Err(DeviceError::Invalid(text).into());
            }
            let info = self.restore_module(id, &spec)?;
            inner.confinement.add_module(id, &info);
            inner.used_kernels.add_module(id, &info, &spec.used);
            for (function, attribute, value) in spec.settings {
                let _ = self.shared.cards.set_function(self.client(), id, function, attribute, value);
            }
        }
        for (image, modules) in self.images(inner) {
            self.shared.restore_image(self.client(), &image, modules, None);
        }
        if left.taken > 0 {
            let modules = begun.elapsed() - memory - windows;
            tracing::debug!(session = self.config.id, ?memory, ?windows, ?modules, "restored");
            self.count_arrival(inner);
        }
        self.service.release(&mut inner.consumer, left.taken);
        inner.journal.set_taken(left.taken);
        steps::pass(Step::ModulesRestored);
        self.restore_work(inner, &left.work)?;
        steps::pass(Step::WorkRestored);
        // Only answers to what changes something are noted. Others may have been given since then.
        if let Some((slot, request, answer)) = left.last_answer {
            self.service.answer_again(slot, request, &answer);
        }
        let mut oldest = self.oldest_under_way(inner);
        if let Some((code, text)) = inner.objects.fault.clone() {
            self.service.set_fault(code, &text);
            inner.status.error = code;
            inner.status.fault = text;
        } else if let Some(why) = self.in_doubt(inner, &left.work)? {
            let text = format!("the service was interrupted and this client's work cannot be repeated safely: {why}");
            self.fault(inner, &Fault { result: result::LAUNCH_FAILED, text });
        } else {
            for interrupted in self.shared.cards.recover(self.client()) {
                match interrupted {
                    Interrupted::Resume { stream_token, resume } => {
                        if let Some((_, progress)) = oldest.as_mut().filter(|(lead, _)| *lead == suspicion::of_token(stream_token)) {
                            *progress = resume.done.iter().map(|word| u64::from(word.count_ones())).sum();
                        }
                        inner.queues.resumes.insert(stream_token, resume);
                    }
                    Interrupted::Lost { stream_token, why } => {
                        // What is no longer pending was done and reported.
                        if left.work.iter().any(|entry| entry.token == stream_token) {
                            let text = format!("the service was interrupted and this client's work cannot be repeated safely: {why}");
                            self.fault(inner, &Fault { result: result::LAUNCH_FAILED, text });
                        }
                    }
                }
            }
        }
        let case = if inner.objects.fault.is_some() { Case::default() } else { Case::open(&inner.journal, oldest, terms.ended) };
        if self.shared.cards.capabilities().resumes_kernels {
            // It is counted, and nothing of it is with a device now. Elsewhere it stays in doubt.
            inner.queues.streams.keys().for_each(|index| inner.journal.set_submitted(*index, 0));
        }
        if !inner.phase.is_on_hold() {
            let mut all: Vec<u32> = inner.queues.streams.keys().copied().collect();
            self.drive(inner, &mut all, Caller::Intake);
            self.pass_barriers(inner);
        }
        Ok(case)
    }

    /// A module that this executor has already need not be read.
    fn restore_module(&self, id: u32, spec: &ModuleSpec) -> Result<ModuleInfo, ExecutorError> {
        let (device_index, variables) = (self.device_index(spec.device).unwrap_or(0), &mut Restored(&spec.variables));
        if let Some(hash) = ImageHash::from_hex(&spec.image)
            && let Some(info) = self.shared.cards.adopt_module(self.client(), device_index, id, hash, variables)?
        {
            return Ok(info);
        }
        let image = self.shared.read_image(&spec.image, &[self.client()], u64::MAX)?;
        let image = image.ok_or_else(|| ExecutorError::Damaged(format!("the image of module {id} is not in the keeper")))?;
        let bytes = (*image).as_ref();
        // The name is what its content was hashed to when it was stored.
        let image = ImageHash::from_hex(&spec.image).map_or_else(|| Image::of(bytes), |hash| Image { bytes, hash });
        Ok(self.shared.cards.load_module(self.client(), device_index, id, image, variables)?)
    }

    /// The oldest piece of stream work that the predecessor had given to the device, and no blocks
    /// of it.
    fn oldest_under_way(&self, inner: &Inner) -> Option<(Lead, u64)> {
        let begun = inner.queues.streams.iter().filter_map(|(index, stream)| {
            let (token, seq) = stream.oldest()?;
            (seq <= inner.journal.submitted(*index)).then_some(token)
        });
        begun.min().map(|token| (suspicion::of_token(token), 0))
    }

    /// Why work that was with a device without marks cannot be done again. Marks are kept for a
    /// client's first device alone.
    fn in_doubt(&self, inner: &Inner, work: &[WorkEntry]) -> Result<Option<String>, ExecutorError> {
        let has_marks = |stream: u32| {
            let device = inner.objects.streams.get(&stream).map_or(0, |spec| spec.device);
            device == 0 && self.shared.cards.capabilities().resumes_kernels
        };
        let mut doubtful = Vec::new();
        for entry in work {
            let record = record::decode(&entry.record).map_err(|e| ExecutorError::Damaged(e.to_string()))?;
            let (stream, seq) = (record.header.stream, record.header.seq);
            if record.op.in_stream() && !has_marks(stream) && seq > inner.journal.completed(stream) && seq <= inner.journal.submitted(stream) {
                doubtful.push(record.op);
            }
        }
        Ok(replay_safety::why_not(doubtful.iter()))
    }

    /// Maps what the keeper has of this session and permits what the objects say. Where it fails,
    /// what could not be had is not among the objects.
    fn restore_memory(self: &Arc<Self>, inner: &mut Inner) -> Result<(), ExecutorError> {
        let needs_nothing = inner.objects.need_no_memory();
        if needs_nothing && inner.journal.taken() == 0 {
            // Nobody has served it before: nothing of it is kept, and it need not wait for a
            // keeper.
            return Ok(());
        }
        let (reservations, mappings) = (std::mem::take(&mut inner.objects.reservations), std::mem::take(&mut inner.objects.mappings));
        let items: Vec<Item> = match self.shared.ask_keeper(|keeper| keeper.list(self.config.id)) {
            Ok(items) => items,
            // The keeper has died, too. A client without device memory has lost nothing by that.
            Err(_) if needs_nothing => Vec::new(),
            Err(error) => return Err(error),
        };
        self.restore_links(inner);
        let images = self.images(inner);
        for item in items {
            if let Some(recipes) = recipes::read(&item) {
                recipes.into_iter().for_each(|(device_index, recipes)| self.shared.cards.inherit_recipes(self.client(), device_index, recipes));
                continue;
            }
            let note = ExtentNote::read(&item.note);
            let bytes = note.bytes;
            if let Some(address) = item.key.strip_prefix(EXTENT_KEY).and_then(|a| u64::from_str_radix(a, 16).ok()) {
                let file = item.descriptors.into_iter().next().ok_or_else(|| ExecutorError::Damaged(format!("{} has no descriptor", item.key)))?;
                let file = self.restore_extent(address, note, file, self.mark_of(inner, address, bytes))?;
                inner.memory.heap.add_extent(address, bytes);
                inner.memory.extents.insert(address, (file, note));
            } else if let Some(address) = item.key.strip_prefix(BORROWED_KEY).and_then(|a| u64::from_str_radix(a, 16).ok()) {
                let mark = inner.objects.borrowed.values().find(|borrowed| borrowed.extent == (address, bytes)).map(|borrowed| borrowed.mark);
                match (mark, item.descriptors.into_iter().next()) {
                    (Some(mark), Some(file)) => {
                        let file = self.restore_extent(address, note, file, Some(mark))?;
                        inner.memory.borrowed.insert(address, (file, note, 0));
                    }
                    // The predecessor has kept it for a loan that was never committed, or is over.
                    _ => self.shared.drop_kept(self.config.id, &item.key),
                }
            } else if let Some(image) = item.key.strip_prefix(IMAGE_KEY) {
                match (images.get(image), item.descriptors.into_iter().next()) {
                    (Some(modules), Some(file)) => self.shared.restore_image(self.client(), image, *modules, Some(file)),
                    // Stored by the predecessor for a module that was never committed.
                    (None, _) => self.shared.drop_kept(self.config.id, &item.key),
                    (Some(_), None) => {}
                }
            } else if let Some(handle) = item.key.strip_prefix("physical-").and_then(|h| h.parse::<u32>().ok())
                && let Some(file) = item.descriptors.into_iter().next()
            {
                if let Some((device, _)) = inner.objects.physical.get(&handle) {
                    if !inner.objects.shared_physical.get(&handle).is_some_and(|shared| shared.borrowed) {
                        self.charge_again(self.device_index(*device).unwrap_or(0), bytes);
                    }
                    inner.memory.physical.insert(handle, Arc::new(file));
                } else {
                    // Made by the predecessor, never committed.
                    self.shared.drop_kept(self.config.id, &physical_key(handle));
                }
            }
        }
        for (device, bytes) in inner.objects.charges.values() {
            self.charge_again(self.device_index(*device).unwrap_or(0), *bytes);
        }
        let damaged = |what: &str, address: u64| ExecutorError::Damaged(format!("{what} at {address:#x} cannot be restored"));
        for (address, bytes) in inner.objects.allocations.clone() {
            if !self.restore_range(inner, 0, address, bytes) {
                return Err(damaged("the allocation", address));
            }
        }
        self.restore_loans(inner)?;
        let variables = inner.objects.modules.values().flat_map(|module| module.variables.iter().map(|(_, address, bytes)| (*address, *bytes, module.device)));
        let mut variables: Vec<(u64, u64, u32)> = variables.collect();
        // What lies in the window is charged from its beginning on.
        variables.sort_unstable();
        for (address, bytes, device) in variables {
            if !self.restore_range(inner, device, address, bytes) {
                return Err(damaged("the variable", address));
            }
        }
        for (address, bytes) in reservations {
            if !self.shared.arena.lock().claim(address, bytes) {
                return Err(damaged("the reservation", address));
            }
            inner.objects.reservations.insert(address, bytes);
        }
        for (address, mapped) in mappings {
            let file = inner.memory.physical.get(&mapped.handle).ok_or_else(|| damaged("the mapping", address))?;
            let device_index = inner.objects.physical.get(&mapped.handle).and_then(|(device, _)| self.device_index(*device)).unwrap_or(0);
            self.shared.cards.map(device_index, address, file.as_fd(), mapped.offset, mapped.bytes)?;
            inner.objects.mappings.insert(address, mapped);
            self.restore_peers_of(&mapped, address, file.as_fd())?;
            if mapped.access != 0 {
                self.shared.cards.allow_own(self.client(), address, mapped.bytes, mapped.access == 3);
            }
        }
        Ok(())
    }

    /// The images of its modules, and how many modules are of each.
    fn images(&self, inner: &Inner) -> BTreeMap<String, usize> {
        let mut images = BTreeMap::new();
        inner.objects.modules.values().for_each(|spec| *images.entry(spec.image.clone()).or_default() += 1);
        images
    }

    /// Puts accepted work back into its streams, and barriers where they were.
    fn restore_work(&self, inner: &mut Inner, work: &[WorkEntry]) -> Result<(), ExecutorError> {
        for entry in work {
            let decoded = record::decode(&entry.record).map_err(|e| ExecutorError::Damaged(e.to_string()))?;
            let header = decoded.header;
            if decoded.op.in_stream() {
                if header.seq <= inner.journal.completed(header.stream) {
                    inner.journal.retire(entry.token);
                } else if let Some(stream) = inner.queues.streams.get_mut(&header.stream) {
                    stream.push(entry.token, header.seq, decoded.op);
                    inner.status.in_flight += 1;
                }
            } else {
                let waits = match decoded.op {
                    Op::StreamDestroy { index } => inner.queues.streams.get(&index).map(|s: &Stream| (index, s.last())).into_iter().collect(),
                    _ => inner.queues.streams.iter().filter(|(_, s)| !s.is_idle()).map(|(i, s)| (*i, s.last())).collect(),
                };
                inner.queues.barriers.push_back(Barrier { waits, header, op: decoded.op, token: entry.token });
            }
        }
        let done: Vec<(u32, u64)> = inner.queues.streams.iter().map(|(index, stream)| (*index, stream.done())).collect();
        for (index, done) in done {
            self.service.set_completed(index, done);
        }
        Ok(())
    }
}
