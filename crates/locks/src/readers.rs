//! Who reads which biased lock: a line for each admitted thread.
#![expect(clippy::disallowed_types, reason = "a lock between threads of this process")]

use crate::bias::Bias;
use crate::notes::{MOST_LOCKS, Notes};
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Most threads that are admitted at once. Others read as before.
const MOST_THREADS: usize = 32;
/// A thread's line of the cache, and the one beside it, which processors fetch together with it.
#[repr(align(128))]
struct Line {
    notes: Notes,
    /// A thread has it.
    is_taken: AtomicBool,
}

static LINES: [Line; MOST_THREADS] = [const { Line { notes: Notes::none(), is_taken: AtomicBool::new(false) } }; MOST_THREADS];

/// What an admitted thread has.
#[derive(Clone, Copy)]
struct Own {
    line: &'static Line,
    /// How often the thread was admitted.
    times: u32,
}

/// One read of so many is counted. A prime, so that it is not always the same one of several locks.
const SAMPLE: u64 = 61;

thread_local! {
    /// Reads since the last one that was counted.
    static READS: Cell<u64> = const { Cell::new(0) };
    static OWN: Cell<Option<Own>> = const { Cell::new(None) };
    /// How often the lock of each note is read at once.
    static DEPTHS: Cell<[u32; MOST_LOCKS]> = const { Cell::new([0; MOST_LOCKS]) };
}

/// The calling thread is admitted until this is dropped.
#[derive(Debug)]
pub struct Admitted {
    /// It is the thread's own.
    _stays: PhantomData<*const ()>,
}

/// Has the calling thread note its reads in a line of its own, if there is one left. May be nested.
pub fn admit() -> Admitted {
    let own = OWN.get().or_else(|| {
        let line = LINES.iter().find(|line| !line.is_taken.load(Ordering::Relaxed) && !line.is_taken.swap(true, Ordering::Acquire))?;
        Some(Own { line, times: 0 })
    });
    OWN.set(own.map(|own| Own { times: own.times + 1, ..own }));
    Admitted { _stays: PhantomData }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let Some(own) = OWN.get() else { return };
        let own = Own { times: own.times.saturating_sub(1), ..own };
        OWN.set(Some(own));
        own.leave_if_over();
    }
}

impl Own {
    /// Gives the line back if the thread is not admitted any more. One that still reads keeps it
    /// until it has unlocked.
    fn leave_if_over(self) {
        if self.times == 0 && DEPTHS.get() == [0; MOST_LOCKS] {
            OWN.set(None);
            self.line.is_taken.store(false, Ordering::Release);
        }
    }
}

/// True if the calling thread is admitted.
pub(crate) fn is_admitted() -> bool {
    OWN.get().is_some()
}

/// Counts a read of any lock by the calling thread. Some count for many, so that the others write
/// nothing that threads share.
pub(crate) fn count_read() -> Option<u64> {
    let reads = READS.get() + 1;
    READS.set(reads % SAMPLE);
    (reads == SAMPLE).then_some(SAMPLE)
}

/// Begins to read the lock of this address, if it is biased and the thread is admitted.
pub(crate) fn begin(lock: usize, bias: &Bias) -> bool {
    let Some(Own { line, times }) = OWN.get() else { return false };
    let mut depths = DEPTHS.get();
    // A second time: also while a writer waits for this thread.
    if let Some(place) = line.notes.place_of(lock) {
        depths[place] += 1;
        DEPTHS.set(depths);
        return true;
    }
    if times == 0 {
        return false;
    }
    let Some(place) = line.notes.begin(lock, bias) else { return false };
    depths[place] = 1;
    DEPTHS.set(depths);
    true
}

/// Ends a read that [`begin`] has begun. False if there is none.
pub(crate) fn end(lock: usize) -> bool {
    let Some(own) = OWN.get() else { return false };
    let Some(place) = own.line.notes.place_of(lock) else { return false };
    let mut depths = DEPTHS.get();
    depths[place] = depths[place].saturating_sub(1);
    DEPTHS.set(depths);
    if depths[place] == 0 {
        own.line.notes.end(place);
        own.leave_if_over();
    }
    true
}

/// True if an admitted thread reads the lock of this address.
pub(crate) fn is_read(lock: usize) -> bool {
    LINES.iter().any(|line| line.notes.name(lock))
}

/// Sleeps for some 50 us. Unlike the C library's own sleep it is no place at which a thread may be
/// cancelled, as `pthread_rwlock_wrlock` is none, and it leaves `errno` as it is.
fn pause() {
    let time = libc::timespec { tv_sec: 0, tv_nsec: 50_000 };
    // SAFETY: the kernel reads the time and writes nothing; `errno` is the calling thread's.
    unsafe {
        let error = *libc::__errno_location();
        libc::syscall(libc::SYS_nanosleep, &raw const time, std::ptr::null_mut::<libc::timespec>());
        *libc::__errno_location() = error;
    }
}

/// Waits until no admitted thread reads the lock of this address, no longer than until `deadline`.
/// False if one still does.
pub(crate) fn wait(lock: usize, deadline: Option<Instant>) -> bool {
    /// So many looks in turn, then as many that give up the processor, then some 50 us apart.
    const LOOKS: u32 = 64;
    let mut looks = 0;
    while is_read(lock) {
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return false;
        }
        match looks {
            0..LOOKS => std::hint::spin_loop(),
            LOOKS..128 => std::thread::yield_now(),
            _ => pause(),
        }
        looks = (looks + 1).min(2 * LOOKS);
    }
    true
}
