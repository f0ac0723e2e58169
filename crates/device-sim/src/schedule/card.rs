//! What the device and its workers share.
#![expect(clippy::disallowed_types, reason = "counts reports, from any thread")]

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use cumux_device::{ClientId, DeviceFacts, Fault, Sink};
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};

use super::client::ClientEnd;
use super::scheduler::{RunningSlice, Scheduler};
use crate::memory::maps::Mappings;
use crate::models::Limits;

/// One open card.
pub(crate) struct SoftwareCard {
    pub(crate) facts: DeviceFacts,
    pub(crate) limits: Limits,
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) maps: RwLock<Mappings>,
    pub(crate) scheduler: Mutex<Scheduler>,
    /// Idle workers sleep on it.
    pub(crate) work: Condvar,
    /// Threads that wait for slices or clients to end sleep on it.
    pub(crate) settled: Condvar,
    /// Whether a fault of one client breaks the card for all ([`super::breakage`]).
    pub(crate) breaks: bool,
    /// The thread that watches for faults sleeps on it.
    pub(crate) breaking: Condvar,
    /// A kernel that runs longer is faulted.
    pub(crate) watchdog: Option<Duration>,
    /// When the card was opened: the zero of its clock.
    pub(crate) opened: Instant,
    /// Reports that the sink has taken.
    pub(crate) delivered_reports: AtomicU64,
}

impl SoftwareCard {
    /// Wakes a worker if there is something to do and one is asleep.
    pub(crate) fn wake_worker(&self, scheduler: &Scheduler) {
        if scheduler.idle_workers > 0 && scheduler.has_work() {
            self.work.notify_one();
        }
    }

    /// Ends a client's work with a fault or by cancelling it.
    pub(crate) fn end_client(&self, scheduler: &mut Scheduler, client: ClientId, end: ClientEnd) {
        scheduler.end_client(client, end);
        for _ in 0..scheduler.idle_workers.min(scheduler.reports.len()) {
            self.work.notify_one();
        }
    }

    /// A kernel of a client has faulted: ends the client, or begins the end of the card.
    pub(super) fn fault_client(&self, scheduler: &mut Scheduler, client: ClientId, fault: Fault) {
        if self.breaks {
            scheduler.note_fault(client, fault);
            self.breaking.notify_all();
        } else {
            self.end_client(scheduler, client, ClientEnd::Fault(fault));
        }
    }

    /// Waits until no slice runs that had begun for the client before the call.
    pub(crate) fn wait_for_slices(&self, client: ClientId) {
        let mut scheduler = self.scheduler.lock();
        let before: Vec<(usize, RunningSlice)> =
            (0..).zip(&scheduler.workers).filter_map(|(worker, slice)| slice.filter(|slice| slice.client == client).map(|slice| (worker, slice))).collect();
        scheduler.waiting_threads += 1;
        while before.iter().any(|(worker, slice)| scheduler.workers[*worker] == Some(*slice)) {
            self.settled.wait(&mut scheduler);
        }
        scheduler.waiting_threads -= 1;
    }

    /// Waits until nothing of an ended client runs and all its submissions are reported.
    pub(crate) fn wait_for_client(&self, scheduler: &mut MutexGuard<'_, Scheduler>, client: ClientId) {
        scheduler.waiting_threads += 1;
        while scheduler.is_client_busy(client) {
            self.wake_worker(scheduler);
            self.settled.wait(scheduler);
        }
        scheduler.waiting_threads -= 1;
    }

    /// Tells threads that wait for slices or clients to end that something has changed.
    pub(crate) fn notify_waiting(&self, scheduler: &Scheduler) {
        if scheduler.waiting_threads > 0 {
            self.settled.notify_all();
        }
        if scheduler.is_halted() {
            self.breaking.notify_all();
        }
    }
}
