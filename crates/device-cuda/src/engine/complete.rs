//! Completed work: noticed by the fences, reported to the sink.

use super::state::{ContextState, Engine};
use crate::track::MOMENT_NS;

impl Engine {
    /// Polls the fences and reports completed work. Returns true if there was any.
    pub(super) fn poll_completions(&mut self) -> bool {
        // A fault was announced in this round: what completes from now on waits for the verdict.
        if matches!(self.context, ContextState::Faulted(_) | ContextState::HandingOver(_)) {
            return false;
        }
        let mut over = std::mem::take(&mut self.over);
        let now = self.streams.clock.now();
        let is_moment = now.saturating_sub(self.last_moment) >= MOMENT_NS;
        let still_ns = if is_moment { self.streams.tracker.longest_still_ns(now) } else { 0 };
        self.streams.tracker.retire(now, &mut over);
        let progress = !over.is_empty();
        // Looked at after the fences: what was reached before the announcement is nobody's fault.
        if progress && self.has_to_stop() {
            self.begin_inquiry(over);
            return true;
        }
        if progress && is_moment {
            self.last_moment = now;
            self.shared.motion.note(self.number, now, still_ns);
        }
        if self.withheld.may_hold() {
            self.withheld.sift(&mut over, now, |since| self.shared.motion.of_others(self.number, since));
        }
        for (flight, device_ns) in over.drain(..) {
            self.complete_flight(&flight, device_ns);
        }
        self.over = over;
        self.send_reports();
        if progress {
            self.finish_closing();
        }
        progress
    }
}
