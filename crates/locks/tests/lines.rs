//! More threads than there are lines. A program of its own: it takes them all.
#![cfg(all(target_arch = "x86_64", target_env = "gnu", not(loom)))]

use cumux_locks::{admit, pthread_rwlock_rdlock, pthread_rwlock_unlock, pthread_rwlock_wrlock};
use libc::{PTHREAD_RWLOCK_INITIALIZER, pthread_rwlock_t};
use std::cell::UnsafeCell;
use std::sync::Barrier;

const THREADS: usize = 40;
/// More reads than make a lock biased.
const MANY: usize = 50_000;

struct Lock(UnsafeCell<pthread_rwlock_t>);

// SAFETY: a lock of the C library is for all threads.
unsafe impl Sync for Lock {}

impl Lock {
    fn call(&self, function: unsafe extern "C" fn(*mut pthread_rwlock_t) -> i32) {
        // SAFETY: the lock is valid, and each caller follows the rules of POSIX.
        assert_eq!(unsafe { function(self.0.get()) }, 0);
    }

    /// Readers, as the C library counts them (glibc, `nptl/pthread_rwlock_common.c`).
    fn readers_of_the_c_library(&self) -> u32 {
        // SAFETY: the first word of the lock has the count above three other bits.
        unsafe { self.0.get().cast::<u32>().read_volatile() >> 3 }
    }
}

#[test]
fn who_finds_no_line_reads_as_before() {
    let (lock, here) = (Lock(UnsafeCell::new(PTHREAD_RWLOCK_INITIALIZER)), Barrier::new(THREADS + 1));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let _admitted = admit();
                here.wait();
                for _ in 0..MANY {
                    lock.call(pthread_rwlock_rdlock);
                    lock.call(pthread_rwlock_unlock);
                }
                here.wait();
                lock.call(pthread_rwlock_rdlock);
                here.wait();
                here.wait();
                lock.call(pthread_rwlock_unlock);
            });
        }
        (0..3).for_each(|_| _ = here.wait());
        let by_the_c_library = lock.readers_of_the_c_library();
        assert_eq!(by_the_c_library, 8, "32 have lines");
        here.wait();
    });
    lock.call(pthread_rwlock_wrlock);
    lock.call(pthread_rwlock_unlock);
}
