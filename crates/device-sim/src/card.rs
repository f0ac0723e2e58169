//! The device contract, word by word, on top of memory, marks and schedule.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cumux_abi::{CUfunction_attribute, CUlimit};
use cumux_device::{ClientId, ClientSpec, Device, DeviceError, DeviceFacts, Fault, Interrupted, ModuleId, ModuleInfo, Open, Place, Sink, StreamId, Work};
use parking_lot::{Condvar, Mutex, RwLock};

use crate::memory::client::ClientMemory;
use crate::memory::maps::{GRANULE, Mappings};
use crate::memory::permissions::AllowedRange;
use crate::memory::worker::WorkerMemory;
use crate::models::{self, ComputeMode, Limits};
use crate::modules;
use crate::progress::{ProgressLog, layout, recover};
use crate::schedule::{Card, Client, ClientEnd, Scheduler, worker};

/// Largest stack a thread may have.
const STACK: u64 = 512 << 10;

/// Opens software GPUs by name.
#[derive(Debug, Clone, Copy, Default)]
pub struct Simulator;

impl Open for Simulator {
    fn open(&self, id: &str, sink: Arc<dyn Sink>) -> Result<Arc<dyn Device>, DeviceError> {
        open(id, sink)
    }
}

/// Opens the card `id` (`sim:h200` and so on; an unknown name is answered with the list). The same name may be opened several times: each is a card of its own,
/// with the lowest ordinal that is free in this process.
///
/// # Errors
/// [`DeviceError::Invalid`] for an unknown name, [`DeviceError::System`] if threads cannot be made.
pub fn open(id: &str, sink: Arc<dyn Sink>) -> Result<Arc<dyn Device>, DeviceError> {
    let settings = Settings::from_environment()?;
    open_with(id, sink, settings).map(|card| card as Arc<dyn Device>)
}

/// What the environment can change.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Worker threads (`CUMUX_SIM_THREADS`).
    pub threads: usize,
    /// A kernel that runs longer is faulted (`CUMUX_SIM_WATCHDOG_MS`, 0 or unset: never).
    pub watchdog: Option<Duration>,
    /// Keeps the notes by which a successor goes on in the middle of kernels. Without them (`CUMUX_SIM_MARKS=0`) it is as with a real card.
    pub marks: bool,
}

impl Settings {
    /// # Errors
    /// A sentence naming the variable that is not a number.
    pub fn from_environment() -> Result<Self, DeviceError> {
        let number = |name: &str| match std::env::var(name) {
            Ok(text) => text
                .trim()
                .parse::<u64>()
                .map(Some)
                .map_err(|_| DeviceError::Invalid(format!("{name}={text:?} is not a number; unset it or give a whole number"))),
            Err(_) => Ok(None),
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = number("CUMUX_SIM_THREADS")?.map_or(cores, |n| usize::try_from(n).unwrap_or(cores)).clamp(1, 1024);
        let watchdog = number("CUMUX_SIM_WATCHDOG_MS")?.filter(|ms| *ms > 0).map(Duration::from_millis);
        let marks = number("CUMUX_SIM_MARKS")?.is_none_or(|n| n != 0);
        Ok(Settings { threads, watchdog, marks })
    }
}

/// Ordinals in use, by card name.
static ORDINALS: Mutex<Option<HashMap<String, BTreeSet<u32>>>> = Mutex::new(None);

/// Opens a card with settings of the caller's instead of the environment's.
///
/// # Errors
/// As [`open`].
pub fn open_with(id: &str, sink: Arc<dyn Sink>, settings: Settings) -> Result<Arc<SoftwareGpu>, DeviceError> {
    if ComputeMode::of(&models::facts(id, 0)?) == ComputeMode::Prohibited {
        let kind = models::kind(id);
        return Err(DeviceError::System(format!("{kind} is in PROHIBITED compute mode: start the daemon with --device {kind}")));
    }
    let ordinal = {
        let mut ordinals = ORDINALS.lock();
        let used = ordinals.get_or_insert_default().entry(models::kind(id).to_owned()).or_default();
        let free = (0..).find(|n| !used.contains(n)).unwrap_or(0);
        used.insert(free);
        free
    };
    let facts = models::facts(id, ordinal)?;
    let limits = Limits::of(&facts);
    let card = Arc::new(Card {
        maps: RwLock::new(Mappings::new(facts.memory)),
        facts,
        limits,
        sink,
        state: Mutex::new(Scheduler::new(limits, settings.threads)),
        work: Condvar::new(),
        settled: Condvar::new(),
        watchdog: settings.watchdog,
        started: Instant::now(),
        reports: AtomicU64::new(0),
    });
    let mut gpu = SoftwareGpu { card, marks: settings.marks, ordinal, workers: Vec::new() };
    for number in 0..settings.threads {
        let card = gpu.card.clone();
        let worker = std::thread::Builder::new()
            .name(format!("sim-{ordinal}-{number}"))
            .spawn(move || worker::run(&card, number))
            .map_err(|error| DeviceError::System(format!("a worker thread cannot be started: {error}")))?;
        gpu.workers.push(worker);
    }
    Ok(Arc::new(gpu))
}

/// One software GPU. Dropping it stops all work without further reports.
pub struct SoftwareGpu {
    card: Arc<Card>,
    marks: bool,
    ordinal: u32,
    workers: Vec<JoinHandle<()>>,
}

impl Drop for SoftwareGpu {
    fn drop(&mut self) {
        self.card.state.lock().shutdown = true;
        self.card.work.notify_all();
        for worker in self.workers.drain(..) {
            // The last reference may have been held by a sink that a worker was calling.
            if worker.thread().id() != std::thread::current().id() && worker.join().is_err() {
                tracing::error!("a worker of the software GPU had panicked");
            }
        }
        if let Some(used) = ORDINALS.lock().as_mut().and_then(|all| all.get_mut(models::kind(&self.card.facts.id))) {
            used.remove(&self.ordinal);
        }
    }
}

fn not_open(client: ClientId) -> DeviceError {
    DeviceError::Invalid(format!("client {client} is not open"))
}

impl SoftwareGpu {
    fn client_memory(&self, client: ClientId) -> Option<Arc<ClientMemory>> {
        self.card.state.lock().clients.get(&client).map(|c| c.memory.clone())
    }

    fn revoke_range(&self, client: ClientId, address: u64) {
        let Some(memory) = self.client_memory(client) else { return };
        if memory.table.write().revoke(address).is_none() {
            tracing::warn!(client, address, "nothing to revoke");
            return;
        }
        memory.version.fetch_add(1, Ordering::Release);
        self.card.wait_for_slices(client);
    }
}

impl Device for SoftwareGpu {
    fn facts(&self) -> &DeviceFacts {
        &self.card.facts
    }

    fn contains_faults(&self) -> bool {
        true
    }

    fn alone(&self) -> Option<String> {
        let id = models::kind(&self.card.facts.id);
        (ComputeMode::of(&self.card.facts) == ComputeMode::ExclusiveProcess)
            .then(|| format!("{id} is in EXCLUSIVE_PROCESS mode, in which one process alone may use it; --device {id} lets a standby be kept ready"))
    }

    fn marks_bytes(&self) -> usize {
        if self.marks { usize::try_from(layout::FILE_BYTES).unwrap_or(0) } else { 0 }
    }

    fn open_client(&self, client: ClientId, spec: &ClientSpec, marks: Option<BorrowedFd<'_>>) -> Result<(), DeviceError> {
        let log = marks.map(ProgressLog::open).transpose()?;
        let mut state = self.card.state.lock();
        if state.clients.contains_key(&client) {
            return Err(DeviceError::Invalid(format!("client {client} is open already")));
        }
        if let Some(wrong) = spec.sms.iter().find(|sm| **sm >= self.card.limits.multiprocessors) {
            return Err(DeviceError::Invalid(format!("the card has no SM {wrong}")));
        }
        state.add_client(client, spec, log);
        Ok(())
    }

    fn set_share(&self, client: ClientId, multiprocessors: u32) -> Result<(), DeviceError> {
        let mut state = self.card.state.lock();
        state.set_share(client, multiprocessors)?;
        self.card.wake_worker(&state);
        Ok(())
    }

    fn open_partition(&self, client: ClientId, partition: u32, multiprocessors: u32) -> Result<(), DeviceError> {
        self.card.state.lock().open_part(client, partition, multiprocessors)
    }

    fn close_partition(&self, client: ClientId, partition: u32) {
        self.card.state.lock().close_part(client, partition);
    }

    fn close_client(&self, client: ClientId) {
        let window = {
            let mut state = self.card.state.lock();
            if !state.clients.contains_key(&client) {
                return;
            }
            self.card.end_client(&mut state, client, ClientEnd::Cancelled);
            state.waiting += 1;
            while state.clients.get(&client).is_some_and(|c| c.outstanding > 0) || state.workers.iter().flatten().any(|(c, _)| *c == client) {
                self.card.wake_worker(&state);
                self.card.settled.wait(&mut state);
            }
            state.waiting -= 1;
            state.streams.retain(|_, stream| stream.client != client);
            state.remove_client(client).and_then(|c| c.window)
        };
        if let Some((address, bytes)) = window
            && let Err(error) = self.card.maps.write().unmap(address, bytes)
        {
            tracing::error!(client, %error, "the window of a closed client");
        }
    }

    fn stop_client(&self, client: ClientId, fault: Fault) {
        let mut state = self.card.state.lock();
        self.card.end_client(&mut state, client, ClientEnd::Fault(fault));
    }

    fn granule(&self) -> u64 {
        GRANULE
    }

    fn create_extent(&self, bytes: u64) -> Result<OwnedFd, DeviceError> {
        self.card.maps.write().create(bytes)
    }

    fn forget_extent(&self, extent: BorrowedFd<'_>) {
        self.card.maps.write().forget(extent);
    }

    fn map(&self, address: u64, extent: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.card.maps.write().map(address, extent, offset, bytes)
    }

    fn unmap(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        let state = self.card.state.lock();
        let mut maps = self.card.maps.write();
        if let Some((client, _)) = state.clients.iter().find(|(_, c)| c.memory.table.read().touches(address, bytes)) {
            return Err(DeviceError::Invalid(format!("client {client} may still touch the {bytes} bytes at {address:#x}; revoke its allocations first")));
        }
        maps.unmap(address, bytes)
    }

    fn map_window(&self, client: ClientId, window: BorrowedFd<'_>, address: u64, bytes: u64) -> Result<(), DeviceError> {
        let mut state = self.card.state.lock();
        let owner = state.clients.get_mut(&client).ok_or_else(|| not_open(client))?;
        if owner.window.is_some() {
            return Err(DeviceError::Invalid(format!("client {client} has a window already")));
        }
        self.card.maps.write().map_window(address, window, bytes)?;
        owner.window = Some((address, bytes));
        let range = AllowedRange { start: address, end: address + bytes, writable: true, shift: 0 };
        owner.memory.table.write().allow(range).map_err(|error| DeviceError::Invalid(format!("the window at {address:#x}: {error}")))
    }

    fn alias(&self, client: ClientId, user: u64, window: u64, bytes: u64) -> Result<(), DeviceError> {
        let state = self.card.state.lock();
        let owner = state.clients.get(&client).ok_or_else(|| not_open(client))?;
        let inside = owner.window.is_some_and(|(start, length)| window >= start && bytes <= length && window - start <= length - bytes);
        if !inside {
            return Err(DeviceError::Invalid(format!("{bytes} bytes at {window:#x} are not in the window of client {client}")));
        }
        let shift = window.wrapping_sub(user);
        if !shift.is_multiple_of(16) {
            return Err(DeviceError::Invalid(format!("{user:#x} and {window:#x} must be equally aligned (to 16 bytes)")));
        }
        let end = user.checked_add(bytes).ok_or_else(|| DeviceError::Invalid(format!("{bytes} bytes at {user:#x} wrap around")))?;
        let mut table = owner.memory.table.write();
        if table.find(user).is_some() {
            return Err(DeviceError::Invalid(format!("{user:#x} belongs to another range of client {client}")));
        }
        table
            .allow(AllowedRange { start: user, end, writable: true, shift })
            .map_err(|error| DeviceError::Invalid(format!("host memory at {user:#x}: {error}")))
    }

    fn unalias(&self, client: ClientId, user: u64) {
        self.revoke_range(client, user);
    }

    fn allow(&self, client: ClientId, address: u64, bytes: u64, writable: bool) {
        let Some(memory) = self.client_memory(client) else { return };
        // Under the lock of the mappings, so that none of them goes away in between.
        let maps = self.card.maps.read();
        let allowed = maps.for_each_mapping(address, bytes, |_, _, _| {}).map_err(|error| error.to_string()).and_then(|()| {
            let range = AllowedRange { start: address, end: address.saturating_add(bytes), writable, shift: 0 };
            memory.table.write().allow(range).map_err(|error| error.to_string())
        });
        memory.version.fetch_add(1, Ordering::Release);
        if let Err(why) = allowed {
            tracing::error!(client, address, bytes, why, "an allocation cannot be allowed");
        }
    }

    fn revoke(&self, client: ClientId, address: u64) {
        self.revoke_range(client, address);
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        modules::write(&self.card.maps, address, bytes)
    }

    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.card.maps.read().for_each_mapping(address, into.len() as u64, |mapping, offset, part| {
            mapping.read(offset, &mut into[part]);
        })
    }

    fn load_module(&self, client: ClientId, module: ModuleId, image: &[u8], place: &mut dyn Place) -> Result<ModuleInfo, DeviceError> {
        if self.client_memory(client).is_none() {
            return Err(not_open(client));
        }
        let (loaded, info) = modules::load(&self.card.limits, &self.card.maps, image, place)?;
        let mut state = self.card.state.lock();
        let owner = state.clients.get_mut(&client).ok_or_else(|| not_open(client))?;
        owner.modules.insert(module, loaded);
        Ok(info)
    }

    fn unload_module(&self, client: ClientId, module: ModuleId) {
        let gone = self.card.state.lock().clients.get_mut(&client).and_then(|c| c.modules.remove(&module));
        drop(gone);
    }

    fn set_function(&self, client: ClientId, module: ModuleId, function: u32, attribute: u32, value: i32) -> Result<(), DeviceError> {
        let mut state = self.card.state.lock();
        let owner = state.clients.get_mut(&client).ok_or_else(|| not_open(client))?;
        let unknown = || DeviceError::Invalid(format!("client {client} has no function {function} in module {module}"));
        let loaded = owner.modules.get_mut(&module).ok_or_else(unknown)?;
        let kernel = loaded.image.program().kernels.get(function as usize).ok_or_else(unknown)?;
        let most = self.card.limits.shared_per_block_optin.saturating_sub(kernel.static_shared);
        let own = loaded.functions.get_mut(function as usize).ok_or_else(unknown)?;
        match (CUfunction_attribute(attribute), u32::try_from(value)) {
            (CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, Ok(bytes)) if bytes <= most => {
                own.max_dynamic_shared = bytes;
                Ok(())
            }
            (CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, _) => {
                Err(DeviceError::Invalid(format!("kernel {} can have at most {most} bytes of dynamic shared memory, not {value}", kernel.name)))
            }
            // A preference in percent, -1 for none: makes no difference here.
            (CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, _) if (-1..=100).contains(&value) => Ok(()),
            _ => Err(DeviceError::Invalid(format!("function attribute {attribute} cannot be set to {value}"))),
        }
    }

    fn set_limit(&self, client: ClientId, limit: u32, value: u64) -> Result<(), DeviceError> {
        let mut state = self.card.state.lock();
        let owner = state.clients.get_mut(&client).ok_or_else(|| not_open(client))?;
        match CUlimit(limit) {
            CUlimit::CU_LIMIT_STACK_SIZE if value <= STACK => {
                owner.stack_bytes = value as u32;
                Ok(())
            }
            CUlimit::CU_LIMIT_STACK_SIZE => Err(DeviceError::Invalid(format!("a stack of {value} bytes a thread; at most {STACK} are possible"))),
            // Text is passed on as it comes: nothing to reserve.
            CUlimit::CU_LIMIT_PRINTF_FIFO_SIZE => Ok(()),
            CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE => owner.memory.heap.lock().set_limit(value).map_err(DeviceError::Invalid),
            _ => Err(DeviceError::NotSupported(format!("limit {limit}"))),
        }
    }

    fn create_stream(&self, client: ClientId, priority: i32) -> Result<StreamId, DeviceError> {
        self.create_stream_in(client, 0, priority)
    }

    fn create_stream_in(&self, client: ClientId, partition: u32, priority: i32) -> Result<StreamId, DeviceError> {
        self.card.state.lock().create_stream(client, partition, priority)
    }

    fn destroy_stream(&self, stream: StreamId) {
        self.card.state.lock().destroy_stream(stream);
    }

    fn submit(&self, stream: StreamId, token: u64, work: Work) -> Result<(), DeviceError> {
        let mut state = self.card.state.lock();
        state.submit(stream, token, work)?;
        self.card.wake_worker(&state);
        Ok(())
    }

    fn recover(&self, client: ClientId) -> Vec<Interrupted> {
        let (log, memory) = {
            let state = self.card.state.lock();
            match state.clients.get(&client) {
                Some(Client { log: Some(log), memory, .. }) => (log.clone(), memory.clone()),
                _ => return Vec::new(),
            }
        };
        // Nothing of the client runs yet; this keeps its memory mapped meanwhile.
        let _maps = self.card.maps.read();
        let mut worker = WorkerMemory::default();
        worker.begin_slice(&memory, false);
        recover::undo_half_done_blocks(&log, &mut |address, bytes| worker.write(address, bytes).map_err(|(address, _)| address))
    }
}
