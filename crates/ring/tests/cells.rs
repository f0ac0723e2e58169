//! What one process stores, the other one reads: every word of the status page, of the ring's
//! header and of the journal has a place of its own.
#![cfg(not(loom))]

use cumux_ring::awake::{Awake, Count};
use cumux_ring::client::RingClient;
use cumux_ring::create;
use cumux_ring::file::Mapping;
use cumux_ring::journal::{Journal, JournalError};
use cumux_ring::memory::{Memory, Ordering};
use cumux_ring::page::Answer;
use cumux_ring::queue::{Consumer, Next, Producer, Shape};
use cumux_ring::service::Service;
use cumux_ring::window::{Window, reserve};
use cumux_wire::layout::{self, ANSWERS, DEVICES, EVENTS, STREAMS, journal};
use cumux_wire::record::{Header, Launch, NO_ANSWER, NO_STREAM, Op, encode};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::AsFd as _;
use std::time::Duration;

fn both_ends() -> (RingClient, Service) {
    let ring = create("ring", layout::ring::BYTES as u64).expect("memory");
    let page = create("page", layout::page::BYTES as u64).expect("memory");
    let doorbell = eventfd(0, EventfdFlags::NONBLOCK).expect("eventfd");
    (RingClient::map(&ring, &page, doorbell).expect("client"), Service::map(&ring, &page).expect("service"))
}

fn answer(slot: u32) -> Answer {
    let slot = u64::from(slot);
    Answer { result: 900 + slot as u32, words: [1, 2, 3, 4, 5, 6].map(|word| 100 * slot + word) }
}

#[test]
fn a_client_reads_what_the_executor_has_published() {
    let (client, service) = both_ends();
    for stream in 0..STREAMS as u32 {
        service.set_completed(stream, 1_000_000 + u64::from(stream));
    }
    for event in 0..EVENTS as u32 {
        service.set_event_ns(event, 3_000_000 + u64::from(event));
    }
    for slot in 0..ANSWERS as u32 {
        service.answer(slot, 70 + u64::from(slot), &answer(slot));
    }
    for device in 0..DEVICES as u32 {
        service.set_share(device, 11 + device);
    }
    service.set_generation(4);
    service.set_server(5);
    service.set_memory_used(6);
    for stream in 0..STREAMS as u32 {
        assert_eq!((client.completed(stream), service.completed(stream)), (1_000_000 + u64::from(stream), 1_000_000 + u64::from(stream)));
    }
    assert!((0..EVENTS as u32).all(|event| client.event_ns(event) == 3_000_000 + u64::from(event)));
    for slot in 0..ANSWERS as u32 {
        assert_eq!(client.answer(slot, 70 + u64::from(slot)), Some(answer(slot)));
    }
    assert!((0..DEVICES as u32).all(|device| client.share(device) == 11 + device));
    assert_eq!((client.generation(), client.server_pid(), client.memory_used(), client.sticky()), (4, 5, 6, 0));
    service.set_fault(700, &format!("x{}", "é".repeat(layout::page::FAULT_BYTES)));
    assert_eq!((client.sticky(), service.sticky()), (700, 700));
    assert_eq!(client.fault(), format!("x{}", "é".repeat(layout::page::FAULT_BYTES / 2 - 1)), "a text that is too long ends between two characters");
    service.set_event_ns(7, 0);
    assert_eq!((client.event_ns(7), client.event_ns(8)), (0, 3_000_008), "an event that is recorded again is not reached");
}

#[test]
fn what_a_successor_repeats_takes_no_later_answer_away() {
    let (client, service) = both_ends();
    service.answer(3, 65, &answer(1));
    service.answer(3, 97, &answer(2));
    assert!(service.has_answered(3, 97) && !service.has_answered(3, 65) && !service.has_answered(4, 97));
    service.answer_again(3, 65, &answer(1));
    assert_eq!((client.answer(3, 97), client.answer(3, 65)), (Some(answer(2)), None));
    service.answer_again(3, 98, &answer(3));
    assert_eq!(client.answer(3, 98), Some(answer(3)), "one that was noted and never published");
}

#[test]
fn an_executor_reads_what_the_client_has_published() {
    let (client, service) = both_ends();
    for stream in 0..STREAMS as u32 {
        client.set_host_done(stream, 40 + u64::from(stream));
    }
    for stream in 0..STREAMS as u32 {
        assert_eq!(service.host_done(stream), 40 + u64::from(stream));
    }
    client.waited(Duration::ZERO);
    client.waited(Duration::from_nanos(250));
    assert_eq!(service.waits(), (2, 250), "a wait that only spun counts, and took no sleep");
}

#[test]
fn a_successor_reads_what_its_predecessor_has_noted() {
    let file = create("journal", journal::BYTES as u64).expect("memory");
    let predecessor = Journal::map(&file).expect("journal");
    predecessor.set_taken(77);
    for stream in 0..STREAMS as u32 {
        predecessor.set_completed(stream, 1000 + u64::from(stream));
        predecessor.set_submitted(stream, 9000 + u64::from(stream));
    }
    let counters: [u64; journal::COUNTERS] = std::array::from_fn(|at| 50 + at as u64);
    predecessor.set_counters(&counters);
    for word in 0..journal::CASES {
        predecessor.set_case(word, 20 + word as u64);
    }
    let successor = Journal::map(&file).expect("journal");
    assert_eq!((successor.taken(), successor.counters()), (77, counters));
    for stream in 0..STREAMS as u32 {
        assert_eq!((successor.completed(stream), successor.submitted(stream)), (1000 + u64::from(stream), 9000 + u64::from(stream)));
    }
    assert!((0..journal::CASES).all(|word| successor.case(word) == 20 + word as u64));
}

/// An entry that is shorter than its own header, that is no whole number of words, or that reaches
/// past the end of the log was written by no executor.
#[test]
fn work_whose_lengths_do_not_add_up_is_damage() {
    const FIRST_ENTRY: usize = journal::HEADER_BYTES + 2 * journal::OBJECT_BYTES;
    for (bytes, sound) in [(0, false), (4, false), (8, false), (16, false), (20, false), (24, true), (journal::WORK_BYTES as u32 + 8, false)] {
        let file = create("journal", journal::BYTES as u64).expect("memory");
        let mut journal = Journal::map(&file).expect("journal");
        journal.accept(24, &[0; 8]);
        journal.publish();
        let map = Mapping::of(&file, journal::BYTES).expect("map");
        map.store32(FIRST_ENTRY, bytes, Ordering::Relaxed);
        match Journal::map(&file).expect("positions are well").work() {
            Ok(work) => assert!(sound && work.len() == 1, "{bytes} bytes: {work:?}"),
            Err(error) => assert!(!sound && matches!(error, JournalError::Damaged("work length")), "{bytes} bytes: {error}"),
        }
    }
}

/// The same of positions: the head is behind the tail by at most the log, both are whole words.
#[test]
fn positions_that_no_executor_writes_are_damage() {
    let log = journal::WORK_BYTES as u64;
    let half = journal::OBJECT_BYTES as u64;
    for (objects, head, tail, sound) in [
        (0, 0, 0, true),
        (half, log + 16, 16, true),
        (1 << 63 | half, 8, 8, true),
        (half + 1, 0, 0, false),
        (0, log + 24, 16, false),
        (0, 8, 16, false),
        (0, 12, 8, false),
        (0, 16, 12, false),
    ] {
        let file = create("journal", journal::BYTES as u64).expect("memory");
        let map = Mapping::of(&file, journal::BYTES).expect("map");
        for (offset, value) in [(8, objects), (16, head), (24, tail)] {
            map.store64(offset, value, Ordering::Relaxed);
        }
        let found = Journal::map(&file);
        assert_eq!(found.is_ok(), sound, "{objects:#x} {head} {tail}: {:?}", found.err());
    }
}

/// Who has work for a poller leaves it alone while it is awake, and wakes it otherwise.
#[test]
fn a_poller_announces_whether_it_is_awake() {
    let awake = Awake::default();
    assert!(!awake.will_see(), "it has not begun");
    awake.set(true);
    assert!(awake.will_see());
    awake.set(false);
    assert!(!awake.will_see());
    let count = Count::default();
    let before = count.get();
    count.add();
    assert_eq!(count.get(), before + 1);
}

/// A ring of 256 bytes behind the usual header.
const SMALL: Shape = Shape { data: layout::ring::DATA, data_bytes: 256 };

fn record(bytes: usize) -> Vec<u8> {
    let mut record = Vec::new();
    encode(&Header { stream: NO_STREAM, answer: NO_ANSWER, seq: 1, request: 0 }, &Op::Nop, &mut record);
    assert!(bytes >= record.len() && bytes.is_multiple_of(8));
    record.resize(bytes, 0);
    record[..4].copy_from_slice(&(bytes as u32).to_le_bytes());
    record
}

/// Records fill a ring to the last byte, and not one word more. A record that does not fit before
/// the end begins at the front, and nothing lies between.
#[test]
fn a_ring_is_filled_to_the_last_byte() {
    let ring = Mapping::of(create("ring", layout::ring::BYTES as u64).expect("memory"), layout::ring::BYTES).expect("map");
    let page = Mapping::of(create("page", layout::page::BYTES as u64).expect("memory"), layout::page::BYTES).expect("map");
    let (mut producer, mut consumer, mut buffer) = (Producer::new(SMALL), Consumer::new(SMALL, 0), Vec::new());
    let mut take = |consumer: &mut Consumer| match consumer.peek(&ring, &mut buffer).expect("an honest client") {
        Next::Empty => None,
        Next::Record { end } => {
            consumer.release(&page, end);
            Some((buffer.len(), end))
        }
    };
    assert_eq!(take(&mut consumer), None);
    for bytes in [64, 64] {
        assert!(producer.try_push(&ring, &page, &record(bytes)));
    }
    assert_eq!(take(&mut consumer), Some((64, 64)));
    assert!(!consumer.is_crowded(), "half of the ring was full: a record of any length fits into the rest");
    for bytes in [64, 64] {
        assert!(producer.try_push(&ring, &page, &record(bytes)));
    }
    assert_eq!(take(&mut consumer), Some((64, 128)));
    assert!(consumer.is_crowded(), "the client may wait for room");
    // 128 bytes are in the ring, and 128 are free, at the front.
    assert!(!producer.try_push(&ring, &page, &record(136)));
    assert!(producer.try_push(&ring, &page, &record(128)));
    assert!(!producer.try_push(&ring, &page, &record(40)), "it is full");
    assert_eq!((take(&mut consumer), take(&mut consumer), take(&mut consumer)), (Some((64, 192)), Some((64, 256)), Some((128, 384))));
    assert_eq!(take(&mut consumer), None);
    // 128 bytes are left before the end: a longer record begins at the front.
    assert!(producer.try_push(&ring, &page, &record(88)));
    assert!(producer.try_push(&ring, &page, &record(48)), "it needs the 40 bytes before the end, too");
    assert_eq!((take(&mut consumer), take(&mut consumer)), (Some((88, 472)), Some((48, 560))));
    assert_eq!(take(&mut consumer), None);
}

/// The address of a window no other test of this file uses.
const AT: u64 = layout::WINDOW_BASE + 5 * layout::WINDOW_BYTES;

#[test]
fn a_window_is_read_and_written_up_to_its_end() {
    let file = create("window", 8192).expect("memory");
    let window = Window::map(file.as_fd(), AT, 8192).expect("the address is free");
    assert_eq!((window.address(), window.bytes()), (AT, 8192));
    assert!(window.write(AT + 8190, b"ab") && !window.write(AT + 8190, b"abc") && !window.write(AT - 1, b"ab"));
    assert_eq!((window.read(AT + 8189, 3), window.read(AT + 8190, 3), window.read(AT - 1, 1)), (Some(b"\0ab".to_vec()), None, None));
    assert!(window.contains(AT, 8192) && !window.contains(AT, 8193) && !window.contains(AT + 1, u64::MAX));
    assert!(Window::map(file.as_fd(), AT, 8192).is_err(), "nothing that is there is replaced");
    assert!(!reserve(AT + 4096, 8192) && reserve(AT + 8192, 4096) && !reserve(AT + 8192, 4096));
    drop(window);
    assert!(reserve(AT, 8192), "a window that is dropped is not mapped any more");
}

/// The client rings the doorbell of an executor that sleeps, and of no other.
#[test]
fn the_doorbell_is_for_sleepers() {
    let ring = create("ring", layout::ring::BYTES as u64).expect("memory");
    let page = create("page", layout::page::BYTES as u64).expect("memory");
    let doorbell = eventfd(0, EventfdFlags::NONBLOCK).expect("eventfd");
    let client = RingClient::map(&ring, &page, doorbell.try_clone().expect("a copy")).expect("client");
    let service = Service::map(&ring, &page).expect("service");
    let rings = || {
        let mut count = [0; 8];
        rustix::io::read(&doorbell, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
    };
    let mut launch = Vec::new();
    encode(&Header { stream: 0, answer: NO_ANSWER, seq: 1, request: 0 }, &Op::Launch(Launch::default()), &mut launch);
    let mut producer = client.producer();
    assert!(client.push(&mut producer, &launch, || true));
    assert_eq!(rings(), 0, "the executor is awake");
    service.set_sleeping(true);
    assert!(client.push(&mut producer, &launch, || true));
    client.set_host_done(3, 1);
    assert_eq!(rings(), 2);
    service.set_sleeping(false);
    client.set_host_done(3, 2);
    assert_eq!(rings(), 0);
}
