//! What the executor tells a client without being asked: completions, answers, event times, text.

use crate::memory::{Memory, Ordering, fence};
use cumux_wire::layout::page::{
    ACTIVITY, ANSWER, ANSWER_BYTES, ANSWER_WORDS, COMPANY, COMPLETED, EVENT, FAULT, FAULT_BYTES, FAULT_LENGTH, GENERATION, MEMORY_USED, SERVER, SHARES,
    SLEEPING, STICKY, TEXT, TEXT_BYTES, TEXT_HEAD,
};
use cumux_wire::layout::{ANSWERS, DEVICES, EVENTS, STREAMS, ring};

/// An answer to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// A `CUresult`.
    pub result: u32,
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

pub fn set_completed(page: &impl Memory, stream: u32, seq: u64) {
    page.store64(stream_cell(stream), seq, Ordering::Release);
}

pub fn sticky(page: &impl Memory) -> u32 {
    page.load32(STICKY, Ordering::Acquire)
}

/// The client is in error: `text` is what is known of it, and is there for everybody who sees the
/// error. Only the first error of a session is told.
pub fn set_fault(page: &impl Memory, result: u32, text: &str) {
    let text = &text[..text.floor_char_boundary(FAULT_BYTES)];
    page.write(FAULT, text.as_bytes());
    page.store32(FAULT_LENGTH, text.len() as u32, Ordering::Relaxed);
    page.store32(STICKY, result, Ordering::Release);
}

/// What is known of the sticky error, for who has seen it; empty when nothing is.
pub fn fault(page: &impl Memory) -> String {
    let mut text = vec![0; (page.load32(FAULT_LENGTH, Ordering::Relaxed) as usize).min(FAULT_BYTES)];
    page.read(FAULT, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

pub fn generation(page: &impl Memory) -> u32 {
    page.load32(GENERATION, Ordering::Acquire)
}

pub fn set_generation(page: &impl Memory, generation: u32) {
    page.store32(GENERATION, generation, Ordering::Release);
}

pub fn server(page: &impl Memory) -> u32 {
    page.load32(SERVER, Ordering::Acquire)
}

pub fn set_server(page: &impl Memory, pid: u32) {
    page.store32(SERVER, pid, Ordering::Release);
}

/// Sessions that the executor serves; 0 = not said.
pub fn company(page: &impl Memory) -> u32 {
    page.load32(COMPANY, Ordering::Relaxed)
}

pub fn set_company(page: &impl Memory, sessions: u32) {
    page.store32(COMPANY, sessions, Ordering::Relaxed);
}

pub fn memory_used(page: &impl Memory) -> u64 {
    page.load64(MEMORY_USED, Ordering::Acquire)
}

pub fn set_memory_used(page: &impl Memory, bytes: u64) {
    page.store64(MEMORY_USED, bytes, Ordering::Release);
}

/// Multiprocessors that the client may use of one of its devices, 0 = all.
pub fn share(page: &impl Memory, device: u32) -> u32 {
    page.load32(SHARES + (device as usize % DEVICES) * 4, Ordering::Relaxed)
}

pub fn set_share(page: &impl Memory, device: u32, multiprocessors: u32) {
    page.store32(SHARES + (device as usize % DEVICES) * 4, multiprocessors, Ordering::Relaxed);
}

/// Nanoseconds (CLOCK_MONOTONIC) at which the event was reached, 0 if not yet.
pub fn event_ns(page: &impl Memory, event: u32) -> u64 {
    page.load64(event_cell(event), Ordering::Acquire)
}

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

/// Writes the answer first and its request number last.
pub fn set_answer(page: &impl Memory, slot: u32, request: u64, answer: &Answer) {
    let cell = answer_cell(slot);
    page.store32(cell + 8, answer.result, Ordering::Relaxed);
    for (i, word) in answer.words.iter().enumerate() {
        page.store64(cell + 16 + i * 8, *word, Ordering::Relaxed);
    }
    page.store64(cell, request, Ordering::Release);
}

/// Appends as much of `text` as the client's ring has room for; returns how many bytes went in.
pub fn put_text(page: &impl Memory, client_ring: &impl Memory, text: &[u8]) -> usize {
    let head = page.load64(TEXT_HEAD, Ordering::Relaxed);
    let tail = client_ring.load64(ring::TEXT_TAIL, Ordering::Acquire);
    let used = head.wrapping_sub(tail).min(TEXT_BYTES as u64);
    let room = (TEXT_BYTES as u64 - used) as usize;
    let text = &text[..text.len().min(room)];
    let mut at = head;
    for piece in split_at_wrap(at, text) {
        page.write(TEXT + (at % TEXT_BYTES as u64) as usize, piece);
        // Both sides can write the position: it may be any number.
        at = at.wrapping_add(piece.len() as u64);
    }
    page.store64(TEXT_HEAD, at, Ordering::Release);
    text.len()
}

fn split_at_wrap(at: u64, text: &[u8]) -> [&[u8]; 2] {
    let first = (TEXT_BYTES - (at % TEXT_BYTES as u64) as usize).min(text.len());
    let (a, b) = text.split_at(first);
    [a, b]
}

/// Takes what has been printed since the last call.
pub fn take_text(page: &impl Memory, client_ring: &impl Memory, out: &mut Vec<u8>) {
    let head = page.load64(TEXT_HEAD, Ordering::Acquire);
    let tail = client_ring.load64(ring::TEXT_TAIL, Ordering::Relaxed);
    let len = head.wrapping_sub(tail).min(TEXT_BYTES as u64) as usize;
    if len == 0 {
        return;
    }
    let start = out.len();
    out.resize(start + len, 0);
    let offset = (tail % TEXT_BYTES as u64) as usize;
    let first = (TEXT_BYTES - offset).min(len);
    page.read(TEXT + offset, &mut out[start..start + first]);
    page.read(TEXT, &mut out[start + first..]);
    client_ring.store64(ring::TEXT_TAIL, head, Ordering::Release);
}

/// Says that something changed. Returns whether somebody sleeps and must be woken by the futex `activity`.
pub fn bump(page: &impl Memory, client_ring: &impl Memory) -> bool {
    page.add32(ACTIVITY, 1, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    client_ring.load32(ring::WAITERS, Ordering::SeqCst) != 0
}

/// Announces a sleeper and returns the `activity` to sleep on; the caller looks at its condition once more before it sleeps, and calls [`leave`] after.
pub fn enter(page: &impl Memory, client_ring: &impl Memory) -> u32 {
    client_ring.add32(ring::WAITERS, 1, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    page.load32(ACTIVITY, Ordering::SeqCst)
}

pub fn leave(client_ring: &impl Memory) {
    client_ring.add32(ring::WAITERS, u32::MAX, Ordering::SeqCst);
}

/// Executor: about to sleep. The caller looks at all heads once more afterwards.
pub fn set_sleeping(page: &impl Memory, sleeping: bool) {
    page.store32(SLEEPING, u32::from(sleeping), Ordering::SeqCst);
    fence(Ordering::SeqCst);
}

/// Client, after a push: whether the doorbell must be rung.
pub fn must_ring(page: &impl Memory) -> bool {
    fence(Ordering::SeqCst);
    page.load32(SLEEPING, Ordering::SeqCst) != 0
}

/// Sequence of the last host callback of the stream that has run (an allegation of the client about itself).
pub fn host_done(client_ring: &impl Memory, stream: u32) -> u64 {
    client_ring.load64(ring::HOST_DONE + (stream as usize % STREAMS) * 8, Ordering::Acquire)
}

pub fn set_host_done(client_ring: &impl Memory, stream: u32, seq: u64) {
    client_ring.store64(ring::HOST_DONE + (stream as usize % STREAMS) * 8, seq, Ordering::Release);
}
