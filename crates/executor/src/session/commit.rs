//! What is decided of a session is written down here: in its journal, its page, and for the server.

use super::{Inner, Session, now_ns};
use crate::objects::{Change, Logged};
use crate::shared;
use crate::suspicion;
use cumux_device::{Channel, Fault};
use cumux_environment::steps::{self, Step};
use cumux_ring::page::Answer;
use cumux_wire::message::FromExecutor;
use cumux_wire::record::{Header, NO_ANSWER};
use cumux_wire::recording::Moment;
use cumux_wire::result;

/// Characters of a fault's text. It has names of kernels and of source files out of the client's
/// image, which may be as long as it likes and hold anything. It goes into logs, to terminals, and
/// into packets with those of many clients.
const LONGEST_TEXT: usize = 1000;

impl Session {
    /// Everything up to this ring position is in the journal: the client may write there again.
    pub fn taken(&self, inner: &mut Inner, end: u64) {
        inner.journal.publish();
        inner.journal.set_taken(end);
        self.service.release(&mut inner.consumer, end);
    }

    /// Answers a record that wants an answer.
    pub fn answer(&self, header: &Header, answer: &Answer) {
        if header.answer != NO_ANSWER {
            self.service.answer(header.answer, header.request_number(), answer);
        }
    }

    /// Whether the client has its answer to this record, by an executor that ended before it took
    /// the record.
    pub fn is_answered(&self, header: &Header) -> bool {
        header.answer != NO_ANSWER && self.service.has_answered(header.answer, header.request_number())
    }

    /// Commits a change: journal, `taken` (if a record at `end` caused it), answer.
    pub fn commit(&self, inner: &mut Inner, change: Change, end: u64, reply: Option<(&Header, Answer)>) {
        if reply.as_ref().is_some_and(|(_, answer)| answer.result == result::LOST) {
            inner.phase.leave_to_next();
            return;
        }
        let answer = reply.and_then(|(header, a)| (header.answer != NO_ANSWER).then_some((header.answer, header.request_number(), a.result, a.words)));
        let logged = Logged { change, end, answer };
        if let Err(error) = inner.condition.log_change(&mut inner.journal, &logged, &inner.objects) {
            tracing::error!("session {}: {error}; this client would not outlive its executor", self.config.id);
        }
        inner.objects.apply(&logged.change);
        if end != 0 {
            self.taken(inner, end);
        }
        if let Some((header, a)) = reply {
            self.answer(header, &a);
        }
        self.note_memory(inner);
    }

    /// Writes down how much memory the client is charged for: others may have given it back, or
    /// left theirs to it.
    pub(crate) fn note_memory(&self, inner: &mut Inner) {
        let used = self.shared.charged(self.config.id);
        if let Some(recorder) = self.shared.recorder.as_ref().filter(|_| used != inner.status.memory) {
            let at = now_ns();
            recorder.put(&Moment::Memory { session: self.config.id, at, bytes: used }, at);
        }
        inner.status.memory = used;
        inner.status.memory_peak = inner.status.memory_peak.max(used);
        self.service.set_memory_used(used);
    }

    /// The client is in error from now on: everything it waits for is over, everything it asks is
    /// answered with the code.
    pub fn fault(&self, inner: &mut Inner, fault: &Fault) {
        if fault.result == result::LOST {
            inner.phase.leave_to_next();
        }
        if inner.phase.is_elsewhere() || inner.objects.fault.is_some() {
            return;
        }
        let fault = &Fault { result: fault.result, text: cumux_link::escape_foreign(&fault.text, LONGEST_TEXT) };
        tracing::info!("session {} (pid {}): {}", self.config.id, self.config.pid, fault.text);
        self.service.set_fault(fault.result, &fault.text);
        steps::pass(Step::FaultShown);
        self.commit(inner, Change::Fault { result: fault.result, text: fault.text.clone() }, 0, None);
        steps::pass(Step::FaultWritten);
        let indices: Vec<u32> = inner.queues.streams.keys().copied().collect();
        for index in indices {
            let Some(stream) = inner.queues.streams.get_mut(&index) else { continue };
            let tokens = stream.abandon();
            let done = stream.done();
            inner.journal.set_completed(index, done);
            for token in tokens {
                inner.journal.retire(token);
            }
            self.service.set_completed(index, done);
        }
        while let Some(barrier) = inner.queues.barriers.pop_front() {
            inner.journal.retire(barrier.token);
            self.answer(&barrier.header, &shared::answer(fault.result));
        }
        inner.queues.parked.clear();
        inner.queues.chores.clear();
        inner.queues.held.clear();
        inner.trial.clear();
        suspicion::acquit(&inner.journal);
        inner.meter.held.end(now_ns);
        // Intake may have been stalled or parked; it answers everything from now on.
        inner.go_on();
        self.shared.fair_queues.of(self.config.id).abandoned(self.config.id);
        inner.queues.watchers.clear();
        inner.status.in_flight = 0;
        inner.status.error = fault.result;
        inner.status.fault.clone_from(&fault.text);
        self.flush_text(inner);
        self.service.notify();
        self.shared.report(FromExecutor::Fault { session: self.config.id, result: fault.result, text: fault.text.clone() });
        self.shared.cards.stop_client(self.client(), fault);
        self.shared.wake_intake(self.client());
    }

    /// What came through the ring cannot be: the client is in error and nothing more is read from
    /// it.
    pub fn violation(&self, inner: &mut Inner, what: &str) {
        let text = format!("the client broke the protocol: {what}; its requests are no longer read");
        self.fault(inner, &Fault { result: result::MPS_RPC_FAILURE, text });
        if let Some(reading) = inner.phase.as_reading() {
            reading.stop_reading();
        }
    }

    /// Gives the client as much of its text as its ring has room for.
    pub fn flush_text(&self, inner: &mut Inner) {
        for channel in Channel::ALL {
            let kept = &mut inner.text[channel.index()];
            while !kept.is_empty() {
                let put = self.service.put_text(channel, kept.as_slices().0);
                if put == 0 {
                    break;
                }
                kept.drain(..put);
            }
        }
    }
}
