//! A card: one GPU, opened, with its engine and helper threads. The device interface is a file for
//! each of its traits.

mod clients;
mod memory;
mod modules;
mod partitions;
mod queues;
mod takeover;
mod textures;

use self::queues::Gone;
use crate::context::{
    ClientModule, ClientStream, ContextClient, Discards, ExpectedWindows, Extents, LoadedModule, MemoryKind, ModuleLibrary, OwnKernels, Partition, Partitions,
    PinnedWindow, Sharing, VariablesHome, find_sms, measure_latency, read_facts,
};
use crate::counters::Counters;
use crate::driver::{CapturedOutput, CardAddress, Driver, Dumps, MappedDump, listen_to_driver, stop_watching_requests, watch_requests};
use crate::engine::{DueChains, Engine, Mailboxes, Message, Runner, SPARED_WAITS, Seat, Shared, put_down, watch_engines};
use crate::fault::{Dump, DumpError, Loss, Membership, Notice, Watch, dump, read_line, remedy};
use crate::helpers::Helpers;
use crate::issue::PreparedChains;
use crate::quiet::Gate;
use crate::settings::Settings;
use crate::track::{FillingKernels, Lanes, Motion, Printing, StandingWork};
use cumux_abi::CUlimit;
use cumux_device::{ClientId, Device, DeviceError, DeviceFacts, GlobalInfo, ModuleId, ModuleInfo, Peer, Sink, StreamId};
use cumux_ranges::{Access, AllowedRange, Permissions};
use cumux_wire::limits::LaunchLimits;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// An engine without progress for so many nanoseconds queries a driver stream, to notice errors of
/// the context and lost fences.
const QUERY_NS: u64 = 1_000_000;
/// The same where the driver announces faults. A call of the driver that meets a fault may block
/// until it is handled, so there are few.
const RARE_QUERY_NS: u64 = 20_000_000;

/// How much longer than the work of others the driver is kept from ending what runs after a fault.
const HOLD_MARGIN: Duration = Duration::from_secs(10);

/// Has the engines notified when the driver announces a fault.
fn watch_faults(watch: &Arc<Watch>, mailboxes: &Arc<Mailboxes>, sink: &Arc<dyn Sink>) -> std::io::Result<()> {
    let (watch, mailboxes, sink) = (watch.clone(), mailboxes.clone(), sink.clone());
    listen_to_driver(move |line| match watch.note(read_line(line)) {
        Notice::Nothing => {}
        Notice::FaultBegins => mailboxes.iter().for_each(|mailbox| mailbox.send(Message::FaultBegins)),
        Notice::FaultNoticed => sink.fault_noticed(),
        Notice::ReadDump => watch.set_dump(read_dump()),
        Notice::Log(text) => tracing::warn!("the driver says: {text}"),
    })
}

/// The core dump of this process. It is read once for all cards, by the thread that reads the
/// driver's lines.
fn read_dump() -> Result<Arc<Dump>, DumpError> {
    static DUMP: OnceLock<Result<Arc<Dump>, DumpError>> = OnceLock::new();
    let read = || {
        let mapped = MappedDump::map().map_err(|error| DumpError::new(error.to_string()))?;
        if let Some(mapped) = &mapped {
            tracing::info!(bytes = mapped.as_bytes().len(), "the core dump is written");
        }
        let begun = Instant::now();
        let dump = dump::read(mapped.as_ref().map_or(&[], MappedDump::as_bytes)).map(Arc::new);
        tracing::debug!(took = ?begun.elapsed(), "the core dump is read");
        dump
    };
    DUMP.get_or_init(read).clone()
}

/// One GPU, opened. Use it through [`cumux_device::Device`].
pub struct Card {
    shared: Arc<Shared>,
    facts: DeviceFacts,
    extents: Extents,
    expected_windows: ExpectedWindows,
    library: ModuleLibrary,
    partitions: Partitions,
    /// The open clients. Lock 3 of the crate's order; the locks of [`ContextClient`] follow.
    clients: RwLock<HashMap<ClientId, Arc<ContextClient>>>,
    /// The clients' streams. Lock 8 of the crate's order, held alone.
    streams: RwLock<HashMap<StreamId, Arc<ClientStream>>>,
    /// The variables of modules, which lie outside of the arena. Lock 8 of the crate's order, held
    /// alone.
    variables: RwLock<Permissions>,
    /// The largest value of each limit that a client has set. Limits belong to the whole context.
    /// Lock 1 of the crate's order; the driver is called under it.
    limits: Mutex<HashMap<CUlimit, u64>>,
    /// Arrays and objects that nobody uses any more.
    discards: Arc<Discards>,
    /// How many streams have gone, for threads that remember some.
    gone: Gone,
    drain: Duration,
    /// Where a lane finds the engine that it may carry, by the engines' numbers.
    seats: Vec<Arc<Seat<Runner>>>,
    /// True if lanes may carry engines.
    carried: bool,
    /// Keeps what the driver prints.
    _output: CapturedOutput,
    engine_threads: Vec<JoinHandle<()>>,
    helper_threads: Vec<JoinHandle<()>>,
}

impl fmt::Debug for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Card").field("facts", &self.facts.id).field("lost", &self.shared.loss.why()).finish_non_exhaustive()
    }
}

/// Whether others have been asked to leave those whose work has run for long.
enum Asked {
    No,
    UnderWay,
    /// What became of it, until somebody looks.
    Over {
        have_left: bool,
    },
}

/// Has all others leave the clients whose work has run for long, by a thread of its own, one at a
/// time: whoever waits may be an intake thread, and others leave only when those have come round.
/// What it returns says whether they have left, once that is known.
fn leave_where_stuck(gate: Arc<Gate>) -> impl Fn() -> bool {
    let asked = Arc::new(Mutex::new(Asked::No));
    move || {
        let mut state = asked.lock();
        match *state {
            Asked::UnderWay => return false,
            Asked::Over { have_left: true } => {
                *state = Asked::No;
                return true;
            }
            Asked::Over { have_left: false } | Asked::No => {}
        }
        let (gate, over) = (gate.clone(), asked.clone());
        let leave = move || {
            let have_left = gate.leave_where_stuck();
            *over.lock() = Asked::Over { have_left };
        };
        // Without a thread it is tried again.
        let started = std::thread::Builder::new().name("cuda-stuck".into()).spawn(leave).is_ok();
        *state = if started { Asked::UnderWay } else { Asked::No };
        false
    }
}

impl Card {
    /// Opens card `ordinal`: makes its context and starts the threads. The card reports completed
    /// work to `sink`.
    ///
    /// # Errors
    /// A sentence with a remedy: there is no driver, it is too old, or the card is in use or full.
    pub fn open(ordinal: u32, sink: Arc<dyn Sink>, settings: Settings) -> Result<Arc<Card>, DeviceError> {
        let thread_failed = |error: std::io::Error| DeviceError::System(format!("a thread of cuda:{ordinal} cannot be started: {error}"));
        let (watch, mailboxes) = (Arc::new(Watch::default()), Arc::new(Mailboxes::new(settings.engines)));
        if settings.core_dumps {
            watch_faults(&watch, &mailboxes, &sink).map_err(thread_failed)?;
        }
        let dumps = if settings.core_dumps { Dumps::On } else { Dumps::Off };
        let sms = find_sms(ordinal, dumps);
        let driver = Driver::open(ordinal, dumps, settings.engines)?;
        driver.begin_small();
        let facts = read_facts(driver.device(), ordinal);
        let extents = Extents::new(&driver)?;
        let (helpers, helper_threads) = Helpers::start(ordinal).map_err(thread_failed)?;
        let (helpers, counters) = (Arc::new(helpers), Arc::new(Counters::of_engines(settings.engines)));
        let gate = Arc::new(Gate::new(driver.clone(), mailboxes.clone(), helpers.clone(), counters.clone(), &settings));
        let own_kernels = OwnKernels::load(&gate)?;
        let partitions = Partitions::of(&driver, sms);
        let output = CapturedOutput::begin();
        let latency_ns = measure_latency(&driver, &own_kernels);
        let to_wake = mailboxes.clone();
        let printing = Printing::new(Arc::new(move |client| to_wake.send_to_engine_of(client, Message::TurnToPrint(client))));
        let shared = Arc::new(Shared {
            driver: driver.clone(),
            sink,
            opened: Instant::now(),
            latency_ns,
            limits: LaunchLimits::of(&facts),
            coalesces: settings.coalesce,
            small_copies: settings.small_copies,
            biased_locks: settings.biased_locks,
            polling: settings.polling,
            gate,
            mailboxes,
            prepared: Arc::new(PreparedChains::new(settings.chains_ahead, counters.clone())),
            counters,
            own_kernels,
            helpers,
            printing,
            filling: FillingKernels::default(),
            lanes: Lanes::of_queues(driver.queues()?, settings.engines),
            standing: StandingWork::default(),
            motion: Motion::default(),
            due: DueChains::default(),
            loss: Loss::default(),
            watch,
            membership: Membership::begin(),
            spared: OnceLock::new(),
            fault_wait: settings.fault_wait,
            query_after_ns: if settings.core_dumps { RARE_QUERY_NS } else { QUERY_NS },
        });
        let mut card = Card {
            shared: shared.clone(),
            facts,
            extents,
            expected_windows: ExpectedWindows::default(),
            library: ModuleLibrary::new(settings.kernels_on_demand),
            partitions,
            clients: RwLock::default(),
            streams: RwLock::default(),
            variables: RwLock::default(),
            limits: Mutex::default(),
            discards: Arc::new(Discards::new(&driver, &shared.gate, &shared.helpers)),
            gone: Gone::default(),
            drain: settings.drain,
            seats: (0..settings.engines).map(|_| Arc::default()).collect(),
            carried: settings.carried,
            _output: output,
            engine_threads: Vec::new(),
            helper_threads,
        };
        let (sink, mailboxes, wait) = (shared.sink.clone(), shared.mailboxes.clone(), shared.fault_wait);
        shared.gate.set_on_occupied(Box::new(move |by| {
            let leave = sink.occupied(by);
            if leave {
                sink.let_go(by, mailboxes.evacuate(by, wait));
            }
            leave
        }));
        let gate = shared.gate.clone();
        card.extents.set_on_stuck(gate.patience(), Box::new(leave_where_stuck(gate)));
        for number in 0..settings.engines {
            let engine = Engine::new(&shared, number).map_err(|error| DeviceError::System(remedy::cannot_prepare(ordinal, &driver.describe(error), error)))?;
            let seat = card.seats[number].clone();
            let thread = std::thread::Builder::new().name(format!("cuda-{ordinal}-{number}")).spawn(move || engine.run(&seat)).map_err(thread_failed)?;
            card.engine_threads.push(thread);
        }
        watch_engines(&shared, ordinal, settings.engine_limit).map_err(thread_failed)?;
        if settings.core_dumps {
            // Longer than any work is waited for.
            watch_requests(settings.fault_wait * SPARED_WAITS + HOLD_MARGIN);
        }
        Ok(Arc::new(card))
    }

    /// The counters since the card was opened.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    // ---- lookups

    fn client(&self, client: ClientId) -> Result<Arc<ContextClient>, DeviceError> {
        self.clients.read().get(&client).cloned().ok_or_else(|| DeviceError::Invalid(format!("client {client} is not open")))
    }

    fn module(&self, client: ClientId, module: ModuleId) -> Result<Arc<ClientModule>, DeviceError> {
        let found = self.client(client)?.modules.read().get(&module).cloned();
        found.ok_or_else(|| DeviceError::Invalid(format!("client {client} has no module {module}")))
    }

    /// The pinned window that holds these bytes.
    fn window_at(&self, address: CardAddress, bytes: u64) -> Option<Arc<PinnedWindow>> {
        self.clients.read().values().find_map(|client| client.window.read().clone().filter(|window| window.contains(address, bytes)))
    }

    /// Has the bank of `__constant__` variables follow what was written outside of streams.
    fn forward_constants(&self, address: CardAddress, bytes: u64) -> Result<(), DeviceError> {
        let clients: Vec<Arc<ContextClient>> = self.clients.read().values().cloned().collect();
        let written = |client: &Arc<ContextClient>| client.constants.read().within(address, bytes).collect::<Vec<_>>();
        clients.iter().flat_map(written).try_for_each(|part| self.extents.copy(part.bank, part.copy, part.bytes))
    }

    fn kind_of_memory(&self, address: CardAddress, bytes: u64) -> MemoryKind {
        let is_variable = self.variables.read().translate(address, bytes, Access::Read).is_ok();
        if is_variable { MemoryKind::Variable } else { MemoryKind::Extent }
    }

    // ---- the loss of the card

    fn require_context(&self) -> Result<(), DeviceError> {
        self.shared.loss.why().map_or(Ok(()), |why| Err(DeviceError::Lost(why.to_owned())))
    }

    /// Checks an outcome that says that the card is lost. If the context still works, only this
    /// call has failed. Else the engines are notified, because they may not know of the loss yet.
    fn check_loss<T>(&self, outcome: Result<T, DeviceError>) -> Result<T, DeviceError> {
        let Err(DeviceError::Lost(text)) = outcome else { return outcome };
        if self.shared.loss.why().is_none() && self.extents.context_works() {
            return Err(DeviceError::System(text));
        }
        for mailbox in self.shared.mailboxes.iter() {
            mailbox.send(Message::CheckContext);
        }
        Err(DeviceError::Lost(text))
    }

    // ---- shares

    fn multiprocessors(&self) -> u32 {
        self.facts.multiprocessors()
    }

    /// Chooses a partition of this many SMs (0: all), out of the card's or those of `inside`.
    /// Returns `None` for all SMs of the card. `leaves` is the partition that the client gives up
    /// for it.
    fn choose_partition(&self, inside: Option<&Partition>, leaves: Option<&Partition>, multiprocessors: u32) -> Result<Option<Arc<Partition>>, DeviceError> {
        if inside.is_none() && (multiprocessors == 0 || multiprocessors >= self.multiprocessors()) {
            return Ok(None);
        }
        self.check_loss(self.partitions.choose(&self.shared.driver, inside, leaves, multiprocessors)).map(Some)
    }

    // ---- modules

    /// Adds a module that was loaded to a client.
    fn add_module(&self, client: &ContextClient, module: ModuleId, loaded: Arc<LoadedModule>) -> ModuleInfo {
        client.constants.write().add(&loaded.constants);
        for global in drivers_variables(&loaded) {
            // A shared module is known already.
            let variable = AllowedRange::new(global.address, global.bytes, true, 0);
            let _ = client.permissions.write().allow(variable);
            let _ = self.variables.write().allow(variable);
        }
        let info = loaded.info.clone();
        client.modules.write().insert(module, ClientModule::new(loaded));
        info
    }

    /// Removes a module from a client, if the client has it.
    fn remove_module(&self, client: &ContextClient, module: ModuleId) {
        // A separate statement, so that the lock is released before the module is dropped.
        let gone = client.modules.write().remove(&module);
        if let Some(gone) = gone {
            self.drop_module(client, gone);
        }
    }

    /// Drops a client's reference to a module. A shared module is kept for its next use.
    fn drop_module(&self, client: &ContextClient, module: Arc<ClientModule>) {
        client.constants.write().remove(&module.constants);
        for global in drivers_variables(&module) {
            client.permissions.write().revoke(global.address);
            if module.sharing == Sharing::OneClient {
                self.variables.write().revoke(global.address);
            }
        }
        module.remove_user();
        if module.sharing == Sharing::OneClient {
            self.forget_kernels(&module);
            self.shared.helpers.run(move || drop(module));
        }
    }

    /// Unloads shared modules that no client uses, if there are too many.
    fn evict_modules(&self) {
        for module in self.library.evict_unused() {
            for global in drivers_variables(&module) {
                self.variables.write().revoke(global.address);
            }
            self.forget_kernels(&module);
            self.shared.helpers.run(move || drop(module));
        }
    }

    /// Has the engines forget the module's kernels.
    fn forget_kernels(&self, module: &LoadedModule) {
        let is_gone = |id| module.kernels.iter().any(|kernel| kernel.id == id);
        let prepared = self.shared.prepared.forget_kernels(is_gone);
        if !prepared.is_empty() {
            self.shared.helpers.run(move || drop(prepared));
        }
        for mailbox in self.shared.mailboxes.iter() {
            mailbox.send(Message::ForgetKernels(module.kernels.iter().map(|kernel| kernel.id).collect()));
        }
    }
}

/// The variables of a module that lie where the driver put them.
fn drivers_variables(module: &LoadedModule) -> &[GlobalInfo] {
    match module.variables {
        VariablesHome::Driver => &module.info.globals,
        VariablesHome::Client => &[],
    }
}

impl Device for Card {
    fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    fn reach(&self, other: &DeviceFacts) -> Option<Peer> {
        let ordinal = other.id.strip_prefix("cuda:")?.parse().ok()?;
        self.shared.driver.device().reach(ordinal)
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        // Its thread would not end.
        put_down();
        stop_watching_requests();
        // The helper threads end first: they use objects of the engines.
        self.shared.helpers.stop();
        for helper in self.helper_threads.drain(..) {
            // A helper may drop the last reference to the card, too, in a call of the sink.
            if helper.thread().id() != std::thread::current().id() && helper.join().is_err() {
                tracing::error!("a helper of the card had panicked");
            }
        }
        for mailbox in self.shared.mailboxes.iter() {
            mailbox.send(Message::End);
        }
        let mut all_have_ended = true;
        for thread in self.engine_threads.drain(..) {
            // An engine thread may drop the last reference to the card itself, in a call of the
            // sink. It cannot join itself, and has yet to read that it ends.
            if thread.thread().id() == std::thread::current().id() {
                all_have_ended = false;
            } else if thread.join().is_err() {
                tracing::error!("an engine of the card had panicked");
            }
        }
        if !all_have_ended {
            return;
        }
        // What an engine has handed over to one that had ended: it would keep the driver open.
        self.shared.mailboxes.iter().for_each(|mailbox| mailbox.take_all(&mut Vec::new()));
    }
}
