//! The one way to a quiet card, for whoever loads and unloads modules.

use crate::counters::{ClientCounts, Counters};
use crate::driver::{Driver, Module};
use crate::helpers::Helpers;
use crossbeam_channel::Sender;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long somebody waits for the card to be quiet before it goes on all the same.
const QUIET_WAIT_LIMIT: Duration = Duration::from_secs(1);
/// Unused modules that are kept for a quiet moment that comes by itself; with so many, one is made.
const UNUSED_LIMIT: usize = 32;
/// At a quiet moment, fewer unused modules than this are left for a later one: unloading each alone
/// would delay somebody's launch every time.
const UNUSED_WORTH_UNLOADING: usize = UNUSED_LIMIT / 2;

/// The engines, as those who can hold long work back.
pub(crate) trait LongWorkHolders: Send + Sync {
    /// How many engines there are.
    fn count(&self) -> usize;
    /// Asks each engine to begin nothing long, and to answer when nothing long runs in it.
    fn hold_long_work(&self, ready: &Sender<()>);
    /// Lets each engine begin long work again.
    fn resume_long_work(&self);
}

/// Makes moments at which no long kernel runs.
///
/// Lock order: `turn`, then `unused`. The driver is called under both; an engine's thread must not
/// come here, because an engine has to answer.
pub(crate) struct Gate {
    driver: Arc<Driver>,
    engines: Arc<dyn LongWorkHolders>,
    helpers: Arc<Helpers>,
    counters: Arc<Counters>,
    /// One asks for quiet at a time.
    turn: Mutex<()>,
    /// Modules that nobody uses, to be unloaded at a quiet moment.
    unused: Mutex<Vec<Module>>,
}

/// Lets the engines go on when it is dropped, by a panic too.
struct Resume<'a>(&'a dyn LongWorkHolders);

impl Drop for Resume<'_> {
    fn drop(&mut self) {
        self.0.resume_long_work();
    }
}

impl Gate {
    /// A gate before these engines.
    pub(crate) fn new(driver: Arc<Driver>, engines: Arc<dyn LongWorkHolders>, helpers: Arc<Helpers>, counters: Arc<Counters>) -> Gate {
        Gate { driver, engines, helpers, counters, turn: Mutex::default(), unused: Mutex::default() }
    }

    /// The driver of the card behind the gate.
    pub(crate) fn driver(&self) -> &Arc<Driver> {
        &self.driver
    }

    /// Runs `act` when no long kernel runs, or after [`QUIET_WAIT_LIMIT`]; no long kernel begins
    /// until it is over. Not for an engine's thread. Modules that nobody uses are unloaded on the
    /// same occasion. The wait is counted for the client whose `counts` are given.
    pub(crate) fn run_quietly<T>(&self, counts: Option<&ClientCounts>, act: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let _turn = self.turn.lock();
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

    /// The unused modules, if they are worth unloading now.
    fn take_unused(&self) -> Vec<Module> {
        let mut unused = self.unused.lock();
        if unused.len() >= UNUSED_WORTH_UNLOADING { std::mem::take(&mut *unused) } else { Vec::new() }
    }

    /// Nobody uses the module any more. It goes when the card is quiet.
    pub(crate) fn unload(self: &Arc<Self>, module: Module) {
        let mut unused = self.unused.lock();
        unused.push(module);
        if unused.len() == UNUSED_LIMIT {
            let gate = self.clone();
            self.helpers.run(move || gate.run_quietly(None, || ()));
        }
    }
}
