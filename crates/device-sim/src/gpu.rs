//! The device contract, method by method, on top of memory, progress log and scheduler.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use cumux_abi::{CUfunction_attribute, CUlimit};
use cumux_device::{ClientId, ClientSpec, Device, DeviceError, DeviceFacts, Fault, GlobalsAllocator, Interrupted, ModuleId, ModuleInfo, StreamId, Work};

use crate::memory::client::ClientMemory;
use crate::memory::maps::GRANULE;
use crate::memory::permissions::AllowedRange;
use crate::memory::worker::WorkerMemory;
use crate::models::{self, ComputeMode};
use crate::modules;
use crate::ordinals::Ordinal;
use crate::progress::{ProgressLog, layout, recover};
use crate::schedule::{Card, CardClient, ClientEnd, DevicePhase, HostWindow, SHARE, not_open};

/// Bytes of the largest stack that a thread may have.
const MAX_STACK_BYTES: u64 = 512 << 10;
/// Host memory and the window that it stands for are aligned alike, to this many bytes, so that
/// aligned accesses stay aligned.
const ALIAS_ALIGN: u64 = 16;

/// One software GPU. Dropping it stops all work without further reports.
pub struct SoftwareGpu {
    card: Arc<Card>,
    /// Held for its drop: the number is free again then.
    _ordinal: Ordinal,
    keeps_progress: bool,
    workers: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for SoftwareGpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SoftwareGpu").field("id", &self.card.facts.id).field("workers", &self.workers.len()).finish_non_exhaustive()
    }
}

impl Drop for SoftwareGpu {
    fn drop(&mut self) {
        self.card.scheduler.lock().phase = DevicePhase::ShuttingDown;
        self.card.work.notify_all();
        for worker in self.workers.drain(..) {
            // The last reference may have been held by a sink that a worker was calling.
            if worker.thread().id() != std::thread::current().id() && worker.join().is_err() {
                tracing::error!("a worker of the software GPU had panicked");
            }
        }
    }
}

impl SoftwareGpu {
    pub(crate) fn new(card: Arc<Card>, ordinal: Ordinal, keeps_progress: bool) -> Self {
        SoftwareGpu { card, _ordinal: ordinal, keeps_progress, workers: Vec::new() }
    }

    /// Notes a worker thread, which ends when the device is dropped.
    pub(crate) fn add_worker(&mut self, worker: JoinHandle<()>) {
        self.workers.push(worker);
    }

    fn client_memory(&self, client: ClientId) -> Option<Arc<ClientMemory>> {
        self.card.scheduler.lock().clients.get(&client).map(|c| c.memory.clone())
    }

    fn revoke_range(&self, client: ClientId, address: u64) {
        let Some(memory) = self.client_memory(client) else { return };
        if memory.table.write().revoke(address).is_none() {
            tracing::warn!(client, address, "nothing to revoke");
            return;
        }
        memory.note_change();
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

    fn capacity(&self) -> u64 {
        self.card.maps.read().capacity()
    }

    fn alone(&self) -> Option<String> {
        let id = models::kind(&self.card.facts.id);
        (ComputeMode::of(&self.card.facts) == ComputeMode::ExclusiveProcess)
            .then(|| format!("{id} is in EXCLUSIVE_PROCESS mode, in which one process alone may use it; --device {id} lets a standby be kept ready"))
    }

    fn marks_bytes(&self) -> usize {
        if self.keeps_progress { usize::try_from(layout::FILE_BYTES).unwrap_or(0) } else { 0 }
    }

    fn open_client(&self, client: ClientId, spec: &ClientSpec, progress_file: Option<BorrowedFd<'_>>) -> Result<(), DeviceError> {
        let log = progress_file.map(ProgressLog::open).transpose()?;
        let mut scheduler = self.card.scheduler.lock();
        if scheduler.clients.contains_key(&client) {
            return Err(DeviceError::Invalid(format!("client {client} is open already")));
        }
        if let Some(wrong) = spec.sms.iter().find(|sm| **sm >= self.card.limits.multiprocessors) {
            return Err(DeviceError::Invalid(format!("the card has no SM {wrong}")));
        }
        scheduler.add_client(client, spec, log);
        Ok(())
    }

    fn set_share(&self, client: ClientId, multiprocessors: u32) -> Result<(), DeviceError> {
        let mut scheduler = self.card.scheduler.lock();
        scheduler.set_share(client, multiprocessors)?;
        self.card.wake_worker(&scheduler);
        Ok(())
    }

    fn open_partition(&self, client: ClientId, partition: u32, multiprocessors: u32) -> Result<(), DeviceError> {
        self.card.scheduler.lock().open_partition(client, partition, multiprocessors)
    }

    fn close_partition(&self, client: ClientId, partition: u32) {
        self.card.scheduler.lock().close_partition(client, partition);
    }

    fn close_client(&self, client: ClientId) {
        let window = {
            let mut scheduler = self.card.scheduler.lock();
            if !scheduler.clients.contains_key(&client) {
                return;
            }
            self.card.end_client(&mut scheduler, client, ClientEnd::Cancelled);
            self.card.wait_for_client(&mut scheduler, client);
            scheduler.remove_client(client).and_then(|gone| gone.window)
        };
        if let Some(window) = window
            && let Err(error) = self.card.maps.write().unmap(window.address, window.bytes)
        {
            tracing::error!(client, %error, "the window of a closed client cannot be unmapped");
        }
    }

    fn stop_client(&self, client: ClientId, fault: Fault) {
        let mut scheduler = self.card.scheduler.lock();
        self.card.end_client(&mut scheduler, client, ClientEnd::Fault(fault));
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
        let scheduler = self.card.scheduler.lock();
        let mut maps = self.card.maps.write();
        if let Some((client, _)) = scheduler.clients.iter().find(|(_, c)| c.memory.table.read().touches(address, bytes)) {
            return Err(DeviceError::Invalid(format!("client {client} may still touch the {bytes} bytes at {address:#x}; revoke its allocations first")));
        }
        maps.unmap(address, bytes)
    }

    fn map_window(&self, client: ClientId, window: BorrowedFd<'_>, address: u64, bytes: u64) -> Result<(), DeviceError> {
        let mut scheduler = self.card.scheduler.lock();
        let owner = scheduler.clients.get_mut(&client).ok_or_else(|| not_open(client))?;
        if owner.window.is_some() {
            return Err(DeviceError::Invalid(format!("client {client} has a window already")));
        }
        self.card.maps.write().map_window(address, window, bytes)?;
        owner.window = Some(HostWindow { address, bytes });
        let range = AllowedRange { start: address, end: address + bytes, writable: true, shift: 0 };
        owner.memory.table.write().allow(range).map_err(|error| DeviceError::Invalid(format!("the window at {address:#x}: {error}")))
    }

    fn alias(&self, client: ClientId, user: u64, window: u64, bytes: u64) -> Result<(), DeviceError> {
        let scheduler = self.card.scheduler.lock();
        let owner = scheduler.clients.get(&client).ok_or_else(|| not_open(client))?;
        if !owner.window.is_some_and(|mapped| mapped.contains(window, bytes)) {
            return Err(DeviceError::Invalid(format!("{bytes} bytes at {window:#x} are not in the window of client {client}")));
        }
        let shift = window.wrapping_sub(user);
        if !shift.is_multiple_of(ALIAS_ALIGN) {
            return Err(DeviceError::Invalid(format!("{user:#x} and {window:#x} must be equally aligned (to {ALIAS_ALIGN} bytes)")));
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
        memory.note_change();
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

    fn load_module(&self, client: ClientId, module: ModuleId, image: &[u8], place: &mut dyn GlobalsAllocator) -> Result<ModuleInfo, DeviceError> {
        if self.client_memory(client).is_none() {
            return Err(not_open(client));
        }
        let (loaded, info) = modules::load(&self.card.limits, &self.card.maps, image, place)?;
        let mut scheduler = self.card.scheduler.lock();
        let owner = scheduler.clients.get_mut(&client).ok_or_else(|| not_open(client))?;
        owner.modules.insert(module, loaded);
        Ok(info)
    }

    fn unload_module(&self, client: ClientId, module: ModuleId) {
        let gone = self.card.scheduler.lock().clients.get_mut(&client).and_then(|c| c.modules.remove(&module));
        drop(gone);
    }

    fn set_function(&self, client: ClientId, module: ModuleId, function: u32, attribute: u32, value: i32) -> Result<(), DeviceError> {
        let mut scheduler = self.card.scheduler.lock();
        let owner = scheduler.clients.get_mut(&client).ok_or_else(|| not_open(client))?;
        let unknown = || DeviceError::Invalid(format!("client {client} has no function {function} in module {module}"));
        let loaded = owner.modules.get_mut(&module).ok_or_else(unknown)?;
        let kernel = loaded.linked.program().kernels.get(function as usize).ok_or_else(unknown)?;
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
        let mut scheduler = self.card.scheduler.lock();
        let owner = scheduler.clients.get_mut(&client).ok_or_else(|| not_open(client))?;
        match CUlimit(limit) {
            CUlimit::CU_LIMIT_STACK_SIZE if value <= MAX_STACK_BYTES => {
                owner.stack_bytes = value as u32;
                Ok(())
            }
            CUlimit::CU_LIMIT_STACK_SIZE => Err(DeviceError::Invalid(format!("a stack of {value} bytes a thread; at most {MAX_STACK_BYTES} are possible"))),
            // Text is passed on as it comes: nothing to reserve.
            CUlimit::CU_LIMIT_PRINTF_FIFO_SIZE => Ok(()),
            CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE => owner.memory.heap.lock().set_limit(value).map_err(DeviceError::Invalid),
            _ => Err(DeviceError::NotSupported(format!("limit {limit}"))),
        }
    }

    fn create_stream(&self, client: ClientId, priority: i32) -> Result<StreamId, DeviceError> {
        self.create_stream_in(client, SHARE, priority)
    }

    fn create_stream_in(&self, client: ClientId, partition: u32, priority: i32) -> Result<StreamId, DeviceError> {
        self.card.scheduler.lock().create_stream(client, partition, priority)
    }

    fn destroy_stream(&self, stream: StreamId) {
        self.card.scheduler.lock().destroy_stream(stream);
    }

    fn submit(&self, stream: StreamId, token: u64, work: Work) -> Result<(), DeviceError> {
        let mut scheduler = self.card.scheduler.lock();
        scheduler.submit(stream, token, work)?;
        self.card.wake_worker(&scheduler);
        Ok(())
    }

    fn recover(&self, client: ClientId) -> Vec<Interrupted> {
        let (log, memory) = {
            let scheduler = self.card.scheduler.lock();
            match scheduler.clients.get(&client) {
                Some(CardClient { log: Some(log), memory, .. }) => (log.clone(), memory.clone()),
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
