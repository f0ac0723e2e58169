//! Streams, SMs and workers: what runs next.
//!
//! ```text
//! submit ─▶ stream queue ─▶ head becomes a task ─▶ pieces run by workers ─▶ report ─▶ next head
//! ```
//!
//! Invariants:
//! - A stream has at most one task or one report in flight: order and "exactly one report" follow.
//! - The next work of a stream begins only after the sink has returned from the report of the one before.
//! - What a worker runs for a client is noted in [`State::workers`] under the lock, so revoking and closing can wait for it.
//! - After a report each worker yields once to the system at its next slice: whoever was woken must not wait for the system's next tick.
//! - Nobody polls: workers sleep on [`Card::work`] and are woken when something becomes runnable.
//!
//! Fairness: each client and each task has a virtual time, raised by what it used; the least goes next, clients first. A task's time counts
//! a quarter for each step of stream priority. Clients below normal get what normal ones leave. Workers are pre-charged a slice, so that several of them spread.

pub(crate) mod kernel;
pub(crate) mod parts;
pub(crate) mod placement;
mod state;
pub(crate) mod worker;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use cumux_device::{ClientId, DeviceFacts, Fault, Outcome, Sink, StreamId};
use parking_lot::{Condvar, Mutex, RwLock};

use crate::marks::Slot;
use crate::memory::maps::Maps;
use crate::models::Limits;
pub(crate) use state::{Client, Ended, Function, Module, State};

/// What the device and its workers share.
pub(crate) struct Card {
    pub(crate) facts: DeviceFacts,
    pub(crate) limits: Limits,
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) maps: RwLock<Maps>,
    pub(crate) state: Mutex<State>,
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

/// A submission that is over.
pub(crate) struct Report {
    pub(crate) client: ClientId,
    pub(crate) stream: StreamId,
    pub(crate) token: u64,
    pub(crate) outcome: Outcome,
    /// Freed when the sink has taken the report.
    pub(crate) slot: Option<Arc<Slot>>,
}

impl Card {
    /// Wakes a worker if there is something to do and one is asleep.
    pub(crate) fn kick(&self, state: &State) {
        if state.idle > 0 && state.has_work() {
            self.work.notify_one();
        }
    }

    /// Ends a client's work with a fault or by cancelling it.
    pub(crate) fn end_client(&self, state: &mut State, client: ClientId, ended: Ended) {
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

/// The outcome that everything of an ended client gets.
pub(crate) fn outcome_of(ended: &Ended) -> Outcome {
    match ended {
        Ended::Fault(fault) => Outcome::Fault(Fault { result: fault.result, text: fault.text.clone() }),
        Ended::Cancelled => Outcome::Cancelled,
    }
}
