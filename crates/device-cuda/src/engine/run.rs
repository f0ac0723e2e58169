//! An engine's thread.

use super::message::Message;
use super::state::Engine;
use crate::driver::allow_short_sleeps;
use crate::polling::Pause;

/// Without progress for so long, in nanoseconds, the driver is asked whether the context still
/// works.
const DOUBT_NS: u64 = 1_000_000;

/// When an engine without progress asks the driver, and of which stream.
#[derive(Default)]
struct Doubt {
    last_progress: u64,
    last_asked: u64,
    /// Times the driver was asked.
    asked: usize,
}

impl Doubt {
    /// Nanoseconds without progress.
    fn idle_ns(&self, now: u64) -> u64 {
        now.saturating_sub(self.last_progress)
    }

    /// True if the driver should be asked now.
    fn is_due(&self, now: u64) -> bool {
        self.idle_ns(now) > DOUBT_NS && now.saturating_sub(self.last_asked) > DOUBT_NS
    }
}

impl Engine {
    /// Runs until [`Message::End`].
    pub(crate) fn run(mut self) {
        allow_short_sleeps();
        self.shared.mailboxes.of(self.number).set_reader();
        let mut messages = Vec::new();
        let mut doubt = Doubt::default();
        loop {
            self.streams.clock.tick();
            let mut progress = false;
            self.shared.mailboxes.of(self.number).take_all(&mut messages);
            for message in messages.drain(..) {
                progress = true;
                if matches!(message, Message::End) {
                    return self.end();
                }
                self.handle_message(message);
            }
            progress |= self.issue_ready();
            self.long_work.begin_hold();
            progress |= self.poll_completions();
            self.answer_quiet();
            // Calls of the driver have moved the clock on.
            let now = self.streams.clock.now();
            if progress {
                doubt.last_progress = now;
                continue;
            }
            // What a broken context has in flight never ends.
            let in_flight = self.streams.tracker.is_busy() && self.context_works();
            if in_flight && doubt.is_due(now) {
                doubt.last_asked = now;
                doubt.asked += 1;
                self.ask_driver(doubt.asked);
            }
            self.pause(doubt.idle_ns(now));
        }
    }

    /// Answers whoever waits for a quiet card, if nothing long runs here.
    fn answer_quiet(&mut self) {
        let (works, streams) = (self.context_works(), &self.streams);
        self.long_work.answer_unless(|| works && streams.tracker.runs_long(streams.clock.now()));
    }

    /// Asks the driver about one of the busy streams, another one each time: whether it is empty,
    /// and so, whether the context still works.
    fn ask_driver(&mut self, round: usize) {
        let slot = self.streams.tracker.busy_slot(round);
        match self.shared.driver.is_idle(self.streams.tracker.slot(slot).stream()) {
            Ok(false) => {}
            Ok(true) => self.streams.tracker.note_idle(slot),
            Err(error) => self.declare_lost(error),
        }
    }

    /// Waits for messages and fences, as long as the policy says.
    fn pause(&self, idle_ns: u64) {
        let in_flight = self.streams.tracker.is_busy() && self.context_works();
        match self.shared.polling.pause(idle_ns, in_flight) {
            Pause::Spin => std::hint::spin_loop(),
            Pause::Nap(nap) => self.shared.mailboxes.of(self.number).sleep(Some(nap)),
            Pause::Sleep => self.shared.mailboxes.of(self.number).sleep(None),
        }
    }
}
