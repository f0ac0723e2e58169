//! The device interface of a card.

use super::Card;
use crate::context::{Client, ClientStream, Permission, PinnedWindow, Resumption, Urgency};
use crate::engine::Message;
use crate::fault::remedy;
use cumux_abi::CUlimit;
use cumux_device::{
    ClientCounters, ClientId, ClientSpec, Device, DeviceError, DeviceFacts, Fault, GlobalsAllocator, Interrupted, ModuleId, ModuleInfo, StreamId, TensorWish,
    Work,
};
use std::collections::hash_map::Entry;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long closing a client waits for its work on a lost card, where no work completes any more.
const LOST_DRAIN: Duration = Duration::from_secs(1);
/// How long closing a client waits for the engine's description of the work that does not end.
const DESCRIPTION_WAIT_LIMIT: Duration = Duration::from_secs(1);
/// The limits of a context that a client may raise.
const LIMITS: [CUlimit; 3] = [CUlimit::CU_LIMIT_STACK_SIZE, CUlimit::CU_LIMIT_PRINTF_FIFO_SIZE, CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE];
/// The priority of streams that yield to others.
const LEAST_URGENT: i32 = 0;

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

    /// A card keeps no marks: it cannot tell which blocks of a kernel are done.
    fn marks_bytes(&self) -> usize {
        0
    }

    fn open_client(&self, client: ClientId, spec: &ClientSpec, _marks: Option<BorrowedFd<'_>>) -> Result<(), DeviceError> {
        self.require_context()?;
        let share = match spec.sms.as_slice() {
            [] => self.choose_partition(None, None, spec.multiprocessors)?,
            sms if sms.len() >= self.multiprocessors() as usize => None,
            sms => Some(self.check_loss(self.partitions.exactly(&self.shared.driver, sms))?),
        };
        let engine = client as usize % self.shared.mailboxes.len();
        let fresh = Arc::new(Client::new(client, engine, Urgency::of(spec.priority), share));
        match self.clients.write().entry(client) {
            Entry::Occupied(_) => Err(DeviceError::Invalid(format!("client {client} is open already"))),
            Entry::Vacant(entry) => {
                entry.insert(fresh);
                Ok(())
            }
        }
    }

    fn close_client(&self, client: ClientId) {
        let Ok(closed) = self.client(client) else { return };
        let engine = self.shared.mailboxes.of(closed.engine);
        let (done, drained) = crossbeam_channel::bounded(1);
        engine.send(Message::CloseClient(client, done));
        let works = self.shared.loss.why().is_none();
        if drained.recv_timeout(if works { self.drain } else { LOST_DRAIN }).is_err() && works {
            let (asker, answer) = crossbeam_channel::bounded(1);
            engine.send(Message::DescribeClient(client, asker));
            let what = answer.recv_timeout(DESCRIPTION_WAIT_LIMIT).unwrap_or_else(|_| "the driver does not come back from a call".into());
            let seconds = self.drain.as_secs();
            self.shared.give_up(format!("work of client {client} runs on {seconds} s after the client was closed, and cannot be stopped alone: {what}"));
        }
        self.clients.write().remove(&client);
        self.streams.write().retain(|_, stream| stream.client.id != client);
        let modules = std::mem::take(&mut *closed.modules.write());
        for module in modules.into_values() {
            self.drop_module(&closed, module);
        }
        let window = closed.window.write().take();
        if let Some(window) = window {
            PinnedWindow::close(window);
        }
    }

    fn stop_client(&self, client: ClientId, fault: Fault) {
        if let Ok(client) = self.client(client) {
            self.shared.mailboxes.of(client.engine).send(Message::StopClient(client.id, fault));
        }
    }

    // ---- shares

    fn set_share(&self, client: ClientId, multiprocessors: u32) -> Result<(), DeviceError> {
        self.require_context()?;
        let client = self.client(client)?;
        if !client.partitions.read().is_empty() {
            // The partitions lie in the old share. They cannot be made again in a new share while
            // their streams live.
            return Err(DeviceError::NotSupported("this client's contexts have shares of their own, which cannot be changed while they live".into()));
        }
        let old = client.share.read().clone();
        let share = self.choose_partition(None, old.as_deref(), multiprocessors)?;
        *client.share.write() = share;
        Ok(())
    }

    fn open_partition(&self, client: ClientId, partition: u32, multiprocessors: u32) -> Result<(), DeviceError> {
        self.require_context()?;
        let client = self.client(client)?;
        let share = client.share.read().clone();
        let Some(fresh) = self.choose_partition(share.as_deref(), None, multiprocessors)? else { return Ok(()) };
        match client.partitions.write().entry(partition) {
            Entry::Occupied(_) => Err(DeviceError::Invalid(format!("partition {partition} exists already"))),
            Entry::Vacant(entry) => {
                entry.insert(fresh);
                Ok(())
            }
        }
    }

    fn close_partition(&self, client: ClientId, partition: u32) {
        if let Ok(client) = self.client(client) {
            client.partitions.write().remove(&partition);
        }
    }

    // ---- memory

    fn granule(&self) -> u64 {
        self.extents.granule()
    }

    fn create_extent(&self, bytes: u64) -> Result<OwnedFd, DeviceError> {
        self.check_loss(self.extents.create(bytes))
    }

    fn map(&self, address: u64, extent: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.check_loss(self.extents.map(address, extent, offset, bytes))
    }

    fn unmap(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        self.check_loss(self.extents.unmap(address, bytes))
    }

    fn map_window(&self, client: ClientId, window: BorrowedFd<'_>, address: u64, bytes: u64) -> Result<(), DeviceError> {
        let client = self.client(client)?;
        let mut entry = client.window.write();
        if entry.is_some() {
            return Err(DeviceError::Invalid(format!("client {} has a window already", client.id)));
        }
        let mapped = self.check_loss(PinnedWindow::map(&self.shared.driver, window, address, bytes))?;
        if !client.permissions.write().allow(address, bytes, Permission::ReadWrite, 0) {
            return Err(DeviceError::Invalid(format!("the window at {address:#x} overlaps memory of client {}", client.id)));
        }
        *entry = Some(Arc::new(mapped));
        Ok(())
    }

    fn use_window(&self, client: ClientId, address: u64, bytes: u64) -> Result<(), DeviceError> {
        let window = self.client(client)?.window.read().clone();
        let window = window.ok_or_else(|| DeviceError::Invalid(format!("client {client} has no window")))?;
        self.check_loss(window.register(address, bytes))
    }

    fn alias(&self, client: ClientId, user: u64, window: u64, bytes: u64) -> Result<(), DeviceError> {
        let owner = self.client(client)?;
        let is_inside = owner.window.read().as_ref().is_some_and(|w| w.contains(window, bytes));
        if !is_inside {
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

    /// Copies and sets are refused from now on. Kernels are not isolated on a card, so the caller
    /// has to know that no running kernel uses the memory.
    fn revoke(&self, client: ClientId, address: u64) {
        let Ok(owner) = self.client(client) else { return };
        if !owner.permissions.write().revoke(address) {
            tracing::warn!(client, address, "nothing to revoke");
        }
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let length = bytes.len() as u64;
        match self.window_at(address, length) {
            Some(window) if window.write(address, bytes) => Ok(()),
            _ => {
                let written = self.extents.write(address, bytes, self.kind_of_memory(address, length));
                self.check_loss(written.and_then(|()| self.forward_constants(address, length)))
            }
        }
    }

    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let length = into.len() as u64;
        match self.window_at(address, length) {
            Some(window) if window.read(address, into) => Ok(()),
            _ => self.check_loss(self.extents.read(address, into, self.kind_of_memory(address, length))),
        }
    }

    // ---- modules

    /// Variables go into the client's memory, as `place` says. A module with state that stays with
    /// the driver is loaded, but not restored: that state went with the executor.
    fn load_module(&self, client: ClientId, module: ModuleId, image: &[u8], place: &mut dyn GlobalsAllocator) -> Result<ModuleInfo, DeviceError> {
        self.require_context()?;
        let owner = self.client(client)?;
        let loaded = self.check_loss(self.library.load(&self.shared.gate, &self.extents, image, &owner.counts, place))?;
        if let Resumption::Impossible(why) = &loaded.resumption {
            if place.is_restoring() {
                let text = format!("what one of its modules had on the card has gone with the executor before: {why}");
                loaded.remove_user();
                return Err(DeviceError::Invalid(text));
            }
            place.not_resumable(why);
        }
        let info = self.add_module(&owner, module, loaded);
        if self.client(client).is_err() {
            // The client was closed meanwhile, and nothing else would drop the module.
            self.remove_module(&owner, module);
            return Err(DeviceError::Invalid(format!("client {client} was closed while its module was loaded")));
        }
        self.evict_modules();
        Ok(info)
    }

    fn unload_module(&self, client: ClientId, module: ModuleId) {
        if let Ok(owner) = self.client(client) {
            self.remove_module(&owner, module);
        }
    }

    fn set_function(&self, client: ClientId, module: ModuleId, function: u32, attribute: u32, value: i32) -> Result<(), DeviceError> {
        self.check_loss(self.module(client, module)?.set_attribute(function, attribute, value))
    }

    fn encode_tensor(&self, wish: &TensorWish) -> Result<[u8; 128], DeviceError> {
        let driver = &self.shared.driver;
        driver
            .encode_tensor(wish)
            .map_err(|error| DeviceError::Invalid(format!("a tensor of rank {} cannot be described: {}", wish.rank, driver.describe(error))))
    }

    /// Limits belong to the whole context, so each is the largest that any client has set.
    fn set_limit(&self, client: ClientId, limit: u32, value: u64) -> Result<(), DeviceError> {
        self.client(client)?;
        if !LIMITS.contains(&CUlimit(limit)) {
            return Err(DeviceError::NotSupported(format!("limit {limit}")));
        }
        let driver = &self.shared.driver;
        let mut limits = self.limits.lock();
        let current = limits.get(&limit).copied().or_else(|| driver.limit(CUlimit(limit)).ok()).unwrap_or(0);
        if value <= current {
            return Ok(());
        }
        let raised = driver.set_limit(CUlimit(limit), value).map_err(|error| {
            let text = format!("limit {limit} cannot be raised to {value}: {}", driver.describe(error));
            remedy::refused_call(error, text, DeviceError::Invalid)
        });
        self.check_loss(raised)?;
        limits.insert(limit, value);
        Ok(())
    }

    // ---- work

    fn create_stream(&self, client: ClientId, priority: i32) -> Result<StreamId, DeviceError> {
        self.create_stream_in(client, 0, priority)
    }

    fn create_stream_in(&self, client: ClientId, partition: u32, priority: i32) -> Result<StreamId, DeviceError> {
        let client = self.client(client)?;
        let (least, greatest) = self.shared.driver.priorities();
        let id = StreamId(self.next_stream.fetch_add(1, Ordering::Relaxed));
        let priority = match client.urgency {
            Urgency::Normal => priority,
            Urgency::BelowNormal => LEAST_URGENT,
        };
        let stream = Arc::new(ClientStream::new(id, client, partition, priority.clamp(greatest.min(least), least.max(greatest))));
        self.shared.mailboxes.of(stream.client.engine).send(Message::AddStream(stream.clone()));
        self.streams.write().insert(id, stream);
        Ok(id)
    }

    fn destroy_stream(&self, stream: StreamId) {
        let gone = self.streams.write().remove(&stream);
        if let Some(gone) = gone {
            self.shared.mailboxes.of(gone.client.engine).send(Message::RemoveStream(stream));
        }
    }

    fn submit(&self, stream: StreamId, token: u64, work: Work) -> Result<(), DeviceError> {
        self.shared.mailboxes.of(self.engine_of(stream)?).send(Message::Submit(stream, token, work));
        Ok(())
    }

    fn submit_all(&self, stream: StreamId, work: &mut Vec<(u64, Work)>) -> Result<(), DeviceError> {
        let mailbox = self.shared.mailboxes.of(self.engine_of(stream)?);
        mailbox.send_all(work.drain(..).map(|(token, work)| Message::Submit(stream, token, work)));
        Ok(())
    }

    // ---- takeover

    /// A card knows nothing of a predecessor's work.
    fn recover(&self, _client: ClientId) -> Vec<Interrupted> {
        Vec::new()
    }
}
