//! What the device knows of a client. Shared between the threads that change it and the engine that
//! runs its work.

use super::module::ClientModule;
use super::partitions::Partition;
use super::permissions::Permissions;
use super::pinned_window::PinnedWindow;
use crate::counters::ClientCounts;
use cumux_device::{ClientId, ModuleId, StreamId};
use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// How a client's work stands to that of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Its streams have the priorities that it asks for.
    Normal,
    /// It yields to normal clients: its streams are the least urgent, whatever it asks for.
    BelowNormal,
}

impl Urgency {
    /// Of [`cumux_device::ClientSpec::priority`].
    pub(crate) fn of(priority: u32) -> Urgency {
        if priority > 0 { Urgency::BelowNormal } else { Urgency::Normal }
    }
}

/// One client.
///
/// Lock order among a client's locks: `window`, then `permissions`, and every other one alone.
/// Under `window` a [`PinnedWindow`]'s locks may be taken; under `share` and `partitions` the lock
/// of the card's floor (a partition that goes gives its SMs back).
pub(crate) struct Client {
    /// The session number.
    pub id: ClientId,
    /// Which engine runs its work: all of it, so that a client's order is one thread's order.
    pub engine: usize,
    /// How its work stands to that of others.
    pub urgency: Urgency,
    /// The partition that is its share; `None` is the whole card.
    pub share: RwLock<Option<Arc<Partition>>>,
    /// Partitions of its share by the numbers the client gave them.
    pub partitions: RwLock<FxHashMap<u32, Arc<Partition>>>,
    /// What its work may touch.
    pub permissions: RwLock<Permissions>,
    /// Its pinned window, once it is mapped.
    pub window: RwLock<Option<Arc<PinnedWindow>>>,
    /// Its modules.
    pub modules: RwLock<FxHashMap<ModuleId, Arc<ClientModule>>>,
    /// What is counted of it.
    pub counts: ClientCounts,
}

impl Client {
    /// A client with nothing but its share.
    pub(crate) fn new(id: ClientId, engine: usize, urgency: Urgency, share: Option<Arc<Partition>>) -> Client {
        Client {
            id,
            engine,
            urgency,
            share: RwLock::new(share),
            partitions: RwLock::default(),
            permissions: RwLock::default(),
            window: RwLock::default(),
            modules: RwLock::default(),
            counts: ClientCounts::default(),
        }
    }
}

/// A stream of a client: virtual, bound to a driver stream while it has work in flight.
pub(crate) struct ClientStream {
    /// Minted by the card.
    pub id: StreamId,
    /// Whose it is.
    pub client: Arc<Client>,
    /// Lower is more urgent.
    pub priority: i32,
    /// The partition of the client's share on which it runs, by the client's number; `None` is all
    /// of the share.
    partition: Option<u32>,
}

impl ClientStream {
    /// A stream in `partition` of the client's share (the client's number; 0 is all of the share).
    pub(crate) fn new(id: StreamId, client: Arc<Client>, partition: u32, priority: i32) -> Self {
        Self { id, client, priority, partition: (partition != 0).then_some(partition) }
    }

    /// Where its next work runs; `None` is the whole card. A stream whose partition was closed runs
    /// on the client's share.
    pub(crate) fn partition(&self) -> Option<Arc<Partition>> {
        let own = self.partition.and_then(|number| self.client.partitions.read().get(&number).cloned());
        own.or_else(|| self.client.share.read().clone())
    }
}
