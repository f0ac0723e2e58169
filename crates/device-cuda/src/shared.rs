//! What the card, its engines and the helper thread share: mailboxes, counters, and the verdict on a broken context.

use crate::Settings;
use crate::client::{Client, Counts};
use crate::driver::{Driver, Function, Module};
use crate::engine::Message;
use crate::fault::CudaError;
use crate::work::Limits;
use cumux_device::{ClientId, Fault, Sink};
use cumux_wire::result;
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// For the helper thread; `None` ends it.
pub(crate) type Job = Option<Box<dyn FnOnce() + Send>>;

/// Messages for one engine. Sending never waits for the engine.
#[derive(Default)]
pub(crate) struct Inbox {
    queue: Mutex<Vec<Message>>,
    waiting: AtomicUsize,
    sleeping: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Inbox {
    /// The calling thread is the one that reads.
    pub(crate) fn mine(&self) {
        let _ = self.thread.set(std::thread::current());
    }

    pub(crate) fn send(&self, message: Message) {
        self.send_all([message]);
    }

    pub(crate) fn send_all(&self, messages: impl IntoIterator<Item = Message>) {
        {
            let mut queue = self.queue.lock();
            queue.extend(messages);
            self.waiting.store(queue.len(), Ordering::Release);
        }
        if self.sleeping.swap(false, Ordering::SeqCst)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// Takes all messages into an empty list.
    pub(crate) fn take(&self, into: &mut Vec<Message>) {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut queue = self.queue.lock();
        std::mem::swap(&mut *queue, into);
        self.waiting.store(0, Ordering::Release);
    }

    /// Sleeps until a message comes, or for this long.
    pub(crate) fn sleep(&self, most: Option<Duration>) {
        self.sleeping.store(true, Ordering::SeqCst);
        // A sender that did not see the flag has put its message before this look.
        if self.queue.lock().is_empty() {
            match most {
                Some(most) => std::thread::park_timeout(most),
                None => std::thread::park(),
            }
        }
        self.sleeping.store(false, Ordering::SeqCst);
    }
}

/// How long somebody waits for the card to be quiet before what has to be done is done all the same.
const QUIET_PATIENCE: Duration = Duration::from_secs(1);
/// Unused modules that are kept for a quiet moment that comes by itself.
const UNUSED: usize = 32;

/// Numbers for people and benchmarks.
#[derive(Debug, Default)]
pub struct Counters {
    /// Kernels given to the driver.
    pub kernels: AtomicU64,
    /// Those of them that went in chains.
    pub coalesced: AtomicU64,
    pub chains: AtomicU64,
    /// Nodes of chains that had to be set before a launch.
    pub nodes_set: AtomicU64,
    /// Pieces of work that waited until memory was registered.
    pub registrations: AtomicU64,
    /// Times that something waited for all long kernels to end, and times that it did not wait any longer.
    pub quiets: AtomicU64,
    pub unquiets: AtomicU64,
}

/// A client that had kernels under way when the context broke.
#[derive(Debug, Clone, Default)]
pub(crate) struct Suspect {
    pub kernels: String,
    /// One of them can have done what was reported.
    pub able: bool,
}

#[derive(Default)]
struct Verdict {
    arrived: usize,
    reported: usize,
    suspects: BTreeMap<ClientId, Suspect>,
}

pub(crate) struct Shared {
    pub driver: Arc<Driver>,
    pub sink: Arc<dyn Sink>,
    pub limits: Limits,
    pub coalesces: bool,
    /// How long an engine looks before it naps or sleeps.
    pub spin_ns: u64,
    pub inboxes: Vec<Inbox>,
    pub counters: Counters,
    /// The kernel at the end of chains: writes 1 to its parameter.
    pub mark: Function,
    /// Modules that nobody uses, to be unloaded at a quiet moment.
    unused: Mutex<Vec<Module>>,
    /// One asks for quiet at a time.
    quiet: Mutex<()>,
    helper: crossbeam_channel::Sender<Job>,
    printer: crossbeam_channel::Sender<Job>,
    broken: Mutex<Option<(CudaError, String)>>,
    is_lost: AtomicBool,
    verdict: Mutex<Verdict>,
    changed: Condvar,
}

impl Shared {
    pub(crate) fn new(
        driver: Arc<Driver>,
        sink: Arc<dyn Sink>,
        limits: Limits,
        settings: Settings,
        mark: Function,
        [helper, printer]: [crossbeam_channel::Sender<Job>; 2],
    ) -> Shared {
        let Settings { engines, coalesce: coalesces, spin_us, .. } = settings;
        Shared {
            driver,
            sink,
            limits,
            coalesces,
            spin_ns: spin_us * 1_000,
            inboxes: (0..engines).map(|_| Inbox::default()).collect(),
            counters: Counters::default(),
            mark,
            unused: Mutex::default(),
            quiet: Mutex::default(),
            helper,
            printer,
            broken: Mutex::new(None),
            is_lost: AtomicBool::new(false),
            verdict: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Something slow, for the helper thread.
    pub(crate) fn help(&self, job: impl FnOnce() + Send + 'static) {
        // Refused only when the card is being closed.
        let _ = self.helper.send(Some(Box::new(job)));
    }

    /// Getting device printf out of the driver: may wait until running kernels end, so it has a thread of its own.
    pub(crate) fn print(&self, job: impl FnOnce() + Send + 'static) {
        let _ = self.printer.send(Some(Box::new(job)));
    }

    /// The helpers end when they have done what they were given.
    pub(crate) fn close_helpers(&self) {
        let _ = (self.helper.send(None), self.printer.send(None));
    }

    /// Does something for which the driver waits until running kernels have ended, holding the lock that launches need: at a moment when nothing long runs,
    /// and nothing long begins meanwhile. Not for an engine's thread. Modules that nobody uses are unloaded on the same occasion.
    /// The wait is counted for the client whose `counts` are given.
    pub(crate) fn quietly<T>(&self, counts: Option<&Counts>, act: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let _turn = self.quiet.lock();
        let (asker, answers) = crossbeam_channel::bounded(self.inboxes.len());
        for inbox in &self.inboxes {
            inbox.send(Message::Quiet(asker.clone()));
        }
        self.counters.quiets.fetch_add(1, Ordering::Relaxed);
        let until = Instant::now() + QUIET_PATIENCE;
        if !self.inboxes.iter().all(|_| answers.recv_deadline(until).is_ok()) {
            self.counters.unquiets.fetch_add(1, Ordering::Relaxed);
            tracing::warn!("a kernel runs for longer than {} ms: loading a module stops all clients until it ends", QUIET_PATIENCE.as_millis());
        }
        if let Some(counts) = counts {
            counts.quiet(begun.elapsed());
        }
        // Many at once: each alone would delay somebody's launch.
        let unused = Some(self.unused.lock()).filter(|unused| unused.len() >= UNUSED / 2).map(|mut unused| std::mem::take(&mut *unused));
        for module in unused.into_iter().flatten() {
            self.driver.unload_module(module);
        }
        let done = act();
        for inbox in &self.inboxes {
            inbox.send(Message::Go);
        }
        done
    }

    /// Nobody uses the module any more. It goes when the card is quiet.
    pub(crate) fn unload(self: &Arc<Self>, module: Module) {
        let mut unused = self.unused.lock();
        unused.push(module);
        if unused.len() == UNUSED {
            let shared = self.clone();
            self.help(move || shared.quietly(None, || ()));
        }
    }

    /// Registers memory of the client's window and tells its engine.
    pub(crate) fn register(self: &Arc<Self>, client: &Arc<Client>, address: u64, bytes: u64) {
        self.counters.registrations.fetch_add(1, Ordering::Relaxed);
        client.counts.registrations.fetch_add(1, Ordering::Relaxed);
        let (shared, client) = (self.clone(), client.clone());
        self.help(move || {
            let window = client.window.read().clone();
            let done = window.map_or(Ok(()), |window| window.use_bytes(address, bytes));
            let fault = done.err().map(|error| Fault { result: result::OUT_OF_MEMORY, text: error.to_string() });
            shared.inboxes[client.engine].send(Message::Registered(client.id, fault));
        });
    }

    // ---- the end

    /// Why the device is lost, if it is.
    pub(crate) fn lost(&self) -> Option<String> {
        if !self.is_lost.load(Ordering::Acquire) {
            return None;
        }
        self.broken.lock().as_ref().map(|(_, text)| text.clone())
    }

    pub(crate) fn broken(&self) -> Option<CudaError> {
        self.broken.lock().as_ref().map(|(code, _)| *code)
    }

    /// The driver has reported an error of the whole context. The other engines are told.
    pub(crate) fn declare_broken(&self, code: CudaError, engine: usize) {
        let mut broken = self.broken.lock();
        if broken.is_some() {
            return;
        }
        let text = self.driver.describe_numbered(code);
        tracing::error!("the context is broken: {text}");
        *broken = Some((code, text));
        drop(broken);
        self.is_lost.store(true, Ordering::Release);
        for (number, inbox) in self.inboxes.iter().enumerate() {
            if number != engine {
                inbox.send(Message::Look);
            }
        }
    }

    /// Adds an engine's suspects and returns those of all engines, when all have come (or one does not answer).
    pub(crate) fn gather(&self, suspects: HashMap<ClientId, Suspect>) -> BTreeMap<ClientId, Suspect> {
        let until = Instant::now() + Duration::from_millis(500);
        let mut verdict = self.verdict.lock();
        verdict.suspects.extend(suspects);
        verdict.arrived += 1;
        self.changed.notify_all();
        while verdict.arrived < self.inboxes.len() {
            if self.changed.wait_until(&mut verdict, until).timed_out() {
                break;
            }
        }
        verdict.suspects.clone()
    }

    /// An engine has reported its clients' ends. The last one tells the sink.
    pub(crate) fn reported(&self) {
        let mut verdict = self.verdict.lock();
        verdict.reported += 1;
        if verdict.reported == self.inboxes.len() {
            drop(verdict);
            let why = self.lost().unwrap_or_default();
            self.sink.lost(&why, true);
        }
    }

    /// The device is given up although the driver reports nothing: nobody is to blame but who the text names.
    pub(crate) fn give_up(&self, why: String) {
        tracing::error!("the device is given up: {why}");
        let mut broken = self.broken.lock();
        if broken.is_none() {
            *broken = Some((CudaError::LAUNCH_TIMEOUT, why.clone()));
            drop(broken);
            self.is_lost.store(true, Ordering::Release);
            // Whose kernels run at this moment nobody has asked.
            self.sink.lost(&why, false);
        }
    }
}
