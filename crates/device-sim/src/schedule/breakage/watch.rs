//! The thread that sees a fault through to its end. It stands for the driver, which announces a
//! fault, and for the engine that decides whose it was.

use std::time::{Duration, Instant};

use cumux_device::Begun;
use cumux_environment::steps::{self, Step};
use parking_lot::MutexGuard;

use super::super::card::SoftwareCard;
use super::super::scheduler::{DevicePhase, Scheduler};
use super::Phase;
use super::settle::Settlement;

/// How often it is looked whose work has ended, while that of others runs on.
const LOOK_AROUND: Duration = Duration::from_millis(20);

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
            Some(Phase::Halted(until)) if now < until && scheduler.awaits_innocents() => match scheduler.parting_is_due() {
                Some(at) if now >= at => part(card, &mut scheduler),
                at => drop(card.breaking.wait_until(&mut scheduler, at.map_or(until, |at| at.min(until)))),
            },
            Some(Phase::Finishing(until)) if now < until && scheduler.awaits_innocents() => {
                let mut ended = scheduler.take_ended();
                if ended.is_empty() {
                    card.breaking.wait_until(&mut scheduler, until.min(now + LOOK_AROUND));
                } else {
                    MutexGuard::unlocked(&mut scheduler, || card.sink.retired_all(&mut ended));
                    let_finished_go(card, &mut scheduler);
                }
            }
            Some(Phase::Halted(_) | Phase::Finishing(_)) => {
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

/// Has all others leave those whose work runs on, if they can.
fn part(card: &SoftwareCard, scheduler: &mut MutexGuard<'_, Scheduler>) {
    let staying = scheduler.begin_parting();
    let others_can_leave = !staying.is_empty() && MutexGuard::unlocked(scheduler, || card.sink.occupied(&staying));
    // The wait may have ended meanwhile.
    if !others_can_leave || !scheduler.awaits_innocents() {
        return;
    }
    tracing::info!(staying = staying.len(), "work runs on after a fault: all others go on in another process");
    let settlement = scheduler.part(Instant::now());
    MutexGuard::unlocked(scheduler, || {
        deliver_reports(card, settlement);
        // What they had begun has ended and is reported.
        card.sink.let_go(&staying, Begun::Only(Vec::new()));
    });
}

/// Clients whose work has ended follow the others: what they want next does not begin here, however
/// long the rest takes.
fn let_finished_go(card: &SoftwareCard, scheduler: &mut MutexGuard<'_, Scheduler>) {
    if let Some(staying) = scheduler.staying_has_shrunk() {
        tracing::info!(staying = staying.len(), "work of some has ended: they follow the others");
        MutexGuard::unlocked(scheduler, || card.sink.let_go(&staying, Begun::Only(Vec::new())));
    }
}

/// Delivers reports, then the culprits' faults.
fn deliver_reports(card: &SoftwareCard, mut settlement: Settlement) -> Settlement {
    steps::pass(Step::CardSettled);
    card.sink.retired_all(&mut settlement.reports);
    steps::pass(Step::CardReported);
    for (client, fault) in &settlement.culprits {
        card.sink.faulted(*client, fault);
    }
    steps::pass(Step::CardJudged);
    settlement
}

/// Delivers the last reports of a card.
fn deliver(card: &SoftwareCard, settlement: Settlement) {
    tracing::error!("the card is lost: {}", settlement.why);
    let settlement = deliver_reports(card, settlement);
    card.sink.lost(&settlement.why, Begun::Only(settlement.in_doubt));
}
