//! What the device knows of a client. Shared between the threads that change it and the engine that runs its work.

use crate::counters::ClientCounts;
use crate::host::HostWindow;
use crate::module::Loaded;
use crate::partition::Partition;
use crate::ranges::Ranges;
use cumux_device::{ClientId, ModuleId, StreamId};
use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use std::ops::Deref;
use std::sync::Arc;

pub(crate) struct Client {
    pub id: ClientId,
    /// Which engine runs its work: all of it, so that a client's order is one thread's order.
    pub engine: usize,
    /// Below normal: its streams are the least urgent, whatever it asks for.
    pub gives_way: bool,
    /// The part of the card that is its share; none: all of it.
    pub share: RwLock<Option<Arc<Partition>>>,
    /// Parts of its share by the numbers the client gave them.
    pub parts: RwLock<FxHashMap<u32, Arc<Partition>>>,
    pub ranges: RwLock<Ranges>,
    pub window: RwLock<Option<Arc<HostWindow>>>,
    pub modules: RwLock<FxHashMap<ModuleId, Arc<Own>>>,
    pub counts: ClientCounts,
}

/// A stream of a client: virtual, bound to a driver stream while it has work in flight.
pub(crate) struct ClientStream {
    pub id: StreamId,
    pub client: Arc<Client>,
    pub priority: i32,
    /// The part of the client's share on which it runs; 0 = all of it.
    part: u32,
}

impl ClientStream {
    pub(crate) fn new(id: StreamId, client: Arc<Client>, part: u32, priority: i32) -> Self {
        Self { id, client, priority, part }
    }

    /// Where its next work runs. A part that was closed is the client's share again.
    pub(crate) fn partition(&self) -> Option<Arc<Partition>> {
        let own = if self.part == 0 { None } else { self.client.parts.read().get(&self.part).cloned() };
        own.or_else(|| self.client.share.read().clone())
    }
}

/// A client's hold on a module that others may share: its own, so that counting references does not make engines wait for one another.
pub(crate) struct Own(Arc<Loaded>);

impl Own {
    pub(crate) fn new(module: Arc<Loaded>) -> Arc<Own> {
        Arc::new(Own(module))
    }
}

impl Deref for Own {
    type Target = Loaded;
    fn deref(&self) -> &Loaded {
        &self.0
    }
}
