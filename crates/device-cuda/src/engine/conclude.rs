//! What follows from a verdict: reports, and the end of a broken context.

use super::state::{ContextState, Engine, Finish, Parting};
use crate::driver::share_dump;
use crate::fault::{CudaError, DumpState, Rule, Verdict, accusation};
use crate::track::Reporting;
use cumux_device::{Channel, ClientId, Fault, InDoubt, Outcome, Report};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// How many times as long as after a fault of its own a spared card waits for its work, if the
/// driver reports errors for its context, too: its kernels run on all the same.
pub(crate) const SPARED_WAITS: u32 = 12;

impl Engine {
    /// Reports everything by the verdict. A successor does what was not begun.
    pub(super) fn conclude(&mut self, verdict: &Verdict, place: Option<String>) {
        if let Some(Finish { error, what, .. }) = self.report_verdict(verdict, place) {
            self.end_broken(error, &what);
        }
    }

    /// Reports what was completed by the verdict, and the culprits' faults. Work of others that
    /// still runs is left.
    pub(super) fn report_verdict(&mut self, verdict: &Verdict, place: Option<String>) -> Option<Finish> {
        let ContextState::Faulted(inquiry) = std::mem::replace(&mut self.context, ContextState::Broken) else { return None };
        let error = verdict.error.unwrap_or(CudaError::LAUNCH_FAILED);
        let what = self.shared.driver.describe(error);
        let what = place.map_or_else(|| what.clone(), |place| format!("{what} ({place})"));
        tracing::info!(
            clients = ?verdict.suspects.keys().collect::<Vec<_>>(),
            rule = ?verdict.rule,
            waited_ms = inquiry.begun.elapsed().as_millis() as u64,
            "a kernel has broken the context: {what}"
        );
        let fault_of = |client: ClientId| {
            let suspect = verdict.suspects.get(&client)?;
            Some(Fault { result: error.number(), text: format!("{}; {}", accusation(&verdict.suspects, suspect, &what), verdict.rule.describe()) })
        };
        if verdict.is_certain() && error == CudaError::ASSERT {
            let text: String = self.shared.watch.take_assertions().iter().map(|line| format!("{line}\n")).collect();
            for client in verdict.suspects.keys() {
                self.shared.sink.text(*client, Channel::Error, text.as_bytes());
            }
        }
        // What is held was completed before the announcement: it comes first in its stream.
        self.release_held(|_| true);
        for (flight, device_ns) in inquiry.completed {
            self.streams.end_flight(flight.stream);
            if flight.reporting == Reporting::Due {
                let outcome = fault_of(flight.client).map_or(Outcome::Done { device_ns }, Outcome::Fault);
                self.reports.push(Report { client: flight.client, stream: flight.stream, token: flight.token, outcome });
            }
        }
        self.send_reports();
        for client in verdict.suspects.keys() {
            if let Some(fault) = fault_of(*client) {
                self.stop_client(*client, &fault);
                self.shared.sink.faulted(*client, &fault);
            }
        }
        if verdict.rule != Rule::AnotherCard
            && matches!(self.shared.watch.dump(), DumpState::Read(_))
            && let Some(dump) = share_dump()
        {
            self.shared.sink.dumped(&verdict.suspects.keys().copied().collect::<Vec<_>>(), dump);
        }
        if verdict.rule == Rule::CodeOfThePast && verdict.suspects.is_empty() {
            tracing::warn!("several clients have launched that kernel, and none had it in flight: nobody is told the error");
        }
        if verdict.rule == Rule::CannotTell {
            tracing::warn!("{} clients had kernels under way, and nothing tells whose it was", verdict.suspects.len());
        }
        let until = inquiry.begun + self.shared.fault_wait * SPARED_WAITS;
        let now = Instant::now();
        Some(Finish { parting: Parting::UnderWay, staying: BTreeSet::new(), until, asked: now, moved: now, error, what })
    }

    /// Declares the context broken. What has no mark by now never gets one: the clients whose
    /// kernels that are get an error, and a successor does what was not begun.
    pub(super) fn end_broken(&mut self, error: CudaError, what: &str) {
        self.context = ContextState::Broken;
        self.shared.loss.declare(error, self.shared.driver.describe_numbered(error));
        let others = self.stop_unfinished(error, what);
        if self.engines_here() == self.shared.mailboxes.len() {
            self.shared.finish_loss(self.engines_here(), others);
        } else {
            // An engine has not come back from a call of the driver, and may never do.
            self.shared.finish_loss_without_all();
        }
    }

    /// Stops the clients whose kernels have no mark. Returns what else is in doubt.
    pub(super) fn stop_unfinished(&mut self, error: CudaError, what: &str) -> Vec<InDoubt> {
        let (kernels, others) = self.list_doubts();
        for (client, kernels) in kernels {
            let text = format!("another client's kernel ended the context ({what}) while {kernels} was under way; whether it had finished is not known");
            self.stop_client(client, &Fault { result: error.number(), text });
        }
        self.finish_closing();
        others
    }

    /// Work of others that was given to the card and has no mark: the clients whose kernels that
    /// are, with the kernels' names, and all other such work. Also what is behind other work in its
    /// stream may have begun: the card goes on until the process has ended.
    pub(super) fn list_doubts(&self) -> (BTreeMap<ClientId, String>, Vec<InDoubt>) {
        let tracker = &self.streams.tracker;
        let (mut kernels, mut others) = (BTreeMap::new(), Vec::new());
        for (_, flight) in tracker.flights().filter(|(_, flight)| flight.reporting == Reporting::Due) {
            match flight.kernel() {
                Some(kernel) => drop(kernels.entry(flight.client).or_insert_with(|| tracker.estimates.name(kernel).to_owned())),
                None => others.push(InDoubt { client: flight.client, stream: flight.stream, token: flight.token }),
            }
        }
        (kernels, others)
    }
}
