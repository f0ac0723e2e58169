//! Whether an engine begins long work.
//!
//! ```text
//!         request                 what was held is issued               nothing long runs
//! Open ─────────────▶ Requested ──────────────────────────▶ Draining ──────────────────────▶ Quiet
//!  ▲                      │                                    │                               │
//!  └──────────────────────┴──────────────── resume ────────────┴───────────────────────────────┘
//! ```
//!
//! Between two requests, what the first one held back is issued: so a client that loads one module
//! after the other does not stop its neighbours for ever.

use crossbeam_channel::Sender;

/// Whether an engine begins long work, and who waits until none runs.
#[derive(Debug, Default)]
pub(crate) enum LongWork {
    /// It does.
    #[default]
    Open,
    /// It does until this round's work is issued.
    Requested(Sender<()>),
    /// It does not; somebody waits until what is long has ended.
    Draining(Sender<()>),
    /// It does not, and nothing long runs.
    Quiet,
}

impl LongWork {
    /// Somebody asks for quiet; `ready` is answered when there is.
    pub(crate) fn request(&mut self, ready: Sender<()>) {
        *self = LongWork::Requested(ready);
    }

    /// Nobody needs quiet any more.
    pub(crate) fn resume(&mut self) {
        *self = LongWork::Open;
    }

    /// This round's work is issued: from now on, a request holds.
    pub(crate) fn begin_hold(&mut self) {
        if let LongWork::Requested(_) = self
            && let LongWork::Requested(ready) = std::mem::take(self)
        {
            *self = LongWork::Draining(ready);
        }
    }

    /// True if long work must not begin.
    pub(crate) fn is_held(&self) -> bool {
        matches!(self, LongWork::Draining(_) | LongWork::Quiet)
    }

    /// Answers whoever waits, if nothing long runs. `runs_long` is asked only if somebody waits.
    pub(crate) fn answer_unless(&mut self, runs_long: impl FnOnce() -> bool) {
        let LongWork::Draining(ready) = self else { return };
        if !runs_long() {
            // An asker that no longer waits has gone on without quiet.
            let _ = ready.send(());
            *self = LongWork::Quiet;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_quiet_hears_when_nothing_long_runs() {
        let (ready, answers) = crossbeam_channel::bounded(1);
        let mut work = LongWork::default();
        work.answer_unless(|| panic!("nobody waits"));
        work.request(ready);
        assert!(!work.is_held(), "what an earlier request held back goes first");
        work.begin_hold();
        assert!(work.is_held());
        work.answer_unless(|| true);
        assert!(answers.is_empty());
        work.answer_unless(|| false);
        assert!(work.is_held() && answers.try_recv().is_ok());
        work.begin_hold();
        assert!(work.is_held());
        work.resume();
        assert!(!work.is_held());
    }
}
