//! The state that a card shares with its engines.

use super::due::DueChains;
use super::message::{Mailboxes, Message};
use crate::context::OwnKernels;
use crate::counters::Counters;
use crate::driver::Driver;
use crate::fault::{CudaError, Loss, Membership, Watch};
use crate::helpers::Helpers;
use crate::issue::PreparedChains;
use crate::polling::PollPolicy;
use crate::quiet::Gate;
use crate::track::{FillingKernels, Lanes, Motion, Printing, StandingWork};
use cumux_device::{Begun, InDoubt, Sink};
use cumux_wire::limits::LaunchLimits;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The state that a card shares with its engines.
pub(crate) struct Shared {
    /// The driver, with the card's context.
    pub driver: Arc<Driver>,
    /// Where completed work is reported. Called while holding no lock.
    pub sink: Arc<dyn Sink>,
    /// When the card was opened: the engines' clocks count from then.
    pub opened: Instant,
    /// The delay until a chain begins on an idle stream and until its end is seen.
    pub latency_ns: u64,
    /// The card's limits for launches.
    pub limits: LaunchLimits,
    /// True if kernels are submitted as chains.
    pub coalesces: bool,
    /// True if small copies may be nodes of chains.
    pub small_copies: bool,
    /// True if whoever runs an engine reads the driver's locks without writing to them.
    pub biased_locks: bool,
    /// How idle engines wait.
    pub polling: PollPolicy,
    /// The engines' mailboxes.
    pub mailboxes: Arc<Mailboxes>,
    /// The card's counters.
    pub counters: Arc<Counters>,
    /// The kernels that this crate itself runs.
    pub own_kernels: OwnKernels,
    /// The chains to make as soon as the card stands still.
    pub due: DueChains,
    /// The chains that were made in advance.
    pub prepared: Arc<PreparedChains>,
    /// The gate to a quiet card.
    pub gate: Arc<Gate>,
    /// The helper threads.
    pub helpers: Arc<Helpers>,
    /// Whose kernels may print.
    pub printing: Printing,
    /// Long kernels in flight that occupy every SM.
    pub filling: FillingKernels,
    /// The driver streams with work in flight.
    pub lanes: Lanes,
    /// Engines whose work in flight stands still.
    pub standing: StandingWork,
    /// When work of each engine has ended of late.
    pub motion: Motion,
    /// Whether the context still works.
    pub loss: Loss,
    /// What the driver has announced of a fault.
    pub watch: Arc<Watch>,
    /// The card among those of the process.
    pub membership: Membership,
    /// Set when the announced fault has turned out to be another card's.
    pub spared: OnceLock<()>,
    /// How long the work of others is waited for after a fault.
    pub fault_wait: Duration,
    /// Nanoseconds without progress after which an engine queries a driver stream.
    pub query_after_ns: u64,
}

impl Shared {
    /// Declares that the context is broken, as `engine` has learnt from the driver, and notifies
    /// the other engines.
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

    /// Notes that the clients of so many engines were notified of the loss, and which of their work
    /// is in doubt. After the last engine, the sink is notified.
    pub(super) fn finish_loss(&self, engines: usize, in_doubt: Vec<InDoubt>) {
        if let Some(in_doubt) = self.loss.finish_engines(engines, self.mailboxes.len(), in_doubt) {
            self.sink.lost(self.loss.why().unwrap_or_default(), Begun::Only(in_doubt));
        }
    }

    /// Notifies the sink although not all engines have said what they had begun.
    pub(super) fn finish_loss_without_all(&self) {
        if self.loss.finish_without_all(self.mailboxes.len()) {
            self.sink.lost(self.loss.why().unwrap_or_default(), Begun::Unknown);
        }
    }

    /// Gives the device up although the driver reports no error, and notifies the sink, which hears
    /// which work of clients may have been begun.
    pub(crate) fn give_up(&self, why: String, begun: Begun) {
        tracing::error!("the device is given up: {why}");
        if self.loss.declare(CudaError::LAUNCH_TIMEOUT, why.clone()) {
            self.sink.lost(&why, begun);
        }
    }
}
