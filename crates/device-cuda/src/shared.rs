//! What the card and its engines share.

use crate::context::Client;
use crate::counters::Counters;
use crate::driver::{Driver, Function};
use crate::engine::{Mailboxes, Message};
use crate::fault::{CudaError, Loss};
use crate::helpers::Helpers;
use crate::polling::PollPolicy;
use crate::quiet::Gate;
use crate::work::Limits;
use cumux_device::{Fault, Sink};
use cumux_wire::result;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(crate) struct Shared {
    pub driver: Arc<Driver>,
    pub sink: Arc<dyn Sink>,
    pub limits: Limits,
    pub coalesces: bool,
    pub polling: PollPolicy,
    pub mailboxes: Arc<Mailboxes>,
    pub counters: Arc<Counters>,
    /// The kernel at the end of chains: writes 1 to its parameter.
    pub mark: Function,
    pub gate: Arc<Gate>,
    pub helpers: Arc<Helpers>,
    pub loss: Loss,
}

impl Shared {
    /// Registers memory of the client's window and tells its engine.
    pub(crate) fn register(self: &Arc<Self>, client: &Arc<Client>, address: u64, bytes: u64) {
        self.counters.registrations.fetch_add(1, Ordering::Relaxed);
        client.counts.registrations.fetch_add(1, Ordering::Relaxed);
        let (shared, client) = (self.clone(), client.clone());
        self.helpers.run(move || {
            let window = client.window.read().clone();
            let done = window.map_or(Ok(()), |window| window.register(address, bytes));
            let fault = done.err().map(|error| Fault { result: result::OUT_OF_MEMORY, text: error.to_string() });
            shared.mailboxes.of(client.engine).send(Message::Registered(client.id, fault));
        });
    }

    /// The driver has reported an error of the whole context. The other engines are told.
    pub(crate) fn declare_broken(&self, code: CudaError, engine: usize) {
        let why = self.driver.describe_numbered(code);
        if !self.loss.declare(code, why.clone()) {
            return;
        }
        tracing::error!("the context is broken: {why}");
        for (number, mailbox) in self.mailboxes.iter().enumerate() {
            if number != engine {
                mailbox.send(Message::Look);
            }
        }
    }

    /// An engine has reported its clients' ends. The last one tells the sink.
    pub(crate) fn reported(&self) {
        if self.loss.finish_engine(self.mailboxes.len()) {
            self.sink.lost(self.loss.why().unwrap_or_default(), true);
        }
    }

    /// The device is given up although the driver reports nothing: nobody is to blame but who the text names.
    pub(crate) fn give_up(&self, why: String) {
        tracing::error!("the device is given up: {why}");
        if self.loss.declare(CudaError::LAUNCH_TIMEOUT, why.clone()) {
            // Whose kernels run at this moment nobody has asked.
            self.sink.lost(&why, false);
        }
    }
}
