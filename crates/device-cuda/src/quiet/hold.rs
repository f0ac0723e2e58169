//! Whether an engine may begin long kernels, and whether it may begin anything.
//!
//! ```text
//!         request                  the round's work is issued          no long kernel runs
//! Open ─────────────▶ Requested ──────────────────────────▶ Draining ──────────────────────▶ Quiet
//!  ▲                      │                                    │                               │
//!  ├──────────────────────┴──────────────── resume ────────────┴───────────────────────────────┤
//!  │                                                                                      stop │
//!  └──────────────────── resume ──── Stopped ◀── no kernel in flight ── Stopping ◀────────────┘
//! ```
//!
//! Work that one request held back is issued before the next request takes effect. So a client that
//! loads one module after the other does not stop its neighbours for ever.

use crossbeam_channel::Sender;

/// What a thread that asks for quiet waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// No long kernel runs, nor one that takes longer than was expected.
    NothingLong,
    /// No kernel runs that was expected to be long, or has never ended. On a card that is full,
    /// short ones are late all the time.
    NothingKnownLong,
}

/// Whether an engine may begin long kernels, and which thread waits until none runs.
#[derive(Debug, Default)]
pub(crate) enum LongWork {
    /// The engine may begin long kernels.
    #[default]
    Open,
    /// A thread has asked for quiet. The engine may begin long kernels until the end of this round.
    Requested(Sender<()>, Until),
    /// The engine may not begin long kernels. The thread waits until those that run have ended.
    Draining(Sender<()>, Until),
    /// The engine may not begin long kernels, and none runs.
    Quiet,
    /// The engine may begin nothing. The thread waits until no kernel is in flight.
    Stopping(Sender<()>),
    /// The engine may begin nothing, and no kernel is in flight.
    Stopped,
}

impl LongWork {
    /// Asks for quiet. `ready` gets a message when there is.
    pub(crate) fn request(&mut self, ready: Sender<()>, until: Until) {
        *self = LongWork::Requested(ready, until);
    }

    /// Asks for a card on which no kernel runs, where no long one does. `ready` gets a message when
    /// there is. After the request was ended, nothing is asked for.
    pub(crate) fn stop(&mut self, ready: Sender<()>) {
        if let LongWork::Quiet = self {
            *self = LongWork::Stopping(ready);
        }
    }

    /// Notifies the thread that waits, if one does: this engine begins nothing any more.
    pub(crate) fn give_up(self) {
        if let LongWork::Requested(ready, _) | LongWork::Draining(ready, _) | LongWork::Stopping(ready) = self {
            let _ = ready.send(());
        }
    }

    /// Ends the request: everything may begin.
    pub(crate) fn resume(&mut self) {
        *self = LongWork::Open;
    }

    /// Lets a request take effect, once the round's work is issued.
    pub(crate) fn begin_hold(&mut self) {
        if let LongWork::Requested(..) = self
            && let LongWork::Requested(ready, until) = std::mem::take(self)
        {
            *self = LongWork::Draining(ready, until);
        }
    }

    /// True if the engine may not begin long kernels.
    pub(crate) fn is_held(&self) -> bool {
        !matches!(self, LongWork::Open | LongWork::Requested(..))
    }

    /// True if the engine may begin nothing.
    #[inline]
    pub(crate) fn is_stopped(&self) -> bool {
        matches!(self, LongWork::Stopping(_) | LongWork::Stopped)
    }

    /// Notifies the waiting thread, if `runs_long` returns false. `runs_long` is called only if a
    /// thread waits.
    pub(crate) fn answer_unless(&mut self, runs_long: impl FnOnce(Until) -> bool) {
        let LongWork::Draining(ready, until) = self else { return };
        if !runs_long(*until) {
            // The send fails if the thread has stopped waiting and gone on without quiet.
            let _ = ready.send(());
            *self = LongWork::Quiet;
        }
    }

    /// Notifies the thread that waits for it, if no kernel is in flight. `runs` is called only if a
    /// thread waits.
    pub(crate) fn answer_stop_unless(&mut self, runs: impl FnOnce() -> bool) {
        let LongWork::Stopping(ready) = self else { return };
        if !runs() {
            let _ = ready.send(());
            *self = LongWork::Stopped;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_asks_for_quiet_is_notified_when_no_long_kernel_runs() {
        let (ready, answers) = crossbeam_channel::bounded(1);
        let mut work = LongWork::default();
        work.answer_unless(|_| panic!("no thread waits"));
        work.request(ready, Until::NothingKnownLong);
        assert!(!work.is_held(), "work that an earlier request held back is issued first");
        work.begin_hold();
        assert!(work.is_held());
        work.answer_unless(|_| true);
        assert!(answers.is_empty());
        work.answer_unless(|until| until != Until::NothingKnownLong);
        assert!(work.is_held() && answers.try_recv().is_ok());
        work.begin_hold();
        assert!(work.is_held());
        work.resume();
        assert!(!work.is_held());
    }

    #[test]
    fn an_engine_stops_altogether_where_no_long_kernel_runs() {
        let (ready, answers) = crossbeam_channel::bounded(1);
        let mut work = LongWork::default();
        work.stop(ready.clone());
        assert!(!work.is_stopped(), "its request has been ended already");
        work.request(ready.clone(), Until::NothingKnownLong);
        work.begin_hold();
        work.answer_unless(|until| until != Until::NothingKnownLong);
        assert!(answers.try_recv().is_ok());
        work.answer_stop_unless(|| panic!("no thread waits for that"));
        work.stop(ready);
        assert!(work.is_stopped() && work.is_held());
        work.answer_stop_unless(|| true);
        assert!(answers.is_empty());
        work.answer_stop_unless(|| false);
        assert!(work.is_stopped() && answers.try_recv().is_ok());
        work.resume();
        assert!(!work.is_stopped() && !work.is_held());
    }
}
