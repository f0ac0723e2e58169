//! What is slow (loading modules, pinning memory, making extents, raising limits) is done on [other
//! threads](crate::workers). The client's ring waits meanwhile; other clients do not.

use crate::arena::GRANULE;
use crate::error::ExecutorError;
use crate::heap::Heap;
use crate::memory::extent_size;
use crate::objects::{Change, ModuleSpec, PartitionSpec};
use crate::session::{Inner, PreparedExtent, Session, now_ns};
use crate::shared::{answer, answer_with, result_of};
use crate::suspicion;
use cumux_device::{DeviceError, GlobalsAllocator, Image, ImageHash, ModuleInfo};
use cumux_ring::file::Constant;
use cumux_ring::page::Answer;
use cumux_wire::layout::{self, DeviceIndex};
use cumux_wire::record::{Header, Op};
use cumux_wire::result;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

/// Largest image a client may send, in bytes.
const MAX_IMAGE: u64 = 4 << 30;

/// Images of fewer bytes are not compared with those that are known.
const LEAST_COMPARED: u64 = 64 << 10;
/// So many bytes of an image are compared at a time: they stay in the processor's cache.
const COMPARED_AT_ONCE: usize = 64 << 10;

/// Characters of the reason why a module is not resumable.
const LONGEST_REASON: usize = 300;

/// A `ModuleLoad` record.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    pub header: Header,
    pub end: u64,
    pub module: u32,
    pub device: u32,
    pub image: u64,
    pub image_bytes: u64,
    pub info: u64,
    pub info_bytes: u64,
}

/// Does it on a thread of its own and commits what comes of it; no record is read until then. False
/// when the system has no thread for it: nothing happens.
#[must_use]
pub fn run_request(
    session: &Arc<Session>,
    inner: &mut Inner,
    header: Header,
    end: u64,
    work: impl FnOnce(&Arc<Session>) -> (Change, Answer) + Send + 'static,
) -> bool {
    let own = session.clone();
    // It commits under the session's lock, which is held here.
    let given = session.shared.workers.run_soon(move || {
        let (change, reply) = work(&own);
        own.finish_request(&header, end, change, reply);
    });
    if given {
        if let Some(reading) = inner.phase.as_reading() {
            reading.begin_request();
        }
        inner.meter.request.begin(now_ns);
        suspicion::note_request(&inner.journal, end);
    }
    given
}

/// Loads in the background.
#[must_use]
pub fn load(session: &Arc<Session>, inner: &mut Inner, request: Request) -> bool {
    run_request(session, inner, request.header, request.end, move |session| session.try_load(&request))
}

/// Makes a piece of the window reachable, in the background like a module.
#[must_use]
pub fn use_window(session: &Arc<Session>, inner: &mut Inner, header: Header, end: u64, address: u64, bytes: u64) -> bool {
    run_request(session, inner, header, end, move |session| {
        if !session.in_window(address, bytes) {
            return (Change::Nothing, answer(result::INVALID_VALUE));
        }
        match session.shared.cards.use_window(session.client(), address, bytes) {
            Ok(()) => (Change::Window { address, bytes }, answer(result::SUCCESS)),
            Err(error) => (Change::Nothing, answer(error.result())),
        }
    })
}

/// Gives a part of the window another address, in the background like a module.
#[must_use]
pub fn alias(session: &Arc<Session>, inner: &mut Inner, header: Header, end: u64, user: u64, window: u64, bytes: u64) -> bool {
    run_request(session, inner, header, end, move |session| {
        if !session.in_window(window, bytes) {
            return (Change::Nothing, answer(result::INVALID_VALUE));
        }
        match session.shared.cards.alias(session.client(), user, window, bytes) {
            Ok(()) => (Change::Alias { user, window, bytes }, answer(result::SUCCESS)),
            Err(error) => {
                tracing::warn!("session {}: memory of the host at {user:#x}: {error}", session.config.id);
                (Change::Nothing, answer(error.result()))
            }
        }
    })
}

/// Allocates memory for which an extent has to be made, in the background like a module.
#[must_use]
pub fn allocate(session: &Arc<Session>, inner: &mut Inner, header: Header, end: u64, device: u32, bytes: u64, align: u64) -> bool {
    run_request(session, inner, header, end, move |session| {
        let allocate = || {
            session.prepare_allocation(device, bytes, align);
            session.lock_then_deliver(
                |inner| {
                    if inner.phase.is_closed() { Err(result::NOT_INITIALIZED) } else { session.allocate(inner, device, bytes, align) }
                },
            )
        };
        let done = session.shared.departures.retry(|| session.shared.with_patience(allocate));
        session.drop_prepared();
        match done {
            Ok(address) => (Change::Alloc { address, bytes }, answer_with(result::SUCCESS, address, 0)),
            Err(code) => (Change::Nothing, answer(code)),
        }
    })
}

/// Makes physical memory, in the background like a module.
#[must_use]
pub fn create(session: &Arc<Session>, inner: &mut Inner, header: Header, end: u64, handle: u32, device: u32, bytes: u64) -> bool {
    run_request(session, inner, header, end, move |session| {
        let create = || {
            session.prepare_physical(device, bytes);
            session.lock_then_deliver(|inner| {
                if inner.phase.is_closed() || inner.phase.is_elsewhere() {
                    return Err(result::NOT_INITIALIZED);
                }
                let (change, code) = session.physical_create(inner, handle, device, bytes);
                if code == result::SUCCESS { Ok(change) } else { Err(code) }
            })
        };
        let done = session.shared.departures.retry(|| session.shared.with_patience(create));
        session.drop_prepared();
        done.map_or_else(|code| (Change::Nothing, answer(code)), |change| (change, answer(result::SUCCESS)))
    })
}

/// Opens what another client has lent, in the background: the keeper must have it, too.
#[must_use]
pub fn borrow(session: &Arc<Session>, inner: &mut Inner, header: Header, end: u64, op: &Op) -> bool {
    let op = op.clone();
    run_request(session, inner, header, end, move |session| {
        let attempt = || {
            session.lock_then_deliver(|inner| {
                if inner.phase.is_closed() || inner.phase.is_elsewhere() {
                    return Ok((Change::Nothing, answer(result::LOST)));
                }
                let (change, reply) = match op {
                    Op::Borrow { token, kind } => session.borrow(inner, token, kind),
                    Op::VmmBorrow { handle, token } => session.borrow_physical(inner, handle, token),
                    _ => (Change::Nothing, answer(result::INVALID_VALUE)),
                };
                // Without a keeper there may be one soon.
                if reply.result == result::UNKNOWN { Err(Box::new((change, reply))) } else { Ok((change, reply)) }
            })
        };
        session.shared.with_patience(attempt).unwrap_or_else(|refused| *refused)
    })
}

/// Makes a part of the client's share, in the background: on a card that waits for what runs.
#[must_use]
pub fn open_partition(session: &Arc<Session>, inner: &mut Inner, header: Header, end: u64, number: u32, spec: PartitionSpec) -> bool {
    run_request(session, inner, header, end, move |session| {
        let device_index = session.device_index(spec.device).unwrap_or(0);
        match session.shared.cards.open_partition(session.client(), device_index, number, &spec) {
            Ok(()) => (Change::Partition { number, spec }, answer(result::SUCCESS)),
            Err(error) => {
                tracing::warn!("session {}: a partition of {} multiprocessors: {error}", session.config.id, spec.multiprocessors);
                (Change::Nothing, answer(error.result()))
            }
        }
    })
}

/// Raises a limit of the client's contexts, in the background: on a card that waits for what runs.
#[must_use]
pub fn set_limit(session: &Arc<Session>, inner: &mut Inner, header: Header, end: u64, limit: u32, value: u64) -> bool {
    run_request(session, inner, header, end, move |session| match session.shared.cards.set_limit(session.client(), limit, value) {
        Ok(()) => (Change::Limit { limit, value }, answer(result::SUCCESS)),
        Err(error) => (Change::Nothing, answer(error.result())),
    })
}

/// Where a new module's variables go.
pub(crate) struct New<'a> {
    session: &'a Session,
    device: u32,
    placed: Vec<(String, u64, u64)>,
    not_resumable: Option<String>,
}

impl New<'_> {
    /// Memory for the variables of a module that this session loads on a device.
    pub(crate) fn on(session: &Session, device: u32) -> New<'_> {
        New { session, device, placed: Vec::new(), not_resumable: None }
    }
}

impl GlobalsAllocator for New<'_> {
    fn variable(&mut self, name: &str, bytes: u64, align: u64, managed: bool) -> Result<(u64, bool), DeviceError> {
        let session = self.session;
        let address = if managed {
            let address = session.lock_then_deliver(|inner| {
                if inner.phase.is_closed() || inner.phase.is_elsewhere() {
                    return Err(DeviceError::LetGo(format!("the session goes on elsewhere: no memory for variable {name}")));
                }
                session.managed(inner, self.device, bytes, align)
            })?;
            // Code has the address; no announcement of the client's and no parameter names it.
            session.shared.cards.use_window(session.client(), address, bytes.max(1))?;
            address
        } else {
            let (bytes, align) = (bytes.max(1), align.max(1));
            let allocate = || {
                session.prepare_allocation(self.device, bytes, align);
                session.lock_then_deliver(|inner| {
                    if inner.phase.is_closed() || inner.phase.is_elsewhere() {
                        return Ok(None);
                    }
                    session.allocate(inner, self.device, bytes, align).map(Some)
                })
            };
            let allocated = session.shared.with_patience(allocate);
            session.drop_prepared();
            match allocated {
                Ok(Some(address)) => address,
                Ok(None) => return Err(DeviceError::LetGo(format!("the session goes on elsewhere: no memory for variable {name}"))),
                Err(_) => return Err(DeviceError::OutOfMemory(format!("{bytes} bytes for variable {name}"))),
            }
        };
        self.placed.push((name.to_owned(), address, bytes));
        Ok((address, false))
    }

    /// The session does not leave meanwhile. It may have left already: then its next executor loads
    /// the module again, and the memory may be another variable's by now.
    fn fill(&mut self, write: &mut dyn FnMut() -> Result<(), DeviceError>) -> Result<(), DeviceError> {
        let session = self.session;
        let begins = session.lock_then_deliver(|inner| {
            let is_ours = !inner.phase.is_closed() && !inner.phase.is_elsewhere();
            inner.fillings += u32::from(is_ours);
            is_ours
        });
        if !begins {
            return Err(DeviceError::LetGo("the session goes on elsewhere: its variables are not filled here".into()));
        }
        let _filling = Filling(session);
        write()
    }

    fn not_resumable(&mut self, why: &str) {
        // It has names out of the client's image.
        self.not_resumable = Some(cumux_link::escape_foreign(why, LONGEST_REASON));
    }
}

/// Variables of this session are being filled, until this is dropped: a panic of the device's code
/// must not keep the session here for good.
struct Filling<'a>(&'a Session);

impl Drop for Filling<'_> {
    fn drop(&mut self) {
        self.0.lock_then_deliver(|inner| inner.fillings -= 1);
    }
}

/// Where a module's variables are since before a takeover.
pub struct Restored<'a>(pub &'a [(String, u64, u64)]);

impl GlobalsAllocator for Restored<'_> {
    fn variable(&mut self, name: &str, bytes: u64, _align: u64, _managed: bool) -> Result<(u64, bool), DeviceError> {
        let found = self.0.iter().find(|(n, _, b)| n == name && *b == bytes);
        found.map(|(_, address, _)| (*address, true)).ok_or_else(|| DeviceError::Invalid(format!("variable {name} was not there before")))
    }

    fn is_restoring(&self) -> bool {
        true
    }
}

impl Session {
    /// Makes the extent that an allocation of `bytes` bytes will need, if it needs one. The card
    /// takes its time for that, beside a kernel that does not end for ever: so nobody waits for the
    /// session's lock meanwhile, and the session can go on elsewhere. What goes wrong here goes
    /// wrong once more when the allocation is made, which says so.
    pub(crate) fn prepare_allocation(&self, device: u32, bytes: u64, align: u64) {
        let Some((device_index, rounded)) = self.device_index(device).zip(Heap::rounded(bytes)) else { return };
        self.prepare_extent(device, device_index, |inner| {
            let fits = inner.memory.heap.fits(bytes, align, &layout::arena_window(device_index));
            let exact = rounded.checked_next_multiple_of(GRANULE).filter(|_| !fits)?;
            Some((rounded, extent_size(inner, device_index, exact)))
        });
    }

    /// Makes physical memory of so many bytes, as [`Session::prepare_allocation`] does it.
    pub(crate) fn prepare_physical(&self, device: u32, bytes: u64) {
        let Some(device_index) = self.device_index(device).filter(|_| bytes.is_multiple_of(GRANULE) && bytes > 0) else { return };
        self.prepare_extent(device, device_index, |_| Some((bytes, bytes)));
    }

    /// Makes an extent if `need` says so: what will be charged for it, and its size.
    fn prepare_extent(&self, device: u32, device_index: DeviceIndex, need: impl FnOnce(&Inner) -> Option<(u64, u64)>) {
        let needed = self.lock_then_deliver(|inner| if inner.phase.is_closed() || inner.phase.is_elsewhere() { None } else { need(inner) });
        let Some((charged, bytes)) = needed else { return };
        // Nothing is made that the client's limit does not allow.
        if !self.would_be_charged(device, charged) {
            return;
        }
        // One that an earlier attempt has left goes first: there may be no memory for both.
        self.drop_prepared();
        if let Ok(file) = self.shared.create_extent(device_index, bytes) {
            *self.prepared.lock() = Some(PreparedExtent { device_index, bytes, file });
        }
    }

    /// Commits what was done in the background and lets the ring go on.
    fn finish_request(self: &Arc<Self>, header: &Header, end: u64, change: Change, reply: Answer) {
        let committed = self.lock_then_deliver(|inner| {
            // A session that was let go of belongs to its next executor, which does this again, and
            // may be at it: nothing of it is touched.
            if inner.phase.is_closed() || inner.phase.is_elsewhere() {
                return false;
            }
            if let Some(requesting) = inner.phase.as_requesting() {
                requesting.end_request();
            }
            suspicion::note_request(&inner.journal, 0);
            if !inner.trial.is_empty() {
                self.lead_is_over(inner, suspicion::of_request(end));
            }
            inner.meter.request.end(now_ns);
            self.save_counters(inner);
            match inner.objects.fault.as_ref().map(|(code, _)| *code) {
                Some(code) => self.commit(inner, Change::Nothing, end, Some((header, answer(code)))),
                None => self.commit(inner, change, end, Some((header, reply))),
            }
            true
        });
        if !committed {
            return;
        }
        self.service.notify();
        self.shared.wake_intake(self.client());
    }

    fn try_load(&self, request: &Request) -> (Change, Answer) {
        if request.image_bytes > MAX_IMAGE || !self.in_window(request.image, request.image_bytes) || !self.in_window(request.info, request.info_bytes) {
            return (Change::Nothing, answer(result::INVALID_VALUE));
        }
        let begun = Instant::now();
        let (file, image, hash) = match self.take_image(request) {
            Ok(taken) => taken,
            Err(error) => return (Change::Nothing, self.explain(request, result_of(&error), &error.to_string())),
        };
        let taken = begun.elapsed();
        let image = Image { bytes: image.as_ref(), hash };
        let mut allocator = New::on(self, request.device);
        let device_index = self.device_index(request.device).unwrap_or(0);
        let loaded = match self.shared.cards.adopt_module(self.client(), device_index, request.module, image.hash, &mut allocator) {
            Ok(None) => self.shared.cards.load_module(self.client(), device_index, request.module, image, &mut allocator),
            Ok(Some(info)) => Ok(info),
            Err(error) => Err(error),
        };
        let New { placed, not_resumable, .. } = allocator;
        let loaded = loaded.map_err(|e| (e.result(), e.to_string())).and_then(|info| {
            self.lock_then_deliver(|inner| {
                inner.confinement.add_module(request.module, &info);
                inner.used_kernels.add_module(request.module, &info, &BTreeSet::new());
            });
            self.deliver(request, &info)
        });
        let loading = begun.elapsed().saturating_sub(taken);
        let stored = loaded.and_then(|written| {
            let name = self.shared.store_image(self.client(), image.hash, &file).map_err(|e| (result_of(&e), e.to_string()))?;
            Ok((written, name))
        });
        let (client, bytes) = (self.client(), request.image_bytes);
        tracing::debug!(client, bytes, ?taken, ?loading, took = ?begun.elapsed(), "a client's module");
        match stored {
            Ok((written, image)) => {
                self.tell_not_resumable(request.module, not_resumable.as_deref());
                let spec = ModuleSpec { image, device: request.device, variables: placed, settings: Vec::new(), not_resumable, used: BTreeSet::new() };
                (Change::Module { id: request.module, spec }, answer_with(result::SUCCESS, written, 0))
            }
            Err((code, text)) => {
                self.shared.cards.unload_module(self.client(), request.module);
                let has_left = self.lock_then_deliver(|inner| {
                    let has_left = inner.phase.is_closed() || inner.phase.is_elsewhere();
                    for (_, address, bytes) in placed.into_iter().filter(|_| !has_left) {
                        self.give_back(inner, address, bytes);
                    }
                    has_left
                });
                // What the memory holds is its next executor's to say.
                if has_left {
                    return (Change::Nothing, answer(result::LOST));
                }
                let needed = text.strip_prefix("needs ").and_then(|n| n.parse().ok());
                match needed {
                    Some(needed) => (Change::Nothing, answer_with(result::INVALID_VALUE, 0, needed)),
                    None => (Change::Nothing, self.explain(request, code, &text)),
                }
            }
        }
    }

    /// An image in the client's window as a file that nobody can change, because the client may
    /// change its window at any time. The file is kept, too.
    ///
    /// Programs that serve the same models bring the same images. One that is known already is
    /// neither copied nor named again, which takes longer than looking at it once (decision 0116).
    /// Known files that cannot be read are passed over: the copy will do.
    pub(crate) fn take_image(&self, request: &Request) -> Result<(Arc<OwnedFd>, Constant, ImageHash), ExecutorError> {
        if request.image_bytes >= LEAST_COMPARED {
            let known = self.shared.images.images.lock().of_length(request.image_bytes);
            for (name, file) in known {
                let (Some(hash), Ok(image)) = (ImageHash::from_hex(&name), Constant::of(&file)) else { continue };
                if image.as_ref().len() as u64 == request.image_bytes && self.has_image(request, image.as_ref())? {
                    return Ok((file, image, hash));
                }
            }
        }
        let copy = |at: u64, piece: &mut [u8]| self.shared.cards.read(self.client(), request.image + at, piece).map_err(ExecutorError::from);
        let file = cumux_ring::file::create_constant("cumux-image", request.image_bytes, copy)?;
        let image = Constant::of(&file)?;
        let hash = ImageHash::of(image.as_ref());
        Ok((Arc::new(file), image, hash))
    }

    /// True if these bytes were in the client's window. Each is read once: whatever the client does
    /// meanwhile, each was there.
    fn has_image(&self, request: &Request, image: &[u8]) -> Result<bool, ExecutorError> {
        let mut piece = vec![0; COMPARED_AT_ONCE.min(image.len())];
        let mut at = request.image;
        for expected in image.chunks(COMPARED_AT_ONCE) {
            let piece = &mut piece[..expected.len()];
            self.shared.cards.read(self.client(), at, piece)?;
            if piece != expected {
                return Ok(false);
            }
            at += expected.len() as u64;
        }
        Ok(true)
    }

    /// Says once for each reason that the client ends with this executor.
    fn tell_not_resumable(&self, module: u32, why: Option<&str>) {
        let Some(why) = why else { return };
        let said = self.lock_then_deliver(|inner| inner.objects.modules.values().any(|spec| spec.not_resumable.as_deref() == Some(why)));
        if !said {
            let (pid, program) = (self.config.pid, &self.config.program);
            tracing::warn!("client process {pid} ({program}) would end with an error if this executor were replaced, because of its module {module}: {why}");
        }
    }

    /// Writes the module's description where the client wants it; an error text "needs N" if it
    /// does not fit.
    fn deliver(&self, request: &Request, info: &ModuleInfo) -> Result<u64, (u32, String)> {
        let encoded = info.encode();
        if encoded.len() as u64 > request.info_bytes {
            return Err((result::INVALID_VALUE, format!("needs {}", encoded.len())));
        }
        self.write_info(request, &encoded).map_err(|e| (e.result(), e.to_string()))?;
        Ok(encoded.len() as u64)
    }

    /// Writes into the client's window what it is told of a module. Under the session's lock: once
    /// the session has left its next executor writes there.
    fn write_info(&self, request: &Request, bytes: &[u8]) -> Result<(), DeviceError> {
        self.lock_then_deliver(|inner| {
            if inner.phase.is_closed() || inner.phase.is_elsewhere() {
                return Err(DeviceError::LetGo("its next executor loads the module".into()));
            }
            self.shared.cards.write(self.client(), request.info, bytes)
        })
    }

    /// Writes the diagnostic where the description would have been.
    fn explain(&self, request: &Request, code: u32, text: &str) -> Answer {
        tracing::info!("session {}: a module was refused: {text}", self.config.id);
        let room = usize::try_from(request.info_bytes).unwrap_or(0).min(text.len());
        let text = &text.as_bytes()[..room];
        let written = if self.write_info(request, text).is_ok() { room as u64 } else { 0 };
        answer_with(code, written, 0)
    }
}
