//! The connection of this process to its service: one ring, one status page, one window. It knows
//! nothing of CUDA: what the program has made with it is kept in the files above, one for each kind
//! of object.
//!
//! - [`connect`] says hello; the one connection of the process is [`find_served`] from then on.
//! - [`Connection::push`] and [`Connection::call`] are the only ways to the executor; both number
//!   and push under one short lock ([`pipe`]).
//! - No wait hangs: every 100 ms the server is looked at ([`liveness`]). Without hope the
//!   connection is lost for good, and every call returns `CUDA_ERROR_MPS_RPC_FAILURE`.
//! - Lock order: locks of objects before the pipe's. The pipe's lock is never held while waiting
//!   for anything but room in the ring.
//! - What a higher floor must do when work has been waited for is a hook that it hands down
//!   ([`Connection::call_when_drained`]).

mod hello;
pub mod liveness;
pub mod pipe;
pub mod recording;
pub mod staging;
pub mod window;

#[cfg(test)]
pub(crate) use hello::adopt;
pub use hello::{Verdict, connect, find_served, is_awaited};

use crate::ffi::{Try, error};
use crate::log;
use crate::sync::lock;
use cumux_abi::{CUctx_flags, CUresult};
use cumux_ring::client::{RingClient, Scheduling};
use cumux_wire::layout::{STREAMS, page, window_address};
use cumux_wire::message::DeviceFacts;
use cumux_wire::record::{LaunchFields, NO_ANSWER, Op};
use cumux_wire::recording::Shape;
use cumux_wire::result;
use cumux_wire::text::Channel;
use liveness::Liveness;
use pipe::{Pipe, PushError, Role, TimelineId};
use recording::Recording;
use staging::Staging;
use std::os::fd::OwnedFd;
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use window::PinnedWindow;

/// How often a waiter looks whether anybody is still there.
const LOOK: Duration = Duration::from_millis(100);

/// What the welcome brought.
#[derive(Debug)]
pub struct Files {
    /// The number of this program among the server's clients.
    pub session: u32,
    /// Which of the places for windows its window has.
    pub window_slot: u32,
    /// What the program may know of its devices, by ordinal.
    pub devices: Vec<DeviceFacts>,
    /// Its parts are static partitions.
    pub fixed: bool,
    /// Bytes of each device's memory that it may have, 0 = no limit.
    pub limits: Vec<u64>,
    /// The file of the ring.
    pub ring: OwnedFd,
    /// The file of the status page.
    pub page: OwnedFd,
    /// The file of the window.
    pub window: OwnedFd,
    /// Wakes the executor.
    pub doorbell: OwnedFd,
    /// A handle of the server's process.
    pub server: OwnedFd,
    /// A handle of the keeper's process.
    pub keeper: OwnedFd,
}

/// What the welcome said about the devices of this program.
#[derive(Debug)]
pub struct Granted {
    /// The devices, by ordinal. There is at least one.
    pub devices: Vec<DeviceFacts>,
    /// The program's parts are static partitions.
    pub fixed: bool,
    limits: Vec<u64>,
}

/// The one connection of a served process.
#[derive(Debug)]
pub struct Connection {
    /// The number of this program among the server's clients.
    pub id: u32,
    /// What it may have.
    pub granted: Granted,
    /// Memory at the same address here and in the executor.
    pub window: PinnedWindow,
    ring: RingClient,
    pipe: Mutex<Pipe>,
    slot_freed: Condvar,
    staging: Mutex<Staging>,
    liveness: Mutex<Liveness>,
    lost: OnceLock<()>,
    /// Its error has been told.
    told: OnceLock<()>,
    /// Text of kernels on its way to the program's output; kept so that no wait allocates.
    text: Mutex<Vec<u8>>,
    drained: OnceLock<fn(&Connection)>,
    /// What the host does, for `cumux record`.
    pub recording: Recording,
}

impl Connection {
    /// Maps the files of a welcome.
    ///
    /// # Errors
    /// A sentence for the log.
    pub fn new(files: Files) -> Result<Self, String> {
        let broken = |what: &str, error: &dyn std::fmt::Display| format!("the {what} of the session cannot be mapped: {error}");
        let ring = RingClient::map(&files.ring, &files.page, files.doorbell).map_err(|error| broken("ring", &error))?;
        let is_pinned = files.devices.iter().any(|device| device.capabilities.pins_windows);
        let window = PinnedWindow::map(files.window, files.window_slot, staging::BYTES, is_pinned).map_err(|error| broken("window", &error))?;
        if files.devices.is_empty() {
            return Err("the service has no device for this program".to_owned());
        }
        let recording = files.devices.first().map_or_else(Recording::default, |device| Recording::begin(files.session, device, ring.share(0)));
        Ok(Self {
            recording,
            id: files.session,
            granted: Granted { devices: files.devices, fixed: files.fixed, limits: files.limits },
            window,
            pipe: Mutex::new(Pipe::new(ring.producer())),
            slot_freed: Condvar::new(),
            staging: Mutex::new(Staging::new(window_address(files.window_slot))),
            liveness: Mutex::new(Liveness::new(files.server, ring.server_pid(), files.keeper)),
            lost: OnceLock::new(),
            told: OnceLock::new(),
            text: Mutex::new(Vec::new()),
            drained: OnceLock::new(),
            ring,
        })
    }

    /// Hands down what is to be done whenever a thread has waited for all work of a stream or a
    /// context. The first one counts.
    pub fn call_when_drained(&self, hook: fn(&Connection)) {
        let _ = self.drained.set(hook);
    }

    /// All work of a timeline or a group has been waited for.
    fn finish_draining(&self) -> Try {
        self.flush_text();
        if let Some(hook) = self.drained.get() {
            hook(self);
        }
        self.health()
    }

    /// Whether the connection can be used.
    ///
    /// # Errors
    /// The sticky error, or MPS_RPC_FAILURE for a lost connection.
    pub fn health(&self) -> Try {
        match self.ring.sticky() {
            0 if self.lost.get().is_none() => Ok(()),
            code => Err(self.trouble(code)),
        }
    }

    /// The connection has gone wrong: its error, whose reason is told the first time. What the
    /// kernels have said before that comes first: of a failed assertion it is all there is.
    #[cold]
    fn trouble(&self, code: u32) -> CUresult {
        self.flush_text();
        self.told.get_or_init(|| match (code, self.ring.fault()) {
            (0, _) => log::tell(format_args!("the service is gone: its server and its keeper have ended, and this program is not served any more")),
            (code, text) if text.is_empty() => log::tell(format_args!("the service ended this program's work with error {code}")),
            (_, text) => log::tell(format_args!("{text}")),
        });
        if code == result::SUCCESS { error::MPS_RPC_FAILURE } else { CUresult(code) }
    }

    fn alive(&self) -> bool {
        let hope = lock(&self.liveness).hopeful(self.ring.server_pid());
        if !hope {
            let _ = self.lost.set(());
            self.ring.wake();
        }
        hope
    }

    /// A connection whose records nobody takes any more: why.
    fn gone(&self, error: PushError) -> CUresult {
        match error {
            PushError::Gone => {
                let _ = self.lost.set(());
                self.health().err().unwrap_or(error::MPS_RPC_FAILURE)
            }
            PushError::NoTimeline => log::because(error::OUT_OF_MEMORY, format!("this program has all of the {STREAMS} streams that there can be")),
        }
    }

    /// While pushing: a faulted client's ring may not be drained any more, so its pushes give up as
    /// well.
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

    /// How all threads of the process wait from now on: the bits of `CU_CTX_SCHED_MASK`, checked.
    pub fn set_scheduling(&self, flags: u32) {
        self.ring.set_scheduling(match CUctx_flags(flags & CUctx_flags::CU_CTX_SCHED_MASK.0) {
            CUctx_flags::CU_CTX_SCHED_SPIN => Scheduling::Spin,
            CUctx_flags::CU_CTX_SCHED_YIELD => Scheduling::Yield,
            CUctx_flags::CU_CTX_SCHED_BLOCKING_SYNC => Scheduling::Block,
            _ => Scheduling::Auto,
        });
    }

    /// Like [`Connection::wait`], but gives up at `deadline`; returns whether the condition holds.
    pub fn wait_until(&self, deadline: Instant, condition: impl FnMut() -> bool) -> bool {
        self.ring.wait(Some(deadline), condition)
    }

    /// Lets every waiting thread of this process look again.
    pub fn wake(&self) {
        self.ring.wake();
    }

    /// Whether the work with this sequence number is done.
    #[must_use]
    pub fn is_done(&self, timeline: TimelineId, seq: u64) -> bool {
        // An index is minted again only when its former owner's work is done, and its sequence
        // numbers go on: the comparison stays true.
        self.ring.completed(timeline.index) >= seq
    }

    /// The time in a cell of the page, as the executor wrote it.
    #[must_use]
    pub fn event_ns(&self, cell: u32) -> u64 {
        self.ring.event_ns(cell)
    }

    /// Tells the executor that the host callback with this sequence number has run.
    pub fn set_host_done(&self, timeline: TimelineId, seq: u64) {
        self.ring.set_host_done(timeline.index, seq);
    }

    /// Pushes an operation on a timeline; returns its sequence number.
    ///
    /// # Errors
    /// As [`Connection::health`].
    pub fn push(&self, timeline: TimelineId, op: &Op) -> Try<u64> {
        let from = self.recording.time();
        let pushed = lock(&self.pipe).submit(&self.ring, timeline.index, op, || self.pushable()).map_err(|error| self.gone(error));
        if let Some(from) = from {
            self.recording.pushed(from, timeline, op);
        }
        pushed
    }

    /// Holds a timeline back until a point of another is reached.
    ///
    /// # Errors
    /// As [`Connection::health`].
    pub fn hold_timeline(&self, target: TimelineId, timeline: TimelineId, seq: u64) -> Try {
        if timeline.index == target.index || self.is_done(timeline, seq) {
            return Ok(());
        }
        self.push(target, &Op::Wait { stream: timeline.index, seq }).map(drop)
    }

    /// Pushes a launch whose parameter block of `length` bytes is written by `fill`, all of it.
    ///
    /// # Errors
    /// As [`Connection::health`].
    #[inline]
    pub fn push_launch(&self, timeline: TimelineId, fields: &LaunchFields, length: usize, fill: impl FnOnce(&mut [u8])) -> Try<u64> {
        let from = self.recording.time();
        let pushed = lock(&self.pipe).submit_launch(&self.ring, timeline.index, fields, length, fill, || self.pushable());
        if let Some(from) = from {
            self.recording.launched(from, timeline, Shape::of(*fields));
        }
        pushed.map_err(|error| self.gone(error))
    }

    /// The point on a timeline that everything pushed so far reaches, joined as the NULL stream's
    /// rules ask.
    ///
    /// # Errors
    /// As [`Connection::health`].
    pub fn point(&self, timeline: TimelineId) -> Try<u64> {
        let mut pipe = lock(&self.pipe);
        pipe.join(&self.ring, timeline.index, || self.pushable()).map_err(|error| self.gone(error))?;
        Ok(pipe.last(timeline.index))
    }

    /// Pushes a record that belongs to no stream and wants no answer.
    ///
    /// # Errors
    /// As [`Connection::health`].
    pub fn control(&self, op: &Op) -> Try {
        let mut pipe = lock(&self.pipe);
        pipe.control(&self.ring, NO_ANSWER, 0, op, || self.pushable()).map_err(|error| self.gone(error))
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// The result code of the answer with its words, or as [`Connection::health`] with zeros.
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
            (Some(answer), _) if answer.result == result::SUCCESS => Ok(answer.words),
            (Some(answer), _) => Err((CUresult(answer.result), answer.words)),
            (None, Err(code)) => Err(trouble(code)),
            (None, Ok(())) => Err(trouble(error::UNKNOWN)),
        }
    }

    /// [`Connection::ask`] without the words of a failure.
    ///
    /// # Errors
    /// As [`Connection::ask`].
    pub fn call(&self, op: &Op) -> Try<[u64; page::ANSWER_WORDS]> {
        self.ask(op).map_err(|(code, _)| code)
    }

    /// A group of timelines for a new context, on a part of this program's share (0 = all of it).
    pub fn new_group(&self, partition: u32) -> u32 {
        lock(&self.pipe).new_group(partition)
    }

    /// Multiprocessors of a device that the service grants this program now; 0 = all. It may change
    /// at any time.
    #[must_use]
    pub fn granted_share(&self, ordinal: u32) -> u32 {
        self.ring.share(ordinal)
    }

    /// A new timeline.
    ///
    /// # Errors
    /// OUT_OF_MEMORY when all stream indices are in use; as [`Connection::health`].
    pub fn new_timeline(&self, group: u32, role: Role, device: u32, priority: i32) -> Try<TimelineId> {
        let mut pipe = lock(&self.pipe);
        pipe.create(&self.ring, group, role, device, priority, || self.pushable()).map_err(|error| self.gone(error))
    }

    /// Gives a timeline back. Its work still runs.
    pub fn free_timeline(&self, timeline: TimelineId) {
        // Nothing can be done about a session that is gone, and nothing needs to be.
        let _ = lock(&self.pipe).destroy(&self.ring, timeline, || self.pushable());
    }

    /// Unfinished points of all timelines of a context, now.
    #[must_use]
    pub fn points(&self, group: u32) -> Vec<(TimelineId, u64)> {
        // The epoch does not matter for a point: sequence numbers of an index never go back.
        lock(&self.pipe).unfinished(&self.ring, group).into_iter().map(|(index, seq)| (TimelineId { index, epoch: 0 }, seq)).collect()
    }

    /// Waits until everything pushed so far in a context is done.
    ///
    /// # Errors
    /// As [`Connection::wait`].
    pub fn drain(&self, group: u32) -> Try {
        let from = self.recording.time();
        let unfinished = lock(&self.pipe).unfinished(&self.ring, group);
        for (index, seq) in unfinished {
            self.wait(|| self.ring.completed(index) >= seq)?;
        }
        self.recording.waited(from, || None);
        self.finish_draining()
    }

    /// Waits until everything pushed so far is done.
    ///
    /// # Errors
    /// As [`Connection::wait`].
    pub fn drain_all(&self) -> Try {
        let from = self.recording.time();
        let unfinished = lock(&self.pipe).all_unfinished(&self.ring);
        for (index, seq) in unfinished {
            self.wait(|| self.ring.completed(index) >= seq)?;
        }
        self.recording.waited(from, || None);
        Ok(())
    }

    /// Waits until everything pushed so far on a timeline (and whatever its rules join it with) is
    /// done.
    ///
    /// # Errors
    /// As [`Connection::wait`].
    pub fn drain_timeline(&self, timeline: TimelineId) -> Try {
        let from = self.recording.time();
        let seq = self.point(timeline)?;
        self.wait(|| self.is_done(timeline, seq))?;
        self.recording.waited(from, || Some(timeline.index));
        self.finish_draining()
    }

    /// Whether everything pushed so far on a timeline is done.
    ///
    /// # Errors
    /// As [`Connection::health`].
    pub fn is_idle(&self, timeline: TimelineId) -> Try<bool> {
        let seq = self.point(timeline)?;
        let is_done = self.is_done(timeline, seq);
        self.recording.asked(|| Some(timeline.index), is_done);
        self.settled(is_done)
    }

    /// What a program may hear of work that is done, or not. At a fault the executor first says so,
    /// and then that all work is over: whoever has seen that it is over sees the fault, too, and
    /// must not take the one for a success.
    ///
    /// # Errors
    /// As [`Connection::health`], if it is done.
    pub fn settled(&self, is_done: bool) -> Try<bool> {
        if is_done {
            self.health()?;
        }
        Ok(is_done)
    }

    /// Writes text of kernels that has arrived: printf to the program's standard output, failed
    /// assertions to its standard error.
    pub fn flush_text(&self) {
        let mut text = lock(&self.text);
        for channel in Channel::ALL {
            text.clear();
            self.ring.take_text(channel, &mut text);
            if !text.is_empty() {
                crate::stdio::write(channel, &text);
            }
        }
    }

    /// A real card reaches only what it was told of: says which part of the window is in use as
    /// pinned memory, piece by piece, before anybody uses it.
    ///
    /// # Errors
    /// When the card cannot reach that much; as [`Connection::call`].
    pub fn announce_window(&self, end: u64) -> Try {
        self.window.announce(end, |address, bytes| self.call(&Op::WindowUse { address, bytes }).map(drop))
    }

    /// A staging slice for up to `bytes` bytes, waiting for one if need be.
    ///
    /// # Errors
    /// As [`Connection::wait`].
    pub fn take_slice(&self, bytes: u64) -> Try<staging::Taken> {
        let taken = self.wait_for_slice(bytes)?;
        // Most programs need the first ones alone: only those are pinned from the beginning.
        if let Err(refused) = self.announce_window(taken.address + taken.bytes) {
            self.hold_slice_until(taken, None);
            return Err(refused);
        }
        Ok(taken)
    }

    fn wait_for_slice(&self, bytes: u64) -> Try<staging::Taken> {
        let attempt = || lock(&self.staging).take_slice(bytes, |timeline, seq| self.is_done(timeline, seq));
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
    pub fn hold_slice_until(&self, taken: staging::Taken, work: Option<(TimelineId, u64)>) {
        lock(&self.staging).hold_until(taken, work);
        if work.is_none() {
            // Somebody may wait for a slice, and nothing in the page will change.
            self.wake();
        }
    }

    /// Bytes of a device's memory that this program may have; 0 = no limit.
    #[must_use]
    pub fn memory_limit(&self, ordinal: u32) -> u64 {
        self.granted.limits.get(ordinal as usize).copied().unwrap_or(0)
    }
}
