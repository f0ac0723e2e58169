//! Starts what can start: walks the streams that may have moved, hands work to the device, passes
//! what needs no device, and wakes who waited.

use crate::objects::Objects;
use crate::session::{Inner, Session, now_ns};
use cumux_device::{DeviceError, Fault, Kernel, Rows, Work};
use cumux_scheduler::InFlightBudget;
use cumux_wire::cuda::WaitCondition;
use cumux_wire::record::Op;

/// Pieces of one stream that the device may have at once.
const DEPTH: u32 = 256;

/// On whose thread streams are driven. The device's own thread must not wait for the device, so
/// memory is freed by the intake thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    Intake,
    Device,
}

/// What to do with the piece at the front of what was not started.
enum Step {
    /// Give it to the device.
    Submit(Work, u64),
    /// It is over.
    Pass,
    /// It waits for another stream.
    Watch(u32),
    /// It waits for a host callback or a value.
    Park,
    /// It must be alone; come back when what is before it is over.
    Later,
    /// The client has enough in flight; come back when some of it is over.
    Hold,
    /// Free this allocation, then it is over.
    Free(u64),
    /// For the intake thread.
    Chore,
    Broken(Fault),
}

impl Session {
    /// Drives the streams of `work` and all that follow from them, and empties the list. Returns
    /// whether anything was over.
    pub(crate) fn drive(&self, inner: &mut Inner, work: &mut Vec<u32>, caller: Caller) -> bool {
        let mut moved = false;
        let mut tokens = std::mem::take(&mut inner.lists.tokens);
        while let Some(index) = work.pop() {
            if inner.objects.fault.is_some() {
                moved = true;
                break;
            }
            self.start(inner, index, caller);
            let Some(stream) = inner.queues.streams.get_mut(&index) else { continue };
            stream.retire(&mut tokens);
            if tokens.is_empty() {
                continue;
            }
            moved = true;
            let (done, more) = (stream.done(), !stream.is_idle());
            inner.journal.set_completed(index, done);
            inner.journal.retire_all(&tokens);
            if !inner.queues.resumes.is_empty() {
                for token in &tokens {
                    inner.queues.resumes.remove(token);
                }
            }
            inner.status.in_flight = inner.status.in_flight.saturating_sub(tokens.len() as u64);
            tokens.clear();
            self.service.set_completed(index, done);
            if more {
                work.push(index);
            }
            if !inner.queues.watchers.is_empty() {
                work.extend(inner.queues.watchers.remove(&index).unwrap_or_default());
            }
        }
        work.clear();
        inner.lists.tokens = tokens;
        moved
    }

    fn start(&self, inner: &mut Inner, index: u32, caller: Caller) {
        if inner.phase.is_on_hold() {
            return;
        }
        let mut batch = std::mem::take(&mut inner.lists.batch);
        let (mut budget, mut expected, mut last) = (None, 0_u64, 0);
        let stopped = loop {
            match self.step(inner, index, &mut budget, caller) {
                Some(Step::Submit(work, estimate)) => {
                    let Some(stream) = inner.queues.streams.get_mut(&index) else { break None };
                    let (token, seq) = stream.upcoming().map_or((0, 0), |(p, _)| (p.token, p.seq));
                    batch.push((token, work));
                    last = seq;
                    stream.started(estimate);
                    expected = expected.saturating_add(estimate);
                    if let Some(budget) = &mut budget {
                        budget.count(estimate);
                    }
                }
                Some(Step::Pass) => {
                    inner.queues.parked.remove(&index);
                    if let Some(stream) = inner.queues.streams.get_mut(&index) {
                        stream.passed();
                    }
                }
                Some(Step::Free(address)) if caller == Caller::Intake => {
                    self.free(inner, address);
                    if let Some(stream) = inner.queues.streams.get_mut(&index) {
                        stream.passed();
                    }
                }
                stopped => break stopped,
            }
        };
        if !batch.is_empty()
            && let Some(stream) = inner.queues.streams.get(&index)
        {
            let before = inner.journal.submitted(index);
            inner.condition.mark_submitted(&inner.journal, index, last);
            self.shared.fair_queues.of(self.client()).submitted_all(self.client(), batch.len() as u32, expected);
            match self.shared.cards.submit_all(stream.device, &mut batch) {
                // The work stays in the journal: a successor does it. This process is about to end.
                Ok(()) => {}
                Err(DeviceError::Lost(_)) => inner.journal.set_submitted(index, before),
                Err(error) => {
                    batch.clear();
                    inner.lists.batch = batch;
                    return self.fault(inner, &Fault { result: error.result(), text: error.to_string() });
                }
            }
        }
        batch.clear();
        inner.lists.batch = batch;
        match stopped {
            Some(Step::Watch(on)) => {
                let watchers = inner.queues.watchers.entry(on).or_default();
                if !watchers.contains(&index) {
                    watchers.push(index);
                }
            }
            Some(Step::Park) => {
                inner.queues.parked.insert(index);
            }
            Some(Step::Free(_) | Step::Chore) => {
                inner.queues.chores.insert(index);
            }
            Some(Step::Hold) => {
                inner.queues.held.insert(index);
                inner.meter.held.begin(now_ns);
            }
            Some(Step::Broken(fault)) => self.fault(inner, &fault),
            None | Some(Step::Later | Step::Submit(..) | Step::Pass) => {}
        }
    }

    /// `budget` is what the device may still get of this client; looked up when first needed.
    fn step(&self, inner: &mut Inner, index: u32, budget: &mut Option<InFlightBudget>, caller: Caller) -> Option<Step> {
        let stream = inner.queues.streams.get_mut(&index)?;
        let full = stream.in_flight >= DEPTH;
        let in_stream = stream.in_flight;
        let (pending, alone) = stream.upcoming()?;
        let (seq, token) = (pending.seq, pending.token);
        let step = match &mut pending.op {
            Op::Wait { stream: on, seq: until } => {
                let (on, until) = (*on, *until);
                // A stream that is gone has drained.
                let reached = inner.queues.streams.get(&on).is_none_or(|other| other.done() >= until);
                if reached { Step::Pass } else { Step::Watch(on) }
            }
            Op::Nop if alone => Step::Pass,
            Op::EventTime { event } if alone => {
                self.service.set_event_ns(*event, now_ns());
                Step::Pass
            }
            Op::HostCall if alone => {
                if self.service.host_done(index) >= seq {
                    Step::Pass
                } else {
                    Step::Park
                }
            }
            // To look there may wait for the device: not on its own thread.
            Op::ValueWait { .. } if alone && caller != Caller::Intake => Step::Chore,
            Op::ValueWait { address, value, bytes, condition } if alone => self.compare_value(&inner.objects, *address, *value, *bytes, *condition),
            Op::FreeInStream { address } if alone => Step::Free(*address),
            Op::HostCall | Op::ValueWait { .. } | Op::FreeInStream { .. } => Step::Later,
            _ if full => Step::Later,
            _ if !budget.get_or_insert_with(|| self.shared.fair_queues.of(self.client()).budget(self.client())).has_rest(in_stream) => Step::Hold,
            Op::Nop | Op::EventTime { .. } => Step::Submit(Work::Nop, 0),
            Op::Launch(launch) => {
                let resume = if inner.queues.resumes.is_empty() { None } else { inner.queues.resumes.remove(&token) };
                let kernel = cumux_wire::record::Launch { parameters: std::mem::take(&mut launch.parameters), ..launch.clone() };
                let estimate = inner.queues.estimates.get(&(kernel.module, kernel.function)).copied().unwrap_or(0);
                Step::Submit(Work::Kernel(Kernel { launch: kernel, resume }), estimate)
            }
            Op::Copy { target, target_pitch, target_slice, source, source_pitch, source_slice, extent } => Step::Submit(
                Work::Copy {
                    target: Rows { address: *target, pitch: *target_pitch, slice: *target_slice },
                    source: Rows { address: *source, pitch: *source_pitch, slice: *source_slice },
                    extent: *extent,
                },
                0,
            ),
            Op::ArrayCopy { target, source, extent } => Step::Submit(Work::ArrayCopy { target: *target, source: *source, extent: *extent }, 0),
            Op::Set { target, value, element, width, height, pitch } => {
                Step::Submit(Work::Set { target: *target, pitch: *pitch, value: *value, element: *element, width: *width, height: *height }, 0)
            }
            Op::ValueWrite { address, value, bytes } => Step::Submit(Work::WriteValue { address: *address, value: *value, bytes: *bytes }, 0),
            other => {
                let text = format!("{other:?} cannot be in a stream");
                Step::Broken(Fault { result: cumux_wire::result::UNKNOWN, text })
            }
        };
        Some(step)
    }

    /// Looks at a value in memory, as `cuStreamWaitValue` compares.
    fn compare_value(&self, objects: &Objects, address: u64, wanted: u64, bytes: u32, condition: u32) -> Step {
        let mut raw = [0; 8];
        let width = bytes as usize;
        if !self.may_touch(objects, address, u64::from(bytes)) {
            let text = format!("a stream waits for a value at {address:#x}, which is no memory of this client");
            return Step::Broken(Fault { result: cumux_wire::result::ILLEGAL_ADDRESS, text });
        }
        if let Err(error) = self.shared.cards.read(self.client(), address, &mut raw[..width]) {
            return Step::Broken(Fault { result: cumux_wire::result::ILLEGAL_ADDRESS, text: error.to_string() });
        }
        let found = u64::from_le_bytes(raw);
        let mask = if bytes == 4 { u64::from(u32::MAX) } else { u64::MAX };
        let sign = 1_u64 << (bytes * 8 - 1);
        let reached = match WaitCondition(condition) {
            WaitCondition::CU_STREAM_WAIT_VALUE_GEQ => (found.wrapping_sub(wanted) & mask) & sign == 0,
            WaitCondition::CU_STREAM_WAIT_VALUE_EQ => found == wanted & mask,
            WaitCondition::CU_STREAM_WAIT_VALUE_AND => found & wanted & mask != 0,
            _ => !(found | wanted) & mask != 0,
        };
        if reached { Step::Pass } else { Step::Park }
    }
}
