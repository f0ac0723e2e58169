//! Model checking of the protocol that ships, on small memory:
//! `RUSTFLAGS="--cfg loom" cargo test -p cumux-ring --test model --release`.
#![cfg(loom)]

use cumux_ring::memory::{Memory, Ordering};
use cumux_ring::page;
use cumux_ring::queue::{Consumer, Next, Producer, Shape};
use cumux_wire::layout;
use cumux_wire::record::{self, Header, NO_ANSWER, Op};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64};
use std::collections::BTreeMap;

const DATA: usize = 1 << 16;
/// Room for two records and a pad.
const SHAPE: Shape = Shape { data: DATA, data_bytes: 128 };

/// Words as loom atomics; data bytes as plain cells, so that an access without the right ordering
/// is reported as a race.
struct Model {
    narrow: BTreeMap<usize, AtomicU32>,
    wide: BTreeMap<usize, AtomicU64>,
    data: Vec<UnsafeCell<u8>>,
}

impl Model {
    fn new(narrow: &[usize], wide: &[usize]) -> Self {
        Self {
            narrow: narrow.iter().map(|o| (*o, AtomicU32::new(0))).collect(),
            wide: wide.iter().map(|o| (*o, AtomicU64::new(0))).collect(),
            data: (0..SHAPE.data_bytes).map(|_| UnsafeCell::new(0)).collect(),
        }
    }
}

// SAFETY: loom reports every unsynchronised access to the cells; that is what this test is for.
unsafe impl Sync for Model {}
// SAFETY: as above.
unsafe impl Send for Model {}

impl Memory for Model {
    fn load32(&self, offset: usize, order: Ordering) -> u32 {
        self.narrow[&offset].load(order)
    }
    fn store32(&self, offset: usize, value: u32, order: Ordering) {
        self.narrow[&offset].store(value, order);
    }
    fn add32(&self, offset: usize, value: u32, order: Ordering) -> u32 {
        self.narrow[&offset].fetch_add(value, order)
    }
    fn load64(&self, offset: usize, order: Ordering) -> u64 {
        self.wide[&offset].load(order)
    }
    fn store64(&self, offset: usize, value: u64, order: Ordering) {
        self.wide[&offset].store(value, order);
    }
    fn write(&self, offset: usize, bytes: &[u8]) {
        for (i, byte) in bytes.iter().enumerate() {
            // SAFETY: loom checks that nobody else accesses the cell now.
            self.data[offset - DATA + i].with_mut(|cell| unsafe { *cell = *byte });
        }
    }
    fn read(&self, offset: usize, into: &mut [u8]) {
        for (i, byte) in into.iter_mut().enumerate() {
            // SAFETY: as above.
            *byte = self.data[offset - DATA + i].with(|cell| unsafe { *cell });
        }
    }
}

fn nop(seq: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    record::encode(
        &Header { stream: 0, answer: NO_ANSWER, seq, request: 0 },
        &Op::Set { target: seq, value: 1, element: 4, width: 1, height: 1, pitch: 0 },
        &mut bytes,
    );
    bytes
}

fn files() -> (Arc<Model>, Arc<Model>) {
    use layout::{page as p, ring as r};
    (Arc::new(Model::new(&[r::WAITERS], &[r::HEAD])), Arc::new(Model::new(&[p::ACTIVITY, p::SLEEPING], &[p::TAKEN, p::COMPLETED])))
}

/// Records arrive whole and in order while the producer reuses space that the consumer has
/// released.
#[test]
fn no_record_is_torn() {
    loom::model(|| {
        let (ring, page) = files();
        let (r, p) = (ring.clone(), page.clone());
        let pusher = loom::thread::spawn(move || {
            let mut producer = Producer::new(SHAPE);
            let mut pushed = 0;
            for seq in 1..=2 {
                if producer.try_push(&*r, &*p, &nop(seq)) {
                    pushed += 1;
                } else {
                    break;
                }
            }
            pushed
        });
        let (mut consumer, mut buffer, mut seen) = (Consumer::new(SHAPE, 0), Vec::new(), 0);
        for _ in 0..2 {
            if let Next::Record { end } = consumer.peek(&*ring, &mut buffer).expect("an honest client") {
                seen += 1;
                assert_eq!(record::decode(&buffer).expect("whole").header.seq, seen);
                consumer.release(&*page, end);
            }
        }
        let pushed = pusher.join().expect("joined");
        while let Next::Record { end } = consumer.peek(&*ring, &mut buffer).expect("an honest client") {
            seen += 1;
            assert_eq!(record::decode(&buffer).expect("whole").header.seq, seen);
            consumer.release(&*page, end);
        }
        assert_eq!(seen, pushed);
    });
}

/// Either the sleeping executor sees the push, or the client sees that it must ring.
#[test]
fn no_push_is_slept_through() {
    loom::model(|| {
        let (ring, page) = files();
        let (r, p) = (ring.clone(), page.clone());
        let pusher = loom::thread::spawn(move || {
            let mut producer = Producer::new(SHAPE);
            assert!(producer.try_push(&*r, &*p, &nop(1)));
            page::must_ring(&*p)
        });
        page::set_sleeping(&*page, true);
        let mut buffer = Vec::new();
        let seen = Consumer::new(SHAPE, 0).peek(&*ring, &mut buffer).expect("an honest client") != Next::Empty;
        let rung = pusher.join().expect("joined");
        assert!(seen || rung, "a push was missed");
    });
}

/// Either the waiter sees the completion or the activity it would sleep on has changed, or the
/// executor sees that it must wake.
#[test]
fn no_completion_is_slept_through() {
    loom::model(|| {
        let (ring, page) = files();
        let (r, p) = (ring.clone(), page.clone());
        let executor = loom::thread::spawn(move || {
            page::set_completed(&*p, 0, 1);
            page::bump(&*p, &*r)
        });
        let activity = page::enter(&*page, &*ring);
        let done = page::completed(&*page, 0) >= 1;
        let changed = page.load32(layout::page::ACTIVITY, Ordering::SeqCst) != activity;
        let woken = executor.join().expect("joined");
        assert!(done || changed || woken, "a completion was missed");
    });
}
