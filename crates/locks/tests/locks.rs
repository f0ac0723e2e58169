//! Locks of the C library, through the functions that replace its own: threads that read by notes,
//! threads that read as before, and writers.
#![cfg(all(target_arch = "x86_64", target_env = "gnu", not(loom)))]
#![allow(clippy::disallowed_types, reason = "what threads of a test tell each other")]

use cumux_locks::{Admitted, admit};
use libc::{PTHREAD_RWLOCK_INITIALIZER, pthread_rwlock_t};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// More reads than make a lock biased.
const MANY: usize = 50_000;

/// A lock with two numbers that are always equal, if nobody reads while somebody writes.
struct Pair {
    lock: UnsafeCell<pthread_rwlock_t>,
    numbers: UnsafeCell<[u64; 2]>,
}

// SAFETY: the numbers are read and written with the lock held alone.
unsafe impl Sync for Pair {}

impl Pair {
    fn new() -> Pair {
        Pair { lock: UnsafeCell::new(PTHREAD_RWLOCK_INITIALIZER), numbers: UnsafeCell::default() }
    }

    fn call(&self, function: unsafe extern "C" fn(*mut pthread_rwlock_t) -> i32) -> i32 {
        // SAFETY: the lock is valid, and each caller follows the rules of POSIX.
        unsafe { function(self.lock.get()) }
    }

    fn read(&self) -> [u64; 2] {
        assert_eq!(self.call(cumux_locks::pthread_rwlock_rdlock), 0);
        // SAFETY: the lock is held for reading.
        let numbers = unsafe { [0, 1].map(|number| (&raw const (*self.numbers.get())[number]).read_volatile()) };
        assert_eq!(self.call(cumux_locks::pthread_rwlock_unlock), 0);
        numbers
    }

    /// Between its two steps others have time to see that one is done.
    fn write(&self) {
        assert_eq!(self.call(cumux_locks::pthread_rwlock_wrlock), 0);
        for number in [0, 1] {
            // SAFETY: the lock is held for writing.
            unsafe {
                let place = &raw mut (*self.numbers.get())[number];
                place.write_volatile(place.read_volatile() + 1);
            }
            (0..4).for_each(|_| std::thread::yield_now());
        }
        assert_eq!(self.call(cumux_locks::pthread_rwlock_unlock), 0);
    }

    /// Makes it biased.
    fn bias(&self) {
        (0..MANY).for_each(|_| _ = self.read());
    }

    /// The count of readers in the C library's own word: it does not change by a read of a note.
    fn readers_of_the_c_library(&self) -> u32 {
        // SAFETY: the first word of the lock counts readers (glibc, struct_rwlock.h).
        unsafe { self.lock.get().cast::<u32>().read_volatile() }
    }
}

#[test]
fn nobody_reads_while_somebody_writes() {
    const WRITES: u64 = 100;
    let (pair, is_over, reads, biased) = (Pair::new(), AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for is_admitted in [true, true, false] {
            let (pair, is_over, reads) = (&pair, &is_over, &reads);
            scope.spawn(move || {
                let _admitted: Option<Admitted> = is_admitted.then(admit);
                while !is_over.load(Ordering::Relaxed) {
                    let [first, second] = pair.read();
                    assert_eq!(first, second);
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let writers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..WRITES {
                        biased.fetch_add(usize::from(bias_word(&pair) >> 63 == 1), Ordering::Relaxed);
                        pair.write();
                        // Enough for the lock to be biased again.
                        let until = reads.load(Ordering::Relaxed) + MANY;
                        while reads.load(Ordering::Relaxed) < until {
                            std::thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(pair.read(), [2 * WRITES; 2]);
    assert!(biased.into_inner() > 10, "writers came to a biased lock");
}

/// A lock that the calling thread reads by a note. In a box: it must not move.
fn read_by_a_note() -> (Box<Pair>, Admitted) {
    let (pair, admitted) = (Box::new(Pair::new()), admit());
    pair.bias();
    assert_eq!(pair.call(cumux_locks::pthread_rwlock_rdlock), 0);
    assert_eq!(pair.readers_of_the_c_library(), 0, "it is biased");
    (pair, admitted)
}

/// What another thread gets that calls these.
fn elsewhere<const N: usize>(pair: &Pair, functions: [unsafe extern "C" fn(*mut pthread_rwlock_t) -> i32; N]) -> [i32; N] {
    std::thread::scope(|scope| scope.spawn(|| functions.map(|function| pair.call(function))).join().expect("no panic"))
}

#[test]
fn a_read_by_a_note_leaves_the_lock_untouched_and_writers_are_refused() {
    let (pair, admitted) = read_by_a_note();
    assert_eq!(elsewhere(&pair, [cumux_locks::pthread_rwlock_trywrlock]), [libc::EBUSY]);
    let read = [cumux_locks::pthread_rwlock_tryrdlock, cumux_locks::pthread_rwlock_unlock];
    assert_eq!(elsewhere(&pair, read), [0, 0], "who is not admitted reads beside it");
    assert_eq!(pair.call(cumux_locks::pthread_rwlock_unlock), 0);
    assert_eq!((pair.call(cumux_locks::pthread_rwlock_trywrlock), pair.call(cumux_locks::pthread_rwlock_unlock)), (0, 0));
    drop(admitted);
    assert_eq!(pair.read(), [0, 0]);
}

/// A thread that reads a second time, and one that it waits for, may do so while a writer waits:
/// the C library prefers readers.
#[test]
fn who_reads_does_not_wait_for_a_writer_that_waits_for_it() {
    let (pair, waits, has_read) = (Pair::new(), AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _admitted = admit();
            pair.bias();
            assert_eq!(pair.call(cumux_locks::pthread_rwlock_rdlock), 0);
            waits.store(true, Ordering::SeqCst);
            // The writer has ended the bias: nobody else can read by a note any more.
            while waiting_writers(&pair) != 1 {
                std::thread::yield_now();
            }
            assert_eq!(pair.read(), [0, 0], "a second time");
            while has_read.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            assert_eq!(pair.call(cumux_locks::pthread_rwlock_unlock), 0);
        });
        while !waits.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        let writer = scope.spawn(|| pair.write());
        while waiting_writers(&pair) != 1 {
            std::thread::yield_now();
        }
        assert_eq!(pair.read(), [0, 0], "another one");
        has_read.store(1, Ordering::SeqCst);
        writer.join().expect("no panic");
    });
    assert_eq!(pair.read(), [1, 1]);
}

/// Bits 32 to 61 (`src/bias.rs`).
fn waiting_writers(pair: &Pair) -> u64 {
    bias_word(pair) >> 32 & ((1 << 30) - 1)
}

fn bias_word(pair: &Pair) -> u64 {
    // SAFETY: the word at 40 is this crate's, and aligned.
    unsafe { pair.lock.get().cast::<u64>().add(5).read_volatile() }
}

#[test]
fn a_writer_with_a_time_limit_gives_up() {
    unsafe extern "C" fn timed(lock: *mut pthread_rwlock_t) -> i32 {
        // SAFETY: as the caller says of the lock; the time is valid.
        unsafe { cumux_locks::pthread_rwlock_timedwrlock(lock, &PAST) }
    }
    unsafe extern "C" fn clocked(lock: *mut pthread_rwlock_t) -> i32 {
        // SAFETY: as above.
        unsafe { cumux_locks::pthread_rwlock_clockwrlock(lock, libc::CLOCK_MONOTONIC, &PAST) }
    }
    const PAST: libc::timespec = libc::timespec { tv_sec: 1, tv_nsec: 0 };
    let (pair, _admitted) = read_by_a_note();
    assert_eq!(elsewhere(&pair, [timed, clocked]), [libc::ETIMEDOUT; 2]);
    assert_eq!(pair.call(cumux_locks::pthread_rwlock_unlock), 0);
    pair.write();
    assert_eq!(pair.read(), [1, 1]);
}

/// A lock that processes share is the C library's alone.
#[test]
fn a_lock_that_processes_share_is_left_alone() {
    let pair = Pair::new();
    // SAFETY: the attributes and the lock are places for them, and are made before they are used.
    unsafe {
        let mut attributes = std::mem::zeroed();
        assert_eq!(libc::pthread_rwlockattr_init(&raw mut attributes), 0);
        assert_eq!(libc::pthread_rwlockattr_setpshared(&raw mut attributes, libc::PTHREAD_PROCESS_SHARED), 0);
        assert_eq!(libc::pthread_rwlock_init(pair.lock.get(), &raw const attributes), 0);
    }
    let _admitted = admit();
    pair.bias();
    pair.write();
    assert_eq!((bias_word(&pair), pair.read()), (0, [1, 1]));
}

#[test]
fn who_leaves_while_it_reads_unlocks_as_before() {
    let (pair, admitted) = read_by_a_note();
    drop(admitted);
    assert_eq!(elsewhere(&pair, [cumux_locks::pthread_rwlock_trywrlock]), [libc::EBUSY]);
    assert_eq!(pair.call(cumux_locks::pthread_rwlock_unlock), 0);
    pair.write();
    assert_eq!(pair.read(), [1, 1]);
}

/// What libraries of this program call is what is here.
#[test]
fn libraries_find_these_functions() {
    let names = [c"pthread_rwlock_rdlock", c"pthread_rwlock_wrlock", c"pthread_rwlock_trywrlock", c"pthread_rwlock_unlock"];
    let own = [
        cumux_locks::pthread_rwlock_rdlock as *const () as usize,
        cumux_locks::pthread_rwlock_wrlock as *const () as usize,
        cumux_locks::pthread_rwlock_trywrlock as *const () as usize,
        cumux_locks::pthread_rwlock_unlock as *const () as usize,
    ];
    // SAFETY: the names are C strings.
    let found = names.map(|name| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.addr());
    assert_eq!(found, own);
}
