//! The thread that sees a fault through to its end. It stands for the driver, which announces a
//! fault, and for the engine that decides whose it was.

use std::time::Instant;

use parking_lot::MutexGuard;

use super::super::card::Card;
use super::super::scheduler::{DevicePhase, Scheduler};
use super::Phase;
use super::settle::Settlement;

/// Runs until the card is lost or the device closes.
pub(crate) fn run(card: &Card) {
    let mut scheduler = card.scheduler.lock();
    while scheduler.phase == DevicePhase::Open {
        let now = Instant::now();
        match scheduler.breakage.as_ref().map(|breakage| breakage.phase.clone()) {
            None | Some(Phase::Lost(_)) => return,
            Some(Phase::Whole) => card.breaking.wait(&mut scheduler),
            Some(Phase::Faulting(at)) if now < at => {
                card.breaking.wait_until(&mut scheduler, at);
            }
            Some(Phase::Faulting(_)) => {
                let mut trusted = scheduler.announce(now);
                tracing::info!(ended = trusted.len(), "the fault is announced: nothing more begins");
                MutexGuard::unlocked(&mut scheduler, || card.sink.retired_all(&mut trusted));
            }
            Some(Phase::Announced(until)) if now < until && scheduler.awaits_innocents() => {
                card.breaking.wait_until(&mut scheduler, until);
            }
            Some(Phase::Announced(_)) => {
                if let Some(breakage) = &mut scheduler.breakage {
                    breakage.phase = Phase::Settling;
                }
            }
            // Who gives the card up settles it, and this thread ends after that.
            Some(Phase::Settling) if scheduler.has_active_workers() || scheduler.is_given_up() => card.breaking.wait(&mut scheduler),
            Some(Phase::Settling) => {
                let settlement = scheduler.settle();
                card.notify_waiting(&scheduler);
                drop(scheduler);
                deliver(card, settlement, true);
                return;
            }
        }
    }
}

/// Delivers the last reports of a card. `told`: everybody whose kernels were under way has been told.
pub(super) fn deliver(card: &Card, mut settlement: Settlement, told: bool) {
    tracing::error!("the card is lost: {}", settlement.why);
    card.sink.retired_all(&mut settlement.reports);
    for (client, fault) in &settlement.culprits {
        card.sink.faulted(*client, fault);
    }
    card.sink.lost(&settlement.why, told);
}

impl Scheduler {
    /// Whether the card ends without a fault: it was given up.
    fn is_given_up(&self) -> bool {
        self.breakage.as_ref().is_some_and(|breakage| breakage.culprits.is_empty())
    }
}
