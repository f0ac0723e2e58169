//! From the driver's announcement of a fault to the verdict: whose kernel it was.
//!
//! Nothing more is submitted. What was seen complete before the announcement was reported: the card
//! holds a faulting kernel until then, so no fence that was reached is the culprit's. What is seen
//! complete later is kept until the verdict, because then the culprit's fence is reached, too. The
//! announcement is known at once, in the driver's own thread, before the card goes on.
//! Where a card has several engines, the first one holds the inquiry, and all others hand their
//! clients and their work in flight over to it ([`super::handover`]).
//! The engine makes no calls of the driver meanwhile, because they may wait until the fault is
//! handled. The exception: once the dump is written and nothing has been completed for a while, it
//! asks whether anything still runs.
//!
//! A process may have several cards, and the announcement does not say whose fault it is
//! ([`crate::fault::whose`]). The others are *spared*: their work goes on to its end and is
//! reported, and nothing more is begun, because all clients go on in another process. That holds
//! also where the driver reports errors for their contexts (measured: driver 580 does). Ending the
//! process while their kernels run would stop everybody until those have ended.

use super::conclude::SPARED_WAITS;
use super::handover::Evacuation;
use super::message::FIRST_ENGINE;
use super::state::{ContextState, Engine, Inquiry};
use crate::driver::{faults_again, is_fault_announced, note_fault_places};
use crate::fault::{Dump, DumpState, FlyingKernel, STILL_MS, Verdict, Whose, decide, whose};
use crate::track::{Flight, Reporting};
use cumux_device::ClientId;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long nothing has been completed before the driver is asked whether anything runs.
const QUIET_BEFORE_ASKING: Duration = Duration::from_millis(200);
/// How long nothing has been completed after the dump before others leave those whose kernels run.
const PART_AFTER: Duration = Duration::from_millis(30);
/// How long all wait for kernels of innocents together, if warps fault again and again: no other
/// process would get the card. And how long until that is known.
const TOGETHER_AT_MOST: Duration = Duration::from_millis(450);
const LOOKING_AT_MOST: Duration = Duration::from_millis(1500);
/// How long the core dump is waited for where the streams tell who the culprit is.
const DUMP_WAIT_IF_KNOWN: Duration = Duration::from_millis(100);

impl Inquiry {
    /// True now and then while nothing has been completed for a while: the driver may be asked
    /// whether anything runs. A call of it may block until the fault is handled. Before the dump is
    /// written, the card stands still for everybody.
    fn may_ask_driver(&mut self, is_dumped: bool) -> bool {
        if !is_dumped {
            return false;
        }
        let quiet = self.moved.get_or_insert_with(Instant::now).elapsed() >= QUIET_BEFORE_ASKING;
        if quiet {
            self.moved = Some(Instant::now());
        }
        quiet
    }
}

impl Engine {
    /// True if the driver has announced a fault that this engine has not taken notice of. One of
    /// another card concerns all engines but the first, which hand over and go on there.
    pub(super) fn has_to_stop(&self) -> bool {
        is_fault_announced() && self.context_works() && (self.number != FIRST_ENGINE || self.shared.spared.get().is_none())
    }

    /// The driver has announced a fault: submits nothing more.
    /// `completed` was found complete after the announcement, so it may be the culprit's.
    pub(super) fn begin_inquiry(&mut self, mut completed: Vec<(Flight, u64)>) {
        if !self.context_works() {
            return;
        }
        let begun = self.shared.watch.begun().unwrap_or_else(Instant::now);
        self.streams.clock.tick();
        completed.splice(0..0, self.withheld.take());
        let mut later = Vec::new();
        self.streams.tracker.retire(self.streams.clock.now(), &mut later);
        completed.append(&mut later);
        let mut flying = self.list_flying();
        for (flight, _) in &completed {
            flying.extend(self.describe_flying(flight, STILL_MS, true).map(|kernel| FlyingKernel { unfinished: false, ..kernel }));
        }
        tracing::info!(engine = self.number, kernels = flying.len(), completed = completed.len(), "nothing more is given to the card");
        let inquiry = Box::new(Inquiry { begun, moved: None, flying, known: None, completed, waits_since: None, first_waits: None });
        self.context = if self.number == FIRST_ENGINE { ContextState::Faulted(inquiry) } else { ContextState::HandingOver(inquiry) };
        self.finish_closing();
    }

    /// The kernels in flight.
    fn list_flying(&self) -> Vec<FlyingKernel> {
        let now = self.streams.clock.now();
        let mut flying = Vec::new();
        for (slot, flight) in self.streams.tracker.flights() {
            let may_run = slot.flights().next().is_some_and(|front| front.fence == flight.fence);
            flying.extend(self.describe_flying(flight, slot.still_ns(now) / 1_000_000, may_run));
        }
        flying
    }

    fn describe_flying(&self, flight: &Flight, still_ms: u64, may_run: bool) -> Option<FlyingKernel> {
        let kernel = self.streams.tracker.estimates.kernel(flight.kernel()?)?.clone();
        Some(FlyingKernel { client: flight.client, token: flight.token, kernel, may_run, still_ms, unfinished: true })
    }

    /// Looks at what has been completed and what the driver has said since, and concludes if that
    /// is enough. Returns true if anything happened.
    pub(super) fn continue_inquiry(&mut self) -> bool {
        let mut over = std::mem::take(&mut self.over);
        self.streams.tracker.retire(self.streams.clock.now(), &mut over);
        let progress = !over.is_empty();
        let open: BTreeSet<(ClientId, u64)> = self.streams.tracker.flights().map(|(_, flight)| (flight.client, flight.token)).collect();
        let is_complete = self.engines_here() == self.shared.mailboxes.len();
        let ContextState::Faulted(inquiry) = &mut self.context else { return false };
        if progress {
            (inquiry.moved, inquiry.waits_since) = (None, None);
        }
        inquiry.completed.append(&mut over);
        self.over = over;
        for kernel in &mut inquiry.flying {
            kernel.unfinished = open.contains(&(kernel.client, kernel.token));
        }
        let waited = inquiry.begun.elapsed();
        let is_late = waited >= self.shared.fault_wait;
        // One of the others may be in a call of the driver. Its kernels are suspects, too.
        if !is_complete && !is_late {
            return progress;
        }
        if is_complete && inquiry.known.is_none() {
            inquiry.known = Some(self.streams.tracker.estimates.kernels().cloned().collect());
        }
        let dump = match self.shared.watch.dump() {
            DumpState::Read(dump) => {
                note_fault_places(|| dump.fault_places());
                Some(dump)
            }
            DumpState::Unreadable => None,
            DumpState::Pending if waited < DUMP_WAIT_IF_KNOWN => return progress,
            DumpState::Pending => None,
        };
        let is_dump_pending = matches!(self.shared.watch.dump(), DumpState::Pending);
        // The driver reports the error when nothing runs any more. Nothing that has no mark by then
        // ever gets one.
        let answer = inquiry.may_ask_driver(!is_dump_pending).then(|| self.shared.driver.is_idle(self.helper_stream));
        let is_over = matches!(answer, Some(Err(_)));
        if is_over {
            // What has completed while the driver was asked.
            let mut last = Vec::new();
            self.streams.tracker.retire(self.streams.clock.now(), &mut last);
            inquiry.completed.append(&mut last);
        }
        let membership = &self.shared.membership;
        let whose = match dump.as_deref() {
            _ if membership.is_alone() => Whose::Ours,
            _ if membership.is_fault_anothers() => Whose::Anothers,
            _ if is_over => Whose::Ours,
            Some(dump) => match whose(dump, inquiry.known.as_deref()) {
                // Nothing runs here, and the context works.
                Whose::Unknown if answer == Some(Ok(true)) && !self.streams.tracker.is_busy() => Whose::Anothers,
                by_dump => by_dump,
            },
            None => Whose::Unknown,
        };
        let verdict = match whose {
            Whose::Anothers if waited < self.shared.fault_wait * SPARED_WAITS => {
                self.spare();
                return true;
            }
            Whose::Anothers => Verdict::of_another_card(dump.as_deref().map(Dump::error)),
            Whose::Unknown if !is_late => return progress,
            Whose::Ours | Whose::Unknown => {
                membership.claim_fault();
                let verdict = decide(&inquiry.flying, inquiry.known.as_deref(), dump.as_deref(), self.shared.watch.has_assertions());
                if is_complete { verdict } else { verdict.of_some() }
            }
        };
        // Without the dump, all clients that cannot be told apart would get the error. With
        // hundreds of megabytes of code on the card, writing it takes 0.1 s and more.
        if is_dump_pending && !verdict.is_certain() && !is_late {
            return progress;
        }
        let waits_for = |flight: &Flight| flight.reporting == Reporting::Due && !(verdict.is_certain() && verdict.suspects.contains_key(&flight.client));
        if !is_over && !is_late {
            // Those for whose work nobody waits any more have gone on.
            let has_left = |client| self.evacuation.as_ref().is_some_and(|evacuation| evacuation.askers.is_empty() && evacuation.leaves(client));
            let flights = self.streams.tracker.flights().filter(|(_, flight)| waits_for(flight) && !has_left(flight.client));
            let running: BTreeSet<ClientId> = flights.map(|(_, flight)| flight.client).collect();
            if !running.is_empty() {
                let stands = inquiry.waits_since.get_or_insert_with(Instant::now).elapsed();
                let waits = inquiry.first_waits.get_or_insert_with(Instant::now).elapsed();
                let at_least = match faults_again() {
                    Some(true) => TOGETHER_AT_MOST,
                    Some(false) => Duration::ZERO,
                    None => LOOKING_AT_MOST,
                };
                let waited_enough = !is_dump_pending && stands >= PART_AFTER && waits >= at_least;
                let parts = waited_enough && verdict.is_certain() && self.can_part_from(&running);
                if parts {
                    self.part_from(running, &verdict, dump.as_deref());
                }
                return progress || parts;
            }
        }
        self.conclude(&verdict, dump.as_deref().and_then(|dump| dump.describe_place()));
        true
    }

    /// The fault is another card's: the work of this one goes on to its end and is reported as
    /// ever. Nothing more is begun here, because the process ends.
    fn spare(&mut self) {
        let ContextState::Faulted(inquiry) = std::mem::replace(&mut self.context, ContextState::Working) else { return };
        tracing::info!(waited_ms = inquiry.begun.elapsed().as_millis() as u64, "the fault is another card's: what runs on this one goes on to its end");
        let _ = self.shared.spared.set(());
        // Whoever asks then says who is to stay.
        self.evacuation.get_or_insert_with(|| Evacuation { staying: None, askers: Vec::new() });
        // The next poll reports them.
        self.over = inquiry.completed;
    }
}
