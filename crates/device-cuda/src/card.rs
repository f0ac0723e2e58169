//! The card: the device interface over one primary context.

use crate::context::{
    Access, Client, ClientModule, ClientStream, Extents, LoadedModule, MemoryKind, ModuleLibrary, OwnKernels, Partition, Partitions, Permission, Permissions,
    PinnedWindow, Sharing, Urgency, read_facts,
};
use crate::counters::Counters;
use crate::driver::Driver;
use crate::engine::{Engine, Mailboxes, Message};
use crate::fault::{Loss, remedy};
use crate::helpers::Helpers;
use crate::polling::PollPolicy;
use crate::quiet::Gate;
use crate::settings::Settings;
use crate::shared::Shared;
use crate::work::Limits;
use cumux_abi::{CUdevice_attribute, CUlimit};
use cumux_device::{
    ClientCounters, ClientId, ClientSpec, Device, DeviceError, DeviceFacts, Fault, Interrupted, ModuleId, ModuleInfo, Place, Sink, StreamId, TensorWish, Work,
};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// One GPU.
pub struct Card {
    ordinal: u32,
    shared: Arc<Shared>,
    facts: DeviceFacts,
    memory: Extents,
    library: ModuleLibrary,
    partitions: Partitions,
    clients: RwLock<HashMap<ClientId, Arc<Client>>>,
    streams: RwLock<HashMap<StreamId, Arc<ClientStream>>>,
    /// Variables of modules: they lie outside the arena.
    variables: RwLock<Permissions>,
    /// Largest value of each limit so far: they belong to the context.
    limits: Mutex<HashMap<u32, u64>>,
    next_stream: AtomicU32,
    drain: Duration,
    engines: Vec<JoinHandle<()>>,
    helpers: Vec<JoinHandle<()>>,
}

impl Card {
    /// # Errors
    /// A sentence with a remedy: no driver, too old, card taken or full.
    pub fn open(ordinal: u32, sink: Arc<dyn Sink>, settings: Settings) -> Result<Arc<Card>, DeviceError> {
        let driver = Driver::open(ordinal)?;
        let facts = read_facts(driver.device(), ordinal);
        let memory = Extents::new(&driver)?;
        let own = OwnKernels::load(&driver)?;
        let partitions = Partitions::probe(&driver, own.sm_probe);
        let system = |error: std::io::Error| DeviceError::System(format!("a thread of cuda:{ordinal} cannot be started: {error}"));
        let (helpers, helper_threads) = Helpers::start(ordinal).map_err(system)?;
        let (helpers, counters, mailboxes) = (Arc::new(helpers), Arc::new(Counters::default()), Arc::new(Mailboxes::new(settings.engines)));
        let gate = Arc::new(Gate::new(driver.clone(), mailboxes.clone(), helpers.clone(), counters.clone()));
        let shared = Arc::new(Shared {
            driver: driver.clone(),
            sink,
            limits: Limits::of(&facts),
            coalesces: settings.coalesce,
            polling: PollPolicy::new(settings.spin_us),
            mailboxes,
            counters,
            mark: own.fence,
            gate,
            helpers,
            loss: Loss::default(),
        });
        let mut card = Card {
            ordinal,
            shared: shared.clone(),
            facts,
            memory,
            library: ModuleLibrary::default(),
            partitions,
            clients: RwLock::default(),
            streams: RwLock::default(),
            variables: RwLock::default(),
            limits: Mutex::default(),
            next_stream: AtomicU32::new(1),
            drain: settings.drain,
            engines: Vec::new(),
            helpers: helper_threads,
        };
        for number in 0..settings.engines {
            let engine = Engine::new(&shared, number).map_err(|code| DeviceError::System(remedy::cannot_prepare(ordinal, &driver.describe(code), code)))?;
            let thread = std::thread::Builder::new().name(format!("cuda-{ordinal}-{number}")).spawn(move || engine.work()).map_err(system)?;
            card.engines.push(thread);
        }
        Ok(Arc::new(card))
    }

    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    fn client(&self, client: ClientId) -> Result<Arc<Client>, DeviceError> {
        self.clients.read().get(&client).cloned().ok_or_else(|| DeviceError::Invalid(format!("client {client} is not open")))
    }

    fn alive(&self) -> Result<(), DeviceError> {
        self.shared.loss.why().map_or(Ok(()), |why| Err(DeviceError::Lost(why.to_owned())))
    }

    /// An error that says that the card is lost is looked into: the engines may not know yet; or it was only that call's.
    fn doubt<T>(&self, outcome: Result<T, DeviceError>) -> Result<T, DeviceError> {
        let Err(DeviceError::Lost(text)) = outcome else { return outcome };
        if self.shared.loss.why().is_none() && self.memory.context_works() {
            return Err(DeviceError::System(text));
        }
        for inbox in self.shared.mailboxes.iter() {
            inbox.send(Message::Look);
        }
        Err(DeviceError::Lost(text))
    }

    /// The engine that runs a stream's work.
    fn engine(&self, stream: StreamId) -> Result<usize, DeviceError> {
        self.alive()?;
        let engine = self.streams.read().get(&stream).map(|stream| stream.client.engine);
        engine.ok_or_else(|| DeviceError::Invalid(format!("there is no stream {}", stream.0)))
    }

    fn loaded(&self, client: ClientId, module: ModuleId) -> Result<Arc<ClientModule>, DeviceError> {
        let found = self.client(client)?.modules.read().get(&module).cloned();
        found.ok_or_else(|| DeviceError::Invalid(format!("client {client} has no module {module}")))
    }

    /// The window that holds these bytes.
    fn window(&self, address: u64, bytes: u64) -> Option<Arc<PinnedWindow>> {
        self.clients.read().values().find_map(|client| client.window.read().clone().filter(|window| window.contains(address, bytes)))
    }

    fn kind_of(&self, address: u64, bytes: u64) -> MemoryKind {
        let variable = self.variables.read().translate(address, bytes, Access::Read).is_ok();
        if variable { MemoryKind::Variable } else { MemoryKind::Extent }
    }

    /// A client has the module no longer. One that others may share stays for its next use.
    fn drop_module(&self, client: &Client, module: Arc<ClientModule>) {
        for global in &module.info.globals {
            client.permissions.write().revoke(global.address);
            if module.sharing == Sharing::OneClient {
                self.variables.write().revoke(global.address);
            }
        }
        module.remove_user();
        if module.sharing == Sharing::OneClient {
            self.forget(&module);
            self.shared.helpers.run(move || drop(module));
        }
    }

    /// The engines let go of the module's kernels.
    fn forget(&self, module: &LoadedModule) {
        for inbox in self.shared.mailboxes.iter() {
            inbox.send(Message::Forget(module.kernels.iter().map(|k| k.id).collect()));
        }
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        // First the helpers, who use what belongs to the engines.
        self.shared.helpers.stop();
        for helper in self.helpers.drain(..) {
            if helper.join().is_err() {
                tracing::error!("a helper of the card had panicked");
            }
        }
        for inbox in self.shared.mailboxes.iter() {
            inbox.send(Message::End);
        }
        for thread in self.engines.drain(..) {
            // The last reference may have been held by a sink that an engine was calling.
            if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
                tracing::error!("an engine of the card had panicked");
            }
        }
    }
}

impl Card {
    /// A part of the card, or of `inside`; none where that is all of the card.
    fn part(&self, inside: Option<&Partition>, leaves: Option<&Partition>, multiprocessors: u32) -> Result<Option<Arc<Partition>>, DeviceError> {
        let all = self.facts.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT.0).cast_unsigned();
        if inside.is_none() && (multiprocessors == 0 || multiprocessors >= all) {
            return Ok(None);
        }
        self.doubt(self.partitions.choose(&self.shared.driver, inside, leaves, multiprocessors)).map(Some)
    }
}

impl Device for Card {
    fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    fn contains_faults(&self) -> bool {
        false
    }

    fn alone(&self) -> Option<String> {
        remedy::exclusive_card(self.ordinal, self.shared.driver.compute_mode())
    }

    fn client_counters(&self, client: ClientId) -> ClientCounters {
        self.client(client).map_or_else(|_| ClientCounters::default(), |client| client.counts.read())
    }

    fn marks_bytes(&self) -> usize {
        0
    }

    fn open_client(&self, client: ClientId, spec: &ClientSpec, _marks: Option<BorrowedFd<'_>>) -> Result<(), DeviceError> {
        self.alive()?;
        let all = self.facts.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT.0).cast_unsigned();
        let share = match spec.sms.as_slice() {
            [] => self.part(None, None, spec.multiprocessors)?,
            sms if sms.len() >= all as usize => None,
            sms => Some(self.doubt(self.partitions.exactly(&self.shared.driver, sms))?),
        };
        let mut clients = self.clients.write();
        if clients.contains_key(&client) {
            return Err(DeviceError::Invalid(format!("client {client} is open already")));
        }
        let engine = client as usize % self.shared.mailboxes.len();
        let fresh = Client::new(client, engine, Urgency::of(spec.priority), share);
        clients.insert(client, Arc::new(fresh));
        Ok(())
    }

    fn close_client(&self, client: ClientId) {
        let Ok(gone) = self.client(client) else { return };
        let (done, wait) = crossbeam_channel::bounded(1);
        self.shared.mailboxes.of(gone.engine).send(Message::Close(client, done));
        let patient = self.shared.loss.why().is_none();
        if wait.recv_timeout(if patient { self.drain } else { Duration::from_secs(1) }).is_err() && patient {
            let (asker, answer) = crossbeam_channel::bounded(1);
            self.shared.mailboxes.of(gone.engine).send(Message::Tell(client, asker));
            let what = answer.recv_timeout(Duration::from_secs(1)).unwrap_or_else(|_| "the driver does not come back from a call".into());
            let drain = self.drain.as_secs();
            self.shared.give_up(format!("work of client {client} runs on {drain} s after the client was closed, and cannot be stopped alone: {what}"));
        }
        self.clients.write().remove(&client);
        self.streams.write().retain(|_, stream| stream.client.id != client);
        let modules = std::mem::take(&mut *gone.modules.write());
        for module in modules.into_values() {
            self.drop_module(&gone, module);
        }
        let window = gone.window.write().take();
        if let Some(window) = window {
            PinnedWindow::close(window);
        }
    }

    fn stop_client(&self, client: ClientId, fault: Fault) {
        if let Ok(client) = self.client(client) {
            self.shared.mailboxes.of(client.engine).send(Message::Stop(client.id, fault));
        }
    }

    fn granule(&self) -> u64 {
        self.memory.granule()
    }

    fn create_extent(&self, bytes: u64) -> Result<OwnedFd, DeviceError> {
        self.doubt(self.memory.create(bytes))
    }

    fn map(&self, address: u64, extent: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.doubt(self.memory.map(address, extent, offset, bytes))
    }

    fn unmap(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        self.doubt(self.memory.unmap(address, bytes))
    }

    fn map_window(&self, client: ClientId, window: BorrowedFd<'_>, address: u64, bytes: u64) -> Result<(), DeviceError> {
        let client = self.client(client)?;
        let mut place = client.window.write();
        if place.is_some() {
            return Err(DeviceError::Invalid(format!("client {} has a window already", client.id)));
        }
        let mapped = self.doubt(PinnedWindow::map(&self.shared.driver, window, address, bytes))?;
        if !client.permissions.write().allow(address, bytes, Permission::ReadWrite, 0) {
            return Err(DeviceError::Invalid(format!("the window at {address:#x} overlaps memory of client {}", client.id)));
        }
        *place = Some(Arc::new(mapped));
        Ok(())
    }

    fn use_window(&self, client: ClientId, address: u64, bytes: u64) -> Result<(), DeviceError> {
        let window = self.client(client)?.window.read().clone();
        let window = window.ok_or_else(|| DeviceError::Invalid(format!("client {client} has no window")))?;
        self.doubt(window.register(address, bytes))
    }

    fn alias(&self, client: ClientId, user: u64, window: u64, bytes: u64) -> Result<(), DeviceError> {
        let owner = self.client(client)?;
        let inside = owner.window.read().as_ref().is_some_and(|w| w.contains(window, bytes));
        if !inside {
            return Err(DeviceError::Invalid(format!("{bytes} bytes at {window:#x} are not in the window of client {client}")));
        }
        if !owner.permissions.write().allow(user, bytes, Permission::ReadWrite, window.wrapping_sub(user)) {
            return Err(DeviceError::Invalid(format!("{bytes} bytes at {user:#x} overlap other memory of client {client}")));
        }
        Ok(())
    }

    fn unalias(&self, client: ClientId, user: u64) {
        self.revoke(client, user);
    }

    fn allow(&self, client: ClientId, address: u64, bytes: u64, writable: bool) {
        let Ok(owner) = self.client(client) else { return };
        let permission = if writable { Permission::ReadWrite } else { Permission::ReadOnly };
        if !owner.permissions.write().allow(address, bytes, permission, 0) {
            tracing::error!(client, address, bytes, "an allocation cannot be allowed: it overlaps another");
        }
    }

    /// Copies and sets are refused from now on. Kernels are not isolated here: that no running one uses the memory is the caller's knowledge.
    fn revoke(&self, client: ClientId, address: u64) {
        let Ok(owner) = self.client(client) else { return };
        if !owner.permissions.write().revoke(address) {
            tracing::warn!(client, address, "nothing to revoke");
        }
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        match self.window(address, bytes.len() as u64) {
            Some(window) if window.write(address, bytes) => Ok(()),
            _ => self.doubt(self.memory.write(address, bytes, self.kind_of(address, bytes.len() as u64))),
        }
    }

    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        match self.window(address, into.len() as u64) {
            Some(window) if window.read(address, into) => Ok(()),
            _ => self.doubt(self.memory.read(address, into, self.kind_of(address, into.len() as u64))),
        }
    }

    /// Variables stay where the driver puts them: `place` is not asked.
    fn load_module(&self, client: ClientId, module: ModuleId, image: &[u8], _place: &mut dyn Place) -> Result<ModuleInfo, DeviceError> {
        self.alive()?;
        let owner = self.client(client)?;
        let loaded = self.doubt(self.library.load(&self.shared.gate, image, &owner.counts))?;
        for global in &loaded.info.globals {
            owner.permissions.write().allow(global.address, global.bytes, Permission::ReadWrite, 0);
            self.variables.write().allow(global.address, global.bytes, Permission::ReadWrite, 0);
        }
        let info = loaded.info.clone();
        owner.modules.write().insert(module, ClientModule::new(loaded));
        if self.client(client).is_err() {
            // Closed meanwhile: nobody else would let go of it.
            if let Some(module) = owner.modules.write().remove(&module) {
                self.drop_module(&owner, module);
            }
            return Err(DeviceError::Invalid(format!("client {client} was closed while its module was loaded")));
        }
        for gone in self.library.evict_unused() {
            for global in &gone.info.globals {
                self.variables.write().revoke(global.address);
            }
            self.forget(&gone);
            self.shared.helpers.run(move || drop(gone));
        }
        Ok(info)
    }

    fn unload_module(&self, client: ClientId, module: ModuleId) {
        let Ok(owner) = self.client(client) else { return };
        let gone = owner.modules.write().remove(&module);
        if let Some(gone) = gone {
            self.drop_module(&owner, gone);
        }
    }

    fn set_function(&self, client: ClientId, module: ModuleId, function: u32, attribute: u32, value: i32) -> Result<(), DeviceError> {
        self.doubt(self.loaded(client, module)?.set_attribute(function, attribute, value))
    }

    fn encode_tensor(&self, wish: &TensorWish) -> Result<[u8; 128], DeviceError> {
        let driver = &self.shared.driver;
        driver
            .encode_tensor(wish)
            .map_err(|code| DeviceError::Invalid(format!("a tensor of rank {} cannot be described: {}", wish.rank, driver.describe(code))))
    }

    /// A limit belongs to the context: the largest that any client asked for.
    fn set_limit(&self, client: ClientId, limit: u32, value: u64) -> Result<(), DeviceError> {
        self.client(client)?;
        if ![CUlimit::CU_LIMIT_STACK_SIZE, CUlimit::CU_LIMIT_PRINTF_FIFO_SIZE, CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE].contains(&CUlimit(limit)) {
            return Err(DeviceError::NotSupported(format!("limit {limit}")));
        }
        let driver = &self.shared.driver;
        let mut limits = self.limits.lock();
        let now = limits.get(&limit).copied().or_else(|| driver.limit(CUlimit(limit)).ok()).unwrap_or(0);
        if value <= now {
            return Ok(());
        }
        let set = driver.set_limit(CUlimit(limit), value);
        let raised = set.map_err(|code| {
            let text = format!("limit {limit} cannot be raised to {value}: {}", driver.describe(code));
            remedy::refused_call(code, text, DeviceError::Invalid)
        });
        self.doubt(raised)?;
        limits.insert(limit, value);
        Ok(())
    }

    fn set_share(&self, client: ClientId, multiprocessors: u32) -> Result<(), DeviceError> {
        self.alive()?;
        let client = self.client(client)?;
        if !client.partitions.read().is_empty() {
            // Its parts lie in the old share and cannot be made again inside of another while their streams live.
            return Err(DeviceError::NotSupported("this client's contexts have shares of their own, which cannot be changed while they live".into()));
        }
        let old = client.share.read().clone();
        let share = self.part(None, old.as_deref(), multiprocessors)?;
        *client.share.write() = share;
        Ok(())
    }

    fn open_partition(&self, client: ClientId, partition: u32, multiprocessors: u32) -> Result<(), DeviceError> {
        self.alive()?;
        let client = self.client(client)?;
        let share = client.share.read().clone();
        let Some(part) = self.part(share.as_deref(), None, multiprocessors)? else { return Ok(()) };
        match client.partitions.write().entry(partition) {
            std::collections::hash_map::Entry::Occupied(_) => Err(DeviceError::Invalid(format!("partition {partition} exists already"))),
            std::collections::hash_map::Entry::Vacant(place) => {
                place.insert(part);
                Ok(())
            }
        }
    }

    fn close_partition(&self, client: ClientId, partition: u32) {
        if let Ok(client) = self.client(client) {
            client.partitions.write().remove(&partition);
        }
    }

    fn create_stream(&self, client: ClientId, priority: i32) -> Result<StreamId, DeviceError> {
        self.create_stream_in(client, 0, priority)
    }

    fn create_stream_in(&self, client: ClientId, partition: u32, priority: i32) -> Result<StreamId, DeviceError> {
        let client = self.client(client)?;
        let (least, greatest) = self.shared.driver.priorities();
        let id = StreamId(self.next_stream.fetch_add(1, Ordering::Relaxed));
        let priority = if client.urgency == Urgency::BelowNormal { 0 } else { priority };
        let stream = ClientStream::new(id, client, partition, priority.clamp(greatest.min(least), least.max(greatest)));
        let stream = Arc::new(stream);
        self.shared.mailboxes.of(stream.client.engine).send(Message::Stream(stream.clone()));
        self.streams.write().insert(id, stream);
        Ok(id)
    }

    fn destroy_stream(&self, stream: StreamId) {
        let gone = self.streams.write().remove(&stream);
        if let Some(gone) = gone {
            self.shared.mailboxes.of(gone.client.engine).send(Message::Destroy(stream));
        }
    }

    fn submit_all(&self, stream: StreamId, work: &mut Vec<(u64, Work)>) -> Result<(), DeviceError> {
        self.shared.mailboxes.of(self.engine(stream)?).send_all(work.drain(..).map(|(token, work)| Message::Work(stream, token, work)));
        Ok(())
    }

    fn submit(&self, stream: StreamId, token: u64, work: Work) -> Result<(), DeviceError> {
        self.shared.mailboxes.of(self.engine(stream)?).send(Message::Work(stream, token, work));
        Ok(())
    }

    /// Nothing is known of a predecessor: what it had not reported is submitted again.
    fn recover(&self, _client: ClientId) -> Vec<Interrupted> {
        Vec::new()
    }
}
