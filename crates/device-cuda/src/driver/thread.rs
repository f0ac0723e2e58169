//! A setting of the calling thread.

/// What the kernel may add to a sleep of this thread, in nanoseconds. Its default is 50 µs.
const TIMER_SLACK_NS: libc::c_ulong = 1;

/// Lets short sleeps of this thread be short.
pub(crate) fn allow_short_sleeps() {
    // SAFETY: a setting of the calling thread; the call takes no pointers.
    let _ = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0) };
}
