//! What the device reports of a session: taken in under its lock, in order for each stream. Whoever
//! comes while the lock is held leaves its reports in the mailbox and goes; who had the lock
//! delivers them when it has let go ([`Session::deliver_reports`]).

use crate::drive::Caller;
use crate::session::{Inner, Reported, Session, now_ns};
use crate::suspicion;
use cumux_device::{Begun, Channel, Outcome};
use cumux_environment::steps::{self, Step};
use cumux_link::recorder::Recorder;
use cumux_wire::record::Op;
use cumux_wire::recording::{Moment, Shape, moved};
use parking_lot::MutexGuard;
use std::time::{Duration, Instant};

/// Most bytes of text that are kept for a client that does not take it. The oldest are dropped.
const MOST_TEXT_BYTES: usize = 1 << 20;

/// How often it is looked whether the variables of a session that is to leave are filled.
const LOOK_EVERY: Duration = Duration::from_millis(1);

impl Session {
    /// Does something with the changing part under its lock, and then delivers what the device
    /// reported meanwhile.
    pub fn lock_then_deliver<R>(&self, act: impl FnOnce(&mut Inner) -> R) -> R {
        let outcome = act(&mut self.lock());
        self.deliver_reports();
        outcome
    }

    /// The device reports pieces of this client that are over, in order for each stream.
    pub fn retired(&self, reports: impl IntoIterator<Item = Reported>) {
        if self.shared.cards.capabilities().waits_for_reports {
            // Such a device begins what follows in the stream when this returns: the journal must
            // know by then, or a successor would repeat what was done.
            let mut inner = self.lock();
            self.leave_mail(reports);
            self.empty_mailbox(&mut inner);
            return;
        }
        match self.try_lock() {
            Some(mut inner) => {
                let mut list = std::mem::take(&mut inner.lists.reports);
                self.take_mail(&mut list);
                list.extend(reports);
                self.take_in(&mut inner, &list);
                list.clear();
                inner.lists.reports = list;
            }
            None => self.leave_mail(reports),
        }
        self.deliver_reports();
    }

    /// Takes in what was reported last, before the process ends. Gives up on who holds the lock for
    /// longer than this. What was not begun, a successor can do.
    pub fn last_reports(&self, patience: Duration, begun: &Begun) {
        if let Some(mut inner) = self.try_lock_for(patience) {
            self.write_down(&mut inner, begun);
        }
    }

    /// Takes in what was reported last, and writes down what of the rest may have been begun. Its
    /// journal is not touched if it has departed: another executor may have it by now.
    fn write_down(&self, inner: &mut Inner, begun: &Begun) {
        if inner.phase.is_closed() || inner.phase.has_departed() {
            return;
        }
        self.empty_mailbox(inner);
        if let Begun::Only(pieces) = begun {
            let Inner { condition, journal, queues, .. } = inner;
            condition.forget_submissions(journal, queues.streams.keys().copied());
            for piece in pieces.iter().filter(|piece| piece.client == self.client()) {
                let Some(index) = queues.by_device.get(&piece.stream) else { continue };
                if let Some(seq) = queues.streams.get(index).and_then(|stream| stream.sequence_of(piece.token)) {
                    condition.keep_in_doubt(journal, *index, seq);
                }
            }
        }
    }

    /// Takes in what was reported last, and leaves the session to its next executor: nothing of it
    /// is touched any more when this returns true. False if somebody holds the lock for longer than
    /// this, or fills its variables: then the session stays.
    #[must_use]
    pub fn depart(&self, patience: Duration, begun: &Begun) -> bool {
        self.last_reports(patience, begun);
        let Some(mut inner) = self.lock_when_filled(patience) else { return false };
        // Once more: somebody may have held the lock until now.
        self.write_down(&mut inner, begun);
        inner.phase.depart();
        true
    }

    /// Its lock, once the device fills no variables of it. None if that takes longer than this.
    pub(crate) fn lock_when_filled(&self, limit: Duration) -> Option<MutexGuard<'_, Inner>> {
        let until = Instant::now() + limit;
        loop {
            let inner = self.try_lock_for(until.saturating_duration_since(Instant::now()))?;
            if inner.fillings == 0 {
                return Some(inner);
            }
            drop(inner);
            if Instant::now() >= until {
                return None;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// As [`Session::depart`], where the device is lost: what has not been filled after this time
    /// is not filled any more.
    #[must_use]
    pub fn depart_from_loss(&self, patience: Duration, begun: &Begun) -> bool {
        if self.depart(patience, begun) {
            return true;
        }
        let Some(mut inner) = self.try_lock_for(Duration::ZERO) else { return false };
        self.write_down(&mut inner, begun);
        inner.phase.depart();
        true
    }

    /// Takes in what is in the mailbox, unless somebody holds the lock: that one comes here when it
    /// has let go. To be called without the lock by whoever had it. Whether there was anything.
    pub(crate) fn deliver_reports(&self) -> bool {
        let mut any = false;
        while self.has_mail() {
            let Some(mut inner) = self.try_lock() else { break };
            any |= self.empty_mailbox(&mut inner);
        }
        any
    }

    /// Whether there was anything in it.
    pub(crate) fn empty_mailbox(&self, inner: &mut Inner) -> bool {
        let mut reports = std::mem::take(&mut inner.lists.reports);
        self.take_mail(&mut reports);
        let any = !reports.is_empty();
        self.take_in(inner, &reports);
        reports.clear();
        inner.lists.reports = reports;
        any
    }

    fn take_in(&self, inner: &mut Inner, reports: &[Reported]) {
        if reports.is_empty() {
            return;
        }
        let mut work = std::mem::take(&mut inner.lists.work);
        let (mut pieces, mut expected, mut spent) = (0, 0_u64, 0_u64);
        let recording = self.shared.recorder.as_ref().map(|recorder| (recorder, now_ns()));
        // Most reports are about the stream of the one before.
        let mut found = None;
        for (device, token, outcome) in reports {
            let index = match found {
                Some((last, index)) if last == *device => index,
                _ => inner.queues.by_device.get(device).copied(),
            };
            found = Some((*device, index));
            let Some(index) = index else { continue };
            if inner.objects.fault.is_some() || inner.phase.is_closed() || inner.phase.has_departed() {
                return;
            }
            match outcome {
                Outcome::Cancelled => {}
                Outcome::Fault(fault) => return self.fault(inner, fault),
                Outcome::Done { device_ns } => {
                    if let Some(estimate) = self.one_retired(inner, index, *token, *device_ns, recording) {
                        if !inner.trial.is_empty() {
                            self.lead_is_over(inner, suspicion::of_token(*token));
                        }
                        (pieces, expected, spent) = (pieces + 1, expected.saturating_add(estimate), spent.saturating_add(*device_ns));
                    }
                    if work.last() != Some(&index) {
                        work.push(index);
                    }
                }
            }
        }
        if work.is_empty() {
            return;
        }
        self.shared.fair_queues.of(self.config.id).retired_all(self.config.id, pieces, expected, spent);
        if !inner.queues.held.is_empty() {
            work.extend(std::mem::take(&mut inner.queues.held));
        }
        self.drive(inner, &mut work, Caller::Device);
        work.clear();
        inner.lists.work = work;
        steps::pass(Step::WorkRetired);
        self.flush_text(inner);
        self.service.notify();
        let unstalled = inner.journal.has_room() && inner.go_on();
        if inner.queues.held.is_empty() {
            inner.meter.held.end(now_ns);
        }
        self.save_counters(inner);
        if unstalled || !inner.queues.chores.is_empty() || inner.barrier_ready() {
            self.shared.wake_intake(self.client());
        }
    }

    /// What was expected of it, in nanoseconds, if it is one of ours.
    fn one_retired(&self, inner: &mut Inner, index: u32, token: u64, device_ns: u64, recording: Option<(&Recorder, u64)>) -> Option<u64> {
        let alone = recording.is_some() && !inner.queues.streams.iter().any(|(other, stream)| *other != index && stream.in_flight > 0);
        let pending = inner.queues.streams.get_mut(&index).and_then(|stream| stream.finished(token))?;
        let estimate = pending.estimate;
        if let Some((recorder, now)) = recording {
            self.record_end(recorder, now, &pending.op, device_ns, alone);
        }
        match &pending.op {
            Op::EventTime { event } => self.service.set_event_ns(*event, now_ns()),
            Op::Launch(launch) => {
                let known = inner.queues.estimates.entry((launch.module, launch.function));
                known.and_modify(|known| *known = cumux_scheduler::estimate(Some(*known), device_ns)).or_insert(device_ns);
                inner.status.kernels += 1;
                inner.status.gpu_ns += device_ns;
            }
            _ => inner.status.copies += 1,
        }
        Some(estimate)
    }

    /// Tells a recorder how long a piece of work took.
    fn record_end(&self, recorder: &Recorder, now: u64, op: &Op, ns: u64, alone: bool) {
        let session = self.config.id;
        let moment = match op {
            Op::Launch(launch) => Some(Moment::Ran { session, shape: Shape::of(launch), ns, alone }),
            op => moved(op).map(|(way, bytes)| Moment::Copied { session, way, bytes, ns }),
        };
        if let Some(moment) = moment {
            recorder.put(&moment, now);
        }
    }

    /// Text of the client's kernels; kept until the client's ring has room, up to
    /// [`MOST_TEXT_BYTES`] of each channel.
    pub fn text(&self, channel: Channel, text: &[u8]) {
        self.lock_then_deliver(|inner| {
            // The next executor writes into its pages.
            if inner.phase.has_departed() {
                return;
            }
            let kept = &mut inner.text[channel.index()];
            kept.extend(text);
            kept.drain(..kept.len().saturating_sub(MOST_TEXT_BYTES));
            self.flush_text(inner);
        });
    }
}
