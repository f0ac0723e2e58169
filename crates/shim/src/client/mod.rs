//! The session of this process: one ring, one page, one window, and everything the program has made.
//!
//! - [`connect`] says hello; [`enter`] is the first line of every implementation that needs the service.
//! - [`Session::submit`] and [`Session::call`] are the only ways to the executor; both number and push under one short lock ([`pipe`]).
//! - No wait hangs: every 100 ms the server is looked at ([`liveness`]); without hope the session is lost for good and every call returns
//!   `CUDA_ERROR_MPS_RPC_FAILURE`.
//! - Lock order: object locks before the pipe; the pipe's lock is never held while waiting for anything but room in the ring.

mod connect;
pub mod liveness;
pub mod pipe;
pub mod staging;
pub mod window;

#[cfg(test)]
pub(crate) use connect::adopt;
pub use connect::{Verdict, connect};

use crate::context::Context;
use crate::device::Device;
use crate::ffi::{Try, error};
use crate::handle::{Kind, Table};
use crate::log;
use crate::memory::Allocations;
use cumux_abi::CUresult;
use cumux_ring::client::{Client, Scheduling};
use cumux_ring::window::Window;
use cumux_wire::layout::{STREAMS, WINDOW_BYTES, WINDOW_MANAGED_BYTES, page, window_address};
use cumux_wire::message::DeviceFacts;
use cumux_wire::record::{Launch, NO_ANSWER, Op};
use liveness::Liveness;
use pipe::{LaneId, Pipe, PushError, Role};
use staging::Staging;
use std::cell::Cell;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// How often a waiter looks whether anybody is still there.
const LOOK: Duration = Duration::from_millis(100);

/// What the welcome brought.
#[derive(Debug)]
pub struct Files {
    pub session: u32,
    pub window_slot: u32,
    pub devices: Vec<DeviceFacts>,
    /// Its parts are static partitions.
    pub fixed: bool,
    /// Bytes of each device's memory that it may have, 0 = no limit.
    pub limits: Vec<u64>,
    pub ring: OwnedFd,
    pub page: OwnedFd,
    pub window: OwnedFd,
    pub doorbell: OwnedFd,
    pub server: OwnedFd,
    pub keeper: OwnedFd,
}

/// What a card reaches of a window from the beginning, and the pieces it is told of later.
const WINDOW_FIRST: u64 = 16 << 20;
const WINDOW_PIECE: u64 = 32 << 20;

/// The one session of a served process.
#[derive(Debug)]
pub struct Session {
    pub id: u32,
    ring: Client,
    pub window: Window,
    window_file: OwnedFd,
    heap: Mutex<window::Heap>,
    staging: Mutex<Staging>,
    pipe: Mutex<Pipe>,
    slot_freed: Condvar,
    liveness: Mutex<Liveness>,
    lost: OnceLock<()>,
    /// Its error has been told.
    told: OnceLock<()>,
    initialized: OnceLock<()>,
    text: Mutex<Vec<u8>>,
    pub devices: Vec<Device>,
    pub contexts: Table<Context>,
    pub streams: Table<crate::stream::Stream>,
    pub events: Table<crate::event::Event>,
    pub modules: Table<crate::module::Module>,
    pub functions: Table<crate::function::Function>,
    pub libraries: Table<crate::library::Library>,
    pub kernels: Table<crate::library::Kernel>,
    pub allocations: RwLock<Allocations>,
    pub pools: Table<crate::pool::Pool>,
    pub device_pools: Mutex<Vec<crate::pool::OfDevice>>,
    pub physical: Table<crate::vmm::Physical>,
    pub ranges: Mutex<crate::vmm::Ranges>,
    pub graphs: Table<crate::graph::Graph>,
    pub nodes: Table<crate::graph::Node>,
    pub execs: Table<crate::graph::Exec>,
    pub links: Table<crate::link::Link>,
    pub user_objects: Table<crate::graph::UserObject>,
    pub captures: Mutex<Vec<Arc<crate::capture::Capture>>>,
    pub event_cells: Mutex<crate::event::Cells>,
    pub callbacks: crate::callback::Callbacks,
    numbers: Mutex<u64>,
    /// Whether the device is a card and not the software GPU.
    real_card: bool,
    /// Its contexts have shares of their own (`CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING`).
    pub per_context: bool,
    limits: Vec<u64>,
    /// End of what the card was told of.
    announced: Mutex<u64>,
    window_end: u64,
}

thread_local! {
    /// Set on the thread that runs host callbacks: CUDA calls are forbidden there.
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Marks the calling thread as the one that runs host callbacks.
pub(crate) fn mark_callback_thread() {
    IN_CALLBACK.set(true);
}

/// The session, for calls that are answered even when it has gone wrong.
///
/// # Errors
/// NOT_INITIALIZED before `cuInit`.
pub fn look() -> Try<&'static Session> {
    connect::session().filter(|session| session.initialized.get().is_some()).ok_or(error::NOT_INITIALIZED)
}

/// The session, even before `cuInit`.
#[must_use]
pub fn greeted() -> Option<&'static Session> {
    connect::session()
}

/// The session, for calls that need it healthy.
///
/// # Errors
/// NOT_INITIALIZED before `cuInit`, NOT_PERMITTED inside a host callback, the sticky error of a client that faulted, MPS_RPC_FAILURE
/// when the service is gone.
pub fn enter() -> Try<&'static Session> {
    let session = look()?;
    if IN_CALLBACK.get() {
        return Err(error::NOT_PERMITTED);
    }
    session.health()?;
    Ok(session)
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    /// Maps the files of a welcome.
    ///
    /// # Errors
    /// A sentence for the log.
    pub fn new(files: Files) -> Result<Self, String> {
        let broken = |what: &str, error: &dyn std::fmt::Display| format!("the {what} of the session cannot be mapped: {error}");
        let ring = Client::map(&files.ring, &files.page, files.doorbell).map_err(|error| broken("ring", &error))?;
        let address = window_address(files.window_slot);
        let window = Window::map(files.window.as_fd(), address, WINDOW_BYTES).map_err(|error| broken("window", &error))?;
        let staged = staging::BYTES.next_multiple_of(window::GRAIN);
        let devices: Vec<Device> = files.devices.into_iter().map(Device::new).collect();
        let real_card = devices.iter().any(|device| device.facts.id.starts_with("cuda:"));
        if devices.is_empty() {
            return Err("the service has no device for this program".to_owned());
        }
        Ok(Self {
            id: files.session,
            // The end of the window is the executor's, for managed variables.
            heap: Mutex::new(window::Heap::new(address + staged, WINDOW_BYTES - WINDOW_MANAGED_BYTES - staged)),
            staging: Mutex::new(Staging::new(address)),
            pipe: Mutex::new(Pipe::new(ring.producer())),
            slot_freed: Condvar::new(),
            liveness: Mutex::new(Liveness::new(files.server, ring.server_pid(), files.keeper)),
            lost: OnceLock::new(),
            told: OnceLock::new(),
            initialized: OnceLock::new(),
            text: Mutex::new(Vec::new()),
            devices,
            contexts: Table::new(Kind::Context),
            streams: Table::new(Kind::Stream),
            events: Table::new(Kind::Event),
            modules: Table::new(Kind::Module),
            functions: Table::new(Kind::Function),
            libraries: Table::new(Kind::Library),
            kernels: Table::new(Kind::Kernel),
            allocations: RwLock::new(Allocations::default()),
            pools: Table::new(Kind::Pool),
            device_pools: Mutex::new(Vec::new()),
            physical: Table::new(Kind::Memory),
            ranges: Mutex::new(crate::vmm::Ranges::default()),
            graphs: Table::new(Kind::Graph),
            nodes: Table::new(Kind::GraphNode),
            execs: Table::new(Kind::GraphExec),
            links: Table::new(Kind::Link),
            user_objects: Table::new(Kind::UserObject),
            captures: Mutex::new(Vec::new()),
            event_cells: Mutex::new(crate::event::Cells::default()),
            callbacks: crate::callback::Callbacks::default(),
            numbers: Mutex::new(0),
            real_card,
            per_context: !files.fixed && std::env::var("CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING").is_ok_and(|text| text.trim() == "1"),
            limits: files.limits,
            announced: Mutex::new(address + WINDOW_FIRST),
            window_end: address + WINDOW_BYTES - WINDOW_MANAGED_BYTES,
            ring,
            window,
            window_file: files.window,
        })
    }

    /// `cuInit` was called.
    pub fn initialize(&self) {
        let _ = self.initialized.set(());
    }

    /// A number nobody else has: ids of contexts, streams, buffers, modules.
    pub fn number(&self) -> u64 {
        let mut numbers = lock(&self.numbers);
        *numbers += 1;
        *numbers
    }

    /// # Errors
    /// The sticky error, or MPS_RPC_FAILURE for a lost session.
    pub fn health(&self) -> Try {
        match self.ring.sticky() {
            0 if self.lost.get().is_none() => Ok(()),
            code => Err(self.trouble(code)),
        }
    }

    /// The session has gone wrong: its error, whose reason is told the first time.
    #[cold]
    fn trouble(&self, code: u32) -> CUresult {
        self.told.get_or_init(|| match (code, self.ring.fault()) {
            (0, _) => log::tell(format_args!("the service is gone: its server and its keeper have ended, and this program is not served any more")),
            (code, text) if text.is_empty() => log::tell(format_args!("the service ended this program's work with error {code}")),
            (_, text) => log::tell(format_args!("{text}")),
        });
        if code == 0 { error::MPS_RPC_FAILURE } else { CUresult(code) }
    }

    fn alive(&self) -> bool {
        let hope = lock(&self.liveness).hopeful(self.ring.server_pid());
        if !hope {
            let _ = self.lost.set(());
            self.ring.wake();
        }
        hope
    }

    /// A session whose records nobody takes any more: why.
    fn gone(&self, error: PushError) -> CUresult {
        match error {
            PushError::Gone => {
                let _ = self.lost.set(());
                self.health().err().unwrap_or(error::MPS_RPC_FAILURE)
            }
            PushError::NoLane => log::because(error::OUT_OF_MEMORY, format!("this program has all of the {STREAMS} streams that there can be")),
        }
    }

    /// While pushing: a faulted client's ring may not be drained any more, so its pushes give up as well.
    fn pushable(&self) -> bool {
        self.ring.sticky() == 0 && self.lost.get().is_none() && self.alive()
    }

    /// Waits until `condition` holds.
    ///
    /// # Errors
    /// The sticky error or MPS_RPC_FAILURE, when that comes first.
    pub fn wait(&self, mut condition: impl FnMut() -> bool) -> Try {
        let troubled = || self.ring.sticky() != 0 || self.lost.get().is_some();
        if condition() {
            return Ok(());
        }
        let mut slept = Duration::ZERO;
        while !self.ring.wait_counting(Some(Instant::now() + LOOK), || condition() || troubled(), &mut slept) && self.alive() {}
        self.ring.waited(slept);
        if condition() { Ok(()) } else { self.health() }
    }

    /// How threads wait from now on; `flags` are a context's (`CU_CTX_SCHED_MASK`, which [`crate::context`] has checked). All contexts of a process wait alike.
    pub fn set_scheduling(&self, flags: u32) {
        self.ring.set_scheduling(match flags & 7 {
            1 => Scheduling::Spin,
            2 => Scheduling::Yield,
            4 => Scheduling::Block,
            _ => Scheduling::Auto,
        });
    }

    /// Like [`Session::wait`], but gives up at `deadline`; returns whether the condition holds.
    pub fn wait_until(&self, deadline: Instant, condition: impl FnMut() -> bool) -> bool {
        self.ring.wait(Some(deadline), condition)
    }

    /// Lets every waiting thread of this process look again.
    pub fn wake(&self) {
        self.ring.wake();
    }

    /// Whether the work with this sequence number is done.
    #[must_use]
    pub fn is_done(&self, lane: LaneId, seq: u64) -> bool {
        // An index is minted again only when its former owner's work is done, and its sequence numbers go on: the comparison stays true.
        self.ring.completed(lane.index) >= seq
    }

    #[must_use]
    pub fn event_ns(&self, cell: u32) -> u64 {
        self.ring.event_ns(cell)
    }

    pub fn set_host_done(&self, lane: LaneId, seq: u64) {
        self.ring.set_host_done(lane.index, seq);
    }

    /// Pushes an operation in a lane; returns its sequence number.
    ///
    /// # Errors
    /// As [`Session::health`].
    pub fn push(&self, lane: LaneId, op: &Op) -> Try<u64> {
        let mut pipe = lock(&self.pipe);
        pipe.submit(&self.ring, lane.index, op, || self.pushable()).map_err(|error| self.gone(error))
    }

    /// Pushes a launch that `fill` writes into a reused record.
    ///
    /// # Errors
    /// As [`Session::health`].
    pub fn push_launch(&self, lane: LaneId, fill: impl FnOnce(&mut Launch)) -> Try<u64> {
        let mut pipe = lock(&self.pipe);
        pipe.submit_launch(&self.ring, lane.index, fill, || self.pushable()).map_err(|error| self.gone(error))
    }

    /// The point in a lane that "everything so far" reaches, joined as the NULL stream's rules ask.
    ///
    /// # Errors
    /// As [`Session::health`].
    pub fn point(&self, lane: LaneId) -> Try<u64> {
        let mut pipe = lock(&self.pipe);
        pipe.join(&self.ring, lane.index, || self.pushable()).map_err(|error| self.gone(error))?;
        Ok(pipe.last(lane.index))
    }

    /// Pushes a record that belongs to no stream and wants no answer.
    ///
    /// # Errors
    /// As [`Session::health`].
    pub fn control(&self, op: &Op) -> Try {
        let mut pipe = lock(&self.pipe);
        pipe.control(&self.ring, NO_ANSWER, 0, op, || self.pushable()).map_err(|error| self.gone(error))
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// The result code of the answer with its words, or as [`Session::health`] with zeros.
    pub fn ask(&self, op: &Op) -> Result<[u64; page::ANSWER_WORDS], (CUresult, [u64; page::ANSWER_WORDS])> {
        let trouble = |code| (code, [0; page::ANSWER_WORDS]);
        let (slot, request) = {
            let mut pipe = lock(&self.pipe);
            let (slot, request) = loop {
                if let Some(taken) = pipe.take_slot() {
                    break taken;
                }
                self.health().map_err(trouble)?;
                pipe = self.slot_freed.wait_timeout(pipe, LOOK).unwrap_or_else(PoisonError::into_inner).0;
            };
            if let Err(error) = pipe.control(&self.ring, slot, request, op, || self.pushable()) {
                pipe.free_slot(slot);
                return Err(trouble(self.gone(error)));
            }
            (slot, request)
        };
        let waited = self.wait(|| self.ring.answer(slot, request).is_some());
        let answer = self.ring.answer(slot, request);
        lock(&self.pipe).free_slot(slot);
        self.slot_freed.notify_one();
        match (answer, waited) {
            (Some(answer), _) if answer.result == 0 => Ok(answer.words),
            (Some(answer), _) => Err((CUresult(answer.result), answer.words)),
            (None, Err(code)) => Err(trouble(code)),
            (None, Ok(())) => Err(trouble(error::UNKNOWN)),
        }
    }

    /// [`Session::ask`] without the words of a failure.
    ///
    /// # Errors
    /// As [`Session::ask`].
    pub fn call(&self, op: &Op) -> Try<[u64; page::ANSWER_WORDS]> {
        self.ask(op).map_err(|(code, _)| code)
    }

    /// A group of lanes for a new context, on a part of this program's share (0 = all of it).
    pub fn new_group(&self, partition: u32) -> u32 {
        lock(&self.pipe).new_group(partition)
    }

    /// Multiprocessors of a device that this program may use: its share, which may change while it runs.
    #[must_use]
    pub fn share(&self, ordinal: u32) -> u32 {
        let all = self.devices.get(ordinal as usize).map_or(0, |device| device.limits.multiprocessors);
        match self.ring.share(ordinal) {
            0 => all,
            share => share.min(all),
        }
    }

    /// A new lane.
    ///
    /// # Errors
    /// OUT_OF_MEMORY when all stream indices are in use; as [`Session::health`].
    pub fn new_lane(&self, group: u32, role: Role, device: u32, priority: i32) -> Try<LaneId> {
        let mut pipe = lock(&self.pipe);
        pipe.create(&self.ring, group, role, device, priority, || self.pushable()).map_err(|error| self.gone(error))
    }

    /// Gives a lane back. Its work still runs.
    pub fn free_lane(&self, lane: LaneId) {
        // Nothing can be done about a session that is gone, and nothing needs to be.
        let _ = lock(&self.pipe).destroy(&self.ring, lane, || self.pushable());
    }

    /// Unfinished points of all lanes of a context, now.
    #[must_use]
    pub fn points(&self, group: u32) -> Vec<(LaneId, u64)> {
        // The epoch does not matter for a point: sequence numbers of an index never go back.
        lock(&self.pipe).unfinished(&self.ring, group).into_iter().map(|(index, seq)| (LaneId { index, epoch: 0 }, seq)).collect()
    }

    /// Waits until everything pushed so far in a context is done.
    ///
    /// # Errors
    /// As [`Session::wait`].
    pub fn drain(&self, group: u32) -> Try {
        let unfinished = lock(&self.pipe).unfinished(&self.ring, group);
        for (index, seq) in unfinished {
            self.wait(|| self.ring.completed(index) >= seq)?;
        }
        self.flush_text();
        crate::pool::settle(self);
        self.health()
    }

    /// Waits until everything pushed so far is done.
    ///
    /// # Errors
    /// As [`Session::wait`].
    pub fn drain_all(&self) -> Try {
        let unfinished = lock(&self.pipe).all_unfinished(&self.ring);
        for (index, seq) in unfinished {
            self.wait(|| self.ring.completed(index) >= seq)?;
        }
        Ok(())
    }

    /// Waits until everything pushed so far in a lane (and whatever its rules join it with) is done.
    ///
    /// # Errors
    /// As [`Session::wait`].
    pub fn drain_lane(&self, lane: LaneId) -> Try {
        let seq = self.point(lane)?;
        self.wait(|| self.is_done(lane, seq))?;
        self.flush_text();
        crate::pool::settle(self);
        self.health()
    }

    /// Whether everything pushed so far in a lane is done.
    ///
    /// # Errors
    /// As [`Session::health`].
    pub fn is_idle(&self, lane: LaneId) -> Try<bool> {
        let seq = self.point(lane)?;
        Ok(self.is_done(lane, seq))
    }

    /// Writes device printf text that has arrived to the program's standard output.
    pub fn flush_text(&self) {
        let mut text = lock(&self.text);
        text.clear();
        self.ring.take_text(&mut text);
        if !text.is_empty() {
            crate::stdout::write(&text);
        }
    }

    /// The file behind the window, for mapping pieces of it elsewhere.
    pub fn window_file(&self) -> &OwnedFd {
        &self.window_file
    }

    /// A piece of the window.
    ///
    /// # Errors
    /// OUT_OF_MEMORY when there is none of that size.
    pub fn take_window(&self, bytes: u64, align: u64) -> Try<u64> {
        lock(&self.heap).take(bytes, align).ok_or_else(|| {
            let why =
                format!("no piece of {bytes} bytes is free in the window of this program: {} GiB for pinned and managed memory and images", WINDOW_BYTES >> 30);
            log::because(error::OUT_OF_MEMORY, why)
        })
    }

    /// A real card reaches only what it was told of: says which part of the window is in use as pinned memory, piece by piece, before anybody uses it.
    ///
    /// # Errors
    /// When the card cannot reach that much; as [`Session::call`].
    pub fn announce_window(&self, end: u64) -> Try {
        if !self.real_card {
            return Ok(());
        }
        let mut announced = lock(&self.announced);
        while end > *announced {
            let piece = WINDOW_PIECE.min(self.window_end - *announced);
            self.call(&Op::WindowUse { address: *announced, bytes: piece })?;
            *announced += piece;
        }
        Ok(())
    }

    /// Gives a piece of the window back, and its pages to the system.
    pub fn give_window(&self, address: u64) {
        let mut heap = lock(&self.heap);
        if let Some(bytes) = heap.give(address) {
            // Under the lock: the next owner of the range must not lose what it writes.
            // A real card would keep the old pages: there they stay.
            if !self.real_card {
                crate::host::punch(address, bytes);
            }
        }
    }

    /// A staging slice for up to `bytes` bytes, waiting for one if need be.
    ///
    /// # Errors
    /// As [`Session::wait`].
    pub fn take_slice(&self, bytes: u64) -> Try<staging::Taken> {
        let attempt = || lock(&self.staging).take(bytes, |lane, seq| self.is_done(lane, seq));
        if let Some(taken) = attempt() {
            return Ok(taken);
        }
        let mut taken = None;
        self.wait(|| {
            taken = taken.or_else(attempt);
            taken.is_some()
        })?;
        taken.ok_or(error::UNKNOWN)
    }

    /// Says until when a slice is in use.
    pub fn slice_until(&self, taken: staging::Taken, work: Option<(LaneId, u64)>) {
        lock(&self.staging).until(taken, work);
        if work.is_none() {
            // Somebody may wait for a slice, and nothing in the page will change.
            self.wake();
        }
    }

    /// The device with this ordinal.
    ///
    /// # Errors
    /// INVALID_DEVICE.
    pub fn device(&self, ordinal: i32) -> Try<&Device> {
        usize::try_from(ordinal).ok().and_then(|index| self.devices.get(index)).ok_or(error::INVALID_DEVICE)
    }

    /// Bytes of a device's memory that this program may have; 0 = no limit.
    #[must_use]
    pub fn memory_limit(&self, ordinal: u32) -> u64 {
        self.limits.get(ordinal as usize).copied().unwrap_or(0)
    }

    /// The context a handle names.
    ///
    /// # Errors
    /// INVALID_CONTEXT.
    pub fn context(&self, handle: u64) -> Try<Arc<Context>> {
        self.contexts.get(handle).ok_or(error::INVALID_CONTEXT)
    }
}
