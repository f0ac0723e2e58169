//! The gate that threads pass to make calls on a quiet card.

use super::hold::Until;
use crate::counters::{ClientCounts, Counters};
use crate::driver::{Driver, Module, is_fault_announced};
use crate::helpers::Helpers;
use crate::settings::Settings;
use crossbeam_channel::Sender;
use cumux_device::{ClientId, DeviceError};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How long a thread waits for a quiet card before it goes on all the same. A card that stands
/// still because of a fault is no reason to go on: the call would hold a lock of the driver that it
/// needs to handle the fault, and wait for kernels that do not end before. With much code loaded,
/// the driver announces a fault after up to two seconds.
const QUIET_WAIT_LIMIT: Duration = Duration::from_secs(4);
/// How often a thread that waits looks whether a fault was announced.
const LOOK_AROUND: Duration = Duration::from_millis(20);
/// How much longer than for the work of others a thread waits for the end of the process after a
/// fault was announced. Its call is made by the successor.
const FAULT_WAIT_MARGIN: Duration = Duration::from_secs(1);
/// How long a thread that can do without waits until no long kernel runs. Only long kernels are
/// held back meanwhile.
const SHORT_QUIET_LIMIT: Duration = Duration::from_millis(25);
/// How long it waits then until no kernel runs. Everything is held back meanwhile.
const STOP_LIMIT: Duration = Duration::from_millis(5);
/// After an attempt that failed, none is made for so long at first, and then for twice as long each
/// time: what stands in its way often stays, and each attempt costs others up to both limits.
const FIRST_BACK_OFF: Duration = Duration::from_millis(200);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(10);
/// Unused modules that wait for another thread's quiet moment. When there are this many, a quiet
/// moment is requested to unload them.
const UNUSED_LIMIT: usize = 32;
/// Fewer unused modules than this are left for a later quiet moment: unloading modules one by one
/// would delay some client's launch each time.
const UNUSED_WORTH_UNLOADING: usize = UNUSED_LIMIT / 2;

/// The engines, as the gate sees them: they can hold long kernels back, and stop altogether.
pub(crate) trait LongWorkHolders: Send + Sync {
    /// How many engines there are.
    fn count(&self) -> usize;
    /// Asks each engine to begin no long kernel, and to send a message to `ready` when none of its
    /// own runs.
    fn hold_long_work(&self, ready: &Sender<()>, until: Until);
    /// Asks each engine that holds long kernels back, and runs none, to begin nothing at all, and
    /// to send a message to `ready` when no kernel of its own is in flight.
    fn stop_work(&self, ready: &Sender<()>);
    /// Lets each engine begin everything again.
    fn resume_long_work(&self);
    /// The clients whose work has run for longer than this.
    fn list_long_clients(&self, longer_than: Duration) -> BTreeSet<ClientId>;
}

/// Why the call that needed a quiet card was not made. The client goes on in another process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotQuiet {
    /// Work of these clients does not end, and all others have left.
    Occupied {
        /// The clients whose work does not end.
        by: BTreeSet<ClientId>,
    },
    /// A kernel has broken the context, and this process ends.
    Broken,
}

impl NotQuiet {
    /// The error for the call that was not made.
    pub(crate) fn into_error(self) -> DeviceError {
        match self {
            NotQuiet::Occupied { by } => DeviceError::LetGo(format!("work of clients {by:?} does not end")),
            NotQuiet::Broken => DeviceError::LetGo("a kernel has broken the context".into()),
        }
    }
}

/// What to do when work of these clients has run for too long. Returns true if all others have
/// left.
pub(crate) type OnOccupied = Box<dyn Fn(&BTreeSet<ClientId>) -> bool + Send + Sync>;

/// The clients that have stayed when all others left. `None` while all are here.
///
/// Several threads may find at the same time that others have to leave: one that waits for a quiet
/// card, one that waits for the side stream, one that waits for its turn to print. They do it one
/// after the other. The lock is held until all have left, and no other lock of the gate is taken
/// under it.
#[derive(Default)]
struct Stayers(Mutex<Option<BTreeSet<ClientId>>>);

impl Stayers {
    /// Has all others leave those of `by` that are here. `leave` returns false if nobody can.
    /// Returns true if all others have left, now or before.
    fn leave_beside(&self, by: &BTreeSet<ClientId>, leave: impl FnOnce(&BTreeSet<ClientId>) -> bool) -> bool {
        let mut stayers = self.0.lock();
        let (by, have_left) = match &*stayers {
            // `by` may be older than their departure. The server would take a client that is named
            // here from the executor to which it has gone.
            Some(here) => (by & here, here.is_subset(by)),
            None => (by.clone(), false),
        };
        if by.is_empty() {
            return false;
        }
        // Also where all have left: one that could not leave then may be able to now.
        let leaves = leave(&by);
        if leaves {
            *stayers = Some(by);
        }
        leaves || have_left
    }
}

/// The gate of a card.
///
/// Lock order: `requests` (2), then `stayers`, then `stops` and `unused` (8). The driver is called
/// under `requests`.
pub(crate) struct Gate {
    driver: Arc<Driver>,
    engines: Arc<dyn LongWorkHolders>,
    helpers: Arc<Helpers>,
    counters: Arc<Counters>,
    /// Held by the thread that has asked for quiet: there is one request at a time.
    requests: Mutex<()>,
    /// When the card may be stopped again.
    stops: Mutex<BackOff>,
    /// Modules that no client uses, to be unloaded at a quiet moment.
    unused: Mutex<Vec<Module>>,
    /// How long a quiet card is waited for before clients are moved.
    patience: Duration,
    /// How long the end of a fault's inquiry may take.
    fault_wait: Duration,
    on_occupied: OnceLock<OnOccupied>,
    stayers: Stayers,
}

/// When the card may be stopped again after attempts that failed.
#[derive(Debug, Default)]
struct BackOff {
    /// Not before; at any time without one.
    until: Option<Instant>,
    /// How long the last wait was.
    wait: Duration,
}

impl BackOff {
    fn is_over(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now >= until)
    }

    /// Notes an attempt. Returns how long none is made after one that failed.
    fn note(&mut self, succeeded: bool, now: Instant) -> Option<Duration> {
        if succeeded {
            *self = BackOff::default();
            return None;
        }
        self.wait = (self.wait * 2).clamp(FIRST_BACK_OFF, LONGEST_BACK_OFF);
        self.until = Some(now + self.wait);
        Some(self.wait)
    }
}

/// Ends a request when it is dropped, after a panic too.
struct Resume<'a>(&'a dyn LongWorkHolders);

impl Drop for Resume<'_> {
    fn drop(&mut self) {
        self.0.resume_long_work();
    }
}

impl Gate {
    /// The gate for these engines' card.
    pub(crate) fn new(driver: Arc<Driver>, engines: Arc<dyn LongWorkHolders>, helpers: Arc<Helpers>, counters: Arc<Counters>, settings: &Settings) -> Gate {
        Gate {
            driver,
            engines,
            helpers,
            counters,
            requests: Mutex::default(),
            stops: Mutex::default(),
            unused: Mutex::default(),
            patience: settings.long_kernel,
            fault_wait: settings.fault_wait,
            on_occupied: OnceLock::new(),
            stayers: Stayers::default(),
        }
    }

    /// Sets what to do when a quiet card does not come in time.
    pub(crate) fn set_on_occupied(&self, act: OnOccupied) {
        let _ = self.on_occupied.set(act);
    }

    /// The card's driver.
    pub(crate) fn driver(&self) -> &Arc<Driver> {
        &self.driver
    }

    /// Waits until no long kernel runs, and runs `act`. No long kernel begins until `act` returns.
    /// Unused modules are unloaded on the same occasion. The wait is counted in `counts`, those of
    /// the client that `act` is for; without them, `act` can wait for another occasion.
    ///
    /// An engine thread must not call this: the engines have to answer the request.
    ///
    /// # Errors
    /// [`NotQuiet`] if work of a client does not end, and the client that `act` is for has left for
    /// another process with all others; also if a fault was announced, and the process has not
    /// ended for a while. Where they cannot leave, `act` is run after [`QUIET_WAIT_LIMIT`] all the
    /// same, and for a client whose own work does not end.
    pub(crate) fn run_quietly<T>(&self, counts: Option<&ClientCounts>, act: impl FnOnce() -> T) -> Result<T, NotQuiet> {
        let begun = Instant::now();
        let request = self.requests.lock();
        let (ready, answers) = crossbeam_channel::bounded(self.engines.count());
        let resume = Resume(&*self.engines);
        self.engines.hold_long_work(&ready, Until::NothingLong);
        self.counters.quiets.fetch_add(1, Ordering::Relaxed);
        let asked = Instant::now();
        let (soon, until) = (asked + self.patience.min(QUIET_WAIT_LIMIT), asked + QUIET_WAIT_LIMIT);
        let mut missing = self.engines.count();
        let mut wait = |until: Instant| {
            while missing > 0 && !is_fault_announced() && Instant::now() < until {
                missing -= usize::from(answers.recv_deadline(until.min(Instant::now() + LOOK_AROUND)).is_ok());
            }
            missing == 0
        };
        // Before a fault is announced, a card that stands still looks like one with a long kernel:
        // then all others may leave, which does them no harm.
        if !wait(soon) && !is_fault_announced() {
            let by = self.engines.list_long_clients(self.patience / 2);
            let have_left = !by.is_empty() && self.leave_beside(&by);
            if have_left && counts.is_none_or(|counts| !by.contains(&counts.client)) {
                return Err(NotQuiet::Occupied { by });
            }
        }
        let is_quiet = wait(until);
        if is_fault_announced() {
            // Nobody else waits for this thread meanwhile.
            drop((resume, request));
            if counts.is_some() {
                std::thread::sleep(self.fault_wait + FAULT_WAIT_MARGIN);
            }
            return Err(NotQuiet::Broken);
        }
        if !is_quiet {
            // Who was thought to run for long may have ended: then nobody else waits with those
            // whose work does not.
            let by = self.engines.list_long_clients(self.patience / 2);
            let have_left = !by.is_empty() && self.leave_beside(&by);
            if have_left && counts.is_none_or(|counts| !by.contains(&counts.client)) {
                return Err(NotQuiet::Occupied { by });
            }
            self.counters.quiet_timeouts.fetch_add(1, Ordering::Relaxed);
            tracing::warn!("a kernel runs for longer than {} ms: loading a module stops all clients until it ends", QUIET_WAIT_LIMIT.as_millis());
        }
        if let Some(counts) = counts {
            counts.count_quiet(begun.elapsed());
        }
        for module in self.take_unused() {
            self.driver.unload_module(module);
        }
        Ok(act())
    }

    /// True if the card may be stopped now: the last attempt did not fail, or long ago.
    pub(crate) fn may_stop(&self) -> bool {
        self.stops.lock().is_over(Instant::now())
    }

    /// Runs `act` while no kernel of any client is on the card, and nothing begins; not at all
    /// (`None`) if that does not come soon, another thread has asked for quiet, a fault was
    /// announced, or an attempt has failed lately.
    ///
    /// An engine thread must not call this: the engines have to answer.
    pub(crate) fn run_while_stopped<T>(&self, act: impl FnOnce() -> T) -> Option<T> {
        let request = self.requests.try_lock()?;
        if !self.may_stop() {
            return None;
        }
        let resume = Resume(&*self.engines);
        let is_still = self.holds(&|ready| self.engines.hold_long_work(ready, Until::NothingKnownLong), SHORT_QUIET_LIMIT)
            && self.holds(&|ready| self.engines.stop_work(ready), STOP_LIMIT);
        let done = (is_still && !is_fault_announced()).then(act);
        drop((resume, request));
        let wait = self.stops.lock().note(done.is_some(), Instant::now());
        if let Some(wait) = wait {
            self.counters.failed_stops.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(?wait, "the card did not become still soon enough: no chain is made for a while");
        }
        done
    }

    /// Runs `act` while no kernel runs that is long, or has never ended; not at all (`None`) if
    /// that does not come soon, or a fault was announced. Nobody leaves for it.
    ///
    /// An engine thread must not call this: the engines have to answer.
    pub(crate) fn run_if_quiet<T>(&self, act: impl FnOnce() -> T) -> Option<T> {
        let _request = self.requests.try_lock_for(SHORT_QUIET_LIMIT)?;
        let _resume = Resume(&*self.engines);
        let is_quiet = self.holds(&|ready| self.engines.hold_long_work(ready, Until::NothingKnownLong), SHORT_QUIET_LIMIT);
        (is_quiet && !is_fault_announced()).then(act)
    }

    /// Asks all engines for something. True if all have answered in time, and no fault was
    /// announced before.
    fn holds(&self, ask: &dyn Fn(&Sender<()>), limit: Duration) -> bool {
        let (ready, answers) = crossbeam_channel::bounded(self.engines.count());
        ask(&ready);
        let until = Instant::now() + limit;
        (0..self.engines.count()).all(|_| !is_fault_announced() && answers.recv_deadline(until).is_ok())
    }

    /// How long others wait until the clients are left alone whose work does not end.
    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// Has all others leave these clients. Returns false if they cannot. An engine thread must not
    /// call this: the engines have to answer.
    pub(crate) fn leave_beside(&self, by: &BTreeSet<ClientId>) -> bool {
        self.stayers.leave_beside(by, |by| self.on_occupied.get().is_some_and(|act| act(by)))
    }

    /// Has all others leave the clients whose work has run for long, because something of our own
    /// does not end beside it. Returns false if there are none, or nobody can leave.
    pub(crate) fn leave_where_stuck(&self) -> bool {
        let by = self.engines.list_long_clients(self.patience / 2);
        !by.is_empty() && self.leave_beside(&by)
    }

    /// The unused modules, if there are enough to unload them now.
    fn take_unused(&self) -> Vec<Module> {
        let mut unused = self.unused.lock();
        if unused.len() >= UNUSED_WORTH_UNLOADING { std::mem::take(&mut *unused) } else { Vec::new() }
    }

    /// Takes a module that no client uses any more. It is unloaded when the card is quiet.
    pub(crate) fn unload(self: &Arc<Self>, module: Module) {
        let mut unused = self.unused.lock();
        unused.push(module);
        if unused.len() == UNUSED_LIMIT {
            let gate = self.clone();
            self.helpers.run(move || drop(gate.run_quietly(None, || ())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_has_left_is_not_named_among_those_that_stay() {
        let stayers = Stayers::default();
        let mut named = Vec::new();
        let mut leave = |by: &[ClientId], can_leave: bool| {
            stayers.leave_beside(&by.iter().copied().collect(), |by| {
                named.push(by.iter().copied().collect::<Vec<_>>());
                can_leave
            })
        };
        assert!(!leave(&[1], false), "nobody could leave");
        assert!(leave(&[1, 2], true));
        assert!(leave(&[1, 2, 3], false), "client 3 has left, and so have all others");
        assert!(!leave(&[1], false), "client 2 could not leave");
        assert!(leave(&[1, 3], true), "client 2 leaves, too");
        assert!(!leave(&[3], true), "it is not here");
        assert_eq!(named, [vec![1], vec![1, 2], vec![1, 2], vec![1], vec![1]]);
    }

    #[test]
    fn attempts_that_fail_become_rare_and_one_that_does_not_ends_that() {
        let (mut stops, now) = (BackOff::default(), Instant::now());
        assert!(stops.is_over(now));
        assert_eq!(stops.note(false, now), Some(FIRST_BACK_OFF));
        assert!(!stops.is_over(now) && stops.is_over(now + FIRST_BACK_OFF));
        assert_eq!(stops.note(false, now), Some(FIRST_BACK_OFF * 2));
        for _ in 0..10 {
            stops.note(false, now);
        }
        assert_eq!(stops.note(false, now), Some(LONGEST_BACK_OFF));
        assert_eq!(stops.note(true, now), None);
        assert!(stops.is_over(now));
        assert_eq!(stops.note(false, now), Some(FIRST_BACK_OFF));
    }
}
