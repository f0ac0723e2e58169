//! What the device and its workers share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use cumux_device::{ClientId, DeviceFacts, Sink};
use parking_lot::{Condvar, Mutex, RwLock};

use super::client::ClientEnd;
use super::state::Scheduler;
use crate::memory::maps::Mappings;
use crate::models::Limits;

/// What the device and its workers share.
pub(crate) struct Card {
    pub(crate) facts: DeviceFacts,
    pub(crate) limits: Limits,
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) maps: RwLock<Mappings>,
    pub(crate) state: Mutex<Scheduler>,
    /// Idle workers.
    pub(crate) work: Condvar,
    /// Those who wait for slices or clients to end.
    pub(crate) settled: Condvar,
    /// A kernel that runs longer is faulted.
    pub(crate) watchdog: Option<Duration>,
    pub(crate) started: Instant,
    /// Reports that have been delivered.
    pub(crate) reports: AtomicU64,
}

impl Card {
    /// Wakes a worker if there is something to do and one is asleep.
    pub(crate) fn wake_worker(&self, state: &Scheduler) {
        if state.idle > 0 && state.has_work() {
            self.work.notify_one();
        }
    }

    /// Ends a client's work with a fault or by cancelling it.
    pub(crate) fn end_client(&self, state: &mut Scheduler, client: ClientId, ended: ClientEnd) {
        state.end_client(client, ended);
        for _ in 0..state.idle.min(state.reports.len()) {
            self.work.notify_one();
        }
    }

    /// Waits until no slice that had begun for the client before the call is running.
    pub(crate) fn wait_for_slices(&self, client: ClientId) {
        let mut state = self.state.lock();
        let before: Vec<(usize, u64)> =
            state.workers.iter().enumerate().filter_map(|(at, slice)| slice.filter(|(c, _)| *c == client).map(|(_, number)| (at, number))).collect();
        state.waiting += 1;
        while before.iter().any(|(at, number)| state.workers[*at].is_some_and(|(_, n)| n == *number)) {
            self.settled.wait(&mut state);
        }
        state.waiting -= 1;
    }
}
