//! Closing a client of a card that cannot stop kernels, and waiting for a quiet card.

use std::time::{Duration, Instant};

use cumux_device::{ClientId, DeviceError, Report};
use parking_lot::MutexGuard;

use super::super::card::SoftwareCard;
use super::super::client::Task;
use super::super::moment::Moment;
use super::super::scheduler::Scheduler;
use super::Phase;
use super::leave::LONG_KERNEL;

/// How long a thread waits for a quiet card before it goes on all the same.
const QUIET_WAIT_LIMIT: Duration = Duration::from_secs(1);

impl SoftwareCard {
    /// The error of every call on a lost card.
    ///
    /// # Errors
    /// [`DeviceError::Lost`] if it is lost.
    pub(crate) fn require_working(&self) -> Result<(), DeviceError> {
        if self.breaks { self.scheduler.lock().require_working() } else { Ok(()) }
    }

    /// Waits until no long kernel runs. Where one runs on and on, all clients without such kernels
    /// leave; where they cannot, the wait ends after [`QUIET_WAIT_LIMIT`]. Only a card that breaks
    /// needs it, to load a module.
    ///
    /// # Errors
    /// [`DeviceError::LetGo`] where this client has left.
    pub(crate) fn wait_for_quiet(&self, client: ClientId) -> Result<(), DeviceError> {
        if !self.breaks {
            return Ok(());
        }
        let mut scheduler = self.scheduler.lock();
        let patience = scheduler.breakage.as_ref().map_or(QUIET_WAIT_LIMIT, |breakage| breakage.timing.long_kernel);
        let begun = Moment::now();
        scheduler.waiting_threads += 1;
        let mut left = scheduler.has_left(client);
        // With more patience than the wait has nobody leaves.
        let mut asked = patience >= QUIET_WAIT_LIMIT;
        while !left && scheduler.runs_long_kernel() && !scheduler.is_over() {
            let limit = if asked { QUIET_WAIT_LIMIT } else { patience };
            let rest = limit.saturating_sub(begun.elapsed());
            if !rest.is_zero() {
                let _ = self.settled.wait_for(&mut scheduler, rest);
                left = scheduler.has_left(client);
                continue;
            }
            if asked {
                tracing::warn!("a kernel runs for longer than {} ms: a module is loaded beside it", limit.as_millis());
                break;
            }
            asked = true;
            left = self.let_others_go(&mut scheduler, client, patience / 2);
        }
        scheduler.waiting_threads -= 1;
        if left { Err(DeviceError::LetGo("kernels of others do not end, and this client goes on in another process".into())) } else { Ok(()) }
    }

    /// Waits until nothing of an ended client runs and all its work is reported. If a kernel of it
    /// does not end in time, the card is given up.
    pub(crate) fn wait_for_unstoppable_client(&self, scheduler: &mut MutexGuard<'_, Scheduler>, client: ClientId) {
        let Some(drain) = scheduler.breakage.as_ref().map(|breakage| breakage.timing.drain) else { return };
        let until = Instant::now() + drain;
        scheduler.waiting_threads += 1;
        while scheduler.holds_back(client) {
            self.wake_worker(scheduler);
            if !self.settled.wait_until(scheduler, until).timed_out() || !scheduler.holds_back(client) {
                continue;
            }
            let what = scheduler.describe_running(client);
            let why = format!("work of client {client} runs on {} s after the client was closed, and cannot be stopped alone: {what}", drain.as_secs());
            let mut trusted = scheduler.give_up(why);
            self.breaking.notify_all();
            MutexGuard::unlocked(scheduler, || self.sink.retired_all(&mut trusted));
            // The watcher settles it.
            while scheduler.holds_back(client) {
                self.settled.wait(scheduler);
            }
        }
        scheduler.waiting_threads -= 1;
    }
}

impl Scheduler {
    pub(crate) fn require_working(&self) -> Result<(), DeviceError> {
        self.breakage.as_ref().map_or(Ok(()), |breakage| breakage.require_working())
    }

    /// Whether the closing of this client has to wait.
    fn holds_back(&self, id: ClientId) -> bool {
        let runs = self.workers.iter().flatten().any(|slice| slice.client == id);
        match self.breakage.as_ref().map(|breakage| &breakage.phase) {
            Some(Phase::Lost(_)) => runs,
            // Its number must not be another client's before the verdict.
            _ if self.is_halted() && self.breakage.as_ref().is_some_and(|breakage| breakage.is_culprit(id)) => true,
            _ => runs || self.clients.get(&id).is_some_and(|client| !client.tasks.is_empty()) || (!self.is_halted() && self.is_client_busy(id)),
        }
    }

    /// Gives the card up, unless a fault is about to end it. Returns the reports of what had ended
    /// before.
    fn give_up(&mut self, why: String) -> Vec<Report> {
        match self.breakage.as_mut().filter(|breakage| breakage.phase == Phase::Whole) {
            Some(breakage) => {
                breakage.given_up = Some(why);
                self.halt(Instant::now())
            }
            None => Vec::new(),
        }
    }

    fn describe_running(&self, client: ClientId) -> String {
        let tasks = self.clients.get(&client).into_iter().flat_map(|client| client.tasks.values());
        tasks.map(|running| running.describe()).collect::<Vec<_>>().join(", ")
    }

    fn runs_long_kernel(&self) -> bool {
        let kernels = self.clients.values().flat_map(|client| client.tasks.values()).filter_map(|running| match &running.task {
            Task::Kernel(kernel) => kernel.started,
            Task::Transfer(_) => None,
        });
        kernels.into_iter().any(|started| started.elapsed() > LONG_KERNEL)
    }
}
