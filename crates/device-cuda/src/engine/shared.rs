//! What a card and its engines share.

use super::message::{Mailboxes, Message};
use crate::counters::Counters;
use crate::driver::{Driver, Function};
use crate::fault::{CudaError, Loss};
use crate::helpers::Helpers;
use crate::issue::LaunchLimits;
use crate::polling::PollPolicy;
use crate::quiet::Gate;
use cumux_device::Sink;
use std::sync::Arc;

/// What a card and its engines share.
pub(crate) struct Shared {
    /// The card.
    pub driver: Arc<Driver>,
    /// Where ends of work are reported. Called without holding a lock.
    pub sink: Arc<dyn Sink>,
    /// What launches may ask for.
    pub limits: LaunchLimits,
    /// True if batches of kernels go as chains.
    pub coalesces: bool,
    /// How engines wait.
    pub polling: PollPolicy,
    /// The engines' mailboxes.
    pub mailboxes: Arc<Mailboxes>,
    /// What is counted.
    pub counters: Arc<Counters>,
    /// The kernel at the end of chains.
    pub fence_kernel: Function,
    /// The way to a quiet card.
    pub gate: Arc<Gate>,
    /// The helper threads.
    pub helpers: Arc<Helpers>,
    /// Whether the context still works.
    pub loss: Loss,
}

impl Shared {
    /// The driver has told `engine` of an error of the whole context. The other engines are told.
    pub(super) fn declare_broken(&self, error: CudaError, engine: usize) {
        let why = self.driver.describe_numbered(error);
        if !self.loss.declare(error, why.clone()) {
            return;
        }
        tracing::error!("the context is broken: {why}");
        for (number, mailbox) in self.mailboxes.iter().enumerate() {
            if number != engine {
                mailbox.send(Message::CheckContext);
            }
        }
    }

    /// An engine has told its clients of the loss. The last one tells the sink.
    pub(super) fn finish_loss(&self) {
        if self.loss.finish_engine(self.mailboxes.len()) {
            self.sink.lost(self.loss.why().unwrap_or_default(), true);
        }
    }

    /// Gives the device up although the driver reports nothing. Nobody knows whose kernels run at
    /// this moment, so no client is told; the sink hears why.
    pub(crate) fn give_up(&self, why: String) {
        tracing::error!("the device is given up: {why}");
        if self.loss.declare(CudaError::LAUNCH_TIMEOUT, why.clone()) {
            self.sink.lost(&why, false);
        }
    }
}
