//! What the intake thread does with a session: a turn of records from its ring, and whatever else
//! only this thread does.

use crate::drive::Caller;
use crate::objects::Change;
use crate::session::{Inner, Session, now_ns};
use crate::shared;
use cumux_ring::queue::Next;
use cumux_wire::message::FromExecutor;
use cumux_wire::record::{self, NO_ANSWER};
use std::sync::Arc;

/// Records taken from one client before the next one has its turn.
const TURN: usize = 64;
/// After so many of them the device has the first: it can begin while the rest is taken, which
/// lasts 10 µs.
const FIRST: usize = 16;

impl Session {
    /// Takes up to one turn of records. Returns whether it should be called again soon: something
    /// moved, or somebody else held the lock.
    pub fn intake(self: &Arc<Self>) -> bool {
        let Some(mut inner) = self.lock_for_intake() else { return true };
        let moved = self.take_turn(&mut inner);
        drop(inner);
        // A lane looks again and again, and before it sleeps for certain ([`Self::has_more`]).
        self.sees_mail() && self.deliver_reports() || moved
    }

    /// One turn of the intake. Whether something moved. Reports wait in the mailbox until the lock
    /// is let go.
    fn take_turn(self: &Arc<Self>, inner: &mut Inner) -> bool {
        if inner.phase.is_closed() || inner.phase.is_elsewhere() || inner.phase.is_on_hold() {
            return false;
        }
        let mut moved = false;
        if !inner.queues.chores.is_empty() || !inner.queues.parked.is_empty() {
            let mut again: Vec<u32> = std::mem::take(&mut inner.queues.chores).into_iter().collect();
            again.extend(&inner.queues.parked);
            moved |= self.drive(inner, &mut again, Caller::Intake);
        }
        if !inner.queues.barriers.is_empty() {
            moved |= self.pass_barriers(inner);
        }
        // Whether the client may wait for any of this. That its work was taken matters to it only
        // where it may wait for room.
        let mut tell = moved;
        let mut record = std::mem::take(&mut inner.lists.record);
        for number in 0..TURN {
            if number == FIRST {
                tell |= self.settle(inner);
            }
            if inner.journal.has_room() {
                inner.go_on();
            }
            let Some(reading) = inner.phase.as_reading() else { break };
            if !inner.journal.has_room() {
                reading.stall();
                inner.meter.stall.begin(now_ns);
                break;
            }
            match self.service.peek(&mut inner.consumer, &mut record) {
                Ok(Next::Empty) => break,
                Ok(Next::Record { end }) => {
                    tell |= inner.consumer.is_crowded();
                    tell |= self.take_record(inner, end, &record);
                    moved = true;
                }
                Err(error) => self.violation(inner, &error.to_string()),
            }
        }
        inner.lists.record = record;
        tell |= self.settle(inner);
        if tell {
            self.service.notify();
        }
        moved
    }

    /// Whether intake would find something now; for the moment between announcing sleep and
    /// sleeping.
    #[must_use]
    pub fn has_more(&self) -> bool {
        if self.has_mail() {
            return true;
        }
        // Somebody has it who may be at it for long: it is looked at again.
        let Some(mut inner) = self.lock_for_intake() else { return true };
        let more = self.finds_more(&mut inner);
        drop(inner);
        self.deliver_reports();
        more
    }

    fn finds_more(&self, inner: &mut Inner) -> bool {
        if !inner.phase.wants_records() || !inner.journal.has_room() {
            return false;
        }
        let mut record = std::mem::take(&mut inner.lists.record);
        let next = self.service.peek(&mut inner.consumer, &mut record);
        inner.lists.record = record;
        let host_ready =
            inner.queues.parked.iter().any(|index| inner.queues.streams.get(index).is_some_and(|stream| self.service.host_done(*index) > stream.done()));
        host_ready || !inner.queues.chores.is_empty() || inner.barrier_ready() || !matches!(next, Ok(Next::Empty))
    }

    /// Whether work of it is under way, as far as that can be seen now.
    #[must_use]
    pub fn has_work(&self) -> bool {
        let Some(inner) = self.lock_for_intake() else { return true };
        let has_work = inner.status.in_flight > 0;
        drop(inner);
        self.deliver_reports();
        has_work
    }

    /// Whether a stream waits for a value in memory, which nobody announces.
    #[must_use]
    pub fn polls(&self) -> bool {
        self.lock_then_deliver(|inner| !inner.queues.parked.is_empty())
    }

    /// Takes one record. Whether more came of it than work that waits in its stream.
    fn take_record(self: &Arc<Self>, inner: &mut Inner, end: u64, bytes: &[u8]) -> bool {
        let record = match record::decode(bytes) {
            Ok(record) => record,
            Err(error) => {
                self.settle(inner);
                self.violation(inner, &error.to_string());
                return true;
            }
        };
        if !record.op.in_stream() || inner.objects.fault.is_some() {
            self.settle(inner);
        }
        if let Some((code, _)) = inner.objects.fault {
            // The client has been told; whatever it still sends is answered the same way.
            self.answer(&record.header, &shared::answer(code));
            if record.op.in_stream() {
                self.service.set_completed(record.header.stream, record.header.seq);
            }
            self.taken(inner, end);
            return true;
        }
        if !record.op.in_stream() {
            inner.meter.requests += u64::from(record.header.answer != NO_ANSWER);
            self.control(inner, end, bytes, record);
            return true;
        }
        if let Some(why) = inner.confinement.holds_back(&record.op) {
            let why = why.to_owned();
            self.confine(inner, why);
            return false;
        }
        if inner.names_ending_array(&record.op) {
            self.settle(inner);
            self.violation(inner, "a copy names an array that was destroyed before");
            return true;
        }
        let index = record.header.stream;
        let Some(stream) = inner.queues.streams.get_mut(&index) else {
            self.settle(inner);
            self.violation(inner, &format!("work for stream {index}, which does not exist"));
            return true;
        };
        if record.header.seq != stream.last() + 1 {
            let last = stream.last();
            self.settle(inner);
            self.violation(inner, &format!("stream {index} jumps from {last} to {}", record.header.seq));
            return true;
        }
        let token = inner.journal.accept(end, bytes);
        let first = inner.used_kernels.note(&record.op);
        stream.push(token, record.header.seq, record.op);
        inner.consumer.advance(end);
        inner.status.in_flight += 1;
        if inner.lists.touched.last() != Some(&index) {
            inner.lists.touched.push(index);
        }
        if let Some((module, function)) = first {
            self.commit(inner, Change::KernelUsed { module, function }, 0, None);
        }
        false
    }

    /// The next record is an unbounded kernel, which does not begin here: it stays in the ring, and
    /// no record is taken until the session has left, or the server says that it may begin.
    fn confine(&self, inner: &mut Inner, why: String) {
        if let Some(reading) = inner.phase.as_reading() {
            reading.pause();
        }
        if inner.confinement.begin_asking() {
            self.shared.report(FromExecutor::Confined { session: self.client(), why });
        }
    }

    /// The server that was asked where an unbounded kernel is to begin has gone: the next one is
    /// asked.
    pub(crate) fn ask_again(&self) {
        self.lock_then_deliver(|inner| {
            if inner.confinement.ask_again()
                && let Some(paused) = inner.phase.as_paused()
            {
                paused.resume();
            }
        });
        self.shared.wake_intake(self.client());
    }

    /// Its unbounded kernels begin here.
    pub(crate) fn unconfine(&self) {
        let waited = self.lock_then_deliver(|inner| {
            let waited = inner.confinement.end();
            if let Some(paused) = inner.phase.as_paused().filter(|_| waited) {
                paused.resume();
            }
            waited
        });
        if waited {
            self.shared.wake_intake(self.client());
        }
    }

    /// Commits the stream work that was accepted, and starts what can start. Done once for many
    /// records. Whether anything is over already.
    fn settle(&self, inner: &mut Inner) -> bool {
        if inner.lists.touched.is_empty() {
            return false;
        }
        let end = inner.consumer.taken();
        self.taken(inner, end);
        let mut touched = std::mem::take(&mut inner.lists.touched);
        let moved = self.drive(inner, &mut touched, Caller::Intake);
        touched.clear();
        inner.lists.touched = touched;
        moved
    }
}
