//! After a verdict, kernels of innocent clients may still run: the driver is kept from ending them
//! (decision 0120). All other clients need not wait for them and go on in another process; these
//! stay until their kernels have ended.

use super::message::{FIRST_ENGINE, Message};
use super::state::{ContextState, Engine, Parting};
use crate::driver::{faults_again, hides_warps};
use crate::fault::{Dump, Verdict};
use crate::track::{Flight, Reporting};
use cumux_device::{ClientId, Outcome, Report};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the driver is asked whether it has ended what runs.
const ASK_EVERY: Duration = Duration::from_millis(200);
/// How long the engine may take to let go of those that leave: it has nothing of theirs in flight.
const LEAVE_LIMIT: Duration = Duration::from_secs(1);
/// How long nothing of those that stay may end while the culprit's warps fault again and again.
const STUCK_AT_MOST: Duration = Duration::from_secs(2);

impl Engine {
    /// True if all other clients can leave these: the process has one card, and there is another
    /// process for them.
    pub(super) fn can_part_from(&self, running: &BTreeSet<ClientId>) -> bool {
        self.engines_here() == self.shared.mailboxes.len()
            && self.shared.membership.is_alone()
            && !self.is_evacuation_awaited()
            && self.shared.sink.occupied(running)
    }

    /// Reports the verdict, and has all clients leave but these.
    /// Nobody waits for kernels that were on the card, so they have long; others may never begin,
    /// because the culprit's fill the card.
    pub(super) fn part_from(&mut self, running: BTreeSet<ClientId>, verdict: &Verdict, dump: Option<&Dump>) {
        let resident = |handle: u64| dump.is_some_and(|dump| dump.resident.contains(&handle));
        let waits = self.streams.tracker.flights().filter(|(_, flight)| running.contains(&flight.client));
        let are_resident = waits.filter_map(|(_, flight)| self.streams.tracker.estimates.kernel(flight.kernel()?)).any(|kernel| resident(kernel.handle));
        // The dump lists no kernels whose warps were hidden from it.
        let was_on_card = are_resident || hides_warps();
        let Some(mut finish) = self.report_verdict(verdict, dump.and_then(Dump::describe_place)) else { return };
        if !was_on_card {
            finish.until = Instant::now() + self.shared.fault_wait;
        }
        tracing::info!(clients = ?running, "their kernels still run, and all others go on in another process");
        finish.staying.clone_from(&running);
        self.context = ContextState::Finishing(finish);
        self.let_others_go(running);
    }

    /// Has all clients leave but these, on another thread, which says so when they have. A thread
    /// of its own: the helpers may wait for kernels, or for the end of the fault.
    fn let_others_go(&self, staying: BTreeSet<ClientId>) {
        let shared = self.shared.clone();
        let leave = move || {
            let begun = shared.mailboxes.evacuate(&staying, LEAVE_LIMIT);
            shared.sink.let_go(&staying, begun);
            shared.mailboxes.of(FIRST_ENGINE).send(Message::HaveParted);
        };
        let leave = Arc::new(leave);
        let own = leave.clone();
        if std::thread::Builder::new().name("cuda-parting".into()).spawn(move || own()).is_err() {
            self.shared.helpers.run(move || leave());
        }
    }

    /// Reports what has ended. Returns true if anything has.
    fn report_ended(&mut self) -> bool {
        let mut over = std::mem::take(&mut self.over);
        self.streams.tracker.retire(self.streams.clock.now(), &mut over);
        let progress = !over.is_empty();
        for (Flight { client, stream, token, reporting, .. }, device_ns) in over.drain(..) {
            self.streams.end_flight(stream);
            if reporting == Reporting::Due {
                self.reports.push(Report { client, stream, token, outcome: Outcome::Done { device_ns } });
            }
        }
        self.over = over;
        self.send_reports();
        progress
    }

    /// The clients whose work still runs, without those that have left.
    fn list_running(&self) -> BTreeSet<ClientId> {
        let flights = self.streams.tracker.flights().map(|(_, flight)| flight);
        flights.filter(|flight| flight.reporting == Reporting::Due && !self.has_left(flight.client)).map(|flight| flight.client).collect()
    }

    /// Reports what has been completed since, and ends the context when nothing runs any more.
    /// Returns true if anything happened.
    pub(super) fn continue_finish(&mut self) -> bool {
        self.finish_evacuation();
        let progress = self.report_ended();
        self.finish_closing();
        // The loss is told when the others have left: it is not theirs.
        let ContextState::Finishing(finish) = &self.context else { return progress };
        let running = self.list_running();
        let runs = !running.is_empty();
        // The driver reports the error when it has ended what ran.
        let asks = runs && finish.asked.elapsed() >= ASK_EVERY;
        let is_over = asks && self.shared.driver.is_idle(self.helper_stream).is_err();
        if is_over {
            // What has ended while the driver was asked.
            self.report_ended();
        }
        if asks && let ContextState::Finishing(finish) = &mut self.context {
            finish.asked = Instant::now();
        }
        let ContextState::Finishing(finish) = &mut self.context else { return progress };
        if progress {
            finish.moved = Instant::now();
        }
        // No other process gets the card as long as warps fault again and again.
        let is_stuck = finish.moved.elapsed() >= STUCK_AT_MOST && faults_again() == Some(true);
        if finish.parting == Parting::UnderWay {
            return progress;
        }
        if runs && !is_over && !is_stuck && Instant::now() < finish.until {
            // What those want next whose kernels have ended does not begin here: they follow.
            if running.len() == finish.staying.len() {
                return progress;
            }
            finish.parting = Parting::UnderWay;
            finish.staying.clone_from(&running);
            self.let_others_go(running);
            return true;
        }
        let (error, what) = (finish.error, finish.what.clone());
        self.end_broken(error, &what);
        true
    }
}
