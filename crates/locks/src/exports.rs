//! The functions of the C library that this program replaces for itself and all its libraries.
//!
//! Everything here may be called by any library at any time: it does not panic, and allocates
//! nothing, but for what `dlsym` says where the C library has no such function.
#![expect(clippy::disallowed_types, reason = "a lock between threads of this process, and the C library's functions")]

use crate::bias::Bias;
use crate::readers;
use libc::{c_char, c_int, c_void, clockid_t, pthread_rwlock_t, timespec};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::{Duration, Instant};

/// Where the word of [`Bias`] lies: `__pad2` of `struct __pthread_rwlock_arch_t` (glibc,
/// `sysdeps/x86_64/nptl/bits/struct_rwlock.h`), which the C library sets to zero and never reads.
const BIAS_AT: usize = 40;
/// `__shared` of the same: not zero where processes share the lock.
const SHARED_AT: usize = 28;
const _: () = assert!(size_of::<pthread_rwlock_t>() == 56);

/// A function of the C library, looked up when it is first called.
struct Original {
    name: &'static std::ffi::CStr,
    found: AtomicPtr<c_void>,
}

type OfLock = unsafe extern "C" fn(*mut pthread_rwlock_t) -> c_int;
type Timed = unsafe extern "C" fn(*mut pthread_rwlock_t, *const timespec) -> c_int;
type Clocked = unsafe extern "C" fn(*mut pthread_rwlock_t, clockid_t, *const timespec) -> c_int;

impl Original {
    const fn of(name: &'static std::ffi::CStr) -> Original {
        Original { name, found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Its address; null if there is no such function.
    fn address(&self) -> *mut c_void {
        let found = self.found.load(Ordering::Relaxed);
        if !found.is_null() {
            return found;
        }
        let name: *const c_char = self.name.as_ptr();
        // SAFETY: the name is a C string, and the next library after this program is asked.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name) };
        self.found.store(found, Ordering::Relaxed);
        found
    }

    /// Calls it for a lock.
    ///
    /// # Safety
    /// It must be a function of a lock alone, and the lock one that the C library would take.
    unsafe fn call(&self, lock: *mut pthread_rwlock_t) -> c_int {
        let address = self.address();
        if address.is_null() {
            return libc::ENOSYS;
        }
        // SAFETY: the caller says that the function has this type, and that the lock is valid.
        unsafe { std::mem::transmute::<*mut c_void, OfLock>(address)(lock) }
    }
}

static READ: Original = Original::of(c"pthread_rwlock_rdlock");
static TRY_READ: Original = Original::of(c"pthread_rwlock_tryrdlock");
static TIMED_READ: Original = Original::of(c"pthread_rwlock_timedrdlock");
static CLOCKED_READ: Original = Original::of(c"pthread_rwlock_clockrdlock");
static WRITE: Original = Original::of(c"pthread_rwlock_wrlock");
static TRY_WRITE: Original = Original::of(c"pthread_rwlock_trywrlock");
static TIMED_WRITE: Original = Original::of(c"pthread_rwlock_timedwrlock");
static CLOCKED_WRITE: Original = Original::of(c"pthread_rwlock_clockwrlock");
static UNLOCK: Original = Original::of(c"pthread_rwlock_unlock");

/// The word of a lock. `None` for one that processes share.
///
/// # Safety
/// `lock` must be a lock of the C library, which lives for as long as what is returned is used.
unsafe fn bias_of<'a>(lock: *mut pthread_rwlock_t) -> Option<&'a Bias> {
    // SAFETY: both places lie in the lock and are aligned as it is. The first is written when the
    // lock is made; the second one is accessed here alone, and as an atomic word.
    unsafe {
        let shared = lock.cast::<u8>().add(SHARED_AT).cast::<c_int>().read();
        (shared == 0).then(|| &*lock.cast::<u8>().add(BIAS_AT).cast::<Bias>())
    }
}

/// Reads by a note, or by the C library's lock, for which `original` is called.
///
/// # Safety
/// As for [`bias_of`]; `original` must take the lock for reading if it returns 0.
unsafe fn read(lock: *mut pthread_rwlock_t, original: impl FnOnce() -> c_int) -> c_int {
    if !readers::is_admitted() {
        return original();
    }
    // SAFETY: as the caller says.
    let Some(bias) = (unsafe { bias_of(lock) }) else { return original() };
    if readers::begin(lock.addr(), bias) {
        return 0;
    }
    let result = original();
    if result == 0
        && let Some(reads) = readers::count_read()
    {
        bias.count_reads(reads);
    }
    result
}

/// Waits for those who read by a note, and calls `original` for the C library's lock. `deadline`:
/// until when, if not for ever; what it returns then is `late`.
///
/// # Safety
/// As for [`bias_of`]; `original` must take the lock for writing if it returns 0.
unsafe fn write(lock: *mut pthread_rwlock_t, deadline: Option<Instant>, late: c_int, original: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: as the caller says.
    let Some(bias) = (unsafe { bias_of(lock) }) else { return original() };
    let may_be_read = bias.begin_waiting();
    let result = if !may_be_read || readers::wait(lock.addr(), deadline) { original() } else { late };
    bias.stop_waiting();
    result
}

/// When that time of a clock is, by the clock of this process.
fn instant_of(clock: clockid_t, time: *const timespec) -> Option<Instant> {
    let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a place for the clock's time, and the caller's time is a valid one.
    let time = unsafe {
        libc::clock_gettime(clock, &raw mut now);
        *time
    };
    let in_ns = |time: timespec| i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
    let left = Duration::from_nanos(u64::try_from((in_ns(time) - in_ns(now)).max(0)).unwrap_or(u64::MAX));
    // One that never comes is none.
    Instant::now().checked_add(left)
}

/// As POSIX says of `pthread_rwlock_rdlock`.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_rdlock(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: the caller's lock is valid.
    unsafe { read(lock, || READ.call(lock)) }
}

/// As POSIX says of `pthread_rwlock_tryrdlock`.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_tryrdlock(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: the caller's lock is valid.
    unsafe { read(lock, || TRY_READ.call(lock)) }
}

/// As POSIX says of `pthread_rwlock_timedrdlock`.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_timedrdlock(lock: *mut pthread_rwlock_t, until: *const timespec) -> c_int {
    let original = TIMED_READ.address();
    if original.is_null() {
        return libc::ENOSYS;
    }
    // SAFETY: the function has this type, and the caller's lock and time are valid.
    unsafe { read(lock, || std::mem::transmute::<*mut c_void, Timed>(original)(lock, until)) }
}

/// As glibc says of `pthread_rwlock_clockrdlock`.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_clockrdlock(lock: *mut pthread_rwlock_t, clock: clockid_t, until: *const timespec) -> c_int {
    let original = CLOCKED_READ.address();
    if original.is_null() {
        return libc::ENOSYS;
    }
    // SAFETY: the function has this type, and the caller's lock and time are valid.
    unsafe { read(lock, || std::mem::transmute::<*mut c_void, Clocked>(original)(lock, clock, until)) }
}

/// As POSIX says of `pthread_rwlock_wrlock`.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_wrlock(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: the caller's lock is valid.
    unsafe { write(lock, None, 0, || WRITE.call(lock)) }
}

/// As POSIX says of `pthread_rwlock_trywrlock`.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_trywrlock(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: the caller's lock is valid.
    unsafe { write(lock, Some(Instant::now()), libc::EBUSY, || TRY_WRITE.call(lock)) }
}

/// As POSIX says of `pthread_rwlock_timedwrlock`.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_timedwrlock(lock: *mut pthread_rwlock_t, until: *const timespec) -> c_int {
    let original = TIMED_WRITE.address();
    if original.is_null() {
        return libc::ENOSYS;
    }
    let deadline = instant_of(libc::CLOCK_REALTIME, until);
    // SAFETY: the function has this type, and the caller's lock and time are valid.
    unsafe { write(lock, deadline, libc::ETIMEDOUT, || std::mem::transmute::<*mut c_void, Timed>(original)(lock, until)) }
}

/// As glibc says of `pthread_rwlock_clockwrlock`.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_clockwrlock(lock: *mut pthread_rwlock_t, clock: clockid_t, until: *const timespec) -> c_int {
    let original = CLOCKED_WRITE.address();
    if original.is_null() {
        return libc::ENOSYS;
    }
    let deadline = instant_of(clock, until);
    // SAFETY: the function has this type, and the caller's lock and time are valid.
    unsafe { write(lock, deadline, libc::ETIMEDOUT, || std::mem::transmute::<*mut c_void, Clocked>(original)(lock, clock, until)) }
}

/// As POSIX says of `pthread_rwlock_unlock`.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_unlock(lock: *mut pthread_rwlock_t) -> c_int {
    if readers::end(lock.addr()) {
        return 0;
    }
    // SAFETY: the caller's lock is valid, and it has it.
    unsafe { UNLOCK.call(lock) }
}
