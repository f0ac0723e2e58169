//! Handling messages, and serving the queues that are ready.

use super::ends::Admission;
use super::handover::Evacuation;
use super::message::Message;
use super::state::{ContextState, Engine, Parting};
use crate::context::{ClientModule, ContextClient};
use crate::driver::CardAddress;
use crate::fault::CudaError;
use crate::issue::{Awaited, Lane, Purpose, Served, StreamQueue, Streams};
use cumux_device::{DeviceError, Fault, Outcome, Report, StreamId, Work};
use cumux_wire::result;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What became of a look at the queues that are ready.
enum Looked {
    /// Whether one was served.
    GoOn(bool),
    /// The context is broken, or a fault was announced: none is served any more.
    Stop,
}

impl Engine {
    /// Handles a message other than [`Message::End`].
    pub(super) fn handle_message(&mut self, message: Message) {
        match message {
            Message::AddStream(stream) => {
                self.orders.welcome_client(stream.client.id);
                self.streams.queues.insert(stream.id, StreamQueue::new(stream));
            }
            Message::Submit(stream, token, work) => self.accept_work(stream, token, work),
            Message::SubmitAll(stream, work) => self.accept_all(stream, work),
            Message::RemoveStream(stream) => {
                self.streams.remove(stream);
                self.issuer.forget_streams(&[stream]);
            }
            Message::StopClient(client, fault) => self.stop_client(client, &fault),
            Message::CloseClient(client, done) => self.close_client(client, done),
            Message::DescribeClient(client, asker) => {
                // The send fails if the thread has stopped waiting.
                let _ = asker.send(self.describe_client(client));
            }
            Message::Unpark(client, fault) => {
                if let Some(fault) = fault {
                    self.stop_client(client, &fault);
                }
                self.streams.unpark(client);
            }
            Message::ChainBuilt(pending, chain) => {
                self.orders.note_made(self.streams.clock.now());
                self.issuer.add_built_chain(pending, chain);
                if let Purpose::Own(stream) = pending.purpose
                    && !self.streams.queues.contains_key(&stream)
                {
                    self.issuer.forget_streams(&[stream]);
                }
            }
            Message::NotMade(order) => {
                let is_urgent = order.chain.is_urgent();
                self.orders.return_unmade(order, is_urgent, self.streams.clock.now());
            }
            // The send fails if the thread has stopped waiting.
            Message::Ping(answer) => drop(answer.send(())),
            Message::AskPast(asker, number) => self.orders.ask(asker, number, self.streams.tracker.last_fences()),
            Message::Past(number) => self.orders.note_answer(number),
            Message::Printed(stream, text) => self.deliver_printed(stream, &text),
            Message::TurnToPrint(client) => {
                if !self.streams.end_silence(client) {
                    self.printing.leave(client);
                }
            }
            Message::ForgetKernels(kernels) => {
                for order in self.orders.take_back(|order| order.mentions(&kernels)) {
                    self.issuer.add_built_chain(order.chain, None);
                }
                self.issuer.forget_kernels(&mut self.streams.tracker, &kernels);
            }
            Message::HoldLongWork(ready, until) => self.long_work.request(ready, until),
            Message::StopWork(ready) => self.long_work.stop(ready),
            Message::ResumeLongWork => self.long_work.resume(),
            // After an announcement a call of the driver may wait until the fault is handled.
            Message::CheckContext if !self.context_works() => {}
            Message::CheckContext => {
                let broken = self.shared.loss.error().or_else(|| self.shared.driver.is_idle(self.helper_stream).err());
                if let Some(error) = broken {
                    self.declare_lost(error);
                }
            }
            Message::Evacuate(staying, until, done) => self.begin_evacuation(Evacuation::new(staying, until, done)),
            Message::HaveParted => {
                if let ContextState::Finishing(finish) = &mut self.context {
                    finish.parting = Parting::Over;
                }
            }
            Message::ListLongClients(longer_than_ns, asker) => {
                // The send fails if the thread has stopped waiting.
                let _ = asker.send(self.list_long_clients(longer_than_ns));
            }
            Message::SpareDriver(is_spared) => self.issuer.spare_driver(is_spared),
            Message::FaultBegins => self.begin_inquiry(Vec::new()),
            Message::TakeOver(handover) => self.take_over(*handover),
            Message::End => {}
        }
    }

    /// As [`Engine::accept_work`], for all of a list: looked up once, and moved as one where
    /// nothing has to be known of each.
    fn accept_all(&mut self, id: StreamId, work: Vec<(u64, Work)>) {
        let Streams { queues, ready, clock, .. } = &mut self.streams;
        let queue = queues.get_mut(&id).filter(|queue| {
            let is_open = matches!(self.ends.admission(queue.stream.client.id), Admission::Open);
            is_open && self.evacuation.is_none() && matches!(self.context, ContextState::Working)
        });
        match queue {
            // What has nothing to wait for is not queued.
            Some(queue) if !matches!(work.first(), None | Some((_, Work::Nop))) => {
                let begins_to_lead = queue.would_lead_with(work.iter().map(|(_, work)| work));
                if queue.push_all(work, clock.now()) {
                    ready.push_back(id);
                }
                if begins_to_lead {
                    self.streams.note_kernel(id);
                }
            }
            _ => work.into_iter().for_each(|(token, work)| self.accept_work(id, token, work)),
        }
    }

    /// Queues a piece of work, or reports it at once if it cannot run, or has nothing to wait for.
    fn accept_work(&mut self, id: StreamId, token: u64, work: Work) {
        let leaves = self.evacuation.is_some() && self.streams.client_of(id).is_some_and(|client| self.begins_nothing_of(client));
        let Streams { queues, ready, clock, .. } = &mut self.streams;
        // A stream that is not there belonged to a closed client. No thread waits for its work.
        let Some(queue) = queues.get_mut(&id) else { return };
        let client = queue.stream.client.id;
        match self.ends.admission(client) {
            Admission::Open => {}
            Admission::Faulted(fault) => return self.shared.sink.retired(client, id, token, Outcome::Fault(fault.clone())),
            Admission::Closed => return,
        }
        match self.context {
            // Kept until the client is closed. The successor runs it.
            _ if leaves => queue.work.push_back((token, work)),
            ContextState::Broken | ContextState::Faulted(_) | ContextState::HandingOver(_) | ContextState::Finishing(_) => queue.work.push_back((token, work)),
            ContextState::Working if matches!(work, Work::Nop) && queue.is_drained() => {
                self.reports.push(Report { client, stream: id, token, outcome: Outcome::Done { device_ns: 0 } });
            }
            ContextState::Working => {
                let begins_to_lead = queue.would_lead_with(std::iter::once(&work));
                if queue.push(token, work, clock.now()) {
                    ready.push_back(id);
                }
                if begins_to_lead {
                    self.streams.note_kernel(id);
                }
            }
        }
    }

    /// Serves the queues that are ready, once each. Returns true if any was served.
    pub(super) fn issue_ready(&mut self) -> bool {
        if self.long_work.is_stopped() {
            return false;
        }
        let mut awaiting = std::mem::take(&mut self.awaiting);
        let progress = self.serve_ready(&mut awaiting);
        self.streams.tracker.note_waiting(!awaiting.is_empty());
        // They are the first to be asked when a lane is free: who gave it back would take it again.
        awaiting.drain(..).rev().for_each(|id| self.streams.ready.push_front(id));
        self.awaiting = awaiting;
        progress
    }

    /// Serves all queues that are ready, but for those that wait for a lane, which come into
    /// `awaiting`: first those of streams that have nothing in flight, because the card could work
    /// for them. True if one was served.
    fn serve_ready(&mut self, awaiting: &mut Vec<StreamId>) -> bool {
        let first = self.serve_ready_if(true, awaiting);
        let Looked::GoOn(progress) = first else { return true };
        match self.serve_ready_if(false, awaiting) {
            Looked::GoOn(more) => progress | more,
            Looked::Stop => true,
        }
    }

    /// Serves those whose streams have nothing in flight, or the others.
    fn serve_ready_if(&mut self, is_idle: bool, awaiting: &mut Vec<StreamId>) -> Looked {
        let mut progress = false;
        for _ in 0..self.streams.ready.len() {
            // Its message may come later.
            if self.has_to_stop() {
                self.begin_inquiry(Vec::new());
                return Looked::Stop;
            }
            let Some(id) = self.streams.ready.pop_front() else { break };
            if self.streams.queues.get(&id).is_none_or(|queue| queue.in_flight == 0) != is_idle {
                self.streams.ready.push_back(id);
                continue;
            }
            if self.evacuation.is_some() && self.streams.client_of(id).is_some_and(|client| self.begins_nothing_of(client)) {
                continue;
            }
            let held = self.long_work.is_held();
            let lane = self.streams.lane_for(id, held);
            if lane == Lane::Awaited {
                awaiting.push(id);
                continue;
            }
            if lane == Lane::GivenBack || self.issuer.should_gather(&self.streams, id, held) {
                self.streams.ready.push_back(id);
                continue;
            }
            if lane == Lane::Free {
                let now = self.streams.clock.now();
                self.streams.tracker.note_taken(now);
            }
            progress = true;
            let Err(error) = self.serve_queue(id) else { continue };
            if error.is_fatal() {
                self.declare_lost(error);
                return Looked::Stop;
            }
            self.stop_client_of(id, error);
        }
        Looked::GoOn(progress)
    }

    /// Serves the queue of one stream, and does what follows from that.
    fn serve_queue(&mut self, id: StreamId) -> Result<(), CudaError> {
        let served = self.issuer.issue_stream(&mut self.streams, id, self.long_work.is_held());
        for order in self.issuer.take_ordered() {
            let is_urgent = order.chain.is_urgent();
            self.orders.add(order, is_urgent, self.streams.clock.now());
        }
        let heirs = self.issuer.take_heirs();
        if !heirs.is_empty() {
            self.shared.sink.chains_made(&heirs);
        }
        let issued = served.map(|served| match served {
            Served::Done => {}
            Served::Fault(fault) => {
                if let Some(client) = self.streams.queues.get(&id).map(|queue| queue.stream.client.id) {
                    self.stop_client(client, &fault);
                }
            }
            Served::Parked { client, awaits: Awaited::Window { address, bytes } } => self.order_registration(client, address, bytes),
            Served::Parked { client, awaits: Awaited::Kernel { module, function } } => self.order_kernel(client, module, function),
        });
        // Work that was submitted gets its fence in any case, because a client may wait for it.
        let fenced = self.issuer.write_due_fence(&mut self.streams, id);
        issued.and(fenced)
    }

    /// Stops the client of a stream, because the driver has refused a piece of its work.
    fn stop_client_of(&mut self, id: StreamId, error: CudaError) {
        let Some(client) = self.streams.queues.get(&id).map(|queue| queue.stream.client.id) else { return };
        let what = self.issuer.take_failed_kernel().map_or_else(String::new, |name| format!("launching {name}: "));
        let text = format!("{what}{}", self.shared.driver.describe(error));
        self.stop_client(client, &Fault { result: error.number(), text });
    }

    /// Has memory of a client's pinned window registered. The client's queue is parked meanwhile.
    fn order_registration(&self, client: Arc<ContextClient>, address: CardAddress, bytes: u64) {
        self.shared.counters.registrations.fetch_add(1, Ordering::Relaxed);
        client.counts.registrations.fetch_add(1, Ordering::Relaxed);
        let shared = self.shared.clone();
        self.shared.helpers.run(move || {
            let window = client.window.read().clone();
            let registered = window.map_or(Ok(()), |window| window.register(address, bytes));
            let fault = registered.err().map(|error| Fault { result: result::OUT_OF_MEMORY, text: error.to_string() });
            shared.mailboxes.of(client.engine).send(Message::Unpark(client.id, fault));
        });
    }

    /// Has the code of a kernel loaded. The client's queue is parked meanwhile.
    fn order_kernel(&self, client: Arc<ContextClient>, module: Arc<ClientModule>, function: u32) {
        // The helpers may be waiting for a quiet card for somebody else.
        if module.finds_memory(function) {
            return self.shared.mailboxes.of(client.engine).send(Message::Unpark(client.id, None));
        }
        let shared = self.shared.clone();
        self.shared.helpers.run(move || {
            let fault = match module.load_kernel(function, Some(&client.counts)) {
                Ok(()) => None,
                // Its next executor loads it, and launches it.
                Err(DeviceError::LetGo(why)) => return tracing::debug!("client {}: a kernel is not loaded here: {why}", client.id),
                Err(error) => Some(Fault { result: error.result(), text: format!("loading {}: {error}", module.kernels[function as usize].name) }),
            };
            shared.mailboxes.of(client.engine).send(Message::Unpark(client.id, fault));
        });
    }

    /// Asks all engines when what they have in flight has ended, if it is time to. Answers those
    /// whose question is answered by now, and has the chains made that are due, if any may be made
    /// now. After an announced fault, here or on another card, none is.
    pub(super) fn serve_orders(&mut self) {
        let Streams { tracker, clock, .. } = &mut self.streams;
        if let Some(number) = self.orders.ask_next(clock.now(), self.shared.mailboxes.len()) {
            for mailbox in self.shared.mailboxes.iter() {
                mailbox.send(Message::AskPast(self.number, number));
            }
        }
        for (asker, number) in self.orders.answered(|slot, fence| tracker.is_fence_reached(slot, fence)) {
            self.shared.mailboxes.of(asker).send(Message::Past(number));
        }
        if self.orders.is_due()
            && self.context_works()
            && self.shared.spared.get().is_none()
            && self.issuer.may_make_chains(&self.streams)
            && self.shared.gate.may_stop()
        {
            let due = self.orders.take_due(self.streams.clock.now());
            self.make_chains(due);
        }
    }
}
