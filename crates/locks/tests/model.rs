//! Loom runs every order of a reader, a writer and one who makes the lock biased:
//! `RUSTFLAGS="--cfg loom" cargo test -p cumux-locks --test model --release`.
//!
//! Loom knows sequential consistency of fences alone, so that the protocol has fences here. As it
//! is shipped, its atomics are sequentially consistent themselves, which is not checked here.
#![cfg(loom)]

use cumux_locks::bias::Bias;
use cumux_locks::notes::Notes;
use loom::cell::UnsafeCell;
use loom::sync::{Arc, RwLock};

/// Any number but 0.
const LOCK: usize = 4096;

/// The C library's lock, what is this crate's, and what the lock guards.
struct Guarded {
    below: RwLock<()>,
    bias: Bias,
    /// Those of each admitted reader.
    notes: Vec<Notes>,
    value: UnsafeCell<u64>,
}

// SAFETY: loom reports every unsynchronised access to the cell; that is what this test is for.
unsafe impl Sync for Guarded {}
// SAFETY: as above.
unsafe impl Send for Guarded {}

impl Guarded {
    fn new(readers: usize) -> Arc<Guarded> {
        Arc::new(Guarded { below: RwLock::new(()), bias: Bias::default(), notes: (0..readers).map(|_| Notes::none()).collect(), value: UnsafeCell::new(0) })
    }

    fn look(&self) -> u64 {
        // SAFETY: loom checks that nobody writes now.
        self.value.with(|value| unsafe { *value })
    }

    /// As `pthread_rwlock_rdlock`, a look, and `pthread_rwlock_unlock` of an admitted thread.
    fn read(&self, reader: usize) -> u64 {
        if let Some(place) = self.notes[reader].begin(LOCK, &self.bias) {
            let value = self.look();
            self.notes[reader].end(place);
            return value;
        }
        let _below = self.below.read().expect("no panic");
        self.bias.count_reads(1);
        self.look()
    }

    /// As `pthread_rwlock_wrlock`, a change, and `pthread_rwlock_unlock`.
    fn write(&self) {
        let may_be_read = self.bias.begin_waiting();
        while may_be_read && self.notes.iter().any(|notes| notes.name(LOCK)) {
            loom::thread::yield_now();
        }
        let _below = self.below.write().expect("no panic");
        self.bias.stop_waiting();
        // SAFETY: loom checks that nobody else accesses the cell now.
        self.value.with_mut(|value| unsafe { *value += 1 });
    }

    fn make_biased(&self) {
        while !self.bias.is_on() {
            self.read(0);
        }
    }
}

#[test]
fn a_reader_of_a_biased_lock_and_a_writer_never_meet() {
    loom::model(|| {
        let guarded = Guarded::new(1);
        guarded.make_biased();
        let writer = loom::thread::spawn({
            let guarded = guarded.clone();
            move || guarded.write()
        });
        assert!(guarded.read(0) <= 1);
        writer.join().expect("no panic");
        assert_eq!(guarded.read(0), 1);
    });
}

#[test]
fn a_lock_that_becomes_biased_while_a_writer_comes_is_no_gap() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let guarded = Guarded::new(2);
        let threads = [0, 1].map(|reader| {
            let guarded = guarded.clone();
            loom::thread::spawn(move || {
                // The second one may make it biased, and the third one reads by a note.
                (0..3).for_each(|_| assert!(guarded.read(reader) <= 1));
            })
        });
        guarded.write();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert_eq!(guarded.read(0), 1);
    });
}
