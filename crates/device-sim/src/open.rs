//! Opens software GPUs by name.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cumux_device::{Device, DeviceError, Open, Sink, open_side_by_side};
use parking_lot::{Condvar, Mutex, RwLock};

use crate::gpu::SoftwareGpu;
use crate::memory::machine::{self, Budget};
use crate::memory::maps::Mappings;
use crate::models::{self, ComputeMode, Limits};
use crate::ordinals::Ordinal;
use crate::schedule::breakage::{Breakage, FaultTiming, watch};
use crate::schedule::{Scheduler, SoftwareCard, worker};

/// The greatest number of worker threads.
const MOST_THREADS: usize = 1024;

/// A file, so that tests can end the compute mode of cards whose name says `prohibited`: they are
/// prohibited while it is there. Without the variable they always are.
const PROHIBITED_WHILE: &str = "CUMUX_SIM_PROHIBITED_WHILE";

/// Opens software GPUs by name, with settings from the environment.
#[derive(Debug, Clone, Copy, Default)]
pub struct Simulator;

impl Open for Simulator {
    fn open(&self, id: &str, sink: Arc<dyn Sink>) -> Result<Arc<dyn Device>, DeviceError> {
        open(id, sink)
    }

    /// Their numbers are those of their order, whichever is opened first. Numbers that are stated
    /// are given out before the others.
    fn open_all(&self, wanted: Vec<(&str, Arc<dyn Sink>)>) -> Vec<Result<Arc<dyn Device>, DeviceError>> {
        let settings = Settings::from_environment();
        let stated: Vec<_> = wanted.iter().map(|(id, _)| models::number(id).map(|_| ordinal_of(id))).collect();
        let numbered: Vec<_> = wanted.into_iter().zip(stated).map(|((id, sink), stated)| (id, sink, stated.unwrap_or_else(|| ordinal_of(id)))).collect();
        open_side_by_side(numbered, |(id, sink, ordinal)| open_as(id, sink, settings.clone()?, ordinal?).map(|card| card as Arc<dyn Device>))
    }
}

/// What the environment can change.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Worker threads (`CUMUX_SIM_THREADS`).
    pub threads: usize,
    /// A kernel that runs longer is faulted (`CUMUX_SIM_WATCHDOG_MS`, 0 or unset: never).
    pub watchdog: Option<Duration>,
    /// Keeps the progress log by which a successor goes on in the middle of kernels. Without it
    /// (`CUMUX_SIM_MARKS=0`) reports and takeovers are treated like those of a real card.
    pub marks: bool,
    /// Whose memory the cards' memory is.
    pub memory: Memory,
    /// How a card that breaks (`sim:…:card`) behaves at a fault.
    pub faults: FaultTiming,
}

/// How much memory there is for a card's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// All cards of this process share so many bytes (`CUMUX_SIM_MEMORY_BYTES`, 0 = as many as the
    /// cards have), or without a number what the machine has.
    Shared(Option<u64>),
    /// So many bytes for this card alone.
    Own(u64),
}

impl Settings {
    /// Reads the variables named above and those of [`FaultTiming`]. Unset ones have defaults: as
    /// many threads as processors, no watchdog, with a progress log, the machine's memory.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] with the name of a variable that is not a number.
    pub fn from_environment() -> Result<Self, DeviceError> {
        let number = |name| cumux_environment::number(name).map_err(|error| DeviceError::Invalid(error.to_string()));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = number("CUMUX_SIM_THREADS")?.map_or(cores, |n| usize::try_from(n).unwrap_or(cores)).clamp(1, MOST_THREADS);
        let watchdog = number("CUMUX_SIM_WATCHDOG_MS")?.filter(|ms| *ms > 0).map(Duration::from_millis);
        let marks = number("CUMUX_SIM_MARKS")?.is_none_or(|n| n != 0);
        let memory = Memory::Shared(number(machine::VARIABLE)?.map(|bytes| if bytes == 0 { u64::MAX } else { bytes }));
        let usual = FaultTiming::default();
        let faults = FaultTiming {
            announced_after: number("CUMUX_SIM_FAULT_MS")?.map_or(usual.announced_after, Duration::from_millis),
            wait: number("CUMUX_FAULT_WAIT_MS")?.map_or(usual.wait, Duration::from_millis),
            drain: number("CUMUX_DRAIN_SECONDS")?.map_or(usual.drain, Duration::from_secs),
            long_kernel: number("CUMUX_LONG_KERNEL_MS")?.map_or(usual.long_kernel, Duration::from_millis),
            seed: number("CUMUX_SIM_FAULT_SEED")?.unwrap_or(usual.seed),
        };
        Ok(Settings { threads, watchdog, marks, memory, faults })
    }
}

/// Opens the card `id` (`sim:h200` and so on), with settings from the environment.
///
/// The same name may be opened several times: each is a card of its own, with the lowest ordinal
/// that is free in this process. A name with a number (`sim:h200@1`) is that card.
///
/// # Errors
/// [`DeviceError::Invalid`] for an unknown name (the text lists the cards) or a variable that is
/// not a number, [`DeviceError::System`] if threads cannot be made or the card's compute mode
/// prohibits it.
pub fn open(id: &str, sink: Arc<dyn Sink>) -> Result<Arc<dyn Device>, DeviceError> {
    let settings = Settings::from_environment()?;
    open_with(id, sink, settings).map(|card| card as Arc<dyn Device>)
}

/// Opens a card with the caller's settings instead of the environment's.
///
/// # Errors
/// As [`open`].
pub fn open_with(id: &str, sink: Arc<dyn Sink>, settings: Settings) -> Result<Arc<SoftwareGpu>, DeviceError> {
    open_as(id, sink, settings, ordinal_of(id)?)
}

/// The number that the name states, or the lowest free one.
fn ordinal_of(id: &str) -> Result<Ordinal, DeviceError> {
    let kind = models::kind(id);
    match models::number(id) {
        None => Ok(Ordinal::lowest_free(kind)),
        Some(number) => {
            Ordinal::certain(kind, number).ok_or_else(|| DeviceError::Invalid(format!("{id} is open already in this process: name each card once")))
        }
    }
}

/// Opens a card with this number among those of its kind.
fn open_as(id: &str, sink: Arc<dyn Sink>, settings: Settings, ordinal: Ordinal) -> Result<Arc<SoftwareGpu>, DeviceError> {
    let kind = models::kind(id);
    let is_prohibited = ComputeMode::of(&models::facts(id, 0)?) == ComputeMode::Prohibited;
    if is_prohibited && std::env::var_os(PROHIBITED_WHILE).is_none_or(|file| Path::new(&file).exists()) {
        return Err(DeviceError::System(format!("{kind} is in PROHIBITED compute mode: start the daemon with --device {kind}")));
    }
    let mut facts = models::facts(if is_prohibited { kind } else { id }, ordinal.number())?;
    if !settings.marks {
        facts.capabilities = models::without_progress_log(facts.capabilities);
    }
    let limits = Limits::of(&facts);
    let breaks = models::breaks(id);
    let budget = match settings.memory {
        Memory::Shared(bytes) => Budget::of_process(bytes),
        Memory::Own(bytes) => Budget::new(Some(bytes)),
    };
    let card = Arc::new(SoftwareCard {
        maps: RwLock::new(Mappings::new(facts.memory, budget)),
        facts,
        limits,
        sink,
        scheduler: Mutex::new(Scheduler::new(limits, settings.threads, breaks.then(|| Breakage::new(settings.faults)))),
        work: Condvar::new(),
        settled: Condvar::new(),
        breaks,
        breaking: Condvar::new(),
        watchdog: settings.watchdog,
        opened: Instant::now(),
        delivered_reports: Default::default(),
    });
    let name = format!("sim-{}", ordinal.number());
    let mut gpu = SoftwareGpu::new(card.clone(), ordinal);
    let failed = |error| DeviceError::System(format!("a worker thread cannot be started: {error}"));
    for number in 0..settings.threads {
        let card = card.clone();
        let worker = std::thread::Builder::new().name(format!("{name}-{number}")).spawn(move || worker::run(&card, number)).map_err(failed)?;
        gpu.add_worker(worker);
    }
    if breaks {
        let card = card.clone();
        let watcher = std::thread::Builder::new().name(format!("{name}-faults")).spawn(move || watch::run(&card)).map_err(failed)?;
        gpu.add_worker(watcher);
    }
    Ok(Arc::new(gpu))
}
