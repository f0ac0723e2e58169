//! Keeping the driver free while a device handles a fault.
//!
//! All processes that use a card share one lock in the driver. An executor that comes up holds it
//! for most of that time, 0.3 s, and a fault beside that is announced late (with 64 queues: after
//! 0.3 to 1.2 s, decision 0120). So it is stopped from the first sign of a fault until the next
//! executor serves. Those that stand by begin nothing meanwhile.
//!
//! One that has lost its device holds that lock, too, when it ends, and an executor comes up beside
//! that in three times the time. So the next one is started when it has ended. The one that
//! serves is told to spare the driver until the lost one has ended and the next one has come up:
//! making a graph for a chain of kernels would wait for the lock, for up to 0.2 s, and hold another
//! one that all launches need.

use crate::core::Core;
use crate::host::Host;
use crate::worker::Worker;
use cumux_wire::message::ToExecutor;
use std::time::{Duration, Instant};

/// An executor that has lost its device has ended by then, or is not waited for any longer.
const LONGEST_END: Duration = Duration::from_millis(1_500);

/// An executor that begins to serve spares nothing for so long. It makes most of its chains then,
/// and the one that has lost its device stays for 250 ms.
const BEFORE_SPARING: Duration = Duration::from_millis(240);
/// An executor that comes up is up by then, or nothing is spared for it any longer.
const LONGEST_COMING_UP: Duration = Duration::from_millis(1_500);

fn comes_up(worker: &Worker) -> bool {
    worker.is_shared() && worker.is_awaited()
}

impl<H: Host> Core<H> {
    /// The device of an executor looks at a fault.
    pub(crate) fn fault_noticed(&mut self) {
        self.executors.calm_until = Some(Instant::now() + self.limits.calm);
        for worker in self.executors.workers.values().filter(|worker| comes_up(worker)) {
            self.host.stop(&worker.process);
        }
        self.rest_standbys(true);
    }

    /// Whoever comes up goes on: the fault has been handled.
    pub(crate) fn end_calm(&mut self) {
        if self.executors.calm_until.take().is_some() {
            for worker in self.executors.workers.values().filter(|worker| comes_up(worker)) {
                self.host.set_going(&worker.process);
            }
            self.rest_standbys(false);
        }
    }

    /// Has those who stand by begin nothing, or go on.
    fn rest_standbys(&self, rest: bool) {
        let active = self.executors.service.active();
        let standbys = self.executors.workers.iter().filter(|(id, worker)| worker.can_serve() && Some(**id) != active);
        standbys.for_each(|(_, worker)| worker.send(ToExecutor::SpareDriver { spare: rest }));
    }

    /// Whether an executor that has lost its device is about to end.
    pub(crate) fn is_one_ending(&self, now: Instant) -> bool {
        self.executors.workers.values().any(|worker| worker.lost_since.is_some_and(|since| now < since + LONGEST_END))
    }

    /// Tells the executor that serves whether another one keeps the driver busy after a fault.
    pub(crate) fn spare_driver(&mut self, now: Instant) {
        let Some(serving) = self.executors.service.serving() else { return };
        if let Some(before) = self.executors.sparing.filter(|id| *id != serving) {
            // It still serves those that stay.
            if let Some(worker) = self.executors.workers.get(&before) {
                worker.send(ToExecutor::SpareDriver { spare: false });
            }
            self.executors.sparing = None;
        }
        let Some(worker) = self.executors.workers.get(&serving) else { return };
        let begins = worker.serving_since.is_some_and(|since| now < since + BEFORE_SPARING);
        let spare = self.executors.takeovers > 0 && !begins && self.keeps_driver_busy(now);
        if spare != (self.executors.sparing == Some(serving)) {
            worker.send(ToExecutor::SpareDriver { spare });
            self.executors.sparing = spare.then_some(serving);
        }
    }

    /// Whether an executor ends after a fault, or comes up.
    fn keeps_driver_busy(&self, now: Instant) -> bool {
        let is_coming_up = |worker: &Worker| worker.is_shared() && worker.awaited_since().is_some_and(|since| now < since + LONGEST_COMING_UP);
        self.is_one_ending(now) || self.executors.workers.values().any(is_coming_up)
    }

    /// Ends an executor that has lost its device if nobody can take over yet. Otherwise it ends by
    /// itself, a little later: its end would make the takeover slow.
    pub(crate) fn hasten_end(&self, id: u64) {
        if !self.executors.workers.values().any(Worker::can_serve)
            && let Some(worker) = self.executors.workers.get(&id)
        {
            self.host.kill(worker.pid, &worker.process);
        }
    }

    /// When something here is due.
    pub(crate) fn calm_deadlines(&self) -> impl Iterator<Item = Instant> {
        let of_worker = |worker: &Worker| {
            [
                worker.lost_since.map(|since| since + LONGEST_END),
                worker.serving_since.map(|since| since + BEFORE_SPARING),
                worker.awaited_since().map(|since| since + LONGEST_COMING_UP),
            ]
        };
        let all = self.executors.workers.values().flat_map(of_worker).flatten();
        self.executors.calm_until.into_iter().chain(all)
    }

    /// Ends the calm if it has lasted too long, or nobody else can take over.
    pub(crate) fn limit_calm(&mut self, now: Instant) {
        let can_take_over = self.executors.service.active().is_some() || self.executors.workers.values().any(Worker::can_serve);
        if self.executors.calm_until.is_some_and(|until| until <= now || !can_take_over) {
            self.end_calm();
        }
    }
}
