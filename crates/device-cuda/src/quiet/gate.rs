//! The gate that threads pass to make calls on a quiet card.

use crate::counters::{ClientCounts, Counters};
use crate::driver::{Driver, Module};
use crate::helpers::Helpers;
use crossbeam_channel::Sender;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a thread waits for a quiet card before it goes on all the same.
const QUIET_WAIT_LIMIT: Duration = Duration::from_secs(1);
/// Unused modules that wait for another thread's quiet moment. When there are this many, a quiet
/// moment is requested to unload them.
const UNUSED_LIMIT: usize = 32;
/// Fewer unused modules than this are left for a later quiet moment: unloading modules one by one
/// would delay some client's launch each time.
const UNUSED_WORTH_UNLOADING: usize = UNUSED_LIMIT / 2;

/// The engines, as the gate sees them: they can hold long kernels back.
pub(crate) trait LongWorkHolders: Send + Sync {
    /// How many engines there are.
    fn count(&self) -> usize;
    /// Asks each engine to begin no long kernel, and to send a message to `ready` when none of its
    /// own runs.
    fn hold_long_work(&self, ready: &Sender<()>);
    /// Lets each engine begin long kernels again.
    fn resume_long_work(&self);
}

/// The gate of a card.
///
/// Lock order: `requests` (2), then `unused` (8). The driver is called under `requests`.
pub(crate) struct Gate {
    driver: Arc<Driver>,
    engines: Arc<dyn LongWorkHolders>,
    helpers: Arc<Helpers>,
    counters: Arc<Counters>,
    /// Held by the thread that has asked for quiet: there is one request at a time.
    requests: Mutex<()>,
    /// Modules that no client uses, to be unloaded at a quiet moment.
    unused: Mutex<Vec<Module>>,
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
    pub(crate) fn new(driver: Arc<Driver>, engines: Arc<dyn LongWorkHolders>, helpers: Arc<Helpers>, counters: Arc<Counters>) -> Gate {
        Gate { driver, engines, helpers, counters, requests: Mutex::default(), unused: Mutex::default() }
    }

    /// The card's driver.
    pub(crate) fn driver(&self) -> &Arc<Driver> {
        &self.driver
    }

    /// Waits until no long kernel runs, at most [`QUIET_WAIT_LIMIT`], and runs `act`. No long
    /// kernel begins until `act` returns. Unused modules are unloaded on the same occasion. The
    /// wait is counted in `counts`, those of the client that `act` is for.
    ///
    /// An engine thread must not call this: the engines have to answer the request.
    pub(crate) fn run_quietly<T>(&self, counts: Option<&ClientCounts>, act: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let _request = self.requests.lock();
        let (ready, answers) = crossbeam_channel::bounded(self.engines.count());
        let _resume = Resume(&*self.engines);
        self.engines.hold_long_work(&ready);
        self.counters.quiets.fetch_add(1, Ordering::Relaxed);
        let until = Instant::now() + QUIET_WAIT_LIMIT;
        if !(0..self.engines.count()).all(|_| answers.recv_deadline(until).is_ok()) {
            self.counters.quiet_timeouts.fetch_add(1, Ordering::Relaxed);
            tracing::warn!("a kernel runs for longer than {} ms: loading a module stops all clients until it ends", QUIET_WAIT_LIMIT.as_millis());
        }
        if let Some(counts) = counts {
            counts.count_quiet(begun.elapsed());
        }
        for module in self.take_unused() {
            self.driver.unload_module(module);
        }
        act()
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
            self.helpers.run(move || gate.run_quietly(None, || ()));
        }
    }
}
