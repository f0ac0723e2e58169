//! The devices of an executor as one: what belongs to a device already (an address, a stream, a
//! module) is sent to it, what concerns a client goes to each of its devices. With one device every
//! call is that device's.
//!
//! Devices are known by their index in the server's list. Device memory of device `n` lies in the
//! `n`-th part of the arena ([`layout::arena_window`]), so an address says whose it is; only
//! mappings that a client put elsewhere are remembered. Stream numbers carry the index in their
//! upper bits: the reports of a device pass through [`crate::together`].

mod absent;
mod peers;

use self::absent::Absent;
use crate::objects::PartitionSpec;
use crate::together::{OWN, OWN_BITS, Together, tag};
use cumux_device::{
    ArrayWish, Capabilities, Carried, ChainRecipe, ClientCounters, ClientId, ClientSpec, Device, DeviceError, DeviceFacts, Fault, GlobalsAllocator, Image,
    ImageHash, Interrupted, Lane, ModuleId, ModuleInfo, ObjectWish, Open, PreloadedModule, ReadImage, Sink, StreamId, TensorWish, Work,
};
use cumux_wire::cuda::{FunctionAttribute, Limit};
use cumux_wire::layout::{self, DeviceIndex};
use cumux_wire::message::SessionConfig;
use parking_lot::RwLock;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

/// A client of a group whose clients run on the same multiprocessors.
struct Member {
    group: String,
    /// Multiprocessors by the index of a device.
    shares: HashMap<DeviceIndex, u32>,
}

/// All devices of an executor.
pub struct Cards {
    all: Vec<Arc<dyn Device>>,
    /// Of all of them together.
    capabilities: Capabilities,
    /// Places of each client's devices, by its own ordinals.
    clients: RwLock<HashMap<ClientId, Vec<u32>>>,
    /// The clients of groups that run on the same multiprocessors.
    members: RwLock<HashMap<ClientId, Member>>,
    /// Where modules and partitions are, for executors with several devices.
    modules: RwLock<HashMap<(ClientId, ModuleId), u32>>,
    partitions: RwLock<HashMap<(ClientId, u32), u32>>,
    /// Mappings that lie in the part of another device: bytes and device by address.
    elsewhere: RwLock<BTreeMap<u64, (u64, u32)>>,
    /// Mappings that other devices reach, by address.
    opened: RwLock<BTreeMap<u64, peers::Opened>>,
    /// For each client the devices that reach its allocations on others: who, and on which.
    links: RwLock<HashMap<ClientId, BTreeSet<(DeviceIndex, DeviceIndex)>>>,
}

/// A device that was opened, or why it was not.
type Opened = Result<Arc<dyn Device>, DeviceError>;

/// The opened devices, and in place of each other one what says why it could not be opened.
fn replace_absent(names: &[String], opener: &dyn Open, opened: Vec<Opened>) -> Result<Vec<Arc<dyn Device>>, DeviceError> {
    let ids: Vec<&str> = names.iter().map(String::as_str).collect();
    let known = opener.look_at_all(&ids);
    names.iter().zip(known).zip(opened).map(|((name, known), opened)| replace_one(name, known, opened)).collect()
}

fn replace_one(name: &str, known: Option<DeviceFacts>, opened: Opened) -> Opened {
    match (opened, known) {
        (Err(error), Some(facts)) => {
            tracing::error!("{name} cannot be used, and the other devices are served without it: {error}");
            Ok(Arc::new(Absent::new(facts, error.to_string())))
        }
        (opened, _) => opened,
    }
}

impl Cards {
    /// Opens the devices side by side.
    ///
    /// # Errors
    /// The first that cannot be opened, if none can. Where others can, it is absent.
    pub fn open(names: &[String], opener: &dyn Open, reports: &Arc<dyn Sink>) -> Result<Self, DeviceError> {
        if names.is_empty() || names.len() > layout::DEVICES {
            return Err(DeviceError::Invalid(format!("{} devices: an executor has 1 to {}", names.len(), layout::DEVICES)));
        }
        let together = Together::new(reports.clone());
        let sink_of = |device_index: DeviceIndex| if names.len() == 1 { reports.clone() } else { together.sink_of(device_index) };
        let wanted = (0..).zip(names).map(|(device_index, name)| (name.as_str(), sink_of(device_index))).collect();
        let opened = opener.open_all(wanted);
        let all = if opened.iter().any(Result::is_ok) { replace_absent(names, opener, opened) } else { opened.into_iter().collect() };
        let all: Vec<Arc<dyn Device>> = all?;
        together.set_devices(&all);
        Ok(Self::new(all))
    }

    /// These devices; if there are several, their sinks must tell them apart as [`Cards::open`]
    /// does it.
    #[must_use]
    pub fn new(all: Vec<Arc<dyn Device>>) -> Self {
        let capabilities = Capabilities::of_all(all.iter().map(|device| device.capabilities()));
        Self {
            all,
            capabilities,
            clients: RwLock::default(),
            members: RwLock::default(),
            modules: RwLock::default(),
            partitions: RwLock::default(),
            elsewhere: RwLock::default(),
            opened: RwLock::default(),
            links: RwLock::default(),
        }
    }

    fn card(&self, device_index: DeviceIndex) -> Result<&Arc<dyn Device>, DeviceError> {
        self.put_down();
        self.all.get(device_index as usize).ok_or_else(|| DeviceError::Invalid(format!("there is no device {device_index}")))
    }

    fn single(&self) -> bool {
        self.all.len() == 1
    }

    /// As [`cumux_device::Queues::carry`], of the only device.
    pub fn carry(&self, lane: usize, moved: bool) -> Carried {
        if let [device] = &self.all[..] { device.carry(lane, moved) } else { Carried::Nothing }
    }

    /// As [`cumux_device::Queues::put_down`]. Every call but [`Cards::submit_all`] begins with it.
    pub fn put_down(&self) {
        if let [device] = &self.all[..] {
            device.put_down();
        }
    }

    /// The device of an address.
    #[must_use]
    pub fn place_of(&self, address: u64) -> u32 {
        if self.single() {
            return 0;
        }
        let elsewhere = self.elsewhere.read();
        match elsewhere.range(..=address).next_back() {
            Some((start, (bytes, device_index))) if address - start < *bytes => *device_index,
            _ => layout::arena_device(address).min(self.all.len() as u32 - 1),
        }
    }

    fn at(&self, address: u64) -> Result<&Arc<dyn Device>, DeviceError> {
        self.card(self.place_of(address))
    }

    fn of(&self, client: ClientId) -> Vec<&Arc<dyn Device>> {
        self.put_down();
        let indices = self.clients.read().get(&client).cloned().unwrap_or_default();
        indices.iter().filter_map(|device_index| self.all.get(*device_index as usize)).collect()
    }

    fn with_module(&self, client: ClientId, module: ModuleId) -> Result<&Arc<dyn Device>, DeviceError> {
        let device_index = if self.single() { 0 } else { self.modules.read().get(&(client, module)).copied().unwrap_or(0) };
        self.card(device_index)
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// What the devices can do together, and what any of them needs.
    #[must_use]
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// What all its devices have counted of a client.
    #[must_use]
    pub fn client_counters(&self, client: ClientId) -> ClientCounters {
        if self.single() {
            return self.all[0].client_counters(client);
        }
        self.of(client).iter().fold(ClientCounters::default(), |sum, device| sum.plus(device.client_counters(client)))
    }

    /// Facts of one device, the first's for an index that is not there.
    #[must_use]
    pub fn facts(&self, device_index: DeviceIndex) -> &DeviceFacts {
        self.all.get(device_index as usize).unwrap_or(&self.all[0]).facts()
    }

    /// Bytes of memory that can be had of a device at most.
    #[must_use]
    pub fn capacity(&self, device_index: DeviceIndex) -> u64 {
        self.all.get(device_index as usize).unwrap_or(&self.all[0]).capacity()
    }

    /// Opens a client on each of its devices. Marks are one device's: those of its first.
    ///
    /// # Errors
    /// As [`cumux_device::Clients::open_client`].
    pub fn open_client(&self, client: ClientId, config: &SessionConfig, lane: Lane, marks: BorrowedFd<'_>) -> Result<(), DeviceError> {
        let group = config.group.as_ref().filter(|membership| membership.one_part).map(|membership| membership.group.as_str());
        let mut opened: Vec<&Arc<dyn Device>> = Vec::new();
        let visible = config.parts.len() as u32;
        for (ordinal, part) in config.parts.iter().enumerate() {
            let sms = config.sms.get(ordinal).cloned().unwrap_or_default();
            let beside = group.and_then(|group| self.member_beside(client, group, part.device, part.multiprocessors));
            let spec = ClientSpec {
                multiprocessors: part.multiprocessors,
                priority: config.priority,
                sms,
                beside,
                ordinal: ordinal as u32,
                visible,
                lane: Some(lane),
            };
            let done = self.card(part.device).and_then(|device| {
                let marks = Some(marks).filter(|_| ordinal == 0 && device.capabilities().resumes_kernels);
                device.open_client(client, &spec, marks).map(|()| opened.push(device))
            });
            if let Err(error) = done {
                opened.iter().for_each(|device| device.close_client(client));
                return Err(error);
            }
        }
        self.clients.write().insert(client, config.parts.iter().map(|part| part.device).collect());
        if let Some(group) = group {
            let shares = config.parts.iter().map(|part| (part.device, part.multiprocessors)).collect();
            self.members.write().insert(client, Member { group: group.to_owned(), shares });
        }
        Ok(())
    }

    /// Another client of the same group with a share of this size.
    fn member_beside(&self, client: ClientId, group: &str, device_index: DeviceIndex, multiprocessors: u32) -> Option<ClientId> {
        let members = self.members.read();
        let alike = |member: &Member| member.group == group && member.shares.get(&device_index) == Some(&multiprocessors);
        members.iter().find(|(other, member)| **other != client && alike(member)).map(|(other, _)| *other)
    }

    pub fn close_client(&self, client: ClientId) {
        // First: nobody follows it any more.
        self.members.write().remove(&client);
        for device in self.of(client) {
            device.close_client(client);
        }
        self.clients.write().remove(&client);
        self.links.write().remove(&client);
        self.modules.write().retain(|(owner, _), _| *owner != client);
        self.partitions.write().retain(|(owner, _), _| *owner != client);
    }

    pub fn stop_client(&self, client: ClientId, fault: &Fault) {
        for device in self.of(client) {
            device.stop_client(client, fault.clone());
        }
    }

    /// # Errors
    /// As [`cumux_device::Partitions::set_share`].
    pub fn set_share(&self, client: ClientId, device_index: DeviceIndex, multiprocessors: u32) -> Result<(), DeviceError> {
        let group = self.members.read().get(&client).map(|member| member.group.clone());
        match group.and_then(|group| self.member_beside(client, &group, device_index, multiprocessors)) {
            Some(other) => self.card(device_index)?.set_share_beside(client, other)?,
            None => self.card(device_index)?.set_share(client, multiprocessors)?,
        }
        if let Some(member) = self.members.write().get_mut(&client) {
            member.shares.insert(device_index, multiprocessors);
        }
        Ok(())
    }

    /// # Errors
    /// As [`cumux_device::Partitions::open_partition`] and
    /// [`cumux_device::Partitions::place_partition`].
    pub fn open_partition(&self, client: ClientId, device_index: DeviceIndex, partition: u32, spec: &PartitionSpec) -> Result<(), DeviceError> {
        let card = self.card(device_index)?;
        match spec.positions {
            Some(positions) => card.place_partition(client, partition, positions)?,
            None => card.open_partition(client, partition, spec.multiprocessors)?,
        }
        self.partitions.write().insert((client, partition), device_index);
        Ok(())
    }

    pub fn close_partition(&self, client: ClientId, partition: u32) {
        let device_index = self.partitions.write().remove(&(client, partition));
        if let Some(device) = device_index.and_then(|device_index| self.card(device_index).ok()) {
            device.close_partition(client, partition);
        }
    }

    // ---- memory

    /// # Errors
    /// As [`cumux_device::Memory::create_extent`].
    pub fn create_extent(&self, device_index: DeviceIndex, bytes: u64) -> Result<OwnedFd, DeviceError> {
        self.card(device_index)?.create_extent(bytes)
    }

    pub fn forget_extent(&self, device_index: DeviceIndex, extent: BorrowedFd<'_>) {
        if let Ok(device) = self.card(device_index) {
            device.forget_extent(extent);
        }
    }

    /// # Errors
    /// As [`cumux_device::Memory::map`].
    pub fn map(&self, device_index: DeviceIndex, address: u64, extent: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.card(device_index)?.map(address, extent, offset, bytes)?;
        if !self.single() && layout::arena_device(address) != device_index {
            self.elsewhere.write().insert(address, (bytes, device_index));
        }
        Ok(())
    }

    /// # Errors
    /// As [`cumux_device::Memory::unmap`].
    pub fn unmap(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        self.close_peers(address);
        self.at(address)?.unmap(address, bytes)?;
        if !self.single() {
            self.elsewhere.write().remove(&address);
        }
        Ok(())
    }

    /// # Errors
    /// As [`cumux_device::Memory::map_window`].
    pub fn map_window(&self, client: ClientId, window: BorrowedFd<'_>, address: u64, bytes: u64) -> Result<(), DeviceError> {
        self.of(client).into_iter().try_for_each(|device| device.map_window(client, window, address, bytes))
    }

    /// As [`cumux_device::Takeover::first_queue`]; 0 if no device numbers its queues.
    pub fn first_queue(&self) -> u32 {
        self.all.iter().find_map(|device| device.first_queue()).unwrap_or(0)
    }

    /// As [`cumux_device::Takeover::chain_recipes`], for each device that has some.
    pub fn chain_recipes(&self, client: ClientId) -> Vec<(DeviceIndex, Vec<ChainRecipe>)> {
        let of_all = self.all.iter().enumerate().map(|(index, device)| (index as DeviceIndex, device.chain_recipes(client)));
        of_all.filter(|(_, recipes)| !recipes.is_empty()).collect()
    }

    /// As [`cumux_device::Takeover::inherit_recipes`].
    pub fn inherit_recipes(&self, client: ClientId, device_index: DeviceIndex, recipes: Vec<ChainRecipe>) {
        if let Ok(device) = self.card(device_index) {
            device.inherit_recipes(client, recipes);
        }
    }

    /// As [`cumux_device::Takeover::prepare_chains`].
    pub fn prepare_chains(&self, device_index: DeviceIndex, recipes: &[ChainRecipe], most: usize) -> usize {
        self.card(device_index).map_or(0, |device| device.prepare_chains(recipes, most))
    }

    /// As [`cumux_device::Takeover::spare_driver`].
    pub fn spare_driver(&self, is_spared: bool) {
        self.all.iter().for_each(|device| device.spare_driver(is_spared));
    }

    /// As [`cumux_device::Memory::maps_ahead`].
    pub fn maps_ahead(&self) -> bool {
        self.all.iter().any(|device| device.maps_ahead())
    }

    /// # Errors
    /// As [`cumux_device::Memory::expect_extent`].
    pub fn expect_extent(&self, name: u64, address: u64, extent: BorrowedFd<'_>, bytes: u64) -> Result<bool, DeviceError> {
        self.card(layout::arena_device(address))?.expect_extent(name, address, extent, bytes)
    }

    /// As [`cumux_device::Memory::adopt_extent`].
    pub fn adopt_extent(&self, name: u64, address: u64, bytes: u64) -> bool {
        self.card(layout::arena_device(address)).is_ok_and(|device| device.adopt_extent(name, address, bytes))
    }

    /// Maps a window for these devices.
    ///
    /// # Errors
    /// As [`cumux_device::Memory::expect_window`].
    pub fn expect_window(
        &self,
        device_indices: &[DeviceIndex],
        window: BorrowedFd<'_>,
        address: u64,
        bytes: u64,
        used: &[(u64, u64)],
    ) -> Result<(), DeviceError> {
        device_indices.iter().try_for_each(|device_index| self.card(*device_index)?.expect_window(window, address, bytes, used).map(drop))
    }

    /// As [`cumux_device::Memory::forget_expected`].
    pub fn forget_expected(&self, is_forgotten: &dyn Fn(u64) -> bool) {
        self.all.iter().for_each(|device| device.forget_expected(is_forgotten));
    }

    /// # Errors
    /// As [`cumux_device::Memory::use_window`].
    pub fn use_window(&self, client: ClientId, address: u64, bytes: u64) -> Result<(), DeviceError> {
        self.of(client).into_iter().try_for_each(|device| device.use_window(client, address, bytes))
    }

    /// As [`cumux_device::Memory::is_range_spare`], on all devices of the client.
    pub fn is_range_spare(&self, client: ClientId, address: u64, bytes: u64) -> bool {
        self.of(client).into_iter().all(|device| device.is_range_spare(address, bytes))
    }

    /// On all devices of the client, or on none.
    ///
    /// # Errors
    /// As [`cumux_device::Memory::alias`].
    pub fn alias(&self, client: ClientId, user: u64, window: u64, bytes: u64) -> Result<(), DeviceError> {
        let devices = self.of(client);
        for (done, device) in devices.iter().enumerate() {
            if let Err(error) = device.alias(client, user, window, bytes) {
                devices[..done].iter().for_each(|device| device.unalias(client, user));
                return Err(error);
            }
        }
        Ok(())
    }

    pub fn unalias(&self, client: ClientId, user: u64) {
        self.of(client).into_iter().for_each(|device| device.unalias(client, user));
    }

    /// An allocation: the devices that reach it may touch it, too.
    pub fn allow(&self, client: ClientId, address: u64, bytes: u64, writable: bool) {
        self.allow_own(client, address, bytes, writable);
        for own in self.linked_with(client, self.place_of(address)) {
            self.allow_at(own, client, address, bytes, writable);
        }
    }

    pub fn revoke(&self, client: ClientId, address: u64) {
        for own in self.linked_with(client, self.place_of(address)) {
            self.revoke_at(own, client, address);
        }
        self.revoke_own(client, address);
    }

    /// As [`Cards::allow`], on the memory's own device alone.
    pub fn allow_own(&self, client: ClientId, address: u64, bytes: u64, writable: bool) {
        if let Ok(device) = self.at(address) {
            device.allow(client, address, bytes, writable);
        }
    }

    /// As [`Cards::revoke`], on the memory's own device alone.
    pub fn revoke_own(&self, client: ClientId, address: u64) {
        if let Ok(device) = self.at(address) {
            device.revoke(client, address);
        }
    }

    /// The device that reads and writes an address: its own, or for the client's window any of the
    /// client's.
    fn reaching(&self, client: ClientId, address: u64) -> Result<&Arc<dyn Device>, DeviceError> {
        if self.single() || layout::in_arena(address) {
            return self.at(address);
        }
        self.of(client).first().copied().ok_or_else(|| DeviceError::Invalid(format!("client {client} is not open")))
    }

    /// # Errors
    /// As [`cumux_device::Memory::write`].
    pub fn write(&self, client: ClientId, address: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.reaching(client, address)?.write(address, bytes)
    }

    /// # Errors
    /// As [`cumux_device::Memory::read`].
    pub fn read(&self, client: ClientId, address: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        // A window is read in no time, again and again where a stream waits for a value.
        if let [device] = &self.all[..]
            && layout::in_windows(address)
        {
            return device.read(address, into);
        }
        self.reaching(client, address)?.read(address, into)
    }

    // ---- modules

    /// # Errors
    /// As [`cumux_device::Modules::load_module`].
    pub fn load_module(
        &self,
        client: ClientId,
        device_index: DeviceIndex,
        module: ModuleId,
        image: Image<'_>,
        variables: &mut dyn GlobalsAllocator,
    ) -> Result<ModuleInfo, DeviceError> {
        if !self.single() {
            self.modules.write().insert((client, module), device_index);
        }
        self.card(device_index)?.load_module(client, module, image, variables)
    }

    /// # Errors
    /// As [`cumux_device::Modules::adopt_module`].
    pub fn adopt_module(
        &self,
        client: ClientId,
        device_index: DeviceIndex,
        module: ModuleId,
        image: ImageHash,
        variables: &mut dyn GlobalsAllocator,
    ) -> Result<Option<ModuleInfo>, DeviceError> {
        let adopted = self.card(device_index)?.adopt_module(client, module, image, variables)?;
        if adopted.is_some() && !self.single() {
            self.modules.write().insert((client, module), device_index);
        }
        Ok(adopted)
    }

    /// # Errors
    /// As [`cumux_device::Modules::preload_module`].
    pub fn preload_module(
        &self,
        device_index: DeviceIndex,
        hash: ImageHash,
        read: &mut ReadImage<'_>,
        variables: &mut dyn GlobalsAllocator,
    ) -> Result<Option<PreloadedModule>, DeviceError> {
        self.card(device_index)?.preload_module(hash, read, variables)
    }

    /// # Errors
    /// As [`cumux_device::Modules::preload_kernels`].
    pub fn preload_kernels(&self, device_index: DeviceIndex, module: PreloadedModule, functions: &[u32]) -> Result<(), DeviceError> {
        self.card(device_index)?.preload_kernels(module, functions)
    }

    pub fn drop_preloaded(&self, device_index: DeviceIndex, module: PreloadedModule) {
        if let Ok(device) = self.card(device_index) {
            device.drop_preloaded(module);
        }
    }

    pub fn unload_module(&self, client: ClientId, module: ModuleId) {
        if let Ok(device) = self.with_module(client, module) {
            device.unload_module(client, module);
        }
        if !self.single() {
            self.modules.write().remove(&(client, module));
        }
    }

    /// # Errors
    /// As [`cumux_device::Modules::set_function`].
    pub fn set_function(&self, client: ClientId, module: ModuleId, function: u32, attribute: u32, value: i32) -> Result<(), DeviceError> {
        self.with_module(client, module)?.set_function(client, module, function, FunctionAttribute(attribute), value)
    }

    /// # Errors
    /// As [`cumux_device::Modules::encode_tensor`].
    pub fn encode_tensor(&self, device_index: DeviceIndex, wish: &TensorWish) -> Result<[u8; 128], DeviceError> {
        self.card(device_index)?.encode_tensor(wish)
    }

    /// # Errors
    /// As [`cumux_device::Clients::set_limit`].
    pub fn set_limit(&self, client: ClientId, limit: u32, value: u64) -> Result<(), DeviceError> {
        self.of(client).into_iter().try_for_each(|device| device.set_limit(client, Limit(limit), value))
    }

    // ---- arrays, texture and surface objects

    /// # Errors
    /// As [`cumux_device::Textures::create_array`].
    pub fn create_array(&self, client: ClientId, device_index: DeviceIndex, array: u32, wish: &ArrayWish) -> Result<(), DeviceError> {
        self.card(device_index)?.create_array(client, array, wish)
    }

    pub fn destroy_array(&self, client: ClientId, device_index: DeviceIndex, array: u32) {
        if let Ok(device) = self.card(device_index) {
            device.destroy_array(client, array);
        }
    }

    /// # Errors
    /// As [`cumux_device::Textures::create_object`].
    pub fn create_object(&self, client: ClientId, device_index: DeviceIndex, wish: &ObjectWish) -> Result<u64, DeviceError> {
        self.card(device_index)?.create_object(client, wish)
    }

    pub fn destroy_object(&self, client: ClientId, device_index: DeviceIndex, handle: u64) {
        if let Ok(device) = self.card(device_index) {
            device.destroy_object(client, handle);
        }
    }

    // ---- work

    /// # Errors
    /// As [`cumux_device::Queues::create_stream_in`].
    pub fn create_stream(&self, client: ClientId, device_index: DeviceIndex, partition: u32, priority: i32) -> Result<StreamId, DeviceError> {
        let stream = self.card(device_index)?.create_stream_in(client, partition, priority)?;
        if self.single() {
            return Ok(stream);
        }
        if stream.0 > OWN {
            self.card(device_index)?.destroy_stream(stream);
            return Err(DeviceError::OutOfMemory(format!("device {device_index} has made {OWN} streams")));
        }
        Ok(tag(device_index, stream))
    }

    fn stream(&self, stream: StreamId) -> Result<(&Arc<dyn Device>, StreamId), DeviceError> {
        if self.single() { Ok((&self.all[0], stream)) } else { Ok((self.card(stream.0 >> OWN_BITS)?, StreamId(stream.0 & OWN))) }
    }

    pub fn destroy_stream(&self, stream: StreamId) {
        if let Ok((device, own)) = self.stream(stream) {
            device.destroy_stream(own);
        }
    }

    /// # Errors
    /// As [`cumux_device::Queues::submit_all`].
    pub fn submit_all(&self, stream: StreamId, work: &mut Vec<(u64, Work)>) -> Result<(), DeviceError> {
        let (device, own) = self.stream(stream)?;
        device.submit_all(own, work)
    }

    // ---- takeover

    /// What the marks of a client's first device say. Of what had begun on its other devices
    /// nothing is known.
    #[must_use]
    pub fn recover(&self, client: ClientId) -> Vec<Interrupted> {
        self.of(client).first().map_or_else(Vec::new, |device| device.recover(client))
    }
}
