//! The executor's end of a session. See [`crate::page`] for what each word means.

use crate::file::{FileError, Mapping};
use crate::memory::{Memory as _, Ordering};
use crate::page::{self, Answer};
use crate::queue::{Consumer, Next, Shape};
use cumux_wire::layout::{page as page_layout, ring as ring_layout};
use cumux_wire::record::DecodeError;
use cumux_wire::text::Channel;
use rustix::thread::futex;
use std::os::fd::AsFd;

/// Mapped ring and page of a session, executor side. Everything read from the ring file is an
/// allegation.
#[derive(Debug)]
pub struct Service {
    ring: Mapping,
    page: Mapping,
}

impl Service {
    /// Maps ring and page.
    ///
    /// # Errors
    /// [`FileError`] when a file does not have the size that the layout says, or is not sealed.
    pub fn map(ring: impl AsFd, page: impl AsFd) -> Result<Self, FileError> {
        Ok(Self { ring: Mapping::of(ring, ring_layout::BYTES)?, page: Mapping::of(page, page_layout::BYTES)? })
    }

    /// The consumer that begins at ring position `taken`.
    #[must_use]
    pub fn consumer(taken: u64) -> Consumer {
        Consumer::new(Shape::SESSION, taken)
    }

    /// Copies the next record out, see [`Consumer::peek`].
    ///
    /// # Errors
    /// [`DecodeError`] when the ring's contents are impossible.
    pub fn peek(&self, consumer: &mut Consumer, buffer: &mut Vec<u8>) -> Result<Next, DecodeError> {
        consumer.peek(&self.ring, buffer)
    }

    /// Releases the space up to `end` to the client, see [`Consumer::release`].
    pub fn release(&self, consumer: &mut Consumer, end: u64) {
        consumer.release(&self.page, end);
    }

    /// Announces changes: waiting threads check their conditions again.
    pub fn notify(&self) {
        if page::bump(&self.page, &self.ring) {
            let _ = futex::wake(self.page.futex(page_layout::ACTIVITY), futex::Flags::empty(), i32::MAX.cast_unsigned());
        }
    }

    /// Announces that the executor is about to sleep, or awake again.
    pub fn set_sleeping(&self, sleeping: bool) {
        page::set_sleeping(&self.page, sleeping);
    }

    /// Sequence that the page shows as done; only for a successor that takes the session over.
    #[must_use]
    pub fn completed(&self, stream: u32) -> u64 {
        page::completed(&self.page, stream)
    }

    /// Publishes that the stream's work up to `seq` is done.
    pub fn set_completed(&self, stream: u32, seq: u64) {
        page::set_completed(&self.page, stream, seq);
    }

    /// Publishes the answer to `request` in its slot.
    pub fn answer(&self, slot: u32, request: u64, answer: &Answer) {
        page::set_answer(&self.page, slot, request, answer);
    }

    /// Publishes an answer that a predecessor has noted, and may have published. A later request's
    /// answer stays: the client may not have read it yet.
    pub fn answer_again(&self, slot: u32, request: u64, answer: &Answer) {
        if page::answered(&self.page, slot) < request {
            self.answer(slot, request, answer);
        }
    }

    /// Whether the slot holds the answer to this request.
    #[must_use]
    pub fn has_answered(&self, slot: u32, request: u64) -> bool {
        page::answered(&self.page, slot) == request
    }

    /// The client's sticky error, a `CUresult`; 0 while it is healthy.
    #[must_use]
    pub fn sticky(&self) -> u32 {
        page::sticky(&self.page)
    }

    /// The sticky error in words; empty if there is none or nothing is known of it.
    #[must_use]
    pub fn fault(&self) -> String {
        if self.sticky() == 0 { String::new() } else { page::fault(&self.page) }
    }

    /// Publishes the client's sticky error, with `text` to explain it.
    pub fn set_fault(&self, result: u32, text: &str) {
        page::set_fault(&self.page, result, text);
    }

    /// Publishes when the event was reached: nanoseconds of CLOCK_MONOTONIC.
    pub fn set_event_ns(&self, event: u32, ns: u64) {
        page::set_event_ns(&self.page, event, ns);
    }

    /// Publishes the number of the executor.
    pub fn set_generation(&self, generation: u32) {
        page::set_generation(&self.page, generation);
    }

    /// Publishes how many sessions the executor serves.
    pub fn set_company(&self, sessions: u32) {
        page::set_company(&self.page, sessions);
    }

    /// Publishes the server's process id.
    pub fn set_server(&self, pid: u32) {
        page::set_server(&self.page, pid);
    }

    /// Publishes the multiprocessors of the client's share of a device; 0 = all.
    pub fn set_share(&self, device: u32, multiprocessors: u32) {
        page::set_share(&self.page, device, multiprocessors);
    }

    /// Publishes the bytes of device memory that the client has in use.
    pub fn set_memory_used(&self, bytes: u64) {
        page::set_memory_used(&self.page, bytes);
    }

    /// Appends text of the client's kernels; returns how many bytes fitted.
    pub fn put_text(&self, channel: Channel, text: &[u8]) -> usize {
        page::put_text(&self.page, &self.ring, channel, text)
    }

    /// Times that threads of the client waited, and nanoseconds that they slept, as the client
    /// says: for its own line of the status only.
    #[must_use]
    pub fn waits(&self) -> (u64, u64) {
        (self.ring.load64(ring_layout::WAITS, Ordering::Relaxed), self.ring.load64(ring_layout::WAIT_NS, Ordering::Relaxed))
    }

    /// Sequence of the stream's last host callback that has run, as the client says.
    #[must_use]
    pub fn host_done(&self, stream: u32) -> u64 {
        page::host_done(&self.ring, stream)
    }
}
