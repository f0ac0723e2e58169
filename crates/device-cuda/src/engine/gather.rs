//! Handing over after a fault: from the other engines to the first one.
//!
//! ```text
//! engine 1    HandingOver ── TakeOver ──┐      passes on its messages until the end
//! engine 2    HandingOver ── TakeOver ──┤
//! engine 0    Faulted ──────────────────┴──▶ the verdict
//! ```

use super::handover::{Handover, Remains};
use super::message::{FIRST_ENGINE, Message};
use super::shared::Shared;
use super::state::{ContextState, Engine};
use crate::fault::CudaError;
use crate::track::{Flight, Reporting};
use cumux_device::{ClientId, Fault, InDoubt, Outcome, Report};
use std::collections::BTreeSet;

impl Engine {
    /// Hands everything over to the first engine, and passes on messages until [`Message::End`].
    pub(super) fn hand_over(self) {
        let Engine { number, shared, issuer, mut streams, ends, long_work, context, evacuation, helper_stream, over, reports, .. } = self;
        let ContextState::HandingOver(inquiry) = context else { return };
        long_work.give_up();
        shared.standing.note(number, false);
        streams.tracker.note_waiting(false);
        let completed = over.into_iter().chain(inquiry.completed).collect();
        let remains = Remains { issuer, helper_stream };
        let handover = Handover { remains, streams, ends, flying: inquiry.flying, completed, reports, evacuation };
        shared.mailboxes.of(FIRST_ENGINE).send(Message::TakeOver(Box::new(handover)));
        pass_messages_on(&shared, number);
    }

    /// Takes over the clients of another engine.
    pub(super) fn take_over(&mut self, handover: Handover) {
        if self.shared.spared.get().is_none() {
            // The other one may have noticed the announcement first.
            self.begin_inquiry(Vec::new());
        }
        let Handover { remains, streams, ends, flying, completed, mut reports, evacuation } = handover;
        self.streams.absorb(streams);
        self.ends.absorb(ends);
        self.reports.append(&mut reports);
        self.remains.push(remains);
        if let Some(evacuation) = evacuation {
            self.begin_evacuation(evacuation);
        }
        match &mut self.context {
            ContextState::Faulted(inquiry) => {
                inquiry.flying.extend(flying);
                inquiry.completed.extend(completed);
            }
            // The fault was another card's. The next poll reports what is complete.
            ContextState::Working => self.over.extend(completed),
            ContextState::HandingOver(_) | ContextState::Finishing(_) | ContextState::Broken => self.end_latecomer(completed),
        }
        self.finish_closing();
    }

    /// The context was lost without this engine, whose kernels may have been the culprit's, too:
    /// whoever had kernels under way is told that their end is not known.
    fn end_latecomer(&mut self, completed: Vec<(Flight, u64)>) {
        // It was completed before the announcement.
        self.release_held(|_| true);
        let error = self.shared.loss.error().unwrap_or(CudaError::LAUNCH_FAILED);
        let what = self.shared.driver.describe(error);
        let late: BTreeSet<ClientId> = completed.iter().filter(|(flight, _)| flight.kernel().is_some()).map(|(flight, _)| flight.client).collect();
        let text = format!("a kernel of a client ended the context ({what}) while others were under way; which of those had finished is not known");
        let fault = Fault { result: error.number(), text };
        let mut in_doubt = Vec::new();
        for (Flight { client, stream, token, reporting, .. }, _) in completed {
            self.streams.end_flight(stream);
            match reporting {
                Reporting::Done => {}
                Reporting::Due if late.contains(&client) => self.reports.push(Report { client, stream, token, outcome: Outcome::Fault(fault.clone()) }),
                Reporting::Due => in_doubt.push(InDoubt { client, stream, token }),
            }
        }
        self.send_reports();
        for client in late {
            self.stop_client(client, &fault);
        }
        in_doubt.extend(self.stop_unfinished(error, &what));
        self.shared.finish_loss(1, in_doubt);
    }
}

/// Passes on what concerns the clients of an engine that has handed over, and answers for itself
/// that it has nothing.
fn pass_messages_on(shared: &Shared, number: usize) {
    let (own, first) = (shared.mailboxes.of(number), shared.mailboxes.of(FIRST_ENGINE));
    // A chain that was made meanwhile is kept: destroying it is a call of the driver, which may
    // wait until the fault is handled. So is an order, which keeps modules loaded.
    let (mut messages, mut chains, mut orders) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        own.take_all(&mut messages);
        for message in messages.drain(..) {
            // A send of an answer fails if the thread has stopped waiting.
            match message {
                Message::End => return,
                Message::AddStream(_)
                | Message::Submit(..)
                | Message::SubmitAll(..)
                | Message::RemoveStream(_)
                | Message::StopClient(..)
                | Message::CloseClient(..)
                | Message::DescribeClient(..)
                | Message::Unpark(..)
                | Message::Printed(..)
                | Message::Evacuate(..)
                | Message::TurnToPrint(_) => first.send(message),
                Message::HoldLongWork(answer, _) | Message::StopWork(answer) | Message::Ping(answer) => drop(answer.send(())),
                Message::ListLongClients(_, asker) => drop(asker.send(Vec::new())),
                Message::ChainBuilt(_, chain) => chains.extend(chain),
                Message::NotMade(order) => orders.push(order),
                Message::ForgetKernels(_)
                | Message::ResumeLongWork
                | Message::CheckContext
                // No chain is made any more: the process ends.
                | Message::AskPast(..)
                | Message::Past(_)
                | Message::HaveParted
                | Message::SpareDriver(_)
                | Message::FaultBegins
                | Message::TakeOver(_) => {}
            }
        }
        own.sleep(None);
    }
}
