//! From the announcement of a fault to the last report.

use std::collections::BTreeSet;
use std::time::Instant;

use cumux_device::{ClientId, Fault, InDoubt, Outcome};

use super::super::client::{CardClient, ClientEnd, Reporting, Task};
use super::super::report::{Report, outcome_of};
use super::super::scheduler::Scheduler;
use super::{FINISHING_WAITS, PART_AFTER, Parting, Phase};

/// What the settling has to deliver, in this order.
#[derive(Debug, Default)]
pub(super) struct Settlement {
    pub(super) reports: Vec<cumux_device::Report>,
    pub(super) culprits: Vec<(ClientId, Fault)>,
    pub(super) in_doubt: Vec<InDoubt>,
    pub(super) why: String,
}

/// A report as the sink takes it. A card that breaks keeps no progress log.
fn plain(report: Report) -> cumux_device::Report {
    cumux_device::Report { client: report.client, stream: report.stream, token: report.token, outcome: report.outcome }
}

impl Scheduler {
    /// Begins nothing more: takes back what has not begun, and lets go of those faulting kernels
    /// that look complete from now on. Returns the reports of what had ended before.
    pub(super) fn halt(&mut self, now: Instant) -> Vec<cumux_device::Report> {
        let Some(breakage) = &mut self.breakage else { return Vec::new() };
        breakage.phase = Phase::Halted(now + breakage.timing.wait);
        breakage.parting = Parting::Due(now + PART_AFTER);
        let late: Vec<_> = breakage.held.iter().copied().filter(|piece| breakage.completes_late(piece.task)).collect();
        let trusted = self.reports.drain(..).map(plain).collect();
        for client in self.clients.values_mut() {
            let unbegun: Vec<u64> = client.tasks.iter().filter(|(_, running)| !running.has_begun()).map(|(number, _)| *number).collect();
            for number in unbegun {
                if let Some(Task::Kernel(kernel)) = client.tasks.get(&number).map(|running| &running.task) {
                    client.partitions.end_kernel(&mut self.sm_allocator, kernel.sm_set);
                }
                // Back to where it came from: a culprit's is reported from there.
                client.unbegun.extend(client.tasks.remove(&number).map(|running| (running.stream, running.token)));
            }
        }
        for piece in late {
            let running = self.clients.get_mut(&piece.client).and_then(|client| client.tasks.get_mut(&piece.task));
            if let Some(Task::Kernel(kernel)) = running.map(|running| &mut running.task) {
                kernel.running -= 1;
            }
            self.finish_if_done(piece.client, piece.task);
        }
        trusted
    }

    /// Whether begun work is waited for: that of clients which have caused no fault and have not
    /// got all their reports.
    pub(super) fn awaits_innocents(&self) -> bool {
        let Some(breakage) = &self.breakage else { return false };
        self.clients
            .iter()
            .any(|(id, client)| !breakage.is_culprit(*id) && client.end.is_none() && client.tasks.values().any(|running| running.reporting == Reporting::Due))
    }

    /// When others are to leave those whose work runs on; `None` if they have left, or cannot.
    pub(super) fn parting_is_due(&self) -> Option<Instant> {
        let breakage = self.breakage.as_ref().filter(|breakage| !breakage.culprits.is_empty())?;
        match breakage.parting {
            Parting::Due(at) => Some(at),
            Parting::Over => None,
        }
    }

    /// The innocent clients whose work has begun and not ended. They are asked for once.
    pub(super) fn begin_parting(&mut self) -> BTreeSet<ClientId> {
        let staying = self.list_unfinished();
        if let Some(breakage) = &mut self.breakage {
            breakage.parting = Parting::Over;
            breakage.staying.clone_from(&staying);
        }
        staying
    }

    /// The clients that stay, if some have finished since this was asked last and some have not.
    pub(super) fn staying_has_shrunk(&mut self) -> Option<BTreeSet<ClientId>> {
        let staying = self.list_unfinished();
        let breakage = self.breakage.as_mut().filter(|breakage| !staying.is_empty() && staying.len() < breakage.staying.len())?;
        breakage.staying.clone_from(&staying);
        Some(staying)
    }

    fn list_unfinished(&self) -> BTreeSet<ClientId> {
        let Some(breakage) = &self.breakage else { return BTreeSet::new() };
        let runs = |client: &CardClient| client.end.is_none() && client.tasks.values().any(|running| running.reporting == Reporting::Due);
        self.clients.iter().filter(|(id, client)| !breakage.is_culprit(**id) && runs(client)).map(|(id, _)| *id).collect()
    }

    /// All others leave. Returns what is to be delivered before: what has ended so far, and the
    /// culprits' faults.
    pub(super) fn part(&mut self, now: Instant) -> Settlement {
        let Some(breakage) = &mut self.breakage else { return Settlement::default() };
        breakage.phase = Phase::Finishing(now + breakage.timing.wait * FINISHING_WAITS);
        let culprits = breakage.culprits.clone();
        breakage.told = culprits.len();
        let mut reports = self.judge_reports(&culprits);
        for (id, fault) in &culprits {
            if let Some(client) = self.clients.get_mut(id) {
                client.end.get_or_insert_with(|| ClientEnd::Fault(fault.clone()));
                self.report_rest(*id, &mut reports);
            }
        }
        Settlement { reports, culprits, ..Settlement::default() }
    }

    /// What has ended since the culprits were told.
    pub(super) fn take_ended(&mut self) -> Vec<cumux_device::Report> {
        let culprits = self.breakage.as_ref().map_or_else(Vec::new, |breakage| breakage.culprits.clone());
        self.judge_reports(&culprits)
    }

    /// What has ended and is not reported: the culprits' as their fault.
    fn judge_reports(&mut self, culprits: &[(ClientId, Fault)]) -> Vec<cumux_device::Report> {
        let mut reports: Vec<cumux_device::Report> = self.reports.drain(..).map(plain).collect();
        for report in &mut reports {
            let fault = culprits.iter().find(|(culprit, _)| *culprit == report.client);
            if let (Outcome::Done { .. }, Some((_, fault))) = (&report.outcome, fault) {
                report.outcome = Outcome::Fault(fault.clone());
            }
        }
        reports
    }

    /// Whether a worker runs something or calls the sink.
    pub(super) fn has_active_workers(&self) -> bool {
        self.delivering > 0 || self.workers.iter().any(Option::is_some)
    }

    /// Declares the card lost, and returns what is to be delivered. No worker is active any more.
    pub(super) fn settle(&mut self) -> Settlement {
        let Some(breakage) = &mut self.breakage else { return Settlement::default() };
        let culprits = breakage.culprits.clone();
        let cause = culprits.first().map(|(_, fault)| fault.clone());
        let why = match &cause {
            Some(fault) => format!("a kernel has broken the card: {}", fault.text),
            None => breakage.given_up.take().unwrap_or_default(),
        };
        breakage.phase = Phase::Lost(why.clone());
        let fault_of = |client: ClientId| culprits.iter().find(|(culprit, _)| *culprit == client).map(|(_, fault)| fault);
        let told = breakage.told;
        let mut reports = self.judge_reports(&culprits);
        let mut in_doubt = Vec::new();
        let mut ids: Vec<ClientId> = self.clients.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            let Some(client) = self.clients.get_mut(&id) else { continue };
            let mut overdue = client.tasks.values().filter(|running| running.reporting == Reporting::Due);
            let fault = match (fault_of(id), &cause) {
                (Some(own), _) => Some(own.clone()),
                (None, Some(cause)) => overdue.next().map(|running| {
                    let name = running.describe();
                    let text =
                        format!("another client's kernel ended the context ({}) while {name} was under way; whether it had finished is not known", cause.text);
                    Fault { result: cause.result, text }
                }),
                (None, None) => {
                    in_doubt.extend(overdue.map(|running| InDoubt { client: id, stream: running.stream, token: running.token }));
                    None
                }
            };
            client.end = client.end.take().or_else(|| fault.map(ClientEnd::Fault));
            if client.end.is_some() {
                self.report_rest(id, &mut reports);
            }
        }
        in_doubt.retain(|piece| self.clients.get(&piece.client).is_some_and(|client| client.end.is_none()));
        Settlement { reports, culprits: culprits.get(told..).unwrap_or_default().to_vec(), in_doubt, why }
    }

    /// Reports what an ended client has left: in each stream what has begun, then what waits.
    fn report_rest(&mut self, id: ClientId, reports: &mut Vec<cumux_device::Report>) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let Some(outcome) = client.end.as_ref().map(outcome_of) else { return };
        let mut add = |stream, token| reports.push(cumux_device::Report { client: id, stream, token, outcome: outcome.clone() });
        for running in client.tasks.values_mut().filter(|running| running.reporting == Reporting::Due) {
            running.reporting = Reporting::Done;
            add(running.stream, running.token);
        }
        for (stream, token) in std::mem::take(&mut client.unbegun) {
            add(stream, token);
        }
        let mut streams: Vec<_> = self.streams.iter_mut().filter(|(_, stream)| stream.client == id).collect();
        streams.sort_unstable_by_key(|(number, _)| **number);
        for (number, stream) in streams {
            for (token, _) in stream.queue.drain(..) {
                add(*number, token);
            }
        }
    }
}
