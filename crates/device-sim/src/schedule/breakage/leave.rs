//! Letting go of clients that go on in another process, beside kernels of others that do not end,
//! as a real card does it.
//!
//! From then on nothing of those that leave begins. When what they have begun has ended, or the
//! wait is over, the sink hears which of their work is in doubt. What has not begun is never
//! reported: the clients' next executor does it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use cumux_device::{Begun, ClientId, InDoubt};
use parking_lot::MutexGuard;

use super::super::card::SoftwareCard;
use super::super::client::{Reporting, Task};
use super::super::scheduler::Scheduler;

/// A kernel that runs for longer is one that is waited for.
pub(super) const LONG_KERNEL: Duration = Duration::from_millis(5);

impl SoftwareCard {
    /// Lets go of all clients but those whose kernels have run for longer than this, if they can go
    /// on elsewhere. Whether this client has left.
    pub(super) fn let_others_go(&self, scheduler: &mut MutexGuard<'_, Scheduler>, client: ClientId, longer_than: Duration) -> bool {
        let staying = scheduler.list_long_clients(longer_than);
        if staying.is_empty() {
            return false;
        }
        let possible = MutexGuard::unlocked(scheduler, || self.sink.occupied(&staying));
        // Another thread may have begun the same meanwhile, and does it once for all.
        if !possible || scheduler.is_over() || scheduler.clients.values().any(|client| client.has_left) {
            return scheduler.has_left(client);
        }
        let Some(wait) = scheduler.breakage.as_ref().map(|breakage| breakage.timing.wait) else { return false };
        let Some(in_doubt) = self.wait_for_leaving(scheduler, &staying, wait) else {
            // The loss tells the sink of all work that was begun.
            return true;
        };
        tracing::info!(staying = staying.len(), in_doubt = in_doubt.len(), "kernels do not end: all others go on in another process");
        MutexGuard::unlocked(scheduler, || self.sink.let_go(&staying, Begun::Only(in_doubt)));
        scheduler.has_left(client)
    }
}

impl SoftwareCard {
    /// Begins nothing more of any client but these, and waits for the end of what the others have
    /// begun, at most so long. Returns what has not ended; `None` where the card is lost.
    pub(crate) fn wait_for_leaving(&self, scheduler: &mut MutexGuard<'_, Scheduler>, staying: &BTreeSet<ClientId>, patience: Duration) -> Option<Vec<InDoubt>> {
        for (id, owner) in &mut scheduler.clients {
            owner.has_left |= !staying.contains(id);
        }
        let until = Instant::now() + patience;
        scheduler.waiting_threads += 1;
        while scheduler.awaits_leaving() && !scheduler.is_over() {
            self.wake_worker(scheduler);
            if self.settled.wait_until(scheduler, until).timed_out() {
                break;
            }
        }
        scheduler.waiting_threads -= 1;
        (!scheduler.is_over()).then(|| scheduler.list_in_doubt())
    }
}

impl Scheduler {
    /// Whether nothing of this client is begun any more.
    pub(super) fn has_left(&self, client: ClientId) -> bool {
        self.clients.get(&client).is_some_and(|client| client.has_left)
    }

    /// The clients with kernels that have run for longer than this.
    fn list_long_clients(&self, longer_than: Duration) -> BTreeSet<ClientId> {
        let long = |task: &Task| matches!(task, Task::Kernel(kernel) if kernel.started.is_some_and(|started| started.elapsed() > longer_than));
        self.clients.iter().filter(|(_, client)| client.tasks.values().any(|running| long(&running.task))).map(|(id, _)| *id).collect()
    }

    /// Whether work that clients had begun when they left is under way, or its report.
    fn awaits_leaving(&self) -> bool {
        self.delivering > 0 || self.reports.iter().any(|report| self.has_left(report.client)) || !self.list_in_doubt().is_empty()
    }

    fn list_in_doubt(&self) -> Vec<InDoubt> {
        let leaving = self.clients.iter().filter(|(_, client)| client.has_left);
        let begun = leaving.flat_map(|(id, client)| client.tasks.values().map(|running| (*id, running)));
        let due = begun.filter(|(_, running)| running.reporting == Reporting::Due && running.has_begun());
        due.map(|(client, running)| InDoubt { client, stream: running.stream, token: running.token }).collect()
    }
}
