//! Ring, page and journal over real memory files, with a client that may lie and a writer that may
//! die anywhere.
#![cfg(not(loom))]

use cumux_ring::client::{RingClient, Scheduling};
use cumux_ring::create;
use cumux_ring::file::{FileError, Mapping};
use cumux_ring::journal::{Journal, NewObjects, ObjectReader};
use cumux_ring::memory::{Memory, Ordering};
use cumux_ring::page::Answer;
use cumux_ring::queue::Next;
use cumux_ring::service::Service;
use cumux_wire::layout;
use cumux_wire::record::{Header, Launch, NO_ANSWER, Op, decode, encode};
use cumux_wire::result;
use cumux_wire::text::Channel;
use proptest::prelude::*;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

struct Pair {
    ring: OwnedFd,
    page: OwnedFd,
    client: RingClient,
    service: Service,
}

fn pair() -> Pair {
    let ring = create("ring", layout::ring::BYTES as u64).expect("memory");
    let page = create("page", layout::page::BYTES as u64).expect("memory");
    let doorbell = eventfd(0, EventfdFlags::NONBLOCK).expect("eventfd");
    Pair { client: RingClient::map(&ring, &page, doorbell).expect("client"), service: Service::map(&ring, &page).expect("service"), ring, page }
}

fn launch(seq: u64, parameters: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let op = Op::Launch(Launch { grid: [1; 3], block: [1; 3], parameters: vec![seq as u8; parameters].into(), ..Launch::default() });
    encode(&Header { stream: 0, answer: NO_ANSWER, seq, request: 0 }, &op, &mut bytes);
    bytes
}

/// Two threads, many times around the ring, records of very different lengths: everything arrives
/// once, whole and in order.
#[test]
fn records_arrive_in_order_around_the_ring() {
    let Pair { client, service, .. } = pair();
    let client = Arc::new(client);
    let lengths: Vec<usize> = (0..4000).map(|i| (i * 7919) % 30_000).collect();
    let wanted = lengths.clone();
    let pusher = std::thread::spawn(move || {
        let mut producer = client.producer();
        for (i, parameters) in wanted.iter().enumerate() {
            assert!(client.push(&mut producer, &launch(i as u64 + 1, *parameters), || true));
        }
    });
    let (mut consumer, mut buffer, mut seq) = (Service::consumer(0), Vec::new(), 0_u64);
    while seq < lengths.len() as u64 {
        match service.peek(&mut consumer, &mut buffer).expect("an honest client") {
            Next::Empty => {
                service.notify();
                std::thread::yield_now();
            }
            Next::Record { end } => {
                let record = decode(&buffer).expect("a record");
                seq += 1;
                assert_eq!(record.header.seq, seq);
                let Op::Launch(launch) = record.op else { panic!("a launch") };
                assert_eq!(launch.parameters.as_slice(), vec![seq as u8; lengths[seq as usize - 1]]);
                service.release(&mut consumer, end);
            }
        }
    }
    pusher.join().expect("the pusher is well");
    assert!(consumer.taken() > 10 * layout::ring::DATA_BYTES as u64, "it went around many times");
}

#[test]
fn a_waiter_wakes_for_completion_answer_and_error() {
    let Pair { client, service, .. } = pair();
    let client = Arc::new(client);
    let waiter = {
        let client = client.clone();
        std::thread::spawn(move || {
            assert!(client.wait(None, || client.completed(5) >= 3));
            assert!(client.wait(None, || client.answer(2, 77).is_some()));
            assert!(client.wait(None, || client.sticky() != 0));
            (client.answer(2, 77), client.sticky(), client.fault())
        })
    };
    service.set_completed(5, 3);
    service.notify();
    let answer = Answer { result: result::OUT_OF_MEMORY, words: [1, 2, 3, 4, 5, 6] };
    service.answer(2, 77, &answer);
    service.notify();
    assert_eq!(client.fault(), "", "nothing is known of an error that is not there");
    service.set_fault(result::ILLEGAL_ADDRESS, "kernel k: illegal address");
    service.notify();
    assert_eq!(waiter.join().expect("the waiter is well"), (Some(answer), result::ILLEGAL_ADDRESS, "kernel k: illegal address".to_owned()));
    assert_eq!(client.answer(2, 78), None, "an answer to another request is none");
}

/// However a thread waits, and whether or not there seems to be a core for it: it notices a
/// completion, and a deadline ends the wait.
#[test]
fn a_thread_waits_as_it_was_told() {
    for scheduling in [Scheduling::Auto, Scheduling::Spin, Scheduling::Yield, Scheduling::Block] {
        for company in [0, 1, 10_000] {
            let Pair { client, service, .. } = pair();
            client.set_scheduling(scheduling);
            service.set_company(company);
            let over = Instant::now() + Duration::from_millis(3);
            assert!(!client.wait(Some(over), || client.completed(5) >= 3), "{scheduling:?}");
            assert!(Instant::now() >= over, "{scheduling:?}: not before its time");
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| client.wait(None, || client.completed(5) >= 3));
                service.set_completed(5, 3);
                service.notify();
                assert!(waiter.join().expect("the waiter is well"), "{scheduling:?}");
            });
        }
    }
}

#[test]
fn text_wraps_and_stops_when_full() {
    let Pair { client, service, .. } = pair();
    let text: Vec<u8> = (0..layout::page::TEXT_BYTES + 1000).map(|i| b'a' + (i % 26) as u8).collect();
    let first = service.put_text(Channel::Output, &text);
    assert_eq!(first, layout::page::TEXT_BYTES, "a full ring takes no more");
    let mut out = Vec::new();
    client.take_text(Channel::Output, &mut out);
    assert_eq!(service.put_text(Channel::Output, &text[first..]), 1000);
    client.take_text(Channel::Output, &mut out);
    assert_eq!(out, text);
}

#[test]
fn the_channels_of_text_are_apart() {
    let Pair { client, service, .. } = pair();
    let full = vec![b'x'; layout::page::TEXT_BYTES];
    assert_eq!(service.put_text(Channel::Output, &full), full.len());
    let errors: Vec<u8> = (0..layout::page::ERROR_TEXT_BYTES).map(|i| b'a' + (i % 26) as u8).collect();
    assert_eq!(service.put_text(Channel::Error, b"half a line"), 11, "a full standard output stops no error");
    let (mut out, mut err) = (Vec::new(), Vec::new());
    client.take_text(Channel::Error, &mut err);
    assert_eq!(err, b"half a line");
    err.clear();
    // Its own wrap-around.
    assert_eq!(service.put_text(Channel::Error, &errors), errors.len());
    assert_eq!(service.put_text(Channel::Error, b"more"), 0, "a full ring takes no more");
    client.take_text(Channel::Output, &mut out);
    client.take_text(Channel::Error, &mut err);
    assert!(out == full && err == errors);
}

/// A client can write the page, too. Without overflow checks this cannot fail.
#[test]
fn text_goes_on_past_the_largest_position() {
    let Pair { client, service, ring, page, .. } = pair();
    let last = u64::MAX - 2;
    Mapping::of(&page, layout::page::BYTES).expect("map").store64(layout::page::TEXT_HEAD, last, Ordering::Relaxed);
    Mapping::of(&ring, layout::ring::BYTES).expect("map").store64(layout::ring::TEXT_TAIL, last, Ordering::Relaxed);
    assert_eq!(service.put_text(Channel::Output, b"some text"), 9);
    let mut out = Vec::new();
    client.take_text(Channel::Output, &mut out);
    assert_eq!(out, b"some text");
}

#[test]
fn a_file_that_could_shrink_is_refused() {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    let file = memfd_create("loose", MemfdFlags::ALLOW_SEALING).expect("memfd");
    ftruncate(&file, 4096).expect("size");
    assert!(matches!(Mapping::of(&file, 4096), Err(FileError::Unsealed)));
    let sealed = create("sealed", 4096).expect("memfd");
    assert!(matches!(Mapping::of(&sealed, 8192), Err(FileError::Size { found: 4096, wanted: 8192 })));
    assert!(ftruncate(&sealed, 0).is_err(), "sealed files keep their size");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// The client writes anything anywhere into its ring file, positions included: the consumer
    /// reports a lie or yields bounded records, and never runs away.
    #[test]
    fn a_client_that_lies_in_the_ring(head in any::<u64>(), small in any::<bool>(), noise in proptest::collection::vec((0_usize..4096, any::<u64>()), 0..64)) {
        let Pair { ring, service, .. } = pair();
        let map = Mapping::of(&ring, layout::ring::BYTES).expect("map");
        for (word, value) in noise {
            map.store64(layout::ring::DATA + word * 8, value, Ordering::Relaxed);
        }
        map.store64(layout::ring::HEAD, if small { head % (1 << 21) } else { head }, Ordering::Release);
        let (mut consumer, mut buffer) = (Service::consumer(0), Vec::new());
        for _ in 0..200_000 {
            match service.peek(&mut consumer, &mut buffer) {
                Ok(Next::Record { end }) => {
                    let _ = decode(&buffer);
                    prop_assert!(end > consumer.taken());
                    service.release(&mut consumer, end);
                }
                Ok(Next::Empty) | Err(_) => break,
            }
        }
        prop_assert!(consumer.taken() <= layout::ring::DATA_BYTES as u64);
    }

    /// Whatever was accepted and retired, a successor that maps the file finds exactly the accepted
    /// work that was not retired, and all objects.
    #[test]
    fn a_successor_finds_what_is_open(steps in proptest::collection::vec((0_u8..3, 0_usize..3000), 1..120)) {
        let file = create("journal", layout::journal::BYTES as u64).expect("memory");
        let mut journal = Journal::map(&file).expect("journal");
        let (mut open, mut objects, mut end) = (Vec::<(u64, u64, Vec<u8>)>::new(), Vec::<Vec<u8>>::new(), 0_u64);
        for (action, n) in steps {
            match action {
                0 if journal.has_room() => {
                    end += 8;
                    let record = launch(end, n);
                    let token = journal.accept(end, &record);
                    journal.publish();
                    prop_assert!(open.last().is_none_or(|last| token > last.0), "tokens grow");
                    open.push((token, end, record));
                }
                1 if !open.is_empty() => {
                    let (token, _, _) = open.remove(n % open.len());
                    journal.retire(token);
                    journal.retire(token);
                }
                _ => {
                    let entry = vec![n as u8; n];
                    journal.append_object(&entry, || objects.clone()).expect("room");
                    objects.push(entry);
                }
            }
            journal.set_completed(3, end);
        }
        let successor = Journal::map(&file).expect("journal");
        let work: Vec<_> = successor.work().expect("sound").into_iter().map(|e| (e.token, e.ring_end, e.record)).collect();
        prop_assert_eq!(work, open);
        prop_assert_eq!(successor.objects().expect("sound"), objects);
        prop_assert_eq!(successor.completed(3), end);
    }

    /// A damaged journal is an error or a bounded answer, never a crash.
    #[test]
    fn a_damaged_journal_is_survived(noise in proptest::collection::vec((0_usize..600, any::<u64>()), 1..80)) {
        let file = create("journal", layout::journal::BYTES as u64).expect("memory");
        let mut journal = Journal::map(&file).expect("journal");
        for i in 0..20 {
            journal.accept(i, &launch(i, 100));
            journal.publish();
            journal.append_object(&[1; 100], Vec::new).expect("room");
        }
        let map = Mapping::of(&file, layout::journal::BYTES).expect("map");
        for (word, value) in noise {
            map.store64(word * 8, value, Ordering::Relaxed);
            map.store64(layout::journal::HEADER_BYTES + 2 * layout::journal::OBJECT_BYTES + word * 8, value, Ordering::Relaxed);
        }
        if let Ok(journal) = Journal::map(&file) {
            let _ = journal.work();
            let _ = journal.objects();
        }
    }

    /// The same with positions that are possible but for one thing.
    #[test]
    fn damaged_positions_are_survived(tail in 0_u64..64, length in 0_u64..64, objects in 0_u64..64, noise in proptest::collection::vec(any::<u64>(), 16)) {
        let file = create("journal", layout::journal::BYTES as u64).expect("memory");
        let map = Mapping::of(&file, layout::journal::BYTES).expect("map");
        for (word, value) in [(1, objects), (2, tail + length), (3, tail)] {
            map.store64(word * 8, value, Ordering::Relaxed);
        }
        for (word, value) in noise.into_iter().enumerate() {
            map.store64(layout::journal::HEADER_BYTES + word * 8, value % 64, Ordering::Relaxed);
            map.store64(layout::journal::HEADER_BYTES + 2 * layout::journal::OBJECT_BYTES + word * 8, value % 64, Ordering::Relaxed);
        }
        if let Ok(mut journal) = Journal::map(&file) {
            let _ = journal.objects();
            for entry in journal.work().unwrap_or_default() {
                journal.retire(entry.token);
            }
        }
    }
}

/// Many times around the work log, with a few records always open: a successor finds them at any
/// moment.
#[test]
fn the_work_log_goes_round() {
    let file = create("journal", layout::journal::BYTES as u64).expect("memory");
    let mut journal = Journal::map(&file).expect("journal");
    let mut open = std::collections::VecDeque::new();
    for seq in 1..=1500_u64 {
        assert!(journal.has_room());
        let record = launch(seq, (seq as usize * 7919) % 30_000);
        open.push_back((journal.accept(seq * 8, &record), seq * 8, record));
        journal.publish();
        // The one before the last is over before the oldest.
        if open.len() > 9 {
            let (token, ..) = open.remove(open.len() - 2).expect("ten");
            journal.retire(token);
        }
        if seq % 5 == 0 {
            let (token, ..) = open.pop_front().expect("some");
            journal.retire(token);
        }
        if seq % 10 == 0 {
            let found: Vec<_> = Journal::map(&file).expect("journal").work().expect("sound").into_iter().map(|e| (e.token, e.ring_end, e.record)).collect();
            assert!(found.iter().eq(&open), "after {seq} records");
        }
    }
    let last = open.back().expect("some").0;
    assert!(last > 4 * layout::journal::WORK_BYTES as u64, "it went around several times: {last}");
}

#[test]
fn a_full_object_log_keeps_only_what_is_true() {
    let file = create("journal", layout::journal::BYTES as u64).expect("memory");
    let mut journal = Journal::map(&file).expect("journal");
    let big = vec![7; layout::journal::OBJECT_BYTES / 16];
    for _ in 0..20 {
        journal.append_object(&big, || vec![vec![1; 10]]).expect("compaction makes room");
    }
    let objects = Journal::map(&file).expect("journal").objects().expect("sound");
    assert_eq!(objects[0], vec![1; 10], "the snapshot comes first");
    assert!(objects.len() < 20);
    let refused = journal.append_object(&vec![0; layout::journal::OBJECT_BYTES], || vec![big.clone(); 12]);
    assert!(refused.is_err(), "what does not fit is refused");
    assert_eq!(journal.objects().expect("sound"), objects, "and nothing has changed");
}

#[test]
fn a_standby_reads_what_is_added_to_an_object_log() {
    let file = create("journal", layout::journal::BYTES as u64).expect("memory");
    let mut journal = Journal::map(&file).expect("journal");
    let mut reader = ObjectReader::map(&file).expect("journal");
    let new = |is_whole, entries: &[&[u8]]| NewObjects { is_whole, entries: entries.iter().map(|entry| entry.to_vec()).collect() };
    assert_eq!(reader.read_new().expect("sound"), new(true, &[]));
    journal.append_object(b"one", Vec::new).expect("room");
    journal.append_object(b"two", Vec::new).expect("room");
    assert_eq!(reader.read_new().expect("sound"), new(false, &[b"one", b"two"]));
    assert_eq!(reader.read_new().expect("sound"), new(false, &[]));
    journal.append_object(b"three", Vec::new).expect("room");
    assert_eq!(reader.read_new().expect("sound"), new(false, &[b"three"]));
    // The writer changes over to the other half, and what was read before is void.
    let half = vec![7; layout::journal::OBJECT_BYTES / 3];
    for _ in 0..3 {
        journal.append_object(&half, || vec![b"all".to_vec()]).expect("compaction makes room");
    }
    let whole = reader.read_new().expect("sound");
    assert!(whole.is_whole && whole.entries == journal.objects().expect("sound") && whole.entries[0] == b"all");
    // A journal that makes no sense is no panic, and the next call begins anew.
    rustix::io::pwrite(&file, &u64::MAX.to_le_bytes(), 8).expect("written");
    assert!(reader.read_new().is_err() && reader.read_new().is_err());
    rustix::io::pwrite(&file, &0_u64.to_le_bytes(), 8).expect("written");
    assert_eq!(reader.read_new().expect("sound"), new(true, &[]));
}
