//! Settings of the calling thread.

/// Nanoseconds that Linux may add to a sleep of the thread. Its default is 50 µs.
const TIMER_SLACK_NS: libc::c_ulong = 1;

/// Makes short sleeps of the calling thread precise.
pub(crate) fn allow_short_sleeps() {
    // SAFETY: a setting of the calling thread; the call takes no pointers.
    let _ = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0) };
}
