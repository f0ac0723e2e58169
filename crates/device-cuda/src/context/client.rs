//! What the device knows of a client. The threads that change it share it with the engine that runs
//! the client's work.

use super::constants::Constants;
use super::module::ClientModule;
use super::partitions::Partition;
use super::pinned_window::{PinnedWindow, WindowAlias};
use super::recipes::Recipes;
use super::textures::ClientTextures;
use crate::counters::ClientCounts;
use cumux_device::{ClientId, ModuleId, StreamId};
use cumux_ranges::Permissions;
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A client's priority among all clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Streams of the client have the priorities that it asks for.
    Normal,
    /// The client yields to normal clients: all its streams have the least urgent priority.
    BelowNormal,
}

impl Urgency {
    /// The urgency for a value of [`cumux_device::ClientSpec::priority`].
    pub(crate) fn of(priority: u32) -> Urgency {
        if priority > 0 { Urgency::BelowNormal } else { Urgency::Normal }
    }
}

/// One client.
///
/// Lock order: `window` (4) comes before `permissions`, `share`, `partitions`, `modules`,
/// `textures` and `constants` (5), of which a thread holds one at a time. Under `window` a thread
/// may take a [`PinnedWindow`]'s locks. Under `share` and `partitions` it may take the lock of the
/// card's SM allocator, because dropping a partition frees its SMs there.
pub(crate) struct ContextClient {
    /// The session number.
    pub id: ClientId,
    /// The engine that runs the client's work. One engine runs all of it, so the order of the
    /// client's work is the order of one thread.
    pub engine: usize,
    /// The client's priority among all clients.
    pub urgency: Urgency,
    /// The client's share of the card; `None` is the whole card.
    pub share: RwLock<Option<Arc<Partition>>>,
    /// Partitions of the share, by the client's numbers for them.
    pub partitions: RwLock<FxHashMap<u32, Arc<Partition>>>,
    /// The memory that the client's work may access.
    pub permissions: RwLock<Permissions>,
    /// The client's pinned window, once it is mapped.
    pub window: RwLock<Option<Arc<PinnedWindow>>>,
    /// Parts of the window that have another address in the arena, by that address; `None` once the
    /// client is closed. Lock 8 of the crate's order, held alone.
    pub aliases: Mutex<Option<BTreeMap<u64, Arc<WindowAlias>>>>,
    /// The client's modules.
    pub modules: RwLock<FxHashMap<ModuleId, Arc<ClientModule>>>,
    /// The arrays and objects that the driver has made for the client.
    pub textures: RwLock<ClientTextures>,
    /// The `__constant__` variables of the client's modules.
    pub constants: RwLock<Constants>,
    /// The chains that were made for the client. Lock 8 of the crate's order, held alone.
    pub recipes: Mutex<Recipes>,
    /// Counters.
    pub counts: ClientCounts,
}

impl ContextClient {
    /// A client that owns nothing but its share.
    pub(crate) fn new(id: ClientId, engine: usize, urgency: Urgency, share: Option<Arc<Partition>>) -> ContextClient {
        ContextClient {
            id,
            engine,
            urgency,
            share: RwLock::new(share),
            partitions: RwLock::default(),
            permissions: RwLock::default(),
            window: RwLock::default(),
            aliases: Mutex::new(Some(BTreeMap::new())),
            modules: RwLock::default(),
            textures: RwLock::default(),
            constants: RwLock::default(),
            recipes: Mutex::default(),
            counts: ClientCounts::new(id),
        }
    }
}

/// A stream of a client: virtual, bound to a driver stream while it has work in flight.
pub(crate) struct ClientStream {
    /// The stream's number, minted by the card.
    pub id: StreamId,
    /// The stream's owner.
    pub client: Arc<ContextClient>,
    /// The driver's priority: lower is more urgent.
    pub priority: i32,
    /// The partition of the client's share on which the stream runs, by the client's number; `None`
    /// is the whole share.
    partition: Option<u32>,
}

impl ClientStream {
    /// A stream in a partition of the client's share, by the client's number; 0 is the whole share.
    pub(crate) fn new(id: StreamId, client: Arc<ContextClient>, partition: u32, priority: i32) -> Self {
        Self { id, client, priority, partition: (partition != 0).then_some(partition) }
    }

    /// The SMs on which the stream's next work runs; `None` is the whole card. A stream whose
    /// partition was closed runs on the client's share.
    pub(crate) fn partition(&self) -> Option<Arc<Partition>> {
        let own = self.partition.and_then(|number| self.client.partitions.read().get(&number).cloned());
        own.or_else(|| self.client.share.read().clone())
    }
}
