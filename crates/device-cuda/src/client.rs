//! What the device knows of a client. Shared between the threads that change it and the engine that runs its work.

use crate::host::HostWindow;
use crate::module::Loaded;
use crate::partition::Partition;
use crate::ranges::Ranges;
use cumux_device::{ClientId, ModuleId, StreamId};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;

pub(crate) struct Client {
    pub id: ClientId,
    /// Which engine runs its work: all of it, so that a client's order is one thread's order.
    pub engine: usize,
    pub partition: Option<Arc<Partition>>,
    pub ranges: RwLock<Ranges>,
    pub window: RwLock<Option<Arc<HostWindow>>>,
    pub modules: RwLock<HashMap<ModuleId, Arc<Loaded>>>,
}

/// A stream of a client: virtual, bound to a driver stream while it has work in flight.
pub(crate) struct ClientStream {
    pub id: StreamId,
    pub client: Arc<Client>,
    pub priority: i32,
}
