//! The thread that sees a fault through to its end. It stands for the driver, which announces a
//! fault, and for the engine that decides whose it was.

use std::time::Instant;

use cumux_device::Begun;
use cumux_environment::steps::{self, Step};
use parking_lot::MutexGuard;

use super::super::card::SoftwareCard;
use super::super::scheduler::DevicePhase;
use super::Phase;
use super::settle::Settlement;

/// Runs until the card is lost or the device closes.
pub(crate) fn run(card: &SoftwareCard) {
    let mut scheduler = card.scheduler.lock();
    let mut is_noticed = false;
    while scheduler.phase == DevicePhase::Open {
        let now = Instant::now();
        match scheduler.breakage.as_ref().map(|breakage| breakage.phase.clone()) {
            None | Some(Phase::Lost(_)) => return,
            Some(Phase::Whole) => card.breaking.wait(&mut scheduler),
            Some(Phase::Faulting(_)) if !is_noticed => {
                is_noticed = true;
                MutexGuard::unlocked(&mut scheduler, || card.sink.fault_noticed());
            }
            Some(Phase::Faulting(at)) if now < at => {
                card.breaking.wait_until(&mut scheduler, at);
            }
            Some(Phase::Faulting(_)) => {
                let mut trusted = scheduler.halt(now);
                tracing::info!(ended = trusted.len(), "the fault is announced: nothing more begins");
                steps::pass(Step::CardAnnounced);
                MutexGuard::unlocked(&mut scheduler, || card.sink.retired_all(&mut trusted));
            }
            Some(Phase::Halted(until)) if now < until && scheduler.awaits_innocents() => {
                card.breaking.wait_until(&mut scheduler, until);
            }
            Some(Phase::Halted(_)) => {
                if let Some(breakage) = &mut scheduler.breakage {
                    breakage.phase = Phase::Settling;
                }
            }
            Some(Phase::Settling) if scheduler.has_active_workers() => card.breaking.wait(&mut scheduler),
            Some(Phase::Settling) => {
                let settlement = scheduler.settle();
                card.notify_waiting(&scheduler);
                drop(scheduler);
                deliver(card, settlement);
                return;
            }
        }
    }
}

/// Delivers the last reports of a card.
fn deliver(card: &SoftwareCard, mut settlement: Settlement) {
    tracing::error!("the card is lost: {}", settlement.why);
    steps::pass(Step::CardSettled);
    card.sink.retired_all(&mut settlement.reports);
    steps::pass(Step::CardReported);
    for (client, fault) in &settlement.culprits {
        card.sink.faulted(*client, fault);
    }
    steps::pass(Step::CardJudged);
    card.sink.lost(&settlement.why, Begun::Only(settlement.in_doubt));
}
