//! What the executor publishes to a client without being asked: completions, answers, event times,
//! text.
//!
//! The functions are generic over the memory, for the model checker; client and executor use them
//! through [`crate::client::RingClient`] and [`crate::service::Service`].

use crate::memory::{Memory, Ordering, fence};
use cumux_wire::layout::page::{
    ACTIVITY, ANSWER, ANSWER_BYTES, ANSWER_WORDS, COMPANY, COMPLETED, ERROR_TEXT, ERROR_TEXT_BYTES, ERROR_TEXT_HEAD, EVENT, FAULT, FAULT_BYTES, FAULT_LENGTH,
    GENERATION, MEMORY_USED, SERVER, SHARES, SLEEPING, STICKY, TEXT, TEXT_BYTES, TEXT_HEAD,
};
use cumux_wire::layout::{ANSWERS, DEVICES, EVENTS, STREAMS, ring};
use cumux_wire::text::Channel;

/// An answer to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// A `CUresult`.
    pub result: u32,
    /// What the operation's documentation says of its answer.
    pub words: [u64; ANSWER_WORDS],
}

fn stream_cell(stream: u32) -> usize {
    COMPLETED + (stream as usize % STREAMS) * 8
}

fn event_cell(event: u32) -> usize {
    EVENT + (event as usize % EVENTS) * 8
}

fn answer_cell(slot: u32) -> usize {
    ANSWER + (slot as usize % ANSWERS) * ANSWER_BYTES
}

/// Sequence up to which the stream's work is done.
pub fn completed(page: &impl Memory, stream: u32) -> u64 {
    page.load64(stream_cell(stream), Ordering::Acquire)
}

/// Publishes that the stream's work up to `seq` is done.
pub fn set_completed(page: &impl Memory, stream: u32, seq: u64) {
    page.store64(stream_cell(stream), seq, Ordering::Release);
}

/// The client's sticky error, a `CUresult`; 0 while it is healthy.
pub fn sticky(page: &impl Memory) -> u32 {
    page.load32(STICKY, Ordering::Acquire)
}

/// Publishes the client's sticky error. A client that sees the error sees `text`, too. Only the
/// first error of a session is published.
pub fn set_fault(page: &impl Memory, result: u32, text: &str) {
    let text = &text[..text.floor_char_boundary(FAULT_BYTES)];
    page.write(FAULT, text.as_bytes());
    page.store32(FAULT_LENGTH, text.len() as u32, Ordering::Relaxed);
    page.store32(STICKY, result, Ordering::Release);
}

/// The sticky error in words, for a caller that has seen [`sticky`]; empty when nothing is known.
pub fn fault(page: &impl Memory) -> String {
    let mut text = vec![0; (page.load32(FAULT_LENGTH, Ordering::Relaxed) as usize).min(FAULT_BYTES)];
    page.read(FAULT, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Number of the executor that serves the session.
pub fn generation(page: &impl Memory) -> u32 {
    page.load32(GENERATION, Ordering::Acquire)
}

/// Publishes the number of the executor.
pub fn set_generation(page: &impl Memory, generation: u32) {
    page.store32(GENERATION, generation, Ordering::Release);
}

/// Process id of the server that looks after the session.
pub fn server(page: &impl Memory) -> u32 {
    page.load32(SERVER, Ordering::Acquire)
}

/// Publishes the server's process id.
pub fn set_server(page: &impl Memory, pid: u32) {
    page.store32(SERVER, pid, Ordering::Release);
}

/// Sessions that the executor serves; 0 = unknown.
pub fn company(page: &impl Memory) -> u32 {
    page.load32(COMPANY, Ordering::Relaxed)
}

/// Publishes the number of sessions.
pub fn set_company(page: &impl Memory, sessions: u32) {
    page.store32(COMPANY, sessions, Ordering::Relaxed);
}

/// Bytes of device memory that the client has in use.
pub fn memory_used(page: &impl Memory) -> u64 {
    page.load64(MEMORY_USED, Ordering::Acquire)
}

/// Publishes the bytes in use.
pub fn set_memory_used(page: &impl Memory, bytes: u64) {
    page.store64(MEMORY_USED, bytes, Ordering::Release);
}

/// Multiprocessors that the client may use of one of its devices, 0 = all.
pub fn share(page: &impl Memory, device: u32) -> u32 {
    page.load32(SHARES + (device as usize % DEVICES) * 4, Ordering::Relaxed)
}

/// Publishes the multiprocessors of one device; 0 = all.
pub fn set_share(page: &impl Memory, device: u32, multiprocessors: u32) {
    page.store32(SHARES + (device as usize % DEVICES) * 4, multiprocessors, Ordering::Relaxed);
}

/// Nanoseconds (CLOCK_MONOTONIC) at which the event was reached, 0 if not yet.
pub fn event_ns(page: &impl Memory, event: u32) -> u64 {
    page.load64(event_cell(event), Ordering::Acquire)
}

/// Publishes when the event was reached; 0 takes it back.
pub fn set_event_ns(page: &impl Memory, event: u32, ns: u64) {
    page.store64(event_cell(event), ns, Ordering::Release);
}

/// The answer to `request` if it is there.
pub fn answer(page: &impl Memory, slot: u32, request: u64) -> Option<Answer> {
    let cell = answer_cell(slot);
    if page.load64(cell, Ordering::Acquire) != request {
        return None;
    }
    let mut words = [0; ANSWER_WORDS];
    for (i, word) in words.iter_mut().enumerate() {
        *word = page.load64(cell + 16 + i * 8, Ordering::Relaxed);
    }
    Some(Answer { result: page.load32(cell + 8, Ordering::Relaxed), words })
}

/// Number of the request whose answer the slot holds; 0 before the first one. Numbers only grow.
pub fn answered(page: &impl Memory, slot: u32) -> u64 {
    page.load64(answer_cell(slot), Ordering::Acquire)
}

/// Publishes an answer: the answer first, its request number last.
pub fn set_answer(page: &impl Memory, slot: u32, request: u64, answer: &Answer) {
    let cell = answer_cell(slot);
    page.store32(cell + 8, answer.result, Ordering::Relaxed);
    for (i, word) in answer.words.iter().enumerate() {
        page.store64(cell + 16 + i * 8, *word, Ordering::Relaxed);
    }
    page.store64(cell, request, Ordering::Release);
}

/// Where the text of one channel lies: offsets of its two positions and of its bytes.
struct TextRing {
    /// In the page: bytes ever written.
    head: usize,
    /// In the client's ring file: bytes ever printed.
    tail: usize,
    /// In the page.
    data: usize,
    bytes: usize,
}

impl TextRing {
    const fn of(channel: Channel) -> Self {
        match channel {
            Channel::Output => TextRing { head: TEXT_HEAD, tail: ring::TEXT_TAIL, data: TEXT, bytes: TEXT_BYTES },
            Channel::Error => TextRing { head: ERROR_TEXT_HEAD, tail: ring::ERROR_TEXT_TAIL, data: ERROR_TEXT, bytes: ERROR_TEXT_BYTES },
        }
    }

    fn split_at_wrap<'a>(&self, at: u64, text: &'a [u8]) -> [&'a [u8]; 2] {
        let first = (self.bytes - (at % self.bytes as u64) as usize).min(text.len());
        let (a, b) = text.split_at(first);
        [a, b]
    }
}

/// Appends as much of `text` as the channel's text ring has room for; returns how many bytes
/// fitted.
pub fn put_text(page: &impl Memory, client_ring: &impl Memory, channel: Channel, text: &[u8]) -> usize {
    let own = TextRing::of(channel);
    let head = page.load64(own.head, Ordering::Relaxed);
    let tail = client_ring.load64(own.tail, Ordering::Acquire);
    let used = head.wrapping_sub(tail).min(own.bytes as u64);
    let room = (own.bytes as u64 - used) as usize;
    let text = &text[..text.len().min(room)];
    let mut at = head;
    for piece in own.split_at_wrap(at, text) {
        page.write(own.data + (at % own.bytes as u64) as usize, piece);
        // Both sides can write the position: it may be any number.
        at = at.wrapping_add(piece.len() as u64);
    }
    page.store64(own.head, at, Ordering::Release);
    text.len()
}

/// Appends the channel's text since the last call to `out`.
pub fn take_text(page: &impl Memory, client_ring: &impl Memory, channel: Channel, out: &mut Vec<u8>) {
    let own = TextRing::of(channel);
    let head = page.load64(own.head, Ordering::Acquire);
    let tail = client_ring.load64(own.tail, Ordering::Relaxed);
    let len = head.wrapping_sub(tail).min(own.bytes as u64) as usize;
    if len == 0 {
        return;
    }
    let start = out.len();
    out.resize(start + len, 0);
    let offset = (tail % own.bytes as u64) as usize;
    let first = (own.bytes - offset).min(len);
    page.read(own.data + offset, &mut out[start..start + first]);
    page.read(own.data, &mut out[start + first..]);
    client_ring.store64(own.tail, head, Ordering::Release);
}

/// Announces a change. Returns whether a thread sleeps and must be woken by the futex `activity`.
pub fn bump(page: &impl Memory, client_ring: &impl Memory) -> bool {
    page.add32(ACTIVITY, 1, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    client_ring.load32(ring::WAITERS, Ordering::SeqCst) != 0
}

/// Announces a sleeper and returns the `activity` to sleep on. The caller checks its condition once
/// more before it sleeps, and calls [`leave`] afterwards.
pub fn enter(page: &impl Memory, client_ring: &impl Memory) -> u32 {
    client_ring.add32(ring::WAITERS, 1, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    page.load32(ACTIVITY, Ordering::SeqCst)
}

/// Takes back the announcement of [`enter`].
pub fn leave(client_ring: &impl Memory) {
    client_ring.add32(ring::WAITERS, u32::MAX, Ordering::SeqCst);
}

/// Executor: announces that it is about to sleep, or awake again. Before it sleeps, the caller
/// checks all rings once more.
pub fn set_sleeping(page: &impl Memory, sleeping: bool) {
    page.store32(SLEEPING, u32::from(sleeping), Ordering::SeqCst);
    fence(Ordering::SeqCst);
}

/// Client, after a push: whether the doorbell must be rung.
pub fn must_ring(page: &impl Memory) -> bool {
    fence(Ordering::SeqCst);
    page.load32(SLEEPING, Ordering::SeqCst) != 0
}

/// Sequence of the last host callback of the stream that has run (an allegation of the client about
/// itself).
pub fn host_done(client_ring: &impl Memory, stream: u32) -> u64 {
    client_ring.load64(ring::HOST_DONE + (stream as usize % STREAMS) * 8, Ordering::Acquire)
}

/// Client: publishes the last host callback of the stream that has run.
pub fn set_host_done(client_ring: &impl Memory, stream: u32, seq: u64) {
    client_ring.store64(ring::HOST_DONE + (stream as usize % STREAMS) * 8, seq, Ordering::Release);
}
