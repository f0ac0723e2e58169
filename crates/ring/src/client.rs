//! The client's end of a session: push, wait, read.
//!
//! [`RingClient::push`] must be called under the client's own lock (it takes `&mut Producer`).
//! Everything else may be called from any thread.

use crate::doorbell::Doorbell;
use crate::file::{FileError, Mapping};
use crate::memory::{Memory, Ordering};
use crate::page::{self, Answer};
use crate::polling;
use crate::queue::{Producer, Shape};
use cumux_wire::layout::{page as page_layout, ring as ring_layout};
use cumux_wire::text::Channel;
use rustix::thread::futex;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU8;
use std::time::{Duration, Instant};

/// How a thread waits. Names and numbers are those of `CU_CTX_SCHED_*` (CUDA driver API, context
/// management).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Scheduling {
    /// Spins for a while if a core is idle, then sleeps.
    Auto = 0,
    /// Spins until the wait is over.
    Spin = 1,
    /// Spins for a while and yields the core between two checks, then sleeps.
    Yield = 2,
    /// Sleeps after a few checks.
    Block = 4,
}

/// Checks between two readings of the clock.
const CHECKS_PER_CLOCK_READ: u32 = 64;

/// Mapped files of a session, client side.
#[derive(Debug)]
pub struct RingClient {
    ring: Mapping,
    page: Mapping,
    doorbell: Doorbell,
    cores: usize,
    scheduling: AtomicU8,
}

impl RingClient {
    /// Maps ring and page; `doorbell` is the executor's eventfd.
    ///
    /// # Errors
    /// [`FileError`] when a file does not have the size that the layout says, or is not sealed.
    pub fn map(ring: impl AsFd, page: impl AsFd, doorbell: OwnedFd) -> Result<Self, FileError> {
        let cores = polling::cores();
        let (ring, page) = (Mapping::of(ring, ring_layout::BYTES)?, Mapping::of(page, page_layout::BYTES)?);
        Ok(Self { ring, page, doorbell: Doorbell::new(doorbell), cores, scheduling: AtomicU8::new(Scheduling::Auto as u8) })
    }

    /// Sets how threads wait from now on.
    pub fn set_scheduling(&self, scheduling: Scheduling) {
        self.scheduling.store(scheduling as u8, Ordering::Relaxed);
    }

    /// Checks the condition without sleeping, as long as the scheduling allows or as it pays.
    /// Returns whether the condition came to hold.
    fn spin(&self, deadline: Option<Instant>, condition: &mut impl FnMut() -> bool) -> bool {
        const AUTO: u8 = Scheduling::Auto as u8;
        const SPIN: u8 = Scheduling::Spin as u8;
        const YIELD: u8 = Scheduling::Yield as u8;
        const BLOCK: u8 = Scheduling::Block as u8;
        let scheduling = self.scheduling.load(Ordering::Relaxed);
        let polling = polling::client(self.cores, page::company(&self.page) as usize);
        let (mut checks, mut until) = (0_u32, None);
        loop {
            if condition() {
                return true;
            }
            checks += 1;
            if checks >= polling.few_checks && (scheduling == BLOCK || scheduling == AUTO && !polling.has_core) {
                return false;
            }
            if checks.is_multiple_of(CHECKS_PER_CLOCK_READ) {
                let now = Instant::now();
                let until = *until.get_or_insert(now + polling.limit);
                if deadline.is_some_and(|deadline| now >= deadline) || (scheduling != SPIN && now >= until) {
                    return false;
                }
            }
            if scheduling == YIELD { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
    }

    /// A producer for a session to which nobody has pushed yet.
    #[must_use]
    pub fn producer(&self) -> Producer {
        Producer::new(Shape::SESSION)
    }

    /// Pushes one encoded record and waits while the ring is full. Returns false when `alive`,
    /// asked about every 100 ms, says that no executor will ever read the record.
    pub fn push(&self, producer: &mut Producer, record: &[u8], mut alive: impl FnMut() -> bool) -> bool {
        let mut slept = None;
        while !producer.try_push(&self.ring, &self.page, record) {
            self.ring_doorbell();
            let taken = self.page.load64(page_layout::TAKEN, Ordering::Acquire);
            let moved = || self.page.load64(page_layout::TAKEN, Ordering::Acquire) != taken;
            if !self.wait_counting(Some(Instant::now() + Duration::from_millis(100)), moved, slept.get_or_insert(Duration::ZERO)) && !alive() {
                return false;
            }
        }
        if let Some(slept) = slept {
            self.waited(slept);
        }
        self.ring_doorbell();
        true
    }

    fn ring_doorbell(&self) {
        if page::must_ring(&self.page)
            && let Some(doorbell) = self.doorbell.descriptor()
        {
            let _ = rustix::io::write(doorbell, &1_u64.to_ne_bytes());
        }
    }

    /// Waits until `condition` holds or the deadline passes; returns whether it holds. The
    /// condition is checked after every change that the executor announces.
    pub fn wait(&self, deadline: Option<Instant>, condition: impl FnMut() -> bool) -> bool {
        let mut uncounted = Duration::ZERO;
        self.wait_counting(deadline, condition, &mut uncounted)
    }

    /// Counts one wait that is over, in which the thread slept for `slept`. Spinning is not
    /// counted: that would cost a reading of the clock.
    pub fn waited(&self, slept: Duration) {
        self.ring.count(ring_layout::WAITS, 1);
        if !slept.is_zero() {
            self.ring.count(ring_layout::WAIT_NS, u64::try_from(slept.as_nanos()).unwrap_or(u64::MAX));
        }
    }

    /// As [`RingClient::wait`]; adds the time that the thread slept to `slept`.
    pub fn wait_counting(&self, deadline: Option<Instant>, mut condition: impl FnMut() -> bool, slept: &mut Duration) -> bool {
        if self.spin(deadline, &mut condition) {
            return true;
        }
        let begun = Instant::now();
        let reached = self.sleep(deadline, condition);
        *slept += begun.elapsed();
        reached
    }

    fn sleep(&self, deadline: Option<Instant>, mut condition: impl FnMut() -> bool) -> bool {
        loop {
            let activity = page::enter(&self.page, &self.ring);
            if condition() {
                page::leave(&self.ring);
                return true;
            }
            let timeout = match deadline {
                None => None,
                Some(at) => match at.checked_duration_since(Instant::now()) {
                    None => {
                        page::leave(&self.ring);
                        return condition();
                    }
                    Some(left) => rustix::fs::Timespec::try_from(left).ok(),
                },
            };
            let _ = futex::wait(self.page.futex(page_layout::ACTIVITY), futex::Flags::empty(), activity, timeout.as_ref());
            page::leave(&self.ring);
        }
    }

    /// Wakes every waiting thread of this process, so that it checks a condition that is not in the
    /// page.
    pub fn wake(&self) {
        page::bump(&self.page, &self.ring);
        let _ = futex::wake(self.page.futex(page_layout::ACTIVITY), futex::Flags::empty(), NonZeroU32::MAX.get());
    }

    /// Sequence up to which the stream's work is done.
    #[must_use]
    #[inline]
    pub fn completed(&self, stream: u32) -> u64 {
        page::completed(&self.page, stream)
    }

    /// The client's sticky error, a `CUresult`; 0 while it is healthy.
    #[must_use]
    #[inline]
    pub fn sticky(&self) -> u32 {
        page::sticky(&self.page)
    }

    /// The sticky error in words; empty if there is none or nothing is known of it.
    #[must_use]
    pub fn fault(&self) -> String {
        if self.sticky() == 0 { String::new() } else { page::fault(&self.page) }
    }

    /// When the event was reached: nanoseconds of CLOCK_MONOTONIC, 0 if not yet.
    #[must_use]
    pub fn event_ns(&self, event: u32) -> u64 {
        page::event_ns(&self.page, event)
    }

    /// The answer to `request`, if it is in the slot by now.
    #[must_use]
    pub fn answer(&self, slot: u32, request: u64) -> Option<Answer> {
        page::answer(&self.page, slot, request)
    }

    /// Number of the executor that serves the session; raised by every takeover.
    #[must_use]
    pub fn generation(&self) -> u32 {
        page::generation(&self.page)
    }

    /// Process id of the server that checks after the session.
    #[must_use]
    pub fn server_pid(&self) -> u32 {
        page::server(&self.page)
    }

    /// Multiprocessors of the client's share of one of its devices, 0 = all.
    #[must_use]
    pub fn share(&self, device: u32) -> u32 {
        page::share(&self.page, device)
    }

    /// Bytes of device memory that the client has in use.
    #[must_use]
    pub fn memory_used(&self) -> u64 {
        page::memory_used(&self.page)
    }

    /// Appends the text of the client's kernels since the last call to `out`. One caller at a time.
    pub fn take_text(&self, channel: Channel, out: &mut Vec<u8>) {
        page::take_text(&self.page, &self.ring, channel, out);
    }

    /// Reports that the host callback with this sequence has run: the stream goes on.
    pub fn set_host_done(&self, stream: u32, seq: u64) {
        page::set_host_done(&self.ring, stream, seq);
        self.ring_doorbell();
    }
}
